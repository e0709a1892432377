"""Chooses how a link delivers, by its quality of service and providers.

A link that transfers once and only once does so

*by XA*, where both sides take part in XA transactions, or
*by duplicate ids*, where the target keeps a message that is sent twice with one duplicate id only
    once, and the source gives a message the same id each time that it delivers it. The message is
    sent and then acknowledged, with a duplicate id made of where it comes from and its own id.

Any other pair is refused, by name. What a STOMP broker can do is known once it is connected, so a
link that needs that finds it out then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.logger import Logger

from bridge.config.model import Link, QualityOfService
from bridge.connections.administered import AdministeredFactory
from bridge.connections.connections import Connections
from bridge.journal import LinkLines
from bridge.link.delivery.acknowledge import Acknowledge
from bridge.link.delivery.coordination import Coordination
from bridge.link.delivery.unfinished import Undecided
from bridge.link.delivery.xa import XADelivery
from bridge.link.errors import EndLost, NotOnce
from bridge.link.pump import Buries, Delivery, Pump
from bridge.link.target import Target
from bridge.link.transfer import Transfer
from bridge.status import LinkCounters, OnceBy
from gateway.instance import crashpoints
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Message


@dataclass(frozen=True, slots=True)
class DeliveryGuarantee:
    """What one link guarantees, and the pump that keeps it.

    :param source: the source's factory. :param target: likewise. :param connections: the bridge's.
        :param coordination: likewise.
    :param transferred: is given each batch that is done on both sides: its messages, as received
        and as sent. :param lines: the link's lines in the journal.
    :param refused: is told why the target refuses how many messages, which are dead.
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
    transferred: Callable[[Sequence[tuple[Message, Message]]], None]
    log: Logger
    lines: LinkLines
    refused: Callable[[MessagingError, int], None]

    def new_pump(self, lost: Callable[[EndLost], None]) -> Pump:
        """Return the pump for one run of the link with its factories.

        :param lost: called if the target's connection ends.
        :raises NotOnce: see there.
        :raises TransactionError: the coordinator's log cannot be opened.
        """
        return Pump(
            self.reactor,
            self.link.name,
            self._delivery(lost),
            self.transfer,
            self.dead_queues,
            self.counters,
            self.transferred,
            self.log,
            self.lines,
        )

    def _delivery(self, lost: Callable[[EndLost], None]) -> Delivery:
        # It may have been delivered otherwise before.
        self.transfer.marks_duplicates = False
        if self.link.quality_of_service is not QualityOfService.ONCE_AND_ONLY_ONCE:
            return self._acknowledge(lost, None, lambda: None)
        if self.source.provider.capabilities.xa and self.target.provider.capabilities.xa:
            return self._xa(lost)
        if self.source.embedded or self.target.embedded:
            # What is known already need not wait for a connection.
            self._check_duplicate_ids(connected=False)
        self.transfer.marks_duplicates = True
        return self._acknowledge(
            lost, OnceBy.DUPLICATE_IDS, lambda: self._check_duplicate_ids(connected=True)
        )

    def _acknowledge(
        self,
        lost: Callable[[EndLost], None],
        once_by: OnceBy | None,
        check_connected: Callable[[], None],
    ) -> Acknowledge:
        link, factory = self.link, self.target
        stays = link.target.stay_connected
        target = Target(
            self.connections.for_sending(
                factory, stays, link.target.clientid, f"link {link.name}, target"
            ),
            factory.provider,
            stays,
            # The embedded broker makes a run durable at once in any case.
            link.batch_size > 1 and not factory.embedded,
            lost,
            lambda: crashpoints.hit("link.after-send"),
        )
        return Acknowledge(self.reactor, link, target, once_by, self.refused, check_connected)

    def _xa(self, lost: Callable[[EndLost], None]) -> XADelivery:
        name = self.link.name
        unfinished = self.coordination.unfinished(
            name, lambda: Undecided(name, self.dead_queues, self.log)
        )
        return XADelivery(
            self.reactor,
            self.link,
            self.source,
            self.target,
            self.connections,
            self.coordination,
            unfinished,
            lost,
        )

    def _check_duplicate_ids(self, connected: bool) -> None:
        """Check that duplicate ids can be relied on.

        :raises NotOnce: the target forgets what it has, or the source gives no lasting ids.
        """
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
