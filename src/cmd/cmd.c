/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * cmd.c - command lines by table
 */
#include "cmd/cmd.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* getopt_long wants a number for each switch: its place in the table, above all
 * letters. */
#define FIRST_NUMBER 256
#define SWITCHES_MAX 32

enum { HELP_NUMBER = FIRST_NUMBER + SWITCHES_MAX, VERSION_NUMBER };

static const VjCmdSwitch help_switch = {
    .letter = 'h', .word = "help", .help = "show this text"};
static const VjCmdSwitch version_switch = {
    .letter = 'V', .word = "version", .help = "show the version"};

static int count_switches(const VjCmd *cmd)
{
    int n = 0;

    while (cmd->switches != NULL && cmd->switches[n].help != NULL) {
        n++;
    }
    g_assert(n < SWITCHES_MAX);
    return n;
}

/* "-f, --force", "-o K=V,...", "--json". */
static char *spelling(const VjCmdSwitch *s)
{
    GString *out = g_string_new(NULL);

    if (s->letter != '\0') {
        g_string_append_printf(out, "-%c", s->letter);
    }
    if (s->word != NULL) {
        g_string_append_printf(out, "%s--%s", out->len > 0 ? ", " : "", s->word);
    }
    if (s->value != NULL) {
        g_string_append_printf(out, "%c%s", s->word != NULL ? '=' : ' ', s->value);
    }
    return g_string_free(out, FALSE);
}

static void print_switch(const VjCmdSwitch *s)
{
    g_autofree char *text = spelling(s);

    printf("  %-20s %s\n", text, s->help);
}

static void print_usage(const VjCmd *cmd, FILE *to)
{
    fprintf(to, "usage: %s%s%s\n", cmd->name, *cmd->operands != '\0' ? " " : "",
            cmd->operands);
}

void vj_cmd_help(const VjCmd *cmd)
{
    int count = count_switches(cmd);

    print_usage(cmd, stdout);
    printf("\n%s\n\n", cmd->summary);
    for (int i = 0; i < count; i++) {
        print_switch(&cmd->switches[i]);
    }
    print_switch(&help_switch);
    print_switch(&version_switch);
    if (cmd->options != NULL) {
        g_autofree char *options = vj_opts_help(cmd->options);

        printf("\nOptions for -o, separated by commas:\n%s", options);
    }
    if (cmd->more != NULL) {
        printf("\n%s\n", cmd->more);
    }
    if (cmd->more_of != NULL) {
        g_autofree char *more = cmd->more_of();

        printf("\n%s\n", more);
    }
}

int vj_cmd_usage_error(const VjCmd *cmd, const char *what, const char *why)
{
    vj_complain(cmd->name, "%s%s%s", what != NULL ? what : "", what != NULL ? ": " : "",
                why);
    print_usage(cmd, stderr);
    return VJ_EXIT_USAGE;
}

char *vj_cmd_session_name(const char *program, const char *where)
{
    return g_strdup_printf("%s[%ld] on %s, %s", program, (long)getpid(),
                           g_get_host_name(), where);
}

int vj_cmd_fail(const VjCmd *cmd, const GError *error)
{
    vj_complain(cmd->name, "%s", error->message);
    return EXIT_FAILURE;
}

int vj_cmd_fail_errno(const VjCmd *cmd, const char *what, int positive_errno)
{
    vj_complain(cmd->name, "%s: %s", what, g_strerror(positive_errno));
    return EXIT_FAILURE;
}

int vj_cmd_flush(const VjCmd *cmd, int status)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        int why = errno != 0 ? errno : EIO;

        return vj_cmd_fail_errno(cmd, "standard output", why);
    }
    return status;
}

/* ---- parsing ----------------------------------------------------------------------- */

typedef struct Grammar {
    char letters[2 * SWITCHES_MAX + 8];
    struct option words[SWITCHES_MAX + 3];
    int count;
} Grammar;

static void add_switch(Grammar *g, size_t *letters, int *words, const VjCmdSwitch *s,
                       int number)
{
    if (s->letter != '\0') {
        g->letters[(*letters)++] = s->letter;
        if (s->value != NULL) {
            g->letters[(*letters)++] = ':';
        }
    }
    if (s->word != NULL) {
        g->words[(*words)++] = (struct option){
            .name = s->word,
            .has_arg = s->value != NULL ? required_argument : no_argument,
            .val = number,
        };
    }
}

static void grammar_init(Grammar *g, const VjCmd *cmd)
{
    size_t letters = 0;
    int words = 0;

    *g = (Grammar){.count = count_switches(cmd)};
    /* So that getopt distinguishes a missing value from an unknown switch. */
    g->letters[letters++] = ':';
    for (int i = 0; i < g->count; i++) {
        add_switch(g, &letters, &words, &cmd->switches[i], FIRST_NUMBER + i);
    }
    add_switch(g, &letters, &words, &help_switch, HELP_NUMBER);
    add_switch(g, &letters, &words, &version_switch, VERSION_NUMBER);
}

/* The switch that getopt_long means by @number; NULL: --help or --version. */
static const VjCmdSwitch *find_switch(const VjCmd *cmd, const Grammar *g, int number)
{
    for (int i = 0; i < g->count; i++) {
        if (number == FIRST_NUMBER + i || number == cmd->switches[i].letter) {
            return &cmd->switches[i];
        }
    }
    return NULL;
}

/* What stood wrong on the command line, for the message; owned. */
static char *wrong_word(char **argv)
{
    /* getopt has stepped over a long switch, and stands in the middle of short ones. */
    if (optopt > 0 && optopt < FIRST_NUMBER) {
        return g_strdup_printf("-%c", optopt);
    }
    return g_strdup(argv[optind - 1]);
}

int vj_cmd_parse(const VjCmd *cmd, int argc, char **argv, VjCmdSet *set, void *opaque,
                 int *first)
{
    Grammar g;
    int number;

    vj_sandbox_refuse(cmd->name);
    grammar_init(&g, cmd);
    opterr = 0;
    optind = 0; /* a GNU getopt starts afresh: varjfsctl calls this twice */
    while ((number = getopt_long(argc, argv, g.letters, g.words, NULL)) != -1) {
        g_autoptr(GError) error = NULL;
        const VjCmdSwitch *s = find_switch(cmd, &g, number);

        if (number == '?' || number == ':') {
            g_autofree char *word = wrong_word(argv);

            return vj_cmd_usage_error(
                cmd, word, number == ':' ? "a value is missing" : "unknown option");
        }
        if (number == HELP_NUMBER || (s == NULL && number == help_switch.letter)) {
            vj_cmd_help(cmd);
            return vj_cmd_flush(cmd, EXIT_SUCCESS);
        }
        if (s == NULL) {
            printf("%s " VARJFS_VERSION "\n", cmd->name);
            return vj_cmd_flush(cmd, EXIT_SUCCESS);
        }
        if (!set(opaque, s, s->value != NULL ? optarg : NULL, &error)) {
            return vj_cmd_usage_error(cmd, NULL, error->message);
        }
    }
    *first = optind;
    return -1;
}

/* ---- in the background ------------------------------------------------------------- */

int vj_cmd_wait_ready(const char *program, int fd, pid_t child, const char *event)
{
    char done;
    ssize_t n;
    int status;

    do {
        n = read(fd, &done, 1);
    } while (n < 0 && errno == EINTR);
    if (n == 1) {
        return EXIT_SUCCESS;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
        return WEXITSTATUS(status); /* it has said why */
    }
    vj_complain(program, "the daemon ended before %s", event);
    return EXIT_FAILURE;
}
