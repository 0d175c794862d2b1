/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * VjReader against a model that only counts.  The input is a script and its bytes: first
 * the number of steps, then one byte for each (low three bits what to read, the others
 * how much), then what is read.
 */
#include "fuzz.h"

typedef struct Model {
    const uint8_t *bytes;
    size_t len;
    size_t at;
    bool bad;
} Model;

/* Little-endian number of @width bytes, or 0 for good. */
static uint64_t model_number(Model *m, size_t width)
{
    uint64_t value = 0;

    if (m->bad || width > m->len - m->at) {
        m->bad = true;
        return 0;
    }
    for (size_t i = 0; i < width; i++) {
        value |= (uint64_t)m->bytes[m->at++] << (8 * i);
    }
    return value;
}

static void expect(uint64_t got, uint64_t wanted)
{
    g_assert(got == wanted);
}

static void step_bytes(VjReader *r, Model *m, size_t want)
{
    VjSlice got = vj_read_bytes(r, want);

    if (m->bad || want > m->len - m->at) {
        m->bad = true;
        g_assert(got.len == 0);
        return;
    }
    g_assert(got.len == want);
    g_assert(want == 0 || got.data == m->bytes + m->at);
    m->at += want;
}

static void step(VjReader *r, Model *m, uint8_t what)
{
    uint8_t length;

    switch (what & 7) {
    case 0:
        expect(vj_read_u8(r), model_number(m, 1));
        break;
    case 1:
        expect(vj_read_u16(r), model_number(m, 2));
        break;
    case 2:
        expect(vj_read_u32(r), model_number(m, 4));
        break;
    case 3:
        expect(vj_read_u64(r), model_number(m, 8));
        break;
    case 4:
        step_bytes(r, m, what >> 3);
        break;
    case 5:
        step_bytes(r, m, SIZE_MAX - (what >> 3));
        break;
    default: /* a length that the bytes themselves give */
        length = vj_read_u8(r);
        expect(length, model_number(m, 1));
        step_bytes(r, m, length);
        break;
    }
    g_assert(r->bad == m->bad);
    g_assert(m->bad || r->left == m->len - m->at);
    g_assert(vj_reader_done(r) == (!m->bad && m->at == m->len));
}

FUZZ_MUTATIONS(400);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    size_t steps = len > 0 ? MIN(data[0], len - 1) : 0;
    size_t head = len > 0 ? 1 + steps : 0;
    VjReader r = vj_reader(vj_slice(data + head, len - head));
    Model m = {.bytes = data + head, .len = len - head};

    for (size_t i = 0; i < steps; i++) {
        step(&r, &m, data[1 + i]);
    }
    return 0;
}
