# SPDX-License-Identifier: LGPL-3.0-or-later
"""Writes over NFS 3 by libnfs, without a kernel client: nfs-client.py LIBRARY SERVER EXPORT VERB NAME NUMBER...

write NAME BYTES            a new file, and COMMIT
rewrite NAME OFFSET BYTES   so many bytes from OFFSET on, as who inserts or deletes before a tail writes it, and COMMIT;
                            the file then ends there

Prints the milliseconds that it took.  What is written is random.  Several requests are on their way at a time.
"""

import ctypes
import os
import sys
import time

REQUEST = 1 << 20
IN_FLIGHT = 8
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class PollFd(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


class Client:
    def __init__(self, library, server, export):
        self.nfs = ctypes.CDLL(library)
        self.nfs.nfs_init_context.restype = ctypes.c_void_p
        self.nfs.nfs_get_error.restype = ctypes.c_char_p
        self.libc = ctypes.CDLL(None)
        self.context = ctypes.c_void_p(self.nfs.nfs_init_context())
        self.nfs.nfs_set_version(self.context, 3)
        self.check(self.nfs.nfs_mount(self.context, server.encode(), export.encode()))

    def check(self, result):
        if result < 0:
            sys.exit(f"nfs-client: {self.nfs.nfs_get_error(self.context)}")
        return result

    def open(self, name, flags):
        handle = ctypes.c_void_p()
        self.check(self.nfs.nfs_open(self.context, b"/" + name.encode(), flags, ctypes.byref(handle)))
        return handle

    def create(self, name):
        handle = ctypes.c_void_p()
        self.check(self.nfs.nfs_creat(self.context, b"/" + name.encode(), 0o644, ctypes.byref(handle)))
        return handle

    def write(self, handle, offset, data):
        """All of it, IN_FLIGHT requests at a time."""
        pieces = [(at, min(REQUEST, len(data) - at)) for at in range(0, len(data), REQUEST)]
        state = {"flying": 0, "next": 0, "bad": None}
        base = ctypes.addressof(ctypes.c_char.from_buffer(data))

        @CALLBACK
        def done(result, *_):
            state["flying"] -= 1
            if result < 0:
                state["bad"] = result

        while state["next"] < len(pieces) or state["flying"]:
            while state["next"] < len(pieces) and state["flying"] < IN_FLIGHT and state["bad"] is None:
                at, count = pieces[state["next"]]
                state["next"] += 1
                state["flying"] += 1
                self.check(self.nfs.nfs_pwrite_async(
                    self.context, handle, ctypes.c_uint64(offset + at), ctypes.c_uint64(count),
                    ctypes.c_void_p(base + at), done, None))
            poll = PollFd(self.nfs.nfs_get_fd(self.context), self.nfs.nfs_which_events(self.context), 0)
            if self.libc.poll(ctypes.byref(poll), 1, 1000) < 0:
                sys.exit("nfs-client: poll")
            self.check(self.nfs.nfs_service(self.context, poll.revents))
            if state["bad"] is not None:
                sys.exit(f"nfs-client: write: {state['bad']}")

    def commit(self, handle):
        self.check(self.nfs.nfs_fsync(self.context, handle))

    def truncate(self, handle, size):
        self.check(self.nfs.nfs_ftruncate(self.context, handle, ctypes.c_uint64(size)))


def main(library, server, export, verb, name, *numbers):
    client = Client(library, server, export)
    numbers = [int(n) for n in numbers]
    data = bytearray(os.urandom(numbers[-1]))
    handle = client.create(name) if verb == "write" else client.open(name, os.O_RDWR)
    begin = time.perf_counter()
    offset = 0 if verb == "write" else numbers[0]
    client.write(handle, offset, data)
    if verb == "rewrite":
        client.truncate(handle, offset + len(data))
    client.commit(handle)
    print(f"{(time.perf_counter() - begin) * 1e3:.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
