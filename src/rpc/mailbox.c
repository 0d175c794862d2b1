/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mailbox.c - memory where small requests stand, and then their replies
 *
 * A frame is copied before any of it is looked at, and goes on as if the socket had
 * brought it: what the peer writes meanwhile changes nothing.  A state that it should not
 * have written leads to a reply by the socket, or to none: its own matter.
 */
#include "rpc/mailbox-private.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

G_STATIC_ASSERT(VJ_MAILBOX_FRAME_MAX <= VJ_LOOP_SCRATCH_BYTES);

struct VjMailbox {
    VjLoop *loop;
    const VjMailboxCallbacks *callbacks;
    void *owner;
    uint8_t *data;
    VjLoopMemory memory;
    int bell;                 /* -1: it has none */
    struct event *bell_event; /* in the loop's thread; NULL */
};

static uint32_t *word(const VjMailbox *m, size_t at)
{
    return (uint32_t *)(void *)(m->data + at);
}

static uint32_t state(const VjMailbox *m)
{
    return __atomic_load_n(word(m, VJ_MAILBOX_STATE_AT), __ATOMIC_ACQUIRE);
}

static bool change_state(VjMailbox *m, uint32_t from, uint32_t to)
{
    return __atomic_compare_exchange_n(word(m, VJ_MAILBOX_STATE_AT), &from, to, false,
                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Behind a change of the state. */
static void wake_client(const VjMailbox *m)
{
    if (__atomic_load_n(word(m, VJ_MAILBOX_SLEEPS_AT), __ATOMIC_SEQ_CST) == 1) {
        (void)syscall(SYS_futex, word(m, VJ_MAILBOX_STATE_AT), FUTEX_WAKE, 1, NULL, NULL,
                      0);
    }
}

/* Bytes of the frame that stands there, VJ_MAILBOX_FRAME_MAX at the most; 0: none. */
static size_t copy_frame(const VjMailbox *m, uint8_t *out)
{
    const uint8_t *at = m->data + VJ_MAILBOX_REQUEST_AT;
    uint64_t body_bytes;
    VjFrame frame;

    memcpy(out, at, VJ_FRAME_HEAD_BYTES);
    if (vj_frame_decode(out, &frame) < 0) {
        return 0;
    }
    body_bytes = (uint64_t)frame.message_bytes + frame.bulk_bytes;
    if (body_bytes > VJ_MAILBOX_FRAME_MAX - VJ_FRAME_HEAD_BYTES) {
        return 0;
    }
    memcpy(out + VJ_FRAME_HEAD_BYTES, at + VJ_FRAME_HEAD_BYTES, body_bytes);
    return VJ_FRAME_HEAD_BYTES + body_bytes;
}

static bool take(VjLoopMemory *memory)
{
    VjMailbox *m = (VjMailbox *)(void *)((uint8_t *)memory - offsetof(VjMailbox, memory));
    uint8_t *bytes = vj_loop_scratch(m->loop);
    size_t len;

    if (state(m) != VJ_MAILBOX_CALLED || !m->callbacks->is_ready(m->owner)) {
        return false;
    }
    if (!change_state(m, VJ_MAILBOX_CALLED, VJ_MAILBOX_TAKEN)) {
        return false; /* its sender has taken it back */
    }
    /* Not before: what was taken back may have made room for the next one. */
    len = copy_frame(m, bytes);
    m->callbacks->frame(m->owner, bytes, len);
    return true;
}

static void listen_to(VjLoopMemory *memory, bool does)
{
    VjMailbox *m = (VjMailbox *)(void *)((uint8_t *)memory - offsetof(VjMailbox, memory));

    __atomic_store_n(word(m, VJ_MAILBOX_LISTENS_AT), does ? 1 : 0, __ATOMIC_SEQ_CST);
    if (!does) {
        wake_client(m);
    }
}

void vj_mailbox_expect(VjMailbox *m)
{
    if (m != NULL && m->bell < 0 &&
        __atomic_load_n(word(m, VJ_MAILBOX_WAITS_AT), __ATOMIC_RELAXED) == 1) {
        vj_loop_watch(m->loop, &m->memory);
    }
}

void vj_mailbox_look_again(VjMailbox *m)
{
    if (m != NULL && m->bell_event != NULL && state(m) == VJ_MAILBOX_CALLED) {
        event_active(m->bell_event, EV_READ, 0);
    }
}

void vj_mailbox_close(VjMailbox *m)
{
    if (m != NULL) {
        vj_loop_unwatch(m->loop, &m->memory);
        g_clear_pointer(&m->bell_event, event_free);
    }
}

bool vj_mailbox_answer(VjMailbox *m, const VjOut *out)
{
    uint8_t *at = m->data + VJ_MAILBOX_REPLY_AT;
    size_t len = vj_out_bytes(out);
    bool fits = out->pipe == NULL && out->fd == NULL && len <= VJ_MAILBOX_FRAME_MAX;

    if (!fits || state(m) != VJ_MAILBOX_TAKEN) {
        if (change_state(m, VJ_MAILBOX_TAKEN, VJ_MAILBOX_BY_SOCKET)) {
            wake_client(m);
        }
        return false;
    }
    at = mempcpy(at, out->head, VJ_FRAME_HEAD_BYTES);
    if (out->message.len > 0) {
        at = mempcpy(at, out->message.data, out->message.len);
    }
    if (out->lead.len > 0) {
        at = mempcpy(at, out->lead.data, out->lead.len);
    }
    if (out->bulk.len > 0) {
        memcpy(at, out->bulk.data, out->bulk.len);
    }
    if (!change_state(m, VJ_MAILBOX_TAKEN, VJ_MAILBOX_ANSWERED)) {
        return false; /* who waits for it sleeps at the socket by now */
    }
    wake_client(m);
    return true;
}

/* The one that this thread may run on, plus 1; 0: there are more. */
static uint32_t only_cpu(void)
{
    uint32_t cpu = 0;
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) != 1) {
        return 0;
    }
    while (!CPU_ISSET(cpu, &set)) {
        cpu++;
    }
    return cpu + 1;
}

int vj_mailbox_new(VjLoop *loop, const VjMailboxCallbacks *callbacks, void *owner,
                   VjMailbox **out, int *fd)
{
    VjMailbox *m;
    uint8_t *data;
    int rc = vj_shared_new("varjfs-mailbox", VJ_MAILBOX_BYTES, 0, fd, &data);

    if (rc < 0) {
        return rc;
    }
    m = g_new0(VjMailbox, 1);
    *m = (VjMailbox){.loop = loop,
                     .callbacks = callbacks,
                     .owner = owner,
                     .data = data,
                     .memory = {.take = take, .listen = listen_to},
                     .bell = -1};
    *word(m, VJ_MAILBOX_CPU_AT) = only_cpu();
    *out = m;
    return 0;
}

void vj_mailbox_free(VjMailbox *m)
{
    if (m != NULL) {
        g_assert(!m->memory.is_watched && m->bell_event == NULL);
        vj_fd_close(&m->bell);
        munmap(m->data, VJ_MAILBOX_BYTES);
        g_free(m);
    }
}

static void on_bell(evutil_socket_t fd, short what, void *opaque)
{
    VjMailbox *m = opaque;

    (void)fd, (void)what; /* each write is an edge: its number need not be read */
    vj_loop_read_no_more(m->loop);
    (void)take(&m->memory); /* or behind the frame that is coming in */
}

int vj_mailbox_add_bell(VjMailbox *m, int *fd)
{
    VJ_AUTO_FD bell = -1;
    VJ_AUTO_FD passed = -1;

    if (m->bell >= 0) {
        return -EBUSY;
    }
    bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    passed = bell < 0 ? -1 : fcntl(bell, F_DUPFD_CLOEXEC, 0);
    if (passed < 0) {
        return -errno;
    }
    m->bell_event =
        event_new(vj_loop_base(m->loop), bell, EV_READ | EV_ET | EV_PERSIST, on_bell, m);
    if (m->bell_event == NULL || event_add(m->bell_event, NULL) < 0) {
        g_clear_pointer(&m->bell_event, event_free);
        return -ENOMEM;
    }
    m->bell = vj_fd_steal(&bell);
    *fd = vj_fd_steal(&passed);
    vj_loop_unwatch(m->loop, &m->memory);
    listen_to(&m->memory, true);
    return 0;
}
