/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* history.c - see history.h */
#include "history.h"

#include <stdlib.h>

uint64_t history_name_sum(const char *path, uint64_t file)
{
    g_autofree char *text = g_strdup_printf("%s=%" G_GUINT64_FORMAT, path, file);

    return vj_checksum64(text, strlen(text));
}

/* ---- streams ----------------------------------------------------------------------- */

static void step_clear(gpointer opaque)
{
    g_free(((Step *)opaque)->text);
}

static void stream_file_free(gpointer opaque)
{
    StreamFile *f = opaque;

    g_array_unref(f->versions);
    g_array_unref(f->durable);
    g_array_unref(f->kept);
    g_free(f);
}

static void stream_free(gpointer opaque)
{
    Stream *s = opaque;

    g_free(s->name);
    g_array_unref(s->steps);
    g_array_unref(s->floors);
    g_array_unref(s->durable);
    g_array_unref(s->kept);
    g_hash_table_unref(s->by_ino);
    g_hash_table_unref(s->files);
    g_hash_table_unref(s->now);
    g_free(s);
}

static Stream *stream_get(History *h, const char *name, size_t at)
{
    Stream *s;

    for (guint i = 0; i < h->streams->len; i++) {
        s = h->streams->pdata[i];
        if (strcmp(s->name, name) == 0) {
            return s;
        }
    }
    s = g_new0(Stream, 1);
    s->name = g_strdup(name);
    s->first = at;
    s->steps = g_array_new(FALSE, FALSE, sizeof(Step));
    g_array_set_clear_func(s->steps, step_clear);
    s->floors = g_array_new(FALSE, FALSE, sizeof(Floor));
    s->durable = g_array_new(FALSE, FALSE, sizeof(Floor));
    s->kept = g_array_new(FALSE, FALSE, sizeof(Floor));
    s->files = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, stream_file_free);
    s->by_ino = g_hash_table_new(g_int64_hash, g_int64_equal);
    s->now = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    g_ptr_array_add(h->streams, s);
    return s;
}

static StreamFile *file_get(Stream *s, guint64 number)
{
    StreamFile *f = g_hash_table_lookup(s->files, &number);
    Version empty = {.sum = vj_checksum64("", 0)};

    if (f == NULL) {
        f = g_new0(StreamFile, 1);
        f->number = number;
        f->versions = g_array_new(FALSE, FALSE, sizeof(Version));
        f->durable = g_array_new(FALSE, FALSE, sizeof(Floor));
        f->kept = g_array_new(FALSE, FALSE, sizeof(Floor));
        g_array_append_val(f->versions, empty);
        g_hash_table_insert(s->files, &f->number, f);
    }
    return f;
}

/* ---- marks ------------------------------------------------------------------------- */

static bool number(const char *text, uint64_t *out)
{
    char *end;

    if (text == NULL || *text < '0' || *text > '9') {
        return false;
    }
    *out = strtoull(text, &end, 10);
    return *end == '\0';
}

static bool read_content(Stream *s, char **words, size_t at)
{
    uint64_t file, index;
    Version v = {.at = at};
    StreamFile *f;

    if (!number(words[2], &file) || !number(words[3], &index) ||
        !number(words[4], &v.bytes) || words[5] == NULL) {
        return false;
    }
    v.sum = strtoull(words[5], NULL, 16);
    f = file_get(s, file);
    if (f->versions->len != index) {
        return false;
    }
    g_array_append_val(f->versions, v);
    return true;
}

/* "A=B" of a change, split. */
static bool split(char *word, uint64_t *value, bool *is_directory)
{
    char *equals = strchr(word, '=');

    if (equals == NULL) {
        return false;
    }
    *equals = '\0';
    *is_directory = strcmp(equals + 1, "d") == 0;
    *value = STREAM_DIRECTORY;
    return *is_directory || number(equals + 1, value);
}

static bool change_name(GHashTable *now, uint64_t *sum, const char *word)
{
    g_autofree char *copy = g_strdup(word + 1);
    uint64_t value = 0;
    bool is_directory;
    guint64 *old;

    if (*word == '+' && !split(copy, &value, &is_directory)) {
        return false;
    }
    old = g_hash_table_lookup(now, copy);
    if (old != NULL) {
        *sum ^= history_name_sum(copy, *old);
        g_hash_table_remove(now, copy);
    }
    if (*word == '+') {
        *sum ^= history_name_sum(copy, value);
        g_hash_table_insert(now, g_strdup(copy), g_memdup2(&value, sizeof value));
    }
    return true;
}

static bool read_step(Stream *s, char **words, size_t at)
{
    Step step = {.at = at};

    for (char **word = words + 2; *word != NULL; word++) {
        if (**word == '^') {
            g_autofree char *copy = g_strdup(*word + 1);
            Floor floor = {.at = s->steps->len + 1};
            bool is_directory;

            if (!split(copy, &floor.version, &is_directory) ||
                !number(copy, &floor.file)) {
                return false;
            }
            g_array_append_val(s->floors, floor);
        } else if ((**word != '+' && **word != '-') ||
                   !change_name(s->now, &s->names, *word)) {
            return false;
        }
    }
    step.text = g_strjoinv(" ", words + 2);
    step.names = s->names;
    g_array_append_val(s->steps, step);
    return true;
}

static bool read_durable(Stream *s, char **words, size_t at)
{
    Floor floor = {.at = at};
    bool is_kept = g_ascii_tolower(words[1][0]) == 'k';
    uint64_t file;
    StreamFile *f;

    if (g_ascii_isupper(words[1][0])) {
        if (!number(words[2], &floor.version) || floor.version > s->steps->len) {
            return false;
        }
        g_array_append_val(is_kept ? s->kept : s->durable, floor);
        return true;
    }
    if (!number(words[2], &file) || !number(words[3], &floor.version)) {
        return false;
    }
    f = file_get(s, file);
    g_array_append_val(is_kept ? f->kept : f->durable, floor);
    return true;
}

static bool read_inode(Stream *s, char **words)
{
    uint64_t file;
    StreamFile *f;

    if (!number(words[2], &file)) {
        return false;
    }
    f = file_get(s, file);
    if (!number(words[3], &f->ino)) {
        return false;
    }
    g_hash_table_insert(s->by_ino, &f->ino, f);
    return true;
}

static bool read_mark(History *h, const char *text, size_t at)
{
    g_auto(GStrv) words = g_strsplit(text, " ", -1);
    Stream *s;

    if (strcmp(text, "begin") == 0) {
        h->begin = at;
        return true;
    }
    if (text[0] == '!') {
        return true;
    }
    if (words[0] == NULL || words[1] == NULL || strlen(words[1]) != 1) {
        return false;
    }
    s = stream_get(h, words[0], at);
    switch (words[1][0]) {
    case 'c':
        return read_content(s, words, at);
    case 'n':
        return read_step(s, words, at);
    case 'i':
        return read_inode(s, words);
    case 'd':
    case 'D':
    case 'k':
    case 'K':
        return read_durable(s, words, at);
    default:
        return false;
    }
}

bool history_read(History *h, const CrashLog *log, GError **error)
{
    *h = (History){.begin = SIZE_MAX,
                   .streams = g_ptr_array_new_with_free_func(stream_free)};
    for (size_t i = 0; i < crash_log_count(log); i++) {
        CrashRecord r = crash_log_get(log, i);

        if (r.head.kind == VJ_RECORD_MARK) {
            g_autofree char *text =
                g_strndup((const char *)r.data, (gsize)r.head.data_bytes);

            g_strchomp(text);
            if (!read_mark(h, text, i)) {
                return vj_error_set(error, EBADMSG, "record %zu: the mark \"%s\"", i,
                                    text);
            }
        }
    }
    return true;
}

void history_clear(History *h)
{
    g_ptr_array_unref(h->streams);
}

/* ---- at a cut ---------------------------------------------------------------------- */

static size_t highest(const GArray *floors, size_t cut)
{
    size_t most = 0;

    for (guint i = 0; i < floors->len; i++) {
        const Floor *floor = &g_array_index(floors, Floor, i);

        if (floor->at < cut) {
            most = MAX(most, floor->version);
        }
    }
    return most;
}

void stream_steps_at(const Stream *s, CutAt at, size_t *least, size_t *most)
{
    *least = highest(at.is_restored ? s->kept : s->durable, at.cut);
    *most = 0;
    while (*most < s->steps->len && g_array_index(s->steps, Step, *most).at < at.cut) {
        ++*most;
    }
}

void stream_versions_at(const Stream *s, const StreamFile *f, CutAt at, size_t steps,
                        size_t *least, size_t *most)
{
    *least = highest(at.is_restored ? f->kept : f->durable, at.cut);
    *most = 0;
    for (guint i = 0; i < s->floors->len; i++) {
        const Floor *floor = &g_array_index(s->floors, Floor, i);

        if (floor->file == f->number && floor->at <= steps) {
            *least = MAX(*least, floor->version);
        }
    }
    while (*most + 1 < f->versions->len &&
           g_array_index(f->versions, Version, *most + 1).at < at.cut) {
        ++*most;
    }
}

GHashTable *stream_names(const Stream *s, size_t steps)
{
    GHashTable *now = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    uint64_t sum = 0;

    for (size_t i = 0; i < steps; i++) {
        g_auto(GStrv) words = g_strsplit(g_array_index(s->steps, Step, i).text, " ", -1);

        for (char **word = words; *word != NULL; word++) {
            if (**word != '^') {
                g_assert(change_name(now, &sum, *word));
            }
        }
    }
    return now;
}
