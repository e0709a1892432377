"""Each recipe of the cookbook works as it is written, with real brokers: ActiveMQ by JMS and by
STOMP, and RabbitMQ by STOMP.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.end_to_end.sessions import COOKBOOK, Terminal
from tests.servers import activemq, rabbitmq

pytestmark = pytest.mark.brokers

#: What the recipes call the brokers' ports, which are those of the guide in the cookbook's
#: introduction.
OPENWIRE: Final = 61616
ACTIVEMQ_STOMP: Final = 61613
RABBITMQ_STOMP: Final = 61713

RECIPES: Final = sorted(path.stem for path in COOKBOOK.glob("*.session"))


@pytest.mark.parametrize("recipe", RECIPES)
def test_it_works_as_it_is_written(recipe: str, tmp_path: Path) -> None:
    there = activemq()
    ports = {
        OPENWIRE: there.openwire_port,
        ACTIVEMQ_STOMP: there.port,
        RABBITMQ_STOMP: rabbitmq().port,
    }
    with ExitStack() as ending:
        Terminal(tmp_path, ports, ending).run(recipe)


def test_every_file_is_in_the_book() -> None:
    book = (COOKBOOK.parent / "cookbook.rst").read_text()
    assert [
        path.name
        for path in sorted(COOKBOOK.iterdir())
        if path.is_file() and f"cookbook/{path.name}" not in book
    ] == []
