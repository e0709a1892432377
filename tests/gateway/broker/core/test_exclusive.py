"""Exclusive consumers in the broker: who has the queue, and in which order."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.messaging.destination import Queue, Topic
from gateway.messaging.provider import Session
from tests.gateway.broker.brokers import Inbox, with_properties
from tests.gateway.broker.stepped_broker import Stepped

Q = Queue("q")

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 4)),
        st.tuples(st.just("join"), st.integers(1, 5)),
        st.tuples(st.just("leave"), st.integers(0, 4)),
        st.tuples(st.just("retire"), st.integers(0, 4)),
        st.tuples(st.just("settle"), st.integers(0, 4)),
    ),
    max_size=40,
)


def has(inbox: Inbox) -> int:
    """How many messages a consumer has not settled."""
    return int(inbox.consumer.outstanding)  # type: ignore[attr-defined]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
@example(steps=[("join", 2), ("join", 5), ("send", 4), ("retire", 0), ("settle", 0)])
@example(steps=[("join", 3), ("join", 1), ("send", 4), ("leave", 0), ("join", 5), ("leave", 0)])
def test_one_consumer_has_messages_and_they_are_settled_in_order(
    stepped: Stepped, steps: list[tuple[str, int]]
) -> None:
    queue = Queue(f"q{id(steps)}")
    session = stepped.session()
    sent = 0
    settled: list[int] = []
    present: list[Inbox] = []
    retired: list[Inbox] = []

    def settle(inbox: Inbox) -> None:
        count = has(inbox)
        settled.extend(int(text) for text in inbox.texts[-count:] if count)
        inbox.consumer.acknowledge_through(inbox.numbers[-1])
        if inbox in present:
            inbox.consumer.grant(count)

    for what, number in [*steps, ("join", 5)]:
        if what == "send":
            session.send([with_properties(queue, str(sent + each), {}) for each in range(number)])
            sent += number
        elif what == "join":
            present.append(stepped.consume(session, queue, credit=number, exclusive=True))
        elif what in ("leave", "retire") and number < len(present):
            inbox = present.pop(number)
            inbox.consumer.close(requeue=what == "leave")
            if what == "retire" and has(inbox):
                retired.append(inbox)
        elif what == "settle":
            for inbox in [*retired, *present]:
                if has(inbox):
                    settle(inbox)
            retired.clear()
        stepped.run_until_idle()
        holders = [inbox for inbox in [*retired, *present] if has(inbox)]
        assert len(holders) <= 1
        assert not holders or holders[0] in retired or holders[0] is present[0]
    for _ in range(sent + 1):
        for inbox in [*retired, *present]:
            if has(inbox):
                settle(inbox)
        stepped.run_until_idle()
    assert settled == list(range(sent))
    for inbox in present:
        inbox.consumer.close()
    stepped.run_until_idle()
    found = stepped.broker.queue(queue).dispatch if sent else None
    assert found is None or found.exclusive is None


def test_groups_of_others_are_the_exclusive_consumers_too(
    stepped: Stepped, session: Session
) -> None:
    others = [stepped.consume(session, Q) for _ in range(2)]
    session.send([with_properties(Q, group, {"JMSXGroupID": group}) for group in "ab"])
    stepped.run_until_idle()
    assert sorted(text for inbox in others for text in inbox.texts) == ["a", "b"]
    only = stepped.consume(session, Q, exclusive=True)
    session.send([with_properties(Q, group, {"JMSXGroupID": group}) for group in "abc"])
    stepped.run_until_idle()
    assert only.texts == ["a", "b", "c"]
    only.consumer.close()
    stepped.run_until_idle()
    assert sorted(text for inbox in others for text in inbox.texts[1:]) == ["a", "b", "c"]


def test_what_is_in_the_store_only_comes_in_order_to_the_next(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path)
    stepped.send([with_properties(Q, str(number), {}) for number in range(50)])
    stepped.restart()
    session = stepped.session()
    first = stepped.consume(session, Q, credit=10, exclusive=True)
    second = stepped.consume(session, Q, credit=100, exclusive=True)
    stepped.run_until_idle()
    assert (len(first.texts), second.texts) == (10, [])
    first.consumer.close()
    stepped.run_until_idle()
    assert second.texts == [str(number) for number in range(50)]


def test_on_a_topic_consumers_are_not_exclusive(stepped: Stepped, session: Session) -> None:
    topic = Topic("t")
    inboxes = [stepped.consume(session, topic, exclusive=True) for _ in range(2)]
    session.send([with_properties(topic, "all", {})])
    stepped.run_until_idle()
    assert [inbox.texts for inbox in inboxes] == [["all"], ["all"]]
