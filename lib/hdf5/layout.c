/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * layout.c - creation properties of datasets, and how they are stored
 *
 * HDF5's own encoding of property lists has no length that a reader could check, and
 * stores the addresses of a variable-length fill value.  So what datasets need is encoded
 * here:
 *
 *     u8 version, u8 layout, u8 allocation time, u8 fill time, u8 fill status,
 *     u8 dataspace class, u8 rank, u8 times tracked,
 *     u32 attribute order flags, u32 attributes compact, u32 attributes dense,
 *     u32 chunk options, u32 filters, u32 rank of chunks,
 *     u64 dimension, u64 maximum                         for each dimension
 *     u64                                                for each dimension of a chunk
 *     u32 length, fill value as it is stored; u32 length, its blobs
 *     u32 id, u32 flags, u32 count, u32 values           for each filter
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <varjfs/hdf5.h>

#include "dataset.h"

#define VERSION 1
#define FIXED_BYTES (8u + 6u * 4u)

/* ---- from a property list ---------------------------------------------------------- */

static int get_chunk(hid_t dcpl_id, struct vjh_layout *out)
{
    int rank = H5Pget_chunk(dcpl_id, H5S_MAX_RANK, out->chunk);
    unsigned opts = 0;

    if (rank <= 0 || rank > H5S_MAX_RANK || H5Pget_chunk_opts(dcpl_id, &opts) < 0) {
        return vjh_error(-EINVAL, "the size of chunks is missing");
    }
    out->chunk_rank = (unsigned)rank;
    out->chunk_opts = opts;
    return 0;
}

static int get_others(hid_t dcpl_id, struct vjh_layout *out)
{
    unsigned flags = 0, compact = 0, dense = 0;
    hbool_t times = true;
    int filters = H5Pget_nfilters(dcpl_id);

    if (filters < 0 || H5Pget_attr_creation_order(dcpl_id, &flags) < 0 ||
        H5Pget_attr_phase_change(dcpl_id, &compact, &dense) < 0 ||
        H5Pget_obj_track_times(dcpl_id, &times) < 0 ||
        H5Pget_alloc_time(dcpl_id, &out->alloc_time) < 0 ||
        H5Pget_fill_time(dcpl_id, &out->fill_time) < 0 ||
        H5Pfill_value_defined(dcpl_id, &out->fill_status) < 0) {
        return vjh_error(-EINVAL, "the creation properties cannot be read");
    }
    if ((unsigned)filters > VJH_FILTERS_MAX) {
        return vjh_error(-EFBIG, "there are more than %u filters", VJH_FILTERS_MAX);
    }
    out->filter_count = (unsigned)filters;
    out->attribute_flags = flags;
    out->attribute_compact = compact;
    out->attribute_dense = dense;
    out->times_tracked = times;
    return 0;
}

int vjh_layout_from_dcpl(hid_t dcpl_id, struct vjh_layout *out)
{
    int rc;

    *out = (struct vjh_layout){.type = H5Pget_layout(dcpl_id)};
    if (out->type == H5D_VIRTUAL) {
        return vjh_error(-ENOTSUP, "virtual datasets (H5Pset_virtual)");
    }
    if (out->type != H5D_CONTIGUOUS && out->type != H5D_COMPACT &&
        out->type != H5D_CHUNKED) {
        return vjh_error(-EINVAL, "the layout is not known");
    }
    if (H5Pget_external_count(dcpl_id) > 0) {
        return vjh_error(-ENOTSUP, "data in external files (H5Pset_external)");
    }
    rc = get_others(dcpl_id, out);
    if (rc == 0 && out->type == H5D_CHUNKED) {
        rc = get_chunk(dcpl_id, out);
    }
    return rc;
}

/* ---- checks ------------------------------------------------------------------------ */

static int check_chunks(struct vjh_dataset *d)
{
    const struct vjh_layout *l = &d->layout;
    uint64_t bytes;
    int rc;

    if (d->space_class != H5S_SIMPLE || d->rank <= 0 || (int)l->chunk_rank != d->rank) {
        return vjh_error(-EINVAL, "chunks and dataspace have different ranks");
    }
    for (int i = 0; i < d->rank; i++) {
        if (l->chunk[i] == 0) {
            return vjh_error(-EINVAL, "a dimension of chunks is 0");
        }
        if (d->max_dims[i] != H5S_UNLIMITED && d->max_dims[i] > 0 &&
            l->chunk[i] > d->max_dims[i]) {
            return vjh_error(-EINVAL, "chunks are larger than the dataset can become");
        }
    }
    /* Then all chunks have numbers, and names that are short enough. */
    rc = vjh_product(vjh_dims(d), d->rank, &bytes);
    if (rc == 0) {
        rc = vjh_product(l->chunk, d->rank, &d->chunk_elements);
    }
    if (rc != 0) {
        return rc;
    }
    if (__builtin_mul_overflow(d->chunk_elements, (uint64_t)d->stored_size, &bytes) ||
        bytes >= VJH_CHUNK_BYTES_MAX) {
        return vjh_error(-EFBIG, "a chunk has 4 GiB or more");
    }
    d->chunk_bytes = (size_t)bytes;
    return 0;
}

/* As HDF5 does it for its own files. */
static int check_fill(const struct vjh_dataset *d)
{
    const struct vjh_layout *l = &d->layout;

    if (d->has_blobs && l->fill_time == H5D_FILL_TIME_NEVER) {
        return vjh_error(-EINVAL, "variable-length data and references need a fill time "
                                  "other than H5D_FILL_TIME_NEVER");
    }
    if (l->fill_status == H5D_FILL_VALUE_UNDEFINED &&
        l->fill_time == H5D_FILL_TIME_ALLOC) {
        return vjh_error(-EINVAL, "H5D_FILL_TIME_ALLOC without a fill value");
    }
    return 0;
}

int vjh_layout_check(struct vjh_dataset *d)
{
    const hsize_t *dims = vjh_dims(d);
    uint64_t elements, bytes;
    int rc = check_fill(d);

    if (rc != 0) {
        return rc;
    }
    for (int i = 0; i < d->rank; i++) {
        if (d->max_dims[i] != H5S_UNLIMITED && dims[i] > d->max_dims[i]) {
            return vjh_error(-EINVAL, "a dimension is larger than its maximum");
        }
        if (d->layout.type != H5D_CHUNKED && d->max_dims[i] != dims[i]) {
            return vjh_error(-EINVAL, "only datasets with chunks can be extended");
        }
    }
    if (d->layout.type == H5D_CHUNKED) {
        return check_chunks(d);
    }
    if (d->layout.filter_count > 0) {
        return vjh_error(-EINVAL, "only datasets with chunks can have filters");
    }
    rc = vjh_product(dims, d->rank, &elements);
    if (rc != 0) {
        return rc;
    }
    if (__builtin_mul_overflow(elements, (uint64_t)d->stored_size, &bytes) ||
        bytes > INT64_MAX) {
        return vjh_error(-EFBIG, "the dataset is too large");
    }
    if (d->layout.type == H5D_COMPACT && bytes > VJH_COMPACT_BYTES_MAX) {
        return vjh_error(-EFBIG, "a compact dataset has more than %u bytes",
                         VJH_COMPACT_BYTES_MAX);
    }
    return 0;
}

/* ---- writing ----------------------------------------------------------------------- */

struct writer {
    uint8_t *bytes;
    size_t len, capacity;
    bool failed;
};

static void put_bytes(struct writer *w, const void *src, size_t len)
{
    if (w->failed || len > w->capacity - w->len) {
        w->failed = true;
        return;
    }
    if (len > 0) {
        memcpy(w->bytes + w->len, src, len);
    }
    w->len += len;
}

static void put(struct writer *w, uint64_t number, unsigned bytes)
{
    uint8_t at[8];

    for (unsigned i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(number >> 8 * i);
    }
    put_bytes(w, at, bytes);
}

static void put_fixed(struct writer *w, struct vjh_dataset *d)
{
    const struct vjh_layout *l = &d->layout;

    put(w, VERSION, 1);
    put(w, (uint64_t)l->type, 1);
    put(w, (uint64_t)l->alloc_time, 1);
    put(w, (uint64_t)l->fill_time, 1);
    put(w, (uint64_t)l->fill_status, 1);
    put(w, (uint64_t)d->space_class, 1);
    put(w, (uint64_t)d->rank, 1);
    put(w, l->times_tracked, 1);
    put(w, l->attribute_flags, 4);
    put(w, l->attribute_compact, 4);
    put(w, l->attribute_dense, 4);
    put(w, l->chunk_opts, 4);
    put(w, l->filter_count, 4);
    put(w, l->chunk_rank, 4);
    for (int i = 0; i < d->rank; i++) {
        put(w, vjh_dims(d)[i], 8);
        put(w, d->max_dims[i], 8);
    }
    for (unsigned i = 0; i < l->chunk_rank; i++) {
        put(w, l->chunk[i], 8);
    }
}

static int put_filters(struct writer *w, const struct vjh_dataset *d)
{
    unsigned *values = malloc(VJH_FILTER_VALUES_MAX * sizeof *values);
    int rc = values == NULL ? -ENOMEM : 0;

    for (unsigned i = 0; i < d->layout.filter_count && rc == 0; i++) {
        unsigned flags = 0, config;
        size_t n = VJH_FILTER_VALUES_MAX;
        H5Z_filter_t id =
            H5Pget_filter2(d->dcpl_id, i, &flags, &n, values, 0, NULL, &config);

        if (id < 0 || n > VJH_FILTER_VALUES_MAX) {
            rc = vjh_error(-EINVAL, "a filter has no parameters, or too many of them");
            break;
        }
        put(w, (uint64_t)id, 4);
        put(w, flags, 4);
        put(w, n, 4);
        for (size_t v = 0; v < n; v++) {
            put(w, values[v], 4);
        }
    }
    free(values);
    return rc;
}

/* The fill value in stored form; d->fill if it is another one than zero. */
static int make_fill(struct vjh_dataset *d, uint8_t *element, struct vjh_buffer *blobs)
{
    static const uint8_t zeros[64];
    size_t size = d->stored_size, at = 0;
    int rc;

    if (d->layout.fill_status != H5D_FILL_VALUE_USER_DEFINED) {
        return 0;
    }
    rc = vjh_blobs_fill(&d->o, d->dcpl_id, d->stored_type_id, element, blobs);
    if (rc != 0) {
        return rc;
    }
    while (at < size &&
           memcmp(element + at, zeros,
                  size - at < sizeof zeros ? size - at : sizeof zeros) == 0) {
        at += sizeof zeros;
    }
    if (at >= size) {
        return 0;
    }
    d->fill = malloc(size);
    if (d->fill == NULL) {
        return -ENOMEM;
    }
    memcpy(d->fill, element, size);
    return vjh_blobs_set_fill(&d->o, (struct vjh_slice){blobs->data, blobs->len});
}

int vjh_layout_encode(struct vjh_dataset *d, struct vjh_buffer *out)
{
    bool has_fill = d->layout.fill_status == H5D_FILL_VALUE_USER_DEFINED;
    struct writer w = {.capacity = VARJFS_VALUE_MAX};
    uint8_t *element = calloc(1, d->stored_size);
    struct vjh_buffer blobs = {0};
    int rc;

    *out = (struct vjh_buffer){0};
    w.bytes = malloc(w.capacity);
    rc = w.bytes == NULL || element == NULL ? -ENOMEM : make_fill(d, element, &blobs);
    if (rc == 0) {
        put_fixed(&w, d);
        put(&w, has_fill ? d->stored_size : 0, 4);
        put_bytes(&w, element, has_fill ? d->stored_size : 0);
        put(&w, blobs.len, 4);
        put_bytes(&w, blobs.data, blobs.len);
        rc = put_filters(&w, d);
    }
    if (rc == 0 && w.failed) {
        rc = vjh_error(-EFBIG, "the fill value or the filters are too large");
    }
    vjh_buffer_free(&blobs);
    free(element);
    if (rc != 0) {
        free(w.bytes);
        return rc;
    }
    *out = (struct vjh_buffer){w.bytes, w.len};
    return 0;
}

/* ---- reading ----------------------------------------------------------------------- */

struct reader {
    const uint8_t *at;
    size_t left;
    bool failed;
};

static const uint8_t *take(struct reader *r, size_t len)
{
    const uint8_t *at = r->at;

    if (r->failed || len > r->left) {
        r->failed = true;
        return NULL;
    }
    r->at += len;
    r->left -= len;
    return at;
}

static uint64_t get(struct reader *r, unsigned bytes)
{
    const uint8_t *at = take(r, bytes);
    uint64_t number = 0;

    for (unsigned i = 0; at != NULL && i < bytes; i++) {
        number |= (uint64_t)at[i] << 8 * i;
    }
    return number;
}

static struct vjh_slice get_part(struct reader *r)
{
    size_t len = (size_t)get(r, 4);
    const uint8_t *at = take(r, len);

    return (struct vjh_slice){at, at == NULL ? 0 : len};
}

static void get_fixed(struct reader *r, struct vjh_dataset *d, hsize_t *dims)
{
    struct vjh_layout *l = &d->layout;
    uint64_t rank;

    r->failed = get(r, 1) != VERSION || r->failed;
    l->type = (H5D_layout_t)get(r, 1);
    l->alloc_time = (H5D_alloc_time_t)get(r, 1);
    l->fill_time = (H5D_fill_time_t)get(r, 1);
    l->fill_status = (H5D_fill_value_t)get(r, 1);
    d->space_class = (H5S_class_t)get(r, 1);
    rank = get(r, 1);
    l->times_tracked = get(r, 1) != 0;
    l->attribute_flags = (uint32_t)get(r, 4);
    l->attribute_compact = (uint32_t)get(r, 4);
    l->attribute_dense = (uint32_t)get(r, 4);
    l->chunk_opts = (uint32_t)get(r, 4);
    l->filter_count = (unsigned)get(r, 4);
    l->chunk_rank = (unsigned)get(r, 4);
    if (rank > H5S_MAX_RANK || l->chunk_rank > H5S_MAX_RANK ||
        l->filter_count > VJH_FILTERS_MAX || d->space_class < H5S_SCALAR ||
        d->space_class > H5S_NULL || (rank > 0) != (d->space_class == H5S_SIMPLE) ||
        (l->type != H5D_CONTIGUOUS && l->type != H5D_COMPACT && l->type != H5D_CHUNKED)) {
        r->failed = true;
        return;
    }
    d->rank = (int)rank;
    for (int i = 0; i < d->rank; i++) {
        dims[i] = get(r, 8);
        d->max_dims[i] = get(r, 8);
    }
    for (unsigned i = 0; i < l->chunk_rank; i++) {
        l->chunk[i] = get(r, 8);
    }
}

/* A default goes with the layout, also when the list is used for another one. */
static H5D_alloc_time_t alloc_time(const struct vjh_layout *l)
{
    H5D_alloc_time_t usual = l->type == H5D_COMPACT      ? H5D_ALLOC_TIME_EARLY
                             : l->type == H5D_CONTIGUOUS ? H5D_ALLOC_TIME_LATE
                                                         : H5D_ALLOC_TIME_INCR;

    return l->alloc_time == usual ? H5D_ALLOC_TIME_DEFAULT : l->alloc_time;
}

static bool set_others(struct vjh_dataset *d)
{
    const struct vjh_layout *l = &d->layout;

    if (l->type == H5D_CHUNKED) {
        if (H5Pset_chunk(d->dcpl_id, d->rank, l->chunk) < 0 ||
            (l->chunk_opts != 0 && H5Pset_chunk_opts(d->dcpl_id, l->chunk_opts) < 0)) {
            return false;
        }
    } else if (H5Pset_layout(d->dcpl_id, l->type) < 0) {
        return false;
    }
    if (l->fill_status == H5D_FILL_VALUE_UNDEFINED &&
        H5Pset_fill_value(d->dcpl_id, d->type_id, NULL) < 0) {
        return false;
    }
    return H5Pset_alloc_time(d->dcpl_id, alloc_time(l)) >= 0 &&
           H5Pset_fill_time(d->dcpl_id, l->fill_time) >= 0 &&
           H5Pset_attr_creation_order(d->dcpl_id, l->attribute_flags) >= 0 &&
           H5Pset_attr_phase_change(d->dcpl_id, l->attribute_compact,
                                    l->attribute_dense) >= 0 &&
           H5Pset_obj_track_times(d->dcpl_id, l->times_tracked) >= 0 &&
           (d->transform == NULL ||
            varjfs_hdf5_set_transform(d->dcpl_id, d->transform) >= 0);
}

/* The fill value goes into the property list in the form that memory has. */
static int set_fill(struct vjh_dataset *d, struct vjh_slice element)
{
    size_t memory = H5Tget_size(d->type_id);
    size_t larger = memory > d->stored_size ? memory : d->stored_size;
    uint8_t *value = calloc(2, larger);
    hid_t scalar = H5I_INVALID_HID;
    H5T_bkg_t background = H5T_BKG_NO;
    int rc = value == NULL ? -ENOMEM : 0;

    if (rc == 0) {
        memcpy(value, element.data, element.len);
    }
    if (rc == 0 && d->has_blobs) {
        rc = vjh_conversion(d->stored_type_id, d->type_id, &background);
        if (rc == 0) {
            rc = vjh_convert(&d->o, d->stored_type_id, d->type_id, 1, value,
                             background == H5T_BKG_NO ? NULL : value + larger,
                             H5P_DEFAULT);
        }
    }
    if (rc == 0 && H5Pset_fill_value(d->dcpl_id, d->type_id, value) < 0) {
        rc = vjh_error(-EIO, "the fill value cannot be used");
    }
    if (rc == 0 && d->has_blobs) {
        scalar = H5Screate(H5S_SCALAR);
        H5Treclaim(d->type_id, scalar, H5P_DEFAULT, value);
        H5Sclose(scalar);
    }
    free(value);
    return rc;
}

static int take_fill(struct vjh_dataset *d, struct vjh_slice element,
                     struct vjh_slice blobs)
{
    int rc;

    if (d->layout.fill_status != H5D_FILL_VALUE_USER_DEFINED) {
        return 0;
    }
    if (element.len != d->stored_size) {
        return vjh_error(-EIO, "the fill value has a wrong length");
    }
    d->fill = malloc(element.len);
    if (d->fill == NULL) {
        return -ENOMEM;
    }
    memcpy(d->fill, element.data, element.len);
    rc = vjh_blobs_set_fill(&d->o, blobs);
    if (rc == 0) {
        rc = set_fill(d, element);
    }
    for (size_t i = 0; rc == 0 && i <= element.len; i++) {
        if (i == element.len) { /* zero: what needs no filling */
            free(d->fill);
            d->fill = NULL;
        } else if (d->fill[i] != 0) {
            break;
        }
    }
    return rc;
}

static int get_filters(struct reader *r, struct vjh_dataset *d)
{
    unsigned *values = malloc(VJH_FILTER_VALUES_MAX * sizeof *values);
    int rc = values == NULL ? -ENOMEM : 0;

    for (unsigned i = 0; i < d->layout.filter_count && rc == 0; i++) {
        H5Z_filter_t id = (H5Z_filter_t)get(r, 4);
        unsigned flags = (unsigned)get(r, 4);
        size_t n = (size_t)get(r, 4);

        if (n > VJH_FILTER_VALUES_MAX) {
            r->failed = true;
            break;
        }
        for (size_t v = 0; v < n; v++) {
            values[v] = (unsigned)get(r, 4);
        }
        if (!r->failed && H5Pset_filter(d->dcpl_id, id, flags, n, values) < 0) {
            rc = vjh_error(-EIO, "filter %d cannot be set", id);
        }
    }
    free(values);
    return rc;
}

int vjh_layout_decode(struct vjh_dataset *d, struct vjh_slice in)
{
    struct reader r = {.at = in.data, .left = in.len};
    struct vjh_slice element, blobs;
    hsize_t dims[H5S_MAX_RANK] = {0};
    int rc = 0;

    get_fixed(&r, d, dims);
    element = get_part(&r);
    blobs = get_part(&r);
    if (r.failed) {
        return vjh_error(-EIO, "the description of a dataset is damaged");
    }
    if (!d->o.node->has_dims) {
        memcpy(d->o.node->dims, dims, sizeof dims);
        d->o.node->has_dims = true;
    }
    if (d->layout.type == H5D_CHUNKED) {
        rc = vjh_extent_read(d);
    }
    if (rc == 0) {
        rc = vjh_layout_check(d);
    }
    if (rc == 0) {
        d->dcpl_id = H5Pcreate(H5P_DATASET_CREATE);
        rc = d->dcpl_id < 0 || !set_others(d)
                 ? vjh_error(-EIO, "the creation properties of a dataset are damaged")
                 : take_fill(d, element, blobs);
    }
    if (rc == 0) {
        rc = get_filters(&r, d);
    }
    if (rc == 0 && (r.failed || r.left > 0)) {
        rc = vjh_error(-EIO, "the description of a dataset is damaged");
    }
    return rc;
}
