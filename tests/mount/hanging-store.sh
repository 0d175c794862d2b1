#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# A store that does not answer for a while: whoever waits for durability can be killed, other files and
# names go on, umount -f works, and when the store goes on everything becomes durable.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/hang.sh"
requires_fuse
requires command python3 flock

# Puts, flushes and gets wait as long as this file is locked.
export VARJFS_TEST_WRAP_STORE="fault:kinds=put+flush+get,hold=$hold"

# FILE COPY [catch]: new content, and fsync; with the last word, alarms are caught every now and then.
cat >"$T/syncer.py" <<-'END'
	import os, signal, sys
	signal.signal(signal.SIGINT, signal.SIG_DFL)
	caught = 0
	def count(*_):
	    global caught
	    caught += 1
	fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
	data = os.urandom(1 << 20)
	os.write(fd, data)
	with open(sys.argv[2], "wb") as copy:
	    copy.write(data)
	if len(sys.argv) > 3:
	    signal.signal(signal.SIGALRM, count)
	    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
	print("fsync", flush=True)
	os.fsync(fd)
	signal.setitimer(signal.ITIMER_REAL, 0)
	print("caught" if caught else "undisturbed", flush=True)
	END

begin_fsync() # NAME [catch]
{
    python3 "$T/syncer.py" "$MNT/$1" "$T/copy-$1" ${2:+"$2"} >"$T/out-$1" 2>&1 9<&- &
    syncer=$!
    check "$1: fsync begins" wait_for 60 asleep_in_fsync "$1" $syncer
}

# Nothing after the word makes it sleep but fsync.
asleep_in_fsync()
{
    grep -qx fsync "$T/out-$1" && grep -sq '^State:.[SD]' "/proc/$2/status"
}

same()
{
    cmp -s "$T/copy-$1" "$MNT/$1"
}

# shellcheck disable=SC2119 # without options
make_fs
mount_varjfs -o dirty=32M
head -c 1000000 /dev/urandom >"$MNT/known"
head -c 1000000 /dev/urandom >"$MNT/unknown"
cp "$MNT/known" "$T/copy-known"
cp "$MNT/unknown" "$T/copy-unknown"
mkdir "$MNT/dir"
check "before: all is durable" varjfsctl sync "$MNT"
remount_varjfs -o dirty=32M
check "before: one file is in the page cache" same known
# The kernel drops clean pages when it likes, but none that are locked.
python3 - "$MNT/known" >"$T/locked" <<'END' &
import mmap, os, signal, sys
MAP_LOCKED = 0x2000
m = mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 0, mmap.MAP_SHARED | MAP_LOCKED, mmap.PROT_READ)
print("locked", flush=True)
signal.pause()
END
locker=$!
check "before: it stays there" wait_for 30 grep -qx locked "$T/locked"

answers_stop "hang"
begin_fsync killed
kill -KILL $syncer
check "SIGKILL ends a process that waits in fsync" wait_for 30 ended $syncer
begin_fsync interrupted
kill -INT $syncer
check "SIGINT too" wait_for 30 ended $syncer
begin_fsync terminated catch
kill -TERM $syncer
check "SIGTERM too, after signals that were caught" wait_for 30 ended $syncer
# This one stays, whatever signals it catches.
begin_fsync catching catch
stays=$syncer

go_on()
{
    local i
    cd "$MNT" || return 1
    for ((i = 0; i < 100; i++)); do
        echo "$i" >"dir/small.$i" || return 1
    done
    head -c 4000000 /dev/urandom >other && cp other "$T/copy-other" && cmp other "$T/copy-other" || return 1
    echo inserted | varjfsctl insert other 1000 || return 1
    (head -c 1000 "$T/copy-other" && echo inserted && tail -c +1001 "$T/copy-other") >"$T/copy" || return 1
    mv "$T/copy" "$T/copy-other"
    cmp other "$T/copy-other" && mv dir/small.1 dir/moved && rm dir/small.2 && mkdir dir/sub && ln other linked &&
        [ "$(find dir | wc -l)" = 101 ] && stat -f . >"$T/stat" && setfattr -n user.a -v b other &&
        truncate -s 100000 linked && head -c 100000 "$T/copy-other" >"$T/copy-linked" && cmp linked "$T/copy-linked"
}
check "other files and names go on" timeout 120 bash -c "$(declare -f go_on); T='$T' MNT='$MNT'; go_on"
mv "$T/copy-linked" "$T/copy-other"
check "what is cached is read" same known
kill -KILL $locker
check "it need not stay any more" wait_for 30 ended $locker
check "names become durable, and files that need no object" timeout 60 python3 -c "
import os, sys
fd = os.open(sys.argv[1] + '/dir/small.3', os.O_RDWR)
os.write(fd, b'x')
os.fsync(fd)
os.fsync(os.open(sys.argv[1], os.O_RDONLY))" "$MNT"
cat "$MNT/unknown" >"$T/unknown" 9<&- &
reader=$!
check "a reader of what is not cached waits" wait_for 30 grep -sq '^State:.[SD]' "/proc/$reader/status"
kill -KILL $reader
check "and can be killed" wait_for 30 ended $reader
check "the fsync that catches signals still waits" kill -0 $stays
answers_go_on
wait $stays
is "the store goes on: it ends well" "$? $(tail -n 1 "$T/out-catching")" "0 caught"
check "the rest becomes durable" varjfsctl sync "$MNT"
kill_varjfs
fsck_clean "killed after the fsync"
mount_varjfs -o dirty=32M
for name in known unknown catching other; do
    check "$name: as it was synchronised" same $name
done
check "what was durable meanwhile" test -s "$MNT/dir/small.3"

# umount -f, and what nobody waited for becomes durable when the store goes on.
answers_stop "umount -f"
begin_fsync last
daemon=$(daemon_pid)
if [ "$(id -u)" = 0 ]; then
    # Says that it is busy: what it does first is to end all requests.
    timeout 60 umount -i -f "$MNT" 2>"$T/umount.log"
    check "umount -f: who waits in fsync comes back" wait_for 30 ended $syncer
    is "with an error" "$(grep -cE 'ECONNABORTED|ENOTCONN|\[Errno (103|107)\]' "$T/out-last")" 1
    is_mounted "$MNT" && check "umount -f: plain umount" wait_for 20 unmount "$MNT"
else
    kill -KILL $syncer
    check "umount: its users can be killed" wait_for 30 ended $syncer
    check "umount" wait_for 20 unmount "$MNT"
fi
check "the daemon waits for the store" kill -0 "$daemon"
answers_go_on
check "and then it ends" wait_for 60 process_gone "$daemon"
fsck_clean "after umount -f"
mount_varjfs
check "what nobody synchronised became durable" same last
umount_varjfs

# Most of a crowd waits in sync threads, so that the store's hanging takes no more than a few request threads; each can be killed.
cat >"$T/crowd.py" <<-'END'
	import os, sys
	stem, sizes = sys.argv[1], range(40)
	data = {i: os.urandom(100000 + i) for i in sizes}
	def sync_one(i):
	    fd = os.open(f"{stem}.{i}", os.O_WRONLY | os.O_CREAT)
	    os.write(fd, data[i])
	    os.fsync(fd)
	    os._exit(0)
	pids = [os.fork() or sync_one(i) for i in sizes]
	print(*pids, flush=True)
	ends = [os.waitpid(p, 0)[1] for p in pids]
	print("ends", sorted(ends), flush=True)
	for i in sizes:
	    if open(f"{stem}.{i}", "rb").read() != data[i]:
	        print("wrong", i)
	END
two_are_zombies() # PID
{
    [ "$(pgrep --count --parent "$1" --runstates Z)" = 2 ]
}
traced()
{
    is "$1" "$(grep -c 'durable: by a request thread' "$T/trace") $(grep -c 'durable: by a sync thread' "$T/trace")" "$2"
}
crowd_waits()
{
    [ "$(grep -c 'durable: by' "$T/trace")" = 40 ]
}
crowd() # SETTINGS "HERE THERE"
{
    local daemon script
    VARJFS_TEST_DELAY="hold=$T,$1" VARJFS_TRACE=front varjfs -f "$SOURCE" "$MNT" 2>"$T/trace" 9<&- &
    daemon=$!
    check "a crowd, $1: mount" wait_for 30 is_mounted "$MNT"
    answers_stop "a crowd, $1"
    python3 "$T/crowd.py" "$MNT/$1" >"$T/crowd" 9<&- &
    script=$!
    check "a crowd, $1: all are in fsync" wait_for 60 crowd_waits
    traced "a crowd, $1: by request threads, by sync threads" "$2"
    check "a crowd, $1: others go on" timeout 60 sh -c "cd '$MNT' && echo x >one && mv one two && rm two"
    # shellcheck disable=SC2046 # numbers: of one of the first, and of the last
    kill -KILL $(head -n 1 "$T/crowd" | awk '{ print $2, $NF }')
    check "a crowd, $1: two of them are killed" wait_for 30 two_are_zombies "$script"
    answers_go_on
    wait "$script"
    is "a crowd, $1: the others end well, and all is there" "$(tail -n +2 "$T/crowd")" \
        "ends [$(printf '0, %.0s' {1..38})9, 9]"
    umount_varjfs
    wait "$daemon"
    is "a crowd, $1: the daemon's status" "$?" 0
}
crowd threads=64 "16 24"
crowd threads=63 "0 40"
fsck_clean "after the crowds"
tap_done
