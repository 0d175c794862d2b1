/* SPDX-License-Identifier: LGPL-3.0-or-later */
#include "common.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

void options_usage(const ModelOption *options, size_t count)
{
    fprintf(stderr, "usage: %s", g_get_prgname());
    for (size_t i = 0; i < count; i++) {
        const ModelOption *o = &options[i];

        fprintf(stderr, o->value != NULL ? " [--%s %s]" : " [--%s]", o->name, o->value);
    }
    fprintf(stderr, "\n");
    exit(2);
}

static uint64_t number_of(const ModelOption *o, const char *text)
{
    uint64_t n;

    if (!g_ascii_string_to_unsigned(text, 10, o->least, o->most, &n, NULL)) {
        fprintf(stderr, "%s: --%s %s: not a number that fits\n", g_get_prgname(), o->name,
                text);
        exit(2);
    }
    return n;
}

static void take(const ModelOption *o, const char *value)
{
    if (o->number != NULL) {
        *o->number = number_of(o, value);
    } else if (o->count != NULL) {
        *o->count = (unsigned)number_of(o, value);
    } else if (o->text != NULL) {
        *o->text = value;
    } else {
        *o->flag = !o->is_off;
    }
}

static char *text_of(const ModelOption *options, size_t count)
{
    GString *text = g_string_new(NULL);

    for (size_t i = 0; i < count; i++) {
        const ModelOption *o = &options[i];

        if (o->number != NULL || o->count != NULL) {
            g_string_append_printf(text, " --%s %" G_GUINT64_FORMAT, o->name,
                                   o->number != NULL ? *o->number : *o->count);
        } else if (o->text != NULL && *o->text != NULL) {
            g_string_append_printf(text, " --%s '%s'", o->name, *o->text);
        } else if (o->text == NULL && *o->flag != o->is_off) {
            g_string_append_printf(text, " --%s", o->name);
        }
    }
    return g_string_free(text, FALSE);
}

char *options_parse(int argc, char **argv, const ModelOption *options, size_t count)
{
    g_autofree struct option *known = g_new0(struct option, count + 1);
    int at;

    g_set_prgname(argv[0]);
    for (size_t i = 0; i < count; i++) {
        known[i].name = options[i].name;
        known[i].has_arg = options[i].value != NULL ? required_argument : no_argument;
        known[i].flag = &at;
        known[i].val = (int)i;
    }
    for (;;) {
        int r = getopt_long(argc, argv, "", known, NULL);

        if (r == -1 && optind == argc) {
            return text_of(options, count);
        }
        if (r != 0) {
            options_usage(options, count);
        }
        take(&options[at], optarg);
    }
}

static unsigned weight_at(const Weight *weights, size_t i, size_t stride)
{
    return ((const Weight *)(const void *)((const char *)weights + i * stride))->weight;
}

size_t any_of(VjRng *rng, const Weight *weights, size_t count, size_t stride)
{
    uint64_t total = 0, chosen;
    size_t i = 0;

    for (i = 0; i < count; i++) {
        total += weight_at(weights, i, stride);
    }
    chosen = vj_rng_below(rng, total);
    for (i = 0; chosen >= weight_at(weights, i, stride); i++) {
        chosen -= weight_at(weights, i, stride);
    }
    return i;
}

size_t any_offset_of(VjRng *rng, const Shadow *s, size_t last)
{
    switch (vj_rng_below(rng, 8)) {
    case 0:
        return s->len;
    case 1:
        return s->len + vj_rng_below(rng, 10000);
    case 2:
    case 3:
        return MIN(last, s->len);
    case 4:
        return vj_rng_below(rng, MIN(s->len, 5000) + 1);
    default:
        return vj_rng_below(rng, s->len + 1);
    }
}

const char *any_transform(VjRng *rng)
{
    static const char *const transforms[] = {"none", "xor",   "xor:5a", "rle",
                                             "lz4",  "lz4:9", "zstd",   "zstd:-5"};

    return transforms[vj_rng_below(rng, G_N_ELEMENTS(transforms))];
}

uint64_t memory_kib(void)
{
    g_autofree char *text = NULL;
    const char *at;

    if (!g_file_get_contents("/proc/self/status", &text, NULL, NULL)) {
        g_error("/proc/self/status cannot be read");
    }
    at = strstr(text, "RssAnon:");
    if (at == NULL) {
        g_error("/proc/self/status has no RssAnon");
    }
    return g_ascii_strtoull(at + strlen("RssAnon:"), NULL, 10);
}
