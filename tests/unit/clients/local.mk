# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room clients.

UNIT_TESTS += tests/unit/clients/test-clients
tests_unit_clients_test_clients_SOURCES = \
	tests/unit/clients/request.h \
	tests/unit/clients/test-clients.c
tests_unit_clients_test_clients_LDADD = $(LDADD_fsck) src/clients/libvj-clients.la $(LDADD_fs) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/clients/test-clients-random
tests_unit_clients_test_clients_random_SOURCES = \
	tests/unit/clients/request.h \
	tests/unit/clients/test-clients-random.c
tests_unit_clients_test_clients_random_LDADD = $(LDADD_fsck) src/clients/libvj-clients.la $(LDADD_fs) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/clients/test-items
tests_unit_clients_test_items_SOURCES = \
	tests/unit/clients/request.h \
	tests/unit/clients/test-items.c
tests_unit_clients_test_items_LDADD = $(LDADD_fsck) src/clients/libvj-clients.la $(LDADD_fs) $(CMOCKA_LIBS)

# With the library on the other side.
UNIT_TESTS += tests/unit/clients/test-insert
tests_unit_clients_test_insert_SOURCES = $(varjfs_sources) \
	tests/unit/clients/request.h \
	tests/unit/clients/test-insert.c
tests_unit_clients_test_insert_LDADD = $(LDADD_fsck) $(LDADD_clients) $(CMOCKA_LIBS)
