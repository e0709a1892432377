"""The opened broker of an instance, with its store and its journal.

Owns how these are opened from the settings, how the broker counts into the memory budget, and the
order in which they are closed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred

from bridge.orders import StandingOrders
from gateway.bridges import KeptByBridges
from gateway.broker.broker import Broker
from gateway.broker.core.waiting.memory import Memory
from gateway.broker.journal.journey import Journey
from gateway.broker.properties import settings as broker_settings
from gateway.broker.properties.jdbc import JdbcOptions
from gateway.broker.recovery import open_broker
from gateway.broker.security.access import AccessRules
from gateway.broker.security.repositories import Repositories
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.broker.store.interface import Store, StoreError
from gateway.broker.store.memory import MemoryStore
from gateway.broker.store.sqlite import SqliteStore
from gateway.configuration import Configuration
from gateway.instance import crashpoints
from gateway.instance.layout import Layout, make_directory
from gateway.instance.memory.budget import MemoryBudget, State
from gateway.instance.settings import Settings
from gateway.journal.journal import LEVEL, Journal, JournalOptions
from gateway.journal.schema import Level, run_name
from gateway.messaging.errors import ProviderUnavailable, StorageFailed
from gateway.reactor.clocks import wall_clock
from gateway.reactor.turn import Turn
from gateway.standing_orders import OrdersInDatabase, OrdersInFiles
from gateway.tracing.exporter import Tracing
from gateway.tracing.settings import TracingOptions

if TYPE_CHECKING:
    from gateway.broker.store.postgresql.cluster import ClusterRows
    from gateway.broker.store.postgresql.decisions import DecisionRows, OwnerIdentity
    from gateway.broker.store.postgresql.store import PostgresqlStore
    from gateway.cluster import ClusterBridges


class OpenedBroker:
    """The broker, its store and its journal, opened.

    :param memory: the process's budget, in which the broker's messages are counted from now on.
    :param failed: called when the store fails later.
    :param wanted: called with the name of another process that wants to take the broker over.
    :raises StoreHeld: another process owns the broker.
    :raises StoreError: the store cannot be used.
    :raises OSError: the journal's folder cannot be made.
    """

    def __init__(
        self,
        reactor: Any,
        configuration: Configuration,
        users: Repositories,
        rules: AccessRules,
        memory: MemoryBudget,
        failed: Callable[[StoreError], None],
        wanted: Callable[[str], None],
    ) -> None:
        layout, settings = configuration.layout, configuration.settings
        self._reactor: Final = reactor
        # First, because a broker that is open must be closed.
        make_directory(layout.journal)
        in_memory = settings[broker_settings.PERSIST_STORE] == "memory"
        store: Store
        #: What bridges keep beyond the process.
        self.kept = KeptByBridges(orders=StandingOrders(OrdersInFiles(layout)))
        self._cluster: ClusterRows | None = None
        if in_memory:
            store = MemoryStore(reactor)
        elif configuration.jdbc is not None:
            store = opened = _postgresql_store(reactor, configuration.jdbc, wanted)
        else:
            store = _durable_store(reactor, layout)
        window = Memory.within(memory.limits[State.WAITING])
        self.turn: Final = Turn(reactor)
        self._broker: Final = open_broker(
            reactor,
            self.turn,
            store,
            configuration.broker,
            failed,
            spills=not in_memory,
            memory=window,
        )
        if configuration.jdbc is not None:
            self._share(opened.identity, configuration.jdbc)
            # The first job starts the store's thread, which gives signs of life from then on.
            store.fetch([], lambda found: None)
        wall = wall_clock(reactor)
        tracing = TracingOptions.read(settings)
        self._tracing: Final = (
            Tracing(reactor, tracing, layout.instance) if tracing.endpoint else None
        )
        #: What links tell it, too.
        self.journal: Final = Journal(
            reactor,
            layout.journal,
            run_name(self._broker.store_id, int(wall() * 1_000_000)),
            layout.instance,
            JournalOptions.read(settings),
            wall=wall,
            tracer=self._tracing,
        )
        self.journal.level_changed = partial(tell, self._broker, self.journal)
        self.journal.level_changed()
        self.provider: Final = EmbeddedProvider(self._broker, users, rules, os.urandom)
        self._count_into(memory, window)

    def _share(self, owner: OwnerIdentity, options: JdbcOptions) -> None:
        """Have what bridges keep in the database, beside the broker's rows."""
        # psycopg is an extra.
        from gateway.broker.store.postgresql.cluster import ClusterRows
        from gateway.broker.store.postgresql.decisions import DecisionRows

        def decisions(bridge: str) -> DecisionRows:
            return DecisionRows(owner, bridge, options.reconnect_seconds)

        orders = OrdersInDatabase(self._reactor, owner)
        self.kept = KeptByBridges(decisions, StandingOrders(orders))
        if options.cluster:
            self._cluster = ClusterRows(owner, options.broker, options.cluster)

    def _count_into(self, memory: MemoryBudget, window: Memory) -> None:
        broker = self._broker
        memory.waiting_messages = broker.waiting_octets
        memory.unacknowledged_messages = lambda: window.unacknowledged
        memory.transactions_inside = lambda: window.transactions
        memory.consumers_held_back = lambda: len(broker.unacknowledged.held_back)
        window.octets_left = lambda: memory.left(State.UNACKNOWLEDGED)
        window.report_excess = memory.press

    def cluster_bridges(
        self, configuration: Configuration, say: Callable[[str], None]
    ) -> ClusterBridges | None:
        """Make what says which JMS bridges are this broker's.

        It is None without a cluster.

        :param say: tells the operator something.
        """
        if self._cluster is None or configuration.jdbc is None:
            return None
        # Its modules take long to import.
        from gateway.cluster import ClusterBridges

        return ClusterBridges(self._reactor, configuration, configuration.jdbc, self._cluster, say)

    def set_journal_level(self, settings: Settings) -> None:
        """Apply the level that the settings ask for now.

        The other settings of the journal are for the next start.
        """
        self.journal.set_level(Level(settings[LEVEL]))

    def troubles(self) -> Iterator[str]:
        """Yield why clients cannot be served now, sentences."""
        broker = self._broker
        if broker.reach.since_ms:
            yield "the database does not answer: nothing is confirmed and nothing is delivered"
        if broker.commits.broken is not None:
            yield f"the message store has failed: {broker.commits.broken}"

    def fail(self, error: StoreError) -> None:
        """Tell all clients that the store has failed."""
        self.provider.fail(StorageFailed(str(error)))

    async def close(self) -> None:
        """Tell all clients that the gateway stops, and write what is left."""
        self.provider.fail(ProviderUnavailable("the gateway stops"))
        if self._broker.commits.broken is None:
            closed: Deferred[None] = Deferred()
            self._broker.close(lambda: closed.callback(None))
            await closed
        journey = self._broker.dead_letters.journal
        if journey is not None:
            journey.flush()
        await self.journal.close()
        if self._tracing is not None:
            await self._tracing.stop()


def tell(broker: Broker, journal: Journal) -> None:
    """Tell the journal of messages what its level asks, from now on."""
    if broker.dead_letters.journal is not None:
        broker.dead_letters.journal.flush()
    everything = journal.level is Level.ALL
    journey = None
    if journal.level is not Level.OFF:
        journey = Journey(
            journal,
            everything,
            broker.turn,
            broker.commits,
            broker.rows,
            broker.numbering,
            broker.find,
        )
    broker.dead_letters.journal = journey
    told = journey if everything else None
    broker.acceptance.journey = broker.core.journal = told
    broker.commits.on_stored = None if told is None else told.stored


def _postgresql_store(
    reactor: Any, options: JdbcOptions, wanted: Callable[[str], None]
) -> PostgresqlStore:
    # psycopg is an extra.
    from gateway.broker.store.postgresql.connecting import database_of
    from gateway.broker.store.postgresql.store import PostgresqlStore

    store = PostgresqlStore(
        database_of(options),
        options.node,
        reactor,
        reconnect_seconds=options.reconnect_seconds,
        beat_seconds=options.beat_seconds,
        lease_seconds=options.lease_seconds,
        # One that stands by waits without blocking the reactor.
        taking_seconds=0.0 if options.stands_by else 3.0,
    )
    store.on_wanted = wanted
    return store


def _durable_store(reactor: Any, layout: Layout) -> SqliteStore:
    path, made = str(layout.messages), str(layout.store_made)
    # A hook for tests; CONTRIBUTING.rst says what it is for.
    try:
        armed = crashpoints.arm_as_asked(crashpoints.STORE_VARIABLE)
    except ValueError as error:
        raise StoreError(str(error)) from error
    if not armed:
        return SqliteStore(path, reactor, marker=made)
    early = crashpoints.EARLY_CHECKPOINT_OCTETS
    return SqliteStore(path, reactor, marker=made, checkpoint_octets=early)
