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
from functools import partial
from typing import Any, Final

from twisted.logger import Logger

from bridge.config.model import Link, QualityOfService
from bridge.connections.administered import AdministeredFactory
from bridge.connections.connections import Connections
from bridge.link.balance import Balance
from bridge.link.delivery.acknowledge import Acknowledge
from bridge.link.delivery.background_recovery import BackgroundRecovery
from bridge.link.delivery.unfinished import LostMessages
from bridge.link.delivery.xa import XADelivery
from bridge.link.errors import EndLost, NotOnce
from bridge.link.journal import LinkLines
from bridge.link.pace import LinkPace
from bridge.link.pump import Buries, Delivery, Pump
from bridge.link.status import LinkCounters, OnceBy
from bridge.link.target import Target
from bridge.link.transfer import Transfer
from gateway.instance import crashpoints
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Message

#: Kinds of factories whose capabilities may not be known before a connection.
_LEARNED: Final = ("stomp", "amqp")


async def new_pump(
    reactor: Any,
    link: Link,
    source: AdministeredFactory,
    target: AdministeredFactory,
    connections: Connections,
    coordination: BackgroundRecovery,
    transfer: Transfer,
    dead_queues: Buries,
    counters: LinkCounters,
    transferred: Callable[[Sequence[tuple[Message, Message]]], None],
    log: Logger,
    lines: LinkLines,
    refused: Callable[[MessagingError, int], None],
    lost: Callable[[EndLost], None],
    balance: Balance,
    pace: LinkPace,
) -> Pump:
    """Return the pump that keeps what a link guarantees, for one run of it.

    :param source: the source's factory.
    :param target: likewise.
    :param connections: the bridge's.
    :param coordination: likewise.
    :param transferred: is given each batch that is done on both sides: its messages, as received
        and as sent.
    :param lines: the link's lines in the journal.
    :param refused: is told why the target refuses how many messages, which are dead.
    :param lost: called if the target's connection ends.
    :param balance: the link's.
    :param pace: likewise.
    :raises NotOnce: see there.
    :raises TransactionError: the coordinator's log cannot be opened.
    """
    name, stays = link.name, link.target.stay_connected
    once = link.quality_of_service is QualityOfService.ONCE_AND_ONLY_ONCE
    by_xa = once and source.provider.capabilities.xa and target.provider.capabilities.xa
    # It may have been delivered otherwise before.
    transfer.marks_duplicates = False
    delivery: Delivery
    if by_xa:
        await coordination.open()
        unfinished = coordination.unfinished(name, lambda: LostMessages(name, dead_queues, log))
        delivery = XADelivery(
            reactor, link, source, target, connections, coordination, unfinished, lost
        )
    else:
        check = partial(_check_duplicate_ids, name, source, target)
        if once and (source.embedded or target.embedded):
            # What is known already need not wait for a connection.
            check(connected=False)
        transfer.marks_duplicates = once
        end = Target(
            connections.for_sending(target, stays, link.target.clientid, f"link {name}, target"),
            target.provider,
            stays,
            # The embedded broker makes a run durable at once in any case.
            link.batch_size > 1 and not target.embedded,
            lost,
            lambda: crashpoints.hit("link.after-send"),
        )
        once_by = OnceBy.DUPLICATE_IDS if once else None
        check_connected = partial(check, connected=True) if once else lambda: None
        one_store = source.embedded and target.embedded
        delivery = Acknowledge(reactor, link, end, one_store, once_by, refused, check_connected)
    return Pump(
        reactor,
        name,
        delivery,
        transfer,
        dead_queues,
        counters,
        transferred,
        log,
        lines,
        balance,
        pace,
    )


def _check_duplicate_ids(
    link: str, source: AdministeredFactory, target: AdministeredFactory, connected: bool
) -> None:
    """Check that duplicate ids can be relied on.

    :raises NotOnce: the target forgets what it has, or the source gives no lasting ids.
    """
    lacks = []
    if not target.provider.capabilities.duplicate_ids and (
        connected or target.kind not in _LEARNED
    ):
        lacks.append(
            f"its target, connection-factory '{target.config.ref_name}' ({target.product}), neither takes part in XA transactions "
            "nor remembers duplicate ids"
        )
    if not source.provider.capabilities.stable_ids and (connected or source.kind not in _LEARNED):
        lacks.append(
            f"its source, connection-factory '{source.config.ref_name}' ({source.product}), neither takes part in XA transactions "
            "nor gives a message the same id each time"
        )
    if lacks:
        raise NotOnce(
            link,
            f"{'; '.join(lacks)}. Expected XA on both sides (for JMS: a lookup-name that finds an XAConnectionFactory), "
            'or a target that remembers, or else quality-of-service="DUPLICATES_OK"',
        )
