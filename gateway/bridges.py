"""Make the bridges of an instance from its settings, for their manager.

Part of the composition: it joins the JMS bridges, which know no STOMP, and the STOMP bridge, which
knows no other bridge. The modules of JMS bridges take long to import, so that happens only where
there is one.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from cryptography.x509 import Certificate
from twisted.internet.defer import Deferred, ensureDeferred, fail, succeed
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.config.problems import ConfigurationError, Severity
from bridge.link.status import BridgeState, WrongState
from bridge.manager import STOP_S, Bridge, BridgeLink, BridgeServiceManager, NotReloadable, Outcome
from bridge.orders import StandingOrders
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.configuration import Configuration, reread, settings_now, stomp_options
from gateway.exit_codes import StartRefused
from gateway.front.reach import Behind
from gateway.front.settings import FrontFailed, FrontOptions
from gateway.instance import crashpoints, settings_general
from gateway.instance.logs import Logs, open_bridge_log
from gateway.instance.memory.budget import MemoryBudget
from gateway.instance.setting_types import BRIDGES, is_of_a_bridge
from gateway.instance.settings import Settings, SettingsError
from gateway.messaging.destination import Destination
from gateway.messaging.transformer import MessageTransformer
from gateway.reactor.clocks import wall_ms
from gateway.reactor.deferreds import deferred, gather
from gateway.reactor.turn import Turn
from gateway.stomp import service
from gateway.stomp.listeners import Listener
from gateway.stomp.management import Answer
from gateway.stomp.open_listeners import ListenersRefused, RegisterPort
from gateway.stomp.service import StompService
from gateway.stomp.settings import StompOptions
from gateway.stomp.transport.tls import NoTLS
from gateway.transformer_loading import load_transformer

if TYPE_CHECKING:
    from bridge.config.changes import Changes
    from bridge.jms_bridge import Admit
    from bridge.link.delivery.background_recovery import BackgroundRecovery
    from gateway.broker.store.postgresql.decisions import DecisionRows
    from gateway.fronts import Front
    from gateway.journal.journal import Journal
    from gateway.transaction_log import DatabaseLog, PlainLog

_log: Final = Logger(namespace="gateway.bridges")


class BridgeFailed(Exception):
    """The bridge cannot be started. ``str`` is one line for each reason."""


class UnusableBridge:
    """A bridge of the active list that cannot be made.

    Starting it fails and says why.

    :param type: empty where that is what is wrong.
    :param reason: one line for each reason.
    """

    def __init__(self, name: str, type: str, reason: str) -> None:
        self.name: Final = name
        self.type: Final = type
        self.problem: Final = reason
        self.state: Final = BridgeState.STOPPED

    def start(self) -> Deferred[None]:
        """Fails with :class:`BridgeFailed`."""
        return fail(BridgeFailed(self.problem))

    def stop(self, seconds: float = STOP_S) -> Deferred[None]:
        return succeed(None)

    def pause(self) -> Deferred[None]:
        return fail(WrongState(f"bridge {self.name}", "pause", self.state.value))

    def resume(self) -> Deferred[None]:
        return fail(WrongState(f"bridge {self.name}", "resume", self.state.value))

    def links(self) -> Sequence[BridgeLink]:
        return ()

    def reload(self) -> Deferred[Changes]:
        return fail(
            NotReloadable(
                self.name,
                "it was not loaded when the gateway was started, which must be started anew",
            )
        )


class StompBridge:
    """The STOMP bridge as one of the bridges.

    :param options: reads the settings again.
    :param front: the brokers behind it, None for that of this instance alone.
    """

    type: Final = "STOMP"

    def __init__(
        self,
        reactor: Any,
        stomp: StompService,
        options: Callable[[], StompOptions],
        front: Front | None = None,
    ) -> None:
        self.name: Final = settings_general.STOMP
        self.service: Final = stomp
        self.problem = ""
        self._reactor: Final = reactor
        self._options: Final = options
        self._front: Final = front

    @property
    def state(self) -> BridgeState:
        return BridgeState(self.service.state.value)

    @property
    def listening(self) -> list[str]:
        """Where it listens, one line for each listener."""
        return self.service.listeners.said

    @property
    def behind(self) -> list[Behind]:
        """Other brokers that its clients use."""
        return [] if self._front is None else self._front.behind()

    def broker_of(self, destination: Destination) -> Behind | None:
        """Return the other broker that has a destination; None without one."""
        return None if self._front is None else self._front.broker_of(destination)

    @deferred
    async def start(self) -> None:
        """As :meth:`~gateway.stomp.service.StompService.start`.

        :returns: fails with BridgeFailed, WrongState.
        """
        if self.state is BridgeState.STARTED:
            return
        self.problem = ""
        try:
            if self._front is not None and self.state is BridgeState.STOPPED:
                await self._front.open()
            await self._translated(self.service.start)
        except FrontFailed as error:
            self.problem = f"bridge {self.name}: {error}"
            raise BridgeFailed(self.problem) from error
        except BridgeFailed as error:
            self.problem = str(error)
            raise

    @deferred
    async def stop(self, seconds: float = STOP_S) -> None:
        ended = await gather(
            self._reactor, {self.name: ensureDeferred(self.service.stop())}, seconds, _failed_late
        )
        if ended.late:
            _log.warn(
                "clients of bridge {name} have not gone in {seconds} seconds",
                name=self.name,
                seconds=f"{seconds:g}",
            )
        if self._front is not None:
            self._front.close()
        for failure in ended.failures.values():
            failure.raiseException()

    def pause(self) -> Deferred[None]:
        """As :meth:`~gateway.stomp.service.StompService.pause`.

        :returns: fails with WrongState.
        """
        return Deferred.fromCoroutine(self._translated(self.service.pause))

    @deferred
    async def resume(self) -> None:
        """As :meth:`~gateway.stomp.service.StompService.resume`.

        :returns: fails with BridgeFailed, WrongState.
        """
        if self.state is not BridgeState.STARTED:
            await self._translated(self.service.resume)

    def links(self) -> Sequence[BridgeLink]:
        """None: it has clients."""
        return ()

    def reload(self) -> Deferred[Changes]:
        """Fails with :class:`~bridge.manager.NotReloadable`."""
        reason = "its settings are read when the gateway is started; 'imqcmd reload svc' has it read its listeners and the limits of users again, SIGHUP users, access rules, certificates and levels, too; to have it read the file of other brokers again, stop and start it"
        return fail(NotReloadable(self.name, reason))

    async def read_again(self) -> None:
        """Listen where settings say now, with the limits of users that they say.

        :raises ListenersRefused: they are wrong; all stays as it was.
        """
        options = self._options()
        self.service.change_limits(options.transport.user_limits)
        await self.service.listeners.change(options.listeners)

    async def _translated(self, operation: Callable[[], Awaitable[None]]) -> None:
        try:
            await operation()
        except service.WrongState as error:
            raise WrongState(f"bridge {self.name}", error.operation, error.state.value) from error
        except NoTLS as error:
            raise BridgeFailed(str(error)) from error
        except CannotListenError as error:
            where = f"{error.interface or '*'}:{error.port}"
            raise BridgeFailed(
                f"bridge {self.name} cannot listen on {where}: {error.socketError}"
            ) from error
        except service.NoListener as error:
            raise BridgeFailed(str(error)) from error


def _failed_late(name: str, failure: Failure) -> None:
    _log.failure("bridge {name} did not stop", failure, name=name)


@dataclass(frozen=True)
class StompParts:
    """What the STOMP bridge needs besides what all bridges have.

    :param tls: gives what makes TLS connections for a listener.
    :param transformer: the operator's, or None.
    :param register_port: the port mapper's.
    :param memory: the process's budget; None is no bound.
    :param answer: carries out clients' requests to manage the broker; None where nothing does.
    """

    turn: Turn
    tls: Callable[[Listener], Any]
    transformer: MessageTransformer | None
    register_port: RegisterPort
    memory: MemoryBudget | None = None
    answer: Answer | None = None


@dataclass(frozen=True)
class KeptByBridges:
    """What bridges keep beyond the process.

    :param decisions: makes the rows of a bridge's decision log; None has it in a file.
    :param orders: what operators said of bridges.
    """

    decisions: Callable[[str], DecisionRows] | None = None
    orders: StandingOrders = field(default_factory=StandingOrders)


class BridgeLoader:
    """Makes bridges from the settings, and opens their log files. Starts none.

    :param stomp: what the STOMP bridge needs.
    :param journal: gets what happens to messages on links.
    :param kept: what bridges keep beyond the process.
    :param admit: says whether a JMS bridge may be used as it is configured.
    :raises StartRefused: the environment asks for a crash point that does not exist.
    """

    def __init__(
        self,
        reactor: Any,
        configuration: Configuration,
        logs: Logs,
        provider: EmbeddedProvider,
        stomp: StompParts,
        journal: Journal | None = None,
        kept: KeptByBridges | None = None,
        admit: Admit | None = None,
    ) -> None:
        self._reactor: Final = reactor
        self._configuration: Final = configuration
        self._settings: Final = configuration.settings
        self._logs: Final = logs
        self._provider: Final = provider
        self._parts: Final = stomp
        self._journal: Final = journal
        self._kept: Final = kept or KeptByBridges()
        self._admit: Final = admit
        try:
            crashpoints.arm_as_asked(crashpoints.LINK_VARIABLE)
        except ValueError as error:
            raise StartRefused([str(error)]) from error

    def load_all(self, names: Iterable[str]) -> BridgeServiceManager:
        """Make these, in this order, for their manager."""
        manager = BridgeServiceManager(self._reactor, self._kept.orders)
        for name in names:
            bridge = self.load(name)
            manager.add(bridge, automatic=self.is_automatic(bridge))
        return manager

    def is_automatic(self, bridge: Bridge) -> bool:
        """Whether it starts with the instance.

        One that cannot be made says why when it is started.
        """
        return isinstance(bridge, UnusableBridge) or self._settings.named(
            settings_general.BRIDGE_AUTOSTART, bridge.name
        )

    def load(self, name: str, now: Settings | None = None) -> Bridge:
        """Make the bridge of that name.

        It is an :class:`UnusableBridge` where that cannot be.

        :param now: the settings, where they are others than at the start.
        """
        settings = now or self._settings
        kind = ""
        try:
            if name != settings_general.STOMP and not settings.is_given(
                settings_general.BRIDGE_TYPE, name
            ):
                return UnusableBridge(
                    name,
                    kind,
                    f"{settings_general.BRIDGE_TYPE.full_name(name)} is missing: expected JMS",
                )
            kind = settings_general.bridge_type(settings, name)
            if kind == "JMS":
                wrong = [str(problem) for problem in settings.bridge_problems(name)]
                if wrong:
                    return UnusableBridge(name, kind, "\n".join(wrong))
                return self._jms(name, settings)
            if self._configuration.stomp is None:
                return UnusableBridge(name, kind, "\n".join(self._configuration.stomp_problems))
            return self._stomp(self._configuration.stomp)
        except SettingsError as error:
            return UnusableBridge(name, kind, str(error))
        except OSError as error:
            return UnusableBridge(
                name, kind, f"its log {error.filename} cannot be opened: {error.strerror or error}"
            )

    def unload(self, name: str) -> None:
        """Close the log of a bridge that is stopped and used no more."""
        self._logs.close_bridge(name)

    def _stomp(self, options: StompOptions) -> Bridge:
        parts = self._parts
        detail = open_bridge_log(
            self._logs, self._settings, settings_general.STOMP, ["gateway.stomp"]
        )
        front: Front | None = None
        if FrontOptions.read(self._settings) is not None:
            # Its modules take long to import.
            from gateway.fronts import Front

            front = Front(self._reactor, self._configuration, self._provider, self._logs.redaction)
        stomp = StompService(
            self._reactor,
            parts.turn,
            self._provider if front is None else front.provider,
            options,
            parts.tls,
            parts.transformer,
            parts.register_port,
            Logger(namespace="gateway.stomp"),
            os.urandom,
            detail,
            parts.memory,
            **({} if front is None else {"own": front.own}),
            answer=parts.answer,
        )
        return StompBridge(self._reactor, stomp, partial(_options_now, self._configuration), front)

    def _jms(self, name: str, settings: Settings) -> Bridge:
        from bridge.jms_bridge import JMSBridge
        from bridge.link.balances import Balances
        from bridge.link.journal import BridgeLines
        from gateway.link_balances import BalancesInFile
        from gateway.transaction_log import DatabaseLog, PlainLog

        layout = self._configuration.layout
        log = open_bridge_log(self._logs, settings, name)
        logger = log.logger_for(f"bridge.{name}")
        decisions: DatabaseLog | PlainLog = PlainLog(layout, name)
        if self._kept.decisions is not None and self._configuration.jdbc is not None:
            # A cluster has a bridge once, and its coordinator keeps its name where it goes.
            jdbc = self._configuration.jdbc
            decisions = DatabaseLog(
                partial(self._kept.decisions, name), layout, jdbc.cluster or jdbc.broker, name
            )
        return JMSBridge(
            self._reactor,
            name,
            partial(settings_now, self._configuration),
            layout.etc,
            self._provider,
            partial(load_transformer, folder=layout.lib_ext),
            partial(_coordination, self._reactor, name, logger, decisions),
            logger,
            self._logs.redaction,
            BridgeLines(self._journal),
            self._admit,
            self._kept.orders,
            Balances(
                self._reactor,
                BalancesInFile(self._reactor, layout, name),
                partial(wall_ms, self._reactor),
                logger,
            ),
            layout.lib_ext,
        )


def listed(configuration: Configuration) -> tuple[str, ...]:
    """Return the bridges of ``imq.bridge.activelist``.

    Empty where bridges are switched off. In a cluster of brokers only that of STOMP, which each
    has; which of the others are this broker's, the cluster says.
    """
    settings = configuration.settings
    if not settings[settings_general.BRIDGE_ENABLED]:
        return ()
    names = settings[settings_general.BRIDGE_ACTIVELIST]
    if configuration.is_clustered:
        return tuple(name for name in names if name == settings_general.STOMP)
    return names


def _coordination(
    reactor: Any,
    name: str,
    log: Logger,
    decisions: DatabaseLog | PlainLog,
    settings: Settings,
) -> BackgroundRecovery:
    """Make what coordinates the transactions of a JMS bridge."""
    from bridge.link.delivery.background_recovery import BackgroundRecovery
    from bridge.xa.log.opening import TransactionProperties

    properties, warnings = TransactionProperties.read(settings, name, decisions.synced)
    for warning in warnings:
        log.warn("{warning}", warning=str(warning))
    opened = partial(decisions.open, reactor, properties, log, os.urandom)
    return BackgroundRecovery(reactor, opened, partial(decisions.exists, reactor), log)


def announcements(bridge: Bridge) -> list[str]:
    """Return the lines that announce a bridge that was started."""
    if isinstance(bridge, StompBridge):
        return bridge.listening
    states = [link.status() for link in bridge.links() if link.status().enabled]
    links = (
        ", ".join(f"link {status.name} {status.state.value}" for status in states)
        or "no link is enabled"
    )
    return [f"bridge {bridge.name} {bridge.state.value}: {links}"]


def end_revoked(bridges: Iterable[Bridge], is_revoked: Callable[[Certificate], bool]) -> None:
    """End the connections of STOMP clients whose certificates are revoked."""
    for bridge in bridges:
        if isinstance(bridge, StompBridge):
            bridge.service.end_revoked(is_revoked)


def read_again_by(bridges: Iterable[Bridge], is_revoked: Callable[[Certificate], bool]) -> None:
    """Have STOMP bridges listen where settings say, and end revoked clients.

    Settings that are wrong change nothing; the log says so.

    :param is_revoked: tells of a verified certificate whether it is revoked.
    """

    def failed(failure: Failure) -> None:
        error = failure.value
        if not isinstance(error, ListenersRefused):
            _log.failure("listeners were not changed", failure)
        elif not isinstance(error.__cause__, SettingsError):
            # Else that is told where the levels of the logs are read again.
            problems = "; ".join(str(error).splitlines())
            _log.error(
                "listeners stay as they were: {problems}",
                problems=problems,
                event="configuration.refused",
            )

    end_revoked(bridges, is_revoked)
    for bridge in bridges:
        if isinstance(bridge, StompBridge):
            Deferred.fromCoroutine(bridge.read_again()).addErrback(failed)


def _options_now(configuration: Configuration) -> StompOptions:
    """Read the settings of the STOMP bridge again.

    :raises ListenersRefused: that is wrong.
    """
    try:
        options, problems = stomp_options(reread(configuration))
    except SettingsError as error:
        raise ListenersRefused(str(error)) from error
    if options is None:
        raise ListenersRefused(
            "\n".join(problems)
            or "the STOMP bridge is active no more; restart the gateway, which ends it"
        )
    return options


def refusals(outcome: Outcome) -> list[str]:
    """Return why a bridge was not started: a line for each reason.

    Each names the bridge and says that it is not started.

    Warnings are left out; the bridge logs them itself.
    """
    bridge = f"bridge {outcome.bridge.name}"
    problems = outcome.error.problems if isinstance(outcome.error, ConfigurationError) else []
    warnings = {str(problem) for problem in problems if problem.severity is Severity.WARNING}
    lines = []
    for line in outcome.lines:
        if line.removeprefix(f"{bridge}: ") in warnings:
            continue
        says_so = line.startswith((f"{bridge} ", f"cannot start {bridge}"))
        lines.append(
            line if says_so else f"{bridge} is not started: {line.removeprefix(f'{bridge}: ')}"
        )
    return lines


def unlisted(configuration: Configuration) -> list[str]:
    """Return a warning for each bridge whose settings have no effect.

    Such a bridge is not in ``imq.bridge.activelist``.

    None for the STOMP bridge, as a new instance has settings for it, and none where bridges are
    switched off altogether, nor in a cluster, where each broker has the settings of all bridges.
    """
    settings = configuration.settings
    if configuration.is_clustered or not settings[settings_general.BRIDGE_ENABLED]:
        return []
    listed = settings[settings_general.BRIDGE_ACTIVELIST]
    first: dict[str, tuple[str, str]] = {}
    for full_name, _, source in settings.given():
        if is_of_a_bridge(full_name):
            name = full_name[len(BRIDGES) :].partition(".")[0]
            if name not in (settings_general.STOMP, *listed):
                first.setdefault(name, (source, full_name))
    return [
        f"{source}: {full_name} has no effect: {settings_general.BRIDGE_ACTIVELIST.name} has no {name}, but {', '.join(listed) or 'none at all'}"
        for name, (source, full_name) in first.items()
    ]


def idle(bridges: Sequence[Bridge]) -> bool:
    """Whether no bridge runs."""
    return all(bridge.state is BridgeState.STOPPED for bridge in bridges)


def idle_because(settings: Settings, bridges: Sequence[Bridge]) -> str:
    """Return why no bridge runs, as the end of a sentence.

    It is empty where an error has said it.
    """
    if not settings[settings_general.BRIDGE_ENABLED]:
        return f": {settings_general.BRIDGE_ENABLED.name} is false"
    if not bridges:
        return f": {settings_general.BRIDGE_ACTIVELIST.name} has none"
    if any(bridge.problem for bridge in bridges):
        return ""
    names = ", ".join(
        settings_general.BRIDGE_AUTOSTART.full_name(bridge.name) for bridge in bridges
    )
    return f": {names} {'is' if len(bridges) == 1 else 'are'} false"


def stomp_troubles(bridges: Sequence[Bridge]) -> list[str]:
    """Why the STOMP bridge serves no clients, sentences; empty while it does."""
    stomp = [bridge for bridge in bridges if isinstance(bridge, StompBridge)]
    if all(bridge.state is not BridgeState.STARTED for bridge in stomp):
        return ["the STOMP bridge does not run"]
    behind = [each for bridge in stomp for each in bridge.behind]
    return [each.trouble for each in behind if each.has_all and each.away]
