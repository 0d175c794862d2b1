/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * settings.c - the attributes user.varjfs.*, which are choices for what is written from
 * now on
 *
 * They live in the inode and are inherited when it is made.  get shows the effective
 * value; list shows what was set here and not what was inherited, so that cp -a keeps
 * choices and not their consequences; remove goes back to the volume's.
 */
#include <sys/stat.h>
#include <sys/xattr.h>

#include "fs/fs-private.h"

/* Longest value of a setting, bytes. */
#define VALUE_MAX 64

struct VjSetting {
    const char *name; /* behind the prefix */
    uint32_t flag;    /* VJ_INODE_*: set or inherited */
    /* False with one line that names what is allowed. */
    bool (*set)(const VjFs *fs, VjInode *inode, const char *value, GError **error);
    char *(*get)(const VjFs *fs, const VjInode *inode); /* owned */
    void (*reset)(VjInode *inode);
};

/* ---- each of them ------------------------------------------------------------------ */

static bool transform_set(const VjFs *fs, VjInode *inode, const char *value,
                          GError **error)
{
    (void)fs;
    return vj_file_transform_set(inode, value, error);
}

static char *transform_get(const VjFs *fs, const VjInode *inode)
{
    return vj_file_transform_text(fs->files, inode);
}

static void transform_reset(VjInode *inode)
{
    inode->transform = (VjTransform){.mode = inode->transform.mode};
}

static bool mode_set(const VjFs *fs, VjInode *inode, const char *value, GError **error)
{
    (void)fs;
    for (uint8_t m = VJ_MODE_CLIENT; m <= VJ_MODE_TRANSPORT; m++) {
        if (strcmp(value, vj_fs_mode_name(m)) == 0) {
            inode->transform.mode = m;
            return true;
        }
    }
    return vj_error_set(error, EINVAL, "\"%s\" is not one of client, server, transport",
                        value);
}

static char *mode_get(const VjFs *fs, const VjInode *inode)
{
    return g_strdup(vj_fs_mode_name(vj_file_transform(fs->files, inode).mode));
}

static void mode_reset(VjInode *inode)
{
    inode->transform.mode = VJ_MODE_CLIENT;
}

static bool objects_set(const VjFs *fs, VjInode *inode, const char *value, GError **error)
{
    return vj_file_sizes_set(fs->files, inode, value, error);
}

static char *objects_get(const VjFs *fs, const VjInode *inode)
{
    return vj_file_sizes_text(fs->files, inode);
}

static void objects_reset(VjInode *inode)
{
    inode->object_min = inode->object_avg = inode->object_max = 0;
}

const char *vj_fs_safety_name(VjSafety safety)
{
    static const char *const names[] = {"none", "network", "storage"};

    g_assert((unsigned)safety < G_N_ELEMENTS(names));
    return names[safety];
}

static bool safety_set(const VjFs *fs, VjInode *inode, const char *value, GError **error)
{
    (void)fs;
    for (VjSafety s = VJ_SAFETY_NONE; s <= VJ_SAFETY_STORAGE; s++) {
        if (strcmp(value, vj_fs_safety_name(s)) == 0) {
            inode->safety = s;
            return true;
        }
    }
    return vj_error_set(error, EINVAL, "\"%s\" is not one of none, network, storage",
                        value);
}

static char *safety_get(const VjFs *fs, const VjInode *inode)
{
    return g_strdup(vj_fs_safety_name(vj_fs_safety_of(fs, inode)));
}

static void safety_reset(VjInode *inode)
{
    inode->safety = VJ_SAFETY_NONE;
}

static const VjSetting settings[] = {
    {"transform", VJ_INODE_TRANSFORM, transform_set, transform_get, transform_reset},
    {"mode", VJ_INODE_MODE, mode_set, mode_get, mode_reset},
    {"objects", VJ_INODE_OBJECTS, objects_set, objects_get, objects_reset},
    {"safety", VJ_INODE_SAFETY, safety_set, safety_get, safety_reset},
};

/* ---- looking ----------------------------------------------------------------------- */

const VjSetting *vj_setting_find(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(settings); i++) {
        if (strcmp(name, settings[i].name) == 0) {
            return &settings[i];
        }
    }
    return NULL;
}

char *vj_setting_text(const VjSetting *s, const VjFs *fs, const VjInode *inode)
{
    return s->get(fs, inode);
}

static bool is_explicit(const VjInode *inode, const VjSetting *s)
{
    return (inode->flags & (s->flag | VJ_INODE_INHERITED(s->flag))) == s->flag;
}

void vj_settings_list(const VjInode *inode, const char *prefix, GString *names)
{
    for (size_t i = 0; i < G_N_ELEMENTS(settings); i++) {
        if (is_explicit(inode, &settings[i])) {
            g_string_append(names, prefix);
            g_string_append(names, settings[i].name);
            g_string_append_c(names, '\0');
        }
    }
}

/* ---- changing ---------------------------------------------------------------------- */

typedef struct SettingOp {
    const VjFs *fs;
    uint64_t ino;
    const VjSetting *setting;
    char text[VALUE_MAX + 1];
    bool remove;
    int flags; /* XATTR_* */
    struct timespec now;
    GError *why; /* out, owned: what is wrong with the text */
    VjSafety safety;
} SettingOp;

static int change(SettingOp *op, VjInode *inode)
{
    const VjSetting *s = op->setting;
    bool is_set = (inode->flags & s->flag) != 0;

    if ((!S_ISREG(inode->mode) && !S_ISDIR(inode->mode)) || vj_is_protected(inode)) {
        return -EPERM;
    }
    if (op->remove || (op->flags & XATTR_REPLACE)) {
        if (!is_set) {
            return -ENODATA;
        }
    } else if ((op->flags & XATTR_CREATE) && is_explicit(inode, s)) {
        return -EEXIST;
    }
    if (op->remove) {
        s->reset(inode);
        inode->flags &= ~(s->flag | VJ_INODE_INHERITED(s->flag));
        return 0;
    }
    inode->flags |= s->flag;
    inode->flags &= ~VJ_INODE_INHERITED(s->flag);
    return s->set(op->fs, inode, op->text, &op->why) ? 0 : -EINVAL;
}

int vj_setting_make(const VjFs *fs, VjInode *inode, const VjFsSetting *setting)
{
    const VjSetting *s = vj_setting_find(setting->name);
    g_autoptr(GError) why = NULL;

    if (s == NULL || strlen(setting->value) > VALUE_MAX ||
        !s->set(fs, inode, setting->value, &why)) {
        vj_log_warn("user.varjfs.%s was refused for a new file: %s", setting->name,
                    why != NULL ? why->message : "no such setting, or too long a value");
        return -EDOM;
    }
    inode->flags |= s->flag;
    inode->flags &= ~VJ_INODE_INHERITED(s->flag);
    return 0;
}

static int change_body(VjTxn *txn, void *opaque)
{
    SettingOp *op = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, op->ino, &inode);

    g_clear_error(&op->why);
    if (r == 0) {
        r = change(op, &inode);
    }
    if (r < 0) {
        return r;
    }
    inode.ctime = op->now;
    op->safety = vj_fs_safety_of(op->fs, &inode);
    return vj_inode_put(txn, &inode);
}

static int run(VjFs *fs, SettingOp *op)
{
    int r;

    op->fs = fs;
    op->now = vj_clock_real();
    r = vj_fs_run(fs, op->remove ? VJ_RUN_RELEASE : VJ_RUN_DEFAULT, change_body, op);
    if (r < 0) {
        return r;
    }
    vj_fs_record_changed(fs, op->ino);
    /* It is set, whatever comes: only an open VjFile does not have it yet. */
    r = vj_file_settings_changed(fs->files, op->ino);
    if (r < 0 && r != -ENOENT) {
        vj_log_warn("inode %" G_GUINT64_FORMAT
                    ": its new settings hold from its next open on: %s",
                    op->ino, g_strerror(-r));
    }
    return vj_fs_acknowledge(fs, 0, op->safety);
}

/* The program gets EINVAL alone; the reason stands in the log, for an administrator. */
static int refuse(const VjCaller *who, uint64_t ino, const char *name, const char *why)
{
    vj_log_warn("inode %" G_GUINT64_FORMAT ": user.varjfs.%s was refused to user %u: %s",
                ino, name, (unsigned)who->uid, why);
    return -EINVAL;
}

static int refuse_name(const VjCaller *who, uint64_t ino, const char *name)
{
    g_autoptr(GString) why = g_string_new("there is no such setting; there are");

    for (size_t i = 0; i < G_N_ELEMENTS(settings); i++) {
        g_string_append_printf(why, "%s %s", i > 0 ? "," : "", settings[i].name);
    }
    return refuse(who, ino, name, why->str);
}

/* What is kept with the file and does nothing in this volume. */
static void log_without_effect(const VjFs *fs, uint64_t ino, const VjSetting *s,
                               const char *text)
{
    if (s->flag == VJ_INODE_MODE && !vj_volume_has_modes(fs->volume) &&
        strcmp(text, vj_fs_mode_name(VJ_MODE_CLIENT)) != 0) {
        vj_log_warn("inode %" G_GUINT64_FORMAT ": user.varjfs.mode=%s is kept and has no "
                    "effect: the store is on this machine, where all modes are the same",
                    ino, text);
    }
}

int vj_setting_set(VjFs *fs, const VjCaller *who, uint64_t ino, const char *name,
                   const void *value, size_t len, int flags)
{
    SettingOp op = {.ino = ino, .setting = vj_setting_find(name), .flags = flags};
    int r;

    if (op.setting == NULL) {
        return refuse_name(who, ino, name);
    }
    if (len > VALUE_MAX || (len > 0 && memchr(value, '\0', len) != NULL)) {
        return refuse(who, ino, name,
                      len > VALUE_MAX
                          ? "the value is longer than " G_STRINGIFY(VALUE_MAX) " bytes"
                          : "the value has a byte of zero");
    }
    memcpy(op.text, value, len);
    r = run(fs, &op);
    if (op.why != NULL) {
        r = refuse(who, ino, name, op.why->message);
    } else if (r == 0) {
        log_without_effect(fs, ino, op.setting, op.text);
    }
    g_clear_error(&op.why);
    return r;
}

int vj_setting_remove(VjFs *fs, uint64_t ino, const VjSetting *s)
{
    SettingOp op = {.ino = ino, .setting = s, .remove = true};

    return run(fs, &op);
}
