"""What tests of the gateway share."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()
