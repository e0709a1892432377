"""Sends a batch to a target without XA, in long runs.

Owns how long the next run is. Runs go around messages that have expired, or that the target refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred

from bridge.link.errors import Refused, TargetLost
from bridge.link.pump import Batch, Pump
from bridge.link.target import Target
from bridge.link.transfer import Dead, Item, LinkEnds, ToSend
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.errors import MessagingError, TransactionTooLarge

#: Messages of the longest run: what one turn of the reactor may do.
LONGEST_RUN: Final = 100


class RunSender:
    """Send batches of one link in long runs, around what is refused.

    Most targets take every run. One that refuses a message may say which. After a refusal runs
    begin again with one message and double with each success. So a few bad messages among thousands
    cost little, and a target that refuses everything costs one attempt a message. A run that is too
    large for one transaction is halved; no message is to blame for that.

    :param nothing_twice: whether what may have arrived must not be sent again (AT_MOST_ONCE).
    :param refused: is told why the target refuses how many messages, which are dead.
    """

    def __init__(self, nothing_twice: bool, refused: Callable[[MessagingError, int], None]) -> None:
        self._nothing_twice: Final = nothing_twice
        self._on_refused: Final = refused
        #: Messages of the next run, and of the longest that the target has room for.
        self._run = LONGEST_RUN
        self._longest = LONGEST_RUN

    async def send(self, pump: Pump, batch: Batch, target: Target, sides: LinkEnds) -> None:
        """Send what was not sent yet; bury what was refused or has expired.

        :raises TargetLost: what had been sent is marked so.
        """
        items = batch.items
        at = 0
        while at < len(items) and not pump.stopped:
            begin = at
            run: list[Item] = []
            while at < len(items) and len(run) < (1 if batch.singly else self._run):
                if items[at].to_be_sent and not _expired(pump, items[at], sides):
                    run.append(items[at])
                at += 1
            if run and not await self._sent(pump, batch, run, target, sides):
                at = begin
            if pump.share.due:
                await pump.share.give()

    async def _sent(
        self, pump: Pump, batch: Batch, run: list[Item], target: Target, sides: LinkEnds
    ) -> bool:
        """Send one run.

        :returns: False if it is to be sent again, without what is dead of it.
        :raises TargetLost:
        """
        began = pump.clock.seconds()
        messages = [
            item.again(item.outcome.message) for item in run if isinstance(item.outcome, ToSend)
        ]
        batch.lines.sent(run, messages)
        sending = Deferred.fromCoroutine(target.send(messages))
        # Not what it waits for.
        pump.share.worked_since(began)
        try:
            await sending
        except TargetLost as lost:
            pump.doubled(len(run) if lost.sent and not self._nothing_twice else 0)
            _doubt(batch, run, lost)
            raise
        except Refused as refused:
            batch.singly = batch.singly or (refused.sent and refused.index is None and len(run) > 1)
            _doubt(batch, run, refused)
            self._refused(pump, run, refused, sides)
            return False
        for item in run:
            item.sent = True
        batch.lines.arrived(run, messages, pump.transfer.marks_duplicates)
        pump.counters.sent += len(run)
        pump.counters.octets += sum([len(message.body) for message in messages])
        self._run = min(self._longest, self._run * 2)
        return True

    def _refused(self, pump: Pump, run: list[Item], refused: Refused, sides: LinkEnds) -> None:
        index = 0 if len(run) == 1 else refused.index
        too_large = isinstance(refused.cause, TransactionTooLarge) and len(run) > 1
        if too_large:
            self._longest = self._run = len(run) // 2
        else:
            # If it says which, those before it are sent next, and then it goes on behind it.
            self._run = max(1, index or 0)
        bad = [] if too_large or index is None else [run[index]]
        if refused.sent and self._nothing_twice:
            # None may be sent again of which it is unknown whether it has arrived.
            bad = run
        elif refused.sent:
            pump.doubled(len(run) - len(bad))
        pump.counters.refused += len(bad)
        if bad:
            self._on_refused(refused.cause, len(bad))
        give_up(pump, bad, refused.cause, sides)


def give_up(pump: Pump, items: list[Item], error: MessagingError, sides: LinkEnds) -> None:
    """These cannot be sent, because of ``error``: they are dead."""
    for item in items:
        dead = Dead(BridgeDeadReason.SEND_FAILURE, str(error), item.current)
        item.give_up(pump.link, dead, sides)


def _expired(pump: Pump, item: Item, sides: LinkEnds) -> bool:
    """Give the message up if it has expired while the target was away.

    :returns: whether it has.
    """
    if item.doubtful and pump.transfer.marks_duplicates:
        # If the target has it this does not undo that, and if not it expires there.
        return False
    message = item.received.message
    expired = pump.transfer.has_expired(message)
    if expired:
        dead = pump.transfer.expired(message)
        pump.count(dead)
        item.give_up(pump.link, dead, sides)
    return expired


def _doubt(batch: Batch, run: list[Item], error: TargetLost | Refused) -> None:
    for item in run:
        item.doubtful = item.doubtful or error.sent
    if not error.sent:
        batch.lines.rolled_back(run, error, str(error.cause))
