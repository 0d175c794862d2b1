/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-others.c - one process has open what another one deletes or changes
 *
 * Two processes take turns: each test is what the first one does, and what the other one
 * does when it is let go.
 */
#include "volume.h"

#include <hdf5.h>

#include <varjfs/hdf5.h>
#include <varjfs/varjfs.h>

#include "requests.h"

#define COUNT 8
#define RACES 100

static char *directory;

static int start(void **state)
{
    (void)state;
    directory = volume_start();
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    volume_stop(directory);
    return 0;
}

/* ---- turns ------------------------------------------------------------------------- */

#define CHECK(what)                                                                      \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            fprintf(stderr, "# line %d: %s\n", __LINE__, #what);                         \
            _exit(100);                                                                  \
        }                                                                                \
    } while (0)

/* The call fails; HDF5 prints nothing. */
#define FAILS(call)                                                                      \
    do {                                                                                 \
        H5E_BEGIN_TRY                                                                    \
        {                                                                                \
            CHECK((call) < 0);                                                           \
        }                                                                                \
        H5E_END_TRY                                                                      \
    } while (0)

static int turn[2][2]; /* pipes: what lets each of the two go on */
static int me;

static void wait_for_turn(void)
{
    char byte;
    ssize_t r = read(turn[me][0], &byte, 1);

    CHECK(r == 1 || r == 0); /* the other one has ended */
}

static bool is_my_turn(void)
{
    struct pollfd p = {.fd = turn[me][0], .events = POLLIN};

    return poll(&p, 1, 0) != 0;
}

/* The other one goes on, until it gives the turn back or ends. */
static void let_other_go(void)
{
    CHECK(write(turn[!me][1], "", 1) == 1 || errno == EPIPE);
    wait_for_turn();
}

static pid_t begin(int number, void (*body)(void))
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        me = number;
        close(turn[me][1]);
        close(turn[!me][0]);
        if (me == 1) {
            wait_for_turn();
        }
        body();
        CHECK(H5close() >= 0);
        _exit(0);
    }
    return pid;
}

static void run(void (*first)(void), void (*other)(void))
{
    pid_t pids[2];
    int status;

    assert_int_equal(pipe(turn[0]), 0);
    assert_int_equal(pipe(turn[1]), 0);
    pids[0] = begin(0, first);
    pids[1] = begin(1, other);
    for (int i = 0; i < 2; i++) {
        close(turn[i][0]);
        close(turn[i][1]);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
}

/* ---- helpers ----------------------------------------------------------------------- */

static unsigned count(varjfs *v, bool objects, const char *space)
{
    struct varjfs_entry e = {.size = sizeof e};
    varjfs_iterator *i;
    unsigned n = 0;

    CHECK((objects ? varjfs_object_iterate(v, space, NULL, &i)
                   : varjfs_kv_iterate(v, space, NULL, 0, &i)) == 0);
    while (varjfs_iterator_next(i, &e) == 1) {
        n++;
    }
    varjfs_iterator_free(i);
    return n;
}

/* Spaces of files, of keys or of objects, and what is in them. */
static void stored(bool objects, unsigned *spaces, unsigned *n)
{
    struct varjfs_entry e = {.size = sizeof e};
    varjfs_iterator *i;
    varjfs *v;

    *spaces = *n = 0;
    CHECK(varjfs_open(getenv("VARJFS_SOURCE"), NULL, &v) == 0);
    CHECK((objects ? varjfs_object_iterate(v, NULL, "hdf5-", &i)
                   : varjfs_kv_iterate(v, NULL, "hdf5-", 5, &i)) == 0);
    while (varjfs_iterator_next(i, &e) == 1) {
        g_autofree char *name = g_strndup(e.name, e.name_len);

        ++*spaces;
        *n += count(v, objects, name);
    }
    varjfs_iterator_free(i);
    CHECK(varjfs_close(v) == 0);
}

static hid_t open_file(void)
{
    hid_t file = H5Fopen("f.h5", H5F_ACC_RDWR, H5P_DEFAULT);

    CHECK(file >= 0);
    return file;
}

static hid_t create_file(void)
{
    hid_t list = H5Pcreate(H5P_FILE_CREATE), file;

    CHECK(H5Pset_link_creation_order(list, H5P_CRT_ORDER_TRACKED) >= 0);
    CHECK(H5Pset_attr_creation_order(list, H5P_CRT_ORDER_TRACKED) >= 0);
    CHECK((file = H5Fcreate("f.h5", H5F_ACC_TRUNC, list, H5P_DEFAULT)) >= 0);
    return file;
}

/* Writes to one with a transformation, which is made first, do not ask themselves whether
 * the dataset is still there. */
static bool is_transformed;

static hid_t create_dataset(hid_t file)
{
    hsize_t dims[] = {COUNT};
    hid_t space = H5Screate_simple(1, dims, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE),
          id;

    if (is_transformed) {
        CHECK(varjfs_hdf5_set_transform(dcpl, "rle") >= 0);
    }
    id = H5Dcreate2(file, "d", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    CHECK(id >= 0);
    CHECK(H5Pclose(dcpl) >= 0);
    CHECK(H5Sclose(space) >= 0);
    return id;
}

static herr_t write_all(hid_t dataset)
{
    int values[COUNT] = {1, 2, 3};

    return H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
}

static herr_t read_all(hid_t dataset)
{
    int values[COUNT];

    return H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
}

static hid_t create_attribute(hid_t at, const char *name)
{
    hid_t space = H5Screate(H5S_SCALAR), id;

    id = H5Acreate2(at, name, H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Sclose(space);
    return id;
}

static void make_link(hid_t at, const char *name)
{
    CHECK(H5Lcreate_soft("nowhere", at, name, H5P_DEFAULT, H5P_DEFAULT) >= 0);
}

/* ---- what has gone ----------------------------------------------------------------- */

static void delete_dataset(void)
{
    hid_t file = open_file();

    CHECK(H5Ldelete(file, "d", H5P_DEFAULT) >= 0);
    CHECK(H5Fclose(file) >= 0);
}

static void write_deleted(void)
{
    hid_t file = create_file(), d = create_dataset(file);
    unsigned spaces, n;

    CHECK(write_all(d) >= 0);
    CHECK(H5Dflush(d) >= 0);
    let_other_go();
    FAILS(read_all(d));
    FAILS(create_attribute(d, "a"));
    FAILS(write_all(d) < 0 ? -1 : H5Dflush(d));
    FAILS(write_all(d) < 0 ? -1 : H5Fflush(file, H5F_SCOPE_LOCAL));
    if (is_transformed) {
        CHECK(write_all(d) >= 0);
        CHECK(H5Dclose(d) >= 0);
        FAILS(H5Fclose(file)); /* what was written was lost */
    } else {
        FAILS(write_all(d));
        CHECK(H5Dclose(d) >= 0);
    }
    CHECK(H5Fclose(file) >= 0);
    stored(true, &spaces, &n);
    CHECK(n == 0);
}

static void a_deleted_dataset_is_an_error(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        is_transformed = i == 1;
        run(write_deleted, delete_dataset);
    }
    is_transformed = false;
}

static void link_to_deleted(void)
{
    hid_t file = create_file(), d = create_dataset(file);

    let_other_go();
    FAILS(H5Lcreate_hard(d, ".", file, "e", H5P_DEFAULT, H5P_DEFAULT));
    FAILS(H5Olink(d, file, "e", H5P_DEFAULT, H5P_DEFAULT));
    CHECK(H5Lexists(file, "e", H5P_DEFAULT) == 0);
    CHECK(H5Dclose(d) >= 0);
    CHECK(H5Fclose(file) >= 0);
}

static void no_link_leads_to_what_was_deleted(void **state)
{
    (void)state;
    run(link_to_deleted, delete_dataset);
}

static void truncate_file(void)
{
    CHECK(H5Fclose(create_file()) >= 0);
}

static void delete_file(void)
{
    CHECK(H5Fdelete("f.h5", H5P_DEFAULT) >= 0);
}

static unsigned spaces_of_file;

static void write_stale(void)
{
    hid_t file = create_file(), d = create_dataset(file);
    unsigned spaces, n;

    CHECK(write_all(d) >= 0);
    CHECK(H5Fflush(file, H5F_SCOPE_LOCAL) >= 0);
    let_other_go();
    FAILS(read_all(d));
    FAILS(write_all(d) < 0 ? -1 : H5Fflush(file, H5F_SCOPE_LOCAL));
    FAILS(H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    FAILS(create_attribute(file, "a"));
    CHECK(H5Dclose(d) >= 0);
    FAILS(H5Fclose(file));
    CHECK(H5Fclose(file) >= 0);
    stored(true, &spaces, &n);
    CHECK(n == 0);
    stored(false, &spaces, &n);
    CHECK(n == spaces_of_file);
}

static void a_file_that_is_not_there_any_more_is_an_error(void **state)
{
    (void)state;
    spaces_of_file = 1; /* and its root group */
    run(write_stale, truncate_file);
    spaces_of_file = 0;
    run(write_stale, delete_file);
}

/* ---- being killed ------------------------------------------------------------------ */

static int requests_left = -1; /* then the process is killed */

static int requests_until_turn = -1; /* then the other one goes on first */

static void before_each_request(void)
{
    if (requests_until_turn >= 0 && requests_until_turn-- == 0) {
        let_other_go();
    }
    if (requests_left >= 0 && requests_left-- == 0) {
        kill(getpid(), SIGKILL);
    }
}

static int turn_at;

static void write_while_deleted(void)
{
    hid_t file = create_file(), d = create_dataset(file);

    CHECK(write_all(d) >= 0);
    CHECK(H5Fflush(file, H5F_SCOPE_LOCAL) >= 0);
    let_other_go();
    H5E_BEGIN_TRY
    {
        write_all(d);
        H5Dclose(d);
        if (H5Fclose(file) < 0) {
            H5Fclose(file);
        }
    }
    H5E_END_TRY
}

static void delete_in_steps(void)
{
    hid_t file = open_file();

    requests_until_turn = turn_at;
    CHECK(H5Ldelete(file, "d", H5P_DEFAULT) >= 0);
    requests_until_turn = -1;
    CHECK(H5Fclose(file) >= 0);
}

/* Whenever it comes, it does not bring the object back. */
static void a_write_between_the_steps_of_a_deletion_leaves_nothing(void **state)
{
    unsigned spaces, n;

    (void)state;
    for (turn_at = 0; turn_at < 20; turn_at++) {
        run(write_while_deleted, delete_in_steps);
        stored(true, &spaces, &n);
        assert_int_equal(n, 0);
    }
}

/* Removes or replaces a file, and is killed before one of the requests. */
static int remove_killed(bool truncates, int requests)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        hid_t file = create_file(), d = create_dataset(file);

        CHECK(write_all(d) >= 0);
        CHECK(H5Dclose(d) >= 0);
        CHECK(H5Fclose(file) >= 0);
        requests_left = requests;
        if (truncates) {
            create_file();
        } else {
            delete_file();
        }
        requests_left = -1;
        CHECK(H5close() >= 0);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    return status;
}

static void make_and_delete_another(void)
{
    unsigned spaces, n;
    hid_t file = H5Fcreate("other.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);

    CHECK(file >= 0);
    CHECK(H5Fclose(file) >= 0);
    CHECK(H5Fdelete("other.h5", H5P_DEFAULT) >= 0);
    if (H5Fis_accessible("f.h5", H5P_DEFAULT) > 0) {
        CHECK(H5Fclose(open_file()) >= 0);
        CHECK(H5Fdelete("f.h5", H5P_DEFAULT) >= 0);
    }
    for (int objects = 0; objects < 2; objects++) {
        stored(objects, &spaces, &n);
        CHECK(spaces == 0 && n == 0);
    }
}

static void nothing(void)
{
}

static void a_file_whose_deletion_was_killed_goes_with_the_next(void **state)
{
    int kills = 0;

    (void)state;
    for (int truncates = 0; truncates < 2; truncates++) {
        for (int i = 0; remove_killed(truncates, i) != 0; i++, kills++) {
            run(make_and_delete_another, nothing);
        }
        run(make_and_delete_another, nothing);
    }
    assert_true(kills > 4);
}

/* Makes, replaces and deletes one file that all want. */
static void replace_often(void)
{
    int made = 0;

    for (int i = 0; i < RACES; i++) {
        hid_t file;

        H5E_BEGIN_TRY
        {
            if (i % 3 == 0) {
                H5Fdelete("f.h5", H5P_DEFAULT);
            }
            file = H5Fcreate("f.h5", i % 3 == 1 ? H5F_ACC_EXCL : H5F_ACC_TRUNC,
                             H5P_DEFAULT, H5P_DEFAULT);
            /* The other one may have replaced it: that is said once. */
            CHECK(file < 0 || H5Fclose(file) >= 0 || H5Fclose(file) >= 0);
        }
        H5E_END_TRY
        made += file >= 0;
    }
    CHECK(made > 0);
}

static void begin_together(void)
{
    /* The other one begins too; the turn comes back when it has ended. */
    CHECK(write(turn[1][1], "", 1) == 1);
    replace_often();
    wait_for_turn();
    make_and_delete_another();
}

static void of_two_that_replace_a_file_nothing_is_left(void **state)
{
    (void)state;
    run(begin_together, replace_often);
}

/* ---- creation order ---------------------------------------------------------------- */

static int64_t order_of(hid_t file, const char *name)
{
    H5L_info2_t info;

    CHECK(H5Lget_info2(file, name, &info, H5P_DEFAULT) >= 0 && info.corder_valid);
    return info.corder;
}

static int64_t attribute_order_of(hid_t file, const char *name)
{
    H5A_info_t info;

    CHECK(H5Aget_info_by_name(file, ".", name, &info, H5P_DEFAULT) >= 0 &&
          info.corder_valid);
    return info.corder;
}

static void make_both(hid_t file, const char *name)
{
    make_link(file, name);
    CHECK(H5Aclose(create_attribute(file, name)) >= 0);
}

static void add_many(void)
{
    hid_t file = open_file();
    char name[16];

    for (int i = 1; i <= COUNT; i++) {
        snprintf(name, sizeof name, "%d", i);
        make_both(file, name);
    }
    CHECK(H5Ldelete(file, "1", H5P_DEFAULT) >= 0);
    CHECK(H5Adelete(file, "1") >= 0);
    let_other_go();
    make_both(file, "last");
    CHECK(order_of(file, "last") == COUNT + 2);
    CHECK(attribute_order_of(file, "last") == COUNT + 2);
    CHECK(H5Fclose(file) >= 0);
}

/* It has seen number 0 alone. */
static void add_after_many(void)
{
    hid_t file = create_file();
    H5G_info_t info;

    make_both(file, "0");
    CHECK(order_of(file, "0") == 0 && attribute_order_of(file, "0") == 0);
    let_other_go();
    make_both(file, "mine");
    CHECK(order_of(file, "mine") == COUNT + 1);
    CHECK(attribute_order_of(file, "mine") == COUNT + 1);
    let_other_go();
    CHECK(H5Gget_info(file, &info) >= 0);
    CHECK(info.nlinks == COUNT + 2 && info.max_corder == COUNT + 3);
    CHECK(H5Fclose(file) >= 0);
}

static void numbers_of_creation_order_do_not_come_again(void **state)
{
    (void)state;
    run(add_after_many, add_many);
}

static void make_link_and_remove_it(void)
{
    hid_t file = open_file();

    for (int i = 0; i < RACES; i++) {
        make_link(file, me ? "mine" : "yours");
        CHECK(H5Ldelete(file, me ? "mine" : "yours", H5P_DEFAULT) >= 0);
    }
    make_link(file, me ? "the last of mine" : "the last of yours");
    CHECK(H5Fclose(file) >= 0);
}

static void empty_again_and_again(void)
{
    hid_t file = create_file();

    /* The other one begins, and the turn comes back when it has ended or at once. */
    CHECK(write(turn[1][1], "", 1) == 1);
    make_link_and_remove_it();
    wait_for_turn();
    CHECK(order_of(file, "the last of mine") != order_of(file, "the last of yours"));
    CHECK(H5Fclose(file) >= 0);
}

static void a_group_counts_from_0_when_it_is_empty(void **state)
{
    (void)state;
    run(empty_again_and_again, make_link_and_remove_it);
}

/* ---- attributes -------------------------------------------------------------------- */

#define MANY 10000

/* One that is too long for its key. */
static hid_t create_long_attribute(hid_t file)
{
    hsize_t dims[] = {MANY};
    hid_t space = H5Screate_simple(1, dims, NULL), id;

    id = H5Acreate2(file, "long", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(id >= 0 && H5Sclose(space) >= 0);
    return id;
}

static void write_long(hid_t attribute, int value)
{
    static int values[MANY];

    for (int i = 0; i < MANY; i++) {
        values[i] = value;
    }
    CHECK(H5Awrite(attribute, H5T_NATIVE_INT, values) >= 0);
}

static void write_long_often(void)
{
    hid_t file = open_file(), attribute = H5Aopen(file, "long", H5P_DEFAULT);

    for (int i = 0; i < RACES; i++) {
        write_long(attribute, i);
    }
    CHECK(H5Aclose(attribute) >= 0);
    CHECK(H5Fclose(file) >= 0);
}

static void read_long_often(void)
{
    static int values[MANY];
    hid_t file = create_file(), attribute = create_long_attribute(file);

    write_long(attribute, 0);
    CHECK(write(turn[1][1], "", 1) == 1);
    do {
        CHECK(H5Aread(attribute, H5T_NATIVE_INT, values) >= 0);
        for (int i = 0; i < MANY; i++) {
            CHECK(values[i] == values[0]);
        }
    } while (values[0] != RACES - 1);
    wait_for_turn();
    CHECK(H5Aclose(attribute) >= 0);
    CHECK(H5Fclose(file) >= 0);
}

static void an_attribute_is_read_while_it_is_written(void **state)
{
    (void)state;
    run(read_long_often, write_long_often);
}

static void delete_attributes(void)
{
    hid_t file = open_file();

    for (int i = 0; i < RACES; i++) {
        CHECK(H5Adelete(file, "long") >= 0);
        let_other_go();
    }
    CHECK(H5Fclose(file) >= 0);
}

static void write_until_deleted(void)
{
    hid_t file = create_file();

    for (int i = 0; i < RACES; i++) {
        static int values[MANY];
        hid_t attribute = create_long_attribute(file);
        herr_t r;

        write_long(attribute, i);
        CHECK(write(turn[1][1], "", 1) == 1);
        do {
            H5E_BEGIN_TRY
            {
                r = H5Awrite(attribute, H5T_NATIVE_INT, values);
            }
            H5E_END_TRY
        } while (r >= 0 && !is_my_turn());
        wait_for_turn();
        CHECK(H5Aexists(file, "long") == 0);
        CHECK(H5Aclose(attribute) >= 0);
    }
    let_other_go();
    CHECK(H5Fclose(file) >= 0);
}

static void a_write_does_not_bring_an_attribute_back(void **state)
{
    (void)state;
    run(write_until_deleted, delete_attributes);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_deleted_dataset_is_an_error),
    cmocka_unit_test(no_link_leads_to_what_was_deleted),
    cmocka_unit_test(a_file_that_is_not_there_any_more_is_an_error),
    cmocka_unit_test(a_write_between_the_steps_of_a_deletion_leaves_nothing),
    cmocka_unit_test(a_file_whose_deletion_was_killed_goes_with_the_next),
    cmocka_unit_test(of_two_that_replace_a_file_nothing_is_left),
    cmocka_unit_test(numbers_of_creation_order_do_not_come_again),
    cmocka_unit_test(an_attribute_is_read_while_it_is_written),
    cmocka_unit_test(a_write_does_not_bring_an_attribute_back),
    cmocka_unit_test(a_group_counts_from_0_when_it_is_empty),
};

int main(int argc, char **argv)
{
    g_autofree char *path = g_strdup_printf("%s:%s", VARJFS_SBINDIR, getenv("PATH"));

    if (argc == 3 && strcmp(argv[1], "-p") == 0) {
        cmocka_set_test_filter(argv[2]);
    }
    setenv("PATH", path, 1);
    setenv("HDF5_PLUGIN_PATH", VARJFS_SBINDIR "/.libs", 1);
    setenv("HDF5_VOL_CONNECTOR", "varjfs", 1);
    setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 0);
    return cmocka_run_group_tests(tests, start, stop);
}
