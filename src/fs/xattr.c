/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * xattr.c - extended attributes: plain ones are records of their own, user.varjfs.* are
 * settings (settings.c), system.posix_acl_* are records that agree with the mode (acl.c)
 */
#include <linux/capability.h>
#include <sys/xattr.h>

#include "fs/fs-private.h"

#define USER_PREFIX "user."
#define TRUSTED_PREFIX "trusted."
#define SECURITY_PREFIX "security."
#define OWN_PREFIX "user.varjfs."
/* listxattr(2) can show no more, bytes. */
#define LIST_MAX 65536u

bool vj_fs_is_setting(const char *name)
{
    return g_str_has_prefix(name, OWN_PREFIX);
}

static bool is_status(const char *name)
{
    return strcmp(name, OWN_PREFIX "status") == 0;
}

/* The name belongs to a space that is kept here. */
static int xattr_name_check(const char *name)
{
    static const char *const spaces[] = {USER_PREFIX, TRUSTED_PREFIX, SECURITY_PREFIX};

    if (strlen(name) > VJ_NAME_MAX) {
        return -ERANGE;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(spaces); i++) {
        if (g_str_has_prefix(name, spaces[i])) {
            return name[strlen(spaces[i])] == '\0' ? -EINVAL : 0;
        }
    }
    return vj_acl_is_name(name) ? 0 : -EOPNOTSUPP;
}

/* ---- reading ----------------------------------------------------------------------- */

static int value_out(const void *src, size_t src_len, void *dst, size_t cap, size_t *len)
{
    *len = src_len;
    if (cap == 0) {
        return 0;
    }
    if (src_len > cap) {
        return -ERANGE;
    }
    if (src_len > 0) {
        memcpy(dst, src, src_len);
    }
    return 0;
}

static int own_get(VjFs *fs, uint64_t ino, const char *name, char **out)
{
    const VjSetting *s = vj_setting_find(name + strlen(OWN_PREFIX));
    VjInode inode;
    int r;

    *out = NULL;
    if (is_status(name)) {
        return vj_fs_status_text(fs, ino, out);
    }
    if (s == NULL) {
        return -ENODATA;
    }
    r = vj_file_getattr(fs->files, ino, &inode);
    if (r < 0) {
        return r;
    }
    *out = vj_setting_text(s, fs, &inode);
    return 0;
}

typedef struct GetXattr {
    uint64_t ino;
    const char *name;
    void *dst;
    size_t cap, *len;
} GetXattr;

static int getxattr_body(VjTxn *txn, void *opaque)
{
    const GetXattr *g = opaque;
    VjSlice value, plain;
    VjFsKey key;
    int r;

    vj_fs_key_name(&key, g->ino, g->name, strlen(g->name));
    vj_fs_expect_near(txn, VJ_SPACE_XATTR, &key, VJ_XATTRS_AHEAD);
    r = vj_txn_get(txn, VJ_SPACE_XATTR, vj_fs_key_slice(&key), &value);
    if (r < 0) {
        return r == -ENOENT ? -ENODATA : r;
    }
    r = vj_xattr_decode(vj_fs_key_slice(&key), value, &plain);
    if (r < 0) {
        vj_log_error("inode %" G_GUINT64_FORMAT ": an extended attribute is damaged",
                     g->ino);
        return r;
    }
    return value_out(plain.data, plain.len, g->dst, g->cap, g->len);
}

int vj_fs_getxattr(VjFs *fs, uint64_t ino, const char *name, void *dst, size_t cap,
                   size_t *len)
{
    GetXattr g = {.ino = ino, .name = name, .dst = dst, .cap = cap, .len = len};
    int r = xattr_name_check(name);

    if (r < 0) {
        return r;
    }
    if (vj_fs_is_setting(name)) {
        g_autofree char *text = NULL;

        r = own_get(fs, ino, name, &text);
        return r < 0 ? r : value_out(text, strlen(text), dst, cap, len);
    }
    /* The kernel asks for it before it first writes to a file. */
    if (strcmp(name, VJ_CAPABILITY_XATTR) == 0 && vj_fs_is_without_capability(fs, ino)) {
        return -ENODATA;
    }
    return vj_meta_view(fs->meta, getxattr_body, &g);
}

static bool is_trusted(const char *name, size_t len)
{
    return len > strlen(TRUSTED_PREFIX) &&
           memcmp(name, TRUSTED_PREFIX, strlen(TRUSTED_PREFIX)) == 0;
}

typedef struct ListFill {
    uint64_t ino;
    GString *names, *trusted;
} ListFill;

static int list_fill_body(VjTxn *txn, void *opaque)
{
    const ListFill *l = opaque;
    VjInode inode;
    VjFsKey key;
    VjScan scan;
    int r = vj_inode_get(txn, l->ino, &inode);

    g_string_truncate(l->names, 0);
    g_string_truncate(l->trusted, 0);
    if (r < 0) {
        return r;
    }
    vj_settings_list(&inode, OWN_PREFIX, l->names);
    vj_fs_key_name(&key, l->ino, "", 0);
    vj_scan_begin(&scan, txn, VJ_SPACE_XATTR, vj_fs_key_slice(&key));
    vj_fs_key_last_record(&key, l->ino);
    vj_scan_behind(&scan, vj_fs_key_slice(&key)); /* they are not attributes */
    while (vj_scan_next(&scan) && scan.key.len <= VJ_FS_KEY_MAX) {
        const char *name = (const char *)scan.key.data + 8;
        size_t len = scan.key.len - 8;
        GString *to = is_trusted(name, len) ? l->trusted : l->names;

        if (to->len <= LIST_MAX) {
            g_string_append_len(to, name, (gssize)len);
            g_string_append_c(to, '\0');
        }
    }
    return scan.error;
}

/* @trusted: names that only some may see.  Each list ends with the name that is beyond
 * LIST_MAX. */
static int list_fill(VjFs *fs, uint64_t ino, GString *names, GString *trusted)
{
    ListFill l = {.ino = ino, .names = names, .trusted = trusted};

    return vj_meta_view(fs->meta, list_fill_body, &l);
}

int vj_fs_listxattr(VjFs *fs, const VjCaller *who, uint64_t ino, char *dst, size_t cap,
                    size_t *len)
{
    GString *names = g_string_new(NULL), *trusted = g_string_new(NULL);
    int r = list_fill(fs, ino, names, trusted);

    if (r == 0 && trusted->len > 0 && vj_caller_capable(who, CAP_SYS_ADMIN)) {
        g_string_append_len(names, trusted->str, (gssize)trusted->len);
    }
    if (r == 0 && names->len > LIST_MAX) {
        /* A larger buffer does not help, but only a caller that has the largest is to get
         * that answer. */
        r = cap > 0 && cap < LIST_MAX ? -ERANGE : -E2BIG;
    } else if (r == 0) {
        r = value_out(names->str, names->len, dst, cap, len);
    }
    g_string_free(trusted, TRUE);
    g_string_free(names, TRUE);
    return r;
}

/* ---- changing ---------------------------------------------------------------------- */

typedef struct XattrOp {
    uint64_t ino;
    const char *name;
    bool remove;
    const void *src;
    size_t len;
    uint8_t *record; /* room for the encoded value */
    int flags;
    bool keep_set_gid; /* of a file whose access list is set */
    struct timespec now;
    const VjFs *fs;
    VjSafety safety; /* out */
} XattrOp;

static int plain_change(VjTxn *txn, const XattrOp *op)
{
    VjFsKey key;
    VjSlice old;
    int r;

    vj_fs_key_name(&key, op->ino, op->name, strlen(op->name));
    if (op->remove) {
        r = vj_txn_del(txn, VJ_SPACE_XATTR, vj_fs_key_slice(&key));
        return r == -ENOENT ? -ENODATA : r;
    }
    if (op->flags & (XATTR_CREATE | XATTR_REPLACE)) {
        r = vj_txn_get(txn, VJ_SPACE_XATTR, vj_fs_key_slice(&key), &old);
        if (r < 0 && r != -ENOENT) {
            return r;
        }
        if (r == 0 && (op->flags & XATTR_CREATE)) {
            return -EEXIST;
        }
        if (r == -ENOENT && (op->flags & XATTR_REPLACE)) {
            return -ENODATA;
        }
    }
    vj_xattr_encode(&key, op->src, op->len, op->record);
    return vj_txn_put(txn, VJ_SPACE_XATTR, vj_fs_key_slice(&key),
                      vj_slice(op->record, sizeof(VjXattrDisk) + op->len));
}

static int acl_change(VjTxn *txn, const XattrOp *op, VjInode *inode)
{
    if (op->remove) {
        return vj_acl_remove(txn, inode, op->name);
    }
    return vj_acl_set(txn, inode, op->name, vj_slice(op->src, op->len), op->keep_set_gid);
}

/* What belongs to users is for what they can open: on others it would go around
 * permissions, which say something else there (xattr(7)). */
static bool is_allowed_on(const char *name, mode_t mode)
{
    return !g_str_has_prefix(name, USER_PREFIX) || S_ISREG(mode) || S_ISDIR(mode);
}

static int xattr_body(VjTxn *txn, void *opaque)
{
    XattrOp *op = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, op->ino, &inode);

    if (r < 0) {
        return r;
    }
    if (!is_allowed_on(op->name, inode.mode) || vj_is_protected(&inode)) {
        return -EPERM;
    }
    r = vj_acl_is_name(op->name) ? acl_change(txn, op, &inode) : plain_change(txn, op);
    if (r < 0) {
        return r;
    }
    inode.ctime = op->now;
    op->safety = vj_fs_safety_of(op->fs, &inode);
    return vj_inode_put(txn, &inode);
}

/* Whether a file whose list @who sets keeps its set-gid bit. */
static int may_keep_set_gid(VjFs *fs, const VjCaller *who, uint64_t ino, bool *out)
{
    VjInode inode;
    int r = vj_file_getattr(fs->files, ino, &inode);

    if (r == 0) {
        *out = !(inode.mode & S_ISGID) || vj_caller_is_member(who, &inode);
    }
    return r;
}

int vj_fs_setxattr(VjFs *fs, const VjCaller *who, uint64_t ino, const char *name,
                   const void *src, size_t len, int flags)
{
    XattrOp op = {
        .ino = ino,
        .name = name,
        .src = src,
        .len = len,
        .flags = flags,
        .now = vj_clock_real(),
        .fs = fs,
    };
    int r = xattr_name_check(name);

    if (r < 0) {
        return r;
    }
    if (len > VJ_XATTR_VALUE_MAX) {
        return -E2BIG;
    }
    if (vj_fs_is_setting(name)) {
        return is_status(name) ? -EPERM
                               : vj_setting_set(fs, who, ino, name + strlen(OWN_PREFIX),
                                                src, len, flags);
    }
    if (strcmp(name, VJ_ACL_ACCESS) == 0) {
        r = may_keep_set_gid(fs, who, ino, &op.keep_set_gid);
        if (r < 0) {
            return r;
        }
    }
    op.record = g_try_malloc(sizeof(VjXattrDisk) + len);
    if (op.record == NULL) {
        return -ENOMEM;
    }
    r = vj_fs_run(fs, VJ_RUN_DEFAULT, xattr_body, &op);
    vj_fs_record_changed(fs, ino);
    g_free(op.record);
    return vj_fs_acknowledge(fs, r, op.safety);
}

static int txn_change(VjTxn *txn, VjFsAfter *a, XattrOp *op)
{
    int r;

    g_assert(g_str_has_prefix(op->name, USER_PREFIX) && !vj_fs_is_setting(op->name));
    g_assert(op->len <= VJ_XATTR_VALUE_MAX);
    if (a->record == NULL) {
        a->record = g_try_malloc(sizeof(VjXattrDisk) + VJ_XATTR_VALUE_MAX);
    }
    if (a->record == NULL) {
        return -ENOMEM;
    }
    op->record = a->record;
    op->now = a->now;
    op->fs = a->fs;
    r = xattr_name_check(op->name);
    r = r == 0 ? xattr_body(txn, op) : r;
    if (r == 0) {
        vj_fs_after_changed(a, op->ino, op->safety);
    }
    return r;
}

int vj_fs_txn_set_user_xattr(VjTxn *txn, VjFsAfter *a, uint64_t ino, const char *name,
                             VjSlice value, int flags)
{
    XattrOp op = {
        .ino = ino, .name = name, .src = value.data, .len = value.len, .flags = flags};

    return txn_change(txn, a, &op);
}

int vj_fs_txn_remove_user_xattr(VjTxn *txn, VjFsAfter *a, uint64_t ino, const char *name)
{
    XattrOp op = {.ino = ino, .name = name, .remove = true};

    return txn_change(txn, a, &op);
}

int vj_fs_removexattr(VjFs *fs, uint64_t ino, const char *name)
{
    XattrOp op = {
        .fs = fs, .ino = ino, .name = name, .remove = true, .now = vj_clock_real()};
    int r = xattr_name_check(name);

    if (r < 0) {
        return r;
    }
    if (vj_fs_is_setting(name)) {
        const VjSetting *s = vj_setting_find(name + strlen(OWN_PREFIX));

        if (is_status(name)) {
            return -EPERM;
        }
        return s == NULL ? -ENODATA : vj_setting_remove(fs, ino, s);
    }
    r = vj_fs_run(fs, VJ_RUN_RELEASE, xattr_body, &op);
    vj_fs_record_changed(fs, ino);
    /* A list that is not there says what the mode says: removing it is no error. */
    return r == -ENODATA && vj_acl_is_name(name) ? 0
                                                 : vj_fs_acknowledge(fs, r, op.safety);
}
