"""The users file, and the authentication of users.

Owns the file, the users that a new instance begins with, and the rules of authentication. What a
user may then do, :mod:`gateway.broker.security.access` knows; how a passcode is hashed and
verified, :mod:`gateway.broker.security.passcodes`.

The file is UTF-8, one line a user after a first line that names the format::

    version=StompGatewayUsers/1
    NAME:GROUP[,GROUP...]:active|inactive:loopback|any:ARGON2ID-HASH

``loopback`` confines a user to connections from this machine.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any, Final

from twisted.logger import Logger

from gateway.broker.security.logins import Logins, Rank
from gateway.broker.security.passcodes import (
    CannotVerify,
    Passcodes,
    TooManyWait,
    hash_passcode,
    is_hash,
)
from gateway.instance import passfile
from gateway.instance.layout import Layout, LineError, folder_locked, make_directory, replace
from gateway.instance.listening import counted_address
from gateway.instance.settings_general import BRIDGE_ADMIN_PASSWORD
from gateway.messaging.errors import AuthenticationFailed
from gateway.messaging.provider import Credentials
from gateway.reactor.deferreds import deferred

VERSION: Final = "StompGatewayUsers/1"

#: The groups that Open MQ gives a meaning: the default access rules let ``admin`` administer.
ADMIN_GROUP: Final = "admin"
ANONYMOUS_GROUP: Final = "anonymous"

#: The passfile's names for the password of the user admin.
_ADMIN_PASSWORDS: Final = (
    "imq.imqcmd.password",
    "imq.imqbridgemgr.password",
    BRIDGE_ADMIN_PASSWORD.name,
)

_FIELDS: Final = 5
_LONGEST_NAME: Final = 255
_FORBIDDEN: Final = ":,*"


#: In place of a repository: another broker knows the user.
ELSEWHERE: Final = ""


@dataclass(frozen=True)
class Principal:
    """An authenticated user, with the groups it is in.

    :param until: when what it has shown ends, in seconds since the epoch; None: never.
    :param repository: which repository knows it.
    :param vouched: groups that its certificate vouches for, whatever the file says; None: none.
    """

    name: str
    groups: frozenset[str]
    until: float | None = None
    repository: str = "file"
    vouched: frozenset[str] | None = None


@dataclass(frozen=True, repr=False)
class User:
    """One line of the users file.

    :param hash: Argon2id hash of the passcode, in the PHC string format.
    :param active: an inactive user cannot connect.
    :param loopback: may connect from this machine only.
    """

    name: str
    groups: frozenset[str]
    hash: str
    active: bool = True
    loopback: bool = False

    def __repr__(self) -> str:
        """Without the hash, which must not get into a log."""
        return f"User({self.name!r}, {sorted(self.groups)}, active={self.active}, loopback={self.loopback})"


class UsersError(LineError):
    """The users file cannot be used."""


class Users:
    """The users of one users file.

    Empty before the first :meth:`load`.

    :param path: the file, ``etc/users`` of an instance.
    :param reactor: its thread runs everything here; verifying is done on threads that end with it,
        or with :meth:`close`.
    :param passcodes: verifies; None makes one.
    :param logins: knows who has logged in before; None makes one that keeps nothing.
    """

    _log = Logger()

    def __init__(
        self,
        path: Path,
        reactor: Any,
        passcodes: Passcodes | None = None,
        logins: Logins | None = None,
    ) -> None:
        self.path: Final = path
        self._passcodes = Passcodes(reactor) if passcodes is None else passcodes
        self._logins = Logins(reactor) if logins is None else logins
        self._users: Mapping[str, User] = {}

    def load(self) -> None:
        """Read the file; it holds for those who connect from now on.

        Call :meth:`readmit` for those who are connected.

        :raises UsersError: the file cannot be read, or a line of it is no user. The users are then
            what they were.
        """
        self._users = read_users(self.path)
        self._passcodes.forget()
        mode = self.path.stat().st_mode & 0o077
        if mode:
            self._log.warn(
                "{file} can be read by others than its owner: its mode should be 0600",
                file=str(self.path),
            )

    #: The same again, for a file that changed.
    reload = load

    @deferred
    async def authenticate(self, credentials: Credentials) -> Principal:
        """Check the credentials: whether their user may connect from there.

        A passcode that is given is always verified. The name that a client certificate vouches for
        stands in for one only where no passcode is given, and only for the user of that name.
        Nothing tells an unknown user from a wrong passcode, neither in words nor in time; that a
        user is inactive, or confined to the loopback, is told to those only who know the passcode.

        :returns: fails with AuthenticationFailed.
        """
        name, passcode, certificate = (
            credentials.username,
            credentials.passcode,
            credentials.certificate,
        )
        if not passcode:
            if certificate is None:
                raise AuthenticationFailed(name, "the passcode is empty")
            if name and name != certificate:
                raise AuthenticationFailed(name, "the client certificate is another user's")
            return self._vouched(certificate, credentials.certificate_groups, credentials.address)
        address = counted_address(credentials.address)
        rank = Rank.KNOWN if self._logins.is_known(name, address) else Rank.OTHER
        while True:
            user = self._users.get(name)
            hash = None if user is None else user.hash
            try:
                right = await self._passcodes.verify(hash, passcode, address, name, rank)
            except CannotVerify as error:
                if isinstance(error, TooManyWait):
                    # Or a client that fills the queue would come again at once, as fast as it can.
                    await self._logins.failed(address)
                raise AuthenticationFailed(name, str(error)) from None
            user = self._users.get(name)
            # The file may have been read anew meanwhile: what counts is the passcode that it has
            # now.
            if (None if user is None else user.hash) == hash:
                break
        if user is None or not right:
            # Only the answer is held back: a user who knows the passcode does not wait for others at
            # the same address who do not.
            await self._logins.failed(address)
            raise AuthenticationFailed(name)
        principal = _admitted(user, credentials.address)
        self._logins.succeeded(name, address)
        return principal

    def readmit(self, principal: Principal, address: str) -> Principal:
        """Return a connected user with the groups that the file has now.

        The passcode is not verified again.

        :raises AuthenticationFailed: the user was deleted, is inactive, or may no longer connect
            from there.
        """
        if principal.vouched is not None:
            return self._vouched(principal.name, principal.vouched, address)
        user = self._users.get(principal.name)
        if user is None:
            raise AuthenticationFailed(principal.name, "the user was deleted")
        return _admitted(user, address)

    def _vouched(self, name: str, groups: frozenset[str] | None, address: str) -> Principal:
        """Return the user of a certificate.

        :param groups: that it vouches for, besides those that the file has; None: the file must
            have the user.
        :raises AuthenticationFailed: the user may not connect.
        """
        user = self._users.get(name)
        if user is not None:
            admitted = _admitted(user, address)
            return replaced(admitted, groups=admitted.groups | (groups or set()), vouched=groups)
        if groups is None:
            raise AuthenticationFailed(name, "the client certificate's user is unknown")
        try:
            named = frozenset(check_name(group, "group") for group in groups)
            return Principal(check_name(name), named, vouched=groups)
        except ValueError as error:
            raise AuthenticationFailed(name, f"the client certificate: {error}") from None

    def has(self, name: str) -> bool:
        """Whether the file has a user of that name."""
        return name in self._users

    def close(self) -> None:
        """Stop the threads that verify, and keep who has logged in."""
        self._passcodes.close()
        self._logins.close()


def read_users(path: Path) -> dict[str, User]:
    """The users of a file by name, in the order of its lines.

    :raises UsersError: the file cannot be read, or a line of it is no user.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise UsersError(path, 0, f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsersError(path, line, "expected text in UTF-8") from None
    return parse(text, path)


def parse(text: str, path: Path) -> dict[str, User]:
    """Read the users of a file's text, by name in the order of its lines.

    Empty lines are skipped.

    :param path: for the errors.
    :raises UsersError: a line is no user.
    """
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if lines[0] != f"version={VERSION}":
        raise UsersError(path, 1, f"expected version={VERSION}")
    users: dict[str, User] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not line:
            continue
        try:
            user = _parse_line(line)
        except ValueError as error:
            raise UsersError(path, number, str(error)) from None
        if user.name in users:
            raise UsersError(path, number, f"user '{user.name}' is there twice")
        users[user.name] = user
    return users


def render(users: Iterable[User]) -> str:
    """The text of a users file; :func:`parse` reads it back."""
    lines = [f"version={VERSION}"]
    for user in users:
        state = "active" if user.active else "inactive"
        reach = "loopback" if user.loopback else "any"
        lines.append(":".join((user.name, ",".join(sorted(user.groups)), state, reach, user.hash)))
    return "\n".join(lines) + "\n"


def write_users(path: Path, users: Iterable[User]) -> None:
    """Replace the file, atomically, readable by its owner only.

    :raises OSError: it cannot be written; the file is what it was.
    """
    replace(path, render(users).encode())


@contextmanager
def edited(path: Path) -> Iterator[dict[str, User]]:
    """Give the users of the file to be changed, and write them.

    They are written when the block ends well. Two processes that edit wait for each other.

    :raises UsersError: as :func:`read_users`.
    :raises OSError: as :func:`write_users`.
    """
    with ExitStack() as locked:
        try:
            locked.enter_context(folder_locked(path.parent))
        except OSError as error:
            raise UsersError(path, 0, f"cannot be read: {error.strerror or error}") from error
        users = read_users(path)
        before = dict(users)
        yield users
        if users != before:
            write_users(path, users.values())


def check_name(name: str, what: str = "user") -> str:
    """The name itself, if it can be that of a user or a group.

    :param what: for the error.
    :raises ValueError: it cannot.
    """
    if not name or name != name.strip():
        raise ValueError(
            f"{what} name {name!r}: expected a name that neither is empty nor begins or ends with a blank"
        )
    if len(name) > _LONGEST_NAME:
        raise ValueError(f"{what} name of {len(name)} characters: expected at most {_LONGEST_NAME}")
    if not name.isprintable() or any(character in _FORBIDDEN for character in name):
        raise ValueError(
            f"{what} name {name!r}: expected printable characters, none of them : , or *"
        )
    return name


def is_name(text: str) -> bool:
    """Whether :func:`check_name` takes it."""
    try:
        check_name(text)
    except ValueError:
        return False
    return True


#: Who :func:`make_first_users` makes, and which of these alone is an administrator.
FIRST_USERS: Final = ("admin", "guest")
FIRST_ADMINISTRATOR: Final = "admin"


def make_first_users(layout: Layout, *, shown: bool = True) -> tuple[str, ...]:
    """Make the first users of an instance, with the admin's password.

    The password is put into the instance's passfile.

    They are ``guest``, passcode ``guest``, group ``anonymous``, from this machine only; and
    ``admin`` in group ``admin``, from everywhere. The users file has hashes only. A password that
    the passfile has already, of a start that was interrupted, is used again; else it is a random
    one of 144 bits.

    :param shown: whether the lines have the password; else they say where it is.
    :returns: what was made, a line each, to be shown to the user.
    :raises FileExistsError: there is a users file, which is left alone.
    :raises OSError: a file cannot be written.
    :raises PassfileError: there is a passfile that cannot be used.
    """
    if layout.users.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(layout.users))
    make_directory(layout.etc)
    layout.close_to_others()
    kept = passfile.read(layout.passfile) if layout.passfile.exists() else {}
    password = kept.get(_ADMIN_PASSWORDS[0]) or secrets.token_urlsafe(18)
    passfile.update(layout.passfile, dict.fromkeys(_ADMIN_PASSWORDS, password))
    guest = User("guest", frozenset({ANONYMOUS_GROUP}), hash_passcode("guest"), loopback=True)
    admin = User("admin", frozenset({ADMIN_GROUP}), hash_passcode(password))
    write_users(layout.users, (admin, guest))
    return (
        f"user 'admin' has the password {password}, kept in {layout.passfile}; it is not shown again"
        if shown
        else f"the password of user 'admin' is in {layout.passfile}",
        "user 'guest' has the passcode guest, and may connect from this machine only",
    )


def password_of_admin(layout: Layout) -> str:
    """Return the password of ``admin`` in the instance's passfile.

    Empty where the passfile has none.

    :raises PassfileError: the passfile cannot be used.
    """
    return passfile.read(layout.passfile).get(_ADMIN_PASSWORDS[0], "")


def _parse_line(line: str) -> User:
    fields = line.split(":", _FIELDS - 1)
    if len(fields) != _FIELDS:
        raise ValueError(
            f"expected {_FIELDS} fields with colons between, NAME:GROUPS:active|inactive:loopback|any:HASH"
        )
    name, groups, state, reach, hash = fields
    check_name(name)
    names = (
        frozenset(check_name(group, "group") for group in groups.split(","))
        if groups
        else frozenset()
    )
    if state not in ("active", "inactive"):
        raise ValueError(f"user '{name}': {state!r}: expected active or inactive")
    if reach not in ("loopback", "any"):
        raise ValueError(f"user '{name}': {reach!r}: expected loopback or any")
    if not is_hash(hash):
        raise ValueError(f"user '{name}': expected an Argon2id hash in the last field")
    return User(name, names, hash, state == "active", reach == "loopback")


def _admitted(user: User, address: str) -> Principal:
    """The principal of a user who has proved to be that user."""
    if not user.active:
        raise AuthenticationFailed(user.name, "the user is inactive")
    if user.loopback and not _is_loopback(address):
        raise AuthenticationFailed(
            user.name, "the user may connect from the server's own machine only"
        )
    return Principal(user.name, user.groups)


def _is_loopback(address: str) -> bool:
    """Whether the address is this machine's loopback; "" is this process."""
    if not address:
        return True
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((parsed if mapped is None else mapped).is_loopback)
