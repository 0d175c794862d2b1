/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * chunk.h - where to cut a file into objects
 *
 * The face of the room chunk.  A chunker reads the bytes of one file in order and says
 * where each chunk ends, looking only at the bytes themselves, so that equal content is
 * cut alike wherever it stands.  The same id, seed, sizes and bytes give the same cuts
 * for ever, however calls split the bytes and whichever processor runs them; golden
 * vectors in tests/unit/chunk hold that, since every file on disk depends on it.
 *
 * How a caller uses it.  A chunk begins at the file's start or at the last cut.  Feed its
 * bytes in order with vj_chunker_scan(), any number at a time:
 *
 *   false   every byte fed was taken in; feed the bytes that follow
 *   true    the chunk is @cut bytes long, counted from its start.  The chunker has
 *           forgotten everything: the next byte to feed is the one at the cut, also
 *           if it, and bytes after it, have been fed before.  A caller therefore keeps
 *           all bytes since the last cut, at most max_bytes plus what it last fed; it
 *           needs them anyway to hash and store the chunk.
 *
 * With bytes in one piece that is
 *
 *   for (; len > 0; src += cut, len -= cut) {
 *       if (!vj_chunker_scan(c, src, len, at_end, &cut)) {
 *           break; // the rest is the beginning of a chunk; only possible without at_end
 *       }
 *       …
 *   }
 *
 * Restart inside a file.  A chunker started at an old cut finds the old cuts again as
 * long as it sees the old bytes; vj_chunker_decision_bytes() says how many of them.
 *
 * Threads: a VjChunker one at a time, different ones at once; the rest any.  Locks: none.
 * Nothing here survives or notices a crash.
 */
#ifndef VJ_CHUNK_CHUNK_H
#define VJ_CHUNK_CHUNK_H

#include "base/base.h"

/* Limits of every algorithm, in bytes.  Sizes from a superblock, xattr or user are
 * checked against them before anything is allocated. */
#define VJ_CHUNK_MIN_LEAST ((uint32_t)256)
#define VJ_CHUNK_AVG_LEAST ((uint32_t)1 << 10)
#define VJ_CHUNK_AVG_MOST ((uint32_t)8 << 20)
#define VJ_CHUNK_MAX_MOST ((uint32_t)16 << 20)

/* Recorded in the superblock; never reused.  Not every build has every algorithm. */
enum {
    VJ_CHUNK_ID_MINCDC = 1,
    VJ_CHUNK_ID_GEAR = 2,
    VJ_CHUNK_ID_RABIN = 3,
};

/*
 * What the algorithms do; mincdc.c, gear.c and rabin.c give the formulas, which are
 * frozen.
 *
 * mincdc   cuts before the smallest hash of the last 16 bytes among all positions in
 *          [avg/2, 3 avg/2], the leftmost of equal ones; when fewer bytes than that are
 *          left, they are the last chunk.  Constant data: every position is equal, so
 *          all chunks but the last are avg/2 long, and after an insert of n bytes, n no
 *          multiple of that, no later cut agrees with an old one.
 * gear     cuts where chosen bits of a Gear hash of the last 64 bytes are zero: more bits
 *          before about 13/16 avg, fewer behind.  Constant data: as rabin.
 * rabin    cuts where the low bits of the fingerprint of the last 48 bytes have a value
 *          that depends on the seed.  Constant data: all chunks but the last have one
 *          length, max_bytes or (once in avg_bytes values and seeds) min_bytes.
 */

/* The modulus of rabin, bit i the coefficient of x^i; irreducible, of degree 56. */
#define VJ_CHUNK_RABIN_POLYNOMIAL ((uint64_t)0x157a464ec16b92d)
#define VJ_CHUNK_RABIN_DEGREE 56

/*
 * Bytes per chunk.  Every chunk but the last of a file is at least @min_bytes, every
 * chunk at most @max_bytes; the last is at least 1.  @avg_bytes is what random content
 * comes to.
 */
typedef struct VjChunkSizes {
    uint32_t min_bytes;
    uint32_t avg_bytes;
    uint32_t max_bytes;
} VjChunkSizes;

typedef struct VjChunker VjChunker; /* ops, sizes, seed, state of the chunk under way */

/*
 * VjChunkerOps - one algorithm
 *
 * Only the wrappers below call the members.  Before each scan() the wrapper knows how
 * many bytes of the chunk were fed before (c->fed_bytes, see chunk-private.h); 0 means
 * that a chunk begins and that whatever @c's state holds of the one before is void.
 * Threads: one at a time per chunker.  Locks: none.  No member may be NULL.
 */
typedef struct VjChunkerOps {
    const char *name;  /* what "chunker=" selects */
    uint8_t id;        /* on disk; VJ_CHUNK_ID_* */
    size_t state_size; /* bytes of state behind the VjChunker; zeroed before init() */

    /* Bytes past a cut that the decision for it may have looked at; constant after
     * init(). */
    uint32_t (*lookahead_bytes)(const VjChunker *c);

    /* The sizes are ordered and within the limits above; -EINVAL when the algorithm
     * cannot keep exactly these.  Allocates nothing.  The seed is in c->seed. */
    int (*init)(VjChunker *c, uint32_t min_bytes, uint32_t avg_bytes, uint32_t max_bytes);

    /* Feed @len bytes (borrowed for the call; @src may be NULL when @len is 0).  true:
     * @cut is the chunk's length counted from the previous cut; it may end before @src.
     * @at_end: no more bytes follow @src, and the chunk has at least one byte: always
     * true. */
    bool (*scan)(VjChunker *c, const void *src, size_t len, bool at_end, uint64_t *cut);
} VjChunkerOps;

/* The algorithm of that name or id, static; NULL: unknown, or not in this build. */
const VjChunkerOps *vj_chunk_by_name(const char *name);
const VjChunkerOps *vj_chunk_by_id(uint8_t id);

/* The i-th algorithm of this build, NULL past the last: for --help and for test suites.
 */
const VjChunkerOps *vj_chunk_nth(size_t i);

/*
 * vj_chunk_sizes_default - what @ops uses where the user names no size
 *
 * mincdc: mean 256 KiB.  gear: 64 KiB, 256 KiB, 1 MiB.  rabin: 2 KiB, 1 MiB, 8 MiB, as in
 * the VarFS paper.
 */
VjChunkSizes vj_chunk_sizes_default(const VjChunkerOps *ops);

/*
 * vj_chunk_sizes_parse - the value of "objects="
 *
 * @text     "AVG" or "MIN:AVG:MAX", each with an optional suffix K or M.  mincdc takes
 *           AVG alone and gives avg/2 (rounded down) and that plus avg.  AVG alone for
 *           rabin gives min avg/512 and max 8 avg, for gear avg/4 and 4 avg, within the
 *           limits; their AVG is a power of two
 * Returns   true and @sizes, with which vj_chunker_new() succeeds; false and one clear
 *           line (EINVAL).  Nothing is rounded behind the user's back
 * Threads   any      Locks   none
 */
bool vj_chunk_sizes_parse(const VjChunkerOps *ops, const char *text, VjChunkSizes *sizes,
                          GError **error);

/*
 * vj_chunker_new - a chunker at the start of a chunk
 *
 * @ops      from vj_chunk_by_name() or vj_chunk_by_id()
 * @sizes    may come from disk: checked, order and limits and what @ops can keep
 * @seed     the file system's; other seeds cut elsewhere.  It hides from an observer of
 *           sizes which well-known files are stored; it is not a cryptographic secret
 * @out      returns owned; NULL on failure
 * Returns   0; -EINVAL sizes out of range, or not possible with @ops
 * Threads   any      Locks   none
 */
int vj_chunker_new(const VjChunkerOps *ops, VjChunkSizes sizes, uint64_t seed,
                   VjChunker **out) G_GNUC_WARN_UNUSED_RESULT;

void vj_chunker_free(VjChunker *c); /* NULL is allowed */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjChunker, vj_chunker_free)

/*
 * vj_chunker_scan - feed the next bytes of the chunk under way
 *
 * @src      borrowed for the call; may be NULL when @len is 0
 * @len      bytes; any number, also 0.  Bytes beyond the one that decides are not looked
 *           at
 * @at_end   the file ends behind @src.  Feeding the end on its own (@len 0) is the same
 *           as feeding it with the last bytes
 * @cut      on true: bytes from the chunk's start to its end; at least 1, at most
 *           max_bytes and the bytes fed since the start, and at least min_bytes unless
 *           the file ends there.  It may lie before @src.  Undefined on false
 * Returns   true: a chunk ends, and the chunker stands at the start of the next one (the
 *           file comment says what is to be fed then).  false: no decision yet; with
 *           @at_end only if the chunk has no byte at all
 * Threads   one at a time      Locks   none
 */
bool vj_chunker_scan(VjChunker *c, const void *src, size_t len, bool at_end,
                     uint64_t *cut);

/* Forget the chunk under way: the next byte fed is the first of a chunk. */
void vj_chunker_reset(VjChunker *c);

VjChunkSizes vj_chunker_sizes(const VjChunker *c);

/*
 * vj_chunker_lookahead_bytes - how far past its cut a decision may look
 *
 * 0 for gear and rabin; max_bytes - min_bytes for mincdc.  A bound for all cuts; the next
 * function is exact for one.  Constant for the life of @c.
 */
uint32_t vj_chunker_lookahead_bytes(const VjChunker *c);

/*
 * vj_chunker_decision_bytes - how many bytes decided a cut
 *
 * @cut      length of a chunk that this chunker cut, not because the file ended
 * Returns   D, so that exactly the D bytes from the chunk's start decided: whatever
 *           changes at or behind start + D, a scan from start finds the same cut.
 *           mincdc: max_bytes, whatever @cut is; gear and rabin: @cut
 *
 * A chunk that ended because the file ended was decided by the end: any change in it or
 * behind it, an append too, means scanning again from its start.  All earlier chunks of a
 * file stand when something is appended.
 */
uint64_t vj_chunker_decision_bytes(const VjChunker *c, uint64_t cut);

#endif
