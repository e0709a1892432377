"""Dead messages that were sent again are taken from their queue.

Owns how exactly those are found among whatever else is there: by a selector on their ids, and by
when they died, since one that died twice has the same id. Runs in Spark's Python workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from gateway.messaging import dead
from gateway.stomp.wire import Frame
from pipeline.datasource.client import Client
from pipeline.datasource.options import Options
from pipeline.datasource.places import Place

#: What :func:`removing` takes and gives: ``died`` is in epoch milliseconds, 0 where the message
#: does not say.
DEAD: Final = "message_id string, died bigint"
_SCHEMA: Final = pa.schema([("message_id", pa.string()), ("died", pa.int64())])
#: Characters of a selector, of 8,192 that the gateway allows.
_LONGEST: Final = 7_500
#: Seconds without a message after which those that did not come are taken to be elsewhere.
_QUIET: Final = 2.0

Name = tuple[str, int]


def removing(
    options: Options, queue: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: remove rows of :data:`DEAD`; yield the confirmed.

    What is not there, or with another consumer, is left out.

    :param queue: ``queue:NAME``.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            wanted = [(row["message_id"], row["died"]) for row in batch.to_pylist()]
            gone = [
                name
                for part in _parts(wanted)
                for name in remove(options, Place.parse(queue), part)
            ]
            yield pa.RecordBatch.from_pylist(
                [{"message_id": name, "died": died} for name, died in gone], schema=_SCHEMA
            )

    return work


def remove(options: Options, queue: Place, wanted: list[Name]) -> list[Name]:
    """Take these messages from the queue.

    :returns: those that were there; the broker has confirmed their removal.

    :param wanted: with ids whose selector is no longer than a broker allows.
    """
    names = sorted({name for name, _ in wanted})
    chosen = replace(
        options,
        selector=f"JMSMessageID IN ({', '.join(map(_quoted, names))})",
        ack="client-individual",
        envelope=True,
    )
    missing = set(wanted)
    found: list[tuple[Name, Frame]] = []
    with Client(chosen).open() as client:
        # Those with the same ids that died another time come as well, and go back.
        client.subscribe(queue, 10 * len(wanted) + 100)
        while missing:
            frames = client.receive(time.monotonic() + _QUIET)
            if not frames:
                break
            for frame in frames:
                name = _name(frame.head.headers)
                if name in missing:
                    missing.discard(name)
                    found.append((name, frame))
        if found:
            client.acknowledge([frame for _, frame in found])
    return [name for name, _ in found]


def _parts(wanted: list[Name]) -> Iterator[list[Name]]:
    part: list[Name] = []
    length = 0
    for name in wanted:
        if part and length + len(_quoted(name[0])) + 2 > _LONGEST:
            yield part
            part, length = [], 0
        part.append(name)
        length += len(_quoted(name[0])) + 2
    if part:
        yield part


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(headers: Mapping[str, str]) -> Name:
    died: Any = headers.get(dead.BRIDGE_TIMESTAMP) or headers.get(dead.UNDELIVERED_TIMESTAMP) or "0"
    return headers.get("message-id", ""), int(died) if died.isascii() and died.isdecimal() else 0
