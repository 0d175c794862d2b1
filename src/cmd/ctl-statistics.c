/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-statistics.c - varjfsctl statistics SOURCE: what the daemon that serves a volume to
 * programs has done
 */
#include "cmd/ctl.h"

#include "varjfs/varjfs.h"

#include <stdlib.h>

/* "varjfsd_NAME{a="x",b="y"} 12" becomes "NAME.x.y=12"; other lines are left out. */
static void show_line(const char *line)
{
    const char *at =
        g_str_has_prefix(line, "varjfsd_") ? line + strlen("varjfsd_") : NULL;
    const char *labels, *space;

    if (at == NULL) {
        return;
    }
    labels = strchr(at, '{');
    space = strrchr(at, ' ');
    if (space == NULL) {
        return;
    }
    printf("%.*s", (int)((labels != NULL ? labels : space) - at), at);
    while (labels != NULL) {
        const char *begin = strchr(labels, '"');
        const char *end = begin != NULL ? strchr(begin + 1, '"') : NULL;

        if (end == NULL) {
            break;
        }
        printf(".%.*s", (int)(end - begin - 1), begin + 1);
        labels = end + 1;
    }
    printf("=%s\n", space + 1);
}

static void show_text(const char *text)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);

    for (char **line = lines; *line != NULL; line++) {
        show_line(*line);
    }
}

int vj_ctl_statistics(const VjCtl *ctl)
{
    const char *source = ctl->operands[0];
    const struct varjfs_options options = {.size = sizeof options, .volume = ctl->volume};
    g_autofree char *text = g_malloc(VARJFS_STATISTICS_MAX + 1);
    unsigned flags = ctl->format == VJ_CTL_JSON ? 0 : VARJFS_PROMETHEUS;
    size_t len;
    varjfs *v;
    int rc = varjfs_open(source, &options, &v);

    if (rc < 0) {
        vj_complain(ctl->cmd->name, "%s: %s", source, varjfs_open_error());
        return EXIT_FAILURE;
    }
    rc = varjfs_statistics(v, text, VARJFS_STATISTICS_MAX, &len, flags);
    varjfs_close(v);
    if (rc < 0) {
        vj_complain(ctl->cmd->name, "%s: %s", source, varjfs_strerror(rc));
        return EXIT_FAILURE;
    }
    text[len] = '\0';
    if (ctl->format == VJ_CTL_TEXT) {
        show_text(text);
    } else {
        printf("%s", text);
    }
    return EXIT_SUCCESS;
}
