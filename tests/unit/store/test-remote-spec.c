/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The list of nodes of the driver remote as text, and its changes.
 */
#include "../../lib/test.h"

#include "store/store.h"

typedef struct Row {
    const char *spec;
    VjNodeChange change;
    const char *result; /* NULL: refused, with */
    int code;
    const char *says;
} Row;

#define ADD(host, n)                                                                     \
    {                                                                                    \
        .kind = VJ_NODE_ADD, .address = (host), .weight = (n)                            \
    }
#define DRAIN(host)                                                                      \
    {                                                                                    \
        .kind = VJ_NODE_DRAIN, .address = (host)                                         \
    }
#define REMOVE(host)                                                                     \
    {                                                                                    \
        .kind = VJ_NODE_REMOVE, .address = (host)                                        \
    }
#define FORCE(host)                                                                      \
    {                                                                                    \
        .kind = VJ_NODE_REMOVE, .address = (host), .is_forced = true                     \
    }

static const Row rows[] = {
    {"remote:a", ADD("b", 1), "remote:a,b", 0, NULL},
    {"remote:a:volume=lab", ADD("b:7", 1), "remote:a,b:7:volume=lab", 0, NULL},
    {"remote:a", ADD("[::1]:7", 1), "remote:a,[::1]:7", 0, NULL},
    {"remote:a", ADD("unix:/x y", 1), "remote:a,unix:/x y", 0, NULL},
    {"remote:a", ADD("b", 3), "remote:a,b:weight=1/3", 0, NULL},
    {"remote:a,b:weight=2/1", ADD("c", 1), "remote:a,b,c:weight=2/1/1", 0, NULL},
    /* No place is used twice. */
    {"remote:a,-", ADD("b", 1), "remote:a,-,b", 0, NULL},
    {"remote:-,a", ADD("b", 2), "remote:-,a,b:weight=0/1/2", 0, NULL},
    /* One that is there gets the weight. */
    {"remote:a,b:weight=1/0", ADD("b", 1), "remote:a,b", 0, NULL},
    {"remote:a,b", ADD("b", 1), "remote:a,b", 0, NULL},
    {"remote:nodes=a\\,b", ADD("b", 1), "remote:nodes=a\\,b", 0, NULL},
    {"remote:nodes=a\\,b", ADD("c", 1), "remote:a,b,c", 0, NULL},
    {"remote:a,b:insecure,key=x\\,y", DRAIN("a"),
     "remote:a,b:weight=0/1,key=x\\,y,insecure=yes", 0, NULL},
    {"remote:a,b,c:replicas=2", DRAIN("b"), "remote:a,b,c:replicas=2,weight=1/0/1", 0,
     NULL},
    {"remote:a,b,c:weight=1/0/1", DRAIN("b"), "remote:a,b,c:weight=1/0/1", 0, NULL},
    {"remote:a,b,c:weight=1/0/1", REMOVE("b"), "remote:a,-,c", 0, NULL},
    {"remote:a,b,c:weight=1/0/2", REMOVE("b"), "remote:a,-,c:weight=1/0/2", 0, NULL},
    {"remote:a,b", FORCE("a"), "remote:-,b", 0, NULL},
    /* What is refused. */
    {"remote:a,b,c", REMOVE("b"), NULL, EBUSY, "has not been drained"},
    {"remote:a,b,c", REMOVE("d"), NULL, ENOENT, "not in the list: a,b,c"},
    {"remote:a,-", DRAIN("-"), NULL, EINVAL, "cannot stand"},
    {"remote:a,b:replicas=2", DRAIN("b"), NULL, EINVAL, "2 replicas need"},
    {"remote:a,b:replicas=2", FORCE("b"), NULL, EINVAL, "2 replicas need"},
    {"remote:a,b:weight=0/1", DRAIN("b"), NULL, EINVAL, "0 would be left"},
    {"remote:a", ADD("-", 1), NULL, EINVAL, "cannot stand"},
    {"remote:a", ADD("b,c", 1), NULL, EINVAL, "cannot stand"},
    {"remote:a", ADD("b\nstore = null", 1), NULL, EINVAL, "cannot stand"},
    {"remote:a", ADD("", 1), NULL, EINVAL, "it is none"},
    {"remote:a", ADD("unix:/b:key=c", 1), NULL, EINVAL, ""},
    {"null", ADD("b", 1), NULL, EOPNOTSUPP, "no list of nodes"},
    {"remote:a:nonesuch=1,key=x", ADD("b", 1), NULL, EINVAL, ""},
};

static void changes(void **state)
{
    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        const Row *row = &rows[i];
        g_autoptr(GError) error = NULL;
        g_autofree char *result = NULL;
        bool changed = vj_store_change_spec(row->spec, &row->change, &result, &error);

        if (row->result == NULL) {
            if (changed) {
                fail_msg("%s, %s: became %s", row->spec, row->change.address, result);
            }
            vj_test_expect_error(&error, row->code, row->says);
            assert_null(result);
        } else {
            if (!changed) {
                fail_msg("%s, %s: %s", row->spec, row->change.address, error->message);
            }
            assert_string_equal(result, row->result);
            assert_true(vj_store_spec_check(result, NULL));
        }
    }
}

/* 64 places, those of removed nodes counted. */
static void full(void **state)
{
    g_autofree char *spec = g_strdup("remote:n0,other");
    g_autoptr(GError) error = NULL;
    VjNodeChange add = {.kind = VJ_NODE_ADD, .weight = 1};
    char *result;

    (void)state;
    for (unsigned i = 1; i < 63; i++) {
        g_autofree char *last = g_strdup_printf("n%u", i - 1);
        g_autofree char *next = g_strdup_printf("n%u", i);
        VjNodeChange force = {.kind = VJ_NODE_REMOVE, .address = last, .is_forced = true};

        add.address = next;
        assert_true(vj_store_change_spec(spec, &add, &result, NULL));
        g_free(spec);
        spec = result;
        assert_true(vj_store_change_spec(spec, &force, &result, NULL));
        g_free(spec);
        spec = result;
    }
    add.address = "n63";
    assert_false(vj_store_change_spec(spec, &add, &result, &error));
    vj_test_expect_error(&error, ENOSPC, "none is used twice");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(changes),
    cmocka_unit_test(full),
};

VJ_TEST_MAIN(tests)
