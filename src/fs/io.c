/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * io.c - open files: contents, edits, staged data
 */
#include <linux/falloc.h>

#include "fs/fs-private.h"

static bool handle_writable(const VjHandle *h)
{
    return (h->flags & O_ACCMODE) != O_RDONLY;
}

bool vj_fs_handle_readable(const VjHandle *h)
{
    return (h->flags & O_ACCMODE) != O_WRONLY;
}

static int handle_may_write(const VjHandle *h)
{
    if (!handle_writable(h)) {
        return -EBADF;
    }
    return vj_volume_read_only(h->fs->volume) ? -EROFS : 0;
}

int vj_fs_open(VjFs *fs, const VjCaller *who, uint64_t ino, int flags, VjHandle **out)
{
    bool write = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
    VjHandle *h;
    int r;

    *out = NULL;
    if (write && vj_volume_read_only(fs->volume)) {
        return -EROFS;
    }
    r = vj_fs_node_open(fs, ino, flags, &h);
    if (r < 0) {
        return r;
    }
    r = vj_fs_may_open(h, flags);
    if (r < 0) {
        vj_fs_release(fs, h);
        return r;
    }
    if (flags & O_TRUNC) {
        r = vj_fs_clear_privileges(fs, who, ino);
        if (r == 0) {
            r = vj_file_truncate(h->file, 0);
        }
        if (r < 0) {
            vj_fs_release(fs, h);
            return r;
        }
    }
    *out = h;
    return 0;
}

/* The mark is the handle's own. */
int vj_fs_take_error(VjHandle *h)
{
    int r;

    vj_mutex_lock(&h->lock);
    r = vj_file_error_since(h->file, &h->error_mark);
    vj_mutex_unlock(&h->lock);
    return r;
}

/* The mark stays: the close may be that of a child, which has the handle by fork(2), and
 * then the parent's fsync(2) is to fail too. */
static int look_at_error(VjHandle *h)
{
    uint32_t mark;

    vj_mutex_lock(&h->lock);
    mark = h->error_mark;
    vj_mutex_unlock(&h->lock);
    return vj_file_error_since(h->file, &mark);
}

/* What a close of it waits for. */
static VjSafety safety_of_handle(const VjHandle *h)
{
    VjInode inode;

    if (!handle_writable(h) || vj_volume_read_only(h->fs->volume)) {
        return VJ_SAFETY_NONE;
    }
    return vj_file_getattr(h->fs->files, h->ino, &inode) < 0
               ? h->fs->safety
               : vj_fs_safety_of(h->fs, &inode);
}

/* In a shared session others may open what was closed, and see what it was then. */
int vj_fs_flush(VjHandle *h)
{
    VjSafety safety = safety_of_handle(h);
    int r = 0, earlier;

    if (safety != VJ_SAFETY_NONE) {
        r = vj_fs_acknowledge_content(h->fs, h->file, safety);
    } else if (vj_volume_is_shared(h->fs->volume)) {
        vj_stall_begin();
        r = vj_stall_end(vj_file_commit(h->file));
    } else {
        vj_file_kick(h->file);
    }
    earlier = look_at_error(h);
    return r < 0 ? r : earlier;
}

int vj_fs_sync(VjHandle *h)
{
    return vj_volume_read_only(h->fs->volume) ? 0 : vj_file_sync(h->file);
}

void vj_fs_sync_join(VjHandle *h, VjFlushWait *w)
{
    if (vj_volume_read_only(h->fs->volume)) {
        w->done(w, 0);
    } else {
        vj_file_sync_join(h->file, w);
    }
}

int vj_fs_fsync(VjHandle *h)
{
    int r, earlier;

    vj_stall_begin();
    r = vj_stall_end(vj_fs_sync(h));
    if (r == -ECANCELED) {
        return r; /* an error of before is for those that live */
    }
    /* Taken also when this attempt failed: one failure is returned once. */
    earlier = vj_fs_take_error(h);
    return r < 0 ? r : earlier;
}

int vj_fs_recode(VjHandle *h, const VjCaller *who, VjRecode *step)
{
    VjInode inode;
    int r = 0;

    if ((h->flags & O_ACCMODE) == O_RDONLY && who->uid != 0) {
        r = vj_file_getattr(h->fs->files, h->ino, &inode);
        if (r == 0 && inode.uid != who->uid) {
            r = -EBADF;
        }
    }
    return r < 0 ? r : vj_file_recode(h->file, step);
}

int vj_fs_read_parts(VjHandle *h, uint64_t offset, void *dst, size_t len, size_t *got,
                     VjReadParts *parts)
{
    VjFault fault = {.object = 0};
    int r;

    vj_stall_begin();
    r = vj_stall_end(vj_file_read_or_tell(h->file, offset, dst, len, got, &fault, parts));
    if (r < 0 && fault.why[0] != '\0') {
        g_autofree char *name = vj_fs_shown_name(h->fs, h->ino);

        vj_log_error("%s: object %" G_GUINT64_FORMAT
                     ": %s; the file cannot be read at byte %" G_GUINT64_FORMAT,
                     name, fault.object, fault.why, fault.offset);
    }
    if (r == 0 && len > 0) {
        vj_fs_note_read(h);
    }
    return r;
}

void vj_fs_read_parts_clear(VjReadParts *parts)
{
    vj_read_parts_clear(parts);
}

int vj_fs_read(VjHandle *h, uint64_t offset, void *dst, size_t len, size_t *got)
{
    return vj_fs_read_parts(h, offset, dst, len, got, NULL);
}

static int write_to(VjHandle *h, uint64_t offset, void **block, const void *src,
                    size_t len, unsigned flags, uint64_t *at)
{
    bool append = (flags & VJ_WRITE_APPEND) != 0;
    uint64_t where = offset, end;
    int r;

    if (vj_volume_read_only(h->fs->volume)) {
        return -EROFS;
    }
    if (!append && (!vj_add_u64(offset, len, &end) || end > VJ_FILE_SIZE_MAX)) {
        return -EFBIG;
    }
    r = vj_fs_may_write(h, append);
    if (r < 0) {
        return r;
    }
    r = block != NULL
            ? vj_file_write_block(h->file, offset, block, src, len, append, &where)
            : vj_file_write(h->file, offset, src, len, append, &where);
    vj_fs_note_change(h);
    if (at != NULL) {
        *at = where;
    }
    return r;
}

int vj_fs_write(VjHandle *h, uint64_t offset, const void *src, size_t len, unsigned flags,
                uint64_t *at)
{
    return write_to(h, offset, NULL, src, len, flags, at);
}

int vj_fs_write_block(VjHandle *h, uint64_t offset, void **block, const void *src,
                      size_t len, unsigned flags, uint64_t *at)
{
    return write_to(h, offset, block, src, len, flags, at);
}

void *vj_fs_block_new(VjFs *fs)
{
    return vj_file_block_new(fs->files);
}

void vj_fs_block_free(VjFs *fs, void *block)
{
    vj_file_block_free(fs->files, block);
}

/* posix_fallocate(3): nothing can be reserved for content that is not there yet, but what
 * plainly does not fit is refused. */
static int fallocate_extend(VjHandle *h, uint64_t end)
{
    VjStoreSpace space;
    uint64_t reserved;
    VjInode inode;
    int r = vj_file_getattr(h->fs->files, h->ino, &inode);

    if (r < 0 || inode.size >= end) {
        return r;
    }
    vj_stall_begin();
    r = vj_stall_end(vj_volume_space(h->fs->volume, &space, &reserved));
    if (r < 0) {
        return r;
    }
    if (end - inode.size > space.available_bytes) {
        return -ENOSPC;
    }
    return vj_file_truncate(h->file, end);
}

/* Growing is all that may happen to what is append only, also through a handle that was
 * opened before it became so. */
static int fallocate_allowed(VjHandle *h, int mode)
{
    uint32_t protection = 0;
    int r = handle_may_write(h);

    if (r == 0) {
        r = vj_fs_protection(h, &protection);
    }
    if (r < 0) {
        return r;
    }
    return (protection & VJ_INODE_IMMUTABLE) ||
                   ((protection & VJ_INODE_APPEND_ONLY) && (mode & ~FALLOC_FL_KEEP_SIZE))
               ? -EPERM
               : 0;
}

int vj_fs_fallocate(VjHandle *h, int mode, uint64_t offset, uint64_t len)
{
    uint64_t end;
    int r = fallocate_allowed(h, mode);

    if (r < 0) {
        return r;
    }
    if (len == 0) {
        return -EINVAL;
    }
    if (!vj_add_u64(offset, len, &end) || end > VJ_FILE_SIZE_MAX) {
        return -EFBIG;
    }
    vj_fs_note_change(h);
    switch (mode) {
    case 0:
        return fallocate_extend(h, end);
    case FALLOC_FL_KEEP_SIZE:
        return 0;
    case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
    case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
        return vj_file_punch(h->file, offset, len, false);
    case FALLOC_FL_ZERO_RANGE:
        return vj_file_punch(h->file, offset, len, true);
    default:
        return -EOPNOTSUPP;
    }
}

int vj_fs_seek(VjHandle *h, uint64_t offset, bool data, uint64_t *out)
{
    return vj_file_seek(h->file, offset, data, out);
}

int vj_fs_copy(VjHandle *src, uint64_t src_offset, VjHandle *dst, uint64_t dst_offset,
               uint64_t len, uint64_t *copied)
{
    uint64_t end;
    int r = handle_may_write(dst);

    *copied = 0;
    if (r == 0) {
        r = vj_fs_may_write(dst, false);
    }
    if (r < 0 || len == 0) {
        return r;
    }
    if (!vj_add_u64(dst_offset, len, &end) || end > VJ_FILE_SIZE_MAX) {
        return -EFBIG;
    }
    vj_fs_note_read(src);
    r = vj_file_copy(src->file, src_offset, dst->file, dst_offset, len, copied);
    vj_fs_note_change(dst);
    return r;
}

/* ---- edits ------------------------------------------------------------------------- */

/* What every edit asks first: open for writing, and a file that may be changed. */
static int edit_look(VjHandle *h, uint32_t *protection, uint64_t *size)
{
    int r = handle_may_write(h);

    if (r == 0) {
        r = vj_fs_protection(h, protection);
    }
    if (r == 0 && (*protection & VJ_INODE_IMMUTABLE)) {
        r = -EPERM;
    }
    *size = vj_file_size(h->file);
    return r;
}

/* What @edit makes of the file as it is. */
static int replace_plan(VjHandle *h, const VjEdit *edit, VjEdited *out)
{
    uint64_t offset, size;
    uint32_t protection;
    int r = edit_look(h, &protection, &size);

    g_assert(edit->hole ? !edit->append : edit->len <= VJ_FILE_EDIT_MAX);
    if (r < 0) {
        return r;
    }
    offset = edit->append ? size : edit->offset;
    if (offset > INT64_MAX) {
        return -EINVAL;
    }
    if (protection != 0 && (offset != size || edit->hole)) {
        return -EPERM;
    }
    *out = (VjEdited){
        .at = offset,
        .len = edit->len,
        .old_size = size,
        .size = size,
    };
    if (offset < size) {
        out->old_len = MIN(edit->old_len, size - offset);
    }
    if (edit->inside && (offset >= size || edit->old_len >= size - offset)) {
        return -EINVAL;
    }
    if (edit->len == 0 && out->old_len == 0) {
        return 0;
    }
    if (!vj_add_u64(MAX(offset, size) - out->old_len, edit->len, &out->size) ||
        out->size > VJ_FILE_SIZE_MAX) {
        return -EFBIG;
    }
    out->changed = true;
    return 0;
}

int vj_fs_replace_look(VjHandle *h, const VjEdit *edit, VjEdited *out)
{
    return replace_plan(h, edit, out);
}

int vj_fs_replace(const VjCaller *who, VjHandle *h, const VjEdit *edit, VjEdited *out)
{
    int r = replace_plan(h, edit, out);

    if (r < 0 || !out->changed) {
        return r;
    }
    r = vj_fs_clear_privileges_open(h, who);
    if (r == 0 && edit->hole) {
        r = vj_file_replace_by_hole(h->file, out->at, edit->old_len, edit->len,
                                    edit->inside);
    } else if (r == 0) {
        r = vj_file_replace(h->file, out->at, out->old_len, edit->src, (size_t)edit->len,
                            edit->append, &out->at);
    }
    out->changed = r == 0;
    vj_fs_note_change(h);
    return r;
}

int vj_fs_change_count(VjHandle *h, uint64_t *change, uint64_t *size)
{
    VjInode inode;
    int r = handle_may_write(h);

    if (r < 0) {
        return r;
    }
    *change = vj_file_change_count(h->file);
    r = vj_file_getattr(h->fs->files, h->ino, &inode);
    if (r == 0) {
        *size = inode.size;
    }
    return r;
}

/* Likewise. */
static int shift_plan(VjHandle *h, const VjFileShift *shift, VjEdited *out)
{
    uint64_t end, size;
    uint32_t protection;
    int r = edit_look(h, &protection, &size);

    if (r < 0) {
        return r;
    }
    if (shift->src_len == 0 || shift->src_len >= shift->len ||
        shift->src_len > VJ_FILE_EDIT_MAX) {
        return -EINVAL;
    }
    if (!vj_add_u64(shift->offset, shift->len, &end) || end > VJ_FILE_SIZE_MAX) {
        return -EFBIG;
    }
    *out = (VjEdited){
        .at = shift->offset,
        .old_len = shift->offset < size ? MIN(shift->len, size - shift->offset) : 0,
        .len = shift->len,
        .old_size = size,
        .size = MAX(size, end),
        .changed = true,
    };
    return protection != 0 ? -EPERM : 0;
}

int vj_fs_shift_look(VjHandle *h, const VjFileShift *shift, VjEdited *out)
{
    return shift_plan(h, shift, out);
}

int vj_fs_shift(const VjCaller *who, VjHandle *h, const VjFileShift *shift, VjEdited *out)
{
    int r = shift_plan(h, shift, out);

    if (r < 0) {
        return r;
    }
    if (vj_file_change_count(h->file) != shift->change) {
        return -EBUSY;
    }
    r = vj_fs_clear_privileges_open(h, who);
    if (r == 0) {
        r = vj_file_shift(h->file, shift);
    }
    out->changed = r == 0;
    vj_fs_note_change(h);
    return r;
}

/* ---- staged data ------------------------------------------------------------------- */

static VjStage *stage_find(VjHandle *h, uint64_t id, guint *index) VJ_REQUIRES(h->lock)
{
    for (guint i = 0; h->stages != NULL && i < h->stages->len; i++) {
        VjStage *s = &g_array_index(h->stages, VjStage, i);

        if (s->id == id) {
            *index = i;
            return s;
        }
    }
    return NULL;
}

static bool stage_charge(VjFs *fs, size_t len)
{
    bool fits;

    vj_mutex_lock(&fs->lock);
    fits = len <= VJ_FS_STAGE_TOTAL_MAX - fs->staged_bytes;
    if (fits) {
        fs->staged_bytes += len;
    }
    vj_mutex_unlock(&fs->lock);
    return fits;
}

static void stage_discharge(VjFs *fs, size_t len)
{
    vj_mutex_lock(&fs->lock);
    g_assert(fs->staged_bytes >= len);
    fs->staged_bytes -= len;
    vj_mutex_unlock(&fs->lock);
}

/* Room for @len more bytes; doubles, so that staging 8 MiB copies it once over. */
static int stage_reserve(VjStage *s, size_t len)
{
    size_t need = s->data == NULL ? len : s->data->len + len;
    size_t cap = s->data == NULL ? 0 : s->data->cap;
    VjBuf *bigger;

    if (need <= cap) {
        return 0;
    }
    bigger = vj_buf_new(MIN(MAX(need, cap * 2), VJ_FS_STAGE_MAX));
    if (bigger == NULL) {
        return -ENOMEM;
    }
    if (s->data != NULL) {
        memcpy(bigger->data, s->data->data, s->data->len);
        bigger->len = s->data->len;
        vj_buf_unref(s->data);
    }
    s->data = bigger;
    return 0;
}

static int stage_add_locked(VjHandle *h, uint64_t *id, uint64_t offset, const void *src,
                            size_t len) VJ_REQUIRES(h->lock)
{
    VjStage *s = NULL;
    guint index = 0;
    int r;

    if (len > VJ_FS_STAGE_MAX - h->staged_bytes) {
        return -EFBIG;
    }
    if (*id != 0) {
        s = stage_find(h, *id, &index);
        if (s == NULL) {
            return -ENOENT;
        }
        if (offset != s->data->len) {
            return -EINVAL;
        }
        r = stage_reserve(s, len);
        if (r < 0) {
            return r;
        }
    } else {
        VjStage begun = {.id = h->last_stage_id + 1};

        if (offset != 0 || len == 0) {
            return -EINVAL;
        }
        if (h->stages != NULL && h->stages->len >= VJ_FS_STAGES_MAX) {
            return -EFBIG;
        }
        r = stage_reserve(&begun, len);
        if (r < 0) {
            return r;
        }
        if (h->stages == NULL) {
            h->stages = g_array_new(FALSE, FALSE, sizeof(VjStage));
        }
        g_array_append_val(h->stages, begun);
        s = &g_array_index(h->stages, VjStage, h->stages->len - 1);
        *id = ++h->last_stage_id;
    }
    memcpy(s->data->data + s->data->len, src, len);
    s->data->len += len;
    h->staged_bytes += len;
    return 0;
}

int vj_fs_stage_add(VjHandle *h, uint64_t *id, uint64_t offset, const void *src,
                    size_t len)
{
    int r = handle_may_write(h);

    if (r < 0) {
        return r;
    }
    if (len > VJ_FS_STAGE_MAX) {
        return -EFBIG;
    }
    if (!stage_charge(h->fs, len)) {
        return -ENOMEM;
    }
    vj_mutex_lock(&h->lock);
    r = stage_add_locked(h, id, offset, src, len);
    vj_mutex_unlock(&h->lock);
    if (r < 0) {
        stage_discharge(h->fs, len);
    }
    return r;
}

int vj_fs_stage_has(VjHandle *h, uint64_t id, uint64_t len)
{
    const VjStage *s;
    guint index;
    int r = -ENOENT;

    vj_mutex_lock(&h->lock);
    s = stage_find(h, id, &index);
    if (s != NULL) {
        r = s->data->len == len ? 0 : -EINVAL;
    }
    vj_mutex_unlock(&h->lock);
    return r;
}

int vj_fs_stage_take(VjHandle *h, uint64_t id, VjBuf **out)
{
    VjStage *s;
    guint index;

    *out = NULL;
    vj_mutex_lock(&h->lock);
    s = stage_find(h, id, &index);
    if (s != NULL) {
        *out = s->data;
        h->staged_bytes -= s->data->len;
        g_array_remove_index_fast(h->stages, index);
    }
    vj_mutex_unlock(&h->lock);
    if (*out == NULL) {
        return -ENOENT;
    }
    stage_discharge(h->fs, (*out)->len);
    return 0;
}

int vj_fs_stage_drop(VjHandle *h, uint64_t id)
{
    g_autoptr(VjBuf) data = NULL;

    return vj_fs_stage_take(h, id, &data);
}
