/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object-fixture.h - metadata in a temporary directory, a store, and objects on top
 *
 * Both seams have a fault wrapper inside and a stats wrapper outside.
 */
#ifndef VJ_TEST_OBJECT_FIXTURE_H
#define VJ_TEST_OBJECT_FIXTURE_H

#include "../../lib/store-plain.h"
#include "../../lib/test.h"

#include "object/object.h"

typedef struct Fixture {
    char *path;
    const char *driver; /* of the store */
    VjMeta *meta;
    VjStore *store;
    VjObjects *objects;
    uint64_t cache_bytes; /* for the next open_objects */
    uint64_t block_ids;
    uint8_t codec; /* of what put_content stores */
    VjMutex lock;
    /* guarded by lock: */
    GHashTable *counts; /* id → references that were acknowledged */
} Fixture;

/* cmocka's setup and teardown; *state is the Fixture. */
int fixture_setup(void **state);         /* store: memory */
int fixture_setup_posix(void **state);   /* store: posix */
int fixture_setup_block(void **state); /* store: block, with keys of its own */
int fixture_teardown(void **state);

/* The same in pieces: crash tests open one directory several times. */
void fixture_open_seams(Fixture *f, const char *store, bool create);
void fixture_close_seams(Fixture *f);
void fixture_open_objects(Fixture *f);
void fixture_close_objects(Fixture *f);
void fixture_reopen_objects(Fixture *f);
void fixture_faults(Fixture *f, const char *store, const char *meta); /* NULL: as it is */

/* Seeded bytes, owned by GLib. */
uint8_t *content(uint64_t seed, size_t len);

/* Flushes if needed, takes each, commits, frees each.  0 or the first error. */
int commit_pending(Fixture *f, VjPendingObject **pending, size_t n, VjObject *out);
/* Store and commit in one go. */
int put_content(Fixture *f, const void *plain, uint32_t len, VjObject *out);
void must_put(Fixture *f, const void *plain, uint32_t len, VjObject *out);
int add_ref(Fixture *f, uint64_t id, VjObject *out);
int drop_ref(Fixture *f, uint64_t id);
int get_object(Fixture *f, uint64_t id, VjObject *out);

/* Reads all of @object and compares. */
void assert_content(Fixture *f, const VjObject *object, const void *plain);

/* Everything agrees, with all references that were acknowledged; all bytes are read. */
void assert_consistent(Fixture *f);
/* The same check; lines go to @said (owned, may be NULL).  Needs open objects. */
VjCheckReport check_objects(Fixture *f, char **said);

uint64_t stored_count(Fixture *f);
uint64_t key_count(Fixture *f, VjSpace space);
VjObjectsStats stats_of(Fixture *f);

#endif
