/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * tree.c - the sound volume, what is in it, and how it is brought back
 */
#include "sweep.h"

#include "volume/scrub-format.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const VjCaller root_caller = {.umask = 022};

#define FRAGMENT_BYTES 100u
/* Numbers of what a crash left behind. */
#define NEXT_ID ((uint64_t)300000)
#define BLOCK_FIRST ((uint64_t)131073)
#define BLOCK_LAST ((uint64_t)196608)
#define DEAD_ID ((uint64_t)262145)

/* ---- contents ---------------------------------------------------------------------- */

typedef enum Fill { RANDOM, REPEATED, TEXT, SAME_AS_PLAIN, LETTERS } Fill;

typedef struct Plan {
    const char *path;
    mode_t mode;
    size_t len;
    Fill fill;
    const char *objects, *transform;
} Plan;

static const Plan plans[] = {
    {"/d", S_IFDIR, 0, RANDOM, NULL, NULL},
    {"/d/sub", S_IFDIR, 0, RANDOM, NULL, NULL},
    {"/d/plain", S_IFREG, 20000, RANDOM, NULL, NULL},
    {"/d/sub/same", S_IFREG, 20000, SAME_AS_PLAIN, NULL, NULL},
    {"/d/rle", S_IFREG, 9000, LETTERS, NULL, "rle"},
    {"/d/xor", S_IFREG, 9000, RANDOM, NULL, "xor"},
    {"/many", S_IFREG, 200000, REPEATED, NULL, NULL},
    {"/big", S_IFREG, 150000, RANDOM, "64K", NULL},
    {"/blocks", S_IFREG, 250000, TEXT, "256K", "rle"},
    {"/small", S_IFREG, 100, RANDOM, NULL, NULL},
    {"/page", S_IFREG, 4096, RANDOM, NULL, NULL}, /* its end is in the inode's record */
    {"/d/letters", S_IFREG, 500, LETTERS, NULL, "rle"},
    {"/empty", S_IFREG, 0, RANDOM, NULL, NULL},
    {"/mixed", S_IFREG, 6000, RANDOM, NULL, NULL},
    {"/link", S_IFLNK, 0, RANDOM, NULL, NULL},
    {"/pipe", S_IFIFO, 0, RANDOM, NULL, NULL},
};

/* The second name of /small. */
#define HARD_LINK "/d/hard"

static void fill(Tree *t, const Plan *p, uint8_t *bytes)
{
    switch (p->fill) {
    case RANDOM:
        vj_rng_bytes(&t->rng, bytes, p->len);
        break;
    case REPEATED: /* many entries that name few objects */
        vj_rng_bytes(&t->rng, bytes, 8192);
        for (size_t i = 8192; i < p->len; i++) {
            bytes[i] = bytes[i - 8192];
        }
        break;
    case TEXT: /* runs, so that blocks become shorter, and of different lengths */
        for (size_t i = 0; i < p->len; i++) {
            bytes[i] = i % 64 < 40 ? 'r' : (uint8_t)vj_rng_below(&t->rng, 256);
        }
        break;
    case SAME_AS_PLAIN:
        memcpy(bytes, g_array_index(t->things, Thing, 2).bytes, p->len);
        break;
    case LETTERS:
        memset(bytes, 'z', p->len);
        break;
    }
}

/* ---- making it --------------------------------------------------------------------- */

static uint64_t ino_of(const Tree *t, const char *path)
{
    for (guint i = 0; i < t->things->len; i++) {
        if (strcmp(g_array_index(t->things, Thing, i).path, path) == 0) {
            return g_array_index(t->things, Thing, i).ino;
        }
    }
    return VJ_INO_ROOT;
}

static void set(VjFs *fs, uint64_t ino, const char *name, const void *value, size_t len)
{
    int r = vj_fs_setxattr(fs, &root_caller, ino, name, value, len, 0);

    g_assert(r == 0);
}

static void set_lists(VjFs *fs, uint64_t ino)
{
    static const VjAcl acl = {.count = 5,
                              .entries = {{VJ_ACL_OWNER, 7, VJ_ACL_NO_ID},
                                          {VJ_ACL_USER, 6, 1000},
                                          {VJ_ACL_OWNING_GROUP, 5, VJ_ACL_NO_ID},
                                          {VJ_ACL_MASK, 7, VJ_ACL_NO_ID},
                                          {VJ_ACL_OTHER, 5, VJ_ACL_NO_ID}}};
    uint8_t bytes[VJ_ACL_MAX_BYTES];
    size_t len = vj_acl_encode(&acl, bytes);

    set(fs, ino, VJ_ACL_ACCESS, bytes, len);
    set(fs, ino, VJ_ACL_DEFAULT, bytes, len);
}

static void make_file(Tree *t, VjFs *fs, const Plan *p, const char *name, Thing *thing)
{
    VjAttr attr;
    VjHandle *h;
    int r = vj_fs_create(fs, &root_caller, thing->dir, name, 0644, O_RDWR, &attr, &h);

    g_assert(r == 0);
    thing->ino = attr.st.st_ino;
    thing->bytes = g_malloc0(LENGTH_MOST);
    fill(t, p, thing->bytes);
    if (p->objects != NULL) {
        set(fs, thing->ino, "user.varjfs.objects", p->objects, strlen(p->objects));
    }
    if (p->transform != NULL) {
        set(fs, thing->ino, "user.varjfs.transform", p->transform, strlen(p->transform));
    }
    r = vj_fs_write(h, 0, thing->bytes, p->len, 0, NULL);
    g_assert(r == 0);
    if (strcmp(p->path, "/mixed") == 0) { /* a hole at the end, and one within */
        r = vj_fs_fallocate(h, 0, p->len, 5000);
        g_assert(r == 0);
        thing->len += 5000;
    }
    r = vj_fs_fsync(h);
    g_assert(r == 0);
    vj_fs_release(fs, h);
}

static void make_thing(Tree *t, VjFs *fs, const Plan *p)
{
    const char *name = strrchr(p->path, '/') + 1;
    g_autofree char *dir = g_strndup(p->path, (gsize)(name - 1 - p->path));
    Thing thing = {
        .path = p->path, .mode = p->mode, .dir = ino_of(t, dir), .len = p->len};
    VjAttr attr;
    int r = 0;

    if (S_ISREG(p->mode)) {
        make_file(t, fs, p, name, &thing);
    } else if (S_ISDIR(p->mode)) {
        r = vj_fs_mkdir(fs, &root_caller, thing.dir, name, 0755, &attr);
        thing.ino = attr.st.st_ino;
    } else if (S_ISLNK(p->mode)) {
        thing.bytes = (uint8_t *)g_strdup("d/plain");
        thing.len = strlen((const char *)thing.bytes);
        r = vj_fs_symlink(fs, &root_caller, thing.dir, name, (const char *)thing.bytes,
                          &attr);
        thing.ino = attr.st.st_ino;
    } else {
        r = vj_fs_mknod(fs, &root_caller, thing.dir, name, p->mode | 0600, 0, &attr);
        thing.ino = attr.st.st_ino;
    }
    g_assert(r == 0);
    if (S_ISREG(p->mode)) {
        set(fs, thing.ino, "user.name", p->path, strlen(p->path));
    }
    g_array_append_val(t->things, thing);
}

static void make_hard_link(Tree *t, VjFs *fs)
{
    Thing thing = g_array_index(t->things, Thing, 0);
    VjAttr attr;
    int r;

    for (guint i = 0; strcmp(thing.path, "/small") != 0; i++) {
        thing = g_array_index(t->things, Thing, i);
    }
    thing.path = HARD_LINK;
    thing.dir = ino_of(t, "/d");
    thing.bytes = g_memdup2(thing.bytes, LENGTH_MOST);
    r = vj_fs_link(fs, thing.ino, thing.dir, "hard", &attr);
    g_assert(r == 0);
    g_array_append_val(t->things, thing);
}

/* Where contents are cut depends on a random number: it becomes that of the sweep. */
static void set_seed(const Tree *t, uint64_t seed)
{
    g_autofree char *path = g_build_filename(t->source, "varjfs.conf", NULL);
    g_autofree char *text = NULL, *number = NULL, *sum = NULL;
    g_autoptr(GError) error = NULL;
    char *at;
    gsize len;

    if (!g_file_get_contents(path, &text, &len, &error)) {
        g_error("%s", error->message);
    }
    at = strstr(text, "\nseed = ");
    g_assert(at != NULL);
    number = g_strdup_printf("%016" G_GINT64_MODIFIER "x", seed);
    memcpy(at + strlen("\nseed = "), number, 16);
    at = strstr(text, "\nchecksum = ");
    g_assert(at != NULL);
    sum = g_strdup_printf("%016" G_GINT64_MODIFIER "x",
                          vj_checksum64(text, (size_t)(at + 1 - text)));
    memcpy(at + strlen("\nchecksum = "), sum, 16);
    if (!g_file_set_contents(path, text, (gssize)len, &error)) {
        g_error("%s", error->message);
    }
}

static VjVolume *open_volume(const Tree *t, bool check)
{
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {
        .source = t->source, .workers = 1, .check = check, .read_only = check};
    VjVolume *v;

    if (!vj_volume_open(&how, &v, &error)) {
        g_error("%s", error->message);
    }
    return v;
}

static void make_things(Tree *t)
{
    VjVolume *v = open_volume(t, false);
    VjFs *fs = vj_fs_new(v);
    int r;

    for (size_t i = 0; i < G_N_ELEMENTS(plans); i++) {
        make_thing(t, fs, &plans[i]);
    }
    make_hard_link(t, fs);
    set_lists(fs, ino_of(t, "/d"));
    vj_fs_free(fs);
    r = vj_volume_close(v);
    g_assert(r == 0 && t->things->len <= 64);
}

/* ---- what no user makes by himself ------------------------------------------------- */

static int plant_fragment(VjTxn *txn, uint64_t ino, const uint8_t *bytes)
{
    g_autoptr(GArray) removed = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    g_autoptr(GArray) detached = g_array_new(FALSE, FALSE, sizeof(VjMapDetached));
    VjEntry entry = {.kind = VJ_ENTRY_FRAGMENT,
                     .length = FRAGMENT_BYTES,
                     .stored_bytes = FRAGMENT_BYTES};
    g_autofree VjFragment *fragment = vj_fragment_new(NULL, bytes, FRAGMENT_BYTES);
    uint32_t number = 0;
    VjInode inode;
    int r = vj_inode_get(txn, ino, &inode);

    if (r == 0) {
        r = vj_fragment_add(txn, ino, fragment, &number);
    }
    entry.id = number;
    if (r == 0) {
        r = vj_map_replace(txn, ino, &inode.root, 0, 0, &entry, 1, removed, detached);
    }
    inode.size = inode.root.bytes;
    inode.stored_bytes = inode.root.stored_bytes;
    inode.map_version++;
    return r < 0 ? r : vj_inode_put(txn, &inode);
}

/*
 * An inode without a name, an id block, a dead object and half a scrub, as a crash leaves
 * them.  The dead one has a locator that no store made: it is to be forgotten all the
 * same.
 */
static int plant_leftovers(VjTxn *txn)
{
    VjInode orphan = {.ino = 0, .generation = 1, .mode = S_IFREG | 0600};
    VjObject dead = {.id = DEAD_ID, .plain_bytes = 100, .stored_bytes = 132};
    VjObject going = {.id = DEAD_ID + 1,
                      .plain_bytes = 100,
                      .stored_bytes = 132,
                      .flags = VJ_OBJECT_REMOVING};
    VjScrubStatus scrub = {.place = 1, .pass = {.begun_s = 1795209543, .objects = 1}};
    uint8_t key[8], id_block[VJ_ID_BLOCK_BYTES], next[VJ_NEXT_ID_BYTES];
    uint8_t epoch[VJ_EPOCH_BYTES];
    VjIdRange range = {.first_id = BLOCK_FIRST, .last_id = BLOCK_LAST, .owner = 1};
    VjScrubDisk scrubbed;
    int r = vj_ino_take(txn, &orphan.ino);

    if (r == 0) {
        r = vj_inode_put(txn, &orphan);
    }
    if (r == 0) {
        r = vj_orphan_put(txn, orphan.ino);
    }
    vj_next_id_encode(NEXT_ID, next);
    if (r == 0) {
        r = vj_txn_put(txn, VJ_SPACE_SYSTEM,
                       vj_slice(VJ_NEXT_ID_KEY, strlen(VJ_NEXT_ID_KEY)),
                       vj_slice(next, sizeof next));
    }
    vj_epoch_encode(7, epoch);
    if (r == 0) {
        r = vj_txn_put(txn, VJ_SPACE_SYSTEM, vj_slice(VJ_EPOCH_KEY, strlen(VJ_EPOCH_KEY)),
                       vj_slice(epoch, sizeof epoch));
    }
    vj_scrub_encode(&scrub, &scrubbed);
    if (r == 0) {
        r = vj_txn_put(txn, VJ_SPACE_SYSTEM, vj_slice(VJ_SCRUB_KEY, strlen(VJ_SCRUB_KEY)),
                       vj_slice(&scrubbed, sizeof scrubbed));
    }
    vj_be64_set(key, BLOCK_FIRST);
    vj_id_block_encode(&range, id_block);
    if (r == 0) {
        r = vj_txn_put(txn, VJ_SPACE_ID_BLOCK, vj_slice(key, sizeof key),
                       vj_slice(id_block, sizeof id_block));
    }
    if (r == 0) {
        r = vj_object_record_put(txn, VJ_SPACE_DEAD, &dead);
    }
    return r < 0 ? r : vj_object_record_put(txn, VJ_SPACE_DEAD, &going);
}

static int plant(VjTxn *txn, void *opaque)
{
    const Thing *mixed = opaque;
    int r = plant_fragment(txn, mixed->ino, mixed->bytes);

    return r < 0 ? r : plant_leftovers(txn);
}

void tree_run(Tree *t, VjTxnBody *body, void *opaque)
{
    g_autofree char *path = g_build_filename(t->source, "meta", NULL);
    g_autoptr(GError) error = NULL;
    VJ_AUTO_FD fd = open(path, O_RDONLY | O_DIRECTORY);
    VjMetaPlace place = {.dir_fd = fd, .path = path};
    VjMeta *meta;
    int r;

    if (!vj_meta_open("lmdb", &place, &meta, &error)) {
        g_error("%s", error->message);
    }
    r = vj_meta_run(meta, VJ_RUN_DEFAULT, body, opaque);
    g_assert(r == 0);
    r = vj_meta_close(meta);
    g_assert(r == 0);
}

static void make_mixed(Tree *t)
{
    for (guint i = 0; i < t->things->len; i++) {
        Thing *thing = &g_array_index(t->things, Thing, i);

        if (strcmp(thing->path, "/mixed") == 0) {
            memmove(thing->bytes + FRAGMENT_BYTES, thing->bytes, thing->len);
            thing->len += FRAGMENT_BYTES;
            memset(thing->bytes, 'f', FRAGMENT_BYTES);
            tree_run(t, plant, thing);
        }
    }
}

/* ---- where things are -------------------------------------------------------------- */

static int note_node(Tree *t, VjTxn *txn, uint64_t ino, uint32_t node, uint64_t at)
{
    g_autofree VjMapImage *image = g_new(VjMapImage, 1);
    uint8_t key[VJ_MAP_KEY_BYTES];
    VjSlice value;
    Use use = {.ino = ino, .at = at, .id = node};
    int r;

    vj_map_key_encode(ino, node, key);
    r = vj_txn_get(txn, VJ_SPACE_NODE, vj_slice(key, sizeof key), &value);
    r = r < 0 ? r : vj_map_image_decode(value, ino, node, image);
    if (r < 0) {
        return r;
    }
    use.len = image->sums.bytes;
    g_array_append_val(t->nodes, use);
    for (unsigned i = 0; r == 0 && i < image->count; i++) {
        if (image->level > 0) {
            r = note_node(t, txn, ino, image->children[i].node, at);
            at += image->children[i].sums.bytes;
        } else {
            const VjEntry *e = &image->entries[i];
            Use part = {
                .ino = ino, .at = at, .len = e->length, .id = e->id, .start = e->start};

            if (e->kind == VJ_ENTRY_OBJECT) {
                g_array_append_val(t->uses, part);
            } else if (e->kind == VJ_ENTRY_FRAGMENT) {
                g_array_append_val(t->fragments, part);
            }
            at += e->length;
        }
    }
    return r;
}

static int note_maps_body(VjTxn *txn, void *opaque)
{
    Tree *t = opaque;
    int r = 0;

    g_array_set_size(t->nodes, 0);
    g_array_set_size(t->uses, 0);
    g_array_set_size(t->fragments, 0);
    for (guint i = 0; r == 0 && i < t->things->len; i++) {
        const Thing *thing = &g_array_index(t->things, Thing, i);
        VjInode inode;

        r = vj_inode_get(txn, thing->ino, &inode);
        if (r == 0 && inode.content == VJ_CONTENT_MAP &&
            strcmp(thing->path, HARD_LINK) != 0) {
            r = note_node(t, txn, thing->ino, inode.root.node, 0);
        }
    }
    return r;
}

static void note_records(Tree *t, VjMeta *m)
{
    for (VjSpace space = VJ_SPACE_SYSTEM; space < VJ_SPACE_COUNT; space++) {
        VjListing l;
        int r;

        vj_listing_begin(&l, m, space);
        while (vj_listing_next(&l)) {
            Record record = {.space = space,
                             .key = g_bytes_new(l.key.data, l.key.len),
                             .value = g_bytes_new(l.value.data, l.value.len)};
            VjObject object;

            g_array_append_val(t->records, record);
            if (space == VJ_SPACE_OBJECT &&
                vj_object_decode(l.value, space, vj_be64_get(l.key.data), &object) == 0) {
                g_array_append_val(t->objects, object);
            }
        }
        r = vj_listing_end(&l);
        g_assert(r == 0);
    }
}

static void note_all(Tree *t)
{
    VjVolume *v = open_volume(t, true);
    int r = vj_meta_view(v->meta, note_maps_body, t);

    g_assert(r == 0);
    note_records(t, v->meta);
    r = vj_volume_close(v);
    g_assert(r == 0);
}

/* ---- SOURCE, kept in memory -------------------------------------------------------- */

static Tree *keeping; /* nftw() takes no argument */

static int keep(const char *path, const struct stat *st, int type, struct FTW *where)
{
    const char *below = path + strlen(keeping->source);
    Kept k = {.mode = st->st_mode};

    (void)where;
    if (*below == '\0') {
        return 0;
    }
    k.path = g_strdup(below + 1);
    if (type == FTW_SL) {
        k.link = g_file_read_link(path, NULL);
        if (k.link == NULL) {
            return -1;
        }
    } else if (type == FTW_F) {
        char *text;
        gsize len;

        if (!g_file_get_contents(path, &text, &len, NULL)) {
            return -1;
        }
        k.bytes = g_bytes_new_take(text, len);
        if (strlen(path + where->base) == 33) {
            k.object = g_ascii_strtoull(path + where->base, NULL, 16);
        }
    }
    g_array_append_val(keeping->kept, k);
    return 0;
}

static gint by_path(gconstpointer a, gconstpointer b)
{
    return strcmp(((const Kept *)a)->path, ((const Kept *)b)->path);
}

static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *where)
{
    (void)st;
    (void)type;
    return where->level == 0 ? 0 : remove(path);
}

/* As g_file_set_contents, which would sync. */
static void write_file(const char *path, GBytes *bytes, mode_t mode)
{
    gsize len;
    const char *data = g_bytes_get_data(bytes, &len);
    VJ_AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_EXCL, mode & 07777);
    gsize at = 0;

    g_assert(fd >= 0);
    while (at < len) {
        /* Zeroes are a hole: the engine's file is mostly that. */
        gsize some = MIN(len - at, 4096);
        ssize_t n = (ssize_t)some;

        for (gsize i = 0; i < some; i++) {
            if (data[at + i] != 0) {
                n = pwrite(fd, data + at, some, (off_t)at);
                break;
            }
        }
        g_assert(n == (ssize_t)some);
        at += some;
    }
    g_assert(ftruncate(fd, (off_t)len) == 0);
}

void tree_restore(Tree *t)
{
    int r = nftw(t->source, remove_entry, 16, FTW_DEPTH | FTW_PHYS);

    g_assert(r == 0);
    for (guint i = 0; i < t->kept->len; i++) {
        const Kept *k = &g_array_index(t->kept, Kept, i);
        g_autofree char *path = g_build_filename(t->source, k->path, NULL);

        if (k->link != NULL) {
            r = symlink(k->link, path);
            g_assert(r == 0);
        } else if (k->bytes == NULL) {
            r = mkdir(path, k->mode & 07777);
            g_assert(r == 0);
        } else {
            write_file(path, k->bytes, k->mode);
        }
    }
}

/* ---- the whole of it --------------------------------------------------------------- */

static void record_clear(gpointer data)
{
    g_bytes_unref(((Record *)data)->key);
    g_bytes_unref(((Record *)data)->value);
}

static void kept_clear(gpointer data)
{
    Kept *k = data;

    g_free(k->path);
    g_free(k->link);
    g_clear_pointer(&k->bytes, g_bytes_unref);
}

static void thing_clear(gpointer data)
{
    g_free(((Thing *)data)->bytes);
}

Tree *tree_new(const char *source, uint64_t seed)
{
    VjVolumeMake how = {.source = source,
                        .options = "objects=1K,hash=sha256,meta=lmdb:redo=256K"};
    g_autoptr(GError) error = NULL;
    Tree *t = g_new0(Tree, 1);
    int r;

    t->source = g_strdup(source);
    vj_rng_init(&t->rng, seed);
    t->things = g_array_new(FALSE, FALSE, sizeof(Thing));
    g_array_set_clear_func(t->things, thing_clear);
    t->uses = g_array_new(FALSE, FALSE, sizeof(Use));
    t->fragments = g_array_new(FALSE, FALSE, sizeof(Use));
    t->nodes = g_array_new(FALSE, FALSE, sizeof(Use));
    t->records = g_array_new(FALSE, FALSE, sizeof(Record));
    g_array_set_clear_func(t->records, record_clear);
    t->objects = g_array_new(FALSE, FALSE, sizeof(VjObject));
    t->kept = g_array_new(FALSE, FALSE, sizeof(Kept));
    g_array_set_clear_func(t->kept, kept_clear);
    if (!vj_volume_make(&how, &error)) {
        g_error("%s", error->message);
    }
    set_seed(t, seed);
    make_things(t);
    make_mixed(t);
    note_all(t);
    keeping = t;
    r = nftw(source, keep, 16, FTW_PHYS);
    g_assert(r == 0);
    g_array_sort(t->kept, by_path);
    return t;
}

void tree_free(Tree *t)
{
    g_array_unref(t->things);
    g_array_unref(t->uses);
    g_array_unref(t->fragments);
    g_array_unref(t->nodes);
    g_array_unref(t->records);
    g_array_unref(t->objects);
    g_array_unref(t->kept);
    g_free(t->source);
    g_free(t);
}

uint64_t things_of(const Tree *t, uint64_t ino)
{
    uint64_t bits = 0;

    for (guint i = 0; i < t->things->len; i++) {
        if (g_array_index(t->things, Thing, i).ino == ino) {
            bits |= (uint64_t)1 << i;
        }
    }
    return bits;
}

uint64_t things_below(const Tree *t, uint64_t ino)
{
    uint64_t bits = things_of(t, ino);

    /* Directories stand before what is in them. */
    for (guint i = 0; i < t->things->len; i++) {
        const Thing *thing = &g_array_index(t->things, Thing, i);

        if (thing->dir == ino || (things_of(t, thing->dir) & bits) != 0) {
            bits |= (uint64_t)1 << i;
        }
    }
    return bits;
}

/* ---- what was hurt ----------------------------------------------------------------- */

Hit *hit_new(void)
{
    Hit *h = g_new0(Hit, 1);

    h->what = g_string_new(NULL);
    h->ranges = g_array_new(FALSE, FALSE, sizeof(Use));
    return h;
}

void hit_free(Hit *h)
{
    g_string_free(h->what, TRUE);
    g_array_unref(h->ranges);
    g_free(h);
}

/* The bytes [from, to) of object @id, wherever they are used. */
void hit_object(const Tree *t, Hit *h, uint64_t id, uint64_t from, uint64_t to)
{
    for (guint i = 0; i < t->uses->len; i++) {
        Use use = g_array_index(t->uses, Use, i);
        uint64_t first = MAX(from, use.start), end = MIN(to, use.start + use.len);

        if (use.id == id && first < end) {
            use.at += first - use.start;
            use.len = end - first;
            g_array_append_val(h->ranges, use);
        }
    }
}
