/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-keygen.c - varjfsctl keygen: by what nodes and clients of a volume believe each
 * other
 */
#include "cmd/ctl.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rpc/certificates.h"
#include "rpc/rpc.h"

#define DAY_S ((int64_t)24 * 3600)
#define CA_DAYS ((uint64_t)3650)
#define OTHER_DAYS ((uint64_t)825)
/* Clocks of other machines may be behind by so much. */
#define CLOCKS_DIFFER_S ((int64_t)3600)

/* -1 with @error. */
static int open_directory(const char *path, GError **error)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        vj_error_set_errno(error, errno, "%s", path);
    }
    return fd;
}

static bool make_key(const char *path, GError **error)
{
    g_autofree char *directory = g_path_get_dirname(path);
    VJ_AUTO_FD dir_fd = open_directory(directory, error);

    return dir_fd >= 0 && vj_key_write_new(AT_FDCWD, path, error) &&
           (fsync(dir_fd) == 0 || vj_error_set_errno(error, errno, "%s", directory));
}

static VjCertificateTimes times_of(const VjCtl *ctl, uint64_t default_days)
{
    int64_t now_s = vj_clock_real().tv_sec;
    uint64_t days = ctl->days != 0 ? ctl->days : default_days;

    return (VjCertificateTimes){now_s - CLOCKS_DIFFER_S, now_s + (int64_t)days * DAY_S};
}

/* Makes the directory, closed to others, where it is missing. */
static bool make_ca(const VjCtl *ctl, const char *path, GError **error)
{
    g_autofree char *name = g_strdup_printf("varjfs CA %08x", (uint32_t)vj_random_u64());
    VjCertificateTimes times = times_of(ctl, CA_DAYS);
    VJ_AUTO_FD dir_fd = -1;

    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        return vj_error_set_errno(error, errno, "%s", path);
    }
    dir_fd = open_directory(path, error);
    return dir_fd >= 0 && (vj_certificate_make_ca(dir_fd, name, &times, error) ||
                           vj_error_prefix(error, "%s", path));
}

static bool make_certificate(const VjCtl *ctl, const char *path, GError **error)
{
    VjCertificateKind kind =
        ctl->node != NULL ? VJ_CERTIFICATE_NODE : VJ_CERTIFICATE_CLIENT;
    const char *client[] = {ctl->client, NULL};
    g_auto(GStrv) nodes = ctl->node != NULL ? g_strsplit(ctl->node, ",", -1) : NULL;
    const char *const *names = nodes != NULL ? (const char *const *)nodes : client;
    VjCertificateTimes times = times_of(ctl, OTHER_DAYS);
    VJ_AUTO_FD dir_fd = open_directory(path, error);

    if (names[0] == NULL) {
        return vj_error_set(error, EINVAL, "a certificate needs a name");
    }
    return dir_fd >= 0 && (vj_certificate_make(dir_fd, kind, names, &times, error) ||
                           vj_error_prefix(error, "%s", path));
}

int vj_ctl_keygen(const VjCtl *ctl)
{
    g_autoptr(GError) error = NULL;
    const char *path = ctl->operands[0];
    int kinds = ctl->makes_ca + (ctl->node != NULL) + (ctl->client != NULL);
    bool done;

    if (kinds > 1) {
        return vj_cmd_usage_error(ctl->cmd, NULL,
                                  "one of --ca, --node and --client at a time");
    }
    if (kinds == 0 && ctl->days != 0) {
        return vj_cmd_usage_error(ctl->cmd, "--days",
                                  "a key has no end: for certificates");
    }
    if (kinds == 0) {
        done = make_key(path, &error);
    } else if (ctl->makes_ca) {
        done = make_ca(ctl, path, &error);
    } else {
        done = make_certificate(ctl, path, &error);
    }
    return done ? EXIT_SUCCESS : vj_cmd_fail(ctl->cmd, error);
}
