/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * holder.c - the process that has a session, and whether it is still there
 *
 * A process on this machine that is gone will never use the session again, so that
 * another one need not wait until its lease ends.  That is known only of the same boot of
 * the same machine and the same PID namespace; a PID that was given again is told by the
 * time when its process began.
 */
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "meta/leased-private.h"

#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_TEXT_BYTES 36u
/* Fields of /proc/PID/stat behind the name, counted from the state on. */
#define STAT_THREADS 17u
#define STAT_STARTED 19u

/* All zero where it is not known. */
static void read_boot_id(uint8_t out[16])
{
    g_autofree char *text = NULL;
    size_t len, n = 0;

    memset(out, 0, 16);
    if (!g_file_get_contents(BOOT_ID_FILE, &text, &len, NULL) ||
        len < BOOT_ID_TEXT_BYTES) {
        return;
    }
    for (size_t i = 0; i < BOOT_ID_TEXT_BYTES && n < 32; i++) {
        int digit = g_ascii_xdigit_value(text[i]);

        if (digit >= 0) {
            out[n / 2] = (uint8_t)(out[n / 2] << 4 | digit);
            n++;
        }
    }
}

static uint64_t pid_namespace(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

typedef struct ProcessState {
    char state;
    uint64_t threads, started;
} ProcessState;

/* False: it is not known. */
static bool look_at(uint64_t pid, ProcessState *out)
{
    g_autofree char *path = g_strdup_printf("/proc/%" G_GUINT64_FORMAT "/stat", pid);
    g_autofree char *text = NULL;
    g_auto(GStrv) fields = NULL;
    const char *at;

    *out = (ProcessState){0};
    if (!g_file_get_contents(path, &text, NULL, NULL)) {
        return false;
    }
    at = strrchr(text, ')'); /* the name may have anything before that */
    if (at == NULL || at[1] != ' ') {
        return false;
    }
    fields = g_strsplit(at + 2, " ", STAT_STARTED + 2);
    if (g_strv_length(fields) <= STAT_STARTED) {
        return false;
    }
    out->state = fields[0][0];
    out->threads = g_ascii_strtoull(fields[STAT_THREADS], NULL, 10);
    out->started = g_ascii_strtoull(fields[STAT_STARTED], NULL, 10);
    return true;
}

void vj_holder_self(VjHolder *out)
{
    ProcessState now;

    *out = (VjHolder){.pid = (uint64_t)getpid(), .pid_namespace = pid_namespace()};
    read_boot_id(out->boot);
    vj_random_bytes(out->nonce, sizeof out->nonce);
    if (look_at(out->pid, &now)) {
        out->started = now.started;
    }
}

bool vj_holder_is_gone(const VjHolder *holder)
{
    static const uint8_t unknown[16];
    uint64_t namespace = pid_namespace();
    uint8_t boot[16];
    ProcessState now;

    read_boot_id(boot);
    if (memcmp(boot, unknown, sizeof boot) == 0 ||
        memcmp(boot, holder->boot, sizeof boot) != 0 || namespace == 0 ||
        namespace != holder->pid_namespace || holder->pid == 0 ||
        holder->pid > G_MAXINT32) {
        return false;
    }
    if (kill((pid_t)holder->pid, 0) < 0 && errno == ESRCH) {
        return true;
    }
    if (!look_at(holder->pid, &now)) {
        return false;
    }
    return (holder->started != 0 && now.started != holder->started) ||
           (now.state == 'Z' && now.threads <= 1) || now.state == 'X';
}
