"""The same as :mod:`benchmarks.bare_xa`, but by the classes in Java of the gateway's own JMS provider: as many messages as there are in one call.

``python -m benchmarks.bare_turns URL QUEUE send|receive MESSAGES AT-ONCE OCTETS`` prints messages a second. A transaction takes two calls: one for all to
the vote, one to commit. A receive that finds fewer messages than it wants is one call more. It has no reactor and no thread of its own, so it shows
what is left to gain where a link makes more calls, or waits between them. Who runs it is :mod:`benchmarks.bare`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

from benchmarks.wire import DIGITS
from bridge.providers.jms import batches, jvm, xa_octets
from bridge.providers.jms.xa_octets import Call, How
from gateway.messaging.destination import Queue
from gateway.messaging.envelope import encode_head
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.provider import Flags, Subscription, Vote, Xid

_LIBRARY = "/usr/share/activemq/lib/*"
_ENVIRONMENT = ("java.naming.factory.initial", "org.apache.activemq.jndi.ActiveMQInitialContextFactory", "java.naming.provider.url")
#: Link.XA.
_XA = 4
_CONSUMER = 1
# Calls that may bring no message before one is said to stay away: each waits some milliseconds.
_MOST_EMPTY = 2_000


class _Work:
    """A session in Java."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self._wake = bytearray(1)
        self._tags = 0

    def turn(self, asked: bytes) -> list[batches.Answer]:
        """Ask. :raises RuntimeError: something was refused."""
        question = jvm.buffer(asked or b"\0")
        if not asked:
            question.limit(0)
        answers = list(batches.answers(jvm.octets_of(self._work.turn(question, jvm.buffer(self._wake)))))
        for answer in answers:
            if isinstance(answer, batches.Ended | batches.Dropped) or (
                isinstance(answer, xa_octets.XADone) and answer.how != How.WELL
            ):
                raise RuntimeError(f"the provider refused: {answer}")
            if isinstance(answer, xa_octets.XADone) and answer.value != Vote.OK.value:
                raise RuntimeError(f"the transaction was to be prepared: {answer}")
        return answers

    def xa(self, what: Call, xid: Xid, flags: int = 0) -> bytes:
        """The question for a call of the XAResource."""
        self._tags += 1
        return xa_octets.call(self._tags, what, xid, flags)


class _Lost:
    """Nobody is told: the next call fails."""

    def lost(self, kind: int, reason: str) -> None:
        """From Java."""


def main(arguments: list[str]) -> None:
    """Run the command. :raises RuntimeError: a message stayed away or is another than was expected, or something was refused."""
    url, queue, what = arguments[:3]
    messages, at_once, octets = map(int, arguments[3:])
    directory = jvm.directory(_LIBRARY, jvm.JVMOptions())
    import jpype

    factory = directory.factory("XAConnectionFactory", [*_ENVIRONMENT, url])
    link = factory.connect(None, None, None, jpype.JProxy("stompgateway.jms.Lost", inst=_Lost()))
    work = _Work(link.session(_XA, 0))
    transaction = _sending(work, queue, octets) if what == "send" else _receiving(work, queue, octets)
    _run(work, transaction, 0, messages, at_once)
    began = perf_counter()
    _run(work, transaction, messages, 2 * messages, at_once)
    seconds = perf_counter() - began
    link.close()
    print(messages / seconds, flush=True)
    # Without a word more: threads of Java that come back into an interpreter that is ending say FATAL.
    os._exit(0)


def _run(work: _Work, transaction: Callable[[Xid, int, int], None], first: int, end: int, at_once: int) -> None:
    for begin in range(first, end, at_once):
        xid = Xid(1, b"%d.%d" % (os.getpid(), begin), b"\1")
        transaction(xid, begin, min(end, begin + at_once))
        work.turn(work.xa(Call.COMMIT, xid))


def _sending(work: _Work, queue: str, octets: int) -> Callable[[Xid, int, int], None]:
    headers = Headers(Queue(queue), persistent=True, body_type=BodyType.BYTES)
    filling = b"x" * (octets - DIGITS)

    def send(xid: Xid, first: int, end: int) -> None:
        sent = [Message(headers, filling + b"%0*d" % (DIGITS, number)) for number in range(first, end)]
        started = work.xa(Call.START, xid, Flags.NOFLAGS)
        encoded = batches.send([(encode_head(message), message.body) for message in sent])
        work.turn(b"".join([started, encoded, work.xa(Call.END, xid, Flags.SUCCESS), work.xa(Call.PREPARE, xid)]))

    return send


def _receiving(work: _Work, queue: str, octets: int) -> Callable[[Xid, int, int], None]:
    work.turn(batches.open_consumer(_CONSUMER, Subscription(Queue(queue))) + batches.switch(_CONSUMER, True))

    def receive(xid: Xid, first: int, end: int) -> None:
        asked = work.xa(Call.START, xid, Flags.NOFLAGS) + batches.credit(_CONSUMER, end - first, 0)
        keys: list[int] = []
        empty = 0
        while len(keys) < end - first:
            answers = work.turn(asked)
            arrived = [answer for answer in answers if isinstance(answer, batches.Arrived)]
            for answer in arrived:
                wanted, body = first + len(keys), bytes(answer.message.body)
                if len(body) != octets or int(body[-DIGITS:]) != wanted:
                    raise RuntimeError(
                        f"message {wanted} of {octets} octets was expected, and {len(body)} came: {body[-DIGITS:]!r}"
                    )
                keys.append(answer.key)
            asked = b""
            empty = 0 if arrived else empty + 1
            if empty > _MOST_EMPTY:
                raise RuntimeError(f"message {first + len(keys)} did not come")
        work.turn(batches.settle(_CONSUMER, keys) + work.xa(Call.END, xid, Flags.SUCCESS) + work.xa(Call.PREPARE, xid))

    return receive


if __name__ == "__main__":
    main(sys.argv[1:])
