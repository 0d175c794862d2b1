/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * op-object.c - operations on objects
 */
#include "client-private.h"

#include <stdlib.h>

/* The name of an object is one of a file; then as vjc_batch_add. */
static int add(varjfs_batch *b, uint8_t kind, const char *space, const char *name,
               int *result, VjcOperation **out)
{
    size_t len = name == NULL ? 0 : strnlen(name, VARJFS_NAME_MAX + 1);

    if (b->is_submitted) {
        return -EBUSY;
    }
    if (len == 0 || !vjc_is_name(name, len)) {
        return -EINVAL;
    }
    return vjc_batch_add(b, kind, space, name, len, result, out);
}

/* ---- settings ---------------------------------------------------------------------- */

typedef struct Setting {
    const char *name, *value;
} Setting;

/* A word of one line; an empty one and control characters have no meaning. */
static bool is_value(const char *value)
{
    for (const char *at = value; *at != '\0'; at++) {
        if ((unsigned char)*at <= ' ' || *at == '\177') {
            return false;
        }
    }
    return *value != '\0';
}

/* "name=value\n" for each that is given, owned; NULL and 0: none is. */
static int make_settings(const struct varjfs_object_options *options, uint8_t **out,
                         size_t *len)
{
    Setting settings[] = {{"transform", options->transform},
                          {"mode", options->mode},
                          {"objects", options->objects}};
    uint8_t text[VARJFS_WIRE_SETTINGS_MAX];
    VjcWriter w = vjc_writer(text, sizeof text);

    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const Setting *s = &settings[i];

        if (s->value == NULL) {
            continue;
        }
        if (!is_value(s->value)) {
            return -EINVAL;
        }
        vjc_put_bytes(&w, s->name, strlen(s->name));
        vjc_put_bytes(&w, "=", 1);
        vjc_put_bytes(&w, s->value, strlen(s->value));
        vjc_put_bytes(&w, "\n", 1);
    }
    *len = sizeof text - w.left;
    if (w.failed) {
        return -EINVAL;
    }
    if (*len == 0) {
        return 0;
    }
    *out = malloc(*len);
    if (*out == NULL) {
        return -ENOMEM;
    }
    memcpy(*out, text, *len);
    return 0;
}

static bool is_options(const struct varjfs_object_options *options)
{
    const uint8_t *bytes = (const uint8_t *)options;

    if (options->size < sizeof *options || options->size > VJC_STRUCT_MAX) {
        return false;
    }
    for (size_t i = sizeof *options; i < options->size; i++) {
        if (bytes[i] != 0) {
            return false; /* a setting of a later version */
        }
    }
    return true;
}

int varjfs_object_create(varjfs_batch *b, const char *space, const char *name,
                         const struct varjfs_object_options *options, int *result)
{
    VjcOperation *op;
    uint8_t *settings = NULL;
    size_t len = 0;
    int rc = add(b, VARJFS_WIRE_OBJECT_CREATE, space, name, result, &op);

    if (rc == 0 && options != NULL) {
        rc = is_options(options) ? make_settings(options, &settings, &len) : -EINVAL;
    }
    if (rc != 0) {
        return rc;
    }
    op->flags = VARJFS_WIRE_EXCLUSIVE;
    op->src = settings;
    op->len = len;
    vjc_batch_added(b);
    return 0;
}

/* ---- the others -------------------------------------------------------------------- */

int varjfs_object_delete(varjfs_batch *b, const char *space, const char *name,
                         int *result)
{
    VjcOperation *op;
    int rc = add(b, VARJFS_WIRE_OBJECT_DELETE, space, name, result, &op);

    if (rc == 0) {
        vjc_batch_added(b);
    }
    return rc;
}

int varjfs_object_status(varjfs_batch *b, const char *space, const char *name,
                         struct varjfs_object_status *out, int *result)
{
    VjcOperation *op;
    int rc = out == NULL || out->size < sizeof *out || out->size > VJC_STRUCT_MAX
                 ? -EINVAL
                 : add(b, VARJFS_WIRE_OBJECT_STATUS, space, name, result, &op);

    if (rc == 0) {
        op->status = out;
        op->status_size = out->size;
        op->len = VARJFS_WIRE_STATUS_MAX;
        vjc_batch_added(b);
    }
    return rc;
}

/* Beyond the largest offset of a file; or more than one operation of the wire, where it
 * has to be one. */
static bool is_too_large(const varjfs_batch *b, size_t len, uint64_t offset, size_t most)
{
    if (offset > INT64_MAX || len > INT64_MAX - offset) {
        return true;
    }
    return b->semantics.atomicity != VARJFS_ATOMICITY_NONE && len > most;
}

int varjfs_object_read(varjfs_batch *b, const char *space, const char *name, void *dst,
                       size_t len, uint64_t offset, size_t *got, int *result)
{
    VjcOperation *op;
    int rc = dst == NULL && len > 0
                 ? -EINVAL
                 : add(b, VARJFS_WIRE_OBJECT_READ, space, name, result, &op);

    if (rc == 0 && is_too_large(b, len, offset, VARJFS_WIRE_BATCH_RETURN_MAX)) {
        rc = -EFBIG;
    }
    if (rc == 0) {
        op->dst = dst;
        op->len = len;
        op->offset = offset;
        op->got = got;
        vjc_batch_added(b);
    }
    return rc;
}

static int add_write(varjfs_batch *b, uint8_t kind, const char *space, const char *name,
                     const void *src, size_t len, uint64_t offset, uint64_t old_len,
                     unsigned flags, int *result)
{
    bool is_append = (flags & VARJFS_APPEND) != 0;
    VjcOperation *op;
    int rc = (src == NULL && len > 0) || (is_append && (offset > 0 || old_len > 0))
                 ? -EINVAL
                 : add(b, kind, space, name, result, &op);

    if (rc == 0 && is_too_large(b, len, offset, VARJFS_WIRE_WRITE_MAX)) {
        rc = -EFBIG;
    }
    if (rc == 0) {
        op->flags = (uint8_t)flags; /* their numbers are those of the wire */
        op->src = src;
        op->len = len;
        op->offset = offset;
        /* SIZE_MAX and the like mean all that is there. */
        op->old_len = old_len < INT64_MAX - offset ? old_len : INT64_MAX - offset;
        vjc_batch_added(b);
    }
    return rc;
}

_Static_assert(VARJFS_EXCLUSIVE == VARJFS_WIRE_EXCLUSIVE &&
                   VARJFS_APPEND == VARJFS_WIRE_APPEND &&
                   VARJFS_CREATE == VARJFS_WIRE_MAKE,
               "flags of the header are those of the wire");

int varjfs_object_write(varjfs_batch *b, const char *space, const char *name,
                        const void *src, size_t len, uint64_t offset, unsigned flags,
                        int *result)
{
    if ((flags & ~(VARJFS_APPEND | VARJFS_CREATE)) != 0) {
        return -EINVAL;
    }
    return add_write(b, VARJFS_WIRE_OBJECT_WRITE, space, name, src, len, offset, 0, flags,
                     result);
}

int varjfs_object_rwrite(varjfs_batch *b, const char *space, const char *name,
                         const void *src, size_t len, uint64_t offset, uint64_t old_len,
                         unsigned flags, int *result)
{
    if ((flags & ~VARJFS_APPEND) != 0) {
        return -EINVAL;
    }
    return add_write(b, VARJFS_WIRE_OBJECT_RWRITE, space, name, src, len, offset, old_len,
                     flags, result);
}
