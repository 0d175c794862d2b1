/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * log.h - lines for operators, and trace for developers
 *
 * Log: "varjfs: level: text" on stderr until vj_log_open() chose a file or syslog.
 * Repeats of one call site beyond 10 a second are counted and summarised.
 * Trace: off by default; VARJFS_TRACE=store,meta (or "all") turns rooms on.  Where
 * <sys/sdt.h> exists each site is also the USDT probe varjfs:ROOM, its argument the
 * format.  Threads: any.  Locks: VJ_RANK_BASE.
 */
#ifndef VJ_BASE_LOG_H
#define VJ_BASE_LOG_H

typedef enum VjLogLevel {
    VJ_LOG_ERROR,
    VJ_LOG_WARN,
    VJ_LOG_INFO,
    VJ_LOG_DEBUG,
} VjLogLevel;

/* @text as one line: each byte that is no printable UTF-8 is shown as \xNN; cut at some
 * length; owned. */
char *vj_one_line(const char *text);
/* "program: text" on stderr, in one line whatever the arguments hold: why a program
 * ends. */
void vj_complain(const char *program, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* @target: "stderr", "syslog" or a file's path (appended).  Setup only. */
bool vj_log_open(const char *program, const char *target, VjLogLevel most,
                 GError **error);
/*
 * vj_log_open_outside - the same, and a file must lie neither in the directories @outside
 * nor below
 *
 * A line of the log in a data file would damage it.  A regular file with several names
 * on the device of one of them is refused as well: one of the names may be there.
 */
bool vj_log_open_outside(const char *program, const char *target, VjLogLevel most,
                         const int *outside, unsigned count, GError **error);
void vj_log_close(void);

/* One per call site, zero-initialised: how the rate limit knows it. */
typedef struct VjLogSite {
    int64_t window_us; /* when the current second began */
    uint32_t count;    /* lines written in it */
    uint32_t dropped;  /* lines left out in it */
} VjLogSite;

void vj_log_write(VjLogSite *site, VjLogLevel level, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

#define VJ_LOG_AT(level, ...)                                                            \
    do {                                                                                 \
        static VjLogSite vj_log_site_;                                                   \
        vj_log_write(&vj_log_site_, (level), __VA_ARGS__);                               \
    } while (0)
#define vj_log_error(...) VJ_LOG_AT(VJ_LOG_ERROR, __VA_ARGS__)
#define vj_log_warn(...) VJ_LOG_AT(VJ_LOG_WARN, __VA_ARGS__)
#define vj_log_info(...) VJ_LOG_AT(VJ_LOG_INFO, __VA_ARGS__)
#define vj_log_debug(...) VJ_LOG_AT(VJ_LOG_DEBUG, __VA_ARGS__)

typedef enum VjTraceRoom {
    VJ_TRACE_base,
    VJ_TRACE_chunk,
    VJ_TRACE_codec,
    VJ_TRACE_rpc,
    VJ_TRACE_store,
    VJ_TRACE_meta,
    VJ_TRACE_object,
    VJ_TRACE_map,
    VJ_TRACE_file,
    VJ_TRACE_fs,
    VJ_TRACE_front,
    VJ_TRACE_node,
    VJ_TRACE_ROOMS,
} VjTraceRoom;

#if defined(__has_include)
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define VJ_TRACE_PROBE(room, ...)                                                        \
    DTRACE_PROBE1(varjfs, room, VJ_TRACE_FORMAT(__VA_ARGS__, ))
#define VJ_TRACE_FORMAT(format, ...) (format)
#endif
#endif
#ifndef VJ_TRACE_PROBE
#define VJ_TRACE_PROBE(room, ...) ((void)0)
#endif

extern uint32_t vj_trace_mask; /* bit per VjTraceRoom; set by vj_trace_init() */

/* Reads VARJFS_TRACE; an unknown room is a warning.  Setup only. */
void vj_trace_init(void);
void vj_trace_write(VjTraceRoom room, const char *format, ...) G_GNUC_PRINTF(2, 3);

#define vj_trace(room, ...)                                                              \
    do {                                                                                 \
        VJ_TRACE_PROBE(room, __VA_ARGS__);                                               \
        if (G_UNLIKELY(vj_trace_mask & (1u << VJ_TRACE_##room))) {                       \
            vj_trace_write(VJ_TRACE_##room, __VA_ARGS__);                                \
        }                                                                                \
    } while (0)

#endif
