"""Why messages of a destination are not delivered.

Plain functions of a queue, of a topic and its subscriptions, and of the broker as a whole. Those
that look at many things are generators, which do a little in each step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gateway.admin.why.cause import (
    Cause,
    CauseKind,
    command,
    counted,
    destination_options,
    listing,
    moment,
    quoted,
    selecting,
    some,
    span,
    spoken,
    why_destination,
    why_link,
)
from gateway.admin.why.consumers import (
    PlaceFacts,
    consumer_causes,
    exclusive_causes,
    group_causes,
    selector_causes,
)
from gateway.admin.why.facts import Facts
from gateway.admin.why.limits import (
    LATELY_MS,
    holding_causes,
    limit_causes,
    pause_cause,
    refusal_causes,
    replaced_causes,
)
from gateway.admin.why.links import link_causes_of, takes_from
from gateway.admin.why.selectors import Miss, misses, step_of
from gateway.broker.broker import Broker
from gateway.broker.core.delivery.dispatch import Dispatched
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.timing.schedule import Steps
from gateway.messaging.dead import DMQ, DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.message import Message
from gateway.messaging.xa import xid_text

#: Subscriptions of a topic that are looked at, and different selectors of one place.
_MOST_SUBSCRIPTIONS = 1000
_MOST_SELECTORS = 20
#: Messages of open transactions that are looked at in one step.
_STEP = 1000


# --- any destination


def _state_causes(
    physical: PhysicalQueue | PhysicalTopic, places: Sequence[Dispatched]
) -> Iterator[Cause]:
    destination = physical.destination
    name = spoken(destination)
    if physical.damaged or any(place.dispatch.halted is not None for place in places):
        yield Cause(
            CauseKind.DESTINATION_DAMAGED,
            f"{name[0].upper()}{name[1:]} is stopped: a message of it in the store is damaged, so nothing is sent to it or delivered.",
            {"messages": physical.count},
            "Restore a backup, or give its messages up:",
            command("imqcmd", "destroy", "dst", *destination_options(destination)),
            0,
            physical.count,
        )
    if physical.removed:
        yield Cause(
            CauseKind.DESTINATION_GOING,
            f"An administrator is removing {name}: {counted(physical.count)} {some(physical.count, 'is', 'are')} left of it.",
            {"messages": physical.count},
            "Wait until it is gone; the next use makes it anew. See how far it is:",
            command("imqcmd", "list", "dst"),
        )
    if physical.pause:
        yield pause_cause(physical)
    if physical.scheduled:
        yield Cause(
            CauseKind.SCHEDULED,
            f"{counted(physical.scheduled)} of {name} {some(physical.scheduled, 'is', 'are')} to be delivered at a later time, as {some(physical.scheduled, 'its sender', 'their senders')} asked.",
            {"scheduled": physical.scheduled},
            "Wait, or see when each is due:",
            command("imqcmd", "list", "scheduled", *destination_options(destination)),
            0,
            physical.scheduled,
        )


def _death_causes(physical: PhysicalQueue | PhysicalTopic, now_ms: int) -> Iterator[Cause]:
    if not physical.died or now_ms - physical.last_death_ms > LATELY_MS:
        return
    destination = physical.destination
    dead_queue = physical.dead_queue
    where = f"they are in {dead_queue.name}"
    if destination == DMQ or physical.properties.is_dmq:
        where = "they were not kept, since this is a dead message queue"
    elif not physical.properties.use_dmq:
        where = "they were not kept, since useDMQ is false"
    elif physical.dropped:
        where += f", except {counted(physical.dropped)} that clients with ActiveMQ's profile refused, and were not persistent"
    dead = sum(physical.died.values()) - physical.died.get(DeadReason.EXPIRED, 0)
    kept = where.startswith("they are in")
    selector = "JMS_SUN_DMQ_DESTINATION = '" + str(destination).replace("'", "''") + "'"
    chosen = "-t", "q", "-n", dead_queue.name, "-selector", selector
    look = command("imqcmd", "list", "msg", *chosen) if kept else ""
    expired = physical.died.get(DeadReason.EXPIRED, 0)
    if expired:
        yield Cause(
            CauseKind.EXPIRED,
            f"{counted(expired)} of {spoken(destination)} {some(expired, 'has', 'have')} expired since the start, the last of all deaths at {moment(physical.last_death_ms)}; {where}.",
            {"expired": expired},
            "Have senders set a longer time to live (expires), or consumers keep up; see them:"
            if kept
            else "Have senders set a longer time to live (expires), or consumers keep up.",
            look,
            physical.last_death_ms,
            expired,
        )
    if dead:
        reasons = ", ".join(
            f"{reason.value} {count}"
            for reason, count in physical.died.items()
            if reason is not DeadReason.EXPIRED
        )
        yield Cause(
            CauseKind.DEAD,
            f"{counted(dead)} of {spoken(destination)} {some(dead, 'has', 'have')} died since the start ({reasons}), the last at {moment(physical.last_death_ms)}: {physical.last_death}; {where}.",
            {"dead": dead},
            f"See why each died ({look}), mend the cause, and send them again:"
            if kept
            else "Mend the cause: they cannot be sent again.",
            command("imqcmd", "replay", "msg", *chosen) if kept else "",
            physical.last_death_ms,
            dead,
        )


def _advice_without_consumer(facts: Facts, queue: Destination, is_dmq: bool) -> tuple[str, str]:
    """Return what to do about a queue without a consumer, and the command."""
    if is_dmq:
        advice = "No application needs to receive from it; see what is dead, and why:"
        return advice, command("imqcmd", "list", "msg", *destination_options(queue))
    taker = next(takes_from(facts, queue), None)
    if taker is not None:
        return "Have the link go on that takes from it:", why_link(*taker)
    if facts.stopped:
        # What is given up is gone, and a link may be all that is missing.
        known = next(
            (each.bridge for each in facts.stopped_links if each.source == queue), facts.stopped[0]
        )
        advice = f"Start the application that receives from it, or the bridge whose link does; bridge {quoted(known)} is STOPPED:"
        return advice, command("imqbridgemgr", "start", "bridge", "-bn", known)
    advice = "Start the application that receives from it, or give up what waits:"
    return advice, command("imqcmd", "purge", "dst", *destination_options(queue))


def _pause_causes(place: Dispatched, name: str) -> Iterator[Cause]:
    pausing = place.dispatch.backlog.pausing
    if pausing:
        policy = place.use_policy()
        yield Cause(
            CauseKind.REDELIVERY_PAUSE,
            f"{counted(pausing)} of {name} {some(pausing, 'was', 'were')} rejected by a consumer and {some(pausing, 'waits', 'wait')} before being delivered again (redeliveryDelay {policy.redelivery_delay} ms).",
            {"pausing": pausing},
            "Wait, mend the consumer, or shorten the pause with -o redeliveryDelay=0; see the destination:",
            command("imqcmd", "list", "dst"),
            0,
            pausing,
        )
    if place.dispatch.held_up:
        yield Cause(
            CauseKind.SELECTOR_TIME,
            f"Selectors take so much time that {name} waits its turn; it goes on by itself.",
            {"waiting": place.dispatch.backlog.waiting},
            "Have clients write cheaper selectors, or lower imq.selectors.maxCost. See who is connected:",
            command("imqcmd", "list", "cxn"),
        )


def transaction_causes(facts: Facts, destination: Destination, found: list[Cause]) -> Steps[None]:
    """Look through open and prepared transactions, in short steps."""
    sent: dict[str, int] = {}
    taken: dict[str, int] = {}
    first = 0
    for connection in list(facts.connections):
        for session in list(connection.sessions):
            transaction = session.transaction
            messages = list(transaction.sends)
            for start in range(0, len(messages), _STEP):
                count = sum(
                    [
                        each.headers.destination == destination
                        for each in messages[start : start + _STEP]
                    ]
                )
                if count:
                    who = facts.who(connection)
                    sent[who] = sent.get(who, 0) + count
                    first = first or connection.number
                yield
            for consumer, deliveries in list(transaction.acknowledged):
                if consumer.spec.destination == destination:
                    who = facts.who(connection)
                    taken[who] = taken.get(who, 0) + len(deliveries)
                    first = first or connection.number
        yield
    for whose, what in ((sent, "sent"), (taken, "acknowledged")):
        if whose:
            count = sum(whose.values())
            found.append(
                Cause(
                    CauseKind.OPEN_TRANSACTION,
                    f"{counted(count)} of {spoken(destination)} {some(count, 'was', 'were')} {what} in open transactions, which are not committed: {listing([f'{each} {who}' for who, each in whose.items()])}.",
                    {what: count, "connections": len(whose), "connection": first},
                    "Have the client COMMIT or ABORT, or end its connection, which rolls back:",
                    command("imqcmd", "destroy", "cxn", "-n", first),
                    0,
                    count,
                )
            )


def _prepared_causes(
    broker: Broker, physical: PhysicalQueue | PhysicalTopic, places: Sequence[Dispatched]
) -> Iterator[Cause]:
    locked = sum([place.dispatch.locked for place in places])
    if not physical.prepared and not locked:
        return
    ids = []
    for branch in broker.branches.prepared():
        sends = any(to is physical for to, _ in (*branch.sends, *branch.unread_sends))
        takes = any(each.source in places for each in branch.taken) or any(
            source in places for source, _ in branch.unread_taken
        )
        if sends or takes:
            ids.append((xid_text(branch.xid), branch.since_ms))
    since = min([since_ms for _, since_ms in ids], default=0)
    yield Cause(
        CauseKind.PREPARED_TRANSACTION,
        f"{counted(physical.prepared)} sent to {spoken(physical.destination)} and {locked} acknowledged there are in prepared transactions, whose coordinator has yet to decide: {listing([xid for xid, _ in ids])}.",
        {"sent": physical.prepared, "acknowledged": locked, "transactions": len(ids)},
        "Have the coordinator recover, or end it by hand, as the other side was ended:",
        command("imqcmd", "query", "txn", "-n", ids[0][0])
        if ids
        else command("imqcmd", "list", "txn"),
        since,
        physical.prepared + locked,
    )


# --- places


def sample_causes(
    place: Dispatched, facts: PlaceFacts, sample: Sequence[Message], found: list[Cause]
) -> Steps[None]:
    """Ask the selectors of a queue's consumers about a sample of what waits."""
    selectors = {
        holder.consumer.selector.text: holder.consumer.selector
        for holder in facts.holders
        if holder.consumer.selector is not None
    }
    if not sample or not selectors or any(each.consumer.selector is None for each in facts.holders):
        return
    chosen = list(selectors)[:_MOST_SELECTORS]
    every = []
    for text in chosen:
        miss = Miss(text)
        yield from misses(text, sample, miss)
        every.append(miss)
    unmatched = 0
    at_once = step_of([selectors[text] for text in chosen])
    for at, message in enumerate(sample):
        unmatched += not any(selectors[text].matches(message) for text in chosen)
        if at % at_once == 0:
            yield
    destination = facts.holders[0].consumer.spec.destination
    look = command("imqcmd", "list", "msg", *destination_options(destination))
    causes = selector_causes(facts, every, unmatched, len(sample))
    found += [replace(cause, command=look) for cause in causes]
    yield


def _expired_causes(
    broker: Broker, name: str, facts: Facts, sample: Sequence[Message]
) -> Iterator[Cause]:
    """Yield how many of those that wait have expired."""
    expired = sum(0 < message.expires <= facts.now_ms for message in sample)
    if not expired:
        return
    interval = broker.options.expiration_interval
    when = f"within {interval} seconds" if interval else "when a consumer would get them"
    yield Cause(
        CauseKind.EXPIRED,
        f"Of {counted(len(sample))} at the head of {name}, {expired} {some(expired, 'has', 'have')} expired: no consumer gets them, and they are dead {when}.",
        {"expired": expired, "looked_at": len(sample)},
        "Have senders set a longer time to live (expires), or consumers keep up.",
        weight=expired,
    )


def queue_causes(
    broker: Broker,
    queue: PhysicalQueue,
    facts: Facts,
    oldest_ms: int,
    sample: Sequence[Message],
    found: list[Cause],
) -> Steps[None]:
    """Find why messages of a queue are not delivered, in short steps.

    :param oldest_ms: when the oldest that waits was sent; 0 when none waits, -1 when unknown.
    :param sample: some of those that wait, the first ones.
    :param found: is given the causes.
    """
    destination, dispatch = queue.destination, queue.dispatch
    name = spoken(destination)
    waiting = dispatch.backlog.waiting
    found += _state_causes(queue, [queue])
    found += _expired_causes(broker, name, facts, sample)
    found += link_causes_of(facts, destination)
    yield
    holders = list(facts.holders(dispatch.consumers))
    held = sum([each.consumer.outstanding for each in holders])
    place = PlaceFacts(name, waiting, held, holders, broker.unacknowledged.held_back)
    if not holders and waiting:
        age = f", the oldest for {span(facts.now_ms - oldest_ms)}" if oldest_ms > 0 else ""
        advice, remedy = _advice_without_consumer(
            facts, destination, destination == DMQ or queue.properties.is_dmq
        )
        found.append(
            Cause(
                CauseKind.NO_CONSUMER,
                f"{name[0].upper()}{name[1:]} has no consumer: {counted(waiting)} {some(waiting, 'waits', 'wait')}{age}.",
                {"waiting": waiting, "oldest_ms": oldest_ms},
                advice,
                remedy,
                0,
                waiting,
            )
        )
    found += consumer_causes(place)
    found += exclusive_causes(place, dispatch, holders)
    found += group_causes(place, dispatch.groups, holders, sample)
    yield
    yield from sample_causes(queue, place, sample, found)
    found += _pause_causes(queue, name)
    topic = queue.copied_from
    if topic is not None:
        found.append(
            Cause(
                CauseKind.COPIED,
                f"{name[0].upper()}{name[1:]} gets copies of what is sent to virtual {spoken(topic)}, from now on until an administrator destroys the queue.",
                {"topic": topic.name},
                "If none come, ask about the topic:",
                why_destination(topic),
            )
        )
    found += address_causes(broker, queue.properties.address or destination.name, name)
    found += _prepared_causes(broker, queue, [queue])
    yield from transaction_causes(facts, destination, found)
    yield from _common(broker, queue, facts, found)


def address_causes(broker: Broker, address: str, what: str = "") -> Iterator[Cause]:
    """Yield where messages are that are sent to an address of several queues.

    :param what: one of these; "" for the address.
    """
    found = broker.addresses.by_name.get(address)
    if found is None:
        return
    queues = found.queues
    for queue in queues:
        # All or none: what holds or refuses a copy does so to the topic's senders.
        if isinstance(queue, PhysicalQueue):
            yield from holding_causes(queue)
    most = max(queues, key=lambda queue: queue.count)
    waiting = sum([queue.count for queue in queues])
    each = listing([f"{quoted(queue.destination.name)} ({queue.count})" for queue in queues])
    named = f"the address {quoted(address)}"
    subject = f"{what} is one of {counted(len(queues), 'queue')} of {named}" if what else named
    yield Cause(
        CauseKind.TAKES_TURNS,
        f"{subject[0].upper()}{subject[1:]}: a message that is sent to it comes to one of them in turn, first to those with a consumer that wants it; "
        f"{counted(waiting)} {some(waiting, 'is', 'are')} there now: {each}.",
        {"address": address, "queues": len(queues), "messages": waiting},
        "Ask about the queue that has most:",
        why_destination(most.destination),
        0,
        0 if what else waiting,
    )


def topic_causes(
    broker: Broker, topic: PhysicalTopic, facts: Facts, found: list[Cause]
) -> Steps[None]:
    """Find why messages of a topic are not delivered, in short steps."""
    destination = topic.destination
    name = spoken(destination)
    subscriptions = topic.subscriptions[:_MOST_SUBSCRIPTIONS]
    found += _state_causes(topic, subscriptions)
    found += link_causes_of(facts, destination)
    yield
    if topic.unheard and not subscriptions:
        found.append(
            Cause(
                CauseKind.NO_SUBSCRIPTION,
                f"{name[0].upper()}{name[1:]} has no subscription: {counted(topic.unheard)} came while there was no one, and {some(topic.unheard, 'is', 'are')} gone.",
                {"unheard": topic.unheard},
                "Subscribe before messages are sent; with a durable-subscriber-name a topic keeps them for a client that is away. See the durable ones:",
                command("imqcmd", "list", "dur", "-d", destination.name),
                0,
                topic.unheard,
            )
        )
    elif topic.unheard:
        found.append(
            Cause(
                CauseKind.NO_SUBSCRIPTION,
                f"{counted(topic.unheard)} of {name} came while it had no subscription, before those of now, and {some(topic.unheard, 'is', 'are')} gone.",
                {"unheard": topic.unheard},
                "Subscribe before messages are sent, or durably; see the durable ones:",
                command("imqcmd", "list", "dur", "-d", destination.name),
                0,
                topic.unheard,
            )
        )
    elif not subscriptions and not topic.come and not topic.copied_to:
        found.append(
            Cause(
                CauseKind.NO_SUBSCRIPTION,
                f"{name[0].upper()}{name[1:]} has no subscription, and no message has come since the start.",
                {"unheard": 0},
                "Subscribe to it; see the durable ones:",
                command("imqcmd", "list", "dur", "-d", destination.name),
            )
        )
    for subscription in subscriptions:
        found += subscription_causes(broker, subscription, facts)
        yield
    found += _copy_causes(topic)
    found += _prepared_causes(broker, topic, subscriptions)
    yield from transaction_causes(facts, destination, found)
    yield from _common(broker, topic, facts, found)


def _copy_causes(topic: PhysicalTopic) -> Iterator[Cause]:
    queues = topic.copied_to
    if not queues:
        return
    for queue in queues:
        # All or none: what holds or refuses a copy does so to the topic's senders.
        if isinstance(queue, PhysicalQueue):
            yield from holding_causes(queue)
    most = max(queues, key=lambda queue: queue.count)
    waiting = sum([queue.count for queue in queues])
    each = listing([f"{quoted(queue.destination.name)} ({queue.count})" for queue in queues])
    name = spoken(topic.destination)
    yield Cause(
        CauseKind.COPIED,
        f"{name[0].upper()}{name[1:]} is virtual: a copy of what is sent to it goes to {counted(len(queues), 'queue')}, where {counted(waiting)} {some(waiting, 'is', 'are')} now: {each}.",
        {"queues": len(queues), "messages": waiting},
        "Ask about the queue that has most:",
        why_destination(most.destination),
        0,
        waiting,
    )


def subscription_causes(
    broker: Broker, subscription: TopicSubscription, facts: Facts
) -> Iterator[Cause]:
    """Yield why one subscription of a topic has not all that comes."""
    dispatch = subscription.dispatch
    holders = list(facts.holders(dispatch.consumers))
    held = sum([each.consumer.outstanding for each in holders])
    waiting = dispatch.backlog.waiting
    name = _subscribed(subscription)
    if subscription.durable and not holders and waiting:
        yield Cause(
            CauseKind.DURABLE_INACTIVE,
            f"The {name} is INACTIVE: {counted(waiting)} {some(waiting, 'waits', 'wait')} for its client.",
            {"waiting": waiting},
            "Connect with that client-id and subscribe by that name, or remove it with what waits:",
            command(
                "imqcmd", "destroy", "dur", "-n", subscription.name, "-c", subscription.client_id
            ),
            0,
            waiting,
        )
    yield from consumer_causes(
        PlaceFacts(name, waiting, held, holders, broker.unacknowledged.held_back)
    )
    yield from _pause_causes(subscription, name)
    who = holders[0].who if holders else "no connection now"
    if subscription.refused and subscription.selector is not None:
        yield _refused_by_selector(subscription, name, who)
    if subscription.own_refused:
        yield Cause(
            CauseKind.NO_LOCAL,
            f"The {name} ({who}) does not want what its own connection sends (no-local): {counted(subscription.own_refused)} {some(subscription.own_refused, 'was', 'were')} left out.",
            {"left_out": subscription.own_refused},
            "Subscribe without no-local, or send by another connection.",
            "",
            0,
            subscription.own_refused,
        )


def _refused_by_selector(subscription: TopicSubscription, name: str, who: str) -> Cause:
    selector, headers = subscription.selector, subscription.last_refused
    assert selector is not None
    miss = Miss(selector.text)
    if headers is not None:
        for _ in misses(selector.text, [Message(headers, b"")], miss):
            pass
    last = f"; of the last one, {miss.sentence}" if miss.nearest is not None else ""
    return Cause(
        CauseKind.SELECTOR,
        f"The selector {selecting(selector.text)} of the {name} ({who}) did not want {counted(subscription.refused)} since it was made{last}.",
        {
            "refused": subscription.refused,
            "term": miss.nearest.term.text if miss.nearest else "",
        },
        "Correct the selector in the client's SUBSCRIBE, or what the sender sets; see the connections:",
        command("imqcmd", "list", "cxn"),
        0,
        subscription.refused,
    )


def _subscribed(subscription: TopicSubscription) -> str:
    if subscription.durable:
        return f"durable subscription {quoted(subscription.name)} of client-id {quoted(subscription.client_id)} to {spoken(subscription.shown)}"
    if subscription.name:
        return f"shared subscription {quoted(subscription.name)} to {spoken(subscription.shown)}"
    return f"subscription to {spoken(subscription.shown)}"


def _common(
    broker: Broker, physical: PhysicalQueue | PhysicalTopic, facts: Facts, found: list[Cause]
) -> Steps[None]:
    """What holds for queues and topics alike."""
    destination = physical.destination
    found += limit_causes(physical)
    found += replaced_causes(physical)
    found += _death_causes(physical, facts.now_ms)
    found += refusal_causes(destination, facts.refusals, facts.now_ms)
    dropped = broker.duplicates.dropped.get(destination, 0)
    if dropped:
        found.append(
            Cause(
                CauseKind.DUPLICATE_ID,
                f"{counted(dropped)} sent to {spoken(destination)} since the start repeated the duplicate id (_AMQ_DUPL_ID) of an earlier one, and {some(dropped, 'was', 'were')} accepted and dropped.",
                {"dropped": dropped},
                "Have the sender give each new message an id of its own; ask about an id:",
                command("imqcmd", "why", "msg", "-id", "DUPLICATE-ID"),
                0,
                dropped,
            )
        )
    yield


def empty_cause(physical: PhysicalQueue | PhysicalTopic) -> Cause:
    """Return what to say where nothing waits and nothing is held."""
    destination = physical.destination
    gone = physical.found + physical.come - physical.count
    passed = (
        f"{physical.come} came since the start and {gone} went on"
        if physical.come or gone
        else "none has come since the start"
    )
    return Cause(
        CauseKind.NOTHING_WAITS,
        f"No message of {spoken(destination)} waits: {passed}.",
        {"come": physical.come, "gone": gone},
        "If messages should be there, ask the sender for the ERROR it got, or see where others are:",
        command("imqcmd", "list", "dst"),
    )
