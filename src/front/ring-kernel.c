/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ring-kernel.c - what a ring shares with the kernel, and submits
 */
#include "front/ring-inside-private.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct Command {
    uint64_t flags, commit_id;
    uint16_t queue_id;
    uint8_t padding[6];
} Command;

G_STATIC_ASSERT(sizeof(Command) == 24);

/* What linux/io_uring.h has since Linux 5.19. */
#define OP_URING_CMD 46
#define SETUP_COOP_TASKRUN (1u << 8)
#define SETUP_TASKRUN_FLAG (1u << 9)
#define SETUP_SQE128 (1u << 10)
#define SQE_BYTES 128u
#define SQE_COMMAND_AT 48u /* where Command stands in it */

/* Waits for @least completions, or a wake signal. */
int vj_ring_enter(const VjRingThread *t, unsigned submit, unsigned least)
{
    return (int)syscall(SYS_io_uring_enter, t->ring->fd, submit, least,
                        IORING_ENTER_GETEVENTS, &t->asleep, _NSIG / 8);
}

void vj_ring_add_command(VjRing *g, VjRingEntry *e, unsigned operation)
{
    unsigned tail = *g->sq_tail, at = tail & g->sq_mask;
    struct io_uring_sqe *sqe = (void *)(g->sqes + (size_t)at * SQE_BYTES);
    Command command = {.commit_id = e->unique, .queue_id = (uint16_t)g->queue_id};

    memset(sqe, 0, SQE_BYTES);
    sqe->opcode = OP_URING_CMD;
    sqe->fd = g->all->fuse_fd;
    sqe->off = operation;
    if (operation == VJ_RING_CMD_REGISTER) {
        sqe->addr = (uintptr_t)e->parts;
        sqe->len = G_N_ELEMENTS(e->parts);
    }
    sqe->user_data = (uintptr_t)e;
    memcpy((uint8_t *)sqe + SQE_COMMAND_AT, &command, sizeof command);
    g->sq_array[at] = at;
    __atomic_store_n(g->sq_tail, tail + 1, __ATOMIC_RELEASE);
    g->to_submit++;
}

static bool map_ring(VjRing *g, const struct io_uring_params *p, GError **error)
{
    g->rings_bytes = MAX(p->sq_off.array + p->sq_entries * sizeof(unsigned),
                         p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe));
    g->sqes_bytes = (size_t)p->sq_entries * SQE_BYTES;
    g->rings = mmap(NULL, g->rings_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g->fd,
                    IORING_OFF_SQ_RING);
    g->sqes = mmap(NULL, g->sqes_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g->fd,
                   IORING_OFF_SQES);
    g->memory = mmap(NULL, g->memory_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (g->rings == MAP_FAILED || g->sqes == MAP_FAILED || g->memory == MAP_FAILED) {
        return vj_error_set_errno(error, errno, "memory for io_uring");
    }
    g->sq_tail = (void *)(g->rings + p->sq_off.tail);
    g->sq_array = (void *)(g->rings + p->sq_off.array);
    g->sq_flags = (void *)(g->rings + p->sq_off.flags);
    g->cq_head = (void *)(g->rings + p->cq_off.head);
    g->cq_tail = (void *)(g->rings + p->cq_off.tail);
    memcpy(&g->sq_mask, g->rings + p->sq_off.ring_mask, sizeof g->sq_mask);
    memcpy(&g->cq_mask, g->rings + p->cq_off.ring_mask, sizeof g->cq_mask);
    g->cqes = (void *)(g->rings + p->cq_off.cqes);
    return true;
}

static bool restrict_ring(const VjRing *g, GError **error)
{
    struct io_uring_restriction may[] = {
        {.opcode = IORING_RESTRICTION_REGISTER_OP,
         .register_op = IORING_REGISTER_ENABLE_RINGS},
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = OP_URING_CMD},
    };

    return syscall(SYS_io_uring_register, g->fd, IORING_REGISTER_RESTRICTIONS, may,
                   G_N_ELEMENTS(may)) == 0 ||
           vj_error_set_errno(error, errno, "io_uring cannot be restricted");
}

bool vj_ring_init(VjRing *g, VjRings *all, unsigned queue_id, GError **error)
{
    struct io_uring_params p = {.flags = SETUP_SQE128 | SETUP_COOP_TASKRUN |
                                         SETUP_TASKRUN_FLAG | IORING_SETUP_R_DISABLED};
    const size_t entry_bytes = VJ_PAGE_BYTES + VJ_FRONT_IO_MAX;

    g->fd = g->spare_fd = -1;
    g->rings = g->sqes = g->memory = MAP_FAILED;
    g->all = all;
    g->queue_id = queue_id;
    g->memory_bytes = entry_bytes * VJ_RING_ENTRIES;
    g->spare_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    g->fd = (int)syscall(SYS_io_uring_setup, VJ_RING_ENTRIES, &p);
    if (g->spare_fd < 0 || g->fd < 0) {
        return vj_error_set_errno(error, errno, "io_uring");
    }
    if (!map_ring(g, &p, error) || !restrict_ring(g, error)) {
        return false;
    }
    g->entries = g_new0(VjRingEntry, VJ_RING_ENTRIES);
    for (unsigned i = 0; i < VJ_RING_ENTRIES; i++) {
        VjRingEntry *e = &g->entries[i];

        e->ring = g;
        e->headers = (void *)(g->memory + entry_bytes * i);
        e->payload = g->memory + entry_bytes * i + VJ_PAGE_BYTES;
        e->parts[0] = (struct iovec){e->headers, sizeof *e->headers};
        e->parts[1] = (struct iovec){e->payload, VJ_FRONT_IO_MAX};
    }
    return true;
}

void vj_ring_register(VjRing *g)
{
    if (syscall(SYS_io_uring_register, g->fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) <
        0) {
        g_error("io_uring: %s", g_strerror(errno));
    }
    for (unsigned i = 0; i < VJ_RING_ENTRIES; i++) {
        vj_ring_add_command(g, &g->entries[i], VJ_RING_CMD_REGISTER);
    }
}

static void unmap(void *memory, size_t len)
{
    if (memory != MAP_FAILED) {
        munmap(memory, len);
    }
}

void vj_ring_clear(VjRing *g)
{
    unmap(g->rings, g->rings_bytes);
    unmap(g->sqes, g->sqes_bytes);
    vj_fd_close(&g->fd);
    vj_fd_close(&g->spare_fd);
    unmap(g->memory, g->memory_bytes);
    g_free(g->entries);
}
