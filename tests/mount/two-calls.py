#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Between the two calls of an edit: two-calls.py MOUNTPOINT GROUP

The names of the tests begin with the group, which says how two-calls.sh has mounted.  LIBRARY is
librwrite.so."""

import ctypes
import errno
import os
import resource
import signal
import sys
import threading
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from vjtap import *  # noqa: E402,F403

NOBODY = 65534
FS_IOC_SETFLAGS, FS_IMMUTABLE, FS_APPEND = 0x40086602, 0x10, 0x20
STAGED_MAX = 4096  # src/front/stage.c
STAGED_UID_MAX = STAGED_MAX // 4


def opened(path, data, flags=os.O_RDWR):
    write_file(path, data)
    return os.open(path, flags)


librwrite = ctypes.CDLL(os.environ["LIBRARY"], use_errno=True)
librwrite.rpwrite.restype = ctypes.c_ssize_t
librwrite.rpwrite.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64,
                              ctypes.c_size_t]


def rpwrite(fd, data, offset, old_len=0):
    done = librwrite.rpwrite(fd, data, len(data), offset, old_len)
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    eq(done, len(data))


def chattr(fd, flags):
    ioctl(fd, FS_IOC_SETFLAGS, bytearray(struct.pack("=Q", flags)))


def limit_sizes(size):
    """For good, so in a child alone."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


class Child:
    """Runs @function(*args) in a process and hands over what it returns, a number."""

    def __init__(self, function, *args):
        self.out, out = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.write(out, b"%d" % function(*args))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(out)

    def result(self):
        text = os.read(self.out, 100)
        os.close(self.out)
        eq(os.waitpid(self.pid, 0)[1], 0, "the child")
        return int(text)


def stage_until_refused(path, most, uid, told, go):
    """With a descriptor for each, which stay open until @go; how many there are goes to @told."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (most + 50, most + 50))
    os.setresuid(uid, uid, uid)
    staged = 0
    try:
        while staged < most:
            stage_edit(os.open(path, os.O_WRONLY), 0, 0, b"x")
            staged += 1
    except OSError as e:
        eq(e.errno, errno.ENOMEM)
    os.write(told, b"1")
    os.read(go, 1)
    return staged


@test
def seen_a_user_stages_no_more_than_a_share(d):
    fd = opened(d + "/f", b"content")
    write_file(d + "/open", b"content")
    os.chmod(d + "/open", 0o666)
    os.chmod(d, 0o755)
    (told, tell), (wait, go) = os.pipe(), os.pipe()
    child = Child(stage_until_refused, d + "/open", STAGED_MAX + 1, NOBODY, tell, wait)
    os.read(told, 1)
    try:
        eq(edit(fd, 0, 0, b"root's "), (0, 14), "an edit of somebody else")
    finally:
        os.write(go, b"1")
        staged = child.result()
    eq(staged, STAGED_UID_MAX)
    eq(read_file(d + "/f"), b"root's content")
    eq(read_file(d + "/open"), b"content", "what was never carried out")
    for end in (told, tell, wait, go):
        os.close(end)
    os.close(fd)


@test
def seen_stages_of_threads_that_have_ended_make_room(d):
    fd = opened(d + "/f", b"content")
    failed = []

    def stage_and_end():
        try:
            stage_edit(fd, 0, 0, b"x")
        except OSError as e:
            failed.append(e.errno)
    for _ in range(600):  # more than a descriptor may have
        t = threading.Thread(target=stage_and_end)
        t.start()
        t.join()
    eq(failed, [])
    edit(fd, 0, 0, b"one ")
    eq(read_file(d + "/f"), b"one content")
    os.close(fd)


def insert_until_told(path, told):
    """The number of inserts; each is 16 bytes long.  The process has a limit of sizes."""
    fd = os.open(path, os.O_RDWR)
    limit_sizes(1 << 40)
    count = 0
    os.set_blocking(told, False)
    while True:
        rpwrite(fd, b"[inserted %04d]\n"[:16] % (count % 10000), 0)
        count += 1
        try:
            os.read(told, 1)
            return count
        except BlockingIOError:
            pass


@test
def seen_growth_of_a_process_with_a_limit_beside_appends(d):
    """Nobody's bytes are overwritten: the kernel has the new end before anybody appends.
    RWF_APPEND goes to the end that the kernel knows; the daemon cannot tell that it is one."""
    fd = opened(d + "/f", b"0123456789")
    other = os.open(d + "/f", os.O_RDWR)
    for flags in (EDIT_LIMITED, EDIT_LIMITED | EDIT_ANY_SIZE):
        before = read_file(d + "/f")
        _, _, (call, mode, offset, length) = stage_edit(fd, 2, 0, b"inserted", flags)
        fallocate(fd, mode, offset, length)  # whatever else the carrying out may take
        os.pwritev(other, [b"appended"], 0, os.RWF_APPEND)
        eq(read_file(d + "/f"), before[:2] + b"inserted" + before[2:] + b"appended", flags)
    os.ftruncate(fd, 0)
    wait, go = os.pipe()
    child = Child(insert_until_told, d + "/f", wait)
    appended = []
    end = time.monotonic() + 2
    while time.monotonic() < end:
        appended.append(b"[appended%06d]" % len(appended))
        os.pwritev(other, appended[-1:], 0, os.RWF_APPEND)
    os.write(go, b"1")
    inserted = child.result()
    content = read_file(d + "/f")
    print(f"# {inserted} inserts, {len(appended)} appends")
    assert inserted > 10 and len(appended) > 10
    eq(len(content), 16 * (inserted + len(appended)))
    records = [content[i:i + 16] for i in range(0, len(content), 16)]
    eq([r for r in records if r.startswith(b"[app")], appended, "appends in their order")
    eq(len([r for r in records if r.startswith(b"[ins")]), inserted)
    for number in (fd, other, wait, go):
        os.close(number)


def refused_by_the_limit(path):
    fd = os.open(path, os.O_RDWR)
    limit_sizes(1000)
    raises(errno.EFBIG, rpwrite, fd, b"x" * 200, 10)
    raises(errno.ENOENT, edit_drop, fd)
    rpwrite(fd, b"x" * 100, 10)
    raises(errno.ENOENT, edit_drop, fd)
    return 0


@test
def seen_what_the_kernel_refuses_does_not_stay_staged(d):
    data = pattern(900)
    write_file(d + "/f", data)
    Child(refused_by_the_limit, d + "/f").result()
    eq(read_file(d + "/f"), data[:10] + b"x" * 100 + data[10:])


@test
def seen_what_the_daemon_refuses_does_not_stay_staged(d):
    """A call is refused because of what came between: then it is over, and said twice is nothing."""
    data = pattern(900)
    for flags in (FS_IMMUTABLE, FS_APPEND):
        for old_len, new in ((0, b"x" * 100), (100, b"y" * 100), (100, b"")):
            fd = opened(d + "/f", data)
            _, _, carry = stage_edit(fd, 10, old_len, new)
            chattr(fd, flags)
            raises(errno.EPERM, carry_out, fd, *carry)
            chattr(fd, 0)
            raises(errno.ENOENT, edit_drop, fd)
            eq(read_file(d + "/f"), data)
            os.close(fd)
    os.unlink(d + "/f")


@test
def seen_what_would_grow_after_all_is_staged_anew(d):
    """Announced as shorter, it is carried out by a call that does not bring the kernel a size."""
    data = pattern(1000)
    fd = opened(d + "/f", data)
    _, size, carry = stage_edit(fd, 900, 100, b"x" * 50, EDIT_LIMITED)
    eq((size, carry[0]), (950, CARRY_FALLOCATE_SEEK))
    with open(d + "/f", "r+b") as other:
        other.truncate(910)
        raises(errno.EAGAIN, carry_out, fd, *carry)
        eq(read_file(d + "/f"), data[:910])
    edit(fd, 900, 100, b"x" * 50, EDIT_LIMITED)
    eq(read_file(d + "/f"), data[:900] + b"x" * 50)
    os.close(fd)


@test
def seen_what_is_nothing_by_the_size_alone(d):
    """Another size may be under way: whoever asks for something waits for the lock of the inode."""
    fd = opened(d + "/f", b"x" * 100)
    changed_ns = os.fstat(fd).st_mtime_ns
    eq(stage_edit(fd, 10, 0)[2][0], CARRY_NOTHING)
    size, carry = stage_edit(fd, 100, 50)[1:]
    eq((size, carry[0]), (100, CARRY_FALLOCATE))
    carry_out(fd, *carry)
    eq(os.fstat(fd).st_mtime_ns, changed_ns)
    size, carry = stage_edit(fd, 100, 50)[1:]
    os.pwrite(fd, b"y" * 50, 100)
    raises(errno.EAGAIN, carry_out, fd, *carry)
    edit(fd, 100, 50)
    eq(read_file(d + "/f"), b"x" * 100)
    os.close(fd)


def drop_finds_nothing(fd):
    raises(errno.ENOENT, edit_drop, fd)
    return 0


@test
def unnamed_threads_do_not_drop_what_others_staged(d):
    """The daemon cannot name us: what is staged may be anybody's of the descriptor."""
    fd = opened(d + "/f", b"0123456789")
    for flags in (0, EDIT_ANY_SIZE):
        before = read_file(d + "/f")
        _, size, carry = stage_edit(fd, 3, 0, b"inserted", flags)
        Child(drop_finds_nothing, fd).result()
        raises(errno.ENOENT, edit_drop, fd)
        carry_out(fd, *carry)
        eq(read_file(d + "/f"), before[:3] + b"inserted" + before[3:], flags)
        eq(os.fstat(fd).st_size, size)
    end = os.fstat(fd).st_size
    _, _, carry = stage_edit(fd, 0, 0, b"appended", EDIT_APPEND | EDIT_ANY_SIZE)
    with open(d + "/f", "ab") as other:
        other.write(b"before")
    carry_out(fd, *carry)
    eq(edit_drop(fd), end + 6, "where it went")
    rpwrite(fd, b"by the library", 0)
    rpwrite(fd, b"", 0, 14)
    assert read_file(d + "/f").endswith(b"beforeappended")
    os.close(fd)


sys.exit(main(*sys.argv[1:]))
