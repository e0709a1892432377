"""Duplicate ids in any order of sends, transactions, commits, full disks and crashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.messaging.provider import Mode
from tests.gateway.broker.brokers import text
from tests.gateway.broker.duplicate_ids import Q, bearing, committed, rest, told
from tests.gateway.broker.stepped_broker import Stepped, Told

_ids = st.sampled_from([None, "a", "b", "c", "r/1", "r/2"])
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.lists(_ids, min_size=1, max_size=4)),
        st.tuples(st.just("transaction"), st.lists(_ids, min_size=1, max_size=4)),
        st.tuples(st.just("turns"), st.none()),
        st.tuples(st.just("commit"), st.none()),
        st.tuples(st.just("full"), st.none()),
        st.tuples(st.just("room"), st.none()),
        st.tuples(st.just("take"), st.none()),
        st.tuples(st.just("crash"), st.none()),
    ),
    max_size=25,
)


@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps=_steps)
def test_whatever_happens_none_is_kept_twice_and_none_that_was_confirmed_is_missing(
    tmp_path: Path, steps: Any
) -> None:
    """Everything is sent until it is confirmed, as senders do.

    Bodies are numbers; what comes of one id is one of them.
    """
    stepped = Stepped(tmp_path)
    pending: list[tuple[Told, list[tuple[int, str | None]]]] = []
    id_of: dict[int, str | None] = {}
    confirmed: set[int] = set()
    taken: list[int] = []
    number = 0

    def observe() -> None:
        for outcome, sent in list(pending):
            if outcome.results:
                pending.remove((outcome, sent))
                if outcome.well:
                    confirmed.update(body for body, _ in sent)

    def take() -> None:
        stepped.run_until_idle()
        stepped.store.make_room()
        stepped.run_until_idle()
        observe()
        taken.extend(int(body) for body in rest(stepped))

    for step, ids in steps:
        if step in ("send", "transaction"):
            sent = []
            for id in ids:
                number += 1
                id_of[number] = id
                sent.append((number, id))
            messages = [
                text(Q, str(body)) if id is None else bearing(id, str(body)) for body, id in sent
            ]
            session = stepped.session(Mode.TRANSACTED if step == "transaction" else Mode.CLIENT)
            session.send(messages)
            pending.append((committed(session) if step == "transaction" else told(session), sent))
        elif step == "turns":
            stepped.run_reactor()
        elif step == "commit" and stepped.store.busy:
            stepped.store.step()
        elif step == "full" and stepped.store.busy:
            stepped.store.step(full=True)
        elif step == "room":
            stepped.store.make_room()
        elif step == "take":
            take()
        elif step == "crash":
            stepped.run_reactor()
            observe()
            pending.clear()
            stepped.restart()
        observe()
    take()
    assert len(set(taken)) == len(taken)
    came = [id_of[body] for body in taken if id_of[body] is not None]
    assert len(set(came)) == len(came), "kept twice"
    plain = {body for body in confirmed if id_of[body] is None}
    assert plain <= set(taken), "a message without an id is missing"
    assert {id_of[body] for body in confirmed} - {None} <= set(came), "a confirmed id never came"
    assert sorted(taken) == taken, "not in order"
