/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * leased-fixture.h - the engine in memory as if it were elsewhere: an exclusive session
 * of it has a lease
 */
#ifndef VJ_TESTS_LEASED_FIXTURE_H
#define VJ_TESTS_LEASED_FIXTURE_H

#include "meta/leased-private.h"
#include "meta/meta-private.h"
#include "shared-fixture.h"

static inline const VjEngineOps *leased_ops(void)
{
    static VjEngineOps ops;
    static gsize is_made;

    if (g_once_init_enter(&is_made)) {
        ops = vj_engine_memory_ops;
        ops.flags |= VJ_ENGINE_IS_LEASED;
        g_once_init_leave(&is_made, 1);
    }
    return &ops;
}

/* @spec: as of new_volume().  False: refused. */
static inline bool try_leased(const char *spec, const VjSessionOpen *session,
                              bool read_only, VjMeta **out, GError **error)
{
    VjMetaPlace place = {
        .dir_fd = -1, .path = "the volume", .read_only = read_only, .session = session};
    g_autoptr(VjOpts) opts = vj_opts_new(leased_ops()->options);

    assert_true(vj_opts_parse(opts, strchr(spec, ':') + 1, NULL));
    return vj_session_open(leased_ops(), &place, opts, out, error);
}

/* @lease_us 0: a long one. */
static inline VjMeta *open_leased(const char *spec, const char *name, int64_t lease_us)
{
    VjSessionOpen session = {.name = name,
                             .lease_us = lease_us > 0 ? lease_us : LONG_LEASE_US};
    GError *error = NULL;
    VjMeta *m;

    if (!try_leased(spec, &session, false, &m, &error)) {
        fail_msg("open: %s", error->message);
    }
    return m;
}

/* The time of the engine's clock passes. */
static inline void pass_time(VjMeta *m, int64_t us)
{
    vj_memory_clock_advance_for_test(vj_session_of(m)->engine, us);
}

#endif
