"""A provider's own rate: one client that only sends, or only receives.

It takes as many at once as the link.

A link cannot be faster than that. By STOMP the client is the load generator's, by JMS
``JmsRate.java``.
"""

from __future__ import annotations

import shutil
import subprocess
from time import perf_counter

from benchmarks.backlog import fill
from benchmarks.endpoint import PATIENCE, Consumer, Endpoint, Poll, Producer, Refused
from benchmarks.jms_bridge import OpenWireActiveMQ
from benchmarks.movers import Way
from benchmarks.peers import ROOT, Peer
from benchmarks.tally import Reader, Tally
from benchmarks.wire import Block, Confirm, Shape, command, frame

# Of messages that wait in a queue ActiveMQ gives 200 (its maxPageSize), and no more before some are
# acknowledged.
_MOST_UNACKNOWLEDGED = 100
# How long the client by JMS may take, in seconds.
_JMS_PATIENCE = 120.0
_TRANSACTION = "raw"


def rate(
    peer: Peer, protocol: str, way: Way, messages: int, batch: int, body: int, name: str
) -> float:
    """Return messages a second that one client sends or receives.

    All are persistent. ``OUT`` sends; ``IN`` receives from a queue that is filled before.

    :param protocol: ``stomp`` or ``jms``.
    :param batch: messages that are sent in one transaction, or acknowledged at once as far as the
        provider gives that many; 1: each by itself.
    :param name: of a queue not used before; it is empty, or given up, afterwards.
    :raises Refused: the provider does not.
    """
    if way is Way.IN:
        batch = min(batch, _MOST_UNACKNOWLEDGED)
        # The client by JMS receives some more, before those that are timed.
        fill(peer, name, body, True, messages if protocol == "stomp" else 2 * messages, 60.0)
    if protocol == "jms":
        assert isinstance(peer, OpenWireActiveMQ)
        return _jms(peer, name, "send" if way is Way.OUT else "receive", messages, batch, body)
    return (
        _sent(peer, name, messages, batch, body)
        if way is Way.OUT
        else _received(peer, name, messages, batch)
    )


def _jms(
    peer: OpenWireActiveMQ, name: str, what: str, messages: int, batch: int, body: int
) -> float:
    java = shutil.which("java")
    if java is None:
        raise Refused("there is no java")
    program = [java, "-cp", "/usr/share/activemq/lib/*", str(ROOT / "benchmarks" / "JmsRate.java")]
    arguments = [peer.url, name, what, str(messages), str(batch), str(body)]
    try:
        done = subprocess.run(
            [*program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=_JMS_PATIENCE,
        )
    except subprocess.TimeoutExpired as error:
        raise Refused(
            f"{peer.name}: a JMS client did not {what} {messages} messages within {_JMS_PATIENCE:g} s"
        ) from error
    if done.returncode:
        raise Refused(f"{peer.name}: a JMS client could not {what}: {done.stderr[:1500]}")
    return float(done.stdout)


def _sent(peer: Peer, name: str, messages: int, batch: int, body: int) -> float:
    """Send by STOMP: a receipt each, or one for each COMMIT.

    The next goes when it has come.
    """
    destination = peer.dialect.sends_to(f"/queue/{name}")
    with Poll() as poll:
        if batch == 1:
            producer = Producer(poll, peer, Shape(destination, 0, body, True, Confirm.EACH), 1, 1)
            began = perf_counter()
            while producer.sent < messages or producer.outstanding:
                if producer.sent < messages and producer.ready():
                    producer.produce()
                _turn(poll, peer, began, messages)
            seconds = perf_counter() - began
            producer.disconnect()
            return messages / seconds
        sender = _Sender(
            poll, peer, Shape(destination, 0, body, True, headers=(("transaction", _TRANSACTION),))
        )
        began = perf_counter()
        for _ in range(-(-messages // batch)):
            sender.transaction(batch)
            while sender.waiting:
                _turn(poll, peer, began, messages)
        seconds = perf_counter() - began
        sender.disconnect()
        return -(-messages // batch) * batch / seconds


def _received(peer: Peer, name: str, messages: int, batch: int) -> float:
    """By STOMP: an ACK for each message, or for each 50, without receipts."""
    tally = Tally(1)
    with Poll() as poll:
        began = perf_counter()
        consumer = Consumer(
            poll,
            peer,
            f"/queue/{name}",
            "client-individual" if batch == 1 else "client",
            tally,
            Reader(1),
        )
        while tally.distinct < messages:
            _turn(poll, peer, began, messages)
        consumer.disconnect()
        return tally.distinct / (perf_counter() - began)


def _turn(poll: Poll, peer: Peer, began: float, messages: int) -> None:
    poll.turn(0.05)
    if perf_counter() - began > PATIENCE + messages / 50:
        raise Refused(
            f"{peer.name} alone did not take or give {messages} messages within {PATIENCE + messages / 50:g} s"
        )


class _Sender(Endpoint):
    """Sends transactions in turn. :param shape: with header ``transaction``."""

    def __init__(self, poll: Poll, peer: Peer, shape: Shape) -> None:
        super().__init__(poll, peer)
        self._block = Block(shape)
        #: Whether a receipt is owed.
        self.waiting = False

    def transaction(self, messages: int) -> None:
        """Send one of this many messages, a multiple of 100."""
        octets = bytearray(frame("BEGIN", {"transaction": _TRANSACTION}))
        for number in range(messages // 100):
            octets += self._block.fill(number)
        octets += frame("COMMIT", {"transaction": _TRANSACTION, "receipt": "committed-r"})
        self.waiting = True
        self.write(bytes(octets))

    def frames(self, arrived: list[bytes]) -> None:
        """The receipt."""
        for octets in arrived:
            self._refuse_error(octets)
            self.waiting = self.waiting and command(octets) != b"RECEIPT"
