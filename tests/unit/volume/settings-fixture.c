/* SPDX-License-Identifier: LGPL-3.0-or-later */
#include "settings-fixture.h"
#include "fsck/fsck.h"

void open_volume(Fixture *x, bool check)
{
    g_autoptr(GError) error = NULL;
    /* Nothing is written back that nobody waits for. */
    VjVolumeOpen how = {.source = x->dir,
                        .check = check,
                        .wrap_store = x->wrap_store != NULL ? x->wrap_store : "fault",
                        .commit_seconds = 3600};

    if (!vj_volume_open(&how, &x->v, &error)) {
        fail_msg("%s", error->message);
    }
    vj_file_table_set_recode_step(vj_volume_files(x->v), VJ_TEST_STEP_BYTES);
}

void close_volume(Fixture *x)
{
    assert_int_equal(vj_volume_close(x->v), 0);
    x->v = NULL;
}

int setup(void **state)
{
    Fixture *x = g_new0(Fixture, 1);
    g_autoptr(GError) error = NULL;
    VjVolumeMake how = {.options = "objects=16K"};

    x->dir = vj_test_make_dir();
    how.source = x->dir;
    assert_true(vj_volume_make(&how, &error));
    open_volume(x, false);
    vj_rng_init(&x->rng, 11);
    *state = x;
    return 0;
}

static void say(void *opaque, const char *text)
{
    (void)opaque;
    fprintf(stderr, "# %s\n", text);
}

void expect_sound(Fixture *x)
{
    VjCheckReport report = {0};

    close_volume(x);
    open_volume(x, true);
    assert_int_equal(vj_fsck_contents(x->v, true, say, NULL, &report), 0);
    assert_int_equal(report.problems, 0);
    assert_int_equal(report.leaks, 0);
    close_volume(x);
    open_volume(x, false);
}

int teardown(void **state)
{
    Fixture *x = *state;

    close_volume(x);
    vj_test_remove_dir(x->dir);
    g_free(x);
    return 0;
}

static int create_body(VjTxn *txn, void *opaque)
{
    uint64_t *ino = opaque;
    int r = vj_ino_take(txn, ino);
    VjInode inode = {.ino = *ino, .generation = 1, .mode = S_IFREG | 0644, .nlink = 1};

    return r < 0 ? r : vj_inode_put(txn, &inode);
}

VjFile *create(Fixture *x)
{
    uint64_t ino;
    VjFile *f;

    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, create_body, &ino), 0);
    assert_int_equal(vj_file_open(vj_volume_files(x->v), ino, &f), 0);
    return f;
}

typedef struct Settings {
    VjVolume *v;
    uint64_t ino;
    const char *transform, *objects; /* NULL: as it is */
} Settings;

static int settings_body(VjTxn *txn, void *opaque)
{
    const Settings *s = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, s->ino, &inode);

    if (r == 0 && s->transform != NULL) {
        assert_true(vj_transform_parse(s->transform, &inode.transform, NULL));
        inode.flags |= VJ_INODE_TRANSFORM;
    }
    if (r == 0 && s->objects != NULL) {
        assert_true(vj_file_sizes_set(vj_volume_files(s->v), &inode, s->objects, NULL));
        inode.flags |= VJ_INODE_OBJECTS;
    }
    return r < 0 ? r : vj_inode_put(txn, &inode);
}

void set(Fixture *x, VjFile *f, const char *transform, const char *objects)
{
    Settings s = {x->v, vj_file_ino(f), transform, objects};

    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, settings_body, &s), 0);
    assert_int_equal(vj_file_settings_changed(vj_volume_files(x->v), s.ino), 0);
}

/* Half of it can be made smaller. */
uint8_t *make_bytes(Fixture *x, size_t len)
{
    uint8_t *bytes = g_malloc(len);

    vj_rng_bytes(&x->rng, bytes, len);
    for (size_t at = 0; at < len; at += 8192) {
        memset(bytes + at, (int)(at >> 13), MIN(4096, len - at));
    }
    return bytes;
}

void write_all(VjFile *f, uint64_t at, const uint8_t *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        size_t take = MIN(len - done, (size_t)1 << 20);

        assert_int_equal(vj_file_write(f, at + done, bytes + done, take, false, NULL), 0);
        done += take;
    }
}

void expect_bytes(VjFile *f, const uint8_t *want, size_t len)
{
    g_autofree uint8_t *got = g_malloc(len + 1);
    size_t got_len;

    assert_int_equal(vj_file_read(f, 0, got, len + 1, &got_len), 0);
    assert_int_equal(got_len, len);
    assert_memory_equal(got, want, len);
}

static bool map_visit(void *opaque, const VjFileExtent *e)
{
    g_array_append_vals(opaque, e, 1);
    return true;
}

GArray *map_of(VjFile *f)
{
    GArray *extents = g_array_new(FALSE, FALSE, sizeof(VjFileExtent));

    assert_int_equal(vj_file_extents(f, 0, map_visit, extents), 0);
    return extents;
}
