"""The passfile: passwords in a file that only its owner may read.

Each is a line ``name=value``.

Owns the file's syntax, its permissions and its replacement. Its names are the original's:
``imq.keystore.password``, ``imq.bridge.admin.password``, ``imq.imqcmd.password``,
``imq.imqbridgemgr.password`` and so on. No error here shows a value.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from gateway.instance import properties
from gateway.instance import settings_general as general
from gateway.instance.layout import PRIVATE_FILE, Layout, replace
from gateway.instance.setting_types import is_of_the_original, nearest
from gateway.instance.settings import COMMAND_LINE, Problem, Settings, Severity, printable

COMMAND_PASSWORDS = ("imq.imqusermgr.password", "imq.imqcmd.password", "imq.imqbridgemgr.password")
"""Names in a passfile that are for the commands, and no settings. ``imqusermgr`` reads its own; the
other two are the original's, for the administration commands.
"""

_LARGEST = 1024 * 1024


class PassfileError(Exception):
    """The passfile cannot be used.

    :param line: the line that is wrong, from 1; 0 where it is the file.
    :param expected: what was expected of it.
    """

    def __init__(self, path: Path, line: int, expected: str) -> None:
        where = f"{path}:{line}" if line else str(path)
        super().__init__(printable(f"passfile {where}: expected {expected}"))
        self.path = path
        self.line = line
        self.expected = expected


def read(path: Path) -> dict[str, str]:
    """Return the passwords in the file, by name.

    If a name comes twice, the later password counts.

    :raises PassfileError: it is missing, cannot be read, is not a file, may be read or written by
        others than its owner, or has a line that is not ``name=value``.
    """
    entries, malformed = properties.parse(_contents(path))
    for wrong in malformed:
        raise PassfileError(path, wrong.line, wrong.expected)
    for entry in entries:
        if not entry.name:
            raise PassfileError(path, entry.line, "name=value")
    return {entry.name: entry.value for entry in entries}


def update(path: Path, changes: Mapping[str, str | None]) -> None:
    """Set passwords, and remove those whose value is None.

    Comments and other lines stay. The file is made if it is missing.

    A crash leaves the old file or the new one.

    :raises PassfileError: what is there cannot be read, as for :func:`read`, or the new file cannot
        be written.
    """
    before = b""
    if path.exists():
        read(path)
        before = _contents(path)
    try:
        replace(path, properties.rewritten(before, changes), PRIVATE_FILE)
    except OSError as failed:
        raise PassfileError(
            path, 0, f"a file that can be written: {failed.strerror or failed}"
        ) from failed


def location(settings: Settings, layout: Layout) -> Path | None:
    """Return where the settings say that the passfile is.

    None where they say that none is read.
    """
    if not settings[general.PASSFILE_ENABLED]:
        return None
    return Path(settings[general.PASSFILE_DIRPATH] or layout.etc) / settings[general.PASSFILE_NAME]


def applied(settings: Settings, path: Path) -> Settings:
    """Return the settings with the passwords of the file.

    They are over those of the settings file, and under those of ``-D``.

    Names in the passfile that are no setting are for the commands, and are left out.

    :raises PassfileError: as :func:`read`.
    """
    overrides = [
        f"{name}={value}"
        for name, value in read(path).items()
        if settings.is_declared(name) and settings.source_of(name) != COMMAND_LINE
    ]
    return settings.with_overrides(overrides, source=str(path), secrets_from=str(path))


def unknown(settings: Settings, path: Path) -> list[Problem]:
    """Return warnings of the names in the file that have no use here.

    A misspelled one would leave a password away without a word.

    A name that is not known is not shown: without its ``=`` a line's password is part of it.

    :raises PassfileError: as :func:`read`.
    """
    entries, _ = properties.parse(_contents(path))
    known = [*settings.secret_names(), *COMMAND_PASSWORDS]
    problems = []
    for entry in entries:
        if entry.name in COMMAND_PASSWORDS or settings.is_declared(entry.name):
            continue
        if is_of_the_original(entry.name):
            near = ""
            expected = (
                "the name of a password that has a use here; this one of the original has none"
            )
        else:
            near = nearest(entry.name, known)
            expected = "NAME=VALUE with the name of a password that is known"
        problems.append(Problem(path, entry.line, "", "", expected, near, Severity.WARNING))
    return problems


def _contents(path: Path) -> bytes:
    try:
        # Without O_NONBLOCK a pipe in the file's place would hold the start up for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as failed:
        raise PassfileError(
            path, 0, f"a file that can be read: {failed.strerror or failed}"
        ) from failed
    try:
        _check(
            path, os.fstat(descriptor)
        )  # of the open file, not of the path: that one may change in between
        data = b""
        while chunk := os.read(descriptor, _LARGEST):
            data += chunk
        return data
    except OSError as failed:
        raise PassfileError(
            path, 0, f"a file that can be read: {failed.strerror or failed}"
        ) from failed
    finally:
        os.close(descriptor)


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise PassfileError(path, 0, "a regular file")
    permissions = stat.S_IMODE(status.st_mode)
    if permissions & 0o077:
        raise PassfileError(
            path,
            0,
            f"permissions that let only its owner read it, found {permissions:04o}; chmod 600 makes them so",
        )
    if status.st_size > _LARGEST:
        raise PassfileError(path, 0, f"at most {_LARGEST} octets")
