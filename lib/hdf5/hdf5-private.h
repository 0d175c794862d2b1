/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Between the files of the HDF5 connector
 *
 * Functions return 0 or -errno, and say more by vjh_error, unless the comment says
 * otherwise.  Callbacks of HDF5 end with vjh_return or vjh_return_pointer, which put the
 * text of the error on HDF5's error stack: not before, as most functions of HDF5 that
 * clean up empty that stack.
 *
 * Threads: HDF5 calls a connector by one thread at a time.
 */
#ifndef VJH_PRIVATE_H
#define VJH_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <H5VLconnector.h>
#include <hdf5.h>

#include <varjfs/varjfs.h>

#include "format.h"

#define VJH_CONNECTOR_NAME "varjfs"
#define VJH_CONNECTOR_VALUE ((H5VL_class_value_t)420)

/* Bytes of a file's name. */
#define VJH_FILE_NAME_MAX 254
/* Soft links that are followed to find one object. */
#define VJH_SOFT_LINKS_MAX 16
/* Groups below one another that one deletion or copy walks through. */
#define VJH_DEPTH_MAX 1024
/* Bytes of data that one call keeps in memory beside the program's buffers. */
#define VJH_WORK_BYTES (32u << 20)

/* ---- error.c ----------------------------------------------------------------------- */

/* Keeps a text for @error, -errno, and returns it.  What is not said has the text of
 * varjfs_strerror. */
int vjh_error(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* That text. */
const char *vjh_error_text(int error);
/* For a callback: 0, or -1 with the text on HDF5's error stack. */
herr_t vjh_return(int error, const char *function);
void *vjh_return_pointer(int error, void *pointer, const char *function);
#define VJH_RETURN(error) return vjh_return((error), __func__)
#define VJH_RETURN_POINTER(error, pointer)                                               \
    return vjh_return_pointer((error), (pointer), __func__)
int vjh_error_init(void);
void vjh_error_term(void);

/* ---- connection.c ------------------------------------------------------------------ */

/* What H5Pset_vol takes, and what a connector string has. */
struct vjh_info {
    unsigned refs; /* copies are the same one */
    char *source;  /* NULL: $VARJFS_SOURCE */
    char *volume;  /* NULL: $VARJFS_VOLUME */
    uint8_t safety;
    /* What is wrong with the connector string; "": nothing.  Said when a file is
     * opened: of an error before that, HDF5 makes no more than that it goes on with
     * its own files. */
    char problem[256];
};

struct vjh_connection; /* one for each source and volume, counted */

extern const H5VL_info_class_t vjh_info_class;

int vjh_connect(hid_t fapl_id, struct vjh_connection **out);
void vjh_disconnect(struct vjh_connection *c);
/* Errors after which libvarjfs uses a connection no more: what was done is not known. */
bool vjh_is_lost(int error);
/* An operation ended with @error: a daemon may have gone, and another one may be
 * there. */
void vjh_connections_failed(int error);
/* -EPERM in a child of fork(2): the connection is its parent's. */
int vjh_varjfs(struct vjh_connection *c, varjfs **out);
/* Empty; varjfs_batch_free by the caller.  @atomic: of keys alone. */
int vjh_batch(struct vjh_connection *c, bool atomic, varjfs_batch **out);
/* Its operations one after the other, none behind one that failed. */
int vjh_batch_in_order(struct vjh_connection *c, varjfs_batch **out);
int vjh_sync(struct vjh_connection *c);

struct vjh_slice {
    const void *data;
    size_t len;
};

struct vjh_buffer { /* owned bytes: vjh_buffer_free */
    void *data;
    size_t len;
};

/* ---- what is open ------------------------------------------------------------------ */

/* A file that one or more H5Fopen of this process have open. */
struct vjh_container {
    struct vjh_container *next;
    struct vjh_connection *connection; /* owned */
    unsigned refs;                     /* of struct vjh_file */
    char *name;                        /* in the volume */
    uint8_t id[VJH_FILE_ID_BYTES];
    char space[VARJFS_NAMESPACE_MAX + 1]; /* of its keys and objects */
    struct vjh_node *nodes;               /* objects that are open */
    hid_t fcpl_id;
    /* An object should have been removed when it was closed, or another process had
     * deleted it: said by the next flush. */
    int deferred;
    char deferred_text[200];
};

/* An object that this process has open, once however often that was. */
struct vjh_node {
    struct vjh_node *next;
    struct vjh_container *container;
    uint64_t id;
    unsigned refs;
    bool unlinked;  /* its last link may have gone: looked at when it is closed */
    uint16_t flags; /* of its header */
    uint64_t next_link_order, next_attribute_order; /* hints */
    bool has_dims;                                  /* of a dataset: extent.c */
    hsize_t dims[H5S_MAX_RANK];
};

/* What HDF5 has a pointer to. */
struct vjh_object {
    H5I_type_t type; /* H5I_FILE, H5I_GROUP, H5I_DATASET, H5I_DATATYPE, H5I_ATTR */
    struct vjh_object *next, **link; /* of file->objects */
    struct vjh_file *file;           /* that it was opened through; itself of a file */
    struct vjh_node *node;           /* of a file: its root group; of an attribute: whose
                                      * it is */
    char *path;                      /* "/a/b"; NULL: not known.  Of an attribute: its
                                      * owner's */
    /* The begin of names of objects that have its data: ID, or ID.a.D of an attribute. */
    char data_name[48];
    struct vjh_blobs *blobs; /* blob.c; NULL: none used yet */
    bool close_failed;       /* and its error was said */
    bool is_changed;         /* it has data that were not looked after: vjh_flush */
};

struct vjh_file {
    struct vjh_object o;
    struct vjh_file *next;           /* of all that are open: vjh_files */
    struct vjh_container *container; /* a reference */
    struct vjh_object *objects;      /* opened through it, without itself */
    char *name;                      /* as the program gave it */
    unsigned intent;                 /* H5F_ACC_RDWR or H5F_ACC_RDONLY */
    unsigned ids;                    /* of HDF5 that stand for it */
    hid_t fapl_id;
};

struct vjh_group {
    struct vjh_object o;
    hid_t gcpl_id;
};

struct vjh_datatype {
    struct vjh_object o;
    struct vjh_buffer type; /* encoded: an identifier would count as an open object */
    hid_t tcpl_id;
};

/* Room for a path of the object model: what a location means. */
struct vjh_target {
    uint64_t id;
    char *path; /* owned, NULL: not known */
};

/* ---- records.c --------------------------------------------------------------------- */

struct vjh_key {
    uint8_t bytes[VARJFS_NAME_MAX];
    size_t len;
};

/* Slices point into what was decoded. */
struct vjh_header {
    enum vjh_kind kind;
    uint16_t flags; /* VJH_..._TRACKED */
    uint64_t created_us;
    uint64_t committed_id; /* of a dataset whose type is a committed one */
    struct vjh_slice plist, type, space, transform;
};

struct vjh_link {
    enum vjh_link_type type;
    uint8_t cset;
    uint8_t flags;
    uint64_t order;
    uint64_t id;
    struct vjh_slice rest, target; /* rest: of the name */
};

struct vjh_attribute_record {
    uint8_t cset;
    uint16_t flags;
    uint64_t order, committed_id, data_id;
    struct vjh_slice rest, type, space, data;
};

struct vjh_file_record {
    uint8_t id[VJH_FILE_ID_BYTES];
    uint64_t created_us;
    struct vjh_slice fcpl;
};

void vjh_buffer_free(struct vjh_buffer *b); /* and empties it */

void vjh_key(struct vjh_key *out, uint64_t id, char kind);
void vjh_key_number(struct vjh_key *out, uint64_t id, char kind, uint64_t number);
void vjh_key_name(struct vjh_key *out, uint64_t id, char kind, const char *name);
void vjh_key_referrer(struct vjh_key *out, uint64_t id, uint64_t group, const char *name);

void vjh_key_user(struct vjh_key *out, uint64_t type, uint64_t user, const char *name);

/* What of a name stands in the value, as the key has no room for it. */
struct vjh_slice vjh_name_rest(const char *name);
bool vjh_name_is(const char *name, struct vjh_slice rest);
/* From what follows the kind in a key and the rest: *out is owned.  -EIO, -ENOMEM. */
int vjh_name_restore(struct vjh_slice in_key, struct vjh_slice rest, char **out);

/* Values.  Encoding: -EFBIG, -ENOMEM.  Decoding: -EIO, with a text that has @what. */
int vjh_header_encode(const struct vjh_header *h, struct vjh_buffer *out);
int vjh_header_decode(struct vjh_slice in, struct vjh_header *out);
int vjh_link_encode(const struct vjh_link *l, struct vjh_buffer *out);
int vjh_link_decode(struct vjh_slice in, struct vjh_link *out);
int vjh_attribute_encode(const struct vjh_attribute_record *a, struct vjh_buffer *out);
int vjh_attribute_decode(struct vjh_slice in, struct vjh_attribute_record *out);
int vjh_file_record_encode(const struct vjh_file_record *f, struct vjh_buffer *out);
int vjh_file_record_decode(struct vjh_slice in, struct vjh_file_record *out);

/* The ids that come back are the caller's to close. */
int vjh_type_encode(hid_t type_id, struct vjh_buffer *out);
int vjh_type_decode(struct vjh_slice in, hid_t *out);
int vjh_space_encode(hid_t space_id, struct vjh_buffer *out);
int vjh_space_decode(struct vjh_slice in, hid_t *out);

/* ---- type-check.c ------------------------------------------------------------------ */

/* 0; -EIO with a text: HDF5 would read beyond these bytes. */
int vjh_type_check(struct vjh_slice in);

/* ---- plist.c ----------------------------------------------------------------------- */

/* Of a group, a committed type, or a file. */
int vjh_plist_encode(hid_t plist_id, struct vjh_buffer *out);
/* @class_id  what it has to be, as H5P_GROUP_CREATE.  -EIO with a text */
int vjh_plist_decode(struct vjh_slice in, hid_t class_id, hid_t *out);

/* An object that is made: its header, encoded. */
struct vjh_new {
    struct vjh_buffer header;
    uint64_t committed_id; /* whose user it is; 0: of none */
};

/* ---- store.c ----------------------------------------------------------------------- */

/* The whole value, with a byte 0 behind it that is not counted; -ENOENT without a
 * text. */
int vjh_get(struct vjh_container *c, const struct vjh_key *key, struct vjh_buffer *out);
/* @flags: 0 or VARJFS_EXCLUSIVE: -EEXIST. */
int vjh_put(struct vjh_container *c, const struct vjh_key *key, const void *value,
            size_t len, unsigned flags);
int vjh_delete(struct vjh_container *c, const struct vjh_key *key);
/* Calls @step for each key of @id of one kind, until that returns another value than 0,
 * which is returned.  @rest: what follows the kind.  Keys are read in pages: @step may
 * use the store. */
typedef int vjh_step(void *opaque, struct vjh_slice rest, struct vjh_slice value);
int vjh_each(struct vjh_container *c, uint64_t id, char kind, vjh_step *step,
             void *opaque);
/* Removes all objects whose names begin with @prefix, and all keys of @id. */
int vjh_delete_objects(struct vjh_container *c, const char *prefix);
int vjh_delete_keys(struct vjh_container *c, uint64_t id);
/* Everything of a file, and its spaces. */
int vjh_delete_space(struct vjh_connection *c, const char *space);
/* Records of files, by name; -ENOENT without a text. */
int vjh_get_file(struct vjh_connection *c, const char *name, struct vjh_buffer *out);
/* What becomes of a name. */
struct vjh_file_change {
    const uint8_t *old_id; /* of the file that goes; its spaces go behind the batch */
    bool replaces;         /* there is a record, perhaps a damaged one */
    const uint8_t *new_id; /* NULL: none has the name then */
    const char *new_space;
    struct vjh_slice record, root; /* header of its root group */
};
/* In one atomic batch; without a text.  -ENOENT another process has deleted or replaced
 * that file; -EEXIST has made one. */
int vjh_change_file(struct vjh_connection *c, const char *name,
                    const struct vjh_file_change *change);
/* Ids of files of which the spaces are to go: @rest of @step. */
int vjh_each_doomed(struct vjh_connection *c, vjh_step *step, void *opaque);
int vjh_doomed_gone(struct vjh_connection *c, const uint8_t *id);
/* Bytes of all objects whose names are @name or begin with it and '.'. */
int vjh_stored_bytes(struct vjh_container *c, const char *name, uint64_t *out);
uint64_t vjh_random(void);
int64_t vjh_now_us(void);
/* ID. */
void vjh_data_name(char out[48], uint64_t id);

/* ---- object.c: objects that are open ----------------------------------------------- */

/* Flags of the header of an object that is created with this property list. */
int vjh_plist_flags(hid_t plist_id, uint16_t *out);
/* Is @p one of the objects that are open by files of @c? */
bool vjh_is_open(const struct vjh_container *c, const void *p);
/* Fills @o and takes a reference to @file and a node; @path is taken. */
int vjh_object_init(struct vjh_object *o, H5I_type_t type, struct vjh_file *file,
                    uint64_t id, uint16_t flags, char *path);
/*
 * Begins to close an object: what may fail, with nothing freed.  HDF5 keeps the
 * identifier of what could not be closed, and tries again: then it goes all the same.
 */
int vjh_object_closing(struct vjh_object *o);
/* Gives all that up, frees blobs and path; an object without links goes away with its
 * last one.  @o itself is the caller's. */
void vjh_object_term(struct vjh_object *o);
/* Closes a group, a dataset or a committed type that HDF5 has not taken. */
void vjh_object_discard(struct vjh_object *o);
/* -EROFS where it was opened for reading. */
int vjh_check_writable(const struct vjh_object *o);

/*
 * Creates an object and, unless @name is NULL, the link to it, in one atomic batch.
 *
 * @from, @loc  where @name begins, as callbacks get them
 * @o        is filled as by vjh_object_init
 * Returns   -EEXIST there is a link of this name
 */
int vjh_object_create(struct vjh_object *from, const H5VL_loc_params_t *loc,
                      const char *name, hid_t lcpl_id, const struct vjh_header *h,
                      H5I_type_t type, struct vjh_object *o);
/*
 * Finds an object and reads its header.
 *
 * @name     NULL: @loc alone says it
 * @kind     what it has to be; 0: any
 * @raw      owned: what *h points into
 */
int vjh_object_find(struct vjh_object *from, const H5VL_loc_params_t *loc,
                    const char *name, enum vjh_kind kind, struct vjh_target *target,
                    struct vjh_header *h, struct vjh_buffer *raw);
int vjh_header_get(struct vjh_container *c, uint64_t id, struct vjh_header *h,
                   struct vjh_buffer *raw);
/* Adds to a batch, which uses @key, that there is an object @id: else *result is -ENOENT,
 * and an atomic batch fails. */
int vjh_header_require(varjfs_batch *b, struct vjh_container *c, uint64_t id,
                       struct vjh_key *key, int *result);
/* The same for one that the batch makes a link to: who is about to remove it hears of
 * that. */
int vjh_linked_add(varjfs_batch *b, struct vjh_container *c, uint64_t id,
                   struct vjh_key *header, struct vjh_key *linked, int *result);
/* -ENOENT with a text: another process has deleted it. */
int vjh_header_check(struct vjh_container *c, uint64_t id);
/*
 * What was written through @o, is it in an object that is there?
 *
 * Returns   -ENOENT with a text: it is lost, and objects that it was written to are gone
 */
int vjh_object_confirm(struct vjh_object *o);
/* The same of one whose header is known to have gone. */
int vjh_object_is_gone(struct vjh_container *c, uint64_t id);
/* Without a link. */
int vjh_header_put(struct vjh_container *c, uint64_t id, const struct vjh_new *new);
/* @user, or its attribute @name, does not use the committed type any more. */
int vjh_type_unuse(struct vjh_container *c, uint64_t type, uint64_t user,
                   const char *name);
/* A type as HDF5 wants it from callbacks: the committed type with @committed_id, else a
 * copy of @type_id. */
int vjh_type_id(struct vjh_file *file, uint64_t committed_id, hid_t type_id, hid_t *out);
/* The object id of a type that is committed in the file of @o; 0: it is not. */
uint64_t vjh_committed_id(const struct vjh_object *o, hid_t type_id);

/* Number of links to it, of H5Oincr_refcount, and of users of a committed type. */
int vjh_link_count(struct vjh_container *c, uint64_t id, uint64_t *out);
/* Removes an object that has no links any more, and what only it had links to; one
 * that is open goes when it is closed. */
int vjh_object_remove_unlinked(struct vjh_container *c, uint64_t id);
struct vjh_node *vjh_node_find(struct vjh_container *c, uint64_t id);
/* Of a group or any object: VJH_..._TRACKED. */
int vjh_object_flags(struct vjh_container *c, uint64_t id, uint16_t *out);
/* Where none is known, "/a/b" from the links to it; *out NULL: none leads there. */
int vjh_object_path(struct vjh_container *c, uint64_t id, char **out);
int vjh_object_info(struct vjh_container *c, uint64_t id, unsigned fields,
                    H5O_info2_t *out);
/* Takes away one count that H5Oincr_refcount added. */
int vjh_referrer_drop(struct vjh_container *c, uint64_t id);

/* All that the process has written to the file is durable, and the file and what was
 * written are there: file.c.  -ESTALE, -ENOENT. */
int vjh_flush(struct vjh_container *c);
/* The same, for what is about to be closed.  0 also where it failed and had failed
 * before: that was said, and it goes all the same. */
int vjh_flush_closing(struct vjh_object *o);
/* Ends a file that neither HDF5 nor an open object needs any more: file.c. */
void vjh_file_unused(struct vjh_file *file);
/* For HDF5, which may make an id of it. */
void *vjh_file_again(struct vjh_file *file);
struct vjh_file *vjh_files(void);
unsigned long vjh_fileno(const struct vjh_container *c);

/* visit.c, copy.c */
/* An identifier of HDF5 for an object that is opened anew: H5Idec_ref. */
int vjh_open_id(struct vjh_file *file, uint64_t id, const char *path, hid_t *out);
herr_t vjh_object_visit(struct vjh_object *o, const H5VL_loc_params_t *loc,
                        H5VL_object_visit_args_t *args);
herr_t vjh_link_iterate(struct vjh_object *o, const H5VL_loc_params_t *loc,
                        H5VL_link_iterate_args_t *args);
herr_t vjh_object_copy(void *src_obj, const H5VL_loc_params_t *src_loc,
                       const char *src_name, void *dst_obj,
                       const H5VL_loc_params_t *dst_loc, const char *dst_name,
                       hid_t ocpypl_id, hid_t lcpl_id, hid_t dxpl_id, void **req);

/* An open object of a header; @path is taken, also on failure. */
int vjh_group_new(struct vjh_file *file, uint64_t id, char *path,
                  const struct vjh_header *h, struct vjh_object **out);
int vjh_datatype_new(struct vjh_file *file, uint64_t id, char *path,
                     const struct vjh_header *h, struct vjh_object **out);
int vjh_dataset_new(struct vjh_file *file, uint64_t id, char *path,
                    const struct vjh_header *h, struct vjh_object **out); /* dataset.c */

/* ---- path.c ------------------------------------------------------------------------ */

int vjh_locate(struct vjh_object *from, const H5VL_loc_params_t *loc,
               struct vjh_target *out);
void vjh_target_free(struct vjh_target *t);
/* Is it H5P_DEFAULT or a property list?  Else -EINVAL with a text that has @what. */
int vjh_check_plist(hid_t plist_id, const char *what);
/*
 * The group that @name ends in, made with those above it where @lcpl_id says so.
 *
 * @leaf     owned by the caller: the last component
 */
int vjh_locate_parent(struct vjh_object *from, const H5VL_loc_params_t *loc,
                      const char *name, hid_t lcpl_id, struct vjh_target *group,
                      char **leaf);
/* "a" + "/" + "b"; NULL if @path is NULL or for want of memory. */
char *vjh_path_join(const char *path, const char *name);
int vjh_token_id(const H5O_token_t *token, uint64_t *out); /* token.c */
void vjh_id_token(uint64_t id, H5O_token_t *out);

/* ---- link.c ------------------------------------------------------------------------ */

/* Links of a group, in memory. */
struct vjh_entry {
    char *name;
    uint64_t order, id;
    enum vjh_link_type type;
    uint8_t cset, flags;
    size_t target_len; /* with its NUL, as H5Lget_info has it */
};

struct vjh_entries {
    struct vjh_entry *v;
    size_t n, cap;
};

void vjh_entries_free(struct vjh_entries *e);
void vjh_entries_sort(struct vjh_entries *all, H5_index_t index, H5_iter_order_t order);
/* All links of a group, sorted.  H5_INDEX_CRT_ORDER where the group does not track it:
 * -EINVAL. */
int vjh_links(struct vjh_container *c, uint64_t group, H5_index_t index,
              H5_iter_order_t order, struct vjh_entries *out);
/* The @n-th of them: *e is owned by *all. */
int vjh_link_by_index(struct vjh_container *c, uint64_t group, H5_index_t index,
                      H5_iter_order_t order, hsize_t n, struct vjh_entries *all,
                      struct vjh_entry **e);
/* -ENOENT without a text.  *raw is owned and has what *l points into. */
int vjh_link_get(struct vjh_container *c, uint64_t group, const char *name,
                 struct vjh_link *l, struct vjh_buffer *raw);
/*
 * Makes a link, in one atomic batch with the header of a new object
 *
 * @l        type, cset, id, target are given; name and order are set
 * @new      NULL: the object is there
 * Returns   -EEXIST with a text
 */
int vjh_link_insert(struct vjh_container *c, uint64_t group, const char *name,
                    struct vjh_link *l, const struct vjh_new *new);
/* And what it led to, if that was its last one. */
int vjh_link_delete(struct vjh_container *c, uint64_t group, const char *name);
void vjh_link_info(const struct vjh_entry *e, H5L_info2_t *out);
/* A number of a creation order that a batch takes. */
struct vjh_order {
    char kind;     /* VJH_KEY_LINK_ORDER, VJH_KEY_ATTRIBUTE_ORDER */
    bool is_first; /* that was ever taken there */
    uint64_t number;
    int result; /* of the batch; -EEXIST, -ENOENT: another process has taken it */
    struct vjh_key keys[2];
};
/* The next one. */
int vjh_order_next(struct vjh_container *c, uint64_t id, char kind,
                   struct vjh_order *out);
/* Adds that it is taken, to an atomic batch, which uses @o. */
int vjh_order_add(varjfs_batch *b, struct vjh_container *c, uint64_t id,
                  struct vjh_order *o);
/*
 * The number with which an object that tracks them gives out the next one: @hint, of its
 * node, or, where that is 0, the one that is stored
 *
 * @try      how often others were faster
 */
int vjh_order_try(struct vjh_container *c, uint64_t id, char kind, uint64_t hint,
                  unsigned try, struct vjh_order *out);
/* Checks what is created: "" and names that are too long. */
int vjh_check_name(const char *name);

/* ---- attribute.c ------------------------------------------------------------------- */

/* As vjh_links; there is an order of creation also where the object does not track it. */
int vjh_attributes(struct vjh_container *c, uint64_t id, H5_index_t index,
                   H5_iter_order_t order, struct vjh_entries *out);
/* Adds an attribute; name and order are set.  -EEXIST with a text. */
int vjh_attribute_add(struct vjh_container *c, uint64_t id, const char *name,
                      struct vjh_attribute_record *rec);

/* ---- dataset.c, io.c, blob.c ------------------------------------------------------- */

extern const H5VL_dataset_class_t vjh_dataset_class;
extern const H5VL_blob_class_t vjh_blob_class;
/* Is this optional operation of HDF5's own format one of datasets here too? */
bool vjh_has_optional(int op_type);

/*
 * Converts a whole buffer of an attribute
 *
 * @type_id  what is stored
 * @before   what was stored before, for members that @mem_type_id lacks; empty: nothing
 * @out      owned: @count elements, and behind them the variable-length data and
 *           references that these refer to
 */
int vjh_convert_write(struct vjh_object *owner, hid_t type_id, hid_t mem_type_id,
                      size_t count, const void *buf, struct vjh_slice before,
                      struct vjh_buffer *out);
/* @data: all of it as it was stored, of hostile length and content. */
int vjh_convert_read(struct vjh_object *owner, hid_t type_id, hid_t mem_type_id,
                     size_t count, struct vjh_slice data, void *buf);
/* Bytes of an element as it is stored. */
int vjh_stored_size(struct vjh_object *owner, hid_t type_id, size_t *out);
void vjh_blobs_free(struct vjh_blobs *b); /* NULL is fine */

/* ---- classes of callbacks ---------------------------------------------------------- */

extern const H5VL_file_class_t vjh_file_class;
extern const H5VL_group_class_t vjh_group_class;
extern const H5VL_link_class_t vjh_link_class;
extern const H5VL_object_class_t vjh_object_class;
extern const H5VL_attr_class_t vjh_attribute_class;
extern const H5VL_datatype_class_t vjh_datatype_class;
extern const H5VL_token_class_t vjh_token_class;

#endif
