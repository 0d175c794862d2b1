/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * What a daemon sends to libvarjfs, from any bytes.  Each input is tried as it is, and as
 * frames whose lengths fit, whose tags are those of the requests, in turn, and whose
 * checksums are right.  Whatever comes, each call says 0 or one error, lengths stay
 * within what was asked for, and names go on in order.
 */
#include "../../lib/client/client-private.h"
#include "fuzz.h"
#include "rpc/frame-format.h"

#include <sys/socket.h>
#include <unistd.h>

/* Fits the buffer of a socket. */
#define INPUT_MAX 32768u
#define READ_BYTES 64u
#define VALUE_BYTES 16u

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

/* A few steps, however many the other side wants. */
static int is_enough(void *opaque, uint64_t gone)
{
    unsigned *steps = opaque;

    g_assert(gone <= (uint64_t)VARJFS_WIRE_EMPTY_MAX * ++*steps);
    return *steps == 4;
}

static void run(const uint8_t *data, size_t len)
{
    unsigned steps = 0;
    int ends[2];
    varjfs *v;

    g_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    g_assert(send(ends[1], data, len, MSG_NOSIGNAL) == (ssize_t)len);
    g_assert(shutdown(ends[1], SHUT_WR) == 0);
    v = vjc_connection_new(ends[0], NULL, 10000);
    g_assert(v != NULL);
    check_batch(v);
    check_iterator(v, true);
    check_iterator(v, false);
    check_items(v);
    g_assert(varjfs_namespace_delete(v, VARJFS_OBJECTS, "s", is_enough, &steps) <= 0);
    g_assert(varjfs_sync(v) <= 0);
    g_assert(varjfs_close(v) <= 0);
    close(ends[1]);
}

/* The same as frames that the library believes, each to the request that is its turn. */
static void run_frames(const uint8_t *data, size_t len)
{
    g_autoptr(GByteArray) all = g_byte_array_new();
    uint64_t tag = 1;

    while (len >= VJ_FRAME_HEAD_BYTES) {
        uint8_t head[VJ_FRAME_HEAD_BYTES];
        const uint8_t *body = data + VJ_FRAME_HEAD_BYTES;
        size_t left = len - VJ_FRAME_HEAD_BYTES, body_bytes;
        VjFrame frame = {.flags = VJ_FRAME_REPLY, .tag = tag++};

        frame.op = vj_le16_get(data + 6);
        frame.status = vj_le32_get(data + 16);
        frame.message_bytes = (uint32_t)MIN(vj_le32_get(data + 20), left);
        frame.bulk_bytes =
            (uint32_t)MIN(vj_le32_get(data + 24), left - frame.message_bytes);
        body_bytes = (size_t)frame.message_bytes + frame.bulk_bytes;
        frame.body_checksum = body_bytes > 0 ? vj_checksum64(body, body_bytes) : 0;
        vj_frame_encode(&frame, head);
        g_byte_array_append(all, head, sizeof head);
        if (body_bytes > 0) {
            g_byte_array_append(all, body, (guint)body_bytes);
        }
        data = body + body_bytes;
        len = left - body_bytes;
    }
    run(all->data, all->len);
}

FUZZ_MUTATIONS(400);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    len = MIN(len, INPUT_MAX);
    run(data, len);
    run_frames(data, len);
    return 0;
}
