/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * session-format.c - see session-format.h
 */
#include "meta/session-format.h"

#define MAGIC_BYTES 4u
#define NAME_BYTES (VJ_SESSION_NAME_MAX + 1u)

static const char session_magic[] = "VJss", holder_magic[] = "VJsh";
static const char *const number_magics[] = {
    [VJ_NUMBER_NEXT_SESSION] = "VJsn", [VJ_NUMBER_COMMIT] = "VJsc",
    [VJ_NUMBER_EPOCH] = "VJse",        [VJ_NUMBER_LEASE] = "VJsl",
    [VJ_NUMBER_INDEX] = "VJci",        [VJ_NUMBER_CLAIM] = "VJcl",
    [VJ_NUMBER_HOLDS] = "VJch",
};

/* Of the key followed by @len bytes of the value. */
static uint64_t checksum(VjSlice key, const uint8_t *value, size_t len)
{
    uint8_t bytes[VJ_META_KEY_MAX + VJ_SESSION_RECORD_BYTES];

    g_assert(key.len <= VJ_META_KEY_MAX && len <= VJ_SESSION_RECORD_BYTES);
    memcpy(bytes, key.data, key.len);
    memcpy(bytes + key.len, value, len);
    return vj_checksum64(bytes, key.len + len);
}

/* ---- Keys ------------------------------------------------------------------------ */

VjSessionKey vj_session_key(uint64_t id)
{
    VjSessionKey key = {.len = VJ_SESSION_KEY_BYTES};

    vj_be64_set(key.bytes, id);
    return key;
}

VjSessionKey vj_session_sub_key(uint64_t id, char sub)
{
    VjSessionKey key = vj_session_key(id);

    key.bytes[key.len++] = (uint8_t)sub;
    return key;
}

VjSessionKey vj_claim_key(VjClaimKind kind, uint64_t number)
{
    VjSessionKey key = {.bytes = {(uint8_t)kind}, .len = VJ_CLAIM_KEY_BYTES};

    vj_be64_set(key.bytes + 1, number);
    return key;
}

VjSessionKey vj_hold_key(uint64_t object, uint64_t session)
{
    VjSessionKey key = vj_claim_key(VJ_CLAIM_HOLD, object);

    vj_be64_set(key.bytes + key.len, session);
    key.len = VJ_HOLD_KEY_BYTES;
    return key;
}

VjSessionKey vj_claim_index_key(uint64_t session, VjClaimKind kind, uint64_t number)
{
    VjSessionKey key = {.bytes = {VJ_CLAIM_INDEX}, .len = VJ_CLAIM_INDEX_KEY_BYTES};

    vj_be64_set(key.bytes + 1, session);
    key.bytes[9] = (uint8_t)kind;
    vj_be64_set(key.bytes + 10, number);
    return key;
}

/* ---- Values ---------------------------------------------------------------------- */

VjSessionRecord vj_session_record_of(uint64_t id, VjSessionKind kind, const char *name)
{
    VjSessionRecord record = {.id = id, .kind = kind, .state = VJ_SESSION_LIVE};

    g_strlcpy(record.name, name != NULL ? name : "", sizeof record.name);
    return record;
}

void vj_session_encode(const VjSessionRecord *record,
                       uint8_t out[VJ_SESSION_RECORD_BYTES])
{
    VjSessionKey key = vj_session_key(record->id);
    uint8_t name[NAME_BYTES] = {0};
    size_t name_bytes = strlen(record->name);
    VjWriter w = vj_writer(out, VJ_SESSION_RECORD_BYTES);

    g_assert(record->id > 0 && name_bytes <= VJ_SESSION_NAME_MAX);
    memcpy(name, record->name, name_bytes);
    vj_write_bytes(&w, session_magic, MAGIC_BYTES);
    vj_write_u8(&w, VJ_SESSION_FORMAT_VERSION);
    vj_write_u8(&w, (uint8_t)record->state);
    vj_write_u8(&w, (uint8_t)record->kind);
    vj_write_u8(&w, (uint8_t)name_bytes);
    vj_write_u64(&w, record->id);
    vj_write_bytes(&w, name, sizeof name);
    vj_write_u64(&w, checksum(vj_session_key_slice(&key), out, w.used));
    g_assert(!w.bad && w.used == VJ_SESSION_RECORD_BYTES);
}

/* The name has @len bytes, none of them zero, and zeroes behind them. */
static bool is_name(const uint8_t *name, size_t len)
{
    for (size_t i = 0; i < NAME_BYTES; i++) {
        if ((name[i] != 0) != (i < len)) {
            return false;
        }
    }
    return true;
}

int vj_session_decode(VjSlice key, VjSlice value, VjSessionRecord *out)
{
    VjReader r = vj_reader(value);
    VjSlice magic = vj_read_bytes(&r, MAGIC_BYTES), name;
    uint8_t version = vj_read_u8(&r), state = vj_read_u8(&r), kind = vj_read_u8(&r);
    uint8_t name_bytes = vj_read_u8(&r);
    uint64_t id = vj_read_u64(&r);

    name = vj_read_bytes(&r, NAME_BYTES);
    if (key.len != VJ_SESSION_KEY_BYTES || value.len != VJ_SESSION_RECORD_BYTES ||
        vj_read_u64(&r) !=
            checksum(key, value.data, VJ_SESSION_RECORD_BYTES - sizeof(uint64_t)) ||
        memcmp(magic.data, session_magic, MAGIC_BYTES) != 0 ||
        version != VJ_SESSION_FORMAT_VERSION || id == 0 || vj_be64_get(key.data) != id ||
        (state != VJ_SESSION_LIVE && state != VJ_SESSION_ENDED) ||
        (kind != VJ_SESSION_EXCLUSIVE && kind != VJ_SESSION_SHARED) ||
        name_bytes > VJ_SESSION_NAME_MAX || !is_name(name.data, name_bytes)) {
        return -EBADMSG;
    }
    *out = (VjSessionRecord){
        .id = id, .state = (VjSessionState)state, .kind = (VjSessionKind)kind};
    memcpy(out->name, name.data, NAME_BYTES);
    return 0;
}

void vj_number_encode(VjNumber what, VjSlice key, uint64_t number,
                      uint8_t out[VJ_NUMBER_BYTES])
{
    static const uint8_t zeroes[3];
    VjWriter w = vj_writer(out, VJ_NUMBER_BYTES);

    vj_write_bytes(&w, number_magics[what], MAGIC_BYTES);
    vj_write_u8(&w, VJ_SESSION_FORMAT_VERSION);
    vj_write_bytes(&w, zeroes, sizeof zeroes);
    vj_write_u64(&w, number);
    vj_write_u64(&w, checksum(key, out, w.used));
    g_assert(!w.bad && w.used == VJ_NUMBER_BYTES);
}

int vj_number_decode(VjNumber what, VjSlice key, VjSlice value, uint64_t *number)
{
    uint8_t good[VJ_NUMBER_BYTES];
    VjReader r = vj_reader(value);

    (void)vj_read_u64(&r);
    *number = vj_read_u64(&r);
    if (value.len != VJ_NUMBER_BYTES) {
        return -EBADMSG;
    }
    vj_number_encode(what, key, *number, good);
    return memcmp(good, value.data, sizeof good) == 0 ? 0 : -EBADMSG;
}

/* ---- The process that has a session ----------------------------------------------- */

void vj_holder_encode(const VjHolder *holder, VjSlice key, uint8_t out[VJ_HOLDER_BYTES])
{
    static const uint8_t zeroes[3];
    VjWriter w = vj_writer(out, VJ_HOLDER_BYTES);

    vj_write_bytes(&w, holder_magic, MAGIC_BYTES);
    vj_write_u8(&w, VJ_SESSION_FORMAT_VERSION);
    vj_write_bytes(&w, zeroes, sizeof zeroes);
    vj_write_bytes(&w, holder->boot, sizeof holder->boot);
    vj_write_bytes(&w, holder->nonce, sizeof holder->nonce);
    vj_write_u64(&w, holder->pid_namespace);
    vj_write_u64(&w, holder->pid);
    vj_write_u64(&w, holder->started);
    vj_write_u64(&w, checksum(key, out, w.used));
    g_assert(!w.bad && w.used == VJ_HOLDER_BYTES);
}

int vj_holder_decode(VjSlice key, VjSlice value, VjHolder *out)
{
    uint8_t good[VJ_HOLDER_BYTES];
    VjReader r = vj_reader(value);
    VjSlice boot, nonce;

    if (value.len != VJ_HOLDER_BYTES) {
        return -EBADMSG;
    }
    (void)vj_read_u64(&r);
    boot = vj_read_bytes(&r, sizeof out->boot);
    nonce = vj_read_bytes(&r, sizeof out->nonce);
    out->pid_namespace = vj_read_u64(&r);
    out->pid = vj_read_u64(&r);
    out->started = vj_read_u64(&r);
    memcpy(out->boot, boot.data, sizeof out->boot);
    memcpy(out->nonce, nonce.data, sizeof out->nonce);
    vj_holder_encode(out, key, good);
    return memcmp(good, value.data, sizeof good) == 0 ? 0 : -EBADMSG;
}
