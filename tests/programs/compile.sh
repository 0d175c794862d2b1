#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# A compile out of tree: make builds everything once, then nothing, then exactly what depends on
# what was touched; archives, shared libraries and programs run from the mount.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/program.sh"
requires command gcc make ar
program_begin "$@"
files=30
[ -z "$long" ] || files=400

source_tree()
{
    local i
    mkdir -p "$W/source/include" "$W/build" && cd "$W/source" || return 1
    for i in $(seq "$((files / 10))"); do
        echo "#define VALUE_$i $i" >"include/h$i.h"
    done
    for i in $(seq "$files"); do
        cat >"f$i.c" <<-END
		#include "h$(((i - 1) % (files / 10) + 1)).h"
		#include <stdio.h>
		int f$i(int x);
		int f$i(int x)
		{
		    return x + VALUE_$(((i - 1) % (files / 10) + 1));
		}
		END
    done
    {
        echo '#include <stdio.h>'
        for i in $(seq "$files"); do echo "int f$i(int x);"; done
        echo 'int main(void) { int x = 0;'
        for i in $(seq "$files"); do echo "x = f$i(x);"; done
        # shellcheck disable=SC2028 # C, not echo
        echo 'printf("%d\n", x); return 0; }'
    } >main.c
    cat >Makefile <<-'END'
	.RECIPEPREFIX = >
	VPATH = $(S)
	objects := $(patsubst $(S)/%.c,%.o,$(wildcard $(S)/f*.c))
	all: program libshared.so
	program: main.o libstatic.a
	>$(CC) -g -o $@ main.o libstatic.a
	libstatic.a: $(objects)
	>$(AR) rcs $@ $?
	libshared.so: $(objects)
	>$(CC) -shared -o $@ $(objects)
	%.o: %.c
	>@echo compile $*
	>@$(CC) -g -fPIC -MMD -I$(S)/include -c -o $@ $<
	-include $(wildcard *.d)
	END
}

build()
{
    (cd "$W/build" && make -f "$W/source/Makefile" S="$W/source" "$@" 2>&1)
}

compiled()
{
    grep -c '^compile ' "$T/made"
}

expected=0
for ((i = 1; i <= files; i++)); do
    expected=$((expected + (i - 1) % (files / 10) + 1))
done
check "a source tree" source_tree
check "make -j4" build -j4
is "the program runs" "$("$W/build/program")" $expected
is "make again has nothing to do" "$(build | grep -c '^compile')" 0
check "make -q agrees" build -q

# make compares times in nanoseconds: a header written after its objects is newer, always.
stale=0
for ((i = 1; i <= 10; i++)); do
    n=$((i % (files / 10) + 1))
    echo "#define VALUE_$n $n" >"$W/source/include/h$n.h"
    build -j2 >"$T/made"
    [ "$(compiled)" = 10 ] || stale=$((stale + 1))
    # And a file written over is too, within the same tick of the clock.
    build -q || stale=$((stale + 1))
done
is "a header that changes rebuilds its 10 objects, 10 times over" $stale 0
echo >>"$W/source/f1.c"
build >"$T/made"
is "a source file that changes rebuilds one" "$(compiled)" 1
sed -i 's/VALUE_1 1/VALUE_1 2/' "$W/source/include/h1.h"
build >"$T/made"
is "sed -i of a header rebuilds 10" "$(compiled)" 10
is "the program is the new one" "$("$W/build/program")" $((expected + 10))
touch -d '2000-01-01' "$W/source/f2.c"
is "an older time rebuilds nothing" "$(build | grep -c '^compile')" 0
touch -r "$W/source/f2.c" "$W/build/f2.o"
touch "$W/source/f2.c"
build >"$T/made"
is "touch rebuilds" "$(compiled)" 1

# A shared library in use is mapped; one that replaces it does not disturb the process.
cat >"$T/user.c" <<-END
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    void *library = dlopen(argv[argc - 1], RTLD_LAZY);
    int (*f)(int) = library ? (int (*)(int))dlsym(library, "f2") : 0;
    char c;
    if (!f)
        return puts(dlerror()), 1;
    puts("ready");
    fflush(stdout);
    if (read(0, &c, 1) != 1)
        return 2;
    printf("%d\n", f(0));
    return 0;
}
END
check "a program that loads a library" gcc -o "$W/user" "$T/user.c" -ldl
mkfifo "$T/to" "$T/from"
"$W/user" "$W/build/libshared.so" <"$T/to" >"$T/from" &
user=$!
exec 3>"$T/to" 4<"$T/from"
read -r line <&4
is "it loads it from the mount" "$line" ready
check_fails "a running program cannot be written to" bash -c ": >>'$W/user'"
cp "$W/build/libshared.so" "$W/build/new.so"
mv "$W/build/new.so" "$W/build/libshared.so"
echo >&3
read -r line <&4
is "it calls what it had loaded" "$line" 2
status=0
wait "$user" || status=$?
is "and ends well" "$status" 0
exec 3>&- 4<&-
check "strip" strip "$W/build/program"
is "and runs" "$("$W/build/program")" $((expected + 10))
check "make -j4 from nothing" bash -c "rm -rf '$W/build' && mkdir '$W/build' && cd '$W/build' && make -j4 -f ../source/Makefile S='$W/source'"

# This project itself, in a tree of its own.
# shellcheck disable=SC2154 # tap.sh sets srcdir and builddir
if [ -n "$long" ] && [ -x "$srcdir/configure" ]; then
    mkdir "$W/own"
    check "a copy of the project" bash -c "cd '$srcdir' && tar -c --exclude=./build --exclude=./build-test --exclude=./.git . | tar -C '$W/own' -xp"
    mkdir "$W/own-build"
    check "configure" bash -c "cd '$W/own-build' && eval \"\$('$builddir/config.status' --config | sed 's|^|../own/configure |')\" CC=gcc"
    check "make -j2" make -C "$W/own-build" -j2
    is "nothing is left to do" "$(make -C "$W/own-build" 2>&1 | grep -cE '^ +(CC|CCLD) ')" 0
    check "its programs run" "$W/own-build/varjfsctl" --version
    check "one of its tests" bash -c "make -C '$W/own-build' tests/unit/base/test-buf && '$W/own-build/tests/unit/base/test-buf'"
    check "make clean" make -C "$W/own-build" clean
fi
program_end
