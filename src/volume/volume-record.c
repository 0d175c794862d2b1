/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * volume-record.c - which volume some metadata belong to
 *
 * varjfs.conf, meta/ and objects/ can be restored from different backups, or mounted from
 * different places.  Metadata that meet the objects of another volume would take them for
 * leftovers of a crash and remove them: so all three name the volume, and nothing is done
 * before they agree.
 */
#include "file/inode-format.h"
#include "volume/volume-private.h"

static VjSlice record_key(void)
{
    return vj_slice(VJ_VOLUME_KEY, strlen(VJ_VOLUME_KEY));
}

int vj_volume_record_put(VjTxn *txn, const char *uuid)
{
    VjVolumeDisk d = {.magic = GUINT32_TO_LE(VJ_VOLUME_MAGIC)};
    bool is_uuid = vj_uuid_parse(uuid, d.uuid);

    g_assert(is_uuid);
    d.checksum = GUINT64_TO_LE(vj_checksum64(&d, offsetof(VjVolumeDisk, checksum)));
    return vj_txn_put(txn, VJ_SPACE_SYSTEM, record_key(), vj_slice(&d, sizeof d));
}

static int get_body(VjTxn *txn, void *opaque)
{
    uint8_t *uuid = opaque;
    VjVolumeDisk d;
    VjSlice value;
    int r = vj_txn_get(txn, VJ_SPACE_SYSTEM, record_key(), &value);

    if (r < 0) {
        return r;
    }
    if (value.len != sizeof d) {
        return -EBADMSG;
    }
    memcpy(&d, value.data, sizeof d);
    memcpy(uuid, d.uuid, sizeof d.uuid);
    return GUINT32_FROM_LE(d.magic) == VJ_VOLUME_MAGIC && d.reserved == 0 &&
                   GUINT64_FROM_LE(d.checksum) ==
                       vj_checksum64(&d, offsetof(VjVolumeDisk, checksum))
               ? 0
               : -EBADMSG;
}

int vj_volume_record_get(VjMeta *m, uint8_t uuid[16])
{
    return vj_meta_view(m, get_body, uuid);
}

static int mend_body(VjTxn *txn, void *opaque)
{
    return vj_volume_record_put(txn, opaque);
}

bool vj_volume_record_mend(VjMeta *m, const char *uuid, bool *mended, GError **error)
{
    uint8_t found[16];
    int r = vj_volume_record_get(m, found);

    *mended = r == -ENOENT || r == -EBADMSG;
    if (*mended) {
        r = vj_meta_run(m, VJ_RUN_RELEASE, mend_body, (void *)(uintptr_t)uuid);
        if (r == 0) {
            vj_log_warn("the record that says whose metadata these are was damaged: as "
                        "varjfs.conf and the store say, they are those of %s",
                        uuid);
        }
    }
    return r == 0 || vj_error_set_errno(error, -r, "metadata");
}

bool vj_volume_record_check(VjMeta *m, const char *uuid, const char *path, GError **error)
{
    uint8_t found[16], wanted[16];
    bool is_uuid = vj_uuid_parse(uuid, wanted);
    int r = vj_volume_record_get(m, found);

    g_assert(is_uuid);
    if (r == -ENOENT || r == -EBADMSG) {
        return vj_error_set(error, EBADMSG,
                            "%s: the record that says whose metadata these are "
                            "is %s",
                            path, r == -ENOENT ? "missing" : "damaged");
    }
    if (r < 0) {
        return vj_error_set_errno(error, -r, "%s", path);
    }
    if (memcmp(found, wanted, sizeof found) != 0) {
        return vj_error_set(error, EBADMSG,
                            "%s: these are the metadata of another volume, "
                            "not of %s",
                            path, uuid);
    }
    return true;
}
