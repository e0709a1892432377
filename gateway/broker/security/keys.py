"""The keys that tokens are signed with.

They are a JSON Web Key Set (RFC 7517), from a file or a URL. Owns when they are fetched: for the first token, when those that are there are old, and when a token
names one that is not there, which is how providers bring in new ones. Keys that cannot be fetched
again stay in use; until that is known, those who log in wait.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import jwt
from twisted.internet.defer import Deferred
from twisted.logger import Logger

#: The document of OpenID Connect Discovery, below the issuer.
DISCOVERY: Final = "/.well-known/openid-configuration"
#: Least seconds between two fetches for keys that are not there, or after one that failed: anybody
#: can send tokens.
PAUSE_S: Final = 10.0
#: Keys of one set: a token that names none is tried with each, while others wait.
MOST: Final = 100


class KeysUnavailable(Exception):
    """There are no keys; the text says why."""


class Key:
    """A public key. :param jwk: as the set has it."""

    def __init__(self, jwk: Mapping[str, Any]) -> None:
        self._jwk: Final = jwk
        self._made: Final[dict[str, jwt.PyJWK | None]] = {}
        #: Its name; None if it has none.
        self.key_id: Final = jwk.get("kid") if isinstance(jwk.get("kid"), str) else None

    def by(self, algorithm: str) -> jwt.PyJWK | None:
        """Return it for an algorithm; None where it is not for that."""
        if algorithm not in self._made:
            self._made[algorithm] = None
            if self._jwk.get("alg", algorithm) == algorithm:
                with suppress(jwt.PyJWTError):
                    self._made[algorithm] = jwt.PyJWK(dict(self._jwk), algorithm)
        return self._made[algorithm]


class Keys:
    """The keys of one provider.

    :param place: a path, or the URL of a set; the URL of an issuer where ``discover``.
    :param discover: the issuer's own document says where the set is.
    :param fetch: gives what is at a URL; fails with an error whose text says why.
    :param lifetime_s: seconds after which they are fetched again.
    :param monotonic: seconds.
    """

    _log = Logger()

    def __init__(
        self,
        place: Path | str,
        discover: bool,
        fetch: Callable[[str], Deferred[bytes]],
        lifetime_s: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._place: Final = place
        self._discover: Final = discover
        self._fetch: Final = fetch
        self._lifetime_s: Final = lifetime_s
        self._monotonic: Final = monotonic
        self._known: Sequence[Key] = ()
        self._fetched: float | None = None
        self._tried: float | None = None
        self._problem = ""
        #: Those that wait for a fetch that is under way; None: none is.
        self._waiting: list[Deferred[None]] | None = None

    async def of(self, key_id: str | None) -> Sequence[Key]:
        """Return the keys that may have signed a token.

        :param key_id: that the token names; None: it names none.
        :raises KeysUnavailable: none could ever be fetched.
        """
        now = self._monotonic()
        stale = self._fetched is None or now - self._fetched >= self._lifetime_s
        missing = key_id is not None and not any(key.key_id == key_id for key in self._known)
        rested = self._tried is None or now - self._tried >= PAUSE_S
        if (stale or missing) and rested and self._waiting is None:
            self._renew()
        # The fetch may withdraw a key. Where the last one has failed, those that are there do.
        if self._waiting is not None and (missing or (stale and not self._problem)):
            await self._next()
        if not self._known:
            raise KeysUnavailable(self._problem)
        return [key for key in self._known if key_id is None or key.key_id in (key_id, None)]

    async def _next(self) -> None:
        """Wait for the fetch that is under way."""
        assert self._waiting is not None
        # It may be cancelled, which does not concern the others.
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        await waiting

    def _renew(self) -> None:
        """Fetch the keys; those that are there stay if that fails."""
        self._tried = self._monotonic()
        self._waiting = []
        fetching = Deferred.fromCoroutine(self._read())
        fetching.addBoth(self._renewed)

    def _renewed(self, outcome: Any) -> None:
        waiting, self._waiting = self._waiting, None
        if isinstance(outcome, list):
            self._known = outcome
            self._fetched = self._monotonic()
            self._problem = ""
        else:
            self._problem = f"{self._place}: {outcome.getErrorMessage()}"
            if self._known:
                self._log.warn(
                    "the keys of tokens stay as they were: {problem}", problem=self._problem
                )
        for each in waiting or ():
            each.callback(None)

    async def _read(self) -> list[Key]:
        """:raises Exception: whatever went wrong, with a text that says why."""
        place = self._place
        if isinstance(place, Path):
            return _parsed(place.read_bytes())
        if self._discover:
            document = json.loads(await self._fetch(place.rstrip("/") + DISCOVERY))
            found = document.get("jwks_uri") if isinstance(document, dict) else None
            if not isinstance(found, str):
                raise ValueError(f"{DISCOVERY} has no jwks_uri")
            place = found
        return _parsed(await self._fetch(place))


def _parsed(octets: bytes) -> list[Key]:
    """:raises ValueError: they are no set, or it has no key for signatures."""
    document = json.loads(octets)
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("expected a JSON Web Key Set, an object with keys")
    # A provider's set has keys for encryption as well. A shared secret is no key to verify with.
    keys = [
        Key(each)
        for each in listed
        if isinstance(each, dict) and each.get("use", "sig") == "sig" and each.get("kty") != "oct"
    ]
    if not keys:
        raise ValueError("it has no key for signatures")
    if len(keys) > MOST:
        raise ValueError(f"it has {len(keys)} keys for signatures; at most {MOST} are tried")
    return keys
