/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * session-record.c - the records of sessions, in transactions
 *
 * A record that cannot be read is that of a session which has ended: the engine has
 * another version of it than the session wrote, and refuses what comes from that.
 */
#include "meta/session-format.h"
#include "meta/session-private.h"

/* Behind all keys of a session and before the record of the next one. */
#define BEHIND_ALL_SUBS '\xff'

/* The number at @key; 0 where there is none, or a damaged one. */
static int get_number(VjTxn *txn, VjNumber what, const VjSessionKey *key, uint64_t *out)
{
    VjSlice value;
    int rc = vj_txn_get(txn, VJ_SPACE_SESSION, vj_session_key_slice(key), &value);

    *out = 0;
    if (rc == 0 && vj_number_decode(what, vj_session_key_slice(key), value, out) < 0) {
        *out = 0;
    }
    return rc == -ENOENT ? 0 : rc;
}

/* @value: of its record. */
static bool says_ended(VjTxn *txn, VjSlice key, VjSlice value, VjSessionRecord *record)
{
    const VjSession *s = vj_session_of_txn(txn);
    uint64_t id = vj_be64_get(key.data);

    if (vj_session_decode(key, value, record) < 0) {
        *record = (VjSessionRecord){.id = id, .state = VJ_SESSION_ENDED};
    }
    return record->state == VJ_SESSION_ENDED ||
           (s != NULL && !vj_session_is_shared(s) && id != s->number);
}

static int describe(VjTxn *txn, VjSlice key, VjSlice value, VjSessionInfo *out)
{
    VjSessionRecord record;
    VjSessionKey sub;
    uint64_t expires_us;
    int rc;

    *out = (VjSessionInfo){.has_ended = says_ended(txn, key, value, &record),
                           .id = vj_be64_get(key.data)};
    memcpy(out->name, record.name, sizeof out->name);
    sub = vj_session_sub_key(out->id, VJ_SESSION_SUB_EPOCH);
    rc = get_number(txn, VJ_NUMBER_EPOCH, &sub, &out->epoch);
    if (rc == 0) {
        sub = vj_session_sub_key(out->id, VJ_SESSION_SUB_LEASE);
        rc = get_number(txn, VJ_NUMBER_LEASE, &sub, &expires_us);
        out->expires_us = (int64_t)expires_us;
    }
    return rc;
}

/* The numbers of sessions change with each of their commits: they are stepped over. */
int vj_session_list(VjTxn *txn, GArray *out)
{
    VjSessionKey at = {.len = 0};
    VjSlice key, value;
    int rc;

    g_array_set_size(out, 0);
    while ((rc = vj_txn_next(txn, VJ_SPACE_SESSION, vj_session_key_slice(&at), &key,
                             &value)) == 0) {
        VjSessionInfo info;

        if (key.len < VJ_SESSION_KEY_BYTES) { /* none of ours */
            memcpy(at.bytes, key.data, key.len);
            at.len = (uint8_t)key.len;
            continue;
        }
        at = vj_session_sub_key(vj_be64_get(key.data), BEHIND_ALL_SUBS);
        if (key.len == VJ_SESSION_KEY_BYTES) {
            rc = describe(txn, key, value, &info);
            if (rc < 0) {
                return rc;
            }
            g_array_append_val(out, info);
        }
    }
    return rc == -ENOENT ? 0 : rc;
}

static int list_body(VjTxn *txn, void *opaque)
{
    return vj_session_list(txn, opaque);
}

int vj_meta_sessions(VjMeta *m, GArray *out)
{
    return vj_meta_view(m, list_body, out);
}

int vj_session_has_ended(VjTxn *txn, uint64_t id, bool *ended)
{
    const VjSession *s = vj_session_of_txn(txn);
    VjSessionKey key = vj_session_key(id);
    VjSessionRecord record;
    VjSlice value;
    int rc;

    *ended = id == 0 || s == NULL || (!vj_session_is_shared(s) && id != s->number);
    if (*ended) {
        return 0;
    }
    rc = vj_txn_get(txn, VJ_SPACE_SESSION, vj_session_key_slice(&key), &value);
    if (rc == 0) {
        *ended = says_ended(txn, vj_session_key_slice(&key), value, &record);
    } else if (rc == -ENOENT) {
        *ended = true;
        rc = 0;
    }
    return rc;
}

int vj_session_forget(VjTxn *txn, uint64_t id)
{
    static const char subs[] = {VJ_SESSION_SUB_COMMIT, VJ_SESSION_SUB_EPOCH,
                                VJ_SESSION_SUB_HOLDER, VJ_SESSION_SUB_LEASE};
    VjSessionKey key = vj_session_key(id);
    int rc = vj_txn_del(txn, VJ_SPACE_SESSION, vj_session_key_slice(&key));

    for (size_t i = 0; (rc == 0 || rc == -ENOENT) && i < G_N_ELEMENTS(subs); i++) {
        key = vj_session_sub_key(id, subs[i]);
        rc = vj_txn_del(txn, VJ_SPACE_SESSION, vj_session_key_slice(&key));
    }
    return rc == -ENOENT ? 0 : rc;
}

int vj_session_shut_out(VjTxn *txn, uint64_t id)
{
    const VjSession *s = vj_session_of_txn(txn);
    VjSessionKey key = vj_session_key(id);
    VjSlice at = vj_session_key_slice(&key), value;
    uint8_t bytes[VJ_SESSION_RECORD_BYTES];
    VjSessionRecord record;
    int rc;

    g_assert(s == NULL || id != s->number);
    rc = vj_txn_get(txn, VJ_SPACE_SESSION, at, &value);
    if (rc == 0) {
        rc = vj_session_decode(at, value, &record);
    }
    if (rc < 0 || record.state == VJ_SESSION_ENDED) {
        return rc == -EBADMSG ? 0 : rc;
    }
    record.state = VJ_SESSION_ENDED;
    vj_session_encode(&record, bytes);
    return vj_txn_put(txn, VJ_SPACE_SESSION, at, vj_slice(bytes, sizeof bytes));
}

int vj_session_publish(VjTxn *txn, uint64_t epoch)
{
    const VjSession *s = vj_session_of_txn(txn);
    VjSessionKey key;
    uint8_t value[VJ_NUMBER_BYTES];

    if (s == NULL || !vj_session_is_shared(s)) {
        return 0;
    }
    key = vj_session_sub_key(s->number, VJ_SESSION_SUB_EPOCH);
    vj_number_encode(VJ_NUMBER_EPOCH, vj_session_key_slice(&key), epoch, value);
    return vj_txn_put(txn, VJ_SPACE_SESSION, vj_session_key_slice(&key),
                      vj_slice(value, sizeof value));
}

/* ---- Checking -------------------------------------------------------------------- */

static int check_session(VjSlice key, VjSlice value)
{
    const uint8_t *bytes = key.data;
    VjSessionRecord record;
    VjHolder holder;
    uint64_t number;

    if (key.len == VJ_SESSION_KEY_BYTES) {
        return vj_session_decode(key, value, &record);
    }
    if (key.len != VJ_SESSION_SUB_KEY_BYTES) {
        return -EBADMSG;
    }
    switch (bytes[VJ_SESSION_KEY_BYTES]) {
    case VJ_SESSION_SUB_COMMIT:
        return vj_number_decode(VJ_NUMBER_COMMIT, key, value, &number);
    case VJ_SESSION_SUB_EPOCH:
        return vj_number_decode(VJ_NUMBER_EPOCH, key, value, &number);
    case VJ_SESSION_SUB_HOLDER:
        return vj_holder_decode(key, value, &holder);
    case VJ_SESSION_SUB_LEASE:
        return vj_number_decode(VJ_NUMBER_LEASE, key, value, &number);
    default:
        return -EBADMSG;
    }
}

static int check_claim(VjSlice key, VjSlice value)
{
    uint8_t kind = key.len > 0 ? ((const uint8_t *)key.data)[0] : UINT8_MAX;
    bool is_hold = kind == VJ_CLAIM_HOLD;
    uint64_t number = 0;
    int rc = -EBADMSG;

    if (kind == VJ_CLAIM_INDEX && key.len == VJ_CLAIM_INDEX_KEY_BYTES) {
        rc = vj_number_decode(VJ_NUMBER_INDEX, key, value, &number);
    } else if (is_hold && key.len == VJ_CLAIM_KEY_BYTES) {
        rc = vj_number_decode(VJ_NUMBER_HOLDS, key, value, &number);
    } else if ((is_hold && key.len == VJ_HOLD_KEY_BYTES) ||
               ((kind == VJ_CLAIM_REAPER || kind == VJ_CLAIM_CONTENT) &&
                key.len == VJ_CLAIM_KEY_BYTES)) {
        rc = vj_number_decode(VJ_NUMBER_CLAIM, key, value, &number);
    }
    return rc == 0 && number == 0 ? -EBADMSG : rc;
}

int vj_session_key_check(VjSpace space, VjSlice key, VjSlice value)
{
    g_assert(space == VJ_SPACE_SESSION || space == VJ_SPACE_CLAIM);
    return space == VJ_SPACE_SESSION ? check_session(key, value)
                                     : check_claim(key, value);
}
