"""What the log says of transactions that need somebody, and when; and how many ended how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import Logger

from bridge.xa.reminders import TransactionReminders
from bridge.xa.status import BranchStatus, TransactionStatus

WAITS = "waits for 'gone': it is decided, and is completed when that resource manager is back; "


class Noted:
    """Transactions, and what the log has of them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.listed: list[TransactionStatus] = []
        self.said: list[tuple[int, str, str]] = []
        observer: Any = self._observe
        log = Logger(observer=observer)
        self.reminders = TransactionReminders(self.clock, "shop", lambda: self.listed, log)

    def _observe(self, event: Any) -> None:
        self.said.append((round(self.clock.seconds()), event["id"], event["words"]))

    def put(self, id: str, state: str, *branches: str) -> None:
        since_ms = round(self.clock.seconds() * 1000)
        shown = tuple(
            BranchStatus(name, f"rm:{name}", "", word)
            for name, word in (branch.split(":") for branch in branches)
        )
        self.listed.append(TransactionStatus(id, state, "COMMIT", since_ms, shown, ""))

    def goes_on(self, seconds: int) -> Sequence[tuple[int, str, str]]:
        """What is said meanwhile, to the second in steps of ten."""
        self.said.clear()
        for _ in range(seconds // 10):
            self.clock.advance(10)
        return list(self.said)


@pytest.mark.parametrize(
    ("state", "branch", "words"),
    [
        ("WAITING", "gone:WAITING", WAITS),
        ("WAITING", "gone:ROLLBACK_ORDERED", WAITS),
        (
            "HEURISTIC",
            "gone:HEURISTIC_ROLLBACK",
            "is heuristic: 'here' COMMITTED, 'gone' HEURISTIC_ROLLBACK; ",
        ),
        (
            "ROLLING_BACK",
            "gone:LEFT",
            "is to be rolled back, and 'gone' has not answered to that: ",
        ),
        ("PREPARING", "gone:PREPARING", "is PREPARING for long: 'gone' has not answered"),
        (
            "DECIDING",
            "gone:PREPARED",
            "is DECIDING for long: all have prepared it, and the decision waits for the log's disk, or for the transaction before",
        ),
        (
            "COMMITTING",
            "gone:COMMITTING",
            "is COMMITTING for long: it is decided, and 'gone' has not answered",
        ),
        ("ROLLING_BACK", "gone:ROLLING_BACK", "is ROLLING_BACK for long: 'gone' has not answered"),
        (
            "IN_DOUBT",
            "gone:PREPARED",
            "is in doubt: its decision could not be written to the log; ",
        ),
    ],
)
def test_one_that_lasts_is_told_of_once_and_again_each_hour(
    state: str, branch: str, words: str
) -> None:
    noted = Noted()
    noted.put("1", state, "here:COMMITTED", branch)
    assert noted.goes_on(50) == []
    [(at, id, said)] = noted.goes_on(3600)
    assert (at, id) == (60, "1")
    assert said.startswith(words)
    [(again, _, _)] = noted.goes_on(3600)
    assert again == 3660
    noted.listed.clear()
    assert noted.goes_on(7200) == []


@pytest.mark.parametrize("state", ["ACTIVE", "FORGETTING"])
def test_one_that_waits_for_messages_or_was_seen_to_is_no_news(state: str) -> None:
    noted = Noted()
    noted.put("1", state, "here:ACTIVE")
    assert noted.goes_on(7200) == []


def test_each_is_told_of_by_itself() -> None:
    noted = Noted()
    noted.put("1", "WAITING", "gone:WAITING")
    assert [id for _, id, _ in noted.goes_on(100)] == ["1"]
    noted.put("2", "WAITING", "gone:WAITING", "lost:WAITING")
    [(_, id, said)] = noted.goes_on(100)
    assert id == "2"
    assert said.startswith("waits for 'gone', 'lost': ")
    assert said.endswith("imqbridgemgr commit transaction -bn shop -tid 2")


def test_nothing_is_said_after_the_end() -> None:
    noted = Noted()
    noted.put("1", "WAITING", "gone:WAITING")
    noted.reminders.stop()
    noted.reminders.stop()
    assert noted.goes_on(7200) == []
    assert noted.clock.getDelayedCalls() == []
