#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# scripts/bench real in its shortest form: it runs, and its rows are there.  How long they take is not looked at.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires command python3
requires program varjfs mkfs.varjfs varjfsctl umount.fuse.varjfs
requires_fuse

# shellcheck disable=SC2154 # tap.sh sets srcdir
bench()
{
    VARJFS_BUILDDIR=$builddir "$srcdir/scripts/bench" --dir "$T" "$@"
}

rows()
{
    python3 -c 'import json, sys; print("\n".join(sorted({r["name"] for r in json.load(open(sys.argv[1]))["figures"]})))' "$1"
}

check "a round" bench --json "$T/report" --plot "$T/plots" real -- --rounds 1 --files 20 \
    --on varjfs,varjfs-block,below --only untar,cp,cold,sqlite --table "$T/table"
rows "$T/report" >"$T/rows"
for row in untar "rm -rf" "cp -r" "grep -r, cold" "du -s, cold" "untar, one processor"; do
    check "it has a row of $row" grep -qxF -e "$row" "$T/rows"
    check "and one with the other store" grep -qxF -e "$row, block" "$T/rows"
    check "and one in the table" grep -qF -e "| $row | " "$T/table"
done
is "a picture" "$(cd "$T/plots" && echo real-*.svg | wc -w)" 1
is "nothing stays mounted" "$(mount_points_below "$T")" ""
is "what is not known is refused" "$(status_of bench real -- --only nonsense)" 1
check "and named" grep -q "nonsense: not one of untar," "$T/err"
tap_done
