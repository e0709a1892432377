"""Limits and pauses of a destination, what it replaced, and refusals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.admin.why.cause import (
    Cause,
    CauseKind,
    command,
    counted,
    destination_options,
    moment,
    quoted,
    some,
    spoken,
)
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.core.refusals import Refusal
from gateway.broker.properties.destination_properties import LimitBehavior
from gateway.broker.properties.pause import Pause
from gateway.messaging.destination import Destination

#: Milliseconds for which a refusal, a death or a message without a subscription is news.
LATELY_MS = 3_600_000
#: Behaviours at a limit by which nothing more is taken.
_HOLDING = (LimitBehavior.FLOW_CONTROL, LimitBehavior.REJECT_NEWEST)


def replaced_causes(physical: PhysicalQueue | PhysicalTopic) -> Iterator[Cause]:
    """Yield how many messages a last-value queue has replaced."""
    key = physical.properties.last_value_key
    if physical.replaced and key:
        destination = physical.destination
        yield Cause(
            CauseKind.REPLACED,
            f"{counted(physical.replaced)} of {spoken(destination)} {some(physical.replaced, 'was', 'were')} replaced since the start by newer ones with the same value of {quoted(key)} (lastValueKey).",
            {"replaced": physical.replaced},
            "Nothing, if only the last of each value is wanted; to keep all that come from now on:",
            command(
                "imqcmd", "update", "dst", *destination_options(destination), "-o", "lastValueKey="
            ),
            0,
            physical.replaced,
        )


def limit_causes(physical: PhysicalQueue | PhysicalTopic) -> Iterator[Cause]:
    """Yield the limits that a destination has reached."""
    destination, properties = physical.destination, physical.properties
    name = spoken(destination)
    mend = "Consume, purge, or raise the limit:"
    limits = (
        ("maxNumMsgs", properties.max_num_msgs, physical.count + physical.coming),
        (
            "maxTotalMsgBytes",
            properties.max_total_msg_bytes,
            physical.octets + physical.coming_octets,
        ),
    )
    for limit, most, there in limits:
        if not 0 <= most <= there:
            continue
        raised = command(
            "imqcmd",
            "update",
            "dst",
            *destination_options(destination),
            "-o",
            f"{limit}={max(1, 2 * most)}",
        )
        figures = {"limit": most, "there": there, "senders": len(physical.waiting_senders)}
        behavior = properties.limit_behavior
        if behavior is LimitBehavior.FLOW_CONTROL:
            yield Cause(
                CauseKind.FLOW_CONTROL,
                f"{name[0].upper()}{name[1:]} has {there} of at most {most} ({limit}, FLOW_CONTROL): {counted(len(physical.waiting_senders), 'sender')} {some(len(physical.waiting_senders), 'waits', 'wait')} for room.",
                figures,
                mend,
                raised,
                0,
                there,
            )
        else:
            what = (
                "what comes is refused"
                if behavior is LimitBehavior.REJECT_NEWEST
                else f"messages are given up to make room ({behavior.name})"
            )
            yield Cause(
                CauseKind.LIMIT_REACHED,
                f"{name[0].upper()}{name[1:]} has {there} of at most {most} ({limit}): {what}.",
                figures,
                mend,
                raised,
                0,
                there,
            )


def pause_cause(physical: PhysicalQueue | PhysicalTopic) -> Cause:
    """Return what the pause of a destination stops."""
    stopped = {
        Pause.CONSUMERS: "nothing is delivered",
        Pause.PRODUCERS: "its senders are held back",
    }.get(physical.pause, "nothing is delivered, and its senders are held back")
    return Cause(
        CauseKind.DESTINATION_PAUSED,
        f"An administrator has paused {spoken(physical.destination)} ({physical.pause.state}): {stopped}; {counted(physical.count)} {some(physical.count, 'is', 'are')} there.",
        {"messages": physical.count, "state": physical.pause.state},
        "Resume it:",
        command("imqcmd", "resume", "dst", *destination_options(physical.destination)),
        0,
        physical.count,
    )


def holding_causes(queue: PhysicalQueue) -> Iterator[Cause]:
    """Yield why a queue takes nothing from senders now."""
    if queue.pause & Pause.PRODUCERS:
        yield pause_cause(queue)
    if queue.properties.limit_behavior in _HOLDING:
        yield from limit_causes(queue)


def refusal_causes(
    destination: Destination, refusals: Iterable[Refusal], now_ms: int
) -> Iterator[Cause]:
    """Yield what users were refused there lately."""
    for refusal in refusals:
        if now_ms - refusal.last_ms > LATELY_MS:
            continue
        kind, advice, remedy = _REFUSED.get(
            refusal.kind, (CauseKind.REFUSED, "See the connection of the client:", "")
        )
        if kind is CauseKind.MAX_CONSUMERS:
            remedy = command(
                "imqcmd",
                "update",
                "dst",
                *destination_options(destination),
                "-o",
                "maxNumActiveConsumers=-1",
            )
        elif kind is CauseKind.TOO_LARGE or kind is CauseKind.LIMIT_REACHED:
            remedy = command("imqcmd", "query", "dst", *destination_options(destination))
        elif kind is CauseKind.REFUSED:
            remedy = command("imqcmd", "list", "cxn")
        times = "" if refusal.count == 1 else f", {refusal.count} times"
        yield Cause(
            kind,
            f"User {quoted(refusal.user)} was refused at {spoken(destination)}{times}, last at {moment(refusal.last_ms)}: {refusal.text}.",
            {"count": refusal.count, "error": refusal.kind, "connection": refusal.connection},
            advice,
            remedy,
            refusal.last_ms,
            refusal.count,
        )


#: By the class of an error: the kind of cause, and what mends it.
_REFUSED = {
    "AccessDenied": (
        CauseKind.ACCESS_DENIED,
        "Allow it in the instance's etc/accesscontrol.properties, and send the gateway SIGHUP.",
        "",
    ),
    "TooManyConsumers": (CauseKind.MAX_CONSUMERS, "End another consumer, or raise the limit:", ""),
    "DestinationFull": (
        CauseKind.LIMIT_REACHED,
        "Consume, purge, or raise the limit, which is shown by:",
        "",
    ),
    "MessageTooLarge": (
        CauseKind.TOO_LARGE,
        "Send smaller messages, or raise maxBytesPerMsg of the destination or imq.message.max_size; the limits are shown by:",
        "",
    ),
    "NoRoom": (
        CauseKind.MEMORY_FULL,
        "End consumers and subscriptions that are not used, or raise imq.memory.waiting; see them:",
        command("imqcmd", "list", "cxn"),
    ),
    "StorageFailed": (
        CauseKind.STORE_FAILED,
        "See what the broker says of its store:",
        command("imqcmd", "query", "bkr"),
    ),
    "DuplicateInDoubt": (
        CauseKind.PREPARED_TRANSACTION,
        "Have the coordinator end the transaction of the original, or end it:",
        command("imqcmd", "list", "txn"),
    ),
}
