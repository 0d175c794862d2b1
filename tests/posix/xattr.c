/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* xattr.c - extended attributes: names, values, sizes, flags, who may, on which types */
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "posix.h"

#define VALUE_MAX (64 << 10)

static char value[VALUE_MAX + 2], room[VALUE_MAX + 2];
/* No address; the compiler is not to know. */
static void *volatile nowhere = (void *)1;

static int set(const char *name, const char *attribute, const char *text)
{
    return lsetxattr(name, attribute, text, strlen(text), 0);
}

static bool has(const char *name, const char *attribute, const char *text)
{
    ssize_t len = lgetxattr(name, attribute, room, sizeof room);

    return len == (ssize_t)strlen(text) && memcmp(room, text, (size_t)len) == 0;
}

/* Whether @attribute stands among the names. */
static bool lists(const char *name, const char *attribute)
{
    ssize_t len = llistxattr(name, room, sizeof room);
    bool found = false;

    for (ssize_t at = 0; at < len; at += (ssize_t)strlen(room + at) + 1) {
        found |= strcmp(room + at, attribute) == 0;
    }
    return found;
}

static int names_of(const char *name)
{
    ssize_t len = llistxattr(name, room, sizeof room);
    int count = 0;

    for (ssize_t at = 0; at < len; at++) {
        count += room[at] == '\0';
    }
    return len < 0 ? -1 : count;
}

static void sizes(Kind kind)
{
    static const size_t all[] = {0,    1,    15,   16,   255,   256,   1000,
                                 3000, 4064, 4080, 4096, 10000, 65535, 65536};
    const char *n = made(kind, 0644);

    for (size_t i = 0; i < VALUE_MAX; i++) {
        value[i] = (char)(i * 31 + i / 251);
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct stat then;

        about("%s, %zu bytes", kind_names[kind], all[i]);
        then = before(n);
        if (setxattr(n, "user.sized", value, all[i], 0) < 0 && errno == ENOSPC &&
            all[i] > 3000) {
            skip("the file system has no room for it");
            continue;
        }
        EQ((ssize_t)all[i], getxattr(n, "user.sized", room, sizeof room));
        IS_TRUE(memcmp(room, value, all[i]) == 0);
        EQ((ssize_t)all[i], getxattr(n, "user.sized", NULL, 0));
        if (all[i] > 1) {
            WANT(ERANGE, getxattr(n, "user.sized", room, all[i] - 1));
            EQ((ssize_t)all[i], getxattr(n, "user.sized", room, all[i]));
        }
        EQ((ssize_t)sizeof "user.sized", listxattr(n, NULL, 0));
        MC_TIMES(then, n, TIME_C);
    }
    about("%s", kind_names[kind]);
    WANT(E2BIG, setxattr(n, "user.sized", value, VALUE_MAX + 1, 0));
    OK(setxattr(n, "user.sized", "x", 1, 0));
    IS_TRUE(has(n, "user.sized", "x"));
    OK(removexattr(n, "user.sized"));
    EQ(0, listxattr(n, room, sizeof room));
    about("%s", "");
}

static void flags_and_lists(void)
{
    const char *n = made(REGULAR, 0644);
    struct stat then;

    WANT(ENODATA, getxattr(n, "user.a", room, 10));
    WANT(ENODATA, removexattr(n, "user.a"));
    WANT(ENODATA, setxattr(n, "user.a", "1", 1, XATTR_REPLACE));
    OK(setxattr(n, "user.a", "1", 1, XATTR_CREATE));
    WANT(EEXIST, setxattr(n, "user.a", "2", 1, XATTR_CREATE));
    IS_TRUE(has(n, "user.a", "1"));
    OK(setxattr(n, "user.a", "222", 3, XATTR_REPLACE));
    IS_TRUE(has(n, "user.a", "222"));
    WANT(EINVAL, setxattr(n, "user.a", "2", 1, 4));
    OK(setxattr(n, "user.a", NULL, 0, 0));
    IS_TRUE(has(n, "user.a", ""));
    OK(set(n, "user.b", "of b"));
    OK(set(n, "user.c", "of c"));
    EQ(3, names_of(n));
    IS_TRUE(lists(n, "user.a") && lists(n, "user.b") && lists(n, "user.c"));
    EQ(21, listxattr(n, NULL, 0));
    WANT(ERANGE, listxattr(n, room, 20));
    EQ(21, listxattr(n, room, 21));
    then = before(n);
    OK(removexattr(n, "user.b"));
    MC_TIMES(then, n, TIME_C);
    then = before(n);
    WANT(ENODATA, removexattr(n, "user.b"));
    MC_TIMES(then, n, 0);
    EQ(2, names_of(n));
    IS_TRUE(!lists(n, "user.b"));
    for (int i = 0; i < 60; i++) {
        OK(set(n, path("user.number %d", i), path("%d", i * i)));
    }
    EQ(62, names_of(n));
    for (int i = 0; i < 60; i++) {
        IS_TRUE(has(n, path("user.number %d", i), path("%d", i * i)));
    }
    OK(unlink(n));
}

static void names(void)
{
    const char *n = made(REGULAR, 0644);
    char long_name[300] = "user.";

    memset(long_name + 5, 'n', 251);
    long_name[255] = '\0';
    OK(set(n, long_name, "longest"));
    IS_TRUE(has(n, long_name, "longest") && lists(n, long_name));
    long_name[255] = 'n';
    WANT(ERANGE, set(n, long_name, "x"));
    WANT(ERANGE, getxattr(n, long_name, room, 10));
    WANT(ERANGE, removexattr(n, long_name));
    WANT(ERANGE, set(n, "", "x"));
    WANT(EINVAL, set(n, "user.", "x"));
    WANT(EOPNOTSUPP, set(n, "user", "x"));
    WANT(EOPNOTSUPP, set(n, "colour", "x"));
    WANT(EOPNOTSUPP, set(n, "other.colour", "x"));
    WANT(EOPNOTSUPP, set(n, "system.colour", "x"));
    WANT(EOPNOTSUPP, getxattr(n, "system.colour", room, 10));
    WANT(EOPNOTSUPP, getxattr(n, "colour", room, 10));
    OK(set(n, "user.\xff\xfe\x01 \t/", "odd"));
    IS_TRUE(has(n, "user.\xff\xfe\x01 \t/", "odd") && lists(n, "user.\xff\xfe\x01 \t/"));
    OK(set(n, "user.User", "1"));
    OK(set(n, "user.user", "2"));
    IS_TRUE(has(n, "user.User", "1"));
    WANT(ENOENT, set("not there", "user.a", "x"));
    WANT(ENOENT, getxattr("not there", "user.a", room, 1));
    WANT(ENOENT, listxattr("not there", room, 1));
    WANT(ENOTDIR, set(path("%s/x", n), "user.a", "x"));
    /* The system calls themselves: a sanitizer looks into what the C library is given. */
    WANT(EFAULT, syscall(SYS_getxattr, n, nowhere, room, 1));
    WANT(EFAULT, syscall(SYS_setxattr, n, "user.f", nowhere, 5, 0));
}

static void descriptors(void)
{
    const char *n = made(REGULAR, 0644);
    int fd = (int)MUST(open(n, O_RDONLY)), p = (int)MUST(open(n, O_PATH));

    OK(fsetxattr(fd, "user.a", "by fd", 5, 0)); /* needs no descriptor for writing */
    EQ(5, fgetxattr(fd, "user.a", room, 10));
    EQ(7, flistxattr(fd, room, 10));
    WANT(EBADF, fsetxattr(p, "user.a", "x", 1, 0));
    WANT(EBADF, fgetxattr(p, "user.a", room, 10));
    WANT(EBADF, fsetxattr(-1, "user.a", "x", 1, 0));
    MUST(unlink(n));
    EQ(5, fgetxattr(fd, "user.a", room, 10)); /* of a file without a name */
    OK(fsetxattr(fd, "user.b", "too", 3, 0));
    OK(fremovexattr(fd, "user.a"));
    EQ(7, flistxattr(fd, room, 10));
    close(fd);
    close(p);
}

static void links(void)
{
    const char *n = made(REGULAR, 0644), *l = fresh(), *s = fresh(),
               *d = made(DIRECTORY, 0755);

    MUST(link(n, l));
    MUST(symlink(n, s));
    OK(set(n, "user.a", "one"));
    IS_TRUE(has(l, "user.a", "one"));
    EQ(3, getxattr(s, "user.a", room, 10)); /* follows */
    WANT(ENODATA, lgetxattr(s, "user.a", room, 10));
    MUST(unlink(n));
    MUST(rename(l, path("%s/moved", d)));
    IS_TRUE(has(path("%s/moved", d), "user.a", "one"));
    MUST(make(REGULAR, "other", 0644));
    MUST(set("other", "user.a", "two"));
    MUST(rename("other", path("%s/moved", d)));
    IS_TRUE(has(path("%s/moved", d), "user.a", "two"));
    OK(chmod(path("%s/moved", d), 0600));
    OK(truncate(path("%s/moved", d), 100));
    IS_TRUE(has(path("%s/moved", d), "user.a", "two"));
}

TOPIC(xattr)
{
    sizes(REGULAR);
    sizes(DIRECTORY);
    flags_and_lists();
    names();
    descriptors();
    links();
}

/* ---- types and users --------------------------------------------------------------- */

TOPIC(xattr_types)
{
    EACH_KIND(k)
    {
        const char *n = made(k, 0777);
        bool users = k == REGULAR || k == DIRECTORY;

        about("%s", kind_names[k]);
        WANT(users ? 0 : EPERM, set(n, "user.a", "x"));
        WANT(users ? 0 : ENODATA, lgetxattr(n, "user.a", room, 10));
        WANT(users ? 0 : EPERM, lremovexattr(n, "user.a"));
        EQ(0, names_of(n));
        if (!am_root()) {
            WANT(EPERM, set(n, "trusted.a", "x"));
            WANT(ENODATA, lgetxattr(n, "trusted.a", room, 10));
            WANT(EPERM, lremovexattr(n, "trusted.a"));
            WANT(EPERM, set(n, "security.a", "x"));
            continue;
        }
        OK(set(n, "trusted.a", "of root"));
        IS_TRUE(has(n, "trusted.a", "of root"));
        OK(set(n, "security.colour", "blue"));
        IS_TRUE(has(n, "security.colour", "blue"));
        EQ(2, names_of(n));
        AS(ALICE)
        {
            IS_TRUE(!lists(n, "trusted.a"));
            IS_TRUE(lists(n, "security.colour"));
            EQ(1, names_of(n));
            WANT(ENODATA, lgetxattr(n, "trusted.a", room, 10));
            WANT(EPERM, set(n, "trusted.a", "x"));
            WANT(EPERM, lremovexattr(n, "trusted.a"));
            IS_TRUE(has(n, "security.colour", "blue"));
            WANT(EPERM, set(n, "security.colour", "red"));
            WANT(EPERM, lremovexattr(n, "security.colour"));
        }
        OK(lremovexattr(n, "trusted.a"));
        OK(lremovexattr(n, "security.colour"));
        EQ(0, names_of(n));
        WANT(EINVAL, set(n, "trusted.", "x"));
    }
}

TOPIC(xattr_users)
{
    const char *n, *d;

    NEEDS_ROOT("several users");
    n = made_for(REGULAR, 0644, ALICE.uid, ALICE.gid);
    AS(ALICE)
    {
        OK(set(n, "user.a", "hers"));
    }
    AS(BOB)
    {
        IS_TRUE(has(n, "user.a", "hers"));
        WANT(EACCES, set(n, "user.a", "his"));
        WANT(EACCES, set(n, "user.b", "his"));
        WANT(EACCES, lremovexattr(n, "user.a"));
    }
    MUST(chmod(n, 0622));
    AS(BOB)
    {
        OK(set(n, "user.a", "his")); /* as writing: not for owners alone */
        WANT(EACCES, lgetxattr(n, "user.a", room, 10));
        EQ((ssize_t)sizeof "user.a", llistxattr(n, room, 10)); /* names are for all */
        OK(lremovexattr(n, "user.a"));
    }
    MUST(chmod(n, 0444));
    AS(ALICE)
    {
        WANT(EACCES, set(n, "user.a", "hers"));
    }
    d = made_for(DIRECTORY, 01777, ALICE.uid, ALICE.gid);
    AS(BOB)
    {
        about("a sticky directory of somebody else");
        WANT(EPERM, set(d, "user.a", "his"));
        WANT(EPERM, lremovexattr(d, "user.a"));
    }
    AS(ALICE)
    {
        about("a sticky directory of the caller");
        OK(set(d, "user.a", "hers"));
    }
    MUST(chmod(d, 0777));
    AS(BOB)
    {
        about("a directory that all may write");
        OK(set(d, "user.a", "his"));
    }
}
