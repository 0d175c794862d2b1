/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* flock.c - flock, fcntl and open file description locks, leases */
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "posix.h"

static void *volatile nowhere = (void *)1;

/* ---- two processes ----------------------------------------------------------------- */

typedef struct Helper {
    int pid, to, from;
} Helper;

/* What a helper does for one letter; its errno is the answer, 0 for success. */
typedef int Act(char what, int fd);

/* Its own descriptor of the file, and none that fork gave it: these would hold locks. */
static void helper_run(const char *name, Act *act, int in, int out)
{
    char what;
    int fd;

    for (int other = 3; other < 1024; other++) {
        if (other != in && other != out) {
            close(other);
        }
    }
    fd = open(name, O_RDWR);

    while (read(in, &what, 1) == 1) {
        int error = act(what, fd) < 0 ? errno : 0;

        if (write(out, &error, sizeof error) != sizeof error) {
            break;
        }
    }
    _exit(0);
}

static Helper helper_start(const char *name, Act *act)
{
    int to[2], from[2];
    Helper h;

    MUST(pipe(to));
    MUST(pipe(from));
    h.pid = (int)MUST(fork());
    if (h.pid == 0) {
        close(to[1]);
        close(from[0]);
        helper_run(name, act, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    h.to = to[1];
    h.from = from[0];
    return h;
}

static void helper_tell(const Helper *h, char what)
{
    MUST(write(h->to, &what, 1));
}

static int helper_answer(const Helper *h)
{
    int error = -1;

    MUST(read(h->from, &error, sizeof error));
    return error;
}

static int helper_ask(const Helper *h, char what)
{
    helper_tell(h, what);
    return helper_answer(h);
}

static bool helper_answers_not(const Helper *h)
{
    struct pollfd p = {.fd = h->from, .events = POLLIN};

    return poll(&p, 1, 30) == 0;
}

static void helper_end(Helper *h)
{
    close(h->to);
    close(h->from);
    MUST(waitpid(h->pid, NULL, 0));
}

static char state_of(int pid)
{
    FILE *f = fopen(path("/proc/%d/stat", pid), "r");
    char line[200], state = '?';

    if (f != NULL && fgets(line, sizeof line, f) != NULL) {
        const char *end = strrchr(line, ')');

        state = end == NULL ? '?' : end[2];
    }
    if (f != NULL) {
        fclose(f);
    }
    return state;
}

/* Until the helper has read what it was told, and sleeps over it. */
static void until_asleep(const Helper *h)
{
    int unread = 1;

    while (ioctl(h->to, FIONREAD, &unread) < 0 || unread > 0 || state_of(h->pid) != 'S') {
        usleep(1000);
    }
}

static void nothing(int number)
{
    (void)number;
}

static void interruptible(int number)
{
    struct sigaction action = {.sa_handler = nothing};

    sigaction(number, &action, NULL); /* without SA_RESTART */
}

/* ---- flock ------------------------------------------------------------------------- */

static int flock_act(char what, int fd)
{
    interruptible(SIGUSR1);
    switch (what) {
    case 's':
        return flock(fd, LOCK_SH | LOCK_NB);
    case 'e':
        return flock(fd, LOCK_EX | LOCK_NB);
    case 'E':
        return flock(fd, LOCK_EX);
    case 'u':
        return flock(fd, LOCK_UN);
    default:
        errno = EDOM;
        return -1;
    }
}

TOPIC(flock)
{
    const char *n = made(REGULAR, 0644);
    int a = (int)MUST(open(n, O_RDWR)), b = (int)MUST(open(n, O_RDONLY)), c;
    Helper h = helper_start(n, flock_act);

    OK(flock(a, LOCK_EX | LOCK_NB));
    WANT(EWOULDBLOCK,
         flock(b, LOCK_EX | LOCK_NB)); /* another description, same process */
    WANT(EWOULDBLOCK, flock(b, LOCK_SH | LOCK_NB));
    EQ(EWOULDBLOCK, helper_ask(&h, 's'));
    OK(flock(a, LOCK_SH | LOCK_NB));
    OK(flock(b, LOCK_SH | LOCK_NB)); /* a descriptor for reading will do */
    EQ(0, helper_ask(&h, 's'));
    WANT(EWOULDBLOCK, flock(a, LOCK_EX | LOCK_NB));
    OK(flock(b, LOCK_UN));
    EQ(0, helper_ask(&h, 'u'));
    OK(flock(a, LOCK_EX | LOCK_NB));
    c = (int)MUST(dup(a)); /* the lock is the description's */
    OK(flock(c, LOCK_EX | LOCK_NB));
    close(a);
    EQ(EWOULDBLOCK, helper_ask(&h, 'e'));
    close(c);
    EQ(0, helper_ask(&h, 'e'));
    WANT(EWOULDBLOCK, flock(b, LOCK_SH | LOCK_NB));
    EQ(0, helper_ask(&h, 'u'));
    WANT(EINVAL, flock(b, LOCK_NB));
    WANT(EINVAL, flock(b, LOCK_SH | LOCK_EX));
    WANT(EBADF, flock(-1, LOCK_SH));
    c = (int)MUST(open(n, O_PATH));
    WANT(EBADF, flock(c, LOCK_SH));
    close(c);
    /* Whoever waits gets it when it is free, and a signal takes it out of the wait. */
    OK(flock(b, LOCK_EX));
    helper_tell(&h, 'E');
    until_asleep(&h);
    IS_TRUE(helper_answers_not(&h));
    MUST(kill(h.pid, SIGUSR1));
    EQ(EINTR, helper_answer(&h));
    helper_tell(&h, 'E');
    until_asleep(&h);
    OK(flock(b, LOCK_UN));
    EQ(0, helper_answer(&h));
    WANT(EWOULDBLOCK, flock(b, LOCK_EX | LOCK_NB));
    MUST(kill(h.pid, SIGKILL)); /* a process that ends lets go */
    helper_end(&h);
    OK(flock(b, LOCK_EX));
    CHILD
    {
        OK(flock(b, LOCK_UN)); /* fork shares descriptions */
    }
    h = helper_start(n, flock_act);
    EQ(0, helper_ask(&h, 'e'));
    helper_end(&h);
    OK(flock(b, LOCK_EX | LOCK_NB));
    close(b);
    c = (int)MUST(open(".", O_RDONLY | O_DIRECTORY));
    OK(flock(c, LOCK_EX | LOCK_NB)); /* directories too */
    close(c);
}

/* ---- fcntl ------------------------------------------------------------------------- */

static int lock(int fd, int command, short type, off_t start, off_t len)
{
    struct flock l = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};

    return fcntl(fd, command, &l);
}

static int posix_act(char what, int fd)
{
    interruptible(SIGUSR1);
    switch (what) {
    case 'r':
        return lock(fd, F_SETLK, F_RDLCK, 0, 100);
    case 'w':
        return lock(fd, F_SETLK, F_WRLCK, 0, 100);
    case 'm': /* the middle */
        return lock(fd, F_SETLK, F_WRLCK, 40, 20);
    case 'e': /* the end, for ever */
        return lock(fd, F_SETLK, F_WRLCK, 80, 0);
    case 'W':
        return lock(fd, F_SETLKW, F_WRLCK, 0, 100);
    case 'E':
        return lock(fd, F_SETLKW, F_WRLCK, 80, 0);
    case 'u':
        return lock(fd, F_SETLK, F_UNLCK, 0, 0);
    default:
        errno = EDOM;
        return -1;
    }
}

/* What stands in the way of a write lock of these bytes. */
static struct flock in_the_way(int fd, int command, off_t start, off_t len)
{
    struct flock l = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = len};

    MUST(fcntl(fd, command, &l));
    return l;
}

static void regions(int fd, const Helper *h)
{
    struct flock l;

    OK(lock(fd, F_SETLK, F_WRLCK, 0, 100));
    EQ(EAGAIN, helper_ask(h, 'm'));
    OK(lock(fd, F_SETLK, F_UNLCK, 40, 20)); /* a hole in the middle */
    EQ(0, helper_ask(h, 'm'));
    EQ(EAGAIN, helper_ask(h, 'e'));
    WANT(EAGAIN, lock(fd, F_SETLK, F_RDLCK, 30, 11));
    OK(lock(fd, F_SETLK, F_RDLCK, 0, 40)); /* a part becomes a read lock */
    EQ(EAGAIN, helper_ask(h, 'r'));        /* bytes 60 on are still written */
    OK(lock(fd, F_SETLK, F_UNLCK, 60, 0));
    EQ(0, helper_ask(h, 'r'));
    WANT(EAGAIN, lock(fd, F_SETLK, F_WRLCK, 0, 1));
    l = in_the_way(fd, F_GETLK, 0, 0);
    EQ(F_RDLCK, l.l_type);
    EQ(h->pid, l.l_pid);
    EQ(0, l.l_start);
    EQ(100, l.l_len);
    EQ(0, helper_ask(h, 'e'));
    l = in_the_way(fd, F_GETLK, 1000, 1);
    EQ(F_WRLCK, l.l_type);
    EQ(80, l.l_start);
    EQ(0, l.l_len); /* to the end, wherever that is */
    EQ(0, helper_ask(h, 'u'));
    EQ(F_UNLCK, in_the_way(fd, F_GETLK, 0, 0).l_type);
    OK(lock(fd, F_SETLK, F_UNLCK, 0, 0));
    OK(lock(fd, F_SETLK, F_WRLCK, 100, -60)); /* bytes 40 to 99 */
    EQ(EAGAIN, helper_ask(h, 'm'));
    EQ(EAGAIN, helper_ask(h, 'e'));
    OK(lock(fd, F_SETLK, F_UNLCK, 0, 0));
    EQ(0, helper_ask(h, 'w'));
    EQ(0, helper_ask(h, 'u'));
}

static void wrong_calls(const char *n, int fd)
{
    int r = (int)MUST(open(n, O_RDONLY)), w = (int)MUST(open(n, O_WRONLY));

    WANT(EBADF, lock(r, F_SETLK, F_WRLCK, 0, 1));
    WANT(EBADF, lock(w, F_SETLK, F_RDLCK, 0, 1));
    WANT(EINVAL, lock(fd, F_SETLK, F_WRLCK, -1, 1));
    WANT(EINVAL, lock(fd, F_SETLK, F_WRLCK, 0, -1));
    WANT(EINVAL, lock(fd, F_SETLK, 77, 0, 1));
    WANT(EOVERFLOW, lock(fd, F_SETLK, F_WRLCK, INT64_MAX, 2));
    OK(lock(fd, F_SETLK, F_WRLCK, INT64_MAX, 1));
    OK(lock(fd, F_SETLK, F_UNLCK, 0, 0));
    WANT(EFAULT, syscall(SYS_fcntl, fd, F_SETLK, nowhere));
    close(w);
    close(r);
}

TOPIC(posix_locks)
{
    const char *n = made(REGULAR, 0644);
    int a = (int)MUST(open(n, O_RDWR)), b = (int)MUST(open(n, O_RDWR)), c;
    Helper h = helper_start(n, posix_act);

    regions(a, &h);
    wrong_calls(n, a);
    /* The lock is the process's: its other descriptors do not conflict, and closing any
     * of them gives all up. */
    OK(lock(a, F_SETLK, F_WRLCK, 0, 0));
    OK(lock(b, F_SETLK, F_WRLCK, 0, 0));
    EQ(F_UNLCK, in_the_way(b, F_GETLK, 0, 0).l_type);
    EQ(EAGAIN, helper_ask(&h, 'w'));
    c = (int)MUST(open(n, O_RDONLY));
    EQ(EAGAIN, helper_ask(&h, 'w'));
    close(c);
    EQ(0, helper_ask(&h, 'w'));
    EQ(0, helper_ask(&h, 'u'));
    OK(lock(a, F_SETLK, F_WRLCK, 0, 0));
    close((int)MUST(dup(b)));
    EQ(0, helper_ask(&h, 'w'));
    EQ(0, helper_ask(&h, 'u'));
    /* Children inherit none. */
    OK(lock(a, F_SETLK, F_WRLCK, 0, 0));
    CHILD
    {
        WANT(EAGAIN, lock(a, F_SETLK, F_WRLCK, 0, 1));
        EQ(getppid(), in_the_way(a, F_GETLK, 0, 1).l_pid);
        close(a);
    }
    EQ(EAGAIN, helper_ask(&h, 'w')); /* what the child closed was the child's */
    /* Waiting, being interrupted, and a ring of waiters. */
    helper_tell(&h, 'W');
    until_asleep(&h);
    IS_TRUE(helper_answers_not(&h));
    MUST(kill(h.pid, SIGUSR1));
    EQ(EINTR, helper_answer(&h));
    OK(lock(a, F_SETLK, F_UNLCK, 80, 0));
    EQ(0, helper_ask(&h, 'e'));
    helper_tell(&h, 'W');
    until_asleep(&h);
    WANT(EDEADLK, lock(a, F_SETLKW, F_WRLCK, 80, 1));
    OK(lock(a, F_SETLK, F_UNLCK, 0, 0));
    EQ(0, helper_answer(&h));
    WANT(EAGAIN, lock(a, F_SETLK, F_WRLCK, 0, 1));
    MUST(kill(h.pid, SIGKILL));
    helper_end(&h);
    OK(lock(a, F_SETLK, F_WRLCK, 0, 1));
    close(a);
    close(b);
}

TOPIC(ofd_locks)
{
    const char *n = made(REGULAR, 0644);
    int a = (int)MUST(open(n, O_RDWR)), b = (int)MUST(open(n, O_RDWR)), c;
    Helper h = helper_start(n, posix_act);
    struct flock l;

    OK(lock(a, F_OFD_SETLK, F_WRLCK, 0, 100));
    WANT(EAGAIN, lock(b, F_OFD_SETLK, F_RDLCK, 99, 1)); /* in one process */
    OK(lock(b, F_OFD_SETLK, F_WRLCK, 100, 100));
    EQ(EAGAIN, helper_ask(&h, 'w')); /* they conflict with the other kind */
    WANT(EAGAIN, lock(a, F_SETLK, F_WRLCK, 100, 1));
    WANT(EAGAIN, lock(b, F_SETLK, F_WRLCK, 0, 1));
    l = in_the_way(b, F_OFD_GETLK, 0, 1000);
    EQ(F_WRLCK, l.l_type);
    EQ(-1, l.l_pid);
    EQ(0, l.l_start);
    EQ(100, l.l_len);
    close((int)MUST(open(n, O_RDONLY))); /* no other close gives it up */
    EQ(EAGAIN, helper_ask(&h, 'w'));
    c = (int)MUST(dup(a));
    OK(lock(c, F_OFD_SETLK, F_WRLCK, 0, 100));
    close(a);
    EQ(EAGAIN, helper_ask(&h, 'w'));
    CHILD
    {
        OK(lock(c, F_OFD_SETLK, F_RDLCK, 0, 100)); /* a description that fork shares */
    }
    EQ(0, helper_ask(&h, 'r'));
    WANT(EAGAIN, lock(c, F_OFD_SETLK, F_WRLCK, 0, 1));
    EQ(0, helper_ask(&h, 'u'));
    helper_tell(&h, 'E'); /* waits for b */
    until_asleep(&h);
    MUST(kill(h.pid, SIGUSR1));
    EQ(EINTR, helper_answer(&h));
    helper_tell(&h, 'W');
    until_asleep(&h);
    close(c);
    EQ(0, helper_answer(&h));
    helper_end(&h);
    l.l_pid = 1;
    WANT(EINVAL, fcntl(b, F_OFD_SETLK, &l));
    close(b);
    b = (int)MUST(open(n, O_RDONLY));
    WANT(EBADF, lock(b, F_OFD_SETLK, F_WRLCK, 0, 1));
    close(b);
}

TOPIC(leases)
{
    const char *n = made(REGULAR, 0644);
    int fd = (int)MUST(open(n, O_RDONLY));

    EQ(F_UNLCK, fcntl(fd, F_GETLEASE));
    WANT(EINVAL, fcntl(fd, F_SETLEASE, 77));
    WANT(EAGAIN, fcntl(fd, F_SETLEASE, F_UNLCK)); /* there is none */
    WANT(EBADF, fcntl(-1, F_SETLEASE, F_RDLCK));
    if (fcntl(fd, F_SETLEASE, F_RDLCK) < 0) {
        EQ(EINVAL, errno);
        skip("no leases here");
    } else {
        EQ(F_RDLCK, fcntl(fd, F_GETLEASE));
        signal(SIGIO, nothing);
        WANT(EAGAIN, open(n, O_WRONLY | O_NONBLOCK));
        OK(fcntl(fd, F_SETLEASE, F_UNLCK));
        EQ(F_UNLCK, fcntl(fd, F_GETLEASE));
    }
    close(fd);
}
