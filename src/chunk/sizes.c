/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sizes.c - the value of "objects=", and the limits of chunk.h
 */
#include "chunk/chunk-private.h"

bool vj_chunk_sizes_allowed(VjChunkSizes sizes)
{
    return sizes.min_bytes >= VJ_CHUNK_MIN_LEAST &&
           sizes.avg_bytes >= VJ_CHUNK_AVG_LEAST &&
           sizes.avg_bytes <= VJ_CHUNK_AVG_MOST && sizes.max_bytes <= VJ_CHUNK_MAX_MOST &&
           sizes.min_bytes <= sizes.avg_bytes && sizes.avg_bytes <= sizes.max_bytes;
}

VjChunkSizes vj_chunk_sizes_default(const VjChunkerOps *ops)
{
    return vj_chunk_algorithm(ops)->fallback;
}

static bool parse_one(const char *text, const char *what, uint32_t least, uint32_t most,
                      uint32_t *bytes, GError **error)
{
    uint64_t value;

    if (!vj_parse_size(text, &value, error)) {
        return vj_error_prefix(error, "objects: %s", what);
    }
    if (value < least || value > most) {
        return vj_error_set(error, EINVAL, "objects: %s: %s is not within %u … %u bytes",
                            what, text, least, most);
    }
    *bytes = (uint32_t)value;
    return true;
}

bool vj_chunk_sizes_parse(const VjChunkerOps *ops, const char *text, VjChunkSizes *sizes,
                          GError **error)
{
    const VjChunkAlgorithm *algorithm = vj_chunk_algorithm(ops);
    g_auto(GStrv) parts = NULL;
    g_autoptr(VjChunker) trial = NULL;
    VjChunkSizes parsed = {0};
    guint part_count;

    g_assert(text != NULL && sizes != NULL);
    /* One part more than is allowed, so that too many are noticed and nothing is
     * unbounded. */
    parts = g_strsplit(text, ":", 4);
    part_count = g_strv_length(parts);
    if (part_count == 1) {
        if (!parse_one(parts[0], "AVG", VJ_CHUNK_AVG_LEAST, VJ_CHUNK_AVG_MOST,
                       &parsed.avg_bytes, error)) {
            return false;
        }
        parsed = algorithm->from_avg(parsed.avg_bytes);
    } else if (part_count == 3 && algorithm->takes_min_max) {
        if (!parse_one(parts[0], "MIN", VJ_CHUNK_MIN_LEAST, VJ_CHUNK_AVG_MOST,
                       &parsed.min_bytes, error) ||
            !parse_one(parts[1], "AVG", VJ_CHUNK_AVG_LEAST, VJ_CHUNK_AVG_MOST,
                       &parsed.avg_bytes, error) ||
            !parse_one(parts[2], "MAX", VJ_CHUNK_AVG_LEAST, VJ_CHUNK_MAX_MOST,
                       &parsed.max_bytes, error)) {
            return false;
        }
    } else {
        return vj_error_set(error, EINVAL, "objects: %s takes %s, not \"%s\"", ops->name,
                            algorithm->takes_min_max ? "AVG or MIN:AVG:MAX" : "AVG alone",
                            text);
    }
    if (parsed.min_bytes > parsed.avg_bytes || parsed.avg_bytes > parsed.max_bytes) {
        return vj_error_set(error, EINVAL, "objects: \"%s\" is not MIN ≤ AVG ≤ MAX",
                            text);
    }
    if (vj_chunker_new(ops, parsed, 0, &trial) < 0) {
        g_assert(algorithm->avg_rule != NULL);
        return vj_error_set(error, EINVAL, "objects: AVG for %s is %s, not \"%s\"",
                            ops->name, algorithm->avg_rule, text);
    }
    *sizes = parsed;
    return true;
}
