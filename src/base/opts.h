/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * opts.h - "K=V,K=V" by table: one table feeds parser, --help and the man-page check
 *
 * Values are kept as text and checked against the table when parsed, so that a driver's
 * open() reads only valid ones.  A comma or backslash inside a value is written "\,"
 * "\\".  Threads: any once parsed (read-only).  Locks: none.
 */
#ifndef VJ_BASE_OPTS_H
#define VJ_BASE_OPTS_H

typedef enum VjOptType {
    VJ_OPT_FLAG, /* "name" or "name=yes|no" */
    VJ_OPT_STRING,
    VJ_OPT_SIZE,   /* bytes, suffix K M G T (binary) */
    VJ_OPT_NUMBER, /* decimal unsigned */
    VJ_OPT_CHOICE, /* one of @choices, separated by '|' */
} VjOptType;

typedef struct VjOptSpec {
    const char *name; /* NULL ends a table */
    VjOptType type;
    const char *fallback; /* default as text; NULL: none */
    uint64_t min, max;    /* SIZE and NUMBER, inclusive; max 0: no upper bound */
    const char *choices;  /* CHOICE; STRING: what a value begins with, for --help alone */
    const char *help;     /* one line, states the unit */
    bool leads; /* STRING; its value may stand before all settings: vj_opts_parse_spec */
    bool is_file;   /* STRING: the name of a file that its user reads */
    bool is_device; /* STRING: the name of a device or file that its user writes */
    bool is_spec;   /* STRING: "NAME:K=V,…" of a driver; see vj_opts_parse */
} VjOptSpec;

typedef struct VjOpts VjOpts;

VjOpts *vj_opts_new(const VjOptSpec *specs); /* specs are borrowed for ever (static) */
void vj_opts_free(VjOpts *o);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjOpts, vj_opts_free)

/*
 * Later settings win; those before a mistake stay.  Unknown name, wrong type or range:
 * false and one clear line.  Behind a value of a row with is_spec that has a colon,
 * elements that begin with no name of the table belong to that value, so that its commas
 * need not be escaped.
 */
bool vj_opts_parse(VjOpts *o, const char *text, GError **error);
/*
 * vj_opts_parse_spec - "K=V,…" of a driver, before which "LEADER" or "LEADER:" may stand
 *
 * Of a table without a row that leads: as vj_opts_parse.  Else the settings begin at the
 * start of @text, or behind its first colon, behind which the name of an option and "="
 * follow, or the name of a FLAG that ends there; what is before them is the value of the
 * row that leads, as it is, commas and colons included.
 */
bool vj_opts_parse_spec(VjOpts *o, const char *text, GError **error);
/* What vj_opts_parse_spec reads the same settings from: those that were set, and not
 * defaulted.  Owned. */
char *vj_opts_spec_text(const VjOpts *o);
/* @value is the plain text, nothing escaped; NULL: as "name" without "=". */
bool vj_opts_set(VjOpts *o, const char *name, const char *value, GError **error);
/* As if it had never been set. */
void vj_opts_unset(VjOpts *o, const char *name);

/* False when @name is in no spec of @o (a programmer's error for the getters below). */
bool vj_opts_has_spec(const VjOpts *o, const char *name);
/* True when it was set, not defaulted. */
bool vj_opts_is_set(const VjOpts *o, const char *name);

/* Set value, else fallback, else NULL / 0 / false.  Borrowed. */
const char *vj_opts_string(const VjOpts *o, const char *name);
uint64_t vj_opts_number(const VjOpts *o, const char *name); /* NUMBER and SIZE */
bool vj_opts_flag(const VjOpts *o, const char *name);

/* The row that leads, NULL: none. */
const VjOptSpec *vj_opts_leader(const VjOptSpec *specs);
/* Names of files that are used besides what is in a directory of their user's own. */
typedef struct VjOptFiles {
    GPtrArray *read, *written; /* of strings, which they own */
} VjOptFiles;

VjOptFiles *vj_opt_files_new(void);
void vj_opt_files_free(VjOptFiles *f); /* NULL is fine */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjOptFiles, vj_opt_files_free)

/* The values of all rows with is_file or is_device that have one, appended. */
void vj_opts_files(const VjOpts *o, VjOptFiles *files);

/* "  name=SIZE   help (default X)" per line; owned. */
char *vj_opts_help(const VjOptSpec *specs);

/* "64K" → 65536; decimal with optional K M G T (binary), nothing else. */
bool vj_parse_size(const char *text, uint64_t *bytes, GError **error);

#endif
