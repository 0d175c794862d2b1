#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""The edit ioctls through the mount: edits.py MOUNTPOINT [PART-OF-A-NAME]"""

import errno
import mmap
import os
import random
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from vjtap import *  # noqa: E402,F403


def opened(path, data, flags=os.O_RDWR):
    write_file(path, data)
    return os.open(path, flags)


@test
def ping_and_unknown(d):
    for path in (d, d + "/f"):
        if path != d:
            write_file(path, b"")
        fd = os.open(path, os.O_RDONLY)
        eq(fcntl.ioctl(fd, IOC_PING), VERSION, "the version")
        raises(errno.ENOTTY, fcntl.ioctl, fd, IOC_PING + 90)
        raises(errno.ENOTTY, fcntl.ioctl, fd, 0x5604)
        os.close(fd)


@test
def the_table_of_the_contract(d):
    data = pattern(100)
    p = d + "/f"
    for offset, old_len, new, expected, at in (
            (10, 5, b"abcde", data[:10] + b"abcde" + data[15:], 10),
            (10, 0, b"abc", data[:10] + b"abc" + data[10:], 10),
            (100, 0, b"abc", data + b"abc", 100),
            (10, 5, b"", data[:10] + data[15:], 10),
            (0, 100, b"", b"", 0),
            (10, 0, b"", data, 10),
            (90, 1000, b"z", data[:90] + b"z", 90),
            (90, 1 << 62, b"", data[:90], 90),
            (150, 10, b"far", data + bytes(50) + b"far", 150),
            (150, 10, b"", data, 150),
            (0, 3, b"0123456789", b"0123456789" + data[3:], 0)):
        fd = opened(p, data)
        eq(edit(fd, offset, old_len, new), (at, len(expected)), (offset, old_len, new))
        eq(os.pread(fd, 1000, 0), expected, (offset, old_len, new))
        eq(os.fstat(fd).st_size, len(expected))
        os.close(fd)
        eq(read_file(p), expected)


@test
def holes(d):
    data = pattern(100)
    for offset, old_len, length, flags, expected in (
            (10, 0, 5, EDIT_INSIDE, data[:10] + bytes(5) + data[10:]),
            (10, 20, 5, EDIT_INSIDE, data[:10] + bytes(5) + data[30:]),
            (10, 89, 0, EDIT_INSIDE, data[:10] + data[99:]),
            (10, 90, 0, 0, data[:10]),
            (10, 1 << 60, 3, 0, data[:10] + bytes(3)),
            (100, 0, 5, 0, data + bytes(5)),
            (110, 7, 5, 0, data + bytes(15)),
            (110, 7, 0, 0, data),
            (10, 0, 0, 0, data)):
        fd = opened(d + "/f", data)
        eq(edit(fd, offset, old_len, b"", EDIT_HOLE | flags, length=length)[1], len(expected))
        eq(os.pread(fd, 1000, 0), expected, (offset, old_len, length))
        os.close(fd)
    fd = opened(d + "/f", data)
    for offset, old_len, length in ((100, 0, 5), (101, 0, 5), (10, 90, 0), (10, 1 << 63, 0),
                                    (0, 100, 3)):
        raises(errno.EINVAL, edit, fd, offset, old_len, b"", EDIT_HOLE | EDIT_INSIDE, length=length)
    raises(errno.EFBIG, edit, fd, 10, 0, b"", EDIT_HOLE, length=(1 << 63) - 20)
    raises(errno.EFBIG, edit, fd, 10, 0, b"", EDIT_HOLE, length=(1 << 64) - 1)
    raises(errno.EINVAL, edit, fd, 1 << 63, 0, b"", EDIT_HOLE, length=1)
    for flags in (EDIT_INSIDE, EDIT_HOLE | EDIT_APPEND, EDIT_HOLE | EDIT_STAGED,
                  EDIT_HOLE | 64):
        raises(errno.EINVAL, edit, fd, 10, 0, b"", flags, length=0)
    raises(errno.EINVAL, edit, fd, 10, 0, b"data", EDIT_HOLE)
    raises(errno.EINVAL, edit, fd, 10, 0, b"", EDIT_HOLE, stage_id=1, length=1)
    eq(os.pread(fd, 1000, 0), data)
    os.close(fd)


@test
def shifts(d):
    """What pwrite would make of the file, for any range and way."""
    data = pattern(30000)
    rng = random.Random(7)
    fd = os.open(d + "/f", os.O_RDWR | os.O_CREAT)
    for _ in range(200):
        content = bytearray(data[:rng.randrange(2, 30000)])
        size = len(content)
        os.ftruncate(fd, 0)
        os.pwrite(fd, content, 0)
        offset = rng.randrange(size - 1)
        down = rng.random() < 0.5
        way = rng.randrange(1, min(size - offset, 9000))
        new = rng.randbytes(way)
        length = rng.randrange(way + 1, size - offset + (0 if down else way) + 1)
        end = offset + length
        if down:
            content[offset:end] = content[offset + way:end] + new
        else:
            content[offset:end] = new + content[offset:end - way]
        change, seen = look(fd)
        eq(seen, size)
        eq(shift(fd, offset, length, new, change, SHIFT_DOWN if down else 0), len(content))
        eq(os.fstat(fd).st_size, len(content))
        eq(os.pread(fd, 60000, 0), bytes(content), (size, offset, length, way, down))
    os.close(fd)


@test
def a_shift_after_a_change_is_refused(d):
    data = pattern(10000)
    fd = opened(d + "/f", data)
    other = os.open(d + "/f", os.O_RDWR)
    changes = (
        lambda: os.pwrite(other, data[500:501], 500),
        lambda: os.ftruncate(other, 9000),
        lambda: edit(other, 0, 0, b"x"),
        lambda: fallocate(other, 3, 1, 1),
    )
    for make in changes:
        change, size = look(fd)
        make()
        before = read_file(d + "/f")
        raises(errno.EBUSY, shift, fd, 100, 1000, b"new", change)
        eq(read_file(d + "/f"), before)
    with mmap.mmap(other, 4096) as m:
        change, size = look(fd)
        m[200] = 1  # the kernel writes it back before the shift
        raises(errno.EBUSY, shift, fd, 100, 1000, b"new", change)
    eq(os.pread(fd, 1, 200), b"\1")
    change, size = look(fd)
    os.fsync(other)  # no change
    eq(shift(fd, 100, 1000, b"new", change), size)
    os.close(other)
    os.close(fd)


@test
def shifts_refused(d):
    data = pattern(1000)
    fd = opened(d + "/f", data)
    change, size = look(fd)
    for offset, length, new, flags in (
            (0, 3, b"abc", 0), (0, 2, b"abc", 0), (0, 10, b"", 0), (998, 10, b"abc", 0),
            (0, 1004, b"abc", 0), (0, 1001, b"abc", SHIFT_DOWN), (998, 3, b"a", SHIFT_DOWN),
            (2000, 10, b"a", 0), (0, 0, b"", 0), (0, 10, b"a", 8), (1 << 63, 10, b"a", 0),
            ((1 << 63) - 5, 10, b"a", 0)):
        try:
            shift(fd, offset, length, new, change, flags)
            raise AssertionError((offset, length, new, flags))
        except OSError as e:
            eq(e.errno in (errno.EINVAL, errno.EFBIG), True, (offset, length, new, flags, e))
    raises(errno.EINVAL, shift, fd, 0, 10, b"abc", change, version=2)
    raises(errno.EINVAL, shift, fd, 0, 10, b"abc", change, stage_id=1)
    raises(errno.EINVAL, shift, fd, 0, 10, b"abc", change, data_len=2)
    raises(errno.ENOENT, shift, fd, 0, 10, b"", change, SHIFT_STAGED, 77, data_len=3)
    raises(errno.EINVAL, look, fd, flags=SHIFT_DOWN)
    raises(errno.EINVAL, look, fd, offset=1)
    raises(errno.EINVAL, look, fd, version=2)
    big = pattern(600)
    number = stage(fd, 0, 0, big)
    eq(shift(fd, 0, 1300, b"", change, SHIFT_STAGED, number, data_len=600), 1300)
    eq(os.pread(fd, 2000, 0), big + data[:700])
    os.close(fd)
    fd = os.open(d + "/f", os.O_RDONLY)
    raises(errno.EBADF, look, fd)
    raises(errno.EBADF, shift, fd, 0, 10, b"abc", change)
    os.close(fd)
    fd = os.open(d, os.O_RDONLY)
    raises(errno.EISDIR, shift, fd, 0, 10, b"abc", change)
    os.close(fd)


@test
def append_edits(d):
    fd = opened(d + "/f", b"start")
    eq(edit(fd, 1 << 40, 99, b"+end", EDIT_APPEND), (5, 9))
    eq(os.pread(fd, 100, 0), b"start+end")
    os.close(fd)


@test
def nothing_changes_no_times(d):
    fd = opened(d + "/f", b"12345")
    os.fsync(fd)
    before = os.fstat(fd)
    eq(edit(fd, 2, 0, b""), (2, 5))
    eq(edit(fd, 7, 4, b""), (7, 5))
    after = os.fstat(fd)
    eq((after.st_mtime_ns, after.st_ctime_ns), (before.st_mtime_ns, before.st_ctime_ns))
    edit(fd, 2, 1, b"x")
    after = os.fstat(fd)
    assert after.st_mtime_ns > before.st_mtime_ns and after.st_ctime_ns > before.st_ctime_ns
    os.close(fd)


@test
def staged(d):
    data = pattern(1000000)
    fd = opened(d + "/f", data)
    new = pattern(300000, 7)
    eq(big_edit(fd, 1234, 99, new), (1234, 1000000 - 99 + 300000))
    eq(os.pread(fd, 2000000, 0), data[:1234] + new + data[1333:])
    number = stage(fd, 0, 0, b"abc")
    raises(errno.EINVAL, stage, fd, number, 2, b"x")
    raises(errno.ENOENT, stage, fd, number + 1, 0, b"x")
    raises(errno.EINVAL, edit, fd, 0, 0, b"abcd", EDIT_STAGED, number)
    eq(edit(fd, 0, 0, b"abc", EDIT_STAGED, number)[0], 0)
    raises(errno.ENOENT, edit, fd, 0, 0, b"abc", EDIT_STAGED, number)
    number = stage(fd, 0, 0, b"abc")
    stage(fd, number, 0, b"", STAGE_DROP)
    raises(errno.ENOENT, stage, fd, number, 0, b"", STAGE_DROP)
    number = stage(fd, 0, 0, b"abc")
    other = os.open(d + "/f", os.O_RDWR)
    raises(errno.ENOENT, edit, other, 0, 0, b"abc", EDIT_STAGED, number)
    os.close(other)
    os.close(fd)


@test
def largest_edit(d):
    fd = opened(d + "/f", b"ab")
    new = pattern(8 << 20, 3)
    eq(big_edit(fd, 1, 0, new), (1, (8 << 20) + 2))
    eq(os.pread(fd, 9 << 20, 0), b"a" + new + b"b")
    step = IOC_MAX - STAGE.size
    number = 0
    for at in range(0, 8 << 20, step):
        number = stage(fd, number, at, bytes(min(step, (8 << 20) - at)))
    raises(errno.EFBIG, stage, fd, number, 8 << 20, b"x")
    raises(errno.EFBIG, stage, fd, 0, 0, b"x")
    os.close(fd)
    fd = opened(d + "/f", b"ab")
    stage(fd, 0, 0, b"x")
    os.close(fd)


@test
def errors(d):
    p = d + "/f"
    fd = opened(p, b"12345", os.O_RDONLY)
    raises(errno.EBADF, edit, fd, 0, 0, b"x")
    raises(errno.EBADF, stage, fd, 0, 0, b"x")
    os.close(fd)
    fd = os.open(d, os.O_RDONLY)
    raises(errno.EISDIR, edit, fd, 0, 0, b"x")
    os.close(fd)
    fd = os.open(p, os.O_WRONLY)
    raises(errno.EINVAL, edit, fd, 1 << 63, 0, b"x")
    raises(errno.EINVAL, edit, fd, 0, 0, b"x", 0, 0, 2)
    raises(errno.EINVAL, edit, fd, 0, 0, b"x", 8)
    raises(errno.EINVAL, edit, fd, 0, 0, b"x", 0, 5)
    raises(errno.EINVAL, edit, fd, 0, 0, b"x", 0, 0, VERSION, 2)
    raises(errno.EFBIG, edit, fd, (1 << 63) - 2, 0, b"xyz")
    raises(errno.EINVAL, fcntl.ioctl, fd, 3 << 30 | 3 << 16 | 0x96 << 8 | 1, b"abc")
    os.close(fd)
    eq(read_file(p), b"12345")


@test
def seen_at_once_by_everybody(d):
    """Cached pages, mappings, sizes of other descriptors, without a stat between."""
    p = d + "/f"
    data = pattern(200000)
    fd = opened(p, data)
    other = os.open(p, os.O_RDONLY)
    mapping = mmap.mmap(other, 200000, prot=mmap.PROT_READ)
    rng = random.Random(1)
    for _ in range(200):
        eq(mapping[:100], data[:100])
        eq(os.pread(other, len(data) + 100, 0), data)
        at = rng.randrange(len(data))
        # Never shorter than the mapping.
        old = rng.randrange(min(300, max(len(data) - 200000, 0) + 1))
        new = pattern(rng.randrange(301), rng.randrange(1 << 30))
        if len(data) - min(old, len(data) - at) + len(new) < 200000:
            continue
        edit(fd, at, old, new)
        data = data[:at] + new + data[at + old:]
        page = rng.randrange(48) * 4096
        eq(mapping[page:page + 4096], data[page:page + 4096])
        eq(os.lseek(other, 0, os.SEEK_END), len(data))
    mapping.close()
    os.close(other)
    os.close(fd)


@test
def edits_of_many_at_once(d):
    """Records of 64 bytes are inserted and deleted at record borders by several processes:
    whatever the order, records stay whole and each process's inserts are all there."""
    p = d + "/f"
    write_file(p, b"".join(b"%-63d\n" % i for i in range(1000)))
    children = []
    for k in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                fd = os.open(p, os.O_RDWR)
                for i in range(150):
                    edit(fd, 64 * random.randrange(900), 0, b"%-63s\n" % (b"new %d %d" % (k, i)))
                    if i % 3 == 0:
                        os.pread(fd, 4096, random.randrange(60000))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children.append(pid)
    for pid in children:
        eq(os.waitpid(pid, 0)[1], 0)
    lines = read_file(p).split(b"\n")[:-1]
    eq(len(lines), 1600)
    eq({len(line) for line in lines}, {63})
    new = sorted(line.strip() for line in lines if line.startswith(b"new"))
    eq(new, sorted(b"new %d %d" % (k, i) for k in range(4) for i in range(150)))
    eq([line.strip() for line in lines if not line.startswith(b"new")],
       [b"%d" % i for i in range(1000)])


@test
def model(d):
    """Random edits, writes, truncations, punches and mapped stores against plain bytes."""
    seed = int(os.environ.get("VARJFS_TEST_SEED", random.randrange(1 << 30)))
    print(f"# seed {seed}")
    rng = random.Random(seed)
    p = d + "/f"
    data = bytearray(pattern(100000))
    fd = opened(p, data)
    appender = os.open(p, os.O_WRONLY | os.O_APPEND)
    for step in range(1500):
        kind = rng.randrange(9)
        at = rng.randrange(len(data) + 5000)
        new = pattern(rng.randrange(9000), rng.randrange(1 << 30))
        old = rng.randrange(9000)
        if kind < 3:
            edit(fd, at, old, new)
            if at <= len(data):
                data[at:at + old] = new
            elif new:
                data += bytes(at - len(data)) + new
        elif kind == 3 and new:
            os.pwrite(fd, new, at)
            data += bytes(max(0, at - len(data)))
            data[at:at + len(new)] = new
        elif kind == 4 and new:
            os.write(appender, new)
            data += new
        elif kind == 5:
            os.ftruncate(fd, at)
            del data[at:]
            data += bytes(at - len(data))
        elif kind == 6 and old:
            fallocate(fd, 3, at, old)
            data[at:min(at + old, len(data))] = bytes(max(0, min(at + old, len(data)) - at))
        elif kind == 7 and len(data) > 10000:
            size = os.fstat(fd).st_size
            eq(size, len(data), f"size at step {step}")
            m = mmap.mmap(fd, size)
            at %= size - 100
            m[at:at + 100] = new[:100].ljust(100, b"-")
            data[at:at + 100] = new[:100].ljust(100, b"-")
            m.close()
        elif kind == 8 and rng.randrange(10) == 0:
            os.fsync(fd)
        if step % 10 == 0:
            eq(os.pread(fd, len(data) + 10000, 0), bytes(data), f"content at step {step}")
        else:
            at = rng.randrange(len(data) + 1)
            eq(os.pread(fd, 10000, at), bytes(data[at:at + 10000]), f"bytes at step {step}")
    eq(os.fstat(fd).st_size, len(data))
    os.close(fd)
    os.close(appender)
    eq(read_file(p), bytes(data))


@test
def text_pages(d):
    fd = opened(d + "/f", pattern(3 << 20))
    os.ftruncate(fd, 5 << 20)
    os.fsync(fd)
    lines = [line.split(" ") for line in text(fd, 1).splitlines()]
    eq({len(line) for line in lines}, {10})
    at = 0
    for line in lines:
        eq(int(line[0]), at)
        at += int(line[1])
        assert line[2] in ("object", "hole", "fragment", "inline"), line
    eq(at, 5 << 20)
    assert any(line[2] == "object" for line in lines)
    os.close(fd)
    fd = os.open(d + "/f", os.O_WRONLY)
    raises(errno.EBADF, text, fd, 1)
    os.close(fd)
    fd = os.open(d, os.O_RDONLY)
    keys = [line.split("=")[0] for line in text(fd, 2).splitlines()]
    eq(keys[:10], ["total_bytes", "free_bytes", "available_bytes", "reserved_bytes", "inodes",
                   "objects", "object_plain_bytes", "object_stored_bytes", "dirty_bytes",
                   "cache_bytes"])
    assert text(fd, 3)
    raises(errno.EISDIR, text, fd, 1)
    raises(errno.EINVAL, text, fd, 99)
    os.close(fd)


sys.exit(main(*sys.argv[1:]))
