"""The target broker of a replay: what it is, and what this user may do.

Whether it restores envelopes for this user.

Owns the questions, which are asked on the driver before anything is sent. Sends nothing that
anybody else could see.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.messaging.destination import Queue
from gateway.messaging.envelope import CONTENT_TYPE, encode
from gateway.messaging.message import Headers, Message
from gateway.stomp.brokers import GATEWAY
from gateway.stomp.wire import serialize
from pipeline.datasource.client import Client
from pipeline.datasource.options import Options, Use, parse
from pipeline.errors import PipelineError

_PROBE: Final = "/temp-queue/envelope"


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a replay.

    :param broker: what it is, as the data source calls it.
    :param gateway: it is the gateway, which restores envelopes and knows duplicate ids.
    """

    broker: str
    gateway: bool


def look_at(options: Mapping[str, str]) -> Target:
    """Connect, and find out.

    :param options: of the data source, about the connection.
    :raises PipelineError: there is no connection, or it is the gateway and the user may not have
        envelopes restored.
    """
    parsed = parse(options, Use.WRITE)
    with Client(parsed).open() as client:
        if client.dialect is not GATEWAY:
            return Target(client.dialect.name, False)
        if not _restores(client, parsed):
            # Each would become a message of octets, with a RECEIPT for it.
            raise PipelineError(
                f"the gateway at {parsed.address} restores messages for users in the group admin only, "
                f"and {parsed.login or 'who connects without a login'} is not one of them"
            )
        return Target(client.dialect.name, True)


def _restores(client: Client, options: Options) -> bool:
    """Whether the broker restores an envelope that this connection sends.

    It tries with one to a temporary queue of its own.
    """
    client.confirm(
        [("SUBSCRIBE", [("id", "probe"), ("destination", _PROBE), ("ack", "auto")], b"")]
    )
    body = encode(Message(Headers(Queue("probe"))))
    headers = [
        ("destination", _PROBE),
        ("content-type", CONTENT_TYPE),
        ("content-length", str(len(body))),
    ]
    client.send(serialize("SEND", headers, body, client.version))
    found = client.receive(time.monotonic() + options.timeout)
    if not found:
        raise PipelineError(
            f"the gateway at {options.address} did not deliver within {options.timeout:g} s what was sent to it"
        )
    return found[0].head.headers.get("content-type") != CONTENT_TYPE
