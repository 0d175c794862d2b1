/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ops.c - the operations of the model, each done to the file and to its shadow
 */
#include "model.h"

#include "volume/volume-private.h"

#include <sys/stat.h>

/* ---- inodes ---------------------------------------------------------------------- */

static int create_body(VjTxn *txn, void *opaque)
{
    uint64_t *ino = opaque;
    int r = vj_ino_take(txn, ino);
    VjInode inode = {.ino = *ino, .generation = 1, .mode = S_IFREG | 0644, .nlink = 1};

    return r < 0 ? r : vj_inode_put(txn, &inode);
}

void file_create(Worker *w, ModelFile *f)
{
    uint64_t ino;

    must(w, vj_meta_run(vj_volume_meta(w->m->v), VJ_RUN_DEFAULT, create_body, &ino),
         "create");
    choose_settings(w, f->number, ino);
    must(w, vj_file_open(vj_volume_files(w->m->v), ino, &f->f), "open");
    f->error_mark = vj_file_error_mark(f->f);
    shadow_truncate(&f->shadow, 0);
    f->last = 0;
    pthread_mutex_lock(&f->lock);
    f->ino = ino;
    pthread_mutex_unlock(&f->lock);
}

static int unlink_body(VjTxn *txn, void *opaque)
{
    const uint64_t *ino = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, *ino, &inode);

    if (r < 0) {
        return r;
    }
    inode.nlink = 0;
    r = vj_orphan_put(txn, *ino);
    return r < 0 ? r : vj_inode_put(txn, &inode);
}

/* The file goes, a new one takes its place. */
static void op_unlink(Worker *w, ModelFile *f)
{
    uint64_t ino = f->ino;

    say(w, "unlink %u", f->number);
    pthread_rwlock_wrlock(&f->alive);
    change_begin(w->m, f);
    must(w, vj_meta_run(vj_volume_meta(w->m->v), VJ_RUN_RELEASE, unlink_body, &ino),
         "unlink");
    g_clear_pointer(&f->f, vj_file_unref);
    vj_volume_reap(w->m->v, ino);
    file_create(w, f);
    change_end(w->m, f);
    pthread_rwlock_unlock(&f->alive);
}

/* ---- where and how much ---------------------------------------------------------- */

static size_t any_offset(Worker *w, const ModelFile *f)
{
    return any_offset_of(&w->rng, &f->shadow, f->last);
}

static size_t edit_most(const Worker *w)
{
    return MIN(w->m->o.size / 4, VJ_FILE_EDIT_MAX);
}

/* ---- changes --------------------------------------------------------------------- */

static void replace(Worker *w, ModelFile *f, size_t offset, size_t old_len, size_t len)
{
    uint64_t at;

    say(w, "replace %u at %zu old %zu new %zu (of %zu)", f->number, offset, old_len, len,
        f->shadow.len);
    data_fill(&w->m->pool, &w->rng, w->data, len);
    change_begin(w->m, f);
    must(w, vj_file_replace(f->f, offset, old_len, w->data, len, false, &at), "replace");
    shadow_replace(&f->shadow, offset, old_len, w->data, len);
    change_end(w->m, f);
    f->last = offset + len;
}

static void op_replace(Worker *w, ModelFile *f)
{
    size_t len = data_length(&w->rng, edit_most(w));

    replace(w, f, any_offset(w, f), data_length(&w->rng, edit_most(w)), len);
}

static void op_insert(Worker *w, ModelFile *f)
{
    size_t len = data_length(&w->rng, edit_most(w));

    replace(w, f, any_offset(w, f), 0, len);
}

static void op_delete(Worker *w, ModelFile *f)
{
    size_t most = vj_rng_below(&w->rng, 10) == 0 ? w->m->o.size : edit_most(w);

    replace(w, f, any_offset(w, f), data_length(&w->rng, most), 0);
}

static void write_at(Worker *w, ModelFile *f, size_t offset, size_t len, bool append)
{
    uint64_t at;

    say(w, "write %u at %zu len %zu append %d (of %zu)", f->number, offset, len, append,
        f->shadow.len);
    data_fill(&w->m->pool, &w->rng, w->data, len);
    change_begin(w->m, f);
    must(w, vj_file_write(f->f, offset, w->data, len, append, &at), "write");
    if (append) {
        offset = f->shadow.len;
    }
    if (at != offset) {
        fail(w, "file %u: a write for %zu went to %" G_GUINT64_FORMAT, f->number, offset,
             at);
    }
    shadow_write(&f->shadow, offset, w->data, len);
    change_end(w->m, f);
    f->last = offset + len;
}

static void op_write(Worker *w, ModelFile *f)
{
    write_at(w, f, any_offset(w, f), data_length(&w->rng, edit_most(w)), false);
}

/* As the stores of a mapping arrive: a page of which a few bytes are new. */
static void op_store(Worker *w, ModelFile *f)
{
    size_t offset = vj_rng_below(&w->rng, f->shadow.len + 1);

    write_at(w, f, offset, 1 + vj_rng_below(&w->rng, 8), false);
}

static void op_append(Worker *w, ModelFile *f)
{
    write_at(w, f, vj_rng_below(&w->rng, 1000), data_length(&w->rng, edit_most(w)), true);
}

static void op_truncate(Worker *w, ModelFile *f)
{
    size_t size = vj_rng_below(&w->rng, 4) == 0
                      ? f->shadow.len + vj_rng_below(&w->rng, edit_most(w))
                      : vj_rng_below(&w->rng, f->shadow.len + 1);

    say(w, "truncate %u to %zu (of %zu)", f->number, size, f->shadow.len);
    change_begin(w->m, f);
    must(w, vj_file_truncate(f->f, size), "truncate");
    shadow_truncate(&f->shadow, size);
    change_end(w->m, f);
}

static void op_punch(Worker *w, ModelFile *f)
{
    size_t offset = any_offset(w, f), len = data_length(&w->rng, edit_most(w));
    bool grow = vj_rng_below(&w->rng, 2) == 0;

    if (vj_rng_below(&w->rng, 2) == 0) { /* on page borders, as most programs do */
        offset &= ~(size_t)4095;
        len = (len + 4095) & ~(size_t)4095;
    }
    say(w, "punch %u at %zu len %zu grow %d (of %zu)", f->number, offset, len, grow,
        f->shadow.len);
    change_begin(w->m, f);
    must(w, vj_file_punch(f->f, offset, len, grow), "punch");
    shadow_punch(&f->shadow, offset, len, grow);
    change_end(w->m, f);
}

/* ---- copies ---------------------------------------------------------------------- */

static ModelFile *any_source(Worker *w)
{
    Model *m = w->m;
    unsigned own = m->o.files, n = (unsigned)vj_rng_below(&w->rng, own + SHARED_FILES);

    return n < own ? &w->files[n] : &m->files[m->o.threads * own + n - own];
}

/* One call, which may be short: one step. */
static size_t copy_step(Worker *w, ModelFile *src, size_t from, ModelFile *dst, size_t to,
                        size_t len)
{
    g_autofree uint8_t *bytes = NULL;
    size_t there = from < src->shadow.len ? src->shadow.len - from : 0;
    uint64_t copied;

    change_begin(w->m, dst);
    MUST(w, "copy", vj_file_copy(src->f, from, dst->f, to, len, &copied));
    say(w, "copy %u at %zu to %u at %zu len %zu: %" G_GUINT64_FORMAT, src->number, from,
        dst->number, to, len, copied);
    if (copied > MIN(len, there) || (copied == 0 && MIN(len, there) > 0)) {
        fail(w, "%" G_GUINT64_FORMAT " bytes copied of %zu", copied, MIN(len, there));
    }
    if (copied > 0) {
        bytes = g_memdup2(src->shadow.bytes + from, copied);
        shadow_write(&dst->shadow, to, bytes, copied);
        dst->last = to + copied;
    }
    change_end(w->m, dst);
    return copied;
}

static void op_copy(Worker *w, ModelFile *dst)
{
    ModelFile *src = any_source(w);
    size_t from = vj_rng_below(&w->rng, src->shadow.len + 1), to = any_offset(w, dst);
    size_t len = data_length(&w->rng, w->m->o.size / 2), copied = 1;
    uint64_t ignored;

    if (dst->shadow.len >= w->m->o.size) {
        to = vj_rng_below(&w->rng, dst->shadow.len);
    }
    if (src == dst && from < to + len && to < from + len) {
        if (vj_file_copy(src->f, from, dst->f, to, len, &ignored) != -EINVAL) {
            fail(w, "file %u: a copy onto itself went through", dst->number);
        }
        return;
    }
    while (len > 0 && copied > 0) {
        copied = copy_step(w, src, from, dst, to, len);
        from += copied;
        to += copied;
        len -= copied;
    }
}

/* A hole instead of bytes, by the rules of fallocate(2) or of an edit. */
static void op_hole(Worker *w, ModelFile *f)
{
    size_t size = f->shadow.len, offset = any_offset(w, f);
    size_t len = vj_rng_below(&w->rng, 2) * data_length(&w->rng, edit_most(w));
    size_t old_len = vj_rng_below(&w->rng, 2) * data_length(&w->rng, edit_most(w));
    bool inside = vj_rng_below(&w->rng, 2) == 0;
    g_autofree uint8_t *zeros = g_malloc0(len + 1);
    int r;

    say(w, "hole %u at %zu old %zu new %zu inside %d (of %zu)", f->number, offset,
        old_len, len, inside, size);
    if (inside && (offset >= size || old_len >= size - offset)) {
        r = vj_file_replace_by_hole(f->f, offset, old_len, len, true);
        if (r != -EINVAL) {
            fail(w, "file %u: a hole at the end was not refused: %d", f->number, r);
        }
        return;
    }
    change_begin(w->m, f);
    must(w, vj_file_replace_by_hole(f->f, offset, old_len, len, inside), "hole");
    shadow_replace(&f->shadow, offset, old_len, zeros, len);
    change_end(w->m, f);
    f->last = offset + len;
}

/* What librwrite makes of a write whose bytes stand there already. */
static void op_shift(Worker *w, ModelFile *f)
{
    size_t size = f->shadow.len, offset, way, len, most;
    bool down = vj_rng_below(&w->rng, 2) == 0;
    g_autofree uint8_t *bytes = NULL;
    VjFileShift shift;
    int r;

    if (size < 2) {
        return;
    }
    offset = vj_rng_below(&w->rng, size - 1);
    way = 1 + vj_rng_below(&w->rng, MIN(size - offset - 1, edit_most(w)));
    most = size - offset + (down ? 0 : way);
    len = vj_rng_below(&w->rng, 2) == 0 ? most
                                        : way + 1 + vj_rng_below(&w->rng, most - way);
    data_fill(&w->m->pool, &w->rng, w->data, way);
    bytes = g_malloc(len);
    memcpy(bytes + (down ? 0 : way), f->shadow.bytes + offset + (down ? way : 0),
           len - way);
    memcpy(bytes + (down ? len - way : 0), w->data, way);
    shift = (VjFileShift){
        .offset = offset, .len = len, .src = w->data, .src_len = way, .down = down};
    say(w, "shift %u at %zu len %zu by %zu down %d (of %zu)", f->number, offset, len, way,
        down, size);
    change_begin(w->m, f);
    do { /* refused when the file was changed: by nobody here, but it may be recoded */
        shift.change = vj_file_change_count(f->f);
        r = vj_file_shift(f->f, &shift);
    } while (r == -EBUSY);
    must(w, r, "shift");
    shadow_write(&f->shadow, offset, bytes, len);
    change_end(w->m, f);
    f->last = offset + len;
}

/* ---- looking --------------------------------------------------------------------- */

static void compare_range(Worker *w, ModelFile *f, size_t offset, size_t len)
{
    size_t want = offset < f->shadow.len ? MIN(len, f->shadow.len - offset) : 0, got,
           same;

    say(w, "read %u at %zu len %zu (of %zu)", f->number, offset, len, f->shadow.len);
    MUST(w, "read", vj_file_read(f->f, offset, w->back, len, &got));
    if (got != want) {
        fail(w, "file %u: %zu bytes at %zu, not %zu", f->number, got, offset, want);
    }
    same = want > 0 ? shadow_difference(f->shadow.bytes + offset, w->back, want) : 0;
    if (same != want) {
        fail(w, "file %u of %zu bytes: byte %zu is %02x, not %02x", f->number,
             f->shadow.len, offset + same, w->back[same], f->shadow.bytes[offset + same]);
    }
}

static void op_read(Worker *w, ModelFile *f)
{
    compare_range(w, f, any_offset(w, f), data_length(&w->rng, edit_most(w)));
}

void file_compare(Worker *w, ModelFile *f)
{
    VjInode inode;
    size_t step = edit_most(w);

    must(w, vj_file_getattr(vj_volume_files(w->m->v), f->ino, &inode), "getattr");
    if (inode.size != f->shadow.len) {
        fail(w, "file %u: its size is %" G_GUINT64_FORMAT ", not %zu", f->number,
             inode.size, f->shadow.len);
    }
    for (size_t at = 0; at < f->shadow.len; at += step) {
        compare_range(w, f, at, step);
    }
    compare_range(w, f, f->shadow.len, 10);
}

static bool is_zero(const Shadow *s, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if (s->bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* What lies between is never data, what is called a hole is never anything else. */
static void op_seek(Worker *w, ModelFile *f)
{
    size_t offset = any_offset(w, f), len = f->shadow.len;
    bool data = vj_rng_below(&w->rng, 2) == 0;
    uint64_t at = 0;
    int r = vj_file_seek(f->f, offset, data, &at);

    say(w, "seek %u %s from %zu: %d %" G_GUINT64_FORMAT, f->number,
        data ? "data" : "hole", offset, r, at);
    if (offset >= len) {
        if (r != -ENXIO) {
            fail(w, "file %u: seek behind the end: %d", f->number, r);
        }
    } else if (data && r == -ENXIO) {
        if (!is_zero(&f->shadow, offset, len)) {
            fail(w, "file %u: no data behind %zu of %zu, says seek", f->number, offset,
                 len);
        }
    } else if (r < 0 || at < offset || at > len) {
        fail(w, "file %u: seek from %zu of %zu: %d at %" G_GUINT64_FORMAT, f->number,
             offset, len, r, at);
    } else if (data ? !is_zero(&f->shadow, offset, at)
                    : at < len && f->shadow.bytes[at] != 0) {
        fail(w, "file %u: seek from %zu passed data, at %" G_GUINT64_FORMAT, f->number,
             offset, at);
    }
}

/* ---- durability and life --------------------------------------------------------- */

static void op_sync(Worker *w, ModelFile *f)
{
    say(w, "sync %u", f->number);
    MUST(w, "sync", vj_file_sync(f->f));
}

/* Fragments of all files become objects, also while another thread syncs or recodes. */
static void op_remap(Worker *w, ModelFile *f)
{
    (void)f;
    say(w, "remap");
    MUST(w, "remap", vj_file_table_remap(vj_volume_files(w->m->v)));
}

static void op_commit(Worker *w, ModelFile *f)
{
    say(w, "commit %u", f->number);
    MUST(w, "commit", vj_file_commit(f->f));
}

static void op_kick(Worker *w, ModelFile *f)
{
    say(w, "kick %u", f->number);
    vj_file_kick(f->f);
}

static void op_reopen(Worker *w, ModelFile *f)
{
    int r;

    say(w, "reopen %u", f->number);
    r = vj_file_error_since(f->f, &f->error_mark);
    if (r < 0 && !is_fault(w, r)) {
        fail(w, "file %u: its write-back failed: %s", f->number, g_strerror(-r));
    }
    vj_file_kick(f->f);
    g_clear_pointer(&f->f, vj_file_unref);
    must(w, vj_file_open(vj_volume_files(w->m->v), f->ino, &f->f), "open");
    f->error_mark = vj_file_error_mark(f->f);
}

static void op_getattr(Worker *w, ModelFile *f)
{
    VjInode inode;

    must(w, vj_file_getattr(vj_volume_files(w->m->v), f->ino, &inode), "getattr");
    if (inode.size != f->shadow.len) {
        fail(w, "file %u: its size is %" G_GUINT64_FORMAT ", not %zu", f->number,
             inode.size, f->shadow.len);
    }
}

static const struct {
    Weight weight;
    void (*run)(Worker *w, ModelFile *f);
} ops[] = {
    {{300, false}, op_read},   {{80, true}, op_replace},    {{110, true}, op_insert},
    {{90, false}, op_delete},  {{120, true}, op_write},     {{80, true}, op_store},
    {{60, true}, op_append},   {{12, true}, op_truncate},   {{30, true}, op_punch},
    {{40, true}, op_copy},     {{25, false}, op_seek},      {{50, false}, op_sync},
    {{20, false}, op_commit},  {{10, false}, op_kick},      {{10, false}, op_reopen},
    {{20, false}, op_getattr}, {{1, false}, op_unlink},     {{8, false}, op_choose},
    {{10, false}, op_recode},  {{1, false}, op_recode_all}, {{40, true}, op_hole},
    {{60, true}, op_shift},    {{4, false}, op_remap},
};

/* A file that has grown too large is cut first. */
static void shrink(Worker *w, ModelFile *f)
{
    if (vj_rng_below(&w->rng, 3) == 0) {
        op_truncate(w, f);
    } else {
        size_t at = vj_rng_below(&w->rng, f->shadow.len);

        replace(w, f, at, f->shadow.len - at - vj_rng_below(&w->rng, f->shadow.len - at),
                0);
    }
}

void run_op(Worker *w)
{
    ModelFile *f = &w->files[vj_rng_below(&w->rng, w->m->o.files)];
    size_t i;

    i = any_of(&w->rng, &ops[0].weight, G_N_ELEMENTS(ops), sizeof ops[0]);
    if (ops[i].weight.grows && f->shadow.len >= w->m->o.size) {
        shrink(w, f);
    } else {
        ops[i].run(w, f);
    }
}
