/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * varjfs/client-protocol.h - numbers of the role client of varjfs-protocol(7)
 *
 * For the library varjfs and for the daemon, which both speak it: operations, kinds,
 * flags and limits, and how the fields of a batch stand on the wire.  C99, no other
 * header of varjfs.  Programs use varjfs/varjfs.h.
 *
 * Numbers are little-endian and stand without padding.  A batch goes in one request, and
 * its results come in one reply:
 *
 *   request   message: batch head, then an operation head, namespace, name and second
 *             name for each operation; bulk: the bytes that operations bring, in their
 *             order
 *   reply     message: a result for each operation; bulk: the bytes that they return, in
 *             their order
 */
#ifndef VARJFS_CLIENT_PROTOCOL_H
#define VARJFS_CLIENT_PROTOCOL_H

/* Of HELLO. */
#define VARJFS_WIRE_ROLE_CLIENT 3
/* Of TCP, where none is said. */
#define VARJFS_WIRE_PORT 7843

/* What programs of a machine start for a directory DIR: "varjfsd -d --source DIR" serves
 * DIR/VARJFS_SOURCE_SOCKET, where its volume has the name VARJFS_SOURCE_VOLUME, and exits
 * with VARJFS_SOURCE_EXIT_IN_USE where another program has the volume. */
#define VARJFS_SOURCE_SOCKET "varjfsd.sock"
#define VARJFS_SOURCE_VOLUME "volume"
#define VARJFS_SOURCE_EXIT_IN_USE 16

/* Operations. */
#define VARJFS_WIRE_BATCH 0x0300
#define VARJFS_WIRE_ITERATE 0x0301
#define VARJFS_WIRE_SYNC 0x0302
#define VARJFS_WIRE_EMPTY 0x0303
#define VARJFS_WIRE_SHARE 0x0304
#define VARJFS_WIRE_MAILBOX 0x0305
#define VARJFS_WIRE_BELL 0x0306
/* Of each role: the message is empty, or a byte, 0: JSON, 1: the text format of
 * Prometheus; the bulk of the reply is that, and its message is empty. */
#define VARJFS_WIRE_STATISTICS 0x0004
#define VARJFS_WIRE_STATISTICS_MAX (1u << 20)

/* Of a batch. */
#define VARJFS_WIRE_OPS_MAX 4096u
#define VARJFS_WIRE_BATCH_MESSAGE_MAX (4u << 20)
#define VARJFS_WIRE_BATCH_BULK_MAX (64u << 20)   /* of a request */
#define VARJFS_WIRE_BATCH_RETURN_MAX (16u << 20) /* of a reply */
/* Of the bulk of an atomic batch. */
#define VARJFS_WIRE_ATOMIC_BULK_MAX (32u << 20)
#define VARJFS_WIRE_ATOMIC_WRITE_MAX 4096u
#define VARJFS_WIRE_BATCH_HEAD_BYTES 8u
#define VARJFS_WIRE_OP_HEAD_BYTES 32u
#define VARJFS_WIRE_RESULT_BYTES 12u

/*
 * Batch head:      0  1  flags
 *                  1  1  safety: what the reply waits for
 *                  2  2  0; else a slot of the area, from 1 on: what operations return
 *                        stands there, and the bulk of the reply is empty
 *                  4  4  operations, 1 ... VARJFS_WIRE_OPS_MAX
 */
/* All operations or none, in one transaction of the metadata: what has to do with content
 * cannot be part of it, but for the first write to an object that the batch has created,
 * at offset 0 and of VARJFS_WIRE_ATOMIC_WRITE_MAX bytes at most. */
#define VARJFS_WIRE_ATOMIC 1u
/* Behind the first operation that fails, none is done: their status is CANCELED. */
#define VARJFS_WIRE_STOP 2u
#define VARJFS_WIRE_BATCH_FLAGS 3u

#define VARJFS_WIRE_SAFETY_NONE 0    /* others see it */
#define VARJFS_WIRE_SAFETY_NETWORK 1 /* the machines that keep it have it */
#define VARJFS_WIRE_SAFETY_STORAGE 2 /* it is durable */

/*
 * Operation head:  0  1  kind
 *                  1  1  flags
 *                  2  2  bytes of the namespace, 1 ... VARJFS_WIRE_NAMESPACE_MAX
 *                  4  2  bytes of the name, 1 ... VARJFS_WIRE_NAME_MAX
 *                  6  2  bytes of the second name: of RENAME the new one, of attributes
 *                        the attribute's; else zero
 *                  8  8  offset; of RESIZE the new length
 *                 16  8  of RWRITE: bytes that go; of CREATE: bytes of settings; else
 *                        zero
 *                 24  4  bytes that it brings, in the bulk
 *                 28  4  bytes that it may return, at most
 */
enum {
    /* Brings settings, lines "transform=VALUE", "mode=VALUE", "objects=VALUE", each at
     * most once and ending with a newline, and behind them attributes, each as an entry
     * of ITERATE; either may be missing. */
    VARJFS_WIRE_OBJECT_CREATE = 1,
    VARJFS_WIRE_OBJECT_DELETE = 2,
    VARJFS_WIRE_OBJECT_STATUS = 3, /* returns a status */
    VARJFS_WIRE_OBJECT_READ = 4,
    VARJFS_WIRE_OBJECT_WRITE = 5,
    VARJFS_WIRE_OBJECT_RWRITE = 6,
    VARJFS_WIRE_OBJECT_RESIZE = 7,
    VARJFS_WIRE_OBJECT_RENAME = 8, /* within its namespace */
    VARJFS_WIRE_ATTRIBUTE_PUT = 9, /* of an object */
    VARJFS_WIRE_ATTRIBUTE_GET = 10,
    VARJFS_WIRE_ATTRIBUTE_DELETE = 11,
    VARJFS_WIRE_KEY_PUT = 16,
    VARJFS_WIRE_KEY_GET = 17,
    VARJFS_WIRE_KEY_DELETE = 18
};

/* Of CREATE, RENAME, ATTRIBUTE_PUT and KEY_PUT: EXISTS where there is one.  Without it an
 * object that is created and is there stays as it is, and what a new name or a value is
 * given to is replaced. */
#define VARJFS_WIRE_EXCLUSIVE 1u
/* Of OBJECT_WRITE and OBJECT_RWRITE: at the end, the offset is zero. */
#define VARJFS_WIRE_APPEND 2u
/* Of OBJECT_WRITE: an object that is not there is made first. */
#define VARJFS_WIRE_MAKE 4u

/* Namespaces and names of objects have neither NUL nor '/', and are not "." or "..";
 * keys are any bytes. */
#define VARJFS_WIRE_NAMESPACE_MAX 64u
#define VARJFS_WIRE_NAME_MAX 254u
#define VARJFS_WIRE_VALUE_MAX (64u << 10)
#define VARJFS_WIRE_SETTINGS_MAX 1024u
/* Attributes have names of any bytes but NUL, which do not begin with
 * VARJFS_WIRE_RESERVED_PREFIX.  They are the extended attributes "user.NAME" of the file
 * that the object is. */
#define VARJFS_WIRE_ATTRIBUTE_NAME_MAX 250u
#define VARJFS_WIRE_RESERVED_PREFIX "varjfs."
/* Of what a CREATE brings. */
#define VARJFS_WIRE_CREATE_MAX (1u << 20)
#define VARJFS_WIRE_CREATE_ATTRIBUTES_MAX 64u
/* Of one write or rwrite; of a read VARJFS_WIRE_BATCH_RETURN_MAX. */
#define VARJFS_WIRE_WRITE_MAX (8u << 20)

/*
 * Result:          0  4  status, as of frames; 32 + n: see below
 *                  4  8  bytes that it returned; of OBJECT_WRITE and RWRITE: where it
 *                        happened; of OBJECT_STATUS, KEY_GET and ATTRIBUTE_GET: how long
 *                        all of it is, also with RANGE
 *
 * Statuses beside those of frames:
 */
#define VARJFS_WIRE_EXISTS 32       /* EEXIST */
#define VARJFS_WIRE_NAMESPACE 33    /* EINVAL: no namespace or name; not an object */
#define VARJFS_WIRE_SETTING 34      /* EINVAL: no such setting, or value of one */
#define VARJFS_WIRE_RANGE 35        /* ERANGE: longer than what it may return */
#define VARJFS_WIRE_NOT_ATOMIC 36   /* ENOTSUP: this cannot be part of an atomic batch */
#define VARJFS_WIRE_RESERVED 37     /* EPERM: such an attribute is the daemon's */
#define VARJFS_WIRE_NO_ATTRIBUTE 38 /* ENODATA: the object is there, the attribute not */

/*
 * Status:          0  8  size: bytes
 *                  8  8  bytes that are stored for it, after its changes were written
 *                        back
 *                 16  8  modified: microseconds since 1970
 *                 24  8  made: likewise
 *                 32     transformation, as text
 */
#define VARJFS_WIRE_STATUS_BYTES 32u
#define VARJFS_WIRE_STATUS_MAX 128u

/*
 * ITERATE          0  1  VARJFS_WIRE_ITERATE_...
 *                  1  1  zero
 *                  2  2  bytes of the namespace; 0, of objects and keys: the namespaces
 *                  4  2  bytes of the prefix
 *                  6  2  bytes of the name behind which to go on, which begins with the
 *                        prefix; 0: from the start
 *                  8  4  entries, at most; 1 ... VARJFS_WIRE_ENTRIES_MAX
 *                 12  4  bytes, at most, of the bulk of the reply:
 *                        VARJFS_WIRE_ITERATE_BULK_MIN ... _MAX
 *                 16  2  of attributes: bytes of the object's name; else zero
 *                 18  2  of items: attributes that each is to come with, at most
 *                        VARJFS_WIRE_ITERATE_ATTRIBUTES_MAX; else zero
 *                 20     namespace, prefix, name, the object's name; then of each
 *                        attribute the bytes of its name (2), and that
 *
 * Reply            0  1  1: there are more
 *                  1  4  entries; in the bulk, in the order of their bytes:
 *
 *                  0  2  bytes of the name
 *                  2  4  bytes of the value; of objects and namespaces 0
 *                  6     name, value
 *
 * The value of an item is, for each attribute that was asked for, how long its value is
 * (4), and that unless it is longer than VARJFS_WIRE_ITERATE_VALUE_MAX;
 * VARJFS_WIRE_NO_VALUE: the item has no such attribute.
 *
 * Attributes of an object that is not there are ABSENT; namespaces that are not there are
 * empty.
 */
#define VARJFS_WIRE_ITERATE_OBJECTS 0
#define VARJFS_WIRE_ITERATE_KEYS 1
#define VARJFS_WIRE_ITERATE_ATTRIBUTES 2
#define VARJFS_WIRE_ITERATE_ITEMS 3 /* objects with attributes */
#define VARJFS_WIRE_ITERATE_MESSAGE_MAX 8192u
#define VARJFS_WIRE_ITERATE_HEAD_BYTES 20u
#define VARJFS_WIRE_ITERATE_REPLY_BYTES 5u
#define VARJFS_WIRE_ENTRY_HEAD_BYTES 6u
#define VARJFS_WIRE_ENTRIES_MAX 4096u
#define VARJFS_WIRE_ITERATE_BULK_MIN (128u << 10)
#define VARJFS_WIRE_ITERATE_BULK_MAX (8u << 20)
#define VARJFS_WIRE_ITERATE_ATTRIBUTES_MAX 16u
#define VARJFS_WIRE_ITERATE_VALUE_MAX 4096u
#define VARJFS_WIRE_NO_VALUE UINT32_MAX

/*
 * SHARE: request and reply are empty.  With the reply comes a descriptor of memory, the
 * area of this connection: VARJFS_WIRE_AREA_SLOTS of VARJFS_WIRE_AREA_SLOT_BYTES each,
 * sealed against being made shorter and being written by who gets it.  A slot that
 * a BATCH names is the daemon's until the reply has come.  Of unix sockets, with the
 * feature; BUSY: the connection has one, or the daemon as many as it may have.
 */
#define VARJFS_WIRE_AREA_SLOTS 4u
#define VARJFS_WIRE_AREA_SLOT_BYTES (1u << 20)

/*
 * MAILBOX: likewise, and the memory is for both sides to write.  One request at a time
 * may stand there as a frame, and then its reply, instead of going through the socket.
 * 32-bit words of the machine: the state; 1 while the daemon looks at it; 1 while the
 * client waits for each request; the processor that the daemon may run on alone, plus 1,
 * or 0; 1 while the client sleeps until the state changes, as a futex, and is to be
 * woken.
 * The state changes by compare-and-exchange; what stands in a frame is written before and
 * read behind that.  CANCEL, which has no reply, may not stand there.  All other bytes
 * before the request are zero, and nobody's.
 *
 * BELL: likewise, of a connection that has a mailbox: an eventfd that does not block.
 * Behind a write to it the daemon looks at the mailbox, whether it looked before or
 * not.
 */
#define VARJFS_WIRE_MAILBOX_STATE_AT 0u
#define VARJFS_WIRE_MAILBOX_LISTENS_AT 64u
#define VARJFS_WIRE_MAILBOX_WAITS_AT 128u
#define VARJFS_WIRE_MAILBOX_CPU_AT 192u
#define VARJFS_WIRE_MAILBOX_SLEEPS_AT 256u
#define VARJFS_WIRE_MAILBOX_REQUEST_AT 4096u
#define VARJFS_WIRE_MAILBOX_FRAME_MAX 16384u
#define VARJFS_WIRE_MAILBOX_REPLY_AT 20480u
#define VARJFS_WIRE_MAILBOX_BYTES 36864u
enum {
    VARJFS_WIRE_MAILBOX_FREE = 0,
    VARJFS_WIRE_MAILBOX_CALLED = 1,   /* by the client, which may go back to FREE */
    VARJFS_WIRE_MAILBOX_TAKEN = 2,    /* by the daemon */
    VARJFS_WIRE_MAILBOX_ANSWERED = 3, /* by the daemon; FREE by the client */
    VARJFS_WIRE_MAILBOX_BY_SOCKET = 4 /* from TAKEN by either: the reply comes there */
};

/* SYNC: request and reply are empty.  All that was answered before is durable. */

/*
 * EMPTY takes a part of a namespace away: objects, or keys, and at last the namespace
 * itself.
 *
 *                  0  1  VARJFS_WIRE_ITERATE_OBJECTS, VARJFS_WIRE_ITERATE_KEYS
 *                  1  1  zero
 *                  2  2  bytes of the namespace
 *                  4  4  objects or keys, at most; 1 ... VARJFS_WIRE_EMPTY_MAX
 *                  8     namespace
 *
 * Reply            0  1  VARJFS_WIRE_EMPTY_...
 *                  1  4  objects or keys that went
 *
 * ABSENT: there is no such namespace.
 */
#define VARJFS_WIRE_EMPTY_HEAD_BYTES 8u
#define VARJFS_WIRE_EMPTY_REPLY_BYTES 5u
#define VARJFS_WIRE_EMPTY_MAX 1024u
#define VARJFS_WIRE_EMPTY_GONE 0  /* the namespace too */
#define VARJFS_WIRE_EMPTY_MORE 1  /* it is to be asked again */
#define VARJFS_WIRE_EMPTY_STAYS 2 /* programs of a mount have made directories there */

#endif
