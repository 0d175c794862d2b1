#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# fio writes blocks that know their place and their sum, with every engine that there is, and
# verifies them at once, at the end, and once more after a remount.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/program.sh"
requires command fio
program_begin "$@"
size=6m
[ -z "$long" ] || size=512m
common=(--directory="$W" "--size=$size" --verify=crc32c --verify_fatal=1 --verify_state_save=0
    --group_reporting --thread=0 --minimal --allow_file_create=1)

works()
{
    fio --name=probe --directory="$T" --size=64k --bs=4k --rw=write --ioengine="$1" --direct="$2" >/dev/null 2>&1
}

job() # NAME OPTION...
{
    local name=$1
    shift
    check "$name" fio --name="$name" "${common[@]}" "$@"
}

verified=()
for engine in psync pvsync2 mmap libaio io_uring; do
    for direct in 0 1; do
        [ $engine != mmap ] || [ $direct = 0 ] || continue
        if ! works $engine $direct; then
            skip "$engine, direct=$direct" "it does not work off the mount"
            continue
        fi
        depth=1
        case $engine in libaio | io_uring) depth=16 ;; esac
        options=("--ioengine=$engine" "--direct=$direct" "--iodepth=$depth")
        job "$engine-$direct-sequential" --rw=write --bs=64k "${options[@]}"
        job "$engine-$direct-random" --rw=randwrite --bsrange=4k-64k --bs_unaligned=0 --blockalign=4k "${options[@]}"
        job "$engine-$direct-backlog" --rw=randrw --bs=8k --verify_backlog=64 "${options[@]}"
        verified+=("$engine-$direct-sequential --rw=write --bs=64k")
    done
done
job fsync-each --rw=randwrite --bs=4k --size=1m --fsync=1
job o-sync --rw=randwrite --bs=4k --size=1m --sync=1
job four-files --rw=randwrite --bs=4k --numjobs=4 --nrfiles=5
job unaligned --rw=write --bs=3333 --verify_interval=3333 --size=$((3333 * 900))
remounted "with fio's files"
for each in "${verified[@]}"; do
    # shellcheck disable=SC2086 # a name and options
    check "after a remount: ${each%% *}" fio "--name=${each%% *}" "${common[@]}" ${each#* } --verify_only
done
program_end
