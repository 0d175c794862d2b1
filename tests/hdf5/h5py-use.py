#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""h5py-use.py: what programs do with h5py, in the file "use.h5" of the connector that the environment names

Prints "ok NAME" or "not ok NAME: WHY" for each part.
"""

import sys

import h5py
import numpy as np

PARTS = []


def part(function):
    PARTS.append(function)
    return function


@part
def slices(f):
    data = np.arange(60 * 70, dtype="i4").reshape(60, 70)
    for name, options in (("plain", {}), ("chunked", {"chunks": (16, 16)}),
                          ("gzip", {"compression": "gzip", "shuffle": True, "fletcher32": True})):
        d = f.create_dataset("slices/" + name, data=data, **options)
        assert (d[...] == data).all() and (d[3:50:7, 5] == data[3:50:7, 5]).all()
        d[10:20, 30:40] = -1
        d[::9, 1] = 7
        d[[1, 5, 8], 2:4] = np.full((3, 2), 9)
        changed = data.copy()
        changed[10:20, 30:40] = -1
        changed[::9, 1] = 7
        changed[[1, 5, 8], 2:4] = 9
        assert (d[...] == changed).all() and (d[[2, 5], :] == changed[[2, 5], :]).all()
        mask = changed % 3 == 0
        assert (d[mask] == changed[mask]).all()
        out = np.zeros((60, 70), "f8")
        d.read_direct(out, np.s_[5:10, 5:10], np.s_[0:5, 0:5])
        assert (out[0:5, 0:5] == changed[5:10, 5:10]).all()


@part
def growing(f):
    d = f.create_dataset("growing", (0, 5), maxshape=(None, 5), dtype="f4", fillvalue=2.5)
    for i in range(10):
        d.resize(i + 1, axis=0)
        if i % 2:
            d[i] = np.arange(5) + i
    assert d.shape == (10, 5) and (d[0] == 2.5).all() and (d[9] == np.arange(5) + 9).all()
    d.resize((3, 5))
    d.resize((6, 5))
    assert (d[3:] == 2.5).all()


@part
def types(f):
    record = np.dtype([("number", "i4"), ("where", "f8", (3,)), ("name", "S10")])
    data = np.zeros(5, record)
    data["number"], data["where"][:, 1], data["name"] = np.arange(5), 1.5, b"ten bytes"
    d = f.create_dataset("types/records", data=data)
    assert (d[...] == data).all() and (d["number"] == np.arange(5)).all() and d[2]["name"] == b"ten bytes"
    colour = h5py.enum_dtype({"RED": 1, "GREEN": 2}, basetype="u1")
    d = f.create_dataset("types/colours", (3,), dtype=colour)
    d[:] = [1, 2, 1]
    assert h5py.check_enum_dtype(d.dtype) == {"RED": 1, "GREEN": 2} and list(d) == [1, 2, 1]
    for kind in ("f2", ">i8", "c16", "u1", "?"):
        values = np.array([0, 1, 1], kind)
        d = f.create_dataset("types/" + values.dtype.name, data=values)
        assert d.dtype == values.dtype and (d[:] == values).all()
    f["types/committed"] = record
    assert f["types/committed"].dtype == record
    f.create_dataset("types/of it", (2,), dtype=f["types/committed"])
    assert f["types/of it"].dtype == record


@part
def texts(f):
    words = ["", "one", "a longer text " * 100, "\u4e2d\u6587"]
    d = f.create_dataset("texts/words", data=words, dtype=h5py.string_dtype())
    assert list(d.asstr()) == words
    d[1] = "changed"
    assert d.asstr()[1] == "changed"
    lists = f.create_dataset("texts/lists", (4,), dtype=h5py.vlen_dtype(np.int32))
    for i in range(4):
        lists[i] = np.arange(i * 100)
    assert all((lists[i] == np.arange(i * 100)).all() for i in range(4))
    f["texts/one"] = "a single one"
    assert f["texts/one"][()] == b"a single one"


@part
def attributes(f):
    g = f.create_group("attributes")
    g.attrs["number"], g.attrs["list"], g.attrs["text"] = 7, [1.5, 2.5], "t\u00e4xt"
    g.attrs["words"] = ["a", "bc", ""]
    g.attrs["empty"] = h5py.Empty("f4")
    g.attrs["large"] = np.arange(20000)
    assert g.attrs["number"] == 7 and g.attrs["text"] == "t\u00e4xt" and (g.attrs["large"] == np.arange(20000)).all()
    assert list(g.attrs["words"]) == ["a", "bc", ""] and isinstance(g.attrs["empty"], h5py.Empty)
    g.attrs.modify("number", 8)
    g.attrs.create("number", "now a text")
    assert g.attrs["number"] == "now a text" and len(g.attrs) == 6
    del g.attrs["list"]
    assert sorted(g.attrs) == ["empty", "large", "number", "text", "words"] and "list" not in g.attrs


@part
def groups(f):
    g = f.create_group("groups/deeper/and deeper", track_order=True)
    for name in ("z", "a", "m"):
        g.create_dataset(name, data=name)
    assert len(g) == 3 and len(f["groups"]) == 1 and "a" in g and "b" not in g
    f["groups/again"] = g["a"]
    f["groups/soft"] = h5py.SoftLink("/groups/deeper")
    f["groups/dangling"] = h5py.SoftLink("/nowhere")
    assert f["groups/again"][()] == b"a" and "and deeper" in f["groups/soft"]
    f.move("groups/again", "groups/moved")
    f.copy("groups/deeper", "groups/copy")
    del f["groups/deeper"]
    assert "moved" in f["groups"] and len(f["groups"]) == 4 and f["groups/copy/and deeper/m"][()] == b"m"
    assert f["groups/copy/and deeper/m"].parent.name == "/groups/copy/and deeper"
    for what, error in ((lambda: f["none"], KeyError), (lambda: f.create_group("groups"), ValueError)):
        try:
            what()
        except error:
            continue
        raise AssertionError(f"no {error.__name__}")


@part
def iteration(f):
    g = f.create_group("iteration", track_order=True)
    for name in ("z", "a", "m"):
        g.create_dataset(name, data=name)
    g["soft"] = h5py.SoftLink("/somewhere")
    assert list(g) == ["z", "a", "m", "soft"] and g.get("soft", getlink=True).path == "/somewhere"
    seen = []
    g.visititems(lambda name, thing: seen.append((name, type(thing).__name__)))
    assert seen == [("z", "Dataset"), ("a", "Dataset"), ("m", "Dataset")] or sorted(seen)[0] == ("a", "Dataset")


@part
def identity(f):
    f["identity/one"] = 1
    f["identity/other"] = f["identity/one"]
    assert f["identity/one"] == f["identity/other"] and hash(f["identity/one"]) == hash(f["identity/other"])


@part
def large(f):
    data = np.random.default_rng(1).integers(0, 255, (64, 256, 256), "u1")
    d = f.create_dataset("large", data=data, chunks=(16, 64, 64))
    assert (d[5:60, 3:200, ::3] == data[5:60, 3:200, ::3]).all()
    assert (f["large"][...] == data).all()


def main():
    failed = 0
    with h5py.File("use.h5", "w", libver="latest") as f:
        for one in PARTS:
            try:
                one(f)
            except Exception as why:  # noqa: BLE001 each is reported
                failed += 1
                print(f"not ok {one.__name__}: {type(why).__name__} {why} (line {why.__traceback__.tb_next.tb_lineno})")
            else:
                print(f"ok {one.__name__}")
    with h5py.File("use.h5", "r") as f:
        for name in ("slices/gzip", "growing", "types/records", "texts/words", "large"):
            f[name][...]
        try:
            f.create_group("new")
        except (ValueError, OSError):
            print("ok read-only")
        else:
            failed += 1
            print("not ok read-only: a group was made")
    with h5py.File("use.h5", "a") as f:
        assert f["attributes"].attrs["text"] == "t\u00e4xt"
        del f["large"]
        f.create_group("new")
    print("ok again")
    return failed


sys.exit(main() > 0)
