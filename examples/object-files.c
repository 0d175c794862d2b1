/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object-files - files as objects of a volume: libvarjfs(3)
 *
 *   object-files VOLUME put SPACE/NAME FILE        FILE becomes the object
 *   object-files VOLUME get SPACE/NAME             the object goes to stdout
 *   object-files VOLUME insert SPACE/NAME AT TEXT  TEXT is inserted at byte AT
 *   object-files VOLUME list SPACE                 bytes and name of each object
 *   object-files VOLUME remove SPACE/NAME
 *
 *   cc object-files.c $(pkg-config --cflags --libs varjfs) -o object-files
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <varjfs/varjfs.h>

#define STEP_BYTES (1 << 20)

typedef struct Object {
    char space[VARJFS_NAMESPACE_MAX + 1];
    const char *name;
} Object;

static char step[STEP_BYTES];

static int split(const char *word, Object *out)
{
    const char *slash = strchr(word, '/');
    size_t len = slash == NULL ? 0 : (size_t)(slash - word);

    if (len == 0 || len > VARJFS_NAMESPACE_MAX) {
        return -EINVAL;
    }
    memcpy(out->space, word, len);
    out->space[len] = '\0';
    out->name = slash + 1;
    return 0;
}

static int put(varjfs_batch *batch, const Object *o, const char *path)
{
    FILE *file = fopen(path, "rb");
    uint64_t offset = 0;
    int error = 0, removed;
    size_t len;

    if (file == NULL) {
        return -errno;
    }
    /* One that is there goes; that there is none is no error. */
    varjfs_object_delete(batch, o->space, o->name, &removed);
    varjfs_object_create(batch, o->space, o->name, NULL, NULL);
    error = varjfs_batch_execute(batch);
    if (error == -ENOENT && removed == -ENOENT) {
        error = 0;
    }
    while (error == 0 && (len = fread(step, 1, sizeof step, file)) > 0) {
        error = varjfs_object_write(batch, o->space, o->name, step, len, offset, 0, NULL);
        if (error == 0) {
            error = varjfs_batch_execute(batch);
        }
        offset += len;
    }
    if (error == 0 && ferror(file)) {
        error = -EIO;
    }
    fclose(file);
    return error;
}

static int get(varjfs_batch *batch, const Object *o)
{
    uint64_t offset = 0;
    size_t got = 0;
    int error;

    do {
        error = varjfs_object_read(batch, o->space, o->name, step, sizeof step, offset,
                                   &got, NULL);
        if (error == 0) {
            error = varjfs_batch_execute(batch);
        }
        if (error == 0 && fwrite(step, 1, got, stdout) != got) {
            error = -errno;
        }
        offset += got;
    } while (error == 0 && got == sizeof step);
    return error;
}

static int list(varjfs *volume, varjfs_batch *batch, const char *space)
{
    struct varjfs_object_status status = {.size = sizeof status};
    struct varjfs_entry entry = {.size = sizeof entry};
    varjfs_iterator *i;
    int error = varjfs_object_iterate(volume, space, NULL, &i);

    while (error == 0 && (error = varjfs_iterator_next(i, &entry)) == 1) {
        error = varjfs_object_status(batch, space, entry.name, &status, NULL);
        if (error == 0) {
            error = varjfs_batch_execute(batch);
        }
        if (error == 0) {
            printf("%llu %s\n", (unsigned long long)status.bytes,
                   (const char *)entry.name);
        }
    }
    return error;
}

static int run(varjfs *volume, varjfs_batch *batch, int argc, char **argv)
{
    const char *what = argv[2];
    Object o;
    int error;

    if (argc == 4 && strcmp(what, "list") == 0) {
        return list(volume, batch, argv[3]);
    }
    error = split(argv[3], &o);
    if (error != 0) {
        return error;
    }
    if (argc == 5 && strcmp(what, "put") == 0) {
        return put(batch, &o, argv[4]);
    }
    if (argc == 4 && strcmp(what, "get") == 0) {
        return get(batch, &o);
    }
    if (argc == 6 && strcmp(what, "insert") == 0) {
        error = varjfs_object_rwrite(batch, o.space, o.name, argv[5], strlen(argv[5]),
                                     strtoull(argv[4], NULL, 10), 0, 0, NULL);
    } else if (argc == 4 && strcmp(what, "remove") == 0) {
        error = varjfs_object_delete(batch, o.space, o.name, NULL);
    } else {
        error = -EINVAL;
    }
    return error != 0 ? error : varjfs_batch_execute(batch);
}

int main(int argc, char **argv)
{
    varjfs_batch *batch;
    varjfs *volume;
    int error;

    if (argc < 4) {
        fprintf(stderr, "usage: object-files VOLUME put|get|insert|list|remove ...\n");
        return 2;
    }
    if (varjfs_open(argv[1], NULL, &volume) != 0) {
        fprintf(stderr, "object-files: %s\n", varjfs_open_error());
        return 1;
    }
    error = varjfs_batch_new(volume, NULL, &batch);
    if (error == 0) {
        error = run(volume, batch, argc, argv);
    }
    if (error == 0) {
        error = varjfs_close(volume);
    } else {
        varjfs_close(volume);
    }
    if (error != 0) {
        fprintf(stderr, "object-files: %s\n", varjfs_strerror(error));
    }
    return error != 0;
}
