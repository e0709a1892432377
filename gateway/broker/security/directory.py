"""Users and groups of an LDAP directory, as Open MQ has them.

Owns what the directory is asked, and what that means. The protocol is ldap3's, which waits for its
answers, so it does that on threads.
"""

from __future__ import annotations

import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import ldap3
from ldap3.core.exceptions import (
    LDAPBusyResult,
    LDAPCommunicationError,
    LDAPException,
    LDAPOperationResult,
    LDAPResponseTimeoutError,
    LDAPSASLPrepError,
    LDAPUnavailableResult,
)
from ldap3.utils.conv import escape_filter_chars
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from gateway.broker.properties.repositories import DirectoryOptions
from gateway.broker.security.users import Principal, is_name
from gateway.messaging.errors import AuthenticationFailed
from gateway.messaging.provider import Credentials
from gateway.reactor.deferreds import deferred

_UNKNOWN: Final = "unknown user or wrong passcode"
_THREADS: Final = 4
#: With these another server may do.
_NO_ANSWER: Final = (
    LDAPCommunicationError,
    LDAPResponseTimeoutError,
    LDAPBusyResult,
    LDAPUnavailableResult,
    OSError,
)


class _Refused(Exception):
    """The directory does not let the user in; the text says why."""


class _Silent(Exception):
    """No server answers in the time that a login has."""


class _Login:
    """One that a thread is to look up.

    :param until: when its time is over, by the monotonic clock.
    """

    def __init__(self, name: str, passcode: str, until: float) -> None:
        self.name: Final = name
        self.passcode: Final = passcode
        self.until: Final = until
        #: Its client is gone.
        self.given_up = False
        self._over = False
        #: Whose answer its thread may be waiting for.
        self._asked: ldap3.Connection | None = None

    def give_up(self, _: object) -> None:
        """Look it up no more, unless that is under way."""
        self.given_up = True

    def asks(self, connection: ldap3.Connection) -> None:
        """Its thread is about to wait for an answer, by a connection that is open.

        :raises TimeoutError: its time is over.
        """
        self._asked = connection
        if self._over:
            raise TimeoutError("the login's time is over")

    def cut(self) -> None:
        """Have its thread wait no more. The reactor's thread calls this."""
        # First, so that a thread which asks by another connection from here on is told by ``asks``.
        self._over = True
        waiting = self._asked and self._asked.socket
        if waiting:
            with suppress(OSError):
                # Not that of TLS, which a thread is using.
                socket.socket.shutdown(waiting, socket.SHUT_RDWR)


class _Servers:
    """Which server is asked first. The threads call everything here."""

    def __init__(self, places: Sequence[str], rest_s: float) -> None:
        self._places: Final = places
        self._rest_s: Final = rest_s
        self._lock: Final = threading.Lock()
        #: Those that did not answer, and until when the others go before them.
        self._silent: Final[dict[str, float]] = {}

    def in_order(self) -> list[str]:
        """Return all, those last that did not answer a while ago."""
        now = time.monotonic()
        with self._lock:
            resting = [place for place in self._places if self._silent.get(place, now) > now]
            first = [place for place in self._places if place not in resting]
            for place in self._silent.keys() & {*first}:
                # One login finds out whether it is well again; the next ones do not wait for that.
                self._silent[place] = now + self._rest_s
        return first + resting

    def silent(self, place: str) -> bool:
        """One did not answer. Return whether it did before."""
        with self._lock:
            before = place not in self._silent
            self._silent[place] = time.monotonic() + self._rest_s
        return before

    def answered(self, place: str) -> bool:
        """One answered. Return whether it did not before."""
        if place not in self._silent:
            return False
        with self._lock:
            return self._silent.pop(place, None) is not None


class DirectoryUsers:
    """Authenticates users by a directory.

    :param reactor: its thread calls everything here.
    :param most: logins that may wait for the directory, those included whose clients are gone.
    :param within_s: seconds after which a login fails, whatever the directory does.
    :param rest_s: seconds in which a server that did not answer is asked after the others.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        options: DirectoryOptions,
        most: int,
        within_s: float = 9,
        rest_s: float = 30,
    ) -> None:
        self._reactor: Final = reactor
        self._options: Final = options
        self._most: Final = most
        self._within_s: Final = within_s
        self._rest_s: Final = rest_s
        self._servers: Final = _Servers(options.servers, rest_s)
        self._asking = 0
        self._threads: Final = ThreadPool(0, _THREADS, "directory")
        self._stopping: Any = None
        self._ended = False

    @deferred
    async def authenticate(self, credentials: Credentials) -> Principal:
        """Return the user whose passcode this is, with the groups that it is in.

        :returns: fails with AuthenticationFailed.
        """
        name = credentials.username
        if not name or not credentials.passcode:
            # A directory lets an empty password in, as one that names no user.
            raise AuthenticationFailed(name, "the login or the passcode is empty")
        if self._asking >= self._most:
            raise AuthenticationFailed(name, "too many logins wait for the directory")
        if self._stopping is None:
            self._threads.start()
            self._stopping = self._reactor.addSystemEventTrigger("during", "shutdown", self._end)
        try:
            until = time.monotonic() + self._within_s
            return await self._begun(_Login(name, credentials.passcode, until))
        except _Silent:
            # The log has said so, once.
            raise AuthenticationFailed(name, "the directory does not answer") from None
        except _Refused as refused:
            raise AuthenticationFailed(name, str(refused)) from None
        except LDAPException as error:
            self._log.error(
                "the directory cannot be asked: {error}", error=str(error) or type(error).__name__
            )
            raise AuthenticationFailed(name, "the directory cannot be asked now") from None

    def readmit(self, principal: Principal, address: str) -> Principal:
        """Return a connected user as it is; the directory is not asked again."""
        return principal

    def close(self) -> None:
        """Start no more threads."""
        if self._stopping is not None:
            self._reactor.removeSystemEventTrigger(self._stopping)
            self._stopping = None
            self._end()

    def _begun(self, login: _Login) -> Deferred[Principal]:
        """Have a thread look a login up; it counts until the thread has done so."""
        found: Deferred[Principal] = Deferred(login.give_up)
        time_over = self._reactor.callLater(self._within_s, login.cut)

        def over(outcome: Principal | Failure) -> None:
            self._asking -= 1
            if time_over.active():
                time_over.cancel()
            if not login.given_up:
                found.callback(outcome)

        def told(good: bool, outcome: Principal | Failure) -> None:
            self._reactor.callFromThread(over, outcome)

        self._asking += 1
        self._threads.callInThreadWithCallback(told, self._look_up, login)
        return found

    def _look_up(self, login: _Login) -> Principal:
        """Ask one server after the other. On a thread.

        :raises _Refused, _Silent, LDAPException:
        """
        places = self._servers.in_order()
        for index, place in enumerate(places):
            if login.given_up or self._ended:
                raise _Refused("its client is gone")
            left_s = login.until - time.monotonic()
            if left_s <= 0:
                break
            # Some time is left for those behind it, however long it may take by its setting.
            limit_s = min(self._options.timeout_s, left_s / (len(places) - index))
            try:
                found = _Asked(self._options, place, limit_s, login).principal()
            except _NO_ANSWER as error:
                if not self._ended and self._servers.silent(place):
                    self._tell(
                        self._log.warn,
                        "the directory {place} does not answer, and is asked after all others for {seconds} seconds: {error}",
                        place=place,
                        seconds=self._rest_s,
                        error=str(error) or type(error).__name__,
                    )
            except (_Refused, LDAPException):
                self._answered(place)
                raise
            else:
                self._answered(place)
                return found
        raise _Silent

    def _answered(self, place: str) -> None:
        if self._servers.answered(place):
            self._tell(self._log.info, "the directory {place} answers again", place=place)

    def _tell(self, log: Callable[..., None], text: str, **values: object) -> None:
        self._reactor.callFromThread(log, text, **values)

    def _end(self) -> None:
        # Those that wait for a thread are not looked up, so that it is soon over.
        self._ended = True
        self._threads.stop()


class _Asked:
    """One server that is asked about one login. On a thread.

    :param place: ``HOST:PORT``.
    :param limit_s: for a connection, and for each answer.
    """

    def __init__(
        self, options: DirectoryOptions, place: str, limit_s: float, login: _Login
    ) -> None:
        self._options: Final = options
        self._place: Final = place
        self._limit_s: Final = limit_s
        self._login: Final = login

    def principal(self) -> Principal:
        """Find a user, bind as it, find its groups.

        :raises _Refused: the passcode is wrong, or there is no such user.
        :raises LDAPException, OSError: the directory cannot be asked.
        """
        options, name = self._options, self._login.name
        try:
            with self._bound(options.principal, options.password) as connection:
                own = _filtered(options.uid_attribute, name, options.user_filter)
                found = self._search(connection, options.base, own, options.uid_attribute)
                known = len(found) == 1
                # One who is not there is asked for like one who is, so that neither words nor time
                # tell them apart.
                dn, names = found[0] if known else (f"{options.uid_attribute}=-,{options.base}", [])
                self._verify(dn)
                if not known:
                    raise _Refused(_UNKNOWN)
                groups: set[str] = set()
                if options.searches_groups:
                    members = _filtered(options.member_attribute, dn, options.group_filter)
                    base, attribute = options.group_base, options.gid_attribute
                    listed = self._search(connection, base, members, attribute)
                    groups = {group for _, called in listed for group in called if is_name(group)}
        except UnicodeError:
            raise _Refused(_UNKNOWN) from None
        # A directory does not tell upper from lower case, and access rules do.
        called = dn if options.names_are_dns else next(iter(names), "")
        if not options.names_are_dns and not is_name(called):
            raise _Refused("the directory's name of the user cannot be one here")
        return Principal(called, frozenset(groups))

    def _verify(self, dn: str) -> None:
        """:raises _Refused: the directory does not take the passcode."""
        try:
            with self._bound(dn, self._login.passcode):
                pass
        except (LDAPBusyResult, LDAPUnavailableResult):
            raise
        except (LDAPOperationResult, LDAPSASLPrepError):
            # Wrong, or no text that a passcode can have; or the account is locked, which is not
            # told to those who guess.
            raise _Refused(_UNKNOWN) from None

    @contextmanager
    def _bound(self, user: str, password: str) -> Iterator[ldap3.Connection]:
        """Give a connection as that user; whatever happens, its socket is closed.

        :raises LDAPException: it cannot be had.
        """
        connection = self._connection(user, password)
        try:
            # This has limits of its own, a handshake of TLS included.
            connection.open(read_server_info=False)
            self._login.asks(connection)
            connection.bind()
            yield connection
        finally:
            with suppress(LDAPException, OSError):
                connection.unbind()

    def _search(
        self, connection: Any, base: str, filter: str, attribute: str
    ) -> list[tuple[str, list[str]]]:
        """Return entries: distinguished names, and values of an attribute."""
        self._login.asks(connection)
        connection.search(base, filter, ldap3.SUBTREE, attributes=[attribute])
        found = []
        for entry in connection.response:
            if entry["type"] == "searchResEntry":
                values = entry["raw_attributes"].get(attribute, [])
                found.append((entry["dn"], [value.decode("utf-8", "replace") for value in values]))
        return found

    def _connection(self, user: str, password: str) -> ldap3.Connection:
        """Return a connection that is not open."""
        options = self._options
        tls = None
        if options.tls:
            authorities = None if options.authorities is None else str(options.authorities)
            tls = ldap3.Tls(validate=ssl.CERT_REQUIRED, ca_certs_file=authorities)
        host, _, port = self._place.rpartition(":")
        server = ldap3.Server(
            host.strip("[]"),
            int(port),
            use_ssl=options.tls,
            tls=tls,
            get_info=ldap3.NONE,
            connect_timeout=self._limit_s,
        )
        return ldap3.Connection(
            server,
            user or None,
            password or None,
            authentication=ldap3.SIMPLE if user else ldap3.ANONYMOUS,
            # Whole seconds, as the library has them.
            receive_timeout=math.ceil(self._limit_s),
            auto_referrals=False,
            read_only=True,
            raise_exceptions=True,
        )


def _filtered(attribute: str, value: str, besides: str) -> str:
    one = f"({attribute}={escape_filter_chars(value)})"
    if not besides:
        return one
    return f"(&{one}{besides if besides.startswith('(') else f'({besides})'})"
