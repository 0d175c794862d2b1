# SPDX-License-Identifier: LGPL-3.0-or-later
"""varjfs - objects and keys of a varjfs volume, by the library libvarjfs(3)

    import varjfs

    with varjfs.open("/srv/volume") as volume:
        keys = volume.keys("settings")            # a mapping of bytes to bytes
        keys[b"colour"] = b"red"
        objects = volume.objects("data")          # a mapping of names to files
        with objects.create("log", transform="zstd") as log:
            log.write(b"first line\\nsecond line\\n")
            log.insert(11, b"between\\n")         # costs what it is long
            log.seek(0)
            print(log.read())
            log.attributes["colour"] = b"red"     # a mapping too

Whatever fails raises OSError with the errno of the library.  A volume and what came out of it
belong to one thread at a time.
"""

import collections.abc
import ctypes
import errno
import io
import math
import operator
import os

__all__ = ["open", "Batch", "Volume", "Keys", "Objects", "Object", "Attributes", "Status", "Semantics", "version"]

_ITERATE_END = 0


def _load():
    library = ctypes.CDLL(os.environ.get("VARJFS_LIBRARY", "libvarjfs.so.0"))
    p, s, z = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    u64, u, i = ctypes.c_uint64, ctypes.c_uint, ctypes.POINTER(ctypes.c_int)
    for name, result, arguments in (
            ("open", ctypes.c_int, (s, p, ctypes.POINTER(p))),
            ("close", ctypes.c_int, (p,)),
            ("sync", ctypes.c_int, (p,)),
            ("open_error", s, ()),
            ("strerror", s, (ctypes.c_int,)),
            ("version", s, ()),
            ("semantics_template", ctypes.c_int, (s, p)),
            ("semantics_check", ctypes.c_int, (p, ctypes.POINTER(s))),
            ("batch_new", ctypes.c_int, (p, p, ctypes.POINTER(p))),
            ("batch_free", None, (p,)),
            ("batch_execute", ctypes.c_int, (p,)),
            ("object_create", ctypes.c_int, (p, s, s, p, i)),
            ("object_delete", ctypes.c_int, (p, s, s, i)),
            ("object_status", ctypes.c_int, (p, s, s, p, i)),
            ("object_read", ctypes.c_int, (p, s, s, p, z, u64, ctypes.POINTER(z), i)),
            ("object_write", ctypes.c_int, (p, s, s, p, z, u64, u, i)),
            ("object_rwrite", ctypes.c_int, (p, s, s, p, z, u64, u64, u, i)),
            ("object_resize", ctypes.c_int, (p, s, s, u64, i)),
            ("object_rename", ctypes.c_int, (p, s, s, s, u, i)),
            ("item_create", ctypes.c_int, (p, s, s, p, p, z, i)),
            ("attribute_put", ctypes.c_int, (p, s, s, s, p, z, u, i)),
            ("attribute_get", ctypes.c_int, (p, s, s, s, p, z, ctypes.POINTER(z), i)),
            ("attribute_delete", ctypes.c_int, (p, s, s, s, i)),
            ("attribute_iterate", ctypes.c_int, (p, s, s, s, ctypes.POINTER(p))),
            ("item_iterate", ctypes.c_int, (p, s, s, p, z, ctypes.POINTER(p))),
            ("namespace_delete", ctypes.c_int, (p, ctypes.c_int, s, p, p)),
            ("kv_put", ctypes.c_int, (p, s, p, z, p, z, u, i)),
            ("kv_get", ctypes.c_int, (p, s, p, z, p, z, ctypes.POINTER(z), i)),
            ("kv_delete", ctypes.c_int, (p, s, p, z, i)),
            ("object_iterate", ctypes.c_int, (p, s, s, ctypes.POINTER(p))),
            ("kv_iterate", ctypes.c_int, (p, s, p, z, ctypes.POINTER(p))),
            ("iterator_next", ctypes.c_int, (p, p)),
            ("iterator_free", None, (p,))):
        function = getattr(library, "varjfs_" + name)
        function.restype, function.argtypes = result, arguments
    return library


_lib = _load()
_VALUE_MAX = 64 << 10
_OFFSET_MAX = (1 << 63) - 1
_INT_MAX = (1 << 31) - 1
_EXCLUSIVE, _APPEND, _MAKE = 1, 2, 4
_READ_ONLY = 1
_OBJECTS, _KEYS = 0, 1


class _Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("volume", ctypes.c_char_p),
                ("daemon", ctypes.c_char_p), ("timeout_ms", ctypes.c_int), ("flags", ctypes.c_uint)]


def _name(text):
    """As C has it, where a name ends with a NUL: what is behind one must not get lost."""
    name = os.fsencode(text)
    if b"\0" in name:
        raise OSError(errno.EINVAL, "a NUL in a name")
    return name


def _offset(number):
    """An offset or a length; ctypes would take the lower 64 bits of any number."""
    number = operator.index(number)
    if number < 0:
        raise OSError(errno.EINVAL, "a negative offset or length")
    if number > _OFFSET_MAX:
        raise OSError(errno.EFBIG, "an offset or length of more than 63 bits")
    return number


def _bytes(data):
    """What has bytes, as they are now: bytes() makes so many zeros of a number."""
    return data if type(data) is bytes else bytes(memoryview(data))


def _milliseconds(seconds):
    """For a C int: 0 the default, -1 without end."""
    if seconds < 0:
        return -1
    if seconds * 1000 > _INT_MAX:
        raise OSError(errno.EINVAL, "a time of more than 24 days: -1 is without end")
    return math.ceil(seconds * 1000)


class Semantics(ctypes.Structure):
    """What a batch asks for; varjfs-semantics(7).  Semantics("posix", safety=2)"""

    _categories = ("atomicity", "concurrency", "consistency", "ordering", "persistency", "safety",
                   "security")
    _fields_ = ([("size", ctypes.c_size_t)] + [(name, ctypes.c_uint8) for name in _categories] +
                [("reserved", ctypes.c_uint8)])

    def __init__(self, template="default", **values):
        super().__init__(size=ctypes.sizeof(Semantics))
        _check(_lib.varjfs_semantics_template(_name(template), ctypes.byref(self)), template)
        for name, value in values.items():
            if name not in self._categories:
                raise TypeError(f"no such semantics: {name}")
            if not 0 <= operator.index(value) <= 255:
                raise OSError(errno.EINVAL, f"{name} has no such value")
            setattr(self, name, value)
        why = ctypes.c_char_p()
        rc = _lib.varjfs_semantics_check(ctypes.byref(self), ctypes.byref(why))
        if rc < 0:
            raise OSError(-rc, why.value.decode() if why.value else "no such semantics")


class _ObjectOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("transform", ctypes.c_char_p),
                ("mode", ctypes.c_char_p), ("objects", ctypes.c_char_p)]


class _Status(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("bytes", ctypes.c_uint64), ("stored_bytes", ctypes.c_uint64),
                ("modified_us", ctypes.c_int64), ("created_us", ctypes.c_int64),
                ("transform", ctypes.c_char * 128)]


class _Entry(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_void_p), ("name_len", ctypes.c_size_t),
                ("value", ctypes.c_void_p), ("len", ctypes.c_size_t),
                ("attributes", ctypes.c_void_p), ("attribute_count", ctypes.c_size_t)]


class _Attribute(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class _Given(ctypes.Structure):
    # A field of bytes keeps the object that it points to.
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p), ("len", ctypes.c_size_t)]


def _given(attributes):
    """The structures, and how many."""
    given = (_Given * len(attributes))()
    for at, (name, value) in zip(given, attributes.items()):
        value = _bytes(value)
        at.name, at.value, at.len = _name(name), value, len(value)
    return given, len(attributes)


class Status(collections.namedtuple("Status", "bytes stored_bytes modified made transform")):
    """Of an object; times in seconds since 1970."""


def _check(rc, *names):
    if rc < 0:
        where = "/".join(os.fsdecode(n) for n in names)
        text = _lib.varjfs_strerror(rc).decode(errors="replace")
        raise OSError(-rc, f"{where}: {text}" if where else text)
    return rc


def version():
    """Of the library."""
    return _lib.varjfs_version().decode()


def open(source, **options):
    """Connects to the volume in a directory, or at "unix:PATH" (then volume="NAME").

    Options: volume, daemon (the program to start), timeout (seconds; -1 is without end), semantics,
    read_only.
    """
    return Volume(source, **options)


class Volume:
    """A connection.  Closes itself at the end of a with block."""

    def __init__(self, source, volume=None, daemon=None, timeout=0, semantics=None,
                 read_only=False):
        self._v = ctypes.c_void_p()
        self._process = os.getpid()
        self._semantics = semantics
        options = _Options(ctypes.sizeof(_Options),
                           None if volume is None else _name(volume),
                           None if daemon is None else _name(daemon), _milliseconds(timeout),
                           _READ_ONLY if read_only else 0)
        rc = _lib.varjfs_open(_name(source), ctypes.byref(options), ctypes.byref(self._v))
        if rc < 0:
            raise OSError(-rc, _lib.varjfs_open_error().decode(errors="replace"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if self._is_own():
            _lib.varjfs_close(self._v)
            self._v = None

    def _is_own(self):
        """It is open, and by this process: of what a fork copies the connection is the parent's."""
        return bool(getattr(self, "_v", None)) and self._process == os.getpid()

    def close(self):
        """Raises the first error that nobody has heard of, of operations with safety none."""
        v = self._v if self._is_own() else None
        self._v = None
        if v:
            _check(_lib.varjfs_close(v))

    def _handle(self):
        if not self._is_own():
            raise ValueError("the volume is closed, or another process's")
        return self._v

    def sync(self):
        """Everything so far is durable."""
        _check(_lib.varjfs_sync(self._handle()))

    def keys(self, space):
        return Keys(self, space)

    def objects(self, space):
        return Objects(self, space)

    def batch(self, semantics=None):
        return Batch(self, semantics or self._semantics)

    def _run(self, names, add, *arguments, semantics=None):
        """One operation as a batch of its own."""
        semantics = semantics or self._semantics
        batch, result = ctypes.c_void_p(), ctypes.c_int()
        _check(_lib.varjfs_batch_new(self._handle(),
                                     ctypes.byref(semantics) if semantics else None,
                                     ctypes.byref(batch)))
        try:
            _check(add(batch, *arguments, ctypes.byref(result)), *names)
            _check(_lib.varjfs_batch_execute(batch), *names)
        finally:
            _lib.varjfs_batch_free(batch)

    def _clear(self, kind, space):
        rc = _lib.varjfs_namespace_delete(self._handle(), kind, space, None, None)
        if rc != -errno.ENOENT:
            _check(rc, space)

    def _iterate(self, begin, *arguments):
        iterator, entry = ctypes.c_void_p(), _Entry(ctypes.sizeof(_Entry))
        _check(begin(self._handle(), *arguments, ctypes.byref(iterator)))
        try:
            while True:
                self._handle()
                if _check(_lib.varjfs_iterator_next(iterator, ctypes.byref(entry))) == _ITERATE_END:
                    return
                yield (ctypes.string_at(entry.name, entry.name_len),
                       ctypes.string_at(entry.value, entry.len) if entry.len else b"",
                       *_attributes_of(entry))
        finally:
            if self._is_own():
                _lib.varjfs_iterator_free(iterator)


def _attributes_of(entry):
    """Of an item, as a dictionary; a value that is too long to come is None."""
    if not entry.attribute_count:
        return ()
    found = {}
    for a in (_Attribute * entry.attribute_count).from_address(entry.attributes):
        if a.value:
            found[os.fsdecode(a.name)] = ctypes.string_at(a.value, a.len)
        elif a.len:
            found[os.fsdecode(a.name)] = None
    return (found,)


class Batch:
    """Operations that go to the daemon as one request.

        with volume.batch(varjfs.Semantics(atomicity=2)) as batch:
            batch.put("s", b"a", b"1")
            batch.put("s", b"b", b"2")
            errors = batch.execute()    # [0, 0]

    execute returns an errno for each operation, 0 where it was done, and empties the batch; it
    raises only where nothing is known of them.
    """

    def __init__(self, volume, semantics=None):
        self._volume, self._results, self._kept = volume, [], []
        self._b = ctypes.c_void_p()
        _check(_lib.varjfs_batch_new(volume._handle(),
                                     ctypes.byref(semantics) if semantics else None,
                                     ctypes.byref(self._b)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        b, self._b = self._b, None
        if b and self._volume._is_own():
            _lib.varjfs_batch_free(b)

    def _handle(self):
        # The volume frees what belongs to it when it closes.
        if not self._b or not self._volume._is_own():
            raise ValueError("the batch or its volume is closed, or another process's")
        return self._b

    def _add(self, function, *arguments):
        result = ctypes.c_int()
        _check(function(self._handle(), *arguments, ctypes.byref(result)))
        self._results.append(result)
        self._kept.append(arguments)

    def put(self, space, key, value, exclusive=False):
        key, value = _key(key), _bytes(value)
        self._add(_lib.varjfs_kv_put, _name(space), key, len(key), value, len(value),
                  _EXCLUSIVE if exclusive else 0)

    def delete_key(self, space, key):
        key = _key(key)
        self._add(_lib.varjfs_kv_delete, _name(space), key, len(key))

    def create(self, space, name, attributes=None):
        self._add(_lib.varjfs_item_create, _name(space), _name(name), None,
                  *_given(attributes or {}))

    def put_attribute(self, space, name, attribute, value, exclusive=False):
        value = _bytes(value)
        self._add(_lib.varjfs_attribute_put, _name(space), _name(name),
                  _name(attribute), value, len(value), _EXCLUSIVE if exclusive else 0)

    def delete_attribute(self, space, name, attribute):
        self._add(_lib.varjfs_attribute_delete, _name(space), _name(name),
                  _name(attribute))

    def resize(self, space, name, size):
        self._add(_lib.varjfs_object_resize, _name(space), _name(name), _offset(size))

    def rename(self, space, name, new_name, exclusive=False):
        self._add(_lib.varjfs_object_rename, _name(space), _name(name),
                  _name(new_name), _EXCLUSIVE if exclusive else 0)

    def delete(self, space, name):
        self._add(_lib.varjfs_object_delete, _name(space), _name(name))

    def write(self, space, name, offset, data):
        data = _bytes(data)
        self._add(_lib.varjfs_object_write, _name(space), _name(name), data, len(data),
                  _offset(offset), 0)

    def append(self, space, name, data, make=False):
        data = _bytes(data)
        self._add(_lib.varjfs_object_write, _name(space), _name(name), data, len(data),
                  0, _APPEND | (_MAKE if make else 0))

    def replace(self, space, name, offset, length, data):
        data = _bytes(data)
        self._add(_lib.varjfs_object_rwrite, _name(space), _name(name), data,
                  len(data), _offset(offset), _offset(length), 0)

    def execute(self):
        b = self._handle()
        results, self._results = self._results, []
        rc = _lib.varjfs_batch_execute(b)
        self._kept.clear()
        errors = [-r.value for r in results]
        if rc < 0 and -rc not in errors:
            _check(rc)
        return errors


def _key(key):
    return key.encode() if isinstance(key, str) else _bytes(key)


class Keys(collections.abc.MutableMapping):
    """The keys of a namespace: bytes to bytes, in the order of their bytes.  A key that is a str
    stands for its UTF-8."""

    def __init__(self, volume, space):
        self._volume, self._space = volume, _name(space)

    def _run(self, key, add, *arguments, semantics=None):
        self._volume._run((self._space, key), add, self._space, key, len(key), *arguments,
                          semantics=semantics)

    def put(self, key, value, semantics=None, exclusive=False):
        """FileExistsError where there is one and @exclusive."""
        value = _bytes(value)
        self._run(_key(key), _lib.varjfs_kv_put, value, len(value), _EXCLUSIVE if exclusive else 0,
                  semantics=semantics)

    def __setitem__(self, key, value):
        self.put(key, value)

    def __getitem__(self, key):
        value, length = ctypes.create_string_buffer(_VALUE_MAX), ctypes.c_size_t()
        try:
            self._run(_key(key), _lib.varjfs_kv_get, value, _VALUE_MAX, ctypes.byref(length))
        except OSError as error:
            if error.errno == errno.ENOENT:
                raise KeyError(key) from None
            raise
        return value.raw[:length.value]

    def __delitem__(self, key):
        try:
            self._run(_key(key), _lib.varjfs_kv_delete)
        except OSError as error:
            if error.errno == errno.ENOENT:
                raise KeyError(key) from None
            raise

    def items_from(self, prefix=b""):
        """(key, value) of those that begin with @prefix."""
        prefix = _key(prefix)
        yield from self._volume._iterate(_lib.varjfs_kv_iterate, self._space, prefix, len(prefix))

    def clear(self):
        """All of them go, and the namespace."""
        self._volume._clear(_KEYS, self._space)

    def __iter__(self):
        for key, _ in self.items_from():
            yield key

    def __len__(self):
        return sum(1 for _ in self)


class Objects(collections.abc.Mapping):
    """The objects of a namespace by name."""

    def __init__(self, volume, space):
        self._volume, self._space = volume, _name(space)

    def create(self, name, transform=None, mode=None, objects=None, attributes=None):
        """A new object; FileExistsError where there is one.  Nobody sees it without its attributes,
        a mapping of names to bytes."""
        options = _ObjectOptions(ctypes.sizeof(_ObjectOptions),
                                 *(None if o is None else _name(o)
                                   for o in (transform, mode, objects)))
        name = _name(name)
        self._volume._run((self._space, name), _lib.varjfs_item_create, self._space, name,
                          ctypes.byref(options), *_given(attributes or {}))
        return Object(self._volume, self._space, name)

    def delete(self, name):
        name = _name(name)
        self._volume._run((self._space, name), _lib.varjfs_object_delete, self._space, name)

    def rename(self, name, new_name, exclusive=False):
        """One that has the new name goes; @exclusive: FileExistsError."""
        name = _name(name)
        self._volume._run((self._space, name), _lib.varjfs_object_rename, self._space, name,
                          _name(new_name), _EXCLUSIVE if exclusive else 0)

    def clear(self):
        """All of them go, and the namespace."""
        self._volume._clear(_OBJECTS, self._space)

    def with_attributes(self, *attributes, prefix=""):
        """(name, dictionary) of each, with those of these attributes that it has.  A value of more
        than 4096 bytes is None."""
        names = (ctypes.c_char_p * len(attributes))(*map(_name, attributes))
        for name, _, *found in self._volume._iterate(_lib.varjfs_item_iterate, self._space,
                                                     _name(prefix), names, len(attributes)):
            yield os.fsdecode(name), found[0] if found else {}

    def __getitem__(self, name):
        o = Object(self._volume, self._space, _name(name))
        try:
            o.status()
        except OSError as error:
            if error.errno == errno.ENOENT:
                raise KeyError(name) from None
            raise
        return o

    def names(self, prefix=""):
        for name, _ in self._volume._iterate(_lib.varjfs_object_iterate, self._space,
                                             _name(prefix)):
            yield os.fsdecode(name)

    def __iter__(self):
        return self.names()

    def __len__(self):
        return sum(1 for _ in self)


class Attributes(collections.abc.MutableMapping):
    """The attributes of an object: names to bytes."""

    def __init__(self, volume, space, name):
        self._volume, self._at = volume, (space, name)

    def _run(self, attribute, add, *arguments):
        name = _name(attribute)
        try:
            self._volume._run((*self._at, name), add, *self._at, name, *arguments)
        except OSError as error:
            if error.errno == errno.ENODATA:
                raise KeyError(attribute) from None
            raise

    def __setitem__(self, attribute, value):
        value = _bytes(value)
        self._run(attribute, _lib.varjfs_attribute_put, value, len(value), 0)

    def __getitem__(self, attribute):
        value, length = ctypes.create_string_buffer(_VALUE_MAX), ctypes.c_size_t()
        self._run(attribute, _lib.varjfs_attribute_get, value, _VALUE_MAX, ctypes.byref(length))
        return value.raw[:length.value]

    def __delitem__(self, attribute):
        self._run(attribute, _lib.varjfs_attribute_delete)

    def items_from(self, prefix=""):
        """(name, value) of those that begin with @prefix, in one request for many."""
        for name, value in self._volume._iterate(_lib.varjfs_attribute_iterate, *self._at,
                                                 _name(prefix)):
            yield os.fsdecode(name), value

    def __iter__(self):
        for name, _ in self.items_from():
            yield name

    def __len__(self):
        return sum(1 for _ in self)


class Object(io.RawIOBase):
    """An object as a file: read, write, seek, truncate, and edits in the middle."""

    def __init__(self, volume, space, name):
        super().__init__()
        self._volume, self._space, self._name = volume, space, name
        self._at = 0

    @property
    def name(self):
        return os.fsdecode(self._name)

    @property
    def attributes(self):
        return Attributes(self._volume, self._space, self._name)

    def _run(self, add, *arguments):
        self._volume._run((self._space, self._name), add, self._space, self._name, *arguments)

    def status(self):
        s = _Status(ctypes.sizeof(_Status))
        self._run(_lib.varjfs_object_status, ctypes.byref(s))
        return Status(s.bytes, s.stored_bytes, s.modified_us / 1e6, s.created_us / 1e6,
                      s.transform.decode())

    def readable(self):
        return True

    def writable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"no place to seek from: {whence}")
        base = (0, self._at, self.status().bytes if whence == io.SEEK_END else 0)[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, "a negative offset")
        self._at = base + offset
        return self._at

    def tell(self):
        return self._at

    def readinto(self, into):
        view = memoryview(into).cast("B")
        if len(view) == 0:
            return 0
        got = ctypes.c_size_t()
        buffer = (ctypes.c_char * len(view)).from_buffer(view)
        self._run(_lib.varjfs_object_read, buffer, len(view), _offset(self._at), ctypes.byref(got))
        self._at += got.value
        return got.value

    def write(self, data):
        data = _bytes(data)
        self._run(_lib.varjfs_object_write, data, len(data), _offset(self._at), 0)
        self._at += len(data)
        return len(data)

    def replace(self, offset, length, data):
        """@length bytes at @offset become @data; the position stays."""
        data = _bytes(data)
        self._run(_lib.varjfs_object_rwrite, data, len(data), _offset(offset), _offset(length), 0)

    def append(self, data):
        """At the end, wherever others have put it; the position stays."""
        data = _bytes(data)
        self._run(_lib.varjfs_object_write, data, len(data), 0, _APPEND)

    def insert(self, offset, data):
        self.replace(offset, 0, data)

    def delete(self, offset, length):
        self.replace(offset, length, b"")

    def truncate(self, size=None):
        size = self._at if size is None else size
        self._run(_lib.varjfs_object_resize, _offset(size))
        return size
