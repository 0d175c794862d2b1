/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * table.c - the table of open files: open, close, figures
 *
 * The threads that read it begin with open(); the one that changes something of its own
 * accord (remap.c) waits for start(), when everything that events calls is there.
 */
#include "file/file-private.h"
#include "meta/session.h"

/* Puts under way for each worker where the store is far, and how many such threads that
 * makes at most, unless more workers are wanted. */
#define FAR_PUTS 4u
#define FAR_PUTS_MOST 32u

static void on_pressure(void *opaque, bool any)
{
    VjFileTable *table = opaque;

    table->events->pressure(table->opaque, any);
}

static VjFileTable *table_new(const VjFileTableConfig *config)
{
    VjFileTable *table = g_new0(VjFileTable, 1);

    table->meta = config->meta;
    table->objects = config->objects;
    table->events = config->events;
    table->opaque = config->opaque;
    table->digest = config->digest;
    table->chunker = config->chunker;
    table->sizes = config->sizes;
    table->chunk_seed = config->chunk_seed;
    table->transform = config->transform;
    if (config->new_transform != NULL) {
        table->new_is_set = true;
        table->new_transform = *config->new_transform;
    }
    table->recode_step_bytes = VJ_RECODE_STEP_BYTES;
    table->read_only = config->read_only;
    vj_budget_init(&table->dirty, config->dirty_bytes, on_pressure, table);
    vj_committed_budget_init(&table->committed, config->cache_bytes / VJ_COMMITTED_PART);
    vj_mutex_init(&table->lock, VJ_RANK_FILE_TABLE, "file.table");
    vj_cond_init(&table->opened);
    vj_cond_init(&table->inos_taken);
    table->ino_block = VJ_INO_BLOCK;
    table->is_shared = vj_meta_is_shared(table->meta);
    table->claims_left = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    table->files = g_hash_table_new(g_int64_hash, g_int64_equal);
    table->opening = g_hash_table_new(g_int64_hash, g_int64_equal);
    return table;
}

/* A thread waits for each put: where the store is far, mostly so. */
static unsigned put_workers(const VjFileTableConfig *config)
{
    return vj_objects_can_expect(config->objects)
               ? config->workers
               : MIN(config->workers * FAR_PUTS, MAX(config->workers, FAR_PUTS_MOST));
}

bool vj_file_table_open(const VjFileTableConfig *config, VjFileTable **out,
                        GError **error)
{
    VjFileTable *table = table_new(config);
    int r = vj_space_init(&table->space, config->objects);

    *out = NULL;
    if (r < 0) {
        vj_file_table_close(table);
        return vj_error_set_errno(error, -r, "the store cannot tell its free space");
    }
    table->worker_count = config->workers;
    table->put_workers = put_workers(config);
    table->workers =
        g_thread_pool_new(vj_put_worker, table, (gint)table->put_workers, FALSE, NULL);
    table->read_ahead = vj_read_ahead_open(table, config->cache_bytes,
                                           !vj_objects_can_expect(config->objects));
    if (!config->read_only && !config->is_check &&
        !vj_remapper_open(table, config->fragment_bytes, &table->remapper, error)) {
        vj_file_table_stop(table);
        vj_file_table_close(table);
        return false;
    }
    *out = table;
    return true;
}

void vj_file_table_start(VjFileTable *table)
{
    if (table->remapper != NULL) {
        vj_remapper_start(table->remapper);
    }
}

void vj_file_table_stop(VjFileTable *table)
{
    if (table != NULL) {
        vj_read_ahead_close(g_steal_pointer(&table->read_ahead));
        vj_remapper_stop(table->remapper);
    }
}

void vj_file_table_close(VjFileTable *table)
{
    if (table == NULL) {
        return;
    }
    g_assert(table->read_ahead == NULL && g_hash_table_size(table->files) == 0);
    vj_remapper_free(table->remapper);
    if (table->workers != NULL) {
        g_thread_pool_free(table->workers, FALSE, TRUE);
    }
    vj_space_clear(&table->space);
    g_hash_table_unref(table->files);
    g_hash_table_unref(table->opening);
    g_array_unref(table->claims_left);
    vj_cond_clear(&table->inos_taken);
    vj_cond_clear(&table->opened);
    vj_mutex_clear(&table->lock);
    vj_budget_clear(&table->dirty);
    vj_committed_budget_clear(&table->committed);
    g_free(table);
}

void vj_file_table_set_last_chance(VjFileTable *table)
{
    g_atomic_int_set(&table->last_chance, 1);
}

uint64_t vj_file_table_reserved(VjFileTable *table)
{
    return vj_space_reserved(&table->space);
}

uint64_t vj_file_table_dirty(VjFileTable *table)
{
    return vj_budget_used(&table->dirty);
}

bool vj_file_table_has_blocks(VjFileTable *table)
{
    return vj_budget_has_blocks(&table->dirty);
}

void vj_file_table_ask_again(VjFileTable *table)
{
    vj_budget_ask_again(&table->dirty);
}

void vj_file_table_look(VjFileTable *table)
{
    vj_budget_look(&table->dirty);
}

void vj_file_table_counters(VjFileTable *table, VjFileCounters *out)
{
    const guint64 *from = (const guint64 *)&table->counters;
    guint64 *to = (guint64 *)out;

    G_STATIC_ASSERT(sizeof *out % sizeof *to == 0);
    for (size_t i = 0; i < sizeof *out / sizeof *to; i++) {
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    }
}

void vj_file_fragments_dropped(VjFileTable *table, uint64_t ino, uint32_t count)
{
    vj_count(&table->counters.fragments_dropped, count);
    vj_remapper_made(table->remapper, ino, 0, 0, count);
}

/* ---- for tests --------------------------------------------------------------------- */

void vj_file_table_limit_fragments(VjFileTable *table, const VjRemapLimits *limits)
{
    vj_remapper_limit(table->remapper, limits);
}

uint32_t vj_file_table_fragments(VjFileTable *table, uint64_t ino, uint32_t *all)
{
    return vj_remapper_count(table->remapper, ino, all);
}

void vj_file_table_set_ino_block(VjFileTable *table, uint64_t numbers)
{
    g_assert(numbers > 0);
    vj_mutex_lock(&table->lock);
    table->ino_block = numbers;
    vj_mutex_unlock(&table->lock);
}

void vj_file_table_set_recode_step(VjFileTable *table, uint64_t bytes)
{
    table->recode_step_bytes = bytes;
}

void vj_file_table_hold_read_ahead(VjFileTable *table, bool hold)
{
    vj_read_ahead_hold(table->read_ahead, hold);
}

void vj_file_table_drain_read_ahead(VjFileTable *table)
{
    vj_read_ahead_drain(table->read_ahead);
}
