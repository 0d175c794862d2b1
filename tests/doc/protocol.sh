#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# The numbers of varjfs-protocol(7) are those of src/rpc: operations, statuses with their errors,
# and limits.  What its examples look like is compared by tests/compat/test-protocol.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"

requires command python3

# compare.py SRCDIR PAGE: prints what differs.
cat >"$T/compare.py" <<'EOF'
import re
import sys

top, page = sys.argv[1:]
text = open(page, encoding="utf-8").read()
head = {n: open(f"{top}/src/rpc/{n}", encoding="utf-8").read()
        for n in ("frame-format.h", "frame-format.c", "messages.h", "rpc.h")}


def section(name):
    return re.search(rf"^=head1 {name}$(.*?)^=head1 ", text, re.M | re.S)[1]


def same(what, of_page, of_source):
    for key in sorted(of_page.keys() | of_source.keys(), key=str):
        if of_page.get(key) != of_source.get(key):
            print(f"{what} {key}: {of_page.get(key)} in the page, {of_source.get(key)} in the source")


same("operation",
     {n: int(v, 16) for n, v in re.findall(r"([A-Z][A-Z_]*) \(([0-9]{4})\)",
                                           "\n".join(re.findall(r"^=head2 .*", text, re.M)))},
     {n: int(v, 16) for n, v in re.findall(r"VJ_OP_(\w+) = 0x([0-9a-f]{4})", head["frame-format.h"])})

numbers = {n: int(v) for n, v in re.findall(r"VJ_WIRE_(\w+) = (\d+),", head["frame-format.h"])}
errors = dict(re.findall(r"\[VJ_WIRE_(\w+)\] = (\w+),", head["frame-format.c"]))
rows = re.findall(r"^    +(\d+)  +([A-Z_]+) +(\S+)", section("STATUSES"), re.M)
same("status", {n: (int(v), "0" if e == "-" else e) for v, n, e in rows},
     {n: (v, errors.get(n)) for n, v in numbers.items()})

LIMITS = {
    "bytes of a head": "VJ_FRAME_HEAD_BYTES",
    "bytes of a message": "VJ_RPC_MESSAGE_MAX",
    "bytes of a bulk": "VJ_RPC_BULK_MAX",
    "bytes of the message of a reply": "VJ_WIRE_REPLY_MESSAGE_MAX",
    "bytes of the text of a reply that failed": "VJ_WIRE_TEXT_MAX",
    "bytes of the message of HELLO": "VJ_WIRE_HELLO_MAX",
    "bytes of a volume's name": "VJ_WIRE_VOLUME_NAME_MAX",
    "bytes of an object": "VJ_WIRE_OBJECT_MAX",
    "objects of a REMOVE or HAVE": "VJ_WIRE_OBJECTS_MAX",
    "objects of a reply to LIST": "VJ_WIRE_LISTED_MAX",
    "bytes of a key": "VJ_WIRE_KEY_MAX",
    "bytes of a value": "VJ_WIRE_VALUE_MAX",
    "spaces": "VJ_WIRE_SPACES",
    "keys of a GET_MANY, checks of an APPLY": "VJ_WIRE_KEYS_MAX",
    "items of a reply to SCAN": "VJ_WIRE_ITEMS_MAX",
    "bytes of the items of a reply": "VJ_WIRE_ITEMS_BYTES_MAX",
    "bytes of the bulk of a reply to STATS": "VJ_WIRE_STATS_MAX",
    "requests in flight of one connection": "VJ_RPC_IN_FLIGHT_MAX",
    "bytes in flight of one connection": "VJ_RPC_CONNECTION_BYTES_MAX",
    "connections of one node": "VJ_RPC_CONNECTIONS_MAX",
}


def constant(name):
    for source in head.values():
        found = re.search(rf"#define {name} (.*)", source)
        if found:
            value = re.sub(r"\(uint(32|64)_t\)|/\*.*", "", found[1])
            value = re.sub(r"(\d)u\b", r"\1", value).strip()
            if re.fullmatch(r"[\d ()<*]+", value):
                return eval(value)
    return None


rows = re.findall(r"^ +(\d+)   (\S.*)", section("LIMITS"), re.M)
same("limit", {what: int(v) for v, what in rows}, {what: constant(n) for what, n in LIMITS.items()})
print(f"{len(numbers)} statuses, {len(rows)} limits", file=sys.stderr)
EOF

page=$srcdir/man/varjfs-protocol.7.pod
is "the page has the numbers of the source" \
    "$(python3 "$T/compare.py" "$srcdir" "$page" 2>"$T/err")" ""
is "and all were looked at" "$(cat "$T/err")" "20 statuses, 20 limits"

# The comparison finds what it is for.
sed -e 's/^=head2 GET (0101)/=head2 GET (0111)/' -e 's/ABSENT       ENOENT/ABSENT       ENODEV/' \
    -e 's/^     65536   objects/     65535   objects/' "$page" >"$T/wrong.pod"
is "three wrong numbers are found" \
    "$(python3 "$T/compare.py" "$srcdir" "$T/wrong.pod" 2>/dev/null | cut -d: -f1 | xargs)" \
    "operation GET status ABSENT limit objects of a reply to LIST"

tap_done
