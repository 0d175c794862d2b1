/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-clients-random.c - batches at random beside a model, of several threads at once
 *
 * Each thread has namespaces of its own, of which its model knows all: objects are byte
 * arrays with a table of attributes, keys a table.  In between the volume is closed and
 * opened.
 * VARJFS_MODEL_SEED=N repeats a run; VARJFS_MODEL_OPS is how many batches a thread does.
 */
#include "request.h"

#define THREADS 3u
#define ROUNDS 3u
#define BATCHES_DEFAULT 150u
#define OPS_MOST 12u
#define NAMES 8u
#define ATTRIBUTES 3u /* of an object */
#define LEN_MOST 20000u

typedef struct Model {
    Fixture *x;
    char space[8];
    VjRng rng;
    GByteArray *objects[NAMES]; /* NULL: it is not there */
    GByteArray *attributes[NAMES][ATTRIBUTES];
    GByteArray *keys[NAMES];
    uint64_t batches;
} Model;

/* What one operation has to come to. */
typedef struct Expected {
    uint32_t status;
    GByteArray *bytes; /* that it returns; NULL: none */
} Expected;

static uint64_t below(Model *m, uint64_t n)
{
    return vj_rng_below(&m->rng, n);
}

static void fill(Model *m, GByteArray *to, size_t len)
{
    uint8_t byte = (uint8_t)below(m, 256);

    g_byte_array_set_size(to, (guint)len);
    for (size_t i = 0; i < len; i++) {
        to->data[i] = (uint8_t)(byte + (i >> below(m, 4)));
    }
}

static GByteArray *slice_of(const GByteArray *from, uint64_t offset, uint64_t most)
{
    GByteArray *out = g_byte_array_new();

    if (offset < from->len) {
        g_byte_array_append(out, from->data + offset,
                            (guint)MIN(most, from->len - offset));
    }
    return out;
}

static void replace(GByteArray *in, uint64_t offset, uint64_t old_len,
                    const GByteArray *with)
{
    GByteArray *now = g_byte_array_new();
    guint from = (guint)MIN(offset, in->len);
    guint to = (guint)MIN(offset + old_len, in->len);

    if (offset > in->len && with->len == 0) {
        g_byte_array_unref(now);
        return;
    }
    g_byte_array_append(now, in->data, from);
    while (now->len < offset) {
        g_byte_array_append(now, (const guint8 *)"", 1);
    }
    g_byte_array_append(now, with->data, with->len);
    if (to > from || from < in->len) {
        g_byte_array_append(now, in->data + to, in->len - MIN(to, in->len));
    }
    g_byte_array_set_size(in, 0);
    g_byte_array_append(in, now->data, now->len);
    g_byte_array_unref(now);
}

static void add_key(Model *m, Request *q, Op op, GByteArray **slot, GByteArray *brings,
                    Expected *e)
{
    op.kind = (uint8_t)(VARJFS_WIRE_KEY_PUT + below(m, 3));
    if (op.kind == VARJFS_WIRE_KEY_PUT) {
        fill(m, brings, below(m, 300));
        op.brings = brings->data;
        op.len = brings->len;
        if (*slot == NULL) {
            *slot = g_byte_array_new();
        }
        g_byte_array_set_size(*slot, 0);
        g_byte_array_append(*slot, brings->data, brings->len);
    } else if (*slot == NULL) {
        e->status = VJ_WIRE_ABSENT;
        op.most = op.kind == VARJFS_WIRE_KEY_GET ? 300 : 0;
    } else if (op.kind == VARJFS_WIRE_KEY_GET) {
        op.most = 300;
        e->bytes = slice_of(*slot, 0, UINT64_MAX);
    } else {
        g_clear_pointer(slot, g_byte_array_unref);
    }
    request_add(q, op);
}

static void add_object(Model *m, Request *q, Op op, GByteArray **slot, GByteArray *brings,
                       Expected *e)
{
    static const uint8_t kinds[] = {VARJFS_WIRE_OBJECT_CREATE, VARJFS_WIRE_OBJECT_DELETE,
                                    VARJFS_WIRE_OBJECT_READ, VARJFS_WIRE_OBJECT_WRITE,
                                    VARJFS_WIRE_OBJECT_RWRITE};
    uint64_t len = *slot != NULL ? (*slot)->len : 0;

    op.kind = kinds[below(m, G_N_ELEMENTS(kinds))];
    if (op.kind == VARJFS_WIRE_OBJECT_CREATE) {
        op.flags = VARJFS_WIRE_EXCLUSIVE;
        e->status = *slot != NULL ? VARJFS_WIRE_EXISTS : VJ_WIRE_OK;
        *slot = *slot != NULL ? *slot : g_byte_array_new();
        request_add(q, op);
        return;
    }
    if (op.kind != VARJFS_WIRE_OBJECT_DELETE) {
        op.offset = below(m, len + 100);
    }
    if (op.kind == VARJFS_WIRE_OBJECT_READ) {
        op.most = (uint32_t)below(m, LEN_MOST);
    }
    if (op.kind >= VARJFS_WIRE_OBJECT_WRITE) {
        fill(m, brings, below(m, len > LEN_MOST ? 10 : 3000));
        op.brings = brings->data;
        op.len = brings->len;
    }
    if (op.kind == VARJFS_WIRE_OBJECT_RWRITE) {
        op.old_len = below(m, 3000);
    }
    request_add(q, op);
    if (*slot == NULL) {
        e->status = VJ_WIRE_ABSENT;
    } else if (op.kind == VARJFS_WIRE_OBJECT_DELETE) {
        g_clear_pointer(slot, g_byte_array_unref);
    } else if (op.kind == VARJFS_WIRE_OBJECT_READ) {
        e->bytes = slice_of(*slot, op.offset, op.most);
    } else if (op.len > 0 || op.kind == VARJFS_WIRE_OBJECT_RWRITE) {
        replace(*slot, op.offset,
                op.kind == VARJFS_WIRE_OBJECT_WRITE ? op.len : op.old_len, brings);
    }
}

static void forget_attributes(Model *m, uint64_t which)
{
    for (unsigned i = 0; i < ATTRIBUTES; i++) {
        g_clear_pointer(&m->attributes[which][i], g_byte_array_unref);
    }
}

static void add_resize(Model *m, Request *q, Op op, GByteArray *object, Expected *e)
{
    op.kind = VARJFS_WIRE_OBJECT_RESIZE;
    op.offset = below(m, LEN_MOST);
    request_add(q, op);
    e->status = object == NULL ? VJ_WIRE_ABSENT : VJ_WIRE_OK;
    if (object != NULL) {
        guint before = object->len;

        g_byte_array_set_size(object, (guint)op.offset);
        if (object->len > before) {
            memset(object->data + before, 0, object->len - before);
        }
    }
}

static void add_rename(Model *m, Request *q, Op op, uint64_t which, Expected *e)
{
    uint64_t to = below(m, NAMES);
    char name[16];

    g_snprintf(name, sizeof name, "n%u", (unsigned)to);
    op.kind = VARJFS_WIRE_OBJECT_RENAME;
    op.second = name;
    op.flags = below(m, 2) == 0 ? VARJFS_WIRE_EXCLUSIVE : 0;
    request_add(q, op);
    if (m->objects[which] == NULL) {
        e->status = VJ_WIRE_ABSENT;
    } else if (m->objects[to] != NULL && op.flags != 0) {
        e->status = VARJFS_WIRE_EXISTS;
    } else if (to != which) {
        g_clear_pointer(&m->objects[to], g_byte_array_unref);
        forget_attributes(m, to);
        m->objects[to] = g_steal_pointer(&m->objects[which]);
        for (unsigned i = 0; i < ATTRIBUTES; i++) {
            m->attributes[to][i] = g_steal_pointer(&m->attributes[which][i]);
        }
    }
}

static void add_attribute(Model *m, Request *q, Op op, uint64_t which, GByteArray *brings,
                          Expected *e)
{
    uint64_t number = below(m, ATTRIBUTES);
    GByteArray **slot = &m->attributes[which][number];
    char name[2] = {(char)('a' + number), '\0'};

    op.kind = (uint8_t)(VARJFS_WIRE_ATTRIBUTE_PUT + below(m, 3));
    op.second = name;
    op.most = op.kind == VARJFS_WIRE_ATTRIBUTE_GET ? 300 : 0;
    e->status = m->objects[which] == NULL ? VJ_WIRE_ABSENT : VJ_WIRE_OK;
    if (op.kind == VARJFS_WIRE_ATTRIBUTE_PUT) {
        fill(m, brings, below(m, 300));
        op.brings = brings->data;
        op.len = brings->len;
        if (m->objects[which] != NULL) {
            g_clear_pointer(slot, g_byte_array_unref);
            *slot = slice_of(brings, 0, UINT64_MAX);
        }
    } else if (m->objects[which] != NULL && *slot == NULL) {
        e->status = VARJFS_WIRE_NO_ATTRIBUTE;
    } else if (*slot != NULL && op.kind == VARJFS_WIRE_ATTRIBUTE_GET) {
        e->bytes = slice_of(*slot, 0, UINT64_MAX);
    } else if (*slot != NULL) {
        g_clear_pointer(slot, g_byte_array_unref);
    }
    request_add(q, op);
}

static void add_any(Model *m, Request *q, Op op, uint64_t which, Expected *e)
{
    g_autoptr(GByteArray) brings = g_byte_array_new();

    switch (below(m, 8)) {
    case 0:
        add_resize(m, q, op, m->objects[which], e);
        break;
    case 1:
        add_rename(m, q, op, which, e);
        break;
    case 2:
    case 3:
        add_attribute(m, q, op, which, brings, e);
        break;
    case 4:
    case 5:
        add_object(m, q, op, &m->objects[which], brings, e);
        if (m->objects[which] == NULL) {
            forget_attributes(m, which);
        }
        break;
    default:
        add_key(m, q, op, &m->keys[which], brings, e);
    }
}

static void compare(Request *q, Expected *expected)
{
    for (uint32_t i = 0; i < q->count; i++) {
        g_autoptr(GByteArray) bytes = expected[i].bytes;

        if (status_of(q, i) != expected[i].status) {
            fail_msg("operation %u: status %u, not %u", i, status_of(q, i),
                     expected[i].status);
        }
        if (bytes != NULL) {
            assert_int_equal(value_of(q, i), bytes->len);
            assert_memory_equal(take(q, bytes->len), bytes->data, bytes->len);
        }
    }
}

static void do_batch(Model *m)
{
    Request q = request_new(0, (uint8_t)(below(m, 20) == 0 ? VARJFS_WIRE_SAFETY_STORAGE
                                                           : VARJFS_WIRE_SAFETY_NONE));
    Expected expected[OPS_MOST] = {0};
    uint64_t count = 1 + below(m, OPS_MOST);

    for (uint64_t i = 0; i < count; i++) {
        uint64_t which = below(m, NAMES);
        char name[16];
        Op op = {.space = m->space, .name = name};

        g_snprintf(name, sizeof name, "n%u", (unsigned)which);
        add_any(m, &q, op, which, &expected[i]);
    }
    request_run(&q, m->x->c);
    compare(&q, expected);
    request_end(&q);
}

static gpointer model_thread(gpointer opaque)
{
    Model *m = opaque;

    for (uint64_t i = 0; i < m->batches; i++) {
        do_batch(m);
    }
    return NULL;
}

static uint64_t number_of(const char *variable, uint64_t fallback)
{
    const char *text = g_getenv(variable);

    return text != NULL ? g_ascii_strtoull(text, NULL, 10) : fallback;
}

static void test_batches_at_random(void **state)
{
    Fixture *x = *state;
    uint64_t seed = number_of("VARJFS_MODEL_SEED", vj_random_u64() % 1000000);
    uint64_t batches = number_of("VARJFS_MODEL_OPS", BATCHES_DEFAULT);
    Model models[THREADS] = {0};
    GThread *threads[THREADS];

    print_message("# seed %" G_GUINT64_FORMAT "\n", seed);
    for (unsigned i = 0; i < THREADS; i++) {
        models[i].x = x;
        models[i].batches = batches;
        g_snprintf(models[i].space, sizeof models[i].space, "s%u", i);
        vj_rng_init(&models[i].rng, seed * THREADS + i);
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < THREADS; i++) {
            threads[i] = g_thread_new("model", model_thread, &models[i]);
        }
        for (unsigned i = 0; i < THREADS; i++) {
            g_thread_join(threads[i]);
        }
        assert_int_equal(vj_clients_close(x->c), 0);
        expect_sound(x);
        fixture_open(x);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        for (unsigned j = 0; j < NAMES; j++) {
            g_clear_pointer(&models[i].objects[j], g_byte_array_unref);
            g_clear_pointer(&models[i].keys[j], g_byte_array_unref);
            forget_attributes(&models[i], j);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_batches_at_random, fixture_setup,
                                    fixture_teardown),
};

VJ_TEST_MAIN(tests)
