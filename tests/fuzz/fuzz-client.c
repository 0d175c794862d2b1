/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * What a daemon sends to libvarjfs, from any bytes.  Each input is tried as it is, and as
 * frames whose lengths fit, whose tags are those of the requests, in turn, and whose
 * checksums are right; these by the socket, and by a mailbox and an area.  Whatever
 * comes, each call says 0 or one error, lengths stay within what was asked for, and names
 * go on in order.
 */
#include "../../lib/client/client-private.h"
#include "fuzz.h"
#include "rpc/frame-format.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Fits the buffer of a socket. */
#define INPUT_MAX 32768u
#define READ_BYTES 64u
#define VALUE_BYTES 16u
/* So long that its reply stands in the area, if there is one. */
#define LONG_BYTES 40000u
#define AREA_BYTES ((size_t)VARJFS_WIRE_AREA_SLOTS * VARJFS_WIRE_AREA_SLOT_BYTES)

/* All of what is returned is read. */
static volatile unsigned sum;

static void check_batch(varjfs *v)
{
    struct varjfs_object_options options = {.size = sizeof options, .transform = "lz4"};
    struct varjfs_object_status status = {.size = sizeof status};
    uint8_t bytes[READ_BYTES + 1], value[VALUE_BYTES + 1];
    size_t got = 0, len = 0;
    const struct varjfs_attribute given = {"a", "v", 1};
    size_t attribute_len = 0;
    int results[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    varjfs_batch *b;

    bytes[READ_BYTES] = value[VALUE_BYTES] = 0x55;
    g_assert(varjfs_batch_new(v, NULL, &b) == 0);
    g_assert(varjfs_object_create(b, "s", "o", &options, &results[0]) == 0);
    g_assert(varjfs_object_write(b, "s", "o", "abc", 3, 0, 0, &results[1]) == 0);
    g_assert(varjfs_object_read(b, "s", "o", bytes, READ_BYTES, 0, &got, &results[2]) ==
             0);
    g_assert(varjfs_object_status(b, "s", "o", &status, &results[3]) == 0);
    g_assert(varjfs_kv_get(b, "s", "k", 1, value, VALUE_BYTES, &len, &results[4]) == 0);
    g_assert(varjfs_item_create(b, "s", "i", NULL, &given, 1, &results[5]) == 0);
    g_assert(varjfs_attribute_get(b, "s", "i", "a", NULL, 0, &attribute_len,
                                  &results[6]) == 0);
    g_assert(varjfs_object_rename(b, "s", "i", "j", 0, &results[7]) == 0);
    varjfs_batch_execute(b);
    for (size_t i = 0; i < 8; i++) {
        g_assert(results[i] <= 0);
        g_assert(strlen(varjfs_strerror(results[i])) > 0);
    }
    g_assert(attribute_len <= VARJFS_VALUE_MAX);
    g_assert(got <= READ_BYTES && len <= VARJFS_VALUE_MAX);
    g_assert(results[4] != 0 || len <= VALUE_BYTES);
    g_assert(results[4] != -ERANGE || len == 0 || len > VALUE_BYTES);
    g_assert(results[3] != 0 || strnlen(status.transform, 128) < 128);
    g_assert(bytes[READ_BYTES] == 0x55 && value[VALUE_BYTES] == 0x55);
}

static void check_iterator(varjfs *v, bool keys)
{
    uint8_t last[VARJFS_NAME_MAX];
    size_t last_len = 0;
    struct varjfs_entry entry = {.size = sizeof entry};
    varjfs_iterator *i;
    int rc;

    rc = keys ? varjfs_kv_iterate(v, "s", "n", 1, &i)
              : varjfs_object_iterate(v, NULL, NULL, &i);
    g_assert(rc == 0);
    while ((rc = varjfs_iterator_next(i, &entry)) == 1) {
        const uint8_t *name = entry.name;

        g_assert(entry.name_len > 0 && entry.name_len <= VARJFS_NAME_MAX);
        g_assert(name[entry.name_len] == '\0');
        g_assert(keys ? name[0] == 'n' : strlen(entry.name) == entry.name_len);
        g_assert(entry.len <= VARJFS_VALUE_MAX);
        g_assert(vj_slice_compare(vj_slice(name, entry.name_len),
                                  vj_slice(last, last_len)) > 0);
        memcpy(last, name, entry.name_len);
        last_len = entry.name_len;
    }
    g_assert(rc <= 0);
}

static void check_items(varjfs *v)
{
    const char *const names[] = {"a", "b"};
    struct varjfs_entry entry = {.size = sizeof entry};
    varjfs_iterator *i;

    g_assert(varjfs_item_iterate(v, "s", NULL, names, 2, &i) == 0);
    while (varjfs_iterator_next(i, &entry) == 1) {
        g_assert(entry.attribute_count == 2 && entry.value == NULL);
        for (size_t n = 0; n < 2; n++) {
            const struct varjfs_attribute *a = &entry.attributes[n];

            g_assert(strcmp(a->name, names[n]) == 0 && a->len <= VARJFS_VALUE_MAX);
            g_assert(a->value == NULL || a->len <= VARJFS_ITERATE_VALUE_MAX);
            for (size_t at = 0; a->value != NULL && at < a->len; at++) {
                sum += ((const uint8_t *)a->value)[at];
            }
        }
    }
    g_assert(varjfs_attribute_iterate(v, "s", "i", "p", &i) == 0);
    while (varjfs_iterator_next(i, &entry) == 1) {
        g_assert(entry.name_len <= VARJFS_ATTRIBUTE_NAME_MAX &&
                 strlen(entry.name) == entry.name_len && entry.len <= VARJFS_VALUE_MAX);
    }
}

static void check_long_read(varjfs *v)
{
    static uint8_t bytes[LONG_BYTES + 1];
    size_t got = 0;
    varjfs_batch *b;

    bytes[LONG_BYTES] = 0x55;
    g_assert(varjfs_batch_new(v, NULL, &b) == 0);
    g_assert(varjfs_object_read(b, "s", "o", bytes, LONG_BYTES, 0, &got, NULL) == 0);
    varjfs_batch_execute(b);
    varjfs_batch_free(b);
    g_assert(got <= LONG_BYTES && bytes[LONG_BYTES] == 0x55);
}

/* A few steps, however many the other side wants. */
static int is_enough(void *opaque, uint64_t gone)
{
    unsigned *steps = opaque;

    g_assert(gone <= (uint64_t)VARJFS_WIRE_EMPTY_MAX * ++*steps);
    return *steps == 4;
}

static void check_all(varjfs *v)
{
    unsigned steps = 0;

    check_batch(v);
    check_iterator(v, true);
    check_iterator(v, false);
    check_items(v);
    g_assert(varjfs_namespace_delete(v, VARJFS_OBJECTS, "s", is_enough, &steps) <= 0);
    g_assert(varjfs_sync(v) <= 0);
    check_long_read(v);
    g_assert(varjfs_close(v) <= 0);
}

static varjfs *connect_to(int ends[2])
{
    varjfs *v;

    g_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    v = vjc_connection_new(ends[0], NULL, 10000);
    g_assert(v != NULL);
    return v;
}

/* All at once. */
static void run_bytes(const uint8_t *data, size_t len)
{
    int ends[2];
    varjfs *v = connect_to(ends);

    g_assert(send(ends[1], data, len, MSG_NOSIGNAL) == (ssize_t)len);
    g_assert(shutdown(ends[1], SHUT_WR) == 0);
    check_all(v);
    close(ends[1]);
}

/* ---- frames, each to the request that is its turn ---------------------------------- */

/* Takes the next frame off an input: what the library believes as the reply to @tag.
 * False: there is none. */
static bool take_frame(const uint8_t **data, size_t *len, uint64_t tag, GByteArray *to)
{
    const uint8_t *body = *data + VJ_FRAME_HEAD_BYTES;
    uint8_t head[VJ_FRAME_HEAD_BYTES];
    VjFrame frame = {.flags = VJ_FRAME_REPLY, .tag = tag};
    size_t left, bytes;

    if (*len < VJ_FRAME_HEAD_BYTES) {
        return false;
    }
    left = *len - VJ_FRAME_HEAD_BYTES;
    frame.op = vj_le16_get(*data + 6);
    frame.status = vj_le32_get(*data + 16);
    frame.message_bytes = (uint32_t)MIN(vj_le32_get(*data + 20), left);
    frame.bulk_bytes = (uint32_t)MIN(vj_le32_get(*data + 24), left - frame.message_bytes);
    bytes = (size_t)frame.message_bytes + frame.bulk_bytes;
    frame.body_checksum = bytes > 0 ? vj_checksum64(body, bytes) : 0;
    vj_frame_encode(&frame, head);
    g_byte_array_append(to, head, sizeof head);
    if (bytes > 0) {
        g_byte_array_append(to, body, (guint)bytes);
    }
    *data = body + bytes;
    *len = left - bytes;
    return true;
}

/* The daemon: it answers each request where it came. */
typedef struct Peer {
    int fd;
    bool has_memory; /* an area, and the mailbox */
    uint8_t *mailbox;
    const uint8_t *data; /* of the input, that are left */
    size_t len;
} Peer;

static uint32_t *word(const Peer *p, size_t at)
{
    return (uint32_t *)(void *)(p->mailbox + at);
}

static bool change_state(const Peer *p, uint32_t from, uint32_t to)
{
    return __atomic_compare_exchange_n(word(p, VARJFS_WIRE_MAILBOX_STATE_AT), &from, to,
                                       false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* False: the input has no more frames. */
static bool answer_mailbox(Peer *p)
{
    const uint8_t *request = p->mailbox + VARJFS_WIRE_MAILBOX_REQUEST_AT;
    g_autoptr(GByteArray) frame = g_byte_array_new();

    if (!take_frame(&p->data, &p->len, vj_le64_get(request + 8), frame)) {
        return false;
    }
    memcpy(p->mailbox + VARJFS_WIRE_MAILBOX_REPLY_AT, frame->data,
           MIN(frame->len, VARJFS_WIRE_MAILBOX_FRAME_MAX));
    if (!change_state(p, VARJFS_WIRE_MAILBOX_TAKEN, VARJFS_WIRE_MAILBOX_ANSWERED)) {
        send(p->fd, frame->data, frame->len, MSG_NOSIGNAL);
    }
    return true;
}

/* False: the end, of either side. */
static bool answer_socket(Peer *p)
{
    g_autoptr(GByteArray) frame = g_byte_array_new();
    uint8_t request[65536];
    ssize_t got = recv(p->fd, request, sizeof request, p->has_memory ? MSG_DONTWAIT : 0);

    if (got < 0) {
        sched_yield();
        return errno == EAGAIN;
    }
    if (got < (ssize_t)VJ_FRAME_HEAD_BYTES) {
        return false;
    }
    if (!take_frame(&p->data, &p->len, vj_le64_get(request + 8), frame)) {
        return false;
    }
    send(p->fd, frame->data, frame->len, MSG_NOSIGNAL);
    return true;
}

static gpointer peer_run(gpointer opaque)
{
    Peer *p = opaque;
    bool goes_on = true;

    while (goes_on) {
        if (p->has_memory &&
            change_state(p, VARJFS_WIRE_MAILBOX_CALLED, VARJFS_WIRE_MAILBOX_TAKEN)) {
            goes_on = answer_mailbox(p);
        } else {
            goes_on = answer_socket(p);
        }
    }
    shutdown(p->fd, SHUT_RDWR);
    return NULL;
}

/* Of @fd; -1: of no file. */
static uint8_t *map(int fd, size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);

    g_assert(at != MAP_FAILED);
    return at;
}

static void give_memory(varjfs *v, Peer *p)
{
    int fd = memfd_create("mailbox", MFD_CLOEXEC);
    uint8_t *area = map(-1, AREA_BYTES);

    g_assert(fd >= 0 && ftruncate(fd, VARJFS_WIRE_MAILBOX_BYTES) == 0);
    p->has_memory = true;
    p->mailbox = map(fd, VARJFS_WIRE_MAILBOX_BYTES);
    __atomic_store_n(word(p, VARJFS_WIRE_MAILBOX_LISTENS_AT), 1, __ATOMIC_SEQ_CST);
    memcpy(area, p->data, p->len);
    v->area = area; /* its own now, as this is: */
    v->mailbox = map(fd, VARJFS_WIRE_MAILBOX_BYTES);
    v->trust = 1;
    close(fd);
}

static void run_frames(const uint8_t *data, size_t len, bool has_memory)
{
    int ends[2];
    varjfs *v = connect_to(ends);
    Peer peer = {.fd = ends[1], .data = data, .len = len};
    GThread *thread;

    if (has_memory) {
        give_memory(v, &peer);
    }
    thread = g_thread_new("peer", peer_run, &peer);
    check_all(v);
    g_thread_join(thread);
    if (has_memory) {
        munmap(peer.mailbox, VARJFS_WIRE_MAILBOX_BYTES);
    }
    close(ends[1]);
}

FUZZ_MUTATIONS(150);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    len = MIN(len, INPUT_MAX);
    run_bytes(data, len);
    run_frames(data, len, false);
    run_frames(data, len, true);
    return 0;
}
