#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Pages of meta/data.mdb are damaged, each way in turn at places chosen at random: fsck.varjfs finds
# it, the mount refuses it, or what is read is right or an error; then the checkpoint brings all
# of it back.
#
#   tests/damage/pages.sh [CASES [SEED]]

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program mkfs.varjfs fsck.varjfs varjfsctl
[ "$(id -u)" = 0 ] || skip_all "varjfsctl checkpoint is root's"

cases=${1:-4}
seed=${2:-${VARJFS_MODEL_SEED:-$RANDOM$RANDOM}}
source_in_memory
META="$SOURCE/meta/data.mdb"
note "$cases cases, seed $seed: tests/damage/pages.sh $cases $seed"

# Damages $META; prints what it did.
damage()
{
    python3 - "$META" "$1" "$seed" "$SOURCE"/checkpoints/2* <<'PY'
import os, random, struct, sys
path, case, seed = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rng = random.Random(f"{seed}/{case}")
kinds = ["bit", "head", "offsets", "zero", "swap", "copy", "meta", "cut"]
kind = kinds[(case + int(seed)) % len(kinds)]
with open(path, "r+b") as f:
    metas = []
    for i in range(2):
        f.seek(4096 * i + 16)
        m = f.read(136)
        metas.append((struct.unpack_from("<Q", m, 128)[0], struct.unpack_from("<Q", m, 120)[0]))
    end = max(metas)[1] + 1
    def read(page):
        f.seek(page * 4096)
        return bytearray(f.read(4096))
    def write(page, data):
        f.seek(page * 4096)
        f.write(data)
    # The checkpoint has the pages that are in use.
    with open(sys.argv[4], "rb") as g:
        image = g.read(4096 * end)
    used = [p for p in range(2, end) if any(image[4096 * p:4096 * p + 4096])]
    a, b = rng.choice(used), rng.choice(used)
    data = read(a)
    if kind == "bit":
        data[rng.randrange(4096)] ^= 1 << rng.randrange(8)
        write(a, data)
    elif kind == "head":
        data[rng.randrange(16)] ^= 1 << rng.randrange(8)
        write(a, data)
    elif kind == "offsets":
        data[16 + rng.randrange(64)] ^= 1 << rng.randrange(8)
        write(a, data)
    elif kind == "zero":
        write(a, bytes(4096))
    elif kind == "swap":
        other = read(b)
        write(a, other)
        write(b, data)
    elif kind == "copy":
        other = read(b)
        other[:8] = data[:8]
        write(a, other)
    elif kind == "meta":
        a = rng.randrange(2)
        data = read(a)
        data[rng.randrange(152)] ^= 1 << rng.randrange(8)
        write(a, data)
    else:
        f.truncate(4096 * rng.randrange(1, end) + rng.randrange(4096))
print(kind, "page", a)
PY
}

# One line for each file: its digest, or that it cannot be read.
sums()
{
    (cd "$MNT" && find . -type f ! -path './lost+found/*' -printf '%P\n' 2>/dev/null | sort |
        while IFS= read -r f; do
            if sum=$(sha256sum 2>/dev/null <"$f"); then
                echo "$f ${sum%% *}"
            fi
        done)
}

# make_fs has no options here.
# shellcheck disable=SC2119
make_fs
mount_varjfs
for d in 1 2 3 4 5 6; do
    mkdir "$MNT/d$d"
    for i in $(seq 40); do
        echo "file $d/$i" >"$MNT/d$d/a-rather-long-name-$i"
    done
    head -c 400000 /dev/urandom >"$MNT/d$d/large"
done
rm -r "$MNT/d6"
varjfsctl checkpoint "$MNT" >"$T/out"
sums >"$T/good"
umount_varjfs
cp "$META" "$T/data.mdb"

declare -A found refused harmless
bad=0
wrong()
{
    bad=$((bad + 1))
    note "case $1: $2"
    note "$(cat "$T/out" "$T/err" 2>/dev/null | tail -20)"
}

for ((case = 0; case < cases; case++)); do
    cp --sparse=always "$T/data.mdb" "$META"
    what=$(damage "$case")
    kind=${what%% *}
    status=0
    timeout 120 fsck.varjfs -n "$SOURCE" >"$T/out" 2>"$T/err" || status=$?
    case $status in
    0 | 4 | 8) ;;
    *) wrong "$case" "$what: fsck.varjfs -n: status $status" ;;
    esac
    if grep -q "ended with signal" "$T/err"; then
        wrong "$case" "$what: fsck.varjfs -n: a signal"
    fi
    [ $status = 0 ] || found[$kind]=$((${found[$kind]:-0} + 1))
    if try_mount_varjfs -o ro,checkpoint=0; then
        sums >"$T/read"
        if [ -n "$(comm -13 "$T/good" "$T/read")" ]; then
            wrong "$case" "$what: wrong bytes: $(comm -13 "$T/good" "$T/read" | head -3)"
        fi
        if ! cmp -s "$T/good" "$T/read" && [ $status = 0 ]; then
            wrong "$case" "$what: files are missing, and fsck.varjfs finds nothing"
        fi
        [ $status = 0 ] && harmless[$kind]=$((${harmless[$kind]:-0} + 1))
        [ -n "$(daemon_pid)" ] || wrong "$case" "$what: the daemon died"
        umount_varjfs
    else
        refused[$kind]=$((${refused[$kind]:-0} + 1))
        [ $status = 0 ] && wrong "$case" "$what: refused, and fsck.varjfs finds nothing"
    fi
    if [ $status != 0 ]; then
        restored=0
        fsck.varjfs --restore "$SOURCE" >"$T/out" 2>"$T/err" || restored=$?
        [ $restored = 1 ] || wrong "$case" "$what: fsck.varjfs --restore: status $restored"
        fsck.varjfs -n "$SOURCE" >"$T/out" 2>"$T/err" ||
            wrong "$case" "$what: not clean after the restore"
        rm -f "$SOURCE"/meta/data.mdb.damaged-*
        mount_varjfs -o ro
        sums >"$T/read"
        cmp -s "$T/good" "$T/read" || wrong "$case" "$what: the restore did not bring all back"
        umount_varjfs
    fi
done
for kind in bit head offsets zero swap copy meta cut; do
    note "$kind: ${found[$kind]:-0} found, ${refused[$kind]:-0} refused by the mount," \
        "${harmless[$kind]:-0} harmless"
done
is "no crash, no hang, no wrong byte" "$bad" 0
tap_done
