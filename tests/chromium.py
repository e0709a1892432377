"""Pages in headless Chromium: what they become, say, and do when used.

Owns the browser's process, which has a profile of its own, no network but this machine's where that
is asked for, and a limit of time for each answer. It is spoken to by the DevTools protocol through two pipes.
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

COMMAND: Final = "chromium"
#: How long the browser may take to answer, in seconds. A busy machine may need many of them.
_SECONDS: Final = 60
_ARGUMENTS: Final = (
    "--headless=new",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "--proxy-server=127.0.0.1:9",
)
#: Whatever a page may ask for, there is no answer.
_NOWHERE: Final = "--host-resolver-rules=MAP * ~NOTFOUND"
_HERE: Final = f"{_NOWHERE}, EXCLUDE 127.0.0.1, EXCLUDE 127.0.0.2, EXCLUDE localhost"
#: What a page has settled by: it has drawn, or has nothing to draw.
_READY: Final = "document.readyState === 'complete' && (document.documentElement.dataset.ready === 'yes' || !document.querySelector('script'))"


class Browser:
    """A browser with one page at a time.

    :param folder: for its profile.
    :param here: pages may ask servers on this machine.
    """

    def __init__(self, folder: Path, *, here: bool = False) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # The protocol is on 3 and 4, which are others' here.
        redirected = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        self._process = subprocess.Popen(
            [
                *("bash", "-c", redirected, "bash", COMMAND, *_ARGUMENTS, *sandbox),
                _HERE if here else _NOWHERE,
                *(f"--user-data-dir={folder / 'profile'}", "about:blank"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_browser, from_browser),
            start_new_session=True,
            cwd=folder,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._in, selectors.EVENT_READ)
        self._read = b""
        self._last = 0
        self._session = ""
        #: What was written to the console, and what went wrong, since a page was opened.
        self.console: list[str] = []
        #: The addresses that it asked for, but the page itself.
        self.requests: list[str] = []
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Have a page, and hear what happens in it."""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def open(
        self, page: Path, *, width: int = 1_200, height: int = 900, dark: bool = False
    ) -> None:
        """Open a page, and wait until it has drawn.

        :param width: and
        :param height: of the window.
        :param dark: the user likes dark pages.
        """
        self.resize(width, height)
        self.prefer(dark=dark)
        self.visit(page.absolute().as_uri())

    def prefer(self, *, dark: bool) -> None:
        """Have pages know whether the user likes dark ones."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])

    def forget_cookies(self) -> None:
        """Be logged in at no server."""
        self._ask("Network.clearBrowserCookies")

    def press(self, key: str, code: int = 0) -> None:
        """Press a key, such as ``Tab`` or ``Escape``.

        :param code: the key's number on Windows, which some keys need to do anything.
        """
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self._ask(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **(text if kind == "keyDown" else {}),
            )

    def visit(self, address: str, *, end: str = "") -> None:
        """Open a page by its address, and wait until it has drawn.

        :param end: where it leads to, if it is somewhere else.
        """
        self._ask("Page.navigate", url="about:blank")
        self.console, self.requests = [], []
        self._ask("Page.navigate", url=address)
        self.until(f"location.href === {json.dumps(end or address)} && ({_READY})")
        self.requests = [one for one in self.requests if one != address]

    def resize(self, width: int, height: int = 900) -> None:
        """Give the window another size."""
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def run(self, script: str) -> Any:
        """Return what an expression is in the page, as JSON has it."""
        found = self._ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until an expression is true in the page."""
        end = time.monotonic() + _SECONDS
        while not self._is(script):
            assert time.monotonic() < end, f"never: {script}; {self.console}"
            # The next frame, not some time.
            self._is("new Promise((done) => setTimeout(done, 20))")

    def _is(self, script: str) -> bool:
        try:
            return bool(self.run(script))
        except AssertionError as error:
            # It went to another page meanwhile.
            if "navigated" not in str(error):
                raise
            return False

    def click(self, where: str) -> None:
        """Click into the middle of the first element of a selector."""
        self.run(f"document.querySelector({json.dumps(where)}).scrollIntoView({{block: 'center'}})")
        box = f"document.querySelector({json.dumps(where)}).getBoundingClientRect()"
        x, y = self.run(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({box})")
        self._ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path: Path) -> Path:
        """Write a PNG file of the whole page."""
        size = self.run(
            "[document.documentElement.clientWidth, document.documentElement.scrollHeight]"
        )
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        made = self._ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(made["data"]))
        return path

    def close(self) -> None:
        """End the browser, with its renderers."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        os.close(self._out)
        os.close(self._in)

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        asked: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            asked["sessionId"] = self._session
        written = json.dumps(asked).encode() + b"\0"
        while written:
            written = written[os.write(self._out, written) :]
        for message in self._messages():
            if message.get("id") == self._last:
                assert "error" not in message, f"{method}: {message['error']}"
                found: dict[str, Any] = message["result"]
                return found
            self._note(message)
        raise AssertionError(f"{method}: the browser has ended")

    def _messages(self) -> Iterator[dict[str, Any]]:
        end = time.monotonic() + _SECONDS
        while True:
            first, found, rest = self._read.partition(b"\0")
            if found:
                self._read = rest
                yield json.loads(first)
                continue
            assert self._selector.select(max(0.0, end - time.monotonic())), "no answer"
            octets = os.read(self._in, 1 << 20)
            if not octets:
                return
            self._read += octets

    def _note(self, message: dict[str, Any]) -> None:
        told = message.get("params", {})
        match message.get("method"):
            case "Runtime.consoleAPICalled":
                self.console.append(" ".join(str(one.get("value")) for one in told["args"]))
            case "Runtime.exceptionThrown":
                self.console.append(str(told["exceptionDetails"]))
            case "Log.entryAdded":
                self.console.append(told["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])


@contextmanager
def browser(folder: Path, *, here: bool = False) -> Iterator[Browser]:
    """A browser for the body, with the arguments of :class:`Browser`."""
    folder.mkdir(parents=True, exist_ok=True)
    found = Browser(folder, here=here)
    try:
        yield found
    finally:
        found.close()


@dataclass(frozen=True)
class Opened:
    """A page as the browser has it.

    :param dom: the document after all that it does by itself, without its scripts' texts.
    :param console: what was written to the console.
    :param requests: what it asked for besides itself.
    """

    dom: str
    console: Sequence[str]
    requests: Sequence[str]


_DOM: Final = """(() => {
  const copy = document.documentElement.cloneNode(true);
  for (const script of copy.querySelectorAll('script')) script.textContent = '';
  return '<!DOCTYPE html>' + copy.outerHTML;
})()"""


def opened(page: Path, folder: Path) -> Opened:
    """Open a page in a browser of its own.

    :param folder: for the browser's profile.
    """
    with browser(folder / "browser") as found:
        found.open(page)
        return Opened(found.run(_DOM), found.console, found.requests)
