/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * iterate.c - names and keys in order, page by page
 *
 * A page is one request; the next one goes on behind the last name.  All of a page is
 * checked when an entry is taken from it: names that are none, that do not begin with the
 * prefix, or that are not behind the one before would make a program do wrong, or go on
 * without end.
 */
#include "client-private.h"

#include <stdlib.h>

/* More than one entry may have. */
#define PAGE_BYTES (256u << 10)
#define PAGE_ENTRIES 1024u

struct varjfs_iterator {
    varjfs *v;
    varjfs_iterator *next, **link;
    uint8_t what; /* VARJFS_WIRE_ITERATE_… */
    bool is_begun, has_more;
    int failure;
    uint32_t entries; /* of the page, that were not taken */
    VjcReader page;
    size_t space_len, prefix_len, name_len, item_len;
    char space[VARJFS_NAMESPACE_MAX];
    char item[VARJFS_NAME_MAX]; /* whose attributes these are */
    /* That come with each item; the names stand in attribute_names. */
    size_t attribute_count;
    struct varjfs_attribute attributes[VARJFS_ITERATE_ATTRIBUTES_MAX];
    char attribute_names[VARJFS_ITERATE_ATTRIBUTES_MAX][VARJFS_ATTRIBUTE_NAME_MAX + 1];
    uint8_t prefix[VARJFS_NAME_MAX];
    uint8_t name[VARJFS_NAME_MAX + 1]; /* the last one, with a NUL */
    uint8_t bytes[PAGE_BYTES];
};

static int make(varjfs *v, uint8_t what, const char *space, const void *prefix,
                size_t prefix_len, varjfs_iterator **out)
{
    varjfs_iterator *i;
    size_t space_len = 0;

    *out = NULL;
    if (v == NULL || prefix_len > VARJFS_NAME_MAX || (prefix == NULL && prefix_len > 0) ||
        (space != NULL && !vjc_is_namespace(space, &space_len))) {
        return -EINVAL;
    }
    i = malloc(sizeof *i);
    if (i == NULL) {
        return -ENOMEM;
    }
    memset(i, 0, offsetof(varjfs_iterator, bytes));
    i->v = v;
    i->what = what;
    i->has_more = true;
    i->space_len = space_len;
    i->prefix_len = prefix_len;
    if (space_len > 0) {
        memcpy(i->space, space, space_len);
    }
    if (prefix_len > 0) {
        memcpy(i->prefix, prefix, prefix_len);
    }
    i->next = v->iterators;
    i->link = &v->iterators;
    if (i->next != NULL) {
        i->next->link = &i->next;
    }
    v->iterators = i;
    *out = i;
    return 0;
}

int varjfs_object_iterate(varjfs *v, const char *space, const char *prefix,
                          varjfs_iterator **out)
{
    size_t len = prefix == NULL ? 0 : strnlen(prefix, VARJFS_NAME_MAX + 1);

    return make(v, VARJFS_WIRE_ITERATE_OBJECTS, space, prefix, len, out);
}

int varjfs_kv_iterate(varjfs *v, const char *space, const void *prefix, size_t prefix_len,
                      varjfs_iterator **out)
{
    return make(v, VARJFS_WIRE_ITERATE_KEYS, space, prefix, prefix_len, out);
}

int varjfs_attribute_iterate(varjfs *v, const char *collection, const char *item,
                             const char *prefix, varjfs_iterator **out)
{
    size_t len = prefix == NULL ? 0 : strnlen(prefix, VARJFS_ATTRIBUTE_NAME_MAX + 1);
    size_t item_len = item == NULL ? 0 : strnlen(item, VARJFS_NAME_MAX + 1);
    int rc;

    *out = NULL;
    if (collection == NULL || item_len > VARJFS_NAME_MAX ||
        !vjc_is_name(item, item_len) || len > VARJFS_ATTRIBUTE_NAME_MAX) {
        return -EINVAL;
    }
    rc = make(v, VARJFS_WIRE_ITERATE_ATTRIBUTES, collection, prefix, len, out);
    if (rc == 0) {
        memcpy((*out)->item, item, item_len);
        (*out)->item_len = item_len;
    }
    return rc;
}

int varjfs_item_iterate(varjfs *v, const char *collection, const char *prefix,
                        const char *const *attributes, size_t count,
                        varjfs_iterator **out)
{
    size_t len = prefix == NULL ? 0 : strnlen(prefix, VARJFS_NAME_MAX + 1);
    int rc;

    *out = NULL;
    if (collection == NULL || count > VARJFS_ITERATE_ATTRIBUTES_MAX ||
        (attributes == NULL && count > 0)) {
        return -EINVAL;
    }
    for (size_t i = 0; i < count; i++) {
        size_t name_len;

        rc = vjc_attribute_name(attributes[i], &name_len);
        if (rc != 0) {
            return rc;
        }
    }
    rc = make(v, VARJFS_WIRE_ITERATE_ITEMS, collection, prefix, len, out);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        memcpy((*out)->attribute_names[i], attributes[i], strlen(attributes[i]) + 1);
        (*out)->attribute_count = count;
    }
    return rc;
}

void varjfs_iterator_free(varjfs_iterator *i)
{
    if (i == NULL) {
        return;
    }
    *i->link = i->next;
    if (i->next != NULL) {
        i->next->link = i->link;
    }
    free(i);
}

void vjc_iterators_free(varjfs *v)
{
    while (v->iterators != NULL) {
        varjfs_iterator_free(v->iterators);
    }
}

/* ---- pages ------------------------------------------------------------------------- */

static bool place_page(VjcRequest *r, const uint8_t *message, uint32_t len, uint32_t bulk)
{
    varjfs_iterator *i = r->owner;

    (void)message;
    if (len != VARJFS_WIRE_ITERATE_REPLY_BYTES || bulk > sizeof i->bytes) {
        return false;
    }
    r->in[0] = (struct iovec){.iov_base = i->bytes, .iov_len = bulk};
    r->in_count = 1;
    return true;
}

static bool finish_page(VjcRequest *r, const uint8_t *message, uint32_t len)
{
    varjfs_iterator *i = r->owner;
    VjcReader reply = vjc_reader(message, len);
    uint8_t more = vjc_get8(&reply);

    i->entries = vjc_get32(&reply);
    i->has_more = more == 1;
    i->page = vjc_reader(i->bytes, r->in[0].iov_len);
    return vjc_reader_is_done(&reply) && more <= 1 && i->entries <= PAGE_ENTRIES &&
           (more == 0 || i->entries > 0) && (i->entries > 0 || i->page.left == 0);
}

static const VjcReplyHandler page_handler = {.place = place_page, .finish = finish_page};

static int ask(varjfs_iterator *i)
{
    uint8_t message[VJC_HEAD_BYTES + VARJFS_WIRE_ITERATE_MESSAGE_MAX];
    VjcWriter w = vjc_writer(message + VJC_HEAD_BYTES, sizeof message - VJC_HEAD_BYTES);
    struct iovec in;
    VjcRequest r = {.op = VARJFS_WIRE_ITERATE,
                    .at_once = true,
                    .handler = &page_handler,
                    .owner = i,
                    .in = &in,
                    .in_max = 1};
    size_t behind = i->is_begun ? i->name_len : 0;
    int rc = vjc_wait_deferred(i->v, 0); /* their names are to be there */

    vjc_put_number(&w, i->what, 1);
    vjc_put_number(&w, 0, 1);
    vjc_put_number(&w, i->space_len, 2);
    vjc_put_number(&w, i->prefix_len, 2);
    vjc_put_number(&w, behind, 2);
    vjc_put_number(&w, PAGE_ENTRIES, 4);
    vjc_put_number(&w, PAGE_BYTES, 4);
    vjc_put_number(&w, i->item_len, 2);
    vjc_put_number(&w, i->attribute_count, 2);
    vjc_put_bytes(&w, i->space, i->space_len);
    vjc_put_bytes(&w, i->prefix, i->prefix_len);
    vjc_put_bytes(&w, i->name, behind);
    vjc_put_bytes(&w, i->item, i->item_len);
    for (size_t n = 0; n < i->attribute_count; n++) {
        size_t len = strlen(i->attribute_names[n]);

        vjc_put_number(&w, len, 2);
        vjc_put_bytes(&w, i->attribute_names[n], len);
    }
    if (rc == 0) {
        vjc_send(i->v, &r, message, sizeof message - w.left, NULL, 0);
        rc = vjc_wait(i->v, &r);
    }
    return rc;
}

/* ---- entries ----------------------------------------------------------------------- */

static int compare(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);

    return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

/* Of the names that are asked for. */
typedef enum Names { NAMES, NAMES_OF_SPACES, NAMES_OF_KEYS, NAMES_OF_ATTRIBUTES } Names;

static Names names_of(const varjfs_iterator *i)
{
    return i->space_len == 0                           ? NAMES_OF_SPACES
           : i->what == VARJFS_WIRE_ITERATE_KEYS       ? NAMES_OF_KEYS
           : i->what == VARJFS_WIRE_ITERATE_ATTRIBUTES ? NAMES_OF_ATTRIBUTES
                                                       : NAMES;
}

static bool is_one(Names names, const uint8_t *name, size_t len)
{
    switch (names) {
    case NAMES_OF_KEYS:
        return len > 0 && len <= VARJFS_NAME_MAX;
    case NAMES_OF_ATTRIBUTES:
        return len > 0 && len <= VARJFS_ATTRIBUTE_NAME_MAX &&
               memchr(name, '\0', len) == NULL;
    case NAMES_OF_SPACES:
        return len <= VARJFS_NAMESPACE_MAX && vjc_is_name(name, len);
    default:
        return len <= VARJFS_NAME_MAX && vjc_is_name(name, len);
    }
}

static bool is_expected(const varjfs_iterator *i, const uint8_t *name, size_t len,
                        size_t value_len)
{
    Names names = names_of(i);
    bool has_value = names == NAMES_OF_KEYS || names == NAMES_OF_ATTRIBUTES;

    if (!is_one(names, name, len) || (has_value && value_len > VARJFS_VALUE_MAX) ||
        (!has_value && value_len > 0 && i->attribute_count == 0)) {
        return false;
    }
    if (len < i->prefix_len || memcmp(name, i->prefix, i->prefix_len) != 0) {
        return false;
    }
    return !i->is_begun || compare(name, len, i->name, i->name_len) > 0;
}

/* The attributes of an item. */
static bool take_attributes(varjfs_iterator *i, const uint8_t *value, size_t len)
{
    VjcReader r = vjc_reader(value, len);

    for (size_t n = 0; n < i->attribute_count; n++) {
        struct varjfs_attribute *a = &i->attributes[n];
        uint32_t bytes = vjc_get32(&r);

        *a = (struct varjfs_attribute){.name = i->attribute_names[n]};
        if (bytes == VARJFS_WIRE_NO_VALUE) {
            continue;
        }
        if (bytes > VARJFS_VALUE_MAX) {
            return false;
        }
        a->len = bytes;
        if (bytes <= VARJFS_ITERATE_VALUE_MAX) {
            a->value = vjc_get_bytes(&r, bytes);
        }
    }
    return vjc_reader_is_done(&r);
}

static int take(varjfs_iterator *i, struct varjfs_entry *out)
{
    size_t size = out->size, name_len = vjc_get16(&i->page);
    size_t value_len = vjc_get32(&i->page);
    const uint8_t *name = vjc_get_bytes(&i->page, name_len);
    const uint8_t *value = vjc_get_bytes(&i->page, value_len);

    i->entries--;
    if (value == NULL || !is_expected(i, name, name_len, value_len) ||
        (i->entries == 0 && i->page.left > 0) ||
        (i->attribute_count > 0 && !take_attributes(i, value, value_len))) {
        return vjc_fail(i->v, -EPROTO);
    }
    memcpy(i->name, name, name_len);
    i->name[name_len] = '\0';
    i->name_len = name_len;
    i->is_begun = true;
    memset(out, 0, size);
    *out = (struct varjfs_entry){.size = size,
                                 .name = i->name,
                                 .name_len = name_len,
                                 .value = i->attribute_count > 0 ? NULL : value,
                                 .len = i->attribute_count > 0 ? 0 : value_len,
                                 .attributes = i->attributes,
                                 .attribute_count = i->attribute_count};
    return 1;
}

int varjfs_iterator_next(varjfs_iterator *i, struct varjfs_entry *out)
{
    int rc = i->failure;

    if (out->size < sizeof *out || out->size > VJC_STRUCT_MAX) {
        return -EINVAL;
    }
    if (rc == 0 && i->entries == 0 && i->has_more) {
        rc = ask(i);
    }
    if (rc == 0 && i->entries > 0) {
        rc = take(i, out);
    }
    if (rc < 0) {
        i->failure = rc;
    }
    return rc;
}
