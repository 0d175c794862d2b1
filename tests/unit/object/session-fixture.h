/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * session-fixture.h - several sessions of one volume that is in memory
 *
 * What refers to objects are names, numbers that stand in the metadata with the id of
 * their object and the seed of its content.  So what is right is known from the metadata
 * alone, whichever session committed it.
 */
#ifndef VJ_TEST_SESSION_FIXTURE_H
#define VJ_TEST_SESSION_FIXTURE_H

#include "object-fixture.h"

#include "object/object-private.h"

#define SESSIONS 3u

typedef struct World {
    char *volume;         /* "memory:name=…", of metadata and store */
    Fixture *s[SESSIONS]; /* NULL: it is closed */
} World;

/* cmocka's setup and teardown: *state is a World of three sessions that hear of one
 * another's changes.  Teardown closes them and looks that nothing is left over. */
int world_setup(void **state);
int world_teardown(void **state);
World *world_new(void);
void world_free(World *w);
/* As that; @after_crashes: sessions may have to be released, and gc may find some,
 * first. */
void world_free_after_crashes(World *w, bool after_crashes);

/* @engine: a wrapper of the metadata's engine, then objects are NULL where their open
 * failed; NULL: none.  Hears of changes.  Its lease does not end. */
Fixture *session_open(const World *w, const char *name, const char *engine);
/* After @calls of its engine it hears nothing from that any more, and takes itself to be
 * shut out; objects are NULL where that is while they open. */
Fixture *session_open_to_crash(const World *w, const char *name, uint64_t calls);
/* 0, or what vj_objects_close and vj_meta_close said.  Takes @f. */
int session_close(Fixture *f);
uint64_t session_number(Fixture *f);
/* Session @id has ended, by the word of @by: what comes from it is refused then. */
void shut_out(Fixture *by, uint64_t id);
int try_shut_out(Fixture *by, uint64_t id);
/* What a session does that notices it.  0, or why it has to be done again. */
int release_ended(Fixture *by, uint64_t id);

/* All files of @w agree: asks by @f, when nothing changes. */
void assert_world_consistent(Fixture *f);
/* Removes what gc would, by @f; returns how much. */
guint collect_garbage(Fixture *f);

/* ---- names ------------------------------------------------------------------------- */

/* Stored, flushed, committed; as often as it is stale.  What it named before it names no
 * more. */
int name_content(Fixture *f, uint64_t name, uint64_t seed);
/* Only the commit; takes @pending. */
int name_pending(Fixture *f, uint64_t name, uint64_t seed, VjPendingObject *pending,
                 VjObject *out);
int store_content(Fixture *f, uint64_t seed, VjPendingObject **pending);
/* One more name for object @id, of content @seed.  -EEXIST: it names something. */
int name_object(Fixture *f, uint64_t name, uint64_t id, uint64_t seed);
/* -ENOENT */
int unname(Fixture *f, uint64_t name);
/* What @name names, by a view: -ENOENT */
int look_up_name(Fixture *f, uint64_t name, VjObject *out, uint64_t *seed);
/* All of it, from the store; 0 and it is what @seed says, else an error. */
int read_content(Fixture *f, const VjObject *object, uint64_t seed);

/* ---- passes ------------------------------------------------------------------------ */

/* How often @f began to wait for its older guards, as a parity. */
unsigned parity_of(Fixture *f);
void wait_for_other_parity(Fixture *f, unsigned before);
/* Begins a pass in @f; returns when it waits for guards. */
GThread *begin_pass(Fixture *f);
void end_pass(GThread *thread, int rc);

#endif
