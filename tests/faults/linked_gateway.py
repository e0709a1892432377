"""A real gateway with links of every kind, whose journal is read back: to its own broker and to
ActiveMQ, transacted and not, with a transformer that fails on some.

Owns the gateway and what is sent through its links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.crash.client import Client
from tests.faults.links import HERE, BridgedGateway, Link, activemq, stomp
from tests.gateway.journal.reading import Event, events_of, lines_of
from tests.servers import ActiveMQ, started

TRANSFORMER: Final = """\
from gateway.messaging.transformer import MessageTransformer


class Odd(MessageTransformer):
    def transform(self, message, read_only, charset_name, source, target, properties):
        if message.octets.startswith(b"poison"):
            raise ValueError("not this one")
        if message.octets.startswith(b"drop"):
            self.no_transfer()
        if message.octets.startswith(b"change"):
            message = message.copy()
            message.octets = message.octets.upper()
        return message
"""
#: What a message is to the transformer, by its first word.
KINDS: Final = ("poison", "drop", "change", "keep")


@dataclass
class LinkedGateway:
    """A gateway with links.

    Its journal has its lines in whole segments once it has ended, or was started again.
    """

    gateway: BridgedGateway
    links: dict[str, Link]

    @property
    def journal(self) -> Path:
        return self.gateway.directory / "journal"

    def send(self, link: str, bodies: Sequence[str], **headers: str) -> None:
        with Client(self.gateway.port) as client:
            for body in bodies:
                client.store(self.links[link].source_queue, body.encode(), **headers)

    def until_acknowledged(self, link: str, count: int) -> None:
        self.gateway.until_link(
            link, lambda told: told["counters"]["acknowledged"] >= count, f"{count} acknowledged"
        )

    def until_at_rest(self, link: str) -> None:
        self.gateway.until_link(
            link, lambda told: told["in_flight"] == 0 and told["state"] == "STARTED", "it rests"
        )

    def everything(self, link: str) -> list[str]:
        """The bodies of all that lies at a link's target; they are taken."""
        queue = self.links[link].target_queue
        found: list[str] = []
        with Client(self.gateway.port) as client:
            client.store(queue, b"the end")
            client.ask("SUBSCRIBE", {"destination": queue, "id": "1", "ack": "auto"})
            while not found or found[-1] != "the end":
                found.append(client.message().body.decode())
        return found[:-1]

    def transfers(self, link: str) -> list[list[Event]]:
        """The events of each transfer of a link, in order."""
        found: dict[Any, list[Event]] = {}
        for event in events_of(lines_of(self.journal)):
            if event.line.get("link") == f"proof/{link}":
                found.setdefault(
                    (event.line["run"], event.line["transfers"][event.place]), []
                ).append(event)
        return list(found.values())


def linked_gateway(folder: Path) -> LinkedGateway:
    """The gateway, not started."""
    extensions = folder / "var" / "lib" / "ext"
    extensions.mkdir(parents=True)
    (extensions / "odd.py").write_text(TRANSFORMER)
    server = started(ActiveMQ)
    jms, foreign = activemq("jms", server.openwire_port), stomp("stomp", server.port)
    odd = {"message-transformer-class": "odd:Odd", "consume-no-transfer-on-transform-error": "true"}
    once = {"transacted": "true"}
    made = [
        Link("plain", HERE, HERE, 7),
        Link("once", HERE, HERE, 7, "ONCE_AND_ONLY_ONCE", once),
        Link("odd", HERE, HERE, 7, target_attributes=odd),
        Link("oddonce", HERE, HERE, 7, "ONCE_AND_ONLY_ONCE", once, target_attributes=odd),
        Link("jms", HERE, jms, 7),
        Link("stomp", HERE, foreign, 7),
    ]
    gateway = BridgedGateway(folder / "var", made, settings={"imq.journal.segment.age": "3600"})
    return LinkedGateway(gateway, {link.name: link for link in made})
