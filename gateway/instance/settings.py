"""Settings, read from a file and the command line.

They are checked against the declarations.

Owns values, sources, severities, and the sentence that operators see of a problem. Each package
declares its own settings beside its code; this module knows none of them, and opens no file but the
one it is told to read.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, cast

from gateway.instance import properties
from gateway.instance.setting_types import (
    BRIDGES,
    RESERVED_BRIDGE_NAMES,
    Boolean,
    Catalogue,
    Choice,
    Decimal,
    Duration,
    Integer,
    Octets,
    Port,
    Setting,
    Text,
    ValueType,
    Words,
    is_of_a_bridge,
    is_of_the_original,
    said_of,
)

__all__ = [
    "COMMAND_LINE",
    "DEFAULT",
    "HIDDEN",
    "RESERVED_BRIDGE_NAMES",
    "Boolean",
    "Choice",
    "Decimal",
    "Duration",
    "Integer",
    "Octets",
    "Port",
    "Problem",
    "Setting",
    "Settings",
    "SettingsError",
    "Severity",
    "Text",
    "ValueType",
    "Words",
    "printable",
    "read",
]

T = TypeVar("T")

DEFAULT = "default"
_SECRETIVE = ("password", "passcode", "passphrase", "passwd", "pwd", "secret")


COMMAND_LINE = "-D"
HIDDEN = "********"
_LONGEST_SHOWN = 80


class Severity(Enum):
    """What a problem does to the start."""

    ERROR = "error"
    """Nothing starts; the command ends with exit code 2."""
    BRIDGE = "bridge failed"
    """That one bridge does not start; the others do."""
    WARNING = "warning"
    """It is said, and nothing else happens."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, on one line.

    :param file: the file of settings it is in; None where ``origin`` says where it came from.
    :param line: the line in that file, from 1; 0 where none is meant.
    :param name: the setting's name as it was written; empty where none is meant.
    :param value: the value as it was written, or :data:`HIDDEN` where it may be a secret.
    :param expected: what should have been there.
    :param nearest: the known name that resembles ``name`` most; empty where none does.
    :param said: what is to be said where nothing else was expected; then ``expected`` is empty.
    :param origin: where it came from, when not from a file of settings.
    :param missing: the line is missing from ``origin``, so there is no value to show.
    """

    file: Path | None
    line: int
    name: str
    value: str
    expected: str
    nearest: str = ""
    severity: Severity = Severity.ERROR
    said: str = ""
    origin: str = field(default=COMMAND_LINE, compare=False)
    missing: bool = False

    @property
    def where(self) -> str:
        """``FILE:LINE``, ``FILE``, or another origin, such as ``-D``."""
        if self.file is None:
            return self.origin
        return f"{self.file}:{self.line}" if self.line else str(self.file)

    def __str__(self) -> str:
        """One line that says where the setting is and what is wrong with it.

        ``WHERE: NAME=VALUE: expected EXPECTED; the nearest known name is NEAREST``, or
        ``WHERE: NAME=VALUE: SAID``, always one line.

        Where the line is missing: ``WHERE: no line NAME=...: expected EXPECTED``.
        """
        if self.missing:
            return printable(f"{self.where}: no line {self.name}=...: expected {self.expected}")
        given = f"{self.name}={_shortened(self.value)}: " if self.name or self.value else ""
        nearest = f"; the nearest known name is {self.nearest}" if self.nearest else ""
        said = self.said or f"expected {self.expected}"
        return printable(f"{self.where}: {given}{said}{nearest}")


class SettingsError(Exception):
    """The settings cannot be used.

    ``str`` is one line for each problem, errors before warnings.

    :param problems: all that was found wrong, at least one of it an error or a bridge's failure.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: list(Severity).index(problem.severity))
        super().__init__("\n".join(str(problem) for problem in self.problems))


def printable(text: str) -> str:
    """Return ``text`` with what is not printable written as an escape.

    That could end a line, move a cursor or reverse its direction.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def _shortened(value: str) -> str:
    return value if len(value) <= _LONGEST_SHOWN else f"{value[:_LONGEST_SHOWN]}..."


@dataclass(frozen=True, slots=True)
class _Given:
    """One value as it was written, and where."""

    text: str
    file: Path | None
    line: int
    origin: str

    @property
    def source(self) -> str:
        return f"{self.file}:{self.line}" if self.file is not None else self.origin


class Settings:
    """The values of all declared settings. Immutable.

    They are those given, and the defaults of the others.

    Made by :func:`read`.
    """

    def __init__(
        self,
        declared: Catalogue,
        given: Mapping[str, _Given],
        values: Mapping[str, Any],
        bad: Mapping[str, Problem],
        secrets_from: str = "",
    ):
        self._declared = declared
        self._given = given
        self._values = values
        self._bad = bad
        self._secrets_from = secrets_from

    def __getitem__(self, setting: Setting[T]) -> T:
        """The value of ``setting``.

        :raises SettingsError: the value given for it under ``imq.bridge.NAME.*`` is bad, so the
            bridge must not start.
        :raises KeyError: it was not among the declared ones; or it is of those with a placeholder:
            see :meth:`named`.
        """
        if setting.is_named:
            raise KeyError(f"{setting.name} needs a name: use named()")
        return self._value(setting, setting.name)

    def named(self, setting: Setting[T], name: str) -> T:
        """Return the value of ``setting`` for that bridge or destination.

        Its default where none is given for that name.

        :raises SettingsError: as :meth:`__getitem__`.
        :raises KeyError: it was not among the declared ones.
        """
        return self._value(setting, setting.full_name(name))

    def names(self, setting: Setting[Any]) -> list[str]:
        """Return the names for which a setting with a placeholder is given.

        They are in the order in which they came.
        """
        self._declared.require(setting)
        found: list[str] = []
        for full_name in self._given:
            match = self._declared.find(full_name)
            if match is not None and match[0] is setting:
                found.append(match[1])
        return found

    def is_declared(self, full_name: str) -> bool:
        """Whether ``full_name`` is the name of a declared setting."""
        return self._declared.find(full_name) is not None

    def source_of(self, full_name: str) -> str:
        """As :meth:`source`, of a name as it is written."""
        given = self._given.get(full_name)
        return DEFAULT if given is None else given.source

    def is_given(self, setting: Setting[Any], name: str = "") -> bool:
        """Whether somebody has set it, be it to the default."""
        return self._full(setting, name) in self._given

    def source(self, setting: Setting[Any], name: str = "") -> str:
        """Where it was set: ``FILE:LINE``, ``-D``, or ``default``.

        :param name: what stands for the placeholder, for a setting that has one.
        """
        return self.source_of(self._full(setting, name))

    def problem(
        self,
        setting: Setting[Any],
        expected: str,
        name: str = "",
        *,
        severity: Severity = Severity.ERROR,
        value: str | None = None,
    ) -> Problem:
        """Return a problem with a value that only a look at the world shows.

        Such as a certificate that is not there.

        :param expected: what was expected, to be read after "expected".
        :param value: the value to show, if not the one given.
        """
        full_name = self._full(setting, name)
        given = self._given.get(full_name)
        default = setting.type.show(setting.default)
        missing = given is None and value is None and not default
        if value is None:
            value = default if given is None else given.text
        origin = DEFAULT if given is None else given.origin
        if missing:
            origin = (
                self._secrets_from
                if setting.secret and self._secrets_from
                else "the settings of the instance"
            )
        return Problem(
            file=None if given is None else given.file,
            line=0 if given is None else given.line,
            name=full_name,
            value=HIDDEN if setting.secret else value,
            expected=expected,
            severity=severity,
            origin=origin,
            missing=missing,
        )

    def bridge_problems(self, name: str) -> list[Problem]:
        """Return the bad values given under ``imq.bridge.NAME.``.

        A bridge with any must not start; the list may be empty.
        """
        prefix = f"{BRIDGES}{name}."
        return [problem for full_name, problem in self._bad.items() if full_name.startswith(prefix)]

    def given(self) -> Iterator[tuple[str, str, str]]:
        """Yield each setting that was given.

        Its full name, its value as it was written (secrets hidden), and its source.
        """
        for full_name, given in self._given.items():
            match = self._declared.find(full_name)
            hidden = match is not None and match[0].secret
            yield full_name, HIDDEN if hidden else given.text, given.source

    def shared(self) -> dict[str, str]:
        """Return what must be the same at all brokers of a cluster, by full name.

        Of settings with a placeholder these are the values that are not the default.
        """
        found = {setting.name: _text(self[setting]) for setting in self._declared.shared()}
        for full_name in self._given:
            match = self._declared.find(full_name)
            if match is None or not match[0].shared or not match[0].is_named:
                continue
            if self.named(*match) != match[0].default:
                found[full_name] = _text(self.named(*match))
        return found

    def secret_names(self) -> list[str]:
        """The names of the declared settings that are secret."""
        return self._declared.secret_names()

    def secrets(self) -> list[str]:
        """Return the values of the secret settings that are given.

        They are for the guard that keeps them out of the logs.
        """
        matches = (
            (self._declared.find(full_name), given) for full_name, given in self._given.items()
        )
        return [
            given.text
            for match, given in matches
            if match is not None and match[0].secret and given.text
        ]

    def with_overrides(
        self, overrides: Sequence[str], source: str = COMMAND_LINE, secrets_from: str = ""
    ) -> Settings:
        """These settings, with others over them.

        :param overrides: each as ``name=value``, verbatim: escapes are of the file's syntax, not of
            this one.
        :param source: what :meth:`source` says of them.
        :param secrets_from: where a secret that is missing was expected, for errors.
        :raises SettingsError: an error in any of them, or a bad value for a bridge; nothing is
            changed then.
        """
        entries, problems = _from_command_line(overrides, source)
        settings, found = _judged(self._declared, {**self._given, **entries})
        settings._secrets_from = secrets_from or self._secrets_from
        problems += [problem for problem in found if problem.name in entries]
        problems += [
            problem for full_name, problem in settings._bad.items() if full_name in entries
        ]
        if any(problem.severity is not Severity.WARNING for problem in problems):
            raise SettingsError(problems)
        return settings

    def _full(self, setting: Setting[Any], name: str) -> str:
        self._declared.require(setting)
        return setting.full_name(name) if name else setting.name

    def _value(self, setting: Setting[T], full_name: str) -> T:
        self._declared.require(setting)
        if full_name in self._bad:
            raise SettingsError([self._bad[full_name]])
        return cast(T, self._values.get(full_name, setting.default))


def read(
    declared: Sequence[Setting[Any]], file: Path | None, overrides: Sequence[str] = ()
) -> tuple[Settings, list[Problem]]:
    """Read a file of settings and what stands over it.

    Only the value that holds is judged: a later line is over an earlier one, an override over both.
    Bad values under ``imq.bridge.NAME.*`` are kept for :meth:`Settings.bridge_problems`; reading
    such a setting raises its problem.

    :param declared: all settings there are.
    :param file: a .properties file in UTF-8; None for none.
    :param overrides: what ``-D`` gave, each as ``name=value``.
    :return: the settings, and the warnings.
    :raises SettingsError: with every problem there is, if one of them is an error: an unknown name,
        a bad value, an unreadable file, a line that is not one of a .properties file.
    :raises ValueError: a setting is declared twice.
    """
    known = Catalogue(declared)
    given: dict[str, _Given] = {}
    problems: list[Problem] = []
    if file is not None:
        given, problems = _from_file(file)
    entries, malformed = _from_command_line(overrides, COMMAND_LINE)
    settings, found = _judged(known, {**given, **entries})
    problems += malformed + found + _visible(known, entries)
    if any(problem.severity is Severity.ERROR for problem in problems):
        raise SettingsError([*problems, *settings._bad.values()])
    return settings, problems


def _from_file(file: Path) -> tuple[dict[str, _Given], list[Problem]]:
    try:
        data = file.read_bytes()
    except OSError as failed:
        return {}, [Problem(file, 0, "", "", f"a readable file: {failed.strerror or failed}")]
    entries, malformed = properties.parse(data)
    problems = [Problem(file, wrong.line, "", "", wrong.expected) for wrong in malformed]
    given: dict[str, _Given] = {}
    for entry in entries:
        before = given.get(entry.name)
        if before is not None:
            expected = f"each name once: this line replaces line {before.line}"
            value = HIDDEN if _sounds_secret(entry.name) else entry.value
            problems.append(
                Problem(file, entry.line, entry.name, value, expected, severity=Severity.WARNING)
            )
        given[entry.name] = _Given(entry.value, file, entry.line, "")
    return given, problems


def _from_command_line(
    overrides: Iterable[str], source: str
) -> tuple[dict[str, _Given], list[Problem]]:
    given: dict[str, _Given] = {}
    problems: list[Problem] = []
    for override in overrides:
        name, separator, value = override.partition("=")
        name = name.strip()
        if not separator or not name:
            # Without a separator the whole might be a secret with its name forgotten; the name
            # alone is shown.
            problems.append(
                Problem(
                    None,
                    0,
                    name or "(no name)",
                    HIDDEN if value else "",
                    "name=value",
                    origin=source,
                )
            )
            continue
        given[name] = _Given(value, None, 0, source)
    return given, problems


def _judged(declared: Catalogue, given: Mapping[str, _Given]) -> tuple[Settings, list[Problem]]:
    """Return the settings, and errors and warnings.

    Bad values of bridges stay in the settings.
    """
    values: dict[str, Any] = {}
    bad: dict[str, Problem] = {}
    problems: list[Problem] = []
    for full_name, entry in given.items():
        match = declared.find(full_name)
        if match is None:
            problems.append(_unknown(declared, full_name, entry))
            continue
        setting, _ = match
        try:
            values[full_name] = setting.type.parse(entry.text)
        except ValueError as refused:
            bridge = is_of_a_bridge(full_name)
            shown = HIDDEN if setting.secret else entry.text
            severity = Severity.BRIDGE if bridge else Severity.ERROR
            problem = Problem(
                entry.file,
                entry.line,
                full_name,
                shown,
                str(refused),
                severity=severity,
                origin=entry.origin,
            )
            if bridge:
                bad[full_name] = problem
            else:
                problems.append(problem)
    return Settings(declared, given, values, bad), problems


def _text(value: object) -> str:
    """A value, however it was spelled."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _visible(declared: Catalogue, entries: Iterable[str]) -> list[Problem]:
    """Warnings of secrets that were given on the command line."""
    expected = "a line of the passfile; other users of this machine can see what is given on the command line"
    matches = ((full_name, declared.find(full_name)) for full_name in entries)
    return [
        Problem(None, 0, full_name, HIDDEN, expected, severity=Severity.WARNING)
        for full_name, match in matches
        if match is not None and match[0].secret
    ]


def _unknown(declared: Catalogue, full_name: str, entry: _Given) -> Problem:
    shown = HIDDEN if _sounds_secret(full_name) else entry.text
    if is_of_the_original(full_name):
        return Problem(
            entry.file,
            entry.line,
            full_name,
            shown,
            "",
            severity=Severity.WARNING,
            said=said_of(full_name),
            origin=entry.origin,
        )
    return Problem(
        entry.file,
        entry.line,
        full_name,
        shown,
        "a known name",
        declared.nearest(full_name),
        origin=entry.origin,
    )


def _sounds_secret(full_name: str) -> bool:
    """Whether a word of the name is, or was meant to be, one for a secret.

    A misspelled name is unknown, and its value would be shown.
    """
    words = re.split(r"[^a-z]+", full_name.lower())
    return any(
        word and difflib.get_close_matches(word, _SECRETIVE, n=1, cutoff=0.7) for word in words
    )
