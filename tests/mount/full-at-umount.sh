#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# Another program fills the device while data waits in memory, and the file system is unmounted:
# the daemon tries again until there is space.
. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
requires_fuse
requires root
requires command python3
mkdir "$T/device"
mount -t tmpfs -o size=64M tmpfs "$T/device" || skip_all "no tmpfs can be mounted"
SOURCE=$T/device/source
# shellcheck disable=SC2119 # no options
make_fs
mount_varjfs -o "commit=3600,log=$T/log"
head -c 6M /dev/urandom >"$T/data"
# Closing would start write-back: the device is filled before that.
fill_while_open()
{
    python3 - "$T/data" "$MNT/file" "$T/device/filler" <<'END'
import errno, sys
data = open(sys.argv[1], "rb").read()
out = open(sys.argv[2], "wb", buffering=0)
assert out.write(data) == len(data)
filler = open(sys.argv[3], "wb", buffering=0)
for size in (1 << 16, 1 << 12):
    try:
        while True:
            filler.write(bytes(size))
    except OSError as error:
        assert error.errno == errno.ENOSPC
END
}
check "the device is filled while 6 MiB wait in memory" fill_while_open
pid=$(daemon_pid)
check "umount" unmount "$MNT"
check "the daemon tries again" wait_for 20 grep -q 'trying again' "$T/log"
rm "$T/device/filler"
check "it ends when there is space again" wait_for 60 process_gone "$pid"
mount_varjfs
check "nothing is lost" cmp "$T/data" "$MNT/file"
umount_varjfs
fsck_clean "in the end"
umount -i "$T/device"
tap_done
