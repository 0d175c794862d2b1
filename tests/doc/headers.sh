#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Each installed header compiles alone, as C99 and as C++, and pulls in nothing of ours.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"

cc=${CC:-cc}
requires command "$cc"

hdf5=$(sed -n 's/^HDF5_CFLAGS = *//p' "$builddir/Makefile")

for header in "$srcdir"/include/varjfs/*.h; do
    name=varjfs/$(basename "$header")
    include=(-I"$srcdir/include")
    if [ "$name" = varjfs/hdf5.h ]; then
        if [ -z "$hdf5" ]; then
            skip "$name" "configure found no HDF5"
            continue
        fi
        # shellcheck disable=SC2206 # a list of words; its own headers may have warnings
        include+=(${hdf5//-I/-isystem })
    fi
    printf '#include <%s>\n#include <%s>\n' "$name" "$name" >"$T/alone.c"
    cp "$T/alone.c" "$T/alone.cc"
    check "$name as C99" "$cc" -std=c99 -pedantic-errors -Wall -Wextra -Werror \
        "${include[@]}" -fsyntax-only "$T/alone.c"
    if command -v c++ >/dev/null; then
        check "$name as C++" c++ -std=c++11 -Wall -Wextra -Werror \
            "${include[@]}" -fsyntax-only "$T/alone.cc"
    else
        skip "$name as C++" "no C++ compiler"
    fi
    "$cc" -std=c99 "${include[@]}" -M "$T/alone.c" >"$T/deps" 2>&1
    is "$name names neither GLib nor a room" "$(grep -oE 'glib[^ ]*|/src/[^ ]*' "$T/deps")" ""
done

tap_done
