#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# What is wrong at a node, as a mount sees it: a full disk, errors of the disk, a daemon that stands still.  A call
# succeeds or says what is wrong, what was fsynced is there, and a check finds nothing.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/nodes.sh"

requires command python3
requires root
requires_fuse
requires program varjfsd fsck.varjfs varjfsctl

SOURCE=$T/volume.conf

# Writes files of 1 MB and fsyncs each; the name of one whose calls all succeeded goes into $T/durable, what a call
# said into $T/said.
cat >"$T/write.py" <<'END'
import os, sys
top, durable, said, count, first = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
for n in range(first, first + count):
    name = f"file{n}"
    data = (b"%06d" % n) + os.urandom(1000000)
    try:
        fd = os.open(os.path.join(top, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        try:
            at = 0
            while at < len(data):
                at += os.write(fd, data[at:])
            os.fsync(fd)
        finally:
            os.close(fd)
        with open(os.path.join(durable, name), "wb") as f:
            f.write(data)
    except OSError as e:
        with open(said, "a") as f:
            f.write(e.strerror + "\n")
END

# write_files COUNT FIRST
write_files()
{
    timeout 200 python3 "$T/write.py" "$MNT" "$T/durable" "$T/said" "$1" "$2"
}

# all_there NAME: what was fsynced
all_there()
{
    local f bad=0 count=0
    for f in "$T"/durable/*; do
        count=$((count + 1))
        cmp -s "$f" "$MNT/${f##*/}" || bad=$((bad + 1))
    done
    is "$1: none of $count is lost" "$bad" 0
    check "$1: there are some" test $count -gt 0
}

# begin REPLICAS NODE...
begin()
{
    local replicas=$1
    shift
    rm -rf "$SOURCE" "$T/durable" "$T/said"
    mkdir "$T/durable"
    : >"$T/said"
    make_fs -f -o "meta=remote:$(nodes_at keys):insecure,store=remote:$(nodes_at "$@"):replicas=$replicas,timeout=20,silence=2,insecure"
    mount_varjfs -o "log=$T/daemon.log"
}

node_begin keys

# ---- a full disk below the objects

mkdir "$T/small"
mount -t tmpfs -o size=48M,mode=700 varjfs-prove-full "$T/small" || skip_all "no tmpfs can be mounted"
small_end()
{
    nodes_end
    wait_for 20 umount "$T/small"
}
at_exit small_end
NODE_DIR=$T/small/volume node_begin full
begin 1 full
write_files 60 0
is "a full node: calls say that it is full" "$(sort -u "$T/said")" "No space left on device"
all_there "a full node"
for ((n = 0; n < 20; n++)); do
    rm -f "$MNT/file$n" "$T/durable/file$n"
done
check "a full node: space comes back" varjfsctl gc "$MNT"
: >"$T/said"
write_files 10 100
is "a full node: then there is room" "$(cat "$T/said")" ""
remount_varjfs -o "log=$T/daemon.log"
all_there "a full node, after a remount"
umount_varjfs
fsck_clean "a full node"
node_stop full

# ---- errors of a disk, at one of two nodes and at the only one

for nodes in 1 2; do
    export VARJFS_TEST_WRAP_STORE=fault:kinds=put+get+flush,every=4,times=0,errno=EIO,if=$T/broken
    node_begin bad$nodes
    unset VARJFS_TEST_WRAP_STORE
    if [ $nodes = 2 ]; then
        node_begin good
        begin 2 bad2 good
    else
        begin 1 bad1
    fi
    write_files 5 0
    : >"$T/broken"
    write_files 20 10
    rm "$T/broken"
    note "$nodes nodes: calls that failed: $(sort "$T/said" | uniq -c | tr '\n' ' ')"
    is "EIO at one of $nodes: calls succeed or say so" "$(grep -cv "Input/output error" "$T/said")" 0
    [ $nodes = 1 ] || is "EIO at one of 2: no call fails" "$(cat "$T/said")" ""
    all_there "EIO at one of $nodes"
    write_files 5 50
    remount_varjfs -o "log=$T/daemon.log"
    all_there "EIO at one of $nodes, after a remount"
    umount_varjfs
    fsck_clean "EIO at one of $nodes"
done
node_stop good
node_stop bad1
node_stop bad2

# ---- a daemon that stands still

for nodes in 1 2; do
    for name in still$nodes other$nodes; do
        node_begin "$name"
    done
    if [ $nodes = 2 ]; then
        begin 2 still2 other2
    else
        begin 1 still1
    fi
    write_files 3 0
    kill -STOP "$(node_pid still$nodes)"
    write_files 6 10 &
    writer=$!
    if [ $nodes = 2 ]; then
        wait $writer
        check "one of two stands still: it is passed over" test "$(figure degraded_puts)" -gt 0
        all_there "one of two stands still"
        kill -CONT "$(node_pid still$nodes)"
    else
        figures_begin
        # shellcheck disable=SC2317 # by wait_for
        node_is_lost()
        {
            varjfsctl node status "$MNT" | grep -q 'state=away'
        }
        check "the only one stands still: it is noticed" wait_for 30 node_is_lost
        kill -CONT "$(node_pid still$nodes)"
        wait $writer
    fi
    is "a node of $nodes that stood still: no call failed" "$(cat "$T/said")" ""
    all_there "a node of $nodes that stood still"
    # shellcheck disable=SC2317 # by wait_for
    all_healed()
    {
        ! varjfsctl node status "$MNT" | grep -q 'state=away' &&
            varjfsctl node repair "$MNT" >"$T/repair" && grep -q 'healed 0$' "$T/repair"
    }
    check "a node of $nodes that stood still: all is well again" wait_for 60 all_healed
    umount_varjfs
    fsck_clean "a node of $nodes that stood still"
done

# ---- all nodes are killed between a write and its fsync: the bytes are written again

cat >"$T/between.py" <<'END'
import os, sys
path, copy = sys.argv[1:]
data = os.urandom(40 << 20)
with open(copy, "wb") as f:
    f.write(data)
fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
at = 0
while at < len(data):
    at += os.write(fd, data[at:])
print("written", flush=True)
sys.stdin.readline()
os.fsync(fd)
END
for name in first second; do
    node_begin $name
done
begin 2 first second
mkfifo "$T/go"
timeout 200 python3 "$T/between.py" "$MNT/between" "$T/durable/between" <"$T/go" >"$T/between.out" 2>&1 &
writer=$!
exec 9>"$T/go"
# shellcheck disable=SC2317 # by wait_for
objects_are_put()
{
    [ "$(node_objects first | wc -l)" -gt 20 ] && [ "$(node_objects second | wc -l)" -gt 20 ] &&
        grep -q written "$T/between.out"
}
check "killed before an fsync: there are objects" wait_for 60 objects_are_put
for name in first second; do
    node_stop $name KILL
done
for name in first second; do
    node_start $name
done
echo go >&9
exec 9>&-
wait $writer || true # what it says is compared
is "killed before an fsync: it succeeds" "$(cat "$T/between.out")" written
remount_varjfs -o "log=$T/daemon.log"
all_there "killed before an fsync"
# Of a put that a node was asked for when it was killed it may have the bytes.
check "killed before an fsync: gc" varjfsctl gc "$MNT"
umount_varjfs
fsck_clean "killed before an fsync"

# ---- the keys: a disk that fails, and one that stands still

begin 1 still1
write_files 3 0
kill -STOP "$(node_pid keys)"
write_files 3 10 &
writer=$!
# shellcheck disable=SC2317 # by wait_for
keys_are_away()
{
    grep -q "meta remote" "$T/daemon.log" || ! kill -0 "$writer" 2>/dev/null
}
wait_for 15 keys_are_away
kill -CONT "$(node_pid keys)"
wait $writer
is "the keys' node stood still: no call failed" "$(cat "$T/said")" ""
all_there "the keys' node stood still"
umount_varjfs
fsck_clean "the keys' node stood still"
tap_done
