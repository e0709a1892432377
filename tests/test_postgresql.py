"""PostgreSQL's servers do what tests rely on.

A fault that does not happen would prove nothing.
"""

from __future__ import annotations

import select
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests.faults.proxy import Proxy
from tests.postgresql import PATIENCE, Cluster, Stop, at

pytestmark = pytest.mark.process

#: In seconds: how long tests wait for an answer that must not come.
BRIEFLY = 0.3


def connect(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(url, autocommit=True, connect_timeout=int(PATIENCE))


def ask(session: psycopg.Connection[Any], sql: str) -> None:
    """Send a statement, and do not wait for its answer."""
    session.pgconn.send_query(sql.encode())


def answers(session: psycopg.Connection[Any], seconds: float) -> bool:
    """Tell whether something comes from the server within that time."""
    return bool(select.select([session.fileno()], [], [], seconds)[0])


def fill(url: str, count: int) -> None:
    """Commit the numbers from 0 in a new table, each by itself."""
    with closing(connect(url)) as session:
        session.execute("CREATE TABLE kept (number int)")
        for number in range(count):
            session.execute("INSERT INTO kept VALUES (%s)", [number])


def kept(url: str) -> list[int]:
    with closing(connect(url)) as session:
        return [number for (number,) in session.execute("SELECT number FROM kept ORDER BY 1")]


def segment(cluster: Cluster) -> str:
    """Return the number of the System V segment that a running server has."""
    return (cluster.data / "postmaster.pid").read_text().splitlines()[6].split()[1]


def segments() -> set[str]:
    """Return the numbers of those that there are."""
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}


def test_a_confirmed_commit_survives_on_the_promoted_standby(postgresql_cluster: Cluster) -> None:
    standby = postgresql_cluster.standby()
    url = postgresql_cluster.database()
    fill(url, 100)
    postgresql_cluster.kill()
    there = at(url, standby.port)
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        standby.execute("CREATE ROLE early")
    standby.promote()
    # A client may name both servers.
    assert kept(at(url, postgresql_cluster.port, standby.port)) == list(range(100))
    with closing(connect(there)) as session:
        session.execute("INSERT INTO kept VALUES (100)")
    assert kept(there) == list(range(101))


def test_a_commit_waits_for_the_standby(postgresql_cluster: Cluster) -> None:
    standby = postgresql_cluster.standby()
    url = postgresql_cluster.database()
    fill(url, 1)
    standby.pause()
    with closing(connect(url)) as session:
        ask(session, "INSERT INTO kept VALUES (1)")
        assert not answers(session, BRIEFLY)
        standby.resume()
        assert answers(session, PATIENCE)
    assert kept(url) == [0, 1]


def test_a_standby_follows_its_primary_s_new_start(postgresql_cluster: Cluster) -> None:
    standby = postgresql_cluster.standby()
    url = postgresql_cluster.database()
    postgresql_cluster.kill()
    postgresql_cluster.start()
    fill(url, 3)
    standby.promote()
    assert kept(at(url, standby.port)) == [0, 1, 2]


@pytest.mark.parametrize("stop", [*Stop, None])
def test_commits_survive_each_end(postgresql_cluster: Cluster, stop: Stop | None) -> None:
    url = postgresql_cluster.database()
    fill(url, 10)
    if stop is None:
        postgresql_cluster.kill()
    else:
        postgresql_cluster.stop(stop)
    with pytest.raises(psycopg.OperationalError):
        connect(url)
    postgresql_cluster.start()
    assert kept(url) == list(range(10))


def test_a_paused_server_does_not_answer_and_goes_on(postgresql_cluster: Cluster) -> None:
    url = postgresql_cluster.database()
    with closing(connect(url)) as session:
        postgresql_cluster.pause()
        ask(session, "SELECT 1")
        assert not answers(session, BRIEFLY)
        postgresql_cluster.resume()
        assert answers(session, PATIENCE)
    fill(url, 1)


def test_files_are_synced_and_have_checksums(postgresql: Cluster) -> None:
    shown = [postgresql.execute(f"SHOW {name}") for name in ("fsync", "data_checksums")]
    assert shown == [[("on",)], [("on",)]]


def test_two_databases_are_apart(postgresql: Cluster, postgresql_database: str) -> None:
    other = postgresql.database()
    fill(postgresql_database, 2)
    fill(other, 1)
    assert (kept(postgresql_database), kept(other)) == ([0, 1], [0])
    stranger = other.rpartition("/")[0] + "/" + postgresql_database.rpartition("/")[2]
    with pytest.raises(psycopg.OperationalError, match="permission denied"):
        connect(stranger)
    wrong = postgresql_database.replace("@127", "x@127")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        connect(wrong)
    with closing(connect(other)) as session:
        # It is dropped under its users.
        postgresql.drop(other)
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT 1")


def test_a_database_s_owner_has_no_privileges(postgresql_database: str) -> None:
    with closing(connect(postgresql_database)) as session:
        rights = session.execute(
            "SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication FROM pg_roles"
            " WHERE rolname = current_user"
        ).fetchall()
    assert rights == [(False, False, False, False)]


def test_a_cut_network_delivers_a_commit_late(postgresql_database: str) -> None:
    fill(postgresql_database, 1)
    port = int(postgresql_database.rpartition(":")[2].split("/")[0])
    with Proxy(port) as proxy, closing(connect(at(postgresql_database, proxy.port))) as session:
        proxy.cut()
        ask(session, "INSERT INTO kept VALUES (1)")
        assert not answers(session, BRIEFLY)
        assert kept(postgresql_database) == [0]
        proxy.heal()
        assert answers(session, PATIENCE)
    assert kept(postgresql_database) == [0, 1]


@pytest.mark.parametrize("state", ["running", "paused", "killed", "killed, and started again"])
def test_nothing_is_left(state: str) -> None:
    with suppress(InterruptedError), Cluster() as cluster:
        standby = cluster.standby()
        processes = [*cluster.processes(), *standby.processes()]
        shared = {segment(cluster), segment(standby)}
        assert shared <= segments()
        if state == "paused":
            cluster.pause()
            standby.pause()
        elif state != "running":
            cluster.kill()
            standby.kill()
        if "started" in state:
            cluster.start()
            processes += cluster.processes()
            shared.add(segment(cluster))
        raise InterruptedError("the test fails")
    assert len(processes) > 8
    # A zombie has ended, and waits for init to read its status.
    left = [each for each in processes if each.is_running()]
    assert [each for each in left if each.status() != psutil.STATUS_ZOMBIE] == []
    assert [path for path in (cluster.folder, standby.folder) if path.exists()] == []
    assert not shared & segments()
