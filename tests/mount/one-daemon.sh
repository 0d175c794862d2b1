#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# one-daemon.sh [ROUNDS] - one process at a time uses a SOURCE, by whatever name it is reached and
# whatever was removed or renamed in it.  ROUNDS (2; 50 for the long form) of many mounts at once.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires command flock
rounds=${1:-2}
mkdir "$T/other"

refused()
{
    local name=$1 status=0
    shift
    timeout 20 "$@" >"$T/out" 2>"$T/err" || status=$?
    if [ $status != 0 ] && [ $status != 124 ] && grep -q "in use by another varjfs process" "$T/err"; then
        pass "$name"
    else
        fail "$name" "status $status: $(cat "$T/err")"
        ! is_mounted "$T/other" || unmount "$T/other"
    fi
}

watches()
{
    readlink "/proc/$waiter/fd/"* | grep -q inotify
}

# By a name that the mount table has not, a program that finds SOURCE locked waits a minute.
kept_out()
{
    local name=$1
    shift
    "$@" >"$T/out" 2>"$T/err" 8<&- &
    waiter=$!
    check "$name: it waits" wait_for 20 watches
    is "$name: and is not in" "$(mount_points_below "$T/other")" ""
    kill -KILL $waiter
    wait $waiter 2>/dev/null
    ! is_mounted "$T/other" || unmount "$T/other"
}

# shellcheck disable=SC2119 # without options
make_fs
mount_varjfs
echo text >"$MNT/file"
varjfsctl sync "$MNT"

is "nothing in SOURCE is there to be locked" "$(find "$SOURCE" -maxdepth 1 -name '*lock*')" ""
while IFS= read -r name; do
    rm -f "$SOURCE/$name"
done < <(cd "$SOURCE" && find . -maxdepth 1 -type f -empty)
refused "after a removal of all empty files: a second mount" varjfs "$SOURCE" "$T/other"
refused "fsck.varjfs -n" fsck.varjfs -n "$SOURCE"
refused "fsck.varjfs -y" fsck.varjfs -y "$SOURCE"
refused "mkfs.varjfs -f" mkfs.varjfs -f "$SOURCE"
ln -s "$SOURCE" "$T/link"
refused "by a symbolic link" varjfs "$T/link" "$T/other"

mv "$SOURCE" "$T/aside"
kept_out "moved aside" varjfs -f "$T/aside" "$T/other"
check "a new file system where it was" mkfs.varjfs "$SOURCE"
check_fails "it is another one" cmp "$SOURCE/varjfs.conf" "$T/aside/varjfs.conf"
rm -r "$SOURCE"
mv "$T/aside" "$SOURCE"
if [ "$(id -u)" = 0 ]; then
    mkdir "$T/bound"
    mount --bind "$SOURCE" "$T/bound"
    kept_out "by a bind mount" varjfs -f "$T/bound" "$T/other"
    check "and the process is gone" wait_for 20 umount "$T/bound"
fi
is "the file is there" "$(cat "$MNT/file")" text
umount_varjfs
fsck_clean "SOURCE, after all that"

# ---- a directory that is replaced while a program waits for it

replaced_while_waiting() # NAME
{
    local status=0
    exec 8<"$SOURCE"
    flock 8
    varjfs -f "$SOURCE" "$T/other" 2>"$T/err" 8<&- &
    waiter=$!
    check "$1: a mount waits" wait_for 20 watches
    mv "$SOURCE" "$T/aside"
    mkdir "$SOURCE"
    exec 8<&-
    wait $waiter || status=$?
    is "$1: it notices that the directory is another one" \
        "$status $(grep -c "was replaced by something else" "$T/err")" "1 1"
    rmdir "$SOURCE"
    mv "$T/aside" "$SOURCE"
}

replaced_while_waiting "replaced"

# Root's daemon gives up what opens other users' directories, and SOURCE may lie below one.
if [ "$(id -u)" = 0 ]; then
    mkdir "$T/closed"
    chown nobody "$T/closed"
    chmod 700 "$T/closed"
    mv "$SOURCE" "$T/closed/source"
    SOURCE=$T/closed/source
    mount_varjfs
    is "below a closed directory: the file is there" "$(cat "$MNT/file")" text
    # shellcheck disable=SC2119 # without options
    remount_varjfs
    umount_varjfs
    replaced_while_waiting "below a closed directory"
    mv "$SOURCE" "$T/source"
    SOURCE=$T/source
fi

# ---- who else may lock it

chmod 755 "$SOURCE"
mount_varjfs -o ro
is "read only: its mode stays" "$(stat -c %a "$SOURCE")" 755
# shellcheck disable=SC2119 # without options
remount_varjfs
is "others may not open it" "$(stat -c %a "$SOURCE")" 711
umount_varjfs
mkdir "$T/foreign"
touch "$T/foreign/file"
chmod 755 "$T/foreign"
check_fails "mkfs.varjfs of a directory with other files" mkfs.varjfs "$T/foreign"
is "leaves its mode alone" "$(stat -c %a "$T/foreign")" 755

# ---- an older daemon holds SOURCE/varjfs.lock instead

touch "$SOURCE/varjfs.lock"
exec 8<"$SOURCE/varjfs.lock"
flock 8
kept_out "its lock holds" varjfs -f "$SOURCE" "$T/other"
exec 8<&-
rm "$SOURCE/varjfs.lock"

# ---- many at once

# Some find the mount table without SOURCE and wait, each for its turn; others are refused.
mounted()
{
    mount_points_below "$T/many" | grep -c .
}
all_ended()
{
    local p
    for p in "${mounts[@]}"; do
        ! kill -0 "$p" 2>/dev/null || return 1
    done
}
mounted_or_ended() { [ "$(mounted)" -ge 1 ] || all_ended; }

mounted_times=0
for round in $(seq "$rounds"); do
    most=0
    mounts=()
    mkdir "$T/many"
    for n in 1 2 3 4 5; do
        mkdir "$T/many/$n"
        varjfs -f "$SOURCE" "$T/many/$n" 2>"$T/many.$n" &
        mounts+=($!)
    done
    while wait_for 30 mounted_or_ended && [ "$(mounted)" -ge 1 ]; do
        mounted_times=$((mounted_times + 1))
        [ "$(mounted)" -le "$most" ] || most=$(mounted)
        at=$(mount_points_below "$T/many" | head -n 1)
        echo "$mounted_times" >"$at/$mounted_times.mounted"
        wait_for 20 unmount "$at" 2>/dev/null
    done
    check "round $round: all have ended" wait_for 60 all_ended
    is "round $round: there was one at a time" "$most" 1
    is "round $round: the others were refused" \
        "$(grep -v ': info: ' "$T"/many.? | grep -v 'in use by another varjfs process')" ""
    rm -r "$T/many"
done
fsck_clean "after all of them"
mount_varjfs
is "what each of them wrote is there" "$(find "$MNT" -name '*.mounted' | wc -l)" "$mounted_times"
umount_varjfs

status=()
for n in 1 2 3 4 5 6 7 8; do
    mkfs.varjfs "$T/fresh" 2>"$T/err.$n" &
    status+=($!)
done
made=0
for p in "${status[@]}"; do
    ! wait "$p" || made=$((made + 1))
done
is "many mkfs.varjfs of one directory: one makes it" "$made" 1
check "and it is whole" fsck.varjfs -n "$T/fresh"

tap_done
