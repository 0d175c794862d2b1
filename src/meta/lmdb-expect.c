/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-expect.c - a space that is about to be read from end to end
 *
 * The leaves of a space lie among those of others.  LMDB waits for each that is not in
 * memory, and the kernel reads what is around it: mostly what nobody asked for.  Their
 * numbers stand in branch pages, of which there are few: these are read here, and all
 * leaves are asked for at once, in the order of the file.
 *
 * It is a hint.  The file may not have been examined, so no number is believed; what is
 * not as it should be ends it.
 */
#include <fcntl.h>

#include "meta/lmdb-page-format.h"
#include "meta/lmdb-private.h"

/* Leaves with so few pages between them are asked for together. */
#define GAP_PAGES 8u

typedef struct Expect {
    int fd;
    size_t page_bytes;
    uint64_t end_page;
    uint64_t branches_left; /* that may still be read */
    uint64_t most_leaves;
    GArray *leaves; /* of uint64_t */
} Expect;

static void ask(const Expect *e, uint64_t page, uint64_t count)
{
    vj_fd_read_ahead(e->fd, page * e->page_bytes, count * e->page_bytes);
}

/* *count: of its children. */
static bool read_branch(Expect *e, uint64_t number, uint8_t *page, size_t *count)
{
    VjLmdbPageHead head;

    if (e->branches_left == 0) {
        return false;
    }
    e->branches_left--;
    if (vj_fd_pread_all(e->fd, page, e->page_bytes, number * e->page_bytes) < 0) {
        return false;
    }
    memcpy(&head, page, sizeof head);
    if (head.number != number || head.flags != VJ_LMDB_BRANCH ||
        head.nodes.lower < VJ_LMDB_PAGE_HEAD || head.nodes.lower > e->page_bytes) {
        return false;
    }
    *count = (head.nodes.lower - VJ_LMDB_PAGE_HEAD) / 2u;
    return true;
}

static bool child_at(const Expect *e, const uint8_t *page, size_t i, uint64_t *out)
{
    VjLmdbNodeHead node;
    uint16_t at;

    memcpy(&at, page + VJ_LMDB_PAGE_HEAD + 2 * i, sizeof at);
    if (at > e->page_bytes - sizeof node) {
        return false;
    }
    memcpy(&node, page + at, sizeof node);
    *out = node.low | (uint64_t)node.high << 16 | (uint64_t)node.flags << 32;
    return *out >= VJ_LMDB_META_PAGES && *out < e->end_page;
}

/* @level: 1 is a leaf's.  Not deeper than VJ_LMDB_DEPTH_MAX. */
static bool collect(Expect *e, uint64_t number, unsigned level)
{
    g_autofree uint8_t *page = NULL;
    size_t count = 0;
    uint64_t child;

    if (level == 1) {
        g_array_append_val(e->leaves, number);
        return e->leaves->len < e->most_leaves;
    }
    page = g_try_malloc(e->page_bytes);
    if (page == NULL || !read_branch(e, number, page, &count)) {
        return false;
    }
    for (size_t i = 0; level > 2 && i < count && child_at(e, page, i, &child); i++) {
        ask(e, child, 1);
    }
    for (size_t i = 0; i < count; i++) {
        if (!child_at(e, page, i, &child) || !collect(e, child, level - 1)) {
            return false;
        }
    }
    return true;
}

static gint by_number(gconstpointer a, gconstpointer b)
{
    const uint64_t *first = a, *second = b;

    return (*first > *second) - (*first < *second);
}

static void ask_for_leaves(const Expect *e)
{
    uint64_t first = 0, end = 0;

    g_array_sort(e->leaves, by_number);
    for (guint i = 0; i < e->leaves->len; i++) {
        uint64_t page = g_array_index(e->leaves, uint64_t, i);

        if (i > 0 && page <= end + GAP_PAGES) {
            end = page + 1;
            continue;
        }
        if (i > 0) {
            ask(e, first, end - first);
        }
        first = page;
        end = page + 1;
    }
    if (e->leaves->len > 0) {
        ask(e, first, end - first);
    }
}

/* The tree of @space, and where the file ends; false: nothing is known of it. */
static bool find_tree(VjLmdb *d, VjSpace space, VjLmdbTreeRecord *tree,
                      uint64_t *end_page)
{
    char name[8];
    MDB_val key = {.mv_data = (void *)vj_lmdb_space_name(space, name)};
    bool is_found = false;
    MDB_envinfo info;
    MDB_val value;
    MDB_txn *txn;

    key.mv_size = strlen(name);
    if (mdb_env_info(d->env, &info) != 0 ||
        mdb_txn_begin(d->env, NULL, MDB_RDONLY, &txn) != 0) {
        return false;
    }
    if (mdb_get(txn, d->unnamed, &key, &value) == 0 && value.mv_size == sizeof *tree) {
        memcpy(tree, value.mv_data, sizeof *tree);
        is_found = true;
    }
    mdb_txn_abort(txn);
    *end_page = (uint64_t)info.me_last_pgno + 1;
    return is_found;
}

uint64_t vj_lmdb_expect(VjLmdb *d, VjSpace space)
{
    Expect e = {.page_bytes = d->page_bytes};
    VJ_AUTO_FD fd = -1;
    VjLmdbTreeRecord tree;
    uint64_t asked = 0;

    if (!find_tree(d, space, &tree, &e.end_page) || tree.depth == 0 ||
        tree.depth > VJ_LMDB_DEPTH_MAX || tree.root < VJ_LMDB_META_PAGES ||
        tree.root >= e.end_page || tree.leaf_pages > e.end_page ||
        !vj_lmdb_fits_memory(tree.leaf_pages * d->page_bytes)) {
        return 0;
    }
    /* Of its own, for which nothing is read ahead. */
    fd = vj_lmdb_open_own(d);
    if (fd < 0) {
        return 0;
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    e.fd = fd;
    e.branches_left = MIN(tree.branch_pages, e.end_page);
    e.most_leaves = tree.leaf_pages;
    e.leaves = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    (void)collect(&e, tree.root, tree.depth);
    ask_for_leaves(&e);
    asked = e.leaves->len;
    g_array_unref(e.leaves);
    return asked;
}
