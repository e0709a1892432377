"""Wildcards in the names of topics: ``*`` is one level, ``>`` the rest."""

from __future__ import annotations


def is_wild(name: str) -> bool:
    """Whether the name of a topic is a pattern."""
    levels = name.split(".")
    return "*" in levels or levels[-1] == ">"


def covers(pattern: str, name: str) -> bool:
    """Whether a pattern covers a topic's name.

    ``a.>`` covers ``a.b`` and ``a.b.c``, but not ``a``, unlike at some brokers. Of a consumer that
    wants ``a``, too, the broker is believed.
    """
    wanted, levels = pattern.split("."), name.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(levels) <= len(wanted):
            return False
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(
        one in ("*", other) for one, other in zip(wanted, levels, strict=True)
    )


def with_hash(name: str, none_or_more: bool) -> str:
    """Return a pattern in the form of brokers whose rest is ``#``.

    ``#`` means none or more levels.

    :param none_or_more: so is ``>``; else it is one level or more.
    """
    levels = name.split(".")
    if none_or_more:
        return ".".join(["#" if level == ">" else level for level in levels])
    if levels[-1] == ">":
        levels[-1:] = ["*", "#"]
    return ".".join(levels)
