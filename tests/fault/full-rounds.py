# SPDX-License-Identifier: LGPL-3.0-or-later
"""A device that is filled and emptied again and again, while daemons die and the power is cut.

usage: full-rounds.py DEVICE IMAGE MNT BELOW ROUNDS SEED [MOUNT-OPTIONS]

DEVICE is a small mounted file system with room for SOURCE, IMAGE the file that a loop device has it in
("-": there is none, as for tmpfs), MNT a mount point.  A round:

  fill    files of all sizes, each synced, until there is no space
  delete  about half of them, in any order; some are cut short instead
  fill    again
  end     by turns: kill -9; an unmount; the power is cut somewhere in the second fill

and a mount while it is full.  A cut: the daemon is stopped, what the loop device has written by then is
copied, and the copy takes the place of IMAGE.  What the kernel had in memory is lost, as it is when the power goes.

Asked: deleting and cutting short always work, and bring space back; only "no space" is an error; what was
synced is there with its content, what was deleted and synced is not; no signal ends the daemon;
fsck.varjfs -n finds nothing; it can be mounted.
"""

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time

FULL = {errno.ENOSPC, errno.EDQUOT}
SIZES = [300, 300, 5000, 5000, 60000, 300000, 1 << 20]
SMALL_FILES = 100
PATIENCE = 120


class Wrong(Exception):
    pass


class Cut(Exception):
    """The daemon is gone, as it was meant to be."""


def expect(good, what):
    if not good:
        raise Wrong(what)


def run(*words, status=0):
    r = subprocess.run(words, capture_output=True, text=True)
    expect(r.returncode == status, f"{' '.join(words)} says {r.returncode}: {r.stdout}{r.stderr}")


def until(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        expect(time.monotonic() < end, f"not within {PATIENCE} s: {what}")
        time.sleep(0.02)


def copy_file(name, to):
    """By this process: a child would close files of the mount, and wait for a daemon that is stopped."""
    with open(name, "rb") as a, open(to, "wb") as b:
        end, at = os.fstat(a.fileno()).st_size, 0
        os.truncate(b.fileno(), end)
        while at < end:
            try:
                at = os.lseek(a.fileno(), at, os.SEEK_DATA)
            except OSError as e:
                expect(e.errno == errno.ENXIO, f"{name}: {e}")
                return
            hole = os.lseek(a.fileno(), at, os.SEEK_HOLE)
            while at < hole:
                at += os.copy_file_range(a.fileno(), b.fileno(), hole - at, at, at)


def content(number, size):
    """A shorter one is the beginning of a longer one: the generator works in words."""
    return random.Random(number).randbytes(size + -size % 4)[:size]


class Device:
    def __init__(self, path, image, below, options):
        self.path, self.image, self.below, self.options = path, image, below, options

    def cut_power(self):
        """What IMAGE is at one moment: nothing may be written to it while it is copied."""
        copy = self.image + ".cut"
        for _ in range(50):
            before = os.stat(self.image).st_mtime_ns
            copy_file(self.image, copy)
            if os.stat(self.image).st_mtime_ns == before:
                return copy
        raise Wrong("the device is never at rest")

    def replace(self, copy):
        until(lambda: subprocess.call(["umount", self.path], stderr=subprocess.DEVNULL) == 0,
              "the device can be unmounted")
        os.rename(copy, self.image)
        run("mount", "-o", ",".join(["loop"] + self.options), self.image, self.path)


class Rounds:
    def __init__(self, device, mnt, seed):
        self.device, self.mnt = device, mnt
        self.rng = random.Random(f"{seed}/{device.below}")
        self.source = os.path.join(device.path, "source")
        self.log = os.path.join(os.path.dirname(device.path), "daemon.log")
        self.files = {}     # synced: name -> (number, size)
        self.doubtful = {}  # the last change was not synced: name -> what it may be; None: absent
        self.number = 0
        self.daemon = None
        self.is_cut = threading.Event()
        self.tally = {"filled": 0, "deleted": 0, "kill": 0, "umount": 0, "cut": 0}

    # -- the daemon

    def mount(self):
        self.is_cut.clear()
        # In the foreground: its end is seen, and whether a signal was the reason.
        self.daemon = subprocess.Popen(["varjfs", "-f", "-o", f"log={self.log}", self.source, self.mnt],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        until(lambda: self.daemon.poll() is not None or os.path.ismount(self.mnt), "it is mounted")
        if self.daemon.poll() is not None:
            raise Wrong(f"mount: {self.daemon.returncode}: {self.daemon.stderr.read()}")

    def ended(self, status):
        until(lambda: self.daemon.poll() is not None, "the daemon ends")
        expect(self.daemon.returncode == status, f"the daemon ended with {self.daemon.returncode}")
        self.daemon.stderr.close()

    def unmount(self):
        until(lambda: subprocess.call(["umount", self.mnt], stderr=subprocess.DEVNULL) == 0,
              "umount works")
        self.ended(0)

    def kill(self):
        self.daemon.send_signal(signal.SIGKILL)
        self.ended(-signal.SIGKILL)
        run("umount", "-l", self.mnt)

    def alive(self):
        expect(self.daemon.poll() is None, f"the daemon ended with {self.daemon.returncode}")

    # -- changes

    def path(self, name):
        return os.path.join(self.mnt, name)

    def call(self, what, action, must=False):
        """False: there is no space."""
        try:
            action()
            return True
        except OSError as e:
            if self.is_cut.is_set():
                raise Cut from e
            self.alive()
            expect(e.errno in FULL, f"{what}: {e}")
            expect(not must, f"{what} on a full device: {e}")
            return False

    def write_new(self, name, number, size):
        data = content(number, size)
        fd = os.open(self.path(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        try:
            done = 0
            while done < size:
                done += os.write(fd, data[done:])
            os.fsync(fd)
        finally:
            os.close(fd)

    def make(self, size):
        self.number += 1
        number, name = self.number, f"f{self.number}"
        self.doubtful[name] = [None, (number, -1)]  # absent, or some beginning of it
        if self.call("a new file", lambda: self.write_new(name, number, size)):
            self.files[name] = (number, size)
            del self.doubtful[name]
            self.tally["filled"] += 1
            return True
        if os.path.lexists(self.path(name)):
            self.call("unlink of what did not fit", lambda: os.unlink(self.path(name)), must=True)
        return False

    def fill(self):
        """Until nothing fits but small files, of which there is room for thousands in the metadata."""
        sizes, more = list(SIZES), SMALL_FILES
        while sizes and more > 0:
            size = self.rng.choice(sizes)
            if not self.make(size):
                sizes = [s for s in sizes if s < size]
            more -= max(sizes, default=0) < 60000

    def delete(self):
        names = sorted(self.files)
        self.rng.shuffle(names)
        freed = 0
        for name in names[:len(names) * self.rng.randrange(40, 80) // 100]:
            number, size = self.files.pop(name)
            self.doubtful[name] = [None, (number, -1)]
            # Less than that is in the metadata, whose free pages stay there to be used again.
            freed += size if size >= 300000 else 0
            if self.rng.randrange(8) == 0:
                self.call("truncate", lambda n=name, s=size: os.truncate(self.path(n), s // 2),
                          must=True)
            else:
                self.call("unlink", lambda n=name: os.unlink(self.path(n)), must=True)
            self.tally["deleted"] += 1
        self.sync_all()
        until(lambda: self.available() >= freed // 4,
              f"a quarter of {freed} bytes of large files comes back")

    def available(self):
        self.alive()
        st = os.statvfs(self.mnt)
        return st.f_bavail * st.f_frsize

    def sync_all(self):
        self.call("sync", lambda: run("varjfsctl", "sync", self.mnt))
        self.adopt()

    # -- what has to be true

    def look(self, name, number):
        """The length of what is there: a beginning of what was written, or a size without bytes."""
        with open(self.path(name), "rb") as f:
            got = f.read()
        expect(got in (content(number, len(got)), bytes(len(got))),
               f"{name}: bytes that nobody wrote")
        return len(got)

    def adopt(self):
        """What is there now of that which was in doubt stays."""
        for name, states in list(self.doubtful.items()):
            if os.path.lexists(self.path(name)):
                number = states[1][0]
                self.files[name] = (number, self.look(name, number))
            del self.doubtful[name]

    def verify(self):
        there = set(os.listdir(self.mnt))
        for name, (number, size) in self.files.items():
            expect(name in there, f"{name}: synced, and gone")
            with open(self.path(name), "rb") as f:
                expect(f.read() == content(number, size), f"{name}: synced, and not what it was")
        more = there - set(self.files) - set(self.doubtful)
        expect(not more, f"deleted and synced, and there again: {sorted(more)[:5]}")
        self.adopt()
        self.sync_all()

    # -- a round

    def cut_later(self, copies):
        """A thread: stops the daemon somewhere in what happens meanwhile."""
        time.sleep(self.rng.random() * 0.7)
        try:
            self.daemon.send_signal(signal.SIGSTOP)
            copies.append(self.device.cut_power())
        finally:
            self.is_cut.set()
            self.daemon.send_signal(signal.SIGKILL)

    def fill_and_cut(self):
        copies = []
        thread = threading.Thread(target=self.cut_later, args=(copies,))
        thread.start()
        try:
            self.fill()
        except Cut:
            pass
        thread.join()
        expect(copies, "the power was not cut")
        self.ended(-signal.SIGKILL)
        run("umount", "-l", self.mnt)
        self.device.replace(copies[0])

    def one(self, end):
        self.fill()
        self.delete()
        if end == "cut":
            self.fill_and_cut()
        else:
            self.fill()
            self.alive()
            if end == "kill":
                self.kill()
            else:
                self.unmount()
        self.tally[end] += 1
        run("fsck.varjfs", "-n", self.source)
        self.mount()
        self.verify()


def main():
    path, image, mnt, below, rounds, seed = sys.argv[1:7]
    device = Device(path, image, below, sys.argv[7:])
    r = Rounds(device, mnt, seed)
    ends = ["kill", "umount"] if image == "-" else ["cut", "kill", "umount"]
    r.mount()
    try:
        for i in range(int(rounds)):
            try:
                r.one(ends[i % len(ends)])
            except (Wrong, OSError) as e:
                print(f"{below}: round {i + 1}: WRONG: {e}", flush=True)
                with open(r.log, encoding="utf-8", errors="replace") as f:
                    print(*f.read().splitlines()[-12:], sep="\n", flush=True)
                sys.exit(1)
        r.unmount()
        run("fsck.varjfs", "-n", r.source)
    finally:
        if r.daemon.poll() is None:
            r.daemon.kill()
    print(f"{below}: {rounds} rounds: " + ", ".join(f"{k} {v}" for k, v in r.tally.items()), flush=True)


main()
