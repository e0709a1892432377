"""What the log says of prepared branches that nobody ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.logger import formatEvent

from gateway.broker.xa import reminders
from tests.gateway.broker.stepped_broker import Stepped, texts
from tests.gateway.broker.xa_branches import OTHER, Branching, Q, branched, fill, xid
from tests.logged import logged_lines

HOUR = 3600
XID = "5354.676c6f62616c2031.6272616e6368"


@pytest.fixture
def stepped(tmp_path: Path) -> Stepped:
    return branched(tmp_path)


@pytest.fixture
def said() -> Iterator[list[str]]:
    with logged_lines(
        lambda event: event["log_level"].name == "warn" and "branch" in formatEvent(event)
    ) as lines:
        yield lines


def prepare(stepped: Stepped, number: int) -> Branching:
    xa = Branching(stepped)
    xa.start(xid(number))
    xa.session.send(texts(OTHER, ["held"]))
    xa.end_and_prepare(xid(number))
    return xa


def test_one_that_nobody_ends_is_told_of_each_hour_with_the_remedy(
    stepped: Stepped, said: list[str]
) -> None:
    fill(stepped, 2)
    xa = Branching(stepped)
    inbox = xa.consume(Q)
    xa.takes(xid(1), inbox, 2)
    xa.session.send(texts(OTHER, ["held"]))
    xa.end_and_prepare(xid(1))
    stepped.later(HOUR - 1)
    assert said == []
    stepped.later(1)
    [line] = said
    assert line.startswith(f"branch {XID} has been prepared for 1 h,")
    assert "1 messages that it has sent, and 2 that it has acknowledged" in line
    assert f"imqcmd rollback txn -n {XID}" in line
    stepped.later(HOUR)
    assert "for 2 h," in said[1]
    Branching(stepped).rollback(xid(1))
    stepped.later(3 * HOUR)
    assert len(said) == 2


def test_it_is_told_of_at_the_start_if_it_is_old(stepped: Stepped, said: list[str]) -> None:
    prepare(stepped, 1)
    stepped.restart()
    stepped.later(1)
    assert said == []
    stepped.later(HOUR - 2)
    stepped.restart()
    stepped.later(2)
    assert len(said) == 1
    stepped.restart()
    stepped.later(0)
    assert len(said) == 2


def test_each_has_its_hour_and_many_are_counted(
    stepped: Stepped, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reminders, "NAMED", 2)
    prepare(stepped, 1)
    stepped.later(60)
    for number in range(2, 6):
        prepare(stepped, number)
    stepped.later(HOUR - 60)
    assert len(said) == 1
    stepped.later(60)
    assert (len(said), said[-1]) == (4, "and 2 more branches: imqcmd list txn")


def test_a_branch_that_is_ended_in_time_is_not_told_of(stepped: Stepped, said: list[str]) -> None:
    xa = prepare(stepped, 1)
    xa.commit(xid(1))
    stepped.later(3 * HOUR)
    assert said == []
