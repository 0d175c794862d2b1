/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Whole objects out of the store: data, trailer and record fit each other by their
 * checksums, but the blocks need not be what any codec made.  All of it is read at once
 * and in parts, from a full cache and from an empty one: each way gives the same bytes or
 * the same refusal, and a part that touches no bad block is always there.
 *
 * The input: codec (1), parameter (1), plain length (4), how many bytes of the input are
 * the data (4), one byte to damage after all was sealed (4: where, 0 for none), parts to
 * read (2), then lengths of blocks (2 each), then the data.
 */
#include "fuzz.h"

#include "object/object-private.h"

#include "../lib/mem-meta.h"

#define PLAIN_MAX ((uint32_t)300 << 10)

static VjStore *store;

typedef struct Input {
    uint8_t codec, param;
    uint32_t plain_bytes, damage;
    uint16_t parts;
    VjReader rest;
} Input;

/* ---- what is stored ---------------------------------------------------------------- */

/* The length that the input gives the block, of at most @left bytes; the last takes
 * all. */
static uint32_t block_length(Input *in, const VjTrailer *t, uint32_t i, uint32_t left)
{
    uint32_t plain = vj_trailer_block_plain(t, i), after = t->block_count - 1 - i;
    uint32_t want = vj_read_u16(&in->rest);

    if (!t->varying) {
        return plain;
    }
    if (i + 1 == t->block_count) {
        return left;
    }
    /* At least a byte for each of those behind it. */
    return CLAMP(want, 1, left - after);
}

/* The bytes of the input, again and again. */
static GByteArray *make_data(Input *in, uint32_t len)
{
    GByteArray *data = g_byte_array_sized_new(len);

    while (data->len < len) {
        VjReader from = in->rest;
        uint32_t part = (uint32_t)MIN(from.left, len - data->len);

        if (part == 0) {
            g_byte_array_append(data, (const uint8_t *)"", 1);
        } else {
            g_byte_array_append(data, from.at, part);
        }
    }
    return data;
}

/* False: the input says nothing that could be stored. */
static bool make_object(Input *in, VjObject *object)
{
    g_autoptr(VjTrailer) t = NULL;
    g_autoptr(GByteArray) data = NULL;
    uint32_t at = 0, data_bytes = vj_read_u32(&in->rest) % PLAIN_MAX;
    struct iovec iov;
    VjCodecSpec spec;
    bool varying;
    VjPut put;

    if (!vj_form_of_codec(in->codec, &spec, &varying)) {
        return false;
    }
    t = vj_trailer_new(in->codec, varying, in->plain_bytes);
    data_bytes = varying ? MAX(data_bytes, t->block_count) : in->plain_bytes;
    data = make_data(in, data_bytes);
    for (uint32_t i = 0; i < t->block_count; i++) {
        uint32_t len = block_length(in, t, i, data_bytes - at);

        vj_trailer_add(t, i, data->data + at, len);
        at += len;
    }
    *object = (VjObject){
        .id = 7,
        .plain_bytes = in->plain_bytes,
        .stored_bytes = data_bytes + t->bytes,
        .codec = in->codec,
        .param = in->param,
        .trailer_checksum = vj_trailer_seal(t),
        .refs = 1,
    };
    g_byte_array_append(data, t->raw, t->bytes);
    if (in->damage != 0) {
        data->data[in->damage % data->len] ^= 1;
    }
    iov = (struct iovec){.iov_base = data->data, .iov_len = data->len};
    g_assert(vj_store_put(store, object->id, &iov, 1, &put) == 0);
    object->loc = put.loc;
    return true;
}

/* ---- reading ----------------------------------------------------------------------- */

static VjObjects *open_objects(VjMeta *meta)
{
    VjObjectsConfig config = {.meta = meta,
                              .store = store,
                              .digest = vj_digest_default(),
                              .cache_bytes = VJ_MIB,
                              .read_only = true};
    VjObjects *o;

    g_assert(vj_objects_open(&config, &o, NULL));
    return o;
}

static int read_part(VjObjects *o, const VjObject *object, uint32_t from, uint8_t *dst,
                     uint32_t len, bool whole)
{
    int r = vj_object_read(o, object, from, dst, len, whole);

    g_assert(r == 0 || r == -EBADMSG);
    return r;
}

/* Whether each block can be read by itself, from an empty cache; its bytes go to
 * @plain. */
static void read_blocks(VjMeta *meta, const VjObject *object, uint32_t block,
                        uint8_t *plain, bool *good)
{
    VjObjects *o = open_objects(meta);

    for (uint32_t i = 0, at = 0; at < object->plain_bytes; i++, at += block) {
        good[i] = read_part(o, object, at, plain + at,
                            MIN(block, object->plain_bytes - at), false) == 0;
    }
    g_assert(vj_objects_close(o) == 0);
}

static bool all_good(const bool *good, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i <= last; i++) {
        if (!good[i]) {
            return false;
        }
    }
    return true;
}

/* Ranges as a seed chooses them: there if their blocks are, and then what those were. */
static void read_ranges(VjObjects *o, const VjObject *object, uint32_t block,
                        const uint8_t *plain, const bool *good, uint16_t seed)
{
    g_autofree uint8_t *got = g_malloc(object->plain_bytes);
    /* What is short is loaded as a whole: then each part of it needs all of it. */
    bool is_small = object->plain_bytes <= 32768;
    uint32_t blocks = (object->plain_bytes + block - 1) / block;
    VjRng r;

    vj_rng_init(&r, seed);
    for (unsigned n = 0; n < 6; n++) {
        uint32_t from = (uint32_t)vj_rng_below(&r, object->plain_bytes);
        uint32_t len = 1 + (uint32_t)vj_rng_below(&r, object->plain_bytes - from);
        bool whole = vj_rng_below(&r, 2) == 0;
        int rc;

        if (n == 0) {
            from = 0;
            len = object->plain_bytes;
        }
        rc = read_part(o, object, from, got, len, whole);
        if (is_small && !all_good(good, 0, blocks - 1)) {
            continue; /* the cache may have had the trailer alone, or nothing */
        }
        g_assert((rc == 0) == all_good(good, from / block, (from + len - 1) / block));
        g_assert(rc != 0 || memcmp(got, plain + from, len) == 0);
    }
}

static void try_object(const Input *in, const VjObject *object)
{
    VjMeta *meta = mem_meta_new();
    uint32_t block;
    g_autofree uint8_t *plain = g_malloc(object->plain_bytes);
    g_autofree bool *good = NULL;
    VjCodecSpec spec;
    VjObjects *o;
    bool varying;

    g_assert(vj_form_of_codec(object->codec, &spec, &varying));
    block = vj_stored_block_bytes(varying);
    good = g_new0(bool, object->plain_bytes / block + 1);
    read_blocks(meta, object, block, plain, good);
    o = open_objects(meta);
    read_ranges(o, object, block, plain, good, in->parts);
    g_assert(vj_objects_close(o) == 0);
    g_assert(vj_meta_close(meta) == 0);
}

FUZZ_MUTATIONS(20);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const VjStorePlace place = {.dir_fd = -1, .path = "memory"};
    Input in = {.rest = vj_reader(vj_slice(data, len))};
    VjObject object;

    fuzz_quiet();
    if (store == NULL) {
        g_assert(vj_store_open("memory", &place, &store, NULL));
    }
    in.codec = vj_read_u8(&in.rest) % 6;
    in.param = vj_read_u8(&in.rest);
    in.plain_bytes = 1 + vj_read_u32(&in.rest) % PLAIN_MAX;
    in.damage = vj_read_u32(&in.rest);
    in.parts = vj_read_u16(&in.rest);
    if (in.rest.bad || !make_object(&in, &object)) {
        return 0;
    }
    try_object(&in, &object);
    g_assert(vj_store_remove(store, object.id, object.loc) == 0);
    return 0;
}
