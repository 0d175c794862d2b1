#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""fallocate(2) by bytes, in a process with LD_PRELOAD=librwrite.so

fallocate.py MOUNTPOINT OTHER-DIRECTORY [PART-OF-A-NAME]
"""

import errno
import mmap
import os
import random
import resource
import signal
import socket
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from vjtap import *  # noqa: E402,F403

KEEP_SIZE, PUNCH, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32
OTHER = sys.argv[2]
# What user.varjfs.status and SEEK_HOLE look at is far larger than what is kept inline.
LARGE = 300000
BLOCK = 4096


def fallocate64(fd, mode, offset, length):
    if libc.fallocate64(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def opened(path, data, flags=os.O_RDWR):
    write_file(path, data)
    return os.open(path, flags)


@test
def any_bytes(d):
    data = pattern(100)
    for call in (fallocate, fallocate64):
        for mode, offset, length, expected in (
                (INSERT, 10, 5, data[:10] + bytes(5) + data[10:]),
                (INSERT, 0, 1, bytes(1) + data),
                (INSERT, 99, 4097, data[:99] + bytes(4097) + data[99:]),
                (COLLAPSE, 10, 5, data[:10] + data[15:]),
                (COLLAPSE, 0, 99, data[99:]),
                (COLLAPSE, 98, 1, data[:98] + data[99:])):
            fd = opened(d + "/f", data)
            os.lseek(fd, 33, os.SEEK_SET)
            ctypes.set_errno(4711)
            call(fd, mode, offset, length)
            eq(ctypes.get_errno(), 4711, "errno")
            eq(os.lseek(fd, 0, os.SEEK_CUR), 33, "the descriptor's offset")
            eq(os.fstat(fd).st_size, len(expected), (mode, offset, length))
            eq(os.pread(fd, 10000, 0), expected, (mode, offset, length))
            os.close(fd)
            eq(read_file(d + "/f"), expected)


@test
def what_the_manual_refuses(d):
    data = pattern(1000)
    fd = opened(d + "/f", data)
    largest = (1 << 63) - 1
    for mode in (INSERT, COLLAPSE):
        raises(errno.EINVAL, fallocate, fd, mode, -1, 10)
        raises(errno.EINVAL, fallocate, fd, mode, 10, 0)
        raises(errno.EINVAL, fallocate, fd, mode, 10, -1)
        raises(errno.EINVAL, fallocate, fd, mode, 1000, 10)
        raises(errno.EINVAL, fallocate, fd, mode, 1001, 10)
        raises(errno.EFBIG, fallocate, fd, mode, largest, largest)
        for also in (KEEP_SIZE, PUNCH | KEEP_SIZE, ZERO, INSERT | COLLAPSE):
            if also & ~mode:
                raises(errno.EINVAL, fallocate, fd, mode | also, 10, 10)
        raises(errno.EBADF, fallocate, 999, mode, 10, 10)
        for flags in (os.O_RDONLY, os.O_PATH):
            other = os.open(d + "/f", flags)
            raises(errno.EBADF, fallocate, other, mode, 10, 10)
            os.close(other)
        ends = os.pipe()
        raises(errno.ESPIPE, fallocate, ends[1], mode, 10, 10)
        os.close(ends[0])
        os.close(ends[1])
        with socket.socket(socket.AF_UNIX) as s:
            raises(errno.ENODEV, fallocate, s.fileno(), mode, 10, 10)
    raises(errno.EINVAL, fallocate, fd, COLLAPSE, 0, 1000)
    raises(errno.EINVAL, fallocate, fd, COLLAPSE, 990, 10)
    raises(errno.EINVAL, fallocate, fd, COLLAPSE, 990, 1 << 40)
    raises(errno.EFBIG, fallocate, fd, INSERT, 10, largest - 20)
    before = os.fstat(fd)
    eq((before.st_size, os.pread(fd, 2000, 0)), (1000, data))
    os.close(fd)


@test
def a_refused_call_changes_no_time(d):
    fd = opened(d + "/f", pattern(1000))
    os.utime(d + "/f", ns=(10**18, 10**18))
    raises(errno.EINVAL, fallocate, fd, INSERT, 1000, 1)
    eq(os.fstat(fd).st_mtime_ns, 10**18)
    fallocate(fd, INSERT, 999, 1)
    assert os.fstat(fd).st_mtime_ns > 10**18
    os.close(fd)


@test
def an_inserted_range_is_a_hole(d):
    data = pattern(2 * LARGE)
    first = LARGE + -LARGE % BLOCK  # whole blocks alone are seen as holes
    fd = opened(d + "/f", data)
    os.fsync(fd)
    blocks = os.fstat(fd).st_blocks
    fallocate(fd, INSERT, LARGE, 8 << 30)
    eq(os.fstat(fd).st_size, 2 * LARGE + (8 << 30))
    eq(os.lseek(fd, 0, os.SEEK_HOLE), first)
    eq(os.lseek(fd, first, os.SEEK_DATA), first - BLOCK + (8 << 30))
    eq(os.pread(fd, 100, LARGE - 50), data[LARGE - 50:LARGE] + bytes(50))
    eq(os.pread(fd, LARGE + 100, LARGE + (8 << 30)), data[LARGE:])
    os.fsync(fd)
    assert os.fstat(fd).st_blocks <= blocks + 2048, "a hole takes no space"
    eq(os.lseek(fd, 0, os.SEEK_HOLE), first)
    fallocate(fd, COLLAPSE, LARGE, 8 << 30)
    eq(os.fstat(fd).st_size, 2 * LARGE)
    eq(os.pread(fd, 3 * LARGE, 0), data)
    os.close(fd)


@test
def holes_of_any_length_cost_the_same(d):
    fd = opened(d + "/f", b"ab")
    for _ in range(20):
        fallocate(fd, INSERT, 1, 1 << 55)
    eq(os.fstat(fd).st_size, 20 * (1 << 55) + 2)
    eq(os.pread(fd, 1, 20 * (1 << 55) + 1), b"b")
    fallocate(fd, COLLAPSE, 1, 20 * (1 << 55))
    eq(os.pread(fd, 10, 0), b"ab")
    os.close(fd)


@test
def every_kind_of_descriptor(d):
    data = pattern(5000)
    for flags in (os.O_WRONLY, os.O_RDWR | os.O_APPEND, os.O_RDWR | os.O_DIRECT, os.O_RDWR | os.O_SYNC):
        fd = opened(d + "/f", data, flags)
        fallocate(fd, INSERT, 7, 3)
        fallocate(fd, COLLAPSE, 4000, 501)
        os.close(fd)
        expected = data[:7] + bytes(3) + data[7:]
        eq(read_file(d + "/f"), expected[:4000] + expected[4501:], flags)


@test
def mappings_see_it(d):
    data = pattern(20000)
    fd = opened(d + "/f", data)
    with mmap.mmap(fd, 20000) as m:
        eq(m[:], data)
        m[0:4] = b"mine"
        fallocate(fd, INSERT, 5000, 9001)
        expected = b"mine" + data[4:5000] + bytes(9001) + data[5000:]
        eq(m[:], expected[:20000])
        with mmap.mmap(fd, 29001) as longer:
            eq(longer[:], expected)
        fallocate(fd, COLLAPSE, 100, 9001)
        eq(m[:], expected[:100] + expected[9101:])
    os.close(fd)


@test
def the_limit_of_the_process(d):
    """EFBIG and SIGXFSZ, as when a write passes RLIMIT_FSIZE."""
    fd = opened(d + "/f", pattern(1000))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signals = []
            signal.signal(signal.SIGXFSZ, lambda number, frame: signals.append(number))
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
            fallocate(fd, INSERT, 10, 1000)
            eq(signals, [])
            raises(errno.EFBIG, fallocate, fd, INSERT, 10, 1)
            eq(signals, [signal.SIGXFSZ])
            raises(errno.EINVAL, fallocate, fd, INSERT, 5000, 10)
            fallocate(fd, COLLAPSE, 10, 1)
            status = 0
        finally:
            os._exit(status)
    eq(os.waitpid(child, 0)[1], 0)
    eq(os.fstat(fd).st_size, 1999)
    os.close(fd)


@test
def set_id_bits_go(d):
    if os.geteuid() != 0:
        raise Skip("needs root to become somebody else")
    fd = opened(d + "/f", pattern(1000))
    os.fchown(fd, 1000, 1000)
    os.fchmod(fd, 0o6755)
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(1000, 1000, 1000)
        os.setresuid(1000, 1000, 1000)
        try:
            fallocate(fd, INSERT, 10, 5)
            os._exit(0)
        finally:
            os._exit(1)
    eq(os.waitpid(child, 0)[1], 0)
    eq(os.fstat(fd).st_mode & 0o7777, 0o755)
    os.close(fd)


@test
def other_calls_are_untouched(d):
    fd = opened(d + "/f", pattern(10000))
    fallocate(fd, PUNCH | KEEP_SIZE, 100, 50)
    eq(os.pread(fd, 60, 95), pattern(10000)[95:100] + bytes(50) + pattern(10000)[150:155])
    fallocate(fd, 0, 0, 20000)
    eq(os.fstat(fd).st_size, 20000)
    os.posix_fallocate(fd, 0, 30000)
    eq(os.fstat(fd).st_size, 30000)
    raises(errno.EOPNOTSUPP, fallocate, fd, 64, 0, 10)
    os.close(fd)


@test
def other_file_systems_are_untouched(d):
    path = OTHER + "/other-file"
    fd = opened(path, pattern(10000))
    for mode in (INSERT, COLLAPSE):
        for length in (3, 4096):
            numbers = []
            for call in (lambda *a: fallocate(*a), direct_fallocate):
                try:
                    call(fd, mode, 0, length)
                    numbers.append(0)
                except OSError as e:
                    numbers.append(e.errno)
            eq(numbers[0], numbers[1], "what the kernel says")
    os.close(fd)
    os.unlink(path)


def direct_fallocate(fd, mode, offset, length):
    if os.uname().machine != "x86_64":
        raise Skip("knows the number of the system call on x86-64 alone")
    if libc.syscall(ctypes.c_long(285), ctypes.c_long(fd), ctypes.c_long(mode), ctypes.c_long(offset),
                    ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


@test
def threads_and_processes_at_once(d):
    fd = opened(d + "/f", b"<" + b">" * 1000)

    def work(seed):
        rng = random.Random(seed)
        for _ in range(100):
            n = rng.randrange(1, 5000)
            fallocate(fd, INSERT, 1, n)
            fallocate(fd, COLLAPSE, 1, n - 1)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    child = os.fork()
    if child == 0:
        try:
            work(99)
            os._exit(0)
        finally:
            os._exit(1)
    for t in threads:
        t.join()
    eq(os.waitpid(child, 0)[1], 0)
    eq(os.fstat(fd).st_size, 1001 + 500)
    got = os.pread(fd, 5000, 0)
    eq((got[:1], got[501:]), (b"<", b">" * 1000), "ends")
    eq(got[1:501], bytes(500))
    os.close(fd)


sys.exit(main(sys.argv[1], sys.argv[3] if len(sys.argv) > 3 else None))
