"""SEND: messages gather in a list and go to the provider as one run.

Frames wait while the provider takes no messages.

Owns the run, which session of the provider it is for, and the receipts that were asked for in it. A
run ends when another command comes, or the turn's input. Owns the order and the size of the frames
that wait, too; which frames wait, and what becomes of them, is the session's business.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import Final

from twisted.python.failure import Failure

from gateway.messaging.errors import MessageRejected, MessagingError, ProducersPaused
from gateway.messaging.message import MEMO_SAME_NAMES, Headers, Message
from gateway.messaging.provider import Connection, Mode
from gateway.messaging.provider import Session as ProviderSession
from gateway.stomp.client_headers import expiry, timestamp
from gateway.stomp.counters import Counters
from gateway.stomp.destinations import MANAGEMENT
from gateway.stomp.management import Reply, Requests, reply_message
from gateway.stomp.profiles import Profile
from gateway.stomp.refusals import CommandRefused
from gateway.stomp.send_plan import (
    Resolve,
    SendPlan,
    all_headers_of,
    check_text,
    headers_of,
    is_text,
    mapped,
    of_bytes,
    plan_send,
    restore,
    routed,
)
from gateway.stomp.session.receipts import Fail, Receipts, forget, nothing
from gateway.stomp.session.transactions import Transactions
from gateway.stomp.session.transforming import Transforming
from gateway.stomp.wire import Frame, Head, ShapedHead

#: What a held frame counts for besides its body, and what each of its headers does besides its
#: text.
_FRAME: Final = 256
_HEADER: Final = 144
#: Frames that delimit a transaction: ACK and NACK must not overtake them.
_BOUNDARIES: Final = frozenset(("BEGIN", "COMMIT", "ABORT"))


class Sending:
    """The messages of one connection on their way to the provider.

    :param connection: the provider's. Messages outside of transactions get a session of their own.
    :param refuse: answers a SEND that is not taken with an ERROR, and says whether the connection
        goes on.
    :param resumed: called when the provider takes messages again after :attr:`blocked`.
    :param profile: the client's habits.
    :param held: the frames that wait behind the run.
    :param requests: to manage the broker; None where nothing carries them out.
    """

    def __init__(
        self,
        connection: Connection,
        transactions: Transactions,
        receipts: Receipts,
        resolve: Resolve,
        transforming: Transforming | None,
        fail: Fail,
        refuse: Callable[[BaseException, str | None], bool],
        resumed: Callable[[], None],
        profile: Profile,
        held: Held,
        counters: Counters,
        requests: Requests | None = None,
    ) -> None:
        self._requests: Final = requests
        self._profile: Final = profile
        self._keeps_timestamps: Final = profile.keeps_timestamps
        self._connection: Final = connection
        self.session: Final = connection.session(Mode.AUTO)
        self._transactions: Final = transactions
        self._receipts: Final = receipts
        self._resolve: Final = resolve
        self._transforming: Final = transforming
        self._fail: Fail = fail
        self._refuse: Callable[[BaseException, str | None], bool] = refuse
        self._resumed: Callable[[], None] = resumed
        self._held: Final = held
        self._counters: Final = counters
        #: The run. May be appended to from outside where :attr:`direct` holds.
        self.pending: list[Message] = []
        #: Places in the run whose frames asked for a receipt.
        self._asked: list[tuple[int, str]] = []
        #: Where in the run the copies of one SEND begin and end that names several destinations:
        #: all of them are sent, or none.
        self._together: list[tuple[int, int]] = []
        self._target: ProviderSession = self.session
        #: The last of the run, where all of it is for one destination, by a name alone.
        self._alone: Message | None = None
        #: The run is for the plain session, and nothing is to be done to a message but to make it.
        self.direct = transforming is None
        #: The provider asked to wait, and what is sent anyway is taken; or a request to manage the
        #: broker is carried out.
        self.blocked = False
        #: The run waits, too: its first message is for a destination that is paused.
        self.kept = False
        #: Why it is blocked; it may be both.
        self._waits_for_room = self._answering = False

    def add(self, head: Head, body: bytes, now_ms: int) -> bool:
        """Take one SEND into the run.

        :param now_ms: epoch milliseconds now, for relative expiry.
        :returns: False if the connection has failed over what was sent before, or what was sent
            before is :attr:`kept`; then this one is to wait behind it.
        :raises CommandRefused: the frame cannot be understood.
        :raises MessagingError: a temporary destination cannot be made.
        """
        shaped = head if isinstance(head, ShapedHead) else None
        plan = None if shaped is None else shaped.meaning.plan
        if (
            shaped is not None
            and isinstance(plan, SendPlan)
            and plan.nearly_plain
            and self.direct
            and shaped.meaning.shape.is_bare
            and self._follows(plan)
            and (not plan.text or is_text(body))
        ):
            self._alone = Message(headers_of(shaped, plan), body)
            self.pending.append(self._alone)
            return True
        own = head.headers if shaped is None else shaped.own_headers()
        if not isinstance(plan, SendPlan):
            plan = self._plan(head, own)
            if plan.managing:
                return self._manage(head, own, body)
        if plan.unrouted and not self._follows(plan):
            # What is on its way may make a queue of that name.
            if not self._sent():
                return False
            if self._resolve(plan.unrouted, "destination") != plan.headers.destination:
                plan = self._plan(head, own)
        octets = plan.text and not is_text(body)
        if octets and not self._profile.any_text:
            check_text(body)
        transaction = own.get("transaction")
        receipt = own.get("receipt")
        target = self.session
        named = None
        if transaction is not None:
            named = self._transactions.named(transaction, "SEND")
            target = named.session
        if target is not self._target and not self._retarget(target):
            return False
        expires, ttl, expiring = plan.expires, plan.ttl, plan.expiring
        if shaped is not None and "expires" in own:
            (expires, ttl), expiring = expiry(own), True
        if ttl:
            expires = now_ms + ttl
        each_headers = all_headers_of(head, plan, receipt)
        if octets:
            each_headers = [of_bytes(headers) for headers in each_headers]
        elif plan.form:
            each_headers, body = mapped(plan.form, each_headers, body)
        messages = [
            self._message(plan, headers, body, expires if expiring else None)
            for headers in each_headers
        ]
        if self._keeps_timestamps and (time := own.get("timestamp")) is not None:
            stamp = timestamp(time)
            for message in messages:
                message.timestamp = stamp
        start = len(self.pending)
        if plan.copies:
            self._together.append((start, start + len(messages)))
        if named is not None:
            named.touched = True
        if receipt is not None:
            self._asked.append((start, receipt))
        self.pending += messages
        if plan.unrouted:
            self._alone = messages[0]
        return True

    def _follows(self, plan: SendPlan) -> bool:
        """Whether the whole run is for its destination, by a name alone.

        Then that is still what the name means.
        """
        pending = self.pending
        return (
            bool(pending)
            and pending[-1] is self._alone
            and self._alone.headers.destination == plan.headers.destination
        )

    def _plan(self, head: Head, own: dict[str, str]) -> SendPlan:
        """Work out what a SEND means, and keep that for others that say the same.

        :param own: the frame's own headers: its ``expires`` goes before a ``ttl`` of others.
        """
        shaped = head if isinstance(head, ShapedHead) else None
        known = head if shaped is None else shaped.meaning.head(own)
        connection = self._connection
        plan = plan_send(
            known,
            self._resolve,
            connection.administers,
            self._profile,
            connection.has_exchanges,
        )
        if shaped is not None and not plan.personal:
            shaped.meaning.plan = plan
            for headers in (plan.headers, *plan.copies):
                headers.memo[MEMO_SAME_NAMES] = True
        return plan

    def _manage(self, head: Head, own: dict[str, str], body: bytes) -> bool:
        """Have a request to manage the broker carried out.

        What was sent before it is given to the provider first, and all frames behind it wait until
        its reply is sent. In a transaction the reply is part of that; what was asked is done
        anyway.

        :returns: as :meth:`add`.
        :raises CommandRefused, MessagingError: it may not be asked; nothing is done.
        """
        if self._requests is None:
            raise CommandRefused(f"nothing answers at {MANAGEMENT.name} here")
        named = None
        target = self.session
        if (transaction := own.get("transaction")) is not None:
            named = self._transactions.named(transaction, "SEND")
            target = named.session
        if not (self._sent() if target is self._target else self._retarget(target)):
            return False
        headers, receipt = head.headers, own.get("receipt")
        text, correlation = headers.get("reply-to", ""), headers.get("correlation-id")
        to = None
        if text:
            to = self._resolve(routed(text, {}, "destination-type", self._profile), "reply-to")
        answering = self._requests.ask(headers, body, to)
        if named is not None:
            named.touched = True
        self.blocked = self._answering = at_once = True

        def answered(reply: Reply) -> None:
            self._answering = False
            self.blocked = self._waits_for_room
            if to is not None:
                if receipt is not None:
                    self._asked.append((len(self.pending), receipt))
                self.pending.append(reply_message(reply, to, text, correlation))
            elif reply.succeeded:
                self._receipts.release(self._receipts.open(receipt))
            else:
                self._refuse(CommandRefused(reply.body), receipt)
            if not at_once and not self.blocked:
                self._resumed()

        def failed(failure: Failure) -> None:
            assert failure.value is not None
            self._fail(failure.value, receipt)

        answering.addCallback(answered).addErrback(failed)
        at_once = False
        return True

    def _message(
        self, plan: SendPlan, headers: Headers, body: bytes, expires: int | None
    ) -> Message:
        if plan.envelope and self._connection.administers:
            # What it was, and not what a transformer would make of it, which has had it before.
            return restore(plan, headers, body, expires)
        message = Message(headers, body, expires=expires or 0)
        return message if self._transforming is None else self._transforming.incoming(message)

    def _sent(self) -> bool:
        """Give the run to the provider; :returns: whether nothing of it is kept."""
        return self.flush() and not self.kept

    def _retarget(self, target: ProviderSession) -> bool:
        if not self._sent():
            return False
        self._target = target
        self.direct = target is self.session and self._transforming is None
        return True

    def flush(self) -> bool:
        """Give the run to the provider.

        A message for a destination that is paused is kept, and those behind it; they are given on
        when the provider takes messages again.

        :returns: False if it refused a message, and the connection has failed over it.
        """
        run = self.pending
        if not run or self.kept:
            return True
        asked, together = self._asked, self._together
        self.pending, self._asked, self._together, self._alone = [], [], [], None
        target = self._target
        # All places are those of the whole run. No list is made anew for each that is refused.
        first = answered = 0
        while first < len(run):
            taken = run[first:] if first else run
            behind = len(run)
            kept = -1
            refusal: MessagingError | None = None
            while taken:
                try:
                    target.send(taken)
                    break
                except MessageRejected as refused:
                    # Those before it are sent without it. One of them may be refused in its turn,
                    # for what the provider looks at later.
                    at, behind = _copies(together, first + refused.index)
                    if isinstance(refused.cause, ProducersPaused):
                        kept, refusal = at, None
                    else:
                        kept, refusal = -1, refused.cause
                    taken = taken[: at - first]
            end = first + len(taken)
            self._counters.messages_in += (end if kept >= 0 else behind) - first
            if target is not self.session:
                try:
                    self._transactions.sent(target, taken)
                except CommandRefused as refused:
                    # Which message was too much is not known: the last that asks to be told.
                    told = [receipt for at, receipt in asked if at < end]
                    self._fail(refused, told[-1] if told else None)
                    return False
            receipts: list[str] = []
            while answered < len(asked) and asked[answered][0] < end:
                receipts.append(asked[answered][1])
                answered += 1
            self._receipt(target, receipts)
            if kept >= 0:
                self._keep(run[kept:], kept, asked, together)
                break
            if refusal is None:
                break
            receipt = None
            if answered < len(asked) and asked[answered][0] == end:
                receipt = asked[answered][1]
                answered += 1
            if not self._refuse(refusal, receipt):
                return False
            first = behind
        if not self.blocked and (self.kept or not target.writable()):
            self.blocked = self._waits_for_room = True
            target.on_writable(self._writable)
        return True

    def _keep(
        self,
        run: list[Message],
        index: int,
        asked: list[tuple[int, str]],
        together: list[tuple[int, int]],
    ) -> None:
        """Keep what is not taken now.

        :param run: of the whole, what begins at ``index``.
        """
        self.kept, self.pending = True, run
        self._held.kept = sum([message.weight for message in run])
        self._asked = [(at - index, receipt) for at, receipt in asked if at >= index]
        self._together = [(start - index, end - index) for start, end in together if start >= index]

    def _receipt(self, target: ProviderSession, receipts: list[str]) -> None:
        if not receipts:
            return
        if target is not self.session and self._profile.receipts_after_commit:
            self._transactions.owe(target, receipts)
            return
        tickets = [self._receipts.open(receipt) for receipt in receipts]
        if target is not self.session:
            # Durable with COMMIT, and its RECEIPT says so; this one says that the message is in the
            # transaction.
            self._transactions.asked(target, receipts[-1])
            for ticket in tickets:
                self._receipts.release(ticket)
            return

        def done(error: MessagingError | None) -> None:
            if error is not None:
                self._fail(error, receipts[0])
                for ticket in tickets:
                    self._receipts.drop(ticket)
                return
            for ticket in tickets:
                self._receipts.release(ticket)

        target.completion(done)

    def _writable(self) -> None:
        self.kept = self._waits_for_room = False
        self.blocked = self._answering
        if not self.blocked:
            self._resumed()

    def close(self) -> None:
        """Drop the run, without notice: the client is gone."""
        self.pending, self.kept = [], False
        self._fail, self._refuse, self._resumed = forget, _refuses, nothing


def _copies(together: list[tuple[int, int]], at: int) -> tuple[int, int]:
    """Return where the copies of a SEND begin and end.

    :param at: the place of one of them.
    """
    index = bisect_right(together, at, key=_start) - 1
    if index >= 0 and at < together[index][1]:
        return together[index]
    return at, at + 1


def _start(place: tuple[int, int]) -> int:
    return place[0]


def _refuses(error: BaseException, receipt: str | None) -> bool:
    """Stand for a client that is gone."""
    forget(error, receipt)
    return False


def weight(frame: Frame) -> int:
    """Roughly the bytes that a frame takes in memory, its headers included."""
    headers = frame.head.headers
    return (
        len(frame.body)
        + _FRAME
        + _HEADER * len(headers)
        + sum(map(len, headers))
        + sum(map(len, headers.values()))
    )


class Held:
    """The frames that wait.

    :param most: octets from which on no more input should be read.
    """

    __slots__ = ("_divided", "_frames", "_left", "_most", "has_boundary", "kept", "octets")

    def __init__(self, most: int) -> None:
        self._most: Final = most
        #: Of what was taken last: bytes, and whether something in it begins or ends a transaction.
        self._left, self._divided = 0, False
        self.clear()

    @property
    def is_full(self) -> bool:
        return self.octets >= self._most

    @property
    def all_octets(self) -> int:
        """With the messages before them."""
        return self.octets + self.kept

    def add(self, frame: Frame) -> bool:
        """Hold a frame back. :returns: whether it was the one that made it full."""
        before = self.octets
        self._frames.append(frame)
        self.octets += weight(frame)
        if frame.head.command in _BOUNDARIES:
            self.has_boundary = True
        return before < self._most <= self.octets

    def take(self) -> deque[Frame]:
        """All that was held, which is held no longer."""
        frames = self._frames
        self._left, self._divided = self.octets, self.has_boundary
        self.clear()
        return frames

    def next(self, frames: deque[Frame]) -> Frame:
        """Return the first of frames that were taken, and remove it there."""
        frame = frames.popleft()
        self._left -= weight(frame)
        return frame

    def put_back(self, frames: deque[Frame]) -> deque[Frame]:
        """Hold the rest of what was taken.

        Many may be left, and one may go at a time.

        :returns: those to be looked at again, since what they waited behind may have gone.
        """
        if self._divided:
            return frames
        self._frames += frames
        self.octets += self._left
        return deque()

    def clear(self) -> None:
        """Forget everything."""
        self._frames: deque[Frame] = deque()
        self.octets = 0
        #: Bytes of messages before these frames that wait, too.
        self.kept = 0
        #: Among them is one that begins or ends a transaction.
        self.has_boundary = False
