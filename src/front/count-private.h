/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * count-private.h - what requests there were, and answers that are counted (count.c)
 */
#ifndef VJ_FRONT_COUNT_PRIVATE_H
#define VJ_FRONT_COUNT_PRIVATE_H

#include "front/front.h"

#include <fuse_lowlevel.h>

/* Counts, bytes and latencies of requests by kind; the files and threads that had most of
 * them. */
typedef struct VjCount VjCount;
VjCount *vj_count_new(void);
void vj_count_free(VjCount *c); /* no request is being served */

/* ---- what comes most often (busiest.c) --------------------------------------------- */

typedef struct VjBusiest VjBusiest;
VjBusiest *vj_busiest_new(void);
void vj_busiest_free(VjBusiest *b);
/* @id, which is not 0, has come once more, with @bytes.  Any thread; waits for others for
 * a few stores at most. */
void vj_busiest_add(VjBusiest *b, uint64_t id, uint64_t bytes);
/* Those that it knows, in no order; returns how many. */
unsigned vj_busiest_list(VjBusiest *b, VjFsBusy out[VJ_BUSIEST_MAX]);

/* ---- requests ---------------------------------------------------------------------- */

/*
 * The calling thread has received a request, of @len bytes, and works on it until
 * vj_count_ends.  It counts from now on.  Its latency is the time until the answer is
 * with the kernel; of one that has no answer, or that libfuse answers itself, until
 * vj_count_ends.
 */
void vj_count_begins(VjCount *c, const void *request, size_t len);
void vj_count_ends(void);
/* To be called before another thread can see @req, which the calling thread works on, as
 * that one may answer it.  No locks held; a second call does nothing. */
void vj_count_hand_over(VjCount *c, fuse_req_t req);

/* A thread has polled for a request since vj_clock_mono_ns() was @begun_ns. */
void vj_count_poll(VjCount *c, uint64_t begun_ns, bool found);

/* Every kind, in fixed order, of the group "request", and polls, of the group "wait". */
void vj_count_visit(VjCount *c, VjCallVisit *visit, void *opaque);
/* The inodes that most requests were about, or the threads that most came from. */
unsigned vj_count_busiest_files(VjCount *c, VjFsBusy out[VJ_BUSIEST_MAX]);
unsigned vj_count_busiest_threads(VjCount *c, VjFsBusy out[VJ_BUSIEST_MAX]);

/*
 * libfuse's answers, counted.  Failures and bytes are counted before the kernel has the
 * answer: its caller may read the figures next.
 */
int vj_reply_err(fuse_req_t req, int error);
void vj_reply_none(fuse_req_t req);
int vj_reply_entry(fuse_req_t req, const struct fuse_entry_param *e);
int vj_reply_create(fuse_req_t req, const struct fuse_entry_param *e,
                    const struct fuse_file_info *fi);
int vj_reply_attr(fuse_req_t req, const struct stat *attr, double timeout);
#ifdef HAVE_STRUCT_FUSE_LOWLEVEL_OPS_STATX
int vj_reply_statx(fuse_req_t req, int flags, struct statx *x, double timeout);
#endif
int vj_reply_readlink(fuse_req_t req, const char *target);
int vj_reply_open(fuse_req_t req, const struct fuse_file_info *fi);
int vj_reply_write(fuse_req_t req, size_t count);
int vj_reply_buf(fuse_req_t req, const char *buf, size_t size);
int vj_reply_iov(fuse_req_t req, const struct iovec *iov, int count);
int vj_reply_statfs(fuse_req_t req, const struct statvfs *st);
int vj_reply_xattr(fuse_req_t req, size_t count);
int vj_reply_ioctl(fuse_req_t req, int result, const void *buf, size_t size);
int vj_reply_lseek(fuse_req_t req, off_t offset);

/* The handlers answer by the names that libfuse's documentation has. */
#ifndef VJ_COUNT_NAMES_LIBFUSE
#define fuse_reply_err vj_reply_err
#define fuse_reply_none vj_reply_none
#define fuse_reply_entry vj_reply_entry
#define fuse_reply_create vj_reply_create
#define fuse_reply_attr vj_reply_attr
#define fuse_reply_statx vj_reply_statx
#define fuse_reply_readlink vj_reply_readlink
#define fuse_reply_open vj_reply_open
#define fuse_reply_write vj_reply_write
#define fuse_reply_buf vj_reply_buf
#define fuse_reply_iov vj_reply_iov
#define fuse_reply_statfs vj_reply_statfs
#define fuse_reply_xattr vj_reply_xattr
#define fuse_reply_ioctl vj_reply_ioctl
#define fuse_reply_lseek vj_reply_lseek
#endif

#endif
