/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* exec.c - programs: ETXTBSY, permission, set-id programs, interpreters, mapped code */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "posix.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static int copy_program(const char *from, const char *to, mode_t mode)
{
    int in = open(from, O_RDONLY), out = open(to, O_CREAT | O_WRONLY | O_TRUNC, 0700);
    char bytes[65536];
    ssize_t len;

    if (in < 0 || out < 0) {
        return -1;
    }
    while ((len = read(in, bytes, sizeof bytes)) > 0) {
        if (write(out, bytes, (size_t)len) != len) {
            return -1;
        }
    }
    close(in);
    return close(out) == 0 ? chmod(to, mode) : -1;
}

/* Exit status of the program, or -1 and errno of execve. */
static int run(const char *program, const char *argument)
{
    int status, said[2], error = 0;
    pid_t pid;

    if (pipe2(said, O_CLOEXEC) != 0 || (pid = fork()) < 0) {
        return -1;
    }
    if (pid == 0) {
        execl(program, program, argument, (char *)NULL);
        error = errno;
        _exit(write(said[1], &error, sizeof error) == sizeof error ? 127 : 126);
    }
    close(said[1]);
    if (read(said[0], &error, sizeof error) != sizeof error) {
        error = 0;
    }
    close(said[0]);
    waitpid(pid, &status, 0);
    errno = error;
    return error != 0 ? -1 : WEXITSTATUS(status);
}

static void permission(void)
{
    static const mode_t modes[] = {0,    0100, 0400, 0500, 0600,
                                   0700, 0711, 0755, 0644, 0111};

    for (size_t i = 0; i < COUNT(modes); i++) {
        about("a program with 0%o", modes[i]);
        MUST(copy_program("/bin/true", "program", modes[i]));
        WANT((modes[i] & 0111) == 0 || !(am_root() || (modes[i] & 0100)) ? EACCES : 0,
             run("./program", NULL));
        MUST(unlink("program"));
    }
    EACH_KIND(k)
    {
        const char *n = made(k, 0777);

        if (k != REGULAR) {
            about("a %s as a program", kind_names[k]);
            WANT(k == SYMLINK ? ENOENT : EACCES, run(path("./%s", n), NULL));
        }
    }
    about("no program");
    MUST(spew("text", "neither ELF nor script"));
    MUST(chmod("text", 0755));
    WANT(ENOEXEC, run("./text", NULL));
    WANT(ENOENT, run("./missing", NULL));
    WANT(ENOTDIR, run("./text/x", NULL));
}

static void busy(void)
{
    int in, out, started[2];
    pid_t pid;
    char byte;

    about("a program that runs");
    MUST(copy_program("/bin/sleep", "program", 0755));
    MUST(pipe2(started, O_CLOEXEC));
    pid = fork();
    if (pid == 0) {
        execl("./program", "program", "100", (char *)NULL);
        _exit(127);
    }
    close(started[1]);
    EQ(0, read(started[0], &byte, 1)); /* closed by the exec */
    close(started[0]);
    WANT(ETXTBSY, open("program", O_WRONLY));
    WANT(ETXTBSY, open("program", O_RDWR));
    WANT(ETXTBSY, open("program", O_RDONLY | O_TRUNC));
    WANT(ETXTBSY, open("program", O_WRONLY | O_TRUNC));
    WANT(ETXTBSY, truncate("program", 10));
    EQ(stat_of("/bin/sleep").st_size, stat_of("program").st_size);
    in = (int)OK(open("program", O_RDONLY));
    close(in);
    OK(chmod("program", 0700));
    OK(rename("program", "moved"));
    OK(unlink("moved"));
    MUST(kill(pid, 9));
    MUST(wait_for_child());
    about("a program that is open for writing");
    MUST(copy_program("/bin/true", "program", 0755));
    out = (int)MUST(open("program", O_WRONLY));
    WANT(ETXTBSY, run("./program", NULL));
    close(out);
    EQ(0, run("./program", NULL));
    MUST(unlink("program"));
}

static void scripts(void)
{
    about("a script");
    MUST(spew("script", "#!/bin/sh\nexit 7\n"));
    MUST(chmod("script", 0755));
    EQ(7, run("./script", NULL));
    MUST(spew("script", "#!/missing/interpreter\n"));
    WANT(ENOENT, run("./script", NULL));
    about("an interpreter on the file system");
    MUST(copy_program("/bin/sh", "interpreter", 0755));
    MUST(spew("script", "#!interpreter\nexit 9\n"));
    EQ(9, run("./script", NULL));
    MUST(unlink("interpreter"));
    MUST(unlink("script"));
}

/* A set-user-ID program runs as its owner: sh -p keeps the ids that id -u would show. */
static void set_id(void)
{
    MUST(copy_program("/usr/bin/id", "id", 0755));
    MUST(chown("id", 70001, GROUP_TEAM));
    MUST(spew("check", "#!/bin/sh\n"
                       "[ \"$(./id -u):$(./id -g)\" = \"$1\" ]\n"));
    MUST(chmod("check", 0755));
    for (mode_t bits = 0; bits < 010; bits += 2) {
        const char *wanted =
            path("%d:%d", bits & 04 ? 70001 : 70002, bits & 02 ? GROUP_TEAM : GROUP_BOB);

        MUST(chmod("id", 0755 | bits << 9));
        about("a program with 0%o, by bob", 0755 | bits << 9);
        CHILD
        {
            who_become_wholly(&BOB);
            EQ(0, run("./check", wanted));
        }
    }
    MUST(unlink("id"));
    MUST(unlink("check"));
}

static void mapped(void)
{
    int fd;
    const char *bytes;

    about("mapped for execution");
    MUST(copy_program("/bin/true", "program", 0755));
    fd = (int)MUST(open("program", O_RDONLY));
    bytes = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    IS_TRUE(bytes != MAP_FAILED && memcmp(bytes, "\177ELF", 4) == 0);
    close(fd);
    MUST(unlink("program"));
}

TOPIC(exec)
{
    permission();
    busy();
    scripts();
    mapped();
    about("%s", "");
    NEEDS_ROOT("set-id programs of others");
    set_id();
}
