"""The balance of a link, from one process to the next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
