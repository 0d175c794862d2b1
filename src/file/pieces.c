/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * pieces.c - the edit buffer as a treap ordered by position
 *
 * Each node knows the sum of the lengths below it; positions are sums, never stored, so
 * nothing behind an edit is touched.  Priorities are random: the expected depth is
 * logarithmic whatever the order of edits, and recursion follows it.
 */
#include "file/pieces-private.h"

typedef struct Node {
    VjPiece piece;
    uint64_t sum; /* bytes of this piece and of both subtrees */
    uint64_t priority;
    struct Node *left, *right;
} Node;

struct VjPieces {
    Node *root;
    VjBudget *budget;
    VjObjects *objects;
    VjRng rng;
    uint64_t base_bytes; /* at birth */
    uint64_t memory_bytes;
    size_t count;
};

/* Blocks stand apart from what describes them, so that they can be kept (budget.c). */
VjMem *vj_mem_new(VjBudget *budget, size_t cap)
{
    bool is_block = cap == VJ_BUDGET_BLOCK;
    VjMem *m = g_try_malloc(is_block ? sizeof *m : sizeof *m + cap);

    if (m == NULL) {
        return NULL;
    }
    *m = (VjMem){.refs = 1, .cap = cap, .budget = budget, .data = (uint8_t *)(m + 1)};
    if (is_block) {
        m->data = m->block = vj_budget_take_block(budget);
        if (m->block == NULL) {
            g_free(m);
            return NULL;
        }
    }
    vj_budget_charge(budget, cap + sizeof *m);
    return m;
}

VjMem *vj_mem_new_from(VjBudget *budget, void *block, const void *data, size_t len)
{
    size_t skip = (size_t)((const uint8_t *)data - (uint8_t *)block);
    VjMem *m = g_try_malloc(sizeof *m);

    g_assert(skip <= VJ_BUDGET_BLOCK_ALLOCATED - VJ_BUDGET_BLOCK &&
             len <= VJ_BUDGET_BLOCK);
    if (m == NULL) {
        return NULL;
    }
    /* It counts whole; a write that goes on behind @len may fill the rest. */
    *m = (VjMem){.refs = 1,
                 .cap = VJ_BUDGET_BLOCK,
                 .budget = budget,
                 .data = (uint8_t *)block + skip,
                 .block = block,
                 .len = len};
    vj_budget_charge(budget, m->cap + sizeof *m);
    return m;
}

VjMem *vj_mem_ref(VjMem *m)
{
    g_atomic_int_inc(&m->refs);
    return m;
}

void vj_mem_unref(VjMem *m)
{
    if (m != NULL && g_atomic_int_dec_and_test(&m->refs)) {
        vj_budget_release(m->budget, m->cap + sizeof *m);
        if (m->block != NULL) {
            vj_budget_give_block(m->budget, m->block);
        }
        g_free(m);
    }
}

static uint64_t sum_of(const Node *n)
{
    return n != NULL ? n->sum : 0;
}

static void node_update(Node *n)
{
    n->sum = sum_of(n->left) + n->piece.length + sum_of(n->right);
}

static Node *node_new(VjPieces *p, const VjPiece *piece)
{
    Node *n = g_new0(Node, 1);

    g_assert(piece->length > 0);
    n->piece = *piece;
    n->sum = piece->length;
    n->priority = vj_rng_u64(&p->rng);
    if (piece->kind == VJ_PIECE_MEMORY) {
        vj_mem_ref(piece->mem);
        p->memory_bytes += piece->length;
    } else if (piece->kind == VJ_PIECE_OBJECT) {
        vj_object_pin(p->objects, piece->object);
    }
    p->count++;
    return n;
}

static void node_free(VjPieces *p, Node *n)
{
    if (n->piece.kind == VJ_PIECE_MEMORY) {
        p->memory_bytes -= n->piece.length;
        vj_mem_unref(n->piece.mem);
    } else if (n->piece.kind == VJ_PIECE_OBJECT) {
        vj_object_unpin(p->objects, n->piece.object);
    }
    p->count--;
    g_free(n);
}

static void tree_free(VjPieces *p, Node *n)
{
    if (n != NULL) {
        tree_free(p, n->left);
        tree_free(p, n->right);
        node_free(p, n);
    }
}

static Node *join(Node *left, Node *right)
{
    if (left == NULL || right == NULL) {
        return left != NULL ? left : right;
    }
    if (left->priority > right->priority) {
        left->right = join(left->right, right);
        node_update(left);
        return left;
    }
    right->left = join(left, right->left);
    node_update(right);
    return right;
}

/* The part of @n's piece behind its first @keep bytes, as a node of its own. */
static Node *node_cut(VjPieces *p, Node *n, uint64_t keep)
{
    VjPiece rest = n->piece;
    uint64_t cut = n->piece.length - keep;

    rest.length = cut;
    if (rest.kind != VJ_PIECE_HOLE) {
        rest.start += keep;
    }
    if (n->piece.kind == VJ_PIECE_MEMORY) {
        p->memory_bytes -= cut; /* node_new counts it again */
    }
    n->piece.length = keep;
    return node_new(p, &rest);
}

/* Everything before @offset goes to @left, the rest to @right. */
static void split(VjPieces *p, Node *n, uint64_t offset, Node **left, Node **right)
{
    uint64_t before;

    if (n == NULL) {
        *left = *right = NULL;
        return;
    }
    before = sum_of(n->left);
    if (offset <= before) {
        Node *rest;

        split(p, n->left, offset, left, &rest);
        n->left = rest;
        node_update(n);
        *right = n;
    } else if (offset >= before + n->piece.length) {
        Node *rest;

        split(p, n->right, offset - before - n->piece.length, &rest, right);
        n->right = rest;
        node_update(n);
        *left = n;
    } else {
        Node *behind = n->right;
        Node *tail = node_cut(p, n, offset - before);

        n->right = NULL;
        node_update(n);
        *left = n;
        *right = join(tail, behind);
    }
}

/* Nodes that are charged: a file that is open and not changed has one, which is not. */
static size_t charged(size_t count)
{
    return count > 0 ? count - 1 : 0;
}

/* Charges or releases what the number of nodes changed by. */
static void account(VjPieces *p, size_t count_before)
{
    size_t before = charged(count_before), now = charged(p->count);

    if (now > before) {
        vj_budget_charge(p->budget, (now - before) * sizeof(Node));
    } else if (now < before) {
        vj_budget_release(p->budget, (before - now) * sizeof(Node));
    }
}

VjPieces *vj_pieces_new(VjBudget *budget, VjObjects *objects, uint64_t base_bytes)
{
    VjPieces *p = g_new0(VjPieces, 1);

    p->budget = budget;
    p->objects = objects;
    p->base_bytes = base_bytes;
    vj_rng_init(&p->rng, vj_random_u64());
    if (base_bytes > 0) {
        VjPiece base = {.kind = VJ_PIECE_BASE, .length = base_bytes};

        p->root = node_new(p, &base);
    }
    account(p, 0);
    return p;
}

void vj_pieces_free(VjPieces *p)
{
    size_t before;

    if (p == NULL) {
        return;
    }
    before = p->count;
    tree_free(p, p->root);
    g_assert(p->count == 0 && p->memory_bytes == 0);
    account(p, before);
    g_free(p);
}

uint64_t vj_pieces_length(const VjPieces *p)
{
    return sum_of(p->root);
}

size_t vj_pieces_count(const VjPieces *p)
{
    return p->count;
}

uint64_t vj_pieces_memory_bytes(const VjPieces *p)
{
    return p->memory_bytes;
}

bool vj_pieces_is_identity(const VjPieces *p)
{
    if (p->root == NULL) {
        return p->base_bytes == 0;
    }
    return p->count == 1 && p->root->piece.kind == VJ_PIECE_BASE &&
           p->root->piece.start == 0 && p->root->piece.length == p->base_bytes;
}

void vj_pieces_replace(VjPieces *p, uint64_t offset, uint64_t old_len,
                       const VjPiece *pieces, size_t count)
{
    Node *left, *middle, *right;
    size_t before = p->count;

    g_assert(offset <= sum_of(p->root) && old_len <= sum_of(p->root) - offset);
    split(p, p->root, offset, &left, &right);
    split(p, right, old_len, &middle, &right);
    for (size_t i = 0; i < count; i++) {
        left = join(left, node_new(p, &pieces[i]));
    }
    /* Freed after the new ones were made: what both name stays. */
    tree_free(p, middle);
    p->root = join(left, right);
    account(p, before);
}

/* Adds @len to the last piece of @n, updating the sums on the way. */
static void extend_last(Node *n, uint64_t len)
{
    for (; n->right != NULL; n = n->right) {
        n->sum += len;
    }
    n->sum += len;
    n->piece.length += len;
}

bool vj_pieces_extend_memory(VjPieces *p, uint64_t offset, uint64_t over, VjMem *mem,
                             size_t len)
{
    Node *left, *middle, *right;
    size_t before = p->count;
    VjPiece last;

    g_assert(offset <= sum_of(p->root) && over <= sum_of(p->root) - offset);
    if (!vj_pieces_before(p, offset, &last) || last.kind != VJ_PIECE_MEMORY ||
        last.mem != mem || last.start + last.length != mem->len) {
        return false;
    }
    g_assert(len <= mem->cap - mem->len);
    split(p, p->root, offset, &left, &right);
    split(p, right, over, &middle, &right);
    extend_last(left, len);
    p->memory_bytes += len;
    mem->len += len;
    tree_free(p, middle);
    p->root = join(left, right);
    account(p, before);
    return true;
}

bool vj_pieces_before(const VjPieces *p, uint64_t offset, VjPiece *out)
{
    const Node *n = p->root;
    uint64_t want = offset - 1;

    if (offset == 0 || offset > sum_of(n)) {
        return false;
    }
    for (;;) {
        uint64_t before = sum_of(n->left);

        if (want < before) {
            n = n->left;
        } else if (want < before + n->piece.length) {
            *out = n->piece;
            out->length = want - before + 1;
            return true;
        } else {
            want -= before + n->piece.length;
            n = n->right;
        }
    }
}

typedef struct Visit {
    uint64_t from, to; /* of the sequence */
    VjPieceVisit *visit;
    void *opaque;
} Visit;

/* @at: position of the first byte below @n.  false: stopped. */
static bool visit_tree(const Visit *v, const Node *n, uint64_t at)
{
    uint64_t start, end;

    if (n == NULL || at >= v->to || at + n->sum <= v->from) {
        return true;
    }
    if (!visit_tree(v, n->left, at)) {
        return false;
    }
    start = at + sum_of(n->left);
    end = start + n->piece.length;
    if (start < v->to && end > v->from) {
        VjPiece piece = n->piece;
        uint64_t skip = v->from > start ? v->from - start : 0;

        piece.length = MIN(end, v->to) - start - skip;
        if (piece.kind != VJ_PIECE_HOLE) {
            piece.start += skip;
        }
        if (!v->visit(v->opaque, &piece, start + skip)) {
            return false;
        }
    }
    return visit_tree(v, n->right, end);
}

void vj_pieces_visit(const VjPieces *p, uint64_t offset, uint64_t len,
                     VjPieceVisit *visit, void *opaque)
{
    uint64_t total = sum_of(p->root);
    Visit v = {.from = offset, .visit = visit, .opaque = opaque};

    if (offset < total) {
        v.to = offset + MIN(len, total - offset);
        visit_tree(&v, p->root, 0);
    }
}
