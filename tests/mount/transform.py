# SPDX-License-Identifier: LGPL-3.0-or-later
"""Transformations as users meet them.  Runs in a mounted directory: transform.py MNT [NAME]

What JULEA's report on transformations asks for (T-n), at the level of files: inverses (T-1), in client, server
and transport mode (T-2 to T-4), changing sizes (T-5), parts of files (T-7, T-26, T-27), data that grows
(T-10), both sizes told (T-22 to T-24, T-31, T-33), several writers at a time (T-15).
"""

import errno
import multiprocessing
import mmap
import os
import random
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from vjtap import (Skip, big_edit, edit, eq, fallocate, main, raises, read_file, test, text,  # noqa: E402
                   wait_for, write_file)

TRANSFORM = "user.varjfs.transform"
CODECS = ["none", "xor", "xor:5a", "rle", "lz4", "lz4:9", "zstd", "zstd:9"]
NUMBERS = {"none": 0, "xor": 1, "rle": 2, "lz4": 3, "zstd": 4}
SEED = int(os.environ.get("VARJFS_MODEL_SEED") or random.randrange(1 << 30))


def choose(path, value):
    os.setxattr(path, TRANSFORM, value.encode())


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def status(path):
    sync(path)
    return dict(line.split("=", 1) for line in
                os.getxattr(path, "user.varjfs.status").decode().splitlines())


def objects(path):
    """(length, codec number) of each object of the file."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    lines = [line.split() for line in text(fd, 1).splitlines()]
    os.close(fd)
    return [(int(f[1]), int(f[9])) for f in lines if f[2] == "object"]


def counter(path, *names):
    fd = os.open(path, os.O_RDONLY)
    values = dict(line.split("=") for line in text(fd, 3).splitlines())
    os.close(fd)
    return [int(values[name]) for name in names]


def recode(path):
    subprocess.run(["varjfsctl", "recode", path], check=True, stdout=subprocess.DEVNULL)


def words(rng, size):
    """Text that every compressor likes and none finds the whole of."""
    some = [bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=rng.randrange(2, 9))) for _ in range(400)]
    out = bytearray()
    while len(out) < size:
        out += b" ".join(rng.choices(some, k=64)) + b"\n"
    return bytes(out[:size])


def contents(rng):
    return {
        "text": words(rng, 500000),
        "noise": rng.randbytes(300000),
        "alternating": b"ab" * 100000,
        "constant": b"\0" * 300000,
        "runs": b"".join(bytes([n % 251]) * (n % 700) for n in range(900)),
        "one block and a bit": words(rng, 65537),
        "one byte": b"x",
        "small": words(rng, 4096),
        "nearly small": words(rng, 4081),
    }


@test
def every_codec_gives_back_what_it_got(d):
    rng = random.Random(SEED)
    for mode in ("client", "server", "transport"):
        os.setxattr(d, "user.varjfs.mode", mode.encode())
        for codec in CODECS if mode == "client" else ["lz4", "xor:5a"]:
            choose(d, codec)
            for name, data in contents(rng).items():
                path = f"{d}/{mode} {codec} {name}"
                write_file(path, data)
                told = status(path)
                eq(told["transform"], codec)
                eq(told["mode"], mode)
                eq(int(told["original_size"]), len(data))
                size = os.stat(path)
                eq(size.st_size, len(data))
                eq(size.st_blocks > 0, True, "blocks of a file with data")
                eq(size.st_blocks, (int(told["stored_size"]) + 511) // 512, "du")
                # Nothing grows by more than its checksums, whatever it is.
                limit = len(data) + len(data) // 200 + 64 * (len(objects(path)) + 1)
                if int(told["stored_size"]) > limit:
                    raise AssertionError(f"{path}: {told['stored_size']} of {len(data)}")
    subprocess.run(["varjfsctl", "sync", d], check=True)
    rng, places = random.Random(SEED), random.Random(SEED)
    for mode in ("client", "server", "transport"):
        for codec in CODECS if mode == "client" else ["lz4", "xor:5a"]:
            for name, data in contents(rng).items():
                path = f"{d}/{mode} {codec} {name}"
                eq(read_file(path), data, path)
                with open(path, "rb", buffering=0) as f:
                    for _ in range(10):
                        at = places.randrange(len(data))
                        f.seek(at)
                        want = data[at:at + 5000]
                        eq(f.read(5000), want, f"{path} at {at}")


@test
def what_is_chosen_is_what_is_stored(d):
    rng = random.Random(SEED)
    data = words(rng, 600000)
    for codec in ("none", "xor:5a", "lz4", "zstd"):
        path = d + "/" + codec
        write_file(path, b"")
        choose(path, codec)
        write_file(path, data)
        eq({c for _, c in objects(path)}, {NUMBERS[codec.split(":")[0]]}, codec)
    sizes = {c: int(status(d + "/" + c)["stored_size"]) for c in ("none", "xor:5a", "lz4", "zstd")}
    eq(sizes["none"] == sizes["xor:5a"] > sizes["lz4"] > sizes["zstd"], True, repr(sizes))
    write_file(d + "/noise", b"")
    choose(d + "/noise", "zstd")
    write_file(d + "/noise", rng.randbytes(300000))
    eq({c for _, c in objects(d + "/noise")}, {0}, "noise is stored as it is")


@test
def inherited_without_a_name(d):
    choose(d, "lz4")
    try:
        fd = os.open(d, os.O_TMPFILE | os.O_RDWR)
    except OSError as e:
        if e.errno == errno.EOPNOTSUPP:
            raise Skip("this libfuse has no O_TMPFILE") from e
        raise
    eq(os.getxattr(fd, TRANSFORM), b"lz4")
    os.close(fd)


@test
def inheritance_and_lists(d):
    choose(d, "lz4")
    eq(os.listxattr(d), [TRANSFORM])
    os.mkdir(d + "/sub")
    write_file(d + "/sub/f", b"x")
    os.symlink("f", d + "/sub/link")
    for path in ("/sub", "/sub/f"):
        eq(os.getxattr(d + path, TRANSFORM), b"lz4")
        eq(os.listxattr(d + path), [])
    raises(errno.ENODATA, os.getxattr, d + "/sub/link", TRANSFORM, follow_symlinks=False)
    choose(d + "/sub/f", "rle")
    subprocess.run(["cp", "-a", d, d + ".copy"], check=True)
    try:
        eq(os.listxattr(d + ".copy"), [TRANSFORM])
        eq(os.getxattr(d + ".copy/sub/f", TRANSFORM), b"rle")
        # cp gives a directory its attributes when its contents are there: they inherited nothing.
        eq(os.listxattr(d + ".copy/sub"), [])
        write_file(d + ".copy/new", b"x")
        eq(os.getxattr(d + ".copy/new", TRANSFORM), b"lz4")
    finally:
        subprocess.run(["rm", "-rf", d + ".copy"], check=True)
    os.removexattr(d + "/sub/f", TRANSFORM)
    eq(os.getxattr(d + "/sub/f", TRANSFORM), b"none")
    raises(errno.EINVAL, choose, d, "rot13")
    raises(errno.EINVAL, choose, d, "zstd:1000")
    eq(os.getxattr(d, TRANSFORM), b"lz4")


def as_user(uid, directory, function, *args):
    """The errno of a call that another user makes in the directory; 0: it worked."""
    def child():
        os.chdir(directory)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        try:
            function(*args)
        except OSError as e:
            os._exit(e.errno)
        os._exit(0)
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    return process.exitcode


@test
def who_may_choose(d):
    if os.geteuid() != 0:
        raise Skip("needs several users")
    os.chmod(d, 0o755)
    f, sub = d + "/f", d + "/sub"
    write_file(f, b"x")
    os.chown(f, 1000, 1000)
    os.chmod(f, 0o644)
    eq(as_user(1000, d, choose, "f", "lz4"), 0)
    eq(as_user(1001, d, choose, "f", "lz4"), errno.EACCES)
    eq(as_user(1001, d, os.removexattr, "f", TRANSFORM), errno.EACCES)
    os.chmod(f, 0o666)
    eq(as_user(1001, d, choose, "f", "zstd"), 0)
    os.chmod(f, 0o400)
    eq(as_user(1000, d, choose, "f", "lz4"), errno.EACCES)
    eq(as_user(1000, d, os.getxattr, "f", TRANSFORM), 0)
    eq(as_user(1001, d, os.getxattr, "f", TRANSFORM), errno.EACCES)
    os.mkdir(sub)
    os.chmod(sub, 0o777)
    eq(as_user(1001, d, choose, "sub", "zstd"), 0)
    os.chmod(sub, 0o1777)
    eq(as_user(1001, d, choose, "sub", "lz4"), errno.EPERM)
    eq(os.getxattr(sub, TRANSFORM), b"zstd")
    os.chown(sub, 1001, 1001)
    eq(as_user(1001, d, choose, "sub", "lz4"), 0)


@test
def edits_in_the_middle(d):
    rng = random.Random(SEED + 1)
    path = d + "/f"
    data = bytearray(words(rng, 400000))
    write_file(path, data)
    fd = os.open(path, os.O_RDWR)
    for n in range(120):
        if n % 10 == 0:
            choose(path, rng.choice(CODECS))
        new = words(rng, rng.randrange(1, 9000)) if n % 3 else rng.randbytes(3000)
        at, old = rng.randrange(len(data)), rng.randrange(6000)
        if n % 4 == 3:
            new = b""
        (big_edit if new else edit)(fd, at, old, new)
        data[at:at + old] = new
        if n % 7 == 0:
            os.fsync(fd)
        if n % 16 == 15:
            recode(path)
        if n % 5 == 0:
            eq(read_file(path), bytes(data), f"edit {n}, seed {SEED}")
    os.close(fd)
    eq(read_file(path), bytes(data), f"seed {SEED}")
    choose(path, "zstd")
    recode(path)
    eq({c for _, c in objects(path)} <= {0, 4}, True, "one transformation after recode")
    eq(read_file(path), bytes(data))


@test
def truncated_and_sparse(d):
    rng = random.Random(SEED + 2)
    for codec in CODECS:
        path = d + "/" + codec
        choose(d, codec)
        data = bytearray(words(rng, 300000))
        write_file(path, data)
        for size in (250001, 65536, 65537, 4097, 4096, 100, 200000, 0, 50000):
            sync(path)
            os.truncate(path, size)
            data = data[:size] + bytes(max(0, size - len(data)))
            eq(read_file(path), bytes(data), f"{codec} cut to {size}")
        fd = os.open(path, os.O_RDWR)
        os.pwrite(fd, b"end", 700000)
        data += bytes(700000 - len(data)) + b"end"
        os.pwrite(fd, words(rng, 100000), 300000)
        data[300000:400000] = os.pread(fd, 100000, 300000)
        fallocate(fd, 3, 320000, 50000)  # PUNCH_HOLE | KEEP_SIZE
        data[320000:370000] = bytes(50000)
        os.fsync(fd)
        eq(os.pread(fd, 800000, 0), bytes(data), codec)
        eq(os.lseek(fd, 330000, os.SEEK_DATA), 370000 - 370000 % 4096)
        eq(int(status(path)["stored_size"]) < 120000, True, "holes take no space")
        recode(path)
        eq(os.lseek(fd, 330000, os.SEEK_DATA), 370000 - 370000 % 4096)
        os.close(fd)
        eq(read_file(path), bytes(data), codec)


def append_lines(path, name, count):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    for n in range(count):
        os.write(fd, b"%s %06d %s\n" % (name, n, b"." * (n % 300)))
        if n % 97 == 0:
            os.fsync(fd)
    os.close(fd)


@test
def logs_that_several_append_to(d):
    choose(d, "zstd")
    path = d + "/log"
    write_file(path, b"")
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=append_lines, args=(path, b"w%d" % n, 400)) for n in range(3)]
    for w in writers:
        w.start()
    for codec in ("lz4", "none", "zstd"):
        choose(path, codec)
        subprocess.run(["varjfsctl", "recode", path], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)  # it may keep changing
    for w in writers:
        w.join()
        eq(w.exitcode, 0)
    seen = {}
    for line in read_file(path).splitlines():
        name, number, dots = line.split(b" ")
        eq(dots, b"." * (int(number) % 300))
        eq(int(number), seen.get(name, -1) + 1, "in order, none lost, none twice")
        seen[name] = int(number)
    eq(seen, {b"w0": 399, b"w1": 399, b"w2": 399})
    recode(path)
    eq({c for _, c in objects(path)} <= {0, 4}, True)


@test
def mapped_stores(d):
    rng = random.Random(SEED + 3)
    for codec in ("lz4", "xor:5a", "zstd"):
        path = d + "/" + codec
        choose(d, codec)
        data = bytearray(words(rng, 300000))
        write_file(path, data)
        fd = os.open(path, os.O_RDWR)
        with mmap.mmap(fd, 0) as m:
            for n in range(40):
                at = rng.randrange(len(data) - 10)
                m[at:at + 10] = data[at:at + 10] = b"%010d" % n
                if n == 20:
                    m.flush()
                    recode(path)
            m.flush()
        os.fsync(fd)
        eq(os.pread(fd, len(data), 0), bytes(data), codec)
        os.close(fd)


def write_own_part(path, number, seed):
    rng = random.Random(seed)
    fd = os.open(path, os.O_RDWR)
    final = {}
    for _ in range(60):
        slot = rng.randrange(40)
        piece = (b"%d:%d;" % (number, rng.randrange(1 << 30)) * 400)[:2500]
        os.pwrite(fd, piece, (slot * 4 + number) * 2500)
        final[slot] = piece
        if rng.randrange(20) == 0:
            os.fsync(fd)
    for slot, piece in final.items():
        if os.pread(fd, 2500, (slot * 4 + number) * 2500) != piece:
            os._exit(1)
    os._exit(0)


@test
def several_writers_of_one_file(d):
    path = d + "/f"
    write_file(path, b"\0" * 400000)
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write_own_part, args=(path, n, SEED + n)) for n in range(4)]
    stop = threading.Event()
    trouble = []

    def read_all_the_time():
        while not stop.is_set():
            if len(read_file(path)) != 400000:
                trouble.append("a short read")

    reader = threading.Thread(target=read_all_the_time)
    reader.start()
    for w in writers:
        w.start()
    for codec in ("lz4", "rle", "zstd", "xor", "none"):
        choose(path, codec)
        subprocess.run(["varjfsctl", "recode", path], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)
    for w in writers:
        w.join()
        eq(w.exitcode, 0, "a writer reads what it wrote last")
    stop.set()
    reader.join()
    eq(trouble, [])


def copy_all(source, target):
    a, b = os.open(source, os.O_RDONLY), os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    while os.copy_file_range(a, b, 1 << 30) > 0:
        pass
    os.fsync(b)
    os.close(a)
    os.close(b)


@test
def copies_share_where_the_choice_is_equal(d):
    rng = random.Random(SEED + 4)
    data = words(rng, 2000000)
    for codec in ("lz4", "zstd"):
        os.mkdir(f"{d}/{codec}")
        choose(f"{d}/{codec}", codec)
    write_file(d + "/lz4/f", data)
    sync(d + "/lz4/f")
    for target, shares in (("lz4/g", True), ("zstd/f", False), ("f", False), ("lz4/h", True)):
        before = counter(d, "object_bytes_put", "hashed_bytes")
        copy_all(d + "/lz4/f", d + "/" + target)
        put = [b - a for a, b in zip(before, counter(d, "object_bytes_put", "hashed_bytes"))]
        eq(put == [0, 0] if shares else put[0] > 0, True, f"{target}: {put}")
        eq(read_file(d + "/" + target), data, target)
    eq({c for _, c in objects(d + "/zstd/f")}, {4})
    eq({c for _, c in objects(d + "/f")}, {0})
    stored = [int(status(d + "/" + p)["stored_size"]) for p in ("lz4/f", "lz4/g", "lz4/h")]
    eq(len(set(stored)), 1, "a shared object counts in full in each file")


@test
def recoding_gives_the_space_back(d):
    rng = random.Random(SEED + 5)
    path = d + "/f"
    write_file(path, words(rng, 3000000))
    sync(path)  # what is not written back yet would be encoded by the choice that follows
    before = os.stat(path)
    choose(path, "zstd")
    out = subprocess.run(["varjfsctl", "recode", "--json", path], check=True, capture_output=True)
    eq(b'"rewritten_bytes": 3000000' in out.stdout, True, repr(out.stdout))
    after = os.stat(path)
    eq(after.st_mtime_ns, before.st_mtime_ns)
    eq(after.st_blocks < before.st_blocks / 2, True, "du knows at once")
    eq({c for _, c in objects(path)}, {4})
    # As many objects are in the store as this file and the others have.
    def gone():
        fd = os.open(d, os.O_RDONLY)
        used = dict(line.split("=") for line in text(fd, 2).splitlines())
        os.close(fd)
        return int(used["object_stored_bytes"]) < 2500000
    wait_for(gone)
    out = subprocess.run(["varjfsctl", "recode", "--json", path], check=True, capture_output=True)
    eq(b'"rewritten_bytes": 0' in out.stdout, True, "nothing is left to do")
    os.setxattr(path, "user.varjfs.objects", b"64K")
    recode(path)
    lengths = [n for n, _ in objects(path)[:-1]]
    eq(min(lengths) >= 32768 and max(lengths) <= 98304, True, "the sizes asked for")


if __name__ == "__main__":
    print(f"# seed {SEED}", flush=True)
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
