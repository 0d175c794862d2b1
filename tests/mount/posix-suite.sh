#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# The checks of tests/posix, as root and as an ordinary user: one result a topic.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires root
requires_fuse
requires program tests/posix/suite
if [ -z "${VARJFS_TEST_CLUSTER:-}" ]; then
    # A device of its own, so that free space is this mount's business alone.
    mkdir "$T/device"
    mount -t tmpfs -o size=2G none "$T/device" || skip_all "a tmpfs cannot be mounted"
    SOURCE=$T/device/source
    export POSIX_OWN_DEVICE=1
fi
# shellcheck disable=SC2119 # without options
make_fs
mount_varjfs -o allow_other,suid,dev
chmod 755 "$T"

# Whatever failed stands in the notes, with the line that says what was got.
report()
{
    local who=$1 file=$2 topic
    while read -r topic; do
        if grep -q "^not ok - $topic: " "$file"; then
            fail "$topic as $who" "$(grep -A1 "^not ok - $topic: " "$file" | head -n 60)"
        else
            pass "$topic as $who"
        fi
    done < <(sed -n 's/^\(not \)*ok - \([a-z0-9_]*\): .*/\2/p' "$file" | sort -u)
    note "$(tail -n 1 "$file")"
}

for who in root nobody; do
    status=0
    # shellcheck disable=SC2154 # tap.sh sets srcdir
    "$srcdir/tests/posix/run.sh" --user "$who" "$MNT" "$@" >"$T/lines" 2>&1 || status=$?
    report "$who" "$T/lines"
    is "run.sh as $who: exit status" $status 0
done
umount_varjfs
fsck_clean "after everything"
tap_done
