"""How long duplicate ids are remembered: by count, by age, and as long as their destination."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gateway.broker.core.destinations.purging import purge
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Destination, Queue
from gateway.messaging.provider import Session
from tests.gateway.broker.arrivals.duplicate_ids import Q, bearing, rest
from tests.gateway.broker.stepped_broker import Stepped

DAY = 86_400


def limited(
    folder: Path, count: int = 20_000, total: int = 1_000_000, age: int = DAY, reap_time: int = 0
) -> Stepped:
    return Stepped(
        folder,
        BrokerOptions(
            reap_time=reap_time, duplicate_count=count, duplicate_total=total, duplicate_age=age
        ),
    )


def gone(folder: Path, age: int = DAY, persistent: bool = True) -> Stepped:
    """A broker whose unused queue is gone after a message with the id ``a``."""
    stepped = limited(folder, age=age, reap_time=60)
    stepped.session().send([bearing("a", persistent=persistent)])
    assert rest(stepped) == ["a"]
    stepped.later(100)
    assert stepped.broker.find(Q) is None
    return stepped


def known(stepped: Stepped, ids: Sequence[str], destination: Destination = Q) -> list[str]:
    """Those of these that are remembered there."""
    physical = stepped.broker.create(destination)
    return [id for id in ids if stepped.broker.duplicates.repeats(physical, bearing(id).headers)]


def test_the_last_are_remembered_and_a_few_more(tmp_path: Path) -> None:
    stepped = limited(tmp_path, count=100)
    ids = [str(number) for number in range(1000)]
    session = stepped.session()
    for start in range(0, 1000, 50):
        session.send([bearing(id) for id in ids[start : start + 50]])
        kept = known(stepped, ids)
        assert 100 <= len(kept) <= 106 or start == 0
        assert kept == ids[start + 50 - len(kept) : start + 50]
        stepped.run_reactor()
    stepped.run_until_idle()
    assert [row.id.decode() for row in stepped.disk.duplicates.values()] == known(stepped, ids)
    before = known(stepped, ids)
    stepped.restart()
    assert known(stepped, ids) == before


def test_each_run_of_ids_is_counted_for_itself(tmp_path: Path) -> None:
    stepped = limited(tmp_path, count=10)
    session = stepped.session()
    session.send([bearing("quiet/1"), bearing("plain")])
    stepped.send_each([bearing(f"busy/{number}") for number in range(100)], session)
    stepped.restart()
    assert known(stepped, ["quiet/1", "plain", "busy/89", "busy/90", "busy/99"]) == [
        "quiet/1",
        "plain",
        "busy/90",
        "busy/99",
    ]


def test_runs_of_one_destination_are_bounded(tmp_path: Path) -> None:
    stepped = limited(tmp_path, count=10)
    session = stepped.session()
    ids = [f"{number}/x" for number in range(300)]
    session.send([bearing(id) for id in ids])
    assert (
        known(stepped, ids) == ids[:256] + ids[-10:] or known(stepped, ids) == ids[:256] + ids[-11:]
    )
    assert known(stepped, ids[-10:]) == ids[-10:]


def test_all_destinations_together_remember_so_many(tmp_path: Path) -> None:
    stepped = limited(tmp_path, total=50)
    stepped.send_each(
        [bearing(str(number), destination=Queue(f"q{number % 3}")) for number in range(60)]
    )
    found = [
        number for number in range(60) if known(stepped, [str(number)], Queue(f"q{number % 3}"))
    ]
    assert found == list(range(10, 60))
    assert sorted(int(row.id) for row in stepped.disk.duplicates.values()) == found


def test_none_is_remembered_for_ever(tmp_path: Path) -> None:
    stepped = limited(tmp_path, age=1600)
    session = stepped.session()
    for number in range(20):
        session.send([bearing(str(number))])
        stepped.later(100)
    ids = [str(number) for number in range(20)]
    kept = [int(id) for id in known(stepped, ids)]
    assert kept == list(range(kept[0], 20))
    # The last came 100 seconds ago.
    assert 2 <= kept[0] <= 4
    stepped.restart()
    assert [int(id) for id in known(stepped, ids)] == kept
    stepped.later(1700)
    assert (known(stepped, ids), stepped.broker.duplicates.count) == ([], 0)
    assert not stepped.disk.duplicates


def test_those_forgotten_may_be_sent_again(tmp_path: Path) -> None:
    stepped = limited(tmp_path, age=160)
    stepped.session().send([bearing("a")])
    stepped.later(10, times=21)
    stepped.send([bearing("a")])
    assert rest(stepped) == ["a", "a"]


def test_many_are_forgotten_in_slices(tmp_path: Path) -> None:
    stepped = limited(tmp_path, age=160)
    stepped.session().send([bearing(str(number)) for number in range(3500)])
    stepped.later(10, times=30)
    assert stepped.broker.duplicates.count == 0
    assert not stepped.disk.duplicates


def test_a_purge_forgets_nothing_and_a_destroyed_destination_all(
    stepped: Stepped, session: Session
) -> None:
    stepped.send([bearing("a"), bearing("b")], session)
    purge(stepped.broker.queue(Q), lambda count: None)
    stepped.run_until_idle()
    stepped.send([bearing("a")], session)
    assert stepped.empty
    stepped.remove(stepped.broker.queue(Q))
    assert not stepped.disk.duplicates
    stepped.send([bearing("a")], session)
    assert rest(stepped) == ["a"]
    stepped.restart()
    assert known(stepped, ["a", "b"]) == ["a"]


def test_a_destination_goes_and_its_ids_stay(tmp_path: Path) -> None:
    stepped = gone(tmp_path, age=1600)
    assert stepped.disk.destinations, "its ids need the row"
    for restarted in (False, True):
        if restarted:
            stepped.restart()
            assert stepped.broker.find(Q) is None
        stepped.session().send([bearing("a"), bearing(f"new {restarted}")])
        assert rest(stepped) == [f"new {restarted}"]
        stepped.later(100)
        assert stepped.broker.find(Q) is None
    stepped.later(100, times=20)
    assert not stepped.disk.destinations
    assert not stepped.disk.duplicates
    assert stepped.broker.duplicates.count == stepped.broker.duplicates.octets == 0
    stepped.session().send([bearing("a")])
    assert rest(stepped) == ["a"]


def test_a_destination_that_only_repetitions_came_to_goes(tmp_path: Path) -> None:
    stepped = gone(tmp_path)
    stepped.send([bearing("a")])
    assert stepped.broker.find(Q) is not None
    stepped.later(100)
    assert stepped.broker.find(Q) is None


def test_one_that_goes_with_ids_of_messages_that_are_not_stored_leaves_no_row(
    tmp_path: Path,
) -> None:
    stepped = gone(tmp_path, age=1600, persistent=False)
    stepped.session().send([bearing("a", persistent=False)])
    assert rest(stepped) == []
    assert not stepped.disk.destinations


def test_one_that_comes_again_takes_a_number_of_its_own_after_its_ids_were_forgotten(
    tmp_path: Path,
) -> None:
    stepped = gone(tmp_path, age=1600)
    stepped.later(100, times=19)
    stepped.send([bearing("b")])
    stepped.restart()
    assert rest(stepped) == ["b"]


def test_an_administrator_who_makes_it_again_finds_its_ids(tmp_path: Path) -> None:
    stepped = gone(tmp_path)
    stepped.broker.create(Q)
    stepped.session().send([bearing("b")])
    assert rest(stepped) == ["b"]
    stepped.remove(stepped.broker.queue(Q))
    assert not stepped.disk.destinations
    assert not stepped.disk.duplicates


def test_the_memory_of_all_is_bounded(tmp_path: Path) -> None:
    most = 100_000
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=60, duplicate_octets=most))
    session = stepped.session()
    count = 500
    stepped.send_each(
        [bearing("once", destination=Queue(f"unique.{number}")) for number in range(count)], session
    )
    duplicates = stepped.broker.duplicates
    assert 0 < duplicates.octets <= most
    assert 50 < duplicates.count < 200
    assert known(stepped, ["once"], Queue("unique.0")) == []
    assert known(stepped, ["once"], Queue(f"unique.{count - 1}")) == ["once"]
    stepped.restart()
    assert stepped.broker.duplicates.octets <= most
    assert known(stepped, ["once"], Queue(f"unique.{count - 1}")) == ["once"]


def test_a_lower_bound_at_a_restart_does_not_lose_the_destination_of_a_later_id(
    tmp_path: Path,
) -> None:
    stepped = limited(tmp_path, reap_time=10)
    other = Queue("other")
    session = stepped.session()
    session.send([bearing("a/1")])
    session.send([bearing(f"b/{number}", destination=other) for number in range(600)])
    stepped.send([bearing("a/2")], session)
    rest(stepped)
    rest(stepped, other)
    stepped.later(1, times=20)
    assert stepped.broker.find(Q) is None
    # The first id is forgotten while they are restored, and the destination has none until the last
    # is.
    stepped.options = BrokerOptions(reap_time=10, duplicate_total=300)
    stepped.restart()
    stepped.run_until_idle()
    stepped.restart()
    stepped.run_until_idle()
    stepped.session().send([bearing("a/2")])
    assert rest(stepped) == []
