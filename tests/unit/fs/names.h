/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * names.h - what root does with names and contents of a file system, and what has to come
 */
#ifndef VJ_TEST_FS_NAMES_H
#define VJ_TEST_FS_NAMES_H

#include "../../lib/test.h"

#include "fs/fs.h"

static const VjCaller root_caller = {.umask = 0};

/* Both return the inode's number. */
static inline uint64_t make_file(VjFs *fs, uint64_t dir, const char *name)
{
    VjAttr attr;

    assert_int_equal(vj_fs_mknod(fs, &root_caller, dir, name, S_IFREG | 0644, 0, &attr),
                     0);
    return attr.st.st_ino;
}

static inline uint64_t make_dir(VjFs *fs, uint64_t dir, const char *name)
{
    VjAttr attr;

    assert_int_equal(vj_fs_mkdir(fs, &root_caller, dir, name, 0755, &attr), 0);
    return attr.st.st_ino;
}

/* The inode of a name; 0: there is none. */
static inline uint64_t look(VjFs *fs, uint64_t dir, const char *name)
{
    VjAttr attr;
    int r = vj_fs_lookup(fs, &root_caller, dir, name, &attr);

    assert_true(r == 0 || r == -ENOENT);
    return r == 0 ? attr.st.st_ino : 0;
}

/* From the begin to the end. */
static inline void expect_text(VjHandle *h, const char *text)
{
    char got[64];
    size_t len;

    assert_true(strlen(text) < sizeof got);
    assert_int_equal(vj_fs_read(h, 0, got, sizeof got, &len), 0);
    assert_int_equal(len, strlen(text));
    assert_memory_equal(got, text, len);
}

#endif
