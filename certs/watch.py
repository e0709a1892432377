"""Files of certificates that are read again when they change.

Owns when they are looked at, and which failures are told. What is read, and what is done with it, its
user knows. It polls, which works on every file system, and for folders that are replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from certs.files import CertificateFileError

#: The state of a file: its inode, the time of its change, its size; None where it is not there.
_State = tuple[int, int, int] | None


class CertificateWatch:
    """Looks at files again and again.

    A certificate and its key are two files, of which one is replaced first. So what cannot be used
    is an error only if it is still the same at the next look; it is told once.

    :param clock: the reactor.
    :param seconds: between two looks; 0 does not look at all.
    :param files: what is looked at.
    :param reload: reads them; raises CertificateFileError where they cannot be used.
    """

    _log = Logger()

    def __init__(
        self,
        clock: Any,
        seconds: float,
        files: Sequence[Path],
        reload: Callable[[], None],
    ) -> None:
        self._clock: Final = clock
        self._seconds: Final = seconds
        self._files: Final = files
        self._reload: Final = reload
        self._call: IDelayedCall | None = None
        self._read: list[_State] = []
        #: What could not be used at the last look; and whether that was told.
        self._failed: list[_State] | None = None
        self._told = False

    def start(self) -> None:
        """Look from now on. What is there now has been read. Idempotent."""
        self.seen()
        if self._seconds and self._call is None:
            self._call = self._clock.callLater(self._seconds, self._look)

    def stop(self) -> None:
        """Look no more. Idempotent."""
        call, self._call = self._call, None
        if call is not None and call.active():
            call.cancel()

    def seen(self) -> None:
        """What is there now was read, or told of, by somebody else."""
        self._read = self._state()
        self._failed = None

    def _state(self) -> list[_State]:
        return [_state(path) for path in self._files]

    def _look(self) -> None:
        self._call = self._clock.callLater(self._seconds, self._look)
        # Before they are read: what changes after that is seen at the next look.
        state = self._state()
        if state == self._read or (state == self._failed and self._told):
            return
        try:
            self._reload()
        except CertificateFileError as error:
            again = state == self._failed
            self._failed, self._told = state, again
            if again:
                self._log.error(
                    "certificates stay as they were, until their files change again: {error}",
                    error=str(error),
                    event="configuration.refused",
                )
            return
        self._read, self._failed = state, None


def _state(path: Path) -> _State:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
