"""What tests of replays share: messages with all that STOMP cannot say, and the job, run as its
command does.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.messaging.destination import Queue, Topic
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.provider import DUPLICATE_ID
from gateway.messaging.values import Byte, Float, Int, Short, Value, encode_map, encode_stream
from pipeline.connection import Connection
from pipeline.output import Output
from pipeline.replay.ledger import FILE, State, recorded
from tests.pipeline.graveyard import BRIDGE_DMQ, Graveyard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOBODY = Connection({})
#: Of the command.
OPTIONS = (
    "queue",
    "archive",
    "where",
    "to",
    "new_ids",
    "strict",
    "plan",
    "approve",
    "journal",
    "rate",
    "remove",
    "in_doubt",
)
TYPED: dict[str, Value] = {
    "small": Byte(3),
    "short": Short(-4),
    "count": Int(5),
    "long": 6,
    "real": Float(0.5),
    "flag": True,
    "nothing": None,
}
BODIES = {
    BodyType.TEXT: "fünf Stühle".encode(),
    BodyType.BYTES: b"\x00\xff",
    BodyType.MAP: encode_map({"n": Short(1), "octets": b"\0"}),
    BodyType.STREAM: encode_stream([Int(1), "a", None]),
    BodyType.OBJECT: b"\xac\xed\0\x05p",
    BodyType.MESSAGE: b"",
}


def order(number: int, kind: BodyType = BodyType.TEXT, **more: Any) -> Message:
    """A message with everything that STOMP cannot say."""
    headers = Headers(
        Queue("elsewhere"),
        body_type=kind,
        priority=7,
        persistent=number % 2 == 0,
        reply_to=Topic("answers"),
        correlation_id=f"c{number}",
        type="order",
        properties={**TYPED, "number": Int(number), "customer": f"customer {number}"},
        extras=(("x-extra", "e"),),
    )
    return Message(
        headers,
        BODIES[kind],
        timestamp=1_700_000_000_000 + number,
        message_id=f"ID:made:{number}",
        **more,
    )


class Job:
    def __init__(self, spark: SparkSession, graveyard: Graveyard, folder: Path) -> None:
        self._spark = spark
        self.graveyard = graveyard
        self.ledger = folder / "ledger"
        self.plan = folder / "plan"

    def run(self, **options: Any) -> Any:
        from pipeline.jobs.replay import check, run

        given = {
            "connection": NOBODY,
            "target": NOBODY,
            "output": Output(),
            "ledger": self.ledger,
            **options,
        }
        check({**dict.fromkeys(OPTIONS), **given})
        return run(self._spark, **given)

    def make(self, queue: str | None = BRIDGE_DMQ, **options: Any) -> Path:
        self.plan.unlink(missing_ok=True)
        self.run(
            queue=queue, plan=self.plan, **{"connection": self.graveyard.connection(), **options}
        )
        return self.plan

    def states(self) -> Counter[str]:
        rows = recorded(self.ledger / FILE, *State)
        return Counter(rows.column("state").to_pylist())


def compared(message: Message) -> tuple[object, ...]:
    headers = message.headers
    properties = {name: value for name, value in headers.properties.items() if name != DUPLICATE_ID}
    types = {name: type(value) for name, value in properties.items()}
    return (
        headers.replace(destination=Queue(""), properties=properties),
        types,
        message.body,
        message.message_id,
        message.timestamp,
    )
