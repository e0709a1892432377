"""Verifying passcodes on threads: once each, within bounds, and never stopping the reactor."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from twisted.internet import reactor as global_reactor
from twisted.internet.defer import CancelledError, gatherResults

from gateway.broker.security import passcodes as module
from gateway.broker.security.logins import Rank
from gateway.broker.security.passcodes import (
    CannotVerify,
    Passcodes,
    hash_passcode,
    is_hash,
)
from tests.on_reactor import on_reactor

reactor = cast(Any, global_reactor)

HASH = hash_passcode("right")


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The hashes that were really verified, in order."""
    seen: list[str | None] = []
    real = module._verify

    def counting(hash: str | None, passcode: str) -> bool:
        seen.append(hash)
        return real(hash, passcode)

    monkeypatch.setattr(module, "_verify", counting)
    return seen


@pytest.fixture
def make() -> Iterator[Callable[..., Passcodes]]:
    made: list[Passcodes] = []

    def create(**bounds: int) -> Passcodes:
        made.append(Passcodes(reactor, **bounds))
        return made[-1]

    yield create
    for each in made:
        each.close()


@on_reactor
async def test_right_wrong_and_unknown(make: Callable[..., Passcodes]) -> None:
    passcodes = make()
    assert await passcodes.verify(HASH, "right") is True
    assert await passcodes.verify(HASH, "wrong") is False
    assert await passcodes.verify(None, "right") is False


@on_reactor
async def test_a_right_passcode_is_remembered_and_a_wrong_one_is_not(
    make: Callable[..., Passcodes], verified: list[str | None]
) -> None:
    passcodes = make()
    for _ in range(3):
        await passcodes.verify(HASH, "right")
    assert verified == [HASH]
    for _ in range(2):
        await passcodes.verify(HASH, "wrong")
    assert len(verified) == 3
    passcodes.forget()
    await passcodes.verify(HASH, "right")
    assert len(verified) == 4


@on_reactor
async def test_a_remembered_passcode_is_one_of_that_hash_only(
    make: Callable[..., Passcodes],
) -> None:
    passcodes = make()
    other = hash_passcode("other")
    assert await passcodes.verify(HASH, "right")
    assert not await passcodes.verify(other, "right")


@on_reactor
async def test_an_unknown_user_costs_as_much_as_a_known_one(
    make: Callable[..., Passcodes], verified: list[str | None]
) -> None:
    passcodes = make()
    for _ in range(2):
        await passcodes.verify(None, "guess")
    assert verified == [None, None]
    parameters = [hash.rsplit("$", 2)[0] for hash in (HASH, module._NOBODY)]
    assert (parameters[0], len(HASH)) == (parameters[1], len(module._NOBODY))


@on_reactor
async def test_a_thousand_who_reconnect_at_once_are_verified_once(
    make: Callable[..., Passcodes], verified: list[str | None]
) -> None:
    passcodes = make(waiting=1)
    answers = await gatherResults([passcodes.verify(HASH, "right") for _ in range(1000)])
    assert (answers, verified) == ([True] * 1000, [HASH])


@on_reactor
async def test_no_more_wait_than_may(make: Callable[..., Passcodes]) -> None:
    passcodes = make(threads=1, waiting=3)
    waiting = [passcodes.verify(HASH, f"guess {number}") for number in range(3)]
    with pytest.raises(CannotVerify, match="3 logins are waiting to be verified; try again later"):
        await passcodes.verify(HASH, "one more")
    assert await gatherResults(waiting) == [False] * 3
    assert await passcodes.verify(HASH, "right")


@on_reactor
async def test_only_so_many_are_remembered_and_the_one_not_asked_for_longest_goes(
    make: Callable[..., Passcodes], verified: list[str | None]
) -> None:
    passcodes = make(remembered=2)
    one, two, three = (hash_passcode("same") for _ in range(3))
    for hash in (one, two, one, three):  # two has not been asked for longest
        assert await passcodes.verify(hash, "same")
    assert verified == [one, two, three]
    assert await passcodes.verify(one, "same")
    assert verified == [one, two, three]
    assert await passcodes.verify(two, "same")
    assert verified == [one, two, three, two]


@on_reactor
async def test_what_nobody_waits_for_any_more_is_not_verified(
    make: Callable[..., Passcodes], verified: list[str | None]
) -> None:
    passcodes = make(threads=1)
    first = passcodes.verify(HASH, "first")
    second, third = passcodes.verify(HASH, "second"), passcodes.verify(HASH, "third")
    second.cancel()
    with pytest.raises(CancelledError):
        await second
    assert await gatherResults([first, third]) == [False, False]
    assert len(verified) == 2
    assert not await passcodes.verify(HASH, "second")


@on_reactor
async def test_close_fails_what_waits_and_what_comes_after(make: Callable[..., Passcodes]) -> None:
    passcodes = make(threads=1)
    waiting = [passcodes.verify(HASH, f"guess {number}") for number in range(3)]
    passcodes.close()
    passcodes.close()
    for each in [*waiting, passcodes.verify(HASH, "right")]:
        with pytest.raises(CannotVerify, match="the server is stopping"):
            await each


@on_reactor
async def test_a_hash_that_argon2_refuses_is_an_error_of_ours(
    make: Callable[..., Passcodes],
) -> None:
    damaged = HASH.replace("m=19456", "m=1")  # less than argon2 allows
    assert is_hash(damaged)
    with pytest.raises(CannotVerify, match="the passcode that is kept for the user is damaged"):
        await make().verify(damaged, "right")


@on_reactor
async def test_half_a_surrogate_pair_is_just_a_wrong_passcode(
    make: Callable[..., Passcodes],
) -> None:
    assert not await make().verify(HASH, "\ud800")


def test_hashes_are_argon2id_salted_and_recognised() -> None:
    assert HASH.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert hash_passcode("right") != HASH
    assert is_hash(HASH)
    for text in (
        "",
        "right",
        HASH[:-30],
        HASH.replace("argon2id", "argon2i"),
        HASH + "\n",
        HASH + ":x",
        "$2b$12$abc",
    ):
        assert not is_hash(text)


@on_reactor
async def test_what_nobody_waits_for_takes_no_room(make: Callable[..., Passcodes]) -> None:
    passcodes = make(threads=1, waiting=3)
    first, *given_up = [passcodes.verify(HASH, f"guess {number}") for number in range(3)]
    for each in given_up:
        each.addErrback(lambda failure: None)
        each.cancel()
    assert (
        await gatherResults(
            [first, *(passcodes.verify(HASH, f"other {number}") for number in range(2))]
        )
        == [False] * 3
    )


@on_reactor
async def test_one_who_comes_alone_gets_the_place_of_one_of_many(
    make: Callable[..., Passcodes],
) -> None:
    passcodes = make(threads=1, waiting=4)
    crowd = [passcodes.verify(HASH, f"guess {number}", "crowd") for number in range(4)]
    assert await passcodes.verify(HASH, "right", "alone")
    with pytest.raises(CannotVerify, match="4 logins are waiting"):
        await crowd.pop()
    assert await gatherResults(crowd) == [False] * 3


@on_reactor
async def test_known_ones_are_verified_before_others(make: Callable[..., Passcodes]) -> None:
    passcodes = make(threads=1)
    order: list[str] = []
    for number in range(3):
        passcodes.verify(HASH, f"guess {number}", "new").addCallback(lambda _: order.append("new"))
    # The same one, from two addresses: the known one's turn counts.
    late = passcodes.verify(HASH, "right", "new")
    await gatherResults([passcodes.verify(HASH, "right", "known", "user", Rank.KNOWN), late])
    assert order == ["new"]


@on_reactor
async def test_one_of_another_name_gets_the_place_of_a_guess_from_the_same_address(
    make: Callable[..., Passcodes],
) -> None:
    passcodes = make(threads=1, waiting=4)
    crowd = [passcodes.verify(HASH, f"guess {number}", "a", "alice") for number in range(4)]
    assert await passcodes.verify(HASH, "right", "a", "bob")
    with pytest.raises(CannotVerify, match="4 logins are waiting"):
        await crowd[3]
    assert await gatherResults(crowd[:3]) == [False] * 3
