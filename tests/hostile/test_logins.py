"""Many who guess passcodes, and users who know theirs."""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.admin.cli.client import AdminClient, AdminError, find
from gateway.broker.security.passcodes import hash_passcode
from gateway.broker.security.users import User, edited
from tests.crash.client import HOST, Client, encode
from tests.crash.waiting import until
from tests.gateway_process import GatewayProcess

GUESSES = 300
NAMES = ("alice", "bob", "carol", "dave", "eve")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    # Answers to failures are not held back here, so that they tell how far verifying has come. A busy
    # machine takes longer to verify all than clients may take to be CONNECTED.
    settings = {"imq.authentication.failureDelay": "0", "imq.bridge.stomp.connect.timeout": "300"}
    with GatewayProcess(tmp_path / "var", settings=settings) as gateway:
        yield gateway


def log_in(client: Client, name: str, passcode: str) -> None:
    """Send CONNECT, and do not wait for the answer."""
    headers = {"accept-version": "1.2", "host": HOST, "login": name, "passcode": passcode}
    client.write(encode("CONNECT", headers))


class Guessers:
    """Clients that each wait for the answer to a passcode of their own, which is wrong."""

    def __init__(self, port: int, ending: ExitStack, *logins: str) -> None:
        self._clients = [ending.enter_context(Client(port, connect=False)) for _ in range(GUESSES)]
        for number, client in enumerate(self._clients):
            log_in(client, logins[number % len(logins)], f"guess {number}")

    def answered(self) -> int:
        """How many have their answer, or the end of their connection, by now."""
        ready = select.poll()
        for client in self._clients:
            ready.register(client.socket, select.POLLIN)
        return len(ready.poll(0))


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_who_has_logged_in_before_is_verified_first_after_a_restart(
    gateway: GatewayProcess, crash: bool
) -> None:
    Client(gateway.port).close()
    kept = gateway.directory / "logins"
    until(kept.exists, f"{kept} was not written")
    gateway.restart(crash=crash)
    with ExitStack() as ending:
        guessers = Guessers(gateway.port, ending, "nobody")
        until(guessers.answered, "no guess was answered")
        with Client(gateway.port):
            assert guessers.answered() < GUESSES // 2


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_guesses_for_the_users_themselves_from_their_own_address_do_not_keep_them_out(
    gateway: GatewayProcess, crash: bool
) -> None:
    with edited(gateway.directory / "etc" / "users") as users:
        users |= {name: User(name, frozenset(), hash_passcode(f"of {name}")) for name in NAMES}
    gateway.restart()
    for name in NAMES:
        Client(gateway.port, login=name, passcode=f"of {name}").close()
    kept = gateway.directory / "logins"
    until(
        lambda: kept.exists() and all(f" {name}\n" in kept.read_text() for name in NAMES),
        "not all logins were written",
    )
    gateway.restart(crash=crash)
    with ExitStack() as ending:
        theirs = [ending.enter_context(Client(gateway.port, connect=False)) for _ in NAMES]
        guessers = Guessers(gateway.port, ending, *NAMES)
        until(guessers.answered, "no guess was answered")
        for name, client in zip(NAMES, theirs, strict=True):
            log_in(client, name, f"of {name}")
        assert [client.frame().command for client in theirs] == ["CONNECTED"] * len(NAMES)
        assert guessers.answered() < GUESSES // 2


def test_wrong_passwords_of_a_local_process_do_not_lock_the_administrator_out(
    gateway: GatewayProcess,
) -> None:
    address = find(HOST, gateway.port_mapper_port)
    for number in range(20):
        with pytest.raises(AdminError, match="wrong user or password"):
            AdminClient(address, "admin", f"guess {number}").get("/v1/broker")
    lines = (gateway.directory / "etc" / "passfile").read_text().splitlines()
    password = dict(line.partition("=")[::2] for line in lines)["imq.bridge.admin.password"]
    assert AdminClient(address, "admin", password).get("/v1/broker")
