"""A link between two brokers: what it moves, what it survives, and what an operator can do to it at
any time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from stompest.protocol import StompFrame
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from bridge.config.model import Bridge, QualityOfService
from bridge.config.model import Destination as Configured
from bridge.connections.administered import FactoryError
from bridge.link.errors import LinkFailed
from bridge.link.status import Doing, LinkState, WrongState
from bridge.providers.jms.failures import ClientMissing, JavaMissing
from bridge.providers.stomp.options import StompOptions
from bridge.providers.stomp.provider import StompProvider
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.errors import AuthenticationFailed, ProviderUnavailable, UnknownDelivery
from gateway.messaging.jms_message import JMSMessage
from gateway.messaging.transformer import MessageTransformer
from gateway.reactor.deferreds import FairShare
from tests.bridge.link_pair import SOURCE, TARGET, Cuts, Rig, in_state, until
from tests.bridge.providers.stomp.peer import Peer
from tests.on_reactor import on_reactor

clock: Any = reactor
NUMBERS = [str(number) for number in range(100)]
TOLERANT = {"consume_no_transfer_on_transform_error": True}


def failing(times: int = 1_000_000) -> MessageTransformer:
    """A transformer that fails so many times, and then changes nothing."""

    class Fails(MessageTransformer):
        left = times

        def transform(self, message: JMSMessage, *_: Any) -> JMSMessage | None:
            if self.left:
                self.left -= 1
                raise ValueError("not this one")
            return message

    return Fails()


# --- moving


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("quality", [QualityOfService.DUPLICATES_OK, QualityOfService.AT_MOST_ONCE])
@on_reactor
async def test_messages_arrive_once_and_in_order_and_are_gone_from_the_source(
    brokers: Rig, size: int, quality: QualityOfService
) -> None:
    await brokers.source.send(*NUMBERS[:50])
    link = await brokers.started(
        max_batch_size=size, max_batch_time_ms=20, quality_of_service=quality
    )
    await brokers.source.send(*NUMBERS[50:])
    assert await brokers.target.texts(100) == NUMBERS
    await link.stop()
    assert (await brokers.source.rest(SOURCE), await brokers.target.rest(TARGET)) == ([], [])
    counters = link.status().counters
    assert (counters.received, counters.sent, counters.acknowledged) == (100, 100, 100)
    octets = sum(len(number) for number in NUMBERS)
    assert (counters.octets, counters.possible_duplicates) == (octets, 0)


@pytest.mark.parametrize(("time_ms", "batches"), [(20, 2), (-1, 1)])
@on_reactor
async def test_beside_busy_clients_batches_are_small_unless_they_are_to_be_full(
    brokers: Rig, time_ms: int, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FairShare, "wanted", True)
    await brokers.source.send(*NUMBERS)
    link = await brokers.started(
        max_batch_size=100,
        max_batch_time_ms=time_ms,
        quality_of_service=QualityOfService.DUPLICATES_OK,
    )
    assert await brokers.target.texts(100) == NUMBERS
    await brokers.acknowledges(link, 100)
    assert link.status().counters.batches == batches


@on_reactor
async def test_a_batch_that_waits_for_ever_is_sent_when_it_is_full(brokers: Rig) -> None:
    link = await brokers.started(max_batch_size=10, max_batch_time_ms=-1)
    await brokers.source.send(*NUMBERS[:25])
    assert await brokers.target.texts(20) == NUMBERS[:20]
    await until(lambda: link.status().counters.batches == 2)
    assert link.status().in_flight == 5
    await brokers.source.send(*NUMBERS[25:30])
    assert await brokers.target.texts(10) == NUMBERS[20:30]


@on_reactor
async def test_a_batch_is_sent_before_its_time_where_nothing_more_comes(brokers: Rig) -> None:
    # Waiting gives up after half of it.
    await brokers.started(max_batch_size=10, max_batch_time_ms=20_000)
    await brokers.source.send(*NUMBERS[:3])
    assert await brokers.target.texts(3) == NUMBERS[:3]


@on_reactor
async def test_a_topic_is_moved_by_a_durable_subscription_across_a_restart_of_the_link(
    brokers: Rig,
) -> None:
    topic = Topic("news")
    link = await brokers.started(of=topic, source={"durable_sub": "link", "clientid": "bridge"})
    await brokers.moves("a", of=topic)
    await link.stop()
    await brokers.source.send("b", to=topic)
    await link.start()
    assert await brokers.target.texts(1) == ["b"]


@on_reactor
async def test_a_durable_name_is_ignored_where_the_source_is_a_queue(brokers: Rig) -> None:
    await brokers.started(source={"durable_sub": "link"})
    await brokers.moves("a")


@on_reactor
async def test_what_the_selector_does_not_match_stays(brokers: Rig) -> None:
    await brokers.source.send("no", properties={"colour": "red"})
    await brokers.source.send("yes", properties={"colour": "blue"})
    link = await brokers.started(source={"selector": "colour = 'blue'"})
    assert await brokers.target.texts(1) == ["yes"]
    await link.stop()
    assert await brokers.source.rest(SOURCE) == ["no"]


@on_reactor
async def test_as_source_sends_to_the_queue_of_the_same_name(brokers: Rig) -> None:
    link = await brokers.started(to=None)
    await brokers.source.send("a")
    assert await brokers.target.texts(1, SOURCE) == ["a"]
    assert link.status().target == "target:D:AS_SOURCE"


@on_reactor
async def test_a_target_that_does_not_stay_connected_is_connected_while_there_is_something_to_send(
    brokers: Rig,
) -> None:
    link = await brokers.started(target={"stay_connected": False})
    assert link.status().target == "target:P:queue:link.target"
    await brokers.moves("a", "b", "c")
    await until(lambda: brokers.connections.pools()[0].in_use == 0)


@on_reactor
async def test_each_transfer_is_a_line_of_the_log_unless_that_is_switched_off(brokers: Rig) -> None:
    link = await brokers.started()
    await brokers.source.send("a")
    [received] = await brokers.target.arrived(1)
    await until(lambda: any("transferred" in line for line in brokers.logged))
    [line] = [line for line in brokers.logged if "transferred" in line]
    assert received.message_id in line
    assert "link link" in line
    link.configure(Bridge("bridge", message_transfer_tag_bridge_name=True))
    await brokers.source.send("b")
    [tagged] = await brokers.target.arrived(1)
    assert tagged.headers.properties == {"JMS_SUN_JMSBRIDGE_NAME": "bridge"}


@on_reactor
async def test_status_tells_rates_and_the_moment_of_the_last_transfer(brokers: Rig) -> None:
    link = await brokers.started()
    await brokers.source.send(*NUMBERS)
    await brokers.target.arrived(100)
    await until(lambda: link.status().counters.acknowledged == 100)
    status = link.status()
    assert 1 <= status.sent_rate <= 100
    assert 1 <= status.received_rate <= 100
    assert abs(status.last_transfer_ms - clock.seconds() * 1000) < 60_000
    assert (status.in_flight, status.source, status.target) == (
        0,
        "source:D:queue:link.source",
        "target:D:queue:link.target",
    )


# --- messages that are given up


@on_reactor
async def test_what_the_target_refuses_is_dead_and_the_others_go_on_in_order(brokers: Rig) -> None:
    class Aside(MessageTransformer):
        def transform(self, message: JMSMessage, *_: Any) -> JMSMessage | None:
            if message.text in ("2", "5"):
                self.branch_to(Queue("denied"))
            return message

    link = await brokers.started(transformer=Aside(), max_batch_size=4, max_batch_time_ms=20)
    await brokers.source.send(*NUMBERS[:8])
    assert await brokers.target.texts(6) == ["0", "1", "3", "4", "6", "7"]
    await until(lambda: link.status().counters.acknowledged == 8)
    assert [dead.message.text for dead in brokers.graves.dead] == ["2", "5"]
    dead = brokers.graves.dead[0]
    assert dead.reason is BridgeDeadReason.SEND_FAILURE
    assert "may not" in dead.exception
    assert (dead.source_destination, dead.target_destination, dead.current_destination) == (
        SOURCE,
        TARGET,
        Queue("denied"),
    )
    assert (dead.source_provider, dead.target_provider, dead.link) == (
        "stomp-gateway",
        "stomp-gateway",
        "link",
    )
    counters = link.status().counters
    assert (counters.refused, counters.dead) == (2, {BridgeDeadReason.SEND_FAILURE: 2})


@pytest.mark.parametrize("quality", [QualityOfService.DUPLICATES_OK, QualityOfService.AT_MOST_ONCE])
@on_reactor
async def test_a_transform_failure_that_consumes_is_dead(
    brokers: Rig, quality: QualityOfService
) -> None:
    link = await brokers.started(
        transformer=failing(1),
        target=TOLERANT,
        quality_of_service=quality,
    )
    await brokers.source.send("a", "b")
    assert await brokers.target.texts(1) == ["b"]
    assert [(dead.message.text, dead.reason) for dead in brokers.graves.dead] == [
        ("a", BridgeDeadReason.TRANSFORM_FAILURE)
    ]
    await until(lambda: link.status().counters.acknowledged == 2)


@on_reactor
async def test_else_the_link_fails_with_the_message_where_it_was_and_can_be_started_again(
    brokers: Rig,
) -> None:
    link = await brokers.started(transformer=failing(1))
    await brokers.source.send("a", "b")
    await brokers.reaches(link, LinkState.FAILED)
    assert "not this one" in link.status().last_error
    assert brokers.graves.dead == []
    await link.start()
    assert await brokers.target.texts(2) == ["a", "b"]


@on_reactor
async def test_where_no_dead_message_queue_takes_a_message_it_stays_and_is_tried_again(
    brokers: Rig,
) -> None:
    brokers.graves.refuse = 1000
    link = await brokers.started(transformer=failing(1), target=TOLERANT, max_batch_size=1)
    await brokers.source.send("a", "b")
    await until(lambda: link.state is LinkState.RETRYING and link.status().attempt > 1)
    assert link.status().counters.acknowledged == 0
    brokers.graves.refuse = 0
    assert await brokers.target.texts(1) == ["b"]
    assert [dead.message.text for dead in brokers.graves.dead] == ["a"]


@on_reactor
async def test_at_most_once_loses_what_no_dead_message_queue_takes_and_says_so(
    brokers: Rig,
) -> None:
    brokers.graves.refuse = 1
    link = await brokers.started(
        transformer=failing(1),
        target=TOLERANT,
        quality_of_service=QualityOfService.AT_MOST_ONCE,
    )
    await brokers.source.send("a", "b")
    assert await brokers.target.texts(1) == ["b"]
    await until(lambda: link.status().counters.acknowledged == 2)
    assert any("is lost, as its quality of service allows" in line for line in brokers.logged)


# --- providers that come and go


@on_reactor
async def test_a_provider_that_is_not_there_is_tried_until_it_is(brokers: Rig) -> None:
    brokers.source.provider.error = ProviderUnavailable("nobody is there")
    link = brokers.link()
    await link.start()
    status = link.status()
    assert (status.state, status.attempt) == (LinkState.RETRYING, 1)
    assert (
        status.last_error
        == "source, connection-factory 'source': the provider is unavailable: nobody is there"
    )
    assert status.next_try_ms > status.last_error_ms > 0
    await until(lambda: link.status().attempt >= 3)
    brokers.source.provider.error = None
    await brokers.moves("a")
    assert (link.state, link.status().next_try_ms) == (LinkState.STARTED, 0)


@pytest.mark.process
@on_reactor
async def test_a_source_that_is_lost_just_when_it_was_connected_is_told_of_with_its_reason(
    brokers: Rig,
) -> None:
    peer = Peer()
    turns = iter(range(1000))

    def connected(frame: StompFrame) -> None:
        """Sometimes that is just between connecting and moving messages."""
        peer.say("CONNECTED", version="1.2")
        after(next(turns) % 10)

    def after(turns: int) -> None:
        if turns:
            clock.callLater(0, after, turns - 1)
        else:
            peer.octets(b"X" * 100)

    peer.on["CONNECT"] = connected
    brokers.source.provider._provider = StompProvider(peer.address, StompOptions(), clock)
    link = brokers.link(failure_retry_interval_ms=1)
    await link.start()
    await until(lambda: len(peer.sockets) > 50)
    assert "is not a command" in link.status().last_error
    assert not any("its connection has ended" in line for line in brokers.logged), brokers.logged
    await peer.close()


@pytest.mark.parametrize("side", ["source", "target"])
@on_reactor
async def test_it_gives_up_after_so_many_attempts_and_says_why(brokers: Rig, side: str) -> None:
    away = getattr(brokers, side).provider
    away.error = ProviderUnavailable("nobody is there")
    link = brokers.link(max_retries=2)
    await link.start()
    await brokers.reaches(link, LinkState.FAILED)
    assert away.attempts == 3
    assert "nobody is there" in link.status().last_error
    assert "given up after 3 attempts" in link.status().last_error


@on_reactor
async def test_a_refusal_at_the_very_first_attempt_is_a_mistake_and_tried_no_more(
    brokers: Rig,
) -> None:
    brokers.target.provider.error = AuthenticationFailed("someone")
    link = brokers.link()
    with pytest.raises(
        LinkFailed, match="target, connection-factory 'target': user 'someone' is refused"
    ):
        await link.start()
    in_state(link, LinkState.FAILED)


@pytest.mark.parametrize("side", ["source", "target"])
@on_reactor
async def test_an_error_that_names_its_factory_is_told_once_with_the_end(
    brokers: Rig, side: str
) -> None:
    getattr(brokers, side).provider.error = FactoryError(side, "no such thing")
    with pytest.raises(LinkFailed, match=f": {side}, connection-factory '{side}': no such thing$"):
        await brokers.link().start()


@pytest.mark.parametrize("side", ["source", "target"])
@on_reactor
async def test_a_package_that_is_not_installed_is_not_waited_for(brokers: Rig, side: str) -> None:
    away = getattr(brokers, side).provider
    link = await brokers.started()
    away.error = JavaMissing("no java command was found")
    away.cut()
    await brokers.reaches(link, LinkState.FAILED)
    assert f"{side}, connection-factory '{side}': " in link.status().last_error
    assert "no java command was found" in link.status().last_error


@on_reactor
async def test_a_jar_that_is_missing_is_waited_for(brokers: Rig) -> None:
    brokers.target.provider.error = ClientMissing("x.jar is not there")
    link = brokers.link()
    await link.start()
    in_state(link, LinkState.RETRYING)


@pytest.mark.parametrize("size", [1, 10])
@on_reactor
async def test_a_target_that_is_lost_gets_what_it_has_not_got(brokers: Rig, size: int) -> None:
    link = await brokers.started(max_batch_size=size, max_batch_time_ms=1)
    await brokers.source.send(*NUMBERS[:10])
    assert await brokers.target.texts(10) == NUMBERS[:10]
    brokers.target.provider.error = ProviderUnavailable("it is restarting")
    await brokers.target.seam.lose()
    await brokers.source.send(*NUMBERS[10:30])
    await until(lambda: link.state is LinkState.RETRYING and link.status().attempt > 1)
    brokers.target.provider.error = None
    assert await brokers.target.texts(20) == NUMBERS[10:30]
    assert link.status().counters.reconnects >= 1
    assert (link.status().counters.possible_duplicates, brokers.graves.dead) == (0, [])


@pytest.mark.parametrize("end", ["source", "target"])
@on_reactor
async def test_a_destination_that_is_gone_when_its_provider_is_back_fails_its_link_until_it_is_found(
    brokers: Rig, end: str
) -> None:
    by_name = {end: {"destination": Configured(end, lookup_name=f"jndi/{end}")}}
    link = await brokers.started(**by_name)
    await brokers.moves("a")
    side = getattr(brokers, end)
    side.not_found = ProviderUnavailable(f"looking up 'jndi/{end}' failed")
    side.provider.cut()
    await brokers.source.send("b")
    await until(lambda: link.state is LinkState.RETRYING and link.status().attempt > 1)
    assert f"looking up 'jndi/{end}' failed" in link.status().last_error
    assert brokers.graves.dead == []
    side.not_found = None
    assert await brokers.target.texts(1) == ["b"]


@on_reactor
async def test_a_source_that_is_lost_is_connected_again(brokers: Rig) -> None:
    await brokers.source.send(*NUMBERS[:10])
    await brokers.started()
    assert await brokers.target.texts(10) == NUMBERS[:10]
    await brokers.source.seam.lose()
    await brokers.source.send(*NUMBERS[10:20])
    assert await brokers.target.texts(10) == NUMBERS[10:20]


@on_reactor
async def test_what_was_sent_and_cannot_be_acknowledged_goes_to_the_dead_message_queue_and_comes_again(
    brokers: Rig,
) -> None:
    passed = Cuts(brokers, "link.before-acknowledge", (1,), brokers.source)
    link = await brokers.started(passed=passed)
    await brokers.source.send("a")
    assert await brokers.target.texts(2) == ["a", "a"]
    assert [(dead.message.text, dead.reason) for dead in brokers.graves.dead] == [
        ("a", BridgeDeadReason.ACK_FAILURE)
    ]
    assert link.status().counters.possible_duplicates == 1


@on_reactor
async def test_at_most_once_sends_nothing_that_it_could_not_acknowledge(brokers: Rig) -> None:
    passed = Cuts(brokers, "link.before-acknowledge", (1,), brokers.source)
    link = await brokers.started(passed=passed, quality_of_service=QualityOfService.AT_MOST_ONCE)
    await brokers.moves("a")
    await until(lambda: link.status().counters.acknowledged == 1)
    assert await brokers.target.rest(TARGET) == []
    assert brokers.graves.dead == []


@on_reactor
async def test_at_most_once_does_not_consume_for_a_target_that_is_known_to_be_away(
    brokers: Rig,
) -> None:
    link = await brokers.started(quality_of_service=QualityOfService.AT_MOST_ONCE)
    brokers.target.provider.error = ProviderUnavailable("it is restarting")
    await brokers.target.seam.lose()
    await brokers.reaches(link, LinkState.RETRYING)
    await brokers.source.send("a")
    brokers.target.provider.error = None
    assert await brokers.target.texts(1) == ["a"]
    assert brokers.graves.dead == []


# --- operators


@on_reactor
async def test_a_link_that_is_disabled_cannot_be_started(brokers: Rig) -> None:
    link = brokers.link(enabled=False)
    in_state(link, LinkState.UNINITIALIZED)
    for operation in (link.start, link.pause, link.resume):
        with pytest.raises(WrongState, match="link link, which is UNINITIALIZED"):
            await operation()
    await link.stop()
    in_state(link, LinkState.UNINITIALIZED)


@on_reactor
async def test_a_paused_link_moves_nothing_until_it_is_resumed(brokers: Rig) -> None:
    link = await brokers.started()
    await link.pause()
    in_state(link, LinkState.PAUSED)
    await brokers.source.send("a", "b")
    await brokers.source.seam.quiet()
    assert link.status().counters.sent == 0
    await link.pause()
    await link.resume()
    assert await brokers.target.texts(2) == ["a", "b"]
    await link.resume()
    in_state(link, LinkState.STARTED)


@on_reactor
async def test_start_resumes_what_is_paused(brokers: Rig) -> None:
    link = await brokers.started()
    await link.pause()
    await link.start()
    in_state(link, LinkState.STARTED)
    assert brokers.source.provider.attempts == 1


@on_reactor
async def test_a_link_that_is_stopped_gives_back_what_it_has_not_begun(brokers: Rig) -> None:
    link = await brokers.started(max_batch_size=50, max_batch_time_ms=-1)
    await brokers.source.send(*NUMBERS[:10])
    await until(lambda: link.status().in_flight == 10)
    await link.stop()
    in_state(link, LinkState.STOPPED)
    assert await brokers.source.rest(SOURCE) == NUMBERS[:10]
    for operation in (link.pause, link.resume):
        with pytest.raises(WrongState):
            await operation()


@pytest.mark.parametrize("operation", ["stop", "pause"])
@on_reactor
async def test_all_works_while_it_is_connecting_and_while_it_waits_to(
    brokers: Rig, operation: str
) -> None:
    brokers.target.provider.error = ProviderUnavailable("nobody is there")
    waiting = brokers.link(failure_retry_interval_ms=3_600_000)
    await waiting.start()
    in_state(waiting, LinkState.RETRYING)
    await getattr(waiting, operation)()
    in_state(waiting, LinkState.STOPPED if operation == "stop" else LinkState.PAUSED)
    brokers.target.provider.error = None
    await waiting.start()
    in_state(waiting, LinkState.STARTED)

    brokers.target.provider.hangs = True
    connecting = brokers.link(of=Queue("other"))
    starting = connecting.start()
    await until(lambda: brokers.target.provider.attempts >= 3)
    in_state(connecting, LinkState.STARTING)
    await getattr(connecting, operation)()
    await starting
    in_state(connecting, LinkState.STOPPED if operation == "stop" else LinkState.PAUSED)


@pytest.mark.parametrize("arrives", [True, False])
@on_reactor
async def test_pause_and_resume_during_one_attempt_make_one_link_of_it(
    brokers: Rig, arrives: bool
) -> None:
    brokers.target.provider.hangs = True
    link = brokers.link()
    starting = link.start()
    await until(lambda: brokers.target.provider.attempts == 1)
    await link.pause()
    resuming = link.resume()
    brokers.target.provider.hangs = False
    if not arrives:
        brokers.target.provider.error = ProviderUnavailable("nobody is there")
    brokers.target.provider.let_go()
    await starting
    await resuming
    in_state(link, LinkState.STARTED if arrives else LinkState.RETRYING)
    assert link.status().attempt == (0 if arrives else 1)
    brokers.target.provider.error = None
    await brokers.moves("a")
    assert not any("defect" in line for line in brokers.logged)


@on_reactor
async def test_while_it_gives_up_only_stop_makes_sense(brokers: Rig) -> None:
    link = await brokers.started(transformer=failing(1))
    asked: list[Deferred[None]] = []
    brokers.at_once.append(
        (
            "is STOPPING",
            lambda: asked.extend(
                operation() for operation in (link.start, link.pause, link.resume, link.stop)
            ),
        )
    )
    await brokers.source.send("a")
    await until(lambda: asked)
    *refused, stopping = asked
    for operation in refused:
        with pytest.raises(WrongState, match="which is STOPPING"):
            await operation
    await stopping
    in_state(link, LinkState.STOPPED)
    assert not any("defect" in line for line in brokers.logged)


@on_reactor
async def test_max_retries_counts_the_attempts_after_a_loss(brokers: Rig) -> None:
    link = await brokers.started(max_retries=2)
    await brokers.moves("a")
    before = brokers.target.provider.attempts
    brokers.target.provider.error = ProviderUnavailable("nobody is there")
    brokers.target.provider.cut()
    await brokers.reaches(link, LinkState.FAILED)
    assert brokers.target.provider.attempts - before == 2


@on_reactor
async def test_a_dead_message_says_where_it_was_going_also_where_that_was_looked_up(
    brokers: Rig,
) -> None:
    link = await brokers.started(
        transformer=failing(1),
        target={
            **TOLERANT,
            "destination": Configured("target", lookup_name="jndi/target"),
        },
    )
    await brokers.source.send("a")
    await until(lambda: link.status().counters.acknowledged == 1)
    assert brokers.graves.dead[0].target_destination == TARGET


@on_reactor
async def test_pause_and_stop_let_the_batch_under_way_be_finished(brokers: Rig) -> None:
    asked: list[Deferred[None]] = []

    def passed(point: str) -> None:
        if point == "link.after-send" and not asked:
            asked.append(link.pause())

    link = brokers.link(max_batch_size=5, passed=passed)
    await brokers.source.send(*NUMBERS[:10])
    await link.start()
    await until(lambda: asked)
    await asked[0]
    assert (link.status().counters.acknowledged, link.status().counters.sent) == (5, 5)
    assert await brokers.target.texts(5) == NUMBERS[:5]
    await link.stop()
    assert await brokers.source.rest(SOURCE) == NUMBERS[5:10]
    assert link.status().counters.possible_duplicates == 0


@on_reactor
async def test_resume_before_the_pause_is_complete_goes_on(brokers: Rig) -> None:
    def passed(point: str) -> None:
        if point == "link.after-send" and not pausing:
            pausing.append(link.pause())
            pausing.append(link.resume())

    pausing: list[Deferred[None]] = []
    link = brokers.link(passed=passed)
    await brokers.source.send("a", "b")
    await link.start()
    assert await brokers.target.texts(2) == ["a", "b"]
    for waiting in pausing:
        await waiting
    in_state(link, LinkState.STARTED)


@on_reactor
async def test_stop_is_bounded_where_the_target_is_silent(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.jms_link.STOP_S", 0.05)
    link = brokers.link(target={"stay_connected": False})
    await link.start()
    brokers.target.provider.hangs = True
    brokers.connections.invalidate("target")
    await brokers.source.send("a")
    await until(lambda: link.status().in_flight)
    await link.stop()
    in_state(link, LinkState.STOPPED)
    assert any("waited for no longer" in line for line in brokers.logged)
    assert await brokers.source.rest(SOURCE) == ["a"]


@on_reactor
async def test_many_operations_at_random_moments_lose_nothing(brokers: Rig) -> None:
    link = await brokers.started(max_batch_size=3, max_batch_time_ms=1)
    sending = brokers.source.send(*[str(number) for number in range(500)])
    operations: list[Callable[[], Deferred[None]]] = [
        link.pause,
        link.resume,
        link.stop,
        link.start,
        link.pause,
        link.start,
    ]
    await sending
    for number in range(60):
        await operations[number % len(operations)]()
        await deferLater(clock, number % 3 * 0.001)
    await link.start()
    arrived = await brokers.target.texts(500)
    assert arrived == [str(number) for number in range(500)]
    assert link.status().counters.possible_duplicates == 0


# --- what an operator is told


@on_reactor
async def test_a_status_stays_as_it_was(brokers: Rig) -> None:
    link = await brokers.started()
    before = link.status()
    await brokers.source.send("a")
    await brokers.target.arrived(1)
    await until(lambda: link.status().counters.acknowledged == 1)
    assert before.counters.sent == 0


@on_reactor
async def test_the_same_failure_is_told_once_a_minute(brokers: Rig) -> None:
    brokers.source.provider.error = ProviderUnavailable("nobody is there")
    link = brokers.link(failure_retry_interval_ms=1)
    await link.start()
    await until(lambda: link.status().attempt > 20)
    told = [line for line in brokers.warned if "nobody is there" in line]
    assert len(told) == 1
    assert "attempt 2 in 0.001 seconds" in told[0]


@on_reactor
async def test_a_link_that_waits_for_its_dead_message_queue_says_so(brokers: Rig) -> None:
    brokers.graves.holding = []
    link = await brokers.started(transformer=failing(1), target=TOLERANT)
    await until(lambda: link.status().doing is Doing.RECEIVING)
    await brokers.source.send("a")
    await until(lambda: brokers.graves.holding)
    assert link.status().doing is Doing.BURYING
    brokers.graves.let_go()
    await until(lambda: link.status().counters.acknowledged == 1)


# --- what went wrong once


@on_reactor
async def test_a_batch_that_a_stop_abandons_has_nothing_to_do_with_the_next(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.jms_link.STOP_S", 0.05)
    brokers.graves.holding = []
    link = await brokers.started(
        transformer=failing(1),
        target=TOLERANT,
        max_batch_size=3,
    )
    await brokers.source.send(*NUMBERS[:9])
    await until(lambda: brokers.graves.holding)
    await link.stop()
    again = link.start()
    brokers.graves.let_go()
    await again
    arrived = await brokers.target.texts(11)
    assert list(dict.fromkeys(arrived)) == [*NUMBERS[1:3], *NUMBERS[:1], *NUMBERS[3:9]]
    await until(lambda: link.status().in_flight == 0)
    assert await brokers.source.rest(SOURCE) == []
    assert [(dead.message.text, dead.reason) for dead in brokers.graves.dead] == [
        ("0", BridgeDeadReason.TRANSFORM_FAILURE)
    ]


@on_reactor
async def test_a_source_that_refuses_an_acknowledgement_is_connected_anew(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(self: Any, number: int, within: Any = None) -> int:
        monkeypatch.undo()
        raise UnknownDelivery(number)

    link = await brokers.started(max_batch_size=1)
    monkeypatch.setattr(
        "gateway.broker.core.consumers.consumer.EmbeddedConsumer.acknowledge_through", refusing
    )
    await brokers.source.send(*NUMBERS[:10])
    assert await brokers.target.texts(11) == ["0", *NUMBERS[:10]]
    assert link.status().counters.possible_duplicates == 1


@on_reactor
async def test_a_loss_that_is_mended_is_forgotten(brokers: Rig) -> None:
    link = await brokers.started()
    brokers.source.provider.cut()
    await until(lambda: link.status().counters.reconnects == 1 and link.state is LinkState.STARTED)
    await link.pause()
    brokers.target.provider.cut()
    await link.resume()
    await link.pause()
    await link.resume()
    in_state(link, LinkState.STARTED)
    assert link.status().counters.reconnects == 1
    await brokers.moves("a")


@on_reactor
async def test_a_source_that_is_lost_while_the_target_connects_is_no_defect(brokers: Rig) -> None:
    brokers.target.provider.hangs = True
    link = brokers.link()
    starting = link.start()
    await until(lambda: brokers.target.provider.attempts == 1)
    brokers.source.provider.cut()
    brokers.target.provider.hangs = False
    brokers.target.provider.let_go()
    await starting
    assert "its connection is cut" in link.status().last_error
    await brokers.reaches(link, LinkState.STARTED)
    assert not any("defect" in line or "unexpected" in line for line in brokers.logged)


@on_reactor
async def test_a_target_that_dies_whenever_it_is_connected_is_given_up(brokers: Rig) -> None:
    brokers.target.provider.dies = True
    link = brokers.link(max_retries=3)
    await link.start()
    await brokers.reaches(link, LinkState.FAILED)
    assert "given up after 4 attempts" in link.status().last_error
    assert brokers.target.provider.attempts == 4


@on_reactor
async def test_a_durable_subscription_without_a_client_identifier_fails_the_link_with_a_sentence(
    brokers: Rig,
) -> None:
    link = brokers.link(of=Topic("news"), source={"durable_sub": "link"})
    with pytest.raises(
        LinkFailed,
        match="source, connection-factory 'source': durable subscription 'link' needs a client identifier",
    ):
        await link.start()
    in_state(link, LinkState.FAILED)
    assert "set the attribute clientid of the source" in link.status().last_error


@on_reactor
async def test_the_client_identifier_of_the_connection_factory_will_do(brokers: Rig) -> None:
    brokers.source.factory.client_id = "the factory's"
    await brokers.started(of=Topic("news"), source={"durable_sub": "link"})
    await brokers.moves("a", of=Topic("news"))
