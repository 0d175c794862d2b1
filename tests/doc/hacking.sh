#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Each function and each file that HACKING.md and GLOSSARY.md name in backquotes exists: a walk
# through the source is of use as long as it is true.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"

# quoted PATTERN FILE: what FILE names in backquotes, of that form.
quoted()
{
    # shellcheck disable=SC2016 # backquotes of Markdown
    grep -o '`[^`]*`' "$2" | tr -d '`' | grep -Ex "$1" | sort -u
}

# shellcheck disable=SC2154 # tap.sh sets srcdir
cd "$srcdir" || exit 99
cat src/*/*.[ch] lib/*/*.[ch] >"$T/source"
for page in HACKING.md GLOSSARY.md; do
    [ -e "$page" ] || continue
    files=$(quoted '(src|lib|include|tests|scripts|doc|man)/[A-Za-z0-9_./-]+\.[a-z]+' "$page")
    check "$page names files" [ -n "$files" ]
    for file in $files; do
        case $file in
        src/store/foo.c | man/varjfs-store-foo.*) continue ;; # an example of what is to be added
        esac
        check "$page: $file" [ -e "$file" ]
    done
    for name in $(quoted '[a-z_0-9]+_[a-z_0-9]+|Vj[A-Z][A-Za-z]*' "$page"); do
        check "$page: $name" grep -qE "\b$name\b" "$T/source"
    done
done
# Shell tests are named within commands, too.
tests=$(grep -oE '\btests/[a-z0-9/-]+\.sh' HACKING.md | sort -u)
check "HACKING.md names shell tests" [ -n "$tests" ]
for file in $tests; do
    check "HACKING.md: $file" [ -e "$file" ]
done
# A function and its file, as "`name` (`src/…/file.c`" names them: it is defined there.
# shellcheck disable=SC2016 # backquotes of Markdown
while IFS=' ' read -r name file; do
    check "HACKING.md: $name is in $file" grep -qE "^[a-zA-Z].*\b$name\(|^$name\(" "$file"
done < <(grep -oE '`[a-z_0-9]+` \(`(src|lib)/[a-z0-9/-]+\.c`' HACKING.md | tr -d '`(')

tap_done
