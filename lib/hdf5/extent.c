/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * extent.c - how large a dataset is, and how much of it is stored
 *
 * The extent that a dataset was created with stands in its header; a later one has a key
 * of its own, so that setting it changes nothing else:
 *
 *     u8 version, u8 rank, u64 for each dimension
 *
 * Within a process all handles of a dataset share the extent (struct vjh_node).  Other
 * processes see a new one when they open the dataset, call H5Drefresh, or set one.
 *
 * A dataset that shrinks loses chunks that are outside entirely, and the others get the
 * fill value outside: so that what comes back when it grows has never been written.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset.h"

#define VERSION 1
#define AT_ONCE 1024u

/* ---- the key ----------------------------------------------------------------------- */

/* -ENOENT without a text: it is the one in the header. */
static int extent_get(struct vjh_dataset *d, hsize_t *dims)
{
    struct vjh_buffer value = {0};
    const uint8_t *at;
    struct vjh_key key;
    int rc;

    vjh_key(&key, d->o.node->id, VJH_KEY_EXTENT);
    rc = vjh_get(d->o.file->container, &key, &value);
    at = value.data;
    if (rc == 0 &&
        (value.len != 2 + 8 * (size_t)d->rank || at[0] != VERSION || at[1] != d->rank)) {
        rc = vjh_error(-EIO, "the extent of a dataset is damaged");
    }
    for (int i = 0; i < d->rank && rc == 0; i++) {
        dims[i] = 0;
        for (int byte = 7; byte >= 0; byte--) {
            dims[i] = dims[i] << 8 | at[2 + 8 * i + byte];
        }
        if (d->max_dims[i] != H5S_UNLIMITED && dims[i] > d->max_dims[i]) {
            rc = vjh_error(-EIO, "the extent of a dataset is larger than it may be");
        }
    }
    vjh_buffer_free(&value);
    return rc;
}

int vjh_extent_read(struct vjh_dataset *d)
{
    hsize_t dims[H5S_MAX_RANK] = {0};
    int rc = extent_get(d, dims);

    if (rc == 0) {
        memcpy(d->o.node->dims, dims, sizeof dims);
    }
    return rc == -ENOENT ? 0 : rc;
}

int vjh_extent_is_known(struct vjh_dataset *d, bool *out)
{
    hsize_t dims[H5S_MAX_RANK] = {0};
    int rc = 0;

    *out = true;
    if (d->layout.type == H5D_CHUNKED) {
        rc = extent_get(d, dims);
        *out = rc == -ENOENT ||
               memcmp(dims, vjh_dims(d), (size_t)d->rank * sizeof *dims) == 0;
    }
    return rc == -ENOENT ? 0 : rc;
}

static int extent_write(struct vjh_dataset *d, const hsize_t *dims)
{
    uint8_t value[2 + 8 * H5S_MAX_RANK] = {VERSION, (uint8_t)d->rank};
    struct vjh_key key;

    for (int i = 0; i < d->rank; i++) {
        for (int byte = 0; byte < 8; byte++) {
            value[2 + 8 * i + byte] = (uint8_t)(dims[i] >> 8 * byte);
        }
    }
    vjh_key(&key, d->o.node->id, VJH_KEY_EXTENT);
    return vjh_put(d->o.file->container, &key, value, 2 + 8 * (size_t)d->rank, 0);
}

/* ---- chunks that are stored -------------------------------------------------------- */

/* False: it is no name of a chunk. */
static bool coordinates_of(struct vjh_dataset *d, const char *name, size_t skip,
                           hsize_t *out)
{
    const char *digits = name + skip;
    char again[VJH_OBJECT_NAME_BYTES];

    for (int i = 0; i < d->rank; i++) {
        char *end;

        if (*digits != '.') {
            return false;
        }
        out[i] = strtoull(digits + 1, &end, 16);
        digits = end;
    }
    /* strtoull takes more than what we write. */
    return vjh_chunk_name(d, out, again) == 0 && strcmp(again, name) == 0;
}

int vjh_each_chunk(struct vjh_dataset *d, vjh_chunk_step *step, void *opaque)
{
    struct varjfs_entry entry = {.size = sizeof entry};
    struct vjh_container *c = d->o.file->container;
    char prefix[VJH_OBJECT_NAME_BYTES];
    hsize_t coordinates[H5S_MAX_RANK];
    varjfs_iterator *all;
    varjfs *v;
    size_t skip;
    int rc = vjh_varjfs(c->connection, &v);

    strcpy(prefix, d->o.data_name);
    strcat(prefix, ".c");
    skip = strlen(prefix);
    if (rc == 0) {
        rc = varjfs_object_iterate(v, c->space, prefix, &all);
    }
    if (rc != 0) {
        return rc;
    }
    while ((rc = varjfs_iterator_next(all, &entry)) > 0) {
        if (entry.name_len < skip || entry.name_len >= VJH_OBJECT_NAME_BYTES ||
            !coordinates_of(d, entry.name, skip, coordinates)) {
            continue;
        }
        rc = step(opaque, entry.name, coordinates);
        if (rc != 0) {
            break;
        }
    }
    varjfs_iterator_free(all);
    return rc;
}

/* ---- a new extent ------------------------------------------------------------------ */

struct shrinking {
    struct vjh_dataset *d;
    const hsize_t *dims;
    char (*doomed)[VJH_OBJECT_NAME_BYTES];
    size_t count;
    uint8_t *chunk; /* elements of one; NULL: none was needed yet */
};

static int delete_doomed(struct shrinking *s)
{
    const char *space = s->d->o.file->container->space;
    int results[AT_ONCE] = {0};
    varjfs_batch *b;
    int rc;

    if (s->count == 0) {
        return 0;
    }
    rc = vjh_batch_of(s->d, &b);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < s->count && rc == 0; i++) {
        rc = varjfs_object_delete(b, space, s->doomed[i], &results[i]);
    }
    if (rc == 0) {
        varjfs_batch_execute(b);
    }
    varjfs_batch_free(b);
    for (size_t i = 0; i < s->count && rc == 0; i++) {
        if (results[i] != 0 && results[i] != -ENOENT) {
            rc = vjh_error(results[i], "chunk %s: %s", s->doomed[i],
                           varjfs_strerror(results[i]));
        }
    }
    s->count = 0;
    return rc;
}

/* Elements of a chunk, in rows, that are outside of the new extent. */
static void fill_outside(struct shrinking *s, const hsize_t *coordinates)
{
    struct vjh_dataset *d = s->d;
    const hsize_t *chunk = d->layout.chunk;
    hsize_t row[H5S_MAX_RANK] = {0};
    int last = d->rank - 1;

    for (uint64_t at = 0; at < d->chunk_elements; at += chunk[last]) {
        hsize_t begin = coordinates[last] * chunk[last];
        hsize_t keep =
            s->dims[last] - begin < chunk[last] ? s->dims[last] - begin : chunk[last];

        for (int i = 0; i < last; i++) {
            if (coordinates[i] * chunk[i] + row[i] >= s->dims[i]) {
                keep = 0;
            }
        }
        vjh_fill(d, s->chunk + (at + keep) * d->stored_size, chunk[last] - keep);
        for (int i = last - 1; i >= 0 && ++row[i] == chunk[i]; i--) {
            row[i] = 0;
        }
    }
}

static int cut(struct shrinking *s, const hsize_t *coordinates)
{
    struct vjh_dataset *d = s->d;
    struct vjh_run all = {.count = d->chunk_elements};
    struct vjh_window w;
    int rc;

    if (s->chunk == NULL) {
        s->chunk = malloc(d->chunk_bytes);
        if (s->chunk == NULL) {
            return -ENOMEM;
        }
    }
    rc = vjh_window_init(&w, d, false);
    for (int i = 0; i < d->rank; i++) {
        if (coordinates[i] >= w.grid[i]) {
            vjh_window_term(&w); /* left over outside of the extent before */
            return rc;
        }
        all.chunk = all.chunk * w.grid[i] + coordinates[i];
    }
    if (rc == 0) {
        rc = vjh_window_add(&w, &all);
    }
    if (rc == 0) {
        rc = vjh_window_read(&w, s->chunk);
    }
    if (rc == 0) {
        fill_outside(s, coordinates);
        rc = vjh_window_write(&w, s->chunk);
    }
    vjh_window_term(&w);
    return rc;
}

static int shrink_step(void *opaque, const char *name, const hsize_t *coordinates)
{
    struct shrinking *s = opaque;
    const hsize_t *chunk = s->d->layout.chunk;
    bool is_cut = false;

    for (int i = 0; i < s->d->rank; i++) {
        hsize_t begin;

        if (__builtin_mul_overflow(coordinates[i], chunk[i], &begin) ||
            begin >= s->dims[i]) {
            strcpy(s->doomed[s->count++], name);
            return s->count == AT_ONCE ? delete_doomed(s) : 0;
        }
        is_cut =
            is_cut || (s->dims[i] - begin < chunk[i] && s->dims[i] < vjh_dims(s->d)[i]);
    }
    return is_cut ? cut(s, coordinates) : 0;
}

static int shrink(struct vjh_dataset *d, const hsize_t *dims)
{
    struct shrinking s = {.d = d, .dims = dims};
    int rc;

    s.doomed = calloc(AT_ONCE, sizeof *s.doomed);
    if (s.doomed == NULL) {
        return -ENOMEM;
    }
    rc = vjh_each_chunk(d, shrink_step, &s);
    if (rc == 0) {
        rc = delete_doomed(&s);
    }
    free(s.doomed);
    free(s.chunk);
    return rc;
}

int vjh_extent_set(struct vjh_dataset *d, const hsize_t *dims)
{
    hsize_t *now = vjh_dims(d), before[H5S_MAX_RANK];
    bool shrinks = false, changes = false;
    uint64_t elements;
    int rc;

    /* Also where the extent is as it was. */
    if (d->layout.type != H5D_CHUNKED) {
        return vjh_error(-EINVAL, "only datasets with chunks can be extended");
    }
    rc = vjh_product(dims, d->rank, &elements);
    if (rc == 0) {
        rc = vjh_extent_read(d); /* another process may have set it */
    }
    if (rc != 0) {
        return rc;
    }
    for (int i = 0; i < d->rank; i++) {
        if (d->max_dims[i] != H5S_UNLIMITED && dims[i] > d->max_dims[i]) {
            return vjh_error(-EINVAL, "a dimension would be larger than its maximum");
        }
        shrinks = shrinks || dims[i] < now[i];
        changes = changes || dims[i] != now[i];
    }
    if (!changes) {
        return 0;
    }
    if (shrinks) {
        rc = shrink(d, dims);
    }
    if (rc == 0) {
        rc = extent_write(d, dims);
    }
    if (rc == 0) {
        memcpy(before, now, (size_t)d->rank * sizeof *dims);
        memcpy(now, dims, (size_t)d->rank * sizeof *dims);
        rc = vjh_allocate(d, before);
    }
    return rc;
}

/* ---- how much is stored ------------------------------------------------------------ */

struct sum {
    struct vjh_dataset *d;
    uint64_t chunks, bytes;
    struct varjfs_object_status *status;
    int *results;
    char (*names)[VJH_OBJECT_NAME_BYTES];
    size_t count;
};

static int add_up(struct sum *s)
{
    varjfs_batch *b;
    int rc = vjh_batch_of(s->d, &b);

    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < s->count && rc == 0; i++) {
        s->status[i].size = sizeof s->status[i];
        rc = varjfs_object_status(b, s->d->o.file->container->space, s->names[i],
                                  &s->status[i], &s->results[i]);
    }
    if (rc == 0) {
        varjfs_batch_execute(b);
    }
    varjfs_batch_free(b);
    for (size_t i = 0; i < s->count && rc == 0; i++) {
        if (s->results[i] != 0 && s->results[i] != -ENOENT) {
            rc = s->results[i];
        } else if (s->results[i] == 0 && s->status[i].bytes > VJH_FILTERED_HEAD_BYTES) {
            s->bytes += s->status[i].bytes - VJH_FILTERED_HEAD_BYTES;
        }
    }
    s->count = 0;
    return rc;
}

static int sum_step(void *opaque, const char *name, const hsize_t *coordinates)
{
    struct sum *s = opaque;

    (void)coordinates;
    s->chunks++;
    if (s->d->layout.filter_count == 0) {
        s->bytes += s->d->chunk_bytes;
        return 0;
    }
    strcpy(s->names[s->count++], name);
    return s->count == AT_ONCE ? add_up(s) : 0;
}

static int chunk_storage(struct vjh_dataset *d, uint64_t *chunks, uint64_t *bytes)
{
    struct sum s = {.d = d};
    int rc;

    s.status = calloc(AT_ONCE, sizeof *s.status);
    s.results = calloc(AT_ONCE, sizeof *s.results);
    s.names = calloc(AT_ONCE, sizeof *s.names);
    rc = s.status == NULL || s.results == NULL || s.names == NULL
             ? -ENOMEM
             : vjh_each_chunk(d, sum_step, &s);
    if (rc == 0) {
        rc = add_up(&s);
    }
    free(s.status);
    free(s.results);
    free(s.names);
    *chunks = s.chunks;
    *bytes = s.bytes;
    return rc;
}

static int is_object_there(struct vjh_dataset *d, bool *out)
{
    struct varjfs_object_status status = {.size = sizeof status};
    varjfs_batch *b;
    int result = 0, rc = vjh_batch_of(d, &b);

    if (rc != 0) {
        return rc;
    }
    rc = varjfs_object_status(b, d->o.file->container->space, d->o.data_name, &status,
                              &result);
    if (rc == 0) {
        varjfs_batch_execute(b);
        rc = result == -ENOENT ? 0 : result;
    }
    varjfs_batch_free(b);
    *out = result == 0;
    return rc;
}

/* Early allocation reserves nothing here, as all of a volume shares its space: it says
 * that all of the dataset counts as allocated. */
int vjh_storage(struct vjh_dataset *d, hsize_t *bytes, H5D_space_status_t *status)
{
    bool is_early =
        d->layout.alloc_time == H5D_ALLOC_TIME_EARLY || d->layout.type == H5D_COMPACT;
    hsize_t grid[H5S_MAX_RANK];
    uint64_t all, chunks, stored;
    bool is_there = is_early;
    int rc;

    if (d->space_class == H5S_NULL) {
        *bytes = 0;
        *status = H5D_SPACE_STATUS_NOT_ALLOCATED;
        return 0;
    }
    if (d->layout.type != H5D_CHUNKED) {
        rc = vjh_product(vjh_dims(d), d->rank, &all);
        if (rc == 0 && !is_early) {
            rc = is_object_there(d, &is_there);
        }
        *bytes = is_there ? all * d->stored_size : 0;
        *status = is_there ? H5D_SPACE_STATUS_ALLOCATED : H5D_SPACE_STATUS_NOT_ALLOCATED;
        return rc;
    }
    rc = vjh_grid(d, grid, &all);
    if (rc == 0) {
        rc = chunk_storage(d, &chunks, &stored);
    }
    if (rc != 0) {
        return rc;
    }
    if (is_early && d->layout.filter_count == 0) {
        chunks = all;
        if (__builtin_mul_overflow(all, (uint64_t)d->chunk_bytes, &stored)) {
            return vjh_error(-EFBIG, "the chunks have more than 2^64 bytes");
        }
    }
    *bytes = stored;
    *status = is_early || (chunks > 0 && chunks >= all) ? H5D_SPACE_STATUS_ALLOCATED
              : chunks == 0                             ? H5D_SPACE_STATUS_NOT_ALLOCATED
                                                        : H5D_SPACE_STATUS_PART_ALLOCATED;
    return 0;
}
