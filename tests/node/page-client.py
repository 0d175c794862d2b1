# SPDX-License-Identifier: LGPL-3.0-or-later
"""A client of a node, written from varjfs-protocol(7) alone: page-client.py SOCKET

Plain sockets, nothing of the C library of varjfs; the checksum is that of libxxhash.  Each function says the name of the
head of the page that it follows.  At SOCKET there is a node without TLS whose volume "home" is empty.  Prints TAP.
"""

import ctypes
import json
import mmap
import os
import socket
import struct
import sys
import time
import traceback

HELLO, PING, CANCEL, STATS = 0x0001, 0x0002, 0x0003, 0x0004
BARE = 8  # of the flags of a head
FEATURE_BARE = 1 << 8
FEATURE_BARE_BATCH = 1 << 9
FEATURE_SHARE = 1 << 10
FEATURE_MAILBOX = 1 << 11
PUT, GET, REMOVE, FLUSH, FLUSH_REMOVES, HAVE, LIST, SPACE = range(0x0100, 0x0108)
GET_MANY, SCAN, APPLY, CLOCK, COUNT = range(0x0200, 0x0205)
BATCH, SHARE, MAILBOX, BELL = 0x0300, 0x0304, 0x0305, 0x0306
OK, ABSENT, DAMAGED = 0, 1, 2
READ_ONLY, LATE, CONFLICT, FENCED = 6, 7, 8, 9
UNSUPPORTED, REFUSED, PROTOCOL = 11, 12, 13
BUSY, TOO_LARGE, FOREIGN, EMPTY = 14, 16, 17, 18
OBJECT, META, CLIENT = 1, 2, 3
CREATE, ADOPT, DESTROY, READ_ONLY_FLAG = 1, 2, 4, 8
NOT_THERE = 2**64 - 1
WAIT_S = 60
UUID = bytes(range(0x30, 0x40))

xxhash = ctypes.CDLL("libxxhash.so.0")
xxhash.XXH3_64bits.restype = ctypes.c_uint64
xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def checksum(data):
    return xxhash.XXH3_64bits(data, len(data))


# ---- FRAMES ---------------------------------------------------------------------------------


def frame(op, tag, message=b"", bulk=b"", wait_ms=WAIT_S * 1000, flags=0):
    body = message + bulk
    head = struct.pack("<4sBBHQIIIIQ", b"VJFR", 1, flags, op, tag, wait_ms, len(message), len(bulk), 0,
                       checksum(body) if body else 0)
    return head + struct.pack("<Q", checksum(head)) + body


class Closed(Exception):
    """The node has closed the connection."""


class Reply:
    def __init__(self, op, tag, status, message, bulk):
        self.op, self.tag, self.status, self.message, self.bulk = op, tag, status, message, bulk


class Connection:
    """One connection, without a hello."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(path)
        self.tag = 0
        self.waiting = {}
        self.bare, self.bare_replies = set(), 0
        self.descriptors = []

    def close(self):
        self.socket.close()

    def receive(self, length):
        data = b""
        while len(data) < length:
            try:
                part, descriptors, _, _ = socket.recv_fds(self.socket, length - len(data), 4)
                self.descriptors += descriptors
            except ConnectionError:
                part = b""
            if not part:
                raise Closed
            data += part
        return data

    def next_reply(self):
        head = self.receive(48)
        (magic, version, flags, op, tag, status, message_bytes, bulk_bytes, zero, body_sum,
         head_sum) = struct.unpack("<4sBBHQIIIIQQ", head)
        assert head_sum == checksum(head[:40]), "checksum of the head"
        assert (magic, version, flags & ~BARE, zero) == (b"VJFR", 1, 1, 0), head.hex()
        assert message_bytes <= 65536 and bulk_bytes <= 83886080, "limits of a reply"
        body = self.receive(message_bytes + bulk_bytes)
        is_bare = (flags & BARE) != 0
        assert not is_bare or tag in self.bare, "a bare reply that was not asked for"
        summed = body[:message_bytes] if is_bare else body
        assert body_sum == (checksum(summed) if summed else 0), "checksum of the body"
        self.bare_replies += is_bare
        return Reply(op, tag, status, body[:message_bytes], body[message_bytes:])

    def send(self, op, message=b"", bulk=b"", flags=0):
        """Sends a request; its tag."""
        self.tag += 1
        self.waiting[self.tag] = op
        if flags & BARE:
            self.bare.add(self.tag)
        self.socket.sendall(frame(op, self.tag, message, bulk, flags=flags))
        return self.tag

    def reply_to(self, tag):
        """The replies that come before it must be those of others that wait."""
        while True:
            reply = self.next_reply()
            if reply.op == PING and reply.tag == 0:
                continue
            assert self.waiting.pop(reply.tag) == reply.op, "operation of a reply"
            if reply.tag == tag:
                return reply

    def ask(self, op, message=b"", bulk=b"", status=OK, flags=0):
        reply = self.reply_to(self.send(op, message, bulk, flags))
        assert reply.status == status, f"{op:04x}: status {reply.status} {reply.message!r}, expected {status}"
        if status not in (OK, CONFLICT):
            reply.message.decode("utf-8")
            assert len(reply.message) <= 256 and not reply.bulk, "the text of a failure"
        return reply

    def expect_end(self):
        try:
            reply = self.next_reply()
        except Closed:
            return
        raise AssertionError(f"a reply instead of the end: {reply.op:04x} status {reply.status}")


# ---- HELLO ----------------------------------------------------------------------------------


def hello_message(role, flags=0, uuid=UUID, client=bytes(16), number=0, versions=(1, 1), features=0, volume=b"home",
                  name=b"page", more=b""):
    return (struct.pack("<HHQBB", versions[0], versions[1], features, role, flags) + uuid + client +
            struct.pack("<QI", number, len(volume)) + volume + struct.pack("<I", len(name)) + name + more)


class HelloReply:
    def __init__(self, message):
        self.version, self.features = struct.unpack_from("<HQ", message)
        self.node, self.instance = message[10:26], message[26:42]
        self.was_empty, self.requests, self.bytes = struct.unpack_from("<BIQ", message, 42)


def connect(role, **fields):
    c = Connection(PATH)
    c.hello = HelloReply(c.ask(HELLO, hello_message(role, **fields)).message)
    return c


def refused_hello(status, role=OBJECT, **fields):
    c = Connection(PATH)
    c.ask(HELLO, hello_message(role, **fields), status=status)
    c.expect_end()
    c.close()


# ---- ROLE OBJECT ----------------------------------------------------------------------------


def put(number, random, durable=False):
    return struct.pack("<QQB", number, random, durable)


def get(number, random, offset, length):
    return struct.pack("<QQQI", number, random, offset, length)


def objects(*which):
    return struct.pack("<I", len(which)) + b"".join(struct.pack("<QQ", *o) for o in which)


def list_objects(c, first, last, at_once):
    """Those of a range, with as many requests as it takes."""
    found, behind = [], (0, 0)
    while True:
        reply = c.ask(LIST, struct.pack("<QQQQI", first, last, *behind, at_once))
        more, count = struct.unpack("<BI", reply.message)
        assert len(reply.bulk) == 32 * count and count <= at_once
        entries = [struct.unpack_from("<QQQq", reply.bulk, 32 * i) for i in range(count)]
        found += entries
        if not more:
            return found
        assert count > 0
        behind = entries[-1][:2]


# ---- ROLE META ------------------------------------------------------------------------------


def key(space, name):
    return struct.pack("<BH", space, len(name)) + name


def items(reply):
    """(more, [(space, key, version, value)])"""
    more, count = struct.unpack("<BI", reply.message)
    found, at = [], 0
    for _ in range(count):
        space, length = struct.unpack_from("<BH", reply.bulk, at)
        name = reply.bulk[at + 3:at + 3 + length]
        at += 3 + length
        version, length = struct.unpack_from("<QI", reply.bulk, at)
        at += 12
        found.append((space, name, version, reply.bulk[at:at + length]))
        at += length
    assert at == len(reply.bulk), "items fill the bulk"
    return bool(more), found


def get_many(c, *keys):
    return items(c.ask(GET_MANY, struct.pack("<I", len(keys)) + b"".join(key(*k) for k in keys)))


def scan(c, space, backward=0, limit=1024, behind=b"", before=b""):
    return items(c.ask(SCAN, struct.pack("<BBIH", space, backward, limit, len(behind)) + behind +
                       struct.pack("<H", len(before)) + before))


def apply(c, changes, checks=(), fence=None, number=0, status=OK):
    """changes: {(space, key): value or None}; checks: [(space, key, version)]"""
    message = struct.pack("<B", fence is not None)
    if fence is not None:
        message += key(*fence[:2]) + struct.pack("<Q", fence[2])
    message += struct.pack("<QQI", number, len(changes), len(checks))
    message += b"".join(key(*k[:2]) + struct.pack("<Q", k[2]) for k in checks)
    bulk = b"".join(key(*k) + struct.pack("<BI", changes[k] is None, len(changes[k] or b"")) + (changes[k] or b"")
                    for k in sorted(changes))
    return c.ask(APPLY, message, bulk, status=status)


# ---- what is tried --------------------------------------------------------------------------

TESTS = []


def test(function):
    TESTS.append(function)
    return function


@test
def a_place_is_made_and_belongs_to_a_volume():
    refused_hello(EMPTY)
    c = connect(OBJECT, flags=CREATE)
    assert c.hello.version == 1 and c.hello.features == 0 and c.hello.was_empty == 1
    assert c.hello.requests in range(1025) and c.hello.bytes == 40 << 20, "as page.sh configures it"
    assert c.hello.node != bytes(16) and c.hello.instance != bytes(16)
    again = connect(OBJECT, flags=CREATE)
    assert again.hello.was_empty == 0 and again.hello.node == c.hello.node
    assert again.hello.instance == c.hello.instance
    refused_hello(FOREIGN, uuid=bytes(16))
    refused_hello(FOREIGN, uuid=bytes(16), flags=CREATE)
    refused_hello(REFUSED, volume=b"nobodys")
    refused_hello(EMPTY, role=META, flags=ADOPT)
    connect(META, flags=CREATE).close()
    c.close()
    again.close()


@test
def versions_features_and_what_is_added():
    refused_hello(UNSUPPORTED, versions=(2, 9))
    refused_hello(PROTOCOL, versions=(0, 1))
    refused_hello(UNSUPPORTED, role=77)
    refused_hello(PROTOCOL, flags=CREATE | ADOPT)
    refused_hello(PROTOCOL, flags=DESTROY)
    refused_hello(PROTOCOL, volume=b"a/b")
    c = connect(OBJECT, versions=(1, 9), features=2**64 - 1, more=b"of a later version")
    assert c.hello.version == 1
    assert c.hello.features == FEATURE_BARE | FEATURE_BARE_BATCH | FEATURE_SHARE | FEATURE_MAILBOX
    c.ask(0x7777, b"what", b"ever", status=UNSUPPORTED)
    d = connect(OBJECT)
    d.ask(0x7777, b"", bytes(65537), status=UNSUPPORTED)
    d.expect_end()
    d.close()
    c.ask(PING)
    c.close()


@test
def bare_bulks():
    content = bytes(range(256)) * 1000
    c = connect(OBJECT, features=FEATURE_BARE)
    assert c.hello.features == FEATURE_BARE
    c.ask(PUT, put(70, 1), content)
    for offset, length in ((0, len(content)), (1, 100001), (5, 3)):
        assert c.ask(GET, get(70, 1, offset, length), flags=BARE).bulk == content[offset:offset + length]
    assert c.bare_replies > 0, "the node has a file, and need not look at it"
    c.ask(GET, get(70, 1, 1, len(content)), flags=BARE, status=DAMAGED)
    c.ask(GET, get(70, 2, 0, len(content)), flags=BARE, status=ABSENT)
    assert c.ask(GET, get(70, 1, 0, len(content))).bulk == content
    c.ask(REMOVE, objects((70, 1)))
    c.send(PING, flags=BARE)
    c.expect_end()
    c.close()
    c = connect(OBJECT)
    assert c.hello.features == 0
    c.send(GET, get(70, 1, 0, 1), flags=BARE)
    c.expect_end()
    c.close()


@test
def the_first_request_is_hello_and_the_only_one():
    for first in (frame(PING, 5), frame(GET, 5, get(1, 2, 0, 1)), frame(HELLO, 0, hello_message(OBJECT)),
                  frame(HELLO, 5, hello_message(OBJECT), b"bulk")):
        c = Connection(PATH)
        c.socket.sendall(first)
        c.expect_end()
        c.close()
    for then in (frame(HELLO, 5, hello_message(OBJECT)), frame(HAVE, 0, objects((1, 1))), frame(PING, 5, b"x"),
                 frame(CANCEL, 5, b"x"), frame(PING, 5, flags=1)):
        c = connect(OBJECT)
        c.socket.sendall(then)
        c.expect_end()
        c.close()


@test
def without_a_role_there_are_statistics():
    c = connect(0, volume=b"any", uuid=bytes(16))
    assert c.hello.node == bytes(16) and c.hello.instance != bytes(16)
    assert isinstance(json.loads(c.ask(STATS, b"\0").bulk.decode("utf-8")), dict)
    assert b"# TYPE " in c.ask(STATS, b"\1").bulk
    c.ask(STATS, b"\2", status=PROTOCOL)
    c.ask(FLUSH, status=UNSUPPORTED)
    c.close()


@test
def messages_have_one_length():
    c = connect(META)
    c.ask(CLOCK, b"x", status=PROTOCOL)
    c.ask(GET_MANY, struct.pack("<I", 1), status=PROTOCOL)
    c.close()
    c = connect(OBJECT)
    for op in (FLUSH, FLUSH_REMOVES, SPACE):
        c.ask(op, b"x", status=PROTOCOL)
    c.ask(GET, get(1, 2, 0, 1) + b"x", status=PROTOCOL)
    c.ask(GET, get(1, 2, 0, 1)[:-1], status=PROTOCOL)
    c.ask(GET, get(1, 2, 0, 0), status=PROTOCOL)
    c.ask(GET, get(1, 2, 33554432, 1), status=PROTOCOL)
    c.ask(PUT, struct.pack("<QQB", 1, 2, 2), b"x", status=PROTOCOL)
    c.ask(HAVE, struct.pack("<I", 4097), status=PROTOCOL)
    c.ask(PING)
    c.close()


@test
def wrong_frames_end_the_connection():
    right = frame(PING, 7)
    for at in (0, 4, 5, 28, 39, 47):
        c = connect(OBJECT)
        c.socket.sendall(right[:at] + bytes([right[at] ^ 0x80]) + right[at + 1:])
        c.expect_end()
        c.close()
    c = connect(OBJECT)
    wrong = frame(PUT, 8, put(1, 2), b"content")
    c.socket.sendall(wrong[:-1] + b"x")
    c.expect_end()
    c.close()


@test
def objects_are_put_flushed_and_got_in_one_trip():
    c = connect(OBJECT)
    contents = {(5, 2): b"five and two", (5, 1): b"x" * 100000, (9, 3): os.urandom(300)}
    # PUT ... PUT FLUSH as one string of bytes; the answers come in any order, that of FLUSH last.
    tags = [c.send(PUT, put(*o), contents[o]) for o in contents]
    flush = c.send(FLUSH)
    statuses = {}
    for _ in range(len(tags) + 1):
        reply = c.next_reply()
        statuses[reply.tag] = reply.status
        if reply.tag == flush:
            assert set(statuses) == set(tags) | {flush}, "FLUSH is answered behind the PUTs"
    assert set(statuses.values()) == {OK}
    c.waiting.clear()
    for o, content in contents.items():
        assert c.ask(GET, get(*o, 0, len(content))).bulk == content
        assert c.ask(GET, get(*o, 3, 5)).bulk == content[3:8]
    c.ask(PUT, put(5, 2), contents[(5, 2)])
    c.ask(PUT, put(5, 2, durable=True), contents[(5, 2)])
    c.ask(GET, get(5, 3, 0, 1), status=ABSENT)
    c.ask(GET, get(5, 2, 10, 3), status=DAMAGED)
    have = struct.unpack("<QQQ", c.ask(HAVE, objects((5, 1), (6, 6), (9, 3))).message)
    assert have == (100000, NOT_THERE, 300), have
    c.close()


@test
def objects_are_listed_in_order_and_removed():
    c = connect(OBJECT)
    whole = [entry[:3] for entry in list_objects(c, 0, 2**64 - 1, 65536)]
    assert whole == [(5, 1, 100000), (5, 2, 12), (9, 3, 300)], whole
    assert [entry[:3] for entry in list_objects(c, 0, 2**64 - 1, 1)] == whole
    assert [entry[:2] for entry in list_objects(c, 5, 5, 10)] == [(5, 1), (5, 2)]
    assert list_objects(c, 6, 8, 10) == []
    c.ask(LIST, struct.pack("<QQQQI", 6, 5, 0, 0, 1), status=PROTOCOL)
    c.ask(LIST, struct.pack("<QQQQI", 5, 6, 0, 0, 0), status=PROTOCOL)
    assert struct.unpack("<II", c.ask(REMOVE, objects((5, 1), (77, 77))).message) == (OK, OK)
    c.ask(FLUSH_REMOVES)
    c.ask(GET, get(5, 1, 0, 1), status=ABSENT)
    assert [entry[:2] for entry in list_objects(c, 0, 2**64 - 1, 10)] == [(5, 2), (9, 3)]
    total, free, available, _ = struct.unpack("<QQQQ", c.ask(SPACE).message)
    assert total >= free >= available > 0
    c.close()


@test
def statistics_are_json():
    c = connect(OBJECT)
    reply = c.ask(STATS)
    assert reply.message == b"" and isinstance(json.loads(reply.bulk.decode("utf-8")), dict)
    c.close()


@test
def cancel_has_no_reply():
    c = connect(OBJECT)
    c.socket.sendall(frame(CANCEL, 0, struct.pack("<Q", 12345)))
    c.ask(PING)
    c.close()


@test
def an_operation_of_the_other_role():
    c = connect(OBJECT)
    c.ask(CLOCK, status=UNSUPPORTED)
    c.close()
    c = connect(META)
    c.ask(FLUSH, status=UNSUPPORTED)
    c.close()


@test
def keys_are_changed_at_once_or_not():
    c = connect(META)
    more, found = get_many(c, (3, b"a"), (3, b"b"))
    assert not more and found == [(3, b"a", 0, b""), (3, b"b", 0, b"")], found
    apply(c, {(3, b"a"): b"1", (3, b"b"): b"", (4, b"c"): b"x" * 98304})
    _, found = get_many(c, (4, b"c"), (3, b"b"), (3, b"a"))
    assert [i[:2] + i[3:] for i in found] == [(4, b"c", b"x" * 98304), (3, b"b", b""), (3, b"a", b"1")]
    version = found[2][2]
    assert version > 0
    conflict = apply(c, {(3, b"a"): b"2"}, checks=[(3, b"a", version), (3, b"b", 0)], status=CONFLICT)
    more, found = items(conflict)
    assert not more and [i[:2] for i in found] == [(3, b"a"), (3, b"b")] and found[0][3] == b"1"
    apply(c, {(3, b"a"): b"2", (3, b"b"): None}, checks=[(3, b"a", version), (3, b"z", 0)])
    _, found = get_many(c, (3, b"a"), (3, b"b"))
    assert found[0][2] != version and found[0][3] == b"2" and found[1][2:] == (0, b"")
    assert struct.unpack("<Q", c.ask(COUNT, b"\3").message) == (1,)
    apply(c, {(3, b"b"): None})
    c.ask(COUNT, b"\20", status=PROTOCOL)
    clock = struct.unpack("<Q", c.ask(CLOCK).message)[0]
    assert clock > 1600000000 * 10**6
    c.close()


@test
def changes_are_in_order_each_key_once():
    def change(name, value=b"v", is_delete=False):
        return key(3, name) + struct.pack("<BI", is_delete, len(value)) + value

    def try_changes(bulk, count, status):
        c.ask(APPLY, struct.pack("<BQQI", 0, 0, count, 0), bulk, status=status)

    c = connect(META)
    before = scan(c, 3)
    try_changes(change(b"b") + change(b"a"), 2, PROTOCOL)
    try_changes(change(b"b") + change(b"b"), 2, PROTOCOL)
    try_changes(change(b"b"), 2, PROTOCOL)
    try_changes(change(b"b") + b"x", 1, PROTOCOL)
    try_changes(change(b"b", is_delete=True), 1, PROTOCOL)
    try_changes(change(b""), 1, PROTOCOL)
    try_changes(change(b"b", b"x" * 98305), 1, PROTOCOL)
    assert scan(c, 3) == before, "nothing of it was done"
    try_changes(b"", 0, OK)
    assert get_many(c) == (False, [])
    twice = get_many(c, (3, b"a"), (3, b"a"))[1]
    assert len(twice) == 2 and twice[0] == twice[1]
    assert scan(c, 3, behind=b"z", before=b"a") == (False, [])
    c.close()


@test
def a_fence_shuts_out():
    c = connect(META)
    apply(c, {(14, b"session"): b"one"})
    fence = (14, b"session", get_many(c, (14, b"session"))[1][0][2])
    apply(c, {(3, b"f"): b"1"}, fence=fence, number=5)
    apply(c, {(3, b"f"): b"1"}, fence=fence, number=5)
    apply(c, {(3, b"f"): b"0"}, fence=fence, number=4, status=LATE)
    apply(c, {(14, b"session"): b"two", (3, b"f"): b"2"}, fence=fence, number=6)
    apply(c, {(3, b"f"): b"3"}, fence=fence, number=7, status=FENCED)
    assert get_many(c, (3, b"f"))[1][0][3] == b"2"
    c.close()


@test
def a_range_of_keys_in_both_directions():
    c = connect(META)
    names = sorted([b"k", b"k\0", b"k\xff", b"ka", b"l"])
    apply(c, {(7, n): b"of " + n for n in names})
    more, found = scan(c, 7)
    assert not more and [i[1] for i in found] == names and found[2][3] == b"of " + names[2]
    more, found = scan(c, 7, limit=2)
    assert more and [i[1] for i in found] == names[:2]
    more, found = scan(c, 7, limit=3, behind=found[-1][1])
    assert not more and [i[1] for i in found] == names[2:]
    _, found = scan(c, 7, backward=1)
    assert [i[1] for i in found] == names[::-1]
    _, found = scan(c, 7, backward=1, behind=b"l", before=b"k\0")
    assert [i[1] for i in found] == [b"k\xff", b"ka"], found
    _, found = scan(c, 7, behind=b"k", before=b"l")
    assert [i[1] for i in found] == names[1:-1]
    assert scan(c, 8) == (False, [])
    c.close()


@test
def long_answers_come_in_parts():
    c = connect(META)
    for first in range(0, 90, 30):
        apply(c, {(8, b"%03d" % n): b"y" * 98304 for n in range(first, first + 30)})
    wanted = [(8, b"%03d" % n) for n in range(90)]
    more, found = get_many(c, *wanted)
    assert more and 1 <= len(found) < 90, len(found)
    assert [i[:2] for i in found] == wanted[:len(found)]
    rest_more, rest = get_many(c, *wanted[len(found):])
    assert not rest_more and [i[:2] for i in found + rest] == wanted
    more, found = scan(c, 8)
    assert more and 1 <= len(found) < 90
    c.close()


@test
def a_later_connection_ends_the_earlier():
    client = os.urandom(16)
    first = connect(OBJECT, client=client, number=1)
    second = connect(OBJECT, client=client, number=2)
    first.expect_end()
    refused_hello(FENCED, client=client, number=2)
    refused_hello(FENCED, client=client, number=1)
    second.ask(PING)
    first.close()
    second.close()


@test
def read_only_changes_nothing():
    c = connect(OBJECT, flags=READ_ONLY_FLAG)
    c.ask(PUT, put(50, 50), b"x", status=READ_ONLY)
    c.ask(REMOVE, objects((5, 2)), status=READ_ONLY)
    c.ask(FLUSH, status=READ_ONLY)
    assert c.ask(GET, get(5, 2, 0, 4)).bulk == b"five"
    c.close()
    c = connect(META, flags=READ_ONLY_FLAG)
    apply(c, {(3, b"r"): b"1"}, status=READ_ONLY)
    c.close()


@test
def what_is_too_large():
    c = connect(OBJECT)
    head = struct.pack("<4sBBHQIIIIQ", b"VJFR", 1, 0, PUT, 99, 0, 17, 33554433, 0, 1)
    c.socket.sendall(head + struct.pack("<Q", checksum(head)))
    reply = c.next_reply()
    assert (reply.tag, reply.status) == (99, TOO_LARGE), reply.status
    c.expect_end()
    c.close()


# ---- ROLE CLIENT ----------------------------------------------------------------------------


def batch(slot, kind, name, brings=0, returns=0, offset=0):
    """Of one operation, in the namespace "s"."""
    return (struct.pack("<BBHI", 0, 0, slot, 1) +
            struct.pack("<BBHHHQQII", kind, 0, 1, len(name), 0, offset, 0, brings, returns) + b"s" + name)


def result(reply):
    return struct.unpack("<IQ", reply.message)


@test
def what_was_not_agreed_on():
    c = connect(CLIENT, volume=b"programs", uuid=bytes(16))
    for op in (SHARE, MAILBOX, BELL):
        c.ask(op, status=UNSUPPORTED)
    assert not c.descriptors
    c.close()


@test
def replies_stand_in_an_area():
    key_put, key_get, slot_bytes, value = 16, 17, 1 << 20, b"a value"
    c = connect(CLIENT, volume=b"programs", uuid=bytes(16), features=FEATURE_SHARE)
    assert c.hello.features == FEATURE_SHARE
    assert result(c.ask(BATCH, batch(0, key_put, b"k", len(value)), value)) == (OK, 0)
    c.ask(BATCH, batch(1, key_get, b"k", returns=100), status=PROTOCOL)
    c.ask(SHARE, b"x", status=PROTOCOL)
    assert not c.descriptors
    c.ask(SHARE)
    (fd,) = c.descriptors
    c.ask(SHARE, status=BUSY)
    assert len(c.descriptors) == 1 and os.fstat(fd).st_size == 4 * slot_bytes
    for refused in (lambda: os.ftruncate(fd, 1), lambda: os.pwrite(fd, b"x", 0), lambda: mmap.mmap(fd, 4096)):
        try:
            refused()
        except PermissionError:
            continue
        raise AssertionError("the area can be changed")
    area = mmap.mmap(fd, 4 * slot_bytes, prot=mmap.PROT_READ)
    for slot in (1, 4):
        reply = c.ask(BATCH, batch(slot, key_get, b"k", returns=100))
        assert result(reply) == (OK, len(value)) and reply.bulk == b""
        assert area[(slot - 1) * slot_bytes:][:len(value)] == value
    c.ask(BATCH, batch(5, key_get, b"k", returns=100), status=PROTOCOL)
    c.ask(BATCH, batch(1, 4, b"o", returns=slot_bytes + 1), status=PROTOCOL)
    assert c.ask(BATCH, batch(0, key_get, b"k", returns=100)).bulk == value
    os.close(fd)
    c.close()


FREE, CALLED, TAKEN, ANSWERED, BY_SOCKET = range(5)


@test
def a_mailbox_and_its_bell():
    key_put, key_get, value = 16, 17, b"a value"
    c = connect(CLIENT, volume=b"programs", uuid=bytes(16), features=FEATURE_MAILBOX)
    assert c.hello.features == FEATURE_MAILBOX
    c.ask(BELL, status=UNSUPPORTED)
    c.ask(MAILBOX, b"x", status=PROTOCOL)
    c.ask(MAILBOX)
    c.ask(MAILBOX, status=BUSY)
    c.ask(BELL)
    c.ask(BELL, status=BUSY)
    memory, bell = c.descriptors
    assert os.fstat(memory).st_size == 36864
    try:
        os.ftruncate(memory, 1)
        raise AssertionError("the mailbox can become shorter")
    except PermissionError:
        pass
    box = mmap.mmap(memory, 36864)
    words = memoryview(box).cast("I")
    assert words[64 // 4] == 1, "the node looks at it"

    def call(message, bulk=b""):
        c.tag += 1
        whole = frame(BATCH, c.tag, message, bulk)
        box[4096:4096 + len(whole)] = whole
        words[0] = CALLED
        os.write(bell, struct.pack("<Q", 1))
        end = time.monotonic() + WAIT_S
        while words[0] in (CALLED, TAKEN):
            assert time.monotonic() < end, "no answer"
            os.sched_yield()
        return c.tag

    def answer(tag):
        assert words[0] == ANSWERED
        magic, _, flags, op, got, status, message_bytes, bulk_bytes = struct.unpack_from("<4sBBHQIII", box, 20480)
        assert (magic, flags, op, got, status) == (b"VJFR", 1, BATCH, tag, OK)
        body = box[20480 + 48:20480 + 48 + message_bytes + bulk_bytes]
        assert struct.unpack_from("<Q", box, 20480 + 32)[0] == checksum(body)
        words[0] = FREE
        return body[:message_bytes], body[message_bytes:]

    assert answer(call(batch(0, key_put, b"in the box", len(value)), value))[0] == struct.pack("<IQ", OK, 0)
    message, bulk = answer(call(batch(0, key_get, b"in the box", returns=100)))
    assert struct.unpack("<IQ", message) == (OK, len(value)) and bulk == value
    c.ask(BATCH, batch(0, key_put, b"long", 20000), bytes(20000))
    tag = call(batch(0, key_get, b"long", returns=20000))
    assert words[0] == BY_SOCKET, "too long for the mailbox"
    c.waiting[tag] = BATCH
    assert c.reply_to(tag).bulk == bytes(20000)
    words[0] = FREE
    box[4096:4096 + 48] = bytes(48)
    words[0] = CALLED
    os.write(bell, struct.pack("<Q", 1))
    c.expect_end()
    words.release()
    box.close()
    os.close(memory)
    os.close(bell)
    c.close()


def main():
    failed = 0
    for number, function in enumerate(TESTS, 1):
        name = function.__name__.replace("_", " ")
        try:
            function()
            print(f"ok {number} - {name}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {number} - {name}", flush=True)
            for line in traceback.format_exc().splitlines():
                print("# " + line, flush=True)
    print(f"1..{len(TESTS)}", flush=True)
    return failed > 0


PATH = sys.argv[1]
sys.exit(main())
