/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-scrub.c - varjfsctl scrub: read and verify all objects, now or a part each night
 *
 * The daemon does one step at a time and keeps the place; between the steps a scrub
 * waits, so that it reads no faster than its options say.  A budget that is used up, and
 * a signal, end it there: a step is never cut off, so no finding goes astray.  Damaged
 * objects become names of files by walking the mount, and only when there are any.
 */
#include "cmd/ctl.h"

#include "varjfs/ioctl.h"

#include <fcntl.h>
#include <fts.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Damaged objects whose files are looked for; the others are counted. */
#define BAD_MOST 100000u
/* Between two lines of progress on a terminal. */
#define PROGRESS_US ((int64_t)250 * 1000)

/* What the daemon knows of scrubs (VARJFS_TEXT_SCRUB). */
typedef struct Progress {
    uint64_t place, pass_begun, pass_objects, pass_bytes, pass_damaged;
    uint64_t finished, last_begun, last_objects, last_bytes, last_damaged;
} Progress;

typedef struct Scrub {
    const VjCtl *ctl;
    const char *path;
    Progress before; /* the pass under way, when this run goes on with it; else zeroes */
    bool is_terminal;
    uint64_t expected_bytes; /* in all objects, for progress; 0: unknown */
    unsigned shown_percent;  /* not on a terminal: a line for each */
    int64_t begun_us, shown_us;
    uint64_t examined, examined_bytes, found;
    bool complete;
    /* Blocked during the steps: signals that end a scrub between two. */
    sigset_t stopping;
    int stopped_by;     /* one that came; 0: none */
    GHashTable *bad;    /* ids, as text of the map: 16 hexadecimal digits */
    uint64_t bad_files; /* that were shown */
    bool failed;
} Scrub;

/* ---- what the daemon knows --------------------------------------------------------- */

static bool progress_line(void *opaque, char *line)
{
    Progress *k = opaque;
    const struct {
        const char *key;
        uint64_t *value;
    } fields[] = {
        {"place", &k->place},
        {"pass_begun", &k->pass_begun},
        {"pass_objects", &k->pass_objects},
        {"pass_bytes", &k->pass_bytes},
        {"pass_damaged", &k->pass_damaged},
        {"finished", &k->finished},
        {"last_begun", &k->last_begun},
        {"last_objects", &k->last_objects},
        {"last_bytes", &k->last_bytes},
        {"last_damaged", &k->last_damaged},
    };
    const char *value = vj_ctl_split_pair(line);

    for (size_t i = 0; value != NULL && i < G_N_ELEMENTS(fields); i++) {
        if (strcmp(line, fields[i].key) == 0) {
            return g_ascii_string_to_unsigned(value, 10, 0, UINT64_MAX, fields[i].value,
                                              NULL);
        }
    }
    return value != NULL; /* a key of a newer daemon */
}

static bool stored_line(void *opaque, char *line)
{
    uint64_t *bytes = opaque;
    const char *value = vj_ctl_split_pair(line);

    return value != NULL &&
           (strcmp(line, "object_stored_bytes") != 0 ||
            g_ascii_string_to_unsigned(value, 10, 0, UINT64_MAX, bytes, NULL));
}

static char *time_text(uint64_t seconds)
{
    g_autoptr(GDateTime) date = g_date_time_new_from_unix_local(
        (gint64)MIN(seconds, (uint64_t)G_MAXINT64)); /* NULL beyond the year 9999 */

    return date == NULL ? g_strdup("?") : g_date_time_format(date, "%Y-%m-%d %H:%M:%S");
}

static void print_pass(const char *what, uint64_t at, uint64_t objects, uint64_t bytes,
                       uint64_t damaged)
{
    g_autofree char *text = time_text(at);

    printf("%s %s: %" G_GUINT64_FORMAT " objects, %" G_GUINT64_FORMAT
           " bytes read, %" G_GUINT64_FORMAT " objects damaged\n",
           what, text, objects, bytes, damaged);
}

static bool print_json_pair(void *opaque, char *line)
{
    bool *is_first = opaque;
    const char *value = vj_ctl_split_pair(line);
    g_autofree char *json = value == NULL ? NULL : vj_ctl_json_value(value);

    if (json != NULL) {
        printf("%s\n  \"%s\": %s", *is_first ? "{" : ",", line, json);
        *is_first = false;
    }
    return json != NULL;
}

static int show_status(const VjCtl *ctl, const char *path, int fd)
{
    bool json = ctl->format == VJ_CTL_JSON, is_first = true;
    Progress k = {.place = 0};

    if (!vj_ctl_text(ctl, path, fd, VARJFS_TEXT_SCRUB,
                     json ? print_json_pair : progress_line,
                     json ? (void *)&is_first : (void *)&k)) {
        return EXIT_FAILURE;
    }
    if (json) {
        printf("%s\n}\n", is_first ? "{" : "");
        return EXIT_SUCCESS;
    }
    if (k.finished != 0) {
        print_pass("finished", k.finished, k.last_objects, k.last_bytes, k.last_damaged);
    } else {
        printf("no scrub was finished yet\n");
    }
    if (k.place != 0) {
        print_pass("not finished, begun", k.pass_begun, k.pass_objects, k.pass_bytes,
                   k.pass_damaged);
    }
    return EXIT_SUCCESS;
}

/* ---- progress ---------------------------------------------------------------------- */

static void clear_progress(const Scrub *s)
{
    if (s->is_terminal) {
        fprintf(stderr, "\r\033[K");
    }
}

static unsigned percent_done(const Scrub *s, bool at_end)
{
    double done = (double)s->before.pass_bytes + (double)s->examined_bytes;

    if (at_end) {
        return 100;
    }
    /* Objects come and go meanwhile. */
    return s->expected_bytes == 0
               ? 0
               : (unsigned)MIN(99.0, 100.0 * done / (double)s->expected_bytes);
}

static void show_progress(Scrub *s, bool at_end)
{
    int64_t now = vj_clock_mono_us();
    unsigned percent = percent_done(s, at_end);
    bool is_due = s->is_terminal ? now - s->shown_us >= PROGRESS_US
                                 : s->ctl->progress && percent > s->shown_percent;

    if (is_due) {
        s->shown_us = now;
        s->shown_percent = percent;
        fprintf(stderr,
                "%s%3u%%: %" G_GUINT64_FORMAT " objects, %" G_GUINT64_FORMAT
                " MiB read, %" G_GUINT64_FORMAT " damaged%s",
                s->is_terminal ? "\r" : "", percent, s->before.pass_objects + s->examined,
                (s->before.pass_bytes + s->examined_bytes) >> 20,
                s->before.pass_damaged + s->found, s->is_terminal ? "\033[K" : "\n");
    }
}

/* ---- between two steps ------------------------------------------------------------- */

/* Signals that the parent has us ignore (nohup) stay ignored. */
static void block_signals(Scrub *s)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

    sigemptyset(&s->stopping);
    for (size_t i = 0; i < G_N_ELEMENTS(signals); i++) {
        struct sigaction now;

        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN) {
            sigaddset(&s->stopping, signals[i]);
        }
    }
    sigprocmask(SIG_BLOCK, &s->stopping, NULL);
}

/* Where @part of what is done in a second is due, in microseconds from now on. */
static int64_t rate_wait_us(const Scrub *s, int64_t now)
{
    double due;

    if (s->ctl->rate == 0) {
        return 0;
    }
    due = (double)s->examined_bytes / (double)s->ctl->rate * 1e6;
    return (int64_t)CLAMP(due - (double)(now - s->begun_us), 0.0, 1e15);
}

/* Reading took less time than the rate allows: waits for the rest.  False: stop here. */
static bool keep_pace(Scrub *s)
{
    int64_t now = vj_clock_mono_us(), left = rate_wait_us(s, now), time_left = INT64_MAX;
    struct timespec wait;

    if (s->ctl->max_time_s != 0) {
        time_left =
            s->begun_us + (int64_t)s->ctl->max_time_s * (int64_t)G_USEC_PER_SEC - now;
    }
    left = MAX(MIN(left, time_left), 0);
    wait = (struct timespec){.tv_sec = (time_t)(left / G_USEC_PER_SEC),
                             .tv_nsec = (long)(left % G_USEC_PER_SEC) * 1000};
    /* Another signal, SIGCONT say, ends the wait early: the next step makes up for it. */
    s->stopped_by = sigtimedwait(&s->stopping, NULL, &wait);
    if (s->stopped_by > 0) {
        return false;
    }
    s->stopped_by = 0;
    return left < time_left &&
           (s->ctl->max_bytes == 0 || s->examined_bytes < s->ctl->max_bytes);
}

/* ---- steps ------------------------------------------------------------------------- */

static void note_bad(Scrub *s, const struct varjfs_tend *io)
{
    for (uint64_t i = 0; i < MIN(io->bad_count, VARJFS_TEND_BAD); i++) {
        if (g_hash_table_size(s->bad) < BAD_MOST) {
            g_hash_table_add(s->bad, g_strdup_printf("%016" G_GINT64_MODIFIER "x",
                                                     (guint64)io->bad[i]));
        }
    }
}

/* Until the end, or until it is time to stop; false after a message. */
static bool run_steps(Scrub *s, int fd)
{
    struct varjfs_tend io = {.cursor = s->before.place};
    bool ok = true;

    s->begun_us = vj_clock_mono_us();
    do {
        ok = vj_ctl_tend_step(s->ctl, s->path, fd, VARJFS_TEND_SCRUB, &io);
        if (ok) {
            s->examined += io.examined;
            s->examined_bytes += io.examined_bytes;
            s->found += io.found;
            s->complete = io.cursor == VARJFS_TEND_END;
            note_bad(s, &io);
            show_progress(s, s->complete);
        }
    } while (ok && !s->complete && keep_pace(s));
    if (s->stopped_by ==
        0) { /* one that came during the last step: the report is first */
        s->stopped_by = sigtimedwait(&s->stopping, NULL, &(struct timespec){0});
    }
    clear_progress(s);
    return ok;
}

/* Where to begin, and how much there is.  False after a message. */
static bool look_around(Scrub *s, int fd)
{
    if (s->ctl->resume) {
        if (!vj_ctl_text(s->ctl, s->path, fd, VARJFS_TEXT_SCRUB, progress_line,
                         &s->before)) {
            return false;
        }
        if (s->before.place == 0) {
            s->before = (Progress){.place = 0};
        }
    }
    return (!s->is_terminal && !s->ctl->progress) ||
           vj_ctl_text(s->ctl, s->path, fd, VARJFS_TEXT_DF, stored_line,
                       &s->expected_bytes);
}

/* ---- the files of damaged objects -------------------------------------------------- */

typedef struct BadFile {
    Scrub *s;
    const char *path;
} BadFile;

static bool bad_extent(void *opaque, char *line)
{
    BadFile *f = opaque;
    Scrub *s = f->s;
    g_auto(GStrv) fields = g_strsplit(line, " ", 5);
    uint64_t offset, length;

    if (g_strv_length(fields) < 5 || !g_hash_table_contains(s->bad, fields[3])) {
        return g_strv_length(fields) >= 5;
    }
    offset = g_ascii_strtoull(fields[0], NULL, 10);
    length = g_ascii_strtoull(fields[1], NULL, 10);
    if (s->ctl->format == VJ_CTL_JSON) {
        g_autofree char *name = vj_ctl_json_string(f->path);

        printf("%s\n    {\"file\": %s, \"offset\": %" G_GUINT64_FORMAT
               ", \"length\": %" G_GUINT64_FORMAT ", \"object_id\": \"%s\"}",
               s->bad_files == 0 ? "" : ",", name, offset, length, fields[3]);
    } else {
        printf("%s: bytes %" G_GUINT64_FORMAT " to %" G_GUINT64_FORMAT
               " are in object %s, which is damaged\n",
               f->path, offset, offset + length - 1, fields[3]);
    }
    s->bad_files++;
    return true;
}

static void look_at_file(Scrub *s, const char *path)
{
    BadFile f = {.s = s, .path = path};
    VJ_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0) {
        if (errno != ENOENT) { /* gone meanwhile is fine */
            vj_cmd_fail_errno(s->ctl->cmd, path, errno);
            s->failed = true;
        }
        return;
    }
    if (!vj_ctl_text(s->ctl, path, fd, VARJFS_TEXT_MAP, bad_extent, &f)) {
        s->failed = true;
    }
}

/* Each file of the mount that has a damaged object. */
static void name_files(Scrub *s)
{
    char *roots[] = {(char *)(uintptr_t)s->path, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, NULL);
    FTSENT *e;

    if (walk == NULL) {
        vj_cmd_fail_errno(s->ctl->cmd, s->path, errno);
        s->failed = true;
        return;
    }
    while ((e = fts_read(walk)) != NULL) {
        if (e->fts_info == FTS_F && S_ISREG(e->fts_statp->st_mode)) {
            look_at_file(s, e->fts_path);
        } else if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR) {
            vj_cmd_fail_errno(s->ctl->cmd, e->fts_path, e->fts_errno);
            s->failed = true;
        }
    }
    fts_close(walk);
}

/* ---- the whole --------------------------------------------------------------------- */

static void print_result(const Scrub *s)
{
    printf("%s: %" G_GUINT64_FORMAT " objects, %" G_GUINT64_FORMAT
           " bytes read, %" G_GUINT64_FORMAT " objects damaged\n",
           s->path, s->examined, s->examined_bytes, s->found);
    if (s->before.place != 0) {
        printf("%s: before the interruption %" G_GUINT64_FORMAT
               " objects, %" G_GUINT64_FORMAT " bytes, %" G_GUINT64_FORMAT
               " objects damaged\n",
               s->path, s->before.pass_objects, s->before.pass_bytes,
               s->before.pass_damaged);
    }
    if (!s->complete) {
        printf("%s: not finished; varjfsctl scrub --resume goes on\n", s->path);
    }
}

static int report(Scrub *s)
{
    bool json = s->ctl->format == VJ_CTL_JSON;

    if (json) {
        printf("{\n  \"objects\": %" G_GUINT64_FORMAT ", \"bytes\": %" G_GUINT64_FORMAT
               ", \"damaged_objects\": %" G_GUINT64_FORMAT
               ",\n  \"complete\": %s, \"before_objects\": %" G_GUINT64_FORMAT
               ", \"before_bytes\": %" G_GUINT64_FORMAT
               ", \"before_damaged_objects\": %" G_GUINT64_FORMAT ",\n  \"damaged\": [",
               s->examined, s->examined_bytes, s->found, s->complete ? "true" : "false",
               s->before.pass_objects, s->before.pass_bytes, s->before.pass_damaged);
    }
    if (g_hash_table_size(s->bad) > 0) {
        name_files(s);
    }
    if (json) {
        printf("%s]\n}\n", s->bad_files > 0 ? "\n  " : "");
    } else {
        print_result(s);
    }
    return s->failed || s->found > 0 || (s->complete && s->before.pass_damaged > 0)
               ? EXIT_FAILURE
               : EXIT_SUCCESS;
}

int vj_ctl_scrub(const VjCtl *ctl)
{
    g_autoptr(GHashTable) bad =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    Scrub s = {.ctl = ctl,
               .path = ctl->operands[0],
               .is_terminal = isatty(STDERR_FILENO) != 0,
               .bad = bad};
    VJ_AUTO_FD fd = vj_ctl_open(ctl, s.path, O_RDONLY);
    int status;

    if (fd < 0) {
        return EXIT_FAILURE;
    }
    if (ctl->status) {
        return show_status(ctl, s.path, fd);
    }
    if (!look_around(&s, fd)) {
        return EXIT_FAILURE;
    }
    block_signals(&s);
    s.failed = !run_steps(&s, fd);
    sigprocmask(SIG_UNBLOCK, &s.stopping, NULL);
    status = s.failed && s.found == 0 ? EXIT_FAILURE : report(&s);
    if (s.stopped_by > 0) { /* the sender of the signal expects that end */
        (void)!fflush(stdout);
        raise(s.stopped_by);
    }
    return status;
}
