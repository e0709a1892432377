"""After a crash: every message of an epoch is accounted for.

Owns the questions that are asked of a gateway over what a crash left, and leaves its queues empty,
so that the next epoch can tell what came back from the dead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.crash.client import Client
from tests.crash.load import DURABLE, MOVED_FROM, MOVED_TO, TOPIC, Id, Load, Place

_SENTINEL = b"sentinel"
#: Messages acknowledged together, below what a consumer is given without acknowledging.
_BLOCK = 200


def check(load: Load, port: int) -> int:
    """Empty every place of the load, and account for what was there.

    :returns: how many messages were there.
    :raises AssertionError: one is lost, came back, is doubled, out of order, or half a
        transaction's.
    """
    found = {name: _drain(load, port, name) for name in load.places}
    account(load, found)
    return sum(len(ids) for ids in found.values())


def account(load: Load, found: Mapping[str, Sequence[Id]]) -> None:
    """Compare what was in each place with what clients were told.

    :param found: the ids in each place, in their order.
    :raises AssertionError: as :func:`check`.
    """
    for name, place in load.places.items():
        ids = list(dict.fromkeys(found[name])) if load.repeats else found[name]
        _account(place, ids, not load.elsewhere)
    _account_transactions(load, found)
    if not load.plain:
        _account_moves(load.places[MOVED_FROM], found[MOVED_FROM], found[MOVED_TO])


def _drain(load: Load, port: int, name: str) -> list[Id]:
    """Everything in a place, in order, consumed for good: the RECEIPTs of the acknowledgements are
    waited for.
    """
    durable = name == TOPIC
    ids: list[Id] = []
    with Client(port, headers=DURABLE if durable else None) as client:
        subscribe = {"destination": name, "id": "drain", "ack": "client"}
        if durable:
            subscribe["durable-subscriber-name"] = "crash"
        early = client.ask("SUBSCRIBE", subscribe)
        early += client.store(name, _SENTINEL)
        early.reverse()
        unacknowledged = 0
        while True:
            try:
                frame = early.pop() if early else client.message()
            except TimeoutError:
                raise AssertionError(
                    f"{name}: after {len(ids)} messages, {ids[-1:]} the last, no more came"
                ) from None
            unacknowledged += 1
            if frame.body == _SENTINEL:
                behind = [*reversed(early), *client.ask("ACK", {"id": frame.headers["ack"]})]
                behind += client.ask("DISCONNECT", {})
                assert not behind, f"{name}: after all others came {behind[0].body[:40]!r}"
                return ids
            if unacknowledged == _BLOCK:
                unacknowledged = 0
                early = [*reversed(client.ask("ACK", {"id": frame.headers["ack"]})), *early]
            epoch, producer, number = frame.body.split(b" ")[:3]
            assert int(epoch) == load.epoch, (
                f"{name}: a message of epoch {int(epoch)} is back in epoch {load.epoch}: {frame.headers}"
            )
            ids.append((producer.decode(), int(number)))


def _account(place: Place, found: Sequence[Id], ordered: bool) -> None:
    there = set(found)
    name = place.name
    assert len(there) == len(found), (
        f"{name}: twice: {sorted(id for id in there if found.count(id) > 1)[:10]}"
    )
    assert not there - place.offered, (
        f"{name}: nobody sent {sorted(there - place.offered)[:10]}, or it was not to be kept"
    )
    lost = place.wanted - there
    assert not lost, (
        f"{name}: {len(lost)} of {len(place.promised)} are lost, such as {sorted(lost)[:10]}"
    )
    back = place.gone & there
    assert not back, f"{name}: acknowledged with a receipt, and back: {sorted(back)[:10]}"
    last: dict[str, int] = {}
    for producer, number in found:
        assert not ordered or number > last.get(producer, 0), (
            f"{name}: {producer}'s {number} stands after its {last[producer]}"
        )
        last[producer] = number


def _account_transactions(load: Load, found: Mapping[str, Sequence[Id]]) -> None:
    there = {(name, id) for name, ids in found.items() for id in ids}
    for group in load.groups:
        present = [member for member in group.members if member in there]
        assert present in ([], group.members), (
            f"half a transaction: of {group.members} there is {present}"
        )
        assert present or not group.promised, f"a committed transaction is lost: {group.members}"


def _account_moves(source: Place, left: Sequence[Id], moved: Sequence[Id]) -> None:
    both = set(left) & set(moved)
    assert not both, f"moved, and still there: {sorted(both)[:10]}"
    neither = source.promised - set(left) - set(moved)
    assert not neither, f"lost between two queues: {sorted(neither)[:10]}"
