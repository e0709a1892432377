"""How a message that is refused is found among others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.once.poison import MOST, Poison
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Queue
from gateway.messaging.message import Headers, Message


def messages(count: int) -> list[Message]:
    return [Message(Headers(Queue("source")), b"", message_id=f"ID-{number}") for number in range(count)]


@given(st.integers(1, 60), st.integers(1, 40), st.sets(st.integers(0, 59), max_size=5))
def test_whatever_is_refused_the_rest_is_transferred_and_each_bad_one_tried_so_often_alone(
    count: int, size: int, bad: set[int]
) -> None:
    waiting = messages(count)
    poison = Poison(size)
    moved, dead, alone = list[str](), list[str](), dict[str, int]()
    refused = {f"ID-{number}" for number in bad}
    rounds = 0
    while waiting:
        rounds += 1
        batch = waiting[: poison.limit]
        assert 1 <= len(batch) <= size
        died = [message.message_id for message in batch if poison.is_dead(message)]
        sent = [message.message_id for message in batch if message.message_id not in died]
        if refused.intersection(sent):
            times = poison.refused(batch, BridgeDeadReason.SEND_FAILURE, "no")
            if len(batch) == 1:
                alone[sent[0]] = times
            else:
                assert times == 0
            continue
        dead += died
        moved += sent
        del waiting[: len(batch)]
        poison.transferred()
    everything = [message.message_id for message in messages(count)]
    assert moved == [name for name in everything if name not in refused]
    assert dead == [name for name in everything if name in refused]
    assert alone == dict.fromkeys(dead, MOST)
    # Halving and doubling, and what each bad one is tried.
    assert rounds <= count + len(dead) * (MOST + 2 * size.bit_length() + 1)


def test_after_a_success_the_next_may_be_twice_as_large() -> None:
    poison = Poison(10)
    poison.refused(messages(10), BridgeDeadReason.SEND_FAILURE, "no")
    sizes = [poison.limit]
    for _ in range(3):
        poison.transferred()
        sizes.append(poison.limit)
    assert sizes == [5, 10, 10, 10]


def test_a_success_of_others_does_not_forget_how_often_one_was_refused() -> None:
    """Messages of a higher priority come before it, whenever it is back at its source."""
    poison = Poison(8)
    other, bad = messages(2)
    for times in range(1, MOST + 1):
        assert poison.refused([bad], BridgeDeadReason.SEND_FAILURE, "no") == times
        assert not poison.is_dead(other)
        poison.transferred()
    assert poison.is_dead(bad)
