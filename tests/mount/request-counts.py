#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""request-counts.py STEP MOUNT: one of the lists of calls that request-counts.sh counts."""
import fcntl
import mmap
import os
import sys
import threading

step, mount = sys.argv[1:3]
PING = 0x00009604  # VARJFS_IOC_PING


def path(name):
    return os.path.join(mount, name)


def names():
    for i in range(7):
        os.mkdir(path("d%d" % i))
    for i in range(5):
        os.symlink("target", path("l%d" % i))
        os.readlink(path("l%d" % i))
    for i in range(4):
        os.rename(path("d%d" % i), path("e%d" % i))
    for i in range(3):
        os.rmdir(path("e%d" % i))
    for i in range(2):
        os.unlink(path("l%d" % i))
    for _ in range(6):
        os.statvfs(mount)


def content():
    room = mmap.mmap(-1, 8192)
    room[:] = b"x" * 8192
    fd = os.open(path("direct"), os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    for i in range(11):
        os.pwrite(fd, room, 8192 * i)
    for i in range(9):
        os.preadv(fd, [room], 8192 * i)
    for _ in range(3):
        os.fsync(fd)
    os.close(fd)


def pings():
    fd = os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(17):
        fcntl.ioctl(fd, PING)
    os.close(fd)


def failures():
    for i in range(8):
        try:
            os.rmdir(path("e3/none"))
        except FileNotFoundError:
            pass
        try:
            os.getxattr(path("e3"), "user.none%d" % i)
        except OSError:
            pass


def fsyncs():
    """Of many threads at once: some are answered by the thread that makes another's durable."""
    fds = [os.open(path("s%d" % i), os.O_RDWR | os.O_CREAT) for i in range(24)]

    def one(fd):
        for _ in range(5):
            os.pwrite(fd, b"y" * 100, 0)
            os.fsync(fd)

    threads = [threading.Thread(target=one, args=(fd,)) for fd in fds]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for fd in fds:
        os.close(fd)


def warm():
    fd = os.open(path("direct"), os.O_RDONLY)
    for _ in range(100):
        os.fstat(fd)
        os.stat(path("direct"))
        os.pread(fd, 4096, 0)
        os.lseek(fd, 0, os.SEEK_END)
    os.close(fd)


def killed():
    """Prints its number, then waits in fsync(2) until it is killed."""
    fd = os.open(path("held"), os.O_RDWR | os.O_CREAT)
    os.write(fd, os.urandom(300000))
    print(os.getpid(), flush=True)
    os.fsync(fd)


globals()[step]()
