"""A reader of the documentation, who does what a page says.

The reader has a machine, and a terminal at which every question is answered with yes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final
from urllib.parse import unquote

from lxml import etree

from gateway.broker.security.access import DEFAULT_RULES
from tests.conformance.client import Client, Frame
from tests.documented_blocks import COMMANDS, Block
from tests.end_to_end.sessions import commands
from tests.gateway_process import ROOT
from tests.interop.node_modules import NODE, brought
from tests.pages import printed
from tests.pages.terminal import Terminal, typed

SETTING: Final = re.compile(r"(?:-D)?imq\.[\w.-]+=.*")
RULE: Final = re.compile(r"(?:queue|topic|connection)\.\S+=\S+")
#: Programs of others that pages have typed.
OTHERS: Final = (
    *("cd", "cp", "curl", "export", "jq", "keytool", "mv", "openssl", "printf", "python", "rsync"),
    *(
        "chmod",
        "source",
        "systemctl",
        "$EDITOR",
        "nc",
        "mkdir",
        "pip",
        "make",
        ".venv/bin/imqcmd",
        "twistd",
        ".venv/bin/pip",
        ".venv/bin/python",
    ),
)


def istyped(block: Block) -> bool:
    """Tell whether a block has commands."""
    lines = block.typed
    return bool(lines) and lines[0].split()[0] in (*COMMANDS, *OTHERS)


class Reader(Terminal):
    """Does the blocks of a page, and what its comments ask for."""

    def __init__(self, *machine: Any) -> None:
        super().__init__(*machine)
        self._next: Callable[[str], object] | None = None
        self._names: dict[str, Any] = {"reader": self, "printed": printed}
        #: The client that sends the frames of the page, and what came before the RECEIPT.
        self.one: Client | None = None
        self.came: list[Frame] = []

    # --- of comments

    docs: Final = ROOT / "docs"

    def file(self, name: str) -> None:
        """The next block is this file."""

        self._next = lambda text: self.keep(name, self.here(text) + "\n")

    def log(self) -> None:
        """The next block is in the gateway's log, line by line."""

        def look(text: str) -> None:
            for line in text.splitlines():
                self.logs(line)

        self._next = look

    def logs(self, line: str) -> None:
        """Wait until the gateway's log has a line."""

        def log() -> str:
            return self.there(self._gateway.said + self._gateway.log)

        self.until(
            lambda: printed.has(log(), f"...{line}..."), lambda: f"{line}\nis not in\n{log()}"
        )

    def passes(self, check: Callable[[str], object]) -> None:
        """The next block is given to this function."""
        self._next = check

    def waits(self, queue: str, count: int) -> None:
        """Wait until a queue has this number of messages."""

        def there() -> int:
            known = self.asks("imqcmd list dst -t q")["destinations"]
            return sum(each["messages"] for each in known if each["name"] == queue)

        self.until(lambda: there() == count, lambda: f"{queue}: {there()} messages, not {count}")

    def keeps_in_a_database(self, node: str) -> None:
        """Restart the gateway, as a process of this name, on a database."""
        url = self.database()
        self.writes(
            "imq.persist.store=jdbc",
            "imq.persist.jdbc.postgresql.opendburl=postgresql://db1:5432/mq",
            "imq.persist.jdbc.postgresql.user=mq",
            f"imq.persist.jdbc.password={unquote(url.password or '')}",
            "imq.brokerid=orders",
            "imq.cluster.ha=true",
            f"imq.cluster.nodename={node}",
        )
        self.runs("imqdbmgr create tbl")
        self._start()

    def bridge(self, name: str, elements: str) -> None:
        """Have the gateway run a bridge of these elements."""
        self.loads(f'<jmsbridge name="{name}">{elements}</jmsbridge>')

    def prints(self, line: str) -> None:
        """Run a command that the page does not show; what it prints, it shows."""
        self.said = ""
        self._run([line])

    def first_session(self) -> None:
        """Be in a checkout where the gateway runs."""
        for name, place in ((".venv/bin", self.folder / "bin"), ("docs", self.docs)):
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).symlink_to(place)
        session = "docs/first_session.py"
        self.stands_for[session] = f"{session} {self.gateway.port}"

    def knows_a_user(self, name: str, passcode: str) -> None:
        """Have the other gateway know a user."""
        file = self.keep("passcode", f"imq.imqusermgr.password={passcode}\n")
        varhome = self.other.varhome
        self.runs(f"imqusermgr add -u {name} -g users -varhome {varhome} -i test -passfile {file}")
        self.other.restart()

    def comes(self, queue: str, text: str) -> None:
        """Wait for a message at the other gateway."""
        with closing(Client(self.other.port)) as client:
            client.connect()
            client.subscribe(f"/queue/{queue}")
            assert client.message().text == text

    def node(self, script: str) -> str:
        """Return what a program for Node.js prints that has stompjs."""
        brought()
        modules = NODE / "node_modules"
        brings = f'''
            global.WebSocket = require("{modules}/ws");
            const StompJs = require("{modules}/@stomp/stompjs");
        '''
        self.keep("page.js", brings + self.here(script))
        before, self.said = self.said, ""
        self._run(["node page.js"])
        said, self.said = self.said, before
        return said

    def stop(self) -> None:
        """End the gateway in order, if it runs, when its clients have left."""
        super().stop()
        self.one = None

    # --- blocks

    def does(self, block: Block) -> None:
        """Do what a block says.

        :raises AssertionError: it does not come out as the page says.
        """
        if block.unseen:
            self._unseen(block)
        elif self._next is not None:
            given, self._next = self._next, None
            given(block.text)
        elif block.language == "python":
            exec(compile(self.here(block.text), block.page, "exec"), self._names)
        elif block.text.startswith("<"):
            self.loads(block.text)
        elif re.match(r"[A-Z]+\n(?:[\w-]+:.*(?:\n|$))+", block.text):
            self.frame(block.text)
        else:
            self._lines(block)

    def _unseen(self, block: Block) -> None:
        if block.language == "python":
            exec(compile(block.text, f"{block.page}, unseen", "exec"), self._names)
        else:
            self._run(list(typed(block.text)))

    def _lines(self, block: Block) -> None:
        lines = [line for line in block.text.splitlines() if line.strip() and line[0] != "#"]
        if all(SETTING.fullmatch(line) for line in lines):
            self.settings(*lines)
        elif all(RULE.fullmatch(line) for line in lines):
            self.rules(lines)
        elif block.text.startswith("$ "):
            self.said = ""
            for command, shown in commands(block.text):
                before, self.said = self.said, ""
                self._run([command])
                self.shown(shown)
                self.said = before + self.said
        elif istyped(block):
            self.said = ""
            self._run(list(typed(block.text)))
        else:
            self.shown(block.text)

    def shown(self, text: str) -> None:
        """Compare what the page shows with what was printed."""
        if self._following is not None:
            self._heard(lambda said: printed.has(self.there(said), text), text)
        assert printed.has(self.there(self.said), text), f"\n{text}\nis not in\n{self.said}"

    def rules(self, lines: Sequence[str]) -> None:
        """Give the gateway these access rules besides those of a new instance."""
        file = self.gateway.directory / "etc" / "accesscontrol.properties"
        names = {line.partition("=")[0] for line in lines}
        kept = [line for line in DEFAULT_RULES.splitlines() if line.partition("=")[0] not in names]
        file.write_text("\n".join([*kept, *lines, ""]))
        self.reload()

    def frame(self, text: str) -> list[Frame]:
        """Send a frame, and wait until the gateway has dealt with it."""
        head, _, body = self.here(text).removesuffix("^@").partition("\n\n")
        command, *lines = head.splitlines()
        headers = dict(line.split(":", 1) for line in lines)
        headers.pop("receipt", None)
        self.one = self.one or self.stays()
        self.came = self.one.ask(command, headers, body)
        return self.came

    def loads(self, text: str) -> None:
        """Have the gateway run a bridge of what a page has of one."""
        document = etree.fromstring(_whole(self.here(text)).encode())
        name = f"{document.get('name', 'page')}"
        file = self.folder / f"{name}.xml"
        file.touch(0o600)
        file.write_text(etree.tostring(document).decode())
        known = {each["name"] for each in self.asks("imqbridgemgr list bridge")["bridges"]}
        if name in known:
            self._run([f"imqbridgemgr destroy bridge -bn {name}"])
        self._run([f"imqbridgemgr create bridge -bn {name} -xml {file}"])


def _whole(text: str) -> str:
    """A document of a bridge of what a page shows of one."""
    text = re.sub(r"<[?!](?:xml|DOCTYPE).*?>\n?", "", text)
    if "<jmsbridge" in text:
        return text
    return f'<jmsbridge name="page">{text}</jmsbridge>'
