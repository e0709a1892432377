"""A link that its bridge has and cannot start, shown with the reason.

Owns what such a link answers. Why it is refused is its bridge's to know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred, fail, succeed

from bridge.config import model
from bridge.link.errors import LinkRefused
from bridge.status import Doing, LinkCounters, LinkState, LinkStatus, WrongState


class RefusedLink:
    """A link that cannot be started: UNINITIALIZED if disabled, else FAILED.

    :param bridge: the name of its bridge. :param reason: why, with the link's name. :param now_ms:
        the time, in epoch milliseconds.
    """

    def __init__(
        self, config: model.Link, bridge: str, reason: str, now_ms: Callable[[], int]
    ) -> None:
        self.config: Final = config
        self.name: Final = config.name
        self.reason: Final = reason
        self._bridge: Final = bridge
        self._now_ms: Final = now_ms
        self._failed_ms: Final = now_ms()
        self._since_ms = self._failed_ms
        self._state = LinkState.FAILED if config.enabled else LinkState.UNINITIALIZED

    def start(self) -> Deferred[None]:
        """Fail with :class:`LinkRefused`.

        Where it is disabled with :class:`~bridge.status.WrongState`.
        """
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

    def configure(self, bridge: model.Bridge) -> None:
        """Do nothing: no setting matters to it."""

    def look(self) -> Deferred[None]:
        return succeed(None)

    def status(self) -> LinkStatus:
        source, target = self.config.source, self.config.target
        into = model.AS_SOURCE if target.destination is None else target.destination.shown
        return LinkStatus(
            bridge=self._bridge,
            name=self.name,
            state=self._state,
            enabled=self.config.enabled,
            transacted=self.config.transacted,
            quality_of_service=self.config.quality_of_service.value,
            source=f"{source.connection_factory.ref_name}::{source.destination.shown}",
            target=f"{target.connection_factory.ref_name}::{into}",
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
        )

    def _enter(self, state: LinkState) -> None:
        if state is not self._state:
            self._state = state
            self._since_ms = self._now_ms()

    def _refuse(self, operation: str) -> Deferred[None]:
        return fail(WrongState(f"link {self.name}", operation, self._state.value, self.reason))
