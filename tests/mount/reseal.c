/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * reseal.c - reseal FILE: a superblock that a test has edited gets the checksum that fits
 * it
 */
#include "base/base.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    g_autofree char *text = NULL;
    g_autofree char *sealed = NULL;
    char *line;

    if (argc != 2 || !g_file_get_contents(argv[1], &text, NULL, NULL) ||
        (line = g_strrstr(text, "\nchecksum = ")) == NULL) {
        fprintf(stderr, "usage: reseal FILE\n");
        return 2;
    }
    line[1] = '\0';
    sealed = g_strdup_printf("%schecksum = %016" G_GINT64_MODIFIER "x\n", text,
                             vj_checksum64(text, strlen(text)));
    return g_file_set_contents(argv[1], sealed, -1, NULL) ? 0 : 1;
}
