/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Keys and objects of a file
 *
 * Each function is one request, or one for each page of names.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "hdf5-private.h"

/* Most values are small: what is longer is asked for a second time. */
#define FIRST_READ_BYTES 2048
/* Names that one request removes. */
#define DELETE_AT_ONCE 1000

uint64_t vjh_random(void)
{
    uint64_t v = 0;

    if (getrandom(&v, sizeof v, 0) != sizeof v) {
        struct timespec t;

        clock_gettime(CLOCK_REALTIME, &t);
        v = (uint64_t)t.tv_sec * 1000000007u ^ (uint64_t)t.tv_nsec << 20 ^
            (uint64_t)clock();
    }
    return v;
}

int64_t vjh_now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void vjh_data_name(char out[48], uint64_t id)
{
    snprintf(out, 48, "%016" PRIx64, id);
}

/* Executes and frees @b. */
static int batch_end(varjfs_batch *b, int r)
{
    if (r == 0) {
        r = varjfs_batch_execute(b);
    }
    varjfs_batch_free(b);
    return r;
}

static int get(struct vjh_connection *c, const char *space, const struct vjh_key *key,
               struct vjh_buffer *out)
{
    size_t cap = FIRST_READ_BYTES;

    *out = (struct vjh_buffer){0};
    for (int i = 0; i < 3; i++) {
        varjfs_batch *b;
        size_t len = 0;
        char *data = malloc(cap + 1);
        int r = data ? vjh_batch(c, false, &b) : -ENOMEM;

        if (r == 0) {
            r = varjfs_kv_get(b, space, key->bytes, key->len, data, cap, &len, NULL);
            r = batch_end(b, r);
        }
        if (r == 0 && len <= cap) {
            data[len] = 0;
            *out = (struct vjh_buffer){data, len};
            return 0;
        }
        free(data);
        if (r != -ERANGE) {
            return r == 0 ? -EIO : r;
        }
        cap = VARJFS_VALUE_MAX;
    }
    return -EIO;
}

int vjh_get(struct vjh_container *c, const struct vjh_key *key, struct vjh_buffer *out)
{
    return get(c->connection, c->space, key, out);
}

int vjh_get_file(struct vjh_connection *c, const char *name, struct vjh_buffer *out)
{
    struct vjh_key key = {.len = strlen(name)};

    memcpy(key.bytes, name, key.len);
    return get(c, VJH_FILES_SPACE, &key, out);
}

/* "/f" or "/d" of a file. */
static void file_key(struct vjh_key *out, const char *kind, const uint8_t *id)
{
    out->len = 2 + VJH_FILE_ID_BYTES;
    memcpy(out->bytes, kind, 2);
    memcpy(out->bytes + 2, id, VJH_FILE_ID_BYTES);
}

static int add_file_key(varjfs_batch *b, struct vjh_key *key, const char *kind,
                        const uint8_t *id, bool is_deletion)
{
    file_key(key, kind, id);
    return is_deletion ? varjfs_kv_delete(b, VJH_FILES_SPACE, key->bytes, key->len, NULL)
                       : varjfs_kv_put(b, VJH_FILES_SPACE, key->bytes, key->len, NULL, 0,
                                       0, NULL);
}

int vjh_change_file(struct vjh_connection *c, const char *name,
                    const struct vjh_file_change *change)
{
    struct vjh_key there, doomed, made, root;
    varjfs_batch *b;
    int r = vjh_batch(c, true, &b);

    if (r != 0) {
        return r;
    }
    if (change->old_id) {
        r = add_file_key(b, &there, VJH_FILE_THERE, change->old_id, true);
        r = r == 0 ? add_file_key(b, &doomed, VJH_FILE_DOOMED, change->old_id, false) : r;
    }
    if (r == 0 && !change->new_id) {
        r = varjfs_kv_delete(b, VJH_FILES_SPACE, name, strlen(name), NULL);
    } else if (r == 0) {
        vjh_key(&root, VJH_ROOT_ID, VJH_KEY_HEADER);
        r = varjfs_kv_put(b, VJH_FILES_SPACE, name, strlen(name), change->record.data,
                          change->record.len, change->replaces ? 0 : VARJFS_EXCLUSIVE,
                          NULL);
        r = r == 0 ? add_file_key(b, &made, VJH_FILE_THERE, change->new_id, false) : r;
        r = r == 0 ? varjfs_kv_put(b, change->new_space, root.bytes, root.len,
                                   change->root.data, change->root.len, VARJFS_EXCLUSIVE,
                                   NULL)
                   : r;
    }
    return batch_end(b, r);
}

int vjh_each_doomed(struct vjh_connection *c, vjh_step *step, void *opaque)
{
    struct varjfs_entry e = {.size = sizeof e};
    varjfs_iterator *i = NULL;
    varjfs *v;
    int r = vjh_varjfs(c, &v);

    if (r == 0) {
        r = varjfs_kv_iterate(v, VJH_FILES_SPACE, VJH_FILE_DOOMED, 2, &i);
    }
    while (r == 0) {
        r = varjfs_iterator_next(i, &e);
        if (r <= 0) {
            break;
        }
        r = e.name_len == 2 + VJH_FILE_ID_BYTES
                ? step(opaque,
                       (struct vjh_slice){(const char *)e.name + 2, VJH_FILE_ID_BYTES},
                       (struct vjh_slice){0})
                : 0;
    }
    varjfs_iterator_free(i);
    return r;
}

int vjh_doomed_gone(struct vjh_connection *c, const uint8_t *id)
{
    struct vjh_key key;
    varjfs_batch *b;
    int r = vjh_batch(c, false, &b);

    if (r == 0) {
        r = batch_end(b, add_file_key(b, &key, VJH_FILE_DOOMED, id, true));
    }
    return r == -ENOENT ? 0 : r;
}

int vjh_put(struct vjh_container *c, const struct vjh_key *key, const void *value,
            size_t len, unsigned flags)
{
    varjfs_batch *b;
    int r = vjh_batch(c->connection, false, &b);

    if (r == 0) {
        r = varjfs_kv_put(b, c->space, key->bytes, key->len, value, len, flags, NULL);
        r = batch_end(b, r);
    }
    return r;
}

int vjh_delete(struct vjh_container *c, const struct vjh_key *key)
{
    varjfs_batch *b;
    int r = vjh_batch(c->connection, false, &b);

    if (r == 0) {
        r = varjfs_kv_delete(b, c->space, key->bytes, key->len, NULL);
        r = batch_end(b, r);
    }
    return r;
}

int vjh_each(struct vjh_container *c, uint64_t id, char kind, vjh_step *step,
             void *opaque)
{
    struct varjfs_entry e = {.size = sizeof e};
    varjfs_iterator *i = NULL;
    struct vjh_key key;
    varjfs *v;
    int r = vjh_varjfs(c->connection, &v);

    vjh_key(&key, id, kind);
    if (r == 0) {
        r = varjfs_kv_iterate(v, c->space, key.bytes, key.len, &i);
    }
    while (r == 0) {
        r = varjfs_iterator_next(i, &e);
        if (r <= 0) {
            break;
        }
        if (e.name_len < key.len) {
            r = -EIO;
            break;
        }
        r = step(opaque,
                 (struct vjh_slice){(const char *)e.name + key.len, e.name_len - key.len},
                 (struct vjh_slice){e.value, e.len});
    }
    varjfs_iterator_free(i);
    return r;
}

/* ---- removing much ----------------------------------------------------------------- */

/* A page of names that go with one request. */
struct doomed {
    struct vjh_key names[DELETE_AT_ONCE];
    size_t n;
};

static int doomed_delete(struct vjh_connection *c, const char *space, bool objects,
                         struct doomed *d)
{
    varjfs_batch *b;
    int r = vjh_batch(c, false, &b);
    int *results = r == 0 ? calloc(DELETE_AT_ONCE, sizeof *results) : NULL;

    if (r != 0) {
        return r;
    }
    r = results ? 0 : -ENOMEM;
    for (size_t i = 0; r == 0 && i < d->n; i++) {
        struct vjh_key *k = &d->names[i];

        if (objects) {
            r = varjfs_object_delete(b, space, (const char *)k->bytes, &results[i]);
        } else {
            r = varjfs_kv_delete(b, space, k->bytes, k->len, &results[i]);
        }
    }
    r = batch_end(b, r);
    /* Somebody else removes the same: that is no error.  What is one comes before it. */
    for (size_t i = 0; r == -ENOENT && i < d->n; i++) {
        if (results[i] != 0 && results[i] != -ENOENT) {
            r = results[i];
        }
    }
    free(results);
    d->n = 0;
    return r == -ENOENT ? 0 : r;
}

/* Objects or keys of @space whose names begin with @prefix. */
static int delete_all(struct vjh_connection *c, const char *space, bool objects,
                      const void *prefix, size_t len)
{
    struct varjfs_entry e = {.size = sizeof e};
    struct doomed *d = calloc(1, sizeof *d);
    varjfs_iterator *i = NULL;
    varjfs *v;
    int r = d ? vjh_varjfs(c, &v) : -ENOMEM;

    if (r == 0) {
        r = objects ? varjfs_object_iterate(v, space, prefix, &i)
                    : varjfs_kv_iterate(v, space, prefix, len, &i);
    }
    while (r == 0) {
        r = varjfs_iterator_next(i, &e);
        if (r <= 0) {
            break;
        }
        r = 0;
        /* Of a name of the greatest length the NUL is missing: ours are shorter. */
        if (e.name_len < VARJFS_NAME_MAX || !objects) {
            struct vjh_key *k = &d->names[d->n];

            if (e.name_len > sizeof k->bytes) {
                r = -EIO;
                break;
            }
            k->len = e.name_len;
            memcpy(k->bytes, e.name, e.name_len);
            if (objects) {
                k->bytes[e.name_len] = 0;
            }
            if (++d->n == DELETE_AT_ONCE) {
                r = doomed_delete(c, space, objects, d);
            }
        }
    }
    varjfs_iterator_free(i);
    if (r == 0 && d->n > 0) {
        r = doomed_delete(c, space, objects, d);
    }
    free(d);
    return r;
}

int vjh_delete_objects(struct vjh_container *c, const char *prefix)
{
    return delete_all(c->connection, c->space, true, prefix, strlen(prefix));
}

int vjh_delete_keys(struct vjh_container *c, uint64_t id)
{
    struct vjh_key key;

    vjh_key(&key, id, 0);
    return delete_all(c->connection, c->space, false, key.bytes, 8);
}

int vjh_delete_space(struct vjh_connection *c, const char *space)
{
    varjfs *v;
    int r = vjh_varjfs(c, &v), r2;

    if (r != 0) {
        return r;
    }
    r = varjfs_namespace_delete(v, VARJFS_KEYS, space, NULL, NULL);
    r2 = varjfs_namespace_delete(v, VARJFS_OBJECTS, space, NULL, NULL);
    r = r == -ENOENT ? 0 : r;
    return r == 0 && r2 != -ENOENT ? r2 : r;
}

int vjh_stored_bytes(struct vjh_container *c, const char *name, uint64_t *out)
{
    struct varjfs_entry e = {.size = sizeof e};
    size_t len = strlen(name);
    varjfs_iterator *i = NULL;
    varjfs *v;
    int r = vjh_varjfs(c->connection, &v);

    *out = 0;
    if (r == 0) {
        r = varjfs_object_iterate(v, c->space, name, &i);
    }
    while (r == 0) {
        struct varjfs_object_status st = {.size = sizeof st};
        const char *found;
        varjfs_batch *b;

        r = varjfs_iterator_next(i, &e);
        if (r <= 0) {
            break;
        }
        r = 0;
        found = e.name;
        if (e.name_len > len && found[len] != '.') {
            continue;
        }
        r = vjh_batch(c->connection, false, &b);
        if (r == 0) {
            r = varjfs_object_status(b, c->space, found, &st, NULL);
            r = batch_end(b, r);
        }
        if (r == 0) {
            *out += st.bytes;
        } else if (r == -ENOENT) {
            r = 0;
        }
    }
    varjfs_iterator_free(i);
    return r;
}
