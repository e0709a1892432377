"""How many messages each fault is tried with."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def messages(request: pytest.FixtureRequest) -> int:
    """1,000, and 10,000 in the long run."""
    return 10_000 if request.config.getoption("--long") else 1_000
