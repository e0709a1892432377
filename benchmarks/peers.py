"""The servers that are compared: their start, stop and dialect of STOMP.

Every server gets free ports on loopback, a folder of its own for its data, and is gone when
:meth:`Peer.stop` returns. Knows nothing of loads. Each is run as its project ships it, at the
durability it ships with; what was set is in ``README.rst``.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import pkcs12

from benchmarks.process import ProcessTree
from benchmarks.wire import command, frame, header

ROOT = Path(__file__).parent.parent
_INSTANCE = "bench"
_PASSWORD = "benchmark"


@dataclass(frozen=True)
class Dialect:
    """Where servers differ in STOMP.

    :param host: the CONNECT frame's ``host``.
    :param queue_headers: what SUBSCRIBE to a ``/queue/`` needs so that several connections share
        it.
    :param queue_prefix: what stands for ``/queue/`` in a SEND to a queue that exists.
    :param says_goodbye: whether DISCONNECT gets the receipt that it asks for.
    :param subscribes_to_replies: whether a ``/temp-queue/`` used in ``reply-to`` must be SUBSCRIBEd
        to by its creator.
    """

    host: str = "localhost"
    queue_headers: tuple[tuple[str, str], ...] = ()
    queue_prefix: str = "/queue/"
    says_goodbye: bool = True
    subscribes_to_replies: bool = True

    def sends_to(self, destination: str) -> str:
        """Return SEND's ``destination`` for one subscribed to by this name.

        The name is ``/queue/...`` or ``/topic/...``.
        """
        return (
            self.queue_prefix + destination.removeprefix("/queue/")
            if destination.startswith("/queue/")
            else destination
        )


class NotInstalled(Exception):
    """The server's command is missing; the text says what installs it."""


class NotReady(Exception):
    """The server ended, or did not answer CONNECT in time.

    The text has the end of its log.
    """


class Peer(ABC):
    """One server of the comparison.

    :param folder: an empty or missing folder for everything it writes.
    :param tls: listen for STOMP over TLS as well, with a certificate for ``localhost``.
    :cvar demands_certificates: whether clients connect over TLS, each with a certificate; see
        :mod:`benchmarks.certified`.
    :ivar port: where it listens for STOMP on 127.0.0.1; ``tls_port`` where for STOMP over TLS.
    """

    name: str
    dialect = Dialect()
    demands_certificates = False
    login = "guest"
    passcode = "guest"
    #: How long the server may take from its start to CONNECTED, and from SIGTERM to its end, in
    #: seconds.
    patience = 60.0

    def __init__(self, folder: Path, tls: bool = False) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self.tls_port = free_port(), free_port()
        self.tls = tls
        self._context: ssl.SSLContext | None = None
        #: What it calls itself in CONNECTED.
        self.version = "unknown"
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
                    raise NotReady(
                        f"{self.name} ended before it answered CONNECT. The end of {self.log}:\n{self._log_end()}"
                    )
                if time.perf_counter() - began > self.patience:
                    raise NotReady(
                        f"{self.name} did not answer CONNECT within {self.patience:g} s. The end of {self.log}:\n{self._log_end()}"
                    )
                time.sleep(0.005)
        except BaseException:
            self.kill()
            raise
        return time.perf_counter() - began

    def stop(self) -> None:
        """End the server by SIGTERM, or SIGKILL after :attr:`patience`."""
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
        headers = {
            "accept-version": "1.2",
            "host": self.dialect.host,
            "login": self.login,
            "passcode": self.passcode,
            "heart-beat": heart_beat,
        }
        return frame("CONNECT", headers)

    def connect(self, seconds: float) -> socket.socket:
        """Return a client's connection, over TLS where certificates are demanded.

        :param seconds: its timeout.
        :raises OSError:
        """
        if not self.demands_certificates:
            return socket.create_connection(("127.0.0.1", self.port), timeout=seconds)
        if self._context is None:
            self._context = self.tls_context()
        connection = socket.create_connection(("127.0.0.1", self.tls_port), timeout=seconds)
        return self._context.wrap_socket(connection, server_hostname="localhost")

    @property
    def keys(self) -> Path:
        """Where its certificate is, with the authority's."""
        return self.folder / "tls"

    def tls_context(self) -> ssl.SSLContext:
        """Return a client's context that trusts only this server."""
        context = ssl.create_default_context(cafile=self.keys / "ca.pem")
        if self.demands_certificates:
            client = self.keys / "clients" / self.login
            context.load_cert_chain(client.with_suffix(".pem"), client.with_suffix(".key"))
        return context

    def _make_keys(self) -> None:
        """Have ``imqkeytool`` make an authority and the certificates, once."""
        if self.keys.exists():
            return
        self._imqkeytool("server", "--dns", "localhost", "--ip", "127.0.0.1")
        if self.demands_certificates:
            self._imqkeytool("client", "--name", self.login)

    def _imqkeytool(self, *words: str) -> None:
        arguments = [sys.executable, "-m", "certs.command", *words, "--dir", str(self.keys)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode:
            raise NotReady(
                f"imqkeytool made no certificate for {self.name}: {done.stdout}{done.stderr}"
            )

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(self.connect_frame())
                answer = connection.recv(4096)
                self.version = (header(answer, b"server") or b"unknown").decode(errors="replace")
                return command(answer) == b"CONNECTED"
        except OSError:
            return False

    def _log_end(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else "(no log)"


class Gateway(Peer):
    """This project's server, as installed in the benchmark's environment.

    :cvar path: a folder whose packages are used in place of those installed, such as a build with
        compiled modules; None for none.
    """

    name = "gateway"
    path: Path | None = None

    def __init__(self, folder: Path, tls: bool = False) -> None:
        super().__init__(folder, tls)
        self.port_mapper_port = free_port()

    def _launch(self) -> ProcessTree:
        if self.tls:
            self._make_keys()
        arguments = [
            *self.command(),
            "--varhome",
            str(self.folder / "var"),
            "--instance",
            _INSTANCE,
        ]
        arguments += [f"-D{name}={value}" for name, value in self.settings().items()]
        return ProcessTree(arguments, self.environment(), self.folder, self.log)

    def command(self) -> list[str]:
        """What is run, without arguments."""
        executable = Path(sys.executable).parent / "stomp-gateway"
        if not executable.exists():
            raise NotInstalled(
                f"{executable} is missing: install the project into this environment"
            )
        return [str(executable)]

    def environment(self) -> dict[str, str]:
        """The whole environment of it."""
        path = "" if self.path is None else str(self.path.resolve())
        return {**os.environ, "PYTHONPATH": path}

    @property
    def instance(self) -> Path:
        """The instance's own folder."""
        return self.folder / "var" / "instances" / _INSTANCE

    def settings(self) -> dict[str, str]:
        """What is set; the rest is as it is by default."""
        settings = {
            "imq.hostname": "127.0.0.1",
            "imq.portmapper.port": str(self.port_mapper_port),
            "imq.bridge.stomp.tcp.port": str(self.port),
            "imq.bridge.stomp.tls.enabled": "true" if self.tls else "false",
        }
        if self.tls:
            settings |= {
                "imq.bridge.stomp.tls.port": str(self.tls_port),
                "imq.bridge.stomp.tls.requireClientAuth": str(self.demands_certificates).lower(),
            }
        return settings

    def _answers(self) -> bool:
        answers = super()._answers()
        if answers:
            # CONNECTED does not tell what kind it is; the line in which it says that it is ready
            # does.
            kind = re.search(r"\(([^)]*)\) is ready", self.log.read_text(errors="replace"))
            if kind is None:
                return False
            self.version += f" ({kind[1]})"
        return answers

    @property
    def keys(self) -> Path:
        """The instance's own key store."""
        return self.instance / "etc" / "tls"


class PureGateway(Gateway):
    """The gateway as installed: beside a compiled one it shows the gain."""

    name = "pure"
    path = None


class ActiveMQ(Peer):
    """ActiveMQ Classic from Debian: NIO STOMP connector and KahaDB.

    KahaDB has its default sync of the journal at every commit.
    """

    name = "ActiveMQ"
    #: Of the Java machine.
    options: tuple[str, ...] = ("-Xms512M", "-Xmx1G")
    #: It delivers messages at a later time, too.
    scheduler = False

    def _launch(self) -> ProcessTree:
        library = Path("/usr/share/activemq/lib")
        java = shutil.which("java")
        if java is None or not library.is_dir():
            raise NotInstalled("ActiveMQ is missing: apt-get install activemq")
        data = self.folder / "data"
        listeners = ",".join(self.listeners())
        store = []
        if self.tls:
            store = [
                f"-Djavax.net.ssl.keyStore={self._java_keys()}",
                f"-Djavax.net.ssl.keyStorePassword={_PASSWORD}",
            ]
            if self.demands_certificates:
                store += [
                    f"-Djavax.net.ssl.trustStore={self._java_trust()}",
                    f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
                ]
        broker = f"broker:({listeners})?brokerName=peer&persistent=true&useJmx=false&dataDirectory={data}&schedulerSupport={str(self.scheduler).lower()}"
        arguments = [
            java,
            *self.options,
            *store,
            f"-Dactivemq.home={library.parent}",
            f"-Dactivemq.base={self.folder}",
        ]
        arguments += [f"-Dactivemq.data={data}", "-cp", f"{library}/*", *self.main(), broker]
        return ProcessTree(arguments, os.environ, self.folder, self.log)

    def main(self) -> list[str]:
        """Return Java's class or source file, and the arguments before the URI."""
        return ["org.apache.activemq.console.command.ShellCommand", "start"]

    def listeners(self) -> list[str]:
        """Its transport connectors, as URIs."""
        listeners = [f"stomp+nio://127.0.0.1:{self.port}"]
        if self.tls:
            demand = "?needClientAuth=true" if self.demands_certificates else ""
            listeners.append(f"stomp+nio+ssl://127.0.0.1:{self.tls_port}{demand}")
        return listeners

    def _java_keys(self) -> Path:
        """The certificate in the form that Java reads."""
        self._make_keys()
        key = serialization.load_pem_private_key((self.keys / "server.key").read_bytes(), None)
        chain = x509.load_pem_x509_certificates((self.keys / "server.pem").read_bytes())
        if not isinstance(key, EllipticCurvePrivateKey):
            raise NotReady(
                f"imqkeytool made a {type(key).__name__}; an elliptic curve's key was expected"
            )
        encryption = serialization.BestAvailableEncryption(_PASSWORD.encode())
        path = self.folder / "server.p12"
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(b"server", key, chain[0], chain[1:], encryption)
        )
        return path

    def _java_trust(self) -> Path:
        """The authority in the form that Java trusts."""
        path = self.folder / "trust.p12"
        if not path.exists():
            arguments = ["keytool", "-importcert", "-noprompt", "-alias", "ca"]
            arguments += ["-file", str(self.keys / "ca.pem"), "-keystore", str(path)]
            arguments += ["-storetype", "PKCS12", "-storepass", _PASSWORD]
            done = subprocess.run(arguments, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NotReady(f"keytool made no trust store: {done.stdout}{done.stderr}")
        return path


class RabbitMQ(Peer):
    """RabbitMQ from Debian with its STOMP plugin.

    Classic queues, default settings.
    """

    name = "RabbitMQ"
    dialect = Dialect(
        host="/",
        queue_headers=(("durable", "true"), ("auto-delete", "false"), ("exclusive", "false")),
        # A SEND to /queue/ declares the queue as well, and without the three headers as an
        # exclusive one. This prefix declares nothing, so that RabbitMQ is spared three headers in
        # every frame.
        queue_prefix="/amq/queue/",
        subscribes_to_replies=False,
    )
    plugins: tuple[str, ...] = ("rabbitmq_stomp",)

    def __init__(self, folder: Path, tls: bool = False) -> None:
        super().__init__(folder, tls)
        self.amqp_port, self._epmd_port, self._distribution_port = (
            free_port(),
            free_port(),
            free_port(),
        )
        self._epmd: ProcessTree | None = None

    def _launch(self) -> ProcessTree:
        server, epmd = Path("/usr/lib/rabbitmq/bin/rabbitmq-server"), shutil.which("epmd")
        if not server.exists() or epmd is None:
            raise NotInstalled("RabbitMQ is missing: apt-get install rabbitmq-server")
        environment = self.environment()
        if self.tls:
            self._make_keys()
        (self.folder / "rabbitmq.conf").write_text("\n".join(self.configuration()) + "\n")
        (self.folder / "enabled_plugins").write_text(f"[{','.join(self.plugins)}].\n")
        # Otherwise the server starts a port mapper of its own, which detaches itself and outlives
        # it.
        self._epmd = ProcessTree(
            [epmd, "-address", "127.0.0.1", "-port", str(self._epmd_port)],
            environment,
            self.folder,
            self.log,
        )
        return ProcessTree([str(server)], environment, self.folder, self.log)

    def configuration(self) -> list[str]:
        """Return the lines of its file of settings."""
        lines = [
            f"listeners.tcp.default = 127.0.0.1:{self.amqp_port}",
            f"stomp.listeners.tcp.1 = 127.0.0.1:{self.port}",
        ]
        if self.tls:
            lines += [
                f"stomp.listeners.ssl.1 = 127.0.0.1:{self.tls_port}",
                f"ssl_options.cacertfile = {self.keys}/ca.pem",
                f"ssl_options.certfile = {self.keys}/server.pem",
                f"ssl_options.keyfile = {self.keys}/server.key",
            ]
            if self.demands_certificates:
                lines += [
                    "ssl_options.verify = verify_peer",
                    "ssl_options.fail_if_no_peer_cert = true",
                ]
        return lines

    def environment(self) -> dict[str, str]:
        """The environment of the server and of its commands."""
        return {
            **os.environ,
            "HOME": str(self.folder),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_NODENAME": "peer@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            # The start script then becomes the server instead of waiting for it, so that SIGTERM
            # reaches the server itself.
            "RUNNING_UNDER_SYSTEMD": "1",
        }

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
    """:mod:`benchmarks.pump`: its rate is the load generator's ceiling."""

    name = "pump"

    def _launch(self) -> ProcessTree:
        return ProcessTree(
            [sys.executable, "-m", "benchmarks.pump", str(self.port)], os.environ, ROOT, self.log
        )


PEERS: dict[str, type[Peer]] = {
    peer.name.lower(): peer for peer in (Gateway, PureGateway, ActiveMQ, RabbitMQ, Pump)
}


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
