"""The bytes of a STOMP connection: TCP, TLS, heart-beats and frames.

Owns the socket. Knows CONNECT no more than that the version comes from its answer, and nothing of
destinations. A passcode passes through as bytes, and is in no error.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Final

from gateway.stomp.wire import Frame, FrameParser, Limits, ProtocolError, Version
from pipeline.datasource.errors import BrokerError, ConnectionLost, OptionError
from pipeline.datasource.options import Options

#: What a broker may send: more than any is known to.
_LIMITS: Final = Limits(
    header_line=1 << 20,
    header_count=10_000,
    header_lines=10_000,
    header_block=1 << 22,
    body=1 << 30,
    frame=(1 << 30) + (1 << 23),
)
_CHUNK: Final = 1 << 18
_RECEIVE_BUFFER: Final = 1 << 21
#: Frames that are handed over at a time.
_RUN: Final = 4096


class Transport:
    """One connection to ``host`` and ``port``; connected when it is made.

    :raises ConnectionLost: no server listens, or the other side ends the handshake.
    :raises BrokerError: the TLS handshake fails.
    :raises OptionError: a certificate cannot be used.
    """

    def __init__(self, options: Options) -> None:
        self._address: Final = options.address
        self._patience: Final = options.timeout
        self._parser: Final = FrameParser(_LIMITS)
        #: Seconds between heart-beats of ours, and the longest silence of the broker's; 0 for none.
        self._beats = self._silence = 0.0
        context = _context(options) if options.tls else None
        try:
            plain = socket.create_connection((options.host, options.port), timeout=options.timeout)
        except OSError as error:
            raise ConnectionLost(
                f"no connection to the STOMP broker at {self._address}: {_reason(error)}"
            ) from None
        self._socket: socket.socket | None = plain
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
            if context is not None:
                self._socket = context.wrap_socket(plain, server_hostname=options.host)
        except ssl.SSLError as error:
            plain.close()
            raise BrokerError(
                f"TLS with the STOMP broker at {self._address} failed: {error.reason or error}"
            ) from None
        except OSError as error:
            plain.close()
            raise ConnectionLost(
                f"the STOMP broker at {self._address} ended the TLS handshake: {_reason(error)}"
            ) from None
        self._sent = self._heard = time.monotonic()

    def agreed(self, version: Version, beats: float, silence: float) -> None:
        """What CONNECTED has settled.

        :param beats: seconds after which a heart-beat is due, and
        :param silence: after which the broker is taken for dead; 0 for never.
        """
        self._parser.change_rules(version)
        self._beats, self._silence = beats, silence

    def close(self) -> None:
        """Give the socket up, without a word."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def frames(self, until: float) -> list[Frame]:
        """Return the frames that have come, at most some thousands.

        Waits for the first, and returns none when it is ``until``.

        :param until: by ``time.monotonic()``.
        :raises ConnectionLost: the connection is gone, or the broker has been silent for too long.
        :raises BrokerError: this is no STOMP.
        """
        while True:
            try:
                found = self._parser.frames(_RUN)
            except ProtocolError as error:
                raise BrokerError(
                    f"{self._address} sent what is no STOMP: {error.message}"
                ) from None
            if found:
                return found
            now = time.monotonic()
            if now >= until:
                return []
            wait = until - now
            if self._beats:
                if now - self._sent >= self._beats:
                    self.write(b"\n")
                wait = min(wait, self._beats)
            if self._silence:
                wait = min(wait, self._heard + self._silence - now)
            # What came between two calls is still to be read, so this looks before it says that
            # nothing came.
            if not self._read(max(wait, 0.001)) and self._silence:
                silent = time.monotonic() - self._heard
                if silent > self._silence:
                    raise ConnectionLost(
                        f"the STOMP broker at {self._address} has been silent for {silent:.0f} s"
                    )

    def underway(self, since: float) -> bool:
        """Whether part of a frame has come, some of it since ``since``.

        ``since`` is by ``time.monotonic()``.
        """
        return self._parser.buffered > 0 and self._heard >= since

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Send heart-beats from a thread during a block that does something else.

        Only that thread may use the connection meanwhile.
        """
        over = Event()

        def beat() -> None:
            with suppress(ConnectionLost):  # the next use raises it
                while not over.wait(self._beats):
                    self.write(b"\n")

        thread = Thread(target=beat, daemon=True)
        if self._beats:
            thread.start()
        try:
            yield
        finally:
            over.set()
            if self._beats:
                thread.join()

    def write(self, octets: bytes | bytearray) -> None:
        """Send bytes, for as long as the broker takes some of them.

        :raises ConnectionLost: the connection is gone, or nothing is taken for ``timeoutSeconds``.
        """
        connection = self._living()
        connection.settimeout(self._patience)
        left = memoryview(octets)
        try:
            # Not all at once: a socket has one time for all that it is given, however long that is.
            while left:
                left = left[connection.send(left[:_CHUNK]) :]
        except TimeoutError:
            raise ConnectionLost(
                f"the STOMP broker at {self._address} took nothing for {self._patience:g} s: is the destination full?"
            ) from None
        except OSError as error:
            raise self._lost(error) from None
        self._sent = time.monotonic()

    def _read(self, wait: float) -> bool:
        """Read for that many seconds at most. :returns: whether anything came."""
        connection = self._living()
        connection.settimeout(wait)
        try:
            data = connection.recv(_CHUNK)
        except TimeoutError:
            return False
        except OSError as error:
            raise self._lost(error) from None
        if not data:
            raise ConnectionLost(f"the STOMP broker at {self._address} closed the connection")
        self._heard = time.monotonic()
        self._parser.receive(data)
        return True

    def _living(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionLost(f"the connection to the STOMP broker at {self._address} is closed")
        return self._socket

    def _lost(self, error: OSError) -> ConnectionLost:
        return ConnectionLost(
            f"the connection to the STOMP broker at {self._address} is lost: {_reason(error)}"
        )


def _context(options: Options) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise OptionError("caFile", f"{options.ca_file} cannot be used: {_reason(error)}") from None
    if options.cert_file is not None:
        try:
            context.load_cert_chain(options.cert_file, options.key_file, password=lambda: b"")
        except (OSError, ssl.SSLError) as error:
            files = (
                f"{options.cert_file} and {options.key_file}"
                if options.key_file
                else options.cert_file
            )
            raise OptionError("certFile", f"{files} cannot be used: {_reason(error)}") from None
    return context


def _reason(error: OSError) -> str:
    return str(error.strerror or error)
