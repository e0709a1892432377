"""Faults that do not end an ownership, and clients that come back at once.

Clocks are set; the database pauses and restarts.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.crash.client import Client, Gone, Refused
from tests.crash.waiting import until
from tests.crash.wall_clock import WallClock, build_shifted_clock
from tests.postgresql import Cluster
from tests.takeover.machines import Machine, Machines
from tests.takeover.test_takeover import KILLED, STARVED, create_tables

HOUR: Final = 3600
#: Clients that come back at once.
CLIENTS: Final = 200


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
    folder = postgresql_cluster.folder
    clock = WallClock(build_shifted_clock(folder), folder)
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
        clock.jump(seconds)
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
