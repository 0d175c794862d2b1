#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# make-log-image.sh - make-log-image.sh BUILD-DIR OUT.tar.gz: a volume whose last changes are in the
# redo log and in fragments, cut by gear, left by a daemon that was killed; as root
#
# mount-log-volume.sh says what is in it.  For a new version of the format: the committed volumes
# of older ones stay as they are.

set -eu

if [ $# != 2 ]; then
    echo "usage: make-log-image.sh BUILD-DIR OUT.tar.gz" >&2
    exit 2
fi
build=$1
dir=$(mktemp -d)
trap 'umount -i -l "$dir/mnt" 2>/dev/null || true; rm -rf "$dir"' EXIT
mkdir "$dir/mnt"
"$build/mkfs.varjfs" -o 'hash=sha256,chunker=gear,objects=1K,label=compat log,meta=lmdb:redo=256K\,commit=3600' \
    "$dir/volume"
"$build/varjfs" "$dir/volume" "$dir/mnt"
seq 20000 >"$dir/mnt/base"
seq 24000 >"$dir/mnt/xor"
setfattr -n user.varjfs.transform -v xor "$dir/mnt/xor"
umount -i "$dir/mnt" # all of that is in objects and in data.mdb

# Nothing moves out of the log by itself.
"$build/varjfs" -f -o commit=3600 "$dir/volume" "$dir/mnt" &
daemon=$!
until mountpoint -q "$dir/mnt"; do kill -0 "$daemon"; done
edit()
{
    "$build/varjfsctl" "$@"
    sync "$2" # fsync
}
printf 'written over' | dd of="$dir/mnt/base" bs=1 seek=50000 conv=notrunc,fsync status=none
seq 500 | edit insert "$dir/mnt/base" 5000
edit delete "$dir/mnt/base" 70000 777
seq 300 | edit insert "$dir/mnt/xor" 0
seq 1000 >"$dir/mnt/new" && sync "$dir/mnt/new"
mkdir "$dir/mnt/d" && mv "$dir/mnt/new" "$dir/mnt/d/renamed" && sync "$dir/mnt/d" "$dir/mnt"
kill -KILL "$daemon"
status=0
wait "$daemon" || status=$?
[ "$status" = 137 ] # killed, and nothing else
umount -i -l "$dir/mnt"
# LMDB makes its table of readers anew; the checkpoint is another copy.
rm -rf "$dir/volume/meta/lmdb" "$dir/volume/checkpoints"
tar --sparse --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$dir/volume" -cf - . |
    gzip -9n >"$2"
ls -l "$2"
