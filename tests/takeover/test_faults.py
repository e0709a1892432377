"""Faults that do not end an ownership, and clients that come back at once.

Clocks are set; the database pauses and restarts.
"""

from __future__ import annotations

import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.crash.client import Client, Gone, Refused
from tests.crash.waiting import until
from tests.postgresql import Cluster
from tests.takeover.machines import Machine, Machines
from tests.takeover.test_takeover import KILLED, STARVED, create_tables

HOUR: Final = 3600
CLOCK: Final = Path(__file__).parents[1] / "crash" / "shifted_clock.c"
#: Clients that come back at once.
CLIENTS: Final = 200


class SetClock:
    """A wall clock that a test sets, of the processes with its environment.

    :param folder: which these processes may read.
    """

    def __init__(self, folder: Path) -> None:
        library = folder / "shifted_clock.so"
        options = ("-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
        subprocess.run(["cc", *options, "-o", str(library), str(CLOCK), "-ldl"], check=True)
        self._shift = folder / "shift"
        self.set(0)
        for path in (library, self._shift):
            path.chmod(0o755)
        self.environment = {"LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(self._shift)}

    def set(self, seconds: int) -> None:
        """Set it to what it would be, and so many seconds more."""
        with self._shift.open("r+b" if self._shift.exists() else "wb") as file:
            file.write(struct.pack("=q", seconds))


@pytest.fixture
def url(postgresql_cluster: Cluster) -> str:
    """A database with the tables, on a server that the test may stop."""
    url = postgresql_cluster.database()
    create_tables(url)
    return url


@pytest.mark.parametrize(
    ("whose", "seconds"),
    [("owner", -HOUR), ("standby", HOUR), ("database", -HOUR), ("database", HOUR)],
)
def test_a_clock_is_set(
    whose: str, seconds: int, url: str, postgresql_cluster: Cluster, tmp_path: Path
) -> None:
    clock = SetClock(postgresql_cluster.folder)
    machines = Machines(tmp_path, url, "first", "second")
    if whose == "database":
        postgresql_cluster.stop()
        postgresql_cluster.environment |= clock.environment
        postgresql_cluster.start()
    else:
        machines.all[whose == "standby"].add_environment(clock.environment)
    with machines:
        owner = machines.owner
        load = machines.load(20)
        load.wait_for_receipts(100)
        clock.set(seconds)
        load.wait_for_receipts(700)
        (standby,) = machines.standbys(owner)
        assert (owner.ready, standby.ready) == (True, False)
        assert "cannot be reached" not in owner.log
        owner.kill()
        successor, took = machines.until_taken_over(owner)
        assert took < KILLED + STARVED
        machines.account(load, successor)


def test_the_database_pauses_and_restarts(
    url: str, postgresql_cluster: Cluster, tmp_path: Path
) -> None:
    with Machines(tmp_path, url, "first", "second") as machines:
        owner = machines.owner
        load = machines.load(21)
        load.wait_for_receipts(200)
        postgresql_cluster.pause()
        # The owner cannot know any more that it is one, and says so.
        until(lambda: owner.health()[0] == 503, machines.told)
        postgresql_cluster.resume()
        load.wait_for_receipts(400)
        postgresql_cluster.kill()
        until(lambda: owner.health()[0] == 503, machines.told)
        postgresql_cluster.start()
        load.wait_for_receipts(700)
        assert machines.owner is owner
        owner.kill()
        successor, _ = machines.until_taken_over(owner)
        machines.account(load, successor)


def stored_somewhere(machines: list[Machine], body: bytes) -> None:
    """Store a message at the process that serves, as from a list of hosts."""

    def stored() -> bool:
        for machine in machines:
            try:
                with Client(machine.port) as client:
                    client.store("/queue/all", body)
            except (OSError, Gone, Refused):
                continue
            return True
        return False

    until(stored, lambda: f"{body!r} was never stored")


def test_all_clients_come_back_at_once(url: str, tmp_path: Path) -> None:
    with (
        Machines(tmp_path, url, "first", "second") as machines,
        ThreadPoolExecutor(CLIENTS) as threads,
    ):
        owner = machines.owner
        bodies = [b"%d %d" % (turn, number) for turn in range(2) for number in range(CLIENTS)]

        def store(body: bytes) -> None:
            stored_somewhere(machines.all, body)

        list(threads.map(store, bodies[:CLIENTS]))
        owner.kill()
        list(threads.map(store, bodies[CLIENTS:]))
        successor = machines.owner
        found = []
        with Client(successor.port) as client:
            early = client.ask("SUBSCRIBE", {"destination": "/queue/all", "id": "1"})
            found = [frame.body for frame in early]
            while len(set(found)) < len(bodies):
                found.append(client.message().body)
        assert set(found) == set(bodies)
