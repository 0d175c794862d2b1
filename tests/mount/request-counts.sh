#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Each request is counted once, in its kind, whoever answers it: request threads, threads that make
# others durable, edit threads, the watcher in place of a caller that was killed.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/hang.sh"

requires_fuse
requires program varjfsctl
requires command python3

# shellcheck disable=SC2154 # tap.sh sets builddir and srcdir
steps=$srcdir/tests/mount/request-counts.py
export PYTHONDONTWRITEBYTECODE=1

# requests_of COMMAND...: the requests that it sends, in $T/sent
requests_of()
{
    python3 "$srcdir/tests/lib/requests.py" "$MNT" "$@" >"$T/sent" 2>"$T/sent-err" ||
        fail "counting $*" "$(cat "$T/sent" "$T/sent-err")"
}

# sent KIND...: how many of each
sent()
{
    local kind
    for kind; do
        awk -v kind="$kind" '$1 == kind { n = $2 } END { printf "%d ", n }' "$T/sent"
    done | sed 's/ $//'
}

# figure GROUP KIND NAME
figure()
{
    varjfsctl stats --json "$MNT" | python3 -c 'import json, sys
print(json.load(sys.stdin)[sys.argv[1]][sys.argv[2]][sys.argv[3]])' "$@"
}

# Each request that was answered has its latency, once it is quiet.
all_timed()
{
    varjfsctl stats --json "$MNT" | python3 -c 'import json, sys
d = json.load(sys.stdin)["request"]
# The one that reads the figures is not answered yet.
bad = {k: r for k, r in d.items() if r["calls"] - r["timed"] != (k == "ioctl")}
print(bad, file=sys.stderr)
sys.exit(1 if bad else 0)'
}

# Puts, flushes and gets wait as long as this file is locked.
# shellcheck disable=SC2154 # hang.sh sets hold
export VARJFS_TEST_WRAP_STORE="fault:kinds=put+flush+get,hold=$hold"
make_fs -o objects=64K
mount_varjfs

# ---- exact numbers

requests_of true
is "a command that does nothing sends nothing" "$(cat "$T/sent")" ""
requests_of python3 "$steps" names "$MNT"
is "names: mkdir, symlink, readlink, rmdir, unlink, statfs" \
    "$(sent mkdir symlink readlink rmdir unlink statfs)" "7 5 5 3 2 6"
is "names: renames, of either kind" "$(($(sent rename) + $(sent rename2)))" 4

written=$(figure request write bytes) read=$(figure request read bytes)
requests_of python3 "$steps" content "$MNT"
is "content: create, write, read, fsync" "$(sent create write read fsync)" "1 11 9 3"
is "content: bytes of the writes" "$(($(figure request write bytes) - written))" $((11 * 8192))
is "content: bytes of the reads" "$(($(figure request read bytes) - read))" $((9 * 8192))
requests_of python3 "$steps" pings "$MNT"
is "ioctls" "$(sent ioctl)" 17
failed=$(figure request getxattr failures)
requests_of python3 "$steps" failures "$MNT"
is "failed ones count too" "$(sent getxattr)" 8
is "and as failures" "$(($(figure request getxattr failures) - failed))" 8

# ---- other threads answer

requests_of python3 "$steps" fsyncs "$MNT"
is "fsyncs of many threads" "$(sent create write fsync)" "24 120 120"
head -c 300000 /dev/urandom >"$MNT/edited"
cat "$MNT/edited" >/dev/null
printf inserted >"$T/in"
edit()
{
    for _ in 1 2 3 4 5; do
        varjfsctl insert "$MNT/edited" 100001 <"$T/in" || return
    done
}
check "edits of a file whose pages the kernel has" edit
check "a change of flags" chattr +d "$MNT/edited"
check "each request that was answered has a latency" wait_for 30 all_timed

answers_stop "the store"
fsyncs=$(figure request fsync calls)
python3 "$steps" killed "$MNT" >"$T/pid" 9<&- &
caller=$!
one_more_fsync()
{
    [ "$(figure request fsync calls)" = $((fsyncs + 1)) ]
}
check "an fsync counts when it comes" wait_for 30 one_more_fsync
kill -KILL $caller
check "its caller is killed" wait_for 30 ended $caller
answers_go_on
check "it has a latency, like all others" wait_for 30 all_timed
is "it has counted once" "$(figure request fsync calls)" $((fsyncs + 1))
is "as a failure" "$(figure request fsync failures)" 1

# ---- what is warm

python3 "$steps" warm "$MNT"
requests_of python3 "$steps" warm "$MNT"
is "a warm file: no attributes, names or content" "$(sent lookup getattr read readdir)" "0 0 0 0"

# ---- store and metadata

gets=$(figure store get calls) puts=$(figure store put calls)
bytes=$(figure store put bytes)
head -c 65536 /dev/urandom >"$MNT/object"
varjfsctl sync "$MNT"
is "a put of the store" "$(($(figure store put calls) - puts > 0))" 1
is "its bytes" "$(($(figure store put bytes) - bytes >= 65536))" 1
check "nothing was read for it" [ "$(figure store get calls)" = "$gets" ]
is "commits are as the counter says" "$(figure meta commit calls)" \
    "$(varjfsctl stats --json "$MNT" | python3 -c '
import json, sys
d = json.load(sys.stdin)
print(d["meta_commits"] + d["meta_conflicts"] + d["meta"]["commit"]["failures"])')"

umount_varjfs
fsck_clean "after that"
tap_done
