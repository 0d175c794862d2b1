/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sessions-contents.c - the content of a file is open in one session at a time
 *
 * Its session sees each byte as it wrote it.  After a crash the next one that opens the
 * file finds a content that the file had since it was durable last, and which one that
 * was is what the model goes on with.
 */
#include "sessions.h"

#include <fcntl.h>

/* ---- opening --------------------------------------------------------------------- */

static bool equals(const uint8_t *bytes, size_t len, GBytes *content)
{
    gsize size;
    const void *data = g_bytes_get_data(content, &size);

    return size == len && (len == 0 || memcmp(bytes, data, len) == 0);
}

/* All of it, in s->back; false: the session is dead. */
static bool read_all(Session *s, VjHandle *h, size_t *len)
{
    int r = vj_fs_read(h, 0, s->back, s->w->o.size + 1, len);

    if (r != 0 && !session_is_dead(s)) {
        fail(s, "read: %s", g_strerror(-r));
    }
    return r == 0;
}

/* What a session that is over has left is one of the contents that it may have left. */
static void find_content(Session *s, Inode *i, size_t len)
{
    for (guint k = i->states->len; k-- > 0;) {
        GBytes *content = g_ptr_array_index(i->states, k);

        if (equals(s->back, len, content)) {
            if (k + 1 < i->states->len) {
                COUNT(s->w, lost);
            }
            content_push(i, g_bytes_ref(content));
            content_is_durable(i);
            return;
        }
    }
    fail(s,
         "inode %" G_GUINT64_FORMAT
         " has %zu bytes that are none of the %u contents that "
         "it had since it was durable last",
         i->ino, len, i->states->len);
}

static void compare_all(Session *s, const Inode *i, size_t len)
{
    gsize size;
    const uint8_t *data = g_bytes_get_data(content_now(i), &size);
    size_t same = shadow_difference(data, s->back, MIN(size, len));

    if (size != len || same != size) {
        fail(s,
             "inode %" G_GUINT64_FORMAT
             " has %zu bytes, not %zu, and is another from byte "
             "%zu on",
             i->ino, len, size, same);
    }
}

/* This session has it open now; the content of who had it before is there.  Under
 * i->lock. */
static bool take_over(Session *s, Inode *i, VjHandle *h)
{
    bool goes_on = i->opener != 0 && life_goes_on(s->w, i->opener);
    size_t len;

    if (goes_on && i->handles > 0) {
        fail(s, "inode %" G_GUINT64_FORMAT " is open in two sessions", i->ino);
    }
    if (!read_all(s, h, &len) || session_is_dead(s)) {
        return false;
    }
    doing(s,
          "take over inode %" G_GUINT64_FORMAT
          " of %zu bytes, from life %" G_GUINT64_FORMAT "%s",
          i->ino, len, i->opener, goes_on ? "" : ", which is over");
    if (i->opener == 0 || goes_on) {
        content_is_durable(i);
        compare_all(s, i, len);
    } else {
        find_content(s, i, len);
    }
    if (i->opener != 0) {
        COUNT(s->w, taken);
    }
    i->opener = s->life;
    i->handles = 0;
    return true;
}

/* Under i->lock.  False: another session has it, or this one is dead. */
static bool open_inode(Session *s, Inode *i, VjHandle **h)
{
    bool is_foreign = i->opener != 0 && i->opener != s->life;
    int r = vj_fs_open(s->fs, &caller, i->ino, O_RDWR, h);
    /* It has not been shut out until now. */
    bool must_be_busy = is_foreign && i->handles > 0 && life_goes_on(s->w, i->opener);

    if (session_is_dead(s)) { /* what it has in memory may be of another time */
        if (r == 0) {
            vj_fs_release(s->fs, *h);
            *h = NULL;
        }
        return false;
    }
    if (session_timed_out(s, r)) {
        i->is_doubtful = true;
        return false;
    }
    if (r == -EBUSY && (is_foreign || i->is_doubtful)) {
        COUNT(s->w, busy);
        return false;
    }
    if (r != 0 || must_be_busy) {
        fail(s, "open: %s%s", g_strerror(-r), must_be_busy ? ", open elsewhere" : "");
    }
    if (i->opener != s->life && !take_over(s, i, *h)) {
        vj_fs_release(s->fs, *h);
        *h = NULL;
        return false;
    }
    i->handles++;
    return true;
}

static Handle *any_handle(Session *s, bool is_open)
{
    unsigned first = (unsigned)vj_rng_below(&s->rng, HANDLES);

    for (unsigned k = 0; k < HANDLES; k++) {
        Handle *h = &s->handles[(first + k) % HANDLES];

        if ((h->inode != NULL) == is_open) {
            return h;
        }
    }
    return NULL;
}

void op_open(Session *s)
{
    Handle *h = any_handle(s, false);
    Name *n = any_name(s);
    Inode *i;

    if (h == NULL) {
        return;
    }
    doing(s, "open %u/%s", n->dir, n->text);
    lock_names(n, NULL);
    i = n->inode != NULL && S_ISREG(n->inode->type) ? inode_ref(n->inode) : NULL;
    if (i != NULL) {
        pthread_mutex_lock(&i->lock);
        if (open_inode(s, i, &h->h)) {
            h->inode = inode_ref(i);
            h->life = s->life;
        }
        if (session_is_dead(s)) {
            session_crash(s);
        }
        pthread_mutex_unlock(&i->lock);
    }
    unlock_names(n, NULL);
    inode_unref(i);
}

/* ---- closing --------------------------------------------------------------------- */

/* Not one of a session that was shut out, and whose place another one has taken. */
static bool is_current(const Handle *h)
{
    return h->inode->opener == h->life;
}

/* Its inode is locked. */
static void release(Session *s, Handle *h)
{
    if (h->h != NULL) {
        vj_fs_release(s->fs, h->h);
        h->h = NULL;
        h->inode->handles -= is_current(h);
    }
}

static void drop(Handle *h)
{
    Inode *i = h->inode;

    h->inode = NULL;
    pthread_mutex_unlock(&i->lock);
    inode_unref(i);
}

void op_close(Session *s)
{
    Handle *h = any_handle(s, true);

    if (h == NULL) {
        return;
    }
    doing(s, "close inode %" G_GUINT64_FORMAT, h->inode->ino);
    pthread_mutex_lock(&h->inode->lock);
    release(s, h);
    if (session_is_dead(s)) {
        session_crash(s);
    }
    drop(h);
}

void close_all(Session *s)
{
    for (unsigned k = 0; k < HANDLES; k++) {
        Handle *h = &s->handles[k];

        if (h->inode != NULL) {
            doing(s, "close inode %" G_GUINT64_FORMAT, h->inode->ino);
            pthread_mutex_lock(&h->inode->lock);
            release(s, h);
            drop(h);
        }
    }
}

void forget_handles(Session *s)
{
    s->crashed = false;
    for (unsigned k = 0; k < HANDLES; k++) {
        Handle *h = &s->handles[k];

        if (h->inode != NULL && h->h == NULL) {
            pthread_mutex_lock(&h->inode->lock);
            if (h->inode->opener == h->life) {
                h->inode->handles = 0;
            }
            drop(h);
        }
    }
}

/* ---- bytes ----------------------------------------------------------------------- */

static int sync_handle(Session *s, Handle *h)
{
    int r = vj_fs_fsync(h->h);

    if (r == 0 && is_current(h)) {
        content_is_durable(h->inode);
    } else if (r == 0 && !session_is_dead(s)) {
        fail(s, "fsync of what another session has");
    } else if (r != 0 && !session_is_dead(s) && !session_timed_out(s, r)) {
        fail(s, "fsync: %s", g_strerror(-r));
    }
    return r;
}

void op_sync(Session *s)
{
    Handle *h = any_handle(s, true);

    if (h == NULL) {
        return;
    }
    doing(s, "fsync inode %" G_GUINT64_FORMAT, h->inode->ino);
    pthread_mutex_lock(&h->inode->lock);
    (void)sync_handle(s, h);
    if (session_is_dead(s)) {
        session_crash(s);
    }
    pthread_mutex_unlock(&h->inode->lock);
}

void op_purge(Session *s)
{
    int r;

    doing(s, "purge");
    r = vj_volume_purge(s->v);
    if (session_is_dead(s)) {
        session_crash(s);
    } else if (r != 0 && !session_timed_out(s, r)) {
        fail(s, "%s", g_strerror(-r));
    }
}

typedef struct Edit {
    size_t offset, old_len, len;
} Edit;

static Edit any_edit(Session *s, size_t size)
{
    size_t most = s->w->o.size / 4;
    Edit e = {.offset = vj_rng_below(&s->rng, size + 1)};

    switch (vj_rng_below(&s->rng, 4)) {
    case 0: /* write */
        e.len = e.old_len = data_length(&s->rng, most);
        break;
    case 1: /* insert */
        e.len = data_length(&s->rng, most);
        break;
    case 2: /* delete */
        e.old_len = data_length(&s->rng, 2 * most);
        break;
    default:
        e.len = data_length(&s->rng, most);
        e.old_len = data_length(&s->rng, most);
        break;
    }
    if (size + e.len > s->w->o.size) {
        e.offset = 0;
        e.old_len = size;
    }
    return e;
}

static GBytes *edited(const Session *s, GBytes *before, const Edit *e)
{
    gsize size;
    const uint8_t *data = g_bytes_get_data(before, &size);
    Shadow shadow = {0};

    shadow_replace(&shadow, 0, 0, data, size);
    shadow_replace(&shadow, e->offset, e->old_len, s->data, e->len);
    return g_bytes_new_with_free_func(shadow.bytes, shadow.len, g_free, shadow.bytes);
}

static void edit(Session *s, Handle *h)
{
    GBytes *before = content_now(h->inode);
    Edit e = any_edit(s, g_bytes_get_size(before));
    VjEdit how = {.offset = e.offset, .old_len = e.old_len, .src = s->data, .len = e.len};
    VjEdited done;
    int r;

    if (e.old_len == 0 && e.len == 0) {
        return;
    }
    data_fill(&s->w->pool, &s->rng, s->data, MAX(e.len, 1));
    doing(s, "inode %" G_GUINT64_FORMAT " of %zu bytes: %zu at %zu become %zu",
          h->inode->ino, (size_t)g_bytes_get_size(before), e.old_len, e.offset, e.len);
    if (is_current(h)) {
        content_push(h->inode, edited(s, before, &e));
    }
    r = vj_fs_replace(&caller, h->h, &how, &done);
    if (r != 0 && !session_is_dead(s)) {
        fail(s, "%s", g_strerror(-r));
    }
}

void op_write(Session *s)
{
    Handle *h = any_handle(s, true);

    if (h == NULL) {
        return;
    }
    pthread_mutex_lock(&h->inode->lock);
    if (h->inode->states->len < STATES_MOST || sync_handle(s, h) == 0) {
        edit(s, h);
    }
    if (session_is_dead(s)) {
        session_crash(s);
    }
    pthread_mutex_unlock(&h->inode->lock);
}

void op_read(Session *s)
{
    Handle *h = any_handle(s, true);
    size_t offset, len, got, want;
    const uint8_t *data;
    gsize size;
    int r;

    if (h == NULL) {
        return;
    }
    pthread_mutex_lock(&h->inode->lock);
    data = g_bytes_get_data(content_now(h->inode), &size);
    offset = vj_rng_below(&s->rng, size + 1);
    len = data_length(&s->rng, s->w->o.size);
    want = MIN(len, size - offset);
    doing(s, "read inode %" G_GUINT64_FORMAT " of %zu bytes: %zu at %zu", h->inode->ino,
          (size_t)size, len, offset);
    r = vj_fs_read(h->h, offset, s->back, len, &got);
    if (session_is_dead(s)) {
        session_crash(s);
    } else if (r != 0) {
        fail(s, "%s", g_strerror(-r));
    } else if (got != want || shadow_difference(data + offset, s->back, want) != want) {
        fail(s, "%zu bytes, not %zu, which differ from byte %zu on", got, want,
             offset + shadow_difference(data + offset, s->back, MIN(got, want)));
    }
    pthread_mutex_unlock(&h->inode->lock);
}

/* ---- at rest --------------------------------------------------------------------- */

/* What a session does in the background may keep a file that it has closed for a
 * while. */
void compare_content(World *w, Name *n)
{
    uint64_t k = vj_rng_below(&w->sessions[0].rng, w->o.sessions);
    Session *s = &w->sessions[k];
    Inode *i = n->inode;
    VjHandle *h = NULL;
    size_t len;

    if (i == NULL || !S_ISREG(i->type)) {
        return;
    }
    doing(s, "compare the content of %u/%s", n->dir, n->text);
    pthread_mutex_lock(&i->lock);
    while (!open_inode(s, i, &h)) {
        g_usleep(LOOK_US);
        k++; /* one that could not say that it has closed it can open it */
        s = &w->sessions[k % w->o.sessions];
    }
    if (read_all(s, h, &len)) {
        compare_all(s, i, len);
        content_is_durable(i); /* all were synced */
    }
    vj_fs_release(s->fs, h);
    i->handles--;
    pthread_mutex_unlock(&i->lock);
}
