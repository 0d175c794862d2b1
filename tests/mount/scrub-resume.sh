#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# varjfsctl scrub in parts: whatever cuts one off, --resume goes on behind what was read, and at
# the end each object was read once.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires command python3
[ "$(id -u)" = 0 ] || skip_all "scrub is for root"

# A step has 8 MiB: five of them.
source_in_memory
make_fs -o objects=64K
mount_varjfs
mkdir "$MNT/dir"
head -c 36000000 /dev/urandom >"$MNT/dir/file"
varjfsctl sync "$MNT"

# One value of a JSON object.
number()
{
    sed -n "s/.*\"$1\": \([^],}]*\).*/\1/p"
}

known()
{
    varjfsctl scrub --status --json "$MNT" | number "$1"
}

scrub()
{
    varjfsctl scrub --json --rate=0 "$@" "$MNT" | number objects
}

is_under_way()
{
    [ "$(known place)" != 0 ]
}

# ---- without interruption

is "at first" "$(varjfsctl scrub --status "$MNT")" "no scrub was finished yet"
all=$(scrub)
is "all objects are read" "$all" "$(varjfsctl df --json "$MNT" | number objects)"
is "the end is noted, and what was found" "$(known last_objects) $(known last_damaged) $(known place)" \
    "$all 0 0"
check "and the time" test "$(known finished)" -ge "$(known last_begun)"
is "shown as text" "$(varjfsctl scrub --status "$MNT" | grep -c "^finished .*: $all objects, .* 0 objects damaged$")" 1
is "there is nothing to resume: a new one" "$(scrub --resume)" "$all"
# shellcheck disable=SC2154 # tap.sh sets srcdir
read -r -a unit < <(sed -n 's|^ExecStart=/usr/bin/||p' "$srcdir/contrib/varjfs-scrub@.service")
is "what systemd starts" "$(status_of "${unit[@]/"%f"/$MNT}")" 0
is "reads as much" "$(grep -c "^$MNT: $all objects, " "$T/out")" 1

# ---- stopped by a budget; a remount; kill -9 of the daemon

first=$(scrub --max-bytes=1)
check "a budget of bytes ends it after a step" test "$first" -gt 0 -a "$first" -lt "$all"
is "that is a success" "$(status_of varjfsctl scrub --rate=0 --max-bytes=1 "$MNT")" 0
is "and says so" "$(grep -c "^$MNT: not finished; varjfsctl scrub --resume goes on$" "$T/out")" 1
is "without --resume it began anew" "$(known pass_objects)" "$first"
is "an old result stays until there is another" "$(known last_objects)" "$all"
second=$(scrub --resume --max-bytes=1)
is "the place moves on" "$(known pass_objects)" $((first + second))
remount_varjfs
is "a remount knows it" "$(known pass_objects)" $((first + second))
third=$(scrub --resume --max-bytes=1)
varjfsctl sync "$MNT"
kill_varjfs
mount_varjfs
is "so does one after kill -9" "$(known pass_objects)" $((first + second + third))
is "a read-only mount reads on" "$(remount_varjfs -o ro; scrub --resume)" \
    $((all - first - second - third))
is "and keeps no place" "$(known pass_objects)" $((first + second + third))
remount_varjfs
rest=$(scrub --resume)
is "each object was read once" $((first + second + third + rest)) "$all"
is "and the pass is complete" "$(known last_objects) $(known place)" "$all 0"

# ---- stopped by time

is "a budget of time" "$(status_of varjfsctl scrub --rate=1 --max-time=1 "$MNT")" 0
is "ends it after a step too" "$(known pass_objects)" "$first"

# ---- varjfsctl killed while it waits for its rate

scrub >"$T/whole"
varjfsctl scrub --rate=1 "$MNT" &
pid=$!
check "one is under way" wait_for 60 is_under_way
kill -KILL $pid
wait $pid
is "kill -9 of varjfsctl" "$(known pass_objects)" "$first"
varjfsctl scrub --resume --json --rate=1 "$MNT" >"$T/json" &
pid=$!
moved_on() { [ "$(known pass_objects)" -gt "$first" ]; }
check "the next one goes on" wait_for 60 moved_on
kill -TERM $pid
wait $pid
is "SIGTERM ends it as it should" $? 143
is "with its report" "$(number objects <"$T/json") $(number complete <"$T/json") $(number before_objects <"$T/json")" \
    "$second false $first"
is "the rest" "$(scrub --resume)" $((all - first - second))

# ---- a signal that comes during the last step

scrub --max-bytes=30000000 >"$T/whole"
rest=$((all - $(known pass_objects)))
python3 - varjfsctl scrub --resume --rate=0 --json "$MNT" >"$T/json" <<'END'
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)
os.execvp(sys.argv[1], sys.argv[1:])
END
is "SIGTERM during the last step" $? 143
is "costs no report" "$(number objects <"$T/json") $(number complete <"$T/json")" "$rest true"

# ---- unmounted under it

scrub --max-bytes=1 >"$T/whole"
varjfsctl scrub --resume --rate=1 "$MNT" &
pid=$!
check "under way again" wait_for 60 moved_on
daemon=$(daemon_pid)
umount -i -l "$MNT"
kill -KILL $pid
wait $pid
check "the daemon ends" wait_for 60 process_gone "$daemon"
mount_varjfs
is "a lazy unmount" "$(known pass_objects)" $((first + second))
is "the rest of it" "$(scrub --resume)" $((all - first - second))

# ---- the daemon killed at any moment

has_begun() { is_under_way || process_gone "$pid"; }
for i in 1 2; do
    varjfsctl scrub --rate=0 "$MNT" >"$T/out" 2>"$T/err" &
    pid=$!
    [ $i != 2 ] || check "it is under way, or over" wait_for 60 has_begun
    kill_varjfs
    wait $pid
    mount_varjfs
    before=$(known pass_objects)
    is "round $i: $before before and the rest are all" $((before + $(scrub --resume))) "$all"
    is "round $i: the sum is noted" "$(known last_objects)" "$all"
done

# ---- damage before and behind an interruption

hurt()
{
    varjfsctl map "$MNT/dir/file" | awk '$3 == "object" { print $4 }' | sort >"$T/ids"
    python3 - "$(find "$SOURCE/objects" -name "$(sed -n "$1p" "$T/ids").*")" <<'END'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(5000)
    byte = f.read(1)
    f.seek(5000)
    f.write(bytes([byte[0] ^ 1]))
END
}
hurt 1
is "what is damaged is told when it is stopped" \
    "$(status_of varjfsctl scrub --rate=0 --max-bytes=1 "$MNT")" 1
is "by name" "$(grep -c "^$MNT/dir/file: bytes .* damaged$" "$T/out")" 1
is "a part without damage is fine" \
    "$(status_of varjfsctl scrub --resume --rate=0 --max-bytes=1 "$MNT")" 0
remount_varjfs
is "the end of a pass tells of all of it" "$(status_of varjfsctl scrub --resume --rate=0 "$MNT")" 1
is "also of what was before" "$(grep -c '^.*: before the interruption .* 1 objects damaged$' "$T/out")" 1
is "it is noted" "$(known last_damaged) $(known last_objects)" "1 $all"

# ---- progress, usage, rights

is "progress where it was asked for" "$(status_of varjfsctl scrub --progress --rate=0 "$MNT")" 1
is "ends with all" "$(tail -n 1 "$T/err")" \
    "100%: $all objects, $(($(known last_bytes) / 1048576)) MiB read, 1 damaged"
check "and came in parts" test "$(wc -l <"$T/err")" -gt 1
varjfsctl scrub --rate=0 "$MNT" >"$T/out" 2>"$T/err"
is "none elsewhere" "$(cat "$T/err")" ""
is "no number of seconds" "$(status_of varjfsctl scrub --max-time=long "$MNT")" 2
is "no number of bytes" "$(status_of varjfsctl scrub --max-bytes=few "$MNT")" 2
if command -v setpriv >/dev/null; then
    umount_varjfs
    chmod 755 "$T"
    mount_varjfs -o allow_other
    is "others may not scrub" \
        "$(status_of setpriv --reuid=65534 --regid=65534 --clear-groups varjfsctl scrub --resume "$MNT")" 1
fi
umount_varjfs
tap_done
