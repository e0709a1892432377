"""THE COMPOSITION ROOT: builds, starts, reloads and stops the gateway.

It builds the gateway from its configuration. It is the only place that knows every part. Below it
reactor, clock and randomness are parameters.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.logger import Logger, LogLevel, globalLogBeginner
from twisted.python.failure import Failure

from bridge.manager import BridgeServiceManager
from certs.contexts import ServerContextFactory
from certs.files import CertificateFileError
from gateway import __version__
from gateway.admin import assembly
from gateway.admin.service.service import AdminService
from gateway.bridges import (
    BridgeLoader,
    StompParts,
    announcements,
    end_revoked,
    idle,
    idle_because,
    listed,
    read_again_by,
    refusals,
    stomp_troubles,
    unlisted,
)
from gateway.broker.properties.jdbc import JdbcOptions
from gateway.broker.security.access import AccessError, AccessRules
from gateway.broker.security.users import UsersError
from gateway.broker.store.interface import (
    StoreDamaged,
    StoreError,
    StoreHeld,
    StoreVersionUnknown,
)
from gateway.configuration import Configuration, reread
from gateway.exit_codes import EXIT_REFUSED, EXIT_STORE_FAILED, StartRefused, exit_with
from gateway.instance import settings_general
from gateway.instance.events import Events
from gateway.instance.health import Health, HealthService
from gateway.instance.layout import InstanceLock, LayoutError
from gateway.instance.levels import Level
from gateway.instance.listening import cannot_listen, server_endpoint
from gateway.instance.logs import Logs, open_logs, set_levels
from gateway.instance.memory import host_memory
from gateway.instance.memory.budget import MemoryBudget
from gateway.instance.memory.freed import Trimming, malloc_trim
from gateway.instance.portmapper import SERVICE, port_mapper
from gateway.instance.signals import Signals
from gateway.instance.systemd import Supervised
from gateway.journal.runs import complete_runs
from gateway.messaging import message
from gateway.messaging.selector import selector
from gateway.messaging.transformer import MessageTransformer
from gateway.opened_broker import OpenedBroker
from gateway.ownership import Owning, StandingBy, hurry_clients
from gateway.reactor.clocks import make_monotonic
from gateway.reactor.deferreds import gather
from gateway.reactor.polls import serve_at_once
from gateway.repositories import made_repositories
from gateway.rereading import fetch_before, read_again
from gateway.shared_files import sharing
from gateway.stomp import settings as stomp_settings
from gateway.stomp.transport.tls import NoTLS
from gateway.tls import Certificates, ServerContexts
from gateway.transformer_loading import ExtensionError, load_transformer

if TYPE_CHECKING:
    from gateway.cluster import ClusterBridges

#: Seconds that bridges may take to stop before what is left of them is cut off; the store is closed
#: in order all the same.
STOP_SECONDS: Final = 8.0
#: Seconds that the rest may take after them.
CLOSE_SECONDS: Final = 1.0
#: A thread that wants the interpreter waits this long for the busy one; the store's thread must not
#: wait five milliseconds a step.
SWITCH_INTERVAL: Final = 0.0005
#: Seconds after which a process watches the owner again that could not become the owner itself.
WATCH_AGAIN_SECONDS: Final = 0.5


class Gateway(Service):
    """One instance, as a service.

    Made from a good configuration; making it reads users, access rules, certificates and
    transformer, and starts nothing.

    :param reactor: the reactor it runs in.
    :raises StartRefused: a file that it needs cannot be used.
    """

    log = Logger(namespace="gateway.app")

    def __init__(self, reactor: Any, configuration: Configuration) -> None:
        self.configuration = configuration
        self.exit_code = 0
        #: Shows a line of a level to the starter of the gateway, if that still reads.
        self.announce: Callable[[str, Level], None] | None = None
        #: Called once when :meth:`startService` is done, with the reason if it was refused.
        self.started: Callable[[StartRefused | None], None] | None = None
        #: Warnings and worse are shown on the standard error, too.
        self.foreground = False
        make_monotonic(reactor)
        serve_at_once(reactor)
        self._reactor = reactor
        self._signals = Signals(reactor)
        layout, settings = configuration.layout, configuration.settings
        self._users = made_repositories(reactor, layout, settings)
        self._rules = AccessRules(layout.access_control)
        self._tls: Final = ServerContexts(layout, settings)
        self._admin_tls: ServerContextFactory | None = None
        self._transformer: MessageTransformer | None = None
        self._lock: InstanceLock | None = None
        self._trimming: Trimming | None = None
        self._logs: Logs | None = None
        self._opened: OpenedBroker | None = None
        self._stopping: Deferred[None] | None = None
        #: Which JMS bridges are this broker's, in a cluster; None without one.
        self._cluster: ClusterBridges | None = None
        #: While another process owns the broker.
        self._standing_by: StandingBy | None = None
        #: Clients can be served, unless the database says otherwise.
        self._serving = False
        self._health = HealthService(reactor, self.health)
        self._supervised = Supervised(reactor, os.environ, lambda: self.health().sentence)
        #: Has users and access rules be those of the broker's other processes.
        self._sharing = sharing(reactor, configuration, self.reload)
        #: The bridge service manager; None until the start.
        self.bridges: BridgeServiceManager | None = None
        #: What operators' commands ask; None until the start.
        self.admin: AdminService | None = None
        self.port_mapper = port_mapper(reactor, layout, settings, __version__)
        self._port_mapper_port: Any = None
        try:
            self._users.load()
            self._rules.load()
            self._admin_tls = assembly.admin_contexts(layout, settings)
            if configuration.stomp is not None:
                self._tls.prepare(configuration.stomp.listeners)
                name = settings[stomp_settings.MESSAGE_TRANSFORMER]
                if name:
                    self._transformer = load_transformer(
                        name, stomp_settings.MESSAGE_TRANSFORMER.name, layout.lib_ext
                    )
        except (UsersError, AccessError, CertificateFileError, NoTLS, ExtensionError) as error:
            raise StartRefused([str(error)]) from error
        self._certificates: Final = Certificates(
            reactor,
            layout,
            settings,
            self._tls,
            self._admin_tls,
            lambda: end_revoked(self.bridges.bridges if self.bridges else (), self._tls.is_revoked),
        )

    # --- starting

    def run(self) -> None:
        """Start in the foreground.

        What fails is announced, and ends the reactor with an exit code.
        """
        try:
            self.startService()
        except StartRefused as refused:
            self._refuse(refused)
        except Exception as error:  # noqa: BLE001
            # A defect: nothing may be left half started.
            self.log.failure("the gateway could not be started")
            self._refuse(StartRefused([f"the gateway could not be started: {error!r}"]))
        else:
            # Else Twisted keeps the last events for ever, and prints critical ones beside what is
            # announced.
            globalLogBeginner.beginLoggingTo((), discardBuffer=True, redirectStandardIO=False)
        self._reactor.addSystemEventTrigger("before", "shutdown", self.stopService)

    def startService(self) -> None:
        """Take the instance, open the store, and begin to listen.

        Where another process owns the broker, stand by instead, if the settings say so.

        :raises StartRefused: the instance is in use, or the store cannot be used. Nothing is left
            running.
        """
        if self.running:
            return
        self._supervised.starting("the store is opened")
        try:
            with self._supervised.busy():
                self._open_or_refuse()
        except StartRefused as refused:
            self._release()
            self._tell_started(refused)
            raise
        self._tell_started(None)
        self._certificates.start()
        super().startService()  # type: ignore[no-untyped-call]
        sys.setswitchinterval(SWITCH_INTERVAL)
        again = fetch_before(self._reactor, self.configuration.central, self.reload)
        self._signals.on_hang_up(self._supervised.reloading(again))
        self._reactor.callWhenRunning(self._signals.end_once)
        listening = Deferred.fromCoroutine(self._listen())
        listening.addErrback(self._not_listening)

    def _tell_started(self, refused: StartRefused | None) -> None:
        told, self.started = self.started, None
        if told is not None:
            told(refused)

    def _open_or_refuse(self) -> None:
        """:raises StartRefused:"""
        try:
            self._open()
        except (LayoutError, StoreError, UsersError, AccessError) as error:
            raise StartRefused([str(error)]) from error
        except OSError as error:
            raise StartRefused([f"{error.filename}: {error.strerror or error}"]) from error

    def _open(self) -> None:
        configuration = self.configuration
        layout, settings = configuration.layout, configuration.settings
        self._lock = layout.lock()
        self._logs = logs = open_logs(layout, settings, shown=self.foreground)
        logs.start()
        if configuration.notes:
            # What is new; the other notes say whose passcode is what.
            self.log.info("{note}", note=configuration.notes[0])
        for warning in (*configuration.warnings, *configuration.passing_warnings):
            self.log.warn("{warning}", warning=warning, announced=True)
        if self._sharing.begin():
            self._users.load()
            self._rules.load()
        memory = settings_general.make_memory_budget(settings, host_memory.memory(), self._reactor)
        self.log.info("memory for clients: {octets} bytes", octets=memory.total)
        try:
            self._own(logs, memory)
        except StoreHeld as held:
            if configuration.jdbc is None or not configuration.jdbc.stands_by:
                raise
            self.log.info("{held}", held=str(held))
            self._stand_by(configuration.jdbc, partial(self._own, logs, memory), logs.events)

    def _own(self, logs: Logs, memory: MemoryBudget) -> None:
        """Build what the owner of the broker has.

        :raises StoreHeld: another process owns it.
        :raises StoreError, OSError: it cannot be opened.
        """
        configuration = self.configuration
        self._opened = opened = OpenedBroker(
            self._reactor,
            configuration,
            self._users,
            self._rules,
            memory,
            self._store_failed,
            self._wanted_by,
        )
        self._trimming = Trimming(self._reactor, memory.in_all, malloc_trim())
        self._trimming.start()
        management = assembly.management(self._reactor, configuration, self._users, self._rules)
        register, answer = self.port_mapper.register, management.ask
        stomp = StompParts(opened.turn, self._tls, self._transformer, register, memory, answer)
        self._cluster = cluster = opened.cluster_bridges(configuration, self._say)
        loader = BridgeLoader(
            self._reactor,
            configuration,
            logs,
            opened.provider,
            stomp,
            opened.journal,
            opened.kept,
            None if cluster is None else cluster.admit,
        )
        self.bridges = loader.load_all(listed(configuration))
        if cluster is not None:
            cluster.use(self.bridges, loader)
        self.admin = assembly.admin_service(
            self._reactor,
            configuration,
            self.bridges,
            loader,
            opened.provider,
            assembly.Admission(self._users, self._rules, self.reload_users),
            management,
            logs,
            self.port_mapper,
            self._admin_tls,
            opened.journal,
            memory,
            Owning(self._reactor, configuration, self._stop_reactor),
            cluster,
            lambda: self.health().reasons,
            self._certificates.ends,
        )

    def _stand_by(self, options: JdbcOptions, own: Callable[[], None], events: Events) -> None:
        """Build what a process has that stands by.

        :param own: as :meth:`_own`.
        """

        def free() -> None:
            if self._stopping is None:
                taken = Deferred.fromCoroutine(self._take_over(standing_by, own))
                taken.addErrback(self._not_listening)

        try:
            # What it wrote as an owner before is to be read beside what the next one writes.
            complete_runs(self.configuration.layout.journal)
        except OSError as error:
            self.log.error("the journal of an earlier run cannot be read yet: {error}", error=error)
        standing_by = StandingBy(self._reactor, options, free, self._say, self._stop_reactor)
        self._standing_by = standing_by
        self.admin = assembly.standby_admin_service(
            self._reactor,
            self.configuration,
            standing_by,
            assembly.Admission(self._users, self._rules, self.reload_users),
            self.port_mapper,
            self._admin_tls,
            events,
        )

    async def _take_over(self, standing_by: StandingBy, own: Callable[[], None]) -> None:
        """Become the owner, if no other process has."""
        admin, began = self.admin, self._reactor.seconds()
        try:
            opens = "this process opens the broker, to own it"
            with self._health.answered_beside(opens), self._supervised.busy():
                own()
        except (StoreDamaged, StoreVersionUnknown) as error:
            raise StartRefused([str(error)]) from error
        except StoreError as error:
            # Another process was faster, or the database has gone.
            self.log.info("{error}", error=str(error))
            self._reactor.callLater(WATCH_AGAIN_SECONDS, standing_by.watch)
            return
        self._say(
            f"this process owns the broker now; it was opened in {self._reactor.seconds() - began:.2f} s",
            event="owner.changed",
        )
        standing_by.stop()
        self._standing_by = None
        if admin is not None:
            # The operator's connection may stay as long as it likes.
            admin.stop().addErrback(lambda failure: self._not_stopped("admin service", failure))
        await self._serve()

    async def _listen(self) -> None:
        settings = self.configuration.settings
        host = settings[settings_general.PORTMAPPER_HOSTNAME] or settings[settings_general.HOSTNAME]
        number = settings[settings_general.PORTMAPPER_PORT]
        self._port_mapper_port = await self.port_mapper.listen(
            server_endpoint(self._reactor, host, number, service=SERVICE)
        )
        self._say(f"port mapper on {host or '*'}:{self._port_mapper_port.getHost().port}")
        await self._listen_for_health()
        if self._standing_by is None:
            await self._serve()
            return
        await self._start_admin()
        self._standing_by.watch()
        self._supervised.ready()

    async def _listen_for_health(self) -> None:
        try:
            found = await self._health.start_as(self.configuration.settings)
        except CannotListenError as error:
            raise StartRefused([cannot_listen("health service", error)]) from error
        if found is not None:
            self.port_mapper.register("health", "http", "HEALTH", found[1], {})
            self._say(f"health on {found[0] or '*'}:{found[1]}")

    async def _start_admin(self) -> None:
        if self.admin is None:
            raise RuntimeError("nothing is open")
        try:
            await self.admin.start()
        except CannotListenError as error:
            self._say_wrong(cannot_listen("admin service", error))

    async def _serve(self) -> None:
        """Begin to serve operators and clients, as the owner of the broker."""
        configuration = self.configuration
        bridges = self.bridges
        if bridges is None:
            raise RuntimeError("nothing is open")
        # Before the bridges, whose start may be watched.
        await self._start_admin()
        if self._cluster is not None:
            await self._cluster.begin()
        for line in unlisted(configuration):
            self.log.warn("{line}", line=line, announced=self.announce is not None)
            if self.announce is not None:
                self.announce(line, Level.WARNING)
        outcomes = await bridges.autostart()
        if self._stopping is not None:
            return
        for outcome in outcomes:
            for line in announcements(outcome.bridge) if outcome.error is None else ():
                self._say(line)
        for outcome in outcomes:
            for line in refusals(outcome):
                self._say_wrong(line, bridge=outcome.bridge.name)
        failed = {outcome.bridge.name for outcome in outcomes if outcome.error is not None}
        if failed and len(failed) == len(bridges.bridges):
            raise StartRefused(["no bridge could be started"])
        host_memory.collect_rarely()
        self._serving = True
        kind = "pure Python" if str(message.__file__).endswith(".py") else "compiled"
        self._say(
            f"stomp-gateway {__version__} ({kind}) is ready; instance {self.configuration.layout.directory}",
            event="process.started",
        )
        self._supervised.ready()
        # Clients are served meanwhile; the first one's selector would keep all of them waiting.
        self._reactor.callInThread(selector.prepare)
        if idle(bridges.bridges):
            why = idle_because(configuration.settings, bridges.bridges)
            self.log.warn("no bridge runs, so no client can connect{why}", why=why)

    def _say(self, line: str, **facts: object) -> None:
        self.log.info("{line}", line=line, **facts)
        if self.announce is not None:
            self.announce(line, Level.INFO)

    def _say_wrong(self, line: str, level: LogLevel = LogLevel.error, **facts: object) -> None:
        # What names a bridge is in its log, and by that in the instance's.
        announced = self.announce is not None
        self.log.emit(level, "{line}", line=line, announced=announced, **facts)
        if self.announce is not None:
            self.announce(line, Level.SEVERE)

    def _not_listening(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, StartRefused):
            self._refuse(error)
        elif isinstance(error, CannotListenError):
            self._refuse(StartRefused([cannot_listen("port mapper", error)]))
        else:
            self.log.failure("the gateway could not be started", failure)
            self._refuse(StartRefused([f"the gateway could not be started: {error!r}"]))

    def _refuse(self, refused: StartRefused) -> None:
        for line in refused.lines:
            self._say_wrong(line)
        self._end(EXIT_REFUSED)

    def _end(self, exit_code: int) -> None:
        """End the process with this code, under twistd, too."""
        self.exit_code = exit_code
        # twistd cannot be told a code: registered now, this runs after all its own clearing up.
        atexit.register(exit_with, exit_code)
        if self._reactor.running:
            self._reactor.callLater(0, self._stop_reactor)
        else:
            self._reactor.callWhenRunning(self._stop_reactor)

    def _stop_reactor(self) -> None:
        if self._reactor.running and self._stopping is None:
            self._signals.stop_reactor()

    # --- while it runs

    def health(self) -> Health:
        """Return how this process is, for those who ask its health service."""
        if self._stopping is not None:
            return Health("stopping", ("the process ends",))
        if self._standing_by is not None:
            return Health("standby", (self._standing_by.why,))
        if not self._serving or self._opened is None or self.bridges is None:
            return Health("starting", ("the process has not started everything yet",))
        return Health("owner", (*self._opened.troubles(), *stomp_troubles(self.bridges.bridges)))

    def reload(self) -> None:
        """Read again what may change, and reopen the log files.

        These are users, access rules, certificates, listeners and the levels of the logs. What
        cannot be used stays as it was.

        Connections stay, except those of users who may no longer connect and of clients whose
        certificates are revoked.
        """
        logs = self._logs
        if self._stopping is not None or logs is None:
            return
        self.reload_users()
        files = [("log files", logs.reopen), ("settings", lambda: self._set_levels(logs))]
        read_again([*self._certificates.parts(), *files])
        if self._cluster is not None:
            self._cluster.read_again()
        if self.bridges is not None:
            read_again_by(self.bridges.bridges, self._tls.is_revoked)
        self._supervised.reloaded()

    def reload_users(self) -> None:
        """Read users and access rules again, also for those who are connected."""
        read_again([("users", self._users.reload), ("access rules", self._rules.reload)])
        self._sharing.given_here()
        if self._opened is not None:
            self._opened.provider.readmit()

    def _set_levels(self, logs: Logs) -> None:
        settings = reread(self.configuration)
        set_levels(logs, settings)
        if self._opened is not None:
            self._opened.set_journal_level(settings)

    def _store_failed(self, error: StoreError) -> None:
        told = f"the message store has failed: {error}"
        self._say_wrong(told, LogLevel.critical, event="store.failed")
        if self._opened is not None:
            self._opened.fail(error)
        self._end(EXIT_STORE_FAILED)

    def _wanted_by(self, node: str) -> None:
        """Another process wants to own the broker: end, so that it can."""
        self._say(f"{node} takes this broker over; this process ends", event="owner.changed")
        self._stop_reactor()

    # --- stopping

    def stopService(self) -> Deferred[None]:
        """Stop within ten seconds.

        Accept no more, tell clients, make durable what was asked, let go of the instance.
        """
        if self._stopping is None:
            super().stopService()  # type: ignore[no-untyped-call]
            self._stopping = Deferred.fromCoroutine(self._stop())
        waiter: Deferred[None] = Deferred()

        def stopped(result: object) -> object:
            waiter.callback(None)
            return result

        self._stopping.addBoth(stopped)
        return waiter

    async def _stop(self) -> None:
        self._supervised.stopping()
        self.log.info("the process ends", event="process.stopping")
        if self._logs is not None:
            self._logs.events.close()
        # What administrators have asked for is answered while bridges stop, if it can be.
        closing: dict[str, Deferred[Any]] = (
            {} if self.admin is None else {"admin service": self.admin.stop()}
        )
        closing["sharing"] = Deferred.fromCoroutine(self._sharing.stop())
        if self._standing_by is not None:
            self._standing_by.stop()
        if self._cluster is not None:
            closing["cluster"] = Deferred.fromCoroutine(self._cluster.stop())
        if self.bridges is not None:
            hurry_clients(self._reactor, self.configuration.jdbc, self.bridges)
            await self.bridges.shut_down(STOP_SECONDS)
        closing["health service"] = maybeDeferred(self._health.stop)
        if self._port_mapper_port is not None:
            self.port_mapper.close_connections()
            closing["port mapper"] = maybeDeferred(self._port_mapper_port.stopListening)
        ended = await gather(self._reactor, closing, CLOSE_SECONDS, self._not_stopped)
        for name, failure in ended.failures.items():
            self._not_stopped(name, failure)
        if self._opened is not None:
            await self._opened.close()
        self.log.info("stopped")
        self._release()

    def _not_stopped(self, name: str, failure: Failure) -> None:
        self.log.failure("the {name} could not be stopped in order", failure, name=name)

    def _release(self) -> None:
        self._certificates.stop()
        self._supervised.close()
        self._users.close()
        if self._trimming is not None:
            self._trimming.stop()
        if self._logs is not None:
            self._logs.stop()
            self._logs = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None
