/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Pages of an LMDB file from anybody.  A file that the engine wrote is changed as the
 * input says and examined.  What the walk finds sound LMDB can open and read to the last
 * key: it would end the process, or never end, where that is not so.
 *
 * The input: changes of a page (2), what (1), where (2), a number (8).
 */
#include "fuzz-volume.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "meta/lmdb-private.h"
#include "meta/lmdb-walk.h"

#define CHANGES_MAX 16

static char *dir;
static char *file_path;
static GByteArray *sound; /* the file */
static uint64_t page_bytes, page_count;

/* ---- the file ---------------------------------------------------------------------- */

static int fill_body(VjTxn *txn, void *opaque)
{
    VjRng r;
    int rc = 0;

    vj_rng_init(&r, *(uint64_t *)opaque);
    for (unsigned i = 0; rc == 0 && i < 220; i++) {
        uint8_t key[200], value[9000];
        size_t key_len = 8 + (size_t)vj_rng_below(&r, i % 10 == 0 ? 190 : 8);
        size_t len = (size_t)vj_rng_below(&r, i % 50 == 0 ? sizeof value : 120);

        vj_rng_bytes(&r, key, key_len);
        vj_rng_bytes(&r, value, len);
        rc = vj_txn_put(txn, (VjSpace)(i % 3 == 0 ? i % 5 : 2), vj_slice(key, key_len),
                        vj_slice(value, len));
    }
    return rc;
}

static VjMeta *open_meta(bool create, bool read_only)
{
    static int fd = -1;
    VjMetaPlace place = {
        .dir_fd = fd, .path = dir, .create = create, .read_only = read_only};
    g_autoptr(GError) error = NULL;
    VjMeta *m;

    if (fd < 0) {
        place.dir_fd = fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        g_assert(fd >= 0);
    }
    if (!vj_meta_open("lmdb:redo=0", &place, &m, &error)) {
        fuzz_expect_line(error->message);
        return NULL;
    }
    return m;
}

static void end(void)
{
    g_byte_array_unref(sound);
    g_free(file_path);
    fuzz_dir_remove(dir);
}

static void begin(void)
{
    VjLmdbWalk w;
    VjMeta *m;
    char *text;
    gsize len;
    VJ_AUTO_FD fd = -1;

    dir = fuzz_dir_new();
    file_path = g_build_filename(dir, VJ_LMDB_FILE, NULL);
    m = open_meta(true, false);
    g_assert(m != NULL);
    for (uint64_t seed = 1; seed < 4;
         seed++) { /* several commits: there are free pages */
        g_assert(vj_meta_run(m, VJ_RUN_DEFAULT, fill_body, &seed) == 0);
        g_assert(vj_meta_flush(m) == 0);
    }
    g_assert(vj_meta_close(m) == 0);
    g_assert(g_file_get_contents(file_path, &text, &len, NULL));
    sound = g_byte_array_new_take((guint8 *)text, len);
    fd = open(file_path, O_RDONLY | O_CLOEXEC);
    g_assert(fd >= 0 && vj_lmdb_walk(fd, UINT64_MAX, NULL, NULL, NULL, &w) == 0);
    g_assert(w.flaws == 0 && w.entries > 300);
    page_bytes = w.page_bytes;
    page_count = MIN(w.end_page, len / page_bytes);
    /* What is allocated behind it is as good as the end of the file. */
    g_byte_array_set_size(sound, (guint)(page_count * page_bytes));
    vj_lmdb_walk_clear(&w);
    atexit(end);
}

/* ---- changes ----------------------------------------------------------------------- */

static void change(VjReader *in, uint8_t *bytes)
{
    uint64_t page = vj_read_u16(in) % page_count;
    uint8_t what = vj_read_u8(in);
    uint64_t where = vj_read_u16(in) % page_bytes, number = vj_read_u64(in);
    uint8_t *at = bytes + page * page_bytes + where;
    size_t room = page_bytes - where;
    uint64_t other = number % page_count;

    switch (what % 8) {
    case 0: /* also what hardly changes: the first bytes hold the numbers */
        bytes[page * page_bytes + where % 64] = (uint8_t)number;
        break;
    case 1:
        memcpy(at, &number, MIN(room, 2));
        break;
    case 2:
        memcpy(at, &number, MIN(room, 8));
        break;
    case 3:
        *at ^= (uint8_t)(1u << (number % 8));
        break;
    case 4: /* another page stands there, and says that it belongs there */
        memmove(bytes + page * page_bytes, bytes + other * page_bytes, page_bytes);
        memcpy(bytes + page * page_bytes, &page, sizeof page);
        break;
    case 5:
        memmove(bytes + page * page_bytes, bytes + other * page_bytes, page_bytes);
        break;
    case 6: /* an offset of a node */
        memcpy(bytes + page * page_bytes + VJ_LMDB_PAGE_HEAD + where % 64 * 2, &number,
               2);
        break;
    default:
        memset(at, (int)number, MIN(room, what));
        break;
    }
}

/* ---- reading ----------------------------------------------------------------------- */

static void expect_flaw_line(void *opaque, const char *text)
{
    (void)opaque;
    fuzz_expect_line(text);
}

/* True: the walk finds nothing wrong. */
static bool is_sound(const uint8_t *bytes, size_t len, uint64_t *entries)
{
    VJ_AUTO_FD fd = memfd_create("fuzz", MFD_CLOEXEC);
    VjLmdbWalk w;
    bool good;
    int r;

    g_assert(fd >= 0 && vj_fd_write_all(fd, bytes, len) == 0);
    r = vj_lmdb_walk(fd, UINT64_MAX, expect_flaw_line, NULL, NULL, &w);
    g_assert(r == 0);
    good = w.flaws == 0;
    *entries = w.entries;
    vj_lmdb_walk_clear(&w);
    return good;
}

static uint64_t read_space(VjTxn *txn, VjSpace space)
{
    uint8_t after[VJ_META_KEY_MAX], sum = 0;
    VjSlice at = vj_slice(NULL, 0), key, value, again;
    uint64_t count = 0;

    while (vj_txn_next(txn, space, at, &key, &value) == 0) {
        g_assert(key.len > 0 && key.len <= sizeof after);
        g_assert(at.len == 0 || vj_slice_compare(at, key) < 0);
        memcpy(after, key.data, key.len);
        at = vj_slice(after, key.len);
        for (size_t i = 0; i < value.len; i++) {
            sum ^= ((const uint8_t *)value.data)[i];
        }
        g_assert(vj_txn_get(txn, space, at, &again) == 0 && again.len == value.len);
        count++;
    }
    (void)sum;
    return count;
}

/* @opaque: how many keys there are, as far as they can be read. */
static int read_all_body(VjTxn *txn, void *opaque)
{
    uint64_t *count = opaque;

    *count = 0;
    for (unsigned s = 0; s < VJ_SPACE_COUNT; s++) {
        *count += read_space(txn, (VjSpace)s);
    }
    return 0;
}

/* All that LMDB finds is not more than the walk has seen. */
static void read_by_lmdb(const uint8_t *bytes, size_t len, uint64_t entries)
{
    VjMeta *m;
    uint64_t count = 0;

    g_assert(g_file_set_contents(file_path, (const char *)bytes, (gssize)len, NULL));
    m = open_meta(false, true);
    if (m == NULL) {
        return; /* of a version, or with trees, that are not ours */
    }
    (void)!vj_meta_view(m, read_all_body, &count);
    g_assert(count <= entries);
    (void)!vj_meta_close(m);
}

FUZZ_MUTATIONS(30);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    VjReader in = vj_reader(vj_slice(data, len));
    g_autofree uint8_t *bytes = NULL;
    uint64_t entries;

    fuzz_quiet();
    if (dir == NULL) {
        begin();
    }
    bytes = g_memdup2(sound->data, sound->len);
    for (unsigned n = 0; n < CHANGES_MAX && in.left >= 13; n++) {
        change(&in, bytes);
    }
    if (is_sound(bytes, sound->len, &entries)) {
        read_by_lmdb(bytes, sound->len, entries);
    }
    return 0;
}
