"""One JMS bridge: its configuration, its parts, its start and stop.

Owns its state and the life of its parts; what a link does is the link's. The steps are those of
Open MQ's "Starting and Stopping JMS Bridges":

start
    read the XML file · make links and dead message queues · have the dead message queues ready ·
    start all enabled links
stop
    stop the links · wait until connections are given back · close the pools and shared connections

What is asked of a bridge is done one thing after the other, but that a stop ends whatever is under
way. A link that cannot be started as it is configured harms no other; a file that cannot be used,
or a dead message queue that cannot be made, leaves nothing open.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredLock, gatherResults
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.bridge_parts import Parts, credentials_of, refusal_of
from bridge.config import model
from bridge.config.changes import Changes, changes
from bridge.config.loading import load
from bridge.config.problems import ConfigurationError, Problem, Severity
from bridge.config.settings import STALLED
from bridge.connections.connections import PoolStatus, SharedStatus
from bridge.connections.factories import Embedded
from bridge.dead.chain import DmqStatus
from bridge.jms_link import JMSLink
from bridge.link.balances import Balances
from bridge.link.delivery.background_recovery import BackgroundRecovery
from bridge.link.journal import NO_JOURNAL, BridgeLines
from bridge.link.status import BridgeState, LinkState, WrongState
from bridge.manager import STOP_S
from bridge.orders import ITSELF, PAUSED, STOPPED, Orders, StandingOrders
from bridge.providers.jms.java_command import java_options
from bridge.refused_link import RefusedLink
from bridge.transformers import LoadTransformer
from bridge.xa.coordinator import Coordinator
from gateway.instance.redaction import Redaction, hidden_by_value
from gateway.instance.settings import Settings, SettingsError
from gateway.instance.settings_general import (
    BRIDGE_ADMIN_USER,
    BRIDGE_LOGFILE_COUNT,
    BRIDGE_LOGFILE_LIMIT,
)
from gateway.messaging.provider import Connection, Provider
from gateway.reactor.deferreds import gather, shield, when_all_ended

T = TypeVar("T")

#: Says whether a bridge of that name may be used with these settings and this file. Raises
#: ConfigurationError or SettingsError.
Admit = Callable[[Settings, model.Bridge], Awaitable[None]]

#: Seconds that a start waits for the dead message queues, and then for the links' first attempts to
#: connect; what takes longer goes on by itself.
START_S: Final = 5.0
#: How much of the time that a stop may take its links may have; the rest is for connections.
_FOR_LINKS: Final = 0.7
#: States in which a link moves messages or tries to.
_RUNNING: Final = (
    LinkState.STARTING,
    LinkState.STARTED,
    LinkState.STALLED,
    LinkState.RETRYING,
)
_PAUSED: Final = (LinkState.PAUSING, LinkState.PAUSED)
_PAUSED_STATES: Final = (BridgeState.PAUSING, BridgeState.PAUSED)
#: States in which there is nothing of a link to stop.
_STOPPED: Final = (LinkState.UNINITIALIZED, LinkState.STOPPED)

_LINK: Final = "link "


class JMSBridge:
    """A bridge of type JMS.

    :param reactor: Twisted's.
    :param name: as in ``imq.bridge.activelist``.
    :param settings: gives the settings as they are now; asked at each start and reload. Raises what
        is wrong with them.
    :param folder: what a relative ``imq.bridge.NAME.xmlurl`` is relative to: the instance's ``etc``
        directory.
    :param provider: the broker of this instance.
    :param load_transformer: makes a message transformer from the name of its class; the second
        argument says where that was given. May raise anything, whose text is told.
    :param coordination: makes what coordinates its transactions, at each start; raises
        SettingsError.
    :param log: what the bridge logs to.
    :param redaction: is told the passwords that the configuration has, as far as
        :func:`~gateway.instance.redaction.hidden_by_value` goes.
    :param lines: tell the journal.
    :param admit: asked at each start and reload; None admits everything.
    :param orders: what an operator said last of its links, which a start leaves so.
    :param balances: of its links; None keeps none beyond a stop.
    :param jars: the operator's folder with jars of message transformers.
    """

    type: Final = "JMS"

    def __init__(
        self,
        reactor: Any,
        name: str,
        settings: Callable[[], Settings],
        folder: Path,
        provider: Provider,
        load_transformer: LoadTransformer,
        coordination: Callable[[Settings], BackgroundRecovery],
        log: Logger,
        redaction: Redaction,
        lines: BridgeLines = NO_JOURNAL,
        admit: Admit | None = None,
        orders: StandingOrders | None = None,
        balances: Balances | None = None,
        jars: Path | None = None,
    ) -> None:
        self._jars: Final = jars
        self._balances: Final = balances
        self.name: Final = name
        self.state = BridgeState.STOPPED
        self.problem = ""
        self.warnings: Sequence[
            Problem
        ] = ()  # of its file, when that was read last and could be used
        self._reactor: Final = reactor
        self._settings: Final = settings
        self._folder: Final = folder
        self._provider: Final = provider
        self._load_transformer: Final = load_transformer
        self._coordination: Final = coordination
        self._log: Final = log
        self._redaction: Final = redaction
        self._lines: Final = lines
        self._admit: Final = admit
        self._orders: Final = orders or StandingOrders()
        self._steps: Final = _Steps(reactor, log, self._state_of)
        self._secrets: set[str] = set()
        self._parts: Parts | None = None
        #: The configuration that was in force last; None before the first start.
        self.last_config: model.Bridge | None = None
        self._stop_s = STOP_S
        self._turn: Final = DeferredLock()
        self._under_way: list[Deferred[Any]] = []
        self._pausing: object = None  # the last pause that was begun

    # --- what it has

    @property
    def config(self) -> model.Bridge | None:
        """The configuration in force; None where the bridge is stopped."""
        return None if self._parts is None else self._parts.config

    def links(self) -> Sequence[JMSLink | RefusedLink]:
        """Its links in the order of its file, the disabled ones too.

        Empty while it is stopped.
        """
        return () if self._parts is None else tuple(self._parts.links.values())

    def link(self, name: str) -> JMSLink | RefusedLink | None:
        """Return the link of that name.

        :returns: None for an unknown name, or where the bridge is stopped.
        """
        return None if self._parts is None else self._parts.links.get(name)

    @property
    def coordinator(self) -> Coordinator | None:
        """What coordinates its transactions.

        None where nothing has needed it, or the bridge is stopped.
        """
        return None if self._parts is None else self._parts.coordination.opened

    def _state_of(self, name: str) -> LinkState | None:
        link = self.link(name)
        return None if link is None else link.status().state

    def pools(self) -> Sequence[PoolStatus]:
        """Its pooled connection factories."""
        return () if self._parts is None else self._parts.connections.pools()

    def shared(self) -> Sequence[SharedStatus]:
        """Its shared connections."""
        return () if self._parts is None else self._parts.connections.shared()

    def open_connections(self) -> Sequence[tuple[Connection, str]]:
        """Its open connections, and whose each is."""
        return () if self._parts is None else self._parts.connections.open()

    def dmqs(self) -> Sequence[DmqStatus]:
        """Its dead message queues, in the order in which they get a message."""
        return () if self._parts is None else self._parts.dead_messages.status()

    # --- what an operator does

    def start(self) -> Deferred[None]:
        """Read the XML file and start, or resume what is paused.

        :returns: fires when each enabled link has tried to connect, or :data:`START_S` seconds
            later. Links that cannot connect retry, and are no failure. Fails with SettingsError or
            ConfigurationError, each of which says everything that is wrong, with what a dead
            message queue cannot be made for, and with WrongState when it is stopped meanwhile.
        """
        return self._in_turn("start", self._start)

    def stop(self, seconds: float = STOP_S) -> Deferred[None]:
        """Stop, ending whatever else is under way.

        :param seconds: in which links and connections may end; what has not by then is abandoned,
            and logged.
        """
        self._stop_s = seconds
        # Each once: what is cancelled clears up, and that must not be cancelled.
        interrupted, self._under_way = self._under_way, []
        for doing in interrupted:
            doing.cancel()
        return self._in_turn("stop", partial(self._stop, seconds))

    def pause(self) -> Deferred[None]:
        """Pause the links that run.

        The bridge is PAUSING until the last of them is paused, and that is waited for no longer
        than a stop. Fails as :meth:`resume`.
        """
        return self._in_turn("pause", self._pause)

    def resume(self) -> Deferred[None]:
        """Resume the links that are paused.

        Fails with WrongState where the bridge is stopped.
        """
        return self._in_turn("resume", self._resume)

    def reload(self) -> Deferred[Changes]:
        """Read the XML file again, and restart the links that changed.

        Links whose configuration is the same run on; the others are stopped, and started anew if
        they ran.

        :returns: what has changed. Fails as :meth:`start` where the file cannot be used, and then
            nothing is changed; with WrongState where the bridge is stopped.
        """
        return self._in_turn("reload", self._reload)

    def _in_turn(self, operation: str, step: Callable[[], Coroutine[Any, Any, T]]) -> Deferred[T]:
        async def alone() -> T:
            try:
                await self._turn.acquire()
                try:
                    return await step()
                finally:
                    self._turn.release()
            except CancelledError:
                raise self._wrong_state(operation, "it was stopped meanwhile") from None

        doing = Deferred.fromCoroutine(alone())
        if operation != "stop":
            self._under_way.append(doing)

            def done(result: Any) -> Any:
                if doing in self._under_way:
                    self._under_way.remove(doing)
                return result

            doing.addBoth(done)
        return shield(doing)

    def _wrong_state(self, operation: str, remedy: str = "") -> WrongState:
        return WrongState(f"bridge {self.name}", operation, self.state.value, remedy)

    def _enter(self, state: BridgeState) -> None:
        self.state = state
        self._log.info("bridge {name} is {state}", name=self.name, state=state.value)

    # --- start

    async def _start(self) -> None:
        if self.state is BridgeState.STARTED:
            return
        if self.state in _PAUSED_STATES:
            await self._resume()
            return
        self._enter(BridgeState.STARTING)
        self.problem = ""
        try:
            orders = await self._orders.of(self.name)
            settings, config = await self._configured()
            self._parts = parts = self._made(settings, config)
            queues = {"dead message queues": parts.dead_messages.start()}
            await self._steps.take("start", queues, START_S)
            await parts.coordination.start(parts.resource_managers())
            self._refuse(parts.links.values())
            await self._start_links(
                [link for link in parts.links.values() if link.config.enabled], orders
            )
        except Exception as error:
            self.problem = "" if isinstance(error, CancelledError) else str(error)
            await self._close(self._stop_s)
            self._enter(BridgeState.STOPPED)
            raise
        self._enter(BridgeState.PAUSED if orders.get(ITSELF) == PAUSED else BridgeState.STARTED)

    async def _configured(self) -> tuple[Settings, model.Bridge]:
        settings = self._settings()
        wrong = settings.bridge_problems(self.name)
        if wrong:
            raise SettingsError(wrong)
        try:
            config, self.warnings = await load(settings, self.name, self._folder, self._reactor)
        except ConfigurationError as error:
            self._warn(
                [problem for problem in error.problems if problem.severity is Severity.WARNING]
            )
            raise
        if self._admit is not None:
            await self._admit(settings, config)
        for secret in hidden_by_value(
            [*settings.secrets(), *config.secrets()],
            [*config.usernames(), settings[BRIDGE_ADMIN_USER]],
        ):
            if secret not in self._secrets:
                self._secrets.add(secret)
                self._redaction.add(secret)
        self._warn(self.warnings)
        if config.log_message_transfer and not settings.named(BRIDGE_LOGFILE_LIMIT, self.name):
            self._log.info(
                "bridge {name}: its log has a line for each message, and no limit; limit it by {limit} and {count}, or set "
                'log-message-transfer="false"',
                name=self.name,
                limit=BRIDGE_LOGFILE_LIMIT.full_name(self.name),
                count=BRIDGE_LOGFILE_COUNT.full_name(self.name),
            )
        return settings, config

    def _warn(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            self._log.warn("{warning}", warning=str(problem))

    def _made(self, settings: Settings, config: model.Bridge) -> Parts:
        embedded = Embedded(self._provider, credentials_of(settings, self.name))
        return Parts(
            self._reactor,
            config,
            embedded,
            lambda: java_options(settings),
            self._load_transformer,
            self._coordination(settings),
            self._provider.resource,  # unlike the instance's name, no other installation has it
            self._log,
            self._lines,
            settings.named(STALLED, self.name),
            self._balances,
            self._jars,
        )

    def _refuse(self, links: Iterable[JMSLink | RefusedLink]) -> None:
        for link in links:
            reason = refusal_of(link)
            if reason:
                self._log.error("{reason}", reason=reason)

    async def _start_links(
        self, links: Sequence[JMSLink | RefusedLink], orders: Orders | None = None
    ) -> None:
        """All at once; each is what it is afterwards, and says so itself.

        :param orders: which of them are to be paused or stopped.
        """
        given = orders or {}
        paused = given.get(ITSELF) == PAUSED
        starting: dict[str, Deferred[Any]] = {}
        for link in links:
            order = given.get(link.name, "")
            if refusal_of(link) or order == STOPPED:
                continue
            started: Deferred[Any] = link.start()
            starting[_key(link.name)] = started
            if paused or order == PAUSED:
                # Before it has connected, and so before it moves anything.
                starting[_key(link.name)] = gatherResults([started, link.pause()])
        await self._steps.take("start", starting, START_S)

    # --- stop

    async def _stop(self, seconds: float) -> None:
        if self.state is BridgeState.STOPPED:
            return
        self._enter(BridgeState.STOPPING)
        await self._close(seconds)
        self._enter(BridgeState.STOPPED)

    async def _close(self, seconds: float) -> None:
        parts, self._parts = self._parts, None
        if parts is None:
            return
        self.last_config = parts.config
        until = self._reactor.seconds() + seconds
        stopping = {
            _key(link.name): link.stop()
            for link in parts.links.values()
            if link.status().state not in _STOPPED
        }
        await self._steps.take("stop", stopping, seconds * _FOR_LINKS)
        closing = {
            "dead message queues": parts.dead_messages.stop(),
            "transactions": parts.coordination.stop(),
        }
        await self._steps.take("stop", closing, (until - self._reactor.seconds()) / 2)
        # It waits for connections that are still in use, but no longer than we do.
        left = max(0.0, until - self._reactor.seconds())
        await self._steps.take("stop", {"connections": parts.connections.close()}, left)
        if self._balances is not None:
            await self._balances.flush()

    # --- pause and resume

    async def _pause(self) -> None:
        if self.state in _PAUSED_STATES:
            return
        parts = self._parts
        if self.state is not BridgeState.STARTED or parts is None:
            raise self._wrong_state("pause")
        self._enter(BridgeState.PAUSING)
        running = {
            _key(link.name): link.pause()
            for link in parts.links.values()
            if link.status().state in _RUNNING
        }
        self._pausing = this = object()
        when_all_ended(running, lambda: self._paused(this))
        try:
            await self._steps.take("pause", running, STOP_S)
        except BaseException:
            self._pausing = None
            self._enter(BridgeState.STARTED)
            raise

    def _paused(self, pausing: object) -> None:
        # It may be an earlier one: the bridge was resumed, and is paused again.
        if pausing is self._pausing and self.state is BridgeState.PAUSING:
            self._enter(BridgeState.PAUSED)

    async def _resume(self) -> None:
        if self.state is BridgeState.STARTED:
            return
        parts = self._parts
        if self.state not in _PAUSED_STATES or parts is None:
            raise self._wrong_state("resume")
        before = self.state
        self._enter(BridgeState.RESUMING)
        try:
            await self._resume_links(parts)
        except BaseException:
            self._enter(before)
            raise
        self._enter(BridgeState.STARTED)

    async def _resume_links(self, parts: Parts) -> None:
        paused = [link for link in parts.links.values() if link.status().state in _PAUSED]
        resuming = {_key(link.name): link.resume() for link in paused}
        # Those that a reload made while all was paused have never run.
        held, parts.held = parts.held, set()
        resuming |= {
            _key(name): parts.links[name].start() for name in held if _key(name) not in resuming
        }
        await self._steps.take("resume", resuming, START_S)

    # --- reload

    async def _reload(self) -> Changes:
        parts = self._parts
        if self.state not in (BridgeState.STARTED, *_PAUSED_STATES) or parts is None:
            raise self._wrong_state("reload", "its file is read at each start")
        _, config = await self._configured()
        different = changes(parts.config, config)
        # A refused link may be refused no more: a transformer's class may have been brought.
        anew = {
            *different.changed,
            *(name for name in different.unchanged if refusal_of(parts.links[name])),
        }
        if different.dmqs:
            # What may be refused comes first.
            parts.prepare_dead_messages(config)
        # Of a paused bridge, those that it has paused; else what an operator has paused or stopped
        # by itself is not started.
        run = (
            (*_RUNNING, LinkState.FAILED)
            if self.state is BridgeState.STARTED
            else (*_RUNNING, LinkState.FAILED, *_PAUSED)
        )
        began = {name for name, link in parts.links.items() if link.status().state in run}
        ending = [parts.links[name] for name in (*different.removed, *anew)]
        stopping = {
            _key(link.name): link.stop() for link in ending if link.status().state not in _STOPPED
        }
        await self._steps.take("stop", stopping, STOP_S)
        for name in anew:
            before = parts.links[name].status()
            if before.enabled and name not in began and name not in parts.held:
                self._log.info(
                    "link {link} did not run, and does not: it was stopped or paused by an operator",
                    link=name,
                )
        was_disabled = {name for name in anew if not parts.links[name].config.enabled}
        fresh = parts.replace(config, {*different.added, *anew}, different.connection_factories)
        if different.dmqs:
            await self._steps.take(
                "start", {"dead message queues": parts.dead_messages.start()}, START_S
            )
            await self._steps.take(
                "stop", {"dead message queues": parts.dead_messages.stop_replaced()}, START_S
            )
        self._refuse(fresh)
        wanted = {*different.added, *began, *was_disabled, *parts.held}
        starting = [link for link in fresh if link.config.enabled and link.name in wanted]
        if self.state is BridgeState.STARTED:
            await self._start_links(starting)
        else:
            parts.held = {link.name for link in starting if not refusal_of(link)}
        self._log.info(
            "bridge {name} was reloaded: links added {added}, removed {removed}, changed {changed}, unchanged {unchanged}",
            name=self.name,
            added=", ".join(different.added) or "none",
            removed=", ".join(different.removed) or "none",
            changed=", ".join(different.changed) or "none",
            unchanged=", ".join(different.unchanged) or "none",
        )
        return different


class _Steps:
    """Waits for links and the rest of a bridge that start or stop.

    It waits for all at once, with a timeout, and logs what failed or is late.

    :param state: the state of the link of that name; None without one.
    """

    def __init__(self, reactor: Any, log: Logger, state: Callable[[str], LinkState | None]) -> None:
        self._reactor: Final = reactor
        self._log: Final = log
        self._state: Final = state

    async def take(self, operation: str, awaited: dict[str, Deferred[Any]], seconds: float) -> None:
        """Wait for these at most so long, and tell of what failed or is late.

        :param operation: ``start``, ``stop``, ``pause`` or ``resume``.
        :param awaited: by what they are called, a link as :func:`key` says.
        """
        ended = await gather(self._reactor, awaited, max(0.0, seconds), self._failed)
        for name, failure in ended.failures.items():
            self._failed(name, failure)
        for name in ended.late:
            if operation in ("start", "resume"):
                self._log.info("{name}: still being started", name=name)
            else:
                self._log.warn(
                    "{name}: did not {operation} in time", name=name, operation=operation
                )

    def _failed(self, name: str, failure: Failure) -> None:
        if self._state(name.removeprefix(_LINK)) in (LinkState.FAILED, LinkState.RETRYING):
            # It has told.
            return
        if not isinstance(failure.value, WrongState):
            self._log.failure("{name} failed", failure, name=name)
        else:
            self._log.warn("{error}", error=failure.value)


def _key(link: str) -> str:
    """What a link is called where what was asked of it is awaited."""
    return f"{_LINK}{link}"
