/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * namespace.c - a namespace is deleted, by as many requests as it takes
 */
#include "client-private.h"

_Static_assert((int)VARJFS_OBJECTS == VARJFS_WIRE_ITERATE_OBJECTS &&
                   (int)VARJFS_KEYS == VARJFS_WIRE_ITERATE_KEYS,
               "kinds of the header are those of the wire");

/* Replies in a row that say that there is more, while nothing went. */
#define EMPTY_TRIES_IN_VAIN 16u

typedef struct Empty {
    uint8_t what; /* VARJFS_WIRE_EMPTY_... */
    uint32_t gone;
} Empty;

static bool place_empty(VjcRequest *r, const uint8_t *message, uint32_t len,
                        uint32_t bulk)
{
    (void)r;
    (void)message;
    return len == VARJFS_WIRE_EMPTY_REPLY_BYTES && bulk == 0;
}

static bool finish_empty(VjcRequest *r, const uint8_t *message, uint32_t len)
{
    Empty *e = r->owner;
    VjcReader reply = vjc_reader(message, len);

    e->what = vjc_get8(&reply);
    e->gone = vjc_get32(&reply);
    return vjc_reader_is_done(&reply) && e->what <= VARJFS_WIRE_EMPTY_STAYS &&
           e->gone <= VARJFS_WIRE_EMPTY_MAX;
}

static const VjcReplyHandler empty_handler = {.place = place_empty,
                                              .finish = finish_empty};

static int ask(varjfs *v, enum varjfs_kind kind, const char *space, size_t len, Empty *e)
{
    uint8_t message[VJC_HEAD_BYTES + VARJFS_WIRE_EMPTY_HEAD_BYTES + VARJFS_NAMESPACE_MAX];
    VjcWriter w = vjc_writer(message + VJC_HEAD_BYTES, sizeof message - VJC_HEAD_BYTES);
    VjcRequest r = {
        .op = VARJFS_WIRE_EMPTY, .handler = &empty_handler, .owner = e, .at_once = true};

    vjc_put_number(&w, (uint64_t)kind, 2);
    vjc_put_number(&w, len, 2);
    vjc_put_number(&w, VARJFS_WIRE_EMPTY_MAX, 4);
    vjc_put_bytes(&w, space, len);
    vjc_send(v, &r, message, sizeof message - w.left, NULL, 0);
    return vjc_wait(v, &r);
}

int varjfs_namespace_delete(varjfs *v, enum varjfs_kind kind, const char *space,
                            varjfs_progress progress, void *opaque)
{
    Empty e = {.what = VARJFS_WIRE_EMPTY_MORE};
    unsigned in_vain = 0;
    uint64_t gone = 0;
    size_t len;
    int rc;

    if (v == NULL || !vjc_is_namespace(space, &len) ||
        (kind != VARJFS_OBJECTS && kind != VARJFS_KEYS)) {
        return -EINVAL;
    }
    rc = vjc_wait_deferred(v, 0); /* what they put there goes too */
    while (rc == 0 && e.what == VARJFS_WIRE_EMPTY_MORE) {
        rc = ask(v, kind, space, len, &e);
        gone += rc == 0 ? e.gone : 0;
        in_vain = rc == 0 && e.gone == 0 ? in_vain + 1 : 0;
        if (rc == 0 && e.what == VARJFS_WIRE_EMPTY_MORE &&
            in_vain == EMPTY_TRIES_IN_VAIN) {
            return -EBUSY;
        }
        if (rc == 0 && e.what == VARJFS_WIRE_EMPTY_MORE && progress != NULL &&
            progress(opaque, gone) != 0) {
            return -ECANCELED;
        }
    }
    /* Another program has ended what was begun here. */
    if (rc == -ENOENT && gone > 0) {
        return 0;
    }
    return rc == 0 && e.what == VARJFS_WIRE_EMPTY_STAYS ? -ENOTEMPTY : rc;
}
