/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * base.h - what every room may use
 *
 * The face of the room base: buffers, checked arithmetic, options, log, trace, ranked
 * locks, clock, random, digests.  Nothing here knows what a file system is.
 */
#ifndef VJ_BASE_BASE_H
#define VJ_BASE_BASE_H

#if defined(NDEBUG) || defined(G_DISABLE_ASSERT)
#error "varjfs states its invariants in assertions: do not compile them out"
#endif

#include <errno.h>
#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>

#define VJ_KIB ((uint64_t)1 << 10)
#define VJ_MIB ((uint64_t)1 << 20)
#define VJ_GIB ((uint64_t)1 << 30)
#define VJ_TIB ((uint64_t)1 << 40)

/* Memory that was freed is not to be used again: a sanitizer looks for who does. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VJ_IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||               \
    __has_feature(memory_sanitizer)
#define VJ_IS_SANITIZED 1
#endif
#endif
#ifndef VJ_IS_SANITIZED
#define VJ_IS_SANITIZED 0
#endif

#include "base/buf.h"
#include "base/bytes.h"
#include "base/call-stats.h"
#include "base/cancel.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/needs.h"
#include "base/opts.h"
#include "base/random.h"
#include "base/sandbox.h"
#include "base/shared.h"

#endif
