#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# rsync -aHAX and cp -a of a tree with everything that a file can have, there and back: a second
# rsync with checksums finds nothing to do, and the trees are equal to the nanosecond.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/program.sh"
requires command cp perl
program_begin "$@"

# What the file system below can hold, it must get back; what it cannot, is not asked for.
from=$(plain from)
try_attributes()
{
    local probe=$1/.probe ok=1
    : >"$probe"
    case $2 in
    xattr) setfattr -n user.probe -v 1 "$probe" 2>/dev/null && ok=0 ;;
    acl) setfacl -m u:12345:r "$probe" 2>/dev/null && ok=0 ;;
    esac
    rm -f "$probe"
    return $ok
}

populate()
{
    local i
    cd "$1" || return 1
    mkdir -p deep/{a,b}/{c,d}/e 'name with spaces' empty sticky setgid
    for i in $(seq 60); do
        head -c $((i * i * 37)) /dev/urandom >"deep/a/c/file$i" || return 1
    done
    head -c 3000000 /dev/urandom >large
    cp large deep/b/same-content
    : >nothing
    # 4096 bytes is what is kept beside the inode.
    for i in 1 4095 4096 4097 65535 65536 65537; do
        head -c $i /dev/urandom >size-$i
    done
    printf '#!/bin/sh\n' >program
    chmod 4755 program
    cp program setgid/other && chmod 2711 setgid/other
    chmod 2775 setgid
    chmod 1777 sticky
    chmod 000 size-1
    chmod 0400 size-4096
    chmod 0555 empty
    ln large deep/hard-1
    ln large deep/b/hard-2
    ln nothing hard-empty
    ln -s large symlink
    ln -s /absolute/nowhere deep/dangling
    ln -s "$(printf '%04000d' 0)" long-symlink
    ln symlink hard-symlink
    mkfifo fifo
    : >"$(printf 'bytes \001\t\n\\ \303\244 \377 *?"')"
    : >"$(printf '%0255d' 0)"
    : >-dash
    # Holes at both ends and in the middle.
    truncate -s 40000000 sparse
    printf x | dd of=sparse bs=1 seek=20000000 conv=notrunc status=none
    truncate -s 5000000 only-hole
    if [ "$(id -u)" = 0 ]; then
        mknod block b 250 3
        mknod character c 250 70000
        chown 1234:5678 size-4081
        chown -h 1234:5678 symlink
        chown 4000000000:4000000001 size-65537
        chown 77:88 setgid
        chmod 4711 size-65537
    fi
    touch -d '2001-02-03 04:05:06.123456789' size-65535
    touch -d '1969-12-31 23:59:59.987654321' size-65536
    touch -h -d '2010-10-10 10:10:10.000000001' symlink
    touch -d '2100-01-01 00:00:00.5' nothing
    touch -d '1999-09-09 09:09:09.999999999' deep/a/c deep/b
}

attributes()
{
    cd "$1" || return 1
    if try_attributes . xattr && try_attributes "$W" xattr; then
        setfattr -n user.short -v value large
        setfattr -n user.empty large
        setfattr -n user.binary -v 0x0001ff00 nothing
        setfattr -n user.long -v "$(printf '%02000d' 7)" deep/a
        [ "$(id -u)" != 0 ] || ! try_attributes "$W" trusted ||
            setfattr -n trusted.secret -v known deep/b
        extended=yes
    fi
    if try_attributes . acl && try_attributes "$W" acl; then
        setfacl -m u:1234:rw,g:5678:r,m::rwx large
        setfacl -d -m u:1234:rwx,o::- deep/a
        # Not with the mask that the group has: rsync 3.2 drops the group's entry then.
        setfacl -m u:99:x,m::rx sticky
        acls=yes
    fi
    touch -d '2005-05-05 05:05:05.555555555' large deep/a deep/b
}

extended=''
acls=''
check "a tree to copy" populate "$from"
attributes "$from"
cd "$T" || exit 1
if [ -n "$extended" ]; then pass "with extended attributes"; else skip "extended attributes" "not on both sides"; fi
if [ -n "$acls" ]; then pass "with access control lists"; else skip "access control lists" "not on both sides"; fi

check "cp -a there" cp -a "$from" "$W/cp"
same_tree "cp -a there: all is kept" "$from" "$W/cp" attributes
check "cp -a within" cp -a "$W/cp" "$W/cp-2"
same_tree "cp -a within: all is kept" "$from" "$W/cp-2" attributes
check "cp -a back" cp -a "$W/cp-2" "$T/cp-back"
same_tree "cp -a back: all is kept" "$from" "$T/cp-back" attributes
check "holes stay holes" [ "$(du -k "$W/cp/sparse" | cut -f1)" -lt 2000 ]

if command -v rsync >/dev/null; then
    options="-aHAXS --numeric-ids"
    nothing_to_do()
    {
        # shellcheck disable=SC2086 # options
        is "$1" "$(rsync $options --checksum --dry-run --itemize-changes --delete "$2/" "$3/" 2>&1)" ""
    }
    # shellcheck disable=SC2086 # options
    {
        check "rsync $options there" rsync $options "$from/" "$W/rsync/"
        same_tree "rsync there: all is kept" "$from" "$W/rsync" attributes
        nothing_to_do "a second rsync has nothing to do" "$from" "$W/rsync"
        check "rsync within" rsync $options "$W/rsync/" "$W/rsync-2/"
        same_tree "rsync within: all is kept" "$from" "$W/rsync-2" attributes
        check "rsync back" rsync $options "$W/rsync-2/" "$T/rsync-back/"
        same_tree "rsync back: all is kept" "$from" "$T/rsync-back" attributes
    }

    # A change in the midst, by each way that rsync has to bring it.
    cp "$from/large" "$T/changed"
    { head -c 1000000 "$T/changed" && echo "some inserted text" && tail -c +1000001 "$T/changed"; } >"$from/large"
    touch -d '2006-06-06 06:06:06.666666666' "$from/large"
    rm "$from/size-65537"
    mv "$from/deep/b/d" "$from/moved"
    # By default rsync takes times within a second for equal, of directories too.
    for how in "" --inplace --no-whole-file "--inplace --no-whole-file" --delay-updates "--partial-dir=.part --fuzzy"; do
        cp -a "$W/rsync-2" "$W/update"
        # shellcheck disable=SC2086 # options
        check "rsync --delete $how" rsync -aHAX --numeric-ids --delete --modify-window=-1 $how "$from/" "$W/update/"
        same_tree "after rsync --delete $how" "$from" "$W/update" attributes
        chmod 755 "$W/update/empty"
        rm -rf "$W/update"
    done
    head -c 2000000 "$from/large" >"$W/partial"
    check "rsync --append-verify" rsync -t --append-verify "$from/large" "$W/partial"
    check "it has all bytes" cmp "$from/large" "$W/partial"
    check "rsync --remove-source-files" rsync -aHAX --remove-source-files "$W/rsync-2/" "$W/rsync-3/"
    is "the sources are gone" "$(find "$W/rsync-2" ! -type d ! -type b ! -type c ! -type p | wc -l)" 0
    check "rsync --link-dest" rsync -a --link-dest="$W/cp/" "$W/cp/" "$W/linked/"
    is "files are links" "$(stat -c %h "$W/linked/size-4096")" 2
else
    skip "rsync" "needs rsync"
fi

if [ -n "$long" ]; then
    for tree in /usr/include /usr/share/perl /usr/lib/python3 /etc; do
        [ -d "$tree" ] || continue
        check "cp -a $tree" cp -a "$tree" "$W/system"
        same_tree "$tree is kept" "$tree" "$W/system" attributes
        check "rm -rf of it" rm -rf "$W/system"
    done
fi
chmod -R u+rwx "$from" "$T"/*-back 2>/dev/null
program_end
