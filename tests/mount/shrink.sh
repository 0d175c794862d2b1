#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# data.mdb gives space back while mounted: when most of it has been free for shrink= seconds, beside
# other work, not where the device has too little room; nothing is lost by it, also by kill -9.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires command python3
requires_fuse
requires root
[ -z "${VARJFS_TEST_CLUSTER:-}" ] || skip_all "the metadata are at a node"

mkdir "$T/device"
mount -t tmpfs -o size=640M none "$T/device" || skip_all "a tmpfs cannot be mounted"
SOURCE=$T/device/source

counter()
{
    varjfsctl stats --json "$MNT" | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"
}

# Attributes in bulk: 64 KiB of the metadata each.
# make_bulk FILES
make_bulk()
{
    python3 - "$MNT" "$1" <<'END'
import os, sys
for i in range(int(sys.argv[2])):
    path = f"{sys.argv[1]}/bulk{i}"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    for k in range(40):
        os.setxattr(path, f"user.bulk{k}", bytes([65 + i % 26]) * 65536)
END
}

meta_mib()
{
    echo $(($(stat -c %s "$SOURCE/meta/data.mdb") >> 20))
}

was_rewritten()
{
    [ "$(counter meta_rewrites)" -ge "$1" ]
}

names()
{
    (cd "$SOURCE/meta" && echo data.mdb*)
}

make_fs -o 'meta=lmdb:shrink=1'
mount_varjfs
for i in 1 2 3 4 5 6 7 8 9; do
    head -c $((i * 400)) /dev/urandom >"$MNT/small$i"
    head -c $((i * 40000)) /dev/urandom >"$MNT/large$i"
done
make_bulk 40
varjfsctl sync "$MNT"
full=$(meta_mib)
is "100 MiB of metadata" "$((full >= 100))" 1
is "none is free" "$(counter meta_rewrites)" 0
(cd "$MNT" && md5sum small* large*) >"$T/sums"
rm "$MNT"/bulk*
varjfsctl sync "$MNT"
check "it is written anew while mounted" wait_for 60 was_rewritten 1
is "its length" "$(($(meta_mib) < 32))" 1
is "what came back" "$(($(counter meta_freed_bytes) >> 20 >= full - 32))" 1
is "no other file is left" "$(names)" data.mdb
check "all is there" sh -c "cd '$MNT' && md5sum --quiet -c '$T/sums'"
echo later >"$MNT/later"
sync "$MNT/later"
kill_varjfs
fsck_clean "killed after it"
mount_varjfs -o "log=$T/log"
check "all is there after kill -9" sh -c "cd '$MNT' && md5sum --quiet -c '$T/sums'"
is "what came later" "$(cat "$MNT/later")" later

# A device without room for a copy: what was accepted goes on, and it is said once.
make_bulk 40
varjfsctl sync "$MNT"
full=$(meta_mib)
avail_mib=$(($(stat -f -c '%a*%S' "$T/device") >> 20))
fallocate -l $((avail_mib - 40))M "$T/device/filler"
rm "$MNT"/bulk*
varjfsctl sync "$MNT"
check "without room it is not" wait_for 60 grep -q 'keeps its size, and is written anew later' "$T/log"
is "it keeps its size" "$(meta_mib) $(names) $(counter meta_rewrites)" "$full data.mdb 0"
echo full >"$MNT/full"
check "writing goes on" sync "$MNT/full"
rm "$T/device/filler"
check "it is when there is room again" wait_for 60 was_rewritten 1
is "it is said once" "$(grep -c 'keeps its size, and is written anew later' "$T/log")" 1
is "its length again" "$(($(meta_mib) < 32)) $(names)" "1 data.mdb"
umount_varjfs
fsck_clean "afterwards"

# Killed while the copy is made: what is left makes it last a moment.
# kill_at_copy PID: when there is a copy; fails where there was none
kill_at_copy()
{
    python3 - "$SOURCE/meta" "$1" <<'END'
import os, signal, sys, time
end = time.monotonic() + 60
while time.monotonic() < end:
    if os.path.exists(sys.argv[1] + "/data.mdb.copy"):
        os.kill(int(sys.argv[2]), signal.SIGKILL)
        sys.exit(0)
sys.exit(1)
END
}

for round in 1 2 3; do
    mount_varjfs
    is "$round: nothing is left of a copy" "$(names)" data.mdb
    check "$round: all is there" sh -c "cd '$MNT' && md5sum --quiet -c '$T/sums'"
    make_bulk 40
    (cd "$MNT" && rm $(seq -f bulk%g 10 39))
    varjfsctl sync "$MNT" &
    syncs=$!
    check "$round: killed beside it" kill_at_copy "$(daemon_pid)"
    wait $syncs
    kill_varjfs
    fsck_clean "$round: killed beside it"
done
mount_varjfs
check "all is there at last" sh -c "cd '$MNT' && md5sum --quiet -c '$T/sums'"
check "the attributes too" python3 - "$MNT" <<'END'
import os, sys
for i in range(10):
    for k in range(40):
        value = os.getxattr(f"{sys.argv[1]}/bulk{i}", f"user.bulk{k}")
        assert value == bytes([65 + i % 26]) * 65536
END
umount_varjfs

# erase=: what was removed is not in the metadata any more.
secrets()
{
    grep -aro "$1 nobody finds" "$SOURCE/meta" | wc -l
}

rm -rf "$SOURCE"
make_fs -o 'meta=lmdb:erase=1'
mount_varjfs
echo "this nobody finds" >"$MNT/a"
mkdir "$MNT/that nobody finds"
echo "what stays nobody finds" >"$MNT/b"
varjfsctl sync "$MNT"
is "they are there" "$(($(secrets this) > 0)) $(($(secrets that) > 0))" "1 1"
rm -r "$MNT/a" "$MNT/that nobody finds"
varjfsctl sync "$MNT"
is_erased()
{
    ! grep -aqE "th(is|at) nobody finds" "$SOURCE/meta/data.mdb"
}
check "a second later not in data.mdb" wait_for 60 is_erased
umount_varjfs
is "after umount nowhere below meta" "$(secrets this) $(secrets that)" "0 0"
is "what was not removed stays" "$(($(secrets stays) > 0))" 1
fsck_clean "erased"
mount_varjfs
is "and can be read" "$(cat "$MNT/b")" "what stays nobody finds"
tap_done
