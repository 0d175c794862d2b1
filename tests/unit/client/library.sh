#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# What libvarjfs brings into another process: the functions of its header, libc, OpenSSL, and
# nothing else.  The examples of its manual pages compile, as C99 and as C++, and run on a volume.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../../.." && pwd)}/tests/lib/tap.sh"

requires command nm readelf
CC=${CC:-cc}
requires command "$CC"
library=$builddir/.libs/libvarjfs.so

[ -e "$library" ] || skip_all "libvarjfs.so is not built"

header=$srcdir/include/varjfs/varjfs.h
is "what it exports is what the header has" \
    "$(nm -D --defined-only "$library" | sed -n 's/.* T //p' | sort | xargs)" \
    "$(grep -v '^typedef' "$header" | grep -oE '\bvarjfs_[a-z_]+\(' | tr -d '(' | sort -u | sed 's/$/@@VARJFS_1/' | xargs)"
is "it needs libc and OpenSSL alone" \
    "$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libssl|libcrypto|ld-linux.*)\.so')" ""
is "it cannot end or write for the process, nor take its signals" \
    "$(nm -D --undefined-only "$library" | sed 's/@.*//' |
        grep -wE 'abort|exit|_exit|__assert_fail|printf|fprintf|vfprintf|puts|perror|syslog|signal|sigaction|sigprocmask|pthread_create|fork|setenv|__stack_chk_fail_')" ""
is "it has no data that changes but those of threads" \
    "$(nm "$library" | grep -E ' [BbDd] ' | grep -vwE 'completed\.0|__do_global_dtors_aux_fini_array_entry|__frame_dummy_init_array_entry|__dso_handle|__bss_start|_edata|_end|__TMC_END__|_DYNAMIC|_GLOBAL_OFFSET_TABLE_|open_error|texts\.[0-9]*|templates|settings|.*_handler')" ""

mkdir -p "$T/volume" "$T/bin"
"$builddir/mkfs.varjfs" "$T/volume" >/dev/null || fail "mkfs.varjfs"
ln -s "$builddir/varjfsd" "$T/bin/varjfsd"
export PATH=$T/bin:$PATH

# The daemon ends by itself; nothing of it stays behind in the directory that is removed.
stop_daemon()
{
    local pid
    pid=$(pgrep -f -x "varjfsd -d --source $T/volume") || return 0
    kill "$pid"
    wait_for 20 daemon_gone "$pid"
}

daemon_gone()
{
    ! kill -0 "$1" 2>/dev/null
}
at_exit stop_daemon

# The lines of "=head1 EXAMPLE" of a page.
example_of()
{
    sed -n '/^=head1 EXAMPLE$/,/^=head1 SEE/{s/^    //p;/^$/p}' "$1"
}

compile_example()
{
    local name=$1 language
    example_of "$srcdir/man/$name.3.pod" >"$T/$name.c"
    for language in 'c -std=c99' 'c++ -std=c++11 -Wno-missing-field-initializers'; do
        # shellcheck disable=SC2086 # a list of options
        check "the example of $name(3) with -x ${language%% -W*}" "$CC" -pedantic -Wall -Wextra \
            -Werror -x $language -I"$srcdir/include" "$T/$name.c" -x none "$library" \
            -Wl,-rpath,"$builddir/.libs" -o "$T/$name"
    done
}

run_example()
{
    compile_example "$1"
    is "it runs" "$("$T/$1" "$T/volume" 2>&1)" "$2"
}

run_example libvarjfs "hello, dear world (17 bytes)"
run_example varjfs_open "libvarjfs $(sed -n 's/^#define PACKAGE_VERSION "\(.*\)"/\1/p' "$builddir/config.h")"
run_example varjfs_batch "no error"
run_example varjfs_kv "run 1"
is "and a second time" "$("$T/varjfs_kv" "$T/volume" 2>&1)" "run 2"
run_example varjfs_iterate "$(printf 'accounts/anna: 2 bytes\naccounts/otto: 3 bytes\nruns/count: 4 bytes')"
run_example varjfs_item "$(printf 'p1: On trees\np2: ')"
run_example varjfs_namespace_delete "$(printf '1024 so far\ngone')"
compile_example varjfs_object
if grep -q '^#define HAVE_ZSTD 1' "$builddir/config.h"; then
    "$T/varjfs_object" "$T/volume" >"$T/object.out" 2>&1
    check "it runs" grep -xE '1048576 bytes, zstd.*, in [1-9][0-9]*' "$T/object.out"
else
    skip "it runs" "there is no zstd"
fi

# As people compile against it, with the paths of this tree in place of the installed ones.
if command -v pkg-config >/dev/null; then
    pc()
    {
        PKG_CONFIG_PATH=$builddir/lib/client pkg-config --define-variable=includedir="$srcdir/include" \
            --define-variable=libdir="$builddir/.libs" "$@" varjfs
    }
    for example in object-files key-table; do
        # shellcheck disable=SC2046 # lists of options
        check "examples/$example with pkg-config" "$CC" -std=c99 -D_POSIX_C_SOURCE=200809L \
            -D_FILE_OFFSET_BITS=64 $(pc --cflags) "$srcdir/examples/$example.c" $(pc --libs) -o "$T/$example"
    done
else
    skip "examples with pkg-config" "pkg-config is not installed"
fi
export LD_LIBRARY_PATH=$builddir/.libs
objects=$T/object-files
keys=$T/key-table
printf 'one three' >"$T/text"
check "a file becomes an object" "$objects" "$T/volume" put texts/a "$T/text"
check "bytes are inserted" "$objects" "$T/volume" insert texts/a 4 'two '
is "it is read" "$("$objects" "$T/volume" get texts/a)" "one two three"
is "it is listed" "$("$objects" "$T/volume" list texts)" "13 a"
check "it is removed" "$objects" "$T/volume" remove texts/a
is "and has gone" "$("$objects" "$T/volume" get texts/a 2>&1)" "object-files: no such object, key or volume"
check "keys are set together" "$keys" "$T/volume" set colours red=ff0000 green=00ff00
is "and listed" "$("$keys" "$T/volume" list colours | xargs)" "green=00ff00 red=ff0000"
is "and read" "$("$keys" "$T/volume" get colours red)" "ff0000"

tap_done
