"""Messages that an order over many leaves behind, in words.

Owns the words, for commands and the console. Why a message stays, those say who carry out the order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.instance.problems import counted


def left_behind(answer: Mapping[str, Any]) -> str:
    """Say how many of the messages that were chosen stay, and why.

    Empty where none stays, and in a dry run.
    """
    if not answer.get("left") or answer.get("dry_run"):
        return ""
    return f"{answer['left']} of {answer['matched']} messages stay: {why_left(answer)}"


def why_left(answer: Mapping[str, Any]) -> str:
    """Return why messages stay, with counts where the reasons differ."""
    reasons: Mapping[str, int] = answer["reasons"]
    if len(reasons) == 1:
        return next(iter(reasons))
    return "; ".join(f"{why} ({counted(count)})" for why, count in reasons.items())
