#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# RWRITE_DETECT=1: programs that insert or delete by rewriting the tail of a file leave exactly
# what they leave without the library; and without the library, the daemon stores only what
# has changed.
#
#   detect-shim.sh [PROGRAMS]     random programs, beside another file system (default 1000)

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires command python3 perl sed
# shellcheck disable=SC2154 # tap.sh sets builddir and srcdir
shim=$builddir/.libs/librwrite.so
[ -e "$shim" ] || skip_all "librwrite.so is not built"
programs=${1:-1000}

with_shim()
{
    LD_PRELOAD=$shim RWRITE_DETECT=1 "$@"
}

counter()
{
    # shellcheck disable=SC2154 # tap.sh sets srcdir
    python3 - "$srcdir/tests/lib" "$MNT" "$1" <<'END'
import os, sys
sys.path.insert(0, sys.argv[1])
import vjtap
lines = vjtap.text(os.open(sys.argv[2], os.O_RDONLY), 3).splitlines()
print(dict(line.split("=") for line in lines)[sys.argv[3]])
END
}

make_fs -o objects=16K
mount_varjfs
status=0
with_shim python3 "$srcdir/tests/mount/detect.py" "$MNT" "$T" || status=$?
is "detect.py: exit status" $status 0

# ---- programs that people use, with and without the library -------------------------------
seq 1 200000 >"$T/lines"
programs_agree()
{
    cp "$T/lines" "$MNT/assisted" && cp "$T/lines" "$T/unassisted" || return
    with_shim "$@" "$MNT/assisted" || return
    "$@" "$T/unassisted" || return
    cmp "$MNT/assisted" "$T/unassisted"
}

cat >"$T/insert.py" <<'END'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(54321)
    tail = f.read()
    f.seek(54321)
    f.write(b"a new line\n")
    f.write(tail)
END
cat >"$T/insert.pl" <<'END'
open(my $f, "+<", $ARGV[0]) or die; seek($f, 54321, 0) or die;
my $tail = do { local $/; <$f> };
seek($f, 54321, 0) or die; print $f "a new line\n", $tail or die; close($f) or die;
END
cat >"$T/system.pl" <<'END'
open(my $f, "+<", $ARGV[0]) or die; sysseek($f, 54321, 0) or die;
sysread($f, my $tail, -s $f) or die;
sysseek($f, 54321, 0) or die; syswrite($f, "a new line\n") or die;
syswrite($f, $tail) == length($tail) or die; close($f) or die;
END
check "python: read, seek, write, write" programs_agree python3 "$T/insert.py"
check "perl: buffered" programs_agree perl "$T/insert.pl"
before=$(counter shifts)
check "perl: sysread and syswrite" programs_agree perl "$T/system.pl"
is "that was a shift" $(($(counter shifts) - before)) 1
check "sed -i" programs_agree sed -i '5000s/.*/a longer line/'
if command -v java >/dev/null && java -version >/dev/null 2>&1; then
    cat >"$T/Insert.java" <<'END'
import java.io.RandomAccessFile;
public class Insert {
    public static void main(String[] a) throws Exception {
        try (RandomAccessFile f = new RandomAccessFile(a[0], "rw")) {
            byte[] tail = new byte[(int) (f.length() - 54321)];
            f.seek(54321);
            f.readFully(tail);
            f.seek(54321);
            f.write("a new line\n".getBytes());
            f.write(tail);
        }
    }
}
END
    check "java: RandomAccessFile" programs_agree java "$T/Insert.java"
else
    skip "java: RandomAccessFile" "java is not installed"
fi

# ---- random programs ------------------------------------------------------------------------
seed=${VARJFS_MODEL_SEED:-$((RANDOM * 32768 + RANDOM))}
note "seed $seed"
mkdir "$T/mirror"
before=$(counter shifts)
check "$((programs / 2)) random programs" with_shim python3 "$srcdir/tests/model/rewrite-model.py" \
    "$MNT" "$T/mirror" "$seed" $((programs / 2))
check "$((programs / 2)) random programs in four threads" with_shim python3 \
    "$srcdir/tests/model/rewrite-model.py" "$MNT" "$T/mirror" "$((seed + 1))" $((programs / 2)) 4
shifts=$(($(counter shifts) - before))
check "many of their writes were shifts ($shifts)" [ $shifts -ge $((programs / 4)) ]
umount_varjfs
fsck_clean "after all of it"

# ---- without the library: what is stored when a tail is rewritten shifted -------------------
SOURCE=$T/source-unassisted
make_fs
mount_varjfs
head -c 32M /dev/urandom >"$MNT/file"
varjfsctl sync "$MNT"
put=$(counter object_bytes_put)
came=$(counter bytes_in)
python3 "$T/insert.py" "$MNT/file"
varjfsctl sync "$MNT"
put=$(($(counter object_bytes_put) - put))
came=$(($(counter bytes_in) - came))
note "unassisted insert into 32 MiB: $came bytes written by the program, $put bytes put into the store"
check "the program moved the whole tail" [ $came -ge 33000000 ]
# Three objects; some more for each write-back that began while the program was writing.
check "the daemon stored what changed" [ $put -le $((came / 4)) ]
umount_varjfs
fsck_clean "after the unassisted insert"
tap_done
