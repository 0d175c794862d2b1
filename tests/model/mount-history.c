/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mount-history.c - which states a file may have after a crash
 *
 * A state is noted before the call that makes it, so the last one may have happened or
 * not.  Names and contents are committed one after the other: a name is on disk when
 * the rename was committed, the content of before or after it may come later.  So after
 * a crash a state fits when its content is that of entry c, its name that of an entry
 * not before c, and both are of one birth (inode).
 */
#include "mount-model.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static void past_clear(gpointer past)
{
    g_free(((Past *)past)->bytes);
}

static bool is_wanted(const Process *p)
{
    return p->o->pid_file != NULL;
}

static void note(Process *p, MountFile *f, bool exists)
{
    Past past = {.name = f->name,
                 .birth = f->birth,
                 .exists = exists,
                 .len = f->shadow.len,
                 .bytes = NULL};

    if (!is_wanted(p)) {
        return;
    }
    if (f->history == NULL) {
        f->history = g_array_new(FALSE, FALSE, sizeof(Past));
        g_array_set_clear_func(f->history, past_clear);
    }
    if (f->shadow.len > 0) {
        past.bytes = g_memdup2(f->shadow.bytes, f->shadow.len);
    }
    g_array_append_val(f->history, past);
}

void history_note(Process *p, MountFile *f)
{
    note(p, f, true);
}

void history_note_missing(Process *p, MountFile *f)
{
    note(p, f, false);
}

void history_durable(Process *p, MountFile *f)
{
    if (is_wanted(p) && f->history != NULL && f->history->len > 1) {
        g_array_remove_range(f->history, 0, f->history->len - 1);
    }
}

void history_free(MountFile *f)
{
    if (f->history != NULL) {
        g_array_unref(f->history);
        f->history = NULL;
    }
}

static Past *past_at(const MountFile *f, guint i)
{
    return &g_array_index(f->history, Past, i);
}

/* The name of entry @c or of a later one, while it is the same inode. */
static bool name_fits(const MountFile *f, guint c, unsigned name)
{
    for (guint i = c; i < f->history->len && past_at(f, i)->birth == past_at(f, c)->birth;
         i++) {
        if (past_at(f, i)->exists && past_at(f, i)->name == name) {
            return true;
        }
    }
    return false;
}

/* The content of the file called @name; false: there is none. */
static bool read_back(Process *p, const MountFile *f, unsigned name, Shadow *out)
{
    g_autofree char *path = file_path(p, f, name);
    g_autoptr(GError) error = NULL;
    char *bytes;
    gsize len;

    if (!g_file_get_contents(path, &bytes, &len, &error)) {
        if (g_error_matches(error, G_FILE_ERROR, G_FILE_ERROR_NOENT)) {
            return false;
        }
        fail(p, "file %u after the crash: %s", f->number, error->message);
    }
    *out = (Shadow){.bytes = (uint8_t *)bytes, .len = len, .cap = len};
    return true;
}

static void describe(Process *p, const MountFile *f, const Shadow *got, unsigned name)
{
    for (guint i = 0; i < f->history->len; i++) {
        const Past *past = past_at(f, i);
        size_t common = MIN(past->len, got->len);

        g_printerr(
            "state %u: name %u, birth %u, %s, %zu bytes, the first %zu are equal\n", i,
            past->name, past->birth, past->exists ? "exists" : "may be missing",
            past->len, shadow_difference(past->bytes, got->bytes, common));
    }
    fail(p,
         "file %u after the crash: %zu bytes called %u are no state since the last fsync",
         f->number, got->len, name);
}

static void accept(Process *p, MountFile *f, Shadow *got, unsigned name)
{
    bool found = false;

    for (guint i = 0; i < f->history->len && !found; i++) {
        const Past *past = past_at(f, i);

        found = past->exists && past->len == got->len && name_fits(f, i, name) &&
                (got->len == 0 || memcmp(past->bytes, got->bytes, got->len) == 0);
    }
    if (!found) {
        describe(p, f, got, name);
    }
    shadow_clear(&f->shadow);
    f->shadow = *got;
    f->name = name;
}

/* Nothing of that name may be there twice. */
static bool find(Process *p, MountFile *f, Shadow *got, unsigned *name)
{
    bool found = false;
    unsigned last = UINT_MAX;

    for (guint i = 0; i < f->history->len; i++) {
        unsigned candidate = past_at(f, i)->name;

        if (candidate == last || (found && candidate == *name)) {
            continue;
        }
        last = candidate;
        if (found) {
            g_autofree char *path = file_path(p, f, candidate);

            if (access(path, F_OK) == 0) {
                fail(p, "file %u after the crash: it is called both %u and %u", f->number,
                     *name, candidate);
            }
        } else if (read_back(p, f, candidate, got)) {
            found = true;
            *name = candidate;
        }
    }
    return found;
}

static bool may_be_missing(const MountFile *f)
{
    for (guint i = 0; i < f->history->len; i++) {
        if (!past_at(f, i)->exists) {
            return true;
        }
    }
    return false;
}

void history_recover(Process *p, MountFile *f)
{
    g_autofree char *beside = file_path(p, f, UINT_MAX);
    unsigned name = 0;
    Shadow got = {0};

    (void)unlink(beside); /* the new version of a file that was about to replace it */
    if (find(p, f, &got, &name)) {
        accept(p, f, &got, name);
        file_open(p, f);
    } else if (may_be_missing(f)) {
        f->name++;
        file_make(p, f);
    } else {
        fail(p, "file %u after the crash: it is gone", f->number);
    }
    history_free(f);
    history_note(p, f);
}
