# SPDX-License-Identifier: LGPL-3.0-or-later
# Tests of what "make install" makes: INSTALL_TESTS += tests/install/thing.sh.  tests/install/chroot.sh is the
# long form, in new systems.

INSTALL_TESTS += tests/install/installed.sh
