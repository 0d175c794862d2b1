# SPDX-License-Identifier: LGPL-3.0-or-later
"""What a link carries: stream.py receive ADDRESS PORT, stream.py send ADDRESS PORT BYTES

The sender prints the milliseconds until the receiver has said that it has all of it.
"""

import os
import socket
import sys
import time


def receive(address, port):
    with socket.create_server((address, int(port))) as listener:
        print("ready", flush=True)
        connection, _ = listener.accept()
        with connection:
            buffer = bytearray(1 << 20)
            while connection.recv_into(buffer):
                pass
            connection.sendall(b".")


def send(address, port, count):
    data = os.urandom(1 << 20)
    with socket.create_connection((address, int(port))) as connection:
        begin = time.perf_counter()
        left = int(count)
        while left:
            left -= connection.send(data[:left])
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
        print(f"{(time.perf_counter() - begin) * 1e3:.1f}")


if __name__ == "__main__":
    {"receive": receive, "send": send}[sys.argv[1]](*sys.argv[2:])
