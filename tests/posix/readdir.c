/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * readdir.c - listing: every name once, whatever comes and goes; positions; types
 *
 * POSIX_ENTRIES in the environment says how many names the large directory has; without
 * it 20000, and 5000 for an ordinary user.
 */
#include <dirent.h>
#include <sys/syscall.h>

#include "posix.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

struct linux_dirent64 {
    uint64_t d_ino;
    int64_t d_off;
    uint16_t d_reclen;
    uint8_t d_type;
    char d_name[];
};

static void types(void)
{
    static const unsigned char wanted[KIND_COUNT] = {DT_REG,  DT_DIR, DT_LNK, DT_FIFO,
                                                     DT_SOCK, DT_CHR, DT_BLK};
    const char *dir = made(DIRECTORY, 0700);
    unsigned dots = 0, seen = 0;
    DIR *d;

    EACH_KIND(k)
    {
        MUST(make(k, path("%s/%d", dir, (int)k), 0600));
    }
    d = opendir(dir);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        int k = e->d_name[0] - '0';

        if (e->d_name[0] == '.') {
            about("%s", e->d_name);
            EQ(DT_DIR, e->d_type);
            EQ(stat_of(path("%s/%s", dir, e->d_name)).st_ino, e->d_ino);
            dots++;
        } else if (k >= 0 && k < KIND_COUNT) {
            about("a %s", kind_names[k]);
            EQ(wanted[k], e->d_type);
            EQ(stat_of(path("%s/%s", dir, e->d_name)).st_ino, e->d_ino);
            seen |= 1u << k;
        }
    }
    about("types");
    EQ(2, dots);
    EQ(am_root() ? 0x7f : 0x1f, seen);
    closedir(d);
}

static int by_value(const void *a, const void *b)
{
    const long x = *(const long *)a, y = *(const long *)b;

    return x < y ? -1 : x > y;
}

/* Going back to where one was shows again what came behind it. */
static void positions(void)
{
    enum { NAMES = 300 };
    const char *dir = made(DIRECTORY, 0700);
    char names[NAMES + 2][16];
    long at[NAMES + 3], sorted[NAMES + 3];
    bool right = true, distinct = true;
    DIR *d;

    for (int i = 0; i < NAMES; i++) {
        MUST(make(REGULAR, path("%s/%d", dir, i), 0600));
    }
    d = opendir(dir);
    for (int i = 0; i < NAMES + 2; i++) {
        const struct dirent *e;

        at[i] = telldir(d);
        e = readdir(d);
        strcpy(names[i], e == NULL ? "?" : e->d_name);
    }
    at[NAMES + 2] = telldir(d);
    about("positions");
    EQ(1, readdir(d) == NULL);
    for (int i = NAMES + 1; i >= 0; i -= 7) {
        const struct dirent *e;

        seekdir(d, at[i]);
        right = right && telldir(d) == at[i];
        e = readdir(d);
        right = right && e != NULL && strcmp(e->d_name, names[i]) == 0;
    }
    IS_TRUE(right);
    seekdir(d, at[NAMES + 2]);
    EQ(1, readdir(d) == NULL);
    seekdir(d, at[5]);
    rewinddir(d);
    IS_TRUE(strcmp(readdir(d)->d_name, names[0]) == 0);
    memcpy(sorted, at, sizeof at);
    qsort(sorted, NAMES + 3, sizeof sorted[0], by_value);
    for (int i = 1; i < NAMES + 3; i++) {
        distinct = distinct && sorted[i] != sorted[i - 1];
    }
    IS_TRUE(distinct);
    about("a position after its name is gone");
    for (int i = 10; i < NAMES; i++) {
        (void)unlink(path("%s/%s", dir, names[i]));
    }
    seekdir(d, at[9]);
    IS_TRUE(strcmp(readdir(d)->d_name, names[9]) == 0);
    closedir(d);
}

/* What is made after opendir may be seen; after rewinddir it must be. */
static void rewinding(void)
{
    const char *dir = made(DIRECTORY, 0700);
    int before_it = 0, after = 0;
    DIR *d = opendir(dir);

    while (readdir(d) != NULL) {
        before_it++;
    }
    MUST(make(REGULAR, path("%s/new", dir), 0600));
    about("rewinddir");
    rewinddir(d);
    while (readdir(d) != NULL) {
        after++;
    }
    EQ(2, before_it);
    EQ(3, after);
    MUST(unlink(path("%s/new", dir)));
    rewinddir(d);
    after = 0;
    while (readdir(d) != NULL) {
        after++;
    }
    EQ(2, after);
    closedir(d);
}

/* Small and odd buffers for the system call itself. */
static void small_buffers(void)
{
    static const size_t sizes[] = {24, 32, 48, 64, 280, 300, 1000, 4096};
    const char *dir = made(DIRECTORY, 0700);
    char *buffer = malloc(4096);

    for (int i = 0; i < 50; i++) {
        MUST(make(REGULAR, path("%s/%d", dir, i), 0600));
    }
    for (size_t i = 0; i < COUNT(sizes); i++) {
        int fd = (int)MUST(open(dir, O_RDONLY | O_DIRECTORY)), names = 0;
        long got;

        about("getdents64 with %zu bytes", sizes[i]);
        while ((got = syscall(SYS_getdents64, fd, buffer, sizes[i])) > 0) {
            for (long at = 0; at < got;) {
                const struct linux_dirent64 *e = (const void *)(buffer + at);

                names++;
                at += e->d_reclen;
            }
        }
        EQ(0, got);
        EQ(52, names);
        close(fd);
    }
    {
        int fd = (int)MUST(open(dir, O_RDONLY | O_DIRECTORY));

        about("getdents64");
        WANT(EINVAL, syscall(SYS_getdents64, fd, buffer, 8));
        WANT(EFAULT, syscall(SYS_getdents64, fd, (void *)1, 4096));
        WANT(EBADF, syscall(SYS_getdents64, -1, buffer, 4096));
        OK(lseek(fd, 0, SEEK_SET));
        WANT(EINVAL, lseek(fd, -1, SEEK_SET));
        close(fd);
        MUST(make(REGULAR, path("%s/f", dir), 0600));
        fd = (int)MUST(open(path("%s/f", dir), O_RDONLY));
        WANT(ENOTDIR, syscall(SYS_getdents64, fd, buffer, 4096));
        close(fd);
    }
    free(buffer);
}

/* Each name of @count is there once; others are counted in *@other. */
static bool each_once(const char *dir, const char *prefix, int count, int *other)
{
    unsigned char *seen = calloc((size_t)count, 1);
    size_t prefix_len = strlen(prefix);
    bool right = true;
    DIR *d = opendir(dir);

    *other = 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, prefix, prefix_len) == 0) {
            int i = atoi(e->d_name + prefix_len);

            if (i < 0 || i >= count || seen[i]++) {
                right = false;
            }
        } else {
            (*other)++;
        }
    }
    closedir(d);
    for (int i = 0; i < count; i++) {
        right = right && seen[i] == 1;
    }
    free(seen);
    return right;
}

/* Names that stay are seen once while others come, go and are renamed. */
static void while_changing(void)
{
    enum { STAY = 2000, ROUNDS = 6 };
    const char *dir = made(DIRECTORY, 0777);
    int other, stop[2];

    for (int i = 0; i < STAY; i++) {
        MUST(make(REGULAR, path("%s/stay%d", dir, i), 0600));
    }
    MUST(pipe2(stop, O_NONBLOCK));
    for (int p = 0; p < 2; p++) {
        if (fork() == 0) {
            char byte;

            close(stop[1]);
            for (int i = 0; read(stop[0], &byte, 1) != 0; i = (i + 1) % 500) {
                char a[64], b[64];

                snprintf(a, sizeof a, "%s/go%d.%d", dir, p, i);
                snprintf(b, sizeof b, "%s/went%d.%d", dir, p, i);
                if (mknod(a, S_IFREG | 0600, 0) != 0 || rename(a, b) != 0 ||
                    (i % 3 != 0 && unlink(b) != 0)) {
                    _exit(1);
                }
                (void)unlink(b);
            }
            _exit(0);
        }
    }
    close(stop[0]);
    about("while names come and go");
    for (int i = 0; i < ROUNDS; i++) {
        IS_TRUE(each_once(dir, "stay", STAY, &other));
    }
    close(stop[1]);
    EQ(0, wait_for_child());
    EQ(0, wait_for_child());
    IS_TRUE(each_once(dir, "stay", STAY, &other));
    EQ(2, other);
}

/* Removing what one reads, the way rm does it, leaves nothing. */
static void removing_while_reading(void)
{
    enum { NAMES = 3000 };
    const char *dir = made(DIRECTORY, 0700);
    int removed = 0;
    DIR *d;

    for (int i = 0; i < NAMES; i++) {
        MUST(make(REGULAR, path("%s/%d", dir, i), 0600));
    }
    about("removing while reading");
    d = opendir(dir);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        removed += unlinkat(dirfd(d), e->d_name, 0) == 0;
    }
    closedir(d);
    EQ(NAMES, removed);
    EQ(0, names_in(dir));
    OK(rmdir(dir));
}

/* Renaming what one reads may show it under both names, and shows it under one. */
static void renaming_while_reading(void)
{
    enum { NAMES = 1000 };
    const char *dir = made(DIRECTORY, 0700);
    int other;
    DIR *d;

    for (int i = 0; i < NAMES; i++) {
        MUST(make(REGULAR, path("%s/a%d", dir, i), 0600));
    }
    about("renaming while reading");
    d = opendir(dir);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == 'a') {
            MUST(renameat(dirfd(d), e->d_name, dirfd(d), path("b%s", e->d_name + 1)));
        }
    }
    closedir(d);
    IS_TRUE(each_once(dir, "b", NAMES, &other));
    EQ(2, other);
}

/* Whoever renames or makes what he reads comes to an end all the same. */
static void no_end(void)
{
    enum { NAMES = 500 };
    const char *dir = made(DIRECTORY, 0700);
    int other, seen = 0;
    DIR *d;

    for (int i = 0; i < NAMES; i++) {
        MUST(make(REGULAR, path("%s/a%d", dir, i), 0600));
    }
    about("renaming there and back while reading");
    d = opendir(dir);
    for (const struct dirent *e; seen < 3 * NAMES && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] != '.') {
            MUST(renameat(dirfd(d), e->d_name, dirfd(d), "temporary"));
            MUST(renameat(dirfd(d), "temporary", dirfd(d), e->d_name));
            seen++;
        }
    }
    IS_TRUE(seen >= NAMES && seen < 2 * NAMES);
    IS_TRUE(each_once(dir, "a", NAMES, &other));
    about("copying what one reads");
    rewinddir(d);
    seen = 0;
    for (const struct dirent *e; seen < 20 * NAMES && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] != '.') {
            MUST(mknodat(dirfd(d), path("copy%d-of-%s", seen, e->d_name), S_IFREG | 0600,
                         0));
            seen++;
        }
    }
    IS_TRUE(seen >= NAMES && seen < 20 * NAMES);
    about("made while reading, listed after rewinddir");
    rewinddir(d);
    other = 0;
    while (readdir(d) != NULL) {
        other++;
    }
    EQ(NAMES + seen + 2, other);
    closedir(d);
}

static void large(void)
{
    const char *dir = made(DIRECTORY, 0700), *text = getenv("POSIX_ENTRIES");
    int count = text == NULL ? (am_root() ? 20000 : 5000) : atoi(text), other;
    struct stat st;

    MUST(chdir(dir));
    for (int i = 0; i < count; i++) {
        char name[32];

        snprintf(name, sizeof name, "e%d", i);
        if (mknod(name, S_IFREG | 0600, 0) != 0) {
            MUST(-1);
            break;
        }
    }
    about("a large directory");
    IS_TRUE(each_once(".", "e", count, &other));
    EQ(2, other);
    OK(lstat(path("e%d", count / 2), &st));
    OK(lstat(path("e%d", count - 1), &st));
    WANT(ENOENT, lstat(path("e%d", count), &st));
    WANT(EEXIST, mkdir("e0", 0700));
    OK(rename("e1", "renamed"));
    OK(rename("renamed", "e1"));
    MUST(chdir(".."));
    WANT(ENOTEMPTY, rmdir(dir));
    EQ(2, stat_of(dir).st_nlink);
    MUST(chdir(dir));
    for (int i = 0; i < count; i += 2) {
        char name[32];

        snprintf(name, sizeof name, "e%d", i);
        MUST(unlink(name));
    }
    EQ(count / 2, names_in("."));
    for (int i = 1; i < count; i += 2) {
        char name[32];

        snprintf(name, sizeof name, "e%d", i);
        MUST(unlink(name));
    }
    EQ(0, names_in("."));
    MUST(chdir(".."));
    OK(rmdir(dir));
}

static void errors(void)
{
    const char *file = made(REGULAR, 0600);

    about("opendir");
    EQ(1, opendir(file) == NULL && errno == ENOTDIR);
    EQ(1, opendir("missing") == NULL && errno == ENOENT);
    EQ(1, opendir("") == NULL && errno == ENOENT);
    EQ(1, fdopendir(-1) == NULL && errno == EBADF);
    EQ(1, fdopendir((int)MUST(open(file, O_RDONLY))) == NULL && errno == ENOTDIR);
}

TOPIC(readdir)
{
    types();
    positions();
    rewinding();
    small_buffers();
    removing_while_reading();
    renaming_while_reading();
    no_end();
    while_changing();
    errors();
}

TOPIC(readdir_large)
{
    large();
}
