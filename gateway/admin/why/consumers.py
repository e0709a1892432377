"""Why consumers do not take what waits.

Plain functions of a place (a queue, or a subscription of a topic), of its consumers and of a sample
of what waits there. Nothing here looks at more than the sample.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from gateway.admin.why.cause import (
    Cause,
    CauseKind,
    command,
    counted,
    listing,
    moment,
    quoted,
    selecting,
    some,
    why_link,
)
from gateway.admin.why.facts import Holder
from gateway.admin.why.selectors import Miss
from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.broker.core.delivery.dispatch import Dispatch
from gateway.broker.core.delivery.groups import Groups
from gateway.messaging.message import Message
from gateway.stomp.session.subscription import Hold


@dataclass(frozen=True, slots=True)
class PlaceFacts:
    """A place where messages wait, as its consumers see it.

    :param name: in words, such as ``queue 'orders'``.
    :param waiting: messages that a consumer could have now.
    :param held: those that consumers have and have not settled.
    :param holders: its consumers.
    :param held_back: consumers that get no more for lack of memory.
    """

    name: str
    waiting: int
    held: int
    holders: Sequence[Holder]
    held_back: Collection[EmbeddedConsumer] = ()


def consumer_causes(place: PlaceFacts) -> list[Cause]:
    """Return why its consumers do not take more than they have."""
    causes: list[Cause] = []
    choked = [each for each in place.holders if each.holds & Hold.CHOKED or _unread(each.consumer)]
    paced = [each for each in place.holders if each.holds & Hold.RATE]
    stopped = [each for each in place.holders if each not in paced and _stopped(each)]
    dry = [
        each
        for each in place.holders
        if each not in choked
        and each not in paced
        and each not in stopped
        and without_credit(each.consumer)
    ]
    short = [
        each
        for each in place.holders
        if each.consumer in place.held_back and each not in dry and each not in choked
    ]
    if place.waiting:
        causes += _of(choked, place, _choked)
        causes += _of(paced, place, _paced)
        causes += _of(stopped, place, _not_running)
        causes += _of(dry, place, _dry)
        causes += _of(short, place, _short)
    elif place.held:
        causes += _held(place)
    causes += _unused(place)
    return causes


def without_credit(consumer: EmbeddedConsumer) -> bool:
    """Whether it must settle or read before it is handed more."""
    return consumer.credit <= 0 or _unread(consumer)


def _unread(consumer: EmbeddedConsumer) -> bool:
    """Whether as many octets are on their way as its client may leave unread."""
    return consumer.credit > 0 and consumer.octets is not None and consumer.octets <= 0


def _stopped(holder: Holder) -> bool:
    other = holder.holds & ~(Hold.CHOKED | Hold.PAUSED)
    return bool(other) or (not holder.consumer.running and not holder.holds)


def _of(
    holders: Sequence[Holder],
    place: PlaceFacts,
    cause: Callable[[Sequence[Holder], PlaceFacts], Cause],
) -> list[Cause]:
    return [cause(holders, place)] if holders else []


def _biggest(holders: Sequence[Holder]) -> list[Holder]:
    return sorted(holders, key=lambda each: -each.consumer.outstanding)


def _each(holders: Sequence[Holder]) -> str:
    """Name the holders that have the most: how many, and since when."""
    texts = []
    for each in _biggest(holders):
        since = f", since {moment(each.consumer.handed_ms)}" if each.consumer.handed_ms else ""
        by = f" by subscription {quoted(each.name)}" if each.name else ""
        texts.append(f"{each.who} holds {each.consumer.outstanding}{by}{since}")
    return listing(texts)


def _figures(holders: Sequence[Holder], place: PlaceFacts) -> dict[str, int | float | str]:
    first = _biggest(holders)[0]
    return {
        "waiting": place.waiting,
        "consumers": len(place.holders),
        "of_these": len(holders),
        "unacknowledged": sum([each.consumer.outstanding for each in holders]),
        "connection": first.connection,
    }


def _since(holders: Sequence[Holder]) -> int:
    return min([each.consumer.handed_ms for each in holders if each.consumer.handed_ms], default=0)


def _end(holder: Holder) -> tuple[str, str]:
    """How to have back what a consumer holds."""
    if holder.link is not None:
        bridge, link = holder.link
        return "A link has it; ask why it does not go on:", why_link(bridge, link)
    return (
        "Have the client acknowledge, or end its connection, which gives back what it holds:",
        command("imqcmd", "destroy", "cxn", "-n", holder.connection),
    )


def _dry(holders: Sequence[Holder], place: PlaceFacts) -> Cause:
    count = len(holders)
    all_of = "all " if count == len(place.holders) > 1 else ""
    advice, remedy = _end(_biggest(holders)[0])
    why = (
        "has as many unacknowledged messages as its window allows"
        if count == 1
        else "have as many unacknowledged messages as their windows allow"
    )
    return Cause(
        CauseKind.NO_CREDIT,
        f"{counted(place.waiting)} of {place.name} {some(place.waiting, 'waits', 'wait')} while {all_of}{counted(count, 'consumer')} {why}: {_each(holders)}.",
        _figures(holders, place),
        advice,
        remedy,
        _since(holders),
        sum([each.consumer.outstanding for each in holders]),
    )


def _choked(holders: Sequence[Holder], place: PlaceFacts) -> Cause:
    unsent = max([each.unsent for each in holders])
    first = _biggest(holders)[0]
    return Cause(
        CauseKind.READER_CHOKED,
        f"{counted(len(holders), 'client')} of {place.name} {some(len(holders), 'does', 'do')} not read what {some(len(holders), 'it was', 'they were')} sent: "
        f"up to {unsent} bytes wait to be read by one connection; {_each(holders)}.",
        {**_figures(holders, place), "unsent_octets": unsent},
        "Have the client read from its socket, or end the connection:",
        command("imqcmd", "destroy", "cxn", "-n", first.connection),
        _since(holders),
        unsent,
    )


def _not_running(holders: Sequence[Holder], place: PlaceFacts) -> Cause:
    first = holders[0]
    if first.link is not None:
        bridge, link = first.link
        return Cause(
            CauseKind.CONSUMER_STOPPED,
            f"Link {quoted(link)} of bridge {quoted(bridge)} consumes from {place.name} and takes nothing just now.",
            _figures(holders, place),
            "Ask why:",
            why_link(bridge, link),
        )
    outside = any(each.holds & Hold.NO_TRANSACTION for each in holders)
    why = (
        "is transacted, and the client is in no transaction: messages come between BEGIN and COMMIT"
        if outside
        else "has not been started, or its client is leaving"
    )
    return Cause(
        CauseKind.CONSUMER_STOPPED,
        f"{counted(len(holders), 'subscription')} of {place.name} {some(len(holders), 'delivers', 'deliver')} nothing: {first.subscribed} {why}.",
        _figures(holders, place),
        "Have the client BEGIN, or subscribe without a transaction; see its connection:"
        if outside
        else "See its connection:",
        command("imqcmd", "query", "cxn", "-n", first.connection),
    )


def _paced(holders: Sequence[Holder], place: PlaceFacts) -> Cause:
    first = holders[0]
    return Cause(
        CauseKind.USER_RATE,
        f"{counted(len(holders), 'subscription')} of {place.name} {some(len(holders), 'gets', 'get')} the rest later, as the user has got as much as it may in a second: {first.subscribed}.",
        _figures(holders, place),
        "Ask for how long, and by which limit:",
        command("imqcmd", "why", "cxn", "-id", first.connection),
    )


def _short(holders: Sequence[Holder], place: PlaceFacts) -> Cause:
    octets = sum([each.consumer.unsettled for each in holders])
    first = _biggest(holders)[0]
    return Cause(
        CauseKind.UNACKNOWLEDGED_MEMORY,
        f"{counted(len(holders), 'consumer')} of {place.name} {some(len(holders), 'gets', 'get')} no more, because unacknowledged messages fill their memory "
        f"(imq.memory.unacknowledged): {octets} bytes are held; {_each(holders)}.",
        {**_figures(holders, place), "octets": octets},
        "Have the clients acknowledge, raise imq.memory.unacknowledged, or end the connection:",
        command("imqcmd", "destroy", "cxn", "-n", first.connection),
        _since(holders),
        octets,
    )


def _held(place: PlaceFacts) -> list[Cause]:
    """Nothing waits: consumers have all there is."""
    holding = [each for each in place.holders if each.consumer.outstanding]
    idle = [
        each
        for each in place.holders
        if not each.consumer.outstanding and not without_credit(each.consumer)
    ]
    if not holding:
        return []
    first = _biggest(holding)[0]
    advice, remedy = _end(first)
    if idle:
        return [
            Cause(
                CauseKind.PREFETCH,
                f"{counted(len(idle), 'consumer')} of {place.name} {some(len(idle), 'has', 'have')} nothing to do, while others have all {counted(place.held)} ahead of their acknowledgements: {_each(holding)}.",
                {**_figures(holding, place), "idle": len(idle)},
                "Give those SUBSCRIBEs a smaller prefetch-count, or end the connection, which gives back what it holds:"
                if first.link is None
                else advice,
                remedy,
                _since(holding),
                place.held,
            )
        ]
    return [
        Cause(
            CauseKind.UNACKNOWLEDGED,
            f"No message of {place.name} waits: consumers have {some(place.held, 'the one there is', f'all {place.held}')} and have not acknowledged {some(place.held, 'it', 'them')}: {_each(holding)}.",
            _figures(holding, place),
            advice,
            remedy,
            _since(holding),
            place.held,
        )
    ]


def _unused(place: PlaceFacts) -> list[Cause]:
    causes = []
    for each in place.holders:
        if each.unused:
            names = listing([quoted(name) for name in each.unused])
            causes.append(
                Cause(
                    CauseKind.HEADER_UNUSED,
                    f"Subscription {quoted(each.name)} of {each.who} to {place.name} was made with headers that mean nothing to this server: {names}.",
                    {"headers": len(each.unused), "connection": each.connection},
                    "The page about STOMP lists the headers that do; leave the others out, or use the profile of the broker that the client was written for.",
                )
            )
    return causes[:NAMED_HEADERS]


#: Subscriptions whose headers are told of.
NAMED_HEADERS = 3


def exclusive_causes(
    place: PlaceFacts, dispatch: Dispatch, consumers: Sequence[Holder]
) -> list[Cause]:
    """Return whether one consumer has the queue for itself.

    :param consumers: all that the queue has; the place may be one of them only.
    """
    exclusive = dispatch.exclusive
    if exclusive is None or not place.waiting:
        return []
    active = exclusive.active
    others = [each for each in place.holders if each.consumer is not active]
    if not others:
        return []
    figures = {"waiting": place.waiting, "consumers": len(consumers), "of_these": len(others)}
    if active is None:
        return [
            Cause(
                CauseKind.EXCLUSIVE_CONSUMER,
                f"No consumer gets messages of {place.name} just now: the exclusive consumer that has left must first settle or give back {counted(exclusive.unsettled)}.",
                {**figures, "unacknowledged": exclusive.unsettled},
                "Have its client end its transaction or acknowledge, or end its connection; see who is connected:",
                command("imqcmd", "list", "cxn"),
                0,
                place.waiting,
            )
        ]
    first = next((each for each in consumers if each.consumer is active), None)
    who = "another consumer" if first is None else first.subscribed
    number = 0 if first is None else first.connection
    return [
        Cause(
            CauseKind.EXCLUSIVE_CONSUMER,
            f"{who[0].upper()}{who[1:]} is exclusive and has {place.name} for itself, so {counted(len(others), 'other consumer')} {some(len(others), 'gets', 'get')} nothing while it is there; it holds {counted(active.outstanding)}.",
            {**figures, "unacknowledged": active.outstanding, "connection": number},
            "Have the client subscribe without exclusive-consumer, or end its connection, and the next takes over:",
            command("imqcmd", "destroy", "cxn", "-n", number) if number else "",
            active.handed_ms,
            place.waiting,
        )
    ]


def group_causes(
    place: PlaceFacts,
    groups: Groups | None,
    consumers: Sequence[Holder],
    sample: Sequence[Message],
) -> list[Cause]:
    """Return whether what waits is of groups that no consumer takes now.

    :param consumers: all that the queue has; the place may be one of them only.
    :param sample: of what waits.
    """
    if groups is None:
        return []
    waiting: dict[tuple[EmbeddedConsumer, bool], dict[str, int]] = {}
    for message in sample:
        group = message.headers.group
        owner = groups.owner(group) if group else None
        if owner is not None:
            of_owner = waiting.setdefault((owner, groups.moves(group)), {})
            of_owner[group] = of_owner.get(group, 0) + 1
    causes = []
    for (owner, moves), counts in waiting.items():
        holder = next((each for each in consumers if each.consumer is owner), None)
        stuck = holder is not None and (without_credit(owner) or _stopped(holder))
        if holder is not None and not stuck and not moves:
            continue
        count = sum(counts.values())
        does = "gives them up to one that came later" if moves else "takes no more"
        who = "a consumer that has left" if holder is None else f"{holder.who}, which {does}"
        advice, remedy = (
            ("See who is connected:", command("imqcmd", "list", "cxn"))
            if holder is None
            else _end(holder)
        )
        names = listing([quoted(name) for name in sorted(counts, key=lambda name: -counts[name])])
        causes.append(
            Cause(
                CauseKind.MESSAGE_GROUP,
                f"{count} of the {counted(len(sample))} looked at in {place.name} {some(count, 'is', 'are')} of {counted(len(counts), 'group')} (JMSXGroupID {names}) of {who}; no other consumer gets them before it has settled or given back {counted(owner.outstanding)}.",
                {
                    "waiting": place.waiting,
                    "looked_at": len(sample),
                    "of_these": count,
                    "groups": len(counts),
                    "unacknowledged": owner.outstanding,
                    "connection": 0 if holder is None else holder.connection,
                },
                advice,
                remedy,
                owner.handed_ms,
                count,
            )
        )
    return causes


def selector_causes(
    place: PlaceFacts, found: Sequence[Miss], unmatched: int, looked_at: int
) -> list[Cause]:
    """Return why no selector matches what waits.

    :param found: how each selector did with the sample.
    :param unmatched: messages of the sample that no selector matches.
    """
    if not unmatched:
        return []
    causes = []
    nearest = sorted(found, key=lambda miss: miss.matched)
    for miss in nearest[:3]:
        if miss.matched:
            continue
        first = miss.nearest
        causes.append(
            Cause(
                CauseKind.SELECTOR,
                f"The selector {selecting(miss.text)} matches none of the {counted(miss.looked_at)} looked at, of {place.waiting} that wait in {place.name}; {miss.sentence}.",
                {
                    "waiting": place.waiting,
                    "looked_at": miss.looked_at,
                    "matched": 0,
                    "term": "" if first is None else first.term.text,
                    "failed": 0 if first is None else first.failed,
                    "failed_alone": 0 if first is None else first.alone,
                },
                "Correct the selector in the client's SUBSCRIBE, or what the sender sets; look at a message:",
                "",
                0,
                miss.looked_at,
            )
        )
    if not causes:
        causes.append(
            Cause(
                CauseKind.SELECTOR,
                f"{unmatched} of the {counted(looked_at)} looked at in {place.name} {some(unmatched, 'is', 'are')} matched by no consumer's selector: {listing([selecting(miss.text) for miss in nearest])}.",
                {"waiting": place.waiting, "looked_at": looked_at, "unmatched": unmatched},
                "Start a consumer for the others, or correct a selector; look at the messages:",
                "",
                0,
                unmatched,
            )
        )
    return causes
