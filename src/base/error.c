/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * error.c - GErrors whose code is an errno
 */
#include "base/base.h"

G_DEFINE_QUARK(vj - error - quark, vj_error)

static void set_valist(GError **error, int positive_errno, const char *format, va_list ap)
    G_GNUC_PRINTF(3, 0);

static void set_valist(GError **error, int positive_errno, const char *format, va_list ap)
{
    g_assert(positive_errno > 0);
    if (error != NULL) {
        g_autofree char *text = g_strdup_vprintf(format, ap);
        g_autofree char *line = vj_one_line(text);

        g_assert(*error == NULL);
        *error = g_error_new_literal(VJ_ERROR, positive_errno, line);
    }
}

bool vj_error_set(GError **error, int positive_errno, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    set_valist(error, positive_errno, format, ap);
    va_end(ap);
    return false;
}

bool vj_error_set_errno(GError **error, int positive_errno, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    set_valist(error, positive_errno, format, ap);
    va_end(ap);
    if (error != NULL) {
        char *text = (*error)->message;

        (*error)->message = g_strdup_printf("%s: %s", text, g_strerror(positive_errno));
        g_free(text);
    }
    return false;
}

bool vj_error_prefix(GError **error, const char *format, ...)
{
    if (error != NULL) {
        g_autofree char *context = NULL, *line = NULL;
        va_list ap;

        g_assert(*error != NULL);
        va_start(ap, format);
        context = g_strdup_vprintf(format, ap);
        va_end(ap);
        line = vj_one_line(context);
        g_prefix_error(error, "%s: ", line);
    }
    return false;
}

int vj_error_to_errno(const GError *error)
{
    g_assert(error != NULL);
    if (error->domain != VJ_ERROR) {
        return -EIO;
    }
    return -error->code;
}
