#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# make-image.sh - make-image.sh BUILD-DIR OUT.tar.gz: the volume of volume-content.h, packed
#
# For a new version of the format.  The committed volumes of older ones stay as they are.

set -eu

if [ $# != 2 ]; then
    echo "usage: make-image.sh BUILD-DIR OUT.tar.gz" >&2
    exit 2
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$1/tests/compat/make-volume" "$dir/volume"
# LMDB makes its table of readers anew.
rm -rf "$dir/volume/meta/lmdb"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$dir/volume" -cf - . |
    gzip -9n >"$2"
ls -l "$2"
