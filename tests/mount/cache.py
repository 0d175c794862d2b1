#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""The page-cache rules of src/front/README.md, each forced by requests that the daemon holds up
(src/front/delay.c): cache.py MOUNTPOINT GROUP

The names of the tests begin with the group, which says how cache.sh has mounted.  VJ_HOLD is
the directory of the fifos."""

import ctypes
import errno
import fcntl
import mmap
import os
import random
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from vjtap import *  # noqa: E402,F403

PAGE = 4096
MIB = 1 << 20
RWF_NOAPPEND = 0x20  # Linux 6.9
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_APPEND_FL = 0x80086601, 0x40086602, 0x20


def opened(path, data):
    write_file(path, data)
    return os.open(path, os.O_RDWR)


def later(function, *args):
    """Runs in a thread; join() gives the exception back."""
    class Later(threading.Thread):
        error = None

        def run(self):
            try:
                function(*args)
            except BaseException as e:
                self.error = e

        def done(self):
            self.join(60)
            if self.is_alive():
                raise AssertionError("did not come back within a minute")
            if self.error is not None:
                raise self.error

    t = Later(daemon=True)
    t.start()
    return t


class Child:
    """Runs in a process: who touches a mapping keeps the interpreter's lock while it waits."""

    def __init__(self, function, *args):
        self.pid = os.fork()
        if self.pid == 0:
            try:
                function(*args)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        self.status = None

    def is_alive(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid else None
        return self.status is None

    def join(self, seconds):
        end = time.monotonic() + seconds
        while self.is_alive() and time.monotonic() < end:
            select.select([], [], [], 0.01)

    def done(self):
        self.join(60)
        if self.is_alive():
            os.kill(self.pid, signal.SIGKILL)
            raise AssertionError("did not come back within a minute")
        eq(self.status, 0, "the child")


class Hold:
    """While it is entered, requests stop at @point in the daemon."""

    def __init__(self, point):
        self.names = [os.path.join(os.environ["VJ_HOLD"], point + end) for end in (".go", "")]

    def __enter__(self):
        for name in self.names:
            os.mkfifo(name)
        self.go, self.told = [os.open(name, os.O_RDWR) for name in self.names]
        return self

    def has_arrived(self):
        return bool(select.select([self.told], [], [], 0)[0])

    def arrived(self, count=1):
        """Waits until @count more requests stand there."""
        for _ in range(count):
            assert select.select([self.told], [], [], 60)[0], "nothing came within a minute"
            os.read(self.told, 1)

    def release(self, count=1):
        os.write(self.go, bytes(count))

    def __exit__(self, *_):
        """Whoever stands there goes on."""
        for name in self.names:
            os.unlink(name)
        os.close(self.go)
        os.close(self.told)


def stored(path, size):
    """What the daemon holds, past the kernel's cache."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    m = mmap.mmap(-1, (size + 2 * PAGE) // PAGE * PAGE)
    n = os.preadv(fd, [m], 0)
    os.close(fd)
    return m[:n]


class Invalidations:
    """Notifications of one file's attributes or pages since the last look, by the daemon's trace."""

    def __init__(self, fd):
        self.wanted = "ino %d: invalidate " % os.fstat(fd).st_ino
        self.log = open(os.environ["VJ_TRACE"])
        self.log.seek(0, os.SEEK_END)

    def count(self):
        """A notification is traced before the answer to the edit."""
        return sum(self.wanted in line for line in self.log)


@test
def few_dirty_mappings_of_more_files_than_threads(d):
    """Every edit makes the kernel write pages back to us: were the notifications sent by the
    threads that serve requests, all of them would hold an edit whose WRITE nobody takes."""
    count = 20
    files = []
    for i in range(count):
        fd = opened(d + "/f%d" % i, bytes(2 * PAGE))
        files.append((fd, mmap.mmap(fd, 2 * PAGE)))
    for i, (fd, m) in enumerate(files):
        m[PAGE:PAGE + 8] = b"mark%04d" % i
    threads = [later(edit, fd, 0, 0, b"x" * 100) for fd, _ in files]
    for t in threads:
        t.done()
    for i, (fd, m) in enumerate(files):
        eq(os.pread(fd, 3 * PAGE, 0), bytes(100).replace(b"\0", b"x") + bytes(PAGE) +
           b"mark%04d" % i + bytes(PAGE - 8))
        m.close()
        os.close(fd)


@test
def plain_mapped_stores_before_an_edit_move_with_it(d):
    data = pattern(8 * PAGE)
    fd = opened(d + "/f", data)
    m = mmap.mmap(fd, 8 * PAGE)
    for page in (0, 3, 6):
        m[page * PAGE + 10:page * PAGE + 20] = b"mmapstore%d" % page
        data = (data[:page * PAGE + 10] + b"mmapstore%d" % page + data[page * PAGE + 20:])
    edit(fd, 3 * PAGE + 5, 0, b"!" * 1000)
    expected = data[:3 * PAGE + 5] + b"!" * 1000 + data[3 * PAGE + 5:]
    eq(os.pread(fd, 10 * PAGE, 0), expected)
    m.flush()
    eq(stored(d + "/f", len(expected)), expected)
    m.close()
    os.close(fd)


@test
def held_edits_of_different_files_do_not(d):
    fds = [opened(d + "/f%d" % i, b"0" * PAGE) for i in range(4)]
    with Hold("apply") as held:
        threads = [later(edit, fd, 0, 0, b"x") for fd in fds]
        held.arrived(len(fds))
    for t in threads:
        t.done()
    for fd in fds:
        os.close(fd)


def write_and_read(fd, data, offset, size, got):
    """What a cached read right behind the write(2) returns."""
    if offset is None:
        os.write(fd[1], data)
    else:
        os.pwrite(fd[0], data, offset)
    got.append(os.pread(fd[0], size, 0))


@test
def held_a_reader_that_closes_writes_nothing_back(d):
    """A page that holds the end is dirty by a mapped store, a write makes the file longer, and
    somebody who has only read closes it: were the page written back by that, the kernel would
    clear what lies behind the end that it knows, which is what the write has just brought."""
    p = d + "/f"
    data = pattern(2 * PAGE + 100)
    fd = opened(p, data)
    m = mmap.mmap(fd, 2 * PAGE + 100)
    m[2 * PAGE + 10:2 * PAGE + 14] = b"mark"
    got = []
    with Hold("write_reply") as held:
        t = later(write_and_read, (fd,), b"W" * 200, 2 * PAGE + 100, 4 * PAGE, got)
        held.arrived()
        reader = os.open(p, os.O_RDONLY)
        eq(len(os.pread(reader, PAGE, 0)), PAGE)
        later(os.close, reader).done()
        held.release()
        t.done()
    expected = data[:2 * PAGE + 10] + b"mark" + data[2 * PAGE + 14:] + b"W" * 200
    eq(got[0], expected)
    eq(stored(p, len(expected)), expected)
    m.close()
    os.close(fd)


@test
def plain_edits_between_pages_that_come_and_go(d):
    """Edits that find no page behind them invalidate none: whatever brings pages has to be seen.
    Few pages are touched between two edits, so that there are edits of both kinds."""
    chance = random.Random(5)
    data = bytearray(pattern(40 * PAGE))
    fd = opened(d + "/f", data)
    appender = os.open(d + "/f", os.O_RDWR | os.O_APPEND)
    direct = os.open(d + "/f", os.O_RDONLY | os.O_DIRECT)
    buffer, mapping = mmap.mmap(-1, PAGE), mmap.mmap(fd, 40 * PAGE)
    written = 0
    for step in range(2500):
        text = pattern(chance.choice((1, 100, PAGE, 2 * PAGE)), step + 2)
        at = chance.randrange(len(data))
        page = at // PAGE * PAGE
        kind = chance.randrange(13)
        if kind < 6:
            old = chance.choice((0, 1, PAGE, len(text))) if len(data) > 30 * PAGE else 0
            text = text if len(data) < 60 * PAGE else b""
            edit(fd, at, old, text)
            data[at:at + old] = text
        elif kind < 8:
            at = chance.choice((at, written))
            eq(os.pread(fd, len(text), at), bytes(data[at:at + len(text)]), step)
        elif kind == 8:
            at = written = chance.choice((at, page))  # a whole page is one without a READ
            os.pwrite(fd, text, at)
            data[at:at + len(text)] = text
        elif kind == 9:
            os.write(appender, text)
            data += text
        elif kind == 10 and at + 8 < min(len(data), 40 * PAGE):
            mapping[at:at + 8] = data[at:at + 8] = b"mmapped!"
        elif kind == 11:
            n = os.preadv(direct, [buffer], page)
            eq(buffer[:n], bytes(data[page:page + PAGE]), step)
        elif kind == 12:
            size = max(len(data) + chance.choice((-PAGE, -10, 10, PAGE)), PAGE)
            os.ftruncate(fd, size)
            data = data[:size] + bytes(max(0, size - len(data)))
    eq(os.pread(fd, len(data) + PAGE, 0), bytes(data))
    mapping.flush()
    eq(stored(d + "/f", len(data)), bytes(data))
    mapping.close()
    for f in (fd, appender, direct):
        os.close(f)


@test
def plain_a_mapping_reaches_the_new_end(d):
    for where, old, new in ((PAGE, 0, 5000), (10, 0, 3 * PAGE), (PAGE - 1, 1, PAGE + 2)):
        p = d + "/f"
        fd = opened(p, pattern(PAGE))
        libc.mmap.restype = ctypes.c_void_p
        address = libc.mmap(None, ctypes.c_size_t(4 * PAGE), 3, 1, fd, ctypes.c_long(0))
        assert address not in (None, ctypes.c_void_p(-1).value)
        pid = os.fork()
        if pid == 0:
            _, size = edit(fd, where, old, b"n" * new)
            last = ctypes.string_at(address + size - 1, 1)
            os._exit(0 if last == os.pread(fd, 1, size - 1) else 1)
        _, status = os.waitpid(pid, 0)
        eq(status, 0, "SIGBUS" if os.WIFSIGNALED(status) and
           os.WTERMSIG(status) == signal.SIGBUS else "status")
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(4 * PAGE))
        os.close(fd)


@test
def plain_append_goes_to_the_real_end(d):
    for delta, old, new in ((-PAGE, PAGE, b""), (100, 0, b"i" * 100), (-5, 5, b"")):
        p = d + "/f"
        data = pattern(3 * PAGE)
        fd = opened(p, data)
        end = os.open(p, os.O_WRONLY | os.O_APPEND)
        eq(os.pread(fd, 4 * PAGE, 0), data)
        edit(fd, 10, old, new)
        os.write(end, b"tail" * 10)
        expected = data[:10] + new + data[10 + old:] + b"tail" * 10
        eq(os.pread(fd, 5 * PAGE, 0), expected)
        eq(stored(p, len(expected)), expected)
        eq(os.fstat(fd).st_size, len(expected))
        eq(os.lseek(end, 0, os.SEEK_END), len(expected))
        os.close(fd)
        os.close(end)


def write_back(fd):
    """All dirty pages, and no fsync."""
    r = ctypes.CDLL(None).sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0), 7)
    assert r == 0, "sync_file_range"


def direct(size):
    return mmap.mmap(-1, (size + PAGE - 1) // PAGE * PAGE)


def arrives_nowhere(held, thread, moments=20):
    """@thread waits in the kernel: no request of its comes to @held."""
    for _ in range(moments):
        thread.join(0.01)
        assert not held.has_arrived(), "a request came beside the edit"
    assert thread.is_alive(), "the call is over beside the edit"


KINDS = ((100, 0, b"longer" * 50), (100, 300, b""), (100, 300, b"other" * 60), (100, 7, b"shorter"[:3]))


@test
def held_whatever_changes_content_waits_for_an_edit(d):
    """The kernel holds the lock of the inode: a write, an append and a truncation begin when the edit is
    answered, and find the file as it is then."""
    p = d + "/f"
    for offset, old, new in KINDS:
        data = pattern(2 * PAGE + 100)
        edited = data[:offset] + new + data[offset + old:]
        for change, point, expected in (
                (lambda fd, end: os.pwrite(fd, b"W" * PAGE, PAGE + 10), "write",
                 edited[:PAGE + 10] + b"W" * PAGE + edited[2 * PAGE + 10:]),
                (lambda fd, end: os.write(end, b"tail" * 141), "write", edited + b"tail" * 141),
                (lambda fd, end: os.ftruncate(fd, PAGE), "write", edited[:PAGE])):
            fd = opened(p, data)
            end = os.open(p, os.O_WRONLY | os.O_APPEND)
            eq(os.pread(fd, 4 * PAGE, 0), data)
            with Hold("edit") as applied, Hold(point) as held:
                t = later(edit, fd, offset, old, new)
                applied.arrived()
                w = later(change, fd, end)
                arrives_nowhere(held, w)
                applied.release()
                t.done()
                held.release(9)
                w.done()
            eq(os.pread(fd, 4 * PAGE, 0), expected)
            eq(stored(p, len(expected)), expected)
            eq((os.fstat(fd).st_size, os.lseek(end, 0, os.SEEK_END)), (len(expected),) * 2)
            os.close(fd)
            os.close(end)
            os.unlink(p)


@test
def held_a_read_that_was_served_before_the_edit(d):
    """Its page is there when the answer is: after the edit it must not be."""
    p = d + "/f"
    for offset, old, new in KINDS:
        data = pattern(3 * PAGE)
        fd = opened(p, data)
        edit(fd, 0, 1, b"xy"[:2])  # from now on it is known what the kernel holds
        edit(fd, 0, 2, data[:1])
        with Hold("read_reply") as held:
            r = later(os.pread, fd, 3 * PAGE, 0)
            held.arrived()
            t = later(edit, fd, offset, old, new)
            t.join(0.2)
            assert t.is_alive(), "the edit did not wait for a page that was on its way"
            held.release(9)
            r.done()
            t.done()
        expected = data[:offset] + new + data[offset + old:]
        eq(os.pread(fd, 4 * PAGE, 0), expected)
        eq(stored(p, len(expected)), expected)
        os.close(fd)
        os.unlink(p)


@test
def held_reads_of_pages_wait_until_the_answer(d):
    """Then they bring the new content, and what is stored into it stays where it was stored; also where the
    kernel did not know of the new end yet and the page is written back."""
    p = d + "/f"
    for moment in ("apply", "edit"):
        for offset, old, new in KINDS:
            data = pattern(PAGE + 700)
            fd = opened(p, data)
            m = mmap.mmap(fd, len(data))
            edit(fd, 0, 0, b"x")
            edit(fd, 0, 1, b"")
            at = PAGE + 20

            def store():
                m[at:at + 4] = b"MARK"
                write_back(fd)

            with Hold(moment) as held:
                t = later(edit, fd, offset, old, new)
                held.arrived()
                s = Child(store)
                s.join(0.2)
                assert s.is_alive(), "a page came beside an edit"
                held.release()
                t.done()
                s.done()
            expected = data[:offset] + new + data[offset + old:]
            expected = expected[:at] + b"MARK" + expected[at + 4:]
            eq(os.pread(fd, 4 * PAGE, 0), expected, (moment, offset, old, new))
            eq(stored(p, len(expected)), expected, (moment, offset, old, new))
            m.close()
            os.close(fd)
            os.unlink(p)


@test
def held_a_page_that_is_being_written_back(d):
    """Its WRITE is on its way in old coordinates when the edit comes."""
    p = d + "/f"
    for offset, old, new in KINDS:
        data = pattern(4 * PAGE)
        fd = opened(p, data)
        m = mmap.mmap(fd, len(data))
        edit(fd, 0, 0, b"x")
        edit(fd, 0, 1, b"")
        m[2 * PAGE + 5:2 * PAGE + 9] = b"MARK"
        with Hold("pages") as held:
            w = Child(m.flush)
            held.arrived()
            t = later(edit, fd, offset, old, new)
            t.join(0.2)
            assert t.is_alive(), "the edit did not wait for the page"
            held.release(9)
            w.done()
            t.done()
        data = data[:2 * PAGE + 5] + b"MARK" + data[2 * PAGE + 9:]
        expected = data[:offset] + new + data[offset + old:]
        eq(stored(p, len(expected)), expected)
        eq(os.pread(fd, 5 * PAGE, 0), expected)
        m.close()
        os.close(fd)
        os.unlink(p)


@test
def beside_stores_between_stage_and_edit_move_with_it(d):
    """By ftruncate(2) the kernel writes them back after the edit, in old coordinates."""
    p = d + "/f"
    for offset, old, new in KINDS + ((2 * PAGE + 104, PAGE, b""), (PAGE - 3, 10, b"abc")):
        data = pattern(8 * PAGE)
        fd = opened(p, data)
        m = mmap.mmap(fd, len(data))
        eq(m[:], data)
        carry = stage_edit(fd, offset, old, new)[2]
        for page in (0, 2, 3, 5):
            at = page * PAGE + 1000
            m[at:at + 8] = b"STORE%03d" % page
            data = data[:at] + b"STORE%03d" % page + data[at + 8:]
        carry_out(fd, *carry)
        expected = data[:offset] + new + data[offset + old:]
        eq(stored(p, len(expected)), expected, (offset, old, new))
        eq(os.pread(fd, 9 * PAGE, 0), expected, (offset, old, new))
        m.close()
        os.close(fd)
        os.unlink(p)


@test
def held_a_store_between_the_two_calls_is_whole(d):
    """It goes over the new end, behind which the kernel would drop what was stored."""
    data = pattern(PAGE + 700)
    fd = opened(d + "/f", data)
    m = mmap.mmap(fd, len(data))
    eq(m[:], data)
    with Hold("flushed") as held:
        t = later(edit, fd, 10, 2, b"")
        held.arrived()
        m[len(data) - 4:] = b"MARK"
        held.release(2)
        t.done()
    data = data[:10] + data[12:-4] + b"MARK"
    eq(stored(d + "/f", len(data)), data)
    eq(os.pread(fd, 3 * PAGE, 0), data)
    m.close()
    os.close(fd)


def begin_edit(fd, offset, old_len, flags=0):
    """Stages it and makes the first of two calls, if there are two; returns what ftruncate(2) is told."""
    call, mode, at, size = stage_edit(fd, offset, old_len, b"", flags)[2]
    eq(call in (CARRY_FTRUNCATE, CARRY_FALLOCATE_FTRUNCATE), True)
    if call == CARRY_FALLOCATE_FTRUNCATE:
        fallocate(fd, mode, at, 1)
    return size


@test
def plain_pages_that_come_between_the_two_calls(d):
    """Behind the new end they are a reason to begin anew, as often as they come and for whoever
    has begun; where the caller says so it is carried out all the same."""
    data = pattern(4 * PAGE)
    fds = [opened(d + "/f", data), os.open(d + "/f", os.O_RDWR)]
    m = mmap.mmap(fds[0], 4 * PAGE)
    eq(m[:], data)
    for i in range(5):
        sizes = [begin_edit(fd, 10, 2) for fd in fds]
        m[4 * PAGE - 4:] = b"MRK%d" % i
        for fd, size in zip(fds, sizes):
            raises(errno.EAGAIN, os.ftruncate, fd, size)
        data = data[:-4] + b"MRK%d" % i
        eq(stored(d + "/f", len(data)), data)
    size = begin_edit(fds[0], 10, 2, EDIT_ANY_SIZE)
    eq(m[3 * PAGE:], data[3 * PAGE:])
    os.ftruncate(fds[0], size)
    data = data[:10] + data[12:]
    eq(os.pread(fds[0], 5 * PAGE, 0), data)
    m.close()
    size = begin_edit(fds[0], 2 * PAGE, 2)  # becomes nothing
    os.truncate(d + "/f", PAGE + 5)
    eq(os.pread(fds[0], 2 * PAGE, 0), data[:PAGE + 5])
    os.ftruncate(fds[0], size)
    eq(os.pread(fds[0], 2 * PAGE, 0), data[:PAGE + 5])
    for fd in fds:
        os.close(fd)


@test
def plain_parts_of_a_direct_append_stay_in_order(d):
    """The kernel sends a long one as many WRITEs at the same time."""
    size = 16 * MIB
    with mmap.mmap(-1, size) as data:
        for at in range(0, size, 65536):
            data[at:at + 65536] = struct.pack("<Q", at) * 8192
        for i in range(12):
            p = f"{d}/f{i}"
            fd = os.open(p, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_DIRECT)
            for _ in range(2):
                eq(os.write(fd, data), size)
            os.close(fd)
            with open(p, "rb") as f:
                eq(f.read() == data[:] + data[:], True, f"round {i}")
            os.unlink(p)


def needs_noappend():
    with tempfile.TemporaryFile() as f:
        try:
            os.pwritev(f.fileno(), [b"x"], 0, RWF_NOAPPEND)
        except OSError as e:
            raise Skip("the kernel has no RWF_NOAPPEND") from e


def content(name):
    """As somebody sees it who asks for the size first."""
    os.stat(name)
    with open(name, "rb") as f:
        return f.read()


@test
def plain_a_direct_append_overwrites_nobody(d):
    """The kernel may believe in a smaller size, as behind pwritev2(2) with RWF_NOAPPEND."""
    needs_noappend()
    data = pattern(4 * PAGE)
    fd = os.open(d + "/f", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    eq(os.write(fd, data), len(data))
    direct = os.open(d + "/f", os.O_RDWR | os.O_APPEND | os.O_DIRECT)
    eq(os.pwritev(fd, [b"n" * PAGE], PAGE, RWF_NOAPPEND), PAGE)
    os.fsync(fd)
    with mmap.mmap(-1, 3 * MIB) as new:
        new[:] = b"x" * MIB + b"y" * MIB + b"z" * MIB
        eq(os.write(direct, new), 3 * MIB)
        data += b"n" * PAGE + new[:]
        eq(content(d + "/f") == data, True)
        eq(os.pwritev(direct, [new], PAGE, RWF_NOAPPEND), 3 * MIB)
        eq(content(d + "/f") == data + new[:], True)
    os.close(direct)
    os.close(fd)


@test
def plain_an_append_only_file_is_only_appended_to(d):
    """chattr +a, whatever the flags of the call."""
    needs_noappend()
    fd = os.open(d + "/f", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"a" * 4 * PAGE)
    old = struct.unpack("<L", fcntl.ioctl(fd, FS_IOC_GETFLAGS, b"\0" * 4))[0]
    fcntl.ioctl(fd, FS_IOC_SETFLAGS, struct.pack("<L", old | FS_APPEND_FL))
    direct = os.open(d + "/f", os.O_WRONLY | os.O_APPEND | os.O_DIRECT)
    try:
        with mmap.mmap(-1, PAGE) as page:
            page[:] = b"x" * PAGE
            eq(os.pwritev(direct, [page], PAGE, RWF_NOAPPEND), PAGE)
        eq(content(d + "/f") == b"a" * 4 * PAGE + b"x" * PAGE, True)
    finally:
        fcntl.ioctl(fd, FS_IOC_SETFLAGS, struct.pack("<L", old))
        os.close(direct)
        os.close(fd)


@test
def plain_an_edit_that_is_overtaken(d):
    """The size is another when the edit is carried out: nothing happens, or it happens all the same."""
    p = d + "/f"
    data = pattern(PAGE + 100)
    for offset, old, new in KINDS:
        for change, flags in ((b"+" * 565, 0), (b"", 0), (b"+" * 565, EDIT_ANY_SIZE),
                              (b"", EDIT_ANY_SIZE), (b"+" * 565, EDIT_LIMITED),
                              (b"", EDIT_LIMITED | EDIT_ANY_SIZE)):
            fd = opened(p, data)
            eq(os.pread(fd, 2 * PAGE, 0), data)
            carry = stage_edit(fd, offset, old, new, flags)[2]
            if change:
                with open(p, "ab") as f:
                    f.write(change)
                now = data + change
            else:
                os.truncate(p, PAGE)
                now = data[:PAGE]
            expected = now[:offset] + new + now[offset + old:]
            try:
                carry_out(fd, *carry)
            except BlockingIOError:
                eq(carry[0], CARRY_FALLOCATE, (offset, old, new, flags))
                expected = now
            else:
                assert carry[0] != CARRY_FALLOCATE or old == len(new)
            eq(os.pread(fd, 2 * PAGE, 0), expected, (offset, old, new, flags, change))
            eq(stored(p, len(expected)), expected)
            eq((os.fstat(fd).st_size, os.lseek(fd, 0, os.SEEK_END)), (len(expected),) * 2)
            os.close(fd)


@test
def plain_a_call_that_names_no_edit_does_what_it_says(d):
    """And nothing at all where it can only be meant for an edit."""
    p = d + "/f"
    data = pattern(PAGE)
    fd = opened(p, data)
    raises(errno.EFBIG, os.ftruncate, fd, (1 << 62) + 1)
    raises(errno.EFBIG, fallocate, fd, 1, (1 << 62) + 1, 1)
    for offset, old, new in KINDS:
        carry = stage_edit(fd, offset, old, new)[2]
        other = os.open(p, os.O_RDWR)
        if carry[0] in (CARRY_FTRUNCATE, CARRY_FALLOCATE_FTRUNCATE):
            raises(errno.EFBIG, carry_out, other, *carry)
            raises(errno.EFBIG, os.ftruncate, other, carry[3])
        os.close(other)
        stage_edit(fd, 0, 0, b"another one")  # in its place
        if carry[0] in (CARRY_FTRUNCATE, CARRY_FALLOCATE_FTRUNCATE):
            raises(errno.EFBIG, carry_out, fd, *carry)
    eq(stored(p, PAGE), data)
    os.close(fd)


def delete_size(offset, length):
    """VARJFS_DELETE_SIZE."""
    return 0x96 << 53 | 1 << 62 | offset << 13 | length - 1


@test
def plain_a_delete_by_one_call(d):
    """Where an edit was a moment ago, and no page is held behind it; else it is a size as any other."""
    p = d + "/f"
    now = pattern(9 * PAGE + 5)
    fd = opened(p, now)
    raises(errno.EFBIG, os.ftruncate, fd, delete_size(100, 10))
    eq(stored(p, len(now)), now)
    carry_out(fd, *stage_edit(fd, 0, 1, b"")[2])  # the kernel drops all pages
    now = now[1:]
    other = os.open(p, os.O_RDWR)
    mapping = mmap.mmap(fd, 2 * PAGE, prot=mmap.PROT_READ)
    mapping.madvise(mmap.MADV_RANDOM)  # no other pages
    for f, offset, length in ((fd, 100, 10), (other, 5 * PAGE, 8192), (fd, len(now), 1), (fd, 1 << 39, 4096),
                              (other, 6 * PAGE, 8192)):
        os.ftruncate(f, delete_size(offset, length))
        now = now[:offset] + now[offset + length:]
        eq((os.fstat(fd).st_size, os.lseek(other, 0, os.SEEK_END)), (len(now),) * 2)
        eq(stored(p, len(now)), now)
    eq(mapping[:], now[:2 * PAGE])
    raises(errno.EFBIG, os.ftruncate, fd, delete_size(PAGE, 10))
    os.ftruncate(fd, delete_size(2 * PAGE, 10))
    now = now[:2 * PAGE] + now[2 * PAGE + 10:]
    eq(os.pread(fd, len(now) + 1, 0), now)
    raises(errno.EFBIG, os.ftruncate, fd, delete_size(2 * PAGE, 10))
    for size in ((1 << 63) - 1, 1 << 62, 0x97 << 53 | 1 << 62, 0x95 << 53 | 1 << 62):
        raises(errno.EFBIG, os.ftruncate, fd, size)
    raises(errno.EFBIG, os.truncate, p, delete_size(5 * PAGE, 10))
    eq(stored(p, len(now)), now)
    for f in fd, other:
        os.close(f)


@test
def plain_inotify_sees_edits(d):
    p = d + "/f"
    fd = opened(p, pattern(PAGE))
    watch = libc.inotify_init1(os.O_NONBLOCK)
    assert libc.inotify_add_watch(watch, os.fsencode(p), 2) >= 0  # IN_MODIFY
    for offset, old, new in KINDS:
        edit(fd, offset, old, new)
        eq(len(os.read(watch, 4096)) >= 16, True, (offset, old, new))
    edit(fd, 10, 0, b"")  # asks for nothing
    raises(errno.EAGAIN, os.read, watch, 4096)
    os.close(watch)
    os.close(fd)


@test
def held_direct_io_and_the_page_cache_agree(d):
    """A write past the page cache, while the page is read into it, written to and mapped."""
    p = d + "/f"
    data = pattern(4 * PAGE)
    fd = opened(p, data)
    past = os.open(p, os.O_RDWR | os.O_DIRECT)
    buf = direct(PAGE)
    for point in "write", "write_reply":
        for i in range(4):
            buf[:] = bytes([65 + i]) * PAGE
            m = mmap.mmap(fd, 4 * PAGE)
            m[i * PAGE:i * PAGE + 4] = b"mark"
            with Hold(point) as held:
                t = later(os.pwritev, past, [buf], i * PAGE)
                held.arrived()
                eq(len(os.pread(fd, 4 * PAGE, 0)), 4 * PAGE)
            t.done()
            data = data[:i * PAGE] + buf[:] + data[(i + 1) * PAGE:]
            eq(os.pread(fd, 4 * PAGE, 0), data)
            eq(m[:], data)
            m[PAGE - 1:PAGE] = b"%d" % i
            data = data[:PAGE - 1] + b"%d" % i + data[PAGE:]
            eq(stored(p, 4 * PAGE), data)
            os.pwrite(fd, b"buffered%d" % i, 2 * PAGE - 4)
            data = data[:2 * PAGE - 4] + b"buffered%d" % i + data[2 * PAGE + 5:]
            eq(stored(p, 4 * PAGE), data)
            m.close()
    os.close(past)
    os.close(fd)


@test
def plain_direct_descriptors_can_be_mapped(d):
    p = d + "/f"
    data = pattern(4 * PAGE)
    fd = opened(p, data)
    past = os.open(p, os.O_RDWR | os.O_DIRECT)
    shared = mmap.mmap(past, 4 * PAGE)
    private = mmap.mmap(past, 4 * PAGE, flags=mmap.MAP_PRIVATE)
    reader = os.open(p, os.O_RDONLY | os.O_DIRECT)
    seen = mmap.mmap(reader, 4 * PAGE, prot=mmap.PROT_READ)
    eq(shared[:], data)
    eq(seen[:], data)
    eq(private[:], data)
    shared[5:9] = b"mark"
    data = data[:5] + b"mark" + data[9:]
    eq(os.pread(fd, 4 * PAGE, 0), data)
    shared.flush()
    eq(stored(p, 4 * PAGE), data)
    edit(fd, 0, 0, b"!")
    data = b"!" + data
    eq(shared[:], data[:4 * PAGE])
    eq(seen[:], data[:4 * PAGE])
    buf = direct(PAGE)
    buf[:] = b"D" * PAGE
    os.pwritev(past, [buf], PAGE)
    data = data[:PAGE] + buf[:] + data[2 * PAGE:]
    eq(shared[:], data[:4 * PAGE])
    eq(seen[:], data[:4 * PAGE])
    eq(os.pread(fd, 5 * PAGE, 0), data)
    for m in shared, private, seen:
        m.close()
    os.close(past)
    os.close(reader)
    os.close(fd)


@test
def held_a_direct_read_at_a_moving_end_is_whole(d):
    """It ends where the file ended when it was served, also where the kernel knows better by
    then."""
    p = d + "/f"
    fd = opened(p, b"a" * 5000)
    past = os.open(p, os.O_RDONLY | os.O_DIRECT)
    buf = direct(4 * PAGE)
    with Hold("read") as held:
        # Behind the end, where the kernel by itself knows that there is nothing.
        t = later(os.preadv, past, [buf], 100 * PAGE)
        while t.is_alive() and not held.has_arrived():
            t.join(0.01)
        asked = held.has_arrived()
    t.done()
    if not asked:
        raise Skip("needs FUSE_CAP_DIRECT_IO_ALLOW_MMAP of libfuse and the kernel")
    for i in range(1, 6):
        got = []
        old = os.fstat(fd).st_size
        with Hold("read_reply") as held:
            t = later(lambda: got.append(os.preadv(past, [buf], 0)))
            held.arrived()
            edit(fd, 0, old, bytes([97 + i]) * (old + 700))
            eq(os.fstat(fd).st_size, old + 700)
        t.done()
        eq(buf[:got[0]], bytes([96 + i]) * old)
    os.close(past)
    os.close(fd)


def direct_write(path, letter):
    """Asynchronous, of the first 64 KiB."""
    return subprocess.Popen([os.environ["VJ_DIRECT_WRITE"], "one", path, letter])


@test
def held_an_asynchronous_direct_write_and_pages_that_come_before_it(d):
    """The kernel drops pages before it sends the WRITE and, in this case, not behind it."""
    fd = opened(d + "/file", b"a" * (16 * PAGE))
    with Hold("write") as held:
        writer = direct_write(d + "/file", "b")
        held.arrived()
        eq(os.pread(fd, 16 * PAGE, 0), b"a" * (16 * PAGE))
    eq(writer.wait(60), 0)
    eq(os.pread(fd, 16 * PAGE, 0), b"b" * (16 * PAGE))
    os.close(fd)


@test
def held_an_asynchronous_direct_write_and_a_read_under_way(d):
    """It has read what was there before; its page comes when the WRITE has been made."""
    fd = opened(d + "/file", b"a" * (16 * PAGE))
    with Hold("read_reply") as read:
        with Hold("write") as held:
            writer = direct_write(d + "/file", "b")
            held.arrived()
            reader = later(os.pread, fd, PAGE, 0)
            read.arrived()
    reader.done()
    eq(writer.wait(60), 0)
    eq(os.pread(fd, 16 * PAGE, 0), b"b" * (16 * PAGE))
    os.close(fd)


@test
def held_direct_reads_drop_no_page_of_a_write(d):
    """A reader past the page cache comes while a WRITE is on its way, and then one through it:
    were the first to drop the page, the second would keep the old one there for good."""
    p = d + "/f"
    data = pattern(4 * PAGE)
    fd = opened(p, data)
    got = []
    eq(os.pread(fd, 4 * PAGE, 0), data)
    with Hold("write") as held:
        t = later(write_and_read, (fd,), b"W" * 100, PAGE + 7, 4 * PAGE, got)
        held.arrived()
        eq(stored(p, len(data)), data)
        os.pread(fd, 4 * PAGE, 0)
    t.done()
    data = data[:PAGE + 7] + b"W" * 100 + data[PAGE + 107:]
    eq(got[0], data)
    eq(stored(p, len(data)), data)
    os.close(fd)


@test
def plain_copies_into_cached_pages(d):
    data = pattern(8 * PAGE)
    a = opened(d + "/a", pattern(8 * PAGE, 9))
    b = opened(d + "/b", data)
    m = mmap.mmap(b, 8 * PAGE)
    eq(m[:], data)
    edit(b, 0, 1, b"!")
    n = os.copy_file_range(a, b, 2 * PAGE + 10, 5, PAGE + 3)
    eq(n, 2 * PAGE + 10)
    expected = b"!" + data[1:PAGE + 3] + pattern(8 * PAGE, 9)[5:5 + n] + data[PAGE + 3 + n:]
    eq(m[:], expected)
    fallocate(b, 3, 5 * PAGE + 1, 100)
    expected = expected[:5 * PAGE + 1] + bytes(100) + expected[5 * PAGE + 101:]
    eq(m[:], expected)
    eq(os.pread(b, 9 * PAGE, 0), expected)
    m.close()
    os.close(a)
    os.close(b)


@test
def plain_stores_beyond_a_moved_end_do_not_lengthen(d):
    """After a shrinking edit the kernel may believe in the old size for a while."""
    fd = opened(d + "/f", pattern(3 * PAGE))
    m = mmap.mmap(fd, 3 * PAGE)
    eq(len(m[:]), 3 * PAGE)
    edit(fd, 0, PAGE + 100, b"")
    m[PAGE:PAGE + 4] = b"kept"
    m.flush()
    os.fsync(fd)
    expected = pattern(3 * PAGE)[PAGE + 100:]
    expected = expected[:PAGE] + b"kept" + expected[PAGE + 4:]
    eq(stored(d + "/f", 3 * PAGE), expected)
    m.close()
    os.close(fd)


# ---- what the kernel is told of attributes -------------------------------------------------

class Paused(Exception):
    """The daemon may have forgotten the file: it does so a second after an edit."""


class Edits:
    """Edits of one file in quick succession, and what the kernel is told of them."""

    def __init__(self, path, data):
        self.fd = opened(path, data)
        os.fsync(self.fd)
        self.told = Invalidations(self.fd)
        self.at = None

    def __call__(self, told, offset, old_len, data=b""):
        """An edit, and how many notifications it sends."""
        edit(self.fd, offset, old_len, data)
        now = time.monotonic()
        last, self.at = self.at, now
        count = self.told.count()
        if count != told and last is not None and now - last > 0.5:
            raise Paused
        eq(count, told)

    def first(self):
        """Drops all pages and attributes."""
        edit(self.fd, 0, 0, b"first")
        self.told.count()
        self.at = time.monotonic()

    def sync(self):
        """Clean: the kernel may keep attributes."""
        os.fsync(self.fd)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)
        self.told.log.close()


def unpaused(body):
    """Again where the machine was too slow."""
    def again(d):
        for attempt in range(20):
            try:
                return body(os.path.join(d, str(attempt)))
            except Paused:
                pass
        raise Skip("too slow a machine")
    again.__name__ = body.__name__
    return again


@test
@unpaused
def told_attributes_of_a_clean_file_are_kept_until_an_edit(p):
    with Edits(p, pattern(8 * PAGE)) as edits:
        edits.first()
        for old_len, data in ((0, b"longer"), (3, b"abc"), (6, b"")):
            edits.sync()
            before = os.stat(p)
            eq(os.stat(p), before)
            edits(int(old_len == len(data)), 5000, old_len, data)  # else the call tells
            after = os.stat(p)
            eq(after.st_size, before.st_size + len(data) - old_len)
            eq(after.st_mtime_ns > before.st_mtime_ns, True, "mtime")
            eq(after.st_ctime_ns > before.st_ctime_ns, True, "ctime")


def carry_out_edit(fd, offset, old_len, data, error):
    """One try, by the thread that stages it; @error: as which it fails."""
    carry = stage_edit(fd, offset, old_len, data)[2]
    if error == 0:
        carry_out(fd, *carry)
    else:
        raises(error, carry_out, fd, *carry)


@test
def beside_growth_is_not_applied(d):
    """Readers bring pages faster than an edit drops them.  The page of the old end, read before the
    kernel knows the new one and written back, would be cleared behind it: so an edit that makes
    the file longer is to be tried again, and others are applied beside the pages."""
    data = pattern(PAGE + 1000)
    fd = opened(d + "/f", data)
    m = mmap.mmap(fd, PAGE + 1000)
    for offset, old_len, new, error in ((10, 0, b"12345", errno.EAGAIN), (10, 5, b"abcde", 0)):
        eq(m[PAGE:], data[PAGE:])
        with Hold("dropped") as held:
            t = later(carry_out_edit, fd, offset, old_len, new, error)
            held.arrived()
            eq(m[PAGE:], data[PAGE:])
            held.release()
            t.done()
        if error == 0:
            data = data[:offset] + new + data[offset + old_len:]
        eq((stored(d + "/f", len(data)), m[:]), (data, data))
    edit(fd, 10, 0, b"12345")
    data = data[:10] + b"12345" + data[10:]
    eq(os.pread(fd, 3 * PAGE, 0), data)
    m.close()
    os.close(fd)


@test
def told_an_edit_in_place_invalidates_twice_at_most(d):
    """Pages behind it may be known or not: by the second time they are."""
    data = pattern(8 * PAGE)
    fd = opened(d + "/f", data)
    eq(os.pread(fd, 8 * PAGE, 0), data)
    told = Invalidations(fd)
    shift(fd, 100, 5000, b"abc", look(fd)[0])
    data = data[:100] + b"abc" + data[100:5097] + data[5100:]
    eq(os.pread(fd, 8 * PAGE, 0), data)
    eq(told.count() <= 3, True)  # with attributes
    os.close(fd)


@test
def beside_pages_that_stay_where_they_are(d):
    """Pages are read after an edit by ftruncate(2), stored into and written back: they have not
    moved, so nothing is invalidated behind them.  That would write back what is stored next, at any
    time and beside any call."""
    data = pattern(8 * PAGE)
    fd = opened(d + "/f", data)
    told = Invalidations(fd)
    told.wanted += "%d+" % (2 * PAGE)
    m = mmap.mmap(fd, 8 * PAGE)
    for i in range(20):
        with Hold("flushed") as held:
            t = later(edit, fd, 10, 1, b"")
            held.arrived()
            eq(m[5 * PAGE:6 * PAGE], data[5 * PAGE:6 * PAGE])
            held.release()
            t.done()
        data = data[:10] + data[11:]
        eq(m[:4 * PAGE], data[:4 * PAGE])
        m[2 * PAGE:2 * PAGE + 4] = b"%4d" % i
        data = data[:2 * PAGE] + b"%4d" % i + data[2 * PAGE + 4:]
        m.flush()
    eq(stored(d + "/f", 8 * PAGE), data)
    eq(told.count(), 0)
    m.close()
    os.close(fd)


@test
@unpaused
def plain_pages_before_the_new_end_come_between_the_two_calls(p):
    """They stay where they are, so it is carried out."""
    data = pattern(4 * PAGE)
    fd = opened(p, data)
    begin = time.monotonic()
    edit(fd, 10, 2)
    data = data[:10] + data[12:]
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    size = begin_edit(fd, 10, 2)
    eq(os.pread(fd, 9, 0), data[:9])
    try:
        os.ftruncate(fd, size)
    except BlockingIOError as e:
        if time.monotonic() - begin > 0.9:
            raise Paused from e
        raise
    data = data[:10] + data[12:]
    eq(os.pread(fd, 5 * PAGE, 0), data)
    os.close(fd)


@test
def told_pages_beside_a_size_that_the_kernel_does_not_know(d):
    """pwritev2(2) with RWF_NOAPPEND and the page cache appends, and the kernel does not know of it.  An
    edit that leaves the file as long as the kernel believes drops no page before it."""
    needs_noappend()
    data = pattern(4 * PAGE)
    fd = os.open(d + "/f", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.write(fd, data)
    os.fsync(fd)
    told = Invalidations(fd)
    eq(os.pwritev(fd, [b"x" * PAGE], 0, RWF_NOAPPEND), PAGE)
    wait_for(lambda: told.count() > 0)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    eq(os.pread(fd, 100, PAGE), data[PAGE:PAGE + 100])
    edit(fd, 3 * PAGE, PAGE)
    edit(fd, 10, 0, b"!")
    data = data[:10] + b"!" + data[10:3 * PAGE] + b"x" * PAGE
    eq(os.pread(fd, 5 * PAGE, 0), data)
    os.close(fd)


@test
@unpaused
def told_set_id_bits_go(p):
    if os.geteuid() != 0:
        raise Skip("needs root")
    with Edits(p, pattern(8 * PAGE)) as edits:
        os.chmod(os.path.dirname(p), 0o777)
        edits.first()
        for looks in (True, False):
            os.chmod(p, 0o6777)
            edits.sync()
            if looks:
                eq(os.stat(p).st_mode & 0o7777, 0o6777)
            pid = os.fork()
            if pid == 0:
                os.setgroups([])
                os.setresgid(99, 99, 99)
                os.setresuid(99, 99, 99)
                edit(edits.fd, 5000, 0, b"inserted")
                os._exit(0)
            eq(os.waitpid(pid, 0)[1], 0)
            eq(os.stat(p).st_mode & 0o7777, 0o777)


def is_known(p, fd, size, made_ns):
    """What stat(2) shows and a cached read reaches is from behind an edit."""
    eq((os.stat(p).st_size, os.fstat(fd).st_size), (size, size))
    eq(os.stat(p).st_mtime_ns > made_ns, True, "mtime")
    eq(len(os.pread(fd, size + PAGE, 0)), size)


@test
def told_an_answer_that_an_edit_overtakes(d):
    """The kernel must not keep it.  (chmod(2) and link(2) hold the lock of the inode, and no edit overtakes
    them.)"""
    for number, late in enumerate((os.stat,)):
        for old_len, data in ((0, b"longer"), (0, b"x" * 5000), (6, b""), (2, b"ab")):
            p = d + "/%d-%d-%d" % (number, old_len, len(data))
            with Edits(p, pattern(8 * PAGE)) as edits:
                edits.first()
                edits.sync()
                made_ns = time.time_ns()
                with Hold("attr_reply") as held:
                    waits = later(late, p)
                    held.arrived()
                    edit(edits.fd, 5000, old_len, data)
                waits.done()
                is_known(p, edits.fd, 8 * PAGE + 5 + len(data) - old_len, made_ns)


def store_and_sync(m, byte):
    m[0] = byte
    m.flush()


@test
def told_an_answer_that_a_mapped_store_overtakes(d):
    """The kernel counts no such WRITE as a change of attributes: it would believe in the old times for a day."""
    for size in (PAGE, 8 * PAGE):
        p = "%s/%d" % (d, size)
        fd = opened(p, pattern(size))
        os.fsync(fd)
        m = mmap.mmap(fd, size)
        for byte in (1, 2):
            before = os.stat(p).st_mtime_ns
            os.setxattr(p, "user.a", b"b")  # attributes are asked for again
            with Hold("attr_reply") as held:
                waits = later(os.stat, p)
                held.arrived()
                Child(store_and_sync, m, byte).done()
            waits.done()
            wait_for(lambda: os.stat(p).st_mtime_ns > before)
        m.close()
        os.close(fd)


RECODE = 3 << 30 | 56 << 16 | 0x96 << 8 | 6


def recode(fd):
    step = struct.Struct("=IIQQQQQQ")
    cursor = state = 0
    while cursor != (1 << 64) - 1:
        arg = bytearray(step.pack(VERSION, 0, cursor, state, 0, 0, 0, 0))
        ioctl(fd, RECODE, arg)
        _, _, cursor, state = step.unpack(arg)[:4]


@test
def told_a_chmod_that_recoding_overtakes(d):
    """It takes no lock of the kernel's, and what takes fewer blocks then is not shown with those of before."""
    fd = opened(d + "/f", bytes(40 * PAGE))
    os.pwrite(fd, b"x" * 30 * PAGE, 0)
    os.fsync(fd)
    before = os.fstat(fd).st_blocks
    os.setxattr(d + "/f", "user.varjfs.transform", b"rle")
    with Hold("attr_reply") as held:
        waits = later(os.fchmod, fd, 0o600)
        held.arrived()
        recode(fd)
    waits.done()
    after = os.fstat(fd).st_blocks
    eq(after < before // 4, True, (before, after))
    os.close(fd)


def blocks(path, data, setting=None):
    """As they are shown before and after a write-back."""
    fd = opened(path, data)
    if setting is not None:
        os.setxattr(path, "user.varjfs.transform", setting)
    os.fchmod(fd, 0o640)
    shown = [os.fstat(fd).st_blocks]
    os.fsync(fd)
    shown.append(os.fstat(fd).st_blocks)
    os.close(fd)
    return shown


@test
def told_blocks_of_what_is_written_back(d):
    """The kernel is told that it may keep what it is shown of a small file, so that stays."""
    for size in (0, 1, 511, 512, 513, PAGE - 1, PAGE):
        shown = blocks("%s/%d" % (d, size), pattern(size))
        eq(shown, [(size + 511) // 512] * 2, size)
        shown = blocks("%s/%d-rle" % (d, size), b"x" * size, b"rle")
        eq(shown[1], min(size, 1), ("rle", size))
    # A setting that comes when the kernel has been told.
    for way in ("set", "removed"):
        fd = opened(d + "/" + way, b"x" * PAGE)
        if way == "removed":
            os.setxattr(d + "/" + way, "user.varjfs.transform", b"none")
        os.setxattr(d, "user.varjfs.transform", b"rle")
        os.fchmod(fd, 0o640)
        eq(os.fstat(fd).st_blocks, PAGE // 512)
        os.setxattr(d + "/" + way, "user.varjfs.transform", b"rle")
        os.fsync(fd)
        eq(os.fstat(fd).st_blocks, 1, way)
        os.close(fd)
        os.removexattr(d, "user.varjfs.transform")


def stored_bytes(path):
    text = os.getxattr(path, "user.varjfs.status").decode()
    return int(re.search(r"^stored_size=(\d+)$", text, re.M)[1])


@test
def told_blocks_of_what_becomes_objects_later(d):
    """Small changes take other space when they have rested, without any request: until then nobody keeps st_blocks."""
    path = d + "/f"
    fd = opened(path, pattern(10 * PAGE))
    os.setxattr(path, "user.varjfs.transform", b"rle")
    os.fsync(fd)
    for at in range(4):
        os.pwrite(fd, b"x" * 2000, at * 8000)
        os.fsync(fd)
    before = stored_bytes(path)
    eq(os.fstat(fd).st_blocks, (before + 511) // 512)
    wait_for(lambda: stored_bytes(path) != before, 60)
    eq(os.fstat(fd).st_blocks, (stored_bytes(path) + 511) // 512, before)
    os.close(fd)


def process_state(pid):
    with open("/proc/%d/stat" % pid) as f:
        return f.read().rpartition(") ")[2][0]


def edit_a_file(path, offset, old_len, data):
    edit(os.open(path, os.O_RDWR), offset, old_len, data)


@test
def held_a_caller_that_is_killed_leaves_no_old_pages(d):
    """The kernel lets nobody out of a request that the daemon has read: who is killed takes the
    answer all the same, with the size, and drops the pages.  An edit that is not applied yet may
    be given up."""
    data = pattern(20 * PAGE)
    for offset, old_len, new in ((5 * PAGE + 5, 3 * PAGE + 7, b""),
                                 (5 * PAGE + 5, 7, b"longer" * 2000),
                                 (5 * PAGE + 5, 7, b"as long")):
        for point in ("apply", "edit"):
            fd = opened(d + "/f", data)
            m = mmap.mmap(fd, len(data))
            eq(m[:], data)
            with Hold(point) as held:
                child = Child(edit_a_file, d + "/f", offset, old_len, new)
                held.arrived()
                os.kill(child.pid, signal.SIGKILL)
                wait_for(lambda: process_state(child.pid) == "D")
                held.release()
            child.join(60)
            eq(child.status, signal.SIGKILL, "the child")
            expected = data[:offset] + new + data[offset + old_len:]
            if point == "apply" and os.pread(fd, len(data) * 2, 0) == data:
                expected = data
            eq(os.fstat(fd).st_size, len(expected), (point, new[:7]))
            eq(os.pread(fd, len(data) * 2, 0), expected, (point, new[:7]))
            eq(stored(d + "/f", len(expected)), expected, (point, new[:7]))
            mapped = min(len(data), len(expected))
            eq(m[:mapped], expected[:mapped], (point, new[:7]))
            m.close()
            os.close(fd)


def edit_half(path, offset, old_len):
    """Ends between the two system calls of FALLOCATE_SEEK."""
    fd = os.open(path, os.O_RDWR)
    _, _, (call, mode, at, length) = stage_edit(fd, offset, old_len, b"", EDIT_LIMITED)
    eq(call, CARRY_FALLOCATE_SEEK)
    fallocate(fd, mode, at, length)


@test
def plain_a_caller_that_ends_before_the_kernel_has_the_size(d):
    data = pattern(20 * PAGE + 100)
    offset, old_len = 5 * PAGE + 5, 3 * PAGE + 7
    for look in ("read", "stat", "append"):
        expected = data[:offset] + data[offset + old_len:]
        fd = opened(d + "/f", data)
        appender = os.open(d + "/f", os.O_WRONLY | os.O_APPEND)
        m = mmap.mmap(fd, len(data))
        eq(m[:], data)
        Child(edit_half, d + "/f", offset, old_len).done()
        if look == "stat":
            eq(os.fstat(fd).st_size, len(expected))
        elif look == "append":
            os.write(appender, b"appended")
            expected += b"appended"
        eq(os.pread(fd, len(data) * 2, 0), expected, look)
        eq(stored(d + "/f", len(expected)), expected, look)
        eq(os.fstat(fd).st_size, len(expected))
        eq(m[:len(expected)], expected, look)
        m.close()
        os.close(fd)
        os.close(appender)


def daemon_threads(name):
    """How many the daemon has of that name; none when it has ended."""
    tasks = "/proc/%s/task" % os.environ["VJ_DAEMON"]
    count = 0
    try:
        for task in os.listdir(tasks):
            count += read_file(os.path.join(tasks, task, "comm")).strip() == name
    except OSError:
        pass
    return count


def make_immutable(path):
    fd = os.open(path, os.O_RDWR)
    try:
        ioctl(fd, 0x40086602, bytearray((0x10).to_bytes(8, "little")))
    except OSError:
        pass  # with the connection


@test
def end_chattr_of_what_is_open_for_writing(d):
    """It drops pages, which the kernel writes back to us before: also while the mount ends."""
    daemon = int(os.environ["VJ_DAEMON"])
    fd = opened(d + "/f", bytes(2 * PAGE))
    m = mmap.mmap(fd, 2 * PAGE)
    m[0] = 1
    with Hold("flags") as held:
        child = Child(make_immutable, d + "/f")
        held.arrived()
        os.kill(daemon, signal.SIGTERM)
        wait_for(lambda: not os.path.ismount(os.path.dirname(d)))
        # Where the daemon goes on to end, let it get as far as it can.
        end = time.monotonic() + 1
        while daemon_threads(b"vj-edit") and time.monotonic() < end:
            time.sleep(0.01)
        m[0] = 2
        held.release()
    child.done()
    wait_for(lambda: process_gone(daemon))
    m.close()
    raises(errno.ENOTCONN, os.close, fd)  # FLUSH


def edit_and_wait(path, told, go):
    fd = os.open(path, os.O_RDWR)
    edit(fd, 5 * PAGE, 3 * PAGE, b"")
    os.write(told, b"1")
    os.read(go, 1)


@test
def marked_attributes_that_cannot_be_read_after_an_edit(d):
    """The edit has happened and says so, with the size that it made, though the record of the
    inode is damaged between both.  cache.sh has made the file, and mounted so that nothing else
    is written to the database."""
    path = os.path.join(os.path.dirname(d), "marked")
    mark = struct.pack("<q", int(os.stat(path).st_mtime))
    fd = os.open(path, os.O_RDONLY)
    data = os.pread(fd, 1 << 20, 0)
    database = os.open(os.environ["VJ_DATABASE"], os.O_RDWR)
    whole = os.pread(database, os.fstat(database).st_size, 0)
    places = [m.start() for m in re.finditer(re.escape(mark), whole)]
    assert places, "where the record is"
    (told, tell), (wait, go) = os.pipe(), os.pipe()
    with Hold("edit") as held:
        child = Child(edit_and_wait, path, tell, wait)
        held.arrived()
        for at in places:
            os.pwrite(database, bytes(len(mark)), at)
        held.release()
        answered = select.select([told], [], [], 20)[0]
        for at in places:
            os.pwrite(database, mark, at)
        os.write(go, b"1")
    child.done()
    assert answered, "the edit came back before the record was repaired"
    expected = data[:5 * PAGE] + data[8 * PAGE:]
    eq(os.fstat(fd).st_size, len(expected))
    eq(os.pread(fd, 1 << 20, 0), expected)
    for number in (fd, database, told, tell, wait, go):
        os.close(number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], prefix=sys.argv[2]))
