#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# The programs in examples/, and rwrite(2) from Python as its page shows it: on varjfs and in a
# plain directory.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires command python3 awk sort
# shellcheck disable=SC2154 # tap.sh sets builddir
examples=$builddir/examples
for program in log-trim edit-lines csv-insert; do
    [ -x "$examples/$program" ] || skip_all "examples/$program is not built"
done

exit_status()
{
    "$@" >/dev/null 2>"$T/stderr"
    echo $?
}

log_trim()
{
    local log=$1/log writer
    seq 1 100000 >"$log"
    check "log-trim, $2" "$examples/log-trim" "$log" 1000
    is "what is left, $2: whole lines, at most 1000 bytes" "$(cat "$log")" "$(seq 99835 100000)"
    check "log-trim with nothing to do, $2" "$examples/log-trim" "$log" 1000
    is "nothing was done, $2" "$(wc -l <"$log")" 166
    printf 'no newline at all' >"$log"
    check "log-trim of one line, $2" "$examples/log-trim" "$log" 4
    is "one line that is too long goes whole, $2" "$(cat "$log")" ""
    seq 1 10 >"$log"
    check "log-trim to 0, $2" "$examples/log-trim" "$log" 0
    is "nothing is left, $2" "$(wc -c <"$log")" 0
    is "no such file, $2" "$(exit_status "$examples/log-trim" "$1/none" 5)" 1
    is "not a number, $2" "$(exit_status "$examples/log-trim" "$log" 5x)" 2
    # Somebody appends all the time: on varjfs no line is lost, none is cut.
    [ "$2" = varjfs ] || return 0
    seq 1 20000 >"$log"
    seq 20001 60000 >>"$log" &
    writer=$!
    for _ in 1 2 3 4 5; do
        "$examples/log-trim" "$log" 20000
    done
    wait $writer
    is "lines appended meanwhile are all there, $2" \
        "$(cat "$log")" "$(seq "$(head -n 1 "$log")" 60000)"
}

edit_lines()
{
    local text=$1/text
    printf 'one\ntwo\nthree\n' >"$text"
    check "edit-lines, $2" "$examples/edit-lines" "$text" 2ctwice 1izero 4d 4iend
    is "the text, $2" "$(cat "$text")" $'zero\none\ntwice\nend'
    is "a line is printed, $2" "$("$examples/edit-lines" "$text" 3p)" twice
    check "lines are deleted, $2" "$examples/edit-lines" "$text" 2,3d
    is "the text, $2" "$(cat "$text")" $'zero\nend'
    is "no such line, $2" "$(exit_status "$examples/edit-lines" "$text" 3d)" 1
    is "no such place, $2" "$(exit_status "$examples/edit-lines" "$text" 4ix)" 1
    is "no such command, $2" "$(exit_status "$examples/edit-lines" "$text" 1x)" 2
    is "nothing has changed, $2" "$(cat "$text")" $'zero\nend'
    printf 'no newline' >"$text"
    check "behind a last line without newline, $2" "$examples/edit-lines" "$text" 2inext
    is "the text, $2" "$(cat "$text")" $'no newline\nnext'
    : >"$text"
    check "into an empty file, $2" "$examples/edit-lines" "$text" 1ifirst
    is "the text, $2" "$(cat "$text")" first
    seq 1 200000 >"$text"
    check "in a long file, $2" "$examples/edit-lines" "$text" 100000d 150000iinserted
    is "the text, $2" "$(cksum <"$text")" \
        "$( (seq 1 99999; seq 100001 150000; echo inserted; seq 150001 200000) | cksum)"
}

csv_insert()
{
    local table=$1/table seed=$RANDOM
    printf 'key,value\n' >"$table"
    note "RANDOM=$seed"
    RANDOM=$seed
    : >"$T/rows"
    for i in $(seq 1 60); do
        row="$((RANDOM % 150)),\"row $i, of $2\""
        echo "$row" >>"$T/rows"
        "$examples/csv-insert" -n -H "$table" "$row" || fail "csv-insert -n -H, $2: $row"
    done
    is "60 rows, sorted by number, $2" "$(cat "$table")" \
        "$(echo key,value; sort -s -t, -k1,1n "$T/rows")"
    printf 'anna,1\nzoe,2' >"$table"
    check "by text, $2" "$examples/csv-insert" "$table" '"mike ""m""",3'
    check "at the start, $2" "$examples/csv-insert" "$table" 'adam,4'
    check "behind a last row without newline, $2" "$examples/csv-insert" "$table" 'zzz,5'
    is "the table, $2" "$(cat "$table")" $'adam,4\nanna,1\n"mike ""m""",3\nzoe,2\nzzz,5'
    is "two lines are no row, $2" "$(exit_status "$examples/csv-insert" "$table" $'a\nb')" 2
    head -c 200000 /dev/zero | tr '\0' x >"$table"
    is "a row without end, $2" "$(exit_status "$examples/csv-insert" "$table" a,1)" 1
    awk 'BEGIN { for (i = 0; i < 200000; i++) printf "%07d,%d\n", 2 * i, i }' >"$table"
    check "into a long table, $2" "$examples/csv-insert" "$table" 0200001,new
    is "the row's place, $2" "$(grep -n new "$table")" 100002:0200001,new
}

# The page's own lines, as a program.
# shellcheck disable=SC2154 # tap.sh sets srcdir
sed -n '/^=head2 From Python/,/^A file that/s/^    //p' "$srcdir/man/rwrite.2.pod" >"$T/page.py"
cat >>"$T/page.py" <<'END'

import errno, sys
path = sys.argv[1] + "/from-python"
with open(path, "w+b") as f:
    f.write(b"hello world")
    f.flush()
    assert rpwrite(f.fileno(), b", small", 5) == 7
    assert rpwrite(f.fileno(), b"", 0, 5) == 0
    assert rpwrite(f.fileno(), b"W", 8, 1) == 1
with open(path, "rb") as f:
    assert f.read() == b", small World", f.read()
    try:
        rpwrite(f.fileno(), b"x", 0)
    except OSError as e:
        assert e.errno == errno.EBADF
    else:
        raise AssertionError("a read-only descriptor was written")
END

make_fs -o objects=16K
mount_varjfs
mkdir "$T/plain"
for where in "$MNT varjfs" "$T/plain plain"; do
    # shellcheck disable=SC2086 # two words
    log_trim $where
    # shellcheck disable=SC2086
    edit_lines $where
    # shellcheck disable=SC2086
    csv_insert $where
    check "Python as the page shows it, ${where##* }" \
        env LD_LIBRARY_PATH="$builddir/.libs" python3 "$T/page.py" "${where% *}"
done
umount_varjfs
fsck_clean "after the examples"
tap_done
