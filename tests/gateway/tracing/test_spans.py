"""Spans of lines, as the broker and links hand them to the journal."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.journal.schema import Step
from gateway.journal.tracer import TRACES, Context
from gateway.tracing.spans import Span, SpanMaker

CONTEXT = Context("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")


class Lines:
    """Lines of messages ID-1, ID-2 and so on, one microsecond after the other."""

    def __init__(self, most: int = 10) -> None:
        self.spans: list[Span] = []
        self.maker = SpanMaker(self.spans.append, most)
        self.time = 0

    def __call__(self, *steps: Step, numbers: Any = range(1, 2), **more: Any) -> None:
        self.time += 1
        said = {"prefix": "ID-", "numbers": numbers, "destination": "queue:q"}
        self.maker.read({"time": self.time, "steps": steps, **said, **more})

    def produced(self, *numbers: int, destination: str = "queue:q") -> None:
        traces = {f"ID-{number}": CONTEXT for number in numbers}
        self(Step.PRODUCED, numbers=list(numbers), destination=destination, **{TRACES: traces})

    @property
    def told(self) -> list[tuple[str, int, int, str]]:
        return [
            (span.name.split(" ")[0], span.start_us, span.end_us, span.error) for span in self.spans
        ]


def test_the_way_of_a_message() -> None:
    lines = Lines()
    lines.produced(1)
    lines(Step.ROUTED, Step.DELIVERED, connection=1, subscription="s")
    lines(Step.STORED)
    lines(Step.CONFIRMED, connection=2)
    lines(Step.ACKNOWLEDGED, connection=1, subscription="s")
    lines(Step.DELETED, connection=1, subscription="s")
    assert lines.told == [("publish", 1, 4, ""), ("receive", 2, 5, ""), ("settle", 5, 6, "")]
    publish, receive, settle = lines.spans
    assert [span.parent_id for span in lines.spans] == [
        CONTEXT.parent_id,
        publish.span_id,
        receive.span_id,
    ]
    assert settle.attributes["messaging.message.id"] == "ID-1"


def test_who_is_never_told_that_it_is_safe_has_published_when_it_was_stored() -> None:
    lines = Lines()
    lines.produced(1)
    lines(Step.DELIVERED)
    lines(Step.STORED)
    lines(Step.ACKNOWLEDGED, Step.DELETED)
    assert lines.told == [("receive", 2, 4, ""), ("settle", 4, 4, ""), ("publish", 1, 3, "")]


def test_what_comes_back_is_received_again_and_what_dies_is_an_error() -> None:
    lines = Lines()
    lines.produced(1)
    lines(Step.CONFIRMED)
    lines(Step.DELIVERED, connection=1, subscription="s")
    lines(Step.RETURNED, reason="rejected")
    lines(Step.REDELIVERED, connection=3, subscription="s")
    lines(Step.RETURNED, reason="unsettled")
    lines(Step.DEAD, reason="UNDELIVERABLE")
    lines(Step.DELETED)
    assert lines.told == [
        ("publish", 1, 2, ""),
        ("receive", 3, 4, "rejected"),
        ("receive", 5, 6, "unsettled"),
        ("settle", 7, 7, "UNDELIVERABLE"),
    ]
    assert len({span.span_id for span in lines.spans}) == 4
    assert lines.spans[2].attributes["stomp_gateway.delivery_attempt"] == 2


def test_each_subscription_of_a_topic_receives_and_settles() -> None:
    lines = Lines()
    lines.produced(1, destination="topic:t")
    topic = {"destination": "topic:t"}
    for number in (1, 2):
        lines(Step.DELIVERED, connection=number, subscription="s", **topic)
    for number in (1, 2):
        lines(Step.ACKNOWLEDGED, Step.DELETED, connection=number, subscription="s", **topic)
    assert [name for name, *_ in lines.told] == ["receive", "settle", "receive", "settle"]
    assert len({span.span_id for span in lines.spans}) == 4


def test_a_transfer_is_the_child_of_the_receive_of_its_link() -> None:
    lines = Lines()
    lines.produced(1)
    lines(Step.DELIVERED, connection=7, subscription="l")
    link = {"link": "b/l"}
    lines(Step.RECEIVED, numbers=lambda: [1], **link)
    lines(Step.SENT, numbers=lambda: [1], **link)
    arrived = {"destination": "queue:r", "target_ids": lambda: ["ID-9"]}
    lines(Step.ARRIVED, Step.SETTLED, **link, **arrived)
    lines(Step.ACKNOWLEDGED, Step.DELETED, connection=7, subscription="l")
    transfer, receive, *_ = lines.spans
    assert transfer.parent_id == receive.span_id
    assert (transfer.start_us, transfer.end_us) == (3, 5)
    assert transfer.attributes["stomp_gateway.target.message.id"] == "ID-9"


def test_a_transfer_from_elsewhere_is_the_child_of_the_sender() -> None:
    lines = Lines()
    elsewhere = {"link": "b/l", "ids": ["other:x"], "numbers": None, "prefix": None}
    lines(Step.RECEIVED, **elsewhere, **{TRACES: {"other:x": CONTEXT}})
    lines(Step.ROLLED_BACK, reason="target lost", **elsewhere)
    lines(Step.RECEIVED, **elsewhere, **{TRACES: {"other:x": CONTEXT}})
    lines(Step.ARRIVED, **elsewhere)
    lines(Step.SETTLED, **elsewhere)
    assert lines.told == [("transfer", 1, 2, "target lost"), ("transfer", 3, 5, "")]
    first, second = lines.spans
    assert first.parent_id == second.parent_id == CONTEXT.parent_id
    assert first.span_id != second.span_id


_STEPS = st.lists(st.sampled_from([s for s in Step if s is not Step.PRODUCED]), min_size=1)
_NUMBERS = st.one_of(
    st.lists(st.integers(0, 30), min_size=1), st.builds(range, st.just(0), st.integers(1, 30))
)


@given(
    st.lists(
        st.tuples(_STEPS, _NUMBERS, st.integers(1, 2), st.booleans(), st.integers(0, 30)),
        max_size=40,
    )
)
def test_whatever_is_told_spans_are_distinct_and_few_messages_are_kept(
    told: list[tuple[list[Step], Any, int, bool, int]],
) -> None:
    lines = Lines()
    seen: set[int] = set()
    for steps, numbers, connection, on_link, new in told:
        if new not in seen:
            seen.add(new)
            lines.produced(new)
        more = {"link": "b/l"} if on_link else {"connection": connection, "subscription": "s"}
        if steps[0] is Step.RECEIVED and not on_link:
            continue
        lines(*steps, numbers=numbers, **more)
    identities = [span.span_id for span in lines.spans if not span.name.startswith("settle")]
    assert len(set(identities)) == len(identities)
    assert all(span.start_us <= span.end_us for span in lines.spans)
    assert all(span.context is CONTEXT for span in lines.spans)
    assert len(lines.maker._traced) <= 10
    assert len(lines.maker._transfers) <= 10
