# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room rpc.  Two lines for each tests/unit/rpc/test-thing.c:
#   UNIT_TESTS += tests/unit/rpc/test-thing
#   tests_unit_rpc_test_thing_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/rpc/test-client-server
tests_unit_rpc_test_client_server_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/rpc/test-credentials
tests_unit_rpc_test_credentials_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS) $(SSL_LIBS)

UNIT_TESTS += tests/unit/rpc/test-tls
tests_unit_rpc_test_tls_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS) $(SSL_LIBS)

UNIT_TESTS += tests/unit/rpc/test-hostile
tests_unit_rpc_test_hostile_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/rpc/test-reply-file
tests_unit_rpc_test_reply_file_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/rpc/test-address
tests_unit_rpc_test_address_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/rpc/test-connection
tests_unit_rpc_test_connection_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/rpc/test-frame
tests_unit_rpc_test_frame_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/rpc/test-loop
tests_unit_rpc_test_loop_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/rpc/test-mailbox
tests_unit_rpc_test_mailbox_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)
