"""Exclusive consumers: one has the queue, and the next takes over."""

from __future__ import annotations

from gateway.messaging.destination import Destination
from tests.contract.contracts import contract
from tests.contract.driving import Client, Seam, send, text


@contract("exclusive")
async def test_one_has_the_queue_and_the_next_takes_over(
    queue: Destination, client: Client, seam: Seam
) -> None:
    leaver = await seam.connect()
    first = await leaver.consumer(queue, exclusive=True)
    second = await client.consumer(queue, exclusive=True)
    third = await client.consumer(queue)
    await send(client.session(), [text(queue, str(number)) for number in range(3)])
    await first.count(3)
    assert (second.texts, third.texts) == ([], [])
    await leaver.close()
    assert await second.received(3) == ["0", "1", "2"]
    assert third.texts == []
