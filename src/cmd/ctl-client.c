/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-client.c - varjfsctl objects, items and kv: what programs do by libvarjfs, for
 * shells
 *
 *     objects list|create|status|read|write|insert|resize|rename|delete|clear
 *             SOURCE [SPACE [NAME [OFFSET|BYTES|NEW-NAME]]]
 *     items list|attributes|get|put|delete SOURCE SPACE [ITEM [ATTRIBUTE [VALUE]]]
 *     kv list|get|put|delete|clear SOURCE [SPACE [KEY [VALUE]]]
 */
#include "cmd/ctl.h"

#include "varjfs/varjfs.h"

#include <stdlib.h>
#include <unistd.h>

/* Of what is read and written in one operation, bytes. */
#define PIECE ((size_t)4 << 20)

typedef struct Client {
    const VjCtl *ctl;
    varjfs *v;
    varjfs_batch *batch;
    const char *space, *name; /* NULL: not given */
    const char *more;         /* an offset, a value, an attribute; NULL: not given */
    const char *last;         /* the value of an attribute; NULL: not given */
} Client;

static bool fail(const Client *c, const char *what, int rc)
{
    vj_cmd_fail_errno(c->ctl->cmd, what, -rc);
    return false;
}

/* What was added to the batch with @rc is done; false after a message. */
static bool execute(const Client *c, int rc)
{
    rc = rc == 0 ? varjfs_batch_execute(c->batch) : rc;
    if (rc < 0) {
        g_autofree char *what = g_strdup_printf("%s/%s", c->space, c->name);

        vj_complain(c->ctl->cmd->name, "%s: %s", what, varjfs_strerror(rc));
    }
    return rc == 0;
}

static bool put_out(const Client *c, const void *bytes, size_t len)
{
    return fwrite(bytes, 1, len, stdout) == len || fail(c, "standard output", -errno);
}

/* ---- lists ------------------------------------------------------------------------- */

static bool show_entry(const Client *c, const struct varjfs_entry *e, bool is_first)
{
    g_autofree char *name = NULL;

    if (c->ctl->format != VJ_CTL_JSON) {
        return put_out(c, e->name, e->name_len) && put_out(c, "\n", 1);
    }
    name = vj_ctl_json_bytes(e->name, e->name_len);
    printf("%s%s", is_first ? "" : ", ", name);
    return true;
}

static bool list(Client *c, bool keys)
{
    bool is_json = c->ctl->format == VJ_CTL_JSON, ok = true, is_first = true;
    struct varjfs_entry entry = {.size = sizeof entry};
    varjfs_iterator *i;
    int rc = keys ? varjfs_kv_iterate(c->v, c->space, c->name,
                                      c->name != NULL ? strlen(c->name) : 0, &i)
                  : varjfs_object_iterate(c->v, c->space, c->name, &i);

    if (rc < 0) {
        return fail(c, c->space != NULL ? c->space : "namespaces", rc);
    }
    printf("%s", is_json ? "[" : "");
    while (ok && (rc = varjfs_iterator_next(i, &entry)) > 0) {
        ok = show_entry(c, &entry, is_first);
        is_first = false;
    }
    printf("%s", is_json ? "]\n" : "");
    varjfs_iterator_free(i);
    return ok && (rc == 0 || fail(c, c->space != NULL ? c->space : "namespaces", rc));
}

static bool list_objects(Client *c)
{
    return list(c, false);
}

static bool list_keys(Client *c)
{
    return list(c, true);
}

/* ---- objects ----------------------------------------------------------------------- */

static bool create(Client *c)
{
    struct varjfs_object_options options = {.size = sizeof options,
                                            .transform = c->ctl->transform};

    return execute(c, varjfs_object_create(c->batch, c->space, c->name, &options, NULL));
}

static bool show_status(Client *c)
{
    struct varjfs_object_status s = {.size = sizeof s};

    if (!execute(c, varjfs_object_status(c->batch, c->space, c->name, &s, NULL))) {
        return false;
    }
    printf(c->ctl->format == VJ_CTL_JSON
               ? "{\"original_size\": %" G_GUINT64_FORMAT
                 ", \"stored_size\": %" G_GUINT64_FORMAT
                 ", \"modified_us\": %" G_GINT64_FORMAT
                 ", \"created_us\": %" G_GINT64_FORMAT ", \"transform\": \"%s\"}\n"
               : "original_size=%" G_GUINT64_FORMAT "\nstored_size=%" G_GUINT64_FORMAT
                 "\nmodified_us=%" G_GINT64_FORMAT "\ncreated_us=%" G_GINT64_FORMAT
                 "\ntransform=%s\n",
           s.bytes, s.stored_bytes, s.modified_us, s.created_us, s.transform);
    return true;
}

static bool read_object(Client *c)
{
    g_autofree char *piece = g_malloc(PIECE);
    uint64_t at = 0;
    size_t got;

    do {
        if (!execute(c, varjfs_object_read(c->batch, c->space, c->name, piece, PIECE, at,
                                           &got, NULL)) ||
            !put_out(c, piece, got)) {
            return false;
        }
        at += got;
    } while (got > 0);
    return true;
}

/* Standard input, a piece each: *len 0 at its end. */
static bool next_piece(const Client *c, char *piece, size_t *len)
{
    *len = fread(piece, 1, PIECE, stdin);
    return !ferror(stdin) || fail(c, "standard input", -errno);
}

/* It is inserted from @at on; its first @len bytes are in @piece already. */
static bool add_input(Client *c, uint64_t at, char *piece, size_t len)
{
    while (len > 0) {
        if (!execute(c, varjfs_object_rwrite(c->batch, c->space, c->name, piece, len, at,
                                             0, 0, NULL))) {
            return false;
        }
        at += len;
        if (!next_piece(c, piece, &len)) {
            return false;
        }
    }
    return true;
}

/* Standard input is all that the object has then; what cannot be read takes nothing
 * away. */
static bool write_object(Client *c)
{
    g_autofree char *piece = g_malloc(PIECE);
    size_t len;
    int made, rc;

    if (!next_piece(c, piece, &len)) {
        return false;
    }
    rc = varjfs_object_create(c->batch, c->space, c->name, NULL, &made);
    rc = rc == 0 ? varjfs_batch_execute(c->batch) : rc;
    if (rc == -EEXIST) {
        rc = 0;
        if (!execute(c, varjfs_object_rwrite(c->batch, c->space, c->name, NULL, 0, 0,
                                             UINT64_MAX, 0, NULL))) {
            return false;
        }
    }
    return rc < 0 ? execute(c, rc) : add_input(c, 0, piece, len);
}

static bool insert(Client *c)
{
    g_autofree char *piece = g_malloc(PIECE);
    g_autoptr(GError) error = NULL;
    uint64_t at;
    size_t len;

    if (!vj_parse_size(c->more, &at, &error)) {
        vj_cmd_fail(c->ctl->cmd, error);
        return false;
    }
    return next_piece(c, piece, &len) && add_input(c, at, piece, len);
}

static bool delete_object(Client *c)
{
    return execute(c, varjfs_object_delete(c->batch, c->space, c->name, NULL));
}

static bool resize(Client *c)
{
    g_autoptr(GError) error = NULL;
    uint64_t bytes;

    if (!vj_parse_size(c->more, &bytes, &error)) {
        vj_cmd_fail(c->ctl->cmd, error);
        return false;
    }
    return execute(c, varjfs_object_resize(c->batch, c->space, c->name, bytes, NULL));
}

static bool rename_object(Client *c)
{
    return execute(c,
                   varjfs_object_rename(c->batch, c->space, c->name, c->more, 0, NULL));
}

static bool clear(Client *c, enum varjfs_kind kind)
{
    int rc = varjfs_namespace_delete(c->v, kind, c->space, NULL, NULL);

    if (rc < 0) {
        vj_complain(c->ctl->cmd->name, "%s: %s", c->space, varjfs_strerror(rc));
    }
    return rc == 0;
}

static bool clear_objects(Client *c)
{
    return clear(c, VARJFS_OBJECTS);
}

static bool clear_keys(Client *c)
{
    return clear(c, VARJFS_KEYS);
}

/* ---- items ------------------------------------------------------------------------- */

static bool show_attribute(const Client *c, const struct varjfs_entry *e, bool is_first)
{
    g_autofree char *name = NULL, *value = NULL;

    if (c->ctl->format != VJ_CTL_JSON) {
        return put_out(c, e->name, e->name_len) && put_out(c, "=", 1) &&
               put_out(c, e->value, e->len) && put_out(c, "\n", 1);
    }
    name = vj_ctl_json_string(e->name);
    value = vj_ctl_json_bytes(e->value, e->len);
    printf("%s%s: %s", is_first ? "" : ", ", name, value);
    return true;
}

static bool list_attributes(Client *c)
{
    bool is_json = c->ctl->format == VJ_CTL_JSON, ok = true, is_first = true;
    struct varjfs_entry entry = {.size = sizeof entry};
    g_autofree char *what = g_strdup_printf("%s/%s", c->space, c->name);
    varjfs_iterator *i;
    int rc = varjfs_attribute_iterate(c->v, c->space, c->name, c->more, &i);

    if (rc < 0) {
        return fail(c, what, rc);
    }
    while (ok && (rc = varjfs_iterator_next(i, &entry)) > 0) {
        printf("%s", is_json && is_first ? "{" : "");
        ok = show_attribute(c, &entry, is_first);
        is_first = false;
    }
    varjfs_iterator_free(i);
    if (ok && rc == 0) {
        printf("%s", !is_json ? "" : is_first ? "{}\n" : "}\n");
    }
    return ok && (rc == 0 || fail(c, what, rc));
}

/* The word *value, or what comes in where it is NULL, in @piece. */
static bool value_of(Client *c, char *piece, const char **value, size_t *len)
{
    if (*value == NULL) {
        *value = piece;
        return next_piece(c, piece, len);
    }
    *len = strlen(*value);
    return true;
}

static bool get_attribute(Client *c)
{
    g_autofree char *value = g_malloc(VARJFS_VALUE_MAX);
    size_t len;

    return execute(c, varjfs_attribute_get(c->batch, c->space, c->name, c->more, value,
                                           VARJFS_VALUE_MAX, &len, NULL)) &&
           put_out(c, value, len);
}

static bool put_attribute(Client *c)
{
    g_autofree char *piece = g_malloc(PIECE);
    const char *value = c->last;
    size_t len;

    return value_of(c, piece, &value, &len) &&
           execute(c, varjfs_attribute_put(c->batch, c->space, c->name, c->more, value,
                                           len, 0, NULL));
}

static bool delete_attribute(Client *c)
{
    return execute(c,
                   varjfs_attribute_delete(c->batch, c->space, c->name, c->more, NULL));
}

/* ---- keys -------------------------------------------------------------------------- */

static bool get_key(Client *c)
{
    g_autofree char *value = g_malloc(VARJFS_VALUE_MAX);
    size_t len;

    return execute(c, varjfs_kv_get(c->batch, c->space, c->name, strlen(c->name), value,
                                    VARJFS_VALUE_MAX, &len, NULL)) &&
           put_out(c, value, len);
}

static bool put_key(Client *c)
{
    g_autofree char *piece = g_malloc(PIECE);
    const char *value = c->more;
    size_t len;

    return value_of(c, piece, &value, &len) &&
           execute(c, varjfs_kv_put(c->batch, c->space, c->name, strlen(c->name), value,
                                    len, 0, NULL));
}

static bool delete_key(Client *c)
{
    return execute(c,
                   varjfs_kv_delete(c->batch, c->space, c->name, strlen(c->name), NULL));
}

/* ---- the command ------------------------------------------------------------------- */

typedef struct Verb {
    const char *name;
    bool (*run)(Client *c);
    guint least, most; /* operands behind SOURCE */
} Verb;

static const Verb object_verbs[] = {
    {"list", list_objects, 0, 2},
    {"create", create, 2, 2},
    {"status", show_status, 2, 2},
    {"read", read_object, 2, 2},
    {"write", write_object, 2, 2},
    {"insert", insert, 3, 3},
    {"resize", resize, 3, 3},
    {"rename", rename_object, 3, 3},
    {"delete", delete_object, 2, 2},
    {"clear", clear_objects, 1, 1},
    {0},
};

static const Verb item_verbs[] = {
    {"list", list_objects, 0, 2},       {"attributes", list_attributes, 2, 3},
    {"get", get_attribute, 3, 3},       {"put", put_attribute, 3, 4},
    {"delete", delete_attribute, 3, 3}, {0},
};

static const Verb key_verbs[] = {
    {"list", list_keys, 0, 2},    {"get", get_key, 2, 2},      {"put", put_key, 2, 3},
    {"delete", delete_key, 2, 2}, {"clear", clear_keys, 1, 1}, {0},
};

static bool run_verb(Client *c, const Verb *verb)
{
    struct varjfs_options options = {.size = sizeof options, .volume = c->ctl->volume};
    int rc = varjfs_open(c->ctl->operands[1], &options, &c->v), closed;
    bool ok;

    if (rc < 0) {
        vj_complain(c->ctl->cmd->name, "%s: %s", c->ctl->operands[1],
                    varjfs_open_error());
        return false;
    }
    rc = varjfs_batch_new(c->v, NULL, &c->batch);
    ok = rc < 0 ? fail(c, c->ctl->operands[1], rc) : verb->run(c);
    closed = varjfs_close(c->v);
    return ok && (closed == 0 || fail(c, c->ctl->operands[1], closed));
}

static int run(const VjCtl *ctl, const Verb *verbs)
{
    guint count = g_strv_length(ctl->operands) - 2;
    Client c = {.ctl = ctl};

    c.space = count > 0 ? ctl->operands[2] : NULL;
    c.name = count > 1 ? ctl->operands[3] : NULL;
    c.more = count > 2 ? ctl->operands[4] : NULL;
    c.last = count > 3 ? ctl->operands[5] : NULL;
    for (const Verb *v = verbs; v->name != NULL; v++) {
        if (strcmp(ctl->operands[0], v->name) != 0) {
            continue;
        }
        if (count < v->least || count > v->most) {
            return vj_cmd_usage_error(ctl->cmd, v->name,
                                      count < v->least ? "an argument is missing"
                                                       : "one argument too many");
        }
        return run_verb(&c, v) ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    return vj_cmd_usage_error(ctl->cmd, ctl->operands[0], "no such verb");
}

int vj_ctl_objects(const VjCtl *ctl)
{
    return run(ctl, object_verbs);
}

int vj_ctl_items(const VjCtl *ctl)
{
    return run(ctl, item_verbs);
}

int vj_ctl_kv(const VjCtl *ctl)
{
    return run(ctl, key_verbs);
}
