/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* Option texts: parsed or refused in one printable line; what was taken obeys the table.
 */
#include "fuzz.h"

static const VjOptSpec specs[] = {
    {.name = "ro", .type = VJ_OPT_FLAG, .help = ""},
    {.name = "label", .type = VJ_OPT_STRING, .help = ""},
    {.name = "cache", .type = VJ_OPT_SIZE, .min = 4096, .max = 1 << 30, .help = ""},
    {.name = "n", .type = VJ_OPT_NUMBER, .max = 60, .help = ""},
    {.name = "hash", .type = VJ_OPT_CHOICE, .choices = "blake3|sha256", .help = ""},
    {.name = NULL},
};

static void check_error(const GError *error)
{
    g_assert(error != NULL && error->domain == VJ_ERROR && error->code == EINVAL);
    for (const char *at = error->message; *at != '\0'; at++) {
        g_assert(g_ascii_isprint(*at));
    }
    g_assert(strlen(error->message) < 1000);
}

static void check_values(const VjOpts *o)
{
    const char *hash = vj_opts_string(o, "hash");
    uint64_t cache = vj_opts_number(o, "cache");
    uint64_t bytes;

    g_assert(hash == NULL || strcmp(hash, "blake3") == 0 || strcmp(hash, "sha256") == 0);
    g_assert(vj_opts_number(o, "n") <= 60);
    if (vj_opts_is_set(o, "cache")) {
        g_assert(cache >= 4096 && cache <= 1 << 30);
        g_assert(vj_parse_size(vj_opts_string(o, "cache"), &bytes, NULL) &&
                 bytes == cache);
    }
    g_assert(vj_opts_flag(o, "ro") == (g_strcmp0(vj_opts_string(o, "ro"), "yes") == 0));
}

/* Any text, escaped, comes back as the value that it was. */
static void check_escape(const char *text)
{
    g_autoptr(VjOpts) o = vj_opts_new(specs);
    g_autoptr(GString) escaped = g_string_new("n=1,label=");
    bool taken;

    for (const char *at = text; *at != '\0'; at++) {
        if (*at == ',' || *at == '\\') {
            g_string_append_c(escaped, '\\');
        }
        g_string_append_c(escaped, *at);
    }
    if (escaped->len > 60000) {
        return; /* over the limit of a text */
    }
    taken = vj_opts_parse(o, escaped->str, NULL);
    g_assert(taken);
    g_assert(strcmp(vj_opts_string(o, "label"), text) == 0);
}

FUZZ_MUTATIONS(400);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    g_autofree char *text = g_strndup((const char *)data, len);
    g_autoptr(VjOpts) o = vj_opts_new(specs);
    g_autoptr(GError) error = NULL;
    uint64_t bytes;

    if (!vj_opts_parse(o, text, &error)) {
        check_error(error);
        g_clear_error(&error);
    }
    check_values(o); /* also after a mistake: what stood before it was taken */
    if (!vj_parse_size(text, &bytes, &error)) {
        check_error(error);
    }
    check_escape(text);
    return 0;
}
