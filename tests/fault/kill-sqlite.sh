#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# kill-sqlite.sh [KILLS] - kill -9 of the daemon right after a COMMIT of sqlite
#
# Nothing becomes durable by itself in the meantime (commit=3600), so a kill meets all that sqlite did
# not synchronise.  With synchronous=EXTRA no commit is lost, in any journal mode.  With FULL none but
# in mode delete, where a commit is an unlink(2) after which nothing is synchronised: the last one is
# rolled back if its journal is there again, and it is not there when anybody synchronised anything later.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires command python3
requires python-module sqlite3
kills=${1:-2}
# shellcheck disable=SC2154 # tap.sh sets srcdir
sqlite=(python3 "$srcdir/tests/programs/sqlite.py")
# Each kill comes after a commit in another one of these.
modes=(delete+full delete truncate+full persist+full wal+full truncate persist wal)

make_fs -o meta=lmdb:commit=3600
mount_varjfs -o commit=3600

# MODE COUNT: so many commits, and the database is left as it is.
commits()
{
    "${sqlite[@]}" stop "$MNT/$1.db" "$1" "$i" "$2" >"$T/ledger-$1" 2>"$T/errors"
    is "$1: commits before kill $i" "$(wc -l <"$T/ledger-$1")" "$2" || note "$(cat "$T/errors")"
}

there()
{
    check "$1: after kill $i" "${sqlite[@]}" check "$MNT/$1.db" "$1" "$T/ledger-$1"
}

back=0
for ((i = 1; i <= kills; i++)); do
    last=${modes[(i - 1) % ${#modes[@]}]}
    for mode in delete+full "$last"; do
        [ -e "$MNT/$mode.db" ] || check "$mode: a database" "${sqlite[@]}" create "$MNT/$mode.db" "$mode"
    done
    check "all is durable" varjfsctl sync "$MNT"
    [ "$last" = delete+full ] || commits delete+full 2
    commits "$last" $((1 + i % 3))
    kill_varjfs
    fsck_clean "kill $i"
    mount_varjfs -o commit=3600
    if [ "$last" != delete+full ]; then
        is "delete+full: no journal after a later fsync" "$(find "$MNT" -name 'delete+full.db-journal')" ""
        there delete+full
    elif [ -e "$MNT/delete+full.db-journal" ]; then
        back=$((back + 1))
    fi
    there "$last"
done
note "$kills kills; the journal of delete+full came back $back times"
umount_varjfs
fsck_clean "at the end"
tap_done
