"""What systemd and the process tell each other.

Two protocols of ``sd_notify(3)`` and ``sd_listen_fds(3)``, which other supervisors speak, too:

* The process tells its state by datagrams to the socket that ``NOTIFY_SOCKET`` names.
* It is given sockets that listen already, from descriptor 3 on, as ``LISTEN_FDS`` and
  ``LISTEN_FDNAMES`` say.

Owns both forms, and that the variables are taken out of the environment, so that no child process
takes them for its own. Twisted reads ``LISTEN_FDS``, too; of several sockets with one name, as
``ListenStream=`` twice in one unit gives, it keeps only the last.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from twisted.internet.task import LoopingCall
from twisted.logger import Logger

#: The first descriptor that is given.
FIRST: Final = 3
#: How often the status is told, where it has changed, in seconds.
STATUS_SECONDS: Final = 5.0
#: Seconds by which the timeout of a start is moved on at a time, and how often that is done.
EXTENSION_SECONDS: Final = 60
EXTEND_EVERY_SECONDS: Final = 15.0

_log: Final = Logger(namespace="gateway.systemd")

#: By name, the sockets that this process was given. There is one process, so there is one table.
_given: Final[dict[str, list[socket.socket]]] = {}
_used: Final[set[str]] = set()


class SocketsRefused(Exception):
    """A given socket cannot be used; ``str`` says which, and why."""


# --- sockets


def take_sockets(
    environment: MutableMapping[str, str], pid: int | None = None, first: int = FIRST
) -> None:
    """Take the listening sockets that the environment says are there.

    They are found by :func:`given_sockets` afterwards, and stay open for as long as the process
    runs. The variables are removed. Does nothing where they are for another process.

    :param pid: of this process; None asks the system.
    :param first: the first descriptor.
    :raises SocketsRefused: the variables contradict each other, or a descriptor is not a TCP socket
        that listens.
    """
    found = {name: environment.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS")}
    names = environment.pop("LISTEN_FDNAMES", "")
    if found["LISTEN_PID"] != str(os.getpid() if pid is None else pid):
        return
    if not found["LISTEN_FDS"].isdecimal():
        raise SocketsRefused(f"LISTEN_FDS is {found['LISTEN_FDS']!r}; expected a number")
    count = int(found["LISTEN_FDS"])
    called = names.split(":") if names else []
    if len(called) != count:
        raise SocketsRefused(
            f"{count} sockets were given, and {len(called)} names in LISTEN_FDNAMES; "
            "expected FileDescriptorName= in each socket unit"
        )
    for descriptor, name in enumerate(called, first):
        _given.setdefault(name, []).append(_listening(descriptor, name))


def _listening(descriptor: int, name: str) -> socket.socket:
    expected = "expected a TCP socket that listens: ListenStream= with a port, and Accept=no"
    try:
        os.set_inheritable(descriptor, False)
        # It stays open, and the number is not used for anything else.
        given = socket.socket(fileno=descriptor)
        listens = given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise SocketsRefused(
            f"descriptor {descriptor}, the socket {name}: {error.strerror}; {expected}"
        ) from error
    if not listens or given.family not in (socket.AF_INET, socket.AF_INET6):
        given.detach()
        raise SocketsRefused(f"descriptor {descriptor}, the socket {name}: {expected}")
    given.setblocking(False)
    return given


def given_sockets(service: str) -> tuple[socket.socket, ...]:
    """Return the sockets that were given for a service.

    Empty where the service is to bind its own.

    :param service: as the port mapper and ``imqcmd list svc`` call it.
    """
    if service in _given:
        _used.add(service)
    return tuple(_given.get(service, ()))


def log_unused_sockets() -> None:
    """Warn of sockets that were given and that no service has asked for yet."""
    for name in sorted(_given.keys() - _used):
        _log.warn("the socket {name} was given, and no service has that name", name=name)


# --- state


class Notifier:
    """Tells a supervisor the state of this process.

    :param address: a path, or ``@`` and an abstract name; "" tells nothing to no one.
    """

    def __init__(self, address: str) -> None:
        self._address: Final = _socket_address(address)
        self._failed = False

    def __bool__(self) -> bool:
        """Whether a supervisor listens."""
        return self._address is not None

    def tell(self, **state: object) -> None:
        """Send assignments, such as ``READY=1``, in one datagram.

        Does not block. What cannot be delivered is lost; the log says so the first time.
        """
        if self._address is None:
            return
        text = "\n".join(f"{name}={_line(value)}" for name, value in state.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sending:
                sending.setblocking(False)
                sending.sendto(text.encode(), self._address)
        except OSError as error:
            if not self._failed:
                self._failed = True
                _log.warn("the supervisor cannot be told the state: {error}", error=error)
        else:
            self._failed = False


def _socket_address(address: str) -> str | None:
    if address.startswith("@"):
        return "\0" + address[1:]
    if address and not address.startswith("/"):
        _log.warn(
            "NOTIFY_SOCKET is {address}; expected a path, or @ and a name", address=repr(address)
        )
        return None
    return address or None


def _line(value: object) -> str:
    """Return a value in one line; the form has no way to write two."""
    return " ".join(str(value).split())


class Supervised:
    """The life of the process, told to its supervisor.

    Every method does nothing where there is no supervisor.

    :param environment: ``NOTIFY_SOCKET`` and the watchdog's variables are taken from it, and
        removed.
    :param status: what the process does now, a sentence; asked for every few seconds.
    """

    def __init__(
        self, reactor: Any, environment: MutableMapping[str, str], status: Callable[[], str]
    ) -> None:
        self._status: Final = status
        self._notifier: Final = Notifier(environment.pop("NOTIFY_SOCKET", ""))
        self._watchdog_seconds: Final = watchdog_seconds(environment)
        for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
            environment.pop(name, None)
        self._told = ""
        self._begun = self._ended = False
        self._beats: Final = LoopingCall(self._beat)
        self._looks: Final = LoopingCall(self._look)
        self._beats.clock = self._looks.clock = reactor

    def starting(self, what: str) -> None:
        """Tell that the process starts. :param what: it does first, a sentence."""
        self._notifier.tell(STATUS=what)

    def ready(self) -> None:
        """Tell that it serves, or stands by.

        From now on the reactor feeds the watchdog.
        """
        if not self._begun:
            self._begun = True
            log_unused_sockets()
        if not self._notifier or self._ended:
            return
        self._told = self._status()
        self._notifier.tell(READY=1, STATUS=self._told)
        if not self._looks.running:
            self._looks.start(STATUS_SECONDS, now=False)
        if self._watchdog_seconds and not self._beats.running:
            # sd_watchdog_enabled(3) recommends half of the time.
            self._beats.start(self._watchdog_seconds / 2)

    def reloading(self, reload: Callable[[], None]) -> Callable[[], None]:
        """Return what tells that files are read again, and calls ``reload``.

        :meth:`reloaded` is to be called once they were.
        """

        def begin() -> None:
            if self._looks.running:
                now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
                self._notifier.tell(RELOADING=1, MONOTONIC_USEC=now // 1000)
            reload()

        return begin

    def reloaded(self) -> None:
        """Tell that what :meth:`reloading` began is done."""
        if self._looks.running:
            self.ready()

    def stopping(self) -> None:
        """Tell that it ends. The watchdog is fed until it has."""
        if self._ended:
            return
        self._ended = True
        if self._looks.running:
            self._looks.stop()
        self._notifier.tell(STOPPING=1, STATUS="ending")

    def close(self) -> None:
        """Stop feeding the watchdog."""
        for call in (self._beats, self._looks):
            if call.running:
                call.stop()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Answer for the reactor while the body keeps it busy.

        Opening a large store does that.

        Before the process is ready the time for its start is extended, afterwards the watchdog is
        fed.
        """
        if not self._notifier:
            yield
            return
        over = threading.Event()
        beating = threading.Thread(
            target=self._beat_beside, args=(over,), name="supervisor", daemon=True
        )
        beating.start()
        try:
            yield
        finally:
            over.set()
            beating.join()

    def _beat_beside(self, over: threading.Event) -> None:
        every = EXTEND_EVERY_SECONDS
        if self._watchdog_seconds:
            every = min(every, self._watchdog_seconds / 2)
        while True:
            self._notifier.tell(EXTEND_TIMEOUT_USEC=EXTENSION_SECONDS * 1_000_000, WATCHDOG=1)
            if over.wait(every):
                return

    def _beat(self) -> None:
        self._notifier.tell(WATCHDOG=1)

    def _look(self) -> None:
        status = self._status()
        if status != self._told:
            self._told = status
            self._notifier.tell(STATUS=status)


def watchdog_seconds(environment: Mapping[str, str], pid: int | None = None) -> float:
    """Return how many seconds the watchdog waits; 0 without one.

    :param pid: of this process; None asks the system.
    """
    own = str(os.getpid() if pid is None else pid)
    with suppress(ValueError):
        if environment.get("WATCHDOG_PID", own) == own:
            return max(0, int(environment.get("WATCHDOG_USEC", "0"))) / 1_000_000
    return 0.0
