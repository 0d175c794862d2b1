#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""What round-trips.sh counts: round-trips.py MOUNTPOINT COMMAND

Each line of the output is NAME REQUESTS-FOR-KEYS REQUESTS-FOR-OBJECTS, of one call.
"""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from vjtap import edit  # noqa: E402

TIMES = 40
FILES = 10000
BYTES = os.urandom(4096)


def requests():
    out = subprocess.run(["varjfsctl", "stats", "--json", mount], check=True, capture_output=True)
    stats = json.loads(out.stdout)
    return stats["meta_requests"], stats["store_requests"]


def counted(name, times, function):
    for n in range(times):
        before = requests()
        function(n)
        after = requests()
        print(name, after[0] - before[0], after[1] - before[1], flush=True)


def path(n, kind="file"):
    return os.path.join(mount, "work", f"{kind}{n}")


def create(n, kind="file"):
    os.close(os.open(path(n, kind), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def write(n):
    with open(path(n), "wb", buffering=0) as f:
        f.write(BYTES)


def insert(n):
    fd = os.open(path(n), os.O_RDWR)
    edit(fd, 100, 0, b"inserted")
    os.close(fd)


def read(n):
    with open(path(n), "rb") as f:
        assert len(f.read()) == 4104


def work():
    os.mkdir(os.path.join(mount, "work"))
    create(TIMES)
    counted("create", TIMES, create)
    counted("write", TIMES, write)
    counted("insert", TIMES, insert)
    counted("stat", TIMES, lambda n: os.stat(path(n)))
    counted("read", TIMES, read)
    counted("rename", TIMES, lambda n: os.rename(path(n), path(n, "renamed")))
    counted("unlink", TIMES, lambda n: os.unlink(path(n, "renamed")))
    fds = []
    for n in range(TIMES):
        create(n, "new")
        fds.append(os.open(path(n, "new"), os.O_RDWR))
        os.write(fds[n], os.urandom(4096))
        counted("flush", 1, lambda _: os.fsync(fds[n]))


def fill():
    os.mkdir(os.path.join(mount, "large"))
    for n in range(FILES):
        os.close(os.open(os.path.join(mount, "large", f"a file of the name {n}"), os.O_CREAT | os.O_WRONLY, 0o644))


def listing():
    counted("list", 1, lambda _: subprocess.run(["ls", "-l", os.path.join(mount, "large")], check=True,
                                                 stdout=subprocess.DEVNULL))
    counted("again", 1, lambda _: subprocess.run(["ls", "-l", os.path.join(mount, "large")], check=True,
                                                  stdout=subprocess.DEVNULL))


mount = sys.argv[1]
{"work": work, "fill": fill, "list": listing}[sys.argv[2]]()
