# SPDX-License-Identifier: LGPL-3.0-or-later
"""A load beside which nodes die: load.py run DIR RECORD STOP [THREADS [SEED]], load.py verify DIR RECORD

run      Until the file STOP is there, each thread writes new files, fsyncs them and adds "+ NAME SHA256" to
         RECORD; removes the older ones ("- NAME" comes first); and edits one file by inserts, deletes and
         replacements, which it compares with a byte array.  An error of any call, or a wrong byte, ends the
         program with status 1.  At the end the edited files are fsynced and recorded.
verify   Every file that RECORD has and that was not removed is there with that content.

It prints its seed and, at the end, what it did.
"""

import hashlib
import os
import random
import sys
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.dont_write_bytecode = True
import vjtap  # noqa: E402

KEPT = 60  # new files of a thread that are there at a time
EDITED_MAX = 6 << 20


class Record:
    def __init__(self, path, stop):
        self.file = open(path, "a", encoding="ascii")
        self.lock = threading.Lock()
        self.stop = stop
        self.failed = False
        self.longest = 0.0
        self.last = time.monotonic()
        self.counts = {"files": 0, "edits": 0, "reads": 0, "bytes": 0}

    def add(self, line):
        with self.lock:
            self.file.write(line + "\n")
            self.file.flush()
            now = time.monotonic()
            self.longest = max(self.longest, now - self.last)
            self.last = now

    def count(self, what, number=1):
        with self.lock:
            self.counts[what] += number

    def is_over(self):
        return self.failed or os.path.exists(self.stop)


def sync_directory(directory):
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


class Worker(threading.Thread):
    def __init__(self, number, directory, record, seed):
        super().__init__(daemon=True)
        self.number, self.directory, self.record = number, directory, record
        self.random = random.Random(seed * 1000 + number)
        self.kept = []
        self.shadow = bytearray()
        self.made = 0

    def run(self):
        try:
            path = os.path.join(self.directory, f"edited-{self.number}")
            with open(path, "w+b", buffering=0) as self.edited:
                while not self.record.is_over():
                    self.new_file()
                    for _ in range(self.random.randrange(1, 12)):
                        self.edit()
                    self.look(path)
                os.fsync(self.edited.fileno())
                self.record.add(f"+ edited-{self.number} {hashlib.sha256(self.shadow).hexdigest()}")
        except BaseException:
            self.record.failed = True
            traceback.print_exc()

    def size(self, most):
        return int(most ** self.random.random())

    def new_file(self):
        name = f"new-{self.number}-{self.made}"
        self.made += 1
        path = os.path.join(self.directory, name)
        data = self.random.randbytes(self.size(2 << 20))
        with open(path + ".part", "wb", buffering=0) as f:
            at = 0
            while at < len(data):
                at += f.write(data[at:at + (256 << 10)])
            os.fsync(f.fileno())
        os.rename(path + ".part", path)
        sync_directory(self.directory)
        self.record.add(f"+ {name} {hashlib.sha256(data).hexdigest()}")
        self.record.count("files")
        self.record.count("bytes", len(data))
        self.kept.append(name)
        if len(self.kept) > KEPT:
            old = self.kept.pop(self.random.randrange(len(self.kept)))
            self.record.add(f"- {old}")
            os.unlink(os.path.join(self.directory, old))

    def edit(self):
        fd = self.edited.fileno()
        offset = self.random.randrange(len(self.shadow) + 1)
        old = min(self.size(16384), len(self.shadow) - offset)
        if self.random.random() < 0.3 and len(self.shadow) < EDITED_MAX:
            old = 0
        data = self.random.randbytes(self.size(12000))
        if self.random.random() < 0.1 and len(self.shadow) < EDITED_MAX:
            data = self.random.randbytes(self.size(1 << 20))
            old = min(len(data), len(self.shadow) - offset)
            at = 0
            while at < len(data):
                at += os.pwrite(fd, data[at:], offset + at)
        else:
            vjtap.edit(fd, offset, old, data)
        self.shadow[offset:offset + old] = data
        if self.random.random() < 0.1:
            os.fsync(fd)
        self.record.count("edits")

    def look(self, path):
        """The edited file, some of it, and one of the others, all of it."""
        with open(path, "rb", buffering=0) as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            offset = self.random.randrange(len(self.shadow) + 1)
            got = os.pread(f.fileno(), 256 << 10, offset)
            wanted = bytes(self.shadow[offset:offset + (256 << 10)])
            if got != wanted:
                at = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
                raise AssertionError(f"{path}: other bytes from {offset + at} on ({len(got)} of {len(wanted)} came)")
        self.record.count("reads")
        name = self.random.choice(self.kept)
        with open(os.path.join(self.directory, name), "rb", buffering=0) as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while f.read(1 << 20):
                pass


def run(directory, path, stop, threads=3, seed=None):
    seed = int(seed) if seed else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    record = Record(path, stop)
    workers = [Worker(i, directory, record, seed) for i in range(int(threads))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(", ".join(f"{v} {k}" for k, v in record.counts.items()), f"longest pause {record.longest:.1f} s")
    return 1 if record.failed else 0


def verify(directory, path):
    wanted = {}
    with open(path, encoding="ascii") as f:
        for line in f:
            word, name, *digest = line.split()
            if word == "+":
                wanted[name] = digest[0]
            else:
                wanted.pop(name, None)
    bad = 0
    for name, digest in sorted(wanted.items()):
        try:
            with open(os.path.join(directory, name), "rb") as f:
                got = hashlib.sha256(f.read()).hexdigest()
        except OSError as e:
            got = str(e)
        if got != digest:
            print(f"{name}: {got} instead of {digest}")
            bad += 1
    print(f"{len(wanted)} files, {bad} of them wrong")
    return 1 if bad or not wanted else 0


if __name__ == "__main__":
    sys.exit({"run": run, "verify": verify}[sys.argv[1]](*sys.argv[2:]))
