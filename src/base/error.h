/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * error.h - the one GError domain of the control path
 *
 * The code is a positive errno.  The data path returns 0 or -errno and no GError.
 * A message is one line whatever its arguments hold (vj_one_line): they come from users,
 * names and files.
 * Threads: any.  Locks: none.
 */
#ifndef VJ_BASE_ERROR_H
#define VJ_BASE_ERROR_H

#define VJ_ERROR (vj_error_quark())

GQuark vj_error_quark(void);

/* Sets @error (which may be NULL) and returns false, so that callers can return it. */
bool vj_error_set(GError **error, int positive_errno, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

/* As vj_error_set, with ": strerror" appended. */
bool vj_error_set_errno(GError **error, int positive_errno, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

/* Puts "text: " in front of the message on its way up; always returns false. */
bool vj_error_prefix(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* -errno of @error: its code in our domain, -EIO for any other. */
int vj_error_to_errno(const GError *error);

#endif
