/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * A superblock from any bytes: as they are, and again with a checksum line put right, so
 * that what lies behind it is reached.  What is accepted is written so that it is
 * accepted again with the same meaning.
 */
#include "fuzz.h"

#include "volume/volume-private.h"

static void try_parse(const char *text, size_t len)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *once = NULL, *twice = NULL;
    VjSuperblock s, again;

    if (!vj_superblock_parse(text, len, &s, &error)) {
        g_assert(error != NULL && error->code > 0);
        g_assert(s.uuid == NULL && s.store == NULL);
        return;
    }
    once = vj_superblock_format(&s);
    g_assert(vj_superblock_parse(once, strlen(once), &again, &error));
    twice = vj_superblock_format(&again);
    g_assert(strcmp(once, twice) == 0);
    g_assert(s.sizes.min_bytes <= s.sizes.avg_bytes && s.chunk_seed == again.chunk_seed);
    vj_superblock_clear(&s);
    vj_superblock_clear(&again);
}

FUZZ_MUTATIONS(400);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    g_autofree char *text = g_malloc(len + 1), *forged = NULL;
    char *sum;

    /* As vj_file_read_small gives it: a NUL follows. */
    memcpy(text, data, len);
    text[len] = '\0';
    try_parse(text, len);
    sum = strstr(text, "checksum = ");
    if (sum != NULL) {
        *sum = '\0';
    }
    forged = g_strdup_printf("%schecksum = %016" G_GINT64_MODIFIER "x\n", text,
                             vj_checksum64(text, strlen(text)));
    try_parse(forged, strlen(forged));
    return 0;
}
