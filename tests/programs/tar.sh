#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# Archives: tar with holes, links, lists and incremental dumps, gzip, xz, zip, cpio; what comes out
# is what went in, with times and modes.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/program.sh"
requires command tar gzip perl
program_begin "$@"
export GZIP=-n

from=$(plain from)
populate()
{
    local i
    cd "$from" || return 1
    mkdir -p a/b/c d
    for i in $(seq 200); do
        head -c $((i * 511 % 20000)) /dev/urandom >"a/b/file$i"
    done
    head -c 2500000 /dev/urandom >a/large
    ln a/large d/hard
    ln -s ../a/large d/soft
    mkfifo d/fifo
    truncate -s 30000000 a/sparse
    for i in 3000000 3004096 17000001; do
        echo data | dd of=a/sparse bs=1 seek=$i conv=notrunc status=none
    done
    chmod 640 a/b/file7
    chmod 4755 a/b/file8
    touch -d '2003-03-03 03:03:03.333333333' a/b/file* a/large a/b
}
check "a tree to pack" populate
cp -a "$from" "$W/tree"

for compression in none gzip xz; do
    case $compression in
    none) flag="" ;;
    *)
        command -v $compression >/dev/null || continue
        flag=--$compression
        ;;
    esac
    # shellcheck disable=SC2086 # perhaps none
    {
        check "tar -c -S --acls --xattrs, $compression" \
            tar -C "$W/tree" -S --acls --xattrs --xattrs-include='*' --format=posix $flag -cf "$W/archive" .
        mkdir "$W/out"
        check "tar -x, $compression" tar -C "$W/out" -p --acls --xattrs --xattrs-include='*' $flag -xf "$W/archive"
    }
    same_tree "what comes out, $compression" "$from" "$W/out" attributes
    check "holes stay holes, $compression" [ "$(du -k "$W/out/a/sparse" | cut -f1)" -lt 2000 ]
    # shellcheck disable=SC2086 # perhaps none
    check "tar --compare, $compression" tar -C "$W/out" $flag --compare -f "$W/archive"
    rm -rf "$W/out" "$W/archive"
done

# Growing an archive, and taking from it.
check "tar -c" tar -C "$W/tree" -cf "$W/grow" a/b
check "tar -r" tar -C "$W/tree" -rf "$W/grow" a/large
check "tar -u" tar -C "$W/tree" -uf "$W/grow" a
check "tar --delete" tar -f "$W/grow" --delete a/b/file9
is "entries" "$(tar -tf "$W/grow" | grep -c 'file9$')" 0
check "tar --remove-files" tar -C "$W" --remove-files --format=posix -cf "$W/moved.tar" tree
check "the tree is gone" [ ! -e "$W/tree" ]
check "and comes back" tar -C "$W" -xpf "$W/moved.tar"
same_tree "as it was" "$from" "$W/tree" attributes

# Incremental dumps trust ctime, inode and device numbers.
check "a full dump" tar -C "$W" -g "$W/snapshot" --no-check-device --format=posix -cf "$W/level0" tree
echo new >"$W/tree/new"
rm "$W/tree/a/b/file1"
mv "$W/tree/a/b/c" "$W/tree/c"
chmod 600 "$W/tree/a/b/file2"
check "an incremental dump" tar -C "$W" -g "$W/snapshot" --no-check-device --format=posix -cf "$W/level1" tree
is "it holds what changed" "$(tar -tf "$W/level1" | grep -v '/$' | sort | tr '\n' ' ')" "tree/a/b/file2 tree/new "
mkdir "$W/restored"
check "restoring the full dump" tar -C "$W/restored" -g /dev/null -xpf "$W/level0"
check "restoring the incremental dump" tar -C "$W/restored" -g /dev/null -xpf "$W/level1"
same_tree "as it is" "$W/tree" "$W/restored/tree"

check "gzip keeps times" bash -c "cd '$W/tree/a' && cp -p large l && gzip l && gunzip l.gz && cmp l large && [ ! l -nt large ] && [ ! l -ot large ]"
if command -v zip >/dev/null && command -v unzip >/dev/null; then
    check "zip -r" bash -c "cd '$from' && zip -q -r -y '$W/tree.zip' a/b a/large"
    mkdir "$W/unzipped"
    check "unzip -t" unzip -q -t "$W/tree.zip"
    check "unzip" unzip -q -d "$W/unzipped" "$W/tree.zip"
    check "what comes out of zip" diff -r "$from/a/b" "$W/unzipped/a/b"
    check "zip -u and -d" bash -c "cd '$W/unzipped' && echo x >>a/large && zip -q -u ../tree.zip a/large && zip -q -d ../tree.zip a/b/file3"
    check "unzip -t again" unzip -q -t "$W/tree.zip"
else
    skip "zip" "needs zip and unzip"
fi
if command -v cpio >/dev/null; then
    mkdir "$W/passed"
    check "cpio -pdm" bash -c "cd '$from' && find . -depth -print0 | cpio -0 -pdm --quiet '$W/passed'"
    check "what comes out of cpio" diff -r --no-dereference --exclude=fifo "$from" "$W/passed"
else
    skip "cpio" "needs cpio"
fi
if [ -n "$long" ]; then
    check "tar of /usr/share to it and back" bash -c \
        "tar -C /usr -cf - share | tar -C '$W' -xpf - && tar -C '$W' --compare -f <(tar -C /usr -cf - share)"
fi
program_end
