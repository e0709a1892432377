"""Wildcards in the topic names of subscriptions: ``*`` stands for one level, a last ``>`` for all that follow.

Levels are divided by dots. Matching is linear in the number of levels.
"""

from __future__ import annotations


def is_wild(name: str) -> bool:
    """Whether a topic name is a pattern."""
    return ("*" in name or ">" in name) and any(level in ("*", ">") for level in name.split("."))


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern covers a topic name. ``a.>`` covers ``a.b`` and ``a.b.c``, and not ``a``."""
    wanted = pattern.split(".")
    levels = name.split(".")
    for place, level in enumerate(wanted):
        if level == ">" and place == len(wanted) - 1:
            return len(levels) > place
        if place >= len(levels) or (level != "*" and level != levels[place]):
            return False
    return len(levels) == len(wanted)
