/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rounds-check.c - which results a round may have
 *
 * All orders are tried, 24 at most.  Each operation is one step, also a write over
 * several pages: edits, writes, appends and changes of size take the kernel's lock of the
 * inode.  A store through a mapping is one step too, since it is one instruction.  If it
 * meets the last page behind the end, it is gone or comes to light when the file grows:
 * both are right, since mmap(2) promises nothing there.
 */
#include "rounds.h"

/* The content while an order is tried; one for each depth. */
typedef struct Search {
    const Round *round;
    const Content *seen; /* NULL: states are visited, and none is compared */
    bool check_results, check_positions;
    bool found;
    Nearest *nearest;
    unsigned before[ROUND_OPS]; /* bits: which have to come before */
    unsigned order[ROUND_OPS];
    unsigned left_out;   /* bits: not part of the order */
    const bool *excused; /* bytes that may be wrong; NULL: none */
    RoundVisit *visit;
    void *opaque;
    Content contents[ROUND_OPS + 1];
} Search;

static void content_copy(Content *dst, const Content *src)
{
    uint64_t bytes = MIN(page_end(src->size), FILE_BYTES);

    /* What is behind the last page is zero in both. */
    if (page_end(dst->size) > bytes) {
        memset(dst->bytes + bytes, 0, page_end(dst->size) - bytes);
    }
    dst->size = src->size;
    memcpy(dst->bytes, src->bytes, bytes);
}

static void content_resize(Content *c, uint64_t size)
{
    if (size < c->size) {
        memset(c->bytes + size, 0, page_end(c->size) - size);
    }
    c->size = size;
}

static void content_write(Content *c, uint64_t offset, const uint8_t *src, uint64_t len)
{
    g_assert(offset + len <= FILE_BYTES);
    if (len > 0) {
        memcpy(c->bytes + offset, src, len);
        c->size = MAX(c->size, offset + len);
    }
}

static void content_zero(Content *c, uint64_t offset, uint64_t len, bool may_grow)
{
    uint64_t end = offset + len;

    if (may_grow && end > c->size) {
        g_assert(end <= FILE_BYTES);
        c->size = end;
    }
    if (offset < c->size) {
        memset(c->bytes + offset, 0, MIN(end, c->size) - offset);
    }
}

static void content_replace(Content *c, uint64_t offset, uint64_t old_len,
                            const uint8_t *src, uint64_t len)
{
    uint64_t tail;

    if (offset >= c->size) {
        content_write(c, offset, src, len);
        return;
    }
    old_len = MIN(old_len, c->size - offset);
    tail = c->size - offset - old_len;
    g_assert(c->size - old_len + len <= FILE_BYTES);
    memmove(c->bytes + offset + len, c->bytes + offset + old_len, tail);
    memcpy(c->bytes + offset, src, len);
    if (len < old_len) {
        content_resize(c, c->size - old_len + len);
    } else {
        c->size += len - old_len;
    }
}

static bool cuts_off(const Op *op)
{
    return op->kind == OP_TRUNCATE ||
           (op_classes[op->kind].edits && op->old_len > op->len);
}

/* Has something come before @depth that takes pages away from under @store? */
static bool was_cut_off(const Search *s, unsigned depth, const Op *store)
{
    for (unsigned i = 0; i < depth; i++) {
        const Op *op = &s->round->ops[s->order[i]];

        if (cuts_off(op) && op->returned_ns >= store->called_ns) {
            return true;
        }
    }
    return false;
}

/*
 * @reveals: what is stored behind the end comes to light later.  False: not possible
 * here.  The kernel takes pages that are cut off one by one: what is stored there
 * meanwhile is gone.
 */
static bool apply_store(const Search *s, unsigned depth, Content *c, const Op *op,
                        bool reveals)
{
    uint64_t page = op->offset / ROUND_PAGE * ROUND_PAGE;
    uint64_t len = op->len;

    if (op->bus_error) {
        return page >= c->size;
    }
    if (page >= c->size) {
        return was_cut_off(s, depth, op);
    }
    if (!reveals) {
        len = op->offset >= c->size ? 0 : MIN(len, c->size - op->offset);
    }
    memcpy(c->bytes + op->offset, op->bytes, len);
    return true;
}

static void apply_copy_self(Content *c, const Op *op)
{
    uint8_t bytes[OP_BYTES];
    uint64_t len = (uint64_t)op->result; /* fewer than asked is allowed */

    memcpy(bytes, c->bytes + op->source, len);
    content_write(c, op->offset, bytes, len);
}

static bool read_is_exact(const Content *c, const Op *op)
{
    uint64_t len = op->offset >= c->size ? 0 : MIN(op->len, c->size - op->offset);

    return op->result == (int64_t)len &&
           memcmp(op->bytes, c->bytes + op->offset, len) == 0;
}

static bool result_is_right(const Content *after, const Op *op)
{
    switch (op->kind) {
    case OP_COPY_SELF:
        return op->result == 0 || op->source + (uint64_t)op->result <= after->size;
    case OP_WRITE:
    case OP_APPEND:
    case OP_INSERT:
    case OP_REPLACE:
    case OP_APPEND_EDIT:
        return op->result == (int64_t)op->len;
    default:
        return true;
    }
}

/* False: the operation cannot have seen what it saw. */
static bool apply(Search *s, unsigned depth, const Op *op, bool reveals)
{
    Content *c = &s->contents[depth + 1];

    switch (op->kind) {
    case OP_WRITE:
    case OP_COPY:
        content_write(c, op->offset, op->bytes, (uint64_t)op->result);
        break;
    case OP_APPEND:
        content_write(c, c->size, op->bytes, (uint64_t)op->result);
        break;
    case OP_INSERT:
    case OP_DELETE:
    case OP_REPLACE:
        content_replace(c, op->offset, op->old_len, op->bytes, op->len);
        break;
    case OP_APPEND_EDIT:
        content_replace(c, c->size, 0, op->bytes, op->len);
        break;
    case OP_TRUNCATE:
        content_resize(c, op->offset);
        break;
    case OP_PUNCH:
    case OP_ZERO_KEEP:
        content_zero(c, op->offset, op->len, false);
        break;
    case OP_ZERO:
        content_zero(c, op->offset, op->len, true);
        break;
    case OP_ALLOCATE:
        c->size = MAX(c->size, op->offset + op->len);
        break;
    case OP_STORE:
        if (!apply_store(s, depth, c, op, reveals) && s->check_results) {
            return false;
        }
        break;
    case OP_COPY_SELF:
        apply_copy_self(c, op);
        break;
    case OP_READ:
        if (s->check_results && !read_is_exact(c, op)) {
            return false;
        }
        break;
    default:
        break;
    }
    if (s->check_positions && op->position >= 0 && (uint64_t)op->position != c->size) {
        return false;
    }
    return !s->check_results || result_is_right(c, op);
}

static uint64_t content_difference(const Content *a, const Content *b)
{
    uint64_t least = MIN(a->size, b->size), most = MAX(a->size, b->size);
    uint64_t different = most > least ? FILE_BYTES + most - least : 0;

    for (uint64_t i = 0; i < least; i++) {
        different += a->bytes[i] != b->bytes[i];
    }
    return different;
}

static bool is_what_was_seen(const Search *s, const Content *c)
{
    const Content *seen = s->seen;

    if (c->size != seen->size || s->excused == NULL) {
        return c->size == seen->size && memcmp(c->bytes, seen->bytes, c->size) == 0;
    }
    for (uint64_t i = 0; i < c->size; i++) {
        if (c->bytes[i] != seen->bytes[i] && !s->excused[i]) {
            return false;
        }
    }
    return true;
}

static void compare(Search *s, const Content *c, unsigned depth)
{
    uint64_t different;

    if (is_what_was_seen(s, c)) {
        s->found = true;
    } else if (s->nearest != NULL) {
        different = content_difference(c, s->seen);
        s->nearest->size_is_possible |= c->size == s->seen->size;
        if (different < s->nearest->different) {
            s->nearest->different = different;
            s->nearest->content = *c;
            memcpy(s->nearest->order, s->order, sizeof s->order);
            if (depth < ROUND_OPS) {
                s->nearest->order[depth] = ROUND_OPS;
            }
        }
    }
}

static void search(Search *s, unsigned done, unsigned depth);

static void search_with(Search *s, unsigned done, unsigned depth, unsigned index)
{
    const Op *op = &s->round->ops[index];
    unsigned variants = op->kind == OP_STORE && !op->bus_error ? 2 : 1;

    s->order[depth] = index;
    for (unsigned i = 0; i < variants && !s->found; i++) {
        content_copy(&s->contents[depth + 1], &s->contents[depth]);
        if (apply(s, depth, op, i == 1)) {
            search(s, done | 1u << index, depth + 1);
        }
        if (op->offset + op->len <= s->contents[depth].size) {
            break; /* nothing of a store is behind the end */
        }
    }
}

static void search(Search *s, unsigned done, unsigned depth)
{
    unsigned all = (1u << s->round->op_count) - 1;

    if (s->visit != NULL) {
        s->visit(s->opaque, &s->contents[depth], done | s->left_out);
    }
    if ((done | s->left_out) == all) {
        if (s->seen != NULL) {
            compare(s, &s->contents[depth], depth);
        }
        return;
    }
    for (unsigned i = 0; i < s->round->op_count && !s->found; i++) {
        if (((done | s->left_out) & 1u << i) == 0 &&
            (s->before[i] & ~(done | s->left_out)) == 0) {
            search_with(s, done, depth, i);
        }
    }
}

bool op_is_write(const Op *op)
{
    return op->kind == OP_WRITE || op->kind == OP_APPEND ||
           (op->kind == OP_REPLACE && op->old_len == op->len);
}

bool round_stores(const Round *round)
{
    for (unsigned i = 0; i < round->op_count; i++) {
        if (round->ops[i].kind == OP_STORE) {
            return true;
        }
    }
    return false;
}

/* The kernel sends writes through the cache and dirty pages in parts, and a read in
 * between. */
static bool is_in_parts(const Op *op)
{
    return op->kind == OP_STORE || (op_is_write(op) && !op->direct);
}

/* On a descriptor that may write, what lies behind the end that the kernel knows is read
 * apart. */
static bool read_is_of_one_moment(const Round *round, const Op *op)
{
    bool exact = op->kind == OP_READ && op->direct && op->variant && round->exact_reads;

    for (unsigned i = 0; i < round->op_count; i++) {
        exact &= !is_in_parts(&round->ops[i]);
    }
    return exact;
}

static bool has_a_place(const Round *round, const Op *op)
{
    return op->result >= 0 &&
           (op_classes[op->kind].changes || read_is_of_one_moment(round, op));
}

/* @without: operations (bits) that have not happened. */
static Search *search_new(const Round *round, unsigned without)
{
    static Search *kept;
    Search *s = kept;

    if (s == NULL) {
        s = kept = g_new0(Search, 1);
    }
    s->round = round;
    s->seen = NULL;
    s->excused = NULL;
    s->nearest = NULL;
    s->visit = NULL;
    s->found = false;
    s->check_results = s->check_positions = false;
    s->left_out = without;
    for (unsigned i = 0; i < round->op_count; i++) {
        s->before[i] = 0;
        for (unsigned j = 0; j < round->op_count; j++) {
            if (round->ops[j].returned_ns < round->ops[i].called_ns) {
                s->before[i] |= 1u << j;
            }
        }
        if (!has_a_place(round, &round->ops[i])) {
            s->left_out |= 1u << i;
        }
    }
    content_copy(&s->contents[0], &round->before);
    return s;
}

static bool is_possible(Search *s, const Content *seen, bool results, bool positions,
                        Nearest *nearest)
{
    s->seen = seen;
    s->check_results = results;
    s->check_positions = positions;
    s->nearest = nearest;
    s->found = false;
    search(s, 0, 0);
    return s->found;
}

Verdict round_judge(const Round *round, const Content *seen, Nearest *nearest)
{
    Search *s = search_new(round, 0);

    if (is_possible(s, seen, true, true, NULL)) {
        return VERDICT_RIGHT;
    }
    if (is_possible(s, seen, true, false, NULL)) {
        return VERDICT_POSITION;
    }
    if (nearest != NULL) {
        nearest->different = UINT64_MAX;
        nearest->size_is_possible = false;
    }
    return is_possible(s, seen, false, false, nearest) ? VERDICT_RESULT : VERDICT_WRONG;
}

void round_visit(const Round *round, unsigned without, RoundVisit *visit, void *opaque)
{
    Search *s = search_new(round, without);

    s->visit = visit;
    s->opaque = opaque;
    search(s, 0, 0);
}

/* ---- what damage explains */

typedef struct Excuse {
    const Content *seen;
    unsigned all; /* bits: nothing is left to be done */
    bool explained[FILE_BYTES];
} Excuse;

static void excuse_at_end(void *opaque, const Content *c, unsigned done)
{
    Excuse *excuse = opaque;

    for (uint64_t i = 0; done == excuse->all && i < excuse->seen->size; i++) {
        excuse->explained[i] |= excuse->seen->bytes[i] == c->bytes[i];
    }
}

void round_excuse(const Round *round, const Content *seen, const Damage *damage,
                  bool *excused)
{
    static Excuse excuse;
    unsigned without = damage->undoes;

    memset(&excuse, 0, sizeof excuse);
    excuse.seen = seen;
    excuse.all = (1u << round->op_count) - 1;
    round_visit(round, without, excuse_at_end, &excuse);
    while (without != 0) {
        without = (without - 1) & damage->undoes;
        round_visit(round, without, excuse_at_end, &excuse);
    }
    for (uint64_t i = 0; i < FILE_BYTES; i++) {
        excused[i] = (damage->zeroed[i] && seen->bytes[i] == 0) ||
                     (damage->undone[i] && excuse.explained[i]);
    }
}

bool round_is_right_but(const Round *round, const Content *seen, const Damage *damage)
{
    static bool excused[FILE_BYTES];
    Search *s;

    round_excuse(round, seen, damage, excused);
    s = search_new(round, 0);
    s->excused = excused;
    return is_possible(s, seen, true, true, NULL);
}

/* ---- what was seen meanwhile */

typedef struct Look {
    const Round *round;
    const Op *op;
    unsigned must;     /* bits: those that had returned before it was called */
    unsigned must_not; /* bits: those that were called when it had returned */
    bool end_is_right;
    bool grows_by_pages; /* by something under way, on file systems that do it in parts */
    uint64_t least, most; /* sizes that it may have had */
    /* Within a page: where writes under way may have stopped to fault their source in. */
    uint64_t cuts[ROUND_OPS];
    unsigned cut_count;
    /* By a truncation that is under way: behind it zeroes may be there already. */
    uint64_t shrunk_to;
    uint8_t explained[OP_BYTES];
} Look;

static void look_at_load(Look *look, const Content *c)
{
    const Op *op = look->op;

    if (op->offset / ROUND_PAGE * ROUND_PAGE >= c->size) {
        look->end_is_right |= op->bus_error;
        return;
    }
    look->end_is_right |= !op->bus_error;
    for (uint64_t i = 0; i < op->len; i++) {
        look->explained[i] |= op->bytes[i] == c->bytes[op->offset + i];
    }
}

static void look_at_read(Look *look, const Content *c)
{
    const Op *op = look->op;
    uint64_t got = (uint64_t)op->result, end = op->offset + got;

    look->end_is_right |= got == op->len || end % ROUND_PAGE == 0 || end == c->size ||
                          (got == 0 && op->offset >= c->size);
    for (uint64_t i = 0; i < got && op->offset + i < c->size; i++) {
        look->explained[i] |= op->bytes[i] == c->bytes[op->offset + i];
    }
}

static bool is_cut(const Look *look, uint64_t size)
{
    bool is = size % ROUND_PAGE == 0;

    for (unsigned i = 0; i < look->cut_count; i++) {
        is |= size % ROUND_PAGE == look->cuts[i];
    }
    return is;
}

static void look_at_size(Look *look, const Content *c)
{
    uint64_t size = (uint64_t)look->op->result;

    look->least = MIN(look->least, c->size);
    look->most = MAX(look->most, c->size);
    look->end_is_right |=
        size == c->size || (look->grows_by_pages && is_cut(look, size) &&
                            size > look->least && size < look->most);
}

static void look_at(void *opaque, const Content *c, unsigned done)
{
    Look *look = opaque;

    if ((look->must & ~done) != 0 || (look->must_not & done) != 0) {
        return;
    }
    if (look->op->kind == OP_STAT) {
        look_at_size(look, c);
    } else if (look->op->kind == OP_LOAD) {
        look_at_load(look, c);
    } else {
        look_at_read(look, c);
    }
}

static void note_cut(Look *look, const Op *op)
{
    uint64_t at = op->position >= 0 ? (uint64_t)op->position - op->len : op->offset;

    if (op_is_write(op) && !op->direct) {
        look->cuts[look->cut_count++] = (at - (uintptr_t)op->bytes) % ROUND_PAGE;
    }
}

static void look_init(Look *look, const Round *round, const Search *s, unsigned index)
{
    const Op *op = &round->ops[index];

    memset(look, 0, sizeof *look);
    look->round = round;
    look->op = op;
    look->shrunk_to = look->least = UINT64_MAX;
    for (unsigned i = 0; i < round->op_count; i++) {
        const Op *other = &round->ops[i];

        if ((s->left_out & 1u << i) != 0) {
            continue;
        }
        if (other->returned_ns < op->called_ns) {
            look->must |= 1u << i;
        } else if (other->called_ns > op->returned_ns) {
            look->must_not |= 1u << i;
        } else {
            look->grows_by_pages |= is_in_parts(other) || !op_classes[other->kind].edits;
            note_cut(look, other);
            if (other->kind == OP_TRUNCATE) {
                look->shrunk_to = MIN(look->shrunk_to, other->offset);
            }
        }
    }
}

/* All states between call and return, those without @without too. */
static void look_all(Look *look, const Round *round, unsigned index, unsigned without)
{
    look_init(look, round, search_new(round, without), index);
    round_visit(round, without, look_at, look);
}

/* Which bytes are what they were before an operation that the kernel undoes? */
static void look_undone(Look *look, const Damage *damage)
{
    static Look other;
    unsigned index = (unsigned)(look->op - look->round->ops), without = damage->undoes;

    for (; without != 0; without = (without - 1) & damage->undoes) {
        look_all(&other, look->round, index, without);
        for (uint64_t i = 0; i < look->op->len; i++) {
            look->explained[i] |=
                damage->undone[look->op->offset + i] && other.explained[i];
        }
    }
}

ReadFault round_judge_look(const Round *round, unsigned index, const Damage *damage)
{
    const Op *op = &round->ops[index];
    static Look look;
    uint64_t len = op->kind == OP_STAT || op->bus_error ? 0
                   : op->kind == OP_LOAD                ? op->len
                                                        : (uint64_t)MAX(op->result, 0);

    if (op->result < 0 && !op->bus_error) {
        return READ_RIGHT; /* the call failed, which is told elsewhere */
    }
    look_all(&look, round, index, 0);
    if (damage != NULL && len > 0) {
        look_undone(&look, damage);
    }
    for (uint64_t i = 0; i < len; i++) {
        bool is_zero = op->bytes[i] == 0, zeroed = op->offset + i >= look.shrunk_to;

        zeroed |= damage != NULL && damage->zeroed[op->offset + i];
        if (!look.explained[i] && !(is_zero && zeroed)) {
            return is_zero ? READ_ZEROES : READ_BYTES;
        }
    }
    return look.end_is_right ? READ_RIGHT : READ_SIZE;
}

/* ---- names for what is wrong */

static const uint8_t *find_bytes(const Content *c, const uint8_t *what, size_t len)
{
    return memmem(c->bytes, c->size, what, len);
}

/* Both ends of what it wrote are there, and not as far from each other as they were. */
static bool is_torn(const Content *seen, const Op *op)
{
    const size_t part = 8;
    const uint8_t *head, *tail;

    if (op->result < (int64_t)(4 * part) || !op_classes[op->kind].changes ||
        op->kind == OP_COPY_SELF) {
        return false;
    }
    head = find_bytes(seen, op->bytes, part);
    tail = find_bytes(seen, op->bytes + op->result - part, part);
    return head != NULL && tail != NULL && tail - head != op->result - (int64_t)part;
}

const char *round_name_fault(const Round *round, const Content *seen,
                             const Nearest *nearest)
{
    const Content *right = &nearest->content;
    uint64_t least = MIN(seen->size, right->size), zeroes = 0, different = 0;

    for (unsigned i = 0; i < round->op_count; i++) {
        const Op *op = &round->ops[i];

        if ((op->kind == OP_APPEND || op->kind == OP_WRITE) && is_torn(seen, op)) {
            return op->kind == OP_APPEND ? "torn append" : "torn write";
        }
    }
    for (uint64_t i = 0; i < least; i++) {
        different += seen->bytes[i] != right->bytes[i];
        zeroes += seen->bytes[i] == 0 && right->bytes[i] != 0;
    }
    if (!nearest->size_is_possible) {
        return "size";
    }
    if (zeroes * 2 > different) {
        return "zeroes";
    }
    return "lost bytes";
}
