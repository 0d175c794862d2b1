/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* rounds-report.c - violations are counted by kind, and the first ones told in full */
#include "rounds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void count_up(Report *r, const char *text)
{
    uint64_t *count = g_hash_table_lookup(r->counts, text);

    if (count == NULL) {
        count = g_new0(uint64_t, 1);
        g_hash_table_insert(r->counts, g_strdup(text), count);
    }
    *count += 1;
}

static uint64_t count_of(const Report *r, const char *text)
{
    const uint64_t *count = g_hash_table_lookup(r->counts, text);

    return count == NULL ? 0 : *count;
}

void report_round(const Report *r, const Round *round, const char *why)
{
    uint64_t from = UINT64_MAX;

    for (unsigned i = 0; i < round->op_count; i++) {
        from = MIN(from, round->ops[i].called_ns);
    }
    printf("%s: seed %" PRIu64 " round %" PRIu64 ", size before %" PRIu64 "\n", why,
           r->seed, r->round, round->before.size);
    for (unsigned i = 0; i < round->op_count; i++) {
        g_autoptr(GString) text = g_string_new(NULL);

        op_print(&round->ops[i], from, text);
        printf("    %u: %s\n", i, text->str);
    }
}

/* Where @bytes may come from: what was there before, or an operation. */
static void print_origin(const Round *round, const uint8_t *bytes, uint64_t len)
{
    const uint8_t *found;

    len = MIN(len, 8);
    if (bytes[0] == 0) {
        printf("zeroes");
        return;
    }
    found = memmem(round->before.bytes, round->before.size, bytes, len);
    if (found != NULL) {
        printf("old %td", found - round->before.bytes);
        return;
    }
    for (unsigned i = 0; i < round->op_count; i++) {
        const Op *op = &round->ops[i];

        found = memmem(op->bytes, MIN(op->len, OP_BYTES), bytes, len);
        if (found != NULL && op_classes[op->kind].changes) {
            printf("%u+%td", i, found - op->bytes);
            return;
        }
    }
    printf("unknown");
}

/* The first ranges in which two contents differ. */
void print_difference(const Round *round, const Content *seen, const Content *right)
{
    uint64_t least = MIN(seen->size, right->size);
    unsigned shown = 0;

    for (uint64_t at = 0; at < least && shown < 8;) {
        uint64_t end = at;

        while (end < least && seen->bytes[end] != right->bytes[end]) {
            end++;
        }
        if (end > at) {
            printf("    [%" PRIu64 ", %" PRIu64 "): ", at, end);
            print_origin(round, seen->bytes + at, end - at);
            printf(" instead of ");
            print_origin(round, right->bytes + at, end - at);
            printf("\n");
            shown++;
        }
        at = end + 1;
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of the operations, each with "direct " where it was. */
static char *ops_text(const Round *round)
{
    g_auto(GStrv) names = g_new0(char *, ROUND_OPS + 1);

    for (unsigned i = 0; i < round->op_count; i++) {
        const Op *op = &round->ops[i];

        names[i] =
            g_strconcat(op->direct ? "direct " : "", op_classes[op->kind].name, NULL);
    }
    qsort(names, round->op_count, sizeof *names, by_text);
    return g_strjoinv(" | ", names);
}

/* KERNEL_GROWTH takes a reader that loses the processor in one certain moment: what comes
 * more often than once in so many rounds is ours. */
#define GROWTH_ROUNDS 10000u

static bool is_too_often(Report *r, KernelFault by_kernel)
{
    return by_kernel == KERNEL_GROWTH && ++r->growths > 1 + r->round / GROWTH_ROUNDS;
}

bool report_violation(Report *r, const Round *round, const char *fault,
                      KernelFault by_kernel)
{
    bool is_ours = by_kernel == KERNEL_NONE || is_too_often(r, by_kernel);
    g_autofree char *ops = ops_text(round);
    g_autofree char *kind =
        is_ours
            ? g_strdup(fault)
            : g_strdup_printf("(kernel: %s) %s", kernel_fault_names[by_kernel], fault);
    g_autofree char *with_ops = g_strdup_printf("%s: %s", kind, ops);
    bool told;

    r->violations += is_ours;
    r->kernel_faults += !is_ours;
    count_up(r, kind);
    if (round->op_count == 2) {
        count_up(r, with_ops);
    }
    told = count_of(r, kind) <= r->show;
    if (told) {
        report_round(r, round, kind);
    }
    return told;
}

void report_figures(const Report *r, double seconds)
{
    guint count;
    g_autofree gpointer *texts = g_hash_table_get_keys_as_array(r->counts, &count);

    printf("%" PRIu64 " rounds in %.0f s (%.0f a second), %" PRIu64
           " violations, %" PRIu64 " faults of the kernel\n",
           r->round, seconds, (double)r->round / seconds, r->violations,
           r->kernel_faults);
    printf("operations:");
    for (unsigned i = 0; i < OP_KINDS; i++) {
        if (r->done[i] > 0) {
            printf(" %s %" PRIu64, op_classes[i].name, r->done[i]);
        }
    }
    printf("\n");
    qsort(texts, count, sizeof *texts, by_text);
    for (guint i = 0; i < count; i++) {
        printf("%8" PRIu64 "  %s\n", count_of(r, texts[i]), (const char *)texts[i]);
    }
}
