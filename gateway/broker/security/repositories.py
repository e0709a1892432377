"""Several repositories of users as one.

Owns which of them is asked about whom. The setting is Open MQ's; its one repository may be several
here, in an order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from twisted.internet.defer import Deferred

from gateway.broker.properties.repositories import FILE, LDAP, OIDC
from gateway.broker.security.logins import Logins
from gateway.broker.security.users import Principal, Users
from gateway.instance.listening import counted_address
from gateway.messaging.errors import AuthenticationFailed
from gateway.messaging.provider import Credentials
from gateway.reactor.deferreds import deferred

#: What has the form of a signed token (RFC 7515, section 7.1): no passcode that a person chooses.
_FORM: Final = re.compile(r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


def is_token(passcode: str) -> bool:
    """Whether a passcode has the form of a signed token."""
    return _FORM.fullmatch(passcode) is not None


class Repository(Protocol):
    """Who knows users."""

    def authenticate(self, credentials: Credentials) -> Deferred[Principal]:
        """Return the user of credentials; fails with AuthenticationFailed."""

    def readmit(self, principal: Principal, address: str) -> Principal:
        """Return a connected user as it is known now.

        :raises AuthenticationFailed: it may connect no more.
        """

    def close(self) -> None:
        """Verify nothing more."""


class Repositories:
    """Asks the repository that a login is for.

    A token is for the one of tokens. The file has its users, and the users of certificates; all
    others are for the directory.

    :param repositories: by name; at least one.
    :param file: the instance's file, whether it is among them or not.
    :param logins: holds answers to failures back, of the others; the file's own does so itself.
    """

    def __init__(self, repositories: Mapping[str, Repository], file: Users, logins: Logins) -> None:
        self._repositories: Final = repositories
        self._file: Final = file
        self._logins: Final = logins

    @deferred
    async def authenticate(self, credentials: Credentials) -> Principal:
        """Return the user of credentials; fails with AuthenticationFailed."""
        name = self._asked(credentials)
        if name is None:
            raise AuthenticationFailed(credentials.username)
        if name == FILE:
            return await self._file.authenticate(credentials)
        try:
            principal = await self._repositories[name].authenticate(credentials)
            if FILE in self._repositories and self._file.has(principal.name):
                # Neither another spelling of the login nor a token gets around what the file says
                # of its users.
                raise AuthenticationFailed(credentials.username, "a user of the file has that name")
        except AuthenticationFailed:
            await self._logins.failed(counted_address(credentials.address))
            raise
        return replace(principal, repository=name)

    def readmit(self, principal: Principal, address: str) -> Principal:
        """Return a connected user as its repository knows it now.

        :raises AuthenticationFailed: it may connect no more.
        """
        return self._repositories[principal.repository].readmit(principal, address)

    def load(self) -> None:
        """Read the file, as :meth:`~gateway.broker.security.users.Users.load`."""
        self._file.load()

    #: The same again, for a file that changed.
    reload = load

    def close(self) -> None:
        """Verify nothing more."""
        self._file.close()
        for name, repository in self._repositories.items():
            if name != FILE:
                repository.close()

    def _asked(self, credentials: Credentials) -> str | None:
        there = self._repositories
        if OIDC in there and is_token(credentials.passcode):
            return OIDC
        of_file = not credentials.passcode or self._file.has(credentials.username)
        if LDAP in there and not (FILE in there and of_file):
            return LDAP
        return FILE if FILE in there else None
