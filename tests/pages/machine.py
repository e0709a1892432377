"""The machine of a reader: a folder, a gateway and its clients."""

from __future__ import annotations

import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from gateway.admin.cli import imqcmd
from gateway.instance import passfile
from gateway.instance.layout import Layout
from tests.conformance.client import Client
from tests.gateway_process import HOST, ROOT, GatewayProcess, free_port

if TYPE_CHECKING:
    from tests.postgresql import Cluster

#: What pages call ports: those of this project and of the brokers beside it.
_PORT: Final = re.compile(r"(?<![\w.-])(?:76[78]\d|61[67]\d\d)\b")
#: What the log says at last when files were read again.
_RELOADED: Final = "log files were reopened"
#: How long one command may take, and what is waited for, in seconds.
PATIENCE: Final = 60


class Machine:
    """A gateway, started when something first needs it, and a folder.

    What stands in a page stays as it is, except ports, hosts and folders: :attr:`stands_for` says
    what is there instead of which.

    :param folder: for all files.
    :param ending: ends what runs.
    :param server: returns a server of PostgreSQL.
    """

    def __init__(self, folder: Path, ending: ExitStack, server: Callable[[], Cluster]) -> None:
        self.folder = folder
        self.ending = ending
        self._server = server
        self._gateway = GatewayProcess(folder / "var", instance="imqbroker")
        self._clients = ending.enter_context(ExitStack())
        self._url: SplitResult | None = None
        self._back: dict[str, str] = {}
        self._given: list[str] = []
        self._other: GatewayProcess | None = None
        self._started = False
        self._ports = {
            "7672": str(self._gateway.port),
            "7673": str(self._gateway.tls_port),
            "7676": str(self._gateway.port_mapper_port),
        }
        self._base = dict(self._gateway.settings)
        self._base["imq.bridge.admin.port"] = self._port("7677")
        self._base["imq.bridge.stomp.tls.port"] = self._ports["7673"]
        self._gateway.settings = dict(self._base)
        #: Settings that the page needs besides.
        self.also: tuple[str, ...] = ()
        #: What is there instead of what stands in the page.
        self.stands_for = {"/var/lib/stomp-gateway": str(folder / "var")}
        ending.callback(self._gateway.kill)

    @property
    def gateway(self) -> GatewayProcess:
        """The gateway, which runs."""
        if not self._started:
            self._start()
        return self._gateway

    def _start(self) -> None:
        self._gateway.start()
        self._started = True
        self._gateway.wait_for_output("is ready")
        if not (self.folder / "config").exists():
            address = f"localhost:{self._gateway.port_mapper_port}"
            file = str(self._gateway.directory / "etc" / "passfile")
            imqcmd.run(["context", "add", "here", "-b", address, "-u", "admin", "-passfile", file])
            imqcmd.run(["context", "use", "here"])

    def stop(self) -> None:
        """End the gateway in order, if it runs, when its clients have left."""
        self._clients.close()
        if self._started:
            assert self._gateway.terminate() == 0
            self._started = False

    def settings(self, *lines: str) -> None:
        """Restart the gateway with these settings instead of those before."""
        self.writes(*self.also, *lines)
        if not self._started:
            self._start()
        assert "no effect" not in self._gateway.said, self._gateway.said

    def writes(self, *lines: str) -> None:
        """Stop the gateway, and write these settings into its files.

        They take the place of those that were written before.
        A new instance is made by its first start, which may be with these.
        """
        given = [re.sub("^-D", "", self.here(line)) for line in lines]
        secrets = [line for line in given if "password" in line.partition("=")[0]]
        given = [line for line in given if line not in secrets]
        self.stop()
        pairs = dict(line.split("=", 1) for line in given)
        rest = {name: value for name, value in self._base.items() if name not in pairs}
        layout = Layout(self._gateway.varhome, self._gateway.instance)
        if not layout.exists:
            self._gateway.settings = rest | ({} if secrets else pairs)
            self._start()
        if secrets:
            self.stop()
            layout.passfile.write_text("\n".join([layout.passfile.read_text(), *secrets, ""]))
        made = [
            line
            for line in layout.settings.read_text().splitlines()
            if line not in self._given and line.partition("=")[0] not in pairs
        ]
        self._given = given
        layout.settings.write_text("\n".join([*made, *given, ""]))
        # By these its start is waited for.
        awaited = ("imq.bridge.stomp.tcp.enabled", "imq.bridge.stomp.tls.enabled")
        self._gateway.settings = rest | {
            name: value for name, value in pairs.items() if name in awaited
        }

    def crashes(self) -> None:
        """Kill the gateway."""
        self._clients.close()
        self._gateway.kill()
        self._started = False

    @property
    def other(self) -> GatewayProcess:
        """Another gateway, the broker that pages have links to."""
        if self._other is None:
            self._other = self.ending.enter_context(GatewayProcess(self.folder / "other"))
        return self._other

    @property
    def password(self) -> str:
        """That of the administrator."""
        file = self.gateway.directory / "etc" / "passfile"
        return passfile.read(file)["imq.imqcmd.password"]

    def reload(self) -> None:
        """Have the gateway read its files again."""
        done = self.gateway.log.count(_RELOADED)
        self.gateway.signal(signal.SIGHUP)
        self.until(lambda: self.gateway.log.count(_RELOADED) > done, lambda: self.gateway.log)

    def prepares(self) -> None:
        """Leave a prepared branch, whose coordinator is lost, with the broker.

        Its messages are in the queues ``source`` and ``target``.
        """
        self.stop()
        store = self._gateway.directory / "store"
        subprocess.run(
            [
                *(sys.executable, "-m", "tests.crash.xa_child"),
                *(str(store), "broker.before-submit:3", "admin"),
            ],
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        self._start()

    @contextmanager
    def client(
        self, port: int = 0, tls: ssl.SSLContext | None = None, **headers: str
    ) -> Iterator[Client]:
        """A STOMP client that is connected."""
        with closing(Client(port or self.gateway.port, tls=tls)) as client:
            client.connect(**headers)
            yield client

    def stays(self, port: int = 0, **headers: str) -> Client:
        """Return a STOMP client that is connected until the gateway ends."""
        return self._clients.enter_context(self.client(port, None, **headers))

    def send(self, destination: str, *bodies: str, **headers: str) -> None:
        """Send texts, by a client that leaves then."""
        with self.client() as client:
            client.put(destination, *bodies, **headers)

    def keep(self, name: str, text: str) -> Path:
        """Make a file that only its owner may read."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o600)
        path.write_text(text)
        return path

    def until(self, holds: Callable[[], object], what: Callable[[], str]) -> None:
        """Wait until something holds."""
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, what()
            time.sleep(0.02)

    def makes_database(self, sql: str) -> None:
        """Make the database ``mq`` by what a page has typed to its server."""
        cluster = self._server()
        for statement in sql.replace("'...'", "'secret'").split(";"):
            if statement.strip():
                cluster.execute(statement)
        url = f"postgresql://mq:secret@{HOST}:{cluster.port}/mq"
        self.ending.callback(cluster.drop, url)
        self._is_at(url)

    def database(self) -> SplitResult:
        """Return the URL of what pages call ``mq`` at ``db1``."""
        if self._url is None:
            cluster = self._server()
            url = cluster.database()
            self.ending.callback(cluster.drop, url)
            self._is_at(url)
        assert self._url is not None
        return self._url

    def _is_at(self, url: str) -> None:
        self._url = urlsplit(url)
        place = f"{self._url.hostname}:{self._url.port}"
        self.stands_for |= {
            "?sslmode=verify-full": "",
            "db1:5432": place,
            "db2:5432": place,
            f"{place}/mq": f"{place}{self._url.path}",
        }
        self._back[f"{place}{self._url.path}"] = "db1:5432/mq"
        self.stands_for |= {
            "postgresql.user=mq": f"postgresql.user={self._url.username}",
        }

    def _port(self, given: str) -> str:
        if given not in self._ports:
            self._ports[given] = str(free_port())
        return self._ports[given]

    def port(self, given: int) -> int:
        """Return what stands for a port of the page."""
        return int(self._port(str(given)))

    def here(self, text: str) -> str:
        """Return what a page has, with the places of this machine."""
        text = _PORT.sub(lambda found: self._port(found[0]), text)
        for there, here in self.stands_for.items():
            text = text.replace(there, here)
        return text

    def there(self, text: str) -> str:
        """Return what was printed here, with the places of the page."""
        for here, there in self._back.items():
            text = text.replace(here, there)
        for there, here in self.stands_for.items():
            if here.startswith(str(self.folder)):
                text = text.replace(here, there)
        return text
