/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * delay.c - VARJFS_TEST_DELAY: requests that are held up, so that tests can force races
 *
 * "write=300,read=300": milliseconds.  read: before a READ; read_reply: between it and
 * its answer; write: before a WRITE; pages: before one from the page cache; write_reply:
 * before the answer to either; stale: before what it left stale is invalidated; dropped:
 * between an invalidation of an edit and the look whether pages have come since; apply:
 * before an edit is applied, while READs wait; edit: when it is, before its answer, or
 * before the last invalidation where it was applied beside pages; fsync: before one;
 * attr_reply: before the answer to GETATTR, SETATTR or LINK; flags: before chattr(1) has
 * pages dropped; flushed: before the answer to the first of two calls of an edit, when
 * its pages are written back.
 *
 * hold=DIR: a request that comes to a point, say "write", while a test has the fifo
 * DIR/write open for reading, writes one byte to it and waits until it has read one from
 * DIR/write.go, or until no process has that open for writing.
 *
 * threads: how many request threads there are at most; tries: how often an edit begins
 * anew because pages have come; 0: it is applied beside them, also by ftruncate(2).
 *
 * For scripts/bench options: idle: how many request threads may wait; background: of the
 * kernel's requests; io_kib: the largest READ and WRITE; off: capabilities that are not
 * asked for, names of off_names joined by "+".
 */
#include "front/front-private.h"

#include <fcntl.h>
#include <unistd.h>

#define POINT(name_)                                                                     \
    {                                                                                    \
        .name = (name_), .type = VJ_OPT_NUMBER, .fallback = "0", .max = 60000,           \
        .help = "ms"                                                                     \
    }

/* First the points, in their order. */
static const VjOptSpec delay_options[] = {
    [VJ_HOLD_READ] = POINT("read"),
    [VJ_HOLD_READ_REPLY] = POINT("read_reply"),
    [VJ_HOLD_WRITE] = POINT("write"),
    [VJ_HOLD_PAGES] = POINT("pages"),
    [VJ_HOLD_WRITE_REPLY] = POINT("write_reply"),
    [VJ_HOLD_STALE] = POINT("stale"),
    [VJ_HOLD_APPLY] = POINT("apply"),
    [VJ_HOLD_EDIT] = POINT("edit"),
    [VJ_HOLD_FSYNC] = POINT("fsync"),
    [VJ_HOLD_ATTR_REPLY] = POINT("attr_reply"),
    [VJ_HOLD_FLAGS] = POINT("flags"),
    [VJ_HOLD_FLUSHED] = POINT("flushed"),
    [VJ_HOLD_DROPPED] = POINT("dropped"),
    {.name = "threads", .type = VJ_OPT_NUMBER, .min = 1, .max = 1024, .help = "count"},
    {.name = "tries", .type = VJ_OPT_NUMBER, .max = 1024, .help = "count"},
    {.name = "idle", .type = VJ_OPT_NUMBER, .min = 1, .max = 1024, .help = "count"},
    {.name = "background", .type = VJ_OPT_NUMBER, .min = 4, .max = 1024, .help = "count"},
    {.name = "io_kib", .type = VJ_OPT_NUMBER, .min = 4, .max = 1024, .help = "KiB"},
    {.name = "off", .type = VJ_OPT_STRING, .help = "names"},
    {.name = "hold", .type = VJ_OPT_STRING, .help = "directory of fifos"},
    {.name = NULL},
};

static const struct {
    const char *name;
    unsigned capability;
} off_names[] = {
    {"readdirplus", FUSE_CAP_READDIRPLUS},
    {"readdirplus_auto", FUSE_CAP_READDIRPLUS_AUTO},
    {"async_read", FUSE_CAP_ASYNC_READ},
    {"parallel_dirops", FUSE_CAP_PARALLEL_DIROPS},
    {"no_opendir", FUSE_CAP_NO_OPENDIR_SUPPORT},
};

static bool parse_off(const char *text, VjDelays *out, GError **error)
{
    g_auto(GStrv) names = g_strsplit(text, "+", -1);

    for (char **name = names; *name != NULL; name++) {
        unsigned found = 0;

        for (size_t i = 0; i < G_N_ELEMENTS(off_names); i++) {
            found |= strcmp(*name, off_names[i].name) == 0 ? off_names[i].capability : 0;
        }
        if (found == 0) {
            return vj_error_set(error, EINVAL, "VARJFS_TEST_DELAY: off=%s?", *name);
        }
        out->off |= found;
    }
    return true;
}

static unsigned number_or(const VjOpts *opts, const char *name, unsigned fallback)
{
    return vj_opts_is_set(opts, name) ? (unsigned)vj_opts_number(opts, name) : fallback;
}

bool vj_delays_parse(const char *text, VjDelays *out, GError **error)
{
    g_autoptr(VjOpts) opts = vj_opts_new(delay_options);

    *out = (VjDelays){.threads = VJ_FRONT_THREADS_MAX,
                      .tries = VJ_FRONT_EDIT_TRIES,
                      .idle = VJ_FRONT_THREADS_IDLE,
                      .background = VJ_FRONT_BACKGROUND_MAX,
                      .io_bytes = VJ_FRONT_IO_MAX};
    if (text == NULL) {
        return true;
    }
    if (!vj_opts_parse(opts, text, error)) {
        return vj_error_prefix(error, "VARJFS_TEST_DELAY");
    }
    for (unsigned i = 0; i < VJ_HOLD_POINTS; i++) {
        out->ms[i] = (unsigned)vj_opts_number(opts, delay_options[i].name);
    }
    out->threads = number_or(opts, "threads", out->threads);
    out->tries = number_or(opts, "tries", out->tries);
    out->idle = number_or(opts, "idle", out->idle);
    out->background = number_or(opts, "background", out->background);
    out->io_bytes = number_or(opts, "io_kib", out->io_bytes / 1024) * 1024;
    if (vj_opts_is_set(opts, "off") &&
        !parse_off(vj_opts_string(opts, "off"), out, error)) {
        return false;
    }
    if (vj_opts_is_set(opts, "hold")) {
        out->dir = g_strdup(vj_opts_string(opts, "hold"));
    }
    return true;
}

char *vj_front_test_directory(void)
{
    VjDelays delays;
    char *dir;

    /* A text that is wrong is refused when it is used. */
    if (!vj_delays_parse(g_getenv("VARJFS_TEST_DELAY"), &delays, NULL)) {
        return NULL;
    }
    dir = g_strdup(delays.dir);
    vj_delays_clear(&delays);
    return dir;
}

void vj_delays_clear(VjDelays *d)
{
    g_free(d->dir);
    d->dir = NULL;
}

/* A wait for what never comes, so that it ends by the clock. */
static void delay(unsigned ms)
{
    int64_t until_us = vj_clock_mono_us() + (int64_t)ms * 1000;
    VjMutex lock;
    VjCond never;

    vj_mutex_init(&lock, VJ_RANK_FRONT, "front delay");
    vj_cond_init(&never);
    vj_mutex_lock(&lock);
    while (vj_cond_wait_until(&never, &lock, until_us)) {
    }
    vj_mutex_unlock(&lock);
    vj_cond_clear(&never);
    vj_mutex_clear(&lock);
}

static void wait_for_test(const char *dir, const char *point)
{
    g_autofree char *path = g_strdup_printf("%s/%s", dir, point);
    g_autofree char *waited = g_strdup_printf("%s/%s.go", dir, point);
    VJ_AUTO_FD to_test = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    VJ_AUTO_FD from_test =
        to_test < 0 ? -1 : open(waited, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    char byte = 1;

    /* It was opened so that a test which goes away just now does not keep us. */
    if (from_test >= 0 && fcntl(from_test, F_SETFL, 0) == 0 &&
        write(to_test, &byte, 1) == 1) {
        vj_before_wait();
        while (read(from_test, &byte, 1) < 0 && errno == EINTR) {
        }
    }
}

void vj_front_hold(VjFront *f, VjHoldPoint point)
{
    if (G_UNLIKELY(f->delays.ms[point] > 0)) {
        delay(f->delays.ms[point]);
    }
    if (G_UNLIKELY(f->delays.dir != NULL)) {
        wait_for_test(f->delays.dir, delay_options[point].name);
    }
}
