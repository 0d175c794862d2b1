/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-stats.c - varjfsctl df and stats: figures as columns, JSON or for Prometheus
 *
 * A counter that is not in the table is shown all the same, so that an older varjfsctl
 * can talk to a newer daemon; the page varjfsctl(1) names each one
 * (tests/mount/varjfsctl.sh).
 */
#include "cmd/ctl-calls.h"
#include "cmd/ctl.h"

#include "varjfs/ioctl.h"

#include <fcntl.h>
#include <stdlib.h>

typedef struct Counter {
    const char *key;
    bool is_gauge;    /* what is there now, not what was counted since the mount */
    const char *help; /* one line without backslashes */
} Counter;

static const Counter counters[] = {
    {"write_back_commits", false, "Commits of changed files."},
    {"write_back_regions", false, "Changed regions that were cut anew."},
    {"write_back_forced_cuts", false,
     "Regions whose cuts were forced to agree with old ones."},
    {"write_back_errors", false, "Attempts at writing back that failed."},
    {"write_back_small", false, "Commits that stored small changes beside the metadata."},
    {"fragments_made", false, "Small changes that were stored beside the metadata."},
    {"fragments_dropped", false, "Of these, what is not needed any more."},
    {"remap_steps", false, "Times that some of these were looked at to become objects."},
    {"bytes_in", false, "Bytes that programs brought by writes and edits."},
    {"shifts", false, "Writes that became moves within a file."},
    {"shifted_bytes", false, "Bytes that were moved within a file instead of written."},
    {"dirty_bytes", true, "Changed bytes that wait for write-back."},
    {"reserved_bytes", true, "Space that is promised to what waits for write-back."},
    {"hashed_bytes", false, "Bytes that went through the digest."},
    {"dedup_fast_hits", false, "Contents found among the old objects of their file."},
    {"dedup_inflight_hits", false, "Contents found among those that were being stored."},
    {"dedup_index_hits", false, "Contents found in the index."},
    {"objects_put", false, "Objects that were stored."},
    {"object_bytes_put", false, "Bytes of the objects that were stored."},
    {"encoded_in_bytes", false, "Bytes that went into transformations."},
    {"encoded_out_bytes", false, "Bytes that came out of transformations."},
    {"encoded_unshrunk", false, "Contents that a transformation did not make smaller."},
    {"decoded_blocks", false, "Blocks that were decoded."},
    {"decoded_bytes", false, "Bytes that came out of decoding."},
    {"objects_removed", false, "Objects that were removed from the store."},
    {"object_bytes_removed", false, "Bytes of the objects that were removed."},
    {"objects_verified", false,
     "Old objects that were read and compared before sharing."},
    {"objects_damaged", false, "Reads that met damaged bytes."},
    {"cache_hits", false, "Reads of objects that the cache answered."},
    {"cache_misses", false, "Reads of objects that went to the store."},
    {"cache_bytes", true, "Bytes in the cache of objects."},
    {"objects_healed", false, "Objects that were brought to their number of replicas."},
    {"wire_saved_bytes", false,
     "Bytes that were not sent, as they were encoded for the way."},
    {"wire_encoded", false, "Contents that were encoded for the way."},
    {"wire_unshrunk", false, "Contents that encoding for the way did not make smaller."},
    {"wire_untried", false,
     "Contents that went as they are, as others lately did not become smaller."},
    {"nodes", true, "Storage nodes of the volume."},
    {"nodes_live", true, "Of these, those that answer."},
    {"degraded_puts", false, "Objects that were stored on fewer nodes than they should."},
    {"objects_expected", false, "Objects that were asked for ahead of who reads on."},
    {"store_puts", false, "Puts to the store."},
    {"store_put_bytes", false, "Bytes of puts to the store."},
    {"store_gets", false, "Gets from the store."},
    {"store_get_bytes", false, "Bytes of gets from the store."},
    {"store_removes", false, "Removes from the store."},
    {"store_flushes", false, "Flushes of the store."},
    {"store_failures", false, "Calls of the store that failed."},
    {"store_requests", false, "Requests to the nodes that have the objects."},
    {"store_sent_bytes", false, "Bytes that were sent to these nodes."},
    {"store_received_bytes", false, "Bytes that came from these nodes."},
    {"meta_requests", false, "Requests to the node that has the metadata."},
    {"meta_sent_bytes", false, "Bytes that were sent to that node."},
    {"meta_received_bytes", false, "Bytes that came from that node."},
    {"meta_commits", false, "Transactions of the metadata that were committed."},
    {"meta_conflicts", false, "Transactions that ran again after a conflict."},
    {"meta_flushes", false, "Times that the metadata were made durable."},
    {"meta_moves", false, "Synchronous commits of the metadata file."},
    {"meta_log_records", false, "Records written to the log in front of that file."},
    {"meta_log_bytes", false, "Bytes of these records."},
    {"meta_log_failures", false, "Records that the device did not take."},
    {"meta_log_replayed", false, "Records found in the log when SOURCE was opened."},
    {"meta_rewrites", false, "Times that the metadata file was written anew, mounted."},
    {"meta_freed_bytes", false, "Bytes that the device got back by that."},
    {"erasures_waiting", true, "What was removed and could not be overwritten yet."},
    {"erasures_given_up", false, "What was removed and could not be overwritten."},
    {"map_nodes_read", false, "Nodes of file maps that were read."},
    {"map_nodes_written", false, "Nodes of file maps that were written."},
};

typedef struct PairPrinter {
    const VjCtl *ctl;
    const char *labels; /* Prometheus: between the braces */
    uint64_t pairs;
} PairPrinter;

/* ---- Prometheus -------------------------------------------------------------------- */

/* As a label value: quoted, with backslash, quote and line break escaped; owned. */
static char *label_value(const char *text)
{
    g_autofree char *valid = g_utf8_make_valid(text, -1);
    GString *out = g_string_new("\"");

    for (const char *at = valid; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            g_string_append_printf(out, "\\%c", *at);
        } else if (*at == '\n') {
            g_string_append(out, "\\n");
        } else {
            g_string_append_c(out, *at);
        }
    }
    return g_string_free(g_string_append_c(out, '"'), FALSE);
}

static void print_metric(const PairPrinter *p, const char *key, const char *value)
{
    const Counter *counter = NULL;
    g_autofree char *name = NULL;
    bool is_gauge;

    for (size_t i = 0; counter == NULL && i < G_N_ELEMENTS(counters); i++) {
        counter = strcmp(counters[i].key, key) == 0 ? &counters[i] : NULL;
    }
    is_gauge = counter != NULL && counter->is_gauge;
    name = g_strdup_printf("varjfs_%s%s", key, is_gauge ? "" : "_total");
    printf("# HELP %s %s\n# TYPE %s %s\n%s{%s} %s\n", name,
           counter != NULL ? counter->help : "A counter of a newer daemon.", name,
           is_gauge ? "gauge" : "counter", name, p->labels, value);
}

static bool volume_line(void *opaque, char *line)
{
    GString *labels = opaque;
    const char *value = vj_ctl_split_pair(line);
    g_autofree char *quoted = NULL;

    if (value == NULL) {
        return false;
    }
    if (strcmp(line, "uuid") == 0 || (strcmp(line, "label") == 0 && *value != '\0')) {
        quoted = label_value(value);
        g_string_append_printf(labels, "%s=%s,",
                               strcmp(line, "uuid") == 0 ? "volume" : line, quoted);
    }
    return true;
}

/* volume="uuid",label="…",mount="…"; owned; NULL after a message. */
static char *volume_labels(const VjCtl *ctl, const char *path, int fd)
{
    g_autofree char *absolute = g_canonicalize_filename(path, NULL);
    g_autofree char *mount = label_value(absolute);
    GString *labels = g_string_new(NULL);

    if (!vj_ctl_text(ctl, path, fd, VARJFS_TEXT_VOLUME, volume_line, labels)) {
        g_string_free(labels, TRUE);
        return NULL;
    }
    g_string_append_printf(labels, "mount=%s", mount);
    return g_string_free(labels, FALSE);
}

/* ---- df, stats --------------------------------------------------------------------- */

static void print_pair_text(const char *key, const char *value)
{
    if (g_str_has_suffix(key, "_bytes") && strlen(value) > 3) {
        g_autofree char *rounded = g_format_size_full(g_ascii_strtoull(value, NULL, 10),
                                                      G_FORMAT_SIZE_IEC_UNITS);

        printf("%-24s %20s  %s\n", key, value, rounded);
    } else {
        printf("%-24s %20s\n", key, value);
    }
}

static bool pair_line(void *opaque, char *line)
{
    PairPrinter *p = opaque;
    char *value = vj_ctl_split_pair(line);

    if (value == NULL) {
        return false;
    }
    if (p->ctl->format == VJ_CTL_JSON) {
        g_autofree char *shown =
            strcmp(value, "-") == 0 ? g_strdup("null") : vj_ctl_json_value(value);

        printf("%s\n  \"%s\": %s", p->pairs == 0 ? "{" : ",", line, shown);
    } else if (p->ctl->format == VJ_CTL_PROMETHEUS) {
        print_metric(p, line, value);
    } else {
        print_pair_text(line, value);
    }
    p->pairs++;
    return true;
}

static void print_calls(PairPrinter *p, const GArray *calls)
{
    if (p->ctl->format == VJ_CTL_JSON) {
        printf("%s", p->pairs == 0 ? "{" : ",");
        p->pairs++;
        vj_ctl_calls_print_json(calls);
    } else if (p->ctl->format == VJ_CTL_PROMETHEUS) {
        vj_ctl_calls_print_prometheus(calls, p->labels);
    } else {
        vj_ctl_calls_print_text(calls);
    }
}

int vj_ctl_show_pairs(const VjCtl *ctl, const char *path, uint32_t what)
{
    VJ_AUTO_FD fd = vj_ctl_open(ctl, path, O_RDONLY);
    g_autofree char *labels = NULL;
    g_autoptr(GArray) calls = NULL;
    PairPrinter printer = {.ctl = ctl};

    if (fd < 0) {
        return EXIT_FAILURE;
    }
    if (ctl->format == VJ_CTL_PROMETHEUS) {
        labels = volume_labels(ctl, path, fd);
        if (labels == NULL) {
            return EXIT_FAILURE;
        }
        printer.labels = labels;
    }
    /* Before anything is printed: it may fail. */
    if (what == VARJFS_TEXT_STATS) {
        calls = vj_ctl_calls(ctl, path, fd);
        if (calls == NULL) {
            return EXIT_FAILURE;
        }
    }
    if (!vj_ctl_text(ctl, path, fd, what, pair_line, &printer)) {
        return EXIT_FAILURE;
    }
    if (calls != NULL) {
        print_calls(&printer, calls);
    }
    if (ctl->format == VJ_CTL_JSON) {
        printf("%s\n", printer.pairs == 0 ? "{}" : "\n}");
    }
    return EXIT_SUCCESS;
}

int vj_ctl_df(const VjCtl *ctl)
{
    return vj_ctl_show_pairs(ctl, ctl->operands[0], VARJFS_TEXT_DF);
}

int vj_ctl_stats(const VjCtl *ctl)
{
    return vj_ctl_show_pairs(ctl, ctl->operands[0], VARJFS_TEXT_STATS);
}
