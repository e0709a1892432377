"""How freed memory goes back to the system.

The C library keeps freed memory for later. After a flood that is most of what the process had: the
free memory lies in holes between what is in use, and only the end of the heap goes back by itself.
glibc's ``malloc_trim`` gives the holes back, too.

Two figures say that there is much to give back. The memory budget counts what clients hold, and so
what was let go. What it does not count, such as messages of brokers behind the gateway, is part of
what the process has of the system, and stays part of it when it is freed.
"""

from __future__ import annotations

import ctypes
import os
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
#: What is left over goes back after that many looks at which it did not fall, if it is that much.
_QUIET: Final = 10
_LITTLE: Final = 8 * 1024 * 1024
#: What the process has beyond what is counted is given back after that many looks at which it did
#: not change. It may be in use, so the pauses grow, up to this many seconds.
_STILL: Final = 3
_LONGEST_PAUSE_S: Final = 600.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def malloc_trim() -> Callable[[], object] | None:
    """Return what gives freed memory back to the system.

    None where the C library has no such function, as musl and macOS's.
    """
    try:
        found = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    # ctypes lets go of the interpreter meanwhile.
    return lambda: found(0)


def own_bytes() -> int:
    """Return the bytes of memory that the process has and no file backs.

    0 where the system does not tell.
    """
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * _PAGE


class Trimming:
    """Trims some time after much memory was let go, in a thread.

    :param reactor: the reactor, whose threads are used.
    :param held: returns the bytes that are in use by what comes and goes.
    :param trim: gives memory back; None does nothing at all.
    :param has: returns the bytes that the process has of the system; 0 where it is not known.
    """

    def __init__(
        self,
        reactor: Any,
        held: Callable[[], int],
        trim: Callable[[], object] | None,
        has: Callable[[], int] = own_bytes,
    ) -> None:
        self._reactor: Final = reactor
        self._held: Final = held
        self._trim: Final = trim
        self._has: Final = has
        #: The most that was held since the last trim, what was at the last look, and at how many
        #: looks before it did not fall.
        self._most = 0
        self._last = 0
        self._quiet = 0
        self._trimmed = 0.0
        #: What the process had at the start beyond what is counted; what it had at the last look,
        #: and at how many looks before it had the same.
        self._at_start = 0
        self._beyond = 0
        self._still = 0
        self._pause = _PAUSE_S
        self._call: IDelayedCall | None = None

    def start(self) -> None:
        """Begin to look."""
        if self._trim is not None:
            self._trimmed = self._reactor.seconds()
            self._at_start = self._beyond = self._has() - self._held()
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
        if self._keeps(held) and now - self._trimmed >= self._pause:
            enough, self._pause = True, min(2 * self._pause, _LONGEST_PAUSE_S)
        if enough and now - self._trimmed >= _PAUSE_S:
            self._most, self._trimmed = held, now
            self._reactor.callInThread(self._trim)
        self._call = self._reactor.callLater(_LOOK_S, self._look)

    def _keeps(self, held: int) -> bool:
        """Whether the process seems to keep much that is in use no more."""
        beyond = self._has() - held
        changed = abs(beyond - self._beyond)
        self._still = self._still + 1 if changed < _FALLING else 0
        self._beyond = beyond
        if beyond - self._at_start >= _FALLEN:
            return self._still >= _STILL
        self._pause = _PAUSE_S
        return False
