"""What a transacted link does about messages that its target refuses, and what its source has kept
then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, fail

from bridge.config.model import QualityOfService
from bridge.link import link as links
from bridge.link.link import JMSLink
from bridge.status import LinkState
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Destination, Topic
from gateway.messaging.errors import OutcomeUnknown, ProviderUnavailable, XAError
from gateway.messaging.message import Message
from gateway.messaging.provider import Provider, Vote, Xid
from tests.bridge.linking import SOURCE, TARGET, Away, Rig, clock, close, until
from tests.contract.backends.embedded import EmbeddedMemory
from tests.contract.backends.jms_xa import JMSXA
from tests.on_reactor import on_reactor

ONCE = QualityOfService.ONCE_AND_ONLY_ONCE
TOPIC = Topic("link.topic")
NUMBERS = [f"{number:02}" for number in range(20)]
_ROLLED_BACK = 100


class Refusing:
    """A target whose resource manager will not prepare a message, and does not say which.

    :param bad: its text. :param refusals: the messages of each branch that was not prepared.
    """

    def __init__(self, provider: Provider, bad: str) -> None:
        self._provider = provider
        self._bad = bad
        self.refusals: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def connect(self, *given: Any) -> Deferred[Any]:
        return self._provider.connect(*given).addCallback(self._connection)

    def _connection(self, connection: Any) -> Any:
        return _Like(connection, xa_session=lambda: self._session(connection.xa_session()))

    def _session(self, session: Any) -> Any:
        sent: list[str] = []
        behind = session.resource()

        def send(messages: Sequence[Message]) -> None:
            sent.extend([message.text for message in messages])
            session.send(messages)

        def start(xid: Xid, flags: Any) -> Deferred[None]:
            sent.clear()
            return behind.start(xid, flags)  # type: ignore[no-any-return]

        def prepare(xid: Xid) -> Deferred[Vote]:
            if self._bad in sent:
                self.refusals.append(len(sent))
                return fail(XAError(_ROLLED_BACK, "not these"))
            return behind.prepare(xid)  # type: ignore[no-any-return]

        resource = _Like(behind, start=start, prepare=prepare)
        return _Like(session, send=send, resource=lambda: resource)


class _Like:
    """What is as it is behind it, but for what it is given."""

    def __init__(self, behind: Any, **other: Callable[..., Any]) -> None:
        self._behind = behind
        self._other = other

    def __getattr__(self, name: str) -> Any:
        return self._other.get(name) or getattr(self._behind, name)


class Silent:
    """A target that takes the first message, and is away before it has said so."""

    def __init__(self, provider: Provider, away: Away) -> None:
        self._provider = provider
        self._away = away
        self._said = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def connect(self, *given: Any) -> Deferred[Any]:
        return self._provider.connect(*given).addCallback(
            lambda connection: _Like(
                connection, session=lambda mode: self._session(connection.session(mode))
            )
        )

    def _session(self, session: Any) -> Any:
        def commit(done: Callable[[Any], None]) -> None:
            said, self._said = self._said, True
            if not said:
                self._away.error = ProviderUnavailable("it is away")
            session.commit(
                lambda failed: done(failed if said else OutcomeUnknown("its connection is lost"))
            )

        return _Like(session, commit=commit)


async def started(rig: Rig, **link: Any) -> JMSLink:
    return await rig.started(quality_of_service=ONCE, max_batch_time_ms=20, **link)


def too_large(rig: Rig) -> tuple[Destination, str]:
    """A queue of the target, and a body that it does not take."""
    small, most = rig.target.backend.small
    return small, "x" * (most + 1_000)


# --- a subscription that is not durable


@pytest.mark.parametrize("says_which", [True, False])
@pytest.mark.parametrize("size", [1, 7, 16, None])
@on_reactor
async def test_of_a_topic_without_durable_sub_nothing_is_lost_by_a_refusal(
    brokers: Rig, size: int | None, says_which: bool
) -> None:
    to, bad = too_large(brokers)
    if not says_which:
        to, bad = TARGET, "bad"
        brokers.target.provider._provider = Refusing(brokers.target.provider._provider, bad)
    link = await started(brokers, of=TOPIC, to=to, max_batch_size=size)
    bodies = [*NUMBERS[:5], bad, *NUMBERS[5:]]
    await brokers.source.send(*bodies, to=TOPIC)
    assert await brokers.target.texts(20, to) == NUMBERS
    await until(lambda: link.status().counters.acknowledged == 21)
    [dead] = brokers.graves.dead
    reason = BridgeDeadReason.SEND_FAILURE if says_which else BridgeDeadReason.COMMIT_FAILURE
    assert (dead.message.text, dead.reason) == (bad, reason)
    await brokers.source.send("later", to=TOPIC)
    assert await brokers.target.texts(1, to) == ["later"]
    assert link.status().counters.refused == 6


@on_reactor
async def test_of_a_topic_without_durable_sub_nothing_is_lost_while_the_target_is_away(
    brokers: Rig,
) -> None:
    link = await started(brokers, of=TOPIC)
    await brokers.source.send("before", to=TOPIC)
    assert await brokers.target.texts(1) == ["before"]
    brokers.target.provider.error = ProviderUnavailable("it is away")
    brokers.target.provider.cut()
    await brokers.reaches(link, LinkState.RETRYING)
    await brokers.source.send(*NUMBERS, to=TOPIC)
    brokers.target.provider.error = None
    assert await brokers.target.texts(20) == NUMBERS
    await until(lambda: link.status().counters.acknowledged == 21)


@pytest.mark.parametrize(
    "point",
    [
        "xa.after-start-2",
        "link.after-send",
        "xa.after-prepare-1",
        "xa.after-prepare-2",
        "xa.after-decision",
    ],
)
@on_reactor
async def test_of_a_topic_without_durable_sub_nothing_is_lost_with_the_target_amid_a_transaction(
    brokers: Rig, point: str
) -> None:
    seen = 0

    def passed(at: str) -> None:
        nonlocal seen
        if at == point:
            seen += 1
            if seen in (2, 3):
                brokers.target.provider.cut()

    link = await started(brokers, of=TOPIC, max_batch_size=5, passed=passed)
    await brokers.source.send(*NUMBERS, to=TOPIC)
    assert await brokers.target.texts(20) == NUMBERS
    await until(lambda: link.status().counters.acknowledged >= 20 or not link.status().in_flight)
    assert seen >= 3
    await link.stop()
    assert list(brokers.coordinator().transactions()) == []
    assert await brokers.target.rest(TARGET) == []


@pytest.mark.parametrize(
    ("of", "source", "warnings"),
    [(TOPIC, {}, 1), (TOPIC, {"durable_sub": "d", "clientid": "c"}, 0), (SOURCE, {}, 0)],
)
@on_reactor
async def test_a_topic_without_durable_sub_is_told_of_once(
    brokers: Rig, of: Destination, source: dict[str, str], warnings: int
) -> None:
    link = await started(brokers, of=of, source=source)
    brokers.source.provider.cut()
    await until(lambda: link.status().counters.reconnects == 1 and link.state is LinkState.STARTED)
    assert len([line for line in brokers.warned if "durable-sub" in line]) == warnings


# --- which message it is


@on_reactor
async def test_a_message_that_the_target_names_is_isolated_by_one_rollback(brokers: Rig) -> None:
    to, bad = too_large(brokers)
    await brokers.source.send(*NUMBERS[:13], bad, *NUMBERS[13:])
    link = await started(brokers, to=to)
    arrived = await brokers.target.texts(20, to)
    assert arrived == NUMBERS
    await until(lambda: link.status().counters.acknowledged == 21)
    # All together, then what is before it, then itself six times and once more as a dead one, then
    # what is behind it.
    assert link.status().counters.received == 21 + 13 + 6 + 1 + 7
    assert link.status().counters.batches == 3


# --- a target that holds back


@on_reactor
async def test_a_target_that_does_not_stay_connected_holds_the_link_back(brokers: Rig) -> None:
    flow, most = brokers.target.backend.flow
    await brokers.source.send(*NUMBERS)
    link = await started(brokers, to=flow, target={"stay_connected": False}, max_batch_size=1)
    await until(lambda: link.status().counters.sent >= most)
    # Time to do wrong: as many turns as ten more would take.
    client = await brokers.source.seam.connect()
    for _ in range(10):
        await client.send(TARGET, ["turn"])
    assert link.status().counters.sent <= most + 1
    arrived: list[str] = []
    while len(arrived) < 20:
        arrived += await brokers.target.texts(1, flow)
    assert arrived == NUMBERS


@on_reactor
async def test_a_link_that_is_held_back_can_be_stopped(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "STOP_S", 0.05)
    flow, most = brokers.target.backend.flow
    await brokers.source.send(*NUMBERS)
    link = await started(brokers, to=flow, target={"stay_connected": False}, max_batch_size=1)
    await until(lambda: link.status().counters.sent >= most)
    await link.stop()
    sent = link.status().counters.sent
    assert await brokers.source.rest(SOURCE) == NUMBERS[sent:]
    assert await brokers.target.rest(flow) == NUMBERS[:sent]
    assert list(brokers.coordinator().transactions()) == []


# --- by ids


@on_reactor
async def test_what_was_sent_in_doubt_is_not_dead_when_it_expires(brokers: Rig) -> None:
    """The target has it, and must be asked again to know it for the same."""
    brokers.source.provider.pretends = {"xa": False}
    there = brokers.target.provider
    there._provider = Silent(there._provider, there)
    link = await started(brokers)
    expires = int(clock.seconds() * 1000) + 400
    await brokers.source.send("doubtful", expires=expires)
    assert await brokers.target.texts(1) == ["doubtful"]
    await until(lambda: clock.seconds() * 1000 > expires)
    there.error = None
    await until(lambda: link.status().counters.acknowledged == 1)
    assert (brokers.graves.dead, link.status().counters.expired, link.status().counters.sent) == (
        [],
        0,
        1,
    )
    assert await brokers.target.rest(TARGET) == []


@on_reactor
async def test_a_link_that_goes_by_xa_later_marks_nothing(brokers: Rig) -> None:
    brokers.source.provider.pretends = {"xa": False}
    link = await started(brokers)
    await brokers.source.send("by id")
    [first] = await brokers.target.arrived(1)
    await link.stop()
    brokers.source.provider.pretends = {}
    await link.start()
    await brokers.source.send("by XA")
    [second] = await brokers.target.arrived(1)
    assert "_AMQ_DUPL_ID" in first.headers.properties
    assert "_AMQ_DUPL_ID" not in second.headers.properties


# --- with ActiveMQ as the source


@pytest.mark.process
@pytest.mark.brokers
@pytest.mark.parametrize("size", [7, None])
@pytest.mark.parametrize("says_which", [True, False])
@on_reactor
async def test_of_a_topic_of_activemq_nothing_is_lost_by_a_refusal(
    tmp_path: Path, says_which: bool, size: int | None
) -> None:
    source, target = JMSXA(), EmbeddedMemory()
    for backend in (source, target):
        (tmp_path / backend.name).mkdir()
        await backend.start(tmp_path / backend.name)
    brokers = Rig(cast(Any, source), target, tmp_path)
    try:
        to, bad = too_large(brokers)
        if not says_which:
            to, bad = TARGET, "bad"
            brokers.target.provider._provider = Refusing(brokers.target.provider._provider, bad)
        topic = source.topic()
        link = await started(brokers, of=topic, to=to, max_batch_size=size)
        await brokers.source.send(*NUMBERS[:5], bad, *NUMBERS[5:], to=topic)
        assert await brokers.target.texts(20, to) == NUMBERS
        await until(lambda: link.status().counters.acknowledged == 21)
        assert [dead.message.text for dead in brokers.graves.dead] == [bad]
    finally:
        await close(brokers)
