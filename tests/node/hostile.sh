#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# hostile.sh [CONNECTIONS [SECONDS]] - a node among hostile peers (hostile.c, hostile-tls.c)
#
#   CONNECTIONS  of each attack (500)
#   SECONDS      of random frames (5)
#
# Long form, an hour with ten thousand connections, best in a build with AddressSanitizer:
#   VARJFS_TEST_TIMEOUT=7200 tests/node/hostile.sh 10000 3600

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"

connections=${1:-500}
seconds=${2:-5}
memory=96 # MiB that the node may hold for connections

# Each connection is a descriptor on both sides.
hard=$(ulimit -Hn)
if [ "$hard" != unlimited ] && [ "$hard" -lt $((connections + 500)) ]; then
    connections=$((hard - 500))
    note "$connections connections: ulimit -Hn is $hard"
fi
ulimit -n $((connections + 500))

mkdir "$T/home" "$T/secret" "$T/other"
check "a key for a volume" varjfsctl keygen "$T/secret.key"
check "a key for another volume" varjfsctl keygen "$T/other.key"
cat >"$T/varjfsd.conf" <<EOF
[node]
listen = unix:$T/tls
listen_insecure = unix:$T/clear
memory = ${memory}M
connection_memory = 40M
connections = $((connections + 200))

[volume home]
directory = home

[volume secret]
directory = secret
key = secret.key

[volume other]
directory = other
key = other.key
EOF

varjfsd -c "$T/varjfsd.conf" >"$T/log" 2>&1 &
node=$!
end_node()
{
    kill "$node" 2>/dev/null && wait "$node" 2>/dev/null
}
at_exit end_node
wait_for 10 test -S "$T/clear" || { sed 's/^/# /' "$T/log" && fail "the node listens"; }

# What another program says, as results of this one.
results_of()
{
    local line name
    "$@" >"$T/results" 2>&1
    local status=$?
    while IFS= read -r line; do
        name=${line#* - }
        case $line in
        "ok "*) pass "$name" ;;
        "not ok "*) fail "$name" || true ;;
        1..*) ;;
        *) printf '%s\n' "$line" | sed 's/^#* */# /' ;;
        esac
    done <"$T/results"
    is "${1##*/} came to its end" "$status $(grep -c '^1\.\.' "$T/results")" "0 1"
}

programs=$builddir/tests/node
results_of "$programs/hostile" "unix:$T/clear" "$node" "$memory" "$connections" "$seconds"
results_of "$programs/hostile-tls" "$T/tls" "$T/clear" "$node" "$T/secret.key" "$T/other.key" "$connections"

check "the node lives" kill -0 "$node"
kill "$node"
wait "$node"
is "and ends in order" $? 0
is "its log is short, whatever it was asked" "$(($(wc -l <"$T/log") < 10000))" 1

tap_done
