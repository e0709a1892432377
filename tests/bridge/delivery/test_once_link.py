"""A link that transfers once and only once, between two brokers of this process that each take part
in XA transactions.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import deferLater

from bridge.jms_link import JMSLink
from bridge.link.delivery import background_recovery
from bridge.link.errors import LinkFailed
from bridge.link.status import LinkState
from bridge.xa.log.file import FileStorage
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.errors import ProviderUnavailable
from gateway.messaging.jms_message import JMSMessage
from gateway.messaging.provider import DUPLICATE_ID, Flags, Xid
from gateway.messaging.transformer import MessageTransformer
from tests.bridge.delivery.transacted import NUMBERS, link, nothing_is_left, started
from tests.bridge.link_pair import SOURCE, TARGET, Cuts, Rig, clock, close, in_state, rig, until
from tests.contract.driving import text
from tests.on_reactor import on_reactor


@pytest_twisted.async_yield_fixture
async def broker(tmp_path: Path) -> AsyncIterator[Rig]:
    """Source and target are one."""
    made = await rig(tmp_path, both=True)
    made.target.provider._resource = made.source.provider.resource
    yield made
    await close(made)


def failing_on(words: str) -> MessageTransformer:
    """A transformer that fails on the message with this text, and changes none."""

    class Fails(MessageTransformer):
        def transform(self, message: JMSMessage, *_: Any) -> JMSMessage | None:
            if message.text == words:
                raise ValueError("not this one")
            return message

    return Fails()


# --- moving


@pytest.mark.parametrize("size", [1, 7, 1000, None])
@on_reactor
async def test_messages_arrive_once_and_in_order(brokers: Rig, size: int | None) -> None:
    await brokers.source.send(*NUMBERS[:30])
    link = await started(brokers, max_batch_size=size)
    await brokers.source.send(*NUMBERS[30:])
    assert await brokers.target.texts(60) == NUMBERS
    await link.stop()
    counters = link.status().counters
    assert (counters.sent, counters.acknowledged, counters.possible_duplicates) == (60, 60, 0)
    assert counters.octets == sum(len(number) for number in NUMBERS)
    await nothing_is_left(brokers)


@on_reactor
async def test_where_both_sides_are_one_broker_nothing_is_logged(broker: Rig) -> None:
    await broker.source.send(*NUMBERS)
    link = await started(broker, max_batch_size=7)
    assert await broker.target.texts(60) == NUMBERS
    await link.stop()
    points = set(broker.points)
    assert "xa.before-decision" not in points
    assert "xa.after-prepare-1" not in points
    await nothing_is_left(broker)


@on_reactor
async def test_where_a_factory_may_lead_to_several_resource_managers_each_side_has_a_branch_of_its_own(
    broker: Rig,
) -> None:
    for side in (broker.source, broker.target):
        side.factory.config = replace(side.config, multi_rm=True)
    await broker.source.send(*NUMBERS)
    link = await started(broker, max_batch_size=7)
    assert await broker.target.texts(60) == NUMBERS
    await link.stop()
    assert {"xa.after-prepare-2", "xa.after-decision", "xa.after-commit-2"} <= set(broker.points)
    await nothing_is_left(broker)


@on_reactor
async def test_between_two_brokers_the_decision_is_logged_before_anyone_commits(
    brokers: Rig,
) -> None:
    await brokers.source.send("a")
    link = await started(brokers)
    assert await brokers.target.texts(1) == ["a"]
    await until(lambda: link.status().counters.batches == 1)
    xa = [
        point
        for point in brokers.points
        if point.startswith("xa.after-p") or point.endswith("decision") or "commit" in point
    ]
    assert xa == [
        "xa.after-prepare-1",
        "xa.after-prepare-2",
        "xa.before-decision",
        "xa.after-decision",
        "xa.after-commit-1",
        "xa.after-commit-2",
    ]


@on_reactor
async def test_a_connection_that_does_not_stay_is_given_back_after_each_transaction(
    brokers: Rig,
) -> None:
    link = await started(brokers, target={"stay_connected": False})
    for body in "abc":
        await brokers.source.send(body)
        assert await brokers.target.texts(1) == [body]
        await until(lambda: brokers.connections.pools()[0].in_use == 0)
    await link.stop()


# --- what goes elsewhere


@on_reactor
async def test_what_the_transformer_fails_on_is_dead_and_the_rest_goes_on(brokers: Rig) -> None:
    class Fails(MessageTransformer):
        def transform(self, message: JMSMessage, *_: Any) -> JMSMessage | None:
            if message.text == "03":
                raise ValueError("not this one")
            if message.text == "04":
                self.no_transfer()
            return message

    await brokers.source.send(*NUMBERS[:6])
    link = await started(
        brokers,
        transformer=Fails(),
        target={"consume_no_transfer_on_transform_error": True},
        max_batch_size=4,
    )
    assert await brokers.target.texts(4) == [*NUMBERS[:3], NUMBERS[5]]
    await until(lambda: link.status().counters.acknowledged == 6)
    assert [(dead.message.text, dead.reason) for dead in brokers.graves.dead] == [
        ("03", BridgeDeadReason.TRANSFORM_FAILURE)
    ]
    counters = link.status().counters
    assert (counters.transform_failures, counters.not_transferred, counters.dead) == (
        1,
        1,
        {BridgeDeadReason.TRANSFORM_FAILURE: 1},
    )
    await nothing_is_left(brokers)


@on_reactor
async def test_where_it_must_stop_for_that_all_of_the_batch_stays(brokers: Rig) -> None:
    await brokers.source.send(*NUMBERS[:6])
    made = link(brokers, transformer=failing_on("03"), max_batch_size=6)
    await made.start()
    await brokers.reaches(made, LinkState.FAILED)
    assert "not this one" in made.status().last_error
    assert await brokers.source.rest(SOURCE) == NUMBERS[:6]
    assert await brokers.target.rest(TARGET) == []


@on_reactor
async def test_where_no_dead_message_queue_takes_a_message_the_transaction_is_tried_again(
    brokers: Rig,
) -> None:
    brokers.graves.refuse = 2
    await brokers.source.send("good", "bad", "better")
    tolerant = {"consume_no_transfer_on_transform_error": True}
    link = await started(brokers, transformer=failing_on("bad"), target=tolerant, max_batch_size=3)
    assert await brokers.target.texts(2) == ["good", "better"]
    await until(lambda: link.status().counters.acknowledged == 3)
    assert [dead.message.text for dead in brokers.graves.dead] == ["bad"]
    assert link.status().counters.dead == {BridgeDeadReason.TRANSFORM_FAILURE: 1}
    await nothing_is_left(brokers)


@pytest.mark.parametrize("size", [1, 16])
@on_reactor
async def test_a_message_that_the_target_refuses_is_dead_after_six_times_alone_and_nothing_overtakes(
    brokers: Rig, size: int
) -> None:
    small, most = brokers.target.backend.small
    bodies = [f"{number:02}" if number != 5 else "x" * (most + 1_000) for number in range(20)]
    await brokers.source.send(*bodies)
    link = await started(brokers, to=small, max_batch_size=size)
    assert await brokers.target.texts(19, small) == [body for body in bodies if len(body) == 2]
    await until(lambda: link.status().counters.acknowledged == 20)
    [dead] = brokers.graves.dead
    assert (dead.message.text, dead.reason) == (bodies[5], BridgeDeadReason.SEND_FAILURE)
    assert (link.status().counters.refused, link.status().counters.possible_duplicates) == (6, 0)
    await nothing_is_left(brokers)


@on_reactor
async def test_what_is_dead_is_buried_once_however_often_its_transaction_is_tried_again(
    brokers: Rig,
) -> None:
    small, most = brokers.target.backend.small
    large = "x" * (most + 1_000)
    await brokers.source.send("bad", "good", large, "better")
    tolerant = {"consume_no_transfer_on_transform_error": True}
    link = await started(
        brokers,
        transformer=failing_on("bad"),
        target=tolerant,
        to=small,
        max_batch_size=4,
    )
    assert await brokers.target.texts(2, small) == ["good", "better"]
    await until(lambda: link.status().counters.acknowledged == 4)
    assert [dead.message.text for dead in brokers.graves.dead] == ["bad", large]
    await nothing_is_left(brokers)


# --- what is lost on the way

POINTS = [
    "xa.after-start-1",
    "link.after-receive",
    "xa.after-start-2",
    "link.after-send",
    "link.before-acknowledge",
    "xa.after-end",
    "xa.after-prepare-1",
    "xa.after-prepare-2",
    "xa.before-decision",
    "xa.after-decision",
    "xa.after-commit-1",
    "xa.after-commit-2",
    "xa.after-forget",
]


@pytest.mark.parametrize("cut", ["source", "target", "both"])
@pytest.mark.parametrize("point", POINTS)
@on_reactor
async def test_whatever_connection_is_lost_at_whatever_point_each_message_arrives_once(
    brokers: Rig, point: str, cut: str
) -> None:
    sides = [brokers.source, brokers.target]
    lost = [side for side in sides if cut in (side.config.ref_name, "both")]
    passed = Cuts(brokers, point, (2, 3), *lost)
    await brokers.source.send(*NUMBERS)
    link = await started(brokers, max_batch_size=5, passed=passed)
    assert await brokers.target.texts(60) == NUMBERS
    assert passed.seen >= 3
    await until(lambda: link.status().counters.acknowledged >= 60 or not link.status().in_flight)
    await nothing_is_left(brokers)


@pytest.mark.parametrize("act", ["pause", "stop"])
@pytest.mark.parametrize("point", POINTS)
@on_reactor
async def test_it_can_be_stopped_and_paused_at_any_point(
    brokers: Rig, point: str, act: str
) -> None:
    acted: list[Any] = []

    def passed(at: str) -> None:
        if at == point and not acted:
            acted.append(getattr(moving, act)())

    await brokers.source.send(*NUMBERS)
    moving = link(brokers, max_batch_size=5, passed=passed)
    await moving.start()
    await until(lambda: bool(acted))
    await acted[0]
    in_state(moving, LinkState.PAUSED if act == "pause" else LinkState.STOPPED)
    await moving.start()
    assert await brokers.target.texts(60) == NUMBERS
    await nothing_is_left(brokers)


# --- without XA


@on_reactor
async def test_a_target_that_remembers_makes_up_for_a_source_without_xa(brokers: Rig) -> None:
    brokers.source.provider.pretends = {"xa": False}
    # What is sent by then and not acknowledged comes again.
    passed = Cuts(brokers, "link.before-acknowledge", (2, 4), brokers.source)
    await brokers.source.send(*NUMBERS)
    link = await started(brokers, max_batch_size=5, passed=passed)
    arrived = await brokers.target.arrived(60)
    assert [message.text for message in arrived] == NUMBERS
    assert len({message.headers.properties[DUPLICATE_ID] for message in arrived}) == 60
    await until(lambda: link.status().counters.acknowledged == 60)
    assert link.status().counters.possible_duplicates >= 5
    await nothing_is_left(brokers)


@pytest.mark.parametrize(
    ("source", "target", "named"),
    [
        ({"xa": False, "stable_ids": False}, {}, "its source, connection-factory 'source'"),
        ({}, {"xa": False, "duplicate_ids": False}, "its target, connection-factory 'target'"),
    ],
)
@on_reactor
async def test_a_pair_that_cannot_is_refused_by_name(
    brokers: Rig, source: dict[str, bool], target: dict[str, bool], named: str
) -> None:
    brokers.source.provider.pretends = source
    brokers.target.provider.pretends = target
    await brokers.source.send("a")
    made = link(brokers)
    with pytest.raises(LinkFailed, match=named):
        await made.start()
    in_state(made, LinkState.FAILED)
    assert 'quality-of-service="DUPLICATES_OK"' in made.status().last_error
    assert await brokers.source.rest(SOURCE) == ["a"]


# --- the disk of the log


@on_reactor
async def test_while_the_disk_of_the_log_is_full_nothing_moves_and_no_message_is_at_fault(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, disk = FileStorage.append, {"full": True}

    def full(self: FileStorage, data: bytes) -> None:
        if disk["full"]:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(self, data)

    brokers.coordinator()
    monkeypatch.setattr(FileStorage, "append", full)
    await brokers.source.send(*NUMBERS[:20])
    link = await started(brokers, max_batch_size=1)
    await until(lambda: link.state is LinkState.RETRYING and link.status().attempt > 1)
    assert "No space left on device" in link.status().last_error
    disk["full"] = False
    assert await brokers.target.texts(20) == NUMBERS[:20]
    assert (brokers.graves.dead, link.status().counters.refused) == ([], 0)
    await nothing_is_left(brokers)


# --- what comes late


class Hears:
    """A resource manager that does as it is told, and keeps what it heard last."""

    def start(self, xid: Xid, flags: Flags) -> Deferred[None]:
        self.xid = xid
        return succeed(None)

    def end(self, xid: Xid, flags: Flags) -> Deferred[None]:
        return succeed(None)

    def rollback(self, xid: Xid) -> Deferred[None]:
        return succeed(None)


@on_reactor
async def test_what_is_prepared_after_the_recovery_is_rolled_back_a_little_later(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked over a connection that is lost, and on its way while the link was connected
    again.
    """
    # All of it is prepared by then, on a busy machine too.
    monkeypatch.setattr(background_recovery, "AGAIN_S", 2.0)
    link = await started(brokers)
    transaction, hears = brokers.coordinator().begin(), Hears()
    await transaction.enlist("target", "elsewhere", hears)  # type: ignore[arg-type]
    await transaction.rollback()
    brokers.target.provider.cut()
    await until(lambda: link.status().counters.reconnects == 1 and link.state is LinkState.STARTED)
    client = await brokers.target.seam.connect()
    session = client.connection.xa_session()
    resource = session.resource()
    await resource.start(hears.xid, Flags.NOFLAGS)
    session.send([text(TARGET, "late")])
    await resource.end(hears.xid, Flags.SUCCESS)
    await resource.prepare(hears.xid)
    while await resource.recover():
        await deferLater(clock, 0.01)
    await client.close()
    await nothing_is_left(brokers)


@on_reactor
async def test_what_a_stopped_link_left_decided_is_committed_when_its_broker_is_back(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_recovery, "AGAIN_S", 0.2)
    links: list[JMSLink] = []

    def passed(at: str) -> None:
        if at == "xa.after-decision" and links:
            brokers.target.provider.error = ProviderUnavailable("it is away")
            brokers.target.provider.cut()
            links.pop().stop()

    await brokers.source.send("a")
    made = link(brokers, passed=passed)
    links.append(made)
    await made.start()
    await brokers.reaches(made, LinkState.STOPPED)
    [waiting] = brokers.coordinator().transactions()
    assert waiting.state == "WAITING"
    brokers.target.provider.error = None
    assert await brokers.target.texts(1) == ["a"]
    await nothing_is_left(brokers)
