# SPDX-License-Identifier: LGPL-3.0-or-later
# Many users of the same files, and whether one order explains what they saw: README.md

TEST_HELPERS += tests/stress/load
tests_stress_load_SOURCES = \
	tests/stress/check.c \
	tests/stress/history.h \
	tests/stress/load.c \
	tests/stress/load.h \
	tests/stress/order.c \
	tests/stress/slices.c \
	tests/stress/state.c \
	tests/stress/worker.c
tests_stress_load_LDADD = $(LDADD_base)

UNIT_TESTS += tests/stress/test-history
tests_stress_test_history_SOURCES = \
	tests/stress/history.h \
	tests/stress/order.c \
	tests/stress/slices.c \
	tests/stress/state.c \
	tests/stress/test-history.c
tests_stress_test_history_LDADD = $(LDADD_base) $(CMOCKA_LIBS)

MOUNT_TESTS += tests/stress/load.sh

TEST_HELPERS += tests/stress/append
tests_stress_append_LDADD = $(LDADD_base)

TEST_HELPERS += tests/stress/attributes
tests_stress_attributes_LDADD = $(LDADD_base)
MOUNT_TESTS += tests/stress/attributes.sh

TEST_HELPERS += tests/stress/beside
tests_stress_beside_LDADD = librwrite.la $(LDADD_base)

TEST_HELPERS += tests/stress/memory
tests_stress_memory_LDADD = $(LDADD_base)
MOUNT_TESTS += tests/stress/memory.sh

TEST_HELPERS += tests/stress/rounds
tests_stress_rounds_SOURCES = \
	tests/stress/rounds-check.c \
	tests/stress/rounds-kernel.c \
	tests/stress/rounds-make.c \
	tests/stress/rounds-report.c \
	tests/stress/rounds-views.c \
	tests/stress/rounds-work.c \
	tests/stress/rounds.c \
	tests/stress/rounds.h
tests_stress_rounds_LDADD = librwrite.la $(LDADD_base)

UNIT_TESTS += tests/stress/test-rounds
tests_stress_test_rounds_SOURCES = \
	tests/stress/rounds-check.c \
	tests/stress/rounds-kernel.c \
	tests/stress/rounds-make.c \
	tests/stress/rounds-report.c \
	tests/stress/rounds.h \
	tests/stress/test-rounds.c
tests_stress_test_rounds_LDADD = $(LDADD_base) $(CMOCKA_LIBS)

MOUNT_TESTS += tests/stress/rounds.sh

TEST_HELPERS += tests/stress/stalls
tests_stress_stalls_LDADD = librwrite.la $(LDADD_base)
MOUNT_TESTS += tests/stress/stalls.sh
