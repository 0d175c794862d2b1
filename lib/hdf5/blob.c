/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * blob.c - variable-length data and references, and the conversions that make them
 *
 * HDF5 stores each sequence by the connector's blob_put and keeps the id that it got in
 * the element.  A blob's id says where its bytes are:
 *
 *     u64 segment, u32 offset, u32 length        0 0 0: none
 *
 * Segments of a dataset are objects, ID.v.SEGMENT, which are written once and never
 * changed; their numbers are random, so that several processes can add some.  Segment 1
 * is beside the fill value in the dataset's header, and segment 2 beside the data of an
 * attribute, so that one value has all of an attribute.
 *
 * A segment that nothing refers to any more goes when all elements of a dataset have been
 * written (vjh_blobs_list, vjh_blobs_trim).  Another process may have written one whose
 * elements are still to come: so a key VJH_KEY_SEGMENT is there before the segment, and
 * until the call that writes it has written its elements (vjh_blobs_end), or has failed.
 * Of one that was killed, or of which it is not known what was done, the key stays, and
 * the segment goes with its dataset.
 *
 * A write that keeps members reads elements and writes again what they refer to, so
 * nothing may be removed in between.  It puts a key VJH_KEY_KEEPING, and then deletes all
 * keys VJH_KEY_REMOVING.  Who removes puts one of these, then looks for the other kind,
 * writes the elements, and removes only if its key is still there.
 *
 * HDF5 says only the file in these calls: whose blobs they are is kept in @under_way
 * while a conversion runs.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset.h"

#define ID_BYTES 16u
#define SEGMENT_FILL 1u
#define SEGMENT_BESIDE 2u
#define SEGMENT_FIRST 16u
/* Bytes of a segment, unless one blob is longer, and of what is read of one at once. */
#define SEGMENT_BYTES (32u << 20)
#define AHEAD_BYTES (1u << 20)
#define BLOB_BYTES_MAX (1u << 30)
#define DEPTH_MAX 64
/* Operations of one request that removes segments or their keys. */
#define AT_ONCE 512u

struct numbers {
    uint64_t *all;
    size_t count, capacity;
};

struct vjh_blobs {
    uint64_t out_segment; /* 0: a new one is begun by the next blob */
    struct vjh_buffer out;
    size_t out_capacity;
    struct numbers written;     /* segments, by the call under way */
    struct numbers old;         /* segments that it replaces, if it writes all elements */
    uint64_t keeping, removing; /* numbers of the keys of the call under way, or 0 */
    uint64_t missing;           /* the last segment that was not there when it was read */

    uint64_t in_segment; /* what is in @in: bytes of it from @in_offset on */
    uint64_t in_offset;
    struct vjh_buffer in;

    struct vjh_buffer fill;
    struct vjh_slice beside;
};

static struct vjh_object *under_way;

struct vjh_object *vjh_blobs_enter(struct vjh_object *owner)
{
    struct vjh_object *before = under_way;

    under_way = owner;
    return before;
}

void vjh_blobs_leave(struct vjh_object *before)
{
    under_way = before;
}

static struct vjh_blobs *blobs_of(struct vjh_object *owner)
{
    if (owner->blobs == NULL) {
        owner->blobs = calloc(1, sizeof *owner->blobs);
    }
    return owner->blobs;
}

void vjh_blobs_free(struct vjh_blobs *b)
{
    if (b == NULL) {
        return;
    }
    vjh_buffer_free(&b->out);
    vjh_buffer_free(&b->in);
    vjh_buffer_free(&b->fill);
    free(b->written.all);
    free(b->old.all);
    free(b);
}

void vjh_blobs_begin(struct vjh_object *owner)
{
    if (owner->blobs != NULL) {
        owner->blobs->written.count = owner->blobs->old.count = 0;
        owner->blobs->missing = owner->blobs->keeping = owner->blobs->removing = 0;
    }
}

uint64_t vjh_blobs_missing(const struct vjh_object *owner)
{
    return owner->blobs == NULL ? 0 : owner->blobs->missing;
}

static int segment_name(const struct vjh_object *owner, uint64_t segment, char *out)
{
    int len = snprintf(out, VJH_OBJECT_NAME_BYTES, "%s.v.%016" PRIx64, owner->data_name,
                       segment);

    return len > 0 && (size_t)len < VJH_OBJECT_NAME_BYTES
               ? 0
               : vjh_error(-ENAMETOOLONG, "the name of an object is too long");
}

/* ---- ids --------------------------------------------------------------------------- */

struct id {
    uint64_t segment;
    uint32_t offset, length;
};

static void put_number(uint8_t *at, uint64_t number, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(number >> 8 * i);
    }
}

static uint64_t get_number(const uint8_t *at, unsigned bytes)
{
    uint64_t number = 0;

    for (unsigned i = 0; i < bytes; i++) {
        number |= (uint64_t)at[i] << 8 * i;
    }
    return number;
}

static void id_put(uint8_t *at, const struct id *id)
{
    put_number(at, id->segment, 8);
    put_number(at + 8, id->offset, 4);
    put_number(at + 12, id->length, 4);
}

static struct id id_get(const uint8_t *at)
{
    return (struct id){.segment = get_number(at, 8),
                       .offset = (uint32_t)get_number(at + 8, 4),
                       .length = (uint32_t)get_number(at + 12, 4)};
}

/* ---- writing ----------------------------------------------------------------------- */

static int reserve(struct vjh_blobs *b, size_t size)
{
    size_t capacity = b->out_capacity < 4096 ? 4096 : b->out_capacity;
    void *more;

    while (capacity - b->out.len < size) {
        capacity *= 2; /* below 4 GiB: see blob_put */
    }
    if (capacity == b->out_capacity) {
        return 0;
    }
    more = realloc(b->out.data, capacity);
    if (more == NULL) {
        return -ENOMEM;
    }
    b->out.data = more;
    b->out_capacity = capacity;
    return 0;
}

static int remember(struct numbers *n, uint64_t number)
{
    if (n->count == n->capacity) {
        size_t capacity = n->capacity * 2 + 16;
        uint64_t *more = realloc(n->all, capacity * sizeof *more);

        if (more == NULL) {
            return -ENOMEM;
        }
        n->all = more;
        n->capacity = capacity;
    }
    n->all[n->count++] = number;
    return 0;
}

int vjh_blobs_flush(struct vjh_object *owner)
{
    struct vjh_blobs *b = owner->blobs;
    struct vjh_container *c;
    char name[VJH_OBJECT_NAME_BYTES];
    varjfs_batch *batch;
    struct vjh_key key;
    int rc, ignored;

    if (b == NULL || b->out_segment < SEGMENT_FIRST || b->out.len == 0) {
        return 0;
    }
    c = owner->file->container;
    rc = segment_name(owner, b->out_segment, name);
    if (rc == 0) {
        rc = remember(&b->written, b->out_segment);
    }
    if (rc == 0) {
        rc = vjh_batch_in_order(c->connection, &batch);
    }
    if (rc != 0) {
        return rc;
    }
    vjh_key_number(&key, owner->node->id, VJH_KEY_SEGMENT, b->out_segment);
    rc = varjfs_kv_put(batch, c->space, key.bytes, key.len, "", 0, 0, NULL);
    /* Only datasets have segments. */
    if (rc == 0) {
        rc = vjh_add_create((struct vjh_dataset *)owner, batch, name);
    }
    if (rc == 0) {
        rc = varjfs_object_write(batch, c->space, name, b->out.data, b->out.len, 0,
                                 vjh_create_flag((struct vjh_dataset *)owner), &ignored);
    }
    if (rc == 0) {
        rc = varjfs_batch_execute(batch);
    }
    varjfs_batch_free(batch);
    b->out_segment = 0;
    b->out.len = 0;
    return rc == 0 ? 0 : vjh_error(rc, "variable-length data: %s", varjfs_strerror(rc));
}

static int put(struct vjh_object *owner, const void *buf, size_t size, struct id *id)
{
    struct vjh_blobs *b = blobs_of(owner);
    int rc = 0;

    if (b == NULL) {
        return -ENOMEM;
    }
    if (size > BLOB_BYTES_MAX) {
        return vjh_error(-EFBIG, "a sequence of %zu bytes is longer than %u", size,
                         BLOB_BYTES_MAX);
    }
    if (b->out_segment >= SEGMENT_FIRST && b->out.len > 0 &&
        b->out.len + size > SEGMENT_BYTES) {
        rc = vjh_blobs_flush(owner);
    } else if (b->out.len + size > 2 * (size_t)BLOB_BYTES_MAX) {
        rc = vjh_error(-EFBIG, "variable-length data are too long for one value");
    }
    if (rc == 0) {
        rc = reserve(b, size);
    }
    if (rc != 0) {
        return rc;
    }
    if (b->out_segment == 0) {
        b->out_segment = vjh_random() | SEGMENT_FIRST;
    }
    *id = (struct id){.segment = b->out_segment,
                      .offset = (uint32_t)b->out.len,
                      .length = (uint32_t)size};
    if (size > 0) {
        memcpy((uint8_t *)b->out.data + b->out.len, buf, size);
    }
    b->out.len += size;
    return 0;
}

static herr_t blob_put(void *obj, const void *buf, size_t size, void *blob_id, void *ctx)
{
    struct id id = {0};
    int rc;

    (void)obj;
    (void)ctx;
    if (under_way == NULL) {
        VJH_RETURN(vjh_error(-ENOTSUP, "no dataset or attribute has these data"));
    }
    rc = put(under_way, buf, size, &id);
    if (rc == 0) {
        id_put(blob_id, &id);
    }
    VJH_RETURN(rc);
}

/* ---- reading ----------------------------------------------------------------------- */

/* One that is as long as it says; -ENOENT, -EIO without a text. */
static int check_length(struct vjh_container *c, const char *name, const struct id *id)
{
    struct varjfs_object_status status = {.size = sizeof status};
    varjfs_batch *batch;
    int rc = vjh_batch(c->connection, false, &batch);

    if (rc != 0) {
        return rc;
    }
    rc = varjfs_object_status(batch, c->space, name, &status, NULL);
    if (rc == 0) {
        rc = varjfs_batch_execute(batch);
    }
    varjfs_batch_free(batch);
    return rc == 0 && status.bytes < (uint64_t)id->offset + id->length ? -EIO : rc;
}

static int read_segment(struct vjh_object *owner, const struct id *id)
{
    struct vjh_blobs *b = owner->blobs;
    struct vjh_container *c = owner->file->container;
    size_t want = id->length > AHEAD_BYTES ? id->length : AHEAD_BYTES, got = 0;
    char name[VJH_OBJECT_NAME_BYTES];
    varjfs_batch *batch;
    int rc, ignored;

    b->in_segment = 0;
    vjh_buffer_free(&b->in);
    rc = segment_name(owner, id->segment, name);
    if (rc != 0) {
        return rc;
    }
    if (id->length > AHEAD_BYTES) {
        rc = check_length(c, name, id);
    }
    if (rc == 0) {
        b->in.data = malloc(want);
        rc = b->in.data == NULL ? -ENOMEM : vjh_batch(c->connection, false, &batch);
    }
    if (rc == 0) {
        rc = varjfs_object_read(batch, c->space, name, b->in.data, want, id->offset, &got,
                                &ignored);
        if (rc == 0) {
            rc = varjfs_batch_execute(batch);
        }
        varjfs_batch_free(batch);
    }
    if (rc != 0) {
        b->missing = rc == -ENOENT ? id->segment : 0;
        return vjh_error(rc == -ENOENT ? -EIO : rc, "variable-length data %s: %s", name,
                         varjfs_strerror(rc));
    }
    b->in.len = got;
    b->in_segment = id->segment;
    b->in_offset = id->offset;
    return 0;
}

static bool find(const struct vjh_blobs *b, const struct id *id, struct vjh_slice *from,
                 uint64_t *begin)
{
    *begin = 0;
    if (id->segment == SEGMENT_FILL) {
        *from = (struct vjh_slice){b->fill.data, b->fill.len};
    } else if (id->segment == b->out_segment) {
        *from = (struct vjh_slice){b->out.data, b->out.len};
    } else if (id->segment == SEGMENT_BESIDE) {
        *from = b->beside;
    } else {
        *from = (struct vjh_slice){b->in.data, b->in.len};
        *begin = b->in_offset;
        return id->segment == b->in_segment;
    }
    return true;
}

static bool is_inside(const struct id *id, uint64_t begin, size_t len)
{
    return id->offset >= begin && id->offset - begin <= len &&
           id->length <= len - (size_t)(id->offset - begin);
}

static int get(struct vjh_object *owner, const struct id *id, void *buf, size_t size)
{
    struct vjh_blobs *b = blobs_of(owner);
    struct vjh_slice from;
    uint64_t begin;
    int rc;

    if (b == NULL) {
        return -ENOMEM;
    }
    if (size > id->length || id->length > BLOB_BYTES_MAX) {
        return vjh_error(-EIO, "a sequence has %u bytes where %zu are asked for",
                         id->length, size);
    }
    if (size == 0) {
        return 0;
    }
    if ((!find(b, id, &from, &begin) || !is_inside(id, begin, from.len)) &&
        id->segment >= SEGMENT_FIRST) {
        rc = read_segment(owner, id);
        if (rc != 0) {
            return rc;
        }
    }
    if (!find(b, id, &from, &begin) || !is_inside(id, begin, from.len)) {
        return vjh_error(-EIO, "variable-length data end before their element");
    }
    memcpy(buf, (const uint8_t *)from.data + (id->offset - begin), size);
    return 0;
}

static herr_t blob_get(void *obj, const void *blob_id, void *buf, size_t size, void *ctx)
{
    struct id id = id_get(blob_id);

    (void)obj;
    (void)ctx;
    if (under_way == NULL) {
        VJH_RETURN(vjh_error(-ENOTSUP, "no dataset or attribute has these data"));
    }
    VJH_RETURN(get(under_way, &id, buf, size));
}

static herr_t blob_specific(void *obj, void *blob_id, H5VL_blob_specific_args_t *args)
{
    static const uint8_t none[ID_BYTES];

    (void)obj;
    switch (args->op_type) {
    case H5VL_BLOB_DELETE: /* it goes with its segment */
        return 0;
    case H5VL_BLOB_ISNULL:
        *args->args.is_null.isnull = memcmp(blob_id, none, sizeof none) == 0;
        return 0;
    case H5VL_BLOB_SETNULL:
        memset(blob_id, 0, ID_BYTES);
        return 0;
    }
    VJH_RETURN(vjh_error(-ENOTSUP, "this operation on a blob is not known"));
}

const H5VL_blob_class_t vjh_blob_class = {
    .put = blob_put,
    .get = blob_get,
    .specific = blob_specific,
};

/* ---- removal ----------------------------------------------------------------------- */

static int list_step(void *opaque, const void *name, size_t skip)
{
    char *end;
    uint64_t segment = strtoull((const char *)name + skip, &end, 16);

    return *end == '\0' && segment >= SEGMENT_FIRST ? remember(opaque, segment) : 0;
}

/* Of a key. */
static uint64_t number_of(struct vjh_slice rest)
{
    uint64_t number = 0;

    for (size_t i = 0; i < rest.len; i++) {
        number = number << 8 | ((const uint8_t *)rest.data)[i];
    }
    return number;
}

static int forget_step(void *opaque, struct vjh_slice rest, struct vjh_slice value)
{
    struct numbers *old = opaque;
    uint64_t segment = number_of(rest);

    (void)value;
    for (size_t i = 0; i < old->count; i++) {
        if (old->all[i] == segment) {
            old->all[i] = old->all[--old->count];
            break;
        }
    }
    return 0;
}

static int put_key(struct vjh_object *owner, char kind, uint64_t *number)
{
    struct vjh_key key;

    *number = vjh_random() | 1;
    vjh_key_number(&key, owner->node->id, kind, *number);
    return vjh_put(owner->file->container, &key, "", 0, 0);
}

/* -ENOENT without a text. */
static int delete_key(struct vjh_object *owner, char kind, uint64_t number)
{
    struct vjh_key key;

    vjh_key_number(&key, owner->node->id, kind, number);
    return vjh_delete(owner->file->container, &key);
}

static int number_step(void *opaque, struct vjh_slice rest, struct vjh_slice value)
{
    (void)value;
    return remember(opaque, number_of(rest));
}

static int found_step(void *opaque, struct vjh_slice rest, struct vjh_slice value)
{
    (void)opaque;
    (void)rest;
    (void)value;
    return 1;
}

int vjh_blobs_keep(struct vjh_object *owner)
{
    struct vjh_container *c = owner->file->container;
    struct vjh_blobs *b = blobs_of(owner);
    struct numbers removing = {0};
    int rc = b == NULL ? -ENOMEM : put_key(owner, VJH_KEY_KEEPING, &b->keeping);

    if (rc == 0) {
        rc = vjh_each(c, owner->node->id, VJH_KEY_REMOVING, number_step, &removing);
    }
    for (size_t i = 0; i < removing.count && rc == 0; i++) {
        rc = delete_key(owner, VJH_KEY_REMOVING, removing.all[i]);
        rc = rc == -ENOENT ? 0 : rc;
    }
    free(removing.all);
    return rc;
}

int vjh_blobs_list(struct vjh_object *owner)
{
    struct vjh_container *c = owner->file->container;
    struct varjfs_entry entry = {.size = sizeof entry};
    struct vjh_blobs *b = blobs_of(owner);
    char prefix[VJH_OBJECT_NAME_BYTES];
    varjfs_iterator *all;
    varjfs *v;
    size_t skip;
    int rc = b == NULL ? -ENOMEM : vjh_varjfs(c->connection, &v);

    snprintf(prefix, sizeof prefix, "%s.v.", owner->data_name);
    skip = strlen(prefix);
    if (rc == 0) {
        rc = put_key(owner, VJH_KEY_REMOVING, &b->removing);
    }
    if (rc == 0) {
        rc = varjfs_object_iterate(v, c->space, prefix, &all);
    }
    if (rc != 0) {
        return rc;
    }
    while ((rc = varjfs_iterator_next(all, &entry)) > 0) {
        rc = list_step(&b->old, entry.name, skip);
        if (rc != 0) {
            break;
        }
    }
    varjfs_iterator_free(all);
    /* Not before: a segment that is listed has its key, or its elements. */
    if (rc == 0 && b->old.count > 0) {
        rc = vjh_each(c, owner->node->id, VJH_KEY_SEGMENT, forget_step, &b->old);
    }
    if (rc == 0 && b->old.count > 0) {
        rc = vjh_each(c, owner->node->id, VJH_KEY_KEEPING, found_step, NULL);
        b->old.count = rc == 0 ? b->old.count : 0;
        rc = rc > 0 ? 0 : rc;
    }
    return rc;
}

/* @count segments, or the keys of them. */
static int delete_some(struct vjh_object *owner, const uint64_t *segments, size_t count,
                       bool keys)
{
    struct vjh_container *c = owner->file->container;
    char(*names)[VJH_OBJECT_NAME_BYTES] = calloc(AT_ONCE, sizeof *names);
    int *results = calloc(AT_ONCE, sizeof *results);
    varjfs_batch *batch = NULL;
    struct vjh_key key;
    int rc = names == NULL || results == NULL ? -ENOMEM
                                              : vjh_batch(c->connection, false, &batch);

    for (size_t i = 0; i < count && rc == 0; i++) {
        if (keys) {
            vjh_key_number(&key, owner->node->id, VJH_KEY_SEGMENT, segments[i]);
            memcpy(names[i], key.bytes, key.len);
            rc = varjfs_kv_delete(batch, c->space, names[i], key.len, &results[i]);
        } else {
            rc = segment_name(owner, segments[i], names[i]);
            if (rc == 0) {
                rc = varjfs_object_delete(batch, c->space, names[i], &results[i]);
            }
        }
    }
    if (rc == 0) {
        rc = varjfs_batch_execute(batch);
        rc = rc == -ENOENT ? 0 : rc; /* the results say more */
    }
    varjfs_batch_free(batch);
    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = results[i] == -ENOENT ? 0 : results[i];
    }
    free(names);
    free(results);
    return rc == 0 ? 0
                   : vjh_error(rc, "variable-length data that are not used any more: %s",
                               varjfs_strerror(rc));
}

static int delete_all(struct vjh_object *owner, struct numbers *n, bool keys)
{
    int rc = 0;

    for (size_t at = 0; at < n->count && rc == 0; at += AT_ONCE) {
        size_t left = n->count - at;

        rc = delete_some(owner, n->all + at, left < AT_ONCE ? left : AT_ONCE, keys);
    }
    n->count = 0;
    return rc;
}

int vjh_blobs_trim(struct vjh_object *owner, bool is_replaced)
{
    struct vjh_blobs *b = owner->blobs;
    int rc;

    if (b == NULL || b->removing == 0) {
        return 0;
    }
    rc = delete_key(owner, VJH_KEY_REMOVING, b->removing);
    b->removing = 0;
    if (rc == -ENOENT) {
        return 0; /* somebody keeps members */
    }
    return rc == 0 && is_replaced ? delete_all(owner, &b->old, false) : rc;
}

int vjh_blobs_end(struct vjh_object *owner)
{
    struct vjh_blobs *b = owner->blobs;
    int rc = b == NULL ? 0 : delete_all(owner, &b->written, true);

    if (rc == 0 && b != NULL && b->keeping != 0) {
        rc = delete_key(owner, VJH_KEY_KEEPING, b->keeping);
        b->keeping = 0;
    }
    return rc == -ENOENT ? 0 : rc;
}

void vjh_blobs_failed(struct vjh_object *owner, int error)
{
    struct vjh_blobs *b = owner->blobs;

    if (b == NULL || vjh_is_lost(error)) {
        return;
    }
    if (b->out_segment >= SEGMENT_FIRST) { /* no element refers to it */
        b->out_segment = 0;
        b->out.len = 0;
    }
    if (b->removing != 0) {
        delete_key(owner, VJH_KEY_REMOVING, b->removing);
    }
    b->removing = 0;
    vjh_blobs_end(owner); /* what cannot be removed stays, as if it had been killed */
}

/* ---- types ------------------------------------------------------------------------- */

static int check_type(hid_t type_id, int depth);

static int check_base(hid_t type_id, int depth, uint64_t *size)
{
    hid_t base_id = H5Tget_super(type_id);
    int rc = base_id < 0 ? -EINVAL : check_type(base_id, depth + 1);

    *size = rc == 0 ? H5Tget_size(base_id) : 0;
    if (base_id >= 0) {
        H5Tclose(base_id);
    }
    return rc;
}

static int check_array(hid_t type_id, int depth)
{
    hsize_t dims[H5S_MAX_RANK];
    uint64_t elements, base, size;
    int rank = H5Tget_array_dims2(type_id, dims);
    int rc = rank < 0 ? -EINVAL : check_base(type_id, depth, &base);

    if (rc == 0) {
        rc = vjh_product(dims, rank, &elements);
    }
    if (rc == 0 &&
        (__builtin_mul_overflow(elements, base, &size) || size != H5Tget_size(type_id))) {
        rc = vjh_error(-EIO, "an array type has another size than its elements");
    }
    return rc;
}

static int check_members(hid_t type_id, int depth)
{
    uint64_t size = H5Tget_size(type_id);
    int members = H5Tget_nmembers(type_id), rc = members < 0 ? -EINVAL : 0;

    for (int i = 0; i < members && rc == 0; i++) {
        hid_t member_id = H5Tget_member_type(type_id, (unsigned)i);
        uint64_t offset = H5Tget_member_offset(type_id, (unsigned)i);
        uint64_t bytes = member_id < 0 ? 0 : H5Tget_size(member_id);

        if (bytes == 0 || offset > size || bytes > size - offset) {
            rc = vjh_error(-EIO, "a member of a compound type is outside of it");
        } else {
            rc = check_type(member_id, depth + 1);
        }
        if (member_id >= 0) {
            H5Tclose(member_id);
        }
    }
    return rc;
}

/*
 * What conversions rely on, as the type may have come from outside.
 *
 * References of the file format, H5R_OBJECT1 and H5R_DATASET_REGION1: HDF5 takes them for
 * those of the native connector without asking.
 */
static int check_type(hid_t type_id, int depth)
{
    uint64_t size;

    if (depth > DEPTH_MAX) {
        return vjh_error(-EINVAL, "the type is nested too deeply");
    }
    switch (H5Tget_class(type_id)) {
    case H5T_REFERENCE:
        return H5Tequal(type_id, H5T_STD_REF_OBJ) > 0 ||
                       H5Tequal(type_id, H5T_STD_REF_DSETREG) > 0
                   ? vjh_error(-ENOTSUP, "references of the kind hobj_ref_t and "
                                         "hdset_reg_ref_t need the native connector: "
                                         "H5T_STD_REF is the type to use")
                   : 0;
    case H5T_VLEN:
        return check_base(type_id, depth, &size);
    case H5T_ARRAY:
        return check_array(type_id, depth);
    case H5T_COMPOUND:
        return check_members(type_id, depth);
    case H5T_NO_CLASS:
        return vjh_error(-EINVAL, "this is not a type");
    default:
        return 0;
    }
}

int vjh_stored_type(struct vjh_file *file, hid_t type_id, hid_t *out)
{
    hid_t connector_id = H5I_INVALID_HID;
    size_t size;
    int rc = check_type(type_id, 0);

    *out = H5I_INVALID_HID;
    if (rc != 0) {
        return rc;
    }
    /* Not by its name: HDF5 finds only what the program has an identifier of, and that
     * may have been closed when the property list had it. */
    if (H5Pget_vol_id(file->fapl_id, &connector_id) >= 0) {
        *out = H5VLget_file_type(file, connector_id, type_id);
        H5VLclose(connector_id);
    }
    if (*out < 0) {
        return vjh_error(-EINVAL, "the type cannot be stored");
    }
    size = H5Tget_size(*out);
    if (size == 0 || size > VJH_ELEMENT_BYTES_MAX) {
        H5Tclose(*out);
        *out = H5I_INVALID_HID;
        return vjh_error(-EFBIG, "an element has no size, or too much of it");
    }
    return 0;
}

/* ---- conversions ------------------------------------------------------------------- */

static bool replaces_members(hid_t src_id, hid_t dst_id)
{
    int members = H5Tget_nmembers(dst_id);
    bool all = members > 0;

    for (int i = 0; i < members && all; i++) {
        char *name = H5Tget_member_name(dst_id, (unsigned)i);
        int at = -1;

        for (int j = H5Tget_nmembers(src_id) - 1; j >= 0 && name != NULL && at < 0; j--) {
            char *other = H5Tget_member_name(src_id, (unsigned)j);

            at = other != NULL && strcmp(other, name) == 0 ? j : -1;
            H5free_memory(other);
        }
        if (at < 0) {
            all = false;
        } else {
            hid_t from = H5Tget_member_type(src_id, (unsigned)at);
            hid_t to = H5Tget_member_type(dst_id, (unsigned)i);

            all = from >= 0 && to >= 0 && vjh_replaces(from, to);
            if (from >= 0) {
                H5Tclose(from);
            }
            if (to >= 0) {
                H5Tclose(to);
            }
        }
        H5free_memory(name);
    }
    return all;
}

bool vjh_replaces(hid_t src_id, hid_t dst_id)
{
    H5T_class_t class = H5Tget_class(dst_id);
    hid_t from, to;
    bool all;

    if (class == H5T_COMPOUND) {
        return H5Tget_class(src_id) == H5T_COMPOUND && replaces_members(src_id, dst_id);
    }
    if ((class != H5T_ARRAY && class != H5T_VLEN) || H5Tget_class(src_id) != class) {
        return true; /* a text of variable length is H5T_STRING */
    }
    from = H5Tget_super(src_id);
    to = H5Tget_super(dst_id);
    all = from >= 0 && to >= 0 && vjh_replaces(from, to);
    if (from >= 0) {
        H5Tclose(from);
    }
    if (to >= 0) {
        H5Tclose(to);
    }
    return all;
}

int vjh_conversion(hid_t src_id, hid_t dst_id, H5T_bkg_t *out)
{
    H5T_cdata_t *data = NULL;

    if (H5Tfind(src_id, dst_id, &data) == NULL) {
        return vjh_error(-EINVAL, "there is no conversion between these types");
    }
    *out = data->need_bkg;
    return 0;
}

int vjh_convert(struct vjh_object *owner, hid_t src_id, hid_t dst_id, size_t count,
                void *buffer, void *background, hid_t dxpl_id)
{
    struct vjh_object *before = vjh_blobs_enter(owner);
    herr_t done = H5Tconvert(src_id, dst_id, count, buffer, background, dxpl_id);

    vjh_blobs_leave(before);
    return done < 0 ? vjh_error(-EINVAL, "the elements cannot be converted") : 0;
}

/* Makes the next blobs go into one buffer, which is the caller's with vjh_blobs.out. */
static int begin_beside(struct vjh_object *owner, uint64_t segment)
{
    struct vjh_blobs *b = blobs_of(owner);

    if (b == NULL) {
        return -ENOMEM;
    }
    b->out.len = 0;
    b->out_segment = segment;
    return 0;
}

/* They come first, so that ids of them stay right. */
static int keep_beside(struct vjh_object *owner, struct vjh_slice blobs)
{
    struct vjh_blobs *b = owner->blobs;
    int rc;

    if (blobs.len == 0) {
        return 0;
    }
    if (blobs.len > BLOB_BYTES_MAX) {
        return vjh_error(-EFBIG, "variable-length data are too long for one value");
    }
    rc = reserve(b, blobs.len);
    if (rc == 0) {
        memcpy(b->out.data, blobs.data, blobs.len);
        b->out.len = blobs.len;
    }
    return rc;
}

int vjh_blobs_fill(struct vjh_object *owner, hid_t dcpl_id, hid_t stored_type_id,
                   void *element, struct vjh_buffer *blobs)
{
    struct vjh_object *before;
    struct vjh_blobs *b;
    herr_t done;
    int rc = begin_beside(owner, SEGMENT_FILL);

    *blobs = (struct vjh_buffer){0};
    if (rc != 0) {
        return rc;
    }
    b = owner->blobs;
    before = vjh_blobs_enter(owner);
    done = H5Pget_fill_value(dcpl_id, stored_type_id, element);
    vjh_blobs_leave(before);
    b->out_segment = 0;
    if (done < 0) {
        return vjh_error(-EINVAL, "the fill value cannot be converted to the type");
    }
    *blobs = b->out;
    b->out = (struct vjh_buffer){0};
    b->out_capacity = 0;
    return 0;
}

int vjh_blobs_set_fill(struct vjh_object *owner, struct vjh_slice blobs)
{
    struct vjh_blobs *b = blobs_of(owner);

    if (b == NULL) {
        return -ENOMEM;
    }
    vjh_buffer_free(&b->fill);
    if (blobs.len == 0) {
        return 0;
    }
    b->fill.data = malloc(blobs.len);
    if (b->fill.data == NULL) {
        return -ENOMEM;
    }
    memcpy(b->fill.data, blobs.data, blobs.len);
    b->fill.len = blobs.len;
    return 0;
}

/* ---- attributes -------------------------------------------------------------------- */

int vjh_stored_size(struct vjh_object *owner, hid_t type_id, size_t *out)
{
    hid_t stored_id;
    int rc = vjh_stored_type(owner->file, type_id, &stored_id);

    if (rc == 0) {
        *out = H5Tget_size(stored_id);
        H5Tclose(stored_id);
    }
    return rc;
}

struct sizes {
    size_t stored, memory;
    size_t buffer; /* all elements, in the larger one */
    H5T_bkg_t background;
    bool is_same;
};

static int measure(hid_t src_id, hid_t dst_id, hid_t stored_id, hid_t mem_type_id,
                   size_t count, struct sizes *out)
{
    size_t larger;

    out->stored = H5Tget_size(stored_id);
    out->memory = H5Tget_size(mem_type_id);
    larger = out->stored > out->memory ? out->stored : out->memory;
    if (larger == 0 || __builtin_mul_overflow(larger, count, &out->buffer)) {
        return vjh_error(-EFBIG, "the data are too large");
    }
    out->is_same = H5Tequal(stored_id, mem_type_id) > 0;
    return out->is_same ? 0 : vjh_conversion(src_id, dst_id, &out->background);
}

/* What the conversion left in the buffer, and the blobs behind that. */
static int take_beside(struct vjh_object *owner, size_t bytes, struct vjh_buffer *out)
{
    struct vjh_buffer *blobs = &owner->blobs->out;
    uint8_t *longer = realloc(out->data, bytes + blobs->len + 1);

    if (longer == NULL) {
        return -ENOMEM;
    }
    if (blobs->len > 0) {
        memcpy(longer + bytes, blobs->data, blobs->len);
    }
    *out = (struct vjh_buffer){longer, bytes + blobs->len};
    return 0;
}

static int convert_beside(struct vjh_object *owner, const struct sizes *sizes,
                          hid_t mem_type_id, hid_t stored_id, size_t count,
                          struct vjh_slice before, void *buffer)
{
    size_t bytes = sizes->stored * count;
    uint8_t *background = NULL;
    int rc;

    if (sizes->background != H5T_BKG_NO) {
        background = calloc(1, sizes->buffer + 1);
        if (background == NULL) {
            return -ENOMEM;
        }
    }
    if (sizes->background == H5T_BKG_YES && before.len >= bytes && bytes > 0) {
        memcpy(background, before.data, bytes);
        /* What is kept has its blobs there; they are kept with it. */
        rc = keep_beside(owner, (struct vjh_slice){(const uint8_t *)before.data + bytes,
                                                   before.len - bytes});
        if (rc != 0) {
            free(background);
            return rc;
        }
    }
    rc = vjh_convert(owner, mem_type_id, stored_id, count, buffer, background,
                     H5P_DEFAULT);
    free(background);
    return rc;
}

int vjh_convert_write(struct vjh_object *owner, hid_t type_id, hid_t mem_type_id,
                      size_t count, const void *buf, struct vjh_slice before,
                      struct vjh_buffer *out)
{
    struct sizes sizes;
    hid_t stored_id;
    int rc = vjh_stored_type(owner->file, type_id, &stored_id);

    *out = (struct vjh_buffer){0};
    if (rc != 0) {
        return rc;
    }
    rc = measure(mem_type_id, stored_id, stored_id, mem_type_id, count, &sizes);
    if (rc == 0) {
        rc = begin_beside(owner, SEGMENT_BESIDE);
    }
    if (rc == 0) {
        out->data = malloc(sizes.buffer + 1);
        rc = out->data == NULL ? -ENOMEM : 0;
    }
    if (rc == 0) {
        memcpy(out->data, buf, sizes.memory * count);
        if (!sizes.is_same) {
            rc = convert_beside(owner, &sizes, mem_type_id, stored_id, count, before,
                                out->data);
        }
    }
    if (rc == 0) {
        rc = take_beside(owner, sizes.stored * count, out);
    }
    if (owner->blobs != NULL) {
        owner->blobs->out_segment = 0;
        owner->blobs->out.len = 0;
    }
    H5Tclose(stored_id);
    if (rc != 0) {
        vjh_buffer_free(out);
    }
    return rc;
}

int vjh_convert_read(struct vjh_object *owner, hid_t type_id, hid_t mem_type_id,
                     size_t count, struct vjh_slice data, void *buf)
{
    struct vjh_blobs *b = blobs_of(owner);
    uint8_t *work = NULL, *background = NULL;
    struct sizes sizes;
    hid_t stored_id;
    size_t bytes;
    int rc = b == NULL ? -ENOMEM : vjh_stored_type(owner->file, type_id, &stored_id);

    if (rc != 0) {
        return rc;
    }
    rc = measure(stored_id, mem_type_id, stored_id, mem_type_id, count, &sizes);
    bytes = rc == 0 ? sizes.stored * count : 0;
    if (rc == 0 && data.len < bytes) {
        rc = vjh_error(-EIO, "%zu bytes are stored where %zu should be", data.len, bytes);
    }
    if (rc == 0 && sizes.is_same) {
        memcpy(buf, data.data, bytes);
    } else if (rc == 0) {
        work = malloc(sizes.buffer + 1);
        background = malloc(sizes.buffer + 1);
        rc = work == NULL || background == NULL ? -ENOMEM : 0;
    }
    if (rc == 0 && !sizes.is_same) {
        memcpy(work, data.data, bytes);
        memset(background, 0, sizes.buffer);
        if (sizes.background == H5T_BKG_YES) {
            memcpy(background, buf, sizes.memory * count);
        }
        b->beside =
            (struct vjh_slice){(const uint8_t *)data.data + bytes, data.len - bytes};
        rc = vjh_convert(owner, stored_id, mem_type_id, count, work,
                         sizes.background == H5T_BKG_NO ? NULL : background, H5P_DEFAULT);
        b->beside = (struct vjh_slice){0};
        if (rc == 0) {
            memcpy(buf, work, sizes.memory * count);
        }
    }
    free(work);
    free(background);
    H5Tclose(stored_id);
    return rc;
}
