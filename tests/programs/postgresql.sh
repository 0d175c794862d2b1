#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# PostgreSQL with page checksums: pgbench, kill -9 of all its processes, recovery; kill -9 of the
# file system, recovery; then every page's checksum, every index against its table, and the sums
# that each transaction keeps.  No system cluster is used or needed.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/program.sh"

# shellcheck disable=SC2154 # tap.sh sets srcdir
. "$srcdir/tests/lib/postgresql.sh"
bin=$(postgresql_bin) || skip_all "needs PostgreSQL's server programs"
command -v setpriv >/dev/null || skip_all "needs setpriv"
program_begin "$@"
requires_reachable "$W"
if ! unprivileged test -x "$bin/postgres"; then
    cp -r "${bin%/lib/postgresql/*}" "$T/usr"
    chmod -R a+rX "$T/usr"
    bin=$T/usr/lib/postgresql/${bin##*/lib/postgresql/}
fi

clients=4
transactions=${long:+3000}
transactions=${transactions:-120}
rounds=${long:+8}
rounds=${rounds:-1}
scale=${long:+10}
scale=${scale:-1}
# A socket's path has at most 107 bytes.
sockets=$(mktemp -d /tmp/vjpg.XXXXXX)
at_exit rm -rf "$sockets"
chmod 1777 "$sockets"
export PGHOST=$sockets PGPORT=5432 PGDATABASE=postgres PGUSER=tester PGOPTIONS=
data=$W/data
log=$T/server.log
touch "$log"
chmod 666 "$log"

stop_server()
{
    local pid
    pid=$(head -n 1 "$data/postmaster.pid" 2>/dev/null)
    [ -z "$pid" ] || unprivileged "$bin/pg_ctl" -D "$data" -m immediate -w stop >/dev/null 2>&1
}
at_exit stop_server

start()
{
    local status=0
    unprivileged "$bin/pg_ctl" -D "$data" -l "$log" -w -t 120 start >"$T/out" 2>&1 || status=$?
    is "$1: the server starts" $status 0 || note "$(tail -n 15 "$log")"
}

stop()
{
    check "$1: the server stops" unprivileged "$bin/pg_ctl" -D "$data" -m fast -w -t 120 stop
}

sql()
{
    unprivileged "$bin/psql" -X -A -t -v ON_ERROR_STOP=1 -c "$1" "${@:2}"
}

kill_server() # POSTMASTER
{
    local p all
    all="$1 $(ps -o pid= --ppid "$1")"
    # shellcheck disable=SC2086 # process ids
    kill -KILL $all 2>/dev/null
    for p in $all; do
        wait_for 20 process_gone "$p" || fail "process $p of the server dies"
    done
    rm -f "$sockets"/.s.*
}

# What each transaction of pgbench keeps equal.
sums()
{
    sql "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)
        AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)
        AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)"
}

history()
{
    sql "SELECT count(*) FROM pgbench_history"
}

# What pgbench says of itself, also when the server went away.
acknowledged()
{
    sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "$1"
}

has_history()
{
    [ "$(history 2>/dev/null || echo 0)" -ge "$1" ]
}

looks_whole()
{
    is "$1: the balances add up" "$(sums)" t
    check "$1: tables and indexes agree (amcheck)" unprivileged "$bin/pg_amcheck" -a --heapallindexed \
        --install-missing
}

pages_whole()
{
    local status=0
    unprivileged "$bin/pg_checksums" --check -D "$data" >"$T/out" 2>&1 || status=$?
    is "$1: $(sed -n 's/^Blocks scanned: *//p' "$T/out") pages have their checksums" $status 0 ||
        note "$(tail -n 5 "$T/out")"
}

mkdir "$data"
[ "$(id -u)" != 0 ] || chown 65534:65534 "$data"
chmod 700 "$data"
status=0
unprivileged "$bin/initdb" -D "$data" -k -A trust -U tester --locale=C -E UTF8 --wal-segsize=4 >"$T/out" 2>&1 ||
    status=$?
is "initdb with checksums" $status 0 || note "$(tail -n 5 "$T/out")"
unprivileged tee -a "$data/postgresql.conf" >/dev/null <<END
listen_addresses = ''
unix_socket_directories = '$sockets'
shared_buffers = 2MB
wal_level = minimal
max_wal_senders = 0
max_wal_size = 24MB
min_wal_size = 8MB
checkpoint_timeout = 30s
wal_sync_method = fdatasync
dynamic_shared_memory_type = mmap
jit = off
END

# First round with the usual way to sync; open_datasync then adds O_DIRECT in this configuration.
start "first"
check "pgbench -i" unprivileged "$bin/pgbench" -i -q -s "$scale"
note "$(unprivileged "$bin/pgbench" -n -c $clients -j 2 -t "$transactions" 2>&1 | tee "$T/bench" | grep -E '^(tps|latency average)')"
is "$((clients * transactions)) transactions" "$(acknowledged "$T/bench")" $((clients * transactions))
is "they are in the history" "$(history)" $((clients * transactions))
looks_whole "after pgbench"
total=$((clients * transactions))

for ((round = 1; round <= rounds; round++)); do
    for victim in server file-system; do
        if [ $victim = file-system ] && [ -z "$on_varjfs" ]; then
            skip "kill -9 of the file system" "there is none"
            continue
        fi
        if [ $(((round + ${#victim}) % 2)) = 0 ]; then method=open_datasync; else method=fdatasync; fi
        sql "ALTER SYSTEM SET wal_sync_method = $method" >/dev/null
        sql "SELECT pg_reload_conf()" >/dev/null
        unprivileged "$bin/pgbench" -n -c $clients -j 2 -t 1000000 >"$T/bench" 2>&1 &
        bench=$!
        check "$victim: pgbench is at work ($method)" wait_for 60 has_history $((total + 20 + round * 10))
        postmaster=$(head -n 1 "$data/postmaster.pid")
        [ $victim = server ] || kill_varjfs
        kill_server "$postmaster"
        if [ $victim = file-system ]; then
            fsck_clean "after kill -9 of the daemon"
            new_mount
        fi
        wait $bench 2>/dev/null
        promised=$((total + $(acknowledged "$T/bench")))
        rm -f "$data/postmaster.pid"
        start "after kill -9 of the $victim"
        there=$(history)
        if [ "$there" -ge $promised ] && [ "$there" -le $((promised + clients)) ]; then
            pass "$victim: $promised promised, $there there"
        else
            fail "$victim: every transaction that was promised is there" "$promised promised, $there there"
        fi
        total=$there
        looks_whole "after kill -9 of the $victim"
    done
done

sql "VACUUM FULL pgbench_accounts" >/dev/null
check "a database copied file by file" sql "CREATE DATABASE copied TEMPLATE postgres STRATEGY = FILE_COPY" template1
is "it has the rows" "$(sql "SELECT count(*) FROM pgbench_accounts" copied)" $((scale * 100000))
if [ -n "$long" ]; then
    mkdir "$W/space"
    [ "$(id -u)" != 0 ] || chown 65534:65534 "$W/space"
    check "a table space" sql "CREATE TABLESPACE space LOCATION '$W/space'"
    check "a table moves there" sql "ALTER TABLE pgbench_accounts SET TABLESPACE space"
    is "parallel workers agree" "$(sql "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
        SET min_parallel_table_scan_size = 0; SELECT count(*) FROM pgbench_accounts a JOIN pgbench_accounts b USING (aid)" |
        tail -n 1)" $((scale * 100000))
    sql "ALTER SYSTEM SET wal_level = replica" >/dev/null
    sql "ALTER SYSTEM SET max_wal_senders = 4" >/dev/null
    stop "before a backup"
    start "for a backup"
    check "pg_basebackup" unprivileged "$bin/pg_basebackup" -D "$W/backup" -T "$W/space=$W/backup-space" -X stream
    check "pg_verifybackup" unprivileged "$bin/pg_verifybackup" "$W/backup"
    check "pg_dump" unprivileged "$bin/pg_dump" -Fd -j 2 -f "$W/dump" postgres
    looks_whole "after all of that"
fi
stop "at the end"
pages_whole "at the end"
remounted "with a cluster"
start "after a remount"
looks_whole "after a remount"
stop "after a remount"
pages_whole "after a remount"
program_end
