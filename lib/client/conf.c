/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * conf.c - configurations of clients: where a volume is, and with what to connect
 *
 * A text file with the section "[client]" and lines "key = value", each key once; lines
 * that begin with '#' or ';' are comments.  Paths are below the directory of the file
 * unless they are absolute.  All faults are found, each with its line.
 */
#include "client-private.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX ((size_t)64 << 10)
#define SECTION "[client]"
#define TIMEOUT_SECONDS_MAX 86400L

typedef enum Kind {
    KIND_TEXT,
    KIND_SOURCE, /* a path, or an address, whose path it may be */
    KIND_PATH,
    KIND_PROGRAM, /* a path where it has a slash */
    KIND_VOLUME,
    KIND_SECONDS,
    KIND_SWITCH,
    KINDS,
} Kind;

static const struct setting {
    const char *key;
    Kind kind;
} settings[VJC_CONF_SETTINGS] = {
    [VJC_CONF_SOURCE] = {"source", KIND_SOURCE},
    [VJC_CONF_VOLUME] = {"volume", KIND_VOLUME},
    [VJC_CONF_KEY] = {"key", KIND_PATH},
    [VJC_CONF_IDENTITY] = {"identity", KIND_TEXT},
    [VJC_CONF_CERTIFICATE] = {"certificate", KIND_PATH},
    [VJC_CONF_CERTIFICATE_KEY] = {"certificate_key", KIND_PATH},
    [VJC_CONF_CA] = {"ca", KIND_PATH},
    [VJC_CONF_DAEMON] = {"daemon", KIND_PROGRAM},
    [VJC_CONF_TIMEOUT] = {"timeout", KIND_SECONDS},
    [VJC_CONF_READ_ONLY] = {"read_only", KIND_SWITCH},
};

typedef struct Parse {
    VjcConf *conf;
    const char *path;
    size_t directory_len; /* of path, with its slash */
    varjfs_config_visit *visit;
    void *opaque;
    unsigned line, section_line;
    bool has_fault, has_section;
    int rc; /* of memory */
} Parse;

static void fault(Parse *p, unsigned line, const char *key, const char *text)
{
    p->has_fault = true;
    p->visit(p->opaque, line, key, NULL, text);
}

/* ---- values ------------------------------------------------------------------------ */

static bool is_seconds(const char *text)
{
    char *end;
    long seconds;

    if (*text < '0' || *text > '9' || strlen(text) > 6) {
        return false;
    }
    seconds = strtol(text, &end, 10);
    return *end == '\0' && seconds >= 1 && seconds <= TIMEOUT_SECONDS_MAX;
}

static const char *value_fault(Kind kind, const char *value)
{
    if (*value == '\0') {
        return "there is no value";
    }
    switch (kind) {
    case KIND_VOLUME:
        return vjc_is_volume_name(value) ? NULL
                                         : "no name of a volume: at most 63 letters, "
                                           "digits, '.', '_' and '-'";
    case KIND_SECONDS:
        return is_seconds(value) ? NULL : "no number of seconds, 1 to 86400";
    case KIND_SWITCH:
        return strcmp(value, "yes") == 0 || strcmp(value, "no") == 0
                   ? NULL
                   : "neither yes nor no";
    case KIND_SOURCE:
        return vjc_source_fault(value);
    default:
        return NULL;
    }
}

/* Bytes of @value that stand before a path; SIZE_MAX: there is none in it. */
static size_t path_begin(Kind kind, const char *value)
{
    switch (kind) {
    case KIND_SOURCE:
        if (strncmp(value, "unix:", 5) == 0) {
            return 5;
        }
        return strncmp(value, "tls:", 4) == 0 ? SIZE_MAX : 0;
    case KIND_PATH:
        return 0;
    case KIND_PROGRAM:
        return strchr(value, '/') != NULL ? 0 : SIZE_MAX;
    default:
        return SIZE_MAX;
    }
}

/* The value with its path made one of the file's directory; NULL: no memory. */
static char *resolve(const Parse *p, Kind kind, const char *value)
{
    size_t begin = path_begin(kind, value), size;
    char *out;

    if (begin == SIZE_MAX || value[begin] == '/') {
        return strdup(value);
    }
    size = strlen(value) + p->directory_len + 1;
    out = malloc(size);
    if (out != NULL) {
        snprintf(out, size, "%.*s%.*s%s", (int)begin, value, (int)p->directory_len,
                 p->path, value + begin);
    }
    return out;
}

/* ---- lines ------------------------------------------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Without what stands around it; in place. */
static char *strip(char *text)
{
    size_t len;

    while (is_space(*text)) {
        text++;
    }
    len = strlen(text);
    while (len > 0 && is_space(text[len - 1])) {
        text[--len] = '\0';
    }
    return text;
}

static void take_setting(Parse *p, const char *key, const char *value)
{
    size_t at = 0;
    const char *why;

    while (at < VJC_CONF_SETTINGS && strcmp(settings[at].key, key) != 0) {
        at++;
    }
    if (at == VJC_CONF_SETTINGS) {
        fault(p, p->line, key, "no such setting");
        return;
    }
    if (p->conf->lines[at] != 0) {
        fault(p, p->line, key, "stands there twice");
        return;
    }
    p->conf->lines[at] = p->line;
    why = value_fault(settings[at].kind, value);
    if (why != NULL) {
        fault(p, p->line, key, why);
        return;
    }
    p->conf->values[at] = resolve(p, settings[at].kind, value);
    if (p->conf->values[at] == NULL) {
        p->rc = -ENOMEM;
        return;
    }
    p->visit(p->opaque, p->line, settings[at].key, p->conf->values[at], NULL);
}

static void take_line(Parse *p, char *line)
{
    char *equals;

    line = strip(line);
    if (*line == '\0' || *line == '#' || *line == ';') {
        return;
    }
    if (*line == '[') {
        if (strcmp(line, SECTION) != 0) {
            fault(p, p->line, NULL,
                  "no section of a client's configuration: it is [client]");
        } else if (p->has_section) {
            fault(p, p->line, NULL, "there is a section [client] already");
        }
        p->section_line = p->has_section ? p->section_line : p->line;
        p->has_section = true;
        return;
    }
    equals = strchr(line, '=');
    if (equals == NULL) {
        fault(p, p->line, NULL, "neither a section nor \"key = value\"");
        return;
    }
    *equals = '\0';
    if (!p->has_section) {
        fault(p, p->line, strip(line), "stands before the section [client]");
        p->has_section = true; /* said once */
    }
    take_setting(p, strip(line), strip(equals + 1));
}

/* What goes together; the values by themselves are good. */
static void check_whole(Parse *p)
{
    char *const *v = p->conf->values;
    const unsigned *lines = p->conf->lines;
    const char *source = v[VJC_CONF_SOURCE];
    bool is_tls = source != NULL && strncmp(source, "tls:", 4) == 0;
    bool is_unix = source != NULL && strncmp(source, "unix:", 5) == 0;
    bool has_certificate = lines[VJC_CONF_CERTIFICATE] != 0 ||
                           lines[VJC_CONF_CERTIFICATE_KEY] != 0 ||
                           lines[VJC_CONF_CA] != 0;
    unsigned at = p->section_line != 0 ? p->section_line : 1;

    if (lines[VJC_CONF_SOURCE] == 0) {
        fault(p, at, "source", "is missing");
    }
    if (source == NULL) {
        return;
    }
    at = lines[VJC_CONF_SOURCE];
    if ((is_tls || is_unix) && lines[VJC_CONF_VOLUME] == 0) {
        fault(p, at, "volume", "is missing: the source is an address");
    }
    if (!is_tls && !is_unix && lines[VJC_CONF_VOLUME] != 0) {
        fault(p, lines[VJC_CONF_VOLUME], "volume",
              "is for addresses: the source is a "
              "directory");
    }
    if ((is_tls || is_unix) && lines[VJC_CONF_DAEMON] != 0) {
        fault(p, lines[VJC_CONF_DAEMON], "daemon",
              "is for directories: the source is an "
              "address");
    }
    for (size_t i = VJC_CONF_KEY; i <= VJC_CONF_CA; i++) {
        if (!is_tls && lines[i] != 0) {
            fault(p, lines[i], settings[i].key, "is for TLS: the source is no tls:HOST");
        }
    }
    if (!is_tls) {
        return;
    }
    if (lines[VJC_CONF_KEY] == 0 && !has_certificate) {
        fault(p, at, "key", "is missing, and so are certificate, certificate_key and ca");
    }
    if (lines[VJC_CONF_KEY] != 0 && has_certificate) {
        fault(p, lines[VJC_CONF_KEY], "key", "and certificates: give one of them");
    }
    if (lines[VJC_CONF_KEY] == 0 && lines[VJC_CONF_IDENTITY] != 0) {
        fault(p, lines[VJC_CONF_IDENTITY], "identity", "is for a key");
    }
    for (size_t i = VJC_CONF_CERTIFICATE; i <= VJC_CONF_CA; i++) {
        if (has_certificate && lines[i] == 0) {
            fault(p, at, settings[i].key,
                  "is missing: certificate, certificate_key and ca go together");
        }
    }
}

/* @text ends with a NUL, and is changed. */
static void parse(Parse *p, char *text, size_t len)
{
    char *line = text;

    while (p->rc == 0 && line < text + len) {
        char *end = memchr(line, '\n', (size_t)(text + len - line));
        size_t line_len =
            end != NULL ? (size_t)(end - line) : (size_t)(text + len - line);

        p->line++;
        line[line_len] = '\0';
        if (strlen(line) != line_len) {
            fault(p, p->line, NULL, "there is a NUL byte");
        } else {
            take_line(p, line);
        }
        line += line_len + 1;
    }
    if (p->rc == 0) {
        check_whole(p);
    }
}

/* ---- the file ---------------------------------------------------------------------- */

/* Owned; NULL with *rc. */
static char *read_text(int fd, size_t *len, int *rc)
{
    char *text = malloc(FILE_MAX + 2);

    *rc = -ENOMEM;
    *len = 0;
    while (text != NULL) {
        ssize_t got = read(fd, text + *len, FILE_MAX + 1 - *len);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        *rc = got < 0 ? -errno : 0;
        if (got <= 0) {
            break;
        }
        *len += (size_t)got;
    }
    if (text != NULL && *len > FILE_MAX) {
        *rc = -EFBIG;
    }
    if (*rc != 0) {
        free(text);
        return NULL;
    }
    text[*len] = '\0';
    return text;
}

static int open_text(const char *path, char **out, size_t *len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), rc = 0;
    struct stat st;

    *out = NULL;
    if (fd < 0) {
        return -errno;
    }
    if (fstat(fd, &st) != 0) {
        rc = -errno;
    } else if (!S_ISREG(st.st_mode)) {
        rc = S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    } else if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        rc = -EPERM; /* whoever may write it decides which program is started */
    } else {
        *out = read_text(fd, len, &rc);
    }
    close(fd);
    return rc;
}

static const char *open_fault(int rc)
{
    switch (rc) {
    case -EPERM:
        return "others than its owner may write it (chmod go-w)";
    case -EFBIG:
        return "is too long for a configuration";
    case -EINVAL:
        return "is neither a file nor a directory";
    default:
        return varjfs_strerror(rc);
    }
}

int vjc_conf_load(const char *path, VjcConf *out, varjfs_config_visit *visit,
                  void *opaque)
{
    const char *slash = strrchr(path, '/');
    Parse p = {.conf = out, .path = path, .visit = visit, .opaque = opaque};
    size_t len = 0;
    char *text;

    *out = (VjcConf){.lines = {0}};
    p.directory_len = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    p.rc = open_text(path, &text, &len);
    if (p.rc != 0) {
        visit(opaque, 0, NULL, NULL, open_fault(p.rc));
        return p.rc == -EPERM ? -EACCES : p.rc;
    }
    parse(&p, text, len);
    free(text);
    if (p.rc == 0 && p.has_fault) {
        p.rc = -EINVAL;
    }
    if (p.rc != 0) {
        vjc_conf_free(out);
    }
    return p.rc;
}

void vjc_conf_free(VjcConf *conf)
{
    for (size_t i = 0; i < VJC_CONF_SETTINGS; i++) {
        free(conf->values[i]);
        conf->values[i] = NULL;
    }
}

int varjfs_config_each(const char *path, varjfs_config_visit *visit, void *opaque)
{
    VjcConf conf;
    int rc = vjc_conf_load(path, &conf, visit, opaque);

    if (rc == 0) {
        vjc_conf_free(&conf);
    }
    return rc;
}
