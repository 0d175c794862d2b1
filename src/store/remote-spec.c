/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-spec.c - the list of nodes of the driver remote, as text
 *
 * A locator has a bit for each place in the list.  So a place is never given to another
 * node, "-" stays where one was removed, and the list grows at its end alone.  A node
 * that is to be emptied, or is empty, has the weight 0.
 */
#include "store/remote-private.h"

/* The longest list of nodes, bytes. */
#define NODES_TEXT_MAX ((size_t)16 << 10)

bool vj_remote_is_hole(const char *address)
{
    return strcmp(address, "-") == 0;
}

char **vj_remote_nodes_of(const VjOpts *opts, GError **error)
{
    const char *text = vj_opts_string(opts, "nodes");
    g_auto(GStrv) nodes = NULL;
    unsigned count;

    if (text == NULL || *text == '\0') {
        vj_error_set(error, EINVAL, "no node is named: remote:HOST[,HOST...]");
        return NULL;
    }
    if (strlen(text) > NODES_TEXT_MAX) {
        vj_error_set(error, EINVAL, "the list of nodes is longer than %zu bytes",
                     NODES_TEXT_MAX);
        return NULL;
    }
    nodes = g_strsplit(text, ",", -1);
    count = g_strv_length(nodes);
    if (count > VJ_PLACEMENT_NODES_MAX) {
        vj_error_set(error, EINVAL, "%u nodes; the most are %u", count,
                     VJ_PLACEMENT_NODES_MAX);
        return NULL;
    }
    for (unsigned i = 0; i < count; i++) {
        if (!vj_remote_is_hole(nodes[i]) && !vj_rpc_address_check(nodes[i], error)) {
            return NULL;
        }
        for (unsigned k = 0; k < i; k++) {
            if (!vj_remote_is_hole(nodes[i]) && strcmp(nodes[i], nodes[k]) == 0) {
                vj_error_set(error, EINVAL, "node %s is in the list twice", nodes[i]);
                return NULL;
            }
        }
    }
    return g_steal_pointer(&nodes);
}

bool vj_remote_weights_of(const VjOpts *opts, char *const *nodes, uint32_t *weights,
                          GError **error)
{
    const char *text = vj_opts_string(opts, "weight");
    unsigned count = g_strv_length((char **)nodes);
    g_auto(GStrv) words = text != NULL ? g_strsplit(text, "/", -1) : NULL;

    if (words != NULL && g_strv_length(words) != count) {
        return vj_error_set(error, EINVAL, "weight: %u of them for %u nodes",
                            g_strv_length(words), count);
    }
    for (unsigned i = 0; i < count; i++) {
        guint64 weight = 1;

        if (words != NULL &&
            !g_ascii_string_to_unsigned(words[i], 10, 0, VJ_PLACEMENT_WEIGHT_MAX, &weight,
                                        NULL)) {
            return vj_error_set(error, EINVAL, "weight: \"%s\" is no number up to %u",
                                words[i], VJ_PLACEMENT_WEIGHT_MAX);
        }
        weights[i] = vj_remote_is_hole(nodes[i]) ? 0 : (uint32_t)weight;
    }
    return true;
}

bool vj_remote_check(const VjOpts *opts, GError **error)
{
    uint32_t weights[VJ_PLACEMENT_NODES_MAX];
    const char *volume = vj_opts_string(opts, "volume");
    g_auto(GStrv) nodes = vj_remote_nodes_of(opts, error);
    unsigned places = 0, used = 0;

    if (nodes == NULL || !vj_remote_weights_of(opts, nodes, weights, error)) {
        return false;
    }
    if (*volume == '\0' || strlen(volume) > VJ_WIRE_VOLUME_NAME_MAX) {
        return vj_error_set(error, EINVAL, "volume: a name of 1 to %u bytes",
                            VJ_WIRE_VOLUME_NAME_MAX);
    }
    for (unsigned i = 0; nodes[i] != NULL; i++) {
        places += !vj_remote_is_hole(nodes[i]);
        used += weights[i] > 0;
    }
    if (used == 0) {
        return vj_error_set(error, EINVAL, "no node of the list may get objects");
    }
    if (vj_opts_number(opts, "replicas") > places) {
        return vj_error_set(error, EINVAL, "replicas=%" G_GUINT64_FORMAT " with %u nodes",
                            vj_opts_number(opts, "replicas"), places);
    }
    return true;
}

/* ---- changes of the list ----------------------------------------------------------- */

/* The list while it is changed. */
typedef struct List {
    GPtrArray *nodes; /* of borrowed text */
    uint32_t weights[VJ_PLACEMENT_NODES_MAX];
} List;

/* UINT_MAX: it is not there. */
static unsigned place_of(const List *l, const char *address)
{
    for (guint i = 0; i < l->nodes->len; i++) {
        if (strcmp(l->nodes->pdata[i], address) == 0) {
            return i;
        }
    }
    return UINT_MAX;
}

static char *list_text(const List *l)
{
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < l->nodes->len; i++) {
        g_string_append_printf(text, "%s%s", i > 0 ? "," : "",
                               (const char *)l->nodes->pdata[i]);
    }
    return g_string_free(text, FALSE);
}

/* NULL: each has the weight that it has without the option. */
static char *weights_text(const List *l)
{
    GString *text = g_string_new(NULL);
    bool is_default = true;

    for (guint i = 0; i < l->nodes->len; i++) {
        is_default =
            is_default && (l->weights[i] == 1 || vj_remote_is_hole(l->nodes->pdata[i]));
        g_string_append_printf(text, "%s%u", i > 0 ? "/" : "", l->weights[i]);
    }
    return g_string_free(text, is_default);
}

static bool add_to(List *l, const VjNodeChange *change, GError **error)
{
    unsigned place = place_of(l, change->address);

    if (place != UINT_MAX) {
        l->weights[place] = change->weight;
        return true;
    }
    if (l->nodes->len == VJ_PLACEMENT_NODES_MAX) {
        return vj_error_set(error, ENOSPC,
                            "the list has its %u places, those of removed nodes counted; "
                            "none is used twice",
                            VJ_PLACEMENT_NODES_MAX);
    }
    l->weights[l->nodes->len] = change->weight;
    g_ptr_array_add(l->nodes, (gpointer)(uintptr_t)change->address);
    return true;
}

static bool take_from(List *l, const VjNodeChange *change, GError **error)
{
    unsigned place = place_of(l, change->address);

    if (place == UINT_MAX) {
        g_autofree char *text = list_text(l);

        return vj_error_set(error, ENOENT, "node %s is not in the list: %s",
                            change->address, text);
    }
    if (change->kind == VJ_NODE_REMOVE) {
        if (l->weights[place] > 0 && !change->is_forced) {
            return vj_error_set(error, EBUSY,
                                "node %s has not been drained; --force removes one that "
                                "is dead for good",
                                change->address);
        }
        l->nodes->pdata[place] = (gpointer)(uintptr_t) "-";
    }
    l->weights[place] = 0;
    return true;
}

/* Else it could never be done: the replicas have nowhere to go. */
static bool check_usable(const List *l, const VjOpts *opts, GError **error)
{
    guint64 replicas = vj_opts_number(opts, "replicas");
    unsigned usable = 0;

    for (guint i = 0; i < l->nodes->len; i++) {
        usable += l->weights[i] > 0;
    }
    return usable >= replicas ||
           vj_error_set(error, EINVAL,
                        "%" G_GUINT64_FORMAT
                        " replicas need as many nodes that get objects; %u would be left",
                        replicas, usable);
}

static bool is_address(const char *address, GError **error)
{
    if (vj_remote_is_hole(address) || strpbrk(address, ",\\\r\n") != NULL) {
        return vj_error_set(error, EINVAL, "\"%s\" cannot stand in a list of nodes",
                            address);
    }
    return vj_rpc_address_check(address, error);
}

static bool set_list(VjOpts *opts, const List *l, GError **error)
{
    g_autofree char *nodes = list_text(l);
    g_autofree char *weights = weights_text(l);

    if (weights == NULL && vj_opts_is_set(opts, "weight")) {
        vj_opts_unset(opts, "weight");
    }
    return vj_opts_set(opts, "nodes", nodes, error) &&
           (weights == NULL || vj_opts_set(opts, "weight", weights, error));
}

bool vj_remote_change_list(VjOpts *opts, const VjNodeChange *change, GError **error)
{
    g_auto(GStrv) nodes = vj_remote_nodes_of(opts, error);
    g_autoptr(GPtrArray) list = g_ptr_array_new();
    List l = {.nodes = list};

    g_assert(change->kind != VJ_NODE_ADD ||
             (change->weight > 0 && change->weight <= VJ_PLACEMENT_WEIGHT_MAX));
    if (nodes == NULL || !vj_remote_weights_of(opts, nodes, l.weights, error) ||
        !is_address(change->address, error)) {
        return false;
    }
    for (unsigned i = 0; nodes[i] != NULL; i++) {
        g_ptr_array_add(list, nodes[i]);
    }
    return (change->kind == VJ_NODE_ADD
                ? add_to(&l, change, error)
                : take_from(&l, change, error) && check_usable(&l, opts, error)) &&
           set_list(opts, &l, error);
}
