/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rounds-make.c - the operations of a round, by chance: at ends, at borders of pages, of
 * lengths that are one off
 *
 * A file is at most MOST_BEFORE bytes long when a round begins, and no operation makes it
 * longer by more than PAST_END and LEN_MOST: so it stays below FILE_BYTES.
 */
#include "rounds.h"

#include <inttypes.h>

#define MOST_BEFORE ((uint64_t)24 << 10)
#define PAST_END 5000u
#define LEN_MOST 8192u
#define DELAY_MOST_NS 60000u

G_STATIC_ASSERT(MOST_BEFORE + ROUND_OPS * (PAST_END + LEN_MOST) <= FILE_BYTES);
G_STATIC_ASSERT(LEN_MOST <= OP_BYTES && MOST_BEFORE <= OP_BYTES);

const OpClass op_classes[OP_KINDS] = {
    [OP_WRITE] = {"write", 6, .changes = true, .direct = true},
    [OP_APPEND] = {"append", 8, .changes = true, .direct = true},
    [OP_INSERT] = {"insert", 8, .changes = true, .edits = true, .direct = true},
    [OP_DELETE] = {"delete", 6, .changes = true, .edits = true, .direct = true},
    [OP_REPLACE] = {"replace", 6, .changes = true, .edits = true, .direct = true},
    [OP_APPEND_EDIT] = {"append-edit", 3, .changes = true, .edits = true, .direct = true},
    [OP_TRUNCATE] = {"truncate", 4, .changes = true},
    [OP_PUNCH] = {"punch", 3, .changes = true},
    [OP_ZERO] = {"zero", 2, .changes = true},
    [OP_ZERO_KEEP] = {"zero-keep", 2, .changes = true},
    [OP_ALLOCATE] = {"allocate", 2, .changes = true},
    [OP_STORE] = {"store", 6, .changes = true},
    [OP_COPY] = {"copy", 2, .changes = true},
    [OP_COPY_SELF] = {"copy-self", 2, .changes = true},
    [OP_READ] = {"read", 3, .looks = true, .direct = true},
    [OP_TAIL] = {"tail", 3, .looks = true},
    [OP_LOAD] = {"load", 2, .looks = true},
    [OP_STAT] = {"stat", 2, .looks = true},
    [OP_DROP] = {"drop", 2},
    [OP_SYNC] = {"sync", 2},
    [OP_REOPEN] = {"reopen", 1},
};

static bool chance(VjRng *rng, unsigned percent)
{
    return vj_rng_below(rng, 100) < percent;
}

static uint64_t one_of(VjRng *rng, const uint16_t *from, size_t count)
{
    return from[vj_rng_below(rng, count)];
}

uint64_t any_size(VjRng *rng)
{
    static const uint16_t sizes[] = {0,    1,    565,  1130, 4095,  4096,  4097,
                                     4661, 8191, 8192, 8193, 12288, 12853, 16384};

    return chance(rng, 60) ? one_of(rng, sizes, G_N_ELEMENTS(sizes))
                           : vj_rng_below(rng, 16385);
}

static uint64_t any_len(VjRng *rng)
{
    static const uint16_t lens[] = {1,    8,    64,   565,  565,  1000,
                                    4095, 4096, 4096, 4097, 8191, 8192};

    return chance(rng, 70) ? one_of(rng, lens, G_N_ELEMENTS(lens))
                           : 1 + vj_rng_below(rng, 5000);
}

/* Within the file or at its end. */
static uint64_t any_offset(VjRng *rng, uint64_t size)
{
    uint64_t at = vj_rng_below(rng, size + 1), before_end = 1 + vj_rng_below(rng, 600);

    switch (vj_rng_below(rng, 8)) {
    case 0:
        return 0;
    case 1:
        return size;
    case 2:
        return size - MIN(size, before_end);
    case 3:
    case 4:
        return at / ROUND_PAGE * ROUND_PAGE;
    case 5:
        at = at / ROUND_PAGE * ROUND_PAGE + vj_rng_below(rng, 3);
        return MIN(size, at == 0 ? 0 : at - 1);
    default:
        return at;
    }
}

static uint64_t any_offset_or_behind(VjRng *rng, uint64_t size)
{
    return chance(rng, 10) ? size + vj_rng_below(rng, PAST_END) : any_offset(rng, size);
}

void op_fill(Op *op, uint64_t id)
{
    VjRng rng;

    vj_rng_init(&rng, id);
    vj_rng_bytes(&rng, op->bytes, op->len);
    for (uint64_t i = 0; i < op->len; i++) {
        op->bytes[i] = (uint8_t)(1 + op->bytes[i] % 255);
    }
}

static void align_direct(Op *op, const Choice *choice)
{
    uint64_t align = choice->direct_align;

    if (op->direct && align > 1 && !op_classes[op->kind].edits) {
        op->offset = op->offset / align * align;
        op->len = MIN((op->len + align - 1) / align * align, LEN_MOST);
    }
}

static void make_store(Op *op, VjRng *rng, uint64_t size)
{
    uint64_t last = size == 0 ? 0 : (size - 1) / ROUND_PAGE * ROUND_PAGE;
    uint64_t from = chance(rng, 50) ? last : 0;

    op->len = 1u << vj_rng_below(rng, 4);
    op->offset = from + (size > from ? vj_rng_below(rng, size - from) : 0);
    op->offset = op->offset / op->len * op->len;
}

static void make_copy_self(Op *op, VjRng *rng, uint64_t size)
{
    op->source = any_offset(rng, size);
    op->offset = any_offset(rng, size);
    if (op->source < op->offset) {
        op->len = MIN(op->len, op->offset - op->source);
    } else {
        op->len = MIN(op->len, op->source - op->offset);
    }
    if (op->len == 0) {
        op->offset = op->source + 100; /* which does not overlap */
        op->len = 100;
    }
}

static void make_parameters(Op *op, VjRng *rng, uint64_t size, const Choice *choice)
{
    op->offset = any_offset_or_behind(rng, size);
    op->len = any_len(rng);
    op->old_len = 0;
    op->source = 0;
    switch (op->kind) {
    case OP_DELETE:
        op->old_len = op->len;
        op->len = 0;
        op->offset = any_offset(rng, size);
        break;
    case OP_REPLACE:
        op->old_len = any_len(rng);
        break;
    case OP_TRUNCATE:
        op->offset = chance(rng, 50) ? any_offset(rng, size) : any_size(rng);
        op->len = 0;
        break;
    case OP_STORE:
    case OP_LOAD:
        make_store(op, rng, size);
        break;
    case OP_COPY:
        op->source = vj_rng_below(rng, SOURCE_BYTES - LEN_MOST);
        break;
    case OP_COPY_SELF:
        make_copy_self(op, rng, size);
        break;
    case OP_READ:
        op->offset = chance(rng, 50) ? 0 : any_offset(rng, size);
        op->len = chance(rng, 70) ? OP_BYTES : op->len;
        break;
    case OP_TAIL:
        op->offset = size;
        op->len = OP_BYTES;
        break;
    case OP_APPEND:
        op->direct = op->direct && choice->direct_align <= 1;
        break;
    default:
        break;
    }
    align_direct(op, choice);
}

static OpKind any_kind(VjRng *rng, const Choice *choice, bool changes)
{
    unsigned sum = 0, at;

    for (unsigned i = 0; i < OP_KINDS; i++) {
        sum += op_classes[i].changes || !changes ? choice->weights[i] : 0;
    }
    g_assert(sum > 0);
    at = (unsigned)vj_rng_below(rng, sum);
    for (unsigned i = 0; i < OP_KINDS; i++) {
        unsigned weight = op_classes[i].changes || !changes ? choice->weights[i] : 0;

        if (at < weight) {
            return (OpKind)i;
        }
        at -= weight;
    }
    g_assert_not_reached();
}

static bool op_is(const Round *round, OpKind kind)
{
    for (unsigned i = 0; i < round->op_count; i++) {
        if (round->ops[i].kind == kind) {
            return true;
        }
    }
    return false;
}

static bool round_edits(const Round *round)
{
    for (unsigned i = 0; i < round->op_count; i++) {
        if (op_classes[round->ops[i].kind].edits) {
            return true;
        }
    }
    return false;
}

/*
 * What the kernel loses by itself is not asked for beside edits, so that what is lost
 * beside edits is ours: see KernelFault.
 */
static void keep_blame_clear(Round *round)
{
    bool stores = op_is(round, OP_STORE), grows, punches;

    for (unsigned i = 0; stores && i < round->op_count; i++) {
        Op *op = &round->ops[i];

        if (op->kind == OP_COPY || op->kind == OP_COPY_SELF) {
            op->kind = OP_WRITE;
        }
    }
    /* OP_REPLACE by as many bytes is a write. */
    grows = op_is(round, OP_WRITE) || op_is(round, OP_APPEND) || op_is(round, OP_REPLACE);
    punches =
        op_is(round, OP_PUNCH) || op_is(round, OP_ZERO) || op_is(round, OP_ZERO_KEEP);
    for (unsigned i = 0; i < round->op_count; i++) {
        Op *op = &round->ops[i];

        if ((op->kind == OP_DROP || op->kind == OP_REOPEN || op->kind == OP_READ) &&
            ((grows && (stores || round->is_dirty)) || (punches && stores))) {
            op->kind = OP_STAT;
        }
    }
}

/*
 * Where a page is stored into while it is written past the cache, the kernel cannot drop
 * it and writes it back as it was, on every file system: open(2) says not to.
 * KERNEL_GROWTH is not asked for beside edits either.
 */
static bool writes_may_be_direct(const Round *round, const Choice *choice)
{
    bool looks = op_is(round, OP_READ) || op_is(round, OP_TAIL) || op_is(round, OP_LOAD);

    return choice->strict || (!op_is(round, OP_STORE) && !(looks && round_edits(round)));
}

static bool may_be_direct(const Round *round, const Op *op, const Choice *choice)
{
    bool writes = op->kind == OP_WRITE || op->kind == OP_APPEND;

    return choice->direct && op_classes[op->kind].direct &&
           (!writes || writes_may_be_direct(round, choice));
}

void round_make(Round *round, VjRng *rng, const Choice *choice, uint64_t id)
{
    unsigned of_ten = (unsigned)vj_rng_below(rng, 10);

    round->op_count = MIN(of_ten < 5 ? 2u : of_ten < 8 ? 3u : 4u, choice->most);
    for (unsigned i = 0; i < round->op_count; i++) {
        round->ops[i].kind = any_kind(rng, choice, i == 0);
    }
    if (!choice->strict && round_edits(round)) {
        keep_blame_clear(round);
    }
    for (unsigned i = 0; i < round->op_count; i++) {
        Op *op = &round->ops[i];

        op->direct = chance(rng, 30) && may_be_direct(round, op, choice);
        op->variant = chance(rng, 50);
        op->delay_ns = chance(rng, 50) ? 0 : (uint32_t)vj_rng_below(rng, DELAY_MOST_NS);
        op->result = 0;
        op->position = -1;
        op->bus_error = false;
        make_parameters(op, rng, round->before.size, choice);
        if (op_is_write(op) && !writes_may_be_direct(round, choice)) {
            op->direct = false; /* a replacement by as many bytes, too */
        }
        if (op->kind == OP_COPY) {
            memcpy(op->bytes, choice->source + op->source, op->len);
        } else if (op_classes[op->kind].changes) {
            op_fill(op, id * ROUND_OPS + i);
        }
    }
}

void op_print(const Op *op, uint64_t from_ns, GString *out)
{
    g_string_append_printf(out, "%s%s%s offset %" PRIu64 " len %" PRIu64,
                           op->direct ? "direct " : "", op_classes[op->kind].name,
                           op->variant ? "'" : "", op->offset, op->len);
    if (op_classes[op->kind].edits) {
        g_string_append_printf(out, " old %" PRIu64, op->old_len);
    }
    if (op->kind == OP_COPY || op->kind == OP_COPY_SELF) {
        g_string_append_printf(out, " from %" PRIu64, op->source);
    }
    g_string_append_printf(out, " = %" PRId64, op->result);
    if (op->position >= 0) {
        g_string_append_printf(out, " at %" PRId64, op->position);
    }
    g_string_append_printf(out, "%s [%.1f .. %.1f us]", op->bus_error ? " SIGBUS" : "",
                           (double)(int64_t)(op->called_ns - from_ns) / 1000,
                           (double)(int64_t)(op->returned_ns - from_ns) / 1000);
}
