/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * read.c - read, seek and the committed map, on top of resolved ranges
 */
#include "file/file-private.h"

/* Segments resolved at a time; a read of more goes on with the next ones. */
#define READ_SEGMENTS 16384u
#define SEEK_SEGMENTS 256u
/* A read of so many bytes of an object brings all of it into the cache. */
#define READ_WHOLE_LEAST ((size_t)64 << 10)

/* A range without bytes, for which no reason has been reported yet. */
static void tell_no_record(const VjSegment *s, VjFault *fault)
{
    static const char why[] = "it has no usable record";

    if (s->object.id == 0) {
        return; /* a fragment: that is logged with its inode */
    }
    if (fault != NULL) {
        fault->object = s->object.id;
        g_strlcpy(fault->why, why, sizeof fault->why);
    } else {
        vj_log_error("object %" G_GUINT64_FORMAT ": %s", s->object.id, why);
    }
}

static int segment_read(VjFileTable *table, const VjSegment *s, uint64_t skip, void *dst,
                        size_t len, bool whole, VjFault *fault)
{
    VjObject object;
    int r = s->error;

    g_assert(skip <= s->length && len <= s->length - skip);
    switch (s->kind) {
    case VJ_SEGMENT_MEMORY:
        memcpy(dst, s->mem->data + s->start + skip, len);
        return 0;
    case VJ_SEGMENT_HOLE:
        memset(dst, 0, len);
        return 0;
    case VJ_SEGMENT_OBJECT:
        object = s->object;
        object.fault = fault;
        r = vj_object_read(table->objects, &object, (uint32_t)(s->start + skip), dst,
                           (uint32_t)len, whole);
        break;
    case VJ_SEGMENT_DAMAGED:
        tell_no_record(s, fault);
        break;
    }
    if (r < 0 && fault != NULL) {
        fault->offset = s->at + skip;
    }
    /* The file is there, a part of it is not, or is in a form that this build cannot
     * read. */
    return r == -ENOENT || r == -EOPNOTSUPP ? -EBADMSG : r;
}

int vj_segment_read(VjFileTable *table, const VjSegment *s, uint64_t skip, void *dst,
                    size_t len, bool whole)
{
    return segment_read(table, s, skip, dst, len, whole, NULL);
}

void vj_read_parts_clear(VjReadParts *parts)
{
    for (unsigned i = 0; i < parts->count; i++) {
        vj_buf_unref(parts->held[i]);
    }
    parts->count = 0;
}

/* True: its bytes are a part now.  One part is left for what is copied behind it. */
static bool hold_segment(VjFileTable *table, const VjSegment *s, VjReadParts *parts)
{
    VjBuf *held = NULL;

    if (s->kind == VJ_SEGMENT_OBJECT && parts->count + 2 <= VJ_READ_PARTS_MOST) {
        held = vj_object_hold(table->objects, &s->object, (uint32_t)s->start,
                              (uint32_t)s->length);
    }
    if (held != NULL) {
        parts->iov[parts->count] = (struct iovec){held->data + s->start, s->length};
        parts->held[parts->count++] = held;
    }
    return held != NULL;
}

/* @len bytes at @dst, behind the parts that there are. */
static void add_copied(VjReadParts *parts, uint8_t *dst, size_t len)
{
    struct iovec *last = parts->count > 0 ? &parts->iov[parts->count - 1] : NULL;

    if (last != NULL && parts->held[parts->count - 1] == NULL) {
        g_assert((uint8_t *)last->iov_base + last->iov_len == dst);
        last->iov_len += len;
    } else {
        g_assert(parts->count < VJ_READ_PARTS_MOST);
        parts->iov[parts->count] = (struct iovec){dst, len};
        parts->held[parts->count++] = NULL;
    }
}

/* Reads what the segments cover; *done bytes before an error. */
static int read_segments(VjFileTable *table, const GArray *segments, uint8_t *dst,
                         bool whole, size_t *done, VjFault *fault, VjReadParts *parts)
{
    int r = 0;

    *done = 0;
    for (guint i = 0; r == 0 && i < segments->len; i++) {
        const VjSegment *s = &g_array_index(segments, VjSegment, i);

        if (parts == NULL || !hold_segment(table, s, parts)) {
            r = segment_read(table, s, 0, dst + *done, s->length, whole, fault);
            if (r == 0 && parts != NULL) {
                add_copied(parts, dst + *done, s->length);
            }
        }
        if (r == 0) {
            *done += s->length;
        }
    }
    return r;
}

/*
 * The whole range is resolved at one instant when it has at most READ_SEGMENTS segments:
 * 64 bytes each in the largest request that the kernel sends.  Beyond that a read is
 * several steps, as a read of several pages is anyway.
 */
int vj_file_read_or_tell(VjFile *f, uint64_t offset, void *dst, size_t len, size_t *got,
                         VjFault *fault, VjReadParts *parts)
{
    VjFileTable *table = f->table;
    int r = 0;

    *got = 0;
    vj_read_ahead(f, offset, len);
    table->events->memory_freed(
        table->opaque); /* what is read puts others out of the cache */
    while (r == 0 && *got < len) {
        g_autoptr(GArray) segments = vj_segments_new();
        uint64_t size = 0;
        size_t done = 0;
        VjReadGuard guard;

        vj_objects_guard_enter(table->objects, &guard);
        r = vj_file_resolve(f, offset + *got, len - *got, READ_SEGMENTS, segments, &size);
        if (r == 0) {
            r = read_segments(table, segments, (uint8_t *)dst + *got,
                              len >= READ_WHOLE_LEAST, &done, fault, parts);
        }
        vj_objects_guard_leave(table->objects, &guard);
        *got += done;
        if (done == 0 || offset + *got >= size) {
            /* An error, or the end: what is appended now belongs to another state. */
            break;
        }
    }
    return r; /* never short before the end: the kernel would fill the rest with zeroes */
}

int vj_file_read(VjFile *f, uint64_t offset, void *dst, size_t len, size_t *got)
{
    return vj_file_read_or_tell(f, offset, dst, len, got, NULL, NULL);
}

/*
 * What SEEK_DATA and SEEK_HOLE see: blocks, as on every other file system.  A block is a
 * hole only if all of it is: programs that read in sectors rely on holes that begin and
 * end between them.
 */
enum { SEEK_BLOCK = 4096 };

typedef struct Seek {
    uint64_t offset;
    bool data;      /* wanted */
    uint64_t holes; /* since here nothing but holes; UINT64_MAX: the last byte was data */
    uint64_t found;
} Seek;

static uint64_t next_block(uint64_t at)
{
    return at + (SEEK_BLOCK - at % SEEK_BLOCK) % SEEK_BLOCK;
}

/* True: what is wanted is at found.  @size: of the file. */
static bool seek_step(Seek *s, const VjSegment *segment, uint64_t size)
{
    uint64_t whole;

    if (segment->kind == VJ_SEGMENT_HOLE) {
        s->holes = MIN(s->holes, segment->at);
        return false;
    }
    whole = s->holes == UINT64_MAX ? UINT64_MAX : next_block(s->holes);
    s->holes = UINT64_MAX;
    s->found = s->data ? segment->at - segment->at % SEEK_BLOCK : whole;
    s->found = MAX(s->found, s->offset);
    return s->data || (whole < size && whole + SEEK_BLOCK <= segment->at);
}

int vj_file_seek(VjFile *f, uint64_t offset, bool data, uint64_t *out)
{
    Seek s = {.offset = offset, .data = data, .holes = UINT64_MAX};
    uint64_t size = 0, at = offset - offset % SEEK_BLOCK;

    for (;;) {
        g_autoptr(GArray) segments = vj_segments_new();
        VjReadGuard guard;
        int r;

        vj_objects_guard_enter(f->table->objects, &guard);
        r = vj_file_resolve(f, at, UINT64_MAX - at, SEEK_SEGMENTS, segments, &size);
        vj_objects_guard_leave(f->table->objects, &guard);
        if (r < 0) {
            return r;
        }
        if (offset >= size) {
            return -ENXIO;
        }
        for (guint i = 0; i < segments->len; i++) {
            const VjSegment *segment = &g_array_index(segments, VjSegment, i);

            if (seek_step(&s, segment, size)) {
                *out = s.found;
                return 0;
            }
            at = segment->at + segment->length;
        }
        if (at >= size || segments->len == 0) {
            break;
        }
    }
    if (data) {
        return -ENXIO;
    }
    /* The hole behind the end, or the one that reaches it. */
    *out = s.holes < size ? MIN(MAX(next_block(s.holes), offset), size) : size;
    return 0;
}

static int fill_extent(VjFile *f, VjTxn *txn, const VjEntry *entry, VjFileExtent *e)
{
    VjObject object;
    int r;

    e->length = entry->length;
    e->object_start = entry->start;
    if (entry->kind != VJ_ENTRY_OBJECT) {
        e->kind = entry->kind == VJ_ENTRY_HOLE ? VJ_EXTENT_HOLE : VJ_EXTENT_FRAGMENT;
        return 0;
    }
    e->kind = VJ_EXTENT_OBJECT;
    e->object_id = entry->id;
    r = vj_object_get(txn, entry->id, &object);
    if (r < 0) {
        return r == -ENOENT ? -EBADMSG : r;
    }
    e->object_bytes = object.plain_bytes;
    e->stored_bytes = object.stored_bytes;
    e->refs = object.refs;
    e->digest = object.digest;
    e->digest_len = f->table->digest->len;
    e->codec = object.codec;
    return 0;
}

/* Extents that are read at a time. */
#define EXTENTS_MOST 4096u

typedef struct Extents {
    VjFile *file;
    uint64_t offset;
    GArray *found; /* VjFileExtent */
    bool more;     /* there are others behind them */
} Extents;

static int extents_of_map(VjTxn *txn, const VjInode *inode, Extents *x)
{
    g_autoptr(VjMapCursor) cursor = vj_map_cursor_new(txn, inode->ino, &inode->root);
    VjEntry entry;
    uint64_t at;
    int r = vj_map_cursor_seek(cursor, x->offset, &entry, &at);

    while (r == 0) {
        VjFileExtent e = {.offset = at};

        if (x->found->len == EXTENTS_MOST) {
            x->more = true;
            return 0;
        }
        r = fill_extent(x->file, txn, &entry, &e);
        if (r == 0) {
            g_array_append_val(x->found, e);
            r = vj_map_cursor_next(cursor, &entry, &at);
        }
    }
    return r == -ENOENT ? 0 : r;
}

static int extents_body(VjTxn *txn, void *opaque)
{
    Extents *x = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, x->file->ino, &inode);

    g_array_set_size(x->found, 0);
    x->more = false;
    if (r < 0 || inode.size <= x->offset) {
        return r;
    }
    if (inode.content != VJ_CONTENT_MAP) {
        VjFileExtent e = {.length = inode.size,
                          .kind = inode.content == VJ_CONTENT_INLINE ? VJ_EXTENT_INLINE
                                                                     : VJ_EXTENT_HOLE,
                          .stored_bytes = inode.stored_bytes};

        g_array_append_val(x->found, e);
        return 0;
    }
    return extents_of_map(txn, &inode, x);
}

int vj_file_extents(VjFile *f, uint64_t offset, VjExtentVisit *visit, void *opaque)
{
    g_autoptr(GArray) found = g_array_new(FALSE, FALSE, sizeof(VjFileExtent));
    Extents x = {.file = f, .offset = offset, .found = found, .more = true};

    while (x.more) {
        int r = vj_meta_view(f->table->meta, extents_body, &x);

        for (guint i = 0; i < found->len; i++) {
            const VjFileExtent *e = &g_array_index(found, VjFileExtent, i);

            if (!visit(opaque, e)) {
                return 0;
            }
            x.offset = e->offset + e->length;
        }
        if (r < 0) {
            return r;
        }
    }
    return 0;
}
