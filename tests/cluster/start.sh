#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# scripts/cluster: up, the README's five minutes, a remount, a dead node, down; twice, and without what it needs.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/cluster.sh"

requires_cluster
requires command setpriv
cluster_dir memory

pids()
{
    cat "$CLUSTER"/node*/pid
}

namespaces()
{
    ip netns list | grep -c "^varjfs-$(sed -n 's/^id=//p' "$CLUSTER/settings")-"
}

# ---- without a cluster ----------------------------------------------------------------

check "down without a cluster" try_cluster down
check_fails "up with a name that is no number" try_cluster up many
check_fails "up with no node" try_cluster up 0
check_fails "more replicas than nodes" try_cluster --replicas 4 up 3
check_fails "an unknown verb" try_cluster explode
mkdir "$T/full" && touch "$T/full/file"
check_fails "a directory with other files is left alone" env VARJFS_BUILDDIR="$builddir" \
    "$srcdir/scripts/cluster" --dir "$T/full" up
is "the other file is still there" "$(ls "$T/full")" file
if [ -x "$srcdir/scripts/cluster" ] && setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$srcdir/scripts"; then
    is "an ordinary user is told why not" "$(setpriv --reuid=65534 --regid=65534 --clear-groups \
        "$srcdir/scripts/cluster" --dir "$T/theirs" up 2>&1)" "cluster: needs root: it makes network namespaces"
else
    skip "an ordinary user is told why not" "cannot reach the sources"
fi

# ---- up, and the five minutes ---------------------------------------------------------

check "up" try_cluster up 3
is "namespaces: three nodes, the mount, the switch" "$(namespaces)" 5
before=$(pids)
check "up once more" try_cluster up
is "it keeps the daemons that run" "$(pids)" "$before"
check_fails "up with another number of nodes" try_cluster up 2
is "status: nodes that run" "$(try_cluster status | grep -c ' running  *up ')" 3
is "status: the mount" "$(try_cluster status | tail -n 1)" "mount: $MNT"

head -c 20000000 /dev/urandom >"$T/big"
check "a file is written" cp "$T/big" "$MNT/big"
check "an insert" varjfsctl insert "$MNT/big" 10000000 <<<"in the middle"
{
    head -c 10000000 "$T/big"
    echo "in the middle"
    tail -c +10000001 "$T/big"
} >"$T/edited"
check "it reads so" cmp "$T/edited" "$MNT/big"
check "a delete" varjfsctl delete "$MNT/big" 10000000 14
check "a map" varjfsctl map "$MNT/big"
check "a copy" cp "$T/big" "$MNT/copy"
check "sync" varjfsctl sync "$MNT"
check "df" varjfsctl df "$MNT"
stored=$(find "$CLUSTER"/node*/data -path '*/objects/*' -type f -printf '%s\n' | awk '{ sum += $1 } END { print int(sum / 1000000) }')
check "the nodes have two replicas, and equal content once ($stored MB)" test "$stored" -ge 38 -a "$stored" -le 50
is "objects are on all nodes" "$(try_cluster status | awk '/^[123] / && $NF > 0 { n++ } END { print n + 0 }')" 3
mkdir "$T/second"
is "a second mount of the volume file is refused" "$(status_of try_cluster run varjfs "$VOLUME" "$T/second")" 1
note "$(cat "$T/err")"
# As from another machine.
cp -p "$VOLUME" "$CLUSTER/other.conf"
is "a second mount of a copy of it is refused" "$(status_of try_cluster run varjfs "$CLUSTER/other.conf" "$T/second")" 1
note "$(cat "$T/err")"
check "it is told by whom" grep -q "$(hostname)" "$T/err"
rm "$CLUSTER/other.conf"

# ---- remount, dead daemons --------------------------------------------------------------

cluster umount
check_fails "nothing is mounted" mountpoint -q "$MNT"
cluster_fsck "after the five minutes"
cluster mount
check "the content after a remount" cmp "$T/big" "$MNT/big"
check "the copy" cmp "$T/big" "$MNT/copy"
cluster kill 3
is "status knows the dead node" "$(try_cluster status | grep -c '^3 .* ended ')" 1
check "the content with a dead node" cmp "$T/big" "$MNT/big"
check "up starts it again" try_cluster up
is "all run" "$(try_cluster status | grep -c ' running  *up ')" 3
kill_varjfs
check "up mounts again after the mount's daemon was killed" try_cluster up
check "the content after that" cmp "$T/big" "$MNT/big"

# ---- down ------------------------------------------------------------------------------

exec 8<"$MNT/big"
is "down refuses a busy mount" "$(status_of try_cluster down)" 1
exec 8<&-
check "the mount is still there" cmp "$T/big" "$MNT/big"
check "down" try_cluster down
is "no namespace is left" "$(namespaces)" 0
check "down once more" try_cluster down
check "up finds the data" try_cluster up
check "the content after down and up" cmp "$T/big" "$MNT/big"
cluster umount
cluster_fsck "at the end"
cluster down

# A node that cannot start: nothing is left of the attempt, but the data is.
cp "$CLUSTER/node2/varjfsd.conf" "$T/conf"
echo "nonsense" >>"$CLUSTER/node2/varjfsd.conf"
is "up with a node that cannot start fails" "$(status_of try_cluster up)" 1
check "and says which" grep -q "node 2" "$T/err"
is "no namespace is left of it" "$(namespaces)" 0
is "no node runs" "$(try_cluster status | grep -c ' running ')" 0
cp "$T/conf" "$CLUSTER/node2/varjfsd.conf"
check "up when that is mended" try_cluster up
check "the content is there" cmp "$T/big" "$MNT/big"
check "down --destroy" try_cluster down --destroy
check "nothing is left" test ! -e "$CLUSTER"
tap_done
