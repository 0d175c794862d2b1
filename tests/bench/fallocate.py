#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Times INSERT_RANGE and COLLAPSE_RANGE in the middle of a file on several file systems

fallocate.py MIB RUNS SHIM NAME=FILE...

Each FILE is MIB mebibytes long.  Runs in turn on all of them, RUNS times; prints medians in
milliseconds: the call, and the call with the fsync behind it, each from Python and by
fallocate(1).  No page behind the place is cached.  SHIM goes into LD_PRELOAD of fallocate(1)
and was put into that of this process.
"""

import ctypes
import errno
import os
import statistics
import subprocess
import sys
import time

INSERT, COLLAPSE = 0x20, 8
libc = ctypes.CDLL(None, use_errno=True)


def by_python(path, mode, offset, length):
    fd = os.open(path, os.O_RDWR)
    begin = time.perf_counter()
    failed = libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length))
    called = time.perf_counter()
    number = ctypes.get_errno()
    os.fsync(fd)
    synced = time.perf_counter()
    os.close(fd)
    if failed:
        raise OSError(number, os.strerror(number))
    return (called - begin) * 1e3, (synced - begin) * 1e3


def by_program(path, mode, offset, length):
    option = "-i" if mode == INSERT else "-c"
    environment = dict(os.environ, LD_PRELOAD=sys.argv[3])
    begin = time.perf_counter()
    done = subprocess.run(["fallocate", option, "-o", str(offset), "-l", str(length), path],
                          env=environment, stderr=subprocess.PIPE)
    called = time.perf_counter()
    if done.returncode != 0:
        raise OSError(errno.EINVAL, done.stderr.decode())
    fd = os.open(path, os.O_RDWR)
    os.fsync(fd)
    synced = time.perf_counter()
    os.close(fd)
    return (called - begin) * 1e3, (synced - begin) * 1e3


def drop_pages(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def main():
    mib, runs = int(sys.argv[1]), int(sys.argv[2])
    files = [f.split("=", 1) for f in sys.argv[4:]]
    middle = mib << 19
    places = (("block", middle, 4096), ("byte", middle + 1234, 1000))
    results = {}
    for _ in range(runs):
        for how, call in (("python", by_python), ("fallocate(1)", by_program)):
            for kind, offset, length in places:
                for name, path in files:
                    for what, mode in (("insert", INSERT), ("collapse", COLLAPSE)):
                        drop_pages(path)
                        key = (how, kind, what, name)
                        try:
                            times = call(path, mode, offset, length)
                            results.setdefault(key, []).append(times)
                        except OSError as e:
                            if kind == "block" or e.errno != errno.EINVAL:
                                raise
                            break  # whole blocks alone: neither can be done
    for how in ("python", "fallocate(1)"):
        for kind, offset, length in places:
            for what in ("insert", "collapse"):
                cells = []
                for name, _ in files:
                    times = results.get((how, kind, what, name), [])
                    cells.append(f"{name} EINVAL" if not times else
                                 f"{name} {statistics.median(t[0] for t in times):.2f} / "
                                 f"{statistics.median(t[1] for t in times):.2f}")
                print(f"   {how:13} {what:8} {length:4} bytes at a {kind:5}: " + ";  ".join(cells))


main()
