"""What tests of the store share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.gateway.broker.store.databases import create_tables, database_at
from tests.gateway.broker.store.harness import QueueReactor

if TYPE_CHECKING:
    from gateway.broker.store.postgresql.connecting import Database


@pytest.fixture
def reactor() -> Iterator[QueueReactor]:
    """A reactor; what is still open when the test ends is closed."""
    reactor = QueueReactor()
    yield reactor
    reactor.close_all()


@pytest.fixture
def database(postgresql_database: str) -> Database:
    """A database with the tables of a broker that has no owner."""
    database = database_at(postgresql_database)
    create_tables(database)
    return database
