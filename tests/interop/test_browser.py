"""Pages in Chromium with stompjs, against a real ``stomp-gateway``."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.chromium import Browser, browser
from tests.crash.waiting import until_logged
from tests.gateway_process import HOST, GatewayProcess, free_port
from tests.interop.node_modules import STOMPJS, brought

_LISTENER = "imq.bridge.stomp.listener.web"
_PAGE = """<!DOCTYPE html>
<meta charset="utf-8">
<script src="stomp.js"></script>
<script>
const said = [];
const client = new StompJs.Client({
  brokerURL: BROKER,
  connectHeaders: { login: "guest", passcode: "guest" },
  reconnectDelay: 200,
  heartbeatIncoming: 1000,
  heartbeatOutgoing: 1000,
  onConnect: (frame) => {
    said.push("connected " + frame.headers.version);
    client.subscribe("/queue/page", (message) => said.push("message " + message.body));
  },
  onStompError: (frame) => said.push("error " + frame.headers.message),
  onWebSocketClose: (event) => said.push("closed " + event.code),
});
let receipts = 0;
function send(body) {
  const id = "r" + receipts++;
  client.watchForReceipt(id, () => said.push("receipt " + body.length));
  client.publish({ destination: "/queue/page", headers: { receipt: id }, body });
}
client.activate();
document.documentElement.dataset.ready = "yes";
</script>
"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    settings = {f"{_LISTENER}.port": str(free_port()), f"{_LISTENER}.ws": "true"}
    with GatewayProcess(tmp_path / "var", settings=settings) as gateway:
        yield gateway


@pytest.fixture
def port(gateway: GatewayProcess, tmp_path: Path) -> Iterator[int]:
    """Where a web server has the page."""
    brought()
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(STOMPJS, site / "stomp.js")
    broker = f"ws://{HOST}:{gateway.settings[f'{_LISTENER}.port']}/stomp"
    (site / "page.html").write_text(_PAGE.replace("BROKER", json.dumps(broker)))
    server = ThreadingHTTPServer((HOST, 0), partial(_Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Browser]:
    with browser(tmp_path / "browser", here=True) as found:
        yield found


def _said(what: str, times: int = 1) -> str:
    return f"said.filter((one) => one === {json.dumps(what)}).length >= {times}"


def test_a_page_sends_receives_and_goes_on_after_a_restart(
    gateway: GatewayProcess, port: int, page: Browser
) -> None:
    page.visit(f"http://{HOST}:{port}/page.html")
    page.until(_said("connected 1.2"))
    for body in ("grüß dich, 世界 😀", "x" * 3_000_000):
        page.run(f"send({json.dumps(body)})")
        page.until(_said(f"receipt {len(body.encode('utf-16-le')) // 2}"))
        page.until(_said(f"message {body}"))
    gateway.kill()
    page.until("said.some((one) => one.startsWith('closed '))")
    gateway.start()
    page.until(_said("connected 1.2", 2))
    page.run("send('again')")
    page.until(_said("message again"))
    page.run("client.deactivate()")
    page.until(_said("closed 1000"))
    assert page.run("said.filter((one) => one.startsWith('error')).length") == 0


def test_a_page_of_another_host_may_not_connect(
    gateway: GatewayProcess, port: int, page: Browser
) -> None:
    page.visit(f"http://localhost:{port}/page.html")
    page.until(_said("closed 1006"))
    until_logged(gateway, f"pages of http://localhost:{port} may not connect here")
    assert not page.run(_said("connected 1.2"))
