/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * key-file.c - files of keys and certificates, and who may read and write them
 *
 * A file is opened once and examined by its descriptor, so that what is examined is what
 * is read.  What was secret is overwritten before its memory is freed.
 */
#include "rpc/credentials-private.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The line of a key's file: this, and the key in hexadecimal. */
#define KEY_PREFIX "varjfs-key-1:"
#define KEY_DIGITS (2 * sizeof(VjKey256))
#define KEY_FILE_MAX ((size_t)4096)

/* Permission bits that a file must not have; of an ACL they have its mask. */
#define FORBIDDEN_SECRET (S_IRWXG | S_IRWXO)
#define FORBIDDEN_OTHER (S_IWGRP | S_IWOTH)

void vj_key_forget(void *key, size_t len)
{
    OPENSSL_cleanse(key, len);
}

void vj_credential_free(char *text, size_t len)
{
    if (text != NULL) {
        OPENSSL_cleanse(text, len);
        free(text);
    }
}

static bool check_file(const char *path, const struct stat *st, bool is_secret,
                       size_t max, GError **error)
{
    unsigned mode = st->st_mode & 07777;

    if (!S_ISREG(st->st_mode)) {
        return vj_error_set(error, EINVAL, "%s: is no regular file", path);
    }
    if (is_secret && (mode & FORBIDDEN_SECRET) != 0) {
        return vj_error_set(error, EACCES,
                            "%s: has mode %04o, and others than its owner must not read "
                            "or write a key (chmod 600)",
                            path, mode);
    }
    if ((mode & FORBIDDEN_OTHER) != 0) {
        return vj_error_set(error, EACCES,
                            "%s: has mode %04o, and others than its owner must not write "
                            "it (chmod go-w)",
                            path, mode);
    }
    if (st->st_size < 0 || (uint64_t)st->st_size > max) {
        return vj_error_set(error, EFBIG, "%s: has more than %zu bytes", path, max);
    }
    return true;
}

char *vj_credential_read(int dir_fd, const char *path, bool is_secret, size_t max,
                         size_t *len, GError **error)
{
    /* Neither a fifo without a writer nor a terminal holds it up or becomes ours. */
    VJ_AUTO_FD fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;
    char *text;
    int rc;

    *len = 0;
    if (fd < 0 || fstat(fd, &st) < 0) {
        vj_error_set_errno(error, errno, "%s", path);
        return NULL;
    }
    if (!check_file(path, &st, is_secret, max, error)) {
        return NULL;
    }
    text = malloc((size_t)st.st_size + 1);
    if (text == NULL) {
        vj_error_set_errno(error, ENOMEM, "%s", path);
        return NULL;
    }
    rc = vj_fd_pread_all(fd, text, (size_t)st.st_size, 0);
    if (rc < 0) {
        vj_credential_free(text, (size_t)st.st_size);
        vj_error_set_errno(error, -rc, "%s", path);
        return NULL;
    }
    text[st.st_size] = '\0';
    *len = (size_t)st.st_size;
    return text;
}

bool vj_credential_write(int dir_fd, const char *path, const char *src, size_t len,
                         mode_t mode, GError **error)
{
    VJ_AUTO_FD fd =
        openat(dir_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc;

    if (fd < 0) {
        return vj_error_set_errno(error, errno, "%s", path);
    }
    rc = vj_fd_write_all(fd, src, len);
    if (rc == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0)) {
        rc = -errno;
    }
    if (rc < 0) {
        unlinkat(dir_fd, path, 0);
        return vj_error_set_errno(error, -rc, "%s", path);
    }
    return true;
}

/* ---- pre-shared keys --------------------------------------------------------------- */

char *vj_key_new_text(void)
{
    VjKey256 key;
    char *text = g_malloc(strlen(KEY_PREFIX) + KEY_DIGITS + sizeof "\n");
    char *at = g_stpcpy(text, KEY_PREFIX);

    vj_random_bytes(&key, sizeof key);
    for (size_t i = 0; i < sizeof key; i++) {
        *at++ = "0123456789abcdef"[key.bytes[i] >> 4];
        *at++ = "0123456789abcdef"[key.bytes[i] & 15];
    }
    strcpy(at, "\n");
    vj_key_forget(&key, sizeof key);
    return text;
}

/* @text of @len bytes is one line with a key, whose end may be missing. */
static bool parse_key(const char *text, size_t len, VjKey256 *out)
{
    size_t prefix = strlen(KEY_PREFIX);

    if (len > 0 && text[len - 1] == '\n') {
        len--;
    }
    if (len != prefix + KEY_DIGITS || memcmp(text, KEY_PREFIX, prefix) != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof out->bytes; i++) {
        int high = g_ascii_xdigit_value(text[prefix + 2 * i]);
        int low = g_ascii_xdigit_value(text[prefix + 2 * i + 1]);

        if (high < 0 || low < 0) {
            return false;
        }
        out->bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

bool vj_key_load(int dir_fd, const char *path, VjKey256 *out, GError **error)
{
    size_t len;
    char *text = vj_credential_read(dir_fd, path, true, KEY_FILE_MAX, &len, error);
    bool is_key;

    if (text == NULL) {
        return false;
    }
    is_key = parse_key(text, len, out);
    vj_credential_free(text, len);
    if (!is_key) {
        vj_key_forget(out, sizeof *out);
        return vj_error_set(error, EINVAL,
                            "%s: is no key: it must be one line, as varjfsctl keygen "
                            "writes it",
                            path);
    }
    return true;
}

bool vj_key_write_new(int dir_fd, const char *path, GError **error)
{
    char *text = vj_key_new_text();
    size_t len = strlen(text);
    bool done = vj_credential_write(dir_fd, path, text, len, 0600, error);

    vj_key_forget(text, len);
    g_free(text);
    return done;
}
