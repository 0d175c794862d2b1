/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The posix driver against what is not its own doing: strange directories, few
 * descriptors, full and failing file systems, a process that is killed.
 */
#include "store-test.h"

#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

/* ---- fdatasync of the code under test ---------------------------------------------- */

static ino_t failing; /* syncs of this file fail; 0: of none */
static int failing_with = EIO;
static unsigned failed;

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_fdatasync(int fd)
{
    struct stat st;

    if (failing != 0 && fstat(fd, &st) == 0 && st.st_ino == failing) {
        failed++;
        errno = failing_with;
        return -1;
    }
    return __real_fdatasync(fd);
}

/* ---- The directory ----------------------------------------------------------------- */

static void expect_open_fails(VjStoreTest *t, int positive_errno, const char *part)
{
    VjStorePlace place = {.dir_fd = t->dir_fd, .path = t->path};
    g_autoptr(GError) error = NULL;
    VjStore *s = (VjStore *)t;

    assert_false(vj_store_open("posix", &place, &s, &error));
    assert_null(s);
    assert_non_null(strstr(error->message, t->path));
    vj_test_expect_error(&error, positive_errno, part);
}

static void write_file(VjStoreTest *t, const char *name, const char *text)
{
    VJ_AUTO_FD fd =
        openat(t->dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(vj_fd_write_all(fd, text, strlen(text)), 0);
}

static void test_format_file(void **state)
{
    VjStoreTest *t = *state;

    vj_store_close(t->s);
    t->s = NULL;
    write_file(t, "format", "varjfs posix store 2\n");
    expect_open_fails(t, EINVAL, "cannot read");
    write_file(t, "format", "varjfs posix store 1\nreplicas = 2\n");
    expect_open_fails(t, EINVAL, "cannot read");
    write_file(t, "format", "");
    expect_open_fails(t, EINVAL, "cannot read");
    assert_int_equal(unlinkat(t->dir_fd, "format", 0), 0);
    expect_open_fails(t, ENOENT, "format");
    /* An empty directory may be one whose file system is not mounted. */
    vj_store_test_open(t, true);
    vj_store_test_reopen(t);
    vj_store_close(t->s);
    vj_store_test_open(t, true); /* mkfs once more changes nothing */
}

static void test_layout(void **state)
{
    VjStoreTest *t = *state;
    VjPut put = vj_store_test_put(t->s, 0x123456789abcdef0, 5);
    g_autofree char *name = vj_store_test_name(&put);
    struct stat st;

    assert_true(g_str_has_prefix(name, "123456789a/bcd/123456789abcdef0."));
    assert_int_equal(fstatat(t->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISREG(st.st_mode) && st.st_size == 5);
    assert_int_equal(st.st_mode & 077, 0);
}

/* ext4 is told that directories of objects have nothing to do with each other. */
static void test_directories_are_spread(void **state)
{
    VjStoreTest *t = *state;
    VJ_AUTO_FD fd = -1;
    int flags = 0;

    fd = openat(t->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) != 0) {
        skip(); /* there are no flags here */
    }
    flags |= FS_TOPDIR_FL;
    if (ioctl(fd, FS_IOC_SETFLAGS, &flags) != 0) {
        skip();
    }
    vj_store_test_put(t->s, 1, 5);
    vj_fd_close(&fd);
    fd = openat(t->dir_fd, "0000000000", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ioctl(fd, FS_IOC_GETFLAGS, &flags), 0);
    assert_true((flags & FS_TOPDIR_FL) != 0);
}

static void put_and_remove(VjStoreTest *t, uint64_t first_id, unsigned count)
{
    for (uint64_t id = first_id; id < first_id + count; id++) {
        VjPut put = vj_store_test_put(t->s, id, 5);

        assert_int_equal(vj_store_remove(t->s, put.id, put.loc), 0);
        /* A remove that finds nothing takes no name away. */
        assert_int_equal(vj_store_remove(t->s, put.id, put.loc), 0);
    }
}

/* Where the newest directory lost many names, what comes next had better lie in another
 * one. */
static void test_crowded_directories_are_left(void **state)
{
    VjStoreTest *t = *state;

    put_and_remove(t, 1, 511);
    assert_int_equal(vj_store_prefer(t->s, 600), 600);
    put_and_remove(t, 512, 1);
    assert_int_equal(vj_store_prefer(t->s, 601), VJ_POSIX_DIR_IDS);
    assert_int_equal(vj_store_prefer(t->s, VJ_POSIX_DIR_IDS), VJ_POSIX_DIR_IDS);
    /* Of an older directory: nobody puts there any more. */
    put_and_remove(t, 601, 512);
    assert_int_equal(vj_store_prefer(t->s, VJ_POSIX_DIR_IDS + 1), VJ_POSIX_DIR_IDS + 1);
    put_and_remove(t, VJ_POSIX_DIR_IDS + 1, 512);
    assert_int_equal(vj_store_prefer(t->s, VJ_POSIX_DIR_IDS + 600), 2 * VJ_POSIX_DIR_IDS);
    /* Who asked before the others went on. */
    assert_int_equal(vj_store_prefer(t->s, 602), 602);
    /* There is no other one behind the last. */
    assert_int_equal(vj_store_prefer(t->s, UINT64_MAX - 600), UINT64_MAX - 600);
    put_and_remove(t, UINT64_MAX - 600, 512);
    assert_int_equal(vj_store_prefer(t->s, UINT64_MAX - 1), UINT64_MAX - 1);
}

static bool exists(VjStoreTest *t, const char *name)
{
    return faccessat(t->dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* each() removes directories that it finds empty, and only those that it walks. */
static void test_empty_directories_go(void **state)
{
    VjStoreTest *t = *state;
    VjPut near = vj_store_test_put(t->s, 1, 5);
    VjPut far = vj_store_test_put(t->s, (uint64_t)1 << 30, 5);
    uint64_t count = 0;

    assert_int_equal(vj_store_remove(t->s, near.id, near.loc), 0);
    assert_int_equal(vj_store_remove(t->s, far.id, far.loc), 0);
    assert_true(exists(t, "0000000000/000"));
    assert_int_equal(vj_store_each(t->s, 0, 100, vj_store_test_count, &count), 0);
    assert_int_equal(count, 0);
    assert_false(exists(t, "0000000000"));
    assert_true(exists(t, "0000000040/000"));
    /* The directory is still in the driver's cache; a put finds out. */
    near = vj_store_test_put(t->s, 1, 5);
    assert_true(vj_store_test_matches(t->s, &near));
    assert_int_equal(vj_store_flush(t->s), 0);
}

/* Another process removed it, so that nobody told our cache. */
static void test_directory_removed_behind_us(void **state)
{
    VjStoreTest *t = *state;
    VjPut put = vj_store_test_put(t->s, 1, 5);

    assert_int_equal(vj_store_remove(t->s, put.id, put.loc), 0);
    assert_int_equal(unlinkat(t->dir_fd, "0000000000/000", AT_REMOVEDIR), 0);
    assert_int_equal(mkdirat(t->dir_fd, "0000000000/000", 0700), 0);
    assert_int_equal(vj_store_test_get_byte(t->s, &put), -ENOENT);
    put = vj_store_test_put(t->s, 2, 5);
    assert_true(vj_store_test_matches(t->s, &put));
    assert_int_equal(unlinkat(t->dir_fd, "0000000000/000", AT_REMOVEDIR), -1);
}

/* A directory in the cache may be one that is gone: ENOENT from it proves nothing. */
static void test_stale_directory_is_not_believed(void **state)
{
    VjStoreTest *t = *state;
    VjStoreTest other = {.path = t->path, .dir_fd = t->dir_fd, .spec = t->spec};
    VjPut put = vj_store_test_put(t->s, 1, 5);

    assert_int_equal(vj_store_remove(t->s, put.id, put.loc), 0);
    assert_int_equal(unlinkat(t->dir_fd, "0000000000/000", AT_REMOVEDIR), 0);
    vj_store_test_open(&other, false);
    put = vj_store_test_put(other.s, 2, 5);
    assert_true(vj_store_test_matches(t->s, &put));
    assert_int_equal(vj_store_remove(other.s, put.id, put.loc), 0);

    assert_int_equal(unlinkat(t->dir_fd, "0000000000/000", AT_REMOVEDIR), 0);
    vj_store_close(other.s);
    vj_store_test_open(&other, false);
    put = vj_store_test_put(other.s, 3, 5);
    assert_int_equal(vj_store_remove(t->s, put.id, put.loc), 0);
    assert_int_equal(vj_store_test_get_byte(other.s, &put), -ENOENT);
    vj_store_close(other.s);
}

static void test_read_only_changes_nothing(void **state)
{
    VjStoreTest *t = *state;
    VjStorePlace place = {.dir_fd = t->dir_fd, .path = t->path, .read_only = true};
    VjPut put = vj_store_test_put(t->s, 1, 5);

    assert_int_equal(vj_store_remove(t->s, put.id, put.loc), 0);
    vj_store_close(t->s);
    assert_true(vj_store_open("posix", &place, &t->s, NULL));
    assert_int_equal(vj_store_test_object_count(t->s), 0);
    assert_true(exists(t, "0000000000/000"));
}

/* ---- What somebody else put there
 * ------------------------------------------------------- */

static void test_foreign_entries(void **state)
{
    static const char *const names[] = {
        "README",
        "0000000001",           /* a file where a directory may be */
        "0000000000/zzz",       /* no name of ours */
        "0000000000/001",       /* a file */
        "0000000000/000/notes", /* no name of ours */
        "0000000000/000/0000000000001000.0000000000000001", /* of another directory */
        "0000000000/000/00000000000000AA.0000000000000001",
    };
    VjStoreTest *t = *state;
    VjPut put = vj_store_test_put(t->s, 1, 5);
    g_autofree char *log_path = g_build_filename(t->path, "log", NULL);
    g_autofree char *log = NULL;

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        write_file(t, names[i], "foreign");
    }
    assert_int_equal(
        mkdirat(t->dir_fd, "0000000000/000/0000000000000007.0000000000000001", 0700), 0);
    assert_int_equal(mkdirat(t->dir_fd, "lost+found", 0700), 0);
    assert_true(vj_log_open("test", log_path, VJ_LOG_WARN, NULL));
    assert_int_equal(vj_store_test_object_count(t->s), 1);
    vj_log_close();
    assert_true(g_file_get_contents(log_path, &log, NULL, NULL));
    /* The seven, two directories and the log itself. */
    assert_non_null(strstr(log, " 10 entries are not objects"));
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        assert_true(exists(t, names[i]));
    }
    assert_true(exists(t, "lost+found"));
    assert_true(vj_store_test_matches(t->s, &put));
}

/* Links lead nowhere, and what is no file is no object. */
static void test_links_are_not_followed(void **state)
{
    VjStoreTest *t = *state;
    VjPut put = vj_store_test_put(t->s, 1, 5), other = put;
    char *outside = vj_test_make_dir();
    g_autofree char *secret = g_build_filename(outside, "secret", NULL);
    g_autofree char *target = g_build_filename(outside, "target", NULL);
    g_autofree char *name = NULL;

    assert_true(g_file_set_contents(secret, "secret", -1, NULL));
    assert_int_equal(mkdir(target, 0700), 0);

    /* An object that is a link. */
    other.id = 2;
    name = vj_store_test_name(&other);
    assert_int_equal(symlinkat(secret, t->dir_fd, name), 0);
    assert_int_equal(vj_store_test_get_byte(t->s, &other), -EBADMSG);
    assert_int_equal(vj_store_test_object_count(t->s), 1);
    assert_int_equal(vj_store_remove(t->s, other.id, other.loc), 0); /* the link goes */
    assert_true(g_file_test(secret, G_FILE_TEST_EXISTS));

    /* Directories that are links. */
    assert_int_equal(symlinkat(target, t->dir_fd, "0000000001"), 0);
    assert_int_equal(symlinkat(target, t->dir_fd, "0000000000/001"), 0);
    assert_int_equal(vj_store_test_try_put(t->s, (uint64_t)1 << 24, 5, &other), -EIO);
    assert_int_equal(vj_store_test_try_put(t->s, 4096, 5, &other), -EIO);
    other = put;
    other.id = 4096;
    assert_int_equal(vj_store_test_get_byte(t->s, &other), -EIO);
    assert_int_equal(vj_store_remove(t->s, other.id, other.loc), -EIO);
    assert_int_equal(vj_store_test_object_count(t->s), 1);
    assert_int_equal(rmdir(target), 0); /* still empty */
    assert_true(vj_store_test_matches(t->s, &put));
    vj_test_remove_dir(outside);
}

static void test_fifo_and_directory(void **state)
{
    VjStoreTest *t = *state;
    VjPut put = vj_store_test_put(t->s, 1, 5), fifo = put, dir = put;
    g_autofree char *fifo_name = NULL, *dir_name = NULL;

    fifo.id = 2;
    dir.id = 3;
    fifo_name = vj_store_test_name(&fifo);
    dir_name = vj_store_test_name(&dir);
    assert_int_equal(mkfifoat(t->dir_fd, fifo_name, 0600), 0);
    assert_int_equal(mkdirat(t->dir_fd, dir_name, 0700), 0);
    assert_int_equal(vj_store_test_get_byte(t->s, &fifo), -EBADMSG);
    assert_int_equal(vj_store_test_get_byte(t->s, &dir), -EBADMSG);
    assert_int_equal(vj_store_remove(t->s, dir.id, dir.loc), -EIO);
    assert_int_equal(vj_store_test_object_count(t->s), 1);
}

/* A crash, or somebody, cut the file short. */
static void test_short_object(void **state)
{
    VjStoreTest *t = *state;
    VjPut put = vj_store_test_put(t->s, 1, 5000);
    g_autofree char *path = NULL, *name = vj_store_test_name(&put);
    uint8_t bytes[5000];

    path = g_build_filename(t->path, name, NULL);
    assert_int_equal(truncate(path, 4000), 0);
    assert_int_equal(vj_store_get(t->s, 1, put.loc, 0, bytes, 5000), -EBADMSG);
    assert_int_equal(vj_store_get(t->s, 1, put.loc, 3999, bytes, 2), -EBADMSG);
    assert_int_equal(vj_store_get(t->s, 1, put.loc, 0, bytes, 4000), 0);
}

static bool is_zero(int fd, size_t len)
{
    g_autofree uint8_t *bytes = g_malloc(len);

    assert_int_equal(vj_fd_pread_all(fd, bytes, len, 0), 0);
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0;
}

/* Of an object that was put and is removed: its file. */
static int removed_file(VjStoreTest *t, uint64_t id, size_t len, const char *link)
{
    VjPut put = vj_store_test_put(t->s, id, len);
    g_autofree char *name = vj_store_test_name(&put);
    int fd = openat(t->dir_fd, name, O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0 && !is_zero(fd, len));
    assert_int_equal(vj_store_flush(t->s), 0);
    if (link != NULL) {
        assert_int_equal(linkat(t->dir_fd, name, t->dir_fd, link, 0), 0);
    }
    assert_int_equal(vj_store_remove(t->s, id, put.loc), 0);
    assert_int_equal(vj_store_remove(t->s, id, put.loc), 0);
    assert_int_equal(faccessat(t->dir_fd, name, F_OK, 0), -1);
    return fd;
}

/* erase=yes: but what has another name is somebody's copy. */
static void test_erases(void **state)
{
    VjStoreTest *t = *state;
    VJ_AUTO_FD small = removed_file(t, 1, 100, NULL);
    VJ_AUTO_FD large = removed_file(t, 2, (3 << 20) + 17, NULL);
    VJ_AUTO_FD copied = removed_file(t, 3, 5000, "copy");

    assert_true(is_zero(small, 100));
    assert_true(is_zero(large, (3 << 20) + 17));
    assert_false(is_zero(copied, 5000));
    assert_int_equal(unlinkat(t->dir_fd, "copy", 0), 0);
}

/* The file of an object, and syncs of it fail. */
static int fail_syncs_of(VjStoreTest *t, const VjPut *put)
{
    g_autofree char *name = vj_store_test_name(put);
    int fd = openat(t->dir_fd, name, O_RDONLY | O_CLOEXEC);
    struct stat st;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    failing = st.st_ino;
    failed = 0;
    return fd;
}

/* What cannot be overwritten is tried again after a pause, and keeps nothing else. */
static void test_tries_to_erase_again(void **state)
{
    VjStoreTest *t = *state;
    VjPut object = vj_store_test_put(t->s, 1, 5000), other;
    VJ_AUTO_FD fd = -1;

    assert_int_equal(vj_store_flush(t->s), 0);
    fd = fail_syncs_of(t, &object);
    assert_int_equal(vj_store_remove(t->s, 1, object.loc), -EIO);
    vj_store_test_expect_erasures(t->s, 1, 0);
    vj_store_test_pass_pause(1);
    assert_int_equal(vj_store_remove(t->s, 1, object.loc), -EIO);
    assert_int_equal(failed, 2);
    assert_int_equal(vj_store_remove(t->s, 1, object.loc), -EIO);
    assert_int_equal(failed, 2);
    other = vj_store_test_put(t->s, 2, 5000);
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(vj_store_remove(t->s, 2, other.loc), 0);
    assert_int_equal(vj_store_flush_removes(t->s), 0);
    failing = 0;
    vj_store_test_pass_pause(2);
    assert_int_equal(vj_store_remove(t->s, 1, object.loc), 0);
    assert_true(is_zero(fd, 5000));
    vj_store_test_expect_erasures(t->s, 0, 0);
    vj_clock_set_for_test(NULL, 0);
}

/* At last it goes as it is: else a bad block would keep space for ever. */
static void test_gives_up_to_erase(void **state)
{
    VjStoreTest *t = *state;
    VjPut object = vj_store_test_put(t->s, 1, 5000);
    g_autofree char *name = vj_store_test_name(&object);
    VJ_AUTO_FD fd = -1;

    assert_int_equal(vj_store_flush(t->s), 0);
    fd = fail_syncs_of(t, &object);
    for (unsigned i = 1; i < VJ_ERASE_TRIES_MAX; i++) {
        assert_int_equal(vj_store_remove(t->s, 1, object.loc), -EIO);
        vj_store_test_expect_erasures(t->s, 1, 0);
        vj_store_test_pass_pause(i);
    }
    assert_int_equal(faccessat(t->dir_fd, name, F_OK, 0), 0);
    assert_int_equal(vj_store_remove(t->s, 1, object.loc), 0);
    assert_int_equal(failed, VJ_ERASE_TRIES_MAX);
    failing = 0;
    assert_int_equal(faccessat(t->dir_fd, name, F_OK, 0), -1);
    vj_store_test_expect_erasures(t->s, 0, 1);
    vj_clock_set_for_test(NULL, 0);
}

/* One that waits goes where there is no space for the zeroes, and waits no more. */
static void test_gives_up_to_erase_without_space(void **state)
{
    VjStoreTest *t = *state;
    VjPut object = vj_store_test_put(t->s, 1, 5000);
    VJ_AUTO_FD fd = -1;

    assert_int_equal(vj_store_flush(t->s), 0);
    fd = fail_syncs_of(t, &object);
    assert_int_equal(vj_store_remove(t->s, 1, object.loc), -EIO);
    vj_store_test_expect_erasures(t->s, 1, 0);
    vj_store_test_pass_pause(1);
    failing_with = ENOSPC;
    assert_int_equal(vj_store_remove(t->s, 1, object.loc), 0);
    failing_with = EIO;
    failing = 0;
    vj_store_test_expect_erasures(t->s, 0, 1);
    vj_clock_set_for_test(NULL, 0);
}

/* What is in doubt is removed so that a flush may succeed again: it does, whether the
 * device lets it be overwritten or not. */
static void test_doubt_ends_where_nothing_can_be_erased(void **state)
{
    VjStoreTest *t = *state;
    VJ_AUTO_FD fd = -1;
    VjPut object;

    (void)vj_store_test_put(t->s, 2, 5000);
    assert_int_equal(vj_store_flush(t->s), 0); /* the directories, too */
    object = vj_store_test_put(t->s, 1, 5000);
    fd = fail_syncs_of(t, &object);
    assert_int_equal(vj_store_flush(t->s), -EIO);
    assert_int_equal(vj_store_flush(t->s), -EIO);
    assert_int_equal(vj_store_remove(t->s, 1, object.loc), -EIO);
    assert_int_equal(vj_store_flush(t->s), 0);
    failing = 0;
}

static void test_does_not_erase(void **state)
{
    VJ_AUTO_FD fd = removed_file(*state, 1, 100, NULL);

    assert_false(is_zero(fd, 100));
}

/* A file system mounted in the fan-out would not be reached by flush(). */
static int put_across(VjStoreTest *t)
{
    VjStoreTest inside = {.path = t->path, .spec = t->spec};
    VjPut put;

    /* Opened again, because a descriptor stays in the namespace that it was opened in. */
    inside.dir_fd = open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    vj_store_test_open(&inside, false);
    if (vj_store_test_try_put(inside.s, (uint64_t)1 << 24, 5, &put) != -EIO) {
        return 1;
    }
    if (vj_store_test_try_put(inside.s, 1, 5, &put) != 0) {
        return 2;
    }
    vj_store_close(inside.s);
    vj_fd_close(&inside.dir_fd);
    return 0;
}

/*
 * Runs @body in a child that has a tmpfs of @size at @mount_name below the store; skips
 * where that cannot be had.
 */
static void with_tmpfs(VjStoreTest *t, const char *mount_name, const char *size,
                       int (*body)(VjStoreTest *))
{
    g_autofree char *path = g_build_filename(t->path, mount_name, NULL);
    pid_t child;
    int status = 0;

    if (geteuid() != 0) {
        print_message("only root can mount\n");
        g_clear_pointer(&path, g_free); /* skip() does not return */
        skip();
    }
    assert_int_equal(mkdir(path, 0700), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(unshare(CLONE_NEWNS) == 0 &&
                      mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) == 0 &&
                      mount("varjfs-test", path, "tmpfs", 0, size) == 0
                  ? body(t)
                  : 77);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("no mount namespaces here\n");
        g_clear_pointer(&path, g_free);
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_other_device(void **state)
{
    with_tmpfs(*state, "0000000001", "size=64k", put_across);
}

/* ---- Limits
 * ---------------------------------------------------------------------------- */

/* Runs @body in a child with so many descriptors; its answer is the exit status. */
static int with_few_descriptors(VjStoreTest *t, rlim_t count, int (*body)(VjStoreTest *))
{
    pid_t child = fork();
    int status = 0;

    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = {0};

        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = count; /* the hard limit stays: valgrind needs it */
        _exit(setrlimit(RLIMIT_NOFILE, &limit) == 0 ? body(t) : 98);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int use_objects(VjStoreTest *t, size_t count)
{
    g_autofree VjPut *puts = g_new(VjPut, count);

    for (uint64_t i = 0; i < count; i++) {
        if (vj_store_test_try_put(t->s, i * 200, 100, &puts[i]) != 0) {
            return 1;
        }
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < count; i++) {
            if (!vj_store_test_matches(t->s, &puts[i])) {
                return 2;
            }
        }
    }
    if (vj_store_flush(t->s) != 0) {
        return 3;
    }
    /* valgrind's open() makes the file before it says EMFILE: there may be one more. */
    if (vj_store_test_object_count(t->s) < count) {
        return 4;
    }
    for (size_t i = 0; i < count; i++) {
        if (vj_store_remove(t->s, puts[i].id, puts[i].loc) != 0) {
            return 5;
        }
    }
    return 0;
}

static int use_1000_objects(VjStoreTest *t)
{
    return use_objects(t, 1000);
}

static int use_300_objects(VjStoreTest *t)
{
    return use_objects(t, 300);
}

static void test_few_descriptors(void **state)
{
    VjStoreTest *t = *state;

    assert_int_equal(with_few_descriptors(t, 64, use_1000_objects), 0);
}

/* The options ask for more than there is. */
static void test_fewer_than_options(void **state)
{
    VjStoreTest *t = *state;

    assert_int_equal(with_few_descriptors(t, 40, use_300_objects), 0);
}

static int count_open(void)
{
    g_autoptr(GDir) dir = g_dir_open("/proc/self/fd", 0, NULL);
    int count = 0;

    while (dir != NULL && g_dir_read_name(dir) != NULL) {
        count++;
    }
    return dir == NULL ? -1 : count;
}

/* Opened under that limit it leaves the others of the process a half, but for its
 * directories. */
static int use_a_part(VjStoreTest *t)
{
    int before;

    vj_store_test_reopen(t);
    before = count_open();
    for (uint64_t i = 0; i < 300; i++) {
        VjPut put = vj_store_test_put(t->s, i, 100);

        if (!vj_store_test_matches(t->s, &put)) {
            return 1;
        }
    }
    return before < 0 ? 2 : count_open() - before > 400 / 2 + 16 ? 3 : 0;
}

static void test_others_have_descriptors(void **state)
{
    VjStoreTest *t = *state;

    assert_int_equal(with_few_descriptors(t, 400, use_a_part), 0);
}

static int run_out(VjStoreTest *t)
{
    VjPut kept = vj_store_test_put(t->s, 1, 10), put;
    int fds[4096], count = 0;

    while (count < 4096 && (fds[count] = dup(t->dir_fd)) >= 0) {
        count++;
    }
    /* What is kept open for reuse is given up first; with nothing left it is an error. */
    for (uint64_t id = 5000; id < 5000 + 20 * 4096; id += 4096) {
        int result = vj_store_test_try_put(t->s, id, 10, &put);

        if (result != 0 && result != -EIO) {
            return 1;
        }
    }
    for (int i = 0; i < count; i++) {
        close(fds[i]);
    }
    put = vj_store_test_put(t->s, 1 << 20, 10);
    return vj_store_flush(t->s) == 0 && vj_store_test_matches(t->s, &put) &&
                   vj_store_test_matches(t->s, &kept)
               ? 0
               : 2;
}

static void test_no_descriptors(void **state)
{
    VjStoreTest *t = *state;

    assert_int_equal(with_few_descriptors(t, 64, run_out), 0);
}

/* A put that cannot be written whole leaves nothing behind. */
static int put_beyond_limit(VjStoreTest *t)
{
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};
    VjPut put;

    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        return 99;
    }
    if (vj_store_test_try_put(t->s, 2, 8192, &put) != -ENOSPC) {
        return 1;
    }
    if (vj_store_test_object_count(t->s) != 0) {
        return 2;
    }
    return vj_store_test_try_put(t->s, 3, 4096, &put) == 0 ? 0 : 3;
}

static void test_write_fails(void **state)
{
    VjStoreTest *t = *state;

    assert_int_equal(with_few_descriptors(t, 100, put_beyond_limit), 0);
}

/* Fills a small tmpfs; what fits stays whole, what does not leaves nothing. */
static int fill_up(VjStoreTest *outer)
{
    VjStoreTest t = {.path = g_build_filename(outer->path, "small", NULL),
                     .spec = "posix"};
    GArray *puts = g_array_new(FALSE, FALSE, sizeof(VjPut));
    VjPut put;
    VjStoreSpace space;
    int result = 0;

    t.dir_fd = open(t.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    vj_store_test_open(&t, true);
    for (uint64_t id = 0; id < 100 && result == 0; id++) {
        result = vj_store_test_try_put(t.s, id, 100000, &put);
        if (result == 0) {
            g_array_append_val(puts, put);
        }
    }
    if (result != -ENOSPC || puts->len == 0) {
        return 1;
    }
    if (vj_store_test_object_count(t.s) != puts->len) {
        return 2;
    }
    for (guint i = 0; i < puts->len; i++) {
        if (!vj_store_test_matches(t.s, &g_array_index(puts, VjPut, i))) {
            return 3;
        }
    }
    if (vj_store_flush(t.s) != 0 || vj_store_space(t.s, &space) != 0 ||
        space.total_bytes != 1 << 20 || space.free_bytes > 100000) {
        return 4;
    }
    /* Removing gives the space back at once, also of what has just been read. */
    put = g_array_index(puts, VjPut, 0);
    if (vj_store_remove(t.s, put.id, put.loc) != 0 ||
        vj_store_test_try_put(t.s, 200, 100000, &put) != 0) {
        return 5;
    }
    vj_store_close(t.s);
    close(t.dir_fd);
    g_array_unref(puts);
    g_free(t.path);
    return 0;
}

static void test_no_space(void **state)
{
    with_tmpfs(*state, "small", "size=1m", fill_up);
}

/* ---- Crash
 * ------------------------------------------------------------------------------ */

enum { CRASH_LEN = 20000 };

/* Puts for ever; after each flush it reports what was put since the one before. */
static void put_until_killed(VjStoreTest *t, int report_fd, uint64_t first_id)
{
    VjPut puts[16];

    for (uint64_t id = first_id;;) {
        size_t count = 1 + id % G_N_ELEMENTS(puts);

        for (size_t i = 0; i < count; i++) {
            puts[i] = vj_store_test_put(t->s, id++, CRASH_LEN);
        }
        if (vj_store_flush(t->s) != 0 ||
            vj_fd_write_all(report_fd, puts, count * sizeof puts[0]) != 0) {
            _exit(1);
        }
    }
}

static bool has_prefix_of(VjStoreTest *t, const VjPut *object)
{
    g_autofree uint8_t *want = g_malloc(CRASH_LEN);
    g_autofree uint8_t *got = g_malloc(CRASH_LEN);

    vj_store_test_fill(want, CRASH_LEN, object->id);
    return object->stored_bytes <= CRASH_LEN &&
           vj_store_get(t->s, object->id, object->loc, 0, got, object->stored_bytes) ==
               0 &&
           memcmp(want, got, object->stored_bytes) == 0;
}

typedef struct Leftovers {
    VjStoreTest *t;
    GHashTable *known; /* ids that were reported */
    uint64_t unknown_count;
} Leftovers;

/* What recovery does with objects that no metadata names. */
static bool remove_unknown(void *opaque, const VjPut *object, int64_t mtime_us)
{
    Leftovers *left = opaque;

    (void)mtime_us;
    if (!g_hash_table_contains(left->known, &object->id)) {
        left->unknown_count++;
        assert_true(has_prefix_of(left->t, object));
        assert_int_equal(vj_store_remove(left->t->s, object->id, object->loc), 0);
    }
    return true;
}

static void test_killed(void **state)
{
    enum { ROUNDS = 12 };
    VjStoreTest *t = *state;
    GArray *puts = g_array_new(FALSE, FALSE, sizeof(VjPut));
    Leftovers left = {.t = t, .known = g_hash_table_new(g_int64_hash, g_int64_equal)};
    VjRng rng;

    vj_rng_init(&rng, 77);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t wanted = 1 + vj_rng_below(&rng, 60), got = 0;
        pid_t child;
        int ends[2], status = 0;
        VjPut put;

        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        vj_store_close(t->s);
        t->s = NULL;
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            vj_store_test_open(t, false);
            put_until_killed(t, ends[1], round << 32);
        }
        close(ends[1]);
        while (read(ends[0], &put, sizeof put) == (ssize_t)sizeof put) {
            g_array_append_val(puts, put);
            if (++got == wanted) {
                kill(child, SIGKILL);
            }
        }
        close(ends[0]);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        vj_store_test_open(t, false);
    }
    for (guint i = 0; i < puts->len; i++) {
        VjPut *put = &g_array_index(puts, VjPut, i);

        assert_true(vj_store_test_matches(t->s, put));
        g_hash_table_add(left.known, &put->id);
    }
    assert_int_equal(vj_store_each(t->s, 0, UINT64_MAX, remove_unknown, &left), 0);
    assert_int_equal(vj_store_test_object_count(t->s), puts->len);
    print_message("%u objects acknowledged, %" G_GUINT64_FORMAT " others removed\n",
                  puts->len, left.unknown_count);
    g_hash_table_unref(left.known);
    g_array_unref(puts);
}

#define STORE_TEST(name)                                                                 \
    cmocka_unit_test_setup_teardown(name, vj_store_test_setup, vj_store_test_teardown)
#define STORE_TEST_WITH(name, spec)                                                      \
    cmocka_unit_test_prestate_setup_teardown(name, vj_store_test_setup,                  \
                                             vj_store_test_teardown, (void *)(spec))

static const struct CMUnitTest tests[] = {
    STORE_TEST(test_format_file),
    STORE_TEST(test_layout),
    STORE_TEST(test_directories_are_spread),
    STORE_TEST(test_crowded_directories_are_left),
    STORE_TEST(test_empty_directories_go),
    STORE_TEST(test_directory_removed_behind_us),
    STORE_TEST(test_stale_directory_is_not_believed),
    STORE_TEST(test_read_only_changes_nothing),
    STORE_TEST(test_foreign_entries),
    STORE_TEST(test_links_are_not_followed),
    STORE_TEST(test_fifo_and_directory),
    STORE_TEST(test_short_object),
    STORE_TEST_WITH(test_erases, "posix:erase=yes"),
    STORE_TEST_WITH(test_tries_to_erase_again, "posix:erase=yes"),
    STORE_TEST_WITH(test_gives_up_to_erase, "posix:erase=yes"),
    STORE_TEST_WITH(test_gives_up_to_erase_without_space, "posix:erase=yes"),
    STORE_TEST_WITH(test_doubt_ends_where_nothing_can_be_erased, "posix:erase=yes"),
    STORE_TEST(test_does_not_erase),
    STORE_TEST(test_other_device),
    STORE_TEST(test_few_descriptors),
    STORE_TEST_WITH(test_fewer_than_options, "posix:sync_batch=64,open_files=1024"),
    STORE_TEST_WITH(test_others_have_descriptors, "posix:open_files=1024"),
    STORE_TEST(test_no_descriptors),
    STORE_TEST(test_write_fails),
    STORE_TEST(test_no_space),
    STORE_TEST(test_killed),
};

VJ_TEST_MAIN(tests)
