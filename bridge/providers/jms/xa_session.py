"""An XASession and its XAResource over JMS.

These are ``messaging.provider.XASession`` and ``XAResource``.

JMS receives in a branch or not at all: a consumer of an XASession receives while a branch is
associated, and everything it receives belongs to the branch. So a stopped consumer still delivers
what was received before the provider stopped it, all of it before the next completion. To end a
branch before all credit is used up, stop the consumer, wait for a completion, then acknowledge. A
branch that ends with messages not delivered or not acknowledged can only be rolled back; they
arrive again in another branch.

No call needs to wait for earlier ones. Calls and sends of one pass of the reactor go to Java
together, but a commit, with what was asked before it, goes at once. If one of a branch fails, the
later ones of the branch fail, too, except its rollback.

Owns which branch is associated, as far as it was asked for, and the calls that are not answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from twisted.internet.defer import Deferred, fail, succeed

from bridge.providers.jms import batches
from bridge.providers.jms.batches import XACall, XADone, XAOutcome
from bridge.providers.jms.consumer import Delivery, JMSConsumer
from bridge.providers.jms.failures import Kind, missing_or_unavailable
from bridge.providers.jms.session import ChannelMaker, ConnectionScope, JMSSession
from gateway.messaging.errors import MessagingError, NotSupported, ProviderUnavailable, XAError
from gateway.messaging.message import Message
from gateway.messaging.provider import (
    ConsumerSpec,
    Deliver,
    Done,
    Flags,
    Mode,
    Vote,
    XAResource,
    Xid,
)

#: XAER_RMERR.
_RM_ERROR: Final = -3
#: What an Xid holds (X/Open CAE Specification, section 4.2).
_LONGEST: Final = 64


class XAConsumer(JMSConsumer):
    """A consumer of an XASession. Made by it."""

    def arrived(self, deliveries: list[Delivery]) -> None:
        if not self.closed:
            self._waiting += deliveries
            self._hand(stopped=True)

    def withdraw(self) -> None:
        credit, self._credit = self._credit, 0
        if credit and not self.closed:
            self._session.ask(batches.credit(self._number, -credit, 0))


class JMSXASession(JMSSession):
    """One XASession. Made by its connection.

    :param channel: as for :class:`~bridge.providers.jms.session.JMSSession`.
    :param number: what Java calls it, and no other session.
    """

    def __init__(self, connection: ConnectionScope, channel: ChannelMaker, number: int) -> None:
        super().__init__(connection, Mode.TRANSACTED, channel)
        self.number: Final = number
        self._resource = JMSXAResource(self)
        self._associated: Xid | None = None
        #: Of the call that has associated it.
        self._start = 0
        #: Whether arriving messages were received in it: that call was answered.
        self._receives = False
        self._calls: dict[int, Deferred[XADone]] = {}

    # --- the seam

    def resource(self) -> JMSXAResource:
        return self._resource

    def send(self, messages: Sequence[Message]) -> None:
        self._check_open()
        if self._associated is None:
            raise NotSupported("send outside of a branch")
        super().send(messages)

    def consumer(
        self, spec: ConsumerSpec, deliver: Deliver, failed: Callable[[MessagingError], None]
    ) -> XAConsumer:
        if spec.browse:
            raise NotSupported("browsing in an XA session")
        return cast(XAConsumer, super().consumer(spec, deliver, failed))

    def _consumer(
        self,
        number: int,
        spec: ConsumerSpec,
        deliver: Deliver,
        failed: Callable[[MessagingError], None],
    ) -> XAConsumer:
        return XAConsumer(self, number, spec, deliver, failed)

    def commit(self, done: Done) -> None:
        self._check_open()
        raise NotSupported("commit of an XA session; its branches are committed")

    def rollback(self, done: Done) -> None:
        self._check_open()
        raise NotSupported("rollback of an XA session; its branches are rolled back")

    def recover(self) -> None:
        self._check_open()
        if self._associated is not None:
            raise NotSupported(
                "recover while a branch is associated; what it has received comes again when it is rolled back"
            )

    # --- for the resource

    def call(self, what: XACall, xid: Xid | None, flags: int = 0) -> Deferred[XADone]:
        """Call the XAResource. :returns: fails with XAError, ProviderUnavailable."""
        try:
            self._check_open()
        except ProviderUnavailable as error:
            return fail(error)
        if xid is not None and not (
            0 < len(xid.gtrid) <= _LONGEST and 0 < len(xid.bqual) <= _LONGEST
        ):
            raise ValueError(f"an Xid has two parts of 1 to {_LONGEST} octets each: {xid}")
        self._tags += 1
        if what is XACall.START and self._associated is None:
            self._associated = xid
            self._start = self._tags
            self._receives = False
        elif what is XACall.END and xid == self._associated:
            self._associated = None
            self._receives = False
            # An index in an error counts from the start of the branch.
            self._sent = []
        answer: Deferred[XADone] = Deferred()
        self._calls[self._tags] = answer
        self.ask(batches.xa_call(self._tags, what, xid, flags))
        if what is XACall.COMMIT:
            # Java has it while the caller begins its next branch.
            self.channel.flush()
        return answer

    # --- what Java answers

    def _arrived(self, number: int, run: list[Delivery]) -> None:
        if self._receives:
            super()._arrived(number, run)
        elif number in self._consumers:
            # It is of a branch that was meant to end without it.
            self._consumers[number].discarded(run)

    def _told(self, answer: Any) -> None:
        if not isinstance(answer, XADone):
            super()._told(answer)
            return
        waiting = self._calls.pop(answer.tag, None)
        if waiting is None:
            # The connection was lost meanwhile.
            return
        started = answer.tag == self._start and self._associated is not None
        if answer.outcome == XAOutcome.WELL:
            self._receives |= started
            waiting.callback(answer)
            return
        if started:
            self._associated = None
        waiting.errback(_error(answer))

    @property
    def _owes(self) -> bool:
        return super()._owes or bool(self._calls)

    def lost(self, error: MessagingError) -> None:
        calls, self._calls = self._calls, {}
        super().lost(error)
        for waiting in calls.values():
            waiting.errback(error)


def _error(answer: XADone) -> MessagingError:
    if answer.outcome == XAOutcome.XA_EXCEPTION:
        if answer.value == 0:
            return XAError(_RM_ERROR, f"{answer.reason} (the provider gave no code)")
        return XAError(answer.value, answer.reason)
    if answer.value in (Kind.UNAVAILABLE, Kind.STATE, Kind.MISSING):
        return missing_or_unavailable(answer.value, answer.reason)
    return XAError(_RM_ERROR, answer.reason)


class JMSXAResource:
    """The XAResource of one session.

    Codes and flags are the provider's; an XAException without a code is XAER_RMERR.

    A call whose connection is lost, or that times out, fails with ProviderUnavailable: its outcome
    is unknown. ActiveMQ does not say which branches are in use. So only branches that were started
    here are refused (XAER_DUPID) when they are started again. Roll back a branch that another
    session has received in before anybody consumes from the queue: ActiveMQ gives messages back one
    by one, and waiting consumers may get them in another order.
    """

    def __init__(self, session: JMSXASession) -> None:
        self._session = session

    def start(self, xid: Xid, flags: Flags) -> Deferred[None]:
        return self._session.call(XACall.START, xid, flags).addCallback(_nothing)

    def end(self, xid: Xid, flags: Flags) -> Deferred[None]:
        return self._session.call(XACall.END, xid, flags).addCallback(_nothing)

    def prepare(self, xid: Xid) -> Deferred[Vote]:
        return self._session.call(XACall.PREPARE, xid).addCallback(
            lambda answer: Vote(answer.value)
        )

    def commit(self, xid: Xid, one_phase: bool) -> Deferred[None]:
        return self._session.call(XACall.COMMIT, xid, one_phase).addCallback(_nothing)

    def rollback(self, xid: Xid) -> Deferred[None]:
        return self._session.call(XACall.ROLLBACK, xid).addCallback(_nothing)

    def recover(self) -> Deferred[Sequence[Xid]]:
        return self._session.call(XACall.RECOVER, None).addCallback(lambda answer: answer.xids)

    def forget(self, xid: Xid) -> Deferred[None]:
        return self._session.call(XACall.FORGET, xid).addCallback(_nothing)

    def is_same_rm(self, other: XAResource) -> Deferred[bool]:
        """A session of another class path counts as another resource manager."""
        if not isinstance(other, JMSXAResource):
            return succeed(False)
        return self._session.call(XACall.SAME, None, other._session.number).addCallback(
            lambda answer: answer.value == 1
        )


def _nothing(answer: XADone) -> None:
    return None
