"""A gateway where messages die for real: refused by a consumer, too late, or given up by a link
whose transformer fails.

Owns the gateway and the making of the dead; what is made of them is for the tests. What can be sent
over STOMP has text only, so messages with types are sent in envelopes, by the administrator.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gateway.messaging.envelope import CONTENT_TYPE, decode, encode
from gateway.messaging.message import Message
from pipeline.connection import Connection
from tests.crash.client import Client, Frame
from tests.crash.waiting import until
from tests.faults.links import HERE, BridgedGateway, Link

BRIDGE_DMQ: Final = "imq.bridge.jms.dmq"
BROKER_DMQ: Final = "mq.sys.dmq"
#: What arrives in either queue of these links dies there.
LINKS: Final = ("broken", "again")
TRANSFORMER: Final = """\
from gateway.messaging.transformer import MessageTransformer


class Failing(MessageTransformer):
    def transform(self, message, read_only, charset_name, source, target, properties):
        raise ValueError(f"no price in order {message.properties.get('number')} of '{message.properties.get('customer')}'")
"""


class Graveyard:
    """A gateway with two links that give up every message.

    :param folder: for its files.
    """

    def __init__(self, folder: Path) -> None:
        extensions = folder / "var" / "lib" / "ext"
        extensions.mkdir(parents=True)
        (extensions / "failing.py").write_text(TRANSFORMER)
        failing = {
            "message-transformer-class": "failing:Failing",
            "consume-no-transfer-on-transform-error": "true",
        }
        links = [Link(name, HERE, HERE, 10, target_attributes=failing) for name in LINKS]
        self.gateway: Final = BridgedGateway(
            folder / "var", links, settings={"imq.message.expiration.interval": "1"}
        )
        self._passcode_file: Final = folder / "passcode"

    def start(self) -> None:
        self.gateway.start()
        lines = (self.gateway.directory / "etc" / "passfile").read_text().splitlines()
        self._passcode_file.write_text(
            dict(line.partition("=")[::2] for line in lines)["imq.bridge.admin.password"]
        )
        self.gateway.until_moving(*LINKS)

    def connection(self, administrator: bool = True) -> Connection:
        options = {"port": str(self.gateway.port), "timeoutSeconds": "20"}
        if administrator:
            return Connection(
                {**options, "login": "admin", "passcodeFile": str(self._passcode_file)}
            )
        guest = self._passcode_file.with_name("guest")
        guest.write_text("guest")
        return Connection({**options, "login": "guest", "passcodeFile": str(guest)})

    def arguments(self) -> list[str]:
        return [
            "--port",
            str(self.gateway.port),
            "--login",
            "admin",
            "--passcode-file",
            str(self._passcode_file),
        ]

    def client(self) -> Client:
        return Client(self.gateway.port, login="admin", passcode=self._passcode_file.read_text())

    # --- dying

    def buried(self, messages: Sequence[Message], link: str = "broken") -> list[str]:
        """Have a link give these up, and wait until it has.

        :returns: the ids of the dead messages, in order.
        """
        before = len(self.browsed(BRIDGE_DMQ))
        with self.client() as client:
            for message in messages:
                client.ask(
                    "SEND",
                    {"destination": f"/queue/{link}.in", "content-type": CONTENT_TYPE},
                    encode(message),
                )
        return [
            frame.headers["message-id"]
            for frame in self.until_there(BRIDGE_DMQ, before + len(messages))[before:]
        ]

    def refused(self, queue: str, bodies: Sequence[bytes], **headers: str) -> None:
        """Have a consumer refuse these for good."""
        with self.client() as client:
            for body in bodies:
                client.store(f"/queue/{queue}", body, **headers)
            client.ask(
                "SUBSCRIBE",
                {"destination": f"/queue/{queue}", "id": "1", "ack": "client-individual"},
            )
            for frame in [client.message() for _ in bodies]:
                client.ask("NACK", {"id": frame.headers["ack"], "requeue": "false"})

    def sent(self, queue: str, messages: Sequence[Message]) -> None:
        """Have these in a queue as they are, but for the destination."""
        with self.client() as client:
            for message in messages:
                client.ask(
                    "SEND",
                    {"destination": f"/queue/{queue}", "content-type": CONTENT_TYPE},
                    encode(message),
                )

    def refused_whole(self, queue: str, messages: Sequence[Message]) -> None:
        """As :meth:`refused`, of messages as they are."""
        self.sent(queue, messages)
        with self.client() as client:
            client.ask(
                "SUBSCRIBE",
                {
                    "destination": f"/queue/{queue}",
                    "id": "1",
                    "ack": "client-individual",
                    "envelope": "true",
                },
            )
            for frame in [client.message() for _ in messages]:
                client.ask("NACK", {"id": frame.headers["ack"], "requeue": "false"})

    def expired(self, queue: str, bodies: Sequence[bytes], **headers: str) -> None:
        """Have these be too late, and wait until they are."""
        before = len(self.browsed(BROKER_DMQ))
        with self.client() as client:
            for body in bodies:
                client.store(f"/queue/{queue}", body, ttl="1", **headers)
        self.until_there(BROKER_DMQ, before + len(bodies))

    # --- looking

    def browsed(self, queue: str, **headers: str) -> list[Frame]:
        with self.client() as client:
            found = client.ask(
                "SUBSCRIBE",
                {"destination": f"/queue/{queue}", "id": "1", "browser": "true", **headers},
            )
            while not found or found[-1].headers.get("browser") != "end":
                found.append(client.message())
        return found[:-1]

    def whole(self, queue: str) -> list[Message]:
        """As :meth:`browsed`, as messages."""
        return [decode(frame.body) for frame in self.browsed(queue, envelope="true")]

    def until_there(self, queue: str, count: int) -> list[Frame]:
        """What is in a queue, once it is so many."""
        found: list[list[Frame]] = [[]]

        def holds() -> bool:
            found[0] = self.browsed(queue)
            return len(found[0]) >= count

        until(
            holds,
            lambda: f"{queue}: {len(found[0])} of {count} messages\n{self.gateway.log[-2000:]}",
        )
        assert len(found[0]) == count
        return found[0]

    def originals(self) -> list[Message]:
        return [decode(frame.body) for frame in self.browsed(BRIDGE_DMQ)]

    def emptied(self, *queues: str) -> None:
        for queue in queues:
            with self.client() as client:
                frames = self.browsed(queue, envelope="true")
                headers = {"ack": "client", "prefetch-count": "10000", "envelope": "true"}
                client.ask("SUBSCRIBE", {"destination": f"/queue/{queue}", "id": "1", **headers})
                for _ in frames:
                    last = client.message()
                if frames:
                    client.ask("ACK", {"id": last.headers["ack"]})
