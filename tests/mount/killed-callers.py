#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""One call that waits for a store that hangs: killed-callers.py KIND FILE [OTHER]

Prints "calls" right before the call, and "came back" behind it.
"""
import ctypes
import mmap
import os
import platform
import struct
import sys
import threading

kind, path = sys.argv[1:3]
other = sys.argv[3] if len(sys.argv) > 3 else None


def begin():
    print("calls", flush=True)


def read_buffered():
    fd = os.open(path, os.O_RDONLY)
    begin()
    os.pread(fd, 4096, 0)


def read_direct():
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    room = mmap.mmap(-1, 1 << 16)
    begin()
    os.preadv(fd, [room], 0)


def crowd():
    # More than the daemon has threads.
    room = mmap.mmap(-1, 1 << 16)
    for _ in range(300):
        if os.fork() == 0:
            os.preadv(os.open(path, os.O_RDONLY | os.O_DIRECT), [room], 0)
            os._exit(0)
    begin()
    os.wait()


def read_mapped():
    fd = os.open(path, os.O_RDONLY)
    pages = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    begin()
    pages[200000]


def write_much():
    # Until dirty= is full.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    begin()
    while True:
        os.write(fd, os.urandom(1 << 20))


def write_sync():
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_SYNC)
    begin()
    os.write(fd, b"x" * 300000)


def rename_over():
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(fd, os.urandom(300000))
    os.close(fd)
    begin()
    os.rename(path, other)


def sync_one():
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(fd, os.urandom(300000))
    begin()
    os.fsync(fd)


def aio_of_a_thread_that_ends():
    # io_submit(2) in one thread, io_getevents(2) in another.
    setup, submit, getevents = (206, 209, 208) if platform.machine() == "x86_64" else (0, 2, 4)
    libc = ctypes.CDLL(None, use_errno=True)
    room = mmap.mmap(-1, 1 << 16)
    address = ctypes.addressof(ctypes.c_char.from_buffer(room))
    context = ctypes.c_ulong(0)
    if libc.syscall(setup, 1, ctypes.byref(context)) != 0:
        sys.exit("io_setup: " + os.strerror(ctypes.get_errno()))
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    block = ctypes.create_string_buffer(struct.pack("QIIHhIQQqQII", 0, 0, 0, 0, 0, fd, address, 1 << 16, 0, 0, 0, 0))
    blocks = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    thread = threading.Thread(target=lambda: libc.syscall(submit, context, ctypes.c_long(1), blocks))
    thread.start()
    thread.join()
    begin()
    event = ctypes.create_string_buffer(32)
    libc.syscall(getevents, context, ctypes.c_long(1), ctypes.c_long(1), event, None)
    print("result", struct.unpack("QQqq", event.raw)[2], flush=True)


def copy_range():
    source = os.open(path, os.O_RDONLY)
    target = os.open(other, os.O_WRONLY | os.O_CREAT)
    begin()
    os.copy_file_range(source, target, 150000)


def insert():
    # Beside one that reads and waits.
    fd = os.open(path, os.O_RDWR)
    library = ctypes.CDLL(os.environ["LIBRWRITE"], use_errno=True)
    library.rpwrite.restype = ctypes.c_ssize_t
    begin()
    library.rpwrite(fd, b"inserted", ctypes.c_size_t(8), ctypes.c_int64(100), ctypes.c_size_t(0))


globals()[kind]()
print("came back", flush=True)
