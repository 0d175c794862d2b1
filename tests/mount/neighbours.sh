#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# What a user of the mount learns of other users' files: that content of his is theirs too, nothing
# that varjfsctl and the attributes show tells him.  Root and who mounted see all.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires root
requires_fuse
requires program varjfsctl
requires command setpriv getfattr python3

chmod 755 "$T"
# shellcheck disable=SC2154 # tap.sh sets builddir
cp "$builddir/varjfsctl" "$T/"
user()
{
    setpriv --reuid=70001 --regid=70001 --clear-groups env PATH="$T:/usr/bin:/bin" "$@"
}
user varjfsctl --version >/dev/null 2>&1 || skip_all "other users cannot run the programs of the build tree"
# shellcheck disable=SC2119 # without options
make_fs
mount_varjfs -o allow_other
chmod 1777 "$MNT"
head -c 900000 /dev/urandom >"$T/secret"
head -c 900000 /dev/urandom >"$T/own"
chmod 644 "$T/secret" "$T/own"

# All that user 70001 is shown of his file, but its times and what the device says of its space.
shown()
{
    varjfsctl sync "$MNT" || echo "failed: sync"
    user varjfsctl map "$1" || echo "failed: map"
    user varjfsctl map --json "$1" || echo "failed: map --json"
    user varjfsctl status "$1" || echo "failed: status"
    user getfattr -n user.varjfs.status --only-values "$1" || echo "failed: getfattr"
    user stat -c '%s %b' "$1" || echo "failed: stat"
    user varjfsctl df "$MNT" | grep -v '^\(total\|free\|available\|reserved\|dirty\)_bytes \|^inodes ' ||
        echo "failed: df"
    user varjfsctl df --json "$MNT" | grep '"objects\|"object_\|"cache' || echo "failed: df --json"
}

# ---- his content becomes that of somebody else, and was that of somebody else

check "a user makes a file" user cp "$T/own" "$MNT/first"
shown "$MNT/first" >"$T/alone"
check "root makes a copy" cp "$T/own" "$MNT/copy-of-root"
chmod 600 "$MNT/copy-of-root"
shown "$MNT/first" >"$T/together"
check "a copy that root makes shows in nothing" diff "$T/alone" "$T/together"

check "root has a secret" cp "$T/secret" "$MNT/secret"
chmod 600 "$MNT/secret"
check "which is stored" varjfsctl sync "$MNT"
check "a user guesses it" user cp "$T/secret" "$MNT/guess"
shown "$MNT/guess" >"$T/guessed"
rm "$MNT/secret"
rm "$MNT/guess"
check "nothing of it is left" varjfsctl gc "$MNT"
check "and makes it anew" user cp "$T/secret" "$MNT/guess"
shown "$MNT/guess" >"$T/new"
check "content that root has looks as content that nobody has" diff "$T/guessed" "$T/new"
is "each command succeeded" "$(grep failed: "$T/alone" "$T/together" "$T/guessed" "$T/new")" ""

# ---- the form of what is left out

is "map: number, sharing and digest" \
    "$(user varjfsctl map "$MNT/guess" | awk '$3 == "object" { print $4, $7, $9 }' | sort -u)" "- - -"
is "map --json" "$(user varjfsctl map --json "$MNT/guess" | python3 -c '
import json, sys
print({(e["object_id"], e["refs"], e["digest"], e["shared"]) for e in json.load(sys.stdin)})')" \
    "{(None, None, None, None)}"
is "df" "$(user varjfsctl df "$MNT" | awk '$2 == "-" { print $1 }' | xargs)" \
    "objects object_plain_bytes object_stored_bytes cache_bytes"
is "df --json" "$(user varjfsctl df --json "$MNT" | python3 -c '
import json, sys
print(*sorted(k for k, v in json.load(sys.stdin).items() if v is None))')" \
    "cache_bytes object_plain_bytes object_stored_bytes objects"
check_fails "stats" user varjfsctl stats "$MNT"
check_fails "stats --prometheus" user varjfsctl stats --prometheus "$MNT"
check_fails "scrub" user varjfsctl scrub "$MNT"
check_fails "gc" user varjfsctl gc "$MNT"

# ---- root

cp "$MNT/guess" "$MNT/shared"
varjfsctl sync "$MNT"
is "root sees how often an object is shared" \
    "$(varjfsctl map --json "$MNT/guess" | python3 -c '
import json, sys
print({(e["refs"], e["shared"], len(e["digest"]) > 30) for e in json.load(sys.stdin)})')" "{(2, True, True)}"
is "and all of df" "$(varjfsctl df "$MNT" | awk '$2 == "-"')" ""
check "and stats" varjfsctl stats "$MNT"
umount_varjfs

tap_done
