"""How often an address may fail."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from gateway.admin.service.guard import MOST_FAILURES, PACE_S, WINDOW_S, Failures
from gateway.instance.listening import counted_address

FAR = "192.0.2.1"


def failed(failures: Failures, address: str, times: int = MOST_FAILURES) -> None:
    for _ in range(times):
        failures.add(address)


def test_after_five_failures_within_a_minute_passwords_of_an_address_are_looked_at_one_by_one(
    clock: Clock,
) -> None:
    failures = Failures(clock.seconds)
    failed(failures, FAR, MOST_FAILURES - 1)
    assert [failures.wait_s(FAR) for _ in range(3)] == [0, 0, 0]
    failed(failures, FAR, 1)
    assert [failures.wait_s(FAR) for _ in range(3)] == [PACE_S, 2 * PACE_S, 3 * PACE_S]
    assert failures.wait_s("192.0.2.2") == 0
    clock.advance(WINDOW_S)
    assert [failures.wait_s(FAR) for _ in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.3.2.1", "::1"])
def test_passwords_from_this_machine_are_looked_at_at_once(address: str) -> None:
    failures = Failures(Clock().seconds)
    failed(failures, address, 1000)
    assert [failures.wait_s(address) for _ in range(3)] == [0, 0, 0]


def test_failures_are_counted_until_there_was_none_for_a_minute(clock: Clock) -> None:
    failures = Failures(clock.seconds)
    failed(failures, FAR, 200)
    clock.advance(WINDOW_S - 1)
    assert failures.add(FAR) == 201
    clock.advance(WINDOW_S)
    assert failures.add(FAR) == 1


def test_ten_thousand_addresses_are_remembered_and_the_oldest_forgotten() -> None:
    failures = Failures(Clock().seconds)
    for number in range(10_001):
        failed(failures, str(number))
    assert (failures.wait_s("0"), failures.wait_s("1")) == (0, PACE_S)
    assert failures.wait_s("10000") == PACE_S


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::1", "::1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_machine_of_ipv6_has_one_count_for_all_its_addresses(host: str, counted: str) -> None:
    assert counted_address(host) == counted
