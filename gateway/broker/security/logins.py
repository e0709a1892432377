"""Who has logged in before, from where; and how long an address that guesses waits for its answers.

Owns both. Knows no passcodes: what is kept of a login is its user's name and its address, in a file
that outlives the process. A digest of the passcode would tell a right one from a wrong one at once,
also after a restart. But whoever copied that file would try a million passcodes a second against
it, and the users' Argon2id hashes would protect nobody. So the order in which logins are verified
can be kept, and not the verifying.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import deferLater
from twisted.logger import Logger

from gateway.instance.files import replace

VERSION: Final = "StompGatewayLogins/1"

#: Failures of an address that are answered at once; who mistypes is not to be punished.
FREE: Final = 5
#: Seconds without a failure after which those of an address are forgotten.
FORGOTTEN_S: Final = 60.0
#: The first delay, in milliseconds; each further failure doubles it.
_FIRST_MS: Final = 250
#: Users with their addresses, and addresses with failures, that are remembered; those that were not
#: seen for longest are forgotten.
_MOST: Final = 10_000
#: Seconds for which news is gathered before the file is written.
_WRITE_S: Final = 1.0


class Logins:
    """The logins of one instance. All of it is called on the reactor's thread.

    :param path: the file, made when there is something to keep; None keeps nothing over restarts.
    :param most_delay_ms: the longest delay of the answer to a failure; 0 delays none.
    """

    _log: Final = Logger(namespace="gateway.broker")

    def __init__(self, reactor: Any, path: Path | None = None, most_delay_ms: int = 5000) -> None:
        self._reactor = reactor
        self._path = path
        self._most_delay_ms = most_delay_ms
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        #: By address: how many, and when the last was.
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._changed = False
        self._writing: Any = None
        self._told = False
        if path is not None:
            self._read(path)

    def is_known(self, name: str, address: str) -> bool:
        """Whether this user has logged in from this address. This process itself, "", always
        has.
        """
        return not address or (name, address) in self._known

    def succeeded(self, name: str, address: str) -> None:
        """A user has logged in."""
        if not address:
            return
        key = name, address
        if key in self._known:
            self._known.move_to_end(key)
            return
        self._known[key] = None
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        self._changed = True
        if self._path is not None and self._writing is None:
            self._writing = self._reactor.callLater(_WRITE_S, self._write_later)

    def failed(self, address: str) -> Deferred[None]:
        """A login from this address has failed. :returns: fires when that may be said; may be
        cancelled.
        """
        now = self._reactor.seconds()
        count, last = self._failures.pop(address, (0, now))
        count = 1 if now - last > FORGOTTEN_S else count + 1
        self._failures[address] = count, now
        if len(self._failures) > _MOST:
            self._failures.popitem(last=False)
        if not address or count <= FREE or not self._most_delay_ms:
            return succeed(None)
        delay_ms = min(self._most_delay_ms, _FIRST_MS << min(count - FREE - 1, 20))
        return deferLater(self._reactor, delay_ms / 1000)

    def close(self) -> None:
        """Keep what is not kept yet. Idempotent."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        if self._changed and self._path is not None:
            self._changed = False
            self._write(self._path, self._text())

    def _write_later(self) -> None:
        self._writing = None
        if self._changed:
            self._changed = False
            self._reactor.callInThread(self._write, self._path, self._text())

    def _text(self) -> str:
        return "\n".join(
            [f"version={VERSION}", *(f"{address} {name}" for name, address in self._known), ""]
        )

    def _write(self, path: Path, text: str) -> None:
        """On a thread, while the reactor runs."""
        try:
            replace(path, text.encode())
        except OSError as error:
            if not self._told:
                self._told = True
                self._log.warn(
                    "{file} cannot be written: {error}; users who have logged in before are not verified first after a restart",
                    file=str(path),
                    error=error.strerror or str(error),
                )

    def _read(self, path: Path) -> None:
        try:
            first, *lines = path.read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            self._log.warn(
                "{file} cannot be read and is not used: {error}", file=str(path), error=str(error)
            )
            return
        if first != f"version={VERSION}":
            self._log.warn(
                "{file} is not used: expected version={version} in its first line",
                file=str(path),
                version=VERSION,
            )
            return
        for line in lines[-_MOST - 1 :]:
            address, _, name = line.partition(" ")
            if name:
                self._known[name, address] = None
