/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fixture.h - a volume in a temporary directory, and the file system over it
 */
#ifndef VJ_TEST_FS_FIXTURE_H
#define VJ_TEST_FS_FIXTURE_H

#include "names.h"

#include "fs/fs-private.h"
#include "fsck/fsck.h"

typedef struct Fixture {
    char *dir;
    VjVolume *v;
    VjFs *fs;
    bool is_known; /* what the outside says of every inode */
} Fixture;

static const VjCaller user_caller = {.uid = 1000, .gid = 100, .umask = 022};

static inline bool fixture_knows(void *opaque, uint64_t ino)
{
    const Fixture *x = opaque;

    (void)ino;
    return x->is_known;
}

/* A volume as mkfs.varjfs makes it with these options; not open. */
static inline void fixture_make(Fixture *x, const char *options)
{
    g_autoptr(GError) error = NULL;
    VjVolumeMake how = {.options = options};

    x->dir = vj_test_make_dir();
    how.source = x->dir;
    if (!vj_volume_make(&how, &error)) {
        fail_msg("%s", error->message);
    }
}

/* @how without its source. */
static inline void fixture_open(Fixture *x, VjVolumeOpen how)
{
    g_autoptr(GError) error = NULL;

    how.source = x->dir;
    if (!vj_volume_open(&how, &x->v, &error)) {
        fail_msg("%s", error->message);
    }
    x->fs = vj_fs_new(x->v);
    vj_fs_set_knows(x->fs, fixture_knows, x);
}

static inline void fixture_close(Fixture *x)
{
    vj_fs_free(x->fs);
    assert_int_equal(vj_volume_close(x->v), 0);
}

static inline void fixture_say(void *opaque, const char *text)
{
    (void)opaque;
    fprintf(stderr, "# %s\n", text);
}

/* Names, link counts and attributes agree. */
static inline void fixture_expect_sound(const Fixture *x)
{
    VjCheckReport report = {.names = 0};

    assert_int_equal(vj_volume_purge(x->v), 0); /* a check wants a volume at rest */
    assert_int_equal(vj_fsck_names(x->v, fixture_say, NULL, &report), 0);
    assert_int_equal(report.problems, 0);
}

/* cmocka's teardown; *state is a Fixture. */
static inline int fixture_teardown(void **state)
{
    Fixture *x = *state;

    fixture_expect_sound(x);
    fixture_close(x);
    vj_test_remove_dir(x->dir);
    g_free(x);
    return 0;
}

#endif
