"""Named points at which a process kills itself, so that tests can prove what a crash there leaves behind.

Owns how a point is asked for. Which points there are, and who passes them, is known beside the code that has them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence


def crash_point(variable: str, points: Sequence[str], text: str) -> Callable[[str], None]:
    """What kills the process, by SIGKILL, when it is called with the name of the point for the N-th time.

    :param variable: the variable of the environment that asks for it, for errors. :param points: the names that there are.
    :param text: its value, ``NAME`` or ``NAME:N``, N from 1.
    :raises ValueError: there is no such point, or N is no such number.
    """
    name, colon, times = text.partition(":")
    if name not in points:
        raise ValueError(f"{variable}={text}: expected one of {', '.join(points)}")
    if colon and not (times.isascii() and times.isdecimal() and int(times)):
        raise ValueError(f"{variable}={text}: expected a number from 1 after the colon")
    left = int(times or 1)

    def passed(point: str) -> None:
        nonlocal left
        if point == name:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    return passed
