/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * area.c - memory of the daemon's, where long replies to batches stand
 *
 * Over a unix socket, from the first long reply on.  The memory is mapped for reading
 * alone.  It must be sealed against being made shorter, else a daemon could end the
 * program by a signal; what stands there may change under the hands of who reads it, so
 * it is copied once and looked at then.
 *
 * Where there is no area, or no slot of it is free, replies come by the socket.
 */
#include "client-private.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOT_BYTES ((size_t)VARJFS_WIRE_AREA_SLOT_BYTES)
#define AREA_BYTES (VARJFS_WIRE_AREA_SLOTS * SLOT_BYTES)
/* A shorter reply is one call of the kernel for each side. */
#define LONG_BYTES ((size_t)32 << 10)

static bool is_safe(int fd)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &st) == 0 &&
           st.st_size >= (off_t)AREA_BYTES;
}

static const uint8_t *map(int fd)
{
    void *at;

    if (!is_safe(fd)) {
        return NULL;
    }
    at = mmap(NULL, AREA_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* What is refused costs speed alone, and is not asked for again. */
static void ask(varjfs *v)
{
    VjcRequest r = {.op = VARJFS_WIRE_SHARE};
    uint8_t head[VJC_HEAD_BYTES];
    int rc;

    v->may_share = false;
    v->awaits_fd = true;
    rc = vjc_send(v, &r, head, sizeof head, NULL, 0);
    if (rc == 0 || r.done) {
        rc = vjc_wait(v, &r);
    }
    v->awaits_fd = false;
    if (v->passed_fd < 0) {
        return;
    }
    v->area = rc == 0 ? map(v->passed_fd) : NULL;
    close(v->passed_fd);
    v->passed_fd = -1;
}

unsigned vjc_area_take(varjfs *v, size_t contents, size_t bytes)
{
    if (contents < LONG_BYTES || bytes > SLOT_BYTES) {
        return 0;
    }
    if (v->may_share) {
        ask(v);
    }
    for (unsigned slot = 1; v->area != NULL && slot <= VARJFS_WIRE_AREA_SLOTS; slot++) {
        if ((v->slots_taken >> slot & 1) == 0) {
            v->slots_taken |= 1u << slot;
            return slot;
        }
    }
    return 0;
}

void vjc_area_give_back(varjfs *v, unsigned slot)
{
    v->slots_taken &= ~(1u << slot);
}

void vjc_area_copy(const varjfs *v, unsigned slot, const struct iovec *into, size_t count)
{
    const uint8_t *at = v->area + (slot - 1) * SLOT_BYTES;

    for (size_t i = 0; i < count; i++) {
        memcpy(into[i].iov_base, at, into[i].iov_len);
        at += into[i].iov_len;
    }
}

void vjc_area_free(varjfs *v)
{
    if (v->area != NULL) {
        munmap((void *)(uintptr_t)v->area, AREA_BYTES);
        v->area = NULL;
    }
    if (v->passed_fd >= 0) {
        close(v->passed_fd);
        v->passed_fd = -1;
    }
}
