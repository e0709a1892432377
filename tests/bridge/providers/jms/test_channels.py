"""What is asked of Java by a channel: time-outs, windows, order and ends.

The process is one that records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from bridge.providers.jms import wire
from bridge.providers.jms.channels import Hung, JavaFailure, Lane, SessionChannel
from bridge.providers.jms.session import ConnectionScope
from bridge.providers.jms.wire import (
    LONGEST_PAYLOAD,
    WINDOW,
    Frame,
    Frames,
    Payload,
    Type,
    Verb,
    WireError,
)
from bridge.providers.jms.xa_session import JMSXASession
from gateway.messaging.errors import ProviderUnavailable
from gateway.messaging.provider import Flags, Xid

NUMBER: Final = 5
SECONDS: Final = 10.0
OPENING: Final = wire.opening(NUMBER, 3, 1, 0)
GONE: Final = ProviderUnavailable("the Java process was killed by SIGKILL")


class Recording:
    def __init__(self) -> None:
        self.clock = Clock()
        self.reactor: Any = self.clock
        self.frames: list[Frame] = []
        self.flushing: list[SessionChannel] = []
        self.dropped: list[int] = []
        self.given_up = 0
        self._reading = Frames()

    def write(self, octets: bytes) -> None:
        self.frames += self._reading.feed(octets)

    def flush_soon(self, channel: SessionChannel) -> None:
        if channel not in self.flushing:
            self.flushing.append(channel)

    def drop(self, number: int) -> None:
        self.dropped.append(number)

    def perhaps_idle(self) -> None:
        self.given_up += 1

    def flush(self) -> None:
        channels, self.flushing = self.flushing, []
        for channel in channels:
            channel.flush()

    @property
    def types(self) -> list[int]:
        return [frame.type for frame in self.frames]


# --- single calls


class Calls:
    """A lane, and what came of its calls."""

    def __init__(self, *calls: str, seconds: float = SECONDS) -> None:
        self.process = Recording()
        self.hung = Hung("provider")
        self.lane = Lane(self.process, NUMBER, self.hung)
        self.results: list[tuple[str, object]] = []
        self.late: list[str] = []
        for what in calls:
            self.call(what, seconds)

    def call(self, what: str, seconds: float = SECONDS) -> None:
        def done(result: object) -> None:
            self.results.append((what, result if isinstance(result, str) else result.value))  # type: ignore[attr-defined]

        made = self.lane.call(
            what, seconds, Verb.CONNECT, 1, b"", lambda payload: payload.text(), self.late.append
        )
        made.addBoth(done)

    def answer(self, tag: int, text: str) -> None:
        self.lane.frame(Frame(Type.RESULT, NUMBER, wire.number(tag) + wire.text(text)))

    def fail(self, tag: int, kind: int, text: str) -> None:
        self.lane.frame(
            Frame(Type.FAILURE, NUMBER, wire.number(tag) + wire.number(kind) + wire.text(text))
        )

    @property
    def told(self) -> list[str]:
        return [f"{what}: {result}" for what, result in self.results]


def test_calls_are_asked_at_once_and_answered_by_their_tags() -> None:
    calls = Calls("one", "two")
    assert [frame.payload for frame in calls.process.frames] == [
        wire.number(tag) + bytes([Verb.CONNECT]) + wire.number(1) for tag in (1, 2)
    ]
    assert calls.lane._pending
    calls.answer(1, "first")
    calls.fail(2, 6, "second")
    assert calls.told == ["one: first", "two: second"]
    error = calls.results[1][1]
    assert isinstance(error, JavaFailure)
    assert (error.kind, error.reason) == (6, "second")
    assert not calls.lane._pending
    assert calls.process.clock.getDelayedCalls() == []


def test_a_call_that_hangs_is_abandoned_with_those_behind_it() -> None:
    calls = Calls()
    calls.call("the first", 1.0)
    calls.call("the second", 2.0)
    calls.process.clock.advance(1.0)
    assert calls.process.given_up == 1
    gone = "the first did not return within 1 s; the provider does not answer"
    assert calls.told == [
        f"the first: the provider is unavailable: {gone}",
        f"the second: the provider is unavailable: {gone}",
    ]
    assert calls.process.types == [Type.CALL, Type.CALL, Type.ABANDON]
    assert (calls.hung.count, calls.hung.total, calls.process.clock.getDelayedCalls()) == (1, 1, [])
    calls.call("the third")
    assert calls.told[2:] == [f"the third: the provider is unavailable: {gone}"]
    calls.lane.end()
    assert calls.process.types == [Type.CALL, Type.CALL, Type.ABANDON], "that has ended it"


def test_what_comes_back_too_late_is_disposed_of_and_the_thread_is_counted_until_it_ends() -> None:
    calls = Calls("the first", "the second", seconds=1.0)
    calls.process.clock.advance(1.0)
    calls.answer(1, "a connection")
    assert (calls.late, calls.hung.count) == (["a connection"], 1)
    calls.answer(1, "told twice")
    calls.fail(2, 1, "the second was not to be")
    assert calls.late == ["a connection"], "a failure leaves nothing to dispose of"
    assert len(calls.results) == 2
    calls.lane.over(None)
    assert (calls.hung.count, calls.hung.total) == (0, 1)


def test_a_process_that_ends_fails_what_is_asked_and_what_will_be() -> None:
    calls = Calls("one")
    calls.lane.over(GONE)
    calls.call("two")
    assert calls.told == [f"one: {GONE}", f"two: {GONE}"]
    assert (calls.process.clock.getDelayedCalls(), calls.hung.total) == ([], 0)


def test_a_process_that_ends_has_no_thread_that_hangs() -> None:
    calls = Calls("one", seconds=1.0)
    calls.process.clock.advance(1.0)
    calls.lane.over(GONE)
    assert (calls.hung.count, len(calls.results)) == (0, 1)


def test_a_lane_is_ended_once_and_one_that_java_never_knew_is_dropped() -> None:
    used, unused = Calls("one"), Calls()
    for calls in (used, unused):
        calls.lane.end()
        calls.lane.end()
    assert (used.process.types, used.process.dropped) == ([Type.CALL, Type.END], [])
    assert (unused.process.types, unused.process.dropped) == ([], [NUMBER])


def test_a_call_that_is_too_long_for_a_frame_fails_and_leaves_nothing_behind() -> None:
    calls = Calls()
    failed: list[Any] = []
    calls.lane.call("looking up", SECONDS, Verb.FACTORY, 1, bytes(LONGEST_PAYLOAD)).addErrback(
        failed.append
    )
    assert isinstance(failed[0].value, ProviderUnavailable)
    assert "looking up" in str(failed[0].value)
    assert f"expected at most {LONGEST_PAYLOAD}" in str(failed[0].value)
    assert not calls.lane._pending
    assert calls.process.clock.getDelayedCalls() == []


def test_a_result_that_somebody_fails_over_ends_this_lane() -> None:
    calls = Calls("one", "two")
    calls.lane.defective(ValueError("a defect"))
    assert calls.told == [
        f"{what}: the provider is unavailable: a call failed over its answer: a defect"
        for what in ("one", "two")
    ]
    assert calls.process.types == [Type.CALL, Type.CALL, Type.ABANDON]
    calls.lane.over(None)
    assert calls.hung.total == 0, "none of them hangs"
    assert calls.process.clock.getDelayedCalls() == []


@pytest.mark.parametrize(
    ("kind", "payload", "reason"),
    [
        (Type.ANSWER, b"", "frame 69 on the channel of a call"),
        (Type.RESULT, b"\0", "too short"),
        (Type.FAILURE, wire.number(1), "too short"),
    ],
)
def test_who_asked_is_told_by_the_end_of_the_process_though_the_answer_cannot_be_read(
    kind: Type, payload: bytes, reason: str
) -> None:
    calls = Calls("one")
    with pytest.raises(WireError, match=reason):
        calls.lane.frame(Frame(kind, NUMBER, wire.number(1) + payload))
    # For that it is killed.
    calls.lane.over(GONE)
    assert (calls.told, calls.process.clock.getDelayedCalls()) == ([f"one: {GONE}"], [])


# --- sessions


class Asking:
    """A session's channel, and what it told."""

    def __init__(self) -> None:
        self.process = Recording()
        self.hung = Hung("provider")
        self.answers: list[bytes] = []
        self.failures: list[BaseException] = []
        self.ended: list[bool] = []
        self.channel = SessionChannel(
            self.process,
            NUMBER,
            "a session",
            self.hung,
            OPENING,
            self.answers.append,
            self.failures.append,
            SECONDS,
        )
        self.channel.ended.addCallback(lambda _: self.ended.append(True))

    def ask(self, *questions: bytes) -> None:
        for one in questions:
            self.channel.ask(one)

    def java(self, kind: Type, payload: bytes = b"") -> None:
        self.channel.frame(Frame(kind, NUMBER, payload))

    def answer(self, count: int, answers: bytes = b"") -> None:
        self.java(Type.ANSWER, wire.number(count) + answers)

    @property
    def state(self) -> tuple[int, int, int]:
        """How many failures, how many ends, and how many calls hang."""
        return len(self.failures), len(self.ended), self.hung.count

    @property
    def asked(self) -> bytes:
        return b"".join(
            [frame.payload for frame in self.process.frames if frame.type in (Type.PART, Type.ASK)]
        )


def asked(*questions: bytes) -> Asking:
    """A session's channel whose questions have gone to Java."""
    asking = Asking()
    asking.ask(*questions)
    asking.process.flush()
    return asking


def test_what_is_asked_in_one_pass_goes_together_behind_the_opening() -> None:
    asking = Asking()
    asking.ask(b"a", b"b")
    assert asking.process.frames == []
    asking.process.flush()
    asking.ask(b"c")
    asking.process.flush()
    assert asking.process.frames == [
        Frame(Type.OPEN, NUMBER, OPENING[9:]),
        Frame(Type.ASK, NUMBER, b"ab"),
        Frame(Type.ASK, NUMBER, b"c"),
    ]


def test_a_commit_goes_at_once() -> None:
    process = Recording()
    scope = ConnectionScope(process.clock, "provider", "", None, False, None, set(), fail=print)
    session = JMSXASession(
        scope,
        lambda answered, failed: SessionChannel(
            process, NUMBER, "a session", Hung("provider"), OPENING, answered, failed, SECONDS
        ),
        number=1,
    )
    resource, one, other = session.resource(), Xid(1, b"one", b"1"), Xid(1, b"other", b"1")
    resource.end(one, Flags.SUCCESS)
    resource.prepare(one)
    assert process.frames == []
    resource.commit(one, False)
    assert process.types == [Type.OPEN, Type.ASK]
    resource.start(other, Flags.NOFLAGS)
    resource.end(other, Flags.SUCCESS)
    assert process.types == [Type.OPEN, Type.ASK]
    process.flush()
    assert process.types == [Type.OPEN, Type.ASK, Type.ASK]


def test_together_go_no_more_than_a_window_holds() -> None:
    questions = [bytes([number]) * (WINDOW // 3) for number in range(7)]
    asking = asked(*questions)
    for _ in range(3):
        asking.java(Type.TAKEN, wire.number(WINDOW))
    assert asking.asked == b"".join(questions)
    # Three at a time fit.
    assert asking.process.types.count(Type.ASK) == 3


def test_a_session_that_nothing_was_asked_of_is_ended_without_java() -> None:
    asking = Asking()
    asking.channel.end()
    asking.process.flush()
    assert (asking.process.frames, asking.process.dropped, asking.ended) == ([], [NUMBER], [True])
    asking.ask(b"too late")
    asking.process.flush()
    assert (asking.process.frames, asking.process.clock.getDelayedCalls()) == ([], [])


def test_an_end_goes_behind_what_was_asked_and_is_over_when_java_says_so() -> None:
    asking = Asking()
    asking.ask(b"a")
    asking.channel.end()
    asking.ask(b"too late")
    asking.process.flush()
    assert asking.process.types == [Type.OPEN, Type.ASK, Type.END]
    asking.answer(1, b"done")
    assert (asking.answers, asking.ended) == ([b"done"], [])
    asking.channel.over(None)
    assert (asking.state, asking.process.clock.getDelayedCalls()) == ((0, 1, 0), [])


def test_an_end_waits_for_what_gathers_though_java_makes_room_before() -> None:
    asking = asked(bytes(WINDOW), b"first")
    asking.ask(b"second")
    asking.channel.end()
    # Before this pass of the reactor is over.
    asking.java(Type.TAKEN, wire.number(2 * WINDOW))
    asking.process.flush()
    assert asking.asked.endswith(b"firstsecond")
    assert asking.process.types[-2:] == [Type.ASK, Type.END]
    assert asking.process.types.count(Type.END) == 1


def test_an_end_is_sent_once_though_java_makes_room_before_the_pass_is_over() -> None:
    asking = asked(bytes(WINDOW), b"first")
    asking.channel.end()
    asking.java(Type.TAKEN, wire.number(2 * WINDOW))
    asking.process.flush()
    asking.channel.end()
    asking.process.flush()
    assert (asking.process.types.count(Type.END), asking.process.types[-1]) == (1, Type.END)


def test_answers_of_several_pieces_are_one() -> None:
    asking = asked(b"a")
    asking.java(Type.PIECE, b"one ")
    asking.java(Type.PIECE, b"and ")
    assert asking.answers == []
    asking.answer(1, b"another")
    asking.answer(0, b"alone")
    assert asking.answers == [b"one and another", b"alone"]


def test_java_gets_its_window_back_in_quarters() -> None:
    asking = asked(b"a")
    piece, given = 1000, 0
    for number in range(1, 1001):
        asking.java(Type.PIECE, bytes(piece))
        windows = [frame.payload for frame in asking.process.frames if frame.type == Type.WINDOW]
        given = sum([Payload(one).number() for one in windows])
        assert 0 <= number * piece - given < WINDOW // 4
    assert given > 0


def test_a_question_that_is_not_answered_in_time_is_abandoned() -> None:
    asking = asked(b"a")
    asking.process.clock.advance(SECONDS)
    assert asking.state == (1, 1, 1)
    assert "a call of a session did not return within 10 s" in str(asking.failures[0])
    assert asking.process.types == [Type.OPEN, Type.ASK, Type.ABANDON]
    # What comes late has its window back, as Java waits for that, and is told nobody.
    asking.answer(1, bytes(WINDOW // 2))
    assert (asking.process.types[3:], asking.answers) == ([Type.WINDOW], [])
    asking.ask(b"too late")
    asking.channel.end()
    asking.process.flush()
    assert asking.process.types[4:] == []
    asking.channel.over(None)
    assert asking.state == (1, 1, 0)


def test_deliveries_do_not_put_off_the_time_out_and_answers_do() -> None:
    asking = asked(b"a")
    asking.ask(b"b")
    asking.process.flush()
    asking.process.clock.advance(SECONDS - 1)
    asking.answer(1)
    asking.process.clock.advance(SECONDS - 1)
    asking.answer(0, b"a delivery")
    assert asking.state == (0, 0, 0)
    asking.process.clock.advance(1)
    assert asking.state == (1, 1, 1)


def test_nothing_is_waited_for_where_nothing_is_asked() -> None:
    asking = asked(b"a")
    asking.answer(1)
    assert asking.process.clock.getDelayedCalls() == []
    asking.channel.end()
    asking.process.flush()
    asking.process.clock.advance(SECONDS)
    assert asking.state == (1, 1, 1), "an end is something that is waited for"


def test_a_turn_that_breaks_fails_the_session_once() -> None:
    asking = asked(b"a")
    asking.java(Type.BROKE, wire.number(1) + wire.text("the cable was cut"))
    assert asking.state == (1, 1, 0)
    error = asking.failures[0]
    assert isinstance(error, JavaFailure)
    assert (error.kind, error.reason) == (1, "the cable was cut")
    asking.java(Type.BROKE, wire.number(1) + wire.text("again"))
    asking.channel.over(None)
    asking.channel.over(GONE)
    assert (asking.state, asking.process.clock.getDelayedCalls()) == ((1, 1, 0), [])


def _nothing(asking: Asking) -> None:
    return


def _gathering(asking: Asking) -> None:
    asking.ask(b"a")


def _asked(asking: Asking) -> None:
    asking.ask(b"a", bytes(2 * WINDOW))
    asking.process.flush()


def _answered(asking: Asking) -> None:
    asking.ask(b"a")
    asking.process.flush()
    asking.answer(1)


def _ending(asking: Asking) -> None:
    _answered(asking)
    asking.channel.end()
    asking.process.flush()


def _abandoned(asking: Asking) -> None:
    _asked(asking)
    asking.process.clock.advance(SECONDS)


@pytest.mark.parametrize("reach", [_nothing, _gathering, _asked, _answered, _ending, _abandoned])
def test_a_process_that_ends_is_told_once_in_whatever_state(reach: Any) -> None:
    asking = Asking()
    reach(asking)
    asking.channel.over(GONE)
    assert asking.state == (1, 1, 0)
    assert (asking.failures == [GONE]) == (reach is not _abandoned)
    written = list(asking.process.frames)
    asking.ask(b"too late")
    asking.channel.end()
    asking.process.flush()
    assert (asking.process.frames, asking.process.clock.getDelayedCalls()) == (written, [])


def test_a_frame_that_is_no_sessions_is_refused() -> None:
    asking = Asking()
    with pytest.raises(WireError, match="frame 66 on the channel of a session"):
        asking.java(Type.RESULT, wire.number(1))


@dataclass
class Java:
    """What Java knows of a session: it checks each frame that comes."""

    read: int = 0
    window: int = WINDOW
    asked: bytearray = field(default_factory=bytearray)
    #: Of the frames that came since it last took some.
    owed: int = 0
    ended: int = 0
    #: Complete questions.
    complete: int = 0

    def look(self, frames: Sequence[Frame]) -> None:
        for frame in frames[self.read :]:
            assert not self.ended, "nothing comes behind the end"
            if frame.type == Type.OPEN:
                assert self.read == 0
            elif frame.type == Type.END:
                self.ended += 1
            else:
                assert self.window > 0, "a frame was begun though the window was used up"
                self.window -= len(frame.payload)
                self.owed += len(frame.payload)
                self.asked += frame.payload
                self.complete += frame.type == Type.ASK
            self.read += 1

    def take(self, octets: int) -> int:
        octets = min(octets, self.owed)
        self.owed -= octets
        self.window += octets
        return octets


SIZES: Final = st.sampled_from(
    [1, LONGEST_PAYLOAD, LONGEST_PAYLOAD + 1, WINDOW - 1, WINDOW, 2 * WINDOW + 7]
)
STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), SIZES),
        st.tuples(st.just("take"), SIZES),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("end"), st.just(0)),
    ),
    max_size=20,
)


@given(STEPS)
def test_whatever_is_asked_comes_in_order_within_the_window_and_before_one_end(
    steps: list[tuple[str, int]],
) -> None:
    asking, java = Asking(), Java()
    expected = bytearray()
    for number, (what, size) in enumerate([*steps, ("end", 0), ("flush", 0)]):
        if what == "ask":
            question = bytes([number]) * size
            if not asking.channel.ending:
                expected += question
            asking.ask(question)
        elif what == "take":
            taken = java.take(size)
            if taken:
                asking.java(Type.TAKEN, wire.number(taken))
        elif what == "flush":
            asking.process.flush()
        else:
            asking.channel.end()
        java.look(asking.process.frames)
    while java.owed:
        asking.java(Type.TAKEN, wire.number(java.take(java.owed)))
        java.look(asking.process.frames)
    assert (java.asked, java.ended) == (expected, 1 if expected else 0)


def test_hung_calls_are_counted_for_their_provider() -> None:
    hung = Hung("provider")
    assert isinstance(hung.abandoned("a call", 1.5), ProviderUnavailable)
    hung.abandoned("another", 1.5)
    hung.returned("a call")
    assert (hung.count, hung.total, hung.most) == (1, 2, 8)


def test_a_deferred_of_a_call_may_be_given_up_by_who_asked() -> None:
    """Its result is then nobody's, and changes nothing for the next."""
    calls = Calls()
    given_up: Deferred[str] = calls.lane.call("one", SECONDS, Verb.CONNECT, 1, b"", Payload.text)
    given_up.addErrback(lambda _: None)
    given_up.cancel()
    calls.call("two")
    calls.answer(1, "first")
    calls.answer(2, "second")
    assert calls.told == ["two: second"]
