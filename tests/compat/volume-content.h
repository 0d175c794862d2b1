/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * volume-content.h - what the volume in volume-v2.tar.gz holds
 *
 * make-volume makes such a volume, test-volume compares a copy of the committed one with
 * it.  After a release what is in the committed volume never changes; a new version adds
 * a volume of its own.
 */
#ifndef VJ_TESTS_COMPAT_VOLUME_CONTENT_H
#define VJ_TESTS_COMPAT_VOLUME_CONTENT_H

#include "base/base.h"

#define VOLUME_OPTIONS                                                                   \
    "hash=sha256,chunker=mincdc,objects=1K,label=compat v2,transform=none"

/* Pseudo-random bytes [skip, skip + length) of the sequence @seed, one byte again and
 * again, or nothing. */
typedef enum PartKind { PART_END = 0, PART_RANDOM, PART_FILL, PART_HOLE } PartKind;

typedef struct Part {
    PartKind kind;
    uint32_t seed; /* PART_FILL: the byte */
    uint64_t length;
    uint64_t skip;
} Part;

#define PARTS_MAX 4

typedef struct FileContent {
    const char *path;
    Part parts[PARTS_MAX];
} FileContent;

/* Ends with a NULL path. */
extern const FileContent volume_files[];

/* Bytes of a file. */
uint64_t content_size(const FileContent *f);
/* Bytes [offset, offset + len) of it; a hole reads as zeroes. */
void content_read(const FileContent *f, uint64_t offset, uint8_t *dst, size_t len);

/* A file with three names. */
#define LINK_FIRST "link-1"
#define LINK_SECOND "d/link-2"
#define LINK_THIRD "d/e/link-3"

#define SYMLINK_SHORT_TARGET "d/e/../e"
#define SYMLINK_LONG_BYTES 4095u /* of 's' */

/* names/: one of 255 'n', and these. */
extern const char *const odd_names[];
#define LONG_NAME_BYTES 255u

/* many/: "0" … "299", every third removed, "1" renamed to "one", then "last" made. */
#define MANY_COUNT 300u

/* attributes: */
#define ATTRIBUTES_MODE 06751u
#define ATTRIBUTES_UID 1234567u
#define ATTRIBUTES_GID 7654321u
#define ATTRIBUTES_ATIME ((struct timespec){-630720000, 123456789}) /* 1950 */
#define ATTRIBUTES_MTIME ((struct timespec){32503680000, 1})        /* 3000 */
#define BINARY_BYTES 256u                                           /* 0, 1, … */
#define BIG_BYTES 65536u                                            /* of 'b' */

/* Device nodes. */
#define CHAR_DEVICE makedev(1, 3)
#define BLOCK_DEVICE makedev(259, 1048575)

#endif
