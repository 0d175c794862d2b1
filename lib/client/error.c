/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * error.c - statuses, texts, the version
 */
#include "client-private.h"

#include <stdio.h>

/* Kept small, and in the static block of each thread (no memory is taken when a thread
 * first comes here, which could fail). */
#define TEXT_BYTES 240
static _Thread_local char open_error[TEXT_BYTES]
    __attribute__((tls_model("initial-exec")));

const char *varjfs_version(void)
{
    return VARJFS_VERSION;
}

const char *varjfs_open_error(void)
{
    return open_error;
}

void vjc_set_open_error(const char *text, const void *detail, size_t detail_len)
{
    const unsigned char *from = detail;
    size_t used;
    int len = snprintf(open_error, sizeof open_error, "%s", text);

    if (len < 0 || (size_t)len >= sizeof open_error || detail == NULL) {
        return;
    }
    used = (size_t)len;
    if (detail_len > 0 && used + 2 < sizeof open_error) {
        open_error[used++] = ':';
        open_error[used++] = ' ';
    }
    for (size_t i = 0; i < detail_len && used + 1 < sizeof open_error; i++) {
        /* What a terminal obeys, and half a character at the end, says nothing. */
        open_error[used++] = (char)(from[i] < ' ' || from[i] >= 0x7f ? '?' : from[i]);
    }
    open_error[used] = '\0';
}

bool vjc_is_structure(const void *structure, size_t least, size_t ours)
{
    const uint8_t *bytes = structure;
    size_t size;

    memcpy(&size, structure, sizeof size);
    if (size < least || size > VJC_STRUCT_MAX) {
        return false;
    }
    for (size_t i = ours; i < size; i++) {
        if (bytes[i] != 0) {
            return false; /* a member of a later version, which is set */
        }
    }
    return true;
}

int vjc_status_errno(uint32_t status)
{
    static const int of_frames[] = {
        0,         ENOENT,    EBADMSG, EIO,    ENOSPC,  EDQUOT,    EROFS,
        ETIMEDOUT, EAGAIN,    ESTALE,  ENOMEM, ENOTSUP, EACCES,    EPROTO,
        EBUSY,     ECANCELED, EFBIG,   ENXIO,  ENODATA, ESHUTDOWN,
    };

    switch (status) {
    case VARJFS_WIRE_EXISTS:
        return -EEXIST;
    case VARJFS_WIRE_NAMESPACE:
    case VARJFS_WIRE_SETTING:
        return -EINVAL;
    case VARJFS_WIRE_RANGE:
        return -ERANGE;
    case VARJFS_WIRE_NOT_ATOMIC:
        return -ENOTSUP;
    case VARJFS_WIRE_RESERVED:
        return -EPERM;
    case VARJFS_WIRE_NO_ATTRIBUTE:
        return -ENODATA;
    default:
        /* One of a later version fails its operation, and no more. */
        return status < sizeof of_frames / sizeof *of_frames ? -of_frames[status] : -EIO;
    }
}

const char *varjfs_strerror(int error)
{
    static const struct {
        int error;
        const char *text;
    } texts[] = {
        {0, "no error"},
        {E2BIG, "an atomic batch has too many operations"},
        {EACCES, "not permitted"},
        {EAGAIN, "not now: try again"},
        {EBADMSG, "stored bytes are damaged"},
        {EBUSY, "in use, or too much is on its way"},
        {ECANCELED, "canceled, or behind an operation that failed"},
        {ECONNREFUSED, "no daemon answers there"},
        {ECONNRESET, "the connection to the daemon was lost"},
        {EDQUOT, "quota exceeded"},
        {EEXIST, "it exists already"},
        {EFBIG, "too large"},
        {EHOSTUNREACH, "the host cannot be reached"},
        {EINVAL, "invalid argument or name"},
        {EIO, "input/output error"},
        {EMFILE, "too many open files in this process"},
        {ENAMETOOLONG, "the path is too long"},
        {ENFILE, "too many open files in this system"},
        {ENODATA, "there is no such attribute, or no volume"},
        {ENOENT, "no such object, key or volume"},
        {ENOMEM, "no memory"},
        {ENOSPC, "no space left"},
        {ENOTDIR, "not a directory"},
        {ENOTEMPTY, "there are directories in it that no client has made"},
        {ENOTSUP, "not supported"},
        {ENXIO, "it belongs to another volume"},
        {EPERM, "a name that is reserved"},
        {EPROTO, "the other side speaks another protocol, or breaks it"},
        {EPROTONOSUPPORT, "no address of a kind that is known here"},
        {ERANGE, "the value is longer than the buffer"},
        {EROFS, "the volume is read-only"},
        {ESHUTDOWN, "the daemon is about to end"},
        {ESTALE, "shut out by another one"},
        {ETIMEDOUT, "the daemon did not answer in time"},
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (error == -texts[i].error) {
            return texts[i].text;
        }
    }
    return "another error of the system";
}
