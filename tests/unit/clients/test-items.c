/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-items.c - attributes of objects, objects in atomic batches, lengths and names, and
 * namespaces that go; fsck looks at the volume behind each test
 */
#include "request.h"

#include "fs/fs-format.h"

#include <sys/xattr.h>

#define OBJECT(k, ...) ((Op){.kind = VARJFS_WIRE_OBJECT_##k, .space = "s", __VA_ARGS__})
#define ATTRIBUTE(k, ...)                                                                \
    ((Op){.kind = VARJFS_WIRE_ATTRIBUTE_##k, .space = "s", __VA_ARGS__})
#define KEY(k, ...) ((Op){.kind = VARJFS_WIRE_KEY_##k, .space = "s", __VA_ARGS__})

static void make(VjClients *c, const char *name)
{
    assert_int_equal(run_one(c, OBJECT(CREATE, .name = name)), VJ_WIRE_OK);
}

static uint32_t set(VjClients *c, const char *item, const char *name, const char *value)
{
    return run_one(c, ATTRIBUTE(PUT, .name = item, .second = name, .brings = value,
                                .len = strlen(value)));
}

/* @value NULL: there is none. */
static void expect_attribute(VjClients *c, const char *item, const char *name,
                             const char *value)
{
    Request q = request_new(0, 0);

    request_add(&q, ATTRIBUTE(GET, .name = item, .second = name, .most = 100));
    request_run(&q, c);
    if (value == NULL) {
        assert_int_equal(status_of(&q, 0), VARJFS_WIRE_NO_ATTRIBUTE);
    } else {
        assert_int_equal(status_of(&q, 0), VJ_WIRE_OK);
        assert_int_equal(value_of(&q, 0), strlen(value));
        assert_memory_equal(take(&q, strlen(value)), value, strlen(value));
    }
    request_end(&q);
}

static void expect_objects(VjClients *c, const char *names)
{
    Asked a = {.what = VARJFS_WIRE_ITERATE_OBJECTS, .space = "s", .entries = 100};
    g_autofree char *got = iterate_as_text(c, &a);

    assert_string_equal(got, names);
}

static void expect_attributes(VjClients *c, const char *item, const char *text)
{
    Asked a = {.what = VARJFS_WIRE_ITERATE_ATTRIBUTES,
               .space = "s",
               .object = item,
               .entries = 100};
    g_autofree char *got = iterate_as_text(c, &a);

    assert_string_equal(got, text);
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

/* @bytes long, and at most @most are stored for it. */
static void expect_stored(VjClients *c, const char *name, uint64_t bytes, uint64_t most)
{
    Request q = request_new(0, 0);
    const uint8_t *status;

    request_add(&q, OBJECT(STATUS, .name = name, .most = VARJFS_WIRE_STATUS_MAX));
    request_run(&q, c);
    assert_int_equal(status_of(&q, 0), VJ_WIRE_OK);
    status = take(&q, value_of(&q, 0));
    assert_int_equal(vj_le64_get(status), bytes);
    assert_in_range(vj_le64_get(status + 8), 1, most);
    request_end(&q);
}

static void write_text(VjClients *c, const char *name, const char *text)
{
    assert_int_equal(run_one(c, OBJECT(WRITE, .flags = VARJFS_WIRE_MAKE, .name = name,
                                       .brings = text, .len = strlen(text))),
                     VJ_WIRE_OK);
}

/* ---- attributes -------------------------------------------------------------------- */

static void test_attributes(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;

    assert_int_equal(set(c, "o", "a", "1"), VJ_WIRE_ABSENT);
    make(c, "o");
    expect_attribute(c, "o", "a", NULL);
    assert_int_equal(set(c, "o", "a", "1"), VJ_WIRE_OK);
    assert_int_equal(set(c, "o", "empty", ""), VJ_WIRE_OK);
    assert_int_equal(set(c, "o", "a/b c", "3"), VJ_WIRE_OK);
    expect_attribute(c, "o", "a", "1");
    expect_attribute(c, "o", "empty", "");
    assert_int_equal(set(c, "o", "a", "longer"), VJ_WIRE_OK);
    assert_int_equal(run_one(c, ATTRIBUTE(PUT, .name = "o", .second = "a", .brings = "x",
                                          .len = 1, .flags = VARJFS_WIRE_EXCLUSIVE)),
                     VARJFS_WIRE_EXISTS);
    expect_attributes(c, "o", "a=longer a/b c=3 empty");
    assert_int_equal(run_one(c, ATTRIBUTE(GET, .name = "o", .second = "a", .most = 5)),
                     VARJFS_WIRE_RANGE);
    assert_int_equal(run_one(c, ATTRIBUTE(DELETE, .name = "o", .second = "a")),
                     VJ_WIRE_OK);
    assert_int_equal(run_one(c, ATTRIBUTE(DELETE, .name = "o", .second = "a")),
                     VARJFS_WIRE_NO_ATTRIBUTE);
    assert_int_equal(run_one(c, ATTRIBUTE(DELETE, .name = "p", .second = "a")),
                     VJ_WIRE_ABSENT);
    expect_attributes(c, "o", "a/b c=3 empty");
    assert_int_equal(run_one(c, OBJECT(DELETE, .name = "o")), VJ_WIRE_OK);
    make(c, "o");
    expect_attributes(c, "o", ""); /* they went with it */
}

static void test_names_of_attributes(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    g_autofree char *longest = g_strnfill(VARJFS_WIRE_ATTRIBUTE_NAME_MAX, 'n');
    g_autofree char *longer = g_strnfill(VARJFS_WIRE_ATTRIBUTE_NAME_MAX + 1, 'n');

    make(c, "o");
    assert_int_equal(set(c, "o", longest, "v"), VJ_WIRE_OK);
    assert_int_equal(set(c, "o", longer, "v"), VARJFS_WIRE_NAMESPACE);
    assert_int_equal(set(c, "o", "", "v"), VARJFS_WIRE_NAMESPACE);
    assert_int_equal(set(c, "o", "varjfs.transform", "lz4"), VARJFS_WIRE_RESERVED);
    assert_int_equal(set(c, "o", "varjfs.", "v"), VARJFS_WIRE_RESERVED);
    assert_int_equal(set(c, "o", "varjfs", "v"), VJ_WIRE_OK);
    assert_int_equal(
        run_one(c, ATTRIBUTE(GET, .name = "o", .second = "varjfs.mode", .most = 10)),
        VARJFS_WIRE_RESERVED);
    expect_attribute(c, "o", longest, "v");
}

/* Who mounts the volume sees them as extended attributes, and the other way round. */
static void test_attributes_as_a_mount_sees_them(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    char value[8];
    uint64_t dir;
    VjAttr attr;
    size_t len;

    make(c, "o");
    assert_int_equal(set(c, "o", "colour", "red"), VJ_WIRE_OK);
    assert_int_equal(vj_client_space(c, VJ_CLIENT_OBJECTS, vj_slice("s", 1), false, &dir),
                     0);
    assert_int_equal(vj_fs_lookup(c->fs, &c->who, dir, "o", &attr), 0);
    assert_int_equal(
        vj_fs_getxattr(c->fs, attr.st.st_ino, "user.colour", value, sizeof value, &len),
        0);
    assert_int_equal(len, 3);
    assert_memory_equal(value, "red", 3);
    assert_int_equal(
        vj_fs_setxattr(c->fs, &c->who, attr.st.st_ino, "user.of", "mount", 5, 0), 0);
    assert_int_equal(
        vj_fs_setxattr(c->fs, &c->who, attr.st.st_ino, "trusted.no", "x", 1, 0), 0);
    assert_int_equal(vj_fs_setxattr(c->fs, &c->who, attr.st.st_ino,
                                    "user.varjfs.transform", "lz4", 3, 0),
                     0);
    expect_attributes(c, "o", "colour=red of=mount");
}

/* ---- creation ---------------------------------------------------------------------- */

typedef struct Given {
    GByteArray *bytes;
    uint64_t settings;
} Given;

static Given given_new(const char *settings)
{
    Given g = {.bytes = g_byte_array_new(), .settings = strlen(settings)};

    append_text(g.bytes, settings);
    return g;
}

static void give(Given *g, const char *name, const char *value)
{
    append_number(g->bytes, strlen(name), 2);
    append_number(g->bytes, strlen(value), 4);
    append_text(g->bytes, name);
    append_text(g->bytes, value);
}

static uint32_t create(VjClients *c, const char *name, Given *g)
{
    uint32_t status = run_one(c, OBJECT(CREATE, .name = name, .brings = g->bytes->data,
                                        .len = g->bytes->len, .old_len = g->settings,
                                        .flags = VARJFS_WIRE_EXCLUSIVE));

    g_byte_array_unref(g->bytes);
    return status;
}

static void test_creation_with_attributes(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Given g = given_new("transform=lz4\n");

    give(&g, "b", "2");
    give(&g, "a", "");
    assert_int_equal(create(c, "o", &g), VJ_WIRE_OK);
    expect_attributes(c, "o", "a b=2");
    g = given_new("");
    give(&g, "c", "3");
    assert_int_equal(create(c, "o", &g), VARJFS_WIRE_EXISTS);
    expect_attributes(c, "o", "a b=2");
    g = given_new("");
    for (unsigned i = 0; i < VARJFS_WIRE_CREATE_ATTRIBUTES_MAX; i++) {
        char name[16];

        g_snprintf(name, sizeof name, "a%u", i);
        give(&g, name, "v");
    }
    assert_int_equal(create(c, "many", &g), VJ_WIRE_OK);
    expect_attribute(c, "many", "a63", "v");
}

static void test_creation_that_is_refused(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Given g = given_new("transform=none such\n");

    give(&g, "a", "1");
    assert_int_equal(create(c, "o", &g), VARJFS_WIRE_SETTING);
    g = given_new("");
    give(&g, "a", "1");
    give(&g, "b", "1");
    give(&g, "a", "2");
    assert_int_equal(create(c, "o", &g), VARJFS_WIRE_NAMESPACE);
    g = given_new("");
    give(&g, "a", "1");
    give(&g, "varjfs.x", "1");
    assert_int_equal(create(c, "o", &g), VARJFS_WIRE_RESERVED);
    expect_objects(c, "");
}

/* ---- atomic batches ---------------------------------------------------------------- */

static void add_mixed(Request *q, bool fails)
{
    request_add(q, OBJECT(CREATE, .name = "new", .flags = VARJFS_WIRE_EXCLUSIVE));
    request_add(q, ATTRIBUTE(PUT, .name = "new", .second = "a", .brings = "1", .len = 1));
    request_add(q, ATTRIBUTE(PUT, .name = "old", .second = "b", .brings = "2", .len = 1));
    request_add(q, ATTRIBUTE(DELETE, .name = "old", .second = "gone"));
    request_add(q, OBJECT(DELETE, .name = "dead"));
    request_add(q, KEY(PUT, .name = "k", .brings = "3", .len = 1));
    request_add(q, ATTRIBUTE(GET, .name = "new", .second = "a", .most = 10));
    request_add(q, OBJECT(CREATE, .name = "passing"));
    request_add(q, OBJECT(DELETE, .name = "passing"));
    if (fails) {
        request_add(q, KEY(DELETE, .name = "none"));
    }
}

static void test_all_or_none(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Request q;

    make(c, "old");
    make(c, "dead");
    assert_int_equal(set(c, "old", "gone", "0"), VJ_WIRE_OK);
    q = request_new(VARJFS_WIRE_ATOMIC, VARJFS_WIRE_SAFETY_STORAGE);
    add_mixed(&q, true);
    request_run(&q, c);
    for (unsigned i = 0; i < q.count; i++) {
        assert_int_equal(status_of(&q, i),
                         i == q.count - 1 ? VJ_WIRE_ABSENT : VJ_WIRE_CANCELED);
    }
    request_end(&q);
    expect_objects(c, "dead old");
    expect_attributes(c, "old", "gone=0");
    assert_int_equal(run_one(c, KEY(DELETE, .name = "k")), VJ_WIRE_ABSENT);

    q = request_new(VARJFS_WIRE_ATOMIC, VARJFS_WIRE_SAFETY_STORAGE);
    add_mixed(&q, false);
    request_run(&q, c);
    for (unsigned i = 0; i < q.count; i++) {
        assert_int_equal(status_of(&q, i), VJ_WIRE_OK);
    }
    assert_memory_equal(take(&q, 1), "1", 1);
    request_end(&q);
    expect_objects(c, "new old");
    expect_attributes(c, "new", "a=1");
    expect_attributes(c, "old", "b=2");
    assert_int_equal(run_one(c, KEY(DELETE, .name = "k")), VJ_WIRE_OK);
}

static void test_what_no_atomic_batch_has(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    const Op refused[] = {
        OBJECT(READ, .name = "o", .most = 1),
        OBJECT(WRITE, .name = "o", .brings = "x", .len = 1),
        OBJECT(RWRITE, .name = "o", .brings = "x", .len = 1),
        OBJECT(STATUS, .name = "o", .most = VARJFS_WIRE_STATUS_MAX),
        OBJECT(RESIZE, .name = "o", .offset = 1),
        OBJECT(RENAME, .name = "o", .second = "p"),
    };

    make(c, "o");
    for (size_t i = 0; i < G_N_ELEMENTS(refused); i++) {
        Request q = request_new(VARJFS_WIRE_ATOMIC, 0);

        request_add(&q, OBJECT(CREATE, .name = "beside"));
        request_add(&q, refused[i]);
        request_run(&q, c);
        assert_int_equal(status_of(&q, 0), VJ_WIRE_CANCELED);
        assert_int_equal(status_of(&q, 1), VARJFS_WIRE_NOT_ATOMIC);
        request_end(&q);
    }
    expect_objects(c, "o");
}

/* Of what is created in the batch content may be given, small and once. */
static void test_first_writes(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    g_autofree char *longest = g_strnfill(VARJFS_WIRE_ATOMIC_WRITE_MAX + 1, 'l');
    Request q = request_new(VARJFS_WIRE_ATOMIC, VARJFS_WIRE_SAFETY_STORAGE);
    const Op refused[] = {
        OBJECT(WRITE, .name = "new", .brings = longest,
               .len = VARJFS_WIRE_ATOMIC_WRITE_MAX + 1),
        OBJECT(WRITE, .name = "new", .brings = "x", .len = 1, .offset = 1),
        OBJECT(WRITE, .name = "new", .brings = "x", .len = 1,
               .flags = VARJFS_WIRE_APPEND),
        OBJECT(WRITE, .name = "made", .brings = "x", .len = 1, .flags = VARJFS_WIRE_MAKE),
        OBJECT(WRITE, .name = "old", .brings = "x", .len = 1),
        OBJECT(WRITE, .name = "filled", .brings = "x", .len = 1),
    };
    Fixture copy;

    make(c, "old");
    for (size_t i = 0; i < G_N_ELEMENTS(refused); i++) {
        Request r = request_new(VARJFS_WIRE_ATOMIC, 0);

        request_add(&r, OBJECT(CREATE, .name = "new"));
        request_add(&r, OBJECT(CREATE, .name = "old")); /* it is there */
        request_add(&r, OBJECT(CREATE, .name = "filled"));
        request_add(&r, OBJECT(WRITE, .name = "filled", .brings = "y", .len = 1));
        request_add(&r, refused[i]);
        request_run(&r, c);
        assert_int_equal(status_of(&r, 3), VJ_WIRE_CANCELED);
        assert_int_equal(status_of(&r, 4), VARJFS_WIRE_NOT_ATOMIC);
        request_end(&r);
    }
    expect_objects(c, "old");
    request_add(&q, OBJECT(CREATE, .name = "a"));
    request_add(&q, OBJECT(WRITE, .name = "a", .brings = "content", .len = 7));
    request_add(&q, OBJECT(CREATE, .name = "b", .brings = "transform=rle\n", .len = 14,
                           .old_len = 14));
    request_add(&q, OBJECT(WRITE, .name = "b", .brings = longest,
                           .len = VARJFS_WIRE_ATOMIC_WRITE_MAX));
    request_add(&q, OBJECT(CREATE, .name = "c"));
    request_add(&q, OBJECT(WRITE, .name = "c"));
    request_add(&q, OBJECT(CREATE, .name = "gone"));
    request_add(&q, OBJECT(WRITE, .name = "gone", .brings = "g", .len = 1));
    request_add(&q, OBJECT(DELETE, .name = "gone"));
    request_run(&q, c);
    for (unsigned i = 0; i < q.count; i++) {
        assert_int_equal(status_of(&q, i), VJ_WIRE_OK);
    }
    request_end(&q);
    fixture_copy(*state, &copy);
    for (unsigned i = 0; i < 2; i++) {
        VjClients *of = i == 0 ? c : copy.c; /* as a kill would leave it */

        expect_objects(of, "a b c old");
        expect_content(of, "a", "content");
        expect_content(of, "c", "");
        expect_stored(of, "b", VARJFS_WIRE_ATOMIC_WRITE_MAX, 100);
    }
    copy_end(&copy);
    write_text(c, "a", "CON"); /* it is an object as any other */
    expect_content(c, "a", "CONtent");
}

/* An object that the batch has open is deleted in a transaction of the same batch. */
static void test_a_batch_that_mixes_everything(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Request q = request_new(0, VARJFS_WIRE_SAFETY_STORAGE);

    request_add(&q, OBJECT(WRITE, .name = "o", .flags = VARJFS_WIRE_MAKE, .brings = "x",
                           .len = 1));
    request_add(&q, ATTRIBUTE(PUT, .name = "o", .second = "a", .brings = "1", .len = 1));
    request_add(&q, OBJECT(DELETE, .name = "o"));
    request_add(&q, OBJECT(CREATE, .name = "o"));
    request_add(&q, ATTRIBUTE(GET, .name = "o", .second = "a", .most = 10));
    request_add(&q, OBJECT(WRITE, .name = "o", .brings = "second", .len = 6));
    request_add(&q, OBJECT(RENAME, .name = "o", .second = "p"));
    request_add(&q, ATTRIBUTE(PUT, .name = "p", .second = "b", .brings = "2", .len = 1));
    request_run(&q, c);
    for (unsigned i = 0; i < q.count; i++) {
        assert_int_equal(status_of(&q, i),
                         i == 4 ? VARJFS_WIRE_NO_ATTRIBUTE : VJ_WIRE_OK);
    }
    request_end(&q);
    expect_objects(c, "p");
    expect_content(c, "p", "second");
    expect_attributes(c, "p", "b=2");
}

/* More than one transaction has. */
static void test_a_long_run_of_creations(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Request q = request_new(0, 0);
    char name[16];

    for (unsigned i = 0; i < 1500; i++) {
        g_snprintf(name, sizeof name, "o%u", i % 1400);
        request_add(&q, OBJECT(CREATE, .name = name, .flags = VARJFS_WIRE_EXCLUSIVE));
    }
    request_run(&q, c);
    for (unsigned i = 0; i < 1500; i++) {
        assert_int_equal(status_of(&q, i), i < 1400 ? VJ_WIRE_OK : VARJFS_WIRE_EXISTS);
    }
    request_end(&q);
}

/* ---- lengths and names ------------------------------------------------------------- */

static void test_resize(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;

    assert_int_equal(run_one(c, OBJECT(RESIZE, .name = "o")), VJ_WIRE_ABSENT);
    write_text(c, "o", "0123456789");
    assert_int_equal(run_one(c, OBJECT(RESIZE, .name = "o", .offset = 4)), VJ_WIRE_OK);
    expect_content(c, "o", "0123");
    assert_int_equal(run_one(c, OBJECT(RESIZE, .name = "o", .offset = 0)), VJ_WIRE_OK);
    expect_content(c, "o", "");
    assert_int_equal(
        run_one(c, OBJECT(RESIZE, .name = "o", .offset = VJ_FILE_SIZE_MAX + 1)),
        VJ_WIRE_TOO_LARGE);
    assert_int_equal(run_one(c, OBJECT(RESIZE, .name = "o", .offset = 1 << 20)),
                     VJ_WIRE_OK);
    assert_int_equal(run_one(c, OBJECT(RESIZE, .name = "o", .offset = 0)), VJ_WIRE_OK);
    write_text(c, "o", "end");
    expect_content(c, "o", "end");
}

static uint32_t rename_to(VjClients *c, const char *from, const char *to, uint8_t flags)
{
    return run_one(c, OBJECT(RENAME, .name = from, .second = to, .flags = flags));
}

static void test_rename(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;

    assert_int_equal(rename_to(c, "a", "b", 0), VJ_WIRE_ABSENT);
    write_text(c, "a", "of a");
    write_text(c, "b", "of b");
    assert_int_equal(set(c, "a", "x", "1"), VJ_WIRE_OK);
    assert_int_equal(rename_to(c, "a", "b", VARJFS_WIRE_EXCLUSIVE), VARJFS_WIRE_EXISTS);
    expect_content(c, "b", "of b");
    assert_int_equal(rename_to(c, "a", "c", VARJFS_WIRE_EXCLUSIVE), VJ_WIRE_OK);
    expect_objects(c, "b c");
    assert_int_equal(rename_to(c, "c", "b", 0), VJ_WIRE_OK);
    expect_objects(c, "b");
    expect_content(c, "b", "of a");
    expect_attributes(c, "b", "x=1");
    assert_int_equal(rename_to(c, "b", "b", 0), VJ_WIRE_OK);
    assert_int_equal(rename_to(c, "b", "..", 0), VARJFS_WIRE_NAMESPACE);
    assert_int_equal(rename_to(c, "b", "", 0), VARJFS_WIRE_NAMESPACE);
    assert_int_equal(rename_to(c, "b", "a/b", 0), VARJFS_WIRE_NAMESPACE);
    expect_objects(c, "b");
}

/* ---- iteration --------------------------------------------------------------------- */

static void test_items(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    g_autofree char *value = g_strnfill(VARJFS_WIRE_ITERATE_VALUE_MAX + 1, 'v');
    Asked a = {.what = VARJFS_WIRE_ITERATE_ITEMS,
               .space = "s",
               .attributes = {"colour", "size"},
               .entries = 100};
    g_autofree char *got = NULL;
    VjClientsReply reply;

    make(c, "apple");
    make(c, "bare");
    make(c, "cherry");
    assert_int_equal(set(c, "apple", "colour", "green"), VJ_WIRE_OK);
    assert_int_equal(set(c, "apple", "weight", "1"), VJ_WIRE_OK);
    assert_int_equal(set(c, "cherry", "size", ""), VJ_WIRE_OK);
    assert_int_equal(set(c, "cherry", "colour", value), VJ_WIRE_OK);
    got = iterate_as_text(c, &a);
    assert_string_equal(got, "apple[green -] bare[- -] cherry[<4097> ]");
    g_free(got);
    a.prefix = "b";
    got = iterate_as_text(c, &a);
    assert_string_equal(got, "bare[- -]");
    a = (Asked){.what = VARJFS_WIRE_ITERATE_ATTRIBUTES,
                .space = "s",
                .object = "apple",
                .prefix = "w",
                .entries = 1};
    g_free(got);
    got = iterate_as_text(c, &a);
    assert_string_equal(got, "weight=1");
    a.object = "none";
    assert_int_equal(iterate_run(c, &a, &reply), -ENOENT);
    a.space = "";
    assert_int_equal(iterate_run(c, &a, &reply), -EPROTO);
    a = (Asked){.what = VARJFS_WIRE_ITERATE_OBJECTS,
                .space = "s",
                .attributes = {"a"},
                .entries = 1};
    assert_int_equal(iterate_run(c, &a, &reply), -EPROTO);
    a = (Asked){.what = VARJFS_WIRE_ITERATE_ITEMS, .space = "no", .entries = 1};
    g_free(got);
    got = iterate_as_text(c, &a);
    assert_string_equal(got, "");
}

/* ---- namespaces that go ------------------------------------------------------------ */

/* What the reply says, or -errno. */
static int empty_or_stop(VjClients *c, uint8_t what, const char *space, uint32_t most,
                         const VjClientsStop *stop, uint32_t *gone)
{
    g_autoptr(GByteArray) message = g_byte_array_new();
    VjClientsReply reply;
    int rc;

    append_number(message, what, 2);
    append_number(message, strlen(space), 2);
    append_number(message, most, 4);
    append_text(message, space);
    rc = vj_clients_empty(c, vj_slice(message->data, message->len), false, stop, &reply);
    if (rc == 0) {
        rc = reply.message->data[0];
        *gone = vj_le32_get(reply.message->data + 1);
    }
    vj_clients_reply_clear(&reply);
    return rc;
}

static int empty(VjClients *c, uint8_t what, const char *space, uint32_t most,
                 uint32_t *gone)
{
    return empty_or_stop(c, what, space, most, NULL, gone);
}

static void expect_spaces(VjClients *c, uint8_t what, const char *names)
{
    Asked a = {.what = what, .entries = 100};
    g_autofree char *got = iterate_as_text(c, &a);

    assert_string_equal(got, names);
}

static void test_empty(void **state)
{
    static const uint8_t whats[] = {VARJFS_WIRE_ITERATE_OBJECTS,
                                    VARJFS_WIRE_ITERATE_KEYS};
    VjClients *c = ((Fixture *)*state)->c;
    uint32_t gone;

    for (size_t i = 0; i < G_N_ELEMENTS(whats); i++) {
        uint8_t what = whats[i], kind = what == VARJFS_WIRE_ITERATE_KEYS
                                            ? VARJFS_WIRE_KEY_PUT
                                            : VARJFS_WIRE_OBJECT_CREATE;

        assert_int_equal(empty(c, what, "s", 2, &gone), -ENOENT);
        for (unsigned n = 0; n < 5; n++) {
            char name[2] = {(char)('a' + n), '\0'};

            assert_int_equal(run_one(c, (Op){.kind = kind, .space = "s", .name = name}),
                             VJ_WIRE_OK);
            assert_int_equal(run_one(c, (Op){.kind = kind, .space = "t", .name = name}),
                             VJ_WIRE_OK);
        }
        assert_int_equal(empty(c, what, "s", 2, &gone), VARJFS_WIRE_EMPTY_MORE);
        assert_int_equal(gone, 2);
        assert_int_equal(empty(c, what, "s", 2, &gone), VARJFS_WIRE_EMPTY_MORE);
        expect_spaces(c, what, "s t");
        assert_int_equal(empty(c, what, "s", 2, &gone), VARJFS_WIRE_EMPTY_GONE);
        assert_int_equal(gone, 1);
        expect_spaces(c, what, "t");
        assert_int_equal(empty(c, what, "s", 2, &gone), -ENOENT);
        /* It is made again, and has nothing of before. */
        assert_int_equal(run_one(c, (Op){.kind = kind, .space = "s", .name = "new"}),
                         VJ_WIRE_OK);
        assert_int_equal(empty(c, what, "s", 2, &gone), VARJFS_WIRE_EMPTY_GONE);
        assert_int_equal(gone, 1);
    }
}

static void test_empty_with_what_a_mount_has_made(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    uint32_t gone;
    uint64_t dir;
    VjAttr attr;

    make(c, "o");
    assert_int_equal(vj_client_space(c, VJ_CLIENT_OBJECTS, vj_slice("s", 1), false, &dir),
                     0);
    assert_int_equal(vj_fs_mkdir(c->fs, &c->who, dir, "directory", 0700, &attr), 0);
    assert_int_equal(vj_fs_symlink(c->fs, &c->who, dir, "link", "o", &attr), 0);
    assert_int_equal(empty(c, VARJFS_WIRE_ITERATE_OBJECTS, "s", 100, &gone),
                     VARJFS_WIRE_EMPTY_STAYS);
    assert_int_equal(gone, 2);
    expect_objects(c, "");
    make(c, "o");
    expect_objects(c, "o");
}

/* Keys that are left are as safe from who tidies up in a mount as before. */
static void test_empty_that_is_interrupted(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    uint64_t root;
    uint32_t gone;

    for (unsigned n = 0; n < 3; n++) {
        char name[2] = {(char)('a' + n), '\0'};

        assert_int_equal(run_one(c, KEY(PUT, .name = name)), VJ_WIRE_OK);
    }
    assert_int_equal(vj_client_root(c, VJ_CLIENT_KEYS, false, &root), 0);
    for (unsigned n = 0; n < 3; n++) {
        assert_int_equal(empty(c, VARJFS_WIRE_ITERATE_KEYS, "s", 1, &gone),
                         VARJFS_WIRE_EMPTY_MORE);
        assert_int_equal(gone, 1);
        assert_int_equal(vj_fs_rmdir(c->fs, root, "s"), -EPERM);
    }
    assert_int_equal(empty(c, VARJFS_WIRE_ITERATE_KEYS, "s", 1, &gone),
                     VARJFS_WIRE_EMPTY_GONE);
    assert_int_equal(gone, 0);
    expect_spaces(c, VARJFS_WIRE_ITERATE_KEYS, "");
}

/* A directory of keys that has to stay is protected as it was. */
static void test_empty_of_keys_with_a_directory(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    uint32_t gone, flags;
    uint64_t dir;
    VjAttr attr;

    assert_int_equal(run_one(c, KEY(PUT, .name = "k")), VJ_WIRE_OK);
    assert_int_equal(vj_client_space(c, VJ_CLIENT_KEYS, vj_slice("s", 1), false, &dir),
                     0);
    assert_int_equal(vj_fs_set_flags(c->fs, NULL, dir, 0), 0);
    assert_int_equal(vj_fs_mkdir(c->fs, &c->who, dir, "directory", 0700, &attr), 0);
    assert_int_equal(vj_fs_set_flags(c->fs, NULL, dir, VJ_INODE_IMMUTABLE), 0);
    assert_int_equal(empty(c, VARJFS_WIRE_ITERATE_KEYS, "s", 10, &gone),
                     VARJFS_WIRE_EMPTY_STAYS);
    assert_int_equal(gone, 1);
    assert_int_equal(vj_fs_get_flags(c->fs, dir, &flags), 0);
    assert_int_equal(flags, VJ_INODE_IMMUTABLE);
}

/* What a program of a mount has protected stays, and is not asked for without end. */
static void test_empty_of_what_is_protected(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    uint32_t gone;
    uint64_t dir;

    make(c, "o");
    assert_int_equal(run_one(c, OBJECT(DELETE, .name = "o")), VJ_WIRE_OK);
    assert_int_equal(vj_client_space(c, VJ_CLIENT_OBJECTS, vj_slice("s", 1), false, &dir),
                     0);
    assert_int_equal(vj_fs_set_flags(c->fs, NULL, dir, VJ_INODE_IMMUTABLE), 0);
    assert_int_equal(empty(c, VARJFS_WIRE_ITERATE_OBJECTS, "s", 10, &gone), -EACCES);
    assert_int_equal(vj_fs_set_flags(c->fs, NULL, dir, 0), 0);
}

/* The directory that was found a moment ago is another one now. */
static void test_empty_of_one_that_was_made_anew(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    uint64_t root, dir;
    uint32_t gone;

    for (uint8_t what = 0; what <= VARJFS_WIRE_ITERATE_KEYS; what++) {
        VjClientKind kind =
            what == VARJFS_WIRE_ITERATE_KEYS ? VJ_CLIENT_KEYS : VJ_CLIENT_OBJECTS;
        uint8_t put = what == VARJFS_WIRE_ITERATE_KEYS ? VARJFS_WIRE_KEY_PUT
                                                       : VARJFS_WIRE_OBJECT_CREATE;
        VjAttr attr;

        assert_int_equal(run_one(c, (Op){.kind = put, .space = "s", .name = "n"}),
                         VJ_WIRE_OK);
        assert_int_equal(vj_client_root(c, kind, false, &root), 0);
        assert_int_equal(vj_client_space(c, kind, vj_slice("s", 1), false, &dir), 0);
        if (kind == VJ_CLIENT_OBJECTS) {
            assert_int_equal(vj_fs_unlink(c->fs, dir, "n"), 0);
        }
        assert_int_equal(vj_fs_set_flags(c->fs, NULL, dir, 0), 0);
        assert_int_equal(vj_fs_rmdir(c->fs, root, "s"), 0);
        assert_int_equal(vj_fs_mkdir(c->fs, &c->who, root, "s", 0700, &attr), 0);
        assert_int_equal(empty(c, what, "s", 10, &gone), VARJFS_WIRE_EMPTY_GONE);
        expect_spaces(c, what, "");
        assert_int_equal(empty(c, what, "s", 10, &gone), -ENOENT);
    }
}

/* Another client, which comes between two operations of a batch. */
typedef struct Intruder {
    VjClients *c;
    uint8_t kind;
    unsigned left;
} Intruder;

static bool intrude(void *opaque)
{
    Intruder *i = opaque;

    if (i->left-- == 0) {
        Op op = i->kind == VARJFS_WIRE_OBJECT_RENAME
                    ? OBJECT(RENAME, .name = "other", .second = "o")
                    : OBJECT(DELETE, .name = "o");

        assert_int_equal(run_one(i->c, op), VJ_WIRE_OK);
    }
    return false;
}

/* What a batch has written loses its name before the batch is safe: it was done. */
static void test_what_was_written_loses_its_name(void **state)
{
    static const uint8_t kinds[] = {VARJFS_WIRE_OBJECT_RENAME, VARJFS_WIRE_OBJECT_DELETE};
    VjClients *c = ((Fixture *)*state)->c;

    for (size_t n = 0; n < G_N_ELEMENTS(kinds); n++) {
        Intruder i = {.c = c, .kind = kinds[n], .left = 1};
        const VjClientsStop stop = {.is_wanted = intrude, .opaque = &i};
        Request q = request_new(0, VARJFS_WIRE_SAFETY_STORAGE);

        make(c, "other");
        q.stop = &stop;
        request_add(&q, OBJECT(WRITE, .flags = VARJFS_WIRE_MAKE, .name = "o",
                               .brings = "text", .len = 4));
        request_add(&q, OBJECT(WRITE, .flags = VARJFS_WIRE_MAKE, .name = "p",
                               .brings = "text", .len = 4));
        request_run(&q, c);
        assert_int_equal(status_of(&q, 0), VJ_WIRE_OK);
        assert_int_equal(status_of(&q, 1), VJ_WIRE_OK);
        request_end(&q);
        expect_objects(c, n == 0 ? "o p" : "other p");
    }
    /* By the batch itself. */
    for (size_t n = 0; n < G_N_ELEMENTS(kinds); n++) {
        Request q = request_new(0, VARJFS_WIRE_SAFETY_STORAGE);

        request_add(&q, OBJECT(WRITE, .flags = VARJFS_WIRE_MAKE, .name = "q",
                               .brings = "text", .len = 4));
        request_add(&q, n == 0 ? OBJECT(RENAME, .name = "other", .second = "q")
                               : OBJECT(DELETE, .name = "q"));
        request_run(&q, c);
        assert_int_equal(status_of(&q, 0), VJ_WIRE_OK);
        assert_int_equal(status_of(&q, 1), VJ_WIRE_OK);
        request_end(&q);
    }
    expect_objects(c, "p");
}

typedef struct Countdown {
    unsigned left, asked;
} Countdown;

static bool count_down(void *opaque)
{
    Countdown *d = opaque;

    d->asked++;
    return d->left-- == 0;
}

/* No transaction looks at more than so many entries, whether they go or stay; nobody
 * waits for those behind a stop. */
static void test_empty_with_many_that_stay(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    Countdown d = {.left = 0};
    const VjClientsStop stop = {.is_wanted = count_down, .opaque = &d};
    uint32_t gone;
    uint64_t dir;
    VjAttr attr;

    make(c, "a");
    make(c, "z");
    assert_int_equal(vj_client_space(c, VJ_CLIENT_OBJECTS, vj_slice("s", 1), false, &dir),
                     0);
    for (unsigned n = 0; n < 2 * VJ_CLIENT_EMPTY_LOOK_MAX; n++) {
        char name[16];

        g_snprintf(name, sizeof name, "d%u", n);
        assert_int_equal(vj_fs_mkdir(c->fs, &c->who, dir, name, 0700, &attr), 0);
    }
    assert_int_equal(
        empty_or_stop(c, VARJFS_WIRE_ITERATE_OBJECTS, "s", 100, &stop, &gone),
        VARJFS_WIRE_EMPTY_MORE);
    assert_int_equal(gone, 1); /* a */
    expect_objects(c, "z");
    d = (Countdown){.left = 1};
    assert_int_equal(
        empty_or_stop(c, VARJFS_WIRE_ITERATE_OBJECTS, "s", 100, &stop, &gone),
        -ECANCELED);
    assert_int_equal(d.asked, 2);
    expect_objects(c, "z");
    d = (Countdown){.left = 100};
    assert_int_equal(
        empty_or_stop(c, VARJFS_WIRE_ITERATE_OBJECTS, "s", 100, &stop, &gone),
        VARJFS_WIRE_EMPTY_STAYS);
    assert_int_equal(gone, 1);
    assert_int_equal(d.asked, 2);
    expect_objects(c, "");
}

typedef struct Race {
    VjClients *c;
    gint ends; /* atomic */
    unsigned puts;
} Race;

static gpointer put_thread(gpointer opaque)
{
    Race *r = opaque;

    while (!g_atomic_int_get(&r->ends)) {
        char name[16];

        g_snprintf(name, sizeof name, "n%u", r->puts++ % 50);
        assert_int_equal(run_one(r->c, KEY(PUT, .name = name, .brings = "v", .len = 1)),
                         VJ_WIRE_OK);
        assert_int_equal(run_one(r->c, OBJECT(CREATE, .name = name)), VJ_WIRE_OK);
        write_text(r->c, name, "text");
    }
    return NULL;
}

/* Puts go on while the namespaces are deleted again and again: each is done, and fsck
 * finds nothing that belongs to no namespace. */
static void test_empty_beside_puts(void **state)
{
    Race race = {.c = ((Fixture *)*state)->c};
    GThread *thread = g_thread_new("put", put_thread, &race);
    unsigned done = 0, rounds = 0;

    while (done < 40 && rounds++ < 100000) {
        uint8_t what =
            rounds % 2 == 0 ? VARJFS_WIRE_ITERATE_OBJECTS : VARJFS_WIRE_ITERATE_KEYS;
        uint32_t gone;
        int rc = empty(race.c, what, "s", 10, &gone);

        assert_true(rc >= 0 || rc == -ENOENT);
        done += rc == VARJFS_WIRE_EMPTY_GONE;
    }
    g_atomic_int_set(&race.ends, 1);
    g_thread_join(thread);
    assert_int_equal(done, 40);
    assert_int_equal(run_one(race.c, KEY(PUT, .name = "last")), VJ_WIRE_OK);
    assert_int_equal(run_one(race.c, KEY(DELETE, .name = "last")), VJ_WIRE_OK);
}

static void test_empty_that_is_none(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    uint32_t gone;

    assert_int_equal(empty(c, 2, "s", 1, &gone), -EPROTO);
    assert_int_equal(empty(c, 0, "s", 0, &gone), -EPROTO);
    assert_int_equal(empty(c, 0, "s", VARJFS_WIRE_EMPTY_MAX + 1, &gone), -EPROTO);
    assert_int_equal(empty(c, 0, "", 1, &gone), -EPROTO);
    assert_int_equal(empty(c, 1, "a/b", 1, &gone), -EPROTO);
}

static void test_read_only(void **state)
{
    VjClients *c = ((Fixture *)*state)->c;
    const Op writes[] = {
        OBJECT(CREATE, .name = "p"),
        OBJECT(DELETE, .name = "o"),
        OBJECT(RESIZE, .name = "o"),
        OBJECT(RENAME, .name = "o", .second = "p"),
        ATTRIBUTE(PUT, .name = "o", .second = "a"),
        ATTRIBUTE(DELETE, .name = "o", .second = "a"),
    };
    uint8_t message[] = {0, 0, 1, 0, 1, 0, 0, 0, 's'};
    VjClientsReply reply;
    Request q;

    make(c, "o");
    assert_int_equal(set(c, "o", "a", "1"), VJ_WIRE_OK);
    for (size_t i = 0; i < G_N_ELEMENTS(writes); i++) {
        q = request_new(0, 0);
        request_add(&q, writes[i]);
        request_run_as(&q, c, true);
        assert_int_equal(status_of(&q, 0), VJ_WIRE_READ_ONLY);
        request_end(&q);
    }
    q = request_new(VARJFS_WIRE_ATOMIC, 0);
    request_add(&q, ATTRIBUTE(GET, .name = "o", .second = "a", .most = 10));
    request_run_as(&q, c, true);
    assert_int_equal(status_of(&q, 0), VJ_WIRE_OK);
    take(&q, 1);
    request_end(&q);
    assert_int_equal(
        vj_clients_empty(c, vj_slice(message, sizeof message), true, NULL, &reply),
        -EROFS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

static const struct CMUnitTest tests[] = {
    TEST(test_attributes),
    TEST(test_names_of_attributes),
    TEST(test_attributes_as_a_mount_sees_them),
    TEST(test_creation_with_attributes),
    TEST(test_creation_that_is_refused),
    TEST(test_all_or_none),
    TEST(test_what_no_atomic_batch_has),
    TEST(test_first_writes),
    TEST(test_a_batch_that_mixes_everything),
    TEST(test_a_long_run_of_creations),
    TEST(test_resize),
    TEST(test_rename),
    TEST(test_items),
    TEST(test_empty),
    TEST(test_empty_with_what_a_mount_has_made),
    TEST(test_empty_that_is_interrupted),
    TEST(test_empty_of_keys_with_a_directory),
    TEST(test_empty_of_what_is_protected),
    TEST(test_empty_of_one_that_was_made_anew),
    TEST(test_empty_with_many_that_stay),
    TEST(test_what_was_written_loses_its_name),
    TEST(test_empty_beside_puts),
    TEST(test_empty_that_is_none),
    TEST(test_read_only),
};

VJ_TEST_MAIN(tests)
