#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# A metadata engine that does not answer for a while, as one on another machine may: whoever waits for it can be
# killed, whatever the call; what is known goes on; umount -f works; nothing acknowledged is lost.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/hang.sh"
requires_fuse
requires command python3 flock setfattr

# No call of the engine is answered as long as this file is locked.
export VARJFS_TEST_WRAP_META="latency:us=0,hold=$hold"

# Nothing but the call makes it sleep once its output is there.
asleep()
{
    grep -qx begins "$T/out" && grep -sq '^State:.[SD]' "/proc/$1/status"
}

# WHAT PYTHON: it waits in that call, and can be killed.
waits_and_dies()
{
    local pid
    : >"$T/out"
    python3 -Iuc "import os, sys
m = sys.argv[1] + '/'
print('begins')
$2" "$MNT" >"$T/out" 2>&1 9<&- &
    pid=$!
    check "$1: waits" wait_for 60 asleep $pid
    kill -KILL $pid
    check "$1: can be killed" wait_for 30 ended $pid
}

# What the kernel and the daemon know of names goes with the mount.
# shellcheck disable=SC2119 # without options
make_fs
mount_varjfs
mkdir "$MNT/dir" "$MNT/far" "$MNT/other"
for i in $(seq 100); do
    echo "$i" >"$MNT/dir/$i"
    echo "$i" >"$MNT/far/$i"
done
head -c 3000000 /dev/urandom >"$T/copy"
cp "$T/copy" "$MNT/known"
cp "$T/copy" "$MNT/far/content"
check "before: all is durable" varjfsctl sync "$MNT"
# shellcheck disable=SC2119 # without options
remount_varjfs
check "before: some of it is known" cmp "$T/copy" "$MNT/known"
check "before: and a directory" test "$(find "$MNT/dir" -type f -exec cat {} + | wc -l)" = 100
echo before >>"$MNT/dir/11"
check "before: of another directory the inode" stat "$MNT" "$MNT/far" "$MNT/other"
content=$(python3 -c "import os; print(os.open('$MNT/dir/1', os.O_RDWR) >= 0)")
is "before: a file is opened for writing" "$content" True

answers_stop "hang"
waits_and_dies "stat" "os.stat(m + 'far/7')"
waits_and_dies "open" "os.open(m + 'far/8', os.O_RDONLY)"
waits_and_dies "readdir" "os.listdir(m + 'far')"
waits_and_dies "create" "os.open(m + 'far/new', os.O_WRONLY | os.O_CREAT)"
waits_and_dies "mkdir" "os.mkdir(m + 'far/new')"
waits_and_dies "unlink" "os.unlink(m + 'far/9')"
waits_and_dies "rename" "os.rename(m + 'far/10', m + 'far/renamed')"
waits_and_dies "link" "os.link(m + 'dir/10', m + 'far/linked')"
waits_and_dies "setxattr" "os.setxattr(m + 'far/11', 'user.a', b'b')"

go_on()
{
    cmp "$T/copy" "$MNT/known" && [ "$(find "$MNT/dir" -type f | wc -l)" = 100 ] && stat "$MNT/dir/7" >/dev/null &&
        echo acknowledged >>"$MNT/dir/11"
}
check "what is known goes on" timeout 60 bash -c "$(declare -f go_on); T='$T' MNT='$MNT'; go_on" 9<&-
answers_go_on
check "the engine goes on: what was asked for in vain is there" test "$(cat "$MNT/far/7" "$MNT/far/9" "$MNT/far/10" | xargs)" = "7 9 10"
check "nothing of what was killed is there" test ! -e "$MNT/far/new" -a ! -e "$MNT/far/renamed" -a ! -e "$MNT/far/linked"
check "and all can be made durable" varjfsctl sync "$MNT"
is "what was acknowledged" "$(tail -n 1 "$MNT/dir/11")" acknowledged
kill_varjfs
fsck_clean "killed after the sync"
mount_varjfs
is "what was acknowledged is durable" "$(tail -n 1 "$MNT/dir/11")" acknowledged

check "before: a directory is known" test -d "$MNT/other"
echo x >"$MNT/other/x"
answers_stop "umount -f"
echo acknowledged >"$MNT/other/x"
python3 -Ic "import os; os.stat('$MNT/far/7')" 2>"$T/out" 9<&- &
waiter=$!
check "umount -f: somebody waits" wait_for 60 grep -sq '^State:.[SD]' "/proc/$waiter/status"
daemon=$(daemon_pid)
if [ "$(id -u)" = 0 ]; then
    timeout 60 umount -i -f "$MNT" 2>"$T/umount.log"
    check "umount -f: who waits comes back" wait_for 30 ended $waiter
    is_mounted "$MNT" && check "umount -f: plain umount" wait_for 20 unmount "$MNT"
else
    kill -KILL $waiter
    check "umount: its users can be killed" wait_for 30 ended $waiter
    check "umount" wait_for 20 unmount "$MNT"
fi
check "the daemon waits for the engine" kill -0 "$daemon"
answers_go_on
check "and then it ends" wait_for 60 process_gone "$daemon"
unset VARJFS_TEST_WRAP_META
fsck_clean "after umount -f"
mount_varjfs
is "what was acknowledged before is there" "$(cat "$MNT/other/x")" acknowledged
umount_varjfs
tap_done
