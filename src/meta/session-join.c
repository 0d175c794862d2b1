/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * session-join.c - see session-join-private.h
 */
#include "meta/session-join-private.h"

/* ---- Keys ------------------------------------------------------------------------ */

int vj_join_set(VjOverlay *o, const VjSessionKey *key, const uint8_t *bytes, size_t len)
{
    VjSlice value = vj_slice(bytes, len);

    return vj_overlay_set(o, VJ_SPACE_SESSION, vj_session_key_slice(key),
                          bytes != NULL ? &value : NULL);
}

int vj_join_set_number(VjOverlay *o, VjNumber what, const VjSessionKey *key,
                       uint64_t number)
{
    uint8_t bytes[VJ_NUMBER_BYTES];

    vj_number_encode(what, vj_session_key_slice(key), number, bytes);
    return vj_join_set(o, key, bytes, sizeof bytes);
}

int vj_join_set_record(VjOverlay *o, const VjSessionRecord *record)
{
    VjSessionKey key = vj_session_key(record->id);
    uint8_t bytes[VJ_SESSION_RECORD_BYTES];

    vj_session_encode(record, bytes);
    return vj_join_set(o, &key, bytes, sizeof bytes);
}

/* ---- What there is --------------------------------------------------------------- */

int vj_join_scan_sessions(VjSession *s, VjItems *out, int64_t deadline_us)
{
    VjRange range = {.space = VJ_SPACE_SESSION};
    bool more = true;
    int rc = 0;

    while (rc == 0 && more) {
        if (out->count > 0) {
            range.from = out->at[out->count - 1].key;
        }
        rc =
            vj_engine_scan(s->engine, &range, VJ_SCAN_ITEMS_MAX, out, &more, deadline_us);
    }
    return rc;
}

const VjItem *vj_join_find(const VjItems *sessions, uint64_t id, char sub)
{
    VjSessionKey key = vj_session_sub_key(id, sub);

    for (size_t i = 0; i < sessions->count; i++) {
        if (vj_slice_compare(sessions->at[i].key, vj_session_key_slice(&key)) == 0) {
            return &sessions->at[i];
        }
    }
    return NULL;
}

int64_t vj_join_lease_of(const VjItems *sessions, uint64_t id, const VjItem **at)
{
    uint64_t expires_us = 0;

    *at = vj_join_find(sessions, id, VJ_SESSION_SUB_LEASE);
    if (*at == NULL ||
        vj_number_decode(VJ_NUMBER_LEASE, (*at)->key, (*at)->value, &expires_us) < 0) {
        return 0;
    }
    return (int64_t)expires_us;
}

static uint64_t last_of(const VjItems *sessions)
{
    uint64_t last = 0;

    for (size_t i = 0; i < sessions->count; i++) {
        VjSessionRecord record;

        if (vj_session_decode(sessions->at[i].key, sessions->at[i].value, &record) == 0) {
            last = MAX(last, record.id);
        }
    }
    return last;
}

static void forget_all(VjJoin *j)
{
    vj_items_clear(&j->counter);
    vj_items_clear(&j->sessions);
    vj_overlay_clear(&j->changes);
    g_array_set_size(j->checks, 0);
}

int vj_join_read(VjJoin *j)
{
    VjKey key = {VJ_SPACE_SYSTEM, vj_session_next_key()};
    int rc;

    forget_all(j);
    rc = vj_engine_get_many(j->s->engine, &key, 1, &j->counter, VJ_NO_DEADLINE);
    if (rc == 0) {
        rc = vj_join_scan_sessions(j->s, &j->sessions, VJ_NO_DEADLINE);
    }
    j->last = last_of(&j->sessions);
    return rc;
}

/* ---- What is to be --------------------------------------------------------------- */

static void check(VjJoin *j, const VjItem *item)
{
    VjCheck one = {{item->space, item->key}, item->version};

    g_array_append_val(j->checks, one);
}

int vj_join_end(VjJoin *j, const VjItem *item, const VjItem *lease,
                VjSessionRecord *record)
{
    check(j, item);
    if (lease != NULL) {
        check(j, lease);
    }
    record->state = VJ_SESSION_ENDED;
    return vj_join_set_record(&j->changes, record);
}

int vj_join_choose_number(VjJoin *j)
{
    const VjItem *item = &j->counter.at[0];
    uint8_t bytes[VJ_NUMBER_BYTES];
    VjSlice value = vj_slice(bytes, sizeof bytes);

    check(j, item);
    j->number =
        vj_session_choose_number(j->s, item->version != 0 ? &item->value : NULL, j->last);
    vj_number_encode(VJ_NUMBER_NEXT_SESSION, item->key, j->number + 1, bytes);
    return vj_overlay_set(&j->changes, VJ_SPACE_SYSTEM, item->key, &value);
}

int vj_join_apply(VjJoin *j, uint64_t *version)
{
    VjBatch batch = {.checks = (const VjCheck *)(void *)j->checks->data,
                     .check_count = j->checks->len,
                     .next = vj_overlay_next_change,
                     .changes = &j->changes,
                     .count = j->changes.entry_count,
                     .version = version};
    VjItems fresh = {0};
    int rc = vj_engine_apply(j->s->engine, &batch, &fresh, VJ_NO_DEADLINE);

    vj_items_clear(&fresh);
    return rc;
}

void vj_join_init(VjJoin *j, VjSession *s)
{
    *j = (VjJoin){.s = s, .checks = g_array_new(FALSE, FALSE, sizeof(VjCheck))};
    vj_overlay_init(&j->changes);
}

void vj_join_clear(VjJoin *j)
{
    forget_all(j);
    g_clear_pointer(&j->checks, g_array_unref);
}
