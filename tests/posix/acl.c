/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* acl.c - access control lists: their form, the mode beside them, inheritance, who gets
 * in */
#include <sys/xattr.h>

#include "posix.h"

#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"
#define ENTRIES 64

typedef struct Entry {
    uint16_t tag, perm;
    uint32_t id;
} Entry;

typedef struct List {
    uint32_t version;
    Entry entries[ENTRIES];
} List;

/*
 * "o7 u70002:6 g5 G70010:4 m7 r0": owner, user, owning group, group, mask, others, each
 * with its permissions.  Gives the bytes of the attribute.
 */
static size_t parse(const char *text, List *list)
{
    static const char letters[] = "ougGmr";
    size_t count = 0;

    list->version = 2;
    while (*text != '\0') {
        Entry *e = &list->entries[count++];
        char *end;

        e->tag = (uint16_t)(1u << (strchr(letters, *text++) - letters));
        e->id = UINT32_MAX;
        e->perm = (uint16_t)strtoul(text, &end, 10);
        if (*end == ':') {
            e->id = e->perm;
            e->id = (uint32_t)strtoul(text, NULL, 10);
            e->perm = (uint16_t)strtoul(end + 1, &end, 10);
        }
        text = *end == ' ' ? end + 1 : end;
    }
    return sizeof list->version + count * sizeof(Entry);
}

static int set(const char *name, const char *attribute, const char *text)
{
    List list;
    size_t len = parse(text, &list);

    return setxattr(name, attribute, &list, len, 0);
}

/* That list and no other; NULL: none. */
static bool has(const char *name, const char *attribute, const char *text)
{
    List wanted, got;
    ssize_t len = getxattr(name, attribute, &got, sizeof got);

    if (text == NULL) {
        return len < 0 && errno == ENODATA;
    }
    return len == (ssize_t)parse(text, &wanted) &&
           memcmp(&wanted, &got, (size_t)len) == 0;
}

/* ---- the mode ---------------------------------------------------------------------- */

static void list_sets_mode(Kind kind)
{
    static const struct {
        const char *list;
        mode_t mode;
        bool kept;
    } cases[] = {
        {"o7 g5 r0", 0750, false},
        {"o0 g0 r0", 0000, false},
        {"o6 g4 r4", 0644, false},
        {"o1 g2 r4", 0124, false},
        {"o7 g5 m7 r0", 0770, true},
        {"o7 g7 m0 r7", 0707, true},
        {"o6 u70002:7 g0 m4 r0", 0640, true},
        {"o0 u70002:7 g0 m7 r0", 0070, true},
        {"o6 g7 G70003:1 m5 r2", 0652, true},
        {"o6 u1:1 u2:2 u70003:7 g7 G1:0 G5:4 m3 r1", 0631, true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *n = made(kind, 0717);
        struct stat then = before(n);

        about("%s, %s", kind_names[kind], cases[i].list);
        OK(set(n, ACCESS, cases[i].list));
        EQ(cases[i].mode, mode_of(n));
        IS_TRUE(has(n, ACCESS, cases[i].kept ? cases[i].list : NULL));
        MC_TIMES(then, n, TIME_C);
        /* chmod(2) changes the owner's entry, the mask's and the others'. */
        OK(chmod(n, 0421));
        EQ(0421, mode_of(n));
        OK(removexattr(n, ACCESS));
        EQ(0421, mode_of(n));
        IS_TRUE(has(n, ACCESS, NULL));
        about("%s", "");
    }
}

static void chmod_changes_list(void)
{
    static const mode_t modes[] = {0777, 0000, 0640,  0124, 0421,
                                   0707, 0070, 04755, 01700};
    const char *n = made(REGULAR, 0600);

    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        char after[100];

        about("chmod 0%o", modes[i]);
        snprintf(after, sizeof after, "o%o u70002:7 g6 G70003:5 m%o r%o",
                 modes[i] >> 6 & 7, modes[i] >> 3 & 7, modes[i] & 7);
        MUST(set(n, ACCESS, "o3 u70002:7 g6 G70003:5 m2 r1"));
        OK(chmod(n, modes[i]));
        IS_TRUE(has(n, ACCESS, after));
        EQ(modes[i], mode_of(n));
        snprintf(after, sizeof after, "o%o g%o m%o r%o", modes[i] >> 6 & 7, 6,
                 modes[i] >> 3 & 7, modes[i] & 7);
        MUST(set(n, ACCESS, "o3 g6 m2 r1")); /* only a mask */
        OK(chmod(n, modes[i]));
        IS_TRUE(has(n, ACCESS, after));
    }
    about("%s", "");
    /* An equivalent list takes the place of one that says more. */
    OK(set(n, ACCESS, "o6 g4 r0"));
    IS_TRUE(has(n, ACCESS, NULL));
    EQ(0640 | (mode_of(n) & 07000), mode_of(n));
    OK(removexattr(n, ACCESS)); /* none there: nothing to do */
    OK(removexattr(n, DEFAULT));
}

/* ---- what is no list --------------------------------------------------------------- */

static void refused_values(void)
{
    static const char *const wrong[] = {
        "o7",
        "o7 g7",
        "o7 r7",
        "g7 r7",
        "o7 u1:7 g7 r7",       /* no mask */
        "o7 g7 G1:7 r7",       /* no mask */
        "o7 g7 r7 m7",         /* order */
        "g7 o7 r7",            /* order */
        "o7 g7 u1:7 m7 r7",    /* order */
        "o7 o7 g7 r7",         /* twice */
        "o7 g7 g7 r7",         /* twice */
        "o7 g7 r7 r7",         /* twice */
        "o7 u1:7 g7 m7 m7 r7", /* twice */
        "o8 g7 r7",            /* no permission */
        "o7 u1:9 g7 m7 r7",    /* no permission */
    };
    const char *n = made(REGULAR, 0640), *d = made(DIRECTORY, 0750);
    List list;
    size_t len;

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        about("%s", wrong[i]);
        WANT(EINVAL, set(n, ACCESS, wrong[i]));
        WANT(EINVAL, set(d, ACCESS, wrong[i]));
        WANT(EINVAL, set(d, DEFAULT, wrong[i]));
    }
    about("%s", "");
    len = parse("o7 g7 r7", &list);
    WANT(EINVAL, setxattr(n, ACCESS, &list, len - 1, 0));
    WANT(EINVAL, setxattr(n, ACCESS, &list, 3, 0));
    list.version = 1;
    WANT(EOPNOTSUPP, setxattr(n, ACCESS, &list, len, 0));
    len = parse("o7 g7 r7", &list);
    list.entries[1].tag = 0x40;
    WANT(EINVAL, setxattr(n, ACCESS, &list, len, 0));
    EQ(0640, mode_of(n));
    EQ(0750, mode_of(d));
    IS_TRUE(has(n, ACCESS, NULL));
    IS_TRUE(has(d, DEFAULT, NULL));
}

static void other_types(void)
{
    EACH_KIND(k)
    {
        const char *n = made(k, 0640);
        List list;
        size_t len = parse("o7 u1:6 g7 m7 r7", &list);

        about("%s", kind_names[k]);
        if (k == SYMLINK) {
            WANT(EOPNOTSUPP, lsetxattr(n, ACCESS, &list, len, 0));
            WANT(EOPNOTSUPP, lsetxattr(n, DEFAULT, &list, len, 0));
            WANT(EOPNOTSUPP, lgetxattr(n, ACCESS, &list, sizeof list));
            continue;
        }
        OK(set(n, ACCESS, "o7 u1:6 g7 m7 r7"));
        if (k == DIRECTORY) {
            OK(set(n, DEFAULT, "o7 u1:6 g7 m7 r7"));
        } else {
            WANT(EACCES, set(n, DEFAULT, "o7 u1:6 g7 m7 r7"));
        }
        EQ(0777, mode_of(n));
    }
    about("%s", "");
    WANT(ENOENT, set("nobody home", ACCESS, "o7 g7 r7"));
}

TOPIC(acl_form)
{
    list_sets_mode(REGULAR);
    list_sets_mode(DIRECTORY);
    list_sets_mode(FIFO);
    chmod_changes_list();
    refused_values();
    other_types();
}

/* ---- inheritance ------------------------------------------------------------------- */

static int make_with(Kind kind, const char *name, mode_t mode)
{
    int fd;

    switch (kind) {
    case REGULAR:
        fd = open(name, O_CREAT | O_EXCL | O_RDWR, mode);
        return fd < 0 ? -1 : close(fd);
    case DIRECTORY:
        return mkdir(name, mode);
    case SYMLINK:
        return symlink("nowhere", name);
    default:
        return mknod(name, kind_modes[kind] | mode, 0);
    }
}

/* Without a default list the umask counts; with one it does not. */
static void inherit_one(Kind kind, const char *dir, const char *list, mode_t mode)
{
    const char *n = path("%s/%s", dir, fresh());
    List l;
    size_t len = parse(list, &l), count = (len - 4) / sizeof(Entry);
    Entry *owner = &l.entries[0], *other = &l.entries[count - 1], *group = NULL;
    bool extended = count > 3;
    List got;

    for (size_t i = 0; i < count; i++) {
        if (l.entries[i].tag == 0x04 || l.entries[i].tag == 0x10) {
            group = &l.entries[i];
        }
    }
    about("%s, default %s, mode 0%o", kind_names[kind], list, mode);
    if (OK(make_with(kind, n, mode)) < 0) {
        return;
    }
    if (kind == SYMLINK) {
        EQ(0777, mode_of(n));
        return;
    }
    if (kind == DIRECTORY) {
        IS_TRUE(has(n, DEFAULT, list));
    } else {
        WANT(ENODATA, getxattr(n, DEFAULT, &got, sizeof got));
    }
    owner->perm &= mode >> 6 & 7;
    group->perm &= mode >> 3 & 7;
    other->perm &= mode & 7;
    EQ(owner->perm << 6 | group->perm << 3 | other->perm, mode_of(n) & 0777);
    if (extended) {
        EQ((ssize_t)len, getxattr(n, ACCESS, &got, sizeof got));
        IS_TRUE(memcmp(&l, &got, len) == 0);
    } else {
        IS_TRUE(has(n, ACCESS, NULL));
    }
}

TOPIC(acl_inherit)
{
    static const char *const lists[] = {
        "o7 g5 r0",
        "o7 g7 r7",
        "o7 u70002:6 g5 m7 r0",
        "o0 u70002:7 g7 m5 r7",
        "o7 u1:7 u2:6 g5 G3:4 G4:3 m6 r1",
        "o7 g7 m2 r5",
    };
    static const mode_t modes[] = {0777, 0666, 0640, 0600, 0000, 0707};
    const char *dir = made(DIRECTORY, 0777), *plain = made(DIRECTORY, 0777), *n;
    int fd;

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        MUST(set(dir, DEFAULT, lists[i]));
        IS_TRUE(has(dir, DEFAULT, lists[i]));
        EQ(0777, mode_of(dir));
        for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
            EACH_KIND(k)
            {
                mode_t mask = umask(m % 2 == 0 ? 077 : 0);

                inherit_one(k, dir, lists[i], modes[m]);
                umask(mask);
            }
        }
    }
    about("O_TMPFILE");
    MUST(set(dir, DEFAULT, "o7 u70002:6 g5 m7 r1"));
    umask(077);
    fd = open(dir, O_TMPFILE | O_RDWR, 0640);
    if (fd < 0 && errno == EOPNOTSUPP) {
        skip("no O_TMPFILE");
    } else {
        OK(fd);
        EQ(0640, fstat_of(fd).st_mode & 0777);
        n = path("%s/%s", dir, fresh());
        OK(linkat(AT_FDCWD, path("/proc/self/fd/%d", fd), AT_FDCWD, n,
                  AT_SYMLINK_FOLLOW));
        IS_TRUE(has(n, ACCESS, "o6 u70002:6 g5 m4 r0"));
        close(fd);
    }
    about("a list that is there stays with what is moved");
    n = path("%s/%s", plain, fresh());
    MUST(make_with(REGULAR, n, 0666));
    EQ(0600, mode_of(n)); /* the umask */
    umask(0);
    MUST(rename(n, path("%s/moved", dir)));
    IS_TRUE(has(path("%s/moved", dir), ACCESS, NULL));
    MUST(set(path("%s/moved", dir), ACCESS, "o6 u1:6 g4 m4 r0"));
    MUST(link(path("%s/moved", dir), path("%s/again", plain)));
    IS_TRUE(has(path("%s/again", plain), ACCESS, "o6 u1:6 g4 m4 r0"));
    about("without a default list");
    OK(removexattr(dir, DEFAULT));
    n = path("%s/%s", dir, fresh());
    umask(022);
    MUST(make_with(REGULAR, n, 0666));
    umask(0);
    EQ(0644, mode_of(n));
    IS_TRUE(has(n, ACCESS, NULL));
}

/* ---- who may ----------------------------------------------------------------------- */

static int may(const char *name, int mode)
{
    static const int flags[] = {0, 0, O_WRONLY, 0, O_RDONLY, 0, O_RDWR};
    int fd = open(name, flags[mode]);

    return fd < 0 ? -1 : close(fd);
}

/* What @who may: a digit of a mode. */
static void expect_rights(const char *name, const Who *who, int rights)
{
    AS(*who)
    {
        about("%s", who->name);
        WANT(rights & 4 ? 0 : EACCES, may(name, 4));
        WANT(rights & 2 ? 0 : EACCES, may(name, 2));
        WANT((rights & 6) == 6 ? 0 : EACCES, may(name, 6));
        WANT(rights & 4 ? 0 : EACCES, faccessat(AT_FDCWD, name, R_OK, AT_EACCESS));
        WANT(rights & 2 ? 0 : EACCES, faccessat(AT_FDCWD, name, W_OK, AT_EACCESS));
        WANT(rights & 1 ? 0 : EACCES, faccessat(AT_FDCWD, name, X_OK, AT_EACCESS));
    }
    about("%s", "");
}

TOPIC(acl_rights)
{
    static const struct {
        const char *list;
        int alice, bob, carol, dave; /* Alice owns, Dave is in the owning group */
    } cases[] = {
        {"o6 g4 r0", 6, 0, 0, 4},
        {"o0 g7 r7", 0, 7, 7, 7},
        {"o7 u70002:6 g4 m7 r0", 7, 6, 0, 4},
        {"o7 u70002:6 g4 m4 r0", 7, 4, 0, 4},
        {"o7 u70002:0 g4 m7 r7", 7, 0, 7, 4},
        {"o0 u70001:7 g7 m7 r7", 0, 7, 7, 7}, /* the owner is the owner */
        {"o7 g0 G70003:6 m7 r4", 7, 4, 6, 0}, /* any group that matches, then no others */
        {"o7 g4 G70002:2 G70003:1 m7 r0", 7, 2, 1, 4},
        {"o7 u70004:1 g7 m7 r7", 7, 7, 7, 1}, /* a user before any group */
        {"o7 g7 G70010:0 m7 r0", 7, 0, 0, 7}, /* of two entries the one that grants */
        {"o7 g7 m5 r7", 7, 7, 7, 5},          /* the mask is not for others */
        {"o7 u70002:7 g7 m0 r0", 7, 0, 0, 0},
    };
    const char *n;

    NEEDS_ROOT("several users");
    n = made_for(REGULAR, 0600, ALICE.uid, GROUP_TEAM);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AS(ALICE)
        {
            about("%s", cases[i].list);
            OK(set(n, ACCESS, cases[i].list));
        }
        expect_rights(n, &ALICE, cases[i].alice);
        expect_rights(n, &BOB, cases[i].bob);
        expect_rights(n, &CAROL, cases[i].carol);
        expect_rights(n, &DAVE, cases[i].dave);
    }
}

TOPIC(acl_directory)
{
    const char *d, *n;
    List list;

    NEEDS_ROOT("several users");
    d = made_for(DIRECTORY, 0700, ALICE.uid, ALICE.gid);
    n = path("%s/f", d);
    MUST(make(REGULAR, n, 0666));
    AS(BOB)
    {
        WANT(EACCES, may(n, 4));
        WANT(EACCES, mkdir(path("%s/b", d), 0700));
        WANT(EPERM, set(d, ACCESS, "o7 u70002:7 g0 m7 r0"));
        WANT(EPERM, set(d, DEFAULT, "o7 u70002:7 g0 m7 r0"));
        WANT(EPERM, removexattr(d, ACCESS));
    }
    AS(ALICE)
    {
        OK(set(d, ACCESS, "o7 u70002:1 g0 m7 r0"));
    }
    AS(BOB)
    {
        OK(may(n, 6));
        WANT(EACCES, open(d, O_RDONLY | O_DIRECTORY));
        WANT(EACCES, mkdir(path("%s/b", d), 0700));
        OK(getxattr(d, ACCESS, &list, sizeof list)); /* anybody may look who gets there */
    }
    AS(ALICE)
    {
        OK(set(d, ACCESS, "o7 u70002:3 g0 m7 r0"));
    }
    AS(BOB)
    {
        OK(mkdir(path("%s/b", d), 0700));
        OK(rmdir(path("%s/b", d)));
        OK(unlink(n));
    }
    AS(ALICE)
    {
        OK(chmod(d, 0700)); /* the mask */
    }
    AS(BOB)
    {
        WANT(EACCES, mkdir(path("%s/b", d), 0700));
    }
    AS(ALICE)
    {
        OK(removexattr(d, ACCESS));
    }
    EQ(0700, mode_of(d));
    /* What Bob makes in Alice's directory is his own and has her list. */
    MUST(set(d, ACCESS, "o7 u70002:7 g0 m7 r0"));
    MUST(set(d, DEFAULT, "o7 u70001:7 g0 m7 r0"));
    AS(BOB)
    {
        OK(make_with(REGULAR, path("%s/hers", d), 0666));
    }
    AS(ALICE)
    {
        OK(may(path("%s/hers", d), 6));
        WANT(EPERM, set(path("%s/hers", d), ACCESS, "o7 g0 r0"));
        WANT(EPERM, chmod(path("%s/hers", d), 0600));
    }
    EQ(BOB.uid, stat_of(path("%s/hers", d)).st_uid);
    AS(CAROL)
    {
        WANT(EACCES, may(path("%s/hers", d), 4));
    }
}

/* Who sets a list and is not in the file's group loses set-gid, as with chmod(2). */
TOPIC(acl_set_gid)
{
    const char *n;

    NEEDS_ROOT("several users");
    n = made_for(REGULAR, 0755, ALICE.uid, GROUP_BOB);
    MUST(chmod(n, 06755));
    AS(ALICE)
    {
        OK(set(n, ACCESS, "o7 u1:5 g5 m5 r5"));
    }
    EQ(04755, mode_of(n));
    MUST(chmod(n, 06755));
    AS(ALICE)
    {
        OK(set(n, ACCESS, "o7 g5 r5"));
    }
    EQ(04755, mode_of(n));
    MUST(chmod(n, 06755));
    OK(set(n, ACCESS, "o7 u1:5 g5 m5 r5")); /* root may */
    EQ(06755, mode_of(n));
    MUST(chown(n, ALICE.uid, GROUP_TEAM));
    MUST(chmod(n, 06755));
    AS(ALICE) /* by a supplementary group */
    {
        OK(set(n, ACCESS, "o7 g5 r4"));
    }
    EQ(06754, mode_of(n));
}
