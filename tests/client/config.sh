#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# varjfsctl config: configurations of clients, nodes and volumes are checked, shown and written; varjfsctl
# statistics: what a daemon has done for programs.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/client/client.sh"

requires command python3 pgrep pkill

ctl()
{
    varjfsctl config "$@" 2>&1
}
cd "$T" || exit 1
check "a volume" mkfs.varjfs "$T/v"

# ---- clients
check "a client's is written" varjfsctl config write "$T/c.conf" source=v read_only=no
is "for its owner alone" "$(stat -c %a "$T/c.conf")" 600
is "as what it stands for" "$(tr '\n' ';' <"$T/c.conf")" "# varjfs-client.conf(5);[client];source=v;read_only=no;"
check "is good" varjfsctl config check "$T/c.conf"
is "is shown" "$(ctl show "$T/c.conf" | tr '\t\n' ' ;')" \
    "source=$T/v # $T/c.conf:3;read_only=no # $T/c.conf:4;daemon=varjfsd # default;timeout=30 # default;"
is "as JSON" "$(ctl show --json "$T/c.conf" | python3 -c '
import json, sys
shown = json.load(sys.stdin)
print(shown["read_only"]["line"], shown["timeout"]["value"], shown["timeout"]["line"])')" "4 30 0"
is "is not replaced" "$(ctl write "$T/c.conf" source=w)" \
    "varjfsctl config: $T/c.conf: is there already (--force replaces it)"
is "and stays as it is" "$(grep -c 'source=v' "$T/c.conf")" 1
check "unless that is asked for" varjfsctl config write --force "$T/c.conf" source=v timeout=20
is "which it is as a whole" "$(tr '\n' ';' <"$T/c.conf")" "# varjfs-client.conf(5);[client];source=v;timeout=20;"
is "what is none is not written" "$(ctl write "$T/d.conf" source=tls:node volume=v | sed "s|$T/||")" \
    "varjfsctl config: d.conf:3: key: is missing, and so are certificate, certificate_key and ca"
is "nor left behind" "$(find "$T" -maxdepth 1 -name 'd.conf*' | wc -l)" 0
is "nor does it replace one" "$(ctl write --force "$T/c.conf" colour=red >/dev/null; grep -c timeout=20 "$T/c.conf")" 1
printf '[client]\nsource = v\nvolume = -\ncolour = red\n' >"$T/bad.conf"
is "each fault has its line" "$(ctl check "$T/bad.conf" | sed "s|.*bad.conf:||" | tr '\n' '|')" \
    "3: volume: no name of a volume: at most 63 letters, digits, '.', '_' and '-'|4: colour: no such setting|3: volume: is for addresses: the source is a directory|"
is "and the status is 1" "$(ctl check "$T/bad.conf" >/dev/null; echo $?)" 1
is "bad usage is 2" "$(ctl check >/dev/null; echo $?) $(ctl look "$T/c.conf" >/dev/null; echo $?)" "2 2"
is "no file" "$(ctl check "$T/none")" "varjfsctl config: $T/none: No such file or directory"

check "it stands for the volume" varjfsctl kv put "$T/c.conf" s k v
is "everywhere" "$(varjfsctl kv get "$T/v" s k)" v

# ---- nodes
varjfsctl keygen "$T/lab.key" >/dev/null
printf '%s\n' "[node]" "listen = 127.0.0.1" "[volume lab]" "directory = lab" "key = lab.key" >"$T/node.conf"
check "a node's is good" varjfsctl config check "$T/node.conf"
is "is shown" "$(ctl show "$T/node.conf" | sed -n 's/\t.*//p' | tr '\n' ';')" \
    "node: listen=127.0.0.1;volume lab: directory=lab;volume lab: key=lab.key;"
printf 'workers = 2\0\n' >>"$T/node.conf"
is "what the daemon refuses is not good" "$(ctl check "$T/node.conf")" "varjfsctl config: $T/node.conf: it is no text in UTF-8"
printf '%s\n' "[node]" "listen = a b" "workers = many" "[volume lab]" "directory = lab" "roles = cook" \
    "[volume -]" "directory = x" >"$T/node.conf"
is "all of its faults are found" "$(ctl check "$T/node.conf" | sed 's/.*node.conf:\([0-9]*\):.*/\1/' | sort -n | tr '\n' ' ')" \
    "1 2 3 6 7 "

# ---- volumes
check "a volume is good" varjfsctl config check "$T/v"
is "is shown" "$(ctl show "$T/v" | sed -n 's/^\(format=[0-9]*\)\t.*varjfs.conf:/\1 /p')" "format=2 2"
sed -i 's/^label = .*/label = other/' "$T/v/varjfs.conf"
is "what was changed by hand is found" "$(ctl check "$T/v" | grep -c "$T/v/varjfs.conf: ")" 1
sed -i 's/^label = .*/label = /' "$T/v/varjfs.conf"

# ---- statistics
counter()
{
    varjfsctl statistics "$T/v" | sed -n "s/^$1=//p"
}
before=$(counter volume_operations_total.volume.key_put)
check "three keys" varjfs-bench --count 3 --batch 3 --only key-put,key-get "$T/v"
is "are counted" "$(($(counter volume_operations_total.volume.key_put) - before))" 3
varjfsctl kv get "$T/v" s none >/dev/null 2>&1
is "and what is not there" "$(counter volume_operation_failures_total.volume.key_get)" 1
is "by JSON" "$(varjfsctl statistics --json "$T/v" | python3 -c '
import json, sys
volume = json.load(sys.stdin)["volumes"][0]
print(volume["operations"]["key_get"]["volume_operation_failures_total"], volume["volume_peers"],
      volume["volume_brought_bytes_total"] >= 3 * 4096)')" "1 1 True"
is "for Prometheus" "$(varjfsctl statistics --prometheus "$T/v" | grep -c '^varjfsd_volume_operations_total{volume="volume",op="object_read"} 0')" 1
is "of no volume" "$(varjfsctl statistics "$T/none" 2>&1 | grep -c 'no such')" 1
check "the daemon ends" stop_daemon "$T/v"
tap_done
