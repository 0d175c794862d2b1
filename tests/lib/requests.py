#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""requests.py MOUNT COMMAND [ARGUMENT...]: prints which requests the command makes the kernel
send to the daemon, a line "KIND NUMBER" for each kind, in order of names; nothing: none.

The figures are varjfsctl's.  To read them takes requests too (the same each time), and RELEASE and
FORGET may come after the call that caused them: so they are read until three readings in a row are
equally far apart, and what that distance is does not count.  The command must neither run in MOUNT
nor leave processes behind.  As a module: requests_of(MOUNT, FUNCTION) returns a dict.
"""
import json
import subprocess
import sys

MOST = 200


def read(mount):
    out = subprocess.run(["varjfsctl", "stats", "--json", mount], check=True, stdout=subprocess.PIPE)
    return {kind: row["calls"] for kind, row in json.loads(out.stdout)["request"].items()}


def less(a, b):
    return {kind: a[kind] - b[kind] for kind in a if a[kind] != b[kind]}


class Meter:
    def __init__(self, mount):
        self.mount = mount
        self.readings = 0
        self.last = None

    def wait_quiet(self):
        """Reads until nothing comes but the readings themselves; what one costs."""
        costs = []
        for _ in range(MOST):
            now = read(self.mount)
            self.readings += 1
            if self.last is not None:
                costs.append(less(now, self.last))
            self.last = now
            if len(costs) >= 3 and costs[-1] == costs[-2] == costs[-3]:
                return costs[-1]
        raise SystemExit("the mount does not become quiet: %s" % costs[-3:])

    def measure(self, function):
        cost = self.wait_quiet()
        before, readings = self.last, self.readings
        result = function()
        if self.wait_quiet() != cost:
            raise SystemExit("reading the figures costs something else now")
        readings = self.readings - readings
        sent = less(self.last, before)
        for kind, number in cost.items():
            sent[kind] = sent.get(kind, 0) - number * readings
        return {kind: number for kind, number in sent.items() if number != 0}, result


def requests_of(mount, function):
    return Meter(mount).measure(function)[0]


def main():
    sent, status = Meter(sys.argv[1]).measure(
        lambda: subprocess.run(sys.argv[2:], check=False).returncode)
    for kind in sorted(sent):
        print(kind, sent[kind])
    sys.exit(status)


if __name__ == "__main__":
    main()
