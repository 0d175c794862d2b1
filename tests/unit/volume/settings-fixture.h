/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * settings-fixture.h - a volume whose files have settings of their own
 *
 * Objects of 16 KiB, a store whose calls can be made to fail, recoding in short steps.
 */
#ifndef VJ_TEST_SETTINGS_FIXTURE_H
#define VJ_TEST_SETTINGS_FIXTURE_H

#include "../../lib/test.h"

#include "codec/codec.h"
#include "volume/volume-private.h"

#include <sys/stat.h>

#define VJ_TEST_STEP_BYTES ((uint64_t)256 << 10)

typedef struct Fixture {
    char *dir;
    VjVolume *v;
    VjRng rng;
    const char *wrap_store; /* for the next open_volume; NULL: "fault" */
} Fixture;

/* Of cmocka; the fixture is *state. */
int setup(void **state);
int teardown(void **state);

void open_volume(Fixture *x, bool check);
void close_volume(Fixture *x);
/* fsck finds nothing, data included; the volume is closed and opened for it. */
void expect_sound(Fixture *x);

/* An empty file, open; it has no name. */
VjFile *create(Fixture *x);
/* As setfattr does; NULL: as it is. */
void set(Fixture *x, VjFile *f, const char *transform, const char *objects);
/* Half of it can be made smaller; owned. */
uint8_t *make_bytes(Fixture *x, size_t len);
void write_all(VjFile *f, uint64_t at, const uint8_t *bytes, size_t len);
/* All that @f holds. */
void expect_bytes(VjFile *f, const uint8_t *want, size_t len);
/* The committed map, of VjFileExtent; owned. */
GArray *map_of(VjFile *f);

#endif
