# SPDX-License-Identifier: LGPL-3.0-or-later
"""The device below is full at every point of a workload, and then it is not.

usage: full-disk.py DEVICE MNT BELOW POINTS SEED [WAY...]

DEVICE is a small file system with room for SOURCE, MNT a mount point.  At a point of a workload
the device becomes full in one of these ways:

  outside    another file takes all of it
  rest       another file takes all but some KiB, so that only metadata fits
  inside     a file of the mount takes all that it gets
  inodes     other files take all inodes (file systems that have a number of them)
  limit      the daemon may not write files any longer than its metadata (RLIMIT_FSIZE)

The workload goes on, then one of these comes, by turns:

  free       the space comes back; then every sync works
  kill       kill -9 while it is full, a mount while it is full, then the space comes back
  umount     an unmount while it is full; the space comes back while the daemon tries
  remount    what is durable; an unmount and a mount while it is full

Asked of each: operations fail with "no space", fsync too, and nothing else; what was accepted can
be read; removing and truncating work all the time; nothing of what was synced is lost, and
nothing accepted unless the daemon was killed; fsck finds nothing; work goes on.
"""

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from vjtap import process_gone  # noqa: E402

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
STEPS = 26
PATIENCE = 120


class Wrong(Exception):
    pass


def expect(good, what):
    if not good:
        raise Wrong(what)


class Volume:
    """SOURCE on the device, mounted or not."""

    def __init__(self, device, mnt):
        self.source = os.path.join(device, "source")
        self.device, self.mnt = device, mnt
        self.log = os.path.join(os.path.dirname(device), "daemon.log")
        self.pid = None

    def mount(self):
        run("varjfs", "-o", f"log={self.log}", self.source, self.mnt)
        self.pid = self.daemon()

    def last_lines(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read().splitlines()[-12:]

    def daemon(self):
        for p in os.listdir("/proc"):
            try:
                # The words of a process that hangs in a mapping cannot be read: its name can.
                with open(f"/proc/{p}/comm", encoding="ascii") as f:
                    if f.read() != "varjfs\n":
                        continue
                with open(f"/proc/{p}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
            except (OSError, UnicodeDecodeError):
                continue
            if self.mnt.encode() in words:
                return int(p)
        raise Wrong("there is no daemon")

    def unmount(self, wait=True):
        # Whoever looks at all mounts keeps it busy for a moment.
        until(lambda: subprocess.call(["umount", "-i", self.mnt], stderr=subprocess.DEVNULL) == 0,
              "umount works")
        if wait:
            self.ended()

    def ended(self):
        until(lambda: process_gone(self.pid), "the daemon ends")

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self.ended()
        run("umount", "-i", "-l", self.mnt)

    def fsck(self):
        r = subprocess.run(["fsck.varjfs", "-n", self.source], capture_output=True, text=True)
        expect(r.returncode == 0, f"fsck.varjfs says {r.returncode}: {r.stdout}{r.stderr}")


def run(*words):
    r = subprocess.run(words, capture_output=True, text=True)
    expect(r.returncode == 0, f"{' '.join(words)}: {r.stdout}{r.stderr}")


def until(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        expect(time.monotonic() < end, f"not within {PATIENCE} s: {what}")
        time.sleep(0.02)


def take_space(path, leave):
    """A file that takes all but @leave bytes.  Blocks come singly in the end."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    st = os.statvfs(path)
    left = max(0, st.f_bavail * st.f_frsize - leave)
    size = 0
    step = 16 << 20
    while step >= 4096 and left > 0:
        step = min(step, left) & ~4095
        if step < 4096:
            break
        try:
            os.posix_fallocate(fd, size, step)
            size += step
            left -= step
        except OSError as e:
            expect(e.errno in FULL, f"filling: {e}")
            step //= 2
    os.close(fd)


class Way:
    """How the device becomes full, and how it has space again."""

    def __init__(self, name, volume, rng):
        self.name, self.volume = name, volume
        self.leave = 0
        if name == "rest":
            self.leave = rng.choice([8, 64, 256, 1100, 2200]) << 10
        self.filler = os.path.join(volume.device, "filler")

    def fill(self):
        v = self.volume
        if self.name == "limit":
            size = os.stat(os.path.join(v.source, "meta/data.mdb")).st_size
            resource.prlimit(v.pid, resource.RLIMIT_FSIZE, (min(size, 20000), resource.RLIM_INFINITY))
        elif self.name == "inodes":
            os.mkdir(self.filler)
            try:
                for i in range(1 << 20):
                    os.close(os.open(f"{self.filler}/{i}", os.O_CREAT | os.O_WRONLY, 0o600))
            except OSError as e:
                expect(e.errno in FULL, f"filling: {e}")
        elif self.name == "inside":
            try:
                with open(os.path.join(v.mnt, "filler"), "wb", buffering=0) as f:
                    while True:
                        f.write(os.urandom(1 << 18))
            except OSError as e:
                expect(e.errno in FULL, f"filling: {e}")
        else:
            take_space(self.filler, self.leave)

    def free(self):
        if self.name == "limit":
            if self.volume.pid is not None and not process_gone(self.volume.pid):
                resource.prlimit(self.volume.pid, resource.RLIMIT_FSIZE,
                                 (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        elif self.name == "inodes":
            for name in os.listdir(self.filler):
                os.unlink(f"{self.filler}/{name}")
            os.rmdir(self.filler)
        elif self.name == "inside":
            os.unlink(os.path.join(self.volume.mnt, "filler"))
        elif os.path.exists(self.filler):
            taken = os.stat(self.filler).st_blocks * 512
            os.unlink(self.filler)
            # XFS and btrfs give the space of what is unlinked back a little later.
            until(lambda: self.available() >= taken // 2, "the device gives its space back")

    def available(self):
        run("sync", "-f", self.volume.device)
        st = os.statvfs(self.volume.device)
        return st.f_bavail * st.f_frsize


class File:
    def __init__(self):
        self.states = [b""]  # since it was durable; the last is what there is
        self.named = False   # its name is durable

    def now(self):
        return self.states[-1]


class Run:
    """One workload in a directory of its own."""

    def __init__(self, volume, number, seed):
        self.v = volume
        self.rng = random.Random(f"{seed}/{number}")
        self.dir = os.path.join(volume.mnt, f"run{number}")
        self.files = {}
        self.full = False
        self.way = None
        self.refused = 0
        self.doing = ""

    def path(self, name):
        return os.path.join(self.dir, name)

    def attempt(self, what, action, must=False):
        """True: it worked.  Only a full device is a reason not to."""
        self.doing = what
        try:
            action()
            return True
        except OSError as e:
            expect(self.full and e.errno in FULL, f"{what}: {e}")
            expect(not must, f"{what} on a full device: {e}")
            self.refused += 1
            return False

    # -- operations

    def create(self):
        name = f"f{len(self.files)}-{self.rng.randrange(1 << 30)}"
        if self.attempt("create", lambda: os.close(
                os.open(self.path(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))):
            self.files[name] = File()
            self.write(name)

    def pick(self):
        return self.rng.choice(sorted(self.files)) if self.files else None

    def write(self, name=None, sync=False):
        name = name or self.pick()
        if name is None:
            return
        f = self.files[name]
        at = self.rng.choice([0, len(f.now()), self.rng.randrange(len(f.now()) + 1)])
        data = self.rng.randbytes(self.rng.choice([100, 3000, 20000, 150000]))
        fd = os.open(self.path(name), os.O_WRONLY | (os.O_SYNC if sync else 0))
        try:
            done = 0
            while done < len(data):
                wrote = []
                old = f.now()
                worked = self.attempt("write", lambda: wrote.append(
                    os.pwrite(fd, data[done:], at + done)))
                if not worked:
                    # O_SYNC: accepted, perhaps, and not durable.
                    if sync:
                        self.look(name, [old, self.put(old, at + done, data[done:])])
                    break
                new = self.put(old, at + done, data[done:done + wrote[0]])
                f.states.append(new)
                done += wrote[0]
                if sync:
                    f.states = [new]
        finally:
            self.close(fd)

    @staticmethod
    def put(old, at, data):
        return old[:at].ljust(at, b"\0") + data + old[at + len(data):]

    def look(self, name, either):
        """What is there is one of these, or the first with a beginning of the second."""
        with open(self.path(name), "rb") as f:
            got = f.read()
        old, new = either
        expect(got == old or got == new or len(got) <= max(len(old), len(new)),
               f"{name}: neither the old nor the new content")
        self.files[name].states.append(got)

    def close(self, fd):
        self.attempt("close", lambda: os.close(fd))

    def insert(self):
        name = self.pick()
        if name is None:
            return
        f = self.files[name]
        at = self.rng.randrange(len(f.now()) + 1)
        data = self.rng.randbytes(self.rng.choice([10, 5000]))
        r = subprocess.run(["varjfsctl", "insert", self.path(name), str(at)], input=data,
                           capture_output=True)
        if r.returncode == 0:
            f.states.append(f.now()[:at] + data + f.now()[at:])
        else:
            expect(self.full and (b"space" in r.stderr or b"large" in r.stderr),
                   f"insert: {r.stderr}")
            self.refused += 1

    def fsync(self):
        name = self.pick()
        if name is None:
            return
        fd = os.open(self.path(name), os.O_RDWR)
        try:
            if self.attempt("fsync", lambda: os.fsync(fd)):
                self.files[name].states = [self.files[name].now()]
                self.files[name].named = True
        finally:
            self.close(fd)

    def truncate(self):
        name = self.pick()
        if name is None:
            return
        f = self.files[name]
        size = self.rng.randrange(len(f.now()) + 1)
        if self.attempt("truncate", lambda: os.truncate(self.path(name), size), must=True):
            f.states.append(f.now()[:size])

    def grow(self):
        name = self.pick()
        if name is None:
            return
        f = self.files[name]
        size = len(f.now()) + 30000
        if self.attempt("truncate up", lambda: os.truncate(self.path(name), size)):
            f.states.append(f.now().ljust(size, b"\0"))

    def unlink(self):
        name = self.pick()
        if name is not None and self.attempt("unlink", lambda: os.unlink(self.path(name)),
                                             must=True):
            del self.files[name]

    def rename(self):
        old, new = self.pick(), self.pick()
        if old is None or old == new:
            return
        if self.attempt("rename", lambda: os.rename(self.path(old), self.path(new))):
            self.files[new] = self.files.pop(old)
            self.files[new].named = False

    def copy(self):
        name = self.pick()
        if name is None:
            return
        target = f"c{self.rng.randrange(1 << 30)}"
        source = os.open(self.path(name), os.O_RDONLY)
        try:
            made = []
            if self.attempt("create", lambda: made.append(
                    os.open(self.path(target), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))):
                f = self.files[target] = File()
                data = self.files[name].now()
                while len(f.now()) < len(data):
                    n = []
                    if not self.attempt("copy_file_range", lambda: n.append(
                            os.copy_file_range(source, made[0], len(data), len(f.now()),
                                               len(f.now())))):
                        break
                    f.states.append(data[:len(f.now()) + n[0]])
                    expect(n[0] > 0, "copy_file_range copies nothing")
                self.close(made[0])
        finally:
            os.close(source)

    def attribute(self):
        name = self.pick()
        if name is not None:
            self.attempt("setxattr", lambda: os.setxattr(
                self.path(name), "user.x", self.rng.randbytes(self.rng.choice([10, 4000]))))

    def directory(self):
        path = self.path("d")
        if self.attempt("mkdir", lambda: os.mkdir(path)):
            self.attempt("rmdir", lambda: os.rmdir(path), must=True)

    def step(self):
        kinds = [self.create] * 4 + [self.write] * 5 + [self.fsync] * 4 + [
            self.insert, self.truncate, self.truncate, self.grow, self.unlink, self.unlink,
            self.rename, self.rename, self.copy, self.attribute, self.directory,
            lambda: self.write(sync=True)]
        self.rng.choice(kinds)()

    # -- what has to be true

    def verify(self):
        """Everything accepted can be read, whatever the device says."""
        self.doing = "reading"
        expect(sorted(os.listdir(self.dir)) == sorted(self.files), "wrong names")
        for name, f in self.files.items():
            with open(self.path(name), "rb") as h:
                got = h.read()
            expect(got == f.now(), f"{name}: wrong content ({len(got)}, not {len(f.now())})")

    def sync_all(self):
        """The space is there again."""
        for name, f in self.files.items():
            fd = os.open(self.path(name), os.O_RDWR)
            self.doing = "fsync when there is space again"
            try:
                os.fsync(fd)
            except OSError as e:
                # A failure of before, which this handle had not heard of, may be told once.
                expect(e.errno in FULL | {errno.EIO}, f"fsync: {e}")
                os.fsync(fd)
            os.close(fd)
            f.states = [f.now()]
            f.named = True
        run("varjfsctl", "sync", self.v.mnt)

    def adopt(self):
        """After kill -9: what was synced is there, the rest as it once was."""
        self.doing = "reading after kill -9"
        there = set(os.listdir(self.dir)) if os.path.isdir(self.dir) else set()
        for name, f in list(self.files.items()):
            if name not in there:
                expect(not f.named, f"{name}: synced, and gone")
                del self.files[name]
                continue
            with open(self.path(name), "rb") as h:
                got = h.read()
            if f.named:
                expect(got in f.states, f"{name}: a content that it never had")
            f.states = [got]
        # Names that were renamed or removed and not synced may be there as before.
        for name in there - set(self.files):
            with open(self.path(name), "rb") as h:
                self.files[name] = File()
                self.files[name].states = [h.read()]

    def clean(self):
        for name in list(self.files):
            os.unlink(self.path(name))
        os.rmdir(self.dir)


def one(volume, number, seed, way_name, then):
    """True when something was refused, so that it was full at all."""
    r = Run(volume, number, seed)
    os.mkdir(r.dir)
    for _ in range(4):
        r.create()
    r.sync_all()
    full_at = number % STEPS
    r.way = Way(way_name, volume, r.rng)
    try:
        for step in range(STEPS + 6):
            if step == full_at:
                r.full = True
                r.way.fill()
            if step == full_at + 10:
                break
            r.step()
        r.verify()
        end(r, then)
    except OSError as e:
        raise Wrong(f"{r.doing}: {e}") from e
    finally:
        # Whatever happened, the next one begins with space.
        if r.full:
            try:
                r.way.free()
            except OSError:
                pass
    return r.refused > 0


def end(r, then):
    v = r.v
    if then == "free":
        pass
    elif then == "kill":
        v.kill()
        v.mount()
        r.adopt()
        r.verify()
    elif then == "umount":
        v.unmount(wait=False)
        # The space comes back while the daemon tries to get rid of what it has.
        if r.way.name != "inside":
            r.way.free()
            r.full = False
        v.ended()
        v.mount()
        r.verify()
    elif then == "remount":
        if r.way.name == "inside":
            r.sync_all()  # what was accepted has its place
        else:
            r.way.free()
            r.full = False
            r.sync_all()
            r.full = True
            r.way.fill()
        v.unmount()
        v.mount()
        if r.way.name == "limit":
            r.way.fill()
        r.verify()
        for name in list(r.files)[:1]:
            r.attempt("unlink", lambda n=name: os.unlink(r.path(n)), must=True)
            del r.files[name]
    if r.full:
        r.way.free()
        r.full = False
    r.sync_all()
    r.verify()
    for _ in range(3):
        r.step()
    r.sync_all()
    r.verify()
    r.clean()


def main():
    device, mnt, below, points, seed = sys.argv[1:6]
    ways = sys.argv[6:] or ["outside", "rest", "inside", "limit"]
    thens = ["free", "kill", "umount", "remount"]
    v = Volume(device, mnt)
    points, seed = int(points), int(seed)
    v.mount()
    for step, way in enumerate(ways):
        wrong, refused = None, 0
        counts = dict.fromkeys(thens, 0)
        for i in range(points):
            # Every point of the workload comes up as the numbers rise.
            number = seed * 1000 + i * (1 if points >= STEPS else STEPS // points)
            then = thens[(i + i // len(thens) + 2 * step) % len(thens)]
            try:
                refused += one(v, number, seed, way, then)
                counts[then] += 1
            except Wrong as e:
                wrong = f"point {number}, {then}: {e}"
                break
        if wrong is None:
            try:
                v.unmount()
                v.fsck()
                v.mount()
            except Wrong as e:
                wrong = str(e)
        said = ", ".join(f"{then} {count}" for then, count in counts.items())
        print(f"{below} {way}: {sum(counts.values())} points ({said}), "
              f"something was refused at {refused}" + (f"; WRONG: {wrong}" if wrong else ""),
              flush=True)
        if wrong:
            print(*v.last_lines(), sep="\n", flush=True)
            sys.exit(1)
    v.unmount()


main()
