/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * scrub-record.c - where a scrub goes on when it was interrupted
 *
 * Each step writes its place in a commit of its own, which becomes durable as any other
 * does: a crash costs what was read since.  The steps of a pass follow each other by
 * their places, so that two passes at the same time, or an old one that a caller goes on
 * with, do not mix.
 */
#include "volume/scrub-format.h"
#include "volume/volume-private.h"

static VjSlice record_key(void)
{
    return vj_slice(VJ_SCRUB_KEY, strlen(VJ_SCRUB_KEY));
}

/* ---- bytes ------------------------------------------------------------------------- */

static void encode_pass(const VjScrubPass *pass, VjScrubPassDisk *out)
{
    *out = (VjScrubPassDisk){.begun_s = GUINT64_TO_LE(pass->begun_s),
                             .objects = GUINT64_TO_LE(pass->objects),
                             .bytes = GUINT64_TO_LE(pass->bytes),
                             .damaged = GUINT64_TO_LE(pass->damaged)};
}

static void decode_pass(const VjScrubPassDisk *disk, VjScrubPass *out)
{
    *out = (VjScrubPass){.begun_s = GUINT64_FROM_LE(disk->begun_s),
                         .objects = GUINT64_FROM_LE(disk->objects),
                         .bytes = GUINT64_FROM_LE(disk->bytes),
                         .damaged = GUINT64_FROM_LE(disk->damaged)};
}

static bool is_empty(const VjScrubPass *p)
{
    return (p->begun_s | p->objects | p->bytes | p->damaged) == 0;
}

void vj_scrub_encode(const VjScrubStatus *status, VjScrubDisk *out)
{
    *out = (VjScrubDisk){.magic = GUINT32_TO_LE(VJ_SCRUB_MAGIC),
                         .place = GUINT64_TO_LE(status->place),
                         .finished_s = GUINT64_TO_LE(status->finished_s)};
    encode_pass(&status->pass, &out->pass);
    encode_pass(&status->last, &out->last);
    out->checksum = GUINT64_TO_LE(vj_checksum64(out, offsetof(VjScrubDisk, checksum)));
}

int vj_scrub_decode(VjSlice value, VjScrubStatus *out)
{
    VjScrubDisk d;

    if (value.len != sizeof d) {
        return -EBADMSG;
    }
    memcpy(&d, value.data, sizeof d);
    if (GUINT32_FROM_LE(d.magic) != VJ_SCRUB_MAGIC || d.reserved != 0 ||
        GUINT64_FROM_LE(d.checksum) !=
            vj_checksum64(&d, offsetof(VjScrubDisk, checksum))) {
        return -EBADMSG;
    }
    out->place = GUINT64_FROM_LE(d.place);
    out->finished_s = GUINT64_FROM_LE(d.finished_s);
    decode_pass(&d.pass, &out->pass);
    decode_pass(&d.last, &out->last);
    return out->place == UINT64_MAX || (out->place == 0 && !is_empty(&out->pass)) ||
                   (out->finished_s == 0 && !is_empty(&out->last))
               ? -EBADMSG
               : 0;
}

int vj_scrub_get(VjTxn *txn, VjScrubStatus *out)
{
    VjSlice value;
    int rc = vj_txn_get(txn, VJ_SPACE_SYSTEM, record_key(), &value);

    *out = (VjScrubStatus){.place = 0};
    if (rc == 0) {
        rc = vj_scrub_decode(value, out);
    }
    return rc == -ENOENT ? 0 : rc;
}

/* ---- steps ------------------------------------------------------------------------- */

typedef struct Step {
    uint64_t from, to, now_s;
    const VjScrubPass *figures;
} Step;

static int note_body(VjTxn *txn, void *opaque)
{
    const Step *step = opaque;
    VjScrubStatus s;
    VjScrubDisk disk;
    int rc = vj_scrub_get(txn, &s);

    if (rc == -EBADMSG) { /* fsck reports it; here it is as if there were none */
        s = (VjScrubStatus){.place = 0};
    } else if (rc < 0) {
        return rc;
    }
    if (step->from == 0) {
        s.place = 0;
        s.pass = (VjScrubPass){.begun_s = step->now_s};
    } else if (s.place != step->from) {
        return 0;
    }
    s.pass.objects += step->figures->objects;
    s.pass.bytes += step->figures->bytes;
    s.pass.damaged += step->figures->damaged;
    s.place = step->to;
    if (step->to == UINT64_MAX) {
        s.last = s.pass;
        s.finished_s = MAX(step->now_s, 1);
        s.pass = (VjScrubPass){.begun_s = 0};
        s.place = 0;
    }
    vj_scrub_encode(&s, &disk);
    return vj_txn_put(txn, VJ_SPACE_SYSTEM, record_key(), vj_slice(&disk, sizeof disk));
}

int vj_scrub_note(VjMeta *m, uint64_t from, uint64_t to, const VjScrubPass *step)
{
    Step s = {.from = from,
              .to = to,
              .now_s = (uint64_t)MAX(vj_clock_real().tv_sec, 0),
              .figures = step};
    int rc;

    g_assert(to > from);
    /* Of the same length each time: a full device is scrubbed as well. */
    rc = vj_meta_run(m, VJ_RUN_RELEASE, note_body, &s);
    return rc == 0 && to == UINT64_MAX ? vj_meta_flush(m) : rc;
}

static int scrub_get_body(VjTxn *txn, void *opaque)
{
    return vj_scrub_get(txn, opaque);
}

int vj_volume_scrub_status(VjVolume *v, VjScrubStatus *out)
{
    return vj_meta_view(v->meta, scrub_get_body, out);
}
