/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * op-object.c - operations on objects
 */
#include "client-private.h"

int vjc_batch_add_object(varjfs_batch *b, uint8_t kind, const char *space,
                         const char *name, int *result, VjcOperation **out)
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

int varjfs_object_delete(varjfs_batch *b, const char *space, const char *name,
                         int *result)
{
    VjcOperation *op;
    int rc = vjc_batch_add_object(b, VARJFS_WIRE_OBJECT_DELETE, space, name, result, &op);

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
                 : vjc_batch_add_object(b, VARJFS_WIRE_OBJECT_STATUS, space, name, result,
                                        &op);

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
    int rc = dst == NULL && len > 0 ? -EINVAL
                                    : vjc_batch_add_object(b, VARJFS_WIRE_OBJECT_READ,
                                                           space, name, result, &op);

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
                 : vjc_batch_add_object(b, kind, space, name, result, &op);

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
_Static_assert(VARJFS_ATOMIC_WRITE_MAX == VARJFS_WIRE_ATOMIC_WRITE_MAX,
               "and so is what an atomic batch writes");

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

int varjfs_object_resize(varjfs_batch *b, const char *space, const char *name,
                         uint64_t bytes, int *result)
{
    VjcOperation *op;
    int rc = vjc_batch_add_object(b, VARJFS_WIRE_OBJECT_RESIZE, space, name, result, &op);

    if (rc == 0 && bytes > INT64_MAX) {
        rc = -EFBIG;
    }
    if (rc == 0) {
        op->offset = bytes;
        vjc_batch_added(b);
    }
    return rc;
}

int varjfs_object_rename(varjfs_batch *b, const char *space, const char *name,
                         const char *new_name, unsigned flags, int *result)
{
    size_t len = new_name == NULL ? 0 : strnlen(new_name, VARJFS_NAME_MAX + 1);
    VjcOperation *op;
    int rc = (flags & ~VARJFS_EXCLUSIVE) != 0 || len > VARJFS_NAME_MAX ||
                     !vjc_is_name(new_name, len)
                 ? -EINVAL
                 : vjc_batch_add_object(b, VARJFS_WIRE_OBJECT_RENAME, space, name, result,
                                        &op);

    if (rc == 0) {
        op->flags = (uint8_t)flags;
        op->second = new_name;
        op->second_len = (uint16_t)len;
        vjc_batch_added(b);
    }
    return rc;
}
