"""What is wrong with settings, and the sentence that operators see of it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

#: Where a setting of the command line came from.
COMMAND_LINE = "-D"
#: What is shown of a secret.
HIDDEN = "********"
_LONGEST_SHOWN = 80
_SECRETIVE = ("password", "passcode", "passphrase", "passwd", "pwd", "secret")


def counted(count: int, noun: str = "message") -> str:
    """Return a number with its noun: ``1 message``, ``2 messages``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


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


def sounds_secret(full_name: str) -> bool:
    """Whether a word of the name is, or was meant to be, one for a secret.

    A misspelled name is unknown, and its value would be shown.
    """
    words = re.split(r"[^a-z]+", full_name.lower())
    return any(
        word and difflib.get_close_matches(word, _SECRETIVE, n=1, cutoff=0.7) for word in words
    )
