/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * repair.c - walking and changing the records of a volume at rest
 */
#include "fsck/repair-private.h"

#include <string.h>

typedef struct Change {
    VjSpace space;
    GBytes *key, *value; /* value NULL: delete */
} Change;

static void change_clear(gpointer data)
{
    Change *c = data;

    g_bytes_unref(c->key);
    if (c->value != NULL) {
        g_bytes_unref(c->value);
    }
}

VjRepair *vj_repair_new(VjVolume *v, VjCheckSay *say, void *opaque)
{
    VjRepair *r = g_new0(VjRepair, 1);

    g_assert(vj_volume_is_checked(v) && !vj_volume_read_only(v) && say != NULL);
    r->v = v;
    r->meta = vj_volume_meta(v);
    r->store = vj_volume_store(v);
    r->objects = vj_volume_objects(v);
    r->digest = vj_volume_digest(v);
    r->say = say;
    r->opaque = opaque;
    r->unread = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    r->foreign = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    r->changes = g_array_new(FALSE, FALSE, sizeof(Change));
    g_array_set_clear_func(r->changes, change_clear);
    r->got = g_byte_array_new();
    return r;
}

void vj_repair_free(VjRepair *r)
{
    if (r != NULL) {
        g_array_unref(r->changes);
        g_byte_array_unref(r->got);
        g_hash_table_unref(r->unread);
        g_hash_table_unref(r->foreign);
        g_free(r);
    }
}

void vj_repair_note_unread(VjRepair *r, uint64_t id)
{
    g_hash_table_add(r->unread, g_memdup2(&id, sizeof id));
}

VjVolume *vj_repair_volume(VjRepair *r)
{
    return r->v;
}

uint64_t vj_repair_count(const VjRepair *r)
{
    return r->mended;
}

void vj_repair_say(VjRepair *r, const char *format, ...)
{
    g_autofree char *line = NULL;
    va_list args;

    va_start(args, format);
    line = g_strdup_vprintf(format, args);
    va_end(args);
    r->mended++;
    r->say(r->opaque, line);
}

/* ---- changes ----------------------------------------------------------------------- */

static void add_change(VjRepair *r, VjSpace space, VjSlice key, const VjSlice *value)
{
    Change c = {.space = space, .key = g_bytes_new(key.data, key.len)};

    if (value != NULL) {
        c.value = g_bytes_new(value->data, value->len);
    }
    g_array_append_val(r->changes, c);
}

void vj_repair_put(VjRepair *r, VjSpace space, VjSlice key, VjSlice value)
{
    add_change(r, space, key, &value);
}

void vj_repair_del(VjRepair *r, VjSpace space, VjSlice key)
{
    add_change(r, space, key, NULL);
}

static VjSlice slice_of(GBytes *bytes)
{
    gsize len;
    const void *data = g_bytes_get_data(bytes, &len);

    return vj_slice(data, len);
}

static int commit_body(VjTxn *txn, void *opaque)
{
    const GArray *changes = opaque;
    int rc = 0;

    for (guint i = 0; rc == 0 && i < changes->len; i++) {
        const Change *c = &g_array_index(changes, Change, i);

        if (c->value != NULL) {
            rc = vj_txn_put(txn, c->space, slice_of(c->key), slice_of(c->value));
        } else {
            rc = vj_txn_del(txn, c->space, slice_of(c->key));
            rc = rc == -ENOENT ? 0 : rc;
        }
    }
    return rc;
}

int vj_repair_commit(VjRepair *r)
{
    int rc = r->changes->len == 0
                 ? 0
                 : vj_meta_run(r->meta, VJ_RUN_RELEASE, commit_body, r->changes);

    g_array_set_size(r->changes, 0);
    return rc;
}

/* ---- walks ------------------------------------------------------------------------- */

int vj_repair_each(VjRepair *r, VjSpace space, VjRepairVisit *visit, void *opaque)
{
    VjListing l;
    int rc = 0, listed;

    vj_listing_begin(&l, r->meta, space);
    while (rc == 0 && vj_listing_next(&l)) {
        rc = visit(r, l.key, l.value, opaque);
        if (rc == 0 && r->changes->len > 0) {
            rc = vj_repair_commit(r);
            vj_listing_behind(&l, l.key); /* what follows may have changed */
        }
    }
    g_array_set_size(r->changes, 0);
    listed = vj_listing_end(&l);
    return rc < 0 ? rc : listed;
}

typedef struct Get {
    VjSpace space;
    VjSlice key;
    GByteArray *value;
} Get;

static int get_body(VjTxn *txn, void *opaque)
{
    const Get *g = opaque;
    VjSlice value;
    int rc = vj_txn_get(txn, g->space, g->key, &value);

    g_byte_array_set_size(g->value, 0);
    if (rc == 0 && value.len > 0) {
        g_byte_array_append(g->value, value.data, (guint)value.len);
    }
    return rc;
}

int vj_repair_get(VjRepair *r, VjSpace space, VjSlice key, VjSlice *value)
{
    int rc = vj_meta_view(r->meta, get_body,
                          &(Get){.space = space, .key = key, .value = r->got});

    *value = vj_slice(r->got->data, r->got->len);
    return rc;
}

/* ---- bits -------------------------------------------------------------------------- */

bool vj_repair_bit(VjRepair *r, VjSpace space, VjSlice key, VjSlice value,
                   VjRepairIsGood *is_good, const char *what)
{
    uint8_t bytes[VJ_REPAIR_TRY_BYTES];

    if (value.len == 0 || value.len > sizeof bytes || vj_repair_is_sealed(value) ||
        r->tries >= VJ_REPAIR_TRIES_MAX) {
        return false;
    }
    r->tries++;
    memcpy(bytes, value.data, value.len);
    for (size_t bit = 0; bit < 8 * value.len; bit++) {
        uint8_t mask = (uint8_t)(1u << (bit & 7));

        bytes[bit >> 3] ^= mask;
        if (is_good(key, vj_slice(bytes, value.len))) {
            vj_repair_put(r, space, key, vj_slice(bytes, value.len));
            vj_repair_say(r, "%s: one wrong bit was put right", what);
            return true;
        }
        bytes[bit >> 3] ^= mask;
    }
    return false;
}

bool vj_repair_is_sealed(VjSlice value)
{
    const uint8_t *bytes = value.data;

    return value.len > 8 &&
           vj_checksum64(bytes, value.len - 8) == vj_le64_get(bytes + value.len - 8);
}
