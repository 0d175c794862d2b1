#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# A volume at a node (store=remote, meta=remote): one mount has it at a time, and the node may be
# killed and started again under it.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program varjfsd fsck.varjfs

node_dir=$T/node
socket=$T/socket
rounds=5 # of kill -9; --long: 30
[ "${1:-}" != --long ] || rounds=30
SOURCE=$T/volume.conf

start_node()
{
    varjfsd -c "$T/varjfsd.conf" >>"$T/node.log" 2>&1 &
    node_pid=$!
    wait_for 20 test -S "$socket"
}

kill_node()
{
    kill -9 "$node_pid"
    wait "$node_pid" 2>/dev/null
    rm -f "$socket"
}

stop_node()
{
    kill "$node_pid" 2>/dev/null
    wait "$node_pid" 2>/dev/null
}
at_exit stop_node

mkdir -m 700 "$node_dir"
cat >"$T/varjfsd.conf" <<END
[node]
listen_insecure = unix:$socket
[volume default]
directory = $node_dir
END
chmod 600 "$T/varjfsd.conf"
start_node

node=remote:unix:$socket:insecure
make_fs -o "store=$node,meta=$node"
mount_varjfs
cp /usr/bin/env "$MNT/env"
is "what was written" "$(cmp /usr/bin/env "$MNT/env"; echo $?)" 0

# ---- one has it at a time

# refused NAME STATUS COMMAND [ARG...]
refused()
{
    local name=$1 wanted=$2
    shift 2
    is "$name: status" "$(status_of "$@")" "$wanted"
    check "$name: who has it" grep "in use by varjfs\[$(daemon_pid)\] on .*; its lease ends in [0-9]* s" "$T/err"
}

# As of another machine: by a volume file of its own.
mkdir -p "$T/mnt2"
cp "$SOURCE" "$T/copy.conf"
refused "a second mount" 1 varjfs "$T/copy.conf" "$T/mnt2"
refused "a second mount for reading" 1 varjfs "$T/copy.conf" "$T/mnt2" -o ro
refused "a check" 8 fsck.varjfs -n "$T/copy.conf"
is "the first one goes on" "$(echo one >"$MNT/one" && cat "$MNT/one")" one

# ---- its process is gone

sync "$MNT/one"
kill_varjfs
mount_varjfs -o "log=$T/daemon.log"
is "another one takes over at once" "$(cat "$MNT/one")" one
check "and says of whom" grep "is of a process that is gone" "$T/daemon.log"

# ---- the node is killed

# Numbers in files, each durable before the next one is begun; the last one that was is in $T/durable.
write_numbers()
{
    local n=0
    while [ ! -e "$T/enough" ]; do
        n=$((n + 1))
        echo "$n" >"$MNT/number.$n" && sync "$MNT/number.$n" || return 1
        echo "$n" >"$T/durable.new" && mv "$T/durable.new" "$T/durable"
    done
}

# As many as @1 more.
numbers_went_on()
{
    [ "$(cat "$T/durable")" -ge "$1" ]
}

echo 0 >"$T/durable"
write_numbers 2>"$T/write.err" &
writer=$!
for ((i = 0; i < rounds; i++)); do
    wait_for 60 numbers_went_on $(($(cat "$T/durable") + 3)) || fail "round $i: it goes on"
    kill_node
    start_node
done
wait_for 60 numbers_went_on $(($(cat "$T/durable") + 3)) || fail "it goes on"
touch "$T/enough"
wait "$writer"
is "no write failed" "$? $(cat "$T/write.err")" "0 "
umount_varjfs

mount_varjfs
lost=0
for ((n = 1; n <= $(cat "$T/durable"); n++)); do
    [ "$(cat "$MNT/number.$n")" = "$n" ] || lost=$((lost + 1))
done
is "nothing that was durable is lost" "$lost" 0
umount_varjfs

# ---- one that is not heard of

mount_varjfs -o "lease=3,commit=3600,log=$T/first.log"
echo kept >"$MNT/kept" && sync "$MNT/kept"
echo lost >"$MNT/lost"
first=$(daemon_pid)
kill -STOP "$first"
check "until it has ended" wait_for 20 varjfs "$T/copy.conf" "$T/mnt2"
is "what it had flushed is there" "$(cat "$T/mnt2/kept")" kept
check_fails "what it had not is lost" test -e "$T/mnt2/lost"
echo new >"$T/mnt2/new" && sync "$T/mnt2/new"
kill -CONT "$first"
check_fails "its fsync fails" sync "$MNT/lost"
check "it says why" wait_for 10 grep "another session has taken over" "$T/first.log"
check_fails "it makes nothing any more" touch "$MNT/more"
umount_varjfs
is "the second one goes on" "$(cat "$T/mnt2/new")" new
MNT=$T/mnt2 umount_varjfs
fsck_clean "a check finds nothing"
tap_done
