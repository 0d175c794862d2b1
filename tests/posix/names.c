/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* names.c - names of any bytes but '/' and NUL, of 1 to 255 bytes; trees of any depth */
#include <limits.h>

#include "posix.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void each_byte(void)
{
    for (int c = 1; c < 256; c++) {
        char one[2] = {(char)c, 0}, three[4] = {'a', (char)c, 'b', 0};
        struct stat st;

        if (c == '/') {
            continue;
        }
        about("byte 0x%02x", (unsigned)c);
        if (c != '.') {
            OK(mkdir(one, 0700));
            OK(lstat(one, &st));
            OK(rmdir(one));
        }
        OK(symlink(three, three));
        OK(rename(three, "other"));
        OK(rename("other", three));
        EQ(1, names_in("."));
        OK(unlink(three));
    }
}

static void each_length(void)
{
    char name[NAME_MAX + 2], other[NAME_MAX + 2];

    for (size_t len = 1; len <= NAME_MAX; len++) {
        memset(name, 'n', len);
        name[len] = '\0';
        memset(other, 'o', len);
        other[len] = '\0';
        about("a name of %zu bytes", len);
        OK(make(REGULAR, name, 0600));
        OK(link(name, other));
        EQ(2, stat_of(other).st_nlink);
        EQ(2, names_in("."));
        OK(unlink(name));
        OK(unlink(other));
    }
    memset(name, 'n', NAME_MAX + 1);
    name[NAME_MAX + 1] = '\0';
    about("a name of 256 bytes");
    WANT(ENAMETOOLONG, make(REGULAR, name, 0600));
    EQ(NAME_MAX, pathconf(".", _PC_NAME_MAX));
}

/* Names that differ in a way that a careless file system takes for the same. */
static void alike(void)
{
    static const char *const names[] = {
        "a",
        "A",
        "a ",
        " a",
        "a.",
        ".a",
        "..a",
        "a..",
        "...",
        "....",
        "\xc3\xa4",
        "a\xcc\x88",
        "\xe4",
        "a\n",
        "\na",
        "a\\",
        "\\a",
        "-",
        "--",
        "-rf",
        "*",
        "?",
        "[a]",
        "a%",
        "a%00",
        "con",
        "nul",
        "a:",
        "a|",
        "a<",
        "~",
        "$a",
        "`a`",
        "'",
        "\"",
        "\t",
        "\x01",
        "\x7f",
        "\xff",
        "\xff\xfe",
        "\xc0\xaf",
        "\xed\xa0\x80",
        "\xf4\x90\x80\x80",
    };

    for (size_t i = 0; i < COUNT(names); i++) {
        about("name %zu of those that look alike", i);
        OK(spew(names[i], path("%zu", i)));
    }
    EQ(COUNT(names), names_in("."));
    for (size_t i = 0; i < COUNT(names); i++) {
        about("name %zu of those that look alike", i);
        IS_TRUE(holds(names[i], path("%zu", i)));
        OK(unlink(names[i]));
    }
    EQ(0, names_in("."));
}

/* Deeper than a path can say; one goes there step by step. */
static void deep(void)
{
    enum { LEVELS = 1200 };
    int top = (int)MUST(open(".", O_RDONLY | O_DIRECTORY)), fd = dup(top), level;
    char *buffer = malloc(PATH_MAX * 2);
    ino_t parent = fstat_of(top).st_ino;

    about("a deep tree");
    for (level = 0; level < LEVELS; level++) {
        int next;

        if (mkdirat(fd, "level", 0700) != 0 ||
            (next = openat(fd, "level", O_RDONLY | O_DIRECTORY)) < 0) {
            break;
        }
        close(fd);
        fd = next;
    }
    EQ(LEVELS, level);
    OK(fchdir(fd));
    OK(spew("bottom", "text"));
    IS_TRUE(holds("../level/bottom", "text"));
    EQ(1, getcwd(buffer, PATH_MAX) == NULL || strlen(buffer) > 4000);
    OK(renameat(fd, "bottom", top, "top"));
    OK(renameat(top, "top", fd, "bottom"));
    OK(linkat(fd, "bottom", top, "link", 0));
    OK(unlinkat(top, "link", 0));
    about("moving a directory into its own depths");
    WANT(EINVAL, renameat(top, "level", fd, "level"));
    OK(unlink("bottom"));
    for (level = 0; level < LEVELS; level++) {
        if (chdir("..") != 0 || rmdir("level") != 0) {
            break;
        }
    }
    about("a deep tree");
    EQ(LEVELS, level);
    EQ(parent, stat_of(".").st_ino);
    OK(fchdir(top));
    EQ(0, names_in("."));
    close(fd);
    close(top);
    free(buffer);
}

/* "." and ".." of everything, at each step. */
static void dots(void)
{
    struct stat a, b;

    MUST(mkdir("x", 0700));
    MUST(mkdir("x/y", 0700));
    about("dots");
    OK(stat("x/y/..", &a));
    OK(stat("x", &b));
    EQ(a.st_ino, b.st_ino);
    OK(stat("x/y/../..", &a));
    OK(stat(".", &b));
    EQ(a.st_ino, b.st_ino);
    OK(stat("x/./y/.", &a));
    OK(stat("x/y", &b));
    EQ(a.st_ino, b.st_ino);
    WANT(EEXIST, mkdir(".", 0700));
    WANT(EEXIST, mkdir("..", 0700));
    WANT(EEXIST, symlink("x", "."));
    WANT(EISDIR, open(".", O_CREAT | O_WRONLY, 0600));
    WANT(EEXIST, open("..", O_CREAT | O_EXCL | O_WRONLY, 0600));
    OK(stat("/../..", &a));
    OK(stat("/", &b));
    EQ(a.st_ino, b.st_ino);
    OK(rmdir("x/y"));
    OK(rmdir("x"));
}

TOPIC(names)
{
    dots();
    each_byte();
    each_length();
    alike();
    deep();
}
