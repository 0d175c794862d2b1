/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-clients.c - what programs ask for, one request at a time; fsck looks at the volume
 * behind each test
 */
#include "request.h"

#include "fs/fs-format.h"

#define OBJECT(k, ...) ((Op){.kind = VARJFS_WIRE_OBJECT_##k, .space = "s", __VA_ARGS__})
#define KEY(k, ...) ((Op){.kind = VARJFS_WIRE_KEY_##k, .space = "s", __VA_ARGS__})

static uint32_t put(VjClients *c, const char *key, const char *value)
{
    return run_one(c, KEY(PUT, .name = key, .brings = value, .len = strlen(value)));
}

static void expect_key(VjClients *c, const char *key, const char *value)
{
    Request q = request_new(0, 0);

    request_add(&q, KEY(GET, .name = key, .most = 100));
    request_run(&q, c);
    if (value == NULL) {
        assert_int_equal(status_of(&q, 0), VJ_WIRE_ABSENT);
    } else {
        assert_int_equal(status_of(&q, 0), VJ_WIRE_OK);
        assert_int_equal(value_of(&q, 0), strlen(value));
        assert_memory_equal(take(&q, strlen(value)), value, strlen(value));
    }
    request_end(&q);
}

static void expect_content(VjClients *c, const char *name, const char *text)
{
    Request q = request_new(0, 0);

    request_add(&q, OBJECT(READ, .name = name, .most = 1000));
    request_run(&q, c);
    assert_int_equal(status_of(&q, 0), VJ_WIRE_OK);
    assert_int_equal(value_of(&q, 0), strlen(text));
    assert_memory_equal(take(&q, strlen(text)), text, strlen(text));
    request_end(&q);
}

static uint32_t write_text(VjClients *c, const char *name, const char *text,
                           uint8_t flags)
{
    return run_one(c, OBJECT(WRITE, .flags = flags, .name = name, .brings = text,
                             .len = strlen(text)));
}

/* ---- objects ----------------------------------------------------------------------- */

static void test_objects(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Op make = OBJECT(CREATE, .name = "o", .flags = VARJFS_WIRE_EXCLUSIVE);

    assert_int_equal(run_one(c, OBJECT(READ, .name = "o", .most = 1)), VJ_WIRE_ABSENT);
    assert_int_equal(write_text(c, "o", "x", 0), VJ_WIRE_ABSENT);
    assert_int_equal(run_one(c, make), VJ_WIRE_OK);
    assert_int_equal(run_one(c, make), VARJFS_WIRE_EXISTS);
    assert_int_equal(run_one(c, OBJECT(CREATE, .name = "o")), VJ_WIRE_OK);
    expect_content(c, "o", "");
    assert_int_equal(write_text(c, "o", "0123456789", 0), VJ_WIRE_OK);
    assert_int_equal(run_one(c, OBJECT(RWRITE, .name = "o", .offset = 3, .old_len = 4,
                                       .brings = "ab", .len = 2)),
                     VJ_WIRE_OK);
    expect_content(c, "o", "012ab789");
    assert_int_equal(write_text(c, "o", "end", VARJFS_WIRE_APPEND), VJ_WIRE_OK);
    expect_content(c, "o", "012ab789end");
    assert_int_equal(write_text(c, "made", "x", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    expect_content(c, "made", "x");
    assert_int_equal(run_one(c, OBJECT(DELETE, .name = "o")), VJ_WIRE_OK);
    assert_int_equal(run_one(c, OBJECT(DELETE, .name = "o")), VJ_WIRE_ABSENT);
}

static void test_status(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Request q = request_new(0, VARJFS_WIRE_SAFETY_STORAGE);
    g_autofree char *long_text = g_strnfill(100000, 'a');
    const uint8_t *bytes;

    request_add(&q, OBJECT(CREATE, .name = "o", .brings = "transform=lz4\n", .len = 14,
                           .old_len = 14));
    request_add(&q, OBJECT(WRITE, .name = "o", .brings = long_text, .len = 100000));
    request_run(&q, c);
    assert_int_equal(status_of(&q, 1), VJ_WIRE_OK);
    request_end(&q);

    q = request_new(0, 0);
    request_add(&q, OBJECT(STATUS, .name = "o", .most = VARJFS_WIRE_STATUS_MAX));
    request_add(&q, OBJECT(STATUS, .name = "o", .most = 10));
    request_add(&q, OBJECT(STATUS, .name = "none", .most = VARJFS_WIRE_STATUS_MAX));
    request_run(&q, c);
    assert_int_equal(status_of(&q, 0), VJ_WIRE_OK);
    assert_int_equal(status_of(&q, 1), VARJFS_WIRE_RANGE);
    assert_int_equal(status_of(&q, 2), VJ_WIRE_ABSENT);
    assert_int_equal(value_of(&q, 0), VARJFS_WIRE_STATUS_BYTES + 3);
    bytes = take(&q, value_of(&q, 0));
    assert_int_equal(vj_le64_get(bytes), 100000);
    assert_in_range(vj_le64_get(bytes + 8), 1, 10000);
    assert_true(vj_le64_get(bytes + 16) >= vj_le64_get(bytes + 24));
    assert_memory_equal(bytes + VARJFS_WIRE_STATUS_BYTES, "lz4", 3);
    request_end(&q);
}

static void test_settings(void **state)
{
    static const char *const bad[] = {
        "transform=none such\n",     "transform=lz4", "color=red\n", "=\n", "transform\n",
        "mode=client\nmode=server\n"};
    VjClients *c = ((Fixture *)*state)->c;

    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        assert_int_equal(
            run_one(c, OBJECT(CREATE, .name = "o", .brings = bad[i],
                              .len = strlen(bad[i]), .old_len = strlen(bad[i]))),
            VARJFS_WIRE_SETTING);
        assert_int_equal(run_one(c, OBJECT(DELETE, .name = "o")), VJ_WIRE_ABSENT);
    }
    assert_int_equal(run_one(c, OBJECT(CREATE, .name = "o",
                                       .brings = "transform=zstd:3\nobjects=64K\n",
                                       .len = 29, .old_len = 29)),
                     VJ_WIRE_OK);
}

static void test_names(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    g_autofree char *longest = g_strnfill(VARJFS_WIRE_NAME_MAX, 'n');
    g_autofree char *longer = g_strnfill(VARJFS_WIRE_NAME_MAX + 1, 'n');
    g_autofree char *space = g_strnfill(VARJFS_WIRE_NAMESPACE_MAX + 1, 's');
    const char *bad[] = {".", "..", "a/b", "/", longer};
    const char *bad_spaces[] = {"", ".", "..", "../..", "a/b", space};

    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        assert_int_equal(run_one(c, OBJECT(CREATE, .name = bad[i])),
                         VARJFS_WIRE_NAMESPACE);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(bad_spaces); i++) {
        Op op = {.kind = VARJFS_WIRE_OBJECT_CREATE, .space = bad_spaces[i], .name = "o"};

        assert_int_equal(run_one(c, op), VARJFS_WIRE_NAMESPACE);
        op.kind = VARJFS_WIRE_KEY_PUT;
        assert_int_equal(run_one(c, op), VARJFS_WIRE_NAMESPACE);
    }
    assert_int_equal(run_one(c, OBJECT(CREATE, .name = "a\0b", .name_len = 3)),
                     VARJFS_WIRE_NAMESPACE);
    assert_int_equal(run_one(c, OBJECT(CREATE, .name = longest)), VJ_WIRE_OK);
    assert_int_equal(put(c, longest, "v"), VJ_WIRE_OK);
    assert_int_equal(put(c, longer, "v"), VARJFS_WIRE_NAMESPACE);
    assert_int_equal(put(c, "..", "v"), VJ_WIRE_OK); /* keys are any bytes */
    assert_int_equal(
        run_one(c, KEY(PUT, .name = "\0/\xff", .name_len = 3, .brings = "b", .len = 1)),
        VJ_WIRE_OK);
    expect_key(c, "..", "v");
}

static void test_offsets_beyond_all_files(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    static const uint64_t far[] = {VJ_FILE_SIZE_MAX + 1, UINT64_MAX};

    assert_int_equal(write_text(c, "o", "x", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    for (size_t i = 0; i < G_N_ELEMENTS(far); i++) {
        assert_int_equal(run_one(c, OBJECT(WRITE, .name = "o", .offset = far[i],
                                           .brings = "x", .len = 1)),
                         VJ_WIRE_TOO_LARGE);
        assert_int_equal(
            run_one(c, OBJECT(RWRITE, .name = "o", .offset = far[i],
                              .old_len = UINT64_MAX, .brings = "x", .len = 1)),
            VJ_WIRE_TOO_LARGE);
        assert_int_equal(
            run_one(c, OBJECT(READ, .name = "o", .offset = far[i], .most = 10)),
            VJ_WIRE_OK);
    }
    assert_int_equal(run_one(c, OBJECT(RWRITE, .name = "o", .offset = 0,
                                       .old_len = UINT64_MAX, .brings = "yz", .len = 2)),
                     VJ_WIRE_OK);
    expect_content(c, "o", "yz");
}

/* Written, deleted and made again in one batch, of which only what is there at the end
 * has to be safe. */
static void test_an_object_that_ends_in_its_batch(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Request q = request_new(0, VARJFS_WIRE_SAFETY_STORAGE);

    for (unsigned i = 0; i < 2; i++) {
        request_add(&q, OBJECT(WRITE, .name = "o", .flags = VARJFS_WIRE_MAKE,
                               .brings = "first", .len = 5));
        request_add(&q, OBJECT(DELETE, .name = "o"));
    }
    request_add(&q, OBJECT(WRITE, .name = "o", .flags = VARJFS_WIRE_MAKE, .brings = "2",
                           .len = 1));
    request_run(&q, c);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(status_of(&q, i), VJ_WIRE_OK);
    }
    request_end(&q);
    expect_content(c, "o", "2");
}

static uint64_t ino_of_space(VjClients *c, VjClientKind kind)
{
    uint64_t ino;

    assert_int_equal(vj_client_space(c, kind, vj_slice("s", 1), false, &ino), 0);
    return ino;
}

/* What is written, and then not deleted after all, has to be safe. */
static void write_and_try_to_delete(VjClients *c, const char *text, uint32_t status)
{
    Request q = request_new(0, VARJFS_WIRE_SAFETY_STORAGE);

    request_add(&q, OBJECT(WRITE, .name = "o", .brings = text, .len = strlen(text)));
    request_add(&q, OBJECT(DELETE, .name = "o"));
    request_run(&q, c);
    assert_int_equal(status_of(&q, 0), VJ_WIRE_OK);
    assert_int_equal(status_of(&q, 1), status);
    request_end(&q);
}

static void test_an_object_that_cannot_be_deleted(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    uint64_t space;
    Fixture copy;

    assert_int_equal(write_text(c, "o", "old", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    space = ino_of_space(c, VJ_CLIENT_OBJECTS);
    assert_int_equal(vj_fs_set_flags(c->fs, NULL, space, VJ_INODE_IMMUTABLE), 0);
    write_and_try_to_delete(c, "new", VJ_WIRE_REFUSED);
    fixture_copy(*state, &copy);
    expect_content(copy.c, "o", "new");
    copy_end(&copy);
    assert_int_equal(vj_fs_set_flags(c->fs, NULL, space, 0), 0);
}

/* chattr(1) of a program of a mount: it can be read, though not written. */
static void test_an_object_that_cannot_be_written(void **state)
{
    static const uint32_t protections[] = {VJ_INODE_IMMUTABLE, VJ_INODE_APPEND_ONLY};
    VjClients *c = ((Fixture *)*state)->c;
    VjAttr attr;

    assert_int_equal(write_text(c, "o", "text", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    assert_int_equal(
        vj_fs_lookup(c->fs, &c->who, ino_of_space(c, VJ_CLIENT_OBJECTS), "o", &attr), 0);
    for (unsigned i = 0; i < G_N_ELEMENTS(protections); i++) {
        Request q = request_new(0, VARJFS_WIRE_SAFETY_NONE);

        assert_int_equal(vj_fs_set_flags(c->fs, NULL, attr.st.st_ino, protections[i]), 0);
        vj_client_forget_all(c); /* as when it was open too long ago */
        request_add(&q, OBJECT(READ, .name = "o", .most = 10));
        request_add(&q, OBJECT(WRITE, .name = "o", .brings = "x", .len = 1));
        request_add(&q, OBJECT(READ, .name = "o", .most = 10));
        request_run(&q, c);
        assert_int_equal(status_of(&q, 0), VJ_WIRE_OK);
        assert_int_equal(status_of(&q, 1), VJ_WIRE_REFUSED);
        assert_int_equal(status_of(&q, 2), VJ_WIRE_OK);
        assert_memory_equal(take(&q, 8), "texttext", 8);
        request_end(&q);
    }
    assert_int_equal(vj_fs_set_flags(c->fs, NULL, attr.st.st_ino, 0), 0);
    assert_int_equal(write_text(c, "o", "else", 0), VJ_WIRE_OK);
    expect_content(c, "o", "else");
}

static void test_an_object_that_has_another_name(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    uint64_t space;
    Fixture copy;
    VjAttr attr;

    assert_int_equal(write_text(c, "o", "old", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    space = ino_of_space(c, VJ_CLIENT_OBJECTS);
    assert_int_equal(vj_fs_lookup(c->fs, &c->who, space, "o", &attr), 0);
    assert_int_equal(vj_fs_link(c->fs, attr.st.st_ino, space, "other", &attr), 0);
    write_and_try_to_delete(c, "new", VJ_WIRE_OK);
    fixture_copy(*state, &copy);
    expect_content(copy.c, "other", "new");
    copy_end(&copy);
}

/* ---- objects that stay open -------------------------------------------------------- */

static uint64_t ino_of(VjClients *c, const char *name)
{
    VjAttr attr;

    assert_int_equal(
        vj_fs_lookup(c->fs, &c->who, ino_of_space(c, VJ_CLIENT_OBJECTS), name, &attr), 0);
    return attr.st.st_ino;
}

static bool is_open(VjClients *c, uint64_t ino)
{
    return g_hash_table_contains(c->open, &ino);
}

/* Nothing of it is left: what stays open keeps its space. */
static void assert_is_gone(VjClients *c, uint64_t ino)
{
    VjInode inode;

    assert_false(is_open(c, ino));
    assert_int_equal(vj_volume_purge(c->volume), 0);
    assert_int_equal(vj_file_getattr(vj_volume_files(c->volume), ino, &inode), -ENOENT);
}

static void test_objects_stay_open(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    char name[16];
    uint64_t first;

    assert_int_equal(write_text(c, "0", "text", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    first = ino_of(c, "0");
    assert_true(is_open(c, first));
    for (unsigned i = 1; i < VJ_CLIENT_OPEN_KEPT; i++) {
        g_snprintf(name, sizeof name, "%u", i);
        assert_int_equal(write_text(c, name, "text", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    }
    expect_content(c, "0", "text"); /* now "1" was not used for the longest time */
    assert_int_equal(write_text(c, "more", "text", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    assert_true(is_open(c, first));
    assert_false(is_open(c, ino_of(c, "1")));
    assert_int_equal(g_hash_table_size(c->open), VJ_CLIENT_OPEN_KEPT);
    assert_int_equal(g_queue_get_length(&c->unused), VJ_CLIENT_OPEN_KEPT);
}

static void test_what_is_deleted_does_not_stay_open(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    uint64_t ino;

    assert_int_equal(write_text(c, "o", "text", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    ino = ino_of(c, "o");
    assert_int_equal(run_one(c, OBJECT(DELETE, .name = "o")), VJ_WIRE_OK);
    assert_is_gone(c, ino);
    assert_int_equal(write_text(c, "o", "new", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    assert_int_equal(write_text(c, "by", "by", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    expect_content(c, "o", "new");
    ino = ino_of(c, "o");
    assert_int_equal(run_one(c, OBJECT(RENAME, .name = "by", .second = "o")), VJ_WIRE_OK);
    assert_is_gone(c, ino);
    expect_content(c, "o", "by");
}

/* One that is in use is closed by its last user; nobody opens it any more. */
static void test_deleted_while_in_use(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    VjClientOpen *one, *two;
    uint64_t ino;

    assert_int_equal(write_text(c, "o", "text", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    ino = ino_of(c, "o");
    assert_int_equal(vj_client_open(c, ino, true, &one), 0);
    assert_int_equal(run_one(c, OBJECT(DELETE, .name = "o")), VJ_WIRE_OK);
    assert_false(is_open(c, ino));
    assert_int_equal(vj_client_open(c, ino, true, &two), -ENOENT);
    assert_false(is_open(c, ino));
    vj_client_close(c, one);
    assert_is_gone(c, ino);
}

static void test_open_to_read_and_then_to_write(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    VjClientOpen *one, *two, *three;
    uint64_t ino;

    assert_int_equal(write_text(c, "o", "text", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    ino = ino_of(c, "o");
    vj_client_forget_all(c);
    assert_int_equal(vj_client_open(c, ino, false, &one), 0);
    assert_int_equal(vj_client_open(c, ino, true, &two), 0);
    assert_int_equal(vj_client_open(c, ino, false, &three), 0);
    assert_ptr_not_equal(one, two);
    assert_ptr_equal(two, three);
    vj_client_close(c, one);
    vj_client_close(c, two);
    assert_true(is_open(c, ino));
    assert_int_equal(g_queue_get_length(&c->unused), 0);
    vj_client_close(c, three);
    assert_int_equal(g_queue_get_length(&c->unused), 1);
}

/* ---- replies ----------------------------------------------------------------------- */

/* What was asked for and is not there takes no memory as long as the reply lives. */
static void test_a_short_reply_has_a_short_buffer(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Request q = request_new(0, 0);

    assert_int_equal(write_text(c, "o", "x", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    request_add(&q, OBJECT(READ, .name = "o", .most = VARJFS_WIRE_BATCH_RETURN_MAX));
    request_run(&q, c);
    assert_int_equal(q.reply.bulk_bytes, 1);
    assert_true(q.reply.bulk->cap <= 65536);
    assert_memory_equal(take(&q, 1), "x", 1);
    request_end(&q);
}

/* Programs of a mount have made something else below /.varjfs. */
static void test_what_is_no_namespace_fails_alone(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Op put_there = KEY(PUT, .name = "k", .brings = "1", .len = 1);
    Request q = request_new(0, 0);
    uint64_t root;
    VjAttr attr;

    put_there.space = "file";
    assert_int_equal(write_text(c, "o", "", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    for (unsigned i = 0; i < VJ_CLIENT_KINDS; i++) {
        assert_int_equal(vj_client_root(c, (VjClientKind)i, true, &root), 0);
        assert_int_equal(
            vj_fs_mknod(c->fs, &c->who, root, "file", S_IFREG | 0600, 0, &attr), 0);
    }
    assert_int_equal(vj_fs_mkdir(c->fs, &c->who, ino_of_space(c, VJ_CLIENT_OBJECTS),
                                 "dir", 0700, &attr),
                     0);
    request_add(&q, KEY(PUT, .name = "a", .brings = "1", .len = 1));
    request_add(&q, put_there);
    request_add(&q, KEY(PUT, .name = "b", .brings = "1", .len = 1));
    request_add(&q,
                (Op){.kind = VARJFS_WIRE_OBJECT_CREATE, .space = "file", .name = "o"});
    request_add(&q, OBJECT(READ, .name = "dir"));
    request_run(&q, c);
    assert_int_equal(status_of(&q, 0), VJ_WIRE_OK);
    assert_int_equal(status_of(&q, 1), VARJFS_WIRE_NAMESPACE);
    assert_int_equal(status_of(&q, 2), VJ_WIRE_OK);
    assert_int_equal(status_of(&q, 3), VARJFS_WIRE_NAMESPACE);
    assert_int_equal(status_of(&q, 4), VARJFS_WIRE_NAMESPACE);
    request_end(&q);
    expect_key(c, "a", "1");
    expect_key(c, "b", "1");
}

/* ---- keys -------------------------------------------------------------------------- */

static void test_keys(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Request q;

    expect_key(c, "k", NULL);
    assert_int_equal(run_one(c, KEY(DELETE, .name = "k")), VJ_WIRE_ABSENT);
    assert_int_equal(put(c, "k", "first"), VJ_WIRE_OK);
    expect_key(c, "k", "first");
    assert_int_equal(put(c, "k", ""), VJ_WIRE_OK);
    expect_key(c, "k", "");
    assert_int_equal(run_one(c, KEY(PUT, .name = "k", .flags = VARJFS_WIRE_EXCLUSIVE)),
                     VARJFS_WIRE_EXISTS);
    assert_int_equal(put(c, "k", "second"), VJ_WIRE_OK);
    q = request_new(0, 0);
    request_add(&q, KEY(GET, .name = "k", .most = 5));
    request_add(&q, KEY(GET, .name = "k", .most = 6));
    request_run(&q, c);
    assert_int_equal(status_of(&q, 0), VARJFS_WIRE_RANGE);
    assert_int_equal(value_of(&q, 0), 6);
    assert_int_equal(status_of(&q, 1), VJ_WIRE_OK);
    assert_memory_equal(take(&q, 6), "second", 6);
    request_end(&q);
    assert_int_equal(run_one(c, KEY(DELETE, .name = "k")), VJ_WIRE_OK);
    expect_key(c, "k", NULL);
}

/* Each operation of a batch sees those before it. */
static void test_a_batch_is_in_order(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Request q = request_new(0, 0);

    request_add(&q, KEY(PUT, .name = "k", .brings = "1", .len = 1));
    request_add(&q, KEY(GET, .name = "k", .most = 9));
    request_add(&q, OBJECT(WRITE, .name = "o", .flags = VARJFS_WIRE_MAKE, .brings = "ab",
                           .len = 2));
    request_add(&q, OBJECT(READ, .name = "o", .most = 9));
    request_add(&q, KEY(PUT, .name = "k", .brings = "22", .len = 2));
    request_add(&q, KEY(DELETE, .name = "none"));
    request_add(&q, KEY(GET, .name = "k", .most = 9));
    request_run(&q, c);
    assert_int_equal(status_of(&q, 5), VJ_WIRE_ABSENT);
    assert_memory_equal(take(&q, 1), "1", 1);
    assert_memory_equal(take(&q, 2), "ab", 2);
    assert_memory_equal(take(&q, 2), "22", 2);
    request_end(&q);
}

static void test_stop(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Request q = request_new(VARJFS_WIRE_STOP, 0);

    request_add(&q, KEY(PUT, .name = "a", .brings = "1", .len = 1));
    request_add(&q, KEY(DELETE, .name = "none"));
    request_add(&q, KEY(PUT, .name = "b", .brings = "1", .len = 1));
    request_add(&q, OBJECT(CREATE, .name = "o"));
    request_run(&q, c);
    assert_int_equal(status_of(&q, 0), VJ_WIRE_OK);
    assert_int_equal(status_of(&q, 1), VJ_WIRE_ABSENT);
    assert_int_equal(status_of(&q, 2), VJ_WIRE_CANCELED);
    assert_int_equal(status_of(&q, 3), VJ_WIRE_CANCELED);
    request_end(&q);
    expect_key(c, "a", "1");
    expect_key(c, "b", NULL);
    assert_int_equal(run_one(c, OBJECT(DELETE, .name = "o")), VJ_WIRE_ABSENT);

    q = request_new(VARJFS_WIRE_STOP, 0);
    request_add(&q, OBJECT(DELETE, .name = "none"));
    request_add(&q, KEY(PUT, .name = "b", .brings = "1", .len = 1));
    request_run(&q, c);
    assert_int_equal(status_of(&q, 1), VJ_WIRE_CANCELED);
    request_end(&q);
}

static void test_all_or_none(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Request q = request_new(VARJFS_WIRE_ATOMIC, 0);

    request_add(&q, KEY(PUT, .name = "a", .brings = "1", .len = 1));
    request_add(&q, KEY(DELETE, .name = "none"));
    request_add(&q, KEY(PUT, .name = "b", .brings = "1", .len = 1));
    request_run(&q, c);
    assert_int_equal(status_of(&q, 0), VJ_WIRE_CANCELED);
    assert_int_equal(status_of(&q, 1), VJ_WIRE_ABSENT);
    assert_int_equal(status_of(&q, 2), VJ_WIRE_CANCELED);
    request_end(&q);
    expect_key(c, "a", NULL);

    q = request_new(VARJFS_WIRE_ATOMIC, VARJFS_WIRE_SAFETY_STORAGE);
    for (unsigned i = 0; i < VARJFS_WIRE_OPS_MAX; i++) {
        char name[16];

        g_snprintf(name, sizeof name, "k%u", i);
        request_add(&q, KEY(PUT, .name = name, .brings = name, .len = strlen(name)));
    }
    request_run(&q, c);
    assert_int_equal(status_of(&q, VARJFS_WIRE_OPS_MAX - 1), VJ_WIRE_OK);
    request_end(&q);
    expect_key(c, "k4095", "k4095");

    q = request_new(VARJFS_WIRE_ATOMIC, 0);
    request_add(&q, KEY(PUT, .name = "a", .brings = "1", .len = 1));
    request_add(&q, OBJECT(RWRITE, .name = "o", .brings = "1", .len = 1));
    request_run(&q, c);
    assert_int_equal(status_of(&q, 1), VARJFS_WIRE_NOT_ATOMIC);
    request_end(&q);
    expect_key(c, "a", NULL);
}

static void test_an_atomic_batch_that_is_too_long(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Request q = request_new(VARJFS_WIRE_ATOMIC, 0);
    g_autofree char *value = g_strnfill(VARJFS_WIRE_VALUE_MAX, 'v');
    unsigned fit = VARJFS_WIRE_ATOMIC_BULK_MAX / VARJFS_WIRE_VALUE_MAX;
    char name[16];

    for (unsigned i = 0; i < fit; i++) {
        g_snprintf(name, sizeof name, "k%u", i);
        request_add(
            &q, KEY(PUT, .name = name, .brings = value, .len = VARJFS_WIRE_VALUE_MAX));
    }
    request_run(&q, c);
    assert_int_equal(status_of(&q, 0), VJ_WIRE_OK);
    vj_clients_reply_clear(&q.reply);
    request_add(&q, KEY(PUT, .name = "one", .brings = "1", .len = 1));
    request_run(&q, c);
    assert_int_equal(q.rc, -EFBIG);
    request_end(&q);
    expect_key(c, "one", NULL);
}

/* More than one transaction takes. */
static void test_a_long_run_of_keys(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Request q = request_new(0, 0);
    char name[16];

    for (unsigned i = 0; i < 2000; i++) {
        g_snprintf(name, sizeof name, "k%u", i);
        request_add(&q, KEY(PUT, .name = name, .brings = name, .len = strlen(name)));
        request_add(&q, KEY(GET, .name = name, .most = 16));
    }
    request_run(&q, c);
    for (unsigned i = 0; i < 2000; i++) {
        size_t len = (size_t)g_snprintf(name, sizeof name, "k%u", i);

        assert_int_equal(status_of(&q, 2 * i + 1), VJ_WIRE_OK);
        assert_memory_equal(take(&q, len), name, len);
    }
    request_end(&q);
}

static void test_read_only(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Request q = request_new(0, 0);

    assert_int_equal(put(c, "k", "v"), VJ_WIRE_OK);
    assert_int_equal(write_text(c, "o", "x", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    request_add(&q, KEY(PUT, .name = "k", .brings = "2", .len = 1));
    request_add(&q, KEY(DELETE, .name = "k"));
    request_add(&q, OBJECT(CREATE, .name = "p"));
    request_add(&q, OBJECT(DELETE, .name = "o"));
    request_add(&q, OBJECT(WRITE, .name = "o", .brings = "2", .len = 1));
    request_add(&q, KEY(GET, .name = "k", .most = 1));
    request_add(&q, OBJECT(READ, .name = "o", .most = 1));
    request_run_as(&q, c, true);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(status_of(&q, i), VJ_WIRE_READ_ONLY);
    }
    assert_memory_equal(take(&q, 2), "vx", 2);
    request_end(&q);
}

/* ---- iteration --------------------------------------------------------------------- */

static char *iterate(VjClients *c, uint8_t what, const char *space, const char *prefix,
                     const char *behind, uint32_t entries)
{
    Asked a = {.what = what,
               .space = space,
               .prefix = prefix,
               .behind = behind,
               .entries = entries};

    return iterate_as_text(c, &a);
}

static void expect_names(VjClients *c, uint8_t what, const char *space,
                         const char *prefix, const char *behind, uint32_t entries,
                         const char *names)
{
    g_autofree char *got = iterate(c, what, space, prefix, behind, entries);

    assert_string_equal(got, names);
}

static void test_iteration(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    static const char *const names[] = {"b", "ab", "a", "abc", "ac", "c"};

    expect_names(c, VARJFS_WIRE_ITERATE_KEYS, "s", "", "", 10, "");
    expect_names(c, VARJFS_WIRE_ITERATE_OBJECTS, "", "", "", 10, "");
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        assert_int_equal(put(c, names[i], "v"), VJ_WIRE_OK);
        assert_int_equal(run_one(c, OBJECT(CREATE, .name = names[i])), VJ_WIRE_OK);
    }
    assert_int_equal(
        run_one(c, (Op){.kind = VARJFS_WIRE_KEY_PUT, .space = "r", .name = "other"}),
        VJ_WIRE_OK);
    expect_names(c, VARJFS_WIRE_ITERATE_KEYS, "s", "", "", 10,
                 "a=v ab=v abc=v ac=v b=v c=v");
    expect_names(c, VARJFS_WIRE_ITERATE_OBJECTS, "s", "", "", 10, "a ab abc ac b c");
    expect_names(c, VARJFS_WIRE_ITERATE_OBJECTS, "s", "ab", "", 10, "ab abc");
    expect_names(c, VARJFS_WIRE_ITERATE_KEYS, "s", "ab", "", 1, "ab=v …");
    expect_names(c, VARJFS_WIRE_ITERATE_KEYS, "s", "ab", "ab", 1, "abc=v");
    expect_names(c, VARJFS_WIRE_ITERATE_OBJECTS, "s", "", "abc", 2, "ac b …");
    expect_names(c, VARJFS_WIRE_ITERATE_OBJECTS, "s", "x", "", 2, "");
    expect_names(c, VARJFS_WIRE_ITERATE_KEYS, "", "", "", 10, "r s");
    expect_names(c, VARJFS_WIRE_ITERATE_OBJECTS, "", "", "", 10, "s");
}

/* Files and directories whose names no object and no namespace can have. */
static void test_iteration_leaves_out_what_is_none(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    g_autofree char *name = g_strnfill(VARJFS_WIRE_NAME_MAX + 1, 'n');
    g_autofree char *space = g_strnfill(VARJFS_WIRE_NAMESPACE_MAX + 1, 's');
    uint64_t root;
    VjAttr attr;

    assert_int_equal(write_text(c, "o", "", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    assert_int_equal(put(c, "k", "v"), VJ_WIRE_OK);
    assert_int_equal(vj_fs_mknod(c->fs, &c->who, ino_of_space(c, VJ_CLIENT_OBJECTS), name,
                                 S_IFREG | 0600, 0, &attr),
                     0);
    for (unsigned i = 0; i < VJ_CLIENT_KINDS; i++) {
        assert_int_equal(vj_client_root(c, (VjClientKind)i, true, &root), 0);
        assert_int_equal(vj_fs_mkdir(c->fs, &c->who, root, space, 0700, &attr), 0);
    }
    expect_names(c, VARJFS_WIRE_ITERATE_OBJECTS, "s", "", "", 10, "o");
    expect_names(c, VARJFS_WIRE_ITERATE_OBJECTS, "", "", "", 10, "s");
    expect_names(c, VARJFS_WIRE_ITERATE_KEYS, "", "", "", 10, "s");
}

/* Values of the longest kind, of which two fit. */
static void test_iteration_by_bytes(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    g_autofree char *value = g_strnfill(VARJFS_WIRE_VALUE_MAX, 'v');
    g_autofree char *got = NULL;

    assert_int_equal(put(c, "a", value), VJ_WIRE_OK);
    assert_int_equal(put(c, "b", value), VJ_WIRE_OK);
    got = iterate(c, VARJFS_WIRE_ITERATE_KEYS, "s", "", "", 10);
    assert_true(g_str_has_suffix(got, " …"));
    assert_int_equal(strlen(got), 2 + VARJFS_WIRE_VALUE_MAX + strlen(" …"));
}

/* ---- what stays -------------------------------------------------------------------- */

/* A program of a mount sees objects as files, and of keys nothing. */
static void test_as_a_mount_sees_it(void **state)
{
    Fixture *x = *state;
    VjClients *c = x->c;
    char list[64];
    uint64_t ino;
    VjAttr attr;
    size_t len;

    assert_int_equal(put(c, "k", "v"), VJ_WIRE_OK);
    assert_int_equal(write_text(c, "o", "text", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    assert_int_equal(vj_client_space(c, VJ_CLIENT_OBJECTS, vj_slice("s", 1), false, &ino),
                     0);
    assert_int_equal(vj_fs_lookup(c->fs, &c->who, ino, "o", &attr), 0);
    assert_int_equal(attr.st.st_size, 4);
    assert_int_equal(vj_client_space(c, VJ_CLIENT_KEYS, vj_slice("s", 1), false, &ino),
                     0);
    assert_int_equal(vj_fs_set_flags(c->fs, NULL, ino, 0), 0);
    assert_int_equal(vj_fs_setxattr(c->fs, &c->who, ino, "user.a", "1", 1, 0), 0);
    assert_int_equal(vj_fs_listxattr(c->fs, &c->who, ino, list, sizeof list, &len), 0);
    assert_int_equal(len, sizeof "user.a");
    assert_string_equal(list, "user.a");
    expect_names(c, VARJFS_WIRE_ITERATE_KEYS, "s", "", "", 10, "k=v");
}

/* "find -type d -empty -delete" of a mount takes no keys away; whoever means it uses
 * chattr first. */
static void test_keys_outlive_what_tidies_up(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    uint64_t root, ino;

    assert_int_equal(put(c, "k", "v"), VJ_WIRE_OK);
    assert_int_equal(vj_client_root(c, VJ_CLIENT_KEYS, false, &root), 0);
    assert_int_equal(vj_fs_rmdir(c->fs, root, "s"), -EPERM);
    assert_int_equal(
        run_one(c, (Op){.kind = VARJFS_WIRE_KEY_PUT, .space = "other", .name = "k"}),
        VJ_WIRE_OK);
    assert_int_equal(vj_fs_rename(c->fs, &c->who, root, "other", root, "s", 0), -EPERM);
    expect_key(c, "k", "v");
    ino = ino_of_space(c, VJ_CLIENT_KEYS);
    assert_int_equal(vj_fs_set_flags(c->fs, NULL, ino, 0), 0);
    assert_int_equal(vj_fs_rmdir(c->fs, root, "s"), 0);
}

static void test_it_is_there_again(void **state)
{
    Fixture *x = *state;

    assert_int_equal(put(x->c, "k", "v"), VJ_WIRE_OK);
    assert_int_equal(write_text(x->c, "o", "text", VARJFS_WIRE_MAKE), VJ_WIRE_OK);
    assert_int_equal(vj_clients_sync(x->c), 0);
    assert_int_equal(vj_clients_close(x->c), 0);
    fixture_open(x);
    expect_key(x->c, "k", "v");
    expect_content(x->c, "o", "text");
}

/* ---- damage ------------------------------------------------------------------------ */

/* Flips bytes of a record: more than repair can guess. */
typedef struct Hurt {
    VjSpace space;
    VjSlice key;
    bool removes; /* else it is overwritten */
} Hurt;

static int hurt_body(VjTxn *txn, void *opaque)
{
    const Hurt *h = opaque;
    g_autofree uint8_t *bytes = NULL;
    VjSlice value;
    int rc = vj_txn_get(txn, h->space, h->key, &value);

    if (rc < 0 || h->removes) {
        return rc < 0 ? rc : vj_txn_del(txn, h->space, h->key);
    }
    bytes = g_memdup2(value.data, value.len);
    memset(bytes, 0xa5, value.len);
    return vj_txn_put(txn, h->space, h->key, vj_slice(bytes, value.len));
}

static void hurt(VjClients *c, VjSpace space, VjSlice key, bool removes)
{
    Hurt h = {.space = space, .key = key, .removes = removes};

    assert_int_equal(vj_meta_run(c->meta, VJ_RUN_DEFAULT, hurt_body, &h), 0);
}

static void collect(void *opaque, const char *text)
{
    g_string_append_printf(opaque, "%s\n", text);
}

/* What fsck.varjfs -y says. */
static char *repair(Fixture *x)
{
    VjVolumeOpen how = {
        .source = x->dir, .check = true, .repair = true, .session_name = "repair"};
    GString *said = g_string_new(NULL);
    g_autoptr(GError) error = NULL;
    VjCheckReport report = {0};
    VjVolume *v;

    assert_int_equal(vj_clients_close(x->c), 0);
    if (!vj_volume_open(&how, &v, &error)) {
        fail_msg("%s", error->message);
    }
    assert_int_equal(vj_fsck_contents(v, true, collect, said, &report), 0);
    assert_int_equal(vj_fsck_names(v, collect, said, &report), 0);
    assert_true(report.problems > 0);
    for (unsigned round = 0; round < 3; round++) {
        g_autoptr(VjRepair) r = vj_repair_new(v, collect, said);

        assert_int_equal(vj_repair_all(r), 0);
    }
    assert_int_equal(vj_volume_close(v), 0);
    fixture_open(x);
    return g_string_free(said, FALSE);
}

static void test_a_damaged_key(void **state)
{
    Fixture *x = *state;
    g_autofree char *said = NULL;
    VjFsKey key;

    assert_int_equal(put(x->c, "a", "1"), VJ_WIRE_OK);
    assert_int_equal(put(x->c, "b\x1b[2J", "2"), VJ_WIRE_OK);
    vj_fs_key_record(&key, ino_of_space(x->c, VJ_CLIENT_KEYS), vj_slice("b\x1b[2J", 5));
    hurt(x->c, VJ_SPACE_XATTR, vj_fs_key_slice(&key), false);
    said = repair(x);
    expect_key(x->c, "a", "1");
    expect_key(x->c, "b\x1b[2J", NULL);
    if (strstr(said, "the key \"b\\033[2J\" was damaged and was removed") == NULL) {
        fail_msg("%s", said);
    }
}

/* A namespace has no entries: its keys are what says that it is there. */
static void test_a_damaged_namespace(void **state)
{
    Fixture *x = *state;
    uint8_t key[8];

    assert_int_equal(put(x->c, "a", "1"), VJ_WIRE_OK);
    for (unsigned removes = 0; removes < 2; removes++) {
        g_autofree char *said = NULL;

        vj_be64_set(key, ino_of_space(x->c, VJ_CLIENT_KEYS));
        hurt(x->c, VJ_SPACE_INODE, vj_slice(key, sizeof key), removes);
        said = repair(x);
        expect_key(x->c, "a", "1");
    }
}

/* ---- hostile bytes ----------------------------------------------------------------- */

typedef struct InSlot {
    VjClients *c;
    VjClientsArea area;
    int rc;
} InSlot;

/* Asked in the middle of a batch: another one comes with the same slot. */
static bool come_again(void *opaque)
{
    InSlot *s = opaque;
    Request q = request_new(0, 0);

    q.message->data[2] = 1;
    q.area = s->area;
    request_add(&q, OBJECT(READ, .name = "o", .most = 10));
    request_run(&q, s->c);
    s->rc = q.rc;
    request_end(&q);
    return false;
}

static void test_slots(void **state)
{
    g_autofree uint8_t *data = g_malloc0(2 * VARJFS_WIRE_AREA_SLOT_BYTES);
    guint busy = 0;
    InSlot again = {
        .c = ((Fixture *)*state)->c,
        .area = {.data = data, .bytes = 2 * VARJFS_WIRE_AREA_SLOT_BYTES, .busy = &busy}};
    const VjClientsStop ask = {.is_wanted = come_again, .opaque = &again};
    Request make = request_new(0, 0);

    request_add(&make, OBJECT(WRITE, .flags = VARJFS_WIRE_MAKE, .name = "o",
                              .brings = "0123456789", .len = 10));
    request_run(&make, again.c);
    request_end(&make);
    for (uint8_t slot = 1; slot <= 3; slot++) {
        Request q = request_new(0, 0);

        q.message->data[2] = slot;
        q.area = again.area;
        q.stop = slot == 1 ? &ask : NULL;
        request_add(&q, OBJECT(READ, .name = "o", .most = 10, .offset = slot));
        request_run(&q, again.c);
        assert_int_equal(q.rc, slot <= 2 ? 0 : -EPROTO);
        if (slot <= 2) {
            assert_null(q.reply.bulk);
            assert_memory_equal(data + (slot - 1) * VARJFS_WIRE_AREA_SLOT_BYTES,
                                "0123456789" + slot, 10u - slot);
        }
        request_end(&q);
    }
    assert_int_equal(again.rc, -EPROTO);
    assert_int_equal(busy, 0);
}

static void test_requests_that_are_none(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Request q = request_new(0, 0);
    VjClientsReply reply;

    request_add(&q, KEY(PUT, .name = "k", .brings = "value", .len = 5));
    request_add(&q, OBJECT(READ, .name = "o", .most = 10));
    for (guint len = 0; len < q.message->len; len++) {
        assert_int_equal(vj_clients_batch(c, vj_slice(q.message->data, len),
                                          vj_slice(q.bulk->data, 5), false, NULL, q.area,
                                          &reply),
                         -EPROTO);
    }
    for (guint len = 0; len < 5; len++) {
        assert_int_equal(vj_clients_batch(c, vj_slice(q.message->data, q.message->len),
                                          vj_slice(q.bulk->data, len), false, NULL,
                                          q.area, &reply),
                         -EPROTO);
    }
    request_end(&q);
    expect_key(c, "k", NULL); /* nothing of them was done */
}

static void test_values_without_a_meaning(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    const Op bad[] = {
        {.kind = 0, .space = "s", .name = "n"},
        {.kind = 15, .space = "s", .name = "n"},
        {.kind = 255, .space = "s", .name = "n"},
        KEY(PUT, .name = "n", .flags = 2),
        KEY(PUT, .name = "n", .offset = 1),
        KEY(GET, .name = "n", .most = VARJFS_WIRE_VALUE_MAX + 1),
        KEY(GET, .name = "n", .brings = "x", .len = 1),
        OBJECT(READ, .name = "n", .most = VARJFS_WIRE_BATCH_RETURN_MAX + 1),
        OBJECT(READ, .name = "n", .flags = 1),
        OBJECT(WRITE, .name = "n", .flags = VARJFS_WIRE_APPEND, .offset = 1),
        OBJECT(WRITE, .name = "n", .old_len = 1),
        OBJECT(DELETE, .name = "n", .most = 1),
        OBJECT(DELETE, .name = "n", .second = "m"),
        OBJECT(RESIZE, .name = "n", .old_len = 1),
        OBJECT(RENAME, .name = "n", .second = "m", .offset = 1),
        {.kind = 12, .space = "s", .name = "n"},
        OBJECT(CREATE, .name = "n", .brings = "transform=lz4\n", .len = 14),
        OBJECT(CREATE, .name = "n", .brings = "mode=x\n", .len = 7, .old_len = 8),
        OBJECT(CREATE, .name = "n", .brings = "\1\0\2\0\0\0av", .len = 8),
    };

    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        Request q = request_new(0, 0);

        request_add(&q, bad[i]);
        request_run(&q, c);
        assert_int_equal(q.rc, -EPROTO);
        request_end(&q);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

/* ---- what nobody waits for any more ------------------------------------------------ */

/* True from the @opaque-th question on. */
static bool is_stop_wanted(void *opaque)
{
    unsigned *left = opaque;

    if (*left == 0) {
        return true;
    }
    (*left)--;
    return false;
}

static void test_nobody_waits(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    unsigned left = 3;
    const VjClientsStop stop = {.is_wanted = is_stop_wanted, .opaque = &left};
    Request q = request_new(0, VARJFS_WIRE_SAFETY_STORAGE);
    VjClientsStats before, after;

    vj_clients_stats(c, &before);
    q.stop = &stop;
    for (unsigned i = 0; i < 6; i++) {
        const char *names[] = {"a", "b", "c", "d", "e", "f"};

        request_add(&q, OBJECT(WRITE, .flags = VARJFS_WIRE_MAKE, .name = names[i],
                               .brings = "xy", .len = 2));
    }
    request_run(&q, c);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(status_of(&q, i), i < 3 ? 0 : VJ_WIRE_CANCELED);
    }
    request_end(&q);
    vj_clients_stats(c, &after);
    assert_int_equal(after.batches - before.batches, 1);
    assert_int_equal(after.brought_bytes - before.brought_bytes, 6);
    assert_int_equal(after.ops[VARJFS_WIRE_OBJECT_WRITE].done -
                         before.ops[VARJFS_WIRE_OBJECT_WRITE].done,
                     3);
    assert_int_equal(after.ops[VARJFS_WIRE_OBJECT_WRITE].canceled, 3);
    assert_string_equal(vj_clients_op_name(VARJFS_WIRE_OBJECT_WRITE), "object_write");
    assert_null(vj_clients_op_name(VJ_CLIENTS_OPS_MAX));
    assert_false(vj_clients_is_shut_out(c));
}

/* Some commit behind opening says that the session was shut out. */
static bool try_shut_out(const Fixture *x, unsigned commit)
{
    g_autofree char *wrap =
        g_strdup_printf("fault:errno=ESTALE,kinds=commit,fail=%u", commit);
    VjClientsOpen how = {.source = x->dir, .name = "test", .wrap_meta = wrap};
    Request q = request_new(0, VARJFS_WIRE_SAFETY_STORAGE);
    VjClients *c;
    bool found;
    int rc;

    if (!vj_clients_open(&how, &c, NULL)) {
        request_end(&q);
        return false;
    }
    assert_false(vj_clients_is_shut_out(c));
    request_add(&q, KEY(PUT, .name = "shut", .brings = "out", .len = 3));
    request_run(&q, c);
    found = q.rc == -ESTALE || (q.rc == 0 && status_of(&q, 0) == VJ_WIRE_FENCED);
    assert_true(found == vj_clients_is_shut_out(c));
    request_end(&q);
    rc = vj_clients_close(c);
    (void)rc; /* another error may come of it */
    return found;
}

static void test_shut_out(void **state)
{
    Fixture *x = *state;
    bool found = false;

    assert_int_equal(vj_clients_close(g_steal_pointer(&x->c)), 0);
    for (unsigned commit = 1; commit <= 30 && !found; commit++) {
        found = try_shut_out(x, commit);
    }
    assert_true(found);
    fixture_open(x);
    expect_key(x->c, "shut", NULL);
}

static const struct CMUnitTest tests[] = {
    {"/clients/shut-out", test_shut_out, fixture_setup, fixture_teardown, NULL},
    {"/clients/nobody-waits", test_nobody_waits, fixture_setup, fixture_teardown, NULL},
    TEST(test_objects),
    TEST(test_status),
    TEST(test_settings),
    TEST(test_names),
    TEST(test_offsets_beyond_all_files),
    TEST(test_an_object_that_ends_in_its_batch),
    TEST(test_an_object_that_cannot_be_deleted),
    TEST(test_an_object_that_cannot_be_written),
    TEST(test_an_object_that_has_another_name),
    TEST(test_objects_stay_open),
    TEST(test_what_is_deleted_does_not_stay_open),
    TEST(test_deleted_while_in_use),
    TEST(test_open_to_read_and_then_to_write),
    TEST(test_a_short_reply_has_a_short_buffer),
    TEST(test_what_is_no_namespace_fails_alone),
    TEST(test_keys),
    TEST(test_a_batch_is_in_order),
    TEST(test_stop),
    TEST(test_all_or_none),
    TEST(test_an_atomic_batch_that_is_too_long),
    TEST(test_a_long_run_of_keys),
    TEST(test_read_only),
    TEST(test_iteration),
    TEST(test_iteration_leaves_out_what_is_none),
    TEST(test_iteration_by_bytes),
    TEST(test_as_a_mount_sees_it),
    TEST(test_keys_outlive_what_tidies_up),
    TEST(test_it_is_there_again),
    TEST(test_a_damaged_key),
    TEST(test_a_damaged_namespace),
    TEST(test_slots),
    TEST(test_requests_that_are_none),
    TEST(test_values_without_a_meaning),
};

VJ_TEST_MAIN_WITH_CODECS(tests)
