#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# varjfs-bench: what its options mean, and how it ends.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/client/client.sh"

requires command python3 pgrep pkill

v=$T/v
check "a volume" mkfs.varjfs "$v"
bench()
{
    varjfs-bench "$@" "$v" 2>&1
}
is "a line for each kind" "$(bench -c 20 -b 5 | sed 's/ .*//' | tr '\n' ' ')" \
    "object-create object-write-each object-status object-read-each object-delete object-write object-read key-put key-get key-delete "
bench -c 20 -b 5 -n 16K -p 3 -t 2 --json >"$T/json"
is "with processes, as JSON" "$(python3 - "$T/json" <<'EOP'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
print(len(rows), {row["operations"] for row in rows}, rows[1]["bytes"], rows[0]["processes"] * rows[0]["threads"])
EOP
)" "10 {120} 16384 6"
is "nothing is left behind" "$(varjfsctl objects list "$v" varjfs-bench)$(varjfsctl kv list "$v" varjfs-bench)" ""
check "single semantics" bench -c 20 --semantics consistency=eventual,ordering=relaxed,safety=network
check "atomic batches of keys" bench -c 20 -b 10 -S atomicity=batch -o key-put,key-delete
is "what cannot be given is refused" "$(bench -S atomicity=batch,consistency=none -c 1 >/dev/null; echo $?)" 1
is "an operation that fails, in processes" "$(bench -p 2 -c 5 -o object-delete >/dev/null; echo $?)" 1
for wrong in "-n 9M" "-n K" "-n 64k" "-S atomicity" "-S atomicity=some" "-S colour=red" "-p 0" "-T none" "-o nothing"; do
    # shellcheck disable=SC2086 # an option and its value
    is "bad usage: $wrong" "$(bench $wrong >/dev/null; echo $?)" 2
done
check "the daemon ends" stop_daemon "$v"
tap_done
