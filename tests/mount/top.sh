#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# varjfsctl top: intervals as blocks of text and on a terminal, the busiest files and processes, names
# that would do something to a terminal, and who may not see it.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program varjfsctl
requires command python3

# shellcheck disable=SC2119 # without options
make_fs
mount_varjfs -o allow_other

# Bytes, so that no locale makes other characters of them.
evil=$'evil\033[31m\a\nname \xc2\x9b5n\xff\\end'
echo x >"$MNT/$evil"
mkdir "$MNT/some directory"
echo y >"$MNT/some directory/plain"

# Extended attributes are no page of the kernel's: each call is a request.  It goes on until it may end.
cat >"$T/busy.py" <<'END'
import os, sys, threading
stop, evil, plain = sys.argv[1:4]
open("/proc/self/comm", "w").write(sys.argv[4])
def work():
    while not os.path.exists(stop):
        for path in [evil] * 20 + [plain]:
            os.setxattr(path, "user.a", b"b")
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()
END
is_busy()
{
    varjfsctl stats --json "$MNT" | python3 -c 'import json, sys
sys.exit(json.load(sys.stdin)["request"]["setxattr"]["calls"] < 200)'
}
python3 "$T/busy.py" "$T/stop" "$MNT/$evil" "$MNT/some directory/plain" $'e\033[2Jvil' &
busy=$!
check "a program is at work" wait_for 30 is_busy

varjfsctl top --count=3 --interval=0.3 "$MNT" >"$T/top" || fail "top"
is "three intervals" "$(grep -c 'requests/s  read' "$T/top")" 3
is "an empty line ends each" "$(tail -n 1 "$T/top" | wc -c)" 1
# last_row FIRST-WORD COLUMN: of the last line that begins so
last_row()
{
    awk -v first="$1" -v column="$2" '$1 == first { v = $column } END { print v }' "$T/top"
}
positive()
{
    awk -v v="$1" 'BEGIN { exit !(v + 0 > 0) }'
}
check "requests of the kind, a second" positive "$(last_row setxattr 2)"
is "none of them failed" "$(last_row setxattr 3)" 0.0
is "and they took a time" "$(last_row setxattr 5 | grep -cE '^[0-9.]+(ns|us|ms|s)$')" 1
check "transactions of the metadata" positive "$(last_row update 2)"
inode=$(stat -c %i "$MNT/$evil")
# The line behind the heading in the last block.
busiest()
{
    awk -v what="$1" '$1 == what && $2 == "requests/s" { getline; line = $0 } END { print line }' "$T/top"
}
is "the busiest file" "$(busiest inode | awk '{ print $1 }')" "$inode"
is "its name, and nothing for the terminal" "$(busiest inode | cut -c49-)" \
    '/evil\x1b[31m\x07\x0aname \xc2\x9b5n\xff\x5cend'
is "the other file, with a space in its path" \
    "$(grep -c "^$(stat -c %i "$MNT/some directory/plain") .*  /some directory/plain$" "$T/top" | awk '{ print ($1 > 0) }')" 1
is "the busiest process: threads are one" "$(busiest process | awk '{ print $1 }')" $busy
is "its name, and nothing for the terminal either" "$(busiest process | cut -c49-)" 'e\x1b[2Jvil'
is "no byte of the output is a control character" "$(tr -d '\n -~' <"$T/top" | wc -c)" 0

# On a terminal of 20 lines and 60 columns.
python3 - "$MNT" >"$T/screen" <<'END'
import fcntl, os, pty, struct, sys, termios
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
    os.execvp("varjfsctl", ["varjfsctl", "top", "--count=2", "--interval=0.2", sys.argv[1]])
out = b""
while True:
    try:
        got = os.read(fd, 65536)
    except OSError:
        break
    if not got:
        break
    out += got
status = os.waitpid(pid, 0)[1]
screens = out.split(b"\033[H")
lines = [s.replace(b"\033[K", b"").replace(b"\033[J", b"").replace(b"\033[2J", b"").split(b"\r\n") for s in screens]
print(status, len(screens), max(len(s) - 1 for s in lines) <= 19, max(len(x) for s in lines for x in s) <= 60,
      all(b"\033" not in x and b"\007" not in x for s in lines for x in s),
      any(b"setxattr" in x for s in lines for x in s))
END
is "on a terminal: within the window, and nothing else moves it" "$(cat "$T/screen")" "0 4 True True True True"

touch "$T/stop"
wait $busy

# ---- who, and how it is called

if [ "$(id -u)" = 0 ] && setpriv --reuid nobody --regid nogroup --clear-groups true 2>/dev/null; then
    mkdir "$T/bin" && cp "$builddir/varjfsctl" "$T/bin/" && chmod -R a+rX "$T" "$T/bin"
    as_nobody()
    {
        setpriv --reuid nobody --regid nogroup --clear-groups "$@"
    }
    if as_nobody "$T/bin/varjfsctl" --version >/dev/null 2>&1; then
        check "nobody may look at the mount" as_nobody "$T/bin/varjfsctl" df "$MNT"
        for sub in top stats; do
            as_nobody "$T/bin/varjfsctl" $sub "$MNT" >"$T/out" 2>"$T/err"
            is "$sub is not for others" "$? $(wc -c <"$T/out") $(grep -c 'Operation not permitted' "$T/err")" "1 0 1"
        done
    else
        skip "top is not for others" "nobody cannot run the programs of the build tree"
    fi
else
    skip "top is not for others" "takes root, setpriv and nobody"
fi
is "no interval" "$(status_of varjfsctl top --interval=0 "$MNT")" 2
is "nor words" "$(status_of varjfsctl top --interval=1s "$MNT")" 2
is "no count" "$(status_of varjfsctl top --count=0 "$MNT")" 2
is "elsewhere" "$(status_of varjfsctl top --count=1 "$T")" 1
[ -e /dev/full ] && is "output that cannot be written is an error" \
    "$(varjfsctl top --count=1 --interval=0.1 "$MNT" >/dev/full 2>"$T/err"; echo $?)" 1

# It does not keep the mount, and ends with it.
varjfsctl top --interval=0.1 "$MNT" >"$T/until" 2>"$T/err" &
watcher=$!
two_blocks()
{
    [ "$(grep -c 'requests/s  read' "$T/until")" -ge 2 ]
}
check "it shows interval by interval" wait_for 30 two_blocks
umount_varjfs
check "it ends with the mount" wait_for 30 process_gone $watcher
wait $watcher
is "and says so" "$? $(cat "$T/err")" "1 varjfsctl top: $MNT: not on a varjfs mount"
fsck_clean "after that"
tap_done
