"""Real brokers for tests, each started once in a test run.

ActiveMQ has OpenWire and STOMP in one process, RabbitMQ STOMP and AMQP 1.0.

Owns when they start and end. How each is started is :mod:`benchmarks.peers`' to know, which
measures the same servers. A test that needs one starts it here; it is never skipped because the
server is missing. Data are in a temporary folder, which goes with the server.

Starting blocks for some seconds; from a coroutine call :func:`started` with
:func:`twisted.internet.threads.deferToThread`.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

from benchmarks import peers
from tests.gateway_process import free_port

AnyPeer = TypeVar("AnyPeer", bound=peers.Peer)

__all__ = ["ActiveMQ", "RabbitMQ", "WithoutScheduler", "activemq", "rabbitmq", "started"]


class ActiveMQ(peers.ActiveMQ):
    """ActiveMQ Classic, with OpenWire for JMS clients besides STOMP.

    Needs no login.

    :ivar openwire_port: where it listens for OpenWire on 127.0.0.1.
    """

    #: Most end soon: less work for the compiler than it would save.
    options = (*peers.ActiveMQ.options, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    scheduler = True

    def __init__(self, folder: Path, tls: bool = False) -> None:
        super().__init__(folder, tls)
        # Ports that the system does not hand out for outgoing connections meanwhile.
        self.port, self.tls_port, self.openwire_port = free_port(), free_port(), free_port()

    def listeners(self) -> list[str]:
        return [f"tcp://127.0.0.1:{self.openwire_port}", *super().listeners()]


class WithoutScheduler(ActiveMQ):
    """Delivers nothing later, and so does not read properties."""

    scheduler = False


class RabbitMQ(peers.RabbitMQ):
    """RabbitMQ with its plugins for STOMP and AMQP 1.0; guest/guest, virtual host ``/``."""

    plugins = (*peers.RabbitMQ.plugins, "rabbitmq_amqp1_0")

    def __init__(self, folder: Path, tls: bool = False) -> None:
        super().__init__(folder, tls)
        self.port, self.tls_port, self.amqp_tls_port = free_port(), free_port(), free_port()

    def configuration(self) -> list[str]:
        tls = [f"listeners.ssl.default = 127.0.0.1:{self.amqp_tls_port}"] if self.tls else []
        return [*super().configuration(), *tls]

    def sync_queues(self) -> None:
        """Write the declarations of all queues to disk.

        RabbitMQ does so some seconds after it has told the client. A queue whose declaration was
        lost by SIGKILL loses its confirmed messages too.
        """
        assert self.evaluate("mnesia:sync_log().") == "ok"

    def declare_exchanges(self, types: Mapping[str, str], *bindings: tuple[str, str, str]) -> None:
        """Make durable exchanges, as an operator does.

        :param types: by name.
        :param bindings: of an exchange, with these keys, to another one.
        """
        made = [
            f'rabbit_exchange:declare({_exchange(name)},{kind},true,false,false,[],<<"guest">>)'
            for name, kind in types.items()
        ]
        made += [
            f'rabbit_binding:add({{binding,{_exchange(source)},<<"{key}">>,{_exchange(target)},[]}},<<"guest">>)'
            for source, key, target in bindings
        ]
        assert self.evaluate(f"{','.join(made)}, ok.") == "ok"

    def evaluate(self, expression: str) -> str:
        """Return what an expression of Erlang's is there."""
        command = [
            "/usr/lib/rabbitmq/bin/rabbitmqctl",
            "--node",
            "peer@localhost",
            "eval",
            expression,
        ]
        done = subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout.strip()


def _exchange(name: str) -> str:
    return f'{{resource,<<"/">>,exchange,<<"{name}">>}}'


_running: Final[dict[type[peers.Peer], peers.Peer]] = {}
_starting: Final = threading.Lock()


def started(server: type[AnyPeer]) -> AnyPeer:
    """The one server of this class that this test run shares, started by the first who asks and
    stopped when the run ends.

    May be called from any thread.

    :raises NotInstalled, NotReady: of :mod:`benchmarks.peers`, which say what is missing or what
        the server printed.
    """
    with _starting:
        found = _running.get(server)
        if isinstance(found, server) and found.running():
            return found
        folder = Path(tempfile.mkdtemp(prefix=f"{server.__name__.lower()}-"))
        made = server(folder, tls=True)
        atexit.register(_end, made, folder)
        made.start()
        _running[server] = made
        return made


def activemq() -> ActiveMQ:
    """This test run's ActiveMQ."""
    return started(ActiveMQ)


def rabbitmq() -> RabbitMQ:
    """This test run's RabbitMQ."""
    return started(RabbitMQ)


def _end(server: peers.Peer, folder: Path) -> None:
    # What it holds is of no use any more, so it need not end in order.
    server.kill()
    shutil.rmtree(folder, ignore_errors=True)
