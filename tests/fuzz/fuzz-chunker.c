/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Chunkers against the formulas that their files freeze, written down once more without
 * tables, windows in rings and blocks.  The same bytes are cut in one piece, in the
 * pieces that the input says, and with what stands behind a decision changed; with each
 * vector code that this processor has.
 *
 * The input: algorithm (1), sizes (1), seed (8), pieces (4), then steps of three bytes
 * which make the content: what (1), how much (2).
 */
#include "fuzz.h"

#include "../unit/chunk/naive.h"
#include "chunk/chunk-private.h"

#define CONTENT_MAX ((size_t)48 << 10)

/* ---- feeding ----------------------------------------------------------------------- */

/* The length of the chunk at @p, fed in pieces whose lengths @r draws. */
static size_t cut_in_pieces(VjChunker *c, VjRng *r, const uint8_t *p, size_t len)
{
    static const size_t most[] = {1, 3, 17, 64, 1000, 20000};
    size_t fed = 0;
    uint64_t cut = 0;

    for (;;) {
        size_t piece =
            (size_t)vj_rng_below(r, most[vj_rng_below(r, G_N_ELEMENTS(most))] + 1);
        bool at_end;

        piece = MIN(piece, len - fed);
        at_end = fed + piece == len && (piece == 0 || vj_rng_below(r, 2) == 0);
        if (vj_chunker_scan(c, p + fed, piece, at_end, &cut)) {
            return (size_t)cut;
        }
        fed += piece;
    }
}

static void expect_decision_stands(VjChunker *c, const uint8_t *p, size_t len, size_t cut)
{
    uint64_t decided, again = 0;
    g_autofree uint8_t *other = NULL;
    VjChunkSizes sizes = vj_chunker_sizes(c);

    if (cut == len || cut < sizes.min_bytes) {
        return; /* the end decided */
    }
    decided = vj_chunker_decision_bytes(c, cut);
    if (decided > len) {
        return;
    }
    other = g_memdup2(p, len);
    for (size_t i = decided; i < len; i++) {
        other[i] ^= 0x55;
    }
    g_assert(vj_chunker_scan(c, other, decided, false, &again));
    g_assert(again == cut);
    g_assert(vj_chunker_scan(c, other, len, true, &again));
    g_assert(again == cut);
}

static void try_content(const VjChunkerOps *ops, VjChunker *c, uint64_t seed, VjRng *r,
                        const uint8_t *p, size_t len)
{
    VjChunkSizes sizes = vj_chunker_sizes(c);
    size_t at = 0;

    while (at < len) {
        size_t left = len - at, cut = naive_cut(ops, sizes, seed, p + at, left);

        for (VjChunkCode code = 0; code <= vj_chunk_code_best(); code++) {
            uint64_t whole = 0;

            vj_chunker_use(c, code);
            g_assert(vj_chunker_scan(c, p + at, left, true, &whole) && whole == cut);
            g_assert(cut_in_pieces(c, r, p + at, left) == cut);
            if (at == 0) {
                expect_decision_stands(c, p, len, cut);
            }
        }
        at += cut;
    }
}

/* ---- inputs ------------------------------------------------------------------------ */

static void make_content(VjReader *in, GByteArray *out)
{
    while (in->left >= 3 && out->len < CONTENT_MAX) {
        uint8_t what = vj_read_u8(in);
        guint len = (guint)MIN(vj_read_u16(in), CONTENT_MAX - out->len), from = out->len;
        VjRng r;

        g_byte_array_set_size(out, from + len);
        vj_rng_init(&r, what);
        for (guint i = 0; i < len; i++) {
            uint8_t *to = &out->data[from + i];

            switch (what & 3) {
            case 0:
                *to = what;
                break;
            case 1:
                *to = (uint8_t)vj_rng_u64(&r);
                break;
            case 2: /* what stands a little before it */
                *to = from > what ? out->data[from + i - what - 1] : (uint8_t)i;
                break;
            default:
                *to = (uint8_t)(i * (what >> 2));
                break;
            }
        }
    }
    if (in->left > 0) {
        g_byte_array_append(out, in->at, (guint)in->left);
    }
}

/* Small ones, so that the content is more than a few chunks. */
static VjChunkSizes sizes_of(const VjChunkerOps *ops, uint8_t n)
{
    static const VjChunkSizes any[] = {
        {256, 1024, 8192}, {300, 1024, 1500}, {1024, 1024, 1024}, {256, 2048, 65536}};
    uint32_t avg = 1024 + 37u * n;

    if (ops->id != VJ_CHUNK_ID_MINCDC) {
        return any[n % G_N_ELEMENTS(any)];
    }
    return (VjChunkSizes){avg / 2, avg, avg / 2 + avg};
}

static void try_any_sizes(const VjChunkerOps *ops, VjReader r)
{
    VjChunkSizes sizes = {.min_bytes = vj_read_u32(&r)};
    VjChunker *c;
    int rc;

    sizes.avg_bytes = vj_read_u32(&r);
    sizes.max_bytes = vj_read_u32(&r);
    rc = vj_chunker_new(ops, sizes, 1, &c);
    g_assert((rc == 0) == (c != NULL) && (rc == 0 || rc == -EINVAL));
    vj_chunker_free(c);
}

FUZZ_MUTATIONS(20);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    VjReader in = vj_reader(vj_slice(data, len));
    static const char *const names[] = {"mincdc", "rabin", "gear"};
    const VjChunkerOps *ops = vj_chunk_by_name(names[vj_read_u8(&in) % 3]);
    g_autoptr(GByteArray) content = g_byte_array_new();
    g_autoptr(VjChunker) c = NULL;
    uint8_t sizes;
    uint64_t seed;
    VjRng pieces;
    int rc;

    try_any_sizes(ops, in);
    sizes = vj_read_u8(&in);
    seed = vj_read_u64(&in);
    vj_rng_init(&pieces, vj_read_u32(&in));
    if (in.bad) {
        return 0;
    }
    make_content(&in, content);
    rc = vj_chunker_new(ops, sizes_of(ops, sizes), seed, &c);
    g_assert(rc == 0);
    try_content(ops, c, seed, &pieces, content->data, content->len);
    return 0;
}
