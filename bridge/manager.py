"""The bridges of an instance, and what an operator does with them.

The failure of one bridge harms no other. What a bridge does belongs to the bridge; who may ask for
what, and how it is presented, belongs to the admin service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.link.status import BridgeState, LinkStatus
from bridge.orders import ITSELF, STOPPED, OrdersNotKept, StandingOrders
from gateway.reactor.deferreds import deferred, gather

if TYPE_CHECKING:
    from bridge.config.changes import Changes

#: Seconds that a bridge may take to stop before what is left of it is abandoned.
STOP_S: Final = 10.0
#: Seconds that the manager waits for a bridge beyond those that the bridge was given.
_GRACE_S: Final = 0.5
#: The types there are.
TYPES: Final = ("JMS", "STOMP")


class BridgeLink(Protocol):
    """A link of a bridge, as an operator has it."""

    @property
    def name(self) -> str: ...

    def start(self) -> Deferred[None]:
        """Start it, or resume it if it is paused.

        Fails with :class:`~bridge.link.status.WrongState` where it is disabled.
        """

    def stop(self) -> Deferred[None]: ...

    def pause(self) -> Deferred[None]: ...

    def resume(self) -> Deferred[None]: ...

    def look(self) -> Deferred[None]:
        """Measure the lag for :meth:`status` now. Fires soon, never with an error."""

    def status(self) -> LinkStatus: ...


class Bridge(Protocol):
    """A bridge of any type, as an operator has it.

    All operations may be called at any time. One that makes no sense in the current state fails
    with :class:`~bridge.link.status.WrongState` and changes nothing. One whose effect is there already
    succeeds.
    """

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str:
        """``JMS`` or ``STOMP``; empty where the settings say neither."""

    @property
    def state(self) -> BridgeState: ...

    @property
    def problem(self) -> str:
        """Why the last start failed, a line for each reason; "" if it did not."""

    def start(self) -> Deferred[None]:
        """Start it, or resume it if it is paused; a failure leaves nothing open."""

    def stop(self, seconds: float = STOP_S) -> Deferred[None]:
        """Stop it, whatever it is doing.

        :param seconds: how long that may take before what is left is abandoned.
        """

    def pause(self) -> Deferred[None]: ...

    def resume(self) -> Deferred[None]: ...

    def links(self) -> Sequence[BridgeLink]:
        """Return its links, also disabled ones; none while it is stopped."""

    def reload(self) -> Deferred[Changes]:
        """Read its configuration again, and restart only what changed.

        Fails, and changes nothing, if the new configuration cannot be used.
        """


class NotReloadable(Exception):
    """The bridge has no configuration of its own to read again.

    :param name: the bridge's.
    :param reason: what to do instead.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"cannot reload bridge {name}: {reason}")


class UnknownBridge(Exception):
    """There is no bridge of that name, or none of that type and name.

    :param name: the name asked for.
    :param known: those that there are.
    """

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"there is no bridge {name}; {_known(known)}")


class UnknownType(Exception):
    """There is no such type of bridges. :param type: as it was asked for."""

    def __init__(self, type: str) -> None:
        super().__init__(f"there is no type {type} of bridges: expected {' or '.join(TYPES)}")


class OtherType(Exception):
    """The bridge is not of the type asked for.

    :param name: the bridge's.
    :param type: its own.
    :param wanted: the other.
    """

    def __init__(self, name: str, type: str, wanted: str) -> None:
        super().__init__(f"bridge {name} is of type {type or 'unknown'}, not {wanted}")


class NotInTime(Exception):
    """Timed out; the operation may still complete. :param name: the bridge's."""

    def __init__(self, name: str, operation: str, seconds: float) -> None:
        super().__init__(
            f"bridge {name} has not done in {seconds:g} seconds what it was asked: {operation}"
        )


@dataclass(frozen=True)
class Outcome:
    """What became of one operation on one bridge.

    :param operation: ``start``, ``stop``, ``pause`` or ``resume``.
    :param error: None when it was done.
    """

    bridge: Bridge
    operation: str
    error: BaseException | None = None

    @property
    def lines(self) -> list[str]:
        """The error, each line with the bridge's name; empty without one."""
        return [] if self.error is None else error_lines(self.bridge.name, self.error)


class BridgeServiceManager:
    """All bridges of an instance.

    They are those of ``imq.bridge.activelist``, in its order; none where ``imq.bridge.enabled`` is
    false. They may come and go: by administrators, and in a cluster of brokers.

    :param reactor: the clock.
    :param orders: what operators said of bridges, beyond the process.
    """

    _log = Logger(namespace="bridge.manager")

    def __init__(self, reactor: Any, orders: StandingOrders | None = None) -> None:
        self._reactor = reactor
        self._orders = orders or StandingOrders()
        self._bridges: dict[str, Bridge] = {}
        self._automatic: set[str] = set()

    def add(self, bridge: Bridge, *, automatic: bool) -> None:
        """Have one more bridge, behind the others.

        :param automatic: whether :meth:`autostart` starts it.
        """
        self._bridges[bridge.name] = bridge
        if automatic:
            self._automatic.add(bridge.name)

    def remove(self, name: str) -> None:
        """Have a bridge no more. It must be stopped before."""
        self._orders.forget(name)
        del self._bridges[name]
        self._automatic.discard(name)

    async def forget_orders(self, name: str) -> None:
        """Have a later bridge of that name begin as a new one does.

        :raises OrdersNotKept: what is kept of its orders cannot be changed.
        """
        await self._orders.note(name, "start")

    @property
    def bridges(self) -> tuple[Bridge, ...]:
        """All of them, in the order in which they are started."""
        return tuple(self._bridges.values())

    def find(self, name: str) -> Bridge:
        """The bridge of that name. :raises UnknownBridge:"""
        found = self._bridges.get(name)
        if found is None:
            raise UnknownBridge(name, list(self._bridges))
        return found

    def matching(self, name: str | None = None, type: str | None = None) -> list[Bridge]:
        """The bridges of a name, of a type in any case, of both, or all.

        :raises UnknownType: there is no such type.
        :raises UnknownBridge: there is no bridge of that name.
        :raises OtherType: it is of another type.
        """
        wanted = None if type is None else type.upper()
        if type is not None and wanted not in TYPES:
            raise UnknownType(type)
        if name is None:
            return [bridge for bridge in self.bridges if wanted in (None, bridge.type)]
        bridge = self.find(name)
        if wanted is not None and bridge.type != wanted:
            raise OtherType(name, bridge.type, wanted)
        return [bridge]

    async def autostart(self, name: str | None = None) -> list[Outcome]:
        """Start those that are to start with the instance.

        One that its operator has stopped stays so. The failure of one does not stop the others, and
        is the caller's to report.

        :param name: only this one, if it is one of them.
        """
        chosen, unknown = [], []
        for bridge in self.bridges:
            if bridge.name not in self._automatic or name not in (None, bridge.name):
                continue
            try:
                orders = await self._orders.of(bridge.name)
            except OrdersNotKept as error:
                unknown.append(Outcome(bridge, "start", error))
                continue
            if orders.get(ITSELF) == STOPPED:
                self._log.info(
                    "BridgeManager: bridge {name} stays STOPPED, as its operator left it",
                    name=bridge.name,
                )
            else:
                chosen.append(bridge)
        return [*unknown, *await self._each("start", chosen, _ASK["start"])]

    async def operate(
        self, operation: str, name: str | None = None, type: str | None = None
    ) -> list[Outcome]:
        """Start or resume, stop, pause, or resume the bridges of :meth:`matching`.

        :param operation: ``start``, ``stop``, which takes at most :data:`STOP_S` seconds, ``pause``
            or ``resume``.
        :raises Exception: as :meth:`matching`, and for nothing else.
        """
        outcomes = await self._each(
            operation, self.matching(name, type), partial(self._ordered, operation)
        )
        self._log_failures(outcomes)
        return outcomes

    @deferred
    async def _ordered(self, operation: str, bridge: Bridge) -> None:
        """Do it and keep it. The front door, STOMP, opens with every start."""
        ask = partial(_ASK[operation], bridge)
        if bridge.type == "JMS":
            await self._kept(operation, ask, bridge.name)
        else:
            await ask()

    async def operate_link(self, bridge: Bridge, link: BridgeLink, operation: str) -> None:
        """Start or resume, stop, pause, or resume a link.

        Fails as the link's own operation; and with :class:`~bridge.orders.OrdersNotKept` where it
        was done, and the next start will not know of it.
        """
        ask = {"start": link.start, "stop": link.stop, "pause": link.pause, "resume": link.resume}
        await self._kept(operation, ask[operation], bridge.name, link.name)

    async def _kept(
        self, operation: str, ask: Callable[[], Deferred[None]], bridge: str, link: str = ITSELF
    ) -> None:
        """Do it, and have the next process know of it.

        What is to run is kept before: it is meant, also if the process ends meanwhile.
        """
        failed: OrdersNotKept | None = None
        if operation in ("start", "resume"):
            try:
                await self._orders.note(bridge, operation, link)
            except OrdersNotKept as error:
                failed = error
            await ask()
        else:
            await ask()
            await self._orders.note(bridge, operation, link)
        if failed is not None:
            raise failed

    async def reload(self, name: str) -> Changes:
        """Have one bridge read its configuration again.

        :raises UnknownBridge: there is no bridge of that name. Fails as :meth:`Bridge.reload`, too.
        """
        bridge = self.find(name)
        self._log.info("BridgeManager: reload {type} bridge {name}", type=bridge.type, name=name)
        try:
            return await bridge.reload()
        except Exception as error:
            for line in error_lines(name, error):
                self._log.error("reload: {line}", line=line, bridge=name)
            raise

    async def shut_down(self, seconds: float = STOP_S) -> list[Outcome]:
        """Stop all at the same time.

        :param seconds: the timeout; a bridge that has not stopped by then goes on stopping.
        """
        given = max(0.0, seconds - _GRACE_S)
        running = [bridge for bridge in self.bridges if bridge.state is not BridgeState.STOPPED]
        outcomes = await self._each("stop", running, lambda bridge: bridge.stop(given), seconds)
        self._log_failures(outcomes)
        return outcomes

    async def _each(
        self,
        operation: str,
        chosen: Sequence[Bridge],
        ask: Callable[[Bridge], Deferred[None]],
        seconds: float | None = None,
    ) -> list[Outcome]:
        awaited: dict[str, Deferred[None]] = {}
        for bridge in chosen:
            self._log.info(
                "BridgeManager: {operation} {type} bridge {name}",
                operation=operation,
                type=bridge.type,
                name=bridge.name,
            )
            try:
                awaited[bridge.name] = ask(bridge).addCallback(self._log_state, bridge)
            except Exception as defect:  # noqa: BLE001
                # A defect of one bridge must not reach another.
                awaited[bridge.name] = fail(defect)
        # Start, pause and resume have the bridges' own timeouts.
        bound = _FOR_EVER if seconds is None else seconds
        ended = await gather(self._reactor, awaited, bound, self._failed_late)
        outcomes = []
        for bridge in chosen:
            failure = ended.failures.get(bridge.name)
            error: BaseException | None = None if failure is None else failure.value
            if bridge.name in ended.late:
                error = NotInTime(bridge.name, operation, bound)
            outcomes.append(Outcome(bridge, operation, error))
        return outcomes

    def _log_state(self, _: None, bridge: Bridge) -> None:
        self._log.info(
            "BridgeManager: {type} bridge {name} is {state}",
            type=bridge.type,
            name=bridge.name,
            state=bridge.state.value,
            event="bridge.changed",
        )

    def _log_failures(self, outcomes: Sequence[Outcome]) -> None:
        """Log failures in the bridge's log, and so in the instance's."""
        for outcome in outcomes:
            for line in outcome.lines:
                self._log.error(
                    "{operation}: {line}",
                    operation=outcome.operation,
                    line=line,
                    bridge=outcome.bridge.name,
                    event="bridge.failed",
                )

    def _failed_late(self, name: str, failure: Failure) -> None:
        for line in error_lines(name, failure.value):
            self._log.error("{line}", line=line, bridge=name)


#: What is done to bridges, by the operation's name.
_ASK: Final[Mapping[str, Callable[[Bridge], Deferred[None]]]] = {
    "start": lambda bridge: bridge.start(),
    "stop": lambda bridge: bridge.stop(),
    "pause": lambda bridge: bridge.pause(),
    "resume": lambda bridge: bridge.resume(),
}
#: A day in seconds, for operations that have a closer timeout of their own.
_FOR_EVER: Final = 86_400.0


def error_lines(name: str, error: BaseException | None) -> list[str]:
    """Return the lines of a bridge's error, each with the bridge's name in it."""
    text = str(error) or repr(error)
    named = (f"bridge {name}", f"imq.bridge.{name}.")
    return [
        line if any(one in line for one in named) else f"bridge {name}: {line}"
        for line in text.splitlines()
    ]


def _known(names: Sequence[str]) -> str:
    return f"those that there are: {', '.join(names)}" if names else "there is none at all"
