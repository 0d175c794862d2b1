/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * change.c - every way to change a file: cut and join pieces under its lock
 *
 * A change waits for memory before it takes the lock, reserves the space that its
 * write-back may need, replaces a range of the active sequence and queues the file for
 * write-back.
 */
#include "file/file-private.h"

/* A sequential writer's buffer grows up to this, bytes. */
#define TAIL_MAX VJ_BUDGET_BLOCK
/* Writes up to this are copied into the tail under the lock, bytes. */
#define TAIL_COPY_MAX ((size_t)128 << 10)
/* A change is copied into so many blocks at the most. */
#define COPY_MEMS_MAX (VJ_FILE_EDIT_MAX / VJ_BUDGET_BLOCK)

/* How many entries a commit of the active sequence may bring.  Under f->lock. */
static uint64_t entries_estimate(const VjFile *f)
{
    uint64_t cut = vj_pieces_memory_bytes(f->active) / (f->sizes.avg_bytes / 2);

    return vj_pieces_count(f->active) + cut;
}

/* Before a change: the sequence is not too long for one commit.  No lock held. */
static int keep_committable(VjFile *f)
{
    int r = 0;

    for (;;) {
        bool full;

        vj_mutex_lock(&f->lock);
        full = entries_estimate(f) >= VJ_FILE_ENTRIES_MOST;
        vj_mutex_unlock(&f->lock);
        if (!full || r < 0) {
            return r;
        }
        vj_stall_begin();
        r = vj_stall_end(vj_file_write_back(f));
    }
}

/*
 * Before a change that takes @bytes of memory; no lock held.  Both may take as long as
 * the store does: for a caller that has died meanwhile nothing happens, -ECANCELED.
 */
static int may_begin(VjFile *f, size_t bytes)
{
    int r = vj_budget_wait(&f->table->dirty, bytes);

    if (r == 0) {
        r = keep_committable(f);
    }
    return r == 0 && vj_cancel_is_fired() ? -ECANCELED : r;
}

/* For a change that was refused, so that nothing of it has happened.  No lock held. */
static int make_space(VjFileTable *table)
{
    vj_stall_begin();
    return vj_stall_end(vj_file_table_make_space(table));
}

/* May the file be changed at all?  Under f->lock. */
static int refusal_locked(const VjFile *f)
{
    if (f->discarded) {
        return -ENOENT;
    }
    if (f->is_unwritable) {
        vj_log_error("inode %" G_GUINT64_FORMAT
                     ": cannot be written: its transformation %u %s",
                     f->ino, f->transform.codec,
                     f->transform.key_id != 0 ? "takes a key, and there is none"
                                              : "is not in this build");
        return -EIO;
    }
    return 0;
}

/*
 * A change was made; @appended: it left alone what was there.  Under f->lock; the caller
 * calls changed_unlocked() afterwards.
 */
static void changed_locked(VjFile *f, bool appended)
{
    f->dirty_seq++;
    if (!appended) {
        f->append_from = vj_pieces_length(f->active);
    }
    f->changed = vj_clock_real();
    f->times_pending = true;
    vj_file_weigh_locked(f);
}

/* @old_len bytes at @at became @len.  Under f->lock. */
static void note_locked(VjFile *f, uint64_t at, uint64_t old_len, uint64_t len)
{
    if (f->append != NULL) {
        vj_append_changed(f->append, at, old_len, len);
    }
}

/* When the file is to be written back after a change.  Under f->lock. */
static VjFlushWhen when_locked(const VjFile *f)
{
    if (vj_file_is_much_locked(f)) {
        return VJ_FLUSH_NOW;
    }
    return f->dirty_seq == f->committed_seq + 1 ? VJ_FLUSH_ANEW : VJ_FLUSH_AGED;
}

static void changed_unlocked(VjFile *f, VjFlushWhen when)
{
    f->table->events->changed(f->table->opaque, f, when);
}

typedef struct Change {
    uint64_t offset, old_len;
    const void *src;
    size_t len;
    bool append;
    bool overwrite;             /* old_len = len */
    VjMem *mems[COPY_MEMS_MAX]; /* the bytes, when they were copied before the lock */
    size_t mem_count;
    const VjFilePart *part; /* of an append that comes in parts; NULL: it is whole */
    void **block; /* of the budget's, that they lie in: it may be taken; NULL: none */
} Change;

/* Extends the tail of a sequential writer; false: it is none.  Under f->lock. */
static bool change_tail(VjFile *f, const Change *c, uint64_t offset, uint64_t old_len)
{
    size_t at;

    if (f->tail == NULL || c->mem_count > 0 || f->tail->cap - f->tail->len < c->len) {
        return false;
    }
    at = f->tail->len;
    if (!vj_pieces_extend_memory(f->active, offset, old_len, f->tail, c->len)) {
        return false;
    }
    memcpy(f->tail->data + at, c->src, c->len);
    return true;
}

/* How large the buffer for a change is: grows for a sequential writer.  Under f->lock. */
static size_t tail_capacity(const VjFile *f, uint64_t offset, size_t len)
{
    VjPiece before;

    if (f->tail != NULL && vj_pieces_before(f->active, offset, &before) &&
        before.kind == VJ_PIECE_MEMORY && before.mem == f->tail) {
        return CLAMP(f->tail->cap * 2, len, TAIL_MAX);
    }
    return len;
}

/* The bytes as pieces: a hole up to the offset when that is beyond the end.  f->lock. */
static int change_pieces(VjFile *f, const Change *c, uint64_t offset, uint64_t old_len)
{
    uint64_t size = vj_pieces_length(f->active);
    uint64_t from = MIN(offset, size);
    VjPiece pieces[1 + COPY_MEMS_MAX];
    VjMem *const *mems = c->mems;
    size_t count = 0, mem_count = c->mem_count;
    VjMem *copied;

    if (offset > size) {
        pieces[count++] = (VjPiece){.kind = VJ_PIECE_HOLE, .length = offset - size};
    }
    if (c->len > 0 && mem_count == 0) {
        copied = vj_mem_new(&f->table->dirty, tail_capacity(f, offset, c->len));
        if (copied == NULL) {
            return -ENOMEM;
        }
        memcpy(copied->data, c->src, c->len);
        copied->len = c->len;
        mems = &copied;
        mem_count = 1;
    }
    for (size_t i = 0; i < mem_count; i++) {
        pieces[count++] =
            (VjPiece){.kind = VJ_PIECE_MEMORY, .length = mems[i]->len, .mem = mems[i]};
    }
    vj_pieces_replace(f->active, from, old_len, pieces, count);
    if (mem_count > 0) {
        vj_mem_unref(f->tail);
        f->tail = c->mem_count > 0 ? vj_mem_ref(mems[mem_count - 1]) : copied;
    }
    return 0;
}

/* One step under f->lock.  *at: where. */
static int change_locked(VjFile *f, const Change *c, uint64_t *at)
{
    uint64_t size = vj_pieces_length(f->active), offset, old_len;
    VjPiece before;
    bool sequential;
    int r;

    r = refusal_locked(f);
    if (r < 0) {
        return r;
    }
    offset = c->append ? size : c->offset;
    if (c->part != NULL) {
        offset = vj_append_place(f->append, c->part->offset, c->len, size);
    }
    *at = offset;
    if (c->len == 0 && (offset >= size || c->old_len == 0)) {
        return 0; /* nothing there to delete */
    }
    old_len = offset < size ? MIN(c->overwrite ? c->len : c->old_len, size - offset) : 0;
    if (MAX(offset, size - old_len) > VJ_FILE_SIZE_MAX - c->len) {
        return -EFBIG;
    }
    sequential = f->tail != NULL && vj_pieces_before(f->active, offset, &before) &&
                 before.kind == VJ_PIECE_MEMORY && before.mem == f->tail;
    if (c->len > 0) { /* deleting works on a full file system */
        r = vj_file_reserve_locked(f, c->len, sequential);
        if (r < 0) {
            return r;
        }
    }
    if (!(c->len > 0 && offset <= size && change_tail(f, c, offset, old_len))) {
        r = change_pieces(f, c, offset, old_len);
        if (r < 0) {
            return r;
        }
    }
    note_locked(f, MIN(offset, size), old_len, offset - MIN(offset, size) + c->len);
    if (c->part != NULL) {
        vj_append_placed(f->append, c->part->offset, c->len, offset);
    }
    changed_locked(f, (c->overwrite || c->part != NULL) && offset == size);
    return 0;
}

/* What is large goes into blocks, which are kept: memory of any other size is new pages
 * each time.  The caller drops what @c has got, also after an error. */
static int copy_before_lock(VjFileTable *table, Change *c)
{
    size_t part;

    for (size_t done = 0; done < c->len; done += part) {
        VjMem *mem;

        part = MIN(c->len - done, VJ_BUDGET_BLOCK);
        mem = vj_mem_new(&table->dirty, part);
        if (mem == NULL) {
            return -ENOMEM;
        }
        memcpy(mem->data, (const uint8_t *)c->src + done, part);
        mem->len = part;
        c->mems[c->mem_count++] = mem;
    }
    return 0;
}

/* The bytes are in memory before the lock is taken, unless they are few.  As
 * copy_before_lock. */
static int take_bytes(VjFileTable *table, Change *c)
{
    if (c->block == NULL) {
        return c->len > TAIL_COPY_MAX ? copy_before_lock(table, c) : 0;
    }
    c->mems[0] = vj_mem_new_from(&table->dirty, *c->block, c->src, c->len);
    if (c->mems[0] == NULL) {
        return -ENOMEM;
    }
    c->mem_count = 1;
    *c->block = NULL;
    return 0;
}

static void drop_bytes(Change *c)
{
    while (c->mem_count > 0) {
        vj_mem_unref(c->mems[--c->mem_count]);
    }
}

static int change(VjFile *f, Change *c, uint64_t *at)
{
    VjFileTable *table = f->table;
    uint64_t where = c->offset, before, after;
    VjFlushWhen when = VJ_FLUSH_AGED;
    int r;

    g_assert(c->len <= VJ_FILE_EDIT_MAX && (c->src != NULL || c->len == 0));
    if (vj_file_table_read_only(table)) {
        return -EROFS;
    }
    if (!c->append && c->offset > VJ_FILE_SIZE_MAX) {
        return c->len > 0 ? -EFBIG : 0;
    }
    r = may_begin(f, c->len + 256);
    if (r < 0) {
        return r;
    }
    r = take_bytes(table, c);
    if (r < 0) {
        drop_bytes(c);
        return r;
    }
    for (int attempt = 0;; attempt++) {
        vj_mutex_lock(&f->lock);
        before = f->dirty_seq;
        r = change_locked(f, c, &where);
        after = f->dirty_seq;
        when = when_locked(f);
        vj_mutex_unlock(&f->lock);
        if (r != -ENOSPC || attempt == 1) {
            break;
        }
        r = make_space(table);
        if (r == -ECANCELED) {
            break;
        }
        if (r < 0) {
            vj_log_warn("inode %" G_GUINT64_FORMAT
                        ": write-back fails while space is short",
                        f->ino);
        }
    }
    drop_bytes(c);
    if (r == 0 && before != after) {
        vj_count(&table->counters.bytes_in, c->len);
        changed_unlocked(f, when);
    }
    if (at != NULL) {
        *at = where;
    }
    return r;
}

int vj_file_replace(VjFile *f, uint64_t offset, uint64_t old_len, const void *src,
                    size_t len, bool append, uint64_t *at)
{
    Change c = {
        .offset = offset, .old_len = old_len, .src = src, .len = len, .append = append};

    return change(f, &c, at);
}

int vj_file_write(VjFile *f, uint64_t offset, const void *src, size_t len, bool append,
                  uint64_t *at)
{
    Change c = {
        .offset = offset, .src = src, .len = len, .append = append, .overwrite = true};

    return change(f, &c, at);
}

int vj_file_write_block(VjFile *f, uint64_t offset, void **block, const void *src,
                        size_t len, bool append, uint64_t *at)
{
    Change c = {.offset = offset,
                .src = src,
                .len = len,
                .append = append,
                .overwrite = true,
                .block = block};

    return change(f, &c, at);
}

/* A part comes.  False: another append is under way, and it is one of its own.  No lock
 * held. */
static bool part_enter(VjFile *f, const VjFilePart *part)
{
    bool entered;

    vj_mutex_lock(&f->lock);
    if (f->append == NULL) {
        f->append = g_new0(VjAppend, 1);
    }
    entered = vj_append_enter(f->append, part->who);
    vj_mutex_unlock(&f->lock);
    return entered;
}

static void part_leave(VjFile *f, const VjFilePart *part, int r)
{
    vj_mutex_lock(&f->lock);
    vj_append_leave(f->append, part->offset, r < 0);
    vj_mutex_unlock(&f->lock);
}

int vj_file_append_part(VjFile *f, VjFilePart *part, void **block, const void *src,
                        size_t len)
{
    Change c = {
        .src = src, .len = len, .append = true, .overwrite = true, .block = block};
    bool entered = part_enter(f, part);
    int r;

    if (entered) {
        c.part = part;
        c.overwrite = false;
    }
    r = change(f, &c, &part->at);
    part->at = r == 0 ? part->at : part->offset;
    part->moved = false;
    if (entered) {
        part->moved = r == 0 && part->at + len < vj_file_size(f);
        part_leave(f, part, r);
    }
    return r;
}

uint64_t vj_file_append_who(VjFile *f)
{
    uint64_t who;

    vj_mutex_lock(&f->lock);
    who = ++f->appenders;
    vj_mutex_unlock(&f->lock);
    return who;
}

void *vj_file_block_new(VjFileTable *table)
{
    return vj_budget_take_block(&table->dirty);
}

void vj_file_block_free(VjFileTable *table, void *block)
{
    if (block != NULL) {
        vj_budget_give_block(&table->dirty, block);
    }
}

/* Under f->lock; @mem: the bytes that do not stand there. */
static int shift_locked(VjFile *f, const VjFileShift *s, VjMem *mem)
{
    VjPiece data = {.kind = VJ_PIECE_MEMORY, .length = s->src_len, .mem = mem};
    uint64_t size = vj_pieces_length(f->active);
    uint64_t end = s->offset + s->len, lost;
    int r = refusal_locked(f);

    if (r < 0) {
        return r;
    }
    if (f->dirty_seq != s->change) {
        return -EBUSY;
    }
    if (end - (s->down ? 0 : s->src_len) > size) {
        return -EINVAL;
    }
    r = vj_file_reserve_locked(f, s->src_len, false);
    if (r < 0) {
        return r;
    }
    if (s->down) {
        vj_pieces_replace(f->active, s->offset, s->src_len, NULL, 0);
        note_locked(f, s->offset, s->src_len, 0);
        vj_pieces_replace(f->active, end - s->src_len, 0, &data, 1);
        note_locked(f, end - s->src_len, 0, s->src_len);
    } else {
        lost = MIN(s->src_len, size + s->src_len - end);
        vj_pieces_replace(f->active, s->offset, 0, &data, 1);
        note_locked(f, s->offset, 0, s->src_len);
        vj_pieces_replace(f->active, end, lost, NULL, 0);
        note_locked(f, end, lost, 0);
    }
    changed_locked(f, false);
    return 0;
}

int vj_file_shift(VjFile *f, const VjFileShift *s)
{
    VjFileTable *table = f->table;
    VjFlushWhen when = VJ_FLUSH_AGED;
    uint64_t end;
    VjMem *mem;
    int r;

    g_assert(s->src_len > 0 && s->src_len < s->len && s->src_len <= VJ_FILE_EDIT_MAX);
    if (vj_file_table_read_only(table)) {
        return -EROFS;
    }
    if (!vj_add_u64(s->offset, s->len, &end) || end > VJ_FILE_SIZE_MAX) {
        return -EFBIG;
    }
    r = may_begin(f, s->src_len + 512);
    if (r < 0) {
        return r;
    }
    mem = vj_mem_new(&table->dirty, s->src_len);
    if (mem == NULL) {
        return -ENOMEM;
    }
    memcpy(mem->data, s->src, s->src_len);
    mem->len = s->src_len;
    vj_mutex_lock(&f->lock);
    r = shift_locked(f, s, mem);
    when = when_locked(f);
    vj_mutex_unlock(&f->lock);
    vj_mem_unref(mem);
    if (r == 0) {
        vj_count(&table->counters.bytes_in, s->src_len);
        vj_count(&table->counters.shifts, 1);
        vj_count(&table->counters.shifted_bytes, s->len - s->src_len);
        changed_unlocked(f, when);
    }
    return r;
}

uint64_t vj_file_size(VjFile *f)
{
    uint64_t size;

    vj_mutex_lock(&f->lock);
    size = vj_pieces_length(f->active);
    vj_mutex_unlock(&f->lock);
    return size;
}

uint64_t vj_file_change_count(VjFile *f)
{
    uint64_t count;

    vj_mutex_lock(&f->lock);
    count = f->dirty_seq;
    vj_mutex_unlock(&f->lock);
    return count;
}

typedef enum HoleKind {
    HOLE_TRUNCATE, /* the file ends at offset: cut, or extended by a hole */
    HOLE_PUNCH,    /* what is there of [offset, offset + len) */
    HOLE_ZERO,     /* [offset, offset + len), also beyond the end */
    HOLE_REPLACE,  /* old_len bytes at offset become a hole of len bytes */
} HoleKind;

typedef struct HoleChange {
    HoleKind kind;
    uint64_t offset, len;
    uint64_t old_len; /* REPLACE */
    bool inside;      /* REPLACE: only if something follows */
} HoleChange;

/* What becomes of a file of @size bytes: *old_len bytes at MIN(offset, size) go, *hole
 * come. */
static int hole_measure(const HoleChange *c, uint64_t size, uint64_t *old_len,
                        uint64_t *hole)
{
    uint64_t from = MIN(c->offset, size), left = size - from;

    switch (c->kind) {
    case HOLE_TRUNCATE:
        *old_len = left;
        *hole = c->offset - from;
        break;
    case HOLE_PUNCH:
        *old_len = *hole = MIN(c->len, left);
        break;
    case HOLE_ZERO:
        *old_len = MIN(c->len, left);
        *hole = c->offset - from + c->len;
        break;
    case HOLE_REPLACE:
        if (c->inside && (c->offset >= size || c->old_len >= left)) {
            return -EINVAL;
        }
        *old_len = MIN(c->old_len, left);
        *hole = c->len > 0 ? c->offset - from + c->len : 0;
        if (size - *old_len > VJ_FILE_SIZE_MAX - *hole) {
            return -EFBIG;
        }
        break;
    }
    return 0;
}

/* Under f->lock. */
static int change_to_hole_locked(VjFile *f, const HoleChange *c)
{
    uint64_t size = vj_pieces_length(f->active), old_len = 0;
    VjPiece hole = {.kind = VJ_PIECE_HOLE};
    int r = refusal_locked(f);

    if (r < 0) {
        return r;
    }
    r = hole_measure(c, size, &old_len, &hole.length);
    if (r < 0) {
        return r;
    }
    if (old_len == 0 && hole.length == 0 && c->kind != HOLE_TRUNCATE) {
        return 0; /* nothing there */
    }
    vj_pieces_replace(f->active, MIN(c->offset, size), old_len, &hole,
                      hole.length > 0 ? 1 : 0);
    note_locked(f, MIN(c->offset, size), old_len, hole.length);
    changed_locked(f, false);
    return 0;
}

static int change_to_hole(VjFile *f, const HoleChange *c)
{
    VjFlushWhen when;
    uint64_t end;
    int r;

    if (vj_file_table_read_only(f->table)) {
        return -EROFS;
    }
    if (!vj_add_u64(c->offset, c->len, &end) || end > VJ_FILE_SIZE_MAX) {
        return -EFBIG;
    }
    r = may_begin(f, 256);
    if (r < 0) {
        return r;
    }
    vj_mutex_lock(&f->lock);
    r = change_to_hole_locked(f, c);
    when = when_locked(f);
    vj_mutex_unlock(&f->lock);
    if (r == 0) {
        changed_unlocked(f, when);
    }
    return r;
}

int vj_file_truncate(VjFile *f, uint64_t size)
{
    return change_to_hole(f, &(HoleChange){.kind = HOLE_TRUNCATE, .offset = size});
}

int vj_file_punch(VjFile *f, uint64_t offset, uint64_t len, bool grow)
{
    return change_to_hole(f, &(HoleChange){.kind = grow ? HOLE_ZERO : HOLE_PUNCH,
                                           .offset = offset,
                                           .len = len});
}

int vj_file_replace_by_hole(VjFile *f, uint64_t offset, uint64_t old_len, uint64_t len,
                            bool inside)
{
    return change_to_hole(f, &(HoleChange){.kind = HOLE_REPLACE,
                                           .offset = offset,
                                           .len = len,
                                           .old_len = old_len,
                                           .inside = inside});
}

bool vj_file_append_undo(VjFile *f, uint64_t who, uint64_t size)
{
    uint64_t at = 0, len = 0;
    bool is_undo, cut_off = false;

    vj_mutex_lock(&f->lock);
    is_undo = who != 0 && f->append != NULL && f->append->who == who &&
              vj_append_undo(f->append, size, &at, &len);
    /* What others have put between or behind it stays, and it does too. */
    if (is_undo && len > 0 && at + len == vj_pieces_length(f->active)) {
        HoleChange cut = {.kind = HOLE_TRUNCATE, .offset = at};

        cut_off = change_to_hole_locked(f, &cut) == 0;
    }
    vj_mutex_unlock(&f->lock);
    if (cut_off) {
        changed_unlocked(f, VJ_FLUSH_AGED);
    }
    return is_undo;
}

/* ---- copying ----------------------------------------------------------------------- */

/* Pieces of one vj_file_copy at the most: bounds its memory and its time under the
 * lock. */
#define COPY_PIECES 1024u
/* A part of an object smaller than this is copied as bytes instead of shared. */
#define COPY_SHARE_LEAST 16384u
/* Bytes that one copy may bring into memory. */
#define COPY_MEMORY_MAX ((uint64_t)4 << 20)

/* What is stored is what the target's user chose: an object is shared where both chose
 * alike. */
static bool may_share(const VjSegment *s, const VjTransform *want)
{
    bool whole = s->start == 0 && s->length == s->object.plain_bytes;

    return (whole || s->length >= COPY_SHARE_LEAST) &&
           s->object.requested_codec == want->codec && s->object.param == want->param &&
           s->object.key_id == want->key_id;
}

/* One segment, or the beginning of one, as a piece; it holds references of its own.
 * *memory, less than COPY_MEMORY_MAX, grows. */
static int segment_to_piece(VjFileTable *table, const VjSegment *s,
                            const VjTransform *want, uint64_t *memory, VjPiece *out)
{
    uint64_t len = MIN(s->length, COPY_MEMORY_MAX - *memory);
    int r;

    switch (s->kind) {
    case VJ_SEGMENT_HOLE:
        *out = (VjPiece){.kind = VJ_PIECE_HOLE, .length = s->length};
        return 0;
    case VJ_SEGMENT_MEMORY:
        *out = (VjPiece){.kind = VJ_PIECE_MEMORY,
                         .length = s->length,
                         .start = s->start,
                         .mem = vj_mem_ref(s->mem)};
        return 0;
    case VJ_SEGMENT_OBJECT:
        break;
    case VJ_SEGMENT_DAMAGED:
        return s->error;
    }
    if (may_share(s, want)) {
        vj_object_pin(table->objects, s->object.id);
        *out = (VjPiece){.kind = VJ_PIECE_OBJECT,
                         .length = s->length,
                         .start = s->start,
                         .object = s->object.id};
        return 0;
    }
    *out = (VjPiece){.kind = VJ_PIECE_MEMORY, .length = len};
    out->mem = vj_mem_new(&table->dirty, len);
    if (out->mem == NULL) {
        return -ENOMEM;
    }
    out->mem->len = len;
    *memory += len;
    r = vj_segment_read(table, s, 0, out->mem->data, len, true);
    if (r < 0) {
        vj_mem_unref(out->mem);
    }
    return r;
}

static void pieces_release(VjFileTable *table, VjPiece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].kind == VJ_PIECE_MEMORY) {
            vj_mem_unref(pieces[i].mem);
        } else if (pieces[i].kind == VJ_PIECE_OBJECT) {
            vj_object_unpin(table->objects, pieces[i].object);
        }
    }
}

/* Puts @pieces (@len bytes in all) over what @dst has at @offset. */
static int copy_in(VjFile *dst, uint64_t offset, const VjPiece *pieces, size_t count,
                   uint64_t len)
{
    uint64_t size, old_len, memory = 0;
    VjFlushWhen when;
    int r;

    for (size_t i = 0; i < count; i++) {
        memory += pieces[i].kind == VJ_PIECE_MEMORY ? pieces[i].length : 0;
    }
    vj_mutex_lock(&dst->lock);
    r = refusal_locked(dst);
    if (r == 0) {
        r = vj_file_reserve_locked(dst, memory, false);
    }
    if (r == 0) {
        size = vj_pieces_length(dst->active);
        if (offset > size) {
            VjPiece hole = {.kind = VJ_PIECE_HOLE, .length = offset - size};

            vj_pieces_replace(dst->active, size, 0, &hole, 1);
            size = offset;
        }
        old_len = MIN(len, size - offset);
        vj_pieces_replace(dst->active, offset, old_len, pieces, count);
        note_locked(dst, offset, old_len, len);
        changed_locked(dst, false);
    }
    when = when_locked(dst);
    vj_mutex_unlock(&dst->lock);
    if (r == 0) {
        changed_unlocked(dst, when);
    }
    return r;
}

/* The source's segments as pieces, up to the limits of one call. */
static int copy_out(VjFile *src, uint64_t offset, uint64_t len, const VjTransform *want,
                    GArray *pieces, uint64_t *taken)
{
    VjFileTable *table = src->table;
    g_autoptr(GArray) segments = vj_segments_new();
    uint64_t size, memory = 0;
    VjReadGuard guard;
    int r;

    *taken = 0;
    vj_objects_guard_enter(table->objects, &guard);
    r = vj_file_resolve(src, offset, len, COPY_PIECES, segments, &size);
    for (guint i = 0; r == 0 && i < segments->len && memory < COPY_MEMORY_MAX; i++) {
        VjPiece piece;

        r = segment_to_piece(table, &g_array_index(segments, VjSegment, i), want, &memory,
                             &piece);
        if (r == 0) {
            g_array_append_val(pieces, piece);
            *taken += piece.length;
        }
    }
    vj_objects_guard_leave(table->objects, &guard);
    return *taken > 0 ? 0 : r; /* what came before an error is a short copy */
}

int vj_file_copy(VjFile *src, uint64_t src_offset, VjFile *dst, uint64_t dst_offset,
                 uint64_t len, uint64_t *copied)
{
    g_autoptr(GArray) pieces = g_array_new(FALSE, FALSE, sizeof(VjPiece));
    VjTransform want;
    uint64_t end;
    int r;

    *copied = 0;
    if (vj_file_table_read_only(dst->table)) {
        return -EROFS;
    }
    if (!vj_add_u64(dst_offset, len, &end) || end > VJ_FILE_SIZE_MAX) {
        return -EFBIG;
    }
    if (src == dst && src_offset < dst_offset + len && dst_offset < src_offset + len) {
        return -EINVAL;
    }
    r = may_begin(dst, COPY_MEMORY_MAX);
    vj_mutex_lock(&dst->lock);
    want = dst->transform;
    vj_mutex_unlock(&dst->lock);
    if (r == 0) {
        vj_stall_begin();
        r = vj_stall_end(copy_out(src, src_offset, len, &want, pieces, copied));
    }
    if (r == 0 && *copied > 0) {
        r = copy_in(dst, dst_offset, (VjPiece *)(void *)pieces->data, pieces->len,
                    *copied);
        if (r == -ENOSPC && make_space(dst->table) == 0) {
            r = copy_in(dst, dst_offset, (VjPiece *)(void *)pieces->data, pieces->len,
                        *copied);
        }
    }
    pieces_release(dst->table, (VjPiece *)(void *)pieces->data, pieces->len);
    return r;
}
