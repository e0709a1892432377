"""Redelivery of messages that no consumer took, and their death.

They are delivered again, at once or after a pause, or they are dead.

Owns how often each message was tried, its pause, and the burying of many slice by slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from gateway.broker.core.delivery.dispatch import Dispatched
from gateway.broker.durability.rows import BLOCK
from gateway.messaging.dead import DeadReason
from gateway.messaging.message import Message
from gateway.messaging.redelivery import RedeliveryChanges

#: How long the wall clock is believed before it is looked at again, in milliseconds.
_LOOK_MS: Final = 10_000


# --- expiry


def sweep(place: Dispatched, now_ms: int) -> None:
    """Give up what has expired and still waits."""
    dispatch = place.dispatch
    if dispatch.backlog.expiring and dispatch.halted is None:
        expired, stored = dispatch.backlog.take_expired(now_ms)
        dispatch.being_buried += len(expired) + len(stored)
        if expired:
            place.changes.schedule.one_step_a_turn(
                _bury_slowly(place, expired, DeadReason.EXPIRED, "expired while it waited")
            )
        _bury_stored(place, dict(stored), DeadReason.EXPIRED, "expired while it waited")


def look_at_arrivals(place: Dispatched, run: Sequence[Message]) -> None:
    """Give up, at the end of this turn, what had expired when it came.

    To be called for messages that have just been put into the backlog, where some there may expire.
    """
    now_ms = place.changes.turn.now_ms
    expired = [message for message in run if 0 < message.expires <= now_ms]
    if expired:
        # Dead copies get new seqs, and other messages of this turn may not have arrived yet.
        place.changes.turn.deliver(partial(_bury_arrivals, place, expired))


def _bury_arrivals(place: Dispatched, expired: list[Message]) -> None:
    dispatch = place.dispatch
    if dispatch.halted is not None:
        return
    comment = "expired before it came"
    here = dispatch.backlog.pluck_messages(expired)
    stored: dict[int, int] = {}
    if len(here) < len(expired):
        for message in expired:
            size = dispatch.backlog.pluck_behind(
                message.headers.priority, message.seq, message.expires
            )
            if size is not None:
                stored[message.seq] = size
    dispatch.being_buried += len(here) + len(stored)
    if here:
        place.changes.schedule.one_step_a_turn(
            _bury_slowly(place, here, DeadReason.EXPIRED, comment)
        )
    _bury_stored(place, stored, DeadReason.EXPIRED, comment)


def expire(place: Dispatched, priority: int, seq: int, expires: int) -> None:
    """Give up an expired message, if it waits at the end of this turn."""
    # Dead copies get new seqs, as above.
    place.changes.turn.deliver(partial(_bury_expired, place, priority, seq, expires))


def _bury_expired(place: Dispatched, priority: int, seq: int, expires: int) -> None:
    dispatch = place.dispatch
    if dispatch.halted is not None:
        return
    comment = "expired while it waited"
    here = dispatch.backlog.pluck([seq], priority)
    if here:
        place.bury(here, DeadReason.EXPIRED, comment)
        return
    size = dispatch.backlog.pluck_behind(priority, seq, expires)
    if size is not None:
        dispatch.being_buried += 1
        _bury_stored(place, {seq: size}, DeadReason.EXPIRED, comment)


def _bury_slowly(
    place: Dispatched,
    messages: list[Message],
    reason: DeadReason,
    comment: str,
    keeps_unstored: bool = True,
) -> Iterator[None]:
    for start in range(0, len(messages), BLOCK):
        if start:
            yield
        part = messages[start : start + BLOCK]
        place.dispatch.being_buried -= len(part)
        place.bury(part, reason, comment, keeps_unstored)


def _bury_stored(
    place: Dispatched, sizes: dict[int, int], reason: DeadReason, comment: str
) -> None:
    """Bury messages that are in the store only, block by block.

    :param sizes: by seq.
    """
    if not sizes:
        return
    seqs = list(islice(sizes, BLOCK))

    def found(messages: Sequence[Message]) -> None:
        octets = sum([sizes.pop(seq) for seq in seqs])
        dispatch = place.dispatch
        dispatch.being_buried -= len(seqs)
        if len(messages) < len(seqs):
            dispatch.not_found(
                place,
                len(seqs) - len(messages),
                octets - sum([message.size for message in messages]),
            )
        if messages:
            place.bury(messages, reason, comment)
        _bury_stored(place, sizes, reason, comment)

    place.changes.fetch(seqs, found)


# --- taking back


def end_outstanding(place: Dispatched, messages: Sequence[Message]) -> None:
    """Give up what was outstanding when the place went."""
    if messages and place.dmq_comment is not None:
        place.bury(messages, DeadReason.UNDELIVERABLE, place.dmq_comment)
    else:
        place.changes.journal_removed(place, messages)
        place.settle(messages)


def redeliver(place: Dispatched, messages: Sequence[Message]) -> None:
    """Deliver these again at once, in order; each was tried once more."""
    changes, dispatch = place.changes, place.dispatch
    changes.journal_returned(place, messages, "unsettled")
    if place.gone:
        end_outstanding(place, messages)
        return
    tried, limit = dispatch.failed_deliveries, changes.most_rollbacks
    kept = messages
    for message in messages:
        tried[message.seq] = tried.get(message.seq, 0) + 1
    if limit:
        kept = [message for message in messages if tried[message.seq] < limit]
        buried: dict[int, list[Message]] = {}
        for message in messages:
            if tried[message.seq] >= limit:
                buried.setdefault(tried[message.seq], []).append(message)
        for tries, part in buried.items():
            dispatch.being_buried += len(part)
            changes.schedule.one_step_a_turn(
                _bury_slowly(place, part, DeadReason.UNDELIVERABLE, f"rolled back {_times(tries)}")
            )
    changes.schedule.one_step_a_turn(
        _count_slowly(place, [message for message in kept if place.keeps_count(message)])
    )
    dispatch.wait_again(place, kept)


def _count_slowly(place: Dispatched, messages: list[Message]) -> Iterator[None]:
    """Store how often these were tried, without those settled meanwhile."""
    for start in range(0, len(messages), 4 * BLOCK):
        if start:
            yield
        dispatch = place.dispatch
        tries: list[tuple[int, int, int]] = []
        for message in messages[start : start + 4 * BLOCK]:
            count = dispatch.failed_deliveries.get(message.seq)
            if count is not None and message.seq not in dispatch.backlog.delayed:
                tries.append((message.seq, count, 0))
        place.changes.store_attempts(place.owner, tries)


def reject(
    place: Dispatched,
    messages: Sequence[Message],
    delay_ms: int | None,
    dead: DeadReason | None,
    changed: RedeliveryChanges | None,
) -> None:
    """A consumer could not take these: later again, or dead."""
    changes, dispatch = place.changes, place.dispatch
    changes.journal_returned(place, messages, "rejected")
    if place.gone:
        end_outstanding(place, messages)
        return
    policy = place.use_policy()
    if changed is not None:
        policy = changed.over(policy)
    keeps_unstored = changed is None or changed.keeps_unstored
    again: list[Message] = []
    counted: list[tuple[int, int, int]] = []
    buried: dict[tuple[DeadReason, int, bool], list[Message]] = {}
    for message in messages:
        tries = dispatch.failed_deliveries[message.seq] = (
            dispatch.failed_deliveries.get(message.seq, 0) + 1
        )
        pause = policy.delay(tries) if delay_ms is None else delay_ms
        if dead is not None or pause is None:
            lost = not (keeps_unstored or message.headers.persistent)
            why = (dead or DeadReason.UNDELIVERABLE, tries, lost)
            buried.setdefault(why, []).append(message)
            continue
        if place.keeps_count(message):
            due_ms = changes.turn.refresh() + pause if pause else 0
            counted.append((message.seq, tries, due_ms))
        if pause:
            dispatch.backlog.delayed[message.seq] = message
            changes.schedule.after(pause, partial(_due, place, message.seq))
        else:
            again.append(message)
    changes.store_attempts(place.owner, counted)
    for (reason, tries, lost), part in buried.items():
        dispatch.being_buried += len(part)
        comment = f"refused by its consumer {_times(tries)}"
        if lost:
            comment += ", and not persistent"
        changes.schedule.one_step_a_turn(_bury_slowly(place, part, reason, comment, keeps_unstored))
    dispatch.wait_again(place, again)


def _times(tries: int) -> str:
    return "once" if tries == 1 else f"{tries} times"


def _due(place: Dispatched, seq: int) -> None:
    message = place.dispatch.backlog.delayed.pop(seq, None)
    if message is not None:
        place.dispatch.wait_again(place, [message])


def resume_pause(place: Dispatched, seq: int, size: int, due_ms: int) -> None:
    """Resume the pause of a message that is in the store since a restart.

    That ends at a time of day, the only clock that outlives the process. The clock may have jumped:
    wait for the destination's longest delay at most, and compare again every ten seconds.

    :param due_ms: epoch milliseconds.
    """
    place.dispatch.backlog.resting[seq] = size
    turn = place.changes.turn
    left_ms, longest_ms = due_ms - turn.refresh(), place.use_policy().maximum_redelivery_delay
    _rest(
        place,
        seq,
        due_ms,
        turn.refresh_timer() + (min(left_ms, longest_ms) if longest_ms >= 0 else left_ms),
    )


def _rest(place: Dispatched, seq: int, due_ms: int, until_ms: int) -> None:
    changes = place.changes

    def look() -> None:
        if changes.turn.refresh() < due_ms and changes.turn.timer_ms < until_ms:
            _rest(place, seq, due_ms, until_ms)
        else:
            changes.fetch([seq], partial(_rested, place, seq))

    changes.schedule.at(min(until_ms, changes.turn.refresh_timer() + _LOOK_MS), look)


def _rested(place: Dispatched, seq: int, messages: Sequence[Message]) -> None:
    dispatch = place.dispatch
    size = dispatch.backlog.resting.pop(seq, None)
    if size is not None and messages:
        dispatch.wait_again(place, messages)
    elif size is not None:
        dispatch.not_found(place, 1, size)
