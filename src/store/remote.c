/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote.c - objects at nodes of varjfsd, with replicas
 *
 * An object goes to replicas= of the nodes in the list, chosen by its id and the weights
 * (placement.h), under a random number that is the same at each of them; they get it at
 * the same time, and all have acknowledged it when a put returns.  What is not live is
 * passed over; an object with fewer replicas than it ought to have is healed later.
 *
 * Durability: flush() has every node sync what it has acknowledged; a node that was lost
 * in between does not count.  An object that was flushed is readable as long as fewer
 * disks were lost than it has durable replicas.  Limits: 64 nodes, 8 replicas.
 */
#include "base/uuid.h"
#include "store/remote-private.h"

/* ---- options ----------------------------------------------------------------------- */

static const VjOptSpec remote_options[] = {
    {.name = "nodes",
     .type = VJ_OPT_STRING,
     .leads = true,
     .help = "HOST[:PORT] or unix:PATH, separated by commas; \"-\" is a node that was "
             "removed"},
    {.name = "replicas",
     .type = VJ_OPT_NUMBER,
     .fallback = "1",
     .min = 1,
     .max = VJ_PLACEMENT_REPLICAS_MAX,
     .help = "nodes that get each object"},
    {.name = "weight",
     .type = VJ_OPT_STRING,
     .help = "share of the objects for each node, 0 to 1000, separated by slashes; 0: no "
             "new ones, and heal empties it; default: 1 for all"},
    {.name = "volume",
     .type = VJ_OPT_STRING,
     .fallback = "default",
     .help = "name of the volume in the nodes' configuration"},
    {.name = "key",
     .type = VJ_OPT_STRING,
     .is_file = true,
     .help = "file with a pre-shared key"},
    {.name = "identity",
     .type = VJ_OPT_STRING,
     .help = "name under which the nodes know the key; default: the volume's"},
    {.name = "cert",
     .type = VJ_OPT_STRING,
     .is_file = true,
     .help = "file with the client's certificate"},
    {.name = "certkey",
     .type = VJ_OPT_STRING,
     .is_file = true,
     .help = "file with the certificate's private key"},
    {.name = "ca",
     .type = VJ_OPT_STRING,
     .is_file = true,
     .help = "file with the certificates that the nodes' are signed with"},
    {.name = "insecure",
     .type = VJ_OPT_FLAG,
     .fallback = "no",
     .help = "no TLS: over unix sockets and to the own machine alone"},
    {.name = "timeout",
     .type = VJ_OPT_NUMBER,
     .fallback = "30",
     .min = 1,
     .max = 86400,
     .help = "seconds after which a request fails"},
    {.name = "silence",
     .type = VJ_OPT_NUMBER,
     .fallback = "5",
     .min = 1,
     .max = 3600,
     .help = "seconds without a sign of life after which a node is lost"},
    {.name = NULL},
};

static uint32_t remote_needs_of(const VjOpts *opts)
{
    g_auto(GStrv) nodes = vj_remote_nodes_of(opts, NULL);
    uint32_t needs = 0;

    for (unsigned i = 0; nodes != NULL && nodes[i] != NULL; i++) {
        needs |= vj_remote_is_hole(nodes[i]) ? 0 : vj_rpc_address_needs(nodes[i]);
    }
    return needs;
}

/* ---- open -------------------------------------------------------------------------- */

/* A relative name needs a directory that it is relative to. */
static bool check_file(const VjStorePlace *place, const VjOpts *opts, const char *option,
                       GError **error)
{
    const char *path = vj_opts_string(opts, option);

    if (path != NULL && !g_path_is_absolute(path) && place->credentials_dir == NULL) {
        return vj_error_set(error, EINVAL, "%s=%s: here the path has to be absolute",
                            option, path);
    }
    return true;
}

static bool load_credentials(VjRemote *r, const VjStorePlace *place, const VjOpts *opts,
                             GError **error)
{
    VjCredentialsFiles files = {
        .key = vj_opts_string(opts, "key"),
        .identity = vj_opts_string(opts, "identity"),
        .certificate = vj_opts_string(opts, "cert"),
        .certificate_key = vj_opts_string(opts, "certkey"),
        .ca = vj_opts_string(opts, "ca"),
        .insecure = vj_opts_flag(opts, "insecure"),
    };

    if (files.key != NULL && files.identity == NULL) {
        files.identity = vj_opts_string(opts, "volume");
    }
    return check_file(place, opts, "key", error) &&
           check_file(place, opts, "cert", error) &&
           check_file(place, opts, "certkey", error) &&
           check_file(place, opts, "ca", error) &&
           vj_credentials_load(place->credentials_dir != NULL ? place->credentials_dir_fd
                                                              : -1,
                               &files, &r->credentials, error);
}

/* @text: a uuid or NULL, which is all zero. */
static bool parse_uuid(const char *text, uint8_t *uuid, GError **error)
{
    if (text == NULL) {
        memset(uuid, 0, VJ_UUID_BYTES);
        return true;
    }
    return vj_uuid_parse(text, uuid) ||
           vj_error_set(error, EINVAL, "volume %s: no uuid", text);
}

/* Owned; NULL with @error. */
static GByteArray *make_hello(const VjStorePlace *place, const VjOpts *opts,
                              uint8_t flags, GError **error)
{
    g_autoptr(GByteArray) to = g_byte_array_new();
    const char *volume = vj_opts_string(opts, "volume");
    g_autofree char *name = g_strdup_printf("%s", g_get_host_name());
    VjHello hello = {.version_min = 1,
                     .version_max = VJ_WIRE_VERSION,
                     .role = VJ_ROLE_OBJECT,
                     .flags = flags,
                     .volume = vj_slice(volume, strlen(volume)),
                     .name = vj_slice(name, strlen(name))};

    if (!parse_uuid(place->volume, hello.uuid, error)) {
        return NULL;
    }
    vj_hello_encode(to, &hello);
    return g_steal_pointer(&to);
}

static uint8_t hello_flags(const VjStorePlace *place)
{
    if (place->create) {
        return VJ_HELLO_CREATE | (place->destroy ? VJ_HELLO_DESTROY : 0);
    }
    return place->read_only ? VJ_HELLO_READ_ONLY : VJ_HELLO_ADOPT;
}

/* Nodes that are live, or have said why they are not. */
static VjNodeSet heard(const VjRemote *r) VJ_REQUIRES(r->lock)
{
    VjNodeSet set = r->live;

    VJ_NODE_EACH(i, r->places)
    {
        VjRemoteState state = r->nodes[i].state;

        if (state != VJ_REMOTE_AWAY && state != VJ_REMOTE_GREETED) {
            set |= vj_node_bit(i);
        }
    }
    return set;
}

/* Until all nodes are there, or those that there are suffice and the others had time. */
static void wait_for_nodes(VjRemote *r, bool all)
{
    int64_t begin_us = vj_clock_mono_us(), until_us = begin_us + r->timeout_us;

    vj_mutex_lock(&r->lock);
    while (heard(r) != r->places) {
        int64_t end_us =
            r->live != 0 && !all ? MIN(begin_us + VJ_REMOTE_OPEN_US, until_us) : until_us;

        if (vj_clock_mono_us() >= end_us) {
            break;
        }
        vj_remote_wait_until(r, end_us);
    }
    vj_mutex_unlock(&r->lock);
}

/* All of them where the volume is made; else one, at least. */
static bool check_nodes(VjRemote *r, bool all, GError **error)
{
    g_autoptr(GString) missing = g_string_new(NULL);
    bool is_refused = false;
    unsigned live;

    vj_mutex_lock(&r->lock);
    VJ_NODE_EACH(i, r->places & ~r->live)
    {
        const VjRemoteNode *node = &r->nodes[i];
        bool refuses = node->state == VJ_REMOTE_REFUSING && node->refusal != NULL;

        g_string_append_printf(missing, "%s%s is %s%s%s", missing->len > 0 ? ", " : "",
                               node->address, vj_remote_state_text(node->state),
                               refuses ? ": " : "", refuses ? node->refusal : "");
        is_refused = is_refused || (refuses && node->refusal_rc == -EACCES);
    }
    live = vj_node_count(r->live);
    r->is_open = true;
    vj_mutex_unlock(&r->lock);
    if (live == 0 || (all && missing->len > 0)) {
        return vj_error_set(error, is_refused ? EACCES : ETIMEDOUT, "%u of %u nodes: %s",
                            live, vj_node_count(r->places), missing->str);
    }
    if (missing->len > 0) {
        vj_log_warn("store remote: %u of %u nodes are live: %s", live,
                    vj_node_count(r->places), missing->str);
    }
    return true;
}

static bool connect_nodes(VjRemote *r, char *const *addresses, GError **error)
{
    VjSlice hello = vj_slice(r->hello->data, r->hello->len);

    for (unsigned i = 0; i < vj_remote_count(r); i++) {
        VjRemoteNode *node = &r->nodes[i];

        node->r = r;
        node->index = i;
        if (vj_remote_is_hole(addresses[i])) {
            continue;
        }
        node->address = g_strdup(addresses[i]);
        if (!vj_remote_node_open(node, hello, r->silence_us, error)) {
            return false;
        }
        r->places |= vj_node_bit(i);
    }
    VJ_NODE_EACH(i, r->places)
    {
        vj_remote_seam->client_connect(r->nodes[i].client);
    }
    return true;
}

static void init(VjRemote *r, const VjStorePlace *place, const VjOpts *opts,
                 unsigned node_count)
{
    r->read_only = place->read_only;
    r->is_new = place->create;
    g_atomic_int_set(&r->node_count, (gint)node_count);
    r->replicas = (unsigned)vj_opts_number(opts, "replicas");
    r->timeout_us = (int64_t)vj_opts_number(opts, "timeout") * G_USEC_PER_SEC;
    r->silence_us = (int64_t)vj_opts_number(opts, "silence") * G_USEC_PER_SEC;
    r->base.timeout_us = vj_remote_seam->step == NULL ? r->timeout_us : 0;
    r->nodes = g_new0(VjRemoteNode, VJ_PLACEMENT_NODES_MAX);
    r->hedge_credit = VJ_REMOTE_HEDGE_EVERY;
    r->timers = g_sequence_new(NULL);
    g_queue_init(&r->waiting);
    vj_mutex_init(&r->lock, VJ_RANK_STORE, "store.remote");
    vj_cond_init(&r->changed);
    vj_cond_init(&r->timer_changed);
    vj_remote_durable_init(r);
    vj_remote_suspect_init(r);
}

static void remote_close(VjStore *s)
{
    VjRemote *r = (VjRemote *)s;

    vj_remote_own_stop(r);
    for (unsigned i = 0; i < vj_remote_count(r); i++) {
        vj_remote_node_close(&r->nodes[i]);
    }
    vj_remote_timers_stop(r);
    vj_mutex_lock(&r->lock);
    vj_remote_durable_clear(r);
    vj_remote_suspect_clear(r);
    g_assert(r->waiting.length == 0 && g_sequence_is_empty(r->timers));
    vj_mutex_unlock(&r->lock);
    g_sequence_free(r->timers);
    vj_cond_clear(&r->timer_changed);
    vj_cond_clear(&r->changed);
    vj_mutex_clear(&r->lock);
    vj_credentials_unref(r->credentials);
    g_byte_array_unref(r->hello);
    g_byte_array_unref(r->create_hello);
    g_free(r->nodes);
}

static bool remote_open(VjStore *s, const VjStorePlace *place, const VjOpts *opts,
                        GError **error)
{
    VjRemote *r = (VjRemote *)s;
    g_autoptr(GByteArray) hello = NULL;
    g_autoptr(GByteArray) create_hello = NULL;
    g_auto(GStrv) nodes = NULL;

    g_assert(!(place->create && place->read_only));
    if (!vj_remote_check(opts, error)) {
        return false;
    }
    hello = make_hello(place, opts, hello_flags(place), error);
    create_hello = hello != NULL ? make_hello(place, opts, VJ_HELLO_CREATE, error) : NULL;
    if (create_hello == NULL || !load_credentials(r, place, opts, error)) {
        return false;
    }
    nodes = vj_remote_nodes_of(opts, error);
    r->hello = g_steal_pointer(&hello);
    r->create_hello = g_steal_pointer(&create_hello);
    init(r, place, opts, g_strv_length(nodes));
    if (!vj_remote_weights_of(opts, nodes, r->own_weights, error)) {
        remote_close(s);
        return false;
    }
    memcpy(r->weights, r->own_weights, sizeof r->weights);
    if (!vj_remote_timers_start(r, error) || !connect_nodes(r, nodes, error)) {
        remote_close(s);
        return false;
    }
    wait_for_nodes(r, place->create);
    if (!check_nodes(r, place->create, error)) {
        remote_close(s);
        return false;
    }
    return true;
}

/* ---- what the room calls ----------------------------------------------------------- */

static void remote_submit(VjStore *s, VjIo *io)
{
    VjRemote *r = (VjRemote *)s;

    switch (io->op) {
    case VJ_IO_PUT:
    case VJ_IO_REMOVE:
        if (r->read_only) {
            vj_io_complete(io, -EROFS, NULL);
        } else if (io->op == VJ_IO_PUT) {
            vj_remote_put(r, io);
        } else {
            vj_remote_remove(r, io);
        }
        break;
    case VJ_IO_GET:
        vj_remote_get(r, io);
        break;
    case VJ_IO_FLUSH:
        vj_remote_flush(r, io);
        break;
    default:
        g_assert_not_reached();
    }
}

static void remote_push(VjStore *s)
{
    vj_remote_push_removes((VjRemote *)s);
}

/* One loop receives for all nodes. */
static void remote_help(VjStore *s, bool (*is_over)(void *opaque), void *opaque,
                        int64_t until_us)
{
    VjRemote *r = (VjRemote *)s;
    unsigned any = vj_node_next(vj_remote_places(r), 0);

    if (any < VJ_PLACEMENT_NODES_MAX && vj_remote_seam->step == NULL) {
        vj_rpc_help(r->nodes[any].client, is_over, opaque, until_us);
    }
}

static void remote_cancel(VjStore *s, VjIo *io)
{
    VjRemote *r = (VjRemote *)s;
    VjRemoteOp *op;

    vj_mutex_lock(&r->lock);
    op = io->of_driver;
    if (op != NULL) {
        vj_remote_op_ref(op);
        op->is_canceled = true;
        if (op->is_waiting) {
            vj_remote_op_set_timer(op, 0);
        }
    }
    vj_mutex_unlock(&r->lock);
    if (op != NULL) {
        if (op->kind->cancel != NULL) {
            op->kind->cancel(op);
        }
        vj_remote_op_unref(op);
    }
}

static bool remote_same_loc(VjStore *s, VjLoc a, VjLoc b)
{
    uint64_t nonce_a, nonce_b;
    VjNodeSet nodes;
    bool are_ours = vj_remote_loc_decode(a, &nonce_a, &nodes) &&
                    vj_remote_loc_decode(b, &nonce_b, &nodes);

    (void)s;
    return are_ours ? nonce_a == nonce_b : memcmp(a.bytes, b.bytes, VJ_LOC_BYTES) == 0;
}

static void remote_health(VjStore *s, VjStoreHealth *out)
{
    VjRemote *r = (VjRemote *)s;
    VjNodeSet draining = vj_remote_draining(r);

    vj_mutex_lock(&r->lock);
    *out = (VjStoreHealth){.replicas = r->replicas,
                           .nodes = vj_node_count(r->places),
                           .live = vj_node_count(r->live),
                           .dead = vj_node_count(r->places & ~r->live),
                           .draining = vj_node_count(draining),
                           .degraded_puts = r->degraded_puts,
                           .changes = r->changes};
    vj_mutex_unlock(&r->lock);
}

static bool remote_node(VjStore *s, unsigned index, VjStoreNode *out)
{
    VjRemote *r = (VjRemote *)s;
    const VjRemoteNode *node;
    VjRpcTraffic traffic = {0};
    bool is_listed;

    *out = (VjStoreNode){.state = ""};
    if (index >= vj_remote_count(r)) {
        return false;
    }
    node = &r->nodes[index];
    vj_mutex_lock(&r->lock);
    is_listed = (r->places & vj_node_bit(index)) != 0;
    vj_mutex_unlock(&r->lock);
    if (is_listed) {
        g_strlcpy(out->address, node->address, sizeof out->address);
        vj_remote_seam->traffic(node->client, &traffic);
    }
    out->requests = traffic.calls;
    out->sent_bytes = traffic.sent_bytes;
    out->received_bytes = traffic.received_bytes;
    out->losses = traffic.losses;
    vj_mutex_lock(&r->lock);
    out->state = vj_remote_state_word(node->state);
    out->is_live = node->state == VJ_REMOTE_LIVE;
    out->weight = r->weights[index];
    out->is_draining = is_listed && out->weight == 0;
    vj_mutex_unlock(&r->lock);
    return true;
}

static bool remote_drain(VjStore *s, unsigned index, bool drained)
{
    VjRemote *r = (VjRemote *)s;

    bool is_listed = false;

    vj_mutex_lock(&r->lock);
    if (index < vj_remote_count(r) && (r->places & vj_node_bit(index)) != 0) {
        is_listed = true;
        r->weights[index] = drained ? 0 : MAX(r->own_weights[index], 1);
        r->changes++;
    }
    vj_mutex_unlock(&r->lock);
    return is_listed;
}

const VjStoreOps vj_store_remote_ops = {
    .name = "remote",
    .options = remote_options,
    .instance_size = sizeof(VjRemote),
    .needs = VJ_NEEDS_UNIX | VJ_NEEDS_TCP,
    .needs_of = remote_needs_of,
    .check = vj_remote_check,
    .align_bytes = 1,
    .is_shareable = true,
    .open = remote_open,
    .close = remote_close,
    .same_loc = remote_same_loc,
    .flush_removes = vj_remote_flush_removes,
    .each = vj_remote_each,
    .heal = vj_remote_heal,
    .trim = vj_remote_trim,
    .survey = vj_remote_survey,
    .health = remote_health,
    .node = remote_node,
    .drain = remote_drain,
    .change_list = vj_remote_change_list,
    .change_begin = vj_remote_change_begin,
    .change_end = vj_remote_change_end,
    .loc_names = vj_remote_loc_names,
    .loc_at = vj_remote_loc_at,
    .digest = vj_remote_digest,
    .put_plain = vj_remote_put_plain,
    .get_plain = vj_remote_get_plain,
    .space = vj_remote_space,
    .submit = remote_submit,
    .push = remote_push,
    .cancel = remote_cancel,
    .help = remote_help,
};
