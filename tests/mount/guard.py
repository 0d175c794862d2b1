#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""A daemon that is killed while one of its threads waits in the kernel for a mapped page that a WRITE
holds, which it has not answered: guard.py FILE DAEMON-PID

Prints how the users of the file come back, and ends when all have.  Needs VJ_HOLD."""

import errno
import mmap
import os
import select
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from vjtap import *  # noqa: E402,F403
from cache import Hold, later  # noqa: E402


def waits_in_kernel(pid):
    """An edit thread sleeps where no signal wakes it."""
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/stat" % (pid, task)) as f:
            name, _, rest = f.read().partition("(")[2].rpartition(")")
        if name == "vj-edit" and rest.split()[0] == "D":
            return True
    return False


def run(path, pid):
    ended = []

    def user(name, function, *args):
        try:
            function(*args)
            ended.append(name + ": no error")
        except OSError as e:
            ended.append(name + ": " + errno.errorcode[e.errno])

    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"0" * mmap.PAGESIZE, 0)
    mapping = mmap.mmap(fd, mmap.PAGESIZE)
    mapping[10:14] = b"mark"
    with Hold("pages") as held:
        # The kernel writes the page back, because the edit invalidates it, and waits for the answer.
        threads = [later(user, "edit", edit, fd, 0, 0, b"!")]
        held.arrived()
        threads.append(later(user, "write", os.pwrite, fd, b"W" * 100, 10))
        for _ in range(6000):
            if waits_in_kernel(pid):
                break
            select.select([], [], [], 0.01)
        else:
            raise AssertionError("no thread waits for the page within a minute")
        os.kill(pid, signal.SIGKILL)
        for t in threads:
            t.done()
    user("read", os.pread, fd, 10, 0)
    user("open", os.open, path + "2", os.O_RDWR | os.O_CREAT)
    user("close", os.close, fd)
    print("\n".join(sorted(ended)))


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
