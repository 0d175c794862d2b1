# SPDX-License-Identifier: LGPL-3.0-or-later
# Programs that use libvarjfs, with the daemon that they start.

PROGRAM_TESTS += tests/client/bench.sh
PROGRAM_TESTS += tests/client/config.sh
PROGRAM_TESTS += tests/client/ctl.sh
PROGRAM_TESTS += tests/client/python.sh
PROGRAM_TESTS += tests/client/tls.sh
FAULT_TESTS += tests/client/kill.sh
