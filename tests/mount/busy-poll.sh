#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Where requests come one at a time a thread polls for the next one; with busy_poll=0 none does.  Who waits
# for a store does not keep others from being served.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/hang.sh"
. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/delay.sh"

requires_fuse
requires program varjfsctl
requires command python3
requires command taskset

# polls NAME: a figure of theirs
polls()
{
    varjfsctl stats --json "$MNT" | python3 -c 'import json, sys
print(json.load(sys.stdin)["wait"]["busy_poll"][sys.argv[1]])' "$1"
}

# ask COUNT: so many requests, one at a time
ask()
{
    python3 -c 'import os, sys
for _ in range(int(sys.argv[2])):
    os.listxattr(sys.argv[1])' "$MNT" "$1"
}

found()
{
    echo $(($(polls calls) - $(polls failures)))
}

# Others may want the processors just now, so several times.
is_polled()
{
    local try before after
    for try in $(seq 50); do
        before=$(found)
        ask 5000
        after=$(found)
        echo "try $try: $((after - before)) of 5000 requests were found by polling"
        [ $((after - before)) -lt 1000 ] || return 0
    done
    return 1
}

# Gets wait as long as this file is locked.
# shellcheck disable=SC2154 # hang.sh sets hold
export VARJFS_TEST_WRAP_STORE="fault:kinds=get,hold=$hold"
make_fs -o objects=64K
mount_varjfs
if [ "$(nproc)" -gt 1 ]; then
    check "requests one at a time are found by polling" is_polled
else
    skip "requests one at a time are found by polling" "one processor"
fi
head -c 8M /dev/urandom >"$MNT/file"
remount_varjfs

answers_stop "gets"
python3 -c 'import os, sys
name = sys.argv[1]
for _ in range(3000):
    os.listxattr(name)
print("asked", flush=True)
with open(name, "rb", buffering=0) as f:
    print("read", len(f.read(1 << 16)))' "$MNT/file" >"$T/reader" 9<&- &
reader=$!
check "a reader asks, and comes to what hangs" wait_for 60 grep -q asked "$T/reader"
check "others are served meanwhile" ask 3000
is "it does hang" "$(cat "$T/reader")" asked
answers_go_on
status=0
wait "$reader" || status=$?
is "the reader ends: status" $status 0
is "and has read" "$(tail -n 1 "$T/reader")" "read 65536"

umount_varjfs
check "a mount on one processor" taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" varjfs "$SOURCE" "$MNT"
ask 3000
is "nobody polls there" "$(polls calls)" 0

# Pages that are written back are the first request after silence, in which nobody looks on any more; after
# them the daemon waits for the kernel.
umount_varjfs
delay_mount "$T/control"
head -c 8K /dev/urandom >"$MNT/pages"
python3 -c 'import mmap, os, sys, time
pages = mmap.mmap(os.open(sys.argv[1] + "/pages", os.O_RDWR), 8192)
pages[0] = 1
for _ in range(20000):
    os.listxattr(sys.argv[1])
time.sleep(3)  # the silence itself
with open(sys.argv[2], "r+b") as control:
    control.seek(13 * 8)
    control.write(bytes([1]))
pages.flush()' "$MNT" "$T/control" 9<&- &
writer=$!
is_waiting()
{
    [ "$(delay_word "$T/control" 14)" -gt 0 ]
}
check "the kernel makes the daemon wait" wait_for 60 is_waiting
check "others are served meanwhile" timeout 20 stat -f "$MNT"
delay_hold_notices "$T/control" 0
check "the pages are written" wait_for 60 ended $writer

remount_varjfs -o busy_poll=0
ask 3000
is "busy_poll=0: nobody polls" "$(polls calls)" 0
umount_varjfs
is "busy_poll=1001: status" "$(status_of varjfs "$SOURCE" "$MNT" -o busy_poll=1001)" 2
tap_done
