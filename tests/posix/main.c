/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * main.c - runs topics on a directory: suite [-u USER] [-j JOBS] [-l] DIR [TOPIC...]
 *          suite -p DIR: makes a tree; suite -R DIR: checks it when DIR is read-only
 *
 * USER is a name or a number; without it the topics run as whoever calls.  Each topic
 * runs in a child, writes its lines to a file in /tmp, and works in a directory of its
 * own below DIR.  Prints TAP.  0: all passed; 1: some did not; 2: bad usage; 77: nothing
 * could be tried.
 */
#include <dirent.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/wait.h>

#include "posix.h"
#include "suite.h"

#define TOPICS_MAX 128
/* A topic that takes longer has failed. */
#define TOPIC_SECONDS 240

typedef struct Topic {
    const char *name;
    void (*run)(void);
    bool alone;
    bool wanted;
    pid_t pid; /* while it runs */
    int out;   /* its lines */
    char dir[128];
} Topic;

static Topic topics[TOPICS_MAX];
static size_t topic_count;

static struct {
    unsigned passed, failed, skipped;
} totals;

void topic_add(const char *name, void (*run)(void), bool alone)
{
    if (topic_count == TOPICS_MAX) {
        abort();
    }
    topics[topic_count++] = (Topic){.name = name, .run = run, .alone = alone, .out = -1};
}

/* Those that want to be alone come last. */
static int by_name(const void *a, const void *b)
{
    const Topic *x = a, *y = b;

    if (x->alone != y->alone) {
        return x->alone - y->alone;
    }
    return strcmp(x->name, y->name);
}

static void die(const char *what)
{
    fprintf(stderr, "suite: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* ---- the directory of a topic ------------------------------------------------------ */

/* Everything below @dir, whatever modes it has.  False: something stays. */
static bool clear(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    bool all = true;
    struct dirent *e;
    DIR *d;

    if (fd < 0 && errno == EACCES && fchmodat(parent, name, 0700, 0) == 0) {
        fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    }
    d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        return false;
    }
    (void)fchmod(fd, 0700);
    while ((e = readdir(d)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        if (unlinkat(fd, e->d_name, 0) == 0) {
            continue;
        }
        if (errno != EISDIR && errno != EPERM) {
            all = false;
        } else if (unlinkat(fd, e->d_name, AT_REMOVEDIR) != 0 &&
                   !(clear(fd, e->d_name) &&
                     unlinkat(fd, e->d_name, AT_REMOVEDIR) == 0)) {
            all = false;
        }
    }
    closedir(d);
    return all;
}

/* ---- running ----------------------------------------------------------------------- */

static void topic_start(Topic *t)
{
    char lines[] = "/tmp/posix-suite.XXXXXX";

    t->out = mkostemp(lines, O_APPEND);
    if (t->out < 0) {
        die(lines);
    }
    unlink(lines);
    snprintf(t->dir, sizeof t->dir, "%s.%ld", t->name, (long)getpid());
    if (mkdir(t->dir, 0777) != 0) {
        die(t->dir);
    }
    fflush(stdout);
    t->pid = fork();
    if (t->pid < 0) {
        die("fork");
    }
    if (t->pid > 0) {
        return;
    }
    if (chdir(t->dir) != 0 || chmod(".", 0777) != 0) {
        die(t->dir);
    }
    alarm(getenv("POSIX_ENTRIES") == NULL ? TOPIC_SECONDS : 60 * TOPIC_SECONDS);
    umask(0);
    suite_begin(t->name, t->out);
    t->run();
    _exit(0);
}

static void topic_line(const char *line)
{
    fputs(line, stdout);
    if (strncmp(line, "not ok", 6) == 0) {
        totals.failed++;
    } else if (strncmp(line, "ok", 2) == 0) {
        if (strstr(line, " # SKIP ") != NULL) {
            totals.skipped++;
        } else {
            totals.passed++;
        }
    }
}

static void topic_say(bool ok, const Topic *t, const char *format, int number)
{
    char line[256];
    int len = snprintf(line, sizeof line, "%s - %s: ", ok ? "ok" : "not ok", t->name);

    snprintf(line + len, sizeof line - (size_t)len, format, number);
    topic_line(line);
}

static void topic_end(Topic *t, int status)
{
    FILE *lines = fdopen(t->out, "r");
    char *line = NULL;
    size_t room = 0;

    rewind(lines);
    while (getline(&line, &room, lines) > 0) {
        topic_line(line);
    }
    free(line);
    fclose(lines);
    t->out = -1;
    t->pid = 0;
    if (WIFSIGNALED(status)) {
        topic_say(false, t, "ended by signal %d\n", WTERMSIG(status));
    } else if (status != 0) {
        topic_say(false, t, "ended with status %d\n", WEXITSTATUS(status));
    }
    topic_say(clear(AT_FDCWD, t->dir) && rmdir(t->dir) == 0, t,
              "what it made can be removed\n", 0);
}

static void run_all(unsigned jobs)
{
    unsigned running = 0;
    size_t next = 0;

    while (next < topic_count || running > 0) {
        while (next < topic_count && running < (topics[next].alone ? 1 : jobs)) {
            if (topics[next].wanted) {
                topic_start(&topics[next]);
                running++;
            }
            next++;
        }
        if (running > 0) {
            int status;
            pid_t pid = wait(&status);

            for (size_t i = 0; i < topic_count; i++) {
                if (pid > 0 && topics[i].pid == pid) {
                    topic_end(&topics[i], status);
                    running--;
                }
            }
        }
    }
}

/* ---- who runs it ------------------------------------------------------------------- */

/* A name, or a number that needs no line in passwd. */
static bool find_user(const char *text, Who *out)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    const struct passwd *pw = getpwnam(text);

    *out = (Who){.name = "user"};
    if (pw != NULL) {
        out->uid = pw->pw_uid;
        out->gid = pw->pw_gid;
    } else if (*text != '\0' && *end == '\0' && number < UINT32_MAX) {
        out->uid = out->gid = (uid_t)number;
    } else {
        return false;
    }
    if (out->uid != 0) {
        out->group_count = 2;
        out->groups[0] = out->gid;
        out->groups[1] = GROUP_TEAM;
    }
    return true;
}

static void take_identity(const char *user)
{
    if (user != NULL) {
        Who who;

        if (!find_user(user, &who)) {
            fprintf(stderr, "suite: %s: no such user\n", user);
            exit(2);
        }
        who_become_wholly(&who);
    }
    ME = (Who){
        .name = geteuid() == 0 ? "root" : "user", .uid = geteuid(), .gid = getegid()};
    ME.group_count = getgroups(WHO_GROUPS_MAX, ME.groups);
    if (ME.group_count < 0) {
        ME.group_count = 0;
    }
}

static bool choose(char **names, int count)
{
    for (size_t i = 0; i < topic_count; i++) {
        topics[i].wanted = count == 0;
    }
    for (int k = 0; k < count; k++) {
        bool found = false;

        for (size_t i = 0; i < topic_count; i++) {
            if (strcmp(topics[i].name, names[k]) == 0) {
                topics[i].wanted = found = true;
            }
        }
        if (!found) {
            fprintf(stderr, "suite: no topic %s; -l lists them\n", names[k]);
            return false;
        }
    }
    return true;
}

/* In this process; the lines go straight to the output. */
static int read_only(char option)
{
    FILE *lines = tmpfile();
    char *line = NULL;
    size_t room = 0;

    if (lines == NULL) {
        die("a temporary file");
    }
    suite_begin("readonly", fileno(lines));
    umask(0);
    if (option == 'p') {
        readonly_prepare();
    } else {
        readonly_check();
    }
    rewind(lines);
    while (getline(&line, &room, lines) > 0) {
        topic_line(line);
    }
    free(line);
    fclose(lines);
    return option == 'p' || totals.passed > 0;
}

int main(int argc, char **argv)
{
    char tree = 0;
    const char *user = NULL;
    unsigned jobs = 2;
    int option;

    qsort(topics, topic_count, sizeof topics[0], by_name);
    while ((option = getopt(argc, argv, "u:j:lpR")) >= 0) {
        switch (option) {
        case 'u':
            user = optarg;
            break;
        case 'j':
            jobs = (unsigned)atoi(optarg);
            break;
        case 'l':
            for (size_t i = 0; i < topic_count; i++) {
                puts(topics[i].name);
            }
            return 0;
        case 'p':
        case 'R':
            tree = (char)option;
            break;
        default:
            optind = argc;
            break;
        }
    }
    if (optind >= argc || jobs < 1) {
        fprintf(stderr, "suite [-u USER] [-j JOBS] [-l | -p | -R] DIR [TOPIC...]\n");
        return 2;
    }
    if (chdir(argv[optind]) != 0) {
        die(argv[optind]);
    }
    if (!choose(argv + optind + 1, argc - optind - 1)) {
        return 2;
    }
    take_identity(user);
    if (tree != 0) {
        if (!read_only(tree)) {
            return 1;
        }
    } else {
        run_all(jobs);
    }
    printf("1..%u\n", totals.passed + totals.failed + totals.skipped);
    printf("# as %s: %u passed, %u failed, %u skipped\n", ME.name, totals.passed,
           totals.failed, totals.skipped);
    return totals.failed > 0 ? 1 : totals.passed > 0 || tree != 0 ? 0 : 77;
}
