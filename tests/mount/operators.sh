#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# What operators get beside the programs: completion in bash, the fstab line, the systemd unit,
# what make install puts where, and that umount waits for the daemon.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires program varjfsctl mkfs.varjfs fsck.varjfs
# shellcheck disable=SC2154 # tap.sh sets srcdir and builddir
contrib=$srcdir/contrib

# ---- completion

# complete_words WORD...: what bash would offer for the last word.
complete_words()
{
    bash --norc -c '
        . "$1/completions/$2" || exit 1
        shift
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        COMP_LINE="$*"
        COMP_POINT=${#COMP_LINE}
        function_of=$(complete -p "$1" | sed "s/.*-F \([^ ]*\) .*/\1/")
        "$function_of" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf "%s\n" "${COMPREPLY[@]}"' bash "$contrib" "$@" | sort | xargs
}

subcommands=$(varjfsctl --help | sed -n '/^Subcommands/,/^$/s/^  \([a-z]*\).*/\1/p' | sort | xargs)
is "varjfsctl: all subcommands" "$(complete_words varjfsctl '')" "$subcommands"
is "varjfsctl: some subcommands" "$(complete_words varjfsctl st)" "statistics stats status store"
is "varjfsctl: switches of a subcommand" "$(complete_words varjfsctl stats --)" \
    "--help --json --prometheus --version"
is "varjfsctl: a switch with a value" "$(complete_words varjfsctl scrub --ra)" "--rate="
is "mkfs.varjfs: switches" "$(complete_words mkfs.varjfs --)" "--force --help --sandbox= --version"
is "mkfs.varjfs: options" "$(complete_words mkfs.varjfs -o ha)" "hash="
is "mkfs.varjfs: values" "$(complete_words mkfs.varjfs -o label=x,hash=sh)" \
    "sha1 sha256"
is "mkfs.varjfs: drivers" "$(complete_words mkfs.varjfs -o store=)" "block memory null posix remote"
is "mkfs.varjfs: engines" "$(complete_words mkfs.varjfs -o meta=)" "lmdb remote"
is "mkfs.varjfs: transformations" "$(complete_words mkfs.varjfs -o transform=l)" "lz4"
is "mkfs.varjfs: a size is typed" "$(complete_words mkfs.varjfs -o objects=)" ""
is "varjfs: values" "$(complete_words varjfs "$T" "$T" -o ro,check=a)" "always auto"
is "varjfs: options" "$(complete_words varjfs "$T" "$T" -o ro,al)" "ro,allow_other"
is "varjfs: an option with a value" "$(complete_words varjfs -o com)" "commit="
is "fsck.varjfs: switches" "$(complete_words fsck.varjfs -)" "--checkpoint= --help --quick --restore --sandbox= --version -V -a -f -h -n -p -y"
# As bash hands it over when a person types: "=" ends a word, and only the last one is replaced.
typed_words()
{
    bash --norc -c '
        . "$1/completions/varjfsctl" || exit 1
        COMP_WORDBREAKS=$'"'"' \t\n"><=;|&(:'"'"'
        COMP_LINE=$2
        COMP_POINT=${#2}
        read -r -a COMP_WORDS <<<"${2//=/ = }"
        [[ $2 != *[=[:space:]] ]] || COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        function_of=$(complete -p "${2%% *}" | sed "s/.*-F \([^ ]*\) .*/\1/")
        "$function_of" "${2%% *}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf "%s\n" "${COMPREPLY[@]}"' bash "$contrib" "$1" | sort | xargs
}
is "typed: a value" "$(typed_words "mkfs.varjfs -o label=x,hash=sh")" "sha1 sha256"
is "typed: a value of a mount" "$(typed_words "varjfs a b -o ro,safety=ne")" "network"
is "typed: a format" "$(typed_words "varjfsd -c conf --stats=p")" "prometheus"
is "typed: formats" "$(typed_words "varjfsd -c conf --stats=")" "json prometheus"
is "typed: nothing for a number" "$(typed_words "varjfsctl node add --weight=")" ""
is "typed: the next option" "$(typed_words "mkfs.varjfs -o hash=sha1,lab")" "sha1,label="
mkdir -p "$T/words/directory"
touch "$T/words/file"
cd "$T/words" || exit 1
is "a mount is a directory" "$(complete_words varjfsctl df '')" "directory"
is "a file is any file" "$(complete_words varjfsctl status --json '')" "directory file"
is "a mount behind a switch with a value" "$(typed_words "varjfsctl node add --weight=2 ")" "directory"
is "verbs of the nodes" "$(complete_words varjfsctl node re)" "refresh remove repair"
is "SOURCE is a directory or a volume file" "$(complete_words fsck.varjfs -y '')" "directory file"
is "an offset is typed" "$(complete_words varjfsctl insert file '')" ""
cd / || exit 1

# ---- what is installed

# shellcheck disable=SC2154 # tap.sh sets builddir
if command -v make >/dev/null && [ -f "$builddir/Makefile" ]; then
    make -C "$builddir" install-dist_completionDATA install-dist_docDATA DESTDIR="$T/root" \
        >"$T/install.log" 2>&1 || fail "make install" "$(tail -3 "$T/install.log")"
    is "completion is installed under the names of the programs" \
        "$(find "$T/root" -path '*/bash-completion/completions/*' -printf '%f\n' | sort | xargs)" \
        "fsck.varjfs mkfs.varjfs varjfs varjfsctl varjfsd"
    is "so are the examples" "$(find "$T/root" -path '*/doc/*' -type f -printf '%f\n' | sort | xargs)" \
        "fstab.example srv-varjfs.mount varjfs-scrub@.service varjfs-scrub@.timer varjfsd.conf.example varjfsd.service"
    make -C "$builddir" uninstall-dist_completionDATA uninstall-dist_docDATA DESTDIR="$T/root" \
        >"$T/install.log" 2>&1 || fail "make uninstall" "$(tail -3 "$T/install.log")"
    is "uninstall leaves nothing" "$(find "$T/root" -type f -o -type l)" ""
fi

# ---- systemd

if command -v systemd-analyze >/dev/null; then
    cp "$contrib/srv-varjfs.mount" "$T/srv-varjfs.mount"
    check "systemd-analyze verify" systemd-analyze verify --man=no "$T/srv-varjfs.mount"
    mkdir "$T/units"
    cp "$contrib/varjfs-scrub@.timer" "$T/units"
    sed "s|/usr/bin/varjfsctl|$builddir/varjfsctl|" "$contrib/varjfs-scrub@.service" \
        >"$T/units/varjfs-scrub@.service"
    check "of the nightly scrub" systemd-analyze verify --man=no \
        "$T/units/varjfs-scrub@srv-varjfs.service" "$T/units/varjfs-scrub@srv-varjfs.timer"
else
    skip "systemd-analyze verify" "there is no systemd-analyze"
fi
if command -v systemd-escape >/dev/null; then
    is "the unit is named for its mount point" \
        "$(systemd-escape -p --suffix=mount "$(sed -n 's/^Where=//p' "$contrib/srv-varjfs.mount")")" \
        srv-varjfs.mount
fi

# ---- fstab

requires_fuse
[ "$(id -u)" = 0 ] || skip_all "mounting by fstab is for root"
line=$(grep -v '^#' "$contrib/fstab.example")
is "fstab.example has one line of six fields" "$(echo "$line" | awk '{ print NF }')" 6
if findmnt --version >/dev/null 2>&1; then
    findmnt --verify --tab-file "$contrib/fstab.example" >"$T/findmnt" 2>&1
    is "findmnt --verify has nothing against its form" "$(grep -c '^0 parse errors' "$T/findmnt")" 1
fi

# shellcheck disable=SC2119 # the arguments are the file system's, not ours
make_fs
mkdir -p "$MNT"
echo "$line" | sed "s|^[^ ]*|$SOURCE|; s|/srv/varjfs|$MNT|; s|/var/lib|$T|" >"$T/fstab"
cat >"$T/in-namespace" <<-END
	mount -T "$T/fstab" "$MNT" || exit 4
	findmnt -no FSTYPE "$MNT" | grep -q '^fuse.varjfs$' || exit 5
	head -c 3000000 /dev/urandom >"$MNT/file" || exit 6
	umount "$MNT" || exit 7
	flock -n "$SOURCE" true || exit 8
	END
if can_own_namespace; then
    check "mount by the fstab line; umount returns when the daemon has let go" \
        as_installed sh "$T/in-namespace"
    fsck_clean "afterwards"
else
    skip "mount by the fstab line" "needs a mount namespace"
fi
mount_varjfs
head -c 3000000 /dev/urandom >"$MNT/file"
check "umount.fuse.varjfs waits for the daemon" umount.fuse.varjfs "$MNT"
check "when it returns the daemon has let go" flock -n "$SOURCE" true

tap_done
