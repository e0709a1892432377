"""Give memory that was freed back to the system.

The C library keeps freed memory for later. After a flood that is most of what the process had: what
was freed lies in holes between what was not, and only the end of the heap goes back by itself.
glibc's ``malloc_trim`` gives the holes back, too.

Owns when to ask for that. Knows nothing of what the memory was used for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall

#: Seconds between two looks, and at least between two trims.
_LOOK_S: Final = 1.0
_PAUSE_S: Final = 2.0
#: Bytes that must have been let go since the last trim.
_FALLEN: Final = 64 * 1024 * 1024
#: It is still falling if it fell by so much since the last look. One trim comes after all of it, so
#: that nothing is left over,
_FALLING: Final = 1024 * 1024
#: but not so late that so much goes back at once: threads that want memory wait for a trim, 0.1 to
#: 0.2 ms for each MiB.
_MUCH: Final = 256 * 1024 * 1024
#: What is left over goes back after so many looks at which it did not fall, if it is so much.
_QUIET: Final = 10
_LITTLE: Final = 8 * 1024 * 1024


def malloc_trim() -> Callable[[], object] | None:
    """What gives freed memory back to the system; None where the C library has no such function, as
    musl and macOS's.
    """
    try:
        found = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    # ctypes lets go of the interpreter meanwhile.
    return lambda: found(0)


class Trimming:
    """Trims some time after much memory was let go, in a thread.

    :param reactor: the reactor, whose threads are used.
    :param held: returns the bytes that are in use by what comes and goes.
    :param trim: gives memory back; None does nothing at all.
    """

    def __init__(
        self, reactor: Any, held: Callable[[], int], trim: Callable[[], object] | None
    ) -> None:
        self._reactor: Final = reactor
        self._held: Final = held
        self._trim: Final = trim
        #: The most that was held since the last trim, what was at the last look, and at how many
        #: looks before it did not fall.
        self._most = 0
        self._last = 0
        self._quiet = 0
        self._trimmed = 0.0
        self._call: IDelayedCall | None = None

    def start(self) -> None:
        """Begin to look."""
        if self._trim is not None:
            self._trimmed = self._reactor.seconds()
            self._call = self._reactor.callLater(_LOOK_S, self._look)

    def stop(self) -> None:
        """Look no more. Idempotent."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    def _look(self) -> None:
        held, last = self._held(), self._last
        self._last = held
        self._most = max(self._most, held)
        now = self._reactor.seconds()
        fallen = self._most - held
        self._quiet = self._quiet + 1 if last - held < _FALLING else 0
        enough = (
            fallen >= _MUCH
            or (fallen >= _FALLEN and self._quiet > 0)
            or (fallen >= _LITTLE and self._quiet >= _QUIET)
        )
        if enough and now - self._trimmed >= _PAUSE_S:
            self._most, self._trimmed = held, now
            self._reactor.callInThread(self._trim)
        self._call = self._reactor.callLater(_LOOK_S, self._look)
