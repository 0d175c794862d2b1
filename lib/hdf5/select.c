/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * select.c - a selection of a dataset and one of memory, walked in step
 *
 * Two ways.  Where both selections are boxes and the dataset has chunks, chunk by chunk,
 * so that each chunk is looked at once.  Else in the order of the selections, as
 * sequences that HDF5's iterators give; those of a dataset with chunks are cut at the
 * borders of chunks.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset.h"

#define SEQUENCES 512

/* What an iterator of HDF5 gives, one run after the other. */
struct sequences {
    hid_t iterator;
    size_t count, next;
    hsize_t offset[SEQUENCES];
    size_t length[SEQUENCES];
    uint64_t at, left; /* of the run that is being used */
};

struct box {
    int rank;
    hsize_t start[H5S_MAX_RANK], count[H5S_MAX_RANK], dims[H5S_MAX_RANK];
    bool is_one_run; /* adjacent in the space that it is in */
    uint64_t first;  /* then: where that begins */
};

struct vjh_walk {
    struct vjh_dataset *d;
    bool is_chunked, by_chunk;
    int rank;
    hsize_t grid[H5S_MAX_RANK];
    hsize_t dims[H5S_MAX_RANK]; /* by which sequences of the dataset count */
    uint64_t total;             /* elements of these */

    struct sequences file, memory;

    /* by_chunk: */
    struct box in_file, in_memory;
    hsize_t low[H5S_MAX_RANK], high[H5S_MAX_RANK]; /* of chunk coordinates, inclusive */
    hsize_t chunk[H5S_MAX_RANK];
    hsize_t begin[H5S_MAX_RANK], end[H5S_MAX_RANK]; /* of the box within the chunk */
    hsize_t row[H5S_MAX_RANK];
    bool at_end;
    struct vjh_run rest; /* what is left of a row; count 0: nothing */
    uint64_t ordinal;    /* of the first element of @rest in the selection */
};

/* ---- chunks ------------------------------------------------------------------------ */

hsize_t *vjh_dims(struct vjh_dataset *d)
{
    return d->o.node != NULL ? d->o.node->dims : d->new_dims;
}

int vjh_product(const hsize_t *factors, int count, uint64_t *out)
{
    uint64_t product = 1;

    for (int i = 0; i < count; i++) {
        if (factors[i] == 0) {
            *out = 0;
            return 0;
        }
    }
    for (int i = 0; i < count; i++) {
        if (__builtin_mul_overflow(product, (uint64_t)factors[i], &product)) {
            return vjh_error(-EFBIG, "the product of the dimensions is too large");
        }
    }
    *out = product;
    return 0;
}

int vjh_grid(struct vjh_dataset *d, hsize_t *grid, uint64_t *count)
{
    const hsize_t *dims = vjh_dims(d);

    for (int i = 0; i < d->rank; i++) {
        hsize_t chunk = d->layout.chunk[i];

        grid[i] = dims[i] / chunk + (dims[i] % chunk != 0);
    }
    return vjh_product(grid, d->rank, count);
}

void vjh_chunk_coordinates(struct vjh_dataset *d, const hsize_t *grid, uint64_t number,
                           hsize_t *out)
{
    for (int i = d->rank - 1; i >= 0; i--) {
        out[i] = number % grid[i];
        number /= grid[i];
    }
}

uint64_t vjh_chunk_inside(struct vjh_dataset *d, const hsize_t *coordinates)
{
    const hsize_t *dims = vjh_dims(d);
    uint64_t inside = 1;

    for (int i = 0; i < d->rank; i++) {
        hsize_t begin = coordinates[i] * d->layout.chunk[i];
        hsize_t left = begin < dims[i] ? dims[i] - begin : 0;

        inside *= left < d->layout.chunk[i] ? left : d->layout.chunk[i];
    }
    return inside;
}

int vjh_chunk_name(struct vjh_dataset *d, const hsize_t *coordinates, char *out)
{
    size_t len = (size_t)snprintf(out, VJH_OBJECT_NAME_BYTES, "%s.c", d->o.data_name);

    for (int i = 0; i < d->rank && len < VJH_OBJECT_NAME_BYTES; i++) {
        len += (size_t)snprintf(out + len, VJH_OBJECT_NAME_BYTES - len, ".%" PRIx64,
                                (uint64_t)coordinates[i]);
    }
    return len < VJH_OBJECT_NAME_BYTES
               ? 0
               : vjh_error(-ENAMETOOLONG, "the coordinates of a chunk are too long");
}

/* ---- sequences --------------------------------------------------------------------- */

static int sequences_open(struct sequences *s, hid_t space_id)
{
    s->iterator = H5Ssel_iter_create(space_id, 1, 0);
    return s->iterator < 0 ? vjh_error(-EINVAL, "the selection cannot be walked") : 0;
}

/* Something is left to use, or -EINVAL: this one is shorter than the other one. */
static int sequences_fill(struct sequences *s)
{
    size_t elements;

    if (s->left > 0) {
        return 0;
    }
    if (s->next == s->count) {
        s->next = 0;
        if (H5Ssel_iter_get_seq_list(s->iterator, SEQUENCES, SIZE_MAX, &s->count,
                                     &elements, s->offset, s->length) < 0 ||
            s->count == 0) {
            s->count = 0;
            return vjh_error(-EINVAL,
                             "HDF5 walks the selection as fewer elements than it has");
        }
    }
    s->at = s->offset[s->next];
    s->left = s->length[s->next++];
    return 0;
}

/* ---- boxes ------------------------------------------------------------------------- */

static void box_is_one_run(struct box *b)
{
    uint64_t first = 0;
    bool inner_is_whole = true;

    b->is_one_run = true;
    for (int i = b->rank - 1; i >= 0; i--) {
        if (b->count[i] != 1 && !inner_is_whole) {
            b->is_one_run = false;
        }
        inner_is_whole = inner_is_whole && b->count[i] == b->dims[i];
    }
    for (int i = 0; i < b->rank; i++) {
        first = first * b->dims[i] + b->start[i];
    }
    b->first = first;
}

/* False: it is none, or none that is simple. */
static bool box_get(hid_t space_id, uint64_t elements, struct box *out)
{
    H5S_sel_type type = H5Sget_select_type(space_id);
    hsize_t end[H5S_MAX_RANK];
    uint64_t count = 1;

    out->rank = H5Sget_simple_extent_ndims(space_id);
    if (out->rank < 0 || (type != H5S_SEL_ALL && type != H5S_SEL_HYPERSLABS)) {
        return false;
    }
    if (out->rank > 0 && (H5Sget_simple_extent_dims(space_id, out->dims, NULL) < 0 ||
                          H5Sget_select_bounds(space_id, out->start, end) < 0)) {
        return false;
    }
    for (int i = 0; i < out->rank; i++) {
        out->count[i] = end[i] - out->start[i] + 1;
        if (__builtin_mul_overflow(count, (uint64_t)out->count[i], &count)) {
            return false;
        }
    }
    if (count != elements) {
        return false;
    }
    box_is_one_run(out);
    return true;
}

/* Where the element @ordinal of the box is, and how many follow it there. */
static uint64_t box_find(const struct box *b, uint64_t ordinal, uint64_t *follow)
{
    uint64_t at = 0, scale = 1;

    if (b->is_one_run) {
        *follow = UINT64_MAX;
        return b->first + ordinal;
    }
    *follow = b->count[b->rank - 1] - ordinal % b->count[b->rank - 1];
    for (int i = b->rank - 1; i >= 0; i--) {
        at += (b->start[i] + ordinal % b->count[i]) * scale;
        ordinal /= b->count[i];
        scale *= b->dims[i];
    }
    return at;
}

/* ---- by chunk ---------------------------------------------------------------------- */

/* The box within the chunk that is looked at now. */
static void enter_chunk(struct vjh_walk *w)
{
    for (int i = 0; i < w->rank; i++) {
        hsize_t chunk = w->d->layout.chunk[i], first = w->chunk[i] * chunk;
        hsize_t box_end = w->in_file.start[i] + w->in_file.count[i];

        w->begin[i] = first > w->in_file.start[i] ? first : w->in_file.start[i];
        w->end[i] = box_end - first < chunk ? box_end : first + chunk;
        w->row[i] = w->begin[i];
    }
}

static void by_chunk_open(struct vjh_walk *w)
{
    for (int i = 0; i < w->rank; i++) {
        hsize_t chunk = w->d->layout.chunk[i];

        w->low[i] = w->in_file.start[i] / chunk;
        w->high[i] = (w->in_file.start[i] + w->in_file.count[i] - 1) / chunk;
        w->chunk[i] = w->low[i];
    }
    w->by_chunk = true;
    enter_chunk(w);
}

/* The next row of the chunk, or the first one of the next chunk. */
static void next_row(struct vjh_walk *w)
{
    for (int i = w->rank - 2; i >= 0; i--) {
        if (++w->row[i] < w->end[i]) {
            return;
        }
        w->row[i] = w->begin[i];
    }
    for (int i = w->rank - 1; i >= 0; i--) {
        if (w->chunk[i] < w->high[i]) {
            w->chunk[i]++;
            enter_chunk(w);
            return;
        }
        w->chunk[i] = w->low[i];
    }
    w->at_end = true;
}

static void take_row(struct vjh_walk *w)
{
    const hsize_t *chunk = w->d->layout.chunk;
    int last = w->rank - 1;

    w->rest = (struct vjh_run){.count = w->end[last] - w->begin[last]};
    w->ordinal = 0;
    for (int i = 0; i < w->rank; i++) {
        hsize_t at = i == last ? w->begin[i] : w->row[i];

        w->rest.chunk = w->rest.chunk * w->grid[i] + w->chunk[i];
        w->rest.at = w->rest.at * chunk[i] + (at - w->chunk[i] * chunk[i]);
        w->ordinal = w->ordinal * w->in_file.count[i] + (at - w->in_file.start[i]);
    }
    next_row(w);
}

static int next_by_chunk(struct vjh_walk *w, uint64_t most, struct vjh_run *out)
{
    uint64_t follow;

    if (w->rest.count == 0) {
        if (w->at_end) {
            return 0;
        }
        take_row(w);
    }
    *out = w->rest;
    out->memory = box_find(&w->in_memory, w->ordinal, &follow);
    out->count = out->count < follow ? out->count : follow;
    out->count = out->count < most ? out->count : most;
    w->rest.at += out->count;
    w->rest.count -= out->count;
    w->ordinal += out->count;
    return 1;
}

/* ---- in the order of the selections ------------------------------------------------ */

/* The chunk of the element @at of the space, and how many follow it there. */
static uint64_t into_chunk(const struct vjh_walk *w, uint64_t at, struct vjh_run *out)
{
    uint64_t number = 0, inside = 0, follow = 1, rest = at;
    hsize_t coordinates[H5S_MAX_RANK];

    for (int i = w->rank - 1; i >= 0; i--) {
        coordinates[i] = rest % w->dims[i];
        rest /= w->dims[i];
    }
    for (int i = 0; i < w->rank; i++) {
        hsize_t chunk = w->d->layout.chunk[i], in_chunk = coordinates[i] % chunk;
        hsize_t in_row = w->dims[i] - coordinates[i];

        number = number * w->grid[i] + coordinates[i] / chunk;
        inside = inside * chunk + in_chunk;
        follow = chunk - in_chunk < in_row ? chunk - in_chunk : in_row;
    }
    out->chunk = number;
    out->at = inside;
    return follow;
}

static int next_in_order(struct vjh_walk *w, uint64_t most, struct vjh_run *out)
{
    uint64_t count = most;
    int rc;

    /* Both end together, as they have as many elements. */
    if (w->ordinal == 0) {
        return 0;
    }
    rc = sequences_fill(&w->file);
    if (rc == 0) {
        rc = sequences_fill(&w->memory);
    }
    if (rc != 0) {
        return rc;
    }
    if (w->file.at >= w->total || w->file.left > w->total - w->file.at) {
        return vjh_error(-ERANGE, "the selection is not within the dataset");
    }
    count = count < w->file.left ? count : w->file.left;
    count = count < w->memory.left ? count : w->memory.left;
    *out = (struct vjh_run){.at = w->file.at, .memory = w->memory.at};
    if (w->is_chunked) {
        uint64_t follow = into_chunk(w, w->file.at, out);

        count = count < follow ? count : follow;
    }
    out->count = count;
    w->file.at += count;
    w->file.left -= count;
    w->memory.at += count;
    w->memory.left -= count;
    w->ordinal = w->ordinal > count ? w->ordinal - count : 0;
    return 1;
}

int vjh_walk_next(struct vjh_walk *w, uint64_t most, struct vjh_run *out)
{
    return w->by_chunk ? next_by_chunk(w, most, out) : next_in_order(w, most, out);
}

/* ---- opening ----------------------------------------------------------------------- */

/*
 * The selection is one of this dataset as it is now.
 *
 * HDF5 takes points whose coordinate is one too large for a part of its dataspace, and
 * means the first element of the next row: what counts is then where the sequences are.
 */
static int check_file_space(struct vjh_walk *w, hid_t space_id, uint64_t elements)
{
    const hsize_t *dims = vjh_dims(w->d);
    hsize_t start[H5S_MAX_RANK], end[H5S_MAX_RANK];
    bool is_same = true, is_inside = true;

    if (H5Sget_simple_extent_ndims(space_id) != w->rank) {
        return vjh_error(-EINVAL, "the selection has another rank than the dataset");
    }
    w->total = 1;
    if (w->rank == 0 || elements == 0) {
        return 0;
    }
    if (H5Sget_simple_extent_dims(space_id, w->dims, NULL) < 0 ||
        H5Sget_select_bounds(space_id, start, end) < 0) {
        return vjh_error(-EINVAL, "the selection is not within its dataspace");
    }
    for (int i = 0; i < w->rank; i++) {
        is_same = is_same && w->dims[i] == dims[i];
        is_inside = is_inside && end[i] < dims[i] && end[i] < w->dims[i];
    }
    if (!is_same && !w->is_chunked) {
        return vjh_error(-EINVAL, "the selection is of another dataspace");
    }
    if (!is_inside && (!is_same || H5Sget_select_type(space_id) != H5S_SEL_POINTS)) {
        return vjh_error(-ERANGE, "the selection is not within the dataset");
    }
    return vjh_product(w->dims, w->rank, &w->total);
}

/* What H5S_ALL and H5S_BLOCK stand for.  Ids in @made are the caller's to close. */
static int spaces(struct vjh_dataset *d, hid_t *mem_id, hid_t *file_id, hid_t made[2])
{
    if (*file_id == H5S_PLIST || *file_id == H5S_BLOCK || *mem_id == H5S_PLIST) {
        return vjh_error(-ENOTSUP, "selections by H5S_PLIST or H5S_BLOCK of a dataset");
    }
    if (*file_id == H5S_ALL) {
        made[0] = d->space_class == H5S_SIMPLE
                      ? H5Screate_simple(d->rank, vjh_dims(d), NULL)
                      : H5Screate(d->space_class);
        *file_id = made[0];
    }
    if (*file_id >= 0 && *mem_id == H5S_BLOCK) {
        hssize_t count = H5Sget_select_npoints(*file_id);
        hsize_t dims = count < 0 ? 0 : (hsize_t)count;

        made[1] = H5Screate_simple(1, &dims, NULL);
        *mem_id = made[1];
    } else if (*mem_id == H5S_ALL) {
        *mem_id = *file_id;
    }
    return *file_id < 0 || *mem_id < 0 ? vjh_error(-EINVAL, "no dataspace") : 0;
}

static int open_spaces(struct vjh_walk *w, hid_t mem_id, hid_t file_id,
                       uint64_t *elements, bool *whole, bool *repeats)
{
    hssize_t in_file = H5Sget_select_npoints(file_id);
    hssize_t in_memory = H5Sget_select_npoints(mem_id);
    uint64_t all, chunks = 0;
    int rc;

    if (in_file < 0 || in_file != in_memory) {
        return vjh_error(-EINVAL, "the selections have different numbers of elements");
    }
    if (H5Sselect_valid(file_id) <= 0 || H5Sselect_valid(mem_id) <= 0) {
        return vjh_error(-ERANGE, "a selection is not within its dataspace");
    }
    *elements = w->ordinal = (uint64_t)in_file;
    *repeats = H5Sget_select_type(file_id) == H5S_SEL_POINTS;
    rc = check_file_space(w, file_id, *elements);
    if (rc == 0) {
        rc = vjh_product(vjh_dims(w->d), w->rank, &all);
    }
    if (rc == 0 && w->is_chunked) {
        rc = vjh_grid(w->d, w->grid, &chunks);
    }
    if (rc != 0 || *elements == 0) {
        w->at_end = true;
        return rc;
    }
    *whole = !*repeats && *elements == all;
    if (w->is_chunked && box_get(file_id, *elements, &w->in_file) &&
        box_get(mem_id, *elements, &w->in_memory)) {
        by_chunk_open(w);
        return 0;
    }
    rc = sequences_open(&w->file, file_id);
    return rc != 0 ? rc : sequences_open(&w->memory, mem_id);
}

int vjh_walk_open(struct vjh_dataset *d, hid_t mem_space_id, hid_t file_space_id,
                  struct vjh_walk **out, uint64_t *elements, bool *whole, bool *repeats)
{
    hid_t made[2] = {H5I_INVALID_HID, H5I_INVALID_HID};
    struct vjh_walk *w = calloc(1, sizeof *w);
    int rc;

    *out = NULL;
    *whole = false;
    if (w == NULL) {
        return -ENOMEM;
    }
    w->d = d;
    w->rank = d->rank;
    w->is_chunked = d->layout.type == H5D_CHUNKED;
    w->file.iterator = w->memory.iterator = H5I_INVALID_HID;
    rc = spaces(d, &mem_space_id, &file_space_id, made);
    if (rc == 0) {
        rc = open_spaces(w, mem_space_id, file_space_id, elements, whole, repeats);
    }
    for (int i = 0; i < 2; i++) {
        if (made[i] >= 0) {
            H5Sclose(made[i]); /* iterators have copies */
        }
    }
    if (rc != 0) {
        vjh_walk_close(w);
        return rc;
    }
    *out = w;
    return 0;
}

void vjh_walk_close(struct vjh_walk *w)
{
    if (w == NULL) {
        return;
    }
    if (w->file.iterator >= 0) {
        H5Ssel_iter_close(w->file.iterator);
    }
    if (w->memory.iterator >= 0) {
        H5Ssel_iter_close(w->memory.iterator);
    }
    free(w);
}
