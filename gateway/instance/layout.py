"""The files of one instance, how they are made, and its lock.

Owns the paths below ``<varhome>``, and how a small file is replaced so that a crash leaves the old
one or the new one whole. Of what the files hold it knows only the settings that a new instance
begins with.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from time import gmtime, strftime
from types import TracebackType

from gateway.instance import properties

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_BEGINNING = "# The settings of this instance, each a line name=value. The reference of settings lists the names.\n"
_NEW_INSTANCE = (("imq.bridge.enabled", "true"), ("imq.bridge.activelist", "stomp"))


#: How the name of a file with the decisions of a bridge begins.
TRANSACTION_LOG = "txlog."

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700


def replace(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Make ``path`` a file with these contents, in one step.

    It is written beside it, synced, renamed over it, and the directory is synced.

    :param mode: the permissions it gets, whatever the umask and whatever those of a file it
        replaces.
    :raises OSError: it could not be written; then ``path`` is as it was.
    """
    # A name of its own: two processes that write at once must not write into one temporary file.
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.rename(beside, path)
        except OSError as error:
            # By the name that is known, of the two that the error has.
            raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in ``directory`` durable.

    :raises OSError: it could not be.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LineError(Exception):
    """A file of the instance cannot be used.

    :param file: the file.
    :param line: the line it is about, from 1; 0 for the whole file.
    :param what: what is wrong, and what was expected.
    """

    def __init__(self, file: Path, line: int, what: str) -> None:
        where = f"{file}:{line}" if line else str(file)
        super().__init__(f"{where}: {what}")
        self.file = file
        self.line = line
        self.what = what


class LayoutError(Exception):
    """The instance's files cannot be had."""


class InvalidName(LayoutError):
    """The name of an instance or a bridge cannot be that of a directory here."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(
            f"{name!r} cannot be the name of {what}: expected at most 100 letters, digits, '_', '-' and '.', "
            "of which the first is a letter, a digit or '_'"
        )
        self.name = name


class InstanceLocked(LayoutError):
    """Another process has the instance.

    :param pid: that process; None if it has not said yet.
    """

    def __init__(self, path: Path, pid: int | None) -> None:
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(
            f"{path}: the instance is in use by {holder}; stop that first, or choose another instance"
        )
        self.path = path
        self.pid = pid


class Layout:
    """The paths of one instance.

    :param varhome: the directory that holds all instances.
    :param instance: the name of this one.
    :raises InvalidName: ``instance`` cannot be a directory's name.
    """

    def __init__(self, varhome: Path, instance: str) -> None:
        self.varhome = varhome
        self.instance = _checked("an instance", instance)
        self.directory = varhome / "instances" / instance
        self.etc = self.directory / "etc"
        self.settings = self.etc / "gateway.properties"
        self.passfile = self.etc / "passfile"
        self.users = self.etc / "users"
        self.access_control = self.etc / "accesscontrol.properties"
        self.tls = self.etc / "tls"
        self.store = self.directory / "store"
        self.messages = self.store / "messages.db"
        #: Says that there was a store. Not in its folder, which may be lost as a whole.
        self.store_made = self.directory / "store.made"
        self.bridges = self.directory / "bridges"
        self.journal = self.directory / "journal"
        self.log = self.directory / "log"
        self.logins = self.directory / "logins"
        self.lock_file = self.directory / "lock"
        self.lib_ext = varhome / "lib" / "ext"

    def bridge(self, name: str) -> Path:
        """Return the directory of the bridge called ``name``.

        It has its log files and its transaction log.

        :raises InvalidName: ``name`` cannot be a directory's name.
        """
        return self.bridges / _checked("a bridge", name)

    def bridge_orders(self, name: str) -> Path:
        """Where the orders of operators about a bridge are."""
        return self.bridge(name) / "orders.json"

    def bridge_balances(self, name: str) -> Path:
        """Where the balances of a bridge's links are."""
        return self.bridge(name) / "balances.json"

    def bridge_balance_marks(self, name: str) -> Path:
        """The folder of the marks of these balances: two files for each link."""
        return self.bridge(name) / "balances"

    def transaction_log(self, bridge: str) -> Path:
        """Return where the bridge called ``bridge`` keeps its decisions.

        It is ``txlog.BRIDGE`` in the bridge's directory.

        :raises InvalidName: ``bridge`` cannot be a directory's name.
        """
        return self.bridge(bridge) / transaction_log_name(bridge)

    def aside(self) -> Path:
        """Return a new folder's name, for former files of the store."""
        name = strftime("store.%Y%m%dT%H%M%SZ", gmtime())
        # There may be one of this second.
        names = chain((name,), (f"{name}.{number}" for number in count(2)))
        return next(path for path in map(self.directory.joinpath, names) if not path.exists())

    @property
    def exists(self) -> bool:
        """Whether the instance has its file of settings.

        Something else of that name counts too, and is refused where it is read.
        """
        return self.settings.exists()

    def create(self, more: Sequence[tuple[str, str]] = ()) -> bool:
        """Make what is missing of the instance.

        Directories that only their owner may enter, and, for a new instance, its file of settings.

        The file is written last and in one step, so an instance that has one is whole.

        :param more: settings a new instance begins with, names and values, after
            ``imq.bridge.enabled=true`` and ``imq.bridge.activelist=stomp``; such as those of TLS.
        :return: whether the instance is new.
        :raises OSError: something could not be made.
        """
        for directory in (
            self.etc,
            self.tls,
            self.store,
            self.bridges,
            self.journal,
            self.log,
            self.lib_ext,
        ):
            make_directory(directory)
        if self.exists:
            return False
        lines = [properties.line(name, value) + "\n" for name, value in (*_NEW_INSTANCE, *more)]
        replace(self.settings, (_BEGINNING + "".join(lines)).encode())
        return True

    def close_to_others(self) -> None:
        """Close the instance's directories to everyone except the owner.

        Call it while an instance is made. Directories that do not exist are passed over.

        What another user owns stays as it is, and is what :meth:`open_to_others` tells of.

        :raises OSError: one could not be changed.
        """
        for directory in (self.directory, self.etc, self.tls):
            if directory.is_dir() and directory.stat().st_uid == os.geteuid():
                directory.chmod(directory.stat().st_mode & PRIVATE_DIRECTORY)

    def open_to_others(self) -> int | None:
        """Return the directory's permissions where others may use it.

        None where all below it is its owner's alone.

        :raises OSError: it cannot be looked at.
        """
        mode = stat.S_IMODE(self.directory.stat().st_mode)
        return mode if mode & 0o077 else None

    def lock(self) -> InstanceLock:
        """Take the instance for this process.

        It is held until :meth:`InstanceLock.release` or the process's end, however it ends.

        A process that was forked has the lock too, so taking it before going into the background is
        enough.

        :raises InstanceLocked: a live process has it. A pid in the file of one that died does no
            harm.
        :raises OSError: the lock file cannot be made.
        """
        make_directory(self.directory)
        descriptor = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as refused:
            try:
                if refused.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                holder = os.read(descriptor, 32).strip()
            finally:
                os.close(descriptor)
            raise InstanceLocked(
                self.lock_file, int(holder) if holder.isdigit() else None
            ) from None
        held = InstanceLock(self.lock_file, descriptor)
        held.write_pid()
        return held


class InstanceLock:
    """The instance, held.

    Made by :meth:`Layout.lock`; a context manager that releases it.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    def write_pid(self) -> None:
        """Write this process's pid into the lock file.

        A process that went into the background calls it again.
        """
        if self._descriptor is None:
            raise ValueError("the lock is released")
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Give the instance back. Idempotent.

        The file stays: to unlink it would race with the next process.
        """
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        os.ftruncate(descriptor, 0)
        os.close(descriptor)

    def __enter__(self) -> InstanceLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def transaction_log_name(bridge: str) -> str:
    """Return the name of the file with the decisions of a bridge.

    :raises InvalidName: ``bridge`` cannot be the name of a bridge.
    """
    return f"{TRANSACTION_LOG}{_checked('a bridge', bridge)}"


@contextmanager
def folder_locked(folder: Path) -> Iterator[None]:
    """Let no other user of this change the folder within the block.

    It waits for others.

    :raises OSError: the folder cannot be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Make ``directory`` and those above it that are missing.

    They are for their owner alone; those that are there stay as they are.

    :raises OSError: one could not be made, or is no directory.
    """
    if directory.is_dir():
        return
    if directory.parent != directory:
        make_directory(directory.parent)
    try:
        directory.mkdir(PRIVATE_DIRECTORY)
    except FileExistsError:
        if not directory.is_dir():  # else another process was quicker
            raise


def _checked(what: str, name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise InvalidName(what, name)
    return name
