"""What the process tells systemd, and the sockets that systemd gives it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from gateway.instance import systemd
from gateway.instance.systemd import (
    Notifier,
    SocketsRefused,
    Supervised,
    given_sockets,
    take_sockets,
    watchdog_seconds,
)

PID = 4711


@pytest.fixture(autouse=True)
def no_sockets() -> Iterator[None]:
    yield
    for sockets in systemd._given.values():
        for each in sockets:
            each.close()
    systemd._given.clear()
    systemd._used.clear()


class Supervisor:
    """Hears what it is told."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        self._socket.setblocking(False)

    def heard(self) -> list[str]:
        """What was told since the last call, a text for each datagram."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    heard = Supervisor(str(tmp_path / "notify"))
    yield heard
    heard.close()


# Telling.


def test_assignments_are_one_datagram(supervisor: Supervisor) -> None:
    Notifier(supervisor.address).tell(READY=1, STATUS="two\nlines")
    assert supervisor.heard() == ["READY=1\nSTATUS=two lines"]


def test_an_abstract_socket() -> None:
    heard = Supervisor(f"@stomp-gateway-test-{os.getpid()}")
    Notifier(heard.address).tell(READY=1)
    assert heard.heard() == ["READY=1"]
    heard.close()


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1234"])
def test_an_address_that_cannot_be_used_is_told_nothing(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: object) -> None:
        raise AssertionError("a socket was opened")

    notifier = Notifier(address)
    monkeypatch.setattr(socket, "socket", refused)
    notifier.tell(READY=1)
    assert not notifier


def test_a_supervisor_that_has_gone_does_no_harm(tmp_path: Path) -> None:
    Notifier(str(tmp_path / "gone")).tell(READY=1)


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, 0),
        ({"WATCHDOG_USEC": "3000000"}, 3),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(PID)}, 3),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, 0),
        ({"WATCHDOG_USEC": "soon"}, 0),
        ({"WATCHDOG_USEC": "-1"}, 0),
    ],
)
def test_how_long_the_watchdog_waits(environment: dict[str, str], seconds: float) -> None:
    assert watchdog_seconds(environment, PID) == seconds


class Life:
    """A process that is supervised, and its clock."""

    def __init__(self, address: str, **environment: str) -> None:
        self.environment = {"NOTIFY_SOCKET": address, **environment, "HOME": "/"}
        self.status = "all is well"
        self.clock = Clock()
        self.supervised = Supervised(self.clock, self.environment, lambda: self.status)


@pytest.fixture
def life(supervisor: Supervisor) -> Life:
    return Life(supervisor.address, WATCHDOG_USEC="20000000")


def test_children_are_not_told_of_the_supervisor(life: Life) -> None:
    assert life.environment == {"HOME": "/"}


def test_a_life(life: Life, supervisor: Supervisor) -> None:
    heard, supervised = supervisor.heard, life.supervised
    supervised.starting("opening")
    assert heard() == ["STATUS=opening"]
    with supervised.busy():
        pass
    assert set(heard()) == {"EXTEND_TIMEOUT_USEC=60000000\nWATCHDOG=1"}
    supervised.ready()
    assert heard() == ["READY=1\nSTATUS=all is well", "WATCHDOG=1"]
    life.clock.pump([5, 5])
    assert heard() == ["WATCHDOG=1"]
    life.status = "the disk is full"
    life.clock.advance(5)
    assert heard() == ["STATUS=the disk is full"]
    supervised.reloading(lambda: supervised.reloaded())()
    reloading, ready = heard()
    assert reloading.startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert ready == "READY=1\nSTATUS=the disk is full"
    supervised.stopping()
    supervised.stopping()
    assert heard() == ["STOPPING=1\nSTATUS=ending"]
    life.clock.advance(5)
    assert heard() == ["WATCHDOG=1"]
    supervised.close()
    life.clock.advance(100)
    assert heard() == []


def test_before_it_is_ready_a_reload_is_not_told(life: Life, supervisor: Supervisor) -> None:
    asked = []

    def reload() -> None:
        asked.append("read again")
        life.supervised.reloaded()

    life.supervised.reloading(reload)()
    assert (supervisor.heard(), asked) == ([], ["read again"])


def test_without_a_watchdog_nothing_is_beaten(supervisor: Supervisor) -> None:
    life = Life(supervisor.address)
    life.supervised.ready()
    life.clock.pump([30, 30])
    assert supervisor.heard() == ["READY=1\nSTATUS=all is well"]


def test_what_ends_is_not_ready_any_more(life: Life, supervisor: Supervisor) -> None:
    life.supervised.stopping()
    supervisor.heard()
    life.supervised.ready()
    assert supervisor.heard() == []


def test_without_a_supervisor_nothing_happens() -> None:
    life = Life("", WATCHDOG_USEC="20000000")
    supervised = life.supervised
    supervised.starting("opening")
    with supervised.busy():
        pass
    supervised.ready()
    supervised.reloading(lambda: supervised.reloaded())()
    supervised.stopping()
    supervised.close()
    assert life.clock.getDelayedCalls() == []


# Sockets.


def variables(count: object, names: str, pid: object = PID) -> dict[str, str]:
    return {"LISTEN_PID": str(pid), "LISTEN_FDS": str(count), "LISTEN_FDNAMES": names}


def test_without_sockets_there_are_none() -> None:
    take_sockets({}, PID)
    assert given_sockets("stomp") == ()


def test_those_of_another_process_are_not_taken() -> None:
    environment = variables(1, "stomp", 1)
    take_sockets(environment, PID)
    assert (given_sockets("stomp"), environment) == ((), {})


@pytest.mark.parametrize(
    ("count", "names", "said"),
    [
        ("many", "stomp", "LISTEN_FDS is 'many'; expected a number"),
        (2, "stomp", "2 sockets were given, and 1 names in LISTEN_FDNAMES"),
        (1, "", "1 sockets were given, and 0 names"),
    ],
)
def test_variables_that_contradict_each_other(count: object, names: str, said: str) -> None:
    with pytest.raises(SocketsRefused, match=said):
        take_sockets(variables(count, names), PID)


def test_a_socket_that_is_not_of_the_internet() -> None:
    there = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with there, pytest.raises(SocketsRefused, match="the socket stomp: expected a TCP socket"):
        take_sockets(variables(1, "stomp"), PID, there.fileno())


def test_a_descriptor_that_is_not_open() -> None:
    with pytest.raises(SocketsRefused, match=r"the socket stomp: Bad file .*expected a TCP socket"):
        take_sockets(variables(1, "stomp"), PID, 900)
