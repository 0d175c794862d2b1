/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * opts.c - option texts checked against a table
 *
 * The text is a user's and may be anything: its length is bounded, its values are quoted
 * (bounded and printable) in messages.  The table is ours: a bad one is an assertion.
 */
#include "base/base.h"

#define TEXT_MAX_BYTES ((size_t)64 * VJ_KIB) /* one option text */
#define QUOTE_MAX_BYTES 64                   /* of a user's text in a message */

typedef struct Value {
    char *text; /* NULL: not set and no fallback */
    uint64_t number;
    bool is_set;
} Value;

struct VjOpts {
    const VjOptSpec *specs;
    size_t count;
    Value values[]; /* one per spec */
};

/* A user's text as a message may show it; owned. */
static char *quoted(const char *text)
{
    GString *out = g_string_new("\"");

    for (size_t i = 0; text[i] != '\0'; i++) {
        unsigned char c = (unsigned char)text[i];

        if (i == QUOTE_MAX_BYTES) {
            g_string_append(out, "...");
            break;
        }
        if (c < ' ' || c >= 0x7f) {
            g_string_append_printf(out, "\\x%02x", c);
        } else {
            g_string_append_c(out, (char)c);
        }
    }
    g_string_append_c(out, '"');
    return g_string_free(out, FALSE);
}

/* Decimal digits from @text on; @end: the first byte that is none.  False: none or too
 * big. */
static bool parse_digits(const char *text, uint64_t *number, const char **end)
{
    const char *at = text;
    uint64_t sum = 0;

    for (; g_ascii_isdigit(*at); at++) {
        if (!vj_mul_u64(sum, 10, &sum) || !vj_add_u64(sum, (uint64_t)(*at - '0'), &sum)) {
            return false;
        }
    }
    *number = sum;
    *end = at;
    return at != text;
}

/* The factor of a size's suffix; 0: not one. */
static uint64_t suffix_factor(const char *suffix)
{
    if (suffix[0] == '\0') {
        return 1;
    }
    if (suffix[1] != '\0') {
        return 0;
    }
    switch (suffix[0]) {
    case 'K':
        return VJ_KIB;
    case 'M':
        return VJ_MIB;
    case 'G':
        return VJ_GIB;
    case 'T':
        return VJ_TIB;
    default:
        return 0;
    }
}

bool vj_parse_size(const char *text, uint64_t *bytes, GError **error)
{
    const char *suffix;
    uint64_t number, factor;

    if (!parse_digits(text, &number, &suffix) || (factor = suffix_factor(suffix)) == 0 ||
        !vj_mul_u64(number, factor, bytes)) {
        g_autofree char *shown = quoted(text);

        return vj_error_set(
            error, EINVAL,
            "%s is not a size: a number below 2^64, perhaps with K, M, G or T", shown);
    }
    return true;
}

static bool parse_number(const char *text, uint64_t *number, GError **error)
{
    const char *end;

    if (!parse_digits(text, number, &end) || *end != '\0') {
        g_autofree char *shown = quoted(text);

        return vj_error_set(error, EINVAL, "%s is not a decimal number below 2^64",
                            shown);
    }
    return true;
}

static bool check_range(const VjOptSpec *spec, uint64_t number, GError **error)
{
    if (number < spec->min) {
        return vj_error_set(
            error, EINVAL, "%" G_GUINT64_FORMAT " is below the least, %" G_GUINT64_FORMAT,
            number, spec->min);
    }
    if (spec->max != 0 && number > spec->max) {
        return vj_error_set(error, EINVAL,
                            "%" G_GUINT64_FORMAT " is above the most, %" G_GUINT64_FORMAT,
                            number, spec->max);
    }
    return true;
}

static bool check_choice(const VjOptSpec *spec, const char *text, GError **error)
{
    g_auto(GStrv) choices = g_strsplit(spec->choices, "|", -1);
    g_autofree char *shown = NULL;

    if (g_strv_contains((const char *const *)choices, text)) {
        return true;
    }
    shown = quoted(text);
    return vj_error_set(error, EINVAL, "%s is not one of %s", shown, spec->choices);
}

/* @text against @spec; @number where the type has one (FLAG: 0 or 1). */
static bool check_value(const VjOptSpec *spec, const char *text, uint64_t *number,
                        GError **error)
{
    *number = 0;
    switch (spec->type) {
    case VJ_OPT_FLAG:
        *number = strcmp(text, "yes") == 0;
        if (*number == 0 && strcmp(text, "no") != 0) {
            return vj_error_set(error, EINVAL, "it is yes or no");
        }
        return true;
    case VJ_OPT_SIZE:
        return vj_parse_size(text, number, error) && check_range(spec, *number, error);
    case VJ_OPT_NUMBER:
        return parse_number(text, number, error) && check_range(spec, *number, error);
    case VJ_OPT_CHOICE:
        return check_choice(spec, text, error);
    case VJ_OPT_STRING:
        return true;
    }
    g_assert_not_reached();
}

static size_t count_specs(const VjOptSpec *specs)
{
    size_t n = 0;

    while (specs[n].name != NULL) {
        n++;
    }
    return n;
}

VjOpts *vj_opts_new(const VjOptSpec *specs)
{
    size_t count = count_specs(specs);
    VjOpts *o = g_malloc0(sizeof *o + count * sizeof o->values[0]);

    o->specs = specs;
    o->count = count;
    for (size_t i = 0; i < count; i++) {
        bool is_valid = true;

        g_assert(specs[i].type != VJ_OPT_CHOICE || specs[i].choices != NULL);
        if (specs[i].fallback != NULL) {
            is_valid =
                check_value(&specs[i], specs[i].fallback, &o->values[i].number, NULL);
        }
        g_assert(is_valid);
        o->values[i].text = g_strdup(specs[i].fallback);
    }
    return o;
}

void vj_opts_free(VjOpts *o)
{
    if (o == NULL) {
        return;
    }
    for (size_t i = 0; i < o->count; i++) {
        g_free(o->values[i].text);
    }
    g_free(o);
}

/* o->count: unknown. */
static size_t find(const VjOpts *o, const char *name)
{
    size_t i = 0;

    while (i < o->count && strcmp(o->specs[i].name, name) != 0) {
        i++;
    }
    return i;
}

static bool refuse_unknown(const VjOpts *o, const char *name, GError **error)
{
    g_autofree char *shown = quoted(name);
    g_autoptr(GString) names = g_string_new(NULL);

    for (size_t i = 0; i < o->count; i++) {
        g_string_append_printf(names, "%s%s", i > 0 ? ", " : "", o->specs[i].name);
    }
    if (o->count == 0) {
        return vj_error_set(error, EINVAL, "unknown option %s: there are none here",
                            shown);
    }
    return vj_error_set(error, EINVAL, "unknown option %s: known are %s", shown,
                        names->str);
}

bool vj_opts_set(VjOpts *o, const char *name, const char *value, GError **error)
{
    size_t i = find(o, name);
    uint64_t number;

    if (i == o->count) {
        return refuse_unknown(o, name, error);
    }
    if (value == NULL) {
        if (o->specs[i].type != VJ_OPT_FLAG) {
            return vj_error_set(error, EINVAL, "option %s: needs a value (%s=...)", name,
                                name);
        }
        value = "yes";
    }
    if (!check_value(&o->specs[i], value, &number, error)) {
        return vj_error_prefix(error, "option %s", name);
    }
    g_free(o->values[i].text);
    o->values[i] = (Value){.text = g_strdup(value), .number = number, .is_set = true};
    return true;
}

/*
 * One element of @text, unescaped, into @name and @value, which stays NULL without '='.
 * @rest: behind the comma, or at the end.
 */
static bool split_element(const char *text, GString *name, GString **value,
                          const char **rest, GError **error)
{
    GString *into = name;
    const char *at;

    for (at = text; *at != '\0' && *at != ','; at++) {
        if (*at == '=' && into == name) {
            *value = into = g_string_new(NULL);
            continue;
        }
        if (*at == '\\') {
            at++;
            if (*at != ',' && *at != '\\') {
                return vj_error_set(error, EINVAL,
                                    "option text: a backslash stands before a comma or a "
                                    "backslash only");
            }
        }
        g_string_append_c(into, *at);
    }
    *rest = *at == ',' ? at + 1 : at;
    return true;
}

/* The element is a part of the value of @before: "store=remote:a,b" has two. */
static bool goes_on(const VjOpts *o, size_t before, const char *name)
{
    return before < o->count && o->specs[before].is_spec &&
           strchr(o->values[before].text, ':') != NULL && find(o, name) == o->count;
}

/* *row: that the element before it has set, and that this one has; o->count: none. */
static bool parse_element(VjOpts *o, const char *text, size_t *row, const char **rest,
                          GError **error)
{
    g_autoptr(GString) name = g_string_new(NULL);
    g_autoptr(GString) value = NULL;

    if (!split_element(text, name, &value, rest, error)) {
        return false;
    }
    if (name->len == 0 && value == NULL) {
        return true; /* ",,": harmless, and common in generated mount options */
    }
    if (goes_on(o, *row, name->str)) {
        g_autofree char *whole =
            g_strdup_printf("%s,%s%s%s", o->values[*row].text, name->str,
                            value != NULL ? "=" : "", value != NULL ? value->str : "");

        return vj_opts_set(o, o->specs[*row].name, whole, error);
    }
    *row = find(o, name->str);
    return vj_opts_set(o, name->str, value != NULL ? value->str : NULL, error);
}

bool vj_opts_parse(VjOpts *o, const char *text, GError **error)
{
    size_t row = o->count;

    if (strnlen(text, TEXT_MAX_BYTES + 1) > TEXT_MAX_BYTES) {
        return vj_error_set(error, EINVAL, "option text: longer than %zu bytes",
                            TEXT_MAX_BYTES);
    }
    while (*text != '\0') {
        if (!parse_element(o, text, &row, &text, error)) {
            return false;
        }
    }
    return true;
}

const VjOptSpec *vj_opts_leader(const VjOptSpec *specs)
{
    while (specs->name != NULL && !specs->leads) {
        specs++;
    }
    g_assert(specs->name == NULL || specs->type == VJ_OPT_STRING);
    return specs->name != NULL ? specs : NULL;
}

/* "name=…", or the name of a flag and nothing else. */
static bool begins_with_setting(const VjOpts *o, const char *text)
{
    for (size_t i = 0; i < o->count; i++) {
        size_t len = strlen(o->specs[i].name);
        bool is_flag = o->specs[i].type == VJ_OPT_FLAG;

        if (strncmp(text, o->specs[i].name, len) == 0 &&
            (text[len] == '=' || (is_flag && (text[len] == ',' || text[len] == '\0')))) {
            return true;
        }
    }
    return false;
}

bool vj_opts_parse_spec(VjOpts *o, const char *text, GError **error)
{
    const VjOptSpec *leader = vj_opts_leader(o->specs);
    const char *end = text;
    g_autofree char *led = NULL;

    if (leader == NULL || *text == '\0' || begins_with_setting(o, text)) {
        return vj_opts_parse(o, text, error);
    }
    if (strnlen(text, TEXT_MAX_BYTES + 1) > TEXT_MAX_BYTES) {
        return vj_error_set(error, EINVAL, "option text: longer than %zu bytes",
                            TEXT_MAX_BYTES);
    }
    while (*end != '\0' && (*end != ':' || !begins_with_setting(o, end + 1))) {
        end++;
    }
    led = g_strndup(text, (gsize)(end - text));
    return vj_opts_set(o, leader->name, led, error) &&
           vj_opts_parse(o, *end == ':' ? end + 1 : end, error);
}

void vj_opts_unset(VjOpts *o, const char *name)
{
    size_t i = find(o, name);
    const char *fallback;

    g_assert(i < o->count);
    fallback = o->specs[i].fallback;
    g_free(o->values[i].text);
    o->values[i] = (Value){.text = g_strdup(fallback)};
    if (fallback != NULL) {
        bool is_valid = check_value(&o->specs[i], fallback, &o->values[i].number, NULL);

        g_assert(is_valid);
    }
}

static void append_escaped(GString *to, const char *value)
{
    for (; *value != '\0'; value++) {
        if (*value == ',' || *value == '\\') {
            g_string_append_c(to, '\\');
        }
        g_string_append_c(to, *value);
    }
}

char *vj_opts_spec_text(const VjOpts *o)
{
    const VjOptSpec *leader = vj_opts_leader(o->specs);
    size_t first = leader != NULL ? (size_t)(leader - o->specs) : o->count;
    GString *text = g_string_new(NULL);
    const char *between = "";

    if (first < o->count && o->values[first].is_set) {
        g_string_append(text, o->values[first].text);
        between = ":";
    }
    for (size_t i = 0; i < o->count; i++) {
        if (i != first && o->values[i].is_set) {
            g_string_append_printf(text, "%s%s=", between, o->specs[i].name);
            append_escaped(text, o->values[i].text);
            between = ",";
        }
    }
    return g_string_free(text, FALSE);
}

bool vj_opts_has_spec(const VjOpts *o, const char *name)
{
    return find(o, name) < o->count;
}

/* The value of an option that the caller must know. */
static const Value *value_of(const VjOpts *o, const char *name, const VjOptSpec **spec)
{
    size_t i = find(o, name);

    g_assert(i < o->count);
    *spec = &o->specs[i];
    return &o->values[i];
}

bool vj_opts_is_set(const VjOpts *o, const char *name)
{
    const VjOptSpec *spec;

    return value_of(o, name, &spec)->is_set;
}

const char *vj_opts_string(const VjOpts *o, const char *name)
{
    const VjOptSpec *spec;

    return value_of(o, name, &spec)->text;
}

uint64_t vj_opts_number(const VjOpts *o, const char *name)
{
    const VjOptSpec *spec;
    const Value *value = value_of(o, name, &spec);

    g_assert(spec->type == VJ_OPT_NUMBER || spec->type == VJ_OPT_SIZE);
    return value->number;
}

bool vj_opts_flag(const VjOpts *o, const char *name)
{
    const VjOptSpec *spec;
    const Value *value = value_of(o, name, &spec);

    g_assert(spec->type == VJ_OPT_FLAG);
    return value->number != 0;
}

VjOptFiles *vj_opt_files_new(void)
{
    VjOptFiles *f = g_new0(VjOptFiles, 1);

    f->read = g_ptr_array_new_with_free_func(g_free);
    f->written = g_ptr_array_new_with_free_func(g_free);
    return f;
}

void vj_opt_files_free(VjOptFiles *f)
{
    if (f != NULL) {
        g_ptr_array_unref(f->read);
        g_ptr_array_unref(f->written);
        g_free(f);
    }
}

void vj_opts_files(const VjOpts *o, VjOptFiles *files)
{
    for (size_t i = 0; i < o->count; i++) {
        const VjOptSpec *spec = &o->specs[i];

        if ((spec->is_file || spec->is_device) && o->values[i].text != NULL) {
            g_assert(spec->type == VJ_OPT_STRING);
            g_ptr_array_add(spec->is_file ? files->read : files->written,
                            g_strdup(o->values[i].text));
        }
    }
}

/* "name=SIZE"; owned. */
static char *usage_of(const VjOptSpec *spec)
{
    switch (spec->type) {
    case VJ_OPT_FLAG:
        return g_strdup(spec->name);
    case VJ_OPT_SIZE:
        return g_strdup_printf("%s=SIZE", spec->name);
    case VJ_OPT_NUMBER:
        return g_strdup_printf("%s=N", spec->name);
    case VJ_OPT_CHOICE:
        return g_strdup_printf("%s=%s", spec->name, spec->choices);
    case VJ_OPT_STRING:
        return g_strdup_printf("%s=%s", spec->name,
                               spec->choices != NULL ? spec->choices : "TEXT");
    }
    g_assert_not_reached();
}

char *vj_opts_help(const VjOptSpec *specs)
{
    GString *out = g_string_new(NULL);
    size_t width = 0;

    for (const VjOptSpec *spec = specs; spec->name != NULL; spec++) {
        g_autofree char *usage = usage_of(spec);

        width = MAX(width, strlen(usage));
    }
    for (const VjOptSpec *spec = specs; spec->name != NULL; spec++) {
        g_autofree char *usage = usage_of(spec);

        g_string_append_printf(out, "  %-*s   %s", (int)width, usage, spec->help);
        if (spec->fallback != NULL && *spec->fallback != '\0') {
            g_string_append_printf(out, " (default %s)", spec->fallback);
        }
        g_string_append_c(out, '\n');
    }
    return g_string_free(out, FALSE);
}
