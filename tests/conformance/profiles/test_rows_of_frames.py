"""Frames that are broken or refused: rows of ``docs/profiles.rst``."""

from __future__ import annotations

import pytest

from tests.conformance.profiles.conftest import Join
from tests.conformance.profiles.rows import answer, is_closed, row


@row("a header line without a colon", activemq="has no value", others="ERROR")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_no_colon(join: Join, name: str, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    client.subscribe(f"/queue/{name}")
    client.write(f"SEND\nodd\ndestination:/queue/{name}\n\nbody\0".encode())
    if cell == "ERROR":
        assert "no colon" in client.expect("ERROR").text
        return
    message = client.message()
    assert (message["odd"], message.text) == ("", "body")


@row("a body of SUBSCRIBE in 1.1 and 1.2", openmq="ERROR", standard="ERROR", others="is ignored")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_bodies(join: Join, name: str, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    client.put(f"/queue/{name}", "body")
    client.write(f"SUBSCRIBE\nid:s\ndestination:/queue/{name}\n\nsome text\0".encode())
    if cell == "ERROR":
        client.error("must not have a body")
        return
    assert client.message().text == "body"


@row(
    "``content-length:5`` of ACK, and no body",
    openmq="ERROR",
    standard="ERROR",
    activemq="is ignored",
    others="counts",
)
def test_length_of_ack(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile)
    (message,) = client.hold(f"/queue/{name}", "body", ack="client")
    client.ack(message, content_length="5", receipt="a")
    if cell == "ERROR":
        client.error("content-length")
        return
    if cell == "counts":
        client.write(b"1234\0")
    assert answer(client)["receipt-id"] == "a"
    assert client.left(f"/queue/{name}") == []


@row("bytes behind those of ``content-length``", artemis="are dropped", others="ERROR")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_rest(join: Join, name: str, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    client.subscribe(f"/queue/{name}")
    for body in ("first", "second"):
        sent = f"SEND\ndestination:/queue/{name}\ncontent-length:{len(body)}\n\n{body}"
        client.write(f"{sent} and more\0".encode())
    if cell == "ERROR":
        assert "content-length" in client.expect("ERROR").text
        return
    assert [each.text for each in client.messages(2)] == ["first", "second"]


@row("the escapes ``\\n`` and ``\\c`` in 1.0", activemq="are read", others="stay")
def test_escapes_of_the_first_version(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile, "1.0")
    client.write(f"SEND\ndestination:/queue/{name}\nsaid:a\\cb\\nc\n\nbody\0".encode())
    receiver = join("openmq")
    receiver.subscribe(f"/queue/{name}")
    assert receiver.message()["said"] == ("a:b\nc" if cell == "are read" else "a\\cb\\nc")


@row("an undefined escape in 1.1 and 1.2", activemq="stays", others="ERROR")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_undefined_escapes(join: Join, name: str, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    client.subscribe(f"/queue/{name}")
    client.write(f"SEND\ndestination:/queue/{name}\nsaid:a\\tb\\cc\n\nbody\0".encode())
    if cell == "ERROR":
        assert "does not define" in client.expect("ERROR").text
        return
    assert client.message()["said"] == "a\\tb:c"


@row("after an unknown command", activemq="goes on", rabbitmq="goes on", others="ends")
@pytest.mark.parametrize("version", ["1.0", "1.2"])
def test_unknown_commands(join: Join, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    client.send("WRONG", {"receipt": "r"}, "a body")
    assert client.expect("ERROR").command == "ERROR"
    assert is_closed(client) is (cell == "ends")


@row(
    "after an ERROR over a frame that asks for what cannot be the connection",
    openmq="ends",
    standard="ends",
    activemq="goes on",
    artemis="goes on, but in 1.2",
    rabbitmq="goes on",
)
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_after_an_error(join: Join, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    client.send("ACK", {"id": "1-1", "message-id": "1-1", "subscription": "s", "receipt": "r"})
    assert client.expect("ERROR")["receipt-id"] == "r"
    goes_on = cell == "goes on" or (cell != "ends" and version == "1.1")
    assert is_closed(client) is not goes_on


@row(
    "after an ERROR over a SEND that the broker refuses",
    openmq="ends",
    standard="ends",
    activemq="goes on",
    artemis="goes on, but in 1.2",
    rabbitmq="goes on",
)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_refused_sends(join: Join, version: str, profile: str, cell: str) -> None:
    client = join(profile, version)
    full = f"profiles.full.{profile}{version.replace('.', '')}"
    client.put(f"/queue/{full}", "1")
    client.send("SEND", {"destination": f"/queue/{full}", "receipt": "r"}, "2")
    assert client.expect("ERROR")["receipt-id"] == "r"
    assert is_closed(client) is (cell == "ends")
