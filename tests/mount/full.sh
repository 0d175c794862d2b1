#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# A device that fills up: df tells what may still be written, write(2) itself says ENOSPC, what
# was accepted is readable, also after kill -9, and deleting works.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires root

mkdir "$T/device"
mount -t tmpfs -o size=64M none "$T/device" || skip_all "a tmpfs cannot be mounted"
SOURCE=$T/device/source
make_fs -o label=small
mount_varjfs

available_kib()
{
    df -k --output=avail "$MNT" | tail -1
}

# NAME BYTES
write_random()
{
    head -c "$2" /dev/urandom >"$MNT/$1" && sync "$MNT/$1"
}

before=$(available_kib)
is "df and varjfsctl df agree" \
    "$(($(varjfsctl df --json "$MNT" | tr ',{}' '\n' | sed -n 's/.*"available_bytes": *//p') / 4096))" \
    $((before / 4))
check "nine tenths of what df promised can be written" write_random large $((before * 9 * 1024 / 10))
check_fails "twice what is left cannot" write_random more $((before * 1024 / 5))
is "nothing is left then" "$(($(available_kib) < before / 20))" 1

# Small files until one does not fit.
status=0
for ((i = 0; i < 3000; i++)); do
    head -c 20000 /dev/urandom >"$MNT/small.$i" 2>/dev/null || {
        status=full
        break
    }
done
is "small files run into the end" "$status" full
rm "$MNT/small.$i"
(cd "$MNT" && md5sum -- *) >"$T/sums"
check "fsync on a full device" varjfsctl sync "$MNT"
kill_varjfs
fsck_clean "full, killed"
mount_varjfs
check "all is there after kill -9" sh -c "cd '$MNT' && md5sum --quiet -c '$T/sums'"
check "deleting works" sh -c "rm '$MNT'/*"
check "sync" varjfsctl sync "$MNT"
space_is_back()
{
    [ "$(available_kib)" -gt $((before * 8 / 10)) ]
}
check "space comes back" wait_for 10 space_is_back
check "and can be written" write_random again $((before * 7 * 1024 / 10))

# A direct append that fails is cut off by the kernel where it believes that the file ended: what
# another has appended meanwhile, without the kernel knowing, stays.
rm "$MNT"/*
wait_for 10 space_is_back
direct_append_fails()
{
    python3 - "$MNT" <<'EOF'
import mmap
import os
import sys

PAGE, MIB, RWF_NOAPPEND = 4096, 1 << 20, 0x20
name = sys.argv[1] + "/file"
fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
direct = os.open(name, os.O_RDWR | os.O_APPEND | os.O_DIRECT)
os.write(fd, b"a" * 4 * PAGE)
os.fsync(fd)
try:
    os.pwritev(fd, [b"n" * PAGE], 0, RWF_NOAPPEND)
except OSError:
    sys.exit(77)
os.fsync(fd)
with mmap.mmap(-1, 96 * MIB) as data:
    for at in range(0, len(data), MIB):
        data[at:at + MIB] = os.urandom(MIB)
    try:
        sys.exit(f"{os.write(direct, data)} bytes were written")
    except OSError as e:
        print(e)
with open(name, "rb") as f:
    content = f.read()
if content[:5 * PAGE] != b"a" * 4 * PAGE + b"n" * PAGE:
    sys.exit(f"{len(content)} bytes: the appended page is gone")
EOF
}
status=0
direct_append_fails || status=$?
if [ "$status" = 77 ]; then
    skip "a direct append that fails leaves what others appended" "the kernel has no RWF_NOAPPEND"
else
    is "a direct append that fails leaves what others appended" "$status" 0
fi
rm "$MNT"/file
umount_varjfs
fsck_clean "after all that"

# Small objects take far more than their bytes; what write(2) took finds room all the same.
mkdir "$T/second"
mount -t tmpfs -o size=64M none "$T/second"
SOURCE=$T/second/source
make_fs -o objects=2K
mount_varjfs
truncate -s 8M "$MNT/mapped"
head -c 80000000 /dev/urandom >"$MNT/large" 2>/dev/null
note "$(stat -c %s "$MNT/large") bytes were accepted"
check "small objects: what was accepted becomes durable" varjfsctl sync "$MNT"
md5sum <"$MNT/large" >"$T/sum"
kill_varjfs
mount_varjfs
is "and is there after kill -9" "$(md5sum <"$MNT/large")" "$(cat "$T/sum")"

# Stores into a mapping that found no room are reported, and not shown as if they were there.
cat >"$T/map.py" <<-'END'
	import errno, mmap, os, sys
	fd = os.open(sys.argv[1], os.O_RDWR)
	m = mmap.mmap(fd, 0)
	m[:] = os.urandom(len(m))
	try:
	    m.flush()
	except OSError as e:
	    print(errno.errorcode[e.errno])
	END
is "msync of a mapping on a full device" "$(python3 "$T/map.py" "$MNT/mapped")" ENOSPC
cached_is_stored()
{
    [ "$(md5sum <"$MNT/mapped")" = "$(dd if="$MNT/mapped" iflag=direct bs=1M status=none | md5sum)" ]
}
check "what found no room leaves the page cache" wait_for 20 cached_is_stored
umount_varjfs
fsck_clean "small objects"

# Each object takes an inode of the device: these run out before the bytes do.
mkdir "$T/third"
mount -t tmpfs -o size=64M,nr_inodes=2000 none "$T/third"
SOURCE=$T/third/source
make_fs -o objects=4K
mount_varjfs -o commit=3600
head -c 40000000 /dev/urandom >"$MNT/large" 2>"$T/said"
is "no inode is left below: write(2)" "$(grep -c 'No space left on device' "$T/said")" 1
note "$(stat -c %s "$MNT/large") bytes were accepted"
check "what was accepted becomes durable" varjfsctl sync "$MNT"
check "truncating works" truncate -s 1M "$MNT/large"
check "and gives inodes back" varjfsctl sync "$MNT"
check "that can be used" write_random again 500000
head -c 1M "$MNT/large" | md5sum >"$T/sum"
kill_varjfs
mount_varjfs
is "inodes: all is there after kill -9" "$(md5sum <"$MNT/large")" "$(cat "$T/sum")"
umount_varjfs
fsck_clean "inodes"
tap_done
