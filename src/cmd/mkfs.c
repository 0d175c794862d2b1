/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mkfs.c - mkfs.varjfs: make a file system
 *
 * A child makes it, because it gives up the right to remove SOURCE itself.  Signals that
 * are to end the program wait until it has looked at them between two steps and undone
 * what it did; then they end both.
 */
#include "cmd/cmd.h"
#include "cmd/confine.h"
#include "volume/volume.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const int ending_signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

typedef struct Make {
    VjVolumeMake how;
    GString *options; /* all -o, joined */
    bool is_bare;     /* --sandbox=off */
    int made_fd;      /* the child's: a byte into it says that SOURCE is new */
    sigset_t ending;  /* those signals that this process does not ignore; blocked */
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
        "missing; or, where meta= and store= are elsewhere, the volume file SOURCE.",
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

/* What is there may be another user's work, and so may be what answers from elsewhere. */
static void opened(void *opaque, const VjVolumeMaking *making)
{
    const Make *make = opaque;
    VjDriverNeeds drivers = making->drivers;

    if (making->is_new) {
        (void)!write(make->made_fd, "", 1); /* else an empty directory may stay */
    }
    if (!making->is_file) {
        /* The files of those that were there before are removed. */
        drivers.meta |= VJ_NEEDS_FILES;
        drivers.store |= VJ_NEEDS_FILES;
    }
    /* As is what has to be removed below the first levels. */
    if (!make->is_bare) {
        vj_confine(&(VjConfine){
            .dir_fd = making->dir_fd,
            .is_file = making->is_file,
            .file_fd = -1,
            .owners = {true, true},
            .drivers = drivers,
            .files = making->files,
            .trusts_files = true,
            .rewrites = true,
            .other_fd = -1,
        });
    }
}

static bool is_cancelled(void *opaque)
{
    const Make *make = opaque;
    sigset_t pending;

    sigpending(&pending);
    for (size_t i = 0; i < G_N_ELEMENTS(ending_signals); i++) {
        if (sigismember(&make->ending, ending_signals[i]) == 1 &&
            sigismember(&pending, ending_signals[i]) == 1) {
            return true;
        }
    }
    return false;
}

static int make_volume(Make *make, const char *source)
{
    g_autoptr(GError) error = NULL;

    make->how.source = source;
    make->how.options = make->options->str;
    make->how.opened = opened;
    make->how.cancelled = is_cancelled;
    make->how.opaque = make;
    if (vj_volume_make(&make->how, &error)) {
        return EXIT_SUCCESS;
    }
    /* What only the drivers and the chunker know about a value is wrong usage all the
     * same. */
    return error->code == EINVAL ? vj_cmd_usage_error(&command, NULL, error->message)
                                 : vj_cmd_fail(&command, error);
}

/* What nohup(1) ignores stays ignored. */
static void hold_signals(Make *make)
{
    sigset_t held;

    sigemptyset(&make->ending);
    for (size_t i = 0; i < G_N_ELEMENTS(ending_signals); i++) {
        struct sigaction now;

        if (sigaction(ending_signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN) {
            sigaddset(&make->ending, ending_signals[i]);
        }
    }
    held = make->ending;
    sigaddset(&held, SIGCHLD);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &held, NULL);
}

/* Hands on the signals that arrive, the last one as *ended.  *status: the child's, as
 * waitpid(2) has it.  -errno: it cannot be waited for. */
static int wait_for(const Make *make, pid_t child, int *status, int *ended)
{
    sigset_t awaited = make->ending;
    pid_t gone;

    sigaddset(&awaited, SIGCHLD);
    *ended = 0;
    while ((gone = waitpid(child, status, WNOHANG)) == 0) {
        int number = sigwaitinfo(&awaited, NULL);

        if (number > 0 && number != SIGCHLD) {
            *ended = number;
            kill(child, number);
        }
    }
    return gone == child ? 0 : -errno;
}

/* Ends this process by the signal, as if it had not been held up. */
static void end_by(int number)
{
    sigset_t one;

    sigemptyset(&one);
    sigaddset(&one, number);
    signal(number, SIG_DFL);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
}

static int make_apart(Make *make, const char *source)
{
    int r, status, ended, pipe_fds[2] = {-1, -1};
    char byte;
    pid_t parent = getpid(), child;

    hold_signals(make);
    child = pipe(pipe_fds) == 0 ? fork() : -1;
    if (child < 0) {
        return vj_cmd_fail_errno(&command, "fork", errno);
    }
    if (child == 0) {
        close(pipe_fds[0]);
        make->made_fd = pipe_fds[1];
        /* It undoes what it did, and the directory stays. */
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        return getppid() == parent ? make_volume(make, source) : EXIT_FAILURE;
    }
    close(pipe_fds[1]);
    r = wait_for(make, child, &status, &ended);
    if (r < 0) {
        close(pipe_fds[0]);
        return vj_cmd_fail_errno(&command, "waitpid", -r);
    }
    if (status != 0 && read(pipe_fds[0], &byte, 1) == 1) {
        (void)rmdir(source);
    }
    close(pipe_fds[0]);
    if (status != 0 && ended != 0) {
        end_by(ended);
    }
    if (WIFSIGNALED(status)) {
        vj_complain(command.name, "%s: it ended with signal %d (%s)", source,
                    WTERMSIG(status), strsignal(WTERMSIG(status)));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
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
            status = make_apart(&make, argv[first]);
        }
    }
    g_string_free(make.options, TRUE);
    return status;
}
