"""Who may use the admin service: HTTP Basic authentication.

Owns the proof of who asks, also for those who log in by a form, and how fast passwords may be
guessed. Knows no users: the admin user is given to it, others are authenticated by a callable.

The administrator cannot be locked out: a right password is let in after any number of failures.
Failures cost time:

* After :data:`MOST_FAILURES` failed attempts within :data:`WINDOW_S` seconds, passwords from
  another machine are checked one in :data:`PACE_S` seconds for each address, right or wrong.
  :data:`_MOST_WAITING` may wait for that; more are answered with status 429 and a ``Retry-After``.
  IPv6 addresses count by their /64, which is what one machine has.
* Passwords from this machine are checked at once, because the administrator's commands come from
  the same address as everything else here. Users' passwords go through the users' own queue, which
  takes turns and holds back the answers to failures.
"""

from __future__ import annotations

import hmac
import math
from base64 import b64decode
from collections import deque
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

from twisted.internet.defer import ensureDeferred
from twisted.internet.task import deferLater
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure
from twisted.web.resource import IResource
from twisted.web.server import NOT_DONE_YET
from zope.interface import implementer

from gateway.admin.service.requests import (
    Refused,
    check_text,
    internal_error,
    quote_path,
    write_refusal,
)
from gateway.admin.service.roles import Identity, Role
from gateway.admin.service.settings import is_loopback
from gateway.instance.listening import counted_address, peer_host
from gateway.instance.logs import Strangers
from gateway.messaging.errors import AuthenticationFailed

#: ``(user, password, address)``: who that is; None where the service does not let them in. The address
#: is the peer's, because users may be confined to the loopback.
Authenticate = Callable[[str, str, str], Awaitable[Identity | None]]

MOST_FAILURES: Final = 5
WINDOW_S: Final = 60.0
#: Seconds between two checks of passwords from an address that has failed too often.
PACE_S: Final = 1.0
#: Addresses whose failures are remembered; the oldest are forgotten first.
_MOST_ADDRESSES: Final = 10_000
#: Requests of one address that may wait for that.
_MOST_WAITING: Final = 16
_REALM: Final = 'Basic realm="stomp-gateway", charset="UTF-8"'


class Failures:
    """How often addresses failed, and when each may try again.

    :param seconds: the time, in seconds.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._times: dict[str, deque[float]] = {}
        self._counts: dict[str, int] = {}
        self._next: dict[str, float] = {}

    def wait_s(self, address: str) -> float:
        """Reserve a turn for a password of this address.

        :returns: seconds until that turn.
        """
        times = self._times.get(address)
        if times is None or is_loopback(address):
            return 0.0
        now = self._seconds()
        if len(times) < MOST_FAILURES or times[0] <= now - WINDOW_S:
            self._next.pop(address, None)
            return 0.0
        turn = max(now, self._next.get(address, now) + PACE_S)
        self._next[address] = turn
        return turn - now

    def add(self, address: str) -> int:
        """Count a failure.

        :returns: how many there were without a pause as long as the window.
        """
        now = self._seconds()
        times = self._times.pop(address, None) or deque(maxlen=MOST_FAILURES)
        if times and times[-1] <= now - WINDOW_S:
            times.clear()
            self._counts.pop(address, None)
        times.append(now)
        self._times[address] = times
        self._counts[address] = count = self._counts.get(address, 0) + 1
        while len(self._times) > _MOST_ADDRESSES:
            oldest = next(iter(self._times))
            del self._times[oldest]
            self._counts.pop(oldest, None)
            self._next.pop(oldest, None)
        return count


@implementer(IResource)
class Guard:
    """The resource around all others.

    :param inner: the resource for those who are let in.
    :param user: the administrator; empty for no such user.
    :param password: the administrator's; where it is empty, no password is right.
    :param authenticate: for all other users, or None.
    """

    isLeaf = True
    server: Any = None

    def __init__(
        self,
        reactor: Any,
        inner: Any,
        user: str,
        password: str,
        authenticate: Authenticate | None,
        log: Logger,
    ) -> None:
        self._inner = inner
        self._user = user.encode()
        self._password = password.encode()
        self._authenticate = authenticate
        self._log = log
        self._failures = Failures(reactor.seconds)
        self._reactor = reactor
        self._strangers: Final = Strangers(reactor, log)
        #: By address: requests that wait for their turn.
        self._waiting: dict[str, int] = {}

    def close(self) -> None:
        """Log what was left out of the log so far."""
        self._strangers.report()

    def getChildWithDefault(self, name: bytes, request: Any) -> Guard:
        return self

    def putChild(self, path: bytes, child: IResource) -> None:
        raise TypeError("the admin service's resources are added to its routes")

    def render(self, request: Any) -> int:
        """Answer, or let in."""
        request.setHeader(b"Server", b"stomp-gateway")
        request.setHeader(b"Cache-Control", b"no-store")
        request.setHeader(b"X-Content-Type-Options", b"nosniff")
        request.gone = False
        request.notifyFinish().addErrback(lambda _: setattr(request, "gone", True))
        ensureDeferred(self._rendered(request)).addErrback(
            lambda failure: self._broken(request, failure)
        )
        return NOT_DONE_YET

    def _broken(self, request: Any, failure: Failure) -> None:
        """Answer a request that failed by a defect."""
        refused = internal_error(self._log, request, failure)
        if not request.gone and not request.startedWriting:
            self._refuse(request, refused)

    def _refuse(self, request: Any, refused: Refused) -> None:
        request.write(write_refusal(request, refused))
        request.finish()

    async def _rendered(self, request: Any) -> None:
        try:
            if request.too_large:
                raise Refused(
                    "the body of the request is too large",
                    "too_large",
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                )
            request.let_in(await self._admitted(request))
            self._check(request)
        except Refused as refused:
            if not request.gone:
                self._refuse(request, refused)
            return
        if not request.gone:
            quote_path(request)
            self._inner.render(request)

    def _check(self, request: Any) -> None:
        try:
            check_text(request)
        except Refused as refused:
            self._log.info(
                "{user} was refused a request: {text}", user=request.admin, text=refused.text
            )
            raise

    async def _admitted(self, request: Any) -> Identity:
        """Return who asks. :raises Refused: they may not."""
        given = _credentials(request.getHeader("Authorization"))
        if given is None:
            # Asking without a password is no guess.
            raise _unauthorized()
        return await self.identify(*given, peer_host(request.getClientAddress()))

    async def identify(self, user: str, password: str, host: str) -> Identity:
        """Return who has this name and password.

        :param host: the peer's address.
        :raises Refused: they are wrong, or too many of that address wait to be told.
        """
        address = counted_address(host)
        await self._turn(address)
        identity = await self._proved(user, password, host)
        if identity is None:
            count = self._failures.add(address)
            if self._strangers.may_log(
                "administrators with a wrong user or password", LogLevel.warn, address
            ):
                self._log.warn(
                    "{user} at {address} was refused: wrong user or password; failure {count}",
                    user=user[:100],
                    address=address,
                    count=count,
                )
            raise _unauthorized()
        return identity

    async def _turn(self, address: str) -> None:
        """Wait until a password of this address may be checked.

        :raises Refused: too many wait for that.
        """
        waiting = self._waiting.get(address, 0)
        if waiting >= _MOST_WAITING:
            raise _too_many(PACE_S * waiting)
        wait_s = self._failures.wait_s(address)
        if wait_s <= 0:
            return
        self._waiting[address] = waiting + 1
        try:
            await deferLater(self._reactor, wait_s)
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]

    async def _proved(self, user: str, password: str, address: str) -> Identity | None:
        if self._user and self._password:
            # Both are compared, whatever the first comparison says.
            same_user = hmac.compare_digest(user.encode("utf-8", "replace"), self._user)
            same_password = hmac.compare_digest(password.encode("utf-8", "replace"), self._password)
            if same_user and same_password:
                return Identity(user, Role.ADMINISTRATOR)
        if self._authenticate is None:
            return None
        try:
            return await self._authenticate(user, password, address)
        except AuthenticationFailed:
            return None


def _credentials(header: str | None) -> tuple[str, str] | None:
    """Return user and password; None where they are missing."""
    scheme, _, encoded = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:
        return None
    return (user, password) if colon else None


def _unauthorized() -> Refused:
    return Refused(
        "wrong user or password",
        "unauthorized",
        HTTPStatus.UNAUTHORIZED,
        {"WWW-Authenticate": _REALM},
    )


def _too_many(wait_s: float) -> Refused:
    seconds = max(1, math.ceil(wait_s))
    return Refused(
        f"too many failed attempts; try again in {seconds} s",
        "too_many_requests",
        HTTPStatus.TOO_MANY_REQUESTS,
        {"Retry-After": str(seconds)},
    )
