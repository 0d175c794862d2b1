/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Every text that chooses something: mount options and the daemon's command line, options
 * of mkfs, specifications of drivers and wrappers, object sizes, transformations, test
 * switches.  The first byte says which.  Each is taken, or refused in one line; what was
 * taken and is written out means the same.
 */
#include "fuzz.h"

#include <stdio.h>

#include "chunk/chunk.h"
#include "codec/codec.h"
#include "front/front-private.h"
#include "volume/volume-private.h"

#include "../lib/mem-meta.h"

/* The daemon's own parsers are static, and its usage goes nowhere. */
static FILE *nowhere;
#undef stderr
#undef stdout
#define stderr nowhere
#define stdout nowhere
#define printf(...) fprintf(nowhere, __VA_ARGS__)
int varjfs_main(int argc, char **argv);
#define main varjfs_main
#include "../../src/cmd/varjfs.c"
#undef main
#undef printf

static void expect_refusal(const GError *error)
{
    g_assert(error != NULL && error->code > 0);
    fuzz_expect_line(error->message);
}

static void try_daemon(const uint8_t *data, size_t len)
{
    g_autoptr(GPtrArray) words = g_ptr_array_new_with_free_func(g_free);
    Command c = {.ready_fd = -1};
    const char *place[2] = {NULL, NULL};
    int status;

    g_ptr_array_add(words, g_strdup("varjfs"));
    while (len > 0 && words->len < 20) {
        size_t word = strnlen((const char *)data, len);

        g_ptr_array_add(words, g_strdup_printf("%.*s", (int)word, (const char *)data));
        data += MIN(word + 1, len);
        len -= MIN(word + 1, len);
    }
    g_ptr_array_add(words, NULL);
    c.opts = vj_opts_new(mount_options);
    c.passed = g_string_new(NULL);
    status = parse_arguments(&c, (int)words->len - 1, (char **)words->pdata, place);
    g_assert(status == -1 || status == EXIT_SUCCESS || status == EXIT_USAGE);
    g_assert(status != -1 || (place[0] != NULL && place[1] != NULL));
    vj_opts_free(c.opts);
    g_string_free(c.passed, TRUE);
}

/* Nothing but known words is passed on, so that no option of libfuse can be slipped
 * in. */
static void try_mount(const char *text)
{
    g_autoptr(GError) error = NULL;
    Command c = {.opts = vj_opts_new(mount_options), .passed = g_string_new(NULL)};
    g_auto(GStrv) words = NULL;

    if (!options_parse(&c, text, &error)) {
        expect_refusal(error);
    }
    words = g_strsplit(c.passed->str, ",", -1);
    for (char **word = words; *word != NULL; word++) {
        g_assert(in_list(passed_options, *word));
    }
    g_assert(vj_opts_number(c.opts, "commit") - 1 < 3600);
    g_assert(vj_opts_number(c.opts, "dirty") >= VJ_DIRTY_LEAST);
    vj_opts_free(c.opts);
    g_string_free(c.passed, TRUE);
}

static void try_mkfs(const char *text)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(VjOpts) o = vj_opts_new(vj_volume_make_options);

    if (!vj_opts_parse(o, text, &error)) {
        expect_refusal(error);
    }
}

/* A directory that holds nothing of ours and in which nothing can be made. */
#define EMPTY_PLACE "/proc/self/task"

static int empty_dir(void)
{
    static int fd = -1;

    if (fd < 0) {
        fd = open(EMPTY_PLACE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        g_assert(fd >= 0);
    }
    return fd;
}

static void try_store(const char *text)
{
    const VjStorePlace place = {.dir_fd = empty_dir(), .path = EMPTY_PLACE};
    g_autoptr(GError) error = NULL;
    VjStore *store = NULL, *wrapped;

    if (!vj_store_open(text, &place, &store, &error)) {
        expect_refusal(error);
        g_clear_error(&error);
    }
    vj_store_close(store);
    g_assert(vj_store_open("memory", &place, &store, NULL));
    if (vj_store_wrap(text, store, &wrapped, &error)) {
        store = wrapped;
    } else {
        expect_refusal(error);
    }
    vj_store_close(store);
}

static void try_meta(const char *text)
{
    const VjMetaPlace place = {.dir_fd = empty_dir(), .path = EMPTY_PLACE};
    g_autoptr(GError) error = NULL;
    VjMeta *meta, *wrapped;

    if (vj_meta_open(text, &place, &meta, &error)) {
        g_assert(vj_meta_close(meta) == 0);
    } else {
        expect_refusal(error);
        g_clear_error(&error);
    }
    meta = mem_meta_new();
    if (vj_meta_wrap(text, meta, &wrapped, &error)) {
        meta = wrapped;
    } else {
        expect_refusal(error);
    }
    (void)!vj_meta_close(meta);
}

static void try_sizes(const char *text, const VjChunkerOps *ops)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *plain = NULL;
    VjChunkSizes sizes, again;

    if (!vj_chunk_sizes_parse(ops, text, &sizes, &error)) {
        expect_refusal(error);
        return;
    }
    g_assert(sizes.min_bytes <= sizes.avg_bytes && sizes.avg_bytes <= sizes.max_bytes);
    plain = ops->id == VJ_CHUNK_ID_MINCDC
                ? g_strdup_printf("%u", sizes.avg_bytes)
                : g_strdup_printf("%u:%u:%u", sizes.min_bytes, sizes.avg_bytes,
                                  sizes.max_bytes);
    g_assert(vj_chunk_sizes_parse(ops, plain, &again, NULL));
    g_assert(memcmp(&again, &sizes, sizeof sizes) == 0);
}

static void try_transform(const char *text)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *once = NULL, *twice = NULL;
    VjTransform t = {.mode = VJ_MODE_TRANSPORT}, again = {.mode = VJ_MODE_TRANSPORT};

    if (!vj_transform_parse(text, &t, &error)) {
        expect_refusal(error);
        return;
    }
    once = vj_transform_text(&t);
    g_assert(vj_transform_parse(once, &again, NULL));
    twice = vj_transform_text(&again);
    g_assert(strcmp(once, twice) == 0 && memcmp(&t, &again, sizeof t) == 0);
    g_assert(t.mode == VJ_MODE_TRANSPORT);
}

static void try_delays(const char *text)
{
    g_autoptr(GError) error = NULL;
    VjDelays delays;

    if (!vj_delays_parse(text, &delays, &error)) {
        expect_refusal(error);
    }
    vj_delays_clear(&delays);
}

FUZZ_MUTATIONS(200);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    g_autofree char *text = NULL;

    if (len == 0) {
        return 0;
    }
    fuzz_quiet();
    if (nowhere == NULL) {
        nowhere = fopen("/dev/null", "w");
    }
    text = g_strndup((const char *)data + 1, len - 1);
    switch (data[0] % 9) {
    case 0:
        try_daemon(data + 1, len - 1);
        break;
    case 1:
        try_mount(text);
        break;
    case 2:
        try_mkfs(text);
        break;
    case 3:
        try_store(text);
        break;
    case 4:
        try_meta(text);
        break;
    case 5:
    case 6:
        try_sizes(text, vj_chunk_nth(data[0] % 9 - 5));
        break;
    case 7:
        try_transform(text);
        break;
    default:
        try_delays(text);
        break;
    }
    return 0;
}
