# SPDX-License-Identifier: LGPL-3.0-or-later
"""One change of FILE, as whoever runs this: namespaces.py OPERATION FILE.

In the environment LIBRARY names librwrite.so, and OTHER the file that copy takes its bytes from.
Prints the names of the operations when it is called without arguments.
"""
import ctypes
import os
import sys

KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
libc = ctypes.CDLL(None, use_errno=True)


def called(result):
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def allocate(fd, mode, offset, length):
    called(libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)))


def edit(fd, data, offset, old_len):
    library = ctypes.CDLL(os.environ["LIBRARY"], use_errno=True)
    called(library.rpwrite(fd, data, ctypes.c_size_t(len(data)), ctypes.c_long(offset),
                           ctypes.c_size_t(old_len)))


def edit_at_position(fd):
    library = ctypes.CDLL(os.environ["LIBRARY"], use_errno=True)
    os.lseek(fd, 10, os.SEEK_SET)
    called(library.rwrite(fd, b"new", ctypes.c_size_t(3), ctypes.c_size_t(1)))


def copy(fd):
    source = os.open(os.environ["OTHER"], os.O_RDONLY)
    assert os.copy_file_range(source, fd, 100, 50, 0) > 0


def direct(fd):
    import mmap

    page = mmap.mmap(-1, 4096)
    page.write(b"d" * 4096)
    os.close(fd)
    fd = os.open(sys.argv[2], os.O_WRONLY | os.O_DIRECT)
    os.writev(fd, [page])


OPERATIONS = {
    "write": lambda fd: os.pwrite(fd, b"new", 0),
    "append": lambda fd: os.write(os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND), b"new"),
    "direct": direct,
    "truncate": lambda fd: os.truncate(sys.argv[2], 100),
    "ftruncate": lambda fd: os.ftruncate(fd, 5000),
    "open-trunc": lambda fd: os.open(sys.argv[2], os.O_WRONLY | os.O_TRUNC),
    "rpwrite-insert": lambda fd: edit(fd, b"new", 100, 0),
    "rpwrite-replace": lambda fd: edit(fd, b"new", 100, 3),
    "rpwrite-delete": lambda fd: edit(fd, b"", 100, 200),
    "rpwrite-large": lambda fd: edit(fd, b"n" * 100000, 100, 0),
    "rwrite": edit_at_position,
    "fallocate": lambda fd: allocate(fd, 0, 0, 9000),
    "fallocate-keep": lambda fd: allocate(fd, KEEP_SIZE, 0, 9000),
    "punch": lambda fd: allocate(fd, PUNCH_HOLE | KEEP_SIZE, 0, 100),
    "zero": lambda fd: allocate(fd, ZERO_RANGE, 0, 100),
    "copy": copy,
}

if len(sys.argv) == 1:
    print("\n".join(OPERATIONS))
else:
    OPERATIONS[sys.argv[1]](os.open(sys.argv[2], os.O_RDWR))
