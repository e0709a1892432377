"""Why one message is not delivered, and what became of it.

Where it is, :mod:`gateway.admin.why.whereabouts` finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from gateway.admin.why.cause import (
    Cause,
    CauseKind,
    command,
    counted,
    moment,
    quoted,
    some,
    span,
    spoken,
    why_destination,
)
from gateway.admin.why.facts import Facts
from gateway.admin.why.journeys import Journey, StepTold
from gateway.admin.why.whereabouts import Found, destination_of
from gateway.broker.broker import Broker
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.core.virtual_topics import ORIGINAL_DESTINATION
from gateway.broker.timing.schedule import Steps
from gateway.journal.journal import JournalStanding
from gateway.journal.schema import Level, Step
from gateway.messaging.dead import DMQ
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.message import LAST_VALUE, Message

#: Names of properties by which other brokers do something, what, and what to do instead.
UNUSED: Final = {
    LAST_VALUE: (
        "a queue keeps the last message of a value",
        f"Have an administrator give the queue that property: imqcmd update dst -o lastValueKey={LAST_VALUE}.",
    ),
    "x-delay": (
        "a message is delivered at a later time",
        "Have the sender give AMQ_SCHEDULED_DELAY, in milliseconds.",
    ),
}
#: Reasons of the journal for what is at another destination now, and what was done.
_RELOCATED: Final = {"moved": "moved", "replayed": "replayed"}


def found_causes(found: Found, facts: Facts) -> Iterator[Cause]:
    """Yield why a message that is here is not delivered."""
    if found.state == "sent":
        yield Cause(
            CauseKind.PREPARED_TRANSACTION,
            f"It was sent to {found.name} in the prepared transaction {found.xid}, whose coordinator has yet to decide.",
            {"transaction": found.xid},
            "Have the coordinator recover, or end it by hand, as the other side was ended:",
            command("imqcmd", "query", "txn", "-n", found.xid),
        )
        return
    destination = destination_of(found)
    if found.state == "prepared":
        yield Cause(
            CauseKind.PREPARED_TRANSACTION,
            f"It is in {found.name}, acknowledged in the prepared transaction {found.xid}, whose coordinator has yet to decide.",
            {"transaction": found.xid},
            "Have the coordinator recover, or end it by hand, as the other side was ended:",
            command("imqcmd", "query", "txn", "-n", found.xid),
        )
    elif found.state == "acknowledged" and found.consumer is not None:
        number = found.consumer.origin.number
        yield Cause(
            CauseKind.OPEN_TRANSACTION,
            f"It is in {found.name}, acknowledged in an open transaction of connection {number} of user {quoted(found.consumer.origin.user)}, which is not committed.",
            {"connection": number},
            "Have the client COMMIT or ABORT, or end its connection, which gives it back:",
            command("imqcmd", "destroy", "cxn", "-n", number),
        )
    elif found.state == "held" and found.consumer is not None:
        holder = next(facts.holders([found.consumer]), None)
        who = "a consumer" if holder is None else holder.who
        number = found.consumer.origin.number
        yield Cause(
            CauseKind.UNACKNOWLEDGED,
            f"It is delivered and not acknowledged: {who} has it from {found.name}, with {counted(found.consumer.outstanding)} in all, the last since {moment(found.consumer.handed_ms)}.",
            {"connection": number, "unacknowledged": found.consumer.outstanding},
            "Have the client acknowledge, or end its connection, which gives it back:",
            command("imqcmd", "destroy", "cxn", "-n", number),
            found.consumer.handed_ms,
        )
    elif found.state == "scheduled":
        yield Cause(
            CauseKind.SCHEDULED,
            f"It is to be delivered to {found.name} at {moment(found.due_ms)}, in {span(found.due_ms - facts.now_ms)}, as its sender asked.",
            {"due_ms": found.due_ms, "id": found.job},
            "Wait, or have it never delivered:",
            command("imqcmd", "destroy", "scheduled", "-n", found.job),
        )
    elif found.state == "pausing":
        yield Cause(
            CauseKind.REDELIVERY_PAUSE,
            f"It is in {found.name}: a consumer rejected it, and it waits before it is delivered again (attempt {_attempt(found)}).",
            {},
            "Wait, mend the consumer, or shorten the pause with -o redeliveryDelay=0; ask about the destination:",
            why_destination(destination),
        )
    elif found.ahead:
        priority = f", {found.higher} of them with a higher priority" if found.higher else ""
        yield Cause(
            CauseKind.BEHIND_OTHERS,
            f"It waits in {found.name}, and {counted(found.ahead)} {some(found.ahead, 'is', 'are')} delivered before it{priority}.",
            {"ahead": found.ahead, "higher_priority": found.higher},
            "Wait, or add consumers; ask about the destination:",
            why_destination(destination),
            0,
            found.ahead,
        )
    message = found.message
    if message is not None:
        yield from _message_causes(message, facts.now_ms, _last_value_key(found))


def _last_value_key(found: Found) -> str:
    """Return the property that is the key in its last-value queue, or ""."""
    return found.place.properties.last_value_key if isinstance(found.place, PhysicalQueue) else ""


def _attempt(found: Found) -> str:
    if found.message is None or not isinstance(found.place, (PhysicalQueue, TopicSubscription)):
        return "unknown"
    return str(found.place.tries(found.message.seq) + 1)


def _message_causes(message: Message, now_ms: int, used: str) -> Iterator[Cause]:
    """Yield what the message itself says.

    :param used: a name of :data:`UNUSED` that means something to its queue.
    """
    if 0 < message.expires <= now_ms:
        yield Cause(
            CauseKind.EXPIRED,
            f"Its time to live is over since {moment(message.expires)}: it goes to the dead message queue in place of a consumer.",
            {"expired_ms": message.expires},
            "Have the sender set a longer time to live (expires).",
        )
    extras = dict(message.headers.extras)
    topic = extras.get(ORIGINAL_DESTINATION)
    if topic is not None:
        yield Cause(
            CauseKind.COPIED,
            f"It is the copy that {spoken(message.headers.destination)} has of a message to the virtual topic {topic[:300]}.",
            {"topic": topic.removeprefix("/topic/")},
        )
    for name, (what, advice) in UNUSED.items():
        if name != used and (name in message.headers.properties or name in extras):
            yield Cause(
                CauseKind.HEADER_UNUSED,
                f"It has the header {quoted(name)}, by which other brokers do something ({what}), and this one does not.",
                {"header": name},
                advice,
            )


def dead_cause(copy: Message, queue: Destination, id: str) -> Cause:
    """Return that a message is dead, and where it is now."""
    said = copy.headers.properties
    bridged = "JMS_SUN_JMSBRIDGE_DMQ_REASON" in said
    family = "JMS_SUN_JMSBRIDGE_DMQ_" if bridged else "JMS_SUN_DMQ_UNDELIVERED_"
    reason = str(said.get(f"{family}REASON", "unknown"))
    comment = said.get(f"{family}EXCEPTION" if bridged else f"{family}COMMENT", "")
    source = said.get(
        "JMS_SUN_JMSBRIDGE_SOURCE_DESTINATION" if bridged else "JMS_SUN_DMQ_DESTINATION", ""
    )
    chosen = "msg", "-t", "q", "-n", queue.name, "-msgID", copy.message_id
    expired = reason in ("EXPIRED", "MESSAGE_EXPIRED")
    by = "a link" if bridged else "the broker"
    named = f" under the id {copy.message_id}" if copy.message_id != id else ""
    return Cause(
        CauseKind.EXPIRED if expired else CauseKind.DEAD,
        f"It is dead: {by} gave it up ({reason}: {str(comment)[:300]}) at {str(source)[:200]}, and it is in {spoken(queue)} now{named}.",
        {"reason": reason, "queue": queue.name, "message_id": copy.message_id},
        f"Mend the reason, then send it again; to see all of it: {command('imqcmd', 'query', *chosen)}",
        command("imqcmd", "replay", *chosen),
    )


# --- what the journal says


def journey_causes(
    journey: Journey, id: str, dead_queue: Callable[[str], str] = lambda destination: DMQ.name
) -> Iterator[Cause]:
    """Yield what became of a message, as the journal tells it.

    :param dead_queue: the name of the queue that has the dead messages of a destination, which is
        named as in the journal.
    """
    last: dict[str, StepTold] = {}
    for each in journey.steps:
        if each.step == Step.ROUTED.value and (each.target_id or each.as_target):
            yield _copied(each)
        if each.step == Step.DELETED.value and each.text("reason") in _RELOCATED:
            yield _relocated(each)
            continue
        last[each.step] = each
    arrived = last.get(Step.ARRIVED.value)
    if arrived is not None:
        where = f"{arrived.text('destination')} of connection factory {quoted(arrived.text('provider'))}"
        bridge, _, link = arrived.text("link").partition("/")
        if arrived.as_target:
            yield Cause(
                CauseKind.MOVED_ON,
                f"Link {quoted(link)} of bridge {quoted(bridge)} brought it here at {moment(arrived.time_ms)}.",
                {"link": arrived.text("link")},
            )
        else:
            got = (
                f"it got the id {arrived.target_id} there"
                if arrived.target_id
                else "the id that it got there is not known, as the target did not tell it (the RECEIPT names none where that is a STOMP broker)"
            )
            yield Cause(
                CauseKind.MOVED_ON,
                f"Link {quoted(link)} of bridge {quoted(bridge)} moved it on to {where} at {moment(arrived.time_ms)}; {got}.",
                {"link": arrived.text("link"), "target_id": arrived.target_id},
                "Ask there, with that id, or see the link:"
                if arrived.target_id
                else 'Ask there by its content; add-message-id-in-header="true" of a link gives each message that it moves from then on the id from here. See the link:',
                command("imqbridgemgr", "query", "link", "-bn", bridge, "-ln", link),
                arrived.time_ms,
            )
    for step, kind, what in (
        (Step.EXPIRED, CauseKind.EXPIRED, "expired"),
        (Step.DEAD, CauseKind.DEAD, "was given up"),
        (Step.BURIED, CauseKind.DEAD, "was given up by a link"),
        (
            Step.NOT_TRANSFERRED,
            CauseKind.REMOVED,
            "was dropped by a rule or the transformer of a link",
        ),
    ):
        told = last.get(step.value)
        if told is not None:
            reason = told.text("reason")
            comment = f": {told.text('comment')[:300]}" if told.text("comment") else ""
            yield Cause(
                kind,
                f"The journal says that it {what} at {moment(told.time_ms)}, at {told.text('destination')}{f' ({reason})' if reason else ''}{comment}.",
                {"reason": reason},
                "See what is dead:",
                command("imqbridgemgr", "list", "dead")
                if step is Step.BURIED
                else command(
                    "imqcmd", "list", "msg", "-t", "q", "-n", dead_queue(told.text("destination"))
                ),
                told.time_ms,
            )
    taken = last.get(Step.ACKNOWLEDGED.value)
    if taken is not None:
        yield _acknowledged(taken, last.get(Step.RECEIVED.value))
    deleted = last.get(Step.DELETED.value)
    if deleted is not None and deleted.text("reason") == "replaced":
        yield _replaced(deleted)
    elif deleted is not None and taken is None and deleted.text("reason"):
        unheard = deleted.text("reason") == "unsubscribed"
        if deleted.text("reason") == "copied":
            return
        yield Cause(
            CauseKind.NO_SUBSCRIPTION if unheard else CauseKind.REMOVED,
            f"It came to {deleted.text('destination')} at {moment(deleted.time_ms)}, when the topic had no subscription, and is gone."
            if unheard
            else f"It was removed from {deleted.text('destination')} at {moment(deleted.time_ms)} ({deleted.text('reason')}): purged, or its destination or subscription was destroyed.",
            {"reason": deleted.text("reason")},
            "Subscribe before messages are sent, or durably; see the durable ones:"
            if unheard
            else "",
            command("imqcmd", "list", "dur") if unheard else "",
            deleted.time_ms,
        )


def _replaced(told: StepTold) -> Cause:
    """Say by which message of its key one was replaced."""
    by = told.text("comment").removeprefix("by ")
    return Cause(
        CauseKind.REPLACED,
        f"It was replaced in {told.text('destination')} at {moment(told.time_ms)} by message {by[:300]}, which has the same value of the queue's lastValueKey.",
        {"message_id": by},
        "Ask about the newer one:",
        command("imqcmd", "why", "msg", "-id", by),
        told.time_ms,
    )


def _acknowledged(taken: StepTold, received: StepTold | None) -> Cause:
    """Say who has had it.

    :param received: what a link says of it when it came from its source.
    """
    figures = {"user": taken.text("user"), "connection": taken.text("connection")}
    subscription = taken.text("subscription")
    by = (
        f"by subscription {quoted(subscription)} of connection" if subscription else "by connection"
    )
    sentence = f"It was delivered: user {quoted(taken.text('user'))} acknowledged it at {moment(taken.time_ms)}, {by} {taken.text('connection')}."
    # A link's consumer has no name of its own, and those of clients have.
    if (
        not subscription
        and received is not None
        and received.text("destination") == taken.text("destination")
    ):
        bridge, _, link = received.text("link").partition("/")
        figures["link"] = received.text("link")
        sentence = f"It was delivered to link {quoted(link)} of bridge {quoted(bridge)}, which acknowledged it at {moment(taken.time_ms)}, by connection {taken.text('connection')}."
    return Cause(CauseKind.ACKNOWLEDGED, sentence, figures, "", "", taken.time_ms)


def _relocated(told: StepTold) -> Cause:
    """Say where an administrator has put a message."""
    where = told.text("comment").removeprefix("to ")
    kind, _, name = where.partition(":")
    to = Destination(Kind.TOPIC if kind == "topic" else Kind.QUEUE, name)
    return Cause(
        CauseKind.MOVED_ON,
        f"An administrator {_RELOCATED[told.text('reason')]} it from {told.text('destination')} to {where} at {moment(told.time_ms)}; it has kept its id.",
        {"reason": told.text("reason"), "destination": where},
        "Ask about the destination:",
        why_destination(to),
        told.time_ms,
    )


def _copied(told: StepTold) -> Cause:
    """Say where a copy of a virtual topic's message is, or of what it is."""
    if told.as_target:
        return Cause(
            CauseKind.COPIED,
            f"It is a copy of a message to {told.text('destination')}, made at {moment(told.time_ms)}.",
            {"topic": told.text("destination")},
        )
    queue = told.text("comment").removeprefix("copied to queue:")
    return Cause(
        CauseKind.COPIED,
        f"A copy went to queue {quoted(queue)} at {moment(told.time_ms)}, under the id {told.target_id}.",
        {"queue": queue, "message_id": told.target_id},
        "Ask about the copy:",
        command("imqcmd", "why", "msg", "-id", told.target_id),
        told.time_ms,
    )


def unknown_of_journal(journey: Journey, standing: JournalStanding, age_s: float) -> list[str]:
    """Return what the journal cannot say.

    :param age_s: after which a segment is whole.
    """
    texts = []
    if standing.level == Level.OFF.value:
        texts.append(
            "The journal is off: what became of messages that are gone is not known. Set imq.journal.level=all and send the gateway SIGHUP."
        )
    elif standing.level != Level.ALL.value:
        what = "what dies" if standing.level == Level.DEAD.value else "links and what dies"
        texts.append(
            f"The journal's level is {standing.level}: it tells of {what}, and not who acknowledged a message here. Set imq.journal.level=all and send the gateway SIGHUP."
        )
    if journey.open and standing.level != Level.OFF.value:
        texts.append(
            f"A segment of the journal is being written and cannot be read yet: steps of the last {span(int(age_s * 1000))} may be missing. Ask again then (imq.journal.segment.age)."
        )
    if journey.read < journey.segments:
        texts.append(
            f"Of {counted(journey.segments, 'segment')} of the journal the newest {journey.read} were read, back to {moment(journey.oldest_ms)}: the rest would take too long. The pipeline reads all of them."
        )
    # What this run has lost is noted among those that have not ended, too.
    lost = sum(run.missing for run in journey.runs if not run.open) + max(
        standing.lost, sum(run.missing for run in journey.runs if run.open)
    )
    if lost:
        texts.append(f"{counted(lost, 'line')} of the journal {some(lost, 'was', 'were')} lost.")
    killed = sum(run.killed for run in journey.runs)
    if killed:
        texts.append(
            f"{counted(killed, 'run')} of the gateway {some(killed, 'was', 'were')} killed in the time that was read: steps of the moment before may be missing."
        )
    return texts


def absent_causes(broker: Broker, id: str, seq: int) -> Iterator[Cause]:
    """Yield what an id says of a message that is not here."""
    if seq > broker.last_seq:
        yield Cause(
            CauseKind.NOT_SENT_YET,
            f"No message has this id yet: the last that this broker has accepted is number {broker.last_seq}.",
            {"last": broker.last_seq},
        )
    elif not seq and id.startswith("ID-") and not id.startswith(broker.numbering.prefix):
        yield Cause(
            CauseKind.OTHER_BROKER,
            f"Another broker has made this id: those of this one begin with {quoted(broker.numbering.prefix)}.",
            {"prefix": broker.numbering.prefix},
            "Ask that broker; which one this is, is shown by:",
            command("imqcmd", "query", "bkr"),
        )
    elif not seq:
        yield Cause(
            CauseKind.HEADER_UNUSED,
            f"This is no id of this broker, whose ids begin with {quoted(broker.numbering.prefix)}: a message-id that a client sends is not used.",
            {"prefix": broker.numbering.prefix},
            "Use the message-id of a MESSAGE, or list the messages of the queue:",
            command("imqcmd", "list", "dst"),
        )


def duplicate_causes(broker: Broker, id: str, found: list[Cause]) -> Steps[None]:
    """Find a duplicate id that is remembered, in short steps."""
    for destination, seq in broker.duplicates.where(id):
        original = f"{broker.numbering.prefix}{seq}"
        found.append(
            Cause(
                CauseKind.DUPLICATE_ID,
                f"It is a duplicate id (_AMQ_DUPL_ID) that {spoken(destination)} remembers, of message {original}: whatever else is sent there with it is accepted and dropped.",
                {"original": original, "kind": Kind(destination.kind).name.lower()},
                "Give each new message an id of its own; ask about the original:",
                command("imqcmd", "why", "msg", "-id", original),
            )
        )
        yield
