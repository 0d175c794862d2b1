#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# What looking at a tree again makes the kernel ask: nothing, but for statfs(2), and for open(2) of
# files that are read.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program varjfsctl
requires command python3 find du tar

export PYTHONDONTWRITEBYTECODE=1
# shellcheck disable=SC2119 # without options
make_fs
mount_varjfs
mkdir "$MNT/tree" "$MNT/tree/empty"
for d in 1 2 3 4 5 6 7 8; do
    mkdir -p "$MNT/tree/$d/inner"
    for n in $(seq 40); do
        echo "content $d $n" >"$MNT/tree/$d/inner/file$n"
    done
    ln -s inner "$MNT/tree/$d/link"
done
directories=18
touch "$MNT/reference"
check "all is written" varjfsctl sync "$MNT"

# requests_of COMMAND...: the requests that it sends, in $T/sent: statfs is left out
requests_of()
{
    # shellcheck disable=SC2154 # tap.sh sets srcdir
    python3 "$srcdir/tests/lib/requests.py" "$MNT" "$@" >"$T/out" 2>"$T/sent-err" || fail "counting $*" "$(cat "$T/sent-err")"
    grep -E '^[a-z0-9_]+ -?[0-9]+$' "$T/out" | grep -v '^statfs ' >"$T/sent" || true
}

quietly()
{
    "$@" >/dev/null
}

# again NAME COMMAND...: the third time it asks nothing
again()
{
    local name=$1
    shift
    quietly "$@"
    quietly "$@"
    requests_of "$T/quietly" "$@"
    is "$name" "$(cat "$T/sent")" ""
}
cat >"$T/quietly" <<'EOF'
#!/bin/sh
exec "$@" >/dev/null
EOF
chmod +x "$T/quietly"

again "find -ls" find "$MNT/tree" -ls
again "find -newer" find "$MNT/tree" -newer "$MNT/reference"
again "du" du -s "$MNT/tree"
again "names alone" ls -R "$MNT/tree"
is "as many names as there are" "$(find "$MNT/tree" | wc -l)" $((directories + 8 * 41))

# A directory that has changed is listed again, the others are not.
requests_of "$T/quietly" sh -c "echo >'$MNT/tree/3/inner/new'"
is "a new file asks for no list" "$(grep -c readdir "$T/sent")" 0
check "sync" varjfsctl sync "$MNT"
requests_of "$T/quietly" find "$MNT/tree"
is "its directory is listed again, no other" "$(awk '/^readdir/ { n += $2 } END { print n + 0 }' "$T/sent")" 2
is "and has it" "$(find "$MNT/tree" -name new | wc -l)" 1
rm "$MNT/tree/3/inner/new"
is "and then not" "$(find "$MNT/tree" -name new | wc -l)" 0
mv "$MNT/tree/4" "$MNT/tree/moved"
is "a directory that was moved" "$(find "$MNT/tree" -path '*/moved/inner/*' | wc -l)" 40
check "sync" varjfsctl sync "$MNT"
again "find -ls of what was moved" find "$MNT/tree" -ls

# What is read is opened, each file once, and nothing more.
quietly grep -r content "$MNT/tree"
quietly grep -r content "$MNT/tree" # that it was read is known
requests_of "$T/quietly" grep -r content "$MNT/tree"
is "grep -r: open and release" "$(grep -vE '^(open|release) 320$' "$T/sent" | grep -v lseek)" ""

if command -v git >/dev/null; then
    git -C "$MNT/tree" init -q
    git -C "$MNT/tree" add .
    git -C "$MNT/tree" -c user.name=a -c user.email=b@c commit -qm tree
    varjfsctl sync "$MNT"
    quietly git -C "$MNT/tree" status
    quietly git -C "$MNT/tree" status
    varjfsctl sync "$MNT"
    quietly git -C "$MNT/tree" status
    requests_of "$T/quietly" git -C "$MNT/tree" status
    is "git status: no list, and nothing about a file of the tree" "$(awk '/^(readdir|readdirplus|opendir|read) / { n += $2 }
        /^(lookup|getattr) / { m += $2 } END { print n + 0, m < 20 }' "$T/sent")" "0 1"
    note "git status sends: $(tr '\n' ' ' <"$T/sent")"
else
    skip "git status" "there is no git"
fi

# A tree that was just made: what the calls that made it have answered the kernel keeps, also when it has
# been written back, so that who looks at its files first asks for nothing.
mkdir "$T/made" "$T/made/d"
for n in $(seq 50); do
    head -c $((n * 80)) /dev/zero | tr '\0' x >"$T/made/d/$n"
done
tar -C "$T" -cf "$T/made.tar" made
requests_of tar -C "$MNT" -xf "$T/made.tar"
note "tar x of 50 files sends: $(tr '\n' ' ' <"$T/sent")"
# An older libfuse does not say that the daemon takes set-id bits away: the kernel asks for the mode before a chown(2).
is "tar x: nothing more than the kernel asks for" "$(awk '/^(create|flush|release|lookup) / { print $1, ($2 >= 50 && $2 < 54) }
    /^getattr / { print $1, ($2 >= 50 && $2 < 54) || ($2 >= 100 && $2 < 104) }
    /^(getxattr|setattr) / { print $1, ($2 < 160) }' "$T/sent" | tr '\n' ' ')" \
    "create 1 flush 1 getattr 1 getxattr 1 lookup 1 release 1 setattr 1 "
if [ "$(awk -F'[.-]' '{ print $1 * 1000 + $2 }' /proc/sys/kernel/osrelease)" -ge 6018 ]; then
    for when in "who looks at its files asks for none of them" "nor when they are written back"; do
        # shellcheck disable=SC2046 # names without blanks
        requests_of python3 -c 'import os, sys; [os.stat(p) for p in sys.argv[1:]]' $(seq -f "$MNT/made/d/%g" 50)
        is "$when" "$(awk '/^(getattr|lookup) / { n += $2 } END { print (n + 0 <= 2) }' "$T/sent")" 1
        varjfsctl sync "$MNT"
    done
    is "the blocks are as many" "$(find "$MNT/made" -type f -printf '%b\n' | sort -n | tail -n 1)" 8
else
    skip "what SETATTR has answered" "an older kernel does not compare it"
fi

# Where the kernel is not to open directories by itself, it keeps lists all the same.
umount_varjfs
export VARJFS_TEST_DELAY=off=no_opendir
mount_varjfs
quietly find "$MNT/tree" -ls
quietly find "$MNT/tree" -ls
requests_of "$T/quietly" find "$MNT/tree" -path "*/.git" -prune -o -ls
is "asked to open each directory, it lists none again" "$(grep -cE '^(readdir|lookup|getattr)' "$T/sent")" 0
is "it was asked" "$(grep -c '^opendir' "$T/sent")" 1
umount_varjfs
fsck_clean "after that"
tap_done
