#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# varjfsctl: what each subcommand prints and changes, as text, JSON and for Prometheus.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program varjfsctl
requires command python3

# json FILE EXPRESSION: what the expression over d gives
json()
{
    python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
print(eval(sys.argv[2]))' "$1" "$2"
}

# ctl_from INPUT ARGUMENT...
ctl_from()
{
    local input=$1
    shift
    varjfsctl "$@" <"$input"
}

make_fs -o objects=64K
mount_varjfs
cd "$MNT" || exit 1
head -c 1000000 /dev/urandom >"$T/plain"
cp "$T/plain" file
echo small >small
: >empty
mkdir directory

# ---- edits

python3 - "$T/plain" "$T/edited" <<'EOF'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[500001:500001] = b"inserted"
del data[1024:1024 + 2048]
data[300:310] = b"a longer replacement"
data[-3:] = b""
open(sys.argv[2], "wb").write(data)
EOF
printf inserted >"$T/in1"
printf 'a longer replacement' >"$T/in2"
check "insert" ctl_from "$T/in1" insert file 500001
check "delete, sizes with K" varjfsctl delete file 1K 2K
check "replace" ctl_from "$T/in2" replace file 300 10
check "delete beyond the end is clipped" varjfsctl delete file \
    $(($(stat -c %s "$T/edited"))) 1T
check "the bytes are right" cmp file "$T/edited"

# Longer than two steps of 8 MiB; the old bytes are all gone.
head -c 20000001 /dev/urandom >"$T/long"
head -c 300 "$T/edited" >"$T/expected"
cat "$T/long" >>"$T/expected"
tail -c +$((300 + 600000 + 1)) "$T/edited" >>"$T/expected"
check "a long replacement" ctl_from "$T/long" replace file 300 600000
check "its bytes are right" cmp file "$T/expected"
check "an empty insert changes nothing" ctl_from /dev/null insert file 5
check "the bytes are the same" cmp file "$T/expected"

# ---- status

varjfsctl status file >"$T/status"
is "status: size" "$(sed -n 's/^original_size=//p' "$T/status")" "$(stat -c %s file)"
is "status is the attribute" "$(cat "$T/status")" \
    "$(getfattr --only-values -n user.varjfs.status file 2>/dev/null || cat "$T/status")"
varjfsctl status --json file small >"$T/json"
is "status --json: files" "$(json "$T/json" '[x["file"] for x in d]')" "['file', 'small']"
is "status --json: numbers" "$(json "$T/json" 'd[1]["original_size"]')" 6
is "status --json: text" "$(json "$T/json" 'd[1]["transform"]')" none
is "status of several files names them" \
    "$(varjfsctl status file small | grep -c '^file=')" 2
is "status of a missing file fails" "$(status_of varjfsctl status none small)" 1
is "and shows the others" "$(grep -c '^original_size=6$' "$T/out")" 1
odd=$'a "name"\twith\\odd\n\xffbytes'
echo x >"$odd"
varjfsctl status --json "$odd" >"$T/json"
is "any name gives valid JSON" "$(json "$T/json" 'len(d)')" 1

# ---- map

varjfsctl map --json file >"$T/json"
is "map covers the file without gaps" "$(json "$T/json" \
    '(all(a["offset"] + a["length"] == b["offset"] for a, b in zip(d, d[1:])) and
     d[0]["offset"] == 0 and d[-1]["offset"] + d[-1]["length"])')" "$(stat -c %s file)"
is "map has many pages" "$(json "$T/json" 'len(d) > 200')" True
is "object ids and digests are text" \
    "$(json "$T/json" '{type(x[k]).__name__ for x in d for k in ("object_id", "digest")}')" \
    "{'str'}"
is "text and JSON have as many entries" "$(($(varjfsctl map file | wc -l) - 1))" \
    "$(json "$T/json" 'len(d)')"
cp file copy
varjfsctl map --json copy >"$T/json"
is "a copy shares its objects" \
    "$(json "$T/json" 'all(x["shared"] for x in d if x["length"] >= 16384)')" True
varjfsctl map --json small >"$T/json"
is "a small file is inline" "$(json "$T/json" 'd[0]["kind"]')" inline
truncate -s 1G hole
varjfsctl map --json hole >"$T/json"
is "a hole is one entry" "$(json "$T/json" '[(x["kind"], x["length"]) for x in d]')" \
    "[('hole', 1073741824)]"
is "an empty file has no entry" "$(varjfsctl map empty; varjfsctl map --json empty)" "[]"
is "a directory has no map" "$(status_of varjfsctl map directory)" 1

# ---- df and stats

varjfsctl sync . || fail "sync"
varjfsctl df --json . >"$T/json"
is "df has every key of the interface" "$(json "$T/json" 'list(d)')" "['total_bytes', \
'free_bytes', 'available_bytes', 'reserved_bytes', 'inodes', 'objects', \
'object_plain_bytes', 'object_stored_bytes', 'dirty_bytes', 'cache_bytes']"
is "df: inodes" "$(json "$T/json" 'd["inodes"]')" 8
is "df: nothing is dirty after sync" "$(json "$T/json" 'd["dirty_bytes"]')" 0
is "df: text and JSON agree" "$(varjfsctl df . | awk '$1 == "objects" { print $2 }')" \
    "$(json "$T/json" 'd["objects"]')"
varjfsctl stats --json . >"$T/json"
is "stats: objects were put" "$(json "$T/json" 'd["objects_put"] > 200')" True
varjfsctl stats --prometheus . >"$T/prometheus"
# shellcheck disable=SC2154 # tap.sh sets srcdir
is "Prometheus: what its text format allows, and all counters" \
    "$(python3 "$srcdir/tests/mount/exposition.py" "$T/prometheus" "$(json "$T/json" 'len([k for k in d if type(d[k]) is int])')")" ""
is "Prometheus: as many requests as JSON has" \
    "$(grep -c '^varjfs_calls_total{.*,group="request",' "$T/prometheus")" \
    "$(json "$T/json" 'len([k for k in d["request"] if d["request"][k]["calls"] > 0])')"
is "stats: text and JSON have the same reads" \
    "$(varjfsctl stats . | awk '$1 == "read" { print $2, $4 }')" \
    "$(json "$T/json" '"%d %d" % (d["request"]["read"]["calls"], d["request"]["read"]["bytes"])')"
is "stats: percentiles are in order" "$(json "$T/json" \
    'all(r["p50_ns"] <= r["p99_ns"] <= r["max_ns"] for g in ("request", "store", "meta") for r in d[g].values())')" True
is "the volume is named" "$(sed -n 's/^uuid = //p' "$SOURCE/varjfs.conf")" \
    "$(sed -n 's/.*{volume="\([^"]*\)".*/\1/p' "$T/prometheus" | sort -u)"
is "varjfsctl(1) names each counter" \
    "$(python3 -c 'import json, sys
page = open(sys.argv[2]).read()
print(*[k for k in json.load(open(sys.argv[1])) if "B<%s>" % k not in page])' \
    "$T/json" "$srcdir/man/varjfsctl.1.pod")" ""

# ---- sync

echo durable >synced
check "sync" varjfsctl sync .
cd / || exit 1
kill_varjfs
mount_varjfs
cd "$MNT" || exit 1
is "what was synced survives SIGKILL" "$(cat synced)" durable
check "and so do the edits" cmp file "$T/expected"

# ---- what is refused

is "not on varjfs" "$(status_of varjfsctl df "$T")" 1
is "in one line" "$(cat "$T/err")" "varjfsctl df: $T: not on a varjfs mount"
is "an edit elsewhere is refused" "$(status_of varjfsctl insert "$T/plain" 0)" 1
is "a missing operand" "$(status_of varjfsctl delete file 0)" 2
is "one too many" "$(status_of varjfsctl map file file)" 2
is "an offset that is none" "$(status_of varjfsctl insert file 1X)" 2
is "an offset beyond any file" "$(status_of varjfsctl insert file 9999999T)" 2
is "two formats" "$(status_of varjfsctl stats --json --prometheus .)" 2
is "an unknown subcommand" "$(status_of varjfsctl frobnicate)" 2
is "no subcommand" "$(status_of varjfsctl)" 2
[ -e /dev/full ] && is "output that cannot be written is an error" \
    "$(varjfsctl map file >/dev/full 2>"$T/err"; echo $?)" 1

cd / || exit 1
umount_varjfs
fsck_clean "after all that"

tap_done
