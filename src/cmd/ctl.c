/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl.c - varjfsctl: the table of subcommands
 */
#include "cmd/ctl.h"

#include "varjfs/ioctl.h"

#include <stdlib.h>

#define MANY 1000000
/* Of a scrub, bytes a second: a disk has some time left for others. */
#define RATE_DEFAULT ((uint64_t)64 << 20)
#define MAX_TIME_S ((uint64_t)1 << 32)
/* Of a certificate: a date has four digits of a year. */
#define MAX_DAYS ((uint64_t)36500)

typedef struct Subcommand {
    VjCmd cmd;       /* the name is "varjfsctl NAME" */
    int least, most; /* operands */
    int (*run)(const VjCtl *ctl);
} Subcommand;

static const VjCmdSwitch json_switch[] = {
    {.word = "json", .help = "print JSON"},
    {0},
};

static const VjCmdSwitch file_switches[] = {
    {.word = "json", .help = "print JSON"},
    {.word = "no-sync",
     .help = "show what was written back last, instead of writing back first"},
    {0},
};

static const VjCmdSwitch stats_switches[] = {
    {.word = "json", .help = "print JSON"},
    {.word = "prometheus", .help = "print in the Prometheus text format"},
    {0},
};

static const VjCmdSwitch top_switches[] = {
    {.word = "count", .value = "N", .help = "end after so many intervals"},
    {.word = "interval",
     .value = "SECONDS",
     .help = "how long one is, 0.1 to 3600 (default: 1)"},
    {0},
};

static const VjCmdSwitch recode_switches[] = {
    {.letter = 'r', .word = "recursive", .help = "what is in directories too"},
    {.word = "json", .help = "print JSON"},
    {0},
};

static const VjCmdSwitch scrub_switches[] = {
    {.word = "json", .help = "print JSON"},
    {.word = "rate",
     .value = "BYTES",
     .help = "read at most so many a second; 0: no limit (default: 64M)"},
    {.word = "resume",
     .help = "go on where the last scrub was interrupted, else begin a new one"},
    {.word = "max-bytes",
     .value = "BYTES",
     .help = "stop when so many were read; --resume goes on there"},
    {.word = "max-time", .value = "SECONDS", .help = "stop after so many seconds"},
    {.word = "progress", .help = "show the progress, also where it is no terminal"},
    {.word = "status",
     .help = "read nothing: show how far a scrub has come, and what the last found"},
    {0},
};

static const VjCmdSwitch node_switches[] = {
    {.word = "json", .help = "print JSON"},
    {.word = "weight",
     .value = "N",
     .help = "add: its share of the objects, 1 to 1000 (default: 1)"},
    {.word = "progress",
     .help = "drain: show the progress, also where it is no terminal"},
    {.word = "force", .help = "remove: it has not been drained, and is dead for good"},
    {0},
};

static const VjCmdSwitch keygen_switches[] = {
    {.word = "ca", .help = "make a CA in DIRECTORY: ca.pem and ca-key.pem"},
    {.word = "node",
     .value = "NAMES",
     .help = "make the certificate of a node, which clients know by these names"},
    {.word = "client",
     .value = "NAME",
     .help = "make the certificate of a client, which nodes know by that name"},
    {.word = "days",
     .value = "DAYS",
     .help = "it is good for so many (default: 3650 of a CA, else 825)"},
    {0},
};

static const VjCmdSwitch objects_switches[] = {
    {.word = "json", .help = "list, status: print JSON"},
    {.word = "volume",
     .value = "NAME",
     .help = "of a daemon's address: the volume there"},
    {.word = "transform", .value = "NAME", .help = "create: its transformation"},
    {0},
};

static const VjCmdSwitch kv_switches[] = {
    {.word = "json", .help = "list: print JSON"},
    {.word = "volume",
     .value = "NAME",
     .help = "of a daemon's address: the volume there"},
    {0},
};

static const VjCmdSwitch statistics_switches[] = {
    {.word = "json", .help = "print JSON"},
    {.word = "prometheus", .help = "print in the Prometheus text format"},
    {.word = "volume",
     .value = "NAME",
     .help = "of a daemon's address: the volume there"},
    {0},
};

static const VjCmdSwitch config_switches[] = {
    {.word = "json", .help = "show: print JSON"},
    {.word = "force", .help = "write: replace a file that is there"},
    {0},
};

static const VjCmdSwitch no_switches[] = {{0}};

static const Subcommand subcommands[] = {
    {{.name = "varjfsctl sync",
      .operands = "MOUNT...",
      .summary = "Makes everything durable that was written to MOUNT so far.",
      .switches = no_switches},
     1,
     MANY,
     vj_ctl_sync},
    {{.name = "varjfsctl status",
      .operands = "[--json] [--no-sync] FILE...",
      .summary = "Shows size, stored size, objects and transformation of files.",
      .switches = file_switches},
     1,
     MANY,
     vj_ctl_status},
    {{.name = "varjfsctl map",
      .operands = "[--json] [--no-sync] FILE",
      .summary = "Shows the objects that make up a file: offset, length, digest, stored\n"
                 "size, and how many places share each.",
      .switches = file_switches},
     1,
     1,
     vj_ctl_map},
    {{.name = "varjfsctl insert",
      .operands = "FILE OFFSET",
      .summary = "Inserts standard input into FILE at OFFSET.",
      .switches = no_switches},
     2,
     2,
     vj_ctl_insert},
    {{.name = "varjfsctl delete",
      .operands = "FILE OFFSET LENGTH",
      .summary = "Takes LENGTH bytes at OFFSET out of FILE.",
      .switches = no_switches},
     3,
     3,
     vj_ctl_delete},
    {{.name = "varjfsctl replace",
      .operands = "FILE OFFSET LENGTH",
      .summary =
          "Replaces LENGTH bytes at OFFSET of FILE by standard input, which may be\n"
          "longer or shorter.",
      .switches = no_switches},
     3,
     3,
     vj_ctl_replace},
    {{.name = "varjfsctl df",
      .operands = "[--json] MOUNT",
      .summary = "Shows space, objects and stored bytes of a file system.",
      .switches = json_switch},
     1,
     1,
     vj_ctl_df},
    {{.name = "varjfsctl stats",
      .operands = "[--json|--prometheus] MOUNT",
      .summary = "Shows the daemon's counters since the mount.",
      .switches = stats_switches},
     1,
     1,
     vj_ctl_stats},
    {{.name = "varjfsctl top",
      .operands = "[--count=N] [--interval=SECONDS] MOUNT",
      .summary =
          "Shows live which requests a file system gets and how long they take, its\n"
          "busiest files, and the processes that cause most.",
      .switches = top_switches},
     1,
     1,
     vj_ctl_top},
    {{.name = "varjfsctl recode",
      .operands = "[-r] [--json] FILE...",
      .summary =
          "Stores files anew under the transformation and object sizes that their\n"
          "attributes say.  Contents and times stay; may be interrupted and run again.",
      .switches = recode_switches},
     1,
     MANY,
     vj_ctl_recode},
    {{.name = "varjfsctl gc",
      .operands = "[--json] MOUNT",
      .summary = "Removes stored objects that belong to nothing, and what waits for its\n"
                 "removal.  For root, and for who mounted.",
      .switches = json_switch},
     1,
     1,
     vj_ctl_gc},
    {{.name = "varjfsctl checkpoint",
      .operands = "[--json] MOUNT",
      .summary =
          "Copies the metadata, so that fsck.varjfs --restore can take them back.\n"
          "For root, and for who mounted.",
      .switches = json_switch},
     1,
     1,
     vj_ctl_checkpoint},
    {{.name = "varjfsctl keygen",
      .operands = "[--ca|--node=NAMES|--client=NAME] [--days=DAYS] "
                  "FILE|DIRECTORY",
      .summary =
          "Makes a key that nodes and clients of a volume share, in FILE; or, with a\n"
          "switch, certificates in DIRECTORY.  Replaces no file.",
      .switches = keygen_switches},
     1,
     1,
     vj_ctl_keygen},
    {{.name = "varjfsctl node",
      .operands = "status|repair|refresh|add|drain|remove [OPTION...] MOUNT [HOST]",
      .summary = "status: shows the storage nodes of a file system.  repair: brings all\n"
                 "objects to their number of replicas, and waits for it.  add, drain,\n"
                 "remove: change the list of nodes.  refresh: writes it into the volume\n"
                 "file.  For root, and for who mounted.",
      .switches = node_switches},
     2,
     3,
     vj_ctl_node},
    {{.name = "varjfsctl store",
      .operands = "status|grow [--json] MOUNT",
      .summary = "status: shows where the objects are, and how full it is there.  grow:\n"
                 "uses all of a device that has become longer.  For root, and for who\n"
                 "mounted.",
      .switches = json_switch},
     2,
     2,
     vj_ctl_store},
    {{.name = "varjfsctl scrub",
      .operands = "[OPTION...] MOUNT",
      .summary = "Reads and verifies all objects, and names the files that have damaged\n"
                 "ones.  May be interrupted and resumed.  For root, and for who mounted.",
      .switches = scrub_switches},
     1,
     1,
     vj_ctl_scrub},
    {{.name = "varjfsctl objects",
      .operands = "list|create|status|read|write|insert|resize|rename|delete|clear "
                  "[OPTION...] SOURCE [SPACE [NAME [OFFSET|BYTES|NEW-NAME]]]",
      .summary =
          "Objects of a volume that is not mounted, by the daemon that serves it to\n"
          "programs.  list: shows namespaces, or the names of one, or those that\n"
          "begin with NAME.  write and insert take standard input.  clear: deletes\n"
          "all of a namespace.",
      .switches = objects_switches},
     2,
     5,
     vj_ctl_objects},
    {{.name = "varjfsctl items",
      .operands = "list|attributes|get|put|delete [OPTION...] SOURCE [SPACE [ITEM "
                  "[ATTRIBUTE [VALUE]]]]",
      .summary =
          "Attributes of objects, likewise.  attributes: shows those of an item, or\n"
          "those that begin with ATTRIBUTE.  put: without VALUE, standard input.",
      .switches = kv_switches},
     2,
     6,
     vj_ctl_items},
    {{.name = "varjfsctl kv",
      .operands = "list|get|put|delete|clear [OPTION...] SOURCE [SPACE [KEY [VALUE]]]",
      .summary = "Keys of a volume, likewise.  put: without VALUE, standard input.",
      .switches = kv_switches},
     2,
     5,
     vj_ctl_kv},
    {{.name = "varjfsctl statistics",
      .operands = "[--json|--prometheus] [--volume=NAME] SOURCE",
      .summary =
          "Shows what the daemon has done that serves a volume to programs: requests,\n"
          "operations by kind, bytes, errors, connections.",
      .switches = statistics_switches},
     1,
     1,
     vj_ctl_statistics},
    {{.name = "varjfsctl config",
      .operands = "check|show|write [--json] [--force] FILE [KEY=VALUE...]",
      .summary =
          "check: says each fault of the configuration of a client, a node or a volume.\n"
          "show: what is in force, and where that stands.  write: makes a client's.",
      .switches = config_switches},
     2,
     MANY,
     vj_ctl_config},
};

static const VjCmd program = {
    .name = "varjfsctl",
    .operands = "SUBCOMMAND [ARGUMENT...]",
    .summary = "Looks at and changes files of a mounted varjfs file system.",
    .switches = no_switches,
};

/* ---- help -------------------------------------------------------------------------- */

static void print_help(void)
{
    g_autofree char *transforms = vj_cmd_transforms();

    vj_cmd_help(&program);
    printf("\nSubcommands (each has its own --help; sizes take K, M, G or T):\n");
    for (size_t i = 0; i < G_N_ELEMENTS(subcommands); i++) {
        const VjCmd *cmd = &subcommands[i].cmd;
        g_autofree char *text = g_strdup(cmd->summary);

        g_strdelimit(text, "\n", ' ');
        printf("  %s %s\n      %s\n", cmd->name + strlen("varjfsctl "), cmd->operands,
               text);
    }
    printf("\n%s\n", transforms);
}

/* ---- one subcommand ---------------------------------------------------------------- */

/* "2", "0.5" */
static bool read_interval(const char *text, uint64_t *out_ms)
{
    char *end;
    double seconds = g_ascii_strtod(text, &end);

    if (end == text || *end != '\0' || !(seconds >= 0.1 && seconds <= 3600)) {
        return false;
    }
    *out_ms = (uint64_t)(seconds * 1000 + 0.5);
    return true;
}

static bool set_switch(void *opaque, const VjCmdSwitch *s, const char *value,
                       GError **error)
{
    VjCtl *ctl = opaque;
    const struct {
        const char *word;
        bool *set;
    } flags[] = {
        {"no-sync", &ctl->no_sync}, {"recursive", &ctl->recursive},
        {"resume", &ctl->resume},   {"progress", &ctl->progress},
        {"status", &ctl->status},   {"ca", &ctl->makes_ca},
        {"force", &ctl->is_forced},
    };
    const struct {
        const char *word;
        const char **set;
    } texts[] = {{"node", &ctl->node},
                 {"client", &ctl->client},
                 {"volume", &ctl->volume},
                 {"transform", &ctl->transform}};

    if (strcmp(s->word, "rate") == 0) {
        return vj_parse_size(value, &ctl->rate, error) ||
               vj_error_prefix(error, "--rate");
    }
    if (strcmp(s->word, "max-bytes") == 0) {
        return vj_parse_size(value, &ctl->max_bytes, error) ||
               vj_error_prefix(error, "--max-bytes");
    }
    if (strcmp(s->word, "max-time") == 0) {
        return g_ascii_string_to_unsigned(value, 10, 0, MAX_TIME_S, &ctl->max_time_s,
                                          NULL) ||
               vj_error_set(error, EINVAL, "--max-time: \"%s\" is no number of seconds",
                            value);
    }
    if (strcmp(s->word, "count") == 0) {
        return g_ascii_string_to_unsigned(value, 10, 1, MANY, &ctl->count, NULL) ||
               vj_error_set(error, EINVAL, "--count: \"%s\" is no number from 1 to %d",
                            value, MANY);
    }
    if (strcmp(s->word, "interval") == 0) {
        return read_interval(value, &ctl->interval_ms) ||
               vj_error_set(error, EINVAL,
                            "--interval: \"%s\" is no number of seconds, 0.1 to 3600",
                            value);
    }
    if (strcmp(s->word, "weight") == 0) {
        return g_ascii_string_to_unsigned(value, 10, 1, VARJFS_NODE_WEIGHT_MAX,
                                          &ctl->weight, NULL) ||
               vj_error_set(error, EINVAL, "--weight: \"%s\" is no number from 1 to %u",
                            value, VARJFS_NODE_WEIGHT_MAX);
    }
    if (strcmp(s->word, "days") == 0) {
        return g_ascii_string_to_unsigned(value, 10, 1, MAX_DAYS, &ctl->days, NULL) ||
               vj_error_set(error, EINVAL, "--days: \"%s\" is no number of days", value);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        if (strcmp(s->word, texts[i].word) == 0) {
            *texts[i].set = value;
            return true;
        }
    }
    for (size_t i = 0; i < G_N_ELEMENTS(flags); i++) {
        if (strcmp(s->word, flags[i].word) == 0) {
            *flags[i].set = true;
            return true;
        }
    }
    if (ctl->format != VJ_CTL_TEXT) {
        return vj_error_set(error, EINVAL, "--%s: one format at a time", s->word);
    }
    ctl->format = strcmp(s->word, "json") == 0 ? VJ_CTL_JSON : VJ_CTL_PROMETHEUS;
    return true;
}

static int run_subcommand(const Subcommand *sub, int argc, char **argv)
{
    VjCtl ctl = {.cmd = &sub->cmd, .rate = RATE_DEFAULT};
    int first, status = vj_cmd_parse(&sub->cmd, argc, argv, set_switch, &ctl, &first);

    if (status >= 0) {
        return status;
    }
    if (argc - first < sub->least) {
        return vj_cmd_usage_error(&sub->cmd, NULL, "an argument is missing");
    }
    if (argc - first > sub->most) {
        return vj_cmd_usage_error(&sub->cmd, argv[first + sub->most],
                                  "one argument too many");
    }
    ctl.operands = argv + first;
    return vj_cmd_flush(&sub->cmd, sub->run(&ctl));
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        return vj_cmd_usage_error(&program, "SUBCOMMAND", "missing");
    }
    if (argv[1][0] == '-') {
        int first;

        if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
            print_help();
            return vj_cmd_flush(&program, EXIT_SUCCESS);
        }
        int status = vj_cmd_parse(&program, 2, argv, set_switch, NULL, &first);
        return status >= 0 ? status
                           : vj_cmd_usage_error(&program, "SUBCOMMAND", "missing");
    }
    for (size_t i = 0; i < G_N_ELEMENTS(subcommands); i++) {
        if (strcmp(argv[1], subcommands[i].cmd.name + strlen("varjfsctl ")) == 0) {
            return run_subcommand(&subcommands[i], argc - 1, argv + 1);
        }
    }
    return vj_cmd_usage_error(&program, argv[1], "no such subcommand");
}
