/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * claim.c - what a session has alone, and what several hold
 *
 * Each claim and each hold has a second key under its session, so that releasing them
 * looks at no others.  The number of holds of an object is the key that guards the walk
 * over them: each put and each del of one writes it, so that a transaction which found
 * none conflicts with one that puts one.
 *
 * A claim that cannot be read belongs to no session.
 */
#include "meta/session-format.h"
#include "meta/session-private.h"

static uint64_t own_number(VjTxn *txn)
{
    const VjSession *s = vj_session_of_txn(txn);

    g_assert(s != NULL && s->number > 0);
    return s->number;
}

static int put_number(VjTxn *txn, const VjSessionKey *key, VjNumber what, uint64_t number)
{
    uint8_t value[VJ_NUMBER_BYTES];

    vj_number_encode(what, vj_session_key_slice(key), number, value);
    return vj_txn_put(txn, VJ_SPACE_CLAIM, vj_session_key_slice(key),
                      vj_slice(value, sizeof value));
}

/* 0 where there is none that can be read. */
static int get_number(VjTxn *txn, const VjSessionKey *key, VjNumber what, uint64_t *out)
{
    VjSlice value;
    int rc = vj_txn_get(txn, VJ_SPACE_CLAIM, vj_session_key_slice(key), &value);

    *out = 0;
    if (rc == 0 && vj_number_decode(what, vj_session_key_slice(key), value, out) < 0) {
        *out = 0;
    }
    return rc == -ENOENT ? 0 : rc;
}

/* 0 also when it is not there. */
static int del_key(VjTxn *txn, const VjSessionKey *key)
{
    int rc = vj_txn_del(txn, VJ_SPACE_CLAIM, vj_session_key_slice(key));

    return rc == -ENOENT ? 0 : rc;
}

static int put_index(VjTxn *txn, uint64_t session, VjClaimKind kind, uint64_t number)
{
    VjSessionKey key = vj_claim_index_key(session, kind, number);

    return put_number(txn, &key, VJ_NUMBER_INDEX, session);
}

static int del_index(VjTxn *txn, uint64_t session, VjClaimKind kind, uint64_t number)
{
    VjSessionKey key = vj_claim_index_key(session, kind, number);

    return del_key(txn, &key);
}

/* ---- Claims ---------------------------------------------------------------------- */

/* *holder 0: no session has the claim; *ended: the session that has it has ended. */
static int look(VjTxn *txn, VjClaimKind kind, uint64_t number, uint64_t *holder,
                bool *ended)
{
    VjSessionKey key = vj_claim_key(kind, number);
    int rc;

    g_assert(kind == VJ_CLAIM_REAPER || kind == VJ_CLAIM_CONTENT);
    rc = get_number(txn, &key, VJ_NUMBER_CLAIM, holder);
    return rc < 0 ? rc : vj_session_has_ended(txn, *holder, ended);
}

int vj_claim_take_new(VjTxn *txn, VjClaimKind kind, uint64_t number)
{
    VjSessionKey key = vj_claim_key(kind, number);
    int rc = put_number(txn, &key, VJ_NUMBER_CLAIM, own_number(txn));

    return rc == 0 ? put_index(txn, own_number(txn), kind, number) : rc;
}

int vj_claim_take(VjTxn *txn, VjClaimKind kind, uint64_t number, uint64_t *holder)
{
    uint64_t own = own_number(txn), before;
    bool ended;
    int rc = look(txn, kind, number, &before, &ended);

    *holder = own;
    if (rc < 0 || before == own) {
        return rc;
    }
    if (!ended) {
        *holder = before;
        return -EBUSY;
    }
    rc = before == 0 ? 0 : del_index(txn, before, kind, number);
    return rc == 0 ? vj_claim_take_new(txn, kind, number) : rc;
}

/* That of @session alone. */
static int drop(VjTxn *txn, uint64_t session, VjClaimKind kind, uint64_t number)
{
    VjSessionKey key = vj_claim_key(kind, number);
    uint64_t holder;
    int rc = get_number(txn, &key, VJ_NUMBER_CLAIM, &holder);

    if (rc < 0 || holder != session) {
        return rc;
    }
    rc = del_key(txn, &key);
    return rc == 0 ? del_index(txn, session, kind, number) : rc;
}

int vj_claim_drop(VjTxn *txn, VjClaimKind kind, uint64_t number)
{
    return drop(txn, own_number(txn), kind, number);
}

int vj_claim_holder(VjTxn *txn, VjClaimKind kind, uint64_t number, uint64_t *holder)
{
    bool ended;
    int rc = look(txn, kind, number, holder, &ended);

    if (rc == 0 && ended) {
        *holder = 0;
    }
    return rc;
}

/* ---- Holds ----------------------------------------------------------------------- */

static int has_hold(VjTxn *txn, uint64_t object, uint64_t session, bool *has)
{
    VjSessionKey key = vj_hold_key(object, session);
    VjSlice value;
    int rc = vj_txn_get(txn, VJ_SPACE_CLAIM, vj_session_key_slice(&key), &value);

    *has = rc == 0;
    return rc == -ENOENT ? 0 : rc;
}

/* One more, or one less; the last one takes the count along. */
static int count_hold(VjTxn *txn, uint64_t object, bool more)
{
    VjSessionKey key = vj_claim_key(VJ_CLAIM_HOLD, object);
    uint64_t count;
    int rc = get_number(txn, &key, VJ_NUMBER_HOLDS, &count);

    if (rc < 0) {
        return rc;
    }
    if (more) {
        return put_number(txn, &key, VJ_NUMBER_HOLDS, count + 1);
    }
    return count > 1 ? put_number(txn, &key, VJ_NUMBER_HOLDS, count - 1)
                     : del_key(txn, &key);
}

int vj_hold_put(VjTxn *txn, uint64_t object)
{
    uint64_t own = own_number(txn);
    VjSessionKey key = vj_hold_key(object, own);
    bool has;
    int rc = has_hold(txn, object, own, &has);

    if (rc < 0 || has) {
        return rc;
    }
    rc = put_number(txn, &key, VJ_NUMBER_CLAIM, own);
    if (rc == 0) {
        rc = put_index(txn, own, VJ_CLAIM_HOLD, object);
    }
    return rc == 0 ? count_hold(txn, object, true) : rc;
}

static int drop_hold(VjTxn *txn, uint64_t session, uint64_t object)
{
    VjSessionKey key = vj_hold_key(object, session);
    bool has;
    int rc = has_hold(txn, object, session, &has);

    if (rc < 0 || !has) {
        return rc;
    }
    rc = del_key(txn, &key);
    if (rc == 0) {
        rc = del_index(txn, session, VJ_CLAIM_HOLD, object);
    }
    return rc == 0 ? count_hold(txn, object, false) : rc;
}

int vj_hold_del(VjTxn *txn, uint64_t object)
{
    return drop_hold(txn, own_number(txn), object);
}

int vj_hold_any(VjTxn *txn, uint64_t object, bool *held)
{
    VjSessionKey prefix = vj_claim_key(VJ_CLAIM_HOLD, object);
    VjSlice value;
    VjScan scan;
    int rc = vj_txn_get(txn, VJ_SPACE_CLAIM, vj_session_key_slice(&prefix), &value);

    *held = false;
    if (rc < 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    vj_scan_begin(&scan, txn, VJ_SPACE_CLAIM, vj_session_key_slice(&prefix));
    while (!*held && vj_scan_next(&scan)) {
        bool ended = true;

        if (scan.key.len == VJ_HOLD_KEY_BYTES) {
            uint64_t session =
                vj_be64_get((const uint8_t *)scan.key.data + VJ_CLAIM_KEY_BYTES);

            rc = vj_session_has_ended(txn, session, &ended);
            if (rc < 0) {
                return rc;
            }
        }
        *held = !ended;
    }
    return scan.error;
}

/* ---- Release --------------------------------------------------------------------- */

/* What the index says at @key, and that entry itself. */
static int release_one(VjTxn *txn, uint64_t session, const VjSessionKey *key)
{
    uint8_t kind = key->bytes[9];
    uint64_t number = vj_be64_get(key->bytes + 10);
    int rc = 0;

    if (key->len == VJ_CLAIM_INDEX_KEY_BYTES && kind == VJ_CLAIM_HOLD) {
        rc = drop_hold(txn, session, number);
    } else if (key->len == VJ_CLAIM_INDEX_KEY_BYTES) {
        rc = drop(txn, session, (VjClaimKind)kind, number);
    }
    return rc == 0 ? del_key(txn, key) : rc;
}

int vj_claims_release(VjTxn *txn, uint64_t session, unsigned most, bool *more)
{
    VjSessionKey prefix = vj_claim_index_key(session, 0, 0);
    unsigned done = 0;
    VjScan scan;

    g_assert(most > 0 && session > 0);
    *more = false;
    prefix.len = 9; /* up to the kind */
    vj_scan_begin(&scan, txn, VJ_SPACE_CLAIM, vj_session_key_slice(&prefix));
    while (vj_scan_next(&scan)) {
        VjSessionKey key = {.len = 0};
        int rc;

        if (done == most) {
            *more = true;
            return 0;
        }
        if (scan.key.len > sizeof key.bytes) {
            continue; /* none of ours */
        }
        key.len = (uint8_t)scan.key.len;
        memcpy(key.bytes, scan.key.data, scan.key.len);
        rc = release_one(txn, session, &key);
        if (rc < 0) {
            return rc;
        }
        done++;
    }
    return scan.error;
}
