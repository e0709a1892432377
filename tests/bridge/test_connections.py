"""Dedicated, pooled and shared connections: who gets which, and when each is closed. The broker is
real, the time a Clock's.
"""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import capturedLogs

from bridge.config.model import ConnectionFactory
from bridge.connections.connections import (
    GIVE_BACK_S,
    ConnectionKind,
    ConnectionLender,
    Connections,
    Lease,
    PoolStatus,
    SharedStatus,
)
from bridge.connections.factories import AdministeredFactory, Embedded, Factories
from bridge.connections.pool import CLIENT_ID_S, CLOSE_S
from bridge.providers.jms.java_command import JavaOptions
from gateway.messaging.errors import (
    AuthenticationFailed,
    ClientIdInUse,
    MessagingError,
    ProviderUnavailable,
)
from tests.bridge.connections import GUEST, WRONG, Bench, benched, clock, ignored, is_open
from tests.contract.waiting import until


def outcome(deferred: Deferred[Any]) -> list[Any]:
    """What it has fired with, or failed with, as it comes."""
    found: list[Any] = []
    deferred.addBoth(lambda result: found.append(getattr(result, "value", result)))
    return found


async def replaced(bench: Bench, way: ConnectionLender, lease: Lease) -> None:
    """Who takes a connection then has another, which is open."""
    again = await bench.take(way)
    assert again.connection is not lease.connection
    assert is_open(again.connection)


async def closed(bench: Bench, lease: Lease) -> None:
    await until(lambda: not is_open(lease.connection), lambda: "it is still open")


# --- the guide's rules


@benched
async def test_the_kind_is_that_of_the_guide(bench: Bench) -> None:
    plain, named = bench.factory("plain"), bench.factory("named", client_id="c1")
    of = bench.connections.for_sending
    for factory in (plain, named):
        dedicated = [bench.connections.dedicated(factory, client_id) for client_id in (None, "c2")]
        for stays, client_id in ((True, None), (True, "c2"), (False, "c2")):
            dedicated.append(of(factory, stays, client_id))
        assert {way.kind for way in dedicated} == {ConnectionKind.DEDICATED}
    assert of(plain, False, None).kind is ConnectionKind.POOLED
    assert of(named, False, None).kind is ConnectionKind.SHARED
    assert [kind.value for kind in ConnectionKind] == ["D", "P", "S"]
    assert bench.provider.asked == [], "nobody has taken one"


@benched
async def test_a_dedicated_connection_is_nobody_elses_and_stays(bench: Bench) -> None:
    factory = bench.factory()
    one, other = (
        bench.connections.dedicated(factory, None),
        bench.connections.for_sending(factory, True, None),
    )
    lease, others = await bench.take(one), await bench.take(other)
    assert lease.connection is not others.connection
    await lease.give_back()
    bench.clock.advance(1_000_000)
    again = await bench.take(one)
    assert again.connection is lease.connection
    assert is_open(again.connection)
    await again.give_back()
    await one.close()
    assert not is_open(again.connection)
    assert is_open(others.connection)


@benched
async def test_a_dedicated_connection_that_does_not_stay_is_closed_after_each_lease(
    bench: Bench,
) -> None:
    way = bench.connections.for_sending(bench.factory(), False, "c1")
    first = await bench.take(way)
    assert first.connection.client_id == "c1"
    # The second is wanted before the first is closed, and would be refused until it is.
    giving_back = first.give_back()
    second = await bench.take(way)
    await giving_back
    assert second.connection is not first.connection
    assert second.connection.client_id == "c1"
    assert not is_open(first.connection)
    assert bench.clock.getDelayedCalls() == [], "nobody waits for the client identifier"
    await second.give_back()
    assert bench.alive() == 0


@benched
async def test_a_dedicated_connection_has_the_factorys_client_identifier_unless_it_has_its_own(
    bench: Bench,
) -> None:
    factory = bench.factory(client_id="f")
    for given, client_id in ((None, "f"), ("own", "own")):
        lease = await bench.take(bench.connections.dedicated(factory, given))
        assert lease.connection.client_id == client_id


@benched
async def test_who_takes_a_dedicated_connection_twice_has_it_twice(bench: Bench) -> None:
    way = bench.connections.for_sending(bench.factory(), False, "c1")
    one, two = await bench.take(way), await bench.take(way)
    assert one.connection is two.connection
    await one.give_back()
    assert is_open(two.connection)
    await two.give_back()
    assert not is_open(two.connection)


@benched
async def test_a_pooled_connection_is_one_leases_at_a_time_and_used_again(bench: Bench) -> None:
    factory = bench.factory()
    one, other = (
        bench.connections.for_sending(factory, False, None),
        bench.connections.for_sending(factory, False, None),
    )
    first, second = await bench.take(one), await bench.take(other)
    assert first.connection is not second.connection
    await first.give_back()
    await second.give_back()
    third = await bench.take(one)
    assert third.connection is second.connection, (
        "the one that was used last, so that those too many grow old"
    )
    assert len(bench.provider.asked) == 2


@benched
async def test_a_shared_connection_is_one_for_all(bench: Bench) -> None:
    factory = bench.factory(client_id="c1")
    one, other = (
        bench.connections.for_sending(factory, False, None),
        bench.connections.for_sending(factory, False, None),
    )
    first, second = await bench.take(one), await bench.take(other)
    assert first.connection is second.connection
    assert bench.provider.asked == ["c1"]


@benched
async def test_takes_at_the_same_time_connect_a_shared_connection_once(bench: Bench) -> None:
    way = bench.connections.for_sending(bench.factory(client_id="c1"), False, None)
    bench.provider.hold()
    takes = [outcome(way.borrow(ignored)) for _ in range(3)]
    assert takes == [[], [], []]
    bench.provider.release()
    await until(lambda: all(takes))
    assert len({id(lease.connection) for [lease] in takes}) == 1
    assert bench.provider.asked == ["c1"]
    [shared] = bench.connections.shared()
    assert shared.ref_count == 3


@benched
async def test_takes_at_the_same_time_fail_together(bench: Bench) -> None:
    factories = Factories(clock, Embedded(bench.provider, WRONG), JavaOptions)
    factory = factories.get(ConnectionFactory("here", properties={"imqConfiguredClientID": "c1"}))
    way = bench.connections.for_sending(factory, False, None)
    bench.provider.hold()
    takes = [outcome(way.borrow(ignored)) for _ in range(2)]
    bench.provider.release()
    await until(lambda: all(takes))
    assert [type(error) for [error] in takes] == [AuthenticationFailed] * 2
    assert len(bench.provider.asked) == 1, "taking is one attempt"
    with pytest.raises(AuthenticationFailed):
        await bench.take(way)
    assert len(bench.provider.asked) == 2, "and taking again another"


# --- what only the first connection tells


class Told:
    """A provider of another package, with a client identifier that is in its own configuration."""

    def __init__(self, bench: Bench, client_id: str | None) -> None:
        self._provider = bench.provider
        self._client_id = client_id
        self.capabilities = bench.provider.capabilities
        self.resource = "told"

    def connect(self, credentials: Any, client_id: str | None, lost: Any) -> Any:
        return self._provider.connect(GUEST, client_id or self._client_id, lost)


class Point:
    value = "tests:here"

    def __init__(self, made: Any) -> None:
        self._made = made

    def load(self) -> Any:
        return lambda config, reactor: self._made


def made_of(bench: Bench, provider: Any) -> AdministeredFactory:
    points: Any = {"theirs": Point(provider)}
    factories = Factories(clock, Embedded(bench.provider, GUEST), JavaOptions, lambda: points)
    return factories.get(ConnectionFactory("theirs", properties={"provider": "theirs"}))


def told(bench: Bench, client_id: str | None) -> AdministeredFactory:
    """A factory of which nobody knows whether it has a client identifier."""
    return made_of(bench, Told(bench, client_id))


@benched
async def test_the_first_connection_tells_that_the_factory_has_a_client_identifier(
    bench: Bench,
) -> None:
    factory = told(bench, "theirs")
    way, other = (
        bench.connections.for_sending(factory, False, None),
        bench.connections.for_sending(factory, False, None),
    )
    assert (way.kind, other.kind) == (None, None)
    assert (bench.connections.pools(), bench.connections.shared()) == ([], [])
    bench.provider.hold()
    takes = [outcome(way.borrow(ignored)), outcome(other.borrow(ignored))]
    bench.provider.release()
    await until(lambda: all(takes))
    assert (way.kind, other.kind) == (ConnectionKind.SHARED, ConnectionKind.SHARED)
    assert takes[0][0].connection is takes[1][0].connection
    assert len(bench.provider.asked) == 1
    assert factory.client_id == "theirs"
    assert bench.connections.for_sending(factory, False, None).kind is ConnectionKind.SHARED


@benched
async def test_the_first_connection_tells_that_the_factory_has_none(bench: Bench) -> None:
    factory = told(bench, None)
    way = bench.connections.for_sending(factory, False, None)
    bench.provider.hold()
    takes = [outcome(way.borrow(ignored)) for _ in range(3)]
    assert len(bench.provider.asked) == 1, "three would be too many if it were shared"
    bench.provider.release()
    await until(lambda: all(takes))
    assert way.kind is ConnectionKind.POOLED
    assert len({id(lease.connection) for [lease] in takes}) == 3
    assert (factory.client_id, factory.client_id_known) == (None, True)


@benched
async def test_a_connection_with_a_client_identifier_of_its_own_tells_nothing(bench: Bench) -> None:
    factory = told(bench, "theirs")
    await bench.take(bench.connections.dedicated(factory, "mine"))
    assert (factory.client_id, factory.client_id_known) == (None, False)
    await bench.take(bench.connections.dedicated(factory, None))
    assert (factory.client_id, factory.client_id_known) == ("theirs", True)


@benched
async def test_the_kind_stays_unknown_while_connecting_fails(bench: Bench) -> None:
    await bench.backend.provider().connect(GUEST, "theirs", ignored)
    way = bench.connections.for_sending(told(bench, "theirs"), False, None)
    taking = outcome(way.borrow(ignored))
    bench.clock.advance(CLIENT_ID_S)
    [error] = taking
    assert isinstance(error, ClientIdInUse)
    assert way.kind is None


# --- a client identifier that is in use


@benched
async def test_a_client_identifier_in_use_is_tried_once_more_after_five_seconds(
    bench: Bench,
) -> None:
    theirs = await bench.backend.provider().connect(GUEST, "c1", ignored)
    way = bench.connections.dedicated(bench.factory(), "c1")
    taking = outcome(way.borrow(ignored))
    bench.clock.advance(CLIENT_ID_S - 0.001)
    assert taking == []
    assert bench.provider.asked == ["c1"]
    await theirs.close()
    bench.clock.advance(0.001)
    await until(lambda: taking)
    assert taking[0].connection.client_id == "c1"
    assert bench.provider.asked == ["c1", "c1"]


@benched
async def test_a_client_identifier_that_stays_in_use_fails_the_attempt(bench: Bench) -> None:
    await bench.backend.provider().connect(GUEST, "c1", ignored)
    taking = outcome(bench.connections.dedicated(bench.factory(), "c1").borrow(ignored))
    bench.clock.advance(CLIENT_ID_S)
    [error] = taking
    assert isinstance(error, ClientIdInUse)
    assert bench.provider.asked == ["c1", "c1"]
    bench.clock.advance(1000)
    assert bench.provider.asked == ["c1", "c1"]


@benched
async def test_the_wait_for_a_client_identifier_ends_with_the_way(bench: Bench) -> None:
    await bench.backend.provider().connect(GUEST, "c1", ignored)
    way = bench.connections.dedicated(bench.factory(), "c1")
    taking = outcome(way.borrow(ignored))
    await way.close()
    [error] = taking
    assert isinstance(error, ProviderUnavailable)
    assert bench.clock.getDelayedCalls() == []


# --- idle time-outs


@benched
async def test_an_idle_pooled_connection_is_closed_after_as_many_seconds(bench: Bench) -> None:
    way = bench.connections.for_sending(bench.factory(idle_timeout_s=30), False, None)
    early, late = await bench.take(way), await bench.take(way)
    await early.give_back()
    bench.clock.advance(20)
    await late.give_back()
    bench.clock.advance(9.999)
    assert is_open(early.connection)
    bench.clock.advance(0.001)
    await closed(bench, early)
    assert is_open(late.connection)
    used = await bench.take(way)
    assert used.connection is late.connection
    bench.clock.advance(1000)
    assert is_open(used.connection), "it is in use"
    await used.give_back()
    bench.clock.advance(30)
    await closed(bench, used)


@benched
async def test_a_shared_connection_is_closed_so_many_seconds_after_the_last_return(
    bench: Bench,
) -> None:
    way = bench.connections.for_sending(
        bench.factory(client_id="c1", idle_timeout_s=30), False, None
    )
    one, two = await bench.take(way), await bench.take(way)
    await one.give_back()
    bench.clock.advance(1000)
    assert is_open(two.connection)
    await two.give_back()
    bench.clock.advance(29)
    three = await bench.take(way)
    assert three.connection is one.connection
    bench.clock.advance(29)
    await three.give_back()
    bench.clock.advance(29.999)
    assert is_open(one.connection)
    bench.clock.advance(0.001)
    await closed(bench, one)
    again = await bench.take(way)
    assert again.connection is not one.connection
    assert again.connection.client_id == "c1"


@benched
async def test_what_was_given_back_at_once_is_idle_once(bench: Bench) -> None:
    way = bench.connections.for_sending(bench.factory(idle_timeout_s=30), False, None)
    bench.provider.hold()
    done = outcome(way.borrow(ignored).addCallback(lambda lease: lease.give_back()))
    bench.provider.release()
    await until(lambda: done)
    assert len(bench.clock.getDelayedCalls()) == 1
    lease = await bench.take(way)
    bench.clock.advance(1000)
    assert is_open(lease.connection)


@benched
async def test_an_idle_time_out_of_0_closes_nothing(bench: Bench) -> None:
    pooled = bench.connections.for_sending(bench.factory("pooled", idle_timeout_s=0), False, None)
    shared = bench.connections.for_sending(
        bench.factory("shared", client_id="c1", idle_timeout_s=0), False, None
    )
    leases = [await bench.take(pooled), await bench.take(shared)]
    for lease in leases:
        await lease.give_back()
    assert bench.clock.getDelayedCalls() == []
    bench.clock.advance(10_000_000)
    assert all(is_open(lease.connection) for lease in leases)


# --- giving back


@benched
async def test_a_lease_given_back_twice_is_given_back_once(bench: Bench) -> None:
    shared = bench.connections.for_sending(bench.factory("shared", client_id="c1"), False, None)
    one, two = await bench.take(shared), await bench.take(shared)
    await one.give_back()
    await one.give_back(broken=True)
    [status] = bench.connections.shared()
    assert status.ref_count == 1
    await two.give_back()
    three = await bench.take(shared)
    assert three.connection is one.connection, "the second time said nothing"
    pooled = bench.connections.for_sending(bench.factory("pooled"), False, None)
    first = await bench.used(pooled)
    await first.give_back()
    second, third = await bench.take(pooled), await bench.take(pooled)
    assert second.connection is not third.connection


@benched
async def test_a_second_give_back_fires_when_the_connection_is_closed(bench: Bench) -> None:
    lease = await bench.take(bench.connections.for_sending(bench.factory(), False, "c1"))
    first, second = lease.give_back(), lease.give_back()
    await second
    assert not is_open(lease.connection)
    await first


@benched
async def test_a_broken_pooled_connection_is_closed(bench: Bench) -> None:
    way = bench.connections.for_sending(bench.factory(), False, None)
    lease = await bench.take(way)
    await lease.give_back(broken=True)
    assert not is_open(lease.connection)
    assert (await bench.take(way)).connection is not lease.connection


@benched
async def test_a_broken_shared_connection_is_closed_when_all_have_given_it_back(
    bench: Bench,
) -> None:
    way = bench.connections.for_sending(bench.factory(client_id="c1"), False, None)
    one, two = await bench.take(way), await bench.take(way)
    await one.give_back(broken=True)
    assert is_open(two.connection)
    # It has the client identifier as long as it is open, so the attempt waits for it.
    taking = outcome(way.borrow(ignored))
    assert taking == []
    await two.give_back()
    assert not is_open(two.connection)
    bench.clock.advance(CLIENT_ID_S)
    await until(lambda: taking)
    assert taking[0].connection is not one.connection


# --- losses


@benched
async def test_a_loss_is_told_once_to_each_who_has_the_connection(bench: Bench) -> None:
    way = bench.connections.for_sending(bench.factory(client_id="c1"), False, None)
    losses: list[tuple[str, MessagingError]] = []
    await bench.take(way, lambda error: losses.append(("one", error)))
    await bench.take(way, lambda error: losses.append(("two", error)))
    returned = await bench.take(way, lambda error: losses.append(("returned", error)))
    await returned.give_back()
    await bench.lose()
    await until(lambda: len(losses) >= 2)
    assert [name for name, _ in losses] == ["one", "two"]
    assert all(isinstance(error, ProviderUnavailable) for _, error in losses)
    await replaced(bench, way, returned)


@benched
async def test_who_raises_when_told_of_a_loss_keeps_it_from_nobody(bench: Bench) -> None:
    way = bench.connections.for_sending(bench.factory(client_id="c1"), False, None)
    losses: list[MessagingError] = []

    def fails(error: MessagingError) -> None:
        raise ZeroDivisionError

    await bench.take(way, fails)
    await bench.take(way, losses.append)
    with capturedLogs() as events:
        await bench.lose()
        await until(lambda: losses)
    assert [event["log_failure"].type for event in events if "log_failure" in event] == [
        ZeroDivisionError
    ]


@pytest.mark.parametrize("kind", ConnectionKind)
@benched
async def test_giving_a_lost_connection_back_is_well(bench: Bench, kind: ConnectionKind) -> None:
    factory = bench.factory(client_id=None if kind is ConnectionKind.POOLED else "c1")
    way = bench.connections.for_sending(factory, kind is ConnectionKind.DEDICATED, None)
    assert way.kind is kind
    given_back: list[list[Any]] = []

    def lost(error: MessagingError) -> None:
        given_back.append(outcome(lease.give_back(broken=True)))

    lease = await bench.take(way, lost)
    await bench.lose()
    await until(lambda: given_back)
    assert given_back == [[None]]
    await lease.give_back()
    await replaced(bench, way, lease)


@benched
async def test_a_pooled_connection_lost_while_idle_is_dropped(bench: Bench) -> None:
    way = bench.connections.for_sending(bench.factory(idle_timeout_s=30), False, None)
    losses: list[MessagingError] = []
    lease = await bench.take(way, losses.append)
    await lease.give_back()
    assert [status.idle for status in bench.connections.pools()] == [1]
    with capturedLogs() as events:
        await bench.lose()
        await until(lambda: [status.idle for status in bench.connections.pools()] == [0])
    assert losses == [], "it was given back"
    assert any("while it was not in use" in event["log_format"] for event in events)
    await until(lambda: not bench.clock.getDelayedCalls())
    await replaced(bench, way, lease)


@benched
async def test_a_dedicated_connection_lost_between_leases_is_dropped(bench: Bench) -> None:
    way = bench.connections.for_sending(bench.factory(), True, None)
    lease = await bench.used(way)
    await bench.lose()
    await until(lambda: not is_open(lease.connection))
    again = await bench.take(way)
    assert is_open(again.connection)


class Fleeting:
    """A provider whose first connection is lost before whoever asked for it has it."""

    def __init__(self, bench: Bench) -> None:
        self._provider = bench.provider
        self.capabilities = bench.provider.capabilities
        self.resource = "fleeting"
        self.first = True

    def connect(self, credentials: Any, client_id: str | None, lost: Any) -> Any:
        connecting = self._provider.connect(GUEST, client_id, lost)
        if self.first:
            self.first = False
            connecting.addCallback(
                lambda connection: (lost(ProviderUnavailable("gone")), connection)[1]
            )
        return connecting


@benched
async def test_a_connection_lost_before_it_is_there_is_a_failed_attempt(bench: Bench) -> None:
    way = bench.connections.dedicated(made_of(bench, Fleeting(bench)), None)
    losses: list[MessagingError] = []
    with pytest.raises(ProviderUnavailable, match="gone"):
        await bench.take(way, losses.append)
    assert losses == []
    await until(lambda: not bench.alive(), lambda: "what was opened is closed")
    assert is_open((await bench.take(way)).connection)


# --- those who wait no longer


@benched
async def test_what_comes_of_a_cancelled_take_is_for_others(bench: Bench) -> None:
    pooled = bench.connections.for_sending(bench.factory("pooled", idle_timeout_s=30), False, None)
    passing = bench.connections.for_sending(bench.factory("passing"), False, "c1")
    bench.provider.hold()
    for way in (pooled, passing):
        taking = way.borrow(ignored)
        found = outcome(taking)
        taking.cancel()
        assert [type(error) for error in found] == [CancelledError]
    bench.provider.release()
    await until(lambda: len(bench.provider.open) == 2)
    await until(
        lambda: bench.alive() == 1,
        lambda: "the one that does not stay is closed, the pooled one is there",
    )
    assert [(status.in_use, status.idle) for status in bench.connections.pools()] == [(0, 1)]
    await bench.take(pooled)
    assert len(bench.provider.asked) == 2
    assert [(status.in_use, status.idle) for status in bench.connections.pools()] == [(1, 0)]


@benched
async def test_who_waits_gets_what_is_given_back_meanwhile(bench: Bench) -> None:
    way = bench.connections.for_sending(bench.factory(), False, None)
    lease = await bench.take(way)
    bench.provider.hold()
    taking = outcome(way.borrow(ignored))
    await lease.give_back()
    assert taking[0].connection is lease.connection
    bench.provider.release()
    await until(
        lambda: [(status.in_use, status.idle) for status in bench.connections.pools()] == [(1, 1)]
    )


class Answered:
    """A provider whose attempts are answered one by one."""

    def __init__(self, bench: Bench) -> None:
        self._provider = bench.provider
        self.capabilities = bench.provider.capabilities
        self.resource = "answered"
        self.attempts: list[Deferred[None]] = []

    def connect(self, credentials: Any, client_id: str | None, lost: Any) -> Any:
        answer: Deferred[None] = Deferred()
        self.attempts.append(answer)
        return answer.addCallback(lambda _: self._provider.connect(GUEST, client_id, lost))


@benched
async def test_the_failure_of_an_attempt_is_not_for_those_who_have_another(bench: Bench) -> None:
    provider = Answered(bench)
    way = bench.connections.for_sending(made_of(bench, provider), False, None)
    taking = way.borrow(ignored)
    provider.attempts[0].callback(None)
    await (await taking).give_back(broken=True)
    assert way.kind is ConnectionKind.POOLED
    first, second, third = way.borrow(ignored), way.borrow(ignored), way.borrow(ignored)
    cancelled, waiting, failing = outcome(first), outcome(second), outcome(third)
    first.cancel()
    _, *answers = provider.attempts
    assert len(answers) == 3
    answers[0].errback(ProviderUnavailable("first"))
    assert (waiting, failing) == ([], []), "two attempts are under way for two who wait"
    answers[1].errback(ProviderUnavailable("second"))
    assert [str(error) for error in waiting] == ["the provider is unavailable: second"]
    answers[2].callback(None)
    await until(lambda: failing)
    assert isinstance(failing[0], Lease)
    assert isinstance(cancelled[0], CancelledError)


# --- closing


@benched
async def test_a_closed_way_takes_nothing(bench: Bench) -> None:
    for way in (
        bench.connections.dedicated(bench.factory(), None),
        bench.connections.for_sending(bench.factory(), False, None),
        bench.connections.for_sending(bench.factory("named", client_id="c1"), False, None),
    ):
        await way.close()
        await way.close()
        with pytest.raises(ProviderUnavailable, match="has ended"):
            await bench.take(way)
    assert bench.provider.asked == []


@benched
async def test_closing_a_way_while_it_connects_fails_the_take_and_closes_what_comes(
    bench: Bench,
) -> None:
    way = bench.connections.dedicated(bench.factory(), "c1")
    bench.provider.hold()
    taking = outcome(way.borrow(ignored))
    await way.close()
    [error] = taking
    assert isinstance(error, ProviderUnavailable)
    bench.provider.release()
    await until(lambda: bench.provider.open)
    await until(lambda: not bench.alive(), lambda: "what came of it is still open")


@benched
async def test_closing_one_way_to_a_pool_disturbs_no_other(bench: Bench) -> None:
    factory = bench.factory(client_id="c1")
    one, other = (
        bench.connections.for_sending(factory, False, None),
        bench.connections.for_sending(factory, False, None),
    )
    bench.provider.hold()
    ours, theirs = outcome(one.borrow(ignored)), outcome(other.borrow(ignored))
    await one.close()
    assert isinstance(ours[0], ProviderUnavailable)
    bench.provider.release()
    await until(lambda: theirs)
    assert is_open(theirs[0].connection)


@benched
async def test_pooled_connections_stay_for_the_next_who_comes(bench: Bench) -> None:
    factory = bench.factory(idle_timeout_s=30)
    way = bench.connections.for_sending(factory, False, None)
    lease = await bench.used(way)
    await way.close()
    next_way = bench.connections.for_sending(factory, False, None)
    assert (await bench.take(next_way)).connection is lease.connection


@benched
async def test_close_waits_for_leases_and_then_closes(bench: Bench) -> None:
    ways = (
        bench.connections.dedicated(bench.factory(), None),
        bench.connections.for_sending(bench.factory(), False, None),
        bench.connections.for_sending(bench.factory("named", client_id="c1"), False, None),
    )
    losses: list[MessagingError] = []
    leases = [await bench.take(way, losses.append) for way in ways]
    idle = await bench.used(ways[1])
    closing, again = outcome(bench.connections.close()), outcome(bench.connections.close())
    await closed(bench, idle)
    for lease in leases:
        assert (is_open(lease.connection), closing) == (True, [])
        await lease.give_back()
    await until(lambda: closing and again)
    assert (bench.alive(), losses, bench.clock.seconds()) == (0, [], 0)
    for way in ways:
        with pytest.raises(ProviderUnavailable, match="the bridge has closed its connections"):
            await bench.take(way)
    with pytest.raises(ProviderUnavailable, match="the bridge has closed its connections"):
        await bench.take(bench.connections.dedicated(bench.factory(), None))


@benched
async def test_close_does_not_wait_for_ever_for_leases(bench: Bench) -> None:
    losses: list[MessagingError] = []
    lease = await bench.take(bench.connections.dedicated(bench.factory(), None), losses.append)
    with capturedLogs() as events:
        closing = outcome(bench.connections.close())
        bench.clock.advance(GIVE_BACK_S - 0.001)
        assert (is_open(lease.connection), closing) == (True, [])
        bench.clock.advance(0.001)
        await until(lambda: closing)
    assert not is_open(lease.connection)
    [lost] = losses
    assert isinstance(lost, ProviderUnavailable)
    assert [event["names"] for event in events if event["log_level"].name == "warn"] == ["here"]
    await lease.give_back()


@benched
async def test_close_while_a_take_is_connecting(bench: Bench) -> None:
    ways = (
        bench.connections.dedicated(bench.factory(), "c1"),
        bench.connections.for_sending(bench.factory(), False, None),
        bench.connections.for_sending(bench.factory("named", client_id="c2"), False, None),
    )
    bench.provider.hold()
    takes = [outcome(way.borrow(ignored)) for way in ways]
    await bench.connections.close()
    assert [type(error) for [error] in takes] == [ProviderUnavailable] * 3
    assert bench.provider.open == [], "it did not wait for connections that may never come"
    bench.provider.release()
    await until(lambda: len(bench.provider.open) == 3)
    await until(lambda: not bench.alive(), lambda: "what came of it is still open")


class Silent:
    """A provider whose connections are never closed, or badly."""

    def __init__(self, bench: Bench, answer: Deferred[None]) -> None:
        self._provider = bench.provider
        self._answer = answer
        self.capabilities = bench.provider.capabilities
        self.resource = "silent"

    def connect(self, credentials: Any, client_id: str | None, lost: Any) -> Any:
        def wrapped(connection: Any) -> Any:
            answer = self._answer

            class Open:
                client_id = None
                product = "silent"

                def close(self) -> Deferred[None]:
                    connection.close()
                    return answer

            return Open()

        return self._provider.connect(GUEST, client_id, lost).addCallback(wrapped)


@pytest.mark.parametrize("answers", [False, True])
@benched
async def test_a_close_that_hangs_or_fails_holds_nothing_up(bench: Bench, answers: bool) -> None:
    answer: Deferred[None] = Deferred()
    way = bench.connections.dedicated(made_of(bench, Silent(bench, answer)), None)
    await bench.take(way)
    with capturedLogs() as events:
        closing = outcome(way.close())
        assert closing == []
        if answers:
            answer.errback(ZeroDivisionError("bad"))
        else:
            bench.clock.advance(CLOSE_S)
        assert closing == [None]
    levels = [
        event["log_level"].name for event in events if event["log_namespace"].startswith("bridge")
    ]
    assert levels == ["critical" if answers else "warn"]


@benched
async def test_a_client_identifier_is_not_asked_for_before_its_connection_is_closed(
    bench: Bench,
) -> None:
    answer: Deferred[None] = Deferred()
    way = bench.connections.for_sending(made_of(bench, Silent(bench, answer)), False, "c1")
    given_back = outcome((await bench.take(way)).give_back())
    taking = outcome(way.borrow(ignored))
    assert (given_back, taking, len(bench.provider.asked)) == ([], [], 1)
    answer.callback(None)
    await until(lambda: taking)
    assert (given_back, len(bench.provider.asked)) == ([None], 2)
    assert isinstance(taking[0], Lease)


@benched
async def test_who_closes_the_way_meanwhile_connects_no_more(bench: Bench) -> None:
    answer: Deferred[None] = Deferred()
    way = bench.connections.for_sending(made_of(bench, Silent(bench, answer)), False, "c1")
    (await bench.take(way)).give_back()
    taking = outcome(way.borrow(ignored))
    closing = outcome(way.close())
    assert isinstance(taking[0], ProviderUnavailable)
    assert closing == []
    answer.callback(None)
    assert closing == [None]
    assert len(bench.provider.asked) == 1


# --- another configuration


@benched
async def test_invalid_connections_are_closed_when_given_back_and_lent_no_more(
    bench: Bench,
) -> None:
    for factory in (bench.factory("pooled"), bench.factory("shared", client_id="c1")):
        way = bench.connections.for_sending(factory, False, None)
        used = await bench.take(way)
        idle = await bench.take(bench.connections.for_sending(bench.factory("other"), False, None))
        await idle.give_back()
        bench.connections.invalidate(factory.config.ref_name)
        assert is_open(used.connection), "whoever has it goes on"
        assert is_open(idle.connection), "it is another factory's"
        await used.give_back()
        assert not is_open(used.connection)
        await replaced(bench, way, used)


@benched
async def test_idle_connections_that_become_invalid_are_closed_at_once(bench: Bench) -> None:
    way = bench.connections.for_sending(bench.factory(), False, None)
    lease = await bench.used(way)
    bench.connections.invalidate("here")
    await closed(bench, lease)


@benched
async def test_what_was_being_connected_when_it_became_invalid_is_not_used(bench: Bench) -> None:
    way = bench.connections.for_sending(bench.factory(), False, None)
    bench.provider.hold()
    taking = outcome(way.borrow(ignored))
    bench.connections.invalidate("here")
    assert len(bench.provider.asked) == 2, "whoever waits gets another"
    bench.provider.release()
    await until(lambda: taking and len(bench.provider.open) == 2)
    await until(lambda: bench.alive() == 1)
    assert is_open(taking[0].connection)


@benched
async def test_a_reload_leaves_nothing_of_the_old_factory_behind(bench: Bench) -> None:
    old = bench.factory(idle_timeout_s=0)
    way = bench.connections.for_sending(old, False, None)
    held = await bench.take(way)
    new = bench.factory(idle_timeout_s=5)
    assert new is not old
    bench.connections.invalidate("here")
    after = bench.connections.for_sending(new, False, None)
    late = await bench.used(way)
    await way.close()
    assert not is_open(late.connection), "nobody will ever want it again"
    assert [(status.in_use, status.idle_timeout_s) for status in bench.connections.pools()] == [
        (0, 5),
        (1, 0),
    ]
    assert is_open(held.connection)
    await held.give_back()
    assert not is_open(held.connection)
    assert [(status.in_use, status.idle_timeout_s) for status in bench.connections.pools()] == [
        (0, 5)
    ]
    await bench.take(after)


@benched
async def test_a_factory_that_is_wanted_after_it_became_invalid_is_as_good_as_before(
    bench: Bench,
) -> None:
    factory = bench.factory(idle_timeout_s=30)
    way = bench.connections.for_sending(factory, False, None)
    bench.connections.invalidate("here")
    again = bench.connections.for_sending(factory, False, None)
    lease = await bench.used(again)
    await way.close()
    await again.close()
    assert is_open(lease.connection)
    assert (
        await bench.take(bench.connections.for_sending(factory, False, None))
    ).connection is lease.connection


@benched
async def test_dedicated_connections_are_their_links_business_in_a_reload(bench: Bench) -> None:
    way = bench.connections.dedicated(bench.factory(), None)
    lease = await bench.take(way)
    bench.connections.invalidate("here")
    await lease.give_back()
    assert (await bench.take(way)).connection is lease.connection


# --- what operators see


@benched
async def test_the_tables_of_pooled_and_shared_connections(bench: Bench) -> None:
    attributes: dict[str, Any] = {
        "idle_timeout_s": 60,
        "connect_attempts": 3,
        "connect_attempt_interval_s": 7,
    }
    pooled = bench.connections.for_sending(bench.factory("pooled", **attributes), False, None)
    shared = bench.connections.for_sending(bench.factory("shared", client_id="c1"), False, None)
    await bench.take(bench.connections.dedicated(bench.factory("pooled", **attributes), None))
    leases = [await bench.take(way) for way in (pooled, pooled, pooled, shared, shared)]
    await leases[0].give_back()
    assert bench.connections.pools() == [PoolStatus("pooled", True, 2, 1, 60, 3, 7)]
    assert bench.connections.shared() == [SharedStatus("shared", True, 2, 1800, -1, 5)]
    for lease in leases[3:]:
        await lease.give_back()
    assert bench.connections.shared() == [SharedStatus("shared", True, 0, 1800, -1, 5)]


def test_nothing_is_open_in_the_beginning() -> None:
    connections = Connections(clock)
    assert (connections.pools(), connections.shared()) == ([], [])
