/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Connections: one for each source and volume, and what says which
 *
 * The last user of a connection closes it, so that a daemon that libvarjfs started may
 * end.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hdf5-private.h"

struct vjh_connection {
    struct vjh_connection *next;
    unsigned refs;
    pid_t pid;
    bool failed;          /* perhaps: files that are opened from now on get another one */
    struct vjh_info info; /* with what the environment said */
    varjfs *v;
    struct varjfs_semantics plain, atomic;
};

static struct vjh_connection *connections;

/* ---- what H5Pset_vol takes --------------------------------------------------------- */

static void info_term(struct vjh_info *info)
{
    free(info->source);
    free(info->volume);
    *info = (struct vjh_info){0};
}

/* @src NULL: the defaults.  What it does not say, the environment does. */
static int info_copy(const struct vjh_info *src, struct vjh_info *out)
{
    const char *source = src ? src->source : NULL;
    const char *volume = src ? src->volume : NULL;

    *out = (struct vjh_info){.safety = src ? src->safety : VARJFS_SAFETY_NETWORK};
    if (src) {
        memcpy(out->problem, src->problem, sizeof out->problem);
    }
    if (!source) {
        source = getenv("VARJFS_SOURCE");
        volume = volume ? volume : getenv("VARJFS_VOLUME");
    }
    if (source && !(out->source = strdup(source))) {
        return -ENOMEM;
    }
    if (volume && !(out->volume = strdup(volume))) {
        info_term(out);
        return -ENOMEM;
    }
    return 0;
}

/* HDF5 loses a property list and its driver where this fails; and nobody changes one. */
static void *info_cls_copy(const void *info)
{
    struct vjh_info *same = (void *)(uintptr_t)info;

    same->refs++;
    return same;
}

static int compare(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "");
}

static herr_t info_cls_cmp(int *out, const void *a, const void *b)
{
    static const struct vjh_info none = {.safety = VARJFS_SAFETY_NETWORK};
    const struct vjh_info *x = a ? a : &none, *y = b ? b : &none;

    *out = compare(x->source, y->source);
    *out = *out ? *out : compare(x->volume, y->volume);
    *out = *out ? *out : (int)x->safety - (int)y->safety;
    *out = *out ? *out : strcmp(x->problem, y->problem);
    return 0;
}

static herr_t info_cls_free(void *info)
{
    struct vjh_info *one = info;

    if (one && --one->refs == 0) {
        info_term(one);
        free(one);
    }
    return 0;
}

/* Without "none": what was only sent has no result, and exclusive puts need theirs. */
static const char *const safeties[] = {"", "network", "storage"};

static herr_t info_cls_to_str(const void *info, char **out)
{
    const struct vjh_info *i = info;
    size_t len = 64;
    char *s;

    *out = NULL;
    if (!i) {
        return 0;
    }
    len += (i->source ? strlen(i->source) : 0) + (i->volume ? strlen(i->volume) : 0);
    /* HDF5 frees it. */
    s = H5allocate_memory(len, false);
    if (!s) {
        VJH_RETURN(-ENOMEM);
    }
    snprintf(s, len, "%s%s%s%s%s%ssafety=%s", i->source ? "source=" : "",
             i->source ? i->source : "", i->source ? ";" : "", i->volume ? "volume=" : "",
             i->volume ? i->volume : "", i->volume ? ";" : "", safeties[i->safety]);
    *out = s;
    return 0;
}

/* One "name=value" of @len bytes. */
static int info_word(struct vjh_info *info, const char *word, size_t len)
{
    const char *equals = memchr(word, '=', len);
    size_t name_len = equals ? (size_t)(equals - word) : len;
    const char *value = equals ? equals + 1 : "";
    size_t value_len = equals ? len - name_len - 1 : 0;
    char **to = NULL;

    if (name_len == 6 && !strncmp(word, "source", 6)) {
        to = &info->source;
    } else if (name_len == 6 && !strncmp(word, "volume", 6)) {
        to = &info->volume;
    }
    if (to && value_len > 0) {
        free(*to);
        *to = strndup(value, value_len);
        return *to ? 0 : -ENOMEM;
    }
    if (name_len == 6 && !strncmp(word, "safety", 6)) {
        for (uint8_t i = VARJFS_SAFETY_NETWORK; i <= VARJFS_SAFETY_STORAGE; i++) {
            if (strlen(safeties[i]) == value_len &&
                !strncmp(value, safeties[i], value_len)) {
                info->safety = i;
                return 0;
            }
        }
        return vjh_error(-EINVAL, "safety=%.*s: it is network or storage",
                         (int)(value_len < 100 ? value_len : 100), value);
    }
    return vjh_error(-EINVAL,
                     "%.*s: the connector varjfs takes source=DIRECTORY or "
                     "source=unix:PATH, volume=NAME and safety=network|storage, "
                     "with ';' between them",
                     (int)(len < 100 ? len : 100), word);
}

static herr_t info_cls_from_str(const char *str, void **out)
{
    struct vjh_info *info = calloc(1, sizeof *info);
    int r = info ? 0 : -ENOMEM;

    *out = NULL;
    if (info) {
        info->refs = 1;
        info->safety = VARJFS_SAFETY_NETWORK;
    }
    while (r == 0 && str && *str) {
        size_t len = strcspn(str, ";");

        while (len > 0 && (*str == ' ' || *str == '\n')) {
            str++;
            len--;
        }
        r = len ? info_word(info, str, len) : 0;
        str += len;
        str += *str == ';';
    }
    if (r == -EINVAL) {
        snprintf(info->problem, sizeof info->problem, "%s", vjh_error_text(r));
        r = 0;
    }
    if (r != 0) {
        info_cls_free(info);
    } else {
        *out = info;
    }
    VJH_RETURN(r);
}

const H5VL_info_class_t vjh_info_class = {
    .size = sizeof(struct vjh_info),
    .copy = info_cls_copy,
    .cmp = info_cls_cmp,
    .free = info_cls_free,
    .to_str = info_cls_to_str,
    .from_str = info_cls_from_str,
};

/* ---- connections ------------------------------------------------------------------- */

static int semantics(struct vjh_connection *c)
{
    const char *why = "";
    int r;

    c->plain.size = c->atomic.size = sizeof c->plain;
    r = varjfs_semantics_template("default", &c->plain);
    if (r == 0) {
        c->plain.safety = c->info.safety;
        c->atomic = c->plain;
        c->atomic.atomicity = VARJFS_ATOMICITY_BATCH;
        r = varjfs_semantics_check(&c->plain, &why);
    }
    if (r == 0) {
        r = varjfs_semantics_check(&c->atomic, &why);
    }
    return r == 0 ? 0 : vjh_error(r, "semantics: %s", why ? why : varjfs_strerror(r));
}

static int connection_new(struct vjh_info *info, struct vjh_connection **out)
{
    struct varjfs_options options = {.size = sizeof options, .volume = info->volume};
    struct vjh_connection *c = calloc(1, sizeof *c);
    int r;

    if (!c) {
        return -ENOMEM;
    }
    *c = (struct vjh_connection){.refs = 1, .pid = getpid(), .info = *info};
    r = semantics(c);
    if (r == 0) {
        r = varjfs_open(info->source, &options, &c->v);
        if (r != 0) {
            vjh_error(r, "%s: %s", info->source, varjfs_open_error());
        }
    }
    if (r != 0) {
        free(c);
        return r;
    }
    *info = (struct vjh_info){0};
    c->next = connections;
    connections = c;
    *out = c;
    return 0;
}

static struct vjh_connection *connection_find(const struct vjh_info *info)
{
    for (struct vjh_connection *c = connections; c; c = c->next) {
        int differ;

        info_cls_cmp(&differ, &c->info, info);
        if (!differ && c->pid == getpid() && !c->failed) {
            return c;
        }
    }
    return NULL;
}

bool vjh_is_lost(int error)
{
    return error == -ECONNRESET || error == -ETIMEDOUT || error == -EPROTO ||
           error == -EPIPE;
}

void vjh_connections_failed(int error)
{
    if (!vjh_is_lost(error)) {
        return;
    }
    for (struct vjh_connection *c = connections; c; c = c->next) {
        c->failed = true;
    }
}

int vjh_connect(hid_t fapl_id, struct vjh_connection **out)
{
    struct vjh_info info;
    void *given = NULL;
    int r;

    *out = NULL;
    if (H5Pget_vol_info(fapl_id, &given) < 0) {
        return vjh_error(-EINVAL, "the file access property list has no VOL information");
    }
    r = info_copy(given, &info);
    info_cls_free(given);
    if (r != 0) {
        return r;
    }
    if (info.problem[0]) {
        r = vjh_error(-EINVAL, "%s", info.problem);
    } else if (!info.source) {
        r = vjh_error(-EDESTADDRREQ,
                      "no volume was named: set VARJFS_SOURCE, or HDF5_VOL_CONNECTOR="
                      "\"varjfs source=DIRECTORY\"");
    } else if ((*out = connection_find(&info))) {
        (*out)->refs++;
    } else {
        r = connection_new(&info, out);
    }
    info_term(&info);
    return r;
}

void vjh_disconnect(struct vjh_connection *c)
{
    if (!c || --c->refs > 0) {
        return;
    }
    for (struct vjh_connection **p = &connections; *p; p = &(*p)->next) {
        if (*p == c) {
            *p = c->next;
            break;
        }
    }
    /* A child of fork(2) leaves the parent's socket alone. */
    if (c->pid == getpid()) {
        varjfs_close(c->v);
    }
    info_term(&c->info);
    free(c);
}

int vjh_varjfs(struct vjh_connection *c, varjfs **out)
{
    *out = c->v;
    if (c->pid != getpid()) {
        return vjh_error(-EPERM,
                         "the file was opened before fork(2): a child opens it itself");
    }
    return 0;
}

int vjh_batch(struct vjh_connection *c, bool atomic, varjfs_batch **out)
{
    varjfs *v;
    int r = vjh_varjfs(c, &v);

    *out = NULL;
    return r == 0 ? varjfs_batch_new(v, atomic ? &c->atomic : &c->plain, out) : r;
}

int vjh_batch_in_order(struct vjh_connection *c, varjfs_batch **out)
{
    struct varjfs_semantics strict = c->plain;
    varjfs *v;
    int r = vjh_varjfs(c, &v);

    *out = NULL;
    strict.ordering = VARJFS_ORDERING_STRICT;
    return r == 0 ? varjfs_batch_new(v, &strict, out) : r;
}

int vjh_sync(struct vjh_connection *c)
{
    varjfs *v;
    int r = vjh_varjfs(c, &v);

    return r == 0 ? varjfs_sync(v) : r;
}
