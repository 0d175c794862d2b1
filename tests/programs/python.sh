#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# Python's own tests of os, shutil, mmap, zipfile and other modules that touch files, in the mount,
# as root and as an ordinary user.  A module that fails off the mount as well is not counted.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/program.sh"

# Debian has the tests in a package of their own (libpython3.N-testsuite).
python=
for candidate in /usr/bin/python3 "$(command -v python3)"; do
    # In pieces some systems ship: the tests themselves must be there.
    if "$candidate" -c 'import test.libregrtest, test.test_os, test.test_zipfile' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || skip_all "needs Python's own tests"
program_begin "$@"
modules="test_os test_shutil test_mmap test_zipfile test_tempfile test_posix test_fileio test_file
    test_glob test_fcntl test_filecmp test_genericpath test_fileinput test_dbm_dumb"
modules_of_user="test_os test_shutil test_posix test_tempfile"
if [ -n "$long" ]; then
    modules+=" test_io test_bufio test_tarfile test_pathlib test_largefile test_gzip test_bz2 test_lzma
        test_mailbox test_dbm test_shelve test_zipimport test_posixpath test_stat test_import
        test_py_compile test_compileall test_logging test_subprocess test_unicode_file
        test_unicode_file_functions test_memoryio test_httpservers test_ftplib test_zipapp
        test_ensurepip test_runpy test_pkg test_linecache test_tokenize test_sqlite3 test_asyncio
        test_multiprocessing_fork test_selectors test_signal test_socket test_concurrent_futures"
    modules_of_user=$modules
fi

run_module() # MODULE DIR LOG
{
    "${as[@]}" env -u PYTHONPATH "$python" -m test -u largefile -v --tempdir="$2" "$1" >"$3" 2>&1
}

test_count()
{
    awk '/^Ran [0-9]+ test/ { n += $2 } END { print n + 0 }' "$1"
}

# The names of the tests that a log has with these words.
with_result()
{
    grep -E "$2" "$1" | sed 's/ .*\.\.\.//' | LC_ALL=C sort -u
}

total=0
off_mount=$(plain off-mount)
for who in root user; do
    if [ $who = user ]; then
        as=(unprivileged)
        list=$modules_of_user
        if ! "${as[@]}" "$python" -c 'import test.test_os' 2>/dev/null || ! unprivileged test -x "$W"; then
            skip "as an ordinary user" "who cannot reach the mount or $python"
            continue
        fi
    else
        [ "$(id -u)" = 0 ] || continue
        as=()
        list=$modules
    fi
    mkdir "$W/$who" && chmod 1777 "$W/$who"
    for module in $list; do
        "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('test.$module') is None)" || continue
        if run_module "$module" "$W/$who" "$T/log"; then
            pass "$who: $module: $(test_count "$T/log") tests"
            total=$((total + $(test_count "$T/log")))
        elif run_module "$module" "$off_mount" "$T/log-off"; then
            fail "$who: $module" "$(grep -E -A 20 '^(FAIL|ERROR):' "$T/log" | head -n 60)"
        elif [ -z "$(comm -23 <(with_result "$T/log" '^(FAIL|ERROR): ') <(with_result "$T/log-off" '^(FAIL|ERROR): '))" ]; then
            skip "$who: $module" "it fails off the mount in the same way"
        else
            fail "$who: $module: more than fails off the mount" "$(grep -E -A 20 '^(FAIL|ERROR):' "$T/log" | head -n 60)"
        fi
        # What a file system lacks makes these tests skip themselves.
        if [ -n "$long" ] && run_module "$module" "$off_mount" "$T/log-off"; then
            is "$who: $module skips nothing that runs off the mount" \
                "$(comm -23 <(with_result "$T/log" '\.\.\. skipped') <(with_result "$T/log-off" '\.\.\. skipped'))" ""
        fi
    done
    is "$who: nothing is left" "$(ls -A "$W/$who")" ""
done
note "$total tests of Python's"
program_end
