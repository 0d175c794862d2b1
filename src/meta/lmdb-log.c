/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-log.c - what the LMDB file says of the log beside it
 *
 * The first apply of a mount says in the file that there is a log, by a version that
 * older programs refuse, and only then the log is used; the last one takes that back.
 * Which part of the log counts is written in the same LMDB transaction as the batch.
 */
#include "meta/lmdb-format.h"
#include "meta/lmdb-private.h"

/* ---- What the file says ------------------------------------------------------------ */

static MDB_val text_val(const char *text)
{
    return (MDB_val){.mv_size = strlen(text), .mv_data = (void *)(uintptr_t)text};
}

static int put_version(MDB_txn *txn, MDB_dbi unnamed, uint32_t version)
{
    VjLmdbFormat format = vj_lmdb_format_encode(version);
    MDB_val key = text_val(VJ_LMDB_FORMAT_KEY);
    MDB_val value = {.mv_size = sizeof format, .mv_data = &format};

    return mdb_put(txn, unnamed, &key, &value, 0);
}

static int put_retired(MDB_txn *txn, MDB_dbi unnamed)
{
    MDB_val key = text_val(VJ_LMDB_REDO_KEY);
    int rc = mdb_del(txn, unnamed, &key, NULL);

    return rc == 0 || rc == MDB_NOTFOUND
               ? put_version(txn, unnamed, VJ_LMDB_FORMAT_VERSION)
               : rc;
}

int vj_lmdb_log_note(VjLmdb *d, MDB_txn *txn, const VjRedoPoint *point)
{
    MDB_val key = text_val(VJ_LMDB_REDO_KEY);
    VjRedoState state;
    MDB_val value = {.mv_size = sizeof state, .mv_data = &state};
    int rc = 0;

    if (point == NULL) {
        return d->claimed ? put_retired(txn, d->unnamed) : 0;
    }
    vj_redo_point_encode(point, &state);
    if (!d->claimed) {
        rc = put_version(txn, d->unnamed, VJ_LMDB_FORMAT_LOGGED);
    }
    return rc == 0 ? mdb_put(txn, d->unnamed, &key, &value, 0) : rc;
}

int vj_lmdb_log_read_point(MDB_txn *txn, MDB_dbi unnamed, VjRedoPoint *point)
{
    MDB_val key = text_val(VJ_LMDB_REDO_KEY);
    MDB_val value;
    int rc = mdb_get(txn, unnamed, &key, &value);

    *point = (VjRedoPoint){.round = 1};
    if (rc != 0) {
        return rc == MDB_NOTFOUND ? -EBADMSG : -EIO;
    }
    return vj_redo_point_decode(vj_slice(value.mv_data, value.mv_size), point);
}

/* ---- Files that no session has open ------------------------------------------------ */

/* An environment of one file and one transaction. */
typedef struct Peek {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi unnamed;
    bool claimed;
} Peek;

static void peek_end(Peek *p)
{
    if (p->txn != NULL) {
        mdb_txn_abort(p->txn);
    }
    if (p->env != NULL) {
        mdb_env_close(p->env);
    }
    *p = (Peek){0};
}

/* An LMDB code. */
static int peek_begin(Peek *p, int dir_fd, const char *name, bool write, uint64_t bytes)
{
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d/%s", dir_fd, name);
    unsigned flags = write ? 0 : MDB_RDONLY;
    MDB_val key = text_val(VJ_LMDB_FORMAT_KEY);
    MDB_val value;
    int rc;

    *p = (Peek){0};
    rc = mdb_env_create(&p->env);
    if (rc != 0) {
        return rc;
    }
    rc = mdb_env_set_mapsize(p->env, (bytes + VJ_MIB) / VJ_MIB * VJ_MIB + VJ_MIB);
    if (rc == 0) {
        rc = mdb_env_open(p->env, path, flags | MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOTLS,
                          0600);
    }
    if (rc == 0) {
        rc = mdb_txn_begin(p->env, NULL, flags, &p->txn);
    }
    if (rc == 0) {
        rc = mdb_dbi_open(p->txn, NULL, 0, &p->unnamed);
    }
    if (rc == 0) {
        rc = mdb_get(p->txn, p->unnamed, &key, &value);
    }
    if (rc == 0) {
        p->claimed = value.mv_size == sizeof(VjLmdbFormat) &&
                     vj_le32_get(((const VjLmdbFormat *)value.mv_data)->version) ==
                         VJ_LMDB_FORMAT_LOGGED;
    }
    return rc;
}

/* A file that LMDB does not take, or that is none of varjfs, is reported by opening
 * it. */
static int peek_error(int rc)
{
    return rc == 0 || rc == MDB_NOTFOUND ? 0 : rc == ENOMEM ? -ENOMEM : -EIO;
}

static int examine_log(const VjMetaPlace *place, const VjRedoPoint *point,
                       const VjRedoReader *reader, VjMetaExam *out)
{
    VjRedoFound found = {0};
    VjRedo *log;
    int rc = vj_redo_open(place->dir_fd, false, &log);
    const char *why = vj_redo_why_not(log, rc, point);

    if (rc < 0 && !vj_redo_is_lost(rc)) {
        return rc;
    }
    rc = 0;
    if (why != NULL) {
        out->log_flaws = 1;
        if (reader->say != NULL) {
            reader->say(reader->opaque, why);
        }
    } else {
        rc = vj_redo_read(log, point, reader, &found);
        out->log_flaws = found.flaws;
    }
    vj_redo_close(log);
    return rc;
}

typedef struct Teller {
    VjMetaFlaw *say;
    void *opaque;
} Teller;

static void tell(void *opaque, const char *text)
{
    const Teller *t = opaque;
    g_autofree char *line = g_strdup_printf(VJ_REDO_FILE ": %s", text);

    if (t->say != NULL) {
        t->say(t->opaque, line);
    }
}

int vj_lmdb_log_examine(const VjMetaPlace *place, VjMetaFlaw *say, void *opaque,
                        VjMetaExam *out)
{
    Teller teller = {.say = say, .opaque = opaque};
    VjRedoReader reader = {.say = tell, .opaque = &teller};
    VjRedoPoint point;
    Peek p;
    int rc = peek_error(peek_begin(&p, place->dir_fd, VJ_LMDB_FILE, false, 0));
    bool claimed = p.claimed;
    int found = claimed ? vj_lmdb_log_read_point(p.txn, p.unnamed, &point) : 0;

    peek_end(&p);
    if (rc < 0 || !claimed) {
        return rc;
    }
    if (found == -EBADMSG) {
        out->log_flaws = 1;
        tell(&teller, VJ_LMDB_FILE " does not say which");
        return 0;
    }
    return found < 0 ? found : examine_log(place, &point, &reader, out);
}

int vj_lmdb_log_forget(int dir_fd, const char *name, uint64_t bytes)
{
    Peek p;
    int rc = peek_begin(&p, dir_fd, name, true, bytes);

    if (rc == 0 && p.claimed) {
        rc = put_retired(p.txn, p.unnamed);
        if (rc == 0) {
            rc = mdb_txn_commit(p.txn);
            p.txn = NULL;
        }
    }
    peek_end(&p);
    return rc == ENOSPC ? -ENOSPC : peek_error(rc);
}
