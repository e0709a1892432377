"""Drives stompest's synchronous client."""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Mapping
from typing import Any

from stompest.config import StompConfig
from stompest.protocol import StompFrame, commands
from stompest.sync import Stomp

from tests.interop.clients.lines import serve

SECONDS = 60


class Stompest:
    def __init__(self) -> None:
        self.connections: dict[str, Any] = {}
        self.tokens: dict[tuple[str, str], Any] = {}
        self.waiting: dict[str, deque[Any]] = {}
        self.received: list[Any] = []
        self.receipts = 0

    def connect(
        self,
        connection: str,
        host: str,
        port: int,
        version: str,
        login: str,
        passcode: str,
        client_id: str | None,
        tls: Mapping[str, str] | None,
    ) -> Mapping[str, str]:
        context = None
        if tls is not None:
            context = ssl.create_default_context(cafile=tls["ca"])
            context.load_cert_chain(tls["certificate"], tls["key"])
        client = Stomp(
            StompConfig(f"tcp://{host}:{port}", login, passcode, version, sslContext=context)
        )
        client.connect(
            headers=None if client_id is None else {"client-id": client_id},
            versions=[version],
            connectTimeout=SECONDS,
            connectedTimeout=SECONDS,
        )
        self.connections[connection] = client
        self.waiting[connection] = deque()
        return {"version": client.session.version}

    def subscribe(
        self, connection: str, destination: str, id: str, ack: str, headers: Mapping[str, str]
    ) -> None:
        receipt = self._receipt()
        token = self.connections[connection].subscribe(
            destination, {**headers, "id": id, "ack": ack}, receipt
        )
        self.tokens[connection, id] = token
        self._wait(connection, receipt)

    def unsubscribe(
        self, connection: str, destination: str, id: str, headers: Mapping[str, str]
    ) -> None:
        receipt = self._receipt()
        client = self.connections[connection]
        token = self.tokens.pop((connection, id), None)
        if token is None or headers:
            # stompest's own call takes no headers, and wants a subscription of this connection.
            client.sendFrame(
                StompFrame(
                    "UNSUBSCRIBE",
                    {"destination": destination, "id": id, "receipt": receipt, **headers},
                )
            )
            self._wait_frame(connection, receipt)
        else:
            client.unsubscribe(token, receipt)
            self._wait(connection, receipt)

    def send(
        self,
        connection: str,
        destination: str,
        body: str,
        headers: Mapping[str, str],
        transaction: str | None,
    ) -> None:
        receipt = self._receipt()
        extra = {} if transaction is None else {"transaction": transaction}
        self.connections[connection].send(
            destination,
            bytes.fromhex(body),
            {**headers, **extra, "content-length": str(len(body) // 2)},
            receipt,
        )
        self._wait(connection, receipt)

    def receive(self, connection: str, seconds: float) -> Mapping[str, Any] | None:
        frame = self._next(connection, seconds)
        if frame is None:
            return None
        if frame.command != "MESSAGE":
            raise RuntimeError(str(frame.info()))
        self.connections[connection].message(frame)
        self.received.append(frame)
        return {
            "number": len(self.received) - 1,
            "headers": frame.headers,
            "body": frame.body.hex(),
        }

    def ack(self, connection: str, number: int, transaction: str | None) -> None:
        receipt = self._receipt()
        client = self.connections[connection]
        if transaction is None:
            client.ack(self.received[number], receipt)
            self._wait(connection, receipt)
        else:
            # stompest's own call takes no transaction.
            frame = commands.ack(self.received[number], receipt=receipt)
            client.sendFrame(
                StompFrame(
                    "ACK", {**frame.headers, "transaction": transaction}, version=frame.version
                )
            )
            self._wait_frame(connection, receipt)

    def begin(self, connection: str, transaction: str) -> None:
        receipt = self._receipt()
        self.connections[connection].begin(transaction, receipt)
        self._wait(connection, receipt)

    def commit(self, connection: str, transaction: str) -> None:
        receipt = self._receipt()
        self.connections[connection].commit(transaction, receipt)
        self._wait(connection, receipt)

    def abort(self, connection: str, transaction: str) -> None:
        receipt = self._receipt()
        self.connections[connection].abort(transaction, receipt)
        self._wait(connection, receipt)

    def disconnect(self, connection: str) -> None:
        receipt = self._receipt()
        client = self.connections.pop(connection)
        client.disconnect(receipt)
        self._wait(connection, receipt, client)
        client.close(flush=True)

    def _receipt(self) -> str:
        self.receipts += 1
        return f"r{self.receipts}"

    def _next(self, connection: str, seconds: float) -> Any:
        if self.waiting[connection]:
            return self.waiting[connection].popleft()
        client = self.connections[connection]
        return client.receiveFrame() if client.canRead(seconds) else None

    def _wait(self, connection: str, receipt: str, client: Any = None) -> None:
        client = client or self.connections[connection]
        client.receipt(self._await(client, connection, receipt))

    def _wait_frame(self, connection: str, receipt: str) -> None:
        """For a frame that went around the session: it knows nothing of this receipt."""
        self._await(self.connections[connection], connection, receipt)

    def _await(self, client: Any, connection: str, receipt: str) -> Any:
        while client.canRead(SECONDS):
            frame = client.receiveFrame()
            if frame.command == "RECEIPT":
                return frame
            if frame.command != "MESSAGE":
                raise RuntimeError(f"expected the receipt {receipt}, got {frame.info()}")
            self.waiting[connection].append(frame)
        raise TimeoutError(f"no receipt {receipt} within {SECONDS} s")


if __name__ == "__main__":
    serve(Stompest())
