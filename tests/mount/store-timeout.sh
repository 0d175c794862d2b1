#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# A store with a timeout that hangs: whoever reads or waits for durability gets an error, nothing that
# was written is lost, and what the store did too late is not left behind. Readers can be killed before.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/hang.sh"
requires_fuse
requires command python3 flock

# Puts, flushes and gets wait as long as this file is locked.
export VARJFS_TEST_WRAP_STORE="fault:kinds=put+flush+get,hold=$hold"

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

answers_stop "the store stops"
check "a reader gets EIO" python3 "$T/reader.py" "$MNT/old" 9<&-
head -c 3000000 /dev/urandom >"$T/new"
check "fsync gets EIO" python3 "$T/syncer.py" "$T/new" "$MNT/new" 9<&-
check "what was written is read, from memory" cmp "$T/new" "$MNT/new"
answers_go_on

check "the store goes on: it becomes durable" varjfsctl sync "$MNT"
check "the old file is read" cmp "$T/old" "$MNT/old"
umount_varjfs
mount_varjfs
check "the new file is whole" cmp "$T/new" "$MNT/new"
umount_varjfs
fsck_clean "after that"
# Objects are removed when their late puts end, before the daemon does.
is "nothing that came too late is left" "$(fsck.varjfs -n "$SOURCE" 2>&1 | grep -c 'no record')" 0
# A reader past the page cache: its request waits in the store, and not for the end of a long timeout.
cat >"$T/direct.py" <<'END'
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
print("reads", flush=True)
os.preadv(fd, [mmap.mmap(-1, 1 << 16)], 0)
END
waits()
{
    grep -qx reads "$T/direct" && grep -sq '^State:.[SD]' "/proc/$reader/status"
}
rm -r "$SOURCE"
make_fs -o store=posix:timeout=3600
mount_varjfs
cp "$T/old" "$MNT/old"
umount_varjfs
VARJFS_TRACE=front mount_varjfs
answers_stop "the store stops for long"
python3 "$T/direct.py" "$MNT/old" >"$T/direct" 9<&- &
reader=$!
check "a reader waits" wait_for 30 waits
kill -KILL $reader
# An asynchronous request's caller waits in the kernel, which does not say that it is killed.
if grep -q "a direct read is one request: yes" "$T/varjfs.log"; then
    check "and can be killed" wait_for 30 ended $reader
else
    note "direct reads are asynchronous with this libfuse: their callers are killed when the store goes on"
fi
answers_go_on
check "the reader is gone" wait_for 30 ended $reader
check "others read what it wanted" cmp "$T/old" "$MNT/old"
umount_varjfs
fsck_clean "after that too"
tap_done
