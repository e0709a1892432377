"""Who may ask the admin service: HTTP Basic authentication, with a limit on how often one may fail.

Owns the proof of who asks. Knows no users: the admin user is given to it, others are asked of whoever knows them.

After :data:`MOST_FAILURES` failed attempts within :data:`WINDOW_S` seconds an address is refused, right password or wrong, with status 429 and a
``Retry-After`` that says when the oldest of them is forgotten. Addresses of IPv6 count by their /64, which is what one machine has.
"""

from __future__ import annotations

import hmac
import ipaddress
import math
from base64 import b64decode
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredLock, ensureDeferred
from twisted.logger import Logger
from twisted.web.resource import IResource
from twisted.web.server import NOT_DONE_YET
from zope.interface import implementer

from bridge.admin.requests import Refused, write_refusal
from gateway.instance.listening import peer_host
from gateway.messaging.errors import AuthenticationFailed

#: ``(user, password, address)``: whether they administer. The address is the peer's, because users may be confined to the loopback.
Authenticate = Callable[[str, str, str], Deferred[bool]]

MOST_FAILURES: Final = 5
WINDOW_S: Final = 60.0
#: Addresses whose failures are remembered; the oldest are forgotten first.
_MOST_ADDRESSES: Final = 10_000
#: Requests of one address that may wait for the passwords of those before them to be looked at.
_MOST_WAITING: Final = 32
_REALM: Final = 'Basic realm="stomp-gateway", charset="UTF-8"'


class Failures:
    """How often each address has failed.

    :param seconds: the time, in seconds.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._times: dict[str, deque[float]] = {}

    def wait_s(self, address: str) -> float:
        """Seconds for which this address is refused; 0 if it is not."""
        times = self._times.get(address)
        if times is None:
            return 0.0
        now = self._seconds()
        while times and times[0] <= now - WINDOW_S:
            times.popleft()
        if not times:
            del self._times[address]
        return times[-MOST_FAILURES] + WINDOW_S - now if len(times) >= MOST_FAILURES else 0.0

    def add(self, address: str) -> None:
        """It has failed."""
        times = self._times.pop(address, None) or deque(maxlen=MOST_FAILURES)
        times.append(self._seconds())
        self._times[address] = times
        while len(self._times) > _MOST_ADDRESSES:
            del self._times[next(iter(self._times))]


@implementer(IResource)
class Guard:
    """The resource around all others.

    :param inner: what those who are let in get.
    :param user: who administers; empty for nobody. :param password: theirs; empty lets nobody in by it.
    :param authenticate: for everybody else, or None.
    """

    isLeaf = True
    server: Any = None

    def __init__(self, reactor: Any, inner: Any, user: str, password: str, authenticate: Authenticate | None, log: Logger) -> None:
        self._inner = inner
        self._user = user.encode()
        self._password = password.encode()
        self._authenticate = authenticate
        self._log = log
        self._failures = Failures(reactor.seconds)
        self._turns: dict[str, DeferredLock] = {}

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
        ensureDeferred(self._rendered(request)).addErrback(lambda failure: self._log.failure("a request was not answered", failure))
        return NOT_DONE_YET

    async def _rendered(self, request: Any) -> None:
        try:
            if request.too_large:
                raise Refused("the body of the request is too large", "too_large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            request.admin = await self._admitted(request)
        except Refused as refused:
            if not request.gone:
                request.write(write_refusal(request, refused))
                request.finish()
            return
        if not request.gone:
            self._inner.render(request)

    async def _admitted(self, request: Any) -> str:
        """Who asks. :raises Refused: they may not."""
        address = counted_address(peer_host(request.getClientAddress()))
        lock = self._turns.get(address)
        if lock is None:
            lock = self._turns[address] = DeferredLock()
        if len(lock.waiting) >= _MOST_WAITING:
            raise _too_many(1)
        # One at a time, or a hundred guesses at once would be one attempt each.
        await lock.acquire()
        try:
            return await self._looked_at(request, address)
        finally:
            lock.release()
            if not lock.locked and self._turns.get(address) is lock:
                del self._turns[address]

    async def _looked_at(self, request: Any, address: str) -> str:
        wait_s = self._failures.wait_s(address)
        if wait_s > 0:
            raise _too_many(wait_s)
        given = _credentials(request.getHeader("Authorization"))
        if given is None:
            # Asking without a password is no guess.
            raise _unauthorized()
        user, password = given
        if not await self._proved(user, password, peer_host(request.getClientAddress())):
            self._failures.add(address)
            self._log.warn("{user} at {address} was refused: wrong user or password", user=user[:100], address=address)
            raise _unauthorized()
        return user

    async def _proved(self, user: str, password: str, address: str) -> bool:
        if self._user and self._password:
            # Both are compared, whatever the first comparison says.
            same_user = hmac.compare_digest(user.encode("utf-8", "replace"), self._user)
            same_password = hmac.compare_digest(password.encode("utf-8", "replace"), self._password)
            if same_user and same_password:
                return True
        if self._authenticate is None:
            return False
        try:
            return bool(await self._authenticate(user, password, address))
        except AuthenticationFailed:
            return False


def counted_address(host: str) -> str:
    """What failures of this peer are counted by."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def _credentials(header: str | None) -> tuple[str, str] | None:
    """User and password; None where there are none."""
    scheme, _, encoded = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:
        return None
    return (user, password) if colon else None


def _unauthorized() -> Refused:
    return Refused("wrong user or password", "unauthorized", HTTPStatus.UNAUTHORIZED, {"WWW-Authenticate": _REALM})


def _too_many(wait_s: float) -> Refused:
    seconds = max(1, math.ceil(wait_s))
    return Refused(
        f"too many failed attempts; try again in {seconds} s",
        "too_many_requests",
        HTTPStatus.TOO_MANY_REQUESTS,
        {"Retry-After": str(seconds)},
    )
