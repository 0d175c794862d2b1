/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * plant-codec SOURCE OBJECT CODEC - say in an object's record that it has another
 * transformation, as a later version of varjfs might write it; nothing may be mounted
 * plant-codec --id NAME  - the number of a transformation; fails where this build lacks
 * it
 */
#include "../lib/test.h"

#include "../lib/plant.h"
#include "codec/codec.h"
#include "object/object-format.h"

typedef struct Label {
    uint64_t id;
    uint8_t codec;
} Label;

static int relabel(VjTxn *txn, void *opaque)
{
    const Label *label = opaque;
    VjObject object;
    int r = vj_object_record_get(txn, VJ_SPACE_OBJECT, label->id, &object);

    if (r < 0) {
        return r;
    }
    object.codec = label->codec;
    return vj_object_record_put(txn, VJ_SPACE_OBJECT, &object);
}

int main(int argc, char **argv)
{
    Label label;

    if (argc == 3 && strcmp(argv[1], "--id") == 0) {
        const VjCodecOps *ops = vj_codec_by_name(argv[2]);

        if (ops == NULL) {
            return 1;
        }
        printf("%u\n", ops->id);
        return 0;
    }
    g_assert(argc == 4);
    label.id = g_ascii_strtoull(argv[2], NULL, 10);
    label.codec = (uint8_t)g_ascii_strtoull(argv[3], NULL, 10);
    vj_plant(argv[1], relabel, &label);
    return 0;
}
