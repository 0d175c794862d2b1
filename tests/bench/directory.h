/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* directory.h - directories that programs of this directory work in */
#ifndef VJ_TESTS_BENCH_DIRECTORY_H
#define VJ_TESTS_BENCH_DIRECTORY_H

#include <glib.h>
#include <unistd.h>

/* With all that is in it. */
static inline void remove_directory(const char *path)
{
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    const char *name;

    while (dir != NULL && (name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *below = g_build_filename(path, name, NULL);

        if (g_file_test(below, G_FILE_TEST_IS_DIR)) {
            remove_directory(below);
        } else {
            unlink(below);
        }
    }
    rmdir(path);
}

#endif
