"""A link on which messages are received (section 2.6.7).

Owns the credit of the link, the parts of the message that is arriving, and the deliveries of which
the broker has not confirmed the outcome.

A disposition with an outcome is sent unsettled, and the broker settles it: that is the confirmation
for which completions wait (section 2.6.12). The link asks for ``rcv-settle-mode`` *second*, which
is this protocol, except from brokers that refuse it. Where a broker does not confirm, outcomes are
sent settled, and a link that is attached behind them makes the round trip: a session is ordered
(section 2.5.6), so the broker has handled them when it answers. The engine has no flow frame with
``echo``, which would be cheaper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import proton

from bridge.providers.amqp.links import Channel, Link
from bridge.providers.amqp.refusals import Refusal
from bridge.providers.amqp.sender import TRANSACTIONAL
from bridge.providers.amqp.wire import heard

ACCEPTED: Final[Any] = proton.Delivery.ACCEPTED
REJECTED: Final[Any] = proton.Delivery.REJECTED
RELEASED: Final[Any] = proton.Delivery.RELEASED
#: With ``delivery-failed``: it counts as an attempt (section 3.4.5).
FAILED: Final[Any] = proton.Delivery.MODIFIED

#: Called once: with None when the broker has confirmed an outcome, else with why it will not.
Confirmed = Callable[[Refusal | None], None]


class Source(Protocol):
    """What makes the source of a link."""

    def __call__(self, source: Any, /) -> None: ...


class LinkReader(Protocol):
    """The consumer of a link."""

    @property
    def full(self) -> bool:
        """Whether as much waits as should, so that nothing is read."""

    def arrived(self, data: bytes, size: int, delivery: Any) -> None:
        """A message has arrived.

        :param data: its sections; empty if it is larger than allowed.
        :param size: in bytes.
        """

    def drained(self, left: bool) -> None:
        """The link has no credit any more.

        :param left: the broker gave some back, as it has no message.
        """

    def ready(self) -> None:
        """The broker has attached the link."""

    def refused(self, told: Refusal) -> None:
        """The broker has refused or ended it."""

    def gone(self) -> None:
        """It is closed."""


class ReceiverLink(Link):
    """A receiver.

    Asks for nothing until :meth:`begin`.

    :param settled: the broker settles what it sends at once, as for a browser.
    :param second: ask for rcv-settle-mode second.
    :param confirms: the broker answers unsettled outcomes.
    :param drains: the broker knows drain.
    :param most: bytes that a message may have.

    :ivar begun: the broker was asked for it.
    """

    def __init__(
        self,
        channel: Channel,
        name: str,
        reader: LinkReader,
        *,
        settled: bool,
        second: bool,
        confirms: bool,
        drains: bool,
        most: int,
    ) -> None:
        super().__init__(channel, channel.engine.receiver(name))
        self._reader = reader
        self._confirms = confirms
        self._drains = drains
        self._most = most
        self._parts: list[bytes] = []
        self._size = 0
        #: What waits for the settlement of each delivery, by its number.
        self._confirmations: dict[int, tuple[int, Confirmed]] = {}
        self._numbers = 0
        engine = self.engine
        engine.snd_settle_mode = proton.Link.SND_SETTLED if settled else proton.Link.SND_UNSETTLED
        second = second and confirms and not settled
        engine.rcv_settle_mode = proton.Link.RCV_SECOND if second else proton.Link.RCV_FIRST
        engine.target.address = name
        self.begun = False

    def begin(self, fill: Source) -> None:
        """Attach it.

        :param fill: makes its source.
        """
        self.begun = True
        fill(self.engine.source)
        self.attach()

    # --- credit

    @property
    def credit(self) -> int:
        """How many messages the broker may send."""
        # The engine counts those that were not read as well.
        return 0 if self.engine is None else max(0, self.engine.credit - self.engine.queued)

    @property
    def unread(self) -> int:
        """How many messages the engine has that were not read."""
        return 0 if self.engine is None else max(0, self.engine.queued)

    @property
    def draining(self) -> bool:
        """Whether the broker was told to use its credit up or give it back."""
        return self.engine is not None and bool(self.engine.drain_mode)

    def fit(self, wanted: int) -> None:
        """Let the broker send this many in all; never takes credit back."""
        if self.open and wanted > self.credit:
            self.engine.drain_mode = False
            self.engine.flow(wanted - self.credit)
            self.wire.wake()

    def drain(self, more: int = 0) -> None:
        """Have the broker send what it has, and give other credit back."""
        if not self.open:
            return
        if not self._drains and self.credit:
            self.take_back()
        elif more or (self.credit and not self.draining):
            self.engine.drain(more)
            self.wire.wake()

    def take_back(self) -> None:
        """Take credit back and wait for no answer.

        What is on its way still arrives. The broker knows it before outcomes that are given from
        here on, and so does not send here what they give back to it.
        """
        if self.open and self.credit:
            self.engine.drain_mode = False
            self.engine.flow(-self.credit)
            self.wire.produce()
            self.wire.wake()

    def flowed(self) -> None:
        if self.open and self.draining and not self.credit:
            left = self.engine.drained() > 0
            self._reader.drained(left)

    # --- messages

    def updated(self, delivery: Any) -> None:
        number = getattr(delivery, "number", 0)
        if number in self._confirmations:
            if delivery.settled:
                asked, confirmed = self._confirmations.pop(number)
                self.wire.answered(asked)
                delivery.settle()
                confirmed(None)
        elif not number:
            self.read()

    def read(self) -> None:
        """Read what has arrived, unless its reader is full."""
        while self.engine is not None and not self._reader.full:
            delivery = self.engine.current
            if delivery is None:
                return
            if delivery.aborted:
                self.engine.advance()
                delivery.settle()
                self._clear()
                continue
            if delivery.pending:
                self._take(delivery.pending)
            if delivery.partial:
                return
            self.engine.advance()
            self._numbers += 1
            delivery.number = self._numbers
            data, size = b"".join(self._parts), self._size
            self._clear()
            self.wire.wake()
            self._reader.arrived(data, size, delivery)

    def _take(self, pending: int) -> None:
        octets = bytes(heard(lambda: self.engine.recv(pending)))
        self._size += len(octets)
        if self._size > self._most:
            self._parts.clear()
        else:
            self._parts.append(octets)

    def _clear(self) -> None:
        self._parts, self._size = [], 0

    @property
    def alive(self) -> bool:
        """Whether deliveries may still be given an outcome."""
        return self.engine is not None

    def settle(self, delivery: Any, state: Any, confirmed: Confirmed) -> bool:
        """Give a delivery its outcome.

        :param confirmed: what waits for the broker's confirmation.
        :returns: whether there will be one.
        """
        delivery.local.data = None
        if state == FAILED:
            delivery.local.failed = True
        delivery.update(state)
        self.wire.wake()
        if not self._confirms or delivery.settled:
            delivery.settle()
            return False
        self._confirmations[delivery.number] = self.wire.ask(), confirmed
        return True

    def settle_within(self, delivery: Any, transaction: bytes, state: int) -> None:
        """Give a delivery its outcome within a transaction (section 4.5.4).

        It stays unsettled until the transaction is over.

        :param state: the code of the outcome.
        """
        delivery.local.data = [transaction, proton.Described(proton.ulong(state), [])]
        delivery.update(TRANSACTIONAL)
        self.wire.wake()

    def forget(self, delivery: Any) -> None:
        """Settle a delivery whose outcome the broker knows."""
        if self.engine is not None:
            delivery.settle()
            self.wire.wake()

    # --- the end

    def _without_terminus(self) -> bool:
        return bool(self.engine.remote_source.type == proton.Terminus.UNSPECIFIED)

    def accepted(self) -> None:
        self._reader.ready()

    def refused(self, told: Refusal) -> None:
        self._fail(told)
        self._reader.refused(told)

    def session_closed(self) -> None:
        confirmations, self._confirmations = self._confirmations, {}
        for asked, confirmed in confirmations.values():
            self.wire.answered(asked)
            confirmed(None)
        super().session_closed()

    def gone(self) -> None:
        self._fail(Refusal(text="its link was closed, and the broker gives it to others"))
        self._reader.gone()

    def _fail(self, told: Refusal) -> None:
        confirmations, self._confirmations = self._confirmations, {}
        for asked, confirmed in confirmations.values():
            self.wire.answered(asked)
            confirmed(told)
