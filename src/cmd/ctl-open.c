/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-open.c - a file or directory of a varjfs mount, opened for a subcommand
 */
#include "cmd/ctl.h"

#include "varjfs/ioctl.h"

#include <fcntl.h>
#include <sys/ioctl.h>

int vj_ctl_open(const VjCtl *ctl, const char *path, int flags)
{
    VJ_AUTO_FD fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int version;

    if (fd < 0) {
        vj_cmd_fail_errno(ctl->cmd, path, errno);
        return -1;
    }
    version = ioctl(fd, VARJFS_IOC_PING);
    if (version < VARJFS_IOC_VERSION) {
        if (version >= 0 || errno == ENOTTY || errno == EINVAL || errno == ENOSYS ||
            errno == EOPNOTSUPP) {
            fprintf(stderr, "%s: %s: not on a varjfs mount\n", ctl->cmd->name, path);
        } else {
            vj_cmd_fail_errno(ctl->cmd, path, errno);
        }
        return -1;
    }
    return vj_fd_steal(&fd);
}
