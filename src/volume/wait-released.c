/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * wait-released.c - until no process has SOURCE any more
 *
 * Of what a mount table names, so perhaps of what its user chose: nothing is changed
 * there.
 */
#include "volume/place-private.h"

#include <sys/stat.h>
#include <unistd.h>

#define OTHERS_MAY_OPEN (S_IRGRP | S_IROTH)

bool vj_volume_wait_released(const char *source, int64_t wait_us, bool *foreign,
                             GError **error)
{
    g_autoptr(VjPlace) p = NULL;
    g_autoptr(GError) local = NULL;
    struct stat st;

    *foreign = false;
    if (!vj_place_open(source, &p, error)) {
        return false;
    }
    if (fstat(vj_place_fd(p), &st) < 0) {
        return vj_error_set_errno(error, errno, "%s", source);
    }
    *foreign = st.st_uid != geteuid() || (st.st_mode & OTHERS_MAY_OPEN) != 0;
    if (vj_place_lock(p, false, wait_us, &local)) {
        return true;
    }
    if (local->code == EBUSY) {
        return vj_error_set(error, ETIMEDOUT, "%s is still in use", source);
    }
    g_propagate_error(error, g_steal_pointer(&local));
    return false;
}
