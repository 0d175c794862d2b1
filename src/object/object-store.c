/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object-store.c - from plaintext to something that a transaction can refer to
 *
 * In order: digest; the file's own neighbours; the table of contents in flight; the
 * index; a number; encode and put.
 *
 *   - A content in flight (VjContentPut) lives from the first vj_object_store until the
 *     last vj_pending_free; equal content that comes meanwhile shares it, so it is looked
 *     up and put once.  It pins its object: so the object may die but not go.
 *   - An object that was not written or verified since open is read and compared before
 *     it is shared.  One that is damaged leaves the index by a commit of its own.
 *   - Bytes that were put and that no record names when the last holder is done are
 *     removed (unreferenced-put.c).
 */
#include "object/object-private.h"

typedef enum VjContentState {
    VJ_CONTENT_WORKING = 0, /* one thread finds or puts it; the others wait */
    VJ_CONTENT_READY = 1,
    VJ_CONTENT_FAILED = 2,
} VjContentState;

typedef struct VjContentPut {
    VjIndexKey key;
    /* guarded by the table's lock: */
    VjContentState state;
    uint64_t holders;
    bool is_shared; /* stands in the table */
    bool is_taken;  /* a transaction tried to name it */
    /* do not change once READY: */
    VjObject object; /* refs 0 when it was put */
    bool is_put;
} VjContentPut;

struct VjPendingObject {
    VjObjects *objects;
    VjContentPut *content;
    /* written by the transaction that takes it, read when that is over: */
    bool is_taken;
    bool is_stale; /* its object must not be shared again */
};

/* ---- the table --------------------------------------------------------------------- */

static guint key_hash(gconstpointer key)
{
    return vj_le32_get(key); /* the first bytes of a digest */
}

static gboolean key_equal(gconstpointer a, gconstpointer b)
{
    return memcmp(a, b, sizeof(VjIndexKey)) == 0;
}

void vj_inflight_init(VjInflight *t)
{
    vj_mutex_init(&t->lock, VJ_RANK_OBJECT_INFLIGHT, "object-inflight");
    vj_cond_init(&t->changed);
    t->contents = g_hash_table_new(key_hash, key_equal);
    t->unreferenced = g_array_new(FALSE, FALSE, sizeof(VjUnreferencedPut));
}

void vj_inflight_clear(VjInflight *t)
{
    g_assert(g_hash_table_size(t->contents) == 0 && t->pending_count == 0);
    g_hash_table_destroy(t->contents);
    g_array_unref(t->unreferenced);
    vj_cond_clear(&t->changed);
    vj_mutex_clear(&t->lock);
}

static void leave_table(VjInflight *t, VjContentPut *c)
{
    vj_mutex_assert_held(&t->lock);
    if (c->is_shared) {
        g_hash_table_remove(t->contents, &c->key);
        c->is_shared = false;
    }
}

/*
 * The content of @key in flight, with one holder more.  *is_new: the caller makes it
 * READY or FAILED; else it is READY.
 */
static VjContentPut *join(VjInflight *t, const VjIndexKey *key, bool *is_new)
{
    VjContentPut *c;

    vj_mutex_lock(&t->lock);
    while ((c = g_hash_table_lookup(t->contents, key)) != NULL) {
        c->holders++;
        while (c->state == VJ_CONTENT_WORKING) {
            vj_cond_wait(&t->changed, &t->lock);
        }
        if (c->state == VJ_CONTENT_READY) {
            break;
        }
        if (--c->holders == 0) {
            g_free(c); /* it failed; perhaps this caller has more luck */
        }
    }
    *is_new = c == NULL;
    if (c == NULL) {
        c = g_new0(VjContentPut, 1);
        c->key = *key;
        c->holders = 1;
        c->is_shared = true;
        g_hash_table_insert(t->contents, &c->key, c);
    }
    vj_mutex_unlock(&t->lock);
    return c;
}

static void end_content(VjInflight *t, VjContentPut *c, int rc)
{
    vj_mutex_lock(&t->lock);
    g_assert(c->state == VJ_CONTENT_WORKING);
    c->state = rc == 0 ? VJ_CONTENT_READY : VJ_CONTENT_FAILED;
    if (rc < 0) {
        leave_table(t, c);
        if (--c->holders == 0) {
            g_free(c);
        }
    }
    vj_cond_broadcast(&t->changed);
    vj_mutex_unlock(&t->lock);
}

/* ---- finding ----------------------------------------------------------------------- */

static int report_other_content(VjObjects *o, const VjObject *object)
{
    vj_log_error("object %" G_GUINT64_FORMAT ": its content is not what the index says",
                 object->id);
    vj_objects_count(o, damaged, 1);
    return -EBADMSG;
}

/* By the store, which need not send it: 0; -EBADMSG; -EOPNOTSUPP it cannot. */
static int verify_in_store(VjObjects *o, const VjObject *object)
{
    VjStoreForm form = vj_object_store_form(object);
    VjDigest digest;
    int rc = vj_store_digest(o->store, object->id, object->loc, &form,
                             (uint8_t)o->digest->id, &digest);

    if (rc < 0) {
        return rc;
    }
    return memcmp(&digest, &object->digest, sizeof digest) == 0
               ? 0
               : report_other_content(o, object);
}

/* Bytes at content->plain. */
static uint32_t plain_first(const VjPlain *content)
{
    g_assert(content->rest == NULL ||
             (content->first_len > 0 && content->first_len < content->len));
    return content->rest == NULL ? content->len : content->first_len;
}

/* What was decoded is compared, and not what is stored: equal content is encoded
 * otherwise in each object by a codec that uses the context. */
static int verify_here(VjObjects *o, const VjObject *object, const VjPlain *content)
{
    uint32_t first = plain_first(content);
    g_autoptr(VjBuf) got = NULL;
    int rc = vj_object_load(o, object, &got);

    if (rc < 0) {
        return rc;
    }
    g_assert(object->plain_bytes == content->len);
    return memcmp(got->data, content->plain, first) == 0 &&
                   (first == content->len ||
                    memcmp(got->data + first, content->rest, content->len - first) == 0)
               ? 0
               : report_other_content(o, object);
}

/*
 * May @object (pinned) stand for @content, which has its digest?  0 yes; -EBADMSG no, it
 * is damaged; other errors: not known now.
 */
static int verify(VjObjects *o, const VjObject *object, const VjPlain *content)
{
    int rc;

    if ((object->flags & VJ_OBJECT_DAMAGED) != 0) {
        return -EBADMSG;
    }
    if (vj_verified_has(&o->verified, object->id)) {
        return 0;
    }
    rc = verify_in_store(o, object);
    if (rc == -EOPNOTSUPP) {
        rc = verify_here(o, object, content);
    }
    if (rc == -ENOENT || rc == -EIO || rc == -EOPNOTSUPP) {
        return -EBADMSG; /* what cannot be read is no better */
    }
    if (rc == 0) {
        vj_objects_count(o, verified, 1);
        vj_verified_add(&o->verified, object->id);
    }
    return rc;
}

typedef struct VjLookUp {
    const VjIndexKey *key;
    uint64_t id;     /* that the index names; 0: none, or its entry is damaged */
    VjObject object; /* its record */
} VjLookUp;

static int look_up_body(VjTxn *txn, void *opaque)
{
    VjLookUp *l = opaque;
    VjIndexKey named;
    int rc = vj_index_get(txn, l->key, &l->id);

    if (rc < 0) {
        l->id = 0;
        return rc;
    }
    rc = vj_object_record_get(txn, VJ_SPACE_OBJECT, l->id, &l->object);
    if (rc == -ENOENT) {
        return -EBADMSG; /* the index names nothing */
    }
    if (rc < 0) {
        return rc;
    }
    vj_index_key_of(&l->object, &named);
    return key_equal(&named, l->key) ? 0 : -EBADMSG;
}

/*
 * What the index names under @key, pinned.  -ENOENT; -EBADMSG with *id 0 or its number.
 * Pinned when the view is over, once, under the guard that was there before it: what the
 * view saw is not removed in between.
 */
static int look_up(VjObjects *o, const VjIndexKey *key, uint64_t *id, VjObject *out)
{
    VjLookUp l = {.key = key};
    VjReadGuard guard;
    int rc;

    vj_objects_guard_enter(o, &guard);
    rc = vj_meta_view(o->meta, look_up_body, &l);
    if (rc == 0) {
        vj_object_pin(o, l.id);
    }
    vj_objects_guard_leave(o, &guard);
    *id = l.id;
    *out = l.object;
    return rc;
}

/* 0: found, verified and pinned.  -ENOENT: to be put. */
static int find(VjObjects *o, const VjIndexKey *key, const VjPlain *content,
                VjObject *out)
{
    uint64_t id;
    int rc = look_up(o, key, &id, out);

    if (rc == 0) {
        rc = verify(o, out, content);
        if (rc == 0) {
            return 0;
        }
        vj_object_unpin(o, id);
    }
    if (rc != -EBADMSG) {
        return rc;
    }
    vj_log_warn("object %" G_GUINT64_FORMAT ": damaged; equal content is stored afresh",
                id);
    rc = vj_object_condemn(o, key, id);
    return rc < 0 ? rc : -ENOENT;
}

/* ---- putting ----------------------------------------------------------------------- */

static void count_put(VjObjectCache *c, const VjObject *object, uint32_t data_bytes)
{
    vj_mutex_lock(&c->lock);
    c->stats.puts++;
    c->stats.put_bytes += object->stored_bytes;
    if (object->codec != object->requested_codec) {
        c->stats.unshrunk++;
    } else if (object->codec != VJ_CODEC_ID_NONE) {
        c->stats.encoded_in_bytes += object->plain_bytes;
        c->stats.encoded_out_bytes += data_bytes;
    }
    vj_mutex_unlock(&c->lock);
}

/* How many. */
static int plain_pieces(const VjPlain *content, struct iovec iov[2])
{
    uint32_t first = plain_first(content);

    iov[0] =
        (struct iovec){.iov_base = (void *)(uintptr_t)content->plain, .iov_len = first};
    if (first == content->len) {
        return 1;
    }
    iov[1] = (struct iovec){.iov_base = (void *)(uintptr_t)content->rest,
                            .iov_len = content->len - first};
    return 2;
}

/* Encodes @content and puts it under the number that @object has. */
static int encode_and_put(VjObjects *o, const VjPlain *content, const VjTransform *want,
                          VjObject *object, bool *may_be_there)
{
    const VjFormSource from = {.first = content->plain,
                               .first_len = plain_first(content),
                               .rest = content->rest};
    g_autoptr(VjTrailer) t = NULL;
    g_autoptr(VjBuf) data = NULL;
    VjTransform stored;
    struct iovec iov[3];
    int count = 0;
    VjPut put;
    int rc;

    g_assert(content->rest == NULL || vj_objects_take_two(o, want));
    if (vj_by_node_applies(o, want)) {
        *may_be_there = true;
        rc = vj_by_node_put(o, content->plain, want, object);
        if (rc == 0) {
            count_put(&o->cache, object, object->stored_bytes);
        }
        if (rc == 0 || rc == -ENOMEM || rc == -EROFS || rc == -ECANCELED) {
            return rc;
        }
        /* The node cannot do it now, or is full, and there may be others: here, then. */
        stored = vj_by_node_stored(want);
        want = &stored;
        object->flags &= ~(uint32_t)(VJ_OBJECT_BY_NODE | VJ_OBJECT_ON_WIRE);
    }
    rc = vj_form_encode_from(&from, want, object, &data, &t);
    *may_be_there = rc == 0;
    if (rc < 0) {
        return rc;
    }
    if (data != NULL) {
        iov[count++] = (struct iovec){.iov_base = data->data, .iov_len = t->data_bytes};
    } else {
        count = plain_pieces(content, iov);
    }
    iov[count++] = (struct iovec){.iov_base = t->raw, .iov_len = t->bytes};
    rc = vj_store_put_held(o->store, object->id, data != NULL ? data : content->holder,
                           iov, count, &put);
    if (rc == 0) {
        g_assert(put.id == object->id && put.stored_bytes == object->stored_bytes);
        object->loc = put.loc;
        count_put(&o->cache, object, t->data_bytes);
    }
    return rc;
}

/*
 * @object has what was asked for and the digest; the rest is filled in.  Pinned on 0.
 * The number comes first: what content is encoded to may depend on it.
 */
static int put_afresh(VjObjects *o, const VjPlain *content, const VjTransform *want,
                      VjObject *object)
{
    bool may_be_there;
    int rc = vj_id_take(o, &object->id);

    if (rc < 0) {
        return rc;
    }
    vj_object_pin(o, object->id);
    rc = encode_and_put(o, content, want, object, &may_be_there);
    if (rc < 0) {
        vj_object_unpin(o, object->id);
        vj_id_resolve(o, object->id, may_be_there);
        return rc;
    }
    vj_verified_add(&o->verified, object->id);
    return 0;
}

static int find_or_put(VjObjects *o, const VjPlain *content, const VjTransform *want,
                       const VjObject *what, VjContentPut *c)
{
    int rc = find(o, &c->key, content, &c->object);

    if (rc == 0) {
        vj_objects_count(o, index_hits, 1);
        return 0;
    }
    if (rc != -ENOENT) {
        return rc;
    }
    c->object = *what;
    c->is_put = true;
    return put_afresh(o, content, want, &c->object);
}

/* ---- the public part --------------------------------------------------------------- */

static VjPendingObject *pending_new(VjObjects *o, VjContentPut *c)
{
    VjPendingObject *pending = g_new0(VjPendingObject, 1);

    pending->objects = o;
    pending->content = c;
    vj_mutex_lock(&o->inflight.lock);
    o->inflight.pending_count++;
    vj_mutex_unlock(&o->inflight.lock);
    return pending;
}

/* The fast track: one of the file's own objects around, which the caller has pinned. */
static VjContentPut *find_neighbour(VjObjects *o, const VjIndexKey *key,
                                    const VjPlain *content, const VjObject *neighbours,
                                    size_t count)
{
    for (size_t i = 0; i < count; i++) {
        VjIndexKey named;
        VjContentPut *c;

        vj_index_key_of(&neighbours[i], &named);
        if (!key_equal(&named, key) || verify(o, &neighbours[i], content) < 0) {
            continue;
        }
        vj_object_pin(o, neighbours[i].id);
        c = g_new0(VjContentPut, 1);
        c->key = *key;
        c->state = VJ_CONTENT_READY;
        c->holders = 1;
        c->object = neighbours[i];
        return c;
    }
    return NULL;
}

bool vj_objects_take_two(const VjObjects *o, const VjTransform *want)
{
    return want->codec == VJ_CODEC_ID_NONE && want->key_id == 0 &&
           !vj_by_node_applies(o, want);
}

int vj_plain_digest(VjObjects *o, VjPlain *content)
{
    struct iovec iov[2];
    int count = plain_pieces(content, iov);
    int rc = vj_digest_hash(o->digest, iov, count, &content->digest);

    if (rc == 0) {
        vj_objects_count(o, hashed_bytes, content->len);
    }
    return rc;
}

/* What is asked of an object with @content, and the key by which the index has it. */
static void name_content(VjObjects *o, const VjPlain *content, const VjTransform *want,
                         VjObject *what, VjIndexKey *key)
{
    VjTransform stored = vj_by_node_applies(o, want) ? vj_by_node_stored(want) : *want;

    *what = (VjObject){.plain_bytes = content->len,
                       .requested_codec = stored.codec,
                       .param = stored.param,
                       .key_id = stored.key_id,
                       .digest = content->digest};
    vj_index_key_of(what, key);
}

typedef struct ExpectKeys {
    const VjIndexKey *keys;
    size_t count;
} ExpectKeys;

static int expect_keys_body(VjTxn *txn, void *opaque)
{
    const ExpectKeys *e = opaque;

    vj_index_expect(txn, e->keys, e->count);
    return 0;
}

void vj_plain_expect(VjObjects *o, const VjTransform *want,
                     const VjPlain *const *contents, size_t count)
{
    g_autofree VjIndexKey *keys = g_new(VjIndexKey, count);
    VjObject what;

    for (size_t i = 0; i < count; i++) {
        name_content(o, contents[i], want, &what, &keys[i]);
    }
    (void)!vj_meta_view(o->meta, expect_keys_body,
                        &(ExpectKeys){.keys = keys, .count = count});
}

int vj_object_store(VjObjects *o, const VjPlain *content, const VjTransform *want,
                    const VjObject *neighbours, size_t neighbour_count,
                    VjPendingObject **out)
{
    VjObject what;
    VjContentPut *c;
    VjIndexKey key;
    bool is_new;
    int rc;

    *out = NULL;
    g_assert(content->len > 0 && content->len <= VJ_OBJECT_PLAIN_MAX);
    vj_lock_assert_none();
    if (o->read_only) {
        return -EROFS;
    }
    name_content(o, content, want, &what, &key);
    c = find_neighbour(o, &key, content, neighbours, neighbour_count);
    if (c != NULL) {
        vj_objects_count(o, fast_hits, 1);
        *out = pending_new(o, c);
        return 0;
    }
    c = join(&o->inflight, &key, &is_new);
    if (is_new) {
        rc = find_or_put(o, content, want, &what, c);
        end_content(&o->inflight, c, rc);
        if (rc < 0) {
            return rc;
        }
    } else {
        vj_objects_count(o, inflight_hits, 1);
    }
    *out = pending_new(o, c);
    return 0;
}

bool vj_pending_is_put(const VjPendingObject *pending)
{
    return pending->content->is_put;
}

/*
 * A new number has no record, nor have those behind it: where keys are far, one question
 * for all of them, instead of one for each.
 */
static void expect_none_behind(VjTxn *txn, uint64_t id)
{
    uint8_t before[VJ_OBJECT_KEY_BYTES];

    vj_be64_set(before, id - 1);
    vj_txn_expect_run(txn, VJ_SPACE_OBJECT, vj_slice(before, sizeof before), 1);
    vj_txn_expect_run(txn, VJ_SPACE_DEAD, vj_slice(before, sizeof before), 1);
}

/* The index does not know the content: the object of the pending object itself. */
static int take_own(VjTxn *txn, VjPendingObject *pending, VjObject *out)
{
    const VjContentPut *c = pending->content;
    int rc;

    if (c->is_put) {
        expect_none_behind(txn, c->object.id);
    }
    rc = vj_object_record_get(txn, VJ_SPACE_OBJECT, c->object.id, out);

    if (rc == 0 && (out->flags & VJ_OBJECT_DAMAGED) == 0) {
        return vj_object_add_ref(txn, out);
    }
    if (rc == -ENOENT) {
        rc = vj_object_record_get(txn, VJ_SPACE_DEAD, c->object.id, out);
        if (rc == 0 && (out->flags & (VJ_OBJECT_DAMAGED | VJ_OBJECT_REMOVING)) == 0) {
            return vj_object_revive(txn, out);
        }
        if (rc == -ENOENT && c->is_put) {
            return vj_object_create(pending->objects, txn, &c->object, out);
        }
    }
    if (rc == 0 || rc == -ENOENT || rc == -EBADMSG) {
        pending->is_stale = true;
        return -ESTALE;
    }
    return rc;
}

int vj_pending_take(VjTxn *txn, VjPendingObject *pending, VjObject *out)
{
    uint64_t id;
    int rc = vj_index_get(txn, &pending->content->key, &id);

    pending->is_taken = true;
    if (rc == -ENOENT) {
        return take_own(txn, pending, out);
    }
    if (rc == 0) {
        rc = vj_object_record_get(txn, VJ_SPACE_OBJECT, id, out);
    }
    if (rc == 0) {
        return vj_object_add_ref(txn, out);
    }
    if (rc == -ENOENT || rc == -EBADMSG) { /* storing it again mends the index */
        pending->is_stale = true;
        return -ESTALE;
    }
    return rc;
}

void vj_pending_free(VjObjects *o, VjPendingObject *pending, bool committed)
{
    VjContentPut *c;
    bool is_last;

    if (pending == NULL) {
        return;
    }
    c = pending->content;
    g_assert(pending->objects == o);
    vj_trace(object, "pending object=%" G_GUINT64_FORMAT " put=%d taken=%d committed=%d",
             c->object.id, c->is_put, pending->is_taken, committed);
    vj_mutex_lock(&o->inflight.lock);
    g_assert(c->state == VJ_CONTENT_READY && c->holders > 0 &&
             o->inflight.pending_count > 0);
    o->inflight.pending_count--;
    c->is_taken = c->is_taken || pending->is_taken;
    c->holders--;
    is_last = c->holders == 0;
    if (is_last || pending->is_stale || (c->is_put && !committed)) {
        /* After a failed flush no other caller shall build on these bytes. */
        leave_table(&o->inflight, c);
    }
    vj_mutex_unlock(&o->inflight.lock);
    g_free(pending);
    if (!is_last) {
        return;
    }
    if (c->is_put) {
        VjUnreferencedPut put = {
            .id = c->object.id, .loc = c->object.loc, .is_taken = c->is_taken};

        vj_unreferenced_put_end(o, &put);
    }
    vj_object_unpin(o, c->object.id);
    g_free(c);
}
