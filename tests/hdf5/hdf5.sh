# SPDX-License-Identifier: LGPL-3.0-or-later
# shellcheck shell=bash
#
# hdf5.sh - client.sh, and HDF5 programs with and without the connector of the build tree
#
#   $hdf5                           the directory of an HDF5 library, with bin/h5ls and the rest
#   $volume                         a new volume
#   native COMMAND [ARG...]         with files of HDF5's own
#   ours COMMAND [ARG...]           with the connector, on $volume
#
# With VARJFS_TEST_NATIVE set, "ours" is native, too: a test of the tests, which then find no fault.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/client/client.sh"

makefile_variable()
{
    sed -n "s/^$1 = *//p" "$builddir/Makefile"
}

hdf5=$(makefile_variable hdf5_prefix 2>/dev/null)
[ -n "$hdf5" ] || skip_all "configure found no HDF5 1.14 (scripts/install-deps --test)"
requires command python3 pgrep pkill

volume=$T/volume
connector="varjfs source=$volume"
# HDF5 opens every library in the directory of its plugins.
mkdir "$T/plugins"
ln -s "$builddir/.libs/libvarjfs_hdf5.so" "$T/plugins/"

native()
{
    env -u HDF5_VOL_CONNECTOR LD_LIBRARY_PATH="$builddir/.libs:$hdf5/lib" PATH="$hdf5/bin:$PATH" "$@"
}

ours()
{
    if [ -n "${VARJFS_TEST_NATIVE:-}" ]; then
        native "$@"
    else
        native env HDF5_PLUGIN_PATH="$T/plugins" HDF5_VOL_CONNECTOR="$connector" "$@"
    fi
}

mkfs.varjfs "$volume" >"$T/mkfs" 2>&1 || {
    fail "a volume" "$(cat "$T/mkfs")"
    exit 1
}
