/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * checkpoint-private.h - copies of the metadata: their files, and the thread that makes
 * them
 */
#ifndef VJ_VOLUME_CHECKPOINT_PRIVATE_H
#define VJ_VOLUME_CHECKPOINT_PRIVATE_H

#include "volume/checkpoint-format.h"
#include "volume/volume-private.h"

/* What stands at the end of a checkpoint. */
typedef struct VjCheckpointEnd {
    uint8_t uuid[16];
    int64_t made_s;
    uint64_t commit, image_bytes, image_checksum;
    uint32_t conf_bytes; /* of the copy of varjfs.conf behind the image */
} VjCheckpointEnd;

void vj_checkpoint_encode(const VjCheckpointEnd *end, VjCheckpointDisk *out);
/* -EBADMSG */
int vj_checkpoint_decode(const VjCheckpointDisk *d,
                         VjCheckpointEnd *out) G_GNUC_WARN_UNUSED_RESULT;
/* Of the first @bytes of @fd.  -EBADMSG: it is shorter; -EIO, -ENOMEM. */
int vj_checkpoint_sum(int fd, uint64_t bytes, uint64_t *out) G_GNUC_WARN_UNUSED_RESULT;
/* Reads the record at the end of @fd.  -EBADMSG: there is none. */
int vj_checkpoint_read_end(int fd, VjCheckpointEnd *out) G_GNUC_WARN_UNUSED_RESULT;
/* The copy of varjfs.conf; owned. */
int vj_checkpoint_read_conf(int fd, const VjCheckpointEnd *end,
                            char **text) G_GNUC_WARN_UNUSED_RESULT;
/* Opens @name if it is whole, and of the volume @super (NULL: any); *end its record. */
bool vj_checkpoint_open_whole(int dir, const char *name, const VjSuperblock *super,
                              int *out_fd, VjCheckpointEnd *end, GError **error);
/* SOURCE/checkpoints; -errno, -ENOENT where the place has no directory. */
int vj_checkpoint_open_dir(const VjPlace *p, bool create);
/* Newest first; those that are none are left out.  GArray of VjCheckpoint, owned. */
int vj_checkpoint_list(int checkpoints_fd, GArray **out) G_GNUC_WARN_UNUSED_RESULT;

#endif
