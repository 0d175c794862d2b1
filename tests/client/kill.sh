#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# kill.sh [ROUNDS [SEED]] - kill -9 of the daemon, or of programs that use it, at any time
#
# Programs with namespaces of their own do batches of keys (atomic) and objects.  Afterwards each
# atomic batch is there as a whole or not at all, and what safety=storage acknowledged is there.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/client/client.sh"

requires command python3 pgrep pkill

cat >"$T/load.py" <<'EOF'
"""load.py run SOURCE RECORD NUMBER SEED | check SOURCE RECORD NUMBER

A program of its own: batch N puts KEYS keys "BATCH-i" of value N, atomically, and writes N into
object "oN".  RECORD gets a line for each acknowledged batch, durable or not: "N safety"."""
import random
import sys

import varjfs

KEYS, BLOCK = 8, 3000
verb, source, record, number = sys.argv[1:5]
space = "p" + number


def content(n):
    return random.Random(n).randbytes(BLOCK + n % 7000)


def run(seed):
    rng = random.Random(seed)
    with open(record, "a+", encoding="ascii") as out, varjfs.open(source) as v:
        out.seek(0)
        n = max([int(line.split()[0]) for line in out if line.endswith("\n")], default=0)
        n = max([n] + [int(value) for _, value in v.keys(space).items_from()]) + 1
        while True:
            safety = rng.choice((1, 2))
            semantics = varjfs.Semantics(atomicity=2, safety=safety,
                                         persistency=2 if safety == 2 else 1)
            with v.batch(semantics) as batch:
                for i in range(KEYS):
                    batch.put(space, f"{n % 5}-{i}", str(n).encode())
                errors = batch.execute()
            assert not any(errors), errors
            with v.batch(varjfs.Semantics(safety=safety)) as batch:
                if n > 20:
                    batch.delete(space, f"o{n - 20}")
                batch.create(space, f"o{n}")
                batch.write(space, f"o{n}", 0, content(n))
                batch.replace(space, f"o{n}", 1000, 500, b"edited")
                errors = batch.execute()
            assert not any(errors[1:]) and (n <= 20 or errors[0] in (0, 2)), errors
            out.write(f"{n} {safety}\n")
            out.flush()
            n += 1


def check():
    with open(record, encoding="ascii") as lines:
        done = [tuple(map(int, line.split())) for line in lines if line.endswith("\n")]
    durable = max((n for n, safety in done if safety == 2), default=0)
    with varjfs.open(source) as v:
        keys = dict(v.keys(space).items_from())
        for group in range(5):
            values = {keys.get(f"{group}-{i}".encode()) for i in range(KEYS)}
            if len(values) != 1:
                sys.exit(f"{space}: a batch is there in part: {values}")
            (value,) = values
            wanted = max((n for n in range(1, durable + 1) if n % 5 == group), default=0)
            if wanted and (value is None or int(value) < wanted):
                sys.exit(f"{space}: batch {wanted} was durable, {value} is there")
        objects = v.objects(space)
        newest = max((int(k) for k in keys.values()), default=0)
        for n in (n for n, safety in done if safety == 2 and n > max(newest, durable) - 19):
            old = content(n)
            with objects[f"o{n}"] as o:
                if o.read(len(old)) != old[:1000] + b"edited" + old[1500:]:
                    sys.exit(f"{space}: object {n} was durable, and is not what was written")
    print(len(done))


if verb == "run":
    run(int(sys.argv[5]))
else:
    check()
EOF

rounds=${1:-6}
seed=${2:-$((RANDOM * 32768 + RANDOM))}
note "$rounds rounds, seed $seed"
RANDOM=$seed
programs=3

start_programs()
{
    local i

    workers=()
    for ((i = 0; i < programs; i++)); do
        python3 "$T/load.py" run "$T/v" "$T/record$i" "$i" "$((seed + round * 10 + i))" \
            >"$T/out$i" 2>&1 &
        workers+=($!)
    done
}

# Each program has done some more than @1 batches in all.
have_worked()
{
    [ "$(cat "$T"/record* 2>/dev/null | wc -l)" -gt "$1" ]
}

all_whole()
{
    local i

    for ((i = 0; i < programs; i++)); do
        [ ! -e "$T/record$i" ] || python3 "$T/load.py" check "$T/v" "$T/record$i" "$i" \
            >"$T/check$i" 2>&1 || return 1
    done
}

check "a volume" mkfs.varjfs "$T/v"
for ((round = 1; round <= rounds; round++)); do
    before=$(cat "$T"/record* 2>/dev/null | wc -l)
    start_programs
    if ! wait_for 60 have_worked "$((before + 5 + RANDOM % 60))"; then
        fail "round $round: the programs work" "$(cat "$T"/out*)"
        break
    fi
    if [ "$((round % 2))" -eq 1 ]; then
        kill_daemon "$T/v"
    else
        kill -KILL "${workers[$((RANDOM % programs))]}"
    fi
    kill -KILL "${workers[@]}" 2>/dev/null
    wait "${workers[@]}" 2>/dev/null
    check "round $round: what was acknowledged is there" all_whole ||
        note "$(cat "$T"/check*)"
done
note "$(cat "$T"/record* | wc -l) batches"
check "the daemon ends" stop_daemon "$T/v"
check "the volume is whole" fsck.varjfs -n "$T/v"
tap_done
