#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# A store with a timeout that hangs: whoever reads or waits for durability gets an error, nothing that
# was written is lost, and what the store did too late is not left behind.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
requires_fuse
requires command python3 flock

# Puts, flushes and gets wait as long as this file is locked.
hold=$T/hold
: >"$hold"
export VARJFS_TEST_WRAP_STORE="fault:kinds=put+flush+get,hold=$hold"
# The daemon's sandbox lets it open what lies in this directory.
export VARJFS_TEST_DELAY="hold=$T"

cat >"$T/reader.py" <<'END'
import errno, sys
try:
    open(sys.argv[1], "rb").read()
except OSError as e:
    sys.exit(0 if e.errno == errno.EIO else str(e))
sys.exit("it was read")
END
cat >"$T/syncer.py" <<'END'
import errno, os, sys
fd = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
os.write(fd, open(sys.argv[1], "rb").read())
try:
    os.fsync(fd)
except OSError as e:
    sys.exit(0 if e.errno == errno.EIO else str(e))
sys.exit("it is durable")
END
make_fs -o store=posix:timeout=1
mount_varjfs
head -c 1000000 /dev/urandom >"$T/old"
cp "$T/old" "$MNT/old"
umount_varjfs
mount_varjfs

exec 9<"$hold"
check "the store stops" flock -x -n 9
check "a reader gets EIO" python3 "$T/reader.py" "$MNT/old" 9<&-
head -c 3000000 /dev/urandom >"$T/new"
check "fsync gets EIO" python3 "$T/syncer.py" "$T/new" "$MNT/new" 9<&-
check "what was written is read, from memory" cmp "$T/new" "$MNT/new"
exec 9<&-

check "the store goes on: it becomes durable" varjfsctl sync "$MNT"
check "the old file is read" cmp "$T/old" "$MNT/old"
umount_varjfs
mount_varjfs
check "the new file is whole" cmp "$T/new" "$MNT/new"
umount_varjfs
fsck_clean "after that"
# Objects are removed when their late puts end, before the daemon does.
is "nothing that came too late is left" "$(fsck.varjfs -n "$SOURCE" 2>&1 | grep -c 'no record')" 0
tap_done
