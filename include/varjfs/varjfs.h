/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * varjfs/varjfs.h - objects and keys of a varjfs volume, for programs: libvarjfs
 *
 * Link with -lvarjfs (pkg-config varjfs).  See libvarjfs(3); what semantics mean stands
 * in varjfs-semantics(7).
 *
 * Objects are named byte arrays that can be read, written and edited in the middle; what
 * is equal is stored once.  They may have *attributes*, small values by name: then one
 * calls them items, and their namespace a collection.  Keys have small values.  Objects
 * and keys stand in *namespaces*, which need not be made.  Operations are gathered in a
 * *batch*, which goes to the daemon as one request; a batch of one is a single operation.
 *
 * Unless said otherwise functions return 0 or a negative number: -errno of <errno.h>, of
 * which varjfs_strerror has a text.  The library never ends the process, prints nothing,
 * starts no thread, and handles no signal; where memory cannot be had it says -ENOMEM.
 *
 * Threads: a connection, its batches and iterators are used by one thread at a time;
 * different connections by different threads at the same time.  After fork(2) only the
 * parent uses them; varjfs_close in a child changes nothing for it.
 *
 * C99 and C++.  Structures that programs fill begin with their size, so that later
 * versions can add members.
 */
#ifndef VARJFS_VARJFS_H
#define VARJFS_VARJFS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct varjfs varjfs;
typedef struct varjfs_batch varjfs_batch;
typedef struct varjfs_iterator varjfs_iterator;

/* ---- limits ------------------------------------------------------------------------ */

/* Bytes, without the NUL.  Neither may be empty.  Namespaces and names of objects are
 * names as files have them: without '/', and neither "." nor "..". */
#define VARJFS_NAMESPACE_MAX 64
#define VARJFS_NAME_MAX 254
#define VARJFS_VALUE_MAX (64 << 10) /* of keys and attributes */
#define VARJFS_ATTRIBUTE_NAME_MAX 250
/* Attributes that varjfs_item_create gives; bytes of their names and values together. */
#define VARJFS_CREATE_ATTRIBUTES_MAX 64
#define VARJFS_CREATE_BYTES_MAX (960 << 10)
/* Attributes that varjfs_item_iterate brings with each item, and bytes of a value that it
 * brings. */
#define VARJFS_ITERATE_ATTRIBUTES_MAX 16
#define VARJFS_ITERATE_VALUE_MAX 4096
/* Operations of an atomic batch; others may be longer, and go as several requests. */
#define VARJFS_ATOMIC_MAX 4096
/* Bytes that an atomic batch may write to an object which it creates, in one write. */
#define VARJFS_ATOMIC_WRITE_MAX 4096
/* Batches that have been submitted and not been waited for, of one connection. */
#define VARJFS_IN_FLIGHT_MAX 256

/* ---- connections ------------------------------------------------------------------- */

struct varjfs_options {
    size_t size;        /* sizeof(struct varjfs_options) */
    const char *volume; /* of a daemon's address: the name of the volume there */
    const char *daemon; /* the program that is started for a directory; NULL: varjfsd,
                         * from PATH */
    int timeout_ms;     /* of each wait for the daemon; 0: 30000; -1: without end */
    unsigned flags;     /* VARJFS_READ_ONLY */
    /* Of an address with TLS, files as varjfsctl keygen makes them: a key, */
    const char *key;
    const char *identity; /* the name by which the daemon has it; NULL: the volume's */
    /* or all three of these, in PEM. */
    const char *certificate;
    const char *certificate_key;
    const char *ca; /* by which the daemon's certificate is believed */
};

/* What changes something is -EROFS. */
#define VARJFS_READ_ONLY 1u

/*
 * varjfs_open - connect to a volume
 *
 * @source   a directory that mkfs.varjfs has made: its daemon is started unless it runs,
 *           and ends some seconds after its last user.  Or an address of a daemon that
 *           serves options->volume with the role client: "unix:PATH"; with TLS 1.3
 *           "tls:HOST", "tls:HOST:PORT", "tls:[IPV6]" or "tls:[IPV6]:PORT".  Or the
 *           file of a configuration, which says all of this, varjfs-client.conf(5); what
 *           stands in @options goes before what stands there
 * @options  NULL: all defaults
 * @out      owned: varjfs_close
 * Returns   0; -ENOENT no volume there; -EBUSY another program has it, as a mount;
 *           -ECONNREFUSED no daemon; -EACCES, also where one side does not believe the
 *           other one; -EPROTO the other side speaks another protocol; -EPROTONOSUPPORT
 *           an address of another kind, or a library without TLS; -EHOSTUNREACH;
 *           -ETIMEDOUT; -ENOMEM.  varjfs_open_error says more
 */
int varjfs_open(const char *source, const struct varjfs_options *options, varjfs **out);
/*
 * Waits for batches that were submitted, and frees everything that belongs to @v: batches
 * and iterators too.  Returns the first error that nobody has heard of, of operations
 * with safety none; NULL is fine.
 */
int varjfs_close(varjfs *v);
/* Everything that was answered before is durable on 0. */
int varjfs_sync(varjfs *v);
/*
 * What the daemon has done since it started, and of the volumes that this program may use
 * since they were opened, as text: JSON, or with VARJFS_PROMETHEUS in @flags what
 * Prometheus reads.
 *
 * @len      bytes of all of it, at most VARJFS_STATISTICS_MAX
 * Returns   0; -ERANGE that is more than @cap, what is in @dst is undefined; -EINVAL
 */
#define VARJFS_PROMETHEUS 1u
#define VARJFS_STATISTICS_MAX (1 << 20)
int varjfs_statistics(varjfs *v, char *dst, size_t cap, size_t *len, unsigned flags);
/* A text for the last failure of varjfs_open in this thread, more than varjfs_strerror
 * has; never NULL. */
const char *varjfs_open_error(void);
/* A text for what functions return; never NULL.  Threads: any. */
const char *varjfs_strerror(int error);
/*
 * A setting of a configuration, with its line and its value as it is used (@fault NULL);
 * or a fault, with the key that it is about, unless it is about none, and line 0 where it
 * is about the file as a whole.
 */
typedef void varjfs_config_visit(void *opaque, unsigned line, const char *key,
                                 const char *value, const char *fault);
/* Calls @visit for all settings and faults of the configuration @path.  0: it is a good
 * one; -EINVAL: there are faults; -errno of the file.  Files that it names are not looked
 * at.  Threads: any. */
int varjfs_config_each(const char *path, varjfs_config_visit *visit, void *opaque);
/* "0.1.0" */
const char *varjfs_version(void);

/* ---- semantics --------------------------------------------------------------------- */

enum varjfs_atomicity {
    VARJFS_ATOMICITY_NONE = 0,      /* a crash may leave a part of an operation */
    VARJFS_ATOMICITY_OPERATION = 1, /* each operation happens entirely or not at all */
    VARJFS_ATOMICITY_BATCH = 2      /* the whole batch does; what has to do with content
                                     * is -ENOTSUP, unless it is small and of an object
                                     * that the batch creates: varjfs-semantics(7) */
};
enum varjfs_concurrency {
    VARJFS_CONCURRENCY_NONE = 0,            /* nobody else uses the same objects */
    VARJFS_CONCURRENCY_NON_OVERLAPPING = 1, /* others use other ranges */
    VARJFS_CONCURRENCY_OVERLAPPING = 2
};
enum varjfs_consistency {
    VARJFS_CONSISTENCY_NONE = 0,     /* others see it at some time after a sync */
    VARJFS_CONSISTENCY_SESSION = 1,  /* when the connection is closed */
    VARJFS_CONSISTENCY_EVENTUAL = 2, /* soon */
    VARJFS_CONSISTENCY_IMMEDIATE = 3 /* when the batch has returned */
};
enum varjfs_ordering {
    VARJFS_ORDERING_RELAXED = 0, /* operations of a batch in any order */
    VARJFS_ORDERING_SEMI = 1,    /* those on the same object or key in order */
    VARJFS_ORDERING_STRICT = 2   /* all in order; none behind one that failed */
};
enum varjfs_persistency {
    VARJFS_PERSISTENCY_NONE = 0,     /* need not survive the daemon */
    VARJFS_PERSISTENCY_EVENTUAL = 1, /* becomes durable within commit= seconds */
    VARJFS_PERSISTENCY_IMMEDIATE = 2 /* is durable when the batch has returned */
};
enum varjfs_safety {
    VARJFS_SAFETY_NONE = 0,    /* was sent; errors come with a later call */
    VARJFS_SAFETY_NETWORK = 1, /* the machines that keep it have it */
    VARJFS_SAFETY_STORAGE = 2  /* is durable */
};
enum varjfs_security {
    VARJFS_SECURITY_NONE = 0,  /* whoever may connect */
    VARJFS_SECURITY_STRICT = 1 /* and the daemon compares who owns an object */
};

struct varjfs_semantics {
    size_t size; /* sizeof(struct varjfs_semantics) */
    uint8_t atomicity, concurrency, consistency, ordering, persistency, safety, security;
    uint8_t reserved; /* 0 */
};

/* "default", "posix", "temporary", "checkpoint".  out->size is set by the caller.
 * -EINVAL: another name, or that is too small. */
int varjfs_semantics_template(const char *name, struct varjfs_semantics *out);
/*
 * Can it be had?  0; -ENOTSUP, and *why, unless NULL, is a static text that names what
 * cannot be given and why; -EINVAL: a value that has no meaning.
 */
int varjfs_semantics_check(const struct varjfs_semantics *s, const char **why);

/* ---- batches ----------------------------------------------------------------------- */

/*
 * varjfs_batch_new - an empty batch of @v
 *
 * @s        copied; NULL: the default template
 * Returns   0 and *out owned; errors of varjfs_semantics_check; -ENOMEM
 */
int varjfs_batch_new(varjfs *v, const struct varjfs_semantics *s, varjfs_batch **out);
/* One that was submitted is waited for.  NULL is fine. */
void varjfs_batch_free(varjfs_batch *b);

/*
 * varjfs_batch_execute - do what was gathered, and empty the batch
 *
 * Buffers, names and results of operations stay valid until it returns.
 * Returns   0; the error of the first operation that failed: each has one of its own by
 *           @result.  -E2BIG an atomic batch is too long, nothing was done.  -ETIMEDOUT,
 *           -ECONNRESET: what of it was done is not known, and the connection is of no
 *           use any more; with atomicity batch all of it or nothing
 */
int varjfs_batch_execute(varjfs_batch *b);
/*
 * Sends it and returns: then varjfs_batch_wait.  Buffers, names and results stay valid
 * until that returns; nothing is added meanwhile (-EBUSY).  The order of batches that are
 * on their way at the same time is not defined, also where they use the same names: one
 * that is to see another one, or to follow it, is submitted when that has been waited
 * for.
 * Returns   0; -EBUSY VARJFS_IN_FLIGHT_MAX are on their way; -E2BIG, -ENOMEM, or why the
 *           connection has failed: nothing was sent, and the batch is as it was
 */
int varjfs_batch_submit(varjfs_batch *b);
/* As varjfs_batch_execute after its begin. */
int varjfs_batch_wait(varjfs_batch *b);
/* Asks for it not to be done any more; what wait says then holds: -ECANCELED, or what
 * came of it. */
int varjfs_batch_cancel(varjfs_batch *b);
/*
 * Without waiting: 1, varjfs_batch_wait will not wait; 0, the daemon has not answered
 * yet; -EINVAL it was not submitted.  Of a batch that is more than one request it sends
 * the next one, which the daemon has to take.
 */
int varjfs_batch_test(varjfs_batch *b);
/*
 * A file descriptor that poll(2) finds readable when the daemon has sent something: then
 * varjfs_batch_test of each batch that is on its way, which has to have been called once
 * before, as another call may have read the answer.  For poll alone, and the library's;
 * -errno where the connection has failed.
 */
int varjfs_descriptor(varjfs *v);

/*
 * Operations.  Each is added to a batch, and done when that is executed: functions return
 * 0, -EINVAL (a name that is none), -EFBIG, -EBUSY, -ENOMEM; then nothing was added.
 * @result, unless NULL, is the operation's own 0 or -errno after execution.
 */

struct varjfs_object_options {
    size_t size;           /* sizeof(struct varjfs_object_options) */
    const char *transform; /* as user.varjfs.transform: "lz4", "zstd:9"; NULL: as the
                            * volume has it */
    const char *mode;      /* "client", "server", "transport"; NULL: likewise */
    const char *objects;   /* "AVG" or "MIN:AVG:MAX"; NULL: likewise */
    /* Which nodes of the store get its content: "content" or NULL, "weighted": both are
     * what the volume does, by the weights of its nodes.  "round-robin" and "single:NODE"
     * are -ENOTSUP: content that is equal is kept once for all objects, so it has no node
     * of one object's own. */
    const char *distribution;
};

struct varjfs_object_status {
    size_t size; /* sizeof(struct varjfs_object_status), set by the caller */
    uint64_t bytes;
    uint64_t stored_bytes; /* exact when its changes have been written back (sync) */
    int64_t modified_us;   /* since 1970 */
    int64_t created_us;
    char transform[128];
};

/* @flags below: 0, or what is named there; another one is -EINVAL.  Names, buffers and
 * @result stay valid until the batch has been executed; options and attributes of what is
 * created are copied. */
#define VARJFS_EXCLUSIVE 1u /* *result: -EEXIST where there is one */
#define VARJFS_APPEND 2u    /* at the end, wherever that is then; offset, old_len 0 */
#define VARJFS_CREATE 4u /* an object that is not there is made, as the volume has it */

/* *result: -EEXIST. */
int varjfs_object_create(varjfs_batch *b, const char *space, const char *name,
                         const struct varjfs_object_options *options, int *result);
/* *result: -ENOENT, as of all below. */
int varjfs_object_delete(varjfs_batch *b, const char *space, const char *name,
                         int *result);
int varjfs_object_status(varjfs_batch *b, const char *space, const char *name,
                         struct varjfs_object_status *out, int *result);
/* *got, unless NULL: bytes that were read; fewer than @len at the end of the object. */
int varjfs_object_read(varjfs_batch *b, const char *space, const char *name, void *dst,
                       size_t len, uint64_t offset, size_t *got, int *result);
/* Behind the end: what is between is zero.  @flags: VARJFS_APPEND, VARJFS_CREATE. */
int varjfs_object_write(varjfs_batch *b, const char *space, const char *name,
                        const void *src, size_t len, uint64_t offset, unsigned flags,
                        int *result);
/* The @old_len bytes at @offset, or as many of them as are there, become the @len bytes
 * of @src, as rpwrite(2).  @flags: VARJFS_APPEND. */
int varjfs_object_rwrite(varjfs_batch *b, const char *space, const char *name,
                         const void *src, size_t len, uint64_t offset, uint64_t old_len,
                         unsigned flags, int *result);

/* It is cut off, or goes on with zeros. */
int varjfs_object_resize(varjfs_batch *b, const char *space, const char *name,
                         uint64_t bytes, int *result);
/* Another name in its namespace.  One that has it goes, in the same step; @flags:
 * VARJFS_EXCLUSIVE. */
int varjfs_object_rename(varjfs_batch *b, const char *space, const char *name,
                         const char *new_name, unsigned flags, int *result);

/*
 * Items.  An item is an object: all that is above can be done with it, and any object can
 * be given attributes.  They go away with it.  Their names have any bytes but NUL, 1 to
 * VARJFS_ATTRIBUTE_NAME_MAX of them; what begins with "varjfs." is -EPERM.  *result:
 * -ENOENT there is no such item, -ENODATA it has no such attribute.
 */
struct varjfs_attribute {
    const char *name;
    const void *value; /* NULL where len is 0 is fine; of what is iterated: see there */
    size_t len;
};

/* varjfs_object_create with attributes: nobody sees it without them.  @options NULL: as
 * the volume has it.  -EFBIG more than VARJFS_CREATE_ATTRIBUTES_MAX, or
 * VARJFS_CREATE_BYTES_MAX; -EINVAL also: a name twice. */
int varjfs_item_create(varjfs_batch *b, const char *collection, const char *item,
                       const struct varjfs_object_options *options,
                       const struct varjfs_attribute *attributes, size_t count,
                       int *result);
/* @flags: VARJFS_EXCLUSIVE. */
int varjfs_attribute_put(varjfs_batch *b, const char *collection, const char *item,
                         const char *attribute, const void *value, size_t len,
                         unsigned flags, int *result);
/* As varjfs_kv_get. */
int varjfs_attribute_get(varjfs_batch *b, const char *collection, const char *item,
                         const char *attribute, void *dst, size_t cap, size_t *len,
                         int *result);
int varjfs_attribute_delete(varjfs_batch *b, const char *collection, const char *item,
                            const char *attribute, int *result);

/* @key: 1 to VARJFS_NAME_MAX bytes of any value.  @flags: VARJFS_EXCLUSIVE. */
int varjfs_kv_put(varjfs_batch *b, const char *space, const void *key, size_t key_len,
                  const void *value, size_t len, unsigned flags, int *result);
/* *len: of the whole value.  *result -ERANGE: that is more than @cap, nothing is in
 * @dst. */
int varjfs_kv_get(varjfs_batch *b, const char *space, const void *key, size_t key_len,
                  void *dst, size_t cap, size_t *len, int *result);
int varjfs_kv_delete(varjfs_batch *b, const char *space, const void *key, size_t key_len,
                     int *result);

/* ---- iteration --------------------------------------------------------------------- */

struct varjfs_entry {
    size_t size;      /* sizeof(struct varjfs_entry), set by the caller */
    const void *name; /* valid until the next step; ends with a NUL that is not counted */
    size_t name_len;
    const void *value; /* of keys and attributes */
    size_t len;
    /* Of items, those that were asked for, in that order.  A value that is longer than
     * VARJFS_ITERATE_VALUE_MAX is NULL with its length; one that is not there is NULL,
     * and its len 0. */
    const struct varjfs_attribute *attributes;
    size_t attribute_count;
};

/*
 * In the order of bytes, those whose names begin with @prefix (NULL: all).  What others
 * make or remove meanwhile may be seen or not; what is there all the time is seen once.
 * @space NULL: the namespaces themselves.  *out owned; -EINVAL, -ENOMEM.
 */
int varjfs_object_iterate(varjfs *v, const char *space, const char *prefix,
                          varjfs_iterator **out);
int varjfs_kv_iterate(varjfs *v, const char *space, const void *prefix, size_t prefix_len,
                      varjfs_iterator **out);
/* The attributes of one item whose names begin with @prefix; the next step is -ENOENT
 * where there is no such item. */
int varjfs_attribute_iterate(varjfs *v, const char *collection, const char *item,
                             const char *prefix, varjfs_iterator **out);
/* As varjfs_object_iterate of a collection, with these attributes of each, if it has
 * them: at most VARJFS_ITERATE_ATTRIBUTES_MAX, whose names are copied. */
int varjfs_item_iterate(varjfs *v, const char *collection, const char *prefix,
                        const char *const *attributes, size_t count,
                        varjfs_iterator **out);
/* 1 with *out; 0: that was all; -errno.  -EINVAL: out->size is too small. */
int varjfs_iterator_next(varjfs_iterator *i, struct varjfs_entry *out);
void varjfs_iterator_free(varjfs_iterator *i); /* NULL is fine */

/* ---- namespaces -------------------------------------------------------------------- */

enum varjfs_kind { VARJFS_OBJECTS = 0, VARJFS_KEYS = 1 };

/* Called between two requests; @gone: objects or keys so far.  Else than 0: no more. */
typedef int (*varjfs_progress)(void *opaque, uint64_t gone);

/*
 * varjfs_namespace_delete - all of a namespace, and the namespace
 *
 * In steps, each a request: others see it become less.  What is not done yet when it
 * ends early stays, and the next call goes on with it.  What others put there meanwhile
 * goes too, or stays as if it had been put afterwards.
 * @progress  NULL: it goes on to the end
 * Returns    0; -ENOENT there is none; -ECANCELED as @progress says; -ENOTEMPTY programs
 *            of a mount have made directories there, all else is gone
 */
int varjfs_namespace_delete(varjfs *v, enum varjfs_kind kind, const char *space,
                            varjfs_progress progress, void *opaque);

#ifdef __cplusplus
}
#endif

#endif
