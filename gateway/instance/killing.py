"""Named points at which a process kills itself, or is held, so that tests can prove what a crash
there leaves behind.

Owns how a point is asked for: once for the whole life of the process, or by orders that a test puts
into a folder while the process runs. Which points there are, and who passes them, is known beside
the code that has them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

#: The file of an order, ``NAME:N kill`` or ``NAME:N hold``. It is to be put there whole: by a
#: rename.
ORDER: Final = "order"
#: The file that says that the process is held.
HELD: Final = "held"

KILL: Final = "kill"
HOLD: Final = "hold"

_LOOK_S: Final = 0.005


def crash_point(variable: str, points: Sequence[str], text: str) -> Callable[[str], None]:
    """What kills the process, by SIGKILL, when it is called with the name of the point for the N-th
    time.

    :param variable: the variable of the environment that asks for it, for errors. :param points:
        the names that there are.
    :param text: its value, ``NAME`` or ``NAME:N``, N from 1.
    :raises ValueError: there is no such point, or N is no such number.
    """
    name, left = _point(variable, points, text)

    def passed(point: str) -> None:
        nonlocal left
        if point == name:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    return passed


def crash_orders(variable: str, points: Sequence[str], folder: Path) -> Callable[[str], None]:
    """What looks for an order each time that it is called, and follows it at the N-th time that its
    point is passed from then on.

    To *kill* is SIGKILL. To *hold* is that the call does not return until the order is taken away;
    :data:`HELD` is there meanwhile. Nothing else happens on that thread then, so that others can
    die at exactly this point.

    :param variable: the variable of the environment that asks for it, for errors. :param points:
        the names that there are.
    :param folder: where orders are put, one at a time. What it returns raises ValueError for one
        that it does not understand.
    :raises ValueError: there is no such folder.
    """
    if not folder.is_dir():
        raise ValueError(f"{variable}: expected a folder behind the @, and {folder} is none")
    order, held = folder / ORDER, folder / HELD
    given, name, act, left = "", "", "", 0

    def passed(point: str) -> None:
        nonlocal given, name, act, left
        try:
            text = order.read_text()
        except FileNotFoundError:
            given = ""
            return
        if text != given:
            given = text
            where, _, act = text.partition(" ")
            if act not in (KILL, HOLD):
                raise ValueError(f"{order}: {text!r}: expected NAME:N {KILL} or NAME:N {HOLD}")
            name, left = _point(str(order), points, where)
        if point != name:
            return
        left -= 1
        if left:
            return
        if act == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        held.touch()
        while order.exists():
            time.sleep(_LOOK_S)
        held.unlink()

    return passed


def _point(asked: str, points: Sequence[str], text: str) -> tuple[str, int]:
    """:param asked: where ``text`` is from. :returns: which point, and at which time of passing it.
    :raises ValueError:
    """
    name, colon, times = text.partition(":")
    if name not in points:
        raise ValueError(f"{asked}={text}: expected one of {', '.join(points)}")
    if colon and not (times.isascii() and times.isdecimal() and int(times)):
        raise ValueError(f"{asked}={text}: expected a number from 1 after the colon")
    return name, int(times or 1)
