"""Why a connection receives nothing, or cannot send.

Plain functions of a connection of the broker and of the STOMP session in front of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.admin.why.cause import (
    Cause,
    CauseKind,
    command,
    counted,
    listing,
    moment,
    quoted,
    spoken,
    why_destination,
)
from gateway.admin.why.consumers import (
    PlaceFacts,
    consumer_causes,
    exclusive_causes,
    group_causes,
)
from gateway.admin.why.destinations import sample_causes, subscription_causes
from gateway.admin.why.facts import Facts, Holder, link_of
from gateway.admin.why.links import link_causes
from gateway.admin.why.selectors import SAMPLE
from gateway.broker.broker import Broker
from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.broker.core.delivery.cursor import Cursor
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.sessions.connection import EmbeddedConnection
from gateway.broker.timing.schedule import Steps
from gateway.messaging.destination import Destination
from gateway.stomp.user_limits import Allowance

#: Consumers of one connection that are looked at.
_MOST_CONSUMERS = 200


def connection_causes(
    broker: Broker, connection: EmbeddedConnection, facts: Facts, found: list[Cause]
) -> Steps[None]:
    """Find why a connection receives nothing or cannot send, in short steps."""
    who = facts.who(connection)
    found += _held_back(connection, who)
    found += _over_rate(facts.allowances.get(id(connection)), who)
    found += _open_transactions(connection, who)
    stomp = facts.sessions.get(id(connection))
    if stomp is not None and stomp.held.is_full:
        found.append(
            Cause(
                CauseKind.FLOW_CONTROL,
                f"The frames of {who} that wait for room are as many as the gateway keeps: nothing more is read from it.",
                {"connection": connection.number},
                "See what holds it back, above.",
            )
        )
    yield
    owner = facts.owners.get(id(connection), "")
    for link in facts.links:
        if owner.startswith(f"bridge {link.status.bridge}, link {link.status.name}, "):
            found += link_causes(link, facts.now_ms)
    consumers: list[EmbeddedConsumer] = [
        consumer
        for session in list(connection.sessions)
        for consumer in session.consumers
        if isinstance(consumer, EmbeddedConsumer)
    ][:_MOST_CONSUMERS]
    elsewhere = 0
    if stomp is not None and stomp.connection is not connection:
        # Behind this gateway another broker has what the embedded one does not.
        elsewhere = len(stomp.subscriptions.by_number) - len(consumers)
    if elsewhere > 0:
        found.append(
            Cause(
                CauseKind.BROKER_BEHIND,
                f"{who[0].upper()}{who[1:]} has {counted(elsewhere, 'subscription')} at another broker behind this gateway, which is not looked at here.",
                {"subscriptions": elsewhere},
                "Ask that broker; whether it can be reached is shown by:",
                command("imqcmd", "doctor"),
            )
        )
    elif consumers or any(session.consumers for session in connection.sessions):
        pass
    elif owner:
        found.append(_of_bridge(connection, owner, who))
    else:
        found.append(
            Cause(
                CauseKind.NO_SUBSCRIPTION,
                f"{who[0].upper()}{who[1:]} has no subscription, so nothing is delivered to it; it has sent {counted(connection.routing.origin.sent)}.",
                {"sent": connection.routing.origin.sent},
                "Have the client SUBSCRIBE; see its connection:",
                command("imqcmd", "query", "cxn", "-n", connection.number),
            )
        )
    for holder in list(facts.holders(consumers)):
        yield
        yield from _of_consumer(broker, holder, facts, found)


def _of_bridge(connection: EmbeddedConnection, owner: str, who: str) -> Cause:
    """Say what a bridge has a connection for that consumes nothing.

    :param owner: ``bridge B, `` and what of it has the connection.
    """
    bridge = owner.removeprefix("bridge ").partition(", ")[0]
    link = link_of(owner)
    what = (
        "only sends: nothing is delivered to it"
        if link is None or owner.endswith(", target")
        else "consumes nothing just now"
    )
    return Cause(
        CauseKind.OF_BRIDGE,
        f"{who[0].upper()}{who[1:]} is a bridge's own and {what}; it has sent {counted(connection.routing.origin.sent)}.",
        {"bridge": bridge, "sent": connection.routing.origin.sent},
        "Nothing needs to be done here; see what has it:",
        command("imqbridgemgr", "query", "bridge", "-bn", bridge)
        if link is None
        else command("imqbridgemgr", "query", "link", "-bn", bridge, "-ln", link[1]),
    )


def _held_back(connection: EmbeddedConnection, who: str) -> Iterator[Cause]:
    reasons: dict[str, None] = {}
    blocked = []
    for session in list(connection.sessions):
        reasons.update(dict.fromkeys(session.held_back()))
        blocked += session.blocked_by()
    if reasons:
        yield Cause(
            CauseKind.FLOW_CONTROL,
            f"What {who} sends is held back: {listing(list(reasons))}.",
            {"connection": connection.number, "reasons": len(reasons)},
            "Ask what holds the destination:" if blocked else "See what the broker says:",
            why_destination(blocked[0]) if blocked else command("imqcmd", "query", "bkr"),
        )


def _over_rate(allowance: Allowance | None, who: str) -> Iterator[Cause]:
    if allowance is None:
        return
    of_one, of_all = f"imq.bridge.stomp.user.{allowance.user}.", "imq.bridge.stomp.limit."
    for rate, done, follows, of in (
        (allowance.sent, ("send", "sent"), "read from", ("messages", "bytes")),
        (
            allowance.delivered,
            ("get", "got"),
            "delivered to",
            ("deliveredMessages", "deliveredBytes"),
        ),
    ):
        if not (wait_s := rate.wait()):
            continue
        may, has = done
        messages, octets = (f"{unit}PerSecond" for unit in of)
        yield Cause(
            CauseKind.USER_RATE,
            f"User {quoted(allowance.user)} may {may} {rate.rates}, and has {has} more: nothing is {follows} {who} for another {wait_s:.2f} seconds.",
            {
                "wait_ms": round(wait_s * 1000),
                "messages_per_second": rate.messages,
                "octets_per_second": rate.octets,
            },
            f"Raise {of_one}{messages} or .{octets}, or {of_all}{messages}PerUser or .{octets}PerUser for all, and have them read again:",
            command("imqcmd", "reload", "svc"),
        )


def _open_transactions(connection: EmbeddedConnection, who: str) -> Iterator[Cause]:
    sent = acknowledged = 0
    for session in list(connection.sessions):
        sent += len(session.transaction.sends)
        acknowledged += session.transaction.acknowledged_count
    if sent or acknowledged:
        yield Cause(
            CauseKind.OPEN_TRANSACTION,
            f"{who[0].upper()}{who[1:]} has an open transaction with {counted(sent)} sent and {acknowledged} acknowledged: none of that counts before COMMIT.",
            {"sent": sent, "acknowledged": acknowledged},
            "Have the client COMMIT or ABORT, or end its connection, which rolls back:",
            command("imqcmd", "destroy", "cxn", "-n", connection.number),
        )


def _of_consumer(broker: Broker, holder: Holder, facts: Facts, found: list[Cause]) -> Steps[None]:
    consumer = holder.consumer
    source = consumer.source
    if isinstance(source, TopicSubscription):
        found += subscription_causes(broker, source, facts)
        if not source.dispatch.backlog.waiting and not consumer.outstanding:
            found.append(_idle(holder, source.shown))
        return
    if not isinstance(source, PhysicalQueue):
        return
    backlog = source.dispatch.backlog
    place = PlaceFacts(
        spoken(source.destination),
        backlog.waiting,
        consumer.outstanding,
        [holder],
        broker.unacknowledged.held_back,
    )
    found += consumer_causes(place)
    dispatch = source.dispatch
    consumers = list(facts.holders(dispatch.consumers))
    found += exclusive_causes(place, dispatch, consumers)
    if backlog.waiting:
        sample = []
        for message in Cursor(backlog).ahead():
            sample.append(message)
            if len(sample) >= SAMPLE:
                break
        found += group_causes(place, dispatch.groups, consumers, sample)
        yield
        yield from sample_causes(source, place, sample, found)
    elif not consumer.outstanding:
        found.append(_idle(holder, source.destination))


def _idle(holder: Holder, destination: Destination) -> Cause:
    given = (
        f"it was given messages last at {moment(holder.consumer.handed_ms)}"
        if holder.consumer.handed_ms
        else "it was given none yet"
    )
    return Cause(
        CauseKind.NOTHING_WAITS,
        f"Nothing waits in {spoken(destination)} for {holder.subscribed}; {given}.",
        {"connection": holder.connection},
        "If messages should be there, ask about the destination:",
        why_destination(destination),
    )
