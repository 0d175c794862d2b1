/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Files, and the callbacks of H5F
 *
 * A file's record and its root group are made in one batch, and its record goes before
 * all else of it, so a record always leads to a whole file.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5-private.h"

/* Others that replaced a file while this process was about to. */
#define FILE_TRIES_MAX 1000

static struct vjh_file *files;
static struct vjh_container *containers;

struct vjh_file *vjh_files(void)
{
    return files;
}

unsigned long vjh_fileno(const struct vjh_container *c)
{
    unsigned long v;

    memcpy(&v, c->id, sizeof v);
    return v;
}

/* ---- names ------------------------------------------------------------------------- */

/* "./a//b" and "/a/b" are "a/b". */
static int file_name(const char *name, char **out)
{
    char *p = malloc(strlen(name) + 1), *end = p;

    *out = NULL;
    if (!p) {
        return -ENOMEM;
    }
    for (const char *s = name;;) {
        size_t len;

        s += strspn(s, "/");
        len = strcspn(s, "/");
        if (len == 0) {
            break;
        }
        if (len == 2 && !memcmp(s, "..", 2)) {
            free(p);
            return vjh_error(
                -EINVAL, "%.200s: a name of a file in the volume has no \"..\"", name);
        }
        if (len != 1 || *s != '.') {
            if (end != p) {
                *end++ = '/';
            }
            memcpy(end, s, len);
            end += len;
        }
        s += len;
    }
    *end = 0;
    if (end == p || end - p > VJH_FILE_NAME_MAX) {
        free(p);
        return vjh_error(-EINVAL, "%.200s: a file's name has 1 to %d bytes", name,
                         VJH_FILE_NAME_MAX);
    }
    *out = p;
    return 0;
}

/* ---- containers -------------------------------------------------------------------- */

static void space_name(char out[VARJFS_NAMESPACE_MAX + 1],
                       const uint8_t id[VJH_FILE_ID_BYTES])
{
    char *p = out + sprintf(out, VJH_SPACE_PREFIX);

    for (int i = 0; i < VJH_FILE_ID_BYTES; i++) {
        p += sprintf(p, "%02x", id[i]);
    }
}

static void container_unref(struct vjh_container *c)
{
    if (--c->refs > 0) {
        return;
    }
    for (struct vjh_container **p = &containers; *p; p = &(*p)->next) {
        if (*p == c) {
            *p = c->next;
            break;
        }
    }
    if (c->fcpl_id >= 0) {
        H5Pclose(c->fcpl_id);
    }
    vjh_disconnect(c->connection);
    free(c->name);
    free(c);
}

static struct vjh_container *container_find(struct vjh_connection *connection,
                                            const char *name)
{
    struct vjh_container *c = containers;

    while (c && (c->connection != connection || strcmp(c->name, name) != 0)) {
        c = c->next;
    }
    return c;
}

/* @connection is taken, also on failure. */
static int container_new(struct vjh_connection *connection, const char *name,
                         const struct vjh_file_record *record, struct vjh_container **out)
{
    struct vjh_container *c = calloc(1, sizeof *c);
    int r = c ? 0 : -ENOMEM;

    *out = NULL;
    if (r != 0) {
        vjh_disconnect(connection);
        return r;
    }
    *c = (struct vjh_container){.connection = connection, .refs = 1, .fcpl_id = -1};
    c->name = strdup(name);
    memcpy(c->id, record->id, sizeof c->id);
    space_name(c->space, c->id);
    c->next = containers;
    containers = c;
    r = c->name ? vjh_plist_decode(record->fcpl, H5P_FILE_CREATE, &c->fcpl_id) : -ENOMEM;
    if (r != 0) {
        container_unref(c);
        return r;
    }
    *out = c;
    return 0;
}

/* ---- files ------------------------------------------------------------------------- */

static void file_free(struct vjh_file *f)
{
    struct vjh_container *c = f->container;

    vjh_object_term(&f->o);
    for (struct vjh_file **p = &files; *p; p = &(*p)->next) {
        if (*p == f) {
            *p = f->next;
            break;
        }
    }
    if (f->fapl_id >= 0) {
        H5Pclose(f->fapl_id);
    }
    free(f->name);
    free(f);
    container_unref(c);
}

void vjh_file_unused(struct vjh_file *f)
{
    if (f->ids == 0 && !f->objects) {
        file_free(f);
    }
}

/* -ESTALE: another process has deleted the file, or made a new one of its name.  What
 * this one has written since then goes too. */
static int check_file(struct vjh_container *c)
{
    struct vjh_file_record record;
    struct vjh_buffer raw;
    int r = vjh_get_file(c->connection, c->name, &raw);
    bool is_ours = false;

    if (r == 0) {
        r = vjh_file_record_decode((struct vjh_slice){raw.data, raw.len}, &record);
        is_ours = r == 0 && memcmp(record.id, c->id, sizeof c->id) == 0;
        vjh_buffer_free(&raw);
    }
    if (is_ours || (r != 0 && r != -ENOENT)) {
        return r;
    }
    r = vjh_delete_space(c->connection, c->space);
    return r == 0 ? vjh_error(-ESTALE,
                              "%s has been deleted or truncated: what was written to it "
                              "is lost",
                              c->name)
                  : r;
}

/* All that has been written since the last time. */
static int confirm_all(const struct vjh_container *c)
{
    int r = 0;

    for (struct vjh_file *f = files; f; f = f->next) {
        for (struct vjh_object *o = f->objects; o && f->container == c; o = o->next) {
            int r2 = o->is_changed ? vjh_object_confirm(o) : 0;

            r = r == 0 ? r2 : r;
        }
    }
    return r;
}

int vjh_flush(struct vjh_container *c)
{
    int r = vjh_sync(c->connection);

    r = r == 0 ? check_file(c) : r;
    r = r == 0 ? confirm_all(c) : r;
    if (r == 0 && c->deferred) {
        r = vjh_error(c->deferred, "an object that was closed: %s", c->deferred_text);
        c->deferred = 0;
    }
    return r;
}

int vjh_flush_closing(struct vjh_object *o)
{
    int r = vjh_flush(o->file->container);

    if (r != 0 && o->close_failed) {
        return 0; /* HDF5, when it ends, would try for ever */
    }
    o->close_failed = r != 0;
    return r;
}

void *vjh_file_again(struct vjh_file *f)
{
    /* HDF5 looks for an id of its own first; one that the program has closed comes
     * again. */
    if (f->ids == 0) {
        f->ids = 1;
    }
    return f;
}

/* @c: the reference is taken, also on failure. */
static int file_new(struct vjh_container *c, const char *name, unsigned flags,
                    hid_t fapl_id, struct vjh_file **out)
{
    struct vjh_file *f = calloc(1, sizeof *f);
    char *root = strdup("/");
    uint16_t object_flags = 0;
    int r = f && root ? 0 : -ENOMEM;

    *out = NULL;
    if (r == 0) {
        r = vjh_object_flags(c, VJH_ROOT_ID, &object_flags);
    }
    if (r == 0) {
        f->container = c;
        f->ids = 1;
        f->intent = flags & H5F_ACC_RDWR ? H5F_ACC_RDWR : H5F_ACC_RDONLY;
        f->name = strdup(name);
        f->fapl_id = H5Pcopy(fapl_id);
        r = f->name && f->fapl_id >= 0 ? 0 : -ENOMEM;
        if (r == 0) {
            r = vjh_object_init(&f->o, H5I_FILE, f, VJH_ROOT_ID, object_flags, root);
            root = NULL;
        }
        if (r != 0) {
            if (f->fapl_id >= 0) {
                H5Pclose(f->fapl_id);
            }
            free(f->name);
        }
    }
    if (r != 0) {
        free(root);
        free(f);
        container_unref(c);
        return r;
    }
    f->next = files;
    files = f;
    *out = f;
    return 0;
}

/* ---- making and finding ------------------------------------------------------------ */

/* The root group has the link creation order of the file's creation property list. */
static int root_header(hid_t fcpl_id, struct vjh_buffer *out)
{
    struct vjh_header h = {.kind = VJH_GROUP, .created_us = (uint64_t)vjh_now_us()};
    struct vjh_buffer plist = {0};
    hid_t gcpl_id = H5Pcreate(H5P_GROUP_CREATE);
    unsigned order, max_compact, min_dense, links, name_len;
    int r = 0;

    if (gcpl_id < 0 || H5Pget_link_creation_order(fcpl_id, &order) < 0 ||
        H5Pset_link_creation_order(gcpl_id, order) < 0 ||
        H5Pget_attr_creation_order(fcpl_id, &order) < 0 ||
        H5Pset_attr_creation_order(gcpl_id, order) < 0 ||
        H5Pget_link_phase_change(fcpl_id, &max_compact, &min_dense) < 0 ||
        H5Pset_link_phase_change(gcpl_id, max_compact, min_dense) < 0 ||
        H5Pget_est_link_info(fcpl_id, &links, &name_len) < 0 ||
        H5Pset_est_link_info(gcpl_id, links, name_len) < 0) {
        r = vjh_error(-EINVAL, "the file creation property list cannot be read");
    }
    r = r == 0 ? vjh_plist_flags(gcpl_id, &h.flags) : r;
    r = r == 0 ? vjh_plist_encode(gcpl_id, &plist) : r;
    h.plist = (struct vjh_slice){plist.data, plist.len};
    r = r == 0 ? vjh_header_encode(&h, out) : r;
    vjh_buffer_free(&plist);
    if (gcpl_id >= 0) {
        H5Pclose(gcpl_id);
    }
    return r;
}

/* The spaces of a file whose record has gone. */
static int finish_deletion(struct vjh_connection *connection, const uint8_t *id)
{
    char space[VARJFS_NAMESPACE_MAX + 1];
    int r;

    space_name(space, id);
    r = vjh_delete_space(connection, space);
    return r == 0 ? vjh_doomed_gone(connection, id) : r;
}

static int finish_step(void *opaque, struct vjh_slice rest, struct vjh_slice value)
{
    (void)value;
    /* What this process may not remove, or cannot now, is left to the next one. */
    finish_deletion(opaque, rest.data);
    return 0;
}

/*
 * Gives a name another file, or none
 *
 * @change   what is to be; old_id and replaces are found here
 * @must     there has to be one: else -ENOENT, -EIO
 * @may      there may be one: else -EEXIST
 */
static int change_file(struct vjh_connection *connection, const char *name, bool must,
                       bool may, struct vjh_file_change *change)
{
    struct vjh_file_record old = {0};
    int r = -ENOENT, get;

    for (int i = 0; r != 0; i++) {
        struct vjh_buffer raw = {0};

        if (i == FILE_TRIES_MAX) {
            return vjh_error(-EBUSY, "%s: others are always faster to replace it", name);
        }
        get = may ? vjh_get_file(connection, name, &raw) : -ENOENT;
        change->replaces = get == 0;
        change->old_id = NULL;
        if (get == 0) {
            r = vjh_file_record_decode((struct vjh_slice){raw.data, raw.len}, &old);
            change->old_id = r == 0 ? old.id : NULL;
            get = must ? r : 0;
            vjh_buffer_free(&raw);
        } else if (get == -ENOENT && !must) {
            get = 0;
        }
        if (get != 0) {
            return get == -ENOENT
                       ? vjh_error(get, "%s: there is no such HDF5 file in the volume",
                                   name)
                       : get;
        }
        r = vjh_change_file(connection, name, change);
        if (r == -EEXIST && !may) {
            return vjh_error(r, "%s: there is a file of this name", name);
        }
        if (r != 0 && r != -ENOENT && r != -EEXIST) {
            return r;
        }
    }
    r = change->old_id ? finish_deletion(connection, change->old_id) : 0;
    if (r == 0) {
        /* And what others were killed at. */
        r = vjh_each_doomed(connection, finish_step, connection);
    }
    return r == -ENOENT ? 0 : r;
}

/* A new file's record, and everything that it leads to; what had the name before goes
 * with @truncate. */
static int make(struct vjh_connection *connection, const char *name, hid_t fcpl_id,
                bool truncate, struct vjh_file_record *record, struct vjh_buffer *fcpl)
{
    struct vjh_buffer value = {0}, root = {0};
    struct vjh_file_change change = {.new_id = record->id};
    char space[VARJFS_NAMESPACE_MAX + 1];
    int r = vjh_plist_encode(fcpl_id, fcpl);

    for (int i = 0; i < VJH_FILE_ID_BYTES; i += 8) {
        uint64_t v = vjh_random();

        memcpy(record->id + i, &v, 8);
    }
    record->created_us = (uint64_t)vjh_now_us();
    record->fcpl = (struct vjh_slice){fcpl->data, fcpl->len};
    space_name(space, record->id);
    r = r == 0 ? vjh_file_record_encode(record, &value) : r;
    r = r == 0 ? root_header(fcpl_id, &root) : r;
    change.new_space = space;
    change.record = (struct vjh_slice){value.data, value.len};
    change.root = (struct vjh_slice){root.data, root.len};
    if (r == 0) {
        r = change_file(connection, name, false, truncate, &change);
        if (r == -EEXIST) {
            int r2 = vjh_delete_space(connection, space); /* it may be there, empty */

            r = r2 == 0 ? r : r2;
        }
    }
    vjh_buffer_free(&value);
    vjh_buffer_free(&root);
    if (r != 0) {
        vjh_buffer_free(fcpl);
    }
    return r;
}

static void *file_create(const char *name, unsigned flags, hid_t fcpl_id, hid_t fapl_id,
                         hid_t dxpl_id, void **req)
{
    struct vjh_connection *connection = NULL;
    struct vjh_container *c = NULL;
    struct vjh_file_record record;
    struct vjh_buffer fcpl = {0};
    struct vjh_file *f = NULL;
    char *key = NULL;
    int r = file_name(name, &key);

    (void)dxpl_id;
    (void)req;
    r = r == 0 ? vjh_connect(fapl_id, &connection) : r;
    if (r == 0 && container_find(connection, key)) {
        r = vjh_error(-EBUSY, "%s is open in this process", key);
    }
    if (r == 0) {
        r = make(connection, key, fcpl_id, (flags & H5F_ACC_TRUNC) != 0, &record, &fcpl);
    }
    if (r == 0) {
        r = container_new(connection, key, &record, &c);
        connection = NULL;
    }
    r = r == 0 ? file_new(c, name, H5F_ACC_RDWR, fapl_id, &f) : r;
    vjh_buffer_free(&fcpl);
    vjh_disconnect(connection);
    free(key);
    VJH_RETURN_POINTER(r, f);
}

/* The container of a name, with a reference more. */
static int container_open(struct vjh_connection *connection, const char *key,
                          struct vjh_container **out)
{
    struct vjh_file_record record;
    struct vjh_buffer raw;
    int r = vjh_get_file(connection, key, &raw);

    *out = NULL;
    if (r == -ENOENT) {
        r = vjh_error(r, "%s: there is no such HDF5 file in the volume", key);
    }
    r = r == 0 ? vjh_file_record_decode((struct vjh_slice){raw.data, raw.len}, &record)
               : r;
    if (r != 0) {
        vjh_buffer_free(&raw);
        vjh_disconnect(connection);
        return r;
    }
    *out = container_find(connection, key);
    if (*out && memcmp((*out)->id, record.id, sizeof record.id) == 0) {
        (*out)->refs++;
        vjh_disconnect(connection);
    } else {
        r = container_new(connection, key, &record, out);
    }
    vjh_buffer_free(&raw);
    return r;
}

static void *file_open(const char *name, unsigned flags, hid_t fapl_id, hid_t dxpl_id,
                       void **req)
{
    struct vjh_connection *connection = NULL;
    struct vjh_container *c = NULL;
    struct vjh_file *f = NULL;
    char *key = NULL;
    int r = file_name(name, &key);

    (void)dxpl_id;
    (void)req;
    r = r == 0 ? vjh_connect(fapl_id, &connection) : r;
    r = r == 0 ? container_open(connection, key, &c) : r;
    r = r == 0 ? file_new(c, name, flags, fapl_id, &f) : r;
    free(key);
    VJH_RETURN_POINTER(r, f);
}

/* ---- what is open ------------------------------------------------------------------ */

/* Ids of HDF5 that stand for objects of a file. */
struct open_ids {
    const struct vjh_file *file; /* NULL: of any */
    const struct vjh_container *container;
    bool itself; /* and the file */
    bool local;  /* of this H5Fopen alone */
    hid_t *ids;
    size_t n, cap;
    int r;
};

static bool is_of(const struct open_ids *w, const void *p)
{
    for (const struct vjh_file *f = files; f; f = f->next) {
        if (f->container != w->container || (w->local && f != w->file)) {
            continue;
        }
        if (p == f && w->itself) {
            return true;
        }
        for (const struct vjh_object *o = f->objects; o; o = o->next) {
            if (p == o) {
                return true;
            }
        }
    }
    return false;
}

static herr_t open_step(hid_t id, void *opaque)
{
    struct open_ids *w = opaque;
    void *p = NULL;

    if (H5Iget_type(id) != H5I_DATATYPE || H5Tcommitted(id) > 0) {
        p = H5VLobject(id);
    }
    if (!p || !is_of(w, p)) {
        return 0;
    }
    if (w->n < w->cap) {
        w->ids[w->n] = id;
    }
    w->n++;
    return 0;
}

static int collect(struct open_ids *w, unsigned types)
{
    static const struct {
        unsigned flag;
        H5I_type_t type;
    } kinds[] = {{H5F_OBJ_FILE, H5I_FILE},
                 {H5F_OBJ_DATASET, H5I_DATASET},
                 {H5F_OBJ_GROUP, H5I_GROUP},
                 {H5F_OBJ_DATATYPE, H5I_DATATYPE},
                 {H5F_OBJ_ATTR, H5I_ATTR}};

    w->itself = true;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (types & kinds[i].flag && H5Iiterate(kinds[i].type, open_step, w) < 0) {
            return vjh_error(-EINVAL, "HDF5's identifiers cannot be listed");
        }
    }
    return 0;
}

/* H5Fclose with H5F_CLOSE_STRONG closes what is open in the file, with H5F_CLOSE_SEMI
 * it is refused then. */
static int close_objects(struct vjh_file *f)
{
    H5F_close_degree_t degree = H5F_CLOSE_DEFAULT;

    H5Pget_fclose_degree(f->fapl_id, &degree);
    if (degree == H5F_CLOSE_SEMI && f->objects) {
        return vjh_error(-EBUSY,
                         "%s: objects are open, and it was opened with "
                         "H5F_CLOSE_SEMI",
                         f->name);
    }
    while (degree == H5F_CLOSE_STRONG && f->objects) {
        hid_t ids[256];
        struct open_ids w = {
            .file = f, .container = f->container, .local = true, .ids = ids, .cap = 256};
        size_t n, closed = 0;
        int r = collect(&w, H5F_OBJ_ALL & ~(unsigned)H5F_OBJ_FILE);

        if (r != 0) {
            return r;
        }
        n = w.n < w.cap ? w.n : w.cap;
        for (size_t i = 0; i < n; i++) {
            while (H5Iis_valid(ids[i]) > 0 && H5Idec_ref(ids[i]) >= 0) {
                closed++;
            }
        }
        if (closed == 0) {
            break;
        }
    }
    return 0;
}

static herr_t file_close(void *file, hid_t dxpl_id, void **req)
{
    struct vjh_file *f = file;
    int r = close_objects(f);

    (void)dxpl_id;
    (void)req;
    if (r == 0 && f->intent & H5F_ACC_RDWR) {
        /* Also with objects open: what was written is safe as of now. */
        r = vjh_flush_closing(&f->o);
    }
    if (r == 0) {
        f->ids = 0;
        vjh_file_unused(f);
    }
    VJH_RETURN(r);
}

/* ---- other callbacks --------------------------------------------------------------- */

static int get_name(const struct vjh_file *f, H5VL_file_get_name_args_t *args)
{
    *args->file_name_len = strlen(f->name);
    if (args->buf && args->buf_size > 0) {
        snprintf(args->buf, args->buf_size, "%s", f->name);
    }
    return 0;
}

static int get_container_info(H5VL_file_cont_info_t *out)
{
    if (out->version != H5VL_CONTAINER_INFO_VERSION) {
        return vjh_error(-EINVAL, "container information of another version");
    }
    out->feature_flags = 0;
    out->token_size = sizeof(H5O_token_t);
    out->blob_id_size = H5VL_MAX_BLOB_ID_SIZE;
    return 0;
}

static herr_t file_get(void *obj, H5VL_file_get_args_t *args, hid_t dxpl_id, void **req)
{
    struct vjh_file *f = ((struct vjh_object *)obj)->file;
    struct open_ids w = {.file = f, .container = f->container};
    int r = 0;

    (void)dxpl_id;
    (void)req;
    switch (args->op_type) {
    case H5VL_FILE_GET_CONT_INFO:
        r = get_container_info(args->args.get_cont_info.info);
        break;
    case H5VL_FILE_GET_FAPL:
        args->args.get_fapl.fapl_id = H5Pcopy(f->fapl_id);
        r = args->args.get_fapl.fapl_id < 0 ? -ENOMEM : 0;
        break;
    case H5VL_FILE_GET_FCPL:
        args->args.get_fcpl.fcpl_id = H5Pcopy(f->container->fcpl_id);
        r = args->args.get_fcpl.fcpl_id < 0 ? -ENOMEM : 0;
        break;
    case H5VL_FILE_GET_FILENO:
        *args->args.get_fileno.fileno = vjh_fileno(f->container);
        break;
    case H5VL_FILE_GET_INTENT:
        *args->args.get_intent.flags = f->intent;
        break;
    case H5VL_FILE_GET_NAME:
        r = get_name(f, &args->args.get_name);
        break;
    case H5VL_FILE_GET_OBJ_COUNT:
        w.local = (args->args.get_obj_count.types & H5F_OBJ_LOCAL) != 0;
        r = collect(&w, args->args.get_obj_count.types);
        *args->args.get_obj_count.count = w.n;
        break;
    case H5VL_FILE_GET_OBJ_IDS:
        w.local = (args->args.get_obj_ids.types & H5F_OBJ_LOCAL) != 0;
        w.ids = args->args.get_obj_ids.oid_list;
        w.cap = args->args.get_obj_ids.max_objs;
        r = collect(&w, args->args.get_obj_ids.types);
        *args->args.get_obj_ids.count = w.n < w.cap ? w.n : w.cap;
        break;
    default:
        r = -ENOTSUP;
    }
    VJH_RETURN(r);
}

static int is_accessible(const char *name, hid_t fapl_id, hbool_t *out)
{
    struct vjh_connection *connection = NULL;
    struct vjh_buffer raw = {0};
    char *key = NULL;
    int r = file_name(name, &key);

    *out = false;
    r = r == 0 ? vjh_connect(fapl_id, &connection) : r;
    if (r == 0) {
        r = vjh_get_file(connection, key, &raw);
        *out = r == 0;
        r = r == -ENOENT ? 0 : r;
    }
    vjh_buffer_free(&raw);
    vjh_disconnect(connection);
    free(key);
    return r;
}

static int delete_file(const char *name, hid_t fapl_id)
{
    struct vjh_connection *connection = NULL;
    struct vjh_file_change change = {0};
    char *key = NULL;
    int r = file_name(name, &key);

    r = r == 0 ? vjh_connect(fapl_id, &connection) : r;
    if (r == 0 && container_find(connection, key)) {
        r = vjh_error(-EBUSY, "%s is open in this process", key);
    }
    r = r == 0 ? change_file(connection, key, true, true, &change) : r;
    vjh_disconnect(connection);
    free(key);
    return r;
}

static int reopen(struct vjh_file *f, void **out)
{
    struct vjh_file *again = NULL;
    int r;

    f->container->refs++;
    r = file_new(f->container, f->name, f->intent, f->fapl_id, &again);
    *out = again;
    return r;
}

static herr_t file_specific(void *obj, H5VL_file_specific_args_t *args, hid_t dxpl_id,
                            void **req)
{
    struct vjh_file *f = obj ? ((struct vjh_object *)obj)->file : NULL;
    const struct vjh_object *other;
    int r = 0;

    (void)dxpl_id;
    (void)req;
    switch (args->op_type) {
    case H5VL_FILE_FLUSH:
        r = vjh_flush(f->container);
        break;
    case H5VL_FILE_REOPEN:
        r = reopen(f, args->args.reopen.file);
        break;
    case H5VL_FILE_IS_ACCESSIBLE:
        r = is_accessible(args->args.is_accessible.filename,
                          args->args.is_accessible.fapl_id,
                          args->args.is_accessible.accessible);
        break;
    case H5VL_FILE_DELETE:
        r = delete_file(args->args.del.filename, args->args.del.fapl_id);
        break;
    case H5VL_FILE_IS_EQUAL:
        other = args->args.is_equal.obj2;
        *args->args.is_equal.same_file = other && other->file->container == f->container;
        break;
    default:
        r = -ENOTSUP;
    }
    VJH_RETURN(r);
}

static herr_t file_optional(void *obj, H5VL_optional_args_t *args, hid_t dxpl_id,
                            void **req)
{
    (void)obj;
    (void)args;
    (void)dxpl_id;
    (void)req;
    VJH_RETURN(vjh_error(-ENOTSUP, "what only HDF5's own file format has: varjfs keeps "
                                   "no such file"));
}

const H5VL_file_class_t vjh_file_class = {
    .create = file_create,
    .open = file_open,
    .get = file_get,
    .specific = file_specific,
    .optional = file_optional,
    .close = file_close,
};
