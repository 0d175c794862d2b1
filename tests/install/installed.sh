#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# What "make install" puts into place runs for every user and trusts nobody: no program or library names
# a directory of the one who built it, loads a library from elsewhere than the system or the install
# prefix, or may be written by others; and "make uninstall" takes all of it away.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"

requires command make readelf ldd strip
root=$T/root
umask 022

# As a user does it: nothing of the make that runs this test.
make_target()
{
    env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -C "$builddir" "$1" DESTDIR="$root"
}

makefile_variable()
{
    sed -n "s/^$1 = //p" "$builddir/Makefile"
}

elf_files()
{
    find "$1" -type f -exec sh -c 'head -c 4 "$1" | grep -q "^.ELF"' sh {} \; -print | sort
}

dynamic_entries() # FILE TAG...
{
    local file=$1 tag
    shift
    for tag; do
        readelf -d "$file" | grep -F "($tag)" | sed 's/.*\[\(.*\)\]/\1/'
    done
}

# Where the dynamic linker finds what a file needs, the libraries alone; names that it does not find.
libraries_of()
{
    ldd "$1" 2>&1 | awk '/not found/ { print $1 } / => \// { print $3 }'
}

system_directories="/lib /lib64 /usr/lib /usr/lib64"
of_the_system()
{
    local dir file
    file=$(realpath "$1" 2>/dev/null) || return 1
    for dir in $system_directories; do
        [[ $file != "$(realpath -m "$dir")"/* ]] || return 0
    done
    return 1
}

# Prints what is wrong with where a file's libraries come from.
foreign_libraries()
{
    local library
    dynamic_entries "$1" RPATH RUNPATH | sed 's/^/run path /'
    libraries_of "$1" | while read -r library; do
        of_the_system "$library" || echo "loads $library"
    done
}

# The comparison itself finds what it is for.
mkdir "$T/own"
echo 'int own(void) { return 0; }' >"$T/own/own.c"
echo 'int own(void); int main(void) { return own(); }' >"$T/own/main.c"
cc=${CC:-cc}
# shellcheck disable=SC2086 # a compiler may be several words
if $cc -shared -fPIC -o "$T/own/libown.so" "$T/own/own.c" 2>"$T/own/log" &&
    $cc -o "$T/own/main" "$T/own/main.c" -L"$T/own" -lown -Wl,-rpath,"$T/own" 2>>"$T/own/log"; then
    is "a library of one's own is found" "$(foreign_libraries "$T/own/main")" "run path $T/own
loads $T/own/libown.so"
else
    fail "a program with a library of its own" "$(cat "$T/own/log")"
fi

check "make install" make_target install
elf_files "$root" >"$T/elf"
for program in varjfs varjfsctl mkfs.varjfs fsck.varjfs umount.fuse.varjfs librwrite.so; do
    check "$program is among what is installed" grep -q "/$program\(\.[0-9.]*\)\?$" "$T/elf"
done
while IFS= read -r file; do
    expected=
    case $file in
    */libvarjfs_hdf5.so) expected="loads libhdf5" ;; # that of the program it is loaded into
    esac
    is "${file#"$root"} loads the system's libraries alone" \
        "$(foreign_libraries "$file" | sed 's/^\(loads libhdf5\)\.so\.[0-9]*$/\1/')" "$expected"
done <"$T/elf"

# Debugging information names the build directory and is no use to anybody but a debugger.
prefix_deps=$(makefile_variable with_prefix_deps)
case $prefix_deps in
no | /usr | /usr/local | "") skip "nothing names the private prefix" "built without one" ;;
*)
    while IFS= read -r file; do
        strip "$file"
    done <"$T/elf"
    is "nothing names the private prefix" "$(grep -rlF -- "$prefix_deps" "$root")" ""
    ;;
esac
is "nothing may be written by others, nothing is set-user-ID" \
    "$(find "$root" ! -type l ! -path "$root" -perm /6022)" ""
is "nothing names where it was installed for packing" "$(grep -rlF -- "$root" "$root")" ""

check "make uninstall" make_target uninstall
is "nothing is left" "$(find "$root" ! -type d)" ""

tap_done
