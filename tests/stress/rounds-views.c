/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rounds-views.c - the file as it is seen when nobody is at work, in every way there is
 *
 * What is read past the cache is the truth; all other views have to agree with it.
 */
#include "rounds.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const view_names[VIEW_KINDS] = {
    "read", "read of a new descriptor", "direct read", "mapping", "fstat", "stat",
    "lseek"};

static void take_bytes(Views *v, Content *c, int fd, bool direct)
{
    uint8_t *dst = direct ? v->aligned : c->bytes;
    ssize_t got = pread(fd, dst, FILE_BYTES, 0);

    if (got < 0) {
        die("read after the round");
    }
    if (direct) {
        memcpy(c->bytes, dst, (size_t)got);
    }
    memset(c->bytes + got, 0, FILE_BYTES - (size_t)got);
    c->size = (uint64_t)got;
}

static void take_fresh(Views *v, Content *c)
{
    int fd = open(v->path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        die("open after the round");
    }
    take_bytes(v, c, fd, false);
    close(fd);
}

static void take_view(Views *v, ViewKind kind)
{
    Content *c = &v->seen[kind];
    struct stat st = {0};

    switch (kind) {
    case VIEW_BUFFERED:
        take_bytes(v, c, v->fd, false);
        break;
    case VIEW_FRESH:
        take_fresh(v, c);
        break;
    case VIEW_DIRECT:
        if (v->direct >= 0) {
            take_bytes(v, c, v->direct, true);
        } else {
            take_bytes(v, c, v->fd, false);
        }
        break;
    case VIEW_MAPPED:
        c->size = mapping_copy(v->mapping, c->bytes, FILE_BYTES);
        break;
    case VIEW_FSTAT:
    case VIEW_STAT:
        if ((kind == VIEW_FSTAT ? fstat(v->fd, &st) : stat(v->path, &st)) != 0) {
            die("stat after the round");
        }
        c->size = (uint64_t)st.st_size;
        break;
    default:
        c->size = (uint64_t)lseek(v->fd, 0, SEEK_END);
        break;
    }
}

/* In any order: each of them may put the next one right. */
void views_take(Views *v, VjRng *rng)
{
    ViewKind order[VIEW_KINDS];

    for (unsigned i = 0; i < VIEW_KINDS; i++) {
        unsigned other = (unsigned)vj_rng_below(rng, i + 1);

        order[i] = order[other];
        order[other] = (ViewKind)i;
    }
    for (unsigned i = 0; i < VIEW_KINDS; i++) {
        take_view(v, order[i]);
    }
}

bool view_has_bytes(ViewKind kind)
{
    return kind <= VIEW_MAPPED;
}

bool view_shows_bytes_behind(const Content *mapped, uint64_t size)
{
    uint64_t i = size;

    while (i < mapped->size && mapped->bytes[i] == 0) {
        i++;
    }
    return i < mapped->size;
}

/* NULL: the view agrees with the truth, which is what is read past the cache. */
const char *view_fault(const Views *v, ViewKind kind, bool stores)
{
    const Content *truth = &v->seen[VIEW_DIRECT], *c = &v->seen[kind];
    uint64_t size = truth->size, different = 0, zeroes = 0;

    if (c->size != (kind == VIEW_MAPPED ? page_end(size) : size)) {
        return c->size > size ? "size too large" : "size too small";
    }
    if (!view_has_bytes(kind)) {
        return NULL;
    }
    for (uint64_t i = 0; i < size; i++) {
        different += c->bytes[i] != truth->bytes[i];
        zeroes += c->bytes[i] == 0 && truth->bytes[i] != 0;
    }
    if (different > 0) {
        return zeroes * 2 > different ? "zeroes in a cached page" : "stale page";
    }
    return kind == VIEW_MAPPED && !stores && view_shows_bytes_behind(c, size)
               ? "bytes behind the end"
               : NULL;
}

bool views_agree(const Views *v, bool stores)
{
    for (unsigned i = 0; i < VIEW_KINDS; i++) {
        if (view_fault(v, (ViewKind)i, stores) != NULL) {
            return false;
        }
    }
    return true;
}
