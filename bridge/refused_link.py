"""A link that cannot be started, and what operators see of a link's ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred, fail, succeed

from bridge.config.model import AS_SOURCE, Bridge, Link
from bridge.config.model import Destination as ConfiguredDestination
from bridge.connections.connections import ConnectionKind
from bridge.link.errors import LinkRefused
from bridge.link.status import Doing, LinkCounters, LinkState, LinkStatus, WrongState


class RefusedLink:
    """A link that cannot be started: UNINITIALIZED if disabled, else FAILED.

    :param bridge: the name of its bridge.
    :param reason: why, with the link's name.
    :param now_ms: the time, in epoch milliseconds.
    """

    def __init__(self, config: Link, bridge: str, reason: str, now_ms: Callable[[], int]) -> None:
        self.config: Final = config
        self.name: Final = config.name
        self.reason: Final = reason
        self._bridge: Final = bridge
        self._now_ms: Final = now_ms
        self._failed_ms: Final = now_ms()
        self._since_ms = self._failed_ms
        self._state = LinkState.FAILED if config.enabled else LinkState.UNINITIALIZED

    def start(self) -> Deferred[None]:
        """Fail with LinkRefused, or with WrongState where it is disabled."""
        if not self.config.enabled:
            return self._refuse("start")
        self._enter(LinkState.FAILED)
        return fail(LinkRefused(self.reason))

    def stop(self) -> Deferred[None]:
        if self.config.enabled:
            self._enter(LinkState.STOPPED)
        return succeed(None)

    def pause(self) -> Deferred[None]:
        return self._refuse("pause")

    def resume(self) -> Deferred[None]:
        return self._refuse("resume")

    def configure(self, bridge: Bridge) -> None:
        """Do nothing: no setting matters to it."""

    def look(self) -> Deferred[None]:
        return succeed(None)

    def status(self) -> LinkStatus:
        source, target = self.config.source, self.config.target
        return LinkStatus(
            bridge=self._bridge,
            name=self.name,
            state=self._state,
            enabled=self.config.enabled,
            transacted=self.config.transacted,
            quality_of_service=self.config.quality_of_service.value,
            source=end_text(source.connection_factory.ref_name, None, source.destination),
            target=end_text(target.connection_factory.ref_name, None, target.destination),
            since_ms=self._since_ms,
            last_error=self.reason if self.config.enabled else "",
            last_error_ms=self._failed_ms if self.config.enabled else 0,
            attempt=0,
            next_try_ms=0,
            in_flight=0,
            doing=Doing.NOTHING,
            doing_since_ms=0,
            last_transfer_ms=0,
            lag_ms=-1,
            received_rate=0.0,
            sent_rate=0.0,
            counters=LinkCounters(),
            max_rate=self.config.max_messages_per_second or 0,
            max_bytes_rate=self.config.max_bytes_per_second or 0,
        )

    def _enter(self, state: LinkState) -> None:
        if state is not self._state:
            self._state = state
            self._since_ms = self._now_ms()

    def _refuse(self, operation: str) -> Deferred[None]:
        return fail(WrongState(f"link {self.name}", operation, self._state.value, self.reason))


def place_text(destination: ConfiguredDestination | None) -> str:
    """Return what operators see of the destination of a link's end."""
    return AS_SOURCE if destination is None else destination.shown


def end_text(
    ref_name: str, kind: ConnectionKind | None, destination: ConfiguredDestination | None
) -> str:
    """Return what operators see of a link's end: ``CFREF:KIND:queue:NAME``."""
    return f"{ref_name}:{'' if kind is None else kind.value}:{place_text(destination)}"
