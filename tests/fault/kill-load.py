# SPDX-License-Identifier: LGPL-3.0-or-later
"""What kill-load.sh runs beside mount-model: kill-load.py {run|verify} DIR ROUND PID RECORD

run      fio writes into new files of DIR until process PID, the daemon, is dead.  Then every kind of call
         on the dead mount has to end, with ENOTCONN or ECONNABORTED.  RECORD says what fio was told is
         durable.  The process closes all that it had open, so that the mount can be taken away.
verify   after the next mount: those files have at least that, and every block of them is whole.  They
         are removed.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import select
import signal
import subprocess
import sys
import time

# Seconds that a call on a dead mount, or fio, may take: none is meant to, but machines are slow.
PATIENCE = 120
DEAD = (errno.ENOTCONN, errno.ECONNABORTED)
# A request that the kernel was copying to the daemon when that died gets EIO.
DYING = DEAD + (errno.EIO,)

# name: options; block size; how many writes make one synchronised group.
JOBS = {
    "dsync": (["--sync=dsync"], 4096, 1),
    "fsync": (["--fsync=8"], 12288, 8),
    "direct": (["--sync=dsync", "--direct=1"], 65536, 1),
}
SIZE = 48 << 20
COMMON = ["--rw=write", "--ioengine=psync", "--verify=crc32c", "--verify_state_save=0", "--fallocate=none",
          "--allow_file_create=1", "--thread=1", "--verify_fatal=1"]


def fio(directory, name, round_number, size, *more):
    options, block, _ = JOBS[name.split("-")[0]]
    return ["fio", f"--name={name}", f"--directory={directory}", f"--filename={name}", f"--bs={block}",
            f"--randseed={round_number}", f"--size={size}", *COMMON, *options, *more]


# ---- run -----------------------------------------------------------------------------------


def acknowledged(name, report):
    """Bytes from the start of the file that fio was told are durable."""
    text = report[report.index("{"):]
    job = json.JSONDecoder().raw_decode(text)[0]["jobs"][0]
    _, block, group = JOBS[name.split("-")[0]]
    count = job["write"]["io_bytes"] // block
    # A group whose last write has ended may still have been in its fsync.
    return job["error"], (count - (group > 1)) // group * group * block if count else 0


def outcome(call):
    """What a call came to: an errno's name, or "done"."""
    try:
        call()
    except OSError as e:
        return errno.errorcode[e.errno]
    return "done"


def touch_mapping(mapping):
    """In a child, because a page that the daemon cannot bring is SIGBUS."""
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)
        for at in range(0, len(mapping), mmap.PAGESIZE):
            _ = mapping[at]
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    return status == 0 or os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGBUS


class Probe:
    """Somebody who has files of the mount open when it dies."""

    def __init__(self, directory):
        self.directory = directory
        self.path = os.path.join(directory, "probe")
        self.bytes = os.urandom(1 << 20)
        with open(self.path, "wb") as f:
            f.write(self.bytes)
        self.fd = os.open(self.path, os.O_RDWR)
        self.dir_fd = os.open(directory, os.O_RDONLY)
        os.fsync(self.fd)
        self.mapping = mmap.mmap(self.fd, len(self.bytes))
        # Half of the pages are in the cache, and a dirty one.
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.pread(self.fd, 1 << 19, 0)
        self.mapping[5] = self.bytes[5]

    def read(self):
        # What the kernel has may still be read, if it is right.
        for at in range(0, len(self.bytes), 65536):
            assert os.pread(self.fd, 65536, at) == self.bytes[at:at + 65536], "wrong bytes"

    def calls(self):
        path, new, fd = self.path, os.path.join(self.directory, "new"), self.fd
        # The first of them that reaches the daemon fails; what the kernel knows it may still say.
        known = {"read", "lseek", "fstat", "stat", "close", "readdir", "access", "listxattr"}
        calls = {
            "write": lambda: os.pwrite(fd, b"x", 0),
            "read": self.read,
            "lseek": lambda: os.lseek(fd, 0, os.SEEK_END),
            "fstat": lambda: os.fstat(fd),
            "stat": lambda: os.stat(path),
            "access": lambda: os.access(path, os.R_OK),
            "fsync": lambda: os.fsync(fd),
            "fdatasync": lambda: os.fdatasync(fd),
            "msync": self.mapping.flush,
            "truncate": lambda: os.ftruncate(fd, 17),
            "fallocate": lambda: os.posix_fallocate(fd, 0, 1 << 21),
            "ioctl": lambda: fcntl.ioctl(fd, 0x5601, bytes(64)),
            "fsync of the directory": lambda: os.fsync(self.dir_fd),
            "readdir": lambda: os.listdir(self.directory),
            "create": lambda: os.open(new, os.O_CREAT | os.O_WRONLY),
            "open": lambda: os.open(path, os.O_RDONLY),
            "mkdir": lambda: os.mkdir(new),
            "rename": lambda: os.rename(path, new),
            "link": lambda: os.link(path, new),
            "symlink": lambda: os.symlink("x", new),
            "unlink": lambda: os.unlink(path),
            "chmod": lambda: os.chmod(path, 0o600),
            "utimes": lambda: os.utime(path),
            "setxattr": lambda: os.setxattr(path, "user.a", b"b"),
            "getxattr": lambda: os.getxattr(path, "user.a"),
            "listxattr": lambda: os.listxattr(path),
            "statfs": lambda: os.statvfs(path),
        }
        return known, calls

    def look(self):
        """Every call on the dead mount ends, and as it should."""
        known, calls = self.calls()
        wrong = []
        for name, call in calls.items():
            signal.alarm(PATIENCE)
            got = outcome(call)
            if got not in [errno.errorcode[e] for e in DEAD] and not (got == "done" and name in known):
                wrong.append(f"{name}: {got}")
        if not touch_mapping(self.mapping):
            wrong.append("a mapping: neither its bytes nor SIGBUS")
        return wrong

    def close(self):
        """close(2) may tell of the dirty page."""
        # The module has a descriptor of its own, and would tell nobody.
        self.mapping.close()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.close(self.fd) != 0 and ctypes.get_errno() not in DYING:
            return [f"close: {errno.errorcode[ctypes.get_errno()]}"]
        os.close(self.dir_fd)
        return []


def has_begun(path):
    return os.path.exists(path) and os.stat(path).st_size > 0


def run(directory, round_number, pid, record):
    daemon = os.pidfd_open(pid)
    probe = Probe(directory)
    fios = {}
    for job in JOBS:
        name = f"{job}-{round_number}"
        fios[name] = subprocess.Popen(
            fio(directory, name, round_number, SIZE, "--do_verify=0", "--output-format=json"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for name, process in fios.items():
        while process.poll() is None and not has_begun(os.path.join(directory, name)):
            time.sleep(0.01)
    print("at work", flush=True)
    select.select([daemon], [], [])
    wrong = probe.look()
    with open(record, "w", encoding="ascii") as f:
        for name, process in fios.items():
            out, err = process.communicate(timeout=PATIENCE)
            error, durable = acknowledged(name, out)
            if error not in (0, *DYING):
                wrong.append(f"fio {name}: {error}: {err} {out[:300]}")
            f.write(f"{name} {durable}\n")
    wrong += probe.close()
    for line in wrong:
        print(f"kill-load: {line}")
    print("ended")
    return 1 if wrong else 0


# ---- verify --------------------------------------------------------------------------------


def verify(directory, round_number, record):
    wrong = 0
    total = 0
    with open(record, encoding="ascii") as f:
        promised = {name: int(size) for name, size in map(str.split, f)}
    for name, durable in promised.items():
        path = os.path.join(directory, name)
        block = JOBS[name.split("-")[0]][1]
        size = os.stat(path).st_size if durable or os.path.exists(path) else 0
        total += durable
        if size < durable:
            print(f"kill-load: {name}: {size} bytes, but {durable} were durable")
            wrong = 1
        if size >= block:
            # Every whole block, also of those that were not synchronised.
            command = fio(directory, name, round_number, size // block * block, "--verify_only", "--do_verify=1")
            result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if result.returncode != 0:
                print(f"kill-load: {name}: {size} bytes, {durable} durable: {result.stdout}")
                wrong = 1
        if os.path.exists(path):
            os.unlink(path)
    print(f"{total >> 10} KiB of fio were durable")
    return wrong


def main():
    what, directory, round_number, pid, record = sys.argv[1:]
    if what == "run":
        sys.exit(run(directory, int(round_number), int(pid), record))
    sys.exit(verify(directory, int(round_number), record))


main()
