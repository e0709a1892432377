"""Each recipe of the cookbook works as it is written, with real brokers: ActiveMQ by JMS and by
STOMP, and RabbitMQ by STOMP.
"""

from __future__ import annotations

import re
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.documented_blocks import shown
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


def test_the_brokers_are_those_that_the_book_starts() -> None:
    there = activemq()
    [running] = [
        words
        for words in map(_words, there.tree.pids())
        if "org.apache.activemq.console.command.ShellCommand" in words
    ]
    typed = shown("cookbook", "java").replace(str(OPENWIRE), str(there.openwire_port))
    _, *words = shlex.split(
        typed.replace(str(ACTIVEMQ_STOMP), str(there.port)).replace("\\\n", " ")
    )
    # Folders are others, and the tests have options of their own besides.
    begins = {word.partition("=")[0] for word in running}
    assert {word.partition("=")[0] for word in words[:-1]} <= begins
    listeners, _, options = words[-1].partition("?")
    assert running[-1].startswith(listeners.removesuffix(")"))
    assert {option.partition("=")[0] for option in options.split("&")} <= set(
        re.findall(r"[?&](\w+)=", running[-1])
    )

    configured = shown("cookbook", "stomp.listeners").replace(
        str(RABBITMQ_STOMP), str(rabbitmq().port)
    )
    assert configured in rabbitmq().configuration()

    # What is installed for it is installed for the tests.
    installed = (COOKBOOK.parents[1] / "tests" / "install-packages").read_text()
    packages = shown("cookbook", "apt-get install").split()[2:]
    assert set(packages) <= set(re.findall(r"[\w-]+", installed))


def _words(process: int) -> list[str]:
    return Path(f"/proc/{process}/cmdline").read_text().split("\0")[:-1]
