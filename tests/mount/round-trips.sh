#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Requests that a mount sends to its nodes for what programs do: as many round trips, where none is sent before the
# answer to another one.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/nodes.sh"

requires command python3
requires_fuse
requires program varjfsd fsck.varjfs varjfsctl

# shellcheck disable=SC2034 # make_fs and mount_varjfs use it
SOURCE=$T/volume.conf
# Nothing goes out by itself while requests are counted.
quiet=lease=3600,commit=3600

count()
{
    # shellcheck disable=SC2154 # tap.sh sets srcdir
    python3 "$srcdir/tests/mount/round-trips.py" "$MNT" "$1" >"$T/counts" 2>"$T/count.err" || {
        fail "round-trips.py $1" "$(cat "$T/count.err")"
        exit 1
    }
}

# note_counts NAME
note_counts()
{
    awk -v name="$1" '$1 == name { print $2 + $3, $2, $3 }' "$T/counts" | sort -n >"$T/sorted"
    note "$1: requests in all, for keys, for objects, and how often: $(uniq -c "$T/sorted" | awk '{ printf "%s%d %d %d: %d", n++ ? "; " : "", $2, $3, $4, $1 }')"
}

# none NAME: no call makes one; if each made one, it would be as many as there are calls.  Beside them the background makes
# a few: while somebody writes it asks once a second how much space there is, it makes an object now and then, and the
# mount looks after its session and its nodes.
none()
{
    note_counts "$1"
    # shellcheck disable=SC2016 # for awk
    check "$1: no request, but for the background's" awk -v name="$1" '
        $1 == name { n++; all += $2 + $3 }
        END { exit n == 0 || 2 * all > n }' "$T/counts"
}

# at_most NAME REQUESTS: of every second call.  Beside the others the file that was flushed before is made an object (a
# question for the index, PUT, FLUSH, REMOVE); on a busy machine that meets more of them.  Exact counts, without a
# background, of what is applied: tests/unit/fs/test-safety.
at_most()
{
    note_counts "$1"
    # shellcheck disable=SC2016 # for awk
    check "$1: at most $2 requests" awk -v most="$2" '$1 > most { bad++ } END { exit NR == 0 || bad * 2 > NR }' "$T/sorted"
}

for node in keys one; do
    node_begin $node
done
make_fs -o "meta=remote:$(nodes_at keys):insecure,store=remote:$(nodes_at one):insecure"
mount_varjfs -o $quiet
count fill
remount_varjfs -o $quiet
count list
at_most list 50
at_most again 0
count work
for what in create write insert stat read rename unlink; do
    none $what
done
at_most flush 2
umount_varjfs
fsck_clean "afterwards"
tap_done
