"""Each feature of stompjs against a real gateway."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.chromium import Browser, browser
from tests.gateway_process import HOST, GatewayProcess, free_port
from tests.interop.node_modules import NODE, STOMPJS, brought

FEATURES: Final = Path(__file__).parent / "clients" / "stompjs_features.js"
_NAMES: Final = re.findall(r"^  async (\w+)\(", FEATURES.read_text(), re.MULTILINE)
_LISTENER: Final = "imq.bridge.stomp.listener.web"
_PAGE: Final = """<!DOCTYPE html>
<meta charset="utf-8">
<script src="stomp.js"></script>
<script src="features.js"></script>
<script>
const said = {};
const base = { brokerURL: BROKER, connectHeaders: { login: "guest", passcode: "guest" } };
function begin(name) {
  run(name, StompJs, base).then(() => { said[name] = "done"; }, (error) => { said[name] = String(error); });
}
document.documentElement.dataset.ready = "yes";
</script>
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of the gateway, which lets any page connect."""
    brought()
    port = free_port()
    settings = {f"{_LISTENER}.port": str(port), f"{_LISTENER}.ws": "true"}
    settings |= {f"{_LISTENER}.origins": "*"}
    with GatewayProcess(tmp_path_factory.mktemp("features"), settings=settings):
        yield f"ws://{HOST}:{port}/stomp"


@pytest.fixture(scope="module")
def page(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """It has all of them, to be begun."""
    folder = tmp_path_factory.mktemp("page")
    shutil.copy(STOMPJS, folder / "stomp.js")
    shutil.copy(FEATURES, folder / "features.js")
    (folder / "page.html").write_text(_PAGE.replace("BROKER", json.dumps(url)))
    with browser(folder / "browser", here=True) as found:
        found.open(folder / "page.html")
        yield found


def test_all_are_tried() -> None:
    brought()
    command = ["node", str(FEATURES), str(NODE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == _NAMES


@pytest.mark.parametrize("name", _NAMES)
def test_it_works_in_node(url: str, name: str) -> None:
    command = ["node", str(FEATURES), str(NODE), name, url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", _NAMES)
def test_it_works_in_a_page(page: Browser, name: str) -> None:
    page.run(f"begin({json.dumps(name)})")
    page.until(f"said[{json.dumps(name)}]")
    assert page.run(f"said[{json.dumps(name)}]") == "done"
