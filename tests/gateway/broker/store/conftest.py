"""What tests of the store share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.broker.store.harness import QueueReactor


@pytest.fixture
def reactor() -> Iterator[QueueReactor]:
    """A reactor; what is still open when the test ends is closed."""
    reactor = QueueReactor()
    yield reactor
    reactor.close_all()
