/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * varjfsd-confine.c - a daemon that from now on takes what its volumes take
 *
 * The directories of the volumes are written.  The configuration and the keys are read
 * again later, and may have been replaced by new files then: so their directories are
 * read.  A volume that is added later has its directory below one that was allowed.
 */
#include "cmd/varjfsd.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

void vj_daemon_close_dirs(GArray *dirs)
{
    for (guint i = 0; dirs != NULL && i < dirs->len; i++) {
        close(g_array_index(dirs, int, i));
    }
    if (dirs != NULL) {
        g_array_unref(dirs);
    }
}

bool vj_daemon_open_dirs(const VjNodeConf *conf, GArray **out, GError **error)
{
    *out = g_array_new(FALSE, FALSE, sizeof(int));
    for (guint i = 0; i < conf->volumes->len; i++) {
        const VjNodeVolumeConf *v = g_ptr_array_index(conf->volumes, i);
        int fd = open(v->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0) {
            int why = errno;

            vj_daemon_close_dirs(g_steal_pointer(out));
            return vj_error_set_errno(
                error, why, "%s:%u: volume %s: %s%s", conf->path, v->line, v->name,
                v->directory,
                why == EACCES ? " (a directory that is new since the start has to be "
                                "below [node] below=)"
                              : "");
        }
        g_array_append_val(*out, fd);
    }
    return true;
}

static void allow(VjSandbox *plan, int fd, VjSandboxAccess access)
{
    if (plan->dir_count < VJ_SANDBOX_DIRS_MAX) {
        plan->dirs[plan->dir_count++] = (VjSandboxDir){fd, access};
    }
}

/* What cannot be opened now is not allowed, and says so when it is wanted. */
static void allow_path(VjSandbox *plan, GArray *opened, const char *path,
                       VjSandboxAccess access)
{
    int fd = path == NULL ? -1 : open(path, O_PATH | O_CLOEXEC);

    if (fd >= 0) {
        g_array_append_val(opened, fd);
        allow(plan, fd, access);
    }
}

/* Directories of keys, each once. */
static void allow_keys(VjSandbox *plan, GArray *opened, const VjNodeConf *conf)
{
    g_autoptr(GHashTable) seen =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);

    for (guint i = 0; i < conf->key_paths->len; i++) {
        char *dir = g_path_get_dirname(g_ptr_array_index(conf->key_paths, i));

        if (!g_hash_table_contains(seen, dir)) {
            allow_path(plan, opened, dir, VJ_SANDBOX_READ);
        }
        g_hash_table_add(seen, dir);
    }
}

/* Root gives up what would let it into others' directories where there are none. */
static VjSandboxKeep capabilities_for(const GArray *dirs)
{
    struct stat st;

    for (guint i = 0; i < dirs->len; i++) {
        if (fstat(g_array_index(dirs, int, i), &st) < 0 || st.st_uid != geteuid()) {
            return VJ_SANDBOX_FILES;
        }
    }
    return VJ_SANDBOX_NONE;
}

void vj_daemon_confine(const VjNodeConf *conf, const GArray *dirs, bool has_syslog)
{
    g_autofree VjSandbox *plan = g_new0(VjSandbox, 1);
    GArray *opened = g_array_new(FALSE, FALSE, sizeof(int));

    plan->keep = capabilities_for(dirs);
    plan->listens = true;
    plan->has_syslog = has_syslog;
    for (guint i = 0; i < dirs->len; i++) {
        allow(plan, g_array_index(dirs, int, i), VJ_SANDBOX_WRITE);
    }
    allow_path(plan, opened, conf->below, VJ_SANDBOX_WRITE);
    allow_path(plan, opened, conf->directory, VJ_SANDBOX_READ);
    allow_keys(plan, opened, conf);
    vj_sandbox_enter(plan);
    vj_daemon_close_dirs(opened);
}
