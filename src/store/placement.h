/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * placement.h - which nodes of a list keep an object: rendezvous hashing with weights
 *
 * Every reader and writer computes the same order of all nodes for an object from its id
 * and the nodes' places in the list; the first of them that are live get it.  When a node
 * goes, the objects that it had go to the others in the proportion of their weights, and
 * no other object changes its nodes.
 *
 * All of it is integer arithmetic: the same order on every machine, for ever.  Threads:
 * any, pure.  Locks: none.
 */
#ifndef VJ_STORE_PLACEMENT_H
#define VJ_STORE_PLACEMENT_H

#include "base/base.h"

/* Nodes of one list: the bits of a VjNodeSet. */
#define VJ_PLACEMENT_NODES_MAX 64u
#define VJ_PLACEMENT_WEIGHT_MAX 1000u
#define VJ_PLACEMENT_REPLICAS_MAX 8u

/* Bit I: the node at place I of the list, counted from 0. */
typedef uint64_t VjNodeSet;

static inline VjNodeSet vj_node_bit(unsigned index)
{
    return (VjNodeSet)1 << index;
}

static inline unsigned vj_node_count(VjNodeSet set)
{
    return (unsigned)__builtin_popcountll(set);
}

/* The lowest node of @set from place @index on; VJ_PLACEMENT_NODES_MAX: there is none. */
static inline unsigned vj_node_next(VjNodeSet set, unsigned index)
{
    set = index < VJ_PLACEMENT_NODES_MAX ? set >> index : 0;
    return set != 0 ? index + (unsigned)__builtin_ctzll(set) : VJ_PLACEMENT_NODES_MAX;
}

/* For each node of @set, which is looked at anew each time. */
#define VJ_NODE_EACH(index, set)                                                         \
    for (unsigned index = vj_node_next((set), 0); index < VJ_PLACEMENT_NODES_MAX;        \
         index = vj_node_next((set), index + 1))

/*
 * -log2((h + 1) / 2^64) in units of 2^-32, from 0 to 64 * 2^32, rounded up.  For tests.
 */
uint64_t vj_placement_cost(uint64_t h);

/*
 * vj_placement_rank - all nodes in the order in which they are to keep object @id
 *
 * A node comes before another with the probability of its weight to the sum of both
 * (-ln(h) / weight, the smaller one first); those of weight 0 come last, in an order of
 * their own.
 * @weights  of @count nodes, each at most VJ_PLACEMENT_WEIGHT_MAX
 * @order    places in the list, @count of them
 */
void vj_placement_rank(uint64_t id, const uint32_t *weights, unsigned count,
                       uint8_t *order);

/* The first @replicas nodes of @order that are in @live. */
VjNodeSet vj_placement_first(const uint8_t *order, unsigned count, VjNodeSet live,
                             unsigned replicas);

/*
 * vj_placement_space - how much fits, of what is put on @replicas different nodes each
 *
 * The largest T for which the sum of min(bytes, T) is at least replicas * T: a node that
 * is larger than all others together has no partner for the rest of it.  With fewer
 * nodes than @replicas: as if there were as many replicas as nodes.
 * @bytes    of @count nodes; their order is changed.  UINT64_MAX: no limit
 */
uint64_t vj_placement_space(uint64_t *bytes, unsigned count, unsigned replicas);

#endif
