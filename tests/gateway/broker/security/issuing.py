"""An issuer of tokens, as OpenID Connect's providers are."""

from __future__ import annotations

import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ISSUER = "https://login.example.org/realms/shop"
AUDIENCE = "stomp"

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | Ed25519PrivateKey


def rsa_key() -> PrivateKey:
    return rsa.generate_private_key(65537, 2048)


class Issuer:
    """It has keys, each with a name, and signs with the newest."""

    def __init__(self, algorithm: str = "RS256") -> None:
        self.keys: dict[str, PrivateKey] = {}
        self.algorithm = algorithm
        self.turn()

    def turn(self, key: PrivateKey | None = None) -> None:
        """Sign with a new key from now on."""
        self.keys[f"key{len(self.keys) + 1}"] = key or rsa_key()

    def token(
        self, end: float, name: str = "alice", *, key: str = "", typ: object = "JWT", **claims: Any
    ) -> str:
        """A good token, with another type or other claims; None leaves one out."""
        key = key or [*self.keys][-1]
        given = {"iss": ISSUER, "aud": AUDIENCE, "sub": name, "exp": end, **claims}
        claims = {claim: value for claim, value in given.items() if value is not None}
        return jwt.encode(claims, self.keys[key], self.algorithm, {"kid": key, "typ": typ})

    def set(self) -> bytes:
        """Its key set."""
        return json.dumps(
            {"keys": [_public(key, name) for name, key in self.keys.items()]}
        ).encode()


def _public(key: PrivateKey, name: str) -> dict[str, Any]:
    public: Any = key.public_key()
    algorithm: Any = jwt.algorithms.RSAAlgorithm
    if isinstance(key, ec.EllipticCurvePrivateKey):
        algorithm = jwt.algorithms.ECAlgorithm
    elif isinstance(key, Ed25519PrivateKey):
        algorithm = jwt.algorithms.OKPAlgorithm
    return {**json.loads(algorithm.to_jwk(public)), "kid": name, "use": "sig"}
