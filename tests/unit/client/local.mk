# SPDX-License-Identifier: LGPL-3.0-or-later
# libvarjfs, compiled into the tests so that sanitizers see it and its allocations can fail.
