/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * io.c - reading and writing of selections
 *
 * Where the types of memory and of the dataset are the same, windows go straight between
 * objects and the program's memory.  Else elements of a window are brought together in a
 * buffer, converted there, and spread again.  Members of a compound that the other side
 * lacks keep their values: they are read before, as the background of the conversion.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset.h"

/* Elements that are converted at once take no more than this. */
#define CONVERT_BYTES (8u << 20)
/* Of reading elements whose variable-length data other processes replace meanwhile. */
#define TRIES_MAX 100

struct transfer {
    struct vjh_dataset *d;
    hid_t mem_type_id, dxpl_id;
    size_t mem_size;
    uint8_t *buffer; /* the program's */
    bool is_write, is_direct;
    H5T_bkg_t background;
    struct vjh_walk *walk;
    struct vjh_window window;
    /* Runs of the window as they are in the program's memory, where it is converted. */
    struct vjh_run *runs;
    size_t run_count, run_capacity;
    uint64_t most; /* elements that are converted at once */
    uint8_t *work, *under;
};

/* ---- conversion -------------------------------------------------------------------- */

static int add_run(struct transfer *t, const struct vjh_run *run)
{
    if (t->run_count == t->run_capacity) {
        size_t capacity = t->run_capacity * 2 + 64;
        struct vjh_run *more = realloc(t->runs, capacity * sizeof *more);

        if (more == NULL) {
            return -ENOMEM;
        }
        t->runs = more;
        t->run_capacity = capacity;
    }
    t->runs[t->run_count++] = *run;
    return 0;
}

static void from_memory(const struct transfer *t, uint8_t *dst)
{
    for (size_t i = 0; i < t->run_count; i++) {
        size_t bytes = (size_t)t->runs[i].count * t->mem_size;

        memcpy(dst, t->buffer + t->runs[i].memory * t->mem_size, bytes);
        dst += bytes;
    }
}

static void to_memory(const struct transfer *t, const uint8_t *src)
{
    for (size_t i = 0; i < t->run_count; i++) {
        size_t bytes = (size_t)t->runs[i].count * t->mem_size;

        memcpy(t->buffer + t->runs[i].memory * t->mem_size, src, bytes);
        src += bytes;
    }
}

static int convert_and_write(struct transfer *t)
{
    struct vjh_dataset *d = t->d;
    size_t count = (size_t)t->window.elements;
    int rc = 0;

    from_memory(t, t->work);
    if (t->background == H5T_BKG_YES) {
        rc = vjh_window_read(&t->window, t->under);
    }
    if (rc == 0) {
        rc = vjh_convert(&d->o, t->mem_type_id, d->stored_type_id, count, t->work,
                         t->under, t->dxpl_id);
    }
    if (rc == 0 && d->has_blobs) {
        rc = vjh_blobs_flush(&d->o);
    }
    return rc != 0 ? rc : vjh_window_write(&t->window, t->work);
}

static int read_and_convert_once(struct transfer *t)
{
    struct vjh_dataset *d = t->d;
    int rc = vjh_window_read(&t->window, t->work);

    if (rc == 0 && t->background == H5T_BKG_YES) {
        from_memory(t, t->under);
    }
    if (rc == 0) {
        rc = vjh_convert(&d->o, d->stored_type_id, t->mem_type_id,
                         (size_t)t->window.elements, t->work, t->under, t->dxpl_id);
    }
    return rc;
}

/*
 * Another process may write all elements between our reading of them and of what they
 * refer to: then they refer to something else now.  Where the same is missing again, it
 * is lost.
 */
static int read_and_convert(struct transfer *t)
{
    uint64_t missing = 0, before;
    int rc, tries = 0;

    do {
        before = missing;
        vjh_blobs_begin(&t->d->o);
        H5E_BEGIN_TRY
        {
            rc = read_and_convert_once(t);
        }
        H5E_END_TRY
        missing = vjh_blobs_missing(&t->d->o);
    } while (rc != 0 && missing != 0 && missing != before && ++tries < TRIES_MAX);
    if (rc == 0) {
        to_memory(t, t->work);
    }
    return rc;
}

/* ---- windows ----------------------------------------------------------------------- */

static int run_window(struct transfer *t)
{
    int rc;

    if (t->window.elements == 0) {
        return 0;
    }
    if (!t->is_direct) {
        rc = t->is_write ? convert_and_write(t) : read_and_convert(t);
    } else if (t->is_write) {
        rc = vjh_window_write(&t->window, t->buffer);
    } else {
        rc = vjh_window_read(&t->window, t->buffer);
    }
    vjh_window_empty(&t->window);
    t->run_count = 0;
    return rc;
}

static int take_run(struct transfer *t, struct vjh_run *run)
{
    int rc = 0;

    if (!t->is_direct) {
        rc = add_run(t, run);
        run->memory = t->window.elements; /* in the buffer */
    }
    return rc != 0 ? rc : vjh_window_add(&t->window, run);
}

static int run_all(struct transfer *t)
{
    struct vjh_run run;
    int rc, more;

    while ((more = vjh_walk_next(t->walk, t->most - t->window.elements, &run)) > 0) {
        rc = vjh_window_has_room(&t->window, &run, t->most) ? 0 : run_window(t);
        if (rc == 0) {
            rc = take_run(t, &run);
        }
        if (rc == 0 && t->window.elements >= t->most) {
            rc = run_window(t);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return more < 0 ? more : run_window(t);
}

/* ---- opening ----------------------------------------------------------------------- */

static int prepare_conversion(struct transfer *t, uint64_t elements)
{
    struct vjh_dataset *d = t->d;
    size_t larger = t->mem_size > d->stored_size ? t->mem_size : d->stored_size;
    size_t bytes;
    int rc;

    rc = t->is_write ? vjh_conversion(t->mem_type_id, d->stored_type_id, &t->background)
                     : vjh_conversion(d->stored_type_id, t->mem_type_id, &t->background);
    if (rc != 0) {
        return rc;
    }
    t->most = CONVERT_BYTES / larger + 1;
    /* A chunk that goes through filters is converted at once, where it may be. */
    if (d->layout.filter_count > 0 && d->chunk_elements > t->most &&
        d->chunk_elements <= VJH_WORK_BYTES / larger) {
        t->most = d->chunk_elements;
    }
    t->most = elements < t->most ? elements : t->most;
    bytes = (size_t)t->most * larger;
    t->work = malloc(bytes + 1);
    if (t->background != H5T_BKG_NO) {
        t->under = calloc(1, bytes + 1);
    }
    return t->work == NULL || (t->background != H5T_BKG_NO && t->under == NULL) ? -ENOMEM
                                                                                : 0;
}

static int check_properties(hid_t dxpl_id)
{
    ssize_t len = 0;

    if (dxpl_id == H5P_DEFAULT || dxpl_id == H5P_DATASET_XFER_DEFAULT) {
        return 0;
    }
    H5E_BEGIN_TRY
    {
        len = H5Pget_data_transform(dxpl_id, NULL, 0);
    }
    H5E_END_TRY
    return len > 0 ? vjh_error(-ENOTSUP, "H5Pset_data_transform") : 0;
}

static int prepare(struct transfer *t, hid_t mem_space_id, hid_t file_space_id,
                   uint64_t *elements)
{
    struct vjh_dataset *d = t->d;
    bool is_whole, repeats;
    int rc = check_properties(t->dxpl_id);

    if (rc == 0) {
        rc = vjh_walk_open(d, mem_space_id, file_space_id, &t->walk, elements, &is_whole,
                           &repeats);
    }
    if (rc != 0 || *elements == 0) {
        return rc;
    }
    if (t->buffer == NULL) {
        return vjh_error(-EINVAL, "there is no buffer");
    }
    t->mem_size = H5Tget_size(t->mem_type_id);
    if (t->mem_size == 0 || t->mem_size > VJH_ELEMENT_BYTES_MAX) {
        return vjh_error(-EINVAL, "the elements in memory have no size, or too much");
    }
    t->is_direct = H5Tequal(t->mem_type_id, d->stored_type_id) > 0;
    if (t->is_direct) {
        t->most = UINT64_MAX / VJH_ELEMENT_BYTES_MAX;
    } else {
        rc = prepare_conversion(t, *elements);
    }
    if (rc == 0) {
        rc = vjh_window_init(&t->window, d, repeats);
        t->window.is_whole = is_whole;
        /* Where members are kept, elements are read before they are written. */
        t->window.is_write = t->is_write && t->background != H5T_BKG_YES;
    }
    return rc;
}

/*
 * A write of all elements, and of all of each: what they referred to can go after it.
 *
 * The extent is looked at after the list: an element that another process has added since
 * we read it is not replaced, and its segment was not listed before it had that place.
 */
static int list_replaced(struct transfer *t, bool *out)
{
    int rc = vjh_blobs_list(&t->d->o);

    return rc == 0 ? vjh_extent_is_known(t->d, out) : rc;
}

static int write_all(struct transfer *t)
{
    struct vjh_dataset *d = t->d;
    bool keeps =
        d->has_blobs && !t->is_direct && !vjh_replaces(t->mem_type_id, d->stored_type_id);
    bool is_replaced = false;
    int rc = 0;

    vjh_blobs_begin(&d->o);
    if (keeps) {
        rc = vjh_blobs_keep(&d->o);
    } else if (d->has_blobs && t->window.is_whole && !d->is_new) {
        rc = list_replaced(t, &is_replaced);
    }
    if (rc == 0) {
        rc = run_all(t);
    }
    if (rc == 0) {
        rc = vjh_blobs_trim(&d->o, is_replaced);
    }
    if (rc != 0) {
        vjh_blobs_failed(&d->o, rc);
    }
    return rc == 0 ? vjh_blobs_end(&d->o) : rc;
}

int vjh_transfer(struct vjh_dataset *d, bool is_write, hid_t mem_type_id,
                 hid_t mem_space_id, hid_t file_space_id, hid_t dxpl_id, void *buffer)
{
    struct transfer t = {.d = d,
                         .is_write = is_write,
                         .mem_type_id = mem_type_id,
                         .dxpl_id = dxpl_id,
                         .buffer = buffer};
    uint64_t elements = 0;
    int rc = prepare(&t, mem_space_id, file_space_id, &elements);

    if (rc == 0 && elements > 0) {
        rc = is_write ? write_all(&t) : run_all(&t);
    }
    d->is_new = d->is_new && !is_write;
    vjh_walk_close(t.walk);
    vjh_window_term(&t.window);
    free(t.runs);
    free(t.work);
    free(t.under);
    return rc;
}
