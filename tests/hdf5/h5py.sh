#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# h5py.sh [long] - h5py through the connector
#
# The Python that has an h5py for this HDF5 library is $VARJFS_H5PY, else python3; one from the Python package
# index has a library of its own, which no connector serves: HDF5_DIR=DIRECTORY pip install --no-binary h5py h5py.
# "long": h5py's own tests, too (and pytest is needed).  What fails has to be in h5py-differences, which says why.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/hdf5/hdf5.sh"

python=${VARJFS_H5PY:-python3}
here=$srcdir/tests/hdf5

uses_this_hdf5()
{
    native "$python" -c 'import sys, h5py
print(h5py.version.info, file=sys.stderr)
sys.exit(sys.argv[1] not in open("/proc/self/maps").read())' "$hdf5/lib/libhdf5.so" 2>"$T/version"
}

# "failed NAME" and "passed NAME" in a file, against the list.
compare()
{
    local what=$1 results=$2
    sed -n 's/^failed //p' "$results" >"$T/not-passed"
    sed -n 's/^passed //p' "$results" >"$T/passed"
    python3 "$here/h5py-compare.py" unexpected "$T/expected" "$T/not-passed" >"$T/failed"
    python3 "$here/h5py-compare.py" stale "$T/expected" "$T/not-passed" >"$T/lacking"
    note "$what: $(wc -l <"$T/passed") passed, $(wc -l <"$T/lacking") of what HDF5 or the connector does not have (h5py-differences), $(wc -l <"$T/failed") failed"
    check "$what: it was run" [ -s "$T/passed" ]
    is "$what: nothing fails without a reason" "$(<"$T/failed")" ""
    is "$what: nothing passes that is to fail" "$(python3 "$here/h5py-compare.py" stale "$T/expected" "$T/passed")" ""
}

if [ -n "${VARJFS_TEST_NATIVE:-}" ]; then
    : >"$T/expected"
else
    sed -e '/^#/d' -e '/^why: /d' -e '/^$/d' "$here/h5py-differences" >"$T/expected"
fi
uses_this_hdf5 || skip_all "$python has no h5py for $hdf5"
note "$(grep -E "^(h5py|HDF5) " "$T/version" | tr -s ' \n' ' ')"

mkdir "$T/run"
cd "$T/run" || exit 99
ours "$python" "$here/h5py-use.py" >"$T/out" 2>"$T/err" || note "$(grep "^not ok" "$T/out")
$(tail -n 5 "$T/err")"
sed -n -e 's/^not ok \([^:]*\):.*/failed \1/p' -e 's/^ok /passed /p' "$T/out" >"$T/results"
is "all parts of h5py-use.py were run" "$(wc -l <"$T/results")" 11
compare "h5py-use.py" "$T/results"

if [ "${1:-}" = long ] || [ -n "${VARJFS_HDF5_LONG:-}" ]; then
    # Files are made in temporary directories: a test of h5py's that looks for its file there finds none.
    TMPDIR=$T ours timeout -k 10 1200 "$python" -m pytest --pyargs h5py -q -rA --tb=line -p no:cacheprovider >"$T/out" 2>&1
    note "$(tail -n 1 "$T/out")"
    sed -nE 's/^(PASSED|FAILED|ERROR) ([^ ]*).*/\1 \2/; s/^PASSED/passed/p; s/^(FAILED|ERROR)/failed/p' "$T/out" | sort -u >"$T/results"
    compare "h5py's own tests" "$T/results"
fi

tap_done
