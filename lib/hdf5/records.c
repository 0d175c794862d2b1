/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Keys and values of format.h
 *
 * What is decoded came from outside: a cursor compares each length with what is left.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5-private.h"

void vjh_buffer_free(struct vjh_buffer *b)
{
    free(b->data);
    *b = (struct vjh_buffer){0};
}

/* ---- keys -------------------------------------------------------------------------- */

static void put_be64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++) {
        p[i] = (uint8_t)(v >> (56 - 8 * i));
    }
}

/* FNV-1a: it parts names; that nobody finds two alike is not asked of it, as the whole
 * name stands in the value. */
static uint64_t hash(const char *s, uint64_t h)
{
    for (; *s; s++) {
        h = (h ^ (uint8_t)*s) * UINT64_C(0x100000001b3);
    }
    return h;
}

static void key_append_name(struct vjh_key *k, const char *name)
{
    size_t len = strlen(name);

    if (len <= VJH_NAME_KEY_MAX) {
        memcpy(k->bytes + k->len, name, len);
        k->len += len;
        return;
    }
    memcpy(k->bytes + k->len, name, VJH_NAME_HEAD);
    k->len += VJH_NAME_HEAD;
    k->bytes[k->len++] = 0xff;
    put_be64(k->bytes + k->len, hash(name, UINT64_C(0xcbf29ce484222325)));
    put_be64(k->bytes + k->len + 8, hash(name, UINT64_C(0x9e3779b97f4a7c15)));
    k->len += 16;
}

void vjh_key(struct vjh_key *out, uint64_t id, char kind)
{
    put_be64(out->bytes, id);
    out->bytes[8] = (uint8_t)kind;
    out->len = 9;
}

void vjh_key_number(struct vjh_key *out, uint64_t id, char kind, uint64_t number)
{
    vjh_key(out, id, kind);
    put_be64(out->bytes + 9, number);
    out->len = 17;
}

void vjh_key_name(struct vjh_key *out, uint64_t id, char kind, const char *name)
{
    vjh_key(out, id, kind);
    key_append_name(out, name);
}

void vjh_key_referrer(struct vjh_key *out, uint64_t id, uint64_t group, const char *name)
{
    vjh_key_number(out, id, VJH_KEY_REFERRER, group);
    key_append_name(out, name);
}

void vjh_key_user(struct vjh_key *out, uint64_t type, uint64_t user, const char *name)
{
    vjh_key_number(out, type, VJH_KEY_TYPE_USER, user);
    key_append_name(out, name);
}

/* ---- names ------------------------------------------------------------------------- */

struct vjh_slice vjh_name_rest(const char *name)
{
    size_t len = strlen(name);

    return len <= VJH_NAME_KEY_MAX
               ? (struct vjh_slice){0}
               : (struct vjh_slice){name + VJH_NAME_HEAD, len - VJH_NAME_HEAD};
}

bool vjh_name_is(const char *name, struct vjh_slice rest)
{
    struct vjh_slice own = vjh_name_rest(name);

    return own.len == rest.len && (!own.len || !memcmp(own.data, rest.data, own.len));
}

int vjh_name_restore(struct vjh_slice in_key, struct vjh_slice rest, char **out)
{
    size_t len = in_key.len;

    *out = NULL;
    if (len > VJH_NAME_KEY_MAX) {
        len = VJH_NAME_HEAD;
    } else if (rest.len) {
        len = 0;
    }
    if (len == 0 || rest.len > VJH_LINK_NAME_MAX || memchr(in_key.data, 0, len) ||
        (rest.len && memchr(rest.data, 0, rest.len))) {
        return vjh_error(-EIO, "the name of a link or an attribute is not one that this "
                               "version writes");
    }
    *out = malloc(len + rest.len + 1);
    if (!*out) {
        return -ENOMEM;
    }
    memcpy(*out, in_key.data, len);
    if (rest.len) {
        memcpy(*out + len, rest.data, rest.len);
    }
    (*out)[len + rest.len] = 0;
    return 0;
}

/* ---- values: writing --------------------------------------------------------------- */

struct writer {
    uint8_t *data, *p;
};

static void put_u8(struct writer *w, uint8_t v)
{
    *w->p++ = v;
}

static void put_le(struct writer *w, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        *w->p++ = (uint8_t)(v >> (8 * i));
    }
}

static void put_part(struct writer *w, struct vjh_slice s)
{
    put_le(w, s.len, 4);
    if (s.len) {
        memcpy(w->p, s.data, s.len);
    }
    w->p += s.len;
}

/* Room for @fixed bytes and @n parts; @what is too large: in the text. */
static int writer_init(struct writer *w, const char *what, size_t fixed,
                       const struct vjh_slice *parts, int n)
{
    size_t len = fixed;

    for (int i = 0; i < n; i++) {
        if (parts[i].len > VARJFS_VALUE_MAX) {
            len = VARJFS_VALUE_MAX + 1;
            break;
        }
        len += 4 + parts[i].len;
    }
    if (len > VARJFS_VALUE_MAX) {
        return vjh_error(-EFBIG,
                         "%s: its description is more than %d bytes: the type, the "
                         "dataspace or the property list is too large",
                         what, VARJFS_VALUE_MAX);
    }
    w->data = w->p = malloc(len);
    return w->data ? 0 : -ENOMEM;
}

static void writer_end(struct writer *w, struct vjh_buffer *out)
{
    *out = (struct vjh_buffer){w->data, (size_t)(w->p - w->data)};
}

int vjh_header_encode(const struct vjh_header *h, struct vjh_buffer *out)
{
    const struct vjh_slice parts[] = {h->plist, h->type, h->space, h->transform};
    struct writer w = {0};
    int r = writer_init(&w, "object", 24, parts, 4);

    *out = (struct vjh_buffer){0};
    if (r != 0) {
        return r;
    }
    put_u8(&w, VJH_FORMAT_VERSION);
    put_u8(&w, (uint8_t)h->kind);
    put_le(&w, h->flags, 2);
    put_le(&w, 0, 4);
    put_le(&w, h->created_us, 8);
    put_le(&w, h->committed_id, 8);
    for (int i = 0; i < 4; i++) {
        put_part(&w, parts[i]);
    }
    writer_end(&w, out);
    return 0;
}

int vjh_link_encode(const struct vjh_link *l, struct vjh_buffer *out)
{
    const struct vjh_slice parts[] = {l->rest, l->target};
    struct writer w = {0};
    int r = writer_init(&w, "link", 24, parts, 2);

    *out = (struct vjh_buffer){0};
    if (r != 0) {
        return r;
    }
    put_u8(&w, VJH_FORMAT_VERSION);
    put_u8(&w, (uint8_t)l->type);
    put_u8(&w, l->cset);
    put_u8(&w, l->flags);
    put_le(&w, 0, 4);
    put_le(&w, l->order, 8);
    put_le(&w, l->id, 8);
    put_part(&w, parts[0]);
    put_part(&w, parts[1]);
    writer_end(&w, out);
    return 0;
}

int vjh_attribute_encode(const struct vjh_attribute_record *a, struct vjh_buffer *out)
{
    const struct vjh_slice parts[] = {a->rest, a->type, a->space, a->data};
    struct writer w = {0};
    int r = writer_init(&w, "attribute", 32, parts, 4);

    *out = (struct vjh_buffer){0};
    if (r != 0) {
        return r;
    }
    put_u8(&w, VJH_FORMAT_VERSION);
    put_u8(&w, a->cset);
    put_le(&w, a->flags, 2);
    put_le(&w, 0, 4);
    put_le(&w, a->order, 8);
    put_le(&w, a->committed_id, 8);
    put_le(&w, a->data_id, 8);
    for (int i = 0; i < 4; i++) {
        put_part(&w, parts[i]);
    }
    writer_end(&w, out);
    return 0;
}

int vjh_file_record_encode(const struct vjh_file_record *f, struct vjh_buffer *out)
{
    struct writer w = {0};
    int r = writer_init(&w, "file", 8 + VJH_FILE_ID_BYTES + 8, &f->fcpl, 1);

    *out = (struct vjh_buffer){0};
    if (r != 0) {
        return r;
    }
    put_u8(&w, VJH_FORMAT_VERSION);
    put_le(&w, 0, 7);
    memcpy(w.p, f->id, VJH_FILE_ID_BYTES);
    w.p += VJH_FILE_ID_BYTES;
    put_le(&w, f->created_us, 8);
    put_part(&w, f->fcpl);
    writer_end(&w, out);
    return 0;
}

/* ---- values: reading --------------------------------------------------------------- */

struct reader {
    const uint8_t *p;
    size_t left;
    bool bad;
};

static uint64_t get_le(struct reader *r, int bytes)
{
    uint64_t v = 0;

    if (r->left < (size_t)bytes) {
        r->bad = true;
        return 0;
    }
    for (int i = 0; i < bytes; i++) {
        v |= (uint64_t)r->p[i] << (8 * i);
    }
    r->p += bytes;
    r->left -= (size_t)bytes;
    return v;
}

static struct vjh_slice get_bytes(struct reader *r, size_t len)
{
    struct vjh_slice s = {r->p, len};

    if (r->bad || len > r->left) {
        r->bad = true;
        return (struct vjh_slice){0};
    }
    r->p += len;
    r->left -= len;
    return s;
}

static struct vjh_slice get_part(struct reader *r)
{
    return get_bytes(r, (size_t)get_le(r, 4));
}

static struct reader reader_init(struct vjh_slice in)
{
    struct reader r = {in.data, in.len, false};

    if (get_le(&r, 1) != VJH_FORMAT_VERSION) {
        r.bad = true;
    }
    return r;
}

static int reader_end(const struct reader *r, const char *what)
{
    if (r->bad || r->left != 0) {
        return vjh_error(-EIO, "%s: what is stored is not what this version writes",
                         what);
    }
    return 0;
}

int vjh_header_decode(struct vjh_slice in, struct vjh_header *out)
{
    struct reader r = reader_init(in);

    out->kind = (enum vjh_kind)get_le(&r, 1);
    out->flags = (uint16_t)get_le(&r, 2);
    get_le(&r, 4);
    out->created_us = get_le(&r, 8);
    out->committed_id = get_le(&r, 8);
    out->plist = get_part(&r);
    out->type = get_part(&r);
    out->space = get_part(&r);
    out->transform = get_part(&r);
    if (out->kind < VJH_GROUP || out->kind > VJH_TYPE) {
        r.bad = true;
    }
    return reader_end(&r, "object");
}

/* A path has no NUL, so that it is what a program reads. */
static bool is_path(struct vjh_slice s)
{
    return s.len > 0 && !memchr(s.data, 0, s.len);
}

int vjh_link_decode(struct vjh_slice in, struct vjh_link *out)
{
    struct reader r = reader_init(in);

    out->type = (enum vjh_link_type)get_le(&r, 1);
    out->cset = (uint8_t)get_le(&r, 1);
    out->flags = (uint8_t)get_le(&r, 1);
    get_le(&r, 4);
    out->order = get_le(&r, 8);
    out->id = get_le(&r, 8);
    out->rest = get_part(&r);
    out->target = get_part(&r);
    if (out->type > VJH_LINK_SOFT || out->cset > H5T_CSET_UTF8 ||
        (out->type == VJH_LINK_SOFT && !is_path(out->target))) {
        r.bad = true;
    }
    return reader_end(&r, "link");
}

int vjh_attribute_decode(struct vjh_slice in, struct vjh_attribute_record *out)
{
    struct reader r = reader_init(in);

    out->cset = (uint8_t)get_le(&r, 1);
    out->flags = (uint16_t)get_le(&r, 2);
    get_le(&r, 4);
    out->order = get_le(&r, 8);
    out->committed_id = get_le(&r, 8);
    out->data_id = get_le(&r, 8);
    out->rest = get_part(&r);
    out->type = get_part(&r);
    out->space = get_part(&r);
    out->data = get_part(&r);
    if (out->cset > H5T_CSET_UTF8) {
        r.bad = true;
    }
    return reader_end(&r, "attribute");
}

int vjh_file_record_decode(struct vjh_slice in, struct vjh_file_record *out)
{
    struct reader r = reader_init(in);
    struct vjh_slice id;

    get_le(&r, 7);
    id = get_bytes(&r, VJH_FILE_ID_BYTES);
    if (!r.bad) {
        memcpy(out->id, id.data, VJH_FILE_ID_BYTES);
    }
    out->created_us = get_le(&r, 8);
    out->fcpl = get_part(&r);
    return reader_end(&r, "file");
}

/* ---- types and dataspaces ---------------------------------------------------------- */

int vjh_type_encode(hid_t type_id, struct vjh_buffer *out)
{
    size_t len = 0;

    *out = (struct vjh_buffer){0};
    if (H5Tencode(type_id, NULL, &len) < 0 || len == 0) {
        return vjh_error(-EINVAL, "HDF5 cannot encode the datatype");
    }
    out->data = malloc(len);
    if (!out->data) {
        return -ENOMEM;
    }
    out->len = len;
    if (H5Tencode(type_id, out->data, &len) < 0 || len > out->len) {
        vjh_buffer_free(out);
        return vjh_error(-EINVAL, "HDF5 cannot encode the datatype");
    }
    return 0;
}

int vjh_type_decode(struct vjh_slice in, hid_t *out)
{
    int r = vjh_type_check(in);

    *out = H5I_INVALID_HID;
    if (r != 0) {
        return r;
    }
    H5E_BEGIN_TRY
    {
        *out = H5Tdecode(in.data);
    }
    H5E_END_TRY
    return *out < 0 ? vjh_error(-EIO, "a stored datatype cannot be decoded") : 0;
}

/* u8 class, u8 rank, u64 for each dimension, u64 for each maximum. */
int vjh_space_encode(hid_t space_id, struct vjh_buffer *out)
{
    H5S_class_t class = H5Sget_simple_extent_type(space_id);
    hsize_t dims[2 * H5S_MAX_RANK];
    struct writer w;
    int rank = 0;

    *out = (struct vjh_buffer){0};
    if (class == H5S_SIMPLE) {
        rank = H5Sget_simple_extent_ndims(space_id);
    }
    if (class == H5S_NO_CLASS || rank < 0 || rank > H5S_MAX_RANK ||
        (class == H5S_SIMPLE && rank == 0)) {
        return vjh_error(-EINVAL, "the dataspace has no extent");
    }
    if (rank > 0 && H5Sget_simple_extent_dims(space_id, dims, dims + rank) < 0) {
        return vjh_error(-EINVAL, "the dataspace cannot be read");
    }
    w.data = w.p = malloc(2 + 16 * (size_t)rank);
    if (!w.data) {
        return -ENOMEM;
    }
    put_u8(&w, (uint8_t) class);
    put_u8(&w, (uint8_t)rank);
    for (int i = 0; i < 2 * rank; i++) {
        put_le(&w, dims[i], 8);
    }
    writer_end(&w, out);
    return 0;
}

int vjh_space_decode(struct vjh_slice in, hid_t *out)
{
    struct reader r = {in.data, in.len, false};
    uint64_t class = get_le(&r, 1), rank = get_le(&r, 1);
    hsize_t dims[2 * H5S_MAX_RANK];

    *out = H5I_INVALID_HID;
    if (rank > H5S_MAX_RANK || (rank > 0) != (class == H5S_SIMPLE)) {
        r.bad = true;
    }
    for (uint64_t i = 0; !r.bad && i < 2 * rank; i++) {
        dims[i] = get_le(&r, 8);
    }
    if (!r.bad && r.left == 0) {
        H5E_BEGIN_TRY
        {
            if (class == H5S_SIMPLE) {
                *out = H5Screate_simple((int)rank, dims, dims + rank);
            } else if (class == H5S_SCALAR || class == H5S_NULL) {
                *out = H5Screate((H5S_class_t) class);
            }
        }
        H5E_END_TRY
    }
    return *out < 0 ? vjh_error(-EIO, "a stored dataspace cannot be decoded") : 0;
}
