/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The driver block: which blocks are free, beside an array; which objects there are,
 * beside a hash table; superblocks of others and damaged ones; when a place is used
 * again, and given back; what is in doubt after a sync that failed.
 */
#include "store-test.h"

#include "store/block-private.h"

#include <signal.h>
#include <sys/resource.h>

/* ---- fdatasync of the code under test ---------------------------------------------- */

static unsigned syncs;
static int sync_error; /* 0: none */

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_fdatasync(int fd)
{
    syncs++;
    if (sync_error != 0) {
        errno = sync_error;
        return -1;
    }
    return __real_fdatasync(fd);
}

/* ---- fallocate of the code under test ---------------------------------------------- */

typedef struct LatePut {
    VjStore *s;
    pthread_t thread;
    int rc;
    gint is_over; /* atomic */
} LatePut;

static LatePut *late_put; /* begins while a zone is given back; NULL: none does */

static void *put_late(void *opaque)
{
    LatePut *late = opaque;
    g_autoptr(VjBuf) buf = vj_buf_new(8 * VJ_MIB);
    struct iovec iov = {.iov_base = buf->data, .iov_len = buf->cap};
    VjPut put;

    memset(buf->data, 0, buf->cap);
    late->rc = vj_store_put(late->s, 1000, &iov, 1, &put);
    g_atomic_int_set(&late->is_over, 1);
    return NULL;
}

static bool is_over_or_waits(LatePut *late)
{
    VjBlockStore *b = (VjBlockStore *)late->s;
    bool waits;

    vj_mutex_lock(&b->lock);
    waits = b->zone_waits > 0;
    vj_mutex_unlock(&b->lock);
    return waits || g_atomic_int_get(&late->is_over) != 0;
}

static off_t room_below = G_MAXINT64; /* that a file can reserve at once */
/* So many calls fail with it, of those that set aside or those that give back. */
static int fallocate_error;
static bool fallocate_punches;
static unsigned fallocate_fails, fallocate_failed;

int __real_fallocate64(int fd, int mode, off_t offset, off_t len);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t len);

int __wrap_fallocate64(int fd, int mode, off_t offset, off_t len)
{
    LatePut *late = late_put;

    if (fallocate_fails > 0 && (mode != 0) == fallocate_punches) {
        fallocate_fails--;
        fallocate_failed++;
        errno = fallocate_error;
        return -1;
    }
    if (len > room_below) {
        errno = ENOSPC;
        return -1;
    }
    if (late != NULL && mode != 0) {
        late_put = NULL;
        assert_int_equal(pthread_create(&late->thread, NULL, put_late, late), 0);
        while (!is_over_or_waits(late)) {
            sched_yield();
        }
    }
    return __real_fallocate64(fd, mode, offset, len);
}

/* ---- io_submit of the code under test ---------------------------------------------- */

#if HAVE_LIBAIO

static VjStore *flushed; /* while its first write is refused; NULL: none is */
static pthread_t flusher;

static void *flush_of(void *unused)
{
    (void)unused;
    return GINT_TO_POINTER(vj_store_flush(flushed));
}

/* Until that flush waits for the write. */
static void begin_flush(void)
{
    VjBlockStore *b = (VjBlockStore *)flushed;
    bool is_waiting = false;

    assert_int_equal(pthread_create(&flusher, NULL, flush_of, NULL), 0);
    while (!is_waiting) {
        vj_mutex_lock(&b->lock);
        is_waiting = b->is_syncing;
        vj_mutex_unlock(&b->lock);
        sched_yield();
    }
}

struct iocb;
int __real_io_submit(void *context, long count, struct iocb **requests);
int __wrap_io_submit(void *context, long count, struct iocb **requests);

int __wrap_io_submit(void *context, long count, struct iocb **requests)
{
    if (flushed == NULL) {
        return __real_io_submit(context, count, requests);
    }
    begin_flush();
    return -ENOMEM;
}

#endif

/* ---- blocks ------------------------------------------------------------------------ */

enum { MODEL_BLOCKS = 3 * VJ_BLOCK_ZONE_BLOCKS + 5000, RUNS_MAX = 4000 };

typedef struct Run {
    uint64_t first, count;
} Run;

typedef struct Model {
    VjBlockSpace space;
    uint8_t *used;
    Run runs[RUNS_MAX];
    unsigned run_count;
    uint64_t used_count;
} Model;

static void model_take(Model *m, uint64_t count)
{
    uint64_t first = 0, unbacked;
    bool is_taken = vj_block_space_take(&m->space, count, &first, &unbacked);
    uint64_t run = 0;

    if (is_taken) {
        assert_true(first >= VJ_BLOCK_HEAD_BLOCKS && first + count <= MODEL_BLOCKS);
        for (uint64_t i = first; i < first + count; i++) {
            assert_int_equal(m->used[i]++, 0);
        }
        m->runs[m->run_count++] = (Run){first, count};
        m->used_count += count;
        return;
    }
    /* There is none within a zone. */
    for (uint64_t i = 0; i < MODEL_BLOCKS; i++) {
        run = m->used[i] != 0 || i % VJ_BLOCK_ZONE_BLOCKS == 0 ? 0 : run;
        run += m->used[i] == 0 ? 1 : 0;
        assert_true(run < count);
    }
}

static void model_give(Model *m, unsigned number)
{
    Run run = m->runs[number];

    vj_block_space_give(&m->space, run.first, run.count);
    memset(m->used + run.first, 0, run.count);
    m->runs[number] = m->runs[--m->run_count];
    m->used_count -= run.count;
}

/* A zone that leaves is empty, and is not used meanwhile. */
static void model_leave(Model *m, bool is_gone)
{
    uint64_t first, count, taken, unbacked;
    uint32_t zone;

    if (!vj_block_space_leave(&m->space, &zone, &first, &count)) {
        return;
    }
    for (uint64_t i = first; i < first + count; i++) {
        assert_int_equal(m->used[i], 0);
    }
    if (vj_block_space_take(&m->space, 1, &taken, &unbacked)) {
        assert_true(taken < first || taken >= first + count);
        vj_block_space_give(&m->space, taken, 1);
    }
    vj_block_space_left(&m->space, zone, is_gone);
}

static void test_space_is_as_an_array_has_it(void **state)
{
    static const uint64_t longest[] = {1, 3, 70, 700, 8192};
    Model *m = g_new0(Model, 1);
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, 20261127);
    m->used = g_malloc0(MODEL_BLOCKS);
    memset(m->used, 1, VJ_BLOCK_HEAD_BLOCKS);
    vj_block_space_init(&m->space, VJ_BLOCK_HEAD_BLOCKS, MODEL_BLOCKS);
    for (unsigned step = 0; step < 30000; step++) {
        unsigned fullness = (unsigned)(m->used_count * 100 / MODEL_BLOCKS);
        bool wants_more = vj_rng_below(&rng, 100) >= (step / 3000 % 2 == 0 ? 20 : 90);

        if (m->run_count < RUNS_MAX && (wants_more || m->run_count == 0)) {
            uint64_t most = longest[vj_rng_below(&rng, G_N_ELEMENTS(longest))];

            model_take(m, 1 + vj_rng_below(&rng, most));
        } else {
            model_give(m, (unsigned)vj_rng_below(&rng, m->run_count));
        }
        if (step % 16 == 0 && fullness < 70) {
            model_leave(m, vj_rng_below(&rng, 2) == 0);
        }
        assert_int_equal(m->space.used_count, m->used_count + VJ_BLOCK_HEAD_BLOCKS);
    }
    while (m->run_count > 0) {
        model_give(m, 0);
    }
    assert_int_equal(m->space.used_count, VJ_BLOCK_HEAD_BLOCKS);
    vj_block_space_clear(&m->space);
    g_free(m->used);
    g_free(m);
}

static void test_space_marks_what_keys_say(void **state)
{
    uint64_t first, unbacked;
    VjBlockSpace s;

    (void)state;
    vj_block_space_init(&s, VJ_BLOCK_HEAD_BLOCKS, 10 * VJ_BLOCK_ZONE_BLOCKS);
    /* Across the end of a zone, and behind what there was. */
    assert_true(vj_block_space_mark(&s, 2 * VJ_BLOCK_ZONE_BLOCKS - 10, 20));
    assert_int_equal(s.used_count, VJ_BLOCK_HEAD_BLOCKS + 20);
    assert_false(vj_block_space_mark(&s, 2 * VJ_BLOCK_ZONE_BLOCKS + 9, 5));
    assert_int_equal(s.used_count, VJ_BLOCK_HEAD_BLOCKS + 24);
    assert_true(vj_block_space_take(&s, 8192, &first, &unbacked));
    assert_int_equal(first, VJ_BLOCK_HEAD_BLOCKS);
    vj_block_space_give(&s, 2 * VJ_BLOCK_ZONE_BLOCKS - 10, 20);
    assert_int_equal(s.used_count, VJ_BLOCK_HEAD_BLOCKS + 4 + 8192);
    vj_block_space_clear(&s);
}

/* ---- objects ----------------------------------------------------------------------- */

static void test_table_is_as_a_hash_table_has_it(void **state)
{
    GHashTable *model = g_hash_table_new(g_direct_hash, g_direct_equal);
    VjBlockTable t;
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, 20261127);
    vj_block_table_init(&t);
    for (unsigned step = 0; step < 40000; step++) {
        uint32_t nonce = (uint32_t)vj_rng_below(&rng, 6000);
        VjBlockEntry *entry = vj_block_table_find(&t, nonce / 2, nonce);
        gpointer first = NULL;
        bool is_there =
            g_hash_table_lookup_extended(model, GUINT_TO_POINTER(nonce), NULL, &first);

        assert_int_equal(entry != NULL, is_there);
        assert_null(vj_block_table_find(&t, nonce / 2 + 1, nonce));
        if (is_there) {
            assert_int_equal(vj_block_object_of(entry).first_block,
                             GPOINTER_TO_UINT(first));
            vj_block_table_remove(&t, entry);
            g_hash_table_remove(model, GUINT_TO_POINTER(nonce));
        } else {
            VjBlockObject object = {.id = nonce / 2, .nonce = nonce, .first_block = step};

            assert_non_null(vj_block_table_add(&t, &object));
            g_hash_table_insert(model, GUINT_TO_POINTER(nonce), GUINT_TO_POINTER(step));
        }
        assert_int_equal(t.count, g_hash_table_size(model));
    }
    vj_block_table_clear(&t);
    g_hash_table_unref(model);
}

/* ---- what is on the device --------------------------------------------------------- */

static void test_superblocks_and_keys_as_bytes(void **state)
{
    VjBlockSuper super = {.sequence = 7,
                          .block_count = 123456,
                          .volume = "uuid",
                          .mount = 0x123456789abcdef0},
                 again;
    VjBlockMounts mounts = {.last = 8, .next = 9}, mounts_again;
    VjBlockObject object = {.id = 1,
                            .nonce = 2,
                            .first_block = 300,
                            .put_s = 4000000000,
                            .bytes = 5000},
                  read;
    uint8_t bytes[VJ_BLOCK_BYTES];
    VjStoreChange change;
    VjSlice key, value;

    (void)state;
    vj_block_super_encode(&super, bytes);
    assert_int_equal(vj_block_super_decode(bytes, &again), 0);
    assert_int_equal(again.sequence, 7);
    assert_int_equal(again.block_count, 123456);
    assert_string_equal(again.volume, "uuid");
    assert_true(again.mount == super.mount);
    for (size_t bit = 0; bit < sizeof bytes * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(vj_block_super_decode(bytes, &again), 0);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    vj_block_mounts_encode(&mounts, &change);
    key = vj_slice(change.key, change.key_len);
    value = vj_slice(change.value, change.value_len);
    assert_true(vj_block_is_mount_key(key));
    assert_true(vj_block_mounts_decode(value, &mounts_again));
    assert_int_equal(mounts_again.last, 8);
    assert_int_equal(mounts_again.next, 9);
    for (size_t bit = 0; bit < (size_t)change.value_len * 8; bit++) {
        change.value[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(vj_block_mounts_decode(value, &mounts_again));
        change.value[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_false(vj_block_mounts_decode(vj_slice(change.value, 8), &mounts_again));
    vj_block_key_encode(&object, &change);
    key = vj_slice(change.key, change.key_len);
    value = vj_slice(change.value, change.value_len);
    assert_true(vj_block_key_decode(key, value, 302, &read));
    assert_int_equal(read.id, 1);
    assert_int_equal(read.nonce, 2);
    assert_int_equal(read.first_block, 300);
    assert_int_equal(read.put_s, 4000000000);
    assert_int_equal(read.bytes, 5000);
    assert_false(vj_block_key_decode(key, value, 301, &read)); /* it has two blocks */
    for (size_t bit = 0; bit < (key.len + value.len) * 8; bit++) {
        uint8_t *at =
            bit < key.len * 8 ? &change.key[bit / 8] : &change.value[bit / 8 - key.len];

        *at ^= (uint8_t)(1u << bit % 8);
        assert_false(vj_block_key_decode(key, value, 302, &read));
        *at ^= (uint8_t)(1u << bit % 8);
    }
}

static bool try_open(const VjStoreTest *t, const VjStorePlace *how, VjStore **out,
                     GError **error)
{
    VjStorePlace place = *how;

    place.dir_fd = t->dir_fd;
    place.path = t->path;
    return vj_store_open(t->spec, &place, out, error);
}

static void damage(const VjStoreTest *t, uint64_t block)
{
    VJ_AUTO_FD fd = openat(t->dir_fd, "blocks", O_WRONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "x", 1, (off_t)(block * VJ_BLOCK_BYTES + 100)), 1);
}

static void test_one_superblock_is_enough(void **state)
{
    static const uint64_t blocks[] = {VJ_BLOCK_FIRST_SUPER, VJ_BLOCK_SECOND_SUPER};
    const VjStorePlace again = {.create = false}, look = {.read_only = true};
    VjStoreTest *t = *state;
    g_autoptr(GError) error = NULL;
    VjStore *s;

    for (unsigned i = 0; i < 2; i++) {
        damage(t, blocks[i]);
        assert_true(try_open(t, &look, &s, &error)); /* mends nothing */
        vj_store_close(s);
        damage(t, blocks[i]);
        assert_true(try_open(t, &again, &s, &error)); /* has mended it */
        vj_store_close(s);
    }
    damage(t, blocks[0]);
    damage(t, blocks[1]);
    assert_false(try_open(t, &again, &s, &error));
    vj_test_expect_error(&error, EBADMSG, "both superblocks are damaged");
}

/* The only one of the file. */
static void write_byte_at(const char *path, off_t offset)
{
    VJ_AUTO_FD fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "x", 1, offset), 1);
    assert_int_equal(ftruncate(fd, offset + VJ_BLOCK_BYTES), 0);
}

static void test_a_place_of_others_is_refused(void **state)
{
    VjStoreTest *t = *state;
    g_autofree char *path = g_build_filename(t->path, "elsewhere", NULL);
    g_autofree char *spec = g_strdup_printf("block:%s:size=64M", path);
    VjStorePlace make = {.create = true, .volume = "one"}, use = {.volume = "one"};
    const VjStorePlace look = {.read_only = true};
    g_autoptr(GError) error = NULL;
    VjStoreTest there = {.path = t->path, .dir_fd = t->dir_fd, .spec = spec};
    VjStore *s, *other;

    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(try_open(&there, &look, &s, &error)); /* waits for no writer */
    vj_test_expect_error(&error, EINVAL, "is neither a device nor a file");
    assert_int_equal(unlink(path), 0);
    assert_true(g_file_set_contents(path, "somebody's text", -1, NULL));
    assert_false(try_open(&there, &make, &s, &error));
    vj_test_expect_error(&error, EEXIST, "is not empty");
    assert_int_equal(truncate(path, 1 << 20), 0);
    assert_false(try_open(&there, &make, &s, &error));
    vj_test_expect_error(&error, EEXIST, "is not empty");
    write_byte_at(path, 3 << 20); /* behind a head of zeros */
    assert_false(try_open(&there, &make, &s, &error));
    vj_test_expect_error(&error, EEXIST, "is not empty");
    make.destroy = true;
    assert_true(try_open(&there, &make, &s, &error));
    assert_false(try_open(&there, &use, &other, &error));
    vj_test_expect_error(&error, EBUSY, "in use by another program");
    vj_store_close(s);
    use.volume = "two";
    assert_false(try_open(&there, &use, &s, &error));
    vj_test_expect_error(&error, EBADMSG, "belong to the volume one, not to two");
    make = (VjStorePlace){.create = true, .volume = "two"};
    assert_false(try_open(&there, &make, &s, &error));
    vj_test_expect_error(&error, EEXIST, "holds objects of the volume one");
    use.volume = "one";
    assert_true(try_open(&there, &use, &s, &error));
    vj_store_close(s);
    assert_int_equal(unlink(path), 0);
}

/* ---- when a place is free ---------------------------------------------------------- */

static VjBlockStore *block_of(VjStoreTest *t)
{
    return (VjBlockStore *)t->s;
}

static VjPut put_text(VjStoreTest *t, uint64_t id, size_t len)
{
    g_autofree uint8_t *bytes = g_malloc(len);
    struct iovec iov = {.iov_base = bytes, .iov_len = len};
    VjPut put;

    vj_store_test_fill(bytes, len, id);
    assert_int_equal(vj_store_put_unaligned(t->s, id, &iov, 1, &put), 0);
    return put;
}

static void expect_text(VjStoreTest *t, const VjPut *put)
{
    g_autofree uint8_t *want = g_malloc(put->stored_bytes);
    g_autofree uint8_t *got = g_malloc(put->stored_bytes);

    vj_store_test_fill(want, put->stored_bytes, put->id);
    assert_int_equal(
        vj_store_get_unaligned(t->s, put->id, put->loc, 0, got, put->stored_bytes), 0);
    assert_memory_equal(got, want, put->stored_bytes);
}

static void stage(VjStoreTest *t, const VjPut *added, const VjPut *removed)
{
    g_autoptr(GArray) changes = g_array_new(FALSE, FALSE, sizeof(VjStoreChange));

    assert_int_equal(vj_store_stage(t->s, added, added != NULL ? 1 : 0, removed,
                                    removed != NULL ? 1 : 0, changes),
                     0);
    assert_int_equal(changes->len, 1);
}

static uint64_t used(VjStoreTest *t)
{
    return block_of(t)->space.used_count - VJ_BLOCK_HEAD_BLOCKS;
}

static void test_a_place_is_free_when_its_key_is_gone(void **state)
{
    VjStoreTest *t = *state;
    VjPut staged = put_text(t, 1, 10000), other = put_text(t, 2, 10000);

    stage(t, &staged, NULL);
    assert_int_equal(used(t), 6);
    /* No transaction has its key. */
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(vj_store_remove(t->s, 2, other.loc), 0);
    assert_int_equal(used(t), 3);
    assert_int_equal(vj_store_remove(t->s, 1, staged.loc), 0);
    assert_int_equal(used(t), 3);
    stage(t, NULL, &staged);
    assert_int_equal(used(t), 3);
    vj_store_removes_committed(t->s, &staged, 1);
    assert_int_equal(used(t), 0);
    vj_store_removes_committed(t->s, &staged, 1);
    assert_int_equal(vj_store_remove(t->s, 1, staged.loc), 0);
    assert_int_equal(used(t), 0);
}

static uint64_t bytes_below(const VjStoreTest *t)
{
    struct stat st;

    assert_int_equal(fstatat(t->dir_fd, "blocks", &st, 0), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void test_what_is_empty_is_given_back(void **state)
{
    enum { COUNT = 40, LEN = 4 << 20 };
    VjStoreTest *t = *state;
    VjPut puts[COUNT];

    for (uint64_t i = 0; i < COUNT; i++) {
        puts[i] = put_text(t, i, LEN);
    }
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_true(bytes_below(t) >= (uint64_t)COUNT * LEN);
    for (uint64_t i = 0; i + 1 < COUNT; i++) {
        assert_int_equal(vj_store_remove(t->s, i, puts[i].loc), 0);
    }
    assert_int_equal(vj_store_flush_removes(t->s), 0);
    assert_true(bytes_below(t) <= (uint64_t)129 << 20);
    expect_text(t, &puts[COUNT - 1]);
    for (uint64_t i = 0; i + 1 < COUNT; i++) {
        puts[i] = put_text(t, i, LEN);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        expect_text(t, &puts[i]);
    }
}

static void test_full(void **state)
{
    enum { LEN = 8 << 20 };
    VjStoreTest *t = *state;
    g_autofree uint8_t *bytes = g_malloc0(LEN);
    struct iovec iov = {.iov_base = bytes, .iov_len = LEN};
    VjStoreSpace space;
    VjPut put, first = {.id = 0};
    uint64_t id = 0;
    int rc;

    while ((rc = vj_store_put_unaligned(t->s, id, &iov, 1, &put)) == 0) {
        first = id++ == 0 ? put : first;
    }
    assert_int_equal(rc, -ENOSPC);
    assert_int_equal(id, 7); /* of 64 MiB less 1 */
    assert_int_equal(block_of(t)->base.ops->space(t->s, &space), 0);
    assert_int_equal(space.free_bytes, 7 << 20);
    assert_int_equal(vj_store_remove(t->s, 0, first.loc), 0);
    assert_int_equal(vj_store_put_unaligned(t->s, id, &iov, 1, &put), 0);
}

static void test_what_is_empty_is_given_back_at_the_end(void **state)
{
    enum { COUNT = 20, LEN = 4 << 20 };
    VjStoreTest *t = *state;
    VjPut puts[COUNT];

    for (unsigned i = 0; i < COUNT; i++) {
        puts[i] = put_text(t, i, LEN);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(vj_store_remove(t->s, i, puts[i].loc), 0);
    }
    vj_store_test_reopen(t);
    assert_true(bytes_below(t) <= (uint64_t)65 << 20);
}

/* The file system below is full: what it has given before is used, wherever that is.  A
 * limit for the file stands for that. */
static void test_what_is_below_is_used_when_there_is_no_more(void **state)
{
    enum { LEN = 8 << 20, COUNT = 9, REMOVED = 4 }; /* 7 are in the first zone */
    VjStoreTest *t = *state;
    struct rlimit before, limit;
    VjPut puts[COUNT];
    struct stat st;

    for (unsigned i = 0; i < COUNT; i++) {
        puts[i] = put_text(t, i, LEN);
    }
    assert_int_equal(fstat(block_of(t)->fd, &st), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = (rlim_t)st.st_size, .rlim_max = before.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (unsigned i = 0; i < REMOVED; i++) {
        assert_int_equal(vj_store_remove(t->s, i, puts[i].loc), 0);
    }
    for (unsigned i = 0; i < REMOVED; i++) {
        puts[i] = put_text(t, i, LEN);
    }
    /* What is emptied is given back, and has room again. */
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(vj_store_remove(t->s, i, puts[i].loc), 0);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        puts[i] = put_text(t, i, LEN);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    for (unsigned i = 0; i < COUNT; i++) {
        expect_text(t, &puts[i]);
    }
    assert_int_equal(vj_store_flush(t->s), 0);
}

/* A zone that could not be reserved as a whole: no write into it finds out late. */
static void test_what_is_written_directly_has_its_room(void **state)
{
    VjStoreTest *t = *state;
    uint8_t bytes[20000] = {0};
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof bytes};
    VjPut first, put;

    room_below = 20480;
    first = put_text(t, 1, 20000);
    room_below = 4096;
    assert_int_equal(vj_store_put_unaligned(t->s, 2, &iov, 1, &put), -ENOSPC);
    room_below = 20480;
    assert_int_equal(vj_store_put_unaligned(t->s, 2, &iov, 1, &put), 0);
    room_below = G_MAXINT64;
    assert_int_equal(vj_store_flush(t->s), 0);
    expect_text(t, &first);
}

static void fail_fallocate(int error, bool punches, unsigned times)
{
    fallocate_error = error;
    fallocate_punches = punches;
    fallocate_fails = times;
    fallocate_failed = 0;
}

/* Setting room aside fails: interrupted it is done again, where the file system below has
 * no such call it is done without, and else the put fails and leaves nothing. */
static void test_room_that_cannot_be_set_aside(void **state)
{
    VjStoreTest *t = *state;
    VjBlockStore *b = block_of(t);
    uint8_t bytes[20000] = {0};
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof bytes};
    uint64_t used = b->space.used_count;
    VjPut first, second, put;

    fail_fallocate(EIO, false, 2); /* of a zone, and of the object itself */
    assert_int_equal(vj_store_put_unaligned(t->s, 3, &iov, 1, &put), -EIO);
    assert_int_equal(fallocate_failed, 2);
    assert_int_equal(b->space.used_count, used);
    fail_fallocate(EINTR, false, 3);
    first = put_text(t, 1, 20000);
    assert_int_equal(fallocate_failed, 3);
    fail_fallocate(EOPNOTSUPP, false, 1);
    second = put_text(t, 2, 20000);
    assert_int_equal(fallocate_failed, 1);
    assert_int_equal(vj_store_flush(t->s), 0);
    expect_text(t, &first);
    expect_text(t, &second);
}

/* What cannot be given back is used again, and nothing more is tried. */
static void test_what_cannot_be_given_back_is_used_again(void **state)
{
    enum { LEN = 8 << 20, COUNT = 23, IN_FIRST_ZONE = 7 };
    VjStoreTest *t = *state;
    VjPut puts[COUNT];

    for (unsigned i = 0; i < COUNT; i++) {
        puts[i] = put_text(t, i, LEN);
    }
    assert_int_equal(vj_store_flush(t->s), 0);
    for (unsigned i = IN_FIRST_ZONE; i < COUNT; i++) {
        assert_int_equal(vj_store_remove(t->s, i, puts[i].loc), 0);
    }
    fail_fallocate(EIO, true, 100);
    assert_int_equal(vj_store_flush_removes(t->s), 0);
    assert_int_equal(fallocate_failed, 1);
    for (unsigned i = IN_FIRST_ZONE; i < COUNT; i++) {
        puts[i] = put_text(t, COUNT + i, LEN);
    }
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(fallocate_failed, 1);
    fail_fallocate(0, false, 0);
    for (unsigned i = 0; i < COUNT; i++) {
        expect_text(t, &puts[i]);
    }
}

static void test_a_put_waits_for_what_is_being_given_back(void **state)
{
    enum { LEN = 8 << 20, COUNT = 15, IN_FIRST_ZONE = 7 };
    VjStoreTest *t = *state;
    LatePut late = {.s = t->s};
    VjPut puts[COUNT];

    for (unsigned i = 0; i < COUNT; i++) {
        puts[i] = put_text(t, i, LEN);
    }
    for (unsigned i = IN_FIRST_ZONE; i < COUNT; i++) {
        assert_int_equal(vj_store_remove(t->s, i, puts[i].loc), 0);
    }
    late_put = &late;
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_null(late_put);
    assert_int_equal(pthread_join(late.thread, NULL), 0);
    assert_int_equal(late.rc, 0);
    expect_text(t, &puts[0]);
}

/* ---- syncs ------------------------------------------------------------------------- */

static void test_a_flush_syncs_once_for_what_is_new(void **state)
{
    VjStoreTest *t = *state;
    VjPut put = put_text(t, 1, 100);
    unsigned before;

    assert_int_equal(vj_store_flush(t->s), 0);
    before = syncs;
    assert_int_equal(vj_store_flush(t->s), 0); /* there is nothing new */
    assert_int_equal(syncs, before);
    put_text(t, 2, 100);
    put_text(t, 3, 100000);
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(syncs, before + 1);
    expect_text(t, &put);
    vj_store_test_reopen(t);
    before = syncs;
    assert_int_equal(vj_store_flush(t->s), 0); /* what an earlier process put */
    assert_int_equal(syncs, before + 1);
}

#if HAVE_LIBAIO

/* The write of a buffer that is aligned, in whole, has it and no copy. */
static void test_a_buffer_is_held_while_it_is_written(void **state)
{
    VjStoreTest *t = *state;
    g_autoptr(VjBuf) buf = vj_buf_new(2 * VJ_BLOCK_BYTES);
    struct iovec iov = {.iov_base = buf->data, .iov_len = 5000};
    VjStore *driver = t->s;
    VjPut put;

    assert_true(vj_store_wrap("stats", driver, &t->s, NULL));
    vj_store_test_fill(buf->data, 5000, 1);
    assert_int_equal(vj_store_put_held(t->s, 1, buf, &iov, 1, &put), 0);
    assert_int_equal(buf->refs, 2);
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(buf->refs, 1);
    expect_text(t, &put);
}

static void test_a_flush_waits_for_a_write_that_the_kernel_refused(void **state)
{
    VjStoreTest *t = *state;
    void *rc = NULL;
    VjPut put;

    flushed = t->s;
    put = put_text(t, 1, 5000);
    assert_int_equal(pthread_join(flusher, &rc), 0);
    flushed = NULL;
    assert_int_equal(GPOINTER_TO_INT(rc), 0);
    expect_text(t, &put);
}

#endif

static void test_what_a_failed_sync_met_is_in_doubt(void **state)
{
    VjStoreTest *t = *state;
    VjPut safe = put_text(t, 1, 5000), doubtful, gone, later;

    assert_int_equal(vj_store_flush(t->s), 0);
    doubtful = put_text(t, 2, 5000);
    gone = put_text(t, 3, 5000);
    assert_int_equal(vj_store_remove(t->s, 3, gone.loc), 0);
    sync_error = EIO;
    assert_int_equal(vj_store_flush(t->s), -EIO);
    sync_error = 0;
    assert_int_equal(vj_store_flush(t->s), -EIO); /* no later sync tells */
    later = put_text(t, 4, 5000);
    assert_int_equal(vj_store_flush(t->s), -EIO);
    assert_int_equal(vj_store_remove(t->s, 2, doubtful.loc), 0);
    assert_int_equal(vj_store_flush(t->s), 0);
    expect_text(t, &safe);
    expect_text(t, &later);
}

/* The bytes of an object where they were put. */
static bool is_there(VjStoreTest *t, uint64_t id, size_t len, uint64_t first_block)
{
    g_autofree uint8_t *want = g_malloc(len), *got = g_malloc(len),
                       *zero = g_malloc0(len);
    VJ_AUTO_FD fd = openat(t->dir_fd, "blocks", O_RDONLY | O_CLOEXEC);

    vj_store_test_fill(want, len, id);
    assert_int_equal(vj_fd_pread_all(fd, got, len, first_block * VJ_BLOCK_BYTES), 0);
    if (memcmp(want, got, len) == 0) {
        return true;
    }
    assert_memory_equal(got, zero, len);
    return false;
}

static uint64_t first_block_of(VjStoreTest *t, uint64_t id, VjLoc loc)
{
    VjBlockStore *b = block_of(t);
    uint32_t nonce = 0;
    uint64_t first;

    assert_true(vj_block_loc_decode(loc, &nonce));
    vj_mutex_lock(&b->lock);
    first = vj_block_object_of(vj_block_table_find(&b->objects, id, nonce)).first_block;
    vj_mutex_unlock(&b->lock);
    return first;
}

typedef struct Removal {
    VjStoreTest *t;
    VjPut object;
} Removal;

static gpointer remove_main(gpointer opaque)
{
    const Removal *r = opaque;

    return GINT_TO_POINTER(vj_store_remove(r->t->s, r->object.id, r->object.loc));
}

/* Removes of one object at the same time: one overwrites it, the others wait for that;
 * else they would overwrite what has its blocks by then. */
static void test_erases_once(void **state)
{
    enum { LEN = 300000, THREADS = 4, ROUNDS = 40 };
    VjStoreTest *t = *state;

    for (uint64_t i = 1; i <= ROUNDS; i++) {
        Removal r = {.t = t, .object = put_text(t, i, LEN)};
        GThread *threads[THREADS];
        unsigned syncs_before;

        assert_int_equal(vj_store_flush(t->s), 0);
        syncs_before = syncs;
        for (size_t k = 0; k < THREADS; k++) {
            threads[k] = g_thread_new("remove", remove_main, &r);
        }
        for (size_t k = 0; k < THREADS; k++) {
            assert_int_equal(GPOINTER_TO_INT(g_thread_join(threads[k])), 0);
        }
        assert_int_equal(syncs, syncs_before + 1);
    }
}

/* Zeroes, on the device before the remove returns, also of one that was not flushed; the
 * neighbours stay what they are. */
static void test_erases(void **state)
{
    enum { LEN = (5 << 20) + 4097 };
    VjStoreTest *t = *state;
    VjPut before = put_text(t, 1, 5000), object = put_text(t, 2, LEN);
    VjPut after = put_text(t, 3, 5000), small = put_text(t, 4, 10);
    uint64_t first = first_block_of(t, 2, object.loc);
    uint64_t first_small = first_block_of(t, 4, small.loc);
    unsigned syncs_before;

    assert_int_equal(vj_store_flush(t->s), 0);
    assert_true(is_there(t, 2, LEN, first));
    syncs_before = syncs;
    assert_int_equal(vj_store_remove(t->s, 2, object.loc), 0);
    assert_int_equal(syncs, syncs_before + 1);
    assert_false(is_there(t, 2, LEN, first));
    assert_int_equal(vj_store_remove(t->s, 4, small.loc), 0);
    assert_false(is_there(t, 4, 10, first_small));
    assert_int_equal(vj_store_remove(t->s, 4, small.loc), 0);
    expect_text(t, &before);
    expect_text(t, &after);
}

static uint64_t used_blocks(VjStoreTest *t)
{
    VjBlockStore *b = block_of(t);
    uint64_t used;

    vj_mutex_lock(&b->lock);
    used = b->space.used_count;
    vj_mutex_unlock(&b->lock);
    return used;
}

/* What cannot be overwritten is tried again after a pause; meanwhile it keeps its blocks,
 * and nothing else. */
static void test_tries_to_erase_again(void **state)
{
    VjStoreTest *t = *state;
    VjPut object = put_text(t, 1, 5000), other = put_text(t, 2, 5000);
    uint64_t first = first_block_of(t, 1, object.loc), used;

    assert_int_equal(vj_store_flush(t->s), 0);
    used = used_blocks(t);
    sync_error = EIO;
    assert_int_equal(vj_store_remove(t->s, 1, object.loc), -EIO);
    sync_error = 0;
    vj_store_test_expect_erasures(t->s, 1, 0);
    vj_store_test_pass_pause(1);
    sync_error = EIO;
    assert_int_equal(vj_store_remove(t->s, 1, object.loc), -EIO);
    sync_error = 0;
    assert_int_equal(vj_store_remove(t->s, 1, object.loc), -EIO); /* too early */
    assert_int_equal(used_blocks(t), used);
    assert_int_equal(vj_store_remove(t->s, 2, other.loc), 0);
    assert_int_equal(vj_store_flush(t->s), 0);
    vj_store_test_pass_pause(2);
    assert_int_equal(vj_store_remove(t->s, 1, object.loc), 0);
    assert_false(is_there(t, 1, 5000, first));
    assert_int_equal(used_blocks(t), used - 4);
    vj_store_test_expect_erasures(t->s, 0, 0);
    vj_clock_set_for_test(NULL, 0);
}

/* At last it goes.  What is put next does not meet the same blocks until the next open
 * has counted them again. */
static void test_gives_up_to_erase(void **state)
{
    VjStoreTest *t = *state;
    VjPut object = put_text(t, 1, 5000);
    uint64_t used;
    uint8_t byte;

    assert_int_equal(vj_store_flush(t->s), 0);
    used = used_blocks(t);
    sync_error = EIO;
    for (unsigned i = 1; i < VJ_ERASE_TRIES_MAX; i++) {
        assert_int_equal(vj_store_remove(t->s, 1, object.loc), -EIO);
        vj_store_test_expect_erasures(t->s, 1, 0);
        vj_store_test_pass_pause(i);
    }
    assert_int_equal(vj_store_remove(t->s, 1, object.loc), 0);
    sync_error = 0;
    vj_clock_set_for_test(NULL, 0);
    vj_store_test_expect_erasures(t->s, 0, 1);
    assert_int_equal(vj_store_get_unaligned(t->s, 1, object.loc, 0, &byte, 1), -ENOENT);
    assert_int_equal(used_blocks(t), used);
    vj_store_test_reopen(t);
    assert_int_equal(used_blocks(t), used - 2);
}

/* What is in doubt is removed so that a flush may succeed again: it does, whether the
 * device lets it be overwritten or not. */
static void test_doubt_ends_where_nothing_can_be_erased(void **state)
{
    VjStoreTest *t = *state;
    VjPut object = put_text(t, 1, 5000);

    sync_error = EIO;
    assert_int_equal(vj_store_flush(t->s), -EIO);
    assert_int_equal(vj_store_remove(t->s, 1, object.loc), -EIO);
    sync_error = 0;
    assert_int_equal(vj_store_flush(t->s), 0);
}

int main(void)
{
    static char small[] = "block:size=64M", direct[] = "block:direct=yes",
                cached[] = "block", erasing[] = "block:erase=yes,discard=no",
                erasing_direct[] = "block:erase=yes,direct=yes,discard=no",
                two_zones[] = "block:size=128M";
#define ON(test_, spec_)                                                                 \
    {                                                                                    \
#test_, test_, vj_store_test_setup, vj_store_test_teardown, spec_                \
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_space_is_as_an_array_has_it),
        cmocka_unit_test(test_space_marks_what_keys_say),
        cmocka_unit_test(test_table_is_as_a_hash_table_has_it),
        cmocka_unit_test(test_superblocks_and_keys_as_bytes),
        ON(test_one_superblock_is_enough, cached),
        ON(test_a_place_of_others_is_refused, cached),
        ON(test_a_place_is_free_when_its_key_is_gone, cached),
        ON(test_a_place_is_free_when_its_key_is_gone, direct),
        ON(test_what_is_empty_is_given_back, cached),
        ON(test_what_is_below_is_used_when_there_is_no_more, cached),
        ON(test_what_is_empty_is_given_back, direct),
        ON(test_what_is_below_is_used_when_there_is_no_more, direct),
        ON(test_what_is_empty_is_given_back_at_the_end, cached),
        ON(test_full, small),
        ON(test_what_is_written_directly_has_its_room, direct),
        ON(test_room_that_cannot_be_set_aside, direct),
        ON(test_what_cannot_be_given_back_is_used_again, cached),
        ON(test_what_cannot_be_given_back_is_used_again, direct),
        ON(test_a_put_waits_for_what_is_being_given_back, two_zones),
        ON(test_a_flush_syncs_once_for_what_is_new, cached),
        ON(test_a_flush_syncs_once_for_what_is_new, direct),
#if HAVE_LIBAIO
        ON(test_a_buffer_is_held_while_it_is_written, direct),
        ON(test_a_flush_waits_for_a_write_that_the_kernel_refused, direct),
#endif
        ON(test_what_a_failed_sync_met_is_in_doubt, cached),
        ON(test_what_a_failed_sync_met_is_in_doubt, direct),
        ON(test_erases, erasing),
        ON(test_erases_once, erasing),
        ON(test_erases, erasing_direct),
        ON(test_tries_to_erase_again, erasing),
        ON(test_tries_to_erase_again, erasing_direct),
        ON(test_gives_up_to_erase, erasing),
        ON(test_gives_up_to_erase, erasing_direct),
        ON(test_doubt_ends_where_nothing_can_be_erased, erasing),
        ON(test_doubt_ends_where_nothing_can_be_erased, erasing_direct),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
