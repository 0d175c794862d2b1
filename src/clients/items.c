/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * items.c - names of objects and their attributes in a transaction
 *
 * An attribute NAME is the extended attribute "user.NAME" of the object's file.  Those of
 * "user.varjfs." are settings of the file and no attributes here: they are given when an
 * object is made, and shown by its status.
 */
#include "clients/clients-private.h"

#include "fs/fs-format.h"
#include "fs/records.h"

#include <sys/xattr.h>

#define USER_PREFIX "user."

G_STATIC_ASSERT(VARJFS_WIRE_ATOMIC_WRITE_MAX == VJ_FILE_INLINE_MAX);
G_STATIC_ASSERT(sizeof USER_PREFIX - 1 + VARJFS_WIRE_ATTRIBUTE_NAME_MAX == VJ_NAME_MAX);
G_STATIC_ASSERT(VARJFS_WIRE_VALUE_MAX == VJ_XATTR_VALUE_MAX);

int vj_client_attribute_name(VjSlice name, char out[VJ_CLIENT_XATTR_NAME_MAX + 1])
{
    const size_t prefix = sizeof USER_PREFIX - 1;
    const size_t reserved = sizeof VARJFS_WIRE_RESERVED_PREFIX - 1;

    if (name.len == 0 || name.len > VARJFS_WIRE_ATTRIBUTE_NAME_MAX ||
        memchr(name.data, '\0', name.len) != NULL) {
        return -EINVAL;
    }
    if (name.len >= reserved &&
        memcmp(name.data, VARJFS_WIRE_RESERVED_PREFIX, reserved) == 0) {
        return VJ_CLIENT_RESERVED;
    }
    memcpy(out, USER_PREFIX, prefix);
    memcpy(out + prefix, name.data, name.len);
    out[prefix + name.len] = '\0';
    return 0;
}

/* ---- before it --------------------------------------------------------------------- */

/* "NAME=VALUE\n" is taken off @text.  False: it does not begin so. */
static bool next_setting(VjSlice *text, VjFsSetting *out)
{
    const char *at = text->data, *end = memchr(at, '\n', text->len), *equals;

    if (end == NULL || memchr(at, '\0', (size_t)(end - at)) != NULL) {
        return false;
    }
    equals = memchr(at, '=', (size_t)(end - at));
    if (equals == NULL) {
        return false;
    }
    out->name = g_strndup(at, (gsize)(equals - at));
    out->value = g_strndup(equals + 1, (gsize)(end - equals - 1));
    *text = vj_slice(end + 1, text->len - (size_t)(end + 1 - at));
    return true;
}

/* It is one that an object may have, and was not given before. */
static bool is_setting(const VjClientStep *step, const char *name)
{
    static const char *const names[] = {"transform", "mode", "objects"};
    bool is_known = false;

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        is_known = is_known || strcmp(name, names[i]) == 0;
    }
    for (size_t i = 0; i < step->setting_count; i++) {
        is_known = is_known && strcmp(name, step->settings[i].name) != 0;
    }
    return is_known;
}

static int take_settings(VjSlice text, VjClientStep *step)
{
    while (text.len > 0) {
        VjFsSetting s = {0};

        if (step->setting_count == VJ_CLIENT_SETTINGS_MAX || !next_setting(&text, &s)) {
            return -EDOM;
        }
        if (!is_setting(step, s.name)) {
            g_free(s.name);
            g_free(s.value);
            return -EDOM;
        }
        if (step->settings == NULL) {
            step->settings = g_new0(VjFsSetting, VJ_CLIENT_SETTINGS_MAX);
        }
        step->settings[step->setting_count++] = s;
    }
    return 0;
}

void vj_client_step_clear(VjClientStep *step)
{
    for (size_t i = 0; i < step->setting_count; i++) {
        g_free(step->settings[i].name);
        g_free(step->settings[i].value);
    }
    g_free(step->settings);
    *step = (VjClientStep){0};
}

static VjSlice attributes_of(const VjClientOp *op)
{
    return vj_slice((const uint8_t *)op->brings.data + op->old_len,
                    op->brings.len - (size_t)op->old_len);
}

/* Their names may be given, and are different ones. */
static int check_attributes(VjSlice bytes)
{
    VjSlice names[VARJFS_WIRE_CREATE_ATTRIBUTES_MAX], value;
    size_t count = 0;

    while (bytes.len > 0) {
        char name[VJ_CLIENT_XATTR_NAME_MAX + 1];
        bool is_one = vj_client_attribute_decode(&bytes, &names[count], &value);
        int rc = vj_client_attribute_name(names[count], name);

        g_assert(is_one); /* all of them were decoded once */
        if (rc < 0) {
            return rc;
        }
        for (size_t i = 0; i < count; i++) {
            if (vj_slice_compare(names[i], names[count]) == 0) {
                return -EINVAL;
            }
        }
        count++;
    }
    return 0;
}

int vj_client_item_prepare(VjClientRun *run, const VjClientOp *op, VjClientStep *step)
{
    char name[VJ_CLIENT_XATTR_NAME_MAX + 1];
    int rc = 0;

    if (op->kind == VARJFS_WIRE_OBJECT_CREATE) {
        step->is_creation = true;
        if (op->brings.len > 0) {
            rc = take_settings(vj_slice(op->brings.data, (size_t)op->old_len), step);
            rc = rc == 0 ? check_attributes(attributes_of(op)) : rc;
        }
        return rc == 0 ? vj_fs_ino_new(run->clients->fs, &step->ino) : rc;
    }
    return op->kind == VARJFS_WIRE_OBJECT_DELETE || op->kind == VARJFS_WIRE_OBJECT_WRITE
               ? 0
               : vj_client_attribute_name(op->second, name);
}

/* ---- in the transaction ------------------------------------------------------------ */

static int create(VjTxn *txn, VjClientTxn *t, const VjClientStep *step,
                  const VjClientOp *op, const char *name)
{
    VjFsMaking making = {.who = &t->run->clients->who,
                         .parent = step->dir,
                         .name = name,
                         .mode = VJ_CLIENT_OBJECT_MODE,
                         .ino = step->ino,
                         .settings = step->settings,
                         .setting_count = step->setting_count};
    VjSlice left = op->brings.len > 0 ? attributes_of(op) : op->brings, given, value;
    int rc = vj_fs_txn_make(txn, t->after, &making);

    while (rc == 0 && left.len > 0) {
        char attribute[VJ_CLIENT_XATTR_NAME_MAX + 1];
        bool is_one = vj_client_attribute_decode(&left, &given, &value);

        rc = vj_client_attribute_name(given, attribute);
        g_assert(is_one && rc == 0);
        rc = vj_fs_txn_set_user_xattr(txn, t->after, step->ino, attribute, value, 0);
    }
    return rc == -EEXIST && (op->flags & VARJFS_WIRE_EXCLUSIVE) == 0 ? 0 : rc;
}

static int attribute_get(VjTxn *txn, VjClientTxn *t, uint64_t ino, const char *attribute,
                         const VjClientOp *op, VjClientResult *result)
{
    VjFsKey key;
    int rc;

    vj_fs_key_name(&key, ino, attribute, strlen(attribute));
    rc = vj_client_value_get(txn, t, &key, op->most, result);
    return rc == -ENOENT ? -ENODATA : rc;
}

static int attribute(VjTxn *txn, VjClientTxn *t, uint64_t ino, const VjClientOp *op,
                     VjClientResult *result)
{
    char name[VJ_CLIENT_XATTR_NAME_MAX + 1];
    int rc = vj_client_attribute_name(op->second, name);

    g_assert(rc == 0); /* as when it was prepared */
    switch (op->kind) {
    case VARJFS_WIRE_ATTRIBUTE_PUT:
        return vj_fs_txn_set_user_xattr(
            txn, t->after, ino, name, op->brings,
            (op->flags & VARJFS_WIRE_EXCLUSIVE) != 0 ? XATTR_CREATE : 0);
    case VARJFS_WIRE_ATTRIBUTE_GET:
        return attribute_get(txn, t, ino, name, op, result);
    default:
        return vj_fs_txn_remove_user_xattr(txn, t->after, ino, name);
    }
}

/* The object was made by an operation before: else a write would not be atomic. */
static bool is_new(const VjClientTxn *t, uint64_t ino)
{
    for (uint32_t i = 0; i < t->done; i++) {
        if (t->steps[i].is_creation && t->steps[i].ino == ino) {
            return true;
        }
    }
    return false;
}

static int first_write(VjTxn *txn, const VjClientTxn *t, uint64_t ino,
                       const VjClientOp *op)
{
    VjFileTable *files = vj_volume_files(t->run->clients->volume);
    int rc = is_new(t, ino)
                 ? vj_file_fill(txn, files, ino, op->brings.data, op->brings.len)
                 : -EOPNOTSUPP;

    return rc == -EBUSY ? -EOPNOTSUPP : rc;
}

int vj_client_item(VjTxn *txn, VjClientTxn *t, VjClientStep *step, const VjClientOp *op,
                   VjClientResult *result)
{
    char name[VARJFS_WIRE_NAME_MAX + 1];
    VjDentry d;
    int rc = vj_client_name(op->name, name);

    if (rc < 0 || step->dir == 0) {
        return rc < 0 ? rc : -ENOENT;
    }
    if (op->kind == VARJFS_WIRE_OBJECT_CREATE) {
        return create(txn, t, step, op, name);
    }
    rc = vj_name_get(txn, step->dir, name, &d);
    if (rc < 0) {
        return rc;
    }
    if (d.type != DT_REG) {
        return -EISDIR; /* a program of a mount has made something else of it */
    }
    if (op->kind == VARJFS_WIRE_OBJECT_WRITE) {
        return first_write(txn, t, d.ino, op);
    }
    return op->kind == VARJFS_WIRE_OBJECT_DELETE
               ? vj_fs_txn_remove(txn, t->after, step->dir, name, false, &step->ino)
               : attribute(txn, t, d.ino, op, result);
}
