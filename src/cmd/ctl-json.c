/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-json.c - text of the daemon as JSON
 */
#include "cmd/ctl.h"

/* @text has no NUL. */
static void append_text(GString *out, const char *text, size_t len)
{
    g_autofree char *valid = g_utf8_make_valid(text, (gssize)len);

    for (const char *at = valid; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            g_string_append_printf(out, "\\%c", *at);
        } else if ((unsigned char)*at < ' ') {
            g_string_append_printf(out, "\\u%04x", (unsigned)*at);
        } else {
            g_string_append_c(out, *at);
        }
    }
}

char *vj_ctl_json_bytes(const void *bytes, size_t len)
{
    GString *out = g_string_new("\"");
    const char *at = bytes;

    while (len > 0) {
        size_t part = strnlen(at, len);

        append_text(out, at, part);
        if (part < len) {
            g_string_append(out, "\\u0000");
            part++;
        }
        at += part;
        len -= part;
    }
    g_string_append_c(out, '"');
    return g_string_free(out, FALSE);
}

char *vj_ctl_json_string(const char *text)
{
    return vj_ctl_json_bytes(text, strlen(text));
}

char *vj_ctl_json_value(const char *text)
{
    size_t digits = strspn(text, "0123456789");

    if (digits > 0 && text[digits] == '\0' && (text[0] != '0' || digits == 1)) {
        return g_strdup(text);
    }
    return vj_ctl_json_string(text);
}
