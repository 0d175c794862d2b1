#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""How many transactions small files cost: small-files.py make|list MOUNT

make: the mount writes nothing back by itself.  list: it has just been mounted."""
import fcntl
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from requests import Reading  # noqa: E402
from vjtap import IOC_SYNC, eq  # noqa: E402

COUNT = 100
TOGETHER = 32  # contents that are committed in one transaction


def cost(mount, function):
    """{kind: how many calls of the metadata}, without those of the look itself."""
    first, second = Reading(mount).meta, Reading(mount).meta
    function()
    third = Reading(mount).meta
    return {kind: third[kind] - second[kind] - (second[kind] - first[kind]) for kind in third}


def is_cost(what, found, views, commits):
    """VIEWS: a number, or a tuple of those that may be."""
    print(what, found)
    allowed = views if isinstance(views, tuple) else (views,)
    eq((found["view"] in allowed, found["commit"]), (True, commits), what)


def make(mount):
    directory = mount + "/counted"
    os.mkdir(directory)
    names = ["%s/%d" % (directory, i) for i in range(COUNT)]
    fds = []
    fds.extend(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600) for name in names)
    # The kernel asks for security.capability before the first write, and before a chown(2): an open file that was made
    # here is known to have none.
    is_cost("write", cost(mount, lambda: [os.write(fd, b"x" * 1000) for fd in fds]), 0, 0)
    is_cost("utimensat", cost(mount, lambda: [os.utime(fd, (1, 2)) for fd in fds]), 0, COUNT)
    is_cost("chmod", cost(mount, lambda: [os.fchmod(fd, 0o640) for fd in fds]), 0, COUNT)
    if os.geteuid() == 0:
        # An older libfuse does not say that the daemon takes set-id bits away: the kernel asks for the mode, too.
        is_cost("chown", cost(mount, lambda: [os.fchown(fd, 1, 1) for fd in fds]), (COUNT, 2 * COUNT), COUNT)
    eq([os.stat(name).st_mtime for name in names], [2.0] * COUNT, "mtime")
    root = os.open(mount, os.O_RDONLY)
    found = cost(mount, lambda: fcntl.ioctl(root, IOC_SYNC))
    print("write-back", found)
    eq(found["commit"], (COUNT + TOGETHER - 1) // TOGETHER, "write-back")
    os.close(root)
    for fd in fds:
        os.close(fd)


def list_all(mount):
    def look():
        with os.scandir(mount + "/counted") as names:
            return sum(entry.stat().st_size for entry in names)

    found = cost(mount, look)
    print("listing", found)
    eq(found["view"] < COUNT // 4, True, "listing")
    eq(look(), COUNT * 1000, "sizes")


{"make": make, "list": list_all}[sys.argv[1]](sys.argv[2])
