"""A stateful model of message groups.

Whatever consumers, transactions and memory do: no two consumers have messages of one group, each
group comes in its order, it stays with its consumer, and nothing that somebody could have waits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
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

from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Queue
from gateway.messaging.message import Message
from gateway.messaging.provider import Consumer, ConsumerSpec, Mode, Session
from tests.gateway.broker.brokers import text
from tests.gateway.broker.stepped_broker import Stepped, Told

Q = Queue("o.q")
RED = "JMSType = 'red'"
FIRST = "JMSXGroupFirstForConsumer"


@dataclass
class _Sent:
    number: int
    group: str
    red: bool
    priority: int
    last: bool
    where: str = "waiting"
    tries: int = 0


class _Receiver:
    """A consumer and what it has."""

    def __init__(self, model: Groups, mode: Mode, red: bool, wild: bool) -> None:
        self.model = model
        self.mode = mode
        self.red = red
        self.session: Session = model.stepped.session(mode)
        self.credit = 0
        self.running = False
        #: By number, what it has not settled.
        self.has: dict[int, _Sent] = {}
        #: Acknowledged in the open transaction.
        self.pending: list[_Sent] = []
        spec = ConsumerSpec(
            Queue("o.*") if wild else Q, selector=RED if red else None, tells_groups=True
        )
        self.consumer = self.session.consumer(spec, self.deliver, lambda error: None)

    def wants(self, sent: _Sent) -> bool:
        return sent.red or not self.red

    def deliver(
        self,
        consumer: Consumer,
        first: int,
        messages: Sequence[Message],
        attempts: Sequence[int] | None,
        /,
    ) -> None:
        try:
            self._deliver(first, messages, attempts)
        except AssertionError as error:
            # Where it is called, it would be logged.
            self.model.failures.append(error)

    def _deliver(
        self, first: int, messages: Sequence[Message], attempts: Sequence[int] | None
    ) -> None:
        self.credit -= len(messages)
        assert self.credit >= 0
        for place, message in enumerate(messages):
            sent = self.model.sent[int(message.text)]
            assert sent.where == "waiting", f"{sent} comes twice"
            assert self.wants(sent)
            assert (1 if attempts is None else attempts[place]) == sent.tries + 1
            first_of_group = FIRST in message.headers.properties
            if sent.group:
                self.model.delivered(self, sent, first_of_group)
            else:
                assert not first_of_group
            sent.where = "out"
            self.has[first + place] = sent

    @property
    def holds(self) -> list[_Sent]:
        return [*self.has.values(), *self.pending]


class Groups(RuleBasedStateMachine):
    """See the module."""

    most_idle = 10_000
    memory: tuple[int, int, int] | None = None

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        memory = Memory(*self.memory) if self.memory else None
        self.stepped = Stepped(Path(self.folder.name), memory=memory)
        self.sender = self.stepped.session()
        self.failures: list[AssertionError] = []
        self.sent: list[_Sent] = []
        self.receivers: list[_Receiver] = []
        #: Who has each group, and whether another may have it next.
        self.owner: dict[str, _Receiver] = {}
        #: Groups that a consumer had when another one came, which may get them.
        self.may_move: set[str] = set()
        #: Groups that were ended while their consumer still had messages of them.
        self.ended: set[str] = set()
        self.paused = False
        self.send(1, 0, False, 4, False, True)
        queue = self.stepped.broker.queue(Q)
        queue.dispatch.most_idle_groups = self.most_idle

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

    def delivered(self, receiver: _Receiver, sent: _Sent, first: bool) -> None:
        group = sent.group
        before = self.owner.get(group)
        others = [
            each for each in self.receivers if each is not receiver and self._has(each, group)
        ]
        if group not in self.ended:
            assert not others, f"{others} have messages of {group}, too"
            if before is not None and before is not receiver and self.most_idle > 100:
                assert before not in self.receivers or group in self.may_move, (
                    f"{group} has left a consumer that is there"
                )
            earlier = [
                each
                for each in self.sent[: sent.number]
                if each.group == group
                and each.priority == sent.priority
                and each.where == "waiting"
                and receiver.wants(each)
            ]
            assert not earlier, f"{sent} comes before {earlier}"
        if self.most_idle > 100:
            if first:
                assert before is not receiver or group in self.may_move, "told that it is the first"
                self.may_move.discard(group)
            assert first or before is receiver, "not told that it is the first"
        self.owner[group] = receiver
        if sent.last:
            del self.owner[group]
            self.ended.add(group)

    def _has(self, receiver: _Receiver, group: str) -> bool:
        return any(sent.group == group for sent in receiver.holds)

    # --- what happens

    @rule(
        count=st.integers(1, 5),
        group=st.integers(0, 4),
        red=st.booleans(),
        priority=st.sampled_from([4, 4, 4, 7]),
        last=st.sampled_from([False, False, False, True]),
        run=st.booleans(),
    )
    def send(self, count: int, group: int, red: bool, priority: int, last: bool, run: bool) -> None:
        messages = []
        for index in range(count):
            # 0 stands for no group, and the others alternate.
            name = f"g{(group + index) % 5}" if group else ""
            sent = _Sent(len(self.sent), name, red, priority, last and bool(name))
            self.sent.append(sent)
            properties: dict[str, object] = {}
            if name:
                properties["JMSXGroupID"] = name
            if sent.last:
                properties["JMSXGroupSeq"] = "-1"
            messages.append(
                text(
                    Q,
                    str(sent.number),
                    type="red" if red else "blue",
                    priority=priority,
                    properties=properties,
                )
            )
        self.sender.send(messages)
        if run:
            self.run(True)

    @rule(
        mode=st.sampled_from([Mode.CLIENT, Mode.INDIVIDUAL, Mode.TRANSACTED]),
        red=st.sampled_from([False, False, False, True]),
        wild=st.sampled_from([False, False, True]),
        credit=st.integers(0, 12),
    )
    @precondition(lambda self: len(self.receivers) < 4)
    def subscribe(self, mode: Mode, red: bool, wild: bool, credit: int) -> None:
        if not red:
            self.may_move.update(self.owner)
        receiver = _Receiver(self, mode, red, wild)
        self.receivers.append(receiver)
        receiver.credit += credit
        receiver.consumer.grant(credit)
        receiver.running = True
        receiver.consumer.start()

    def _one(self, index: int) -> _Receiver:
        return self.receivers[index % len(self.receivers)]

    @rule(index=st.integers(0, 3), count=st.integers(1, 5))
    @precondition(lambda self: self.receivers)
    def grant(self, index: int, count: int) -> None:
        receiver = self._one(index)
        receiver.credit += count
        receiver.consumer.grant(count)

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        queue = self.stepped.broker.queue(Q)
        queue.dispatch.pause(queue, paused)
        self.paused = paused

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
            receiver.consumer.acknowledge_through(number)
        for each in settled:
            sent = receiver.has.pop(each)
            if receiver.mode is Mode.TRANSACTED:
                receiver.pending.append(sent)
            else:
                sent.where = "gone"
        if run:
            self.run(True)

    @rule(index=st.integers(0, 3), dead=st.booleans())
    @precondition(lambda self: self.receivers)
    def reject(self, index: int, dead: bool) -> None:
        receiver = self._one(index)
        if receiver.mode is Mode.INDIVIDUAL and receiver.has:
            number = min(receiver.has)
            sent = receiver.has.pop(number)
            if dead:
                sent.where = "gone"
                receiver.consumer.reject([number], dead=DeadReason.UNDELIVERABLE)
            else:
                self.gives_back([sent])
                receiver.consumer.reject([number], delay_ms=0)

    @rule(index=st.integers(0, 3), commits=st.booleans())
    @precondition(lambda self: self.receivers)
    def end_transaction(self, index: int, commits: bool) -> None:
        receiver = self._one(index)
        if receiver.mode is not Mode.TRANSACTED:
            return
        pending, receiver.pending = receiver.pending, []
        if commits:
            receiver.session.commit(Told())
            for sent in pending:
                sent.where = "gone"
        else:
            self.gives_back([*pending, *receiver.has.values()])
            receiver.has.clear()
            receiver.session.rollback(Told())

    @rule(index=st.integers(0, 3))
    @precondition(lambda self: self.receivers)
    def recover(self, index: int) -> None:
        receiver = self._one(index)
        if receiver.mode is not Mode.TRANSACTED:
            self.gives_back(list(receiver.has.values()))
            receiver.has.clear()
            receiver.session.recover()

    @rule(index=st.integers(0, 3))
    @precondition(lambda self: self.receivers)
    def close(self, index: int) -> None:
        receiver = self.receivers.pop(index % len(self.receivers))
        self.gives_back(receiver.holds)
        receiver.session.close()

    def gives_back(self, all_sent: Sequence[_Sent]) -> None:
        for sent in all_sent:
            sent.where = "waiting"
            sent.tries += 1

    @rule(wait=st.sampled_from([True, True, False]))
    def run(self, wait: bool) -> None:
        if not wait:
            self.stepped.clock.advance(0)
            return
        self.stepped.run_until_idle()
        if not self.paused:
            self.all_that_can_be_is_delivered()

    @invariant()
    def nothing_failed(self) -> None:
        for error in getattr(self, "failures", ()):
            raise error

    def all_that_can_be_is_delivered(self) -> None:
        """No message waits of a free group, or for a consumer that has credit."""
        groups = self.stepped.broker.queue(Q).dispatch.groups
        for receiver in self.receivers:
            if not receiver.credit:
                continue
            for sent in self.sent:
                if sent.where != "waiting" or not receiver.wants(sent):
                    continue
                owner = groups.owner(sent.group) if groups and sent.group else None
                if groups and owner is not None and groups.moves(sent.group):
                    assert any(self._has(each, sent.group) for each in self.receivers)
                    continue
                of_receiver = owner is not None and (
                    owner is receiver.consumer
                    or getattr(owner, "pattern", None) is receiver.consumer
                )
                assert owner is not None, f"{sent} waits"
                assert not of_receiver, f"{sent} waits"


class FewRemembered(Groups):
    """Most groups are forgotten when no consumer has messages of them."""

    most_idle = 1


class LittleMemory(Groups):
    """Most messages are in the store only."""

    memory = (40 * OVERHEAD, 4 * OVERHEAD, 2 * OVERHEAD)


class LittleOfBoth(LittleMemory):
    """Both."""

    most_idle = 1


@pytest.mark.parametrize("machine", [Groups, FewRemembered, LittleMemory, LittleOfBoth])
def test_groups(machine: type[Groups]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=settings().max_examples, stateful_step_count=50, deadline=None
        ),
    )
