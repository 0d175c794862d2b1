#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# user.varjfs.mode over real nodes: client, server and transport with each transformation.  What is stored, what
# goes over the wire, changes of the mode, a node that dies meanwhile.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/nodes.sh"

requires command python3
requires codec lz4 zstd
requires_fuse
requires program varjfsd fsck.varjfs varjfsctl

SOURCE=$T/volume.conf

# modes NAME COMMAND [ARG...]: one result
modes()
{
    local name=$1 command=$2
    shift 2
    # shellcheck disable=SC2154 # tap.sh sets srcdir
    check "$name" python3 "$srcdir/tests/mount/modes.py" "$command" "$MNT" "$T/model" "$@"
}

# volume REPLICAS NODE...: a new one, mounted; its keys are at the node "keys"
volume()
{
    local replicas=$1 node
    shift
    for node in keys "$@"; do
        rm -rf "$T/$node.d"
        node_begin "$node"
    done
    rm -rf "$SOURCE" "$T/model"
    mkdir "$T/model"
    make_fs -o "meta=remote:$(nodes_at keys):insecure,store=remote:$(nodes_at "$@"):replicas=$replicas,insecure"
    mount_varjfs -o "log=$T/daemon.log"
}

# What the daemon said goes with a failure.
say_log()
{
    [ ! -s "$T/daemon.log" ] || note "$(tail -n 20 "$T/daemon.log")"
}
at_exit say_log


volume_end()
{
    local node
    umount_varjfs
    fsck_clean "$1"
    shift
    for node in keys "$@"; do
        node_stop "$node"
    done
}

# The content of all files in the directories of objects: names have numbers in them.
objects_of()
{
    node_objects "$1" | xargs -d '\n' sha256sum | cut -d ' ' -f 1 | sort
}

sizes()
{
    local f
    for f in "$MNT"/*/file; do
        echo "${f#"$MNT"/} $(varjfsctl status "$f" | sed -n 's/^stored_size=//p')"
    done
}

# ---- each mode with each transformation

# By wait_for.
# shellcheck disable=SC2317
no_objects()
{
    varjfsctl gc "$MNT" >"$T/gc" 2>&1 && [ -z "$(node_objects one)" ]
}

for mode in client server transport; do
    volume 1 one
    if [ $mode = server ]; then
        # In the same volume, as another one cuts otherwise; and gone, as what is there is not stored again.
        modes "server: files for comparison are written" write client
        check "server: sync of them" varjfsctl sync "$MNT"
        sizes >"$T/sizes.client"
        objects_of one >"$T/objects.client"
        rm -r "${MNT:?}"/* "$T/model"/*
        check "server: they go" wait_for 30 no_objects
    fi
    puts=$(node_figure one put.op_requests_total)
    modes "$mode: files are written" write $mode
    modes "$mode: and read" verify 1
    check "$mode: sync" varjfsctl sync "$MNT"
    sizes >"$T/sizes.$mode"
    objects_of one >"$T/objects.$mode"
    case $mode in
    client)
        is "client: no node encodes" "$(node_figure one put_plain.op_requests_total)" 0
        ;;
    server)
        is "server: no object came in another way" "$(node_figure one put.op_requests_total)" "$puts"
        is "server: files take what they take under client" "$(cat "$T/sizes.server")" "$(cat "$T/sizes.client")"
        check "server: the same bytes are stored" cmp "$T/objects.client" "$T/objects.server"
        ;;
    transport)
        is "transport: no object came in another way" "$(node_figure one put.op_requests_total)" "$puts"
        check "transport: some were encoded on the way" test "$(figure wire_encoded)" -gt 0
        # shellcheck disable=SC2016 # for awk
        check "transport: plain bytes are stored" awk '{ bad += $2 < 2500000 } END { exit bad > 0 }' "$T/sizes.transport"
        ;;
    esac
    # The node has counted some more: of what asks for its statistics.
    check "$mode: both ends count what was sent" test $(($(node_figure one received_bytes_total) - $(figure store_sent_bytes))) -lt 20000 \
        -a $(($(node_figure one received_bytes_total) - $(figure store_sent_bytes))) -ge 0
    check "$mode: and what was received" test $(($(node_figure one sent_bytes_total) - $(figure store_received_bytes))) -lt 100000 \
        -a $(($(node_figure one sent_bytes_total) - $(figure store_received_bytes))) -ge 0
    modes "$mode: edits" edit 2
    modes "$mode: they are read" verify 3
    remount_varjfs -o "log=$T/daemon.log"
    modes "$mode: read by a new mount" verify 4
    for other in server transport client; do
        modes "$mode: files become $other" change $other lz4
        modes "$mode: parts of either kind" verify 5
    done
    modes "$mode: edits of these" edit 6
    check "$mode: recode" varjfsctl recode -r "$MNT"
    modes "$mode: all is recoded" verify 7
    check "$mode: nothing is damaged" varjfsctl scrub "$MNT"
    is "$mode: no damage was met" "$(figure objects_damaged)" 0
    remount_varjfs -o "log=$T/daemon.log"
    modes "$mode: read by a new mount again" verify 8
    volume_end "$mode" one
done

# ---- what goes over the wire

# a file of this mode: wire_file NAME MODE TRANSFORM SOURCE
wire_file()
{
    : >"$MNT/$1"
    python3 -c '
import os, sys
for n, v in zip(("mode", "transform", "objects"), sys.argv[2:]):
    os.setxattr(sys.argv[1], "user.varjfs." + n, v.encode())' "$MNT/$1" "$2" "$3" 1M
    figures_begin
    cat "$4" >"$MNT/$1"
    sync "$MNT/$1"
    cp "$4" "$T/model/$1"
}

volume 1 one
for n in 1 2 3 4; do
    python3 "$srcdir/tests/mount/modes.py" text "$MNT" "$T/text$n" 16000000 "$n"
done
# Up to as many as are put at the same time are tried in vain before the first is over.
head -c 80000000 /dev/urandom >"$T/noise1"
wire_file client client zstd "$T/text1"
client=$(figure_grew store_sent_bytes)
wire_file server server zstd "$T/text2"
server=$(figure_grew store_sent_bytes)
wire_file transport transport zstd "$T/text3"
transport=$(figure_grew store_sent_bytes)
wire_file plain client none "$T/text4"
plain=$(figure_grew store_sent_bytes)
note "16 MB of text: client $client, server $server, transport $transport, client without transformation $plain bytes"
# Write-back puts the object at the end anew as the file grows.
check "server sends plain bytes" test "$server" -gt 16000000 -a "$server" -lt 19000000
check "so does client without a transformation" test "$plain" -gt 16000000 -a "$plain" -lt 19000000
check "client sends what is stored" test "$client" -lt 8000000
check "transport sends as little" test "$transport" -lt $((client + client / 2))
wire_file noise transport zstd "$T/noise1"
note "80 MB of noise under transport: $(figure_grew store_sent_bytes) bytes, encoded $(figure_grew wire_encoded), in vain $(figure_grew wire_unshrunk), not tried $(figure_grew wire_untried)"
check "noise goes as it is" test "$(figure_grew store_sent_bytes)" -lt 86000000
check "it is soon not tried any more" test "$(figure_grew wire_untried)" -gt $((2 * $(figure_grew wire_unshrunk)))
is "nothing is saved by it" "$(figure_grew wire_saved_bytes)" 0
umount_varjfs
mount_varjfs -o "log=$T/daemon.log"
for mode in client server transport; do
    figures_begin
    modes "$mode: 4 KiB at 10 places" range $mode 10
    eval "$mode=$(figure_grew store_received_bytes)"
done
# shellcheck disable=SC2154 # by eval
note "10 reads of 4 KiB, objects of 1 MiB: client $client, server $server, transport $transport bytes"
check "server: about the range comes" test "$server" -lt $((2 * 40960)) -a "$server" -gt 40960
check "transport: not more than the range comes" test "$transport" -lt $((2 * 40960))
check "client: blocks of 64 KiB come, as they are stored" test "$client" -gt "$server" -a "$client" -lt 1000000
figures_begin
check "transport: a read of the whole" cmp "$T/model/transport" "$MNT/transport"
check "transport: fewer bytes come than the file has" test "$(figure_grew store_received_bytes)" -lt 12000000
figures_begin
check "noise is read" cmp "$T/model/noise" "$MNT/noise"
check "nor is noise tried for ever when it is read" test "$(figure_grew wire_untried)" -gt "$(figure_grew wire_unshrunk)"
volume_end "the wire" one

# ---- two replicas, and a node that dies

for mode in server transport; do
    volume 2 one two
    modes "$mode, two replicas: files are written" write $mode
    check "$mode: sync" varjfsctl sync "$MNT"
    # shellcheck disable=SC2317 # by wait_for
    nodes_agree()
    {
        objects_of one >"$T/one.objects" && objects_of two >"$T/two.objects" && cmp -s "$T/one.objects" "$T/two.objects"
    }
    check "$mode: both nodes have the same" wait_for 30 nodes_agree
    python3 "$srcdir/tests/mount/modes.py" edit "$MNT" "$T/model" 11 2>"$T/edit.err" &
    editing=$!
    # shellcheck disable=SC2317 # by wait_for
    objects_grew()
    {
        [ "$(figure_grew objects_put)" -ge 8 ] || ! kill -0 "$editing" 2>/dev/null
    }
    figures_begin
    wait_for 60 objects_grew
    node_stop two KILL
    wait $editing
    is "$mode: edits go on when a node dies" "$? $(cat "$T/edit.err")" "0 "
    modes "$mode: they are read" verify 12
    check "$mode: some objects have one replica" test "$(figure degraded_puts)" -gt 0
    node_start two
    # shellcheck disable=SC2317 # by wait_for
    all_healed()
    {
        [ "$(varjfsctl node status "$MNT" | grep -c ' state=live ')" = 2 ] &&
            varjfsctl node repair "$MNT" >"$T/repair" && grep -q 'healed 0$' "$T/repair"
    }
    check "$mode: they are healed" wait_for 60 all_healed
    umount_varjfs
    node_stop one KILL
    mount_varjfs -o "log=$T/daemon.log"
    modes "$mode: read from the other node alone" verify 13
    modes "$mode: and edited there" edit 14
    node_start one
    check "$mode: healed again" wait_for 60 all_healed
    modes "$mode: read from both" verify 15
    volume_end "$mode, two replicas" one two
done
tap_done
