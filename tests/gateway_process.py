"""A real ``stomp-gateway`` in a child process: started on free ports, waited for, killed and
started again.

Owns the child and its output. Blocks, so it is for tests that run no reactor of their own, and for
fixtures. Nothing here reads the gateway's own modules: what is tested is the process.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.forked import Forked

ROOT: Final = Path(__file__).parents[1]
HOST: Final = "127.0.0.1"
INSTANCE: Final = "test"

#: As its users start it.
COMMAND: Final = (sys.executable, "-c", "from gateway.command import main; main()")
#: How long a start, an end or an expected line of output may take before the test fails, in
#: seconds. A busy machine may need many of them, so nothing is concluded from what came within.
PATIENCE: Final = 120.0

# Below the ports that Linux hands out for outgoing connections, so that nobody's connection takes
# one before its server does.
_PORTS: Final = range(20_000, 32_000)
_given: set[int] = set()
# Its byte N is locked by the process that was given port N, until that process ends. So tests that
# run side by side are never given the same port, also before a server listens there.
_claims: Final = os.open(
    Path(tempfile.gettempdir(), f"stomp-gateway-ports-{os.getuid()}"),
    os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
    0o600,
)


def free_port() -> int:
    """Return a TCP port of the loopback interface where nothing listens.

    No other call returns the same one, in this process or in another that runs at the same time.
    """
    for port in random.sample(_PORTS, len(_PORTS)):
        if port in _given or not _claimed(port):
            continue
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise RuntimeError(f"no free port between {_PORTS.start} and {_PORTS.stop}")


def _claimed(port: int) -> bool:
    try:
        fcntl.lockf(_claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:
        return False
    return True


class GatewayFailed(Exception):
    """The child ended, or did not do in time what was waited for.

    The text has its output.
    """


@dataclass(frozen=True)
class Certificates:
    """A key store as ``imqkeytool`` makes it: an authority, a certificate for localhost and
    127.0.0.1, and one for a client.

    :param directory: where it is.
    :param client: the common name of the client's certificate.
    """

    directory: Path
    client: str

    @property
    def ca(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def client_certificate(self) -> Path:
        return self.directory / "clients" / f"{self.client}.pem"

    @property
    def client_key(self) -> Path:
        return self.directory / "clients" / f"{self.client}.key"


def make_certificates(directory: Path, client: str = "guest") -> Certificates:
    """Have ``imqkeytool`` make an authority with a server's and a client's certificate in
    ``directory``.

    The client's key is an RSA key, because Ruby's client reads no other.

    :param client: the common name of the client's certificate.
    """
    for arguments in (
        ("server", "--dns", "localhost", "--ip", HOST),
        ("client", "--name", client, "--key", "rsa"),
    ):
        command = [sys.executable, "-m", "certs.command", *arguments, "--dir", str(directory)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise GatewayFailed(
                f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
    return Certificates(directory, client)


def heed_interrupts() -> None:
    """A shell that runs the tests in the background lets them, and so their children, ignore
    SIGINT.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class GatewayProcess:
    """One instance of the gateway, as a child process that can be ended and started again over the
    same files.

    :param varhome: the directory for its files.
    :param tls: listen with TLS as well; a copy of this key store becomes the instance's.
    :param require_client_certificate: refuse TLS clients without one.
    :param store: ``sqlite`` or ``memory``, for ``imq.persist.store``.
    :param settings: more settings, given by ``-D``; they win over those that the other parameters
        make.
    :param instance: the name of the instance.
    :param environment: the child's environment; None for this process's own. What is heeded before
        ``main``, but for LD_PRELOAD, needs a command.
    :param command: starts the gateway, as :data:`COMMAND` or with something in front of it; None to
        fork it from a process that has imported it.

    As a context manager it starts the gateway, and at the end kills what is left of it.
    """

    def __init__(
        self,
        varhome: Path,
        *,
        tls: Certificates | None = None,
        require_client_certificate: bool = False,
        store: str = "sqlite",
        settings: Mapping[str, str] | None = None,
        instance: str = INSTANCE,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        self.varhome = varhome
        self.instance = instance
        self.port = free_port()
        self.tls_port = free_port()
        self.port_mapper_port = free_port()
        self.tls = tls
        #: What was heard of the gateway since its last start, standard output and error together.
        self.output: list[str] = []
        self._environment = environment
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._reader: threading.Thread | None = None
        self._printed = threading.Condition()
        self._silent = True
        self._heard: int | None = None
        self._begun = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        made = {
            "imq.hostname": HOST,
            "imq.bridge.stomp.tcp.port": str(self.port),
            "imq.portmapper.port": str(self.port_mapper_port),
            "imq.persist.store": store,
            "imq.bridge.stomp.tls.enabled": "false",
            "imq.bridge.stomp.tls.port": str(self.tls_port),
            "imq.bridge.admin.port": "0",
        }
        if tls is not None:
            made |= {
                "imq.bridge.stomp.tls.enabled": "true",
                "imq.bridge.stomp.tls.requireClientAuth": "true"
                if require_client_certificate
                else "false",
            }
        self.settings = made | dict(settings or {})
        self._command = command

    def add_environment(self, variables: Mapping[str, str]) -> None:
        """Give the process these variables, too, from its next start on."""
        given = os.environ if self._environment is None else self._environment
        self._environment = {**given, **variables}

    @property
    def directory(self) -> Path:
        """The instance's own directory."""
        return self.varhome / "instances" / self.instance

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def said(self) -> str:
        """What the gateway has printed since its last start: all of it, up to now."""
        with self._printed:
            self._hear()
            return "".join(self.output)

    @property
    def log(self) -> str:
        """The text of the log files of the instance and its bridges, for messages of failed
        tests.
        """
        files = [*self.directory.glob("log/*.txt"), *self.directory.glob("bridges/*/*.log")]
        return "".join(path.read_text(errors="replace") for path in sorted(files))

    def launch(self) -> None:
        """Start the process and return at once, for tests of starts that fail."""
        if self._process is not None:
            raise RuntimeError("it is running")
        if self.tls is not None and not (self.directory / "etc" / "tls").exists():
            shutil.copytree(self.tls.directory, self.directory / "etc" / "tls")
        arguments = ["--varhome", str(self.varhome), "--instance", self.instance]
        arguments += [f"-D{name}={value}" for name, value in self.settings.items()]
        self.output = []
        self._silent = False
        self._begun = ""
        self._decoder.reset()
        environment = dict(os.environ if self._environment is None else self._environment)
        self._heard, says = os.pipe()
        self._reader = threading.Thread(target=self._read, args=(self._heard,), daemon=True)
        self._reader.start()
        try:
            if self._command is None:
                self._process = Forked(arguments, environment, says)
            else:
                self._process = subprocess.Popen(
                    [*self._command, *arguments],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=says,
                    stderr=says,
                    env=environment,
                    preexec_fn=heed_interrupts,
                )
        finally:
            os.close(says)

    def start(self) -> None:
        """Start the process and return once its port mapper names every port that it is to listen
        on.

        :raises GatewayFailed: it ended, or was not ready within :data:`PATIENCE`.
        """
        self.launch()
        wanted = (
            {self.port}
            if self.settings.get("imq.bridge.stomp.tcp.enabled", "true") == "true"
            else set()
        )
        if self.settings["imq.bridge.stomp.tls.enabled"] == "true":
            wanted.add(self.tls_port)
        until = time.monotonic() + PATIENCE
        while not wanted <= self.mapped_ports():
            if self._running().poll() is not None:
                raise GatewayFailed(
                    f"the gateway ended with {self.wait()} before it was ready:\n{self.said}"
                )
            if time.monotonic() > until:
                said = self.said
                self.kill()
                raise GatewayFailed(f"the gateway was not ready within {PATIENCE} s:\n{said}")
            with self._printed:  # a line of output is the likeliest sign that something has changed
                self._printed.wait(0.05)

    def mapped_ports(self) -> set[int]:
        """The ports of the STOMP bridge that the port mapper names now; none while nobody answers
        there.
        """
        try:
            with socket.create_connection(
                (HOST, self.port_mapper_port), timeout=PATIENCE
            ) as mapper:
                mapper.sendall(b"101\n")
                answer = b"".join(iter(lambda: mapper.recv(4096), b""))
        except OSError:
            return set()
        entries = [line.split() for line in answer.decode("ascii").splitlines()]
        return {int(entry[3]) for entry in entries if entry[2:3] == ["stomp[bridge]"]}

    def wait_for_output(self, text: str) -> None:
        """Wait until the gateway has printed ``text``.

        :raises GatewayFailed: its output ended without it, or it did not come within
            :data:`PATIENCE`.
        """
        with self._printed:
            self._printed.wait_for(lambda: self._silent or text in "".join(self.output), PATIENCE)
            if text not in "".join(self.output):
                raise GatewayFailed(f"{text!r} was never printed:\n{''.join(self.output)}")

    def wait(self, patience: float = PATIENCE) -> int:
        """Wait for the process's end.

        :returns: its exit status, negative for a signal.

        :raises GatewayFailed: it runs on for more than ``patience`` seconds; then it is killed.
        """
        process = self._running()
        try:
            status = process.wait(patience)
        except subprocess.TimeoutExpired:
            said = self.said
            self.kill()
            raise GatewayFailed(f"the gateway did not end within {patience} s:\n{said}") from None
        assert self._reader is not None
        self._reader.join()
        self._process = None
        return status

    def terminate(self) -> int:
        """End it in an orderly way, by SIGTERM. :returns: its exit status."""
        self._running().send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End it without a chance to do anything, by SIGKILL.

        Nothing when it is not running.
        """
        if self._process is not None:
            self._process.kill()
            self.wait()

    def signal(self, number: signal.Signals) -> None:
        self._running().send_signal(number)

    def restart(self, *, crash: bool = False) -> None:
        """Start it again over the same files and ports, after SIGTERM, or after SIGKILL if
        ``crash``.
        """
        if crash:
            self.kill()
        else:
            self.terminate()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def _running(self) -> subprocess.Popen[bytes] | Forked:
        if self._process is None:
            raise RuntimeError("it is not running")
        return self._process

    def _read(self, heard: int) -> None:
        """On a thread of its own: hear what it prints, until the end."""
        waiting = select.poll()
        waiting.register(heard, select.POLLIN)
        while not self._silent:
            waiting.poll()
            with self._printed:
                self._hear()
        with self._printed:
            self._heard = None
            os.close(heard)

    def _hear(self) -> None:
        """Take the lines that it has printed by now. The lock is held."""
        if self._heard is None:
            return
        ready = select.poll()
        ready.register(self._heard, select.POLLIN)
        while not self._silent and ready.poll(0):
            octets = os.read(self._heard, 65536)
            self._silent = not octets
            self._begun += self._decoder.decode(octets, final=self._silent)
            # Whole lines only, as a part of one could be mistaken for it.
            whole, end, self._begun = self._begun.rpartition("\n")
            self.output.append(whole + end)
            if self._silent:
                self.output.append(self._begun)
        self._printed.notify_all()
