/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * store.h - immutable objects: the face of the room store
 *
 * A store keeps opaque bytes under a 64-bit object id that is unique for ever.  Objects
 * are put once and never change; replacing one is a put of another id.  Durability comes
 * in batches: what flush() covers survives a crash, anything else may or may not.
 *
 * Drivers stand in drivers.c; wrappers (fault, stats) are stores that call s->next.
 * Callers use the vj_store_ functions, which assert the request before and the result
 * after; no other code calls through ops.
 */
#ifndef VJ_STORE_STORE_H
#define VJ_STORE_STORE_H

#include "base/base.h"

/* Largest object with its trailer that a store has to take, bytes. */
#define VJ_STORE_OBJECT_MAX ((uint64_t)32 << 20)
/* Most pieces of one put. */
#define VJ_STORE_IOV_MAX 64

#define VJ_LOC_BYTES 16u

/* Where a driver keeps an object.  Its own bytes; other ones for every put, even of equal
 * bytes. */
typedef struct VjLoc {
    uint8_t bytes[VJ_LOC_BYTES];
} VjLoc;

/* What is known of one stored object: the result of a put, the argument of stage. */
typedef struct VjPut {
    uint64_t id;
    VjLoc loc;
    uint64_t stored_bytes; /* as put, without what the device rounds up */
} VjPut;

typedef struct VjStore VjStore;

/* The space of the place behind a store. */
typedef struct VjStoreSpace {
    uint64_t total_bytes;
    uint64_t free_bytes; /* as root sees it */
    /* as an ordinary user sees it: what the file system reports */
    uint64_t available_bytes;
    /* how many more objects it can hold; UINT64_MAX: only bytes count */
    uint64_t available_objects;
} VjStoreSpace;

/*
 * VjIo - one request in flight, with the buffer that it reads or fills
 *
 * Counted: the caller has one reference, the store one for as long as the driver may
 * touch the buffer, which can be long after done() was called with -ETIMEDOUT or
 * -ECANCELED.
 */
typedef enum VjIoOp {
    VJ_IO_PUT,
    VJ_IO_GET,
    VJ_IO_REMOVE,
    VJ_IO_FLUSH,
    /* The room's own, for calls with a deadline; no driver gets them by submit: */
    VJ_IO_FLUSH_REMOVES,
    VJ_IO_SPACE,
    VJ_IO_PUT_AS
} VjIoOp;

/* One thing that is to be known of a store: @name of [a-z_], @value a line of text; both
 * borrowed. */
typedef void VjStoreTell(void *opaque, const char *name, const char *value);

typedef struct VjIo VjIo;
struct VjIo {
    /* The request; does not change after submit. */
    VjIoOp op;
    uint64_t id;
    VjLoc loc;       /* get, remove */
    uint64_t nonce;  /* of VJ_IO_PUT_AS */
    uint64_t offset; /* get */
    size_t len;      /* put, get */
    VjBuf *buf;      /* put: len bytes, but for the lead; get: takes them; a reference */
    /* put: what it begins with, lead_len at lead_data, which are in this buffer; a
     * reference.  NULL: nothing. */
    VjBuf *lead;
    const uint8_t *lead_data;
    size_t lead_len;
    int64_t deadline_us; /* of vj_clock_mono_us; 0: as the store's timeout says */
    bool has_helper;     /* the store's: whoever submits it waits for it at once */
    bool is_checked;     /* get: see vj_store_get_checked */
    bool more;           /* remove: push comes, before its caller waits for it */
    /*
     * Called once, perhaps before submit returns, by any thread: of the driver, the store
     * or the caller.  Must not block, submit or close; no lock is held.  The caller's
     * reference may be dropped in it.
     */
    void (*done)(VjIo *io);
    void *opaque; /* the caller's */
    /* The answer, from done() on: as of the synchronous call, -ETIMEDOUT or -ECANCELED.
     */
    int rc;
    VjPut put;          /* of a put, also put_as, with rc 0 */
    VjStoreSpace space; /* of VJ_IO_SPACE with rc 0 */
    /* the store's: */
    gint refs;
    VjStore *store;    /* that it was submitted to */
    VjIo *child;       /* of a wrapper: what it submitted to the next store */
    uint64_t begun_ns; /* of the stats wrapper: vj_clock_mono_ns() at submit */
    void *of_driver;   /* the driver's, from submit until it completes @io */
    /* guarded by the queue's lock, as the rest: */
    VjIo *deadline_before, *deadline_next; /* of those that are watched */
    bool is_watched;
    bool is_waiting; /* for a worker */
    bool is_answered;
};

/*
 * A key change in the driver's own space (VJ_SPACE_STORE of meta) that has to be
 * committed together with the puts and removes that it belongs to.  value_len 0: delete
 * the key.
 */
typedef struct VjStoreChange {
    uint8_t key[64];
    uint32_t key_len;
    uint8_t value[64];
    uint32_t value_len;
} VjStoreChange;

/* The replicas of a store, and what may be wrong with them. */
typedef struct VjStoreHealth {
    unsigned replicas;                    /* of each object, when all is well */
    unsigned nodes, live, dead, draining; /* a draining one is live or dead as well */
    uint64_t degraded_puts; /* since open, that went to fewer nodes than replicas */
    /* Rises when a node was lost, came back, or came back without its disk: objects may
     * want heal() since. */
    uint64_t changes;
} VjStoreHealth;

/* Where an object is after heal and trim. */
typedef struct VjStoreHealed {
    VjLoc loc;     /* for its record; the same_loc() */
    bool can_trim; /* there is something for trim to do, when that record is durable */
} VjStoreHealed;

/* One of the nodes, for people. */
typedef struct VjStoreNode {
    char address[256]; /* cut where it is longer */
    const char *state; /* "live", "away", …: one word; static */
    bool is_live, is_draining;
    uint32_t weight;
    uint64_t requests, sent_bytes, received_bytes, losses;
} VjStoreNode;

/* A change of the list of nodes. */
typedef enum VjNodeChangeKind {
    VJ_NODE_ADD,    /* or, of one that is in the list: it has another weight */
    VJ_NODE_DRAIN,  /* it gets no new objects, and is emptied by heal() */
    VJ_NODE_REMOVE, /* it is in the list no more */
} VjNodeChangeKind;

typedef struct VjNodeChange {
    VjNodeChangeKind kind;
    const char *address; /* as the list has it, or is to have it */
    uint32_t weight;     /* ADD: its share of the objects, 1 to 1000 */
    bool is_forced;      /* REMOVE: it has not been drained */
} VjNodeChange;

/* Reads [@offset, @offset + @len) of @fd. */
typedef int VjStoreUseFile(void *opaque, int fd, uint64_t offset, size_t len);

/* The whole of a stored object: is it what was put? */
typedef bool VjStoreVerify(void *opaque, VjSlice stored);

/* Keys of a driver's own that are not as stage() wrote them. */
typedef struct VjStoreBadKeys {
    uint64_t mended; /* what they said is known all the same, and goes by */
    uint64_t lost;   /* where an object is, nobody knows */
} VjStoreBadKeys;

/* Removed objects that the device did not let a driver overwrite. */
typedef struct VjStoreErasures {
    uint64_t waiting;  /* they are there still, and are tried again */
    uint64_t given_up; /* since open: they went, and their bytes may be left */
} VjStoreErasures;

/* false: stop the walk.  @mtime_us: when it was put, microseconds of the wall clock. */
typedef bool VjStoreVisit(void *opaque, const VjPut *object, int64_t mtime_us);

/* One of a driver's own keys, borrowed for the call.  False: stop. */
typedef bool VjStoreKeyVisit(void *opaque, VjSlice key, VjSlice value);

/* Reads what stage() of earlier mounts said, out of the committed state. */
typedef struct VjStoreKeys {
    /* Visits each key in order.  0, also when it was stopped; errors of meta. */
    int (*each)(void *from, VjStoreKeyVisit *visit, void *opaque);
    void *from;
} VjStoreKeys;

/* The place a driver is opened on. */
typedef struct VjStorePlace {
    int dir_fd; /* the directory SOURCE/objects, borrowed; -1: the driver needs none */
    const char *path; /* its path or the device's, for messages; borrowed */
    /* The directory against which the spec's relative names of credential files are
     * resolved, and its path, for messages; borrowed.  NULL: there is none, such a name
     * is refused, and the descriptor, which is -1 then, is not looked at. */
    int credentials_dir_fd;
    const char *credentials_dir;
    /* The volume whose objects it keeps: create writes it down, any other open refuses
     * the place of another volume.  Borrowed; NULL: not compared. */
    const char *volume;
    /* The driver's own keys, for the time of open alone; borrowed.  NULL: there are none
     * (mkfs), or the caller only asks whose place it is and uses no object. */
    const VjStoreKeys *keys;
    bool create;  /* mkfs: make what is missing; else a missing place is an error */
    bool destroy; /* with create: a volume elsewhere that has the place is removed */
    bool read_only;
    /* Repair: what another copy of the metadata has used since is taken, too. */
    bool adopt;
    /* Others may have it open at the same time, or will: refused where the driver has it
     * alone. */
    bool shared;
} VjStorePlace;

/*
 * How content stands in an object, as its record says: for stores behind which a node
 * does the work of the room object.  Numbers of codecs and digests are those on disk.
 */
typedef struct VjStoreForm {
    uint8_t codec; /* what the bytes are encoded with */
    uint8_t param;
    uint32_t key_id;
    uint32_t plain_bytes, stored_bytes;
    uint64_t trailer_checksum;
} VjStoreForm;

/* What a node is to make of content, and how that comes to it. */
typedef struct VjStoreWant {
    uint8_t codec, param;
    int8_t level;
    uint32_t plain_bytes;
    /* The bytes that are sent are encoded with it, in one run; 0: they are the
     * content. */
    uint8_t wire_codec, wire_param;
} VjStoreWant;

typedef struct VjStoreOps {
    const char *name;         /* what "store=" selects; also names its man page */
    const VjOptSpec *options; /* ends with a NULL name; --help and man checks read it */
    size_t instance_size;     /* bytes; the instance begins with VjStore */
    /* VJ_NEEDS_… of the process; FILES: the directory of VjStorePlace.  A wrapper: 0. */
    uint32_t needs;
    /* The same, where options decide it; NULL: needs. */
    uint32_t (*needs_of)(const VjOpts *opts);
    /* Whether the options go together, beyond what their table says.  Touches nothing.
     * NULL: any do; else open() checks them too. */
    bool (*check)(const VjOpts *opts, GError **error);
    /*
     * What addresses of buffers, offsets, and the lengths of all pieces but the last of a
     * put are multiples of; a power of 2 up to VJ_BUF_ALIGN; 1: any.  The last piece of a
     * put and a get have any length, and their buffer room for the length rounded up: the
     * driver may read (put) or write (get) all of that, and stored_bytes and errors go by
     * the true length.
     */
    uint32_t align_bytes;
    /*
     * Several stores may be open on one place, in one process or in many, and put,
     * remove, flush and list beside each other: each object is put by one of them, flush
     * answers for the puts of its own store.  False: what is kept in memory, or in the
     * driver's own keys, is right for one store at a time.
     */
    bool is_shareable;

    /* Setup only; may block.  @opts was made from @options. */
    bool (*open)(VjStore *s, const VjStorePlace *place, const VjOpts *opts,
                 GError **error);
    /* Setup only; every request has completed.  Never fails; what it cannot do, it logs.
     */
    void (*close)(VjStore *s);
    /*
     * Keep the bytes of @iov as object @id.  @out: id, locator, stored length.
     * Threads: any; blocks.  Locks: none held.  Crash: survives only after flush().
     * -ENOSPC, -EDQUOT, -EIO, -EROFS, -ETIMEDOUT; after a failure nothing is stored under
     * @id that get() would find with a locator that was never returned.
     */
    int (*put)(VjStore *s, uint64_t id, const struct iovec *iov, int iov_count,
               VjPut *out);
    /* Of a wrapper, which hands vj_store_put_held on.  NULL: put() does. */
    int (*put_held)(VjStore *s, uint64_t id, VjBuf *holder, const struct iovec *iov,
                    int iov_count, VjPut *out);
    /*
     * put() under a number that the caller chose, for a driver that stands behind a node
     * (varjfsd): on each node an object has the same one.  An object of that id and
     * number which is there already is replaced, and has the same bytes: whatever was
     * durable of it stays so until this returned.  After a failure that object may be
     * there or not.  These four, or none of them: NULL.
     */
    int (*put_as)(VjStore *s, uint64_t id, uint64_t nonce, const struct iovec *iov,
                  int iov_count, VjPut *out);
    /* The locator of what put_as() puts under @nonce, or did.  False: a locator that this
     * driver never makes.  Threads: any; does not block. */
    VjLoc (*loc_of_nonce)(VjStore *s, uint64_t nonce);
    bool (*nonce_of_loc)(VjStore *s, VjLoc loc, uint64_t *nonce);
    /* With put_as: is it there, and how long?  -ENOENT; -EBADMSG no object of this
     * driver's, -EIO.  Reads no byte of it.  Threads: any; blocks. */
    int (*length)(VjStore *s, uint64_t id, VjLoc loc, uint64_t *stored_bytes);
    /*
     * Two locators of one id name the same object, however many replicas each knows of.
     * NULL: where they are equal.  Threads: any; does not block.
     */
    bool (*same_loc)(VjStore *s, VjLoc a, VjLoc b);
    /*
     * Exactly @len bytes from @offset.  A shorter object, or a locator that this driver
     * never made, is -EBADMSG; -ENOENT, -EIO, -ETIMEDOUT.  Threads: any; blocks.  @dst
     * undefined on failure.
     */
    int (*get)(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
               size_t len);
    /* Of a wrapper, which hands vj_store_get_checked on.  NULL: get() does. */
    int (*get_checked)(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                       size_t len);
    /*
     * As get(), by what the driver reads them from: @use is called with a descriptor of a
     * regular file that has them at *its* offset, and what it returns is returned.  The
     * descriptor is its for that long.  Nothing is known of the bytes, not even that they
     * are there: @use finds out.  NULL, -EOPNOTSUPP: the caller gets them.  Threads: any;
     * blocks.
     */
    int (*with_file)(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, size_t len,
                     VjStoreUseFile *use, void *opaque);
    /*
     * A get() of the whole object follows soon: begins to bring it nearer and waits for
     * nothing that get() would wait for.  A hint: no failure is reported, and none
     * changes what a get() returns.  NULL: there is nothing to bring.  Threads: any.
     */
    void (*expect)(VjStore *s, uint64_t id, VjLoc loc);
    /*
     * The lowest id from @id on that suits the driver for a new object; ids between are
     * better left out.  Advice: a put takes any id.  Asked once for each put, with ids
     * that mostly grow.  NULL: @id.  Threads: any; does not block.
     */
    uint64_t (*prefer)(VjStore *s, uint64_t id);
    /*
     * 0 if absent: replay repeats it.  -EBADMSG: a locator that this driver never made;
     * -EIO, -EROFS, -ETIMEDOUT.  After -EIO its bytes may be gone or not, flush() answers
     * for it no more, and it is to be removed again: where a driver overwrites what it
     * removes and cannot, that is tried a number of times before it goes as it is
     * (erase.h).  Threads: any; blocks.
     */
    int (*remove)(VjStore *s, uint64_t id, VjLoc loc);
    /*
     * Every put that returned before the call, and was not removed, survives a crash when
     * this returns 0.  Threads: any; callers that overlap share one device sync.  -EIO
     * (or -ENOSPC, -EDQUOT): which of the puts since the last good flush are on the
     * device is unknown, and no later sync finds out.  So every flush fails until those
     * puts are removed: put the bytes again under a new id, remove the old one, flush.
     */
    int (*flush)(VjStore *s);
    /*
     * Every object whose remove returned before the call stays away after a crash when
     * this returns 0; else it may be back, with zeroes for its bytes where the driver
     * overwrites them.  NULL: no object survives its remove, or none
     * survives the process.  Threads: any; blocks.  -EIO: as if it had not been called.
     */
    int (*flush_removes)(VjStore *s);
    /*
     * NULL: the driver has no state of its own.  Key changes that belong to these puts
     * and removes are appended to @changes (element type VjStoreChange); the caller
     * commits them in the transaction that adds or drops the records of the objects,
     * which may run again: the same puts and removes give the same changes.  Called after
     * the put or remove, also for removed objects that were never added to any
     * transaction.  No I/O; any thread.
     */
    int (*stage)(VjStore *s, const VjPut *added, size_t added_count, const VjPut *removed,
                 size_t removed_count, GArray *changes);
    /*
     * The transaction with what stage() said of these removes is committed: whatever a
     * crash takes later, their keys do not come back alone, and their place may be used
     * again.  Not called while that is unknown.  NULL: nothing to do.  No I/O; any
     * thread.
     */
    void (*removes_committed)(VjStore *s, const VjPut *removed, size_t removed_count);
    /*
     * What open() found of its own keys that is damaged.  @changes, unless NULL, gets
     * what makes them right, or deletes them, for the caller to commit; the driver does
     * not tell a second time.  NULL: it has no keys.  No I/O; any thread.
     */
    void (*bad_keys)(VjStore *s, GArray *changes, VjStoreBadKeys *out);
    /*
     * The store was opened by a user that may write.  claim() appends key changes to
     * @changes; when they are durable, and before the first put, claimed() says on the
     * device that this mount used it, so that another copy of the metadata is refused
     * from then on.  A driver has both or neither; NULL: nothing is said.  Setup only,
     * before wrappers are put around it; claimed() blocks.  -EIO, -ENOMEM.
     */
    int (*claim)(VjStore *s, GArray *changes);
    int (*claimed)(VjStore *s);
    /* What is to be known of it beside its space.  NULL: nothing.  No I/O; any thread. */
    void (*describe)(VjStore *s, VjStoreTell *tell, void *opaque);
    /* NULL: it overwrites nothing.  No I/O; any thread. */
    void (*erasures)(VjStore *s, VjStoreErasures *out);
    /*
     * What is below it may have become longer: uses all of that from now on.  @gained:
     * bytes.  NULL: it uses what is there anyway.  -EROFS, -EIO; -EBUSY: another call
     * does it.  Threads: any; blocks.
     */
    int (*grow)(VjStore *s, uint64_t *gained);
    /*
     * Visit each stored object with first_id <= id <= last_id, in no order; one that is
     * put or removed meanwhile may or may not be seen.  For recovery, fsck and gc.
     * Blocks.
     */
    int (*each)(VjStore *s, uint64_t first_id, uint64_t last_id, VjStoreVisit *visit,
                void *opaque);
    /*
     * Brings @object to its full number of replicas, each of which @verify has seen, on
     * the nodes that ought to have them.  Bad ones are removed, and no good one is: @out
     * names old and new ones.  What it put is durable.  Threads: any, one at a time for
     * one object, with trim; blocks.  -ENOENT no replica anywhere, -EBADMSG no good one,
     * -EAGAIN too few nodes are there (what could be done is done, and @out holds) or not
     * all of them could be asked, -EIO, -EROFS.  NULL: the driver has no replicas; the
     * five that follow, too.
     */
    int (*heal)(VjStore *s, const VjPut *object, VjStoreVerify *verify, void *opaque,
                VjStoreHealed *out);
    /*
     * Follows a heal whose can_trim says so: removes the replicas that are one too many,
     * and puts those anew that nobody counts on, as far as others that @object's locator
     * names make up for them: it has to be in the object's durable record.  As heal, and
     * the locator of @out need not be durable.
     */
    int (*trim)(VjStore *s, const VjPut *object, VjStoreVerify *verify, void *opaque,
                VjStoreHealed *out);
    /*
     * Which of these objects want heal(): *wants of each, from what the nodes say that
     * they have; no replica is read.  Threads: any; blocks.  -EAGAIN not all nodes that
     * are live could be asked.
     */
    int (*survey)(VjStore *s, const VjPut *puts, size_t count, bool *wants);
    /* Threads: any; does not block. */
    void (*health)(VjStore *s, VjStoreHealth *out);
    /* What is known of node @index, from 0.  False: there is no such place in the list;
     * one that was removed from it is not live and has no address. */
    bool (*node)(VjStore *s, unsigned index, VjStoreNode *out);
    /* The node gets no new objects and is to be emptied by heal(), until it is drained
     * no more or the store is opened again.  False: there is no such node. */
    bool (*drain)(VjStore *s, unsigned index, bool drained);
    /*
     * Changes of the list of nodes, one at a time.  change_list: of the options; pure.
     * change_begin: what has to be done before the new list is durable; false: nothing is
     * changed.  change_end follows it: @is_listed, the list is durable, and the store
     * goes by it; else what change_begin did is undone.  loc_names: a replica may be at
     * node @index.  loc_at: of the same object, naming that node alone; false: there is
     * no such node.  Threads: one at a time, loc_names and loc_at any; change_begin
     * blocks.  NULL: the list does not change; the four that follow, too.
     */
    bool (*change_list)(VjOpts *opts, const VjNodeChange *change, GError **error);
    bool (*change_begin)(VjStore *s, const VjNodeChange *change, GError **error);
    void (*change_end)(VjStore *s, const VjNodeChange *change, bool is_listed);
    bool (*loc_names)(VjStore *s, VjLoc loc, unsigned index);
    bool (*loc_at)(VjStore *s, VjLoc loc, unsigned index, VjLoc *out);
    /* Free and total bytes now; cheap enough for once a second.  -EIO. */
    int (*space)(VjStore *s, VjStoreSpace *out);
    /*
     * The digest of an object's content, computed where the bytes are, after they were
     * compared with their checksums.  -EBADMSG: they are not what was stored; -ENOENT,
     * -EIO, -ETIMEDOUT; -EOPNOTSUPP: a transformation or digest that is not known there.
     * NULL: the caller reads the object.  Threads: any; blocks.
     */
    int (*digest)(VjStore *s, uint64_t id, VjLoc loc, const VjStoreForm *form,
                  uint8_t algorithm, VjDigest *out);
    /*
     * As put and get, but of content: the stored form is made, checked and taken apart
     * where the bytes are.  put_plain: @bytes are what @want says; *form is what was made
     * of them.  get_plain: *bytes, owned, with its len set, is the range [@offset,
     * @offset + @len) of the content, or that encoded where *is_encoded; @wire has the
     * codec, and is NULL where none is wanted.  Nothing but the other side's word says
     * that it is right.  NULL, both: not offered; put and get find what the other has
     * put.
     */
    int (*put_plain)(VjStore *s, uint64_t id, const VjStoreWant *want, const void *bytes,
                     size_t len, VjPut *out, VjStoreForm *form);
    int (*get_plain)(VjStore *s, uint64_t id, VjLoc loc, const VjStoreForm *form,
                     uint32_t offset, uint32_t len, const VjStoreWant *wire,
                     VjBuf **bytes, bool *is_encoded);
    /*
     * Begins @io and calls vj_io_complete() once when it is over, before or after it
     * returns; until then the request's fields and its buffer stay.  At most
     * VJ_STORE_IN_FLIGHT_MAX at a time. The room watches the deadline and answers the
     * caller.  Threads: any; does not block. NULL: threads of the room call put, get,
     * remove and flush.  A driver that has submit may leave those four NULL.
     */
    void (*submit)(VjStore *s, VjIo *io);
    /* The caller has cancelled @io and was answered: it may be given up, and is completed
     * with any result.  A hint; may come when @io was completed just now.  NULL: nothing
     * can be given up.  At a deadline it is not called: the driver knows
     * @io->deadline_us. */
    void (*cancel)(VjStore *s, VjIo *io);
    /* Begins what was submitted with @io->more, and which a driver that has this may have
     * kept back, to ask for many at once.  Threads: any; does not block. */
    void (*push)(VjStore *s);
    /* The calling thread waits for an @io with has_helper and may do some of the driver's
     * work meanwhile: until @is_over, or for a while.  NULL: there is nothing to do. */
    void (*help)(VjStore *s, bool (*is_over)(void *opaque), void *opaque,
                 int64_t until_us);
} VjStoreOps;

struct VjStore {
    const VjStoreOps *ops;
    VjStore *next; /* the wrapped store; NULL for a driver */
    /* the room's: */
    uint32_t align_bytes; /* the largest of its own and of those below */
    struct VjIoQueue *queue;
    int64_t timeout_us;         /* of requests without a deadline; 0: none */
    struct VjSpaceCache *space; /* NULL: a wrapper stands in front */
};

/* Requests of a store that its driver has not let go of. */
#define VJ_STORE_IN_FLIGHT_MAX 1024u
/* Threads that run requests of a driver without submit. */
#define VJ_STORE_WORKERS_MAX 16u

/* The table of drivers, NULL-terminated; wrappers are not in it. */
extern const VjStoreOps *const vj_store_drivers[];

/*
 * vj_store_open - open a driver by name
 *
 * @spec     "name" or "name:K=V,K=V", for some drivers "name:LEADER:K=V,K=V"
 * Returns   true and *out owned (vj_store_close); false with a line that names the driver
 * Threads   setup only      Locks   none
 */
bool vj_store_open(const char *spec, const VjStorePlace *place, VjStore **out,
                   GError **error);

/* @spec names a driver of this build and options that it has.  Touches nothing. */
bool vj_store_spec_check(const char *spec, GError **error);

/* VJ_NEEDS_… of the driver that @spec names; 0 also where there is no such driver, which
 * opening it reports.  Touches nothing. */
uint32_t vj_store_needs(const char *spec);

/* The names of files with credentials, and of devices, that @spec has, appended.  None
 * where the driver or its options cannot be read.  Touches nothing. */
void vj_store_files(const char *spec, VjOptFiles *files);

/*
 * vj_store_wrap - put a wrapper in front of a store
 *
 * @spec     "stats", "latency:us=N" or "fault:K=V,…" (options: the wrapper's table)
 * @next     taken; closed when the wrapper is closed; still the caller's on failure
 */
bool vj_store_wrap(const char *spec, VjStore *next, VjStore **out, GError **error);

/* Closes wrappers outside in.  NULL is fine.  Setup only. */
void vj_store_close(VjStore *s);

/* VjStoreOps.align_bytes of the driver. */
uint32_t vj_store_align_bytes(VjStore *s);

/* The asserting callers: contracts as in VjStoreOps.  Where the store has a timeout, put,
 * get, remove, flush, flush_removes and space return -ETIMEDOUT at its end; the driver
 * may finish later.  each takes as long as it takes.  Where requests are in flight apart
 * from the caller's thread, because of a timeout or of a driver that has submit alone, a
 * caller that is given up (base/cancel.h) gets -ECANCELED; it has as long as the store's
 * timeout says, and without one as long as its VjCancel does (-ETIMEDOUT). */
int vj_store_put(VjStore *s, uint64_t id, const struct iovec *iov, int iov_count,
                 VjPut *out) G_GNUC_WARN_UNUSED_RESULT;
/* False: the driver has no put_as, and cannot stand behind a node; of one that is open,
 * and of a spec that vj_store_spec_check has found right. */
bool vj_store_can_put_as(const VjStore *s);
bool vj_store_spec_can_put_as(const char *spec);
int vj_store_put_as(VjStore *s, uint64_t id, uint64_t nonce, const struct iovec *iov,
                    int iov_count, VjPut *out) G_GNUC_WARN_UNUSED_RESULT;
VjLoc vj_store_loc_of_nonce(VjStore *s, uint64_t nonce);
bool vj_store_nonce_of_loc(VjStore *s, VjLoc loc,
                           uint64_t *nonce) G_GNUC_WARN_UNUSED_RESULT;
int vj_store_length(VjStore *s, uint64_t id, VjLoc loc,
                    uint64_t *stored_bytes) G_GNUC_WARN_UNUSED_RESULT;
/* Of one id, they name the same object. */
bool vj_store_same_loc(VjStore *s, VjLoc a, VjLoc b);
int vj_store_get(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                 size_t len) G_GNUC_WARN_UNUSED_RESULT;
/* As put and get, for pieces, buffers and offsets of any kind: by way of a buffer of
 * their own where the driver asks for it.  -ENOMEM. */
int vj_store_put_unaligned(VjStore *s, uint64_t id, const struct iovec *iov,
                           int iov_count, VjPut *out) G_GNUC_WARN_UNUSED_RESULT;
/*
 * As vj_store_put_unaligned; the first piece is a part of @holder, and its bytes do not
 * change as long as there are references to that: who goes on with them after the call
 * takes one, where else it would need a copy.  @holder borrowed; NULL: there is none.
 */
int vj_store_put_held(VjStore *s, uint64_t id, VjBuf *holder, const struct iovec *iov,
                      int iov_count, VjPut *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_store_get_unaligned(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                           size_t len) G_GNUC_WARN_UNUSED_RESULT;
/*
 * As vj_store_get_unaligned, for a caller that compares the bytes with checksums which it
 * has from elsewhere before it uses any of them.  So the way from the store to here need
 * not: -EBADMSG says less than it does of vj_store_get.
 */
int vj_store_get_checked(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                         size_t len) G_GNUC_WARN_UNUSED_RESULT;
int vj_store_with_file(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, size_t len,
                       VjStoreUseFile *use, void *opaque) G_GNUC_WARN_UNUSED_RESULT;
void vj_store_expect(VjStore *s, uint64_t id, VjLoc loc);
/* Whether vj_store_expect brings an object nearer: the driver and each wrapper before it
 * have expect.  If not, only a get does.  Threads: any.  Locks: none. */
bool vj_store_can_expect(const VjStore *s);
uint64_t vj_store_prefer(VjStore *s, uint64_t id);
int vj_store_remove(VjStore *s, uint64_t id, VjLoc loc) G_GNUC_WARN_UNUSED_RESULT;
/* What vj_store_remove says of each of @puts; together, where each call is a round
 * trip. */
void vj_store_remove_all(VjStore *s, const VjPut *puts, size_t count, int *results);
int vj_store_flush(VjStore *s) G_GNUC_WARN_UNUSED_RESULT;
int vj_store_flush_removes(VjStore *s) G_GNUC_WARN_UNUSED_RESULT;
int vj_store_stage(VjStore *s, const VjPut *added, size_t added_count,
                   const VjPut *removed, size_t removed_count,
                   GArray *changes) G_GNUC_WARN_UNUSED_RESULT;
void vj_store_removes_committed(VjStore *s, const VjPut *removed, size_t removed_count);
/* Of the driver, past all wrappers; none where it has no keys. */
void vj_store_bad_keys(VjStore *s, GArray *changes, VjStoreBadKeys *out);
/* Of the driver, whatever stands in front of it. */
void vj_store_describe(VjStore *s, VjStoreTell *tell, void *opaque);
void vj_store_erasures(VjStore *s, VjStoreErasures *out);
int vj_store_grow(VjStore *s, uint64_t *gained) G_GNUC_WARN_UNUSED_RESULT;
int vj_store_claim(VjStore *s, GArray *changes) G_GNUC_WARN_UNUSED_RESULT;
int vj_store_claimed(VjStore *s) G_GNUC_WARN_UNUSED_RESULT;
int vj_store_each(VjStore *s, uint64_t first_id, uint64_t last_id, VjStoreVisit *visit,
                  void *opaque) G_GNUC_WARN_UNUSED_RESULT;
/* -EOPNOTSUPP also where the driver, or a wrapper before it, has no digest: the caller
 * reads the object. */
int vj_store_digest(VjStore *s, uint64_t id, VjLoc loc, const VjStoreForm *form,
                    uint8_t algorithm, VjDigest *out) G_GNUC_WARN_UNUSED_RESULT;
/* The driver, and each wrapper before it, has put_plain and get_plain. */
bool vj_store_takes_plain(const VjStore *s);
int vj_store_put_plain(VjStore *s, uint64_t id, const VjStoreWant *want,
                       const void *bytes, size_t len, VjPut *out,
                       VjStoreForm *form) G_GNUC_WARN_UNUSED_RESULT;
int vj_store_get_plain(VjStore *s, uint64_t id, VjLoc loc, const VjStoreForm *form,
                       uint32_t offset, uint32_t len, const VjStoreWant *wire,
                       VjBuf **bytes, bool *is_encoded) G_GNUC_WARN_UNUSED_RESULT;
/* False: the driver has no replicas; what follows is not to be called. */
bool vj_store_has_replicas(const VjStore *s);
int vj_store_heal(VjStore *s, const VjPut *object, VjStoreVerify *verify, void *opaque,
                  VjStoreHealed *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_store_trim(VjStore *s, const VjPut *object, VjStoreVerify *verify, void *opaque,
                  VjStoreHealed *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_store_survey(VjStore *s, const VjPut *puts, size_t count,
                    bool *wants) G_GNUC_WARN_UNUSED_RESULT;
void vj_store_health(VjStore *s, VjStoreHealth *out);
bool vj_store_node(VjStore *s, unsigned index, VjStoreNode *out);
bool vj_store_drain(VjStore *s, unsigned index, bool drained);
/* Changes of the list of nodes: as the driver has them, past all wrappers.  The spec with
 * the list changed, owned; the same text where nothing is to be changed.  EOPNOTSUPP: the
 * driver has no list that changes, EINVAL, ENOENT, ENOSPC, EBUSY: has not been
 * drained. */
bool vj_store_change_spec(const char *spec, const VjNodeChange *change, char **out,
                          GError **error);
bool vj_store_change_begin(VjStore *s, const VjNodeChange *change, GError **error);
void vj_store_change_end(VjStore *s, const VjNodeChange *change, bool is_listed);
bool vj_store_loc_names(VjStore *s, VjLoc loc, unsigned index);
/* False also where the driver has no replicas. */
bool vj_store_loc_at(VjStore *s, VjLoc loc, unsigned index, VjLoc *out);
/* Of the last answer, for a second, what was put since is taken off; the driver is asked
 * again earlier where less than 1 GiB, or 65536 objects, are left. */
int vj_store_space(VjStore *s, VjStoreSpace *out) G_GNUC_WARN_UNUSED_RESULT;

/* ---- requests in flight ------------------------------------------------------------ */

/* Returns owned.  @buf: @len bytes, a reference more is taken; aligned as the driver
 *         asks. */
VjIo *vj_io_new_put(uint64_t id, VjBuf *buf, size_t len);
/* Returns owned, with a buffer of its own, io->buf, that has room for @len rounded up to
 * VJ_BUF_ALIGN; NULL when memory is short. */
VjIo *vj_io_new_get(uint64_t id, VjLoc loc, uint64_t offset, size_t len);
VjIo *vj_io_new_remove(uint64_t id, VjLoc loc);
VjIo *vj_io_new_flush(void);
VjIo *vj_io_ref(VjIo *io);
void vj_io_unref(VjIo *io);

/*
 * vj_store_submit - begin a request and go on
 *
 * @io       io->done is set; opaque and deadline_us where they are wanted
 * Returns   true: io->done is called once, at its deadline at the latest, whatever the
 *           driver does.  False: VJ_STORE_IN_FLIGHT_MAX are in flight, and nothing was
 *           begun: try again when one is done, or by the synchronous call, which waits
 *           until it may begin
 * Threads   any; blocks only where no thread can be started      Locks   none
 */
bool vj_store_submit(VjStore *s, VjIo *io) G_GNUC_WARN_UNUSED_RESULT;
/* Unless done was called or is being called, calls it with -ECANCELED before it returns.
 * Only after vj_store_submit has returned true.  What the driver does of the request all
 * the same is as after -ETIMEDOUT: a remove or flush may have happened; the bytes of a
 * put are removed when it is over, as no caller has their locator. */
void vj_store_cancel(VjStore *s, VjIo *io);
/* For drivers: @io is over, and its buffer is not touched any more.  @put: of a put with
 * rc 0. */
void vj_io_complete(VjIo *io, int rc, const VjPut *put);

/* Counts since open, of the outermost stats wrapper; all zero without one. */
typedef struct VjStoreStats {
    uint64_t puts, put_bytes;
    uint64_t gets, get_bytes;
    uint64_t expects;
    uint64_t removes, flushes;
    uint64_t failures; /* calls of any kind that returned an error */
} VjStoreStats;

void vj_store_stats(VjStore *s, VjStoreStats *out);
/* The same by kind of call, in fixed order, with latencies; none without one. */
void vj_store_calls(VjStore *s, VjCallVisit *visit, void *opaque);

/* Calls since open that the outermost latency wrapper made wait, by kind; there is one.
 */
typedef struct VjStoreLatencyCalls {
    uint64_t puts, gets, removes, flushes;
    uint64_t flush_removes, eaches, spaces;
} VjStoreLatencyCalls;

void vj_store_latency_calls(VjStore *s, VjStoreLatencyCalls *out);

/* Options of the wrappers, for --help, man pages and tests. */
extern const VjOptSpec vj_store_fault_options[];

/*
 * Fault wrapper, for tests: replace its options while it runs ("" = no faults) and read
 * how many calls it has seen.  @s is any store with a fault wrapper in its chain.
 */
bool vj_store_fault_set(VjStore *s, const char *options, GError **error);
uint64_t vj_store_fault_calls(VjStore *s);
/* What the fault wrappers of this process did: calls failed, shortened, damaged.  Also
 * those of a store that has been closed. */
uint64_t vj_store_fault_hits(void);
/* Ids (uint64_t) that a power cut now could take: put, not removed, and no good flush
 * since. Owned. */
GArray *vj_store_fault_unflushed(VjStore *s);

#endif
