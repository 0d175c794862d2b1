/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * A history of calls of the room fs, chosen by the input, on a volume of its own.
 * Contents are compared with byte arrays after each read, at the end, and once more after
 * the volume was closed, checked as fsck does and opened again.  Nothing is damaged, so
 * no call says that something is, and nothing aborts.
 *
 * The input: options of mkfs (1), then calls: which (1), then what each takes.
 */
#include "fuzz-volume.h"

#include <fcntl.h>
#include <sys/xattr.h>

#include "fs/fs-format.h"
#include "varjfs/ioctl.h"

#define INODES 8u
#define HANDLES 4u
#define CALLS_MAX 150u
/* Contents are compared up to here; offsets stay below. */
#define SIZE_MAX_BYTES ((uint64_t)256 << 10)
#define LENGTH_MAX ((uint32_t)64 << 10)

typedef struct World {
    VjVolume *v;
    VjFs *fs;
    VjReader in;
    uint64_t inodes[INODES]; /* 0: none */
    VjHandle *handles[HANDLES];
    GHashTable *contents; /* inode → GByteArray, of regular files */
    char name[2][VJ_NAME_MAX + 8];
} World;

/* ---- what the input chooses -------------------------------------------------------- */

static uint64_t pick_inode(World *w)
{
    uint64_t ino = w->inodes[vj_read_u8(&w->in) % INODES];

    return ino != 0 ? ino : VJ_INO_ROOT;
}

/* What the kernel is for the room: it knows what was looked up and not forgotten. */
static bool is_known(void *opaque, uint64_t ino)
{
    const World *w = opaque;

    return w->inodes[ino % INODES] == ino;
}

static void remember(World *w, uint64_t ino)
{
    uint64_t *slot = &w->inodes[ino % INODES], old = *slot;

    *slot = ino;
    if (old != 0 && old != ino) {
        vj_fs_forgotten(w->fs, old);
    }
}

/* The kernel never passes "", "/" in a name, "." or "..". */
static const char *pick_name(World *w, unsigned which)
{
    static const char *const names[] = {"a",   "b",   "c",      "\xff\xfe",
                                        " \n", "...", "caf\xc3"};
    char *name = w->name[which];
    uint8_t n = vj_read_u8(&w->in);
    VjSlice raw;

    if (n % 8 < G_N_ELEMENTS(names)) {
        g_strlcpy(name, names[n % 8], sizeof w->name[0]);
        return name;
    }
    raw = vj_read_bytes(&w->in, MIN(w->in.left, n));
    memset(name, 0, sizeof w->name[0]);
    memcpy(name, raw.data != NULL ? raw.data : "", MIN(raw.len, VJ_NAME_MAX + 7));
    g_strdelimit(name, "/", '_');
    return *name == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ? "d"
                                                                              : name;
}

static VjHandle **pick_handle(World *w)
{
    return &w->handles[vj_read_u8(&w->in) % HANDLES];
}

static VjHandle *pick_open(World *w)
{
    VjHandle **at = pick_handle(w);

    for (unsigned i = 0; *at == NULL && i < HANDLES; i++) {
        at = &w->handles[i];
    }
    return *at;
}

static uint64_t pick_offset(World *w)
{
    return vj_read_u32(&w->in) % SIZE_MAX_BYTES;
}

/* Any number, but mostly one that a file has. */
static uint64_t pick_wild(World *w)
{
    uint8_t how = vj_read_u8(&w->in);

    return how < 0xf0 ? pick_offset(w) : vj_read_u64(&w->in);
}

/* Bytes that repeat themselves often enough for objects to be shared. */
static uint8_t *pick_data(World *w, uint32_t *len)
{
    uint8_t kind = vj_read_u8(&w->in);
    uint8_t *bytes;
    VjRng r;

    *len = vj_read_u16(&w->in) % (kind & 0x80 ? LENGTH_MAX : 300);
    bytes = g_malloc(*len + 1);
    vj_rng_init(&r, kind & 7);
    if (kind & 8) {
        memset(bytes, kind, *len);
    } else {
        vj_rng_bytes(&r, bytes, *len);
    }
    return bytes;
}

/* ---- contents ---------------------------------------------------------------------- */

static GByteArray *content_of(World *w, uint64_t ino)
{
    GByteArray *c = g_hash_table_lookup(w->contents, &ino);

    if (c == NULL) {
        c = g_byte_array_sized_new(16);
        g_hash_table_insert(w->contents, g_memdup2(&ino, sizeof ino), c);
    }
    return c;
}

static void content_resize(GByteArray *c, uint64_t size)
{
    guint old = c->len;

    g_assert(size < 64 * SIZE_MAX_BYTES);
    g_byte_array_set_size(c, (guint)size);
    if (size > old) {
        memset(c->data + old, 0, size - old);
    }
}

/* @src NULL: zeroes. */
static void content_replace(GByteArray *c, uint64_t offset, uint64_t old_len,
                            const void *src, uint64_t len)
{
    GByteArray *tail;

    if (offset > c->len) {
        if (len == 0) {
            return;
        }
        content_resize(c, offset);
    }
    old_len = MIN(old_len, c->len - offset);
    tail = g_byte_array_new();
    g_byte_array_append(tail, c->data + offset + old_len,
                        (guint)(c->len - offset - old_len));
    g_byte_array_set_size(c, (guint)offset);
    if (src != NULL) {
        g_byte_array_append(c, src, (guint)len);
    } else {
        content_resize(c, offset + len);
    }
    g_byte_array_append(c, tail->data, tail->len);
    g_byte_array_unref(tail);
}

static bool has_room(World *w, VjHandle *h)
{
    return content_of(w, vj_fs_handle_ino(h))->len < 4 * SIZE_MAX_BYTES;
}

/* An orphan that nobody has open or knows may be there or not. */
static bool is_there(World *w, uint64_t ino)
{
    VjAttr attr;

    for (unsigned i = 0; i < HANDLES; i++) {
        if (w->handles[i] != NULL && vj_fs_handle_ino(w->handles[i]) == ino) {
            return true;
        }
    }
    return is_known(w, ino) ||
           (vj_fs_getattr(w->fs, ino, &attr) == 0 && attr.st.st_nlink > 0);
}

static void expect_content(VjFs *fs, uint64_t ino, const GByteArray *c)
{
    g_autofree uint8_t *got_bytes = g_malloc(c->len + 10);
    VjHandle *h;
    size_t got = 0;
    int r = vj_fs_open(fs, &fuzz_root, ino, O_RDONLY, &h);

    g_assert(r == 0);
    r = vj_fs_read(h, 0, got_bytes, c->len + 10, &got);
    g_assert(r == 0 && got == c->len);
    g_assert(c->len == 0 || memcmp(got_bytes, c->data, got) == 0);
    vj_fs_release(fs, h);
}

static void expect_contents(World *w)
{
    GHashTableIter iter;
    gpointer ino, content;

    g_hash_table_iter_init(&iter, w->contents);
    while (g_hash_table_iter_next(&iter, &ino, &content)) {
        if (is_there(w, *(uint64_t *)ino)) {
            expect_content(w->fs, *(uint64_t *)ino, content);
        }
    }
}

/* Any answer but those that mean damage. */
static int sound(int r)
{
    g_assert(r <= 0 && r > -4096);
    g_assert(r != -EBADMSG && r != -EIO && r != -ESTALE && r != -EROFS);
    return r;
}

/* ---- names ------------------------------------------------------------------------- */

static void made(World *w, int r, const VjAttr *attr)
{
    if (sound(r) == 0) {
        remember(w, attr->st.st_ino);
        if (S_ISREG(attr->st.st_mode)) {
            (void)content_of(w, attr->st.st_ino);
        }
    }
}

static void call_mknod(World *w)
{
    static const mode_t types[] = {S_IFREG, S_IFIFO, S_IFSOCK, S_IFCHR};
    uint64_t parent = pick_inode(w);
    uint8_t how = vj_read_u8(&w->in);
    const char *name = pick_name(w, 0);
    VjAttr attr;

    switch (how % 4) {
    case 0:
        made(w, vj_fs_mkdir(w->fs, &fuzz_root, parent, name, 0755, &attr), &attr);
        break;
    case 1:
        made(w, vj_fs_symlink(w->fs, &fuzz_root, parent, name, pick_name(w, 1), &attr),
             &attr);
        break;
    default:
        made(w,
             vj_fs_mknod(w->fs, &fuzz_root, parent, name,
                         types[how / 4 % 4] | (how % 0777), how, &attr),
             &attr);
        break;
    }
}

static void call_lookup(World *w)
{
    uint64_t parent = pick_inode(w);
    uint8_t how = vj_read_u8(&w->in);
    VjAttr attr;
    int r;

    r = vj_fs_lookup(w->fs, &fuzz_root, parent,
                     how == 0   ? ".."
                     : how == 1 ? "."
                                : pick_name(w, 0),
                     &attr);
    if (sound(r) == 0) {
        remember(w, attr.st.st_ino);
    }
}

static void call_link(World *w)
{
    uint64_t ino = pick_inode(w), parent = pick_inode(w);
    VjAttr attr;

    (void)sound(vj_fs_link(w->fs, ino, parent, pick_name(w, 0), &attr));
}

static void call_unlink(World *w)
{
    uint64_t parent = pick_inode(w);
    bool dir = vj_read_u8(&w->in) & 1;

    (void)sound((dir ? vj_fs_rmdir : vj_fs_unlink)(w->fs, parent, pick_name(w, 0)));
}

static void call_rename(World *w)
{
    uint64_t from = pick_inode(w), to = pick_inode(w);
    const char *old = pick_name(w, 0), *new = pick_name(w, 1);

    (void)sound(
        vj_fs_rename(w->fs, &fuzz_root, from, old, to, new, vj_read_u8(&w->in) % 8));
}

static bool visit_name(void *opaque, const VjDirent *entry, const VjAttr *attr)
{
    (void)opaque;
    (void)attr;
    g_assert(*entry->name != '\0' && entry->ino != 0);
    return true;
}

static void call_readdir(World *w)
{
    uint64_t dir = pick_inode(w), cookie = vj_read_u8(&w->in), end = UINT64_MAX;

    if (cookie > 200) {
        cookie = vj_read_u64(&w->in) & INT64_MAX;
    }
    (void)sound(vj_fs_readdir(w->fs, dir, cookie, &end, 4096, true, visit_name, NULL));
}

/* ---- attributes -------------------------------------------------------------------- */

static bool is_regular(World *w, uint64_t ino)
{
    return g_hash_table_contains(w->contents, &ino);
}

static void call_setattr(World *w)
{
    uint64_t ino = pick_inode(w);
    VjSetattr set = {.what = vj_read_u8(&w->in) & 0x7f};
    VjAttr attr;
    int r;

    set.mode = vj_read_u16(&w->in) & 07777;
    set.uid = vj_read_u8(&w->in);
    set.gid = vj_read_u8(&w->in);
    set.size = pick_wild(w);
    set.atime = (struct timespec){.tv_sec = (int64_t)vj_read_u32(&w->in) - 100};
    set.mtime = (struct timespec){.tv_nsec = vj_read_u8(&w->in) == 0 ? UTIME_NOW : 5};
    if (!is_regular(w, ino) || set.size > SIZE_MAX_BYTES) {
        set.what &= ~(unsigned)VJ_SET_SIZE;
    }
    r = vj_fs_setattr(w->fs, &fuzz_root, ino, NULL, &set, &attr);
    if (sound(r) == 0 && (set.what & VJ_SET_SIZE) != 0) {
        content_resize(content_of(w, ino), set.size);
        g_assert((uint64_t)attr.st.st_size == set.size);
    }
}

static void call_flags(World *w)
{
    uint64_t ino = pick_inode(w);
    uint32_t flags = vj_read_u16(&w->in), got = 0;
    /* Seldom what forbids the rest. */
    uint32_t wanted = flags & 0x3c00 ? flags & ~(uint32_t)VJ_INODE_PROTECTED : flags;
    int r = vj_fs_set_flags(w->fs, flags & 0x4000 ? &fuzz_root : NULL, ino,
                            flags & 0x8000 ? wanted : wanted & VJ_INODE_CHATTR);

    if (sound(r) == 0) {
        g_assert(vj_fs_get_flags(w->fs, ino, &got) == 0);
        g_assert(got == (wanted & VJ_INODE_CHATTR));
    }
}

static const char *pick_xattr(World *w)
{
    static const char *const names[] = {
        "user.a",
        "user.varjfs.transform",
        "user.varjfs.objects",
        "user.varjfs.mode",
        "user.varjfs.safety",
        "user.varjfs.status",
        "security.capability",
        "trusted.t",
        VJ_ACL_ACCESS,
        VJ_ACL_DEFAULT,
        "user.",
        "system.x",
    };
    uint8_t n = vj_read_u8(&w->in) % 16;

    return n < G_N_ELEMENTS(names) ? names[n] : pick_name(w, 1);
}

/* A value of the input; for settings and lists it often means something. */
static VjSlice pick_value(World *w)
{
    static const char *const texts[] = {"rle", "zstd:3", "xor:5a",
                                        "2K",  "server", "none"};
    static const uint8_t acl[] = {2,    0,   0, 0, 1,   0,   7,   0,   255, 255,
                                  255,  255, 4, 0, 5,   0,   255, 255, 255, 255,
                                  0x20, 0,   5, 0, 255, 255, 255, 255};
    static const uint8_t long_acl[] = {
        2, 0, 0,   0,   1,   0,   6,  0, 255, 255, 255, 255, 2,   0,  7,
        0, 9, 0,   0,   0,   4,   0,  4, 0,   255, 255, 255, 255, 16, 0,
        5, 0, 255, 255, 255, 255, 32, 0, 0,   0,   255, 255, 255, 255};
    uint8_t n = vj_read_u8(&w->in);

    if (n < G_N_ELEMENTS(texts)) {
        return vj_slice(texts[n], strlen(texts[n]));
    }
    if (n == 6 || n == 7) {
        return n == 6 ? vj_slice(acl, sizeof acl) : vj_slice(long_acl, sizeof long_acl);
    }
    return vj_read_bytes(&w->in, MIN(w->in.left, n));
}

static void call_xattr(World *w)
{
    uint64_t ino = pick_inode(w);
    uint8_t how = vj_read_u8(&w->in);
    const char *name = pick_xattr(w);
    uint8_t got[512];
    VjSlice value;
    size_t len = 0;
    int r;

    switch (how % 4) {
    case 0:
    case 1:
        value = pick_value(w);
        r = vj_fs_setxattr(w->fs, &fuzz_root, ino, name,
                           value.data != NULL ? value.data : "", value.len,
                           how / 4 % 3 == 1   ? XATTR_CREATE
                           : how / 4 % 3 == 2 ? XATTR_REPLACE
                                              : 0);
        if (sound(r) == 0 && !g_str_has_prefix(name, "user.varjfs.") &&
            !g_str_has_prefix(name, "system.")) {
            r = vj_fs_getxattr(w->fs, ino, name, got, sizeof got, &len);
            g_assert(r == 0 && len == value.len);
            g_assert(len == 0 || memcmp(got, value.data, len) == 0);
        }
        break;
    case 2:
        (void)sound(vj_fs_removexattr(w->fs, ino, name));
        break;
    default:
        (void)sound(vj_fs_getxattr(w->fs, ino, name, got, how, &len));
        r = vj_fs_listxattr(w->fs, &fuzz_root, ino, (char *)got, sizeof got, &len);
        g_assert(sound(r) != 0 || len == 0 || got[len - 1] == '\0');
        break;
    }
}

/* ---- open files -------------------------------------------------------------------- */

static void put_handle(World *w, int r, VjHandle *h, VjHandle **at)
{
    if (sound(r) == 0) {
        if (*at != NULL) {
            vj_fs_release(w->fs, *at);
        }
        *at = h;
    }
}

static void call_open(World *w)
{
    VjHandle **at = pick_handle(w), *h = NULL;
    uint8_t how = vj_read_u8(&w->in);
    int flags = O_RDWR | (how & 8 ? O_TRUNC : 0) | (how & 16 ? O_EXCL : 0);
    uint64_t ino = pick_inode(w);
    VjAttr attr;
    int r;

    switch (how % 4) {
    case 0:
        r = vj_fs_tmpfile(w->fs, &fuzz_root, ino, 0600, O_RDWR, &attr, &h);
        put_handle(w, r, h, at);
        made(w, r, &attr);
        break;
    case 1:
    case 2:
        r = vj_fs_create(w->fs, &fuzz_root, ino, pick_name(w, 0), 0644, flags, &attr, &h);
        put_handle(w, r, h, at);
        made(w, r, &attr);
        if (r == 0 && (flags & O_TRUNC) != 0) {
            content_resize(content_of(w, attr.st.st_ino), 0);
        }
        break;
    default:
        if (is_regular(w, ino)) {
            r = vj_fs_open(w->fs, &fuzz_root, ino, flags, &h);
            put_handle(w, r, h, at);
            if (r == 0 && (flags & O_TRUNC) != 0) {
                content_resize(content_of(w, ino), 0);
            }
        }
        break;
    }
}

static void call_release(World *w)
{
    VjHandle **at = pick_handle(w);

    if (*at != NULL) {
        (void)sound(vj_fs_flush(*at));
        vj_fs_release(w->fs, *at);
        *at = NULL;
    }
}

static void call_write(World *w, VjHandle *h)
{
    GByteArray *c = content_of(w, vj_fs_handle_ino(h));
    unsigned flags = vj_read_u8(&w->in) & VJ_WRITE_APPEND;
    uint64_t offset = pick_offset(w), at = 0;
    uint32_t len;
    g_autofree uint8_t *data = pick_data(w, &len);

    if (sound(vj_fs_write(h, offset, data, len, flags, &at)) == 0 && len > 0) {
        g_assert(at == ((flags & VJ_WRITE_APPEND) ? c->len : offset));
        content_replace(c, at, len, data, len);
    }
}

static void call_read(World *w, VjHandle *h)
{
    GByteArray *c = content_of(w, vj_fs_handle_ino(h));
    uint64_t offset = pick_wild(w);
    size_t len = vj_read_u16(&w->in), got = 0;
    g_autofree uint8_t *dst = g_malloc(len + 1);
    size_t want = offset < c->len ? MIN(len, c->len - offset) : 0;

    if (sound(vj_fs_read(h, offset, dst, len, &got)) == 0) {
        g_assert(got == want);
        g_assert(want == 0 || memcmp(dst, c->data + offset, want) == 0);
    }
}

static void call_replace(World *w, VjHandle *h)
{
    GByteArray *c = content_of(w, vj_fs_handle_ino(h));
    uint8_t how = vj_read_u8(&w->in);
    VjEdit e = {.append = (how & 1) != 0, .hole = (how & 6) == 6, .inside = how >= 128};
    VjEdited edited = {.at = 0};
    uint32_t len;
    g_autofree uint8_t *data = NULL;

    e.offset = pick_wild(w);
    e.old_len = pick_wild(w);
    data = pick_data(w, &len);
    e.append = e.append && !e.hole;
    e.inside = e.inside && e.hole;
    e.src = e.hole ? NULL : data;
    e.len = len;
    if (e.offset > SIZE_MAX_BYTES) {
        /* A hole up to what a file can have is not compared. */
        e.offset |= (uint64_t)1 << 63;
    }
    if (sound(vj_fs_replace(&fuzz_root, h, &e, &edited)) == 0 && edited.changed) {
        g_assert(edited.old_size == c->len);
        content_replace(c, edited.at, edited.old_len, e.src, edited.len);
        g_assert(edited.size == c->len);
    }
}

static void call_fallocate(World *w, VjHandle *h)
{
    static const int modes[] = {
        0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE,
        FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};
    GByteArray *c = content_of(w, vj_fs_handle_ino(h));
    int mode = modes[vj_read_u8(&w->in) % G_N_ELEMENTS(modes)];
    uint64_t offset = pick_offset(w), len = pick_offset(w) + 1;

    if (sound(vj_fs_fallocate(h, mode, offset, len)) < 0) {
        return;
    }
    if ((mode & FALLOC_FL_KEEP_SIZE) == 0 && offset + len > c->len) {
        content_resize(c, offset + len);
    }
    if ((mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) && offset < c->len) {
        memset(c->data + offset, 0, MIN(len, c->len - offset));
    }
}

static void call_copy(World *w, VjHandle *h)
{
    VjHandle *to = pick_open(w);
    uint64_t from_at = pick_offset(w), to_at = pick_offset(w), len = pick_offset(w);
    uint64_t copied = 0;
    GByteArray *from = content_of(w, vj_fs_handle_ino(h)),
               *into = content_of(w, vj_fs_handle_ino(to));
    g_autofree uint8_t *bytes = NULL;

    if (sound(vj_fs_copy(h, from_at, to, to_at, len, &copied)) < 0 || copied == 0) {
        return;
    }
    g_assert(copied <= len && from_at + copied <= from->len);
    bytes = g_memdup2(from->data + from_at, copied);
    content_replace(into, to_at, copied, bytes, copied);
}

static void call_shift(World *w, VjHandle *h)
{
    GByteArray *c = content_of(w, vj_fs_handle_ino(h));
    VjFileShift s = {.down = vj_read_u8(&w->in) & 1};
    VjEdited edited = {.at = 0};
    uint64_t size = 0;
    uint32_t len;
    g_autofree uint8_t *data = NULL;

    s.offset = pick_offset(w);
    s.len = pick_offset(w);
    data = pick_data(w, &len);
    s.src = data;
    s.src_len = len;
    g_assert(vj_fs_change_count(h, &s.change, &size) == 0 && size == c->len);
    if (vj_read_u8(&w->in) == 7) {
        s.change ^= 1;
    }
    if (sound(vj_fs_shift(&fuzz_root, h, &s, &edited)) < 0) {
        return;
    }
    if (s.down) {
        content_replace(c, s.offset + s.len, 0, data, len);
        content_replace(c, s.offset, len, NULL, 0);
    } else {
        content_replace(c, s.offset, 0, data, len);
        content_replace(c, s.offset + s.len, len, NULL, 0);
    }
}

static void call_stage(World *w, VjHandle *h)
{
    uint8_t how = vj_read_u8(&w->in);
    uint64_t id = how % 5;
    g_autoptr(VjBuf) data = NULL;
    g_autofree uint8_t *bytes = NULL;
    uint32_t len;

    switch (how % 3) {
    case 0:
        bytes = pick_data(w, &len);
        (void)sound(vj_fs_stage_add(h, &id, how & 8 ? pick_wild(w) : 0, bytes, len));
        break;
    case 1:
        (void)sound(vj_fs_stage_drop(h, id));
        break;
    default:
        (void)sound(vj_fs_stage_take(h, id, &data));
        break;
    }
}

static void call_other(World *w, VjHandle *h)
{
    uint8_t how = vj_read_u8(&w->in);
    VjRecode step = {.offset = 0};
    uint64_t at = 0;
    int r;

    switch (how % 4) {
    case 0:
        (void)sound(vj_fs_fsync(h));
        break;
    case 1:
        step.offset = how & 16 ? pick_wild(w) & INT64_MAX : 0;
        do {
            r = vj_fs_recode(h, &fuzz_root, &step);
        } while (sound(r) == 0 && !step.done);
        break;
    case 2:
        (void)sound(vj_fs_seek(h, pick_wild(w), (how & 4) != 0, &at));
        break;
    default:
        (void)sound(vj_fs_flush(h));
        break;
    }
}

/* ---- the whole --------------------------------------------------------------------- */

static void call_volume(World *w)
{
    static const VjCaller stranger = {.uid = 12345, .gid = 12345};
    uint8_t how = vj_read_u8(&w->in);
    uint64_t cursor = how & 8 ? pick_wild(w) : 0;
    uint64_t ino = pick_inode(w);
    char text[2000], target[VJ_SYMLINK_MAX + 1];
    VjTend step = {.cursor = cursor};
    size_t len = 0;
    VjAttr attr;

    switch (how % 5) {
    case 0:
        (void)sound(vj_fs_sync_all(w->fs));
        break;
    case 1:
        (void)sound(vj_fs_text(w->fs, how & 8 ? &fuzz_root : &stranger, ino, how / 16 % 6,
                               &cursor, text, sizeof text, &len));
        g_assert(len <= sizeof text);
        break;
    case 2:
        (void)sound(vj_fs_tend(w->fs, &fuzz_root, VARJFS_TEND_GC, &step));
        break;
    case 3:
        (void)sound(vj_fs_tend(w->fs, &fuzz_root, VARJFS_TEND_SCRUB, &step));
        g_assert(step.found == 0);
        break;
    default:
        (void)sound(vj_fs_getattr(w->fs, ino, &attr));
        (void)sound(vj_fs_readlink(w->fs, ino, target));
        break;
    }
}

static void call_on_handle(World *w, unsigned which)
{
    VjHandle *h = pick_open(w);

    if (h == NULL || !has_room(w, h)) {
        return;
    }
    switch (which) {
    case 0:
    case 1:
        call_write(w, h);
        break;
    case 2:
        call_read(w, h);
        break;
    case 3:
    case 4:
        call_replace(w, h);
        break;
    case 5:
        call_fallocate(w, h);
        break;
    case 6:
        call_copy(w, h);
        break;
    case 7:
        call_shift(w, h);
        break;
    case 8:
        call_stage(w, h);
        break;
    default:
        call_other(w, h);
        break;
    }
}

static void call(World *w)
{
    static void (*const calls[])(World * w) = {
        call_mknod,   call_lookup, call_link, call_unlink,  call_rename, call_readdir,
        call_setattr, call_xattr,  call_open, call_release, call_volume,
    };
    uint8_t number = vj_read_u8(&w->in);
    unsigned which = number % (G_N_ELEMENTS(calls) + 10);

    if (number >= 0xf8) {
        call_flags(w);
    } else if (which < G_N_ELEMENTS(calls)) {
        calls[which](w);
    } else {
        call_on_handle(w, which - (unsigned)G_N_ELEMENTS(calls));
    }
}

/* @in.left 0: nothing but a look at what is there. */
static void live(World *w, const char *dir)
{
    w->v = fuzz_volume_open(dir, false);
    w->fs = vj_fs_new(w->v);
    vj_fs_set_knows(w->fs, is_known, w);
    w->inodes[VJ_INO_ROOT] = VJ_INO_ROOT;
    for (unsigned n = 0; n < CALLS_MAX && w->in.left > 0; n++) {
        call(w);
    }
    expect_contents(w);
    for (unsigned i = 0; i < HANDLES; i++) {
        if (w->handles[i] != NULL) {
            vj_fs_release(w->fs, g_steal_pointer(&w->handles[i]));
        }
    }
    for (unsigned i = 0; i < INODES; i++) {
        uint64_t ino = w->inodes[i];

        w->inodes[i] = 0;
        vj_fs_forgotten(w->fs, ino);
    }
    vj_fs_free(w->fs);
    g_assert(vj_volume_close(w->v) == 0);
}

FUZZ_MUTATIONS(2);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const char *const options[] = {
        "objects=1K", "objects=2K,transform=rle,hash=sha1",
        "chunker=rabin,objects=256:1K:4K,transform=xor:33", "objects=8K,transform=zstd"};
    World w = {.in = vj_reader(vj_slice(data, len))};
    uint8_t how = vj_read_u8(&w.in);
    char *dir;

    if (w.in.bad) {
        return 0;
    }
    fuzz_quiet();
    dir = fuzz_dir_new();
    w.contents = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free,
                                       (GDestroyNotify)g_byte_array_unref);
    fuzz_volume_make(dir, options[how % G_N_ELEMENTS(options)]);
    live(&w, dir);
    fuzz_volume_expect_clean(dir);
    w.in.left = 0;
    live(&w, dir);
    g_hash_table_unref(w.contents);
    fuzz_dir_remove(dir);
    return 0;
}
