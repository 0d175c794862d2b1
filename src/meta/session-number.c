/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * session-number.c - a session's number, and its record
 *
 * An exclusive session writes its record by an ordinary commit, and becomes durable with
 * what it commits next: whatever names its number comes later, so a crash loses the
 * number only together with that.  The record is the session's fence, too (fence.c).
 *
 * Other sessions have ended by then, and their records say so from this commit on, which
 * shuts out one that does not know it.
 */
#include "meta/session-private.h"

VjSlice vj_session_next_key(void)
{
    return vj_slice(VJ_NEXT_SESSION_KEY, strlen(VJ_NEXT_SESSION_KEY));
}

/* ---- A number -------------------------------------------------------------------- */

/*
 * A counter that is damaged, or gone although there were sessions, begins anew with the
 * time: no volume counts a session each microsecond, so that number was never given.
 */
static uint64_t begin_anew(const VjSession *s)
{
    struct timespec now = vj_clock_real();

    vj_log_error("meta %s: the number of the next session is damaged, and begins anew",
                 s->label);
    return (uint64_t)now.tv_sec * 1000 * 1000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t vj_session_choose_number(const VjSession *s, const VjSlice *value, uint64_t last)
{
    uint64_t number = 1;

    if (value != NULL && vj_number_decode(VJ_NUMBER_NEXT_SESSION, vj_session_next_key(),
                                          *value, &number) < 0) {
        number = begin_anew(s);
    }
    return number > last ? number : MAX(begin_anew(s), last + 1);
}

/* ---- The others ------------------------------------------------------------------ */

static int end_one(VjTxn *txn, VjSlice key, VjSessionRecord *record)
{
    uint8_t bytes[VJ_SESSION_RECORD_BYTES];

    record->state = VJ_SESSION_ENDED;
    vj_session_encode(record, bytes);
    return vj_session_put(txn, VJ_SPACE_SESSION, key, vj_slice(bytes, sizeof bytes));
}

/* *last: the largest number that has a record. */
static int end_others(VjTxn *txn, uint64_t *last)
{
    uint8_t at[VJ_META_KEY_MAX];
    VjSlice from = vj_slice(NULL, 0), key, value;
    int rc;

    *last = 0;
    while ((rc = vj_view_next(txn, VJ_SPACE_SESSION, from, &key, &value)) == 0) {
        VjSessionRecord record;

        memcpy(at, key.data, key.len);
        from = vj_slice(at, key.len);
        if (vj_session_decode(from, value, &record) == 0) {
            *last = MAX(*last, record.id);
            rc = record.state == VJ_SESSION_LIVE ? end_one(txn, from, &record) : 0;
        }
        if (rc < 0) {
            return rc;
        }
    }
    return rc == -ENOENT ? 0 : rc;
}

/* ---- Joining and leaving --------------------------------------------------------- */

static int write_records(VjTxn *txn, uint64_t number, const char *name)
{
    VjSessionRecord record = vj_session_record_of(number, VJ_SESSION_EXCLUSIVE, name);
    VjSessionKey key = vj_session_key(number);
    uint8_t bytes[VJ_SESSION_RECORD_BYTES], next[VJ_NUMBER_BYTES];
    VjSlice counter = vj_session_next_key();
    int rc;

    vj_session_encode(&record, bytes);
    vj_number_encode(VJ_NUMBER_NEXT_SESSION, counter, number + 1, next);
    rc = vj_session_put(txn, VJ_SPACE_SYSTEM, counter, vj_slice(next, sizeof next));
    return rc < 0 ? rc
                  : vj_session_put(txn, VJ_SPACE_SESSION, vj_session_key_slice(&key),
                                   vj_slice(bytes, sizeof bytes));
}

static int join_body(VjSession *s, VjTxn *txn, const char *name, uint64_t *number)
{
    VjSlice value;
    uint64_t last;
    int rc = end_others(txn, &last);

    if (rc < 0) {
        return rc;
    }
    rc = vj_view_get(txn, VJ_SPACE_SYSTEM, vj_session_next_key(), &value);
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    *number = vj_session_choose_number(s, rc == 0 ? &value : NULL, last);
    return write_records(txn, *number, name);
}

static int join(VjSession *s, const char *name, uint64_t *number)
{
    VjSessionTxn t = {.txn = {.meta = &s->meta, .write = true, .release = true}};
    int rc = vj_session_begin(&s->meta, &t.txn);

    if (rc < 0) {
        return rc;
    }
    rc = join_body(s, &t.txn, name, number);
    if (rc < 0) {
        vj_session_abort(&t.txn);
        return rc;
    }
    return vj_session_commit(&t.txn);
}

bool vj_session_join(VjSession *s, const char *name, GError **error)
{
    VjFence *f = &s->fence;
    uint64_t number;
    int rc = join(s, name, &number);

    if (rc < 0) {
        return vj_error_set_errno(error, -rc, "%s: the record of this session", s->path);
    }
    vj_mutex_lock(&s->state);
    s->number = number;
    f->key = vj_session_key(number);
    f->check.key = (VjKey){VJ_SPACE_SESSION, vj_session_key_slice(&f->key)};
    f->join_seq = s->seq;
    vj_mutex_unlock(&s->state);
    vj_trace(meta, "session %" G_GUINT64_FORMAT " of %s: %s", number, s->label, name);
    return true;
}

int vj_session_leave(VjSession *s)
{
    VjSessionTxn t = {.txn = {.meta = &s->meta, .write = true, .release = true}};
    int rc;

    if (s->number == 0 || s->fence.stays) {
        return 0;
    }
    rc = vj_session_begin(&s->meta, &t.txn);
    if (rc < 0) {
        return rc;
    }
    rc = vj_session_del(&t.txn, VJ_SPACE_SESSION, s->fence.check.key.key);
    if (rc < 0) {
        vj_session_abort(&t.txn);
        return rc == -ENOENT ? 0 : rc;
    }
    rc = vj_session_commit(&t.txn);
    if (rc == 0) {
        vj_mutex_lock(&s->state);
        s->fence.leave_seq = s->seq;
        vj_mutex_unlock(&s->state);
    }
    return rc;
}
