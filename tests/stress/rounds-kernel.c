/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rounds-kernel.c - what the kernel's FUSE client does to a file by itself
 *
 * Each fault is a rule: which operations have to overlap in time, and where, and what
 * becomes of which bytes (README.md has the table, and where each was seen).  What is
 * wrong in a round is the kernel's if some order explains all of it but for these
 * bytes, and these are what the rule says.  In a round with an edit only KERNEL_GROWTH
 * is: what else is wrong there is ours.
 */
#include "rounds.h"

const char *const kernel_fault_names[KERNEL_FAULTS] = {
    [KERNEL_APPEND] = "append to a dirty page that is written back",
    [KERNEL_COPY] = "copy_file_range to a page that is stored into",
    [KERNEL_PUNCH] = "punch of a page that is stored into and written back",
    [KERNEL_DIRECT] = "direct write to a page that is stored into",
    [KERNEL_GROWTH] =
        "a cached read beside a direct write or an edit that makes the file longer"};

static bool overlap(const Op *a, const Op *b)
{
    return a->called_ns <= b->returned_ns && b->called_ns <= a->returned_ns;
}

static uint64_t page_start(uint64_t at)
{
    return at / ROUND_PAGE * ROUND_PAGE;
}

static bool has_edit(const Round *round)
{
    for (unsigned i = 0; i < round->op_count; i++) {
        const Op *op = &round->ops[i];

        if (op_classes[op->kind].edits && !op_is_write(op)) {
            return true;
        }
    }
    return false;
}

static bool stores_into(const Op *op, uint64_t page)
{
    return op->kind == OP_STORE && !op->bus_error && page_start(op->offset) == page;
}

/* Without the lock of the inode; fsync(2) and msync(2) take it. */
static bool writes_back(const Op *op, uint64_t page)
{
    return op->kind == OP_DROP || op->kind == OP_REOPEN ||
           (op->kind == OP_READ && op->direct && page < op->offset + op->len &&
            op->offset < page + ROUND_PAGE);
}

static bool is_written_back_beside(const Round *round, const Op *beside, uint64_t page)
{
    for (unsigned i = 0; i < round->op_count; i++) {
        if (writes_back(&round->ops[i], page) && overlap(&round->ops[i], beside)) {
            return true;
        }
    }
    return false;
}

static bool may_be_dirty(const Round *round, const Op *beside, uint64_t page)
{
    bool dirty = round->is_dirty && page_start(round->dirty_at) == page;

    for (unsigned i = 0; i < round->op_count; i++) {
        dirty |= stores_into(&round->ops[i], page) &&
                 round->ops[i].called_ns <= beside->returned_ns;
    }
    return dirty;
}

static bool is_direct_write(const Op *op)
{
    return op_is_write(op) && op->direct;
}

static bool is_growing_edit(const Op *op)
{
    return op_classes[op->kind].edits && !op_is_write(op) &&
           op->result > (int64_t)op->old_len;
}

/* ---- zeroes behind an end that the kernel believes in for too long */

typedef struct Growth {
    const Round *round;
    const Op *look; /* KERNEL_GROWTH: what reads */
    Damage *damage;
} Growth;

/* Of a write, or of an edit that makes the file longer. */
static uint64_t end_behind(const Op *op, uint64_t size)
{
    if (op_classes[op->kind].edits && !op_is_write(op)) {
        return op->result < 0 ? size : size + (uint64_t)op->result - op->old_len;
    }
    return op->result <= 0
               ? size
               : (op->kind == OP_APPEND ? size : op->offset) + (uint64_t)op->result;
}

/* What @op brings into the page of the end, when it makes a file of @size longer. */
static void zero_end_page(Damage *damage, const Op *op, uint64_t size)
{
    uint64_t end = MIN(end_behind(op, size), page_end(size));

    if (end > size) {
        memset(damage->zeroed + size, true, end - size);
    }
}

/*
 * write(2) brings bytes into the cached page of the end, and lets go of it; then the
 * page is written back before the kernel has taken the new size: it is cleared behind
 * the old one, in the cache and, if the write's own request has not been read yet, in
 * that.
 */
static void damage_appends(void *opaque, const Content *c, unsigned done)
{
    const Growth *g = opaque;
    uint64_t page = page_start(c->size);

    for (unsigned i = 0; i < g->round->op_count; i++) {
        const Op *op = &g->round->ops[i];

        if ((done & 1u << i) == 0 && op_is_write(op) && !op->direct &&
            may_be_dirty(g->round, op, page) &&
            is_written_back_beside(g->round, op, page)) {
            zero_end_page(g->damage, op, c->size);
        }
    }
}

/*
 * A reader has brought the page of the end, zeroes behind it, and looks at the size
 * when the page is there.  If it loses the processor in between, that may be the new one,
 * though the page is the old one, and may have been dropped by now.
 */
static void damage_growth(void *opaque, const Content *c, unsigned done)
{
    const Growth *g = opaque;

    for (unsigned i = 0; i < g->round->op_count; i++) {
        const Op *op = &g->round->ops[i];

        if ((done & 1u << i) == 0 && (is_direct_write(op) || is_growing_edit(op)) &&
            overlap(op, g->look)) {
            zero_end_page(g->damage, op, c->size);
        }
    }
}

/* ---- pages that are written back as they were, or dropped with what was stored */

static bool punches(const Op *op)
{
    return op->kind == OP_PUNCH || op->kind == OP_ZERO || op->kind == OP_ZERO_KEEP;
}

static bool copies(const Op *op)
{
    return op->kind == OP_COPY || op->kind == OP_COPY_SELF;
}

/* What an operation does past the cache: [@from, @to) of the file. */
static void changed_range(const Op *op, uint64_t *from, uint64_t *to)
{
    uint64_t len = punches(op) ? op->len : (uint64_t)op->result;

    *from = op->kind == OP_APPEND ? (uint64_t)op->position - len : op->offset;
    *to = *from + len;
}

/* Whether what was stored goes with the page: of a punch, where the hole is to be. */
static bool takes_store(const Op *op, const Op *store)
{
    return !punches(op) || (op->offset <= store->offset &&
                            store->offset + store->len <= op->offset + op->len);
}

/*
 * The kernel writes dirty pages back, sends the request, and takes the pages out of the
 * cache. What is stored into one of them in between is lost with the page; or the page
 * is written back once more, as it was before.
 */
static void damage_undone(const Round *round, bool (*is_one)(const Op *op),
                          bool written_back, Damage *damage)
{
    for (unsigned i = 0; i < round->op_count; i++) {
        const Op *op = &round->ops[i];
        uint64_t from, to;

        if (!is_one(op) || op->result < 0) {
            continue;
        }
        changed_range(op, &from, &to);
        for (unsigned j = 0; j < round->op_count; j++) {
            const Op *store = &round->ops[j];
            uint64_t page = page_start(store->offset);

            if (stores_into(store, page) && overlap(store, op) &&
                from < page + ROUND_PAGE && to > page &&
                (!written_back || is_written_back_beside(round, op, page))) {
                memset(damage->undone + page, true, ROUND_PAGE);
                damage->undoes |= 1u << i | (takes_store(op, store) ? 1u << j : 0);
            }
        }
    }
}

static void spread_copy(const Op *op, Damage *damage)
{
    for (int64_t i = 0; i < op->result; i++) {
        damage->zeroed[op->offset + (uint64_t)i] |=
            damage->zeroed[op->source + (uint64_t)i];
        damage->undone[op->offset + (uint64_t)i] |=
            damage->undone[op->source + (uint64_t)i];
    }
}

/* copy_file_range within the file takes along what is wrong, and the next one that too.
 * */
static void spread(const Round *round, Damage *damage)
{
    for (unsigned pass = 0; pass < round->op_count; pass++) {
        for (unsigned i = 0; i < round->op_count; i++) {
            if (round->ops[i].kind == OP_COPY_SELF) {
                spread_copy(&round->ops[i], damage);
            }
        }
    }
}

/* ---- which fault it is */

static void add_damage(const Round *round, KernelFault fault, const Op *look,
                       Damage *damage)
{
    Growth growth = {.round = round, .look = look, .damage = damage};

    switch (fault) {
    case KERNEL_APPEND:
        round_visit(round, 0, damage_appends, &growth);
        break;
    case KERNEL_COPY:
        damage_undone(round, copies, false, damage);
        break;
    case KERNEL_PUNCH:
        damage_undone(round, punches, true, damage);
        break;
    case KERNEL_DIRECT:
        damage_undone(round, is_direct_write, false, damage);
        break;
    case KERNEL_GROWTH:
        if (look != NULL && !look->direct) {
            round_visit(round, 0, damage_growth, &growth);
        }
        break;
    default:
        break;
    }
}

static void make_damage(const Round *round, KernelFault fault, const Op *look,
                        Damage *damage)
{
    memset(damage, 0, sizeof *damage);
    add_damage(round, fault, look, damage);
    spread(round, damage);
}

/* The first fault whose damage @explains. */
static KernelFault find_fault(const Round *round, const Op *look,
                              bool (*explains)(const void *opaque, const Damage *damage),
                              const void *opaque)
{
    static Damage damage;

    for (unsigned fault = KERNEL_NONE + 1; fault < KERNEL_FAULTS; fault++) {
        if (fault != KERNEL_GROWTH && has_edit(round)) {
            continue;
        }
        make_damage(round, (KernelFault)fault, look, &damage);
        if (explains(opaque, &damage)) {
            return (KernelFault)fault;
        }
    }
    return KERNEL_NONE;
}

typedef struct Wrong {
    const Round *round;
    const Content *seen;
    const Content *truth;
    unsigned index;
} Wrong;

static bool explains_content(const void *opaque, const Damage *damage)
{
    const Wrong *w = opaque;

    return round_is_right_but(w->round, w->seen, damage);
}

static bool explains_view(const void *opaque, const Damage *damage)
{
    const Wrong *w = opaque;
    static bool excused[FILE_BYTES];
    bool differs = false;

    if (w->seen->size != w->truth->size) {
        return false;
    }
    round_excuse(w->round, w->seen, damage, excused);
    for (uint64_t i = 0; i < w->truth->size; i++) {
        if (w->seen->bytes[i] != w->truth->bytes[i]) {
            differs = true;
            if (!excused[i]) {
                return false;
            }
        }
    }
    return differs;
}

static bool explains_look(const void *opaque, const Damage *damage)
{
    const Wrong *w = opaque;

    return round_judge_look(w->round, w->index, damage) == READ_RIGHT;
}

KernelFault round_kernel_fault(const Round *round, const Content *seen)
{
    Wrong wrong = {.round = round, .seen = seen};

    return find_fault(round, NULL, explains_content, &wrong);
}

KernelFault round_kernel_fault_of_view(const Round *round, const Content *view,
                                       const Content *truth)
{
    Wrong wrong = {.round = round, .seen = view, .truth = truth};

    return find_fault(round, NULL, explains_view, &wrong);
}

KernelFault round_kernel_fault_of_look(const Round *round, unsigned index)
{
    Wrong wrong = {.round = round, .index = index};

    return find_fault(round, &round->ops[index], explains_look, &wrong);
}
