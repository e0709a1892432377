"""Gateways that are forked from a process which has imported what they need: that takes a third of
the time, and there are hundreds.

Owns that process and its children, of which each runs ``gateway.command.main`` and ends as an
interpreter does. How modules are imported these do not show: :mod:`tests.test_process` and
:mod:`tests.test_process_bridges` start the command as its users do.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

#: Whatever takes long to import and leaves the choice of a reactor open, as no two processes may
#: share one.
_IMPORTED: Final = (
    "argon2",
    "bridge.config.model",
    "bridge.manager",
    "bridge.jms_link",
    "bridge.xa.xids",
    "certs.contexts",
    "gateway.bridges",
    "gateway.broker.operator.xa_administration",
    "gateway.broker.sessions.provider",
    "gateway.broker.recovery",
    "gateway.broker.store.sqlite",
    "gateway.broker.store.memory",
    "gateway.configuration",
    "gateway.instance.portmapper",
    "gateway.opened_broker",
    "gateway.tls",
    "prometheus_client.core",
    "twisted.application.service",
    "twisted.internet.epollreactor",
    "twisted.internet.ssl",
    "twisted.python.usage",
    "twisted.web.server",
    "twisted.web.template",
    "werkzeug.routing",
    "werkzeug.wrappers",
)
#: Octets of a pid, and of how a child has ended.
_NUMBER: Final = 4
#: Octets of a request: the arguments and the environment.
_MOST: Final = 1 << 20
#: Of the environment, this is heeded before a process has any of its own: each value has an origin.
_PRELOADED: Final = "LD_PRELOAD"


class Forked:
    """One child, with as much of :class:`subprocess.Popen` as
    :class:`~tests.gateway_process.GatewayProcess` needs.
    """

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], output: int
    ) -> None:
        self._told, theirs = socket.socketpair()
        self._origin = _origin(environment.get(_PRELOADED, ""))
        with theirs:
            request = json.dumps({"arguments": list(arguments), "environment": dict(environment)})
            self._origin.ask(request, [theirs.fileno(), output])
        told, files, _, _ = socket.recv_fds(self._told, _NUMBER, 1)
        self.pid = self._number(told)
        #: By its pid a process that has just ended would be mistaken for another.
        (self._process,) = files
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._ended()
        return self.returncode

    def wait(self, timeout: float) -> int:
        """:raises subprocess.TimeoutExpired: it runs on."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked gateway", timeout)
            self._ended()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing, where it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self) -> None:
        self.returncode = self._number(self._told.recv(_NUMBER))
        self._told.close()
        os.close(self._process)

    def _number(self, told: bytes) -> int:
        if len(told) != _NUMBER:
            raise RuntimeError(
                f"the process that forks gateways has ended with {self._origin.process.poll()}"
            )
        return int.from_bytes(told, "big", signed=True)


class _Origin:
    """The process that they are forked from, for as long as this one lives.

    :param preloaded: the libraries that the dynamic linker loads into it first.
    """

    def __init__(self, preloaded: str) -> None:
        self._asks, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asks.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST)
        self._asking = threading.Lock()
        with theirs:
            command = [sys.executable, "-m", "tests.forked", str(theirs.fileno())]
            folder = Path(__file__).parents[1]
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, _PRELOADED: preloaded},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def ask(self, request: str, files: Sequence[int]) -> None:
        with self._asking:
            socket.send_fds(self._asks, [request.encode()], files)


_made: Final[dict[str, _Origin]] = {}
_making: Final = threading.Lock()


def _origin(preloaded: str) -> _Origin:
    with _making:
        if preloaded not in _made:
            _made[preloaded] = _Origin(preloaded)
        return _made[preloaded]


def _serve(asks: socket.socket) -> list[str]:
    """Fork a child for each request.

    :returns: in each child, its arguments; in this process never, as it ends with who asks.
    """
    for name in _IMPORTED:
        importlib.import_module(name)
    if "twisted.internet.reactor" in sys.modules:
        raise RuntimeError("a reactor was imported, which all children would share")
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    living: dict[int, socket.socket] = {}
    woken, wakes = os.pipe()
    for end in (woken, wakes):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wakes)
    while True:
        ready = select.select([asks.fileno(), woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            _reap(living)
        if asks.fileno() not in ready:
            continue
        request, files, _, _ = socket.recv_fds(asks, _MOST, 2)
        if not request:
            sys.exit()
        told = socket.socket(fileno=files[0])
        child = os.fork()
        if not child:
            signal.set_wakeup_fd(-1)
            for end in (woken, wakes, *(one.detach() for one in (asks, told, *living.values()))):
                os.close(end)
            return _become(files[1], **json.loads(request))
        os.close(files[1])
        living[child] = told
        process = os.pidfd_open(child)
        _tell(told, child, process)
        os.close(process)


def _reap(living: dict[int, socket.socket]) -> None:
    while living:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        with living.pop(child) as told:
            _tell(told, os.waitstatus_to_exitcode(status))


def _tell(told: socket.socket, number: int, *files: int) -> None:
    with suppress(BrokenPipeError):  # Nobody waits for it any more.
        socket.send_fds(told, [number.to_bytes(_NUMBER, "big", signed=True)], files)


def _become(output: int, arguments: list[str], environment: dict[str, str]) -> list[str]:
    """As a process that was started so."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for file, number in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(file, number)
    for file in (nothing, output):
        os.close(file)
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGCHLD, signal.SIG_DFL),
    ):
        signal.signal(number, handler)
    os.environ.clear()
    os.environ.update(environment)
    return arguments


if __name__ == "__main__":
    sys.argv[1:] = _serve(socket.socket(fileno=int(sys.argv[1])))
    from gateway.command import main

    main()
