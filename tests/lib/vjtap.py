# SPDX-License-Identifier: LGPL-3.0-or-later
"""What mount tests in Python share: TAP, a directory for each test, the edit ioctls.

A test is a function with the decorator @test; it gets a fresh directory of the mount and fails
by an exception.  main() runs them all and prints TAP.
"""

import ctypes
import errno
import fcntl
import os
import shutil
import struct
import sys
import time
import traceback

TESTS = []


def test(function):
    TESTS.append(function)
    return function


class Skip(Exception):
    """Raised by a test that cannot run here; says why."""


def main(top, only=None, prefix=""):
    failed = 0
    chosen = [t for t in TESTS if (only or "") in t.__name__ and t.__name__.startswith(prefix)]
    for number, function in enumerate(chosen, 1):
        directory = os.path.join(top, function.__name__)
        name = function.__name__.replace("_", " ")
        try:
            os.mkdir(directory)
            function(directory)
            print(f"ok {number} - {name}", flush=True)
        except Skip as why:
            print(f"ok {number} - {name} # SKIP {why}", flush=True)
        except BaseException:
            failed += 1
            print(f"not ok {number} - {name}", flush=True)
            for line in traceback.format_exc().splitlines():
                print("# " + line, flush=True)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    print(f"1..{len(chosen)}", flush=True)
    return 1 if failed else 0


def eq(got, expected, what=""):
    if got != expected:
        def short(v):
            text = repr(v)
            return text if len(text) < 300 else text[:150] + " … " + text[-100:]
        raise AssertionError(f"{what}: got {short(got)}, expected {short(expected)}")


def raises(number, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except OSError as e:
        if e.errno != number:
            raise AssertionError(f"got {errno.errorcode.get(e.errno, e.errno)}, "
                                 f"expected {errno.errorcode[number]}") from e
        return
    raise AssertionError(f"expected {errno.errorcode[number]}, nothing was raised")


def write_file(path, data):
    with open(path, "wb") as f:
        f.write(data)


def read_file(path):
    with open(path, "rb") as f:
        return f.read()


def pattern(size, seed=1):
    """Bytes in which every 8 differ, so that what is in the wrong place is seen."""
    out = bytearray()
    n = seed << 32
    while len(out) < size:
        out += struct.pack("<Q", n * 0x9E3779B97F4A7C15 & (1 << 64) - 1)
        n += 1
    return bytes(out[:size])


def wait_for(what, seconds=20):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise AssertionError("what was waited for did not happen")
        time.sleep(0.005)


def process_gone(pid):
    """As process_gone of mount.sh: a zombie has ended, when its last thread has."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            state = f.read().rpartition(") ")[2][:1]
        return state in ("Z", "X") and len(os.listdir(f"/proc/{pid}/task")) == 1
    except (FileNotFoundError, ProcessLookupError):
        return True


# ---- system calls that Python lacks --------------------------------------------------------

libc = ctypes.CDLL(None, use_errno=True)


def _check(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def ioctl(fd, command, buf):
    """As fcntl.ioctl, which holds the interpreter's lock while it waits."""
    _check(libc.ioctl(fd, ctypes.c_ulong(command), (ctypes.c_char * len(buf)).from_buffer(buf)))


# ---- <varjfs/ioctl.h> ---------------------------------------------------------------------

IOC_MAX = 16383
VERSION = 3
EDIT = struct.Struct("=IIQQQQQIIQQ")
STAGE = struct.Struct("=IIQQQ")
EDIT_APPEND = 1
EDIT_STAGED = 2
EDIT_HOLE = 4
EDIT_INSIDE = 8
EDIT_ANY_SIZE = 16
EDIT_LIMITED = 32
# Changes that come between the two calls of an edit, before it is given up.
EDIT_TRIES = 100000
SHIFT = struct.Struct("=IIQQQQQQIIQQ")
SHIFT_LOOK = 1
SHIFT_DOWN = 2
SHIFT_STAGED = 4
STAGE_DROP = 1
CARRY_NOTHING, CARRY_FALLOCATE, CARRY_FTRUNCATE, CARRY_FALLOCATE_SEEK, \
    CARRY_FALLOCATE_FTRUNCATE = range(5)


def _ioc(direction, number, size):
    return direction << 30 | size << 16 | 0x96 << 8 | number


IOC_SYNC = _ioc(0, 3, 0)
IOC_PING = _ioc(0, 4, 0)
IOC_TEXT = _ioc(3, 5, 4 + 4 + 8 + 8 + 8192)


def carry_out(fd, call, mode, offset, length):
    """The call that the answer to a staged edit names."""
    if call == CARRY_FALLOCATE_FTRUNCATE:
        fallocate(fd, mode, offset, 1)
    if call in (CARRY_FTRUNCATE, CARRY_FALLOCATE_FTRUNCATE):
        os.ftruncate(fd, length)
    elif call != CARRY_NOTHING:
        fallocate(fd, mode, offset, length)
    if call == CARRY_FALLOCATE_SEEK:
        try:
            os.lseek(fd, -1 << 63, os.SEEK_END)
        except OSError as e:
            if e.errno != errno.EINVAL:
                raise


def stage_edit(fd, offset, old_len, data=b"", flags=0, stage_id=0, version=VERSION,
               length=None):
    """Returns the fields as the ioctl fills them: (offset, size, (call, mode, offset, length))."""
    head = EDIT.pack(version, flags, offset, old_len,
                     len(data) if length is None else length, stage_id, 0, 0, 0, 0, 0)
    body = b"" if flags & EDIT_STAGED else data
    buf = bytearray(head + body)
    ioctl(fd, _ioc(3, 1, len(buf)), buf)
    out = EDIT.unpack(buf[:EDIT.size])
    return out[2], out[6], out[7:]


def edit_drop(fd):
    """Where the ioctl says that the edit was, or would have been."""
    buf = bytearray(EDIT.pack(VERSION, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
    ioctl(fd, _ioc(3, 11, len(buf)), buf)
    return EDIT.unpack(buf)[2]


def edit(fd, offset, old_len, data=b"", flags=0, stage_id=0, version=VERSION, length=None):
    """Returns (offset, size) as the ioctl fills them.  Again while others change the size or read the
    end; each third time all the same where it takes more than it brings."""
    is_less = (len(data) if length is None else length) < old_len
    for tries in range(1, EDIT_TRIES):
        any_size = EDIT_ANY_SIZE if is_less and tries % 3 == 0 else 0
        at, size, carry = stage_edit(fd, offset, old_len, data, flags | any_size, stage_id, version, length)
        try:
            carry_out(fd, *carry)
            return at, size
        except BlockingIOError:
            pass
    raise BlockingIOError(errno.EAGAIN, f"overtaken {EDIT_TRIES} times")


def look(fd, **fields):
    """(change, size) as VARJFS_SHIFT_LOOK fills them."""
    buf = bytearray(SHIFT.pack(fields.get("version", VERSION),
                               SHIFT_LOOK | fields.get("flags", 0),
                               fields.get("offset", 0), 0, 0, 0, 0, 0, 0, 0, 0, 0))
    ioctl(fd, _ioc(3, 10, len(buf)), buf)
    return SHIFT.unpack(buf)[6:8]


def shift(fd, offset, length, data, change, flags=0, stage_id=0, version=VERSION,
          data_len=None):
    """Returns the size of the file."""
    head = SHIFT.pack(version, flags, offset, length,
                      len(data) if data_len is None else data_len, stage_id, change, 0, 0, 0, 0, 0)
    buf = bytearray(head + (b"" if flags & SHIFT_STAGED else data))
    ioctl(fd, _ioc(3, 10, len(buf)), buf)
    out = SHIFT.unpack(buf[:SHIFT.size])
    carry_out(fd, *out[8:])
    return out[7]


def stage(fd, stage_id, offset, data, flags=0, version=VERSION):
    buf = bytearray(STAGE.pack(version, flags, stage_id, offset, len(data)) + data)
    ioctl(fd, _ioc(3, 2, len(buf)), buf)
    return STAGE.unpack(buf[:STAGE.size])[2]


def big_edit(fd, offset, old_len, data, flags=0):
    step = IOC_MAX - STAGE.size
    number = 0
    for at in range(0, len(data), step):
        number = stage(fd, number, at, data[at:at + step])
    return edit(fd, offset, old_len, data, flags | EDIT_STAGED, number)


def text(fd, what):
    out, cursor = b"", 0
    while cursor != (1 << 64) - 1:
        buf = bytearray(struct.pack("=IIQQ", VERSION, what, cursor, 0) + bytes(8192))
        ioctl(fd, IOC_TEXT, buf)
        _, _, cursor, length = struct.unpack("=IIQQ", buf[:24])
        out += buf[24:24 + length]
    return out.decode()


def fallocate(fd, mode, offset, length):
    _check(libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)))


RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2


def renameat2(old, new, flags):
    _check(libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags))


SYS_getdents64 = {"x86_64": 217, "i686": 220}.get(os.uname().machine, 61)


def getdents(fd, size):
    """What one call lists of a directory: name -> inode, as the directory itself says."""
    buf = bytearray(size)
    n = _check(libc.syscall(SYS_getdents64, fd, (ctypes.c_char * size).from_buffer(buf),
                            ctypes.c_size_t(size)))
    entries, at = {}, 0
    while at < n:
        ino, _, length, _ = struct.unpack_from("=QqHB", buf, at)
        name = bytes(buf[at + 19:at + length]).split(b"\0")[0]
        entries[os.fsdecode(name)] = ino
        at += length
    return entries
