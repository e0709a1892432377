"""Passcodes: Argon2id hashes, verified without blocking the reactor.

Owns the hash parameters, the threads that verify, and the memory of what was verified before. Knows
neither users nor files: it is given a hash and a passcode and says whether they belong together.
"""

from __future__ import annotations

import hmac
import os
import re
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.threadpool import ThreadPool

from gateway.broker.security.logins import LoginQueue, Rank

if TYPE_CHECKING:
    from twisted.python.failure import Failure

#: 19 MiB, two passes, one lane: the first of the settings that OWASP's Password Storage Cheat Sheet
#: calls equally strong. More memory would let a login storm on both threads push everything else
#: out of the caches.
_HASHER: Final = PasswordHasher(
    time_cost=2, memory_cost=19456, parallelism=1, hash_len=32, salt_len=16, type=Type.ID
)

#: A hash with the parameters above, of 32 random octets that were not kept. A login of an unknown
#: user is verified against it, to take as long as that of a known one.
_NOBODY: Final = "$argon2id$v=19$m=19456,t=2,p=1$iRTs6iGslbO8aNsCYdU4pA$AS1wTBoMrSWz8tNPAmwTWyhhQTPz4YABIoMejfeWrzg"

_FORM: Final = re.compile(
    r"\$argon2id\$v=\d{1,3}\$m=\d{1,9},t=\d{1,4},p=\d{1,4}\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{16,}",
    re.ASCII,
)

_THREADS: Final = 2
_WAITING: Final = 1000
_REMEMBERED: Final = 10_000

_log: Final = Logger()


class CannotVerify(Exception):
    """The passcode was not verified; ``str`` says why, fit for a client."""


class TooManyWait(CannotVerify):
    """There is no room for one more to wait."""


def hash_passcode(passcode: str) -> str:
    """Return an Argon2id hash, with salt and parameters, in the PHC format.

    Takes some tens of milliseconds.
    """
    return _HASHER.hash(_octets(passcode))


def is_passcode_of(hash: str, passcode: str) -> bool:
    """Whether the passcode was hashed so. Blocks for tens of milliseconds."""
    try:
        return _verify(hash, passcode)
    except CannotVerify:
        return False


def is_hash(text: str) -> bool:
    """Whether ``text`` has the form of an Argon2id hash."""
    return _FORM.fullmatch(text) is not None


class Passcodes:
    """Verifies passcodes on its own threads, and remembers the right ones.

    A login storm cannot stop the reactor, nor fill a thread pool that others use. Reconnecting
    thousands is cheap: the same passcode for the same hash is verified once, however many ask at
    the same time, and not again while it is remembered. What is remembered is an HMAC under a key
    that lives and dies with this object. In which order the others are verified is
    :mod:`gateway.broker.security.logins`'s.

    :param reactor: its thread calls everything here; the threads end when it shuts down.
    :param threads: verifications at the same time.
    :param waiting: different passcodes that may wait or be under way.
    :param remembered: right passcodes that are remembered; beyond, the one not asked for longest is
        forgotten.
    """

    def __init__(
        self,
        reactor: Any,
        threads: int = _THREADS,
        waiting: int = _WAITING,
        remembered: int = _REMEMBERED,
    ) -> None:
        self._reactor = reactor
        self._idle = threads
        self._limit = waiting
        self._remembered = remembered
        self._key = os.urandom(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._asking: dict[bytes, list[Deferred[bool]]] = {}
        #: What waits, and is not under way yet.
        self._waiting: dict[bytes, tuple[str | None, str]] = {}
        self._queue: LoginQueue[bytes] = LoginQueue()
        self._pool = ThreadPool(0, threads, "passcodes")
        self._trigger: object = None
        self._closed = False

    def verify(
        self,
        hash: str | None,
        passcode: str,
        address: str = "",
        name: str = "",
        rank: Rank = Rank.OTHER,
    ) -> Deferred[bool]:
        """Whether the passcode is the one that was hashed.

        :param hash: None where there is no such user; the answer is then False, and takes as long
            as for a wrong passcode.
        :param address: who asks, and
        :param name: for whom, for taking turns.
        :param rank: better ones are verified first.
        :returns: fails with :class:`TooManyWait`, or with :class:`CannotVerify` after
            :meth:`close`. May be cancelled; a passcode whose callers have all cancelled is not
            verified.
        """
        digest = self._digest(hash, passcode)
        done: Deferred[bool] = Deferred(partial(self._abandon, digest))
        if self._closed:
            done.errback(CannotVerify("the server is stopping"))
        elif digest in self._right:
            self._right.move_to_end(digest)
            done.callback(True)
        elif digest in self._asking:
            self._asking[digest].append(done)
            if digest in self._waiting:
                self._queue.put(digest, address, name, rank)
        elif len(self._asking) >= self._limit and not self._make_room(address, name, rank):
            done.errback(self._too_many())
        else:
            self._asking[digest] = [done]
            self._waiting[digest] = hash, passcode
            self._queue.put(digest, address, name, rank)
            self._go_on()
        return done

    def forget(self) -> None:
        """Verify everything anew from now on."""
        self._right.clear()

    def close(self) -> None:
        """Fail what waits, and end the threads. Idempotent.

        Blocks for what they are doing, some tens of milliseconds.
        """
        if self._closed:
            return
        self._closed = True
        if self._trigger is not None:
            self._reactor.removeSystemEventTrigger(self._trigger)
            self._shut_down()

    def _shut_down(self) -> None:
        self._closed = True
        self._waiting.clear()
        self._queue.clear()
        asking, self._asking = self._asking, {}
        self._pool.stop()
        for waiters in asking.values():
            for done in waiters:
                done.errback(CannotVerify("the server is stopping"))

    def _make_room(self, address: str, name: str, rank: Rank) -> bool:
        """Refuse one that waits, of the address that has the most waiting.

        :returns: whether there is one.
        """
        digest = self._queue.crowded_out(address, name, rank)
        if digest is None:
            return False
        del self._waiting[digest]
        for done in self._asking.pop(digest):
            done.errback(self._too_many())
        return True

    def _abandon(self, digest: bytes, done: Deferred[bool]) -> None:
        """A caller has cancelled."""
        asking = self._asking.get(digest)
        if asking is not None and done in asking:
            asking.remove(done)
            if not asking and self._waiting.pop(digest, None) is not None:
                self._queue.remove(digest)
                del self._asking[digest]

    def _too_many(self) -> TooManyWait:
        return TooManyWait(f"{self._limit} logins are waiting to be verified; try again later")

    def _digest(self, hash: str | None, passcode: str) -> bytes:
        known = b"" if hash is None else hash.encode()
        # The length keeps hash and passcode apart.
        return hmac.digest(
            self._key, len(known).to_bytes(4, "big") + known + _octets(passcode), "sha256"
        )

    def _go_on(self) -> None:
        """Give the idle threads what waits."""
        if self._trigger is None:
            self._pool.start()
            self._trigger = self._reactor.addSystemEventTrigger(
                "during", "shutdown", self._shut_down
            )
        while self._idle and (digest := self._queue.take()) is not None:
            hash, passcode = self._waiting.pop(digest)
            self._idle -= 1
            work = deferToThreadPool(self._reactor, self._pool, _verify, hash, passcode)
            work.addBoth(self._finished, digest)

    def _finished(self, result: bool | Failure, digest: bytes) -> None:
        if self._closed:
            return
        self._idle += 1
        asking = self._asking.pop(digest)
        if result is True:
            self._right[digest] = None
            if len(self._right) > self._remembered:
                self._right.popitem(last=False)
        self._go_on()
        for done in asking:
            if isinstance(result, bool):
                done.callback(result)
            else:
                done.errback(result)


def _verify(hash: str | None, passcode: str) -> bool:
    """On a thread; argon2 lets go of the GIL meanwhile."""
    try:
        return (
            _HASHER.verify(_NOBODY if hash is None else hash, _octets(passcode))
            and hash is not None
        )
    except VerifyMismatchError:
        return False
    except (VerificationError, InvalidHashError) as error:
        _log.error("a passcode's hash cannot be used: {error}", error=str(error))
        raise CannotVerify("the passcode that is kept for the user is damaged") from error


def _octets(passcode: str) -> bytes:
    """Return the bytes to hash.

    Half a surrogate pair must not fail in another way than a wrong passcode.
    """
    return passcode.encode("utf-8", "surrogatepass")
