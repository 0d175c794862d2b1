/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-show.c - varjfsctl sync, status, map
 *
 * The daemon answers in lines (varjfs/ioctl.h); here they become columns or JSON.
 * Unknown keys pass through, so that an older varjfsctl shows what a newer daemon counts.
 */
#include "cmd/ctl.h"

#include "codec/codec.h"
#include "varjfs/ioctl.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define STATUS_XATTR "user.varjfs.status"
#define STATUS_MAX_BYTES 65536u
#define MAP_FIELDS 10

/* ---- lines of the daemon ----------------------------------------------------------- */

static bool page_visit(struct varjfs_text *page, VjCtlLine *visit, void *opaque)
{
    char *at = page->text, *end = page->text + page->len;

    while (at < end) {
        char *line_end = memchr(at, '\n', (size_t)(end - at));

        if (line_end == NULL) {
            return false;
        }
        *line_end = '\0';
        if (!visit(opaque, at)) {
            return false;
        }
        at = line_end + 1;
    }
    return true;
}

bool vj_ctl_text(const VjCtl *ctl, const char *path, int fd, uint32_t what,
                 VjCtlLine *visit, void *opaque)
{
    g_autofree struct varjfs_text *page = g_new0(struct varjfs_text, 1);

    while (page->cursor != VARJFS_TEXT_END) {
        uint64_t before = page->cursor;

        page->version = VARJFS_IOC_VERSION;
        page->what = what;
        if (ioctl(fd, VARJFS_IOC_TEXT, page) != 0) {
            vj_cmd_fail_errno(ctl->cmd, path, errno);
            return false;
        }
        if (page->len > sizeof page->text || page->cursor == before ||
            !page_visit(page, visit, opaque)) {
            fprintf(stderr, "%s: %s: the daemon's answer makes no sense\n",
                    ctl->cmd->name, path);
            return false;
        }
    }
    return true;
}

char *vj_ctl_split_pair(char *line)
{
    size_t key_len = strspn(line, "abcdefghijklmnopqrstuvwxyz_0123456789");

    if (key_len == 0 || line[key_len] != '=') {
        return NULL;
    }
    line[key_len] = '\0';
    return line + key_len + 1;
}

/* ---- sync -------------------------------------------------------------------------- */

int vj_ctl_sync(const VjCtl *ctl)
{
    for (char **path = ctl->operands; *path != NULL; path++) {
        VJ_AUTO_FD fd = vj_ctl_open(ctl, *path, O_RDONLY);

        if (fd < 0) {
            return EXIT_FAILURE;
        }
        /* The kernel hands over what was stored through mappings; the daemon does the
         * rest. */
        if (syncfs(fd) != 0 || ioctl(fd, VARJFS_IOC_SYNC) != 0) {
            return vj_cmd_fail_errno(ctl->cmd, *path, errno);
        }
    }
    return EXIT_SUCCESS;
}

/* ---- status ------------------------------------------------------------------------ */

/* The file with its changes written back, unless --no-sync; -1 after a message. */
static int open_written_back(const VjCtl *ctl, const char *path)
{
    VJ_AUTO_FD fd = vj_ctl_open(ctl, path, O_RDONLY);

    if (fd >= 0 && !ctl->no_sync && fsync(fd) != 0) {
        vj_cmd_fail_errno(ctl->cmd, path, errno);
        return -1;
    }
    return vj_fd_steal(&fd);
}

static void print_status(const VjCtl *ctl, const char *path, char **lines, bool is_first)
{
    g_autofree char *name = vj_ctl_json_string(path);

    if (ctl->format == VJ_CTL_JSON) {
        printf("%s\n  {\"file\": %s", is_first ? "[" : ",", name);
    } else if (ctl->operands[1] != NULL) {
        printf("%sfile=%s\n", is_first ? "" : "\n", path);
    }
    for (char **line = lines; *line != NULL; line++) {
        char *value = vj_ctl_split_pair(*line);

        if (value == NULL) {
            continue; /* behind the last line break */
        }
        if (ctl->format == VJ_CTL_JSON) {
            g_autofree char *shown = vj_ctl_json_value(value);

            printf(", \"%s\": %s", *line, shown);
        } else {
            printf("%s=%s\n", *line, value);
        }
    }
    if (ctl->format == VJ_CTL_JSON) {
        printf("}");
    }
}

int vj_ctl_status(const VjCtl *ctl)
{
    g_autofree char *text = g_malloc(STATUS_MAX_BYTES + 1);
    bool is_first = true, failed = false;

    for (char **path = ctl->operands; *path != NULL; path++) {
        VJ_AUTO_FD fd = open_written_back(ctl, *path);
        g_auto(GStrv) lines = NULL;
        ssize_t len;

        if (fd < 0) {
            failed = true;
            continue;
        }
        len = fgetxattr(fd, STATUS_XATTR, text, STATUS_MAX_BYTES);
        if (len < 0) {
            vj_cmd_fail_errno(ctl->cmd, *path, errno);
            failed = true;
            continue;
        }
        text[len] = '\0';
        lines = g_strsplit(text, "\n", -1);
        print_status(ctl, *path, lines, is_first);
        is_first = false;
    }
    if (ctl->format == VJ_CTL_JSON) {
        printf("%s\n", is_first ? "[]" : "\n]");
    }
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* ---- map --------------------------------------------------------------------------- */

typedef struct MapPrinter {
    const VjCtl *ctl;
    uint64_t lines;
} MapPrinter;

static const char *const map_names[MAP_FIELDS] = {
    "offset",       "length",       "kind", "object_id", "object_start",
    "object_bytes", "stored_bytes", "refs", "digest",    "transform",
};

/* The transformation that a number means; the number itself where this build has none. */
static const char *transform_name(const char *number)
{
    char *end;
    guint64 id = g_ascii_strtoull(number, &end, 10);
    const VjCodecOps *ops =
        *end == '\0' && id <= UINT8_MAX ? vj_codec_by_id((uint8_t)id) : NULL;

    return ops != NULL ? ops->name : number;
}

static void print_extent_json(char **fields, bool is_first)
{
    printf("%s\n  {", is_first ? "[" : ",");
    for (int i = 0; i < MAP_FIELDS; i++) {
        /* Hexadecimal names may look like numbers, and be none. */
        bool is_text =
            strcmp(map_names[i], "object_id") == 0 || strcmp(map_names[i], "digest") == 0;
        g_autofree char *value =
            is_text ? vj_ctl_json_string(fields[i]) : vj_ctl_json_value(fields[i]);

        if (strcmp(fields[i], "-") == 0) {
            printf("%s\"%s\": null", i > 0 ? ", " : "", map_names[i]);
        } else {
            printf("%s\"%s\": %s", i > 0 ? ", " : "", map_names[i], value);
        }
    }
    printf(", \"shared\": %s}", strcmp(fields[7], "-") == 0                 ? "null"
                                : g_ascii_strtoull(fields[7], NULL, 10) > 1 ? "true"
                                                                            : "false");
}

static void print_extent_text(char **fields, bool is_first)
{
    if (is_first) {
        printf("%14s %10s %-8s %-16s %10s %10s %6s %-9s %s\n", "OFFSET", "LENGTH", "KIND",
               "OBJECT", "START", "STORED", "SHARED", "TRANSFORM", "DIGEST");
    }
    printf("%14s %10s %-8s %-16s %10s %10s %6s %-9s %s\n", fields[0], fields[1],
           fields[2], fields[3], fields[4], fields[6], fields[7], fields[9], fields[8]);
}

static bool map_line(void *opaque, char *line)
{
    MapPrinter *p = opaque;
    g_auto(GStrv) fields = g_strsplit(line, " ", MAP_FIELDS + 1);
    char *codec;

    if (g_strv_length(fields) < MAP_FIELDS) {
        return false;
    }
    codec = fields[MAP_FIELDS - 1];
    fields[MAP_FIELDS - 1] = g_strdup(transform_name(codec));
    g_free(codec);
    if (p->ctl->format == VJ_CTL_JSON) {
        print_extent_json(fields, p->lines == 0);
    } else {
        print_extent_text(fields, p->lines == 0);
    }
    p->lines++;
    return true;
}

int vj_ctl_map(const VjCtl *ctl)
{
    const char *path = ctl->operands[0];
    VJ_AUTO_FD fd = open_written_back(ctl, path);
    MapPrinter printer = {.ctl = ctl};

    if (fd < 0 || !vj_ctl_text(ctl, path, fd, VARJFS_TEXT_MAP, map_line, &printer)) {
        return EXIT_FAILURE;
    }
    if (ctl->format == VJ_CTL_JSON) {
        printf("%s\n", printer.lines == 0 ? "[]" : "\n]");
    }
    return EXIT_SUCCESS;
}
