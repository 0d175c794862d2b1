/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* Buffers: alignment, count, total, and what happens when memory is short. */
#include "../../lib/test.h"

/* The sanitizers abort on absurd sizes unless told that we handle NULL. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void buffers_are_aligned_and_counted(void **state)
{
    static const size_t caps[] = {0, 1, 15, 4095, 4096, 4097, 1 << 20};
    uint64_t before = vj_buf_total_bytes();

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(caps); i++) {
        VjBuf *b = vj_buf_new(caps[i]);
        uintptr_t align = caps[i] >= VJ_BUF_ALIGN ? VJ_BUF_ALIGN : 16;

        assert_non_null(b);
        assert_int_equal((uintptr_t)b->data % align, 0);
        assert_int_equal(b->cap, caps[i]);
        assert_int_equal(b->len, 0);
        if (caps[i] > 0) {
            memset(b->data, 0xa5, b->cap);
        }
        assert_true(vj_buf_total_bytes() == before + sizeof(VjBuf) + caps[i]);
        vj_buf_unref(b);
        assert_true(vj_buf_total_bytes() == before);
    }
    vj_buf_unref(NULL);
}

static void the_last_reference_frees(void **state)
{
    uint64_t before = vj_buf_total_bytes();
    VjBuf *b = vj_buf_new_copy("hello", 5);

    (void)state;
    assert_non_null(b);
    assert_int_equal(b->len, 5);
    assert_ptr_equal(vj_buf_ref(b), b);
    vj_buf_unref(b);
    assert_memory_equal(b->data, "hello", 5);
    assert_true(vj_buf_total_bytes() > before);
    vj_buf_unref(b);
    assert_true(vj_buf_total_bytes() == before);
}

static void an_absurd_size_gives_null(void **state)
{
    volatile size_t most = SIZE_MAX; /* volatile: gcc warns of such constants */
    uint64_t before = vj_buf_total_bytes();

    (void)state;
    assert_null(vj_buf_new(most));
    assert_null(vj_buf_new(most - sizeof(VjBuf)));
    assert_null(vj_buf_new(most / 2));
    assert_null(vj_buf_new(most / 2 - sizeof(VjBuf)));
    assert_true(vj_buf_total_bytes() == before);
}

static gpointer churn(gpointer shared)
{
    for (int i = 0; i < 2000; i++) {
        g_autoptr(VjBuf) own = vj_buf_new((size_t)i);
        g_autoptr(VjBuf) pages = vj_buf_new((size_t)(i % 4 + 1) * VJ_BUF_ALIGN);
        g_autoptr(VjBuf) other = vj_buf_ref(shared);

        if (own == NULL || pages == NULL || other->data[0] != 'x') {
            return GINT_TO_POINTER(1);
        }
    }
    return NULL;
}

static void threads_share_and_count(void **state)
{
    uint64_t before = vj_buf_total_bytes();
    VjBuf *shared = vj_buf_new_copy("x", 1);
    GThread *threads[4];

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(threads); i++) {
        threads[i] = g_thread_new("churn", churn, shared);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(threads); i++) {
        assert_null(g_thread_join(threads[i]));
    }
    assert_int_equal(shared->refs, 1);
    vj_buf_unref(shared);
    assert_true(vj_buf_total_bytes() == before);
}

/* Those of a few pages may be kept when they are freed, and come again. */
static void buffers_that_come_again_are_as_new(void **state)
{
    uint64_t before = vj_buf_total_bytes();
    VjBuf *bufs[40];

    (void)state;
    for (unsigned round = 0; round < 10; round++) {
        for (size_t i = 0; i < G_N_ELEMENTS(bufs); i++) {
            size_t cap = (i % 5 + 1) * VJ_BUF_ALIGN;

            bufs[i] = vj_buf_new(cap);
            assert_non_null(bufs[i]);
            assert_int_equal(bufs[i]->cap, cap);
            assert_int_equal(bufs[i]->len, 0);
            assert_int_equal(bufs[i]->refs, 1);
            assert_int_equal((uintptr_t)bufs[i]->data % VJ_BUF_ALIGN, 0);
            memset(bufs[i]->data, (int)i, cap);
            bufs[i]->len = cap;
        }
        for (size_t i = 0; i < G_N_ELEMENTS(bufs); i++) {
            assert_int_equal(bufs[i]->data[0], i);
            assert_int_equal(bufs[i]->data[bufs[i]->cap - 1], i);
            vj_buf_unref(bufs[i]);
        }
        assert_true(vj_buf_total_bytes() == before);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(buffers_are_aligned_and_counted),
    cmocka_unit_test(the_last_reference_frees),
    cmocka_unit_test(an_absurd_size_gives_null),
    cmocka_unit_test(threads_share_and_count),
    cmocka_unit_test(buffers_that_come_again_are_as_new),
};

VJ_TEST_MAIN(tests)
