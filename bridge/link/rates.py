"""How many messages a second, over the last minute.

Owns the arithmetic; costs an addition for each batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

WINDOW_S: Final = 60.0
_SLICE_S: Final = 1.0


class Rate:
    """Counts events, and tells their mean rate over the last minute, or since the first where that
    is less.

    :param seconds: a clock that only goes forward.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds: Final = seconds
        self._slices: deque[tuple[float, int]] = deque()
        self._began: float | None = None

    def add(self, count: int) -> None:
        """So many happened now."""
        now = self._seconds()
        if self._began is None:
            self._began = now
        if self._slices and now - self._slices[-1][0] < _SLICE_S:
            began, before = self._slices.pop()
            self._slices.append((began, before + count))
        else:
            self._slices.append((now, count))
            self._drop(now)

    def a_second(self) -> float:
        """The rate now."""
        now = self._seconds()
        self._drop(now)
        if self._began is None:
            return 0.0
        return sum(count for _, count in self._slices) / min(
            WINDOW_S, max(_SLICE_S, now - self._began)
        )

    def _drop(self, now: float) -> None:
        while self._slices and now - self._slices[0][0] > WINDOW_S:
            self._slices.popleft()
