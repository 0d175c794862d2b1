#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""What modes.sh does with files: modes.py COMMAND MOUNTPOINT MODEL-DIRECTORY ARGUMENT...

write MODE      a directory for each transformation, with MODE, and in it a file; the same in the model
edit SEED       random edits of each file, here and in the model, and fsync
change MODE TRANSFORM    sets both on each file, and writes some of it anew
verify SEED     all files read as the model has them, whole, and in ranges
range FILE COUNT         so many reads of 4 KiB from places far from each other, compared with the model's
"""

import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from vjtap import big_edit, edit  # noqa: E402

TRANSFORMS = ("none", "rle", "xor:5a", "lz4", "zstd:3")
WORDS = [bytes(random.Random(7).randrange(97, 123) for _ in range(1 + n % 11)) for n in range(900)]


def text(size, seed):
    """Words and runs of blanks, which each transformation makes shorter that can."""
    r = random.Random(seed)
    out = bytearray()
    while len(out) < size:
        out += b" ".join(r.choices(WORDS, k=200)) + b" " * r.randrange(2000) + b"\n"
    return bytes(out[:size])


def content(seed):
    r = random.Random(seed)
    return text(1500000, seed) + r.randbytes(700000) + text(300000, seed + 1)


def files(model):
    for name in sorted(os.listdir(model)):
        yield name.replace("+", "/"), os.path.join(model, name)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())


def write(mount, model, mode):
    for n, transform in enumerate(TRANSFORMS):
        d = os.path.join(mount, transform)
        os.mkdir(d)
        os.setxattr(d, "user.varjfs.mode", mode.encode())
        os.setxattr(d, "user.varjfs.transform", transform.encode())
        data = content(100 * n)
        put(os.path.join(d, "file"), data)
        got = os.getxattr(os.path.join(d, "file"), "user.varjfs.mode")
        assert got == mode.encode(), f"{transform}: its mode is {got}"
        with open(os.path.join(model, transform + "+file"), "wb") as f:
            f.write(data)


def edit_all(mount, model, seed):
    r = random.Random(int(seed))
    for name, path in files(model):
        data = read(path)
        fd = os.open(os.path.join(mount, name), os.O_RDWR)
        for _ in range(12):
            at = r.randrange(len(data))
            old = r.choice((0, r.randrange(1, 60000)))
            new = text(r.choice((0, r.randrange(1, 90000))), r.randrange(1 << 30))
            (big_edit if new else edit)(fd, at, old, new)
            data = data[:at] + new + data[at + old:]
        at = r.randrange(len(data) - 5000)
        os.pwrite(fd, b"overwritten" * 400, at)
        data = data[:at] + b"overwritten" * 400 + data[at + 4400:]
        os.fsync(fd)
        os.close(fd)
        with open(path, "wb") as f:
            f.write(data)


def change(mount, model, mode, transform):
    for name, path in files(model):
        data = bytearray(read(path))
        there = os.path.join(mount, name)
        os.setxattr(there, "user.varjfs.mode", mode.encode())
        os.setxattr(there, "user.varjfs.transform", transform.encode())
        new = text(600000, hash(mode) % 1000 + len(name))
        with open(there, "r+b") as f:
            f.seek(400000)
            f.write(new)
            f.flush()
            os.fsync(f.fileno())
        data[400000:400000 + len(new)] = new
        with open(path, "wb") as f:
            f.write(data)


def verify(mount, model, seed):
    r = random.Random(int(seed))
    count = 0
    for name, path in files(model):
        data = read(path)
        fd = os.open(os.path.join(mount, name), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for _ in range(40):
            at = r.randrange(len(data))
            size = r.choice((1, 4096, 5000, 70000, 300000))
            got = os.pread(fd, size, at)
            assert got == data[at:at + size], f"{name}: {size} bytes at {at}"
        os.close(fd)
        assert read(os.path.join(mount, name)) == data, f"{name} as a whole"
        count += 1
    assert count > 0


def read_ranges(mount, model, name, count):
    data = read(os.path.join(model, name))
    fd = os.open(os.path.join(mount, name), os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    for n in range(int(count)):
        at = (1 + n) * len(data) // (int(count) + 1) // 4096 * 4096
        assert os.pread(fd, 4096, at) == data[at:at + 4096], at
    os.close(fd)


def make(_mount, path, size, seed):
    put(path, text(int(size), int(seed)))


if __name__ == "__main__":
    {"write": write, "edit": edit_all, "change": change, "verify": verify,
     "range": read_ranges, "text": make}[sys.argv[1]](*sys.argv[2:])
