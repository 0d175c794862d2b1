/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-json.c - text of the daemon as JSON
 */
#include "cmd/ctl.h"

char *vj_ctl_json_string(const char *text)
{
    g_autofree char *valid = g_utf8_make_valid(text, -1);
    GString *out = g_string_new("\"");

    for (const char *at = valid; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            g_string_append_printf(out, "\\%c", *at);
        } else if ((unsigned char)*at < ' ') {
            g_string_append_printf(out, "\\u%04x", (unsigned)*at);
        } else {
            g_string_append_c(out, *at);
        }
    }
    g_string_append_c(out, '"');
    return g_string_free(out, FALSE);
}

char *vj_ctl_json_value(const char *text)
{
    size_t digits = strspn(text, "0123456789");

    if (digits > 0 && text[digits] == '\0' && (text[0] != '0' || digits == 1)) {
        return g_strdup(text);
    }
    return vj_ctl_json_string(text);
}
