/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * edit-signals FILE SECONDS - rpwrite in a program and in its signal handler at once
 *
 * The main flow inserts records into FILE while signals rain on it, by a timer and by
 * another thread.  The handler inserts records by the same descriptor.  At the end every
 * record whose insert returned its length stands in the file once and whole, and no other
 * does.
 */
#include "varjfs/rwrite.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RECORD 16
#define RECORDS_MAX 1000000u
#define TIMER_NS 300000

/* The main flow's, and the handler's. */
enum { MAIN, HANDLER, WHO };

static int fd;
static unsigned count[WHO];
static uint8_t inserted[WHO][RECORDS_MAX];
static uint8_t seen[WHO][RECORDS_MAX];
static volatile sig_atomic_t failed_errno;
static volatile sig_atomic_t is_over;
static atomic_bool stop;

static _Noreturn void give_up(const char *what, int error)
{
    fprintf(stderr, "edit-signals: %s%s%s\n", what, error != 0 ? ": " : "",
            error != 0 ? strerror(error) : "");
    exit(1);
}

/* No printf: a handler calls it too. */
static void record(unsigned who, unsigned number, char out[RECORD])
{
    memcpy(out, who == MAIN ? "[main 00000000 ]" : "[hand 00000000 ]", RECORD);
    for (char *p = out + 13; number > 0; number /= 10) {
        *p-- = (char)('0' + number % 10);
    }
}

/* Between two records, wherever. */
static int insert(unsigned who, off_t at)
{
    unsigned number = count[who];
    char text[RECORD];

    record(who, number, text);
    count[who]++;
    if (rpwrite(fd, text, RECORD, at, 0) != RECORD) {
        return errno;
    }
    inserted[who][number] = 1;
    return 0;
}

static void on_signal(int signal_number)
{
    int saved_errno = errno;

    (void)signal_number;
    if (!is_over && count[HANDLER] < RECORDS_MAX) {
        int error = insert(HANDLER, 0);

        failed_errno = error != 0 ? error : failed_errno;
    }
    errno = saved_errno;
}

static void *rain(void *target)
{
    const struct timespec pause = {.tv_nsec = TIMER_NS};

    while (!atomic_load(&stop)) {
        pthread_kill(*(pthread_t *)target, SIGUSR1);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void start_timer(timer_t *timer)
{
    const struct itimerspec each = {.it_interval = {.tv_nsec = TIMER_NS},
                                    .it_value = {.tv_nsec = TIMER_NS}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};

    if (timer_create(CLOCK_MONOTONIC, &event, timer) != 0 ||
        timer_settime(*timer, 0, &each, NULL) != 0) {
        give_up("no timer", errno);
    }
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void edit_for(int64_t ms)
{
    pthread_t self = pthread_self(), thread;
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigset_t before;
    timer_t timer;
    int error = 0;

    /* One handler at a time, and in the main flow alone. */
    sigfillset(&act.sa_mask);
    sigaction(SIGUSR1, &act, NULL);
    sigaction(SIGUSR2, &act, NULL);
    pthread_sigmask(SIG_BLOCK, &act.sa_mask, &before);
    error = pthread_create(&thread, NULL, rain, &self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        give_up("no thread", error);
    }
    start_timer(&timer);
    for (int64_t end = now_ms() + ms;
         error == 0 && now_ms() < end && count[MAIN] < RECORDS_MAX;) {
        error = insert(MAIN, (off_t)(count[MAIN] % 7) * RECORD);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    timer_delete(timer);
    is_over = 1;
    if (error != 0) {
        give_up("an edit of the main flow", error);
    }
    if (failed_errno != 0) {
        give_up("an edit of the handler", failed_errno);
    }
}

static void look_at(const char text[RECORD], off_t at)
{
    unsigned who = text[1] == 'm' ? MAIN : HANDLER;
    unsigned number = (unsigned)strtoul(text + 6, NULL, 10);
    char expected[RECORD];

    record(who, number, expected);
    if (number >= count[who] || memcmp(text, expected, RECORD) != 0) {
        fprintf(stderr, "at %lld: %.*s\n", (long long)at, RECORD, text);
        give_up("bytes that nobody inserted", 0);
    }
    seen[who][number]++;
}

static unsigned compare(void)
{
    unsigned wrong = 0;

    for (unsigned who = 0; who < WHO; who++) {
        for (unsigned i = 0; i < count[who]; i++) {
            if (seen[who][i] != inserted[who][i]) {
                wrong++;
                fprintf(stderr, "record %u of %u: there %u times, rpwrite said %s\n", i,
                        who, seen[who][i], inserted[who][i] ? "yes" : "no");
            }
        }
    }
    return wrong;
}

int main(int argc, char **argv)
{
    char text[RECORD + 1] = "";
    struct stat st;

    if (argc != 3) {
        give_up("usage: edit-signals FILE SECONDS", 0);
    }
    fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        give_up(argv[1], errno);
    }
    edit_for(atoll(argv[2]) * 1000);
    if (fstat(fd, &st) != 0 || st.st_size % RECORD != 0) {
        give_up("the size is none of whole records", 0);
    }
    for (off_t at = 0; at < st.st_size; at += RECORD) {
        if (pread(fd, text, RECORD, at) != RECORD) {
            give_up("a read", errno);
        }
        look_at(text, at);
    }
    printf("%u edits of the main flow, %u of handlers\n", count[MAIN], count[HANDLER]);
    if (count[MAIN] < 100 || count[HANDLER] < 100) {
        give_up("too few to tell", 0);
    }
    return compare() == 0 ? 0 : 1;
}
