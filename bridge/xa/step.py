"""A transaction's course: ``step(state, event) -> (state, actions)``.

Presumed abort.

All the rules are here:

* The decision is made when it is in the log, synced. Before that everything can be rolled back,
  after it nothing is.
* A transaction without a decision in the log was rolled back, whatever its branches say. So only
  decisions are logged.
* A branch that voted read-only has no second phase. A transaction of one branch has one phase, and
  is not logged.
* After the decision a resource manager that cannot commit now is waited for. One that does not know
  the branch has committed it before. As it may be another of the same name, the branch is
  remembered as presumed committed, and is committed if it is reported later. Where one name leads
  to several resource managers, nothing follows from such an answer.
* A branch that its resource manager completed on its own, as was decided, is forgotten there. Any
  other heuristic branch is recorded, and stays until an operator has it forgotten. A decided branch
  that the resource manager reports later is committed.

Pure: no Deferred, no clock, no I/O.
"""

from __future__ import annotations

from bridge.xa.errors import Misuse
from bridge.xa.status import BranchState, TransactionState
from bridge.xa.transaction_state import (
    HEURISTIC,
    UNFINISHED,
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
    is_one_of_several,
)
from gateway.messaging import xa

Step = tuple[GlobalTransaction, list[Action]]
#: A state, and whether the resource manager keeps a record of the branch that it is to forget now.
_Meaning = tuple[BranchState, bool]

#: The codes by which a resource manager says that it has rolled the branch back.
_ROLLBACKS = range(xa.XA_RBBASE, xa.XA_RBEND + 1)
_HEURISTICS: dict[int, _Meaning] = {
    xa.XA_HEURMIX: (BranchState.HEURISTIC_MIXED, False),
    xa.XA_HEURRB: (BranchState.HEURISTIC_ROLLBACK, False),
    xa.XA_HEURCOM: (BranchState.HEURISTIC_COMMIT, False),
    xa.XA_HEURHAZ: (BranchState.HEURISTIC_HAZARD, False),
}

#: The state of a branch that its resource manager was asked about.
_ASKED = {
    Call.PREPARE: BranchState.PREPARING,
    Call.COMMIT: BranchState.COMMITTING,
    Call.COMMIT_ONE_PHASE: BranchState.COMMITTING,
    Call.ROLLBACK: BranchState.ROLLING_BACK,
}

# What an answer of a resource manager means for its branch, by its code.

#: To prepare. With any other code the branch is to be rolled back.
_VOTES = {
    xa.XA_OK: BranchState.PREPARED,
    xa.XA_RDONLY: BranchState.READ_ONLY,
    xa.XAER_NOTA: BranchState.ROLLED_BACK,
    **dict.fromkeys(_ROLLBACKS, BranchState.ROLLED_BACK),
}
#: To commit in the second phase. Any other code, and it is asked again.
_COMMITTING: dict[int, _Meaning] = {
    **_HEURISTICS,
    **dict.fromkeys(_ROLLBACKS, (BranchState.HEURISTIC_ROLLBACK, False)),
    xa.XA_OK: (BranchState.COMMITTED, False),
    xa.XA_HEURCOM: (BranchState.COMMITTED, True),
    # It was committed before, and the answer was lost; also where the first commit is answered so,
    # as client libraries connect and ask again on their own. A hazard would have the messages in a
    # dead message queue as well as at their target.
    xa.XAER_NOTA: (BranchState.COMMITTED, False),
}
#: To commit in one phase, without a vote before. With any other code it is to be rolled back.
_COMMITTING_IN_ONE_PHASE: dict[int, _Meaning] = {
    **_HEURISTICS,
    **dict.fromkeys(_ROLLBACKS, (BranchState.ROLLED_BACK, False)),
    xa.XA_OK: (BranchState.COMMITTED, False),
    xa.XA_HEURCOM: (BranchState.COMMITTED, True),
    xa.XA_HEURRB: (BranchState.ROLLED_BACK, True),
    xa.XAER_RMFAIL: (BranchState.UNKNOWN, False),
    # Rolled back, or committed before by a client library that asked twice on its own.
    xa.XAER_NOTA: (BranchState.UNKNOWN, False),
}
#: To roll back a branch that was not decided.
_ROLLING_BACK: dict[int, _Meaning] = {
    **_HEURISTICS,
    **dict.fromkeys(_ROLLBACKS, (BranchState.ROLLED_BACK, False)),
    xa.XA_OK: (BranchState.ROLLED_BACK, False),
    xa.XA_HEURRB: (BranchState.ROLLED_BACK, True),
    xa.XAER_NOTA: (BranchState.ROLLED_BACK, False),
}
#: To roll back a branch that was decided to commit, by an operator's order.
_ROLLING_BACK_BY_ORDER: dict[int, _Meaning] = {
    **_HEURISTICS,
    **dict.fromkeys(_ROLLBACKS, (BranchState.HEURISTIC_ROLLBACK, False)),
    xa.XA_OK: (BranchState.HEURISTIC_ROLLBACK, False),
    xa.XA_HEURCOM: (BranchState.COMMITTED, True),
    # It may have been committed before.
    xa.XAER_NOTA: (BranchState.HEURISTIC_HAZARD, False),
}


def step(now: GlobalTransaction, event: Event) -> Step:
    """Return the transaction after an event, and what to do then, in order.

    :raises Misuse: the event is not possible in this state.
    """
    state = now.state
    if isinstance(event, Answered | Joined | Separated | Reached | Missing) and event.branch >= len(
        now.branches
    ):
        raise Misuse(f"there is no branch {event.branch}")
    match event:
        case Started(branch) if state is TransactionState.ACTIVE:
            return now._replace(branches=(*now.branches, branch)), []
        case Joined(index) if state is TransactionState.ACTIVE:
            branch = now.branches[index]
            return _with(now, index, branch._replace(associations=branch.associations + 1)), []
        case Separated(index, rm) if state is TransactionState.ACTIVE:
            return _with(now, index, now.branches[index]._replace(rm=rm)), []
        case StartFailed(cause, failed) if state in (
            TransactionState.ACTIVE,
            TransactionState.PREPARING,
            TransactionState.ROLLING_BACK,
        ):
            return _not_started(now._replace(cause=now.cause or cause), failed), []
        case CommitAsked() if state is TransactionState.ACTIVE:
            return _end_and_abort(now) if now.cause else _end_and_prepare(now)
        case RollbackAsked() if state is TransactionState.ACTIVE:
            return _end_and_abort(now)
        case Decided() if state is TransactionState.DECIDING:
            return _ask_all(
                now._replace(state=TransactionState.COMMITTING, decided=True),
                BranchState.PREPARED,
                Call.COMMIT,
            )
        case NotDecided(cause) if state is TransactionState.DECIDING:
            return _abort(now._replace(cause=cause))
        case DecisionLost(cause) if state is TransactionState.DECIDING:
            return now._replace(state=TransactionState.IN_DOUBT, cause=cause, told=True), [Tell()]
        case Answered():
            return _answered(now, event)
        case Reached(index, holds):
            return _reached(now, index, holds)
        case Missing(index) if now.branches[index].state is BranchState.WAITING:
            branch = now.branches[index]
            if branch.error == xa.XAER_NOTA:
                return now, []
            return _with(now, index, branch._replace(error=xa.XAER_NOTA)), [Note()]
        case Found(branch) if state in (
            TransactionState.HEURISTIC,
            TransactionState.FORGETTING,
            TransactionState.ROLLED_BACK,
        ):
            if not now.decided:
                return now._replace(
                    branches=(*now.branches, branch._replace(state=BranchState.LEFT))
                ), []
        case Ordered(order):
            return _ordered(now, order)
        case _:
            pass
    raise Misuse(f"{type(event).__name__} cannot be in the state {state.value}")


def _not_started(now: GlobalTransaction, failed: int | None) -> GlobalTransaction:
    """Go on without the session that could not take part.

    If it was asked to end the branch already, nothing changes: that answer decides.
    """
    if failed is None or now.state is not TransactionState.ACTIVE:
        return now
    branch = now.branches[failed]
    left = branch.associations - 1
    return _with(
        now,
        failed,
        branch._replace(associations=left, state=branch.state if left else BranchState.ROLLED_BACK),
    )


def _end_and_prepare(now: GlobalTransaction) -> Step:
    if not now.branches:
        return now._replace(state=TransactionState.COMMITTED, told=True), [Tell()]
    now = now._replace(state=TransactionState.PREPARING, one_phase=len(now.branches) == 1)
    actions: list[Action] = [Ask(Call.END, index) for index in range(len(now.branches))]
    for index, branch in enumerate(now.branches):
        # What one session is asked takes effect in order, so its prepare need not wait for its end.
        # Other sessions' ends it must wait for; and a commit in one phase for all of them, as there
        # is no vote that could still be refused.
        if branch.associations == 1 and not now.one_phase:
            now = _with(
                now, index, branch._replace(state=BranchState.PREPARING, asking=Call.PREPARE)
            )
            actions.append(Ask(Call.PREPARE, index))
    return now, actions


def _end_and_abort(now: GlobalTransaction) -> Step:
    now = now._replace(state=TransactionState.ROLLING_BACK)
    actions: list[Action] = []
    for index, branch in enumerate(now.branches):
        if not branch.associations:
            continue
        actions.append(Ask(Call.END, index, failed=True))
        if branch.associations == 1:
            now = _with(
                now, index, branch._replace(state=BranchState.ROLLING_BACK, asking=Call.ROLLBACK)
            )
            actions.append(Ask(Call.ROLLBACK, index))
    return (now, actions) if actions else _settled(now)


def _abort(now: GlobalTransaction) -> Step:
    """Roll back all that are not over, their associations being so."""
    now = now._replace(state=TransactionState.ROLLING_BACK)
    return _ask_all(now, (BranchState.IDLE, BranchState.PREPARED), Call.ROLLBACK)


def _ask_all(
    now: GlobalTransaction, states: BranchState | tuple[BranchState, ...], call: Call
) -> Step:
    """Ask every branch in one of these states, or settle without any."""
    wanted = states if isinstance(states, tuple) else (states,)
    asked: list[Action] = []
    for index, branch in enumerate(now.branches):
        if branch.state in wanted:
            now = _asking(now, index, call)
            asked.append(Ask(call, index))
    return (now, asked) if asked else _settled(now)


def _answered(now: GlobalTransaction, answer: Answered) -> Step:
    index = answer.branch
    branch = now.branches[index]
    if answer.call is Call.END:
        if (
            now.state not in (TransactionState.PREPARING, TransactionState.ROLLING_BACK)
            or branch.ended >= branch.associations
        ):
            raise Misuse(f"an answer to an end that was not asked, in the state {now.state.value}")
        return _ended(now, answer, branch._replace(ended=branch.ended + 1))
    if branch.asking is not answer.call:
        asked = branch.asking.value if branch.asking else "nothing"
        raise Misuse(f"an answer to {answer.call.value}, where {asked} was asked")
    # What is answered to forget says nothing of how it ended.
    same = answer.code in (xa.XA_OK, xa.XA_RDONLY) or answer.call is Call.FORGET
    branch = branch._replace(asking=None, error=branch.error if same else answer.code)
    match answer.call:
        case Call.PREPARE:
            voted = branch._replace(state=_VOTES.get(answer.code, BranchState.IDLE))
            return _gathered(_because(_with(now, index, voted), answer))
        case Call.COMMIT:
            before = now.branches[index].error
            meaning = _COMMITTING.get(answer.code, (BranchState.WAITING, False))
            if answer.code == xa.XAER_NOTA:
                if is_one_of_several(branch.rm):
                    # Another resource manager may have answered.
                    meaning = BranchState.WAITING, False
                elif before == xa.XAER_RMERR:
                    # After that the specification has the branch rolled back, while some providers
                    # say XAER_RMERR for anything.
                    meaning = BranchState.HEURISTIC_HAZARD, False
            presumed = answer.code == xa.XAER_NOTA and meaning[0] is BranchState.COMMITTED
            first: list[Action] = (
                [Presume(index, at_first=not now.told and not before)] if presumed else []
            )
            now, actions = _means(now, index, branch, meaning)
            return now, first + actions
        case Call.COMMIT_ONE_PHASE:
            if answer.code != xa.XA_HEURCOM:
                now = _because(now, answer)
            meaning = _COMMITTING_IN_ONE_PHASE.get(answer.code, (BranchState.IDLE, False))
            if meaning[0] is BranchState.IDLE:
                return _abort(_with(now, index, branch._replace(state=BranchState.IDLE)))
            return _means(now, index, branch, meaning)
        case Call.ROLLBACK:
            meaning = (
                _ROLLING_BACK_BY_ORDER.get(answer.code, (BranchState.ROLLBACK_ORDERED, False))
                if now.decided
                else _ROLLING_BACK.get(answer.code, (BranchState.LEFT, False))
            )
            if meaning[0] is BranchState.HEURISTIC_HAZARD:
                # As it is not to be taken for one whose commit was answered so.
                branch = branch._replace(error=xa.XA_HEURHAZ)
            return _means(now, index, branch, meaning)
        case Call.FORGET:
            return _forgotten(now, answer, branch)


def _ended(now: GlobalTransaction, answer: Answered, branch: Branch) -> Step:
    complete = branch.ended == branch.associations
    if complete and branch.state is BranchState.ACTIVE:
        branch = branch._replace(state=BranchState.IDLE)
    now = _with(now, answer.branch, branch)
    if now.state is TransactionState.ROLLING_BACK:
        if branch.state is not BranchState.IDLE:
            return _settled(now)
        # The last of several sessions.
        return _asking(now, answer.branch, Call.ROLLBACK), [Ask(Call.ROLLBACK, answer.branch)]
    now = _because(now, answer)
    if branch.state is not BranchState.IDLE or now.cause is not None:
        return _gathered(now)
    call = Call.COMMIT_ONE_PHASE if now.one_phase else Call.PREPARE
    if now.one_phase:
        now = now._replace(state=TransactionState.COMMITTING)
    return _asking(now, answer.branch, call), [Ask(call, answer.branch)]


def _gathered(now: GlobalTransaction) -> Step:
    """Go on, once everyone has answered to end and to prepare."""
    if any(branch.asking or branch.ended < branch.associations for branch in now.branches):
        return now, []
    if now.cause is not None:
        return _abort(now)
    if all(branch.state is BranchState.READ_ONLY for branch in now.branches):
        return now._replace(state=TransactionState.COMMITTED, told=True), [Tell()]
    return now._replace(state=TransactionState.DECIDING), [Decide()]


def _means(now: GlobalTransaction, index: int, branch: Branch, meaning: _Meaning) -> Step:
    """Go on with what an answer of the second phase means."""
    state, forget = meaning
    branch = branch._replace(state=state)
    return _forget(now, index, branch) if forget else _settled(_with(now, index, branch))


def _forget(now: GlobalTransaction, index: int, branch: Branch) -> Step:
    return _with(now, index, branch._replace(asking=Call.FORGET)), [Ask(Call.FORGET, index)]


def _forgotten(now: GlobalTransaction, answer: Answered, branch: Branch) -> Step:
    forgotten = answer.code in (xa.XA_OK, xa.XAER_NOTA)
    actions: list[Action] = []
    if branch.state in HEURISTIC:
        if forgotten and is_unheard_of(now, branch):
            actions.append(Presume(answer.branch))
        state = BranchState.FORGOTTEN if forgotten else branch.state
    elif forgotten:
        state = branch.state
    elif branch.state is BranchState.COMMITTED:
        # Its resource manager would tell it as heuristic to every recovery, which must know that it
        # was right.
        state, now = BranchState.WAITING, now._replace(decided=True)
    else:
        state = BranchState.LEFT
    now, more = _settled(_with(now, answer.branch, branch._replace(state=state)))
    return now, actions + more


def is_unheard_of(now: GlobalTransaction, branch: Branch) -> bool:
    """Return whether the resource manager did not know a decided branch.

    The manager asked may be another of the same name. If the branch is reported later, it is
    committed.
    """
    return (
        now.decided
        and branch.error == xa.XAER_NOTA
        and branch.state in (BranchState.COMMITTED, BranchState.HEURISTIC_HAZARD)
    )


def _presumed_anew(now: GlobalTransaction) -> list[Action]:
    """Presume the branches of a forgotten transaction again.

    It may have been heuristic for longer than presumptions are remembered.
    """
    return [
        Presume(index) for index, branch in enumerate(now.branches) if is_unheard_of(now, branch)
    ]


def _reached(now: GlobalTransaction, index: int, holds: bool) -> Step:
    branch = now.branches[index]
    if branch.asking is None and now.told:
        match branch.state:
            case BranchState.HEURISTIC_HAZARD if holds and is_unheard_of(now, branch):
                return _asking(now, index, Call.COMMIT), [Ask(Call.COMMIT, index)]
            case BranchState.WAITING | BranchState.COMMITTED if now.decided:
                return _asking(now, index, Call.COMMIT), [Ask(Call.COMMIT, index)]
            case BranchState.ROLLBACK_ORDERED | BranchState.LEFT | BranchState.ROLLED_BACK:
                return _asking(now, index, Call.ROLLBACK), [Ask(Call.ROLLBACK, index)]
            case state if state in HEURISTIC and now.state is TransactionState.FORGETTING:
                return _forget(now, index, branch)
            case _:
                pass
    raise Misuse(
        f"there is nothing to do with a branch that is {branch.state.value} in the state {now.state.value}"
    )


def _ordered(now: GlobalTransaction, order: Order) -> Step:
    if any(branch.asking for branch in now.branches):
        raise Misuse("a resource manager is being asked about it just now")
    states = {branch.state for branch in now.branches}
    match order, now.state:
        case Order.COMMIT, TransactionState.WAITING:
            presumed = [
                Presume(index)
                for index, branch in enumerate(now.branches)
                if branch.state in UNFINISHED
            ]
            now = now._replace(
                branches=tuple(
                    _if(branch, UNFINISHED, BranchState.COMMITTED) for branch in now.branches
                ),
            )
            now, actions = _settled(now, durably=True)
            return now, [*presumed, *actions]
        case Order.ROLLBACK, TransactionState.WAITING if BranchState.WAITING in states:
            waiting = frozenset({BranchState.WAITING})
            branches = tuple(
                _if(branch, waiting, BranchState.ROLLBACK_ORDERED) for branch in now.branches
            )
            return now._replace(branches=branches), [Record()]
        case Order.FORGET, TransactionState.HEURISTIC:
            return now._replace(state=TransactionState.FORGETTING), [Record()]
        case Order.FORGET, TransactionState.FORGETTING:
            return now._replace(state=_end(now)), [*_presumed_anew(now), Remove(now=True)]
        case _:
            raise Misuse(
                f"{order.value} is no order for a transaction in the state {now.state.value}"
            )


def _settled(now: GlobalTransaction, durably: bool = False) -> Step:
    """Go on, once everyone has answered in the second phase."""
    if any(
        branch.asking or (not now.told and branch.ended < branch.associations)
        for branch in now.branches
    ):
        return now, []
    states = {branch.state for branch in now.branches}
    actions: list[Action] = []
    if states & UNFINISHED:
        state = TransactionState.WAITING
        actions.append(Record() if states & HEURISTIC or durably else Note())
    elif states & HEURISTIC:
        state = (
            now.state if now.state is TransactionState.FORGETTING else TransactionState.HEURISTIC
        )
        actions.append(Record())
    else:
        state = _end(now)
        if now.state is TransactionState.FORGETTING:
            actions += _presumed_anew(now)
        if (now.decided and not now.one_phase) or now.told:
            actions.append(Remove(durably))
    if not now.told:
        actions.append(Tell())
    return now._replace(state=state, told=True), actions


def _end(now: GlobalTransaction) -> TransactionState:
    states = {branch.state for branch in now.branches}
    if BranchState.UNKNOWN in states:
        return TransactionState.UNKNOWN
    committed = now.decided or (now.one_phase and BranchState.COMMITTED in states)
    return TransactionState.COMMITTED if committed else TransactionState.ROLLED_BACK


def _because(now: GlobalTransaction, answer: Answered) -> GlobalTransaction:
    """With what went wrong first, where this did."""
    if answer.code in (xa.XA_OK, xa.XA_RDONLY) or now.cause is not None:
        return now
    return now._replace(
        cause=Cause(answer.code, now.branches[answer.branch].ref_name, answer.error)
    )


def _asking(now: GlobalTransaction, index: int, call: Call) -> GlobalTransaction:
    return _with(now, index, now.branches[index]._replace(state=_ASKED[call], asking=call))


def _with(now: GlobalTransaction, index: int, branch: Branch) -> GlobalTransaction:
    return now._replace(branches=(*now.branches[:index], branch, *now.branches[index + 1 :]))


def _if(branch: Branch, states: frozenset[BranchState], then: BranchState) -> Branch:
    return branch._replace(state=then) if branch.state in states else branch
