"""Stands for netcat: sends its standard input, and prints what comes."""

from __future__ import annotations

import socket
import sys

with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    connection.sendall(sys.stdin.buffer.read())
    connection.shutdown(socket.SHUT_WR)
    while octets := connection.recv(4096):
        sys.stdout.buffer.write(octets)
