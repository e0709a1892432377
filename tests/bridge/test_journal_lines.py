"""What the journal tells of messages on links, read back from its segments and compared with what
became of each.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bridge.config.model import QualityOfService
from bridge.jms_link import JMSLink
from bridge.link.status import LinkState
from gateway.journal.schema import Level
from gateway.messaging.destination import Queue
from gateway.messaging.digest import digest_of_body, digest_of_headers
from gateway.messaging.jms_message import JMSMessage
from gateway.messaging.transformer import MessageTransformer
from tests.bridge.journaled import Journaled, steps
from tests.bridge.link_pair import SOURCE, TARGET, Cuts, clock, until
from tests.gateway.journal.reading import Event, events_of, ids_of
from tests.on_reactor import on_reactor

TOLERANT = {"consume_no_transfer_on_transform_error": True}
NUMBERS = [str(number) for number in range(30)]
PLAIN = QualityOfService.DUPLICATES_OK
ONCE = QualityOfService.ONCE_AND_ONLY_ONCE
LOSSY = QualityOfService.AT_MOST_ONCE
ALL = pytest.mark.parametrize("quality", [PLAIN, ONCE, LOSSY])


def of(event: Event, field: str) -> Any:
    return event.line[field][event.place]


MOVED = {
    PLAIN: ("received", "sent", "arrived", "settled"),
    ONCE: ("received", "sent", "arrived", "settled"),
    LOSSY: ("received", "settled", "sent", "arrived"),
}


def transforming(act: Any) -> MessageTransformer:
    """A transformer that does what the function does."""

    class Transforms(MessageTransformer):
        def transform(self, message: JMSMessage, *_: Any) -> JMSMessage | None:
            found: JMSMessage | None = act(self, message)
            return found

    return Transforms()


@ALL
@pytest.mark.parametrize("size", [1, 7])
@on_reactor
async def test_each_message_that_is_moved_has_its_steps(
    journaled: Journaled, quality: QualityOfService, size: int
) -> None:
    brokers = journaled.rig
    await brokers.source.send(*NUMBERS)
    link = await brokers.started(
        quality_of_service=quality, max_batch_size=size, max_batch_time_ms=20
    )
    arrived = {message.text: message for message in await brokers.target.arrived(30)}
    await brokers.finishes(link, 30)
    transfers = await journaled.transfers()
    # They rise with the messages, without a gap.
    assert list(transfers) == list(range(1, 31))
    ids = set()
    for number, events in transfers.items():
        assert tuple(steps(events)) == MOVED[quality]
        by_step = {event.step: event for event in events}
        at_target = arrived[str(number - 1)]
        received, sent, came = by_step["received"], by_step["sent"], by_step["arrived"]
        ids.add(received.id)
        assert {(event.id, event.line["link"]) for event in events} == {
            (received.id, "bridge/link")
        }
        assert [(at.line["destination"], at.line["provider"]) for at in (received, sent, came)] == [
            (str(SOURCE), "source"),
            *[(str(TARGET), "target")] * 2,
        ]
        assert by_step["settled"].line["provider"] == ("target" if quality is ONCE else "source")
        assert of(came, "target_ids") == at_target.message_id != received.id
        assert (
            of(received, "bodies_hash")
            == of(sent, "bodies_hash")
            == digest_of_body(at_target.headers.body_type, at_target.body)
        )
        assert (
            of(received, "headers_hash")
            == of(sent, "headers_hash")
            == digest_of_headers(at_target.headers)
        )
        assert (received.line.get("size") or of(received, "sizes")) == len(at_target.body)
        assert "attempts" not in received.line
        times = [event.line["time"] for event in events]
        assert times == sorted(times)
        assert (received.line.get("timestamp") or of(received, "timestamps")) * 1000 <= times[0]
    assert len(ids) == 30


@ALL
@on_reactor
async def test_a_batch_is_a_line_for_each_step(
    journaled: Journaled, quality: QualityOfService
) -> None:
    brokers = journaled.rig
    await brokers.source.send(*NUMBERS)
    link = await brokers.started(
        quality_of_service=quality, max_batch_size=30, max_batch_time_ms=-1
    )
    await brokers.target.arrived(30)
    await brokers.finishes(link, 30)
    lines = await journaled.lines()
    assert len(lines) == (3 if quality is ONCE else 4)
    assert all(len(ids_of(line)) == 30 for line in lines)
    # As few numbers, and not 30 ids.
    assert all("ids" not in line and line["runs"] for line in lines)


@ALL
@on_reactor
async def test_what_a_transformer_does_is_told(
    journaled: Journaled, quality: QualityOfService
) -> None:
    brokers = journaled.rig

    def act(transformer: MessageTransformer, message: JMSMessage) -> JMSMessage | None:
        if message.text == "drop":
            transformer.no_transfer()
        elif message.text == "elsewhere":
            transformer.branch_to(Queue("elsewhere"))
        elif message.text == "change":
            message = message.copy()
            message.text = "changed"
        elif message.text == "fail":
            raise ValueError("not this one")
        return message

    await brokers.source.send("keep", "drop", "elsewhere", "change", "fail")
    link = await brokers.started(
        transformer=transforming(act),
        target=TOLERANT,
        quality_of_service=quality,
        max_batch_size=5,
        max_batch_time_ms=-1,
    )
    changed = (await brokers.target.arrived(2))[1]
    await brokers.finishes(link, 5)
    assert changed.text == "changed"
    transfers = await journaled.transfers()
    kept, dropped, elsewhere, altered, failed = transfers.values()
    moved = ["transformed", *[step for step in MOVED[quality] if step != "received"]]
    assert steps(kept) == steps(elsewhere) == steps(altered) == ["received", *moved]
    assert steps(dropped) == ["received", "transformed", "not transferred", "settled"]
    burial = ["settled", "buried"] if quality is LOSSY else ["buried", "settled"]
    assert steps(failed) == ["received", *burial]
    (buried,) = [event.line for event in failed if event.step == "buried"]
    assert buried["reason"] == "TRANSFORM_FAILURE"
    assert "not this one" in buried["comment"]
    by_step = {event.step: event for event in altered}
    assert (
        of(by_step["sent"], "bodies_hash")
        == digest_of_body(changed.headers.body_type, changed.body)
        != of(by_step["received"], "bodies_hash")
    )
    assert of(by_step["sent"], "headers_hash") == of(by_step["received"], "headers_hash")
    assert [event.line["destination"] for event in elsewhere if event.step == "sent"] == [
        "queue:elsewhere"
    ]


@ALL
@on_reactor
async def test_what_expires_is_told(journaled: Journaled, quality: QualityOfService) -> None:
    brokers = journaled.rig
    link = await brokers.started(quality_of_service=quality, max_batch_size=2, max_batch_time_ms=-1)
    # It has time enough to come to the link, where it waits for the other.
    expires = int(clock.seconds() * 1000) + 500
    await brokers.source.send("late", expires=expires)
    await until(lambda: clock.seconds() * 1000 > expires)
    await brokers.moves("in time")
    await brokers.finishes(link, 2)
    late, in_time = (await journaled.transfers()).values()
    assert tuple(steps(in_time)) == MOVED[quality]
    assert Counter(steps(late)) == Counter(("received", "expired", "buried", "settled"))
    (line,) = [event.line for event in late if event.step == "buried"]
    assert (line["steps"], line["reason"]) == (["expired", "buried"], "MESSAGE_EXPIRED")


# --- what goes wrong


def third_to_where_it_is_refused(
    transformer: MessageTransformer, message: JMSMessage
) -> JMSMessage:
    if message.text == "2":
        transformer.branch_to(Queue("denied"))
    return message


@on_reactor
async def test_what_the_target_refuses_is_told_as_rolled_back_and_buried(
    journaled: Journaled,
) -> None:
    brokers = journaled.rig

    await brokers.source.send(*NUMBERS[:4])
    link = await brokers.started(
        transformer=transforming(third_to_where_it_is_refused),
        max_batch_size=4,
        max_batch_time_ms=-1,
    )
    await brokers.target.arrived(3)
    await brokers.finishes(link, 4)
    courses = [
        [step for step in steps(events) if step != "transformed"]
        for events in (await journaled.transfers()).values()
    ]
    again = ["received", "sent", "rolled back", "sent", "arrived", "settled"]
    assert courses == [
        again,
        again,
        ["received", "sent", "rolled back", "buried", "settled"],
        again,
    ]


@on_reactor
async def test_a_transacted_link_tells_of_each_attempt(journaled: Journaled) -> None:
    brokers = journaled.rig

    await brokers.source.send(*NUMBERS[:4])
    link = await brokers.started(
        transformer=transforming(third_to_where_it_is_refused),
        quality_of_service=ONCE,
        max_batch_size=4,
        max_batch_time_ms=20,
        failure_retry_interval_ms=1,
    )
    await brokers.target.arrived(3)
    await brokers.finishes(link, 4)
    found: dict[str, list[list[str]]] = {}
    attempts: dict[str, list[int]] = {}
    for events in (await journaled.transfers()).values():
        found.setdefault(events[0].id, []).append(
            [step for step in steps(events) if step != "transformed"]
        )
        attempts.setdefault(events[0].id, []).append(
            of(events[0], "attempts") if "attempts" in events[0].line else 1
        )
    assert len(found) == 4
    moved, poison = list(MOVED[ONCE]), ["received", "buried", "settled"]
    assert [courses[-1] for courses in found.values()] == [moved, moved, poison, moved]
    for courses in found.values():
        assert all(
            course[-1] == "rolled back" and course[0] == "received" for course in courses[:-1]
        )
    # Six times alone, and once with the others.
    assert [len(courses) for courses in found.values()][2] >= 7
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in attempts.values())


@on_reactor
async def test_what_arrived_and_comes_again_has_two_transfers(journaled: Journaled) -> None:
    brokers = journaled.rig
    passed = Cuts(brokers, "link.before-acknowledge", (1,), brokers.source)
    link = await brokers.started(passed=passed)
    await brokers.source.send("a")
    assert await brokers.target.texts(2) == ["a", "a"]
    await brokers.finishes(link, 1)
    first, second = (await journaled.transfers()).values()
    assert first[0].id == second[0].id
    assert steps(first) == ["received", "sent", "arrived", "buried"]
    assert first[-1].line["reason"] == "ACK_FAILURE"
    assert tuple(steps(second)) == MOVED[PLAIN]
    assert of(second[0], "attempts") == 2


@on_reactor
async def test_what_is_given_back_by_a_link_that_stops_is_told(
    journaled: Journaled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.jms_link.STOP_S", 0.05)
    brokers = journaled.rig
    brokers.graves.holding = []
    link = await brokers.started(
        transformer=transforming(lambda *_: None), target=TOLERANT, max_batch_size=1
    )
    await brokers.source.send("a")
    await until(lambda: bool(brokers.graves.holding))
    await link.stop()
    (events,) = (await journaled.transfers()).values()
    assert steps(events) == ["received", "rolled back"]
    assert events[-1].line["reason"] == "stopped"
    brokers.graves.let_go()


@pytest.mark.parametrize("quality", [PLAIN, ONCE])
@on_reactor
async def test_a_source_forgets_only_what_the_journal_has(
    journaled: Journaled, quality: QualityOfService
) -> None:
    """The kernel has the lines before the source is told, however long that takes."""
    brokers = journaled.rig
    held: list[Deferred[None]] = []
    written, has = journaled.journal.written, journaled.journal.has

    def hold() -> Deferred[None]:
        waiting: Deferred[None] = Deferred()
        written().addCallback(lambda _: held.append(waiting))
        return waiting

    journaled.journal.written = hold  # type: ignore[method-assign]
    journaled.journal.has = lambda line: False  # type: ignore[method-assign]
    link = await brokers.started(quality_of_service=quality, max_batch_size=3, max_batch_time_ms=20)
    await brokers.source.send("a", "b")
    await until(lambda: bool(held))
    client = await brokers.source.seam.connect()
    await client.close()
    told = [
        line for path in journaled.folder.glob("*.jsonl*") for line in path.read_text().splitlines()
    ]
    assert sum('"steps":["received"]' in line for line in told) >= 1
    assert sum('"steps":["sent"]' in line for line in told) >= 1
    assert link.status().counters.acknowledged == 0
    assert "xa.before-decision" not in brokers.points
    assert "link.after-acknowledge" not in brokers.points or quality is ONCE
    journaled.journal.written = written  # type: ignore[method-assign]
    journaled.journal.has = has  # type: ignore[method-assign]
    for waiting in held:
        waiting.callback(None)
    await brokers.finishes(link, 2)


@ALL
@on_reactor
async def test_a_journal_that_has_ended_holds_no_link_up(
    journaled: Journaled, quality: QualityOfService
) -> None:
    brokers = journaled.rig
    link = await brokers.started(quality_of_service=quality)
    await journaled.close()
    await brokers.source.send(*NUMBERS)
    assert await brokers.target.texts(30) == NUMBERS
    await until(lambda: link.status().counters.acknowledged == 30)
    assert link.state is LinkState.STARTED


# --- how much


@pytest.mark.parametrize("level", [Level.OFF, Level.DEAD])
@ALL
@on_reactor
async def test_below_level_links_only_the_dead_are_told(
    journaled: Journaled, quality: QualityOfService, level: Level
) -> None:
    brokers = journaled.rig
    await journaled.close()
    journaled.opened(level, headers=True, bodies=True)

    def act(transformer: MessageTransformer, message: JMSMessage) -> JMSMessage | None:
        return None if message.text == "1" else message

    await brokers.source.send(*NUMBERS[:3])
    link = await brokers.started(
        transformer=transforming(act), target=TOLERANT, quality_of_service=quality
    )
    await brokers.target.arrived(2)
    await brokers.finishes(link, 3)
    events = events_of(await journaled.lines())
    assert steps(events) == (["buried"] if level is Level.DEAD else [])
    if events:
        assert of(events[0], "headers")["JMSDestination"] == str(SOURCE)
        assert (of(events[0], "bodies"), of(events[0], "body_types")) == ("MQ==", "TEXT")


@on_reactor
async def test_headers_and_bodies_are_told_where_they_are_wanted(journaled: Journaled) -> None:
    brokers = journaled.rig
    await journaled.close()
    journaled.opened(headers=True, bodies=True)
    await brokers.source.send("1", properties={"kind": "x"})
    link = await brokers.started()
    await brokers.target.arrived(1)
    await brokers.finishes(link, 1)
    received, *others = await journaled.lines()
    assert received["headers"][0]["kind"] == "x"
    assert (received["bodies"], received["body_types"]) == (["MQ=="], ["TEXT"])
    assert all("bodies" not in line and "headers" not in line for line in others)


@on_reactor
async def test_numbers_of_transfers_go_on_when_a_link_is_made_anew(journaled: Journaled) -> None:
    brokers = journaled.rig
    for body in "ab":
        link: JMSLink = await brokers.started()
        await brokers.source.send(body)
        assert await brokers.target.texts(1) == [body]
        await link.stop()
    assert list(await journaled.transfers()) == [1, 2]


@on_reactor
async def test_a_target_that_keeps_one_of_several_is_told(journaled: Journaled) -> None:
    brokers = journaled.rig
    brokers.target.provider.pretends = {"xa": False}
    link = await brokers.started(quality_of_service=ONCE)
    await brokers.moves("a")
    await brokers.finishes(link, 1)
    (events,) = (await journaled.transfers()).values()
    assert [event.line.get("reason") for event in events] == [None, None, "duplicate id", None]
