/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ctl-config.c - varjfsctl config check|show|write: configurations of clients, of nodes
 * and of volumes
 *
 * A file is what its first section says: [client] varjfs-client.conf(5), [node] or
 * [volume NAME] varjfsd.conf(5), none a volume file, varjfs-format(5).
 */
#include "cmd/ctl.h"

#include "node/conf.h"
#include "varjfs/varjfs.h"
#include "volume/volume.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of a file of nodes, faults that are said. */
#define FAULTS_MAX 100u

typedef enum ConfigKind { CONFIG_CLIENT, CONFIG_NODE, CONFIG_VOLUME } ConfigKind;

/* ---- which one it is --------------------------------------------------------------- */

static ConfigKind kind_of(const char *text)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);

    for (char **line = lines; *line != NULL; line++) {
        g_strstrip(*line);
        if (g_str_has_prefix(*line, "[client")) {
            return CONFIG_CLIENT;
        }
        if (**line == '[') {
            return CONFIG_NODE;
        }
    }
    return strstr(text, "checksum") != NULL ? CONFIG_VOLUME : CONFIG_CLIENT;
}

static bool read_file(const VjCtl *ctl, const char *path, char **text, gsize *len)
{
    g_autoptr(GError) error = NULL;
    struct stat st;

    *text = NULL;
    if (stat(path, &st) < 0) {
        vj_cmd_fail_errno(ctl->cmd, path, errno);
        return false;
    }
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > VJ_NODE_CONF_BYTES_MAX) {
        vj_complain(ctl->cmd->name, "%s: no file of a configuration", path);
        return false;
    }
    if (!g_file_get_contents(path, text, len, &error)) {
        vj_complain(ctl->cmd->name, "%s", error->message);
        return false;
    }
    return true;
}

/* ---- clients ----------------------------------------------------------------------- */

typedef struct Look {
    const VjCtl *ctl;
    const char *path;
    bool shows;
    bool is_first;
    bool has_fault;
} Look;

static void show_setting(Look *look, unsigned line, const char *key, const char *value)
{
    if (look->ctl->format == VJ_CTL_JSON) {
        g_autofree char *text = vj_ctl_json_string(value);

        printf("%s\"%s\": {\"value\": %s, \"line\": %u}", look->is_first ? "" : ", ", key,
               text, line);
    } else {
        printf("%s=%s", key, value);
        printf(line > 0 ? "\t# %s:%u\n" : "\t# default\n", look->path, line);
    }
    look->is_first = false;
}

static void visit(void *opaque, unsigned line, const char *key, const char *value,
                  const char *fault)
{
    Look *look = opaque;

    if (fault != NULL) {
        g_autofree char *at = line > 0 ? g_strdup_printf(":%u", line) : g_strdup("");

        look->has_fault = true;
        vj_complain(look->ctl->cmd->name, "%s%s: %s%s%s", look->path, at,
                    key != NULL ? key : "", key != NULL ? ": " : "", fault);
    } else if (look->shows) {
        show_setting(look, line, key, value);
    }
}

/* What a file does not say. */
static void note_key(void *opaque, unsigned line, const char *key, const char *value,
                     const char *fault)
{
    GHashTable *seen = opaque;

    (void)line;
    if (fault == NULL) {
        g_hash_table_insert(seen, g_strdup(key), g_strdup(value));
    }
}

static void show_defaults(Look *look)
{
    g_autoptr(GHashTable) seen =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    const char *source;

    (void)varjfs_config_each(look->path, note_key, seen); /* it was good just now */
    source = g_hash_table_lookup(seen, "source");
    if (source != NULL && g_str_has_prefix(source, "tls:") &&
        g_hash_table_contains(seen, "key") && !g_hash_table_contains(seen, "identity") &&
        g_hash_table_contains(seen, "volume")) {
        show_setting(look, 0, "identity", g_hash_table_lookup(seen, "volume"));
    }
    if (source != NULL && strchr(source, ':') == NULL &&
        !g_hash_table_contains(seen, "daemon")) {
        show_setting(look, 0, "daemon", "varjfsd");
    }
    if (!g_hash_table_contains(seen, "timeout")) {
        show_setting(look, 0, "timeout", "30");
    }
    if (!g_hash_table_contains(seen, "read_only")) {
        show_setting(look, 0, "read_only", "no");
    }
}

static int look_at_client(const VjCtl *ctl, const char *path, bool shows)
{
    Look look = {.ctl = ctl, .path = path, .is_first = true};
    bool is_json = shows && ctl->format == VJ_CTL_JSON;
    int rc = varjfs_config_each(path, visit, &look);

    if (rc < 0) {
        if (!look.has_fault) {
            vj_complain(ctl->cmd->name, "%s: %s", path, varjfs_strerror(rc));
        }
        return EXIT_FAILURE;
    }
    if (shows) {
        printf("%s", is_json ? "{" : "");
        look.shows = true;
        (void)varjfs_config_each(path, visit, &look);
        show_defaults(&look);
        printf("%s", is_json ? "}\n" : "");
    }
    return EXIT_SUCCESS;
}

/* ---- nodes ------------------------------------------------------------------------- */

/* The line of "FILE:LINE: text"; 0: it has none. */
static unsigned line_of(const char *path, const char *message)
{
    size_t len = strlen(path);

    if (!g_str_has_prefix(message, path) || message[len] != ':') {
        return 0;
    }
    return (unsigned)g_ascii_strtoull(message + len + 1, NULL, 10);
}

/* Takes a faulty line out, and with the head of a section all of it; false: there is no
 * such line. */
static bool take_out(char **lines, unsigned line)
{
    unsigned count = g_strv_length(lines);
    bool is_head;

    if (line == 0 || line > count || *lines[line - 1] == '\0') {
        return false;
    }
    is_head = *g_strchug(lines[line - 1]) == '[';
    do {
        *lines[line - 1] = '\0';
        line++;
    } while (is_head && line <= count && *g_strchug(lines[line - 1]) != '[');
    return true;
}

/* The daemon stops at the first fault: the others are found without the line of that. */
static int check_node(const VjCtl *ctl, const char *path, const char *text, gsize len)
{
    g_autofree char *absolute = g_canonicalize_filename(path, NULL);
    g_autofree char *rest = g_memdup2(text, len + 1); /* with its NUL */
    unsigned faults = 0;

    while (faults < FAULTS_MAX) {
        g_autoptr(GError) error = NULL;
        g_autoptr(VjNodeConf) conf = vj_node_conf_parse(absolute, rest, len, &error);
        g_auto(GStrv) lines = NULL;

        if (conf != NULL) {
            break;
        }
        /* That all of [node] is gone is no other fault. */
        if (faults == 0 || line_of(absolute, error->message) > 0) {
            vj_complain(ctl->cmd->name, "%s", error->message);
        }
        faults++;
        lines = g_strsplit(rest, "\n", -1);
        if (!take_out(lines, line_of(absolute, error->message))) {
            break;
        }
        g_free(rest);
        rest = g_strjoinv("\n", lines);
        len = strlen(rest);
    }
    return faults == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void show_text(const VjCtl *ctl, const char *path, const char *text)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    g_autofree char *section = g_strdup("");
    bool is_first = true;

    printf("%s", ctl->format == VJ_CTL_JSON ? "[" : "");
    for (unsigned i = 0; lines[i] != NULL; i++) {
        char *line = g_strstrip(lines[i]), *equals = strchr(line, '=');

        if (*line == '[') {
            g_free(section);
            section = g_strndup(line + 1, strcspn(line + 1, "]"));
        } else if (*line != '#' && *line != ';' && equals != NULL) {
            *equals = '\0';
            g_strstrip(line);
            g_strstrip(equals + 1);
            if (ctl->format == VJ_CTL_JSON) {
                g_autofree char *in = vj_ctl_json_string(section);
                g_autofree char *key = vj_ctl_json_string(line);
                g_autofree char *value = vj_ctl_json_string(equals + 1);

                printf("%s{\"section\": %s, \"key\": %s, \"value\": %s, \"line\": %u}",
                       is_first ? "" : ", ", in, key, value, i + 1);
            } else {
                printf("%s%s%s=%s\t# %s:%u\n", section, *section != '\0' ? ": " : "",
                       line, equals + 1, path, i + 1);
            }
            is_first = false;
        }
    }
    printf("%s", ctl->format == VJ_CTL_JSON ? "]\n" : "");
}

/* ---- volumes ----------------------------------------------------------------------- */

/* Its checksum covers each line, so that there is one fault at most. */
static int check_volume(const VjCtl *ctl, const char *path, const char *text, gsize len)
{
    g_autoptr(GError) error = NULL;

    if (vj_volume_text_check(text, len, &error)) {
        return EXIT_SUCCESS;
    }
    vj_error_prefix(&error, "%s", path);
    return vj_cmd_fail(ctl->cmd, error);
}

/* ---- check and show ---------------------------------------------------------------- */

static int look_at(const VjCtl *ctl, const char *path, bool shows)
{
    g_autofree char *text = NULL, *in_directory = NULL;
    int status;
    gsize len;

    if (g_file_test(path, G_FILE_TEST_IS_DIR)) {
        in_directory = g_build_filename(path, "varjfs.conf", NULL);
        path = in_directory;
    }
    if (!read_file(ctl, path, &text, &len)) {
        return EXIT_FAILURE;
    }
    switch (kind_of(text)) {
    case CONFIG_CLIENT:
        return look_at_client(ctl, path, shows);
    case CONFIG_NODE:
        status = check_node(ctl, path, text, len);
        break;
    default:
        status = check_volume(ctl, path, text, len);
    }
    if (status == EXIT_SUCCESS && shows) {
        show_text(ctl, path, text);
    }
    return status;
}

/* ---- write ------------------------------------------------------------------------- */

static bool put_setting(const VjCtl *ctl, GString *to, const char *setting)
{
    if (strchr(setting, '=') == NULL || strchr(setting, '\n') != NULL) {
        vj_complain(ctl->cmd->name, "%s: neither key=value nor one line", setting);
        return false;
    }
    g_string_append_printf(to, "%s\n", setting);
    return true;
}

static int write_all(int fd, const char *text, size_t len)
{
    int rc = vj_fd_write_all(fd, text, len);

    return rc == 0 && fsync(fd) < 0 ? -errno : rc;
}

/* It is there as a whole or not at all, and replaces nothing unless that was asked. */
static int put_in_place(const VjCtl *ctl, const char *new_path, const char *path)
{
    int rc = ctl->is_forced ? rename(new_path, path) : link(new_path, path);

    return rc < 0 ? -errno : 0;
}

static int sync_directory(const char *path)
{
    g_autofree char *directory = g_path_get_dirname(path);
    VJ_AUTO_FD fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int write_file(const VjCtl *ctl, const char *path, const GString *text)
{
    g_autofree char *new_path = g_strdup_printf("%s.XXXXXX", path);
    VJ_AUTO_FD fd = g_mkstemp_full(new_path, O_WRONLY | O_CLOEXEC, 0600);
    Look look = {.ctl = ctl, .path = path};
    int rc;

    if (fd < 0) {
        return vj_cmd_fail_errno(ctl->cmd, path, errno);
    }
    rc = write_all(fd, text->str, text->len);
    if (rc == 0) {
        rc = varjfs_config_each(new_path, visit, &look);
    }
    if (rc == 0) {
        rc = put_in_place(ctl, new_path, path);
    }
    if (rc < 0 || !ctl->is_forced) {
        unlink(new_path);
    }
    if (rc == 0) {
        rc = sync_directory(path);
    }
    if (look.has_fault) {
        return EXIT_FAILURE; /* said by visit() */
    }
    if (rc == -EEXIST) {
        vj_complain(ctl->cmd->name, "%s: is there already (--force replaces it)", path);
        return EXIT_FAILURE;
    }
    return rc < 0 ? vj_cmd_fail_errno(ctl->cmd, path, -rc) : EXIT_SUCCESS;
}

static int write_config(const VjCtl *ctl, const char *path, char **settings)
{
    g_autoptr(GString) text = g_string_new("# varjfs-client.conf(5)\n[client]\n");

    if (*settings == NULL) {
        return vj_cmd_usage_error(ctl->cmd, NULL, "there is no KEY=VALUE");
    }
    for (char **s = settings; *s != NULL; s++) {
        if (!put_setting(ctl, text, *s)) {
            return EXIT_FAILURE;
        }
    }
    return write_file(ctl, path, text);
}

int vj_ctl_config(const VjCtl *ctl)
{
    const char *verb = ctl->operands[0], *path = ctl->operands[1];

    if (strcmp(verb, "write") == 0) {
        return ctl->format == VJ_CTL_TEXT
                   ? write_config(ctl, path, ctl->operands + 2)
                   : vj_cmd_usage_error(ctl->cmd, "--json", "is for show");
    }
    if (strcmp(verb, "check") != 0 && strcmp(verb, "show") != 0) {
        return vj_cmd_usage_error(ctl->cmd, verb, "none of check, show and write");
    }
    if (ctl->operands[2] != NULL) {
        return vj_cmd_usage_error(ctl->cmd, ctl->operands[2], "one argument too many");
    }
    if (ctl->is_forced) {
        return vj_cmd_usage_error(ctl->cmd, "--force", "is for write");
    }
    return look_at(ctl, path, strcmp(verb, "show") == 0);
}
