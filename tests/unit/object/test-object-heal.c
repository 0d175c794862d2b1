/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-object-heal.c - the order of healing: the store takes nothing away before the
 * record that names what there is else is durable
 *
 * The store is a driver without replicas with operations of this test in front, whose
 * locators say in one byte what was done last.
 */
#include "object-fixture.h"

#define LEN 10000u
#define OBJECTS 5u

/* A byte of a locator that is 0 in those of the driver memory. */
#define STATE 7
enum { OLD, OLD_AND_NEW };

static struct {
    Fixture *f;
    VjStoreOps ops;
    uint64_t flushes; /* of the metadata, when the last heal returned */
    unsigned heals, trims;
    bool is_wrong; /* one of them was called where it must not be */
} t;

static uint64_t flushes(void)
{
    VjMetaStats stats;

    vj_meta_stats(t.f->meta, &stats);
    return stats.flushes;
}

static uint8_t state_in_record(uint64_t id)
{
    VjObject object;

    assert_int_equal(get_object(t.f, id, &object), 0);
    return object.loc.bytes[STATE];
}

static int fake_heal(VjStore *s, const VjPut *object, VjStoreVerify *verify, void *opaque,
                     VjStoreHealed *out)
{
    (void)s, (void)verify, (void)opaque;
    t.heals++;
    t.is_wrong = t.is_wrong || object->loc.bytes[STATE] != OLD;
    out->loc.bytes[STATE] = OLD_AND_NEW;
    out->can_trim = true;
    t.flushes = flushes();
    return 0;
}

static int fake_trim(VjStore *s, const VjPut *object, VjStoreVerify *verify, void *opaque,
                     VjStoreHealed *out)
{
    (void)s, (void)verify, (void)opaque;
    t.trims++;
    t.is_wrong = t.is_wrong || object->loc.bytes[STATE] != OLD_AND_NEW ||
                 state_in_record(object->id) != OLD_AND_NEW || flushes() <= t.flushes;
    out->loc.bytes[STATE] = OLD;
    return 0;
}

static int fake_survey(VjStore *s, const VjPut *puts, size_t count, bool *wants)
{
    (void)s, (void)puts;
    memset(wants, true, count);
    return 0;
}

static void fake_health(VjStore *s, VjStoreHealth *out)
{
    (void)s;
    *out = (VjStoreHealth){.replicas = 1};
}

static bool fake_same_loc(VjStore *s, VjLoc a, VjLoc b)
{
    (void)s;
    a.bytes[STATE] = b.bytes[STATE];
    return memcmp(&a, &b, sizeof a) == 0;
}

static int setup(void **state)
{
    VjStore *driver;
    int rc = fixture_setup(state);

    memset(&t, 0, sizeof t);
    t.f = *state;
    for (driver = t.f->store; driver->next != NULL; driver = driver->next) {
    }
    t.ops = *driver->ops;
    t.ops.heal = fake_heal;
    t.ops.trim = fake_trim;
    t.ops.survey = fake_survey;
    t.ops.health = fake_health;
    t.ops.same_loc = fake_same_loc;
    driver->ops = &t.ops;
    return rc;
}

static void put_objects(VjObject *objects)
{
    for (unsigned i = 0; i < OBJECTS; i++) {
        g_autofree uint8_t *bytes = content(i + 1, LEN);

        must_put(t.f, bytes, LEN, &objects[i]);
    }
}

static void test_a_step(void **state)
{
    Fixture *f = *state;
    VjObject objects[OBJECTS];
    VjHealStep step = {.cursor = 0};
    uint64_t before;

    put_objects(objects);
    before = flushes();
    assert_int_equal(vj_objects_heal_step(f->objects, &step), 0);
    assert_int_equal(t.heals, OBJECTS);
    assert_int_equal(t.trims, OBJECTS);
    assert_false(t.is_wrong);
    assert_true(flushes() < before + OBJECTS); /* one for all of them */
    assert_int_equal(step.examined, OBJECTS);
    assert_int_equal(step.healed, OBJECTS);
    assert_int_equal(step.failed, 0);
    for (unsigned i = 0; i < OBJECTS; i++) {
        assert_int_equal(state_in_record(objects[i].id), OLD);
    }
}

static void test_one(void **state)
{
    Fixture *f = *state;
    VjObject objects[OBJECTS];

    put_objects(objects);
    assert_int_equal(vj_object_heal(f->objects, &objects[2]), 0);
    assert_int_equal(t.heals, 1);
    assert_int_equal(t.trims, 1);
    assert_false(t.is_wrong);
    assert_int_equal(state_in_record(objects[2].id), OLD);
    assert_int_equal(stats_of(f).healed, 1);
}

/* The record may not be durable: what is old stays, and is named. */
static void test_flush_fails(void **state)
{
    Fixture *f = *state;
    VjObject objects[OBJECTS];
    VjHealStep step = {.cursor = 0};

    put_objects(objects);
    fixture_faults(f, NULL, "kinds=flush,every=1");
    assert_int_equal(vj_objects_heal_step(f->objects, &step), -EIO);
    assert_int_equal(step.healed, 0);
    assert_int_equal(step.failed, OBJECTS);
    assert_int_equal(t.trims, 0);
    for (unsigned i = 0; i < OBJECTS; i++) {
        assert_int_equal(state_in_record(objects[i].id), OLD_AND_NEW);
        objects[i].loc.bytes[STATE] = OLD;
    }
    fixture_faults(f, NULL, "");
}

/* A record that another heal has changed meanwhile may not be durable: nothing is
 * trimmed. */
static void test_record_is_another(void **state)
{
    Fixture *f = *state;
    VjObject objects[OBJECTS];

    put_objects(objects);
    objects[1].loc.bytes[STATE + 8] ^= 1;
    assert_int_equal(vj_object_heal(f->objects, &objects[1]), -EAGAIN);
    assert_int_equal(t.heals, 1);
    assert_int_equal(t.trims, 0);
    assert_int_equal(state_in_record(objects[1].id), OLD);
}

#define HEAL_TEST(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)

static const struct CMUnitTest tests[] = {
    HEAL_TEST(test_a_step),
    HEAL_TEST(test_one),
    HEAL_TEST(test_flush_fails),
    HEAL_TEST(test_record_is_another),
};

VJ_TEST_MAIN(tests)
