#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Calls that no program makes: hostile-calls.py DIRECTORY COUNT SEED

COUNT random calls by whoever runs it, on things of its own in DIRECTORY: ioctls of any number,
size and content on files, directories and a fifo; attributes of any name and value; names of
any bytes; offsets and modes of any kind.  Each may fail, but not by EIO.  Prints how often each
kind succeeded."""

import ctypes
import errno
import fcntl
import os
import random
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
MAGIC, IOC_MAX = 0x96, 16383
# What a right argument has: edit, stage, text, recode, tend, shift.
SIZES = (48, 32, 24 + 8192, 56, 192, 56)


class Calls:
    def __init__(self, top, seed):
        self.top = os.fsencode(top)
        self.r = random.Random(seed)
        self.done = {}
        path = os.path.join(self.top, b"file")
        with open(path, "wb") as f:
            f.write(os.urandom(1) * 50000)
        os.mkdir(os.path.join(self.top, b"dir"))
        os.mkfifo(os.path.join(self.top, b"fifo"))
        os.symlink(b"file", os.path.join(self.top, b"link"))
        self.paths = [os.path.join(self.top, n) for n in (b"file", b"dir", b"fifo", b"link")]
        self.fds = [os.open(path, os.O_RDWR), os.open(path, os.O_RDONLY),
                    os.open(path, os.O_WRONLY | os.O_APPEND),
                    os.open(self.top, os.O_RDONLY | os.O_DIRECTORY),
                    os.open(self.paths[2], os.O_RDWR | os.O_NONBLOCK),
                    os.open(self.paths[3], os.O_PATH | os.O_NOFOLLOW)]
        self.made = []

    def number(self):
        r = self.r
        return r.choice((0, 1, r.randrange(60000), r.randrange(1 << 32), (1 << 63) - 1 - r.randrange(5000),
                         (1 << 64) - 1 - r.randrange(3), 1 << r.randrange(64), r.getrandbits(64)))

    def offset(self):
        return ctypes.c_int64(self.number()).value

    def name(self):
        r = self.r
        length = r.choice((1, 3, 20, 254, 255, 256, 300))
        raw = bytes(r.randrange(1, 256) for _ in range(length))
        raw = r.choice((raw, b"user.varjfs.x"[:length], b"\xff" * length, b"\n" * length, b"%s%n" * 9))
        return raw.replace(b"/", b"_").replace(b"\0", b"_") or b"_"

    def new_path(self):
        return os.path.join(self.top, b"dir", self.name())

    def ioctl(self):
        r = self.r
        kind = MAGIC if r.random() < 0.9 else r.choice((0x95, 0x97, 0xff, 0x9f))
        size = r.choice((r.choice(SIZES), r.choice(SIZES) + r.randrange(200), r.randrange(IOC_MAX + 1)))
        nr = r.randrange(12) if r.random() < 0.95 else r.randrange(256)
        if nr == 3 and r.random() < 0.9:
            nr = 5  # a sync takes its time
        command = r.choice((3, 3, 3, 1, 2, 0)) << 30 | min(size, IOC_MAX) << 16 | kind << 8 | nr
        # However long the kernel takes it to be, it is all ours.
        argument = bytearray(r.choice((bytes(IOC_MAX + 1), r.randbytes(256) * 64)))
        struct.pack_into("<IIQQQQ", argument, 0, r.choice((1, 1, 1, 1, r.getrandbits(32))),
                         r.choice((0, 1, 2, 4, 12, r.getrandbits(32))), self.number(), self.number(),
                         self.number() if r.random() < 0.5 else max(size - 48, 0), self.number())
        fcntl.ioctl(r.choice(self.fds), command, argument, True)

    def xattr(self):
        r = self.r
        name = r.choice((b"user.", b"user.varjfs.", b"system.", b"trusted.", b"security.", b"")) + \
            r.choice((self.name(), b"transform", b"objects", b"mode", b"status", b"posix_acl_access",
                      b"posix_acl_default", b"capability", b""))
        name = name.replace(b"\0", b"_")
        target = r.choice(self.paths + self.fds[:4])
        value = r.choice((b"", b"zstd:3", b"xor:zz", b"4K", b"1:2:3", struct.pack("<I", 2) + r.randbytes(8 * r.randrange(40)),
                          r.randbytes(r.choice((10, 64, 65, 5000, 65536)))))
        follow = {} if isinstance(target, int) else {"follow_symlinks": False}
        what = r.randrange(4)
        if what < 2:
            os.setxattr(target, name, value, r.randrange(4), **follow)
        elif what == 2:
            os.getxattr(target, name, **follow)
            os.listxattr(target, **follow)
        else:
            os.removexattr(target, name, **follow)

    def names(self):
        r = self.r
        what = r.randrange(7)
        path = self.new_path()
        if what == 0:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | r.choice((0, os.O_EXCL, os.O_TRUNC)), 0o7777))
        elif what == 1:
            os.mkdir(path, 0o7777)
        elif what == 2:
            os.symlink(self.name() * r.choice((1, 1, 13, 20)), path)
        elif what == 3:
            os.mkfifo(path)
        elif what == 4:
            os.link(self.paths[0], path)
        elif what == 5 and self.made:
            os.rename(r.choice(self.made), path)
        elif self.made:
            gone = self.made.pop(r.randrange(len(self.made)))
            (os.rmdir if os.path.isdir(gone) and not os.path.islink(gone) else os.unlink)(gone)
            return
        if len(self.made) > 200:
            self.made.pop(0)
        self.made.append(path)

    def space(self):
        fd = self.r.choice(self.fds)
        what = self.r.randrange(6)
        if what == 0:
            if libc.fallocate(fd, self.r.choice((0, 1, 2, 3, 8, 16, 32, self.r.randrange(256))),
                              ctypes.c_int64(self.offset()), ctypes.c_int64(self.offset())) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
        elif what == 1:
            os.lseek(fd, self.offset(), self.r.choice((os.SEEK_SET, os.SEEK_END, os.SEEK_DATA, os.SEEK_HOLE)))
        elif what == 2:
            os.pwrite(fd, b"x" * self.r.randrange(9000), self.offset())
        elif what == 3:
            os.truncate(fd, self.offset())
        elif what == 4:
            os.copy_file_range(fd, self.r.choice(self.fds), self.r.randrange(1 << 20), self.offset(), self.offset())
        else:
            os.pread(fd, self.r.randrange(100000), self.offset())

    def run(self, count):
        kinds = (self.ioctl, self.ioctl, self.ioctl, self.xattr, self.names, self.space)
        for n in range(count):
            kind = self.r.choice(kinds)
            try:
                kind()
                self.done[kind.__name__] = self.done.get(kind.__name__, 0) + 1
            except OSError as e:
                if e.errno in (errno.EIO, errno.ENOTCONN, errno.ECONNABORTED):
                    print(f"call {n}, {kind.__name__}: {e}")
                    return 1
            except (OverflowError, ValueError):
                pass  # Python itself refuses: the number fits no off_t
        return 0


# A file that grew by a hole of any length is no reason to write so much.
os.umask(0o077)
calls = Calls(sys.argv[1], int(sys.argv[3]))
status = calls.run(int(sys.argv[2]))
print(", ".join(f"{count} of {kind}" for kind, count in sorted(calls.done.items())), "succeeded")
sys.exit(status)
