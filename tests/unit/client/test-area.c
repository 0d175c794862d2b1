/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Long replies that stand in memory of the daemon's: which are asked for there, what is
 * taken from a daemon and what is not
 */
#include "fake-daemon.h"

#include <sys/mman.h>

#define SLOT ((size_t)VARJFS_WIRE_AREA_SLOT_BYTES)
#define AREA (VARJFS_WIRE_AREA_SLOTS * SLOT)

/* What a daemon does with SHARE. */
typedef enum Sharing {
    SHARES,
    SHARES_TWO_FDS,
    SHARES_NO_FD,
    SHARES_UNSEALED, /* it could end the program by a signal */
    SHARES_SHORT,
    REFUSES,
    SHARES_FD_OF_ANOTHER_KIND,
    SHARINGS,
} Sharing;

typedef struct Area {
    Sharing how;
    bool breaks; /* it sends a bulk besides */
    uint8_t *memory;
    unsigned shares, shared, unshared; /* requests that it got */
} Area;

static int make_area(Area *a)
{
    size_t bytes = a->how == SHARES_SHORT ? AREA - 1 : AREA;
    int fd = a->how == SHARES_FD_OF_ANOTHER_KIND
                 ? open("/dev/null", O_RDWR | O_CLOEXEC)
                 : memfd_create("area", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    g_assert(fd >= 0);
    if (a->how == SHARES_FD_OF_ANOTHER_KIND) {
        return fd;
    }
    g_assert(ftruncate(fd, (off_t)bytes) == 0);
    a->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    g_assert(a->memory != MAP_FAILED);
    if (a->how != SHARES_UNSEALED) {
        g_assert(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE) == 0);
    }
    return fd;
}

static void answer_share(FakeDaemon *d, Area *a, const FakeRequest *r)
{
    g_autoptr(GByteArray) bytes =
        fake_frame(r->frame.op, r->frame.tag, a->how == REFUSES ? VJ_WIRE_BUSY : 0,
                   vj_slice(NULL, 0), vj_slice(NULL, 0));
    int fd = make_area(a);

    g_assert(r->message->len == 0 && r->bulk->len == 0);
    a->shares++;
    fake_send_with_fds(d, bytes, fd,
                       a->how == SHARES_TWO_FDS                      ? 2
                       : a->how == SHARES_NO_FD || a->how == REFUSES ? 0
                                                                     : 1);
    close(fd);
}

/* The one read of the request: its bytes stand in the slot, and are in no bulk. */
static void answer_in_slot(FakeDaemon *d, const Area *a, FakeRequest *r, unsigned slot)
{
    g_autoptr(GByteArray) message = g_byte_array_new();
    g_autoptr(GByteArray) bulk = g_byte_array_new();
    uint8_t *at = a->memory + (slot - 1) * SLOT;
    uint32_t count;
    g_autofree FakeOp *ops = fake_ops(r, &count);

    for (uint32_t i = 0; i < count; i++) {
        g_assert(ops[i].kind == VARJFS_WIRE_OBJECT_READ);
        for (uint32_t n = 0; n < ops[i].returns; n++) {
            *at++ = fake_byte(ops[i].offset + n);
        }
        fake_put_result(message, 0, ops[i].returns);
    }
    g_assert(at <= a->memory + slot * SLOT);
    g_byte_array_append(bulk, (const guint8 *)"bulk", a->breaks ? 4 : 0);
    fake_reply(d, r, 0, message, bulk);
}

static void serve_area(FakeDaemon *d)
{
    Area *a = (Area *)(uintptr_t)d->data;
    FakeRequest r;

    fake_hello(d, 0);
    while (fake_next(d, &r)) {
        unsigned slot =
            r.frame.op == VARJFS_WIRE_BATCH ? vj_le16_get(r.message->data + 2) : 0;

        g_assert(slot <= VARJFS_WIRE_AREA_SLOTS && (slot == 0 || a->shares == 1));
        if (slot > 0) {
            memset(r.message->data + 2, 0, 2); /* fake_ops() knows no slots */
        }
        if (r.frame.op == VARJFS_WIRE_SHARE) {
            answer_share(d, a, &r);
        } else if (r.frame.op == VARJFS_WIRE_SYNC) {
            fake_reply(d, &r, 0, NULL, NULL);
        } else if (slot > 0) {
            a->shared++;
            answer_in_slot(d, a, &r, slot);
        } else {
            a->unshared++;
            fake_answer(d, &r);
        }
        fake_request_clear(&r);
    }
    if (a->memory != NULL) {
        munmap(a->memory, a->how == SHARES_SHORT ? AREA - 1 : AREA);
    }
}

/* Reads @len bytes, which are right; or the error. */
static int read_object(varjfs *v, size_t len, uint64_t offset)
{
    g_autofree uint8_t *bytes = g_malloc0(len);
    varjfs_batch *b;
    size_t got = 0;
    int rc;

    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(
        varjfs_object_read(b, "s", "o", bytes, len, (off_t)offset, &got, NULL), 0);
    rc = varjfs_batch_execute(b);
    varjfs_batch_free(b);
    if (rc != 0) {
        return rc;
    }
    assert_int_equal(got, len);
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != fake_byte(offset + i)) {
            fail_msg("byte %zu", i);
        }
    }
    return 0;
}

static void get_key(varjfs *v)
{
    g_autofree uint8_t *value = g_malloc(64 << 10);
    varjfs_batch *b;
    size_t got = 0;

    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_kv_get(b, "s", "k", 1, value, 64 << 10, &got, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(got, strlen(FAKE_VALUE));
    varjfs_batch_free(b);
}

static void open_area(FakeDaemon *d, Area *a, varjfs **v)
{
    *d = (FakeDaemon){.data = a, .is_bare = true, .shares = true};
    fake_start(d, serve_area);
    assert_int_equal(fake_open(d, 0, v), 0);
}

static void test_long_replies(void **state)
{
    Area a = {.how = SHARES};
    FakeDaemon d;
    varjfs *v;

    (void)state;
    open_area(&d, &a, &v);
    assert_int_equal(read_object(v, 4096, 3), 0);
    assert_int_equal(a.shares, 0); /* a short one needs no area */
    get_key(v);
    assert_int_equal(a.shares, 0); /* nor does a value that might be long */
    assert_int_equal(read_object(v, 10 * SLOT + 5, 7), 0);
    assert_int_equal(read_object(v, 64 << 10, 1), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
    assert_int_equal(a.shares, 1);
    assert_int_equal(a.shared, 10 + 1);
    assert_int_equal(a.unshared, 1 + 1 + 1); /* the 5 bytes behind the tenth */
}

/* More parts are on their way than there are slots: the others use the socket. */
static void test_more_than_slots(void **state)
{
    varjfs_batch *b[3];
    g_autofree uint8_t *bytes = g_malloc0(3 * 2 * SLOT);
    Area a = {.how = SHARES};
    FakeDaemon d;
    varjfs *v;

    (void)state;
    open_area(&d, &a, &v);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(varjfs_batch_new(v, NULL, &b[i]), 0);
        assert_int_equal(varjfs_object_read(b[i], "s", "o", bytes + i * 2 * SLOT,
                                            2 * SLOT, (off_t)(i * 2 * SLOT), NULL, NULL),
                         0);
        assert_int_equal(varjfs_batch_submit(b[i]), 0);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(varjfs_batch_wait(b[i]), 0);
    }
    for (size_t i = 0; i < 6 * SLOT; i++) {
        if (bytes[i] != fake_byte(i)) {
            fail_msg("byte %zu", i);
        }
    }
    assert_int_equal(read_object(v, 4 * SLOT, 0), 0); /* all slots are free again */
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
    assert_int_equal(a.shared, 4 + 4);
    assert_int_equal(a.unshared, 2);
}

/* Behind a long reply, a request that nobody waits for: it names no slot. */
static void test_deferred_afterwards(void **state)
{
    struct varjfs_semantics none = {.size = sizeof none};
    g_autofree uint8_t *bytes = g_malloc0(SLOT);
    Area a = {.how = SHARES};
    varjfs_batch *b;
    FakeDaemon d;
    varjfs *v;

    (void)state;
    open_area(&d, &a, &v);
    assert_int_equal(varjfs_semantics_template("temporary", &none), 0);
    assert_int_equal(varjfs_batch_new(v, &none, &b), 0);
    assert_int_equal(varjfs_object_read(b, "s", "o", bytes, SLOT, 0, NULL, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(varjfs_kv_put(b, "s", "k", 1, "v", 1, 0, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
    assert_int_equal(a.shared, 1);
    assert_int_equal(a.unshared, 1);
}

/* Whatever a daemon does with SHARE: bytes are right, it is asked once, and no descriptor
 * stays. */
static void test_daemons(void **state)
{
    (void)state;
    for (Sharing how = SHARES; how < SHARINGS; how++) {
        Area a = {.how = how};
        unsigned fds = fake_count_fds();
        bool is_used = how == SHARES || how == SHARES_TWO_FDS;
        FakeDaemon d;
        varjfs *v;

        open_area(&d, &a, &v);
        assert_int_equal(read_object(v, 3 * SLOT, 1), 0);
        assert_int_equal(read_object(v, 3 * SLOT, 2), 0);
        assert_int_equal(varjfs_close(v), 0);
        fake_stop(&d);
        assert_int_equal(a.shares, 1);
        assert_int_equal(a.shared, is_used ? 6 : 0);
        assert_int_equal(a.unshared, is_used ? 0 : 6);
        assert_int_equal(fake_count_fds(), fds);
    }
}

/* A bulk where none may be is no reply. */
static void test_bulk_besides(void **state)
{
    Area a = {.how = SHARES, .breaks = true};
    FakeDaemon d;
    varjfs *v;

    (void)state;
    open_area(&d, &a, &v);
    assert_int_equal(read_object(v, SLOT, 0), -EPROTO);
    assert_int_equal(read_object(v, SLOT, 0), -EPROTO);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* Without the feature it is not asked. */
static void test_no_feature(void **state)
{
    Area a = {.how = SHARES};
    FakeDaemon d = {.data = &a, .is_bare = true};
    varjfs *v;

    (void)state;
    fake_start(&d, serve_area);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(read_object(v, 2 * SLOT, 0), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
    assert_int_equal(a.shares + a.shared, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_replies),
        cmocka_unit_test(test_more_than_slots),
        cmocka_unit_test(test_deferred_afterwards),
        cmocka_unit_test(test_daemons),
        cmocka_unit_test(test_bulk_besides),
        cmocka_unit_test(test_no_feature),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
