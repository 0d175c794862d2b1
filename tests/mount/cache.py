#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""The page-cache rules of src/front/README.md, each forced by requests that the daemon holds up
(src/front/delay.c): cache.py MOUNTPOINT GROUP

The names of the tests begin with the group, which says how cache.sh has mounted.  VJ_HOLD is
the directory of the fifos."""

import ctypes
import errno
import mmap
import os
import random
import select
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from vjtap import *  # noqa: E402,F403

PAGE = 4096


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


def first_of(*holds):
    """The index of the one where a request arrives first."""
    ready = select.select([h.told for h in holds], [], [], 60)[0]
    assert len(ready) == 1, "one request, one place"
    i = [h.told for h in holds].index(ready[0])
    holds[i].arrived()
    return i


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
def few_rule_1_dirty_mappings_of_more_files_than_threads(d):
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
def plain_rule_2_mapped_stores_before_an_edit_move_with_it(d):
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


def store_around_an_edit(d, moment, offset, old, new, pages):
    """moment: "apply", before it is applied; "edit": after that, before its invalidation."""
    data = pattern(8 * PAGE)
    fd = opened(d + "/f", data)
    m = mmap.mmap(fd, 8 * PAGE)
    with Hold(moment) as held:
        t = later(edit, fd, offset, old, new)
        held.arrived()
        for page in pages:
            m[page * PAGE + 100:page * PAGE + 108] = b"STORE%03d" % page
    t.done()
    m.close()
    os.close(fd)
    return data


def stored_over(data, pages, shift=0):
    data = bytearray(data)
    for page in pages:
        at = page * PAGE + 100 + shift
        data[at:at + 8] = b"STORE%03d" % page
    return bytes(data)


@test
def held_rule_2_old_coordinates_are_shifted(d):
    """Pages that were read and stored into before the apply come back after it."""
    pages = (0, 3, 6)
    data = store_around_an_edit(d, "apply", 2 * PAGE, 0, b"!" * 1000, pages)
    expected = stored_over(data, pages)
    expected = expected[:2 * PAGE] + b"!" * 1000 + expected[2 * PAGE:]
    eq(stored(d + "/f", len(expected)), expected)
    eq(read_file(d + "/f"), expected)


@test
def held_rule_2_a_page_is_split_at_the_edit(d):
    """The edit begins and ends within a dirty page; what it replaced stays replaced."""
    pages = (0, 2, 3, 6)
    data = store_around_an_edit(d, "apply", 2 * PAGE + 104, PAGE, b"", pages)
    expected = stored_over(data, pages)
    expected = expected[:2 * PAGE + 104] + expected[3 * PAGE + 104:]
    eq(stored(d + "/f", len(expected)), expected)
    eq(read_file(d + "/f"), expected)


@test
def held_rule_2_new_coordinates_are_not_shifted(d):
    """Pages that were read after the apply are in new coordinates."""
    pages = (3, 6)
    data = store_around_an_edit(d, "edit", 2 * PAGE, 0, b"!" * 1000, pages)
    expected = stored_over(data[:2 * PAGE] + b"!" * 1000 + data[2 * PAGE:], pages)
    eq(stored(d + "/f", len(expected)), expected)
    eq(read_file(d + "/f"), expected)


@test
def held_rule_2_edits_of_one_file_wait_for_each_other(d):
    fd = opened(d + "/f", b"0" * PAGE)
    with Hold("apply") as apply, Hold("edit") as settle:
        threads = [later(edit, fd, 0, 0, b"%d" % i) for i in range(3)]
        for _ in threads:
            apply.arrived()
            apply.release()
            settle.arrived()
            assert not apply.has_arrived(), "two edits of one file at the same time"
            settle.release()
        for t in threads:
            t.done()
    content = read_file(d + "/f")
    eq((len(content), sorted(content[:3])), (PAGE + 3, sorted(b"012")))
    os.close(fd)


@test
def held_rule_2_edits_of_different_files_do_not(d):
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


def answered_last(held):
    """Lets the WRITE in @held go on, whose answer must come behind the invalidation."""
    with Hold("stale") as stale, Hold("write_reply") as reply:
        held.release()
        eq(first_of(stale, reply), 0, "the answer came before the invalidation")
        stale.release()
        while first_of(stale, reply) == 0:  # its last page by itself
            stale.release()


@test
def held_rule_3_a_write_that_crosses_an_edit(d):
    """The write's page is invalidated and read back while the WRITE is on its way.  The last
    ones make the file longer."""
    for offset, length in ((4 * PAGE, PAGE), (4 * PAGE + 100, 50), (3 * PAGE + 7, 2 * PAGE),
                           (8 * PAGE - 200, 100), (5 * PAGE + 1, 3 * PAGE - 1)):
        p = d + "/f"
        data = pattern(8 * PAGE - 200)
        fd = opened(p, data)
        got = []
        eq(os.pread(fd, 8 * PAGE, 0), data)
        with Hold("write") as held:
            t = later(write_and_read, (fd,), b"W" * length, offset, 10 * PAGE, got)
            held.arrived()
            edit(fd, 0, 1, b"!")
            eq(len(os.pread(fd, 8 * PAGE, 0)), len(data))
            answered_last(held)
        t.done()
        expected = b"!" + data[1:offset] + b"W" * length + data[offset + length:]
        eq(got[0], expected, (offset, length))
        eq(os.pread(fd, 10 * PAGE, 0), expected)
        eq(stored(p, len(expected)), expected)
        os.close(fd)


@test
def held_rule_3_the_answer_waits_for_mapped_stores(d):
    """A page that holds the end is dirty by a mapped store, and a write makes the file longer:
    were the answer not to wait for the page, the kernel could take the new size while it
    writes the page back, and write zeroes behind the old end."""
    p = d + "/f"
    data = pattern(2 * PAGE + 100)
    for offset, length in ((2 * PAGE + 50, 200), (2 * PAGE + 100, PAGE), (PAGE + 5, 2 * PAGE)):
        fd = opened(p, data)
        m = mmap.mmap(fd, 2 * PAGE + 100)
        got = []
        with Hold("apply") as apply:
            # Until this edit is over, a WRITE may have come from before it.
            changed = later(edit, fd, 0, 1, b"!")
            apply.arrived()
            m[2 * PAGE + 10:2 * PAGE + 14] = b"mark"
            with Hold("pages") as pages, Hold("write_reply") as reply:
                t = later(write_and_read, (fd,), b"W" * length, offset, 4 * PAGE, got)
                eq(first_of(pages, reply), 0, "the answer came before the mapped page")
            t.done()
        changed.done()
        expected = data[:2 * PAGE + 10] + b"mark" + data[2 * PAGE + 14:]
        expected = b"!" + expected[1:offset] + b"W" * length + expected[offset + length:]
        eq(got[0][1:], expected[1:], (offset, length))
        eq(stored(p, len(expected)), expected)
        eq(os.pread(fd, 4 * PAGE, 0), expected)
        m.close()
        os.close(fd)
        os.unlink(p)


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
def held_rule_2_a_page_that_comes_when_an_edit_has_begun(d):
    """Nothing was cached when it began, so a request thread makes it; what has come by the time that it is
    applied is in old coordinates."""
    p = d + "/f"
    data = pattern(3 * PAGE + 10)
    fd = opened(p, data)
    m = mmap.mmap(fd, len(data))
    edit(fd, 0, 1, data[:1])
    for i, text in enumerate((b"insert", b"", b"another one")):
        old = 0 if text else 6
        with Hold("apply") as held:
            t = later(edit, fd, 100, old, text)
            held.arrived()
            eq(os.pread(fd, len(data) + PAGE, 0), data, i)
            m[2 * PAGE + 5:2 * PAGE + 9] = b"mark"
            held.release()
            t.done()
        data = data[:2 * PAGE + 5] + b"mark" + data[2 * PAGE + 9:]
        data = data[:100] + text + data[100 + old:]
        eq(os.pread(fd, len(data) + PAGE, 0), data, i)
        eq(stored(p, len(data)), data, i)
    m.close()
    os.close(fd)


@test
def held_rule_4_a_write_that_fills_the_page_of_the_last_byte(d):
    """It is on its way when an edit stores the last byte of the file into that page, which the kernel has
    filled already: what the write has brought there has to be read again."""
    p = d + "/f"
    for size, at in ((100, 101), (2 * PAGE + 808, 10), (PAGE, 0)):
        fd = opened(p, b"o" * size)
        edit(fd, 0, 0, b"x")
        expected = bytearray(b"x" + b"o" * size)
        page = size // PAGE * PAGE
        got = []
        with Hold("write") as held:
            t = later(write_and_read, (fd,), b"W" * PAGE, page, 4 * PAGE, got)
            held.arrived()
            edit(fd, at, 0, b"A")
            held.release()
            t.done()
        expected[at:at] = b"A"
        expected[page:page + PAGE] = b"W" * PAGE
        eq(got[0], bytes(expected), (size, at))
        eq(stored(p, len(expected)), bytes(expected), (size, at))
        os.close(fd)
        os.unlink(p)


@test
def held_rule_4_zeroes_that_were_stored_before_the_edit(d):
    """They come back in old coordinates, and the edit moves them behind the old end: there they are not
    what the kernel has cleared."""
    p = d + "/f"
    for size, at, insert in ((700, 500, 300), (2 * PAGE + 700, PAGE + 1000, PAGE)):
        data = b"x" * size
        fd = opened(p, data)
        m = mmap.mmap(fd, size)
        with Hold("apply") as held:
            t = later(edit, fd, 0, 0, b"I" * insert)
            held.arrived()
            m[at:at + 4] = bytes(4)
            held.release()
            t.done()
        expected = b"I" * insert + data[:at] + bytes(4) + data[at + 4:]
        eq(stored(p, len(expected)), expected, size)
        eq(os.pread(fd, len(expected), 0), expected, size)
        m.close()
        os.close(fd)
        os.unlink(p)


@test
def held_rule_4_the_page_of_the_last_byte_comes_before_that_is_stored(d):
    """A write fills it; then another one, still on its way, or a mapped store changes the last byte."""
    p = d + "/f"
    for mapped in (False, True):
        fd = opened(p, b"o" * (PAGE + 100))
        edit(fd, 0, 1, b"o")
        with Hold("edit") as applied:
            t = later(edit, fd, PAGE + 100, 0, b"A" * 5000)
            applied.arrived()
            os.pwrite(fd, b"B" * PAGE, 2 * PAGE)
            expected = b"o" * (PAGE + 100) + b"A" * (PAGE - 100) + b"B" * PAGE
            if mapped:
                m = mmap.mmap(fd, 3 * PAGE)
                m[PAGE + 5099:PAGE + 5100] = b"M"
                expected = expected[:PAGE + 5099] + b"M" + expected[PAGE + 5100:]
                applied.release()
                t.done()
                m.close()
            else:
                with Hold("write") as written:
                    w = later(os.pwrite, fd, b"C" * 2000, 2 * PAGE)
                    written.arrived()
                    applied.release()
                    t.done()
                    written.release()
                    w.done()
                expected = expected[:2 * PAGE] + b"C" * 2000 + expected[2 * PAGE + 2000:]
        eq(os.pread(fd, 4 * PAGE, 0), expected, mapped)
        eq(stored(p, len(expected)), expected, mapped)
        os.close(fd)
        os.unlink(p)


def write_back(fd):
    """All dirty pages, and no fsync."""
    r = ctypes.CDLL(None).sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0), 7)
    assert r == 0, "sync_file_range"


@test
def held_rule_4_a_page_that_is_written_back_before_the_kernel_knows_the_end(d):
    """An edit makes the file longer.  Before the kernel knows that, somebody reads the page that holds
    the old end, stores into it, and it is written back: the kernel clears what lies behind the old end
    in it, and would give that to readers, and to us when the page is dirty again."""
    p = d + "/f"
    for cached in (True, False):
        data = pattern(700)
        fd = opened(p, data)
        m = mmap.mmap(fd, 700)
        if cached:
            eq(os.pread(fd, PAGE, 0), data)
        edit(fd, 0, 1, data[:1])
        with Hold("edit") as held:
            t = later(edit, fd, 0, 0, b"I" * 300)
            held.arrived()
            m[10:12] = b"II"
            write_back(fd)
            held.release()
            t.done()
        expected = b"I" * 300 + data
        eq(os.pread(fd, PAGE, 0), expected, cached)
        m[12:14] = b"II"
        write_back(fd)
        eq(os.pread(fd, PAGE, 0), expected, cached)
        eq(stored(p, 1000), expected, cached)
        m.close()
        os.close(fd)
        os.unlink(p)


@test
def plain_rule_3_a_write_into_a_page_that_was_dropped(d):
    """The kernel holds such a page locked until the answer, which may not wait for it."""
    p = d + "/f"
    data = pattern(4 * PAGE)
    fd = opened(p, data)
    edit(fd, 0, 1, b"!")
    eq(len(os.pread(fd, 4 * PAGE, 0)), 4 * PAGE)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.pwrite(fd, b"W" * PAGE, PAGE + 100)
    expected = b"!" + data[1:PAGE + 100] + b"W" * PAGE + data[2 * PAGE + 100:]
    eq(os.pread(fd, 4 * PAGE, 0), expected)
    eq(stored(p, 4 * PAGE), expected)
    os.close(fd)


@test
def held_rule_3_appends_beside_edits_do_not_wait(d):
    """The page at the end is dropped by each edit, and the next append locks it: nobody has
    read it since, so it need not be invalidated.  This mount would wait for minutes."""
    p = d + "/f"
    fd = opened(p, pattern(2 * PAGE + 17))
    expected = pattern(2 * PAGE + 17)
    for i in range(30):
        if i % 3 == 1:
            eq(os.pread(fd, 1 << 20, 0), expected)
        if i % 3 == 2:
            eq(stored(p, len(expected)), expected)
        insert = b"%03d" % i * (1 + i % 5 * 400)
        edit(fd, i, 0, insert)
        expected = expected[:i] + insert + expected[i:]
        os.pwrite(fd, b"tail%d" % i, len(expected))
        expected += b"tail%d" % i
    eq(os.pread(fd, 1 << 20, 0), expected)
    os.close(fd)


@test
def plain_rule_2_edits_between_pages_that_come_and_go(d):
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
def plain_rule_4_a_mapping_reaches_the_new_end(d):
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
def plain_rule_5_append_goes_to_the_real_end(d):
    for delta, old, new in ((-PAGE, PAGE, b""), (100, 0, b"i" * 100), (-5, 5, b"")):
        p = d + "/f"
        data = pattern(3 * PAGE)
        fd = opened(p, data)
        end = os.open(p, os.O_WRONLY | os.O_APPEND)
        eq(os.pread(fd, 4 * PAGE, 0), data)
        edit(fd, 10, old, new, look=False)
        os.write(end, b"tail" * 10)
        expected = data[:10] + new + data[10 + old:] + b"tail" * 10
        eq(os.pread(fd, 5 * PAGE, 0), expected)
        eq(stored(p, len(expected)), expected)
        eq(os.fstat(fd).st_size, len(expected))
        eq(os.lseek(end, 0, os.SEEK_END), len(expected))
        os.close(fd)
        os.close(end)


@test
def held_rule_3_a_file_that_is_written_anew_does_not_wait(d):
    """The kernel drops pages that were read near an edit when it cuts, punches and copies."""
    p = d + "/f"
    for cut in (lambda fd: os.close(os.open(p, os.O_WRONLY | os.O_TRUNC)),
                lambda fd: os.ftruncate(fd, PAGE + 10),
                lambda fd: fallocate(fd, 3, PAGE - 5, 2 * PAGE + 5),
                lambda fd: os.copy_file_range(zeroes, fd, PAGE, 0, 2 * PAGE)):
        zeroes = opened(d + "/zeroes", bytes(PAGE))
        fd = opened(p, pattern(3 * PAGE))
        edit(fd, 0, 1, b"!")
        eq(len(os.pread(fd, 4 * PAGE, 0)), 3 * PAGE)
        cut(fd)
        before = stored(p, 3 * PAGE)
        size = len(before)
        os.pwrite(fd, b"W" * 100, 2 * PAGE + 50)
        expected = before[:2 * PAGE + 50] + bytes(max(0, 2 * PAGE + 50 - size))
        expected += b"W" * 100 + before[2 * PAGE + 150:]
        eq(os.pread(fd, 4 * PAGE, 0), expected)
        eq(stored(p, len(expected)), expected)
        os.close(fd)
        os.close(zeroes)
        os.unlink(p)


@test
def held_rule_5_appends_that_cross_an_edit(d):
    """The kernel chose the offset of the WRITE before the edit moved the end."""
    for old, new in ((0, b"i" * PAGE), (PAGE, b"")):
        p = d + "/f"
        data = pattern(3 * PAGE - 100)
        fd = opened(p, data)
        end = os.open(p, os.O_WRONLY | os.O_APPEND)
        got = []
        eq(os.pread(fd, 4 * PAGE, 0), data)
        with Hold("write") as held:
            t = later(write_and_read, (fd, end), b"tail" * 10, None, 5 * PAGE, got)
            held.arrived()
            edit(fd, 0, old, new, look=False)
            os.pread(fd, 5 * PAGE, 0)
            answered_last(held)
        t.done()
        expected = new + data[old:] + b"tail" * 10
        eq(got[0], expected)
        eq(os.pread(fd, 5 * PAGE, 0), expected)
        eq(stored(p, len(expected)), expected)
        eq(os.fstat(fd).st_size, len(expected))
        os.close(fd)
        os.close(end)


def direct(size):
    return mmap.mmap(-1, (size + PAGE - 1) // PAGE * PAGE)


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
def plain_rule_6_copies_into_cached_pages(d):
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
    edit(fd, 0, PAGE + 100, b"", look=False)
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
        edit(self.fd, offset, old_len, data, look=False)
        now = time.monotonic()
        last, self.at = self.at, now
        count = self.told.count()
        if count != told and last is not None and now - last > 0.5:
            raise Paused
        eq(count, told)

    def first(self):
        """Drops all pages and attributes."""
        edit(self.fd, 0, 0, b"first", look=False)
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
            edits(1, 5000, old_len, data)
            after = os.stat(p)
            eq(after.st_size, before.st_size + len(data) - old_len)
            eq(after.st_mtime_ns > before.st_mtime_ns, True, "mtime")
            eq(after.st_ctime_ns > before.st_ctime_ns, True, "ctime")


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
    """The kernel takes it after the edit, and must not keep it."""
    def chmod(p):
        os.chmod(p, 0o640)

    def link(p):
        os.link(p, p + "link")

    kinds = [(late, known) for late in (os.stat, chmod, link) for known in (False, True)]
    for number, (late, known) in enumerate(kinds):
        for old_len, data in ((0, b"longer"), (0, b"x" * 5000), (6, b""), (2, b"ab")):
            p = d + "/%d-%d-%d" % (number, old_len, len(data))
            with Edits(p, pattern(8 * PAGE)) as edits:
                edits.first()
                edits.sync()
                made_ns = time.time_ns()
                if known and late != os.stat:
                    os.stat(p)  # else the kernel may ask for attributes first
                with Hold("attr_reply") as held:
                    waits = later(late, p)
                    held.arrived()
                    edit(edits.fd, 5000, old_len, data, look=False)
                waits.done()
                is_known(p, edits.fd, 8 * PAGE + 5 + len(data) - old_len, made_ns)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
