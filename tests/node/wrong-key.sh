#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# wrong-key.sh - a client with another key, or another name for it, is told so at once and does not wait for its time
#
# timeout= is a day: a client that waited for it would be ended by the test's own limit.

. "$(dirname "$0")/daemon-lib.sh"

requires program varjfsd varjfsctl mkfs.varjfs

daemon_conf "listen = unix:$T/tls"
check "a key" varjfsctl keygen "$T/right.key"
check "another key" varjfsctl keygen "$T/wrong.key"
daemon_volume home "$T/home" "key = $T/right.key"
daemon_start

# make NAME STORE-OPTIONS META-OPTIONS
make()
{
    mkdir "$T/$1"
    status_of mkfs.varjfs -o "store=remote:unix:$T/tls:replicas=1,timeout=86400,volume=home,$2" \
        -o "meta=${3:+remote:unix:$T/tls:timeout=86400,volume=home,}${3:-lmdb}" "$T/$1"
}

says()
{
    grep -qF "$1" "$T/err" || { note "$(cat "$T/err")" && false; }
}
why="it does not know this key by this name"

is "the store, with a wrong key" "$(make store "key=$T/wrong.key" "")" 1
check "it says which node, and why" says "unix:$T/tls is refusing: $why"
is "the engine, with a wrong key" "$(make engine "key=$T/right.key" "key=$T/wrong.key")" 1
check "it says which node, and why" says "node unix:$T/tls: volume \"home\" is not for this client: $why"
is "the right key by another name" "$(make name "key=$T/right.key,identity=other" "")" 1
check "it says which node, and why" says "unix:$T/tls is refusing: $why"
is "the right key" "$(make right "key=$T/right.key" "key=$T/right.key")" 0
daemon_stop
is "the node ends in order" "$status" 0

tap_done
