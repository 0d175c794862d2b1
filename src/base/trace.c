/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * trace.c - what developers see with VARJFS_TRACE=room,room or "all"
 *
 * One line per event on stderr: seconds on the clock of vj_clock_mono_us(), thread, room,
 * text.  Not rate-limited: a developer who turns it on wants every line.
 */
#include "base/base.h"

#include <stdlib.h>
#include <unistd.h>

#define TEXT_MAX_BYTES 1024 /* an event's text; longer is cut */

uint32_t vj_trace_mask;

static const char *const room_names[VJ_TRACE_ROOMS] = {
    [VJ_TRACE_base] = "base",     [VJ_TRACE_chunk] = "chunk", [VJ_TRACE_codec] = "codec",
    [VJ_TRACE_rpc] = "rpc",       [VJ_TRACE_store] = "store", [VJ_TRACE_meta] = "meta",
    [VJ_TRACE_object] = "object", [VJ_TRACE_map] = "map",     [VJ_TRACE_file] = "file",
    [VJ_TRACE_fs] = "fs",         [VJ_TRACE_front] = "front", [VJ_TRACE_node] = "node",
};

/* The bits that @name turns on; 0: unknown. */
static uint32_t mask_of(const char *name)
{
    if (strcmp(name, "all") == 0) {
        return (1u << VJ_TRACE_ROOMS) - 1;
    }
    for (unsigned i = 0; i < VJ_TRACE_ROOMS; i++) {
        if (strcmp(name, room_names[i]) == 0) {
            return 1u << i;
        }
    }
    return 0;
}

void vj_trace_init(void)
{
    const char *text = getenv("VARJFS_TRACE");
    g_auto(GStrv) names = g_strsplit(text != NULL ? text : "", ",", -1);

    vj_trace_mask = 0;
    for (char **name = names; *name != NULL; name++) {
        uint32_t bits = mask_of(*name);

        if (bits == 0 && **name != '\0') {
            vj_log_warn("VARJFS_TRACE: unknown room \"%s\"", *name);
        }
        vj_trace_mask |= bits;
    }
}

void vj_trace_write(VjTraceRoom room, const char *format, ...)
{
    char line[TEXT_MAX_BYTES + 64];
    int64_t now_us = vj_clock_mono_us();
    int saved = errno;
    size_t used;
    va_list ap;

    g_assert(room < VJ_TRACE_ROOMS);
    used = (size_t)g_snprintf(line, sizeof line,
                              "%" G_GINT64_FORMAT ".%06d %ld %s: ", now_us / 1000000,
                              (int)(now_us % 1000000), (long)gettid(), room_names[room]);
    va_start(ap, format);
    used +=
        (size_t)g_vsnprintf(line + used, (gulong)(sizeof line - used - 1), format, ap);
    va_end(ap);
    used = MIN(used, sizeof line - 2);
    line[used++] = '\n';
    /* A closed stderr loses trace and nothing else. */
    (void)!vj_fd_write_all(STDERR_FILENO, line, used);
    errno = saved;
}
