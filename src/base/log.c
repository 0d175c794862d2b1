/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * log.c - lines for operators
 *
 * A line is built in memory and leaves in one write(2), so lines of several threads do
 * not mix.  The lock guards the counters of call sites alone and is not held while
 * writing.  Whatever is not printable is shown as \xNN: names come from users, and one
 * line must stay one line and command no terminal.
 */
#include "base/base.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#define WINDOW_US 1000000 /* the rate limit's second */
#define WINDOW_LINES 10u  /* lines of one call site in it */
#define NOISY_MAX 32u     /* call sites whose summary vj_log_close() can still give */
#define LINE_MAX_BYTES 4096u

typedef enum Target { TO_STDERR, TO_FILE, TO_SYSLOG } Target;

/* Set by vj_log_open and vj_log_close, before and after the threads. */
static char program_name[64] = "varjfs";
static Target target = TO_STDERR;
static VjLogLevel most_level = VJ_LOG_INFO;
static int file_fd = -1;

static VjMutex site_lock = VJ_MUTEX_INIT(VJ_RANK_BASE, "log");
/* guarded by site_lock: */
static struct {
    VjLogSite *site;
    char *example; /* the first line that was held back */
} noisy[NOISY_MAX];
static unsigned noisy_count;

static atomic_uint lost_lines; /* not written to the file since the last that was */

static const char *const level_names[] = {"error", "warning", "info", "debug"};
static const int level_priorities[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};

/* Shown as it is: what neither ends a line nor commands a terminal. */
static bool is_harmless(const char *at)
{
    gunichar c = g_utf8_get_char_validated(at, -1);

    return c != (gunichar)-1 && c != (gunichar)-2 && g_unichar_isprint(c) &&
           g_unichar_type(c) != G_UNICODE_LINE_SEPARATOR &&
           g_unichar_type(c) != G_UNICODE_PARAGRAPH_SEPARATOR;
}

char *vj_one_line(const char *text)
{
    GString *out = g_string_sized_new(strlen(text));

    for (const char *at = text, *next; *at != '\0'; at = next) {
        if (is_harmless(at)) {
            next = g_utf8_next_char(at);
            g_string_append_len(out, at, next - at);
        } else {
            next = at + 1;
            g_string_append_printf(out, "\\x%02x", (unsigned char)*at);
        }
        if (out->len >= LINE_MAX_BYTES) {
            g_string_append(out, "...");
            break;
        }
    }
    return g_string_free(out, FALSE);
}

void vj_complain(const char *program, const char *format, ...)
{
    g_autofree char *text = NULL;
    g_autofree char *line = NULL;
    g_autofree char *whole = NULL;
    va_list ap;

    va_start(ap, format);
    text = g_strdup_vprintf(format, ap);
    va_end(ap);
    line = vj_one_line(text);
    whole = g_strdup_printf("%s: %s\n", program, line);
    /* Where stderr is gone there is no place left to report it. */
    (void)!vj_fd_write_all(STDERR_FILENO, whole, strlen(whole));
}

static void write_file_line(VjLogLevel level, const char *text)
{
    struct timespec now = vj_clock_real();
    struct tm parts;
    char when[32];
    g_autofree char *line = NULL;

    gmtime_r(&now.tv_sec, &parts);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &parts);
    line = g_strdup_printf("%s.%03ldZ %s[%ld]: %s: %s\n", when, now.tv_nsec / 1000000,
                           program_name, (long)getpid(), level_names[level], text);
    if (vj_fd_write_all(file_fd, line, strlen(line)) != 0) {
        atomic_fetch_add(&lost_lines, 1);
    }
}

static void emit(VjLogLevel level, const char *text)
{
    if (target == TO_SYSLOG) {
        syslog(level_priorities[level], "%s", text);
    } else if (target == TO_FILE) {
        unsigned lost = atomic_exchange(&lost_lines, 0);

        if (lost > 0) {
            g_autofree char *loss =
                g_strdup_printf("%u earlier lines could not be written here", lost);

            write_file_line(VJ_LOG_WARN, loss);
            if (atomic_load(&lost_lines) > 0) {
                /* Still no room: the notice itself does not count, what it was about
                 * does. */
                atomic_fetch_add(&lost_lines, lost - 1);
            }
        }
        write_file_line(level, text);
    } else {
        g_autofree char *line =
            g_strdup_printf("%s: %s: %s\n", program_name, level_names[level], text);

        /* stderr may be gone (a daemon's terminal); there is no place left to report
         * that. */
        (void)!vj_fd_write_all(STDERR_FILENO, line, strlen(line));
    }
}

static void remember_noisy(VjLogSite *site, const char *format, va_list ap)
{
    if (noisy_count < NOISY_MAX) {
        noisy[noisy_count].site = site;
        noisy[noisy_count].example = g_strdup_vprintf(format, ap);
        noisy_count++;
    }
}

static void forget_noisy(const VjLogSite *site)
{
    for (unsigned i = 0; i < noisy_count; i++) {
        if (noisy[i].site == site) {
            g_free(noisy[i].example);
            noisy[i] = noisy[--noisy_count];
            return;
        }
    }
}

/* True when the line may pass; @summary: lines held back in the window that it ended. */
static bool admit(VjLogSite *site, const char *format, va_list ap, uint32_t *summary)
{
    int64_t now_us = vj_clock_mono_us();
    bool passes;

    *summary = 0;
    vj_mutex_lock(&site_lock);
    if (site->count == 0 || now_us - site->window_us >= WINDOW_US) {
        *summary = site->dropped;
        if (site->dropped > 0) {
            forget_noisy(site);
        }
        site->window_us = now_us;
        site->count = 0;
        site->dropped = 0;
    }
    passes = site->count < WINDOW_LINES;
    if (passes) {
        site->count++;
    } else {
        if (site->dropped == 0) {
            remember_noisy(site, format, ap);
        }
        if (site->dropped < UINT32_MAX) {
            site->dropped++;
        }
    }
    vj_mutex_unlock(&site_lock);
    return passes;
}

void vj_log_write(VjLogSite *site, VjLogLevel level, const char *format, ...)
{
    g_autofree char *text = NULL;
    g_autofree char *line = NULL;
    uint32_t summary;
    int saved = errno;
    bool passes;
    va_list ap;

    g_assert(level <= VJ_LOG_DEBUG);
    if (level > most_level) {
        return;
    }
    va_start(ap, format);
    passes = admit(site, format, ap, &summary);
    va_end(ap);
    if (!passes) {
        errno = saved;
        return;
    }
    if (summary > 0) {
        g_autofree char *note =
            g_strdup_printf("%u more lines like the next were left out", summary);

        emit(level, note);
    }
    errno = saved; /* for %m */
    va_start(ap, format);
    text = g_strdup_vprintf(format, ap);
    va_end(ap);
    line = vj_one_line(text);
    emit(level, line);
    errno = saved;
}

static void set_program(const char *program)
{
    g_strlcpy(program_name, program, sizeof program_name);
}

/*
 * The directory that @path names a file in, if it is none of @outside and in none of
 * them; @name: of the file there.
 */
static int open_log_dir(const char *path, const int *outside, unsigned count,
                        const char **name, GError **error)
{
    const char *slash = strrchr(path, '/');
    g_autofree char *dir =
        slash == NULL ? g_strdup(".") : g_strndup(path, (gsize)(slash + 1 - path));
    VJ_AUTO_FD fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool is_inside = false;
    int r = fd < 0 ? -errno : 0;

    *name = slash == NULL ? path : slash[1] == '\0' ? "." : slash + 1;
    for (unsigned i = 0; r == 0 && !is_inside && i < count; i++) {
        r = vj_fd_is_inside(fd, outside[i], &is_inside);
    }
    if (r < 0 || is_inside) {
        vj_error_set(error, r < 0 ? -r : EINVAL, "log %s: cannot open: %s", path,
                     r < 0 ? g_strerror(-r) : "it is inside the file system's directory");
        return -1;
    }
    return vj_fd_steal(&fd);
}

/* A file of @outside may have another name elsewhere: on the same device alone. */
static bool may_be_of(const struct stat *st, const int *outside, unsigned count)
{
    struct stat dir;

    for (unsigned i = 0; S_ISREG(st->st_mode) && st->st_nlink > 1 && i < count; i++) {
        if (fstat(outside[i], &dir) < 0 || dir.st_dev == st->st_dev) {
            return true;
        }
    }
    return false;
}

/*
 * Where another user may write into the directory, a name may be that user's: a link
 * would have us write into another file, a fifo would have us wait.
 */
static int open_log_file(const char *path, const int *outside, unsigned count,
                         GError **error)
{
    const char *name;
    VJ_AUTO_FD dir = open_log_dir(path, outside, count, &name, error);
    VJ_AUTO_FD fd = -1;
    struct stat st;

    if (dir < 0) {
        return -1;
    }
    fd = openat(dir, name,
                O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW |
                    O_NONBLOCK,
                0640);
    if (fd < 0 || fstat(fd, &st) < 0) {
        vj_error_set(error, errno, "log %s: cannot open: %s", path,
                     errno == ELOOP   ? "it is a symbolic link"
                     : errno == ENXIO ? "it is a fifo that nobody reads"
                                      : g_strerror(errno));
        return -1;
    }
    if (!S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode)) {
        vj_error_set(error, EINVAL, "log %s: cannot open: it is not a file", path);
        return -1;
    }
    if (may_be_of(&st, outside, count)) {
        vj_error_set(error, EINVAL,
                     "log %s: cannot open: it has more than one name (hard links), and "
                     "may be a file of the file system",
                     path);
        return -1;
    }
    return vj_fd_steal(&fd);
}

bool vj_log_open(const char *program, const char *where, VjLogLevel most, GError **error)
{
    return vj_log_open_outside(program, where, most, NULL, 0, error);
}

bool vj_log_open_outside(const char *program, const char *where, VjLogLevel most,
                         const int *outside, unsigned count, GError **error)
{
    g_assert(program != NULL && where != NULL && most <= VJ_LOG_DEBUG);
    vj_log_close();
    if (strcmp(where, "syslog") == 0) {
        set_program(program);
        openlog(program_name, LOG_PID, LOG_DAEMON);
        target = TO_SYSLOG;
    } else if (strcmp(where, "stderr") == 0) {
        set_program(program);
    } else {
        file_fd = open_log_file(where, outside, count, error);
        if (file_fd < 0) {
            return false;
        }
        set_program(program);
        target = TO_FILE;
    }
    most_level = most;
    return true;
}

void vj_log_close(void)
{
    for (unsigned i = 0; i < noisy_count; i++) {
        g_autofree char *note =
            g_strdup_printf("%u more lines like this were left out: %s",
                            noisy[i].site->dropped, noisy[i].example);
        g_autofree char *line = vj_one_line(note);

        emit(VJ_LOG_WARN, line);
        noisy[i].site->dropped = 0;
        g_free(noisy[i].example);
    }
    noisy_count = 0;
    if (target == TO_SYSLOG) {
        closelog();
    }
    vj_fd_close(&file_fd);
    target = TO_STDERR;
    most_level = VJ_LOG_INFO;
    atomic_store(&lost_lines, 0);
}
