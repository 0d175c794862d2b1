/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bad-disk STATE MIB MNT - a disk whose writes fail when a test says so
 *
 * A FUSE file system with two files, for a loop device over MNT/disk.  It stays in the
 * foreground and serves one request at a time.  What stands on the medium is
 * STATE/durable, what the disk would answer to a read is STATE/now: a flush (fsync of the
 * file) copies what was written since the last one.  A command is one write(2) to
 * MNT/control:
 *
 *     seed N         for all that is random
 *     fail KINDS N   the next N requests of these kinds get EIO (a list with commas); of
 *                    what such a write brought all, nothing, or some blocks are there all
 *                    the same
 *     well           none fails any more
 *     cut            the power goes: of what was not flushed some blocks stay, and from
 *                    now on every request fails
 *     revive         the power is back
 *
 * A read of MNT/control gives "name=count" for all requests, flushes, and those of each
 * kind that failed.
 *
 * Kinds tell what a request writes by what is in it, so that they mean the same on every
 * file system:
 *
 *     meta       a page of LMDB
 *     log        a record or the head of the redo log
 *     objects    the marker that the workload puts into its files
 *     names      a name of an object: blocks of directories, also in a journal
 *     all        every write
 *     flush      no write, but every flush
 */
#define FUSE_USE_VERSION 314

#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "meta/lmdb-page-format.h"
#include "meta/redo-format.h"

#define BLOCK_BYTES 4096u
#define MARKER "bad-disk object "
#define NAME_DIGITS 16u

typedef enum Kind {
    KIND_META,
    KIND_LOG,
    KIND_OBJECTS,
    KIND_NAMES,
    KIND_ALL,
    KIND_FLUSH,
    KIND_COUNT
} Kind;

static const char *const kind_names[KIND_COUNT] = {"meta",  "log", "objects",
                                                   "names", "all", "flush"};

static struct {
    uint8_t *now, *durable; /* mapped */
    uint8_t *dirty;         /* a byte for each block: written since the last flush */
    uint64_t bytes;
    uint64_t random;
    bool fails[KIND_COUNT];
    uint64_t fails_left;
    bool is_off;
    uint64_t writes, flushes, cuts, failed[KIND_COUNT];
} disk;

static uint64_t next_random(void)
{
    disk.random ^= disk.random << 13;
    disk.random ^= disk.random >> 7;
    disk.random ^= disk.random << 17;
    return disk.random;
}

/* ---- What a block is --------------------------------------------------------------- */

static bool is_meta(const uint8_t *block)
{
    VjLmdbPageHead head;

    memcpy(&head, block, sizeof head);
    if (head.number >= disk.bytes / BLOCK_BYTES) {
        return false;
    }
    if (head.flags == VJ_LMDB_META) {
        return head.number < VJ_LMDB_META_PAGES;
    }
    if (head.flags == VJ_LMDB_OVERFLOW) {
        return head.number >= VJ_LMDB_META_PAGES && head.run_pages > 0 &&
               head.run_pages < 64;
    }
    return (head.flags == VJ_LMDB_LEAF || head.flags == VJ_LMDB_BRANCH) &&
           head.number >= VJ_LMDB_META_PAGES && head.nodes.lower >= sizeof head &&
           head.nodes.lower <= head.nodes.upper && head.nodes.upper <= BLOCK_BYTES;
}

static bool is_log(const uint8_t *block)
{
    return memcmp(block, VJ_REDO_RECORD_MAGIC, strlen(VJ_REDO_RECORD_MAGIC)) == 0 ||
           memcmp(block, VJ_REDO_MAGIC, strlen(VJ_REDO_MAGIC)) == 0;
}

static size_t hex_run(const uint8_t *bytes, size_t most)
{
    size_t n = 0;

    while (n < most && ((bytes[n] >= '0' && bytes[n] <= '9') ||
                        (bytes[n] >= 'a' && bytes[n] <= 'f'))) {
        n++;
    }
    return n;
}

/* "ID.NONCE", see store/posix-format.h. */
static bool has_name(const uint8_t *block)
{
    const uint8_t *end = block + BLOCK_BYTES, *dot = block;

    while ((dot = memchr(dot, '.', (size_t)(end - dot))) != NULL) {
        if (dot - block >= (ptrdiff_t)NAME_DIGITS && end - dot > (ptrdiff_t)NAME_DIGITS &&
            hex_run(dot - NAME_DIGITS, NAME_DIGITS) == NAME_DIGITS &&
            hex_run(dot + 1, NAME_DIGITS) == NAME_DIGITS) {
            return true;
        }
        dot++;
    }
    return false;
}

static Kind kind_of(const uint8_t *block)
{
    if (is_log(block)) {
        return KIND_LOG;
    }
    if (is_meta(block)) {
        return KIND_META;
    }
    if (memmem(block, BLOCK_BYTES, MARKER, strlen(MARKER)) != NULL) {
        return KIND_OBJECTS;
    }
    return has_name(block) ? KIND_NAMES : KIND_ALL;
}

/* The kind for which a write fails; KIND_COUNT: it does not. */
static Kind failing_kind(const uint8_t *bytes, size_t len, uint64_t at)
{
    if (disk.fails_left == 0) {
        return KIND_COUNT;
    }
    if (disk.fails[KIND_ALL]) {
        return KIND_ALL;
    }
    for (size_t i = (BLOCK_BYTES - at % BLOCK_BYTES) % BLOCK_BYTES;
         i + BLOCK_BYTES <= len; i += BLOCK_BYTES) {
        Kind kind = kind_of(bytes + i);

        if (disk.fails[kind]) {
            return kind;
        }
    }
    return KIND_COUNT;
}

static void note_failure(Kind kind)
{
    disk.failed[kind]++;
    disk.fails_left--;
}

/* ---- The medium -------------------------------------------------------------------- */

static void store(const uint8_t *bytes, size_t len, uint64_t at)
{
    memcpy(disk.now + at, bytes, len);
    memset(disk.dirty + at / BLOCK_BYTES, 1,
           (at + len - 1) / BLOCK_BYTES - at / BLOCK_BYTES + 1);
}

/* What is there of a write that failed: nobody can tell. */
static void store_some(const uint8_t *bytes, size_t len, uint64_t at)
{
    uint64_t way = next_random() % 3;

    if (way == 0) {
        return;
    }
    for (size_t i = 0; i < len;) {
        size_t piece = BLOCK_BYTES - (at + i) % BLOCK_BYTES;

        piece = piece < len - i ? piece : len - i;
        if (way == 1 || next_random() % 2 == 0) {
            store(bytes + i, piece, at + i);
        }
        i += piece;
    }
}

static void flush(void)
{
    for (uint64_t i = 0; i < disk.bytes / BLOCK_BYTES; i++) {
        if (disk.dirty[i] != 0) {
            memcpy(disk.durable + i * BLOCK_BYTES, disk.now + i * BLOCK_BYTES,
                   BLOCK_BYTES);
            disk.dirty[i] = 0;
        }
    }
}

/* A few blocks of many, about half of them, all but a few. */
static void cut(void)
{
    static const uint64_t kept_of_100[] = {0, 2, 50, 98, 100};
    uint64_t kept = kept_of_100[next_random() % 5];

    for (uint64_t i = 0; i < disk.bytes / BLOCK_BYTES; i++) {
        if (disk.dirty[i] != 0 && next_random() % 100 >= kept) {
            memcpy(disk.now + i * BLOCK_BYTES, disk.durable + i * BLOCK_BYTES,
                   BLOCK_BYTES);
            disk.dirty[i] = 0;
        }
    }
    flush();
    disk.is_off = true;
    disk.cuts++;
}

static int write_disk(const char *bytes, size_t len, off_t at)
{
    Kind kind;

    if (disk.is_off) {
        return -EIO;
    }
    if (at < 0 || (uint64_t)at + len > disk.bytes || len == 0) {
        return -EINVAL;
    }
    disk.writes++;
    kind = failing_kind((const uint8_t *)bytes, len, (uint64_t)at);
    if (kind < KIND_COUNT) {
        note_failure(kind);
        store_some((const uint8_t *)bytes, len, (uint64_t)at);
        return -EIO;
    }
    store((const uint8_t *)bytes, len, (uint64_t)at);
    return (int)len;
}

/* ---- Commands ---------------------------------------------------------------------- */

static bool parse_kinds(char *list)
{
    for (char *rest = NULL, *word = strtok_r(list, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest)) {
        unsigned i = 0;

        while (i < KIND_COUNT && strcmp(word, kind_names[i]) != 0) {
            i++;
        }
        if (i == KIND_COUNT) {
            return false;
        }
        disk.fails[i] = true;
    }
    return true;
}

static int obey(const char *bytes, size_t len)
{
    char line[256], kinds[128];
    unsigned long long n;

    if (len >= sizeof line) {
        return -EINVAL;
    }
    memcpy(line, bytes, len);
    line[len] = '\0';
    if (sscanf(line, "seed %llu", &n) == 1) {
        disk.random = n * 2 + 1;
    } else if (sscanf(line, "fail %127s %llu", kinds, &n) == 2) {
        memset(disk.fails, 0, sizeof disk.fails);
        disk.fails_left = n;
        return parse_kinds(kinds) ? (int)len : -EINVAL;
    } else if (strncmp(line, "well", 4) == 0) {
        disk.fails_left = 0;
    } else if (strncmp(line, "cut", 3) == 0) {
        cut();
    } else if (strncmp(line, "revive", 6) == 0) {
        disk.is_off = false;
        disk.fails_left = 0;
    } else {
        return -EINVAL;
    }
    return (int)len;
}

static int tell(char *dst, size_t len, off_t at)
{
    char text[512];
    int n =
        snprintf(text, sizeof text, "writes=%llu\nflushes=%llu\ncuts=%llu\nleft=%llu\n",
                 (unsigned long long)disk.writes, (unsigned long long)disk.flushes,
                 (unsigned long long)disk.cuts, (unsigned long long)disk.fails_left);

    for (unsigned i = 0; i < KIND_COUNT; i++) {
        n += snprintf(text + n, sizeof text - (size_t)n, "%s=%llu\n", kind_names[i],
                      (unsigned long long)disk.failed[i]);
    }
    if (at >= n) {
        return 0;
    }
    len = len < (size_t)(n - at) ? len : (size_t)(n - at);
    memcpy(dst, text + at, len);
    return (int)len;
}

/* ---- FUSE -------------------------------------------------------------------------- */

static bool is_disk(const char *path)
{
    return strcmp(path, "/disk") == 0;
}

static bool is_control(const char *path)
{
    return strcmp(path, "/control") == 0;
}

static int bad_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
    (void)fi;
    memset(st, 0, sizeof *st);
    st->st_nlink = 1;
    if (strcmp(path, "/") == 0) {
        st->st_mode = S_IFDIR | 0700;
    } else if (is_disk(path)) {
        st->st_mode = S_IFREG | 0600;
        st->st_size = (off_t)disk.bytes;
    } else if (is_control(path)) {
        st->st_mode = S_IFREG | 0600;
    } else {
        return -ENOENT;
    }
    return 0;
}

/* Nothing of the disk may stay in the kernel: a cut has to reach every reader. */
static int bad_open(const char *path, struct fuse_file_info *fi)
{
    fi->direct_io = 1;
    return is_disk(path) || is_control(path) ? 0 : -ENOENT;
}

static int bad_read(const char *path, char *dst, size_t len, off_t at,
                    struct fuse_file_info *fi)
{
    (void)fi;
    if (is_control(path)) {
        return tell(dst, len, at);
    }
    if (disk.is_off) {
        return -EIO;
    }
    if (at < 0 || (uint64_t)at >= disk.bytes) {
        return 0;
    }
    len = len < disk.bytes - (uint64_t)at ? len : (size_t)(disk.bytes - (uint64_t)at);
    memcpy(dst, disk.now + at, len);
    return (int)len;
}

static int bad_write(const char *path, const char *bytes, size_t len, off_t at,
                     struct fuse_file_info *fi)
{
    (void)fi;
    return is_control(path) ? obey(bytes, len) : write_disk(bytes, len, at);
}

static int bad_fsync(const char *path, int data_only, struct fuse_file_info *fi)
{
    (void)data_only;
    (void)fi;
    if (!is_disk(path)) {
        return 0;
    }
    if (disk.is_off) {
        return -EIO;
    }
    disk.flushes++;
    if (disk.fails[KIND_FLUSH] && disk.fails_left > 0) {
        note_failure(KIND_FLUSH);
        return -EIO;
    }
    flush();
    return 0;
}

static int bad_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
    (void)size;
    (void)fi;
    return is_control(path) ? 0 : -EPERM;
}

static const struct fuse_operations operations = {
    .getattr = bad_getattr,
    .open = bad_open,
    .read = bad_read,
    .write = bad_write,
    .fsync = bad_fsync,
    .truncate = bad_truncate,
};

/* ---- main -------------------------------------------------------------------------- */

static void *map_file(const char *dir, const char *name)
{
    char path[4096];
    void *bytes;
    int fd;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)disk.bytes) != 0) {
        fprintf(stderr, "bad-disk: %s: %s\n", path, strerror(errno));
        exit(1);
    }
    bytes = mmap(NULL, disk.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED) {
        fprintf(stderr, "bad-disk: %s: %s\n", path, strerror(errno));
        exit(1);
    }
    return bytes;
}

int main(int argc, char **argv)
{
    char *arguments[] = {argv[0], (char *)"-f", (char *)"-s", NULL, NULL};

    if (argc != 4 || atoi(argv[2]) < 1) {
        fprintf(stderr, "usage: bad-disk STATE MIB MNT\n");
        return 2;
    }
    disk.bytes = (uint64_t)atoi(argv[2]) << 20;
    disk.random = 1;
    disk.now = map_file(argv[1], "now");
    disk.durable = map_file(argv[1], "durable");
    disk.dirty = calloc(disk.bytes / BLOCK_BYTES, 1);
    if (disk.dirty == NULL) {
        fprintf(stderr, "bad-disk: out of memory\n");
        return 1;
    }
    arguments[3] = argv[3];
    return fuse_main(4, arguments, &operations, NULL);
}
