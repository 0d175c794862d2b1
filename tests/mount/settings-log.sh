#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# settings-log.sh - why a user.varjfs.* was refused, and that one has no effect, stands in the log

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires command setfattr getfattr

# refused ATTRIBUTE VALUE WORDS...: EINVAL, and one more line about the file that has each of the WORDS
refused()
{
    local name=$1 value=$2 word line status=0 before
    shift 2
    before=$(wc -l <"$T/log")
    setfattr -n "user.varjfs.$name" -v "$value" "$MNT/file" 2>"$T/err" || status=$?
    is "$name=$value is refused" "$status $(grep -c 'Invalid argument' "$T/err")" "1 1"
    line=$(tail -n "+$((before + 1))" "$T/log")
    is "one line about it" "$(grep -c "inode $ino: user.varjfs.$name was refused to user $(id -u): " <<<"$line")" 1
    for word; do
        is "which says \"$word\"" "$(grep -cF -- "$word" <<<"$line")" 1 || note "$line"
    done
}

make_fs -o objects=64K
mount_varjfs -o "log=$T/log"
: >"$MNT/file"
ino=$(stat -c %i "$MNT/file")

refused transform zip '"zip"' none xor rle
refused transform xor:zz 'transformation xor'
refused mode middle '"middle"' 'client, server, transport'
refused objects 1 'AVG' '1024'
refused objects 1K:2K:4K 'AVG alone'
refused objects "$(printf '1%.0s' {1..65})" 'longer than 64 bytes'
refused colour red 'transform, mode, objects'
is "nothing was set" "$(getfattr -d "$MNT/file")" ""

for mode in server transport; do
    check "mode=$mode is accepted" setfattr -n user.varjfs.mode -v $mode "$MNT/file"
    is "and said to have no effect" "$(grep -c "inode $ino: user.varjfs.mode=$mode is kept and has no effect: " "$T/log")" 1
done
before=$(wc -l <"$T/log")
check "mode=client is accepted" setfattr -n user.varjfs.mode -v client "$MNT/file"
check "and a transformation" setfattr -n user.varjfs.transform -v xor "$MNT/file"
is "about which there is nothing to say" "$(tail -n "+$((before + 1))" "$T/log")" ""

# Anybody may be wrong as often as he likes.
before=$(wc -l <"$T/log")
for _ in {1..200}; do
    echo "$MNT/file"
done | xargs setfattr -n user.varjfs.mode -v wrong 2>/dev/null
check "200 mistakes in a row are a few lines" test "$(($(wc -l <"$T/log") - before))" -lt 100

# The mount and mkfs have no such option: they refuse it.
umount_varjfs
check_fails "mode= is no option of a mount" try_mount_varjfs -o mode=server
check_fails "nor of mkfs" mkfs.varjfs -o mode=server "$T/other"

tap_done
