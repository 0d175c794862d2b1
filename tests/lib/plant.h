/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * plant.h - wrong keys in the metadata of a closed volume, for tests of what checks find
 *
 * Through the engine alone: a volume would take ids, and wait for the device.  Behind
 * test.h.
 */
#ifndef VJ_TEST_LIB_PLANT_H
#define VJ_TEST_LIB_PLANT_H

#include "meta/meta.h"

/* Runs @body on the metadata of the volume in @source. */
static inline void vj_plant(const char *source, VjTxnBody *body, void *opaque)
{
    g_autofree char *path = g_build_filename(source, "meta", NULL);
    g_autoptr(GError) error = NULL;
    VJ_AUTO_FD fd = open(path, O_RDONLY | O_DIRECTORY);
    VjMetaPlace place = {.dir_fd = fd, .path = path};
    VjMeta *meta;

    if (!vj_meta_open("lmdb", &place, &meta, &error)) {
        fail_msg("%s", error->message);
    }
    assert_int_equal(vj_meta_run(meta, VJ_RUN_DEFAULT, body, opaque), 0);
    assert_int_equal(vj_meta_close(meta), 0);
}

/* Then not one bit is flipped but many are: no checksum brings the value back. */
static bool vj_plant_smears;

/* Flips one bit of a value. */
static inline int vj_plant_flip(VjTxn *txn, VjSpace space, VjSlice key, size_t at)
{
    uint8_t bytes[VJ_META_VALUE_CHEAP];
    VjSlice value;
    int r = vj_txn_get(txn, space, key, &value);

    if (r < 0) {
        return r;
    }
    g_assert(value.len <= sizeof bytes && at < value.len);
    memcpy(bytes, value.data, value.len);
    bytes[at] ^= 4;
    for (size_t i = 0; vj_plant_smears && i < 8 && at + i < value.len; i++) {
        bytes[at + i] ^= (uint8_t)(0x59 + i);
    }
    return vj_txn_put(txn, space, key, vj_slice(bytes, value.len));
}

/* The engine's files: name → GBytes. */
static inline GHashTable *vj_plant_files_new(void)
{
    return g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                 (GDestroyNotify)g_bytes_unref);
}

/* Keeps the engine's files in memory, or writes them back. */
static inline void vj_plant_keep(const char *source, GHashTable *files, bool back)
{
    g_autofree char *meta = g_build_filename(source, "meta", NULL);
    g_autoptr(GDir) dir = g_dir_open(meta, 0, NULL);
    const char *name;

    assert_non_null(dir);
    while ((name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *path = g_build_filename(meta, name, NULL);
        GBytes *bytes = g_hash_table_lookup(files, name);
        gsize len;

        /* meta/lmdb is a directory, where LMDB looks for its files by links. */
        if (!g_file_test(path, G_FILE_TEST_IS_REGULAR)) {
            continue;
        }
        if (back && bytes != NULL) {
            const void *data = g_bytes_get_data(bytes, &len);
            VJ_AUTO_FD fd = open(path, O_WRONLY | O_TRUNC);

            assert_int_equal(write(fd, data, len), len);
        } else if (!back) {
            char *text;

            assert_true(g_file_get_contents(path, &text, &len, NULL));
            g_hash_table_insert(files, g_strdup(name), g_bytes_new_take(text, len));
        }
    }
}

#endif
