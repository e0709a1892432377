"""Users and access rules as an administrator changes them.

Owns how the two files are edited, and the rule that administrators do not lock themselves out.
What the files mean, :mod:`gateway.broker.security.users` and
:mod:`gateway.broker.security.access` know. The files are what ``imqusermgr`` and editors change,
too: comments in the access rules stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any, Final, TypeVar

from twisted.internet.defer import DeferredLock
from twisted.logger import Logger

from gateway.broker.operator.administration import AdministrationRefused
from gateway.broker.security.access import (
    AccessError,
    AccessRules,
    Operation,
    Reason,
    list_of,
    read_lists,
)
from gateway.broker.security.passcodes import hash_passcode, is_hash
from gateway.broker.security.users import (
    Principal,
    User,
    UsersError,
    check_name,
    edited,
    read_users,
)
from gateway.instance import properties
from gateway.instance.layout import folder_locked, replace
from gateway.instance.settings_general import BRIDGE_ADMIN_PASSWORD
from gateway.messaging.destination import Destination
from gateway.reactor.deferreds import alone_on_thread, deferred

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class UserChange:
    """What a user is to be.

    :param hash: of the passcode; "" keeps the one that there is.
    """

    name: str
    groups: Sequence[str]
    hash: str = ""
    active: bool = True
    loopback: bool = False


@dataclass(frozen=True, repr=False)
class UserUpdate:
    """What is to change of a user; None stays as it is.

    :param passcode: "" stays as it is.
    """

    groups: Sequence[str] | None = None
    passcode: str = ""
    active: bool | None = None
    loopback: bool | None = None


@dataclass(frozen=True)
class Judged:
    """What a user may do, and why.

    :param known: whether the users file has the user.
    :param active: whether the user may connect at all.
    :param reasons: by what is asked: ``connect``, the operation, and ``create``, which is asked, too,
        where it is by that use that the destination is there.
    """

    user: str
    groups: Sequence[str]
    known: bool
    active: bool
    reasons: Mapping[str, Reason]


class Accounts:
    """The users and access rules of an instance.

    Files are read and written on a thread. Deferreds fail with AdministrationRefused.

    :param users: the users file.
    :param rules: the access control file.
    :param read_again: has the gateway read both files again; called on the reactor's thread.
    :param standing: an administrator whom the settings let in, whatever the files say; "" for none.
    """

    _log = Logger(namespace="gateway.accounts")

    def __init__(
        self,
        reactor: Any,
        users: Path,
        rules: Path,
        read_again: Callable[[], None],
        standing: str = "",
    ) -> None:
        self._reactor: Final = reactor
        self._users: Final = users
        self._rules: Final = rules
        self._read_again: Final = read_again
        self._standing: Final = standing
        self._turn: Final = DeferredLock()

    @deferred
    async def users(self) -> list[User]:
        """Return the users of the file, by name."""

        def read() -> list[User]:
            return sorted(read_users(self._users).values(), key=lambda user: user.name)

        return await self._on_thread(read)

    @deferred
    async def put_user(self, asker: str, change: UserChange) -> Sequence[str]:
        """Make or change a user.

        :param asker: the administrator who asks, who must stay one.
        :returns: sentences about what else must be done.
        """

        new = await self._edited(asker, lambda users: _put(users, change))
        self._log.info(
            "user '{name}' is {done} by administrator {asker}",
            name=change.name,
            done="made" if new else "changed",
            asker=asker,
        )
        return self._notes(change.name, change.hash)

    @deferred
    async def add_user(
        self, asker: str, name: str, passcode: str, groups: Sequence[str], loopback: bool
    ) -> None:
        """Add a user, as ``imqusermgr add`` does.

        :param asker: as of :meth:`put_user`.
        :param loopback: whether the user may connect from this machine only.
        """
        hash = await self._hashed(passcode)

        def add(users: dict[str, User]) -> bool:
            if name in users:
                raise AdministrationRefused(f"user '{name}' exists")
            users[name] = _checked(UserChange(name, groups, hash, True, loopback), None)
            return True

        await self._edited(asker, add)
        self._log.info("user '{name}' is made by administrator {asker}", name=name, asker=asker)

    @deferred
    async def update_user(self, asker: str, name: str, update: UserUpdate) -> Sequence[str]:
        """Change a user, as ``imqusermgr update`` does.

        :param asker: as of :meth:`put_user`.
        :returns: as :meth:`put_user`.
        """
        hash = await self._hashed(update.passcode) if update.passcode else ""

        def change(users: dict[str, User]) -> bool:
            old = users.get(name)
            if old is None:
                raise AdministrationRefused(f"there is no user '{name}'")
            groups = sorted(old.groups) if update.groups is None else update.groups
            active = old.active if update.active is None else update.active
            loopback = old.loopback if update.loopback is None else update.loopback
            users[name] = _checked(UserChange(name, groups, hash, active, loopback), old)
            return False

        await self._edited(asker, change)
        self._log.info("user '{name}' is changed by administrator {asker}", name=name, asker=asker)
        return self._notes(name, hash)

    async def _hashed(self, passcode: str) -> str:
        if not passcode:
            raise AdministrationRefused("the passcode is empty")
        return await self._on_thread(lambda: hash_passcode(passcode))

    def _notes(self, name: str, hash: str) -> Sequence[str]:
        if name != self._standing or not hash:
            return ()
        return (
            f"links connect as '{name}' with {BRIDGE_ADMIN_PASSWORD.name} of the passfile: see that it is the passcode of this hash",
        )

    @deferred
    async def judged(
        self,
        user: str,
        groups: Sequence[str] | None,
        operation: Operation,
        destination: Destination,
    ) -> Judged:
        """Return whether a user may do something with a destination, and why.

        :param groups: None for those of the users file.
        """

        def judge() -> Judged:
            known = read_users(self._users).get(user)
            rules = AccessRules(self._rules)
            rules.load()
            mine = frozenset(groups or ())
            if groups is None and known is not None:
                mine = known.groups
            principal = Principal(user, mine)
            reasons = {"connect": rules.connecting(principal)}
            reasons[operation.value] = rules.reason(principal, operation, destination)
            create = rules.reason(principal, Operation.CREATE, destination)
            reasons.setdefault(Operation.CREATE.value, create)
            return Judged(
                user, sorted(mine), known is not None, known is None or known.active, reasons
            )

        return await self._on_thread(judge)

    @deferred
    async def delete_user(self, asker: str, name: str) -> None:
        """Delete a user, whose connections end.

        :param asker: as of :meth:`put_user`.
        """
        await self._edited(asker, lambda users: _delete(users, name))
        self._log.info("user '{name}' is deleted by administrator {asker}", name=name, asker=asker)

    @deferred
    async def rules(self) -> dict[str, list[str]]:
        """Return the access rules: by their left sides the names, sorted."""
        return await self._on_thread(lambda: read_lists(self._rules.read_bytes(), self._rules))

    @deferred
    async def change_rules(
        self,
        asker: str,
        changes: Mapping[str, Sequence[str] | None],
        *,
        dry_run: bool = False,
    ) -> None:
        """Change access rules, all of them or none.

        :param asker: as of :meth:`put_user`.
        :param changes: the names of each rule by its left side; None removes the rule.
        :param dry_run: only check them.
        """

        def change() -> None:
            with folder_locked(self._rules.parent):
                data = self._changed_rules(changes)
                self._check_stays(asker, read_users(self._users), data)
                if not dry_run:
                    replace(self._rules, data)

        for side in ("version", ""):
            if side in changes:
                raise AdministrationRefused(f"{side or 'an empty text'} is no access rule")
        await self._on_thread(change)
        if dry_run:
            return
        self._read_again()
        self._log.info(
            "access rules are changed by administrator {asker}: {rules}",
            asker=asker,
            rules=", ".join(
                f"{side} removed" if names is None else f"{side}={','.join(names)}"
                for side, names in changes.items()
            ),
        )

    @deferred
    async def check(
        self,
        asker: str,
        users: Sequence[UserChange],
        rules: Mapping[str, Sequence[str] | None],
        deleted: Sequence[str],
    ) -> None:
        """Fail as these changes would, made one after the other. Changes nothing.

        :param asker: as of :meth:`put_user`.
        :param users: as :meth:`put_user` takes each, first.
        :param rules: as :meth:`change_rules` takes them.
        :param deleted: names of users, last.
        """

        def check() -> None:
            known, data = read_users(self._users), self._rules.read_bytes()
            for user in users:
                _put(known, user)
                self._check_stays(asker, known, data)
            if rules:
                data = self._changed_rules(rules)
                self._check_stays(asker, known, data)
            for name in deleted:
                _delete(known, name)
                self._check_stays(asker, known, data)

        await self._on_thread(check)

    def _changed_rules(self, changes: Mapping[str, Sequence[str] | None]) -> bytes:
        """Return the text of the rules with these changes."""
        before = self._rules.read_bytes()
        there = read_lists(before, self._rules)
        for side, names in changes.items():
            if names is None and side not in there:
                raise AdministrationRefused(f"there is no rule {side} to remove")
        return properties.rewritten(
            before,
            {side: None if names is None else list_of(names) for side, names in changes.items()},
        )

    async def _edited(self, asker: str, edit: Callable[[dict[str, User]], bool]) -> bool:
        def change() -> bool:
            with edited(self._users) as users:
                result = edit(users)
                self._check_stays(asker, users, self._rules.read_bytes())
                return result

        result = await self._on_thread(change)
        self._read_again()
        return result

    def _check_stays(self, asker: str, users: Mapping[str, User], rules: bytes) -> None:
        """:raises AdministrationRefused: the asker could administer no more."""
        judged = AccessRules(self._rules)
        judged.use(rules)
        if asker == self._standing:
            return
        user = users.get(asker)
        known = read_users(self._users).get(asker)
        if known is None and user is None:
            # Another repository knows the asker, with groups that are not in the file.
            return
        if (
            user is None
            or not user.active
            or not judged.may_connect(Principal(user.name, user.groups), "ADMIN")
        ):
            raise AdministrationRefused(
                f"user '{asker}', who asks for this, could not administer any more after it"
            )

    async def _on_thread(self, call: Callable[[], T]) -> T:
        try:
            return await alone_on_thread(self._reactor, self._turn, call)
        except (UsersError, AccessError, ValueError) as error:
            raise AdministrationRefused(str(error)) from error
        except OSError as error:
            raise AdministrationRefused(f"{error.filename}: {error.strerror or error}") from error


def _put(users: dict[str, User], change: UserChange) -> bool:
    """Make or change a user. :returns: whether it is new."""
    before = users.get(change.name)
    if before is None and not change.hash:
        raise AdministrationRefused(no_hash(change.name))
    users[change.name] = _checked(change, before)
    return before is None


def _delete(users: dict[str, User], name: str) -> bool:
    if users.pop(name, None) is None:
        raise AdministrationRefused(f"there is no user '{name}'")
    return False


def no_hash(name: str) -> str:
    """Say why a new user cannot be made without one."""
    return f"user '{name}' is new and has no hash of a passcode: give one, or make the user with imqusermgr"


def check_user(change: UserChange) -> None:
    """Whether there can be such a user; without a hash, it has one already.

    :raises ValueError: there cannot.
    """
    check_name(change.name)
    for group in change.groups:
        check_name(group, "group")
    if change.hash and not is_hash(change.hash):
        raise ValueError(f"user '{change.name}': expected an Argon2id hash of the passcode")


def _checked(change: UserChange, before: User | None) -> User:
    """:raises ValueError: no user can be that."""
    hash = change.hash or ("" if before is None else before.hash)
    check_user(replaced(change, hash=hash))
    return User(change.name, frozenset(change.groups), hash, change.active, change.loopback)
