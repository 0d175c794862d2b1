#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""h5py-compare.py unexpected|stale PATTERNS NAMES - the NAMES of a file that no pattern has, or that one has

A pattern is a name, or the beginning of names with a * behind it.
"""

import sys


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [line for line in f.read().split("\n") if line]


def main():
    way, patterns, names = sys.argv[1], lines(sys.argv[2]), lines(sys.argv[3])
    whole = set(patterns)
    begins = tuple(p[:-1] for p in patterns if p.endswith("*"))
    for name in names:
        if (name in whole or name.startswith(begins)) == (way == "stale"):
            print(name)


main()
