/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * What varjfsctl makes of texts that a daemon or a user chose: answers to its ioctls,
 * JSON strings and values, command lines.  What it prints as JSON is JSON.
 *
 * The first byte says which.  Its files are compiled in here with an ioctl that answers
 * what the input says, and a standard output in memory.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "varjfs/ioctl.h"

static VjReader answers;
static FILE *output;

/* Nothing of this machine is opened: what answers stands in the input. */
static bool is_mounted;

static int open_nothing(const char *path, int flags)
{
    (void)path;
    if (!is_mounted) {
        errno = ENOENT;
        return -1;
    }
    return (open)("/dev/null", flags & O_CLOEXEC);
}

/* A page of a hostile daemon: its length and cursor may be anything. */
static int answer(int fd, unsigned long request, ...)
{
    struct varjfs_text *page;
    va_list arguments;
    VjSlice text;

    (void)fd;
    if (request == VARJFS_IOC_PING) {
        return VARJFS_IOC_VERSION;
    }
    va_start(arguments, request);
    page = va_arg(arguments, struct varjfs_text *);
    va_end(arguments);
    if (request != VARJFS_IOC_TEXT || answers.left == 0) {
        errno = EIO;
        return -1;
    }
    page->len = vj_read_u16(&answers);
    page->cursor = page->len % 3 == 0 ? VARJFS_TEXT_END : page->cursor + 1;
    text = vj_read_bytes(&answers, MIN(answers.left, MIN(page->len, sizeof page->text)));
    memset(page->text, 'a', sizeof page->text);
    if (text.len > 0) {
        memcpy(page->text, text.data, text.len);
    }
    return 0;
}

static ssize_t answer_xattr(int fd, const char *name, void *dst, size_t cap)
{
    size_t len = MIN(answers.left, cap);

    (void)fd;
    (void)name;
    memcpy(dst, answers.at, len);
    answers.left -= len;
    return (ssize_t)len;
}

#define open open_nothing
#define ioctl answer
#define fgetxattr answer_xattr
#define printf(...) fprintf(output, __VA_ARGS__)
int ctl_main(int argc, char **argv);
#define main ctl_main
#include "../../src/cmd/ctl.c"
#undef main
#include "../../src/cmd/ctl-calls.c"
#include "../../src/cmd/ctl-open.c"
#include "../../src/cmd/ctl-scrub.c"
#include "../../src/cmd/ctl-show.c"
#include "../../src/cmd/ctl-stats.c"
#undef printf

/* ---- JSON -------------------------------------------------------------------------- */

/* One string from @at on; the text that it means is appended to @out.  NULL: it is
 * none. */
static const char *json_string_read(const char *at, GString *out)
{
    if (*at++ != '"') {
        return NULL;
    }
    for (; *at != '"'; at++) {
        if ((unsigned char)*at < ' ') {
            return NULL; /* also the end */
        }
        if (*at != '\\') {
            g_string_append_c(out, *at);
        } else if (at[1] == '"' || at[1] == '\\') {
            g_string_append_c(out, *++at);
        } else if (strncmp(at + 1, "u00", 3) == 0 && g_ascii_isxdigit(at[4]) &&
                   g_ascii_isxdigit(at[5])) {
            g_string_append_c(out, (char)(g_ascii_xdigit_value(at[4]) << 4 |
                                          g_ascii_xdigit_value(at[5])));
            at += 5;
        } else {
            return NULL;
        }
    }
    return at + 1;
}

static void expect_string(const char *json, const char *text)
{
    g_autoptr(GString) meant = g_string_new(NULL);
    g_autofree char *valid = g_utf8_make_valid(text, -1);
    const char *end = json_string_read(json, meant);

    g_assert(end != NULL && *end == '\0');
    g_assert(g_utf8_validate(json, -1, NULL));
    g_assert(strcmp(meant->str, valid) == 0);
}

static void try_json(const char *text)
{
    g_autofree char *string = vj_ctl_json_string(text);
    g_autofree char *value = vj_ctl_json_value(text);

    expect_string(string, text);
    if (*value == '"') {
        expect_string(value, text);
    } else {
        /* A number: digits, and no zero in front of others. */
        g_assert(strcmp(value, text) == 0 && *text != '\0');
        g_assert(strspn(text, "0123456789") == strlen(text));
        g_assert(text[0] != '0' || text[1] == '\0');
    }
}

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \n");
}

/* A value with everything in it; NULL: it is none. */
static const char *json_value_read(const char *at, unsigned depth)
{
    g_autoptr(GString) ignored = g_string_new(NULL);
    size_t digits = strspn(at, "0123456789");
    char open = *at, close = open == '{' ? '}' : ']';

    g_assert(depth < 4);
    if (digits > 0) {
        return at[0] == '0' && digits > 1 ? NULL : at + digits;
    }
    for (size_t i = 0; i < 3; i++) {
        static const char *const words[] = {"null", "true", "false"};

        if (g_str_has_prefix(at, words[i])) {
            return at + strlen(words[i]);
        }
    }
    if (open != '{' && open != '[') {
        return json_string_read(at, ignored);
    }
    at = skip_blanks(at + 1);
    while (at != NULL && *at != close) {
        if (open == '{') {
            at = json_string_read(at, ignored);
            at = at != NULL && *at == ':' ? skip_blanks(at + 1) : NULL;
        }
        at = at != NULL ? json_value_read(at, depth + 1) : NULL;
        at = at != NULL ? skip_blanks(at) : NULL;
        if (at != NULL && *at == ',') {
            at = skip_blanks(at + 1);
        } else if (at != NULL && *at != close) {
            at = NULL;
        }
    }
    return at != NULL ? at + 1 : NULL;
}

static void expect_json(const char *text)
{
    const char *end = json_value_read(text, 0);

    g_assert(end != NULL && *skip_blanks(end) == '\0');
    g_assert(g_utf8_validate(text, -1, NULL));
}

/* "name{labels} number", and lines that say what it is; nothing that a text has put
 * there. */
static void expect_metrics(const char *text)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);

    for (char **line = lines; *line != NULL && **line != '\0'; line++) {
        size_t name = strspn(*line, "abcdefghijklmnopqrstuvwxyz_0123456789");

        g_assert(g_str_has_prefix(*line, "# ") || (name > 0 && (*line)[name] == '{'));
    }
}

/* ---- answers ----------------------------------------------------------------------- */

static int (*const shows[])(const VjCtl *ctl) = {vj_ctl_df, vj_ctl_stats, vj_ctl_map,
                                                 vj_ctl_status};

/* First bytes from here on: varjfsctl scrub --status. */
#define SCRUB_FROM 0xf0u

static void try_answers(uint8_t how)
{
    static char path[] = "/";
    static char *operands[] = {path, NULL};
    static const VjCmd cmd = {.name = "varjfsctl"};
    const VjCtl ctl = {.cmd = &cmd,
                       .format = (VjCtlFormat)(how / 4 % 3),
                       .no_sync = true,
                       .status = true,
                       .operands = operands};
    char *text = NULL;
    size_t len;
    int status;

    output = open_memstream(&text, &len);
    is_mounted = true;
    status = how >= SCRUB_FROM ? vj_ctl_scrub(&ctl) : shows[how % 4](&ctl);
    is_mounted = false;
    g_assert(fclose(output) == 0);
    if (status == EXIT_SUCCESS && strlen(text) == len) {
        if (ctl.format == VJ_CTL_JSON) {
            expect_json(text);
        } else if (ctl.format == VJ_CTL_PROMETHEUS && how < SCRUB_FROM && how % 4 < 2) {
            expect_metrics(text);
        }
    }
    free(text);
}

/* ---- command lines ----------------------------------------------------------------- */

/* Words end with a NUL.  None of them names something that is there: a subcommand may
 * walk. */
static void try_words(const uint8_t *data, size_t len)
{
    g_autoptr(GPtrArray) words = g_ptr_array_new_with_free_func(g_free);
    char *text = NULL;
    size_t text_len;
    int status;

    g_ptr_array_add(words, g_strdup("varjfsctl"));
    while (len > 0 && words->len < 20) {
        size_t word = strnlen((const char *)data, len);

        g_ptr_array_add(words,
                        g_strdelimit(g_strndup((const char *)data, word), "/.", '_'));
        data += MIN(word + 1, len);
        len -= MIN(word + 1, len);
    }
    g_ptr_array_add(words, NULL);
    output = open_memstream(&text, &text_len);
    status = ctl_main((int)words->len - 1, (char **)words->pdata);
    g_assert(status == EXIT_SUCCESS || status == EXIT_FAILURE || status == VJ_EXIT_USAGE);
    g_assert(fclose(output) == 0);
    free(text);
}

/* ---- inputs ------------------------------------------------------------------------ */

/* Messages are for users: not beside what the fuzzer says. */
static FILE *silence(void)
{
    static FILE *nowhere;
    FILE *real = stderr;

    if (nowhere == NULL) {
        nowhere = fopen("/dev/null", "w");
        g_assert(nowhere != NULL);
    }
    stderr = nowhere;
    return real;
}

FUZZ_MUTATIONS(100);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    g_autofree char *text = NULL;
    FILE *real;

    if (len == 0) {
        return 0;
    }
    real = silence();
    text = g_strndup((const char *)data + 1, len - 1);
    answers = vj_reader(vj_slice(data + 1, len - 1));
    if (data[0] >= SCRUB_FROM) {
        try_answers(data[0]);
    } else if (data[0] % 16 < 12) {
        try_answers(data[0] % 16);
    } else if (data[0] % 16 < 14) {
        try_json(text);
    } else {
        try_words(data + 1, len - 1);
    }
    stderr = real;
    return 0;
}
