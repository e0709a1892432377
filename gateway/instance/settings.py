"""Settings, read from a file and the command line.

They are checked against the declarations.

Owns values and sources. Each package declares its own settings beside its code; this module knows none of them, and opens no file but the
one it is told to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from gateway.instance import properties
from gateway.instance.problems import (
    COMMAND_LINE,
    HIDDEN,
    Problem,
    SettingsError,
    Severity,
    printable,
    sounds_secret,
)
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


@dataclass(frozen=True, slots=True)
class CommonFile:
    """A file of settings that several brokers have in common.

    :param origin: its path, or the URL that it came from.
    """

    origin: Path | str
    data: bytes = field(repr=False)


def read(
    declared: Sequence[Setting[Any]],
    file: Path | None,
    overrides: Sequence[str] = (),
    common: CommonFile | None = None,
) -> tuple[Settings, list[Problem]]:
    """Read a file of settings and what stands over it.

    Only the value that holds is judged: a later line is over an earlier one, an override over both.
    Bad values under ``imq.bridge.NAME.*`` are kept for :meth:`Settings.bridge_problems`; reading
    such a setting raises its problem.

    :param declared: all settings there are.
    :param file: a .properties file in UTF-8; None for none.
    :param overrides: what ``-D`` gave, each as ``name=value``.
    :param common: what stands below the file. It must not have what is each broker's own, nor
        secrets; and where both have a setting that brokers share, it must be the same.
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
    below: dict[str, _Given] = {}
    if common is not None:
        below, wrong = _from_common(known, common)
        problems += wrong + _differing(known, below, given)
    settings, found = _judged(known, {**below, **given, **entries})
    problems += malformed + found + _visible(known, entries)
    if any(problem.severity is Severity.ERROR for problem in problems):
        raise SettingsError([*problems, *settings._bad.values()])
    return settings, problems


def _from_file(file: Path) -> tuple[dict[str, _Given], list[Problem]]:
    try:
        data = file.read_bytes()
    except OSError as failed:
        return {}, [Problem(file, 0, "", "", f"a readable file: {failed.strerror or failed}")]
    return _parsed(data, file)


def _parsed(data: bytes, origin: Path | str) -> tuple[dict[str, _Given], list[Problem]]:
    file = origin if isinstance(origin, Path) else None

    def problem(line: int, name: str, value: str, expected: str, severity: Severity) -> Problem:
        return Problem(
            file, line, name, value, expected, severity=severity, origin=f"{origin}:{line}"
        )

    entries, malformed = properties.parse(data)
    problems = [problem(wrong.line, "", "", wrong.expected, Severity.ERROR) for wrong in malformed]
    given: dict[str, _Given] = {}
    for entry in entries:
        before = given.get(entry.name)
        if before is not None:
            expected = f"each name once: this line replaces line {before.line}"
            value = HIDDEN if sounds_secret(entry.name) else entry.value
            problems.append(problem(entry.line, entry.name, value, expected, Severity.WARNING))
        given[entry.name] = _Given(entry.value, file, entry.line, f"{origin}:{entry.line}")
    return given, problems


def _from_common(
    declared: Catalogue, common: CommonFile
) -> tuple[dict[str, _Given], list[Problem]]:
    given, problems = _parsed(common.data, common.origin)
    for full_name, entry in given.items():
        match = declared.find(full_name)
        if match is None or not (match[0].own or match[0].secret):
            continue
        where = "the passfile" if match[0].secret else "gateway.properties"
        problems.append(
            Problem(
                entry.file,
                entry.line,
                full_name,
                HIDDEN if match[0].secret else entry.text,
                f"what brokers have in common; this belongs in {where} of each",
                origin=entry.origin,
            )
        )
    return given, problems


def _differing(
    declared: Catalogue, below: Mapping[str, _Given], given: Mapping[str, _Given]
) -> list[Problem]:
    """Problems of settings that an instance has otherwise than its cluster."""
    problems = []
    for full_name, entry in given.items():
        common, match = below.get(full_name), declared.find(full_name)
        if common is None or match is None or common.text.strip() == entry.text.strip():
            continue
        shared = match[0].shared or (match[0].is_named and is_of_a_bridge(full_name))
        problems.append(
            Problem(
                entry.file,
                entry.line,
                full_name,
                HIDDEN if match[0].secret else entry.text,
                f"{common.text}, as {common.source} has it for all brokers"
                if shared
                else f"no other value than {common.source} has for all brokers, {common.text}; this line counts",
                severity=Severity.ERROR if shared else Severity.WARNING,
            )
        )
    return problems


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
    shown = HIDDEN if sounds_secret(full_name) else entry.text
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
