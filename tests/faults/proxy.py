"""The network between two processes, as a test wants it: a TCP proxy on the loopback that is told
at run time what to do to what passes.

Owns the sockets and a thread with an event loop of its own, so that neither the gateway under test,
which is another process, nor the test's reactor can disturb it. Knows no protocol: a test says by
which octets it recognises the moment.

What is done to connections is done to those that there are; the next one passes as if nothing had
been, unless :meth:`Proxy.refuse`, :meth:`Proxy.swallow` or :meth:`Proxy.cut` is in force.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Final, Self, TypeVar, cast

from tests.gateway_process import HOST, free_port

#: How long a command to the proxy, or a fault that is waited for, may take, in seconds.
PATIENCE: Final = 120.0
#: Octets before a chunk in which a pattern may begin.
_LONGEST_PATTERN: Final = 4096
#: Octets that may wait for a receiver before the sender is read no more.
_MOST_WAITING: Final = 1 << 20

T = TypeVar("T")


class Toward(Enum):
    """A direction: to the server, or to the client that connected."""

    SERVER = "to the server"
    CLIENT = "to the client"


class Fault(Enum):
    """What happens to a connection."""

    #: RST to both sides.
    DROP = "drop"
    #: FIN to the one toward whom nothing goes any more; what comes from there still passes, until
    #: it closes, too.
    HALF_CLOSE = "half-close"
    #: Nothing passes any more in either direction; both sides are read, and neither is told.
    SILENCE = "silence"
    #: Nothing. For what a trigger does besides.
    NONE = "none"


@dataclass
class Trigger:
    """A fault that waits for its moment, which comes once.

    :param toward: whose octets are watched. :param pattern: a regular expression for at most 4096
        octets.
    :param nth: at which match, counted over all connections from when the trigger was set.
    :param after: whether what matches still passes; if not, what follows the octet before it does
        not.
    :param fault: what then happens to the connection.
    :param then: called on the proxy's thread at that moment, before the fault; all traffic waits
        for it.
    :param allowed: the moment waits until this is set, and all traffic with it. For a fault that is
        set while its victim still starts.
    :ivar fired: set when it has happened.
    """

    toward: Toward
    pattern: bytes
    fault: Fault
    nth: int = 1
    after: bool = True
    then: Callable[[], None] | None = None
    allowed: threading.Event | None = None
    fired: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Wait until it has happened. :raises AssertionError: it did not in time."""
        assert self.fired.wait(PATIENCE), (
            f"{self.pattern!r} number {self.nth} never passed {self.toward.value}"
        )


class Proxy:
    """Relays connections from a port of its own to another one of the loopback.

    :param target: the server's port. :ivar port: to connect to. As a context manager it ends with
        the block.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = free_port()
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._pairs: set[_Pair] = set()
        self._triggers: list[_Armed] = []
        self._delay = 0.0
        self._swallows = False
        self._is_cut = False
        self._made = 0
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"proxy to {target}", daemon=True
        )
        self._thread.start()
        self.admit()

    @property
    def connections(self) -> int:
        """How many have been made so far."""
        return self._made

    def when(self, trigger: Trigger) -> Trigger:
        """Set a trigger. Several may wait at a time."""
        self._do(lambda: self._triggers.append(_Armed(trigger)))
        return trigger

    def drop(self) -> None:
        """Every connection is reset, on both sides."""
        self._await(lambda: self._all(Fault.DROP, Toward.CLIENT))

    def half_close(self, toward: Toward) -> None:
        """Nothing goes this way any more, and who is there reads the end."""
        self._await(lambda: self._all(Fault.HALF_CLOSE, toward))

    def silence(self) -> None:
        """What connections there are carry nothing any more."""
        self._await(lambda: self._all(Fault.SILENCE, Toward.CLIENT))

    def delay(self, seconds: float) -> None:
        """All octets arrive so much later, both ways, from now on; 0 ends it.

        Order is kept.
        """

        def change() -> None:
            self._delay = seconds

        self._do(change)

    def swallow(self, swallows: bool = True) -> None:
        """Connections are accepted from now on, and their octets go nowhere; or, with False, pass
        again.
        """

        def change() -> None:
            self._swallows = swallows

        self._do(change)

    def cut(self) -> None:
        """Nothing passes from now on, as when a cable is pulled; no side is told.

        Connections stay, new ones are accepted and hang. What is sent meanwhile waits in the
        system's buffers: :meth:`heal` delivers it late. :meth:`silence` and :meth:`swallow` lose it.
        """

        def change() -> None:
            self._is_cut = True
            for pair in self._pairs:
                pair.obey()

        self._do(change)

    def heal(self) -> None:
        """Let pass what waits since :meth:`cut`, and what follows."""

        def change() -> None:
            self._is_cut = False
            for pair in list(self._pairs):
                if pair.server is None and pair.opening is None and not pair.silent:
                    pair.opening = self._loop.create_task(pair.open())
                pair.obey()

        self._do(change)

    def refuse(self) -> None:
        """Connections are refused, from now on. Those that there are stay."""

        async def stop() -> None:
            if self._server is not None:
                self._server.close()
                self._server = None

        self._await(stop)

    def admit(self) -> None:
        """Connections are accepted, as they are at first."""

        async def listen() -> None:
            if self._server is None:
                self._server = await self._loop.create_server(
                    lambda: _Accepted(self), HOST, self.port
                )

        self._await(listen)

    def close(self) -> None:
        """End everything."""
        if self._thread.is_alive():
            self.refuse()
            self.drop()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE)
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- on the thread

    async def _all(self, fault: Fault, toward: Toward) -> None:
        for pair in list(self._pairs):
            if pair.opening is not None:
                await pair.opening
            pair.suffer(fault, toward)

    def _connected(self, accepted: _Accepted) -> None:
        self._made += 1
        pair = _Pair(self, accepted)
        self._pairs.add(pair)
        if self._swallows:
            pair.silent = True
        elif not self._is_cut:
            pair.opening = self._loop.create_task(pair.open())

    def _passing(self, pair: _Pair, toward: Toward, data: bytes) -> None:
        """Octets have come: pass them on, up to where a trigger fires."""
        for armed in list(self._triggers):
            cut = armed.met(toward, data, pair)
            if cut is None:
                continue
            self._triggers.remove(armed)
            trigger = armed.trigger
            if trigger.fault is not Fault.NONE:
                pair.write(toward, data[:cut])
            if trigger.allowed is not None:
                assert trigger.allowed.wait(PATIENCE), (
                    f"{trigger.pattern!r} has come, and was never allowed to have its effect"
                )
            if trigger.then is not None:
                trigger.then()
            pair.suffer(trigger.fault, toward)
            trigger.fired.set()
            if trigger.fault is not Fault.NONE:
                return
        pair.write(toward, data)

    # --- from other threads

    def _do(self, work: Callable[[], None]) -> None:
        async def working() -> None:
            work()

        self._await(working)

    def _await(self, work: Callable[[], object]) -> None:
        asyncio.run_coroutine_threadsafe(work(), self._loop).result(PATIENCE)  # type: ignore[arg-type]


class _Armed:
    """A trigger with what it has seen."""

    def __init__(self, trigger: Trigger) -> None:
        self.trigger: Final = trigger
        self._pattern: Final = re.compile(trigger.pattern, re.DOTALL)
        self._left = trigger.nth
        #: The end of what came before, of each connection: a pattern may be cut in two.
        self._before: dict[_Pair, bytes] = {}

    def met(self, toward: Toward, data: bytes, pair: _Pair) -> int | None:
        """Up to which octet of ``data`` what comes passes, if its moment is now."""
        if toward is not self.trigger.toward:
            return None
        before = self._before.get(pair, b"")
        seen = before + data
        for match in self._pattern.finditer(seen):
            if match.end() <= len(before):
                continue  # counted when it came
            self._left -= 1
            if not self._left:
                return max(0, (match.end() if self.trigger.after else match.start()) - len(before))
        self._before[pair] = seen[-_LONGEST_PATTERN:]
        return None


class _Pair:
    """A connection and the one it is relayed by."""

    def __init__(self, proxy: Proxy, client: _Side) -> None:
        self.proxy: Final = proxy
        self.client: Final = client
        self.server: _Side | None = None
        self.opening: asyncio.Task[None] | None = None
        self.silent = False
        client.pair = self
        client.toward = Toward.SERVER
        client.reads(self.silent)

    async def open(self) -> None:
        """Connect to the server; until then the client is not read."""
        loop = asyncio.get_running_loop()
        try:
            _, server = await loop.create_connection(lambda: _Side(), HOST, self.proxy.target)
        except OSError:
            self.suffer(Fault.DROP, Toward.CLIENT)
            return
        server.pair = self
        server.toward = Toward.CLIENT
        self.server = server
        if self.client.gone:
            server.abort()
            return
        self.client.reads(True)
        server.reads(True)

    def obey(self) -> None:
        """Go on or hold, as the proxy's network is healed or cut."""
        for side in (self.client, self.server):
            if side is not None:
                side.reads(side.wanted)
                side.write_due()

    def side(self, toward: Toward) -> _Side | None:
        """Who is written to."""
        return self.server if toward is Toward.SERVER else self.client

    def write(self, toward: Toward, data: bytes) -> None:
        side = self.side(toward)
        if side is not None and not self.silent:
            side.write_later(self.proxy._delay, data)

    def suffer(self, fault: Fault, toward: Toward) -> None:
        """The fault happens to this connection."""
        if fault is Fault.SILENCE:
            self.silent = True
        elif fault is Fault.HALF_CLOSE:
            side = self.side(toward)
            if side is not None:
                side.end()
        elif fault is Fault.DROP:
            self.proxy._pairs.discard(self)
            for one in (self.client, self.server):
                if one is not None:
                    one.abort()

    def ended(self, side: _Side, reset: bool) -> None:
        """One side is gone for good: so is the other."""
        other = self.server if side is self.client else self.client
        if other is not None and not other.gone:
            if self.silent:
                return  # it is not told
            if reset:
                other.abort()
            else:
                other.write_later(self.proxy._delay, b"", close=True)
        self.proxy._pairs.discard(self)


class _Side(asyncio.Protocol):
    """One socket of a pair."""

    def __init__(self) -> None:
        self.pair: _Pair | None = None
        #: Where what comes from here goes.
        self.toward = Toward.SERVER
        self.gone = False
        #: Whether it is read, unless the network is cut.
        self.wanted = False
        self._ended = False
        self._transport: asyncio.Transport | None = None
        #: When to write what, and whether to end or to close then.
        self._waiting: list[tuple[float, bytes, bool, bool]] = []
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_MOST_WAITING)
        self._transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )
        self._transport.pause_reading()

    @property
    def _is_cut(self) -> bool:
        return self.pair is not None and self.pair.proxy._is_cut

    def reads(self, reading: bool) -> None:
        self.wanted = reading
        reading = reading and not self._is_cut
        if self._transport is not None and not self.gone and not self._transport.is_closing():
            if reading and not self._transport.is_reading():
                self._transport.resume_reading()
            elif not reading and self._transport.is_reading():
                self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        if self.pair is not None and not self.pair.silent:
            self.pair.proxy._passing(self.pair, self.toward, data)

    def eof_received(self) -> bool:
        # The other direction goes on.
        if self.pair is not None and not self.pair.silent:
            other = self.pair.side(self.toward)
            if other is not None:
                other.write_later(self.pair.proxy._delay, b"", end=True)
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self.gone = True
        if self._timer is not None:
            self._timer.cancel()
        if self.pair is not None:
            self.pair.ended(self, error is not None)

    def pause_writing(self) -> None:
        self._sender(False)

    def resume_writing(self) -> None:
        self._sender(True)

    def _sender(self, reading: bool) -> None:
        if self.pair is not None:
            other = self.pair.server if self is self.pair.client else self.pair.client
            if other is not None:
                other.reads(reading)

    def write_later(
        self, seconds: float, data: bytes, *, end: bool = False, close: bool = False
    ) -> None:
        """Write, and then end or close if that is asked; after what was to be written before."""

        loop = asyncio.get_running_loop()
        self._waiting.append((loop.time() + seconds, data, end, close))
        self.write_due()

    def write_due(self) -> None:
        """Write what is due, in order."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while (
            self._waiting
            and not self._is_cut
            and self._transport is not None
            and not self.gone
            and not self._transport.is_closing()
        ):
            due, data, end, close = self._waiting[0]
            if due > loop.time():
                self._timer = loop.call_at(due, self.write_due)
                return
            del self._waiting[0]
            if data and not self._ended:
                self._transport.write(data)
            if end:
                self.end()
            if close:
                self._transport.close()

    def end(self) -> None:
        """FIN."""
        if (
            self._transport is not None
            and not self.gone
            and not self._ended
            and not self._transport.is_closing()
        ):
            self._ended = True
            self._transport.write_eof()
            if (
                self.pair is not None
                and self.pair.server is not None
                and self.pair.server._ended
                and self.pair.client._ended
            ):
                self.pair.server.close()
                self.pair.client.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """RST."""
        if self._transport is not None and not self.gone:
            # Closing with a linger of no time is what makes the kernel send it.
            self._transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            self._transport.abort()


class _Accepted(_Side):
    """The side of the client."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__()
        self._proxy = proxy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._proxy._connected(self)
