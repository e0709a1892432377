"""Problems of a bridge's configuration, and how operators see them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.instance.settings import HIDDEN, Severity, printable

__all__ = ["HIDDEN", "ConfigurationError", "Problem", "Severity"]

_LONGEST_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem.

    :param origin: the file or the URL.
    :param line: the line, from 1, on which the element's start tag ends; 0 for the whole document.
    :param element: the element, with its name if it has one: ``link "orders"``; empty for the
        document.
    :param attribute: the attribute; empty for the element itself.
    :param value: the attribute's value as it was written, :data:`HIDDEN` where it may be a secret;
        None where it is missing.
    :param expected: what should have been there, to be read after "expected".
    :param nearest: the known name that is most like the unknown one; empty where none is.
    :param severity: ``BRIDGE`` where the bridge cannot start for it, or ``WARNING``.
    """

    origin: str
    line: int
    element: str
    attribute: str
    value: str | None
    expected: str
    nearest: str = ""
    severity: Severity = Severity.BRIDGE

    @property
    def where(self) -> str:
        """``FILE:LINE``, or ``FILE``."""
        return f"{self.origin}:{self.line}" if self.line else self.origin

    def __str__(self) -> str:
        """Return the problem in one line.

        ``FILE:LINE: ELEMENT, attribute NAME="VALUE": expected EXPECTED; the nearest known name is NEAREST``
        """
        parts = [self.element] if self.element else []
        if self.attribute:
            given = "missing" if self.value is None else f'="{_shortened(self.value)}"'
            parts.append(f"attribute {self.attribute}{' ' if self.value is None else ''}{given}")
        about = f"{', '.join(parts)}: " if parts else ""
        nearest = f"; the nearest known name is {self.nearest}" if self.nearest else ""
        return printable(f"{self.where}: {about}expected {self.expected}{nearest}")


class ConfigurationError(Exception):
    """The configuration cannot be used.

    ``str`` is one line for each problem, errors before warnings, in the order of their lines.

    :param problems: all that was found wrong, at least one of it not only a warning.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = ordered(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def ordered(problems: Iterable[Problem]) -> list[Problem]:
    """Errors before warnings, each in the order of their lines."""
    return sorted(
        problems, key=lambda problem: (problem.severity is Severity.WARNING, problem.line)
    )


def _shortened(value: str) -> str:
    return value if len(value) <= _LONGEST_SHOWN else f"{value[:_LONGEST_SHOWN]}..."
