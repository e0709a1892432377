"""Consumer priorities in the broker: who comes first, and who next."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.messaging.destination import Queue, Topic
from tests.gateway.broker.brokers import Inbox, with_properties
from tests.gateway.broker.stepped_broker import Stepped, texts

Q = Queue("q")


def numbers(first: int, last: int) -> list[str]:
    return [str(each) for each in range(first, last)]


def test_the_highest_gets_messages_while_it_has_room(stepped: Stepped) -> None:
    session = stepped.session()
    low = stepped.consume(session, Q, credit=10, priority=-1)
    none = stepped.consume(session, Q, credit=2)
    high = stepped.consume(session, Q, credit=3, priority=7)
    stepped.send(texts(Q, numbers(0, 7)))
    assert (high.texts, none.texts, low.texts) == (["0", "1", "2"], ["3", "4"], ["5", "6"])
    stepped.grant(high, 1)
    stepped.send(texts(Q, ["7", "8"]))
    assert (high.texts[3:], low.texts[2:]) == (["7"], ["8"])


def test_those_of_one_priority_take_turns(stepped: Stepped) -> None:
    session = stepped.session()
    low = stepped.consume(session, Q, credit=10)
    pair = [stepped.consume(session, Q, credit=4, priority=3) for _ in range(2)]
    for number in numbers(0, 8):
        stepped.send(texts(Q, [number]))
    assert [len(each.texts) for each in pair] == [4, 4]
    assert low.texts == []


def test_all_are_alike_when_the_highest_has_left(stepped: Stepped) -> None:
    session = stepped.session()
    pair = [stepped.consume(session, Q, credit=10) for _ in range(2)]
    high = stepped.consume(session, Q, credit=10, priority=1)
    stepped.send(texts(Q, ["0"]))
    high.consumer.close()
    stepped.run_until_idle()
    stepped.send(texts(Q, numbers(1, 4)))
    assert sorted([len(each.texts) for each in pair]) == [2, 2]
    assert sorted([*pair[0].texts, *pair[1].texts]) == numbers(0, 4)


def test_the_highest_gets_what_it_selects(stepped: Stepped) -> None:
    session = stepped.session()
    low = stepped.consume(session, Q, credit=5_000)
    high = stepped.consume(session, Q, credit=5_000, priority=1, selector="a = 1")
    stepped.send([with_properties(Q, str(each), {"a": each % 2}) for each in range(4_000)])
    assert high.texts == [str(each) for each in range(1, 4_000, 2)]
    assert low.texts == [str(each) for each in range(0, 4_000, 2)]


def test_the_highest_gets_what_waits_in_the_store_first(stepped: Stepped) -> None:
    """More than the dispatch looks at in one turn."""
    session = stepped.session()
    stepped.send(texts(Q, numbers(0, 2_500)))
    stepped.restart()
    session = stepped.session()
    low = stepped.consume(session, Q, credit=9_000, start=False)
    high = stepped.consume(session, Q, credit=2_200, priority=1, selector="b IS NULL", start=False)
    for inbox in (low, high):
        inbox.consumer.start()
    stepped.run_until_idle()
    assert high.texts == numbers(0, 2_200)
    assert low.texts == numbers(2_200, 2_500)


def test_the_highest_gets_new_groups(stepped: Stepped) -> None:
    session = stepped.session()
    low = stepped.consume(session, Q, credit=9)
    high = stepped.consume(session, Q, credit=4, priority=1)
    stepped.send([with_properties(Q, str(each), {"JMSXGroupID": f"g{each}"}) for each in range(6)])
    assert (high.texts, low.texts) == (numbers(0, 4), numbers(4, 6))


def test_what_the_highest_gives_back_comes_to_the_next(stepped: Stepped) -> None:
    session, other = stepped.session(), stepped.session()
    low = stepped.consume(session, Q, credit=9)
    high = stepped.consume(other, Q, credit=9, priority=1)
    stepped.send(texts(Q, numbers(0, 3)))
    assert (high.texts, low.texts) == (numbers(0, 3), [])
    high.consumer.close()
    stepped.run_until_idle()
    assert low.texts == numbers(0, 3)


def test_a_pattern_has_a_priority_at_each_queue(stepped: Stepped) -> None:
    session = stepped.session()
    low = stepped.consume(session, Queue("a.b"), credit=9)
    high = stepped.consume(session, Queue("a.*"), credit=2, priority=1)
    stepped.send(texts(Queue("a.b"), numbers(0, 4)))
    assert (high.texts, low.texts) == (numbers(0, 2), numbers(2, 4))


def test_each_subscription_of_a_topic_gets_everything(stepped: Stepped) -> None:
    session = stepped.session()
    topic = Topic("t")
    low = stepped.consume(session, topic, credit=9)
    high = stepped.consume(session, topic, credit=9, priority=9)
    stepped.send(texts(topic, ["0", "1"]))
    assert low.texts == high.texts == ["0", "1"]


def test_an_exclusive_consumer_of_a_higher_priority_takes_over(stepped: Stepped) -> None:
    session = stepped.session()
    first = stepped.consume(session, Q, credit=9, exclusive=True)
    stepped.send(texts(Q, ["0"]))
    second = stepped.consume(session, Q, credit=9, exclusive=True)
    third = stepped.consume(session, Q, credit=9, exclusive=True, priority=2)
    stepped.send(texts(Q, ["1"]))
    # Nothing overtakes what the first has not settled.
    assert (first.texts, second.texts, third.texts) == (["0"], [], [])
    stepped.acknowledge_through(first, first.numbers[-1])
    assert (first.texts, second.texts, third.texts) == (["0"], [], ["1"])
    third.consumer.close()
    stepped.run_until_idle()
    stepped.send(texts(Q, ["2"]))
    assert (first.texts, second.texts) == (["0", "1", "2"], [])


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 5)),
        st.tuples(st.just("join"), st.integers(-1, 2)),
        st.tuples(st.just("leave"), st.integers(0, 4)),
        st.tuples(st.just("settle"), st.integers(0, 4)),
    ),
    max_size=30,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS, selective=st.sets(st.integers(0, 4)))
def test_nobody_waits_while_a_message_does(
    stepped: Stepped, steps: list[tuple[str, int]], selective: set[int]
) -> None:
    """And a lower one gets nothing that a higher one has room for."""
    queue = Queue(f"q{id(steps)}")
    session = stepped.session()
    sent = 0
    present: list[tuple[int, Inbox]] = []
    for what, number in [*steps, ("join", 0)]:
        before = [(priority, inbox, len(inbox.texts)) for priority, inbox in present]
        room = {id(inbox): inbox.consumer.credit for _, inbox in present}  # type: ignore[attr-defined]
        if what == "send":
            session.send(texts(queue, numbers(sent, sent + number)))
            sent += number
        elif what == "join":
            selector = "x IS NULL" if len(present) in selective else None
            inbox = stepped.consume(session, queue, credit=3, priority=number, selector=selector)
            present.append((number, inbox))
        elif what == "leave" and number < len(present):
            present.pop(number)[1].consumer.close()
        elif what == "settle" and number < len(present):
            inbox = present[number][1]
            held = int(inbox.consumer.outstanding)  # type: ignore[attr-defined]
            if held:
                inbox.consumer.acknowledge_through(inbox.numbers[-1])
                inbox.consumer.grant(held)
        stepped.run_until_idle()
        physical = stepped.broker.find(queue)
        if isinstance(physical, PhysicalQueue) and physical.dispatch.backlog.waiting:
            assert all(not inbox.consumer.credit for _, inbox in present)  # type: ignore[attr-defined]
        if what == "send":
            for priority, inbox, had in before:
                if len(inbox.texts) > had:
                    for other, its, its_had in before:
                        if other > priority:
                            assert len(its.texts) - its_had == room[id(its)]
