#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# varjfsctl objects and kv: what a shell can do with a volume that is not mounted.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/client/client.sh"

requires command python3 pgrep pkill

v=$T/v
check "a volume" mkfs.varjfs "$v"

check "a key" varjfsctl kv put "$v" s colour red
is "and its value" "$(varjfsctl kv get "$v" s colour)" red
printf 'by\0input' >"$T/value"
from_file()
{
    "${@:2}" <"$1"
}
check "a value from standard input" from_file "$T/value" varjfsctl kv put "$v" s k
varjfsctl kv get "$v" s k >"$T/got"
check "byte by byte" cmp "$T/value" "$T/got"
is "keys" "$(varjfsctl kv list "$v" s | tr '\n' ' ')" "colour k "
is "as JSON" "$(varjfsctl kv list --json "$v" s)" '["colour", "k"]'
python3 -c 'import sys, varjfs; varjfs.open(sys.argv[1]).keys("nul")[b"a\0b"] = b"v"' "$v"
is "with a NUL" "$(varjfsctl kv list --json "$v" nul | python3 -c 'import json, sys; print(json.load(sys.stdin) == ["a\0b"])')" True
is "those of a prefix" "$(varjfsctl kv list "$v" s co)" colour
is "namespaces" "$(varjfsctl kv list "$v" | tr '\n' ' ')" "nul s "
check "deleted" varjfsctl kv delete "$v" s k
is "what is not there" "$(varjfsctl kv get "$v" s k 2>&1)" \
    "varjfsctl kv: s/k: no such object, key or volume"

seq 1000000 >"$T/content"
check "an object" from_file "$T/content" varjfsctl objects write "$v" o log
varjfsctl objects read "$v" o log >"$T/got"
check "has what was written" cmp "$T/content" "$T/got"
echo in >"$T/in"
check "an insert" from_file "$T/in" varjfsctl objects insert "$v" o log 4
is "is in the middle" "$(varjfsctl objects read "$v" o log | sed -n 2,4p | tr '\n' ' ')" "2 in 3 "
is "status" "$(varjfsctl objects status --json "$v" o log |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["original_size"])')" 6888899
echo new >"$T/in"
check "written again" from_file "$T/in" varjfsctl objects write "$v" o log
is "is all of it" "$(varjfsctl objects read "$v" o log | head -c 100)" new
check "with a transformation" varjfsctl objects create --transform=rle "$v" o r
is "which it has" "$(varjfsctl objects status "$v" o r | sed -n 's/transform=//p')" rle
is "names" "$(varjfsctl objects list "$v" o | tr '\n' ' ')" "log r "
check "gone" varjfsctl objects delete "$v" o r
check "cut off" varjfsctl objects resize "$v" o log 2
is "it is" "$(varjfsctl objects read "$v" o log)" ne
check "another name" varjfsctl objects rename "$v" o log renamed
check "and back" varjfsctl objects rename "$v" o renamed log
echo new >"$T/in"
from_file "$T/in" varjfsctl objects write "$v" o log
is "input that cannot be read" "$(from_file / varjfsctl objects write "$v" o log 2>&1)" \
    "varjfsctl objects: standard input: Is a directory"
is "takes nothing away" "$(varjfsctl objects read "$v" o log)" new
is "nor makes it" "$(from_file / varjfsctl objects write "$v" o unread 2>/dev/null; echo $?)" 1
is "an object" "$(varjfsctl objects list "$v" o un)" ""
check "an attribute" varjfsctl items put "$v" o log colour red
check "from standard input" from_file "$T/value" varjfsctl items put "$v" o log v
varjfsctl items get "$v" o log v >"$T/got"
check "it is there" cmp "$T/value" "$T/got"
is "all of it as JSON" "$(varjfsctl items attributes --json "$v" o log v)" '{"v": "by\u0000input"}'
check "an attribute goes" varjfsctl items delete "$v" o log v
is "attributes" "$(varjfsctl items attributes "$v" o log)" colour=red
is "as JSON" "$(varjfsctl items attributes --json "$v" o log)" '{"colour": "red"}'
is "which is reserved" "$(varjfsctl items put "$v" o log varjfs.mode x 2>&1)" \
    "varjfsctl items: o/log: a name that is reserved"
varjfsctl kv put "$v" gone k v
varjfsctl kv delete "$v" gone k
is "a namespace without keys stays" "$(varjfsctl kv list "$v" | paste -sd " ")" "gone nul s"
varjfsctl kv put "$v" gone k v
check "all keys go" varjfsctl kv clear "$v" gone
is "with their namespace" "$(varjfsctl kv list "$v" | paste -sd " ")" "nul s"
is "once" "$(varjfsctl kv clear "$v" gone 2>&1)" "varjfsctl kv: gone: no such object, key or volume"
is "no such volume" "$(varjfsctl kv list "$T/none" 2>&1 | grep -c "^varjfsctl kv: $T/none: .*no such")" 1
is "bad usage" "$(varjfsctl kv get "$v" s >/dev/null 2>&1; echo $?)" 2

# A mount and programs take turns.
check "the daemon ends" stop_daemon "$v"
mkdir "$T/mnt"
if [ -w /dev/fuse ]; then
    at_exit fusermount3 -u -q "$T/mnt"
    check "a mount" varjfs "$v" "$T/mnt"
    is "an object is a file" "$(cat "$T/mnt/.varjfs/objects/o/log")" new
    ! command -v getfattr >/dev/null ||
        is "with its attributes" \
            "$(getfattr --only-values -n user.colour "$T/mnt/.varjfs/objects/o/log" 2>/dev/null)" red
    is "a volume that is mounted" "$(varjfsctl kv list "$v" 2>&1 | grep -c 'another program\|busy\|in use')" 1
    check "unmounted" fusermount3 -u "$T/mnt"
    check "and whole" fsck.varjfs -n "$v"
else
    skip "a mount" "no FUSE here"
fi
tap_done
