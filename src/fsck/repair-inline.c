/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * repair-inline.c - inline bytes: in their record, and those that the inode's record has
 *
 * Bytes that are damaged become a map whose one range cannot be read.  Where only the
 * rest is missing (a record of an inode was lost, or is that of other content), the bytes
 * before it become a fragment, behind which a range cannot be read: the file is as long
 * as it was.
 */
#include "file/inode-format.h"
#include "fsck/repair-map-private.h"

#include <inttypes.h>
#include <sys/stat.h>

/* ---- what there is ----------------------------------------------------------------- */

typedef enum InlineState {
    INLINE_GOOD,
    INLINE_LOST,
    INLINE_SIZE,
    INLINE_NO_REST, /* the inode has none, or that of other content */
    INLINE_FOREIGN
} InlineState;

/* What is stored inline for an inode. */
typedef struct InlineLook {
    const VjInode *inode;
    InlineState state;
    uint64_t size, stored_bytes; /* as the record itself says; else as the inode does */
    VjInlineParts parts;
} InlineLook;

static int look_body(VjTxn *txn, void *opaque)
{
    InlineLook *l = opaque;
    VjInode with_rest = *l->inode, *inode = &with_rest;
    VjInlineParts *parts = &l->parts;
    uint8_t bytes[VJ_FILE_INLINE_MAX];
    int rc = vj_inline_parts(txn, inode->ino, parts);

    l->state = INLINE_LOST;
    l->size = inode->size;
    l->stored_bytes = inode->stored_bytes;
    if (rc < 0 && rc != -EOPNOTSUPP) {
        return rc == -ENOENT || rc == -EBADMSG ? 0 : rc;
    }
    l->size = parts->plain_bytes;
    l->stored_bytes = parts->stored_bytes + parts->rest_bytes;
    if (parts->rest_bytes > 0 &&
        !vj_inline_is_rest(parts, inode->inline_rest, inode->inline_rest_bytes)) {
        l->state = rc == 0 ? INLINE_NO_REST : INLINE_FOREIGN;
        return 0;
    }
    if (l->size != inode->size) {
        l->state = INLINE_SIZE;
        return 0;
    }
    if (parts->rest_bytes == 0) {
        inode->inline_rest_bytes = 0;
    }
    rc = vj_inline_get(txn, inode, bytes, sizeof bytes, NULL);
    l->state = rc == 0 ? INLINE_GOOD : rc == -EOPNOTSUPP ? INLINE_FOREIGN : INLINE_LOST;
    return rc == -EBADMSG || rc == -EOPNOTSUPP ? 0 : rc;
}

static int look_at_inline(VjRepair *r, const VjInode *inode, InlineLook *out)
{
    *out = (InlineLook){.inode = inode};
    return vj_meta_view(r->meta, look_body, out);
}

/* What a damaged record of the inode still has of the rest: its checksum is in the other
 * record.  *inode gets it. */
static int salvage_rest(VjTxn *txn, const VjInlineParts *parts, VjInode *inode)
{
    const size_t at = offsetof(VjInodeDisk, checksum);
    uint8_t key[VJ_INO_KEY_BYTES];
    const uint8_t *rest;
    VjSlice value;
    int rc = vj_txn_get(txn, VJ_SPACE_INODE, vj_ino_key(inode->ino, key), &value);

    inode->inline_rest_bytes = 0;
    if (rc < 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    rest = (const uint8_t *)value.data + at;
    if (value.len >= at + parts->rest_bytes &&
        vj_inline_is_rest(parts, rest, parts->rest_bytes)) {
        inode->inline_rest_bytes = (uint8_t)parts->rest_bytes;
        memcpy(inode->inline_rest, rest, parts->rest_bytes);
    }
    return 0;
}

int vj_repair_content_inline(VjTxn *txn, uint64_t ino, VjInode *inode, bool *found)
{
    VjInlineParts parts;
    int rc = vj_inline_parts(txn, ino, &parts);

    *found = parts.plain_bytes > 0;
    inode->content = VJ_CONTENT_EMPTY;
    inode->size = inode->stored_bytes = 0;
    if (!*found) {
        return rc == -ENOENT || rc == -EBADMSG ? 0 : rc;
    }
    rc = salvage_rest(txn, &parts, inode);
    inode->content = VJ_CONTENT_INLINE;
    inode->size = parts.plain_bytes;
    inode->stored_bytes = parts.stored_bytes + inode->inline_rest_bytes;
    return rc;
}

/* ---- what is lost becomes a map ---------------------------------------------------- */

static void add_lost(GArray *entries, uint64_t length)
{
    const VjEntry lost = {.kind = VJ_SALVAGE_LOST, .length = length};

    g_array_append_val(entries, lost);
}

static int lay(VjRepair *r, const VjInode *inode, const GArray *entries)
{
    VjLay l = {.ino = inode->ino,
               .root = {.next_node = MAX(inode->root.next_node, 1)},
               .clear_inline = true};
    int rc = vj_repair_build_map(r, inode->ino, entries, &l.root);

    return rc < 0 ? rc : vj_repair_lay_map(r, &l);
}

/* The range of the whole file is lost. */
static int lose_all(VjRepair *r, const VjInode *inode)
{
    g_autoptr(GArray) entries = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    int rc;

    add_lost(entries, MAX(inode->size, 1));
    rc = lay(r, inode, entries);
    if (rc == 0) {
        vj_repair_say(r,
                      "inode %" PRIu64 ": its %" PRIu64 " bytes are lost and cannot be "
                      "read%s",
                      inode->ino, inode->size,
                      S_ISLNK(inode->mode) ? "; the symlink became a file" : "");
    }
    return rc;
}

typedef struct First {
    uint64_t ino;
    const VjFragment *fragment;
    uint32_t number; /* out */
} First;

static int first_body(VjTxn *txn, void *opaque)
{
    First *f = opaque;

    return vj_fragment_add(txn, f->ino, f->fragment, &f->number);
}

/* What there is as a fragment of @ino, and the rest that is lost: their entries. */
static int keep_first(VjRepair *r, uint64_t ino, const VjInlineParts *parts,
                      GArray *entries)
{
    const uint32_t len = (uint32_t)parts->plain_bytes - parts->rest_bytes;
    g_autofree VjFragment *fragment = vj_fragment_new(NULL, parts->first, len);
    First f = {.ino = ino, .fragment = fragment};
    VjEntry kept = {.kind = VJ_ENTRY_FRAGMENT, .length = len, .stored_bytes = len};
    int rc = vj_meta_run(r->meta, VJ_RUN_RELEASE, first_body, &f);

    kept.id = f.number;
    g_array_append_val(entries, kept);
    add_lost(entries, parts->rest_bytes);
    return rc;
}

static void say_lost(VjRepair *r, const VjInode *inode, const VjInlineParts *parts)
{
    vj_repair_say(r,
                  "inode %" PRIu64 ": its bytes %u to %u are lost and cannot be read; "
                  "those before them are kept%s",
                  inode->ino, parts->plain_bytes - parts->rest_bytes,
                  parts->plain_bytes - 1u,
                  S_ISLNK(inode->mode) ? "; the symlink became a file" : "");
}

static int lose_rest(VjRepair *r, const VjInode *inode, const VjInlineParts *parts)
{
    g_autoptr(GArray) entries = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    int rc = keep_first(r, inode->ino, parts, entries);

    if (rc == 0) {
        rc = lay(r, inode, entries);
    }
    if (rc == 0) {
        say_lost(r, inode, parts);
    }
    return rc;
}

static int get_body(VjTxn *txn, void *opaque)
{
    VjInode *inode = opaque;

    return vj_inode_get(txn, inode->ino, inode);
}

int vj_repair_inline(VjRepair *r, VjInode *inode)
{
    InlineLook look;
    int rc = look_at_inline(r, inode, &look);

    if (rc == 0 && (look.state == INLINE_LOST || look.state == INLINE_NO_REST)) {
        rc = look.state == INLINE_LOST ? lose_all(r, inode)
                                       : lose_rest(r, inode, &look.parts);
        return rc < 0 ? rc : vj_meta_view(r->meta, get_body, inode);
    }
    if (rc == 0 && look.state == INLINE_SIZE) {
        inode->size = look.size; /* its stored bytes are looked at in the next round */
        inode->inline_rest_bytes = (uint8_t)look.parts.rest_bytes;
        rc = vj_repair_put_inode(r, inode);
        if (rc == 0) {
            vj_repair_say(
                r, "inode %" PRIu64 ": its size is that of its %" PRIu64 " bytes inline",
                inode->ino, look.size);
        }
    } else if (rc == 0 && look.state == INLINE_GOOD &&
               (look.stored_bytes != inode->stored_bytes ||
                look.parts.rest_bytes != inode->inline_rest_bytes)) {
        inode->stored_bytes = look.stored_bytes;
        inode->inline_rest_bytes = (uint8_t)look.parts.rest_bytes;
        rc = vj_repair_put_inode(r, inode);
        if (rc == 0) {
            vj_repair_say(r, "inode %" PRIu64 ": its stored bytes were counted anew",
                          inode->ino);
        }
    }
    return rc;
}

/* ---- content of what can have none ------------------------------------------------- */

/* It goes to @file, if that has a number, and its inode has none any more. */
typedef struct Evict {
    VjInode inode, file;
} Evict;

static int leave_body(VjTxn *txn, const Evict *e)
{
    VjInode without = e->inode;
    int rc = vj_inline_del(txn, e->inode.ino);

    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    without.content = VJ_CONTENT_EMPTY;
    without.size = without.stored_bytes = 0;
    rc = vj_inode_put(txn, &without);
    return rc < 0 || e->file.ino == 0 ? rc : vj_inode_put(txn, &e->file);
}

static int lose_body(VjTxn *txn, void *opaque)
{
    return leave_body(txn, opaque);
}

static int evict_body(VjTxn *txn, void *opaque)
{
    Evict *e = opaque;
    uint8_t bytes[VJ_FILE_INLINE_MAX];
    VjInlineRecord record;
    int rc = vj_inline_get(txn, &e->inode, bytes, sizeof bytes, NULL);

    if (rc == 0) {
        rc = vj_ino_take(txn, &e->file.ino);
    }
    if (rc == 0) {
        vj_inline_make(e->file.ino, NULL, bytes, e->inode.size, &record);
        rc = vj_inline_put(txn, &e->file, &record);
        e->file.size = e->inode.size;
    }
    return rc < 0 ? rc : leave_body(txn, e);
}

static int take_body(VjTxn *txn, void *opaque)
{
    return vj_ino_take(txn, opaque);
}

static int evict_first(VjRepair *r, Evict *e, const VjInlineParts *parts)
{
    g_autoptr(GArray) entries = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    VjInode *file = &e->file;
    int rc = vj_meta_run(r->meta, VJ_RUN_RELEASE, take_body, &file->ino);

    file->root.next_node = 1;
    if (rc == 0) {
        rc = keep_first(r, file->ino, parts, entries);
    }
    if (rc == 0) {
        rc = vj_repair_build_map(r, file->ino, entries, &file->root);
    }
    if (rc < 0) {
        return rc;
    }
    file->content = VJ_CONTENT_MAP;
    file->size = file->root.bytes;
    file->stored_bytes = file->root.stored_bytes;
    rc = vj_meta_run(r->meta, VJ_RUN_RELEASE, lose_body, e);
    if (rc == 0) {
        say_lost(r, &e->inode, parts);
    }
    return rc;
}

int vj_repair_evict_inline(VjRepair *r, VjInode *inode)
{
    Evict e = {.inode = *inode, .file = vj_repair_nameless(0)};
    InlineLook look;
    int rc = look_at_inline(r, inode, &look);

    if (rc < 0 || look.state == INLINE_FOREIGN) {
        return rc; /* stays as it is, and stays a problem */
    }
    e.inode.size = look.size; /* the record knows better */
    e.inode.inline_rest_bytes = (uint8_t)look.parts.rest_bytes;
    rc = look.state == INLINE_NO_REST
             ? evict_first(r, &e, &look.parts)
             : vj_meta_run(r->meta, VJ_RUN_RELEASE,
                           look.state == INLINE_LOST ? lose_body : evict_body, &e);
    if (rc == -EOPNOTSUPP) {
        return 0; /* likewise */
    }
    if (rc < 0) {
        return rc;
    }
    inode->content = VJ_CONTENT_EMPTY;
    if (look.state == INLINE_LOST) {
        vj_repair_say(r,
                      "inode %" PRIu64 ": it is no regular file, and its %" PRIu64
                      " bytes are lost",
                      inode->ino, inode->size);
    } else {
        vj_repair_say(r,
                      "inode %" PRIu64 ": its content became a file of its own, inode "
                      "%" PRIu64 ": it is no regular file",
                      inode->ino, e.file.ino);
    }
    return 0;
}
