/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-sessions.c - two file systems over two sessions of one volume: each sees what the
 * other does, hears of it, and names stay whole where both change them at once
 */
#include "../../lib/shared-volume.h"
#include "names.h"

#include "fs/fs-private.h"

#include <sys/xattr.h>

enum { ROUNDS = 300, NAMES = 400, LINKS = 200 };

/* One of the two. */
typedef struct Side {
    VjVolume *v;
    VjFs *fs;
    VjMutex lock;     /* VJ_RANK_BASE: innermost */
    GPtrArray *heard; /* lines; guarded by lock */
} Side;

typedef struct Fixture {
    SharedVolume s;
    Side a, b;
} Fixture;

static void hear(Side *side, char *line)
{
    vj_mutex_lock(&side->lock);
    g_ptr_array_add(side->heard, line);
    vj_mutex_unlock(&side->lock);
}

static void on_inode(void *opaque, uint64_t ino, bool content)
{
    hear(opaque, g_strdup_printf("inode %" G_GUINT64_FORMAT "%s", ino,
                                 content ? " content" : ""));
}

static void on_name(void *opaque, uint64_t dir, const char *name)
{
    hear(opaque, g_strdup_printf("name %" G_GUINT64_FORMAT " %s", dir, name));
}

static void on_all(void *opaque)
{
    hear(opaque, g_strdup("all"));
}

static const VjFsEvents events = {
    .inode_changed = on_inode, .name_changed = on_name, .all_changed = on_all};

static void side_open(Fixture *x, Side *side, const char *name)
{
    side->v = shared_open(&x->s, name, SHARED_LONG_US);
    side->fs = vj_fs_new(side->v);
    vj_mutex_init(&side->lock, VJ_RANK_BASE, "test");
    side->heard = g_ptr_array_new_with_free_func(g_free);
    vj_fs_listen(side->fs, &events, side);
}

static void side_close(Side *side)
{
    vj_fs_listen(side->fs, NULL, NULL);
    vj_fs_free(side->fs);
    shared_close(side->v);
    vj_mutex_clear(&side->lock);
    g_ptr_array_unref(side->heard);
}

static int setup(void **state)
{
    Fixture *x = g_new0(Fixture, 1);

    shared_make(&x->s);
    x->s.wrap = *state;
    side_open(x, &x->a, "first");
    side_open(x, &x->b, "second");
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    Fixture *x = *state;

    side_close(&x->a);
    side_close(&x->b);
    shared_end(&x->s);
    g_free(x);
    return 0;
}

/* ---- hearing ----------------------------------------------------------------------- */

static void forget(Side *side)
{
    vj_mutex_lock(&side->lock);
    g_ptr_array_set_size(side->heard, 0);
    vj_mutex_unlock(&side->lock);
}

/* The engine in memory reports a change before the call that made it returns. */
static bool has_heard(Side *side, const char *line)
{
    bool found;

    vj_mutex_lock(&side->lock);
    found = g_ptr_array_find_with_equal_func(side->heard, line, g_str_equal, NULL);
    vj_mutex_unlock(&side->lock);
    return found;
}

static unsigned heard_count(Side *side)
{
    unsigned count;

    vj_mutex_lock(&side->lock);
    count = side->heard->len;
    vj_mutex_unlock(&side->lock);
    return count;
}

static void expect_heard(Side *side, const char *format, ...) G_GNUC_PRINTF(2, 3);

static void expect_heard(Side *side, const char *format, ...)
{
    g_autofree char *line = NULL;
    va_list args;

    va_start(args, format);
    line = g_strdup_vprintf(format, args);
    va_end(args);
    if (!has_heard(side, line)) {
        fail_msg("nothing was heard of \"%s\"", line);
    }
}

static void attr_of(Side *side, uint64_t ino, VjAttr *out)
{
    assert_int_equal(vj_fs_getattr(side->fs, ino, out), 0);
}

static void names_are_heard_of(void **state)
{
    Fixture *x = *state;
    uint64_t dir, ino, other;

    forget(&x->b);
    dir = make_dir(x->a.fs, VJ_INO_ROOT, "d");
    expect_heard(&x->b, "name 1 d");
    expect_heard(&x->b, "inode 1 content");
    assert_int_equal(look(x->b.fs, VJ_INO_ROOT, "d"), dir);

    ino = make_file(x->a.fs, dir, "f");
    expect_heard(&x->b, "name %" G_GUINT64_FORMAT " f", dir);
    expect_heard(&x->b, "inode %" G_GUINT64_FORMAT " content", dir);
    assert_int_equal(look(x->b.fs, dir, "f"), ino);

    forget(&x->b);
    assert_int_equal(vj_fs_rename(x->a.fs, &root_caller, dir, "f", VJ_INO_ROOT, "g", 0),
                     0);
    expect_heard(&x->b, "name %" G_GUINT64_FORMAT " f", dir);
    expect_heard(&x->b, "name 1 g");
    expect_heard(&x->b, "inode %" G_GUINT64_FORMAT " content", ino);
    assert_int_equal(look(x->b.fs, dir, "f"), 0);
    assert_int_equal(look(x->b.fs, VJ_INO_ROOT, "g"), ino);

    /* What it does itself is no news to it. */
    forget(&x->a);
    forget(&x->b);
    other = make_file(x->b.fs, dir, "other");
    assert_false(has_heard(&x->b, "all"));
    assert_int_equal(heard_count(&x->b), 0);
    expect_heard(&x->a, "name %" G_GUINT64_FORMAT " other", dir);

    forget(&x->b);
    assert_int_equal(vj_fs_unlink(x->a.fs, VJ_INO_ROOT, "g"), 0);
    expect_heard(&x->b, "name 1 g");
    assert_int_equal(look(x->b.fs, VJ_INO_ROOT, "g"), 0);
    assert_int_equal(look(x->a.fs, dir, "other"), other);
}

static void attributes_are_heard_of(void **state)
{
    Fixture *x = *state;
    uint64_t ino = make_file(x->a.fs, VJ_INO_ROOT, "f");
    VjSetattr mode = {.what = VJ_SET_MODE, .mode = 0600};
    VjAttr attr;
    char got[8];
    size_t len;

    attr_of(&x->b, ino, &attr);
    assert_int_equal(attr.st.st_mode & 07777, 0644);
    forget(&x->b);
    assert_int_equal(vj_fs_setattr(x->a.fs, &root_caller, ino, NULL, &mode, &attr), 0);
    expect_heard(&x->b, "inode %" G_GUINT64_FORMAT " content", ino);
    attr_of(&x->b, ino, &attr);
    assert_int_equal(attr.st.st_mode & 07777, 0600);

    forget(&x->b);
    assert_int_equal(
        vj_fs_setxattr(x->a.fs, &root_caller, ino, "user.a", "value", 5, XATTR_CREATE),
        0);
    expect_heard(&x->b, "inode %" G_GUINT64_FORMAT " content", ino);
    assert_int_equal(vj_fs_getxattr(x->b.fs, ino, "user.a", got, sizeof got, &len), 0);
    assert_int_equal(len, 5);
}

/* What is open here has its content; attributes may change, and what they forbid. */
static void what_is_open_looks_again(void **state)
{
    Fixture *x = *state;
    uint64_t ino = make_file(x->a.fs, VJ_INO_ROOT, "f"), at;
    VjHandle *h, *refused;

    assert_int_equal(vj_fs_open(x->b.fs, &root_caller, ino, O_RDWR, &h), 0);
    assert_int_equal(vj_fs_open(x->a.fs, &root_caller, ino, O_RDONLY, &refused), -EBUSY);
    assert_int_equal(vj_fs_write(h, 0, "abc", 3, 0, &at), 0);
    forget(&x->b);
    assert_int_equal(vj_fs_set_flags(x->a.fs, NULL, ino, VJ_INODE_IMMUTABLE), 0);
    expect_heard(&x->b, "inode %" G_GUINT64_FORMAT, ino);
    assert_int_equal(vj_fs_write(h, 3, "def", 3, 0, &at), -EPERM);
    assert_int_equal(vj_fs_set_flags(x->a.fs, NULL, ino, 0), 0);
    assert_int_equal(vj_fs_write(h, 3, "def", 3, 0, &at), 0);
    assert_int_equal(
        vj_fs_setxattr(x->a.fs, &root_caller, ino, "user.varjfs.transform", "xor", 3, 0),
        0);
    assert_int_equal(vj_fs_fsync(h), 0);
    vj_fs_release(x->b.fs, h);
    assert_int_equal(vj_volume_sync(x->b.v), 0);
}

/* ---- without a name ---------------------------------------------------------------- */

static void write_text(VjHandle *h, const char *text)
{
    uint64_t at;

    assert_int_equal(vj_fs_write(h, 0, text, strlen(text), 0, &at), 0);
    assert_int_equal(vj_fs_fsync(h), 0);
}

static void what_is_open_elsewhere_lives_on(void **state)
{
    Fixture *x = *state;
    VjHandle *removed, *replaced, *none;
    VjAttr attr, other;

    assert_int_equal(vj_fs_create(x->b.fs, &root_caller, VJ_INO_ROOT, "removed", 0644,
                                  O_RDWR, &attr, &removed),
                     0);
    assert_int_equal(vj_fs_create(x->b.fs, &root_caller, VJ_INO_ROOT, "replaced", 0644,
                                  O_RDWR, &other, &replaced),
                     0);
    write_text(removed, "one");
    write_text(replaced, "two");
    (void)make_file(x->a.fs, VJ_INO_ROOT, "new");
    assert_int_equal(vj_fs_unlink(x->a.fs, VJ_INO_ROOT, "removed"), 0);
    assert_int_equal(vj_fs_rename(x->a.fs, &root_caller, VJ_INO_ROOT, "new", VJ_INO_ROOT,
                                  "replaced", 0),
                     0);
    assert_int_equal(vj_volume_purge(x->a.v), 0);
    expect_text(removed, "one");
    expect_text(replaced, "two");
    assert_int_equal(vj_fs_open(x->a.fs, &root_caller, attr.st.st_ino, O_RDONLY, &none),
                     -ESTALE);
    vj_fs_release(x->b.fs, removed);
    vj_fs_release(x->b.fs, replaced);
    assert_int_equal(vj_volume_purge(x->b.v), 0);
    assert_int_equal(vj_fs_getattr(x->a.fs, attr.st.st_ino, &attr), -ENOENT);
    assert_int_equal(vj_fs_getattr(x->a.fs, other.st.st_ino, &other), -ENOENT);
    assert_int_equal(shared_keys(x->a.v, VJ_SPACE_ORPHAN), 0);
}

/* It gets a name again where it is open, and nowhere else. */
static void a_name_again(void **state)
{
    Fixture *x = *state;
    VjHandle *h;
    VjAttr attr;
    uint64_t ino;

    assert_int_equal(
        vj_fs_create(x->b.fs, &root_caller, VJ_INO_ROOT, "f", 0644, O_RDWR, &attr, &h),
        0);
    ino = attr.st.st_ino;
    write_text(h, "text");
    assert_int_equal(vj_fs_unlink(x->a.fs, VJ_INO_ROOT, "f"), 0);
    assert_int_equal(vj_fs_link(x->a.fs, ino, VJ_INO_ROOT, "a", &attr), -ENOENT);
    assert_int_equal(vj_fs_link(x->b.fs, ino, VJ_INO_ROOT, "b", &attr), 0);
    vj_fs_release(x->b.fs, h);
    assert_int_equal(vj_volume_purge(x->b.v), 0);
    assert_int_equal(
        vj_fs_open(x->a.fs, &root_caller, look(x->a.fs, VJ_INO_ROOT, "b"), O_RDONLY, &h),
        0);
    expect_text(h, "text");
    vj_fs_release(x->a.fs, h);
}

/* ---- both at once ------------------------------------------------------------------ */

typedef struct Racer {
    Side *side;
    GThread *thread;
    uint64_t dir, ino;
    unsigned number;
    unsigned done[NAMES]; /* what came of each step: 1 it did it */
    unsigned count;
} Racer;

static void race(Fixture *x, Racer *r, GThreadFunc run, uint64_t dir, uint64_t ino)
{
    for (unsigned i = 0; i < 2; i++) {
        r[i].side = i == 0 ? &x->a : &x->b;
        r[i].dir = dir;
        r[i].ino = ino;
        r[i].number = i;
        r[i].thread = g_thread_new("racer", run, &r[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        g_thread_join(r[i].thread);
    }
}

static gpointer make_names(gpointer opaque)
{
    Racer *r = opaque;

    for (unsigned i = 0; i < NAMES; i++) {
        g_autofree char *name = g_strdup_printf("%u", i);
        VjAttr attr;
        int rc = vj_fs_mknod(r->side->fs, &root_caller, r->dir, name, S_IFREG | 0644, 0,
                             &attr);

        assert_true(rc == 0 || rc == -EEXIST);
        r->done[i] = rc == 0;
    }
    return NULL;
}

static void one_of_two_makes_a_name(void **state)
{
    Fixture *x = *state;
    Racer *r = g_new0(Racer, 2);
    uint64_t dir = make_dir(x->a.fs, VJ_INO_ROOT, "d");
    VjAttr attr;

    race(x, r, make_names, dir, 0);
    for (unsigned i = 0; i < NAMES; i++) {
        assert_int_equal(r[0].done[i] + r[1].done[i], 1);
    }
    attr_of(&x->b, dir, &attr);
    g_free(r);
}

/* One removes the directory, the other puts a name into it. */
static gpointer remove_or_fill(gpointer opaque)
{
    Racer *r = opaque;

    for (unsigned i = 0; i < ROUNDS; i++) {
        g_autofree char *name = g_strdup_printf("d%u", i);
        uint64_t dir = look(r->side->fs, r->dir, name);
        VjAttr attr;
        int rc;

        if (r->number == 0) {
            rc = vj_fs_rmdir(r->side->fs, r->dir, name);
            assert_true(rc == 0 || rc == -ENOTEMPTY);
        } else {
            rc = dir == 0 ? -ENOENT
                          : vj_fs_mknod(r->side->fs, &root_caller, dir, "f",
                                        S_IFREG | 0644, 0, &attr);
            assert_true(rc == 0 || rc == -ENOENT);
        }
        r->done[i] = rc == 0;
    }
    return NULL;
}

static void a_directory_goes_or_is_filled(void **state)
{
    Fixture *x = *state;
    Racer *r = g_new0(Racer, 2);

    G_STATIC_ASSERT(ROUNDS <= NAMES);
    for (unsigned i = 0; i < ROUNDS; i++) {
        g_autofree char *name = g_strdup_printf("d%u", i);

        (void)make_dir(x->a.fs, VJ_INO_ROOT, name);
    }
    race(x, r, remove_or_fill, VJ_INO_ROOT, 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        g_autofree char *name = g_strdup_printf("d%u", i);
        uint64_t dir = look(x->a.fs, VJ_INO_ROOT, name);

        assert_int_equal(r[0].done[i] + r[1].done[i], 1);
        assert_int_equal(dir != 0, r[1].done[i]);
        if (dir != 0) {
            assert_int_not_equal(look(x->b.fs, dir, "f"), 0);
        }
    }
    g_free(r);
}

static gpointer link_and_unlink(gpointer opaque)
{
    Racer *r = opaque;

    for (unsigned i = 0; i < LINKS; i++) {
        g_autofree char *name = g_strdup_printf("%u-%u", r->number, i);
        VjAttr attr;

        assert_int_equal(vj_fs_link(r->side->fs, r->ino, r->dir, name, &attr), 0);
        r->count++;
        if (i % 3 == 0) {
            assert_int_equal(vj_fs_unlink(r->side->fs, r->dir, name), 0);
            r->count--;
        }
    }
    return NULL;
}

static void links_are_counted(void **state)
{
    Fixture *x = *state;
    Racer *r = g_new0(Racer, 2);
    uint64_t ino = make_file(x->a.fs, VJ_INO_ROOT, "f");
    VjAttr attr;

    race(x, r, link_and_unlink, VJ_INO_ROOT, ino);
    attr_of(&x->b, ino, &attr);
    assert_int_equal(attr.st.st_nlink, 1 + r[0].count + r[1].count);
    g_free(r);
}

/* Each moves names of one directory to the other, and back. */
static gpointer move_names(gpointer opaque)
{
    Racer *r = opaque;
    uint64_t dirs[] = {r->dir, r->ino};

    for (unsigned i = 0; i < ROUNDS; i++) {
        g_autofree char *name = g_strdup_printf("n%u", i % 10);
        unsigned from = (i / 10 + r->number) % 2;
        int rc = vj_fs_rename(r->side->fs, &root_caller, dirs[from], name, dirs[1 - from],
                              name, VJ_RENAME_NOREPLACE);

        assert_true(rc == 0 || rc == -ENOENT);
        r->count += rc == 0;
    }
    return NULL;
}

static void names_move(void **state)
{
    Fixture *x = *state;
    Racer *r = g_new0(Racer, 2);
    uint64_t first = make_dir(x->a.fs, VJ_INO_ROOT, "first"),
             second = make_dir(x->b.fs, VJ_INO_ROOT, "second");

    for (unsigned i = 0; i < 10; i++) {
        g_autofree char *name = g_strdup_printf("n%u", i);

        (void)make_file(x->a.fs, first, name);
    }
    race(x, r, move_names, first, second);
    assert_true(r[0].count + r[1].count > 0);
    for (unsigned i = 0; i < 10; i++) {
        g_autofree char *name = g_strdup_printf("n%u", i);

        assert_int_equal(
            (look(x->a.fs, first, name) != 0) + (look(x->b.fs, second, name) != 0), 1);
    }
    g_free(r);
}

/* Directories that each moves into the other's: no ring comes of it, and one of the two
 * moves, as what the other one finds in its way is that. */
static gpointer move_into(gpointer opaque)
{
    Racer *r = opaque;

    for (unsigned i = 0; i < ROUNDS; i++) {
        g_autofree char *a = g_strdup_printf("a%u", i), *b = g_strdup_printf("b%u", i);
        const char *what = r->number == 0 ? a : b, *into = r->number == 0 ? b : a;
        uint64_t dir = look(r->side->fs, r->dir, into);
        int rc = dir == 0 ? -ENOENT
                          : vj_fs_rename(r->side->fs, &root_caller, r->dir, what, dir,
                                         what, 0);

        assert_true(rc == 0 || rc == -ENOENT || rc == -EINVAL);
        r->done[i] = rc == 0;
    }
    return NULL;
}

static void no_ring(void **state)
{
    Fixture *x = *state;
    Racer *r = g_new0(Racer, 2);

    for (unsigned i = 0; i < ROUNDS; i++) {
        g_autofree char *a = g_strdup_printf("a%u", i), *b = g_strdup_printf("b%u", i);

        (void)make_dir(x->a.fs, VJ_INO_ROOT, a);
        (void)make_dir(x->a.fs, VJ_INO_ROOT, b);
    }
    race(x, r, move_into, VJ_INO_ROOT, 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        assert_int_equal(r[0].done[i] + r[1].done[i], 1);
    }
    g_free(r);
}

#define SHARED(test) SHARED_TEST(test, setup, teardown)

static const struct CMUnitTest tests[] = {
    SHARED(names_are_heard_of),
    SHARED(attributes_are_heard_of),
    SHARED(what_is_open_looks_again),
    SHARED(what_is_open_elsewhere_lives_on),
    SHARED(a_name_again),
    SHARED(one_of_two_makes_a_name),
    SHARED(a_directory_goes_or_is_filled),
    SHARED(links_are_counted),
    SHARED(names_move),
    SHARED(no_ring),
};

VJ_TEST_MAIN(tests)
