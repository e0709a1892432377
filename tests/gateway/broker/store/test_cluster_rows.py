"""The table of bridges' owners: who may change it, and what moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from gateway.broker.store.interface import StoreError, StoreFailed
from gateway.broker.store.postgresql import administration, decision_tables, ownership
from gateway.broker.store.postgresql.cluster import ClusterRows
from gateway.broker.store.postgresql.connecting import Database
from gateway.broker.store.postgresql.decisions import DecisionRows, OwnerIdentity
from tests.crash.client import PATIENCE
from tests.crash.waiting import until
from tests.gateway.broker.store.databases import create_tables, database_at, looking
from tests.postgresql import Cluster

pytestmark = pytest.mark.process

BRIDGE = "over"


class Broker:
    """A broker of the cluster that a session owns."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self.database = replace(
            database_at(url, cluster="mqcluster_test"), schema=f"mqc_test_{name}"
        )
        create_tables(self.database)
        self.own()

    def own(self) -> None:
        self._session = self.database.connect(f"owner {self.name}")
        epoch = ownership.take(self.database, self._session, self.name, f"owner {self.name}", 5.0)
        self.owner = OwnerIdentity(self.database, epoch, f"owner {self.name}")
        self.cluster = ClusterRows(self.owner, self.name, "test")

    def log(self) -> DecisionRows:
        return DecisionRows(self.owner, BRIDGE, 0.0)

    def die(self) -> None:
        self.close()
        self._session.close()

    def close(self) -> None:
        self.cluster.close()


@pytest.fixture
def broker(postgresql_database: str) -> Iterator[Callable[[str], Broker]]:
    made: list[Broker] = []

    def make(name: str) -> Broker:
        made.append(Broker(postgresql_database, name))
        return made[-1]

    yield make
    for each in made:
        each.die()


def owners(broker: Broker) -> dict[str, str]:
    return {name: owned.broker for name, owned in broker.cluster.look().bridges.items()}


def tables_of_logs(database: Database) -> int:
    with looking(database) as session:
        rows = session.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema AND tablename LIKE 'decision\\__%%' "
            "AND tablename <> 'decision_log'",
            (),
        ).fetchall()
    count: int = rows[0][0]
    return count


def test_the_first_that_lists_a_bridge_owns_it(broker: Callable[[str], Broker]) -> None:
    east, west = broker("east"), broker("west")
    east.cluster.enter({"a": "1"}, ["one"])
    view = west.cluster.enter({"a": "2"}, ["one", "two"])
    assert {name: owned.broker for name, owned in view.bridges.items()} == {
        "one": "east",
        "two": "west",
    }
    [other] = view.brokers.values()
    assert (other.id, other.owned, other.settings) == ("east", True, {"a": "1"})
    # Again, as after a restart: nothing changes hands.
    east.cluster.enter({}, ["two"])
    assert owners(east) == {"one": "east", "two": "west"}


def test_a_bridge_takes_its_log_along(broker: Callable[[str], Broker]) -> None:
    east, west = broker("east"), broker("west")
    east.cluster.enter({}, [BRIDGE])
    west.cluster.enter({}, [])
    log = east.log()
    log.replace(b"header ")
    log.append(b"decision")
    place = log.place()
    # West has an older one of that name, such as of a copy.
    with looking(west.database) as session, session.transaction():
        decision_tables.put(session, decision_tables.StoredLog(BRIDGE, [(0, b"stale")]))
    log.close()
    east.cluster.give(BRIDGE, "west", "STARTED")
    assert owners(west) == {BRIDGE: "west"}
    assert west.cluster.look().bridges[BRIDGE].wanted == "STARTED"
    moved = west.log()
    assert (moved.read(), moved.place()) == (b"header decision", place)
    moved.append(b" more")
    assert (tables_of_logs(east.database), tables_of_logs(west.database)) == (0, 2)
    # And the former owner can decide no more.
    with pytest.raises(StoreFailed):
        log.append(b"too late")
    moved.close()


def test_only_its_owner_gives_a_bridge_away(broker: Callable[[str], Broker]) -> None:
    east, west = broker("east"), broker("west")
    east.cluster.enter({}, [BRIDGE])
    west.cluster.enter({}, [])
    with pytest.raises(StoreError, match="broker east owns bridge over"):
        west.cluster.give(BRIDGE, "west", "")
    with pytest.raises(StoreError, match="there is no broker north in cluster test"):
        east.cluster.give(BRIDGE, "north", "")
    with pytest.raises(StoreError, match="there is no bridge other in cluster test"):
        east.cluster.give("other", "west", "")
    assert owners(east) == {BRIDGE: "east"}


def test_one_that_is_no_longer_the_owner_changes_nothing(broker: Callable[[str], Broker]) -> None:
    east, west = broker("east"), broker("west")
    east.cluster.enter({}, [BRIDGE])
    west.cluster.enter({}, [])
    with looking(east.database) as session:
        session.execute("UPDATE owner SET epoch = epoch + 1")
    for change in (
        lambda: east.cluster.give(BRIDGE, "west", ""),
        lambda: east.cluster.told(BRIDGE, "STARTED", ""),
        lambda: east.cluster.describe(BRIDGE, {}, 0),
        lambda: east.cluster.enter({}, ["more"]),
    ):
        with pytest.raises(StoreFailed, match="is over"):
            change()
    assert owners(west) == {BRIDGE: "east"}


def test_a_bridge_is_taken_from_a_dead_broker_only(broker: Callable[[str], Broker]) -> None:
    east, west = broker("east"), broker("west")
    east.cluster.enter({}, [BRIDGE])
    west.cluster.enter({}, [])
    log = east.log()
    log.replace(b"decisions")
    seen = west.cluster.look().brokers["east"]
    log.close()
    with looking(east.database) as session:
        session.execute("INSERT INTO commits_0 SELECT epoch, 1, clock_timestamp() FROM owner")
    # It has given a sign of life since.
    assert not west.cluster.take(BRIDGE, seen)
    assert owners(west) == {BRIDGE: "east"}
    # It holds its lock, and hangs: its sessions are ended.
    assert west.cluster.take(BRIDGE, west.cluster.look().brokers["east"])
    assert owners(west) == {BRIDGE: "west"}
    moved = west.log()
    assert moved.read() == b"decisions"
    moved.close()
    # It comes back, is the owner of its broker still, and has no bridge.
    east.own()
    assert owners(east) == {BRIDGE: "west"}
    assert east.log().read() is None


def test_a_decision_that_is_being_written_goes_along(broker: Callable[[str], Broker]) -> None:
    east, west = broker("east"), broker("west")
    east.cluster.enter({}, [BRIDGE])
    west.cluster.enter({}, [])
    log = east.log()
    log.replace(b"header ")
    log.close()
    seen = west.cluster.look().brokers["east"]
    with ThreadPoolExecutor() as pool, looking(east.database) as late:
        # East comes back to life, over a session that west has not ended.
        with late.transaction():
            late.execute("SELECT prove(%b)", (east.owner.epoch,))
            [(id, turn)] = late.execute("SELECT id, turn FROM decision_log").fetchall()
            late.execute(
                f"INSERT INTO {decision_tables.name(id, turn)} VALUES (%b, 7, %b)",
                (turn, b"decision"),
            )
            taking = pool.submit(west.cluster.take, BRIDGE, seen)
            until(lambda: waiting(west.database), "nothing waits")
        assert taking.result(PATIENCE)
    moved = west.log()
    assert moved.read() == b"header decision"
    moved.close()


def waiting(database: Database) -> bool:
    """Whether a session waits for a lock on a table."""
    with looking(database) as session:
        return bool(
            session.execute(
                "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'relation'"
            ).fetchall()
        )


def test_one_that_is_not_its_owner_makes_no_log(broker: Callable[[str], Broker]) -> None:
    east, west = broker("east"), broker("west")
    east.cluster.enter({}, [BRIDGE])
    west.cluster.enter({}, [])
    log = east.log()
    assert log.read() is None
    east.cluster.give(BRIDGE, "west", "STARTED")
    with pytest.raises(StoreFailed, match="broker west owns bridge over"):
        log.replace(b"header")
    log.close()
    assert tables_of_logs(east.database) == 0
    own = west.log()
    own.replace(b"header")
    own.close()


def test_a_session_that_ended_by_itself_is_gone(broker: Callable[[str], Broker]) -> None:
    east = broker("east")
    gone = east.database.connect("gone")
    listed = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'gone'"
    with looking(east.database) as session, session.transaction():
        # What a transaction has seen of sessions it sees again.
        assert session.execute(listed).fetchall()
        gone.close()

        def is_listed() -> bool:
            with looking(east.database) as other:
                return bool(other.execute(listed).fetchall())

        until(lambda: not is_listed(), "it is there")
        ownership.end(session, "gone")


def test_others_are_asked_to_read_their_configurations_again(
    broker: Callable[[str], Broker],
) -> None:
    east, west = broker("east"), broker("west")
    east.cluster.enter({}, [BRIDGE])
    west.cluster.enter({}, [])
    west.cluster.describe(BRIDGE, {"link": "a\0b"}, 0)
    [described] = east.cluster.descriptions(BRIDGE)
    assert (described.broker, described.values, described.reading) == ("west", {"link": "a�b"}, 0)
    number = east.cluster.call_to_read()
    assert west.cluster.look().reading == number == 1
    west.cluster.describe(BRIDGE, {"link": "b"}, number)
    assert east.cluster.descriptions(BRIDGE)[0].reading == number
    # What a broker without an owner has configured does not count.
    west.die()
    until(lambda: not east.cluster.descriptions(BRIDGE), "it counts for ever")
    west.own()


def test_tables_of_another_version_are_refused(
    postgresql_database: str, broker: Callable[[str], Broker]
) -> None:
    east = broker("east")
    east.cluster.enter({}, [])
    with looking(east.database) as session:
        session.execute("UPDATE mqcluster_test.meta SET value = '2'")
    east.close()
    fresh = ClusterRows(east.owner, "east", "test")
    with pytest.raises(StoreError, match="version 2"):
        fresh.look()
    fresh.close()


def test_a_session_that_was_lost_meanwhile_is_made_again(broker: Callable[[str], Broker]) -> None:
    east = broker("east")
    east.cluster.enter({}, [BRIDGE])
    for act in (east.cluster.look, lambda: east.cluster.told(BRIDGE, "STARTED", "")):
        with looking(east.database) as session:
            session.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'owner east'"
            )
        act()
    assert east.cluster.look().bridges[BRIDGE].state == "STARTED"


def test_a_user_that_may_make_no_schema_is_told(
    postgresql: Cluster, postgresql_database: str, broker: Callable[[str], Broker]
) -> None:
    east = broker("east")
    name = urlsplit(postgresql_database).path[1:]
    postgresql.execute(f"ALTER DATABASE {name} OWNER TO CURRENT_USER")
    postgresql.execute(f"GRANT CONNECT ON DATABASE {name} TO {name}")
    with pytest.raises(
        StoreFailed, match="schema mqcluster_test, is missing, and this user may not"
    ):
        east.cluster.enter({}, [])


# --- what an operator removes, and what stays


def orders_of(broker: Broker) -> dict[str, str]:
    with looking(broker.database) as session:
        rows = session.execute("SELECT bridge, orders FROM bridge_orders", binary=True).fetchall()
    return {name.decode(): text for name, text in rows}


def give_orders(broker: Broker, text: str) -> None:
    with looking(broker.database) as session:
        session.execute("INSERT INTO bridge_orders VALUES (%b, %b)", (BRIDGE.encode(), text))


def test_a_bridge_takes_its_operators_orders_along(broker: Callable[[str], Broker]) -> None:
    east, west = broker("east"), broker("west")
    east.cluster.enter({}, [BRIDGE])
    west.cluster.enter({}, [])
    give_orders(east, '{"a": "PAUSED"}')
    give_orders(west, '{"a": "STOPPED"}')
    east.cluster.give(BRIDGE, "west", "")
    assert orders_of(west) == {BRIDGE: '{"a": "PAUSED"}'}
    assert orders_of(east) == {}


def test_a_bridge_that_is_removed_is_free(broker: Callable[[str], Broker]) -> None:
    east, west = broker("east"), broker("west")
    east.cluster.enter({}, [BRIDGE, "stays"])
    west.cluster.enter({}, ["others"])
    give_orders(east, '{"a": "PAUSED"}')
    log = east.log()
    log.replace(b"over")
    log.close()
    east.die()
    with administration.held(east.database) as held:
        assert held.bridges() == [BRIDGE, "stays"]
        held.remove_bridge(BRIDGE)
        # It is another broker's.
        held.remove_bridge("others")
    assert orders_of(east) == {}
    assert tables_of_logs(east.database) == 0
    assert owners(west) == {"stays": "east", "others": "west"}
    assert west.cluster.enter({}, [BRIDGE]).bridges[BRIDGE].broker == "west"


def test_a_broker_that_is_deleted_leaves_the_cluster(broker: Callable[[str], Broker]) -> None:
    east, west = broker("east"), broker("west")
    east.cluster.enter({}, [BRIDGE])
    east.cluster.describe(BRIDGE, {}, 0)
    west.cluster.enter({}, ["others"])
    east.die()
    with administration.held(east.database) as held:
        held.delete()
    view = west.cluster.look()
    assert (set(view.bridges), set(view.brokers)) == ({"others"}, set())


def test_orders_outlive_tables_that_are_made_anew(broker: Callable[[str], Broker]) -> None:
    east = broker("east")
    east.cluster.enter({}, [BRIDGE])
    give_orders(east, '{"a": "PAUSED"}')
    east.die()
    with administration.held(east.database) as held:
        held.recreate()
    assert orders_of(east) == {BRIDGE: '{"a": "PAUSED"}'}
    east.own()
    assert owners(east) == {BRIDGE: "east"}
