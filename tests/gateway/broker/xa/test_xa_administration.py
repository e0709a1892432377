"""What administrators see of prepared branches and may do about them, what branches keep them
from, and what the log says of those that stay prepared.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from twisted.logger import formatEvent

from gateway.broker.operator.administration import AdministrationRefused
from gateway.broker.operator.xa_administration import BranchAdministration
from gateway.broker.xa import reminders
from gateway.messaging.provider import ConsumerSpec
from tests.gateway.broker.administration import administration, outcome
from tests.gateway.broker.stepped_broker import Stepped, texts
from tests.gateway.broker.xa.xa_branches import (
    NOTA,
    OTHER,
    PROTO,
    TOPIC,
    Branching,
    Q,
    branched,
    code,
    fill,
    waiting,
    xid,
)
from tests.logged import logged_lines

HEURRB, HEURCOM = 6, 7
XID = "5354.676c6f62616c2031.6272616e6368"


@pytest.fixture
def stepped(tmp_path: Path) -> Stepped:
    return branched(tmp_path)


def prepared(stepped: Stepped) -> Branching:
    """Branch 1 has acknowledged two messages, and sent one."""
    fill(stepped, 2)
    xa = Branching(stepped)
    inbox = xa.consume(Q)
    xa.takes(xid(1), inbox, 2)
    xa.session.send(texts(OTHER, ["held"]))
    xa.end_and_prepare(xid(1))
    xa.session.close()
    return Branching(stepped)


def test_prepared_branches_are_listed_with_their_ages(stepped: Stepped) -> None:
    xa = prepared(stepped)
    xa.start(xid(2))
    xa.session.send(texts(OTHER, ["not prepared"]))
    stepped.later(60)
    admin = BranchAdministration(stepped.provider)
    (branch,) = admin.branches()
    assert (branch.xid, branch.state, branch.age_ms // 1000, branch.user) == (
        XID,
        "PREPARED",
        60,
        "guest",
    )
    assert (branch.sent, branch.acknowledged) == (1, 2)
    assert branch.since_ms + branch.age_ms == stepped.now_ms
    stepped.restart()
    stepped.later(40)
    (branch,) = BranchAdministration(stepped.provider).branches()
    assert (branch.xid, branch.age_ms // 1000, branch.sent, branch.acknowledged) == (XID, 100, 1, 2)


@pytest.mark.parametrize("commit", [True, False])
def test_a_heuristic_decision_is_told_to_the_coordinator_until_it_is_forgotten(
    stepped: Stepped, commit: bool
) -> None:
    xa = prepared(stepped)
    admin = BranchAdministration(stepped.provider)
    outcome(stepped, admin.commit(XID) if commit else admin.rollback(XID))
    assert waiting(stepped, Q) == ([] if commit else ["0", "1"])
    assert waiting(stepped, OTHER) == (["held"] if commit else [])
    told = HEURCOM if commit else HEURRB
    for _ in range(2):
        assert xa.recover() == [xid(1)]
        assert code(stepped, partial(xa.resource.commit, xid(1), False)) == told
        assert code(stepped, partial(xa.resource.rollback, xid(1))) == told
        assert code(stepped, partial(xa.resource.prepare, xid(1))) == told
        with pytest.raises(AdministrationRefused, match="completed already"):
            outcome(stepped, BranchAdministration(stepped.provider).commit(XID))
        (branch,) = BranchAdministration(stepped.provider).branches()
        assert branch.state == ("HEURISTIC_COMMIT" if commit else "HEURISTIC_ROLLBACK")
        assert (branch.sent, branch.acknowledged) == (0, 0)
        stepped.restart()
        xa = Branching(stepped)
    assert waiting(stepped, Q) == ([] if commit else ["0", "1"])
    assert waiting(stepped, OTHER) == (["held"] if commit else [])
    xa.forget(xid(1))
    assert (xa.recover(), stepped.disk.branches) == ([], {})
    assert code(stepped, lambda: xa.resource.commit(xid(1), False)) == NOTA


def test_an_administrator_may_forget_too(stepped: Stepped) -> None:
    prepared(stepped)
    admin = BranchAdministration(stepped.provider)
    with pytest.raises(AdministrationRefused, match="is prepared"):
        outcome(stepped, admin.forget(XID))
    outcome(stepped, admin.rollback(XID))
    outcome(stepped, admin.forget(XID))
    assert admin.branches() == []
    for order in (admin.commit, admin.rollback, admin.forget):
        with pytest.raises(AdministrationRefused, match="there is no prepared branch"):
            outcome(stepped, order(XID))


def test_a_prepared_branch_is_not_forgotten_by_its_coordinator(stepped: Stepped) -> None:
    xa = prepared(stepped)
    assert code(stepped, lambda: xa.resource.forget(xid(1))) == PROTO


def test_a_purge_leaves_what_branches_hold(stepped: Stepped) -> None:
    xa = prepared(stepped)
    fill(stepped, 3)
    fill(stepped, 3, OTHER)
    admin = administration(stepped)
    assert outcome(stepped, admin.purge("queue", "q")) == 3
    assert outcome(stepped, admin.purge("queue", "other")) == 3
    xa.rollback(xid(1))
    assert waiting(stepped, Q) == ["0", "1"]
    assert waiting(stepped, OTHER) == []


def test_a_destination_that_a_branch_holds_messages_of_is_not_destroyed(stepped: Stepped) -> None:
    xa = prepared(stepped)
    admin = administration(stepped)
    for name in ("q", "other"):
        with pytest.raises(AdministrationRefused, match="prepared transactions"):
            outcome(stepped, admin.destroy("queue", name))
    stepped.restart()
    admin, xa = administration(stepped), Branching(stepped)
    for name in ("q", "other"):
        with pytest.raises(AdministrationRefused, match="prepared transactions"):
            outcome(stepped, admin.destroy("queue", name))
    xa.commit(xid(1))
    for name in ("q", "other"):
        outcome(stepped, admin.destroy("queue", name))
    assert stepped.empty


def test_a_topic_that_a_branch_has_sent_to_is_not_destroyed(
    stepped: Stepped, xa: Branching
) -> None:
    xa.prepares(xid(1), TOPIC, ["held"])
    with pytest.raises(AdministrationRefused, match="prepared transactions"):
        outcome(stepped, administration(stepped).destroy("topic", "t"))


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_a_durable_subscription_may_be_destroyed_with_what_is_locked(
    stepped: Stepped, commit: bool, restart: bool
) -> None:
    owner = stepped.connect("c")
    owner.xa_session().consumer(
        ConsumerSpec(TOPIC, durable_name="d"), lambda *args: None, lambda error: None
    )
    owner.close()
    fill(stepped, 3, TOPIC)
    xa = Branching(stepped, "c")
    inbox = xa.consume(TOPIC, durable_name="d", credit=2)
    xa.acknowledges(xid(1), inbox)
    xa.prepare(xid(1))
    xa.connection.close()
    admin = administration(stepped)
    (durable,) = admin.durables()
    assert (durable.messages, durable.active) == (3, False)
    outcome(stepped, admin.destroy_durable("d", "c"))
    assert waiting(stepped, Q) == []
    if restart:
        stepped.restart()
    xa = Branching(stepped)
    if commit:
        xa.commit(xid(1))
    else:
        xa.rollback(xid(1))
    stepped.run_until_idle()
    assert [row.body for row in stepped.disk.rows.values()] == [b"2"], (
        "the dead message queue has what waited"
    )
    assert not stepped.disk.owed
    assert stepped.broker.topic(TOPIC).count == 0


def test_how_destinations_stand(stepped: Stepped) -> None:
    prepared(stepped)
    admin = administration(stepped)
    queue, other = admin.destination("queue", "q"), admin.destination("queue", "other")
    assert (queue.messages, queue.unacknowledged, queue.in_transaction) == (2, 2, 0)
    assert (other.messages, other.unacknowledged, other.in_transaction) == (0, 0, 1)
    browser = stepped.receive(stepped.session(), Q, browse=True)
    assert (browser.texts, browser.ended) == ([], True)


HOUR = 3600


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
