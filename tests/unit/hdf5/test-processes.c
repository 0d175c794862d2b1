/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-processes.c - several processes on one file of the HDF5 connector
 *
 * They make links, attributes and chunks in the same places, compete for names, and are
 * killed at any moment; what the others and the file have is looked at afterwards.
 */
#include "volume.h"

#include <hdf5.h>
#include <signal.h>

#define PROCESSES 4
#define EACH 20
#define CHUNK 16
#define KILLS 6

static char *directory, *source;

static int start(void **state)
{
    g_autofree char *command = NULL;

    (void)state;
    directory = vj_test_make_dir();
    source = g_build_filename(directory, "volume", NULL);
    command = g_strdup_printf("%s/mkfs.varjfs %s >/dev/null", VARJFS_SBINDIR, source);
    assert_int_equal(mkdir(source, 0700), 0);
    assert_int_equal(system(command), 0);
    setenv("VARJFS_SOURCE", source, 1);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    H5close();
    volume_stop(directory);
    return 0;
}

/* In a child: HDF5 begins there, as its parent has not used it. */
#define CHECK(what)                                                                      \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            fprintf(stderr, "# line %d: %s\n", __LINE__, #what);                         \
            _exit(100);                                                                  \
        }                                                                                \
    } while (0)

static hid_t tracked(hid_t class_id)
{
    hid_t list = H5Pcreate(class_id);

    CHECK(H5Pset_link_creation_order(list,
                                     H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED) >= 0);
    CHECK(H5Pset_attr_creation_order(list,
                                     H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED) >= 0);
    return list;
}

/* Runs @body in a child; it exits with what that returns. */
static pid_t child(int (*body)(int), int number)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(body(number));
    }
    return pid;
}

static int wait_for(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_not_equal(WEXITSTATUS(status), 100);
    return WEXITSTATUS(status);
}

/* ---- making things at the same time ------------------------------------------------ */

static int make_file(int unused)
{
    hsize_t dims[] = {PROCESSES * EACH * CHUNK}, chunk[] = {CHUNK};
    hid_t file =
        H5Fcreate("many.h5", H5F_ACC_TRUNC, tracked(H5P_FILE_CREATE), H5P_DEFAULT);
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, dims, NULL);
    int fill = -1;

    (void)unused;
    CHECK(file >= 0);
    CHECK(H5Pset_chunk(dcpl, 1, chunk) >= 0 &&
          H5Pset_fill_value(dcpl, H5T_NATIVE_INT, &fill) >= 0);
    CHECK(H5Dcreate2(file, "data", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl,
                     H5P_DEFAULT) >= 0);
    return H5close() < 0;
}

/* One chunk of the dataset that all have. */
static void write_chunk(hid_t data, int number, int i)
{
    hsize_t at = ((hsize_t)number * EACH + (hsize_t)i) * CHUNK, count = CHUNK;
    hid_t memory = H5Screate_simple(1, &count, NULL), space = H5Dget_space(data);
    int values[CHUNK];

    for (int j = 0; j < CHUNK; j++) {
        values[j] = (int)at + j;
    }
    CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &at, NULL, &count, NULL) >= 0);
    CHECK(H5Dwrite(data, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, values) >= 0);
    H5Sclose(space);
    H5Sclose(memory);
}

/* Returns how many of the names that all want it got. */
static int make_things(int number)
{
    hid_t file = H5Fopen("many.h5", H5F_ACC_RDWR, H5P_DEFAULT), data, scalar;
    int won = 0;

    CHECK(file >= 0);
    data = H5Dopen2(file, "data", H5P_DEFAULT);
    scalar = H5Screate(H5S_SCALAR);
    for (int i = 0; i < EACH; i++) {
        char name[32];
        hid_t id;

        snprintf(name, sizeof name, "own %d %d", number, i);
        CHECK((id = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)) >= 0);
        H5Gclose(id);
        CHECK((id = H5Acreate2(file, name, H5T_NATIVE_INT, scalar, H5P_DEFAULT,
                               H5P_DEFAULT)) >= 0);
        CHECK(H5Awrite(id, H5T_NATIVE_INT, &i) >= 0);
        H5Aclose(id);
        snprintf(name, sizeof name, "of one %d", i);
        H5E_BEGIN_TRY
        {
            id = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        }
        H5E_END_TRY
        if (id >= 0) {
            won++;
            H5Gclose(id);
        }
        snprintf(name, sizeof name, "link %d %d", number, i);
        CHECK(H5Lcreate_hard(file, "data", file, name, H5P_DEFAULT, H5P_DEFAULT) >= 0);
        write_chunk(data, number, i);
    }
    H5Dclose(data);
    H5Sclose(scalar);
    CHECK(H5Fclose(file) >= 0);
    return won;
}

static herr_t orders_rise(hid_t group, const char *name, const H5L_info2_t *info, void *p)
{
    int64_t *last = p;

    (void)group;
    (void)name;
    CHECK(info->corder_valid && info->corder > *last);
    *last = info->corder;
    return 0;
}

static int look_at_things(int unused)
{
    hid_t file = H5Fopen("many.h5", H5F_ACC_RDONLY, H5P_DEFAULT), data;
    g_autofree int *values = g_new(int, PROCESSES *EACH *CHUNK);
    int64_t last = -1;
    H5O_info2_t info;
    H5G_info_t group;

    (void)unused;
    CHECK(H5Gget_info(file, &group) >= 0);
    CHECK(group.nlinks == 1 + EACH + 2 * PROCESSES * EACH);
    CHECK(H5Literate2(file, H5_INDEX_CRT_ORDER, H5_ITER_INC, NULL, orders_rise, &last) ==
          0);
    CHECK(H5Oget_info3(file, &info, H5O_INFO_ALL) >= 0);
    CHECK(info.num_attrs == PROCESSES * EACH);
    CHECK((data = H5Dopen2(file, "data", H5P_DEFAULT)) >= 0);
    CHECK(H5Oget_info3(data, &info, H5O_INFO_ALL) >= 0);
    CHECK(info.rc == 1 + PROCESSES * EACH);
    CHECK(H5Dread(data, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    for (int i = 0; i < PROCESSES * EACH * CHUNK; i++) {
        CHECK(values[i] == i);
    }
    return H5close() < 0;
}

static void processes_make_things_in_one_group(void **state)
{
    pid_t pids[PROCESSES];
    int won = 0;

    (void)state;
    assert_int_equal(wait_for(child(make_file, 0)), 0);
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = child(make_things, i);
    }
    for (int i = 0; i < PROCESSES; i++) {
        won += wait_for(pids[i]);
    }
    assert_int_equal(won, EACH);
    assert_int_equal(wait_for(child(look_at_things, 0)), 0);
}

/* ---- being killed ------------------------------------------------------------------ */

static int ready[2];

/* Makes and removes until it is killed; first says that it has begun. */
static int make_and_remove(int number)
{
    hid_t file = H5Fopen("killed.h5", H5F_ACC_RDWR, H5P_DEFAULT), space;
    hsize_t dims[] = {100};
    int values[100] = {0};
    char name[64];

    CHECK(file >= 0);
    space = H5Screate_simple(1, dims, NULL);
    for (int i = 0;; i++) {
        hid_t group, data;

        snprintf(name, sizeof name, "group %d %d", number, i);
        CHECK((group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)) >=
              0);
        CHECK((data = H5Dcreate2(group, "data", H5T_NATIVE_INT, space, H5P_DEFAULT,
                                 H5P_DEFAULT, H5P_DEFAULT)) >= 0);
        CHECK(H5Dwrite(data, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
        H5Dclose(data);
        H5Gclose(group);
        if (i == 3) {
            CHECK(write(ready[1], "", 1) == 1);
        }
        if (i >= 3) {
            snprintf(name, sizeof name, "group %d %d", number, i - 3);
            CHECK(H5Ldelete(file, name, H5P_DEFAULT) >= 0);
        }
    }
}

static herr_t opens(hid_t group, const char *name, const H5O_info2_t *info, void *count)
{
    hid_t id = H5Oopen(group, name, H5P_DEFAULT);

    (void)info;
    CHECK(id >= 0);
    H5Oclose(id);
    (*(int *)count)++;
    return 0;
}

static int make_empty_file(int unused)
{
    (void)unused;
    CHECK(H5Fcreate("killed.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    return H5close() < 0;
}

/* Each link leads to an object, all of it can be removed, and the file, too. */
static int look_after_kills(int unused)
{
    hid_t file = H5Fopen("killed.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    H5G_info_t group;
    int count = 0;

    (void)unused;
    CHECK(file >= 0);
    CHECK(H5Ovisit3(file, H5_INDEX_NAME, H5_ITER_INC, opens, &count, H5O_INFO_BASIC) ==
          0);
    CHECK(count > 1);
    for (;;) {
        CHECK(H5Gget_info(file, &group) >= 0);
        if (group.nlinks == 0) {
            break;
        }
        CHECK(H5Ldelete_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC, 0, H5P_DEFAULT) >=
              0);
    }
    CHECK(H5Fclose(file) >= 0);
    CHECK(H5Fdelete("killed.h5", H5P_DEFAULT) >= 0);
    CHECK(H5Fis_accessible("killed.h5", H5P_DEFAULT) == 0);
    return H5close() < 0;
}

static void links_lead_to_objects_after_kills(void **state)
{
    (void)state;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(wait_for(child(make_empty_file, 0)), 0);
    for (int i = 0; i < KILLS; i++) {
        pid_t pids[2];
        char byte;
        int status;

        for (int j = 0; j < 2; j++) {
            pids[j] = child(make_and_remove, 2 * i + j);
        }
        /* One is surely in the middle of something, the other one at most begins. */
        assert_int_equal(read(ready[0], &byte, 1), 1);
        for (int j = 0; j < 2; j++) {
            assert_int_equal(kill(pids[j], SIGKILL), 0);
            assert_int_equal(waitpid(pids[j], &status, 0), pids[j]);
            assert_true(WIFSIGNALED(status));
        }
    }
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(wait_for(child(look_after_kills, 0)), 0);
}

/* ---- a daemon that is killed ------------------------------------------------------- */

/* The daemon of our volume. */
static pid_t daemon_pid(void)
{
    GDir *dir = g_dir_open("/proc", 0, NULL);
    const char *name;
    pid_t found = 0;

    CHECK(dir);
    while (!found && (name = g_dir_read_name(dir))) {
        g_autofree char *path = g_build_filename("/proc", name, "cmdline", NULL);
        g_autofree char *line = NULL;
        size_t len = 0;

        if (name[0] < '0' || name[0] > '9' ||
            !g_file_get_contents(path, &line, &len, NULL)) {
            continue;
        }
        for (size_t i = 0; i + 1 < len; i++) {
            line[i] = line[i] ? line[i] : ' ';
        }
        if (strstr(line, "varjfsd") && strstr(line, source)) {
            found = (pid_t)strtol(name, NULL, 10);
        }
    }
    g_dir_close(dir);
    return found;
}

static int outlive_the_daemon(int unused)
{
    hid_t file = H5Fcreate("flushed.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), id,
          old, old_id;
    hsize_t dims[] = {1000};
    hid_t space = H5Screate_simple(1, dims, NULL);
    int values[1000], again[1000];
    pid_t pid = daemon_pid();

    (void)unused;
    CHECK(file >= 0 && pid > 0);
    for (int i = 0; i < 1000; i++) {
        values[i] = 7 * i;
    }
    id = H5Dcreate2(file, "flushed", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT,
                    H5P_DEFAULT);
    CHECK(id >= 0);
    CHECK(H5Dwrite(id, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    CHECK(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
    CHECK(kill(pid, SIGKILL) == 0);
    H5E_BEGIN_TRY
    {
        CHECK(H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) < 0);
        CHECK(H5Dwrite(id, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0);
    }
    H5E_END_TRY
    /* The old file is still open when it is opened again; it closes when it has said
     * that it could not be flushed. */
    old = file;
    old_id = id;
    file = H5Fopen("flushed.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    CHECK(file >= 0);
    id = H5Dopen2(file, "flushed", H5P_DEFAULT);
    CHECK(id >= 0);
    CHECK(H5Dread(id, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, again) >= 0);
    CHECK(memcmp(values, again, sizeof values) == 0);
    CHECK(H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5E_BEGIN_TRY
    {
        CHECK(H5Dclose(old_id) >= 0);
        CHECK(H5Fclose(old) < 0);
        CHECK(H5Fclose(old) >= 0);
    }
    H5E_END_TRY
    CHECK(H5Dclose(id) >= 0);
    CHECK(H5Fclose(file) >= 0);
    return H5close() < 0;
}

static void what_was_flushed_outlives_the_daemon(void **state)
{
    (void)state;
    assert_int_equal(wait_for(child(outlive_the_daemon, 0)), 0);
}

/* ---- fork -------------------------------------------------------------------------- */

static int use_in_child(int unused)
{
    hid_t file = H5Fcreate("fork.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), group;
    pid_t pid;
    int status;

    (void)unused;
    CHECK(file >= 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        H5E_BEGIN_TRY
        {
            group = H5Gcreate2(file, "a", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        }
        H5E_END_TRY
        _exit(group >= 0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK((group = H5Gcreate2(file, "a", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)) >= 0);
    return H5close() < 0;
}

static void a_child_does_not_use_its_parents_file(void **state)
{
    (void)state;
    assert_int_equal(wait_for(child(use_in_child, 0)), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(processes_make_things_in_one_group),
    cmocka_unit_test(links_lead_to_objects_after_kills),
    cmocka_unit_test(what_was_flushed_outlives_the_daemon),
    cmocka_unit_test(a_child_does_not_use_its_parents_file),
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
