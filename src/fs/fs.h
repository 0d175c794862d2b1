/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fs.h - what a file system means: names, attributes, handles; the face of the room fs
 *
 * Plain functions over inode numbers and handles, called by front and by tests.  Nothing
 * here knows FUSE. Permissions are checked by the kernel (default_permissions): the
 * caller's identity decides the owner of what is made, and which privileges an edit takes
 * away.
 *
 * Unless said otherwise: functions return 0 or -errno; any thread; no locks may be held;
 * they block on metadata in memory only, those that say "blocks" on the store too.  What
 * changes something is -EROFS on a read-only volume.  A name that is longer than 255
 * bytes is -ENAMETOOLONG; -EBADMSG means a damaged record, which has been logged.
 */
#ifndef VJ_FS_FS_H
#define VJ_FS_FS_H

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "file/file.h"
#include "volume/volume.h"

typedef struct VjFs VjFs;
/* An open file description.  The caller that opened it releases it, once. */
typedef struct VjHandle VjHandle;

/* Most names of a file. */
#define VJ_FS_LINK_MAX 65000u
/* Staged edit data of one handle, and of all handles together, bytes. */
#define VJ_FS_STAGE_MAX VJ_FILE_EDIT_MAX
#define VJ_FS_STAGE_TOTAL_MAX ((size_t)256 << 20)
/* Stages of one handle at one time: an edit that is being staged needs one. */
#define VJ_FS_STAGES_MAX 1024u

/* The caller of a request. */
typedef struct VjCaller {
    uid_t uid;
    gid_t gid;
    mode_t umask; /* taken off the modes of what is made, without a default access list */
    pid_t pid;    /* its thread, as /proc has it; 0: /proc does not show it here */
} VjCaller;

typedef struct VjAttr {
    struct stat st;
    struct timespec btime; /* when it was made */
    uint64_t generation;
    uint32_t flags;  /* VJ_INODE_CHATTR */
    bool may_change; /* st_blocks, by write-back, or as fragments become objects */
} VjAttr;

/* True when the kernel, or what stands for it in tests, may still name @ino without a
 * handle. */
typedef bool VjFsKnows(void *opaque, uint64_t ino);

/* Setup only.  @volume is borrowed until vj_fs_free. */
VjFs *vj_fs_new(VjVolume *volume);
/* Every handle has been released.  NULL is fine. */
void vj_fs_free(VjFs *fs);
/* Setup only.  Without it an inode without name and handle is removed at once. */
void vj_fs_set_knows(VjFs *fs, VjFsKnows *knows, void *opaque);

/* An inode that many requests were about, or a thread that many came from. */
typedef struct VjFsBusy {
    uint64_t id; /* of the inode; of the thread, as gettid(2) says */
    /* Hardly ever below their number (threads that meet), above it by `over` at most. */
    uint64_t requests;
    uint64_t over;  /* those of what had its place in the list before */
    uint64_t bytes; /* that READs asked for and WRITEs brought, since it has the place */
} VjFsBusy;

/* So many inodes, and as many threads. */
#define VJ_BUSIEST_MAX 256u

/* What the kernel has asked for.  Threads: any. */
typedef struct VjFsRequests {
    /* By kind, in fixed order. */
    void (*visit)(void *opaque, VjCallVisit *visit, void *visitor);
    /* Those that came most often, in no order; returns how many. */
    unsigned (*busiest_files)(void *opaque, VjFsBusy out[VJ_BUSIEST_MAX]);
    unsigned (*busiest_threads)(void *opaque, VjFsBusy out[VJ_BUSIEST_MAX]);
} VjFsRequests;

/* Setup only; @requests is borrowed.  Without them VARJFS_TEXT_CALLS has none, and
 * VARJFS_TEXT_BUSIEST nothing. */
void vj_fs_set_requests(VjFs *fs, const VjFsRequests *requests, void *opaque);

/* What other sessions of a shared volume did.  Threads: any, also those of other volumes
 * of this process.  Must neither block nor call this room. */
typedef struct VjFsEvents {
    /* Attributes of @ino, whose record may have gone; @content: its content too. */
    void (*inode_changed)(void *opaque, uint64_t ino, bool content);
    /* @name came to @dir, went, or leads to another inode. */
    void (*name_changed)(void *opaque, uint64_t dir, const char *name);
    /* Some of it was missed: anything may have been changed. */
    void (*all_changed)(void *opaque);
} VjFsEvents;

/* Setup only.  Both borrowed until the next call; @events NULL ends it, and waits for a
 * call that runs.  Without others there is nothing to hear. */
void vj_fs_listen(VjFs *fs, const VjFsEvents *events, void *opaque);
/* Other sessions may be there, and change what one has seen a moment ago. */
bool vj_fs_is_shared(VjFs *fs);
/* This session was shut out by another one: everything fails, with -ESTALE. */
bool vj_fs_is_shut_out(VjFs *fs);

/* Setup only.  Reads leave no trace; without it atime follows them as relatime has it. */
void vj_fs_set_noatime(VjFs *fs);
/* Setup only.  What is waited for where neither the file nor, for a name, the directory
 * has user.varjfs.safety; VJ_SAFETY_NONE without it. */
void vj_fs_set_safety(VjFs *fs, VjSafety safety);

/* Setup only.  Its functions may wait for another machine: where they do they end with
 * -ETIMEDOUT after the time of the thread's VjCancel.  Near or far, what waits, for a
 * store too, ends with -ECANCELED when that is fired.  They have done nothing then; but
 * vj_fs_setattr may have set the size and not the attributes, and what changes content
 * may have taken privileges away. */
bool vj_fs_is_far(VjFs *fs);

/* The kernel does not name @ino any more: an orphan without handles is dropped now. */
void vj_fs_forgotten(VjFs *fs, uint64_t ino);

/* ---- names ------------------------------------------------------------------------- */

/* "." and ".." are names too (for file handles that outlive the kernel's cache). */
int vj_fs_lookup(VjFs *fs, const VjCaller *who, uint64_t parent, const char *name,
                 VjAttr *out) G_GNUC_WARN_UNUSED_RESULT;

/* Regular files, FIFOs, sockets, devices: type and permissions in @mode. */
int vj_fs_mknod(VjFs *fs, const VjCaller *who, uint64_t parent, const char *name,
                mode_t mode, dev_t rdev, VjAttr *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_fs_mkdir(VjFs *fs, const VjCaller *who, uint64_t parent, const char *name,
                mode_t mode, VjAttr *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_fs_symlink(VjFs *fs, const VjCaller *who, uint64_t parent, const char *name,
                  const char *target, VjAttr *out) G_GNUC_WARN_UNUSED_RESULT;
/* @dst holds VJ_SYMLINK_MAX + 1 bytes and ends with a NUL.  -EINVAL: not a symlink. */
int vj_fs_readlink(VjFs *fs, uint64_t ino, char *dst) G_GNUC_WARN_UNUSED_RESULT;
/* -EMLINK, -EEXIST, -EPERM (a directory) */
int vj_fs_link(VjFs *fs, uint64_t ino, uint64_t parent, const char *name,
               VjAttr *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_fs_unlink(VjFs *fs, uint64_t parent, const char *name) G_GNUC_WARN_UNUSED_RESULT;
int vj_fs_rmdir(VjFs *fs, uint64_t parent, const char *name) G_GNUC_WARN_UNUSED_RESULT;

#define VJ_RENAME_NOREPLACE (1u << 0)
#define VJ_RENAME_EXCHANGE (1u << 1)
#define VJ_RENAME_WHITEOUT (1u << 2)
/*
 * vj_fs_rename - one step for every observer and across a crash
 *
 * Over an existing name it becomes durable not before the moved file's content as it is
 * now: that content is committed first (blocks).  With VJ_RENAME_WHITEOUT the old name
 * does not go: it names a character device 0/0 of @who's from then on, which overlayfs
 * takes for "not there".  -EINVAL: into itself; other @flags, or VJ_RENAME_EXCHANGE with
 * another.
 */
int vj_fs_rename(VjFs *fs, const VjCaller *who, uint64_t parent, const char *name,
                 uint64_t new_parent, const char *new_name,
                 unsigned flags) G_GNUC_WARN_UNUSED_RESULT;

/* ---- attributes -------------------------------------------------------------------- */

int vj_fs_getattr(VjFs *fs, uint64_t ino, VjAttr *out) G_GNUC_WARN_UNUSED_RESULT;

enum {
    VJ_SET_MODE = 1 << 0,
    VJ_SET_UID = 1 << 1,
    VJ_SET_GID = 1 << 2,
    VJ_SET_SIZE = 1 << 3,
    VJ_SET_ATIME = 1 << 4,
    VJ_SET_MTIME = 1 << 5,
    /* vj_fs_clear_privileges: the caller has no CAP_FSETID. */
    VJ_SET_UNPRIVILEGED = 1 << 6,
    VJ_SET_CHANGES = 1 << 7, /* it has none, or security.capability is set */
    /* The kernel has looked: the caller may have this mode, and has CAP_FSETID unless it
     * is said. */
    VJ_SET_CHECKED = 1 << 8,
};

typedef struct VjSetattr {
    unsigned what; /* VJ_SET_* */
    mode_t mode;   /* permissions; the type bits are not looked at */
    uid_t uid;
    gid_t gid;
    uint64_t size;
    struct timespec atime, mtime; /* tv_nsec UTIME_NOW: the time of the call */
} VjSetattr;

/* @h may be NULL.  A change of size may block. */
int vj_fs_setattr(VjFs *fs, const VjCaller *who, uint64_t ino, VjHandle *h,
                  const VjSetattr *set, VjAttr *out) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_fs_clear_privileges - the privileges that a change of content takes away go
 *
 * Set-id bits and security.capability, for a caller of which the kernel says that it has
 * no CAP_FSETID. Edits find out themselves whether @who has it, as does a change of size
 * without VJ_SET_CHECKED; with that it takes the capability alone away unless
 * VJ_SET_UNPRIVILEGED comes too.  O_TRUNC takes all away for every caller.
 */
int vj_fs_clear_privileges(VjFs *fs, const VjCaller *who,
                           uint64_t ino) G_GNUC_WARN_UNUSED_RESULT;

/*
 * What chattr(1) shows and sets, VJ_INODE_CHATTR.  What VJ_INODE_IMMUTABLE and
 * VJ_INODE_APPEND_ONLY forbid is -EPERM in all functions here.  set: of regular files and
 * directories, by their owner or with CAP_FOWNER; a change of these two needs
 * CAP_LINUX_IMMUTABLE.  @who NULL: the kernel has checked that.  -EPERM also for a change
 * of another where VJ_INODE_IMMUTABLE stays; -EOPNOTSUPP other kinds of inodes, other
 * @flags.
 */
int vj_fs_get_flags(VjFs *fs, uint64_t ino, uint32_t *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_fs_set_flags(VjFs *fs, const VjCaller *who, uint64_t ino,
                    uint32_t flags) G_GNUC_WARN_UNUSED_RESULT;
/* A handle of @ino is open for writing: there may be mapped pages that wait to be
 * written. */
bool vj_fs_has_writers(VjFs *fs, uint64_t ino);

int vj_fs_statfs(VjFs *fs, struct statvfs *out) G_GNUC_WARN_UNUSED_RESULT;

/* ---- directories ------------------------------------------------------------------- */

typedef struct VjDirent {
    const char *name; /* borrowed for the call */
    uint64_t ino;
    uint64_t cookie; /* go on behind this one */
    uint8_t type;    /* DT_* */
} VjDirent;

/* @attr: NULL unless asked for, and when the inode went away meanwhile.  false: full. */
typedef bool VjFsVisit(void *opaque, const VjDirent *entry, const VjAttr *attr);

/*
 * vj_fs_readdir - names behind @cookie (0: from the start), in the order of creation
 *
 * Cookies grow within a directory and are never used twice: a name that is there all the
 * time is seen once, whatever is made and removed meanwhile.
 * @end           names from this cookie on are left out.  UINT64_MAX: set to the cookie
 *                that the next new name will get, so that a caller that makes or renames
 *                names as it reads them comes to an end.  NULL: all names
 * @about_bytes   how much the caller has room for; fewer names may be given
 * No transaction is open while @visit runs.
 */
int vj_fs_readdir(VjFs *fs, uint64_t dir, uint64_t cookie, uint64_t *end,
                  size_t about_bytes, bool with_attr, VjFsVisit *visit,
                  void *opaque) G_GNUC_WARN_UNUSED_RESULT;

/* Every change so far is durable (fsync of a directory, varjfsctl sync).  Blocks. */
int vj_fs_sync_names(VjFs *fs) G_GNUC_WARN_UNUSED_RESULT;
int vj_fs_sync_all(VjFs *fs) G_GNUC_WARN_UNUSED_RESULT;
/* As vj_fs_sync_names, but @w gets the answer, as from vj_meta_flush_join.  Any
 * thread. */
void vj_fs_sync_names_join(VjFs *fs, VjFlushWait *w);

/* ---- open files -------------------------------------------------------------------- */

/* @flags as open(2): O_TRUNC, O_EXCL and the access mode count. */
int vj_fs_open(VjFs *fs, const VjCaller *who, uint64_t ino, int flags,
               VjHandle **out) G_GNUC_WARN_UNUSED_RESULT;
int vj_fs_create(VjFs *fs, const VjCaller *who, uint64_t parent, const char *name,
                 mode_t mode, int flags, VjAttr *attr,
                 VjHandle **out) G_GNUC_WARN_UNUSED_RESULT;
/* A file without a name that vj_fs_link may give one. */
int vj_fs_tmpfile(VjFs *fs, const VjCaller *who, uint64_t parent, mode_t mode, int flags,
                  VjAttr *attr, VjHandle **out) G_GNUC_WARN_UNUSED_RESULT;
/* Ends @h.  In a shared session the last one of a file drops its claim, and blocks for
 * that. */
void vj_fs_release(VjFs *fs, VjHandle *h);
uint64_t vj_fs_handle_ino(const VjHandle *h);
/* It was opened for reading. */
bool vj_fs_handle_readable(const VjHandle *h);

/* At each close(2) of a writer: starts write-back; returns an error of earlier ones that
 * vj_fs_fsync has not returned yet.  In a shared session, and where user.varjfs.safety
 * says so: commits, waits for that, and returns its error.  -ECANCELED as below. */
int vj_fs_flush(VjHandle *h) G_GNUC_WARN_UNUSED_RESULT;
/* Durable on 0; blocks.  Returns an error of earlier write-back too, once a handle.
 * -ECANCELED: the caller's request was cancelled; that error waits for the next one. */
int vj_fs_fsync(VjHandle *h) G_GNUC_WARN_UNUSED_RESULT;
/* Its two halves: durable on 0, and the error of earlier write-back that no call has
 * returned yet. */
int vj_fs_sync(VjHandle *h) G_GNUC_WARN_UNUSED_RESULT;
/* As vj_fs_sync, but @w gets the answer, as from vj_meta_flush_join; @h stays until then.
 * Any thread; waits for the write-back. */
void vj_fs_sync_join(VjHandle *h, VjFlushWait *w);
int vj_fs_take_error(VjHandle *h) G_GNUC_WARN_UNUSED_RESULT;

/* Short only at the end of the file.  Blocks. */
int vj_fs_read(VjHandle *h, uint64_t offset, void *dst, size_t len,
               size_t *got) G_GNUC_WARN_UNUSED_RESULT;
/* The same; @parts, empty, gets where the bytes are: in @dst, or in memory that stays
 * until vj_fs_read_parts_clear.  *got is their sum. */
int vj_fs_read_parts(VjHandle *h, uint64_t offset, void *dst, size_t len, size_t *got,
                     VjReadParts *parts) G_GNUC_WARN_UNUSED_RESULT;
void vj_fs_read_parts_clear(VjReadParts *parts);

#define VJ_WRITE_APPEND (1u << 0) /* at the end; @offset is ignored */
/* @at: where it went (NULL: not wanted).  May wait for memory. */
int vj_fs_write(VjHandle *h, uint64_t offset, const void *src, size_t len, unsigned flags,
                uint64_t *at) G_GNUC_WARN_UNUSED_RESULT;

/*
 * Memory that a write may give away instead of having it copied: VJ_FS_BLOCK_BYTES, at a
 * page boundary.  NULL: there is none.
 */
#define VJ_FS_BLOCK_BYTES VJ_FILE_BLOCK_BYTES
void *vj_fs_block_new(VjFs *fs);
void vj_fs_block_free(VjFs *fs, void *block); /* NULL is fine */
/* As vj_fs_write; @src lies in *block.  *block becomes NULL when the file has taken
 * it. */
int vj_fs_write_block(VjHandle *h, uint64_t offset, void **block, const void *src,
                      size_t len, unsigned flags, uint64_t *at) G_GNUC_WARN_UNUSED_RESULT;

/* One request of an append that comes as several at the same time: as
 * vj_file_append_part, but for part->who, which is set here. */
int vj_fs_append_part(VjHandle *h, VjFilePart *part, void **block, const void *src,
                      size_t len) G_GNUC_WARN_UNUSED_RESULT;

/* @mode as fallocate(2): 0, KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE; others -EOPNOTSUPP. */
int vj_fs_fallocate(VjHandle *h, int mode, uint64_t offset,
                    uint64_t len) G_GNUC_WARN_UNUSED_RESULT;
int vj_fs_seek(VjHandle *h, uint64_t offset, bool data,
               uint64_t *out) G_GNUC_WARN_UNUSED_RESULT;
/* May be short; 0 only at the end of the source.  Blocks. */
int vj_fs_copy(VjHandle *src, uint64_t src_offset, VjHandle *dst, uint64_t dst_offset,
               uint64_t len, uint64_t *copied) G_GNUC_WARN_UNUSED_RESULT;

/*
 * A step of vj_file_recode (file.h).  -EBADF: @h is not open for writing, and @who is
 * neither owner nor root.  Blocks.
 */
int vj_fs_recode(VjHandle *h, const VjCaller *who,
                 VjRecode *step) G_GNUC_WARN_UNUSED_RESULT;

/* ---- edits ------------------------------------------------------------------------- */

typedef struct VjEdit {
    uint64_t offset;
    uint64_t old_len; /* clipped at the end */
    const void *src;
    /* Bytes, at most VJ_FILE_EDIT_MAX; of a hole as many as a file may have. */
    uint64_t len;
    bool append; /* at the end; offset is ignored */
    bool hole;   /* len bytes of hole come, src is not looked at; not with append */
    bool inside; /* with hole: -EINVAL unless offset + old_len is below the size */
} VjEdit;

/* What an edit did, in the coordinates of before. */
typedef struct VjEdited {
    uint64_t at;
    uint64_t old_len;  /* bytes that went */
    uint64_t len;      /* bytes that came instead */
    uint64_t old_size; /* of the file, before */
    uint64_t size;     /* and after */
    bool changed;      /* false: nothing happened, no times changed */
} VjEdited;

/*
 * vj_fs_replace - one visible step; insert (old_len 0) and delete (len 0) are cases of it
 *
 * Clears set-id bits as a write does.  -EBADF not open for writing; -EINVAL offset beyond
 * what a file can have; -EFBIG, -ENOSPC, -EIO.
 * The figures of @out are exact when no other caller changes the file's length during the
 * call: callers that need them keep others out.  _look: what it would do, as the file is
 * now.
 */
int vj_fs_replace_look(VjHandle *h, const VjEdit *edit,
                       VjEdited *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_fs_replace(const VjCaller *who, VjHandle *h, const VjEdit *edit,
                  VjEdited *out) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_fs_shift - a write most of whose bytes stand there already (vj_file_shift)
 *
 * @shift    change: from vj_fs_change_count; src_len at most VJ_FILE_EDIT_MAX
 * Clears set-id bits.  -EBUSY the content was changed since; -EINVAL src_len is 0 or not
 * below len, or what is to move is not in the file; else as vj_fs_replace.  @out: as of
 * an edit that replaces all of [offset, offset + len).  _look: what it would do, but for
 * -EBUSY.
 */
int vj_fs_shift_look(VjHandle *h, const VjFileShift *shift,
                     VjEdited *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_fs_shift(const VjCaller *who, VjHandle *h, const VjFileShift *shift,
                VjEdited *out) G_GNUC_WARN_UNUSED_RESULT;
/* The number for vj_fs_shift, and the size that belongs to it or is newer.  -EBADF,
 * -EROFS. */
int vj_fs_change_count(VjHandle *h, uint64_t *change,
                       uint64_t *size) G_GNUC_WARN_UNUSED_RESULT;

/*
 * Data that is too long for one call is staged under an id of the handle.  add: @id 0
 * makes a stage and sets it; @offset must be the stage's length so far (-EINVAL).
 * -ENOENT no such stage; -EFBIG the handle has staged VJ_FS_STAGE_MAX, or in
 * VJ_FS_STAGES_MAX stages; -ENOMEM all have.
 */
int vj_fs_stage_add(VjHandle *h, uint64_t *id, uint64_t offset, const void *src,
                    size_t len) G_GNUC_WARN_UNUSED_RESULT;
/* 0: there is such a stage, of @len bytes; -EINVAL: of others; -ENOENT. */
int vj_fs_stage_has(VjHandle *h, uint64_t id, uint64_t len) G_GNUC_WARN_UNUSED_RESULT;
int vj_fs_stage_drop(VjHandle *h, uint64_t id) G_GNUC_WARN_UNUSED_RESULT;
/* Ends the stage; @out is owned, and counts as staged no more. */
int vj_fs_stage_take(VjHandle *h, uint64_t id, VjBuf **out) G_GNUC_WARN_UNUSED_RESULT;

/* ---- extended attributes ----------------------------------------------------------- */

/*
 * user.* (of regular files and directories), trusted.*, security.* and the access control
 * lists system.posix_acl_*; others are -EOPNOTSUPP.  The kernel checks permissions, but a
 * list shows trusted.* only to a caller with CAP_SYS_ADMIN.  user.varjfs.* are settings:
 * checked, kept in the inode.  get, list: @cap 0 asks for the length; -ERANGE when it
 * does not fit.
 */
int vj_fs_getxattr(VjFs *fs, uint64_t ino, const char *name, void *dst, size_t cap,
                   size_t *len) G_GNUC_WARN_UNUSED_RESULT;
/* @flags XATTR_CREATE, XATTR_REPLACE */
int vj_fs_setxattr(VjFs *fs, const VjCaller *who, uint64_t ino, const char *name,
                   const void *src, size_t len, int flags) G_GNUC_WARN_UNUSED_RESULT;
/* Names, each with its NUL. */
int vj_fs_listxattr(VjFs *fs, const VjCaller *who, uint64_t ino, char *dst, size_t cap,
                    size_t *len) G_GNUC_WARN_UNUSED_RESULT;
int vj_fs_removexattr(VjFs *fs, uint64_t ino, const char *name) G_GNUC_WARN_UNUSED_RESULT;
/* It is one of user.varjfs.*. */
bool vj_fs_is_setting(const char *name);

/* ---- several changes in one transaction -------------------------------------------- */

/*
 * VjFsAfter - what changes in a transaction of the caller's bring about in memory
 *
 * The body begins with vj_fs_after_begin each time it runs, and makes changes by
 * vj_fs_txn_...; when the transaction has been committed, vj_fs_after_commit.  Names and
 * attributes that programs see change at that commit, all of them.  One thread at a time.
 */
typedef struct VjFsAfter VjFsAfter;
VjFsAfter *vj_fs_after_new(VjFs *fs);
void vj_fs_after_free(VjFsAfter *a); /* NULL is fine */
void vj_fs_after_begin(VjFsAfter *a);
/* What was changed is as safe as user.varjfs.safety asks on 0.  May block. */
int vj_fs_after_commit(VjFsAfter *a) G_GNUC_WARN_UNUSED_RESULT;

/* A choice, as the attribute user.varjfs.NAME of a file. */
typedef struct VjFsSetting {
    char *name, *value;
} VjFsSetting;

/* A file that is to be made. */
typedef struct VjFsMaking {
    const VjCaller *who;
    uint64_t parent;
    const char *name;
    mode_t mode;  /* of a regular file: permissions */
    uint64_t ino; /* of vj_fs_ino_new */
    const VjFsSetting *settings;
    size_t setting_count;
} VjFsMaking;

/* A number for it, before the transaction. */
int vj_fs_ino_new(VjFs *fs, uint64_t *ino) G_GNUC_WARN_UNUSED_RESULT;
/* -EEXIST, -EDOM a setting that has no meaning: nothing was changed.  -ENOENT the
 * directory was removed. */
int vj_fs_txn_make(VjTxn *txn, VjFsAfter *a,
                   const VjFsMaking *making) G_GNUC_WARN_UNUSED_RESULT;
/* As vj_fs_unlink and vj_fs_rmdir; @ino: what lost that name.  -ENOENT, -EISDIR,
 * -ENOTDIR, -ENOTEMPTY, -EPERM: nothing was changed. */
int vj_fs_txn_remove(VjTxn *txn, VjFsAfter *a, uint64_t parent, const char *name,
                     bool directory, uint64_t *ino) G_GNUC_WARN_UNUSED_RESULT;
/* As vj_fs_setxattr and vj_fs_removexattr, of user.* alone, and of no setting.
 * -EEXIST, -ENODATA, -EPERM: nothing was changed. */
int vj_fs_txn_set_user_xattr(VjTxn *txn, VjFsAfter *a, uint64_t ino, const char *name,
                             VjSlice value, int flags) G_GNUC_WARN_UNUSED_RESULT;
int vj_fs_txn_remove_user_xattr(VjTxn *txn, VjFsAfter *a, uint64_t ino,
                                const char *name) G_GNUC_WARN_UNUSED_RESULT;

/* ---- text for varjfsctl ------------------------------------------------------------ */

/*
 * vj_fs_text - one page of VARJFS_TEXT_* (include/varjfs/ioctl.h says what the lines are)
 *
 * @who      root and the user who mounted see what depends on the files of others;
 *           -EPERM: the page has nothing for this caller
 * @cursor   where to go on; UINT64_MAX when this was the last page
 * @dst      whole lines, no NUL; @len their bytes
 */
int vj_fs_text(VjFs *fs, const VjCaller *who, uint64_t ino, unsigned what,
               uint64_t *cursor, char *dst, size_t cap,
               size_t *len) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_fs_tend - one step of VARJFS_TEND_* (include/varjfs/ioctl.h)
 *
 * As vj_volume_gc and vj_volume_scrub (file.h); -EPERM: @who is not root; -EINVAL:
 * unknown.
 */
int vj_fs_tend(VjFs *fs, const VjCaller *who, unsigned what,
               VjTend *step) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_fs_change_nodes - a change of the list of storage nodes: vj_volume_change_nodes
 *
 * EPERM: @who is neither root nor the user who mounted.
 */
bool vj_fs_change_nodes(VjFs *fs, const VjCaller *who, const VjNodeChange *change,
                        GError **error);
/* vj_volume_count_at_node; -EPERM, likewise. */
int vj_fs_count_at_node(VjFs *fs, const VjCaller *who, const char *address,
                        uint64_t *out) G_GNUC_WARN_UNUSED_RESULT;

/* ---- names of inodes --------------------------------------------------------------- */

/* Names of one inode that are looked for. */
#define VJ_FS_PATHS_MOST 8u

/* @path is borrowed: a name of @ino from the root on, "/a/b"; NULL: it has none. */
typedef void VjFsPathVisit(void *opaque, uint64_t ino, const char *path);

/*
 * vj_fs_find_paths - the names of some inodes, for messages
 *
 * Visits them in their order, one with several names several times (VJ_FS_PATHS_MOST).
 * Reads all names of the volume, which is at rest, once; memory grows with the number of
 * directories.  Blocks.
 */
int vj_fs_find_paths(VjVolume *volume, const uint64_t *inodes, size_t count,
                     VjFsPathVisit *visit, void *opaque) G_GNUC_WARN_UNUSED_RESULT;

#endif
