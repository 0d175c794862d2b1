/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * orphan-record.c - records of contents without a name
 *
 * Written in the transaction that takes the last name away, or that cuts a subtree off a
 * map.  The session that does so drops it, unless another one has the content open.
 */
#include "file/inode-format.h"
#include "file/records.h"
#include "meta/session.h"

VjSlice vj_orphan_key(uint64_t ino, uint32_t node, uint8_t bytes[VJ_ORPHAN_KEY_BYTES])
{
    vj_be64_set(bytes, ino);
    vj_be32_set(bytes + 8, node);
    return vj_slice(bytes, VJ_ORPHAN_KEY_BYTES);
}

void vj_orphan_encode(const VjOrphan *orphan, uint8_t out[VJ_ORPHAN_BYTES])
{
    VjOrphanDisk d = {
        .magic = GUINT32_TO_LE(VJ_ORPHAN_MAGIC),
        .node = GUINT32_TO_LE(orphan->root.node),
        .ino = GUINT64_TO_LE(orphan->ino),
        .bytes = GUINT64_TO_LE(orphan->root.bytes),
        .stored_bytes = GUINT64_TO_LE(orphan->root.stored_bytes),
        .session = GUINT64_TO_LE(orphan->session),
        .height = orphan->root.height,
        .flags = (uint8_t)orphan->flags,
    };

    g_assert((orphan->flags & ~VJ_ORPHAN_FLAGS) == 0);
    d.checksum = GUINT64_TO_LE(vj_checksum64(&d, offsetof(VjOrphanDisk, checksum)));
    memcpy(out, &d, sizeof d);
}

static bool disk_is_sane(const VjOrphanDisk *d, VjSlice key)
{
    static const uint8_t zeroes[sizeof d->reserved];

    return GUINT32_FROM_LE(d->magic) == VJ_ORPHAN_MAGIC &&
           GUINT64_FROM_LE(d->checksum) ==
               vj_checksum64(d, offsetof(VjOrphanDisk, checksum)) &&
           vj_be64_get(key.data) == GUINT64_FROM_LE(d->ino) &&
           vj_be32_get((const uint8_t *)key.data + 8) == GUINT32_FROM_LE(d->node) &&
           (d->flags & ~VJ_ORPHAN_FLAGS) == 0 &&
           memcmp(d->reserved, zeroes, sizeof zeroes) == 0;
}

int vj_orphan_decode(VjSlice key, VjSlice value, VjOrphan *out)
{
    VjOrphanDisk d;

    if (key.len != VJ_ORPHAN_KEY_BYTES || value.len != sizeof d) {
        return -EBADMSG;
    }
    memcpy(&d, value.data, sizeof d);
    if (!disk_is_sane(&d, key)) {
        return -EBADMSG;
    }
    *out = (VjOrphan){.ino = GUINT64_FROM_LE(d.ino),
                      .root = {.node = GUINT32_FROM_LE(d.node),
                               .height = d.height,
                               .bytes = GUINT64_FROM_LE(d.bytes),
                               .stored_bytes = GUINT64_FROM_LE(d.stored_bytes)},
                      .session = GUINT64_FROM_LE(d.session),
                      .flags = d.flags};
    return vj_map_root_check(&out->root);
}

static int record_put(VjTxn *txn, const VjOrphan *orphan)
{
    uint8_t key[VJ_ORPHAN_KEY_BYTES], value[VJ_ORPHAN_BYTES];

    vj_orphan_encode(orphan, value);
    return vj_txn_put(txn, VJ_SPACE_ORPHAN,
                      vj_orphan_key(orphan->ino, orphan->root.node, key),
                      vj_slice(value, sizeof value));
}

int vj_orphan_get(VjTxn *txn, uint64_t ino, VjOrphan *out)
{
    uint8_t key[VJ_ORPHAN_KEY_BYTES];
    VjSlice value, k = vj_orphan_key(ino, 0, key);
    int r = vj_txn_get(txn, VJ_SPACE_ORPHAN, k, &value);

    return r < 0 ? r : vj_orphan_decode(k, value, out);
}

int vj_orphan_put(VjTxn *txn, uint64_t ino)
{
    const VjOrphan orphan = {.ino = ino, .session = vj_meta_session(txn->meta)};

    return record_put(txn, &orphan);
}

int vj_orphan_put_unlinked(VjTxn *txn, uint64_t ino, bool *left_open)
{
    VjOrphan orphan = {.ino = ino, .session = vj_meta_session(txn->meta)};
    uint64_t holder = 0;
    int r = 0;

    if (vj_meta_is_shared(txn->meta)) {
        r = vj_claim_holder(txn, VJ_CLAIM_CONTENT, ino, &holder);
    }
    *left_open = r == 0 && holder != 0 && holder != orphan.session;
    if (*left_open) {
        orphan.session = holder;
        orphan.flags = VJ_ORPHAN_LEFT_OPEN;
    }
    return r < 0 ? r : record_put(txn, &orphan);
}

int vj_orphan_del(VjTxn *txn, uint64_t ino)
{
    uint8_t key[VJ_ORPHAN_KEY_BYTES];

    return vj_txn_del(txn, VJ_SPACE_ORPHAN, vj_orphan_key(ino, 0, key));
}

int vj_orphan_take_back(VjTxn *txn, uint64_t ino)
{
    uint64_t self = vj_meta_session(txn->meta), holder = self;
    VjOrphan orphan;
    int r;

    if (!vj_meta_is_shared(txn->meta)) {
        return vj_orphan_del(txn, ino);
    }
    r = vj_orphan_get(txn, ino, &orphan);
    if (r == 0 && (orphan.flags & VJ_ORPHAN_LEFT_OPEN)) {
        r = vj_claim_holder(txn, VJ_CLAIM_CONTENT, ino, &holder);
    }
    if (r == 0 && (orphan.session != self || holder != self)) {
        r = -ENOENT;
    }
    return r < 0 ? r : vj_orphan_del(txn, ino);
}

int vj_orphan_put_tree(VjTxn *txn, uint64_t ino, const VjMapRoot *root)
{
    const VjOrphan orphan = {
        .ino = ino, .root = *root, .session = vj_meta_session(txn->meta)};

    g_assert(root->node != 0);
    return record_put(txn, &orphan);
}
