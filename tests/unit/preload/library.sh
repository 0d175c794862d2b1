#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# What librwrite brings into another process: two functions, libc, and nothing else; and
# that its headers compile alone as C99 and C++ and link.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../../.." && pwd)}/tests/lib/tap.sh"

requires command nm readelf
CC=${CC:-cc}
requires command "$CC"
library=$builddir/.libs/librwrite.so

[ -e "$library" ] || skip_all "librwrite.so is not built"

# A version on the names that stand before the C library's would hide them from programs,
# which ask for the C library's version.
is "what it exports, and nothing else" \
    "$(nm -D --defined-only "$library" | sed -n 's/.* T //p' | sort | xargs)" \
    "fallocate fallocate64 pread pread64 pwrite pwrite64 read rpwrite@@RWRITE_1.0 rwrite@@RWRITE_1.0 write"
is "it needs libc alone" \
    "$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v '^libc\.so')" ""
is "it cannot end or write for the process" \
    "$(nm -D --undefined-only "$library" |
        grep -wE 'abort|exit|_exit|printf|fprintf|puts|syslog|signal|sigaction|malloc')" ""

cat >"$T/use.c" <<'EOF'
#include <varjfs/ioctl.h>
#include <varjfs/rwrite.h>
int main(void)
{
    return rpwrite(-1, "x", 1, 0, 0) == -1 && rwrite(-1, "x", 1, 0) == -1 ? 0 : 1;
}
EOF
for language in 'c -std=c99' 'c -std=c11' 'c++ -std=c++11'; do
    # shellcheck disable=SC2086 # a list of options
    check "headers and library with -x $language" "$CC" -x $language -pedantic -Wall -Wextra \
        -Werror -D_FILE_OFFSET_BITS=64 -I"$srcdir/include" "$T/use.c" -x none "$library" \
        -Wl,-rpath,"$builddir/.libs" -o "$T/use"
    check "the program runs" "$T/use"
done

# As people compile against it, with the paths of this tree in place of the installed ones.
if command -v pkg-config >/dev/null; then
    pc()
    {
        PKG_CONFIG_PATH=$builddir/lib/preload pkg-config --define-variable=includedir="$srcdir/include" \
            --define-variable=libdir="$builddir/.libs" "$@" rwrite
    }
    for example in csv-insert edit-lines log-trim; do
        # shellcheck disable=SC2046 # lists of options
        check "examples/$example with pkg-config" "$CC" -std=c99 -D_POSIX_C_SOURCE=200809L \
            -D_FILE_OFFSET_BITS=64 $(pc --cflags) "$srcdir/examples/$example.c" $(pc --libs) -o "$T/$example"
    done
else
    skip "examples with pkg-config" "pkg-config is not installed"
fi

check "it can be preloaded" env LD_PRELOAD="$library" true
is "an unmodified program prints nothing more" \
    "$(LD_PRELOAD=$library RWRITE_STRICT=1 env echo hello 2>&1)" hello

tap_done
