/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sticky.c - directories with the sticky bit: names may be taken away by the owner of the
 * directory, the owner of the file, and root
 *
 * Each type of file, each relation of the one who tries to directory and file, each way
 * of taking a name away.
 */
#include <sys/syscall.h>

#include "posix.h"

typedef struct Way {
    const char *name;
    int (*call)(Kind k, const char *dir);
    bool takes_victim; /* the file "victim" of the directory loses its name */
} Way;

static int take_away(Kind k, const char *dir)
{
    return gone(k, path("%s/victim", dir));
}

static int move_out(Kind k, const char *dir)
{
    (void)k;
    return rename(path("%s/victim", dir), "out");
}

static int move_within(Kind k, const char *dir)
{
    (void)k;
    return rename(path("%s/victim", dir), path("%s/other", dir));
}

static int move_over(Kind k, const char *dir)
{
    (void)k;
    return rename("spare", path("%s/victim", dir));
}

static int exchange_out(Kind k, const char *dir)
{
    (void)k;
    return renameat2(AT_FDCWD, "spare", AT_FDCWD, path("%s/victim", dir),
                     RENAME_EXCHANGE);
}

static int exchange_in(Kind k, const char *dir)
{
    (void)k;
    return renameat2(AT_FDCWD, path("%s/victim", dir), AT_FDCWD, "spare",
                     RENAME_EXCHANGE);
}

static int make_more(Kind k, const char *dir)
{
    (void)k;
    return mkdir(path("%s/more", dir), 0700);
}

static int link_it(Kind k, const char *dir)
{
    (void)k;
    return symlink("victim", path("%s/linked", dir));
}

static const Way ways[] = {
    {"removing", take_away, true},        {"moving out", move_out, true},
    {"moving within", move_within, true}, {"moving over", move_over, true},
    {"exchanging", exchange_out, true},   {"being exchanged", exchange_in, true},
    {"making another", make_more, false}, {"making a symlink", link_it, false},
};

static const struct {
    const char *name;
    const Who *who;
    uid_t dir, file;
    bool may;
} relations[] = {
    {"the owner of both", &BOB, 70002, 70002, true},
    {"the owner of the directory", &BOB, 70002, 70003, true},
    {"the owner of the file", &BOB, 70003, 70002, true},
    {"the owner of neither", &BOB, 70003, 70003, false},
    {"the owner of neither, root's directory", &BOB, 0, 70003, false},
    {"the owner of neither, root's file", &BOB, 70003, 0, false},
    {"root", &ROOT, 70003, 70003, true},
};

static void put_back(Kind k, const char *dir, uid_t owner)
{
    static const char *const left[] = {"other", "more", "linked", "victim"};

    for (size_t j = 0; j < sizeof left / sizeof left[0]; j++) {
        (void)unlink(path("%s/%s", dir, left[j]));
        (void)rmdir(path("%s/%s", dir, left[j]));
    }
    (void)unlink("out");
    (void)rmdir("out");
    (void)unlink("spare");
    (void)rmdir("spare");
    MUST(make(k, path("%s/victim", dir), 0777));
    MUST(make(k, "spare", 0777));
    MUST(give(path("%s/victim", dir), owner, GROUP_CAROL));
    MUST(give("spare", 70002, GROUP_BOB));
}

static void relation(size_t r, Kind k, mode_t sticky)
{
    const char *dir = made_for(DIRECTORY, 0777 | sticky, relations[r].dir, GROUP_CAROL);

    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        bool may = !sticky || relations[r].may || !ways[i].takes_victim;

        put_back(k, dir, relations[r].file);
        about("%s a %s in a %sdirectory, %s", ways[i].name, kind_names[k],
              sticky ? "sticky " : "", relations[r].name);
        AS(*relations[r].who)
        {
            /* Changing the parent of a directory writes to it: it is 0777. */
            WANT(may ? 0 : EPERM, ways[i].call(k, dir));
        }
        EQ(!may || ways[i].call == exchange_in || ways[i].call == exchange_out ||
               ways[i].call == move_over || !ways[i].takes_victim,
           exists(path("%s/victim", dir)));
    }
    put_back(k, dir, relations[r].file);
    MUST(gone(k, path("%s/victim", dir)));
    MUST(gone(k, "spare"));
    MUST(rmdir(dir));
}

TOPIC(sticky)
{
    NEEDS_ROOT("files of several owners");
    for (size_t r = 0; r < sizeof relations / sizeof relations[0]; r++) {
        EACH_KIND(k)
        {
            relation(r, k, 0);
            relation(r, k, S_ISVTX);
        }
    }
}
