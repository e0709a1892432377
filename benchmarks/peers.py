"""The servers that are compared: how each is started and stopped, and the dialect of STOMP it speaks.

Every server gets free ports on loopback, a folder of its own for its data, and is gone when :meth:`Peer.stop` returns. Knows nothing of
loads. Each is run as its project ships it, at the durability it ships with; what was set is in ``README.rst``.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from benchmarks.process import ProcessTree
from benchmarks.wire import command, frame


@dataclass(frozen=True)
class Dialect:
    """Where servers differ in STOMP.

    :param host: the CONNECT frame's ``host``.
    :param queue_headers: what SUBSCRIBE to a ``/queue/`` needs so that several connections share it.
    :param queue_prefix: what stands for ``/queue/`` in a SEND to a queue that exists.
    :param subscribes_to_replies: whether a ``/temp-queue/`` used in ``reply-to`` must be SUBSCRIBEd to by its creator.
    """

    host: str = "localhost"
    queue_headers: tuple[tuple[str, str], ...] = ()
    queue_prefix: str = "/queue/"
    subscribes_to_replies: bool = True

    def sends_to(self, destination: str) -> str:
        """The ``destination`` of SEND for one that is subscribed to as ``/queue/...`` or ``/topic/...``."""
        return self.queue_prefix + destination.removeprefix("/queue/") if destination.startswith("/queue/") else destination


class NotInstalled(Exception):
    """The server's command is not on this machine; the text names it and what brings it."""


class NotReady(Exception):
    """The server ended, or did not answer CONNECT in time; the text has the end of its log."""


class Peer(ABC):
    """One server of the comparison.

    :param folder: an empty or missing folder for everything it writes.
    :ivar port: where it listens for STOMP on 127.0.0.1.
    """

    name: str
    dialect = Dialect()
    login = "guest"
    passcode = "guest"
    #: How long the server may take from its start to CONNECTED, and from SIGTERM to its end, in seconds.
    patience = 60.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._tree: ProcessTree | None = None

    @abstractmethod
    def _launch(self) -> ProcessTree:
        """Start the server's process.

        :raises NotInstalled:
        """

    @property
    def tree(self) -> ProcessTree:
        """The running server's processes.

        :raises NotReady: when it was not started.
        """
        if self._tree is None:
            raise NotReady(f"{self.name} is not started")
        return self._tree

    @property
    def log(self) -> Path:
        """What the server printed."""
        return self.folder / "output.log"

    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._tree is not None and self._tree.alive()

    def start(self) -> float:
        """Start the server over the data it has and wait for CONNECTED.

        :returns: seconds from the start of the process to CONNECTED.
        :raises NotInstalled: the command is missing.
        :raises NotReady: it ended or did not answer; nothing of it is left running.
        """
        began = time.perf_counter()
        self._tree = self._launch()
        try:
            while not self._answers():
                if not self._tree.alive():
                    raise NotReady(f"{self.name} ended before it answered CONNECT. The end of {self.log}:\n{self._log_end()}")
                if time.perf_counter() - began > self.patience:
                    raise NotReady(f"{self.name} did not answer CONNECT within {self.patience:g} s. The end of {self.log}:\n{self._log_end()}")
                time.sleep(0.005)
        except BaseException:
            self.kill()
            raise
        return time.perf_counter() - began

    def stop(self) -> None:
        """End the server in order, by SIGTERM; by SIGKILL what remains after :attr:`patience`."""
        if self._tree is not None:
            self._tree.terminate(self.patience)
            self._tree = None

    def kill(self) -> None:
        """End the server with SIGKILL."""
        if self._tree is not None:
            self._tree.kill()
            self._tree = None

    def connect_frame(self, heart_beat: str = "0,0") -> bytes:
        """A CONNECT frame in this server's dialect."""
        headers = {"accept-version": "1.2", "host": self.dialect.host, "login": self.login, "passcode": self.passcode, "heart-beat": heart_beat}
        return frame("CONNECT", headers)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(self.connect_frame())
                return command(connection.recv(4096)) == b"CONNECTED"
        except OSError:
            return False

    def _log_end(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else "(no log)"


class Gateway(Peer):
    """This project's server, as installed in the environment that runs the benchmark."""

    name = "gateway"

    def _launch(self) -> ProcessTree:
        executable = Path(sys.executable).parent / "stomp-gateway"
        if not executable.exists():
            raise NotInstalled(f"{executable} is missing: install the project into this environment")
        settings = {"imq.bridge.stomp.tcp.port": self.port, "imq.bridge.stomp.tls.enabled": "false", "imq.portmapper.port": free_port()}
        arguments = [str(executable), "--varhome", str(self.folder / "var"), "--instance", "bench"]
        for name, value in settings.items():
            arguments += ["-D", f"{name}={value}"]
        return ProcessTree(arguments, os.environ, self.folder, self.log)


class ActiveMQ(Peer):
    """ActiveMQ Classic from Debian's ``activemq``: NIO STOMP connector, KahaDB with its default sync of the journal at every commit."""

    name = "ActiveMQ"

    def _launch(self) -> ProcessTree:
        library = Path("/usr/share/activemq/lib")
        java = shutil.which("java")
        if java is None or not library.is_dir():
            raise NotInstalled("ActiveMQ is missing: apt-get install activemq")
        data = self.folder / "data"
        broker = f"broker:(stomp+nio://127.0.0.1:{self.port})?brokerName=peer&persistent=true&useJmx=false&dataDirectory={data}"
        arguments = [java, "-Xms512M", "-Xmx1G", f"-Dactivemq.home={library.parent}", f"-Dactivemq.base={self.folder}"]
        arguments += [f"-Dactivemq.data={data}", "-cp", f"{library}/*", "org.apache.activemq.console.command.ShellCommand", "start", broker]
        return ProcessTree(arguments, os.environ, self.folder, self.log)


class RabbitMQ(Peer):
    """RabbitMQ from Debian's ``rabbitmq-server`` with its STOMP plugin: classic queues, default settings."""

    name = "RabbitMQ"
    dialect = Dialect(
        host="/",
        queue_headers=(("durable", "true"), ("auto-delete", "false"), ("exclusive", "false")),
        # A SEND to /queue/ declares the queue as well, and without the three headers as an exclusive one. This prefix declares nothing, so
        # that RabbitMQ is spared three headers in every frame.
        queue_prefix="/amq/queue/",
        subscribes_to_replies=False,
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._amqp_port, self._epmd_port, self._distribution_port = free_port(), free_port(), free_port()
        self._epmd: ProcessTree | None = None

    def _launch(self) -> ProcessTree:
        server, epmd = Path("/usr/lib/rabbitmq/bin/rabbitmq-server"), shutil.which("epmd")
        if not server.exists() or epmd is None:
            raise NotInstalled("RabbitMQ is missing: apt-get install rabbitmq-server")
        configuration = self.folder / "rabbitmq.conf"
        configuration.write_text(f"listeners.tcp.default = 127.0.0.1:{self._amqp_port}\nstomp.listeners.tcp.1 = 127.0.0.1:{self.port}\n")
        plugins = self.folder / "enabled_plugins"
        plugins.write_text("[rabbitmq_stomp].\n")
        environment = {
            **os.environ,
            "HOME": str(self.folder),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_CONFIG_FILE": str(configuration.with_suffix("")),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_NODENAME": "peer@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            # The start script then becomes the server instead of waiting for it, so that SIGTERM reaches the server itself.
            "RUNNING_UNDER_SYSTEMD": "1",
        }
        # Otherwise the server starts a port mapper of its own, which detaches itself and outlives it.
        self._epmd = ProcessTree([epmd, "-address", "127.0.0.1", "-port", str(self._epmd_port)], environment, self.folder, self.log)
        return ProcessTree([str(server)], environment, self.folder, self.log)

    def stop(self) -> None:
        super().stop()
        self._stop_epmd()

    def kill(self) -> None:
        super().kill()
        self._stop_epmd()

    def _stop_epmd(self) -> None:
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd = None


class Pump(Peer):
    """:mod:`benchmarks.pump`, which does as little as can be: what it reaches is the ceiling of the load generator."""

    name = "pump"

    def _launch(self) -> ProcessTree:
        root = Path(__file__).parent.parent
        return ProcessTree([sys.executable, "-m", "benchmarks.pump", str(self.port)], os.environ, root, self.log)


PEERS: dict[str, type[Peer]] = {peer.name.lower(): peer for peer in (Gateway, ActiveMQ, RabbitMQ, Pump)}


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
