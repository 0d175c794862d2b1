#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Requests that come by io_uring, and what uring= does where the kernel does not offer it.  The switch of the
# kernel is for all mounts, so it is on only while this test mounts, and then as it was before.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires root
requires program varjfsctl
requires command python3
requires command taskset
switch=/sys/module/fuse/parameters/enable_uring
[ -w $switch ] || skip_all "the kernel has no requests by io_uring"
before=$(cat $switch)

as_before()
{
    echo "$before" >$switch
}
at_exit as_before

# with_switch Y|N COMMAND [ARG...]: while it is so
with_switch()
{
    local status=0
    echo "$1" >$switch
    "${@:2}" || status=$?
    as_before
    return $status
}

ring_threads()
{
    cat "/proc/$(daemon_pid)/task/"*/comm | grep -c '^varjfs-ring$'
}

# processors_of PID NAME: of each thread of that name
processors_of()
{
    grep -lsx "$2" "/proc/$1/task/"*/comm | sed 's|comm$|status|' | xargs sed -n 's/^Cpus_allowed_list:\t//p'
}

# Of requests, by the kind that varjfsctl stats knows.
count_of()
{
    varjfsctl stats --json "$MNT" | python3 -c 'import json, sys
print(json.load(sys.stdin)["request"][sys.argv[1]]["calls"])' "$1"
}

# shellcheck disable=SC2119 # without options
make_fs
mkdir -p "$MNT"

# ---- where the kernel does not offer it

status=0
said=$(with_switch N varjfs "$SOURCE" "$MNT" -o uring=on 2>&1) || status=$?
is "uring=on, refused: status" $status 1
is "uring=on, refused: why" "$said" "varjfs: uring=on: the kernel offers none ($switch)"
is "nothing was mounted" "$(mount_points_below "$T")" ""

# ---- where it does

for when in off auto; do
    with_switch Y mount_varjfs -o uring=$when
    is "uring=$when does without" "$(ring_threads)" 0
    umount_varjfs
done
status=0
said=$(with_switch Y varjfs "$SOURCE" "$MNT" -o uring=on 2>&1) || status=$?
case $said in
*"custom io"* | *"Operation not permitted"* | *"Function not implemented"* | *"the processors are"*)
    skip "the rest" "$said"
    tap_done
    ;;
esac
is "uring=on: exit status" $status 0
[ $status = 0 ] || { note "$said" && tap_done; }
check "each processor has a ring" test "$(ring_threads)" -ge "$(nproc)"
looked=$(count_of getattr)
python3 -c 'import os, sys
for _ in range(1000):
    os.listxattr(sys.argv[1])' "$MNT"
check "its requests are counted" test "$(count_of listxattr)" -ge 1000
check "and no others" test "$(count_of getattr)" -le $((looked + 100))

# What is in memory no other thread reads or copies; the threads of one processor are there when one has to.
near_threads()
{
    processors_of "$(daemon_pid)" varjfs-serve | grep -cx '[0-9]*'
}

echo small >"$MNT/small"
near=$(near_threads)
before_reads=$(count_of read) before_copies=$(count_of copy_file_range)
python3 -c 'import os, sys
fd, to = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[1] + ".copy", os.O_RDWR | os.O_CREAT)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
assert os.pread(fd, 100, 0) == b"small\n"
assert os.copy_file_range(fd, to, 6, 0, 0) == 6
assert os.pread(to, 100, 0) == b"small\n"' "$MNT/small"
is "a file in memory is read and copied: exit status" $? 0
is "by no thread besides" "$(near_threads)" "$near"
is "each copy is one request" $(($(count_of copy_file_range) - before_copies)) 1
check "so are its reads" test $(($(count_of read) - before_reads)) -le 2
head -c 60000 /dev/urandom >"$MNT/stored"
umount_varjfs
with_switch Y mount_varjfs -o uring=on
dd if="$MNT/stored" of=/dev/null bs=4096 count=1 skip=9 iflag=direct status=none
is "a file in the store is read: exit status" $? 0
is "it is one request" "$(count_of read)" 1
check "by another thread" test "$(near_threads)" -ge 1

umount_varjfs
VARJFS_TEST_WRAP_META=fault:kinds=commit,fail=20,errno=ENOSPC with_switch Y mount_varjfs -o uring=on
near=$(near_threads)
mkdir "$MNT/full"
check "changes while there is no space for one: exit status" mkdir "$MNT/full/"{1..60}
check "another thread makes room" test "$(near_threads)" -gt "$near"

# Who polls, and who does not.
polls_of()
{
    varjfsctl stats --json "$MNT" | python3 -c 'import json, sys
print(json.load(sys.stdin)["wait"]["busy_poll"]["calls"])'
}

look_often()
{
    python3 -c 'import os, sys
for _ in range(3000):
    os.listxattr(sys.argv[1])' "$MNT"
}

if [ "$(nproc)" -gt 1 ]; then
    look_often
    check "requests one after another are polled for" test "$(polls_of)" -gt 0
fi
umount_varjfs
with_switch Y mount_varjfs -o uring=on,busy_poll=0
look_often
is "not with busy_poll=0" "$(polls_of)" 0
umount_varjfs
with_switch Y mount_varjfs -o uring=on

# From all processors at once, of all sizes.
work()
{
    python3 - "$MNT/$1" <<'PYTHON'
import os
import random
import sys

where, chance = sys.argv[1], random.Random(sys.argv[1])
os.mkdir(where)
for number in range(60):
    path = f"{where}/{number}"
    data = chance.randbytes(chance.choice([0, 1, 4096, 65536, 65537, 300000, 3 << 20]))
    with open(path, "wb") as f:
        f.write(data)
        if number % 10 == 0:
            os.fsync(f.fileno())
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    assert os.pread(fd, len(data) + 1, 0) == data
    at = chance.randrange(len(data) + 1)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    assert os.pread(fd, 1000, at) == data[at:at + 1000]
    os.close(fd)
    os.rename(path, path + "-there")
    os.link(path + "-there", path)
    os.chmod(path, 0o600)
    assert os.stat(path).st_size == len(data) and os.stat(path).st_nlink == 2
    os.unlink(path + "-there")
assert sorted(os.listdir(where)) == sorted(str(number) for number in range(60))
PYTHON
}
workers=()
for i in 1 2 3 4 5 6; do
    work $i &
    workers+=($!)
done
status=0
for i in "${workers[@]}"; do
    wait "$i" || status=$?
done
is "six processes at once: exit status" $status 0

# shellcheck disable=SC2154 # tap.sh sets srcdir
python3 "$srcdir/tests/mount/edits.py" "$MNT" >"$T/edits" 2>&1
is "edits.py: exit status" $? 0
check "to read-only" varjfs "$SOURCE" "$MNT" -o remount,ro
check "and back" varjfs "$SOURCE" "$MNT" -o remount,rw
umount_varjfs
fsck_clean "afterwards"

# ---- edits whose notifications make the kernel send WRITEs

mkdir "$T/hold"
export VJ_HOLD=$T/hold
VARJFS_TEST_DELAY=threads=4 with_switch Y mount_varjfs -o uring=on
status=0
for i in $(seq "${VARJFS_TEST_ROUNDS:-20}"); do
    timeout --kill-after=10 120 python3 "$srcdir/tests/mount/cache.py" "$MNT" few_ >"$T/few" 2>&1 || status=$?
    [ $status = 0 ] || break
done
is "more dirty mappings than threads: exit status" $status 0
umount_varjfs

# ---- a daemon that may run on some processors alone

with_switch Y taskset -c 0 varjfs "$SOURCE" "$MNT" -o uring=on
work 7
is "it runs on no other: exit status" $? 0
is "nor do its threads" "$(processors_of "$(daemon_pid)" 'varjfs.*' | sort -u)" 0
umount_varjfs

# ---- a device that does not answer

# One thread waits in the kernel for it, where it does nothing else; it may not be one that others need.
thaw()
{
    fsfreeze --unfreeze "$T/device" 2>/dev/null
    return 0
}

# No such name: status 1 when it was answered, 124 when not.
look_up()
{
    local status=0
    timeout 20 taskset -c 0 stat "$MNT/dir/none" >"$T/stat" 2>&1 || status=$?
    echo $status
}

waits_for_the_device()
{
    grep -qsx percpu_rwsem_wait "/proc/$1/task/"*/wchan
}

mkdir "$T/device"
truncate -s 600M "$T/disk"
if ! { command -v taskset fsfreeze && mkfs.ext4 -q "$T/disk" && mount -o loop "$T/disk" "$T/device"; } >"$T/device.log" 2>&1; then
    skip "a device that does not answer" "no ext4 on a loop device: $(cat "$T/device.log")"
else
    at_exit thaw
    kept=$SOURCE
    SOURCE=$T/device/source
    # shellcheck disable=SC2119 # without options
    make_fs
    with_switch Y mount_varjfs -o uring=on,safety=storage
    mkdir "$MNT/dir"
    fsfreeze --freeze "$T/device"
    taskset -c 0 mkdir "$MNT/one" &
    maker=$!
    check "a change waits for the device" wait_for 30 waits_for_the_device "$(daemon_pid)"
    is "others of its processor are answered" "$(look_up)" 1
    thaw
    wait $maker
    is "the change: exit status" $? 0
    umount_varjfs
    umount "$T/device"
    SOURCE=$kept
fi

# ---- the end

# Requests that wait for a thread when the mount ends; there is one, and each keeps it for a moment.
head -c 3M /dev/urandom >"$T/content"
with_switch Y mount_varjfs -o uring=on
cp "$T/content" "$MNT/long"
umount_varjfs
VARJFS_TEST_DELAY=threads=1,read=300 with_switch Y mount_varjfs -o uring=on
pid=$(daemon_pid)
readers=()
for i in 0 1 2; do
    dd if="$MNT/long" of="$T/part.$i" bs=1M count=1 skip=$i iflag=direct status=none &
    readers+=($!)
done
reads_are_there()
{
    [ "$(grep -lsx request_wait_answer "/proc/${readers[0]}/wchan" "/proc/${readers[1]}/wchan" "/proc/${readers[2]}/wchan" | wc -l)" = 3 ]
}
check "all wait for an answer" wait_for 30 reads_are_there
kill -TERM "$pid"
status=0
for reader in "${readers[@]}"; do
    wait "$reader" || status=$?
done
is "they get it: exit status" $status 0
cat "$T"/part.? >"$T/parts"
check "and all bytes" cmp "$T/parts" "$T/content"
check "the daemon ends" wait_for 30 process_gone "$pid"

with_switch Y mount_varjfs -o uring=on
exec 8>"$MNT/open"
echo more >&8
dd if=/dev/zero of="$MNT/many" bs=64K count=64 status=none
kill_varjfs
check "who has a file open comes back" sh -c "! echo more >&8" 2>/dev/null
exec 8>&-
with_switch Y mount_varjfs -o uring=on
check "a mount after that" test -d "$MNT/1"
pid=$(daemon_pid)
kill -TERM "$pid"
check "SIGTERM ends it" wait_for 30 process_gone "$pid"
fsck_clean "after the ends"
tap_done
