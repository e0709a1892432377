"""What most tests of the broker begin with; a module whose broker has other options overrides it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.broker.operator.administration import BrokerAdministration
from gateway.messaging.provider import Connection, Mode, Session
from tests.gateway.broker.administration import administration
from tests.gateway.broker.stepped_broker import Stepped
from tests.gateway.broker.xa.xa_branches import Branching


@pytest.fixture
def stepped(tmp_path: Path) -> Stepped:
    """A broker with the options that :class:`Stepped` gives it, over an empty disk."""
    return Stepped(tmp_path)


@pytest.fixture
def session(stepped: Stepped) -> Session:
    """A session of that broker."""
    return stepped.session()


@pytest.fixture
def individual(stepped: Stepped) -> Session:
    """A session that acknowledges messages one by one."""
    return stepped.session(Mode.INDIVIDUAL)


@pytest.fixture
def transacted(stepped: Stepped) -> Session:
    """A session of that broker with transactions."""
    return stepped.session(Mode.TRANSACTED)


@pytest.fixture
def connection(stepped: Stepped) -> Connection:
    """A connection without client identifier to that broker."""
    return stepped.connect()


@pytest.fixture
def admin(stepped: Stepped) -> BrokerAdministration:
    """The administration of that broker."""
    return administration(stepped)


@pytest.fixture
def xa(stepped: Stepped) -> Branching:
    """A session of that broker, whose work is that of branches."""
    return Branching(stepped)
