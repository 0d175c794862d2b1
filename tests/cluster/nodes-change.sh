#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# nodes-change.sh - a volume on three of four nodes gets the fourth, and loses two of the others
#
# With two replicas: node 4 is added, node 2 drained under edits, removed, killed and its disk wiped; node 3 is drained, taken back, killed
# and removed by force.  All that was written reads, with the volume file as it was written anew, and with an old copy
# of it put back, as a crash between the two steps of a change leaves it.  Then the same with one replica.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/cluster.sh"

requires_cluster
requires command python3
seed=${VARJFS_CLUSTER_SEED:-$RANDOM}
note "seed $seed"
cluster_dir memory
cluster --on 3 up 4

host()
{
    echo "10.111.84.$1"
}

objects_at() # NODE
{
    find "$CLUSTER/node$1/data" -path '*/objects/*' -type f | wc -l
}

write_files() # PREFIX
{
    local i
    for i in $(seq 30); do
        head -c 200000 /dev/urandom >"$T/$1$i" && cp "$T/$1$i" "$MNT/$1$i" || return 1
    done
    varjfsctl sync "$MNT"
}

same_files() # PREFIX
{
    local i
    for i in $(seq 30); do
        cmp "$T/$1$i" "$MNT/$1$i" || return 1
    done
}

nothing_wants_healing()
{
    varjfsctl node repair "$MNT" >"$T/repair.log" 2>&1 && grep -q 'healed 0$' "$T/repair.log"
}

state_of() # NODE
{
    varjfsctl node status "$MNT" 2>/dev/null | sed -n "s/.* address=$(host "$1") state=\([a-z]*\) .*/\1/p"
}

has_state() # NODE STATE
{
    [ "$(state_of "$1")" = "$2" ]
}

is_draining() # NODE
{
    varjfsctl node status "$MNT" 2>/dev/null | grep -q " address=$(host "$1") .*draining=1"
}

# refused NAME WORDS ARG...: varjfsctl node ARG... fails, and says so
refused()
{
    local name=$1 words=$2
    shift 2
    is "$name: status" "$(status_of varjfsctl node "$@")" 1
    check "$name: the reason" grep -q "$words" "$T/err"
}

# ---- what is refused --------------------------------------------------------------------

check "files are written" write_files a
cp -p "$VOLUME" "$T/three.conf"
refused "two hosts as one" "cannot stand in a list" add "$MNT" "$(host 4),$(host 5)"
refused "a host that is none" "it is none" add "$MNT" "[nonsense"
refused "a node under another name" "is node 0 of the list" add "$MNT" "$(host 1):7843"
refused "removal without a drain" "has not been drained" remove "$MNT" "$(host 2)"
refused "removal of a node that is not there" "is not in the list" remove "$MNT" "$(host 9)"
is "an unknown verb" "$(status_of varjfsctl node explode "$MNT")" 2
is "a weight that is none" "$(status_of varjfsctl node add --weight=0 "$MNT" "$(host 4)")" 2
check "the volume file is as it was" cmp "$T/three.conf" "$VOLUME"

# ---- add --------------------------------------------------------------------------------

is "node 4 has no place of the volume" "$(objects_at 4)" 0
check "node add" varjfsctl node add "$MNT" "$(host 4)"
check "it is in the volume file" grep -q "^store = remote:.*,$(host 3),$(host 4):" "$VOLUME"
is "whose mode is as it was" "$(stat -c %a "$VOLUME")" "$(stat -c %a "$T/three.conf")"
check "it gets live" wait_for 30 has_state 4 live
check "node add again" varjfsctl node add "$MNT" "$(host 4)"
check "more files are written" write_files b
check "the healer has moved what is node 4's" wait_for 60 nothing_wants_healing
check "objects are at node 4 ($(objects_at 4))" test "$(objects_at 4)" -ge 10
check "the first files" same_files a

# ---- drain under edits, remove ------------------------------------------------------------

load_start "$seed"
wait_for 60 load_has 10 || fail "the load begins"
is "node drain" "$(status_of varjfsctl node drain --progress "$MNT" "$(host 2)")" 0
check "it shows how many objects are left" grep -q '^[1-9][0-9]* objects left on ' "$T/err"
check "it is drained" is_draining 2
wait_for 60 load_has $(($(load_count) + 15)) || fail "the load goes on"
check "node drain again" varjfsctl node drain "$MNT" "$(host 2)"
check "node remove" varjfsctl node remove "$MNT" "$(host 2)"
check "its place stays in the list" grep -q "^store = remote:$(host 1),-,$(host 3),$(host 4):" "$VOLUME"
cluster kill 2
cluster wipe 2
wait_for 60 load_has $(($(load_count) + 15)) || fail "the load goes on without it"
touch "$T/stop"
status=0
wait "$load" || status=$?
is "no call of the edits failed" $status 0 || note "$(tail -n 20 "$T/load.log")"
load_verify "all that was fsynced"
check "the first files without node 2" same_files a
check "the second ones" same_files b
check "all have their replicas" wait_for 60 nothing_wants_healing

# ---- the next mount, with the new file and with the old one --------------------------------

cp -p "$VOLUME" "$T/new.conf"
cluster umount
cluster_fsck "with the new file"
cluster mount
load_verify "with the new file: all that was fsynced"
cluster umount
cp -p "$T/three.conf" "$VOLUME"
cluster_fsck "with the old file"
cluster mount
load_verify "with the old file: all that was fsynced"
check "with the old file: the first files" same_files a
is "node 2 is not in the list" "$(state_of 2)" ""
is "node 4 is" "$(state_of 4)" live
varjfsctl node status "$MNT" >"$T/out" 2>"$T/err"
check "node status tells that the file is older" grep -q "older list" "$T/err"
check "node refresh" varjfsctl node refresh "$MNT"
check "writes it anew" cmp "$T/new.conf" "$VOLUME"
varjfsctl node status "$MNT" >"$T/out" 2>"$T/err"
check "node status is content" test ! -s "$T/err"

# ---- a drain survives a remount, and is undone; a dead node leaves by force ------------------

check "another drain" varjfsctl node drain "$MNT" "$(host 3)"
refused "one drain more than the replicas allow" "2 replicas need" drain "$MNT" "$(host 4)"
cluster umount
cluster mount
check "a drain survives a remount" is_draining 3
check "node add ends it" varjfsctl node add "$MNT" "$(host 3)"
check_fails "it is not drained any more" is_draining 3
check "objects come back to it" wait_for 60 nothing_wants_healing
check "and are there ($(objects_at 3))" test "$(objects_at 3)" -ge 10
cluster kill 3
check "its death is seen" wait_for 60 has_state 3 away
check "node remove --force" varjfsctl node remove --force "$MNT" "$(host 3)"
cluster wipe 3
check "all have their replicas on the two that are left" wait_for 60 nothing_wants_healing
load_verify "without node 3: all that was fsynced"
check "the first files without node 3" same_files a
refused "one node less than replicas" "2 replicas need" remove --force "$MNT" "$(host 4)"
cluster umount
cluster_fsck "at the end"
cluster mount
load_verify "at the end: all that was fsynced"
cluster down --destroy

# ---- one replica --------------------------------------------------------------------------

cluster --on 2 --replicas 1 up 3
check "one replica: files are written" write_files c
check "one replica: node add" varjfsctl node add "$MNT" "$(host 3)"
check "one replica: node drain" varjfsctl node drain "$MNT" "$(host 2)"
check "one replica: objects moved to node 3" test "$(objects_at 3)" -ge 5
cluster kill 3
refused "one replica: what would be lost" "objects would have no replica left" remove --force "$MNT" "$(host 3)"
cluster start 3
check "one replica: it is there again" wait_for 30 has_state 3 live
check "one replica: node remove" varjfsctl node remove "$MNT" "$(host 2)"
cluster kill 2
cluster wipe 2
check "one replica: the files" same_files c
cluster umount
cluster_fsck "one replica"
tap_done
