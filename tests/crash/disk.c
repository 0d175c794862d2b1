/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * disk.c - see disk.h
 *
 * The model is what POSIX promises and no more:
 *
 * - fsync and fdatasync of a file cover its writes and its size up to the call's begin,
 *   of a directory its entries.  syncfs covers everything.  A write through O_DSYNC
 *   covers itself.  Nothing else makes anything durable: not close, not rename, not the
 *   sync of another file, not sync_file_range.
 * - What a failed sync was to cover no later sync covers: its pages count as clean.
 *   Writing it again does.
 * - What is not covered survives in any subset and any order, a write also in parts.
 * - A rename is two changes, each of which survives by itself.
 * - A file whose name survives without its contents is empty, or as long as it was with
 *   any contents.
 *
 */
#include "disk.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define STALE_BYTE 0xdb
#define PAGE 4096u

/* ---- the log ----------------------------------------------------------------------- */

bool crash_log_open(CrashLog *log, const char *path, GError **error)
{
    VJ_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    size_t at = 0;

    *log = (CrashLog){.bytes = NULL};
    if (fd < 0 || fstat(fd, &st) < 0) {
        return vj_error_set_errno(error, errno, "%s", path);
    }
    log->len = (size_t)st.st_size;
    log->bytes = mmap(NULL, MAX(log->len, 1), PROT_READ, MAP_PRIVATE, fd, 0);
    if (log->bytes == MAP_FAILED) {
        return vj_error_set_errno(error, errno, "%s: mmap", path);
    }
    log->offsets = g_array_new(FALSE, FALSE, sizeof(size_t));
    while (at < log->len) {
        VjRecordHead head;

        g_array_append_val(log->offsets, at);
        if (log->len - at < sizeof head) {
            return vj_error_set(error, EBADMSG, "%s: its end is missing", path);
        }
        memcpy(&head, log->bytes + at, sizeof head);
        if (head.magic != VJ_RECORD_MAGIC || head.data_bytes > log->len) {
            return vj_error_set(error, EBADMSG, "%s: no record at %zu", path, at);
        }
        at += sizeof head + head.name_bytes + head.name2_bytes + head.data_bytes;
    }
    return at == log->len || vj_error_set(error, EBADMSG, "%s: its end is missing", path);
}

void crash_log_close(CrashLog *log)
{
    if (log->offsets != NULL) {
        g_array_unref(log->offsets);
    }
    munmap(log->bytes, MAX(log->len, 1));
}

size_t crash_log_count(const CrashLog *log)
{
    return log->offsets->len;
}

CrashRecord crash_log_get(const CrashLog *log, size_t i)
{
    const uint8_t *at = log->bytes + g_array_index(log->offsets, size_t, i);
    CrashRecord r;

    memcpy(&r.head, at, sizeof r.head);
    r.name = (const char *)at + sizeof r.head;
    r.name2 = r.name + r.head.name_bytes;
    r.data = (const uint8_t *)r.name2 + r.head.name2_bytes;
    return r;
}

/* ---- nodes ------------------------------------------------------------------------- */

typedef struct Node Node;

/*
 * A change that is not covered: of a file, the record; of a directory, one name.  Or one
 * that is, behind one that is not: what is in doubt does not come to lie over it.
 */
typedef struct Pending {
    size_t at; /* the record */
    char *name;
    Node *target;    /* NULL: the name goes */
    bool is_durable; /* it is covered */
    bool is_past;    /* a sync of it failed: none covers it any more */
    bool keep;       /* decided by disk_cut() */
} Pending;

struct Node {
    guint64 serial;
    bool is_dir;
    bool is_link;   /* bytes are where it leads, and are there with its name */
    bool is_object; /* it lies below "objects", or is that */
    bool is_dirty;  /* it is in the disk's list */
    uint8_t *bytes;
    size_t size, cap;
    GHashTable *entries, *now; /* name → Node: durable; as the process sees them */
    GArray *pending;
};

struct Disk {
    const CrashLog *log;
    size_t position;
    GHashTable *nodes; /* inode number → Node: whose it is now */
    GPtrArray *all, *dirty;
    GHashTable *syncs; /* number, pid → record of its begin */
    Node *root;
    size_t pending;
};

static void pending_clear(gpointer opaque)
{
    g_free(((Pending *)opaque)->name);
}

static void node_free(gpointer opaque)
{
    Node *n = opaque;

    g_free(n->bytes);
    g_array_unref(n->pending);
    if (n->is_dir) {
        g_hash_table_unref(n->entries);
        g_hash_table_unref(n->now);
    }
    g_free(n);
}

static Node *node_new(Disk *d, uint64_t ino, bool is_dir)
{
    Node *n = g_new0(Node, 1);

    n->serial = d->all->len;
    n->is_dir = is_dir;
    n->pending = g_array_new(FALSE, TRUE, sizeof(Pending));
    g_array_set_clear_func(n->pending, pending_clear);
    if (is_dir) {
        n->entries = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
        n->now = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    }
    g_ptr_array_add(d->all, n);
    g_hash_table_replace(d->nodes, g_memdup2(&ino, sizeof ino), n);
    return n;
}

static void set_size(Node *n, size_t size, int fill)
{
    if (size > n->cap) {
        n->cap = MAX(size, n->cap + n->cap / 2);
        n->bytes = g_realloc(n->bytes, n->cap);
    }
    if (size > n->size) {
        memset(n->bytes + n->size, fill, size - n->size);
    }
    n->size = size;
}

static void put_bytes(Node *n, uint64_t offset, const uint8_t *src, size_t len, int fill)
{
    if (offset + len > n->size) {
        set_size(n, offset + len, fill);
    }
    memcpy(n->bytes + offset, src, len);
}

static void set_entry(GHashTable *entries, const char *name, Node *target)
{
    if (target == NULL) {
        g_hash_table_remove(entries, name);
    } else {
        g_hash_table_replace(entries, g_strdup(name), target);
    }
}

/* What fallocate did: only what the product asks for. */
static bool allocate(Node *n, const VjRecordHead *head)
{
    uint64_t end = head->offset + head->length;

    if ((head->mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE)) != 0) {
        return false;
    }
    if ((head->mode & FALLOC_FL_PUNCH_HOLE) != 0) {
        if (head->offset < n->size) {
            memset(n->bytes + head->offset, 0, MIN(end, n->size) - head->offset);
        }
    } else if ((head->mode & FALLOC_FL_KEEP_SIZE) == 0 && end > n->size) {
        set_size(n, end, 0);
    }
    return true;
}

/* The change becomes durable. */
static void apply(Disk *d, Node *n, const Pending *p)
{
    CrashRecord r = crash_log_get(d->log, p->at);

    if (n->is_dir) {
        set_entry(n->entries, p->name, p->target);
        return;
    }
    switch (r.head.kind) {
    case VJ_RECORD_WRITE:
        put_bytes(n, r.head.offset, r.data, r.head.data_bytes, 0);
        break;
    case VJ_RECORD_TRUNCATE:
        set_size(n, r.head.offset, 0);
        break;
    default:
        g_assert(allocate(n, &r.head));
    }
}

/* ---- feeding ----------------------------------------------------------------------- */

Disk *disk_new(const CrashLog *log)
{
    Disk *d = g_new0(Disk, 1);

    d->log = log;
    d->nodes = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    d->syncs = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    d->all = g_ptr_array_new_with_free_func(node_free);
    d->dirty = g_ptr_array_new();
    return d;
}

void disk_free(Disk *d)
{
    g_hash_table_unref(d->nodes);
    g_hash_table_unref(d->syncs);
    g_ptr_array_unref(d->dirty);
    g_ptr_array_unref(d->all);
    g_free(d);
}

size_t disk_position(const Disk *d)
{
    return d->position;
}

size_t disk_pending(const Disk *d)
{
    return d->pending;
}

static void add_pending(Disk *d, Node *n, const char *name, Node *target)
{
    Pending p = {.at = d->position, .name = g_strdup(name), .target = target};

    g_array_append_val(n->pending, p);
    d->pending++;
    if (!n->is_dirty) {
        n->is_dirty = true;
        g_ptr_array_add(d->dirty, n);
    }
    if (n->is_dir) {
        set_entry(n->now, name, target);
    }
}

/* What is durable, and has nothing in doubt before it, need not be remembered. */
static void forget_durable(Disk *d, Node *n)
{
    guint count = 0;

    while (count < n->pending->len &&
           g_array_index(n->pending, Pending, count).is_durable) {
        apply(d, n, &g_array_index(n->pending, Pending, count));
        count++;
    }
    if (count > 0) {
        g_array_remove_range(n->pending, 0, count);
    }
    if (n->pending->len == 0 && n->is_dirty) {
        n->is_dirty = false;
        g_ptr_array_remove_fast(d->dirty, n);
    }
}

static void make_durable(Disk *d, Pending *p)
{
    if (!p->is_durable) {
        p->is_durable = true;
        d->pending--;
    }
}

/* What came before the record @before is durable. */
static void cover(Disk *d, Node *n, size_t before)
{
    for (guint i = 0; i < n->pending->len; i++) {
        Pending *p = &g_array_index(n->pending, Pending, i);

        if (p->at >= before) {
            break;
        }
        if (!p->is_past) {
            make_durable(d, p);
        }
    }
    forget_durable(d, n);
}

static void cover_all(Disk *d, size_t before)
{
    g_autoptr(GPtrArray) dirty = g_ptr_array_copy(d->dirty, NULL, NULL);

    for (guint i = 0; i < dirty->len; i++) {
        cover(d, dirty->pdata[i], before);
    }
}

static Node *node_of(Disk *d, uint64_t ino)
{
    return g_hash_table_lookup(d->nodes, &ino);
}

/* The begin of the sync that @r ends, and its place in the log. */
static bool sync_begin(Disk *d, const CrashRecord *r, size_t *at)
{
    g_autofree char *key =
        g_strdup_printf("%u/%" G_GUINT64_FORMAT, r->head.pid, r->head.number);
    gpointer value;

    if (!g_hash_table_lookup_extended(d->syncs, key, NULL, &value)) {
        return false;
    }
    *at = GPOINTER_TO_SIZE(value);
    g_hash_table_remove(d->syncs, key);
    return true;
}

static void note_sync(Disk *d, const CrashRecord *r)
{
    g_hash_table_replace(
        d->syncs, g_strdup_printf("%u/%" G_GUINT64_FORMAT, r->head.pid, r->head.number),
        GSIZE_TO_POINTER(d->position));
}

static bool feed_synced(Disk *d, const CrashRecord *r)
{
    CrashRecord begin;
    Node *n;
    size_t at;

    if (!sync_begin(d, r, &at)) {
        return false;
    }
    begin = crash_log_get(d->log, at);
    if (begin.head.kind == VJ_RECORD_SYNC_ALL) {
        cover_all(d, at);
        return true;
    }
    n = node_of(d, begin.head.ino);
    if (n != NULL) {
        cover(d, n, at);
    }
    return n != NULL;
}

/* Names are a journal's: it ends, or has them all the same. */
static void give_up(Node *n, size_t before)
{
    for (guint i = 0; !n->is_dir && i < n->pending->len; i++) {
        Pending *p = &g_array_index(n->pending, Pending, i);

        p->is_past |= p->at < before;
    }
}

static bool feed_unsynced(Disk *d, const CrashRecord *r)
{
    CrashRecord begin;
    Node *n;
    size_t at;

    if (!sync_begin(d, r, &at)) {
        return false;
    }
    begin = crash_log_get(d->log, at);
    /* Where a file is open its next sync tells the error as well, and what is no object
     * is. */
    for (guint i = 0; begin.head.kind == VJ_RECORD_SYNC_ALL && i < d->dirty->len; i++) {
        Node *dirty = d->dirty->pdata[i];

        if (dirty->is_object) {
            give_up(dirty, at);
        }
    }
    n = begin.head.kind == VJ_RECORD_SYNC_ALL ? NULL : node_of(d, begin.head.ino);
    if (n != NULL) {
        give_up(n, at);
    }
    return true;
}

/* A write through O_DSYNC: it alone, whatever waits before it. */
static bool feed_durable(Disk *d, const CrashRecord *r)
{
    Node *n;
    size_t at;

    if (!sync_begin(d, r, &at)) {
        return false;
    }
    n = node_of(d, r->head.ino);
    for (guint i = 0; n != NULL && i < n->pending->len; i++) {
        Pending *p = &g_array_index(n->pending, Pending, i);

        if (p->at == at) {
            make_durable(d, p);
            break;
        }
    }
    if (n != NULL) {
        forget_durable(d, n);
    }
    return n != NULL;
}

static bool feed_rename(Disk *d, const CrashRecord *r)
{
    g_autofree char *from = g_strndup(r->name, r->head.name_bytes);
    g_autofree char *to = g_strndup(r->name2, r->head.name2_bytes);
    Node *from_dir = node_of(d, r->head.dir), *to_dir = node_of(d, r->head.dir2);
    Node *moved, *other;

    if (from_dir == NULL || to_dir == NULL) {
        return false;
    }
    moved = g_hash_table_lookup(from_dir->now, from);
    other = g_hash_table_lookup(to_dir->now, to);
    if (moved == NULL) {
        return false;
    }
    add_pending(d, from_dir, from, r->head.kind == VJ_RECORD_EXCHANGE ? other : NULL);
    add_pending(d, to_dir, to, moved);
    return true;
}

static bool feed_name(Disk *d, const CrashRecord *r)
{
    g_autofree char *name = g_strndup(r->name, r->head.name_bytes);
    Node *dir = node_of(d, r->head.dir), *target = NULL;

    switch (r->head.kind) {
    case VJ_RECORD_CREATE:
    case VJ_RECORD_MKDIR:
    case VJ_RECORD_SYMLINK:
        target = node_new(d, r->head.ino, r->head.kind == VJ_RECORD_MKDIR);
        target->is_link = r->head.kind == VJ_RECORD_SYMLINK;
        if (target->is_link) {
            put_bytes(target, 0, (const uint8_t *)r->name2, r->head.name2_bytes, 0);
        }
        if (r->head.dir == 0) {
            return true;
        }
        break;
    case VJ_RECORD_LINK:
        target = node_of(d, r->head.ino);
        if (target == NULL) {
            return false;
        }
        break;
    default:
        break;
    }
    if (dir == NULL || !dir->is_dir) {
        return false;
    }
    if (target != NULL) {
        target->is_object |=
            dir->is_object || (dir == d->root && strcmp(name, "objects") == 0);
    }
    add_pending(d, dir, name, target);
    return true;
}

static bool feed_content(Disk *d, const CrashRecord *r)
{
    Node *n = node_of(d, r->head.ino);

    if (n == NULL || n->is_dir) {
        return false;
    }
    add_pending(d, n, NULL, NULL);
    if (r->head.dsync) {
        note_sync(d, r);
    }
    return true;
}

static bool feed_record(Disk *d, const CrashRecord *r)
{
    switch (r->head.kind) {
    case VJ_RECORD_START:
        if (d->root == NULL) {
            d->root = node_new(d, r->head.ino, true);
        }
        return node_of(d, r->head.ino) == d->root;
    case VJ_RECORD_CREATE:
    case VJ_RECORD_MKDIR:
    case VJ_RECORD_SYMLINK:
    case VJ_RECORD_LINK:
    case VJ_RECORD_UNLINK:
        return feed_name(d, r);
    case VJ_RECORD_RENAME:
    case VJ_RECORD_EXCHANGE:
        return feed_rename(d, r);
    case VJ_RECORD_WRITE:
    case VJ_RECORD_TRUNCATE:
    case VJ_RECORD_ALLOCATE:
        return feed_content(d, r);
    case VJ_RECORD_SYNC:
    case VJ_RECORD_SYNC_ALL:
        note_sync(d, r);
        return true;
    case VJ_RECORD_SYNCED:
        return feed_synced(d, r);
    case VJ_RECORD_UNSYNCED:
        return feed_unsynced(d, r);
    case VJ_RECORD_DURABLE:
        return feed_durable(d, r);
    case VJ_RECORD_MARK:
        return true;
    default:
        return false;
    }
}

bool disk_feed(Disk *d, GError **error)
{
    CrashRecord r = crash_log_get(d->log, d->position);

    if (!feed_record(d, &r)) {
        return vj_error_set(error, EBADMSG,
                            "record %zu ('%c') does not fit what came before",
                            d->position, r.head.kind);
    }
    d->position++;
    return true;
}

/* ---- the cut ----------------------------------------------------------------------- */

void cut_choose(Cut *cut, VjRng *rng)
{
    static const unsigned percents[] = {5, 25, 50, 75, 95};
    static const uint32_t tears[] = {0, 0, 512, 4096};

    *cut = (Cut){
        .kind = (CutKind)vj_rng_below(rng, CUT_KINDS),
        .tear_bytes = tears[vj_rng_below(rng, G_N_ELEMENTS(tears))],
        .keep_percent = percents[vj_rng_below(rng, G_N_ELEMENTS(percents))],
        .sizes = vj_rng_below(rng, 2) == 0,
        .stale = vj_rng_below(rng, 2) == 0,
    };
    if (cut->kind == CUT_ALL) {
        cut->tear_bytes = 0;
    }
}

const char *cut_text(const Cut *cut)
{
    static const char *const texts[CUT_KINDS] = {"all",     "none",     "some",
                                                 "by-file", "no-names", "no-data",
                                                 "prefix",  "lose-one", "keep-one"};

    return texts[cut->kind];
}

static bool is_kept(const Cut *cut, VjRng *rng, const Node *n, size_t place,
                    size_t chosen)
{
    switch (cut->kind) {
    case CUT_ALL:
        return true;
    case CUT_NONE:
        return false;
    case CUT_NO_NAMES:
        return !n->is_dir;
    case CUT_NO_DATA:
        return n->is_dir;
    case CUT_LOSE_ONE:
        return place != chosen;
    case CUT_KEEP_ONE:
        return place == chosen;
    default:
        return vj_rng_below(rng, 100) < cut->keep_percent;
    }
}

static gint by_serial(gconstpointer a, gconstpointer b)
{
    const Node *x = *(Node *const *)a, *y = *(Node *const *)b;

    return x->serial < y->serial ? -1 : x->serial > y->serial;
}

static void decide(Disk *d, const Cut *cut, VjRng *rng)
{
    size_t place = 0, chosen = d->pending > 0 ? vj_rng_below(rng, d->pending) : 0;
    size_t moment = 0;

    if (cut->kind == CUT_PREFIX && d->position > 0) {
        /* Not far back: what lies between is what this is about. */
        moment = d->position - MIN(d->position, vj_rng_below(rng, 400));
    }
    for (guint i = 0; i < d->dirty->len; i++) {
        Node *n = d->dirty->pdata[i];
        bool whole = is_kept(cut, rng, n, 0, 1);

        for (guint k = 0; k < n->pending->len; k++) {
            Pending *p = &g_array_index(n->pending, Pending, k);

            if (p->is_durable) {
                p->keep = true;
                continue;
            }
            p->keep = cut->kind == CUT_BY_FILE  ? whole
                      : cut->kind == CUT_PREFIX ? p->at < moment
                                                : is_kept(cut, rng, n, place, chosen);
            place++;
        }
    }
}

/* Parts of the write survive, and no part of a lost one. */
static void apply_torn(Disk *d, Node *n, const Pending *p, const Cut *cut, VjRng *rng)
{
    CrashRecord r = crash_log_get(d->log, p->at);
    uint64_t at = r.head.offset, end = at + r.head.data_bytes;
    int fill = cut->stale ? STALE_BYTE : 0;
    bool torn = p->keep && cut->tear_bytes > 0 && vj_rng_below(rng, 2) == 0;

    if ((!p->keep || torn) && cut->sizes && end > n->size && vj_rng_below(rng, 2) == 0) {
        set_size(n, end, fill);
    }
    while (p->keep && at < end) {
        uint64_t next =
            torn ? MIN(end, (at / cut->tear_bytes + 1) * cut->tear_bytes) : end;

        if (!torn || vj_rng_below(rng, 2) == 0) {
            put_bytes(n, at, r.data + (at - r.head.offset), next - at, fill);
        }
        at = next;
    }
}

void disk_cut(Disk *d, const Cut *cut, VjRng *rng)
{
    g_ptr_array_sort(d->dirty, by_serial);
    decide(d, cut, rng);
    for (guint i = 0; i < d->dirty->len; i++) {
        Node *n = d->dirty->pdata[i];

        for (guint k = 0; k < n->pending->len; k++) {
            const Pending *p = &g_array_index(n->pending, Pending, k);

            if (!n->is_dir && !p->is_durable &&
                crash_log_get(d->log, p->at).head.kind == VJ_RECORD_WRITE) {
                apply_torn(d, n, p, cut, rng);
            } else if (p->keep) {
                apply(d, n, p);
            }
        }
    }
}

/* ---- writing it out ---------------------------------------------------------------- */

/* Runs of zeroes stay holes. */
static bool write_bytes(int fd, const Node *n)
{
    static const uint8_t zeroes[PAGE];
    size_t at = 0;

    if (ftruncate(fd, (off_t)n->size) < 0) {
        return false;
    }
    while (at < n->size) {
        size_t end = at;

        while (end < n->size &&
               memcmp(n->bytes + end, zeroes, MIN(PAGE, n->size - end)) != 0) {
            end += MIN(PAGE, n->size - end);
        }
        if (end > at &&
            pwrite(fd, n->bytes + at, end - at, (off_t)at) != (ssize_t)(end - at)) {
            return false;
        }
        at = end + PAGE;
    }
    return true;
}

static bool write_link(int dir_fd, const char *name, const Node *n)
{
    g_autofree char *text = g_strndup((const char *)n->bytes, n->size);

    return symlinkat(text, dir_fd, name) == 0;
}

static bool write_regular(int dir_fd, const char *name, const Node *n)
{
    VJ_AUTO_FD fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    return fd >= 0 && write_bytes(fd, n);
}

static bool write_file(int dir_fd, const char *name, const Node *n, GError **error)
{
    bool ok = n->is_link ? write_link(dir_fd, name, n) : write_regular(dir_fd, name, n);

    return ok || vj_error_set_errno(error, errno, "writing a state: %s", name);
}

static bool write_dir(int dir_fd, const Node *dir, GError **error)
{
    GHashTableIter iter;
    gpointer name, value;

    g_hash_table_iter_init(&iter, dir->entries);
    while (g_hash_table_iter_next(&iter, &name, &value)) {
        const Node *n = value;
        VJ_AUTO_FD fd = -1;

        if (!n->is_dir) {
            if (!write_file(dir_fd, name, n, error)) {
                return false;
            }
            continue;
        }
        if (mkdirat(dir_fd, name, 0700) < 0 ||
            (fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
            return vj_error_set_errno(error, errno, "writing a state: %s", (char *)name);
        }
        if (!write_dir(fd, n, error)) {
            return false;
        }
    }
    return true;
}

bool disk_write(const Disk *d, const char *path, GError **error)
{
    VJ_AUTO_FD fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        return vj_error_set_errno(error, errno, "%s", path);
    }
    return d->root == NULL || write_dir(fd, d->root, error);
}
