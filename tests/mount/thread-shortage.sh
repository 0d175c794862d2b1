#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# No more threads can be started, as under a limit on tasks: fsync goes on, slower.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
requires_fuse
requires command python3

group=
for parent in /sys/fs/cgroup/pids /sys/fs/cgroup; do
    if [ -z "$group" ] && mkdir "$parent/varjfs-test-$$" 2>"$T/mkdir.log"; then
        group=$parent/varjfs-test-$$
        [ -e "$group/pids.max" ] || {
            rmdir "$group"
            group=
        }
    fi
done
[ -n "$group" ] || skip_all "no control group with a limit on tasks can be made here"

remove_group()
{
    mount_cleanup
    wait_for 20 rmdir "$group"
}
at_exit remove_group

# shellcheck disable=SC2119 # without options
make_fs
mkdir -p "$MNT"
VARJFS_TRACE=front varjfs -f "$SOURCE" "$MNT" 2>"$T/trace" &
daemon=$!
check "mount" wait_for 30 is_mounted "$MNT"
for i in {1..64}; do
    echo old >"$MNT/$i"
done
check "the limit" sh -c "echo $daemon >'$group/cgroup.procs' && cat '$group/pids.current' >'$group/pids.max'"
cat >"$T/crowd.py" <<-'END'
	import os, sys
	def one(i):
	    for k in range(20):
	        fd = os.open(f"{sys.argv[1]}/{i}", os.O_WRONLY)
	        os.write(fd, b"new")
	        os.fsync(fd)
	        os.close(fd)
	    os._exit(0)
	pids = [os.fork() or one(i) for i in range(1, 65)]
	print("ends", sorted({os.waitpid(p, 0)[1] for p in pids}), flush=True)
	END
python3 "$T/crowd.py" "$MNT" >"$T/crowd" 2>&1 &
crowd=$!
ended()
{
    [ -s "$T/crowd" ]
}
check "64 processes with fsync come to their end" wait_for 120 ended
is "and well" "$(cat "$T/crowd")" "ends [0]"
is "sync threads were asked for" "$(grep -c -m 1 'durable: by a sync thread' "$T/trace")" 1
echo max >"$group/pids.max"
ended || pkill -KILL -P "$crowd"
wait "$crowd"
is "all is there" "$(cat "$MNT"/* | sort | uniq -c | tr -s ' ')" " 64 new"
umount_varjfs
wait "$daemon"
is "the daemon's status" $? 0
fsck_clean "afterwards"
tap_done
