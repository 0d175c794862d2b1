/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * messages.h - the fields of each operation, as varjfs-protocol(7) has them
 *
 * For each there is an encoder, which appends to a GByteArray, and a decoder of hostile
 * bytes, which is -EPROTO for any message that its encoder would not have made: too
 * short, too long, a count beyond its limit, a value that has no meaning.  What a decoder
 * gives is borrowed from the message.  Numbers are little-endian, counts come before what
 * they count.  Threads: any.  Locks: none.
 */
#ifndef VJ_RPC_MESSAGES_H
#define VJ_RPC_MESSAGES_H

#include "base/base.h"
#include "rpc/frame-format.h"

/* ---- hello ------------------------------------------------------------------------- */

enum {
    VJ_ROLE_ANY = 0, /* of a handler: requests of each role */
    VJ_ROLE_OBJECT = 1,
    VJ_ROLE_META = 2,
    VJ_ROLE_CLIENT = 3,
};

#define VJ_WIRE_VERSION 1u /* of the operations; the largest that this program speaks */
#define VJ_WIRE_UUID_BYTES 16u
#define VJ_WIRE_VOLUME_NAME_MAX 63u
/* Of the message of HELLO and of its reply, which later versions may fill further. */
#define VJ_WIRE_HELLO_MAX 4096u
/* Of any reply; what is longer is bulk. */
#define VJ_WIRE_REPLY_MESSAGE_MAX ((uint32_t)64 << 10)
/* Of the text in the reply of a request that failed, bytes. */
#define VJ_WIRE_TEXT_MAX 256u

enum {
    VJ_HELLO_CREATE =
        1 << 0, /* a place that belongs to no volume becomes this one's: mkfs */
    VJ_HELLO_ADOPT = 1 << 1,   /* likewise: a mount, for a node that has lost its disk */
    VJ_HELLO_DESTROY = 1 << 2, /* with CREATE: what the place has is removed first */
    VJ_HELLO_READ_ONLY = 1 << 3,
    VJ_HELLO_FLAGS = 15,
};

/* Features; each is used where both sides have it.  The room says so itself. */
#define VJ_FEATURE_BARE ((uint64_t)1 << 8)       /* VJ_FRAME_BARE */
#define VJ_FEATURE_BARE_BATCH ((uint64_t)1 << 9) /* of BATCH, in both directions */
/* SHARE; of unix sockets. */
#define VJ_FEATURE_SHARE ((uint64_t)1 << 10)
#define VJ_FEATURE_MAILBOX ((uint64_t)1 << 11) /* MAILBOX; likewise */
/* Those that pass descriptors. */
#define VJ_FEATURES_OF_FDS (VJ_FEATURE_SHARE | VJ_FEATURE_MAILBOX)
/* Of a server; a client of this room asks no BATCH. */
#define VJ_WIRE_FEATURES (VJ_FEATURE_BARE | VJ_FEATURE_BARE_BATCH | VJ_FEATURES_OF_FDS)

/*
 * A mailbox: memory that both sides write, where one request of a connection at a time
 * stands and then its reply, as frames.  32-bit words, in the order of bytes of the
 * machine that both are on:
 */
#define VJ_MAILBOX_STATE_AT 0u    /* VJ_MAILBOX_FREE ... */
#define VJ_MAILBOX_LISTENS_AT 64u /* 1: the server looks at it just now */
#define VJ_MAILBOX_WAITS_AT 128u  /* 1: the client waits for each of its requests */
#define VJ_MAILBOX_CPU_AT 192u    /* the one that the server may run on, plus 1; or 0 */
#define VJ_MAILBOX_SLEEPS_AT 256u /* 1: the client does, on the state as a futex */
#define VJ_MAILBOX_REQUEST_AT 4096u
#define VJ_MAILBOX_FRAME_MAX 16384u
#define VJ_MAILBOX_REPLY_AT (VJ_MAILBOX_REQUEST_AT + VJ_MAILBOX_FRAME_MAX)
#define VJ_MAILBOX_BYTES (VJ_MAILBOX_REPLY_AT + VJ_MAILBOX_FRAME_MAX)

enum {
    VJ_MAILBOX_FREE,     /* -> CALLED by the client */
    VJ_MAILBOX_CALLED,   /* -> TAKEN by the server, FREE by a client that gives up */
    VJ_MAILBOX_TAKEN,    /* -> ANSWERED by the server, BY_SOCKET by either */
    VJ_MAILBOX_ANSWERED, /* -> FREE by the client */
    VJ_MAILBOX_BY_SOCKET /* the reply comes there; -> FREE by the client, behind it */
};

/*
 * HELLO and its reply may be longer than this version has them: what is behind these
 * fields is for later versions and is ignored.
 */
typedef struct VjHello {
    uint16_t version_min, version_max; /* that the client speaks, > 0 */
    uint64_t features;                 /* VJ_FEATURE_…; unknown ones are ignored */
    uint8_t role;
    uint8_t flags;
    /* Of the volume; all zero in the role client: whichever it is. */
    uint8_t uuid[VJ_WIRE_UUID_BYTES];
    /*
     * Random, one for each VjRpcClient, and how often it has connected: 1, 2, ….  When a
     * server answers this hello, it has ended all that came by earlier connections of the
     * same client; one with a number that is not greater it refuses (VJ_WIRE_FENCED).
     * All zero: the client does without that.  The room fills both in.
     */
    uint8_t client[VJ_WIRE_UUID_BYTES];
    uint64_t connection;
    VjSlice volume; /* its name in the node's configuration; vj_wire_is_volume_name */
    VjSlice name;   /* of the client, for people; printable UTF-8, or empty */
} VjHello;

typedef struct VjHelloReply {
    uint16_t version;                 /* that is spoken from now on */
    uint64_t features;                /* those of the client's that the node has too */
    uint8_t node[VJ_WIRE_UUID_BYTES]; /* of the place: stays as long as its disk */
    uint8_t instance[VJ_WIRE_UUID_BYTES]; /* of the process: new at each start */
    uint8_t was_empty; /* the place was taken for the volume just now */
    /* What this connection may have in flight: requests, and bytes of requests and of the
     * replies that they ask for.  0: as rpc.h says. */
    uint32_t requests_max;
    uint64_t bytes_max;
} VjHelloReply;

/* 1 … VJ_WIRE_VOLUME_NAME_MAX of A-Z a-z 0-9 . _ -, the first a letter or a digit. */
bool vj_wire_is_volume_name(VjSlice name);
/* Of a hello, or of its reply, that is encoded: its features are these besides. */
void vj_hello_add_features(GByteArray *hello, uint64_t features);
void vj_hello_reply_add_features(GByteArray *reply, uint64_t features);
/* Of a hello that is encoded: sets client and connection. */
void vj_hello_set_client(GByteArray *hello, const uint8_t client[VJ_WIRE_UUID_BYTES],
                         uint64_t connection);

/* Of a reply that is encoded and says nothing of it: sets bytes_max. */
void vj_hello_reply_set_bytes_max(GByteArray *reply, uint64_t bytes_max);

void vj_hello_encode(GByteArray *to, const VjHello *m);
int vj_hello_decode(VjSlice message, VjHello *out) G_GNUC_WARN_UNUSED_RESULT;
void vj_hello_reply_encode(GByteArray *to, const VjHelloReply *m);
int vj_hello_reply_decode(VjSlice message, VjHelloReply *out) G_GNUC_WARN_UNUSED_RESULT;

/* The text for people of a reply that failed, if it can be shown in one line; owned;
 * NULL: there is none. */
char *vj_wire_text(VjSlice message);

/* ---- statistics -------------------------------------------------------------------- */

/* STATS: request empty, or a format (u8): 0 JSON, as for an empty one, 1 the text format
 * of Prometheus.  The bulk of the reply is that in UTF-8, its message is empty. */
#define VJ_WIRE_STATS_MAX ((uint32_t)1 << 20)

/* ---- objects ----------------------------------------------------------------------- */

/* An object of a node: the id, and a number that the client chose at random for this put.
 * The same on each node that has a replica. */
typedef struct VjWireObject {
    uint64_t id, nonce;
} VjWireObject;

enum {
    VJ_WIRE_PUT_DURABLE = 1 << 0, /* the answer means: it survives a crash */
    VJ_WIRE_PUT_FLAGS = 1,
};

/* Bytes of an object: of the bulk of PUT (0 …), and the end of what GET asks for. */
#define VJ_WIRE_OBJECT_MAX ((uint32_t)32 << 20)

/* PUT: the bulk is kept.  One that is there already and is as long stays as it is: it has
 * the same bytes.  One of another length was never answered with OK, and is replaced.
 * Reply empty. */
typedef struct VjWirePut {
    VjWireObject object;
    uint8_t flags;
} VjWirePut;
void vj_wire_put_encode(GByteArray *to, const VjWirePut *m);
int vj_wire_put_decode(VjSlice message, VjWirePut *out) G_GNUC_WARN_UNUSED_RESULT;

/* GET: exactly len bytes (1 …) are the bulk of the reply, whose message is empty. */
typedef struct VjWireGet {
    VjWireObject object;
    uint64_t offset;
    uint32_t len;
} VjWireGet;
void vj_wire_get_encode(GByteArray *to, const VjWireGet *m);
int vj_wire_get_decode(VjSlice message, VjWireGet *out) G_GNUC_WARN_UNUSED_RESULT;

/* REMOVE and HAVE: a count, and so many objects.  Reply of REMOVE: as many statuses
 * (u32).  Reply of HAVE: as many lengths in bytes (u64), VJ_WIRE_HAS_NOT: it is not
 * there. */
#define VJ_WIRE_OBJECTS_MAX 4096u
#define VJ_WIRE_HAS_NOT UINT64_MAX
void vj_wire_objects_encode(GByteArray *to, const VjWireObject *at, uint32_t count);
/* *out: an array of VjWireObject, owned. */
int vj_wire_objects_decode(VjSlice message, GArray **out) G_GNUC_WARN_UNUSED_RESULT;
void vj_wire_statuses_encode(GByteArray *to, const uint32_t *at, uint32_t count);
int vj_wire_statuses_decode(VjSlice message, uint32_t *out,
                            uint32_t count) G_GNUC_WARN_UNUSED_RESULT;
void vj_wire_lengths_encode(GByteArray *to, const uint64_t *at, uint32_t count);
int vj_wire_lengths_decode(VjSlice message, uint64_t *out,
                           uint32_t count) G_GNUC_WARN_UNUSED_RESULT;

/* FLUSH, FLUSH_REMOVES, SPACE, PING, CLOCK: requests without a message. */

/* LIST: objects with first <= id <= last behind @after in order of (id, nonce), at most
 * limit (1 … VJ_WIRE_LISTED_MAX); the all-zero @after: from the start. */
#define VJ_WIRE_LISTED_MAX 65536u
#define VJ_WIRE_LISTED_BYTES 32u
typedef struct VjWireList {
    uint64_t first, last;
    VjWireObject after;
    uint32_t limit;
} VjWireList;
void vj_wire_list_encode(GByteArray *to, const VjWireList *m);
int vj_wire_list_decode(VjSlice message, VjWireList *out) G_GNUC_WARN_UNUSED_RESULT;
/* Reply: whether there are more, and how many; the entries are its bulk. */
typedef struct VjWireListed {
    VjWireObject object;
    uint64_t bytes;
    int64_t mtime_us; /* of the wall clock */
} VjWireListed;
typedef struct VjWireListReply {
    uint8_t more;
    uint32_t count;
} VjWireListReply;
void vj_wire_list_reply_encode(GByteArray *to, const VjWireListReply *m);
int vj_wire_list_reply_decode(VjSlice message, size_t bulk_bytes,
                              VjWireListReply *out) G_GNUC_WARN_UNUSED_RESULT;
void vj_wire_listed_encode(const VjWireListed *m, uint8_t dst[VJ_WIRE_LISTED_BYTES]);
void vj_wire_listed_decode(const uint8_t src[VJ_WIRE_LISTED_BYTES], VjWireListed *out);

/* What the client's record says of how an object is stored. */
typedef struct VjWireForm {
    uint8_t codec, param;
    uint32_t key_id; /* 0 */
    uint32_t plain_bytes, stored_bytes;
    uint64_t trailer_checksum;
} VjWireForm;

/* DIGEST: of an object's content, computed by the node after it has compared the bytes
 * with their checksums. */
typedef struct VjWireDigest {
    VjWireObject object;
    VjWireForm form;
    uint8_t digest; /* as on disk: 1 SHA-1, 2 SHA-256, 3 BLAKE3 */
} VjWireDigest;
/* Reply: the digest, zero behind its length. */
#define VJ_WIRE_DIGEST_BYTES 32u
/* Bytes of content and of its stored form. */
#define VJ_WIRE_PLAIN_MAX ((uint32_t)16 << 20)
#define VJ_WIRE_STORED_MAX ((uint32_t)32 << 20)
void vj_wire_digest_encode(GByteArray *to, const VjWireDigest *m);
int vj_wire_digest_decode(VjSlice message, VjWireDigest *out) G_GNUC_WARN_UNUSED_RESULT;
void vj_wire_digest_reply_encode(GByteArray *to,
                                 const uint8_t digest[VJ_WIRE_DIGEST_BYTES]);
int vj_wire_digest_reply_decode(VjSlice message, uint8_t digest[VJ_WIRE_DIGEST_BYTES])
    G_GNUC_WARN_UNUSED_RESULT;

/*
 * PUT_PLAIN: the bulk is content, of which the node makes the stored form.  wire_codec
 * not 0: the bulk is encoded with it for the way, in one run.  Reply: the form that was
 * made.
 */
typedef struct VjWirePutPlain {
    VjWireObject object;
    uint8_t flags;               /* VJ_WIRE_PUT_… */
    uint8_t codec, param, level; /* what is wanted; level as a signed byte */
    uint8_t wire_codec, wire_param;
    uint32_t plain_bytes;
} VjWirePutPlain;
void vj_wire_put_plain_encode(GByteArray *to, const VjWirePutPlain *m);
int vj_wire_put_plain_decode(VjSlice message,
                             VjWirePutPlain *out) G_GNUC_WARN_UNUSED_RESULT;
void vj_wire_form_encode(GByteArray *to, const VjWireForm *m);
int vj_wire_form_decode(VjSlice message, VjWireForm *out) G_GNUC_WARN_UNUSED_RESULT;

/* GET_PLAIN: a range of the content.  wire_codec: with which the reply may be encoded;
 * its message says (u8) with which it is, 0 where that would not be shorter. */
typedef struct VjWireGetPlain {
    VjWireObject object;
    VjWireForm form;
    uint32_t offset, len;
    uint8_t wire_codec, wire_param;
} VjWireGetPlain;
void vj_wire_get_plain_encode(GByteArray *to, const VjWireGetPlain *m);
int vj_wire_get_plain_decode(VjSlice message,
                             VjWireGetPlain *out) G_GNUC_WARN_UNUSED_RESULT;

/* Reply of SPACE. */
typedef struct VjWireSpace {
    uint64_t total_bytes, free_bytes, available_bytes, available_objects;
} VjWireSpace;
void vj_wire_space_encode(GByteArray *to, const VjWireSpace *m);
int vj_wire_space_decode(VjSlice message, VjWireSpace *out) G_GNUC_WARN_UNUSED_RESULT;

/* ---- keys -------------------------------------------------------------------------- */

/* Those of room meta, which asserts it. */
#define VJ_WIRE_KEY_MAX 511u
#define VJ_WIRE_VALUE_MAX ((uint32_t)96 << 10)
#define VJ_WIRE_KEYS_MAX 4096u
#define VJ_WIRE_ITEMS_MAX 1024u
#define VJ_WIRE_SPACES 16u
/* All items of one reply, bytes. */
#define VJ_WIRE_ITEMS_BYTES_MAX ((uint32_t)8 << 20)

typedef struct VjWireKey {
    uint8_t space;
    VjSlice key;
} VjWireKey;

/* A key, its value and version; version 0: it is not there, and the value is empty. */
typedef struct VjWireItem {
    VjWireKey key;
    uint64_t version;
    VjSlice value;
} VjWireItem;

/* GET_MANY: a count and so many keys.  Reply: items, in the order of the keys; those of
 * the first keys alone, and more set, where they would be longer than
 * VJ_WIRE_ITEMS_BYTES_MAX. */
void vj_wire_keys_encode(GByteArray *to, const VjWireKey *at, uint32_t count);
/* *out: an array of VjWireKey, owned; what its slices say is borrowed from @message. */
int vj_wire_keys_decode(VjSlice message, GArray **out) G_GNUC_WARN_UNUSED_RESULT;

/* SCAN: as VjRange of meta/engine.h; a reply of at most limit items (1 …
 * VJ_WIRE_ITEMS_MAX), fewer where they would be longer than VJ_WIRE_ITEMS_BYTES_MAX. */
typedef struct VjWireScan {
    uint8_t space;
    uint8_t backward;
    uint32_t limit;
    VjSlice from, to;
} VjWireScan;
void vj_wire_scan_encode(GByteArray *to, const VjWireScan *m);
int vj_wire_scan_decode(VjSlice message, VjWireScan *out) G_GNUC_WARN_UNUSED_RESULT;

/*
 * Items are the bulk of replies to GET_MANY, SCAN and (fresh ones) APPLY; the message of
 * such a reply says how many there are, and whether there are more: at least one then.
 */
typedef struct VjWireItemsReply {
    uint8_t more;
    uint32_t count;
} VjWireItemsReply;
void vj_wire_items_reply_encode(GByteArray *to, const VjWireItemsReply *m);
int vj_wire_items_reply_decode(VjSlice message,
                               VjWireItemsReply *out) G_GNUC_WARN_UNUSED_RESULT;
/* Bytes of one item. */
size_t vj_wire_item_bytes(const VjWireItem *item);
void vj_wire_item_encode(GByteArray *to, const VjWireItem *item);
/* The next of them; @r->bad where there is none whole. */
int vj_wire_item_decode(VjReader *r, VjWireItem *out) G_GNUC_WARN_UNUSED_RESULT;

/*
 * APPLY: the message has the fence and the checks, the bulk the changes, one behind the
 * other in order of space and key.
 */
typedef struct VjWireCheck {
    VjWireKey key;
    uint64_t version;
} VjWireCheck;
typedef struct VjWireApply {
    uint8_t has_fence;
    /* The answer comes when the changes can be seen, before they are durable.  With a
     * fence and a number, and without checks. */
    uint8_t is_received;
    VjWireCheck fence;
    uint64_t number; /* of the last commit in it */
    /* With is_received: only on top of this commit of the same session; 0: always.  At
     * most number. */
    uint64_t after;
    uint64_t change_count; /* in the bulk */
    GArray *checks;        /* of VjWireCheck; decoded: owned */
} VjWireApply;
void vj_wire_apply_encode(GByteArray *to, const VjWireApply *m);
int vj_wire_apply_decode(VjSlice message, VjWireApply *out) G_GNUC_WARN_UNUSED_RESULT;
typedef struct VjWireChange {
    VjWireKey key;
    uint8_t is_delete;
    VjSlice value;
} VjWireChange;
size_t vj_wire_change_bytes(const VjWireChange *m);
void vj_wire_change_encode(GByteArray *to, const VjWireChange *m);
int vj_wire_change_decode(VjReader *r, VjWireChange *out) G_GNUC_WARN_UNUSED_RESULT;

/* CLOCK: reply a u64 of microseconds since 1970.  COUNT: a space (u8); reply a u64. */
void vj_wire_u64_encode(GByteArray *to, uint64_t value);
int vj_wire_u64_decode(VjSlice message, uint64_t *out) G_GNUC_WARN_UNUSED_RESULT;
void vj_wire_u8_encode(GByteArray *to, uint8_t value);
int vj_wire_u8_decode(VjSlice message, uint8_t *out) G_GNUC_WARN_UNUSED_RESULT;

#endif
