"""The account of a crash finds each fault that it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.crash.accounting import account, check
from tests.crash.client import Client
from tests.crash.load import MOVED_FROM, MOVED_TO, Group, Id, Load
from tests.gateway_process import GatewayProcess

QUEUE: Final = "/queue/crash.each"
OTHER: Final = "/queue/crash.tx-b"
Found = dict[str, list[Id]]


def ids(*numbers: int) -> list[Id]:
    return [("each", number) for number in numbers]


def history() -> tuple[Load, Found]:
    """What clients were told, and what was there: nothing is wrong.

    Of ten messages one had no RECEIPT, three were acknowledged, of which two with a RECEIPT.
    """
    load = Load(0, 1, 0)
    place = load.place(QUEUE)
    place.offered.update(ids(*range(1, 11)))
    place.promised.update(ids(*range(1, 10)))
    place.taken.update(ids(1, 2, 3))
    place.gone.update(ids(1, 2))
    other = load.place(OTHER)
    both = [(QUEUE, ("group", 1)), (OTHER, ("group", 2))]
    for name, id in both:
        load.place(name).offered.add(id)
        load.place(name).promised.add(id)
    load.groups.append(Group(both, promised=True))
    source, target = load.place(MOVED_FROM), load.place(MOVED_TO)
    source.offered.update(ids(1, 2, 3))
    source.promised.update(ids(1, 2, 3))
    source.taken.update(ids(1, 2))
    source.gone.update(ids(1))
    target.offered.update(ids(1, 2))
    target.promised.update(ids(1))
    assert not other.taken
    return load, {
        QUEUE: [*ids(3, 4, 5, 6), ("group", 1), *ids(7, 8, 9)],
        OTHER: [("group", 2)],
        MOVED_FROM: ids(2, 3),
        MOVED_TO: ids(1),
    }


def unanswered_and_there(load: Load, found: Found) -> None:
    found[QUEUE] += ids(10)


def unanswered_and_taken(load: Load, found: Found) -> None:
    found[QUEUE].remove(("each", 3))


def unanswered_and_moved(load: Load, found: Found) -> None:
    found[MOVED_FROM], found[MOVED_TO] = ids(3), ids(1, 2)


def unanswered_and_rolled_back(load: Load, found: Found) -> None:
    (group,) = load.groups
    group.promised = False
    for name, id in group.members:
        load.places[name].promised.remove(id)
        found[name].remove(id)


@pytest.mark.parametrize(
    "change",
    [
        lambda load, found: None,
        unanswered_and_there,
        unanswered_and_taken,
        unanswered_and_moved,
        unanswered_and_rolled_back,
    ],
)
def test_what_may_be(change: Callable[[Load, Found], None]) -> None:
    load, found = history()
    change(load, found)
    account(load, found)


def lost(load: Load, found: Found) -> None:
    found[QUEUE].remove(("each", 9))


def acknowledged_at_two_owners(load: Load, found: Found) -> None:
    """The first owner confirmed it, and the next one delivered it."""
    found[QUEUE].insert(0, ("each", 2))


def acknowledged_late_at_the_first_owner(load: Load, found: Found) -> None:
    """The RECEIPT of an owner that was taken for dead came after the takeover."""
    load.places[QUEUE].gone.update(ids(3))


def twice(load: Load, found: Found) -> None:
    found[QUEUE] += ids(9)


def out_of_order(load: Load, found: Found) -> None:
    found[QUEUE][:2] = ids(4, 3)


def never_sent(load: Load, found: Found) -> None:
    found[QUEUE] += ids(11)


def half_a_transaction(load: Load, found: Found) -> None:
    load.groups[0].promised = False
    load.places[OTHER].promised.clear()
    found[OTHER].clear()


def a_transaction(load: Load, found: Found) -> None:
    for name, id in load.groups[0].members:
        load.places[name].promised.clear()
        found[name].remove(id)


def moved_and_still_there(load: Load, found: Found) -> None:
    found[MOVED_TO] += ids(2)


def lost_on_its_way(load: Load, found: Found) -> None:
    found[MOVED_FROM] = ids(3)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lost, "1 of 10 are lost"),
        (acknowledged_at_two_owners, "acknowledged with a receipt, and back"),
        (acknowledged_late_at_the_first_owner, "acknowledged with a receipt, and back"),
        (twice, "twice"),
        (out_of_order, "each's 3 stands after its 4"),
        (never_sent, "nobody sent"),
        (half_a_transaction, "half a transaction"),
        (a_transaction, "a committed transaction is lost"),
        (moved_and_still_there, "moved, and still there"),
        (lost_on_its_way, "lost between two queues"),
    ],
)
def test_what_must_not_be(fault: Callable[[Load, Found], None], words: str) -> None:
    load, found = history()
    fault(load, found)
    with pytest.raises(AssertionError, match=words):
        account(load, found)


@pytest.fixture
def load(start_gateway: Callable[..., GatewayProcess]) -> Load:
    """Three messages at a gateway, of which the first is promised."""
    load = Load(start_gateway().port, 1, 0)
    for name in (MOVED_FROM, MOVED_TO):
        load.place(name)
    place = load.place(QUEUE)
    with Client(load.port) as client:
        for id in ids(1, 2, 3):
            client.store(QUEUE, load.body(id))
            place.offered.add(id)
    place.promised.update(ids(1))
    return load


def test_each_message_at_a_gateway_is_looked_at(load: Load) -> None:
    assert check(load, load.port) == 3
    with pytest.raises(AssertionError, match="1 of 1 are lost"):
        check(load, load.port)


def test_a_message_of_an_earlier_epoch_is_found(load: Load) -> None:
    load.epoch = 2
    with pytest.raises(AssertionError, match="of epoch 1 is back in epoch 2"):
        check(load, load.port)
