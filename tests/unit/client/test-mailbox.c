/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Small requests that stand in memory, and their replies: which do, how one goes to the
 * socket after all, and what is taken from a daemon that writes there what it likes
 *
 * The daemon of the test looks at both, and says in the memory what the test wants.
 * Whether a request finds it looking is a matter of time: what is to happen there is
 * tried until it does.
 */
#include "fake-daemon.h"

#include "../../../lib/client/client-private.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Requests until one of them is expected to have stood in the mailbox. */
#define TRIES 100000u
/* What the library waits for before it asks for a mailbox, and more. */
#define FIRST_REQUESTS 40u

typedef enum How {
    ANSWERS,
    NEVER_TAKES,       /* says that it looks, and does not */
    ANSWERS_BY_SOCKET, /* takes the request, says that the reply comes there */
    SAYS_NOTHING,      /* takes the request, replies by the socket, does not say so */
    UNSEALED,
    SHORT,
    NO_FD,
    REFUSES,
    GOOD_ONES,        /* those above: all requests are answered */
    ENDS = GOOD_ONES, /* takes a request and closes */
    WRONG_MAGIC,      /* in the reply, as what follows */
    WRONG_TAG,
    WRONG_OP,
    WRONG_SUM,
    LONG_MESSAGE,
    LONG_BULK,
    NO_REPLY,
    HOWS,
} How;

/* What comes with the reply to BELL. */
typedef enum Bell {
    BELL,
    BELL_PIPE,   /* that nobody reads: a write to it is a signal */
    BELL_BLOCKS, /* an eventfd whose writers may have to wait */
    BELL_NO_FD,
    BELL_REFUSED,
    BELLS,
} Bell;

typedef struct Box {
    How how;
    Bell bell_is;
    uint8_t *memory;
    size_t bytes;
    FakeDaemon *daemon;
    unsigned asked; /* for it */
    uint32_t cpu;   /* what it says there */
    int bell;       /* 0: it was not asked for; and how often it was rung: */
    uint64_t rings;
    unsigned called, by_socket; /* batches that came here and there; atomic */
} Box;

static uint32_t *word(const Box *m, size_t at)
{
    return (uint32_t *)(void *)(m->memory + at);
}

static uint32_t state_of(const Box *m)
{
    return __atomic_load_n(word(m, VARJFS_WIRE_MAILBOX_STATE_AT), __ATOMIC_SEQ_CST);
}

static bool change_state(const Box *m, uint32_t from, uint32_t to)
{
    return __atomic_compare_exchange_n(word(m, VARJFS_WIRE_MAILBOX_STATE_AT), &from, to,
                                       false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static void answer_mailbox(Box *m, const FakeRequest *r)
{
    g_autoptr(GByteArray) bytes =
        fake_frame(r->frame.op, r->frame.tag, m->how == REFUSES ? VJ_WIRE_BUSY : 0,
                   vj_slice(NULL, 0), vj_slice(NULL, 0));
    int fd = memfd_create("mailbox", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    g_assert(fd >= 0 && r->message->len == 0 && r->bulk->len == 0);
    m->asked++;
    m->bytes = VARJFS_WIRE_MAILBOX_BYTES - (m->how == SHORT ? 1 : 0);
    g_assert(ftruncate(fd, (off_t)m->bytes) == 0);
    m->memory = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    g_assert(m->memory != MAP_FAILED);
    g_assert(m->how == UNSEALED || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    __atomic_store_n(word(m, VARJFS_WIRE_MAILBOX_LISTENS_AT), 1, __ATOMIC_SEQ_CST);
    *word(m, VARJFS_WIRE_MAILBOX_CPU_AT) = m->cpu;
    fake_send_with_fds(m->daemon, bytes, fd,
                       m->how == NO_FD || m->how == REFUSES ? 0 : 1);
    close(fd);
}

static int bell_new(Bell what)
{
    int fds[2];

    if (what != BELL_PIPE) {
        return eventfd(0, EFD_CLOEXEC | (what == BELL_BLOCKS ? 0 : EFD_NONBLOCK));
    }
    g_assert(pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0);
    close(fds[0]);
    return fds[1];
}

static void answer_bell(Box *m, const FakeRequest *r)
{
    g_autoptr(GByteArray) bytes = fake_frame(
        r->frame.op, r->frame.tag, m->bell_is == BELL_REFUSED ? VJ_WIRE_BUSY : 0,
        vj_slice(NULL, 0), vj_slice(NULL, 0));

    g_assert(r->message->len == 0 && r->bulk->len == 0 && m->memory != NULL);
    m->bell = bell_new(m->bell_is);
    g_assert(m->bell > 0);
    fake_send_with_fds(m->daemon, bytes, m->bell,
                       m->bell_is == BELL_NO_FD || m->bell_is == BELL_REFUSED ? 0 : 1);
}

/* The frame of a good reply becomes what the test wants. */
static void spoil(const Box *m, uint8_t *head, uint8_t *body)
{
    VjFrame frame;

    g_assert(vj_frame_decode(head, &frame) == 0);
    switch (m->how) {
    case WRONG_TAG:
        frame.tag++;
        break;
    case WRONG_OP:
        frame.op = VARJFS_WIRE_ITERATE;
        break;
    case WRONG_SUM:
        body[0] ^= 1;
        break;
    case LONG_MESSAGE:
        frame.message_bytes = VARJFS_WIRE_MAILBOX_FRAME_MAX;
        break;
    case LONG_BULK:
        frame.bulk_bytes = UINT32_MAX;
        break;
    case NO_REPLY:
        frame.flags = 0;
        break;
    default:
        break;
    }
    vj_frame_encode(&frame, head);
    head[0] ^= m->how == WRONG_MAGIC ? 1 : 0;
}

/* Who sleeps has said so. */
static void wake(const Box *m)
{
    if (__atomic_load_n(word(m, VARJFS_WIRE_MAILBOX_SLEEPS_AT), __ATOMIC_SEQ_CST) == 1) {
        g_assert(m->bell > 0 && m->bell_is == BELL);
        syscall(SYS_futex, word(m, VARJFS_WIRE_MAILBOX_STATE_AT), FUTEX_WAKE, 1, NULL,
                NULL, 0);
    }
}

/* Of a request that was taken out of the mailbox. */
static void reply_there(FakeDaemon *d, const GByteArray *bytes)
{
    Box *m = (Box *)(uintptr_t)d->data;
    uint8_t *at = m->memory + VARJFS_WIRE_MAILBOX_REPLY_AT;

    if (m->how == ANSWERS_BY_SOCKET) {
        change_state(m, VARJFS_WIRE_MAILBOX_TAKEN, VARJFS_WIRE_MAILBOX_BY_SOCKET);
    } else if (m->how != SAYS_NOTHING) {
        g_assert(bytes->len <= VARJFS_WIRE_MAILBOX_FRAME_MAX);
        memcpy(at, bytes->data, bytes->len);
        spoil(m, at, at + VJ_FRAME_HEAD_BYTES);
        if (change_state(m, VARJFS_WIRE_MAILBOX_TAKEN, VARJFS_WIRE_MAILBOX_ANSWERED)) {
            wake(m);
            return;
        }
    }
    fake_send(d, bytes->data, bytes->len); /* it has not waited so long */
}

static bool take_call(Box *m, FakeRequest *r)
{
    const uint8_t *at = m->memory + VARJFS_WIRE_MAILBOX_REQUEST_AT;
    uint8_t bytes[VARJFS_WIRE_MAILBOX_FRAME_MAX];

    if (m->how == NEVER_TAKES || state_of(m) != VARJFS_WIRE_MAILBOX_CALLED) {
        return false;
    }
    memcpy(bytes, at, sizeof bytes);
    if (!change_state(m, VARJFS_WIRE_MAILBOX_CALLED, VARJFS_WIRE_MAILBOX_TAKEN)) {
        return false;
    }
    g_assert(vj_frame_decode(bytes, &r->frame) == 0);
    g_assert(r->frame.message_bytes + r->frame.bulk_bytes <=
             sizeof bytes - VJ_FRAME_HEAD_BYTES);
    fake_take(m->daemon, r, bytes + VJ_FRAME_HEAD_BYTES);
    return true;
}

static void run(FakeDaemon *d, const FakeRequest *r)
{
    if (r->frame.op == VARJFS_WIRE_BATCH) {
        fake_answer(d, r);
    } else {
        g_assert(r->frame.op == VARJFS_WIRE_SYNC);
        fake_reply(d, r, 0, NULL, NULL);
    }
}

static void serve_box(FakeDaemon *d)
{
    Box *m = (Box *)(uintptr_t)d->data;
    FakeRequest r;

    m->daemon = d;
    fake_hello(d, 0);
    for (;;) {
        struct pollfd socket = {.fd = d->fd, .events = POLLIN};

        if (m->memory != NULL && m->bytes == VARJFS_WIRE_MAILBOX_BYTES &&
            take_call(m, &r)) {
            g_atomic_int_inc((gint *)&m->called);
            if (m->how == ENDS) {
                fake_request_clear(&r);
                break;
            }
            d->reply = reply_there;
            run(d, &r);
            d->reply = NULL;
        } else if (poll(&socket, 1, 0) == 0) {
            sched_yield();
            continue;
        } else if (!fake_next(d, &r)) {
            break;
        } else if (r.frame.op == VARJFS_WIRE_MAILBOX) {
            answer_mailbox(m, &r);
        } else if (r.frame.op == VARJFS_WIRE_BELL) {
            answer_bell(m, &r);
        } else {
            g_atomic_int_add((gint *)&m->by_socket, r.frame.op == VARJFS_WIRE_BATCH);
            run(d, &r);
        }
        fake_request_clear(&r);
    }
    if (m->memory != NULL) {
        munmap(m->memory, m->bytes);
    }
    if (m->bell_is == BELL && m->bell > 0) {
        (void)!read(m->bell, &m->rings, sizeof m->rings);
    }
    if (m->bell > 0) {
        close(m->bell);
    }
}

static void open_box(FakeDaemon *d, Box *m, varjfs **v)
{
    *d = (FakeDaemon){.data = m, .is_bare = true, .calls = true};
    fake_start(d, serve_box);
    assert_int_equal(fake_open(d, 0, v), 0);
    /* As if looking had always been worth it. */
    (*v)->trust = 1 << 30;
}

static unsigned count_of(unsigned *counter)
{
    return (unsigned)g_atomic_int_get((gint *)counter);
}

/* Gets a key, or reads and writes some bytes, by @number.  0 or the error. */
static int request(varjfs *v, unsigned number)
{
    size_t len = number % 3 == 0 ? 0 : number % 3 == 1 ? 4096 : 10;
    g_autofree uint8_t *bytes = g_malloc0(4096);
    varjfs_batch *b;
    size_t got = 0;
    int rc;

    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    if (len == 0) {
        assert_int_equal(varjfs_kv_get(b, "s", "k", 1, bytes, 4096, &got, NULL), 0);
    } else {
        assert_int_equal(varjfs_object_write(b, "s", "o", bytes, len, 0, 0, NULL), 0);
        assert_int_equal(varjfs_object_read(b, "s", "o", bytes, len, number, &got, NULL),
                         0);
    }
    rc = varjfs_batch_execute(b);
    varjfs_batch_free(b);
    if (rc != 0) {
        return rc;
    }
    if (len == 0) {
        assert_int_equal(got, strlen(FAKE_VALUE));
        assert_memory_equal(bytes, FAKE_VALUE, got);
        return 0;
    }
    assert_int_equal(got, len);
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != fake_byte(number + i)) {
            fail_msg("byte %zu", i);
        }
    }
    return 0;
}

/* All are answered, by whatever way, and each once. */
static void test_good_daemons(void **state)
{
    (void)state;
    for (How how = ANSWERS; how < GOOD_ONES; how++) {
        Box m = {.how = how};
        bool has_box = how <= SAYS_NOTHING;
        unsigned fds = fake_count_fds(), sent = 0;
        FakeDaemon d;
        varjfs *v;

        open_box(&d, &m, &v);
        while (sent < FIRST_REQUESTS || (has_box && how != NEVER_TAKES &&
                                         count_of(&m.called) < 10 && sent < TRIES)) {
            assert_int_equal(request(v, sent), 0);
            sent++;
        }
        assert_int_equal(varjfs_close(v), 0);
        fake_stop(&d);
        assert_int_equal(m.asked, 1);
        assert_int_equal(m.called + m.by_socket, sent);
        if (has_box && how != NEVER_TAKES) {
            assert_true(m.called >= 10);
        } else {
            assert_int_equal(m.called, 0);
        }
        assert_int_equal(fake_count_fds(), fds);
    }
}

/* What is no reply ends the connection, and so does its end. */
static void test_bad_daemons(void **state)
{
    (void)state;
    for (How how = GOOD_ONES; how < HOWS; how++) {
        Box m = {.how = how};
        FakeDaemon d;
        varjfs *v;
        int rc = 0;

        open_box(&d, &m, &v);
        for (unsigned i = 0; rc == 0 && i < TRIES; i++) {
            rc = request(v, i);
        }
        assert_int_equal(rc, how == ENDS ? -ECONNRESET : -EPROTO);
        assert_int_equal(request(v, 0), rc);
        assert_int_equal(varjfs_close(v), 0);
        fake_stop(&d);
        /* Who does not wait so long gets a good one by the socket. */
        assert_true(m.called >= 1);
    }
}

/* Who submits may wait for the descriptor, which memory does not make readable; what is
 * long, or nobody waits for, goes by the socket as well. */
static void test_what_goes_by_socket(void **state)
{
    struct varjfs_semantics none = {.size = sizeof none};
    g_autofree uint8_t *bytes = g_malloc0(VARJFS_WIRE_MAILBOX_FRAME_MAX);
    Box m = {.how = ANSWERS};
    unsigned before, by_socket, sent = 0;
    varjfs_batch *b, *deferred;
    FakeDaemon d;
    varjfs *v;

    (void)state;
    open_box(&d, &m, &v);
    while (count_of(&m.called) < 1 && sent < TRIES) {
        assert_int_equal(request(v, sent++), 0);
    }
    before = count_of(&m.called);
    by_socket = count_of(&m.by_socket);
    assert_true(before > 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    for (unsigned i = 0; i < 100; i++) {
        struct pollfd wait = {.fd = varjfs_descriptor(v), .events = POLLIN};

        assert_int_equal(varjfs_kv_get(b, "s", "k", 1, bytes, 4096, NULL, NULL), 0);
        assert_int_equal(varjfs_batch_submit(b), 0);
        assert_int_equal(poll(&wait, 1, 30000), 1);
        assert_int_equal(varjfs_batch_wait(b), 0);
        assert_int_equal(varjfs_object_write(b, "s", "o", bytes,
                                             VARJFS_WIRE_MAILBOX_FRAME_MAX, 0, 0, NULL),
                         0);
        assert_int_equal(varjfs_batch_execute(b), 0);
    }
    assert_int_equal(varjfs_semantics_template("temporary", &none), 0);
    assert_int_equal(varjfs_batch_new(v, &none, &deferred), 0);
    assert_int_equal(varjfs_kv_put(deferred, "s", "k", 1, "v", 1, 0, NULL), 0);
    assert_int_equal(varjfs_batch_execute(deferred), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
    assert_int_equal(m.called, before);
    assert_int_equal(m.by_socket, by_socket + 201);
}

/* Programs with few requests need none, and it is not asked for without the feature. */
static void test_not_asked(void **state)
{
    (void)state;
    for (unsigned has_feature = 0; has_feature < 2; has_feature++) {
        Box m = {.how = ANSWERS};
        FakeDaemon d = {.data = &m, .is_bare = true, .calls = has_feature == 1};
        varjfs *v;

        fake_start(&d, serve_box);
        assert_int_equal(fake_open(&d, 0, &v), 0);
        for (unsigned i = 0; i < (has_feature == 1 ? 10 : FIRST_REQUESTS); i++) {
            assert_int_equal(request(v, i), 0);
        }
        assert_int_equal(varjfs_close(v), 0);
        fake_stop(&d);
        assert_int_equal(m.asked, 0);
    }
}

/* Both sides on one processor, and @bell for them. */
static void use_bell(Bell bell, unsigned cpu)
{
    bool has_mailbox = bell == BELL || bell == BELL_REFUSED;
    unsigned sent = 0, fds = fake_count_fds();
    Box m = {.how = ANSWERS, .bell_is = bell, .cpu = cpu + 1};
    FakeDaemon d;
    varjfs *v;

    open_box(&d, &m, &v);
    while (sent < FIRST_REQUESTS ||
           (has_mailbox && count_of(&m.called) < 10 && sent < TRIES)) {
        assert_int_equal(request(v, sent++), 0);
    }
    assert_int_equal(v->bell >= 0, bell == BELL);
    assert_int_equal(v->mailbox != NULL, has_mailbox);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
    assert_true(m.bell > 0); /* it was asked for */
    assert_int_equal(m.called >= 10, has_mailbox);
    assert_true(bell != BELL || m.rings >= m.called);
    assert_int_equal(m.called + m.by_socket, sent);
    assert_int_equal(fake_count_fds(), fds);
}

/* The library rings, and sleeps until it is woken.  What is no bell is not rung, and then
 * the daemon does not look any more; where it is refused, it does. */
static void test_one_cpu(void **state)
{
    cpu_set_t before, one;
    unsigned cpu = 0;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    while (!CPU_ISSET(cpu, &before)) {
        cpu++;
    }
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (Bell bell = BELL; bell < BELLS; bell++) {
        use_bell(bell, cpu);
    }
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_daemons),
        cmocka_unit_test(test_bad_daemons),
        cmocka_unit_test(test_what_goes_by_socket),
        cmocka_unit_test(test_not_asked),
        cmocka_unit_test(test_one_cpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
