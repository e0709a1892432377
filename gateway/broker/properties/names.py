"""Names of destinations: which are valid, and what wildcards cover.

``*`` stands for one level, a last ``>`` for all that follow, one or more. Levels are divided by
dots. Clients of other brokers mean none or more levels by theirs, see :func:`matcher`. Matching
takes time in proportion to the length of the name, and of the pattern.

A subscription that has several topics has one pattern, too, which covers what any of them covers:
see :func:`joined`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from gateway.messaging.dead import DMQ
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import InvalidDestination

#: How the names of the broker's own destinations begin.
OWN: Final = "mq."
#: How those of ActiveMQ's topics do that tell what comes and goes.
ADVISORY: Final = "ActiveMQ.Advisory."
_LONGEST_NAME: Final = 1024
#: Stands between names that are one pattern. No name has a control character.
_BETWEEN: Final = "\x1f"


def is_wild(name: str) -> bool:
    """Whether a name is a pattern, of topics or of queues."""
    return _BETWEEN in name or (
        ("*" in name or ">" in name) and any(level in ("*", ">") for level in name.split("."))
    )


def joined(pattern: str, name: str) -> str:
    """Return the pattern that covers what either of two covers."""
    return f"{pattern}{_BETWEEN}{name}"


def names_of(pattern: str) -> list[str]:
    """Return the names that make up a pattern, one unless joined."""
    return pattern.split(_BETWEEN)


def shown(pattern: str) -> str:
    """Return a pattern for people."""
    return pattern.replace(_BETWEEN, ", ")


class Pattern:
    """A name, with or without wildcards, prepared for many comparisons.

    ``a.>`` covers ``a.b`` and ``a.b.c``, and not ``a``.
    """

    __slots__ = ("_count", "_literal", "_open", "_prefix")

    def __init__(self, name: str) -> None:
        levels = name.split(".")
        self._count: Final = len(levels)
        #: It ends in ``>``, so that there may be more levels.
        self._open: Final = levels[-1] == ">"
        wild = [
            level == "*" or (level == ">" and place == len(levels) - 1)
            for place, level in enumerate(levels)
        ]
        first = wild.index(True) if True in wild else len(levels)
        #: What names must begin with, which tells most of them apart: the levels before the first
        #: wildcard.
        self._prefix: Final = ".".join([*levels[:first], ""] if first < len(levels) else levels)
        #: The other levels that are no wildcards, by their places.
        literal = [
            (place, level)
            for place, level in enumerate(levels)
            if place > first and not wild[place]
        ]
        self._literal: Final = literal if first < len(levels) else [(len(levels) - 1, levels[-1])]

    def matches(self, name: str) -> bool:
        """Whether the pattern covers a name."""
        if not name.startswith(self._prefix):
            return False
        count = name.count(".") + 1
        if count < self._count or (count > self._count and not self._open):
            return False
        if self._literal:
            levels = name.split(".")
            for place, level in self._literal:
                if levels[place] != level:
                    return False
        return True


def matcher(pattern: str, none_or_more: bool = False) -> Callable[[str], bool]:
    """Return what tells whether a pattern covers a name.

    :param none_or_more: ``>`` stands for none or more levels, wherever it is: ``a.>`` covers ``a``,
        too, and ``a.>.b`` covers ``a.b`` and ``a.x.b``. Else it is one level or more, at the end.
    """
    if _BETWEEN in pattern:
        return _any_of(names_of(pattern), none_or_more)
    levels = pattern.split(".")
    if not none_or_more or ">" not in levels:
        return Pattern(pattern).matches
    if levels.index(">") < len(levels) - 1:
        return _with_gaps(levels)
    below = Pattern(pattern).matches
    if len(levels) == 1:
        return below
    itself = Pattern(pattern.removesuffix(".>")).matches
    return lambda name: below(name) or itself(name)


def _any_of(names: Sequence[str], none_or_more: bool) -> Callable[[str], bool]:
    """As :func:`matcher`, for names that were joined."""
    wild = [matcher(name, none_or_more) for name in names if is_wild(name)]
    plain = frozenset([name for name in names if not is_wild(name)])
    return lambda name: name in plain or any(covers(name) for covers in wild)


def _with_gaps(levels: Sequence[str]) -> Callable[[str], bool]:
    """As :func:`matcher`, for a pattern with ``>`` before its end."""
    runs = [""]
    for level in levels:
        if level == ">":
            runs.append("")
        else:
            runs[-1] += r"\.[^.]*+" if level == "*" else rf"\.{re.escape(level)}"
    first, *between, last = runs
    # Of each run between two gaps the first place that fits is as good as any later one. To look no
    # further keeps the time short.
    found = "".join([rf"(?>(?:\.[^.]*+)*?{run}(?![^.]))" for run in between if run])
    fits = re.compile(rf"{first}{found}(?:\.[^.]*+)*{last}", re.DOTALL).fullmatch
    return lambda name: fits(f".{name}") is not None


def check_alone(destination: Destination) -> None:
    """Check that a client means one name.

    :raises InvalidDestination: it would be read as several.
    """
    if _BETWEEN in destination.name:
        raise InvalidDestination(repr(destination.name), "the name has a control character")


def check_administered(destination: Destination) -> None:
    """Whether an administrator can create such a destination.

    :raises InvalidDestination: it has wildcards, or :func:`check_name` refuses it.
    """
    if is_wild(destination.name):
        raise InvalidDestination(
            destination,
            "a destination's name has no wildcards; they are for subscriptions",
        )
    check_name(destination)


def check_name(destination: Destination) -> None:
    """Whether a destination can have this name.

    :raises InvalidDestination: it is empty, too long, has a control character or half a surrogate
        pair, which the store cannot write, is a queue's and has wildcards, or begins with ``mq.``,
        which is the broker's own.
    """
    name = destination.name
    if not name:
        raise InvalidDestination(destination, "a destination needs a name")
    if len(name) > _LONGEST_NAME:
        raise InvalidDestination(
            f"{name[:40]}...", f"the name is longer than {_LONGEST_NAME} characters"
        )
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise InvalidDestination(repr(name), "the name has a control character")
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise InvalidDestination(repr(name), "the name has half a surrogate pair")
    if destination.kind is Kind.QUEUE and is_wild(name):
        raise InvalidDestination(
            destination,
            "a queue's name cannot have wildcards, which are for subscriptions",
        )
    if name.startswith(OWN) and destination != DMQ:
        raise InvalidDestination(destination, "names that begin with 'mq.' are the broker's own")
