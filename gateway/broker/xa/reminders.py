"""What the log says of branches that stay prepared.

Owns when it is said, and how many are named. Ends none of them: that is the operator's to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.logger import Logger

from gateway.broker.timing.schedule import Schedule
from gateway.broker.xa.branch import Branch, State
from gateway.messaging.xa import xid_text
from gateway.reactor.turn import Turn

_log: Final = Logger(namespace="gateway.broker")

#: How long a branch may be prepared before it is told of, and until it is told of again.
PATIENCE_MS: Final = 3_600_000
#: Branches that are named at one time; of the others there is the number.
NAMED: Final = 20


class BranchReminders:
    """Looks at the prepared branches of one broker, as long as there are any."""

    def __init__(
        self, turn: Turn, schedule: Schedule, every: Callable[[], Sequence[Branch]]
    ) -> None:
        self._turn = turn
        self._schedule = schedule
        self._every = every
        #: When each was prepared, or told of last, in milliseconds of the clock of timers.
        self._since: dict[int, int] = {}
        self._looking = False

    def prepared(self, branch: Branch) -> None:
        """Watch one more branch, prepared now or before this start."""
        timer_ms = self._turn.refresh_timer()
        # Only the wall clock outlives a process.
        self._since[branch.id] = timer_ms - max(0, self._turn.now_ms - branch.since_ms)
        if not self._looking:
            self._look_at(self._due_ms(branch))

    def _look_at(self, when_ms: int) -> None:
        self._looking = True
        self._schedule.at(when_ms, self._look)

    def _look(self) -> None:
        self._looking = False
        timer_ms, now_ms = self._turn.refresh_timer(), self._turn.now_ms
        left = [branch for branch in self._every() if branch.state is State.PREPARED]
        due = [branch for branch in left if self._due_ms(branch) <= timer_ms]
        for branch in due[:NAMED]:
            _log.warn(
                "branch {xid} has been prepared for {hours} h, and nobody has ended it: it keeps {sent} messages that it has sent, and {acknowledged} that "
                "it has acknowledged, from everybody. If its coordinator will not come back, end it: imqcmd rollback txn -n {xid}, or imqcmd commit txn",
                xid=xid_text(branch.xid),
                hours=max(now_ms - branch.since_ms, PATIENCE_MS) // PATIENCE_MS,
                sent=branch.sent,
                acknowledged=branch.acknowledged,
            )
        if len(due) > NAMED:
            _log.warn("and {count} more branches: imqcmd list txn", count=len(due) - NAMED)
        self._since.update(dict.fromkeys([branch.id for branch in due], timer_ms))
        there = {branch.id for branch in left}
        self._since = {id: at_ms for id, at_ms in self._since.items() if id in there}
        if left:
            self._look_at(min(self._due_ms(branch) for branch in left))

    def _due_ms(self, branch: Branch) -> int:
        return self._since[branch.id] + PATIENCE_MS
