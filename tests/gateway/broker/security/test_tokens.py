"""Tokens: which are good, and who they speak for."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from gateway.broker.properties.repositories import TokenOptions
from gateway.broker.security.keys import DISCOVERY, PAUSE_S, Keys
from gateway.broker.security.logins import FREE, Logins
from gateway.broker.security.passcodes import hash_passcode
from gateway.broker.security.repositories import Repositories, is_token
from gateway.broker.security.tokens import TokenUsers, groups_of
from gateway.broker.security.users import Principal, User, Users, write_users
from gateway.messaging.errors import AuthenticationFailed
from gateway.messaging.provider import Credentials
from tests.gateway.broker.security.issuing import AUDIENCE, ISSUER, Issuer, rsa_key

NOW = 1_800_000_000.0
LIFETIME = 300.0


class Served:
    """Users of an issuer whose keys come by a URL."""

    def __init__(self, issuer: Issuer, discover: bool = False, **options: Any) -> None:
        self.clock = Clock()
        self.clock.advance(NOW)
        self.issuer = issuer
        self.asked: list[str] = []
        self.down: Exception | None = None
        self.held: Deferred[bytes] | None = None
        place = ISSUER if discover else "https://login.example.org/keys"
        self.keys = Keys(place, discover, self._fetch, LIFETIME, self.clock.seconds)
        made = TokenOptions(**{"issuer": ISSUER, "audience": (AUDIENCE, "other"), **options})
        self.users = TokenUsers(made, self.keys, self.clock.seconds)

    def _fetch(self, url: str) -> Deferred[bytes]:
        self.asked.append(url)
        if self.down is not None:
            return fail(self.down)
        if self.held is not None:
            return self.held
        if url == ISSUER + DISCOVERY:
            return succeed(json.dumps({"jwks_uri": "https://elsewhere.example.org/k"}).encode())
        return succeed(self.issuer.set())

    def login(self, token: str, name: str = "") -> Principal | AuthenticationFailed:
        [outcome] = self.begun(token, name)
        assert isinstance(outcome, Principal | AuthenticationFailed), outcome
        return outcome

    def begun(self, token: str, name: str = "") -> list[object]:
        outcome: list[object] = []
        self.users.authenticate(Credentials(name, token, "10.0.0.1")).addCallbacks(
            outcome.append, lambda failure: outcome.append(failure.value)
        )
        return outcome

    def refused(self, token: str, name: str = "") -> str:
        outcome = self.login(token, name)
        assert isinstance(outcome, AuthenticationFailed), outcome
        assert token not in str(outcome)
        return outcome.reason


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def test_a_token_speaks_for_its_user_until_it_ends(issuer: Issuer) -> None:
    served = Served(issuer)
    token = issuer.token(NOW + 60, groups=["staff", "shop"], iat=NOW, nbf=NOW)
    wanted = Principal("alice", frozenset({"staff", "shop"}), until=NOW + 60)
    assert served.login(token) == served.login(token, "alice") == wanted
    assert served.refused(token, "bob") == "the token is another user's"
    served.clock.advance(59.9)
    assert served.login(token) == wanted
    served.clock.advance(0.1)
    assert served.refused(token) == "the token has ended"


def test_clocks_may_differ_by_as_much_as_the_operator_says(issuer: Issuer) -> None:
    served = Served(issuer, leeway_s=30)
    early = issuer.token(NOW + 60, nbf=NOW + 30, iat=NOW + 30)
    assert served.login(early) == Principal("alice", frozenset(), until=NOW + 90)
    assert "not good yet (nbf)" in served.refused(issuer.token(NOW + 60, nbf=NOW + 31))
    assert isinstance(served.login(issuer.token(NOW - 29)), Principal)
    assert served.refused(issuer.token(NOW - 30)) == "the token has ended"


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"iss": "https://evil.example.org"}, "it is of another issuer"),
        ({"iss": None}, "it has no claim iss"),
        ({"aud": "bank"}, "it is for another audience"),
        ({"aud": None}, "it has no claim aud"),
        ({"exp": None}, "it has no claim exp"),
        ({"exp": "never"}, "the token's exp is no time"),
        ({"exp": float("inf")}, "the token's exp is no time"),
        ({"exp": True}, "the token's exp is no time"),
        ({"nbf": "x"}, "the token's nbf is no time"),
        ({"iat": NOW + 1}, "not good yet (iat)"),
        ({"sub": None}, "the token has no claim sub"),
        ({"sub": "a:b"}, "expected printable characters"),
        ({"sub": ""}, "user name ''"),
    ],
)
def test_one_whose_claims_do_not_do_is_refused(
    issuer: Issuer, claims: dict[str, Any], told: str
) -> None:
    assert told in Served(issuer).refused(issuer.token(NOW + 60, **claims))


@pytest.mark.parametrize("typ", ["JWT", "at+jwt", "application/at+jwt", None])
def test_an_access_token_or_one_without_a_type_does(issuer: Issuer, typ: str | None) -> None:
    assert isinstance(Served(issuer).login(issuer.token(NOW + 9, typ=typ)), Principal)


@pytest.mark.parametrize("typ", ["logout+jwt", "dpop+jwt", "secevent+jwt"])
def test_a_token_made_for_something_else_is_refused(issuer: Issuer, typ: str) -> None:
    refused = Served(issuer).refused(issuer.token(NOW + 9, typ=typ))
    assert refused == f"the token is for something else: its typ is {typ!r}"


def test_one_audience_of_several_does(issuer: Issuer) -> None:
    served = Served(issuer)
    assert isinstance(served.login(issuer.token(NOW + 9, aud=["bank", "other"])), Principal)


def test_other_signatures_are_refused(issuer: Issuer) -> None:
    served = Served(issuer)
    stranger = Issuer()
    assert "signed by none of the known keys" in served.refused(stranger.token(NOW + 60))
    good = issuer.token(NOW + 60)
    head, claims, signature = good.split(".")
    turned = ("A" if signature[9] != "A" else "B") + signature[10:]
    assert "signed by none" in served.refused(f"{head}.{claims}.{signature[:9]}{turned}")
    # A key that all know must not do as a shared secret; nor none at all.
    shared = jwt.encode({"sub": "alice"}, "s" * 64, "HS256")
    assert served.refused(shared) == "the token is signed by 'HS256'"
    nothing = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
    assert served.refused(f"{nothing}.{claims}.AAAA") == "the token is signed by 'none'"
    lines = base64.urlsafe_b64encode(b'{"alg":"a\\nmessage:b"}').rstrip(b"=").decode()
    assert served.refused(f"{lines}.{claims}.AAAA") == "the token is signed by 'a\\nmessage:b'"
    assert "cannot be read" in served.refused("eyJhbGciOiJSUzI1NiJ9.e30.AAAA"[:20] + ".x.y")


@pytest.mark.parametrize("algorithm", ["RS256", "PS384", "ES256", "EdDSA"])
def test_every_kind_of_key_does(algorithm: str) -> None:
    issuer = Issuer(algorithm)
    if algorithm == "ES256":
        issuer.turn(ec.generate_private_key(ec.SECP256R1()))
    elif algorithm == "EdDSA":
        issuer.turn(Ed25519PrivateKey.generate())
    # Keys of other kinds are in the set, too.
    served = Served(issuer)
    assert isinstance(served.login(issuer.token(NOW + 60)), Principal)


@pytest.mark.parametrize(
    ("claims", "claim", "wanted"),
    [
        ({"groups": ["a", "b", "a"]}, "groups", {"a", "b"}),
        ({"scope": "read write"}, "scope", {"read", "write"}),
        ({"realm_access": {"roles": ["a"]}}, "realm_access.roles", {"a"}),
        ({"https://x.org/groups": ["a"]}, "https://x.org/groups", {"a"}),
        ({"groups": ["a", 7, None, "b:c", "", "x" * 300]}, "groups", {"a"}),
        ({"groups": 7}, "groups", set()),
        ({"groups": {"a": 1}}, "groups", set()),
        ({}, "a.b.c", set()),
    ],
)
def test_groups_are_those_of_the_claim(
    claims: dict[str, Any], claim: str, wanted: set[str]
) -> None:
    assert groups_of(claims, claim) == wanted


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.sampled_from(["iss", "aud", "exp", "sub", "groups", "nbf"]), _JSON))
def test_whatever_a_token_has_is_answered(claims: dict[str, Any]) -> None:
    token = jwt.api_jws.encode(json.dumps(claims).encode(), _ISSUER.keys["key1"], "RS256")
    outcome = Served(_ISSUER).login(token)
    assert isinstance(outcome, AuthenticationFailed)


_ISSUER = Issuer()


def test_keys_are_fetched_once_and_again_when_they_are_old(issuer: Issuer) -> None:
    served = Served(issuer)
    for _ in range(3):
        assert isinstance(served.login(issuer.token(NOW + 9999)), Principal)
    assert len(served.asked) == 1
    served.clock.advance(LIFETIME)
    assert isinstance(served.login(issuer.token(NOW + 9999)), Principal)
    assert len(served.asked) == 2


def test_a_new_key_is_fetched_when_a_token_names_it_and_not_too_often() -> None:
    issuer = Issuer()
    served = Served(issuer)
    old = issuer.token(NOW + 9999)
    assert isinstance(served.login(old), Principal)
    issuer.turn()
    assert "none of the known keys" in served.refused(issuer.token(NOW + 9999))
    served.clock.advance(PAUSE_S)
    assert isinstance(served.login(issuer.token(NOW + 9999)), Principal)
    assert len(served.asked) == 2
    # Anybody can name keys: that has nothing fetched until some time has passed.
    stranger = Issuer()
    stranger.keys = {"key9": rsa_key()}
    for _ in range(100):
        assert "none of the known keys" in served.refused(stranger.token(NOW + 9999))
    assert len(served.asked) == 2
    # One that the issuer has taken back is good no longer when the set is fetched again.
    issuer.keys.pop("key1")
    served.clock.advance(LIFETIME)
    assert isinstance(served.login(issuer.token(NOW + 9999)), Principal)
    assert "none of the known keys" in served.refused(old)


def test_keys_that_cannot_be_fetched_again_stay_in_use(issuer: Issuer) -> None:
    served = Served(issuer)
    served.down = OSError("nobody listens there")
    assert served.refused(issuer.token(NOW + 9999)) == "tokens cannot be verified now"
    assert served.refused(issuer.token(NOW + 9999)) == "tokens cannot be verified now"
    assert len(served.asked) == 1
    served.clock.advance(PAUSE_S)
    served.down = None
    assert isinstance(served.login(issuer.token(NOW + 9999)), Principal)
    served.clock.advance(LIFETIME)
    served.down = OSError("nobody listens there")
    assert isinstance(served.login(issuer.token(NOW + 9999)), Principal)
    assert len(served.asked) == 3
    # Nor does anybody wait for an issuer that hangs, when it is known that it does.
    served.down = None
    served.clock.advance(PAUSE_S)
    served.held = Deferred()
    assert isinstance(served.login(issuer.token(NOW + 9999)), Principal)
    assert len(served.asked) == 4


def test_a_key_that_was_withdrawn_lets_nobody_in_when_the_set_is_old() -> None:
    issuer = Issuer()
    served = Served(issuer)
    stolen = issuer.token(NOW + 9999)
    assert isinstance(served.login(stolen), Principal)
    issuer.turn()
    issuer.keys.pop("key1")
    served.clock.advance(LIFETIME)
    assert "none of the known keys" in served.refused(stolen)
    # One who waits for a fetch that fails is let in with what there is.
    served.clock.advance(LIFETIME)
    served.held = Deferred()
    waiting = served.begun(issuer.token(NOW + 9999))
    assert waiting == []
    served.held.errback(TimeoutError("no answer"))
    assert [type(each) for each in waiting] == [Principal]


def test_logins_wait_for_one_fetch_and_may_go_meanwhile(issuer: Issuer) -> None:
    served = Served(issuer)
    served.held = Deferred()
    first, second = served.begun(issuer.token(NOW + 9)), served.begun(issuer.token(NOW + 9))
    third: list[object] = []
    gone = served.users.authenticate(Credentials("", issuer.token(NOW + 9)))
    gone.addCallbacks(third.append, lambda failure: third.append(failure.type.__name__))
    gone.cancel()
    assert (first, second, third) == ([], [], ["CancelledError"])
    served.held.callback(issuer.set())
    assert [type(each) for each in (*first, *second)] == [Principal, Principal]
    assert len(served.asked) == 1


def test_the_issuer_says_where_its_keys_are(issuer: Issuer) -> None:
    served = Served(issuer, discover=True)
    assert isinstance(served.login(issuer.token(NOW + 9)), Principal)
    assert served.asked == [ISSUER + DISCOVERY, "https://elsewhere.example.org/k"]


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"keys": {}}', '{"keys": [1]}', "\xff", f'{{"keys": [{"{}," * 100}{{}}]}}'],
)
def test_a_set_that_is_none_is_told(issuer: Issuer, tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(text.encode("latin-1"))
    served = Served(issuer)
    keys = Keys(file, False, served._fetch, LIFETIME, served.clock.seconds)
    served.users._keys = keys  # type: ignore[misc]
    assert served.refused(issuer.token(NOW + 9)) == "tokens cannot be verified now"
    served.clock.advance(PAUSE_S)
    file.write_bytes(issuer.set())
    assert isinstance(served.login(issuer.token(NOW + 99)), Principal)


def test_what_is_no_token_is_for_the_file(issuer: Issuer, tmp_path: Path) -> None:
    served = Served(issuer)
    file = Users(tmp_path / "users", served.clock)
    write_users(tmp_path / "users", [User("alice", frozenset({"staff"}), hash_passcode("sesame"))])
    file.load()
    both = Repositories({"file": file, "oidc": served.users}, file, Logins(served.clock, None, 0))
    outcome: list[Any] = []
    carol = both.authenticate(Credentials("", issuer.token(NOW + 9, "carol")))
    carol.addCallback(outcome.append)
    assert outcome == [Principal("carol", frozenset(), NOW + 9, "oidc")]
    # What the file says of its users no token gets around.
    stolen: list[Any] = []
    asked = both.authenticate(Credentials("", issuer.token(NOW + 9, "alice")))
    asked.addCallbacks(stolen.append, lambda failure: stolen.append(failure.value.reason))
    assert stolen == ["a user of the file has that name"]
    # A user of tokens is no user of the file, and the other way round.
    assert both.readmit(outcome[0], "") == outcome[0]
    known = Principal("alice", frozenset())
    assert both.readmit(known, "").groups == {"staff"}
    only = Repositories({"oidc": served.users}, file, Logins(served.clock, None, 0))
    refused: list[Any] = []
    asked = only.authenticate(Credentials("alice", "sesame"))
    asked.addCallbacks(refused.append, lambda failure: refused.append(failure.value.reason))
    assert refused == ["unknown user or wrong passcode"]
    both.close()


@pytest.mark.parametrize("text", ["", "secret", "a.b.c", "eyJ.x", "eyJhbGciOiJub25lIn0.e30."])
def test_what_has_not_the_form_is_no_token(text: str) -> None:
    assert not is_token(text)


def test_answers_to_bad_tokens_are_held_back(issuer: Issuer, tmp_path: Path) -> None:
    served = Served(issuer)
    file = Users(tmp_path / "users", served.clock)
    both = Repositories({"file": file, "oidc": served.users}, file, Logins(served.clock))
    answers: list[Any] = []
    for _ in range(FREE + 1):
        asked = both.authenticate(Credentials("", issuer.token(NOW - 1), "192.0.2.1"))
        asked.addCallbacks(answers.append, lambda failure: answers.append(failure.value.reason))
    assert answers == ["the token has ended"] * FREE
    served.clock.advance(1)
    assert answers == ["the token has ended"] * (FREE + 1)
    both.close()
