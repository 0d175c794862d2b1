/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* report.c - results, and what is seen of the node */
#include "report.h"

#include <dirent.h>
#include <stdio.h>

static int pid;
static unsigned results, failed;

void report_watch(int process)
{
    pid = process;
}

void report(bool ok, const char *name)
{
    printf("%s %u - %s\n", ok ? "ok" : "not ok", ++results, name);
    failed += !ok;
    fflush(stdout);
}

int report_end(void)
{
    printf("1..%u\n", results);
    return failed > 0;
}

static char *path_of(const char *name)
{
    return g_strdup_printf("/proc/%d/%s", pid, name);
}

uint64_t report_memory_kib(bool peak)
{
    const char *field = peak ? "VmHWM:" : "VmRSS:", *at;
    g_autofree char *path = path_of("status");
    g_autofree char *text = NULL;

    if (pid == 0 || !g_file_get_contents(path, &text, NULL, NULL)) {
        return 0;
    }
    at = strstr(text, field);
    return at == NULL ? 0 : g_ascii_strtoull(at + strlen(field), NULL, 10);
}

void report_forget_peak(void)
{
    g_autofree char *path = path_of("clear_refs");
    FILE *f = pid == 0 ? NULL : fopen(path, "w");

    if (f != NULL) {
        fputs("5", f);
        fclose(f);
    }
}

/* Files are not counted: a store keeps those of objects open as it likes. */
unsigned report_sockets(void)
{
    g_autofree char *path = path_of("fd");
    DIR *dir = pid == 0 ? NULL : opendir(path);
    const struct dirent *entry;
    unsigned count = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char to[64];
        ssize_t len = readlinkat(dirfd(dir), entry->d_name, to, sizeof to);

        count += len > 7 && memcmp(to, "socket:", 7) == 0;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}
