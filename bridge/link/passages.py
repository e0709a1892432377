"""Which way the messages of a link pass, by its quality of service and by what its two providers
can do.

Owns that choice. A link that transfers once and only once does so

*by XA*, where both sides take part in XA transactions, or
*by the target's memory*, where the target keeps a message that is sent twice with one duplicate id only once, and the source gives a message the same
    id each time that it delivers it: sent, then acknowledged, each message with a duplicate id made
    of where it comes from and its own id.

Any other pair is refused, by name. What a STOMP broker can do shows when it is connected, so a link
that needs that finds it out then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from twisted.logger import Logger

from bridge.config.model import Link, QualityOfService
from bridge.connections.administered import AdministeredFactory
from bridge.connections.connections import Connections
from bridge.link.batch import LinkObserver
from bridge.link.errors import EndLost, NotOnce
from bridge.link.passage import Passage, PlainPassage
from bridge.link.pump import Buries, Journey, Pump
from bridge.link.source import Source
from bridge.link.transfer import Transfer
from bridge.once.coordination import Coordination
from bridge.once.passage import OncePassage
from bridge.once.pump import OncePump
from bridge.once.undecided import Undecided
from bridge.status import LinkCounters, OnceBy
from gateway.instance import crashpoints
from gateway.messaging.errors import MessagingError


@dataclass(frozen=True, slots=True)
class Passages:
    """The ways of one link.

    :param source: the source's factory. :param target: likewise. :param connections: the bridge's.
        :param coordination: likewise.
    :param observer: is told each step of each batch.
    :param refused: told why the target refuses how many messages, which are dead.
    """

    reactor: Any
    link: Link
    source: AdministeredFactory
    target: AdministeredFactory
    connections: Connections
    coordination: Coordination
    transfer: Transfer
    dead_queues: Buries
    counters: LinkCounters
    journey: Journey
    log: Logger
    observer: LinkObserver
    refused: Callable[[MessagingError, int], None] = lambda cause, count: None

    def choose(self, lost: Callable[[EndLost], None]) -> Passage:
        """The way for one run of the link, whose connection factories have been found.

        :param lost: called if the target's connection ends.
        :raises NotOnce: see there.
        :raises TransactionError: the coordinator's log cannot be opened.
        """
        quality = self.link.quality_of_service
        # It may have gone another way before.
        self.transfer.marks_duplicates = False
        if quality is not QualityOfService.ONCE_AND_ONLY_ONCE:
            return self._plain(quality, lost)
        if self.source.provider.capabilities.xa and self.target.provider.capabilities.xa:
            return self._by_xa(lost)
        if self.source.embedded or self.target.embedded:
            # What is known already need not wait for a connection.
            self._check_memory(connected=False)
        self.transfer.marks_duplicates = True
        return _ByMemory(
            self._plain(QualityOfService.DUPLICATES_OK, lost),
            lambda: self._check_memory(connected=True),
        )

    def _plain(self, quality: QualityOfService, lost: Callable[[EndLost], None]) -> PlainPassage:
        pump = Pump(
            self.reactor,
            self.link.name,
            quality,
            self.transfer,
            self.dead_queues,
            self.counters,
            self.journey,
            self.log,
            self.observer,
            self.refused,
        )
        return PlainPassage(
            self.reactor,
            self.link,
            self.target,
            self.connections,
            pump,
            lost,
            lambda: crashpoints.hit(crashpoints.AFTER_SEND),
        )

    def _by_xa(self, lost: Callable[[EndLost], None]) -> OncePassage:
        coordinator = self.coordination.coordinator()
        under_way = self.coordination.under_way(
            self.link.name, lambda: Undecided(self.link.name, self.dead_queues, self.log)
        )
        pump = OncePump(
            self.reactor,
            self.link.name,
            self.link.batch_size,
            self.source.config.ref_name,
            self.target.config.ref_name,
            coordinator,
            self.transfer,
            self.dead_queues,
            under_way,
            self.counters,
            self.journey,
            self.log,
            self.observer,
        )
        return OncePassage(
            self.reactor,
            self.link,
            self.source,
            self.target,
            self.connections,
            self.coordination,
            pump,
            under_way,
            lost,
        )

    def _check_memory(self, connected: bool) -> None:
        """:raises NotOnce: the target forgets what it has, or the source gives no lasting ids."""
        source, target = self.source, self.target
        lacks = []
        if not target.provider.capabilities.duplicate_ids and (connected or target.kind != "stomp"):
            lacks.append(
                f"its target, connection-factory '{target.config.ref_name}' ({target.product}), neither takes part in XA transactions "
                "nor remembers duplicate ids"
            )
        if not source.provider.capabilities.stable_ids and (connected or source.kind != "stomp"):
            lacks.append(
                f"its source, connection-factory '{source.config.ref_name}' ({source.product}), neither takes part in XA transactions "
                "nor gives a message the same id each time"
            )
        if lacks:
            raise NotOnce(
                self.link.name,
                f"{'; '.join(lacks)}. Expected XA on both sides (for JMS: a lookup-name that finds an XAConnectionFactory), "
                'or a target that remembers, or else quality-of-service="DUPLICATES_OK"',
            )


class _ByMemory:
    """The plain way to a target that remembers.

    :param check: raises what either side lacks, now that both are connected.
    """

    once_by: Final = OnceBy.DUPLICATE_IDS
    transaction: Final = None

    def __init__(self, plain: PlainPassage, check: Callable[[], None]) -> None:
        self.target: Final = plain.target
        self.pump: Final = plain.pump
        self.open_source: Final = plain.open_source
        self.run: Final = plain.run
        self.failed: Final = plain.failed
        self._check: Final = check

    async def connected(self, source: Source) -> None:
        """:raises NotOnce:"""
        self._check()
