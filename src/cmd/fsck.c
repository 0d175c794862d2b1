/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fsck.c - fsck.varjfs: verify, and with -y repair, a file system that is not mounted
 *
 * One line on stdout for each problem, with the names of the inodes that it is about,
 * then the counts.  -y repairs and verifies in turn until nothing is found, or nothing
 * more can be done; what is left for a mount to finish is finished too.
 */
#include "fsck/fsck.h"
#include "cmd/cmd.h"
#include "cmd/confine.h"
#include "cmd/mount-table.h"
#include "fs/fs.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* As fsck(8). */
enum { FSCK_CLEAN = 0, FSCK_CORRECTED = 1, FSCK_UNCORRECTED = 4, FSCK_CANNOT_RUN = 8 };

/* umount(8) returns before the daemon has finished: wait for it as a mount does. */
#define LOCK_WAIT_US ((int64_t)60 * 1000 * 1000)

/* Lines that wait for the names of their inodes: a search reads all names once. */
#define LINES_MOST 1000u
#define LINES_WAIT_US ((int64_t)1000 * 1000)
/* Rounds of repair: what one uncovers the next one sees to. */
#define ROUNDS_MOST 8u
/* Between two lines of progress. */
#define PROGRESS_US ((int64_t)250 * 1000)

typedef struct Fsck {
    bool repair, quick;
    bool preen;        /* at boot: look, change nothing, do not take long */
    bool force;        /* also what was closed in order */
    bool is_bare;      /* --sandbox=off */
    bool restore;      /* a checkpoint takes the place of the metadata */
    bool log_given_up; /* what its damaged part had */
    bool superblock_restored;
    const char *checkpoint; /* which one; NULL: the newest */
    const char *source;
    VjVolume *volume; /* whose names are asked for */
    GPtrArray *lines; /* char *: not shown yet */
    int64_t lines_us; /* when the first of them came */
    bool quiet;       /* a round in between */
    int64_t shown_us; /* progress was shown; 0: not on a terminal */
    bool progress;    /* there is a line to be wiped */
} Fsck;

static const VjCmdSwitch switches[] = {
    {.letter = 'n', .help = "change nothing, the default"},
    {.letter = 'y', .help = "repair what is found"},
    {.letter = 'p', .help = "at boot: look unless it is clean, change nothing, be quick"},
    {.letter = 'a', .help = "the same as -p"},
    {.letter = 'f', .help = "with -p: look also when it is clean, and read the data"},
    {.word = "quick", .help = "do not read the data of the objects"},
    {.word = "restore",
     .help = "put a checkpoint in the place of the metadata; implies -y"},
    {.word = "checkpoint",
     .value = "NAME",
     .help = "which one --restore takes (default: the newest that is whole)"},
    {.word = "sandbox",
     .value = "auto|off",
     .help = "give up what looking at SOURCE does not take (default: auto); off: for "
             "debuggers"},
    {0},
};

static const VjCmd command = {
    .name = "fsck.varjfs",
    .operands = "[-n|-y|-p|-a] [-f] [--quick] [--restore [--checkpoint=NAME]] "
                "[--sandbox=auto|off] SOURCE",
    .summary =
        "Verifies the varjfs file system of SOURCE, which must not be mounted, and\n"
        "with -y repairs it.",
    .switches = switches,
    .more = "Exit status: 0 clean, 1 problems were corrected, 4 problems are left,\n"
            "8 could not run, 2 wrong usage.",
};

static bool set_switch(void *opaque, const VjCmdSwitch *s, const char *value,
                       GError **error)
{
    Fsck *fsck = opaque;

    if (g_strcmp0(s->word, "sandbox") == 0) {
        return vj_confine_parse(value, &fsck->is_bare, error);
    }
    if (value != NULL) {
        fsck->checkpoint = value;
    } else if (g_strcmp0(s->word, "restore") == 0) {
        fsck->restore = true;
    } else if (s->letter == 'n') {
        fsck->repair = false;
    } else if (s->letter == 'y') {
        fsck->repair = true;
    } else if (s->letter == 'p' || s->letter == 'a') {
        fsck->preen = true;
    } else if (s->letter == 'f') {
        fsck->force = true;
    } else {
        fsck->quick = true;
    }
    return true;
}

/* ---- progress ---------------------------------------------------------------------- */

static void wipe_progress(Fsck *fsck)
{
    if (fsck->progress) {
        fputs("\r\033[K", stderr);
        fsck->progress = false;
    }
}

static void tick(void *opaque, const VjCheckReport *so_far)
{
    Fsck *fsck = opaque;
    int64_t now = vj_clock_mono_us();

    if (fsck->shown_us == 0 || now - fsck->shown_us < PROGRESS_US) {
        return;
    }
    fsck->shown_us = now;
    fsck->progress = true;
    fprintf(stderr,
            "\r%" G_GUINT64_FORMAT " inodes, %" G_GUINT64_FORMAT
            " objects, %" G_GUINT64_FORMAT " MiB read\033[K",
            so_far->inodes, so_far->objects, so_far->bytes_verified >> 20);
}

/* ---- lines with names -------------------------------------------------------------- */

/* The inode that a line is about; 0: none. */
static uint64_t inode_of(const char *text)
{
    uint64_t ino = 0;

    return sscanf(text, "inode %" G_GUINT64_FORMAT, &ino) == 1 ||
                   sscanf(text, "directory %" G_GUINT64_FORMAT, &ino) == 1
               ? ino
               : 0;
}

/* Adds a name to those of @ino: "/a, /b". */
static void add_path(void *opaque, uint64_t ino, const char *path)
{
    GHashTable *paths = opaque;
    g_autofree char *plain = NULL;
    g_autofree char *shown = NULL;
    const char *before = g_hash_table_lookup(paths, &ino);

    if (path == NULL) {
        return;
    }
    shown = vj_one_line(path);
    plain = strcmp(shown, path) == 0 ? g_strdup(path) : g_strescape(path, NULL);
    g_hash_table_replace(paths, g_memdup2(&ino, sizeof ino),
                         before == NULL ? g_strdup(plain)
                                        : g_strdup_printf("%s, %s", before, plain));
}

/* "inode 7: it is so" becomes "inode 7 (/a/b): it is so". */
static void print_line(GHashTable *paths, const char *text)
{
    uint64_t ino = inode_of(text);
    const char *path = ino != 0 ? g_hash_table_lookup(paths, &ino) : NULL;
    const char *number = path != NULL ? strchr(text, ' ') : NULL;
    int head = number == NULL ? 0 : (int)(number + 1 - text);

    if (number == NULL) {
        printf("%s\n", text);
        return;
    }
    head += (int)strspn(number + 1, "0123456789");
    printf("%.*s (%s)%s\n", head, text, path, text + head);
}

static void flush_lines(Fsck *fsck)
{
    g_autoptr(GHashTable) paths =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    g_autoptr(GHashTable) seen =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    g_autoptr(GArray) inodes = g_array_new(FALSE, FALSE, sizeof(uint64_t));

    wipe_progress(fsck);
    for (guint i = 0; i < fsck->lines->len; i++) {
        uint64_t ino = inode_of(fsck->lines->pdata[i]);

        if (ino != 0 && g_hash_table_add(seen, g_memdup2(&ino, sizeof ino))) {
            g_array_append_val(inodes, ino);
        }
    }
    if (inodes->len > 0) {
        int r = vj_fs_find_paths(fsck->volume, (const uint64_t *)(void *)inodes->data,
                                 inodes->len, add_path, paths);

        if (r < 0) {
            printf("the names of these inodes cannot be read: %s\n", g_strerror(-r));
        }
    }
    for (guint i = 0; i < fsck->lines->len; i++) {
        print_line(paths, fsck->lines->pdata[i]);
    }
    g_ptr_array_set_size(fsck->lines, 0);
    fflush(stdout); /* what comes may end the process; errors stay in the stream */
}

static void say(void *opaque, const char *text)
{
    Fsck *fsck = opaque;
    int64_t now = vj_clock_mono_us();

    if (fsck->quiet) {
        return;
    }
    if (fsck->lines->len == 0) {
        fsck->lines_us = now;
    }
    g_ptr_array_add(fsck->lines, g_strdup(text));
    if (fsck->lines->len >= LINES_MOST || now - fsck->lines_us > LINES_WAIT_US) {
        flush_lines(fsck);
    }
}

/* Of what is being repaired the names may change with the next line. */
static void say_repaired(void *opaque, const char *text)
{
    Fsck *fsck = opaque;
    g_autofree char *line = g_strdup_printf("%s; repaired", text);

    g_ptr_array_add(fsck->lines, g_steal_pointer(&line));
    if (fsck->lines->len >= LINES_MOST) {
        flush_lines(fsck);
    }
}

/* ---- checking ---------------------------------------------------------------------- */

static void print_report(const char *source, const VjCheckReport *r)
{
    printf("%s: %" G_GUINT64_FORMAT " inodes, %" G_GUINT64_FORMAT
           " names, %" G_GUINT64_FORMAT " map entries in %" G_GUINT64_FORMAT
           " nodes, %" G_GUINT64_FORMAT " objects, %" G_GUINT64_FORMAT " bytes read\n",
           source, r->inodes, r->names, r->map_entries, r->map_nodes, r->objects,
           r->bytes_verified);
    if (r->pending > 0) {
        printf("%s: the next mount will finish %" G_GUINT64_FORMAT
               " removals and interrupted writes\n",
               source, r->pending);
    }
    if (r->lost > 0) {
        printf("%s: %" G_GUINT64_FORMAT
               " objects have lost their bytes; reading those ranges fails\n",
               source, r->lost);
    }
    if (r->whole > 0) {
        printf("%s: %" G_GUINT64_FORMAT
               " objects are marked as damaged and are whole; -y removes the mark\n",
               source, r->whole);
    }
    if (r->leaks > 0) {
        printf("%s: %" G_GUINT64_FORMAT " stored objects belong to nothing\n", source,
               r->leaks);
    }
    if (r->problems > 0) {
        printf("%s: %" G_GUINT64_FORMAT " problems\n", source, r->problems);
    }
}

/* 0, or -errno. */
static int check_volume(Fsck *fsck, bool read_data, VjCheckReport *out)
{
    int r;

    *out = (VjCheckReport){.tick = tick, .tick_opaque = fsck};
    r = vj_fsck_contents(fsck->volume, read_data, say, fsck, out);
    if (r == 0) {
        r = vj_fsck_names(fsck->volume, say, fsck, out);
    }
    flush_lines(fsck);
    return r;
}

static bool is_volume_file(const char *source)
{
    VjPlace *place;
    bool is_file;
    int closed;

    if (!vj_place_open(source, &place, NULL)) {
        return false;
    }
    is_file = vj_place_is_file(place);
    closed = vj_place_close(place);
    g_assert(closed == 0); /* it was not marked */
    return is_file;
}

/* False, after a message: files of another user are in the way.  The store, which cannot
 * know whose they should be, would call it an error of the device. */
static bool is_ours(const Fsck *fsck)
{
    g_autoptr(GError) error = NULL;
    VjPlace *place;
    bool ours;
    int closed;

    if (geteuid() == 0 || !vj_place_open(fsck->source, &place, NULL)) {
        return true;
    }
    ours = vj_source_is_ours(place, fsck->source, fsck->repair, VJ_SOURCE_DEPTH, &error);
    closed = vj_place_close(place);
    g_assert(closed == 0); /* it was not marked */
    if (!ours) {
        vj_cmd_fail(&command, error);
    }
    return ours;
}

static int explain(Fsck *fsck, int r)
{
    if (r == -EBADMSG) {
        printf("%s: the metadata are damaged; what lies behind the damage was not looked "
               "at\n",
               fsck->source);
        return FSCK_UNCORRECTED;
    }
    vj_cmd_fail_errno(&command, fsck->source, -r);
    return FSCK_CANNOT_RUN;
}

static int only_check(Fsck *fsck)
{
    VjCheckReport result;
    int r = check_volume(fsck, !fsck->quick, &result);

    if (r < 0) {
        return explain(fsck, r);
    }
    print_report(fsck->source, &result);
    return result.problems > 0 || result.leaks > 0 ? FSCK_UNCORRECTED : FSCK_CLEAN;
}

/* ---- repairing --------------------------------------------------------------------- */

typedef struct Outcome {
    VjCheckReport report; /* of the last check */
    uint64_t mended;
} Outcome;

static int repair_once(Fsck *fsck, Outcome *out)
{
    g_autoptr(VjRepair) repair = vj_repair_new(fsck->volume, say_repaired, fsck);
    int r = vj_repair_all(repair);

    flush_lines(fsck);
    out->mended += vj_repair_count(repair);
    return r == 0 ? (vj_repair_count(repair) > 0 ? 1 : 0) : r;
}

static int remove_unreferenced(Fsck *fsck, Outcome *out)
{
    g_autoptr(VjRepair) repair = vj_repair_new(fsck->volume, say_repaired, fsck);
    int r = vj_repair_store(repair);

    flush_lines(fsck);
    out->mended += vj_repair_count(repair);
    return r;
}

/* Checks and repairs in turn.  The data is read once. */
static int repair_volume(Fsck *fsck, Outcome *out)
{
    int r = check_volume(fsck, !fsck->quick, &out->report);
    uint64_t bytes = out->report.bytes_verified;

    out->mended += vj_volume_mended_at_open(fsck->volume);
    for (unsigned round = 0;
         r == 0 && (out->report.problems > 0 || out->report.whole > 0) &&
         round < ROUNDS_MOST;
         round++) {
        r = repair_once(fsck, out);
        if (r <= 0) {
            break; /* nothing more can be done */
        }
        fsck->quiet = true;
        r = check_volume(fsck, false, &out->report);
        fsck->quiet = false;
    }
    if (r == 0 && out->report.problems == 0 && out->report.leaks > 0 && !fsck->restore) {
        r = remove_unreferenced(fsck, out);
    }
    if (r == 0 && out->mended > 0) {
        r = check_volume(fsck, false, &out->report); /* says what is left */
    }
    out->report.bytes_verified = bytes;
    return r;
}

/* Then its daemon does not go away by itself. */
static bool is_mounted(const char *source)
{
    char *absolute = realpath(source, NULL);
    bool found = absolute != NULL && vj_mount_table_has(absolute);

    free(absolute);
    return found;
}

/* What a mount would do: orphans, the dead, puts that a crash cut off. */
static int finish_pending(Fsck *fsck)
{
    g_autofree char *session_name = vj_cmd_session_name(command.name, fsck->source);
    VjVolumeOpen how = {.source = fsck->source, .session_name = session_name};
    g_autoptr(GError) error = NULL;
    VjVolume *volume;
    int synced, closed;

    if (!vj_volume_open(&how, &volume, &error)) {
        vj_cmd_fail(&command, error);
        return FSCK_UNCORRECTED;
    }
    synced = vj_volume_purge(volume);
    closed = vj_volume_close(volume);
    if (synced < 0 || closed < 0) {
        vj_cmd_fail_errno(&command, fsck->source, synced < 0 ? -synced : -closed);
        return FSCK_UNCORRECTED;
    }
    return FSCK_CLEAN;
}

static int repair_and_report(Fsck *fsck, uint64_t *pending)
{
    Outcome out = {.mended = 0};
    int r = repair_volume(fsck, &out);

    if (r < 0) {
        return explain(fsck, r);
    }
    *pending = out.report.problems == 0 && !fsck->restore ? out.report.pending : 0;
    if (*pending > 0) {
        out.report.pending = 0;
    }
    print_report(fsck->source, &out.report);
    if (fsck->restore && out.report.problems == 0) {
        if (out.report.leaks > 0) {
            printf("%s: what belongs to nothing was written after the checkpoint; "
                   "fsck.varjfs -y removes it\n",
                   fsck->source);
        }
        return FSCK_CORRECTED;
    }
    if (out.report.problems > 0 || out.report.leaks > 0) {
        return FSCK_UNCORRECTED;
    }
    return out.mended > 0 ? FSCK_CORRECTED : FSCK_CLEAN;
}

static int close_volume(Fsck *fsck, int status)
{
    int r = vj_volume_close(fsck->volume);

    fsck->volume = NULL;
    if (r < 0) {
        vj_cmd_fail_errno(&command, fsck->source, -r);
        return FSCK_CANNOT_RUN;
    }
    return status;
}

static void say_flaw(void *opaque, const char *text)
{
    const Fsck *fsck = opaque;

    printf("%s: meta/%s\n", fsck->source, text);
}

static void say_superblock(void *opaque, const char *text)
{
    const Fsck *fsck = opaque;

    printf("%s: %s\n", fsck->source, text);
}

/* Nothing else can be looked at without it.  -1: go on; else the exit code. */
static int see_to_superblock(Fsck *fsck, int64_t wait_us)
{
    g_autoptr(GError) error = NULL;
    VjSuperblockState state;

    if (!vj_volume_mend_superblock(fsck->source, fsck->repair, wait_us, say_superblock,
                                   fsck, &state, &error)) {
        vj_cmd_fail(&command, error);
        return FSCK_CANNOT_RUN;
    }
    fsck->superblock_restored = state == VJ_SUPERBLOCK_RESTORED;
    if (state != VJ_SUPERBLOCK_DAMAGED) {
        return -1;
    }
    return vj_cmd_flush(&command, EXIT_SUCCESS) == EXIT_SUCCESS ? FSCK_UNCORRECTED
                                                                : FSCK_CANNOT_RUN;
}

static void tell_checkpoints(const Fsck *fsck)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GArray) list = vj_volume_checkpoints(fsck->source, &error);

    if (list == NULL) {
        vj_cmd_fail(&command, error);
        return;
    }
    if (list->len == 0) {
        printf("%s: there is no checkpoint: meta/ has to come from a backup\n",
               fsck->source);
        return;
    }
    printf("%s: \"fsck.varjfs --restore\" takes back the newest of these checkpoints; "
           "what was "
           "changed since is lost:\n",
           fsck->source);
    for (guint i = 0; i < list->len; i++) {
        const VjCheckpoint *c = &g_array_index(list, VjCheckpoint, i);

        printf("  %s, %" G_GUINT64_FORMAT " KiB\n", c->name, c->stored_bytes / 1024);
    }
}

/* -1: go on; else the exit code. */
static int restore(Fsck *fsck, int64_t wait_us)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *kept = NULL;
    VjCheckpoint c;

    if (!vj_volume_restore(fsck->source, fsck->checkpoint, wait_us, &c, &kept, &error)) {
        vj_cmd_fail(&command, error);
        return FSCK_CANNOT_RUN;
    }
    printf("%s: the metadata are those of checkpoint %s; %s%s\n", fsck->source, c.name,
           kept != NULL ? "what was there is meta/" : "there were none",
           kept != NULL ? kept : "");
    return -1;
}

/* What was made durable last is lost, and no checkpoint has it.  As examine. */
static int log_is_damaged(Fsck *fsck)
{
    fsck->log_given_up = fsck->repair;
    printf("%s: the log of the last changes is damaged: what was changed behind that "
           "place is "
           "lost%s\n",
           fsck->source,
           fsck->repair ? ", and given up" : "; \"fsck.varjfs -y\" gives it up");
    return fsck->repair ? -1 : FSCK_UNCORRECTED;
}

/*
 * The metadata engine maps its file and believes it, so that a damaged page ends the
 * process or gives a wrong answer: we read it first.  -1: go on; else the exit code.
 */
static int examine(Fsck *fsck, int64_t wait_us)
{
    g_autoptr(GError) error = NULL;
    VjMetaExam exam;

    if (!vj_volume_examine(fsck->source, wait_us, say_flaw, fsck, &exam, &error)) {
        vj_cmd_fail(&command, error);
        return error->code == EBADMSG ? FSCK_UNCORRECTED : FSCK_CANNOT_RUN;
    }
    if (exam.flaws == 0 && exam.log_flaws > 0) {
        return log_is_damaged(fsck);
    }
    if (exam.flaws == 0) {
        return -1;
    }
    printf("%s: the metadata are damaged so that they cannot be used\n", fsck->source);
    tell_checkpoints(fsck);
    return vj_cmd_flush(&command, EXIT_SUCCESS) == EXIT_SUCCESS ? FSCK_UNCORRECTED
                                                                : FSCK_CANNOT_RUN;
}

static int run(Fsck *fsck)
{
    g_autofree char *session_name = vj_cmd_session_name(command.name, fsck->source);
    VjVolumeOpen how = {
        .source = fsck->source,
        /* Where the metadata are elsewhere it keeps mounts out, also from one that only
         * reads. */
        .session_name = session_name,
        .examine = VJ_EXAMINE_NEVER, /* that was done */
        .read_only = !fsck->repair,
        .check = true,
        .repair = fsck->repair,
        .restoring = fsck->restore,
        .lock_wait_us = is_mounted(fsck->source) ? 0 : LOCK_WAIT_US,
    };
    g_autoptr(GError) error = NULL;
    uint64_t pending = 0;
    int status = see_to_superblock(fsck, how.lock_wait_us);
    int r;

    if (status < 0 && fsck->restore) {
        status = restore(fsck, how.lock_wait_us);
    }
    if (status < 0) {
        status = examine(fsck, how.lock_wait_us);
    }
    if (status >= 0) {
        return status;
    }
    if (!vj_volume_open(&how, &fsck->volume, &error)) {
        vj_cmd_fail(&command, error);
        /* Too damaged to be opened is a finding, not a failure to look. */
        return error->code == EBADMSG ? FSCK_UNCORRECTED : FSCK_CANNOT_RUN;
    }
    r = fsck->restore ? vj_volume_restored(fsck->volume) : 0;
    if (r < 0) {
        vj_cmd_fail_errno(&command, fsck->source, -r);
        return close_volume(fsck, FSCK_CANNOT_RUN);
    }
    fsck->shown_us = isatty(STDERR_FILENO) ? vj_clock_mono_us() : 0;
    status = fsck->repair ? repair_and_report(fsck, &pending) : only_check(fsck);
    wipe_progress(fsck);
    status = close_volume(fsck, status);
    if (status == FSCK_CLEAN && (fsck->log_given_up || fsck->superblock_restored)) {
        status = FSCK_CORRECTED;
    }
    if (pending > 0 && (status == FSCK_CLEAN || status == FSCK_CORRECTED)) {
        int finished = finish_pending(fsck);

        if (finished == FSCK_CLEAN) {
            printf("%s: %" G_GUINT64_FORMAT
                   " removals and interrupted writes were finished\n",
                   fsck->source, pending);
        }
        status = MAX(status, finished);
    }
    return vj_cmd_flush(&command, EXIT_SUCCESS) == EXIT_SUCCESS ? status
                                                                : FSCK_CANNOT_RUN;
}

/* Another user may have written what is there.  What cannot be opened is reported where
 * it is needed. */
static void confine(const Fsck *fsck)
{
    /* Whose all the objects are is not looked at, and what may not be read would count as
     * lost. */
    const VjSourceOwners owners = {true, true};
    g_autoptr(VjOptFiles) files = vj_opt_files_new();
    VjConfine how = {.owners = owners, .files = files, .other_fd = -1};
    VjPlace *place;
    int closed;

    if (fsck->is_bare || !vj_place_open(fsck->source, &place, NULL)) {
        return;
    }
    vj_confine_to(place, &how);
    how.trusts_files = !vj_source_owners(place).others_may_write;
    how.drivers = vj_confine_drivers(place, fsck->source, owners, files);
    how.rewrites = fsck->repair && !how.is_file;
    vj_confine(&how);
    closed = vj_place_close(place);
    g_assert(closed == 0); /* it was not marked */
}

/*
 * The metadata engine maps its file and trusts it: pages that are damaged in the wrong
 * place end the process.  So a child process reads, and this one reports what became of
 * it.
 */
static int run_apart(Fsck *fsck)
{
    pid_t parent = getpid(), child = fork();
    int status;

    if (child < 0) {
        vj_cmd_fail_errno(&command, "fork", errno);
        return FSCK_CANNOT_RUN;
    }
    if (child == 0) {
        confine(fsck);
        /* Without the parent no process reads the result. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return getppid() == parent ? run(fsck) : FSCK_CANNOT_RUN;
    }
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            vj_cmd_fail_errno(&command, "waitpid", errno);
            return FSCK_CANNOT_RUN;
        }
    }
    if (WIFEXITED(status)) {
        return WEXITSTATUS(status);
    }
    fprintf(stderr, "%s: %s: it ended with signal %d (%s)\n", command.name, fsck->source,
            WTERMSIG(status), strsignal(WTERMSIG(status)));
    switch (WTERMSIG(status)) {
    case SIGABRT:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGSEGV:
        fprintf(stderr, "%s: %s: the metadata are damaged so that they cannot be read\n",
                command.name, fsck->source);
        return FSCK_UNCORRECTED;
    default:
        return FSCK_CANNOT_RUN;
    }
}

int main(int argc, char **argv)
{
    Fsck fsck = {.repair = false};
    int first, status = vj_cmd_parse(&command, argc, argv, set_switch, &fsck, &first);

    signal(SIGXFSZ, SIG_IGN); /* a write beyond "ulimit -f" is an error, not the end */
    if (status >= 0) {
        return status;
    }
    if (first == argc) {
        return vj_cmd_usage_error(&command, "SOURCE", "missing");
    }
    if (first + 1 < argc) {
        return vj_cmd_usage_error(&command, argv[first + 1], "one argument too many");
    }
    if (fsck.checkpoint != NULL && !fsck.restore) {
        return vj_cmd_usage_error(&command, "--checkpoint", "it goes with --restore");
    }
    fsck.repair = fsck.repair || fsck.restore;
    if (fsck.preen && fsck.repair) {
        return vj_cmd_usage_error(&command, "-p",
                                  "it goes with neither -y nor --restore");
    }
    fsck.quick = fsck.quick || (fsck.preen && !fsck.force);
    fsck.source = argv[first];
    /* Lines of the rooms below begin like ours; what is left out of the sandbox is no
     * news here. */
    (void)vj_log_open(command.name, "stderr", VJ_LOG_WARN, NULL);
    if (!is_ours(&fsck)) {
        return FSCK_CANNOT_RUN;
    }
    if (fsck.preen && !fsck.force && vj_volume_is_clean(fsck.source)) {
        printf("%s: clean\n", fsck.source);
        return vj_cmd_flush(&command, FSCK_CLEAN);
    }
    if (fsck.preen && !fsck.force && is_volume_file(fsck.source)) {
        printf("%s: its metadata are elsewhere, where the system that starts does not "
               "look; a mount recovers by itself\n",
               fsck.source);
        return vj_cmd_flush(&command, FSCK_CLEAN);
    }
    fsck.lines = g_ptr_array_new_with_free_func(g_free);
    status = run_apart(&fsck);
    g_ptr_array_unref(fsck.lines);
    return status;
}
