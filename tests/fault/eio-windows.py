# SPDX-License-Identifier: LGPL-3.0-or-later
"""What eio-windows.sh runs: eio-windows.py DIR DEVICE SOURCE MNT FS ROUNDS SEED

DIR/bad is a mounted bad-disk (tests/lib/bad-disk.c); a loop device over it, with the file system FS, is mounted on
DEVICE, and SOURCE lies there.  Each round writes into files of the mount, has writes of some kind fail for a
while, and ends in one of three ways:

umount   varjfs and the file system below are unmounted (or varjfs is killed, where the latter has given up)
cut      the power goes while everybody works, also in the middle of the window
both     varjfs is unmounted, then the power goes

Then fsck.varjfs -n has to find nothing, the volume has to mount, and all has to be there that an fsync which
said 0 promised.  Reads must not fail as long as there is power and the file system below lives, and the daemon
must live.
"""

import errno
import os
import random
import subprocess
import sys
import threading
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from vjtap import process_gone  # noqa: E402

RECORD = 64
RECORDS = 3000
FILES = 3
KINDS = os.environ.get("VARJFS_EIO_KINDS", "meta log meta,log objects names all flush").split()
ENDS = ["umount", "cut", "both"]
# What a call may say once the power is gone, or the file system below has given up.
GONE = (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.EROFS, errno.ENOENT)
PATIENCE = 60


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          timeout=PATIENCE)
    return done.returncode, done.stdout


def must(*command):
    status, out = run(*command)
    if status != 0:
        raise AssertionError(f"{' '.join(command)}: status {status}: {out}")
    return out.strip()


def wait_for(what, say):
    end = time.monotonic() + PATIENCE
    while not what():
        if time.monotonic() > end:
            raise AssertionError(say)
        time.sleep(0.01)


# ---- what is written -----------------------------------------------------------------------


def record(name, number, version):
    text = b"bad-disk object %8s %6d %10d " % (name.encode(), number, version)
    return text + b"%08x\n" % zlib.crc32(text) + b"." * (RECORD - len(text) - 10) + b"\n"


def version_of(name, number, data):
    """None: this is no record of ours; 0: nothing was written here."""
    if data == bytes(RECORD):
        return 0
    try:
        version = int(data[32:42])
    except ValueError:
        return None
    return version if record(name, number, version) == data else None


class File:
    """Records with versions: what was tried, and what an fsync promised."""

    def __init__(self, directory, name):
        self.name = name
        self.path = os.path.join(directory, name)
        self.version = 0
        self.tried = [0] * RECORDS
        self.promised = [0] * RECORDS

    def change(self, rng):
        length = rng.choice([1, 1, 3, 60, 300, RECORDS])
        first = rng.randrange(RECORDS - length + 1)
        self.version += 1
        data = b"".join(record(self.name, i, self.version) for i in range(first, first + length))
        self.tried[first:first + length] = [self.version] * length
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.pwrite(fd, data, first * RECORD)
            if rng.random() < 0.8:
                promise = list(self.tried)
                os.fsync(fd)
                self.promised = promise
                return 1
        finally:
            os.close(fd)
        return 0

    def look(self, wrong):
        """What is there now; it is what counts from here on."""
        try:
            with open(self.path, "rb") as f:
                data = f.read()
        except FileNotFoundError:
            data = b""
        data += bytes(RECORD * RECORDS - len(data))
        for i in range(RECORDS):
            version = version_of(self.name, i, data[i * RECORD:(i + 1) * RECORD])
            if version is None or not self.promised[i] <= version <= self.tried[i]:
                wrong.append(f"{self.name}: record {i}: {data[i * RECORD:(i + 1) * RECORD]!r}, promised "
                             f"{self.promised[i]}, tried {self.tried[i]}")
                version = self.tried[i]
            self.tried[i] = self.promised[i] = version


class Names:
    """Files that come and go; fsync of the directory promises it."""

    def __init__(self, directory):
        self.directory = directory
        self.count = 0
        self.promised = set()  # are there
        self.open = set()      # may be there or not
        self.fd = -1

    def change(self, rng):
        if self.promised and rng.random() < 0.4:
            name = rng.choice(sorted(self.promised))
            self.promised.discard(name)
            self.open.add(name)
            os.unlink(os.path.join(self.directory, name))
            self.sync()
            self.open.discard(name)
            return 1
        self.count += 1
        name = f"n{self.count}"
        self.open.add(name)
        with open(os.path.join(self.directory, name), "wb") as f:
            f.write(self.content(name))
            f.flush()
            os.fsync(f.fileno())
        self.sync()
        self.open.discard(name)
        self.promised.add(name)
        return 1

    @staticmethod
    def content(name):
        return record(name, 0, 1) * (1 + zlib.crc32(name.encode()) % 400)

    def sync(self):
        fd = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def look(self, wrong):
        there = set(os.listdir(self.directory))
        for name in sorted(self.promised - there):
            wrong.append(f"{name} is not there")
        for name in sorted(there - self.promised - self.open):
            wrong.append(f"{name} is there again")
        for name in sorted(there & self.promised):
            with open(os.path.join(self.directory, name), "rb") as f:
                if f.read() != self.content(name):
                    wrong.append(f"{name} has another content")
        # Of those that nobody promised the content is not known either.
        self.open &= there
        self.promised = there - self.open


class Work(threading.Thread):
    """Changes until it is to end; errors are expected and counted."""

    def __init__(self, world, things, seed):
        super().__init__(daemon=True)
        self.world, self.things, self.rng = world, things, random.Random(seed)
        self.ending = False
        self.good = self.bad = 0
        self.strange = None

    def run(self):
        while not self.ending:
            try:
                self.good += self.rng.choice(self.things).change(self.rng)
            except OSError as e:
                self.bad += 1
                if e.errno not in GONE:
                    self.strange = f"a change: {e}"
                time.sleep(0.002)


class Reads(threading.Thread):
    """Reads past the cache: what fails or is not whole while there is power is wrong."""

    def __init__(self, world, files, seed):
        super().__init__(daemon=True)
        self.world, self.files, self.rng = world, files, random.Random(seed)
        self.ending = False
        self.count = 0
        self.wrong = []

    def run(self):
        while not self.ending:
            one = self.rng.choice(self.files)
            try:
                fd = os.open(one.path, os.O_RDONLY)
                try:
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                    number = self.rng.randrange(RECORDS)
                    data = os.pread(fd, RECORD, number * RECORD)
                finally:
                    os.close(fd)
                if data and version_of(one.name, number, data.ljust(RECORD, b"\0")) is None:
                    self.wrong.append(f"{one.name}: record {number} reads {data!r}")
                self.count += 1
            except FileNotFoundError:
                pass
            except OSError as e:
                if not self.ending and not self.world.power_is_off:
                    self.wrong.append(f"{one.name}: a read: {e}")
            time.sleep(0.003)


def arguments_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
            return f.read().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


# ---- the machine ---------------------------------------------------------------------------


class World:
    def __init__(self, top, device, source, mnt, fs):
        self.control = os.path.join(top, "bad", "control")
        self.image = os.path.join(top, "bad", "disk")
        self.device, self.source, self.mnt, self.fs = device, source, mnt, fs
        self.log = os.path.join(top, "daemon.log")
        self.loop = None
        self.daemon = None
        self.power_is_off = False

    def say(self, command):
        fd = os.open(self.control, os.O_WRONLY)
        try:
            os.write(fd, command.encode())
        finally:
            os.close(fd)

    def asked(self):
        fd = os.open(self.control, os.O_RDONLY)
        try:
            text = os.read(fd, 4096).decode()
        finally:
            os.close(fd)
        return {key: int(value) for key, value in (line.split("=") for line in text.split())}

    def attach(self):
        self.loop = must("losetup", "--find", "--show", self.image)
        try:
            must("mount", "-t", self.fs, self.loop, self.device)
        finally:
            # It goes with its last user, whatever becomes of this process.
            must("losetup", "--detach", self.loop)

    def detach(self):
        wait_for(lambda: run("umount", self.device)[0] == 0 or not os.path.ismount(self.device),
                 f"{self.device} cannot be unmounted: {run('umount', self.device)[1]}")
        # Somebody else may have the same one at once.
        wait_for(lambda: run("losetup", "--associated", self.image)[1] == "", f"{self.loop} is not released")
        self.loop = None

    def mount(self):
        must("varjfs", self.source, self.mnt, "-o", f"log={self.log}")
        pids = [p for p in must("pgrep", "-x", "varjfs").split() if self.mnt in arguments_of(p)]
        assert len(pids) == 1, f"daemons: {pids}"
        self.daemon = int(pids[0])

    def daemon_lives(self):
        return not process_gone(self.daemon)

    def below_lives(self):
        """A file system whose own writes failed may give up until it is mounted again."""
        probe = os.path.join(self.device, "probe")
        try:
            fd = os.open(probe, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            os.unlink(probe)
            return True
        except OSError:
            return False

    def umount(self):
        wait_for(lambda: run("umount", self.mnt)[0] == 0, f"{self.mnt} cannot be unmounted")
        wait_for(lambda: not self.daemon_lives(), "the daemon does not end")

    def cut(self):
        self.power_is_off = True
        self.say("cut")

    def kill(self):
        os.kill(self.daemon, 9)
        wait_for(lambda: not self.daemon_lives(), "the daemon does not die")
        wait_for(lambda: run("umount", self.mnt)[0] == 0 or run("umount", "-l", self.mnt)[0] == 0,
                 f"{self.mnt} cannot be unmounted")

    def power(self):
        """Everything begins anew, from what the disk has."""
        self.detach()
        self.say("revive")
        self.power_is_off = False
        self.attach()


# ---- one round -----------------------------------------------------------------------------


def window(world, rng, kind, works):
    """Seconds from the first failure that is possible to the last."""
    count = rng.choice([1, 1, 2, 3, 5, 20, 1000])
    end = time.monotonic() + rng.uniform(0.05, 0.7)
    before = sum(w.good for w in works)
    wait_for(lambda: sum(w.good for w in works) >= before + 2 or any(w.bad > 20 for w in works), "nothing works")
    world.say(f"fail {kind} {count}")
    while time.monotonic() < end and world.asked()["left"] > 0:
        time.sleep(0.01)


def afterwards(world, rng, works):
    """A while of health: some changes are promised again, unless the file system below has given up."""
    world.say("well")
    end = time.monotonic() + rng.uniform(0.1, 0.8)
    while time.monotonic() < end:
        time.sleep(0.01)


def one_round(world, rng, kind, end, files, names, wrong):
    works = [Work(world, [one], rng.random()) for one in files] + [Work(world, [names], rng.random())]
    reads = Reads(world, files, rng.random())
    good = 0
    for thread in works + [reads]:
        thread.start()
    window(world, rng, kind, works)
    if end != "cut" or rng.random() < 0.7:
        good = sum(w.good for w in works)
        afterwards(world, rng, works)
        good = sum(w.good for w in works) - good
    below = world.below_lives()
    if not world.daemon_lives():
        wrong.append("the daemon is dead")
    if end == "cut":
        world.cut()
    reads.ending = True
    if end == "cut":
        world.kill()
    for thread in works + [reads]:
        thread.ending = True
    for thread in works + [reads]:
        thread.join(PATIENCE)
        if thread.is_alive():
            raise AssertionError("a call does not return")
    if end != "cut":
        world.say("well")
        if below or rng.random() < 0.1:
            world.umount()
        else:
            world.kill()  # else it waits half a minute for the file system below to come back
    if end == "both":
        world.cut()
    wrong += [w for w in reads.wrong[:5] if below] + [w.strange for w in works if w.strange is not None]
    world.power()
    return sum(w.good for w in works), sum(w.bad for w in works), good


def look(world, files, names, wrong):
    status, out = run("fsck.varjfs", "-n", world.source)
    if status != 0:
        wrong.append(f"fsck.varjfs: status {status}: {out[-2000:]}")
    world.mount()
    for thing in files + [names]:
        thing.look(wrong)


def show(world, wrong):
    for line in wrong[:20]:
        print(line, flush=True)
    if os.path.exists(world.log):
        with open(world.log, encoding="utf-8") as f:
            print("".join(f.readlines()[-60:]), flush=True)


def main():
    top, device, source, mnt, fs = sys.argv[1:6]
    rounds, seed = int(sys.argv[6]), int(sys.argv[7])
    rng = random.Random(seed)
    world = World(top, device, source, mnt, fs)
    world.say(f"seed {seed}")
    world.attach()
    must("mkfs.varjfs", "-o", "objects=16K", source)
    world.mount()
    for name in ("files", "names"):
        os.mkdir(os.path.join(mnt, name))
    files = [File(os.path.join(mnt, "files"), f"f{i}") for i in range(FILES)]
    names = Names(os.path.join(mnt, "names"))
    names.sync()
    must("varjfsctl", "sync", mnt)
    total = {"good": 0, "bad": 0, "after": 0}
    plan = [(kind, end) for kind in KINDS for end in ENDS]
    for number in range(rounds):
        if number % len(plan) == 0:
            rng.shuffle(plan)
        kind, end = plan[number % len(plan)]
        wrong = []
        before = world.asked()
        try:
            good, bad, after = one_round(world, rng, kind, end, files, names, wrong)
            look(world, files, names, wrong)
        except (AssertionError, OSError, subprocess.TimeoutExpired) as e:
            wrong.append(f"{e}")
        if wrong:
            print(f"{fs}, seed {seed}, round {number} ({kind}, {end}):", flush=True)
            show(world, wrong)
            return 1
        failed = {key: value - before[key] for key, value in world.asked().items()
                  if key not in ("left",) and value > before[key]}
        print(f"{fs} {number}: {kind}, {end}: {good} promised ({after} after the window), {bad} errors, {failed}",
              flush=True)
        total["good"] += good
        total["bad"] += bad
        total["after"] += after
    world.umount()
    world.detach()
    counts = world.asked()
    failed = sum(counts[kind] for kind in ("meta", "log", "objects", "names", "all", "flush"))
    print(f"{fs}: {rounds} windows, {failed} requests failed, {total['good']} changes promised, "
          f"{total['after']} of them after a window, {total['bad']} errors", flush=True)
    return 0 if failed > 0 and total["after"] > 0 and total["bad"] > 0 else 1


sys.exit(main())
