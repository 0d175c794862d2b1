#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Pages of the metadata that LMDB would stumble over: the mount refuses, fsck.varjfs names them.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program mkfs.varjfs fsck.varjfs

META="$SOURCE/meta/data.mdb"

# Bytes at an offset, in hexadecimal.
poke()
{
    python3 - "$META" "$1" "$2" <<'PY'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(int(sys.argv[2]))
    f.write(bytes.fromhex(sys.argv[3]))
PY
}

# The root page of the tree of names, by the newer of the two meta pages.
root_page()
{
    python3 - "$META" <<'PY'
import struct, sys
with open(sys.argv[1], "rb") as f:
    metas = []
    for i in range(2):
        f.seek(4096 * i + 16)
        m = f.read(136)
        metas.append((struct.unpack_from("<Q", m, 128)[0], struct.unpack_from("<Q", m, 112)[0]))
print(max(metas)[1])
PY
}

# shellcheck disable=SC2119 # no options
make_fs
mount_varjfs
for i in $(seq 200); do
    echo "content $i" >"$MNT/file$i"
done
check "in use while it is mounted" test -e "$SOURCE/varjfs.inuse"
umount_varjfs
check "not in use afterwards" test ! -e "$SOURCE/varjfs.inuse"
check "and it says so" test -e "$SOURCE/varjfs.clean"
is "clean" "$(status_of fsck.varjfs -n "$SOURCE")" 0
cp "$META" "$T/good"

root=$(root_page)
poke $((root * 4096)) ff
for mode in -n -y; do
    is "fsck.varjfs $mode finds the page" "$(status_of fsck.varjfs $mode "$SOURCE")" 4
    check "and names it" grep -q "meta/data.mdb: page $root: it says that it is page" "$T/out"
    check "and changes nothing" cmp -s -n $((root * 4096)) "$META" "$T/good"
done
is "the mount refuses" "$(status_of try_mount_varjfs)" 1
is "in one line" "$(wc -l <"$T/varjfs.log")" 1
check "that says where to look" grep -q "the metadata are damaged (data.mdb: page $root: .*); see fsck.varjfs(8)" "$T/varjfs.log"
is "a read-only mount refuses too" "$(status_of try_mount_varjfs -o ro)" 1
cp "$T/good" "$META"

poke 10 00
is "a damaged first page" "$(status_of fsck.varjfs -n "$SOURCE")" 4
check "is named" grep -q "page 0: it is not a meta page" "$T/out"
is "the mount refuses that as well" "$(status_of try_mount_varjfs)" 1
cp "$T/good" "$META"

truncate -s 12288 "$META"
is "a file without its end" "$(status_of fsck.varjfs -n "$SOURCE")" 4
is "is refused" "$(status_of try_mount_varjfs)" 1
cp "$T/good" "$META"

mount_varjfs
is "whole again" "$(cat "$MNT/file77")" "content 77"
kill_varjfs
check "a killed daemon leaves its mark" test -e "$SOURCE/varjfs.inuse"
mount_varjfs -o check=never
umount_varjfs
check "the next one ends in order" test -e "$SOURCE/varjfs.clean"
fsck_clean "after all that"

tap_done
