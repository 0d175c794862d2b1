#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# sqlite in every journal mode: concurrent writers beside readers, kill -9 of a writer, kill -9 of
# the file system; what was committed is there, nothing is half there, integrity_check is ok.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/program.sh"
requires command python3
requires python-module sqlite3
program_begin "$@"
count=${long:+60}
count=${count:-12}
kills=${long:+6}
kills=${kills:-1}

# No function: what is started in the background must be the process that is killed.
# shellcheck disable=SC2154 # tap.sh sets srcdir
sqlite=(python3 "$srcdir/tests/programs/sqlite.py")

# One result: all these processes of ours end with 0.
all_end()
{
    local name=$1 p failed=
    shift
    for p; do
        wait "$p" || failed+=" $p: $?"
    done
    is "$name" "$failed" "" || note "$(tail -n 2 "$T"/errors-*)"
}

lines_in()
{
    [ "$(wc -l <"$1")" -ge "$2" ]
}

modes="delete truncate persist wal memory off delete+mmap wal+mmap"
for mode in $modes; do
    db=$W/$mode.db
    check "$mode: a database" "${sqlite[@]}" create "$db" "$mode"
    pids=()
    for writer in 1 2 3; do
        "${sqlite[@]}" write "$db" "$mode" $writer "$count" >"$T/ledger-$mode-$writer" 2>"$T/errors-$writer" &
        pids+=($!)
    done
    # "off" promises nothing to a reader who meets a rollback, but there is none.
    "${sqlite[@]}" busy "$db" "$mode" 2>"$T/errors-reader" &
    pids+=($!)
    all_end "$mode: three writers and a reader end well" "${pids[@]}"
    check "$mode: every commit is there" "${sqlite[@]}" check "$db" "$mode" "$T/ledger-$mode"-*
done

# A client that dies in the midst.  Without a journal sqlite itself promises nothing then.
for mode in delete truncate persist wal wal+mmap; do
    db=$W/$mode.db
    for ((i = 1; i <= kills; i++)); do
        "${sqlite[@]}" write "$db" "$mode" 1$i 1000000 >"$T/ledger-$mode-1$i" 2>/dev/null &
        victim=$!
        "${sqlite[@]}" write "$db" "$mode" 2$i "$count" >"$T/ledger-$mode-2$i" 2>"$T/errors-2" &
        other=$!
        check "$mode: the writer is at work" wait_for 60 lines_in "$T/ledger-$mode-1$i" $((2 + i % 5))
        kill -KILL $victim
        wait $victim 2>/dev/null
        all_end "$mode: the writer beside it goes on" $other
        check "$mode: after kill -9 of a writer" "${sqlite[@]}" check "$db" "$mode" "$T/ledger-$mode"-*
    done
done
remounted "with databases"

# The file system dies; every commit was synchronous.
if [ -n "$on_varjfs" ]; then
    for ((i = 1; i <= kills; i++)); do
        pids=()
        for mode in delete truncate persist wal; do
            "${sqlite[@]}" write "$W/$mode.db" "$mode" 3$i 1000000 >"$T/ledger-$mode-3$i" 2>/dev/null &
            pids+=($!)
        done
        for mode in delete truncate persist wal; do
            check "$mode: the writer is at work" wait_for 60 lines_in "$T/ledger-$mode-3$i" $((2 + i % 5))
        done
        kill_varjfs
        for p in "${pids[@]}"; do
            kill -KILL "$p" 2>/dev/null
            wait "$p" 2>/dev/null
        done
        fsck_clean "after kill -9 of the daemon"
        new_mount
        for mode in delete truncate persist wal; do
            check "$mode: after kill -9 of the daemon" "${sqlite[@]}" check "$W/$mode.db" "$mode" "$T/ledger-$mode"-*
        done
    done
else
    skip "kill -9 of the daemon" "there is none"
fi

# The shell's own commands, on a large transaction that spills.
if command -v sqlite3 >/dev/null; then
    check "a large transaction, backup and VACUUM" sqlite3 -bail "$W/large.db" "
        PRAGMA cache_size = 50;
        BEGIN; CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
            INSERT INTO t SELECT i, randomblob(700) FROM n;
        COMMIT;
        BEGIN; DELETE FROM t WHERE a % 3 = 0; UPDATE t SET b = zeroblob(900) WHERE a % 2; ROLLBACK;
        DELETE FROM t WHERE a % 3 = 0;
        VACUUM;"
    check ".backup" sqlite3 "$W/large.db" ".backup '$W/copy.db'"
    is "the copy has the rows" "$(sqlite3 "$W/copy.db" 'SELECT count(*), sum(a) FROM t; PRAGMA integrity_check')" \
        "$(sqlite3 "$W/large.db" 'SELECT count(*), sum(a) FROM t; PRAGMA integrity_check')"
    is "rows" "$(sqlite3 "$W/copy.db" 'SELECT count(*) FROM t')" 3334
else
    skip "sqlite's shell" "needs the command sqlite3"
fi
program_end
