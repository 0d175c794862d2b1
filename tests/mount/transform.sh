#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# transform.sh [NAME] - transformations through a mount: choosing, mixing, recoding, dying meanwhile
#
# VARJFS_MODEL_SEED=N gives the random parts that seed; VARJFS_RECODE_KILLS=N kills so often (4).

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires codec lz4 zstd
requires program varjfsctl
requires command python3
source_in_memory

stored()
{
    varjfsctl status "$1" | sed -n 's/^stored_size=//p'
}

# percent PART WHOLE
percent()
{
    awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f", 100 * a / b }'
}

make_fs -o objects=16K
mount_varjfs
status=0
# shellcheck disable=SC2154 # tap.sh sets srcdir
python3 "$srcdir/tests/mount/transform.py" "$MNT" "$@" || status=$?
is "transform.py: exit status" $status 0
umount_varjfs
fsck_clean "after transform.py"

# ---- figures: default objects, source text and noise

make_fs -f
mount_varjfs
find "$srcdir/src" "$srcdir/tests" "$srcdir/include" -name '*.[ch]' -print0 | sort -z |
    xargs -0 cat >"$T/text"
head -c 8000000 /dev/urandom >"$T/noise"
for codec in lz4 zstd; do
    mkdir "$MNT/$codec"
    python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.varjfs.transform", sys.argv[2].encode())' \
        "$MNT/$codec" $codec
    cp "$T/text" "$T/noise" "$MNT/$codec/"
    part=$(percent "$(stored "$MNT/$codec/text")" "$(stat -c %s "$T/text")")
    grown=$(percent "$(stored "$MNT/$codec/noise")" 8000000)
    note "$codec: source text is stored in $part %, noise in $grown %"
    case $codec in
    lz4) check "source text under lz4 takes less than 45 %" test "${part%.*}" -lt 45 ;;
    zstd) check "source text under zstd takes less than 35 %" test "${part%.*}" -lt 35 ;;
    esac
    is "noise grows by less than 0.5 % under $codec" \
        "$(awk -v p="$grown" 'BEGIN { print p < 100.5 }')" 1
done
is "map shows the transformation by name" \
    "$(varjfsctl map "$MNT/zstd/text" | awk 'NR > 1 { print $8 }' | sort -u)" zstd
is "and what was stored as it is" \
    "$(varjfsctl map "$MNT/zstd/noise" | awk 'NR > 1 { print $8 }' | sort -u)" none
remount_varjfs
check "another mount reads it" cmp "$MNT/lz4/text" "$T/text"
check "and the noise" cmp "$MNT/zstd/noise" "$T/noise"
umount_varjfs

# ---- what mkfs and the mount choose

transform_of()
{
    python3 -c 'import os, sys; print(os.getxattr(sys.argv[1], "user.varjfs.transform").decode())' "$1"
}

make_fs -f -o transform=zstd:5
mount_varjfs
echo x >"$MNT/default"
is "mkfs -o transform= is the default" "$(transform_of "$MNT/default")" zstd:5
remount_varjfs -o transform=lz4
echo x >"$MNT/mounted"
mkdir "$MNT/directory"
is "mount -o transform= is for new files" "$(transform_of "$MNT/mounted")" lz4
is "and for them alone" "$(transform_of "$MNT/default") $(transform_of "$MNT/directory")" \
    "zstd:5 zstd:5"
remount_varjfs
is "which keep it" "$(transform_of "$MNT/mounted")" lz4
for _ in $(seq 40); do cat "$T/text"; done | head -c 60000000 >"$T/long"
cp "$T/long" "$MNT/long"
varjfsctl sync "$MNT" || fail "sync"

# ---- killed while it recodes

for n in $(seq "${VARJFS_RECODE_KILLS:-4}"); do
    codec=$(case $((n % 3)) in 0) echo none ;; 1) echo lz4 ;; *) echo zstd:1 ;; esac)
    python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.varjfs.transform", sys.argv[2].encode())' \
        "$MNT/long" "$codec"
    varjfsctl sync "$MNT"
    puts=$(varjfsctl stats "$MNT" | awk '$1 == "write_back_commits" { print $2 }')
    varjfsctl recode "$MNT/long" >"$T/recode.log" 2>&1 &
    recode_pid=$!
    # Killed behind one to three steps, or when it was faster than that.
    some_steps()
    {
        ! kill -0 "$recode_pid" 2>/dev/null || [ "$(varjfsctl stats "$MNT" |
            awk '$1 == "write_back_commits" { print $2 }')" -ge $((puts + n % 3 + 1)) ]
    }
    wait_for 30 some_steps || fail "recode makes progress"
    kill_varjfs
    wait $recode_pid 2>/dev/null
    fsck_clean "kill $n during recode to $codec"
    mount_varjfs
    check "kill $n: the content is what it was" cmp "$MNT/long" "$T/long"
    is "kill $n: the choice survives" "$(transform_of "$MNT/long")" "$codec"
done
check "recode goes on where it was stopped" varjfsctl recode "$MNT/long"
is "and leaves one transformation" "$(varjfsctl map "$MNT/long" | awk 'NR > 1 { print $8 }' | sort -u)" \
    "${codec%:*}"
check "the content is what it was" cmp "$MNT/long" "$T/long"

# ---- the command

python3 - "$MNT/long" >"$T/progress" <<'END'
import os, pty, subprocess, sys
os.setxattr(sys.argv[1], "user.varjfs.transform", b"xor")
ours, theirs = pty.openpty()
status = subprocess.run(["varjfsctl", "recode", sys.argv[1]], stdout=subprocess.DEVNULL, stderr=theirs).returncode
os.close(theirs)
shown = b""
try:
    while piece := os.read(ours, 65536):
        shown += piece
except OSError:
    pass  # the end of a terminal that nobody has open
print(status, shown.count(b" % "), shown.endswith(b"\r\x1b[K"))
END
check "recode shows its progress on a terminal, and takes it away" \
    grep -xE '0 [2-9] True|0 [1-9][0-9]+ True' "$T/progress"

mkdir -p "$MNT/tree/sub"
cp "$T/text" "$MNT/tree/a"
cp "$T/text" "$MNT/tree/sub/b"
ln -s ../a "$MNT/tree/sub/link"
mkfifo "$MNT/tree/fifo"
is "a directory needs -r" "$(varjfsctl recode "$MNT/tree" >/dev/null 2>"$T/err"; echo $?)" 1
is "and says so" "$(cat "$T/err")" \
    "varjfsctl recode: $MNT/tree: a directory; -r recodes what is in it"
python3 - "$MNT/tree" <<'END'
import os, sys
for path in ("a", "sub/b"):
    os.setxattr(os.path.join(sys.argv[1], path), "user.varjfs.transform", b"rle")
END
is "recode -r goes through regular files" "$(varjfsctl recode -r "$MNT/tree" | tail -1)" \
    "2 files, $((2 * $(stat -c %s "$T/text"))) bytes stored anew"
is "what is missing fails" "$(varjfsctl recode "$MNT/none" "$MNT/tree/a" >"$T/out" 2>&1; echo $?)" 1
is "and the others are done" "$(grep -c 'tree/a: 0 bytes stored anew' "$T/out")" 1
is "elsewhere it is refused" "$(varjfsctl recode "$T/text" 2>&1)" \
    "varjfsctl recode: $T/text: not on a varjfs mount"
is "a read-only mount refuses it" "$(remount_varjfs -o ro
    varjfsctl recode "$MNT/tree/a" 2>&1)" \
    "varjfsctl recode: $MNT/tree/a: Read-only file system"
umount_varjfs
fsck_clean "at the end"
tap_done
