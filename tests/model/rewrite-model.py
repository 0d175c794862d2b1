#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Programs that insert and delete by rewriting the tail of a file, at random

rewrite-model.py DIRECTORY MIRROR SEED PROGRAMS [THREADS]

Runs in a process with LD_PRELOAD=librwrite.so and RWRITE_DETECT=1.  Each call of a program is
made on a file in DIRECTORY (varjfs) and on one in MIRROR, any other file system, where the
library does nothing: the result of the call, the descriptor's offset, the size and the whole
content must be the same after every call.  Others write, truncate, map and append in between.
"""

import hashlib
import mmap
import os
import random
import sys
import threading

KIB = 1024
SIZE_MAX = 600 * KIB


class Pair:
    """A file on each side, in the same state."""

    def __init__(self, directories, name):
        self.paths = [os.path.join(d, name) for d in directories]
        self.fds = self.opened(os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.others = self.opened(os.O_RDWR)
        self.seen = self.opened(os.O_RDONLY)
        self.calls = []

    def opened(self, flags):
        return [os.open(path, flags, 0o600) for path in self.paths]

    def close(self):
        for fd in self.fds + self.others + self.seen:
            os.close(fd)

    def both(self, what, call):
        """@call(side) on each side; compares all that a program could see of it."""
        results = []
        for side in (0, 1):
            try:
                results.append(call(side))
            except OSError as e:
                results.append(("errno", e.errno))
        self.calls.append(what)
        short = [r if not isinstance(r, bytes) else (len(r), hashlib.sha1(r).hexdigest())
                 for r in results]
        assert short[0] == short[1], f"results differ: {short}"
        where = [os.lseek(fd, 0, os.SEEK_CUR) for fd in self.fds]
        assert where[0] == where[1], f"descriptor's offset: {where}"
        sizes = [os.fstat(fd).st_size for fd in self.seen]
        assert sizes[0] == sizes[1], f"sizes: {sizes}"
        content = [os.pread(fd, sizes[0] + 1, 0) for fd in self.seen]
        if content[0] != content[1]:
            at = next(i for i in range(sizes[0]) if content[0][i] != content[1][i])
            raise AssertionError(f"the content differs from byte {at} on, of {sizes[0]}")
        return results[0]

    # What programs call.
    def read(self, n):
        return self.both(("read", n), lambda i: os.read(self.fds[i], n))

    def write(self, data):
        return self.both(("write", len(data)), lambda i: os.write(self.fds[i], data))

    def pread(self, n, at):
        return self.both(("pread", n, at), lambda i: os.pread(self.fds[i], n, at))

    def pwrite(self, data, at):
        return self.both(("pwrite", len(data), at), lambda i: os.pwrite(self.fds[i], data, at))

    def seek(self, at):
        return self.both(("seek", at), lambda i: os.lseek(self.fds[i], at, os.SEEK_SET))

    def truncate(self, size):
        return self.both(("truncate", size), lambda i: os.ftruncate(self.fds[i], size))

    def size(self):
        return os.fstat(self.fds[0]).st_size


def some_data(rng, n):
    kind = rng.randrange(6)
    if kind == 0:
        return bytes(n)
    if kind == 1:
        period = rng.randbytes(rng.choice((1, 7, 1000, 4096)))
        return (period * (n // len(period) + 1))[:n]
    if kind == 2:
        half = rng.randbytes(n // 2)
        return half + half + bytes(n - 2 * len(half))
    return rng.randbytes(n)


def edit_length(rng):
    return rng.choice((1, 3, 10, 100, 4095, 4096, 4097, rng.randrange(1, 20 * KIB), rng.randrange(1, 120 * KIB)))


def read_all(p, rng, most=1 << 30):
    out = b""
    step = rng.choice((8 * KIB, 64 * KIB, 1 << 30))
    while len(out) < most:
        part = p.read(min(step, most - len(out)))
        if not part:
            break
        out += part
    return out


def write_all(p, rng, data, disturb):
    step = rng.choice((len(data), len(data), 65536, 100000, 8192 if len(data) < 80000 else 70001))
    at = 0
    while at < len(data):
        disturb(p, rng)
        n = p.write(data[at:at + max(step, 1)])
        if isinstance(n, tuple) or n == 0:
            return
        at += n


def insert(p, rng, disturb):
    offset = rng.randrange(p.size() + 1)
    p.seek(offset)
    tail = read_all(p, rng)
    new = some_data(rng, edit_length(rng))
    p.seek(offset)
    if rng.random() < 0.2:
        write_all(p, rng, new + tail, disturb)
    else:
        p.write(new)
        write_all(p, rng, tail, disturb)


def delete(p, rng, disturb):
    size = p.size()
    offset = rng.randrange(size + 1)
    length = min(edit_length(rng), size - offset)
    p.seek(offset + length)
    tail = read_all(p, rng)
    p.seek(offset)
    write_all(p, rng, tail, disturb)
    p.truncate(p.both(("tell",), lambda i: os.lseek(p.fds[i], 0, os.SEEK_CUR)))


def replace(p, rng, disturb):
    size = p.size()
    offset = rng.randrange(size + 1)
    length = min(edit_length(rng), size - offset)
    p.seek(offset + length)
    tail = read_all(p, rng)
    p.seek(offset)
    p.write(some_data(rng, edit_length(rng)))
    write_all(p, rng, tail, disturb)
    if rng.random() < 0.7:
        p.truncate(p.both(("tell",), lambda i: os.lseek(p.fds[i], 0, os.SEEK_CUR)))


def rewrite(p, rng, disturb):
    """Reads all, changes some places in memory, writes all."""
    p.seek(0)
    data = bytearray(read_all(p, rng))
    for _ in range(rng.randrange(1, 4)):
        offset = rng.randrange(len(data) + 1)
        data[offset:offset + rng.choice((0, 0, 5, 3000))] = some_data(rng, rng.choice((0, 1, 9, 2500, 20000)))
    p.seek(0)
    write_all(p, rng, bytes(data), disturb)
    p.truncate(len(data))


def move_backward(p, rng, disturb):
    """Blocks from the end, as memmove does; then the new bytes."""
    size = p.size()
    offset = rng.randrange(size + 1)
    n = edit_length(rng)
    block = rng.choice((64 * KIB, 70000, 100 * KIB))
    at = size
    while at > offset:
        step = min(block, at - offset)
        at -= step
        data = p.pread(step, at)
        disturb(p, rng)
        if not isinstance(data, bytes) or not data:
            return
        p.pwrite(data, at + n)
    p.pwrite(some_data(rng, n), offset)


def move_forward(p, rng, disturb):
    """Blocks from the front, to lower offsets; then the cut."""
    size = p.size()
    offset = rng.randrange(size + 1)
    n = min(edit_length(rng), size - offset)
    block = rng.choice((64 * KIB, 70000, 100 * KIB))
    at = offset + n
    while at < size:
        data = p.pread(min(block, size - at), at)
        disturb(p, rng)
        if not data:
            break
        p.pwrite(data, at - n)
        at += len(data)
    p.truncate(size - n)


def stream(p, rng, disturb):
    """Reads a block ahead and writes what it carries."""
    size = p.size()
    place = ahead = rng.randrange(size + 1)
    carry = some_data(rng, edit_length(rng))
    block = max(rng.choice((64 * KIB, 90000)), len(carry))
    while carry:
        following = p.pread(min(block, size - ahead), ahead)
        ahead += len(following)
        disturb(p, rng)
        p.pwrite(carry, place)
        place += len(carry)
        carry = following


KINDS = (insert, insert, delete, delete, replace, rewrite, move_backward, move_forward, stream)


def nobody(p, rng):
    pass


def somebody(p, rng):
    """Sometimes another descriptor changes the file, or uses ours."""
    if rng.random() < 0.8:
        return
    size = p.size()
    at = rng.randrange(size + 1)
    data = some_data(rng, rng.choice((1, 100, 5000)))
    kind = rng.randrange(7)
    if kind == 0:
        p.both(("other pwrite", len(data), at), lambda i: os.pwrite(p.others[i], data, at))
    elif kind == 1:
        p.both(("other truncate", at), lambda i: os.ftruncate(p.others[i], max(at, size // 2)))
    elif kind == 2 and at + len(data) <= size:
        def store(i):
            with mmap.mmap(p.others[i], size) as m:
                m[at:at + len(data)] = data
        p.both(("store", len(data), at), store)
    elif kind == 3:
        p.both(("fsync",), lambda i: os.fsync(p.others[i]))
    elif kind == 4:
        p.both(("other append",), lambda i: os.pwrite(p.others[i], data, size))
    elif kind == 5:
        # The same bytes once more: a change that no comparison sees.
        same = os.pread(p.others[0], 3000, at)
        p.both(("same bytes", len(same), at), lambda i: os.pwrite(p.others[i], same, at))
    else:
        def by_duplicate(i):
            fd = os.dup(p.fds[i])
            try:
                return os.lseek(fd, -min(10, os.lseek(fd, 0, os.SEEK_CUR)), os.SEEK_CUR)
            finally:
                os.close(fd)
        p.both(("seek by a duplicate",), by_duplicate)


def run(directories, name, seed, programs, failures):
    rng = random.Random(seed)
    pair = Pair(directories, name)
    try:
        for number in range(programs):
            size = pair.size()
            if size < 80 * KIB or size > SIZE_MAX:
                fresh = some_data(rng, rng.randrange(80 * KIB, 350 * KIB))
                pair.truncate(0)
                pair.pwrite(fresh, 0)
            pair.calls = []
            kind = rng.choice(KINDS)
            kind(pair, rng, somebody if rng.random() < 0.4 else nobody)
    except BaseException as e:
        failures.append(f"seed {seed}, program {number} ({kind.__name__}): {e}; calls: {pair.calls[-12:]}")
    finally:
        pair.close()


def main():
    directories, seed, programs = sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])
    threads = int(sys.argv[5]) if len(sys.argv) > 5 else 1
    failures = []
    running = [threading.Thread(target=run, args=(directories, f"file-{seed}-{i}", seed * 100 + i,
                                                  programs // threads, failures)) for i in range(threads)]
    for t in running:
        t.start()
    for t in running:
        t.join()
    for failure in failures:
        print(failure)
    print(f"{programs} programs, {threads} threads")
    sys.exit(1 if failures else 0)


main()
