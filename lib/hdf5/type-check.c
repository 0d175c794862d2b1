/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Encoded datatypes: does what H5Tdecode would read end with the bytes?
 *
 * H5Tdecode is told no length.  So lengths are followed here before it sees bytes from
 * the daemon, as the HDF5 File Format Specification has them ("Datatype Message"):
 * nothing but lengths; what else may be wrong HDF5 finds.
 */
#include <errno.h>
#include <string.h>

#include "hdf5-private.h"

/* What H5Tencode puts before the message: the kind of message and a version. */
#define ENCODED_KIND 3
#define ENCODED_VERSION 0
/* Types within one another. */
#define DEPTH_MAX 64

struct cursor {
    const uint8_t *p;
    size_t left;
};

static bool skip(struct cursor *c, uint64_t bytes)
{
    if (bytes > c->left) {
        return false;
    }
    c->p += bytes;
    c->left -= (size_t)bytes;
    return true;
}

static bool number(struct cursor *c, uint32_t *out)
{
    if (c->left < 4) {
        return false;
    }
    *out = (uint32_t)c->p[0] | (uint32_t)c->p[1] << 8 | (uint32_t)c->p[2] << 16 |
           (uint32_t)c->p[3] << 24;
    return skip(c, 4);
}

/* With its NUL; in versions before 3 filled up to 8 bytes. */
static bool name(struct cursor *c, unsigned version)
{
    const uint8_t *end = memchr(c->p, 0, c->left);
    uint64_t len = end ? (uint64_t)(end - c->p) + 1 : 0;

    return end && skip(c, version >= 3 ? len : (len + 7) / 8 * 8);
}

static bool type(struct cursor *c, int depth, uint32_t *size);

static bool compound(struct cursor *c, int depth, unsigned version, unsigned members,
                     uint32_t size)
{
    uint64_t offset_bytes = 4;
    uint32_t member_size;

    if (version >= 3) {
        offset_bytes = 1;
        while (offset_bytes < 4 && size >> (8 * offset_bytes)) {
            offset_bytes++;
        }
    }
    /* Version 1 has dimensions of its own. */
    offset_bytes += version == 1 ? 28 : 0;
    for (unsigned i = 0; i < members; i++) {
        if (!name(c, version) || !skip(c, offset_bytes) ||
            !type(c, depth + 1, &member_size)) {
            return false;
        }
    }
    return true;
}

static bool enumeration(struct cursor *c, int depth, unsigned version, unsigned members)
{
    uint32_t base_size;

    if (!type(c, depth + 1, &base_size)) {
        return false;
    }
    for (unsigned i = 0; i < members; i++) {
        if (!name(c, version)) {
            return false;
        }
    }
    return skip(c, (uint64_t)members * base_size);
}

static bool array(struct cursor *c, int depth, unsigned version)
{
    uint32_t base_size;
    uint64_t rank;

    if (c->left == 0) {
        return false;
    }
    rank = c->p[0];
    /* Before version 3 with a permutation, and filled up. */
    return skip(c, version >= 3 ? 1 + 4 * rank : 4 + 8 * rank) &&
           type(c, depth + 1, &base_size);
}

static bool type(struct cursor *c, int depth, uint32_t *size)
{
    uint32_t head, base_size;
    unsigned version, flags;

    if (depth > DEPTH_MAX || !number(c, &head) || !number(c, size) || *size == 0) {
        return false;
    }
    version = head >> 4 & 0x0f;
    flags = head >> 8;
    switch (head & 0x0f) {
    case H5T_INTEGER:
    case H5T_BITFIELD:
        return skip(c, 4);
    case H5T_FLOAT:
        return skip(c, 12);
    case H5T_TIME:
        return skip(c, 2);
    case H5T_STRING:
    case H5T_REFERENCE:
        return true;
    case H5T_OPAQUE:
        return skip(c, flags & 0xff);
    case H5T_COMPOUND:
        return compound(c, depth, version, flags & 0xffff, *size);
    case H5T_ENUM:
        return enumeration(c, depth, version, flags & 0xffff);
    case H5T_VLEN:
        return type(c, depth + 1, &base_size);
    case H5T_ARRAY:
        return array(c, depth, version);
    default:
        return false;
    }
}

int vjh_type_check(struct vjh_slice in)
{
    struct cursor c = {in.data, in.len};
    uint32_t size;

    if (c.left < 2 || c.p[0] != ENCODED_KIND || c.p[1] != ENCODED_VERSION ||
        !skip(&c, 2) || !type(&c, 0, &size)) {
        return vjh_error(-EIO, "a stored datatype is not one that HDF5 1.14 writes");
    }
    return 0;
}
