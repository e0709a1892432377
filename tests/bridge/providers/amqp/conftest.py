"""Peers that are closed behind each test, whether it passes or not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_twisted  # type: ignore[import-untyped]

from tests.bridge.providers.amqp.peer import Client, Meet, Peer


@pytest_twisted.async_yield_fixture
async def meet() -> AsyncIterator[Meet]:
    """Make a peer and a client of it. Takes the arguments of both."""
    peers: list[Peer] = []

    def made(
        product: str | None = "apache-activemq-artemis", *, credit: int = 1000, **options: Any
    ) -> tuple[Peer, Client]:
        peers.append(Peer(product, credit=credit))
        return peers[-1], Client(peers[-1], **options)

    yield made
    for peer in peers:
        await peer.close()
