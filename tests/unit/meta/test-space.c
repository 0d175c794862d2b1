/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-space.c - what was acknowledged finds room, and a full device can be emptied
 *
 * The full device is a limit on the size of files (RLIMIT_FSIZE), which needs no root.
 */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "meta-fixture.h"

static void limit_file_bytes(uint64_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes == 0 ? limit.rlim_max : bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static uint64_t file_bytes(const Fixture *f)
{
    struct stat st;

    assert_int_equal(fstatat(f->dir_fd, "data.mdb", &st, 0), 0);
    return (uint64_t)st.st_size;
}

/* ---- The bound ------------------------------------------------------------------- */

typedef struct Mix {
    const char *name;
    uint64_t keys;    /* numbers are drawn below this */
    size_t key_bytes; /* at least 8 */
    size_t value_least, value_span;
    unsigned del_percent;
    bool rising; /* keys in order instead of at random */
    unsigned batches, batch_count;
} Mix;

static const Mix mixes[] = {
    {"small at random", 1 << 20, 16, 8, 100, 0, false, 8, 1500},
    {"small rising", 1 << 20, 8, 8, 30, 0, true, 8, 1500},
    {"rising, some deleted", 1 << 20, 8, 8, 30, 20, true, 8, 1500},
    {"half pages rising", 1 << 20, 8, 1900, 120, 0, true, 8, 400},
    {"overwritten and deleted", 4000, 16, 8, 300, 50, false, 12, 1000},
    {"half pages", 4000, 16, 1900, 120, 20, false, 8, 400},
    {"map nodes", 2000, 16, 3000, 1080, 20, false, 8, 400},
    {"several pages", 500, 16, 5000, 60000, 30, false, 6, 40},
    {"longest keys", 20000, 511, 8, 20, 20, false, 8, 400},
    {"mostly deletions", 8000, 64, 8, 200, 80, false, 12, 1000},
    {"few", 1 << 20, 16, 8, 100, 10, false, 20, 3},
};

typedef struct Batch {
    const Mix *mix;
    VjRng *rng;
    uint64_t *next;
} Batch;

static int batch_body(VjTxn *txn, void *opaque)
{
    static const uint8_t zeroes[VJ_META_VALUE_MAX];
    const Batch *b = opaque;

    for (unsigned i = 0; i < b->mix->batch_count; i++) {
        uint8_t key[VJ_META_KEY_MAX] = {0};
        VjSpace space = (VjSpace)vj_rng_below(b->rng, 3);
        uint64_t number =
            b->mix->rising ? (*b->next)++ : vj_rng_below(b->rng, b->mix->keys);
        size_t value_bytes =
            b->mix->value_least + vj_rng_below(b->rng, b->mix->value_span);
        int rc;

        vj_be64_set(key, number * (b->mix->rising ? 1 : UINT64_C(0x9e3779b97f4a7c15)));
        if (vj_rng_below(b->rng, 100) < b->mix->del_percent) {
            rc = vj_txn_del(txn, space, vj_slice(key, b->mix->key_bytes));
            rc = rc == -ENOENT ? 0 : rc;
        } else {
            rc = vj_txn_put(txn, space, vj_slice(key, b->mix->key_bytes),
                            vj_slice(zeroes, value_bytes));
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* Each move in turn: what it took is not more than what was reckoned before. */
static void check_mix(const Mix *mix)
{
    Fixture f = fixture_new("lmdb:commit=3600,reserve=0,redo=0,overlay=64M");
    uint64_t next = 0, reckoned_pages = 0, taken_pages = 0;
    VjRng rng;
    Batch batch = {.mix = mix, .rng = &rng, .next = &next};

    vj_rng_init(&rng, 11);
    for (unsigned i = 0; i < mix->batches; i++) {
        uint64_t needed, used_before, used_after, ignored;

        assert_int_equal(vj_meta_run(f.meta, VJ_RUN_DEFAULT, batch_body, &batch), 0);
        fixture_pages(&f, &needed, &used_before);
        assert_true(file_bytes(&f) >= needed * 4096);
        assert_int_equal(vj_meta_flush(f.meta), 0);
        fixture_pages(&f, &ignored, &used_after);
        if (used_after > needed) {
            fail_msg("%s: batch %u used %" G_GUINT64_FORMAT
                     " pages of %" G_GUINT64_FORMAT,
                     mix->name, i, used_after, needed);
        }
        reckoned_pages += needed - used_before;
        taken_pages += used_after - used_before;
    }
    print_message("# %s: reckoned %" G_GUINT64_FORMAT " pages, taken %" G_GUINT64_FORMAT
                  "\n",
                  mix->name, reckoned_pages, taken_pages);
    fixture_free(&f);
}

static void test_bound(void **state)
{
    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(mixes); i++) {
        check_mix(&mixes[i]);
    }
}

/* ---- A full device --------------------------------------------------------------- */

#define FULL_OPTIONS "lmdb:commit=3600,overlay=1M,reserve=1M"

/* Puts until there is no room; returns how many were acknowledged. */
static uint64_t fill(const Fixture *f, uint64_t first, size_t value_bytes)
{
    uint64_t i = first;
    int rc;

    while ((rc = put_numbered(f->meta, VJ_SPACE_INLINE, i, value_bytes)) == 0) {
        i++;
        assert_true(i < first + 100000);
    }
    assert_int_equal(rc, -ENOSPC);
    return i;
}

static void assert_present(const Fixture *f, uint64_t first, uint64_t end, size_t bytes)
{
    for (uint64_t i = first; i < end; i++) {
        assert_int_equal(get_numbered(f->meta, VJ_SPACE_INLINE, i), bytes);
    }
}

static void test_full_device(void **state)
{
    Fixture f = fixture_new(FULL_OPTIONS);
    uint64_t first_end, end;

    (void)state;
    limit_file_bytes(file_bytes(&f) + 4 * VJ_MIB);
    first_end = fill(&f, 0, 3000);
    assert_true(first_end > 300);
    /* All that was acknowledged becomes durable, and what was refused is not there. */
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INLINE, first_end), -ENOENT);
    fixture_close(&f);
    fixture_open(&f, FULL_OPTIONS, false);
    assert_present(&f, 0, first_end, 3000);
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_INLINE, first_end, 3000), -ENOSPC);
    /* Everything can be deleted, one by one, and durably. */
    for (uint64_t i = 0; i < first_end; i++) {
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_INLINE, i, 0), 0);
    }
    assert_int_equal(vj_meta_flush(f.meta), 0);
    /* LMDB does not shrink; its free pages are room again. */
    end = fill(&f, first_end, 3000);
    assert_true(end - first_end > first_end / 2);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_present(&f, first_end, end, 3000);
    fixture_free(&f);
}

/* Only release transactions get at the reserve. */
static void test_reserve(void **state)
{
    Fixture f = fixture_new(FULL_OPTIONS);
    NumberedPut one = {.space = VJ_SPACE_INLINE, .value_bytes = 4000};
    uint64_t end;

    (void)state;
    limit_file_bytes(file_bytes(&f) + 2 * VJ_MIB);
    end = fill(&f, 0, 4000);
    one.number = end;
    assert_int_equal(vj_meta_run(f.meta, VJ_RUN_DEFAULT, numbered_body, &one), -ENOSPC);
    assert_int_equal(vj_meta_run(f.meta, VJ_RUN_RELEASE, numbered_body, &one), 0);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_present(&f, 0, end, 4000);
    fixture_free(&f);
}

typedef struct Removal {
    uint64_t first, end;
} Removal;

static int removal_body(VjTxn *txn, void *opaque)
{
    const Removal *r = opaque;
    int rc = 0;

    for (uint64_t i = r->first; rc == 0 && i < r->end; i++) {
        NumberedPut one = {.space = VJ_SPACE_INLINE, .number = i};

        rc = numbered_body(txn, &one);
    }
    return rc;
}

/*
 * Large values stand in rows of pages, and removing them gives free pages, not a shorter
 * file.  Whatever deleting took of the reserve, small changes go on then, for ever.
 */
static void test_rows_given_back(void **state)
{
    Fixture f = fixture_new(FULL_OPTIONS);

    (void)state;
    limit_file_bytes(file_bytes(&f) + 8 * VJ_MIB);
    for (unsigned round = 0; round < 6; round++) {
        uint64_t first = round * 100000, end = fill(&f, first, 65536);

        assert_true(end - first > 20);
        for (Removal r = {first, first}; r.first < end; r.first = r.end) {
            r.end = MIN(r.first + 8, end);
            assert_int_equal(vj_meta_run(f.meta, VJ_RUN_RELEASE, removal_body, &r), 0);
        }
        for (uint64_t i = 0; i < 300; i++) {
            assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, i % 50, 200), 0);
        }
        fixture_close(&f);
        fixture_open(&f, FULL_OPTIONS, false);
    }
    fixture_free(&f);
}

/* The map is a limit like the device: refused at commit, not found out by a move. */
static void test_full_map(void **state)
{
    Fixture f = fixture_new("lmdb:commit=3600,overlay=16M,reserve=1M,map=64M");
    uint64_t end;

    (void)state;
    end = fill(&f, 0, VJ_META_VALUE_MAX);
    assert_true(end > 200);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    for (uint64_t i = 0; i < end; i++) {
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_INLINE, i, 0), 0);
    }
    fixture_free(&f);
}

/* What was set aside for a burst is given back at the end. */
static void test_close_gives_back(void **state)
{
    Fixture f = fixture_new("lmdb:commit=3600,reserve=1M");
    uint64_t quiet = file_bytes(&f), busy;

    (void)state;
    for (uint64_t i = 0; i < 100; i++) {
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_INLINE, i, VJ_META_VALUE_MAX), 0);
    }
    busy = file_bytes(&f);
    assert_true(busy > quiet + 100 * VJ_META_VALUE_MAX);
    for (uint64_t i = 0; i < 100; i++) {
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_INLINE, i, 0), 0);
    }
    fixture_close(&f);
    assert_true(file_bytes(&f) < quiet + VJ_MIB);
    fixture_open(&f, "lmdb", false);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INLINE, 1), -ENOENT);
    fixture_free(&f);
}

static int lift_limit(void **state)
{
    (void)state;
    limit_file_bytes(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound),
        cmocka_unit_test_teardown(test_full_device, lift_limit),
        cmocka_unit_test_teardown(test_reserve, lift_limit),
        cmocka_unit_test_teardown(test_rows_given_back, lift_limit),
        cmocka_unit_test(test_full_map),
        cmocka_unit_test(test_close_gives_back),
    };

    /* A write beyond the limit is to fail, not to kill. */
    signal(SIGXFSZ, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
