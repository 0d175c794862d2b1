/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * connection.c - see connection-private.h
 *
 * What comes in is read into the loop's scratch, up to which a frame is small, or, once a
 * bulk has begun, into its buffer.  A connection has memory for a head alone; that of a
 * body is taken after the owner has looked at the head.
 *
 * Invariants: `phase` and all that is read changes in the loop's thread alone.  A frame
 * that was given to vj_conn_send is released once: sent, taken back, or dropped when the
 * connection ends.  Nothing is written to a bulk's buffer but with receive_lock held, so
 * vj_conn_ignore returns when the buffer is the caller's again.
 */
#include "rpc/connection-private.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rpc/address-private.h"

/* Of one sendmsg(2). */
#define IOV_MAX_COUNT 48
/* So much goes out or comes in before the loop looks at other connections. */
#define FLUSH_BYTES_MAX ((size_t)4 << 20)
#define READ_BYTES_MAX ((size_t)2 << 20)
/* Of one recv(2) into a bulk: what is checksummed then is still in the CPU's cache. */
#define RECEIVE_BYTES_MAX ((size_t)256 << 10)
/* A part of a bulk that is shorter comes with what follows it, by one call. */
#define DIRECT_BYTES_MIN ((size_t)8 << 10)
/* How long vj_conn_finish waits for the peer to close. */
#define FINISH_TIMEOUT_US ((int64_t)2 * 1000 * 1000)
/* How long a peer may be slower than that while others wait for memory. */
#define HOLD_UP_US ((int64_t)2 * 1000 * 1000)

typedef enum Phase {
    PHASE_NEW,
    PHASE_CONNECTING,
    PHASE_HANDSHAKE,
    PHASE_OPEN,
    PHASE_FINISHING, /* what waits goes out, then what comes in is thrown away */
    PHASE_CLOSED,
} Phase;

typedef enum Want {
    WANT_WRITE = 1 << 0, /* output waits for the socket */
    WANT_RESUME = 1 << 1,
    WANT_CLOSE = 1 << 2,
    WANT_FINISH = 1 << 3,
} Want;

struct VjConn {
    gint refs;
    VjLoop *loop;
    const VjConnCallbacks *callbacks;
    void *owner;
    VjConnCounters *counters;
    VjLoopTask task; /* holds a reference while it is posted */
    VjCredentials *credentials;
    char *host;
    bool is_server;
    bool can_splice, can_pass_fd; /* from ready on */

    /* in the loop's thread: */
    Phase phase;
    struct event *read_event, *write_event;
    bool is_reading, is_writing; /* which of them are added */
    VjLoopSource source;
    uint64_t reads; /* that got something */
    bool is_paused;
    int64_t finish_us;
    /* the frame that is coming in */
    uint8_t head[VJ_FRAME_HEAD_BYTES];
    size_t head_used;
    bool head_waits; /* it is whole, and the owner did not want it yet */
    bool in_body;
    VjFrame frame;
    uint8_t *message;
    size_t message_used, bulk_used;
    uint32_t bulk_room; /* up to where the owner lets the bulk be read */
    bool more_waits;    /* it does not just now */
    int64_t pause_us;   /* since when nothing is read */
    VjChecksum checksum;
    int64_t frame_us; /* when it began */
    /* what was read behind the head where reading stopped */
    uint8_t *left_over;
    size_t left_over_bytes;

    /* atomic: when the last bytes came in; when output last began to wait, or some went
     * out; when output that had waited went out, so the peer took some */
    int64_t in_us, out_us, drained_us;

    VjMutex receive_lock; /* VJ_RANK_RPC_RECEIVE */
    /* guarded by receive_lock: */
    VjBuf *bulk;
    uint64_t bulk_tag;
    bool is_ignored;

    VjMutex lock; /* VJ_RANK_RPC_CONNECTION */
    /* guarded by lock: */
    int fd;           /* closed with it held */
    VjStream *stream; /* sending; receiving, unless it does both at once */
    bool can_send;
    VjOut *first, *last;
    size_t first_sent;   /* bytes of the first one that are out */
    int64_t first_us;    /* when it became the first one that waits */
    bool waits_to_write; /* the loop goes on with the output */
    unsigned wants;
    int close_rc;
};

/* ---- frames that go out ------------------------------------------------------------ */

/* Of the parts as one string; 0 where they are all empty. */
static uint64_t sum_of(const VjSlice *parts, size_t count)
{
    size_t used = 0;
    VjSlice last = vj_slice(NULL, 0);
    VjChecksum sum;

    for (size_t i = 0; i < count; i++) {
        if (parts[i].len > 0) {
            last = parts[i];
            used++;
        }
    }
    if (used < 2) {
        return used == 0 ? 0 : vj_checksum64(last.data, last.len);
    }
    vj_checksum_init(&sum);
    for (size_t i = 0; i < count; i++) {
        if (parts[i].len > 0) {
            vj_checksum_add(&sum, parts[i].data, parts[i].len);
        }
    }
    return vj_checksum_get(&sum);
}

void vj_out_encode(VjOut *out, VjFrame *frame)
{
    const VjSlice parts[] = {out->message, out->lead, out->bulk};

    g_assert(out->message.len <= VJ_RPC_MESSAGE_MAX && out->bulk.len <= VJ_RPC_BULK_MAX &&
             out->lead.len <= VJ_RPC_BULK_MAX - out->bulk.len);
    frame->message_bytes = (uint32_t)out->message.len;
    frame->bulk_bytes = (uint32_t)(out->lead.len + out->bulk.len);
    if (out->pipe != NULL) {
        g_assert(frame->bulk_bytes == 0 && out->pipe_bytes > 0);
        frame->bulk_bytes = out->pipe_bytes;
    }
    if (out->pipe != NULL || out->is_bare) {
        frame->flags |= VJ_FRAME_BARE;
    }
    frame->body_checksum = sum_of(parts, out->is_bare ? 1 : G_N_ELEMENTS(parts));
    vj_frame_encode(frame, out->head);
}

/* Those that are sent from memory. */
static size_t memory_bytes(const VjOut *out)
{
    return VJ_FRAME_HEAD_BYTES + out->message.len + out->lead.len + out->bulk.len;
}

size_t vj_out_bytes(const VjOut *out)
{
    return memory_bytes(out) + (out->pipe != NULL ? out->pipe_bytes : 0);
}

static void append(VjConn *c, VjOut *out)
{
    out->next = NULL;
    out->before = c->last;
    out->is_queued = true;
    *(c->last == NULL ? &c->first : &c->last->next) = out;
    c->last = out;
}

/* The last frame of which the stream has begun to send something; NULL: none. */
static VjOut *last_begun(const VjConn *c)
{
    size_t begun = c->first_sent + c->stream->send_pending;
    VjOut *last = NULL;

    for (VjOut *out = c->first; out != NULL && begun > 0; out = out->next) {
        last = out;
        begun -= MIN(begun, vj_out_bytes(out));
    }
    return last;
}

static void insert_first(VjConn *c, VjOut *out)
{
    VjOut *before = last_begun(c);

    out->before = before;
    out->next = before == NULL ? c->first : before->next;
    *(out->next == NULL ? &c->last : &out->next->before) = out;
    *(before == NULL ? &c->first : &before->next) = out;
    out->is_queued = true;
}

static void detach(VjConn *c, VjOut *out)
{
    *(out->before == NULL ? &c->first : &out->before->next) = out->next;
    *(out->next == NULL ? &c->last : &out->next->before) = out->before;
    out->next = out->before = NULL;
    out->is_queued = false;
}

/* The part of [data, data + len) behind the first *skip bytes. */
static int add_part(struct iovec *iov, VjSlice part, size_t *skip)
{
    size_t skipped = MIN(*skip, part.len);

    *skip -= skipped;
    if (skipped == part.len) {
        return 0;
    }
    iov->iov_base = (uint8_t *)(uintptr_t)part.data + skipped;
    iov->iov_len = part.len - skipped;
    return 1;
}

/* It goes out by a call of its own. */
static bool is_passing_fd(const VjConn *c)
{
    return c->first->fd != NULL && c->first_sent == 0;
}

/* What can be sent at once; *before_pipe: up to a bulk that is in a pipe. */
static int gather(const VjConn *c, struct iovec iov[IOV_MAX_COUNT], bool *before_pipe)
{
    size_t skip = c->first_sent;
    int count = 0;

    *before_pipe = false;
    for (const VjOut *out = c->first;
         out != NULL && count + 4 <= IOV_MAX_COUNT && !*before_pipe; out = out->next) {
        if (out != c->first && (out->fd != NULL || is_passing_fd(c))) {
            break;
        }
        count += add_part(&iov[count], vj_slice(out->head, VJ_FRAME_HEAD_BYTES), &skip);
        count += add_part(&iov[count], out->message, &skip);
        count += add_part(&iov[count], out->lead, &skip);
        count += add_part(&iov[count], out->bulk, &skip);
        *before_pipe = out->pipe != NULL;
    }
    return count;
}

/* As vj_stream_send. */
static ssize_t send_some(VjConn *c)
{
    const VjOut *out = c->first;
    struct iovec iov[IOV_MAX_COUNT];
    int count;

    vj_mutex_assert_held(&c->lock);
    if (out->pipe != NULL && c->first_sent >= memory_bytes(out)) {
        return vj_stream_send_pipe(c->stream, out->pipe->read_fd,
                                   vj_out_bytes(out) - c->first_sent);
    }
    count = gather(c, iov, &c->stream->more_follows);
    if (is_passing_fd(c)) {
        return vj_stream_send_fd(c->stream, iov, count, *out->fd);
    }
    return vj_stream_send(c->stream, iov, count);
}

/* @sent bytes went out.  Frames that are out are moved to the list *done. */
static void advance(VjConn *c, size_t sent, VjOut **done)
{
    VjOut **end = done;

    while (*end != NULL) {
        end = &(*end)->next;
    }
    c->first_sent += sent;
    while (c->first != NULL && c->first_sent >= vj_out_bytes(c->first)) {
        VjOut *out = c->first;

        c->first_sent -= vj_out_bytes(out);
        detach(c, out);
        *end = out;
        end = &out->next;
    }
    g_assert(c->first != NULL || c->first_sent == 0);
}

static void release(VjOut *done, bool was_sent)
{
    while (done != NULL) {
        VjOut *out = done;

        done = out->next;
        out->next = NULL;
        out->released(out, was_sent);
    }
}

/* 0: the socket takes no more now, or nothing is left; -errno: the connection is lost. */
static int flush(VjConn *c, VjOut **done)
{
    size_t total = 0;

    vj_mutex_assert_held(&c->lock);
    while (c->first != NULL && total < FLUSH_BYTES_MAX) {
        ssize_t sent = send_some(c);

        if (sent < 0) {
            if (sent == -EAGAIN) {
                break;
            }
            return (int)sent;
        }
        total += (size_t)sent;
        advance(c, (size_t)sent, done);
    }
    if (total > 0) {
        int64_t now_us = vj_clock_mono_us();

        __atomic_store_n(&c->out_us, now_us, __ATOMIC_RELAXED);
        c->first_us = *done != NULL ? now_us : c->first_us;
        __atomic_fetch_add(&c->counters->sent_bytes, total, __ATOMIC_RELAXED);
    }
    c->waits_to_write = c->first != NULL;
    return 0;
}

/* The loop is to do something. */
static void want(VjConn *c, unsigned wants)
{
    vj_mutex_assert_held(&c->lock);
    c->wants |= wants;
    vj_conn_ref(c);
    if (!vj_loop_post(c->loop, &c->task)) {
        vj_conn_unref(c); /* not the last one: the task has one */
    }
}

static void submit(VjConn *c, VjOut *out, bool is_first)
{
    VjOut *done = NULL;
    bool refused;

    g_assert(!out->is_queued && out->released != NULL);
    vj_mutex_lock(&c->lock);
    refused = !c->can_send;
    if (!refused) {
        bool was_empty = c->first == NULL;

        if (is_first) {
            insert_first(c, out);
        } else {
            append(c, out);
        }
        if (was_empty) {
            int rc = flush(c, &done);

            if (rc < 0) {
                c->can_send = false;
                c->close_rc = rc;
                want(c, WANT_CLOSE);
            } else if (c->waits_to_write) {
                c->first_us = vj_clock_mono_us();
                __atomic_store_n(&c->out_us, c->first_us, __ATOMIC_RELAXED);
                want(c, WANT_WRITE);
            }
        }
    }
    vj_mutex_unlock(&c->lock);
    if (refused) {
        out->released(out, false);
    }
    release(done, true);
}

void vj_conn_send(VjConn *c, VjOut *out)
{
    submit(c, out, false);
}

void vj_conn_send_first(VjConn *c, VjOut *out)
{
    submit(c, out, true);
}

bool vj_conn_take_back(VjConn *c, VjOut *out)
{
    bool taken;

    vj_mutex_lock(&c->lock);
    taken = out->is_queued;
    if (taken) {
        const VjOut *begun = last_begun(c);

        for (const VjOut *o = c->first; taken && begun != NULL; o = o->next) {
            taken = o != out;
            begun = o == begun ? NULL : begun;
        }
    }
    if (taken) {
        detach(c, out);
    }
    vj_mutex_unlock(&c->lock);
    return taken;
}

bool vj_conn_has_output(VjConn *c)
{
    bool has;

    vj_mutex_lock(&c->lock);
    has = c->first != NULL;
    vj_mutex_unlock(&c->lock);
    return has;
}

/* ---- events ------------------------------------------------------------------------ */

static void set_event(struct event *e, bool *is_added, bool wanted)
{
    if (*is_added != wanted) {
        int rc = wanted ? event_add(e, NULL) : event_del(e);

        g_assert(rc == 0);
        *is_added = wanted;
    }
}

static void set_events(VjConn *c)
{
    short wants = 0;

    vj_mutex_lock(&c->lock);
    switch (c->phase) {
    case PHASE_CONNECTING:
        wants = POLLOUT;
        break;
    case PHASE_HANDSHAKE:
        wants = c->stream->handshake_wants;
        break;
    case PHASE_OPEN:
        wants = (short)((c->is_paused ? 0 : c->stream->recv_wants) |
                        (c->waits_to_write ? c->stream->send_wants : 0));
        break;
    case PHASE_FINISHING:
        wants = c->stream != NULL ? c->stream->send_wants : POLLIN;
        break;
    case PHASE_NEW:
    case PHASE_CLOSED:
        break;
    }
    vj_mutex_unlock(&c->lock);
    if (c->phase != PHASE_CLOSED) {
        bool reads = c->phase == PHASE_OPEN && wants == POLLIN;

        set_event(c->read_event, &c->is_reading, (wants & POLLIN) != 0);
        set_event(c->write_event, &c->is_writing, (wants & POLLOUT) != 0);
        vj_loop_source_wants(c->loop, &c->source,
                             reads        ? VJ_SOURCE_READS
                             : wants != 0 ? VJ_SOURCE_OTHER
                                          : VJ_SOURCE_IDLE);
    }
}

/* ---- frames that come in ----------------------------------------------------------- */

static void set_bulk(VjConn *c, VjBuf *bulk, bool is_ignored)
{
    vj_mutex_lock(&c->receive_lock);
    g_assert(c->bulk == NULL);
    c->bulk = bulk;
    c->bulk_tag = c->frame.tag;
    c->is_ignored = is_ignored;
    vj_mutex_unlock(&c->receive_lock);
}

static VjBuf *take_bulk(VjConn *c, bool *is_ignored)
{
    VjBuf *bulk;

    vj_mutex_lock(&c->receive_lock);
    bulk = g_steal_pointer(&c->bulk);
    *is_ignored = c->is_ignored;
    c->is_ignored = false;
    vj_mutex_unlock(&c->receive_lock);
    return bulk;
}

void vj_conn_ignore(VjConn *c, uint64_t tag)
{
    VjBuf *bulk = NULL;

    vj_mutex_lock(&c->receive_lock);
    if (c->bulk != NULL && c->bulk_tag == tag) {
        bulk = g_steal_pointer(&c->bulk);
        c->is_ignored = true;
    }
    vj_mutex_unlock(&c->receive_lock);
    vj_buf_unref(bulk);
}

/* c->checksum is of message and bulk; else there is a checksum of the message alone. */
static bool has_bulk_sum(const VjConn *c)
{
    return c->frame.bulk_bytes > 0 && !vj_frame_is_bare(&c->frame);
}

/* The body is whole, or there is none. */
static void end_frame(VjConn *c)
{
    VjFrame frame = c->frame;
    uint8_t *message = g_steal_pointer(&c->message);
    bool is_ignored;
    VjBuf *bulk = take_bulk(c, &is_ignored);
    uint64_t sum = 0;

    c->in_body = false;
    c->head_used = 0;
    if (has_bulk_sum(c)) {
        sum = vj_checksum_get(&c->checksum);
    } else if (frame.message_bytes > 0 && message != NULL) {
        sum = vj_checksum64(message, frame.message_bytes);
    }
    if (!is_ignored && sum != frame.body_checksum) {
        g_free(message);
        vj_buf_unref(bulk);
        vj_trace(rpc, "op %04x: a body with another checksum", frame.op);
        vj_conn_close(c, -EPROTO);
        return;
    }
    if (is_ignored) {
        g_clear_pointer(&message, g_free);
    }
    c->callbacks->frame(
        c, &frame,
        message != NULL ? g_byte_array_new_take(message, frame.message_bytes) : NULL,
        bulk, is_ignored);
}

static size_t body_bytes(const VjConn *c)
{
    return (size_t)c->frame.message_bytes + c->frame.bulk_bytes;
}

static void pause_reading(VjConn *c)
{
    c->is_paused = true;
    c->pause_us = vj_clock_mono_us();
}

/* The owner looks at the head. */
static void ask_owner(VjConn *c)
{
    VjInto into = {0};
    int rc = c->callbacks->head(c, &c->frame, &into);

    c->head_waits = rc == -EAGAIN;
    if (c->phase != PHASE_OPEN) {
        vj_buf_unref(into.bulk);
        return;
    }
    if (rc < 0) {
        if (rc == -EAGAIN) {
            pause_reading(c);
        } else {
            vj_conn_close(c, rc);
        }
        return;
    }
    g_assert(into.is_ignored || (into.bulk != NULL) == (c->frame.bulk_bytes > 0));
    g_assert(into.bulk == NULL || into.bulk->cap >= c->frame.bulk_bytes);
    if (!into.is_ignored && c->frame.message_bytes > 0) {
        c->message = g_try_malloc(c->frame.message_bytes);
        if (c->message == NULL) {
            vj_buf_unref(into.bulk);
            vj_conn_close(c, -ENOMEM);
            return;
        }
    }
    set_bulk(c, into.bulk, into.is_ignored);
    c->in_body = true;
    c->message_used = c->bulk_used = 0;
    c->bulk_room = into.bulk_room == 0 || into.is_ignored
                       ? c->frame.bulk_bytes
                       : MIN(into.bulk_room, c->frame.bulk_bytes);
    if (has_bulk_sum(c)) {
        vj_checksum_init(&c->checksum);
    } else if (body_bytes(c) == 0) {
        end_frame(c);
    }
}

static void begin_frame(VjConn *c)
{
    int rc = vj_frame_decode(c->head, &c->frame);

    if (rc == 0 && (c->frame.message_bytes > VJ_RPC_MESSAGE_MAX ||
                    c->frame.bulk_bytes > VJ_RPC_BULK_MAX)) {
        rc = -EPROTO;
    }
    if (rc < 0) {
        vj_trace(rpc, "no head of a frame, or one beyond all limits");
        vj_conn_close(c, rc);
        return;
    }
    ask_owner(c);
}

static size_t feed_head(VjConn *c, const uint8_t *bytes, size_t len)
{
    size_t n = MIN(len, VJ_FRAME_HEAD_BYTES - c->head_used);

    if (c->head_used == 0) {
        c->frame_us = __atomic_load_n(&c->in_us, __ATOMIC_RELAXED);
    }
    memcpy(c->head + c->head_used, bytes, n);
    c->head_used += n;
    if (c->head_used == VJ_FRAME_HEAD_BYTES) {
        begin_frame(c);
    }
    return n;
}

static size_t feed_message(VjConn *c, const uint8_t *bytes, size_t len)
{
    size_t n = MIN(len, c->frame.message_bytes - c->message_used);

    if (c->message != NULL) {
        memcpy(c->message + c->message_used, bytes, n);
        if (has_bulk_sum(c)) {
            vj_checksum_add(&c->checksum, bytes, n);
        }
    }
    c->message_used += n;
    if (c->message_used == c->frame.message_bytes && c->frame.bulk_bytes == 0) {
        end_frame(c);
    }
    return n;
}

static void ask_for_more(VjConn *c)
{
    int rc = c->callbacks->more(c, &c->frame, (uint32_t)c->bulk_used, &c->bulk_room);

    c->more_waits = rc == -EAGAIN;
    if (c->more_waits) {
        pause_reading(c);
    } else if (rc < 0) {
        vj_conn_close(c, rc);
    } else {
        g_assert(c->bulk_room > c->bulk_used && c->bulk_room <= c->frame.bulk_bytes);
    }
}

static void add_to_bulk(VjConn *c, size_t n)
{
    c->bulk_used += n;
    g_assert(c->bulk_used <= c->frame.bulk_bytes);
    if (c->bulk_used == c->frame.bulk_bytes) {
        end_frame(c);
    } else if (c->bulk_used == c->bulk_room) {
        ask_for_more(c);
    }
}

static size_t feed_bulk(VjConn *c, const uint8_t *bytes, size_t len)
{
    size_t n = MIN(len, c->bulk_room - c->bulk_used);

    vj_mutex_lock(&c->receive_lock);
    if (c->bulk != NULL) {
        memcpy(c->bulk->data + c->bulk_used, bytes, n);
        if (has_bulk_sum(c)) {
            vj_checksum_add(&c->checksum, bytes, n);
        }
    }
    vj_mutex_unlock(&c->receive_lock);
    add_to_bulk(c, n);
    return n;
}

static bool reads_on(const VjConn *c)
{
    return c->phase == PHASE_OPEN && !c->is_paused;
}

/* What follows in the stream. */
static void feed(VjConn *c, const uint8_t *bytes, size_t len)
{
    while (len > 0 && reads_on(c)) {
        size_t used;

        if (!c->in_body) {
            used = feed_head(c, bytes, len);
        } else if (c->message_used < c->frame.message_bytes) {
            used = feed_message(c, bytes, len);
        } else {
            used = feed_bulk(c, bytes, len);
        }
        bytes += used;
        len -= used;
    }
    if (len > 0 && c->phase == PHASE_OPEN) {
        g_assert(c->left_over == NULL);
        c->left_over = g_memdup2(bytes, len);
        c->left_over_bytes = len;
    }
}

static ssize_t receive(VjConn *c, void *dst, size_t len)
{
    ssize_t got;

    if (c->stream->ops->both_at_once) {
        return vj_stream_recv(c->stream, dst, len);
    }
    vj_mutex_lock(&c->lock);
    got = vj_stream_recv(c->stream, dst, len);
    vj_mutex_unlock(&c->lock);
    return got;
}

/* The rest of a bulk that is long enough, into its buffer.  -ENOENT: there is none. */
static ssize_t receive_bulk(VjConn *c, size_t *asked)
{
    size_t left = c->in_body && c->message_used == c->frame.message_bytes
                      ? c->bulk_room - c->bulk_used
                      : 0;
    ssize_t got = -ENOENT;

    if (left < DIRECT_BYTES_MIN) {
        return -ENOENT;
    }
    *asked = MIN(left, RECEIVE_BYTES_MAX);
    vj_mutex_lock(&c->receive_lock);
    if (c->bulk != NULL) {
        uint8_t *at = c->bulk->data + c->bulk_used;

        got = receive(c, at, *asked);
        if (got > 0 && has_bulk_sum(c)) {
            vj_checksum_add(&c->checksum, at, (size_t)got);
        }
    }
    vj_mutex_unlock(&c->receive_lock);
    return got;
}

static ssize_t receive_some(VjConn *c, size_t *asked)
{
    uint8_t *scratch = vj_loop_scratch(c->loop);
    ssize_t got = receive_bulk(c, asked);
    bool is_direct = got != -ENOENT;

    if (!is_direct) {
        *asked = VJ_LOOP_SCRATCH_BYTES;
        got = receive(c, scratch, *asked);
    }
    if (got <= 0) {
        return got;
    }
    c->reads++;
    c->source.bytes += (size_t)got;
    __atomic_store_n(&c->in_us, vj_clock_mono_us(), __ATOMIC_RELAXED);
    __atomic_fetch_add(&c->counters->received_bytes, (uint64_t)got, __ATOMIC_RELAXED);
    if (is_direct) {
        add_to_bulk(c, (size_t)got);
    } else {
        feed(c, scratch, (size_t)got);
    }
    return got;
}

static bool has_more(VjConn *c)
{
    bool more;

    vj_mutex_lock(&c->lock);
    more = vj_stream_has_more(c->stream);
    vj_mutex_unlock(&c->lock);
    return more;
}

static void read_some(VjConn *c)
{
    size_t total = 0, asked = 0;

    while (reads_on(c)) {
        ssize_t got = receive_some(c, &asked);

        if (got < 0) {
            if (got != -EAGAIN) {
                vj_conn_close(c, (int)got);
            }
            return;
        }
        total += (size_t)got;
        if (!reads_on(c)) {
            return;
        }
        if ((size_t)got < asked && !has_more(c)) {
            return; /* the socket was emptied */
        }
        if (total >= READ_BYTES_MAX) {
            if (has_more(c)) {
                vj_conn_resume(c); /* the socket would not say so */
            }
            return;
        }
    }
}

/* What was left when reading stopped, then the socket. */
static void resume(VjConn *c)
{
    g_autofree uint8_t *bytes = NULL;
    size_t len;

    if (c->phase != PHASE_OPEN) {
        return;
    }
    if (c->is_paused) {
        int64_t now_us = vj_clock_mono_us();

        /* What was not read is not the peer's fault. */
        c->frame_us += now_us - c->pause_us;
        __atomic_store_n(&c->in_us, now_us, __ATOMIC_RELAXED);
    }
    c->is_paused = false;
    if (c->head_waits) {
        ask_owner(c);
    } else if (c->more_waits) {
        ask_for_more(c);
    }
    if (reads_on(c) && c->left_over != NULL) {
        bytes = g_steal_pointer(&c->left_over);
        len = c->left_over_bytes;
        c->left_over_bytes = 0;
        feed(c, bytes, len);
    }
    read_some(c);
}

bool vj_conn_is_paused(const VjConn *c)
{
    return c->is_paused;
}

bool vj_conn_is_between_frames(const VjConn *c)
{
    return reads_on(c) && !c->in_body && c->head_used == 0 && c->left_over == NULL;
}

void vj_conn_feed(VjConn *c, const uint8_t *bytes, size_t len)
{
    g_assert(vj_conn_is_between_frames(c));
    vj_conn_ref(c);
    __atomic_store_n(&c->in_us, vj_clock_mono_us(), __ATOMIC_RELAXED);
    __atomic_fetch_add(&c->counters->received_bytes, (uint64_t)len, __ATOMIC_RELAXED);
    feed(c, bytes, len);
    set_events(c);
    vj_conn_unref(c);
}

/* ---- phases ------------------------------------------------------------------------ */

static void shake_hands(VjConn *c)
{
    int rc;

    vj_mutex_lock(&c->lock);
    rc = vj_stream_handshake(c->stream);
    c->can_send = rc == 0;
    vj_mutex_unlock(&c->lock);
    if (rc == -EAGAIN) {
        return;
    }
    if (rc < 0) {
        vj_conn_close(c, rc);
        return;
    }
    c->phase = PHASE_OPEN;
    c->can_splice = c->stream->ops->send_pipe != NULL;
    c->can_pass_fd = vj_stream_takes_fd(c->stream);
    __atomic_store_n(&c->in_us, vj_clock_mono_us(), __ATOMIC_RELAXED);
    c->callbacks->ready(c);
    read_some(c);
}

static void begin_handshake(VjConn *c)
{
    VjStream *stream;
    int rc = 0;

    c->phase = PHASE_HANDSHAKE;
    stream = vj_stream_new(c->fd, c->is_server, c->credentials, c->host, &rc);
    if (stream == NULL) {
        vj_conn_close(c, rc < 0 ? rc : -ENOMEM);
        return;
    }
    vj_mutex_lock(&c->lock);
    c->stream = stream;
    vj_mutex_unlock(&c->lock);
    shake_hands(c);
}

static void end_connect(VjConn *c)
{
    int failed = 0;
    socklen_t len = sizeof failed;

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &failed, &len) < 0) {
        failed = errno;
    }
    if (failed != 0) {
        vj_conn_close(c, -failed);
        return;
    }
    begin_handshake(c);
}

/* All has been sent.  The socket is closed when the peer has read it and closes too: a
 * socket that is closed while something comes in would take back what it has sent. */
static void say_end(VjConn *c)
{
    vj_mutex_lock(&c->lock);
    c->can_send = false;
    vj_stream_free(g_steal_pointer(&c->stream));
    vj_mutex_unlock(&c->lock);
    (void)shutdown(c->fd, SHUT_WR); /* a peer that is gone says so when it is read */
}

/* Output that waited for the socket. */
static void write_some(VjConn *c)
{
    VjOut *done = NULL;
    bool is_empty;
    int rc = 0;

    vj_mutex_lock(&c->lock);
    if (c->waits_to_write && c->can_send) {
        VjOut *first = c->first;
        size_t first_sent = c->first_sent;

        rc = flush(c, &done);
        if (c->first != first || c->first_sent != first_sent) {
            __atomic_store_n(&c->drained_us, vj_clock_mono_us(), __ATOMIC_RELAXED);
        }
    }
    is_empty = c->first == NULL;
    vj_mutex_unlock(&c->lock);
    release(done, true);
    if (rc < 0) {
        vj_conn_close(c, rc);
    } else if (c->phase == PHASE_FINISHING && is_empty && c->stream != NULL) {
        say_end(c);
    }
}

/* What still comes from a peer that has been told that it is over. */
static void throw_away(VjConn *c)
{
    uint8_t *scratch = vj_loop_scratch(c->loop);
    ssize_t got = recv(c->fd, scratch, VJ_LOOP_SCRATCH_BYTES, MSG_DONTWAIT);

    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        vj_conn_close(c, -ECONNRESET);
    }
}

static void step(VjConn *c, bool is_readable)
{
    switch (c->phase) {
    case PHASE_CONNECTING:
        end_connect(c);
        break;
    case PHASE_HANDSHAKE:
        shake_hands(c);
        break;
    case PHASE_OPEN:
        write_some(c);
        if (is_readable && c->phase == PHASE_OPEN) {
            read_some(c);
        }
        break;
    case PHASE_FINISHING:
        write_some(c);
        if (c->phase == PHASE_FINISHING && c->stream == NULL) {
            throw_away(c);
        }
        break;
    case PHASE_NEW:
    case PHASE_CLOSED:
        break;
    }
}

static void on_event(evutil_socket_t fd, short what, void *opaque)
{
    VjConn *c = vj_conn_ref(opaque);

    (void)fd;
    c->source.bytes = 0;
    step(c, (what & EV_READ) != 0 || c->stream == NULL ||
                (c->stream->recv_wants & POLLOUT) != 0);
    set_events(c);
    if (c->phase == PHASE_OPEN) {
        vj_loop_source_was_read(c->loop, &c->source);
    }
    vj_conn_unref(c);
}

/* The same without an event.  The phase is PHASE_OPEN, and no output waits. */
static bool read_source(VjLoopSource *source)
{
    VjConn *c =
        vj_conn_ref((VjConn *)(void *)((uint8_t *)source - offsetof(VjConn, source)));
    uint64_t reads = c->reads;
    bool got;

    c->source.bytes = 0;
    read_some(c);
    set_events(c);
    got = c->reads != reads || c->phase != PHASE_OPEN;
    vj_conn_unref(c);
    return got;
}

static void on_task(VjLoopTask *task)
{
    VjConn *c = (VjConn *)(void *)((uint8_t *)task - offsetof(VjConn, task));
    unsigned wants;
    int close_rc;

    vj_mutex_lock(&c->lock);
    wants = c->wants;
    c->wants = 0;
    close_rc = c->close_rc;
    vj_mutex_unlock(&c->lock);
    if ((wants & WANT_CLOSE) != 0) {
        vj_conn_close(c, close_rc);
    }
    if ((wants & WANT_FINISH) != 0) {
        vj_conn_finish(c);
    }
    if ((wants & WANT_RESUME) != 0) {
        resume(c);
    }
    set_events(c);
    vj_conn_unref(c);
}

/* ---- public ------------------------------------------------------------------------ */

VjConn *vj_conn_new(VjLoop *loop, int fd, const VjConnCallbacks *callbacks, void *owner,
                    VjConnCounters *counters)
{
    void *memory = NULL;
    VjConn *c;

    if (posix_memalign(&memory, _Alignof(VjConn), sizeof(VjConn)) != 0) {
        close(fd);
        return NULL;
    }
    c = memory;
    memset(c, 0, sizeof *c);
    c->refs = 1;
    c->loop = loop;
    c->fd = fd;
    c->callbacks = callbacks;
    c->owner = owner;
    c->counters = counters;
    c->task.run = on_task;
    c->source = (VjLoopSource){.fd = fd, .read = read_source};
    vj_mutex_init(&c->receive_lock, VJ_RANK_RPC_RECEIVE, "rpc.receive");
    vj_mutex_init(&c->lock, VJ_RANK_RPC_CONNECTION, "rpc.connection");
    return c;
}

VjConn *vj_conn_ref(VjConn *c)
{
    g_atomic_int_inc(&c->refs);
    return c;
}

void vj_conn_unref(VjConn *c)
{
    if (c == NULL || !g_atomic_int_dec_and_test(&c->refs)) {
        return;
    }
    g_assert(c->phase == PHASE_NEW || c->phase == PHASE_CLOSED);
    g_assert(c->first == NULL && c->bulk == NULL);
    vj_fd_close(&c->fd);
    vj_credentials_unref(c->credentials);
    vj_mutex_clear(&c->receive_lock);
    vj_mutex_clear(&c->lock);
    g_free(c->host);
    free(c);
}

void *vj_conn_owner(const VjConn *c)
{
    return c->owner;
}

VjLoop *vj_conn_loop(const VjConn *c)
{
    return c->loop;
}

bool vj_conn_takes_pipe(const VjConn *c)
{
    return c->can_splice;
}

bool vj_conn_takes_fd(const VjConn *c)
{
    return c->can_pass_fd;
}

const char *vj_conn_identity(const VjConn *c)
{
    return c->stream != NULL ? c->stream->identity : "";
}

void vj_conn_start(VjConn *c, bool is_server, VjCredentials *credentials,
                   const char *host)
{
    struct event_base *base = vj_loop_base(c->loop);

    g_assert(vj_loop_is_current(c->loop) && c->phase == PHASE_NEW);
    c->is_server = is_server;
    c->credentials = vj_credentials_ref(credentials);
    c->host = g_strdup(host);
    c->in_us = c->out_us = vj_clock_mono_us();
    c->read_event = event_new(base, c->fd, EV_READ | EV_PERSIST, on_event, c);
    c->write_event = event_new(base, c->fd, EV_WRITE | EV_PERSIST, on_event, c);
    vj_conn_ref(c); /* until it is closed */
    vj_conn_ref(c); /* until this returns: what the peer has sent may close it */
    c->phase = PHASE_CONNECTING;
    if (c->read_event == NULL || c->write_event == NULL) {
        vj_conn_close(c, -ENOMEM);
    } else if (is_server) {
        begin_handshake(c);
    }
    set_events(c);
    vj_conn_unref(c);
}

static void free_event(struct event **e)
{
    if (*e != NULL) {
        event_free(*e);
        *e = NULL;
    }
}

void vj_conn_close(VjConn *c, int rc)
{
    VjOut *dropped;
    VjStream *stream;
    bool is_ignored;

    g_assert(vj_loop_is_current(c->loop) && rc < 0);
    if (c->phase == PHASE_CLOSED) {
        return;
    }
    c->phase = PHASE_CLOSED;
    vj_loop_source_wants(c->loop, &c->source, VJ_SOURCE_IDLE);
    free_event(&c->read_event);
    free_event(&c->write_event);
    vj_mutex_lock(&c->lock);
    c->can_send = false;
    dropped = c->first;
    c->first = c->last = NULL;
    c->first_sent = 0;
    for (VjOut *out = dropped; out != NULL; out = out->next) {
        out->is_queued = false;
    }
    stream = g_steal_pointer(&c->stream);
    vj_stream_free(stream);
    vj_fd_close(&c->fd);
    vj_mutex_unlock(&c->lock);
    vj_buf_unref(take_bulk(c, &is_ignored));
    g_clear_pointer(&c->message, g_free);
    g_clear_pointer(&c->left_over, g_free);
    release(dropped, false);
    c->callbacks->closed(c, rc);
    vj_conn_unref(c);
}

void vj_conn_finish(VjConn *c)
{
    if (c->phase != PHASE_OPEN) {
        return;
    }
    c->phase = PHASE_FINISHING;
    c->is_paused = false;
    c->finish_us = vj_clock_mono_us();
    write_some(c);
    if (c->phase == PHASE_FINISHING) {
        set_events(c);
    }
}

/* What a frame of @bytes may take. */
static int64_t most_us(size_t bytes)
{
    return VJ_RPC_FRAME_TIMEOUT_US +
           (int64_t)bytes / VJ_RPC_FRAME_BYTES_PER_SECOND_MIN * G_USEC_PER_SEC;
}

/* The peer takes what goes out too slowly, or not at all. */
static bool is_stuck(VjConn *c, int64_t now_us)
{
    bool is_late = false;

    vj_mutex_lock(&c->lock);
    if (c->first != NULL) {
        is_late = now_us - c->out_us > VJ_RPC_FRAME_TIMEOUT_US ||
                  now_us - c->first_us > most_us(vj_out_bytes(c->first));
    }
    vj_mutex_unlock(&c->lock);
    return is_late;
}

static bool is_overdue(VjConn *c, int64_t now_us)
{
    int64_t in_us = __atomic_load_n(&c->in_us, __ATOMIC_RELAXED);
    bool is_half = c->head_used > 0 && !c->is_paused;

    if (c->phase == PHASE_FINISHING) {
        return is_stuck(c, now_us) ||
               (now_us - c->finish_us > FINISH_TIMEOUT_US && !vj_conn_has_output(c));
    }
    if (c->phase != PHASE_OPEN) {
        return false;
    }
    if (is_half && (now_us - in_us > VJ_RPC_FRAME_TIMEOUT_US ||
                    (c->in_body && now_us - c->frame_us > most_us(body_bytes(c))))) {
        return true;
    }
    return is_stuck(c, now_us);
}

void vj_conn_check(VjConn *c, int64_t now_us)
{
    if (is_overdue(c, now_us)) {
        vj_trace(rpc, "a peer is too slow");
        vj_conn_close(c, -ETIMEDOUT);
    }
}

/* Not faster than VJ_RPC_FRAME_BYTES_PER_SECOND_MIN, or not at all for a while. */
static bool is_too_slow(size_t done_bytes, int64_t begin_us, int64_t last_us,
                        int64_t now_us)
{
    int64_t earned_us =
        (int64_t)done_bytes / VJ_RPC_FRAME_BYTES_PER_SECOND_MIN * G_USEC_PER_SEC;

    return now_us - last_us > HOLD_UP_US || now_us - begin_us > HOLD_UP_US + earned_us;
}

bool vj_conn_holds_up(VjConn *c, int64_t now_us)
{
    bool holds_up = false;

    if (c->phase == PHASE_OPEN && c->in_body && !c->is_paused) {
        holds_up = is_too_slow(c->message_used + c->bulk_used, c->frame_us,
                               __atomic_load_n(&c->in_us, __ATOMIC_RELAXED), now_us);
    }
    vj_mutex_lock(&c->lock);
    if (c->first != NULL) {
        holds_up = holds_up || is_too_slow(c->first_sent, c->first_us, c->out_us, now_us);
    }
    vj_mutex_unlock(&c->lock);
    return holds_up;
}

int64_t vj_conn_alive_us(VjConn *c)
{
    int64_t in_us = __atomic_load_n(&c->in_us, __ATOMIC_RELAXED);

    return MAX(in_us, __atomic_load_n(&c->drained_us, __ATOMIC_RELAXED));
}

void vj_conn_resume(VjConn *c)
{
    vj_mutex_lock(&c->lock);
    want(c, WANT_RESUME);
    vj_mutex_unlock(&c->lock);
}

void vj_conn_close_soon(VjConn *c, int rc)
{
    vj_mutex_lock(&c->lock);
    c->close_rc = rc;
    want(c, WANT_CLOSE);
    vj_mutex_unlock(&c->lock);
}

void vj_conn_finish_soon(VjConn *c)
{
    vj_mutex_lock(&c->lock);
    want(c, WANT_FINISH);
    vj_mutex_unlock(&c->lock);
}
