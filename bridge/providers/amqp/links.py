"""Sessions and links of the engine.

Owns which object is told what becomes of each, their attaching and ending (sections 2.5 and 2.6), and the engine's objects, which are freed
when both sides are done with them. What is sent and received on a link is in
:mod:`bridge.providers.amqp.sender` and :mod:`bridge.providers.amqp.receiver`.

The engine's objects keep Python's alive and the other way round, in cycles that no collector sees.
So each ``owner`` is taken off at the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import proton

from bridge.providers.amqp.refusals import Refusal
from bridge.providers.amqp.wire import Wire, heard

#: Bytes of deliveries of one session that the engine keeps for their readers.
_MOST_UNREAD: Final = 1_048_576


class Channel:
    """A session of the engine.

    :param capacity: bytes that the broker may have on their way (section 2.5.6).
    """

    def __init__(self, wire: Wire, capacity: int = _MOST_UNREAD) -> None:
        self.wire: Final = wire
        self.links: dict[Link, None] = {}
        self.closing = False
        self._names = itertools.count(1)
        self.engine: Any = wire.connection.session()
        self.engine.incoming_capacity = max(capacity, _MOST_UNREAD)
        self.engine.owner = self
        self.engine.open()
        wire.wake()

    @property
    def alive(self) -> bool:
        """Whether the engine has it."""
        return self.engine is not None

    def close(self) -> None:
        """End it, and with it its links. Idempotent.

        The broker takes back what is not settled.
        """
        if not self.closing:
            self.closing = True
            for link in self.links:
                link.stop()
            self._end()

    def _end(self) -> None:
        """Have the engine end it.

        Not before the broker has begun it: the engine would not know what that answer is about.
        """
        if self.engine is not None and not self.engine.state & proton.Endpoint.REMOTE_UNINIT:
            self.engine.close()
            self.wire.wake()

    def begun(self) -> None:
        if self.closing:
            self._end()

    def ended_by_peer(self, told: Refusal) -> None:
        self.closing = True
        links, self.links = self.links, {}
        for link in links:
            link.session_ended(told)
        self.engine.close()
        self.wire.wake()
        self._free()

    def ended(self) -> None:
        links, self.links = self.links, {}
        for link in links:
            link.session_closed()
        self._free()

    def drop(self) -> None:
        """Forget it: the connection has ended."""
        self.closing = True
        for link in list(self.links):
            link.drop()
        self._free()

    def _free(self) -> None:
        if self.engine is not None:
            self.engine.owner = None
            self.engine.free()
            self.engine = None


class Link:
    """One link of a session; subclasses say of which role.

    :ivar open: the broker has attached it, and neither side has ended it.
    :ivar over: it takes and gives nothing more.
    """

    def __init__(self, channel: Channel, engine: Any) -> None:
        self.channel: Final = channel
        self.wire: Final = channel.wire
        self.open = False
        self.over = False
        self.engine = engine
        self._attaching = 0
        self._refused = False
        engine.owner = self
        channel.links[self] = None

    def attach(self) -> None:
        """Ask the broker for it."""
        self._attaching = self.wire.ask()
        self.engine.open()
        self.wire.wake()

    def close(self, detach: bool = False) -> None:
        """End it. Idempotent.

        :param detach: what it is attached to stays, such as a durable subscription.
        """
        if not self.over:
            self.stop()
            if detach:
                self.engine.detach()
            else:
                self.engine.close()
            self.wire.wake()

    def stop(self) -> None:
        """Take and give nothing more."""
        self.over, self.open = True, False
        self.wire.answered(self._attaching)

    # --- what the wire says

    def attached(self) -> None:
        # A link that is refused is attached without a terminus, and then closed with the reason
        # (section 2.6.3).
        self._refused = heard(self._without_terminus)
        if not self.over and not self._refused:
            self.wire.answered(self._attaching)
            self.open = True
            self.accepted()

    def _without_terminus(self) -> bool:
        raise NotImplementedError

    def detached_by_peer(self, told: Refusal) -> None:
        self.stop()
        self.engine.close()
        self.wire.wake()
        self._forget()
        self.refused(told)

    def detached(self) -> None:
        self._forget()
        self.gone()

    def session_ended(self, told: Refusal) -> None:
        """The broker has ended its session."""
        was_over = self.over
        self.stop()
        self._forget()
        if was_over:
            self.gone()
        else:
            self.refused(told)

    def session_closed(self) -> None:
        """The broker has confirmed the end of its session.

        The answer comes behind all that the session was sent.
        """
        self._forget()
        self.gone()

    def drop(self) -> None:
        """Forget it: its connection has ended."""
        self.stop()
        self._forget()

    def _forget(self) -> None:
        self.channel.links.pop(self, None)
        if self.engine is not None:
            self.engine.owner = None
            self.engine.free()
            self.engine = None

    # --- for subclasses

    def accepted(self) -> None:
        """The broker has attached it."""

    def refused(self, told: Refusal) -> None:
        """The broker has refused or ended it."""

    def gone(self) -> None:
        """The broker has confirmed that it is closed."""

    def flowed(self) -> None:
        """The broker has told the state of its credit."""

    def updated(self, delivery: Any) -> None:
        """Bytes of a delivery have come, or its state has changed."""


class RoundTrip(Link):
    """A sender that is attached for the sake of the answer.

    It comes behind all that the session was sent before.

    :param address: of a target that costs the broker nothing.
    :param done: called once: with None, or with why the session has ended.
    """

    def __init__(
        self, channel: Channel, name: str, address: str, done: Callable[[Refusal | None], None]
    ) -> None:
        channel.wire.produce()
        super().__init__(channel, channel.engine.sender(name))
        self._done: Callable[[Refusal | None], None] | None = done
        self.engine.source.address = name
        self.engine.target.address = address
        self.attach()

    def _without_terminus(self) -> bool:
        return False

    def accepted(self) -> None:
        self.close()
        self._answer(None)

    def refused(self, told: Refusal) -> None:
        self._answer(told)

    def _answer(self, told: Refusal | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(told)


class Probe(Link):
    """A receiver that finds a durable subscription and removes it.

    It is attached without a source; the broker answers with the subscription's, if there is one
    (section 2.6.3), and closing the link removes it (AMQP JMS mapping, section 4.1).

    :param done: called once: with None, or with why it is not removed.
    """

    def __init__(self, channel: Channel, name: str, done: Callable[[Refusal | None], None]) -> None:
        super().__init__(channel, channel.engine.receiver(name))
        self._done = done
        source = self.engine.source
        source.durability = proton.Terminus.DELIVERIES
        source.expiry_policy = proton.Terminus.EXPIRE_NEVER
        source.type = proton.Terminus.UNSPECIFIED

    def _without_terminus(self) -> bool:
        return bool(self.engine.remote_source.type == proton.Terminus.UNSPECIFIED)

    def accepted(self) -> None:
        self.close()
        self._attaching = self.wire.ask()

    def refused(self, told: Refusal) -> None:
        self._done(told)

    def gone(self) -> None:
        self.wire.answered(self._attaching)
        self._done(None)
