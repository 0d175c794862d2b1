/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fake-daemon.h - the other side of libvarjfs, which says what the test wants
 *
 * A thread of the test's process accepts one connection and runs the test's script on it.
 * It has no cmocka: what must hold there is asserted, and ends the test.  What does not
 * come within 30 s is a failure.  Frames are those of the room rpc, so that the library
 * does not only agree with itself.
 *
 * With FAKE_TLS all of it goes over TLS, by a key.
 */
#ifndef VJ_TESTS_UNIT_CLIENT_FAKE_DAEMON_H
#define VJ_TESTS_UNIT_CLIENT_FAKE_DAEMON_H

#include "../../lib/test.h"
#include "fake-tls.h"
#include "rpc/messages.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <varjfs/client-protocol.h>
#include <varjfs/varjfs.h>

typedef struct FakeDaemon FakeDaemon;
typedef void FakeScript(FakeDaemon *d);

struct FakeDaemon {
    char *directory, *address, *key;
    int listener, fd;
    VjCredentials *credentials;
    VjKey256 secret;
    FakeTls tls;
    FakeScript *script;
    const void *data; /* of the script */
    int64_t number;
    bool gives_ping; /* fake_next() does */
    bool is_bare;    /* it has the feature: bulks of batches have no checksum */
    bool shares;     /* it has the feature SHARE */
    bool calls;      /* and MAILBOX */
    unsigned steps;  /* of deletions of namespaces */
    /* Where replies go; NULL: into the socket. */
    void (*reply)(FakeDaemon *d, const GByteArray *bytes);
    GThread *thread;
};

typedef struct FakeRequest {
    VjFrame frame;
    GByteArray *message, *bulk;
} FakeRequest;

/* ---- bytes ------------------------------------------------------------------------- */

static inline bool fake_recv(FakeDaemon *d, void *dst, size_t len)
{
    return len == 0 || recv(d->fd, dst, len, MSG_WAITALL) == (ssize_t)len;
}

/* What the library does not take, as it has closed, is its business. */
static inline void fake_send(FakeDaemon *d, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;

    while (len > 0) {
        ssize_t sent = send(d->fd, at, len, MSG_NOSIGNAL);

        if (sent < 0) {
            g_assert(errno == EPIPE || errno == ECONNRESET);
            return;
        }
        at += sent;
        len -= (size_t)sent;
    }
}

/* Until the library closes. */
static inline void fake_wait_end(FakeDaemon *d)
{
    uint8_t bytes[4096];
    ssize_t got;

    do {
        got = recv(d->fd, bytes, sizeof bytes, 0);
    } while (got > 0);
    g_assert(got == 0 || errno == ECONNRESET);
}

static inline void fake_request_clear(FakeRequest *r)
{
    g_clear_pointer(&r->message, g_byte_array_unref);
    g_clear_pointer(&r->bulk, g_byte_array_unref);
}

/* Takes a frame apart, of which @body is what stands behind the head. */
static inline void fake_take(const FakeDaemon *d, FakeRequest *r, const uint8_t *body)
{
    size_t summed = (size_t)vj_frame_sum_bytes(&r->frame);
    uint64_t sum = summed > 0 ? vj_checksum64(body, summed) : 0;

    g_assert(vj_frame_is_bare(&r->frame) ==
             (d->is_bare && r->frame.op == VARJFS_WIRE_BATCH));
    g_assert(sum == r->frame.body_checksum);
    r->message = g_byte_array_new();
    r->bulk = g_byte_array_new();
    if (r->frame.message_bytes > 0) {
        g_byte_array_append(r->message, body, r->frame.message_bytes);
    }
    if (r->frame.bulk_bytes > 0) {
        g_byte_array_append(r->bulk, body + r->frame.message_bytes, r->frame.bulk_bytes);
    }
}

/* A whole request but PING; false at the end of the connection. */
static inline bool fake_next(FakeDaemon *d, FakeRequest *r)
{
    uint8_t head[VJ_FRAME_HEAD_BYTES];
    g_autoptr(GByteArray) body = g_byte_array_new();

    do {
        if (!fake_recv(d, head, sizeof head)) {
            return false;
        }
        g_assert(vj_frame_decode(head, &r->frame) == 0);
        g_assert((r->frame.flags & VJ_FRAME_REPLY) == 0);
        g_byte_array_set_size(body, r->frame.message_bytes + r->frame.bulk_bytes);
        if (!fake_recv(d, body->data, body->len)) {
            return false;
        }
    } while (r->frame.op == VJ_OP_PING && !d->gives_ping);
    fake_take(d, r, body->data);
    return true;
}

/* With right lengths and checksums. */
static inline GByteArray *fake_frame(uint16_t op, uint64_t tag, uint32_t status,
                                     VjSlice message, VjSlice bulk)
{
    VjFrame frame = {.flags = VJ_FRAME_REPLY, .op = op, .tag = tag, .status = status};
    GByteArray *bytes = g_byte_array_new();
    uint8_t head[VJ_FRAME_HEAD_BYTES];

    g_byte_array_set_size(bytes, VJ_FRAME_HEAD_BYTES);
    if (message.len > 0) {
        g_byte_array_append(bytes, message.data, (guint)message.len);
    }
    if (bulk.len > 0) {
        g_byte_array_append(bytes, bulk.data, (guint)bulk.len);
    }
    frame.message_bytes = (uint32_t)message.len;
    frame.bulk_bytes = (uint32_t)bulk.len;
    frame.body_checksum =
        message.len + bulk.len > 0
            ? vj_checksum64(bytes->data + VJ_FRAME_HEAD_BYTES, message.len + bulk.len)
            : 0;
    vj_frame_encode(&frame, head);
    memcpy(bytes->data, head, sizeof head);
    return bytes;
}

/* Its bulk has no checksum any more. */
static inline void fake_make_bare(GByteArray *bytes)
{
    VjFrame frame;

    g_assert(vj_frame_decode(bytes->data, &frame) == 0);
    frame.flags |= VJ_FRAME_BARE;
    frame.body_checksum =
        frame.message_bytes > 0
            ? vj_checksum64(bytes->data + VJ_FRAME_HEAD_BYTES, frame.message_bytes)
            : 0;
    vj_frame_encode(&frame, bytes->data);
}

static inline VjSlice fake_slice(const GByteArray *bytes)
{
    return bytes->len > 0 ? vj_slice(bytes->data, bytes->len) : vj_slice(NULL, 0);
}

static inline GByteArray *fake_reply_frame(const FakeDaemon *d, const FakeRequest *r,
                                           uint32_t status, const GByteArray *message,
                                           const GByteArray *bulk)
{
    GByteArray *bytes =
        fake_frame(r->frame.op, r->frame.tag, status,
                   message != NULL ? fake_slice(message) : vj_slice(NULL, 0),
                   bulk != NULL ? fake_slice(bulk) : vj_slice(NULL, 0));

    if (d->is_bare && r->frame.op == VARJFS_WIRE_BATCH) {
        fake_make_bare(bytes);
    }
    return bytes;
}

static inline void fake_reply(FakeDaemon *d, const FakeRequest *r, uint32_t status,
                              const GByteArray *message, const GByteArray *bulk)
{
    g_autoptr(GByteArray) bytes = fake_reply_frame(d, r, status, message, bulk);

    if (d->reply != NULL) {
        d->reply(d, bytes);
    } else {
        fake_send(d, bytes->data, bytes->len);
    }
}

/* @count descriptors go along, all the same. */
static inline void fake_send_with_fds(FakeDaemon *d, const GByteArray *bytes, int fd,
                                      size_t count)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = bytes->data, .iov_len = bytes->len};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    int fds[2] = {fd, fd};

    if (count > 0) {
        struct cmsghdr *head;

        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(count * sizeof(int));
        head = CMSG_FIRSTHDR(&m);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(head), fds, count * sizeof(int));
    }
    g_assert(sendmsg(d->fd, &m, MSG_NOSIGNAL) == (ssize_t)bytes->len);
}

/* That the process has open. */
static inline unsigned fake_count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned count = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}

/* ---- batches ----------------------------------------------------------------------- */

typedef struct FakeOp {
    uint8_t kind, flags;
    uint16_t space_bytes, name_bytes, second_bytes;
    uint64_t offset, old_len;
    uint32_t brings, returns;
    const uint8_t *space, *name, *second, *bytes;
} FakeOp;

/* The operations of a request, which must be as the protocol has it; owned: g_free. */
static inline FakeOp *fake_ops(const FakeRequest *r, uint32_t *count)
{
    const uint8_t *at = r->message->data, *end = at + r->message->len;
    const uint8_t *bulk = r->bulk->data, *bulk_end = bulk + r->bulk->len;
    FakeOp *ops;

    g_assert(r->frame.op == VARJFS_WIRE_BATCH);
    g_assert(r->message->len >= VARJFS_WIRE_BATCH_HEAD_BYTES);
    g_assert(r->message->len <= VARJFS_WIRE_BATCH_MESSAGE_MAX);
    g_assert(r->bulk->len <= VARJFS_WIRE_BATCH_BULK_MAX);
    g_assert((at[0] & ~VARJFS_WIRE_BATCH_FLAGS) == 0);
    g_assert(at[1] <= VARJFS_WIRE_SAFETY_STORAGE && at[2] == 0 && at[3] == 0);
    *count = vj_le32_get(at + 4);
    g_assert(*count >= 1 && *count <= VARJFS_WIRE_OPS_MAX);
    ops = g_new0(FakeOp, *count);
    at += VARJFS_WIRE_BATCH_HEAD_BYTES;
    for (uint32_t i = 0; i < *count; i++) {
        FakeOp *op = &ops[i];

        g_assert((size_t)(end - at) >= VARJFS_WIRE_OP_HEAD_BYTES);
        op->kind = at[0];
        op->flags = at[1];
        op->space_bytes = vj_le16_get(at + 2);
        op->name_bytes = vj_le16_get(at + 4);
        op->second_bytes = vj_le16_get(at + 6);
        op->offset = vj_le64_get(at + 8);
        op->old_len = vj_le64_get(at + 16);
        op->brings = vj_le32_get(at + 24);
        op->returns = vj_le32_get(at + 28);
        at += VARJFS_WIRE_OP_HEAD_BYTES;
        g_assert(end - at >= op->space_bytes + op->name_bytes + op->second_bytes);
        op->space = at;
        op->name = at + op->space_bytes;
        op->second = op->name + op->name_bytes;
        at += op->space_bytes + op->name_bytes + op->second_bytes;
        g_assert((size_t)(bulk_end - bulk) >= op->brings);
        op->bytes = bulk;
        bulk += op->brings;
    }
    g_assert(at == end && bulk == bulk_end);
    return ops;
}

static inline void fake_put(uint8_t *dst, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        dst[i] = (uint8_t)(number >> 8 * i);
    }
}

static inline void fake_put_result(GByteArray *message, uint32_t status, uint64_t bytes)
{
    uint8_t result[VARJFS_WIRE_RESULT_BYTES];

    fake_put(result, status, 4);
    fake_put(result + 4, bytes, 8);
    g_byte_array_append(message, result, sizeof result);
}

#define FAKE_VALUE "value"

/* Bytes of an object, by their offset. */
static inline uint8_t fake_byte(uint64_t offset)
{
    return (uint8_t)(offset * 7 + offset / 251);
}

/*
 * An answer that could be: objects have bytes by fake_byte and no end, a key FAKE_VALUE;
 * of a name that begins with "!" the status is its second byte.  STOP is obeyed.
 */
static inline void fake_answer(FakeDaemon *d, const FakeRequest *r)
{
    g_autoptr(GByteArray) message = g_byte_array_new();
    g_autoptr(GByteArray) bulk = g_byte_array_new();
    uint32_t count;
    g_autofree FakeOp *ops = fake_ops(r, &count);
    bool stopped = false;

    for (uint32_t i = 0; i < count; i++) {
        const FakeOp *op = &ops[i];
        uint8_t status[VARJFS_WIRE_STATUS_BYTES + 3] = {0};
        uint64_t len = op->returns;

        if (stopped || op->name[0] == '!') {
            fake_put_result(message, stopped ? VJ_WIRE_CANCELED : op->name[1], 0);
            stopped = (r->message->data[0] & VARJFS_WIRE_STOP) != 0;
        } else if (op->kind == VARJFS_WIRE_OBJECT_READ) {
            for (uint64_t at = 0; at < len; at++) {
                uint8_t byte = fake_byte(op->offset + at);

                g_byte_array_append(bulk, &byte, 1);
            }
            fake_put_result(message, 0, len);
        } else if (op->kind == VARJFS_WIRE_KEY_GET ||
                   op->kind == VARJFS_WIRE_ATTRIBUTE_GET) {
            bool fits = len >= strlen(FAKE_VALUE);

            fake_put_result(message, fits ? 0 : VARJFS_WIRE_RANGE, strlen(FAKE_VALUE));
            g_byte_array_append(bulk, (const guint8 *)FAKE_VALUE,
                                fits ? strlen(FAKE_VALUE) : 0);
        } else if (op->kind == VARJFS_WIRE_OBJECT_STATUS) {
            fake_put(status, 1000, 8);
            fake_put(status + 8, 500, 8);
            fake_put(status + 16, 2, 8);
            fake_put(status + 24, 1, 8);
            memcpy(status + 32, "lz4", 3);
            fake_put_result(message, 0, sizeof status);
            g_byte_array_append(bulk, status, sizeof status);
        } else {
            fake_put_result(message, 0, op->offset);
        }
    }
    fake_reply(d, r, 0, message, bulk);
}

/* One page of three entries, "name0" and so on; items have FAKE_VALUE for each
 * attribute. */
static inline void fake_page(FakeDaemon *d, const FakeRequest *r)
{
    g_autoptr(GByteArray) message = g_byte_array_new();
    g_autoptr(GByteArray) bulk = g_byte_array_new();

    g_byte_array_append(message, (const guint8 *)"\0\3\0\0\0", 5);
    for (unsigned i = 0; i < 3; i++) {
        unsigned count = vj_le16_get(r->message->data + 18);
        const char head[] = {5,   0,   (char)(count * 9), 0, 0, 0, 'n', 'a',
                             'm', 'e', (char)('0' + i)};

        g_byte_array_append(bulk, (const guint8 *)head, sizeof head);
        for (unsigned n = 0; n < count; n++) {
            g_byte_array_append(bulk, (const guint8 *)"\5\0\0\0" FAKE_VALUE, 9);
        }
    }
    fake_reply(d, r, 0, message, bulk);
}

/* A step of a deletion, of four. */
static inline void fake_empty(FakeDaemon *d, const FakeRequest *r)
{
    g_autoptr(GByteArray) message = g_byte_array_new();
    uint8_t reply[VARJFS_WIRE_EMPTY_REPLY_BYTES] = {0, 10};

    reply[0] = ++d->steps % 4 == 0 ? VARJFS_WIRE_EMPTY_GONE : VARJFS_WIRE_EMPTY_MORE;
    g_byte_array_append(message, reply, sizeof reply);
    fake_reply(d, r, 0, message, NULL);
}

/* Answers all until the library closes. */
static inline void fake_serve(FakeDaemon *d)
{
    FakeRequest r;

    while (fake_next(d, &r)) {
        if (r.frame.op == VARJFS_WIRE_BATCH) {
            fake_answer(d, &r);
        } else if (r.frame.op == VARJFS_WIRE_ITERATE) {
            fake_page(d, &r);
        } else if (r.frame.op == VARJFS_WIRE_EMPTY) {
            fake_empty(d, &r);
        } else if (r.frame.op == VARJFS_WIRE_SYNC) {
            fake_reply(d, &r, 0, NULL, NULL);
        } else {
            g_assert(r.frame.op == VJ_OP_CANCEL);
        }
        fake_request_clear(&r);
    }
}

/* ---- connections ------------------------------------------------------------------- */

static inline void fake_hello(FakeDaemon *d, uint32_t status)
{
    g_autoptr(GByteArray) message = g_byte_array_new();
    FakeRequest r;
    uint8_t reply[55] = {1};
    uint64_t features = (d->is_bare ? VJ_FEATURE_BARE_BATCH : 0) |
                        (d->shares ? VJ_FEATURE_SHARE : 0) |
                        (d->calls ? VJ_FEATURE_MAILBOX : 0);

    fake_put(reply + 2, features, 8);

    g_assert(fake_next(d, &r));
    g_assert(r.frame.op == VJ_OP_HELLO && r.bulk->len == 0);
    g_assert(r.message->data[12] == VARJFS_WIRE_ROLE_CLIENT);
    if (status == 0) {
        g_byte_array_append(message, reply, sizeof reply);
    } else {
        g_byte_array_append(message, (const guint8 *)"because\n", 8);
    }
    fake_reply(d, &r, status, message, NULL);
    fake_request_clear(&r);
}

static inline void fake_accept(FakeDaemon *d)
{
    struct timeval timeout = {.tv_sec = 30};

    d->fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);
    g_assert(d->fd >= 0);
    if (d->credentials != NULL) {
        d->fd = fake_tls_start(&d->tls, d->credentials, d->fd);
    }
    setsockopt(d->fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(d->fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
}

static inline void fake_close(FakeDaemon *d)
{
    close(d->fd);
    if (d->credentials != NULL) {
        g_thread_join(d->tls.thread);
    }
}

static inline gpointer fake_run(gpointer opaque)
{
    FakeDaemon *d = opaque;

    fake_accept(d);
    d->script(d);
    fake_close(d);
    return NULL;
}

static inline bool fake_find_key(void *opaque, const char *identity, VjKey256 *out)
{
    const FakeDaemon *d = opaque;

    *out = d->secret;
    return strcmp(identity, "volume") == 0;
}

static inline void fake_listen_tls(FakeDaemon *d, const char *directory)
{
    VjCredentialsFiles files = {.key = NULL};
    unsigned port;

    d->directory = g_strdup(directory);
    d->key = g_build_filename(directory, "key", NULL);
    assert_true(vj_key_write_new(AT_FDCWD, d->key, NULL));
    assert_true(vj_key_load(AT_FDCWD, d->key, &d->secret, NULL));
    assert_true(vj_credentials_load_server(AT_FDCWD, &files, fake_find_key, d,
                                           &d->credentials, NULL));
    d->listener = fake_tls_listen(&port);
    d->address = g_strdup_printf("tls:127.0.0.1:%u", port);
}

static inline void fake_listen(FakeDaemon *d, const char *directory)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    d->directory = g_strdup(directory);
    d->address = g_strdup_printf("unix:%s/varjfsd.sock", directory);
    g_strlcpy(at.sun_path, d->address + strlen("unix:"), sizeof at.sun_path);
    d->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(d->listener >= 0);
    assert_int_equal(bind(d->listener, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(d->listener, 16), 0);
}

static inline void fake_start(FakeDaemon *d, FakeScript *script)
{
    g_autofree char *directory = vj_test_make_dir();

#ifdef FAKE_TLS
    fake_listen_tls(d, directory);
#else
    fake_listen(d, directory);
#endif
    d->script = script;
    d->thread = g_thread_new("fake-daemon", fake_run, d);
}

static inline void fake_stop(FakeDaemon *d)
{
    g_thread_join(d->thread);
    close(d->listener);
    vj_credentials_unref(d->credentials);
    g_free(d->key);
    vj_test_remove_dir(d->directory);
    g_free(d->address);
}

static inline int fake_open(FakeDaemon *d, int timeout_ms, varjfs **out)
{
    struct varjfs_options o = {
        .size = sizeof o, .volume = "volume", .timeout_ms = timeout_ms, .key = d->key};

    return varjfs_open(d->address, &o, out);
}

#endif
