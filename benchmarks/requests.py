"""Request and reply through a queue and temporary reply destinations.

A closed loop: each client waits for its reply before it asks again.
"""

from __future__ import annotations

import gc
from time import perf_counter

from benchmarks.endpoint import Endpoint, Poll, Refused
from benchmarks.measurement import Measurement, percentiles
from benchmarks.meter import Meter
from benchmarks.peers import Peer
from benchmarks.tally import Reader, Tally
from benchmarks.wire import DIGITS, Block, Shape, command, frame, header, numbers

#: How long a client waits for the replies still owed when the time is up, in seconds.
_SILENCE = 3.0


class Responder(Endpoint):
    """Answers each request with its body, at the destination of ``reply-to``."""

    def __init__(self, poll: Poll, peer: Peer, destination: str, body: int) -> None:
        super().__init__(poll, peer)
        self._body = body
        headers = {
            "id": "0",
            "destination": destination,
            "ack": "auto",
            "receipt": "subscribed-r",
            **dict(peer.dialect.queue_headers),
        }
        self._exchange(frame("SUBSCRIBE", headers), b"RECEIPT", b"subscribed-r")
        self._deliver_early()

    def frames(self, arrived: list[bytes]) -> None:
        """Requests."""
        replies = []
        for octets in arrived:
            if command(octets) != b"MESSAGE":
                self._refuse_error(octets)
                continue
            # Header octets go back as they came, still escaped.
            reply_to, correlation = header(octets, b"reply-to"), header(octets, b"correlation-id")
            if reply_to is None or correlation is None:
                raise Refused(
                    f"{self._name} delivered a request without reply-to or correlation-id: {octets[:300]!r}"
                )
            head = (
                b"SEND\ndestination:%s\npersistent:false\ncorrelation-id:%s\ncontent-length:%d\n\n"
            )
            replies.append(
                head % (reply_to, correlation, self._body) + octets[-self._body :] + b"\0"
            )
        if replies:
            self.write(b"".join(replies))


class Requester(Endpoint):
    """Sends a request when it has the reply to the last one.

    :param number: of this client among all, from 0.
    """

    def __init__(
        self,
        poll: Poll,
        peer: Peer,
        destination: str,
        body: int,
        number: int,
        tally: Tally,
        reader: Reader,
    ) -> None:
        super().__init__(poll, peer)
        self._tally = tally
        self._reader = reader
        reply_to = f"/temp-queue/replies{number}"
        shape = Shape(
            peer.dialect.sends_to(destination),
            number,
            body,
            varying=True,
            headers=(("reply-to", reply_to),),
        )
        self._block = Block(shape, 1)
        self._asked_at = 0.0
        #: Whether a reply is owed.
        self.waiting = False
        self.asking = True
        self.sent = 0
        self.waits: list[float] = []
        if peer.dialect.subscribes_to_replies:
            headers = {"id": "0", "destination": reply_to, "ack": "auto", "receipt": "subscribed-r"}
            self._exchange(frame("SUBSCRIBE", headers), b"RECEIPT", b"subscribed-r")

    def ask(self) -> None:
        """Send the next request."""
        octets = self._block.fill(self.sent)
        self.sent += 1
        self.waiting = True
        self._asked_at = perf_counter()
        self.write(octets)

    def frames(self, arrived: list[bytes]) -> None:
        """Replies."""
        now = perf_counter()
        replies = [octets for octets in arrived if command(octets) == b"MESSAGE"]
        for octets in arrived:
            self._refuse_error(octets)
        if not replies:
            return
        found = numbers(replies)
        self._tally.add(self._reader, found)
        if self.waiting and found[-1] % 10 ** (DIGITS - 2) == self.sent - 1:
            self.waits.append(now - self._asked_at)
            self.waiting = False
            if self.asking:
                self.ask()


def run(
    peer: Peer, clients: int, body: int, name: str, warm_up: float, seconds: float
) -> Measurement:
    """Measure round trips, non-persistent, request and reply of the same size.

    :param name: of the request queue, not used before.
    :returns: ``value`` is p99 in milliseconds; ``extra`` has the replies a second of all clients.
    :raises Refused: when the server refuses or stops.
    """
    gc.collect()
    gc.disable()
    try:
        with Poll() as poll:
            return _run(poll, peer, clients, body, f"/queue/{name}", warm_up, seconds)
    finally:
        gc.enable()


def _run(
    poll: Poll,
    peer: Peer,
    clients: int,
    body: int,
    destination: str,
    warm_up: float,
    seconds: float,
) -> Measurement:
    tally = Tally(clients)
    responder = Responder(poll, peer, destination, body)
    requesters = [
        Requester(poll, peer, destination, body, number, tally, Reader(clients))
        for number in range(clients)
    ]

    def turn_until(end: float) -> None:
        while (now := perf_counter()) < end:
            poll.turn(min(end - now, 0.05))

    for requester in requesters:
        requester.ask()
    turn_until(perf_counter() + warm_up)
    for requester in requesters:
        requester.waits.clear()
    meter = Meter(peer.tree)
    turn_until(meter.began + seconds)
    while (
        not any(requester.waits for requester in requesters)
        and perf_counter() - meter.began < seconds + _SILENCE
    ):
        # As the load's: a short measurement on a busy machine.
        turn_until(perf_counter() + 0.05)
    cost = meter.stop()
    waits = [wait for requester in requesters for wait in requester.waits]
    for requester in requesters:
        requester.asking = False
    deadline = perf_counter() + _SILENCE
    while any(requester.waiting for requester in requesters) and perf_counter() < deadline:
        poll.turn(0.05)
    for requester in requesters:
        requester.disconnect()
    responder.disconnect()
    timed = percentiles(waits)
    if timed is None:
        raise Refused(f"{peer.name} carried no reply in {seconds:g} s")
    sent = [requester.sent for requester in requesters]
    return Measurement(
        value=timed[1],
        outcome=tally.outcome(sent),
        messages=sum(sent),
        percentiles=timed,
        server_cpu=cost.server / len(waits) * 100_000,
        server_peak=cost.peak,
        generator=cost.generator,
        others=cost.others,
        extra={"replies/s": len(waits) / cost.seconds},
    )
