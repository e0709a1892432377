"""What the broker tells of the messages that wait for a subscription: how many, and since when the
oldest does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor

from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.provider import ConsumerSpec, Waiting
from tests.gateway.broker.brokers import Deployment, completed, text

pytestmark = pytest.mark.usefixtures("deployment")
ORDERS = Queue("orders")


@pytest_twisted.async_yield_fixture
async def deployment(tmp_path: Path) -> AsyncIterator[Deployment]:
    deployment = Deployment(reactor, tmp_path, "sqlite")
    yield deployment
    await deployment.close()
    assert deployment.failures == []


async def told(
    deployment: Deployment, spec: ConsumerSpec, client_id: str | None = None
) -> Waiting | None:
    return await deployment.provider.waiting(spec, client_id)


async def sent(deployment: Deployment, destination: Destination, *times: tuple[int, int]) -> None:
    """Send messages of these timestamps and priorities."""
    client = await deployment.connect()
    session = client.session()
    messages = [text(destination, "", priority=priority) for _, priority in times]
    for message, (time, _) in zip(messages, times, strict=True):
        message.timestamp = time
    session.send(messages)
    assert await completed(session) is None
    await client.close()


@pytest_twisted.ensureDeferred
async def test_a_queue_that_nobody_has_used_is_empty_and_is_not_made(
    deployment: Deployment,
) -> None:
    assert await told(deployment, ConsumerSpec(ORDERS)) == Waiting(0, 0)
    assert deployment.broker.find(ORDERS) is None


@pytest_twisted.ensureDeferred
async def test_the_oldest_counts_whatever_its_priority(deployment: Deployment) -> None:
    await sent(deployment, ORDERS, (2_000, 4), (1_000, 1), (3_000, 9))
    assert await told(deployment, ConsumerSpec(ORDERS)) == Waiting(3, 1_000)


@pytest_twisted.ensureDeferred
async def test_what_is_in_the_store_only_is_known_too(deployment: Deployment) -> None:
    await sent(deployment, ORDERS, (2_000, 4), (1_000, 1), (3_000, 9))
    await deployment.close()
    deployment.open()
    assert await told(deployment, ConsumerSpec(ORDERS)) == Waiting(3, 1_000)


@pytest_twisted.ensureDeferred
async def test_a_durable_subscription_is_known_by_client_and_name(deployment: Deployment) -> None:
    news = Topic("news")
    client = await deployment.connect(client_id="reader")
    session = client.session()
    client.consumer(session, news, durable_name="daily", start=False, credit=0)
    assert await completed(session) is None
    await sent(deployment, news, (5_000, 4), (6_000, 4))
    spec = ConsumerSpec(news, durable_name="daily")
    assert await told(deployment, spec, "reader") == Waiting(2, 5_000)
    assert await told(deployment, spec, "somebody else") == Waiting(0, 0)
    assert await told(deployment, ConsumerSpec(news)) == Waiting(0, 0)
    await client.close()


@pytest_twisted.ensureDeferred
async def test_a_selector_on_a_queue_is_for_a_browser(deployment: Deployment) -> None:
    await sent(deployment, ORDERS, (1_000, 4))
    assert await told(deployment, ConsumerSpec(ORDERS, selector="a = 1")) is None
