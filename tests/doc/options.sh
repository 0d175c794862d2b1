#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# What --help shows is what the man page describes, both ways; --help and --version work; each
# page is well-formed and renders.  --help prints the tables that the parsers use, so an option
# cannot be in one of the three and not in the others.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"

requires command python3 podchecker pod2man

# Prints what is missing on either side.
cat >"$T/compare.py" <<'EOF'
import re
import sys

page, helps = sys.argv[1], sys.argv[2:]

in_help = set()
for path in helps:
    for line in open(path, encoding="utf-8"):
        found = re.match(r"  (-.*?)(?:  |\s*$)", line)
        if found:
            words = re.split(r"[,\s]+", found.group(1))
            in_help.update(re.sub(r"=.*", "", w) for w in words if w.startswith("-"))
            continue
        found = re.match(r"  ([a-z][a-z0-9_]*)(?:=\S+)?(?:  |\s*$)", line)
        if found and "=" in line.split("  ")[1]:
            in_help.add(found.group(1) + "=")
        elif found and " " * 3 in line.strip():
            in_help.add(found.group(1))

in_page = set()
section = ""
for line in open(page, encoding="utf-8"):
    if line.startswith("=head1 "):
        section = line[7:].strip()
    if not line.startswith("=item ") or "OPTIONS" not in section or "GENERAL" in section:
        continue
    text = re.sub(r"[BIFCL]<([^<>]*)>", r"\1", line[6:]).strip()
    if text.startswith("-"):
        words = re.split(r"[,\s]+", text)
        in_page.update(re.sub(r"=.*", "", w) for w in words if re.match(r"--?[a-zA-Z]", w))
    else:
        found = re.match(r"([a-z][a-z0-9_]*)(=?)", text)
        in_page.add(found.group(1) + found.group(2))

for word in sorted(in_help - in_page):
    print(f"{word} is in --help and not in {page}")
for word in sorted(in_page - in_help):
    print(f"{word} is in {page} and not in --help")
if not in_help:
    print("--help shows nothing that looks like an option")
EOF

# The comparison itself finds what it is for.
printf 'usage: x\n\n  -a, --all   everything\n  -b          less\n\n  size=SIZE   bytes\n  ro          read\n' >"$T/x.help"
printf '=head1 OPTIONS\n\n=item B<-a>, B<--all>\n\n=item B<-c>\n\n=item B<size=>I<SIZE>\n' >"$T/x.pod"
is "a difference is found" "$(python3 "$T/compare.py" "$T/x.pod" "$T/x.help" | cut -d' ' -f1 | xargs)" \
    "-b ro -c"

# The usage lines of --help stand in the synopsis, and the other way round.
cat >"$T/synopsis.py" <<'EOF'
import re
import sys

page, program, helps = sys.argv[1], sys.argv[2], sys.argv[3:]
usages = {open(path, encoding="utf-8").readline().split(": ", 1)[1].strip() for path in helps}
text = open(page, encoding="utf-8").read()
text = re.search(r"^=head1 SYNOPSIS$(.*?)^=head1 ", text, re.M | re.S)[1]
lines = {re.sub(r"[BIFC]<([^<>]*)>", r"\1", l).strip() for l in text.splitlines()}
lines = {l for l in lines if l.split(" ")[0] == program}
for usage in sorted(usages - lines):
    print(f"--help says \"{usage}\", which is not in the synopsis of {page}")
for line in sorted(lines - usages):
    print(f"\"{line}\" is in the synopsis of {page}, and no --help says it")
EOF

found=0
for page in "$srcdir"/man/*.[18].pod; do
    program=$(basename "$page")
    program=${program%.[18].pod}
    [ -x "$builddir/$program" ] || continue
    # Scripts of mount(8) show a usage line and have no table.
    [ "$program" = mount.fuse.varjfs ] && continue
    found=$((found + 1))
    "$program" --help >"$T/$program.help" 2>"$T/err"
    is "$program --help exits with 0" $? 0
    is "$program --help says nothing on stderr" "$(cat "$T/err")" ""
    helps=("$T/$program.help")
    if [ "$program" = varjfsctl ]; then
        sed -n '/^Subcommands/,$s/^  \([a-z][a-z]*\) .*/\1/p' "$T/$program.help" >"$T/subcommands"
        while IFS= read -r sub; do
            "$program" "$sub" --help >"$T/$sub.help" || fail "$program $sub --help"
            helps+=("$T/$sub.help")
            check "the page has $sub" grep -qE "^=item .*B<$sub>" "$page"
        done <"$T/subcommands"
        is "varjfsctl: the page has no other subcommand" \
            "$(sed -n '/^=head1 SUBCOMMANDS/,/^=head1/s/^=item B<\([a-z]*\)> .*/\1/p' "$page" |
                sort | xargs)" "$(sort "$T/subcommands" | xargs)"
    fi
    is "$program: --help and the page agree" \
        "$(python3 "$T/compare.py" "$page" "${helps[@]}")" ""
    synopses=("${helps[@]}")
    [ "$program" = varjfsctl ] && synopses=("${helps[@]:1}") # the first names no subcommand
    is "$program: the usage lines are the synopsis" \
        "$(python3 "$T/synopsis.py" "$page" "$program" "${synopses[@]}")" ""
    is "$program --version" "$("$program" --version)" \
        "$program $(sed -n 's/^#define PACKAGE_VERSION "\(.*\)"/\1/p' "$builddir/config.h")"
    "$program" --no-such-option >"$T/out" 2>"$T/err"
    is "$program: wrong usage exits with 2" $? 2
    is "$program: and says so on stderr alone" "$(grep -c "^$program: " "$T/err") $(wc -c <"$T/out")" \
        "1 0"
done
check "programs were found" test "$found" -ge 4

# Each attribute that the source knows is described, and no other.
{
    sed -n 's/^ *{"\([a-z]*\)".*/user.varjfs.\1/p' "$srcdir/src/fs/settings.c"
    echo user.varjfs.status
} | sort -u >"$T/attributes"
check "the source has attributes" test "$(wc -l <"$T/attributes")" -ge 4
is "varjfs(8) describes each attribute, and no other" \
    "$(sed -n '/^=head1 ATTRIBUTES/,/^=head1/s/.*=item .*B<\(user\.varjfs\.[a-z]*\)>.*/\1/p' \
        "$srcdir/man/varjfs.8.pod" | sort -u | xargs)" "$(xargs <"$T/attributes")"

# Each option of a store driver that has a page is an item of it, and no other.
drivers=0
for page in "$srcdir"/man/varjfs-store-*.7.pod; do
    driver=$(basename "$page" .7.pod)
    driver=${driver#varjfs-store-}
    drivers=$((drivers + 1))
    sed -n '/VjOptSpec .*_options\[\]/,/^};/s/^ *{\.name = "\([a-z_]*\)".*/\1/p' "$srcdir/src/store/$driver.c" |
        sort >"$T/table"
    check "the source of store $driver has options" test -s "$T/table"
    is "varjfs-store-$driver(7) describes each option, and no other" \
        "$(sed -n '/^=head1 OPTIONS/,/^=head1/s/^=item B<\([a-z_]*\).*/\1/p' "$page" | sort | xargs)" \
        "$(xargs <"$T/table")"
done
check "drivers were found" test "$drivers" -ge 3

# mkfs.varjfs --help offers each store driver that there is, and no other.
is "mkfs.varjfs --help names each store driver" \
    "$(sed -n 's/^  store=\([a-z|]*\) .*/\1/p' "$T/mkfs.varjfs.help" | tr '|' '\n' | sort | xargs)" \
    "$(grep -o 'vj_store_[a-z]*_ops' "$srcdir/src/store/drivers.c" |
        sed 's/vj_store_\(.*\)_ops/\1/' | sort | xargs)"

for page in "$srcdir"/man/*.pod; do
    name=$(basename "$page" .pod)
    check "$name is well-formed" podchecker -warnings "$page"
    pod2man --utf8 --name="${name%.*}" --section="${name##*.}" "$page" >"$T/page" 2>"$T/err"
    is "$name renders" "$(cat "$T/err")" ""
done

tap_done
