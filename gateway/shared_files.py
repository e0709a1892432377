"""Users and access rules that the processes of a broker share.

They are in its database. Each process has them in files, too, as without a database, and the commands and editors that change
those go on. The files are copies: what is in the database counts. A file that was changed here goes
there at the next start and by SIGHUP; one that was changed elsewhere comes here within seconds.

Part of the composition. Owns which copy counts; what the files mean, their readers know.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.broker.security.access import AccessRules
from gateway.broker.security.users import read_users
from gateway.broker.store.interface import StoreError
from gateway.configuration import Configuration
from gateway.instance.layout import LineError, folder_locked, replace
from gateway.reactor.deferreds import alone_on_thread

if TYPE_CHECKING:
    from gateway.broker.store.postgresql.shared_files import SharedFile, SharedFileRows

#: Seconds between two looks at the database.
LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Copy:
    """What a file was when it and the database were the same.

    :param digest: of the file.
    """

    version: int
    digest: str


#: Makes sure that a file can be used. :raises LineError: it cannot.
Check = Callable[[Path], object]


def check_rules(path: Path) -> None:
    """Make sure that a file has access rules. :raises AccessError: it has not."""
    AccessRules(path).load()


class SharedFiles:
    """The files of this process that others share.

    To be used on one thread at a time.

    :param rows: where they are shared.
    :param files: by name; each with what makes sure that it can be used.
    :param record: the file in which this remembers what was the same last.
    """

    _log = Logger(namespace="gateway.shared_files")

    def __init__(
        self, rows: SharedFileRows, files: Mapping[str, tuple[Path, Check]], record: Path
    ) -> None:
        self._rows: Final = rows
        self._files: Final = files
        self._record: Final = record
        self._copies: dict[str, Copy] = {}
        self._read_record()

    def look(self, *, give: bool) -> bool:
        """Bring the files and the database together.

        :param give: whether files that were changed here go to the database, and not only those
            there come here.
        :returns: whether a file here is another one now.
        :raises StoreError: the database cannot be asked.
        :raises OSError: a file cannot be read or written.
        """
        versions = self._rows.versions()
        changed = False
        for name, (path, check) in self._files.items():
            copy = self._copies.get(name)
            if not give and copy is not None and versions.get(name) == copy.version:
                continue
            # imqusermgr holds this while it changes a file.
            with folder_locked(path.parent):
                changed = self._together(name, path, check, give) or changed
        return changed

    def close(self) -> None:
        """End the session with the database. Idempotent; never fails."""
        self._rows.close()

    def _together(self, name: str, path: Path, check: Check, give: bool) -> bool:
        while True:
            octets = path.read_bytes()
            copy = self._copies.get(name)
            there = self._rows.read(name)
            mine = _digest(octets)
            if there is not None and _digest(there.octets) == mine:
                self._remember(name, Copy(there.version, mine))
                return False
            version = 0 if there is None else there.version
            if there is not None and (copy is None or version != copy.version):
                if self._take(name, path, octets, there):
                    self._remember(name, Copy(version, _digest(there.octets)))
                    return True
                continue
            if not give:
                return False
            try:
                check(path)
            except LineError as error:
                self._log.error("{name} is not shared: {error}", name=name, error=error)
                return False
            if path.read_bytes() != octets:
                # It is being edited: what was looked at is not what would be given.
                continue
            given = self._rows.write(name, octets, version)
            if given is not None:
                self._remember(name, Copy(given, mine))
                self._log.info(
                    "{name} is in the database now, and counts for all processes of the broker",
                    name=name,
                )
                return False

    def _take(self, name: str, path: Path, before: bytes, there: SharedFile) -> bool:
        """Replace the file by what is there, unless it is another by now."""
        copy, node = self._copies.get(name), there.node
        if path.read_bytes() != before:
            return False
        if copy is None or _digest(before) != copy.digest:
            aside = _free(path.with_name(f"{path.name}.replaced"))
            replace(aside, before)
            self._log.warn(
                "{name}: what is in the database counts, as {node} left it; what was here is in {aside}{more}",
                name=name,
                node=node,
                aside=aside,
                more="" if copy else "; passwords in the passfile must be those of the database",
            )
        else:
            self._log.info("{name} is as {node} left it", name=name, node=node)
        replace(path, there.octets)
        return True

    def _read_record(self) -> None:
        try:
            found = json.loads(self._record.read_text("utf-8"))
            self._copies = {name: Copy(**copy) for name, copy in found.items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, AttributeError) as error:
            # Without it a change made here while the process was stopped looks like a conflict.
            self._log.warn(
                "{file} cannot be used, and is made anew: {error}", file=self._record, error=error
            )

    def _remember(self, name: str, copy: Copy) -> None:
        if self._copies.get(name) != copy:
            self._copies[name] = copy
            text = json.dumps({each: asdict(found) for each, found in self._copies.items()})
            replace(self._record, text.encode())


class Sharing:
    """Keeps files and database together while the process runs.

    :param files: None where there is nothing to share.
    :param changed: called when a file is another one now.
    """

    _log = Logger(namespace="gateway.shared_files")

    def __init__(
        self, reactor: Any, files: SharedFiles | None, changed: Callable[[], None]
    ) -> None:
        self._reactor: Final = reactor
        self._files: Final = files
        self._changed: Final = changed
        self._turn: Final = DeferredLock()
        self._next: IDelayedCall | None = None
        self._give = False
        self._trouble = ""
        self._stopped = False

    def begin(self) -> bool:
        """Bring them together, and look from then on.

        Blocks until the database has answered. Where it does not, the files are as they were.

        :returns: whether a file here is another one now.
        """
        changed = False
        if self._files is None:
            return changed
        try:
            changed = self._files.look(give=True)
        except (StoreError, OSError) as error:
            self._give = True
            self._tell(error)
        self._look_later()
        return changed

    def given_here(self) -> None:
        """Files may have been changed here: give them to the database at once."""
        if self._files is not None and not self._stopped:
            self._give = True
            if self._next is not None and self._next.active():
                self._next.reset(0)

    async def stop(self) -> None:
        """Look no more."""
        self._stopped = True
        if self._next is not None and self._next.active():
            self._next.cancel()
        if self._files is not None:
            await self._turn.acquire()
            self._turn.release()
            self._files.close()

    def _look_later(self) -> None:
        if not self._stopped:
            self._next = self._reactor.callLater(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        looking = Deferred.fromCoroutine(self._looked())
        looking.addErrback(self._defect)
        looking.addBoth(lambda _: self._look_later())

    async def _looked(self) -> None:
        files = self._files
        if files is None:
            return
        give, self._give = self._give, False
        try:
            changed = await alone_on_thread(self._reactor, self._turn, files.look, give=give)
            self._trouble = ""
        except (StoreError, OSError) as error:
            self._give = self._give or give
            self._tell(error)
            return
        if changed and not self._stopped:
            self._changed()

    def _tell(self, error: Exception) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._log.error(
                "users and access rules stay as they are here: {error}", error=self._trouble
            )

    def _defect(self, failure: Failure) -> None:
        self._log.failure("users and access rules could not be shared", failure)


def sharing(reactor: Any, configuration: Configuration, changed: Callable[[], None]) -> Sharing:
    """Make what shares users and access rules, where processes stand by.

    :param changed: called when one of them is another one now.
    """
    options = configuration.jdbc
    if options is None or not options.stands_by:
        return Sharing(reactor, None, changed)
    # psycopg is an extra.
    from gateway.broker.store.postgresql.connecting import database_of
    from gateway.broker.store.postgresql.shared_files import SharedFileRows

    layout = configuration.layout
    files: dict[str, tuple[Path, Check]] = {
        "users": (layout.users, read_users),
        "access rules": (layout.access_control, check_rules),
    }
    rows = SharedFileRows(database_of(options), options.node)
    return Sharing(reactor, SharedFiles(rows, files, layout.etc / "shared.json"), changed)


def _free(path: Path) -> Path:
    """The path, or one like it at which there is no file."""
    numbers = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(each for each in chain([path], numbers) if not each.exists())


def _digest(octets: bytes) -> str:
    return sha256(octets).hexdigest()
