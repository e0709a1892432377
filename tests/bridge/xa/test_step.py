"""The pure steps: by table, and whatever the answers, in whatever order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.xa.errors import Misuse
from bridge.xa.status import BranchState, TransactionState
from bridge.xa.step import step
from bridge.xa.transaction_state import (
    HEURISTIC,
    Action,
    Answered,
    Ask,
    Branch,
    Call,
    Cause,
    CommitAsked,
    Decide,
    Decided,
    DecisionLost,
    Event,
    Found,
    GlobalTransaction,
    Joined,
    Missing,
    NotDecided,
    Note,
    Order,
    Ordered,
    Presume,
    Reached,
    Record,
    Remove,
    RollbackAsked,
    Separated,
    Started,
    StartFailed,
    Tell,
)
from gateway.messaging import xa

A, B = Branch(b"a", "a", "rm:a"), Branch(b"b", "b", "rm:b")
CODES = [0, 3, 4, 5, 6, 7, 8, 100, 107, -3, -4, -5, -6, -7]


def after(*events: Event) -> tuple[GlobalTransaction, list[Action]]:
    now, actions = GlobalTransaction(), list[Action]()
    for event in events:
        now, actions = step(now, event)
    return now, actions


def ended(*branches: int) -> list[Event]:
    return [Answered(Call.END, branch) for branch in branches]


def prepared(*codes: int) -> list[Event]:
    return [
        Started(A),
        Started(B),
        CommitAsked(),
        *ended(0, 1),
        *(Answered(Call.PREPARE, at, code) for at, code in enumerate(codes)),
    ]


def committing(*codes: int) -> list[Event]:
    return [
        *prepared(0, 0),
        Decided(),
        *(Answered(Call.COMMIT, at, code) for at, code in enumerate(codes)),
    ]


ONE_PHASE: Final[list[Event]] = [Started(A), Joined(0), CommitAsked()]
JOINED: Final[list[Event]] = [Started(A), Joined(0), Started(B), CommitAsked()]
FAILED: Final = StartFailed(Cause(-3, "b"))
WAITING: Final = committing(0, -7)
FORGETTING: Final = [*committing(0, 5), Ordered(Order.FORGET)]
ACTIONS: Final[dict[str, list[tuple[list[Event], list[Action]]]]] = {
    "two phases": [
        (
            [Started(A), Started(B), CommitAsked()],
            [Ask(Call.END, 0), Ask(Call.END, 1), Ask(Call.PREPARE, 0), Ask(Call.PREPARE, 1)],
        ),
        (prepared(0), []),
        (prepared(0, 0), [Decide()]),
        (committing(), [Ask(Call.COMMIT, 0), Ask(Call.COMMIT, 1)]),
        (committing(0), []),
        (committing(0, 0), [Remove(), Tell()]),
    ],
    "who voted read-only is not asked again": [
        ([*prepared(3, 0), Decided()], [Ask(Call.COMMIT, 1)]),
        (prepared(3, 100), [Tell()]),
        (prepared(3, -3), [Ask(Call.ROLLBACK, 1)]),
        (prepared(3, 3), [Tell()]),
    ],
    "one phase waits for all ends": [
        (ONE_PHASE, [Ask(Call.END, 0)]),
        ([*ONE_PHASE, *ended(0)], []),
        ([*ONE_PHASE, *ended(0, 0)], [Ask(Call.COMMIT_ONE_PHASE, 0)]),
        ([*ONE_PHASE, *ended(0), Answered(Call.END, 0, -7)], [Ask(Call.ROLLBACK, 0)]),
        ([*ONE_PHASE, Answered(Call.END, 0, -7), *ended(0)], [Ask(Call.ROLLBACK, 0)]),
    ],
    "a joined branch is prepared when all sessions have ended": [
        (JOINED, [Ask(Call.END, 0), Ask(Call.END, 1), Ask(Call.PREPARE, 1)]),
        ([*JOINED, *ended(0, 0)], [Ask(Call.PREPARE, 0)]),
    ],
    "what is to be rolled back is not prepared first": [
        (
            [*JOINED, Answered(Call.END, 1, 100), *ended(0, 0), Answered(Call.PREPARE, 1, 100)],
            [Ask(Call.ROLLBACK, 0)],
        ),
    ],
    "what could not be started is rolled back at commit": [
        (
            [Started(A), FAILED, CommitAsked()],
            [Ask(Call.END, 0, failed=True), Ask(Call.ROLLBACK, 0)],
        ),
        ([FAILED, CommitAsked()], [Tell()]),
    ],
    "a branch that could not be started is not asked to end": [
        (
            [Started(A), Started(B), StartFailed(Cause(-3, "b"), 1), CommitAsked()],
            [Ask(Call.END, 0, failed=True), Ask(Call.ROLLBACK, 0)],
        ),
        ([Started(A), StartFailed(Cause(-3, "a"), 0), RollbackAsked()], [Tell()]),
        (
            [Started(A), Joined(0), StartFailed(Cause(-3, "b"), 0), RollbackAsked()],
            [Ask(Call.END, 0, failed=True), Ask(Call.ROLLBACK, 0)],
        ),
        (
            [
                *(Started(A), RollbackAsked(), StartFailed(Cause(-3, "a"), 0)),
                *(Answered(Call.END, 0, -4), Answered(Call.ROLLBACK, 0, -4)),
            ],
            [Tell()],
        ),
    ],
    "a decision that is not written": [
        (
            [*prepared(0, 0), NotDecided(Cause(-7))],
            [Ask(Call.ROLLBACK, 0), Ask(Call.ROLLBACK, 1)],
        ),
    ],
    "what waits goes on when it is reached": [
        ([*WAITING, Reached(1)], [Ask(Call.COMMIT, 1)]),
        ([*WAITING, Reached(1), Answered(Call.COMMIT, 1, -4)], [Presume(1), Remove()]),
        ([*WAITING, Ordered(Order.COMMIT)], [Presume(1), Remove(now=True)]),
    ],
    "what is forgotten is forgotten by its resource manager": [
        (FORGETTING, [Record()]),
        ([*FORGETTING, Reached(1)], [Ask(Call.FORGET, 1)]),
        ([*FORGETTING, Reached(1), Answered(Call.FORGET, 1, -4)], [Remove()]),
        ([*FORGETTING, Ordered(Order.FORGET)], [Remove(now=True)]),
    ],
}


@pytest.mark.parametrize("case", ACTIONS)
def test_actions(case: str) -> None:
    assert [after(*events)[1] for events, _ in ACTIONS[case]] == [
        actions for _, actions in ACTIONS[case]
    ]


BRANCH_ROLLED_BACK: Final = [*WAITING, Ordered(Order.ROLLBACK)]


@pytest.mark.parametrize(
    ("events", "state", "actions"),
    [
        (committing(0, 0), TransactionState.COMMITTED, [Remove(), Tell()]),
        (prepared(3, 3), TransactionState.COMMITTED, [Tell()]),
        ([*prepared(0, 0), DecisionLost(Cause(-7))], TransactionState.IN_DOUBT, [Tell()]),
        (
            [*BRANCH_ROLLED_BACK, Reached(1), Answered(Call.ROLLBACK, 1)],
            TransactionState.HEURISTIC,
            [Record()],
        ),
    ],
)
def test_states(events: list[Event], state: TransactionState, actions: list[Action]) -> None:
    now, found = after(*events)
    assert (now.state, found) == (state, actions)


def test_an_order_to_roll_back_is_recorded() -> None:
    now, actions = after(*BRANCH_ROLLED_BACK)
    assert (now.branches[1].state, actions) == (BranchState.ROLLBACK_ORDERED, [Record()])


def test_a_start_that_failed_is_the_cause_and_its_session_is_not_associated() -> None:
    now, _ = after(Started(A), FAILED, CommitAsked())
    assert now.cause == Cause(-3, "b")
    now, _ = after(Started(A), Joined(0), StartFailed(Cause(-3, "b"), 0), RollbackAsked())
    assert now.branches[0].associations == 1


def test_a_start_that_fails_behind_the_commit_is_the_cause_and_its_end_says_the_rest() -> None:
    begun: list[Event] = [Started(A), Started(B), CommitAsked(), StartFailed(Cause(-3, "b"), 1)]
    now, actions = after(
        *begun,
        Answered(Call.END, 1, -4),
        Answered(Call.PREPARE, 1, -4),
        *ended(0),
        Answered(Call.PREPARE, 0),
    )
    assert (actions, now.cause) == ([Ask(Call.ROLLBACK, 0)], Cause(-3, "b"))


@pytest.mark.parametrize(
    ("code", "state", "actions"),
    [
        (0, BranchState.COMMITTED, [Remove(), Tell()]),
        (-4, BranchState.COMMITTED, [Presume(1, at_first=True), Remove(), Tell()]),
        (7, BranchState.COMMITTED, [Ask(Call.FORGET, 1)]),
        (4, BranchState.WAITING, [Note(), Tell()]),
        (-7, BranchState.WAITING, [Note(), Tell()]),
        (-3, BranchState.WAITING, [Note(), Tell()]),
        (-6, BranchState.WAITING, [Note(), Tell()]),
        (6, BranchState.HEURISTIC_ROLLBACK, [Record(), Tell()]),
        (100, BranchState.HEURISTIC_ROLLBACK, [Record(), Tell()]),
        (5, BranchState.HEURISTIC_MIXED, [Record(), Tell()]),
        (8, BranchState.HEURISTIC_HAZARD, [Record(), Tell()]),
    ],
)
def test_answers_to_commit(code: int, state: BranchState, actions: list[Action]) -> None:
    now, found = after(*committing(0, code))
    assert (now.branches[1].state, found) == (state, actions)


@pytest.mark.parametrize(
    ("code", "state", "ends"),
    [
        (0, BranchState.COMMITTED, TransactionState.COMMITTED),
        (100, BranchState.ROLLED_BACK, TransactionState.ROLLED_BACK),
        (-7, BranchState.UNKNOWN, TransactionState.UNKNOWN),
        (-4, BranchState.UNKNOWN, TransactionState.UNKNOWN),
        (5, BranchState.HEURISTIC_MIXED, TransactionState.HEURISTIC),
        (8, BranchState.HEURISTIC_HAZARD, TransactionState.HEURISTIC),
    ],
)
def test_answers_to_commit_in_one_phase(
    code: int, state: BranchState, ends: TransactionState
) -> None:
    now, actions = after(
        Started(A), CommitAsked(), *ended(0), Answered(Call.COMMIT_ONE_PHASE, 0, code)
    )
    assert (now.branches[0].state, now.state, actions[-1]) == (state, ends, Tell())


@pytest.mark.parametrize("code", [-3, -5, -6, 4])
def test_a_commit_in_one_phase_that_was_not_done_is_rolled_back(code: int) -> None:
    _, actions = after(
        Started(A), CommitAsked(), *ended(0), Answered(Call.COMMIT_ONE_PHASE, 0, code)
    )
    assert actions == [Ask(Call.ROLLBACK, 0)]


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (0, BranchState.ROLLED_BACK),
        (-4, BranchState.ROLLED_BACK),
        (104, BranchState.ROLLED_BACK),
        (-7, BranchState.LEFT),
        (-3, BranchState.LEFT),
        (7, BranchState.HEURISTIC_COMMIT),
        (5, BranchState.HEURISTIC_MIXED),
        (8, BranchState.HEURISTIC_HAZARD),
    ],
)
def test_answers_to_rollback(code: int, state: BranchState) -> None:
    now, _ = after(Started(A), RollbackAsked(), *ended(0), Answered(Call.ROLLBACK, 0, code))
    assert now.branches[0].state is state
    assert now.state is (
        TransactionState.HEURISTIC if state in HEURISTIC else TransactionState.ROLLED_BACK
    )


def test_where_one_name_is_that_of_several_nothing_follows_from_a_branch_that_is_not_known() -> (
    None
):
    several = B._replace(rm="rm:b (target)")
    begun: list[Event] = [
        Started(several) if event == Started(B) else event for event in committing(0)
    ]
    now, actions = after(*begun, Answered(Call.COMMIT, 1, -4))
    assert (now.branches[1].state, actions) == (BranchState.WAITING, [Note(), Tell()])
    assert after(*begun, Answered(Call.COMMIT, 1, -4), Missing(1))[1] == []
    now, actions = after(*begun, Answered(Call.COMMIT, 1, -7), Missing(1))
    assert (now.branches[1].error, actions) == (-4, [Note()])
    now, actions = after(*begun, Answered(Call.COMMIT, 1, -4), Reached(1), Answered(Call.COMMIT, 1))
    assert (now.state, actions) == (TransactionState.COMMITTED, [Remove()])


@pytest.mark.parametrize(
    "events",
    [
        [Decided()],
        [Answered(Call.END, 0)],
        [Started(A), CommitAsked(), CommitAsked()],
        [Started(A), CommitAsked(), Started(B)],
        [Started(A), CommitAsked(), *ended(0, 0)],
        [*prepared(0), Answered(Call.PREPARE, 0)],
        [*prepared(0, 0), Answered(Call.COMMIT, 0)],
        [*committing(0, 0), Ordered(Order.FORGET)],
        [*committing(0, 0), Reached(0), Reached(0)],
        [*committing(0), Ordered(Order.COMMIT)],
        [*committing(0, -7), Ordered(Order.ROLLBACK), Ordered(Order.ROLLBACK)],
        [*committing(0, -7), Found(A)],
        [Started(A), Reached(0)],
        [*committing(0, -7), Missing(0)],
        [RollbackAsked(), RollbackAsked()],
    ],
)
def test_what_cannot_be_is_refused(events: Sequence[Event]) -> None:
    with pytest.raises(Misuse):
        after(*events)


@given(
    st.integers(0, 4).flatmap(
        lambda count: st.lists(st.integers(1, 3), min_size=count, max_size=count)
    ),
    st.booleans(),
    st.randoms(use_true_random=False),
    st.sampled_from([[0], [0, 0, 3], [0, 0, 0, *CODES], CODES]),
    st.sampled_from([Decided(), Decided(), NotDecided(Cause(-7)), DecisionLost(Cause(-7))]),
)
def test_whatever_is_answered_it_is_told_once_and_right(
    associations: list[int], commit: bool, random: object, codes: list[int], decision: Event
) -> None:
    """All answers come, in any order: then the outcome was told once, nothing is asked twice, and
    no commit came before the decision.
    """
    pick = random.choice  # type: ignore[attr-defined]
    now = GlobalTransaction()
    for number, count in enumerate(associations):
        now, _ = step(now, Started(A._replace(bqual=bytes((number,)), rm=str(number))))
        for _ in range(count - 1):
            now, _ = step(now, Joined(number))
    now, actions = step(now, CommitAsked() if commit else RollbackAsked())
    pending: list[Event] = []
    asked: list[Ask] = []
    told = decided = 0
    answers: dict[tuple[Call, int], int] = {}
    while True:
        for action in actions:
            match action:
                case Ask(call, index):
                    assert action not in asked or call is Call.FORGET
                    asked.append(action)
                    assert call is not Call.COMMIT or decided
                    for _ in range(now.branches[index].associations if call is Call.END else 1):
                        code = pick(codes)
                        code = 4 if code == 3 and call is not Call.PREPARE else code
                        answers[call, index] = code
                        pending.append(Answered(call, index, code))
                case Decide():
                    pending.append(decision)
                case Tell():
                    told += 1
                case _:
                    pass
        if not pending:
            break
        event = pending.pop(pick(range(len(pending))))
        decided += isinstance(event, Decided)
        now, actions = step(now, event)
    assert told == 1
    assert now.told
    states = {branch.state for branch in now.branches}
    if now.state is TransactionState.COMMITTED:
        assert states <= {BranchState.COMMITTED, BranchState.READ_ONLY}
        assert commit
    if now.state is TransactionState.ROLLED_BACK:
        assert states <= {BranchState.ROLLED_BACK, BranchState.LEFT, BranchState.READ_ONLY}
        assert not decided
    assert (now.state is TransactionState.HEURISTIC) <= bool(states & HEURISTIC)
    if len(associations) == 1:
        assert not decided


def unheard_of() -> tuple[GlobalTransaction, list[Action]]:
    """A hazard: after an XAER_RMERR the branch was not known."""
    now, _ = after(*committing(0, xa.XAER_RMERR))
    now, _ = step(now, Reached(1))
    return step(now, Answered(Call.COMMIT, 1, xa.XAER_NOTA))


def test_a_hazard_that_is_held_after_all_is_committed_and_else_it_is_left() -> None:
    now, _ = unheard_of()
    assert (now.state, now.branches[1].state) == (
        TransactionState.HEURISTIC,
        BranchState.HEURISTIC_HAZARD,
    )
    with pytest.raises(Misuse):
        step(now, Reached(1))
    now, actions = step(now, Reached(1, holds=True))
    assert actions == [Ask(Call.COMMIT, 1)]
    assert step(now, Answered(Call.COMMIT, 1))[0].state is TransactionState.COMMITTED
    again, actions = step(now, Answered(Call.COMMIT, 1, xa.XAER_RMFAIL))
    assert (again.state, again.branches[1].state, actions) == (
        TransactionState.WAITING,
        BranchState.WAITING,
        [Note()],
    )


def test_a_hazard_is_remembered_when_it_is_forgotten_and_what_is_asked_then_changes_nothing() -> (
    None
):
    now, _ = unheard_of()
    now, _ = step(now, Ordered(Order.FORGET))
    assert step(now, Ordered(Order.FORGET))[1] == [Presume(1), Remove(now=True)]
    now, actions = step(now, Reached(1))
    assert actions == [Ask(Call.FORGET, 1)]
    assert step(now, Answered(Call.FORGET, 1))[1] == [Presume(1), Remove()]
    now, _ = step(now, Answered(Call.FORGET, 1, xa.XAER_PROTO))
    assert now.branches[1].error == xa.XAER_NOTA
    assert step(now, Reached(1, holds=True))[1] == [Ask(Call.COMMIT, 1)]


def test_a_branch_whose_name_is_that_of_others_is_called_otherwise_while_it_is_active() -> None:
    now, _ = after(Started(A), Separated(0, "rm:a (branch 1)"))
    assert now.branches[0].rm == "rm:a (branch 1)"
    with pytest.raises(Misuse):
        after(*committing(), Separated(0, "rm:a (branch 1)"))
