#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# The tools of the tests themselves: a test that fails, dies, prints nonsense or leaves
# something behind must not pass.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

# run TEXT [SECONDS]: a shell test of this text under run-test; what it prints goes to $out.
# linger: where a process is left behind that would not end, there is nothing to wait for.
run()
{
    {
        echo '#!/bin/bash'
        echo ". '$srcdir/tests/lib/tap.sh'"
        echo "$1"
    } >"$T/one.sh"
    chmod +x "$T/one.sh"
    out=$(VARJFS_SRCDIR=$srcdir VARJFS_BUILDDIR=$builddir VARJFS_TEST_TIMEOUT=${2:-60} \
        VARJFS_TEST_LINGER=${linger:-60} VARJFS_TEST_TIMES=$T/times bash "$srcdir/tests/lib/run-test" "$T/one.sh" 2>"$T/stderr")
}

results()
{
    grep -cE "^$1 " <<<"$out"
}

run 'check "yes" true; check_fails "no" false; is "same" 1 1; skip "not here" "why"; tap_done'
is "four good results" "$(results ok) $(results 'not ok')" "4 0"
is "one plan, at the end" "$(tail -n 1 <<<"$out")" "1..4"
check "the time is noted" grep -qxE '[0-9]+ .*one\.sh' "$T/times"

run 'check "yes" false; tap_done'
is "a failed check is a failure" "$(results 'not ok')" 2
run 'check_fails "no" true; tap_done'
is "a success is a failure for check_fails" "$(results 'not ok')" 2
run 'check_fails "no" bash -c "kill -SEGV \$\$"; tap_done'
is "death by a signal is no proper failure" "$(results 'not ok')" 2
run 'is "same" 1 2; tap_done'
is "a difference is a failure" "$(results 'not ok')" 2
run 'pass "begins"; exit 0'
check "an end before tap_done is a failure" grep -q '^not ok 2 - the test came to its end' <<<"$out"
run 'pass "begins"; kill -KILL $$'
check "a killed test is a failure" grep -q '^not ok 2 - is not killed' <<<"$out"
run 'tap_done'
check "a test without results is a failure" grep -q '^not ok' <<<"$out"
run 'skip_all "no such thing"'
is "skip_all skips" "$out" "1..0 # SKIP no such thing"
run 'requires command this-command-is-nowhere'
check "requires skips" grep -q '^1..0 # SKIP needs the command' <<<"$out"
run 'wait_for 60 false; tap_done' 1
check "the time limit is a failure" grep -q '^not ok .*ends within 1 s' <<<"$out"
run 'at_exit echo first; at_exit echo "and second"; pass "a"; exit 3'
is "at_exit runs last added first" "$(grep -E '^(first|and)' <<<"$out" | tr '\n' ' ')" "and second first "
# shellcheck disable=SC2016 # for the test that is run
linger=1 run 'pass "a"; (cd "$T/.." && touch begun && exec sleep 1000) & wait_for 50 test -e "$T/../begun"; tap_done'
check "a process left behind is a failure" \
    grep -q '^not ok 2 - no process is left behind: sleep 1000' <<<"$out"

linger=1 run 'check "leaves one" bash -c "sleep 1000 & exit 3"; tap_done'
check "a check does not wait for a process that its command has left behind" \
    grep -q '^# status 3: bash -c sleep 1000' <<<"$out"
check "which is a failure too" grep -q '^not ok 2 - no process is left behind: sleep 1000' <<<"$out"

printf '#!/bin/sh\necho 1..2; echo ok 1 - a; echo "not ok 2 # SKIP b"; echo 1..1; echo ok 1 - c\n' \
    >"$T/cmocka"
chmod +x "$T/cmocka"
out=$(bash "$srcdir/tests/lib/run-test" "$T/cmocka")
is "groups of cmocka become one plan" "$(results ok) $(results 'not ok') $(tail -n 1 <<<"$out")" \
    "3 0 1..3"
printf '#!/bin/sh\necho 1..3; echo ok 1 - a\n' >"$T/short"
chmod +x "$T/short"
out=$(bash "$srcdir/tests/lib/run-test" "$T/short")
check "a plan that is not kept is a failure" grep -q '^not ok 2 - all tests of the plan' <<<"$out"

# ---- what has ended, and what has not

# Prints a process that nobody has waited for, as where the first process of a container
# waits for its own alone, and one whose first thread has ended while another goes on until
# stdin ends.
cat >"$T/ended.py" <<'END'
import ctypes, os, sys, threading

def state(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(") ")[2][0]

whole = os.fork()
if whole == 0:
    os._exit(0)
half = os.fork()
if half == 0:
    threading.Thread(target=lambda: (os.read(0, 1), os._exit(0))).start()
    ctypes.CDLL(None).pthread_exit(None)
while state(whole) + state(half) != "ZZ":
    pass
print(whole, half, flush=True)
os.read(0, 1)
END

gone() # PID: what each language of the tests says
{
    process_gone "$1" && echo -n "sh "
    python3 -c 'import sys
sys.path.insert(0, sys.argv[1])
import vjtap
print("py" if vjtap.process_gone(int(sys.argv[2])) else "-")' "$srcdir/tests/lib" "$1"
}

mkfifo "$T/go"
python3 "$T/ended.py" <"$T/go" >"$T/processes" &
exec 7>"$T/go"
check "there are two processes" wait_for 20 grep -q ' ' "$T/processes"
read -r whole half <"$T/processes"
is "a process that nobody has waited for has ended" "$(gone "$whole")" "sh py"
is "one with a thread that goes on has not" "$(gone "$half")" "-"
exec 7>&-
wait $!
is "where there is none it has ended" "$(gone "$half")" "sh py"

tap_done
