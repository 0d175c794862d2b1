/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * dir-streams.c - where the listings that are under way end
 *
 * A listing shows the names that were there when it began: a program that renames each
 * name that it reads would never come to an end, because a new name comes last.  The
 * kernel opens directories without asking, so a READDIR does not say to which listing it
 * belongs.  But it goes on at a cookie that the same listing was given, one of the last
 * answer.  Where several have got there, the one that ends last is taken: names are
 * missing from none.
 *
 * The kernel keeps the list of a listing that came to its end, and answers readers from
 * it without a READDIR.  When it drops that list, such a reader goes on by READDIR at a
 * cookie that it has from the list.  What is remembered at that cookie may be another
 * listing, which was begun earlier and left: its end would leave out names that are in
 * the list.  So a listing that comes to its end moves the ends of those of its directory
 * that were begun before and are not over to its own.
 *
 * A listing that is not remembered any more, as too many others have come since, goes on
 * with the names that are there by then, as after seekdir(3).
 */
#include "front/front-private.h"

/* By directory: listings of one directory are in one set. */
#define SETS 32u
#define WAYS (VJ_DIR_STREAMS_MAX / SETS)

G_STATIC_ASSERT(VJ_DIR_STREAMS_MAX % SETS == 0);

typedef struct Stream {
    uint64_t dir;
    uint64_t from, to; /* cookies: the last answer was of names behind @from up to @to */
    uint64_t end;
    uint64_t used; /* VjDirStreams.clock; 0: there is none */
} Stream;

struct VjDirStreams {
    VjMutex lock; /* VJ_RANK_FRONT */
    /* guarded by lock: */
    Stream sets[SETS][WAYS];
    uint64_t clock;
};

VjDirStreams *vj_dir_streams_new(void)
{
    VjDirStreams *s = g_new0(VjDirStreams, 1);

    vj_mutex_init(&s->lock, VJ_RANK_FRONT, "front directory streams");
    return s;
}

void vj_dir_streams_free(VjDirStreams *s)
{
    if (s != NULL) {
        vj_mutex_clear(&s->lock);
        g_free(s);
    }
}

static Stream *set_of(VjDirStreams *s, uint64_t dir) VJ_REQUIRES(s->lock)
{
    return s->sets[dir % SETS];
}

static bool has_got_to(const Stream *t, uint64_t dir, uint64_t cookie)
{
    return t->used != 0 && t->dir == dir && t->from <= cookie && cookie <= t->to;
}

uint64_t vj_dir_streams_end(VjDirStreams *s, uint64_t dir, uint64_t cookie)
{
    uint64_t end = 0;

    if (cookie != 0) {
        vj_mutex_lock(&s->lock);
        for (unsigned i = 0; i < WAYS; i++) {
            const Stream *t = &set_of(s, dir)[i];

            if (has_got_to(t, dir, cookie)) {
                end = MAX(end, t->end);
            }
        }
        vj_mutex_unlock(&s->lock);
    }
    return end != 0 ? end : UINT64_MAX;
}

/* The list up to @end may be kept. */
static void move_ends(VjDirStreams *s, uint64_t dir, uint64_t end) VJ_REQUIRES(s->lock)
{
    for (unsigned i = 0; i < WAYS; i++) {
        Stream *t = &set_of(s, dir)[i];

        if (t->used != 0 && t->dir == dir) {
            t->end = MAX(t->end, end);
        }
    }
}

void vj_dir_streams_note(VjDirStreams *s, uint64_t dir, uint64_t cookie, uint64_t last,
                         uint64_t end)
{
    Stream *place;

    vj_mutex_lock(&s->lock);
    place = set_of(s, dir);
    for (unsigned i = 1; i < WAYS; i++) {
        Stream *t = &set_of(s, dir)[i];

        if (t->used < place->used) {
            place = t;
        }
    }
    for (unsigned i = 0; i < WAYS && cookie != 0; i++) {
        Stream *t = &set_of(s, dir)[i];

        if (has_got_to(t, dir, cookie) && t->end == end) {
            place = t;
        }
    }
    if (last != 0) {
        *place = (Stream){dir, cookie, last, end, ++s->clock};
    } else {
        if (has_got_to(place, dir, cookie) && place->end == end) {
            place->used = 0;
        }
        move_ends(s, dir, end);
    }
    vj_mutex_unlock(&s->lock);
}
