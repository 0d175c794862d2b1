/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-node.c - varjfsctl node: the storage nodes of a mounted file system
 *
 * The daemon of the mount knows its nodes, and does what has to be done.  Its sandbox
 * keeps it from the volume file: that is written here.
 */
#include "cmd/ctl.h"

#include "cmd/mount-table.h"
#include "varjfs/ioctl.h"
#include "volume/volume.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Between two looks at what is left on a node that is drained. */
#define LOOK_LEAST_US ((int64_t)500 * 1000)
#define LOOK_MOST_US ((int64_t)60 * 1000 * 1000)

/* A change of the list of nodes. */
typedef struct Change {
    const char *word;
    uint32_t what;    /* VARJFS_NODE_* */
    const char *done; /* what it is then */
} Change;

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

/* ---- the volume file --------------------------------------------------------------- */

/* Who has mounted it, which the kernel says. */
static uid_t owner_of(const VjMountEntry *entry)
{
    const char *at = strstr(entry->options, ",user_id=");

    return at != NULL ? (uid_t)g_ascii_strtoull(at + strlen(",user_id="), NULL, 10) : 0;
}

/* What was mounted where @path is; owned, NULL: this namespace does not show it. */
static char *source_of(const char *path, uid_t *owner)
{
    char *real = realpath(path, NULL);
    g_autofree char *at = real != NULL ? g_strdup(real) : NULL;

    free(real);
    while (at != NULL) {
        g_auto(VjMountEntry) entry = {.source = NULL};
        char *up;

        if (vj_mount_table_find(at, &entry)) {
            *owner = owner_of(&entry);
            return g_steal_pointer(&entry.source);
        }
        up = strcmp(at, "/") == 0 ? NULL : g_path_get_dirname(at);
        g_free(at);
        at = up;
    }
    return NULL;
}

static bool add_line(void *opaque, char *line)
{
    g_string_append_printf(opaque, "%s\n", line);
    return true;
}

static bool fail(const VjCtl *ctl, const char *path, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", ctl->cmd->name, path, why);
    return false;
}

/* True: it says what the mount says; with @renew it does so now.  Else a message. */
static bool see_to_file(const VjCtl *ctl, const char *path, int fd, bool renew,
                        VjConfState *state)
{
    uid_t owner = 0;
    g_autofree char *source = source_of(path, &owner);
    g_autoptr(GString) conf = g_string_new(NULL);
    g_autoptr(GError) error = NULL;

    *state = VJ_CONF_SAME;
    if (source == NULL) {
        return fail(ctl, path,
                    "the mount table does not show its volume file: refresh it where it "
                    "was mounted (varjfsctl node refresh)");
    }
    if (!vj_ctl_text(ctl, path, fd, VARJFS_TEXT_CONF, add_line, conf)) {
        return false;
    }
    if (!vj_volume_renew_conf(source, conf->str, owner, renew, state, &error)) {
        fprintf(stderr,
                "%s: %s; until it is written, by \"varjfsctl node refresh %s\", the next "
                "mount begins with an older list of nodes\n",
                ctl->cmd->name, error->message, path);
        return false;
    }
    return true;
}

static int refresh(const VjCtl *ctl, const char *path, int fd)
{
    VjConfState state;

    if (!see_to_file(ctl, path, fd, true, &state)) {
        return EXIT_FAILURE;
    }
    if (ctl->format == VJ_CTL_JSON) {
        printf("{\"written\": %s}\n", state == VJ_CONF_RENEWED ? "true" : "false");
    } else {
        printf("%s: its volume file %s\n", path,
               state == VJ_CONF_RENEWED ? "was written" : "is as it has to be");
    }
    return EXIT_SUCCESS;
}

static int status_and_file(const VjCtl *ctl, const char *path, int fd)
{
    VjConfState state;
    int r = status(ctl, path, fd);

    if (r == EXIT_SUCCESS && see_to_file(ctl, path, fd, false, &state) &&
        state == VJ_CONF_OLDER) {
        fprintf(stderr,
                "%s: %s: its volume file has an older list of nodes: \"varjfsctl node "
                "refresh %s\" writes it anew\n",
                ctl->cmd->name, path, path);
    }
    return r;
}

/* ---- changes ----------------------------------------------------------------------- */

static bool ask(const VjCtl *ctl, const char *path, int fd, struct varjfs_node *io)
{
    const char *host = ctl->operands[2];

    io->version = VARJFS_IOC_VERSION;
    if (g_strlcpy(io->host, host, sizeof io->host) >= sizeof io->host) {
        return fail(ctl, host, "longer than the list of nodes can have it");
    }
    if (ioctl(fd, VARJFS_IOC_NODE, io) != 0) {
        vj_cmd_fail_errno(ctl->cmd, path, errno);
        return false;
    }
    io->message[sizeof io->message - 1] = '\0';
    return io->error == 0 || fail(ctl, path, io->message);
}

/* Looks at all records, so not more than a tenth of the time. */
static void pause_for(int64_t count_us)
{
    int64_t pause_us = CLAMP(count_us * 10, LOOK_LEAST_US, LOOK_MOST_US);

    (void)poll(NULL, 0, (int)(pause_us / 1000));
}

/* Until the node has nothing that is needed. */
static bool wait_until_empty(const VjCtl *ctl, const char *path, int fd)
{
    bool is_terminal = isatty(STDERR_FILENO) != 0, ok;
    struct varjfs_node io;

    for (;;) {
        int64_t begin_us = vj_clock_mono_us();

        io = (struct varjfs_node){.what = VARJFS_NODE_COUNT};
        ok = ask(ctl, path, fd, &io);
        if (!ok || io.left == 0) {
            break;
        }
        if (is_terminal || ctl->progress) {
            fprintf(stderr, "%s%" G_GUINT64_FORMAT " objects left on %s%s",
                    is_terminal ? "\r" : "", (guint64)io.left, io.host,
                    is_terminal ? "\033[K" : "\n");
        }
        pause_for(vj_clock_mono_us() - begin_us);
    }
    if (is_terminal) {
        fprintf(stderr, "\r\033[K");
    }
    return ok;
}

static int change(const VjCtl *ctl, const char *path, int fd, const Change *what)
{
    struct varjfs_node io = {.what = what->what};
    VjConfState state;
    bool ok;

    io.weight = what->what == VARJFS_NODE_ADD ? (uint32_t)MAX(ctl->weight, 1) : 0;
    io.flags = ctl->is_forced ? VARJFS_NODE_FORCE : 0;
    if (!ask(ctl, path, fd, &io)) {
        return EXIT_FAILURE;
    }
    ok = see_to_file(ctl, path, fd, true, &state);
    if (what->what == VARJFS_NODE_DRAIN && !wait_until_empty(ctl, path, fd)) {
        return EXIT_FAILURE;
    }
    if (ctl->format == VJ_CTL_JSON) {
        g_autofree char *host = vj_ctl_json_string(io.host);

        printf("{\"node\": %s, \"%s\": true}\n", host, what->done);
    } else {
        printf("%s: node %s %s %s\n", path, io.host,
               what->what == VARJFS_NODE_DRAIN ? "is" : "was", what->done);
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

static const Change *find_change(const char *word)
{
    static const Change changes[] = {{"add", VARJFS_NODE_ADD, "added"},
                                     {"drain", VARJFS_NODE_DRAIN, "drained"},
                                     {"remove", VARJFS_NODE_REMOVE, "removed"}};

    for (size_t i = 0; i < G_N_ELEMENTS(changes); i++) {
        if (strcmp(changes[i].word, word) == 0) {
            return &changes[i];
        }
    }
    return NULL;
}

/* What does not go together.  Returns the exit code, or -1. */
static int check_usage(const VjCtl *ctl, const Change *what)
{
    const char *word = ctl->operands[0];

    if (what == NULL && ctl->operands[2] != NULL) {
        return vj_cmd_usage_error(ctl->cmd, ctl->operands[2], "one argument too many");
    }
    if (what != NULL && ctl->operands[2] == NULL) {
        return vj_cmd_usage_error(ctl->cmd, word, "which HOST?");
    }
    if (ctl->weight != 0 && (what == NULL || what->what != VARJFS_NODE_ADD)) {
        return vj_cmd_usage_error(ctl->cmd, "--weight", "goes with add alone");
    }
    if (ctl->is_forced && (what == NULL || what->what != VARJFS_NODE_REMOVE)) {
        return vj_cmd_usage_error(ctl->cmd, "--force", "goes with remove alone");
    }
    return -1;
}

int vj_ctl_node(const VjCtl *ctl)
{
    static const struct {
        const char *word;
        int (*run)(const VjCtl *ctl, const char *path, int fd);
    } looks[] = {{"status", status_and_file}, {"repair", repair}, {"refresh", refresh}};
    const char *word = ctl->operands[0], *path = ctl->operands[1];
    const Change *what = find_change(word);
    size_t look = 0;
    VJ_AUTO_FD fd = -1;
    int usage;

    while (look < G_N_ELEMENTS(looks) && strcmp(looks[look].word, word) != 0) {
        look++;
    }
    if (what == NULL && look == G_N_ELEMENTS(looks)) {
        return vj_cmd_usage_error(
            ctl->cmd, word, "there are status, repair, refresh, add, drain and remove");
    }
    usage = check_usage(ctl, what);
    if (usage >= 0) {
        return usage;
    }
    fd = vj_ctl_open(ctl, path, O_RDONLY);
    if (fd < 0) {
        return EXIT_FAILURE;
    }
    return what != NULL ? change(ctl, path, fd, what) : looks[look].run(ctl, path, fd);
}
