/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fs-private.h - what the files of this room share
 */
#ifndef VJ_FS_FS_PRIVATE_H
#define VJ_FS_FS_PRIVATE_H

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "fs/fs.h"
#include "fs/records.h"

/* An inode that is open or has lost its last name. */
typedef struct VjNode {
    uint64_t ino;
    unsigned handles;
    unsigned writers; /* of them: opened for writing */
    bool orphan;
    bool forgotten; /* orphans: the kernel does not name it any more */
    bool was_read;  /* at atime, which is not committed yet */
    struct timespec atime;
    /* Calls of utimens that have found an atime here: under way, which keep the node, and
     * begun.  The number of the one that took was_read last; 0: none did, or a later
     * atime is set. */
    unsigned utimens_now;
    uint64_t utimens_count, read_taken_by;
    gint record;          /* atomic: what is known of its records (flags.c) */
    gint atime_is_new;    /* atomic: nothing changed since the last read */
    gint reads_forgotten; /* atomic: how often an atime was set that beats was_read */
} VjNode;

struct VjFs {
    VjVolume *volume;
    VjFileTable *files; /* of volume */
    VjMeta *meta;
    VjFsKnows *knows;
    void *knows_opaque;
    const VjFsRequests *requests; /* NULL: there is no kernel that sends any */
    void *requests_opaque;
    const VjFsEvents *events; /* changes between two calls of vj_volume_listen */
    void *events_opaque;
    bool noatime;
    VjSafety safety;     /* of what has no setting of its own */
    gint read_count;     /* atomic: nodes with was_read or read_taken_by */
    gint read_end_count; /* atomic: how often one has lost both */

    VjMutex lock; /* VJ_RANK_FS */
    /* guarded by lock: */
    GHashTable *nodes; /* uint64_t* in VjNode → VjNode, owned */
    size_t staged_bytes;
    uint64_t inode_count;   /* with a name, or open without one */
    GHashTable *busy_paths; /* of the inodes that were listed last; "": none is known */
    int64_t busy_us;        /* when they were looked for; 0: never */
    int64_t busy_look_us;   /* how long that took */
    GHashTable *shown;      /* paths that were looked for a while ago, by inode */
    int64_t shown_us;       /* when that was begun; 0: never */
    int64_t look_us;        /* how long it took the last time */
};

/* Takes @n away when nothing holds it; true: it was an orphan, the caller reaps it. */
static inline bool vj_fs_node_drop_unused_locked(VjFs *fs, VjNode *n)
    VJ_REQUIRES(fs->lock)
{
    bool reap = n->orphan && n->forgotten;

    if (n->handles > 0 || n->utimens_now > 0 || (n->orphan && !n->forgotten)) {
        return false;
    }
    g_assert(!n->was_read && n->read_taken_by == 0);
    g_hash_table_remove(fs->nodes, &n->ino);
    return reap;
}

typedef struct VjStage {
    uint64_t id;
    VjBuf *data;
} VjStage;

struct VjHandle {
    VjFs *fs;
    VjFile *file;
    uint64_t ino;
    VjNode *node; /* stays while the handle does */
    int flags;

    VjMutex lock; /* VJ_RANK_FS_HANDLE */
    /* guarded by lock: */
    uint64_t append_who; /* of vj_file_append_who; 0: it has not appended in parts */
    uint32_t error_mark;
    GArray *stages; /* of VjStage; NULL until the first */
    uint64_t last_stage_id;
    size_t staged_bytes;
};

/*
 * "inode 7 (/a/b)", owned; "inode 7" where it has no name, and where all names would be
 * read too often (path.c).  For the log alone: no thread is to be in a transaction, or
 * hold a lock.
 */
char *vj_fs_shown_name(VjFs *fs, uint64_t ino);
/*
 * vj_fs_busy_paths - one path of each of @busy, for people
 *
 * May be some seconds old, and is NULL where none is known yet: files do not know their
 * names, so one pass over all names finds them, and a search in each directory above the
 * rest of their paths.  That takes a small share of the time (LOOK_SHARE of path.c), and
 * may be done by this call: it blocks.
 * @visit is called for each, without a lock.
 * Locks   none
 */
typedef void VjFsBusyVisit(void *opaque, const VjFsBusy *busy, const char *path);
void vj_fs_busy_paths(VjFs *fs, const VjFsBusy *busy, unsigned count,
                      VjFsBusyVisit *visit, void *opaque);

/* attr.c: vj_fs_getattr for each of at most VJ_FILE_LOOKS_MOST. */
void vj_fs_getattr_many(VjFs *fs, const uint64_t *inos, size_t count, VjAttr *out,
                        int *results);

/* run.c: vj_meta_run on a volume that may be written. */
int vj_fs_run(VjFs *fs, VjRunFlags flags, VjTxnBody *body,
              void *op) G_GNUC_WARN_UNUSED_RESULT;

/* run.c: what is waited for where @inode is changed, or a name in it: its setting, or
 * else the mount's. */
static inline VjSafety vj_fs_safety_of(const VjFs *fs, const VjInode *inode)
{
    return inode->flags & VJ_INODE_SAFETY ? inode->safety : fs->safety;
}

/*
 * run.c: the end of an operation that vj_fs_run ran, when all that belongs to it in
 * memory is done: waits until its change is as safe as @safety says.  @r: what it
 * returned so far; a failure is passed on.  _content: of what was written to @file, too,
 * which is committed first.  A failure here says that the change can be seen and may be
 * lost.  Blocks.
 */
int vj_fs_acknowledge(VjFs *fs, int r, VjSafety safety) G_GNUC_WARN_UNUSED_RESULT;
int vj_fs_acknowledge_content(VjFs *fs, VjFile *file,
                              VjSafety safety) G_GNUC_WARN_UNUSED_RESULT;
/* settings.c: as the value of user.varjfs.safety. */
const char *vj_fs_safety_name(VjSafety safety);

/* after.c: the file system of changes that are gathered, and what they are. */
struct VjFsAfter {
    VjFs *fs;
    struct timespec now;
    unsigned made;    /* inodes */
    GArray *changed;  /* uint64_t: inodes whose records are new */
    GArray *unlinked; /* VjFsUnlinked: that have lost their last names */
    VjSafety safety;  /* the most that any of them asks for */
    uint8_t *record;  /* room for an attribute; NULL until the first */
};
typedef struct VjFsUnlinked {
    uint64_t ino;
    bool left_open;
} VjFsUnlinked;
void vj_fs_after_changed(VjFsAfter *a, uint64_t ino, VjSafety safety);

/* fs.c: which inodes are open, which are orphans. */
int vj_fs_node_open(VjFs *fs, uint64_t ino, int flags,
                    VjHandle **out) G_GNUC_WARN_UNUSED_RESULT;
/* A handle of @file, which it takes. */
VjHandle *vj_fs_node_opened(VjFs *fs, VjFile *file, int flags);
/* A committed transaction took the last name of @ino.  @held: the kernel is about to get
 * its number. */
void vj_fs_node_orphaned(VjFs *fs, uint64_t ino, bool held);
/* The same of a name that was taken; @left_open: another session drops it. */
void vj_fs_node_unlinked(VjFs *fs, uint64_t ino, bool left_open);
void vj_fs_node_named(VjFs *fs, uint64_t ino);
/* A committed transaction made an inode. */
void vj_fs_node_made(VjFs *fs);

/* atime.c: a READ came; the content changed; what stat shows; a handle goes. */
void vj_fs_note_read(VjHandle *h);
void vj_fs_note_change(VjHandle *h);
void vj_fs_show_read(VjFs *fs, uint64_t ino, VjAttr *out);
void vj_fs_commit_read(VjHandle *h);
/* An atime that is set wins over earlier reads: around its transaction, as
 * vj_file_utimens_begin and _end. */
typedef struct VjUtimensRead {
    VjNode *n; /* NULL: there was no atime to win over */
    uint64_t number;
} VjUtimensRead;
void vj_fs_utimens_begin(VjFs *fs, uint64_t ino, VjUtimensRead *out);
void vj_fs_utimens_end(VjFs *fs, const VjUtimensRead *u, int r);

/* append.c: as vj_file_append_undo. */
bool vj_fs_append_undo(VjHandle *h, uint64_t size);

/* flags.c: what of @h's inode is protected; whether a change of content may have
 * privileges to take away (the set-id bits, security.capability); -EPERM unless it may be
 * written to by @h (@appends: at the end), opened with @flags.  note_made: @inode has
 * just been made, and opened as @h.  is_without_capability: an open inode is remembered
 * to have no security.capability. */
void vj_fs_note_made(VjHandle *h, const VjInode *inode);
int vj_fs_protection(VjHandle *h, uint32_t *out) G_GNUC_WARN_UNUSED_RESULT;
bool vj_fs_is_without_capability(VjFs *fs, uint64_t ino);
int vj_fs_has_privileges(VjHandle *h, bool *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_fs_may_write(VjHandle *h, bool appends) G_GNUC_WARN_UNUSED_RESULT;
int vj_fs_may_open(VjHandle *h, int flags) G_GNUC_WARN_UNUSED_RESULT;
/* The record of @ino or an attribute was changed, or may have been: what is open looks
 * again, at what it may do and at whether a read is newer. */
void vj_fs_record_changed(VjFs *fs, uint64_t ino);
void vj_fs_all_records_changed(VjFs *fs);
/* elsewhere.c: before the file system is freed. */
void vj_fs_listen_end(VjFs *fs);
/* Attributes and names of @inode cannot be changed; of a directory: no name in it may
 * go. */
static inline bool vj_is_protected(const VjInode *inode)
{
    return (inode->flags & VJ_INODE_PROTECTED) != 0;
}
/* Of a directory: no name may come. */
static inline bool vj_is_immutable(const VjInode *inode)
{
    return (inode->flags & VJ_INODE_IMMUTABLE) != 0;
}

void vj_fs_attr(const VjInode *inode, VjAttr *out);
/* attr.c: as vj_fs_clear_privileges, where the kernel has not said whether @who has
 * CAP_FSETID. */
int vj_fs_clear_privileges_open(VjHandle *h,
                                const VjCaller *who) G_GNUC_WARN_UNUSED_RESULT;

#define VJ_CAPABILITY_XATTR "security.capability"
/* privileges.c: the bits of @mode that a write takes away.  @member: the caller is in the
 * file's group. */
mode_t vj_set_id_bits(mode_t mode, bool member);
/* They depend on @member. */
bool vj_set_id_needs_member(mode_t mode);
int vj_fs_has_capability(VjFs *fs, uint64_t ino, bool *out) G_GNUC_WARN_UNUSED_RESULT;
/* @ino has any of these; by its record, for vj_fs_has_privileges, which remembers. */
int vj_fs_look_for_privileges(VjFs *fs, uint64_t ino,
                              bool *out) G_GNUC_WARN_UNUSED_RESULT;

static inline bool vj_fs_time_later(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

/* Names that are brought nearer with one that is far, and extended attributes, whose
 * values may be long. */
#define VJ_NAMES_AHEAD 64u
#define VJ_XATTRS_AHEAD 8u

/*
 * expect.c: where reading @key, which ends with a name, is a round trip: that brings what
 * stands next to it too, up to @count keys.  What is mostly looked for in vain (a name
 * that is to be made, attributes that hardly any file has) is found not to be there, and
 * so is what would stand beside it, in one round trip for all of them.
 */
void vj_fs_expect_near(VjTxn *txn, VjSpace space, const VjFsKey *key, size_t count);

/* names.c: what may be a name; more of one name in a transaction (records.h). */
int vj_fs_name_check(const char *name) G_GNUC_WARN_UNUSED_RESULT;
/* What vj_name_del() took, under another name of the same directory. */
int vj_name_put_back(VjTxn *txn, VjInode *dir, const char *name,
                     const VjDentry *was) G_GNUC_WARN_UNUSED_RESULT;
/* The name keeps its cookie and names another inode. */
int vj_name_set(VjTxn *txn, uint64_t dir, const char *name,
                const VjDentry *now) G_GNUC_WARN_UNUSED_RESULT;
int vj_name_del(VjTxn *txn, VjInode *dir, const char *name,
                const VjDentry *was) G_GNUC_WARN_UNUSED_RESULT;
/* An inode record that some name or parent promises: missing is damage. */
int vj_named_inode_get(VjTxn *txn, uint64_t ino, VjInode *out) G_GNUC_WARN_UNUSED_RESULT;
/* A directory that names may be added to. */
int vj_dir_get(VjTxn *txn, uint64_t ino, VjInode *out) G_GNUC_WARN_UNUSED_RESULT;

/* make.c: a whiteout for a name in @dir, in the caller's transaction; @ino of
 * vj_fs_ino_new; its name is the caller's business, and vj_fs_node_made() after the
 * commit. */
int vj_whiteout_make(VjTxn *txn, const VjFs *fs, const VjCaller *who, const VjInode *dir,
                     struct timespec now, uint64_t ino) G_GNUC_WARN_UNUSED_RESULT;

/*
 * caller.c: look into /proc; no locks, no transaction.  A caller that /proc does not show
 * is neither. capable: in the daemon's user namespace; @capability: CAP_*.  is_member: of
 * the group of @inode, or of a user namespace that has owner and group of @inode, with
 * CAP_FSETID there: such a caller may have it set-gid, as the kernel sees it.
 */
bool vj_caller_capable(const VjCaller *who, unsigned capability);
bool vj_caller_is_member(const VjCaller *who, const VjInode *inode);

/* acl.c: in the caller's transaction; a caller that gets another mode of @inode puts
 * it. */
/* @inode is about to be made in @dir with the mode that was asked for. */
int vj_acl_inherit(VjTxn *txn, const VjInode *dir, mode_t umask,
                   VjInode *inode) G_GNUC_WARN_UNUSED_RESULT;
/* -EINVAL: @value is no list; -EOPNOTSUPP: a symlink; -EACCES: a default list of what is
 * no directory; -E2BIG. */
int vj_acl_set(VjTxn *txn, VjInode *inode, const char *name, VjSlice value,
               bool keep_set_gid) G_GNUC_WARN_UNUSED_RESULT;
int vj_acl_remove(VjTxn *txn, const VjInode *inode,
                  const char *name) G_GNUC_WARN_UNUSED_RESULT; /* -ENODATA */

/* xattr-record.c: whether @name is there. */
int vj_xattr_exists(VjTxn *txn, uint64_t ino, const char *name,
                    bool *out) G_GNUC_WARN_UNUSED_RESULT;

/* text.c: the value of user.varjfs.status; owned. */
int vj_fs_status_text(VjFs *fs, uint64_t ino, char **out) G_GNUC_WARN_UNUSED_RESULT;
const char *vj_fs_mode_name(uint8_t mode);

/* settings.c: user.varjfs.*, which are fields of the inode. */
typedef struct VjSetting VjSetting;
/* @name without the prefix; NULL: there is none. */
const VjSetting *vj_setting_find(const char *name);
/* The effective value; owned. */
char *vj_setting_text(const VjSetting *s, const VjFs *fs, const VjInode *inode);
/* The names, with @prefix and a NUL each, of those that were set on @inode itself. */
void vj_settings_list(const VjInode *inode, const char *prefix, GString *names);
/* On an inode that is being made.  -EDOM: no such setting, or value of one; the log says
 * why. */
int vj_setting_make(const VjFs *fs, VjInode *inode,
                    const VjFsSetting *setting) G_GNUC_WARN_UNUSED_RESULT;
/* As setxattr(2) and removexattr(2); @name without the prefix, for set.  -EINVAL the name
 * or the value means nothing, and the log says why; -EPERM neither file nor directory;
 * -EEXIST, -ENODATA. */
int vj_setting_set(VjFs *fs, const VjCaller *who, uint64_t ino, const char *name,
                   const void *value, size_t len, int flags) G_GNUC_WARN_UNUSED_RESULT;
int vj_setting_remove(VjFs *fs, uint64_t ino,
                      const VjSetting *s) G_GNUC_WARN_UNUSED_RESULT;

#endif
