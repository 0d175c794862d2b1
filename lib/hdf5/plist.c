/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Creation property lists of groups, committed types and files, as they are stored
 *
 * HDF5's own encoding of property lists has no length that a reader could check, so what
 * these lists have is written here, as numbers of 8 bytes each behind a byte for the
 * version and 7 zeros.  Lists of datasets are in layout.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5-private.h"

#define NUMBERS_MAX 64
#define INDEXES_MAX H5O_SHMESG_MAX_NINDEXES

struct numbers {
    uint64_t v[NUMBERS_MAX];
    size_t n, next;
    bool bad; /* too few were there */
};

static void add(struct numbers *w, uint64_t v)
{
    if (w->n < NUMBERS_MAX) {
        w->v[w->n++] = v;
    }
}

static uint64_t take(struct numbers *r)
{
    if (r->next == r->n) {
        r->bad = true;
        return 0;
    }
    return r->v[r->next++];
}

static unsigned take_unsigned(struct numbers *r)
{
    uint64_t v = take(r);

    r->bad = r->bad || v > UINT32_MAX;
    return (unsigned)v;
}

/* ---- properties of all objects ----------------------------------------------------- */

static int get_object(hid_t id, struct numbers *w)
{
    unsigned order, most, least;
    hbool_t times;
    int filters = H5Pget_nfilters(id);

    if (filters > 0) {
        return vjh_error(-ENOTSUP, "filters are for datasets: links of groups have none");
    }
    if (filters < 0 || H5Pget_attr_creation_order(id, &order) < 0 ||
        H5Pget_attr_phase_change(id, &most, &least) < 0 ||
        H5Pget_obj_track_times(id, &times) < 0) {
        return -EINVAL;
    }
    add(w, order);
    add(w, most);
    add(w, least);
    add(w, times);
    return 0;
}

static herr_t set_object(hid_t id, struct numbers *r)
{
    unsigned order = take_unsigned(r), most = take_unsigned(r), least = take_unsigned(r);
    hbool_t times = take(r) != 0;

    return H5Pset_attr_creation_order(id, order) < 0 ||
                   H5Pset_attr_phase_change(id, most, least) < 0 ||
                   H5Pset_obj_track_times(id, times) < 0
               ? -1
               : 0;
}

/* ---- of groups --------------------------------------------------------------------- */

static int get_group(hid_t id, struct numbers *w)
{
    unsigned order, most, least, links, name_len;
    size_t heap;

    if (H5Pget_link_creation_order(id, &order) < 0 ||
        H5Pget_link_phase_change(id, &most, &least) < 0 ||
        H5Pget_est_link_info(id, &links, &name_len) < 0 ||
        H5Pget_local_heap_size_hint(id, &heap) < 0) {
        return -EINVAL;
    }
    add(w, order);
    add(w, most);
    add(w, least);
    add(w, links);
    add(w, name_len);
    add(w, heap);
    return 0;
}

static herr_t set_group(hid_t id, struct numbers *r)
{
    unsigned order = take_unsigned(r), most = take_unsigned(r), least = take_unsigned(r);
    unsigned links = take_unsigned(r), name_len = take_unsigned(r);
    size_t heap = (size_t)take(r);

    return H5Pset_link_creation_order(id, order) < 0 ||
                   H5Pset_link_phase_change(id, most, least) < 0 ||
                   H5Pset_est_link_info(id, links, name_len) < 0 ||
                   H5Pset_local_heap_size_hint(id, heap) < 0
               ? -1
               : 0;
}

/* ---- of files: they are given back, and have no meaning here ----------------------- */

static int get_file(hid_t id, struct numbers *w)
{
    hsize_t user_block, threshold, page;
    size_t address, size;
    unsigned internal, leaf, chunk, indexes, most, least;
    H5F_fspace_strategy_t strategy;
    hbool_t persist;

    if (H5Pget_userblock(id, &user_block) < 0 || H5Pget_sizes(id, &address, &size) < 0 ||
        H5Pget_sym_k(id, &internal, &leaf) < 0 || H5Pget_istore_k(id, &chunk) < 0 ||
        H5Pget_file_space_strategy(id, &strategy, &persist, &threshold) < 0 ||
        H5Pget_file_space_page_size(id, &page) < 0 ||
        H5Pget_shared_mesg_phase_change(id, &most, &least) < 0 ||
        H5Pget_shared_mesg_nindexes(id, &indexes) < 0 || indexes > INDEXES_MAX) {
        return -EINVAL;
    }
    add(w, user_block);
    add(w, address);
    add(w, size);
    add(w, internal);
    add(w, leaf);
    add(w, chunk);
    add(w, (uint64_t)strategy);
    add(w, persist);
    add(w, threshold);
    add(w, page);
    add(w, most);
    add(w, least);
    add(w, indexes);
    for (unsigned i = 0; i < indexes; i++) {
        unsigned types, bytes;

        if (H5Pget_shared_mesg_index(id, i, &types, &bytes) < 0) {
            return -EINVAL;
        }
        add(w, types);
        add(w, bytes);
    }
    return 0;
}

static herr_t set_file(hid_t id, struct numbers *r)
{
    hsize_t user_block = take(r);
    size_t address = (size_t)take(r), size = (size_t)take(r);
    unsigned internal = take_unsigned(r), leaf = take_unsigned(r),
             chunk = take_unsigned(r);
    H5F_fspace_strategy_t strategy = (H5F_fspace_strategy_t)take_unsigned(r);
    hbool_t persist = take(r) != 0;
    hsize_t threshold = take(r), page = take(r);
    unsigned most = take_unsigned(r), least = take_unsigned(r),
             indexes = take_unsigned(r);

    if (r->bad || indexes > INDEXES_MAX || H5Pset_userblock(id, user_block) < 0 ||
        H5Pset_sizes(id, address, size) < 0 || H5Pset_sym_k(id, internal, leaf) < 0 ||
        H5Pset_istore_k(id, chunk) < 0 ||
        H5Pset_file_space_strategy(id, strategy, persist, threshold) < 0 ||
        H5Pset_file_space_page_size(id, page) < 0 ||
        H5Pset_shared_mesg_nindexes(id, indexes) < 0 ||
        H5Pset_shared_mesg_phase_change(id, most, least) < 0) {
        return -1;
    }
    for (unsigned i = 0; i < indexes; i++) {
        unsigned types = take_unsigned(r), bytes = take_unsigned(r);

        if (H5Pset_shared_mesg_index(id, i, types, bytes) < 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- both ways --------------------------------------------------------------------- */

static bool is_class(hid_t id, hid_t class_id)
{
    return H5Pisa_class(id, class_id) > 0;
}

int vjh_plist_encode(hid_t plist_id, struct vjh_buffer *out)
{
    struct numbers w = {.n = 0};
    uint8_t *p;
    int r = get_object(plist_id, &w);

    *out = (struct vjh_buffer){0};
    /* A file's is a group's, too. */
    if (r == 0 && is_class(plist_id, H5P_GROUP_CREATE)) {
        r = get_group(plist_id, &w);
    }
    if (r == 0 && is_class(plist_id, H5P_FILE_CREATE)) {
        r = get_file(plist_id, &w);
    }
    if (r != 0) {
        return r == -EINVAL ? vjh_error(r, "the creation property list cannot be read")
                            : r;
    }
    p = calloc(w.n + 1, 8);
    if (!p) {
        return -ENOMEM;
    }
    *out = (struct vjh_buffer){p, 8 * (w.n + 1)};
    p[0] = VJH_FORMAT_VERSION;
    for (size_t i = 0; i < w.n; i++) {
        for (int j = 0; j < 8; j++) {
            p[8 * (i + 1) + (size_t)j] = (uint8_t)(w.v[i] >> (8 * j));
        }
    }
    return 0;
}

int vjh_plist_decode(struct vjh_slice in, hid_t class_id, hid_t *out)
{
    const uint8_t *p = in.data;
    struct numbers r = {.n = in.len / 8 - (in.len >= 8)};
    herr_t done = 0;

    *out = H5I_INVALID_HID;
    if (in.len % 8 || r.n == 0 || r.n > NUMBERS_MAX || p[0] != VJH_FORMAT_VERSION) {
        return vjh_error(-EIO, "a stored property list is not what this version writes");
    }
    for (size_t i = 0; i < 8 * r.n; i++) {
        r.v[i / 8] |= (uint64_t)p[8 + i] << (8 * (i % 8));
    }
    *out = H5Pcreate(class_id);
    if (*out < 0) {
        return -ENOMEM;
    }
    H5E_BEGIN_TRY
    {
        done = set_object(*out, &r);
        if (done >= 0 && is_class(*out, H5P_GROUP_CREATE)) {
            done = set_group(*out, &r);
        }
        if (done >= 0 && is_class(*out, H5P_FILE_CREATE)) {
            done = set_file(*out, &r);
        }
    }
    H5E_END_TRY
    if (done < 0 || r.bad || r.next != r.n) {
        H5Pclose(*out);
        *out = H5I_INVALID_HID;
        return vjh_error(-EIO, "a stored property list is not what this version writes");
    }
    return 0;
}
