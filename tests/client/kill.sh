#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# kill.sh [ROUNDS [SEED]] - kill -9 of the daemon, or of programs that use it, at any time
#
# Each program has namespaces of its own and a model of all that is in them: keys against a map,
# items and their attributes against maps, objects against byte arrays.  What a batch does follows
# from the seed and its number.  After a kill:
#
#   keys, items         as the model has them behind a batch that is not before the last one which
#                       safety=storage acknowledged: atomic batches are there as a whole, in order
#   objects             each as it was at some moment since it was last acknowledged so
#
# Where only programs were killed, all that was acknowledged counts.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/client/client.sh"

requires command python3 pgrep pkill

cat >"$T/load.py" <<'EOF'
"""load.py run SOURCE RECORD NUMBER SEED | check SOURCE RECORD NUMBER durable|all

RECORD gets a line "begin SEED" when the namespaces are empty, and "N SAFETY" for each batch that
was acknowledged."""
import copy
import errno
import random
import sys

import varjfs

verb, source, record, number = sys.argv[1:5]
META, OBJECTS = "m" + number, "o" + number
ATOMIC, STORAGE = 2, 2


def content_of(attributes):
    return b"".join(name.encode() + value for name, value in sorted(attributes.items())) * 2


class Content:
    """An object: what it was since it was last durable, now last."""

    def __init__(self):
        self.states = [b""]


class Model:
    def __init__(self):
        self.keys, self.items = {}, {}
        self.names = {}     # of objects: Content
        self.had = {}       # what each name had since it was last durable: Content or None
        self.written = []   # by the batch

    def give(self, name, content):
        self.had.setdefault(name, [self.names.get(name)]).append(content)
        if content is None:
            del self.names[name]
        else:
            self.names[name] = content

    def durable(self):
        self.had = {name: [content] for name, content in self.names.items()}
        for content in self.written:
            del content.states[:-1]

    def plan_meta(self, rng, n):
        """Operations, each with its arguments, and what each is to come to."""
        keys, items, plan = dict(self.keys), copy.deepcopy(self.items), []
        for _ in range(rng.randrange(1, 9)):
            what, name = rng.randrange(6), f"i{rng.randrange(8)}"
            key, value = f"k{rng.randrange(10)}".encode(), rng.randbytes(rng.randrange(300))
            attribute = f"a{rng.randrange(4)}"
            if what == 0:
                plan.append(("put", META, key, value))
                keys[key] = value
            elif what == 1 and key in keys:
                plan.append(("delete_key", META, key))
                del keys[key]
            elif what <= 2 and name not in items:
                items[name] = {f"a{i}": value for i in range(rng.randrange(3))}
                plan.append(("create", META, name, dict(items[name])))
                # Its content follows from its attributes: it is there with them.
                plan.append(("write", META, name, 0, content_of(items[name])))
                items[name]["content"] = content_of(items[name])
                plan.append(("put_attribute", META, name, "content", items[name]["content"]))
            elif what == 3 and name in items:
                plan.append(("delete", META, name))
                del items[name]
            elif name in items and attribute in items[name] and what == 4:
                plan.append(("delete_attribute", META, name, attribute))
                del items[name][attribute]
            elif name in items:
                plan.append(("put_attribute", META, name, attribute, value))
                items[name][attribute] = value
        plan.append(("put", META, b"n", str(n).encode()))
        keys[b"n"] = str(n).encode()
        if rng.randrange(8) == 0:
            plan.append(("delete_key", META, b"none"))
            return plan, [errno.ECANCELED] * (len(plan) - 1) + [errno.ENOENT]
        self.keys, self.items = keys, items
        return plan, [0] * len(plan)

    def edit(self, rng, name):
        content = self.names[name]
        now, what = content.states[-1], rng.randrange(4)
        data = rng.randbytes(rng.choice((5, 700, 3000, 9000, 9000, 200000)))
        at, length = rng.randrange(len(now) + 1), rng.randrange(5000)
        if len(now) > 400000 or what == 0:
            size = rng.randrange(len(now) + 3000) // (4 if len(now) > 400000 else 1)
            op, now = ("resize", OBJECTS, name, size), now[:size] + b"\0" * (size - len(now))
        elif what == 1:
            op, now = ("append", OBJECTS, name, data), now + data
        elif what == 2:
            op, now = ("write", OBJECTS, name, at, data), now[:at] + data + now[at + len(data):]
        else:
            op = ("replace", OBJECTS, name, at, length, data)
            now = now[:at] + data + now[at + length:]
        content.states.append(now)
        self.written.append(content)
        return op

    def plan_objects(self, rng):
        plan = []
        for _ in range(rng.randrange(1, 5)):
            name, other, what = f"o{rng.randrange(6)}", f"o{rng.randrange(6)}", rng.randrange(10)
            if name not in self.names:
                plan.append(("create", OBJECTS, name))
                self.give(name, Content())
            elif what == 0:
                plan.append(("delete", OBJECTS, name))
                self.give(name, None)
            elif what == 1 and name != other:
                plan.append(("rename", OBJECTS, name, other))
                self.give(other, self.names[name])
                self.give(name, None)
            else:
                plan.append(self.edit(rng, name))
        return plan, [0] * len(plan)

    def plan(self, seed, n):
        rng = random.Random(f"{seed}-{number}-{n}")
        self.written = []
        is_meta, safety = rng.randrange(2) == 0, rng.choice((1, 1, STORAGE))
        plan, errors = self.plan_meta(rng, n) if is_meta else self.plan_objects(rng)
        return is_meta, safety, plan, errors


def run(seed):
    model, n = Model(), 0
    with open(record, "w", encoding="ascii") as out, varjfs.open(source) as v:
        v.keys(META).clear()
        v.objects(META).clear()
        v.objects(OBJECTS).clear()
        v.sync()
        out.write(f"begin {seed}\n")
        out.flush()
        while True:
            n += 1
            is_meta, safety, plan, errors = model.plan(seed, n)
            semantics = varjfs.Semantics(atomicity=ATOMIC if is_meta else 0, safety=safety,
                                         persistency=2 if safety == STORAGE else 1)
            with v.batch(semantics) as batch:
                for method, *arguments in plan:
                    getattr(batch, method)(*arguments)
                got = batch.execute()
            if errno.ECONNRESET in got:
                sys.exit("the daemon has gone")
            assert got == errors, ([op[:3] for op in plan], got, errors)
            out.write(f"{n} {safety}\n")
            out.flush()


def check(everything):
    try:
        with open(record, encoding="ascii") as lines:
            lines = [line.split() for line in lines if line.endswith("\n")]
    except FileNotFoundError:
        lines = []
    if not lines:
        print("not begun")
        return
    model, seed, done = Model(), lines[0][1], len(lines) - 1
    states, behind = {0: ({}, {})}, 0       # of keys and items, by the batch that made them
    for n in range(1, done + 2):            # the last one was on its way
        is_meta, safety, _, errors = model.plan(seed, n)
        if is_meta and not any(errors):
            states[n] = model.keys, model.items
        # A batch that was not done promises nothing of those before it.
        if n <= done and (everything or (safety == STORAGE and not any(errors))):
            model.durable()
            behind = max(states)
    with varjfs.open(source) as v:
        keys = dict(v.keys(META).items_from())
        items = {name: dict(v.objects(META)[name].attributes) for name in v.objects(META)}
        for name, attributes in items.items():
            with v.objects(META)[name] as o:
                if o.read() != attributes["content"]:
                    sys.exit(f"{META}: item {name} has not the content that came with it")
        n = int(keys.get(b"n", 0))
        if n < behind or (keys, items) != states.get(n):
            sys.exit(f"{META}: as behind batch {n}, {behind} was durable, {done} done:\n"
                     f"{keys}\n{items}\n{states.get(n)}")
        found = {}
        for name in v.objects(OBJECTS):
            with v.objects(OBJECTS)[name] as o:
                found[name] = o.read()
    for name in found.keys() | model.had.keys() | model.names.keys():
        had = model.had.get(name, [model.names.get(name)])
        if name not in found:
            if None not in had:
                sys.exit(f"{OBJECTS}: object {name} was durable, and is not there")
        elif not any(found[name] in c.states for c in had if c is not None):
            sys.exit(f"{OBJECTS}: object {name} of {len(found[name])} bytes never was so; it had "
                     f"{[len(s) for c in had if c is not None for s in c.states]}")
    print(done)


if verb == "run":
    run(sys.argv[5])
else:
    check(sys.argv[5] == "all")
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

# The programs have done more than @1 batches in this round; 0: one of them works.
have_worked()
{
    [ "$(cat "$T"/record* 2>/dev/null | wc -l)" -gt "$1" ]
}

# A request of a program that was killed may still be carried out.
whole_at_last()
{
    all_whole all || all_whole all
}

all_whole()
{
    local i

    for ((i = 0; i < programs; i++)); do
        python3 "$T/load.py" check "$T/v" "$T/record$i" "$i" "$1" >"$T/check$i" 2>&1 || return 1
    done
}

check "a volume" mkfs.varjfs "$T/v"
total=0
for ((round = 1; round <= rounds; round++)); do
    rm -f "$T"/record*
    start_programs
    # Now and then while the namespaces of the round before are being deleted.
    if ! wait_for 60 have_worked "$((round % 5 == 0 ? 0 : RANDOM % 150))"; then
        fail "round $round: the programs work" "$(cat "$T"/out*)"
        break
    fi
    what=whole_at_last
    if [ "$((round % 2))" -eq 1 ]; then
        kill_daemon "$T/v"
        what="all_whole durable"
    else
        kill -KILL "${workers[$((RANDOM % programs))]}"
    fi
    kill -KILL "${workers[@]}" 2>/dev/null
    wait "${workers[@]}" 2>/dev/null
    total=$((total + $(cat "$T"/record* | grep -vc begin)))
    # shellcheck disable=SC2086 # a word and its argument
    check "round $round: what was acknowledged is there" $what ||
        note "$(cut -c1-2000 "$T"/check*)"
    is "round $round: the programs failed in nothing else" "$(grep -h AssertionError "$T"/out*)" ""
done
note "$total batches"
check "the daemon ends" stop_daemon "$T/v"
check "the volume is whole" fsck.varjfs -n "$T/v"
tap_done
