/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * confine.c - a program that from now on needs SOURCE alone
 *
 * What is below SOURCE by itself is named by itself: it may be mounted there, and such a
 * mount can be taken away and come back.
 */
#include "cmd/confine.h"

#include <fcntl.h>

void vj_confine(int source_fd, VjSourceOwners owners, int other_fd)
{
    static const char *const names[] = {"meta", "objects", "checkpoints"};
    VjSandbox plan = {.keep = owners.has_others ? VJ_SANDBOX_FILES : VJ_SANDBOX_NONE};
    int opened[G_N_ELEMENTS(names)];

    plan.fds[plan.fd_count++] = source_fd;
    if (other_fd >= 0) {
        plan.fds[plan.fd_count++] = other_fd;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        opened[i] =
            openat(source_fd, names[i], O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (opened[i] >= 0) {
            plan.fds[plan.fd_count++] = opened[i];
        }
    }
    vj_sandbox_enter(&plan);
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        vj_fd_close(&opened[i]);
    }
}

bool vj_confine_parse(const char *value, bool *is_off, GError **error)
{
    *is_off = strcmp(value, "off") == 0;
    return *is_off || strcmp(value, "auto") == 0 ||
           vj_error_set(error, EINVAL, "--sandbox: %s is not one of auto|off", value);
}
