/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * connection.c - frames out and in over one socket
 *
 * A frame is read step by step, by whoever reads: what has come is kept in `ahead`, and
 * the bulk of a reply goes into the buffers of its request without being copied, but for
 * what came along with its head.
 *
 * Neither side may wait for the other one to read: while the socket takes nothing,
 * replies are read.
 *
 * Any byte that is not as the protocol has it ends the connection: where the next frame
 * begins is not known any more.
 */
#include "client-private.h"
#include "tls.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

varjfs *vjc_connection_new(int fd, VjcTls *tls, int timeout_ms)
{
    void *memory;
    varjfs *v;

    /* The state of a checksum is aligned for vector instructions. */
    if (posix_memalign(&memory, 64, sizeof *v) != 0) {
        vjc_tls_free(tls);
        close(fd);
        return NULL;
    }
    v = memory;
    /* All but the buffer at its end. */
    memset(v, 0, offsetof(struct varjfs, message));
    v->fd = fd;
    v->process = getpid();
    v->passed_fd = v->bell = -1;
    v->tls = tls;
    v->timeout_ms = timeout_ms;
    v->trust = 1;
    v->heard_ms = vjc_now_ms();
    return v;
}

void vjc_connection_free(varjfs *v)
{
    vjc_fail(v, -ECONNRESET);
    while (v->spare != NULL) {
        VjcRequest *spare = v->spare;

        v->spare = spare->next;
        free(spare);
    }
    vjc_gather_free(v);
    vjc_area_free(v);
    vjc_mailbox_free(v);
    if (v->passed_fd >= 0) {
        close(v->passed_fd);
    }
    vjc_tls_free(v->tls);
    free(v);
}

/* ---- requests in flight ------------------------------------------------------------ */

static void append(varjfs *v, VjcRequest *r)
{
    r->next = NULL;
    if (v->last != NULL) {
        v->last->next = r;
    } else {
        v->first = r;
    }
    v->last = r;
}

static void take_out(varjfs *v, VjcRequest *r)
{
    VjcRequest *before = NULL;

    for (VjcRequest *at = v->first; at != r; at = at->next) {
        before = at;
    }
    if (before != NULL) {
        before->next = r->next;
    } else {
        v->first = r->next;
    }
    if (v->last == r) {
        v->last = before;
    }
}

static VjcRequest *find(const varjfs *v, uint64_t tag)
{
    VjcRequest *r = v->first;

    while (r != NULL && r->tag != tag) {
        r = r->next;
    }
    return r;
}

VjcRequest *vjc_deferred_new(varjfs *v)
{
    VjcRequest *r = v->spare;

    if (r != NULL) {
        v->spare = r->next;
        memset(r, 0, sizeof *r);
    } else {
        r = calloc(1, sizeof *r);
    }
    if (r != NULL) {
        r->deferred = true;
    }
    return r;
}

/* It has left the list; who waits for it sees that it is done. */
static void complete(varjfs *v, VjcRequest *r, int error)
{
    r->error = error;
    r->done = true;
    if (r == v->called) {
        vjc_mailbox_answered(v);
    }
    if (!r->deferred) {
        return;
    }
    if (error != 0 && v->late_error == 0) {
        v->late_error = error;
    }
    r->next = v->spare;
    v->spare = r;
    v->deferred_count--;
    if (v->deferred_count == 0) {
        memset(v->names, 0, sizeof v->names);
    }
}

int vjc_fail(varjfs *v, int error)
{
    if (v->fd >= 0) {
        bool is_own = v->process == getpid();

        if (is_own && v->tls != NULL) {
            vjc_tls_goodbye(v->tls);
        }
        if (is_own) {
            vjc_shut_down(v->fd); /* children may have the socket, too */
        }
        close(v->fd);
        v->fd = -1;
        v->failure = error;
    }
    v->reply_to = NULL;
    while (v->first != NULL) {
        VjcRequest *r = v->first;

        take_out(v, r);
        complete(v, r, v->failure);
    }
    vjc_gather_drop(v);
    return v->failure;
}

/* ---- reading ----------------------------------------------------------------------- */

/* Lengths of a reply, by its operation and status. */
static int check_lengths(const VjcFrame *frame, const VjcRequest *r)
{
    uint32_t message_max = VJC_MESSAGE_MAX, bulk_max = VJC_BULK_MAX;

    if (r != NULL && frame->timeout_or_status != VJC_STATUS_OK) {
        message_max = VJC_TEXT_MAX;
        bulk_max = 0;
    } else if (r != NULL && r->handler == NULL) {
        message_max = bulk_max = 0;
    }
    return frame->message_bytes <= message_max && frame->bulk_bytes <= bulk_max ? 0
                                                                                : -EPROTO;
}

static bool is_bare(const varjfs *v)
{
    return (v->frame.flags & VJC_FRAME_BARE) != 0;
}

static int take_head(varjfs *v, const uint8_t *head)
{
    int rc = vjc_frame_decode(head, &v->frame);

    if (rc != 0) {
        return rc;
    }
    if ((v->frame.flags & VJC_FRAME_REPLY) == 0) {
        return -EPROTO;
    }
    v->reply_to = find(v, v->frame.tag);
    if (v->reply_to != NULL && v->reply_to->op != v->frame.op) {
        return -EPROTO;
    }
    if (is_bare(v) && !(v->sends_bare && v->frame.op == VARJFS_WIRE_BATCH)) {
        return -EPROTO;
    }
    v->phase = VJC_PHASE_MESSAGE;
    v->message_got = 0;
    v->bulk_left = v->frame.bulk_bytes;
    v->in_at = v->in_filled = 0;
    XXH3_64bits_reset(&v->sum);
    return check_lengths(&v->frame, v->reply_to);
}

/* The message is there: where does the bulk go? */
static int take_message(varjfs *v)
{
    VjcRequest *r = v->reply_to;

    XXH3_64bits_update(&v->sum, v->message, v->frame.message_bytes);
    v->phase = VJC_PHASE_BULK;
    if (r == NULL || r->handler == NULL || v->frame.timeout_or_status != VJC_STATUS_OK) {
        return 0;
    }
    r->in_count = 0;
    return r->handler->place(r, v->message, v->frame.message_bytes, v->frame.bulk_bytes)
               ? 0
               : -EPROTO;
}

/* The last byte of a frame is there. */
static int take_frame(varjfs *v)
{
    VjcRequest *r = v->reply_to;
    const VjcFrame *frame = &v->frame;

    v->phase = VJC_PHASE_HEAD;
    if ((frame->message_bytes > 0 || (frame->bulk_bytes > 0 && !is_bare(v))) &&
        XXH3_64bits_digest(&v->sum) != frame->body_checksum) {
        return -EPROTO;
    }
    if (r == NULL) {
        return 0;
    }
    if (frame->timeout_or_status == VJC_STATUS_OK && r->handler != NULL) {
        if (!r->handler->finish(r, v->message, frame->message_bytes)) {
            return -EPROTO;
        }
    } else {
        r->error = vjc_status_errno(frame->timeout_or_status);
    }
    v->reply_to = NULL;
    take_out(v, r);
    complete(v, r, r->error);
    return 0;
}

/* Where the next bytes of the bulk go; bytes that nobody wants go into `message`. */
static size_t bulk_room(varjfs *v, uint8_t **dst)
{
    VjcRequest *r = v->reply_to;
    size_t room = sizeof v->message;

    *dst = v->message;
    if (r != NULL && r->in_max > 0) {
        while (v->in_at < r->in_count && v->in_filled == r->in[v->in_at].iov_len) {
            v->in_at++;
            v->in_filled = 0;
        }
        /* place() has made sure that the entries have room for all of the bulk. */
        *dst = (uint8_t *)r->in[v->in_at].iov_base + v->in_filled;
        room = r->in[v->in_at].iov_len - v->in_filled;
    }
    return room < v->bulk_left ? room : v->bulk_left;
}

static void bulk_filled(varjfs *v, const uint8_t *dst, size_t len)
{
    if (!is_bare(v)) {
        XXH3_64bits_update(&v->sum, dst, len);
    }
    v->in_filled += len;
    v->bulk_left -= (uint32_t)len;
}

static size_t take_ahead(varjfs *v, void *dst, size_t want)
{
    size_t have = v->end - v->begin;
    size_t len = want < have ? want : have;

    if (len > 0) {
        memcpy(dst, v->ahead + v->begin, len);
        v->begin += len;
    }
    if (v->begin == v->end) {
        v->begin = v->end = 0;
    }
    return len;
}

/* All that can be done with what was read ahead. */
static int parse(varjfs *v)
{
    int rc = 0;

    while (rc == 0) {
        if (v->phase == VJC_PHASE_HEAD) {
            uint8_t head[VJC_HEAD_BYTES];

            if (v->end - v->begin < VJC_HEAD_BYTES) {
                return 0;
            }
            take_ahead(v, head, sizeof head);
            rc = take_head(v, head);
        } else if (v->phase == VJC_PHASE_MESSAGE) {
            v->message_got += (uint32_t)take_ahead(
                v, v->message + v->message_got, v->frame.message_bytes - v->message_got);
            if (v->message_got < v->frame.message_bytes) {
                return 0;
            }
            rc = take_message(v);
        } else if (v->bulk_left > 0) {
            uint8_t *dst;
            size_t room = bulk_room(v, &dst);
            size_t len = take_ahead(v, dst, room);

            if (len == 0) {
                return 0;
            }
            bulk_filled(v, dst, len);
        } else {
            rc = take_frame(v);
        }
    }
    return rc;
}

/* The reply to the request in the mailbox: a frame that stands at @at. */
static int take_from_mailbox(varjfs *v, const uint8_t *at)
{
    uint8_t head[VJC_HEAD_BYTES];
    int rc;

    memcpy(head, at, sizeof head);
    at += sizeof head;
    rc = take_head(v, head);
    if (rc == 0 && (v->reply_to != v->called ||
                    (uint64_t)v->frame.message_bytes + v->frame.bulk_bytes >
                        VARJFS_WIRE_MAILBOX_FRAME_MAX - VJC_HEAD_BYTES)) {
        rc = -EPROTO;
    }
    if (rc == 0) {
        v->message_got = v->frame.message_bytes;
        memcpy(v->message, at, v->message_got);
        at += v->message_got;
        rc = take_message(v);
    }
    while (rc == 0 && v->bulk_left > 0) {
        uint8_t *dst;
        size_t room = bulk_room(v, &dst);

        vjc_copy(dst, at, room);
        at += room;
        bulk_filled(v, dst, room);
    }
    if (rc == 0) {
        rc = take_frame(v);
    }
    v->heard_ms = vjc_now_ms();
    return rc != 0 ? vjc_fail(v, rc) : 0;
}

/* As read_some.  Between frames of the socket alone. */
static int read_mailbox(varjfs *v)
{
    const uint8_t *at = v->phase == VJC_PHASE_HEAD ? vjc_mailbox_answer(v) : NULL;

    return at != NULL ? take_from_mailbox(v, at) : -EAGAIN;
}

#define READ_IOV 16

/* Room for what the frame still needs; bytes of all of it. */
static size_t frame_room(varjfs *v, struct iovec iov[READ_IOV], int *count)
{
    const VjcRequest *r = v->reply_to;
    size_t left = v->bulk_left, sum;
    uint8_t *dst = v->message + v->message_got;

    *count = 0;
    if (v->phase == VJC_PHASE_HEAD) {
        return 0;
    }
    sum = v->phase == VJC_PHASE_MESSAGE ? v->frame.message_bytes - v->message_got
                                        : bulk_room(v, &dst);
    iov[(*count)++] = (struct iovec){.iov_base = dst, .iov_len = sum};
    if (v->phase == VJC_PHASE_MESSAGE || r == NULL) {
        return sum;
    }
    for (size_t i = v->in_at + 1; i < r->in_count && sum < left && *count < READ_IOV;
         i++) {
        iov[*count] = r->in[i];
        if (iov[*count].iov_len > left - sum) {
            iov[*count].iov_len = left - sum;
        }
        sum += iov[(*count)++].iov_len;
    }
    return sum;
}

/* @len bytes of the frame have come where frame_room() had room. */
static void frame_filled(varjfs *v, size_t len)
{
    if (v->phase == VJC_PHASE_MESSAGE) {
        v->message_got += (uint32_t)len;
        return;
    }
    while (len > 0) {
        uint8_t *dst;
        size_t room = bulk_room(v, &dst);

        room = room < len ? room : len;
        bulk_filled(v, dst, room);
        len -= room;
    }
}

/*
 * One call to the kernel: what it has goes into the message or the bulk that is being
 * read, and the rest into `ahead`.  What was there is parsed already.  0; -EAGAIN nothing
 * came; else the connection has failed.
 */
static int read_some(varjfs *v, bool may_wait)
{
    struct iovec iov[READ_IOV + 1];
    int count, rc;
    size_t room;
    ssize_t got;

    if (v->begin > 0) {
        memmove(v->ahead, v->ahead + v->begin, v->end - v->begin);
        v->end -= v->begin;
        v->begin = 0;
    }
    room = frame_room(v, iov, &count);
    iov[count++] = (struct iovec){.iov_base = v->ahead + v->end,
                                  .iov_len = sizeof v->ahead - v->end};
    if (v->awaits_fd) {
        got = vjc_recv_fd(v->fd, iov, count, may_wait, &v->passed_fd);
    } else {
        got = v->tls != NULL ? vjc_tls_recv(v->tls, iov, count, may_wait)
                             : vjc_recv(v->fd, iov, count, may_wait);
    }
    if (got == -EAGAIN) {
        return -EAGAIN;
    }
    if (got <= 0) {
        return vjc_fail(v, got == 0 || got == -EPIPE ? -ECONNRESET : (int)got);
    }
    v->heard_ms = vjc_now_ms();
    if ((size_t)got > room) {
        v->end += (size_t)got - room;
        got = (ssize_t)room;
    }
    frame_filled(v, (size_t)got);
    rc = parse(v);
    return rc != 0 ? vjc_fail(v, rc) : 0;
}

/* ---- sending ----------------------------------------------------------------------- */

/* Takes @sent bytes off the front. */
static void advance(struct iovec **iov, size_t *count, size_t sent)
{
    while (*count > 0 && sent >= (*iov)->iov_len) {
        sent -= (*iov)->iov_len;
        (*iov)++;
        (*count)--;
    }
    if (*count > 0) {
        (*iov)->iov_base = (uint8_t *)(*iov)->iov_base + sent;
        (*iov)->iov_len -= sent;
    }
}

/* How long what a daemon sends is read that takes nothing any more. */
#define LAST_MS 200

/* The daemon has closed; what it said before may tell why. */
static int read_last(varjfs *v)
{
    int64_t deadline = vjc_deadline(LAST_MS);
    int rc;

    do {
        rc = read_some(v, false);
    } while (rc == 0 && vjc_left_ms(deadline, 1) > 0);
    return v->fd >= 0 ? vjc_fail(v, -ECONNRESET) : rc;
}

static int send_all(varjfs *v, struct iovec *iov, size_t count)
{
    int64_t deadline = VJC_NEVER;

    while (count > 0) {
        ssize_t sent = v->tls != NULL ? vjc_tls_send(v->tls, iov, count)
                                      : vjc_send_some(v->fd, iov, count);
        int rc;

        if (sent >= 0) {
            advance(&iov, &count, (size_t)sent);
            deadline = VJC_NEVER; /* each wait has one of its own */
            continue;
        }
        if (sent != -EAGAIN) {
            return read_last(v);
        }
        if (deadline == VJC_NEVER) {
            deadline = vjc_deadline(v->timeout_ms);
        }
        rc = vjc_poll(v->fd, POLLIN | POLLOUT, deadline, VJC_PING_MS);
        if (rc != 0 && rc != -EAGAIN) {
            return vjc_fail(v, rc);
        }
        rc = read_some(v, false);
        if (rc != 0 && rc != -EAGAIN) {
            return rc;
        }
        /* What it sends is no progress of what it is to take. */
        if (deadline != VJC_NEVER && vjc_left_ms(deadline, 1) == 0) {
            return vjc_fail(v, -ETIMEDOUT);
        }
    }
    return 0;
}

/* One iovec of ours and those of the caller, which stay as they are, in steps. */
static int send_frame(varjfs *v, uint8_t *message, size_t len, const struct iovec *bulk,
                      size_t bulk_count)
{
    struct iovec step[64];
    size_t used = 0, at = 0;
    int rc = 0;

    step[used++] = (struct iovec){.iov_base = message, .iov_len = len};
    do {
        while (used < sizeof step / sizeof *step && at < bulk_count) {
            step[used++] = bulk[at++];
        }
        rc = send_all(v, step, used);
        used = 0;
    } while (rc == 0 && at < bulk_count);
    return rc;
}

static void fill_head(VjcFrame *frame, uint8_t *message, size_t len,
                      const struct iovec *bulk, size_t bulk_count)
{
    size_t bulk_bytes = 0;

    frame->message_bytes = (uint32_t)(len - VJC_HEAD_BYTES);
    for (size_t i = 0; i < bulk_count; i++) {
        bulk_bytes += bulk[i].iov_len;
    }
    if (bulk_bytes == 0 || (frame->flags & VJC_FRAME_BARE) != 0) {
        frame->body_checksum =
            frame->message_bytes > 0
                ? XXH3_64bits(message + VJC_HEAD_BYTES, frame->message_bytes)
                : 0;
    } else {
        XXH3_state_t sum;

        XXH3_64bits_reset(&sum);
        XXH3_64bits_update(&sum, message + VJC_HEAD_BYTES, frame->message_bytes);
        for (size_t i = 0; i < bulk_count; i++) {
            XXH3_64bits_update(&sum, bulk[i].iov_base, bulk[i].iov_len);
        }
        frame->body_checksum = XXH3_64bits_digest(&sum);
    }
    frame->bulk_bytes = (uint32_t)bulk_bytes;
    vjc_frame_encode(frame, message);
}

int vjc_send(varjfs *v, VjcRequest *r, uint8_t *message, size_t len,
             const struct iovec *bulk, size_t bulk_count)
{
    VjcFrame frame = {.op = r->op};

    r->done = false;
    r->error = 0;
    vjc_mailbox_prepare(v, r->at_once);
    if (v->fd < 0) {
        r->done = true;
        r->error = v->failure;
        if (r->deferred) {
            r->next = v->spare;
            v->spare = r;
        }
        return v->failure;
    }
    r->tag = ++v->last_tag;
    frame.tag = r->tag;
    frame.flags = v->sends_bare && r->op == VARJFS_WIRE_BATCH ? VJC_FRAME_BARE : 0;
    frame.timeout_or_status = v->timeout_ms < 0 ? 0 : (uint32_t)v->timeout_ms;
    fill_head(&frame, message, len, bulk, bulk_count);
    append(v, r);
    v->deferred_count += r->deferred ? 1 : 0;
    if (r->at_once && vjc_mailbox_call(v, r, message, len, bulk, bulk_count)) {
        return 0;
    }
    return send_frame(v, message, len, bulk, bulk_count);
}

/* A frame that has no reply, or one that is ignored. */
static int send_sign(varjfs *v, uint16_t op, uint64_t tag, uint8_t *message, size_t len)
{
    VjcFrame frame = {.op = op, .tag = tag};

    if (v->fd < 0) {
        return v->failure;
    }
    fill_head(&frame, message, len, NULL, 0);
    return send_frame(v, message, len, NULL, 0);
}

int vjc_cancel(varjfs *v, const VjcRequest *r)
{
    uint8_t message[VJC_HEAD_BYTES + 8];
    VjcWriter w = vjc_writer(message + VJC_HEAD_BYTES, 8);

    vjc_put_number(&w, r->tag, 8);
    return send_sign(v, VJC_OP_CANCEL, 0, message, sizeof message);
}

/* ---- waiting ----------------------------------------------------------------------- */

/* What TLS has taken from the socket already. */
static bool may_have_more(const varjfs *v)
{
    return v->tls != NULL && vjc_tls_has_more(v->tls);
}

/*
 * A thread that sleeps is woken by another processor, which often takes longer than the
 * request did.  So who waits asks the socket for a while first, and gives its processor
 * to others between two questions.  Whether that is worth it is learned: not where
 * requests take longer, and not where others want this processor (then giving it away
 * takes long): the daemon may be among them.
 */
#define ASKING_NS 60000
/* Giving the processor away takes so long only if somebody has taken it: the daemon, or
 * others, when that happens more than so often. */
#define TAKEN_NS 8000
#define TAKEN_MAX 2u
#define TRUST_MAX 8
/* Waits after which it is tried again. */
#define DISTRUST (-256)

static int64_t now_ns(void)
{
    struct timespec now = {0, 0};

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* While a reply is looked for in the mailbox the socket is looked at so seldom. */
#define LOOKS_OF_SOCKET 16u

/* As read_some, without waiting. */
static int look(varjfs *v, unsigned *looks)
{
    int rc = -EAGAIN;

    if (v->looks_at_mailbox) {
        rc = read_mailbox(v);
        if (rc != -EAGAIN || ++*looks % LOOKS_OF_SOCKET != 0) {
            return rc;
        }
    }
    return read_some(v, false);
}

/* Nobody looks at the mailbox any more; as read_some, -EAGAIN: the socket it is. */
static int leave_mailbox(varjfs *v)
{
    struct iovec frame, *at = &frame;

    if (vjc_mailbox_take_back(v, &frame)) {
        int rc = send_all(v, at, 1);

        return rc == 0 ? -EAGAIN : rc;
    }
    if (vjc_mailbox_leave(v)) {
        return -EAGAIN;
    }
    return read_mailbox(v); /* or the rest of what is coming in before it */
}

/* As read_some; -EAGAIN: nothing came, and it is better to sleep. */
static int ask_for_a_while(varjfs *v)
{
    unsigned looks = 0, taken = 0;
    bool is_over = false;
    int64_t begin, now;
    int rc;

    if (v->trust <= 0) {
        v->trust++;
        return -EAGAIN;
    }
    begin = now = now_ns();
    while ((rc = look(v, &looks)) == -EAGAIN && !is_over) {
        int64_t last = now;
        bool slept = vjc_mailbox_sleep(v);

        if (!slept) {
            sched_yield();
        }
        now = now_ns();
        if (!slept && now - last > TAKEN_NS) {
            begin += now - last;
            taken++;
        }
        /* Then once more: who took it may have been the daemon. */
        is_over = slept || taken > TAKEN_MAX || now - begin >= ASKING_NS ||
                  vjc_mailbox_is_left(v);
    }
    if (rc != -EAGAIN) {
        v->trust += v->trust < TRUST_MAX ? 1 : 0;
        return rc;
    }
    v->trust--;
    if (v->trust == 0) {
        v->trust = DISTRUST;
    }
    return -EAGAIN;
}

/* Until something was read, or for a second. */
static int wait_some(varjfs *v, int64_t deadline, int64_t *asked_ms)
{
    uint8_t ping[VJC_HEAD_BYTES];
    int64_t now = vjc_now_ms();
    int rc;

    if (v->fd < 0) {
        return v->failure;
    }
    if (deadline != VJC_NEVER && now >= deadline) {
        return vjc_fail(v, -ETIMEDOUT);
    }
    if (now - v->heard_ms >= VJC_PING_MS && now - *asked_ms >= VJC_PING_MS) {
        *asked_ms = now;
        rc = send_sign(v, VJC_OP_PING, ++v->last_tag, ping, sizeof ping);
        if (rc != 0) {
            return rc;
        }
    }
    if (v->tls == NULL) {
        rc = ask_for_a_while(v);
        if (rc == -EAGAIN && v->looks_at_mailbox) {
            rc = leave_mailbox(v);
        }
        if (rc != -EAGAIN) {
            return rc;
        }
    }
    if (deadline - now < VJC_PING_MS && !may_have_more(v)) {
        rc = vjc_poll(v->fd, POLLIN, deadline, VJC_PING_MS);
        if (rc == -EAGAIN) {
            return 0;
        }
        if (rc != 0) {
            return vjc_fail(v, rc);
        }
    }
    rc = read_some(v, true);
    return rc == -EAGAIN ? 0 : rc;
}

bool vjc_try(varjfs *v, const VjcRequest *r)
{
    int rc = 0;

    while (!r->done && rc == 0) {
        rc = read_some(v, false); /* after a failure it is done */
    }
    return r->done;
}

int vjc_wait(varjfs *v, VjcRequest *r)
{
    int64_t deadline = VJC_NEVER, asked_ms;

    if (!r->done) {
        deadline = vjc_deadline(v->timeout_ms);
        /* Nobody listened since: a second counts from now on. */
        v->heard_ms = vjc_now_ms();
        asked_ms = v->heard_ms;
    }
    while (!r->done) {
        wait_some(v, deadline, &asked_ms); /* after a failure it is done */
    }
    return r->error;
}

int vjc_wait_in_flight(varjfs *v, uint32_t most)
{
    int64_t deadline, asked_ms;
    int rc = 0;

    if (v->deferred_count <= most) {
        return 0;
    }
    deadline = vjc_deadline(v->timeout_ms);
    v->heard_ms = asked_ms = vjc_now_ms();
    while (rc == 0 && v->deferred_count > most) {
        rc = wait_some(v, deadline, &asked_ms);
    }
    return rc;
}
