/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sessions-names.c - names and attributes: each operation is there as a whole or not at
 * all
 *
 * An operation that was answered is there, whoever looks, also when its session is dead
 * by then.  One whose session died in it is there or not; another session says which.
 */
#include "sessions.h"

#include <stdio.h>

/* Bits of a directory's names. */
#define ALL_NAMES ((1u << NAMES) - 1)
/* Room of a reader of a directory: some names at a time. */
#define LIST_BYTES 200u

/* What an operation makes of one or two names. */
typedef struct Change {
    Name *a, *b;              /* b: NULL where one name is enough */
    Inode *a_after, *b_after; /* borrowed; NULL: no such name */
} Change;

/* ---- what is there --------------------------------------------------------------- */

static uint64_t dir_of(const Session *s, const Name *n)
{
    return s->w->dirs[n->dir];
}

/* The inode number of @n, 0: there is no such name; in a session that lives. */
static uint64_t look_up(Session *s, const Name *n, VjAttr *attr)
{
    int r = vj_fs_lookup(s->fs, &caller, dir_of(s, n), n->text, attr);

    if (r != 0 && r != -ENOENT && !session_is_dead(s)) {
        fail(s, "lookup of %u/%s: %s", n->dir, n->text, g_strerror(-r));
    }
    return r == 0 ? attr->st.st_ino : 0;
}

/* @wanted is there; one that was just made may have any number. */
static bool is_there(uint64_t ino, const VjAttr *attr, const Inode *wanted)
{
    if (wanted == NULL) {
        return ino == 0;
    }
    if (wanted->ino == 0) {
        return ino != 0 && (attr->st.st_mode & S_IFMT) == wanted->type;
    }
    return ino == wanted->ino;
}

static void adopt(Inode *i, uint64_t ino)
{
    if (i != NULL && i->ino == 0) {
        i->ino = ino;
    }
}

static bool are_there(Session *s, const Change *c, Inode *a, Inode *b)
{
    VjAttr attr_a, attr_b;
    uint64_t ino_a = look_up(s, c->a, &attr_a);
    uint64_t ino_b = c->b != NULL ? look_up(s, c->b, &attr_b) : 0;

    if (!is_there(ino_a, &attr_a, a) || (c->b != NULL && !is_there(ino_b, &attr_b, b))) {
        return false;
    }
    adopt(a, ino_a);
    adopt(b, ino_b);
    return true;
}

/* ---- the model ------------------------------------------------------------------- */

static void change_count(Inode *i, int by)
{
    if (i != NULL) {
        pthread_mutex_lock(&i->lock);
        i->nlink = (unsigned)((int)i->nlink + by);
        pthread_mutex_unlock(&i->lock);
    }
}

static void set_name(Name *n, Inode *i)
{
    Inode *old = n->inode;

    if (old == i) {
        return;
    }
    change_count(i, S_ISDIR(i != NULL ? i->type : 0) ? 2 : 1);
    n->inode = i != NULL ? inode_ref(i) : NULL;
    if (old != NULL) {
        change_count(old, S_ISDIR(old->type) ? -2 : -1);
        inode_unref(old);
    }
}

static void apply(const Change *c)
{
    Inode *keep = c->a->inode != NULL ? inode_ref(c->a->inode) : NULL;

    if (c->b != NULL) {
        set_name(c->b, c->b_after);
    }
    set_name(c->a, c->a_after);
    inode_unref(keep);
}

/* The inodes whose mode and links an operation changes, referenced. */
typedef struct Changing {
    Inode *of[2];
} Changing;

static void count_changing(Inode *i, int by)
{
    pthread_mutex_lock(&i->lock);
    i->changing = (unsigned)((int)i->changing + by);
    pthread_mutex_unlock(&i->lock);
}

/* @a, @b: NULL is fine. */
static void changing_begin(Changing *c, Inode *a, Inode *b)
{
    *c = (Changing){.of = {a, b != a ? b : NULL}};
    for (size_t k = 0; k < G_N_ELEMENTS(c->of); k++) {
        if (c->of[k] != NULL) {
            count_changing(inode_ref(c->of[k]), 1);
        }
    }
}

static void changing_end(Changing *c)
{
    for (size_t k = 0; k < G_N_ELEMENTS(c->of); k++) {
        if (c->of[k] != NULL) {
            count_changing(c->of[k], -1);
            inode_unref(c->of[k]);
        }
    }
}

static void expect_unchanged(Session *s, const Change *c)
{
    if (!are_there(s, c, c->a->inode, c->b != NULL ? c->b->inode : NULL) &&
        !session_is_dead(s)) {
        fail(s, "it is not what it was before");
    }
}

/* The operation has returned @r, and the model says @wanted. */
static void finish(Session *s, int r, int wanted, const Change *c)
{
    if (!session_is_dead(s)) {
        if (session_timed_out(s, r)) {
            expect_unchanged(s, c);
            return;
        }
        if (r != wanted) {
            fail(s, "%s, and not %s", g_strerror(-r), g_strerror(-wanted));
        }
        if (r == 0) {
            apply(c);
        }
        return;
    }
    session_crash(s);
    if (r == wanted) { /* it was answered */
        if (r == 0 && !are_there(s, c, c->a_after, c->b_after)) {
            fail(s, "was answered, and is not there after the crash");
        }
        if (r == 0) {
            apply(c);
        }
        return;
    }
    COUNT(s->w, unsure);
    if (wanted == 0 && are_there(s, c, c->a_after, c->b_after)) {
        COUNT(s->w, unsure_done);
        apply(c);
    } else if (!are_there(s, c, c->a->inode, c->b != NULL ? c->b->inode : NULL)) {
        fail(s, "was cut off by the crash (%s), and is there in part", g_strerror(-r));
    }
}

/* ---- operations ------------------------------------------------------------------ */

void op_make(Session *s)
{
    static const mode_t types[] = {S_IFREG, S_IFREG, S_IFREG, S_IFDIR, S_IFLNK};
    mode_t type = types[vj_rng_below(&s->rng, G_N_ELEMENTS(types))];
    mode_t mode = type == S_IFLNK ? 0777 : (mode_t)(0600 | vj_rng_below(&s->rng, 64));
    Inode *made = inode_new(0, type | mode);
    Name *n = any_name(s);
    VjAttr attr;
    Change c = {.a = n, .a_after = made};
    Changing ch;
    int r, wanted;

    snprintf(made->target, sizeof made->target, "t%u", (unsigned)(s->op % 100000));
    doing(s, "make %u/%s of type %o", n->dir, n->text, type);
    lock_names(n, NULL);
    wanted = n->inode != NULL ? -EEXIST : 0;
    changing_begin(&ch, made, NULL);
    if (type == S_IFREG) {
        r = vj_fs_mknod(s->fs, &caller, dir_of(s, n), n->text, type | mode, 0, &attr);
    } else if (type == S_IFDIR) {
        r = vj_fs_mkdir(s->fs, &caller, dir_of(s, n), n->text, mode, &attr);
    } else {
        r = vj_fs_symlink(s->fs, &caller, dir_of(s, n), n->text, made->target, &attr);
    }
    if (r == 0) {
        made->ino = attr.st.st_ino;
    }
    finish(s, r, wanted, &c);
    changing_end(&ch);
    unlock_names(n, NULL);
    inode_unref(made);
}

/* Its last name is about to go, and another session has it open. */
static bool is_left_open(Session *s, Inode *i)
{
    bool is_left;

    pthread_mutex_lock(&i->lock);
    is_left = i->nlink == 1 && i->handles > 0 && i->opener != s->life &&
              life_goes_on(s->w, i->opener);
    pthread_mutex_unlock(&i->lock);
    return is_left;
}

void op_remove(Session *s)
{
    Name *n = any_name(s);
    bool as_dir = vj_rng_below(&s->rng, 4) == 0;
    Change c = {.a = n};
    Changing ch;
    Inode *old;
    int r, wanted = 0;

    lock_names(n, NULL);
    old = n->inode;
    as_dir = old != NULL && vj_rng_below(&s->rng, 8) != 0 ? S_ISDIR(old->type) : as_dir;
    doing(s, "%s %u/%s", as_dir ? "rmdir" : "unlink", n->dir, n->text);
    if (old == NULL) {
        wanted = -ENOENT;
    } else if (as_dir != S_ISDIR(old->type)) {
        wanted = as_dir ? -ENOTDIR : -EISDIR;
    }
    changing_begin(&ch, old, NULL);
    if (wanted == 0 && is_left_open(s, old)) {
        COUNT(s->w, orphans);
    }
    r = as_dir ? vj_fs_rmdir(s->fs, dir_of(s, n), n->text)
               : vj_fs_unlink(s->fs, dir_of(s, n), n->text);
    finish(s, r, wanted, &c);
    changing_end(&ch);
    unlock_names(n, NULL);
}

static int rename_wanted(const Name *a, const Name *b, unsigned flags)
{
    const Inode *from = a->inode, *to = b->inode;

    if (from == NULL) {
        return -ENOENT;
    }
    if ((flags & VJ_RENAME_EXCHANGE) != 0) {
        return to == NULL ? -ENOENT : 0;
    }
    if (to == NULL) {
        return 0;
    }
    if ((flags & VJ_RENAME_NOREPLACE) != 0) {
        return -EEXIST;
    }
    if (from == to) {
        return 0;
    }
    if (S_ISDIR(from->type) != S_ISDIR(to->type)) {
        return S_ISDIR(to->type) ? -EISDIR : -ENOTDIR;
    }
    return 0;
}

void op_rename(Session *s)
{
    static const unsigned all_flags[] = {0, 0, 0, VJ_RENAME_NOREPLACE,
                                         VJ_RENAME_EXCHANGE};
    unsigned flags = all_flags[vj_rng_below(&s->rng, G_N_ELEMENTS(all_flags))];
    Name *a = any_name(s), *b = any_name(s);
    Inode *from, *to;
    Change c = {.a = a, .b = b};
    Changing ch;
    int r;

    if (a == b) {
        return;
    }
    doing(s, "rename %u/%s to %u/%s with %x", a->dir, a->text, b->dir, b->text, flags);
    lock_names(a, b);
    from = a->inode;
    to = b->inode;
    c.b_after = from;
    c.a_after = (flags & VJ_RENAME_EXCHANGE) != 0 || from == to ? to : NULL;
    changing_begin(&ch, from, to);
    r = vj_fs_rename(s->fs, &caller, dir_of(s, a), a->text, dir_of(s, b), b->text, flags);
    finish(s, r, rename_wanted(a, b, flags), &c);
    changing_end(&ch);
    unlock_names(a, b);
}

void op_link(Session *s)
{
    Name *a = any_name(s), *b = any_name(s);
    Change c = {.a = b};
    Changing ch;
    VjAttr attr;
    int r, wanted;

    if (a == b) {
        return;
    }
    lock_names(a, b);
    if (a->inode == NULL || S_ISDIR(a->inode->type)) {
        unlock_names(a, b);
        return;
    }
    doing(s, "link %u/%s as %u/%s", a->dir, a->text, b->dir, b->text);
    c.a_after = a->inode;
    wanted = b->inode != NULL ? -EEXIST : 0;
    changing_begin(&ch, a->inode, NULL);
    r = vj_fs_link(s->fs, a->inode->ino, dir_of(s, b), b->text, &attr);
    finish(s, r, wanted, &c);
    changing_end(&ch);
    unlock_names(a, b);
}

/* ---- attributes ------------------------------------------------------------------ */

static bool size_is_possible(const Inode *i, uint64_t size, bool is_mine)
{
    for (guint k = is_mine ? i->states->len - 1 : 0; k < i->states->len; k++) {
        if (g_bytes_get_size(g_ptr_array_index(i->states, k)) == size) {
            return true;
        }
    }
    return false;
}

/* Under i->lock. */
static void compare_attr(Session *s, const Inode *i, const VjAttr *attr)
{
    bool is_mine = i->opener == s->life && i->handles > 0;

    if (attr->st.st_ino != i->ino || (attr->st.st_mode & S_IFMT) != i->type) {
        fail(s, "inode %" G_GUINT64_FORMAT " of mode %o, not %" G_GUINT64_FORMAT " of %o",
             (uint64_t)attr->st.st_ino, attr->st.st_mode, i->ino, i->mode);
    }
    if (i->changing == 0 &&
        (attr->st.st_mode != i->mode || attr->st.st_nlink != i->nlink)) {
        fail(s,
             "inode %" G_GUINT64_FORMAT " has mode %o and %u links, not mode %o and %u",
             i->ino, attr->st.st_mode, (unsigned)attr->st.st_nlink, i->mode, i->nlink);
    }
    if (S_ISREG(i->type) && !size_is_possible(i, (uint64_t)attr->st.st_size, is_mine)) {
        fail(s, "inode %" G_GUINT64_FORMAT " has %" G_GUINT64_FORMAT " bytes, never had",
             i->ino, (uint64_t)attr->st.st_size);
    }
}

static void look(Session *s, Name *n)
{
    VjAttr attr;
    Inode *i = n->inode;
    int r;

    if (i != NULL) {
        pthread_mutex_lock(&i->lock);
    }
    r = vj_fs_lookup(s->fs, &caller, dir_of(s, n), n->text, &attr);
    if (session_is_dead(s)) {
        session_crash(s);
    } else if (r != (i != NULL ? 0 : -ENOENT)) {
        fail(s, "lookup: %s", g_strerror(-r));
    } else if (i != NULL) {
        compare_attr(s, i, &attr);
    }
    if (i != NULL) {
        pthread_mutex_unlock(&i->lock);
    }
}

void op_look(Session *s)
{
    Name *n = any_name(s);

    doing(s, "look up %u/%s", n->dir, n->text);
    lock_names(n, NULL);
    look(s, n);
    unlock_names(n, NULL);
}

void op_chmod(Session *s)
{
    VjSetattr set = {.what = VJ_SET_MODE,
                     .mode = (mode_t)(0600 | vj_rng_below(&s->rng, 64))};
    Name *n = any_name(s);
    Inode *i;
    VjAttr attr;
    bool alone;
    int r;

    lock_names(n, NULL);
    i = n->inode;
    if (i == NULL || S_ISLNK(i->type)) {
        unlock_names(n, NULL);
        return;
    }
    pthread_mutex_lock(&i->lock);
    alone = i->changing == 0;
    i->changing += alone;
    pthread_mutex_unlock(&i->lock);
    if (!alone) { /* by another name: who comes last is not known */
        unlock_names(n, NULL);
        return;
    }
    doing(s, "chmod %u/%s to %o", n->dir, n->text, set.mode);
    r = vj_fs_setattr(s->fs, &caller, i->ino, NULL, &set, &attr);
    if (session_is_dead(s)) {
        session_crash(s);
        if (look_up(s, n, &attr) != i->ino || ((attr.st.st_mode & 07777) != set.mode &&
                                               (r == 0 || attr.st.st_mode != i->mode))) {
            fail(s, "after the crash its mode is %o", attr.st.st_mode);
        }
    } else if (session_timed_out(s, r)) {
        attr.st.st_mode = i->mode;
    } else if (r != 0) {
        fail(s, "%s", g_strerror(-r));
    }
    pthread_mutex_lock(&i->lock);
    if ((attr.st.st_mode & 07777) == set.mode) {
        i->mode = i->type | set.mode;
    }
    i->changing--;
    pthread_mutex_unlock(&i->lock);
    unlock_names(n, NULL);
}

/* ---- listings -------------------------------------------------------------------- */

typedef struct Listing {
    Session *s;
    Name *names;     /* NAMES of them */
    unsigned locked; /* bits: nobody changes these */
    uint64_t cookie;
    unsigned seen[NAMES], count;
} Listing;

static void see(Listing *l, unsigned k, const VjDirent *entry)
{
    const Inode *i;

    l->seen[k]++;
    if ((l->locked & 1u << k) == 0) {
        return;
    }
    i = l->names[k].inode;
    if (i == NULL || i->ino != entry->ino) {
        fail(l->s, "listed as inode %" G_GUINT64_FORMAT ": %s", entry->ino, entry->name);
    }
}

static bool visit(void *opaque, const VjDirent *entry, const VjAttr *attr)
{
    Listing *l = opaque;

    (void)attr;
    l->cookie = entry->cookie;
    l->count++;
    for (unsigned k = 0; k < NAMES; k++) {
        if (strcmp(l->names[k].text, entry->name) == 0) {
            if (!session_is_dead(l->s)) {
                see(l, k, entry);
            }
            return true;
        }
    }
    if (strcmp(entry->name, ".") != 0 && strcmp(entry->name, "..") != 0) {
        fail(l->s, "listed, and never made: %s", entry->name);
    }
    return true;
}

/* Those of one directory's names that are @locked are there as they are, and once;
 * others come and go meanwhile. */
static void list(Session *s, unsigned dir, unsigned locked)
{
    Listing l = {.s = s, .names = &s->w->names[dir * NAMES], .locked = locked};
    uint64_t end = UINT64_MAX;
    int r = 0;

    do {
        l.count = 0;
        r = vj_fs_readdir(s->fs, s->w->dirs[dir], l.cookie, &end, LIST_BYTES, false,
                          visit, &l);
    } while (r == 0 && l.count > 0);
    if (session_is_dead(s)) {
        session_crash(s);
        return;
    }
    if (r != 0) {
        fail(s, "%s", g_strerror(-r));
    }
    for (unsigned k = 0; k < NAMES; k++) {
        if ((locked & 1u << k) != 0 &&
            l.seen[k] != (l.names[k].inode != NULL ? 1u : 0u)) {
            fail(s, "%s was listed %u times", l.names[k].text, l.seen[k]);
        }
    }
}

static void lock_some(Session *s, unsigned dir, unsigned which)
{
    for (unsigned k = 0; k < NAMES; k++) {
        if ((which & 1u << k) != 0) {
            lock_names(&s->w->names[dir * NAMES + k], NULL);
        }
    }
}

static void unlock_some(Session *s, unsigned dir, unsigned which)
{
    for (unsigned k = 0; k < NAMES; k++) {
        if ((which & 1u << k) != 0) {
            unlock_names(&s->w->names[dir * NAMES + k], NULL);
        }
    }
}

void op_list(Session *s)
{
    unsigned dir = (unsigned)vj_rng_below(&s->rng, DIRS);
    unsigned locked = (unsigned)vj_rng_below(&s->rng, ALL_NAMES + 1);

    doing(s, "list %u, of which %x do not change", dir, locked);
    lock_some(s, dir, locked);
    list(s, dir, locked);
    unlock_some(s, dir, locked);
}

void compare_names(Session *s)
{
    for (unsigned k = 0; k < DIRS * NAMES; k++) {
        doing(s, "compare %u/%s", s->w->names[k].dir, s->w->names[k].text);
        look(s, &s->w->names[k]);
    }
    for (unsigned k = 0; k < DIRS; k++) {
        doing(s, "compare the list of %u", k);
        list(s, k, ALL_NAMES);
    }
}
