"""What a check has found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How much it matters."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    :param check: a word for what was looked at.
    :param text: what was found, a sentence without a full stop.
    :param figure: the number that it is about; may be empty.
    :param remedy: a command or a setting that helps; empty where nothing is wrong.
    """

    check: str
    severity: Severity
    text: str
    figure: str = ""
    remedy: str = ""


def by_limits(value: float, warning: float, error: float) -> Severity:
    """Return how bad a value is that is better the smaller it is."""
    if value >= error:
        return Severity.ERROR
    return Severity.WARNING if value >= warning else Severity.OK


def octets(count: int) -> str:
    """A number of bytes for people."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
