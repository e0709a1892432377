"""Decision logs in a database: its faults, owners, and earlier files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.threads import deferToThread
from twisted.logger import formatEvent

from bridge.xa.coordinator import Committed, Coordinator, Recovered
from bridge.xa.decision_log import Removed
from bridge.xa.errors import LogDamaged, LogFailed, NotWritten
from bridge.xa.log.opening import TransactionProperties, open_file
from gateway.broker.store.interface import StoreFailed
from gateway.instance.layout import Layout
from gateway.transaction_log import IN_DATABASE, DatabaseLog
from tests.bridge.xa.resource_managers import Session
from tests.bridge.xa.test_opening import World
from tests.contract.waiting import until as until_so
from tests.crash.waiting import until
from tests.faults.proxy import Fault, Proxy, Toward, Trigger
from tests.gateway.broker.store.databases import looking
from tests.gateway.broker.store.processes import FullDisk
from tests.gateway.decision_logs import BRIDGE, InDatabase, decision_log, entry
from tests.postgresql import Cluster, Stop, at

if TYPE_CHECKING:
    from gateway.broker.store.postgresql.decisions import DecisionRows

pytestmark = pytest.mark.process

ANSWER_SECONDS = 1.0


@pytest.fixture
def in_database(postgresql_database: str) -> InDatabase:
    return InDatabase(postgresql_database).create()


def entries(place: InDatabase) -> Sequence[Any]:
    file = place.open()
    file.close()
    return file.entries()


@pytest_twisted.ensureDeferred
async def test_what_comes_in_one_turn_is_one_transaction(in_database: InDatabase) -> None:
    log = decision_log(reactor, in_database.open())
    await DeferredList([log.write(entry(number)) for number in range(100)], fireOnOneErrback=True)
    # The header, the first, which does not wait for the others, and the others.
    assert in_database.ask("SELECT count(*) FROM CURRENT") == [(3,)]
    await log.close()


# --- the database goes away


@pytest_twisted.ensureDeferred
async def test_decisions_wait_while_the_server_is_dead(postgresql_cluster: Cluster) -> None:
    place = InDatabase(postgresql_cluster.database()).create()
    rows = place.rows()
    log = decision_log(reactor, place.open(size=2_000, rows=rows))
    for number in range(0, 12, 4):
        await log.write(entry(number))
        postgresql_cluster.kill()
        writes = [log.write(entry(number + more)) for more in (1, 2, 3)]
        log.note(Removed(entry(number).gtrid))
        # It has been tried. Once the server is ready they may be written before this test knows.
        await until_so(lambda: rows._session is None)
        assert not [write for write in writes if write.called]
        await deferToThread(postgresql_cluster.start)
        await DeferredList(writes, fireOnOneErrback=True)
    await log.close()
    assert entries(place) == tuple(entry(number) for number in range(12) if number % 4)


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.SILENCE])
@pytest.mark.parametrize(
    ("words", "nth"), [(rb"INSERT 0 1\0", 3), (rb"INSERT 0 1\0", 9), (rb"COMMIT\0", 2)]
)
def test_a_write_whose_answer_is_lost_is_looked_up(
    words: bytes, nth: int, fault: Fault, postgresql: Cluster, in_database: InDatabase
) -> None:
    with Proxy(postgresql.port) as proxy:
        url = at(in_database.argument, proxy.port)
        file = InDatabase(url, answer_seconds=ANSWER_SECONDS).open(size=1_500)
        lost = proxy.when(Trigger(Toward.CLIENT, words, fault, nth=nth, after=False))
        for number in range(30):
            file.write([entry(number)], sync=True)
            file.write([Removed(entry(number - 2).gtrid)], sync=False)
        assert lost.fired.is_set()
        file.close()
    # A reading that finds octets twice, or not at all, refuses them.
    assert entries(in_database) == (entry(28), entry(29))


@pytest.mark.parametrize("nth", [1, 2, 5, 14])
def test_a_write_that_is_lost_on_its_way_is_made_again(
    nth: int, postgresql: Cluster, in_database: InDatabase
) -> None:
    with Proxy(postgresql.port) as proxy:
        file = InDatabase(at(in_database.argument, proxy.port)).open(size=1_500)
        lost = proxy.when(Trigger(Toward.SERVER, rb"B\0\0\0", Fault.DROP, nth=nth, after=False))
        for number in range(20):
            file.write([entry(number)], sync=True)
            file.write([Removed(entry(number - 2).gtrid)], sync=False)
        assert lost.fired.is_set()
        file.close()
    assert entries(in_database) == (entry(18), entry(19))


@pytest_twisted.ensureDeferred
async def test_a_server_that_stays_away_is_a_failure(postgresql_cluster: Cluster) -> None:
    place = InDatabase(postgresql_cluster.database(), reconnect_seconds=1.0).create()
    log = decision_log(reactor, place.open())
    await log.write(entry(1))
    postgresql_cluster.kill()
    with pytest.raises(LogFailed, match="could not be reached for") as caught:
        await log.write(entry(2))
    assert not isinstance(caught.value, NotWritten)
    assert log.failed is not None
    with pytest.raises(NotWritten):
        await log.write(entry(3))
    await log.close()
    postgresql_cluster.start()
    assert entries(place) == (entry(1),)


@pytest_twisted.ensureDeferred
async def test_closing_does_not_wait_for_long(
    postgresql_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gateway.broker.store.postgresql import decisions

    monkeypatch.setattr(decisions, "_CLOSING_SECONDS", 0.5)
    place = InDatabase(postgresql_cluster.database(), reconnect_seconds=3600.0).create()
    log = decision_log(reactor, place.open())
    postgresql_cluster.kill()
    writing = log.write(entry(1))
    await log.close()
    with pytest.raises(LogFailed, match="could not be reached"):
        await writing


def test_a_database_that_cannot_be_reached_has_no_log_opened(
    postgresql_cluster: Cluster,
) -> None:
    place = InDatabase(postgresql_cluster.database()).create()
    rows = place.rows()
    postgresql_cluster.kill()
    with pytest.raises(LogFailed, match="cannot be opened"):
        place.open(rows=rows)


def test_a_full_disk_is_told_and_nothing_is_written(postgresql_cluster: Cluster) -> None:
    url = postgresql_cluster.database()
    disk = FullDisk(postgresql_cluster)
    place = InDatabase(url).create()
    file = place.open(size=100_000_000)
    file.write([entry(1)], sync=True)
    disk.fill()
    refused = 0
    for number in range(10, 4000):
        try:
            file.write([entry(number)] * 40, sync=True)
        except NotWritten:
            refused = number
            break
    assert refused
    assert file.failed is None
    disk.make_room()
    file.write([entry(2)], sync=True)
    file.close()
    assert entries(place) == (entry(1), *map(entry, range(10, refused)), entry(2))


@pytest_twisted.ensureDeferred
async def test_a_decision_is_durable_when_the_standby_has_it(postgresql_cluster: Cluster) -> None:
    """The session that waited for the standby is given up, and ended."""
    url = postgresql_cluster.database()
    InDatabase(url).create()
    standby = await deferToThread(postgresql_cluster.standby)
    both = InDatabase(at(url, postgresql_cluster.port, standby.port), answer_seconds=ANSWER_SECONDS)
    log = decision_log(reactor, both.open())
    await log.write(entry(1))
    standby.stop(Stop.IMMEDIATE)
    writing = log.write(entry(2))
    with looking(both.database) as session:

        def writers(waiting: str) -> set[int]:
            found = session.execute(
                "SELECT pid FROM pg_stat_activity, owner WHERE application_name = owner.session "
                f"AND {waiting}"
            )
            return {pid for (pid,) in found.fetchall()}

        def another_waits() -> None:
            until(lambda: writers("wait_event = 'SyncRep'"), "no commit waits for the standby")
            first = writers("true")
            until(lambda: not first & writers("true"), "the session is not given up")
            # What it had asked is there, on this machine only.
            until(
                lambda: session.execute("SELECT count(*) FROM decision_1_0").fetchall() == [(3,)],
                "the lost commit is not seen",
            )
            until(lambda: writers("wait_event = 'SyncRep'") or writing.called, "no other one waits")

        await deferToThread(another_waits)
    assert not writing.called
    postgresql_cluster.kill()
    await deferToThread(standby.start)
    await deferToThread(standby.promote)
    await writing
    await log.close()
    assert entries(both) == (entry(1), entry(2))


# --- another owner


def test_an_owner_that_was_replaced_writes_nothing(in_database: InDatabase) -> None:
    file = in_database.open()
    file.write([entry(1)], sync=True)
    in_database.owned()
    with pytest.raises(LogFailed, match="another process owns this broker") as caught:
        file.write([entry(2)], sync=True)
    assert not isinstance(caught.value, NotWritten)
    with pytest.raises(NotWritten):
        file.write([entry(3)], sync=True)
    file.close()
    assert entries(in_database) == (entry(1),)


def test_an_owner_that_was_replaced_replaces_nothing(in_database: InDatabase) -> None:
    former, latter = in_database.rows(), in_database.rows()
    for _ in range(2):
        with pytest.raises(StoreFailed, match="another process owns this broker"):
            former.replace(b"former")
        assert latter.read() is None
    latter.replace(b"latter")
    with pytest.raises(StoreFailed):
        former.replace(b"former")
    assert latter.read() == b"latter"
    former.close()
    latter.close()


def test_nothing_waits_for_who_reads_the_tables(in_database: InDatabase) -> None:
    file = in_database.open(size=10_000)
    file.write([entry(0)], sync=True)
    reading = in_database.database.connect("a backup")
    with reading.transaction():
        reading.execute("LOCK TABLE decision_1_0, decision_1_1 IN ACCESS SHARE MODE")
        for number in range(1, 300):
            file.write([entry(number), Removed(entry(number - 1).gtrid)], sync=True)
        held = in_database.octets()
    reading.close()
    for number in range(300, 600):
        file.write([entry(number), Removed(entry(number - 1).gtrid)], sync=True)
    assert in_database.octets() < held
    file.close()
    assert entries(in_database) == (entry(599),)


def test_octets_that_are_missing_are_damage(in_database: InDatabase) -> None:
    file = in_database.open()
    for number in range(3):
        file.write([entry(number)], sync=True)
    file.close()
    in_database.ask(
        "DELETE FROM CURRENT WHERE at = (SELECT min(at) FROM CURRENT WHERE at > 0) RETURNING 1"
    )
    for _ in range(2):
        with pytest.raises(LogFailed, match="lacks octets"):
            in_database.open()


def test_a_log_that_is_written_anew_leaves_nothing(in_database: InDatabase) -> None:
    """Another session holds a snapshot, so that dead rows stay."""
    rows = in_database.rows()
    rows.replace(b"0")
    other = in_database.database.connect("a report")
    with other.transaction():
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 1 FROM meta")
        for number in range(1, 400):
            rows.replace(b"%d" % number)
        size = in_database.ask("SELECT pg_relation_size('decision_log')")
    other.close()
    rows.close()
    assert size == [(8192,)]
    again = in_database.rows()
    assert again.read() == b"399"
    again.close()


# --- coordinators


class Machine:
    """One that owns the broker from now on. :param folder: of its instance."""

    def __init__(self, place: InDatabase, folder: Path, world: World) -> None:
        self.layout = Layout(folder, "here")
        owner = place.owned()
        #: What was made, so that no garbage collection ends a session.
        self.made: list[DecisionRows] = []

        def rows() -> DecisionRows:
            self.made.append(place.rows(owner))
            return self.made[-1]

        self.log = DatabaseLog(rows, self.layout, "shared", BRIDGE)
        self._world = world

    @property
    def file(self) -> Path:
        return self.layout.transaction_log(BRIDGE)

    def exists(self) -> Deferred[bool]:
        return self.log.exists(reactor)

    def opened(self) -> Deferred[Coordinator]:
        return self.log.open(reactor, TransactionProperties(), self._world.log, os.urandom)


@pytest_twisted.ensureDeferred
async def test_another_machine_completes_what_was_decided(
    in_database: InDatabase, tmp_path: Path
) -> None:
    world = World(messages=3)
    first = Machine(in_database, tmp_path / "first", world)
    assert not await first.exists()
    coordinator = await first.opened()
    assert coordinator.name == f"shared:{BRIDGE}"
    assert await first.exists()
    await world.left_waiting(coordinator)
    await world.left_undecided(coordinator)

    second = Machine(in_database, tmp_path / "second", world)
    assert await second.exists()
    again = await second.opened()
    assert [one.state for one in again.transactions()] == ["WAITING"]
    assert await again.recover("target", "rm:b", Session(world.b)) == Recovered(committed=1)
    # Of its own log it knows what was not decided. The note of the other may not have been written.
    assert (await again.recover("source", "rm:a", Session(world.a))).rolled_back == 1
    assert (world.b.messages, world.a.prepared, world.b.prepared) == ([1], {}, {})
    assert await world.moved(again) == Committed()
    assert not [text for text in world.told() if "another machine" in str(text)]
    # The one that was replaced decides nothing.
    world.a.messages.append(9)
    with pytest.raises(LogFailed):
        await world.moved(coordinator)
    await coordinator.close()
    await again.close()
    assert not list(tmp_path.rglob("txlog*"))


@pytest_twisted.ensureDeferred
async def test_the_log_of_a_file_goes_on_in_the_database(
    in_database: InDatabase, tmp_path: Path
) -> None:
    world = World(messages=3)
    machine = Machine(in_database, tmp_path, world)
    before = world.opened(machine.file.parent)
    await world.left_waiting(before)
    await world.left_undecided(before)
    await before.close()
    assert await machine.exists()
    kept = machine.file.read_bytes()

    coordinator = await machine.opened()
    assert not machine.file.exists()
    aside = machine.file.with_name(f"{machine.file.name}{IN_DATABASE}")
    assert aside.exists()
    assert [one.state for one in coordinator.transactions()] == ["WAITING"]
    assert await coordinator.recover("target", "rm:b", Session(world.b)) == Recovered(committed=1)
    assert await coordinator.recover("source", "rm:a", Session(world.a)) == Recovered(rolled_back=1)
    await coordinator.close()

    # As a crash leaves it before the file is renamed.
    shutil.copy(aside, machine.file)
    again = await machine.opened()
    assert again.transactions() == []
    assert not machine.file.exists()
    await again.close()

    # One of a later time at the other store is not forgotten.
    machine.file.write_bytes(kept)
    later = open_file(
        machine.file.parent, BRIDGE, "here:bridge", TransactionProperties(), os.urandom
    )
    later.write([entry(1)], sync=True)
    later.close()
    with pytest.raises(LogFailed, match="a log of its own"):
        await machine.opened()
    assert machine.file.exists()


@pytest_twisted.ensureDeferred
async def test_a_damaged_file_is_not_taken_over(in_database: InDatabase, tmp_path: Path) -> None:
    world = World()
    machine = Machine(in_database, tmp_path, world)
    machine.file.parent.mkdir(parents=True)
    machine.file.write_bytes(b"something else")
    with pytest.raises(LogDamaged):
        await machine.opened()
    assert machine.file.read_bytes() == b"something else"
    assert not machine.log.rows().exists()


@pytest_twisted.ensureDeferred
async def test_a_log_in_another_database_may_be_a_copy(
    in_database: InDatabase, tmp_path: Path, postgresql: Cluster
) -> None:
    world = World()
    machine = Machine(in_database, tmp_path, world)
    coordinator = await machine.opened()
    await world.left_undecided(coordinator)
    await coordinator.close()
    elsewhere = InDatabase(postgresql.database()).create()
    octets = in_database.rows().read()
    assert octets is not None
    rows = elsewhere.rows()
    rows.replace(octets)
    rows.close()
    copy = await Machine(elsewhere, tmp_path / "copy", world).opened()
    assert "as the original may be in use there" in str([formatEvent(e) for e in world.events])
    await copy.recover("source", "rm:a", Session(world.a))
    assert len(world.a.prepared) == 1
    await copy.close()
    postgresql.drop(elsewhere.argument)


# --- while the database does not answer


@pytest_twisted.ensureDeferred
async def test_opening_a_log_does_not_hold_up_the_reactor(
    postgresql: Cluster, in_database: InDatabase, tmp_path: Path
) -> None:
    with Proxy(postgresql.port) as proxy:
        through = InDatabase(at(in_database.argument, proxy.port), answer_seconds=ANSWER_SECONDS)
        machine = Machine(through, tmp_path, World())
        silent = proxy.when(Trigger(Toward.SERVER, rb"decision_log", Fault.SILENCE, after=False))
        for begin in (machine.exists, machine.opened):
            asked = begin()
            assert not asked.called
            # It answers others meanwhile.
            await deferToThread(silent.fired.wait, 10.0)
            assert not asked.called
            with pytest.raises(LogFailed, match="no answer for 1 seconds"):
                await asked
            silent = proxy.when(
                Trigger(Toward.SERVER, rb"decision_log", Fault.SILENCE, after=False)
            )


@pytest_twisted.ensureDeferred
async def test_a_log_that_is_opened_for_none_is_closed(
    in_database: InDatabase, tmp_path: Path
) -> None:
    machine = Machine(in_database, tmp_path, World())
    opening = machine.opened()
    opening.cancel()
    with pytest.raises(CancelledError):
        await opening
    with looking(in_database.database) as session:

        def sessions() -> int:
            found: int = session.execute(
                "SELECT count(*) FROM pg_stat_activity, owner WHERE application_name = owner.session"
            ).fetchall()[0][0]
            return found

        await deferToThread(
            until,
            lambda: (
                session.execute("SELECT turn FROM decision_log").fetchall() == [(0,)]
                and not sessions()
            ),
            "the log was not opened and closed",
        )
