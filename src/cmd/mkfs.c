/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mkfs.c - mkfs.varjfs: make a file system
 */
#include "cmd/cmd.h"
#include "cmd/confine.h"
#include "file/file.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct Make {
    VjVolumeMake how;
    GString *options; /* all -o, joined */
    bool is_bare;     /* --sandbox=off */
} Make;

static const VjCmdSwitch switches[] = {
    {.letter = 'f',
     .word = "force",
     .help = "destroy a file system that is there; allow other files beside it"},
    {.letter = 'o', .value = "K=V,...", .help = "options, see below"},
    {.word = "sandbox",
     .value = "auto|off",
     .help = "give up what making it does not take (default: auto); off: for debuggers"},
    {0},
};

static const VjCmd command = {
    .name = "mkfs.varjfs",
    .operands = "[-f] [-o K=V,...] [--sandbox=auto|off] SOURCE",
    .summary =
        "Makes a varjfs file system in the directory SOURCE, which is created if it is\n"
        "missing.",
    .switches = switches,
    .options = vj_volume_make_options,
    .more_of = vj_cmd_transforms,
};

static bool set_switch(void *opaque, const VjCmdSwitch *s, const char *value,
                       GError **error)
{
    Make *make = opaque;
    g_autoptr(VjOpts) probe = NULL;

    if (s->letter == 'f') {
        make->how.force = true;
        return true;
    }
    if (s->letter == '\0') {
        return vj_confine_parse(value, &make->is_bare, error);
    }
    probe = vj_opts_new(vj_volume_make_options);
    if (!vj_opts_parse(probe, value, error)) {
        return vj_error_prefix(error, "-o");
    }
    g_string_append_printf(make->options, "%s%s", make->options->len > 0 ? "," : "",
                           value);
    return true;
}

/* What is there may be somebody else's work. */
static void confine(void *opaque, int source_fd)
{
    const Make *make = opaque;

    /* As is what has to be removed below the first levels. */
    if (!make->is_bare) {
        vj_confine(source_fd, (VjSourceOwners){true, true}, -1);
    }
}

static int make_volume(Make *make, const char *source)
{
    g_autoptr(GError) error = NULL;

    make->how.source = source;
    make->how.options = make->options->str;
    make->how.opened = confine;
    make->how.opaque = make;
    if (vj_volume_make(&make->how, &error)) {
        return EXIT_SUCCESS;
    }
    /* What only the drivers and the chunker know about a value is wrong usage all the same. */
    return error->code == EINVAL ? vj_cmd_usage_error(&command, NULL, error->message)
                                 : vj_cmd_fail(&command, error);
}

int main(int argc, char **argv)
{
    Make make = {.options = g_string_new(NULL)};
    int first, status = vj_cmd_parse(&command, argc, argv, set_switch, &make, &first);

    if (status < 0) {
        if (first == argc) {
            status = vj_cmd_usage_error(&command, "SOURCE", "missing");
        } else if (first + 1 < argc) {
            status =
                vj_cmd_usage_error(&command, argv[first + 1], "one argument too many");
        } else {
            (void)vj_log_open(command.name, "stderr", VJ_LOG_WARN, NULL);
            status = make_volume(&make, argv[first]);
        }
    }
    g_string_free(make.options, TRUE);
    return status;
}
