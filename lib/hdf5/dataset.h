/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Between the files of the HDF5 connector that have to do with datasets
 *
 * A dataset is one object (contiguous, compact) or one for each chunk.  Elements are
 * counted in elements here, and become bytes only where objects are read and written.
 */
#ifndef VJH_DATASET_H
#define VJH_DATASET_H

#include "hdf5-private.h"

/* Bytes of one element as it is stored, of a chunk, and of a compact dataset. */
#define VJH_ELEMENT_BYTES_MAX (1u << 30)
#define VJH_CHUNK_BYTES_MAX (UINT64_C(4) << 30)
#define VJH_COMPACT_BYTES_MAX 65520u
#define VJH_FILTERS_MAX 31u
/* As many as H5Pget_filter2 returns. */
#define VJH_FILTER_VALUES_MAX 256u
/* Of the property "varjfs_transform". */
#define VJH_TRANSFORM_MAX 127u
/*
 * Of an object's name: ID, ".c", and a point and digits for each coordinate.  All these
 * digits are at most 16 and one for each dimension, as the product of the dimensions goes
 * into 64 bits.
 */
#define VJH_OBJECT_NAME_BYTES 160u

struct vjh_layout {
    H5D_layout_t type;
    H5D_alloc_time_t alloc_time;
    H5D_fill_time_t fill_time;
    H5D_fill_value_t fill_status;
    uint32_t attribute_flags; /* of H5Pset_attr_creation_order */
    uint32_t attribute_compact, attribute_dense;
    uint32_t chunk_opts;
    bool times_tracked;
    unsigned filter_count;
    unsigned chunk_rank;
    hsize_t chunk[H5S_MAX_RANK];
};

struct vjh_dataset {
    struct vjh_object o;
    hid_t type_id; /* of memory */
    uint64_t committed_id;
    hid_t stored_type_id; /* variable-length data and references are blobs in it */
    size_t stored_size;
    bool has_blobs;
    bool is_new;    /* created by this handle, and not written yet */
    bool is_filled; /* without chunks: its object has been seen in its whole length */
    hid_t dcpl_id, dapl_id;
    char *transform; /* NULL: as the volume has it */

    H5S_class_t space_class;
    int rank;
    hsize_t max_dims[H5S_MAX_RANK];
    hsize_t new_dims[H5S_MAX_RANK]; /* while it is created */

    struct vjh_layout layout;
    uint64_t chunk_elements;
    size_t chunk_bytes;
    uint8_t *fill; /* an element as it is stored; NULL: zero */
};

/* Its extent now. */
hsize_t *vjh_dims(struct vjh_dataset *d);

/* ---- layout.c: creation properties ------------------------------------------------- */

/* -EINVAL, -ENOTSUP: this cannot be had. */
int vjh_layout_from_dcpl(hid_t dcpl_id, struct vjh_layout *out);
/* Do type, space and layout go together?  Also the numbers that follow from them. */
int vjh_layout_check(struct vjh_dataset *d);
/* All of it as it is stored: layout, filters of @dcpl_id, the fill value of @d. */
int vjh_layout_encode(struct vjh_dataset *d, struct vjh_buffer *out);
/* Makes d->dcpl_id too.  d->stored_type_id is set. */
int vjh_layout_decode(struct vjh_dataset *d, struct vjh_slice in);
int vjh_product(const hsize_t *factors, int count, uint64_t *out);

/* ---- select.c: selections ---------------------------------------------------------- */

/* Elements that are adjacent in an object and in memory. */
struct vjh_run {
    uint64_t chunk; /* number of the chunk in row-major order; else 0 */
    uint64_t at;    /* in the object */
    uint64_t memory;
    uint64_t count;
};

struct vjh_walk; /* over a selection of a dataset and one of memory, in step */

/* @whole: the selection is all of the dataset.  @repeats: may have an element twice. */
int vjh_walk_open(struct vjh_dataset *d, hid_t mem_space_id, hid_t file_space_id,
                  struct vjh_walk **out, uint64_t *elements, bool *whole, bool *repeats);
/* 1 with *out, of at most @most elements; 0: that was all; -errno. */
int vjh_walk_next(struct vjh_walk *w, uint64_t most, struct vjh_run *out);
void vjh_walk_close(struct vjh_walk *w);

/* Chunks along each dimension. */
int vjh_grid(struct vjh_dataset *d, hsize_t *grid, uint64_t *count);
void vjh_chunk_coordinates(struct vjh_dataset *d, const hsize_t *grid, uint64_t number,
                           hsize_t *out);
/* Elements of a chunk that are within the extent. */
uint64_t vjh_chunk_inside(struct vjh_dataset *d, const hsize_t *coordinates);
/* -ENAMETOOLONG */
int vjh_chunk_name(struct vjh_dataset *d, const hsize_t *coordinates, char *out);

/* ---- chunk.c: runs become operations on objects ------------------------------------ */

/* What is done at once: runs of a selection, by object.  Memory of a run counts from
 * @base, in elements as they are stored. */
struct vjh_piece {
    uint64_t at, memory, count;
    uint32_t next; /* of the same object; UINT32_MAX: none */
};

struct vjh_part { /* an object */
    uint64_t chunk;
    uint64_t elements;
    uint32_t first, last;
    char name[VJH_OBJECT_NAME_BYTES];
};

struct vjh_window {
    struct vjh_dataset *d;
    hsize_t grid[H5S_MAX_RANK];
    bool repeats, is_whole; /* of the selection, as vjh_walk_open says it */
    bool is_write;          /* then nothing is between pieces that go together */
    struct vjh_piece *pieces;
    size_t piece_count, piece_capacity;
    struct vjh_part *parts;
    size_t part_count, part_capacity;
    uint32_t *table; /* chunk numbers; 0: free, else index of the part and 1 */
    uint64_t elements;
    uint64_t gathered_bytes; /* at most, beside the program's buffer */
};

int vjh_window_init(struct vjh_window *w, struct vjh_dataset *d, bool repeats);
void vjh_window_term(struct vjh_window *w);
void vjh_window_empty(struct vjh_window *w);
int vjh_window_add(struct vjh_window *w, const struct vjh_run *run);
/* @elements_max: that are converted at once.  False: what is in it has to be done
 * first. */
bool vjh_window_has_room(const struct vjh_window *w, const struct vjh_run *run,
                         uint64_t elements_max);
int vjh_window_read(struct vjh_window *w, uint8_t *base);
int vjh_window_write(struct vjh_window *w, const uint8_t *base);
/* The value of what was never written. */
void vjh_fill(const struct vjh_dataset *d, uint8_t *dst, uint64_t count);
/*
 * Early allocation: objects that do not have the fill value by not being there get it
 * now, so that several processes can write parts of them at once.
 *
 * @before   the extent before; NULL: it has just been created
 */
int vjh_allocate(struct vjh_dataset *d, const hsize_t *before);
int vjh_batch_of(struct vjh_dataset *d, varjfs_batch **out);
/*
 * Adds the creation of an object with the dataset's transformation, where it has one:
 * then writes have no VARJFS_CREATE, so that no object comes to be without it.
 */
int vjh_add_create(struct vjh_dataset *d, varjfs_batch *b, const char *name);
unsigned vjh_create_flag(const struct vjh_dataset *d);
/* Does the volume take the transformation?  An object is made with it, and goes. */
int vjh_check_transform(struct vjh_dataset *d);

/* ---- filter.c ---------------------------------------------------------------------- */

struct vjh_filters; /* the filters of a dataset, ready for use */

/* Bytes before what the filters made. */
#define VJH_FILTERED_HEAD_BYTES 16u

int vjh_filters_open(struct vjh_dataset *d, struct vjh_filters **out);
void vjh_filters_close(struct vjh_filters *f);
/* @is_edge: a part of the chunk is outside of the extent. */
int vjh_filters_encode(struct vjh_filters *f, const uint8_t *chunk, bool is_edge,
                       struct vjh_buffer *out);
int vjh_filters_decode(struct vjh_filters *f, struct vjh_slice in, uint8_t *chunk);
/* The record around what filters made; @object_bytes: of all of the object that has
 * it. */
int vjh_filtered_record(uint32_t mask, const void *bytes, size_t len,
                        struct vjh_buffer *out);
int vjh_filtered_head(struct vjh_slice in, uint64_t object_bytes, uint32_t *mask,
                      uint64_t *len);
/* Their parameters, as the filters themselves set them for this type and these chunks, go
 * into d->dcpl_id. */
int vjh_filters_take_values(struct vjh_dataset *d);

/* ---- blob.c ------------------------------------------------------------------------ */

/* -ENOTSUP: it has references of the file format. */
int vjh_stored_type(struct vjh_file *file, hid_t type_id, hid_t *out);
/* Blobs are those of @owner until vjh_blobs_leave with what it returned. */
struct vjh_object *vjh_blobs_enter(struct vjh_object *owner);
void vjh_blobs_leave(struct vjh_object *before);
/* A read or a write begins. */
void vjh_blobs_begin(struct vjh_object *owner);
/* Writes what was put. */
int vjh_blobs_flush(struct vjh_object *owner);
/* All elements will be written: keeps in mind the segments that only they, as they are
 * now, refer to. */
int vjh_blobs_list(struct vjh_object *owner);
/* All elements have been written: those that were listed go.  @is_replaced: or not, as
 * there are more elements. */
int vjh_blobs_trim(struct vjh_object *owner, bool is_replaced);
/* Elements will be read and written again with what they refer to. */
int vjh_blobs_keep(struct vjh_object *owner);
/* All elements that refer to what was put, or kept, have been written. */
int vjh_blobs_end(struct vjh_object *owner);
/* The write has failed with @error.  Unless some of it may still be done, nothing of it
 * is under way any more. */
void vjh_blobs_failed(struct vjh_object *owner, int error);
/* The segment that the conversion that failed did not find; 0: another reason. */
uint64_t vjh_blobs_missing(const struct vjh_object *owner);
/* The fill value's blobs, which stand in the header. */
int vjh_blobs_fill(struct vjh_object *owner, hid_t dcpl_id, hid_t stored_type_id,
                   void *element, struct vjh_buffer *blobs);
int vjh_blobs_set_fill(struct vjh_object *owner, struct vjh_slice blobs);
/* @background: NULL, or elements of @dst_id. */
int vjh_convert(struct vjh_object *owner, hid_t src_id, hid_t dst_id, size_t count,
                void *buffer, void *background, hid_t dxpl_id);
/* Of an element of @dst_id nothing is left when one of @src_id is written. */
bool vjh_replaces(hid_t src_id, hid_t dst_id);
/* *out: what the background of a conversion has to be. */
int vjh_conversion(hid_t src_id, hid_t dst_id, H5T_bkg_t *out);

/* ---- extent.c ---------------------------------------------------------------------- */

int vjh_extent_read(struct vjh_dataset *d);
/* No other process has given it another extent than the one that is known here. */
int vjh_extent_is_known(struct vjh_dataset *d, bool *out);
/* Calls @step for each chunk that is stored, until that returns another value than 0. */
typedef int vjh_chunk_step(void *opaque, const char *name, const hsize_t *coordinates);
int vjh_each_chunk(struct vjh_dataset *d, vjh_chunk_step *step, void *opaque);
int vjh_extent_set(struct vjh_dataset *d, const hsize_t *dims);
int vjh_storage(struct vjh_dataset *d, hsize_t *bytes, H5D_space_status_t *status);

/* ---- direct.c ---------------------------------------------------------------------- */

herr_t vjh_dataset_optional(void *obj, H5VL_optional_args_t *args, hid_t dxpl_id,
                            void **req);

/* ---- io.c -------------------------------------------------------------------------- */

int vjh_transfer(struct vjh_dataset *d, bool is_write, hid_t mem_type_id,
                 hid_t mem_space_id, hid_t file_space_id, hid_t dxpl_id, void *buffer);

#endif
