/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * front.c - the life of a mount: session, threads, signals, the orderly end
 *
 *   main thread      mounts, waits for the request threads, unmounts, frees
 *   request threads  serve.c; started when all others are busy
 *   edit threads     edit.c: may notify the kernel
 *   sync threads     wait for durability where request threads do not themselves; recode
 *   invalidator      invalidate.c: notifies the kernel of what others changed, and of
 *                    what a call that failed may have changed
 *   watch thread     interrupt.c: while callers of these have got signals
 *   releaser         interrupt.c: handles that the watch thread lets go
 *   control thread   reports that the mount is usable; waits for signals; serves no
 *                    requests, so it may sync the mount and wait for what is in flight
 */
#include "front/front-private.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

typedef struct Control {
    VjFront *front;
    const VjFrontConfig *config;
    sigset_t signals;
    char *failure; /* why the mount cannot be used; owned */
    bool detached; /* by us */
} Control;

static bool front_knows(void *opaque, uint64_t ino)
{
    VjFront *f = opaque;

    return vj_lookup_counts_has(f->lookups, ino);
}

/* ---- what other sessions change ---------------------------------------------------- */

static void drop_inode(void *opaque, uint64_t ino, bool content)
{
    VjFront *f = opaque;

    if (content) {
        (void)vj_edit_drop_pages(f, ino, 0, 0);
    } else {
        vj_front_attributes_stale(f, ino);
    }
}

/* -ENOENT: the kernel does not know it. */
static void drop_name(void *opaque, uint64_t dir, const char *name)
{
    VjFront *f = opaque;
    int r = fuse_lowlevel_notify_inval_entry(f->session, dir, name, strlen(name));

    vj_trace(front, "directory %" G_GUINT64_FORMAT ": invalidate \"%s\": %d", dir, name,
             r);
}

static void drop_all(void *opaque)
{
    VjFront *f = opaque;

    for (unsigned i = 0; i < VJ_LOOKUP_SHARDS; i++) {
        g_autoptr(GArray) inos = vj_lookup_counts_list(f->lookups, i);

        for (guint j = 0; j < inos->len && !fuse_session_exited(f->session); j++) {
            (void)vj_edit_drop_pages(f, g_array_index(inos, uint64_t, j), 0, 0);
        }
    }
}

static const VjInvalidateCalls invalidate_calls = {
    .inode = drop_inode, .name = drop_name, .all = drop_all};

static void on_inode_changed(void *opaque, uint64_t ino, bool content)
{
    VjFront *f = opaque;

    vj_invalidate_inode(f->invalidator, ino, content);
}

static void on_name_changed(void *opaque, uint64_t dir, const char *name)
{
    VjFront *f = opaque;

    vj_invalidate_name(f->invalidator, dir, name);
}

static void on_all_changed(void *opaque)
{
    VjFront *f = opaque;

    vj_invalidate_all(f->invalidator);
}

static void visit_requests(void *opaque, VjCallVisit *visit, void *visitor)
{
    VjFront *f = opaque;

    vj_count_visit(f->count, visit, visitor);
}

static unsigned list_files(void *opaque, VjFsBusy out[VJ_BUSIEST_MAX])
{
    VjFront *f = opaque;

    return vj_count_busiest_files(f->count, out);
}

static unsigned list_threads(void *opaque, VjFsBusy out[VJ_BUSIEST_MAX])
{
    VjFront *f = opaque;

    return vj_count_busiest_threads(f->count, out);
}

static const VjFsRequests fs_requests = {.visit = visit_requests,
                                         .busiest_files = list_files,
                                         .busiest_threads = list_threads};

static const VjFsEvents fs_events = {.inode_changed = on_inode_changed,
                                     .name_changed = on_name_changed,
                                     .all_changed = on_all_changed};

static void begin_invalidating(VjFront *f)
{
    f->invalidator = vj_invalidator_new(&invalidate_calls, f);
    if (f->is_shared) {
        vj_fs_listen(f->fs, &fs_events, f);
    }
}

static void end_invalidating(VjFront *f)
{
    if (f->invalidator != NULL) {
        if (f->is_shared) {
            vj_fs_listen(f->fs, NULL, NULL);
        }
        vj_invalidator_free(g_steal_pointer(&f->invalidator));
    }
}

/* ---- the control thread ------------------------------------------------------------ */

static bool is_fd_path(const char *path)
{
    return g_str_has_prefix(path, "/dev/fd/");
}

/* The mount is usable when a request has gone through the kernel and back. */
static bool mount_usable(Control *c)
{
    VjFront *f = c->front;
    bool ended;

    vj_mutex_lock(&f->lock);
    while (!f->initialised && !f->ended) {
        vj_cond_wait(&f->changed, &f->lock);
    }
    ended = f->ended;
    vj_mutex_unlock(&f->lock);
    if (ended) {
        c->failure = g_strdup("the kernel ended the connection");
        return false;
    }
    return vj_guard_watch(c->config->guard, f, &c->failure);
}

static bool front_ended(VjFront *f)
{
    bool ended;

    vj_mutex_lock(&f->lock);
    ended = f->ended;
    vj_mutex_unlock(&f->lock);
    return ended;
}

static void end_loop(Control *c)
{
    VjFront *f = c->front;

    fuse_session_exit(f->session);
    vj_mutex_lock(&f->lock);
    f->ending = true;
    vj_cond_broadcast(&f->changed);
    while (!f->ended) {
        vj_cond_wait(&f->changed, &f->lock);
    }
    vj_mutex_unlock(&f->lock);
}

static gpointer control_thread(gpointer data)
{
    Control *c = data;
    VjFront *f = c->front;
    int signal_number = 0;

    if (!mount_usable(c)) {
        if (!front_ended(f)) {
            end_loop(c);
        }
        return NULL;
    }
    if (c->config->ready != NULL) {
        c->config->ready(c->config->opaque);
    }
    while (sigwait(&c->signals, &signal_number) != 0) {
    }
    if (front_ended(f)) {
        return NULL;
    }
    vj_log_info("%s: %s: unmounting", f->mountpoint, g_strsignal(signal_number));
    if (!is_fd_path(f->mountpoint)) {
        vj_guard_sync(c->config->guard);
        vj_guard_detach(c->config->guard);
        c->detached = true;
    }
    vj_invalidator_stop(f->invalidator);
    vj_editor_stop(f->editor);
    end_loop(c);
    return NULL;
}

/* ---- the session ------------------------------------------------------------------- */

static void wake_handler(int signal_number)
{
    (void)signal_number;
}

/* The options that mount(2) and fusermount3 want, the guard gives them. */
static bool session_new(VjFront *f, const VjFrontConfig *config, GError **error)
{
    const char *argv[] = {"varjfs", "-d"};
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);

    for (size_t i = 0; i < (config->debug ? 2u : 1u); i++) {
        if (fuse_opt_add_arg(&args, argv[i]) != 0) {
            fuse_opt_free_args(&args);
            return vj_error_set(error, ENOMEM, "no memory for the FUSE session");
        }
    }
    f->session = fuse_session_new(&args, &vj_front_ops, sizeof vj_front_ops, f);
    fuse_opt_free_args(&args);
    return f->session != NULL ||
           vj_error_set(error, ENOMEM, "libfuse cannot make a session");
}

static void release_left_handles(VjFront *f)
{
    GHashTableIter iter;
    gpointer h;

    /* The kernel is gone, and vj_front_await_waits has returned: no other thread adds or
     * takes any more. */
    g_hash_table_iter_init(&iter, f->handles);
    while (g_hash_table_iter_next(&iter, &h, NULL)) {
        vj_fs_release(f->fs, h);
    }
    g_hash_table_remove_all(f->handles);
}

static void tell_changed(VjFront *f, uint64_t ino)
{
    vj_editor_stale(f->editor, ino, 0, VJ_FILE_SIZE_MAX);
}

static VjFront *front_new(VjFs *fs, const char *mountpoint)
{
    VjFront *f = g_new0(VjFront, 1);

    f->fs = fs;
    f->mountpoint = mountpoint;
    vj_mutex_init(&f->lock, VJ_RANK_FRONT, "front");
    vj_cond_init(&f->changed);
    f->handles = g_hash_table_new(NULL, NULL);
    g_queue_init(&f->sync_jobs);
    g_queue_init(&f->let_go);
    f->tell_changed = tell_changed;
    f->waiting = g_hash_table_new(NULL, NULL);
    f->interrupted = g_ptr_array_new();
    f->served = g_ptr_array_new();
    f->wait_us = vj_fs_is_far(fs) ? VJ_FRONT_FAR_US : INT64_MAX;
    f->is_shared = vj_fs_is_shared(fs);
    f->awaited = g_hash_table_new(NULL, NULL);
    f->left = g_hash_table_new(NULL, NULL);
    f->count = vj_count_new();
    f->lookups = vj_lookup_counts_new();
    f->dir_streams = vj_dir_streams_new();
    f->coherence = vj_coherence_new();
    f->staged = vj_staged_edits_new();
    return f;
}

static void front_free(VjFront *f)
{
    if (f->session != NULL) {
        fuse_session_destroy(f->session);
    }
    vj_delays_clear(&f->delays);
    vj_staged_edits_free(f->staged);
    vj_coherence_free(f->coherence);
    vj_dir_streams_free(f->dir_streams);
    vj_lookup_counts_free(f->lookups);
    vj_count_free(f->count);
    g_hash_table_unref(f->handles);
    g_hash_table_unref(f->waiting);
    g_ptr_array_unref(f->interrupted);
    g_ptr_array_unref(f->served);
    g_assert(g_hash_table_size(f->awaited) == 0 && g_hash_table_size(f->left) == 0);
    g_hash_table_unref(f->awaited);
    g_hash_table_unref(f->left);
    vj_cond_clear(&f->changed);
    vj_mutex_clear(&f->lock);
    g_free(f);
}

static void fill_signals(sigset_t *signals)
{
    sigemptyset(signals);
    sigaddset(signals, SIGTERM);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGHUP);
}

void vj_front_block_signals(void)
{
    struct sigaction wake = {.sa_handler = wake_handler};
    sigset_t signals;

    fill_signals(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    sigaction(VJ_FRONT_WAKE_SIGNAL, &wake, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond "ulimit -f" is EFBIG, not the end */
}

/*
 * libfuse talks through one function for the whole process.  What it says while it mounts
 * is why it could not; later it is for the operator.
 */
static GString *fuse_said;

static void fuse_log_line(enum fuse_log_level level, const char *format, va_list args)
    G_GNUC_PRINTF(2, 0);

static void fuse_log_line(enum fuse_log_level level, const char *format, va_list args)
{
    g_autofree char *text = g_strdup_vprintf(format, args);

    g_strchomp(text);
    if (text[0] == '\0') {
        return;
    }
    if (fuse_said != NULL) {
        g_string_append_printf(fuse_said, "%s%s", fuse_said->len > 0 ? "; " : "", text);
    } else if (level <= FUSE_LOG_WARNING) {
        vj_log_warn("libfuse: %s", text);
    } else {
        fprintf(stderr, "%s\n", text); /* -d asked for it */
    }
}

static bool session_take(VjFront *f, const char *connection, GError **error)
{
    bool mounted;

    fuse_said = g_string_new(NULL);
    errno = 0;
    mounted = fuse_session_mount(f->session, connection) == 0;
    if (!mounted) {
        const char *why = fuse_said->len > 0 ? fuse_said->str
                          : errno != 0       ? g_strerror(errno)
                                             : "libfuse does not say why";

        (void)vj_error_set(error, errno != 0 ? errno : EIO, "%s: cannot mount: %s",
                           f->mountpoint, why);
    }
    g_string_free(fuse_said, TRUE);
    fuse_said = NULL;
    return mounted;
}

static bool session_mount(VjFront *f, const VjFrontConfig *config, GError **error)
{
    g_autofree char *connection = NULL;
    int fd;

    if (is_fd_path(f->mountpoint)) {
        return session_take(f, f->mountpoint, error);
    }
    fd = vj_guard_mount(config->guard, error);
    if (fd < 0) {
        return false;
    }
    connection = g_strdup_printf("/dev/fd/%d", fd);
    if (session_take(f, connection, error)) {
        return true; /* the session owns it */
    }
    vj_guard_detach(config->guard);
    close(fd);
    return false;
}

/* The mount was unmounted, or its connection ended, by another process. */
static bool kernel_ended(const VjFront *f)
{
    struct pollfd p = {.fd = fuse_session_fd(f->session)};

    return poll(&p, 1, 0) == 1 && (p.revents & POLLERR) != 0;
}

/* From the mount to its end, with all threads. */
static bool front_serve(VjFront *f, const VjFrontConfig *config, GError **error)
{
    Control control = {.front = f, .config = config};
    g_autoptr(GError) failed = NULL;
    pthread_t thread;
    int r;

    fill_signals(&control.signals);
    vj_fs_set_knows(f->fs, front_knows, f);
    vj_fs_set_requests(f->fs, &fs_requests, f);
    f->editor = vj_editor_new(f);
    begin_invalidating(f);
    f->syncers =
        g_thread_pool_new(vj_front_sync_job, f, VJ_FRONT_SYNC_THREADS_MAX, FALSE, NULL);
    f->sync_reserve = g_thread_pool_new(vj_front_sync_job, f, 1, TRUE, &failed);
    if (f->sync_reserve == NULL || failed != NULL) {
        g_error("no thread for durability: %s", failed != NULL ? failed->message : "?");
    }
    f->releaser = g_thread_pool_new(vj_front_release_left, f, 1, TRUE, &failed);
    if (f->releaser == NULL || failed != NULL) {
        g_error("no thread for handles: %s", failed != NULL ? failed->message : "?");
    }
    f->watchers = g_thread_pool_new(vj_front_watch, f, 1, FALSE, NULL);
    r = pthread_create(&thread, NULL, control_thread, &control);
    if (r != 0) {
        g_error("no thread to wait for signals: %s", g_strerror(r));
    }

    r = vj_serve(f, f->delays.threads);

    vj_mutex_lock(&f->lock);
    f->ended = true;
    vj_cond_broadcast(&f->changed);
    vj_mutex_unlock(&f->lock);
    pthread_kill(thread, SIGTERM);
    pthread_join(thread, NULL);
    vj_front_await_waits(f);
    /* No request waits: at most calls are left for which no thread was there, and nothing
     * to do. */
    g_thread_pool_free(f->syncers, TRUE, TRUE);
    g_thread_pool_free(f->sync_reserve, TRUE, TRUE);
    g_thread_pool_free(f->watchers, FALSE, TRUE);
    g_thread_pool_free(f->releaser, FALSE, TRUE);
    /* Race checkers do not see that their threads have ended. */
    vj_mutex_lock(&f->lock);
    vj_mutex_unlock(&f->lock);
    vj_invalidator_stop(f->invalidator);
    end_invalidating(f);
    vj_editor_stop(f->editor);
    if (!control.detached && !is_fd_path(f->mountpoint) && !kernel_ended(f)) {
        vj_guard_detach(config->guard);
    }
    release_left_handles(f);
    vj_fs_set_knows(f->fs, NULL, NULL);
    vj_fs_set_requests(f->fs, NULL, NULL);
    vj_editor_free(f->editor);
    if (control.failure != NULL) {
        (void)vj_error_set(error, EIO, "%s: %s", f->mountpoint, control.failure);
        g_free(control.failure);
        return false;
    }
    if (r < 0) {
        return vj_error_set_errno(error, -r, "%s: the connection to the kernel broke",
                                  f->mountpoint);
    }
    return true;
}

bool vj_front_run(const VjFrontConfig *config, GError **error)
{
    VjFront *f = front_new(config->fs, config->mountpoint);
    bool ok = false;

    if (g_getenv("VARJFS_TEST_DELAY") != NULL) {
        vj_log_warn("test: requests are held up: %s", g_getenv("VARJFS_TEST_DELAY"));
    }
    f->busy_poll_us = config->busy_poll_us;
    fuse_set_log_func(fuse_log_line);
    if (vj_delays_parse(g_getenv("VARJFS_TEST_DELAY"), &f->delays, error) &&
        session_new(f, config, error) && session_mount(f, config, error)) {
        ok = front_serve(f, config, error);
    }
    front_free(f);
    return ok;
}
