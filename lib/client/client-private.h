/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * client-private.h - connections, requests and batches of libvarjfs, between its files
 *
 * A request belongs to who sends it.  It is in the list of its connection from before its
 * first byte is sent until its reply was checked or the connection failed; then it is
 * done.  Whoever reads the socket reads the replies of all requests: each goes to its own
 * by its tag.
 *
 * A deferred request is one that nobody waits for (safety none).  It owns itself: its
 * reply frees it, and an error in it becomes late_error of the connection.
 */
#ifndef VARJFS_CLIENT_PRIVATE_H
#define VARJFS_CLIENT_PRIVATE_H

#include "frame.h"

#include <errno.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <varjfs/client-protocol.h>
/* All else is hidden. */
#pragma GCC visibility push(default)
#include <varjfs/varjfs.h>
#pragma GCC visibility pop

#define VJC_DEFAULT_TIMEOUT_MS 30000
#define VJC_PING_MS 1000
/* For a daemon that is about to end, or that another program is starting. */
#define VJC_RETRY_MS 5000
/* Deferred requests that are not answered, of one connection. */
#define VJC_DEFERRED_MAX 256u
/* Bits of the set of names that deferred requests use. */
#define VJC_NAMES_BITS 65536u
#define VJC_VOLUME_NAME_MAX 63u
#define VJC_NEVER INT64_MAX
/* Bytes of a structure that a program has filled, of whatever version. */
#define VJC_STRUCT_MAX 4096u

typedef struct VjcRequest VjcRequest;
typedef struct VjcTls VjcTls;

/* What a request makes of a reply whose status is OK. */
typedef struct VjcReplyHandler {
    /* The message has come, nothing is checked yet: only where the bulk goes is taken
     * from it, within what the request may return.  Sets r->in.  False: it is none. */
    bool (*place)(VjcRequest *r, const uint8_t *message, uint32_t len, uint32_t bulk);
    /* All has come and its checksum is right.  May set r->error, which is 0.  False: it
     * has no meaning. */
    bool (*finish)(VjcRequest *r, const uint8_t *message, uint32_t len);
} VjcReplyHandler;

struct VjcRequest {
    VjcRequest *next;
    const VjcReplyHandler *handler; /* NULL: neither fields nor bulk */
    uint64_t tag;
    uint16_t op;
    bool done;
    bool deferred;
    bool at_once; /* its sender waits for it, and does nothing else before */
    int error;    /* of the whole: 0 or -errno; once it is done */
    void *owner;
    uint32_t operations; /* of a deferred one: results that it has */
    /* Where the bulk of the reply goes; room for in_max entries. */
    struct iovec *in;
    size_t in_max, in_count;
};

typedef enum VjcPhase {
    VJC_PHASE_HEAD,
    VJC_PHASE_MESSAGE,
    VJC_PHASE_BULK,
} VjcPhase;

/* Operations that go out together: deferred.c. */
typedef struct VjcGather {
    VjcRequest *request; /* theirs; NULL: there are none */
    uint32_t count;
    size_t message_len, bulk_len;        /* of operations */
    uint8_t *bytes;                      /* NULL until it is needed */
    uint64_t names[VJC_NAMES_BITS / 64]; /* that they use */
} VjcGather;

struct varjfs {
    int fd;               /* -1: the connection has failed */
    pid_t process;        /* whose it is: not that of the children which have it too */
    VjcTls *tls;          /* NULL: plain */
    int failure;          /* why: -errno; 0 as long as it lives */
    int late_error;       /* the first of deferred requests that was not returned yet */
    int timeout_ms;       /* -1: without end */
    bool sends_bare;      /* bulks of batches have no checksum, in both directions */
    bool may_share;       /* an area may be asked for */
    bool awaits_fd;       /* a descriptor may come */
    int passed_fd;        /* which has come; -1: none */
    const uint8_t *area;  /* NULL: none; see area.c */
    unsigned slots_taken; /* a bit each */
    bool may_call;        /* a mailbox may be asked for */
    unsigned waits;       /* for requests, until it is */
    uint8_t *mailbox;     /* NULL: none; see mailbox.c */
    VjcRequest *called;   /* that stands there, or of which the reply is to come; NULL */
    size_t called_bytes;
    bool looks_at_mailbox; /* its reply may come there */
    int bell;              /* -1: both sides have more than one processor */
    uint64_t last_tag;
    int64_t heard_ms;         /* when bytes came in */
    int trust;                /* > 0: it is worth while to ask before sleeping */
    VjcRequest *first, *last; /* in flight, in the order in which they were sent */
    VjcRequest *spare;        /* for deferred ones */
    uint32_t deferred_count, submitted_count;
    varjfs_batch *batches;
    varjfs_iterator *iterators;

    /* The frame that is being read. */
    VjcPhase phase;
    VjcFrame frame;
    VjcRequest *reply_to; /* NULL: nobody waits for it */
    uint32_t message_got;
    size_t in_at;     /* the entry of reply_to->in that is being filled */
    size_t in_filled; /* bytes of it */
    uint32_t bulk_left;
    XXH3_state_t sum;
    size_t begin, end; /* of what was read ahead */
    uint8_t ahead[8192];

    uint64_t names[VJC_NAMES_BITS / 64]; /* that deferred requests use */
    VjcGather gather;
    uint8_t message[VJC_MESSAGE_MAX];
};

/* ---- error.c ----------------------------------------------------------------------- */

/* 0 or -errno of a status of a frame or of a result. */
int vjc_status_errno(uint32_t status);
/* Of a structure that a program has filled, which begins with its size: that is at least
 * @least, and what is behind our own version's @ours bytes is zero. */
bool vjc_is_structure(const void *structure, size_t least, size_t ours);
/* Sets the text of varjfs_open_error; @detail, bytes from outside, may be NULL. */
void vjc_set_open_error(const char *text, const void *detail, size_t detail_len);

/* ---- socket.c ---------------------------------------------------------------------- */

int64_t vjc_now_ms(void);
/* When a wait that begins now ends; VJC_NEVER for -1. */
int64_t vjc_deadline(int timeout_ms);
/* Milliseconds for poll(2) until then, at most @most; 0 when it is over. */
int vjc_left_ms(int64_t deadline, int most);
/* A connected socket or -errno.  A path that is longer than an address of a socket holds
 * goes through /proc/self/fd. */
int vjc_connect(const char *path, int64_t deadline);

typedef struct VjcHost {
    char name[254]; /* or address */
    char port[6];
    bool is_numeric;
} VjcHost;

/* "HOST", "HOST:PORT", "[IPV6]", "[IPV6]:PORT"; false: it is none. */
bool vjc_host_parse(const char *text, VjcHost *out);
/* A connected TCP socket or -errno.  Its addresses are tried in turn; each gets an even
 * share of the time that is left.  Looking a name up has no deadline. */
int vjc_connect_host(const VjcHost *host, int64_t deadline);
/* Readable, writable (POLLIN, POLLOUT in @events) or a failure of it; 0 or -ETIMEDOUT. */
int vjc_poll(int fd, short events, int64_t deadline, int most_ms);
/* Bytes, 0 at the end of the stream, -EAGAIN, or -errno.  Waits for a second at most. */
ssize_t vjc_recv(int fd, struct iovec *iov, int iov_count, bool may_wait);
/* The same; a descriptor that comes along is put into *passed, which has what came before
 * it, or -1: that is closed. */
ssize_t vjc_recv_fd(int fd, struct iovec *iov, int iov_count, bool may_wait, int *passed);
/* Ends the stream for all who have the socket. */
void vjc_shut_down(int fd);
/* Bytes, -EAGAIN, or -errno; never waits. */
ssize_t vjc_send_some(int fd, struct iovec *iov, size_t iov_count);

/* ---- connection.c ------------------------------------------------------------------ */

/* A connection over @fd, and @tls unless that is NULL: both are its own from now on, also
 * where it is NULL, for want of memory. */
varjfs *vjc_connection_new(int fd, VjcTls *tls, int timeout_ms);
void vjc_connection_free(varjfs *v);
/*
 * Sends a request and returns without waiting for its reply; r->tag is set.  The first
 * VJC_HEAD_BYTES of @message are room for the head.  The buffers are free afterwards.
 * On failure the connection has failed and r is done.
 */
int vjc_send(varjfs *v, VjcRequest *r, uint8_t *message, size_t len,
             const struct iovec *bulk, size_t bulk_count);
/* Until r is done: r->error, or -errno of the connection. */
int vjc_wait(varjfs *v, VjcRequest *r);
/* Reads what has come, without waiting: r is done? */
bool vjc_try(varjfs *v, const VjcRequest *r);
/* Sends CANCEL for it. */
int vjc_cancel(varjfs *v, const VjcRequest *r);
/* Until at most @most deferred requests are not answered. */
int vjc_wait_in_flight(varjfs *v, uint32_t most);
/* A request that owns itself; NULL: no memory. */
VjcRequest *vjc_deferred_new(varjfs *v);
/* Ends the connection, of a child of fork(2) its own part of it alone: all requests in
 * flight are done with @error.  Returns @error. */
int vjc_fail(varjfs *v, int error);

typedef struct VjcHello {
    const char *volume;
    int timeout_ms;
    bool read_only;
} VjcHello;

/* ---- shared.c ---------------------------------------------------------------------- */

/* 0, with the descriptor that comes with the reply to @op, owned; -1: none came.  Else
 * -errno: it was refused. */
int vjc_fd_ask(varjfs *v, uint16_t op, int *fd);
/* Asks for memory by @op and maps @bytes of it; NULL: it was refused, or is not as it has
 * to be. */
void *vjc_shared_ask(varjfs *v, uint16_t op, size_t bytes, int protection);

/* ---- mailbox.c --------------------------------------------------------------------- */

/* Before a request is sent: makes the mailbox when it is worth while, and tells the
 * daemon whether more requests will come soon. */
void vjc_mailbox_prepare(varjfs *v, bool is_waited_for);
/* Puts a frame there, as vjc_send has it.  False: it goes by the socket. */
bool vjc_mailbox_call(varjfs *v, VjcRequest *r, const uint8_t *message, size_t len,
                      const struct iovec *bulk, size_t bulk_count);
/* Nobody has taken the request, nor will. */
bool vjc_mailbox_is_left(const varjfs *v);
/* Sleeps until there may be a reply, for a while; false: it is better looked for again
 * and again. */
bool vjc_mailbox_sleep(const varjfs *v);
/* The reply, which may change at any time; NULL: none yet. */
const uint8_t *vjc_mailbox_answer(const varjfs *v);
/* Nobody has taken the request: *frame is to be sent at once. */
bool vjc_mailbox_take_back(varjfs *v, struct iovec *frame);
/* The reply will come by the socket.  False: it stands in the mailbox now. */
bool vjc_mailbox_leave(varjfs *v);
/* v->called has been answered, in whatever way. */
void vjc_mailbox_answered(varjfs *v);
void vjc_mailbox_free(varjfs *v);

/* ---- copy.c ------------------------------------------------------------------------ */

/* As memcpy; for long copies out of memory of the daemon's. */
void vjc_copy(uint8_t *dst, const uint8_t *src, size_t len);

/* ---- area.c ------------------------------------------------------------------------ */

/* A slot, from 1 on, for a reply of at most @bytes, of which @contents are of objects;
 * 0: it comes by the socket. */
unsigned vjc_area_take(varjfs *v, size_t contents, size_t bytes);
void vjc_area_give_back(varjfs *v, unsigned slot);
/* What stands there; @into has room for no more than a slot has. */
void vjc_area_copy(const varjfs *v, unsigned slot, const struct iovec *into,
                   size_t count);
void vjc_area_free(varjfs *v);

/* ---- hello.c, daemon.c ------------------------------------------------------------- */

/* The daemon at the unix socket @path; -EAGAIN: it is about to end. */
int vjc_hello(const char *path, const VjcHello *hello, int64_t deadline, varjfs **out);
/* The daemon of a directory, which is started unless it runs; what may pass is tried
 * again for so long.  *out is NULL before. */
int vjc_open_directory(const char *directory, const struct varjfs_options *options,
                       int retry_ms, varjfs **out);

/* A letter or digit, and then letters, digits, ".", "_" and "-". */
bool vjc_is_volume_name(const char *name);
/* Why @source cannot be one; NULL: it can. */
const char *vjc_source_fault(const char *source);

/* ---- conf.c ------------------------------------------------------------------------ */

enum {
    VJC_CONF_SOURCE,
    VJC_CONF_VOLUME,
    VJC_CONF_KEY,
    VJC_CONF_IDENTITY,
    VJC_CONF_CERTIFICATE,
    VJC_CONF_CERTIFICATE_KEY,
    VJC_CONF_CA,
    VJC_CONF_DAEMON,
    VJC_CONF_TIMEOUT,
    VJC_CONF_READ_ONLY,
    VJC_CONF_SETTINGS,
};

typedef struct VjcConf {
    char *values[VJC_CONF_SETTINGS]; /* NULL: not given; paths as they are to be opened */
    unsigned lines[VJC_CONF_SETTINGS];
} VjcConf;

/* As varjfs_config_each; on 0 *out is the caller's to free. */
int vjc_conf_load(const char *path, VjcConf *out, varjfs_config_visit *visit,
                  void *opaque);
void vjc_conf_free(VjcConf *conf);

/* ---- semantics.c ------------------------------------------------------------------- */

/* Of a structure that a program has filled, whatever its version; NULL: the default. */
int vjc_semantics_copy(const struct varjfs_semantics *s, struct varjfs_semantics *out);

/* ---- batch.c ----------------------------------------------------------------------- */

typedef struct VjcOperation {
    uint8_t kind, flags;
    bool is_done; /* its result is final */
    uint16_t space_len, name_len, second_len;
    const char *space;
    const void *name;
    const char *second; /* of RENAME and attributes */
    const uint8_t *src; /* of CREATE: settings and attributes, owned */
    uint8_t *dst;       /* of STATUS: in the batch's scratch while it is on its way */
    size_t len;         /* of src or dst */
    uint64_t offset, old_len;
    int *result;
    size_t *got;                         /* of READ and both kinds of GET */
    struct varjfs_object_status *status; /* of STATUS */
    size_t status_size;
    int error;
    uint64_t returned;
} VjcOperation;

/* A part of an operation: one of the operations of a request. */
typedef struct VjcPart {
    size_t operation;
    uint64_t at; /* bytes of src or dst before it */
    uint32_t brings, returns;
    /* Its result, once the request is done without an error. */
    uint32_t status;
    uint64_t bytes;
} VjcPart;

/* Requests of one batch that may be on their way: more than one where all of them only
 * return something, as then it is the same which is done first. */
#define VJC_LANES 4u

/* One of them, with its memory, which it keeps. */
typedef struct VjcLane {
    VjcRequest request;
    varjfs_batch *batch;
    VjcPart *parts;
    size_t part_count, part_capacity;
    uint8_t *buffer; /* head and message */
    size_t buffer_capacity;
    struct iovec *out;
    size_t out_capacity;
    size_t in_capacity;
    unsigned slot;    /* of the area, where its reply stands; 0: it comes by the socket */
    uint8_t *scratch; /* statuses of objects */
    size_t scratch_capacity;
} VjcLane;

struct varjfs_batch {
    varjfs *v;
    varjfs_batch *next, **link;
    struct varjfs_semantics semantics;
    VjcOperation *operations;
    size_t count, capacity;
    bool is_submitted, is_canceled;
    bool is_waited_for; /* by who sends it: varjfs_descriptor(3) tells others */
    int error;          /* why no more of it is sent */

    /* Those that are on their way, from the first one on in a ring, in the order of their
     * parts: all before operation `next_operation` and its bytes before `next_at`. */
    VjcLane lanes[VJC_LANES];
    unsigned first_lane, lanes_in_flight;
    bool lanes_only_return;
    size_t next_operation;
    uint64_t next_at; /* bytes of that operation which were asked for */
};

/* Of an operation that is being added: space and name are checked, *out is empty. */
int vjc_batch_add(varjfs_batch *b, uint8_t kind, const char *space, const void *name,
                  size_t name_len, int *result, VjcOperation **out);
/* Between vjc_batch_add and this the operation is not in the batch yet. */
void vjc_batch_added(varjfs_batch *b);
bool vjc_is_namespace(const char *space, size_t *len);
bool vjc_is_name(const void *name, size_t len);
/* As vjc_batch_add; the name of an object is one of a file. */
int vjc_batch_add_object(varjfs_batch *b, uint8_t kind, const char *space,
                         const char *name, int *result, VjcOperation **out);
/* 0, -EINVAL, -EPERM. */
int vjc_attribute_name(const char *name, size_t *len);
/* Memory for @need items of @size bytes at *array, which keeps what it has. */
int vjc_grow(void *array, size_t *capacity, size_t need, size_t size);

bool vjc_is_returning(const VjcOperation *op);
/* Of the message of a request. */
size_t vjc_operation_bytes(const VjcOperation *op);
void vjc_encode_part(VjcWriter *w, const VjcOperation *op, const VjcPart *part);

/* ---- deferred.c -------------------------------------------------------------------- */

/* A request that owns itself, when few enough are in flight. */
int vjc_deferred_begin(varjfs *v, VjcRequest **out);
/* Sends what was encoded; its operations are done, for who waits. */
int vjc_deferred_send(varjfs_batch *b, VjcRequest *r, VjcLane *lane, size_t len,
                      size_t bulk_count);
/* The operations of a batch go out with others; false: it needs a request of its own. */
bool vjc_gather(varjfs_batch *b);
int vjc_gather_flush(varjfs *v);
/* The connection has failed. */
void vjc_gather_drop(varjfs *v);
void vjc_gather_free(varjfs *v);
/* Until none of the names of a batch is used by what nobody waits for. */
int vjc_wait_for_names(const varjfs_batch *b);
/* What was gathered goes out; until at most @most deferred requests are not answered. */
int vjc_wait_deferred(varjfs *v, uint32_t most);

/* ---- iterate.c --------------------------------------------------------------------- */

void vjc_iterators_free(varjfs *v);

#endif
