#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# postgresql.sh [TRANSACTIONS [STATES]] - PostgreSQL at work, and the power cut
#
# With its own defaults (fsync, full pages in the log) and page checksums. In each state the server
# recovers, every transaction that had returned is there, the sums that pgbench keeps add up, tables and
# indexes agree (amcheck), and every page has its checksum. A state takes seconds: no part of "make check".
# TRANSACTIONS: that are looked for one by one, of each of two sessions; pgbench makes more beside them.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
# shellcheck disable=SC2154 # tap.sh sets srcdir
. "$srcdir/tests/crash/crash.sh"
# shellcheck disable=SC2154 # the same
. "$srcdir/tests/lib/postgresql.sh"

requires_crash
bin=$(postgresql_bin) || skip_all "needs PostgreSQL's server programs"
requires command setpriv
transactions=${1:-20}
states=${2:-3}
seed=${VARJFS_MODEL_SEED:-$RANDOM$RANDOM}
note "seed $seed"
chmod 755 "$T"

unprivileged()
{
    (cd / && exec setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/ "$@")
}

if ! unprivileged test -x "$bin/postgres"; then
    cp -r "${bin%/lib/postgresql/*}" "$T/usr"
    chmod -R a+rX "$T/usr"
    bin=$T/usr/lib/postgresql/${bin##*/lib/postgresql/}
fi

# A socket's path has at most 107 bytes.
sockets=$(mktemp -d /tmp/vjpg.XXXXXX)
at_exit rm -rf "$sockets"
chmod 1777 "$sockets"
export PGHOST=$sockets PGPORT=5432 PGDATABASE=postgres PGUSER=tester PGOPTIONS='' bin

server() # DATA start|stop [SOCKETS]
{
    unprivileged "$bin/pg_ctl" -D "$1" -l "$1/server.log" -w -t 300 -m fast -o "-k ${3:-$sockets}" "$2" >/dev/null
}

at_exit_server()
{
    local pid
    pid=$(head -n 1 "$MNT/data/postmaster.pid" 2>/dev/null)
    [ -z "$pid" ] || kill -QUIT "$pid"
}
at_exit at_exit_server

# Made off the mount, where it need not be recorded.
mkdir -m 700 "$T/data"
chown 65534:65534 "$T/data"
check "initdb with checksums" unprivileged "$bin/initdb" -D "$T/data" -k -A trust -U tester --locale=C -E UTF8 --wal-segsize=1
cat >>"$T/data/postgresql.conf" <<END
listen_addresses = ''
shared_buffers = 2MB
wal_level = minimal
max_wal_senders = 0
max_wal_size = 4MB
min_wal_size = 2MB
checkpoint_timeout = 30s
checkpoint_completion_target = 0.1
dynamic_shared_memory_type = mmap
jit = off
END
check "the server starts off the mount" server "$T/data" start
check "pgbench -i" unprivileged "$bin/pgbench" -i -q -s 1
check "a table of one's own" unprivileged "$bin/psql" -X -q -c "CREATE TABLE entry (session int, number int, PRIMARY KEY (session, number))"
check "the server stops" server "$T/data" stop

crash_make
crash_mount
check "the cluster is copied" cp -a "$T/data" "$MNT/data"
check "and durable" varjfsctl sync "$MNT"
crash_mark "!copied"
check "the server starts" server "$MNT/data" start

# One connection; the mark follows the answer to each COMMIT.
session()
{
    local i
    for ((i = 1; i <= transactions; i++)); do
        echo "INSERT INTO entry VALUES ($1, $i);"
        echo "\\! $crash_check mark $crash_log '!entry $1 $i'"
    done | "$bin/psql" -X -q -v ON_ERROR_STOP=1 -h "$sockets"
}

unprivileged "$bin/pgbench" -n -c 2 -t $((transactions * 20)) >"$T/bench" 2>&1 &
pids=($!)
session 1 >"$T/session-1" 2>&1 &
pids+=($!)
session 2 >"$T/session-2" 2>&1 &
pids+=($!)
failed=
for pid in "${pids[@]}"; do
    wait "$pid" || failed+=" $?"
done
is "every session ends well" "$failed" "" || note "$(tail -n 3 "$T"/bench "$T"/session-*)"
check "the server stops" server "$MNT/data" stop
crash_umount
crash_replays "postgresql"
note "$("$crash_check" count "$crash_log")"

{
    echo '#!/bin/bash'
    declare -f unprivileged server
    cat <<'END'
data=$VJ_CRASH_TREE/data
grep -qx '!copied' "$VJ_CRASH_MARKS" || exit 0
PGHOST=$(mktemp -d /tmp/vjpg.XXXXXX)
export PGHOST
trap 'server "$data" stop "$PGHOST"; rm -rf "$PGHOST"' EXIT
chmod 1777 "$PGHOST"
# The way to it is for root alone, and the copy is root's.
way=$data
while way=${way%/*} && [ -n "$way" ]; do
    chmod a+x "$way"
done
chown -R 65534:65534 "$data"
rm -f "$data/postmaster.pid"
sql()
{
    unprivileged "$bin/psql" -X -A -t -v ON_ERROR_STOP=1 -c "$1"
}
server "$data" start "$PGHOST" || { tail -n 15 "$data/server.log" >&2; exit 1; }
sql "SELECT session || ' ' || number FROM entry ORDER BY 1" | sort >"$VJ_CRASH_TREE/there" || exit 1
sed -n 's/^!entry //p' "$VJ_CRASH_MARKS" | sort >"$VJ_CRASH_TREE/promised"
lost=$(comm -13 "$VJ_CRASH_TREE/there" "$VJ_CRASH_TREE/promised")
[ -z "$lost" ] || { echo "lost: $lost" >&2; exit 1; }
[ "$(sql "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)
    AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)
    AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)")" = t ] ||
    { echo "the balances do not add up" >&2; exit 1; }
unprivileged "$bin/pg_amcheck" -a --heapallindexed --install-missing >&2 || exit 1
trap 'rm -rf "$PGHOST"' EXIT
server "$data" stop "$PGHOST" || exit 1
unprivileged "$bin/pg_checksums" --check -D "$data" >"$VJ_CRASH_TREE/sums" 2>&1 || { tail -n 5 "$VJ_CRASH_TREE/sums" >&2; exit 1; }
END
} >"$T/hook"
chmod +x "$T/hook"
crash_states "postgresql" --states "$states" --seed "$seed" --tree --hook "$T/hook"
tap_done
