#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# A volume that varjfsd serves with TLS, by keys and by certificates, and configurations of its clients:
# who may use it, who may not, and what becomes of a client whose daemon is killed.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/node/daemon-lib.sh"

requires command python3

if varjfsctl kv list --volume=v tls:localhost 2>&1 | grep -q 'built without TLS'; then
    skip_all "libvarjfs is built without TLS"
fi

mkdir -p "$T/etc"
cd "$T/etc" || exit 1
check "a volume" mkfs.varjfs "$T/v"
check "a volume for one client" mkfs.varjfs "$T/w"
for name in lab wrong operator; do
    check "the key $name" varjfsctl keygen "$T/etc/$name.key"
done
check "a CA" varjfsctl keygen --ca "$T/etc/pki"
check "another CA" varjfsctl keygen --ca "$T/etc/other"
check "of a node" varjfsctl keygen --node=node1,127.0.0.1,::1 "$T/etc/pki"
check "of alice" varjfsctl keygen --client=alice "$T/etc/pki"
check "of bob" varjfsctl keygen --client=bob "$T/etc/pki"
check "of mallory" varjfsctl keygen --client=alice "$T/etc/other"

port_is_free()
{
    ! python3 -c "import socket; socket.create_connection(('127.0.0.1', $1), 1)" 2>/dev/null
}
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
daemon_conf "listen = 127.0.0.1:$port" "certificate = $T/etc/pki/node1.pem" \
    "certificate_key = $T/etc/pki/node1-key.pem" "ca = $T/etc/pki/ca.pem" "key = $T/etc/operator.key"
daemon_volume lab "$T/v" "roles = client" "key = $T/etc/lab.key" "identities = alice"
daemon_volume other "$T/w" "roles = client" "identities = bob"
daemon_start

# conf NAME LINE...
conf()
{
    printf '%s\n' "[client]" "${@:2}" >"$T/etc/$1.conf"
    chmod 600 "$T/etc/$1.conf"
}
at="source = tls:127.0.0.1:$port"
conf key "$at" "volume = lab" "key = lab.key"
conf alice "$at" "volume = lab" "ca = pki/ca.pem" "certificate = pki/alice.pem" "certificate_key = pki/alice-key.pem"
conf bob "$at" "volume = lab" "ca = pki/ca.pem" "certificate = pki/bob.pem" "certificate_key = pki/bob-key.pem"
conf bob-other "$at" "volume = other" "ca = pki/ca.pem" "certificate = pki/bob.pem" \
    "certificate_key = pki/bob-key.pem"
conf mallory "$at" "volume = lab" "ca = pki/ca.pem" "certificate = other/alice.pem" \
    "certificate_key = other/alice-key.pem"
conf wrong-ca "$at" "volume = lab" "ca = other/ca.pem" "certificate = pki/alice.pem" \
    "certificate_key = pki/alice-key.pem"
conf wrong-name "source = tls:localhost:$port" "volume = lab" "ca = pki/ca.pem" "certificate = pki/alice.pem" \
    "certificate_key = pki/alice-key.pem"
conf wrong-key "$at" "volume = lab" "key = wrong.key"
conf key-other "$at" "volume = other" "key = lab.key" "identity = lab"
conf reader "$at" "volume = lab" "key = lab.key" "read_only = yes"

check "put by a key" varjfsctl kv put "$T/etc/key.conf" s colour red
is "got by a certificate" "$(varjfsctl kv get "$T/etc/alice.conf" s colour)" red
seq 2000000 >"$T/content"
from_file()
{
    "${@:2}" <"$1"
}
check "an object" from_file "$T/content" varjfsctl objects write "$T/etc/alice.conf" o log
varjfsctl objects read "$T/etc/key.conf" o log >"$T/got"
check "comes back" cmp "$T/content" "$T/got"
check "bob's own volume" varjfsctl kv put "$T/etc/bob-other.conf" s colour blue
check "counted over TLS" varjfs-bench -c 500 -b 50 "$T/etc/key.conf"
is "who may read may" "$(varjfsctl kv get "$T/etc/reader.conf" s colour)" red
is "and not write" "$(varjfsctl kv put "$T/etc/reader.conf" s colour green 2>&1)" \
    "varjfsctl kv: s/colour: the volume is read-only"

# refused NAME TEXT
refused()
{
    local said
    if said=$(varjfsctl kv list "$T/etc/$1.conf" 2>&1); then
        fail "$1 is refused"
    elif [[ $said == *$2* ]]; then
        pass "$1 is refused"
    else
        fail "$1 is refused with \"$2\"" "$said"
    fi
}
refused bob "the daemon refuses"
refused mallory "unknown CA"
refused wrong-ca "certificate"
refused wrong-name "mismatch"
refused wrong-key "TLS"
refused key-other "refuses"
is "a plain client of the TLS port" \
    "$(python3 - "$port" <<'EOP'
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b"VJFR" + bytes(44))
s.settimeout(20)
try:
    got = s.recv(4096)
    print("refused" if got[:1] in (b"", b"\x15") else got)
except ConnectionResetError:
    print("refused")
EOP
)" refused

# A client in the midst of its work sees the end of the daemon at once.
cat >"$T/loop.py" <<'EOP'
import sys
import varjfs

volume = varjfs.open(sys.argv[1])
keys = volume.keys("loop")
n = 0
while True:
    keys[b"k%d" % n] = b"v"
    n += 1
    if n == 100:
        volume.sync()  # what was put before it survives the daemon
        print("goes", flush=True)
EOP
export VARJFS_LIBRARY=$builddir/.libs/libvarjfs.so.0 PYTHONPATH=$srcdir/lib/python PYTHONDONTWRITEBYTECODE=1
: >"$T/loop.out"
python3 "$T/loop.py" "$T/etc/key.conf" >"$T/loop.out" 2>"$T/loop.err" &
loop=$!
goes()
{
    grep -q goes "$T/loop.out"
}
check "a program in the midst of its work" wait_for 20 goes
daemon_kill
status=0
wait "$loop" || status=$?
is "its program ends with an exception" "$status" 1
check "which says that the connection was lost" grep -q "connection to the daemon was lost" "$T/loop.err"
is "no daemon" "$(varjfsctl kv list "$T/etc/key.conf" 2>&1 | grep -c 'no daemon answers there')" 1
daemon_start
is "what was put is there" "$(varjfsctl kv get "$T/etc/key.conf" s colour)" red
daemon_stop
is "the daemon ends well" "$status" 0
check "the volume is whole" fsck.varjfs -n "$T/v"
tap_done
