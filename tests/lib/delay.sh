# SPDX-License-Identifier: LGPL-3.0-or-later
#
# delay.sh - read by shell tests that run a program on a slow device (libdelay.c)
#
#   . "$VARJFS_SRCDIR/tests/lib/delay.sh"
#   delay_run CONTROL PROGRAM [ARG...]   run it; CONTROL is made if missing.  VJ_TEST_SYNC_DELAY_MS,
#                                        VJ_TEST_WRITE_BPS and VJ_TEST_WRITE_PREFIX as the caller
#                                        exported or put in front
#   delay_mount CONTROL [OPTION...]      mount_varjfs of mount.sh, with such a daemon
#   delay_syncs CONTROL                  print how many syncs have ended
#   delay_word CONTROL N                 print word N (struct Control in libdelay.c)
#   delay_set_ms CONTROL MS              from now on each sync takes so long
#   delay_set_files_only CONTROL 1        delay fsync and fdatasync alone; 0: every kind of sync
#   delay_set_bps CONTROL BYTES          from now on writes pass at this rate; 0: no limit
#   delay_hold_notices CONTROL 1         from now on notifications of FUSE wait; 0: they go on
#
# CONTROL is an absolute path: daemons change their directory.

# shellcheck shell=bash

delay_library=${builddir:-${VARJFS_BUILDDIR:-.}}/tests/lib/.libs/libdelay.so

delay_run()
{
    local control=$1 program preload=$delay_library sanitizer
    shift
    case $control in
    /*) ;;
    *)
        echo "delay_run: $control is not an absolute path" >&2
        return 2
        ;;
    esac
    if [ ! -e "$delay_library" ]; then
        echo "delay_run: no $delay_library: make check builds it" >&2
        return 2
    fi
    # The runtime of AddressSanitizer or ThreadSanitizer wants to be loaded before all others.
    program=$(type -P "$1") || return 127
    sanitizer=$(ldd "$program" 2>/dev/null | awk '/lib[at]san\.so/ { print $3 }')
    preload="$sanitizer $preload"
    LD_PRELOAD="$preload" VJ_TEST_SYNC_COUNT="$control" "$@"
}

delay_mount()
{
    local delay_control=$1
    shift
    # For the while, the name of the program is this function.
    varjfs()
    {
        delay_run "$delay_control" "$(type -P varjfs)" "$@"
    }
    mount_varjfs "$@"
    unset -f varjfs
}

delay_word()
{
    od -An -v -t u8 -j $((8 * $2)) -N 8 "$1" | tr -d ' '
}

delay_syncs()
{
    delay_word "$1" 0
}

delay_set_word()
{
    local control=$1 word=$2 value=$3 bytes i
    bytes=
    for i in 0 8 16 24 32 40 48 56; do
        bytes+=$(printf '\\x%02x' $(((value >> i) & 255)))
    done
    # shellcheck disable=SC2059 # the format is the bytes
    printf "$bytes" | dd of="$control" bs=8 seek="$word" conv=notrunc status=none
}

delay_set_ms()
{
    delay_set_word "$1" 8 "$2"
}

delay_set_bps()
{
    delay_set_word "$1" 9 "$2"
}

delay_set_files_only()
{
    delay_set_word "$1" 11 "$2"
}

delay_hold_notices()
{
    delay_set_word "$1" 13 "$2"
}
