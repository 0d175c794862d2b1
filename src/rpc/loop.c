/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* loop.c - see loop-private.h */
#include "rpc/loop-private.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* How long the loop's own thread leaves it to callers before it looks again. */
#define CALLERS_US (20 * 1000)
/* How often the follower looks whether a task that runs aside goes on for long, and after
 * how many looks without a new one it sleeps. */
#define FOLLOWER_LOOK_US 1000
#define FOLLOWER_LOOKS 50u

/* A borrower looks at no more sockets itself. */
#define SOURCES_MAX 8u
/* A loop looks at no more memory; who comes then is not told that it listens. */
#define WATCHED_MAX 8u
/* For so long, since something was there, without what others took. */
#define WATCH_US 60
/* Giving the processor away takes so long only if somebody has taken it: the peer, or
 * others, when that happens more than so often. */
#define TAKEN_US 12
#define TAKEN_MAX 2u
/* Watches that were worth it count up to this; when none is left, so many are not
 * begun. */
#define TRUST_MAX 8
#define DISTRUST (-256)

/* So long it leaves all other events alone: timers come so much later. */
#define BASE_EVERY_US 1000

struct VjLoop {
    struct event_base *base;
    struct event *wake_event;
    struct event *slice_event; /* ends a borrower's wait for events */
    int wake_fd;
    GThread *thread;
    GThread *follower; /* NULL: it has none */
    uint8_t *scratch;
    /* in its thread: */
    void (*aside)(void *opaque); /* what that runs aside when no callback is due; NULL */
    void *aside_opaque;
    VjLoopSource *sources[SOURCES_MAX]; /* that want bytes alone */
    unsigned source_count;
    unsigned other_count;    /* of sources that want something else, or have no place */
    VjLoopSource *last_read; /* of those that want bytes alone; NULL */
    unsigned again_count;    /* how often it was read again, since all was looked at */
    int64_t base_us;         /* when a borrower has looked at all */
    bool has_tasks;
    VjLoopMemory *watched[WATCHED_MAX]; /* is looked at before it waits for events */
    unsigned watched_count, looks;
    int trust;     /* > 0: it is worth while */
    VjMutex lock;  /* VJ_RANK_RPC_LOOP */
    VjCond needed; /* for the loop's own thread, or its follower */
    /* guarded by lock: */
    VjLoopTask *first, *last;
    unsigned calls;       /* of clients, not answered */
    bool is_run;          /* a thread waits for events, or runs what they call */
    bool has_borrower;    /* it is a caller */
    bool is_wanted;       /* a caller would have run it */
    bool left_to_callers; /* the loop's own thread leaves it to callers */
    bool is_aside;        /* a thread of it runs what it was given aside */
    uint64_t asides;      /* that have begun */
    bool follower_sleeps; /* until it is signalled */
    bool stop, has_ended;
};

static _Thread_local const VjLoop *current;

/* ---- tasks ------------------------------------------------------------------------- */

bool vj_loop_is_current(const VjLoop *loop)
{
    return current == loop;
}

static void wake(VjLoop *loop)
{
    static const uint64_t one = 1;
    ssize_t written;

    if (vj_loop_is_current(loop)) {
        event_active(loop->wake_event, EV_READ, 0);
        return;
    }
    do {
        written = write(loop->wake_fd, &one, sizeof one);
    } while (written < 0 && errno == EINTR);
    g_assert(written == (ssize_t)sizeof one);
}

/* The loop's own thread has to run it now, if no caller does. */
static void call_thread(VjLoop *loop) VJ_REQUIRES(loop->lock)
{
    if (loop->left_to_callers) {
        loop->left_to_callers = false;
        vj_cond_signal(&loop->needed);
    }
}

bool vj_loop_post(VjLoop *loop, VjLoopTask *task)
{
    bool posted = false, was_empty = false;

    vj_mutex_lock(&loop->lock);
    if (!task->is_posted) {
        task->is_posted = posted = true;
        task->next = NULL;
        was_empty = loop->first == NULL;
        if (was_empty) {
            loop->first = task;
        } else {
            loop->last->next = task;
        }
        loop->last = task;
    }
    if (was_empty) {
        /* Below the lock: once the task has run, the loop may be freed. */
        wake(loop);
        call_thread(loop);
    }
    vj_mutex_unlock(&loop->lock);
    return posted;
}

void vj_loop_unpost(VjLoop *loop, VjLoopTask *task)
{
    VjLoopTask *before = NULL;

    g_assert(vj_loop_is_current(loop));
    vj_mutex_lock(&loop->lock);
    if (task->is_posted) {
        for (VjLoopTask *at = loop->first; at != task; at = at->next) {
            before = at;
        }
        *(before == NULL ? &loop->first : &before->next) = task->next;
        if (loop->last == task) {
            loop->last = before;
        }
        task->is_posted = false;
    }
    vj_mutex_unlock(&loop->lock);
}

static VjLoopTask *take_task(VjLoop *loop)
{
    VjLoopTask *task;

    vj_mutex_lock(&loop->lock);
    task = loop->first;
    if (task != NULL) {
        loop->first = task->next;
        task->is_posted = false;
    }
    vj_mutex_unlock(&loop->lock);
    return task;
}

static void on_wake(evutil_socket_t fd, short what, void *opaque)
{
    VjLoop *loop = opaque;
    VjLoopTask *task;
    uint64_t count;

    (void)what;
    /* Before the tasks are taken: a wake-up that comes later is for what comes later. */
    if (read(fd, &count, sizeof count) < 0) {
        g_assert(errno == EAGAIN || errno == EINTR);
    }
    while ((task = take_task(loop)) != NULL) {
        task->run(task);
    }
    vj_mutex_lock(&loop->lock);
    loop->has_ended = loop->stop;
    if (loop->has_ended) {
        vj_cond_broadcast(&loop->needed);
    }
    vj_mutex_unlock(&loop->lock);
}

/* ---- sources ----------------------------------------------------------------------- */

static unsigned source_index(const VjLoop *loop, const VjLoopSource *source)
{
    unsigned i = 0;

    while (i < loop->source_count && loop->sources[i] != source) {
        i++;
    }
    return i;
}

static void source_remove(VjLoop *loop, VjLoopSource *source)
{
    unsigned i = source_index(loop, source);

    if (loop->last_read == source) {
        loop->last_read = NULL;
    }
    if (i < loop->source_count) {
        loop->sources[i] = loop->sources[--loop->source_count];
    } else if (source->wants != VJ_SOURCE_IDLE) {
        loop->other_count--;
    }
}

void vj_loop_source_wants(VjLoop *loop, VjLoopSource *source, int wants)
{
    g_assert(vj_loop_is_current(loop));
    if ((int)source->wants == wants) {
        return;
    }
    source_remove(loop, source);
    source->wants = wants;
    if (wants == VJ_SOURCE_READS && loop->source_count < SOURCES_MAX) {
        loop->sources[loop->source_count++] = source;
    } else if (wants != VJ_SOURCE_IDLE) {
        loop->other_count++;
    }
}

void vj_loop_source_was_read(VjLoop *loop, VjLoopSource *source)
{
    loop->last_read = source->wants == VJ_SOURCE_READS ? source : NULL;
}

void vj_loop_read_no_more(VjLoop *loop)
{
    loop->last_read = NULL;
}

static bool read_source(VjLoop *loop, VjLoopSource *source)
{
    bool got;

    current = loop;
    got = source->read(source);
    current = NULL;
    return got;
}

/* ---- which thread runs it ---------------------------------------------------------- */

static void run_events(VjLoop *loop, int flags)
{
    int rc;

    loop->again_count = 0;
    current = loop;
    rc = event_base_loop(loop->base, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY | flags);
    current = NULL;
    g_assert(rc >= 0);
}

/* Waits for an event, and runs what is due. */
static void run_once(VjLoop *loop)
{
    run_events(loop, 0);
}

static gpointer loop_main(gpointer opaque)
{
    VjLoop *loop = opaque;

    vj_mutex_lock(&loop->lock);
    while (!loop->has_ended || loop->is_run) { /* a caller may still have it */
        if (loop->is_run || loop->left_to_callers) {
            if (!vj_cond_wait_until(&loop->needed, &loop->lock,
                                    vj_clock_mono_us() + CALLERS_US)) {
                loop->left_to_callers = false;
            }
            continue;
        }
        loop->is_run = true;
        vj_mutex_unlock(&loop->lock);
        run_once(loop);
        vj_mutex_lock(&loop->lock);
        loop->is_run = false;
        loop->left_to_callers =
            loop->is_wanted && loop->calls == 0 && loop->first == NULL;
        loop->is_wanted = false;
    }
    vj_mutex_unlock(&loop->lock);
    return NULL;
}

/* ---- memory ------------------------------------------------------------------------ */

void vj_loop_watch(VjLoop *loop, VjLoopMemory *memory)
{
    g_assert(vj_loop_is_current(loop));
    if (loop->trust <= 0 && loop->watched_count == 0) {
        loop->trust++;
    } else if (!memory->is_watched && loop->watched_count < WATCHED_MAX &&
               loop->follower != NULL) {
        memory->is_watched = true;
        loop->watched[loop->watched_count++] = memory;
        memory->listen(memory, true);
    }
}

void vj_loop_unwatch(VjLoop *loop, VjLoopMemory *memory)
{
    unsigned i = 0;

    g_assert(vj_loop_is_current(loop));
    if (!memory->is_watched) {
        return;
    }
    while (loop->watched[i] != memory) {
        i++;
    }
    loop->watched[i] = loop->watched[--loop->watched_count];
    memory->is_watched = false;
    memory->listen(memory, false);
}

/* Each in turn: it begins with another one each time. */
static bool take_watched(VjLoop *loop)
{
    bool took = false;

    current = loop;
    for (unsigned i = 0; !took && i < loop->watched_count; i++) {
        VjLoopMemory *memory = loop->watched[(loop->looks + i) % loop->watched_count];

        took = memory->take(memory);
    }
    current = NULL;
    return took;
}

/* Who has said that the loop listens hears that it does not before the last look. */
static bool end_watch(VjLoop *loop)
{
    VjLoopMemory *watched[WATCHED_MAX];
    unsigned count = loop->watched_count;
    bool took = false;

    memcpy(watched, loop->watched, sizeof watched);
    current = loop;
    while (loop->watched_count > 0) {
        vj_loop_unwatch(loop, loop->watched[0]);
    }
    for (unsigned i = 0; !took && i < count; i++) {
        took = watched[i]->take(watched[i]);
    }
    current = NULL;
    return took;
}

static bool has_ended(VjLoop *loop)
{
    bool ended;

    vj_mutex_lock(&loop->lock);
    ended = loop->has_ended;
    vj_mutex_unlock(&loop->lock);
    return ended;
}

/* True: something has been taken, an event has brought something to run, or the loop was
 * told to end. */
static bool look(VjLoop *loop)
{
    if (++loop->looks % VJ_LOOP_LOOKS_MAX == 0) {
        run_events(loop, EVLOOP_NONBLOCK);
        if (loop->aside != NULL || has_ended(loop)) {
            return true;
        }
    }
    return take_watched(loop);
}

/* Looks at the memory until something is there, for a while.  False: nothing was, and
 * nobody believes that the loop listens. */
static bool watch(VjLoop *loop)
{
    int64_t begin_us, now_us;
    unsigned taken = 0;
    bool is_over = false;

    if (loop->watched_count == 0) {
        return false;
    }
    begin_us = now_us = vj_clock_mono_us();
    while (!look(loop)) {
        int64_t last_us = now_us;

        if (is_over) {
            loop->trust = loop->trust > 1 ? loop->trust - 1 : DISTRUST;
            return end_watch(loop);
        }
        sched_yield();
        now_us = vj_clock_mono_us();
        if (now_us - last_us > TAKEN_US) {
            begin_us += now_us - last_us;
            taken++;
        }
        /* Then once more: who took it may have been the peer. */
        is_over = taken > TAKEN_MAX || now_us - begin_us >= WATCH_US;
    }
    loop->trust += loop->trust < TRUST_MAX ? 1 : 0;
    return true;
}

/* ---- a loop with a follower -------------------------------------------------------- */

bool vj_loop_run_aside(VjLoop *loop, void (*run)(void *opaque), void *opaque)
{
    bool may;

    g_assert(vj_loop_is_current(loop));
    if (loop->follower == NULL || loop->aside != NULL) {
        return false;
    }
    vj_mutex_lock(&loop->lock);
    may = !loop->is_aside;
    vj_mutex_unlock(&loop->lock);
    if (may) {
        loop->aside = run;
        loop->aside_opaque = opaque;
    }
    return may;
}

/* Takes the loop when nobody runs it, and the one task that runs aside has been seen
 * doing so before.  Returns when the calling thread has it, or it has ended. */
static void wait_as_follower(VjLoop *loop) VJ_REQUIRES(loop->lock)
{
    uint64_t seen = loop->asides;
    unsigned looks = 0;

    while (!loop->has_ended && (loop->is_run || loop->is_aside)) {
        if (looks == FOLLOWER_LOOKS && !loop->is_aside) {
            loop->follower_sleeps = true;
            while (loop->follower_sleeps && !loop->has_ended) {
                vj_cond_wait(&loop->needed, &loop->lock);
            }
            looks = 0;
        } else {
            (void)vj_cond_wait_until(&loop->needed, &loop->lock,
                                     vj_clock_mono_us() + FOLLOWER_LOOK_US);
        }
        if (!loop->is_run && loop->is_aside && loop->asides == seen) {
            return;
        }
        looks = loop->asides == seen ? MIN(looks + 1, FOLLOWER_LOOKS) : 0;
        seen = loop->asides;
    }
}

static void run_aside(VjLoop *loop) VJ_REQUIRES(loop->lock)
{
    void (*run)(void *opaque) = loop->aside;

    g_assert(!loop->is_aside);
    loop->aside = NULL;
    loop->is_aside = true;
    loop->asides++;
    if (loop->follower_sleeps) {
        loop->follower_sleeps = false;
        vj_cond_signal(&loop->needed);
    }
    vj_mutex_unlock(&loop->lock);
    run(loop->aside_opaque);
    vj_mutex_lock(&loop->lock);
    loop->is_aside = false;
}

/* Who has just been answered often has the next request on its way.  False: there is
 * nothing, or others are to be looked at. */
static bool read_again(VjLoop *loop)
{
    if (loop->last_read == NULL || loop->again_count == VJ_LOOP_AGAIN_MAX ||
        loop->last_read->bytes > VJ_LOOP_AGAIN_BYTES_MAX) {
        return false;
    }
    loop->again_count++;
    return read_source(loop, loop->last_read);
}

/* Two threads do this.  One runs the loop, and what it is given aside; when that takes
 * long the other one takes the loop, and the first is the follower from then on. */
static gpointer shared_main(gpointer opaque)
{
    VjLoop *loop = opaque;

    vj_mutex_lock(&loop->lock);
    while (!loop->has_ended) {
        wait_as_follower(loop);
        while (!loop->has_ended && !loop->is_run) {
            bool may_again = loop->first == NULL;

            loop->is_run = true;
            vj_mutex_unlock(&loop->lock);
            if (!watch(loop) && (!may_again || !read_again(loop))) {
                run_once(loop);
            }
            vj_mutex_lock(&loop->lock);
            loop->is_run = false;
            if (loop->aside != NULL) {
                run_aside(loop);
            }
        }
    }
    vj_mutex_unlock(&loop->lock);
    return NULL;
}

/* ---- borrowing --------------------------------------------------------------------- */

void vj_loop_call_begins(VjLoop *loop)
{
    vj_mutex_lock(&loop->lock);
    loop->calls++;
    if (loop->has_borrower) {
        wake(loop); /* that one is not alone any more */
    }
    vj_mutex_unlock(&loop->lock);
}

void vj_loop_call_ends(VjLoop *loop)
{
    vj_mutex_lock(&loop->lock);
    g_assert(loop->calls > 0);
    loop->calls--;
    vj_mutex_unlock(&loop->lock);
}

void vj_loop_call_waits_elsewhere(VjLoop *loop)
{
    vj_mutex_lock(&loop->lock);
    call_thread(loop);
    vj_mutex_unlock(&loop->lock);
}

bool vj_loop_borrow(VjLoop *loop)
{
    bool may;

    g_assert(current == NULL);
    vj_mutex_lock(&loop->lock);
    may = !loop->is_run && loop->calls <= 1 && !loop->stop;
    if (may) {
        loop->is_run = loop->has_borrower = true;
    } else {
        loop->is_wanted = true;
        call_thread(loop);
    }
    vj_mutex_unlock(&loop->lock);
    return may;
}

/* The borrower looks at sources itself.  False: at all events, without waiting. */
static bool poll_sources(VjLoop *loop)
{
    struct pollfd fds[1 + SOURCES_MAX];
    VjLoopSource *readable = NULL;
    int count;

    if (loop->last_read != NULL && read_source(loop, loop->last_read)) {
        return true;
    }
    fds[0] = (struct pollfd){.fd = loop->wake_fd, .events = POLLIN};
    for (unsigned i = 0; i < loop->source_count; i++) {
        fds[1 + i] = (struct pollfd){.fd = loop->sources[i]->fd, .events = POLLIN};
    }
    count = poll(fds, 1 + loop->source_count, BASE_EVERY_US / 1000);
    if (count <= 0 || fds[0].revents != 0) {
        return false;
    }
    for (unsigned i = 0; readable == NULL && i < loop->source_count; i++) {
        readable = fds[1 + i].revents != 0 ? loop->sources[i] : NULL;
    }
    return readable != NULL && read_source(loop, readable);
}

static bool may_poll_sources(const VjLoop *loop, int64_t now_us)
{
    return loop->source_count > 0 && loop->other_count == 0 && !loop->has_tasks &&
           now_us - loop->base_us < BASE_EVERY_US;
}

static void run_until(VjLoop *loop, int64_t until_us, int64_t now_us)
{
    int64_t wait_us = MAX(until_us - now_us, 1);
    struct timeval slice = {.tv_sec = wait_us / G_USEC_PER_SEC,
                            .tv_usec = wait_us % G_USEC_PER_SEC};

    (void)event_add(loop->slice_event, &slice);
    run_once(loop);
    (void)event_del(loop->slice_event);
    loop->base_us = vj_clock_mono_us();
}

bool vj_loop_borrowed_run(VjLoop *loop, int64_t until_us)
{
    int64_t now_us = vj_clock_mono_us();
    bool is_alone;

    if (!may_poll_sources(loop, now_us)) {
        run_until(loop, until_us, now_us);
    } else if (!poll_sources(loop)) {
        loop->base_us = 0; /* the next time at all */
    }
    vj_mutex_lock(&loop->lock);
    is_alone = loop->calls <= 1;
    loop->has_tasks = loop->first != NULL;
    vj_mutex_unlock(&loop->lock);
    return is_alone;
}

void vj_loop_give_back(VjLoop *loop)
{
    vj_mutex_lock(&loop->lock);
    loop->is_run = loop->has_borrower = false;
    loop->left_to_callers = loop->calls == 0 && loop->first == NULL && !loop->stop;
    if (!loop->left_to_callers) {
        vj_cond_signal(&loop->needed);
    }
    vj_mutex_unlock(&loop->lock);
}

/* ---- thread ------------------------------------------------------------------------ */

static void on_slice(evutil_socket_t fd, short what, void *opaque)
{
    (void)fd, (void)what, (void)opaque; /* run_once() returns */
}

static void loop_clear(VjLoop *loop)
{
    if (loop->wake_event != NULL) {
        event_free(loop->wake_event);
    }
    if (loop->slice_event != NULL) {
        event_free(loop->slice_event);
    }
    if (loop->base != NULL) {
        event_base_free(loop->base);
    }
    vj_fd_close(&loop->wake_fd);
    vj_cond_clear(&loop->needed);
    vj_mutex_clear(&loop->lock);
    g_free(loop->scratch);
    g_free(loop);
}

static struct event_base *base_new(void)
{
    struct event_config *config = event_config_new();
    struct event_base *base;

    if (config == NULL) {
        return NULL;
    }
    /* One thread at a time: no locks.  Its times are those of a coarse clock, which saves
     * a system call each time it waits: whoever is called looks whether it is time. */
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

/* All signals blocked: they are for the program's other threads. */
static GThread *start_thread(VjLoop *loop, const char *name, GThreadFunc main,
                             GError **error)
{
    sigset_t all, before;
    GThread *thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread = g_thread_try_new(name, main, loop, error);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (thread == NULL) {
        vj_error_prefix(error, "thread %s", name);
    }
    return thread;
}

static void end_threads(VjLoop *loop)
{
    vj_mutex_lock(&loop->lock);
    loop->stop = true;
    wake(loop);
    call_thread(loop);
    vj_mutex_unlock(&loop->lock);
    g_thread_join(loop->thread);
    if (loop->follower != NULL) {
        g_thread_join(loop->follower);
    }
}

VjLoop *vj_loop_new(const char *name, bool has_follower, GError **error)
{
    VjLoop *loop = g_new0(VjLoop, 1);
    GThreadFunc main = has_follower ? shared_main : loop_main;

    vj_mutex_init(&loop->lock, VJ_RANK_RPC_LOOP, "rpc.loop");
    vj_cond_init(&loop->needed);
    loop->scratch = g_malloc(VJ_LOOP_SCRATCH_BYTES);
    loop->trust = 1;
    loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    loop->base = base_new();
    if (loop->wake_fd >= 0 && loop->base != NULL) {
        loop->wake_event =
            event_new(loop->base, loop->wake_fd, EV_READ | EV_PERSIST, on_wake, loop);
        loop->slice_event = event_new(loop->base, -1, 0, on_slice, NULL);
    }
    if (loop->wake_event == NULL || loop->slice_event == NULL ||
        event_add(loop->wake_event, NULL) < 0) {
        vj_error_set_errno(error, errno != 0 ? errno : ENOMEM, "cannot make a loop");
        loop_clear(loop);
        return NULL;
    }
    if (has_follower) {
        loop->follower = start_thread(loop, name, main, error);
    }
    if (!has_follower || loop->follower != NULL) {
        loop->thread = start_thread(loop, name, main, error);
    }
    if (loop->thread == NULL && loop->follower != NULL) {
        loop->thread = g_steal_pointer(&loop->follower);
        end_threads(loop);
        loop->thread = NULL;
    }
    if (loop->thread == NULL) {
        loop_clear(loop);
        return NULL;
    }
    return loop;
}

void vj_loop_free(VjLoop *loop)
{
    g_assert(!vj_loop_is_current(loop));
    end_threads(loop);
    g_assert(loop->first == NULL);
    loop_clear(loop);
}

struct event_base *vj_loop_base(VjLoop *loop)
{
    return loop->base;
}

uint8_t *vj_loop_scratch(VjLoop *loop)
{
    g_assert(vj_loop_is_current(loop));
    return loop->scratch;
}

/* ---- the one of clients ------------------------------------------------------------ */

static VjMutex client_lock = VJ_MUTEX_INIT(VJ_RANK_RPC, "rpc.client-loop");
/* guarded by client_lock: */
static VjLoop *client_loop;
static unsigned client_loop_users;

VjLoop *vj_loop_client_ref(GError **error)
{
    VjLoop *loop;

    vj_mutex_lock(&client_lock);
    if (client_loop == NULL) {
        client_loop = vj_loop_new("vj-rpc", false, error);
    }
    loop = client_loop;
    client_loop_users += loop != NULL;
    vj_mutex_unlock(&client_lock);
    return loop;
}

void vj_loop_client_unref(void)
{
    VjLoop *loop = NULL;

    vj_mutex_lock(&client_lock);
    g_assert(client_loop_users > 0);
    if (--client_loop_users == 0) {
        loop = g_steal_pointer(&client_loop);
    }
    vj_mutex_unlock(&client_lock);
    if (loop != NULL) {
        vj_loop_free(loop);
    }
}
