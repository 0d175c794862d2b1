/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Tokens: the object id in the first 8 bytes, big-endian, then zeros
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5-private.h"

void vjh_id_token(uint64_t id, H5O_token_t *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < 8; i++) {
        out->__data[i] = (uint8_t)(id >> (56 - 8 * i));
    }
}

int vjh_token_id(const H5O_token_t *token, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < 8; i++) {
        *out = *out << 8 | token->__data[i];
    }
    for (int i = 8; i < H5O_MAX_TOKEN_SIZE; i++) {
        if (token->__data[i]) {
            *out = 0;
        }
    }
    return *out ? 0 : vjh_error(-EINVAL, "the token is none of this connector's");
}

static herr_t token_cmp(void *obj, const H5O_token_t *a, const H5O_token_t *b, int *out)
{
    (void)obj;
    *out = 0;
    if (!a || !b) {
        *out = (a != NULL) - (b != NULL);
    } else {
        *out = memcmp(a, b, sizeof *a);
    }
    return 0;
}

static herr_t token_to_str(void *obj, H5I_type_t type, const H5O_token_t *token,
                           char **out)
{
    uint64_t id;

    (void)obj;
    (void)type;
    *out = NULL;
    if (vjh_token_id(token, &id) != 0) {
        VJH_RETURN(-EINVAL);
    }
    *out = H5allocate_memory(17, false); /* HDF5 frees it */
    if (!*out) {
        VJH_RETURN(-ENOMEM);
    }
    snprintf(*out, 17, "%016" PRIx64, id);
    return 0;
}

static herr_t token_from_str(void *obj, H5I_type_t type, const char *s,
                             H5O_token_t *token)
{
    char *end;
    uint64_t id;

    (void)obj;
    (void)type;
    errno = 0;
    id = strtoull(s, &end, 16);
    if (errno != 0 || end == s || *end || !id) {
        VJH_RETURN(vjh_error(-EINVAL, "%.40s: no token of this connector", s));
    }
    vjh_id_token(id, token);
    return 0;
}

const H5VL_token_class_t vjh_token_class = {
    .cmp = token_cmp,
    .to_str = token_to_str,
    .from_str = token_from_str,
};
