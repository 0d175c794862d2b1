/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * A checkpoint from anybody, in a volume whose metadata are to be restored from it.  One
 * that the engine wrote is changed as the input says, in its image and in the record at
 * its end; what was changed is mostly made right again, so that what lies behind it is
 * reached.
 *
 * A record that is accepted is written as the same bytes.  Either the restore changes
 * nothing, and the volume can be mounted as before, or the metadata are the image, the
 * old ones are kept, and the repair that follows comes to an end.
 *
 * The input: how (1), bytes of the record (1) and those, then changes of the image: where
 * (4), what (1), a number (8).
 */
#include "fsck/fsck.h"
#include "fuzz-volume.h"

#include <sys/mman.h>

#include "volume/checkpoint-private.h"

#define CHANGES_MAX 16
#define NAME "20261122T000000Z"

enum { BAD_SUM = 1, BAD_IMAGE_SUM = 2, BAD_LENGTH = 4, BAD_UUID = 8, SHORTENED = 16 };

static char *dir;
static GByteArray *image;
static char *conf;            /* what stands behind it, */
static VjCheckpointEnd right; /* and behind that */

/* ---- the volume -------------------------------------------------------------------- */

static void end(void)
{
    g_byte_array_unref(image);
    g_free(conf);
    fuzz_kept_clear();
    fuzz_dir_remove(dir);
}

static void take_image(VjVolume *v)
{
    VJ_AUTO_FD fd = memfd_create("fuzz", MFD_CLOEXEC);
    VjMetaSaved saved;

    g_assert(fd >= 0 && vj_meta_save(v->meta, fd, &saved) == 0);
    image = g_byte_array_new();
    g_byte_array_set_size(image, (guint)saved.bytes);
    g_assert(vj_fd_pread_all(fd, image->data, image->len, 0) == 0);
    right.made_s = 1795305600;
    right.commit = saved.commit;
    right.image_bytes = saved.bytes;
    conf = g_strdup(v->super.text);
    right.conf_bytes = (uint32_t)strlen(conf);
    g_assert(vj_uuid_parse(v->super.uuid, right.uuid));
}

static void begin(void)
{
    VjHandle *h;
    VjVolume *v;
    VjAttr attr;
    VjFs *fs;

    dir = fuzz_dir_new();
    fuzz_volume_make(dir, "objects=1K,meta=lmdb:redo=0");
    v = fuzz_volume_open(dir, false);
    fs = vj_fs_new(v);
    g_assert(vj_fs_create(fs, &fuzz_root, VJ_INO_ROOT, "file", 0644, O_RDWR, &attr, &h) ==
             0);
    g_assert(vj_fs_write(h, 0, dir, strlen(dir), 0, NULL) == 0);
    g_assert(vj_fs_sync_all(fs) == 0);
    vj_fs_release(fs, h);
    take_image(v);
    g_assert(vj_fs_unlink(fs, VJ_INO_ROOT, "file") == 0);
    vj_fs_free(fs);
    g_assert(vj_volume_close(v) == 0);
    fuzz_keep(dir);
    atexit(end);
}

static bool is_there(const char *name)
{
    g_autofree char *path = g_build_filename(dir, name, NULL);

    return access(path, F_OK) == 0;
}

static bool metadata_are(const uint8_t *bytes, size_t len)
{
    g_autofree char *path = g_build_filename(dir, "meta/data.mdb", NULL);
    g_autofree char *text = NULL;
    gsize got;

    g_assert(g_file_get_contents(path, &text, &got, NULL));
    return got == len && memcmp(text, bytes, len) == 0;
}

static bool metadata_are_old(void)
{
    g_autofree char *path = g_build_filename(dir, "meta/data.mdb", NULL);
    gsize len;
    const uint8_t *bytes = g_bytes_get_data(g_hash_table_lookup(fuzz_kept, path), &len);

    return metadata_are(bytes, len);
}

/* ---- the checkpoint ---------------------------------------------------------------- */

static void change(VjReader *in, uint8_t *bytes, size_t len)
{
    uint64_t where = vj_read_u32(in) % len;
    uint8_t what = vj_read_u8(in);
    uint64_t number = vj_read_u64(in);
    size_t room = len - where;

    switch (what % 4) {
    case 0:
        memcpy(bytes + where, &number, MIN(room, 8));
        break;
    case 1:
        memcpy(bytes + where, &number, MIN(room, 2));
        break;
    case 2:
        bytes[where] ^= (uint8_t)(1u << (number % 8));
        break;
    default:
        memset(bytes + where, (int)number, MIN(room, (size_t)what * 16));
    }
}

/* The same again. */
static void expect_inverse(const VjCheckpointDisk *disk)
{
    VjCheckpointDisk again;
    VjCheckpointEnd read;

    if (vj_checkpoint_decode(disk, &read) == 0) {
        vj_checkpoint_encode(&read, &again);
        g_assert(memcmp(disk, &again, sizeof again) == 0);
    }
}

static void set_le32(uint8_t *to, uint32_t n)
{
    n = GUINT32_TO_LE(n);
    memcpy(to, &n, sizeof n);
}

static void set_le64(uint8_t *to, uint64_t n)
{
    n = GUINT64_TO_LE(n);
    memcpy(to, &n, sizeof n);
}

/* The right one with @first in front, behind @fd's image. */
static void make_record(VjSlice first, uint8_t how, int fd, uint64_t image_bytes,
                        VjCheckpointDisk *disk)
{
    uint64_t sum;

    vj_checkpoint_encode(&right, disk);
    if (first.len > 0) {
        memcpy(disk, first.data, first.len);
    }
    expect_inverse(disk);
    if ((how & BAD_UUID) == 0) {
        memcpy(disk->uuid, right.uuid, sizeof disk->uuid);
    }
    if ((how & BAD_LENGTH) == 0) {
        set_le32(disk->conf_bytes, right.conf_bytes);
        set_le64(disk->image_bytes, image_bytes);
    }
    if ((how & BAD_IMAGE_SUM) == 0) {
        g_assert(vj_checkpoint_sum(fd, image_bytes, &sum) == 0);
        set_le64(disk->image_checksum, sum);
    }
    if ((how & BAD_SUM) == 0) {
        set_le64(disk->checksum,
                 vj_checksum64(disk, offsetof(VjCheckpointDisk, checksum)));
    }
    expect_inverse(disk);
}

/* Its file, and what the metadata are if they are taken from it. */
static GByteArray *make_checkpoint(VjReader *in, uint8_t *how)
{
    g_autofree char *parent = g_build_filename(dir, VJ_CHECKPOINTS_NAME, NULL);
    g_autofree char *path = g_build_filename(parent, NAME, NULL);
    VJ_AUTO_FD fd = -1;
    GByteArray *bytes = g_byte_array_new();
    VjCheckpointDisk disk;
    VjSlice record;

    g_byte_array_append(bytes, image->data, image->len);
    *how = vj_read_u8(in);
    record.len = vj_read_u8(in);
    record = vj_read_bytes(in, MIN(MIN(record.len, sizeof disk), in->left));
    if ((*how & SHORTENED) != 0) {
        g_byte_array_set_size(bytes, vj_read_u32(in) % image->len);
    }
    for (unsigned n = 0; n < CHANGES_MAX && bytes->len > 0 && in->left >= 13; n++) {
        change(in, bytes->data, bytes->len);
    }
    g_assert(g_mkdir_with_parents(parent, 0700) == 0);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    g_assert(fd >= 0 && vj_fd_write_all(fd, bytes->data, bytes->len) == 0);
    make_record(record, *how, fd, bytes->len, &disk);
    g_assert(vj_fd_write_all(fd, conf, strlen(conf)) == 0 &&
             vj_fd_write_all(fd, &disk, sizeof disk) == 0);
    return bytes;
}

/* ---- restoring it ------------------------------------------------------------------ */

static void mount_it(bool is_restored)
{
    VjVolumeOpen how = {.source = dir,
                        .check = is_restored,
                        .repair = is_restored,
                        .restoring = is_restored,
                        .workers = 1};
    g_autoptr(GError) error = NULL;
    VjCheckReport report = {0};
    VjVolume *v;

    if (!vj_volume_open(&how, &v, &error)) {
        g_assert(is_restored);
        fuzz_expect_line(error->message);
        return;
    }
    if (is_restored && vj_volume_restored(v) == 0) {
        (void)!vj_fsck_contents(v, true, fuzz_volume_say, NULL, &report);
        (void)!vj_fsck_names(v, fuzz_volume_say, NULL, &report);
    }
    (void)!vj_volume_close(v);
}

FUZZ_MUTATIONS(10);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    VjReader in = vj_reader(vj_slice(data, len));
    g_autoptr(GByteArray) bytes = NULL;
    g_autoptr(GArray) list = NULL;
    g_autoptr(GError) error = NULL;
    g_autofree char *kept = NULL, *kept_name = NULL;
    VjCheckpoint c;
    uint8_t how;

    fuzz_quiet();
    if (dir == NULL) {
        begin();
    }
    fuzz_put_back(dir);
    bytes = make_checkpoint(&in, &how);
    list = vj_volume_checkpoints(dir, &error);
    g_assert(list != NULL && list->len <= 1);
    if (vj_volume_restore(dir, NULL, 0, &c, &kept, &error)) {
        kept_name = g_build_filename("meta", kept, NULL);
        g_assert(list->len == 1 && strcmp(c.name, NAME) == 0);
        g_assert(is_there(kept_name) && is_there(VJ_RESTORING_NAME));
        g_assert(metadata_are(bytes->data, bytes->len));
        mount_it(true);
    } else {
        fuzz_expect_line(error->message);
        g_assert(len > 0 && metadata_are_old() && !is_there(VJ_RESTORING_NAME));
        mount_it(false);
    }
    return 0;
}
