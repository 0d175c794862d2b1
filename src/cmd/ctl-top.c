/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-top.c - varjfsctl top: what a mount does now
 *
 * The daemon counts since the mount; what came in an interval is the difference of two
 * readings.  On a terminal each interval takes the place of the one before, elsewhere
 * they follow each other.  Names of files and processes are other people's: nothing of
 * them reaches the terminal but what is printable.
 */
#include "cmd/ctl-calls.h"

#include "varjfs/ioctl.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* Rows of files and of processes, at most; of a low terminal an eighth of its lines. */
#define BUSY_ROWS 10u
#define INTERVAL_DEFAULT_MS 1000u

typedef struct Busy {
    uint64_t id, requests, over, bytes;
    char *name; /* owned; NULL: none is known */
} Busy;

/* One reading. */
typedef struct Reading {
    int64_t at_us;
    GArray *calls;               /* VjCtlCalls */
    GHashTable *files, *threads; /* of Busy by its id */
} Reading;

typedef struct Screen {
    bool is_terminal;
    unsigned lines_left, columns; /* of a terminal */
    unsigned busy_rows;           /* of files and of processes */
} Screen;

/* ---- reading ----------------------------------------------------------------------- */

static void busy_free(gpointer opaque)
{
    Busy *b = opaque;

    g_free(b->name);
    g_free(b);
}

static void reading_free(Reading *r)
{
    if (r->calls != NULL) {
        g_array_unref(r->calls);
    }
    g_hash_table_unref(r->files);
    g_hash_table_unref(r->threads);
    g_free(r);
}

G_DEFINE_AUTOPTR_CLEANUP_FUNC(Reading, reading_free)

/* "of=file id=… requests=… over=… bytes=… path=…": the path has the rest of the line. */
static bool busy_line(void *opaque, char *line)
{
    Reading *r = opaque;
    g_auto(GStrv) fields = g_strsplit(line, " ", 6);
    g_autofree char *of = vj_ctl_field(fields, "of");
    Busy found = {.name = NULL}, *b;
    GHashTable *table;

    if (of == NULL || !vj_ctl_field_number(fields, "id", &found.id) ||
        !vj_ctl_field_number(fields, "requests", &found.requests) ||
        !vj_ctl_field_number(fields, "over", &found.over) ||
        !vj_ctl_field_number(fields, "bytes", &found.bytes)) {
        return false;
    }
    found.name = vj_ctl_field(fields, "path");
    b = g_memdup2(&found, sizeof found);
    table = strcmp(of, "file") == 0 ? r->files : r->threads;
    g_hash_table_replace(table, &b->id, b);
    return true;
}

/* Nothing stays open, so that the mount can be unmounted meanwhile.  NULL after a
 * message. */
static Reading *read_now(const VjCtl *ctl, const char *path)
{
    VJ_AUTO_FD fd = vj_ctl_open(ctl, path, O_RDONLY);
    g_autoptr(Reading) r = g_new0(Reading, 1);

    r->files = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, busy_free);
    r->threads = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, busy_free);
    r->at_us = vj_clock_mono_us();
    r->calls = fd < 0 ? NULL : vj_ctl_calls(ctl, path, fd);
    if (r->calls == NULL ||
        !vj_ctl_text(ctl, path, fd, VARJFS_TEXT_BUSIEST, busy_line, r)) {
        return NULL;
    }
    return g_steal_pointer(&r);
}

/* ---- differences ------------------------------------------------------------------- */

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static const VjCtlCalls *find_calls(const GArray *calls, const VjCtlCalls *wanted)
{
    for (guint i = 0; i < calls->len; i++) {
        const VjCtlCalls *c = &g_array_index(calls, VjCtlCalls, i);

        if (strcmp(c->group, wanted->group) == 0 && strcmp(c->kind, wanted->kind) == 0) {
            return c;
        }
    }
    return NULL;
}

/* What came between the two.  The longest call of an interval is known by its bucket. */
static VjCallSums calls_between(const GArray *before, const VjCtlCalls *now)
{
    const VjCtlCalls *then = find_calls(before, now);
    VjCallSums d = now->sums;

    if (then != NULL) {
        d.calls = less(d.calls, then->sums.calls);
        d.failures = less(d.failures, then->sums.failures);
        d.bytes = less(d.bytes, then->sums.bytes);
        d.timed = less(d.timed, then->sums.timed);
        d.total_ns = less(d.total_ns, then->sums.total_ns);
        for (unsigned i = 0; i < VJ_LATENCY_BUCKETS; i++) {
            d.buckets[i] = less(d.buckets[i], then->sums.buckets[i]);
        }
    }
    d.max_ns = MIN(vj_latency_rank_ns(d.buckets, 1000), now->sums.max_ns);
    return d;
}

/* At least so many came between the two; exactly so many where its place stayed its
 * own. */
static Busy busy_between(GHashTable *before, const Busy *now)
{
    const Busy *then = g_hash_table_lookup(before, &now->id);
    Busy d = *now;

    if (then != NULL && then->over == now->over) {
        d.requests = less(now->requests, then->requests);
        d.bytes = less(now->bytes, then->bytes);
    } else {
        d.requests = less(now->requests, now->over);
    }
    return d;
}

static gint most_requests_first(gconstpointer a, gconstpointer b)
{
    const Busy *x = a, *y = b;

    if (x->requests != y->requests) {
        return x->requests > y->requests ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Those with requests, the busiest first; their names are borrowed. */
static GArray *busiest(GHashTable *before, GHashTable *now)
{
    GArray *all = g_array_new(FALSE, FALSE, sizeof(Busy));
    GHashTableIter iter;
    gpointer b;

    g_hash_table_iter_init(&iter, now);
    while (g_hash_table_iter_next(&iter, NULL, &b)) {
        Busy d = busy_between(before, b);

        if (d.requests > 0) {
            g_array_append_val(all, d);
        }
    }
    g_array_sort(all, most_requests_first);
    return all;
}

/* ---- processes --------------------------------------------------------------------- */

/* What /proc/ID/@name says; owned, NULL: it has ended. */
static char *proc_text(uint64_t id, const char *name)
{
    g_autofree char *path = g_strdup_printf("/proc/%" G_GUINT64_FORMAT "/%s", id, name);
    char *text = NULL;

    return g_file_get_contents(path, &text, NULL, NULL) ? text : NULL;
}

/* The process of a thread; 0: it has ended, or is not seen from here. */
static uint64_t process_of(uint64_t thread)
{
    g_autofree char *status = proc_text(thread, "status");
    const char *at = status == NULL ? NULL : strstr(status, "\nTgid:");

    return at == NULL ? 0 : g_ascii_strtoull(at + strlen("\nTgid:"), NULL, 10);
}

/* Threads of one process become one, and all that have ended; names are owned by
 * @names. */
static GArray *processes_of(const GArray *threads, GPtrArray *names)
{
    g_autoptr(GHashTable) sums = g_hash_table_new(g_int64_hash, g_int64_equal);
    GArray *all = g_array_new(FALSE, FALSE, sizeof(Busy));
    GHashTableIter iter;
    gpointer value;

    for (guint i = 0; i < threads->len; i++) {
        Busy *t = &g_array_index(threads, Busy, i), *p;

        t->id = process_of(t->id);
        p = g_hash_table_lookup(sums, &t->id);
        if (p != NULL) {
            p->requests += t->requests;
            p->bytes += t->bytes;
        } else {
            g_hash_table_insert(sums, &t->id, t);
        }
    }
    g_hash_table_iter_init(&iter, sums);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        g_array_append_vals(all, value, 1);
    }
    g_array_sort(all, most_requests_first);
    for (guint i = 0; i < MIN(all->len, BUSY_ROWS); i++) {
        Busy *p = &g_array_index(all, Busy, i);

        p->name = p->id == 0 ? g_strdup("(ended)") : proc_text(p->id, "comm");
        if (p->name != NULL) {
            g_strchomp(p->name);
            g_ptr_array_add(names, p->name);
        }
    }
    return all;
}

/* ---- the screen -------------------------------------------------------------------- */

static void screen_begin(Screen *s)
{
    struct winsize size = {.ws_row = 0};

    *s = (Screen){.is_terminal = isatty(STDOUT_FILENO) == 1, .busy_rows = BUSY_ROWS};
    if (s->is_terminal) {
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) {
            size = (struct winsize){.ws_row = 24, .ws_col = 80};
        }
        s->lines_left = size.ws_row - 1u;
        s->columns = MAX(size.ws_col, 20u);
        s->busy_rows = CLAMP(size.ws_row / 8u, 3u, BUSY_ROWS);
        printf("\033[H");
    }
}

/* A line of ours, in which names are printable; cut where the terminal ends. */
static void screen_line(Screen *s, const char *line)
{
    const char *end = line;

    if (!s->is_terminal) {
        printf("%s\n", line);
        return;
    }
    if (s->lines_left == 0) {
        return;
    }
    s->lines_left--;
    for (unsigned column = 0; *end != '\0'; end = g_utf8_next_char(end)) {
        column += g_unichar_iswide(g_utf8_get_char(end)) ? 2 : 1;
        if (column > s->columns) {
            break;
        }
    }
    printf("%.*s\033[K\n", (int)(end - line), line);
}

static void screen_end(const Screen *s)
{
    printf("%s", s->is_terminal ? "\033[J" : "\n");
}

/* ---- one interval ------------------------------------------------------------------ */

static char *rate(uint64_t amount, double seconds)
{
    return g_strdup_printf("%.1f", (double)amount / seconds);
}

static void show_head(Screen *s, const char *path, const Reading *before,
                      const Reading *now, double seconds)
{
    g_autoptr(GDateTime) time = g_date_time_new_now_local();
    g_autofree char *clock = g_date_time_format(time, "%H:%M:%S");
    g_autofree char *shown = vj_one_line(path);
    g_autofree char *line = NULL, *requests = NULL;
    uint64_t sum = 0, read = 0, written = 0;

    for (guint i = 0; i < now->calls->len; i++) {
        const VjCtlCalls *c = &g_array_index(now->calls, VjCtlCalls, i);
        VjCallSums d = calls_between(before->calls, c);

        if (strcmp(c->group, "request") == 0) {
            sum += d.calls;
            read += strcmp(c->kind, "read") == 0 ? d.bytes : 0;
            written += strcmp(c->kind, "write") == 0 ? d.bytes : 0;
        }
    }
    requests = rate(sum, seconds);
    line = g_strdup_printf("%s  %s  %.1fs  %s requests/s  read %.2f MiB/s  "
                           "written %.2f MiB/s",
                           clock, shown, seconds, requests,
                           (double)read / seconds / (double)VJ_MIB,
                           (double)written / seconds / (double)VJ_MIB);
    screen_line(s, line);
}

static void show_kind(Screen *s, const char *kind, const VjCallSums *d, double seconds)
{
    g_autofree char *calls = rate(d->calls, seconds);
    g_autofree char *failures = rate(d->failures, seconds);
    g_autofree char *bytes = rate(d->bytes, seconds);
    g_autofree char *p50 = vj_ctl_duration(vj_ctl_rank_ns(d, 500));
    g_autofree char *p99 = vj_ctl_duration(vj_ctl_rank_ns(d, 990));
    g_autofree char *max = vj_ctl_duration(d->max_ns);
    g_autofree char *line = g_strdup_printf("%-16s %12s %10s %16s %9s %9s %9s", kind,
                                            calls, failures, bytes, p50, p99, max);

    screen_line(s, line);
}

/* Of one group, what was called. */
static void show_calls(Screen *s, const char *group, const Reading *before,
                       const Reading *now, double seconds)
{
    bool has_head = false;

    for (guint i = 0; i < now->calls->len; i++) {
        const VjCtlCalls *c = &g_array_index(now->calls, VjCtlCalls, i);
        VjCallSums d = calls_between(before->calls, c);

        if (d.calls == 0 || strcmp(group, c->group) != 0) {
            continue;
        }
        if (!has_head) {
            g_autofree char *head =
                g_strdup_printf("%-16s %12s %10s %16s %9s %9s %9s", group, "calls/s",
                                "failures/s", "bytes/s", "p50", "p99", "max");

            has_head = true;
            screen_line(s, "");
            screen_line(s, head);
        }
        show_kind(s, c->kind, &d, seconds);
    }
}

static void show_busy(Screen *s, const char *what, const GArray *all, double seconds)
{
    g_autofree char *head =
        g_strdup_printf("%-16s %12s %16s  %s", what, "requests/s", "bytes/s", "name");

    if (all->len == 0) {
        return;
    }
    screen_line(s, "");
    screen_line(s, head);
    for (guint i = 0; i < MIN(all->len, s->busy_rows); i++) {
        const Busy *b = &g_array_index(all, Busy, i);
        g_autofree char *name = vj_one_line(b->name == NULL ? "-" : b->name);
        g_autofree char *requests = rate(b->requests, seconds);
        g_autofree char *bytes = rate(b->bytes, seconds);
        g_autofree char *id =
            b->id == 0 ? g_strdup("-") : g_strdup_printf("%" G_GUINT64_FORMAT, b->id);
        g_autofree char *line =
            g_strdup_printf("%-16s %12s %16s  %s", id, requests, bytes, name);

        screen_line(s, line);
    }
}

static void show(const char *path, const Reading *before, const Reading *now)
{
    double seconds = (double)MAX(now->at_us - before->at_us, 1) / 1e6;
    g_autoptr(GArray) files = busiest(before->files, now->files);
    g_autoptr(GArray) threads = busiest(before->threads, now->threads);
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GArray) processes = processes_of(threads, names);
    Screen s;

    screen_begin(&s);
    show_head(&s, path, before, now, seconds);
    show_calls(&s, "request", before, now, seconds);
    show_busy(&s, "inode", files, seconds);
    show_busy(&s, "process", processes, seconds);
    show_calls(&s, "store", before, now, seconds);
    show_calls(&s, "meta", before, now, seconds);
    screen_end(&s);
}

static void wait_until(int64_t at_us)
{
    struct timespec at = {.tv_sec = at_us / G_USEC_PER_SEC,
                          .tv_nsec = at_us % G_USEC_PER_SEC * 1000};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
}

int vj_ctl_top(const VjCtl *ctl)
{
    const char *path = ctl->operands[0];
    uint64_t interval_ms = ctl->interval_ms != 0 ? ctl->interval_ms : INTERVAL_DEFAULT_MS;
    g_autoptr(Reading) before = read_now(ctl, path);

    if (before == NULL) {
        return EXIT_FAILURE;
    }
    if (isatty(STDOUT_FILENO) == 1) {
        printf("\033[H\033[2J");
    }
    for (uint64_t i = 0; ctl->count == 0 || i < ctl->count; i++) {
        g_autoptr(Reading) now = NULL;

        wait_until(before->at_us + (int64_t)interval_ms * 1000);
        now = read_now(ctl, path);
        if (now == NULL) {
            return EXIT_FAILURE;
        }
        show(path, before, now);
        if (fflush(stdout) != 0) {
            return EXIT_FAILURE; /* the caller says why */
        }
        reading_free(before);
        before = g_steal_pointer(&now);
    }
    return EXIT_SUCCESS;
}
