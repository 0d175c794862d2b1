#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# HDF5's tools through the connector, with a file that has something of everything, beside the same file of HDF5's own.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/hdf5/hdf5.sh"

content=$builddir/tests/hdf5/content
for tool in h5dump h5ls h5diff h5repack h5copy; do
    [ -x "$hdf5/bin/$tool" ] || skip_all "no $tool beside this HDF5 (scripts/install-deps --test)"
done
mkdir "$T/native" "$T/ours"

# What both print, each with a file of the same name; the arguments after the name of the check are the command.
# What differs by nature is taken out: where something lies, how much room it takes, when it was changed, by what driver;
# and the time of filling, which HDF5 changes for some types in its own files.
unlike='s/^( *(Location|Modified|Storage): *).*/\1/; s/^( *SIZE) .*/\1/; s/^(Opened .* with ).*/\1/
    s/shared-[0-9a-f:]*(struct)/\1/; /^ *(OFFSET|FILL_TIME) /d'
same()
{
    local name=$1 status=0
    shift
    (cd "$T/native" && native "$@" >"$T/native.out" 2>&1) ||
        { fail "$name" "native: $(tail -n 5 "$T/native.out")" || return; }
    (cd "$T/ours" && ours "$@" >"$T/ours.out" 2>&1) || status=$?
    sed -E -i "$unlike" "$T/native.out" "$T/ours.out"
    if [ $status = 0 ] && cmp -s "$T/native.out" "$T/ours.out"; then
        pass "$name"
    else
        fail "$name" "status $status: $*
$(diff "$T/native.out" "$T/ours.out" | head -n 30)"
    fi
}

# The same command, each with its own.
both()
{
    local name=$1
    shift
    (cd "$T/native" && native "$@" >"$T/native.out" 2>&1) ||
        { fail "$name" "native: $(tail -n 5 "$T/native.out")" || return; }
    check "$name" in_ours "$@"
}

in_ours()
{
    (cd "$T/ours" && ours "$@")
}

both "a file that has something of everything" "$content" a.h5
both "and one with references" "$content" r.h5 references

same "h5dump" h5dump a.h5
same "h5dump of references" h5dump r.h5
same "h5dump --properties" h5dump -p -H a.h5
same "h5dump --contents" h5dump -n a.h5
same "h5dump --contents with attributes" h5dump -n 1 a.h5
same "h5dump of a part" h5dump -d /layouts/filtered -s 3,4 -S 2,5 -c 4,3 -k 1,2 a.h5
same "h5dump of one attribute" h5dump -a /words a.h5
same "h5dump in order of creation" h5dump -g "/links/in order" -q creation_order -z descending a.h5
same "h5dump into a file" h5dump -d /layouts/big-endian -b LE -o "$T/dumped" a.h5
same "h5ls" h5ls a.h5
same "h5ls of all" h5ls -r a.h5
same "h5ls of all, with everything" h5ls -r -v a.h5
same "h5ls with data" h5ls -d a.h5/types

both "a second file" "$content" b.h5
both "h5diff finds no difference" h5diff a.h5 b.h5
both "h5copy of a group" h5copy -i a.h5 -o b.h5 -s /layouts -d /copied
both "h5copy of a dataset, with its groups" h5copy -p -i a.h5 -o b.h5 -s /types/records -d /new/groups/records
same "which are there" h5dump -g /copied b.h5
# The type is no longer a committed one, where HDF5 commits a second one without a name.
both "with its data" h5diff a.h5 b.h5 /types/records /new/groups/records
is "h5diff sees that" "$(cd "$T/ours" && status_of ours h5diff a.h5 b.h5) $(head -n 1 "$T/out")" \
    "$(cd "$T/native" && status_of native h5diff a.h5 b.h5) $(head -n 1 "$T/out")"
both "h5diff of the copies" h5diff a.h5 b.h5 /layouts /copied

both "h5repack" h5repack a.h5 c.h5
same "has it all" h5dump -p a.h5
same "has it all in the new one" h5dump c.h5
both "h5repack with other filters" h5repack -f /layouts/contiguous:SHUF -f /layouts/contiguous:GZIP=5 \
    -l /layouts/contiguous:CHUNK=5x6 -l /layouts/chunked:CONTI -f /layouts/filtered:NONE a.h5 d.h5
same "which it has" h5dump -p d.h5

# From the one to the other and back.  h5repack cannot copy soft links there: H5Lcopy is within one connector.
name=varjfs info="source=$volume"
[ -z "${VARJFS_TEST_NATIVE:-}" ] || name=native info=
cross()
{
    native env HDF5_PLUGIN_PATH="$T/plugins" "$@"
}
mkdir "$T/across"
across()
{
    (cd "$T/across" && cross "$@")
}
check "HDF5's own file" native "$content" "$T/across/n.h5" data
check "h5repack of HDF5's own file into the volume" \
    across h5repack --src-vol-name=native --dst-vol-name=$name --dst-vol-info="$info" n.h5 imported.h5
check "h5diff of the two" \
    across h5diff --vol-name-1=native --vol-name-2=$name --vol-info-2="$info" n.h5 imported.h5
check "h5repack out of the volume" \
    across h5repack --src-vol-name=$name --src-vol-info="$info" --dst-vol-name=native imported.h5 exported.h5
check "h5diff with the first" across h5diff n.h5 exported.h5

# With the environment all of it is in the volume.
[ -n "${VARJFS_TEST_NATIVE:-}" ] || is "nothing is beside the volume" "$(ls "$T/ours")" ""

tap_done
