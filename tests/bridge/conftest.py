"""What the tests of links share: two brokers, and these with a journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_twisted  # type: ignore[import-untyped]

from gateway.instance import crashpoints
from tests.bridge.journaled import Journaled
from tests.bridge.link_pair import Rig, close, rig


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """What one test has called at crash points is not called in the next."""
    yield
    crashpoints.disarm()


@pytest_twisted.async_yield_fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Rig]:
    """A source and a target, which links are to be made between."""
    made = await rig(tmp_path)
    yield made
    await close(made)


@pytest_twisted.async_yield_fixture
async def journaled(tmp_path: Path) -> AsyncIterator[Journaled]:
    """The same with a journal."""
    brokers = await rig(tmp_path)
    made = Journaled(brokers, tmp_path / "journal")
    yield made
    await close(brokers)
    await made.close()
