#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# scripts/check finds each kind of fault: one of each is planted in a copy of the tree.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"

requires command python3

copy=$T/copy
mkdir "$copy"
for d in src lib include man scripts tests; do
    mkdir -p "$copy/$d"
    cp -r "$srcdir/$d/." "$copy/$d"
done
cp "$srcdir/.clang-format" "$srcdir/.shellcheckrc" "$copy"

# plant RULE FILE:LINE TEXT...: append TEXT to FILE, where LINE ("+": the first planted one) was not
# before; the rule must name both.  All that is planted is there when the rules look: each fault is in a
# file, or at least at the end of one, of its own.
planted=()
rules=()
plant()
{
    local rule=$1 file=${2%:*} line=${2##*:} lines=0
    shift 2
    [ ! -e "$copy/$file" ] || lines=$(wc -l <"$copy/$file")
    [ "$line" != + ] || line=$((lines + 1))
    if [ "$line" -le "$lines" ]; then
        fail "$rule: $file has line $line at first"
        return
    fi
    mkdir -p "$(dirname "$copy/$file")"
    printf '%s\n' "$@" >>"$copy/$file"
    planted+=("$file:$line: $rule: " "$rule finds: $file: ${*: -1}")
    rules+=("$rule")
}

# Looks once for all that is planted below $copy.
look()
{
    local out status i
    # shellcheck disable=SC2046 # a word for each rule
    out=$("$copy/scripts/check" $(printf '%s\n' "${rules[@]}" | sort -u) 2>&1)
    status=$?
    is "scripts/check says that there are faults" "$status" 1
    for ((i = 0; i < ${#planted[@]}; i += 2)); do
        if grep -F "${planted[i]}" <<<"$out" >/dev/null; then
            pass "${planted[i + 1]}"
        else
            fail "${planted[i + 1]}" "expected a fault at ${planted[i]}, got:
$out"
        fi
    done
    planted=()
    rules=()
}

licence='/* SPDX-License-Identifier: LGPL-3.0-or-later */'
word=TO
word+=DO

plant spdx src/base/no-licence.c:1 '#include "base/base.h"'
plant include-table src/base/upward.c:2 "$licence" '#include "store/store.h"'
plant include-table src/store/sideways.c:2 "$licence" '#include "meta/meta.h"'
plant include-table src/fs/too-deep.c:2 "$licence" '#include "store/store.h"'
plant include-table src/file/private.c:2 "$licence" '#include "store/store-private.h"'
plant include-table src/fs/foreign.c:2 "$licence" '#include <lmdb.h>'
plant include-table src/meta/fuse.c:2 "$licence" '#include <fuse_lowlevel.h>'
plant include-table src/meta/unknown.c:2 "$licence" '#include <curl.h>'
plant include-table src/base/bare.c:2 "$licence" '#include "base.h"'
plant include-table lib/preload/glib.c:2 "$licence" '#include <glib.h>'
plant include-table include/varjfs/inward.h:2 "$licence" '#include "base/base.h"'
plant include-table src/attic/room.c:1 "$licence"
plant includes-of-includes src/front/past.c:2 "$licence" '#include "meta/lmdb-private.h"'
plant room-calls src/fs/settings.c:+ 'bool f(VjTransform *t) { return vj_transform_parse("lz4", t, NULL); }'
plant room-calls src/front/call.c:3 "$licence" '#include "fs/fs.h"' 'int f(VjMeta *m) { return vj_meta_flush(m); }'
plant names src/base/Upper_Case.c:1 "$licence"
plant names src/base/symbol.c:3 "$licence" '' 'int helper(int a)' '{' '    return a;' '}'
plant names src/base/symbol-long.c:3 "$licence" '' 'const char *' 'helper(int a,' '       int b)' '{' '}'
plant names src/base/symbol-variable.c:3 "$licence" '' 'int counter = 1;'
plant words src/base/words.c:2 "$licence" "/* $word: later */"
plant words README.md:1 "see /wo""rk/shared"
# Put together here, so that this file has no fault of its own.
ours=ga
ours+=te
plant our-words src/base/ours.c:2 "$licence" "/* Waits at the $ours. */"
plant our-words src/base/ours-name.c:3 "$licence" '' "int vj_${ours}_open;"
plant our-words man/varjfs.8.pod:+ "The $ours is open."
plant our-words src/fs/README.md:+ "in an open lease of"" ids"
plant our-words src/base/ours-static.c:3 "$licence" '' 'static bool known;'
plant our-words src/fs/ours.c:2 "$licence" 'static int fresh_pages;'
plant formats src/base/x-format.h:3 "$licence" '' 'struct VjXFormat {' '    int a;' '};' \
    'G_STATIC_ASSERT(4 == 4);'
plant formats src/base/unasserted-format.h:1 "$licence" '' 'struct VjX {' '    int a;' '};'
plant ops-calls src/store/calls.c:4 "$licence" 'int f(void)' '{' '    return s->ops->get(s);' '}'
plant transactions src/file/read-open.c:3 "$licence" '' 'int f(void) { return vj_meta_begin_read(m, &txn); }'
plant transactions tests/unit/volume/open.c:3 "$licence" '' 'int f(void) { vj_txn_end(txn); }'
plant gotos src/store/jump.c:2 "$licence" '    goto again;'
plant widths src/base/wide.c:2 "$licence" "/* $(printf '%085d' 0) */"
plant braces src/store/bare.c:2 "$licence" '    if (f(1,' '          2))' '        g();'
plant braces src/store/bare-else.c:3 "$licence" '    if (a) {' '    } else' '        g();'
plant only-base src/store/clock.c:2 "$licence" '    usleep(1000);'
plant only-base src/file/clock.c:2 "$licence" '    now = time(NULL);'
plant man-pages src/cmd/local.mk:+ 'bin_PROGRAMS += varjfs-undocumented'
plant man-pages man/unlisted.8.pod:1 '=head1 NAME' '' 'unlisted - a page'
if command -v podchecker >/dev/null; then
    plant man-pages man/broken.8.pod:3 '=head1 NAME' '' '=over 4' '' 'text'
fi
plant executable tests/lib/no-mode.sh:1 '#!/bin/sh'
plant readmes src/base/unnamed.c:1 "$licence"
look

# Four files, each of which calls the next one.
for i in 1 2 3 4; do
    printf '%s\n' "$licence" "int vj_ring_$i(void)" '{' "    return vj_ring_$((i % 4 + 1))();" '}' \
        >"$copy/src/base/ring-$i.c"
done
check "circles finds four files" \
    grep -q 'ring-1.c:1: circles: circle of 4 files: ring-1.c ring-2.c ring-3.c ring-4.c' \
    <("$copy/scripts/check" circles)
rm "$copy/src/base/ring-4.c"
check_fails "three in a row are none" grep -q 'ring-1.c:1: circles' <("$copy/scripts/check" circles)
rm "$copy"/src/base/ring-?.c

# A page that is too long, which a rule names by its first line.
cp "$copy/src/base/README.md" "$T/kept"
check_fails "a page of fewer words has no fault" grep -q '^src/base/README.md:1: readmes: ' \
    <("$copy/scripts/check" readmes 2>&1)
yes word | head -n 1200 >>"$copy/src/base/README.md"
check "readmes finds a page of too many words" \
    grep -q '^src/base/README.md:1: readmes: ' <("$copy/scripts/check" readmes 2>&1)
cp "$T/kept" "$copy/src/base/README.md"

# A face that brings its room's private header to all others.
cp "$copy/src/meta/meta.h" "$T/kept"
echo '#include "meta/overlay-private.h"' >>"$copy/src/meta/meta.h"
check "includes-of-includes finds a private header behind a face" \
    grep -q 'src/volume/[a-z-]*.c:[0-9]*: includes-of-includes: .*brings meta/overlay-private.h, private to meta' \
    <("$copy/scripts/check" includes-of-includes 2>&1)
cp "$T/kept" "$copy/src/meta/meta.h"

# A rank without its line; a room without its page.
sed -i 's/^\(    VJ_RANK_BASE = 90,\)/    VJ_RANK_NEW = 89,\n\1/' "$copy/src/base/lock.h"
check "locks finds a rank that is not listed" \
    grep -q 'lock.h:[0-9]*: locks: rank NEW = 89' <("$copy/scripts/check" locks 2>&1)
rm "$copy/src/base/README.md"
check "readmes finds a room without its page" \
    grep -q '^src/base:1: readmes: ' <("$copy/scripts/check" readmes 2>&1)

check_fails "an unknown rule is refused" "$copy/scripts/check" nonesuch

# What runs another program on each file has a tree without other files.
all=$("$copy/scripts/check" --list | cut -d' ' -f1 | sort)
copy=$T/small
mkdir -p "$copy/scripts"
cp "$srcdir/scripts/check" "$copy/scripts"
cp "$srcdir/.clang-format" "$srcdir/.shellcheckrc" "$copy"
if command -v clang-format-14 >/dev/null; then
    plant formatting src/base/shape.c:3 "$licence" '' 'int   vj_x;'
fi
if command -v shellcheck >/dev/null; then
    # shellcheck disable=SC2016 # the fault is that it is not quoted
    plant shell tests/lib/unquoted.sh:2 '#!/bin/sh' 'rm -r $1'
fi
[ ${#rules[@]} = 0 ] || look

tested=$(sed -n 's/^ *plant \([a-z-]*\).*/\1/p; s/^check "\([a-z-]*\) finds.*/\1/p' "$0" | sort -u)
is "each rule has its fault here" "$tested" "$all"

tap_done
