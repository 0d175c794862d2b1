/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-open.c - what the lmdb driver accepts as its own, and what it needs
 */
#include <sys/resource.h>
#include <sys/stat.h>

#include "meta-fixture.h"
#include "meta/lmdb-format.h"

/* Opens the closed fixture's directory, expecting a refusal that says @says. */
static void refuse(const Fixture *f, VjMetaPlace place, int code, const char *says)
{
    g_autoptr(GError) error = NULL;
    VjMeta *m;

    place.dir_fd = f->dir_fd;
    place.path = f->path;
    assert_false(vj_meta_open("lmdb", &place, &m, &error));
    assert_null(m);
    assert_int_equal(error->code, code);
    if (strstr(error->message, says) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", error->message, says);
    }
}

/* Writes a record behind the driver's back; @data NULL: removes it. */
static void set_record(const Fixture *f, const char *space, MDB_val *key, MDB_val *data)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;

    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_mapsize(env, 64 * VJ_MIB), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, VJ_SPACE_COUNT), 0);
    assert_int_equal(mdb_env_open(env, f->path, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, space, 0, &dbi), 0);
    assert_int_equal(
        data != NULL ? mdb_put(txn, dbi, key, data, 0) : mdb_del(txn, dbi, key, NULL), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

/* The format record; NULL: removes it. */
static void set_format(const Fixture *f, const void *value, size_t len)
{
    MDB_val key = {.mv_size = strlen(VJ_LMDB_FORMAT_KEY), .mv_data = VJ_LMDB_FORMAT_KEY};
    MDB_val data = {.mv_size = len, .mv_data = (void *)value};

    set_record(f, NULL, &key, value != NULL ? &data : NULL);
}

static VjLmdbFormat format_of_version(uint8_t version)
{
    VjLmdbFormat format = {.version = {version}};
    uint64_t checksum;

    memcpy(format.magic, VJ_LMDB_FORMAT_MAGIC, sizeof format.magic);
    checksum = GUINT64_TO_LE(vj_checksum64(&format, offsetof(VjLmdbFormat, checksum)));
    memcpy(format.checksum, &checksum, sizeof format.checksum);
    return format;
}

static void test_format(void **state)
{
    Fixture f = fixture_new("lmdb");
    VjLmdbFormat format = format_of_version(VJ_LMDB_FORMAT_VERSION);

    (void)state;
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, 1, 10), 0);
    fixture_close(&f);

    set_format(&f, &format, sizeof format - 1);
    refuse(&f, (VjMetaPlace){.create = false}, EBADMSG, "not varjfs's");
    format.reserved[0] ^= 1;
    set_format(&f, &format, sizeof format);
    refuse(&f, (VjMetaPlace){.create = false}, EBADMSG, "not varjfs's");
    format = format_of_version(VJ_LMDB_FORMAT_LOGGED + 1);
    set_format(&f, &format, sizeof format);
    refuse(&f, (VjMetaPlace){.create = false}, EPROTONOSUPPORT, "version 3");
    refuse(&f, (VjMetaPlace){.read_only = true}, EPROTONOSUPPORT, "version 3");
    set_format(&f, NULL, 0);
    refuse(&f, (VjMetaPlace){.create = false}, EBADMSG, "not varjfs's");

    format = format_of_version(VJ_LMDB_FORMAT_VERSION);
    set_format(&f, &format, sizeof format);
    fixture_open(&f, "lmdb", false);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 1), 10);
    fixture_free(&f);
}

static void test_not_a_database(void **state)
{
    Fixture f = fixture_new("lmdb");
    g_autofree char *name = g_build_filename(f.path, "data.mdb", NULL);

    (void)state;
    fixture_close(&f);
    assert_true(g_file_set_contents(name, "no database at all", -1, NULL));
    refuse(&f, (VjMetaPlace){.create = false}, EIO, "mdb_env_open");
    refuse(&f, (VjMetaPlace){.create = true}, EIO, "mdb_env_open");
    fixture_free(&f);
}

/* A copy that was broken off. */
static void test_end_missing(void **state)
{
    Fixture f = fixture_new("lmdb");
    g_autofree char *name = g_build_filename(f.path, "data.mdb", NULL);

    (void)state;
    for (uint64_t i = 1; i <= 2000; i++) {
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, i, 100), 0);
    }
    fixture_close(&f);
    assert_int_equal(truncate(name, 8192), 0);
    refuse(&f, (VjMetaPlace){.read_only = true}, EBADMSG, "its end is missing");
    refuse(&f, (VjMetaPlace){.create = false}, EBADMSG, "its end is missing");
    fixture_free(&f);
}

/* A length that the driver cannot have written. */
static void test_long_value(void **state)
{
    Fixture f = fixture_new("lmdb");
    g_autofree char *bytes = g_malloc0(VJ_META_VALUE_MAX + 1);
    MDB_val key = {.mv_size = 8, .mv_data = (void *)"too long"};
    MDB_val data = {.mv_size = VJ_META_VALUE_MAX + 1, .mv_data = bytes};
    g_autofree char *space = g_strdup_printf("s%02u", (unsigned)VJ_SPACE_INODE);
    VjTxn *txn;
    VjSlice found_key, found;

    (void)state;
    fixture_close(&f);
    set_record(&f, space, &key, &data);
    fixture_open(&f, "lmdb", false);
    assert_int_equal(begin_snapshot(f.meta, &txn), 0);
    assert_int_equal(vj_txn_get(txn, VJ_SPACE_INODE, vj_slice(key.mv_data, 8), &found),
                     -EBADMSG);
    assert_int_equal(
        vj_txn_next(txn, VJ_SPACE_INODE, vj_slice(NULL, 0), &found_key, &found),
        -EBADMSG);
    assert_false(vj_txn_abort(txn));
    fixture_free(&f);
}

static void test_places(void **state)
{
    Fixture f = fixture_new("lmdb");
    VjMetaPlace nowhere = {.dir_fd = -1};
    g_autoptr(GError) error = NULL;
    VjMeta *m;

    (void)state;
    fixture_close(&f);
    refuse(&f, (VjMetaPlace){.create = true, .read_only = true}, EINVAL, "read-only");
    assert_false(vj_meta_open("lmdb", &nowhere, &m, &error));
    assert_int_equal(error->code, EINVAL);
    /* mkfs over what is there keeps it. */
    fixture_open(&f, "lmdb", true);
    fixture_free(&f);
}

/* Little address space: a smaller map, and everything works. */
static void test_address_space(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)state;
    skip();
#else
    Fixture f = fixture_new("lmdb");
    struct rlimit before, limit;

    (void)state;
    fixture_close(&f);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = 8 * VJ_GIB;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    fixture_open(&f, "lmdb", false);
    assert_true(((VjLmdb *)fixture_engine(&f))->map_bytes <=
                2 * VJ_GIB); /* some is left for others */
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, 1, 10), 0);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    fixture_free(&f);
#endif
}

/* More open transactions than there are reader slots: an error, and room again
 * afterwards. */
static void test_many_readers(void **state)
{
    Fixture f = fixture_new("lmdb");
    g_autofree VjTxn **open = g_new0(VjTxn *, VJ_LMDB_READERS_MAX + 1);
    unsigned count = 0;
    int rc;

    (void)state;
    while ((rc = begin_snapshot(f.meta, &open[count])) == 0) {
        count++;
        assert_true(count <= VJ_LMDB_READERS_MAX);
    }
    assert_int_equal(rc, -EIO);
    assert_int_equal(count, VJ_LMDB_READERS_MAX);
    assert_false(vj_txn_abort(open[--count]));
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, 1, 10), 0);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    while (count > 0) {
        assert_false(vj_txn_abort(open[--count]));
    }
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 1), 10);
    fixture_free(&f);
}

static int huge_body(VjTxn *txn, void *opaque)
{
    static const uint8_t value[VJ_META_VALUE_MAX];
    uint64_t *count = opaque;
    uint8_t key[8];
    int rc;

    do {
        rc = vj_txn_put(txn, VJ_SPACE_XATTR, numbered_key((*count)++, key),
                        vj_slice(value, sizeof value));
    } while (rc == 0);
    return rc;
}

/* A transaction without end is refused before it has eaten the memory. */
static void test_huge_transaction(void **state)
{
    Fixture f = fixture_new("lmdb");
    uint64_t count = 0;

    (void)state;
    assert_int_equal(vj_meta_run(f.meta, VJ_RUN_DEFAULT, huge_body, &count), -ENOMEM);
    assert_in_range(count, VJ_TXN_BYTES_MAX / VJ_META_VALUE_MAX - 2,
                    VJ_TXN_BYTES_MAX / VJ_META_VALUE_MAX + 3);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_XATTR, 0), -ENOENT);
    fixture_free(&f);
}

/* Each engine of the table says what it takes; who takes no files opens without any. */
static void test_needs(void **state)
{
    static const VjMetaPlace nowhere = {.dir_fd = -1, .path = "nowhere", .create = true};

    (void)state;
    assert_int_equal(vj_meta_needs("lmdb"), VJ_NEEDS_FILES);
    assert_int_equal(vj_meta_needs("lmdb:redo=0,no such option"), VJ_NEEDS_FILES);
    assert_int_equal(vj_meta_needs("memory:name=x"), 0);
    assert_int_equal(vj_meta_needs("lmd"), 0);
    assert_int_equal(vj_meta_needs("latency"), 0);
    assert_int_equal(vj_meta_needs("remote:unix:/there"), VJ_NEEDS_UNIX);
    assert_int_equal(vj_meta_needs("remote:there"), VJ_NEEDS_TCP);
    for (size_t i = 0; vj_engine_drivers[i] != NULL; i++) {
        const VjEngineOps *ops = vj_engine_drivers[i];
        g_autoptr(GError) error = NULL;
        VjMeta *m;

        assert_int_equal(ops->needs & ~(uint32_t)VJ_NEEDS_ALL, 0);
        if (ops->needs_of != NULL) {
            continue; /* what it takes depends on its address */
        }
        assert_int_equal(vj_meta_needs(ops->name), ops->needs);
        if ((ops->needs & VJ_NEEDS_FILES) == 0) {
            assert_true(vj_meta_open(ops->name, &nowhere, &m, &error));
            assert_int_equal(vj_meta_close(m), 0);
        }
    }
}

/* What is asked of an engine's file without opening it. */
static void test_file(void **state)
{
    Fixture f = fixture_new("lmdb");
    VjMetaPlace place = {.dir_fd = f.dir_fd, .path = f.path};
    const char *name = vj_meta_file("lmdb:redo=0");
    uint64_t bytes;
    struct stat st;

    (void)state;
    assert_non_null(name);
    assert_int_equal(fstatat(f.dir_fd, name, &st, 0), 0);
    assert_int_equal(vj_meta_file_bytes("lmdb", &place, &bytes), 0);
    assert_int_equal(bytes, st.st_size);
    assert_true(bytes > 0);
    assert_null(vj_meta_file("memory"));
    assert_null(vj_meta_file("lmd"));
    assert_int_equal(vj_meta_file_bytes("memory", &place, &bytes), -EOPNOTSUPP);
    fixture_close(&f);
    assert_int_equal(unlinkat(f.dir_fd, name, 0), 0);
    assert_int_equal(vj_meta_file_bytes("lmdb", &place, &bytes), -ENOENT);
    assert_int_equal(symlinkat("elsewhere", f.dir_fd, name), 0);
    assert_int_equal(vj_meta_file_bytes("lmdb", &place, &bytes), 0);
    assert_int_equal(bytes, 0);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format),       cmocka_unit_test(test_not_a_database),
        cmocka_unit_test(test_places),       cmocka_unit_test(test_address_space),
        cmocka_unit_test(test_many_readers), cmocka_unit_test(test_huge_transaction),
        cmocka_unit_test(test_end_missing),  cmocka_unit_test(test_long_value),
        cmocka_unit_test(test_needs),        cmocka_unit_test(test_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
