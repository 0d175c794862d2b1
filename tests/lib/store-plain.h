/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* store-plain.h - bytes to a pending object, with their digest */
#ifndef VJ_TESTS_STORE_PLAIN_H
#define VJ_TESTS_STORE_PLAIN_H

#include "object/object.h"

static inline int store_plain(VjObjects *o, const void *plain, uint32_t len,
                                const VjTransform *want, const VjObject *neighbours,
                                size_t neighbour_count, VjPendingObject **out)
{
    VjPlain content = {.plain = plain, .len = len};
    int rc = vj_plain_digest(o, &content);

    return rc < 0
               ? rc
               : vj_object_store(o, &content, want, neighbours, neighbour_count, out);
}

#endif
