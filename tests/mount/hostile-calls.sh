#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# hostile-calls.sh [COUNT [SEED]]: users who make calls that no program makes, and programs called
# with words that mean nothing.  The daemon answers, nothing of anybody else changes, and nothing
# is found afterwards; a program says in one line what is wrong, and ends with 2.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires root
requires_fuse
requires command python3 setpriv
count=${1:-1500}
seed=${2:-${VARJFS_MODEL_SEED:-$RANDOM}}
note "$count calls, seed $seed"

# Others read neither our home nor our tree.
python=$(PATH=/usr/bin:/bin:$PATH command -v python3)
# shellcheck disable=SC2154 # tap.sh sets srcdir
cp "$srcdir/tests/mount/hostile-calls.py" "$T/calls.py"
chmod 644 "$T/calls.py"

as_user()
{
    setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}

# shellcheck disable=SC2119 # without options
make_fs
# What others may leave behind is written back all the time.
mount_varjfs -o "log=$T/log"
daemon=$(daemon_pid)
seq 1 20000 >"$MNT/victim"
chmod 600 "$MNT/victim"
sum=$(sha256sum <"$MNT/victim")

for mine in root other; do
    mkdir "$MNT/$mine"
    chmod 700 "$MNT/$mine"
done
chown 65534:65534 "$MNT/other"
chmod 755 "$T"
check "calls of a user" as_user "$python" "$T/calls.py" "$MNT/other" "$count" "$seed" >"$T/out"
cat "$T/out"
check "calls of root" "$python" "$T/calls.py" "$MNT/root" "$count" "$((seed + 1))" >"$T/out"
cat "$T/out"
is "the daemon goes on" "$(daemon_pid)" "$daemon"
is "a file of somebody else is as it was" "$(sha256sum <"$MNT/victim") $(stat -c %a "$MNT/victim")" "$sum 600"
# shellcheck disable=SC2016 # eval expands it
check "it answers: a write" eval 'echo new >"$MNT/new" && sync "$MNT/new"'
is "the log is lines of text" "$(LC_ALL=C tr -d '\n\t -\377' <"$T/log" | wc -c)" 0
check "what was made can be removed" rm -rf "$MNT/root" "$MNT/other"
umount_varjfs
fsck_clean "and nothing is found"

# ---- words that mean nothing

# Of a program that is wrongly called: 2, and what is wrong in a line that begins with its name.
# Whatever else it makes of its words, it ends, and not by a signal.
words_are_survived()
{
    local program=$1 n status wrong=0 words
    for n in $(seq 1 25); do
        mapfile -d '' words < <("$python" - "$program" "$((seed + n))" <<'END'
import random, sys
r = random.Random(sys.argv[1] + sys.argv[2])
pool = ["-o", "-f", "-y", "-n", "--json", "--quick", "--rate=", "--rate=9T", "-o=", "--", "-", "",
        "map", "df", "insert", "delete", "stats", "scrub", "0", "-1", "9" * 30, "1K", "a,b=c", "store=",
        "objects=1:2:3", "%s%n", "\n", "\x1b[2J", "\u00e4", "x" * 5000, "-" * 9, "missing", "--help=x", "-ozz=1"]
sys.stdout.write("".join(r.choice(pool) + "\0" for _ in range(r.randrange(6))))
END
        )
        status=0
        timeout 60 "$program" "${words[@]}" >"$T/out" 2>"$T/err" </dev/null || status=$?
        if [ "$status" -ge 124 ] ||
            { [ "$status" = 2 ] && ! head -n 1 "$T/err" | grep -q "^[a-z.]*varjfs\(ctl\)\?[a-z ]*: ."; } ||
            [ "$(LC_ALL=C tr -d '\n\t\r -\377' <"$T/err" | wc -c)" != 0 ]; then
            wrong=$((wrong + 1))
            note "$program ${words[*]@Q}: status $status" "$(cat "$T/err")"
        fi
    done
    is "$program: words that mean nothing" "$wrong" 0
}

mkdir "$T/empty"
chmod 777 "$T/empty"
cd "$T/empty" || exit 1
for program in varjfs varjfsctl mkfs.varjfs fsck.varjfs umount.fuse.varjfs; do
    words_are_survived "$program"
done
is "nothing was mounted" "$(mount_points_below "$T")" ""

tap_done
