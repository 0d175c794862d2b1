/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * heal.c - replicas of objects: bringing them to their full number, and mending damage
 *
 * A store with replicas heals one object when it is asked to; what a good copy is it
 * hears from here.  Where the object is afterwards stands in its locator, which the
 * record gets by a commit of its own.  The store's heal takes no good replica away; its
 * trim does, and is called when that record is durable: of all objects of a step after
 * one flush.  A locator that names a replica which is gone still finds the object, more
 * slowly.  So both may fail, or crash, at any point.
 */
#include "object/object-private.h"

/* ---- one at a time for one object ------------------------------------------------- */

void vj_healing_init(VjHealing *h)
{
    vj_mutex_init(&h->lock, VJ_RANK_OBJECT_VERIFIED, "object-healing");
    vj_cond_init(&h->changed);
    h->ids = g_hash_table_new(g_int64_hash, g_int64_equal);
}

void vj_healing_clear(VjHealing *h)
{
    g_assert(g_hash_table_size(h->ids) == 0);
    g_hash_table_unref(h->ids);
    vj_cond_clear(&h->changed);
    vj_mutex_clear(&h->lock);
}

/* @id stays where it is until the end. */
static int begin(VjHealing *h, gint64 *id)
{
    int64_t until_us = vj_cancel_deadline_us();
    int rc = 0;

    vj_mutex_lock(&h->lock);
    while (rc == 0 && g_hash_table_contains(h->ids, id)) {
        rc = vj_cond_wait_or_cancel(&h->changed, &h->lock, until_us);
    }
    if (rc == 0 && h->is_paused) {
        rc = -EBUSY;
    }
    if (rc == 0) {
        g_hash_table_add(h->ids, id);
    }
    vj_mutex_unlock(&h->lock);
    return rc;
}

static void end(VjHealing *h, gint64 *id)
{
    vj_mutex_lock(&h->lock);
    g_hash_table_remove(h->ids, id);
    vj_cond_broadcast(&h->changed);
    vj_mutex_unlock(&h->lock);
}

void vj_objects_pause_healing(VjObjects *o, bool is_paused)
{
    VjHealing *h = &o->healing;

    vj_mutex_lock(&h->lock);
    h->is_paused = is_paused;
    while (is_paused && g_hash_table_size(h->ids) > 0) {
        vj_cond_wait(&h->changed, &h->lock);
    }
    vj_mutex_unlock(&h->lock);
}

/* ---- one object -------------------------------------------------------------------- */

static bool is_whole(void *opaque, VjSlice stored)
{
    const VjObject *object = opaque;
    VjFormFault fault;

    return stored.len == object->stored_bytes &&
           vj_form_verify(object, stored.data, &fault) == 0;
}

/* In its record, which is among the objects or the dead ones. */
typedef struct Place {
    uint64_t id;
    VjLoc before, now;
    bool is_absent; /* there is no record */
    bool is_there;  /* there is, and names before */
} Place;

static int find_in(VjTxn *txn, Place *p, VjSpace space, VjObject *record)
{
    int rc = vj_object_record_get(txn, space, p->id, record);

    p->is_there = rc == 0 && memcmp(&record->loc, &p->before, sizeof p->before) == 0;
    return rc;
}

static int find_record(VjTxn *txn, Place *p, VjObject *record, VjSpace *space)
{
    int rc = find_in(txn, p, *space = VJ_SPACE_OBJECT, record);

    if (rc == -ENOENT) {
        rc = find_in(txn, p, *space = VJ_SPACE_DEAD, record);
    }
    p->is_absent = rc == -ENOENT;
    return rc == -ENOENT ? 0 : rc;
}

static int look_body(VjTxn *txn, void *opaque)
{
    VjObject record;
    VjSpace space;

    return find_record(txn, opaque, &record, &space);
}

static int move_body(VjTxn *txn, void *opaque)
{
    Place *p = opaque;
    VjObject record;
    VjSpace space;
    int rc = find_record(txn, p, &record, &space);

    if (rc < 0 || !p->is_there) {
        return rc; /* others have been faster */
    }
    record.loc = p->now;
    return vj_object_record_put(txn, space, &record);
}

/* The error of the commit, or @rc of heal or trim. */
static int move(VjObjects *o, Place *p, VjLoc now, int rc)
{
    int moved = 0;

    p->now = now;
    if ((rc == 0 || rc == -EAGAIN) && memcmp(&p->now, &p->before, sizeof p->now) != 0) {
        moved = vj_meta_run(o->meta, VJ_RUN_DEFAULT, move_body, p);
    }
    return moved < 0 ? moved : rc;
}

/* *healed: what the store says, its locator is in the record. */
static int heal_one(VjObjects *o, const VjObject *object, VjStoreHealed *healed)
{
    VjObject asked = *object;
    VjPut put = vj_object_as_put(object);
    Place place = {.id = object->id, .before = object->loc};
    gint64 number = (gint64)object->id;
    int rc;

    vj_lock_assert_none();
    *healed = (VjStoreHealed){.loc = object->loc};
    if (!vj_store_has_replicas(o->store) || o->read_only) {
        return -EROFS;
    }
    rc = begin(&o->healing, &number);
    if (rc < 0) {
        return rc;
    }
    rc = vj_store_heal(o->store, &put, is_whole, &asked, healed);
    rc = move(o, &place, healed->loc, rc);
    end(&o->healing, &number); /* its record says where it is now */
    return rc;
}

/* @object: as heal_one() has left it, and durable. */
static int trim_one(VjObjects *o, const VjObject *object)
{
    VjObject asked = *object;
    VjPut put = vj_object_as_put(object);
    Place place = {.id = object->id, .before = object->loc};
    gint64 number = (gint64)object->id;
    VjStoreHealed trimmed;
    int rc = begin(&o->healing, &number);

    if (rc < 0) {
        return rc;
    }
    rc = vj_meta_view(o->meta, look_body, &place);
    if (rc == 0 && !place.is_there) {
        /* Another heal was faster, and may not be durable. */
        rc = place.is_absent ? 0 : -EAGAIN;
    } else if (rc == 0) {
        rc = vj_store_trim(o->store, &put, is_whole, &asked, &trimmed);
        rc = move(o, &place, trimmed.loc, rc);
    }
    end(&o->healing, &number);
    return rc;
}

int vj_object_heal(VjObjects *o, const VjObject *object)
{
    VjObject after = *object;
    VjStoreHealed healed;
    int rc = heal_one(o, object, &healed);

    if ((rc == 0 || rc == -EAGAIN) && healed.can_trim) {
        after.loc = healed.loc;
        rc = vj_meta_flush(o->meta);
        rc = rc < 0 ? rc : trim_one(o, &after);
    }
    if (rc == 0) {
        vj_objects_count(o, healed, 1);
    }
    return rc;
}

bool vj_object_mend(VjObjects *o, const VjObject *object, int rc)
{
    if ((rc != -EBADMSG && rc != -ENOENT && rc != -EIO) || o->read_only ||
        !vj_store_has_replicas(o->store)) {
        return false;
    }
    rc = vj_object_heal(o, object);
    if (rc == 0 || rc == -EAGAIN) {
        vj_log_warn("object %" G_GUINT64_FORMAT
                    ": a replica was damaged or missing, and was mended from another one",
                    object->id);
        vj_cache_drop(&o->cache, object->id);
    }
    return rc == 0 || rc == -EAGAIN;
}

bool vj_objects_have_replicas(const VjObjects *o)
{
    return vj_store_has_replicas(o->store);
}

bool vj_objects_have_modes(const VjObjects *o)
{
    return vj_store_takes_plain(o->store);
}

void vj_objects_health(VjObjects *o, VjStoreHealth *out)
{
    vj_store_health(o->store, out);
}

/* ---- the next objects that want it ------------------------------------------------- */

typedef struct Survey {
    uint64_t after;
    GArray *objects; /* of VjObject */
    bool at_end;
} Survey;

static int survey_body(VjTxn *txn, void *opaque)
{
    Survey *s = opaque;
    uint8_t after[VJ_OBJECT_KEY_BYTES];
    VjScan scan;

    g_array_set_size(s->objects, 0);
    s->at_end = false;
    vj_be64_set(after, s->after);
    vj_txn_expect_run(txn, VJ_SPACE_OBJECT, vj_slice(after, sizeof after),
                      VJ_HEAL_SURVEY_OBJECTS);
    vj_scan_begin(&scan, txn, VJ_SPACE_OBJECT, VJ_SCAN_ALL);
    vj_scan_behind(&scan, vj_slice(after, sizeof after));
    while (s->objects->len < VJ_HEAL_SURVEY_OBJECTS) {
        VjObject object;

        if (!vj_scan_next(&scan)) {
            s->at_end = true;
            return scan.error;
        }
        if (scan.key.len == sizeof after &&
            vj_object_decode(scan.value, VJ_SPACE_OBJECT, vj_be64_get(scan.key.data),
                             &object) == 0) {
            g_array_append_val(s->objects, object);
        }
    }
    return 0;
}

static void count_one(VjObjects *o, const VjObject *object, int rc, VjHealStep *step)
{
    step->healed += rc == 0;
    step->failed += rc < 0;
    if (rc == 0) {
        vj_objects_count(o, healed, 1);
    }
    if (rc == -ENOENT || rc == -EBADMSG) {
        step->lost++;
        vj_log_error("object %" G_GUINT64_FORMAT ": no good replica is left on "
                     "the nodes that are there",
                     object->id);
    }
}

/* Those that heal_one() has left so: one flush makes the records of all of them durable.
 * The first error. */
static int trim_some(VjObjects *o, const GArray *objects, VjHealStep *step)
{
    int rc = 0, flushed = objects->len > 0 ? vj_meta_flush(o->meta) : 0;

    for (guint i = 0; i < objects->len; i++) {
        const VjObject *object = &g_array_index(objects, VjObject, i);
        int trimmed = flushed;

        if (flushed == 0 && step->stop != NULL && step->stop(step->opaque)) {
            return -ECANCELED;
        }
        if (flushed == 0) {
            trimmed = trim_one(o, object);
        }
        count_one(o, object, trimmed, step);
        rc = rc < 0 ? rc : trimmed;
    }
    return rc;
}

/* Of those that @wanted says.  The first error. */
static int heal_some(VjObjects *o, const GArray *objects, const bool *wanted,
                     VjHealStep *step)
{
    g_autoptr(GArray) to_trim = g_array_new(FALSE, FALSE, sizeof(VjObject));
    int rc = 0, trimmed;

    for (guint i = 0; i < objects->len; i++) {
        VjObject object = g_array_index(objects, VjObject, i);
        VjStoreHealed after;
        int healed = 0;

        step->examined++;
        if (wanted[i]) {
            healed = heal_one(o, &object, &after);
        }
        if (wanted[i] && (healed == 0 || healed == -EAGAIN) && after.can_trim) {
            object.loc = after.loc;
            g_array_append_val(to_trim, object);
        } else if (wanted[i]) {
            count_one(o, &object, healed, step);
            rc = rc < 0 ? rc : healed;
        }
        if (step->stop != NULL && step->stop(step->opaque)) {
            return -ECANCELED;
        }
    }
    trimmed = trim_some(o, to_trim, step);
    return rc < 0 ? rc : trimmed;
}

int vj_objects_heal_step(VjObjects *o, VjHealStep *step)
{
    g_autoptr(GArray) objects = g_array_new(FALSE, FALSE, sizeof(VjObject));
    g_autoptr(GArray) puts = g_array_new(FALSE, FALSE, sizeof(VjPut));
    g_autofree bool *wanted = NULL;
    Survey survey = {.after = step->cursor, .objects = objects};
    VjReadGuard guard;
    int rc;

    vj_lock_assert_none();
    if (!vj_store_has_replicas(o->store)) {
        return -EOPNOTSUPP;
    }
    vj_objects_guard_enter(o, &guard);
    rc = vj_meta_view(o->meta, survey_body, &survey);
    for (guint i = 0; rc == 0 && i < objects->len; i++) {
        VjPut put = vj_object_as_put(&g_array_index(objects, VjObject, i));

        g_array_append_val(puts, put);
        step->cursor = put.id;
    }
    wanted = g_new0(bool, MAX(objects->len, 1));
    if (rc == 0 && objects->len > 0) {
        rc = vj_store_survey(o->store, (const VjPut *)(const void *)puts->data, puts->len,
                             wanted);
    }
    if (rc == 0 || rc == -EAGAIN) { /* of those that could be asked */
        int healed = heal_some(o, objects, wanted, step);

        rc = rc < 0 ? rc : healed;
    }
    vj_objects_guard_leave(o, &guard);
    if (survey.at_end) {
        step->cursor = UINT64_MAX;
    }
    return rc;
}

/* ---- what a node has --------------------------------------------------------------- */

typedef struct Count {
    VjStore *store;
    VjSpace space;
    unsigned node;
    uint64_t after;
    uint64_t last, found; /* of this page */
} Count;

static int count_body(VjTxn *txn, void *opaque)
{
    Count *c = opaque;
    uint8_t after[VJ_OBJECT_KEY_BYTES];
    VjScan scan;

    c->found = 0;
    c->last = c->after;
    vj_be64_set(after, c->after);
    vj_txn_expect_run(txn, c->space, vj_slice(after, sizeof after),
                      VJ_HEAL_SURVEY_OBJECTS);
    vj_scan_begin(&scan, txn, c->space, VJ_SCAN_ALL);
    vj_scan_behind(&scan, vj_slice(after, sizeof after));
    for (unsigned i = 0; i < VJ_HEAL_SURVEY_OBJECTS && vj_scan_next(&scan); i++) {
        VjObject object;

        if (scan.key.len == sizeof after) {
            c->last = vj_be64_get(scan.key.data);
            c->found += vj_object_decode(scan.value, c->space, c->last, &object) == 0 &&
                        vj_store_loc_names(c->store, object.loc, c->node);
        }
    }
    return scan.error;
}

int vj_objects_count_at_node(VjObjects *o, unsigned node, bool (*stop)(void *opaque),
                             void *opaque, uint64_t *out)
{
    static const VjSpace spaces[] = {VJ_SPACE_OBJECT, VJ_SPACE_DEAD};
    int rc = 0;

    vj_lock_assert_none();
    *out = 0;
    for (size_t i = 0; rc == 0 && i < G_N_ELEMENTS(spaces); i++) {
        Count c = {.store = o->store, .space = spaces[i], .node = node};

        do {
            c.after = c.last;
            rc = stop != NULL && stop(opaque) ? -ECANCELED
                                              : vj_meta_view(o->meta, count_body, &c);
            *out += rc == 0 ? c.found : 0;
        } while (rc == 0 && c.last != c.after);
    }
    return rc;
}
