/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * conf.h - varjfsd.conf(5): what a node serves, where, and to whom
 *
 * Sections "[node]" and "[volume NAME]" with lines "key = value", each key at most once;
 * a line that begins with '#' or ';' is a comment.  Paths are below the directory of the
 * file unless they are absolute.  Each mistake is one line, "FILE:LINE: what".
 *
 * Threads: any once loaded, it never changes.  Locks: none.
 */
#ifndef VJ_NODE_CONF_H
#define VJ_NODE_CONF_H

#include "base/base.h"
#include "rpc/messages.h"
#include "rpc/rpc.h"

/* Of the file. */
#define VJ_NODE_CONF_BYTES_MAX ((size_t)1 << 20)
#define VJ_NODE_VOLUMES_MAX 256u
/* Of each of the two lists. */
#define VJ_NODE_LISTENS_MAX 16u
#define VJ_NODE_IDENTITIES_MAX 1024u

/* The bit of VJ_ROLE_OBJECT, VJ_ROLE_META or VJ_ROLE_CLIENT in a set of roles: the last
 * one stands alone. */
#define VJ_NODE_ROLE(role) (1u << (role))
#define VJ_NODE_ROLES (VJ_NODE_ROLE(VJ_ROLE_OBJECT) | VJ_NODE_ROLE(VJ_ROLE_META))

/* One volume that is served: a section of the file. */
typedef struct VjNodeVolumeConf {
    char *name;
    unsigned line;   /* of the section */
    char *directory; /* absolute; of the role client: what mkfs.varjfs has made */
    uint32_t roles;  /* VJ_NODE_ROLE; not 0 */
    char *store;     /* spec of a driver */
    char *meta;
    bool has_key; /* peers prove with @key that they may use it */
    VjKey256 key;
    char **identities;  /* of certificates that may use it; NULL: none */
    bool refuses_empty; /* a mount may not take an empty directory for the volume */
} VjNodeVolumeConf;

typedef struct VjNodeConf {
    char *path;      /* of the file, absolute */
    char *directory; /* that it is in */
    VjOpts *node;    /* of vj_node_options */
    char **listen;   /* addresses, absolute paths; NULL-terminated, perhaps empty */
    char **listen_insecure;
    char *log; /* "stderr", "syslog", an absolute path; NULL: it says nothing */
    char *certificate, *certificate_key, *ca; /* absolute; NULL: none */
    char *below;                              /* absolute; NULL: none */
    bool has_key; /* @key is for who may read the statistics of all volumes */
    VjKey256 key;
    GPtrArray *volumes;   /* of VjNodeVolumeConf, in the order of the file */
    GPtrArray *key_paths; /* absolute, of all keys: for who has to allow them */
    int source_fd;        /* a directory that listen_insecure goes through; -1: none */
} VjNodeConf;

/* Keys of the two kinds of sections. */
extern const VjOptSpec vj_node_options[];
extern const VjOptSpec vj_node_volume_options[];

/*
 * vj_node_conf_load - read a file, and the keys that it names
 *
 * Looks at no directory of a volume.
 * Returns   owned; NULL with one line
 */
VjNodeConf *vj_node_conf_load(const char *path, GError **error);
/* The same of a text; @path: what the file is called. */
VjNodeConf *vj_node_conf_parse(const char *path, const char *text, size_t len,
                               GError **error);
/*
 * What a daemon serves that programs of this machine have started for the directory
 * @source: its volume in the role client, by the name and at the socket that
 * varjfs/client-protocol.h says.  NULL: there is no such directory.
 */
VjNodeConf *vj_node_conf_of_source(const char *source, GError **error);
void vj_node_conf_free(VjNodeConf *c); /* NULL is fine */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjNodeConf, vj_node_conf_free)

/* What a path of the file means: absolute, owned; NULL for NULL. */
char *vj_node_conf_path(const VjNodeConf *c, const char *path);
/* NULL: it has none of that name.  Borrowed. */
const VjNodeVolumeConf *vj_node_conf_volume(const VjNodeConf *c, const char *name);
/* A copy, owned. */
VjNodeVolumeConf *vj_node_volume_conf_copy(const VjNodeVolumeConf *v);
void vj_node_volume_conf_free(VjNodeVolumeConf *v); /* NULL is fine */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjNodeVolumeConf, vj_node_volume_conf_free)

/* Whether both say the same of where the volume is and what is done with it; who may use
 * it is left out. */
bool vj_node_volume_conf_same_place(const VjNodeVolumeConf *a, const VjNodeVolumeConf *b);

/*
 * Whether a peer may use the volume: @identity as of VjRpcServerConfig.hello.  A volume
 * with neither a key nor identities is for peers that have none.
 */
bool vj_node_volume_conf_admits(const VjNodeVolumeConf *v, const char *identity);

#endif
