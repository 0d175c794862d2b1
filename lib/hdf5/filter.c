/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * filter.c - HDF5's own filters
 *
 * HDF5 runs filters only as a part of writing and reading chunks of its own files.  So a
 * file in memory is made, with a dataset of one chunk that has the same type and the same
 * filters: a chunk that is written there is read back as the filters made it, and the
 * other way round.  What the library has, and what it loads, works without more.
 *
 * Elements that have blobs are opaque to filters, as they are in HDF5's own files.
 *
 * HDF5 takes for granted that filters return as many bytes as a chunk has.  Stored bytes
 * may be others than were written, so a filter of ours stands before those of the
 * dataset: it is the last one that reads, and refuses what has another length.
 *
 * A chunk with filters is stored as
 *
 *     u32 mask of filters that were left out, u32 0, u64 length, bytes
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset.h"

#define NO_FILTERS UINT32_MAX

struct vjh_filters {
    struct vjh_dataset *d;
    hid_t file, dataset, type;
};

/* ---- the filter of ours ------------------------------------------------------------ */

/* Numbers for programs' own use; 0: none is registered yet. */
#define LENGTH_FILTER_FIRST 511
#define LENGTH_FILTER_LAST 256

static H5Z_filter_t length_filter;

static size_t check_length(unsigned flags, size_t value_count, const unsigned *values,
                           size_t bytes, size_t *buffer_size, void **buffer)
{
    (void)flags;
    (void)buffer_size;
    (void)buffer;
    return value_count == 1 && bytes == values[0] ? bytes : 0;
}

static int register_filter(void)
{
    H5Z_class2_t class = {.version = H5Z_CLASS_T_VERS,
                          .id = LENGTH_FILTER_FIRST,
                          .encoder_present = 1,
                          .decoder_present = 1,
                          .name = "varjfs length",
                          .filter = check_length};

    /* H5close, after which HDF5 can be used again, forgets it. */
    if (length_filter != 0 && H5Zfilter_avail(length_filter) > 0) {
        return 0;
    }
    while (H5Zfilter_avail(class.id) != 0) {
        if (--class.id < LENGTH_FILTER_LAST) {
            return vjh_error(-ENOTSUP, "no number of a filter is free");
        }
    }
    if (H5Zregister(&class) < 0) {
        return vjh_error(-ENOTSUP, "HDF5 takes no filter");
    }
    length_filter = class.id;
    return 0;
}

/* ---- the file in memory ------------------------------------------------------------ */

static hid_t open_file(void)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), file = H5I_INVALID_HID;

    /* The environment's connector may be this one. */
    if (fapl >= 0 && H5Pset_vol(fapl, H5VL_NATIVE, NULL) >= 0 &&
        H5Pset_fapl_core(fapl, 1 << 20, false) >= 0) {
        file = H5Fcreate("varjfs-filters", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    }
    H5Pclose(fapl);
    return file;
}

/* Without the first @skip. */
static bool copy_filters(hid_t from, int skip, hid_t to)
{
    int count = H5Pget_nfilters(from);

    for (int i = skip; i < count; i++) {
        unsigned values[VJH_FILTER_VALUES_MAX], flags, config;
        size_t n = VJH_FILTER_VALUES_MAX;
        H5Z_filter_t id =
            H5Pget_filter2(from, (unsigned)i, &flags, &n, values, 0, NULL, &config);

        if (id < 0 || n > VJH_FILTER_VALUES_MAX ||
            H5Pset_filter(to, id, flags, n, values) < 0) {
            return false;
        }
    }
    return count >= 0;
}

/* One chunk, that neither fills nor caches. */
static hid_t create_dataset(struct vjh_dataset *d, hid_t file, hid_t type)
{
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), dapl = H5Pcreate(H5P_DATASET_ACCESS);
    hid_t space = H5Screate_simple(d->rank, d->layout.chunk, NULL);
    hid_t out = H5I_INVALID_HID;
    unsigned bytes = (unsigned)d->chunk_bytes; /* below 4 GiB */

    if (dcpl >= 0 && dapl >= 0 && space >= 0 &&
        H5Pset_chunk(dcpl, d->rank, d->layout.chunk) >= 0 &&
        H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER) >= 0 &&
        H5Pset_filter(dcpl, length_filter, H5Z_FLAG_MANDATORY, 1, &bytes) >= 0 &&
        copy_filters(d->dcpl_id, 0, dcpl) && H5Pset_chunk_cache(dapl, 1, 0, 1.0) >= 0) {
        out = H5Dcreate2(file, "chunk", type, space, H5P_DEFAULT, dcpl, dapl);
    }
    H5Sclose(space);
    H5Pclose(dapl);
    H5Pclose(dcpl);
    return out;
}

int vjh_filters_open(struct vjh_dataset *d, struct vjh_filters **out)
{
    struct vjh_filters *f;
    int rc = register_filter();

    *out = NULL;
    if (rc != 0) {
        return rc;
    }
    f = calloc(1, sizeof *f);
    if (f == NULL) {
        return -ENOMEM;
    }
    f->d = d;
    f->type = f->dataset = H5I_INVALID_HID;
    f->file = open_file();
    f->type = d->has_blobs ? H5Tcreate(H5T_OPAQUE, d->stored_size) : H5Tcopy(d->type_id);
    if (f->file >= 0 && f->type >= 0) {
        f->dataset = create_dataset(d, f->file, f->type);
    }
    if (f->dataset < 0) {
        vjh_filters_close(f);
        return vjh_error(-ENOTSUP, "the filters of the dataset cannot be used");
    }
    *out = f;
    return 0;
}

void vjh_filters_close(struct vjh_filters *f)
{
    if (f == NULL) {
        return;
    }
    if (f->dataset >= 0) {
        H5Dclose(f->dataset);
    }
    if (f->type >= 0) {
        H5Tclose(f->type);
    }
    if (f->file >= 0) {
        H5Fclose(f->file);
    }
    free(f);
}

int vjh_filters_take_values(struct vjh_dataset *d)
{
    struct vjh_filters *f;
    hid_t taken;
    int rc = vjh_filters_open(d, &f);

    if (rc != 0) {
        return rc;
    }
    taken = H5Dget_create_plist(f->dataset);
    if (taken < 0 || H5Premove_filter(d->dcpl_id, H5Z_FILTER_ALL) < 0 ||
        !copy_filters(taken, 1, d->dcpl_id)) {
        rc = vjh_error(-EINVAL, "the filters of the dataset cannot be read");
    }
    if (taken >= 0) {
        H5Pclose(taken);
    }
    vjh_filters_close(f);
    return rc;
}

/* ---- chunks ------------------------------------------------------------------------ */

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

/* @bytes NULL: they are written there by the caller. */
int vjh_filtered_record(uint32_t mask, const void *bytes, size_t len,
                        struct vjh_buffer *out)
{
    uint8_t *at = malloc(VJH_FILTERED_HEAD_BYTES + len);

    if (at == NULL) {
        return -ENOMEM;
    }
    put_number(at, mask, 4);
    put_number(at + 4, 0, 4);
    put_number(at + 8, len, 8);
    if (bytes != NULL) {
        memcpy(at + VJH_FILTERED_HEAD_BYTES, bytes, len);
    }
    *out = (struct vjh_buffer){at, VJH_FILTERED_HEAD_BYTES + len};
    return 0;
}

int vjh_filtered_head(struct vjh_slice in, uint64_t object_bytes, uint32_t *mask,
                      uint64_t *len)
{
    if (in.len < VJH_FILTERED_HEAD_BYTES) {
        return vjh_error(-EIO, "a chunk with filters ends too early");
    }
    *mask = (uint32_t)get_number(in.data, 4);
    *len = get_number((const uint8_t *)in.data + 8, 8);
    return *len == object_bytes - VJH_FILTERED_HEAD_BYTES
               ? 0
               : vjh_error(-EIO, "a chunk with filters has another length than it says");
}

static bool is_left_out(const struct vjh_filters *f, bool is_edge)
{
    return is_edge &&
           (f->d->layout.chunk_opts & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0;
}

int vjh_filters_encode(struct vjh_filters *f, const uint8_t *chunk, bool is_edge,
                       struct vjh_buffer *out)
{
    static const hsize_t at[H5S_MAX_RANK];
    uint32_t mask;
    hsize_t bytes;
    int rc;

    if (is_left_out(f, is_edge)) {
        return vjh_filtered_record(NO_FILTERS, chunk, f->d->chunk_bytes, out);
    }
    if (H5Dwrite(f->dataset, f->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, chunk) < 0 ||
        H5Dget_chunk_storage_size(f->dataset, at, &bytes) < 0) {
        return vjh_error(-EIO, "a filter has failed");
    }
    rc = vjh_filtered_record(0, NULL, (size_t)bytes, out);
    if (rc != 0) {
        return rc;
    }
    if (H5Dread_chunk(f->dataset, H5P_DEFAULT, at, &mask,
                      (uint8_t *)out->data + VJH_FILTERED_HEAD_BYTES) < 0) {
        return vjh_error(-EIO, "what the filters made cannot be read");
    }
    put_number(out->data, mask >> 1, 4); /* without ours */
    return 0;
}

int vjh_filters_decode(struct vjh_filters *f, struct vjh_slice in, uint8_t *chunk)
{
    static const hsize_t at[H5S_MAX_RANK];
    const uint8_t *bytes = in.data;
    uint32_t mask;
    uint64_t len;

    int rc = vjh_filtered_head(in, in.len, &mask, &len);

    if (rc != 0) {
        return rc;
    }
    bytes += VJH_FILTERED_HEAD_BYTES;
    if (mask == NO_FILTERS) {
        if (len != f->d->chunk_bytes) {
            return vjh_error(-EIO, "a chunk without filters has a wrong length");
        }
        memcpy(chunk, bytes, (size_t)len);
        return 0;
    }
    if (H5Dwrite_chunk(f->dataset, H5P_DEFAULT, mask << 1, at, (size_t)len, bytes) < 0 ||
        H5Dread(f->dataset, f->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, chunk) < 0) {
        return vjh_error(-EIO, "a filter cannot read a chunk");
    }
    return 0;
}
