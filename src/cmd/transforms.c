/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * transforms.c - the lines of --help about the transformations of this build
 */
#include "cmd/cmd.h"
#include "codec/codec.h"

char *vj_cmd_transforms(void)
{
    g_autofree char *list = vj_codec_list();

    return g_strdup_printf("Transformations: %s.\nvarjfs-transform(7) describes them.",
                           list);
}
