"""How a message that is refused is found among others, and which dead ones are known again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.link.delivery.poison import BURIED, KEPT, MOST, Buried, Poison
from bridge.link.transfer import Dead
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Queue
from gateway.messaging.message import Headers, Message


def messages(count: int) -> list[Message]:
    return [
        Message(Headers(Queue("source")), b"", message_id=f"ID-{number}") for number in range(count)
    ]


#: Of each bad message, whether the target says which it is.
BAD = st.dictionaries(st.integers(0, 59), st.booleans(), max_size=5)


@given(st.integers(1, 60), st.integers(1, 40), BAD)
def test_whatever_is_refused_the_rest_is_transferred_and_each_bad_one_tried_so_often_alone(
    count: int, size: int, bad: dict[int, bool]
) -> None:
    waiting = messages(count)
    poison = Poison(size)
    moved, dead, alone = list[str](), list[str](), dict[str, int]()
    named = {f"ID-{number}": says for number, says in bad.items()}
    rounds, searches = 0, 0
    while waiting:
        rounds += 1
        batch = waiting[: poison.limit]
        assert 1 <= len(batch) <= size
        died = [message.message_id for message in batch if poison.is_dead(message)]
        sent = [message.message_id for message in batch if message.message_id not in died]
        refused = next((name for name in sent if name in named), None)
        if refused is not None:
            at = (
                [message.message_id for message in batch].index(refused) if named[refused] else None
            )
            times = poison.refused(batch, BridgeDeadReason.SEND_FAILURE, "no", at)
            if len(batch) == 1:
                alone[sent[0]] = times
            else:
                searches += 1
                assert times == 0
            continue
        dead += died
        moved += sent
        del waiting[: len(batch)]
        poison.transferred()
    everything = [message.message_id for message in messages(count)]
    assert moved == [name for name in everything if name not in named]
    assert dead == [name for name in everything if name in named]
    assert alone == dict.fromkeys(dead, MOST)
    if all(named.values()):
        assert searches <= len(dead)
    # Halving and doubling, and what each bad one is tried.
    assert rounds <= count + len(dead) * (MOST + 2 * size.bit_length() + 1)


@given(st.integers(2, 100), st.data())
def test_a_message_that_the_target_names_costs_one_rollback_and_its_own(
    count: int, data: st.DataObject
) -> None:
    bad = data.draw(st.integers(0, count - 1))
    waiting = messages(count)
    poison = Poison(100)
    sizes = []
    while waiting:
        batch = waiting[: poison.limit]
        sizes.append(len(batch))
        here = [message.message_id for message in batch]
        if f"ID-{bad}" in here and not poison.is_dead(messages(count)[bad]):
            poison.refused(batch, BridgeDeadReason.SEND_FAILURE, "no", here.index(f"ID-{bad}"))
            continue
        del waiting[: len(batch)]
        poison.transferred()
    before, behind = [bad] if bad else [], [count - bad - 1] if bad < count - 1 else []
    assert sizes == [count, *before, *[1] * MOST, 1, *behind]


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


def test_those_that_come_back_by_turns_are_each_counted_and_each_dies_of_its_own() -> None:
    poison = Poison(10)
    bad = messages(3)
    for times in range(1, MOST + 1):
        for one in bad:
            assert not poison.is_dead(one)
            assert (
                poison.refused([one], BridgeDeadReason.COMMIT_FAILURE, f"{one.message_id}, {times}")
                == times
            )
    for one in bad:
        assert poison.is_dead(one)
        reason = f"{one.message_id}, {MOST}"
        assert poison.verdict(one, None) == Dead(BridgeDeadReason.COMMIT_FAILURE, reason)
        poison.transferred()


def test_of_many_suspects_those_that_were_refused_last_are_known() -> None:
    poison = Poison(10)
    many = messages(KEPT + 1)
    for one in many:
        assert poison.refused([one], BridgeDeadReason.SEND_FAILURE, "no") == 1
    assert poison.refused([many[1]], BridgeDeadReason.SEND_FAILURE, "no") == 2
    assert poison.refused([many[0]], BridgeDeadReason.SEND_FAILURE, "no") == 1


def test_of_messages_without_an_id_none_dies_for_another() -> None:
    poison, nameless = Poison(10), Message(Headers(Queue("source")))
    for times in range(1, MOST + 1):
        assert poison.refused([nameless], BridgeDeadReason.SEND_FAILURE, "no") == times
    assert poison.is_dead(nameless)
    poison.transferred()
    assert not poison.is_dead(Message(Headers(Queue("source"))))


# --- dead messages, until their source has forgotten them


def test_one_is_known_until_its_source_has_forgotten_it() -> None:
    buried = Buried()
    buried.add("ID:1")
    assert "ID:1" in buried
    buried.discard("ID:1")
    buried.discard("ID:1")
    assert "ID:1" not in buried


def test_one_without_an_id_is_never_known() -> None:
    buried = Buried()
    buried.add("")
    assert "" not in buried


def test_those_that_never_come_again_are_forgotten_the_first_at_first() -> None:
    buried = Buried()
    for number in range(BURIED + 5):
        buried.add(f"ID:{number}")
    known = [number for number in range(BURIED + 5) if f"ID:{number}" in buried]
    assert known == list(range(5, BURIED + 5))
