"""The ports that a bridge's listeners have open.

Owns which are open, which an operator has paused, and what the port mapper says of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

from twisted.internet.defer import DeferredList, DeferredLock, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.logger import Logger

from gateway.instance.listening import server_endpoint
from gateway.stomp.listeners import Listener
from gateway.stomp.proxies import ProxiedFactory
from gateway.stomp.transport.tls import NoTLS, tls_factory

#: Connections that may wait to be accepted.
_BACKLOG: Final = 511


class RegisterPort(Protocol):
    """The port mapper's ``register``.

    It announces a port, and gives the function that takes it back.
    """

    def __call__(self, name: str, protocol: str, type: str, port: int) -> Callable[[], None]: ...


class UnknownListener(Exception):
    """There is no listener of that name. :param service: that was asked for."""

    def __init__(self, service: str) -> None:
        super().__init__(f"there is no service {service}")


class ListenersRefused(Exception):
    """Where to listen the settings do not say; a line for each reason."""


class ListenerFailed(Exception):
    """A listener cannot be opened."""

    def __init__(self, service: str, reason: object) -> None:
        super().__init__(f"service {service} cannot be opened: {reason}")


@dataclass(frozen=True, slots=True)
class ListenerView:
    """One listener as operators see it.

    :param service: what ``imqcmd`` calls it.
    :param port: that it has, or had when it was open last; 0 if it never had one.
    :param chosen: the system chose that port.
    :param address: that it listens on; empty is everything.
    :param protocol: such as ``stomp[WSS]``.
    :param state: ``RUNNING``, ``PAUSED`` by an operator, or ``STOPPED``.
    :param problem: why it could not be opened; empty if it could.
    """

    service: str
    port: int
    chosen: bool
    address: str
    protocol: str
    state: str
    problem: str


class OpenListeners:
    """The listeners of a bridge, open or not.

    :param reactor: listens, and is the clock.
    :param listeners: where to listen.
    :param factory: gives what makes the connections of one of them.
    :param connect_timeout_s: how long a proxy may take to say who the client is.
    :param tls_contexts: gives what makes TLS connections for one, or raises
        :class:`~gateway.stomp.transport.tls.NoTLS`; None: none can speak TLS.
    :param register_port: announces the ports to the port mapper, or None.
    """

    def __init__(
        self,
        reactor: Any,
        listeners: Sequence[Listener],
        factory: Callable[[Listener], IProtocolFactory],
        connect_timeout_s: float,
        tls_contexts: Callable[[Listener], Any] | None,
        register_port: RegisterPort | None,
        log: Logger,
    ) -> None:
        self._reactor: Final = reactor
        self._factory: Final = factory
        self._connect_timeout_s: Final = connect_timeout_s
        self._tls_contexts: Final = _no_tls if tls_contexts is None else tls_contexts
        self._register_port: Final = register_port
        self._log: Final = log
        self._listeners: Mapping[str, Listener] = {one.name: one for one in listeners}
        #: By the names of listeners: what is open, and what takes a port back from the port mapper.
        self._open: dict[str, IListeningPort] = {}
        self._unregister: dict[str, Callable[[], None]] = {}
        self._paused: set[str] = set()
        self._problems: dict[str, str] = {}
        #: Those that are not paused are to be open.
        self._wanted = False
        self._changes: Final = DeferredLock()
        #: The ports that are in use, by the names of listeners; those that the system chose where 0
        #: was asked for. One that is closed for a while keeps its own.
        self.ports: dict[str, int] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._listeners)

    @property
    def said(self) -> list[str]:
        """Where they listen, a line for each that has a port now."""
        return [
            one.said(self.ports[name])
            for name, one in self._listeners.items()
            if name in self.ports
        ]

    def views(self) -> list[ListenerView]:
        """The listeners as operators see them."""
        return [
            ListenerView(
                one.service,
                self.ports.get(name, one.port),
                not one.port,
                one.address,
                one.protocol,
                "RUNNING"
                if name in self._open
                else "PAUSED"
                if name in self._paused
                else "STOPPED",
                self._problems.get(name, ""),
            )
            for name, one in self._listeners.items()
        ]

    def websockets(self) -> list[tuple[Listener, ListenerView]]:
        """Those that take STOMP over WebSocket, open or not."""
        both = zip(self._listeners.values(), self.views(), strict=True)
        return [(one, view) for one, view in both if one.websocket is not None]

    async def open(self) -> None:
        """Open all, also those that were paused.

        :raises CannotListenError, NoTLS: one cannot be opened; then none is.
        """
        self._wanted = True
        self.ports = {}
        self._problems = {}
        self._paused = set()
        try:
            for listener in self._listeners.values():
                await self._listen(listener)
            for name in self._open:
                self._announce(self._listeners[name])
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close all, and take them back from the port mapper."""
        for name in [*self._unregister]:
            self._withdraw(name)
        await self.suspend()

    async def suspend(self) -> None:
        """Close all for a while; the port mapper goes on to tell of them."""
        self._wanted = False
        ports, self._open = self._open, {}
        await DeferredList([maybeDeferred(port.stopListening) for port in ports.values()])

    async def go_on(self) -> None:
        """Open what was open before :meth:`suspend`.

        What could not be opened then is tried.

        :raises CannotListenError, NoTLS: one that was open cannot be opened; then none is.
        """
        self._wanted = True
        try:
            for listener in self._listeners.values():
                if listener.name in self._paused:
                    continue
                # What had no port before the pause keeps no other from going on.
                if listener.name in self.ports:
                    await self._listen(listener)
                else:
                    await self._could_listen(listener)
                if listener.name in self._open:
                    self._announce(listener)
        except BaseException:
            await self.suspend()
            raise

    async def pause(self, service: str) -> None:
        """Close one until :meth:`resume`, or until all are opened anew.

        :raises UnknownListener: none has that name.
        """
        async with self._changes:
            name = self._named(service).name
            self._paused.add(name)
            await self._close(name)
            self._log.info("service {service} is paused", service=service)

    async def resume(self, service: str) -> None:
        """Open one that was paused, or could not be opened.

        Where all are closed it is opened with them.

        :raises UnknownListener: none has that name.
        :raises ListenerFailed: it cannot be opened.
        """
        async with self._changes:
            listener = self._named(service)
            self._paused.discard(listener.name)
            if not self._wanted or listener.name in self._open:
                return
            if not await self._could_listen(listener):
                raise ListenerFailed(service, self._problems[listener.name])
            self._settle(listener)

    async def change(self, listeners: Sequence[Listener]) -> None:
        """Have these, and no others.

        Those that are as they were stay as they are. One that cannot be opened is told to the log,
        and is tried again at the next start.
        """
        async with self._changes:
            await self._change({one.name: one for one in listeners})

    async def _change(self, wanted: Mapping[str, Listener]) -> None:
        for name, old in self._listeners.items():
            if wanted.get(name) != old:
                await self._close(name)
                self.ports.pop(name, None)
                self._problems.pop(name, None)
                if name not in wanted:
                    self._paused.discard(name)
                self._log.info("listener {name} is closed", name=name)
        self._listeners = wanted
        for listener in wanted.values():
            if not self._wanted:
                return
            if listener.name in self._open or listener.name in self._paused:
                continue
            if await self._could_listen(listener):
                self._settle(listener)

    def _named(self, service: str) -> Listener:
        for listener in self._listeners.values():
            if listener.service == service:
                return listener
        raise UnknownListener(service)

    def _settle(self, listener: Listener) -> None:
        """Announce one that was opened beside others."""
        self._announce(listener)
        self._log.info("{said}", said=listener.said(self.ports[listener.name]))

    async def _listen(self, listener: Listener) -> None:
        """Open a listener's port, the one of before if it had one.

        :raises CannotListenError: the port is taken.
        :raises NoTLS: there is nothing to make TLS connections with.
        """
        factory: Any = self._factory(listener)
        if listener.tls:
            factory = tls_factory(self._tls_contexts(listener), factory, self._reactor)
        if listener.proxies:
            # Those that speak HTTP have another way to say it.
            factory = ProxiedFactory(
                factory,
                listener.proxies,
                self._reactor,
                self._connect_timeout_s,
                listener.websocket is None,
            )
        port = self.ports.get(listener.name, listener.port)
        listening = await server_endpoint(
            self._reactor, listener.address, port, _BACKLOG, listener.service
        ).listen(factory)
        if not self._wanted:
            # All were closed meanwhile.
            await maybeDeferred(listening.stopListening)
            return
        self._problems.pop(listener.name, None)
        self._open[listener.name] = listening
        address: Any = listening.getHost()
        self.ports[listener.name] = address.port

    async def _could_listen(self, listener: Listener) -> bool:
        """Open a listener's port.

        :returns: False: it is not open. If it cannot be the log says so.
        """
        try:
            await self._listen(listener)
        except (CannotListenError, NoTLS) as error:
            self._problems[listener.name] = str(error)
            self._log.error(
                "listener {name} is not opened: {error}", name=listener.name, error=error
            )
        return listener.name in self._open

    def _announce(self, listener: Listener) -> None:
        if self._register_port is not None and listener.name not in self._unregister:
            name, port = f"{listener.service}[bridge]", self.ports[listener.name]
            self._unregister[listener.name] = self._register_port(
                name, listener.protocol, "stomp[bridge]", port
            )

    def _withdraw(self, name: str) -> None:
        remove = self._unregister.pop(name, None)
        if remove is not None:
            remove()

    async def _close(self, name: str) -> None:
        self._withdraw(name)
        port = self._open.pop(name, None)
        if port is not None:
            await maybeDeferred(port.stopListening)


def _no_tls(listener: Listener) -> NoReturn:
    raise NoTLS(f"listener {listener.name} speaks TLS, and there are no certificates")
