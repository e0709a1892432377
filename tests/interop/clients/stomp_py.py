"""Drives stomp.py: over WebSocket if it is given ``ws``."""

from __future__ import annotations

import queue
import sys
from collections.abc import Mapping
from typing import Any

import stomp

from tests.interop.clients.lines import serve

CLASSES = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}
SECONDS = 60


class Inbox(stomp.ConnectionListener):  # type: ignore[misc]
    """Sorts what arrives: messages for ``receive``, receipts and errors for whoever waits for
    them.
    """

    def __init__(self) -> None:
        self.version = "1.0"
        self.messages: queue.Queue[Any] = queue.Queue()
        self.outcomes: queue.Queue[tuple[str, str]] = queue.Queue()

    def on_connected(self, frame: Any) -> None:
        self.version = frame.headers.get("version", "1.0")

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.outcomes.put(("RECEIPT", frame.headers["receipt-id"]))

    def on_error(self, frame: Any) -> None:
        self.outcomes.put(("ERROR", frame.headers.get("message", "")))

    def on_disconnected(self) -> None:
        self.outcomes.put(("ERROR", "disconnected"))


class StompPy:
    def __init__(self, *, over_websocket: bool) -> None:
        self._over_websocket = over_websocket
        self.connections: dict[str, Any] = {}
        self.inboxes: dict[str, Inbox] = {}
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
        options: dict[str, Any] = {"auto_decode": False, "reconnect_attempts_max": 1}
        if self._over_websocket:
            client = stomp.WSConnection(
                [(host, port)], ws_path="/stomp", binary_mode=True, **options
            )
        else:
            client = CLASSES[version]([(host, port)], **options)
        if tls is not None:
            client.set_ssl(
                [(host, port)],
                key_file=tls["key"],
                cert_file=tls["certificate"],
                ca_certs=tls["ca"],
            )
        inbox = self.inboxes[connection] = Inbox()
        client.set_listener("inbox", inbox)
        client.connect(
            login,
            passcode,
            wait=True,
            headers={} if client_id is None else {"client-id": client_id},
        )
        self.connections[connection] = client
        return {"version": inbox.version}

    def subscribe(
        self, connection: str, destination: str, id: str, ack: str, headers: Mapping[str, str]
    ) -> None:
        receipt = self._receipt()
        self.connections[connection].subscribe(
            destination, id=id, ack=ack, headers={**headers, "receipt": receipt}
        )
        self._wait(connection, receipt)

    def unsubscribe(
        self, connection: str, destination: str, id: str, headers: Mapping[str, str]
    ) -> None:
        receipt = self._receipt()
        self.connections[connection].unsubscribe(id=id, **headers, receipt=receipt)
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
            destination, bytes.fromhex(body), headers={**headers, **extra, "receipt": receipt}
        )
        self._wait(connection, receipt)

    def receive(self, connection: str, seconds: float) -> Mapping[str, Any] | None:
        try:
            frame = self.inboxes[connection].messages.get(timeout=seconds)
        except queue.Empty:
            return None
        self.received.append(frame)
        return {
            "number": len(self.received) - 1,
            "headers": frame.headers,
            "body": frame.body.hex(),
        }

    def ack(self, connection: str, number: int, transaction: str | None) -> None:
        client, headers = self.connections[connection], self.received[number].headers
        receipt = self._receipt()
        if isinstance(client, stomp.Connection12):
            client.ack(headers["ack"], transaction=transaction, receipt=receipt)
        elif isinstance(client, stomp.Connection11):
            client.ack(
                headers["message-id"],
                headers["subscription"],
                transaction=transaction,
                receipt=receipt,
            )
        else:
            client.ack(headers["message-id"], transaction=transaction, receipt=receipt)
        self._wait(connection, receipt)

    def begin(self, connection: str, transaction: str) -> None:
        receipt = self._receipt()
        self.connections[connection].begin(transaction, receipt=receipt)
        self._wait(connection, receipt)

    def commit(self, connection: str, transaction: str) -> None:
        receipt = self._receipt()
        self.connections[connection].commit(transaction, receipt=receipt)
        self._wait(connection, receipt)

    def abort(self, connection: str, transaction: str) -> None:
        receipt = self._receipt()
        self.connections[connection].abort(transaction, receipt=receipt)
        self._wait(connection, receipt)

    def disconnect(self, connection: str) -> None:
        receipt = self._receipt()
        self.connections.pop(connection).disconnect(receipt=receipt)
        # stomp.py tells of the end before it tells of the receipt that allowed it.
        outcome = self.inboxes[connection].outcomes.get(timeout=SECONDS)
        if outcome != ("ERROR", "disconnected"):
            raise RuntimeError(f"expected the end of the connection, got {outcome}")
        self._wait(connection, receipt)

    def _receipt(self) -> str:
        self.receipts += 1
        return f"r{self.receipts}"

    def _wait(self, connection: str, receipt: str) -> None:
        outcome = self.inboxes[connection].outcomes.get(timeout=SECONDS)
        if outcome != ("RECEIPT", receipt):
            raise RuntimeError(f"expected the receipt {receipt}, got {outcome}")


if __name__ == "__main__":
    serve(StompPy(over_websocket=sys.argv[1:] == ["ws"]))
