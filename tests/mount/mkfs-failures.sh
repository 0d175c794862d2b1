#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# mkfs-failures.sh - a mkfs.varjfs that fails leaves nothing, and one that is killed nothing in the way

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires program mkfs.varjfs fsck.varjfs

# What is in a directory with everything below, a line.
tree()
{
    (cd "$1" && find . -mindepth 1 -printf '%p %i %s\n' | LC_ALL=C sort)
}

mkdir "$T/dir" "$T/beside"
echo precious >"$T/beside/file"

# ---- names and options that are wrong

make_fs -o label=old
before=$(tree "$SOURCE")
for wrong in store=floppy store=posix:colour=red meta=floppy meta=memory meta=lmdb:map=1 hash=md5 transform=zip \
    objects=1 chunker=scissors; do
    is "$wrong is wrong usage" "$(status_of mkfs.varjfs -o $wrong "$T/new")" 2
    is "and makes no directory" "$([ -e "$T/new" ]; echo $?)" 1
    is "with $wrong -f destroys nothing" "$(status_of mkfs.varjfs -f -o $wrong "$SOURCE")" 2
    is "all is as it was" "$(tree "$SOURCE")" "$before"
done
is "a refusal leaves nothing beside what is there" \
    "$(status_of mkfs.varjfs "$T/beside"; ls -A "$T/beside")" "1
file"
fsck_clean "what wrong usage left"

# ---- a device that is full or read-only

# small OPTIONS: a file system in memory below $T/small; SOURCE may be new or an empty directory.
small()
{
    mount -t tmpfs -o "$1" none "$T/small"
}

# expect_failure WHAT STATUS LEFT: mkfs.varjfs ended with 1 and one line, and LEFT is what ls shows
expect_failure()
{
    is "$1: it fails in a line" "$2 $(wc -l <"$T/err")" "1 1" || note "$(cat "$T/err")"
    is "$1: nothing is left" "$(ls -A "$T/small" "$T/small/empty" 2>&1)" "$3"
}

# fails WHAT DIRECTORY LEFT
fails()
{
    expect_failure "$1" "$(status_of mkfs.varjfs "$2")" "$3"
}

mkdir "$T/small"
if [ "$(id -u)" != 0 ]; then
    skip "devices that are full" "needs root"
else
    failed=0
    for kib in 4 8 12 16 24 32 48 64 96 128 192 256 512 1024 65536; do
        small size=${kib}k
        is_new="ls: cannot access '$T/small/empty': No such file or directory
$T/small:"
        status=$(status_of mkfs.varjfs "$T/small/new")
        if [ "$status" != 0 ]; then
            expect_failure "$kib KiB, a new directory" "$status" "$is_new"
            failed=$((failed + 1))
            mkdir "$T/small/empty"
            fails "$kib KiB, an empty directory" "$T/small/empty" "$T/small:
empty

$T/small/empty:"
            mount -o remount,size=65536k "$T/small"
            is "$kib KiB: with more room it needs no -f" "$(status_of mkfs.varjfs "$T/small/empty")" 0
        fi
        umount -i "$T/small"
    done
    check "some were too small, and one was not" test $failed -gt 2 -a $failed -lt 15
    for inodes in 2 3 4 5 6 7 8; do
        small nr_inodes=$inodes
        fails "$inodes inodes" "$T/small/new" "$is_new"
        umount -i "$T/small"
    done
    small ro
    fails "read-only, a new directory" "$T/small/new" "$is_new"
    mount -o remount,rw "$T/small"
    mkdir "$T/small/empty"
    mount -o remount,ro "$T/small"
    fails "read-only, an empty directory" "$T/small/empty" "$T/small:
empty

$T/small/empty:"
    umount -i "$T/small"
fi

# ---- the n-th call fails, or is the last one

if ! command -v strace >/dev/null || ! strace -o "$T/strace" true 2>/dev/null; then
    note "the rest needs an strace that works"
    tap_done
fi
calls="mkdir mkdirat ftruncate fallocate pwrite64 pwritev fsync fdatasync renameat fchmod"

# injected CALL WHAT SOURCE [-f]: mkfs.varjfs with the N-th CALL that names SOURCE or a file in it changed, for
# each N until none is; after each the function "$5" looks.
injected()
{
    local call=$1 what=$2 source=$3 look=$4 n=0 status
    shift 4
    while [ $((n += 1)) -lt 100 ]; do
        : >"$T/strace"
        status=$(status_of strace -f -qq -o "$T/strace" -e "trace=$call" -e "inject=$call:$what:when=$n" \
            mkfs.varjfs "$@" "$source")
        $look "$call $n $what" "$status"
        grep -qE 'INJECTED|killed by SIGKILL|--- SIG(TERM|INT) ' "$T/strace" || break
    done
    check "$call $what: there is an end" test $n -lt 100
    sum=$((sum + n - 1))
}

# Without it nothing works; what fails besides the file system is not ours.
bad=0
wrong()
{
    bad=$((bad + 1))
    note "$*: $(tail -n 1 "$T/err") $(ls -A "$T/dir" "$T/beside" 2>&1)"
}

left_nothing()
{
    if [ "$2" = 0 ]; then
        # What it can do without may fail.
        fsck.varjfs -n "$T/dir/new" >/dev/null 2>&1 || wrong "$1: made and not whole"
        rm -rf "$T/dir/new"
    elif [ -n "$(ls -A "$T/dir")" ]; then
        wrong "$1: status $2, and something is left"
        rm -rf "$T/dir/new"
    fi
}

can_be_made_anew()
{
    if [ "$2" != 0 ] && ! [ -e "$T/dir/new/varjfs.conf" ]; then
        mkfs.varjfs "$T/dir/new" >"$T/out" 2>"$T/err" </dev/null || wrong "$1: the next mkfs without -f fails"
    fi
    if [ -d "$T/dir/new" ] && ! fsck.varjfs -n "$T/dir/new" >/dev/null 2>&1; then
        wrong "$1: what is there is not whole"
    fi
    rm -rf "$T/dir/new"
}

precious_stays()
{
    [ "$(cat "$T/beside/file")" = precious ] || wrong "$1: another's file is gone"
    if [ "$2" != 0 ] && find "$T/beside" -mindepth 1 ! -name file | grep -q .; then
        # The old file system was not touched, or is under the mark that it is none any more.
        if [ -e "$T/beside/varjfs.conf" ]; then
            fsck.varjfs -n "$T/beside" >/dev/null 2>&1 || wrong "$1: half of the old one is left"
        elif ! [ -e "$T/beside/varjfs.making" ]; then
            wrong "$1: what is left has no mark"
        fi
    fi
    mkfs.varjfs -f "$T/beside" >/dev/null 2>&1 || wrong "$1: the next mkfs -f fails"
}

mkfs.varjfs -f "$T/beside"
sum=0
for call in $calls; do
    injected "$call" error=EIO "$T/dir/new" left_nothing
    injected "$call" error=ENOSPC "$T/dir/new" left_nothing
    injected "$call" signal=SIGTERM "$T/dir/new" left_nothing
    injected "$call" signal=SIGKILL "$T/dir/new" can_be_made_anew
    injected "$call" error=EIO "$T/beside" precious_stays -f
done
injected unlinkat error=EIO "$T/beside" precious_stays -f
check "calls were changed ($sum)" test $sum -gt 50
is "after each all was as it should be" $bad 0

# ---- interrupted by hand

# interrupted SIGNAL: to the process that was started, while the one that works waits for the device
interrupted()
{
    local status=0 number
    number=$(kill -l "$1")
    # Of a background process a shell without job control ignores one of them.
    env --default-signal=INT strace -f -qq -o "$T/strace" -e trace=fsync -e inject=fsync:delay_enter=1000000:when=2 \
        mkfs.varjfs "$T/dir/new" 2>"$T/err" </dev/null &
    tracer=$!
    wait_for 20 test -e "$T/dir/new/varjfs.making" || fail "it works"
    kill -s "$1" "$(pgrep -P $tracer -x mkfs.varjfs)"
    wait $tracer || status=$?
    is "SIG$1: it ends by it" $status $((128 + number))
    is "SIG$1: nothing is left" "$(ls -A "$T/dir")" ""
    is "SIG$1: and says so" "$(cat "$T/err")" "mkfs.varjfs: $T/dir/new: interrupted, nothing was made"
}
for signal in HUP INT TERM; do
    interrupted $signal
done

tap_done
