"""The journal's format, for writers and readers.

This is the one place that defines it.

Owns names, types and versions. Opens no file.

Files
=====

A journal is a folder of *segments*. A segment is a text file in UTF-8 of lines that each end with a
line feed; each line is one JSON object. It is called ``RUN-NUMBER.jsonl``: the run of the gateway
that wrote it (:func:`run_name`), and its number within the run from 1 on in ten digits. It appears
under that name whole, by a rename, and is never changed afterwards, until it is removed when it is
too old. What is still being written is called ``RUN-NUMBER.jsonl.open``; readers must not
look at it. One that a crash has left is completed, and renamed, at the next start; a line that was
cut short by the crash is not in it.

Lines
=====

A line tells of one or several *steps* that one or several *messages* took at the same moment at the
same place. Its fields are :data:`FIELDS`; a field that says nothing is left out. ``run`` and
``line`` together name a line for ever, so a copy of a line is known as one. An *event* is one step
of one message; ``run``, ``line``, the step and the place of the message in the line name it.

The messages of a line are named in one of two ways. ``ids`` has their JMSMessageIDs. Or ``prefix``
and ``runs`` have them: each of ``runs`` is an arithmetic progression ``[first, count, step]``, and
an id is the prefix and the number, in decimal: so a thousand messages of one producer are three
numbers. Where a field has a value for each message, it is an array in the same order; where all
messages have the same one, it is in the field of the singular.

A run that has not ended in order, or has lost its last lines, has an *end line*, which the next start
writes as the segment :data:`END_SEGMENT`: its only step is :data:`RUN_ENDED`, it tells of no message,
and its number is the one after the last line that was taken. So lines that are lost at the end of a
run are a gap like others. ``reason`` is ``killed`` or ``stopped``, ``comment`` says what is known to be
missing.

Versions
========

``v`` is the version of the line. A reader must refuse a line with a version that it does not know,
by name; within a version fields and steps may be added, and a reader skips those it does not know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

VERSION: Final = 1

#: How the name of a whole segment ends, and that of one that is being written.
SEGMENT: Final = ".jsonl"
OPEN: Final = ".jsonl.open"

#: The step of an end line, which is no step of a message.
RUN_ENDED: Final = "run ended"
#: The number of the segment with an end line, behind all others.
END_SEGMENT: Final = 9_999_999_999

#: A name among ``headers``: Base64 of what :func:`gateway.messaging.envelope.encode_head` makes of
#: the message, which has all headers with their types.
HEAD: Final = "stomp-gateway-head"

_NAME: Final = re.compile(r"(?P<run>.+)-(?P<number>\d{10})\.jsonl")


class Step(StrEnum):
    """A step of a message's journey. The values are those of ``steps``."""

    # At the embedded broker.
    #: A client, or a link, has sent it, and the broker has accepted it.
    PRODUCED = "produced"
    #: It is in the store, durably.
    STORED = "stored"
    #: Its producer was told that it is safe (a RECEIPT), or a transaction with it was committed.
    CONFIRMED = "confirmed"
    #: A queue has chosen a consumer for it, or a subscription of its topic has accepted it.
    #: ``selector`` is the selector that it matched. Or a queue of its virtual topic has a copy,
    #: of which ``target_ids`` has the id, and whose journey is its own.
    ROUTED = "routed"
    #: It was handed to a consumer for the first time.
    DELIVERED = "delivered"
    #: It was handed to a consumer again; ``attempts`` has the number of the delivery attempt.
    REDELIVERED = "redelivered"
    #: A consumer gave it back: by a NACK, by a rollback, or by going away.
    RETURNED = "returned"
    #: A consumer has acknowledged it; with acknowledgement ``auto``: it was written to the
    #: consumer.
    ACKNOWLEDGED = "acknowledged"
    #: The acknowledgement is safe, and its consumer was told so (a RECEIPT), or its transaction is
    #: committed.
    ACKNOWLEDGEMENT_CONFIRMED = "acknowledgement confirmed"
    #: It is no longer there: no other consumer is owed it. Of a topic: this subscription is not.
    DELETED = "deleted"
    #: Its time to live was over.
    EXPIRED = "expired"
    #: It was given up. ``reason`` and ``comment`` say why.
    DEAD = "dead"

    # On a link.
    #: It came from the link's source.
    RECEIVED = "received"
    #: A transformer had it, or it was sent elsewhere than to the link's target.
    TRANSFORMED = "transformed"
    #: A transformer wanted it to go nowhere: it is consumed.
    NOT_TRANSFERRED = "not transferred"
    #: It was handed to the link's target.
    SENT = "sent"
    #: The target has it, durably as far as the target is durable.
    ARRIVED = "arrived"
    #: The source was told that it may forget it, and has. With :data:`ARRIVED`, of a transacted
    #: link: both at once, by its commit.
    SETTLED = "settled"
    #: What had been sent of it was taken back, or never took effect; the source gives it out again.
    ROLLED_BACK = "rolled back"
    #: It was given up by the link. ``reason`` and ``comment`` say why.
    BURIED = "buried"


#: The steps that happen at the embedded broker; the others happen on links.
BROKER_STEPS: Final = frozenset(
    (
        Step.PRODUCED,
        Step.STORED,
        Step.CONFIRMED,
        Step.ROUTED,
        Step.DELIVERED,
        Step.REDELIVERED,
        Step.RETURNED,
        Step.ACKNOWLEDGED,
        Step.ACKNOWLEDGEMENT_CONFIRMED,
        Step.DELETED,
        Step.EXPIRED,
        Step.DEAD,
    )
)
LINK_STEPS: Final = frozenset(Step) - BROKER_STEPS
#: Those of level ``dead``.
DEAD_STEPS: Final = frozenset((Step.EXPIRED, Step.DEAD, Step.BURIED))
#: What ``reason`` may be with steps at the embedded broker. What has expired, or is dead, has the
#: reason of the dead message.
REASONS: Final = {
    Step.RETURNED: ("rejected", "unsettled"),
    Step.DELETED: (
        "unsubscribed",
        "copied",
        "removed",
        "moved",
        "replayed",
        "replaced",
        "refused",
    ),
}


class Level(Enum):
    """How much is written: ``imq.journal.level``."""

    OFF = "off"
    #: What dies: :data:`DEAD_STEPS`.
    DEAD = "dead"
    #: That, and every step on links.
    LINKS = "links"
    #: That, and every step at the embedded broker.
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a line.

    :param name: its name in the JSON object.
    :param type: in the words of Spark SQL, so that a reader needs no table of its own: ``string``,
        ``int``, ``bigint``, ``array<string>`` and so on.
    :param doc: what it says.
    :param since: the first version that has it.
    """

    name: str
    type: str
    doc: str
    since: int = 1


FIELDS: Final = (
    Field("v", "int", "the version of the line"),
    Field("run", "string", "the run of the gateway that wrote it"),
    Field(
        "line",
        "bigint",
        "its number within the run, from 1, rising with each line; a gap is a line that was lost",
    ),
    Field(
        "time",
        "bigint",
        "when it happened, in microseconds since 1970-01-01 UTC, by the clock of the gateway",
    ),
    Field("instance", "string", "the gateway's instance"),
    Field(
        "steps", "array<string>", "the steps, in order; each of them for each message of the line"
    ),
    Field("prefix", "string", "with runs: what all ids begin with"),
    Field(
        "runs",
        "array<array<bigint>>",
        "with prefix: the numbers that the ids end with, as [first, count, step]",
    ),
    Field("ids", "array<string>", "else: the JMSMessageIDs"),
    Field(
        "destination",
        "string",
        "queue:NAME or topic:NAME: where the step happened; on a link: the destination at that side",
    ),
    Field(
        "provider",
        "string",
        "on a link: the provider of that side, as the link's configuration names it",
    ),
    Field(
        "connection", "bigint", "the number of the client's connection, as imqcmd list cxn shows it"
    ),
    Field(
        "subscription",
        "string",
        "the id of the client's subscription, or the name of a durable one",
    ),
    Field("selector", "string", "with routed: the selector that the messages matched"),
    Field("user", "string", "who the client is"),
    Field("link", "string", "BRIDGE/LINK"),
    Field("size", "bigint", "octets of each body, where all are of one size"),
    Field("sizes", "array<bigint>", "octets of each body"),
    Field(
        "attempts",
        "array<int>",
        "how often each was delivered, this time included, where that is more than once",
    ),
    Field(
        "reason",
        "string",
        "why it is dead, or was returned or rolled back: a word; with arrived: 'duplicate id' where the target keeps one of several with one id",
    ),
    Field("comment", "string", "the same: a sentence"),
    Field(
        "lost", "bigint", "with the end line of a run: lines before it that are known to be lost"
    ),
    Field(
        "transfers",
        "array<bigint>",
        "on a link: the number of each message's transfer, which with link and run names it",
    ),
    Field(
        "bodies_hash",
        "array<string>",
        "on a link: BLAKE2b of each body, 16 octets in hexadecimal; as received or as sent, as the step says",
    ),
    Field(
        "headers_hash",
        "array<string>",
        "the same of the headers that a link is to keep, as gateway.messaging.digest has them",
    ),
    Field(
        "target_ids",
        "array<string>",
        "with arrived: the ids of the messages at the target, where it says them; else empty texts. With routed: the ids of the copies that a queue of a virtual topic has",
    ),
    Field(
        "headers",
        "array<map<string,string>>",
        "where imq.journal.headers is true: the headers, as text",
    ),
    Field("bodies", "array<string>", "where imq.journal.bodies is true: the bodies in Base64"),
    Field("body_types", "array<string>", "with bodies: TEXT, BYTES, MAP, STREAM, OBJECT, MESSAGE"),
    Field(
        "timestamps",
        "array<bigint>",
        "with produced and received: JMSTimestamp in milliseconds since 1970-01-01 UTC, where known; else 0",
    ),
    Field("timestamp", "bigint", "the same, where all messages have the same one"),
)


def run_name(store_id: str, started_us: int) -> str:
    """Return the name of a run of the gateway: whose it is, and since when.

    Runs of one gateway sort by their age.

    :param store_id: what the broker's message ids have in them.
    :param started_us: microseconds since the epoch.
    """
    return f"{store_id}-{started_us:017d}"


def segment_name(run: str, number: int) -> str:
    """The name of a whole segment."""
    return f"{run}-{number:010d}{SEGMENT}"


def segment_of(name: str) -> tuple[str, int] | None:
    """Return the run and the number of the segment with this file name.

    None where it is not that of a whole segment.
    """
    found = _NAME.fullmatch(name)
    return None if found is None else (found["run"], int(found["number"]))
