#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# vol.sh [long] - the tests that HDF5 has for every connector, with ours
#
# h5_api_test, one section after another; each test that is skipped has to be in vol-skips, which says why.
# "long" (or VARJFS_HDF5_LONG): the tests of HDF5's testhdf5 that are not for its own files alone, too.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/hdf5/hdf5.sh"

here=$srcdir/tests/hdf5
[ -x "$hdf5/bin/h5_api_test" ] || skip_all "no h5_api_test beside this HDF5 (scripts/install-deps --test)"

section()
{
    local name=$1 status=0
    (cd "$T/run" && ours timeout -k 10 300 "$hdf5/bin/h5_api_test" "$name") >"$T/$name.out" 2>"$T/$name.err" || status=$?
    python3 "$here/vol-results.py" "$name" <"$T/$name.out" >"$T/$name.results"
    if [ $status = 0 ] && grep -q "^summary" "$T/$name.results" && ! grep -q "^failed" "$T/$name.results"; then
        pass "$name: $(sed -n 's/^summary\t//p' "$T/$name.results")"
    else
        fail "$name: $(sed -n 's/^summary\t//p' "$T/$name.results")" "status $status
$(grep "^failed" "$T/$name.results" | head -n 30)
last lines: $(tail -n 3 "$T/$name.out")
$(head -n 30 "$T/$name.err")"
    fi
    cat "$T/$name.results" >>"$T/results"
}

expected_skips()
{
    sed -e '/^#/d' -e '/^why: /d' -e '/^$/d' "$here/vol-skips" | sort -u
}

mkdir "$T/run" # the programs write where they are
for name in file group dataset datatype attribute link object misc; do
    section "$name"
done
note "$(awk -F'\t' '$1 != "summary" { n[$1]++ }
    END { printf "h5_api_test: %d passed, %d skipped, %d failed", n["passed"], n["skipped"], n["failed"] }' "$T/results")"
sed -n 's/^skipped\t//p' "$T/results" | sort -u >"$T/skipped"
sed -n 's/^passed\t//p' "$T/results" | sort -u >"$T/passed"
expected_skips >"$T/expected"
is "no test is skipped without a reason" "$(comm -23 "$T/skipped" "$T/expected")" ""
is "no test passes that is to be skipped" "$(comm -12 "$T/passed" "$T/expected" | comm -23 - "$T/skipped")" ""

# The tests of links once more, without their question for external ones: what fails then has one.
without_question()
{
    local status=0
    (cd "$T/run" && ours timeout -k 10 300 "$hdf5/bin/h5_api_test_links" link) >"$T/links.out" 2>"$T/links.err" || status=$?
    python3 "$here/vol-results.py" link <"$T/links.out" >"$T/links.results"
    note "h5_api_test_links: $(sed -n 's/^summary\t//p' "$T/links.results")"
    check "h5_api_test_links ends" [ $status -lt 2 ]
    check "and says what came of it" grep -q "^summary" "$T/links.results"
    is "nothing fails but what makes external links" "$(sed -n 's/^failed\t//p' "$T/links.results" | grep -v external |
        grep -vxE "link / link (iteration \(mixed link types\)|(iteration|visiting) with invalid parameters) / test setup")" ""
}

[ ! -x "$hdf5/bin/h5_api_test_links" ] || without_question

# What is left out of testhdf5: config h5system metadata checksum skiplist refstr use no file.  attr leaves its large attribute
# open where a connector takes it, so that its file cannot be made again.  array and misc open files that came with
# HDF5, h5s has data in external files, file is about user blocks and addresses.
parts="coords time ref vltypes vlstrings iterate genprop unicode id objects sohm ref_deprec select"

testhdf5()
{
    (cd "$T/run" && ours timeout -k 10 1800 "$hdf5/bin/h5_api_test_testhdf5" -o "$1")
}

if [ "${1:-}" = long ] || [ -n "${VARJFS_HDF5_LONG:-}" ]; then
    for part in $parts; do
        check "testhdf5 -o $part" testhdf5 "$part"
    done
fi

tap_done
