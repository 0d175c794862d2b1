#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""INSERT_RANGE and COLLAPSE_RANGE at random, in a process with LD_PRELOAD=librwrite.so

fallocate-model.py DIRECTORY SEED CALLS [EXT4-DIRECTORY]

On a file in DIRECTORY (varjfs) and on a byte array: any offsets and lengths.  With
EXT4-DIRECTORY the same calls go to a file there too, and then all of them are multiples of
its block size; result, errno, size and content must agree.
"""

import errno
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from vjtap import fallocate  # noqa: E402

COLLAPSE, INSERT = 8, 32
BLOCK = 4096
SIZE_MAX = 64 * BLOCK


class Files:
    def __init__(self, directories):
        self.fds = [os.open(d + "/model", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                    for d in directories]
        self.model = bytearray()

    def each(self, call, *args):
        """The errno of the call, 0 for none, which must be the same everywhere."""
        results = []
        for fd in self.fds:
            try:
                call(fd, *args)
                results.append(0)
            except OSError as e:
                results.append(e.errno)
        if len(set(results)) != 1:
            raise SystemExit(f"{call.__name__}{args}: errno {results}")
        return results[0]

    def compare(self, what, content):
        for fd in self.fds:
            size = os.fstat(fd).st_size
            if size != len(self.model):
                raise SystemExit(f"{what}: size {size}, expected {len(self.model)}")
            if content and os.pread(fd, size + 1, 0) != self.model:
                raise SystemExit(f"{what}: the content differs")


def pwrite(fd, data, offset):
    os.pwrite(fd, data, offset)


def one_call(files, rng, unit):
    model = files.model
    kind = rng.random()
    if kind < 0.35:
        offset = rng.randrange(0, len(model) // unit + 2) * unit
        length = rng.randrange(1, 6 * BLOCK // unit) * unit
        expected = errno.EINVAL if offset >= len(model) else 0
        what = ("insert", offset, length)
        got = files.each(fallocate, INSERT, offset, length)
        if expected == 0:
            model[offset:offset] = bytes(length)
    elif kind < 0.75:
        offset = rng.randrange(0, len(model) // unit + 2) * unit
        length = rng.randrange(1, 8 * BLOCK // unit) * unit
        expected = errno.EINVAL if offset + length >= len(model) else 0
        what = ("collapse", offset, length)
        got = files.each(fallocate, COLLAPSE, offset, length)
        if expected == 0:
            del model[offset:offset + length]
    else:
        offset = rng.randrange(0, len(model) + 1)
        data = rng.randbytes(rng.choice((1, 100, BLOCK, 5 * BLOCK)))
        expected, what = 0, ("pwrite", offset, len(data))
        got = files.each(pwrite, data, offset)
        model[offset:offset + len(data)] = data
    if got != expected:
        raise SystemExit(f"{what}: errno {got}, expected {expected}")
    if len(model) > SIZE_MAX:
        files.each(os.ftruncate, BLOCK + 1)
        del model[BLOCK + 1:]
    return what


def main():
    directory, seed, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    files = Files([directory] + sys.argv[4:])
    for number in range(calls):
        what = one_call(files, rng, 1 if len(files.fds) == 1 else BLOCK)
        files.compare(f"call {number}, {what}", number % 4 == 0)
    files.compare("at the end", True)
    print(f"{calls} calls")


main()
