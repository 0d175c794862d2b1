# SPDX-License-Identifier: LGPL-3.0-or-later
# Contract suites: one per ops table, run for every driver and every wrapper.
#   CONTRACT_TESTS += tests/contract/test-store
#   tests_contract_test_store_LDADD = $(LDADD_store) $(CMOCKA_LIBS)

CONTRACT_TESTS += tests/contract/test-chunk
tests_contract_test_chunk_LDADD = $(LDADD_chunk) $(CMOCKA_LIBS)
CONTRACT_TESTS += tests/contract/test-store
tests_contract_test_store_LDADD = tests/lib/libnode-model.la $(LDADD_node) $(CMOCKA_LIBS)
CONTRACT_TESTS += tests/contract/test-engine
tests_contract_test_engine_LDADD = $(LDADD_node) $(CMOCKA_LIBS)
CONTRACT_TESTS += tests/contract/test-meta
tests_contract_test_meta_LDADD = $(LDADD_node) $(CMOCKA_LIBS)
CONTRACT_TESTS += tests/contract/test-codec
tests_contract_test_codec_SOURCES = tests/contract/test-codec.c $(context_codec)
tests_contract_test_codec_LDADD = $(LDADD_codec) $(CMOCKA_LIBS)
tests_contract_test_codec_LDFLAGS = $(context_codec_ldflags)
