"""Users and groups of an LDAP directory, as Open MQ has them.

Owns what the directory is asked, and what that means. The protocol is ldap3's, which waits for its
answers, so it does that on threads.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import ldap3
from ldap3.core.exceptions import (
    LDAPException,
    LDAPOperationResult,
    LDAPSASLPrepError,
    LDAPSocketOpenError,
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
_CONNECT_S: Final = 5


class _Refused(Exception):
    """The directory does not let the user in; the text says why."""


class _Login:
    """One that a thread is to look up."""

    def __init__(self, name: str, passcode: str) -> None:
        self.name: Final = name
        self.passcode: Final = passcode
        #: Its client is gone.
        self.given_up = False

    def give_up(self, _: object) -> None:
        """Look it up no more, unless that is under way."""
        self.given_up = True


class DirectoryUsers:
    """Authenticates users by a directory.

    :param reactor: its thread calls everything here.
    :param most: logins that may wait for the directory, those included whose clients are gone.
    """

    _log = Logger()

    def __init__(self, reactor: Any, options: DirectoryOptions, most: int) -> None:
        self._reactor: Final = reactor
        self._options: Final = options
        self._most: Final = most
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
            return await self._begun(_Login(name, credentials.passcode))
        except _Refused as refused:
            raise AuthenticationFailed(name, str(refused)) from None
        except (LDAPException, OSError, ssl.SSLError) as error:
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

        def over(outcome: Principal | Failure) -> None:
            self._asking -= 1
            if not login.given_up:
                found.callback(outcome)

        def told(good: bool, outcome: Principal | Failure) -> None:
            self._reactor.callFromThread(over, outcome)

        self._asking += 1
        self._threads.callInThreadWithCallback(told, self._look_up, login)
        return found

    def _look_up(self, login: _Login) -> Principal:
        if login.given_up or self._ended:
            raise _Refused("its client is gone")
        return _looked_up(self._options, login.name, login.passcode)

    def _end(self) -> None:
        # Those that wait for a thread are not looked up, so that it is soon over.
        self._ended = True
        self._threads.stop()


def _looked_up(options: DirectoryOptions, name: str, passcode: str) -> Principal:
    """Find a user, bind as it, find its groups. On a thread.

    :raises _Refused: the passcode is wrong, or there is no such user.
    :raises LDAPException, OSError: the directory cannot be asked.
    """
    try:
        with _bound(options, options.principal, options.password) as connection:
            own = _filtered(options.uid_attribute, name, options.user_filter)
            found = _search(connection, options.base, own, options.uid_attribute)
            known = len(found) == 1
            # One who is not there is asked for like one who is, so that neither words nor time tell
            # them apart.
            dn, names = found[0] if known else (f"{options.uid_attribute}=-,{options.base}", [])
            _verify(options, dn, passcode)
            if not known:
                raise _Refused(_UNKNOWN)
            groups: set[str] = set()
            if options.searches_groups:
                members = _filtered(options.member_attribute, dn, options.group_filter)
                listed = _search(connection, options.group_base, members, options.gid_attribute)
                groups = {group for _, called in listed for group in called if is_name(group)}
    except UnicodeError:
        raise _Refused(_UNKNOWN) from None
    # A directory does not tell upper from lower case, and access rules do.
    called = dn if options.names_are_dns else next(iter(names), "")
    if not options.names_are_dns and not is_name(called):
        raise _Refused("the directory's name of the user cannot be one here")
    return Principal(called, frozenset(groups))


def _verify(options: DirectoryOptions, dn: str, passcode: str) -> None:
    """:raises _Refused: the directory does not take the passcode."""
    try:
        with _bound(options, dn, passcode):
            pass
    except (LDAPOperationResult, LDAPSASLPrepError):
        # Wrong, or no text that a passcode can have; or the account is locked, which is not told
        # to those who guess.
        raise _Refused(_UNKNOWN) from None


@contextmanager
def _bound(options: DirectoryOptions, user: str, password: str) -> Iterator[ldap3.Connection]:
    """Give a connection as that user; whatever happens, its socket is closed.

    :raises LDAPException: it cannot be had.
    """
    connection = _connection(options, user, password)
    try:
        connection.bind()
        yield connection
    finally:
        with suppress(LDAPException, OSError):
            connection.unbind()


def _connection(options: DirectoryOptions, user: str, password: str) -> ldap3.Connection:
    """Return a connection to the first server that takes one, not bound.

    :raises LDAPException: none does.
    """
    tls = None
    if options.tls:
        authorities = None if options.authorities is None else str(options.authorities)
        tls = ldap3.Tls(validate=ssl.CERT_REQUIRED, ca_certs_file=authorities)
    down: LDAPSocketOpenError | None = None
    for place in options.servers:
        host, _, port = place.rpartition(":")
        server = ldap3.Server(
            host.strip("[]"),
            int(port),
            use_ssl=options.tls,
            tls=tls,
            get_info=ldap3.NONE,
            connect_timeout=min(_CONNECT_S, options.timeout_s),
        )
        connection = ldap3.Connection(
            server,
            user or None,
            password or None,
            authentication=ldap3.SIMPLE if user else ldap3.ANONYMOUS,
            receive_timeout=options.timeout_s,
            auto_referrals=False,
            read_only=True,
            raise_exceptions=True,
        )
        try:
            connection.open(read_server_info=False)
        except LDAPSocketOpenError as error:
            down = error
        else:
            return connection
    assert down is not None
    raise down


def _filtered(attribute: str, value: str, besides: str) -> str:
    one = f"({attribute}={escape_filter_chars(value)})"
    if not besides:
        return one
    return f"(&{one}{besides if besides.startswith('(') else f'({besides})'})"


def _search(connection: Any, base: str, filter: str, attribute: str) -> list[tuple[str, list[str]]]:
    """Return entries: distinguished names, and values of an attribute."""
    connection.search(base, filter, ldap3.SUBTREE, attributes=[attribute])
    found = []
    for entry in connection.response:
        if entry["type"] == "searchResEntry":
            values = entry["raw_attributes"].get(attribute, [])
            found.append((entry["dn"], [value.decode("utf-8", "replace") for value in values]))
    return found
