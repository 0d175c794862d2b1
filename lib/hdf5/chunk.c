/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * chunk.c - runs of elements become reads and writes of objects
 *
 * A window has the runs that are done at once, by object.  Those that are long or alone
 * go straight from or to memory; short ones that are near each other in an object go
 * through a buffer, as one operation: a span.  All operations of a window are one batch.
 *
 * Chunks with filters are read and written whole.
 *
 * What was never written has the fill value: an object that is not there, and what is
 * behind the end of one.  So zero as the fill value costs nothing.  With another one an
 * object is asked for its length before a part of it is written.  One that is not there
 * is made whole beside its name and then gets that, unless another process was faster;
 * one that is shorter, as a write of all of it did not come to its end, is filled up.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset.h"

#define NONE UINT32_MAX
#define PIECES_MAX (256u << 10)
#define PARTS_MAX 4096u
#define TABLE_SIZE (4 * PARTS_MAX)
/* From this size on a run is an operation of its own. */
#define DIRECT_BYTES (64u << 10)
/* Runs that are as near as this are read together. */
#define GAP_BYTES 4096u
#define SPAN_BYTES_MAX (8u << 20)
/* A write that asks in the same request whether its dataset is still there. */
#define CONFIRMED_MAX 1024u
#define CONFIRMED_BYTES_MAX (8u << 20)
/* What a filter may add to a chunk before it has to be read in two steps. */
#define FILTER_SLACK(bytes) ((bytes) / 8 + 4096)

/* One operation. */
struct span {
    uint32_t part;
    uint32_t first, count; /* of pieces, as they are linked */
    uint64_t at;           /* elements */
    uint64_t elements;
    uint8_t *buffer; /* owned; NULL: straight */
    size_t got;
    int result;
};

struct spans {
    struct span *all;
    size_t count, capacity;
};

static bool is_filtered(const struct vjh_dataset *d)
{
    return d->layout.filter_count > 0;
}

/* ---- windows ----------------------------------------------------------------------- */

int vjh_window_init(struct vjh_window *w, struct vjh_dataset *d, bool repeats)
{
    uint64_t count;

    *w = (struct vjh_window){.d = d, .repeats = repeats};
    if (d->layout.type != H5D_CHUNKED) {
        return 0;
    }
    w->table = calloc(TABLE_SIZE, sizeof *w->table);
    return w->table == NULL ? -ENOMEM : vjh_grid(d, w->grid, &count);
}

void vjh_window_term(struct vjh_window *w)
{
    free(w->pieces);
    free(w->parts);
    free(w->table);
}

void vjh_window_empty(struct vjh_window *w)
{
    w->piece_count = w->part_count = 0;
    w->elements = w->gathered_bytes = 0;
    if (w->table != NULL) {
        memset(w->table, 0, TABLE_SIZE * sizeof *w->table);
    }
}

static int grow(void *array, size_t *capacity, size_t need, size_t size)
{
    void **at = array, *more;
    size_t want = *capacity * 2 + 16;

    if (need <= *capacity) {
        return 0;
    }
    more = realloc(*at, want * size); /* below PIECES_MAX * 2 */
    if (more == NULL) {
        return -ENOMEM;
    }
    *at = more;
    *capacity = want;
    return 0;
}

static int new_part(struct vjh_window *w, uint64_t chunk)
{
    struct vjh_part *part;
    hsize_t coordinates[H5S_MAX_RANK];
    int rc = grow(&w->parts, &w->part_capacity, w->part_count + 1, sizeof *w->parts);

    if (rc != 0) {
        return rc;
    }
    part = &w->parts[w->part_count];
    part->chunk = chunk;
    part->elements = 0;
    part->first = part->last = NONE;
    if (w->d->layout.type == H5D_CHUNKED) {
        vjh_chunk_coordinates(w->d, w->grid, chunk, coordinates);
        rc = vjh_chunk_name(w->d, coordinates, part->name);
    } else {
        strcpy(part->name, w->d->o.data_name);
    }
    w->part_count += rc == 0;
    return rc;
}

static uint32_t table_start(uint64_t chunk)
{
    return (uint32_t)((chunk * UINT64_C(0x9e3779b97f4a7c15)) >> 40) % TABLE_SIZE;
}

static int find_part(struct vjh_window *w, uint64_t chunk, uint32_t *out)
{
    uint32_t at;
    int rc;

    if (w->part_count > 0 && w->parts[w->part_count - 1].chunk == chunk) {
        *out = (uint32_t)w->part_count - 1;
        return 0;
    }
    *out = (uint32_t)w->part_count;
    if (w->table == NULL) {
        return new_part(w, chunk);
    }
    at = table_start(chunk);
    while (w->table[at] != 0) {
        if (w->parts[w->table[at] - 1].chunk == chunk) {
            *out = w->table[at] - 1;
            return 0;
        }
        at = (at + 1) % TABLE_SIZE;
    }
    rc = new_part(w, chunk);
    w->table[at] = rc == 0 ? *out + 1 : 0;
    return rc;
}

static bool has_part(const struct vjh_window *w, uint64_t chunk)
{
    uint32_t at = table_start(chunk);

    if (w->table == NULL) {
        return w->part_count > 0;
    }
    while (w->table[at] != 0 && w->parts[w->table[at] - 1].chunk != chunk) {
        at = (at + 1) % TABLE_SIZE;
    }
    return w->table[at] != 0;
}

/* A chunk with filters is best done at once: else it is read, and written twice. */
bool vjh_window_has_room(const struct vjh_window *w, const struct vjh_run *run,
                         uint64_t elements_max)
{
    const struct vjh_dataset *d = w->d;
    uint64_t bytes = run->count * d->stored_size;

    if (w->part_count == 0) {
        return true;
    }
    if (w->piece_count >= PIECES_MAX) {
        return false;
    }
    if (!is_filtered(d)) {
        return w->part_count < PARTS_MAX &&
               (bytes >= DIRECT_BYTES || w->gathered_bytes + bytes <= VJH_WORK_BYTES);
    }
    return has_part(w, run->chunk) ||
           (w->part_count < PARTS_MAX &&
            (w->part_count + 1) * (uint64_t)d->chunk_bytes <= VJH_WORK_BYTES &&
            w->elements <= elements_max &&
            d->chunk_elements <= elements_max - w->elements);
}

/* Bytes that are read besides, between @last and @run: see joins. */
static uint64_t bytes_between(const struct vjh_window *w, const struct vjh_piece *last,
                              const struct vjh_run *run)
{
    uint64_t size = w->d->stored_size, end;

    if (w->is_write || last == NULL) {
        return 0;
    }
    end = last->at + last->count;
    return run->at > end && run->at - end <= GAP_BYTES / size ? (run->at - end) * size
                                                              : 0;
}

int vjh_window_add(struct vjh_window *w, const struct vjh_run *run)
{
    uint64_t bytes = run->count * w->d->stored_size;
    struct vjh_piece *last;
    struct vjh_part *part;
    uint32_t at;
    int rc = find_part(w, run->chunk, &at);

    if (rc != 0) {
        return rc;
    }
    part = &w->parts[at];
    part->elements += run->count;
    w->elements += run->count;
    last = part->last == NONE ? NULL : &w->pieces[part->last];
    if (bytes < DIRECT_BYTES) {
        w->gathered_bytes += bytes + bytes_between(w, last, run);
    }
    if (last != NULL && last->at + last->count == run->at &&
        last->memory + last->count == run->memory) {
        last->count += run->count;
        return 0;
    }
    rc = grow(&w->pieces, &w->piece_capacity, w->piece_count + 1, sizeof *w->pieces);
    if (rc != 0) {
        return rc;
    }
    at = (uint32_t)w->piece_count++;
    w->pieces[at] = (struct vjh_piece){
        .at = run->at, .memory = run->memory, .count = run->count, .next = NONE};
    if (part->last == NONE) {
        part->first = at;
    } else {
        w->pieces[part->last].next = at;
    }
    part->last = at;
    return 0;
}

/* ---- fill values ------------------------------------------------------------------- */

void vjh_fill(const struct vjh_dataset *d, uint8_t *dst, uint64_t count)
{
    size_t size = d->stored_size, bytes = (size_t)count * size, done;

    if (d->fill == NULL) {
        memset(dst, 0, bytes);
        return;
    }
    for (done = 0; done < bytes; done += done == 0 ? size : done) {
        if (done == 0) {
            memcpy(dst, d->fill, size);
        } else {
            memcpy(dst + done, dst, done < bytes - done ? done : bytes - done);
        }
    }
}

/* ---- spans ------------------------------------------------------------------------- */

static void spans_free(struct spans *s)
{
    for (size_t i = 0; i < s->count; i++) {
        free(s->all[i].buffer);
    }
    free(s->all);
    *s = (struct spans){0};
}

/* Can @piece be in the span too?  What is between is read and not used; nothing may be
 * between what is written. */
static bool joins(const struct vjh_window *w, const struct span *span,
                  const struct vjh_piece *piece, bool is_write)
{
    size_t size = w->d->stored_size;
    uint64_t end = span->at + span->elements, gap;

    if (piece->at < end || piece->count * size >= DIRECT_BYTES) {
        return false;
    }
    if (span->count == 1 && span->elements * size >= DIRECT_BYTES) {
        return false; /* straight */
    }
    gap = piece->at - end;
    if (gap > 0 && (is_write || gap > GAP_BYTES / size)) {
        return false;
    }
    return (piece->at + piece->count - span->at) * size <= SPAN_BYTES_MAX;
}

static int make_spans(const struct vjh_window *w, bool is_write, struct spans *out)
{
    struct span *span;
    int rc;

    for (uint32_t p = 0; p < w->part_count; p++) {
        span = NULL;
        for (uint32_t i = w->parts[p].first; i != NONE; i = w->pieces[i].next) {
            const struct vjh_piece *piece = &w->pieces[i];

            if (span != NULL && joins(w, span, piece, is_write)) {
                span->elements = piece->at + piece->count - span->at;
                span->count++;
                continue;
            }
            rc = grow(&out->all, &out->capacity, out->count + 1, sizeof *span);
            if (rc != 0) {
                return rc;
            }
            span = &out->all[out->count++];
            *span = (struct span){.part = p,
                                  .first = i,
                                  .count = 1,
                                  .at = piece->at,
                                  .elements = piece->count};
        }
    }
    for (size_t i = 0; i < out->count; i++) {
        span = &out->all[i];
        if (span->count > 1) {
            span->buffer = malloc((size_t)span->elements * w->d->stored_size);
            if (span->buffer == NULL) {
                return -ENOMEM;
            }
        }
    }
    return 0;
}

/* Elements between a buffer that begins with the element @at of an object, and memory. */
static void scatter(const struct vjh_window *w, uint32_t first, uint32_t count,
                    const uint8_t *buffer, uint64_t at, uint8_t *base)
{
    size_t size = w->d->stored_size;

    for (uint32_t i = first; count > 0 && i != NONE; count--, i = w->pieces[i].next) {
        const struct vjh_piece *p = &w->pieces[i];

        memcpy(base + p->memory * size, buffer + (p->at - at) * size, p->count * size);
    }
}

static void gather(const struct vjh_window *w, uint32_t first, uint32_t count,
                   const uint8_t *base, uint64_t at, uint8_t *buffer)
{
    size_t size = w->d->stored_size;

    for (uint32_t i = first; count > 0 && i != NONE; count--, i = w->pieces[i].next) {
        const struct vjh_piece *p = &w->pieces[i];

        memcpy(buffer + (p->at - at) * size, base + p->memory * size, p->count * size);
    }
}

/* ---- batches ----------------------------------------------------------------------- */

int vjh_batch_of(struct vjh_dataset *d, varjfs_batch **out)
{
    return vjh_batch(d->o.file->container->connection, false, out);
}

static const char *space_of(const struct vjh_dataset *d)
{
    return d->o.file->container->space;
}

/* Results say what happened; only what ends the connection ends this too. */
static int execute(struct vjh_dataset *d, varjfs_batch *b)
{
    int rc = varjfs_batch_execute(b);

    (void)d;
    return rc == -ETIMEDOUT || rc == -ECONNRESET || rc == -E2BIG || rc == -ENOMEM ? rc
                                                                                  : 0;
}

int vjh_add_create(struct vjh_dataset *d, varjfs_batch *b, const char *name)
{
    struct varjfs_object_options options = {.size = sizeof options,
                                            .transform = d->transform};

    /* One that is there stays as it is: -EEXIST, which is nobody's error. */
    return d->transform == NULL
               ? 0
               : varjfs_object_create(b, space_of(d), name, &options, NULL);
}

unsigned vjh_create_flag(const struct vjh_dataset *d)
{
    return d->transform == NULL ? VARJFS_CREATE : 0;
}

int vjh_check_transform(struct vjh_dataset *d)
{
    char name[VJH_OBJECT_NAME_BYTES];
    varjfs_batch *b;
    int rc;

    if (d->transform == NULL) {
        return 0;
    }
    vjh_data_name(name, vjh_random());
    rc = vjh_batch_of(d, &b);
    if (rc != 0) {
        return rc;
    }
    rc = vjh_add_create(d, b, name);
    if (rc == 0) {
        rc = varjfs_object_delete(b, space_of(d), name, NULL);
    }
    if (rc == 0) {
        rc = varjfs_batch_execute(b);
    }
    varjfs_batch_free(b);
    return rc == 0 ? 0
                   : vjh_error(rc, "the transformation \"%s\": %s", d->transform,
                               varjfs_strerror(rc));
}

/* ---- reading ----------------------------------------------------------------------- */

static uint8_t *place(const struct vjh_window *w, const struct span *span, uint8_t *base)
{
    return span->buffer != NULL
               ? span->buffer
               : base + w->pieces[span->first].memory * w->d->stored_size;
}

static int take_span(const struct vjh_window *w, struct span *span, uint8_t *base)
{
    uint8_t *dst = place(w, span, base);
    size_t size = w->d->stored_size;
    uint64_t have = span->result == 0 ? span->got / size : 0;

    if (span->result != 0 && span->result != -ENOENT) {
        return vjh_error(span->result, "object %s: %s", w->parts[span->part].name,
                         varjfs_strerror(span->result));
    }
    have = have < span->elements ? have : span->elements;
    vjh_fill(w->d, dst + have * size, span->elements - have);
    if (span->buffer != NULL) {
        scatter(w, span->first, span->count, span->buffer, span->at, base);
    }
    return 0;
}

/* No object: it was never written, or all of the dataset has gone. */
static int check_dataset(const struct vjh_dataset *d)
{
    return vjh_header_check(d->o.file->container, d->o.node->id);
}

static int read_spans(struct vjh_window *w, struct spans *s, uint8_t *base)
{
    size_t size = w->d->stored_size;
    bool absent = false;
    varjfs_batch *b;
    int rc = vjh_batch_of(w->d, &b);

    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < s->count && rc == 0; i++) {
        struct span *span = &s->all[i];

        rc = varjfs_object_read(b, space_of(w->d), w->parts[span->part].name,
                                place(w, span, base), (size_t)span->elements * size,
                                span->at * size, &span->got, &span->result);
    }
    if (rc == 0) {
        rc = execute(w->d, b);
    }
    varjfs_batch_free(b);
    for (size_t i = 0; i < s->count && rc == 0; i++) {
        absent = absent || s->all[i].result == -ENOENT;
    }
    rc = rc == 0 && absent ? check_dataset(w->d) : rc;
    for (size_t i = 0; i < s->count && rc == 0; i++) {
        rc = take_span(w, &s->all[i], base);
    }
    return rc;
}

/* ---- filtered chunks --------------------------------------------------------------- */

struct record { /* of a chunk, as the filters made it */
    struct vjh_buffer bytes;
    size_t got;
    struct varjfs_object_status status;
    int result, made;
};

static void records_free(struct record *all, size_t count)
{
    for (size_t i = 0; all != NULL && i < count; i++) {
        vjh_buffer_free(&all[i].bytes);
    }
    free(all);
}

static uint64_t inside(const struct vjh_window *w, const struct vjh_part *part)
{
    hsize_t coordinates[H5S_MAX_RANK];

    vjh_chunk_coordinates(w->d, w->grid, part->chunk, coordinates);
    return vjh_chunk_inside(w->d, coordinates);
}

/* Everything that is within the extent is written. */
static bool is_covered(const struct vjh_window *w, const struct vjh_part *part)
{
    return !w->repeats && part->elements == inside(w, part);
}

/* One that the filters made longer than expected: its length is known then. */
static int read_long(struct vjh_window *w, const struct vjh_part *part, struct record *r)
{
    varjfs_batch *b;
    void *longer;
    int rc;

    if (r->status.bytes > 2 * (uint64_t)w->d->chunk_bytes + (16u << 20)) {
        return vjh_error(-EIO, "chunk %s is too long", part->name);
    }
    longer = realloc(r->bytes.data, (size_t)r->status.bytes + 1);
    if (longer == NULL) {
        return -ENOMEM;
    }
    r->bytes.data = longer;
    r->bytes.len = (size_t)r->status.bytes;
    rc = vjh_batch_of(w->d, &b);
    if (rc != 0) {
        return rc;
    }
    rc = varjfs_object_read(b, space_of(w->d), part->name, longer, r->bytes.len, 0,
                            &r->got, &r->result);
    if (rc == 0) {
        rc = execute(w->d, b);
    }
    varjfs_batch_free(b);
    return rc;
}

/* Those of parts that are not covered, or all of them. */
static int read_records(struct vjh_window *w, struct record *all, bool all_of_them)
{
    size_t bytes = w->d->chunk_bytes + FILTER_SLACK(w->d->chunk_bytes);
    bool absent = false;
    varjfs_batch *b;
    int rc = vjh_batch_of(w->d, &b);

    for (size_t i = 0; i < w->part_count && rc == 0; i++) {
        struct record *r = &all[i];

        if (!all_of_them && is_covered(w, &w->parts[i])) {
            continue;
        }
        r->bytes.data = malloc(bytes);
        r->bytes.len = bytes;
        r->status.size = sizeof r->status;
        rc = r->bytes.data == NULL ? -ENOMEM : 0;
        if (rc == 0) {
            rc = varjfs_object_read(b, space_of(w->d), w->parts[i].name, r->bytes.data,
                                    bytes, 0, &r->got, &r->result);
        }
        if (rc == 0) {
            rc = varjfs_object_status(b, space_of(w->d), w->parts[i].name, &r->status,
                                      NULL);
        }
    }
    if (rc == 0) {
        rc = execute(w->d, b);
    }
    varjfs_batch_free(b);
    for (size_t i = 0; i < w->part_count; i++) {
        absent = absent || all[i].result == -ENOENT;
    }
    rc = rc == 0 && absent ? check_dataset(w->d) : rc;
    for (size_t i = 0; i < w->part_count && rc == 0; i++) {
        struct record *r = &all[i];

        if (r->bytes.data != NULL && r->result == 0 && r->status.bytes > r->got) {
            rc = read_long(w, &w->parts[i], r);
        }
    }
    return rc;
}

/* The elements of a chunk. */
static int take_record(struct vjh_window *w, struct vjh_filters *f,
                       const struct vjh_part *part, struct record *r, uint8_t *chunk)
{
    if (r->bytes.data == NULL || r->result == -ENOENT ||
        (r->result == 0 && r->got == 0)) {
        vjh_fill(w->d, chunk, w->d->chunk_elements);
        return 0;
    }
    if (r->result != 0) {
        return vjh_error(r->result, "chunk %s: %s", part->name,
                         varjfs_strerror(r->result));
    }
    return vjh_filters_decode(f, (struct vjh_slice){r->bytes.data, r->got}, chunk);
}

static int read_filtered(struct vjh_window *w, uint8_t *base)
{
    struct record *all = calloc(w->part_count + 1, sizeof *all);
    uint8_t *chunk = malloc(w->d->chunk_bytes);
    struct vjh_filters *f = NULL;
    int rc = all == NULL || chunk == NULL ? -ENOMEM : read_records(w, all, true);

    if (rc == 0) {
        rc = vjh_filters_open(w->d, &f);
    }
    for (size_t i = 0; i < w->part_count && rc == 0; i++) {
        rc = take_record(w, f, &w->parts[i], &all[i], chunk);
        if (rc == 0) {
            scatter(w, w->parts[i].first, UINT32_MAX, chunk, 0, base);
        }
    }
    vjh_filters_close(f);
    free(chunk);
    records_free(all, w->part_count);
    return rc;
}

/* All of it is replaced in one step, if it is not longer than 8 MiB. */
static int write_records(struct vjh_window *w, struct record *all)
{
    varjfs_batch *b;
    int rc = vjh_batch_of(w->d, &b);

    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < w->part_count && rc == 0; i++) {
        struct record *r = &all[i];

        rc = vjh_add_create(w->d, b, w->parts[i].name);
        if (rc == 0) {
            rc = varjfs_object_write(b, space_of(w->d), w->parts[i].name, "", 0, 0,
                                     vjh_create_flag(w->d), &r->made);
        }
        if (rc == 0) {
            rc = varjfs_object_rwrite(b, space_of(w->d), w->parts[i].name, r->bytes.data,
                                      r->bytes.len, 0, INT64_MAX, 0, &r->result);
        }
    }
    if (rc == 0) {
        rc = execute(w->d, b);
    }
    varjfs_batch_free(b);
    for (size_t i = 0; i < w->part_count && rc == 0; i++) {
        rc = all[i].made != 0 ? all[i].made : all[i].result;
        if (rc != 0) {
            rc = vjh_error(rc, "chunk %s: %s", w->parts[i].name, varjfs_strerror(rc));
        }
    }
    return rc;
}

static int write_filtered(struct vjh_window *w, const uint8_t *base)
{
    struct record *all = calloc(w->part_count + 1, sizeof *all);
    uint8_t *chunk = malloc(w->d->chunk_bytes);
    struct vjh_filters *f = NULL;
    int rc = all == NULL || chunk == NULL ? -ENOMEM : read_records(w, all, false);

    if (rc == 0) {
        rc = vjh_filters_open(w->d, &f);
    }
    for (size_t i = 0; i < w->part_count && rc == 0; i++) {
        const struct vjh_part *part = &w->parts[i];

        rc = take_record(w, f, part, &all[i], chunk);
        if (rc == 0) {
            gather(w, part->first, UINT32_MAX, base, 0, chunk);
            vjh_buffer_free(&all[i].bytes);
            rc = vjh_filters_encode(f, chunk, inside(w, part) < w->d->chunk_elements,
                                    &all[i].bytes);
        }
    }
    vjh_filters_close(f);
    if (rc == 0) {
        w->d->o.is_changed = true;
        rc = write_records(w, all);
    }
    free(chunk);
    records_free(all, w->part_count);
    return rc;
}

/* ---- writing ----------------------------------------------------------------------- */

/* Elements of an object, all of which the fill value stands for. */
static uint64_t elements_of_object(const struct vjh_window *w)
{
    uint64_t elements = w->d->chunk_elements;

    if (w->d->layout.type != H5D_CHUNKED &&
        vjh_product(vjh_dims(w->d), w->d->rank, &elements) != 0) {
        return 0; /* was looked at when it was made */
    }
    return elements;
}

/* With VARJFS_CREATE no gap may be left that has to have the fill value. */
static bool may_create(const struct vjh_window *w, const struct span *span)
{
    const struct vjh_part *part = &w->parts[span->part];

    return w->d->fill == NULL || w->d->layout.fill_time == H5D_FILL_TIME_NEVER ||
           (w->is_whole && w->d->layout.type != H5D_CHUNKED) ||
           (!w->repeats && part->elements == elements_of_object(w));
}

/* @missing: only those that were not there, which now are. */
static int add_writes(struct vjh_window *w, struct spans *s, const uint8_t *base,
                      bool missing, varjfs_batch *b)
{
    size_t size = w->d->stored_size;
    const char *created = NULL;
    int rc = 0;

    for (size_t i = 0; i < s->count && rc == 0; i++) {
        struct span *span = &s->all[i];
        const char *name = w->parts[span->part].name;
        bool creates = missing || may_create(w, span);

        if (missing && span->result != -ENOENT) {
            continue;
        }
        if (creates && name != created) {
            rc = vjh_add_create(w->d, b, name);
            created = name;
        }
        if (rc == 0) {
            rc = varjfs_object_write(b, space_of(w->d), name,
                                     place(w, span, (uint8_t *)(uintptr_t)base),
                                     (size_t)span->elements * size, span->at * size,
                                     creates ? vjh_create_flag(w->d) : 0, &span->result);
        }
    }
    return rc;
}

static int write_spans(struct vjh_window *w, struct spans *s, const uint8_t *base,
                       bool missing)
{
    varjfs_batch *b;
    int rc = vjh_batch_of(w->d, &b);

    if (rc != 0) {
        return rc;
    }
    rc = add_writes(w, s, base, missing, b);
    if (rc == 0) {
        rc = execute(w->d, b);
    }
    varjfs_batch_free(b);
    w->d->o.is_changed = true;
    return rc;
}

/* Nothing has to be known before it, none of its operations may fail where all is well,
 * and one more does not make it two requests. */
static bool is_simple(const struct vjh_window *w, const struct spans *s)
{
    bool creates = w->d->transform == NULL && s->count < CONFIRMED_MAX;
    uint64_t elements = 0;

    for (size_t i = 0; i < s->count && creates; i++) {
        creates = may_create(w, &s->all[i]);
        elements += s->all[i].elements;
    }
    return creates && elements * w->d->stored_size <= CONFIRMED_BYTES_MAX;
}

/* In the same request, and behind it: is the dataset still there?  Else a flush or the
 * close would have to ask (vjh_object_confirm). */
static int write_and_confirm(struct vjh_window *w, struct spans *s, const uint8_t *base)
{
    struct vjh_container *c = w->d->o.file->container;
    struct vjh_key key;
    int header = 0, rc;
    varjfs_batch *b;

    rc = vjh_batch_in_order(c->connection, &b);
    if (rc != 0) {
        return rc;
    }
    rc = add_writes(w, s, base, false, b);
    if (rc == 0) {
        rc = vjh_header_require(b, c, w->d->o.node->id, &key, &header);
    }
    if (rc == 0) {
        rc = execute(w->d, b);
    }
    varjfs_batch_free(b);
    if (rc == 0 && header == -ENOENT) {
        return vjh_object_is_gone(c, w->d->o.node->id);
    }
    w->d->o.is_changed = w->d->o.is_changed || rc != 0 || header != 0;
    return rc;
}

/*
 * The fill value for elements of an object from @at on, to its end
 *
 * @to       NULL, or: @name is not there, and this is its name when all is written;
 *           *renamed -EEXIST: that is there
 */
static int fill_from(struct vjh_window *w, const char *name, uint64_t at, const char *to,
                     int *renamed)
{
    struct vjh_connection *c = w->d->o.file->container->connection;
    uint64_t all = elements_of_object(w), left = at < all ? all - at : 0;
    uint64_t most = SPAN_BYTES_MAX / w->d->stored_size + 1;
    uint64_t step = left < most ? left : most;
    uint8_t *buffer = malloc((size_t)step * w->d->stored_size + 1);
    int rc = buffer == NULL ? -ENOMEM : 0;

    if (rc == 0) {
        vjh_fill(w->d, buffer, step);
    }
    while (left > 0 && rc == 0) {
        unsigned flag = to != NULL && at == 0 ? vjh_create_flag(w->d) : 0;
        varjfs_batch *b;
        int result = 0;

        step = left < step ? left : step;
        rc = vjh_batch_in_order(c, &b);
        if (rc != 0) {
            break;
        }
        if (to != NULL && at == 0) {
            rc = vjh_add_create(w->d, b, name);
        }
        if (rc == 0) {
            rc = varjfs_object_write(b, space_of(w->d), name, buffer,
                                     (size_t)step * w->d->stored_size,
                                     at * w->d->stored_size, flag, &result);
        }
        if (rc == 0 && to != NULL && left == step) {
            rc = varjfs_object_rename(b, space_of(w->d), name, to, VARJFS_EXCLUSIVE,
                                      renamed);
        }
        if (rc == 0) {
            rc = execute(w->d, b);
        }
        varjfs_batch_free(b);
        if (rc == 0 && result != 0) {
            rc = vjh_error(result, "object %s: %s", name, varjfs_strerror(result));
        }
        at += step;
        left -= step;
    }
    free(buffer);
    return rc;
}

/* The fill value for all of an object that is not there, in one step for all others. */
static int write_fill(struct vjh_window *w, const char *name)
{
    char beside[VJH_OBJECT_NAME_BYTES];
    int renamed = 0, rc;
    varjfs_batch *b;

    snprintf(beside, sizeof beside, "%s.f.%016" PRIx64, w->d->o.data_name, vjh_random());
    rc = fill_from(w, beside, 0, name, &renamed);
    if (rc == 0 && renamed == 0) {
        return 0;
    }
    if (vjh_batch_of(w->d, &b) == 0) {
        /* What stays of it after another failure goes with the dataset. */
        if (varjfs_object_delete(b, space_of(w->d), beside, NULL) == 0) {
            varjfs_batch_execute(b);
        }
        varjfs_batch_free(b);
    }
    if (rc == 0 && renamed != -EEXIST) {
        rc = vjh_error(renamed, "object %s: %s", name, varjfs_strerror(renamed));
    }
    return rc;
}

int vjh_allocate(struct vjh_dataset *d, const hsize_t *before)
{
    hsize_t at[H5S_MAX_RANK];
    char name[VJH_OBJECT_NAME_BYTES];
    struct vjh_window w;
    uint64_t count = 1;
    int rc;

    if (d->layout.alloc_time != H5D_ALLOC_TIME_EARLY || d->fill == NULL ||
        d->layout.fill_time == H5D_FILL_TIME_NEVER || is_filtered(d) ||
        d->space_class == H5S_NULL) {
        return 0;
    }
    rc = vjh_window_init(&w, d, false);
    if (rc == 0 && d->layout.type != H5D_CHUNKED) {
        rc = write_fill(&w, d->o.data_name);
    } else if (rc == 0) {
        rc = vjh_grid(d, w.grid, &count);
        for (uint64_t number = 0; number < count && rc == 0; number++) {
            bool is_new = before == NULL;

            vjh_chunk_coordinates(d, w.grid, number, at);
            for (int i = 0; i < d->rank && !is_new; i++) {
                is_new = at[i] * d->layout.chunk[i] >= before[i];
            }
            rc = is_new ? vjh_chunk_name(d, at, name) : 0;
            if (rc == 0 && is_new) {
                rc = write_fill(&w, name);
            }
        }
    }
    vjh_window_term(&w);
    return rc;
}

static int fill_missing(struct vjh_window *w, struct spans *s, bool *some)
{
    const char *done = NULL;
    int rc = 0;

    *some = false;
    for (size_t i = 0; i < s->count && rc == 0; i++) {
        const char *name = w->parts[s->all[i].part].name;

        if (s->all[i].result == -ENOENT && name != done) {
            rc = write_fill(w, name);
            done = name;
            *some = true;
        }
    }
    return rc;
}

struct length { /* of an object that a part of is written */
    struct varjfs_object_status status;
    int result;
    bool is_asked;
};

static int ask_lengths(struct vjh_window *w, const struct spans *s, struct length *all,
                       bool *some)
{
    varjfs_batch *b;
    int rc = vjh_batch_of(w->d, &b);

    *some = false;
    for (size_t i = 0; i < s->count && rc == 0; i++) {
        uint32_t part = s->all[i].part;
        struct length *l = &all[part];

        if (!l->is_asked && !may_create(w, &s->all[i])) {
            l->is_asked = *some = true;
            l->status.size = sizeof l->status;
            rc = varjfs_object_status(b, space_of(w->d), w->parts[part].name, &l->status,
                                      &l->result);
        }
    }
    if (rc == 0 && *some) {
        rc = execute(w->d, b);
    }
    varjfs_batch_free(b);
    return rc;
}

/* Objects that parts are written of are there then, in their whole length. */
static int fill_up(struct vjh_window *w, const struct spans *s)
{
    uint64_t size = w->d->stored_size, elements = elements_of_object(w);
    bool some, is_chunked = w->d->layout.type == H5D_CHUNKED;
    struct length *all;
    int rc;

    if (w->d->fill == NULL || w->d->is_filled) {
        return 0;
    }
    all = calloc(w->part_count + 1, sizeof *all);
    rc = all == NULL ? -ENOMEM : ask_lengths(w, s, all, &some);
    for (size_t i = 0; i < w->part_count && rc == 0 && some; i++) {
        const char *name = w->parts[i].name;

        if (!all[i].is_asked) {
            continue;
        }
        if (all[i].result == -ENOENT) {
            rc = write_fill(w, name);
        } else if (all[i].result != 0) {
            rc = vjh_error(all[i].result, "object %s: %s", name,
                           varjfs_strerror(all[i].result));
        } else if (all[i].status.bytes / size < elements) {
            rc = fill_from(w, name, all[i].status.bytes / size, NULL, NULL);
        } else {
            w->d->is_filled = !is_chunked;
        }
    }
    free(all);
    return rc;
}

static int write_straight(struct vjh_window *w, const uint8_t *base)
{
    struct spans s = {0};
    bool some = false;
    int rc = make_spans(w, true, &s);

    for (size_t i = 0; i < s.count && rc == 0; i++) {
        struct span *span = &s.all[i];

        if (span->buffer != NULL) {
            gather(w, span->first, span->count, base, span->at, span->buffer);
        }
    }
    if (rc == 0 && is_simple(w, &s)) {
        rc = write_and_confirm(w, &s, base);
    } else if (rc == 0) {
        rc = fill_up(w, &s);
        rc = rc == 0 ? write_spans(w, &s, base, false) : rc;
    }
    /* Another process has removed it since. */
    if (rc == 0) {
        rc = fill_missing(w, &s, &some);
    }
    if (rc == 0 && some) {
        rc = write_spans(w, &s, base, true);
    }
    for (size_t i = 0; i < s.count && rc == 0; i++) {
        rc = s.all[i].result;
        if (rc != 0) {
            rc = vjh_error(rc, "object %s: %s", w->parts[s.all[i].part].name,
                           varjfs_strerror(rc));
        }
    }
    spans_free(&s);
    return rc;
}

int vjh_window_write(struct vjh_window *w, const uint8_t *base)
{
    return is_filtered(w->d) ? write_filtered(w, base) : write_straight(w, base);
}

int vjh_window_read(struct vjh_window *w, uint8_t *base)
{
    struct spans s = {0};
    int rc;

    if (is_filtered(w->d)) {
        return read_filtered(w, base);
    }
    rc = make_spans(w, false, &s);
    if (rc == 0) {
        rc = read_spans(w, &s, base);
    }
    spans_free(&s);
    return rc;
}
