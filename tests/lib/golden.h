/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * golden.h - bytes that a format wrote, kept as tests/compat/NAME.hex
 *
 * The files are never changed: a difference means that volumes made before cannot be
 * read.  VARJFS_WRITE_GOLDEN=DIR writes what the test has instead, for records that are
 * new.  TOP_SRCDIR is defined by the makefile.
 */
#ifndef VJ_TESTS_LIB_GOLDEN_H
#define VJ_TESTS_LIB_GOLDEN_H

#include "test.h"

#include "base/base.h"

/* The bytes of a .hex file: hexadecimal digits and white space.  Owned. */
static inline GByteArray *golden_load(const char *name)
{
    g_autofree char *path = g_build_filename(TOP_SRCDIR, "tests/compat", name, NULL);
    g_autofree char *text = NULL;
    g_autoptr(GError) error = NULL;
    GByteArray *bytes = g_byte_array_new();
    int high = -1;

    if (!g_file_get_contents(path, &text, NULL, &error)) {
        fail_msg("%s", error->message);
    }
    for (const char *c = text; *c != '\0'; c++) {
        if (g_ascii_isspace(*c)) {
            continue;
        }
        assert_true(g_ascii_isxdigit(*c));
        if (high < 0) {
            high = g_ascii_xdigit_value(*c);
        } else {
            uint8_t byte = (uint8_t)(high << 4 | g_ascii_xdigit_value(*c));

            g_byte_array_append(bytes, &byte, 1);
            high = -1;
        }
    }
    assert_int_equal(high, -1);
    return bytes;
}

static inline void golden_write(const char *dir, const char *name, VjSlice bytes)
{
    g_autofree char *path = g_build_filename(dir, name, NULL);
    g_autoptr(GString) text = g_string_new(NULL);
    const uint8_t *at = bytes.data;

    for (size_t i = 0; i < bytes.len; i++) {
        g_string_append_printf(text, "%02x%s", at[i],
                               i % 32 == 31 || i + 1 == bytes.len ? "\n" : "");
    }
    assert_true(g_file_set_contents(path, text->str, -1, NULL));
}

/* @bytes are exactly what the file holds. */
static inline void golden_expect(const char *name, VjSlice bytes)
{
    const char *write_to = g_getenv("VARJFS_WRITE_GOLDEN");
    g_autoptr(GByteArray) golden = NULL;

    if (write_to != NULL) {
        golden_write(write_to, name, bytes);
    }
    golden = golden_load(name);
    assert_int_equal(bytes.len, golden->len);
    assert_memory_equal(bytes.data, golden->data, golden->len);
}

#endif
