/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * op-item.c - creation of objects, and operations on their attributes
 */
#include "client-private.h"

#include <stddef.h>
#include <stdlib.h>

int vjc_attribute_name(const char *name, size_t *len)
{
    static const char reserved[] = VARJFS_WIRE_RESERVED_PREFIX;

    *len = name == NULL ? 0 : strnlen(name, VARJFS_ATTRIBUTE_NAME_MAX + 1);
    if (*len == 0 || *len > VARJFS_ATTRIBUTE_NAME_MAX) {
        return -EINVAL;
    }
    return strncmp(name, reserved, sizeof reserved - 1) == 0 ? -EPERM : 0;
}

/* ---- what a creation brings -------------------------------------------------------- */

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

/* "name=value\n" for each that is given. */
static int put_settings(const struct varjfs_object_options *options, VjcWriter *w)
{
    Setting settings[] = {{"transform", options->transform},
                          {"mode", options->mode},
                          {"objects", options->objects}};

    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const Setting *s = &settings[i];

        if (s->value == NULL) {
            continue;
        }
        if (!is_value(s->value)) {
            return -EINVAL;
        }
        vjc_put_bytes(w, s->name, strlen(s->name));
        vjc_put_bytes(w, "=", 1);
        vjc_put_bytes(w, s->value, strlen(s->value));
        vjc_put_bytes(w, "\n", 1);
    }
    return w->failed ? -EINVAL : 0;
}

/* Content goes to the nodes that its number and their weights say, in all volumes. */
static int check_distribution(const char *value)
{
    if (value == NULL || strcmp(value, "content") == 0 ||
        strcmp(value, "weighted") == 0) {
        return 0;
    }
    return strcmp(value, "round-robin") == 0 ||
                   (strncmp(value, "single:", 7) == 0 && value[7] != '\0')
               ? -ENOTSUP
               : -EINVAL;
}

/* What the first version has. */
#define OPTIONS_BYTES_MIN offsetof(struct varjfs_object_options, distribution)

static int check_options(const struct varjfs_object_options *options)
{
    if (!vjc_is_structure(options, OPTIONS_BYTES_MIN, sizeof *options)) {
        return -EINVAL;
    }
    return options->size < sizeof *options ? 0
                                           : check_distribution(options->distribution);
}

static int check_value(const void *value, size_t len)
{
    return value == NULL && len > 0 ? -EINVAL : len > VARJFS_VALUE_MAX ? -EFBIG : 0;
}

/* Each may be given, and none comes twice.  *bytes: of all on the wire. */
static int check_attributes(const struct varjfs_attribute *attributes, size_t count,
                            size_t *bytes)
{
    size_t given = 0;

    if (count > VARJFS_CREATE_ATTRIBUTES_MAX || (attributes == NULL && count > 0)) {
        return count > VARJFS_CREATE_ATTRIBUTES_MAX ? -EFBIG : -EINVAL;
    }
    for (size_t i = 0; i < count; i++) {
        const struct varjfs_attribute *a = &attributes[i];
        size_t len;
        int rc = vjc_attribute_name(a->name, &len);

        rc = rc == 0 ? check_value(a->value, a->len) : rc;
        if (rc != 0) {
            return rc;
        }
        for (size_t j = 0; j < i; j++) {
            if (strcmp(attributes[j].name, a->name) == 0) {
                return -EINVAL;
            }
        }
        given += len + a->len;
    }
    *bytes = given + count * VARJFS_WIRE_ENTRY_HEAD_BYTES;
    return given > VARJFS_CREATE_BYTES_MAX ? -EFBIG : 0;
}

_Static_assert(VARJFS_CREATE_BYTES_MAX + VARJFS_WIRE_SETTINGS_MAX +
                       VARJFS_CREATE_ATTRIBUTES_MAX * VARJFS_WIRE_ENTRY_HEAD_BYTES <=
                   VARJFS_WIRE_CREATE_MAX,
               "what a creation may bring fits its operation");

static void put_attributes(const struct varjfs_attribute *attributes, size_t count,
                           VjcWriter *w)
{
    for (size_t i = 0; i < count; i++) {
        const struct varjfs_attribute *a = &attributes[i];
        size_t len = strlen(a->name);

        vjc_put_number(w, len, 2);
        vjc_put_number(w, a->len, 4);
        vjc_put_bytes(w, a->name, len);
        vjc_put_bytes(w, a->value, a->len);
    }
}

/* All that it brings, in memory that op->src owns. */
static int fill(VjcOperation *op, const uint8_t *settings, size_t settings_len,
                const struct varjfs_attribute *attributes, size_t count, size_t bytes)
{
    uint8_t *all;
    VjcWriter w;

    op->len = settings_len + bytes;
    op->old_len = settings_len;
    if (op->len == 0) {
        return 0;
    }
    all = malloc(op->len);
    if (all == NULL) {
        return -ENOMEM;
    }
    w = vjc_writer(all, op->len);
    vjc_put_bytes(&w, settings, settings_len);
    put_attributes(attributes, count, &w);
    op->src = all;
    return 0;
}

int varjfs_item_create(varjfs_batch *b, const char *collection, const char *item,
                       const struct varjfs_object_options *options,
                       const struct varjfs_attribute *attributes, size_t count,
                       int *result)
{
    uint8_t settings[VARJFS_WIRE_SETTINGS_MAX];
    VjcWriter w = vjc_writer(settings, sizeof settings);
    VjcOperation *op;
    size_t bytes;
    int rc =
        vjc_batch_add_object(b, VARJFS_WIRE_OBJECT_CREATE, collection, item, result, &op);

    if (rc == 0 && options != NULL) {
        rc = check_options(options);
        rc = rc == 0 ? put_settings(options, &w) : rc;
    }
    rc = rc == 0 ? check_attributes(attributes, count, &bytes) : rc;
    if (rc == 0) {
        op->flags = VARJFS_WIRE_EXCLUSIVE;
        rc = fill(op, settings, sizeof settings - w.left, attributes, count, bytes);
    }
    if (rc == 0) {
        vjc_batch_added(b);
    }
    return rc;
}

int varjfs_object_create(varjfs_batch *b, const char *space, const char *name,
                         const struct varjfs_object_options *options, int *result)
{
    return varjfs_item_create(b, space, name, options, NULL, 0, result);
}

/* ---- attributes -------------------------------------------------------------------- */

static int add(varjfs_batch *b, uint8_t kind, const char *collection, const char *item,
               const char *attribute, int *result, VjcOperation **out)
{
    size_t len;
    int rc = vjc_batch_add_object(b, kind, collection, item, result, out);

    rc = rc == 0 ? vjc_attribute_name(attribute, &len) : rc;
    if (rc == 0) {
        (*out)->second = attribute;
        (*out)->second_len = (uint16_t)len;
    }
    return rc;
}

int varjfs_attribute_put(varjfs_batch *b, const char *collection, const char *item,
                         const char *attribute, const void *value, size_t len,
                         unsigned flags, int *result)
{
    VjcOperation *op;
    int rc =
        (flags & ~VARJFS_EXCLUSIVE) != 0
            ? -EINVAL
            : add(b, VARJFS_WIRE_ATTRIBUTE_PUT, collection, item, attribute, result, &op);

    rc = rc == 0 ? check_value(value, len) : rc;
    if (rc == 0) {
        op->flags = (uint8_t)flags;
        op->src = value;
        op->len = len;
        vjc_batch_added(b);
    }
    return rc;
}

int varjfs_attribute_get(varjfs_batch *b, const char *collection, const char *item,
                         const char *attribute, void *dst, size_t cap, size_t *len,
                         int *result)
{
    VjcOperation *op;
    int rc = dst == NULL && cap > 0 ? -EINVAL
                                    : add(b, VARJFS_WIRE_ATTRIBUTE_GET, collection, item,
                                          attribute, result, &op);

    if (rc == 0) {
        op->dst = dst;
        op->len = cap < VARJFS_VALUE_MAX ? cap : VARJFS_VALUE_MAX;
        op->got = len;
        vjc_batch_added(b);
    }
    return rc;
}

int varjfs_attribute_delete(varjfs_batch *b, const char *collection, const char *item,
                            const char *attribute, int *result)
{
    VjcOperation *op;
    int rc =
        add(b, VARJFS_WIRE_ATTRIBUTE_DELETE, collection, item, attribute, result, &op);

    if (rc == 0) {
        vjc_batch_added(b);
    }
    return rc;
}
