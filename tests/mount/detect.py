#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Rewritten tails, in a process with LD_PRELOAD=librwrite.so and RWRITE_DETECT=1

detect.py MOUNTPOINT OTHER-DIRECTORY [PART-OF-A-NAME]
"""

import errno
import mmap
import os
import random
import resource
import signal
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from vjtap import *  # noqa: E402,F403

OTHER = sys.argv[2]
MIB = 1 << 20
STATS = 3


def counters(d):
    fd = os.open(d, os.O_RDONLY)
    lines = text(fd, STATS).splitlines()
    os.close(fd)
    return {name: int(value) for name, value in (line.split("=") for line in lines)}


def moved(d, before):
    after = counters(d)
    return after["shifts"] - before["shifts"], after["bytes_in"] - before["bytes_in"]


@test
def an_insert_moves_no_tail(d):
    data = pattern(4 * MIB)
    write_file(d + "/f", data)
    before = counters(d)
    with open(d + "/f", "r+b") as f:
        f.seek(12345)
        tail = f.read()
        f.seek(12345)
        f.write(b"inserted")
        f.write(tail)
    eq(read_file(d + "/f"), data[:12345] + b"inserted" + data[12345:])
    shifts, came = moved(d, before)
    eq(shifts, 1)
    assert came < 1000, came


@test
def a_delete_moves_no_tail(d):
    data = pattern(4 * MIB)
    write_file(d + "/f", data)
    before = counters(d)
    with open(d + "/f", "r+b") as f:
        f.seek(20000)
        tail = f.read()
        f.seek(12345)
        f.write(tail)
        f.truncate()
    eq(read_file(d + "/f"), data[:12345] + data[20000:])
    shifts, came = moved(d, before)
    eq(shifts, 1)
    assert came < 10000, came


@test
def a_replacement_and_a_whole_rewrite(d):
    data = pattern(2 * MIB)
    write_file(d + "/f", data)
    expected = data[:5000] + b"new" * 3000 + data[5100:MIB] + b"more" + data[MIB:]
    before = counters(d)
    with open(d + "/f", "r+b", buffering=0) as f:
        eq(len(f.read()), len(data))
        f.seek(0)
        eq(f.write(expected), len(expected))
        eq(f.tell(), len(expected))
    eq(read_file(d + "/f"), expected)
    shifts, came = moved(d, before)
    eq(shifts, 2)
    assert came < 50000, came


@test
def blocks_from_the_end(d):
    data = pattern(3 * MIB)
    fd = os.open(d + "/f", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, data, 0)
    before = counters(d)
    at = len(data)
    while at > 1000:
        step = min(256 * 1024, at - 1000)
        at -= step
        eq(os.pwrite(fd, os.pread(fd, step, at), at + 77), step)
    os.pwrite(fd, b"n" * 77, 1000)
    os.close(fd)
    eq(read_file(d + "/f"), data[:1000] + b"n" * 77 + data[1000:])
    shifts, came = moved(d, before)
    assert shifts >= 11 and came < 5000, (shifts, came)


@test
def other_descriptors_are_left_alone(d):
    data = pattern(MIB)
    before = counters(d)
    writes = 0
    for flags in (os.O_RDWR | os.O_APPEND, os.O_RDWR | os.O_SYNC, os.O_RDWR | os.O_DSYNC, os.O_WRONLY):
        write_file(d + "/f", data)
        fd = os.open(d + "/f", flags)
        if flags != os.O_WRONLY:
            eq(os.read(fd, 2 * MIB), data)
        os.lseek(fd, 5, os.SEEK_SET)
        eq(os.write(fd, data), MIB)
        writes += 1
        os.close(fd)
        expected = data + data if flags & os.O_APPEND else data[:5] + data
        eq(read_file(d + "/f"), expected, flags)
    eq(moved(d, before)[0], 0)


@test
def others_see_it_at_once(d):
    data = pattern(MIB)
    write_file(d + "/f", data)
    fd = os.open(d + "/f", os.O_RDWR)
    other = os.open(d + "/f", os.O_RDONLY)
    with mmap.mmap(other, MIB, prot=mmap.PROT_READ) as m:
        eq(m[:], data)
        eq(os.pread(fd, MIB, 100), data[100:])
        old_times = os.fstat(other)
        os.utime(d + "/f", ns=(10**18, 10**18))
        before = counters(d)
        eq(os.pwrite(fd, data[100:], 107), MIB - 100)
        eq(moved(d, before)[0], 1)
        expected = data[:107] + data[100:]
        eq(os.fstat(other).st_size, MIB + 7)
        assert os.fstat(other).st_mtime_ns >= old_times.st_mtime_ns
        eq(os.pread(other, 2 * MIB, 0), expected)
        eq(m[:], expected[:MIB])
    os.close(fd)
    os.close(other)


@test
def watchers_are_told(d):
    """inotify(7) reports the write when its bytes are there."""
    data = pattern(MIB)
    write_file(d + "/f", data)
    fd = os.open(d + "/f", os.O_RDWR)
    eq(os.pread(fd, MIB, 0), data)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    assert watch >= 0 and libc.inotify_add_watch(watch, os.fsencode(d + "/f"), 2) >= 0
    before = counters(d)
    eq(os.pwrite(fd, data[100:], 107), MIB - 100)
    eq(moved(d, before)[0], 1)
    eq(struct.unpack("=iI", os.read(watch, 4096)[:8])[1], 2, "IN_MODIFY")
    os.close(watch)
    os.close(fd)


def record(number, body):
    """Of a kind whose body stands everywhere in the file, some bytes away."""
    return struct.pack("<I", number) * 1024 + body


@test
def threads_and_processes_share_a_descriptor(d):
    """Each write(2) gets a place of its own, whoever shares the description."""
    period = random.Random(3).randbytes(1000)
    body = period * 100
    size = 4096 + len(body)
    count, workers = 12, 4
    write_file(d + "/f", period * (size * count * (workers + 1) // 1000))
    fd = os.open(d + "/f", os.O_RDWR)
    while os.read(fd, MIB):
        pass
    os.lseek(fd, 0, os.SEEK_SET)
    before = counters(d)

    def work(worker):
        for i in range(count):
            eq(os.write(fd, record(worker * count + i, body)), size)

    child = os.fork()
    if child == 0:
        try:
            work(workers)
            os._exit(0)
        finally:
            os._exit(1)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    eq(os.waitpid(child, 0)[1], 0)
    total = count * (workers + 1)
    eq(os.lseek(fd, 0, os.SEEK_CUR), total * size)
    got = os.pread(fd, total * size, 0)
    os.close(fd)
    numbers = []
    for at in range(0, total * size, size):
        numbers.append(struct.unpack("<I", got[at:at + 4])[0])
        eq(got[at:at + size], record(numbers[-1], body), at)
    eq(sorted(numbers), list(range(total)))
    print("# shifts:", moved(d, before)[0])


@test
def bad_buffers(d):
    """EFAULT and short writes are those of write(2)."""
    data = pattern(MIB)
    page = mmap.PAGESIZE
    libc.mmap.restype = ctypes.c_void_p
    length = 40 * page
    base = libc.mmap(None, ctypes.c_size_t(length), 3, 0x22, -1, ctypes.c_long(0))
    eq(libc.munmap(ctypes.c_void_p(base + 30 * page), ctypes.c_size_t(10 * page)), 0)
    ctypes.memmove(base, data[100:100 + 30 * page], 30 * page)
    results = []
    for directory in (d, OTHER):
        write_file(directory + "/bad", data)
        fd = os.open(directory + "/bad", os.O_RDWR)
        eq(os.pread(fd, MIB, 0), data)
        for address in (base, base + 30 * page, 8):
            for offset in (0, 107):
                os.lseek(fd, offset, os.SEEK_SET)
                ctypes.set_errno(0)
                done = libc.write(fd, ctypes.c_void_p(address), ctypes.c_size_t(length))
                results.append((done, ctypes.get_errno(), os.lseek(fd, 0, os.SEEK_CUR),
                                os.pread(fd, 2 * MIB, 0)))
        os.close(fd)
        os.unlink(directory + "/bad")
    half = len(results) // 2
    eq([r[:3] for r in results[:half]], [r[:3] for r in results[half:]])
    eq(results[:half] == results[half:], True, "the content")
    libc.munmap(ctypes.c_void_p(base), ctypes.c_size_t(30 * page))


@test
def the_limit_of_the_process(d):
    data = pattern(MIB)
    results = []
    for directory in (d, OTHER):
        write_file(directory + "/limit", data)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signals = []
                signal.signal(signal.SIGXFSZ, lambda number, frame: signals.append(number))
                fd = os.open(directory + "/limit", os.O_RDWR)
                resource.setrlimit(resource.RLIMIT_FSIZE, (MIB + 50, MIB + 50))
                os.pread(fd, MIB, 0)
                os.lseek(fd, 100, os.SEEK_SET)
                eq(os.write(fd, data), MIB - 50)
                raises(errno.EFBIG, os.write, fd, data)
                eq(signals, [signal.SIGXFSZ])
                status = 0
            finally:
                os._exit(status)
        eq(os.waitpid(child, 0)[1], 0)
        results.append(read_file(directory + "/limit"))
        os.unlink(directory + "/limit")
    eq(results[0] == results[1], True)


@test
def a_write_may_be_interrupted_by_a_handler_that_writes(d):
    """No lock is held that a signal handler, or a thread that ends, could wait for."""
    data = pattern(MIB)
    write_file(d + "/f", data)
    write_file(d + "/log", b"")
    fd = os.open(d + "/f", os.O_RDWR)
    log = os.open(d + "/log", os.O_RDWR | os.O_APPEND)
    signal.signal(signal.SIGALRM, lambda number, frame: os.write(log, b"x"))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    expected = data
    for i in range(100):
        eq(os.pread(fd, 2 * MIB, 5000), expected[5000:])
        os.pwrite(fd, b"%03d" % i, 5000)
        os.pwrite(fd, expected[5000:], 5003)
        expected = expected[:5000] + b"%03d" % i + expected[5000:]
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.close(fd)
    os.close(log)
    eq(read_file(d + "/f") == expected, True)


sys.exit(main(sys.argv[1], sys.argv[3] if len(sys.argv) > 3 else None))
