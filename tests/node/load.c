/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * load.c - a client that remembers what a node has acknowledged
 *
 *   load run ADDRESS RECORD [COUNT]    puts objects and applies keys, in four threads,
 *                                      until one fails or COUNT are done by each; what
 *                                      was acknowledged as durable goes into RECORD.
 *                                      Prints how each thread ended.
 *   load verify ADDRESS RECORD         all of it is there
 *   load delete ADDRESS RECORD         removes half of it, and takes it out of RECORD
 *
 * RECORD has lines "o ID BYTES" and "k ID BYTES".  What an object or value has follows
 * from its id.
 */
#include "base/base.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rpc/messages.h"
#include "rpc/rpc.h"

#define VOLUME "load"
#define THREADS 4u
#define KEY_THREAD 0u
#define OBJECT_BYTES_MAX 100000u
#define VALUE_BYTES_MAX 3000u
#define DEADLINE_US ((int64_t)60 * 1000 * 1000)

static VjRpcClient *clients[2]; /* of objects, of keys */
static VjMutex lock = VJ_MUTEX_INIT(VJ_RANK_BASE, "load");
static FILE *record; /* guarded by lock */
static uint64_t first_id, count = UINT64_MAX;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "load: %s: %s\n", what, why);
    exit(1);
}

static VjRpcClient *connect_as(const char *address, uint8_t role)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(VjCredentials) credentials = NULL;
    g_autoptr(GByteArray) hello = g_byte_array_new();
    VjHello h = {.version_min = 1,
                 .version_max = VJ_WIRE_VERSION,
                 .role = role,
                 .flags = VJ_HELLO_CREATE,
                 .uuid = {1},
                 .volume = vj_slice(VOLUME, strlen(VOLUME))};
    VjRpcClient *client;

    if (!vj_credentials_load(AT_FDCWD, &(VjCredentialsFiles){.insecure = true},
                             &credentials, &error)) {
        die("credentials", error->message);
    }
    vj_hello_encode(hello, &h);
    client = vj_rpc_client_new(
        &(VjRpcClientConfig){.address = address,
                             .credentials = credentials,
                             .hello = vj_slice(hello->data, hello->len)},
        &error);
    if (client == NULL) {
        die(address, error->message);
    }
    return client;
}

static void fill(uint64_t id, uint8_t *dst, size_t len)
{
    VjRng rng;

    vj_rng_init(&rng, id);
    vj_rng_bytes(&rng, dst, len);
}

static uint32_t bytes_of(uint64_t id, uint32_t most)
{
    return 1 + (uint32_t)(id * 2654435761u % most);
}

/* The first time it waits for the connection; later a lost one ends the load. */
static VjRpcCall *call_new(uint16_t op, bool waits)
{
    VjRpcCall *call = vj_rpc_call_new(op);

    call->message = g_byte_array_new();
    call->bulk_max = VJ_RPC_BULK_MAX;
    call->deadline_us = vj_clock_mono_us() + DEADLINE_US;
    call->waits_for_connection = waits;
    return call;
}

static void add_bulk(VjRpcCall *call, const void *bytes, size_t len)
{
    call->bulk = vj_buf_new_copy(bytes, len);
    call->bulk_bytes = (uint32_t)len;
    if (call->bulk == NULL) {
        die("memory", "short");
    }
}

static int run_and_unref(VjRpcClient *client, VjRpcCall *call)
{
    int rc = vj_rpc_run(client, call);

    vj_rpc_call_unref(call);
    return rc;
}

static int put(uint64_t id, bool waits)
{
    VjRpcCall *call = call_new(VJ_OP_PUT, waits);
    uint8_t bytes[OBJECT_BYTES_MAX];
    uint32_t len = bytes_of(id, OBJECT_BYTES_MAX);

    vj_wire_put_encode(call->message, &(VjWirePut){.object = {.id = id, .nonce = id},
                                                   .flags = VJ_WIRE_PUT_DURABLE});
    fill(id, bytes, len);
    add_bulk(call, bytes, len);
    return run_and_unref(clients[0], call);
}

static VjWireKey key_of(uint64_t id, uint8_t name[8])
{
    vj_be64_set(name, id);
    return (VjWireKey){.space = 1, .key = vj_slice(name, 8)};
}

static int apply(uint64_t id, bool is_delete, bool waits)
{
    VjRpcCall *call = call_new(VJ_OP_APPLY, waits);
    g_autoptr(GArray) checks = g_array_new(FALSE, FALSE, sizeof(VjWireCheck));
    g_autoptr(GByteArray) changes = g_byte_array_new();
    uint8_t name[8], value[VALUE_BYTES_MAX];
    uint32_t len = bytes_of(id, VALUE_BYTES_MAX);
    VjWireChange change = {.key = key_of(id, name), .is_delete = is_delete};

    fill(id, value, len);
    change.value = vj_slice(value, is_delete ? 0 : len);
    vj_wire_change_encode(changes, &change);
    vj_wire_apply_encode(call->message,
                         &(VjWireApply){.change_count = 1, .checks = checks});
    add_bulk(call, changes->data, changes->len);
    return run_and_unref(clients[1], call);
}

static void note(char kind, uint64_t id)
{
    vj_mutex_lock(&lock);
    fprintf(record, "%c %" PRIu64 " %u\n", kind, id,
            bytes_of(id, kind == 'o' ? OBJECT_BYTES_MAX : VALUE_BYTES_MAX));
    fflush(record);
    vj_mutex_unlock(&lock);
}

static gpointer work(gpointer opaque)
{
    unsigned thread = GPOINTER_TO_UINT(opaque);
    bool of_keys = thread == KEY_THREAD;
    int rc = 0;

    for (uint64_t i = 0; rc == 0 && i < count; i++) {
        uint64_t id = first_id + i * THREADS + thread;

        rc = of_keys ? apply(id, false, i == 0) : put(id, i == 0);
        if (rc == 0) {
            note(of_keys ? 'k' : 'o', id);
        }
    }
    return GINT_TO_POINTER(rc);
}

/* Ids go on behind those of the record. */
static void run(void)
{
    GThread *threads[THREADS];
    char kind;
    uint64_t id;
    unsigned bytes;

    while (fscanf(record, "%c %" SCNu64 " %u\n", &kind, &id, &bytes) == 3) {
        first_id = MAX(first_id, id + 1);
    }
    /* Beyond those that were in flight when the last load ended, too. */
    first_id += (uint64_t)THREADS * 2;
    for (unsigned i = 0; i < THREADS; i++) {
        threads[i] = g_thread_new("load", work, GUINT_TO_POINTER(i));
    }
    for (unsigned i = 0; i < THREADS; i++) {
        int rc = GPOINTER_TO_INT(g_thread_join(threads[i]));

        printf("%s %s\n", i == KEY_THREAD ? "keys" : "objects",
               rc == 0 ? "done" : g_strerror(-rc));
    }
}

static bool has_object(uint64_t id, uint32_t len)
{
    g_autoptr(VjRpcCall) call = call_new(VJ_OP_GET, true);
    uint8_t bytes[OBJECT_BYTES_MAX];

    vj_wire_get_encode(call->message,
                       &(VjWireGet){.object = {.id = id, .nonce = id}, .len = len});
    fill(id, bytes, len);
    return vj_rpc_run(clients[0], call) == 0 && call->reply_bulk_bytes == len &&
           memcmp(call->reply_bulk->data, bytes, len) == 0;
}

static bool has_key(uint64_t id, uint32_t len)
{
    g_autoptr(VjRpcCall) call = call_new(VJ_OP_GET_MANY, true);
    uint8_t name[8], value[VALUE_BYTES_MAX];
    VjWireKey key = key_of(id, name);
    VjWireItem item;
    VjReader r;

    vj_wire_keys_encode(call->message, &key, 1);
    fill(id, value, len);
    if (vj_rpc_run(clients[1], call) != 0 || call->reply_bulk == NULL) {
        return false;
    }
    r = vj_reader(vj_slice(call->reply_bulk->data, call->reply_bulk_bytes));
    return vj_wire_item_decode(&r, &item) == 0 && item.value.len == len &&
           memcmp(item.value.data, value, len) == 0;
}

static int verify(void)
{
    unsigned missing = 0, seen = 0, bytes;
    uint64_t id;
    char kind;

    while (fscanf(record, "%c %" SCNu64 " %u\n", &kind, &id, &bytes) == 3) {
        seen++;
        if (!(kind == 'o' ? has_object : has_key)(id, bytes)) {
            printf("%c %" PRIu64 " was acknowledged, and is not there\n", kind, id);
            missing++;
        }
    }
    printf("%u of %u are there\n", seen - missing, seen);
    return missing == 0 && seen > 0 ? 0 : 1;
}

static int remove_one(uint64_t id)
{
    VjRpcCall *call = call_new(VJ_OP_REMOVE, true);

    vj_wire_objects_encode(call->message, &(VjWireObject){.id = id, .nonce = id}, 1);
    return run_and_unref(clients[0], call);
}

static int delete_half(const char *path)
{
    g_autoptr(GString) rest = g_string_new(NULL);
    unsigned seen = 0, bytes;
    uint64_t id;
    char kind;

    while (fscanf(record, "%c %" SCNu64 " %u\n", &kind, &id, &bytes) == 3) {
        int rc = seen++ % 2 != 0 ? 1
                 : kind == 'o'   ? remove_one(id)
                                 : apply(id, true, true);

        if (rc < 0) {
            printf("%c %" PRIu64 ": %s\n", kind, id, g_strerror(-rc));
            return 1;
        }
        if (rc > 0) {
            g_string_append_printf(rest, "%c %" PRIu64 " %u\n", kind, id, bytes);
        }
    }
    return g_file_set_contents(path, rest->str, -1, NULL) ? 0 : 1;
}

int main(int argc, char **argv)
{
    int status = 0;

    if (argc < 4) {
        die("usage", "load run|verify|delete ADDRESS RECORD [COUNT]");
    }
    count = argc > 4 ? g_ascii_strtoull(argv[4], NULL, 10) : UINT64_MAX;
    record = fopen(argv[3], "a+");
    if (record == NULL) {
        die(argv[3], g_strerror(errno));
    }
    rewind(record);
    clients[0] = connect_as(argv[2], VJ_ROLE_OBJECT);
    clients[1] = connect_as(argv[2], VJ_ROLE_META);
    if (strcmp(argv[1], "run") == 0) {
        run();
    } else if (strcmp(argv[1], "verify") == 0) {
        status = verify();
    } else {
        status = delete_half(argv[3]);
    }
    vj_rpc_client_free(clients[0]);
    vj_rpc_client_free(clients[1]);
    fclose(record);
    return status;
}
