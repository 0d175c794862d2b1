/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-private.h - what the files of the driver remote share
 *
 *   remote.c         options, open and close, what the room calls
 *   remote-node.c    one node: its connection, and who it is
 *   remote-spec.c    the list of nodes as text, and changes of it
 *   remote-change.c  the same of a store that is open
 *   remote-state.c   what is known of nodes: whether they are live, how fast they are
 *   remote-op.c      requests of the room in flight: calls, timers, waiting for a node
 *   remote-put.c, remote-get.c, remote-remove.c, remote-flush.c   those requests
 *   remote-durable.c which puts are durable where
 *   remote-list.c    each, space and flush_removes: calls that a thread waits for
 *   remote-heal.c    heal, trim and survey
 *   remote-suspect.c replicas that nobody counts on
 *   remote-form.c    content in and out, digests: work that nodes do
 *
 * All state is guarded by one lock, which is not held when a call is submitted or a
 * request completed.  Answers of calls come in the loop's thread of rpc, timers in a
 * thread of the store's own.
 */
#ifndef VJ_STORE_REMOTE_PRIVATE_H
#define VJ_STORE_REMOTE_PRIVATE_H

#include "rpc/messages.h"
#include "rpc/rpc.h"
#include "store/placement.h"
#include "store/remote-format.h"
#include "store/store-private.h"

/* Replicas of puts that no flush has covered yet: with more of them the store flushes by
 * itself, and further puts wait. */
#define VJ_REMOTE_UNFLUSHED_MAX 65536u
/* After so long without an answer another replica is asked too: HEDGE_FACTOR times the
 * median of what gets from that node took lately, within these limits. */
#define VJ_REMOTE_HEDGE_FACTOR 4
#define VJ_REMOTE_HEDGE_FIRST_US ((int64_t)50 * 1000)
#define VJ_REMOTE_HEDGE_MIN_US ((int64_t)10 * 1000)
#define VJ_REMOTE_HEDGE_MAX_US ((int64_t)2 * 1000 * 1000)
/* Of so many gets one may ask a second node, besides those of a node that answers
 * nothing at all; so many at once after a quiet time. */
#define VJ_REMOTE_HEDGE_EVERY 16u
#define VJ_REMOTE_HEDGE_BURST 16u
/* Recent gets whose median counts. */
#define VJ_REMOTE_GETS_KEPT 32u
/* Puts of one node whose answer was lost with the connection: they are removed when it is
 * there again.  More of them are left to what looks for unreferenced objects. */
#define VJ_REMOTE_ORPHANS_MAX 4096u
/* Objects with replicas that nobody counts on, until they are healed. */
#define VJ_REMOTE_SUSPECTS_MAX 65536u
/* So long nodes are asked that do not answer, when those of the locator do and do not
 * have the object. */
#define VJ_REMOTE_ABSENT_US ((int64_t)2 * 1000 * 1000)
/* A node that is busy is asked again after so long. */
#define VJ_REMOTE_BUSY_US ((int64_t)100 * 1000)
/* How long open waits for nodes beside the first one. */
#define VJ_REMOTE_OPEN_US ((int64_t)2 * 1000 * 1000)
/* Objects of one page of a listing, of one REMOVE, of one HAVE. */
#define VJ_REMOTE_PAGE 4096u
/* REMOVEs of one node in flight; what comes meanwhile goes together in the next one. */
#define VJ_REMOTE_REMOVES_IN_FLIGHT 2u

typedef struct VjRemote VjRemote;
typedef struct VjRemoteNode VjRemoteNode;
typedef struct VjRemoteOp VjRemoteOp;

/*
 * What the driver takes from its surroundings; tests put their own in, with one thread
 * and a clock of their own.
 */
typedef struct VjRemoteSeam {
    VjRpcClient *(*client_new)(const VjRpcClientConfig *config, GError **error);
    void (*client_free)(VjRpcClient *c);
    void (*client_connect)(VjRpcClient *c);
    char *(*client_why)(VjRpcClient *c); /* NULL: not told */
    void (*traffic)(VjRpcClient *c, VjRpcTraffic *out);
    void (*submit)(VjRpcClient *c, VjRpcCall *call);
    void (*cancel)(VjRpcClient *c, VjRpcCall *call);
    /* NULL: a thread that waits sleeps, and timers have a thread.  Else called instead,
     * until what is waited for has happened; it runs vj_remote_timers_run(). */
    void (*step)(void);
    uint64_t (*random_u64)(void);
} VjRemoteSeam;

extern const VjRemoteSeam *vj_remote_seam;

/* ---- nodes ------------------------------------------------------------------------- */

typedef enum VjRemoteState {
    VJ_REMOTE_HOLE,     /* "-" in the list: a node that was removed */
    VJ_REMOTE_AWAY,     /* no connection yet, or not any more */
    VJ_REMOTE_GREETED,  /* has said who it is */
    VJ_REMOTE_LIVE,     /* and answers */
    VJ_REMOTE_FOREIGN,  /* the place of another volume */
    VJ_REMOTE_EMPTY,    /* a place of no volume, which this store may not take */
    VJ_REMOTE_DOUBLE,   /* the same place as another node of the list */
    VJ_REMOTE_REFUSING, /* does not let this client in, or speaks another protocol */
} VjRemoteState;

struct VjRemoteNode {
    /* never change: */
    VjRemote *r;
    unsigned index;
    char *address; /* NULL: a hole, since the store is open */
    VjRpcClient *client;

    /* guarded by the store's lock: */
    VjRemoteState state;
    bool was_live;     /* since open */
    uint64_t connects; /* connections so far */
    uint64_t life;     /* of its process and disk, as this store counts them: what was not
                         * durable in an earlier one is lost */
    uint8_t place[VJ_WIRE_UUID_BYTES], instance[VJ_WIRE_UUID_BYTES];
    int64_t answered_us; /* the last time that it answered anything */
    bool is_silent;      /* a get took long, and nothing came meanwhile */
    uint32_t gets_us[VJ_REMOTE_GETS_KEPT]; /* by 64 KiB */
    unsigned gets_count;
    int64_t hedge_us;     /* of what these say; by 64 KiB */
    GQueue held;          /* of VjRemoteHeld: puts not durable here, in order of number */
    uint64_t held_number; /* of the last one */
    GQueue removes;       /* of VjRemoteOp (a reference), to go out */
    unsigned removes_in_flight;
    char *refusal; /* why it refused this client the last time, for people; owned, NULL */
    int refusal_rc;   /* what it said */
    GArray *orphans;  /* of VjWireObject: to be removed when it is live */
    bool has_removes; /* that no FLUSH_REMOVES has covered */
};

/* ---- what is durable where --------------------------------------------------------- */

/* A put, from its first acknowledgement until it is durable or removed. */
typedef struct VjRemotePut {
    uint64_t id, nonce;         /* the key */
    unsigned refs;              /* guarded by the store's lock, as the rest */
    uint64_t number;            /* of the store's returned; 0: has not returned */
    bool is_over;               /* durable, removed or failed: in no table */
    bool is_removed;            /* its caller has done so */
    bool is_degraded;           /* and counted */
    VjNodeSet pending, durable; /* replicas */
    VjNodeSet doubtful;         /* replicas of which a FLUSH said that they may be lost */
    GList link;                 /* in returned order */
} VjRemotePut;

typedef struct VjRemoteHeld {
    VjRemotePut *put; /* a reference */
    uint64_t number;
} VjRemoteHeld;

struct VjRemote {
    VjStore base;
    /* never change after open: */
    bool read_only;
    bool is_new;  /* mkfs: all nodes are empty */
    bool is_open; /* set at the end of open: from now on changes of nodes are counted */
    unsigned replicas;
    int64_t timeout_us, silence_us;
    /* VJ_PLACEMENT_NODES_MAX of them.  The first vj_remote_count() are those of the list;
     * the next one is made by the thread that adds it. */
    VjRemoteNode *nodes;
    VjCredentials *credentials;
    GByteArray *hello;        /* of a mount */
    GByteArray *create_hello; /* of a place that is to become this volume's */
    gint node_count;          /* atomic; grows under the lock */

    VjMutex lock;   /* VJ_RANK_STORE */
    VjCond changed; /* calls that threads wait for; nodes */
    VjCond timer_changed;
    /* guarded by lock: */
    uint32_t weights[VJ_PLACEMENT_NODES_MAX]; /* 0: is to be emptied */
    VjNodeSet places;                         /* of the list, without holes */
    VjNodeSet live;
    VjNodeSet leaving; /* are about to be removed: no put goes there */
    uint32_t own_weights[VJ_PLACEMENT_NODES_MAX]; /* as the list says, or said */
    uint64_t changes, degraded_puts;
    uint64_t connects; /* of all nodes */
    GSequence *timers; /* of VjRemoteOp (a reference), the next one first */
    GQueue waiting;    /* of VjRemoteOp, each with a timer: for a node, or for room */
    bool timers_stop;
    GThread *timer_thread;
    bool stop;                     /* the store closes: requests of its own end */
    unsigned own_ops;              /* of these */
    uint64_t hedge_credit, hedges; /* in gets */
    GHashTable *puts;              /* set of VjRemotePut: returned or not, not over */
    GQueue returned;       /* of VjRemotePut by their links: returned and not over */
    GHashTable *late_puts; /* set of VjRemotePut: over, and pending somewhere */
    uint64_t returned_number;
    uint64_t held_count;        /* of all nodes */
    GHashTable *suspects;       /* of remote-suspect.c, by VjWireObject */
    bool has_too_many_suspects; /* and it was said */
    GHashTable *healing;        /* set of VjWireObject, of the threads that heal them */
    bool is_flushing;           /* by itself */
    uint64_t own_flushes;       /* begun so */
    uint64_t lost_flush;        /* of these, the last one that found puts to be lost */
};

/* Places of the list.  Threads: any. */
static inline unsigned vj_remote_count(const VjRemote *r)
{
    return (unsigned)g_atomic_int_get(&r->node_count);
}

/* ---- the list as text: remote-spec.c ----------------------------------------------- */

bool vj_remote_is_hole(const char *address);
/* Owned; NULL: @opts names no list of nodes, or not a good one. */
char **vj_remote_nodes_of(const VjOpts *opts, GError **error);
/* Of each of @nodes, as many as these: 0 of a hole, and of one that is to be emptied. */
bool vj_remote_weights_of(const VjOpts *opts, char *const *nodes, uint32_t *weights,
                          GError **error);
bool vj_remote_check(const VjOpts *opts, GError **error);
bool vj_remote_change_list(VjOpts *opts, const VjNodeChange *change, GError **error);

/* ---- the list of a store that is open: remote-change.c ----------------------------- */

bool vj_remote_change_begin(VjStore *s, const VjNodeChange *change, GError **error);
void vj_remote_change_end(VjStore *s, const VjNodeChange *change, bool is_listed);
bool vj_remote_loc_names(VjStore *s, VjLoc loc, unsigned index);
bool vj_remote_loc_at(VjStore *s, VjLoc loc, unsigned index, VjLoc *out);

/* remote-node.c; what is known of nodes: remote-state.c */
bool vj_remote_node_open(VjRemoteNode *node, VjSlice hello, int64_t silence_us,
                         GError **error);
void vj_remote_node_close(VjRemoteNode *node);
/* It is not live any more, if it was. */
void vj_remote_node_away(VjRemoteNode *node) VJ_REQUIRES(node->r->lock);
/* A call of @node's that was sent at @connects has ended with @rc: what that says of
 * it.  The store's lock is held, as by the next two. */
void vj_remote_node_answered(VjRemoteNode *node, const VjRpcCall *call,
                             uint64_t connects);
/* A get of @len bytes took @us. */
void vj_remote_node_note_get(VjRemoteNode *node, size_t len, int64_t us);
/* After so long a get of @len bytes asks another node as well. */
int64_t vj_remote_node_hedge_us(const VjRemoteNode *node, size_t len);
/* For lines of K=V: without blanks; and for people. */
const char *vj_remote_state_word(VjRemoteState state);
const char *vj_remote_state_text(VjRemoteState state);
/* The call failed as the node is not there, or gives no answer: it has said nothing of
 * the object. */
bool vj_remote_is_lost(const VjRpcCall *call);

/* ---- requests in flight ------------------------------------------------------------ */

/* What each kind of request does when something happened. */
typedef struct VjRemoteOpKind {
    size_t size; /* of the struct that begins with VjRemoteOp */
    /* A call of it was answered; no lock is held.  @at_us: when it was sent, @life: of
     * the node then. */
    void (*answered)(VjRemoteOp *op, VjRemoteNode *node, VjRpcCall *call, int64_t at_us,
                     uint64_t life);
    /* Its timer has fired, or what it waited for may be there.  No lock is held. */
    void (*resume)(VjRemoteOp *op);
    void (*clear)(VjRemoteOp *op); /* NULL: owns nothing */
    /* op->is_canceled was set just now; no lock is held.  NULL: what is in flight takes
     * its time. */
    void (*cancel)(VjRemoteOp *op);
} VjRemoteOpKind;

struct VjRemoteOp {
    gint refs;
    const VjRemoteOpKind *kind;
    VjRemote *r;
    VjIo *io; /* NULL: of the store's own */
    int64_t deadline_us;
    uint64_t nonce;
    VjNodeSet nodes; /* of the locator */
    uint8_t order[VJ_PLACEMENT_NODES_MAX];

    /* guarded by the store's lock: */
    bool has_helper;    /* its caller waits for it at once, and runs the loop of rpc */
    bool is_over;       /* completed, or about to be */
    bool is_canceled;   /* its caller wants nothing of it any more */
    bool is_waiting;    /* is in the queue of those that wait */
    unsigned in_flight; /* calls */
    GList wait_link;
    GSequenceIter *timer;
    int64_t timer_us;
};

/* Returns owned.  @io NULL: a request of the store's own. */
VjRemoteOp *vj_remote_op_new(const VjRemoteOpKind *kind, VjRemote *r, VjIo *io);
VjRemoteOp *vj_remote_op_ref(VjRemoteOp *op);
void vj_remote_op_unref(VjRemoteOp *op);
/* Completes the room's request, once; @op->is_over was set by the caller with the lock
 * held. */
void vj_remote_op_complete(VjRemoteOp *op, int rc, const VjPut *put);
/* Sets the timer, instead of one that is set.  The store's lock is held, as by the next
 * two. */
void vj_remote_op_set_timer(VjRemoteOp *op, int64_t at_us);
void vj_remote_op_clear_timer(VjRemoteOp *op);
/* Resumed when a node came, or there is room, and at the latest at @at_us. */
void vj_remote_op_wait(VjRemoteOp *op, int64_t at_us);
/* All that wait are resumed, by the thread of the timers. */
void vj_remote_resume_all(VjRemote *r) VJ_REQUIRES(r->lock);
/* Takes @call, and sends it: answered() of @op follows.  op->in_flight counts it
 * already. */
void vj_remote_op_send(VjRemoteOp *op, VjRemoteNode *node, VjRpcCall *call);
/* Around a request of the store's own, both with the store's lock held; false: it closes.
 * Stop waits for all of them. */
bool vj_remote_own_begin(VjRemote *r) VJ_REQUIRES(r->lock);
void vj_remote_own_end(VjRemote *r);
void vj_remote_own_stop(VjRemote *r);
/* Runs what is due, and returns when the next timer is; INT64_MAX: there is none. */
int64_t vj_remote_timers_run(VjRemote *r);
bool vj_remote_timers_start(VjRemote *r, GError **error);
void vj_remote_timers_stop(VjRemote *r);
void vj_remote_put(VjRemote *r, VjIo *io);
void vj_remote_get(VjRemote *r, VjIo *io);
void vj_remote_remove(VjRemote *r, VjIo *io);
/* @io NULL: by itself. */
void vj_remote_flush(VjRemote *r, VjIo *io);
/* Removes the object, which nothing names, at @nodes without an answer to anybody; where
 * they are away, when they are there again. */
void vj_remote_remove_at(VjRemote *r, uint64_t id, uint64_t nonce, VjNodeSet nodes);
/* Sends removes that waited for more to come. */
void vj_remote_push_removes(VjRemote *r);
/* @node is live: what waited for that is removed. */
void vj_remote_remove_orphans(VjRemoteNode *node);

/* ---- remote-durable.c; all with the store's lock held ------------------------------ */

VjRemotePut *vj_remote_put_begin(VjRemote *r, uint64_t id, uint64_t nonce);
/* @node has acknowledged it in @life.  False: that life has ended. */
bool vj_remote_put_acknowledge(VjRemotePut *put, VjRemoteNode *node, uint64_t life);
/* The put returns to its caller, or failed: nothing was acknowledged then.  Drops the
 * caller's reference. */
void vj_remote_put_return(VjRemote *r, VjRemotePut *put, bool failed);
/* The object is removed: flush need not care for it. */
void vj_remote_put_forget(VjRemote *r, uint64_t id, uint64_t nonce);
/* All puts up to @number are durable at @node. */
void vj_remote_node_durable(VjRemoteNode *node, uint64_t number);
/* They may be lost there: FLUSH said so. */
void vj_remote_node_doubt(VjRemoteNode *node, uint64_t number);
/* All that @node held is lost: it has another life; @disk: and another disk. */
void vj_remote_node_lose(VjRemoteNode *node, bool disk);
void vj_remote_durable_init(VjRemote *r);
void vj_remote_durable_clear(VjRemote *r);
/* Takes @put, which is durable somewhere, out of the tables. */
void vj_remote_put_end(VjRemote *r, VjRemotePut *put);

/* ---- remote-suspect.c: replicas that nobody counts on ------------------------------ */

void vj_remote_suspect_init(VjRemote *r);
void vj_remote_suspect_clear(VjRemote *r);
/* The replicas at @nodes, none or more, are so. */
void vj_remote_suspect_note(VjRemote *r, const VjWireObject *object, VjNodeSet nodes)
    VJ_REQUIRES(r->lock);
VjNodeSet vj_remote_suspects(VjRemote *r, const VjWireObject *object)
    VJ_REQUIRES(r->lock);
/* Those at @nodes are so no more. */
void vj_remote_suspect_end(VjRemote *r, const VjWireObject *object, VjNodeSet nodes)
    VJ_REQUIRES(r->lock);
/* @node is not in the list any more. */
void vj_remote_suspect_forget(VjRemote *r, const VjRemoteNode *node) VJ_REQUIRES(r->lock);
/* False: another thread heals it.  @object stays until the end. */
bool vj_remote_heal_begin(VjRemote *r, VjWireObject *object, VjNodeSet *suspect);
/* @mended: replicas that are suspect no more. */
void vj_remote_heal_end(VjRemote *r, VjWireObject *object, VjNodeSet mended);

/* ---- calls that a thread waits for ------------------------------------------------- */

/* Sends each call[i] to nodes[i], and waits until all are answered; NULL calls are left
 * out.  The calls stay the caller's. */
void vj_remote_run(VjRemote *r, const unsigned *nodes, VjRpcCall *const *calls,
                   unsigned count);
/* Until something changed, or @until_us. */
void vj_remote_wait_until(VjRemote *r, int64_t until_us) VJ_REQUIRES(r->lock);
int64_t vj_remote_deadline_us(const VjRemote *r);
VjNodeSet vj_remote_live(VjRemote *r);
/* Those that are to be emptied. */
VjNodeSet vj_remote_draining(VjRemote *r);
VjNodeSet vj_remote_places(VjRemote *r);
/* The order of the nodes for an object. */
void vj_remote_rank(VjRemote *r, uint64_t id, uint8_t *order);
/* Owned. */
VjRpcCall *vj_remote_call_new(const VjRemote *r, uint16_t op);
VjRpcCall *vj_remote_objects_call(const VjRemote *r, uint16_t op,
                                  const VjWireObject *objects, uint32_t count);

int vj_remote_each(VjStore *s, uint64_t first_id, uint64_t last_id, VjStoreVisit *visit,
                   void *opaque);
/* There is room for one more put that no flush has covered.  The store's lock is held. */
bool vj_remote_has_room(const VjRemote *r);
int vj_remote_put_plain(VjStore *s, uint64_t id, const VjStoreWant *want,
                        const void *bytes, size_t len, VjPut *out, VjStoreForm *form);
int vj_remote_get_plain(VjStore *s, uint64_t id, VjLoc loc, const VjStoreForm *form,
                        uint32_t offset, uint32_t len, const VjStoreWant *wire,
                        VjBuf **bytes, bool *is_encoded);
int vj_remote_digest(VjStore *s, uint64_t id, VjLoc loc, const VjStoreForm *form,
                     uint8_t algorithm, VjDigest *out);
int vj_remote_space(VjStore *s, VjStoreSpace *out);
int vj_remote_flush_removes(VjStore *s);
int vj_remote_heal(VjStore *s, const VjPut *object, VjStoreVerify *verify, void *opaque,
                   VjStoreHealed *out);
int vj_remote_trim(VjStore *s, const VjPut *object, VjStoreVerify *verify, void *opaque,
                   VjStoreHealed *out);
int vj_remote_survey(VjStore *s, const VjPut *puts, size_t count, bool *wants);

#endif
