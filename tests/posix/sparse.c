/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* sparse.c - holes: SEEK_HOLE and SEEK_DATA, fallocate, truncate, offsets up to the
 * limit */
#include <linux/falloc.h>

#include "posix.h"

/* Any block size divides it. */
#define UNIT ((off_t)65536)
#define UNITS 24

static char unit[65536], got[65536];

static int put(int fd, int at, char byte)
{
    memset(unit, byte, sizeof unit);
    return pwrite(fd, unit, sizeof unit, at * UNIT) == UNIT ? 0 : -1;
}

static bool reads(int fd, int at, char byte)
{
    memset(unit, byte, sizeof unit);
    return pread(fd, got, sizeof got, at * UNIT) == UNIT &&
           memcmp(got, unit, sizeof got) == 0;
}

/* "..dd.d" as lseek(2) tells it; '?' where the two calls do not fit together. */
static const char *layout(int fd)
{
    static char text[UNITS + 2];
    off_t size = fstat_of(fd).st_size, at = 0;

    memset(text, 0, sizeof text);
    memset(text, '.', (size_t)((size + UNIT - 1) / UNIT));
    while (at < size) {
        off_t data = lseek(fd, at, SEEK_DATA), hole;

        if (data < 0) {
            return errno == ENXIO ? text : "?";
        }
        hole = lseek(fd, data, SEEK_HOLE);
        if (data < at || hole <= data || hole > size) {
            return "?";
        }
        for (off_t i = data / UNIT; i * UNIT < hole; i++) {
            text[i] = 'd';
        }
        at = hole;
    }
    return text;
}

static void expect_layout(int fd, const char *wanted)
{
    const char *is = layout(fd);

    about("layout %s", wanted);
    IS_TRUE(strcmp(is, wanted) == 0);
    if (strcmp(is, wanted) != 0) {
        about("layout %s, got %s", wanted, is);
        IS_TRUE(!"as it should be");
    }
    about("%s", "");
}

TOPIC(seek_hole)
{
    const char *n = made(REGULAR, 0644);
    int fd = (int)MUST(open(n, O_RDWR));

    WANT(ENXIO, lseek(fd, 0, SEEK_DATA)); /* nothing there */
    WANT(ENXIO, lseek(fd, 0, SEEK_HOLE));
    MUST(put(fd, 0, 'a'));
    EQ(0, lseek(fd, 0, SEEK_DATA));
    EQ(UNIT, lseek(fd, 0, SEEK_HOLE)); /* the end is a hole */
    EQ(UNIT - 1, lseek(fd, UNIT - 1, SEEK_DATA));
    WANT(ENXIO, lseek(fd, UNIT, SEEK_DATA));
    WANT(ENXIO, lseek(fd, UNIT, SEEK_HOLE));
    WANT(ENXIO, lseek(fd, -1, SEEK_DATA));
    WANT(ENXIO, lseek(fd, -1, SEEK_HOLE));
    WANT(EINVAL, lseek(fd, 0, 77));
    MUST(put(fd, 4, 'b'));
    expect_layout(fd, "d...d");
    EQ(4 * UNIT, lseek(fd, UNIT, SEEK_DATA));
    EQ(4 * UNIT, lseek(fd, 4 * UNIT - 1, SEEK_DATA));
    EQ(UNIT + 7, lseek(fd, UNIT + 7, SEEK_HOLE));
    EQ(5 * UNIT, lseek(fd, 4 * UNIT, SEEK_HOLE));
    MUST(ftruncate(fd, 8 * UNIT));
    expect_layout(fd, "d...d...");
    WANT(ENXIO, lseek(fd, 5 * UNIT, SEEK_DATA));
    EQ(5 * UNIT, lseek(fd, 5 * UNIT, SEEK_HOLE));
    OK(fsync(fd));
    expect_layout(fd, "d...d...");
    MUST(put(fd, 2, 'c'));
    expect_layout(fd, "d.d.d...");
    OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, UNIT));
    expect_layout(fd, "..d.d...");
    IS_TRUE(reads(fd, 0, 0));
    OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 3 * UNIT, 4 * UNIT));
    expect_layout(fd, "..d.....");
    IS_TRUE(reads(fd, 2, 'c'));
    MUST(ftruncate(fd, 2 * UNIT));
    expect_layout(fd, "..");
    EQ(0, lseek(fd, 0, SEEK_HOLE));
    MUST(ftruncate(fd, 3 * UNIT));
    expect_layout(fd, "...");
    IS_TRUE(reads(fd, 2, 0));
    /* The descriptor's own offset moves, and only when the call succeeds. */
    MUST(put(fd, 1, 'd'));
    EQ(5, lseek(fd, 5, SEEK_SET));
    WANT(ENXIO, lseek(fd, 3 * UNIT, SEEK_DATA));
    EQ(5, lseek(fd, 0, SEEK_CUR));
    EQ(UNIT, lseek(fd, 5, SEEK_DATA));
    EQ(UNIT, lseek(fd, 0, SEEK_CUR));
    close(fd);
}

/* Ranges that are no blocks: zeroes inside, nothing else changes, whatever is a hole
 * then. */
TOPIC(punch)
{
    static const struct {
        off_t offset, len;
    } ranges[] = {{1, 1},
                  {4095, 2},
                  {4096, 4096},
                  {100, 5000},
                  {UNIT - 1, UNIT + 2},
                  {3 * UNIT + 17, 2 * UNIT},
                  {7 * UNIT - 10, 100},
                  {8 * UNIT, 100}};
    static const int modes[] = {FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
                                FALLOC_FL_ZERO_RANGE};
    const off_t size = 7 * UNIT, most = 9 * UNIT;
    char *bytes = malloc((size_t)most), *model = malloc((size_t)most);

    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
        for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
            const char *n = made(REGULAR, 0644);
            int fd = (int)MUST(open(n, O_RDWR));
            off_t end = ranges[i].offset + ranges[i].len, after = size;
            struct stat then;

            about("mode %d, %lld+%lld", modes[m], (long long)ranges[i].offset,
                  (long long)ranges[i].len);
            for (off_t b = 0; b < size; b++) {
                model[b] = (char)(1 + b * 7 / 3 % 255);
            }
            MUST(pwrite(fd, model, (size_t)size, 0));
            then = before(n);
            OK(fallocate(fd, modes[m], ranges[i].offset, ranges[i].len));
            if (modes[m] == FALLOC_FL_ZERO_RANGE && end > after) {
                memset(model + after, 0, (size_t)(end - after));
                after = end;
            }
            for (off_t b = ranges[i].offset; b < end && b < after; b++) {
                model[b] = 0;
            }
            EQ(after, stat_of(n).st_size);
            EQ(after, pread(fd, bytes, (size_t)most, 0));
            IS_TRUE(memcmp(bytes, model, (size_t)after) == 0);
            if (ranges[i].offset < size) {
                MC_TIMES(then, n, TIME_M | TIME_C);
            }
            close(fd);
            unlink(n);
        }
    }
    free(bytes);
    free(model);
}

TOPIC(fallocate)
{
    const char *n = made(REGULAR, 0644), *f = made(FIFO, 0644);
    int fd = (int)MUST(open(n, O_RDWR)), r = (int)MUST(open(n, O_RDONLY)),
        fifo = (int)MUST(open(f, O_RDWR)), dir = (int)MUST(open(".", O_RDONLY));
    struct stat then = before(n);

    OK(fallocate(fd, 0, 0, 3 * UNIT));
    EQ(3 * UNIT, stat_of(n).st_size);
    MC_TIMES(then, n, TIME_M | TIME_C);
    IS_TRUE(reads(fd, 0, 0) && reads(fd, 2, 0));
    OK(fallocate(fd, 0, UNIT, UNIT)); /* is there already */
    EQ(3 * UNIT, stat_of(n).st_size);
    OK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 9 * UNIT));
    EQ(3 * UNIT, stat_of(n).st_size);
    MUST(put(fd, 1, 'x'));
    OK(fallocate(fd, 0, 0, 4 * UNIT));
    EQ(4 * UNIT, stat_of(n).st_size);
    IS_TRUE(reads(fd, 1, 'x') && reads(fd, 3, 0));
    EQ(0, posix_fallocate(fd, 4 * UNIT - 1, 2));
    EQ(4 * UNIT + 1, stat_of(n).st_size);
    EQ(EINVAL, posix_fallocate(fd, 0, 0));
    EQ(EBADF, posix_fallocate(r, 0, 1));
    WANT(EINVAL, fallocate(fd, 0, 0, 0));
    WANT(EINVAL, fallocate(fd, 0, -1, 10));
    WANT(EINVAL, fallocate(fd, 0, 10, -1));
    WANT(EBADF, fallocate(r, 0, 0, 10));
    WANT(EBADF, fallocate(-1, 0, 0, 10));
    WANT(EBADF, fallocate(dir, 0, 0, 10));
    WANT(ESPIPE, fallocate(fifo, 0, 0, 10));
    WANT(EFBIG, fallocate(fd, 0, INT64_MAX - 10, 100));
    WANT(EOPNOTSUPP, fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 10));
    WANT(EOPNOTSUPP, fallocate(fd, 0x8000, 0, 10));
    WANT(EOPNOTSUPP,
         fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
                   0, 10));
    close(fd);
    close(r);
    close(fifo);
    close(dir);
}

TOPIC(far_offsets)
{
    static const off_t places[] = {((off_t)1 << 31) - 3, ((off_t)1 << 32) - 3,
                                   ((off_t)1 << 40) + 5, ((off_t)1 << 43) - 1};
    const char *n = made(REGULAR, 0644);
    int fd = (int)MUST(open(n, O_RDWR));
    char bytes[7];

    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        about("at %lld", (long long)places[i]);
        EQ(7, pwrite(fd, "distant", 7, places[i]));
        EQ(places[i] + 7, stat_of(n).st_size);
        memset(bytes, 0, sizeof bytes);
        EQ(7, pread(fd, bytes, 7, places[i]));
        IS_TRUE(memcmp(bytes, "distant", 7) == 0);
        EQ(1, pread(fd, bytes, 1, places[i] - 1));
        EQ(0, bytes[0]);
        EQ(0, pread(fd, bytes, 1, places[i] + 7));
        IS_TRUE(stat_of(n).st_blocks < 2048);
    }
    about("%s", "");
    OK(ftruncate(fd, (off_t)1 << 43));
    OK(ftruncate(fd, 100));
    EQ(100, stat_of(n).st_size);
    WANT(EINVAL, ftruncate(fd, -1));
    WANT(EINVAL, truncate(n, -1));
    WANT(EFBIG, ftruncate(fd, INT64_MAX));
    WANT(EINVAL, pwrite(fd, "x", 1, -1));
    WANT(EINVAL, pread(fd, bytes, 1, -1));
    WANT(EINVAL, pwrite(fd, "xy", 2, INT64_MAX));
    WANT(EFBIG, pwrite(fd, "x", 1, INT64_MAX - 1));
    EQ(100, stat_of(n).st_size);
    EQ(0, pread(fd, bytes, 1, INT64_MAX - 10));
    WANT(EINVAL, lseek(fd, -1, SEEK_SET));
    WANT(EINVAL, lseek(fd, -101, SEEK_END));
    EQ(0, lseek(fd, -100, SEEK_END));
    close(fd);
}
