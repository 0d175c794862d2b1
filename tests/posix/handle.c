/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* handle.c - name_to_handle_at and open_by_handle_at: names that outlive names */
#include "posix.h"

typedef union Handle {
    struct file_handle head;
    char bytes[sizeof(struct file_handle) + MAX_HANDLE_SZ];
} Handle;

static int mount_fd;

static int handle_of(const char *name, Handle *out)
{
    int mount_id;

    memset(out, 0, sizeof *out);
    out->head.handle_bytes = MAX_HANDLE_SZ;
    return name_to_handle_at(AT_FDCWD, name, &out->head, &mount_id, 0);
}

static int open_handle(Handle *h, int flags)
{
    return open_by_handle_at(mount_fd, &h->head, flags);
}

static bool same_handle(const Handle *a, const Handle *b)
{
    return a->head.handle_bytes == b->head.handle_bytes &&
           a->head.handle_type == b->head.handle_type &&
           memcmp(a->head.f_handle, b->head.f_handle, a->head.handle_bytes) == 0;
}

/* It opens, and is that inode. */
static bool leads_to(Handle *h, int flags, ino_t ino)
{
    int fd = open_handle(h, flags);
    bool right = fd >= 0 && fstat_of(fd).st_ino == ino;

    if (fd >= 0) {
        close(fd);
    }
    return right;
}

/* A descriptor that was closed a moment ago may still be on its way out. */
static bool gets_stale(Handle *h)
{
    for (unsigned tries = 0; tries < 100; tries++) {
        int fd = open_handle(h, O_RDONLY);

        if (fd < 0) {
            return errno == ESTALE;
        }
        close(fd);
        usleep(1000u << (tries < 7 ? tries : 7)); /* this close, too, is told later */
    }
    return false;
}

TOPIC(handle_get)
{
    const char *n = made(REGULAR, 0644), *s = fresh();
    Handle h, other;
    int mount_id;

    OK(handle_of(n, &h));
    OK(handle_of(n, &other));
    IS_TRUE(same_handle(&h, &other));
    h.head.handle_bytes = 0;
    WANT(EOVERFLOW, name_to_handle_at(AT_FDCWD, n, &h.head, &mount_id, 0));
    IS_TRUE(h.head.handle_bytes > 0 && h.head.handle_bytes <= MAX_HANDLE_SZ);
    h.head.handle_bytes = MAX_HANDLE_SZ + 1;
    WANT(EINVAL, name_to_handle_at(AT_FDCWD, n, &h.head, &mount_id, 0));
    h.head.handle_bytes = MAX_HANDLE_SZ;
    WANT(EINVAL, name_to_handle_at(AT_FDCWD, n, &h.head, &mount_id, 0x40000000));
    WANT(ENOENT, handle_of("not there", &h));
    WANT(ENOENT, handle_of("", &h));
    MUST(symlink(n, s));
    OK(handle_of(s, &h));
    IS_TRUE(!same_handle(&h, &other)); /* does not follow */
    h.head.handle_bytes = MAX_HANDLE_SZ;
    OK(name_to_handle_at(AT_FDCWD, s, &h.head, &mount_id, AT_SYMLINK_FOLLOW));
    IS_TRUE(same_handle(&h, &other));
    mount_fd = (int)MUST(open(".", O_RDONLY | O_DIRECTORY));
    if (!am_root()) {
        WANT(EPERM, open_handle(&other, O_RDONLY));
    } else {
        AS(ALICE)
        {
            WANT(EPERM, open_handle(&other, O_RDONLY));
        }
    }
    close(mount_fd);
}

static void each_type(void)
{
    EACH_KIND(k)
    {
        const char *n = made(k, 0644);
        struct stat st = stat_of(n);
        Handle h;
        /* Devices are not opened: nobody knows what answers there. */
        int flags = k == REGULAR     ? O_RDWR
                    : k == DIRECTORY ? O_RDONLY | O_DIRECTORY
                                     : O_PATH;

        about("%s", kind_names[k]);
        OK(handle_of(n, &h));
        IS_TRUE(leads_to(&h, flags, st.st_ino));
        if (k == SYMLINK) {
            WANT(ELOOP, open_handle(&h, O_RDONLY));
        }
        if (k == REGULAR) {
            WANT(ENOTDIR, open_handle(&h, O_RDONLY | O_DIRECTORY));
        }
        if (k == DIRECTORY) {
            WANT(EISDIR, open_handle(&h, O_WRONLY));
        }
        MUST(gone(k, n));
        WANT(ESTALE, open_handle(&h, flags));
    }
    about("%s", "");
}

static void through_changes(void)
{
    const char *n = made(REGULAR, 0644), *d = made(DIRECTORY, 0755);
    struct stat st = stat_of(n);
    Handle h, again;
    char text[10] = "";
    int fd;

    MUST(spew(n, "content"));
    OK(handle_of(n, &h));
    MUST(rename(n, path("%s/moved", d)));
    IS_TRUE(leads_to(&h, O_RDONLY, st.st_ino));
    OK(handle_of(path("%s/moved", d), &again));
    IS_TRUE(same_handle(&h, &again));
    MUST(link(path("%s/moved", d), n));
    MUST(unlink(path("%s/moved", d)));
    fd = (int)OK(open_handle(&h, O_RDWR | O_APPEND));
    EQ(7, read(fd, text, sizeof text));
    EQ(4, write(fd, "more", 4));
    close(fd);
    IS_TRUE(holds(n, "contentmore"));
    MUST(rename(n, path("%s/over", d)));
    MUST(make(REGULAR, n, 0644));
    OK(handle_of(n, &again));
    IS_TRUE(!same_handle(&h, &again));
    MUST(rename(n, path("%s/over", d)));
    IS_TRUE(gets_stale(&h)); /* replaced */
    IS_TRUE(leads_to(&again, O_RDONLY, stat_of(path("%s/over", d)).st_ino));
}

static void without_a_name(void)
{
    const char *n = made(REGULAR, 0644), *dir = made(DIRECTORY, 0755);
    struct stat st = stat_of(n);
    Handle h, gone_dir, fresh_one;
    int fd = (int)MUST(open(n, O_RDWR));

    MUST(handle_of(n, &h));
    MUST(unlink(n));
    IS_TRUE(leads_to(&h, O_RDONLY, st.st_ino)); /* while somebody has it open */
    close(fd);
    IS_TRUE(gets_stale(&h));
    MUST(handle_of(dir, &gone_dir));
    MUST(rmdir(dir));
    WANT(ESTALE, open_handle(&gone_dir, O_RDONLY));
    for (int i = 0; i < 200; i++) { /* numbers that are used again are not taken for it */
        const char *other = path("another%d", i);

        MUST(make(REGULAR, other, 0644));
        MUST(handle_of(other, &fresh_one));
        if (same_handle(&h, &fresh_one) || same_handle(&gone_dir, &fresh_one)) {
            about("file %d of 200", i);
            IS_TRUE(!"a new file has the handle of an old one");
        }
    }
    WANT(ESTALE, open_handle(&h, O_RDONLY));
    WANT(ESTALE, open_handle(&gone_dir, O_RDONLY));
}

static void forged(void)
{
    const char *n = made(REGULAR, 0644);
    Handle good, h;
    unsigned opened = 0;

    MUST(handle_of(n, &good));
    /* Every bit counts: what it leads to is gone, or another file.  O_PATH, as that may
     * be the FIFO or the socket of a test beside this one. */
    for (unsigned bit = 0; bit < good.head.handle_bytes * 8; bit++) {
        int fd;

        h = good;
        h.head.f_handle[bit / 8] ^= (unsigned char)(1u << bit % 8);
        fd = open_handle(&h, O_PATH);
        if (fd >= 0) {
            opened += fstat_of(fd).st_ino == stat_of(n).st_ino;
            close(fd);
        } else if (errno != ESTALE) {
            about("bit %u: %s", bit, strerrorname_np(errno));
            IS_TRUE(!"a forged handle is ESTALE");
        }
    }
    EQ(0, opened);
    h = good;
    h.head.handle_type = 0x4242;
    WANT(ESTALE, open_handle(&h, O_RDONLY));
    h = good;
    h.head.handle_bytes = 2;
    WANT(ESTALE, open_handle(&h, O_RDONLY));
    h.head.handle_bytes = 0;
    WANT(EINVAL, open_handle(&h, O_RDONLY));
    WANT(EBADF, open_by_handle_at(-1, &good.head, O_RDONLY));
}

TOPIC(handle_open)
{
    NEEDS_ROOT("CAP_DAC_READ_SEARCH");
    mount_fd = (int)MUST(open(".", O_RDONLY | O_DIRECTORY));
    each_type();
    through_changes();
    without_a_name();
    forged();
    close(mount_fd);
}
