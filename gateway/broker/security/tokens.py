"""Users that a token speaks for.

Tokens are JSON Web Tokens (RFC 7519), as providers of OpenID Connect issue them. Owns which token is
good, and who it speaks for. Where the keys come from is :mod:`gateway.broker.security.keys`'s
business; what a user may do, that of the access rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jwt
from twisted.logger import Logger

from gateway.broker.properties.repositories import TokenOptions
from gateway.broker.security.keys import Keys, KeysUnavailable
from gateway.broker.security.users import Principal, check_name, is_name
from gateway.messaging.errors import AuthenticationFailed
from gateway.messaging.provider import Credentials
from gateway.reactor.deferreds import deferred

#: Signatures with a key that the provider alone has. One with a shared secret, or none, is never
#: taken: else a public key would do as the secret.
ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
#: What a token may call itself in its header: nothing, a token, or an access token (RFC 9068 section
#: 2.1). One made for something else, as a logout token is, speaks for no user (RFC 8725 section 3.11).
_TYPES: Final = ("jwt", "at+jwt", "application/jwt", "application/at+jwt")
#: Seconds since the epoch that no token may reach; infinity is one that JSON can have.
_NEVER: Final = 1e12
_MOST_GROUPS: Final = 1000


class TokenUsers:
    """Authenticates users by tokens.

    :param wall: seconds since the epoch.
    """

    _log = Logger()

    def __init__(self, options: TokenOptions, keys: Keys, wall: Callable[[], float]) -> None:
        self._options: Final = options
        self._keys: Final = keys
        self._wall: Final = wall

    @deferred
    async def authenticate(self, credentials: Credentials) -> Principal:
        """Return the user that the passcode, a token, speaks for.

        ``login`` may be empty, or must be that user's name.

        :returns: fails with AuthenticationFailed.
        """
        login, token = credentials.username, credentials.passcode
        options = self._options
        try:
            head = jwt.get_unverified_header(token)
            algorithm = head.get("alg")
            if algorithm not in ALGORITHMS:
                raise AuthenticationFailed(login, f"the token is signed by {ascii(algorithm)[:20]}")
            kind = head.get("typ", "JWT")
            if not isinstance(kind, str) or kind.lower() not in _TYPES:
                raise AuthenticationFailed(
                    login, f"the token is for something else: its typ is {ascii(kind)[:20]}"
                )
            claims: dict[str, Any] | None = None
            for key in await self._keys.of(_key_id(head)):
                made = key.by(algorithm)
                claims = None if made is None else self._claims(token, made, algorithm)
                if claims is not None:
                    break
            if claims is None:
                raise AuthenticationFailed(login, "the token is signed by none of the known keys")
        except KeysUnavailable as error:
            self._log.error("tokens cannot be verified: {error}", error=error)
            raise AuthenticationFailed(login, "tokens cannot be verified now") from None
        except jwt.PyJWTError as error:
            raise AuthenticationFailed(login, f"the token is not good: {_said(error)}") from None
        # With the wall clock of this process, which alone tells when sessions end.
        now = self._wall()
        times = {claim: claims[claim] for claim in ("exp", "nbf", "iat") if claim in claims}
        for claim, value in times.items():
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0 <= value < _NEVER
            ):
                raise AuthenticationFailed(login, f"the token's {claim} is no time")
        end = times.pop("exp") + options.leeway_s
        if now >= end:
            raise AuthenticationFailed(login, "the token has ended")
        for claim, value in times.items():
            if value - options.leeway_s > now:
                raise AuthenticationFailed(login, f"the token is not good yet ({claim})")
        name = claims.get(options.user_claim)
        if not isinstance(name, str):
            raise AuthenticationFailed(login, f"the token has no claim {options.user_claim}")
        try:
            check_name(name)
        except ValueError as error:
            raise AuthenticationFailed(login, str(error)) from None
        if login and login != name:
            raise AuthenticationFailed(login, "the token is another user's")
        return Principal(name, groups_of(claims, options.groups_claim), until=end)

    def readmit(self, principal: Principal, address: str) -> Principal:
        """Return a connected user as it is: its token still holds."""
        return principal

    def close(self) -> None:
        """There is nothing to be closed."""

    def _claims(self, token: str, key: jwt.PyJWK, algorithm: str) -> dict[str, Any] | None:
        """Return the claims of a token; None if another key may have signed it.

        :raises PyJWTError: it is not good, whatever the key.
        """
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=self._options.issuer,
                audience=self._options.audience,
                options={
                    "require": ["exp", "iss", "aud"],
                    # Times are compared with the clock that was given.
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError, jwt.InvalidKeyError):
            return None


def groups_of(claims: Mapping[str, Any], claim: str) -> frozenset[str]:
    """Return the groups that a token's claim has.

    Those that cannot be names of groups are left out, as is what is no text.
    """
    value: Any = claims.get(claim)
    if value is None:
        value = claims
        for step in claim.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        value = value.split()
    if not isinstance(value, Sequence):
        return frozenset()
    return frozenset(
        each for each in value[:_MOST_GROUPS] if isinstance(each, str) and is_name(each)
    )


def _key_id(head: Mapping[str, Any]) -> str | None:
    found = head.get("kid")
    return found if isinstance(found, str) else None


def _said(error: jwt.PyJWTError) -> str:
    """Return what is wrong with a token, without its contents."""
    for kind, text in (
        (jwt.InvalidIssuerError, "it is of another issuer"),
        (jwt.InvalidAudienceError, "it is for another audience"),
    ):
        if isinstance(error, kind):
            return text
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"it has no claim {error.claim}"
    return "it cannot be read"
