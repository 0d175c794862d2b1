/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * erase.h - removed objects that could not be overwritten yet
 *
 * A driver that overwrites what it removes fails a remove where the device does not take
 * the zeroes, and the caller removes the object again later, and at the next mount.  This
 * says when that is worth a try, and when it is to be given up: after
 * VJ_ERASE_TRIES_MAX tries with pauses that double, about nine minutes.  Then the object
 * goes with its bytes: else a bad block would keep space for ever, and nobody could end
 * that.
 *
 * Threads: the driver's lock is held.
 */
#ifndef VJ_STORE_ERASE_H
#define VJ_STORE_ERASE_H

#include "base/base.h"

#define VJ_ERASE_TRIES_MAX 10u
#define VJ_ERASE_PAUSE_FIRST_US ((int64_t)1000 * 1000)
/* Objects whose tries are counted; more of them are tried each time they are removed, and
 * stay until some of these have gone. */
#define VJ_ERASE_WAITING_MAX 65536u

typedef struct VjErasures {
    GHashTable *waiting; /* owned */
    uint64_t given_up;
} VjErasures;

void vj_erasures_init(VjErasures *e);
void vj_erasures_clear(VjErasures *e);
/* False: it failed a moment ago. */
bool vj_erasures_is_due(const VjErasures *e, uint64_t id, uint64_t nonce);
/* It failed: the number of the try, VJ_ERASE_TRIES_MAX where tries are not counted; 0: it
 * was the last, and is counted as given up. */
unsigned vj_erasures_failed(VjErasures *e, uint64_t id, uint64_t nonce);
/* It goes as it is at once, whatever was tried. */
void vj_erasures_give_up(VjErasures *e, uint64_t id, uint64_t nonce);
/* It is overwritten, or is not there any more. */
void vj_erasures_done(VjErasures *e, uint64_t id, uint64_t nonce);

#endif
