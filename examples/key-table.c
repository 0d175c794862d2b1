/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * key-table - keys of a volume from a shell: libvarjfs(3)
 *
 *   key-table VOLUME set SPACE KEY=VALUE...   all of them, or none, and durable
 *   key-table VOLUME get SPACE KEY
 *   key-table VOLUME list SPACE [PREFIX]
 *   key-table VOLUME remove SPACE KEY...
 *
 *   cc key-table.c $(pkg-config --cflags --libs varjfs) -o key-table
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <varjfs/varjfs.h>

static int set(varjfs_batch *batch, const char *space, int count, char **words)
{
    int error = 0;

    for (int i = 0; error == 0 && i < count; i++) {
        const char *equals = strchr(words[i], '=');

        error = equals == NULL
                    ? -EINVAL
                    : varjfs_kv_put(batch, space, words[i], (size_t)(equals - words[i]),
                                    equals + 1, strlen(equals + 1), 0, NULL);
    }
    return error != 0 ? error : varjfs_batch_execute(batch);
}

static int get(varjfs_batch *batch, const char *space, const char *key)
{
    static char value[VARJFS_VALUE_MAX];
    size_t len = 0;
    int error =
        varjfs_kv_get(batch, space, key, strlen(key), value, sizeof value, &len, NULL);

    if (error == 0) {
        error = varjfs_batch_execute(batch);
    }
    if (error == 0) {
        printf("%.*s\n", (int)len, value);
    }
    return error;
}

static int list(varjfs *volume, const char *space, const char *prefix)
{
    struct varjfs_entry entry = {.size = sizeof entry};
    varjfs_iterator *i;
    int error = varjfs_kv_iterate(volume, space, prefix, strlen(prefix), &i);

    while (error == 0 && (error = varjfs_iterator_next(i, &entry)) == 1) {
        printf("%s=%.*s\n", (const char *)entry.name, (int)entry.len,
               (const char *)entry.value);
        error = 0;
    }
    return error;
}

static int remove_keys(varjfs_batch *batch, const char *space, int count, char **words)
{
    int error = 0;

    for (int i = 0; error == 0 && i < count; i++) {
        error = varjfs_kv_delete(batch, space, words[i], strlen(words[i]), NULL);
    }
    return error != 0 ? error : varjfs_batch_execute(batch);
}

static int run(varjfs *volume, varjfs_batch *batch, int argc, char **argv)
{
    const char *what = argv[2], *space = argv[3];

    if (argc > 4 && strcmp(what, "set") == 0) {
        return set(batch, space, argc - 4, argv + 4);
    }
    if (argc == 5 && strcmp(what, "get") == 0) {
        return get(batch, space, argv[4]);
    }
    if (argc <= 5 && strcmp(what, "list") == 0) {
        return list(volume, space, argc == 5 ? argv[4] : "");
    }
    if (argc > 4 && strcmp(what, "remove") == 0) {
        return remove_keys(batch, space, argc - 4, argv + 4);
    }
    return -EINVAL;
}

int main(int argc, char **argv)
{
    struct varjfs_semantics semantics;
    varjfs_batch *batch;
    varjfs *volume;
    int error;

    if (argc < 4) {
        fprintf(stderr, "usage: key-table VOLUME set|get|list|remove SPACE ...\n");
        return 2;
    }
    if (varjfs_open(argv[1], NULL, &volume) != 0) {
        fprintf(stderr, "key-table: %s\n", varjfs_open_error());
        return 1;
    }
    semantics.size = sizeof semantics;
    error = varjfs_semantics_template("default", &semantics);
    semantics.atomicity = VARJFS_ATOMICITY_BATCH;
    semantics.safety = VARJFS_SAFETY_STORAGE;
    if (error == 0) {
        error = varjfs_batch_new(volume, &semantics, &batch);
    }
    if (error == 0) {
        error = run(volume, batch, argc, argv);
    }
    varjfs_close(volume);
    if (error != 0) {
        fprintf(stderr, "key-table: %s\n", varjfs_strerror(error));
    }
    return error != 0;
}
