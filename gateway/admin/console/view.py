"""What a view of the console is, and how values are shown in all of them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gateway.admin.service.requests import AdminRequest
from gateway.admin.service.roles import Role
from gateway.admin.why.cause import command
from gateway.instance.problems import printable

#: Rows of a table on one page.
ROWS: Final = 50
#: Rows that may be left out before the first one of a page.
MOST_SKIPPED: Final = 10_000_000

#: Returns what a view's template shows. May raise what :func:`~.requests.refusal` knows.
Look = Callable[[AdminRequest], Awaitable[Mapping[str, object]]]


@dataclass(frozen=True)
class View:
    """A page, and its part that follows what happens.

    :param path: below ``/console/``.
    :param title: the page's.
    :param template: has the block ``live``, which is sent again when it has changed, and may have
        the block ``still``, which is not.
    :param every_s: seconds between two looks for an open page; 0 if it does not follow.
    :param role: that its user needs.
    :param connects: its scripts connect to the origins that the look gives as ``reached``, and to
        nothing else.
    """

    path: str
    title: str
    template: str
    look: Look
    every_s: float = 2.0
    role: Role = Role.VIEWER
    connects: bool = False


@dataclass(frozen=True)
class Paged:
    """Where a page of a table is in all of its rows."""

    first: int
    shown: int
    matched: int
    total: int

    @property
    def before(self) -> int:
        """Where the page before begins; -1 without one."""
        return max(0, self.first - ROWS) if self.first else -1

    @property
    def after(self) -> int:
        """Where the next page begins; -1 without one."""
        return self.first + ROWS if self.first + self.shown < self.matched else -1


def first_row(request: AdminRequest) -> int:
    """Return the number of the first row that is wanted, from 0."""
    return request.number("first", 0, 0, MOST_SKIPPED)


def environment() -> Environment:
    """Return the templates. What they show is escaped."""
    made = Environment(
        loader=PackageLoader("gateway.admin.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "number": number,
        "octets": octets,
        "age": age,
        "when": when,
        "visible": visible,
        "command": command_line,
    }
    return made


def number(value: float) -> str:
    """``12 345 678``, with narrow blanks that do not break."""
    return f"{value:,.0f}".replace(",", "\u202f")


def octets(value: float) -> str:
    """``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def age(ms: float) -> str:
    """``3 min``; a dash where it is not known."""
    if ms < 0:
        return "–"
    seconds = ms / 1000
    for most, length, unit in (
        (90, 1, "s"),
        (90 * 60, 60, "min"),
        (48 * 3600, 3600, "h"),
    ):
        if seconds < most:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def when(ms: float) -> Markup | str:
    """A time as an element, in UTC; a dash for 0 and less."""
    if ms <= 0:
        return "–"
    text = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ms / 1000))
    return Markup('<time datetime="{}Z">{} UTC</time>').format(text.replace(" ", "T"), text)


def visible(value: object) -> str:
    """A text of others, with what cannot be seen made visible."""
    return printable(str(value))


def command_line(words: Sequence[str]) -> str:
    """A command as a shell takes it."""
    return command(*words)
