/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * compare.c - is what a user sees right, and is what fails what was hurt?
 */
#include "sweep.h"

typedef struct Compare {
    const Tree *t;
    View *v;
    const Hit *h;
    bool after;
    size_t step;
    Loss *loss;
    GString *wrong;
} Compare;

static void G_GNUC_PRINTF(2, 3) wrong(Compare *c, const char *format, ...)
{
    va_list args;

    g_string_append(c->wrong, c->after ? "after the repair: " : "before the repair: ");
    va_start(args, format);
    g_string_append_vprintf(c->wrong, format, args);
    va_end(args);
    g_string_append_c(c->wrong, '\n');
}

/* What damage may look like; through a mount it is EIO. */
static bool is_damage(const Compare *c, int r)
{
    return r == -EIO || (c->v->root == NULL && r == -EBADMSG);
}

/* May anything at all be wrong with @bits? */
static bool may_all(const Compare *c, uint64_t bits)
{
    return (c->h->hostile && (c->h->whole & bits) != 0);
}

static bool range_is_hit(const Compare *c, const Thing *thing, uint64_t bits, uint64_t at,
                         uint64_t end)
{
    if (c->after && c->h->is_mended) {
        return false;
    }
    if ((c->h->contents & bits) != 0 || (!c->after && (c->h->whole & bits) != 0)) {
        return true;
    }
    for (guint i = 0; i < c->h->ranges->len; i++) {
        const Use *use = &g_array_index(c->h->ranges, Use, i);

        if (use->ino == thing->ino && use->at < end && at < use->at + use->len) {
            return true;
        }
    }
    return false;
}

static void compare_bytes(Compare *c, const Thing *thing, uint64_t bits)
{
    g_autofree uint8_t *got = g_malloc(c->step);
    void *file;
    int r = c->v->open(c->v, thing->path, &file);

    if (r < 0) {
        c->loss->contents |= bits;
        if (!is_damage(c, r) || !range_is_hit(c, thing, bits, 0, thing->len)) {
            wrong(c, "%s: open: %s", thing->path, g_strerror(-r));
        }
        return;
    }
    for (size_t at = 0; at < thing->len; at += c->step) {
        size_t want = MIN(c->step, thing->len - at), len = 0;

        r = c->v->read(c->v, file, at, got, want, &len);
        if (r < 0) {
            c->loss->contents |= bits;
            c->loss->bytes += want;
            if (!is_damage(c, r)) {
                wrong(c, "%s: read at %zu: %s", thing->path, at, g_strerror(-r));
            } else if (!range_is_hit(c, thing, bits, at, at + want)) {
                wrong(c, "%s: %zu bytes at %zu cannot be read, and nothing hit them",
                      thing->path, want, at);
            }
        } else if ((len != want || memcmp(got, thing->bytes + at, want) != 0) &&
                   !may_all(c, bits)) {
            wrong(c, "%s: wrong bytes at %zu (%zu of %zu read)", thing->path, at, len,
                  want);
        }
    }
    c->v->close(c->v, file);
}

static void compare_names(Compare *c, const Thing *thing, const char *path, uint64_t ino,
                          uint64_t bits)
{
    g_autoptr(GHashTable) names =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    bool may_fail = !c->after && ((c->h->listing | c->h->whole) & bits) != 0;
    int r = c->v->list(c->v, path, names);

    if (thing == NULL) {
        may_fail = !c->after && c->h->is_dir_root;
    }
    if (r < 0) {
        c->loss->listing |= bits;
        if (thing == NULL && r == -ENOENT) { /* the root itself */
            r = -EIO;
        }
        may_fail = may_fail || (c->h->hostile && c->h->is_dir_root);
        if (!is_damage(c, r) || !may_fail) {
            wrong(c, "%s: listing: %s", path, g_strerror(-r));
        }
        return;
    }
    for (guint i = 0; i < c->t->things->len; i++) {
        const Thing *in = &g_array_index(c->t->things, Thing, i);

        if (in->dir == ino && !g_hash_table_remove(names, strrchr(in->path, '/') + 1)) {
            uint64_t bit = (uint64_t)1 << i;
            bool gone = c->after && (c->h->records & bit) != 0 &&
                        (in->len == 0 || (c->h->contents & bit) != 0);

            c->loss->listing |= bits;
            gone = gone || (c->h->hostile && c->h->is_dir_root);
            if (!may_fail && !gone && !may_all(c, bits | bit) &&
                (c->after || (c->h->names & bit) == 0)) {
                wrong(c, "%s: \"%s\" is not listed", path, strrchr(in->path, '/') + 1);
            }
        }
    }
    if (thing == NULL && c->after) {
        g_hash_table_remove(names, "lost+found");
    }
    if (g_hash_table_size(names) > 0 && !may_all(c, bits) && !c->h->hostile) {
        wrong(c, "%s: %u names too many", path, g_hash_table_size(names));
    }
}

static void compare_target(Compare *c, const Thing *thing, uint64_t bits)
{
    char target[64];
    size_t len;
    int r = c->v->target(c->v, thing->path, target, sizeof target, &len);

    if (r < 0) {
        c->loss->contents |= bits;
        if (!is_damage(c, r) || !range_is_hit(c, thing, bits, 0, thing->len)) {
            wrong(c, "%s: readlink: %s", thing->path, g_strerror(-r));
        }
    } else if ((len != thing->len || memcmp(target, thing->bytes, len) != 0) &&
               !may_all(c, bits)) {
        wrong(c, "%s: wrong target", thing->path);
    }
}

static void compare_attr(Compare *c, const Thing *thing, uint64_t bits)
{
    char value[64];
    size_t len;
    int r = c->v->attr(c->v, thing->path, "user.name", value, sizeof value, &len);
    bool may_fail = ((c->h->attrs | (c->after ? 0 : c->h->whole)) & bits) != 0;

    if (strcmp(thing->path, "/d/hard") == 0) {
        return; /* the name of the other */
    }
    if (r < 0) {
        c->loss->attrs |= bits;
        if ((!is_damage(c, r) && r != -ENODATA) || !may_fail) {
            wrong(c, "%s: its attribute: %s", thing->path, g_strerror(-r));
        }
    } else if ((len != strlen(thing->path) || memcmp(value, thing->path, len) != 0) &&
               !(c->h->hostile && ((c->h->attrs | c->h->whole) & bits) != 0)) {
        wrong(c, "%s: wrong value of its attribute", thing->path);
    }
}

/* False: there is no use in looking into it. */
static bool compare_record(Compare *c, const Thing *thing, uint64_t bit, uint64_t bits)
{
    bool size_is_lost =
        c->after && (c->h->records & bits) != 0 && (c->h->contents & bits) != 0;
    struct stat st;
    int r = c->v->look(c->v, thing->path, &st);

    if (r < 0) {
        bool may_fail = !c->after && ((c->h->names & bit) | (c->h->whole & bits)) != 0;
        bool gone =
            c->after && (c->h->records & bits) != 0 && (thing->len == 0 || size_is_lost);

        c->loss->names |= bit;
        if ((!is_damage(c, r) && r != -ENOENT) ||
            (!may_fail && !gone && !may_all(c, bits | bit))) {
            wrong(c, "%s: %s", thing->path, g_strerror(-r));
        }
        return false;
    }
    if (may_all(c, bits | bit)) {
        return S_ISREG(st.st_mode) && S_ISREG(thing->mode);
    }
    if (c->after && S_ISLNK(thing->mode) && (c->h->contents & bits) != 0 &&
        S_ISREG(st.st_mode)) {
        /* A link without a target becomes an unreadable file. */
        c->loss->contents |= bits;
        return false;
    }
    if ((st.st_mode & S_IFMT) != thing->mode || st.st_ino != thing->ino) {
        wrong(c, "%s: mode %o, inode %lu", thing->path, st.st_mode, st.st_ino);
        return false;
    }
    if (thing->bytes != NULL && (size_t)st.st_size != thing->len && !size_is_lost) {
        wrong(c, "%s: %ld bytes of %zu", thing->path, (long)st.st_size, thing->len);
        return false;
    }
    return !size_is_lost || (size_t)st.st_size == thing->len;
}

void compare(const Tree *t, View *v, const Hit *h, bool after, size_t step, Loss *loss,
             GString *said)
{
    Compare c = {.t = t,
                 .v = v,
                 .h = h,
                 .after = after,
                 .step = step,
                 .loss = loss,
                 .wrong = said};

    *loss = (Loss){0};
    compare_names(&c, NULL, "/", VJ_INO_ROOT, 0);
    for (guint i = 0; i < t->things->len; i++) {
        const Thing *thing = &g_array_index(t->things, Thing, i);
        uint64_t bits = things_of(t, thing->ino), bit = (uint64_t)1 << i;

        if (!compare_record(&c, thing, bit, bits)) {
            continue;
        }
        if (S_ISREG(thing->mode)) {
            compare_bytes(&c, thing, bits);
            compare_attr(&c, thing, bits);
        } else if (S_ISLNK(thing->mode)) {
            compare_target(&c, thing, bits);
        } else if (S_ISDIR(thing->mode)) {
            compare_names(&c, thing, thing->path, thing->ino, bits);
        }
    }
}
