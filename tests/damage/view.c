/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * view.c - what a user sees: in this process through the room fs, or through a mount
 */
#include "sweep.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

static const VjCaller root_caller = {.umask = 022};

/* ---- in this process --------------------------------------------------------------- */

static int fs_find(VjFs *fs, const char *path, VjAttr *attr)
{
    g_auto(GStrv) parts = g_strsplit(path, "/", 0);
    int r = vj_fs_getattr(fs, VJ_INO_ROOT, attr);

    for (size_t i = 0; r == 0 && parts[i] != NULL; i++) {
        if (*parts[i] != '\0') {
            r = vj_fs_lookup(fs, &root_caller, attr->st.st_ino, parts[i], attr);
        }
    }
    return r;
}

static int fs_look(View *v, const char *path, struct stat *st)
{
    VjAttr attr;
    int r = fs_find(v->fs, path, &attr);

    if (r == 0) {
        *st = attr.st;
    }
    return r;
}

static int fs_open(View *v, const char *path, void **file)
{
    VjAttr attr;
    VjHandle *h = NULL;
    int r = fs_find(v->fs, path, &attr);

    if (r == 0) {
        r = vj_fs_open(v->fs, &root_caller, attr.st.st_ino, O_RDONLY, &h);
    }
    *file = h;
    return r;
}

static int fs_read(View *v, void *file, uint64_t at, void *dst, size_t len, size_t *got)
{
    (void)v;
    return vj_fs_read(file, at, dst, len, got);
}

static void fs_close(View *v, void *file)
{
    vj_fs_release(v->fs, file);
}

typedef struct Listing {
    GHashTable *names;
    uint64_t cookie;
    bool any;
} Listing;

static bool add_name(void *opaque, const VjDirent *entry, const VjAttr *attr)
{
    Listing *l = opaque;

    (void)attr;
    l->any = true;
    l->cookie = entry->cookie;
    if (strcmp(entry->name, ".") != 0 && strcmp(entry->name, "..") != 0) {
        g_hash_table_add(l->names, g_strdup(entry->name));
    }
    return true;
}

static int fs_list(View *v, const char *path, GHashTable *names)
{
    Listing l = {.names = names, .any = true};
    VjAttr attr;
    int r = fs_find(v->fs, path, &attr);

    while (r == 0 && l.any) {
        l.any = false;
        r = vj_fs_readdir(v->fs, attr.st.st_ino, l.cookie, NULL, 4096, true, add_name,
                          &l);
    }
    return r;
}

static int fs_attr(View *v, const char *path, const char *name, void *dst, size_t cap,
                   size_t *len)
{
    VjAttr attr;
    int r = fs_find(v->fs, path, &attr);

    return r < 0 ? r : vj_fs_getxattr(v->fs, attr.st.st_ino, name, dst, cap, len);
}

static int fs_target(View *v, const char *path, char *dst, size_t cap, size_t *len)
{
    char target[VJ_SYMLINK_MAX + 1];
    VjAttr attr;
    int r = fs_find(v->fs, path, &attr);

    r = r < 0 ? r : vj_fs_readlink(v->fs, attr.st.st_ino, target);
    if (r == 0) {
        *len = MIN(strlen(target), cap);
        memcpy(dst, target, *len);
    }
    return r;
}

void view_of_fs(View *v, VjFs *fs)
{
    *v = (View){.look = fs_look,
                .open = fs_open,
                .read = fs_read,
                .close = fs_close,
                .list = fs_list,
                .attr = fs_attr,
                .target = fs_target,
                .fs = fs};
}

/* ---- through a mount --------------------------------------------------------------- */

static char *full(const View *v, const char *path)
{
    return g_strconcat(v->root, path, NULL);
}

static int mount_look(View *v, const char *path, struct stat *st)
{
    g_autofree char *name = full(v, path);

    return lstat(name, st) == 0 ? 0 : -errno;
}

static int mount_open(View *v, const char *path, void **file)
{
    g_autofree char *name = full(v, path);
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    *file = GINT_TO_POINTER(fd);
    return fd < 0 ? -errno : 0;
}

static int mount_read(View *v, void *file, uint64_t at, void *dst, size_t len,
                      size_t *got)
{
    ssize_t n = pread(GPOINTER_TO_INT(file), dst, len, (off_t)at);

    (void)v;
    *got = n < 0 ? 0 : (size_t)n;
    return n < 0 ? -errno : 0;
}

static void mount_close(View *v, void *file)
{
    (void)v;
    close(GPOINTER_TO_INT(file));
}

static int mount_list(View *v, const char *path, GHashTable *names)
{
    g_autofree char *name = full(v, path);
    DIR *dir = opendir(name);
    const struct dirent *e;
    int r;

    if (dir == NULL) {
        return -errno;
    }
    for (errno = 0; (e = readdir(dir)) != NULL; errno = 0) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            g_hash_table_add(names, g_strdup(e->d_name));
        }
    }
    r = -errno;
    closedir(dir);
    return r;
}

static int mount_attr(View *v, const char *path, const char *name, void *dst, size_t cap,
                      size_t *len)
{
    g_autofree char *file = full(v, path);
    ssize_t n = lgetxattr(file, name, dst, cap);

    *len = n < 0 ? 0 : (size_t)n;
    return n < 0 ? -errno : 0;
}

static int mount_target(View *v, const char *path, char *dst, size_t cap, size_t *len)
{
    g_autofree char *name = full(v, path);
    ssize_t n = readlink(name, dst, cap);

    *len = n < 0 ? 0 : (size_t)n;
    return n < 0 ? -errno : 0;
}

void view_of_mount(View *v, const char *root)
{
    *v = (View){.look = mount_look,
                .open = mount_open,
                .read = mount_read,
                .close = mount_close,
                .list = mount_list,
                .attr = mount_attr,
                .target = mount_target,
                .root = root};
}
