#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Each operation through the mount: posix.py MOUNTPOINT [PART-OF-A-NAME]"""

import errno
import mmap
import os
import resource
import signal
import stat
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from vjtap import *  # noqa: E402,F403


def as_user(uid, gid, where, function, groups=()):
    """Runs function in a child as somebody else, in a directory that he may not be able to
    reach by its path; its exception is ours."""
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(where)
            os.setgroups(list(groups))
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            function()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    eq(status, 0, "status of the child")


def need_root():
    if os.geteuid() != 0:
        raise Skip("needs root")


@test
def create_write_read(d):
    p = d + "/f"
    data = pattern(300000)
    write_file(p, data)
    eq(read_file(p), data)
    st = os.stat(p)
    eq((st.st_size, st.st_nlink, stat.S_ISREG(st.st_mode)), (300000, 1, True))
    eq((st.st_uid, st.st_gid), (os.geteuid(), os.getegid()))
    assert st.st_blocks > 0, "a file with data shows blocks"
    fd = os.open(p, os.O_RDWR)
    eq(os.pwrite(fd, b"x" * 10, 299995), 10)
    eq(os.fstat(fd).st_size, 300005)
    eq(os.pread(fd, 100, 299990), data[299990:299995] + b"x" * 10)
    eq(os.pread(fd, 10, 400000), b"")
    os.close(fd)


@test
def open_flags(d):
    p = d + "/f"
    raises(errno.ENOENT, os.open, p, os.O_RDONLY)
    fd = os.open(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640)
    os.write(fd, b"hello")
    os.close(fd)
    eq(stat.S_IMODE(os.stat(p).st_mode), 0o640)
    raises(errno.EEXIST, os.open, p, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.close(os.open(p, os.O_RDWR | os.O_CREAT))
    eq(read_file(p), b"hello")
    os.close(os.open(p, os.O_WRONLY | os.O_TRUNC))
    eq(os.stat(p).st_size, 0)
    raises(errno.EISDIR, os.open, d, os.O_WRONLY)
    raises(errno.ENOTDIR, os.open, p + "/x", os.O_RDONLY)
    raises(errno.EISDIR, os.open, d, os.O_CREAT | os.O_RDWR)


@test
def append(d):
    p = d + "/f"
    a = os.open(p, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    b = os.open(p, os.O_WRONLY | os.O_APPEND)
    for i in range(50):
        os.write(a, b"a%03d" % i)
        os.write(b, b"b%03d" % i)
    os.close(a)
    os.close(b)
    eq(read_file(p), b"".join(b"a%03db%03d" % (i, i) for i in range(50)))


@test
def truncate_both_ways(d):
    p = d + "/f"
    data = pattern(100000)
    write_file(p, data)
    os.truncate(p, 70001)
    eq(read_file(p), data[:70001])
    os.truncate(p, 90000)
    eq(read_file(p), data[:70001] + bytes(19999))
    fd = os.open(p, os.O_RDWR)
    os.ftruncate(fd, 10)
    os.ftruncate(fd, 1 << 40)
    eq(os.fstat(fd).st_size, 1 << 40)
    eq(os.pread(fd, 20, 0), data[:10] + bytes(10))
    eq(os.pread(fd, 20, (1 << 40) - 10), bytes(10))
    raises(errno.EFBIG, os.ftruncate, fd, (1 << 63) - 1)
    os.ftruncate(fd, 0)
    os.close(fd)
    eq(read_file(p), b"")


@test
def times(d):
    p = d + "/f"
    write_file(p, b"x")
    os.utime(p, ns=(1234567890123456789, 987654321987654321))
    st = os.stat(p)
    eq((st.st_atime_ns, st.st_mtime_ns), (1234567890123456789, 987654321987654321))
    os.sync()
    fd = os.open(p, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    eq(os.stat(p).st_mtime_ns, 987654321987654321, "mtime after write-back")
    before = time.time_ns()
    os.utime(p)
    assert abs(os.stat(p).st_mtime_ns - before) < 10**9
    os.utime(p, ns=(-5 * 10**9, -1))
    eq(os.stat(p).st_mtime_ns, -1)
    old = os.stat(p).st_ctime_ns
    with open(p, "ab") as f:
        f.write(b"y")
    st = os.stat(p)
    assert st.st_mtime_ns >= before and st.st_ctime_ns >= old
    old = os.stat(d).st_mtime_ns
    write_file(d + "/g", b"")
    new = os.stat(d).st_mtime_ns
    assert new > old
    os.unlink(d + "/g")
    assert os.stat(d).st_mtime_ns > new


@test
def chmod_chown(d):
    need_root()
    p = d + "/f"
    write_file(p, b"x")
    os.chmod(p, 0o6755)
    eq(stat.S_IMODE(os.stat(p).st_mode), 0o6755)
    os.chown(p, 12, 34)
    st = os.stat(p)
    eq((st.st_uid, st.st_gid), (12, 34))
    eq(stat.S_IMODE(st.st_mode), 0o755, "chown clears set-id bits")
    os.chown(p, -1, 35)
    eq((os.stat(p).st_uid, os.stat(p).st_gid), (12, 35))
    os.chmod(d, 0o777)

    def other():
        raises(errno.EPERM, os.chmod, "f", 0o600)
        raises(errno.EPERM, os.chown, "f", 99, 99)
        raises(errno.EPERM, os.utime, "f", ns=(1, 1))
        raises(errno.EACCES, os.open, "f", os.O_WRONLY)

    as_user(99, 99, d, other)


@test
def set_id_bits_and_writers(d):
    need_root()
    os.chmod(d, 0o777)

    def body():
        p = "f"
        for how in ("write", "truncate", "open", "edit"):
            write_file(p, b"12345678")
            os.chmod(p, 0o6777)
            fd = os.open(p, os.O_WRONLY | (os.O_TRUNC if how == "open" else 0))
            if how == "write":
                os.write(fd, b"x")
            elif how == "truncate":
                os.ftruncate(fd, 2)
            elif how == "edit":
                edit(fd, 1, 0, b"y")
            os.close(fd)
            eq(stat.S_IMODE(os.stat(p).st_mode), 0o777, how)

    as_user(99, 99, d, body)


@test
def setgid_directories(d):
    need_root()
    os.chown(d, 0, 55)
    os.chmod(d, 0o2777)

    def body():
        os.umask(0o022)
        os.mkdir("sub", 0o777)
        write_file("f", b"")
        os.mknod("fifo", stat.S_IFIFO | 0o666)

    as_user(99, 98, d, body)
    st = os.stat(d + "/sub")
    eq((st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)), (99, 55, 0o2755))
    st = os.stat(d + "/f")
    eq((st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)), (99, 55, 0o644))
    eq(stat.S_IMODE(os.stat(d + "/fifo").st_mode), 0o644)


@test
def directories(d):
    os.mkdir(d + "/a", 0o751)
    eq(stat.S_IMODE(os.stat(d + "/a").st_mode), 0o751)
    eq(os.stat(d + "/a").st_nlink, 2)
    raises(errno.EEXIST, os.mkdir, d + "/a")
    os.mkdir(d + "/a/b")
    eq(os.stat(d + "/a").st_nlink, 3)
    eq(os.stat(d + "/a/b/..").st_ino, os.stat(d + "/a").st_ino)
    raises(errno.ENOTEMPTY, os.rmdir, d + "/a")
    raises(errno.ENOTDIR, os.rmdir, write_file(d + "/f", b"") or d + "/f")
    raises(errno.EISDIR, os.unlink, d + "/a")
    os.rmdir(d + "/a/b")
    eq(os.stat(d + "/a").st_nlink, 2)
    fd = os.open(d + "/a", os.O_RDONLY)
    os.rmdir(d + "/a")
    raises(errno.ENOENT, os.stat, d + "/a")
    raises(errno.ENOENT, os.open, "x", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fd)
    eq(os.listdir(fd), [])
    os.close(fd)


@test
def long_names(d):
    name = d + "/" + "n" * 255
    write_file(name, b"1")
    eq(os.listdir(d), ["n" * 255])
    raises(errno.ENAMETOOLONG, write_file, name + "n", b"")
    eq(os.statvfs(d).f_namemax, 255)
    odd = os.fsencode(d) + b"/\xff\x01 \n\\"
    write_file(odd, b"2")
    eq(sorted(os.listdir(os.fsencode(d)))[1], b"\xff\x01 \n\\")


@test
def links(d):
    a, b = d + "/a", d + "/b"
    write_file(a, b"x")
    old = os.stat(a).st_ctime_ns
    os.link(a, b)
    st = os.stat(a)
    eq((st.st_nlink, os.stat(b).st_ino), (2, st.st_ino))
    assert st.st_ctime_ns > old
    raises(errno.EEXIST, os.link, a, b)
    os.mkdir(d + "/d")
    raises(errno.EPERM, os.link, d + "/d", d + "/e")
    os.unlink(a)
    eq(os.stat(b).st_nlink, 1)
    eq(read_file(b), b"x")


@test
def symlinks(d):
    os.symlink("a/b", d + "/l")
    eq(os.readlink(d + "/l"), "a/b")
    eq(os.lstat(d + "/l").st_size, 3)
    eq(stat.S_IMODE(os.lstat(d + "/l").st_mode), 0o777)
    long = "t" * 4095
    os.symlink(long, d + "/long")
    eq(os.readlink(d + "/long"), long)
    raises(errno.ENAMETOOLONG, os.symlink, "t" * 4096, d + "/too")
    raises(errno.ENOENT, os.symlink, "", d + "/none")
    raises(errno.EEXIST, os.symlink, "x", d + "/l")
    raises(errno.EINVAL, os.readlink, d)
    os.symlink("self", d + "/self")
    raises(errno.ELOOP, os.open, d + "/self", os.O_RDONLY)


@test
def special_files(d):
    os.mkfifo(d + "/fifo", 0o600)
    assert stat.S_ISFIFO(os.stat(d + "/fifo").st_mode)
    os.mknod(d + "/sock", stat.S_IFSOCK | 0o644)
    assert stat.S_ISSOCK(os.stat(d + "/sock").st_mode)
    os.mknod(d + "/reg", stat.S_IFREG | 0o644)
    assert stat.S_ISREG(os.stat(d + "/reg").st_mode)
    if os.geteuid() == 0:
        os.mknod(d + "/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        eq(os.stat(d + "/null").st_rdev, os.makedev(1, 3))
        os.mknod(d + "/loop", stat.S_IFBLK | 0o600, os.makedev(259, 70000))
        eq(os.stat(d + "/loop").st_rdev, os.makedev(259, 70000))


@test
def rename_rules(d):
    a, b = d + "/a", d + "/b"
    write_file(a, b"1")
    ino = os.stat(a).st_ino
    os.rename(a, b)
    raises(errno.ENOENT, os.stat, a)
    eq(os.stat(b).st_ino, ino)
    write_file(a, b"2")
    os.rename(a, b)
    eq(read_file(b), b"2")
    raises(errno.ENOENT, os.rename, a, b)
    os.link(b, a)
    os.rename(a, b)
    eq(os.stat(a).st_nlink, 2, "two names of one file stay")
    os.mkdir(d + "/d")
    os.mkdir(d + "/e")
    os.mkdir(d + "/e/f")
    raises(errno.EISDIR, os.rename, a, d + "/d")
    raises(errno.ENOTDIR, os.rename, d + "/d", a)
    raises(errno.ENOTEMPTY, os.rename, d + "/d", d + "/e")
    raises(errno.EINVAL, os.rename, d + "/e", d + "/e/f/g")
    raises(errno.ENOTEMPTY, os.rename, d + "/e/f", d + "/e")
    os.rename(d + "/e", d + "/d")
    eq(os.listdir(d + "/d"), ["f"])
    eq(os.stat(d).st_nlink, 3)
    os.rename(d + "/d/f", d + "/f")
    eq((os.stat(d).st_nlink, os.stat(d + "/d").st_nlink), (4, 2))
    eq(os.stat(d + "/f/..").st_ino, os.stat(d).st_ino)


@test
def rename_flags(d):
    a, b = d + "/a", d + "/b"
    write_file(a, b"1")
    write_file(b, b"2")
    raises(errno.EEXIST, renameat2, a, b, RENAME_NOREPLACE)
    renameat2(a, b, RENAME_EXCHANGE)
    eq((read_file(a), read_file(b)), (b"2", b"1"))
    os.unlink(b)
    raises(errno.ENOENT, renameat2, a, b, RENAME_EXCHANGE)
    renameat2(a, b, RENAME_NOREPLACE)
    eq(os.listdir(d), ["b"])
    os.makedirs(d + "/x/y")
    renameat2(d + "/x/y", b, RENAME_EXCHANGE)
    eq(read_file(d + "/x/y"), b"2")
    eq((os.stat(d).st_nlink, os.stat(d + "/x").st_nlink), (4, 2))
    eq(os.stat(b + "/..").st_ino, os.stat(d).st_ino)
    raises(errno.EINVAL, renameat2, d, b + "/z", RENAME_NOREPLACE)
    raises(errno.EINVAL, renameat2, d + "/x", d + "/x/y", RENAME_EXCHANGE)


@test
def unlinked_but_open(d):
    p = d + "/f"
    data = pattern(500000)
    fd = os.open(p, os.O_CREAT | os.O_RDWR, 0o600)
    os.write(fd, data)
    os.unlink(p)
    eq(os.fstat(fd).st_nlink, 0)
    raises(errno.ENOENT, os.stat, p)
    os.fsync(fd)
    eq(os.pread(fd, 500000, 0), data)
    os.pwrite(fd, b"zz", 7)
    edit(fd, 3, 1, b"long")
    eq(os.pread(fd, 20, 0), (data[:3] + b"long" + data[4:7] + b"zz" + data[9:])[:20])
    write_file(p, b"another")
    eq(os.fstat(fd).st_size, 500003)
    os.close(fd)
    eq(read_file(p), b"another")


@test
def replaced_but_open(d):
    write_file(d + "/a", b"old" * 1000)
    write_file(d + "/b", b"new")
    fd = os.open(d + "/a", os.O_RDONLY)
    os.rename(d + "/b", d + "/a")
    eq(os.pread(fd, 10000, 0), b"old" * 1000)
    eq(os.fstat(fd).st_nlink, 0)
    os.close(fd)


@test
def readdir_under_change(d):
    """What is there all the time is seen once, whatever comes and goes."""
    for i in range(3000):
        os.mknod(d + "/stay%d" % i)
        if i % 2:
            os.mknod(d + "/go%d" % i)
    stop = threading.Event()

    def churn(k):
        i = 0
        while not stop.is_set():
            path = d + "/churn%d.%d" % (k, i)
            os.mknod(path)
            if i % 3:
                os.rename(path, path + "x")
                path += "x"
            os.unlink(path)
            gone = d + "/go%d" % (2 * i + 1)
            if k == 0 and i < 1500:
                os.unlink(gone)
            i += 1

    threads = [threading.Thread(target=churn, args=(k,)) for k in range(2)]
    for t in threads:
        t.start()
    try:
        for _ in range(8):
            names = [e.name for e in os.scandir(d)]
            stay = [n for n in names if n.startswith("stay")]
            eq(len(stay), 3000, "names that stay")
            eq(len(set(stay)), 3000, "each once")
    finally:
        stop.set()
        for t in threads:
            t.join()


@test
def readdir_beside_itself(d):
    """A program that renames what it reads comes to an end, also beside others that
    list, and after the kernel has listed it."""
    for i in range(2000):
        os.mknod(d + "/%04d-%s" % (i, "x" * 60))
    for before in (lambda: None, lambda: os.listdir(d)):
        before()
        seen = 0
        with os.scandir(d) as listing:
            for entry in listing:
                os.rename(entry.path, entry.path + "y")
                seen += 1
                if seen % 500 == 0:
                    eq(len(os.listdir(d)), 2000)
                if seen > 20000:
                    break
        eq(seen >= 2000, True, "all of them")
        eq(seen <= 20000, True, "an end")
    names = os.listdir(d)
    eq(len(names), len(set(names)))
    for name in names:
        os.unlink(d + "/" + name)
    eq(os.listdir(d), [])


@test
def listings_after_changes(d):
    """What the kernel has listed it lists anew after each kind of change."""
    def look():
        names = sorted(os.listdir(d))
        eq(sorted(os.listdir(d)), names, "again")
        with os.scandir(d) as listing:
            eq({e.name: e.inode() for e in listing},
               {n: os.lstat(d + "/" + n).st_ino for n in names})
        return names

    eq(look(), [])
    os.mknod(d + "/a")
    eq(look(), ["a"])
    os.mkdir(d + "/dir")
    os.symlink("a", d + "/link")
    eq(look(), ["a", "dir", "link"])
    os.link(d + "/a", d + "/b")
    eq(look(), ["a", "b", "dir", "link"])
    os.rename(d + "/b", d + "/c")
    eq(look(), ["a", "c", "dir", "link"])
    os.rename(d + "/c", d + "/dir/c")
    eq(look(), ["a", "dir", "link"])
    eq(os.listdir(d + "/dir"), ["c"])
    os.rename(d + "/dir/c", d + "/link")
    eq(look(), ["a", "dir", "link"])
    eq(os.listdir(d + "/dir"), [])
    for name in ("a", "link"):
        os.unlink(d + "/" + name)
    eq(look(), ["dir"])
    os.rmdir(d + "/dir")
    eq(look(), [])
    os.mkdir(d + "/dir")
    fd = os.open(d + "/dir", os.O_RDONLY)
    eq(os.listdir(fd), [])
    os.rmdir(d + "/dir")
    eq(os.listdir(fd), [])
    os.close(fd)


@test
def listings_name_the_parent(d):
    """".." of a directory that was listed, moved and exchanged."""
    def parent_of(path):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        entries = getdents(fd, 4096)
        os.close(fd)
        return entries[".."]

    for p in ("/one", "/two", "/one/moved", "/one/b", "/two/c"):
        os.mkdir(d + p)

    def look(place):
        wait_for(lambda: parent_of(d + place) == os.stat(d + place + "/..").st_ino)

    look("/one/moved")
    os.rename(d + "/one/moved", d + "/two/moved")
    look("/two/moved")
    for p in ("/one/b", "/two/c"):
        look(p)
    renameat2(d + "/one/b", d + "/two/c", RENAME_EXCHANGE)
    for p in ("/one/b", "/two/c"):
        look(p)


@test
def readdir_after_one_that_was_left(d):
    """A listing that began in what the kernel keeps, which is dropped then, does not end
    where one ended that was left at its start long before."""
    need_root()
    for i in range(500):
        os.mknod(d + "/before%d" % i)
    left = os.open(d, os.O_RDONLY | os.O_DIRECTORY)
    getdents(left, 4096)
    for i in range(500):
        os.mknod(d + "/after%d" % i)
    for _ in range(2):
        names = set(os.listdir(d))
        eq(len(names), 1000)
    fd = os.open(d, os.O_RDONLY | os.O_DIRECTORY)
    seen = set(getdents(fd, 300))
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("1")
    while True:
        more = getdents(fd, 65536)
        if not more:
            break
        seen |= set(more)
    os.close(fd)
    os.close(left)
    eq(sorted(names - seen), [], "names that are missing")


@test
def readdir_types_and_seek(d):
    os.mkdir(d + "/dir")
    os.symlink("x", d + "/link")
    write_file(d + "/file", b"")
    os.mkfifo(d + "/fifo")
    kinds = {e.name: (e.is_dir(follow_symlinks=False), e.is_symlink(),
                      e.is_file(follow_symlinks=False)) for e in os.scandir(d)}
    eq(kinds, {"dir": (True, False, False), "link": (False, True, False),
               "file": (False, False, True), "fifo": (False, False, False)})
    inos = {e.name: e.inode() for e in os.scandir(d)}
    eq(inos, {n: os.lstat(d + "/" + n).st_ino for n in inos})


@test
def xattrs(d):
    p = d + "/f"
    write_file(p, b"")
    eq(os.listxattr(p), [])
    raises(errno.ENODATA, os.getxattr, p, "user.a")
    os.setxattr(p, "user.a", b"1")
    os.setxattr(p, "user.empty", b"")
    os.setxattr(p, "user.big", pattern(65536))
    eq(os.getxattr(p, "user.a"), b"1")
    eq(os.getxattr(p, "user.empty"), b"")
    eq(os.getxattr(p, "user.big"), pattern(65536))
    raises(errno.EEXIST, os.setxattr, p, "user.a", b"2", os.XATTR_CREATE)
    raises(errno.ENODATA, os.setxattr, p, "user.b", b"2", os.XATTR_REPLACE)
    os.setxattr(p, "user.a", b"22", os.XATTR_REPLACE)
    eq(os.getxattr(p, "user.a"), b"22")
    eq(sorted(os.listxattr(p)), ["user.a", "user.big", "user.empty"])
    os.removexattr(p, "user.a")
    raises(errno.ENODATA, os.removexattr, p, "user.a")
    eq(sorted(os.listxattr(p)), ["user.big", "user.empty"])
    raises(errno.EOPNOTSUPP, os.setxattr, p, "system.x",
           b"")
    os.setxattr(d, "user.dir", b"yes")
    eq(os.listxattr(d), ["user.dir"])


@test
def settings(d):
    p = d + "/f"
    write_file(p, pattern(1000000))
    eq(os.getxattr(p, "user.varjfs.transform"), b"none")
    eq(os.listxattr(p), [])
    raises(errno.EINVAL, os.setxattr, p, "user.varjfs.transform", b"rot13")
    raises(errno.EINVAL, os.setxattr, p, "user.varjfs.unknown", b"1")
    os.setxattr(p, "user.varjfs.transform", b"none")
    eq(os.listxattr(p), ["user.varjfs.transform"])
    os.removexattr(p, "user.varjfs.transform")
    eq(os.listxattr(p), [])
    eq(os.getxattr(p, "user.varjfs.mode"), b"client")
    raises(errno.EINVAL, os.setxattr, p, "user.varjfs.mode", b"none")
    os.setxattr(d, "user.varjfs.mode", b"server")
    eq(os.getxattr(p, "user.varjfs.safety"), b"none")
    raises(errno.EINVAL, os.setxattr, p, "user.varjfs.safety", b"disk")
    os.setxattr(d, "user.varjfs.safety", b"storage")
    os.setxattr(d, "user.varjfs.objects", b"64K")
    raises(errno.EINVAL, os.setxattr, d, "user.varjfs.objects", b"1:2")
    raises(errno.EINVAL, os.setxattr, d, "user.varjfs.objects", b"1")
    write_file(d + "/g", b"")
    os.mkdir(d + "/sub")
    for child in ("/g", "/sub"):
        eq(os.getxattr(d + child, "user.varjfs.mode"), b"server")
        eq(os.getxattr(d + child, "user.varjfs.objects"), b"65536")
        eq(os.getxattr(d + child, "user.varjfs.safety"), b"storage")
    raises(errno.EPERM, os.setxattr, p, "user.varjfs.status", b"x")
    fd = os.open(p, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    status = dict(line.split("=") for line in
                  os.getxattr(p, "user.varjfs.status").decode().splitlines())
    eq(list(status), ["original_size", "stored_size", "objects", "unique_objects",
                      "transform", "mode"])
    eq(status["original_size"], "1000000")
    assert int(status["stored_size"]) >= 1000000 and int(status["objects"]) >= 1


@test
def fallocate_modes(d):
    keep, punch, zero = 1, 2, 16
    p = d + "/f"
    data = pattern(100000)
    write_file(p, data)
    fd = os.open(p, os.O_RDWR)
    fallocate(fd, 0, 0, 50000)
    eq(os.fstat(fd).st_size, 100000)
    fallocate(fd, 0, 90000, 20000)
    eq(os.fstat(fd).st_size, 110000)
    fallocate(fd, keep, 0, 500000)
    eq(os.fstat(fd).st_size, 110000)
    fallocate(fd, punch | keep, 1000, 5001)
    expected = data[:1000] + bytes(5001) + data[6001:] + bytes(10000)
    eq(os.pread(fd, 200000, 0), expected)
    fallocate(fd, zero, 109000, 3000)
    expected = expected[:109000] + bytes(3000)
    eq(os.pread(fd, 200000, 0), expected)
    fallocate(fd, zero | keep, 50000, 1 << 20)
    eq(os.pread(fd, 200000, 0), expected[:50000] + bytes(62000))
    raises(errno.EOPNOTSUPP, fallocate, fd, 32, 4096, 4096)
    raises(errno.EINVAL, fallocate, fd, 0, 0, 0)
    os.close(fd)
    fd = os.open(p, os.O_RDONLY)
    raises(errno.EBADF, fallocate, fd, 0, 0, 10)
    os.close(fd)


@test
def seek_holes(d):
    fd = os.open(d + "/f", os.O_CREAT | os.O_RDWR, 0o600)
    os.ftruncate(fd, 3 << 20)
    raises(errno.ENXIO, os.lseek, fd, 0, os.SEEK_DATA)
    eq(os.lseek(fd, 0, os.SEEK_HOLE), 0)
    os.pwrite(fd, b"x" * 65536, 1 << 20)
    eq(os.lseek(fd, 0, os.SEEK_DATA), 1 << 20)
    eq(os.lseek(fd, 1 << 20, os.SEEK_HOLE), (1 << 20) + 65536)
    raises(errno.ENXIO, os.lseek, fd, (1 << 20) + 65536, os.SEEK_DATA)
    raises(errno.ENXIO, os.lseek, fd, 3 << 20, os.SEEK_HOLE)
    os.fsync(fd)
    eq(os.lseek(fd, 0, os.SEEK_DATA), 1 << 20)
    os.close(fd)


@test
def copy_file_range(d):
    data = pattern(3000000)
    write_file(d + "/a", data)
    a = os.open(d + "/a", os.O_RDONLY)
    b = os.open(d + "/b", os.O_CREAT | os.O_RDWR, 0o600)
    at = 0
    while at < len(data):
        n = os.copy_file_range(a, b, len(data) - at, at, at)
        assert n > 0
        at += n
    eq(os.pread(b, len(data) + 1, 0), data)
    eq(os.copy_file_range(a, b, 10, len(data), 0), 0)
    os.copy_file_range(a, b, 1000, 5000, 100)
    eq(os.pread(b, 2000, 0), data[:100] + data[5000:6000] + data[1100:2000])
    os.close(a)
    os.close(b)


@test
def mapped(d):
    p = d + "/f"
    data = bytearray(pattern(300000))
    write_file(p, data)
    fd = os.open(p, os.O_RDWR)
    m = mmap.mmap(fd, 300000)
    eq(m[:], bytes(data))
    m[100:104] = b"mmap"
    data[100:104] = b"mmap"
    m.flush()
    eq(os.pread(fd, 300000, 0), bytes(data))
    os.pwrite(fd, b"pwrite", 200000)
    eq(m[200000:200006], b"pwrite")
    m.close()
    os.close(fd)


@test
def statfs_adds_up(d):
    s = os.statvfs(d)
    assert s.f_blocks >= s.f_bfree >= s.f_bavail > 0
    eq((s.f_bsize, s.f_frsize), (4096, 4096))


@test
def locks(d):
    import fcntl
    fd = os.open(d + "/f", os.O_CREAT | os.O_RDWR, 0o600)
    other = os.open(d + "/f", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    raises(errno.EWOULDBLOCK, fcntl.flock, other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(fd, fcntl.LOCK_UN)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    pid = os.fork()
    if pid == 0:
        try:
            fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os._exit(1)
        except OSError:
            os._exit(0)
    eq(os.waitpid(pid, 0)[1], 0)
    os.close(fd)
    os.close(other)


@test
def direct_io(d):
    p = d + "/f"
    data = pattern(1 << 20)
    write_file(p, data)
    fd = os.open(p, os.O_RDWR | os.O_DIRECT)
    m = mmap.mmap(-1, 1 << 20)
    eq(os.preadv(fd, [m], 0), 1 << 20)
    eq(m[:], data)
    m[:4096] = b"d" * 4096
    eq(os.pwritev(fd, [memoryview(m)[:4096]], 8192), 4096)
    os.close(fd)
    eq(read_file(p), data[:8192] + b"d" * 4096 + data[12288:])


@test
def fsync_of_everything(d):
    fd = os.open(d + "/f", os.O_CREAT | os.O_WRONLY | os.O_SYNC, 0o600)
    os.write(fd, b"synchronous")
    os.fsync(fd)
    os.fdatasync(fd)
    os.close(fd)
    fd = os.open(d, os.O_RDONLY)
    os.fsync(fd)
    fcntl.ioctl(fd, IOC_SYNC)
    os.close(fd)


@test
def many_links(d):
    write_file(d + "/f", b"")
    for i in range(300):
        os.link(d + "/f", d + "/l%d" % i)
    eq(os.stat(d + "/f").st_nlink, 301)


@test
def nameless_files(d):
    try:
        fd = os.open(d, os.O_TMPFILE | os.O_RDWR, 0o640)
    except OSError as e:
        if e.errno in (errno.EOPNOTSUPP, errno.EISDIR):
            raise Skip("this libfuse has no O_TMPFILE") from e
        raise
    eq((os.fstat(fd).st_nlink, os.listdir(d)), (0, []))
    os.write(fd, b"content")
    at_symlink_follow = 0x400  # os.link cannot ask for it
    eq(libc.linkat(-100, b"/proc/self/fd/%d" % fd, -100, os.fsencode(d + "/named"),
                   at_symlink_follow), 0)
    eq(os.listdir(d), ["named"])
    eq(os.fstat(fd).st_nlink, 1)
    os.close(fd)
    eq(read_file(d + "/named"), b"content")
    os.close(os.open(d, os.O_TMPFILE | os.O_RDWR, 0o640))


@test
def handles_by_number(d):
    """open_by_handle_at, as NFS servers and backup programs use it."""
    need_root()
    write_file(d + "/f", b"content")
    size = 128
    handle = ctypes.create_string_buffer(struct.pack("=Ii", size, 0) + bytes(size))
    mount_id = ctypes.c_int()
    mount_fd = os.open(d, os.O_RDONLY)
    if libc.name_to_handle_at(-100, os.fsencode(d + "/f"), handle, ctypes.byref(mount_id), 0):
        raise AssertionError(os.strerror(ctypes.get_errno()))
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("2")
    fd = libc.open_by_handle_at(mount_fd, handle, os.O_RDONLY)
    if fd < 0:
        raise AssertionError(os.strerror(ctypes.get_errno()))
    eq(os.read(fd, 100), b"content")
    os.close(fd)
    os.unlink(d + "/f")
    write_file(d + "/other", b"other")

    def gone():
        # Until the kernel has forgotten it, the handle may still work.
        fd = libc.open_by_handle_at(mount_fd, handle, os.O_RDONLY)
        if fd >= 0:
            os.close(fd)
        return fd < 0 and ctypes.get_errno() == errno.ESTALE

    wait_for(gone)
    os.close(mount_fd)


@test
def git_works(d):
    if shutil.which("git") is None:
        raise Skip("no git")

    def git(*args):
        subprocess.run(("git", "-C", d) + args, check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE,
                       env=dict(os.environ, GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@b",
                                GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@b",
                                HOME=d))

    git("init", "-q", ".")
    for i in range(30):
        write_file(d + "/file%d" % i, pattern(3000 + i, i))
    git("add", "-A")
    git("commit", "-qm", "one")
    git("gc", "-q")
    git("fsck", "--strict")
    eq(subprocess.run(("git", "-C", d, "status", "--porcelain"), capture_output=True,
                      env=dict(os.environ, HOME=d)).stdout, b"")


sys.exit(main(*sys.argv[1:]))
