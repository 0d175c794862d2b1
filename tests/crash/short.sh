#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# short.sh [[STORE/]WORKLOAD:OPS...] - each workload a little, and the power cut a few times
#
# STORE: as mkfs.varjfs has it, with "," for ":".
# VARJFS_MODEL_SEED=N gives the seed; run.sh does more.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
# shellcheck disable=SC2154 # tap.sh sets srcdir
. "$srcdir/tests/crash/crash.sh"

requires_crash
seed=${VARJFS_MODEL_SEED:-$RANDOM$RANDOM}
note "seed $seed"
[ $# -gt 0 ] || set -- edits:60 editors:20 small:150 commits:700 recode:30 gc:40 orphans:6 \
    remounts:20 mixed:100 compact:20 shrink:20 erase:20 checkpoint:40 metafault:60 storefault:40 \
    block/gc:40 block/erase:20 block/mixed:100 block/storefault:40 block,direct=yes/gc:40 block,direct=yes/mixed:100
for word; do
    name=${word%:*} store=
    [[ $name != */* ]] || { store=${name%/*} && store=${store/,/:}; }
    CRASH_STORE=$store
    crash_workload "${name##*/}" --seed "$seed" --ops "${word##*:}" || continue
    crash_states "$name" --states 12 --seed "$seed"
done
tap_done
