"""The balance of a link, from one process to the next."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway.instance.crashpoints import LINK_VARIABLE
from tests.gateway_process import GatewayProcess
from tests.why.scenes import Scene, until

FILE = """\
<jmsbridge name="moves">
  <link name="l" transacted="{transacted}">
    <source connection-factory-ref="here" destination-ref="in"/>
    <target connection-factory-ref="here" destination-ref="out"/>
  </link>
  <connection-factory ref-name="here"/>
  <destination ref-name="in" name="in" type="queue"/>
  <destination ref-name="out" name="out" type="queue"/>
</jmsbridge>
"""


@pytest.fixture(params=["false", "true"])
def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GatewayProcess]:
    file = tmp_path / "moves.xml"
    file.write_text(FILE.format(transacted=request.param))
    file.chmod(0o600)
    settings = {
        "imq.bridge.activelist": "stomp,moves",
        "imq.bridge.moves.type": "jms",
        "imq.bridge.moves.xmlurl": str(file),
    }
    with GatewayProcess(tmp_path / "var", settings=settings) as running:
        running.wait_for_output("is ready")
        yield running


def balance(scene: Scene) -> dict[str, Any]:
    link = scene.admin.get("/v1/links/moves/l")["links"][0]
    return {**link["balance"], "difference": link["difference"]}


def moved(scene: Scene, count: int) -> None:
    """Wait until that many are at the target for good."""
    until(lambda: balance(scene)["out"] == count, lambda: str(balance(scene)))
    assert balance(scene)["taken"] == count


def test_it_goes_on_after_an_end_and_after_a_crash(gateway: GatewayProcess) -> None:
    scene = Scene(gateway)
    scene.put("/queue/in", *"abc")
    moved(scene, 3)
    gateway.restart()
    gateway.wait_for_output("is ready")
    scene = Scene(gateway)
    assert balance(scene)["out"] == 3
    scene.put("/queue/in", *"de")
    moved(scene, 5)
    kept = gateway.directory / "bridges" / "moves" / "balances.json"
    until(lambda: '"out": 5' in kept.read_text())
    gateway.restart(crash=True)
    gateway.wait_for_output("is ready")
    scene = Scene(gateway)
    moved(scene, 5)
    found = balance(scene)
    assert (found["difference"], found["held"], found["in_doubt"], found["possibly_twice"]) == (
        0,
        0,
        0,
        0,
    )
    told = scene.run("imqbridgemgr query link -bn moves -ln l")
    assert "Taken from the Source" in told
    # It has moved nothing in this process, and says no more than that.
    assert re.search(r"Last Transfer +not since \S+ \S+, when it was loaded\n", told)
    cause = scene.cause("NOTHING_WAITS", "link", **OF_LINK)
    assert "it has moved none since the gateway loaded it at " in cause["sentence"]
    assert cause["sentence"].endswith(", and 5 before.")
    assert cause["figures"] == {"moved": 0, "out": 5}


# --- causes


TWICE = FILE.replace(
    'transacted="{transacted}"', 'quality-of-service="DUPLICATES_OK" max-batch-size="4"'
)
OF_LINK = {"bridge": "moves", "link": "l"}
QUERY = "imqbridgemgr query link -bn moves -ln l"


class Moves(GatewayProcess):
    """A gateway whose link may double what it moves.

    :param dies: kills it at that point of a link.
    """

    def __init__(self, folder: Path, dies: str = "") -> None:
        file = folder / "moves.xml"
        file.write_text(TWICE)
        environment = {**os.environ, LINK_VARIABLE: dies} if dies else None
        settings = {
            "imq.bridge.activelist": "stomp,moves",
            "imq.bridge.moves.type": "jms",
            "imq.bridge.moves.xmlurl": str(file),
        }
        super().__init__(folder / "var", settings=settings, environment=environment)


def test_a_crash_between_sending_and_acknowledging_may_have_doubled_a_batch(
    tmp_path: Path,
) -> None:
    with Moves(tmp_path) as gateway:
        gateway.wait_for_output("is ready")
        scene = Scene(gateway)
        scene.run("imqbridgemgr pause link -bn moves -ln l")
        scene.put("/queue/in", *"abcd")
        orders = gateway.directory / "bridges" / "moves" / "orders.json"
        gateway.kill()
    # Without the order to pause, the link moves at once.
    orders.unlink()
    with ExitStack() as ending:
        dying = Moves(tmp_path, "link.before-acknowledge:1")
        ending.callback(dying.kill)
        dying.launch()
        assert dying.wait() == -signal.SIGKILL
    with Moves(tmp_path) as gateway:
        gateway.wait_for_output("is ready")
        scene = Scene(gateway)
        cause = scene.cause("POSSIBLY_TWICE", "link", **OF_LINK)
        twice = balance(scene)["possibly_twice"]
        assert 1 <= twice <= 4
        assert cause["figures"] == {"possibly_twice": twice}
        assert 'quality-of-service="ONCE_AND_ONLY_ONCE"' in cause["advice"]
        assert cause["command"] == QUERY
        assert "Possibly Twice" in scene.run(cause["command"])
        assert f"{twice} message" in scene.run("imqcmd why link -bn moves -ln l")
        # And so they are.
        until(lambda: balance(scene)["out"] == 4)
        with scene.client() as client:
            client.subscribe("/queue/out")
            assert len(client.messages(4 + twice)) == 4 + twice


def test_a_balance_that_says_less_than_was_moved_is_an_alarm(tmp_path: Path) -> None:
    with Moves(tmp_path) as gateway:
        gateway.wait_for_output("is ready")
        scene = Scene(gateway)
        scene.put("/queue/in", *"abcd")
        moved(scene, 4)
        assert gateway.terminate() == 0
        folder = gateway.directory / "bridges" / "moves"
        kept = folder / "balances.json"
        kept.write_text(kept.read_text().replace('"out": 4', '"out": 2'))
        # They are newer.
        shutil.rmtree(folder / "balances")
        gateway.start()
        gateway.wait_for_output("is ready")
        scene = Scene(gateway)
        cause = scene.cause("UNBALANCED", "link", **OF_LINK)
        assert cause["figures"] == {"difference": 2, "lost": 0, "taken": 4}
        assert "has a difference of 2: 4 were taken, and 2 are out" in cause["sentence"]
        assert cause["command"] == QUERY
        assert re.search(r"^   Difference +2$", scene.run(cause["command"]), re.MULTILINE)
        assert " 1  UNBALANCED\n" in scene.run("imqcmd why link -bn moves -ln l")
        # What comes then is counted, and the difference stays.
        scene.put("/queue/in", "e")
        until(lambda: balance(scene)["taken"] == 5)
        assert balance(scene)["difference"] == 2
