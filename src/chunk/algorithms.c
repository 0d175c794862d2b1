/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * algorithms.c - the table of algorithms
 *
 * A new algorithm is one row here and one file.  Rows may come and go with the build; ids
 * may not: chunk.h lists them for ever.
 */
#include "chunk/chunk-private.h"

static const VjChunkAlgorithm algorithms[] = {
    {
        .ops = &vj_chunk_mincdc,
        .fallback = {128 * VJ_KIB, 256 * VJ_KIB, 384 * VJ_KIB},
        .takes_min_max = false,
        .from_avg = vj_chunk_mincdc_from_avg,
    },
    {
        .ops = &vj_chunk_gear,
        .fallback = {64 * VJ_KIB, 256 * VJ_KIB, 1 * VJ_MIB},
        .takes_min_max = true,
        .avg_rule = "a power of two",
        .from_avg = vj_chunk_gear_from_avg,
    },
    {
        .ops = &vj_chunk_rabin,
        .fallback = {2 * VJ_KIB, 1 * VJ_MIB, 8 * VJ_MIB},
        .takes_min_max = true,
        .avg_rule = "a power of two",
        .from_avg = vj_chunk_rabin_from_avg,
    },
};

const VjChunkAlgorithm *vj_chunk_algorithm(const VjChunkerOps *ops)
{
    for (size_t i = 0; i < G_N_ELEMENTS(algorithms); i++) {
        if (algorithms[i].ops == ops) {
            return &algorithms[i];
        }
    }
    g_assert_not_reached();
}

const VjChunkerOps *vj_chunk_nth(size_t i)
{
    return i < G_N_ELEMENTS(algorithms) ? algorithms[i].ops : NULL;
}

const VjChunkerOps *vj_chunk_by_name(const char *name)
{
    g_assert(name != NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(algorithms); i++) {
        if (strcmp(algorithms[i].ops->name, name) == 0) {
            return algorithms[i].ops;
        }
    }
    return NULL;
}

const VjChunkerOps *vj_chunk_by_id(uint8_t id)
{
    for (size_t i = 0; i < G_N_ELEMENTS(algorithms); i++) {
        if (algorithms[i].ops->id == id) {
            return algorithms[i].ops;
        }
    }
    return NULL;
}
