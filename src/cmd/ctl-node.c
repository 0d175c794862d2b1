/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-node.c - varjfsctl node: the storage nodes of a mounted file system
 *
 * The daemon of the mount knows its nodes, and does what has to be done.
 */
#include "cmd/ctl.h"

#include "varjfs/ioctl.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- status ------------------------------------------------------------------------ */

typedef struct Status {
    bool json;
    unsigned count;
} Status;

/* "K=V K=V" as a JSON object. */
static void print_json(char *line)
{
    g_auto(GStrv) pairs = g_strsplit(line, " ", -1);
    const char *between = "";

    printf("{");
    for (size_t i = 0; pairs[i] != NULL; i++) {
        const char *value = vj_ctl_split_pair(pairs[i]);

        if (value != NULL) {
            g_autofree char *json = vj_ctl_json_value(value);

            printf("%s\"%s\": %s", between, pairs[i], json);
            between = ", ";
        }
    }
    printf("}");
}

static bool print_node(void *opaque, char *line)
{
    Status *s = opaque;

    if (s->json) {
        printf("%s", s->count > 0 ? ",\n " : "");
        print_json(line);
    } else {
        printf("%s\n", line);
    }
    s->count++;
    return true;
}

static int status(const VjCtl *ctl, const char *path, int fd)
{
    Status s = {.json = ctl->format == VJ_CTL_JSON};
    bool ok;

    printf("%s", s.json ? "[" : "");
    ok = vj_ctl_text(ctl, path, fd, VARJFS_TEXT_NODES, print_node, &s);
    if (s.json) {
        printf("]\n");
    } else if (ok && s.count == 0) {
        printf("%s: a file system without storage nodes\n", path);
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- repair ------------------------------------------------------------------------ */

static int repair(const VjCtl *ctl, const char *path, int fd)
{
    struct varjfs_tend io = {.cursor = 0};

    if (!vj_ctl_tend_step(ctl, path, fd, VARJFS_TEND_HEAL, &io)) {
        return EXIT_FAILURE;
    }
    if (ctl->format == VJ_CTL_JSON) {
        printf("{\"examined\": %" G_GUINT64_FORMAT ", \"healed\": %" G_GUINT64_FORMAT
               "}\n",
               (guint64)io.examined, (guint64)io.found);
    } else {
        printf("%s: looked at %" G_GUINT64_FORMAT " objects, healed %" G_GUINT64_FORMAT
               "\n",
               path, (guint64)io.examined, (guint64)io.found);
    }
    return EXIT_SUCCESS;
}

int vj_ctl_node(const VjCtl *ctl)
{
    const char *what = ctl->operands[0], *path = ctl->operands[1];
    VJ_AUTO_FD fd = -1;

    if (strcmp(what, "status") != 0 && strcmp(what, "repair") != 0) {
        return vj_cmd_usage_error(ctl->cmd, what, "there are status and repair");
    }
    fd = vj_ctl_open(ctl, path, O_RDONLY);
    if (fd < 0) {
        return EXIT_FAILURE;
    }
    return strcmp(what, "status") == 0 ? status(ctl, path, fd) : repair(ctl, path, fd);
}
