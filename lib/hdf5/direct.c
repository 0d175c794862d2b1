/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * direct.c - chunks as they are stored: H5Dget_num_chunks, H5Dget_chunk_info,
 * H5Dchunk_iter, H5Dread_chunk, H5Dwrite_chunk and their like
 *
 * To HDF5 these are optional operations of its native connector.  A chunk has no address
 * here: HADDR_UNDEF.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset.h"

/* Of reading a chunk that other processes replace meanwhile. */
#define TRIES_MAX 100

/* What is known of a stored chunk. */
struct info {
    hsize_t offset[H5S_MAX_RANK];
    uint32_t mask;
    uint64_t bytes; /* as the filters made it */
    bool is_there;
};

static bool is_filtered(const struct vjh_dataset *d)
{
    return d->layout.filter_count > 0;
}

/* ---- one chunk --------------------------------------------------------------------- */

/* All of an object; -ENOENT without a text. */
static int read_object(struct vjh_dataset *d, const char *name, size_t most,
                       struct vjh_buffer *out, uint64_t *all_bytes)
{
    const char *space = d->o.file->container->space;
    struct varjfs_object_status status = {.size = sizeof status};
    size_t got = 0;
    varjfs_batch *b;
    int rc;

    *out = (struct vjh_buffer){.data = malloc(most + 1)};
    rc = out->data == NULL ? -ENOMEM : vjh_batch_of(d, &b);
    if (rc == 0) {
        rc = varjfs_object_status(b, space, name, &status, NULL);
        if (rc == 0) {
            rc = varjfs_object_read(b, space, name, out->data, most, 0, &got, NULL);
        }
        if (rc == 0) {
            rc = varjfs_batch_execute(b);
        }
        varjfs_batch_free(b);
    }
    if (rc != 0) {
        vjh_buffer_free(out);
        return rc;
    }
    out->len = got;
    *all_bytes = status.bytes;
    return 0;
}

static int look_at(struct vjh_dataset *d, const char *name, struct info *out)
{
    struct vjh_buffer head;
    uint64_t bytes;
    int rc = read_object(d, name, VJH_FILTERED_HEAD_BYTES, &head, &bytes);

    out->is_there = rc == 0;
    if (rc != 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    out->mask = 0;
    out->bytes = d->chunk_bytes;
    if (is_filtered(d)) {
        rc = vjh_filtered_head((struct vjh_slice){head.data, head.len}, bytes, &out->mask,
                               &out->bytes);
    }
    vjh_buffer_free(&head);
    return rc;
}

/* @offset: of the first element of a chunk, as programs give it. */
static int name_of(struct vjh_dataset *d, const hsize_t *offset, char *name)
{
    hsize_t coordinates[H5S_MAX_RANK];

    if (d->layout.type != H5D_CHUNKED) {
        return vjh_error(-EINVAL, "the dataset has no chunks");
    }
    for (int i = 0; i < d->rank; i++) {
        if (offset[i] % d->layout.chunk[i] != 0 || offset[i] >= vjh_dims(d)[i]) {
            return vjh_error(-EINVAL, "no chunk begins at this offset");
        }
        coordinates[i] = offset[i] / d->layout.chunk[i];
    }
    return vjh_chunk_name(d, coordinates, name);
}

static int get_info(struct vjh_dataset *d, const hsize_t *offset, struct info *out)
{
    char name[VJH_OBJECT_NAME_BYTES];
    int rc = name_of(d, offset, name);

    memset(out, 0, sizeof *out);
    return rc == 0 ? look_at(d, name, out) : rc;
}

/* The record of a chunk with filters; *info is what its head says. */
static int read_record(struct vjh_dataset *d, const char *name, struct info *info,
                       struct vjh_buffer *raw)
{
    uint64_t bytes, len;
    int rc;

    for (int tries = 0; tries < TRIES_MAX; tries++) {
        len = info->bytes + VJH_FILTERED_HEAD_BYTES;
        rc = len > 2 * VJH_CHUNK_BYTES_MAX
                 ? vjh_error(-EIO, "chunk %s is too long", name)
                 : read_object(d, name, (size_t)len, raw, &bytes);
        if (rc == 0) {
            rc = vjh_filtered_head((struct vjh_slice){raw->data, raw->len}, bytes,
                                   &info->mask, &info->bytes);
        }
        if (rc != 0) {
            vjh_buffer_free(raw);
            return rc;
        }
        if (raw->len == info->bytes + VJH_FILTERED_HEAD_BYTES) {
            return 0;
        }
        /* Another process has replaced it since its length was read. */
        vjh_buffer_free(raw);
    }
    return vjh_error(-EIO, "chunk %s is replaced again and again", name);
}

static int read_chunk(struct vjh_dataset *d, H5VL_native_dataset_chunk_read_t *args)
{
    char name[VJH_OBJECT_NAME_BYTES];
    struct vjh_buffer raw = {0};
    struct info info;
    uint64_t bytes;
    int rc = get_info(d, args->offset, &info);

    if (rc == 0 && !info.is_there) {
        rc = vjh_error(-ENOENT, "the chunk has not been written");
    }
    if (rc == 0) {
        rc = name_of(d, args->offset, name);
    }
    if (rc == 0) {
        rc = is_filtered(d) ? read_record(d, name, &info, &raw)
                            : read_object(d, name, d->chunk_bytes, &raw, &bytes);
    }
    if (rc != 0) {
        return rc;
    }
    if (!is_filtered(d)) {
        uint64_t have = raw.len / d->stored_size;

        memcpy(args->buf, raw.data, raw.len);
        vjh_fill(d, (uint8_t *)args->buf + have * d->stored_size,
                 d->chunk_elements - have);
    } else {
        memcpy(args->buf, (uint8_t *)raw.data + VJH_FILTERED_HEAD_BYTES,
               (size_t)info.bytes);
    }
    args->filters = info.mask;
    vjh_buffer_free(&raw);
    return 0;
}

static int write_chunk(struct vjh_dataset *d,
                       const H5VL_native_dataset_chunk_write_t *args)
{
    const char *space = d->o.file->container->space;
    char name[VJH_OBJECT_NAME_BYTES];
    struct vjh_buffer record = {0};
    varjfs_batch *b;
    int made = 0, written = 0, rc = vjh_check_writable(&d->o);

    if (rc == 0) {
        rc = name_of(d, args->offset, name);
    }
    if (rc == 0 && !is_filtered(d) && args->size != d->chunk_bytes) {
        rc = vjh_error(-EINVAL, "a chunk without filters has %zu bytes", d->chunk_bytes);
    }
    if (rc == 0) {
        rc = is_filtered(d)
                 ? vjh_filtered_record(args->filters, args->buf, args->size, &record)
                 : 0;
    }
    if (rc == 0) {
        rc = vjh_batch_of(d, &b);
    }
    if (rc != 0) {
        vjh_buffer_free(&record);
        return rc;
    }
    rc = vjh_add_create(d, b, name);
    if (rc == 0 && is_filtered(d)) {
        rc = varjfs_object_write(b, space, name, "", 0, 0, vjh_create_flag(d), &made);
        if (rc == 0) {
            rc = varjfs_object_rwrite(b, space, name, record.data, record.len, 0,
                                      INT64_MAX, 0, &written);
        }
    } else if (rc == 0) {
        rc = varjfs_object_write(b, space, name, args->buf, args->size, 0,
                                 vjh_create_flag(d), &written);
    }
    if (rc == 0) {
        varjfs_batch_execute(b); /* the creation may say that there is one */
        rc = made != 0 ? made : written;
        d->o.is_changed = true;
    }
    varjfs_batch_free(b);
    vjh_buffer_free(&record);
    return rc;
}

/* ---- all chunks -------------------------------------------------------------------- */

struct walk {
    struct vjh_dataset *d;
    hsize_t count, wanted; /* H5Dget_chunk_info: which of them */
    struct info info;
    H5D_chunk_iter_op_t op;
    void *op_data;
    int answer; /* of @op, other than 0 */
};

static int step(void *opaque, const char *name, const hsize_t *coordinates)
{
    struct walk *w = opaque;
    struct vjh_dataset *d = w->d;
    bool is_wanted = w->op != NULL || w->count == w->wanted;
    int rc;

    for (int i = 0; i < d->rank; i++) {
        w->info.offset[i] = coordinates[i] * d->layout.chunk[i];
        if (w->info.offset[i] >= vjh_dims(d)[i]) {
            return 0; /* left over from a larger extent */
        }
    }
    w->count++;
    if (!is_wanted) {
        return 0;
    }
    rc = look_at(d, name, &w->info);
    if (rc != 0 || !w->info.is_there) {
        w->count -= !w->info.is_there; /* has gone since */
        return rc;
    }
    if (w->op == NULL) {
        return 1; /* found */
    }
    w->answer =
        w->op(w->info.offset, w->info.mask, HADDR_UNDEF, w->info.bytes, w->op_data);
    return w->answer != 0;
}

static int count_chunks(struct vjh_dataset *d, hsize_t *out)
{
    struct walk w = {.d = d, .wanted = HSIZE_UNDEF};
    int rc = vjh_each_chunk(d, step, &w);

    *out = w.count;
    return rc;
}

static int info_by_index(struct vjh_dataset *d,
                         const H5VL_native_dataset_get_chunk_info_by_idx_t *args)
{
    struct walk w = {.d = d, .wanted = args->chk_index};
    int rc = vjh_each_chunk(d, step, &w);

    if (rc == 0) {
        return vjh_error(-ENOENT, "the dataset has not so many chunks");
    }
    if (rc < 0) {
        return rc;
    }
    if (args->offset != NULL) {
        memcpy(args->offset, w.info.offset, (size_t)d->rank * sizeof *args->offset);
    }
    if (args->filter_mask != NULL) {
        *args->filter_mask = w.info.mask;
    }
    if (args->addr != NULL) {
        *args->addr = HADDR_UNDEF;
    }
    if (args->size != NULL) {
        *args->size = w.info.bytes;
    }
    return 0;
}

static int info_by_offset(struct vjh_dataset *d,
                          const H5VL_native_dataset_get_chunk_info_by_coord_t *args)
{
    struct info info;
    int rc = get_info(d, args->offset, &info);

    if (rc != 0) {
        return rc;
    }
    if (args->filter_mask != NULL) {
        *args->filter_mask = info.mask;
    }
    if (args->addr != NULL) {
        *args->addr = HADDR_UNDEF;
    }
    if (args->size != NULL) {
        *args->size = info.is_there ? info.bytes : 0;
    }
    return 0;
}

static int storage_size(struct vjh_dataset *d,
                        const H5VL_native_dataset_get_chunk_storage_size_t *args)
{
    struct info info;
    int rc = get_info(d, args->offset, &info);

    if (rc == 0) {
        *args->size = info.is_there ? info.bytes : 0;
    }
    return rc;
}

/* ---- the callback ------------------------------------------------------------------ */

bool vjh_has_optional(int op_type)
{
    switch (op_type) {
    case H5VL_NATIVE_DATASET_GET_CHUNK_STORAGE_SIZE:
    case H5VL_NATIVE_DATASET_GET_NUM_CHUNKS:
    case H5VL_NATIVE_DATASET_GET_CHUNK_INFO_BY_IDX:
    case H5VL_NATIVE_DATASET_GET_CHUNK_INFO_BY_COORD:
    case H5VL_NATIVE_DATASET_CHUNK_READ:
    case H5VL_NATIVE_DATASET_CHUNK_WRITE:
    case H5VL_NATIVE_DATASET_GET_OFFSET:
    case H5VL_NATIVE_DATASET_CHUNK_ITER:
        return true;
    default:
        return false;
    }
}

herr_t vjh_dataset_optional(void *obj, H5VL_optional_args_t *args, hid_t dxpl_id,
                            void **req)
{
    H5VL_native_dataset_optional_args_t *of = args->args;
    struct vjh_dataset *d = obj;
    struct walk w = {.d = d};
    int rc;

    (void)dxpl_id;
    (void)req;
    switch (args->op_type) {
    case H5VL_NATIVE_DATASET_GET_CHUNK_STORAGE_SIZE:
        VJH_RETURN(storage_size(d, &of->get_chunk_storage_size));
    case H5VL_NATIVE_DATASET_GET_NUM_CHUNKS:
        VJH_RETURN(count_chunks(d, of->get_num_chunks.nchunks));
    case H5VL_NATIVE_DATASET_GET_CHUNK_INFO_BY_IDX:
        VJH_RETURN(info_by_index(d, &of->get_chunk_info_by_idx));
    case H5VL_NATIVE_DATASET_GET_CHUNK_INFO_BY_COORD:
        VJH_RETURN(info_by_offset(d, &of->get_chunk_info_by_coord));
    case H5VL_NATIVE_DATASET_CHUNK_READ:
        VJH_RETURN(read_chunk(d, &of->chunk_read));
    case H5VL_NATIVE_DATASET_CHUNK_WRITE:
        VJH_RETURN(write_chunk(d, &of->chunk_write));
    case H5VL_NATIVE_DATASET_GET_OFFSET:
        *of->get_offset.offset = HADDR_UNDEF;
        return 0;
    case H5VL_NATIVE_DATASET_CHUNK_ITER:
        w.op = of->chunk_iter.op;
        w.op_data = of->chunk_iter.op_data;
        rc = vjh_each_chunk(d, step, &w);
        if (rc > 0) {
            return w.answer; /* the program's */
        }
        VJH_RETURN(rc);
    default:
        VJH_RETURN(vjh_error(-ENOTSUP,
                             "operation %d on a dataset is one of the native format",
                             args->op_type));
    }
}
