"""One link: its state, its trouble, and what an operator may ask of it.

Owns what is reported of a link, when it tries again, and which requests make sense. The ways between
its states are :mod:`bridge.link.states`'s, connections :mod:`bridge.link.endpoints`', batches
:mod:`bridge.link.pump`'s, one message :mod:`bridge.link.transfer`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.config.model import Bridge, Link
from bridge.connections.administered import AdministeredFactory
from bridge.connections.connections import Connections
from bridge.link.attempts import Attempts, Retries
from bridge.link.balances import Balances
from bridge.link.delivery.background_recovery import BackgroundRecovery
from bridge.link.delivery.guarantee import new_pump
from bridge.link.endpoints import LinkEndpoints, worth_a_retry
from bridge.link.errors import BatchRefused, EndLost, LinkFailed, SourceLost
from bridge.link.java_transformer import JavaTransformer
from bridge.link.journal import NO_JOURNAL, BridgeLines
from bridge.link.lag import Lag
from bridge.link.pace import LinkPace
from bridge.link.pump import Buries
from bridge.link.states import Events, machine
from bridge.link.status import Doing, LinkCounters, LinkState, LinkStatus, WrongState
from bridge.link.throughput import Throughput
from bridge.link.transfer import LinkStops, Transfer, UnknownRefName
from bridge.link.trouble import TELL_S, Progress, Refusals, Stall, remedy, with_remedy
from bridge.link.watchdog import Watchdog
from bridge.refused_link import end_text, place_text
from gateway.instance.problems import counted
from gateway.messaging.destination import Destination
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.transformer import MessageTransformer
from gateway.reactor.clocks import wall_ms

#: Seconds that a link which stops may take to finish its batch, and then as many to close its
#: connections.
STOP_S: Final = 4.0
#: States of a transaction in which a resource manager is being asked.
_COMPLETING: Final = ("PREPARING", "COMMITTING", "ROLLING_BACK")
_NOT_RUNNING: Final = (
    LinkState.UNINITIALIZED,
    LinkState.STOPPED,
    LinkState.STOPPING,
    LinkState.FAILED,
)
_PASSING: Final = frozenset({LinkState.STARTING, LinkState.PAUSING, LinkState.STOPPING})


class JMSLink:
    """One link of a JMS bridge.

    :param reactor: for time.
    :param config: the link.
    :param bridge: the bridge it is of.
    :param source: the source's factory.
    :param target: the target's.
    :param connections: the bridge's.
    :param dead_queues: likewise.
    :param transformer: the target's; None for none.
    :param instance: tells this instance from all others, and with the names of bridge and link this
        link, for the loop guard.
    :param log: the bridge's.
    :param lines: tell the journal.
    :param balances: of the bridge's links; None keeps its own as long as it lasts.
    :param stalled_s: seconds after which it is STALLED if something waits and nothing is moved; 0
        for never.
    """

    def __init__(
        self,
        reactor: Any,
        config: Link,
        bridge: Bridge,
        source: AdministeredFactory,
        target: AdministeredFactory,
        connections: Connections,
        coordination: BackgroundRecovery,
        dead_queues: Buries,
        transformer: MessageTransformer | JavaTransformer | None,
        instance: str,
        log: Logger,
        lines: BridgeLines = NO_JOURNAL,
        stalled_s: float = 0,
        balances: Balances | None = None,
    ) -> None:
        kept = balances or Balances(reactor, None, lambda: wall_ms(reactor), log)
        self.balance: Final = kept.of(config.name)
        self.config: Final = config
        self.name: Final = config.name
        self.counters: Final = LinkCounters()
        self._reactor: Final = reactor
        self._factories: Final = (source, target)
        self._connections: Final = connections
        self._throughput: Final = Throughput(config.name, self.counters, log, reactor)
        self._log: Final = log
        self._pace: Final = LinkPace(
            reactor,
            config.max_messages_per_second,
            config.batch_size,
            config.max_bytes_per_second,
        )
        self._lag: Final = Lag(reactor, config, source, log)
        self._bridge = bridge
        self._transfer: Final = Transfer(
            config,
            bridge,
            f"{instance}/{bridge.name}/{config.name}",
            transformer,
            self._resolve,
            self._now_ms,
        )
        retries = Retries.of_link(config, source.config), Retries.of_link(config, target.config)
        self._attempts: Final = Attempts(*retries, self.counters, reactor.seconds)
        self._events: Final[Events] = machine(self)
        names = {
            "source": source.config.ref_name,
            "target": target.config.ref_name,
            "destination": place_text(config.target.destination),
        }
        self._stall: Final = Stall(reactor, config.name, names, log, self._progress, self._record)
        self._watchdog: Final = Watchdog(
            reactor,
            config.name,
            stalled_s,
            self._done_with,
            self.look,
            self._waiting,
            self._now_ms,
            log,
        )
        refusals = Refusals(config.name, target.config.ref_name, log, reactor.seconds, self._record)
        self._make_pump: Final = partial(
            new_pump,
            reactor,
            config,
            source,
            target,
            connections,
            coordination,
            self._transfer,
            dead_queues,
            self.counters,
            self._throughput.transferred,
            log,
            lines.of_link(
                bridge.name,
                config.name,
                source,
                target,
                transformer is not None or bool(config.target.rules),
            ),
            refusals,
            self._end_lost,
            self.balance,
            self._pace,
        )
        self._endpoints: LinkEndpoints | None = None
        #: How often connecting or pumping was begun: what was begun before has nothing to say any
        #: more.
        self._begun = 0
        self._throughput.as_info = bridge.log_message_transfer
        self._state = LinkState.STOPPED if config.enabled else LinkState.UNINITIALIZED
        self._since_ms = self._loaded_ms = self._now_ms()
        self._settled: list[Deferred[None]] = []
        #: What ended the last attempt or run, and when.
        self._error = ""
        self._error_ms = 0
        #: When the next attempt is made.
        self._next_try_ms = 0
        #: A connection that was lost while the pump was busy with something else.
        self._lost: EndLost | None = None
        #: The failures that the log was told of within :data:`TELL_S`, and when.
        self._logged: dict[str, float] = {}

    # --- what an operator does

    @property
    def state(self) -> LinkState:
        return self._state

    def start(self) -> Deferred[None]:
        """Start it; resume it if it is paused.

        :returns: fires when messages can be moved, or when they cannot and it goes on trying; fails
            with :class:`LinkFailed` if it has given up, with WrongState if it is disabled, or
            stopping.
        """
        state = self._state
        if state is LinkState.UNINITIALIZED:
            return self._refuse(
                "start", 'it is disabled: set enabled="true" in the file of the bridge'
            )
        if state is LinkState.STOPPING:
            return self._refuse("start")
        if state in (LinkState.PAUSED, LinkState.PAUSING):
            self._events.resume()
        elif state in (LinkState.STOPPED, LinkState.FAILED):
            self._attempts.begin()
            self._lost = None
            self._logged = {}
            self._endpoints = LinkEndpoints(
                self._reactor,
                self.config,
                *self._factories,
                self._connections,
                self._make_pump,
                self._end_lost,
                self._log,
            )
            self._events.start()
        return self._when_settled()

    def stop(self) -> Deferred[None]:
        """Finish the batch under way, and close the connections.

        What is not begun goes back. Bounded by twice :data:`STOP_S`.
        """
        if self._state not in (LinkState.UNINITIALIZED, LinkState.STOPPED):
            self._events.stop()
        return self._when_settled()

    def pause(self) -> Deferred[None]:
        """Finish the batch under way and begin no other; connections are kept.

        :returns: fails with WrongState if it is not running.
        """
        if self._state in _NOT_RUNNING:
            return self._refuse("pause")
        if self._state not in (LinkState.PAUSED, LinkState.PAUSING):
            self._events.pause()
        return self._when_settled()

    def resume(self) -> Deferred[None]:
        """Go on after :meth:`pause`.

        :returns: as that of :meth:`start`.
        """
        if self._state in _NOT_RUNNING:
            return self._refuse("resume")
        if self._state in (LinkState.PAUSED, LinkState.PAUSING):
            self._events.resume()
        return self._when_settled()

    def configure(self, bridge: Bridge) -> None:
        """Apply a bridge file that says the same of this link.

        Its settings of the bridge hold from the next message on.
        """
        self._bridge = bridge
        self._throughput.as_info = bridge.log_message_transfer
        self._transfer.configure(bridge)

    def look(self) -> Deferred[None]:
        """Have :meth:`status` report the lag as it is now.

        The lag of a source that must be browsed may be up to ten seconds old.

        :returns: fires, never with an error, soon.
        """
        return self._lag.look(
            None if self._endpoints is None else self._endpoints.source_connection
        )

    def status(self) -> LinkStatus:
        """How it is doing now; the lag as :meth:`look` saw it."""
        config = self.config
        endpoints = self._endpoints
        kinds = (None, None) if endpoints is None else endpoints.kinds
        doing, doing_since_ms = (Doing.NOTHING, 0) if endpoints is None else endpoints.doing
        transaction, transaction_state = ("", "") if endpoints is None else endpoints.transaction
        stalled = self._watchdog.stalled
        waiting = self._lag.waiting(0 if endpoints is None else endpoints.in_flight)
        return LinkStatus(
            bridge=self._bridge.name,
            name=config.name,
            state=LinkState.STALLED if stalled else self._state,
            enabled=config.enabled,
            transacted=config.transacted,
            quality_of_service=config.quality_of_service.value,
            source=end_text(
                config.source.connection_factory.ref_name, kinds[0], config.source.destination
            ),
            target=end_text(
                config.target.connection_factory.ref_name, kinds[1], config.target.destination
            ),
            since_ms=self._watchdog.since_ms if stalled else self._since_ms,
            loaded_ms=self._loaded_ms,
            connected=self._state in (LinkState.STARTED, LinkState.PAUSING),
            last_error=self._error,
            last_error_ms=self._error_ms,
            # What is over is not reported.
            attempt=0 if self._state is LinkState.STARTED else self._attempts.failed,
            next_try_ms=self._next_try_ms,
            in_flight=0 if endpoints is None else endpoints.in_flight,
            doing=doing,
            doing_since_ms=doing_since_ms,
            last_transfer_ms=self._throughput.last_ms,
            lag_ms=self._lag.ms(0 if endpoints is None else endpoints.held_ms),
            received_rate=self._throughput.received.a_second(),
            sent_rate=self._throughput.sent.a_second(),
            counters=replace(self.counters, dead=dict(self.counters.dead)),
            balance=replace(self.balance.terms),
            difference=self.balance.terms.difference,
            once_by=None if endpoints is None else endpoints.once_by,
            transaction=transaction,
            transaction_state=transaction_state,
            waiting=waiting,
            max_rate=config.max_messages_per_second or 0,
            max_bytes_rate=config.max_bytes_per_second or 0,
            paced=self._state is LinkState.STARTED and self._pace.holds and waiting != 0,
            paced_s=self._pace.waited_s,
        )

    def _done_with(self) -> object:
        """Whatever grows when it is done with a message."""
        counters = self.counters
        return (
            counters.sent,
            counters.acknowledged,
            counters.not_transferred,
            sum(counters.dead.values()),
        )

    def _waiting(self) -> int:
        """Messages that wait at the source or are under way; -1 when unknown.

        None while the link waits for its rate: it is not stalled.
        """
        if self._pace.waits:
            return 0
        held = 0 if self._endpoints is None else self._endpoints.in_flight
        return max(self._lag.waiting(held), held or -1)

    def __str__(self) -> str:
        status = self.status()
        return f"link({self.name})[{status.source}-->{status.target}]"

    def _refuse(self, operation: str, remedy: str = "") -> Deferred[None]:
        return fail(WrongState(f"link {self.name}", operation, self._state.value, remedy))

    def _when_settled(self) -> Deferred[None]:
        if self._state not in _PASSING:
            return (
                fail(LinkFailed(self.name, self._error))
                if self._state is LinkState.FAILED
                else succeed(None)
            )
        waiter: Deferred[None] = Deferred()
        self._settled.append(waiter)
        return waiter

    # --- the machine's work

    def enter(self, state: LinkState) -> None:
        if state is self._state:
            return
        self._state = state
        self._since_ms = self._now_ms()
        level = self._log.error if state is LinkState.FAILED else self._log.info
        level(
            "{link} is {state}{why}",
            link=self,
            state=state.value,
            why=f": {self._error}" if state is LinkState.FAILED else "",
            event="link.changed",
        )
        if state is not LinkState.RETRYING:
            self._next_try_ms = 0
        if state in (LinkState.STARTED, LinkState.PAUSING):
            self._stall.watch()
        else:
            self._stall.stop()
        if state is LinkState.STARTED:
            self._watchdog.connected()
        elif state is LinkState.RETRYING:
            self._watchdog.lost()
        else:
            self._watchdog.stop()
        if state not in _PASSING:
            settled, self._settled = self._settled, []
            outcome = LinkFailed(self.name, self._error) if state is LinkState.FAILED else None
            for waiter in settled:
                # Not from inside: who waits may ask for the next thing at once.
                self._reactor.callLater(
                    0, waiter.callback if outcome is None else waiter.errback, outcome
                )

    def connect(self) -> None:
        self._begin(LinkEndpoints.connect, self._connected)

    def pump(self) -> None:
        if self._endpoints is not None:
            self._endpoints.release()
        self._begin(lambda endpoints: Deferred.fromCoroutine(endpoints.run()), self._halted)

    def halt(self) -> None:
        if self._endpoints is not None:
            self._endpoints.halt()

    def close(self) -> None:
        endpoints, self._endpoints = self._endpoints, None
        closing = (
            succeed(None) if endpoints is None else Deferred.fromCoroutine(endpoints.close(STOP_S))
        )
        closing.addErrback(self._defect)
        # Not from inside: the machine is on its way into the state that waits for it.
        closing.addBoth(lambda result: self._reactor.callLater(0, self._events.closed))

    def later(self, seconds: float, call: Callable[[], None]) -> IDelayedCall:
        self._next_try_ms = self._now_ms() + round(seconds * 1000)
        delayed: IDelayedCall = self._reactor.callLater(seconds, call)
        return delayed

    # --- what becomes of it

    def _begin(
        self, what: Callable[[LinkEndpoints], Deferred[None]], done: Callable[[], None]
    ) -> None:
        """Do this next, unless something else was begun or the ends were let go."""
        endpoints = self._endpoints
        self._begun += 1
        number = self._begun

        def ended(result: Failure | None) -> None:
            if endpoints is not self._endpoints or number != self._begun:
                if isinstance(result, Failure) and not isinstance(result.value, MessagingError):
                    self._defect(result)
            elif isinstance(result, Failure):
                self._failed(result)
            else:
                done()

        def begin() -> None:
            if endpoints is not None and endpoints is self._endpoints:
                what(endpoints).addBoth(ended).addErrback(self._defect)

        self._reactor.callLater(0, begin)

    def _connected(self) -> None:
        self._lost = None
        self._attempts.connected()
        self._events.connected()

    def _end_lost(self, lost: EndLost) -> None:
        """Note that a held connection has ended.

        The pump notices when it needs it; if it is idle, now.
        """
        self._lost = lost
        self._record(with_remedy(lost))
        self.halt()

    def _halted(self) -> None:
        lost, self._lost = self._lost, None
        if lost is None:
            self._events.halted()
        else:
            self._go_on(lost)

    def _failed(self, failure: Failure) -> None:
        self._lost = None
        error = failure.value
        if not isinstance(error, MessagingError):
            # A defect of ours must not end in a link that looks well.
            self._log.failure("{link} has failed unexpectedly", failure, link=self)
            error = ProviderUnavailable(
                f"an unexpected error, which the log has: {type(error).__name__}"
            )
        self._record(with_remedy(error))
        self._go_on(error)

    def _go_on(self, error: MessagingError) -> None:
        """Try again, or give up where that cannot help."""
        was_connected = self._attempts.was_connected
        if isinstance(error, SourceLost):
            was_connected = (
                was_connected and self._endpoints is not None and self._endpoints.source_accepted
            )
        if isinstance(error, LinkStops) or not worth_a_retry(error, was_connected):
            self._events.give_up()
            return
        wait_s = self._attempts.wait_s(error)
        if wait_s is None:
            self._error = (
                f"{self._error} (given up after {counted(self._attempts.failed, 'attempt')})"
            )
            self._events.give_up()
            return
        if self._state not in (LinkState.PAUSED, LinkState.PAUSING):
            self._log_failure(error, wait_s)
        self._events.retry(wait_s)

    def _log_failure(self, error: MessagingError, wait_s: float) -> None:
        """One line a minute as long as it is the same."""
        text, to_do, now = with_remedy(error), remedy(error), self._reactor.seconds()
        # How often it was tried makes no other failure of it, nor does how a provider puts it that
        # wants the same remedy.
        reason = to_do or (str(error.cause) if isinstance(error, BatchRefused) else text)
        if isinstance(error, SourceLost):
            reason = f"source: {reason}"
        self._logged = {before: at for before, at in self._logged.items() if now - at < TELL_S}
        known = reason in self._logged
        self._logged.setdefault(reason, now)
        (self._log.debug if known else self._log.warn)(
            "link {link}: {error}; attempt {attempt} in {wait_s:g} seconds",
            link=self.name,
            error=text,
            attempt=self._attempts.failed + 1,
            wait_s=wait_s,
            **({} if known else {"event": "link.failing"}),
        )

    def _record(self, text: str) -> None:
        self._error = text
        self._error_ms = self._now_ms()

    def _progress(self) -> Progress:
        endpoints, counters = self._endpoints, self.counters
        if endpoints is None:
            return Progress(Doing.NOTHING, ())
        (doing, since_ms), (transaction, state) = endpoints.doing, endpoints.transaction
        if state in _COMPLETING:
            # What the next transaction waits for meanwhile is another matter.
            return Progress(Doing.SENDING, (transaction, state))
        return Progress(
            doing,
            (
                since_ms,
                counters.sent,
                counters.acknowledged,
                counters.refused,
                sum(counters.dead.values()),
            ),
        )

    def _defect(self, failure: Failure) -> None:
        self._log.failure("{link}: a defect of the gateway", failure, link=self)

    async def _resolve(self, ref_name: str) -> Destination:
        """What a rule or a transformer branches to."""
        destination = self._bridge.destination(ref_name)
        if destination is None:
            raise UnknownRefName(ref_name)
        return await self._factories[1].destination(destination)

    def _now_ms(self) -> int:
        return wall_ms(self._reactor)
