/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * varjfs.c - the FUSE daemon: varjfs SOURCE MOUNTPOINT [-f] [-d] [-o OPTION,…]
 *
 * Also what mount(8) runs for -t fuse.varjfs.  The process that was started waits on a
 * pipe until its child serves the mount, so that a script may use it at once and sees a
 * failure.
 */
#include "base/base.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "cmd/confine.h"
#include "cmd/mount-table.h"
#include "front/front.h"

/* After umount, how long the daemon tries to write back what a full or failing device
 * refused, before it gives up and says so in the log. */
#define CLOSE_RETRY_US ((int64_t)30 * 1000 * 1000)
/* How long a mount waits for an earlier daemon that is on its way out. */
#define LOCK_WAIT_US ((int64_t)60 * 1000 * 1000)
#define EXIT_USAGE 2
/* Of a request of the kernel, and of most edits. */
#define BUFFER_MOST ((size_t)4 << 20)

static const VjOptSpec mount_options[] = {
    {.name = "ro", .type = VJ_OPT_FLAG, .help = "mount read-only"},
    {.name = "allow_other",
     .type = VJ_OPT_FLAG,
     .help = "other users may use the mount (always, when root mounts)"},
    {.name = "commit",
     .type = VJ_OPT_NUMBER,
     .fallback = "1",
     .min = 1,
     .max = 3600,
     .help = "seconds after which what was written is written back without fsync"},
    {.name = "cache",
     .type = VJ_OPT_SIZE,
     .fallback = "256M",
     .min = 1 << 20,
     .help = "memory for objects that were read, bytes"},
    {.name = "dirty",
     .type = VJ_OPT_SIZE,
     .fallback = "256M",
     .min = 32 << 20,
     .help = "memory for data that waits for write-back, bytes"},
    {.name = "fragments",
     .type = VJ_OPT_SIZE,
     .fallback = "256M",
     .help = "metadata that small changes may take before they become objects, bytes"},
    {.name = "workers",
     .type = VJ_OPT_NUMBER,
     .min = 1,
     .max = 256,
     .help = "threads that hash and store (default: one a CPU)"},
    {.name = "transform",
     .type = VJ_OPT_STRING,
     .choices = "none|xor|rle|lz4|zstd",
     .help = "transformation of new files where the directory has none of its own"},
    {.name = "check",
     .type = VJ_OPT_CHOICE,
     .fallback = "auto",
     .choices = "auto|always|never",
     .help = "when to examine the metadata first: after a crash and when they are few"},
    {.name = "checkpoint",
     .type = VJ_OPT_NUMBER,
     .fallback = "86400",
     .max = 366 * 86400,
     .help =
         "seconds after which the metadata are copied into SOURCE/checkpoints; 0: never"},
    {.name = "lease",
     .type = VJ_OPT_NUMBER,
     .fallback = "30",
     .min = 3,
     .max = 3600,
     .help =
         "of a volume elsewhere: seconds that it stays ours when we are not heard of"},
    {.name = "safety",
     .type = VJ_OPT_CHOICE,
     .fallback = "none",
     .choices = "none|network|storage",
     .help = "who has what was changed when close(2), rename(2), … return"},
    {.name = "busy_poll",
     .type = VJ_OPT_NUMBER,
     .fallback = "200",
     .max = 1000,
     .help = "microseconds that a thread looks for the next request before it sleeps, "
             "where requests come one soon after the other; 0: never, saves power"},
    {.name = "log",
     .type = VJ_OPT_STRING,
     .help = "a file, or syslog (default in the background)"},
    {.name = "sandbox",
     .type = VJ_OPT_CHOICE,
     .fallback = "auto",
     .choices = "auto|off",
     .help = "give up what serving SOURCE does not take; off: for debuggers"},
    {.name = NULL},
};

/* Handed to libfuse and the kernel as they are. */
static const char *const passed_options[] = {
    "rw",   "dev",     "nodev",      "suid",         "nosuid",
    "exec", "noexec",  "atime",      "noatime",      "async",
    "sync", "dirsync", "nodiratime", "auto_unmount", NULL,
};

/* For mount(8), fstab and init systems; nothing here acts on them. */
static const char *const noise_options[] = {
    "defaults",   "auto",          "noauto",
    "user",       "nouser",        "users",
    "owner",      "group",         "_netdev",
    "nofail",     "relatime",      "norelatime",
    "diratime",   "lazytime",      "strictatime",
    "nolazytime", "nostrictatime", "silent",
    "loud",       "nosymfollow",   "default_permissions",
    NULL,
};

static const char *const noise_prefixes[] = {
    "x-",       "X-",        "comment=", "uhelper=",  "helper=",  "fsname=",
    "subtype=", "max_read=", "user_id=", "group_id=", "blksize=", NULL,
};

static bool in_list(const char *const *list, const char *word)
{
    for (; *list != NULL; list++) {
        if (strcmp(*list, word) == 0) {
            return true;
        }
    }
    return false;
}

static bool has_noise_prefix(const char *word)
{
    for (const char *const *p = noise_prefixes; *p != NULL; p++) {
        if (g_str_has_prefix(word, *p)) {
            return true;
        }
    }
    return false;
}

typedef struct Command {
    char *source;     /* absolute */
    char *mountpoint; /* absolute, or /dev/fd/N */
    bool foreground, debug, remount;
    bool is_repeated; /* the options begin as mountinfo's, as mount(8)'s for remount do */
    VjOpts *opts;
    GString *passed; /* options for libfuse */
    int ready_fd;    /* the parent waits on it; -1: none */
    VjPlace *place;
    VjSourceOwners owners;
    VjGuard *guard;
} Command;

static void usage(FILE *to)
{
    g_autofree char *help = vj_opts_help(mount_options);
    g_autofree char *transforms = vj_cmd_transforms();

    fprintf(to,
            "usage: varjfs SOURCE MOUNTPOINT [-f] [-d] [-o OPTION,...]\n"
            "\n"
            "Mounts the varjfs file system of SOURCE, a directory or a volume file.\n"
            "\n"
            "  -f         stay in the foreground\n"
            "  -d         print requests; implies -f\n"
            "  -o         options, below; and those of mount(8)\n"
            "  --help     this text\n"
            "  --version  the version\n"
            "\n"
            "Options:\n%s\n%s\n",
            help, transforms);
}

static int usage_error(const char *what, const char *why)
{
    vj_complain("varjfs", "%s: %s (varjfs --help shows the usage)", what, why);
    return EXIT_USAGE;
}

/* One element of -o. */
static bool option_set(Command *c, const char *word, GError **error)
{
    g_autofree char *name = NULL;
    const char *equals = strchr(word, '=');

    if (strcmp(word, "remount") == 0) {
        c->remount = true;
        return true;
    }
    c->is_repeated |= g_str_has_prefix(word, "user_id=");
    if (in_list(noise_options, word) || has_noise_prefix(word)) {
        return true;
    }
    if (strcmp(word, "rw") == 0 && !vj_opts_set(c->opts, "ro", "no", error)) {
        return false;
    }
    if (in_list(passed_options, word)) {
        g_string_append_printf(c->passed, "%s%s", c->passed->len > 0 ? "," : "", word);
        return true;
    }
    name = equals == NULL ? g_strdup(word) : g_strndup(word, (gsize)(equals - word));
    return vj_opts_set(c->opts, name, equals == NULL ? NULL : equals + 1, error);
}

/* "a,b=c,…"; a comma in a value is "\,". */
static bool options_parse(Command *c, const char *text, GError **error)
{
    g_autoptr(GString) word = g_string_new(NULL);

    for (;; text++) {
        if (*text == '\\' && (text[1] == ',' || text[1] == '\\')) {
            g_string_append_c(word, *++text);
        } else if (*text != ',' && *text != '\0') {
            g_string_append_c(word, *text);
        } else {
            if (word->len > 0 && !option_set(c, word->str, error)) {
                return false;
            }
            g_string_truncate(word, 0);
            if (*text == '\0') {
                return true;
            }
        }
    }
}

/* ---- serving ----------------------------------------------------------------------- */

static void tell_ready(void *opaque)
{
    Command *c = opaque;
    static const char done = 0;

    if (c->ready_fd < 0) {
        return;
    }
    (void)!write(c->ready_fd, &done, 1);
    close(c->ready_fd);
    c->ready_fd = -1;
    if (!c->foreground) {
        VJ_AUTO_FD null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

        /* A program that reads the output of this one waits for its end. */
        if (null_fd >= 0) {
            dup2(null_fd, STDOUT_FILENO);
            if (g_getenv("VARJFS_TRACE") == NULL) {
                dup2(null_fd, STDERR_FILENO);
            }
        }
    }
}

static bool serve_volume(Command *c, VjVolume *volume, GError **error)
{
    VjFs *fs = vj_fs_new(volume);
    VjFrontConfig config = {
        .fs = fs,
        .mountpoint = c->mountpoint,
        .debug = c->debug,
        .busy_poll_us = (unsigned)vj_opts_number(c->opts, "busy_poll"),
        .guard = c->guard,
        .ready = tell_ready,
        .opaque = c,
    };
    const char *safety = vj_opts_string(c->opts, "safety");
    g_auto(GStrv) words = g_strsplit(c->passed->str, ",", -1);
    bool ok;

    if (g_strv_contains((const char *const *)words, "noatime")) {
        vj_fs_set_noatime(fs);
    }
    vj_fs_set_safety(fs, strcmp(safety, "storage") == 0   ? VJ_SAFETY_STORAGE
                         : strcmp(safety, "network") == 0 ? VJ_SAFETY_NETWORK
                                                          : VJ_SAFETY_NONE);
    ok = vj_front_run(&config, error);
    vj_fs_free(fs);
    return ok;
}

static VjExamine examine_when(const Command *c)
{
    const char *when = vj_opts_string(c->opts, "check");

    return strcmp(when, "always") == 0  ? VJ_EXAMINE_ALWAYS
           : strcmp(when, "never") == 0 ? VJ_EXAMINE_NEVER
                                        : VJ_EXAMINE_AUTO;
}

static bool serve(Command *c, GError **error)
{
    g_autofree char *session_name = vj_cmd_session_name("varjfs", c->mountpoint);
    VjVolumeOpen how = {
        .session_name = session_name,
        .place = c->place,
        .examine = examine_when(c),
        .read_only = vj_opts_flag(c->opts, "ro"),
        .cache_bytes = vj_opts_number(c->opts, "cache"),
        .dirty_bytes = vj_opts_number(c->opts, "dirty"),
        .fragment_bytes = vj_opts_number(c->opts, "fragments"),
        .no_fragments = vj_opts_number(c->opts, "fragments") == 0,
        .workers = (unsigned)vj_opts_number(c->opts, "workers"),
        .commit_seconds = (unsigned)vj_opts_number(c->opts, "commit"),
        .checkpoint_seconds = (unsigned)vj_opts_number(c->opts, "checkpoint"),
        .transform = vj_opts_string(c->opts, "transform"),
        .wrap_store = g_getenv("VARJFS_TEST_WRAP_STORE"),
        .wrap_meta = g_getenv("VARJFS_TEST_WRAP_META"),
        .lease_us = (int64_t)vj_opts_number(c->opts, "lease") * G_USEC_PER_SEC,
        .close_retry_us = CLOSE_RETRY_US,
        /* Where it is mounted there is no end to wait for. */
        .lock_wait_us = vj_mount_table_has(c->source) ? 0 : LOCK_WAIT_US,
    };
    VjVolume *volume;
    bool ok;
    int r, closed;

    if (!vj_volume_open(&how, &volume, error)) {
        return false;
    }
    ok = serve_volume(c, volume, error);
    r = vj_volume_close(volume);
    closed = vj_place_close(g_steal_pointer(&c->place));
    r = r < 0 ? r : closed;
    if (r < 0 && ok) {
        ok = vj_error_set_errno(error, -r, "%s: not everything could be written",
                                c->source);
    }
    return ok;
}

/* -1: a volume file has nothing in it. */
static int open_in_source(const Command *c, const char *name)
{
    return openat(vj_place_fd(c->place), name, O_PATH | O_CLOEXEC | O_NOFOLLOW);
}

static const char *log_target(const Command *c)
{
    const char *target = vj_opts_string(c->opts, "log");

    return target != NULL ? target : c->foreground ? "stderr" : "syslog";
}

static bool open_log(const Command *c, GError **error)
{
    /* The two below SOURCE by themselves: they may be mounts that are elsewhere as
     * well. */
    VJ_AUTO_FD meta_fd = open_in_source(c, "meta");
    VJ_AUTO_FD objects_fd = open_in_source(c, "objects");
    int fds[] = {vj_place_fd(c->place), meta_fd, objects_fd};
    int outside[G_N_ELEMENTS(fds)];
    unsigned count = 0;

    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++) {
        if (fds[i] >= 0) {
            outside[count++] = fds[i];
        }
    }
    return vj_log_open_outside("varjfs", log_target(c),
                               c->debug ? VJ_LOG_DEBUG : VJ_LOG_INFO, outside, count,
                               error);
}

/* What the caller's shell is limited to says nothing about what others do in the
 * mount. */
static void lift_limit(int resource)
{
    struct rlimit limit;

    if (getrlimit(resource, &limit) < 0) {
        return;
    }
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(resource, &limit);
    /* Root may, where there is no other end. */
    limit.rlim_cur = limit.rlim_max = RLIM_INFINITY;
    (void)setrlimit(resource, &limit);
}

static bool is_confined(const Command *c)
{
    return strcmp(vj_opts_string(c->opts, "sandbox"), "off") != 0;
}

/*
 * What the daemon itself opens from now on is what its drivers need.  Before it reads
 * anything in SOURCE: another user may have written it.
 */
static void enter_sandbox(const Command *c)
{
    g_autofree char *test_dir = vj_front_test_directory();
    VJ_AUTO_FD test_fd = test_dir == NULL ? -1 : open(test_dir, O_PATH | O_CLOEXEC);
    g_autoptr(VjOptFiles) files = vj_opt_files_new();
    VjConfine how = {.owners = c->owners,
                     .files = files,
                     .has_syslog = g_strcmp0(log_target(c), "syslog") == 0,
                     .other_fd = test_fd};

    if (is_confined(c)) {
        vj_confine_to(c->place, &how);
        how.drivers = vj_confine_drivers(c->place, c->source, c->owners, files);
        vj_confine(&how);
    }
}

/* Root's word counts for what root wrote. */
static bool start_guard(Command *c, GError **error)
{
    VjMountPlan plan = {
        .source = c->source, .mountpoint = c->mountpoint, .is_confined = is_confined(c)};
    bool distrusted = geteuid() == 0 && c->owners.others_may_write &&
                      (vj_mount_flags(c->passed->str, MS_NOSUID | MS_NODEV) &
                       (MS_NOSUID | MS_NODEV)) != (MS_NOSUID | MS_NODEV);

    if (distrusted) {
        g_string_append(c->passed, ",nosuid,nodev");
        vj_log_warn(
            "%s: others than root may write there: mounted nosuid,nodev; a remount "
            "with suid or dev is believed",
            c->source);
    }
    plan.options = c->passed->str;
    c->guard = vj_guard_start(&plan, error);
    return c->guard != NULL;
}

/*
 * A thread that needs memory while there is little may have to wait until dirty pages are
 * written; those of the mount are written by this process.  Threads inherit this; without
 * CAP_SYS_RESOURCE it is refused, and the manual page says what that means.
 */
static void never_wait_for_own_pages(void)
{
    if (prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) < 0) {
        vj_log_debug("PR_SET_IO_FLUSHER: %s", g_strerror(errno));
    }
}

/* The daemon proper, in the background or not. */
static int run(Command *c)
{
    g_autoptr(GError) error = NULL;
    bool ok;
    int closed;

    lift_limit(RLIMIT_NOFILE);
    lift_limit(RLIMIT_FSIZE);
    lift_limit(RLIMIT_AS);
    lift_limit(RLIMIT_DATA);
    vj_front_block_signals();
    vj_trace_init();
    ok = vj_place_open(c->source, &c->place, &error) && open_log(c, &error);
    if (ok) {
        c->owners = vj_source_owners(c->place);
        ok = vj_source_is_ours(c->place, c->source, !vj_opts_flag(c->opts, "ro"), 0,
                               &error) &&
             start_guard(c, &error);
    }
    if (ok) {
        never_wait_for_own_pages();
        enter_sandbox(c);
        ok = serve(c, &error);
    }
    vj_guard_end(c->guard);
    closed = vj_place_close(g_steal_pointer(&c->place));
    g_assert(closed == 0); /* it is marked by a volume alone, which closes it */
    if (!ok) {
        if (c->ready_fd >= 0 || c->foreground) {
            vj_complain("varjfs", "%s", error->message);
        } else {
            vj_log_error("%s", error->message);
        }
        return EXIT_FAILURE;
    }
    vj_log_close();
    return EXIT_SUCCESS;
}

/*
 * What the caller had open is not ours to keep: a pipe would never end, a lock never be
 * given back.  Stays: @ready_fd, and the connection that mount.fuse3 hands over as
 * /dev/fd/N.
 */
static void close_inherited(const char *mountpoint, int ready_fd)
{
    unsigned keep[2] = {(unsigned)ready_fd, (unsigned)ready_fd};
    unsigned number;

    if (sscanf(mountpoint, "/dev/fd/%u", &number) == 1) {
        keep[0] = MIN(number, (unsigned)ready_fd);
        keep[1] = MAX(number, (unsigned)ready_fd);
    }
    if (keep[0] > STDERR_FILENO + 1) {
        (void)close_range(STDERR_FILENO + 1, keep[0] - 1, 0);
    }
    if (keep[1] > keep[0] + 1) {
        (void)close_range(MAX(keep[0], STDERR_FILENO) + 1, keep[1] - 1, 0);
    }
    (void)close_range(MAX(keep[1], STDERR_FILENO) + 1, ~0u, 0);
}

static int run_in_background(Command *c)
{
    int ends[2];
    pid_t child;

    if (pipe2(ends, O_CLOEXEC) < 0 || (child = fork()) < 0) {
        vj_complain("varjfs", "cannot start in the background: %s", g_strerror(errno));
        return EXIT_FAILURE;
    }
    if (child > 0) {
        close(ends[1]);
        return vj_cmd_wait_ready("varjfs", ends[0], child, "the mount was usable");
    }
    close(ends[0]);
    c->ready_fd = ends[1];
    close_inherited(c->mountpoint, c->ready_fd);
    setsid();
    {
        VJ_AUTO_FD null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

        if (null_fd >= 0) {
            dup2(null_fd, STDIN_FILENO);
        }
    }
    if (chdir("/") < 0) {
        return EXIT_FAILURE;
    }
    return run(c);
}

/* ---- remount ----------------------------------------------------------------------- */

/*
 * The kernel's part is all there is: a read-only mount sends no changes.
 *
 * mount(2) wants all flags, and the command line says only what is to change.  But where
 * mount(8) repeats what is in force, a flag that it left out is one that it was asked to
 * take away.
 */
static int remount(const Command *c)
{
    g_auto(VjMountEntry) entry = {.source = NULL};
    unsigned long before, wanted;

    if (!vj_mount_table_find(c->mountpoint, &entry)) {
        vj_complain("varjfs", "%s: cannot remount: no varjfs is mounted there",
                    c->mountpoint);
        return EXIT_FAILURE;
    }
    before = vj_mount_flags(entry.options, 0);
    wanted = vj_mount_flags(c->passed->str, c->is_repeated ? 0 : before);
    if ((before & MS_NOATIME) && !(wanted & MS_NOATIME)) {
        wanted |= MS_RELATIME; /* without any such flag the kernel keeps those in force */
    }
    if (mount(c->source, c->mountpoint, NULL, MS_REMOUNT | wanted, NULL) < 0) {
        vj_complain("varjfs", "%s: cannot remount: %s", c->mountpoint, g_strerror(errno));
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

/* ---- the command line -------------------------------------------------------------- */

/* In the background the working directory is another one. */
static bool resolve_paths(Command *c, const char *source, const char *mountpoint,
                          GError **error)
{
    const char *log = vj_opts_string(c->opts, "log");
    struct stat st;

    if (log != NULL && strcmp(log, "syslog") != 0 && strcmp(log, "stderr") != 0) {
        /* ".." stays: behind a symbolic link it is not what stands before it. */
        g_autofree char *here = g_get_current_dir();
        g_autofree char *path =
            g_path_is_absolute(log) ? g_strdup(log) : g_build_filename(here, log, NULL);

        if (!vj_opts_set(c->opts, "log", path, error)) {
            return false;
        }
    }
    c->source = realpath(source, NULL);
    if (c->source == NULL) {
        return vj_error_set_errno(error, errno, "%s", source);
    }
    if (g_str_has_prefix(mountpoint, "/dev/fd/")) {
        c->mountpoint = strdup(mountpoint);
        return true;
    }
    c->mountpoint = realpath(mountpoint, NULL);
    if (c->mountpoint == NULL) {
        return vj_error_set_errno(error, errno, "%s", mountpoint);
    }
    if (stat(c->mountpoint, &st) < 0) {
        return vj_error_set_errno(error, errno, "%s", mountpoint);
    }
    if (!S_ISDIR(st.st_mode)) {
        return vj_error_set_errno(error, ENOTDIR, "%s", mountpoint);
    }
    return true;
}

/* Arguments stand in any order, as mount(8) puts -o last. -1: go on; else the exit
 * code. */
static int parse_arguments(Command *c, int argc, char **argv, const char **place)
{
    g_autoptr(GError) error = NULL;
    VjTransform transform;
    unsigned places = 0;
    bool only_places = false;

    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];

        if (only_places || a[0] != '-' || a[1] == '\0') {
            if (places == 2) {
                return usage_error(a, "one argument too many");
            }
            place[places++] = a;
        } else if (strcmp(a, "--") == 0) {
            only_places = true;
        } else if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0) {
            usage(stdout);
            return EXIT_SUCCESS;
        } else if (strcmp(a, "--version") == 0 || strcmp(a, "-V") == 0) {
            printf("varjfs " VARJFS_VERSION "\n");
            return EXIT_SUCCESS;
        } else if (strcmp(a, "-f") == 0) {
            c->foreground = true;
        } else if (strcmp(a, "-d") == 0) {
            c->foreground = c->debug = true;
        } else if (a[1] == 'o') {
            const char *text = a[2] != '\0' ? a + 2 : i + 1 < argc ? argv[++i] : NULL;

            if (text == NULL) {
                return usage_error("-o", "options are missing");
            }
            if (!options_parse(c, text, &error)) {
                return usage_error("-o", error->message);
            }
        } else {
            return usage_error(a, "unknown option");
        }
    }
    if (vj_opts_string(c->opts, "transform") != NULL &&
        !vj_transform_parse(vj_opts_string(c->opts, "transform"), &transform, &error)) {
        return usage_error("-o", error->message);
    }
    if (places < 2) {
        return usage_error(places == 0 ? "SOURCE and MOUNTPOINT" : "MOUNTPOINT",
                           "missing");
    }
    return -1;
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    Command c = {.ready_fd = -1};
    const char *place[2] = {NULL, NULL};
    int status;

    vj_sandbox_refuse("varjfs");
    vj_memory_init(BUFFER_MOST);
    c.opts = vj_opts_new(mount_options);
    c.passed = g_string_new(NULL);
    status = parse_arguments(&c, argc, argv, place);
    if (status < 0 && !resolve_paths(&c, place[0], place[1], &error)) {
        vj_complain("varjfs", "%s", error->message);
        status = EXIT_FAILURE;
    }
    if (status < 0) {
        if (vj_opts_flag(c.opts, "ro")) {
            g_string_append(c.passed, c.passed->len > 0 ? ",ro" : "ro");
        }
        if (geteuid() == 0 || vj_opts_flag(c.opts, "allow_other")) {
            g_string_append(c.passed, c.passed->len > 0 ? ",allow_other" : "allow_other");
        }
        status = c.remount ? remount(&c) : c.foreground ? run(&c) : run_in_background(&c);
    }
    free(c.source);
    free(c.mountpoint);
    vj_opts_free(c.opts);
    g_string_free(c.passed, TRUE);
    return status;
}
