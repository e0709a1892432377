"""What the tests ask of a broker, past the data source: sending, and looking at what is left.

Speaks by :mod:`tests.crash.client`, which shares no code with what is tested.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import uuid4

from tests.crash.client import Client, encode


@dataclass
class Broker:
    """A broker on 127.0.0.1.

    :param options: that a reader or writer needs to be let in.
    """

    port: int
    options: dict[str, str]
    name: str = field(default_factory=lambda: f"q{uuid4().hex[:8]}")

    @property
    def queue(self) -> dict[str, str]:
        return {"port": str(self.port), **self.options, "destination": f"queue:{self.name}"}

    def reads(self, **more: object) -> dict[str, str]:
        return {**self.queue, **{name: str(value) for name, value in more.items()}}

    def client(self, **headers: str) -> Client:
        return Client(self.port, headers=headers)

    def fill(self, bodies: Iterable[str], destination: str = "", **headers: str) -> None:
        """Send persistent messages; each body is in the header ``number`` as well."""
        with self.client() as client:
            given = {
                "destination": destination or f"/queue/{self.name}",
                "persistent": "true",
                **headers,
            }
            frames = [encode("SEND", {**given, "number": body}, body.encode()) for body in bodies]
            for start in range(0, len(frames), 500):
                client.write(b"".join(frames[start : start + 500]))
            client.ask("DISCONNECT", {})

    def waiting(self) -> list[str]:
        with self.client() as client:
            subscribe = {
                "id": "1",
                "destination": f"/queue/{self.name}",
                "browser": "true",
                "ack": "auto",
            }
            found = client.ask("SUBSCRIBE", subscribe)
            while not found or found[-1].headers.get("browser") != "end":
                found.append(client.frame())
            return [frame.body.decode() for frame in found[:-1]]
