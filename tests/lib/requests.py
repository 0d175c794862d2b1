#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""requests.py MOUNT COMMAND [ARGUMENT...]: prints which requests the command makes the kernel
send to the daemon, a line "KIND NUMBER" for each kind, in order of names; nothing: none.

To read the figures takes requests too, and RELEASE and FORGET may come after the call that caused
them: so they are read until three readings in a row are equally far apart, and what that distance
is does not count.  How many ioctls a reading takes depends on how long the text is: these are
counted here.  The command must neither run in MOUNT nor leave processes behind.  As a module:
requests_of(MOUNT, FUNCTION) returns a dict.
"""
import fcntl
import os
import struct
import subprocess
import sys

MOST = 200
TEXT = 3 << 30 | 8216 << 16 | 0x96 << 8 | 5  # VARJFS_IOC_TEXT
HEAD = struct.Struct("=IIQQ")
VERSION, CALLS, END = 3, 8, (1 << 64) - 1


class Reading:
    """calls: kind -> how many until then; of the ioctls that the reading made: all, and how many of
    them are in calls.  meta: the same of the metadata."""

    def __init__(self, mount):
        self.calls, self.meta, self.ioctls, self.counted = {}, {}, 0, 0
        cursor = 0
        fd = os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
        try:
            while cursor != END:
                page = bytearray(HEAD.pack(VERSION, CALLS, cursor, 0) + bytes(8192))
                fcntl.ioctl(fd, TEXT, page)
                self.ioctls += 1
                _, _, cursor, length = HEAD.unpack_from(page)
                self.add(page[HEAD.size:HEAD.size + length].decode())
        finally:
            os.close(fd)

    def add(self, text):
        for line in text.splitlines():
            fields = dict(field.split("=", 1) for field in line.split(" "))
            if fields["group"] == "meta":
                self.meta[fields["kind"]] = int(fields["calls"])
            if fields["group"] == "request":
                self.calls[fields["kind"]] = int(fields["calls"])
                if fields["kind"] == "ioctl":
                    self.counted = self.ioctls

    def since(self, before, between):
        """What came after @before, but for the ioctls of readings: its own, those of the readings
        @between, and what the one before made behind its figure."""
        more = {kind: n - before.calls[kind] for kind, n in self.calls.items()}
        more["ioctl"] -= self.counted + between + before.ioctls - before.counted
        return {kind: n for kind, n in more.items() if n != 0}


class Meter:
    def __init__(self, mount):
        self.mount = mount
        self.readings = [Reading(mount)]

    def wait_quiet(self):
        """Reads until nothing comes but the readings themselves; what one costs."""
        costs = []
        for _ in range(MOST):
            self.readings.append(Reading(self.mount))
            costs.append(self.readings[-1].since(self.readings[-2], 0))
            if len(costs) >= 3 and costs[-1] == costs[-2] == costs[-3]:
                return costs[-1]
        raise SystemExit("the mount does not become quiet: %s" % costs[-3:])

    def measure(self, function):
        cost = self.wait_quiet()
        first = len(self.readings) - 1
        result = function()
        if self.wait_quiet() != cost:
            raise SystemExit("reading the figures costs something else now")
        between = sum(r.ioctls for r in self.readings[first + 1:-1])
        sent = self.readings[-1].since(self.readings[first], between)
        for kind, number in cost.items():
            sent[kind] = sent.get(kind, 0) - number * (len(self.readings) - 1 - first)
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
