#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# Programs that change files in place or by writing a new one and renaming it: vim, ed, nano's and
# emacs's way, sed -i, perl -i, sort -o, patch, split, tail -f, log rotation, find -delete.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/program.sh"
requires command perl sed
program_begin "$@"
cd "$W" || exit 1

lines=${long:+2000000}
lines=${lines:-60000}
seq "$lines" >"$T/text"
wanted()
{
    sed "$((lines / 2))s/.*/changed by $1/" "$T/text"
}
expect()
{
    if cmp -s "$2" "$T/wanted"; then pass "$1"; else fail "$1" "$(cmp "$2" "$T/wanted" 2>&1)"; fi
}

# Each way on a plain file, through a symlink, and with a hard link that stays or goes.
for program in sed perl ed vim vim-copy python; do
    case $program in
    sed) change() { sed -i "$((lines / 2))s/.*/changed by sed/" "$1"; } ;;
    perl) change() { perl -pi -e "s/.*/changed by perl/ if \$. == $((lines / 2))" "$1"; } ;;
    ed)
        command -v ed >/dev/null || { skip ed "needs ed" && continue; }
        change() { printf '%s\nc\nchanged by ed\n.\nw\nq\n' "$((lines / 2))" | ed -s "$1" >/dev/null; }
        ;;
    vim | vim-copy)
        vim --version 2>/dev/null | grep -q '+' || { skip $program "needs vim" && continue; }
        backup=no
        [ $program = vim ] || backup=yes
        change()
        {
            vim -N -u NONE -i NONE -e -s -c "set backup writebackup backupcopy=$backup fsync" \
                -c "$((lines / 2))s/.*/changed by $program/" -c wq "$1" </dev/null
        }
        ;;
    python)
        command -v python3 >/dev/null || { skip python "needs python3" && continue; }
        change()
        {
            python3 - "$1" "$((lines / 2))" <<-'END'
			import os, sys, tempfile
			path, line = os.path.realpath(sys.argv[1]), int(sys.argv[2])
			with open(path) as f, tempfile.NamedTemporaryFile("w", dir=os.path.dirname(path), delete=False) as out:
			    for number, text in enumerate(f, 1):
			        out.write("changed by python\n" if number == line else text)
			    out.flush()
			    os.fsync(out.fileno())
			os.chmod(out.name, os.stat(path).st_mode & 0o7777)
			os.replace(out.name, path)
			fd = os.open(os.path.dirname(path), os.O_RDONLY)
			os.fsync(fd)
			os.close(fd)
			END
        }
        ;;
    esac
    wanted $program >"$T/wanted"
    cp "$T/text" $program
    chmod 640 $program
    check "$program" change $program
    expect "$program: the content" $program
    is "$program: the mode" "$(stat -c %a $program)" 640
    if [ $program != sed ] && [ $program != perl ]; then
        cp "$T/text" $program.target
        ln -s $program.target $program.link
        check "$program through a symlink" change $program.link
        expect "$program through a symlink: the content" $program.target
        check "$program: the symlink is still one" [ -L $program.link ]
    fi
    cp "$T/text" $program.one
    ln $program.one $program.two
    check "$program with a hard link" change $program.one
    expect "$program with a hard link: the content" $program.one
    rm -f ./$program.*~
done
find . -mindepth 1 | grep -E '\.sw.$|/sed.{6}$|/tmp|~$' >"$T/left"
is "no temporary file is left" "$(cat "$T/left")" ""

# A reader who holds the old file open sees it whole.
cp "$T/text" held
exec 7<held
sed -i s/1/2/ held
check "the file that was replaced under a reader" cmp /dev/fd/7 "$T/text"
exec 7<&-

# Never empty, never mixed, for whoever opens it while it is replaced.
cp "$T/text" swapped
sed 's/^/x/' "$T/text" >"$T/text-2"
sums=" $(md5sum <"$T/text" | cut -d' ' -f1) $(md5sum <"$T/text-2" | cut -d' ' -f1) "
(
    for ((i = 0; i < 40; i++)); do
        for text in text-2 text; do
            cp "$T/$text" swapped.new && mv swapped.new swapped
        done
    done
) &
writer=$!
odd=0
looks=0
while kill -0 $writer 2>/dev/null; do
    sum=$(md5sum <swapped | cut -d' ' -f1)
    looks=$((looks + 1))
    case $sums in *" $sum "*) ;; *) odd=$((odd + 1)) ;; esac
done
wait $writer
is "a file that is replaced 80 times is always one of the two" $odd 0
note "$looks looks"

check "sort -o the same file" bash -c "sort -n -r -o swapped swapped && sort -n -o swapped swapped && cmp swapped '$T/text'"
check "split and cat" bash -c "split -b 10000 swapped part. && cat part.* | cmp - '$T/text' && rm part.*"
check "dd conv=notrunc in the midst" bash -c "printf 'ABC' | dd of=swapped bs=1 seek=1000 conv=notrunc status=none &&
    [ \"\$(head -c 1003 swapped | tail -c 3)\" = ABC ] && cmp -i 1003 swapped '$T/text'"
check "truncate down and up" bash -c "truncate -s 5000 swapped && truncate -s 9000 swapped && [ \$(tail -c 4000 swapped | tr -d '\\0' | wc -c) = 0 ]"
check "tee -a by several" bash -c "for p in 1 2 3 4; do (for i in \$(seq 50); do echo \"\$p \$i\" | tee -a together >/dev/null; done) & done; wait
    [ \$(sort -u together | wc -l) = 200 ]"
if command -v patch >/dev/null; then
    wanted patch >"$T/wanted"
    cp "$T/text" patched
    diff -u patched "$T/wanted" >"$T/patch"
    check "patch" patch -s patched "$T/patch"
    expect "patch: the content" patched
    check "patch -R" patch -s -R patched "$T/patch"
    check "patch -R: the content" cmp patched "$T/text"
else
    skip "patch" "needs patch"
fi

# A log: followed while it grows, rotated by rename and by copy and truncation.
: >log
tail -n +1 -F log >"$T/followed" 2>/dev/null &
follower=$!
for i in $(seq 100); do echo "line $i" >>log; done
followed()
{
    [ "$(grep -c . "$T/followed")" = "$1" ]
}
check "tail -F sees what is appended" wait_for 20 followed 100
mv log log.1
for i in $(seq 101 150); do echo "line $i" >>log; done
check "tail -F sees the new file" wait_for 20 followed 150
kill $follower
wait $follower 2>/dev/null
exec 8>>log
cp log log.2 && : >log
echo "after truncation" >&8
exec 8>&-
is "a writer that appends goes on at 0" "$(cat log)" "after truncation"
is "log.2" "$(wc -l <log.2)" 50

# Directories that change while they are read.
mkdir many
(cd many && seq 3000 | xargs touch)
check "find -delete" find many -name '*7*' -delete
is "what is left" "$(find many -type f | wc -l)" "$(seq 3000 | grep -vc 7)"
(cd many && for i in $(seq 4000 4400); do : >"$i"; done) &
check "rm of what is there, while others come" bash -c "cd many && ls | grep -E '^[0-9]{1,3}\$' | xargs rm"
wait $!
is "none of those is left" "$(find many -type f | grep -cE '/[0-9]{1,3}$')" 0
check "rm -rf" rm -rf many
check "install -D, mktemp, ln -sf, cp -l, cp -s" bash -c "install -D -m 750 '$T/text' a/b/c && [ \$(stat -c %a a/b/c) = 750 ] &&
    f=\$(mktemp -p .) && [ \$(stat -c %a \$f) = 600 ] && ln -sf a/b/c \$f && cmp \$f '$T/text' &&
    cp -l a/b/c l && [ \$(stat -c %h l) = 2 ] && cp -sr a d 2>/dev/null || ln -s a/b/c s"
if command -v flock >/dev/null; then
    echo 0 >number
    # shellcheck disable=SC2016 # the inner shells expand it
    check "flock(1) of 8 processes" bash -c 'for p in $(seq 8); do
        (for i in $(seq 15); do flock lock sh -c "echo \$((\$(cat number) + 1)) >number"; done) & done; wait'
    is "every one counted" "$(cat number)" 120
fi
cd / || exit 1
program_end
