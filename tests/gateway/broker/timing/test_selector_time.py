"""Selectors that take long: they are asked a few messages at a time, and nobody gets anything else,
or in another order, for that.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.task import Clock

from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.timing.schedule import SLICE
from gateway.broker.timing.selector_time import SelectorTime
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.message import Message
from gateway.messaging.provider import Mode
from gateway.reactor.turn import Turn
from tests.gateway.broker.administration import administration, outcome
from tests.gateway.broker.brokers import with_properties
from tests.gateway.broker.stepped_broker import SlowClock, Stepped, Told

Q = Queue("q")
T = Topic("t")

#: A selector whose price makes its users look at the clock before each message.
RED = "colour LIKE '%r_d%'"
BLUE = "colour LIKE '%b_u%'"


class Slow(Stepped):
    """A broker for whose selectors two looks at the clock are all that a pass of the reactor has
    time for.
    """

    def __init__(self, folder: Path, memory: Memory | None = None) -> None:
        super().__init__(folder, memory=memory, clock=SlowClock())
        self.hurry()

    def hurry(self, tick: float = SLICE / 2) -> None:
        assert isinstance(self.clock, SlowClock)
        self.clock.tick = tick


def little() -> Memory:
    return Memory(total=60 * OVERHEAD, share=10 * OVERHEAD, least=2 * OVERHEAD)


@pytest.fixture(params=["in memory", "in the store"])
def slow(request: pytest.FixtureRequest, tmp_path: Path) -> Slow:
    return Slow(tmp_path, None if request.param == "in memory" else little())


def coloured(destination: Destination, count: int) -> list[Message]:
    return [
        with_properties(destination, str(number), {"colour": "blue" if number % 3 else "red"})
        for number in range(count)
    ]


def reds(count: int) -> list[str]:
    return [str(number) for number in range(0, count, 3)]


def blues(count: int) -> list[str]:
    return [str(number) for number in range(count) if number % 3]


# The time there is.


def test_a_slice_ends_and_those_who_wait_go_on_in_the_order_they_asked() -> None:
    clock = SlowClock()
    clock.advance(1)
    turn = Turn(clock)
    slices = SelectorTime(clock, turn)
    assert not slices.spent()
    clock.tick = SLICE
    assert slices.spent()
    done: list[str] = []

    def work(name: str, times: int) -> None:
        done.append(name)
        if times > 1:
            slices.wait(lambda: work(name, times - 1))

    for name in ("a", "b", "c"):
        slices.wait(lambda name=name: work(name, 2))  # type: ignore[misc]
    assert done == []
    clock.tick = 0.0
    clock.advance(0)
    assert done == ["a", "b", "c", "a", "b", "c"]
    assert not slices.spent()


def test_a_defect_of_one_that_waits_does_not_stop_the_others(clock: Clock) -> None:
    clock.advance(1)
    slices = SelectorTime(clock, Turn(clock))
    done: list[str] = []
    slices.wait(lambda: done.append(str(1 // 0)))
    slices.wait(lambda: done.append("the other"))
    clock.advance(0)
    assert done == ["the other"]


def test_nothing_goes_on_after_the_end(clock: Clock) -> None:
    clock.advance(1)
    slices = SelectorTime(clock, Turn(clock))
    done: list[str] = []
    slices.wait(lambda: done.append("before"))
    slices.close()
    slices.wait(lambda: done.append("after"))
    clock.advance(0)
    assert done == []


def test_while_the_turn_is_suspended_those_who_wait_for_time_wait(clock: Clock) -> None:
    clock.advance(1)
    turn = Turn(clock)
    slices = SelectorTime(clock, turn)
    done: list[str] = []
    slices.wait(lambda: done.append("before"))
    turn.suspend()
    slices.wait(lambda: done.append("meanwhile"))
    for _ in range(3):
        clock.advance(1)
    assert done == []
    turn.resume()
    assert done == ["before", "meanwhile"]
    slices.wait(lambda: done.append("after"))
    clock.advance(0)
    assert done == ["before", "meanwhile", "after"]


# Queues.


def test_consumers_of_a_queue_get_what_they_want_in_order(slow: Slow) -> None:
    session = slow.session()
    red = slow.consume(session, Q, selector=RED)
    blue = slow.consume(session, Q, selector=BLUE)
    slow.send(coloured(Q, 40))
    assert (red.texts, blue.texts) == (reds(40), blues(40))
    red.consumer.acknowledge_through(14)
    slow.acknowledge_through(blue, 26)
    assert slow.empty


def test_a_pass_asks_about_a_few_messages_only(tmp_path: Path) -> None:
    slow = Slow(tmp_path)
    slow.hurry(0.0)
    red = slow.receive(slow.session(), Q, selector=RED)
    slow.hurry()
    slow.turn.begin()
    slow.session().send(coloured(Q, 40))
    slow.turn.end()
    assert len(red.texts) < 4
    slow.run_until_idle()
    assert red.texts == reds(40)


def test_a_queue_that_was_searched_in_the_store(tmp_path: Path) -> None:
    slow = Slow(tmp_path, little())
    slow.send(coloured(Q, 90))
    red = slow.receive(slow.session(), Q, selector=RED)
    assert red.texts == reds(90)


def test_a_browser_shows_what_matches_and_then_the_end(slow: Slow) -> None:
    slow.send(coloured(Q, 40))
    browser = slow.receive(slow.session(Mode.AUTO), Q, browse=True, selector=RED)
    assert (browser.texts, browser.ended) == (reds(40), True)


def test_what_comes_back_is_found_again(slow: Slow) -> None:
    giver = slow.session()
    first = slow.consume(giver, Q, selector=RED, credit=5)
    slow.send(coloured(Q, 40))
    assert first.texts == reds(40)[:5]
    other = slow.receive(slow.session(), Q, selector=RED)
    assert other.texts == reds(40)[5:]
    slow.close(giver)
    assert other.texts == reds(40)[5:] + reds(40)[:5]


def test_a_purge_with_a_selector(slow: Slow) -> None:
    slow.send(coloured(Q, 40))
    assert outcome(slow, administration(slow).purge("queue", "q", RED)) == 14
    assert slow.bodies == blues(40)


# Topics.


@pytest.mark.parametrize("durable", [None, "d"])
def test_subscriptions_get_what_they_want_in_order(slow: Slow, durable: str | None) -> None:
    red = slow.consume(slow.session(client_id="r"), T, selector=RED, durable_name=durable)
    blue = slow.consume(slow.session(client_id="b"), T, selector=BLUE, durable_name=durable)
    everything = slow.consume(slow.session(), T)
    slow.session().send(coloured(T, 40))
    slow.send(coloured(T, 1))
    assert (red.texts, blue.texts, len(everything.texts)) == ([*reds(40), "0"], blues(40), 41)
    for inbox, count in ((red, 15), (blue, 26), (everything, 41)):
        inbox.consumer.acknowledge_through(count)
    slow.run_until_idle()
    assert (slow.empty, slow.broker.topic(T).count) == (True, 0)


def test_a_transaction_reaches_subscriptions_whole(slow: Slow) -> None:
    red = slow.consume(slow.session(client_id="r"), T, selector=RED, durable_name="d")
    session = slow.session(Mode.TRANSACTED)
    session.send(coloured(T, 40))
    session.commit(lambda error: None)
    slow.run_until_idle()
    assert red.texts == reds(40)


def test_what_nobody_wants_does_not_stay_though_nobody_reads(slow: Slow) -> None:
    connection = slow.connect("r")
    slow.consume(connection.session(Mode.CLIENT), T, durable_name="d", selector=RED)
    slow.close(connection)
    slow.send(coloured(T, 40))
    assert (slow.bodies, slow.broker.topic(T).count) == (reds(40), 14)


def test_a_process_that_ends_before_the_selector_was_asked_delivers_nothing_else(
    tmp_path: Path,
) -> None:
    slow = Slow(tmp_path)
    connection = slow.connect("r")
    slow.consume(connection.session(Mode.CLIENT), T, durable_name="d", selector=RED)
    slow.close(connection)
    session = slow.session()
    told = Told()
    slow.turn.begin()
    session.send(coloured(T, 40))
    session.completion(told)
    slow.turn.end()
    while slow.store.busy:
        slow.store.step()
    assert len(slow.bodies) > 30, "it was to end while most had not been looked at"
    slow.restart()
    slow.run_until_idle()
    inbox = slow.receive(slow.session(client_id="r"), T, durable_name="d", selector=RED)
    assert (inbox.texts, slow.bodies) == (reds(40), reds(40))
    slow.acknowledge_through(inbox, 14)
    assert slow.empty


def test_a_subscription_that_ends_meanwhile_loses_nothing_that_it_wanted(tmp_path: Path) -> None:
    slow = Slow(tmp_path)
    connection = slow.connect("r")
    slow.receive(connection.session(Mode.CLIENT), T, durable_name="d", selector=RED)
    slow.turn.begin()
    slow.session().send(coloured(T, 40))
    slow.turn.end()
    connection.close()
    slow.connect("r").unsubscribe("d")
    slow.run_until_idle()
    assert slow.broker.topic(T).count == 0
    assert set(slow.bodies) >= set(reds(40))
    assert slow.broker.queue(Queue("mq.sys.dmq")).count == len(slow.bodies) <= 40


def test_no_local_holds_all_the_same(slow: Slow) -> None:
    connection = slow.connect()
    inbox = slow.consume(connection.session(Mode.CLIENT), T, selector=RED, no_local=True)
    connection.session(Mode.AUTO).send(coloured(T, 40))
    slow.send(coloured(T, 4))
    assert inbox.texts == ["0", "3"]
