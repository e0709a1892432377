"""A stateful model of consumers of patterns.

Nothing is lost, and nothing comes twice. Queues are made and removed, messages come and are
settled, and consumers with and without wildcards come and go, while the reactor does what is due
or has not yet.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.broker.properties.names import matcher
from gateway.messaging.destination import Queue
from gateway.messaging.message import Message
from gateway.messaging.provider import Consumer, ConsumerSpec, Mode, Session
from tests.gateway.broker.brokers import text
from tests.gateway.broker.stepped_broker import Stepped, Told

NAMES = ("o.a", "o.b", "o.b.c", "p.a")
SOURCES = ("o.>", "*.a", ">", "o.a", "o.b.>")
#: Those whose ``>`` means none or more levels.
WIDE = ("o.b.>",)
#: A selector, and whether a text is of those that it wants.
RED = "JMSType = 'red'"


class _Receiver:
    """A consumer and what it has."""

    def __init__(self, model: QueuePatterns, name: str, mode: Mode, red: bool) -> None:
        self.model = model
        self.name = name
        self.mode = mode
        self.red = red
        self.session: Session = model.stepped.session(mode)
        self.credit = 0
        self.last = 0
        self.running = False
        #: By number, what it has not settled.
        self.has: dict[int, str] = {}
        #: Acknowledged in the open transaction.
        self.pending: list[str] = []
        self.covers = matcher(name, name in WIDE)
        spec = ConsumerSpec(Queue(name), selector=RED if red else None, none_or_more=name in WIDE)
        self.consumer = self.session.consumer(spec, self.deliver, self.failed)

    def deliver(
        self,
        consumer: Consumer,
        first: int,
        messages: Sequence[Message],
        attempts: Sequence[int] | None,
        /,
    ) -> None:
        model = self.model
        assert consumer is self.consumer
        assert self.running, "it is stopped"
        assert first == self.last + 1, "numbers have no gaps"
        self.last += len(messages)
        self.credit -= len(messages)
        assert self.credit >= 0, "more than it was granted"
        for place, message in enumerate(messages):
            body, name = message.text, message.headers.destination.name
            assert self.covers(name)
            assert not self.red or message.headers.type == "red"
            assert model.where[body] == "waiting", f"{body} is {model.where[body]}"
            model.where[body] = "out"
            self.has[first + place] = body
            attempt = 1 if attempts is None else attempts[place]
            assert attempt == model.tries[body] + 1
            if attempt == 1:
                key = (name, message.headers.type or "")
                number = int(body)
                assert number > model.newest.get((key, id(self)), -1), "in the queue's order"
                model.newest[key, id(self)] = number

    def failed(self, error: object) -> None:
        assert self.name in NAMES, "only a consumer of one queue ends with it"
        self.model.receivers.remove(self)

    def gives_back(self, bodies: Sequence[str]) -> None:
        for body in bodies:
            if self.model.where[body] == "out":
                self.model.where[body] = "waiting"
                self.model.tries[body] += 1


class QueuePatterns(RuleBasedStateMachine):
    """See the module."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.stepped = Stepped(Path(self.folder.name))
        self.sender = self.stepped.session()
        self.count = 0
        #: By text: waiting, out, or gone.
        self.where: dict[str, str] = {}
        self.queue_of: dict[str, str] = {}
        self.red: dict[str, bool] = {}
        self.tries: dict[str, int] = {}
        self.newest: dict[Any, int] = {}
        self.receivers: list[_Receiver] = []

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

    @rule(
        name=st.sampled_from(NAMES),
        count=st.integers(1, 4),
        red=st.booleans(),
        run=st.booleans(),
    )
    def send(self, name: str, count: int, red: bool, run: bool) -> None:
        messages = []
        for _ in range(count):
            body = str(self.count)
            self.count += 1
            self.where[body], self.queue_of[body] = "waiting", name
            self.red[body], self.tries[body] = red, 0
            messages.append(text(Queue(name), body, type="red" if red else "blue"))
        self.sender.send(messages)
        if run:
            self.run(True)

    @rule(
        name=st.sampled_from(SOURCES),
        mode=st.sampled_from([Mode.CLIENT, Mode.INDIVIDUAL, Mode.TRANSACTED]),
        red=st.sampled_from([False, False, True]),
        credit=st.integers(0, 12),
    )
    @precondition(lambda self: len(self.receivers) < 4)
    def subscribe(self, name: str, mode: Mode, red: bool, credit: int) -> None:
        receiver = _Receiver(self, name, mode, red)
        self.receivers.append(receiver)
        receiver.credit += credit
        receiver.consumer.grant(credit)
        receiver.running = True
        receiver.consumer.start()

    @rule(index=st.integers(0, 3), count=st.integers(1, 5))
    @precondition(lambda self: self.receivers)
    def grant(self, index: int, count: int) -> None:
        receiver = self.receivers[index % len(self.receivers)]
        receiver.credit += count
        receiver.consumer.grant(count)

    @rule(index=st.integers(0, 3), running=st.sampled_from([True, True, False]))
    @precondition(lambda self: self.receivers)
    def start_or_stop(self, index: int, running: bool) -> None:
        receiver = self.receivers[index % len(self.receivers)]
        receiver.running = running
        if running:
            receiver.consumer.start()
        else:
            receiver.consumer.stop()

    @rule(index=st.integers(0, 3), place=st.integers(0, 11), run=st.booleans())
    @precondition(lambda self: any(receiver.has for receiver in self.receivers))
    def acknowledge(self, index: int, place: int, run: bool) -> None:
        able = [receiver for receiver in self.receivers if receiver.has]
        receiver = able[index % len(able)]
        numbers = sorted(receiver.has)
        number = numbers[place % len(numbers)]
        if receiver.mode is Mode.INDIVIDUAL:
            receiver.consumer.acknowledge([number])
            settled = [number]
        else:
            settled = [each for each in receiver.has if each <= number]
            assert receiver.consumer.acknowledge_through(number) == len(settled)
        for each in settled:
            body = receiver.has.pop(each)
            if receiver.mode is Mode.TRANSACTED:
                receiver.pending.append(body)
            else:
                self.where[body] = "gone"
        if run:
            self.run(True)

    @rule(index=st.integers(0, 3))
    @precondition(lambda self: self.receivers)
    def reject(self, index: int) -> None:
        receiver = self.receivers[index % len(self.receivers)]
        if receiver.mode is Mode.INDIVIDUAL and receiver.has:
            number = min(receiver.has)
            body = receiver.has.pop(number)
            receiver.gives_back([body])
            receiver.consumer.reject([number], delay_ms=0)

    @rule(index=st.integers(0, 3), commits=st.booleans())
    @precondition(lambda self: self.receivers)
    def end_transaction(self, index: int, commits: bool) -> None:
        receiver = self.receivers[index % len(self.receivers)]
        if receiver.mode is not Mode.TRANSACTED:
            return
        pending, receiver.pending = receiver.pending, []
        if commits:
            receiver.session.commit(Told())
            for body in pending:
                self.where[body] = "gone"
        else:
            receiver.gives_back([*pending, *receiver.has.values()])
            receiver.has.clear()
            receiver.session.rollback(Told())

    @rule(index=st.integers(0, 3))
    @precondition(lambda self: self.receivers)
    def recover(self, index: int) -> None:
        receiver = self.receivers[index % len(self.receivers)]
        if receiver.mode is not Mode.TRANSACTED:
            receiver.gives_back(list(receiver.has.values()))
            receiver.has.clear()
            receiver.session.recover()

    @rule(index=st.integers(0, 3), whole=st.booleans())
    @precondition(lambda self: self.receivers)
    def close(self, index: int, whole: bool) -> None:
        receiver = self.receivers.pop(index % len(self.receivers))
        receiver.gives_back([*receiver.pending, *receiver.has.values()])
        if not whole and receiver.mode is not Mode.TRANSACTED:
            receiver.consumer.close()
        receiver.session.close()

    @rule(name=st.sampled_from(NAMES))
    def destroy(self, name: str) -> None:
        physical = self.stepped.broker.find(Queue(name))
        if physical is not None:
            for body, where in self.where.items():
                if self.queue_of[body] == name and where != "gone":
                    self.where[body] = "gone"
            self.stepped.broker.remove(physical)

    @rule(wait=st.sampled_from([True, True, False]))
    def run(self, wait: bool) -> None:
        if wait:
            self.stepped.run_until_idle()
            self.all_that_can_be_is_delivered()
        else:
            self.stepped.clock.advance(0)

    def all_that_can_be_is_delivered(self) -> None:
        """No message waits that somebody wants who has credit."""
        for receiver in self.receivers:
            if receiver.running and receiver.credit:
                left = [
                    body
                    for body, where in self.where.items()
                    if where == "waiting"
                    and receiver.covers(self.queue_of[body])
                    and (self.red[body] or not receiver.red)
                ]
                assert not left, f"{left} wait for {receiver.name}"

    @invariant()
    def members_are_counted(self) -> None:
        if not hasattr(self, "stepped"):
            return
        for name in NAMES:
            physical = self.stepped.broker.find(Queue(name))
            if physical is not None:
                consumers = physical.dispatch.consumers  # type: ignore[union-attr]
                assert physical.covering == sum([each.of_pattern for each in consumers])  # type: ignore[union-attr]


def test_consumers_of_patterns() -> None:
    run_state_machine_as_test(
        QueuePatterns,
        settings=settings(
            max_examples=settings().max_examples, stateful_step_count=50, deadline=None
        ),
    )
