/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-walk.c - reading an LMDB file without believing it
 *
 * LMDB follows whatever number it finds in its file: a damaged one ends the program or
 * gives a wrong answer.  So this reads the same pages first, and what it finds whole LMDB
 * can read:
 *
 *   - both meta pages, and that their commits follow one another;
 *   - each page that the last commit reaches: its number, its kind for its level, the
 *     offsets and lengths of its nodes, which fill the page to its end without a gap;
 *   - the order of all keys, within a page and against the keys of the pages above;
 *   - the counts of pages and keys that each tree carries;
 *   - that no page is used twice, nor is both used and free, nor lies beyond the end.
 *
 * What is in keys and values is not its business: records have checksums of their own.
 */
#include <unistd.h>

#include "meta/lmdb-walk.h"

#define BITS_BYTES(pages) ((size_t)((pages) / 8 + 1))
/* Pages that may be neither used nor free in a sound file: a few, and a share. */
#define LOST_PAGES_SOME 64u
#define LOST_PAGES_SHARE 8u

/* One page of a tree while what is below it is read. */
typedef struct Page {
    uint64_t number;
    uint16_t flags, lower, upper;
    uint8_t *bytes;
} Page;

/* Keys of a page lie in [low, high); NULL data: no limit. */
typedef struct Range {
    VjSlice low, high;
} Range;

typedef struct Tree {
    const char *name; /* for messages */
    VjLmdbTreeRecord record;
    VjLmdbTreeRecord found; /* counted */
    bool integer_keys;      /* the tree of free pages */
    bool has_trees;         /* the tree of names */
} Tree;

typedef struct Walk {
    int fd;
    VjLmdbWalk *out;
    VjMetaFlaw *say;
    VjLmdbWalkAsk *ask;
    void *opaque;
    uint64_t file_bytes;
    uint8_t *is_free; /* a bit for each page */
    GArray *trees;    /* Tree: those with names */
    GPtrArray *names;
    uint8_t *pages[VJ_LMDB_DEPTH_MAX + 1]; /* one for each level */
    uint32_t *lengths; /* of the node that begins at twice the place; 0: none */
} Walk;

/* ---- small things ------------------------------------------------------------------ */

static void flaw(Walk *w, const char *format, ...) G_GNUC_PRINTF(2, 3);

static void flaw(Walk *w, const char *format, ...)
{
    va_list arguments;

    if (w->out->flaws++ >= VJ_LMDB_FLAWS_LISTED || w->say == NULL) {
        return;
    }
    va_start(arguments, format);
    {
        g_autofree char *text = g_strdup_vprintf(format, arguments);

        w->say(w->opaque, text);
    }
    va_end(arguments);
}

static bool set_bit(uint8_t *bits, uint64_t page)
{
    uint8_t bit = (uint8_t)(1u << page % 8);
    bool was = (bits[page / 8] & bit) != 0;

    bits[page / 8] |= bit;
    return was;
}

/* Exactly @len bytes; false: the file ends before, or @rc says why not. */
static bool read_at(int fd, uint64_t at, void *dst, size_t len, int *rc)
{
    int r = vj_fd_pread_all(fd, dst, len, at);

    if (r < 0 && r != -EBADMSG) {
        *rc = r;
    }
    return r == 0;
}

static uint64_t psize(const Walk *w)
{
    return w->out->page_bytes;
}

/* True: the page is there, and @from is the first page that refers to it. */
static bool claim(Walk *w, uint64_t page, uint64_t count, uint64_t from)
{
    uint64_t end = w->out->end_page;

    if (page < VJ_LMDB_META_PAGES || page >= end || count > end - page) {
        flaw(w,
             "page %" G_GUINT64_FORMAT ": it points to page %" G_GUINT64_FORMAT
             ", where there is none",
             from, page);
        return false;
    }
    if ((page + count) * psize(w) > w->file_bytes) {
        flaw(w, "page %" G_GUINT64_FORMAT ": the file ends before it", page);
        return false;
    }
    for (uint64_t i = page; i < page + count; i++) {
        if (set_bit(w->out->used, i)) {
            flaw(w,
                 "page %" G_GUINT64_FORMAT ": it is used twice, the second time by page "
                 "%" G_GUINT64_FORMAT,
                 i, from);
            return false;
        }
    }
    w->out->used_pages += count;
    return true;
}

/* ---- nodes ------------------------------------------------------------------------- */

typedef struct Node {
    VjLmdbNodeHead head;
    uint64_t number; /* length of the value, or the child */
    VjSlice key;
    const uint8_t *value;
} Node;

static size_t node_count(const Page *p)
{
    return (p->lower - VJ_LMDB_PAGE_HEAD) / 2u;
}

/* Node @i lies within its page.  @bytes: what it takes there. */
static bool node_at(const Walk *w, const Page *p, size_t i, Node *out, size_t *bytes)
{
    uint16_t at;
    uint64_t len;

    memcpy(&at, p->bytes + VJ_LMDB_PAGE_HEAD + 2 * i, sizeof at);
    if (at < p->upper || at % 2 != 0 || at + VJ_LMDB_NODE_HEAD > psize(w)) {
        return false;
    }
    memcpy(&out->head, p->bytes + at, sizeof out->head);
    out->number = out->head.low | (uint64_t)out->head.high << 16;
    len = VJ_LMDB_NODE_HEAD + out->head.key_bytes;
    if (p->flags == VJ_LMDB_BRANCH) {
        out->number |= (uint64_t)out->head.flags << 32;
    } else {
        len += (out->head.flags & VJ_LMDB_NODE_RUN) != 0 ? 8 : out->number;
    }
    len += len % 2;
    if (at + len > psize(w)) {
        return false;
    }
    out->key = vj_slice(p->bytes + at + VJ_LMDB_NODE_HEAD, out->head.key_bytes);
    out->value = p->bytes + at + VJ_LMDB_NODE_HEAD + out->head.key_bytes;
    *bytes = (size_t)len;
    return true;
}

/* Nodes one behind the other from the first to the end of the page; all of them once. */
static bool fill_page(Walk *w, const Page *p, size_t count)
{
    size_t at = p->upper, seen = 0;

    while (at < psize(w)) {
        size_t len = w->lengths[at / 2];

        if (len == 0) {
            return false;
        }
        at += len;
        seen++;
    }
    return at == psize(w) && seen == count;
}

/* Notes how long each node is, where it begins; false: entry *wrong has no place of its
 * own. */
static bool note_lengths(Walk *w, const Page *p, size_t count, size_t *wrong)
{
    size_t bytes;
    Node n;

    for (*wrong = 0; *wrong < count; (*wrong)++) {
        uint32_t *length;

        if (!node_at(w, p, *wrong, &n, &bytes)) {
            return false;
        }
        length =
            &w->lengths[((const uint8_t *)n.key.data - VJ_LMDB_NODE_HEAD - p->bytes) / 2];
        if (*length != 0) {
            return false;
        }
        *length = (uint32_t)bytes;
    }
    return true;
}

/* Every node in its place, and nothing between them. */
static bool check_nodes(Walk *w, const Page *p)
{
    size_t count = node_count(p), wrong;

    memset(w->lengths + p->upper / 2, 0, (psize(w) - p->upper) / 2 * sizeof *w->lengths);
    if (!note_lengths(w, p, count, &wrong)) {
        flaw(w, "page %" G_GUINT64_FORMAT ": entry %zu of %zu does not lie in its place",
             p->number, wrong, count);
        return false;
    }
    if (!fill_page(w, p, count)) {
        flaw(w, "page %" G_GUINT64_FORMAT ": its %zu entries do not fill it", p->number,
             count);
        return false;
    }
    return true;
}

/* ---- order ------------------------------------------------------------------------- */

static int compare(const Tree *t, VjSlice a, VjSlice b)
{
    int order;

    if (t->integer_keys) {
        uint64_t x, y;

        memcpy(&x, a.data, sizeof x);
        memcpy(&y, b.data, sizeof y);
        return x < y ? -1 : x > y;
    }
    order = memcmp(a.data, b.data, MIN(a.len, b.len));
    return order != 0 ? order : a.len < b.len ? -1 : a.len > b.len;
}

/* The first key of a branch page means nothing. */
static bool check_order(Walk *w, const Tree *t, const Page *p, const Range *range)
{
    size_t count = node_count(p), bytes;
    VjSlice last = range->low;
    Node n;

    for (size_t i = p->flags == VJ_LMDB_BRANCH ? 1 : 0; i < count; i++) {
        bool is_first = last.data == range->low.data;
        bool in_place = node_at(w, p, i, &n, &bytes);
        int order;

        g_assert(in_place);
        if (n.key.len == 0 || n.key.len > VJ_LMDB_KEY_MAX ||
            (t->integer_keys && n.key.len != sizeof(uint64_t))) {
            flaw(w, "page %" G_GUINT64_FORMAT ": key %zu has %zu bytes", p->number, i,
                 n.key.len);
            return false;
        }
        order = last.data == NULL ? 1 : compare(t, n.key, last);
        if (order < 0 || (order == 0 && !is_first) ||
            (range->high.data != NULL && compare(t, n.key, range->high) >= 0)) {
            flaw(w, "page %" G_GUINT64_FORMAT ": key %zu is out of order", p->number, i);
            return false;
        }
        last = n.key;
    }
    return true;
}

/* ---- leaves ------------------------------------------------------------------------ */

/* The run of pages behind @n; *first_page. */
static bool check_run(Walk *w, Tree *t, const Page *p, const Node *n,
                      uint64_t *first_page, int *rc)
{
    VjLmdbPageHead head;
    uint64_t first, needed = (VJ_LMDB_PAGE_HEAD - 1 + n->number) / psize(w) + 1;

    memcpy(&first, n->value, sizeof first);
    if (first < VJ_LMDB_META_PAGES || first >= w->out->end_page) {
        return claim(w, first, 1, p->number);
    }
    if (!read_at(w->fd, first * psize(w), &head, sizeof head, rc)) {
        if (*rc == 0) {
            flaw(w, "page %" G_GUINT64_FORMAT ": the file ends before it", first);
        }
        return false;
    }
    if (head.number != first || head.flags != VJ_LMDB_OVERFLOW ||
        head.run_pages < needed) {
        flaw(w,
             "page %" G_GUINT64_FORMAT ": it is not the start of the value that page "
             "%" G_GUINT64_FORMAT " keeps there",
             first, p->number);
        return false;
    }
    if (!claim(w, first, head.run_pages, p->number)) {
        return false;
    }
    t->found.run_pages += head.run_pages;
    *first_page = first;
    return true;
}

static void note_tree(Walk *w, const Page *p, const Node *n)
{
    Tree t = {.name = NULL};
    VjLmdbTreeRecord *r = &t.record;

    if (n->number != sizeof *r || w->trees->len >= VJ_LMDB_TREES_MAX) {
        flaw(w, "page %" G_GUINT64_FORMAT ": it names a tree that is none", p->number);
        return;
    }
    memcpy(r, n->value, sizeof *r);
    if (r->flags != 0) {
        flaw(w, "page %" G_GUINT64_FORMAT ": it names a tree of another kind (flags %#x)",
             p->number, r->flags);
        return;
    }
    t.name = g_strndup((const char *)n->key.data, n->key.len);
    g_ptr_array_add(w->names, (char *)(uintptr_t)t.name);
    g_array_append_val(w->trees, t);
}

/* Numbers of free pages: a count, then so many, the largest first. */
static void note_free(Walk *w, const Page *p, const uint64_t *list, uint64_t words)
{
    uint64_t count = words > 0 ? list[0] : 0, last = UINT64_MAX;

    if (words == 0 || count > words - 1) {
        flaw(w, "page %" G_GUINT64_FORMAT ": it has a list of free pages that is cut off",
             p->number);
        return;
    }
    for (uint64_t i = 1; i <= count; i++) {
        uint64_t page = list[i];

        if (page < VJ_LMDB_META_PAGES || page >= w->out->end_page || page >= last ||
            set_bit(w->is_free, page)) {
            flaw(w,
                 "page %" G_GUINT64_FORMAT
                 ": its list of free pages says %" G_GUINT64_FORMAT ", which cannot be",
                 p->number, page);
            return;
        }
        last = page;
        w->out->free_pages++;
    }
}

static int read_free(Walk *w, const Page *p, const Node *n, uint64_t run)
{
    g_autofree uint64_t *list = NULL;
    uint64_t commit;
    int rc = 0;

    memcpy(&commit, n->key.data, sizeof commit);
    if (commit == 0 || commit > w->out->meta.commit) {
        flaw(w,
             "page %" G_GUINT64_FORMAT ": pages are free since commit %" G_GUINT64_FORMAT
             ", which has not been yet",
             p->number, commit);
        return 0;
    }
    list = g_try_malloc(n->number + sizeof *list); /* not more than the file has */
    if (list == NULL) {
        return -ENOMEM;
    }
    if (run == 0) {
        memcpy(list, n->value, n->number);
    } else if (!read_at(w->fd, run * psize(w) + VJ_LMDB_PAGE_HEAD, list, n->number,
                        &rc)) {
        if (rc == 0) {
            flaw(w, "page %" G_GUINT64_FORMAT ": the file ends before it", run);
        }
        return rc;
    }
    note_free(w, p, list, n->number / sizeof *list);
    return 0;
}

static int walk_leaf(Walk *w, Tree *t, const Page *p)
{
    size_t count = node_count(p), bytes;
    int rc = 0;

    t->found.leaf_pages++;
    t->found.entries += count;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        uint64_t run = 0;
        Node n;
        bool in_place = node_at(w, p, i, &n, &bytes);

        g_assert(in_place);
        if ((n.head.flags & ~(t->has_trees ? VJ_LMDB_NODE_TREE : VJ_LMDB_NODE_RUN)) !=
            0) {
            flaw(w, "page %" G_GUINT64_FORMAT ": entry %zu is of an unknown kind (%#x)",
                 p->number, i, n.head.flags);
        } else if ((n.head.flags & VJ_LMDB_NODE_RUN) != 0 &&
                   !check_run(w, t, p, &n, &run, &rc)) {
            continue;
        } else if ((n.head.flags & VJ_LMDB_NODE_TREE) != 0) {
            note_tree(w, p, &n);
        } else if (t->integer_keys) {
            rc = read_free(w, p, &n, run);
        }
    }
    return rc;
}

/* ---- trees ------------------------------------------------------------------------- */

static bool read_page(Walk *w, uint64_t number, unsigned level, uint64_t from, Page *p,
                      int *rc)
{
    VjLmdbPageHead head;
    uint16_t expected = level == 1 ? VJ_LMDB_LEAF : VJ_LMDB_BRANCH;

    if (!claim(w, number, 1, from)) {
        return false;
    }
    p->number = number;
    p->bytes = w->pages[level];
    if (!read_at(w->fd, number * psize(w), p->bytes, psize(w), rc)) {
        if (*rc == 0) {
            flaw(w, "page %" G_GUINT64_FORMAT ": the file ends before it", number);
        }
        return false;
    }
    memcpy(&head, p->bytes, sizeof head);
    if (head.number != number) {
        flaw(w, "page %" G_GUINT64_FORMAT ": it says that it is page %" G_GUINT64_FORMAT,
             number, head.number);
        return false;
    }
    if (head.flags != expected) {
        flaw(w, "page %" G_GUINT64_FORMAT ": it is of kind %#x, not %#x", number,
             head.flags, expected);
        return false;
    }
    p->flags = head.flags;
    p->lower = head.nodes.lower;
    p->upper = head.nodes.upper;
    if (p->lower < VJ_LMDB_PAGE_HEAD + (level == 1 ? 2 : 4) || p->lower % 2 != 0 ||
        p->upper % 2 != 0 || p->lower > p->upper || p->upper > psize(w)) {
        flaw(w, "page %" G_GUINT64_FORMAT ": its bounds are %u and %u", number, p->lower,
             p->upper);
        return false;
    }
    return check_nodes(w, p);
}

/* @level: 1 is a leaf's.  Not deeper than VJ_LMDB_DEPTH_MAX. */
static int walk_page(Walk *w, Tree *t, uint64_t number, unsigned level, uint64_t from,
                     const Range *range)
{
    Page p;
    int rc = w->ask != NULL ? w->ask(w->opaque) : 0;

    if (rc < 0 || !read_page(w, number, level, from, &p, &rc) ||
        !check_order(w, t, &p, range)) {
        return rc;
    }
    if (level == 1) {
        return walk_leaf(w, t, &p);
    }
    t->found.branch_pages++;
    for (size_t i = 0; rc == 0 && i < node_count(&p); i++) {
        Range below = *range;
        size_t bytes;
        Node n, next;
        bool in_place = node_at(w, &p, i, &n, &bytes);

        g_assert(in_place);
        below.low = i > 0 ? n.key : range->low;
        if (i + 1 < node_count(&p)) {
            in_place = node_at(w, &p, i + 1, &next, &bytes);
            g_assert(in_place);
            below.high = next.key;
        }
        rc = walk_page(w, t, n.number, level - 1, number, &below);
    }
    return rc;
}

static void compare_count(Walk *w, const Tree *t, const char *what, uint64_t found,
                          uint64_t recorded)
{
    if (found != recorded) {
        flaw(w, "tree %s: it has %" G_GUINT64_FORMAT " %s of %" G_GUINT64_FORMAT, t->name,
             found, what, recorded);
    }
}

static int walk_tree(Walk *w, Tree *t)
{
    const VjLmdbTreeRecord *r = &t->record;
    Range all = {.low = vj_slice(NULL, 0), .high = vj_slice(NULL, 0)};
    int rc = 0;

    if (r->root == VJ_LMDB_NO_PAGE && r->depth == 0) {
        rc = 0;
    } else if (r->depth == 0 || r->depth > VJ_LMDB_DEPTH_MAX) {
        flaw(w, "tree %s: it is %u levels deep", t->name, r->depth);
        return 0;
    } else {
        rc = walk_page(w, t, r->root, r->depth, 0, &all);
    }
    if (rc == 0) {
        compare_count(w, t, "branch pages", t->found.branch_pages, r->branch_pages);
        compare_count(w, t, "leaf pages", t->found.leaf_pages, r->leaf_pages);
        compare_count(w, t, "pages of long values", t->found.run_pages, r->run_pages);
        compare_count(w, t, "entries", t->found.entries, r->entries);
    }
    return rc;
}

/* The names first: they say where the others are. */
static int walk_trees(Walk *w)
{
    Tree names = {.name = "of names", .record = w->out->meta.main, .has_trees = true};
    Tree free_pages = {
        .name = "of free pages", .record = w->out->meta.free, .integer_keys = true};
    int rc = walk_tree(w, &names);

    for (guint i = 0; rc == 0 && i < w->trees->len; i++) {
        Tree *t = &g_array_index(w->trees, Tree, i);

        rc = walk_tree(w, t);
        w->out->entries += t->found.entries;
    }
    return rc < 0 ? rc : walk_tree(w, &free_pages);
}

/* ---- meta pages -------------------------------------------------------------------- */

typedef struct MetaPage {
    VjLmdbPageHead head;
    VjLmdbMetaRecord record;
} MetaPage;

G_STATIC_ASSERT(sizeof(MetaPage) == VJ_LMDB_PAGE_HEAD + VJ_LMDB_META_BYTES);

static bool is_page_size(uint32_t bytes)
{
    return bytes >= VJ_LMDB_PAGE_BYTES_MIN && bytes <= VJ_LMDB_PAGE_BYTES_MAX &&
           (bytes & (bytes - 1)) == 0;
}

/* What the kernel gives for a record that is being written may be half of each. */
static bool read_meta(Walk *w, uint64_t at, MetaPage *out, int *rc)
{
    MetaPage again;

    do {
        if (!read_at(w->fd, at, out, sizeof *out, rc) ||
            !read_at(w->fd, at, &again, sizeof again, rc)) {
            return false;
        }
    } while (memcmp(out, &again, sizeof again) != 0);
    return true;
}

static bool check_meta(Walk *w, uint64_t number, const MetaPage *m)
{
    const VjLmdbMetaRecord *r = &m->record;

    if (m->head.number != number || m->head.flags != VJ_LMDB_META ||
        r->magic != VJ_LMDB_MAGIC || r->version != VJ_LMDB_DATA_VERSION) {
        flaw(w, "page %" G_GUINT64_FORMAT ": it is not a meta page", number);
        return false;
    }
    if (!is_page_size(r->free.page_bytes)) {
        flaw(w, "page %" G_GUINT64_FORMAT ": it says that pages have %u bytes", number,
             r->free.page_bytes);
        return false;
    }
    if (r->commit != 0 && r->commit % 2 != number) {
        flaw(w,
             "page %" G_GUINT64_FORMAT ": commit %" G_GUINT64_FORMAT
             " does not belong there",
             number, r->commit);
        return false;
    }
    if (r->free.flags != VJ_LMDB_INTEGER_KEYS || r->main.flags != 0) {
        flaw(w, "page %" G_GUINT64_FORMAT ": its trees are of another kind (%#x, %#x)",
             number, r->free.flags, r->main.flags);
        return false;
    }
    return true;
}

/* Both meta pages, each of which LMDB wants to be there.  1: go on; 0: flawed; -errno. */
static int read_metas(Walk *w, uint64_t commit)
{
    MetaPage m[VJ_LMDB_META_PAGES];
    uint64_t at = 0, one, two;
    int rc = 0;

    for (uint64_t i = 0; i < VJ_LMDB_META_PAGES; i++) {
        if (!read_meta(w, at, &m[i], &rc)) {
            if (rc == 0) {
                flaw(w, "page %" G_GUINT64_FORMAT ": the file ends before it", i);
            }
            return rc;
        }
        if (!check_meta(w, i, &m[i])) {
            return 0;
        }
        at += m[i].record.free.page_bytes;
    }
    if (m[0].record.free.page_bytes != m[1].record.free.page_bytes) {
        flaw(w, "page 1: it says that pages have %u bytes, page 0 %u",
             m[1].record.free.page_bytes, m[0].record.free.page_bytes);
        return 0;
    }
    one = m[0].record.commit;
    two = m[1].record.commit;
    if (commit == UINT64_MAX && one != two && one + 1 != two && two + 1 != one) {
        flaw(w,
             "page 0: commit %" G_GUINT64_FORMAT
             " is not next to page 1's, %" G_GUINT64_FORMAT,
             one, two);
        return 0;
    }
    w->out->meta = m[commit == UINT64_MAX ? one < two : commit % 2].record;
    if (commit != UINT64_MAX && w->out->meta.commit != commit) {
        return -ESTALE;
    }
    w->out->page_bytes = w->out->meta.free.page_bytes;
    return 1;
}

static bool check_end(Walk *w)
{
    uint64_t pages = w->file_bytes / psize(w), last = w->out->meta.last_page;

    /* A few may be missing rightly: LMDB does not write those that a commit took and gave
     * back. */
    if (last < 1 || last > pages + pages / 7 + LOST_PAGES_SOME) {
        flaw(w,
             "page %" G_GUINT64_FORMAT ": the last page is %" G_GUINT64_FORMAT
             ", and the file has %" G_GUINT64_FORMAT,
             w->out->meta.commit % 2, last, pages);
        return false;
    }
    w->out->end_page = last + 1;
    return true;
}

/* ---- the whole --------------------------------------------------------------------- */

static bool take_memory(Walk *w)
{
    bool ok;

    w->out->used = g_try_malloc0(BITS_BYTES(w->out->end_page));
    w->is_free = g_try_malloc0(BITS_BYTES(w->out->end_page));
    w->lengths = g_try_new0(uint32_t, psize(w) / 2 + 1);
    ok = w->out->used != NULL && w->is_free != NULL && w->lengths != NULL;
    for (size_t i = 0; i < G_N_ELEMENTS(w->pages); i++) {
        w->pages[i] = g_try_malloc(psize(w));
        ok = ok && w->pages[i] != NULL;
    }
    return ok;
}

static void count_lost(Walk *w)
{
    VjLmdbWalk *out = w->out;
    uint64_t both = 0;

    for (uint64_t i = 0; i < out->end_page; i++) {
        bool is_used = vj_lmdb_bit(out->used, i), is_free = vj_lmdb_bit(w->is_free, i);

        both += is_used && is_free;
        out->lost_pages += !is_used && !is_free;
        if (is_used && is_free && both == 1) {
            flaw(w, "page %" G_GUINT64_FORMAT ": it is in use and among the free ones",
                 i);
        }
    }
    if (both > 1) {
        flaw(w, "%" G_GUINT64_FORMAT " pages are in use and among the free ones", both);
    }
    if (out->lost_pages > LOST_PAGES_SOME + out->end_page / LOST_PAGES_SHARE) {
        flaw(w,
             "%" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT
             " pages are neither in use nor free",
             out->lost_pages, out->end_page);
    }
}

static int walk_file(Walk *w, uint64_t commit)
{
    off_t end = lseek(w->fd, 0, SEEK_END);
    int rc;

    if (end < 0) {
        return -errno;
    }
    w->file_bytes = (uint64_t)end;
    rc = read_metas(w, commit);
    if (rc <= 0 || !check_end(w)) {
        return MIN(rc, 0);
    }
    if (!take_memory(w)) {
        return -ENOMEM;
    }
    set_bit(w->out->used, 0);
    set_bit(w->out->used, 1);
    w->out->used_pages = VJ_LMDB_META_PAGES;
    rc = walk_trees(w);
    if (rc == 0) {
        count_lost(w);
    }
    return rc;
}

int vj_lmdb_walk(int fd, uint64_t commit, VjMetaFlaw *say, VjLmdbWalkAsk *ask,
                 void *opaque, VjLmdbWalk *out)
{
    Walk w = {.fd = fd, .out = out, .say = say, .ask = ask, .opaque = opaque};
    int rc;

    memset(out, 0, sizeof *out);
    w.trees = g_array_new(FALSE, FALSE, sizeof(Tree));
    w.names = g_ptr_array_new_with_free_func(g_free);
    rc = walk_file(&w, commit);
    if (out->flaws > VJ_LMDB_FLAWS_LISTED && say != NULL) {
        g_autofree char *more = g_strdup_printf("and %" G_GUINT64_FORMAT " flaws more",
                                                out->flaws - VJ_LMDB_FLAWS_LISTED);

        say(opaque, more);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(w.pages); i++) {
        g_free(w.pages[i]);
    }
    g_free(w.lengths);
    g_free(w.is_free);
    g_ptr_array_unref(w.names);
    g_array_unref(w.trees);
    return rc;
}

void vj_lmdb_walk_clear(VjLmdbWalk *w)
{
    g_free(w->used);
    w->used = NULL;
}
