"""Sending a batch: run after run to the target, as long as they can be, around what the target
refuses.

Owns the length of a run, and what a refusal means. That the target is lost is the pump's to deal
with.

Most targets take every run. One that refuses a message says which, or not; then runs begin anew
with one message and double with each success, so that a few bad messages among thousands cost
little, and a target that refuses everything costs one attempt a message. A run that is too large
for one transaction is halved: that is no fault of any message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred

from bridge.link.batch import Batch, Item
from bridge.link.errors import Refused, TargetLost
from bridge.link.fair_share import FairShare
from bridge.link.target import Target
from bridge.link.transfer import Dead, Sides, ToSend, Transfer
from bridge.status import LinkCounters
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.errors import MessagingError, TransactionTooLarge

#: Messages of the longest run: what one turn of the reactor may do.
LONGEST_RUN: Final = 100


class Sending:
    """The sending of one link's batches.

    :param link: its name. :param nothing_twice: whether what may have arrived must not be sent
        again (AT_MOST_ONCE).
    :param share: of the reactor's time. :param clock: the reactor. :param refused: told why the
        target refuses how many messages, which are dead.
    """

    def __init__(
        self,
        link: str,
        transfer: Transfer,
        counters: LinkCounters,
        nothing_twice: bool,
        share: FairShare,
        clock: Any,
        refused: Callable[[MessagingError, int], None],
    ) -> None:
        self._tell_refused: Final = refused
        self._link: Final = link
        self._transfer: Final = transfer
        self._counters: Final = counters
        self._nothing_twice: Final = nothing_twice
        self._share: Final = share
        self._clock: Final = clock
        #: Messages of the next run, and of the longest that the target has room for.
        self._run = LONGEST_RUN
        self._longest = LONGEST_RUN

    async def send(self, batch: Batch, target: Target, sides: Sides) -> None:
        """Send what is to be sent and has not been; what is refused, or has expired meanwhile, is
        dead behind this.

        :raises TargetLost: what had been sent is marked so.
        """
        items = batch.items
        at = 0
        while at < len(items) and not batch.void:
            begin = at
            run: list[Item] = []
            while at < len(items) and len(run) < (1 if batch.singly else self._run):
                if items[at].to_be_sent and not self._expired(items[at], sides):
                    run.append(items[at])
                at += 1
            if run and not await self._sent(batch, run, target, sides):
                at = begin
            if self._share.due:
                await self._share.give()

    def give_up_rest(self, batch: Batch, error: MessagingError, sides: Sides) -> None:
        """What has not been sent is dead: for where it cannot be tried again."""
        self._give_up([item for item in batch.items if item.to_be_sent], error, sides)

    def _expired(self, item: Item, sides: Sides) -> bool:
        """Time has passed since step 2, if the target was away."""
        if item.doubtful and self._transfer.marks_duplicates:
            # If the target has it this is no end of it, and if not it expires there.
            return False
        expired = self._transfer.has_expired(item.received.message)
        if expired:
            self._counters.expired += 1
            item.give_up(self._link, self._transfer.expired(item.received.message), sides)
        return expired

    async def _sent(self, batch: Batch, run: list[Item], target: Target, sides: Sides) -> bool:
        """Send one run. :returns: False if it is to be sent again, what is dead of it left out.
        :raises TargetLost:
        """
        began = self._clock.seconds()
        messages = [
            item.again(item.outcome.message) for item in run if isinstance(item.outcome, ToSend)
        ]
        batch.observer.sent(run, messages)
        sending = Deferred.fromCoroutine(target.send(messages))
        # Not what it waits for.
        self._share.worked_since(began)
        try:
            await sending
        except TargetLost as lost:
            self._counters.possible_duplicates += (
                len(run) if lost.sent and not self._nothing_twice else 0
            )
            self._doubt(batch, run, lost)
            raise
        except Refused as refused:
            batch.singly = batch.singly or (refused.sent and refused.index is None and len(run) > 1)
            self._doubt(batch, run, refused)
            self._refused(run, refused, sides)
            return False
        for item in run:
            item.sent = True
        batch.observer.arrived(run, messages, self._transfer.marks_duplicates)
        self._counters.sent += len(run)
        self._counters.octets += sum(len(message.body) for message in messages)
        self._run = min(self._longest, self._run * 2)
        return True

    def _doubt(self, batch: Batch, run: list[Item], error: TargetLost | Refused) -> None:
        for item in run:
            item.doubtful = item.doubtful or error.sent
        if not error.sent:
            batch.observer.rolled_back(run, error, str(error.cause))

    def _refused(self, run: list[Item], refused: Refused, sides: Sides) -> None:
        index = 0 if len(run) == 1 else refused.index
        too_large = isinstance(refused.cause, TransactionTooLarge) and len(run) > 1
        if too_large:
            self._longest = self._run = len(run) // 2
        else:
            # If it says which, those before it are sent next, and then it goes on behind it.
            self._run = max(1, index or 0)
        bad = [] if too_large or index is None else [run[index]]
        if refused.sent and self._nothing_twice:
            # None may be sent again of which it is not known whether it has arrived.
            bad = run
        elif refused.sent:
            self._counters.possible_duplicates += len(run) - len(bad)
        self._counters.refused += len(bad)
        if bad:
            self._tell_refused(refused.cause, len(bad))
        self._give_up(bad, refused.cause, sides)

    def _give_up(self, items: list[Item], error: MessagingError, sides: Sides) -> None:
        for item in items:
            item.give_up(
                self._link, Dead(BridgeDeadReason.SEND_FAILURE, str(error), item.current), sides
            )
