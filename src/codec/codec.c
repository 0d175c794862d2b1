/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * codec.c - lookup, texts, and the only calls of the codecs' members
 */
#include "codec/codec-private.h"

const VjCodecOps *vj_codec_by_id(uint8_t id)
{
    for (const VjCodecOps *const *row = vj_codec_table(); *row != NULL; row++) {
        if ((*row)->id == id) {
            return *row;
        }
    }
    return NULL;
}

const char *vj_codec_name_of(uint8_t id)
{
    static const char *const names[] = {
        [VJ_CODEC_ID_NONE] = "none", [VJ_CODEC_ID_XOR] = "xor",
        [VJ_CODEC_ID_RLE] = "rle",   [VJ_CODEC_ID_LZ4] = "lz4",
        [VJ_CODEC_ID_ZSTD] = "zstd",
    };

    return id < G_N_ELEMENTS(names) ? names[id] : "unknown";
}

static const VjCodecOps *find_name(const VjCodecOps *const *table, const char *name)
{
    for (const VjCodecOps *const *row = table; *row != NULL; row++) {
        if (strcmp((*row)->name, name) == 0) {
            return *row;
        }
    }
    return NULL;
}

const VjCodecOps *vj_codec_by_name(const char *name)
{
    return find_name(vj_codec_table(), name);
}

static char *list_of(const VjCodecOps *const *table)
{
    GString *names = g_string_new(NULL);

    for (const VjCodecOps *const *row = table; *row != NULL; row++) {
        g_string_append_printf(names, "%s%s", names->len > 0 ? ", " : "", (*row)->name);
        if ((*row)->syntax != NULL) {
            g_string_append_printf(names, "[:%s]", (*row)->syntax);
        }
    }
    return g_string_free(names, FALSE);
}

char *vj_codec_list(void)
{
    g_autofree char *names = list_of(vj_codec_table());
    g_autofree char *missing = g_strjoinv(", ", (char **)vj_codec_absent());

    return *missing == '\0'
               ? g_steal_pointer(&names)
               : g_strdup_printf("%s; not in this build: %s", names, missing);
}

/* False, with the names that there are; the user's own text is not repeated unquoted. */
static bool refuse_name(const VjCodecOps *const *table, const char *const *absent,
                        const char *name, GError **error)
{
    g_autofree char *shown = g_strescape(name, NULL);
    g_autofree char *names = list_of(table);

    if (g_strv_contains(absent, name)) {
        return vj_error_set(error, EINVAL,
                            "transformation %s is left out of this build, which has %s",
                            name, names);
    }
    return vj_error_set(error, EINVAL, "unknown transformation \"%s\": this build has %s",
                        shown, names);
}

bool vj_codec_parse_level(const char *text, int least, int most, VjCodecParams *out,
                          GError **error)
{
    const char *digits = text + (*text == '-');
    size_t len = strspn(digits, "0123456789");
    long level = len > 0 && len <= 3 ? strtol(text, NULL, 10) : LONG_MAX;

    g_assert(least >= INT8_MIN && most <= INT8_MAX);
    if (digits[len] != '\0' || level < least || level > most) {
        return vj_error_set(error, EINVAL, "the level is a number from %d to %d", least,
                            most);
    }
    out->level = (int8_t)level;
    return true;
}

char *vj_codec_format_level(const VjCodecParams *params)
{
    return params->level != 0 ? g_strdup_printf("%d", params->level) : NULL;
}

static bool parse_params(const VjCodecOps *ops, const char *text, VjCodecParams *out,
                         GError **error)
{
    g_assert((ops->parse == NULL) == (ops->syntax == NULL));
    if (ops->parse == NULL) {
        return vj_error_set(error, EINVAL, "transformation %s takes no parameters",
                            ops->name);
    }
    if (*text == '\0') {
        return vj_error_set(error, EINVAL, "transformation %s: nothing follows the colon",
                            ops->name);
    }
    if (!ops->parse(text, out, error)) {
        return vj_error_prefix(error, "transformation %s", ops->name);
    }
    return true;
}

bool vj_codec_parse_in(const VjCodecOps *const *table, const char *const *absent,
                       const char *text, VjCodecSpec *out, GError **error)
{
    g_autofree char *name = NULL;
    const char *colon;

    if (strnlen(text, VJ_CODEC_TEXT_MAX + 1) > VJ_CODEC_TEXT_MAX) {
        return vj_error_set(error, EINVAL, "transformation: longer than %zu bytes",
                            VJ_CODEC_TEXT_MAX);
    }
    colon = strchr(text, ':');
    name = colon != NULL ? g_strndup(text, (gsize)(colon - text)) : g_strdup(text);
    out->params = (VjCodecParams){.param = 0};
    out->ops = find_name(table, name);
    if (out->ops == NULL) {
        return refuse_name(table, absent, name, error);
    }
    return colon == NULL || parse_params(out->ops, colon + 1, &out->params, error);
}

bool vj_codec_parse(const char *text, VjCodecSpec *out, GError **error)
{
    return vj_codec_parse_in(vj_codec_table(), vj_codec_absent(), text, out, error);
}

char *vj_codec_format(const VjCodecSpec *spec)
{
    g_autofree char *params = NULL;

    g_assert(spec->ops != NULL);
    g_assert((spec->ops->format == NULL) == (spec->ops->syntax == NULL));
    if (spec->ops->format != NULL) {
        params = spec->ops->format(&spec->params);
    }
    if (params == NULL) {
        return g_strdup(spec->ops->name);
    }
    g_assert(*params != '\0');
    return g_strdup_printf("%s:%s", spec->ops->name, params);
}

size_t vj_codec_bound(const VjCodecOps *ops, size_t src_len)
{
    size_t bytes;

    g_assert(src_len <= VJ_CODEC_RUN_MAX);
    bytes = ops->bound(src_len);
    g_assert(!(ops->flags & VJ_CODEC_SAME_LENGTH) || bytes == src_len);
    return bytes;
}

static bool runs_are_apart(const void *a, size_t a_len, const void *b, size_t b_len)
{
    uintptr_t a_start = (uintptr_t)a, b_start = (uintptr_t)b;

    return a_start + a_len <= b_start || b_start + b_len <= a_start;
}

static bool context_is_sound(const VjCodecOps *ops, const VjCodecContext *context)
{
    if (context == NULL) {
        return (ops->flags & VJ_CODEC_USES_CONTEXT) == 0;
    }
    return context->domain >= VJ_CODEC_DOMAIN_OBJECT &&
           context->domain <= VJ_CODEC_DOMAIN_FRAGMENT && context->number != 0 &&
           (context->key_id != 0 || context->key.data == NULL);
}

int vj_codec_encode(const VjCodecSpec *spec, const VjCodecContext *context,
                    const void *src, size_t src_len, void *dst, size_t cap,
                    size_t *dst_len)
{
    const VjCodecOps *ops = spec->ops;
    int failed;

    g_assert(context_is_sound(ops, context));
    g_assert(src_len <= VJ_CODEC_RUN_MAX);
    g_assert((src != NULL || src_len == 0) && (dst != NULL || cap == 0));
    g_assert(runs_are_apart(src, src_len, dst, cap));
    failed = ops->encode(&spec->params, context, src, src_len, dst, cap, dst_len);
    if (failed) {
        g_assert(failed == -ENOMEM || (failed == -ENOSPC && cap < ops->bound(src_len)));
        return failed;
    }
    g_assert(*dst_len <= cap && *dst_len <= ops->bound(src_len));
    g_assert(!(ops->flags & VJ_CODEC_SAME_LENGTH) || *dst_len == src_len);
    return 0;
}

int vj_codec_decode(const VjCodecSpec *spec, const VjCodecContext *context,
                    const void *src, size_t src_len, void *dst, size_t dst_len)
{
    int failed;

    g_assert(context_is_sound(spec->ops, context));
    g_assert(dst_len <= VJ_CODEC_RUN_MAX);
    g_assert((src != NULL || src_len == 0) && (dst != NULL || dst_len == 0));
    g_assert(runs_are_apart(src, src_len, dst, dst_len));
    failed = spec->ops->decode(&spec->params, context, src, src_len, dst, dst_len);
    g_assert(failed == 0 || failed == -EBADMSG || failed == -ENOMEM);
    return failed;
}
