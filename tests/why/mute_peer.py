"""A STOMP broker that lets clients in and answers nothing else."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import closing, suppress

from tests.gateway_process import HOST

_RECEIPT = re.compile(rb"\nreceipt:([^\n]*)\n")


class MutePeer:
    """Listens at :attr:`port` until it is closed."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        self.connections = 0
        self._answers = False
        self._lock = threading.Lock()
        #: RECEIPTs, and who waits for them.
        self._owed: list[tuple[socket.socket, bytes]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def answer(self) -> None:
        """Give the answers that are owed, and each one from now on."""
        with self._lock:
            self._answers = True
            owed, self._owed = self._owed, []
        for connection, octets in owed:
            # The client may have left since.
            with suppress(OSError):
                connection.sendall(octets)

    def close(self) -> None:
        # Closing alone does not wake the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # The client may leave without a word.
        with closing(connection), suppress(ConnectionError):
            rest = b""
            while data := connection.recv(65536):
                *frames, rest = (rest + data).split(b"\0")
                for frame in frames:
                    self._take(connection, frame)

    def _take(self, connection: socket.socket, frame: bytes) -> None:
        if frame.lstrip().startswith((b"CONNECT", b"STOMP")):
            connection.sendall(b"CONNECTED\nversion:1.2\nserver:mute/1\n\n\0")
        elif receipt := _RECEIPT.search(frame):
            with self._lock:
                self._owed.append((connection, b"RECEIPT\nreceipt-id:" + receipt[1] + b"\n\n\0"))
                answers = self._answers
            if answers:
                self.answer()
