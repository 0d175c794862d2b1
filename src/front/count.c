/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * count.c - requests by kind: how many, their bytes, how long until their answer
 *
 * A request counts in the thread that received it, before a handler sees it.  Most are
 * answered there: what is known of one stands in that thread.  One that another thread
 * may answer (syncs, edits) is handed over before that thread can see it, to a table by
 * its fuse_req_t, which stays the same until the answer.  The table is looked at only
 * while it has any.  One that was abandoned (interrupt.c) is over when its thread comes
 * back.
 */
#define VJ_COUNT_NAMES_LIBFUSE
#include "front/front-private.h"

#include <linux/fuse.h>

/* Of Linux 6.6 and later. */
#define OPCODE_STATX 52u

#define KIND_OTHER 0u

static const char *const kinds[] = {
    [KIND_OTHER] = "other",
    [FUSE_LOOKUP] = "lookup",
    [FUSE_FORGET] = "forget",
    [FUSE_GETATTR] = "getattr",
    [FUSE_SETATTR] = "setattr",
    [FUSE_READLINK] = "readlink",
    [FUSE_SYMLINK] = "symlink",
    [FUSE_MKNOD] = "mknod",
    [FUSE_MKDIR] = "mkdir",
    [FUSE_UNLINK] = "unlink",
    [FUSE_RMDIR] = "rmdir",
    [FUSE_RENAME] = "rename",
    [FUSE_LINK] = "link",
    [FUSE_OPEN] = "open",
    [FUSE_READ] = "read",
    [FUSE_WRITE] = "write",
    [FUSE_STATFS] = "statfs",
    [FUSE_RELEASE] = "release",
    [FUSE_FSYNC] = "fsync",
    [FUSE_SETXATTR] = "setxattr",
    [FUSE_GETXATTR] = "getxattr",
    [FUSE_LISTXATTR] = "listxattr",
    [FUSE_REMOVEXATTR] = "removexattr",
    [FUSE_FLUSH] = "flush",
    [FUSE_INIT] = "init",
    [FUSE_OPENDIR] = "opendir",
    [FUSE_READDIR] = "readdir",
    [FUSE_RELEASEDIR] = "releasedir",
    [FUSE_FSYNCDIR] = "fsyncdir",
    [FUSE_GETLK] = "getlk",
    [FUSE_SETLK] = "setlk",
    [FUSE_SETLKW] = "setlkw",
    [FUSE_ACCESS] = "access",
    [FUSE_CREATE] = "create",
    [FUSE_INTERRUPT] = "interrupt",
    [FUSE_BMAP] = "bmap",
    [FUSE_DESTROY] = "destroy",
    [FUSE_IOCTL] = "ioctl",
    [FUSE_POLL] = "poll",
    [FUSE_NOTIFY_REPLY] = "notify_reply",
    [FUSE_BATCH_FORGET] = "batch_forget",
    [FUSE_FALLOCATE] = "fallocate",
    [FUSE_READDIRPLUS] = "readdirplus",
    [FUSE_RENAME2] = "rename2",
    [FUSE_LSEEK] = "lseek",
    [FUSE_COPY_FILE_RANGE] = "copy_file_range",
    [FUSE_SYNCFS] = "syncfs",
    [FUSE_TMPFILE] = "tmpfile",
    [OPCODE_STATX] = "statx",
};

/* Behind the kinds. */
#define KIND_BUSY_POLL G_N_ELEMENTS(kinds)

/* One that has no answer yet. */
typedef struct Counted {
    VjCallStats *calls; /* NULL: none */
    unsigned kind;
    uint64_t begun_ns;
} Counted;

struct VjCount {
    VjCallStats *calls;
    VjBusiest *files, *threads;
    gint handed_count; /* atomic: of `handed`; changes under lock */
    VjMutex lock;      /* VJ_RANK_FRONT */
    /* guarded by lock: */
    GHashTable *handed; /* fuse_req_t → Counted, owned */
};

/* What this thread works on, while no other thread may answer it; calls NULL: nothing. */
static _Thread_local Counted own;

/* ---- requests ---------------------------------------------------------------------- */

VjCount *vj_count_new(void)
{
    VjCount *c = g_new0(VjCount, 1);

    c->calls = vj_call_stats_new(KIND_BUSY_POLL + 1);
    c->files = vj_busiest_new();
    c->threads = vj_busiest_new();
    vj_mutex_init(&c->lock, VJ_RANK_FRONT, "front count");
    c->handed = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    return c;
}

void vj_count_free(VjCount *c)
{
    g_hash_table_unref(c->handed);
    vj_mutex_clear(&c->lock);
    vj_busiest_free(c->files);
    vj_busiest_free(c->threads);
    vj_call_stats_free(c->calls);
    g_free(c);
}

/* Bytes that it asks for or brings: both have their size at the same place. */
static uint64_t content_bytes(const struct fuse_in_header *head, const void *request,
                              size_t len)
{
    struct fuse_write_in in;

    G_STATIC_ASSERT(offsetof(struct fuse_read_in, size) ==
                    offsetof(struct fuse_write_in, size));
    if ((head->opcode != FUSE_READ && head->opcode != FUSE_WRITE) ||
        len < sizeof *head + sizeof in) {
        return 0;
    }
    memcpy(&in, (const char *)request + sizeof *head, sizeof in);
    return in.size;
}

/* The kernel's own requests name no thread, and what it forgets it did not use. */
static void count_source(VjCount *c, const struct fuse_in_header *head,
                         const void *request, size_t len)
{
    uint64_t bytes = content_bytes(head, request, len);

    if (head->opcode == FUSE_FORGET) {
        return;
    }
    if (head->nodeid != 0) {
        vj_busiest_add(c->files, head->nodeid, bytes);
    }
    if (head->pid != 0) {
        vj_busiest_add(c->threads, head->pid, bytes);
    }
}

void vj_count_begins(VjCount *c, const void *request, size_t len)
{
    struct fuse_in_header head;

    g_assert(len >= sizeof head && own.calls == NULL);
    memcpy(&head, request, sizeof head);
    own =
        (Counted){.calls = c->calls, .kind = KIND_OTHER, .begun_ns = vj_clock_mono_ns()};
    if (head.opcode < G_N_ELEMENTS(kinds) && kinds[head.opcode] != NULL) {
        own.kind = head.opcode;
    }
    vj_call_begins(c->calls, own.kind);
    count_source(c, &head, request, len);
}

/* It has its answer, or gets none. */
static void add_latency(const Counted *r)
{
    if (r->calls != NULL) {
        vj_call_took(r->calls, r->kind, vj_clock_mono_ns() - r->begun_ns);
    }
}

void vj_count_ends(void)
{
    add_latency(&own);
    own.calls = NULL;
}

void vj_count_hand_over(VjCount *c, fuse_req_t req)
{
    if (own.calls == NULL) {
        return; /* it was handed over before */
    }
    vj_mutex_lock(&c->lock);
    if (!g_hash_table_contains(c->handed, req)) {
        g_hash_table_insert(c->handed, req, g_memdup2(&own, sizeof own));
        g_atomic_int_inc(&c->handed_count);
        own.calls = NULL;
    }
    vj_mutex_unlock(&c->lock);
}

static bool take_handed(VjCount *c, fuse_req_t req, Counted *out)
{
    gpointer found = NULL;

    if (g_atomic_int_get(&c->handed_count) == 0) {
        return false;
    }
    vj_mutex_lock(&c->lock);
    if (g_hash_table_steal_extended(c->handed, req, NULL, &found)) {
        (void)g_atomic_int_dec_and_test(&c->handed_count);
    }
    vj_mutex_unlock(&c->lock);
    if (found != NULL) {
        *out = *(Counted *)found;
        g_free(found);
    }
    return found != NULL;
}

void vj_count_poll(VjCount *c, uint64_t begun_ns, bool found)
{
    vj_call_done(c->calls, KIND_BUSY_POLL, begun_ns, 0, !found);
}

void vj_count_visit(VjCount *c, VjCallVisit *visit, void *opaque)
{
    VjCallSums polls;

    for (unsigned i = 0; i < G_N_ELEMENTS(kinds); i++) {
        if (kinds[i] != NULL) {
            VjCallSums sums;

            vj_call_stats_read(c->calls, i, &sums);
            visit(opaque, "request", kinds[i], &sums);
        }
    }
    vj_call_stats_read(c->calls, KIND_BUSY_POLL, &polls);
    visit(opaque, "wait", "busy_poll", &polls);
}

unsigned vj_count_busiest_files(VjCount *c, VjFsBusy out[VJ_BUSIEST_MAX])
{
    return vj_busiest_list(c->files, out);
}

unsigned vj_count_busiest_threads(VjCount *c, VjFsBusy out[VJ_BUSIEST_MAX])
{
    return vj_busiest_list(c->threads, out);
}

/* ---- answers ----------------------------------------------------------------------- */

/* Before the answer, after which @req is gone. */
static Counted answer(fuse_req_t req, uint64_t bytes, bool failed)
{
    VjFront *f = fuse_req_userdata(req);
    Counted r;

    if (!take_handed(f->count, req, &r)) {
        r = own;
        own.calls = NULL;
    }
    if (r.calls != NULL) {
        vj_call_result(r.calls, r.kind, bytes, failed);
    }
    return r;
}

/* Passes @result on. */
static int answered(const Counted *r, int result)
{
    add_latency(r);
    return result;
}

int vj_reply_err(fuse_req_t req, int error)
{
    Counted r = answer(req, 0, error != 0);

    return answered(&r, fuse_reply_err(req, error));
}

void vj_reply_none(fuse_req_t req)
{
    Counted r = answer(req, 0, false);

    fuse_reply_none(req);
    add_latency(&r);
}

int vj_reply_entry(fuse_req_t req, const struct fuse_entry_param *e)
{
    Counted r = answer(req, 0, false);

    return answered(&r, fuse_reply_entry(req, e));
}

int vj_reply_create(fuse_req_t req, const struct fuse_entry_param *e,
                    const struct fuse_file_info *fi)
{
    Counted r = answer(req, 0, false);

    return answered(&r, fuse_reply_create(req, e, fi));
}

int vj_reply_attr(fuse_req_t req, const struct stat *attr, double timeout)
{
    Counted r = answer(req, 0, false);

    return answered(&r, fuse_reply_attr(req, attr, timeout));
}

#ifdef HAVE_STRUCT_FUSE_LOWLEVEL_OPS_STATX
int vj_reply_statx(fuse_req_t req, int flags, struct statx *x, double timeout)
{
    Counted r = answer(req, 0, false);

    return answered(&r, fuse_reply_statx(req, flags, x, timeout));
}
#endif

int vj_reply_readlink(fuse_req_t req, const char *target)
{
    Counted r = answer(req, strlen(target), false);

    return answered(&r, fuse_reply_readlink(req, target));
}

int vj_reply_open(fuse_req_t req, const struct fuse_file_info *fi)
{
    Counted r = answer(req, 0, false);

    return answered(&r, fuse_reply_open(req, fi));
}

int vj_reply_write(fuse_req_t req, size_t count)
{
    Counted r = answer(req, count, false);

    return answered(&r, fuse_reply_write(req, count));
}

int vj_reply_buf(fuse_req_t req, const char *buf, size_t size)
{
    Counted r = answer(req, size, false);

    return answered(&r, fuse_reply_buf(req, buf, size));
}

int vj_reply_iov(fuse_req_t req, const struct iovec *iov, int count)
{
    uint64_t bytes = 0;
    Counted r;

    for (int i = 0; i < count; i++) {
        bytes += iov[i].iov_len;
    }
    r = answer(req, bytes, false);
    return answered(&r, fuse_reply_iov(req, iov, count));
}

int vj_reply_statfs(fuse_req_t req, const struct statvfs *st)
{
    Counted r = answer(req, 0, false);

    return answered(&r, fuse_reply_statfs(req, st));
}

int vj_reply_xattr(fuse_req_t req, size_t count)
{
    Counted r = answer(req, 0, false);

    return answered(&r, fuse_reply_xattr(req, count));
}

int vj_reply_ioctl(fuse_req_t req, int result, const void *buf, size_t size)
{
    Counted r = answer(req, size, false);

    return answered(&r, fuse_reply_ioctl(req, result, buf, size));
}

int vj_reply_lseek(fuse_req_t req, off_t offset)
{
    Counted r = answer(req, 0, false);

    return answered(&r, fuse_reply_lseek(req, offset));
}
