/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-calls.c - counts, bytes and latencies of calls by kind, as the daemon tells them:
 * read, and as a table, JSON and Prometheus histograms
 */
#include "cmd/ctl-calls.h"

#include "varjfs/ioctl.h"

#include <stdlib.h>

/* Edges of a histogram for Prometheus: powers of 4 of a nanosecond, 1 us to 17 s.  All of
 * our buckets would be a series each. */
#define EDGE_FIRST_BIT 10u
#define EDGE_LAST_BIT 34u

/* ---- reading ----------------------------------------------------------------------- */

static void calls_clear(gpointer opaque)
{
    VjCtlCalls *c = opaque;

    g_free(c->group);
    g_free(c->kind);
}

char *vj_ctl_field(char *const *fields, const char *name)
{
    size_t len = strlen(name);

    for (; *fields != NULL; fields++) {
        if (strncmp(*fields, name, len) == 0 && (*fields)[len] == '=') {
            return g_strdup(*fields + len + 1);
        }
    }
    return NULL;
}

bool vj_ctl_field_number(char *const *fields, const char *name, uint64_t *out)
{
    g_autofree char *text = vj_ctl_field(fields, name);

    return text != NULL && g_ascii_string_to_unsigned(text, 10, 0, UINT64_MAX, out, NULL);
}

/* A name that may stand in JSON and in labels as it is; owned, else NULL. */
static char *plain_name(char *const *fields, const char *name)
{
    g_autofree char *text = vj_ctl_field(fields, name);

    if (text == NULL || *text == '\0' ||
        text[strspn(text, "abcdefghijklmnopqrstuvwxyz_0123456789")] != '\0') {
        return NULL;
    }
    return g_steal_pointer(&text);
}

/* "BUCKET:NUMBER,…" */
static bool read_latencies(const char *text, VjCallSums *out)
{
    g_auto(GStrv) parts = g_strsplit(text, ",", VJ_LATENCY_BUCKETS + 1);

    for (char **part = parts; *part != NULL && **part != '\0'; part++) {
        char *colon = strchr(*part, ':');
        uint64_t bucket, number;

        if (colon == NULL) {
            return false;
        }
        *colon = '\0';
        if (!g_ascii_string_to_unsigned(*part, 10, 0, VJ_LATENCY_BUCKETS - 1, &bucket,
                                        NULL) ||
            !g_ascii_string_to_unsigned(colon + 1, 10, 0, UINT64_MAX, &number, NULL)) {
            return false;
        }
        out->buckets[bucket] += number;
        out->timed += number;
    }
    return true;
}

static bool calls_line(void *opaque, char *line)
{
    GArray *calls = opaque;
    g_auto(GStrv) fields = g_strsplit(line, " ", 64);
    g_autofree char *latencies = vj_ctl_field(fields, "latencies");
    VjCtlCalls c = {.group = plain_name(fields, "group"),
                    .kind = plain_name(fields, "kind")};

    if (c.group != NULL && c.kind != NULL && latencies != NULL &&
        vj_ctl_field_number(fields, "calls", &c.sums.calls) &&
        vj_ctl_field_number(fields, "failures", &c.sums.failures) &&
        vj_ctl_field_number(fields, "bytes", &c.sums.bytes) &&
        vj_ctl_field_number(fields, "total_ns", &c.sums.total_ns) &&
        vj_ctl_field_number(fields, "max_ns", &c.sums.max_ns) &&
        read_latencies(latencies, &c.sums)) {
        g_array_append_val(calls, c);
        return true;
    }
    calls_clear(&c);
    return false;
}

GArray *vj_ctl_calls(const VjCtl *ctl, const char *path, int fd)
{
    GArray *calls = g_array_new(FALSE, FALSE, sizeof(VjCtlCalls));

    g_array_set_clear_func(calls, calls_clear);
    if (!vj_ctl_text(ctl, path, fd, VARJFS_TEXT_CALLS, calls_line, calls)) {
        g_array_unref(calls);
        return NULL;
    }
    return calls;
}

/* ---- latencies --------------------------------------------------------------------- */

uint64_t vj_ctl_rank_ns(const VjCallSums *sums, unsigned permille)
{
    return MIN(vj_latency_rank_ns(sums->buckets, permille), sums->max_ns);
}

char *vj_ctl_duration(uint64_t ns)
{
    if (ns == 0) {
        return g_strdup("-");
    }
    if (ns < 1000) {
        return g_strdup_printf("%" G_GUINT64_FORMAT "ns", ns);
    }
    if (ns < 1000 * 1000) {
        return g_strdup_printf("%.1fus", (double)ns / 1e3);
    }
    if (ns < 1000 * 1000 * 1000) {
        return g_strdup_printf("%.1fms", (double)ns / 1e6);
    }
    return g_strdup_printf("%.1fs", (double)ns / 1e9);
}

/* ---- text -------------------------------------------------------------------------- */

static void print_row(const VjCtlCalls *c)
{
    g_autofree char *p50 = vj_ctl_duration(vj_ctl_rank_ns(&c->sums, 500));
    g_autofree char *p99 = vj_ctl_duration(vj_ctl_rank_ns(&c->sums, 990));
    g_autofree char *max = vj_ctl_duration(c->sums.max_ns);

    printf("%-16s %12" G_GUINT64_FORMAT " %10" G_GUINT64_FORMAT " %16" G_GUINT64_FORMAT
           " %9s %9s %9s\n",
           c->kind, c->sums.calls, c->sums.failures, c->sums.bytes, p50, p99, max);
}

void vj_ctl_calls_print_text(const GArray *calls)
{
    const char *group = "";

    for (guint i = 0; i < calls->len; i++) {
        const VjCtlCalls *c = &g_array_index(calls, VjCtlCalls, i);

        if (c->sums.calls == 0) {
            continue;
        }
        if (strcmp(c->group, group) != 0) {
            group = c->group;
            printf("\n%-16s %12s %10s %16s %9s %9s %9s\n", group, "calls", "failures",
                   "bytes", "p50", "p99", "max");
        }
        print_row(c);
    }
}

/* ---- JSON -------------------------------------------------------------------------- */

void vj_ctl_calls_print_json(const GArray *calls)
{
    const char *group = "";

    for (guint i = 0; i < calls->len; i++) {
        const VjCtlCalls *c = &g_array_index(calls, VjCtlCalls, i);
        bool is_first = strcmp(c->group, group) != 0;

        if (is_first) {
            printf("%s\n  \"%s\": {", *group == '\0' ? "" : "},", c->group);
            group = c->group;
        }
        printf("%s\n    \"%s\": {\"calls\": %" G_GUINT64_FORMAT
               ", \"failures\": %" G_GUINT64_FORMAT ", \"bytes\": %" G_GUINT64_FORMAT
               ", \"timed\": %" G_GUINT64_FORMAT ", \"total_ns\": %" G_GUINT64_FORMAT
               ", \"p50_ns\": %" G_GUINT64_FORMAT ", \"p99_ns\": %" G_GUINT64_FORMAT
               ", \"max_ns\": %" G_GUINT64_FORMAT "}",
               is_first ? "" : ",", c->kind, c->sums.calls, c->sums.failures,
               c->sums.bytes, c->sums.timed, c->sums.total_ns,
               vj_ctl_rank_ns(&c->sums, 500), vj_ctl_rank_ns(&c->sums, 990),
               c->sums.max_ns);
    }
    if (*group != '\0') {
        printf("}");
    }
}

/* ---- Prometheus -------------------------------------------------------------------- */

static void print_counter(const GArray *calls, const char *labels, const char *name,
                          const char *help, size_t offset)
{
    printf("# HELP varjfs_%s %s\n# TYPE varjfs_%s counter\n", name, help, name);
    for (guint i = 0; i < calls->len; i++) {
        const VjCtlCalls *c = &g_array_index(calls, VjCtlCalls, i);
        uint64_t value;

        memcpy(&value, (const char *)&c->sums + offset, sizeof value);
        if (c->sums.calls > 0) {
            printf("varjfs_%s{%s,group=\"%s\",kind=\"%s\"} %" G_GUINT64_FORMAT "\n", name,
                   labels, c->group, c->kind, value);
        }
    }
}

/* Calls in buckets that end at or before @end_ns. */
static uint64_t count_until(const VjCallSums *sums, uint64_t end_ns)
{
    uint64_t count = 0;

    for (unsigned i = 0; i < VJ_LATENCY_BUCKETS - 1 && vj_latency_bucket_end(i) <= end_ns;
         i++) {
        count += sums->buckets[i];
    }
    return count;
}

static void print_histogram(const VjCtlCalls *c, const char *labels)
{
    g_autofree char *all =
        g_strdup_printf("%s,group=\"%s\",kind=\"%s\"", labels, c->group, c->kind);
    char text[G_ASCII_DTOSTR_BUF_SIZE];

    for (unsigned bit = EDGE_FIRST_BIT; bit <= EDGE_LAST_BIT; bit += 2) {
        uint64_t end_ns = (uint64_t)1 << bit;

        printf("varjfs_call_seconds_bucket{%s,le=\"%s\"} %" G_GUINT64_FORMAT "\n", all,
               g_ascii_formatd(text, sizeof text, "%.9f", (double)end_ns / 1e9),
               count_until(&c->sums, end_ns));
    }
    printf("varjfs_call_seconds_bucket{%s,le=\"+Inf\"} %" G_GUINT64_FORMAT "\n", all,
           c->sums.timed);
    printf("varjfs_call_seconds_sum{%s} %s\n", all,
           g_ascii_formatd(text, sizeof text, "%.9f", (double)c->sums.total_ns / 1e9));
    printf("varjfs_call_seconds_count{%s} %" G_GUINT64_FORMAT "\n", all, c->sums.timed);
}

void vj_ctl_calls_print_prometheus(const GArray *calls, const char *labels)
{
    print_counter(calls, labels, "calls_total",
                  "Requests of the kernel, and calls of store and metadata.",
                  offsetof(VjCallSums, calls));
    print_counter(calls, labels, "call_failures_total",
                  "Of these, those that ended with an error.",
                  offsetof(VjCallSums, failures));
    print_counter(calls, labels, "call_bytes_total", "Bytes of content of these.",
                  offsetof(VjCallSums, bytes));
    printf("# HELP varjfs_call_seconds How long they took, of those that were timed.\n"
           "# TYPE varjfs_call_seconds histogram\n");
    for (guint i = 0; i < calls->len; i++) {
        const VjCtlCalls *c = &g_array_index(calls, VjCtlCalls, i);

        if (c->sums.calls > 0) {
            print_histogram(c, labels);
        }
    }
}
