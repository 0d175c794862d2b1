/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * volume.h - a volume for HDF5 programs, with the daemon of this build
 */
#ifndef VJ_TEST_HDF5_VOLUME_H
#define VJ_TEST_HDF5_VOLUME_H

#include "../../lib/test.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

/* Owned: the directory that has it; $VARJFS_SOURCE is the volume. */
static inline char *volume_start(void)
{
    g_autofree char *source = NULL, *command = NULL;
    char *directory = vj_test_make_dir();

    source = g_build_filename(directory, "volume", NULL);
    command = g_strdup_printf("%s/mkfs.varjfs %s >/dev/null", VARJFS_SBINDIR, source);
    assert_int_equal(mkdir(source, 0700), 0);
    assert_int_equal(system(command), 0);
    setenv("VARJFS_SOURCE", source, 1);
    return directory;
}

/* The daemon ends by itself, some seconds after its last connection; here at once. */
static inline void volume_stop(char *directory)
{
    g_autofree char *path = g_build_filename(directory, "volume", "varjfsd.sock", NULL);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct ucred peer;
    socklen_t len = sizeof peer;
    bool is_valgrind;

    g_strlcpy(at.sun_path, path, sizeof at.sun_path);
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0) {
        struct pollfd end = {.events = POLLIN};

        assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len), 0);
        end.fd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
        is_valgrind = end.fd < 0 && errno == ENOSYS;
        end.fd = is_valgrind ? dup(fd) : end.fd;
        assert_true(end.fd >= 0);
        assert_int_equal(kill(peer.pid, SIGTERM), 0);
        assert_int_equal(poll(&end, 1, 30000), 1);
        close(end.fd);
        /* Valgrind has no pidfd_open: after the end of the connection the process is
         * asked for, 10 s at most. */
        for (int i = 0; is_valgrind && i < 1000 && kill(peer.pid, 0) == 0; i++) {
            poll(NULL, 0, 10);
        }
    }
    close(fd);
    vj_test_remove_dir(directory);
}

#endif
