"""Two resource managers for each test, and a transaction between them."""

from __future__ import annotations

import pytest

from bridge.xa.coordinator import Transaction
from tests.bridge.xa.two_managers import Two


@pytest.fixture
def two() -> Two:
    return Two()


@pytest.fixture
def transaction(two: Two) -> Transaction:
    """One in which a message was taken and put."""
    return two.moved()
