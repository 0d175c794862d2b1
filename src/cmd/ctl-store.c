/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-store.c - varjfsctl store: what the store is and has, and a device that has become
 * longer
 */
#include "cmd/ctl.h"

#include "varjfs/ioctl.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int grow(const VjCtl *ctl, const char *path)
{
    VJ_AUTO_FD fd = vj_ctl_open(ctl, path, O_RDONLY);
    struct varjfs_tend io = {.cursor = 0};

    if (fd < 0 || !vj_ctl_tend_step(ctl, path, fd, VARJFS_TEND_GROW, &io)) {
        return EXIT_FAILURE;
    }
    if (ctl->format == VJ_CTL_JSON) {
        printf("{\"gained_bytes\": %" G_GUINT64_FORMAT "}\n", (guint64)io.found_bytes);
    } else if (io.found_bytes == 0) {
        printf("%s: the store uses all that there is\n", path);
    } else {
        g_autofree char *size =
            g_format_size_full(io.found_bytes, G_FORMAT_SIZE_IEC_UNITS);

        printf("%s: %s more are used\n", path, size);
    }
    return EXIT_SUCCESS;
}

int vj_ctl_store(const VjCtl *ctl)
{
    const char *word = ctl->operands[0], *path = ctl->operands[1];

    if (strcmp(word, "status") == 0) {
        return vj_ctl_show_pairs(ctl, path, VARJFS_TEXT_STORE);
    }
    if (strcmp(word, "grow") == 0) {
        return grow(ctl, path);
    }
    return vj_cmd_usage_error(ctl->cmd, word, "there are status and grow");
}
