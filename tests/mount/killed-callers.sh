#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# Every caller that waits for a store that does not answer can be killed, whatever the call; when the
# store goes on the daemon does too, nothing that was there is lost, and what was killed has not half happened.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/hang.sh"
requires_fuse
requires command python3 flock fio pgrep setfattr

# shellcheck disable=SC2154 # tap.sh sets builddir and srcdir
LIBRWRITE=$builddir/.libs/librwrite.so callers=$srcdir/tests/mount/killed-callers.py
export LIBRWRITE

# Puts, flushes and gets wait as long as this file is locked.
export VARJFS_TEST_WRAP_STORE="fault:kinds=put+flush+get,hold=$hold"
export VARJFS_TRACE=front

waits() # NAME PID
{
    grep -qx calls "$T/out-$1" && grep -sq '^State:.[SD]' "/proc/$2/status" &&
        grep -sqE 'fuse|folio|request_wait|io_schedule|wait|read_events' "/proc/$2/wchan"
}

begin() # NAME KIND FILE [OTHER]
{
    python3 "$callers" "${@:2}" >"$T/out-$1" 2>&1 9<&- &
    caller=$!
    check "$1: it waits" wait_for 30 waits "$1" $caller
}

no_process() # PATTERN
{
    ! pgrep -f -- "$1" >"$T/pids"
}

# With a name or open.
inodes_used()
{
    stat -f -c '%c %d' "$MNT" | awk '{ print $1 - $2 }'
}

as_many_inodes() # COUNT
{
    [ "$(inodes_used)" = "$1" ]
}

looks()
{
    grep -c 'front: look: [1-9]' "$T/varjfs.log"
}

looked_thrice_since() # COUNT
{
    [ "$(looks)" -ge $(($1 + 3)) ]
}

killed() # NAME KIND FILE [OTHER]
{
    begin "$@"
    kill -KILL $caller
    check "$1: it is killed" wait_for 30 ended $caller
    is "$1: it did not come back before" "$(grep -c 'came back' "$T/out-$1")" 0
}

# shellcheck disable=SC2119 # without options
make_fs
mount_varjfs -o dirty=32M
for name in buffered direct mapped original edited target aio ended crowd; do
    head -c 1000000 /dev/urandom >"$T/$name"
    cp "$T/$name" "$MNT/$name"
done
touch "$MNT/copy"
setfattr -n user.varjfs.transform -v rle "$MNT/copy"
remount_varjfs -o dirty=32M

answers_stop "no answer"
killed "a reader" read_buffered "$MNT/buffered"
killed "a reader past the page cache" read_direct "$MNT/direct"
killed "a reader of a mapping" read_mapped "$MNT/mapped"
killed "a copy that is to be stored otherwise" copy_range "$MNT/original" "$MNT/copy"
killed "a rename over another file" rename_over "$MNT/new" "$MNT/target"
killed "a write with O_SYNC" write_sync "$MNT/synced"
is "its size is known at once" "$(stat -c %s "$MNT/synced")" 300000
begin "a reader that stays" read_buffered "$MNT/edited"
stays=$caller
killed "an edit beside it" insert "$MNT/edited"
begin "an fsync" sync_one "$MNT/sync"
syncer=$caller
killed "a writer, once memory for changes is full" write_much "$MNT/much"
is "it is answered for threads that do not come back" \
    "$(grep -cE 'a caller is killed: [0-9]+: it is answered' "$T/varjfs.log" | awk '{ print ($1 >= 3) }')" 1
inodes=$(inodes_used)
python3 -c "
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.unlink(sys.argv[1])
os.close(fd)" "$MNT/closed"
check "what others close meanwhile is let go" wait_for 30 as_many_inodes "$inodes"
fio --name=aio --filename="$MNT/aio" --rw=read --ioengine=libaio --iodepth=8 --direct=1 --bs=64k --size=960k \
    --fallocate=none --output="$T/fio" >"$T/fio-out" 2>&1 9<&- &
caller=$!
check "aio: a read is under way" wait_for 30 grep -q "front: ino $(stat -c %i "$MNT/aio"): read .* past the cache" "$T/varjfs.log"
pkill -KILL -P $caller
kill -KILL $caller
check "aio: its callers are killed, although no signal is told of" wait_for 30 no_process "name=aio"
wait $caller 2>"$T/said"
begin "aio of a thread that has ended" aio_of_a_thread_that_ends "$MNT/ended"
aio=$caller
looked=$(looks)
check "it is looked at for some time" wait_for 60 looked_thrice_since "$looked"
check "aio of a thread that has ended: its process lives, and waits" kill -0 $aio
begin "more than there are threads" crowd "$MNT/crowd"
kill -KILL $syncer
pkill -KILL -P $caller
kill -KILL $caller
check "all of them are killed" wait_for 60 no_process "killed-callers.py crowd"
check "an fsync too, although no signal was heard of" wait_for 30 ended $syncer
check "other calls are answered" timeout 30 sh -c "cd '$MNT' && echo x >one && rm one"
wait $caller 2>"$T/said"
# Their descriptors are closed, and their threads still use them.
answers_go_on
wait $aio
is "the store goes on: the aio is answered" "$(tail -n 1 "$T/out-aio of a thread that has ended")" "came back"
is "and well" "$(grep result "$T/out-aio of a thread that has ended")" "result 65536"
wait $stays
is "the store goes on: who stayed is answered" "$(tail -n 1 "$T/out-a reader that stays")" "came back"
check "the daemon lives" sh -c "cd '$MNT' && echo x >one && mv one two && rm two"
check "the rest becomes durable" timeout 120 varjfsctl sync "$MNT"
for name in buffered direct mapped original edited target aio ended crowd; do
    check "$name: as it was" cmp "$T/$name" "$MNT/$name"
done
is "what was written with O_SYNC is there, and its size is known" "$(stat -c %s "$MNT/synced")" 300000
check "no rename happened, and its file is whole" test "$(stat -c %s "$MNT/new")" = 300000
is "no part was copied" "$(stat -c %s "$MNT/copy")" 0
umount_varjfs
fsck_clean "after that"
mount_varjfs
for name in buffered direct mapped original edited target aio ended crowd; do
    check "$name: as it was, later" cmp "$T/$name" "$MNT/$name"
done
umount_varjfs
tap_done
