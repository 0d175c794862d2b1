#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# The Python module varjfs: keys as a mapping, objects as files, with a daemon that it starts.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/client/client.sh"

requires command python3 pgrep pkill

cat >"$T/test.py" <<'EOF'
import array
import errno
import io
import os
import sys

import varjfs

failed = 0


def check(what, ok):
    global failed
    failed += not ok
    print(("" if ok else "not ") + what)


def raises(kind, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        return error
    return None


with varjfs.open(sys.argv[1]) as v:
    k = v.keys("k")
    k[b"b"] = b"2"
    k["a"] = b"1" * 65536
    k[b"\0\xff"] = b""
    check("keys", list(k) == [b"\0\xff", b"a", b"b"] and len(k["a"]) == 65536 and k[b"\0\xff"] == b"")
    check("a key that is not there", raises(KeyError, lambda: k["none"]) and "none" not in k)
    check("of a prefix", list(k.items_from("b")) == [(b"b", b"2")])
    del k["a"]
    check("deleted", len(k) == 2 and raises(KeyError, k.__delitem__, "a"))
    words = memoryview(array.array("i", [1, 2, 3]))
    k["words"] = words
    check("items of more than a byte", k["words"] == bytes(words) and len(k["words"]) == 12)
    del k["words"]
    k.put("once", b"1", exclusive=True)
    check("put once", raises(FileExistsError, k.put, "once", b"2", exclusive=True) and k["once"] == b"1")
    del k["once"]
    check("too long a value", raises(OSError, k.put, "x", b"1" * 65537) is not None)

    o = v.objects("o")
    f = o.create("file", transform="rle")
    check("there is one already", raises(FileExistsError, o.create, "file"))
    check("no such transformation", raises(OSError, o.create, "g", transform="none such").errno == errno.EINVAL)
    f.write(b"0123456789" * 1000)
    f.insert(5, b"inserted")
    f.delete(0, 2)
    f.seek(0)
    check("edits", f.read(13) == b"234inserted56" and f.tell() == 13)
    check("status", f.status().bytes == 10006 and f.status().transform == "rle")
    f.truncate(10)
    check("cut", f.seek(0, io.SEEK_END) == 10)
    f.truncate(20)
    check("and longer", io.BufferedReader(o["file"]).read() == b"234inserte" + b"\0" * 10)
    check("names", list(o) == ["file"] and "none" not in o)
    a = f.attributes
    a["colour"], a["empty"] = b"red", b""
    check("attributes", dict(a) == {"colour": b"red", "empty": b""} and a["colour"] == b"red")
    check("an attribute that is not there", raises(KeyError, lambda: a["none"]) and "none" not in a)
    del a["empty"]
    check("deleted", list(a) == ["colour"] and raises(KeyError, a.__delitem__, "empty"))
    check("a name that is reserved", raises(OSError, a.__setitem__, "varjfs.mode", b"").errno == errno.EPERM)
    o.create("other", attributes={"size": b"1" * 5000, "colour": b"blue"})
    check("items with attributes", list(o.with_attributes("colour", "size")) ==
          [("file", {"colour": b"red"}), ("other", {"colour": b"blue", "size": None})])
    check("a name that is taken", raises(FileExistsError, o.rename, "file", "other", exclusive=True))
    o.rename("other", "file")
    check("another object of that name", list(o) == ["file"] and o["file"].attributes["colour"] == b"blue")
    o.delete("file")
    check("attributes of what is gone", raises(OSError, lambda: a["colour"]).errno == errno.ENOENT)

    atomic = varjfs.Semantics(atomicity=2)
    o.create("dead")
    b = v.batch(atomic)
    b.create("o", "new", attributes={"a": b"1"})
    b.put_attribute("o", "new", "b", b"2")
    b.delete("o", "dead")
    b.write("o", "new", 0, b"first")
    b.put("k", "beside", b"3")
    check("all of an atomic batch", b.execute() == [0] * 5 and list(o) == ["new"] and
          dict(o["new"].attributes) == {"a": b"1", "b": b"2"} and k["beside"] == b"3" and
          o["new"].read() == b"first")
    b.delete_attribute("o", "new", "a")
    b.create("o", "more")
    b.delete_key("k", "none")
    check("or nothing", b.execute() == [errno.ECANCELED] * 2 + [errno.ENOENT] and
          list(o) == ["new"] and "a" in o["new"].attributes)
    # What stands in varjfs-semantics(7) of each operation.
    for what, add in (("write", lambda: b.write("o", "new", 0, b"x")),
                      ("replace", lambda: b.replace("o", "new", 0, 0, b"x")),
                      ("resize", lambda: b.resize("o", "new", 1)),
                      ("rename", lambda: b.rename("o", "new", "newer"))):
        b.put("k", "beside", b"4")
        add()
        check(f"no {what} in an atomic batch", b.execute() == [errno.ECANCELED, errno.ENOTSUP] and
              k["beside"] == b"3")
    b.close()
    del k["beside"]
    for n in range(1100):
        k[f"many{n}"] = b""
    v.keys("emptied")["a"] = b""
    v.keys("emptied").clear()
    o.clear()
    check("namespaces that are gone", list(v.keys("emptied")) == [] and list(o) == [])
    for n in list(k):
        if n.startswith(b"many"):
            del k[n]
    check("gone", list(o) == [] and raises(OSError, f.read, 1).errno == errno.ENOENT)
    s = varjfs.Semantics("default", safety=2, persistency=2)
    k.put("safe", b"1", semantics=s)
    check("semantics that cannot be had", "security" in str(raises(OSError, varjfs.Semantics, security=1)))
    check("no such semantics", raises(TypeError, varjfs.Semantics, colour=1))
    b = v.batch()
    b.append("o", "log", b"one ", make=True)
    b.append("o", "log", b"two")
    b.put("k", "safe", b"2", exclusive=True)
    check("a batch with flags", b.execute() == [0, 0, errno.EEXIST] and o["log"].read() == b"one two")
    o["log"].append(b" three")
    check("appended", o["log"].read() == b"one two three")
    b.close()
    # ctypes takes the lower 64 bits of a number, and C a name up to its first NUL.
    f = o.create("far")
    f.write(b"0123456789")
    for offset in (1 << 63, 1 << 64, (1 << 64) + 3):
        f.seek(offset)
        check(f"nothing is written at {offset}", raises(OSError, f.write, b"x").errno == errno.EFBIG and
              raises(OSError, f.read, 1).errno == errno.EFBIG and
              raises(OSError, f.insert, offset, b"x").errno == errno.EFBIG and
              raises(OSError, f.truncate).errno == errno.EFBIG)
    b = v.batch()
    check("nor does a negative length delete", raises(OSError, f.delete, 5, -1).errno == errno.EINVAL and
          raises(OSError, f.insert, -1, b"x").errno == errno.EINVAL and
          raises(OSError, f.truncate, -1).errno == errno.EINVAL and
          raises(OSError, b.replace, "o", "far", 0, -1, b"").errno == errno.EINVAL and
          raises(OSError, b.write, "o", "far", 1 << 64, b"x").errno == errno.EFBIG and
          raises(OSError, b.resize, "o", "far", -1).errno == errno.EINVAL)
    # libvarjfs(3) says how long an object may be.
    f.truncate((1 << 62) - 1)
    check("the longest one", f.status().bytes == (1 << 62) - 1 and
          raises(OSError, f.truncate, 1 << 62).errno == errno.EFBIG)
    f.truncate(10)
    f.seek(0)
    check("all is there", f.read() == b"0123456789")
    f.attributes["a"] = b"1"
    check("a NUL in a name", raises(OSError, o.delete, "far\0behind").errno == errno.EINVAL and
          raises(OSError, o.rename, "far", "new\0er").errno == errno.EINVAL and
          raises(OSError, v.objects, "o\0").errno == errno.EINVAL and
          raises(OSError, v.keys, "k\0").errno == errno.EINVAL and
          raises(OSError, o.create, "new", attributes={"b\0c": b""}).errno == errno.EINVAL and
          raises(OSError, f.attributes.__delitem__, "a\0b").errno == errno.EINVAL and
          raises(OSError, b.delete, "o", "far\0").errno == errno.EINVAL and
          raises(OSError, list, o.with_attributes("a\0b")).errno == errno.EINVAL and
          raises(OSError, varjfs.open, sys.argv[1] + "\0").errno == errno.EINVAL and
          "far" in o and "a" in f.attributes)
    # bytes() makes so many zeros of a number, and ctypes takes the lower bits of one.
    f.seek(0)
    b.put("k", "number", b"1")
    for what, call in (("a value", lambda: k.put("number", 3)), ("a key", lambda: k.put(3, b"x")),
                       ("a key to find", lambda: k[1]),
                       ("an attribute", lambda: f.attributes.__setitem__("a", 2)),
                       ("an attribute of what is new", lambda: o.create("new", attributes={"a": 2})),
                       ("what is written", lambda: f.write(4)), ("appended", lambda: f.append(4)),
                       ("put in the place of others", lambda: f.replace(0, 9, 1)),
                       ("inserted", lambda: f.insert(0, 1)),
                       ("a batch's value", lambda: b.put("k", "number", 3)),
                       ("a batch's write", lambda: b.write("o", "far", 0, 5)),
                       ("a list", lambda: f.write([1, 2]))):
        check(f"a number is no bytes: {what}", raises(TypeError, call) is not None)
    check("all is as it was", b.execute() == [0] and k["number"] == b"1" and f.read() == b"0123456789" and
          f.attributes["a"] == b"1" and "new" not in o)
    del k["number"]
    check("semantics have 8 bits", raises(OSError, varjfs.Semantics, safety=258).errno == errno.EINVAL and
          raises(OSError, varjfs.Semantics, safety=-254).errno == errno.EINVAL and
          raises(TypeError, varjfs.Semantics, size=3) and raises(TypeError, varjfs.Semantics, reserved=0))
    check("a time that is none", raises(OSError, varjfs.open, sys.argv[1], timeout=4294968).errno == errno.EINVAL)
    f.seek(3)
    check("from nowhere", raises(ValueError, f.seek, 1, -1) and raises(ValueError, f.seek, 1, 3) and f.tell() == 3)
    # What a fork copies is the parent's: a child's request would be in its stream.
    b.put("k", "twice", b"1")
    names = o.names()
    next(names)
    child = os.fork()
    if child == 0:
        os._exit(not (raises(ValueError, b.execute) and raises(ValueError, b.delete, "o", "far") and
                      raises(ValueError, list, names) and b.close() is None))
    check("a batch of the parent", os.waitpid(child, 0)[1] == 0 and b.execute() == [0])
    names.close()
    b.close()
    del k["twice"]
    check("a batch that is closed", raises(ValueError, b.put, "k", "x", b"") and raises(ValueError, b.execute))
    b = v.batch()
    b.put("k", "lost", b"")
    v.sync()
check("closed", raises(ValueError, v.sync))
check("a batch of a volume that is closed", raises(ValueError, b.put, "k", "x", b"") and raises(ValueError, b.execute))
b.close()
with varjfs.open(sys.argv[1], read_only=True) as v:
    k = v.keys("k")
    check("read only", k["safe"] == b"1" and raises(OSError, k.put, "safe", b"3").errno == errno.EROFS)
with varjfs.open(sys.argv[1]) as v:
    check("it is there again", v.keys("k")["safe"] == b"1")
check("no volume", raises(FileNotFoundError, varjfs.open, sys.argv[1] + "/none"))
sys.exit(failed > 0)
EOF

check "a volume" mkfs.varjfs "$T/v"
python3 "$T/test.py" "$T/v" >"$T/out" 2>&1
status=$?
while IFS= read -r line; do
    if [ "${line#not }" = "$line" ]; then
        pass "python: $line"
    else
        fail "python: ${line#not }"
    fi
done <"$T/out"
is "python: all of it was run" "$status" 0
check "the daemon ends" stop_daemon "$T/v"

# More than an address of a unix socket holds.
long=$T/$(printf 'd%.0s' {1..120})
mkdir "$long"
check "a volume with a long path" mkfs.varjfs "$long/v"
check "a program uses it" python3 -c 'import sys, varjfs
with varjfs.open(sys.argv[1]) as v:
    v.keys("k")["a"] = b"1"' "$long/v"
check "its daemon ends" stop_daemon "$long/v"
check "the volume is whole" fsck.varjfs -n "$T/v"
tap_done
