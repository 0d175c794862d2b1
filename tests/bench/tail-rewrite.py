#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""Inserts into a file, or deletes from it, as programs do: by rewriting its tail

tail-rewrite.py insert|delete FILE OFFSET BYTES

Prints the milliseconds that it took, with the fsync and without reading the tail.
"""

import os
import sys
import time

what, path, offset, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with open(path, "r+b") as f:
    f.seek(offset + (count if what == "delete" else 0))
    tail = f.read()
    begin = time.perf_counter()
    f.seek(offset)
    if what == "insert":
        f.write(b"i" * count)
    f.write(tail)
    f.truncate()
    f.flush()
    written = time.perf_counter()
    os.fsync(f.fileno())
    synced = time.perf_counter()
print(f"{(written - begin) * 1e3:.1f} {(synced - begin) * 1e3:.1f}")
