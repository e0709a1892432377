"""A link that sends messages, or requests to a coordinator.

Section 2.6.7, and 4.2 for the transaction coordinator. Owns which transfers have no outcome yet. Which message is sent when is decided by the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import proton

from bridge.providers.amqp.links import Channel, Link
from bridge.providers.amqp.refusals import Refusal
from bridge.providers.amqp.wire import heard

#: Called once with the outcome of a transfer: None when it is accepted, else why it is not; and the
#: id of the transaction that it has declared, if it has.
Outcome: TypeAlias = Callable[[Refusal | None, bytes], None]

#: The states of a transfer that declares a transaction, and of a delivery within one (sections
#: 4.5.5 and 4.5.8).
DECLARED: Final = 0x33
TRANSACTIONAL: Final = 0x34
#: Outcomes of a transactional state that are no refusals.
_ACCEPTED: Final = (None, 0x24, "amqp:accepted:list")
#: Bytes that the engine may have unsent for one session.
_MOST_UNSENT: Final = 262_144


def node(address: str, capability: str, durable: bool) -> Callable[[Any], None]:
    """Return what makes a target of a node.

    :param capability: ``queue``, ``topic`` or "".
    :param durable: if the broker makes the node, it is durable.
    """

    def fill(target: Any) -> None:
        target.address = address
        if durable:
            target.durability = proton.Terminus.DELIVERIES
        if capability:
            target.capabilities.put_object(proton.symbol(capability))

    return fill


def coordinator(target: Any) -> None:
    """Make a target of the transaction coordinator (section 4.2)."""
    target.type = proton.Terminus.COORDINATOR
    target.capabilities.put_object(proton.symbol("amqp:local-transactions"))


class SenderLink(Link):
    """A sender.

    :param fill: makes its target, of :func:`node` or :func:`coordinator`.
    :param ready: called when it can take more.
    :param failed: called once if the broker refuses or ends it.
    """

    def __init__(
        self,
        channel: Channel,
        name: str,
        fill: Callable[[Any], None],
        ready: Callable[[], None],
        failed: Callable[[Refusal], None],
    ) -> None:
        super().__init__(channel, channel.engine.sender(name))
        self._ready = ready
        self._failed = failed
        self._tags = 0
        #: What is told the outcome of each transfer, by its tag.
        self._outcomes: dict[int, tuple[int, Outcome]] = {}
        engine = self.engine
        engine.snd_settle_mode = proton.Link.SND_UNSETTLED
        engine.source.address = name
        fill(engine.target)
        self.attach()

    @property
    def writable(self) -> bool:
        """Whether it may send now."""
        return (
            self.open
            and self.engine.credit > 0
            and self.channel.engine.outgoing_bytes < _MOST_UNSENT
        )

    @property
    def idle(self) -> bool:
        """Whether all that it has sent has an outcome."""
        return not self._outcomes

    def send(self, data: bytes, outcome: Outcome, transaction: bytes | None = None) -> None:
        """Send one message.

        :param data: its sections.
        :param transaction: that it is part of.
        """
        self._tags += 1
        delivery = self.engine.delivery(self._tags.to_bytes(8, "big"))
        delivery.number = self._tags
        self._outcomes[self._tags] = self.wire.ask(), outcome
        self.engine.stream(data)
        if transaction is not None:
            delivery.local.data = [transaction]
            delivery.update(TRANSACTIONAL)
        self.engine.advance()
        self.wire.wake(len(data))

    def _without_terminus(self) -> bool:
        return bool(self.engine.remote_target.type == proton.Terminus.UNSPECIFIED)

    def accepted(self) -> None:
        self._ready()

    def flowed(self) -> None:
        if self.open:
            self._ready()

    def updated(self, delivery: Any) -> None:
        state = delivery.remote_state
        if state == proton.Delivery.RECEIVED or (not state and not delivery.settled):
            return
        told, declared = heard(lambda: _outcome(delivery, state))
        number, outcome = self._outcomes.pop(delivery.number, (0, None))
        delivery.settle()
        self.wire.wake()
        if outcome is not None:
            self.wire.answered(number)
            outcome(told, declared)
        if self.open:
            self._ready()

    def refused(self, told: Refusal) -> None:
        self._fail(told)
        self._failed(told)

    def gone(self) -> None:
        self._fail(Refusal(text="the link was closed"))

    def _fail(self, told: Refusal) -> None:
        outcomes, self._outcomes = self._outcomes, {}
        for number, outcome in outcomes.values():
            self.wire.answered(number)
            outcome(told, b"")


def _outcome(delivery: Any, state: Any) -> tuple[Refusal | None, bytes]:
    """Read the state of a delivery (section 3.4)."""
    if state == proton.Delivery.ACCEPTED:
        return None, b""
    if state == DECLARED:
        return None, bytes(delivery.remote.data[0])
    if state == TRANSACTIONAL:
        data = delivery.remote.data
        inner = data[1] if isinstance(data, list) and len(data) > 1 else None
        code = getattr(inner, "descriptor", None)
        if code in _ACCEPTED:
            return None, b""
        return Refusal(text=f"it was not accepted in the transaction: {inner}"), b""
    if state == proton.Delivery.REJECTED:
        return Refusal.of(delivery.remote.condition), b""
    if state == proton.Delivery.RELEASED:
        return Refusal(text="the broker has released it, as nothing takes it there"), b""
    if state == proton.Delivery.MODIFIED:
        return Refusal(text="the broker has given it back"), b""
    return Refusal(text="the broker has settled it without an outcome"), b""
