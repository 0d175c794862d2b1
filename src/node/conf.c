/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * conf.c - varjfsd.conf, read by two tables
 *
 * Values are checked as they are read, so that a mistake is reported with its line; what
 * needs more than one of them when its section, or the file, is over.
 */
#include "node/conf.h"
#include "varjfs/client-protocol.h"

#include "meta/meta.h"
#include "store/store.h"

#include <fcntl.h>
#include <sys/un.h>

const VjOptSpec vj_node_options[] = {
    {.name = "listen",
     .type = VJ_OPT_STRING,
     .help = "addresses for peers with credentials, separated by commas"},
    {.name = "listen_insecure",
     .type = VJ_OPT_STRING,
     .help = "addresses for peers without: unix sockets and those of the own machine"},
    {.name = "certificate",
     .type = VJ_OPT_STRING,
     .help = "file with the certificate of the node, PEM"},
    {.name = "certificate_key",
     .type = VJ_OPT_STRING,
     .help = "file with its private key, PEM"},
    {.name = "ca",
     .type = VJ_OPT_STRING,
     .help = "file with the certificates by which those of peers are believed, PEM"},
    {.name = "key",
     .type = VJ_OPT_STRING,
     .help = "file with the key of who may read the statistics of all volumes"},
    {.name = "workers",
     .type = VJ_OPT_NUMBER,
     .fallback = "16",
     .min = 1,
     .max = 256,
     .help = "threads that serve requests"},
    {.name = "memory",
     .type = VJ_OPT_SIZE,
     .fallback = "1G",
     .min = 96 * VJ_MIB,
     .max = 4 * VJ_TIB,
     .help = "memory for requests and replies of all connections, bytes"},
    {.name = "connection_memory",
     .type = VJ_OPT_SIZE,
     .fallback = "128M",
     .min = 1 * VJ_MIB,
     .max = 4 * VJ_TIB,
     .help = "memory for requests and replies of one connection, bytes"},
    {.name = "connections",
     .type = VJ_OPT_NUMBER,
     .fallback = "4096",
     .min = 1,
     .max = VJ_RPC_CONNECTIONS_MAX,
     .help = "connections at the same time"},
    {.name = "drain",
     .type = VJ_OPT_NUMBER,
     .fallback = "30",
     .max = 3600,
     .help = "seconds that requests in flight get to end after SIGTERM"},
    {.name = "log",
     .type = VJ_OPT_STRING,
     .help = "a file, syslog or stderr (default: stderr, in the background syslog)"},
    {.name = "sandbox",
     .type = VJ_OPT_CHOICE,
     .fallback = "auto",
     .choices = "auto|off",
     .help = "give up what serving the volumes does not take; off: for debuggers"},
    {.name = "below",
     .type = VJ_OPT_STRING,
     .help = "directory below which volumes may be added without a restart"},
    {.name = NULL},
};

const VjOptSpec vj_node_volume_options[] = {
    {.name = "directory",
     .type = VJ_OPT_STRING,
     .help = "where the volume's files are on this node"},
    {.name = "roles",
     .type = VJ_OPT_STRING,
     .fallback = "object,meta",
     .choices = "object|meta|client",
     .help = "what the node keeps of the volume, separated by commas; or client: it "
             "serves a whole one to programs"},
    {.name = "store",
     .type = VJ_OPT_STRING,
     .fallback = "posix",
     .help = "driver for the objects, with its options"},
    {.name = "meta",
     .type = VJ_OPT_STRING,
     .fallback = "lmdb",
     .help = "driver for the keys, with its options"},
    {.name = "key",
     .type = VJ_OPT_STRING,
     .help = "file with the key that peers have who may use the volume"},
    {.name = "identities",
     .type = VJ_OPT_STRING,
     .help = "names in certificates of peers who may use it, separated by commas"},
    {.name = "empty",
     .type = VJ_OPT_CHOICE,
     .fallback = "accept",
     .choices = "accept|refuse",
     .help = "whether a mount may take an empty directory for the volume"},
    {.name = NULL},
};

#define VOLUME_PREFIX "volume "
#define UNIX_PREFIX "unix:"

/* ---- the file as it is read -------------------------------------------------------- */

typedef struct Parse {
    VjNodeConf *conf;
    unsigned line;
    VjOpts *section;          /* where keys go; NULL: before the first section */
    VjNodeVolumeConf *volume; /* of a section of a volume; NULL: [node] */
    unsigned section_line;
    GHashTable *lines;  /* key of the section -> the line that it is in */
    unsigned node_line; /* 0: there was no [node] yet */
} Parse;

/* "FILE:LINE: ", in front of what is said. */
static bool at_line(const Parse *p, unsigned line, GError **error)
{
    return vj_error_prefix(error, "%s:%u", p->conf->path, line);
}

static bool mistake(const Parse *p, unsigned line, GError **error, const char *format,
                    ...) G_GNUC_PRINTF(4, 5);

static bool mistake(const Parse *p, unsigned line, GError **error, const char *format,
                    ...)
{
    g_autofree char *text = NULL;
    va_list args;

    va_start(args, format);
    text = g_strdup_vprintf(format, args);
    va_end(args);
    return vj_error_set(error, EINVAL, "%s:%u: %s", p->conf->path, line, text);
}

static unsigned line_of(const Parse *p, const char *key)
{
    unsigned line = GPOINTER_TO_UINT(g_hash_table_lookup(p->lines, key));

    return line != 0 ? line : p->section_line;
}

char *vj_node_conf_path(const VjNodeConf *c, const char *path)
{
    return path == NULL || g_path_is_absolute(path)
               ? g_strdup(path)
               : g_build_filename(c->directory, path, NULL);
}

/* "a, b" in words, at most @most; NULL with a line: an empty word, one twice. */
static char **read_list(const Parse *p, const char *key, unsigned most, GError **error)
{
    const char *text = vj_opts_string(p->section, key);
    g_auto(GStrv) words = g_strsplit(text != NULL ? text : "", ",", -1);
    unsigned line = line_of(p, key), count = g_strv_length(words);

    if (count > most) {
        mistake(p, line, error, "%s: more than %u", key, most);
        return NULL;
    }
    for (unsigned i = 0; i < count; i++) {
        g_strstrip(words[i]);
        if (*words[i] == '\0') {
            mistake(p, line, error, "%s: nothing stands between two commas", key);
            return NULL;
        }
        for (unsigned j = 0; j < i; j++) {
            if (strcmp(words[i], words[j]) == 0) {
                mistake(p, line, error, "%s: %s stands there twice", key, words[i]);
                return NULL;
            }
        }
    }
    return g_steal_pointer(&words);
}

/* The file that "key" names, if it is there. */
static bool read_key(const Parse *p, bool *has_key, VjKey256 *out, GError **error)
{
    g_autofree char *path = vj_node_conf_path(p->conf, vj_opts_string(p->section, "key"));

    if (path == NULL) {
        return true;
    }
    if (!vj_key_load(AT_FDCWD, path, out, error)) {
        vj_error_prefix(error, "key");
        return at_line(p, line_of(p, "key"), error);
    }
    *has_key = true;
    g_ptr_array_add(p->conf->key_paths, g_steal_pointer(&path));
    return true;
}

/* ---- [node] ------------------------------------------------------------------------ */

/* The path of a unix socket is a path of the file as others are. */
static void make_absolute(const VjNodeConf *c, char **address)
{
    const char *path;
    g_autofree char *absolute = NULL;

    if (!g_str_has_prefix(*address, UNIX_PREFIX) ||
        (*address)[strlen(UNIX_PREFIX)] == '\0') {
        return;
    }
    path = *address + strlen(UNIX_PREFIX);
    absolute = vj_node_conf_path(c, path);
    g_free(*address);
    *address = g_strconcat(UNIX_PREFIX, absolute, NULL);
}

static bool read_addresses(const Parse *p, const char *key, char ***out, GError **error)
{
    *out = read_list(p, key, VJ_NODE_LISTENS_MAX, error);
    for (char **a = *out; a != NULL && *a != NULL; a++) {
        make_absolute(p->conf, a);
        if (!vj_rpc_address_check(*a, error)) {
            vj_error_prefix(error, "%s", key);
            return at_line(p, line_of(p, key), error);
        }
    }
    return *out != NULL;
}

static bool check_certificates(const Parse *p, GError **error)
{
    const VjNodeConf *c = p->conf;

    if (c->certificate == NULL && c->certificate_key == NULL && c->ca == NULL) {
        return true;
    }
    return (c->certificate != NULL && c->certificate_key != NULL && c->ca != NULL) ||
           mistake(p, p->section_line, error,
                   "certificate, certificate_key and ca go together");
}

static bool end_node(Parse *p, GError **error)
{
    VjNodeConf *c = p->conf;
    const char *log = vj_opts_string(c->node, "log");

    if (!read_addresses(p, "listen", &c->listen, error) ||
        !read_addresses(p, "listen_insecure", &c->listen_insecure, error)) {
        return false;
    }
    if (*c->listen == NULL && *c->listen_insecure == NULL) {
        return mistake(p, p->section_line, error,
                       "there is neither listen nor listen_insecure");
    }
    for (char **a = c->listen; *a != NULL; a++) {
        if (g_strv_contains((const char *const *)c->listen_insecure, *a)) {
            return mistake(p, line_of(p, "listen"), error,
                           "listen: %s stands in listen_insecure too", *a);
        }
    }
    c->log = g_strcmp0(log, "stderr") == 0 || g_strcmp0(log, "syslog") == 0
                 ? g_strdup(log)
                 : vj_node_conf_path(c, log);
    c->certificate = vj_node_conf_path(c, vj_opts_string(c->node, "certificate"));
    c->certificate_key = vj_node_conf_path(c, vj_opts_string(c->node, "certificate_key"));
    c->ca = vj_node_conf_path(c, vj_opts_string(c->node, "ca"));
    c->below = vj_node_conf_path(c, vj_opts_string(c->node, "below"));
    return read_key(p, &c->has_key, &c->key, error) && check_certificates(p, error);
}

/* ---- [volume NAME] ----------------------------------------------------------------- */

static bool read_roles(const Parse *p, uint32_t *out, GError **error)
{
    g_auto(GStrv) words = read_list(p, "roles", 2, error);

    if (words == NULL) {
        return false;
    }
    for (char **w = words; *w != NULL; w++) {
        if (strcmp(*w, "object") == 0) {
            *out |= VJ_NODE_ROLE(VJ_ROLE_OBJECT);
        } else if (strcmp(*w, "meta") == 0) {
            *out |= VJ_NODE_ROLE(VJ_ROLE_META);
        } else if (strcmp(*w, "client") == 0) {
            *out |= VJ_NODE_ROLE(VJ_ROLE_CLIENT);
        } else {
            return mistake(p, line_of(p, "roles"), error,
                           "roles: %s is not one of object|meta|client", *w);
        }
    }
    if ((*out & VJ_NODE_ROLE(VJ_ROLE_CLIENT)) != 0 && g_strv_length(words) > 1) {
        return mistake(p, line_of(p, "roles"), error, "roles: client stands alone");
    }
    return *out != 0 || mistake(p, line_of(p, "roles"), error, "roles: there is none");
}

static bool read_drivers(const Parse *p, VjNodeVolumeConf *v, GError **error)
{
    v->store = g_strdup(vj_opts_string(p->section, "store"));
    v->meta = g_strdup(vj_opts_string(p->section, "meta"));
    if (!vj_store_spec_check(v->store, error)) {
        return at_line(p, line_of(p, "store"), error);
    }
    if (!vj_meta_spec_check(v->meta, error)) {
        return at_line(p, line_of(p, "meta"), error);
    }
    if (!vj_store_spec_can_put_as(v->store)) {
        return mistake(p, line_of(p, "store"), error,
                       "store=%s cannot stand behind a node", v->store);
    }
    if (((vj_store_needs(v->store) | vj_meta_needs(v->meta)) &
         ~(uint32_t)VJ_NEEDS_FILES) != 0) {
        return mistake(p, p->section_line, error,
                       "a node keeps what it has itself: its drivers use no sockets");
    }
    return true;
}

static bool read_peers(Parse *p, VjNodeVolumeConf *v, GError **error)
{
    if (!read_key(p, &v->has_key, &v->key, error)) {
        return false;
    }
    if (vj_opts_is_set(p->section, "identities")) {
        v->identities = read_list(p, "identities", VJ_NODE_IDENTITIES_MAX, error);
        return v->identities != NULL;
    }
    return true;
}

static bool check_directory(const Parse *p, const VjNodeVolumeConf *v, GError **error)
{
    const GPtrArray *all = p->conf->volumes;

    for (guint i = 0; i < all->len; i++) {
        const VjNodeVolumeConf *other = g_ptr_array_index(all, i);

        if (other != v && g_strcmp0(other->directory, v->directory) == 0) {
            return mistake(p, line_of(p, "directory"), error,
                           "directory: volume %s has it already", other->name);
        }
    }
    return true;
}

/* A volume that is whole says itself which drivers it has. */
static bool check_client(const Parse *p, const VjNodeVolumeConf *v, GError **error)
{
    static const char *const others[] = {"store", "meta", "empty"};

    for (size_t i = 0; i < G_N_ELEMENTS(others); i++) {
        if ((v->roles & VJ_NODE_ROLE(VJ_ROLE_CLIENT)) != 0 &&
            vj_opts_is_set(p->section, others[i])) {
            return mistake(p, line_of(p, others[i]), error,
                           "%s is not for the role client", others[i]);
        }
    }
    return true;
}

static bool end_volume(Parse *p, GError **error)
{
    VjNodeVolumeConf *v = p->volume;

    v->directory = vj_node_conf_path(p->conf, vj_opts_string(p->section, "directory"));
    if (v->directory == NULL) {
        return mistake(p, p->section_line, error, "volume %s has no directory", v->name);
    }
    v->refuses_empty = strcmp(vj_opts_string(p->section, "empty"), "refuse") == 0;
    return check_directory(p, v, error) && read_roles(p, &v->roles, error) &&
           check_client(p, v, error) && read_drivers(p, v, error) &&
           read_peers(p, v, error);
}

/* ---- sections and lines ------------------------------------------------------------ */

static bool end_section(Parse *p, GError **error)
{
    bool ok = p->section == NULL ||
              (p->volume != NULL ? end_volume(p, error) : end_node(p, error));

    if (p->volume != NULL) {
        vj_opts_free(p->section);
    }
    p->section = NULL;
    p->volume = NULL;
    g_hash_table_remove_all(p->lines);
    return ok;
}

static bool begin_volume(Parse *p, const char *name, GError **error)
{
    const VjNodeVolumeConf *before = vj_node_conf_volume(p->conf, name);
    VjNodeVolumeConf *v;

    if (!vj_wire_is_volume_name(vj_slice(name, strlen(name)))) {
        return mistake(p, p->line, error,
                       "\"%s\" is no name of a volume: at most %u letters, digits, "
                       "'.', '_', '-', the first a letter or a digit",
                       name, VJ_WIRE_VOLUME_NAME_MAX);
    }
    if (before != NULL) {
        return mistake(p, p->line, error, "volume %s stands in line %u already", name,
                       before->line);
    }
    if (p->conf->volumes->len == VJ_NODE_VOLUMES_MAX) {
        return mistake(p, p->line, error, "more than %u volumes", VJ_NODE_VOLUMES_MAX);
    }
    v = g_new0(VjNodeVolumeConf, 1);
    v->name = g_strdup(name);
    v->line = p->line;
    g_ptr_array_add(p->conf->volumes, v);
    p->volume = v;
    p->section = vj_opts_new(vj_node_volume_options);
    return true;
}

static bool begin_node(Parse *p, GError **error)
{
    if (p->node_line != 0) {
        return mistake(p, p->line, error, "[node] stands in line %u already",
                       p->node_line);
    }
    p->node_line = p->line;
    p->section = p->conf->node;
    return true;
}

/* @line: "[…" */
static bool begin_section(Parse *p, char *line, GError **error)
{
    size_t len = strlen(line);

    if (!end_section(p, error)) {
        return false;
    }
    p->section_line = p->line;
    if (line[len - 1] != ']') {
        return mistake(p, p->line, error, "a section ends with ']'");
    }
    line[len - 1] = '\0';
    line = g_strstrip(line + 1);
    if (strcmp(line, "node") == 0) {
        return begin_node(p, error);
    }
    if (g_str_has_prefix(line, VOLUME_PREFIX)) {
        return begin_volume(p, g_strstrip(line + strlen(VOLUME_PREFIX)), error);
    }
    return mistake(p, p->line, error,
                   "[%s] is no section: there are [node] and [volume NAME]", line);
}

static bool read_value(Parse *p, char *line, GError **error)
{
    char *equals = strchr(line, '=');
    const char *key, *value;
    unsigned before;

    if (equals == NULL) {
        return mistake(p, p->line, error, "neither a section nor \"key = value\"");
    }
    *equals = '\0';
    key = g_strstrip(line);
    value = g_strstrip(equals + 1);
    if (p->section == NULL) {
        return mistake(p, p->line, error, "%s stands before the first section", key);
    }
    before = GPOINTER_TO_UINT(g_hash_table_lookup(p->lines, key));
    if (before != 0) {
        return mistake(p, p->line, error, "%s stands in line %u already", key, before);
    }
    if (*value == '\0') {
        return mistake(p, p->line, error, "%s has no value", key);
    }
    if (!vj_opts_set(p->section, key, value, error)) {
        return at_line(p, p->line, error);
    }
    g_hash_table_insert(p->lines, g_strdup(key), GUINT_TO_POINTER(p->line));
    return true;
}

static bool read_line(Parse *p, char *line, GError **error)
{
    p->line++;
    g_strstrip(line);
    switch (*line) {
    case '\0':
    case '#':
    case ';':
        return true;
    case '[':
        return begin_section(p, line, error);
    default:
        return read_value(p, line, error);
    }
}

/* ---- what several sections say ----------------------------------------------------- */

/*
 * Each volume has a listener for its peers: with credentials, if the volume asks for
 * some, else without.
 */
static bool check_volume_peers(const Parse *p, const VjNodeVolumeConf *v, GError **error)
{
    const VjNodeConf *c = p->conf;
    bool has_peers = v->has_key || v->identities != NULL;

    if (has_peers && *c->listen == NULL) {
        return mistake(p, v->line, error,
                       "volume %s is for peers with credentials, and [node] has no "
                       "listen",
                       v->name);
    }
    if (!has_peers && *c->listen_insecure == NULL) {
        return mistake(p, v->line, error,
                       "volume %s has neither key nor identities, and [node] has no "
                       "listen_insecure: nobody can use it",
                       v->name);
    }
    return v->identities == NULL || c->ca != NULL ||
           mistake(p, v->line, error,
                   "volume %s has identities, and [node] has no certificate", v->name);
}

static bool check_all(const Parse *p, GError **error)
{
    const VjNodeConf *c = p->conf;
    bool has_key = c->has_key;

    if (p->node_line == 0) {
        return vj_error_set(error, EINVAL, "%s: there is no section [node]", c->path);
    }
    for (guint i = 0; i < c->volumes->len; i++) {
        const VjNodeVolumeConf *v = g_ptr_array_index(c->volumes, i);

        has_key = has_key || v->has_key;
        if (!check_volume_peers(p, v, error)) {
            return false;
        }
    }
    return *c->listen == NULL || has_key || c->ca != NULL ||
           mistake(p, p->node_line, error,
                   "listen: there is neither a certificate nor a volume with a key");
}

static bool read_text(Parse *p, const char *text, size_t len, GError **error)
{
    g_auto(GStrv) lines = NULL;
    bool ok = true;

    if (!g_utf8_validate(text, (gssize)len, NULL)) {
        return vj_error_set(error, EINVAL, "%s: it is no text in UTF-8", p->conf->path);
    }
    lines = g_strsplit(text, "\n", -1);
    for (char **l = lines; ok && *l != NULL; l++) {
        ok = read_line(p, *l, error);
    }
    if (!ok && p->volume != NULL) {
        vj_opts_free(p->section);
        return false;
    }
    return ok && end_section(p, error) && check_all(p, error);
}

VjNodeConf *vj_node_conf_parse(const char *path, const char *text, size_t len,
                               GError **error)
{
    g_autoptr(VjNodeConf) c = g_new0(VjNodeConf, 1);
    g_autofree char *here = g_get_current_dir();
    Parse p = {.conf = c};
    bool ok;

    c->source_fd = -1;
    c->path =
        g_path_is_absolute(path) ? g_strdup(path) : g_build_filename(here, path, NULL);
    c->directory = g_path_get_dirname(c->path);
    c->node = vj_opts_new(vj_node_options);
    c->volumes = g_ptr_array_new_with_free_func((GDestroyNotify)vj_node_volume_conf_free);
    c->key_paths = g_ptr_array_new_with_free_func(g_free);
    p.lines = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    ok = read_text(&p, text, len, error);
    g_hash_table_destroy(p.lines);
    return ok ? g_steal_pointer(&c) : NULL;
}

/* An address of a socket holds about a hundred bytes; a longer path goes through a
 * descriptor, as that of libvarjfs does. */
static bool shorten_socket(const char *directory, char **path, int *fd, GError **error)
{
    *fd = -1;
    *path = g_build_filename(directory, VARJFS_SOURCE_SOCKET, NULL);
    if (strlen(*path) < sizeof((struct sockaddr_un *)NULL)->sun_path) {
        return true;
    }
    *fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0) {
        return vj_error_set_errno(error, errno, "%s", directory);
    }
    g_free(*path);
    *path = g_strdup_printf("/proc/self/fd/%d/" VARJFS_SOURCE_SOCKET, *fd);
    return true;
}

VjNodeConf *vj_node_conf_of_source(const char *source, GError **error)
{
    g_autofree char *absolute = realpath(source, NULL);
    g_autofree char *path = NULL, *socket_path = NULL, *text = NULL;
    VJ_AUTO_FD fd = -1;
    VjNodeConf *c;

    if (absolute == NULL) {
        vj_error_set_errno(error, errno, "%s", source);
        return NULL;
    }
    if (!shorten_socket(absolute, &socket_path, &fd, error)) {
        return NULL;
    }
    text = g_strdup_printf("[node]\nlisten_insecure = unix:%s\n"
                           "[volume " VARJFS_SOURCE_VOLUME "]\n"
                           "directory = .\nroles = client\n",
                           fd < 0 ? VARJFS_SOURCE_SOCKET : socket_path);
    path = g_build_filename(absolute, "varjfsd", NULL); /* stands for its directory */
    c = vj_node_conf_parse(path, text, strlen(text), error);
    if (c != NULL) {
        VjNodeVolumeConf *v = g_ptr_array_index(c->volumes, 0);

        g_free(v->directory);
        v->directory = g_steal_pointer(&absolute);
        c->source_fd = vj_fd_steal(&fd);
    }
    return c;
}

VjNodeConf *vj_node_conf_load(const char *path, GError **error)
{
    g_autofree char *text = NULL;
    size_t len;

    text = vj_file_read_small(AT_FDCWD, path, VJ_NODE_CONF_BYTES_MAX, &len, error);
    return text == NULL ? NULL : vj_node_conf_parse(path, text, len, error);
}

/* ---- the result -------------------------------------------------------------------- */

void vj_node_volume_conf_free(VjNodeVolumeConf *v)
{
    if (v == NULL) {
        return;
    }
    g_free(v->name);
    g_free(v->directory);
    g_free(v->store);
    g_free(v->meta);
    g_strfreev(v->identities);
    explicit_bzero(&v->key, sizeof v->key);
    g_free(v);
}

VjNodeVolumeConf *vj_node_volume_conf_copy(const VjNodeVolumeConf *v)
{
    VjNodeVolumeConf *copy = g_new0(VjNodeVolumeConf, 1);

    *copy = *v;
    copy->name = g_strdup(v->name);
    copy->directory = g_strdup(v->directory);
    copy->store = g_strdup(v->store);
    copy->meta = g_strdup(v->meta);
    copy->identities = g_strdupv(v->identities);
    return copy;
}

void vj_node_conf_free(VjNodeConf *c)
{
    if (c == NULL) {
        return;
    }
    g_free(c->path);
    g_free(c->directory);
    vj_opts_free(c->node);
    g_strfreev(c->listen);
    g_strfreev(c->listen_insecure);
    g_free(c->log);
    g_free(c->certificate);
    g_free(c->certificate_key);
    g_free(c->ca);
    g_free(c->below);
    explicit_bzero(&c->key, sizeof c->key);
    g_ptr_array_free(c->volumes, TRUE);
    g_ptr_array_free(c->key_paths, TRUE);
    vj_fd_close(&c->source_fd);
    g_free(c);
}

const VjNodeVolumeConf *vj_node_conf_volume(const VjNodeConf *c, const char *name)
{
    for (guint i = 0; i < c->volumes->len; i++) {
        const VjNodeVolumeConf *v = g_ptr_array_index(c->volumes, i);

        if (strcmp(v->name, name) == 0) {
            return v;
        }
    }
    return NULL;
}

bool vj_node_volume_conf_same_place(const VjNodeVolumeConf *a, const VjNodeVolumeConf *b)
{
    return strcmp(a->directory, b->directory) == 0 && a->roles == b->roles &&
           strcmp(a->store, b->store) == 0 && strcmp(a->meta, b->meta) == 0;
}

bool vj_node_volume_conf_admits(const VjNodeVolumeConf *v, const char *identity)
{
    if (*identity == '\0') {
        return !v->has_key && v->identities == NULL;
    }
    /* The two kinds of proof are kept apart: a certificate of the name of a volume is not
     * its key. */
    if (g_str_has_prefix(identity, "key:")) {
        return v->has_key && strcmp(identity + strlen("key:"), v->name) == 0;
    }
    return g_str_has_prefix(identity, "cert:") && v->identities != NULL &&
           g_strv_contains((const char *const *)v->identities,
                           identity + strlen("cert:"));
}
