"""How often an address may fail."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from bridge.admin.guard import MOST_FAILURES, WINDOW_S, Failures, counted_address


def test_the_fifth_failure_within_a_minute_refuses_until_the_first_is_a_minute_old() -> None:
    clock = Clock()
    failures = Failures(clock.seconds)
    for _ in range(MOST_FAILURES - 1):
        failures.add("a")
        clock.advance(1)
    assert failures.wait_s("a") == 0
    failures.add("a")
    assert failures.wait_s("a") == WINDOW_S - (MOST_FAILURES - 1)
    assert failures.wait_s("b") == 0
    clock.advance(WINDOW_S - (MOST_FAILURES - 1))
    assert failures.wait_s("a") == 0
    failures.add("a")
    assert failures.wait_s("a") == 1


def test_ten_thousand_addresses_are_remembered_and_the_oldest_forgotten() -> None:
    failures = Failures(Clock().seconds)
    for number in range(10_001):
        for _ in range(MOST_FAILURES):
            failures.add(str(number))
    assert failures.wait_s("0") == 0
    assert failures.wait_s("1") == WINDOW_S
    assert failures.wait_s("10000") == WINDOW_S


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
