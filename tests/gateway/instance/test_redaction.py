"""No passcode in any log: by field name, by what the text spells, and by value."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.python.failure import Failure

from gateway.instance.redaction import Redaction, hidden_by_value
from gateway.instance.settings import HIDDEN


@pytest.mark.parametrize(
    "text",
    [
        "CONNECT\nlogin:me\npasscode:hunter2\nhost:x",
        "CONNECT\\nlogin:me\\npasscode:hunter2 and blanks, too\\nhost:x",
        "b'CONNECT\\nlogin:me\\npasscode:hunter2\\n\\n\\x00'",
        "{'login': 'me', 'passcode': 'hunter2', 'host': 'x'}",
        "[('passcode', 'hunter2'), ('host', 'x')]",
        '[("passcode", "hunter2")]',
        "[(b'passcode', b'hunter2')]",
        "Credentials(login='me', passcode='hunt\\'er2 hunter2')",
        "imq.keystore.password=hunter2",
        "imq.keystore.password = hunter2",
        "-Dimq.bridge.admin.PASSWORD=hunter2",
        "passphrase: hunter2",
        'passcode="hunter2',
        "passcode:hunter2",
    ],
)
def test_what_spells_a_secret_is_hidden(text: str) -> None:
    cleaned = Redaction().text(text)
    assert "hunter2" not in cleaned
    assert HIDDEN in cleaned


@pytest.mark.parametrize(
    "text",
    [
        "user 'me' is refused: unknown user or wrong passcode",
        "the passfile has no password",
        "gateway.properties:3: imq.keystore.password=********: expected a text",
        "CONNECT host:x login:me",
    ],
)
def test_what_spells_none_is_kept(text: str) -> None:
    assert Redaction().text(text) == text


def test_the_rest_of_a_frame_is_kept() -> None:
    assert (
        Redaction().text("login:me\npasscode:x\nhost:y") == f"login:me\npasscode:{HIDDEN}\nhost:y"
    )
    assert (
        Redaction().text("{'passcode': 'x', 'host': 'y'}")
        == f"{{'passcode': '{HIDDEN}', 'host': 'y'}}"
    )


def test_known_values_are_hidden_wherever_they_stand() -> None:
    redaction = Redaction(["hunter2!", "hunter2!more", ""])
    assert redaction.text("xhunter2!y hunter2!more") == f"x{HIDDEN}y {HIDDEN}"


def test_a_short_value_is_hidden_where_it_stands_alone() -> None:
    assert Redaction(["me"]).text("me and some: 'me'") == f"{HIDDEN} and some: '{HIDDEN}'"


@given(st.text(min_size=6, max_size=12), st.text(max_size=20), st.text(max_size=20))
def test_no_known_value_survives(secret: str, before: str, after: str) -> None:
    cleaned = Redaction([secret]).text(before + secret + after)
    assert secret in HIDDEN or secret not in cleaned.replace(HIDDEN, "\0")


@pytest.mark.parametrize(
    "hostile",
    ['password="' + "\\" * 50_000 + "\n", "password" + " " * 50_000, "passcode:" * 10_000],
)
def test_hostile_text_takes_no_long_time(hostile: str) -> None:
    before = time.process_time()
    Redaction(["hunter2"]).text(hostile)
    assert time.process_time() - before < 2


def text_of(format: str, **fields: object) -> str:
    """The cleaned text of an event with these fields."""
    return Redaction().text_of({"log_format": format, **fields})


@pytest.mark.parametrize(
    "name", ["passcode", "new_password", "passphrase", "client_secret", "private_key"]
)
def test_fields_named_like_a_secret_are_hidden(name: str) -> None:
    assert text_of("got {" + name + "}", **{name: "hunter2"}) == f"got {HIDDEN}"


@pytest.mark.parametrize(
    "headers",
    [
        {"passcode": "hunter2"},
        {b"passcode": b"hunter2"},
        [("passcode", "hunter2")],
        (("passcode", "hunter2"),),
    ],
)
def test_fields_that_hold_headers_are_cleaned(headers: object) -> None:
    cleaned = text_of("{headers}", headers=headers)
    assert HIDDEN in cleaned
    assert "hunter2" not in cleaned


def test_a_traceback_is_cleaned() -> None:
    failure = Failure(ValueError("bad passcode=hunter2"))  # type: ignore[no-untyped-call]
    cleaned = text_of("text", log_failure=failure)
    assert "ValueError" in cleaned
    assert "hunter2" not in cleaned


@pytest.mark.parametrize("secret", ["hunter2", "p-w", "1234", "letmeinplease", "pa ss", "Gäste77"])
def test_a_configured_secret_that_stands_for_itself_is_hidden_by_value(secret: str) -> None:
    redaction = Redaction(hidden_by_value([secret], ["guest"]))
    assert redaction.text(f"it is {secret} here") == f"it is {HIDDEN} here"


@pytest.mark.parametrize(
    ("secret", "names"),
    [("guest", ["guest"]), ("bridge-of-orders", ["a", "bridge-of-orders"]), ("wrong", [])],
)
def test_one_that_is_a_name_or_a_plain_word_leaves_names_and_words(
    secret: str, names: list[str]
) -> None:
    redaction = Redaction(hidden_by_value([secret], names))
    text = f"user '{secret}' is refused: unknown user or {secret} passcode"
    assert redaction.text(text) == text
    # It is hidden where it is named, all the same.
    assert secret not in redaction.text(f'password="{secret}"')
