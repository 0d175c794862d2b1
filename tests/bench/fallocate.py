#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Times INSERT_RANGE and COLLAPSE_RANGE in the middle of a file on several file systems

fallocate.py MIB RUNS SHIM NAME=FILE...

Each FILE is MIB mebibytes long, and the first is varjfs's.  Runs in turn on all of them, RUNS times;
milliseconds of the call, and of the call with the fsync behind it, each from Python and by
fallocate(1); and of rewriting the tail instead on the second.  No page behind the place is
cached.  SHIM goes into LD_PRELOAD of fallocate(1) and was put into that of this process.
"""

import ctypes
import errno
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import vjbench  # noqa: E402

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


def rewrite(path, offset, length):
    """As a program inserts that has no other way; then the length is what it was."""
    fd = os.open(path, os.O_RDWR)
    begin = time.perf_counter()
    size = os.fstat(fd).st_size
    at = size
    while at > offset:
        step = min(8 << 20, at - offset)
        at -= step
        os.pwrite(fd, os.pread(fd, step, at), at + length)
    os.pwrite(fd, os.urandom(length), offset)
    os.fsync(fd)
    taken = time.perf_counter() - begin
    os.ftruncate(fd, size)
    os.close(fd)
    return taken * 1e3


def measure(files, runs, places):
    """{(how, kind, what, name): [(called, synced)]}, {name: [rewriting the tail]}"""
    results, rewritten = {}, {}
    for _ in range(runs):
        for how, call in (("python", by_python), ("fallocate(1)", by_program)):
            for kind, offset, length in places:
                for name, path in files:
                    for what, mode in (("insert", INSERT), ("collapse", COLLAPSE)):
                        drop_pages(path)
                        try:
                            times = call(path, mode, offset, length)
                        except OSError as e:
                            if kind == "block" or e.errno != errno.EINVAL:
                                raise
                            break  # whole blocks alone: neither can be done
                        results.setdefault((how, kind, what, name), []).append(times)
        for name, path in files:
            drop_pages(path)
            rewritten.setdefault(name, []).append(rewrite(path, places[0][1], places[0][2]))
    return results, rewritten


def main():
    mib, runs = int(sys.argv[1]), int(sys.argv[2])
    files = [f.split("=", 1) for f in sys.argv[4:]]
    ours, others = files[0][0], [n for n, _ in files[1:]]
    middle = mib << 19
    places = (("block", middle, 4096), ("byte", middle + 1234, 1000))
    results, rewritten = measure(files, runs, places)
    for how, kind, what, name in [k for k in results if k[3] == ours]:
        mine = results[how, kind, what, name]
        label = f"{what} {dict((p[0], p[2]) for p in places)[kind]} bytes, {mib} MiB, {how}"
        for column, suffix in ((0, ""), (1, ", fsync")):
            values = [t[column] for t in mine]
            theirs = {n: [t[column] for t in results[how, kind, what, n]] for n in others
                      if (how, kind, what, n) in results}
            for other in theirs:
                vjbench.figure(label + suffix, "ms", values, "lower", other, theirs[other])
            if not theirs:
                vjbench.figure(label + suffix, "ms", values, "lower")
    synced = [t[1] for t in results["python", "block", "insert", ours]]
    for name in rewritten:
        vjbench.figure(f"insert 4096 bytes, {mib} MiB, fsync", "ms", synced, "lower",
                       f"rewriting the tail on {name}", rewritten[name])
    for name, _ in files:
        times = sorted(t[1] for t in results["python", "block", "insert", name])
        series = name if name == ours else f"{name} INSERT_RANGE"
        vjbench.point("insert-latency", series, mib << 20, times[len(times) // 2])
        vjbench.point("insert-latency", f"rewriting the tail, {name}", mib << 20,
                      sorted(rewritten[name])[runs // 2])


main()
