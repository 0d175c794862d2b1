# SPDX-License-Identifier: LGPL-3.0-or-later
# Tests of documents and of the rules: DOC_TESTS += tests/doc/thing.sh

DOC_TESTS += tests/doc/check-rules.sh
DOC_TESTS += tests/doc/hacking.sh
DOC_TESTS += tests/doc/headers.sh
DOC_TESTS += tests/doc/options.sh
DOC_TESTS += tests/doc/protocol.sh
