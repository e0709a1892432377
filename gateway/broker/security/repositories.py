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

from gateway.broker.properties.repositories import FILE, OIDC
from gateway.broker.security.users import Principal, Users
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

    A token is for the one of tokens. The file has its users, and the users of certificates. Of all
    others the first that is left knows whether they exist.

    :param repositories: by name, in order; at least one.
    :param file: the instance's file, whether it is among them or not.
    """

    def __init__(self, repositories: Mapping[str, Repository], file: Users) -> None:
        self._repositories: Final = repositories
        self._file: Final = file

    @deferred
    async def authenticate(self, credentials: Credentials) -> Principal:
        """Return the user of credentials; fails with AuthenticationFailed."""
        name = self._asked(credentials)
        if name is None:
            raise AuthenticationFailed(credentials.username)
        principal = await self._repositories[name].authenticate(credentials)
        if name != FILE and FILE in self._repositories and self._file.has(principal.name):
            # Neither another spelling of the login nor a token gets around what the file says of
            # its users.
            raise AuthenticationFailed(credentials.username, "a user of the file has that name")
        return replace(principal, repository=name)

    def readmit(self, principal: Principal, address: str) -> Principal:
        """Return a connected user as its repository knows it now.

        :raises AuthenticationFailed: it may connect no more.
        """
        known = self._repositories[principal.repository].readmit(principal, address)
        return replace(known, repository=principal.repository, until=principal.until)

    def load(self) -> None:
        """Read the file, as :meth:`~gateway.broker.security.users.Users.load`."""
        self._file.load()

    #: The same again, for a file that changed.
    reload = load

    def close(self) -> None:
        """Verify nothing more."""
        for each in {id(one): one for one in (self._file, *self._repositories.values())}.values():
            each.close()

    def _asked(self, credentials: Credentials) -> str | None:
        there = self._repositories
        if OIDC in there and is_token(credentials.passcode):
            return OIDC
        passcodes = [name for name in there if name != OIDC]
        if FILE in there and (not credentials.passcode or self._file.has(credentials.username)):
            return FILE
        return next((name for name in passcodes if name != FILE), next(iter(passcodes), None))
