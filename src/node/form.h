/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * form.h - what a node does of the room object's work, for its clients
 *
 * Clients that leave encoding to the node send and get content; those that want to know
 * whether an object is whole ask for its digest.  What messages say of an object is
 * hostile, and so is what the store has.
 *
 * Threads: any; each of them blocks.  Locks: none.
 */
#ifndef VJ_NODE_FORM_H
#define VJ_NODE_FORM_H

#include "rpc/messages.h"
#include "store/store.h"

/* The digest of an object's content, after its checksums were compared.  -EBADMSG,
 * -ENOENT, -EOPNOTSUPP (codec or digest), -ENOMEM, -EIO. */
int vj_node_digest(VjStore *s, const VjWireDigest *m,
                   uint8_t out[VJ_WIRE_DIGEST_BYTES]) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_node_put_plain - make the stored form of content, and keep it
 *
 * @bytes    as they came: the content, or that encoded with m->wire_codec
 * @form     what was made
 * Returns   0; -EPROTO @bytes are not what @m says; errors of put
 */
int vj_node_put_plain(VjStore *s, const VjWirePutPlain *m, VjSlice bytes,
                      VjWireForm *form) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_node_get_plain - a range of the content, each block of it verified
 *
 * @bytes        owned, with its len set
 * @wire_codec   with which @bytes are encoded; 0: they are the content
 */
int vj_node_get_plain(VjStore *s, const VjWireGetPlain *m, VjBuf **bytes,
                      uint8_t *wire_codec) G_GNUC_WARN_UNUSED_RESULT;

#endif
