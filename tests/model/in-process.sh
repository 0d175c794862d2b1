#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# in-process.sh [long] - random edits of files of one volume against byte arrays
#
# Files have a transformation and object sizes of their own, change them and are recoded meanwhile.
# The short form is a tenth of the long one.  Seeds are random and printed;
# VARJFS_MODEL_SEED=N gives all runs the same.  VARJFS_MODEL_PART=N: an N-th of the operations;
# VARJFS_TEST_WRAPPER, a command, stands in front of the program.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"

requires program tests/model/model
scale=1
part=${VARJFS_MODEL_PART:-1}
[ "${1:-}" != long ] && [ -z "${VARJFS_MODEL_LONG:-}" ] || scale=10

# Thousands of small objects and their syncs: on a file system in memory where there is one.
dir=$T
if [ -w /dev/shm ] && [ "$(stat -f -c %T /dev/shm)" = tmpfs ]; then
    dir=$(mktemp -d /dev/shm/varjfs-test.XXXXXX) || exit 99
    at_exit rm -rf "$dir"
fi

# model NAME OPTION...
model()
{
    local name=$1 status=0
    shift
    # shellcheck disable=SC2086,SC2154 # a command with arguments; tap.sh sets builddir
    ${VARJFS_TEST_WRAPPER:-} "$builddir/tests/model/model" --dir "$dir" ${VARJFS_MODEL_SEED:+--seed "$VARJFS_MODEL_SEED"} \
        "$@" >"$T/out" 2>&1 || status=$?
    note "$(sed 's/^# //' "$T/out" | tail -60)"
    is "$name" $status 0
}

model "small objects, one thread, conflicts" --ops $((60000 * scale / part)) --rounds $((6 * scale)) \
    --size 1048576 --conflicts 30
model "four threads, readers beside them" --ops $((30000 * scale / part)) --rounds $((3 * scale)) \
    --threads 4 --readers 2 --recoders 1 --conflicts 30
model "rabin" --ops $((10000 * scale / part)) --rounds $((2 * scale)) --chunker rabin \
    --objects 512:2K:8K --size 1000000
model "default objects, larger files" --ops $((1000 * scale / part)) --rounds 2 --files 2 \
    --objects 256K --size 33554432
model "a store that fails" --ops $((10000 * scale / part)) --rounds $((2 * scale)) --threads 2 \
    --readers 1 --recoders 1 --conflicts 30 --faults 700
tap_done
