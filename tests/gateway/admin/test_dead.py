"""Looking into the built-in dead message queue, replaying and purging it: over the real broker, in
memory and on disk.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bridge.config.model import BUILT_IN_DMQ_DESTINATION as DMQ
from bridge.dead.message import DeadMessage, body_of, bridge_properties, headers_of
from gateway.admin.service import browsing
from gateway.admin.service import dead as module
from gateway.admin.service.dead import DeadMessages
from gateway.admin.service.requests import Refused
from gateway.broker.security.access import DEFAULT_RULES
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import AccessDenied, InvalidSelector
from gateway.messaging.message import Message
from gateway.messaging.provider import DUPLICATE_ID, Credentials, Mode
from tests.gateway.admin import replaying
from tests.gateway.broker.brokers import (
    Client,
    Deployment,
    committed,
    completed,
    settled_down,
    text,
)
from tests.on_reactor import on_reactor

reactor = cast(Any, global_reactor)
ROOT = Path(__file__).parents[3]
ORDERS = Queue("orders")


def died(
    deployment: Deployment,
    body: str,
    source: Destination = ORDERS,
    *,
    reason: BridgeDeadReason = BridgeDeadReason.SEND_FAILURE,
    provider: str | None = None,
    resource: str | None = None,
    queue: Destination = DMQ,
    expires: int = 0,
    **headers: Any,
) -> Message:
    """What a link puts into the queue for a message of this text.

    :param provider: another than that of the deployment.
    :param resource: another's.
    """
    original = text(source, body, expires=expires, **headers)
    original.message_id, original.timestamp = f"ID:original-{body}", 1_700_000_000_000
    told = DeadMessage(
        original,
        reason,
        "it did not want it",
        "link1",
        source,
        provider or replaying.PRODUCT,
        Queue("there"),
        "Other",
        source_resource=("" if provider else deployment.provider.resource)
        if resource is None
        else resource,
    )
    octets = body_of(original)
    return Message(
        headers_of(told, bridge_properties(told, 1_700_000_001_000), octets, queue), octets.octets
    )


@pytest_twisted.async_yield_fixture(params=["memory", "sqlite"])
async def deployment(request: Any, tmp_path: Path) -> AsyncIterator[Deployment]:
    made = Deployment(reactor, tmp_path, request.param)
    yield made
    await made.close()


@pytest_twisted.async_yield_fixture
async def client(deployment: Deployment) -> AsyncIterator[Client]:
    yield await deployment.connect()


async def put(client: Client, *messages: Message) -> None:
    session = client.session()
    session.send(messages)
    assert await completed(session) is None
    session.close()


async def bodies(client: Client, destination: Destination) -> list[Message]:
    """What waits in a queue, left there."""
    session = client.session(Mode.AUTO)
    inbox = client.consumer(session, destination, credit=100_000, browse=True)
    await inbox.until(lambda: inbox.ended)
    session.close()
    return inbox.messages


async def waiting(client: Client, destination: Destination) -> list[str]:
    return [message.text for message in await bodies(client, destination)]


def dead_messages(deployment: Deployment, passcode: str = "right") -> DeadMessages:
    return DeadMessages(
        reactor, deployment.provider, lambda: Credentials("admin", passcode), Logger()
    )


@pytest.fixture
def dead(deployment: Deployment) -> DeadMessages:
    return dead_messages(deployment)


@on_reactor
async def test_it_is_listed_with_why_and_with_what_is_in_it(
    deployment: Deployment, client: Client, dead: DeadMessages
) -> None:
    await put(
        client,
        died(deployment, "one", correlation_id="c1", properties={"colour": "red"}),
        text(DMQ, "no envelope"),
    )
    messages, more = await dead.list()
    assert not more
    first, second = messages
    assert first["message_id"] == (await bodies(client, DMQ))[0].message_id
    assert {
        name: first[name]
        for name in (
            "reason",
            "exception",
            "dead_since_ms",
            "source",
            "target",
            "source_message_id",
            "problem",
        )
    } == {
        "reason": "SEND_FAILURE",
        "exception": "it did not want it",
        "dead_since_ms": 1_700_000_001_000,
        "source": "queue:orders",
        "target": "queue:there",
        "source_message_id": "ID:original-one",
        "problem": "",
    }
    assert first["properties"] == {"colour": "red"}
    assert first["original"] == {
        "destination": "queue:orders",
        "body_type": "TEXT",
        "octets": 3,
        "persistent": True,
        "priority": 4,
        "correlation_id": "c1",
        "timestamp_ms": 1_700_000_000_000,
        "expires_ms": 0,
    }
    assert (second["original"], second["problem"]) == (
        None,
        "its body is no envelope: it is of type TEXT",
    )
    assert len(await bodies(client, DMQ)) == 2


@on_reactor
async def test_a_list_has_a_limit_and_a_selector(
    deployment: Deployment, client: Client, dead: DeadMessages
) -> None:
    await put(client, *(died(deployment, str(n), properties={"n": n}) for n in range(250)))
    assert [
        (len(found), more)
        for found, more in [await dead.list(limit=n) for n in (1, 100, 249, 250, 251)]
    ] == [
        (1, True),
        (100, True),
        (249, True),
        (250, False),
        (250, False),
    ]
    found, more = await dead.list("n >= 240")
    assert ([each["properties"] for each in found], more) == (
        [{"n": n} for n in range(240, 250)],
        False,
    )
    with pytest.raises(InvalidSelector):
        await dead.list("n >")


@on_reactor
async def test_a_replay_sends_each_original_to_where_it_came_from(
    deployment: Deployment, client: Client, dead: DeadMessages
) -> None:
    session = client.session()
    news = client.consumer(session, Topic("news"))
    await put(
        client,
        died(
            deployment,
            "one",
            correlation_id="c1",
            properties={"colour": "red"},
            type="T",
            reply_to=Queue("answers"),
            persistent=False,
            priority=7,
        ),
        died(deployment, "two"),
        died(deployment, "three", Topic("news")),
    )
    tally = await dead.replay()
    assert (tally.matched, tally.done, tally.left, tally.gone) == (3, 3, 0, 0)
    one, two = await bodies(client, Queue("orders"))
    assert (one.text, two.text) == ("one", "two")
    headers = one.headers
    assert (
        headers.correlation_id,
        headers.type,
        headers.reply_to,
        headers.persistent,
        headers.priority,
    ) == (
        "c1",
        "T",
        Queue("answers"),
        False,
        7,
    )
    # What the death had added is gone, and the message is a new one.
    assert headers.properties == {"colour": "red"}
    assert one.message_id not in ("", "ID:original-one")
    await news.count(1)
    assert news.texts == ["three"]
    assert await bodies(client, DMQ) == []


@on_reactor
async def test_a_replay_is_not_dropped_as_what_was_there_before(
    deployment: Deployment, client: Client, dead: DeadMessages
) -> None:
    """The queue that it came from remembers its duplicate id."""
    known = text(Queue("orders"), "one", properties={DUPLICATE_ID: "run/1"})
    await put(client, known, died(deployment, "one", properties={DUPLICATE_ID: "run/1"}))
    tally = await dead.replay()
    assert (tally.matched, tally.done) == (1, 1)
    assert await waiting(client, Queue("orders")) == ["one", "one"]


@on_reactor
async def test_what_came_from_another_instance_is_not_taken_for_this_ones(
    deployment: Deployment, client: Client, dead: DeadMessages
) -> None:
    await put(
        client,
        died(deployment, "one", resource="embedded:another"),
        died(deployment, "two"),
        died(deployment, "3", resource=""),
    )
    tally = await dead.replay()
    assert (tally.done, tally.left, tally.reasons) == (
        1,
        2,
        {"it came from another provider: name a destination": 2},
    )
    assert await waiting(client, Queue("orders")) == ["two"]


@on_reactor
async def test_another_queue_is_looked_into_replayed_and_purged_likewise(
    deployment: Deployment, client: Client, dead: DeadMessages
) -> None:
    other = Queue("shop.dead")
    await put(
        client,
        died(deployment, "built in"),
        *(died(deployment, str(n), queue=other) for n in range(4)),
    )
    await put(client, died(deployment, "from here", other, queue=other))
    found, more = await dead.list(limit=10, queue=other)
    assert ([each["source_message_id"] for each in found][:2], len(found), more) == (
        ["ID:original-0", "ID:original-1"],
        5,
        False,
    )
    tally = await dead.replay(limit=2, queue=other)
    assert (tally.done, await waiting(client, ORDERS)) == (2, ["0", "1"])
    with pytest.raises(Refused, match=r"cannot be replayed to queue:shop\.dead"):
        await dead.replay(to=other, queue=other)
    tally = await dead.replay(
        "JMS_SUN_JMSBRIDGE_SOURCE_DESTINATION = 'queue:shop.dead'", queue=other
    )
    assert tally.reasons == {
        "it came from a place that it cannot go back to: name a destination": 1
    }
    assert (await dead.purge(queue=other)).done == 3
    assert (await bodies(client, other), len(await bodies(client, DMQ))) == ([], 1)


@on_reactor
async def test_a_dry_run_changes_nothing_and_tells_what_would_be_done(
    deployment: Deployment, client: Client, dead: DeadMessages
) -> None:
    await put(
        client,
        died(deployment, "one"),
        died(deployment, "two", provider="ActiveMQ"),
        text(DMQ, "no envelope"),
        died(deployment, "three"),
    )
    tally = await dead.replay(dry_run=True)
    assert (tally.matched, tally.done, tally.left, tally.gone) == (4, 2, 2, 0)
    assert tally.reasons == {
        "it came from another provider: name a destination": 1,
        "its body is no envelope: it is of type TEXT": 1,
    }
    assert (await dead.purge(dry_run=True)).done == 4
    assert len(await bodies(client, DMQ)) == 4
    assert await bodies(client, Queue("orders")) == []
    # And then it is done so.
    real = await dead.replay()
    assert (real.matched, real.done, real.left, real.reasons) == (
        tally.matched,
        tally.done,
        tally.left,
        tally.reasons,
    )
    assert await waiting(client, Queue("orders")) == ["one", "three"]
    assert len(await bodies(client, DMQ)) == 2


@on_reactor
async def test_a_replay_to_a_named_destination(
    deployment: Deployment, client: Client, dead: DeadMessages
) -> None:
    await put(client, died(deployment, "one", provider="ActiveMQ"), died(deployment, "two"))
    tally = await dead.replay(to=Queue("elsewhere"))
    assert (tally.done, tally.left) == (2, 0)
    assert await waiting(client, Queue("elsewhere")) == ["one", "two"]
    with pytest.raises(Refused, match=r"cannot be replayed to queue:imq\.bridge\.jms\.dmq"):
        await dead.replay(to=DMQ)


@on_reactor
async def test_a_selector_and_a_limit_choose(
    deployment: Deployment, client: Client, dead: DeadMessages
) -> None:
    await put(
        client, *(died(deployment, str(n), properties={"odd": n % 2 == 1}) for n in range(10))
    )
    assert (await dead.replay("odd = TRUE", limit=2)).done == 2
    assert await waiting(client, Queue("orders")) == ["1", "3"]
    assert (
        await dead.purge("odd = FALSE AND JMS_SUN_JMSBRIDGE_DMQ_REASON = 'SEND_FAILURE'")
    ).done == 5
    assert (await dead.replay()).done == 3
    assert await waiting(client, Queue("orders")) == ["1", "3", "5", "7", "9"]
    assert await bodies(client, DMQ) == []


@on_reactor
async def test_a_purge_throws_away_what_is_no_envelope_too(
    deployment: Deployment, client: Client, dead: DeadMessages
) -> None:
    await put(client, died(deployment, "one"), text(DMQ, "no envelope"))
    tally = await dead.purge()
    assert (tally.matched, tally.done, tally.left) == (2, 2, 0)
    assert await bodies(client, DMQ) == []
    assert await bodies(client, Queue("orders")) == []


@on_reactor
async def test_an_expired_message_is_replayed_to_live(
    deployment: Deployment, client: Client, dead: DeadMessages
) -> None:
    later = 4_000_000_000_000
    await put(
        client,
        died(
            deployment, "past", expires=1_600_000_000_000, reason=BridgeDeadReason.MESSAGE_EXPIRED
        ),
        died(deployment, "later", expires=later),
    )
    assert (await dead.replay()).done == 2
    assert [
        (message.text, message.expires) for message in await bodies(client, Queue("orders"))
    ] == [("past", 0), ("later", later)]


@on_reactor
async def test_many_are_replayed_in_order_and_none_twice(
    deployment: Deployment, client: Client, monkeypatch: pytest.MonkeyPatch, dead: DeadMessages
) -> None:
    monkeypatch.setattr(module, "BATCH", 7)
    await put(
        client,
        *(died(deployment, str(n)) for n in range(100)),
        text(DMQ, "no envelope"),
        *(died(deployment, str(n)) for n in range(100, 150)),
    )
    tally = await dead.replay()
    assert (tally.matched, tally.done, tally.left) == (151, 150, 1)
    assert await waiting(client, Queue("orders")) == [str(n) for n in range(150)]


@on_reactor
async def test_what_dies_again_meanwhile_is_not_sent_round_and_round(
    deployment: Deployment, client: Client, dead: DeadMessages
) -> None:
    session = client.session(Mode.AUTO)
    sender = client.session()

    class Link:
        """Fails with every message, at once."""

        moved = 0

        def deliver(self, consumer: Any, first: int, messages: Any, attempts: Any, /) -> None:
            self.moved += len(messages)
            sender.send([died(deployment, message.text) for message in messages])

    from gateway.messaging.provider import ConsumerSpec

    link = Link()
    consumer = session.consumer(ConsumerSpec(Queue("orders")), link.deliver, lambda error: None)
    consumer.grant(1000)
    consumer.start()
    await put(client, *(died(deployment, str(n)) for n in range(5)))
    await settled_down(reactor)
    later: Deferred[None] = Deferred()
    reactor.callLater(
        0.005, later.callback, None
    )  # that those have died before the replay began, by the clock in milliseconds
    await later
    tally = await dead.replay()
    assert (tally.matched, tally.done) == (5, 5)
    await settled_down(reactor)
    assert link.moved == 5
    assert len(await bodies(client, DMQ)) == 5


@on_reactor
async def test_what_the_broker_refuses_stays_and_the_others_go(
    deployment: Deployment, client: Client, dead: DeadMessages
) -> None:
    await put(
        client,
        died(deployment, "one"),
        died(deployment, "two", Queue("closed")),
        died(deployment, "three"),
    )
    deployment.allow(DEFAULT_RULES + "\nqueue.closed.produce.deny.user=admin\n")
    tally = await dead.replay()
    assert (tally.matched, tally.done, tally.left) == (3, 2, 1)
    [reason] = tally.reasons
    assert "closed" in reason
    assert await waiting(client, Queue("orders")) == ["one", "three"]
    assert len(await bodies(client, DMQ)) == 1


@on_reactor
async def test_who_may_not_read_the_queue_is_told(
    deployment: Deployment, dead: DeadMessages
) -> None:
    await deployment.connect()
    deployment.allow(DEFAULT_RULES + "\nqueue.imq.bridge.jms.dmq.browse.deny.user=admin\n")
    with pytest.raises(AccessDenied):
        await dead.replay()


@on_reactor
async def test_what_somebody_else_takes_meanwhile_is_counted(
    deployment: Deployment, client: Client, monkeypatch: pytest.MonkeyPatch, dead: DeadMessages
) -> None:
    monkeypatch.setattr(browsing, "GRACE_S", 1.0)
    await put(client, died(deployment, "one"), died(deployment, "two"))
    session = client.session(Mode.TRANSACTED)
    other = client.consumer(session, DMQ, credit=1)
    await other.count(1)
    other.consumer.acknowledge([1])
    # The browser of the replay sees what waits: here, the one that the other has not got.
    tally = await dead.replay()
    assert (tally.done, await waiting(client, Queue("orders"))) == (1, ["two"])
    assert await committed(session) is None
    assert await bodies(client, DMQ) == []


@on_reactor
async def test_one_at_a_time(deployment: Deployment, client: Client, dead: DeadMessages) -> None:
    await put(client, died(deployment, "one"))
    first = Deferred.fromCoroutine(dead.replay())
    second = Deferred.fromCoroutine(dead.purge())
    with pytest.raises(Refused, match="a replay of dead messages is under way"):
        await second
    assert (await first).done == 1
    assert (await dead.purge()).done == 0


@pytest.mark.process
@pytest.mark.parametrize("commits", [1, 3])
@pytest.mark.parametrize("moment", ["before", "after"])
@on_reactor
async def test_a_kill_in_the_middle_loses_none_and_doubles_none(
    tmp_path: Path, commits: int, moment: str
) -> None:
    deployment = Deployment(reactor, tmp_path, "sqlite")
    client = await deployment.connect()
    await put(client, *(died(deployment, str(n)) for n in range(20)))
    await client.close()
    await deployment.close()
    command = [
        sys.executable,
        "-m",
        "tests.gateway.admin.replaying",
        str(tmp_path),
        str(commits),
        moment,
    ]
    killed: subprocess.CompletedProcess[str] = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    deployment.open()
    client = await deployment.connect()
    replayed = [int(body) for body in await waiting(client, Queue("orders"))]
    dead, _ = await dead_messages(deployment).list(limit=100)
    still = [int(str(each["source_message_id"]).removeprefix("ID:original-")) for each in dead]
    # Before the first commit none has gone; each that was told durable has.
    assert len(replayed) == 5 * (commits if moment == "after" else commits - 1)
    assert replayed + still == list(range(20))
    tally = await dead_messages(deployment).replay()
    assert tally.done == len(still)
    assert await waiting(client, Queue("orders")) == [str(n) for n in range(20)]
    await deployment.close()
