/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * utab.c - the line in /run/mount/utab that makes umount(8) run umount.fuse.varjfs
 *
 * umount(8) asks statfs(2) for the type of what is mounted, which says "fuse" for all of
 * FUSE, and then neither finds our helper nor waits for the daemon.  It looks at the
 * mount table, which says fuse.varjfs, when there is a line for the mount point in the
 * file where libmount keeps what the kernel does not.  Ours names no source: libmount
 * neither shows its options nor takes it for the line of mount(8) itself.  By its option
 * we know it again.
 *
 * The protocol is libmount's: a lock on utab.lock, a new file, rename(2).
 */
#include "front/front-private.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECTORY "/run/mount"
#define TABLE DIRECTORY "/utab"
#define LOCK TABLE ".lock"
#define MARK "OPTS=x-varjfs.guard="
/* Any user may hold the lock for ever: every user can open its file. */
#define LOCK_WAIT_US ((int64_t)2 * 1000 * 1000)

/* Blanks and backslashes as libmount writes them. */
static void append_mangled(GString *line, const char *path)
{
    for (; *path != '\0'; path++) {
        if (strchr(" \t\n\\", *path) != NULL) {
            g_string_append_printf(line, "\\%03o", (unsigned char)*path);
        } else {
            g_string_append_c(line, *path);
        }
    }
}

/* "OPTS=x-varjfs.guard=NUMBER" is the last word of the line of the calling process. */
static char *own_words(const char *mountpoint)
{
    GString *line = g_string_new("TARGET=");

    append_mangled(line, mountpoint);
    g_string_append_printf(line, " ROOT=/ " MARK "%d", getpid());
    return g_string_free(line, FALSE);
}

/* The descriptor that holds the lock. */
static int lock_table(void)
{
    VJ_AUTO_FD fd = -1;
    int r;

    if (mkdir(DIRECTORY, 0755) < 0 && errno != EEXIST) {
        return -errno;
    }
    fd = open(LOCK, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) {
        return -errno;
    }
    r = vj_fd_lock(fd, NULL, vj_clock_mono_us() + LOCK_WAIT_US);
    return r < 0 ? r : vj_fd_steal(&fd);
}

/* A line of ours that an earlier guard has left for the same mount point, or this one has
 * made. */
static bool is_replaced(const char *line, const char *own)
{
    const char *mark = g_strrstr(own, MARK);
    size_t len = (size_t)(mark - own) + strlen(MARK);

    return strncmp(line, own, len) == 0;
}

static char *table_without(const char *text, const char *own, bool exactly)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    GString *kept = g_string_new(NULL);

    for (char **line = lines; *line != NULL; line++) {
        bool drop = exactly ? strcmp(*line, own) == 0 : is_replaced(*line, own);

        if (**line != '\0' && !drop) {
            g_string_append_printf(kept, "%s\n", *line);
        }
    }
    return g_string_free(kept, FALSE);
}

/* Under the lock. */
static int table_write(const char *text)
{
    char path[] = TABLE ".XXXXXX";
    VJ_AUTO_FD fd = g_mkstemp_full(path, O_RDWR | O_CLOEXEC, 0600);
    int r;

    if (fd < 0) {
        return -errno;
    }
    r = vj_fd_write_all(fd, text, strlen(text));
    if (r == 0 && (fchmod(fd, 0644) < 0 || rename(path, TABLE) < 0)) {
        r = -errno;
    }
    if (r < 0) {
        unlink(path);
    }
    return r;
}

/* @out: owned; "" where there is no table yet. */
static int table_read(char **out)
{
    g_autoptr(GError) error = NULL;

    if (g_file_get_contents(TABLE, out, NULL, &error)) {
        return 0;
    }
    *out = g_strdup("");
    return g_error_matches(error, G_FILE_ERROR, G_FILE_ERROR_NOENT) ? 0 : -EIO;
}

int vj_utab_add(const char *mountpoint)
{
    g_autofree char *own = own_words(mountpoint);
    g_autofree char *text = NULL, *kept = NULL, *changed = NULL;
    VJ_AUTO_FD lock_fd = lock_table();
    int r = lock_fd < 0 ? lock_fd : table_read(&text);

    if (r < 0) {
        return r;
    }
    kept = table_without(text, own, false);
    changed = g_strdup_printf("%s%s\n", kept, own);
    return table_write(changed);
}

/* Under the lock. */
static int remove_line(const char *own)
{
    g_autofree char *text = NULL, *kept = NULL;
    int r = table_read(&text);

    if (r < 0) {
        return r;
    }
    kept = table_without(text, own, true);
    return table_write(kept);
}

int vj_utab_remove(const char *mountpoint)
{
    g_autofree char *own = own_words(mountpoint);
    g_autofree char *text = NULL;
    VJ_AUTO_FD lock_fd = -1;
    int r = table_read(&text);

    if (r < 0 || strstr(text, own) == NULL) {
        return r; /* umount(8) has removed it */
    }
    lock_fd = lock_table();
    return lock_fd < 0 ? lock_fd : remove_line(own);
}
