"""What an operator is told of a link: one line for what keeps it from moving messages, and its lag,
the age of the oldest message that waits at its source.
"""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import formatEvent

from bridge.config.model import QualityOfService
from bridge.jms_link import JMSLink
from bridge.link import lag, trouble
from bridge.link.errors import TargetLost
from bridge.link.status import Doing, LinkState, LinkStatus
from bridge.link.trouble import Progress, Refusals, Stall
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import (
    AuthenticationFailed,
    DestinationFull,
    OutcomeUnknown,
    ProviderUnavailable,
)
from tests.bridge.delivery import transacted
from tests.bridge.delivery.transacted import Slow
from tests.bridge.link_pair import SOURCE, Rig, Side, in_state, until
from tests.contract.driving import now_ms, text
from tests.contract.waiting import completed
from tests.logged import recording
from tests.on_reactor import on_reactor

NUMBERS = [str(number) for number in range(40)]
#: Seconds that a stall lasts: a busy machine must not make one by itself.
STALLED = 1.0


def said(brokers: Rig, *words: str) -> list[str]:
    """The warnings that have all of these words."""
    return [line for line in brokers.warned if all(word in line for word in words)]


def full(brokers: Rig) -> tuple[Queue, int]:  # type: ignore[valid-type]
    """A queue of the target with a limit."""
    place, most = brokers.target.backend.full
    return place, most


@on_reactor
async def test_a_full_target_is_one_line_with_the_remedy_and_the_last_error(brokers: Rig) -> None:
    place, most = full(brokers)
    link = await brokers.started(to=place)
    await brokers.source.send(*NUMBERS)
    await until(lambda: link.status().counters.refused == len(NUMBERS) - most)
    [line] = said(brokers, "refuses messages")
    for words in (
        "connection-factory 'target'",
        f"{place} is full: maxNumMsgs is {most}",
        "raise its limit",
        "replay dead",
    ):
        assert words in line
    assert f"{place} is full: maxNumMsgs is {most}; make room there" in link.status().last_error


@on_reactor
async def test_a_full_target_of_a_transacted_link_is_one_line_with_the_remedy(brokers: Rig) -> None:
    place, most = full(brokers)
    link = await brokers.started(
        to=place, quality_of_service=QualityOfService.ONCE_AND_ONLY_ONCE, max_batch_time_ms=20
    )
    await brokers.source.send(*NUMBERS[: most + 1])
    await until(lambda: link.status().counters.refused >= 3, lambda: str(link.status()))
    [line] = said(brokers, "message refused")
    assert "make room there" in line
    assert "make room there" in link.status().last_error


@on_reactor
async def test_a_refused_login_is_one_line_with_the_remedy(brokers: Rig) -> None:
    link = await brokers.started()
    brokers.target.provider.error = AuthenticationFailed("bridge")
    brokers.target.provider.cut()
    await brokers.reaches(link, LinkState.RETRYING)
    await until(lambda: link.status().attempt > 2)
    [line] = said(brokers, "user 'bridge' is refused")
    assert "target, connection-factory 'target'" in line
    assert "correct the username and the password" in line
    assert "correct the username and the password" in link.status().last_error


async def stalled(brokers: Rig, link: JMSLink, what: str) -> None:
    await until(lambda: said(brokers, what) != [], lambda: f"{brokers.warned} {link.status()}")
    [line] = said(brokers, what)
    assert "make room" in line
    assert what in link.status().last_error
    assert link.state is LinkState.STARTED


@on_reactor
async def test_a_target_that_takes_nothing_is_one_line_and_so_is_that_it_goes_on(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trouble, "STALLED_S", STALLED)
    monkeypatch.setattr(trouble, "LOOK_S", STALLED / 5)
    place = brokers.target.backend.flow[0]
    most = brokers.target.backend.flow[1]
    link = await brokers.started(to=place)
    await brokers.source.send(*NUMBERS[: most + 1])
    await until(lambda: link.status().counters.sent == most + 1)
    await brokers.source.send(*NUMBERS[most + 1 : most + 10])
    await stalled(
        brokers,
        link,
        f"target, connection-factory 'target', has not taken what is being sent to {place}",
    )
    assert await brokers.target.texts(most + 1, place) == NUMBERS[: most + 1]
    assert await brokers.target.texts(9, place) == NUMBERS[most + 1 : most + 10]
    await until(lambda: any("goes on after" in line for line in brokers.logged))


@on_reactor
async def test_a_resource_manager_that_does_not_answer_is_one_line(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trouble, "STALLED_S", STALLED)
    monkeypatch.setattr(trouble, "LOOK_S", STALLED / 5)
    slow = Slow.of(brokers.target, "commit")
    await brokers.source.send("a")
    link = await transacted.started(brokers)
    await until(lambda: slow.waiting is not None)
    await stalled(brokers, link, "connection-factory 'target', has not taken")
    slow.let_go()
    assert await brokers.target.texts(1) == ["a"]


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (
            "javax.jms.ResourceAllocationException: Usage Manager Memory Limit reached on queue://q",
            "raise its limit",
        ),
        ("it sent ERROR: Usage Manager Store is Full", "raise its limit"),
        (
            "a call of jms session 1 did not return within 30 s; the provider does not answer",
            "if the broker hangs, restart it",
        ),
        ("connection refused", ""),
    ],
)
def test_a_broker_that_ends_the_connection_as_it_is_full_is_told_of_with_the_remedy(
    said: str, wanted: str
) -> None:
    for error in (
        ProviderUnavailable(said),
        OutcomeUnknown(said),
        TargetLost(ProviderUnavailable(said), sent=True),
    ):
        found = trouble.remedy(error)
        assert wanted in found
        assert bool(wanted) == bool(found)


def test_a_refusal_is_told_again_after_a_minute_with_how_many_there_were() -> None:
    (log, events), clock = recording(), Clock()
    recorded: list[str] = []
    refusals = Refusals("orders", "far", log, clock.seconds, recorded.append)
    error = DestinationFull(Queue("q"), "maxNumMsgs", 3)
    for _ in range(5):
        refusals(error, 2)
    clock.advance(trouble.TELL_S)
    refusals(error, 2)
    first, second = map(formatEvent, events)
    assert ("2 since" in first, "10 since" in second, len(recorded)) == (True, True, 6)


def test_a_link_that_waits_for_messages_or_gets_on_is_not_stalled() -> None:
    (log, events), clock = recording(), Clock()
    recorded: list[str] = []
    now: list[Any] = [Progress(Doing.RECEIVING, (0,))]
    names = {"source": "s", "target": "t", "destination": "queue:q"}
    stall = Stall(clock, "orders", names, log, lambda: now[0], recorded.append)
    stall.watch()
    clock.pump([trouble.LOOK_S] * 20)
    for number in range(20):
        now[0] = Progress(Doing.SENDING, (number,))
        clock.advance(trouble.LOOK_S)
    assert events == []
    clock.pump([trouble.LOOK_S] * 20)
    assert len(events) == len(recorded) == 1
    stall.stop()
    assert clock.getDelayedCalls() == []


# --- the lag


MINUTE_MS = 60_000


async def send_aged(side: Side, *minutes: int, to: Destination = SOURCE, **headers: Any) -> None:
    """Send messages that are so many minutes old."""
    client = await side.seam.connect()
    session = client.session()
    messages = [text(to, f"{each} minutes", **headers) for each in minutes]
    for message, age in zip(messages, minutes, strict=True):
        message.timestamp = now_ms() - age * MINUTE_MS
    session.send(messages)
    await completed(session)
    await client.close()


async def looked(link: JMSLink) -> LinkStatus:
    await link.look()
    return link.status()


def minutes(status: LinkStatus) -> int:
    """The lag, in whole minutes; -1 when unknown."""
    return -1 if status.lag_ms < 0 else status.lag_ms // MINUTE_MS


@on_reactor
async def test_nothing_waits_where_all_has_been_moved_however_old_it_was(brokers: Rig) -> None:
    link = await brokers.started()
    await send_aged(brokers.source, 10)
    await brokers.target.arrived(1)
    await until(lambda: link.status().counters.acknowledged == 1)
    status = await looked(link)
    assert (status.lag_ms, status.waiting) == (0, 0)


@on_reactor
async def test_a_paused_link_tells_the_age_of_what_waits_behind_it(brokers: Rig) -> None:
    link = await brokers.started()
    await link.pause()
    await send_aged(brokers.source, 1, 7, 3)
    status = await looked(link)
    assert (minutes(status), status.waiting) == (7, 3)


@on_reactor
async def test_what_the_link_has_and_cannot_send_waits_too(brokers: Rig) -> None:
    brokers.target.provider.error = ProviderUnavailable("it is away")
    link = brokers.link()
    await link.start()
    in_state(link, LinkState.RETRYING)
    await send_aged(brokers.source, 5)
    status = await looked(link)
    assert (minutes(status), status.waiting) == (5, 1)


@on_reactor
async def test_a_browsed_source_is_looked_at_every_ten_seconds_at_most(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await brokers.started()
    await link.pause()
    assert (await looked(link)).lag_ms == 0
    await send_aged(brokers.source, 2)
    assert (await looked(link)).lag_ms == 0
    monkeypatch.setattr(lag, "BROWSE_EVERY_S", 0)
    assert minutes(await looked(link)) == 2


@on_reactor
async def test_only_what_the_selector_matches_waits_for_the_link(brokers: Rig) -> None:
    brokers.source.factory.waiting = brokers.source.backend.provider().waiting  # type: ignore[attr-defined]
    link = await brokers.started(source={"selector": "colour = 'blue'"})
    await link.pause()
    await send_aged(brokers.source, 9, properties={"colour": "red"})
    await send_aged(brokers.source, 4, properties={"colour": "blue"})
    assert minutes(await looked(link)) == 4


@on_reactor
async def test_a_source_that_cannot_be_browsed_is_unknown_but_for_what_the_link_has(
    brokers: Rig,
) -> None:
    brokers.source.provider.pretends = {"browse": False}
    link = await brokers.started()
    status = await looked(link)
    assert (status.lag_ms, status.waiting) == (-1, -1)
    await link.stop()
    brokers.target.provider.error = ProviderUnavailable("it is away")
    await link.start()
    await send_aged(brokers.source, 3)
    # It is connected to its source, and receives when it is connected to both.
    brokers.target.provider.error = None
    brokers.target.provider.hangs = True
    await until(lambda: link.state is LinkState.RETRYING)
    assert (await looked(link)).lag_ms == -1


@on_reactor
async def test_a_stopped_link_is_unknown_where_only_its_connection_could_tell(brokers: Rig) -> None:
    link = await brokers.started()
    await link.stop()
    await send_aged(brokers.source, 2)
    assert (await looked(link)).lag_ms == -1


@on_reactor
async def test_the_broker_of_this_instance_tells_whatever_the_link_does(brokers: Rig) -> None:
    brokers.source.factory.waiting = brokers.source.backend.provider().waiting  # type: ignore[attr-defined]
    link = await brokers.started()
    await link.stop()
    await send_aged(brokers.source, 6, 2)
    status = await looked(link)
    assert (minutes(status), status.waiting) == (6, 2)
    await link.start()
    await brokers.target.arrived(2)
    await until(lambda: link.status().counters.acknowledged == 2)
    status = await looked(link)
    assert (status.lag_ms, status.waiting) == (0, 0)


@on_reactor
async def test_a_durable_subscription_is_known_here_and_unknown_elsewhere(brokers: Rig) -> None:
    topic = Topic("news")
    durable = {"durable_sub": "link", "clientid": "bridge"}
    link = await brokers.started(of=topic, source=durable)
    await link.stop()
    await send_aged(brokers.source, 8, to=topic)
    assert (await looked(link)).lag_ms == -1
    brokers.source.factory.waiting = brokers.source.backend.provider().waiting  # type: ignore[attr-defined]
    status = await looked(link)
    assert (minutes(status), status.waiting) == (8, 1)


@on_reactor
async def test_a_topic_without_a_durable_subscription_keeps_nothing(brokers: Rig) -> None:
    link = await brokers.started(of=Topic("news"))
    await link.stop()
    await send_aged(brokers.source, 8, to=Topic("news"))
    assert (await looked(link)).lag_ms == 0
