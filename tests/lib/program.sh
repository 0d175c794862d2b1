# SPDX-License-Identifier: LGPL-3.0-or-later
# shellcheck shell=bash
#
# program.sh - mount.sh, and what the tests of tests/programs share: each works with one program
# of the world in a directory, looks at the result, and lets the mount prove that it kept it.
#
#   . "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/program.sh"
#   program_begin "$@"            options below; a file system is made and mounted
#   program_end                   unmount, fsck -n, mount again, compare; the last line
#   unprivileged COMMAND...       as an ordinary user if we are root (then $W is writable for all)
#   plain NAME                    print a new directory below $T, off the mount, for comparing
#   tree DIR [attributes]         print names, types, modes, sizes, times, content; with owners,
#                                 links and extended attributes too
#   same_tree NAME A B [attributes]     one result
#   new_mount                     after kill_varjfs: mount once more (does nothing in a plain DIR)
#   remounted NAME                the tree is the same after umount, fsck -n and mount
#   $W the directory to work in; $long is "yes" or empty; $on_varjfs likewise
#
# Arguments of each test:
#   --long       more of everything
#   DIR          work in a new directory below DIR instead of a new varjfs: what fails there as
#                well is not the file system's fault
# VARJFS_MKFS_OPTIONS (as "-o objects=16K") is given to mkfs.varjfs.

. "$(dirname "${BASH_SOURCE[0]}")/mount.sh"

long=
on_varjfs=yes
W=
mount_options=()

program_begin()
{
    local arg dir=
    for arg; do
        case $arg in
        --long) long=yes ;;
        -*)
            echo "usage: ${0##*/} [--long] [DIR]" >&2
            exit 2
            ;;
        *) dir=$(cd "$arg" && pwd) || exit 2 ;;
        esac
    done
    # Ordinary users reach the mount through it.
    chmod 755 "$T"
    if [ -n "$dir" ]; then
        on_varjfs=
        W=$(mktemp -d "$dir/program.XXXXXX") || exit 99
        at_exit rm -rf "$W"
    else
        requires_fuse
        # shellcheck disable=SC2086 # a list of options
        make_fs ${VARJFS_MKFS_OPTIONS:-}
        # As mount(8) asks for it: device nodes and set-user-ID programs are in force.
        [ "$(id -u)" != 0 ] || mount_options=(-o "dev,suid")
        mount_varjfs "${mount_options[@]}"
        W=$MNT
    fi
    chmod 1777 "$W"
    note "${0##*/} in $(stat -f -c %T "$W")${long:+, long form}"
}

# Whether another user can get to the directory where we work.
requires_reachable()
{
    [ "$(id -u)" != 0 ] || unprivileged test -x "$1" ||
        skip_all "an ordinary user cannot reach $1"
}

unprivileged()
{
    if [ "$(id -u)" = 0 ]; then
        # In a directory that the user may enter, and with nothing of ours.
        (cd "$W" && exec setpriv --reuid=65534 --regid=65534 --clear-groups \
            env -u XDG_CONFIG_HOME -u XDG_CACHE_HOME HOME="$W" "$@")
    else
        (cd "$W" && exec "$@")
    fi
}

plain()
{
    mkdir "$T/$1" && chmod 1777 "$T/$1" && echo "$T/$1"
}

# One line for each entry, sorted; names are quoted, so any bytes will do.
tree()
{
    # shellcheck disable=SC2016 # Perl expands these
    perl -MFile::Find -MDigest::MD5 -e '
        use Time::HiRes qw(lstat);
        my ($top, $attributes) = @ARGV;
        chdir $top or die "$top: $!\n";
        my %first;
        my @lines;
        sub quoted { my $s = shift; $s =~ s/([^!-~]|%)/sprintf("%%%02x", ord $1)/ge; $s }
        find({no_chdir => 1, preprocess => sub { sort @_ }, wanted => sub {
            my $name = $_;
            my @s = lstat $name or die "$name: $!\n";
            my $type = $s[2] & 0170000;
            my $line = sprintf "%s %06o", quoted($name), $s[2];
            $line .= sprintf " %d %.6f", $s[7], $s[9] if $type != 0040000;
            $line .= " -> " . quoted(readlink $name) if $type == 0120000;
            if ($type == 0100000 && $s[7] > 0) {
                open my $f, "<", $name or die "$name: $!\n";
                binmode $f;
                $line .= " " . Digest::MD5->new->addfile($f)->hexdigest;
            }
            if ($attributes) {
                $line .= sprintf " %d:%d %d", $s[4], $s[5], $type == 0040000 ? 0 : $s[3];
                $line .= sprintf " %.6f", $s[9] if $type == 0040000;
                $line .= sprintf " dev %x", $s[6] if $type == 0060000 || $type == 0020000;
                # Which names are one file: each says the first of them.
                $line .= " = " . ($first{$s[1]} //= quoted($name))
                    if $type != 0040000 && $s[3] > 1;
            }
            push @lines, $line;
        }}, ".");
        print "$_\n" for sort @lines;
    ' "$1" "${2:-}" || return 1
    if [ -n "${2:-}" ] && command -v getfattr >/dev/null; then
        (cd "$1" && LC_ALL=C getfattr -R -h -P -d -m '^(user|trusted|security|system)\.' -e hex . |
            awk '/^# file: / { file = $0; next } NF { print file, $0 }' | LC_ALL=C sort)
    fi
}

same_tree()
{
    local status=0
    tree "$2" "${4:-}" >"$T/tree-a" 2>&1 || status=1
    tree "$3" "${4:-}" >"$T/tree-b" 2>&1 || status=1
    if [ $status = 0 ] && [ -s "$T/tree-a" ] && cmp -s "$T/tree-a" "$T/tree-b"; then
        pass "$1"
    else
        fail "$1" "$(diff "$T/tree-a" "$T/tree-b" | head -n 20)"
    fi
}

new_mount()
{
    [ -z "$on_varjfs" ] || mount_varjfs "${mount_options[@]}"
}

# What the daemon holds at the moment, in KiB.
daemon_memory()
{
    awk '/^RssAnon/ { print $2 }' "/proc/$(daemon_pid)/status"
}

remounted()
{
    [ -n "$on_varjfs" ] || return 0
    tree "$W" attributes >"$T/tree-before" 2>&1 || fail "$1: the tree can be read" "$(tail -n 3 "$T/tree-before")"
    note "the daemon holds $(($(daemon_memory) / 1024)) MiB; SOURCE has $(du -sm "$SOURCE" | cut -f1) MiB"
    umount_varjfs
    fsck_clean "$1"
    mount_varjfs "${mount_options[@]}"
    tree "$W" attributes >"$T/tree-after" 2>&1
    if cmp -s "$T/tree-before" "$T/tree-after"; then
        pass "$1: $(wc -l <"$T/tree-after") entries and attributes are the same after a remount"
    else
        fail "$1: the same after a remount" "$(diff "$T/tree-before" "$T/tree-after" | head -n 20)"
    fi
}

program_end()
{
    if [ -n "$on_varjfs" ]; then
        remounted "at the end"
        cd / || exit 1
        umount_varjfs
    fi
    tap_done
}
