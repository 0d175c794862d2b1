#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# safety=none|network|storage, of a volume at a node: what is there after the mount's daemon, or all
# daemons at once, were killed when a call had just returned.  Nothing becomes durable by itself here (commit=3600).

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program varjfsd fsck.varjfs
requires command python3 setfattr getfattr

node_dir=$T/node
socket=$T/socket
rounds=3 # --long: 30
[ "${1:-}" != --long ] || rounds=30
SOURCE=$T/volume.conf
seed=${VARJFS_SAFETY_SEED:-$RANDOM}
note "seed $seed"
RANDOM=$seed

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
    kill -CONT "$node_pid" 2>/dev/null
    kill "$node_pid" 2>/dev/null
    wait "$node_pid" 2>/dev/null
}
at_exit stop_node

mode_is()
{
    [ "$(stat -c %a "$2")" = "$1" ]
}

# The daemon of the mount and the node, as near to one moment as can be.
kill_all()
{
    kill -9 "$node_pid" "$(daemon_pid)"
    wait "$node_pid" 2>/dev/null
    rm -f "$socket"
    start_node
    kill_varjfs
}

# changes DIR ROUND: makes, fills, renames, removes, … and says after each call what must be there from then on.
cat >"$T/changes.py" <<'END'
import os, random, sys

top, seed = sys.argv[1], int(sys.argv[2])
rng = random.Random(seed)
d = "%s/%d" % (top, seed)
os.mkdir(d)
for i in range(20):
    path = "%s/%d" % (d, i)
    with open(path, "wb") as f:
        f.write(rng.randbytes(rng.choice((0, 10, 3000, 70000, 900000))))
    if i % 4 == 1:
        os.rename(path, path + ".renamed")
    elif i % 4 == 2:
        os.unlink(path)
    elif i % 4 == 3:
        os.chmod(path, 0o600)
        os.setxattr(path, "user.i", b"%d" % i)
        os.truncate(path, 5)
os.symlink("target", d + "/link")
os.link(d + "/0", d + "/other")
END
cat >"$T/look.py" <<'END'
import os, random, stat, sys

top, seed = sys.argv[1], int(sys.argv[2])
rng = random.Random(seed)
d = "%s/%d" % (top, seed)
names = set(os.listdir(d))
for i in range(20):
    path = "%s/%d" % (d, i)
    data = rng.randbytes(rng.choice((0, 10, 3000, 70000, 900000)))
    if i % 4 == 2:
        assert str(i) not in names, path
        continue
    if i % 4 == 1:
        assert str(i) not in names, path
        path += ".renamed"
    if i % 4 == 3:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600, path
        assert os.getxattr(path, "user.i") == b"%d" % i, path
        data = data[:5].ljust(5, b"\0")
    assert open(path, "rb").read() == data, path
    names.remove(os.path.basename(path))
assert os.readlink(d + "/link") == "target"
assert os.path.samefile(d + "/0", d + "/other")
assert names == {"link", "other"}, names
END

changes()
{
    python3 "$T/changes.py" "$MNT/$1" "$2"
}

are_there()
{
    python3 "$T/look.py" "$MNT/$1" "$2"
}

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
make_fs -o "store=$node,meta=$node,timeout=3"

# ---- network: the death of the mount loses nothing --------------------------------------

mount_varjfs -o "commit=3600,safety=network"
is "getfattr shows the mount's" "$(getfattr --absolute-names --only-values -n user.varjfs.safety "$MNT")" network
mkdir "$MNT/network"
for ((i = 1; i <= rounds; i++)); do
    check "network, round $i: changes" changes network $i
    kill_varjfs
    mount_varjfs -o "commit=3600,safety=network"
    check "network, round $i: all of it is there" are_there network $i
done

# By the attribute of a directory, on a mount that waits for nothing.
umount_varjfs
mount_varjfs -o commit=3600
mkdir "$MNT/mine"
check "a directory of its own" setfattr -n user.varjfs.safety -v network "$MNT/mine"
check_fails "a value that means nothing" setfattr -n user.varjfs.safety -v disk "$MNT/mine"
check "changes there" changes mine 1
is "what is made there has it" "$(getfattr --absolute-names --only-values -n user.varjfs.safety "$MNT/mine/1/0")" network
kill_varjfs
mount_varjfs -o commit=3600
check "all of it is there" are_there mine 1
umount_varjfs
fsck_clean "a check after network finds nothing"

# ---- storage: the death of all at once loses nothing --------------------------------------

mount_varjfs -o "commit=3600,safety=storage"
mkdir "$MNT/storage"
for ((i = 1; i <= rounds; i++)); do
    check "storage, round $i: changes" changes storage $i
    kill_all
    mount_varjfs -o "commit=3600,safety=storage"
    check "storage, round $i: all of it is there" are_there storage $i
done
umount_varjfs
fsck_clean "a check after storage finds nothing"

# ---- none: nothing is promised, and nothing is damaged --------------------------------------

for ((i = 1; i <= rounds; i++)); do
    mount_varjfs -o "commit=3600,safety=none"
    mkdir -p "$MNT/none"
    sync "$MNT/none"
    check "none, round $i: changes" changes none "$i"
    kill_all
    fsck_clean "none, round $i: a check finds nothing"
done

# ---- a node that restarts, and one that does not answer --------------------------------------

mount_varjfs -o "commit=3600,safety=network"
check "before the node dies" changes network 1001
kill_node
start_node
check "after it" changes network 1002
kill_varjfs
mount_varjfs -o "commit=3600,safety=network"
check "what it had received before" are_there network 1001
check "what it received after" are_there network 1002
echo content >"$MNT/written"
touch "$MNT/victim" "$MNT/old" "$MNT/mode"
ls -l "$MNT" >/dev/null
kill -STOP "$node_pid"
is "a name: the error is reported" "$(LC_ALL=C mkdir "$MNT/new" 2>&1 | grep -c "Input/output error")" 1
check_fails "a removal: too" rm "$MNT/victim"
check_fails "a rename: too" mv "$MNT/old" "$MNT/renamed"
check_fails "a mode: too" chmod 600 "$MNT/mode"
is "close of what was written: too" "$(python3 -c 'import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
os.write(fd, b"more")
try:
    os.close(fd)
except OSError as e:
    print(e.strerror)' "$MNT/written")" "Input/output error"
kill -CONT "$node_pid"
check "when it answers again" mkdir "$MNT/newer"
check "what was changed can be seen" wait_for 20 test -d "$MNT/new"
check "what was removed is gone" wait_for 20 test ! -e "$MNT/victim"
check "what was renamed has its new name" wait_for 20 test -e "$MNT/renamed"
check "and its old one no more" wait_for 20 test ! -e "$MNT/old"
check "and a mode is shown" wait_for 20 mode_is 600 "$MNT/mode"
is "and read" "$(cat "$MNT/written")" "moreent"
kill_varjfs
mount_varjfs
check "and is safe with what came later" test -d "$MNT/new" -a -d "$MNT/newer" -a ! -e "$MNT/victim" -a ! -e "$MNT/old"
is "content, too" "$(cat "$MNT/written")" moreent
umount_varjfs
fsck_clean "a check finds nothing"
tap_done
