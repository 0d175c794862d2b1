/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * context-codec.c - see context-codec.h
 */
#include "context-codec.h"

#include "codec/codec-private.h"

#define TAG_BYTES sizeof(uint64_t)
/* Of the stream, at a time. */
#define STREAM_BYTES 256u
#define TABLE_MOST 16u

const VjCodecOps *const *__real_vj_codec_table(void);
const VjCodecOps *const *__wrap_vj_codec_table(void);

/* ---- what they were asked for ------------------------------------------------------ */

static struct {
    GMutex lock;
    /* guarded by lock: */
    VjTestContexts counts;
    GHashTable
        *seen; /* of GBytes: contexts of objects under which something was encoded */
} contexts;

static GBytes *bytes_of(const VjCodecContext *context)
{
    uint64_t fields[] = {context->domain, context->number, context->block,
                         context->key_id};
    g_autoptr(GByteArray) all = g_byte_array_new();

    g_byte_array_append(all, (const uint8_t *)fields, sizeof fields);
    if (context->key.len > 0) {
        g_byte_array_append(all, context->key.data, (guint)context->key.len);
    }
    return g_byte_array_free_to_bytes(g_steal_pointer(&all));
}

static uint64_t sum_of(const VjCodecContext *context)
{
    g_autoptr(GBytes) bytes = bytes_of(context);

    return vj_checksum64(g_bytes_get_data(bytes, NULL), g_bytes_get_size(bytes));
}

static void note_encoded(const VjCodecContext *context)
{
    g_mutex_lock(&contexts.lock);
    contexts.counts.encoded[context->domain]++;
    if (contexts.seen == NULL) {
        contexts.seen = g_hash_table_new_full(g_bytes_hash, g_bytes_equal,
                                              (GDestroyNotify)g_bytes_unref, NULL);
    }
    if (context->domain == VJ_CODEC_DOMAIN_OBJECT &&
        !g_hash_table_add(contexts.seen, bytes_of(context))) {
        contexts.counts.repeated++;
    }
    g_mutex_unlock(&contexts.lock);
}

static void note_decoded(const VjCodecContext *context)
{
    g_mutex_lock(&contexts.lock);
    contexts.counts.decoded[context->domain]++;
    g_mutex_unlock(&contexts.lock);
}

void vj_test_contexts(VjTestContexts *out)
{
    g_mutex_lock(&contexts.lock);
    *out = contexts.counts;
    g_mutex_unlock(&contexts.lock);
}

void vj_test_contexts_reset(void)
{
    g_mutex_lock(&contexts.lock);
    contexts.counts = (VjTestContexts){.repeated = contexts.counts.repeated};
    g_mutex_unlock(&contexts.lock);
}

void vj_test_contexts_forget(void)
{
    g_mutex_lock(&contexts.lock);
    contexts.counts.repeated = 0;
    g_clear_pointer(&contexts.seen, g_hash_table_unref);
    g_mutex_unlock(&contexts.lock);
}

/* ---- the codecs -------------------------------------------------------------------- */

/* Both directions. */
static void add_stream(const VjCodecContext *context, const uint8_t *src, uint8_t *dst,
                       size_t len)
{
    uint8_t stream[STREAM_BYTES];
    VjRng rng;

    vj_rng_init(&rng, sum_of(context));
    for (size_t i = 0; i < len; i++) {
        if (i % sizeof stream == 0) {
            vj_rng_bytes(&rng, stream, sizeof stream);
        }
        dst[i] = src[i] ^ stream[i % sizeof stream];
    }
}

static size_t placed_bound(size_t src_len)
{
    return src_len;
}

static int placed_encode(const VjCodecParams *params, const VjCodecContext *context,
                         const void *src, size_t src_len, void *dst, size_t cap,
                         size_t *dst_len)
{
    (void)params;
    note_encoded(context);
    if (src_len > cap) {
        return -ENOSPC;
    }
    add_stream(context, src, dst, src_len);
    *dst_len = src_len;
    return 0;
}

static int placed_decode(const VjCodecParams *params, const VjCodecContext *context,
                         const void *src, size_t src_len, void *dst, size_t dst_len)
{
    (void)params;
    note_decoded(context);
    if (src_len != dst_len) {
        return -EBADMSG;
    }
    add_stream(context, src, dst, dst_len);
    return 0;
}

static size_t sealed_bound(size_t src_len)
{
    return TAG_BYTES + vj_codec_rle.bound(src_len);
}

static uint64_t tag_of(const VjCodecContext *context, const uint8_t *bytes, size_t len)
{
    return vj_checksum64(bytes, len) ^ sum_of(context);
}

static int sealed_encode(const VjCodecParams *params, const VjCodecContext *context,
                         const void *src, size_t src_len, void *dst, size_t cap,
                         size_t *dst_len)
{
    uint8_t *bytes = (uint8_t *)dst + TAG_BYTES;
    uint64_t tag;
    size_t len;
    int rc;

    note_encoded(context);
    if (cap < TAG_BYTES) {
        return -ENOSPC;
    }
    rc = vj_codec_rle.encode(params, NULL, src, src_len, bytes, cap - TAG_BYTES, &len);
    if (rc < 0) {
        return rc;
    }
    add_stream(context, bytes, bytes, len);
    tag = GUINT64_TO_LE(tag_of(context, bytes, len));
    memcpy(dst, &tag, TAG_BYTES);
    *dst_len = TAG_BYTES + len;
    return 0;
}

static int sealed_decode(const VjCodecParams *params, const VjCodecContext *context,
                         const void *src, size_t src_len, void *dst, size_t dst_len)
{
    const uint8_t *bytes = (const uint8_t *)src + TAG_BYTES;
    g_autofree uint8_t *packed = NULL;
    size_t len = src_len - TAG_BYTES;

    note_decoded(context);
    if (src_len < TAG_BYTES || vj_le64_get(src) != tag_of(context, bytes, len)) {
        return -EBADMSG;
    }
    packed = g_try_malloc(MAX(len, 1));
    if (packed == NULL) {
        return -ENOMEM;
    }
    add_stream(context, bytes, packed, len);
    return vj_codec_rle.decode(params, NULL, packed, len, dst, dst_len);
}

static const VjCodecOps placed = {
    .name = "placed",
    .id = VJ_TEST_PLACED,
    .flags = VJ_CODEC_SAME_LENGTH | VJ_CODEC_RANDOM_ACCESS | VJ_CODEC_USES_CONTEXT,
    .bound = placed_bound,
    .encode = placed_encode,
    .decode = placed_decode,
};

static const VjCodecOps sealed = {
    .name = "sealed",
    .id = VJ_TEST_SEALED,
    .flags = VJ_CODEC_USES_CONTEXT,
    .bound = sealed_bound,
    .encode = sealed_encode,
    .decode = sealed_decode,
};

static gpointer make_table(gpointer unused)
{
    static const VjCodecOps *table[TABLE_MOST];
    const VjCodecOps *const *built = __real_vj_codec_table();
    size_t count = 0;

    (void)unused;
    for (; built[count] != NULL; count++) {
        g_assert(count + 3 < TABLE_MOST);
        table[count] = built[count];
    }
    table[count++] = &placed;
    table[count] = &sealed;
    return table;
}

const VjCodecOps *const *__wrap_vj_codec_table(void)
{
    static GOnce once = G_ONCE_INIT;

    return g_once(&once, make_table, NULL);
}
