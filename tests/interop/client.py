"""A driver of :mod:`tests.interop.clients` as a child process, asked verb by verb. Knows nothing of
any scenario.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

ROOT = Path(__file__).parents[2]
SECONDS = 120


class ClientFailed(Exception):
    """The client refused, gave up or died; the text is what it said."""


@dataclass(frozen=True)
class Tls:
    """Paths of PEM files: the authority to trust, and the client's own certificate with its key."""

    ca: str
    certificate: str
    key: str


@dataclass(frozen=True)
class Server:
    """Where a server listens and what it wants.

    :param durable_header: the header that names a durable subscription in this server's dialect.
    """

    host: str
    port: int
    tls: Tls | None = None
    login: str = "guest"
    passcode: str = "guest"
    durable_header: str = "durable-subscriber-name"


class Received(NamedTuple):
    """A MESSAGE as the client gave it; ``number`` names it in :meth:`Client.ack`."""

    number: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """One driver process, which may hold several connections.

    :param command: starts the driver.
    :param version: the STOMP version that its connections ask for.
    """

    def __init__(self, command: Sequence[str], version: str, server: Server) -> None:
        self.version = version
        self.server = server
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._complaints: list[str] = []
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            encoding="utf-8",
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._threads = [
            threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True),
            threading.Thread(
                target=self._complaints.extend, args=(self._process.stderr,), daemon=True
            ),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join()

    def ask(self, verb: str, connection: str, **arguments: Any) -> Any:
        """Have the client do something.

        :raises ClientFailed: it could not, died, or did not answer within ``SECONDS``.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(
                json.dumps({"verb": verb, "connection": connection, **arguments}) + "\n"
            )
            self._process.stdin.flush()
            line = self._answers.get(timeout=SECONDS)
        except queue.Empty:
            raise ClientFailed(f"{verb}: no answer within {SECONDS} s; {self._said()}") from None
        except BrokenPipeError:
            line = None
        if line is None:
            raise ClientFailed(f"{verb}: the client has ended; {self._said()}")
        try:
            answer = json.loads(line)
        except ValueError:
            raise ClientFailed(f"{verb}: not an answer: {line!r}; {self._said()}") from None
        if "error" in answer:
            raise ClientFailed(f"{verb}: {answer['error']}; {self._said()}")
        return answer["ok"]

    def connect(self, connection: str, client_id: str | None = None) -> str:
        """Open a connection. :returns: the version that the server chose."""
        server = self.server
        answer = self.ask(
            "connect",
            connection,
            host=server.host,
            port=server.port,
            version=self.version,
            login=server.login,
            passcode=server.passcode,
            client_id=client_id,
            tls=None if server.tls is None else asdict(server.tls),
        )
        return str(answer["version"])

    def subscribe(
        self,
        connection: str,
        destination: str,
        id: str = "s",
        ack: str = "auto",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.ask(
            "subscribe", connection, destination=destination, id=id, ack=ack, headers=headers or {}
        )

    def unsubscribe(
        self,
        connection: str,
        destination: str,
        id: str = "s",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.ask("unsubscribe", connection, destination=destination, id=id, headers=headers or {})

    def send(
        self,
        connection: str,
        destination: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        transaction: str | None = None,
    ) -> None:
        self.ask(
            "send",
            connection,
            destination=destination,
            body=body.hex(),
            headers=headers or {},
            transaction=transaction,
        )

    def receive(self, connection: str, seconds: float = 60) -> Received:
        """The next message. :raises ClientFailed: none came within ``seconds``."""
        answer = self.ask("receive", connection, seconds=seconds)
        if answer is None:
            raise ClientFailed(f"receive: no message within {seconds} s; {self._said()}")
        return Received(answer["number"], answer["headers"], bytes.fromhex(answer["body"]))

    def ack(self, connection: str, message: Received, transaction: str | None = None) -> None:
        self.ask("ack", connection, number=message.number, transaction=transaction)

    def begin(self, connection: str, transaction: str) -> None:
        self.ask("begin", connection, transaction=transaction)

    def commit(self, connection: str, transaction: str) -> None:
        self.ask("commit", connection, transaction=transaction)

    def abort(self, connection: str, transaction: str) -> None:
        self.ask("abort", connection, transaction=transaction)

    def disconnect(self, connection: str) -> None:
        self.ask("disconnect", connection)

    def _read(self, stdout: Any) -> None:
        for line in stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _said(self) -> str:
        return "its stderr: " + ("".join(self._complaints[-20:]) or "nothing")
