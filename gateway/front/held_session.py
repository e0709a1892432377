"""Sessions and consumers that may outlive a loss of their broker.

Owns what was asked and is not answered, which another connection is asked again, and which
deliveries the broker has taken back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from gateway.front.refusals import GoneBack, RolledBack
from gateway.front.scheduler import Scheduler
from gateway.front.unanswered import SETTLED, Asked, Entry, Sent, Settled
from gateway.messaging.dead import DeadReason
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.inflight import InFlight
from gateway.messaging.message import Message
from gateway.messaging.provider import (
    Connection,
    Consumer,
    ConsumerSpec,
    Deliver,
    Done,
    Mode,
    Session,
)


class Held(Protocol):
    """The connection of a session."""

    @property
    def waits_for_broker(self) -> bool:
        """Whether a loss of the broker is waited for, and not told."""

    @property
    def is_over(self) -> bool:
        """Whether nothing can be asked of it any more."""

    @property
    def scheduler(self) -> Scheduler:
        """That of the broker."""

    def check_open(self) -> None:
        """:raises ProviderUnavailable: it is closed or lost."""

    def forget(self, session: HeldSession) -> None:
        """The session is closed."""

    def fail(self, error: MessagingError) -> None:
        """Lose the connection."""


class HeldSession:
    """One session. Made by its connection."""

    def __init__(self, connection: Held, clock: Any, mode: Mode) -> None:
        self.mode: Final = mode
        self.connection: Final = connection
        self._clock: Final = clock
        self.inner: Session | None = None
        self._consumers: Final[dict[HeldConsumer, None]] = {}
        #: What was asked and is not answered, in order. Of messages that were sent to a broker that
        #: is not waited for, only that there were some.
        self._asked: Final[deque[Entry]] = deque()
        #: Why the open transaction can only be rolled back.
        self._broken: MessagingError | None = None
        #: The last that was settled had gone back to the broker.
        self._in_vain = False
        #: Something was sent or settled in the open transaction.
        self._touched = False
        self._resume: list[Callable[[], None]] = []
        self._looking = False
        self._closed = False
        #: Something was answered since the connection was opened.
        self._progress = False

    @property
    def cannot_wait(self) -> bool:
        """Whether it has what a loss of the broker ends."""
        return any(consumer.spec.browse for consumer in self._consumers)

    # --- for the connection

    def attach(self, connection: Connection) -> None:
        """Ask of this connection what is not answered."""
        self.inner = inner = connection.session(self.mode)
        self._progress = False
        for consumer in self._consumers:
            consumer.attach(inner)
        asked = list(self._asked)
        self._asked.clear()
        for entry in asked:
            if isinstance(entry, Asked):
                self._ask(entry)
            elif isinstance(entry, Sent):
                self.send(entry.again(self._clock.seconds()))
        if self._resume:
            inner.on_writable(self._writable_again)

    def detach(self, error: MessagingError) -> None:
        """The broker is away, and is waited for."""
        self.inner = None
        for consumer in self._consumers:
            consumer.detach()
        asked = list(self._asked)
        self._asked.clear()
        settled = False
        for entry in asked:
            if isinstance(entry, Asked):
                entry.answer = None
            if isinstance(entry, Settled):
                settled = True
            elif not isinstance(entry, Asked):
                if self.mode is not Mode.TRANSACTED:
                    self._asked.append(entry)
            elif entry.what == "rollback":
                self._tell_later(entry, None)
            elif settled or self.mode is Mode.TRANSACTED:
                self._tell_later(entry, error)
            else:
                self._asked.append(entry)
        if self._touched:
            self._broken = error

    def lost(self, error: MessagingError) -> None:
        """Nothing more is answered."""
        for entry in self._ended():
            if entry.done is not None:
                entry.done(entry.error or error)

    def closed(self, error: MessagingError) -> None:
        """As :meth:`lost`, where the connection's user has closed it."""
        for entry in self._ended():
            self._tell_later(entry, error)

    def _ended(self) -> list[Asked]:
        """Return what will not be answered any more."""
        self._closed = True
        self._consumers.clear()
        self._resume.clear()
        asked = [entry for entry in self._asked if isinstance(entry, Asked)]
        self._asked.clear()
        return asked

    @property
    def is_stuck(self) -> bool:
        """Whether something was asked, and the broker has answered nothing since."""
        return bool(self._asked) and not self._progress

    def _tell_later(self, entry: Asked, error: MessagingError | None) -> None:
        if entry.done is not None:
            self._clock.callLater(0, entry.done, entry.error or error)

    # --- sending

    def send(self, messages: Sequence[Message]) -> None:
        self._check_open()
        if not messages:
            return
        transacted = self.mode is Mode.TRANSACTED
        if self._broken is not None:
            # It is rolled back; the commit says so.
            return
        if self.inner is not None:
            self.connection.scheduler.check(messages)
            self.inner.send(messages)
            self._touched = self._touched or transacted
            if transacted:
                return
        again = self.inner is None or self.connection.waits_for_broker
        self._asked.append(Sent(messages if again else (), self._clock.seconds()))
        if not self._looking and not transacted:
            self._looking = True
            self._clock.callLater(0, self._look)

    def _look(self) -> None:
        """Ask for a completion where no one has, to hear of refusals."""
        self._looking = False
        if self._closed or self.inner is None or self.connection.is_over:
            return
        for entry in reversed(self._asked):
            if isinstance(entry, Asked):
                if entry.done is None:
                    # Once it is answered.
                    return
                break
            if not isinstance(entry, Settled):
                self._ask(Asked("completion", None))
                return

    def writable(self) -> bool:
        return self.inner is not None and self.inner.writable()

    def on_writable(self, resume: Callable[[], None]) -> None:
        self._resume.append(resume)
        if self.inner is not None and len(self._resume) == 1:
            self.inner.on_writable(self._writable_again)

    def _writable_again(self) -> None:
        if self.inner is None:
            return
        resume, self._resume = self._resume, []
        for each in resume:
            each()

    # --- receiving

    def consumer(
        self, spec: ConsumerSpec, deliver: Deliver, failed: Callable[[MessagingError], None]
    ) -> HeldConsumer:
        self._check_open()
        consumer = HeldConsumer(self, spec, deliver, failed)
        if self.inner is not None:
            consumer.attach(self.inner)
        self._consumers[consumer] = None
        return consumer

    def soon(self, work: Callable[..., None], *arguments: object) -> None:
        """Do something when this turn is over."""
        self._clock.callLater(0, work, *arguments)

    def forget(self, consumer: HeldConsumer) -> None:
        """It is closed, and has nothing outstanding."""
        self._consumers.pop(consumer, None)

    def settling(self) -> None:
        """A delivery is being settled."""
        self._in_vain = False
        if self.mode is Mode.TRANSACTED:
            self._touched = True
        elif self.connection.waits_for_broker and (
            not self._asked or self._asked[-1] is not SETTLED
        ):
            self._asked.append(SETTLED)

    def settled_in_vain(self) -> None:
        """A delivery was settled that the broker has taken back."""
        if self.mode is not Mode.TRANSACTED:
            self._in_vain = True
        elif self._broken is None:
            self._broken = GoneBack()

    # --- completions and transactions

    def completion(self, done: Done) -> None:
        self._check_open()
        entry = Asked("completion", done)
        if self._in_vain:
            self._in_vain = False
            entry.error = GoneBack()
        self._answer(entry)

    def commit(self, done: Done) -> None:
        self._check_open()
        broken, self._broken, self._touched = self._broken, None, False
        if broken is not None:
            if self.inner is not None:
                # What came of it after the loss.
                self._ask(Asked("rollback", None))
            self._tell_later(Asked("commit", done), RolledBack(broken))
            return
        self._answer(Asked("commit", done))

    def rollback(self, done: Done) -> None:
        self._check_open()
        self._broken, self._touched = None, False
        if self.inner is None:
            # What was to be done in the transaction is not asked at all.
            while self._asked:
                entry = self._asked.pop()
                if isinstance(entry, Asked):
                    if entry.what != "completion":
                        self._asked.append(entry)
                        break
                    self._tell_later(entry, None)
            # The broker has rolled back by itself what it had.
            self._tell_later(Asked("rollback", done), None)
            return
        self._ask(Asked("rollback", done))

    def recover(self) -> None:
        self._check_open()
        if self.inner is not None:
            self.inner.recover()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.connection.forget(self)
        for consumer in list(self._consumers):
            consumer.close(True)
        if self.inner is not None:
            self.inner.close()
            return
        kept = all(isinstance(entry, Asked) for entry in self._asked)
        for entry in self._ended():
            # Its consumers are closed, so there is nothing left to do for them.
            unasked = kept and entry.what == "completion"
            self._tell_later(
                entry, None if unasked else ProviderUnavailable("the session is closed")
            )

    def _answer(self, entry: Asked) -> None:
        if self.inner is None:
            self._asked.append(entry)
        else:
            self._ask(entry)

    def _ask(self, entry: Asked) -> None:
        inner = self.inner
        assert inner is not None
        self._asked.append(entry)
        ask = {
            "completion": inner.completion,
            "commit": inner.commit,
            "rollback": inner.rollback,
        }[entry.what]
        ask(lambda error: self._answered(inner, entry, error))

    def _answered(self, inner: Session, entry: Asked, error: MessagingError | None) -> None:
        if inner is self.inner and entry in self._asked:
            entry.answer = (error,)
            self._give(inner)

    def _give(self, inner: Session) -> None:
        """Give the answers that have come, in order.

        One that says that the provider is unavailable may be the beginning of a loss, which is told
        next. Without one it is a refusal like others.
        """
        while self.inner is inner:
            entry = next((each for each in self._asked if isinstance(each, Asked)), None)
            if entry is None or entry.answer is None:
                return
            [error] = entry.answer
            if isinstance(error, ProviderUnavailable) and not entry.judged:
                self._clock.callLater(0, self._judge, inner, entry)
                return
            while self._asked.popleft() is not entry:
                pass
            error = entry.error or error
            if error is None:
                self._progress = True
                if entry.what != "completion" or self.mode is not Mode.TRANSACTED:
                    for consumer in self._consumers:
                        consumer.confirmed()
            if entry.done is not None:
                entry.done(error)
            elif error is not None:
                self._tell(error)
            elif self._asked and not self._looking:
                self._looking = True
                self._clock.callLater(0, self._look)

    def _judge(self, inner: Session, entry: Asked) -> None:
        if self.inner is inner and entry.answer is not None:
            entry.judged = True
            self._give(inner)

    def _tell(self, error: MessagingError) -> None:
        """Tell the next who has asked, or else end the connection."""
        for entry in self._asked:
            if isinstance(entry, Asked) and entry.done is not None:
                entry.error = entry.error or error
                return
        self.connection.fail(error)

    def _check_open(self) -> None:
        self.connection.check_open()
        if self._closed:
            raise ProviderUnavailable("the session is closed")


#: Settled deliveries of a consumer that are remembered until the broker answers.
_SETTLING: Final = 1000


class HeldConsumer:
    """One consumer. Made by its session."""

    def __init__(
        self,
        session: HeldSession,
        spec: ConsumerSpec,
        deliver: Deliver,
        failed: Callable[[MessagingError], None],
    ) -> None:
        self.spec: Final = spec
        self._session: Final = session
        self._deliver: Final = deliver
        self._failed: Final = failed
        self._inner: Consumer | None = None
        #: The last delivery, and the last that the broker has taken back.
        self._last = 0
        self._void = 0
        #: What is granted and not used.
        self._credit = 0
        self._octets = 0
        self._counts_octets = False
        #: Of that, what was granted once more for deliveries that the broker has taken back.
        self._owed = 0
        #: Ids of deliveries that are not settled, by number, where the broker is waited for.
        self._unsettled: Final[InFlight[str]] = InFlight()
        #: Ids of the latest that are settled, which the broker may not have heard of.
        self._unconfirmed: Final[deque[str]] = deque(maxlen=_SETTLING)
        #: Those that a broker that went away had delivered: they come again, whatever the next one
        #: knows of that.
        self._delivered_before: Final[set[str]] = set()
        self._running = False
        self._closed = False

    def attach(self, session: Session) -> None:
        """Receive by this session from now on.

        :raises MessagingError: as ``Session.consumer``.
        """
        self._void = self._last
        if self._closed:
            return
        self._inner = inner = session.consumer(self.spec, self._delivered, self._ended)
        if self._counts_octets:
            inner.grant(self._credit, max(self._octets, 1))
        elif self._credit:
            inner.grant(self._credit)
        if self._running:
            inner.start()

    def detach(self) -> None:
        """The broker is away: what is outstanding is the broker's again."""
        self._inner = None
        self._void = self._last
        # Other deliveries may take their room now. When they are settled, in vain, that makes no
        # room a second time.
        self._owed += len(self._unsettled)
        self._credit += len(self._unsettled)
        self._delivered_before.clear()
        self._delivered_before.update(self._unsettled.clear(), self._unconfirmed)
        self._unconfirmed.clear()

    def confirmed(self) -> None:
        """What was settled is."""
        self._unconfirmed.clear()

    def _delivered(
        self,
        inner: Consumer,
        first: int,
        messages: Sequence[Message],
        attempts: Sequence[int] | None,
        /,
    ) -> None:
        number = self._void + first
        self._last = number + len(messages) - 1
        self._credit -= len(messages)
        if self._counts_octets:
            self._octets -= sum([len(message.body) for message in messages])
        if self._session.connection.waits_for_broker and messages:
            self._unsettled.add(number, [message.message_id for message in messages])
            if self._delivered_before:
                attempts = self._counted(messages, attempts)
        self._deliver(self, number, messages, attempts)

    def _counted(
        self, messages: Sequence[Message], attempts: Sequence[int] | None
    ) -> Sequence[int]:
        counted = []
        for message, attempt in zip(messages, attempts or [1] * len(messages), strict=True):
            again = message.message_id in self._delivered_before
            self._delivered_before.discard(message.message_id)
            counted.append(max(attempt, 2) if again else attempt)
        return counted

    def _ended(self, error: MessagingError) -> None:
        if isinstance(error, ProviderUnavailable):
            # The connection's own loss may follow, which is told by itself.
            self._session.soon(self._judge, self._inner, error)
        else:
            self._end(error)

    def _judge(self, inner: Consumer | None, error: MessagingError) -> None:
        if self._inner is inner and inner is not None:
            self._end(error)

    def _end(self, error: MessagingError) -> None:
        if not self._closed:
            self._closed = True
            self._session.forget(self)
            self._failed(error)

    # --- the seam

    def start(self) -> None:
        self._running = True
        if self._inner is not None:
            self._inner.start()

    def stop(self) -> None:
        self._running = False
        if self._inner is not None:
            self._inner.stop()

    def grant(self, messages: int, octets: int = 0) -> None:
        paid = min(messages, self._owed)
        self._owed -= paid
        messages -= paid
        self._credit += messages
        self._octets += octets
        self._counts_octets |= octets > 0
        if self._inner is not None:
            self._inner.grant(messages, octets)

    def acknowledge_through(self, number: int, within: Session | None = None) -> int:
        if 0 < number <= self._void:
            self._in_vain(within)
            return 0
        inner, session = self._settling(within)
        settled = inner.acknowledge_through(number - self._void, session)
        if number in self._unsettled:
            self._unconfirmed.extend(self._unsettled.through(number))
        return settled

    def acknowledge(self, numbers: Sequence[int], within: Session | None = None) -> None:
        live = self._live(numbers, within)
        if live:
            inner, session = self._settling(within)
            inner.acknowledge(live, session)
            self._settled(live)

    def reject(
        self,
        numbers: Sequence[int],
        delay_ms: int | None = None,
        dead: DeadReason | None = None,
        within: Session | None = None,
    ) -> None:
        live = self._live(numbers, within)
        if live:
            inner, session = self._settling(within)
            inner.reject(live, delay_ms, dead, session)
            self._settled(live)

    def _settled(self, live: Sequence[int]) -> None:
        # Those of a transaction that was rolled back are settled a second time.
        numbers = [self._void + number for number in live]
        known = [number for number in numbers if number in self._unsettled]
        self._unconfirmed.extend(self._unsettled.take(known))

    def _live(self, numbers: Sequence[int], within: Session | None) -> list[int]:
        """The numbers behind it of those that the broker has not taken back."""
        live = [number - self._void for number in numbers if not 0 < number <= self._void]
        if len(live) < len(numbers):
            self._in_vain(within)
        return live

    def _in_vain(self, within: Session | None) -> None:
        session = within if isinstance(within, HeldSession) else self._session
        session.settled_in_vain()

    def _settling(self, within: Session | None) -> tuple[Consumer, Session | None]:
        if self._inner is None:
            self._session.connection.check_open()
            raise ProviderUnavailable("the consumer is closed")
        session = within if isinstance(within, HeldSession) else None
        (session or self._session).settling()
        return self._inner, None if session is None else session.inner

    def close(self, requeue: bool = True) -> None:
        self._closed = True
        self._running = False
        if self._inner is not None:
            self._inner.close(requeue)
        if requeue:
            self._session.forget(self)
