/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sweep-world.h - what the two files of the world share (sweep-world.c, sweep-ops.c)
 */
#ifndef VJ_TEST_FAULT_SWEEP_WORLD_H
#define VJ_TEST_FAULT_SWEEP_WORLD_H

#include "sweep.h"

extern const VjCaller world_root;

GHashTable *world_tree_new(void);
GHashTable *world_tree_copy(GHashTable *tree);
uint64_t world_tree_sum(GHashTable *tree);
char *world_tree_difference(GHashTable *want, GHashTable *got);
/* How the value of an attribute is written in a tree; owned. */
char *world_value_text(const void *value, size_t len);
/* The tree that there is; NULL and why not. */
GHashTable *world_observe(World *w, int *r);
/* Takes @tree: it is the model's now. */
void world_tree_is(World *w, GHashTable *tree);
void world_names_durable(World *w);

/* Of an inode that had no content so far it is empty. */
Node *world_node(World *w, uint64_t ino);
GBytes *world_content(const Node *n);
void world_content_is(Node *n, GBytes *content);
void world_node_durable(Node *n);
void world_each_file(World *w, void (*visit)(World *, const char *path, Node *));

bool world_result(World *w, int r, const char *what);
/* A mount after kill -9, of a copy. */
void world_try_kill(World *w, const char *when);
void world_adopt(World *w, const char *when);
bool world_open_at(World *w, const char *source, bool faulty, bool check, bool repair);
void world_remove_tree(const char *path);

#endif
