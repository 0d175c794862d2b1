/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * connection-private.h - frames over one socket, in both directions
 *
 * A connection belongs to a loop: what comes in is read in the loop's thread, and its
 * owner is called there.  What goes out is sent by the thread that has it, as far as the
 * socket takes it, and the rest by the loop.  Bulks are copied by the kernel alone: they
 * are sent from and received into the owner's buffers.
 */
#ifndef VJ_RPC_CONNECTION_PRIVATE_H
#define VJ_RPC_CONNECTION_PRIVATE_H

#include "base/base.h"
#include "rpc/frame-format.h"
#include "rpc/loop-private.h"
#include "rpc/pipes-private.h"
#include "rpc/rpc.h"
#include "rpc/stream-private.h"

typedef struct VjConn VjConn;

/*
 * VjOut - a frame that goes out
 *
 * Its owner's, and stays where it is, as message and bulk do, until released() was
 * called: once, in any thread, with no lock held.
 */
typedef struct VjOut VjOut;
struct VjOut {
    VjSlice message;
    VjSlice lead, bulk; /* one behind the other; each may be empty */
    /* Else the bulk is what is in this pipe, so many bytes, and has no checksum; of a
     * connection that vj_conn_takes_pipe, and sent by threads of the room alone. */
    VjPipe *pipe; /* NULL: there is none */
    uint32_t pipe_bytes;
    bool is_bare; /* the bulk has no checksum */
    /* A descriptor that goes along with the frame; stays open as the frame stays.  Of a
     * connection that vj_conn_takes_fd. */
    const int *fd; /* NULL: there is none */
    void (*released)(VjOut *out, bool was_sent);
    /* the connection's: */
    uint8_t head[VJ_FRAME_HEAD_BYTES];
    VjOut *next, *before;
    bool is_queued;
};

/* Memory for a bulk: what direct I/O can work with. */
static inline size_t vj_bulk_room(uint32_t bytes)
{
    return ((size_t)bytes + VJ_BUF_ALIGN - 1) / VJ_BUF_ALIGN * VJ_BUF_ALIGN;
}

/* Fills head: @frame, with the lengths and the checksum of message and bulk. */
void vj_out_encode(VjOut *out, VjFrame *frame);
size_t vj_out_bytes(const VjOut *out);

/* Where the body of a frame goes that has begun to come in. */
typedef struct VjInto {
    VjBuf *bulk;     /* a reference is handed over; NULL: there is none */
    bool is_ignored; /* the body is read and thrown away */
    /* So many bytes of the bulk are read before more() is called; 0: all. */
    uint32_t bulk_room;
} VjInto;

typedef struct VjConnCallbacks {
    /* The two sides believe each other. */
    void (*ready)(VjConn *c);
    /*
     * A head has come in.  0, with where its body goes; -EAGAIN: nothing more is to be
     * read until vj_conn_resume, which asks again; other -errno: the connection ends, or
     * it has been closed.
     */
    int (*head)(VjConn *c, const VjFrame *frame, VjInto *into);
    /* The first @used bytes of a bulk have come in, as many as there was room for.  0,
     * with up to where it may be read now; -EAGAIN: as head().  NULL where that cannot
     * be. */
    int (*more)(VjConn *c, const VjFrame *frame, uint32_t used, uint32_t *bulk_room);
    /* The frame is whole.  @message and @bulk are handed over; both NULL where they are
     * empty or the body was ignored (@is_ignored). */
    void (*frame)(VjConn *c, const VjFrame *frame, GByteArray *message, VjBuf *bulk,
                  bool is_ignored);
    /* It is over; the last call.  @rc: why, -errno. */
    void (*closed)(VjConn *c, int rc);
} VjConnCallbacks;

/* Of an owner's connections together. */
typedef struct VjConnCounters {
    uint64_t sent_bytes, received_bytes; /* atomic */
} VjConnCounters;

/*
 * vj_conn_new - a connection over a socket that is connected, or begins to be
 *
 * Takes @fd.  Nothing happens before vj_conn_start.  Returns owned; NULL: no memory.
 */
VjConn *vj_conn_new(VjLoop *loop, int fd, const VjConnCallbacks *callbacks, void *owner,
                    VjConnCounters *counters);
VjConn *vj_conn_ref(VjConn *c);
void vj_conn_unref(VjConn *c);
void *vj_conn_owner(const VjConn *c);
VjLoop *vj_conn_loop(const VjConn *c);

/* ---- in the loop's thread ---------------------------------------------------------- */

/* @host: of a client, whom the peer must be; NULL: a server's. */
void vj_conn_start(VjConn *c, bool is_server, VjCredentials *credentials,
                   const char *host);
/* Bulks of its frames may be in a pipe.  From ready on, in any thread. */
bool vj_conn_takes_pipe(const VjConn *c);
/* The same of a descriptor. */
bool vj_conn_takes_fd(const VjConn *c);
/* What the peer proved; "" before ready. */
const char *vj_conn_identity(const VjConn *c);
/* At once.  closed() is called before it returns. */
void vj_conn_close(VjConn *c, int rc);
/* No further frame is read; closes when what goes out has been sent and the peer has
 * closed, or after a while. */
void vj_conn_finish(VjConn *c);
/* The peer has been silent in the middle of a frame, or has not taken what goes out, or
 * has not closed behind vj_conn_finish, for longer than it may: closes the connection.
 * To be called from time to time. */
void vj_conn_check(VjConn *c, int64_t now_us);
/* The body that comes in, or what goes out, does not move, or too slowly for a server
 * without room. */
bool vj_conn_holds_up(VjConn *c, int64_t now_us);
/* When the peer last gave a sign of life: bytes came in, or it took some for which the
 * socket had no room before. */
int64_t vj_conn_alive_us(VjConn *c);
bool vj_conn_is_paused(const VjConn *c);
/* No frame has begun to come in, and the next one is wanted. */
bool vj_conn_is_between_frames(const VjConn *c);
/* As if these bytes, a frame, had come in by the socket.  Between frames.  They may be
 * those of vj_loop_scratch. */
void vj_conn_feed(VjConn *c, const uint8_t *bytes, size_t len);

/* ---- any thread; locks below VJ_RANK_RPC_RECEIVE ----------------------------------- */

/* Begins to send what vj_out_encode has been called for.  Never blocks. */
void vj_conn_send(VjConn *c, VjOut *out);
/* The same, before all frames of which nothing has been sent. */
void vj_conn_send_first(VjConn *c, VjOut *out);
/* True: nothing of @out has been sent, and it is the caller's; released() is not
 * called. */
bool vj_conn_take_back(VjConn *c, VjOut *out);
/* If the bulk of a reply to @tag is being received: nothing is written to its buffer any
 * more, and the rest of it is ignored. */
void vj_conn_ignore(VjConn *c, uint64_t tag);
/* Reading goes on, soon. */
void vj_conn_resume(VjConn *c);
/* As vj_conn_close, soon. */
void vj_conn_close_soon(VjConn *c, int rc);
/* As vj_conn_finish, soon. */
void vj_conn_finish_soon(VjConn *c);
bool vj_conn_has_output(VjConn *c);

#endif
