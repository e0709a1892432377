"""Whether a broker can be reached, as connections to it tell.

A connection that is lost may be one client's alone, so that only an attempt to connect that fails
says that the broker is away. Where the gateway has a login of its own, it tries again itself until
the broker is back. Else the next client tries: what the last one found is believed for some seconds,
so that a load balancer that looks at the health sends one again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.provider import Connection
from gateway.reactor.clocks import wall_ms

#: Seconds between two attempts of the gateway's own.
_PAUSE_S: Final = 2.0
#: Seconds for which it is believed that a broker is away that only clients can log in to.
_BELIEVED_S: Final = 10.0

_log: Final = Logger(namespace="gateway.front")


@dataclass(frozen=True)
class Away:
    """A broker that cannot be reached.

    :param since_ms: when that was noticed, epoch milliseconds.
    :param why: as its provider says it, which may name addresses.
    """

    since_ms: int
    why: str


@dataclass(frozen=True)
class Behind:
    """A broker behind the STOMP bridge.

    :param name: of its connection factory.
    :param has_all: whether it has all destinations that are not said to be another's.
    :param away: None while it can be reached, as far as is known.
    """

    name: str
    has_all: bool
    away: Away | None

    @property
    def trouble(self) -> str:
        """That it is away, for everyone; "" while it is not."""
        return f"the broker '{self.name}' cannot be reached" if self.away else ""

    @property
    def detail(self) -> str:
        """The same for administrators, with what there is to know."""
        if self.away is None:
            return ""
        since = datetime.fromtimestamp(self.away.since_ms / 1000, UTC)
        return f"{self.trouble} since {since:%Y-%m-%d %H:%M:%S} UTC: {self.away.why}"


class Reach:
    """What is known of one broker.

    :param reactor: for time.
    :param hold_s: how long clients wait for the broker; 0: not.
    :param name: of the broker.
    :param connect: opens a connection of the gateway's own; None where only clients can log in.
    """

    def __init__(
        self,
        reactor: Any,
        hold_s: float,
        name: str,
        connect: Callable[[], Deferred[Connection]] | None,
    ) -> None:
        self._reactor: Final = reactor
        self._hold_s: Final = hold_s
        self._name: Final = name
        self._connect: Final = connect
        self._away: Away | None = None
        self._failed_s = 0.0
        #: The log has been told that connections are lost.
        self._told = False
        self._timer: Any = None
        self._trying: Deferred[Connection] | None = None
        self._closed = False

    @property
    def away(self) -> Away | None:
        """None while the broker can be reached, as far as is known."""
        late = self._reactor.seconds() - self._failed_s > _BELIEVED_S
        return None if late and self._connect is None else self._away

    def lost(self, error: MessagingError) -> None:
        """A connection is lost."""
        self._tell(error)
        self._try_in(0.0)

    def failed(self, error: ProviderUnavailable) -> None:
        """An attempt to connect has failed."""
        self._tell(error)
        self._failed_s = self._reactor.seconds()
        if self._away is None:
            self._away = Away(wall_ms(self._reactor), str(error))
            _log.warn("the broker {name} cannot be reached", name=self._name, event="provider.away")
        self._try_in(_PAUSE_S)

    def reached(self) -> None:
        """There is a connection."""
        if self._told:
            _log.info("{name} is back", name=self._name, event="provider.back")
        self._told, self._away = False, None
        self._stop_timer()

    def close(self) -> None:
        """Try no more."""
        self._closed = True
        self._stop_timer()
        trying, self._trying = self._trying, None
        if trying is not None:
            trying.cancel()

    def _tell(self, error: MessagingError) -> None:
        if self._told:
            return
        self._told = True
        waits = f"clients wait for it, at most {self._hold_s:g} s"
        _log.warn(
            "{name}: {error}; {clients}",
            name=self._name,
            error=str(error),
            clients=waits if self._hold_s else "clients are told",
        )

    def _try_in(self, seconds: float) -> None:
        if self._connect is None or self._closed:
            return
        if self._timer is None and self._trying is None:
            self._timer = self._reactor.callLater(seconds, self._try)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _try(self) -> None:
        self._timer = None
        assert self._connect is not None
        self._trying = trying = self._connect()
        trying.addCallbacks(self._answered, self._refused)

    def _answered(self, connection: Connection) -> None:
        self._trying = None
        self.reached()
        connection.close()

    def _refused(self, failure: Failure) -> None:
        self._trying = None
        if self._closed:
            return
        if isinstance(failure.value, ProviderUnavailable):
            self.failed(failure.value)
        elif isinstance(failure.value, MessagingError):
            # It is there, and says so.
            self.reached()
        else:
            _log.failure("whether {name} is back is not known", failure, name=self._name)
            self._try_in(_PAUSE_S)
