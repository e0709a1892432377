"""The JMS bridges of a cluster of brokers: which of them this broker runs.

Part of the composition: it joins the table of bridges' owners in the cluster's database with the
bridges of this process. The rules are those of Open MQ's "JMS Bridges in High Availability (HA)
Broker Clusters":

* a bridge of ``imq.bridge.activelist`` that the table does not have is added to it as this broker's,
* one that the table has as another broker's is not run here,
* one that the table has as this broker's is run, whether it is in the list or not.

The table is looked at again and again, so that a bridge may come from another broker, or go to one,
while both run. Beyond the original, bridges can be given away and taken from a dead broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.config.document import of_document
from bridge.config.model import Bridge as BridgeConfiguration
from bridge.config.problems import ConfigurationError
from bridge.link.status import BridgeState
from bridge.manager import Bridge, BridgeServiceManager
from gateway.admin.service.bridge_resources import ElsewhereOwned
from gateway.admin.service.requests import Refused
from gateway.bridges import BridgeFailed, BridgeLoader, announcements, refusals
from gateway.broker.properties.jdbc import JdbcOptions
from gateway.broker.store.interface import StoreError, StoreFailed, StoreVersionUnknown
from gateway.cluster_configurations import ComparedConfigurations
from gateway.configuration import Configuration, settings_now
from gateway.exit_codes import StartRefused
from gateway.instance import settings_general
from gateway.instance.passfile import PassfileError
from gateway.instance.setting_types import is_of_a_bridge
from gateway.instance.settings import Settings, SettingsError
from gateway.reactor.deferreds import alone_on_thread

if TYPE_CHECKING:
    from gateway.broker.store.postgresql.cluster import ClusterRows, OtherBroker, OwnedBridge, View

#: Seconds between two looks at the cluster.
_LOOK_SECONDS: Final = 1.0
#: Where two looks are further apart, in seconds, what was seen of others before counts no more.
_BLIND_SECONDS: Final = 5.0
#: Seconds between two looks for a bridge that is on its way.
_ARRIVAL_LOOK_SECONDS: Final = 0.2
#: Seconds in which the next owner of a bridge is to have begun to run it.
_ARRIVAL_SECONDS: Final = 30.0
#: States in which a bridge stays.
_STEADY: Final = (BridgeState.STARTED, BridgeState.PAUSED, BridgeState.STOPPED)

_P = ParamSpec("_P")
_T = TypeVar("_T")


class ClusterBridges:
    """Has this broker run the JMS bridges that it owns in its cluster.

    Implements :class:`~gateway.admin.service.bridge_resources.BridgeOwnership`.

    :param rows: the cluster's tables; used on a thread, by this alone.
    :param say: tells the operator something.
    """

    _log = Logger(namespace="gateway.cluster")

    def __init__(
        self,
        reactor: Any,
        configuration: Configuration,
        options: JdbcOptions,
        rows: ClusterRows,
        say: Callable[[str], None],
    ) -> None:
        self._reactor: Final = reactor
        self._configuration: Final = configuration
        self._me: Final = options.broker
        self._cluster: Final = options.cluster
        self._rows: Final = rows
        self._say: Final = say
        self._bridges: BridgeServiceManager | None = None
        self._loader: BridgeLoader | None = None
        #: One look at a time, and none while a bridge is given away.
        self._turn: Final = DeferredLock()
        #: One call of the tables at a time.
        self._asking: Final = DeferredLock()
        self._view: View | None = None
        self._configurations: Final = ComparedConfigurations(
            reactor, configuration, rows, self._ask, options.cluster
        )
        #: Bridges that are to start, and have not tried yet.
        self._expected: Final[set[str]] = set()
        #: Bridges that go to another broker, or have gone: none may be started here.
        self._leaving: Final[set[str]] = set()
        #: Others' last signs of life, and when they were first seen.
        self._signs: Final[dict[str, tuple[str, float]]] = {}
        self._looked_at = 0.0
        self._next: IDelayedCall | None = None
        self._trouble = ""
        self._stopped = False

    # --- its life

    def use(self, bridges: BridgeServiceManager, loader: BridgeLoader) -> None:
        """Have these be the bridges of this process.

        To be called once, before all else.
        """
        self._bridges, self._loader = bridges, loader

    async def begin(self) -> None:
        """Tell the cluster of this broker, and load its bridges.

        Starts none of them. While the database cannot be reached, this waits.

        :raises StartRefused: a setting that may not differ between brokers does, or the cluster's
            tables cannot be used.
        """
        bridges, loader = self._parts()
        settings = self._configuration.settings
        names = (
            [
                name
                for name in settings[settings_general.BRIDGE_ACTIVELIST]
                if name != settings_general.STOMP
            ]
            if settings[settings_general.BRIDGE_ENABLED]
            else []
        )
        shared = settings.shared().items()
        common = {name: value for name, value in shared if not is_of_a_bridge(name)}
        # One that may not start gets no bridge.
        seen = await self._entered(common, ())
        if seen is not None:
            self._configurations.check(common, seen)
        view = self._view = await self._entered(common, names)
        if view is None:
            return
        for name in names:
            owner = view.bridges[name]
            if owner.broker != self._me:
                self._say(
                    f"bridge {name} is removed from {settings_general.BRIDGE_ACTIVELIST.name}: "
                    f"broker {owner.broker} owns it in cluster {self._cluster} since {owner.since}"
                )
        for name in sorted(self._mine(view), key=lambda name: (name not in names, name)):
            if name not in names:
                self._say(
                    f"bridge {name} is added to {settings_general.BRIDGE_ACTIVELIST.name}: "
                    f"this broker, {self._me}, owns it in cluster {self._cluster}"
                )
            self._add(bridges, loader, view.bridges[name])
        # A web server that does not give a bridge's file keeps no client waiting.
        publishing = Deferred.fromCoroutine(self._guarded(self._configurations.publish))
        publishing.addErrback(self._defect)
        publishing.addBoth(lambda _: self._look_later())

    async def _entered(self, common: Mapping[str, str], names: Sequence[str]) -> View | None:
        """:raises StartRefused: the cluster's tables cannot be used."""
        while not self._stopped:
            try:
                return await self._ask(self._rows.enter, common, names)
            except (StoreFailed, StoreVersionUnknown) as error:
                raise StartRefused([str(error)]) from error
            except StoreError as error:
                self._tell_trouble(error)
                await deferLater(self._reactor, _LOOK_SECONDS)
        return None

    async def stop(self) -> None:
        """Look no more, and close the session with the database. Bridges run on."""
        self._stopped = True
        if self._next is not None and self._next.active():
            self._next.cancel()
        await self._turn.acquire()
        self._turn.release()
        await self._ask(self._rows.close)

    def read_again(self) -> None:
        """Tell the cluster anew how bridges are configured here, at the next look."""
        self._configurations.heard = -1

    def _look_later(self) -> None:
        if not self._stopped:
            self._next = self._reactor.callLater(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        looking = Deferred.fromCoroutine(self._guarded(self._looked))
        looking.addErrback(self._defect)
        looking.addBoth(lambda _: self._look_later())

    async def _guarded(self, step: Callable[[View], Any]) -> None:
        """Do it with the cluster as it is, while nothing else is done.

        The database may be out of reach.
        """
        await self._turn.acquire()
        try:
            if self._stopped:
                return
            self._view = view = await self._ask(self._rows.look)
            await step(view)
            self._trouble = ""
        except StoreError as error:
            # Nothing was seen of the others meanwhile.
            self._signs.clear()
            self._tell_trouble(error)
        finally:
            self._turn.release()

    def _defect(self, failure: Failure) -> None:
        self._log.failure("the look at cluster {cluster} failed", failure, cluster=self._cluster)

    def _tell_trouble(self, error: StoreError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._log.error("{error}", error=self._trouble)

    async def _ask(self, call: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
        """Call the tables, on a thread. :raises StoreError:"""
        return await alone_on_thread(self._reactor, self._asking, call, *arguments, **named)

    # --- whose bridges these are

    async def _looked(self, view: View) -> None:
        bridges, loader = self._parts()
        for bridge in self._jms():
            owner = view.bridges.get(bridge.name)
            if owner is None or owner.broker != self._me:
                self._leaving.add(bridge.name)
                await bridge.stop()
                self._drop(bridge.name)
                whose = "no broker's" if owner is None else f"broker {owner.broker}'s"
                self._say(f"bridge {bridge.name} is {whose} now, and was stopped here")
        here = {bridge.name for bridge in bridges.bridges}
        for name in self._mine(view):
            if name not in here:
                self._say(f"bridge {name} is this broker's now")
                self._add(bridges, loader, view.bridges[name])
        for bridge in self._jms():
            waits = bridge.name in self._expected and not bridge.problem
            if waits and bridge.state is BridgeState.STOPPED:
                starting = Deferred.fromCoroutine(self._started(bridge))
                starting.addErrback(self._defect)
        heard = self._configurations.heard
        if view.reading > heard or heard < 0:
            await self._configurations.publish(view)
        await self._tell_states(view)
        await self._take_from_the_dead(view)

    def _add(
        self, bridges: BridgeServiceManager, loader: BridgeLoader, owned: OwnedBridge
    ) -> Bridge:
        self._leaving.discard(owned.name)
        bridge = loader.load(owned.name)
        automatic = (
            loader.is_automatic(bridge)
            if not owned.wanted
            else owned.wanted != BridgeState.STOPPED.value
        )
        bridges.add(bridge, automatic=automatic)
        if automatic:
            self._expected.add(owned.name)
        return bridge

    def _drop(self, name: str) -> None:
        bridges, loader = self._parts()
        bridges.remove(name)
        loader.unload(name)
        self._expected.discard(name)

    async def _started(self, bridge: Bridge) -> None:
        bridges, _ = self._parts()
        outcomes = await bridges.autostart(bridge.name)
        # From now on it is stopped only if somebody wants it so.
        self._expected.discard(bridge.name)
        for outcome in outcomes:
            for line in announcements(bridge) if outcome.error is None else refusals(outcome):
                self._say(line)

    async def _tell_states(self, view: View) -> None:
        for bridge in self._jms():
            problem, state = bridge.problem, bridge.state
            if problem or state is not BridgeState.STOPPED:
                self._expected.discard(bridge.name)
            owned = view.bridges.get(bridge.name)
            waits = bridge.name in self._expected or state not in _STEADY
            if owned is None or owned.broker != self._me or waits:
                continue
            if (owned.state, owned.problem) != (state.value, problem):
                await self._ask(self._rows.told, bridge.name, state.value, problem)

    async def _take_from_the_dead(self, view: View) -> None:
        settings = self._configuration.settings
        after = settings[settings_general.BRIDGE_TAKEOVER_AFTER]
        now = self._reactor.seconds()
        if now - self._looked_at > _BLIND_SECONDS:
            # This process was suspended, and has seen nothing of the others either.
            self._signs.clear()
        self._looked_at = now
        for id, other in view.brokers.items():
            if id not in self._signs or self._signs[id][0] != other.sign:
                self._signs[id] = (other.sign, now)
        if not after or not settings[settings_general.BRIDGE_ENABLED]:
            return
        for name in settings[settings_general.BRIDGE_STANDBYLIST]:
            owned = view.bridges.get(name)
            dead = None if owned is None else view.brokers.get(owned.broker)
            # Without a sign its tables are gone, and with them what it has decided.
            if dead is None or not dead.sign or now - self._signs[dead.id][1] < after:
                continue
            if await self._ask(self._rows.take, name, dead):
                self._say(
                    f"bridge {name} was taken from broker {dead.id}, of which nothing was seen for {after} seconds"
                )

    # --- how they are configured

    async def admit(self, settings: Settings, config: BridgeConfiguration) -> None:
        """Refuse a configuration that other brokers of the cluster have otherwise.

        Before that they are asked to read theirs again.

        While the database cannot be reached, this waits.

        :raises ConfigurationError: it differs; names both sides.
        :raises BridgeFailed: the bridge is being given to another broker, or is that one's; or the
            database may not be asked.
        """
        wrong: list[str] | None = None
        while wrong is None:
            if config.name in self._leaving:
                raise BridgeFailed(f"bridge {config.name} goes to another broker")
            try:
                wrong = await self._configurations.different(settings, config)
            except StoreFailed as error:
                raise BridgeFailed(f"bridge {config.name} is not compared: {error}") from error
            except StoreError as error:
                self._tell_trouble(error)
                await deferLater(self._reactor, _LOOK_SECONDS)
        if wrong:
            raise ConfigurationError([of_document(config.origin, expected) for expected in wrong])

    # --- for operators

    @property
    def broker(self) -> str:
        """This broker's id."""
        return self._me

    def elsewhere(self) -> Sequence[ElsewhereOwned]:
        """Return the bridges that other brokers own, as they were seen last."""
        if self._view is None:
            return []
        return [
            ElsewhereOwned(owned.name, owned.broker, owned.state, owned.problem)
            for owned in self._view.bridges.values()
            if owned.broker != self._me
        ]

    async def transfer(self, name: str, to: str) -> ElsewhereOwned:
        """Give a bridge to another broker, and wait until that runs it.

        It is stopped here, and begins there with its transactions.

        :raises Refused: the bridge is not this broker's, the other one cannot have it, or a link of
            it has a side in the broker of this instance.
        """
        bridge, config, settings = await self._movable(name, to)
        try:
            wrong = await self._configurations.different(settings, config, to)
        except StoreError as error:
            raise _unreachable(error) from error
        if wrong:
            raise _refused(f"bridge {name} stays here: expected {'; '.join(wrong)}")
        self._log.info("bridge {name} goes to broker {to}", name=name, to=to)
        await self._turn.acquire()
        try:
            if bridge not in self._jms():
                raise _refused(f"bridge {name} has gone to another broker meanwhile")
            await self._give(bridge, to)
        finally:
            self._turn.release()
        self._say(f"bridge {name} is broker {to}'s now")
        return await self._arrived(name, to)

    async def _give(self, bridge: Bridge, to: str) -> None:
        """:raises Refused: the database cannot be reached, or does not do it."""
        name, state = bridge.name, bridge.state
        runs = state not in (BridgeState.STOPPED, BridgeState.STOPPING) or name in self._expected
        wanted = BridgeState.STARTED if runs else BridgeState.STOPPED
        self._leaving.add(name)
        try:
            await bridge.stop()
            await self._ask(self._rows.give, name, to, wanted.value)
        except BaseException as error:
            # Whether it was done is not known; the next look tells, and starts it if not.
            self._leaving.discard(name)
            if runs:
                self._expected.add(name)
            if isinstance(error, StoreError):
                raise _unreachable(error) from error
            raise
        self._drop(name)

    async def _movable(self, name: str, to: str) -> tuple[Bridge, BridgeConfiguration, Settings]:
        """:raises Refused: the bridge is not to be given to that broker."""
        try:
            view = self._view = await self._ask(self._rows.look)
        except StoreError as error:
            raise _unreachable(error) from error
        owned = view.bridges.get(name)
        bridge = next((bridge for bridge in self._jms() if bridge.name == name), None)
        if owned is None or (owned.broker == self._me and bridge is None):
            raise Refused(
                f"there is no JMS bridge {name} in cluster {self._cluster}",
                "unknown_bridge",
                HTTPStatus.NOT_FOUND,
            )
        if owned.broker != self._me or bridge is None:
            raise _refused(f"broker {owned.broker} owns bridge {name}: ask it there")
        if to == self._me:
            raise _refused(f"this broker, {to}, owns bridge {name} already")
        other = view.brokers.get(to)
        if other is None or not other.owned:
            raise _refused(_no_broker(to, other, view.brokers))
        try:
            settings = settings_now(self._configuration)
            config = await self._configurations.loaded(settings, name)
        except (SettingsError, PassfileError, ConfigurationError) as error:
            raise _refused(str(error)) from error
        file = self._configuration.layout.transaction_log(name)
        if file.exists():
            raise _refused(
                f"bridge {name} stays here: its transaction log is still {file}, which would not go along; "
                "the start of the bridge has it go on in the database"
            )
        for link in config.links:
            for side, factory in (
                ("source", link.source.connection_factory),
                ("target", link.target.connection_factory),
            ):
                if factory.embedded:
                    raise _refused(
                        f"bridge {name} stays here: the {side} of link {link.name} is in this broker, {self._me}, and what is there would not go along"
                    )
        return bridge, config, settings

    async def _arrived(self, name: str, to: str) -> ElsewhereOwned:
        until = self._reactor.seconds() + _ARRIVAL_SECONDS
        while not self._stopped:
            owned = None if self._view is None else self._view.bridges.get(name)
            gone = owned is not None and owned.broker != self._me
            if owned is not None and gone and (owned.broker != to or owned.state):
                return ElsewhereOwned(name, owned.broker, owned.state, owned.problem)
            if self._reactor.seconds() >= until:
                break
            await deferLater(self._reactor, _ARRIVAL_LOOK_SECONDS)
        raise _refused(
            f"bridge {name} is broker {to}'s now, and that has not begun to run it within {_ARRIVAL_SECONDS:g} seconds: its log tells why"
        )

    # --- parts

    def _parts(self) -> tuple[BridgeServiceManager, BridgeLoader]:
        if self._bridges is None or self._loader is None:
            raise RuntimeError("it has not begun")
        return self._bridges, self._loader

    def _mine(self, view: View) -> list[str]:
        """The bridges that are to be here."""
        if not self._configuration.settings[settings_general.BRIDGE_ENABLED]:
            return []
        return [name for name, owned in view.bridges.items() if owned.broker == self._me]

    def _jms(self) -> list[Bridge]:
        bridges, _ = self._parts()
        return [bridge for bridge in bridges.bridges if bridge.name != settings_general.STOMP]


def _no_broker(to: str, other: OtherBroker | None, brokers: Mapping[str, OtherBroker]) -> str:
    if other is not None:
        return f"no process owns broker {to} now; the last was {other.node or 'none'}"
    known = ", ".join(brokers) or "none"
    return f"there is no broker {to} in the cluster; the others that have been here: {known}"


def _refused(text: str) -> Refused:
    return Refused(text, "wrong_state", HTTPStatus.CONFLICT)


def _unreachable(error: StoreError) -> Refused:
    return Refused(str(error), "database", HTTPStatus.SERVICE_UNAVAILABLE)
