/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * old-map.c - the committed map during a write-back, a window at a time
 *
 * A write-back may take as long as the device wants, a snapshot must not live so long:
 * each window is read in a snapshot of its own.  They agree because no other thread
 * changes this map.
 */
#include "file/write-back-private.h"

/* Entries of a window, and how many of them before the one asked for. */
#define WINDOW_ENTRIES 64u
#define WINDOW_BEFORE 8u

void vj_old_map_init(VjOldMap *m, VjFileTable *table, uint64_t ino, const VjMapRoot *root)
{
    *m = (VjOldMap){.table = table, .ino = ino, .root = *root};
    m->window = g_array_new(FALSE, FALSE, sizeof(VjOldEntry));
}

void vj_old_map_clear(VjOldMap *m)
{
    g_array_unref(m->window);
}

static bool find(const VjOldMap *m, uint64_t offset, VjOldEntry *out)
{
    guint low = 0, high = m->window->len;

    while (low < high) {
        guint middle = low + (high - low) / 2;
        const VjOldEntry *e = &g_array_index(m->window, VjOldEntry, middle);

        if (offset < e->at) {
            high = middle;
        } else if (offset - e->at >= e->entry.length) {
            low = middle + 1;
        } else {
            *out = *e;
            return true;
        }
    }
    return false;
}

static int add(VjOldMap *m, VjTxn *txn, const VjEntry *entry, uint64_t at)
{
    VjOldEntry e = {.entry = *entry, .at = at};
    int r = 0;

    if (entry->kind == VJ_ENTRY_OBJECT) {
        r = vj_object_get(txn, entry->id, &e.object);
        if (r == -ENOENT) {
            r = -EBADMSG;
        }
        if (r == 0 && entry->start + entry->length > e.object.plain_bytes) {
            r = -EBADMSG;
        }
    } else if (entry->kind == VJ_ENTRY_FRAGMENT && entry->length > VJ_FILE_INLINE_MAX) {
        r = -EBADMSG;
    }
    if (r == 0) {
        g_array_append_val(m->window, e);
    }
    return r;
}

typedef struct Load {
    VjOldMap *map;
    uint64_t offset;
} Load;

static int load_body(VjTxn *txn, void *opaque)
{
    const Load *l = opaque;
    VjOldMap *m = l->map;
    g_autoptr(VjMapCursor) cursor = vj_map_cursor_new(txn, m->ino, &m->root);
    VjEntry entry;
    uint64_t at;
    int r = vj_map_cursor_seek(cursor, l->offset, &entry, &at);

    g_array_set_size(m->window, 0);
    for (guint i = 0; r == 0 && i < WINDOW_BEFORE && at > 0; i++) {
        r = vj_map_cursor_prev(cursor, &entry, &at);
    }
    while (r == 0 && m->window->len < WINDOW_ENTRIES) {
        r = add(m, txn, &entry, at);
        if (r == 0) {
            r = vj_map_cursor_next(cursor, &entry, &at);
            if (r == -ENOENT) {
                return 0;
            }
        }
    }
    return r;
}

int vj_old_map_at(VjOldMap *m, uint64_t offset, VjOldEntry *out)
{
    Load load = {.map = m, .offset = offset};
    int r;

    if (offset >= m->root.bytes) {
        return -ENOENT;
    }
    if (find(m, offset, out)) {
        return 0;
    }
    r = vj_meta_view(m->table->meta, load_body, &load);
    if (r == 0 && !find(m, offset, out)) {
        r = -EBADMSG;
    }
    return r;
}

typedef struct Fragment {
    uint64_t ino;
    const VjEntry *entry;
    uint64_t skip;
    void *dst;
    size_t len;
} Fragment;

static int fragment_body(VjTxn *txn, void *opaque)
{
    const Fragment *f = opaque;

    return vj_fragment_get(txn, f->ino, f->entry, f->skip, f->dst, f->len);
}

int vj_old_entry_read(VjOldMap *m, const VjOldEntry *e, uint64_t skip, void *dst,
                      size_t len)
{
    Fragment f = {
        .ino = m->ino, .entry = &e->entry, .skip = skip, .dst = dst, .len = len};

    switch ((VjEntryKind)e->entry.kind) {
    case VJ_ENTRY_HOLE:
        memset(dst, 0, len);
        return 0;
    case VJ_ENTRY_OBJECT:
        return vj_object_read(m->table->objects, &e->object,
                              (uint32_t)(e->entry.start + skip), dst, (uint32_t)len,
                              false);
    case VJ_ENTRY_FRAGMENT:
        break;
    }
    return vj_meta_view(m->table->meta, fragment_body, &f);
}
