#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# varjfsctl keygen: keys and certificates as other programs see them, and no file that is replaced.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"

requires program varjfsctl

cd "$T" || exit 1
mode_of()
{
    stat -c '%a %F' "$1"
}

# ---- keys

umask 0
check "a key" varjfsctl keygen home.key
is "it is closed to others, whatever the umask" "$(mode_of home.key)" "600 regular file"
check "it is one line of 256 bits" grep -qxE 'varjfs-key-1:[0-9a-f]{64}' home.key
is "and nothing else" "$(wc -l <home.key)" 1
cp home.key before
is "a second time it fails" "$(status_of varjfsctl keygen home.key)" 1
check "and says why" grep -qx 'varjfsctl keygen: home.key: File exists' err
check "and leaves the key" cmp home.key before
check "another key" varjfsctl keygen other.key
check_fails "is another one" cmp home.key other.key
ln -s elsewhere link.key
is "what a link leads to is not made" "$(status_of varjfsctl keygen link.key)" 1
check "nor there" test ! -e elsewhere
is "a directory that is missing" "$(status_of varjfsctl keygen missing/key)" 1
check "is named" grep -qx 'varjfsctl keygen: missing: No such file or directory' err

# ---- certificates

is "before the CA there is no certificate" "$(status_of varjfsctl keygen --client=alice .)" 1
check "a CA, and its directory" varjfsctl keygen --ca lab
is "which is closed to others" "$(mode_of lab)" "700 directory"
check "a node" varjfsctl keygen --node=node1,10.0.0.1,fd00::1 lab
check "a client" varjfsctl keygen --client=alice --days=30 lab
is "files and modes" "$(cd lab && stat -c '%a %n' -- * | xargs)" \
    "600 alice-key.pem 644 alice.pem 600 ca-key.pem 644 ca.pem 600 node1-key.pem 644 node1.pem"
(cd lab && sha256sum -- *) >sums
for again in --ca --node=node1,another --client=alice; do
    is "$again a second time" "$(status_of varjfsctl keygen "$again" lab)" 1
    check "$again: says why" grep -q 'File exists' err
done
(cd lab && sha256sum -- *) >sums-after
check "no file has changed, and none has come" cmp sums sums-after

if command -v openssl >out; then
    check "the node's is good for a server" \
        openssl verify -CAfile lab/ca.pem -purpose sslserver -verify_hostname node1 lab/node1.pem
    for ip in 10.0.0.1 fd00::1; do
        check "by $ip" openssl verify -CAfile lab/ca.pem -purpose sslserver -verify_ip "$ip" lab/node1.pem
    done
    check_fails "not by another name" \
        openssl verify -CAfile lab/ca.pem -verify_hostname node2 lab/node1.pem
    check_fails "and not for a client" openssl verify -CAfile lab/ca.pem -purpose sslclient lab/node1.pem
    check "the client's is good for a client" \
        openssl verify -CAfile lab/ca.pem -purpose sslclient lab/alice.pem
    check_fails "and not for a server" openssl verify -CAfile lab/ca.pem -purpose sslserver lab/alice.pem
    is "by its name" "$(openssl x509 -in lab/alice.pem -noout -subject)" "subject=CN = alice"
    check "for the days that were asked for" openssl x509 -in lab/alice.pem -noout -checkend $((29 * 86400))
    check_fails "and no longer" openssl x509 -in lab/alice.pem -noout -checkend $((31 * 86400))
    check_fails "a client signs nothing" \
        openssl verify -CAfile lab/alice.pem lab/node1.pem
else
    skip "certificates as openssl sees them" "no openssl(1)"
fi

# ---- wrong usage

for wrong in "--ca --client=x lab" "--node=x --client=y lab" "--days=3 x" "--days=0 --ca x" \
    "--days=1000000 --ca x" "--days=x --ca x" "" "a b"; do
    # shellcheck disable=SC2086 # because these are words
    is "wrong usage: $wrong" "$(status_of varjfsctl keygen $wrong)" 2
done
for name in "" . ../x "x," ",x" 'x y' x-key 'x*'; do
    is "no name of a node: \"$name\"" "$(status_of varjfsctl keygen --node="$name" lab)" 1
    is "no name of a client: \"$name\"" "$(status_of varjfsctl keygen --client="$name" lab)" 1
done
(cd lab && sha256sum -- *) >sums-after
check "none of them made a file there" cmp sums sums-after
check "nor elsewhere" test ! -e x

tap_done
