"""A link's lag: the age of the oldest message that waits at its source, whatever the link is
doing.
"""

from __future__ import annotations

from typing import Any

import pytest

from bridge.link import monitoring
from bridge.link.link import JMSLink
from bridge.status import LinkState, LinkStatus
from gateway.messaging.destination import Destination, Topic
from gateway.messaging.errors import ProviderUnavailable
from tests.bridge.linking import SOURCE, Rig, Side, in_state, until
from tests.contract.driving import now_ms, text
from tests.contract.waiting import completed
from tests.on_reactor import on_reactor

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
    monkeypatch.setattr(monitoring, "BROWSE_EVERY_S", 0)
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
