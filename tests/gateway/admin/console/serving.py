"""A gateway with a console, and a browser at it."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from tests.chromium import Browser
from tests.conformance.client import Client
from tests.crash.waiting import until_logged
from tests.gateway_process import HOST, ROOT, GatewayProcess, free_port
from tests.interop.node_modules import AXE, brought

#: The users beside the administrator, and their groups; each is the own password.
USERS: Final = {"vera": "viewer", "otto": "operator", "nora": "user"}
_FORM: Final = "application/x-www-form-urlencoded"


#: What would show that a text of a client is taken for a page's.
EVIL = "<img src=x onerror=\"document.title='evil'\"><script>document.title='evil'</script>"


@dataclass(frozen=True)
class Reply:
    """A response of the console."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass
class Served:
    """A gateway whose console is asked."""

    gateway: GatewayProcess

    @property
    def port(self) -> int:
        with socket.create_connection((HOST, self.gateway.port_mapper_port), 20) as mapper:
            mapper.sendall(b"101\n")
            table = b"".join(iter(lambda: mapper.recv(4096), b"")).decode()
        return int(next(line for line in table.splitlines() if "bridge_admin" in line).split()[3])

    @property
    def passcode(self) -> str:
        """The administrator's."""
        text = (self.gateway.directory / "etc" / "passfile").read_text()
        found = re.search(r"^imq\.imqcmd\.password=(.*)$", text, re.MULTILINE)
        assert found is not None
        return found[1]

    def password(self, user: str) -> str:
        return self.passcode if user == "admin" else user

    def ask(
        self,
        path: str,
        form: Mapping[str, str] | None = None,
        *,
        cookie: str = "",
        **headers: str,
    ) -> Reply:
        """One request; with a form it is a POST as the console's own."""
        port = self.port
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if cookie:
            given["Cookie"] = cookie
        if form is not None:
            given = {"Content-Type": _FORM, "Origin": f"http://{HOST}:{port}", **given}
        connection = http.client.HTTPConnection(HOST, port, timeout=30)
        try:
            body = None if form is None else urlencode(form)
            connection.request("GET" if form is None else "POST", path, body, given)
            response = connection.getresponse()
            told = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, told, response.read().decode())
        finally:
            connection.close()

    def log_in(self, user: str) -> str:
        """Return the cookie of a session."""
        reply = self.ask("/console/login", {"user": user, "password": self.password(user)})
        assert reply.status == 303, reply
        return reply.headers["set-cookie"].partition(";")[0]

    def token(self, cookie: str) -> str:
        """Return what a session's forms bring along."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.ask("/console/", cookie=cookie).text)
        assert found is not None
        return found[1]

    def log(self) -> str:
        return self.gateway.log


#: A bridge whose first link moves messages. The second gives them up, the third has no source.
SHOP: Final = """\
<jmsbridge name="shop">
  <link name="moving" transacted="false">
    <source connection-factory-ref="here" destination-ref="in"/>
    <target connection-factory-ref="here" destination-ref="out"/>
  </link>
  <link name="failing" transacted="false">
    <source connection-factory-ref="here" destination-ref="bad"/>
    <target connection-factory-ref="here" destination-ref="out" message-transformer-class="failing.Failing"
        consume-no-transfer-on-transform-error="true"/>
  </link>
  <link name="away" transacted="false">
    <source connection-factory-ref="there" destination-ref="in"/>
    <target connection-factory-ref="here" destination-ref="out"/>
  </link>
  <connection-factory ref-name="here"/>
  <connection-factory ref-name="there" lookup-name="stomp://127.0.0.1:{port}"/>
  <destination ref-name="in" name="shop.in" type="queue"/>
  <destination ref-name="bad" name="shop.bad" type="queue"/>
  <destination ref-name="out" name="shop.out" type="queue"/>
</jmsbridge>
"""


_FAILING: Final = """\
from gateway.messaging.transformer import MessageTransformer


class Failing(MessageTransformer):
    def transform(self, message, read_only, charset_name, source, target, properties):
        raise ValueError("I want none of these")
"""


@contextmanager
def serving(
    folder: Path,
    bridges: Mapping[str, str] | None = None,
    more: Mapping[str, str] | None = None,
) -> Iterator[Served]:
    """A gateway with :data:`USERS` for as long as the block lasts.

    :param bridges: their files' texts, by name.
    :param more: settings.
    """
    (folder / "var/lib/ext").mkdir(parents=True)
    (folder / "var/lib/ext/failing.py").write_text(_FAILING)
    settings = {"imq.bridge.activelist": ",".join(["stomp", *(bridges or {})]), **(more or {})}
    for name, text in (bridges or {}).items():
        file = folder / f"{name}.xml"
        file.write_text(text.replace("{port}", str(free_port())))
        settings |= {f"imq.bridge.{name}.type": "jms", f"imq.bridge.{name}.xmlurl": str(file)}
    with GatewayProcess(folder / "var", settings=settings) as gateway:
        gateway.wait_for_output("is ready")
        for user, group in USERS.items():
            secret = folder / user
            secret.write_text(f"imq.imqusermgr.password={user}\n")
            secret.chmod(0o600)
            command = ("-m", "gateway.broker.security.usermgr", "add", "-u", user, "-g", group)
            place = ("-varhome", str(gateway.varhome), "--instance", gateway.directory.name)
            subprocess.run(
                [sys.executable, *command, *place, "-passfile", str(secret)],
                cwd=ROOT,
                check=True,
                capture_output=True,
            )
        gateway.signal(signal.SIGHUP)
        until_logged(gateway, "log files were reopened")
        yield Served(gateway)


@contextmanager
def client(served: Served, **headers: str) -> Iterator[Client]:
    """A client of the gateway, connected for as long as the block lasts."""
    found = Client(served.gateway.port)
    try:
        found.connect(**headers)
        yield found
    finally:
        found.close()


def sent(served: Served, queue: str, *bodies: str, **headers: str) -> None:
    with client(served) as sender:
        sender.put(f"/queue/{queue}", *bodies, **headers)


class Pages:
    """A browser that is at the console of a gateway."""

    def __init__(self, browser: Browser, served: Served) -> None:
        self.browser = browser
        self._base = f"http://{HOST}:{served.port}"
        self.served = served

    def log_in(self, user: str) -> None:
        """Log in by the form."""
        self.browser.forget_cookies()
        self.go("/console/login")
        self.fill(user=user, password=self.served.password(user))
        self.browser.click("button.main")
        self.browser.until("location.pathname === '/console/'")
        self.ready()

    def go(self, path: str, *, end: str = "", width: int = 1_200, dark: bool = False) -> None:
        """Open a page. :param end: where it leads to, if elsewhere."""
        self.browser.prefer(dark=dark)
        self.browser.resize(width)
        self.browser.visit(self._base + path, end=end and self._base + end)

    def ready(self) -> None:
        self.browser.until(
            "document.readyState === 'complete' && document.documentElement.dataset.ready === 'yes'"
        )

    def fill(self, **values: str) -> None:
        """Fill in fields of a form by their names."""
        for name, value in values.items():
            place = f"document.querySelector({json.dumps(f'[name={name}]')})"
            self.browser.run(f"({place}.value = {json.dumps(value)}, 0)")

    def text(self, where: str = "main") -> str:
        found: str = self.browser.run(f"document.querySelector({json.dumps(where)}).innerText")
        return found

    def until_text(self, text: str, where: str = "main") -> None:
        place = f"document.querySelector({json.dumps(where)})"
        self.browser.until(f"{place} && {place}.innerText.includes({json.dumps(text)})")

    def follow(self, link: str) -> None:
        """Use the first link or button with this text, by the keyboard."""
        found = (
            "[...document.querySelectorAll('a, button')].find((one) => "
            f"one.innerText?.trim() === {json.dumps(link)})"
        )
        self.browser.until(f"{found} !== undefined")
        self.browser.run(f"{found}.focus()")
        self.browser.press("Enter", 13)

    def act(self, title: str, **values: str) -> str:
        """Do an action of the page by its dialog, and return what came of it."""
        self.follow(title)
        self.browser.until("document.querySelector('dialog').open")
        self.fill(**values)
        self.confirm()
        self.browser.until(
            "document.querySelector('dialog [role=status]') && !document.querySelector('dialog button.main')"
        )
        told = self.text("dialog")
        self.close_dialog()
        return told

    def close_dialog(self) -> None:
        """Close the dialog, and wait until the focus is back in the page."""
        self.follow("Close")
        self.ready()
        self.browser.until("document.querySelector('dialog').firstChild === null")

    def confirm(self, where: str = "dialog") -> None:
        """Do the action that is asked about, once its form is wired up."""
        busy = ".htmx-added, .htmx-swapping, .htmx-settling"
        self.browser.until(f"!document.querySelector({json.dumps(busy)})")
        # By the keyboard: a dialog may still move.
        self.browser.run(f"document.querySelector({json.dumps(f'{where} button.main')}).focus()")
        self.browser.press("Enter", 13)

    def faults(self) -> list[str]:
        """What axe finds wrong with how accessible the page is."""
        brought()
        self.browser.run(AXE.read_text() + "; 0")
        found: list[dict[str, Any]] = self.browser.run(
            "axe.run().then((found) => found.violations)"
        )
        return [f"{each['id']}: {node['html']}" for each in found for node in each["nodes"]]
