"""Wildcards of topic names, and many subscriptions with them beside many topics.

Making and ending them costs little in any one turn, and changes nothing for messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.housekeeping import Housekeeping
from gateway.broker.properties.names import Pattern, is_wild, matcher
from gateway.broker.properties.settings import BrokerOptions
from gateway.broker.security.access import AccessRules
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.provider import Mode
from tests.gateway.broker.brokers import text
from tests.gateway.broker.stepped_broker import Stepped, all_of, in_each_pass, texts

LEVELS = st.sampled_from(["a", "b", "ab", "", "*", ">", "a*", ">>", "é"])
PLAIN = st.sampled_from(["a", "b", "ab", "", "a*", ">>"])
NAMES = st.lists(LEVELS, min_size=1, max_size=5).map(".".join)


def matches(pattern: str, name: str) -> bool:
    return Pattern(pattern).matches(name)


def expression(pattern: str) -> re.Pattern[str]:
    """What a pattern means: ``*`` is one level, which may be empty, and a last ``>`` is at least
    one.
    """
    levels = pattern.split(".")
    parts = [r"[^.]*" if level == "*" else re.escape(level) for level in levels]
    if levels[-1] == ">":
        parts[-1] = r"[^.]*(\.[^.]*)*"
    return re.compile(r"\.".join(parts), re.DOTALL)


@given(NAMES, NAMES)
def test_patterns_match_what_their_regular_expression_does(pattern: str, name: str) -> None:
    assert matches(pattern, name) == (expression(pattern).fullmatch(name) is not None)


@given(NAMES)
def test_a_name_without_wildcards_matches_itself_only(name: str) -> None:
    if not is_wild(name):
        assert matches(name, name)
        assert not matches(name, name + ".x")
        assert not matches(name, name + "x")


def fits(pattern: Sequence[str], name: Sequence[str]) -> bool:
    """What a pattern means whose ``>`` stands for none or more levels."""

    @lru_cache(None)
    def rest(at: int, place: int) -> bool:
        if at == len(pattern):
            return place == len(name)
        if pattern[at] == ">":
            return any(rest(at + 1, further) for further in range(place, len(name) + 1))
        return place < len(name) and pattern[at] in ("*", name[place]) and rest(at + 1, place + 1)

    return rest(0, 0)


@given(st.lists(LEVELS, min_size=1, max_size=7), st.lists(PLAIN, min_size=1, max_size=8))
def test_none_or_more_levels_wherever_they_are(pattern: list[str], name: list[str]) -> None:
    covers = matcher(".".join(pattern), none_or_more=True)
    assert covers(".".join(name)) == fits(pattern, name)


@given(NAMES, NAMES)
def test_without_that_it_is_one_level_or_more(pattern: str, name: str) -> None:
    assert matcher(pattern)(name) == matches(pattern, name)


def test_none_or_more_levels() -> None:
    covers = matcher("a.>", none_or_more=True)
    assert [covers(name) for name in ("a", "a.b", "a.b.c")] == [True] * 3
    assert [covers(name) for name in ("ab", "b", "b.a", "")] == [False] * 4
    within = matcher("a.>.b", none_or_more=True)
    assert [within(name) for name in ("a.b", "a.x.b", "a.x.y.b", "a.b.b")] == [True] * 4
    assert [within(name) for name in ("a", "b", "a.bb", "a.b.x", "xa.b")] == [False] * 5


def test_many_gaps_take_no_more_time_than_few() -> None:
    """A search that tried each place for each gap would not end."""
    covers = matcher(".".join([">.a.a.b"] * 100), none_or_more=True)
    assert not covers(".".join("a" * 500))
    assert covers(".".join("aab" * 100))


def test_what_is_wild() -> None:
    assert [is_wild(name) for name in ("*", ">", "a.*", "a.>", "*.b", ">.b")] == [True] * 6
    assert [is_wild(name) for name in ("a", "a*", "*a.b", "a.b>", "a.**", "")] == [False] * 6


def test_the_rest_is_at_least_one_level() -> None:
    assert not matches("a.>", "a")
    assert matches("a.>", "a.b")
    assert matches("a.>", "a.b.c")
    assert not matches(">.a", "b.a"), "only the last level can stand for the rest"
    assert matches(">", "anything.at.all")


TOPICS = 300
REAP_S = 10
SHOP = Topic("shop.>")


@pytest.fixture
def stepped(tmp_path: Path) -> Stepped:
    return Stepped(tmp_path, BrokerOptions(reap_time=REAP_S))


class NeverWalked(dict[Any, Any]):
    """What must not be looked through."""

    def __iter__(self) -> Any:
        raise AssertionError("all destinations were looked at")

    values = items = keys = __iter__


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> Callable[[], int]:
    """How often a method was called from now on."""
    calls: list[None] = []
    method = getattr(owner, name)

    def count(*args: Any) -> Any:
        calls.append(None)
        return method(*args)

    monkeypatch.setattr(owner, name, count)
    return lambda: len(calls)


def test_each_topic_is_looked_at_once_when_many_end_and_few_in_each_turn(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = stepped.session()
    for number in range(TOPICS):
        sender.send(texts(Topic(f"shop.{number}"), ["x"]))
    connection = stepped.connect()
    inboxes = [stepped.consume(connection.session(Mode.AUTO), SHOP) for _ in range(50)]
    stepped.send_each([text(Topic(f"shop.{number}"), "x") for number in range(TOPICS)], sender)
    assert {len(inbox.messages) for inbox in inboxes} == {TOPICS}
    monkeypatch.setattr("gateway.broker.core.destinations.topic.LOOKED_AT", 1000)
    looks = counted(monkeypatch, Housekeeping, "reap_later")
    connection.close()
    assert looks() == 0, "the connection that ends waits for no topic"
    rises = in_each_pass(stepped, 0, looks)
    assert sum(rises) == TOPICS
    assert max(rises) <= 1000 // (50 + 25) + 1


def test_ending_one_looks_at_no_destinations_in_the_same_turn(stepped: Stepped) -> None:
    for number in range(3):
        stepped.broker.create(Queue(f"q{number}"))
    connection = stepped.connect()
    session = connection.session(Mode.AUTO)
    stepped.broker.destinations = NeverWalked(stepped.broker.destinations)
    for destination in (SHOP, Topic("shop.a")):
        inbox = stepped.consume(session, destination)
        inbox.consumer.close()
        stepped.run_until_idle()


def test_making_one_asks_the_access_rules_about_no_topic_that_gets_no_message(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = stepped.session()
    for number in range(TOPICS):
        sender.send(texts(Topic(f"shop.{number}"), ["x"]))
    session = stepped.session(Mode.AUTO)
    asked = counted(monkeypatch, AccessRules, "allows")
    inbox = stepped.consume(session, SHOP)
    assert asked() == 1
    sender.send(texts(Topic("shop.7"), ["a", "b"]))
    stepped.send(texts(Topic("shop.7"), ["c"]), sender)
    assert inbox.texts == ["a", "b", "c"]
    assert asked() == 2


def test_who_subscribes_gets_what_is_sent_from_then_on_to_topics_old_and_new(
    stepped: Stepped,
) -> None:
    sender = stepped.session()
    sender.send(texts(Topic("shop.old"), ["before"]))
    first, second = stepped.session(Mode.AUTO), stepped.session(Mode.AUTO)
    inboxes = [stepped.consume(first, Topic("shop.*")), stepped.consume(second, Topic("*.old"))]
    sender.send(texts(Topic("shop.old"), ["1"]))
    sender.send(texts(Topic("shop.new"), ["2"]))
    third = stepped.consume(stepped.session(Mode.AUTO), Topic("shop.old"))
    first.close()
    sender.send(texts(Topic("shop.old"), ["3"]))
    fourth = stepped.consume(stepped.session(Mode.AUTO), SHOP)
    sender.send(texts(Topic("shop.old"), ["4"]))
    stepped.send(texts(Topic("shop.new"), ["5"]), sender)
    assert [all_of(inbox) for inbox in (*inboxes, third, fourth)] == [
        [],
        ["1", "3", "4"],
        ["3", "4"],
        ["4", "5"],
    ]


@pytest.mark.parametrize("between", [False, True])
def test_a_topic_that_only_such_a_subscription_used_is_reaped_when_that_has_ended(
    stepped: Stepped, between: bool
) -> None:
    sender = stepped.session()
    session = stepped.session(Mode.AUTO)
    inbox = stepped.consume(session, SHOP)
    stepped.send(texts(Topic("shop.a"), ["x"]), sender)
    stepped.later(3 * REAP_S)
    assert inbox.texts == ["x"]
    assert stepped.broker.find(Topic("shop.a")) is not None, "it is in use"
    session.close()
    if between:
        # Before the topic was told, it finds out by itself.
        sender.send(texts(Topic("shop.a"), ["y"]))
    stepped.later(REAP_S + 1)
    stepped.later(REAP_S + 1)
    assert stepped.broker.find(Topic("shop.a")) is None


def test_a_durable_subscriber_who_comes_again_at_once_is_let_in_and_misses_nothing(
    stepped: Stepped,
) -> None:
    sender = stepped.session()
    for number in range(TOPICS):
        sender.send(texts(Topic(f"shop.{number}"), ["x"]))
    connection = stepped.connect("client")
    stepped.consume(connection.session(Mode.AUTO), SHOP, durable_name="d")
    others = stepped.connect()
    for _ in range(20):
        stepped.consume(others.session(Mode.AUTO), SHOP)
    others.close()
    connection.close()
    sender.send(texts(Topic("shop.1"), ["while it was away"]))
    inbox = stepped.consume(stepped.connect("client").session(Mode.AUTO), SHOP, durable_name="d")
    stepped.send(texts(Topic("shop.2"), ["when it was back"]), sender)
    assert inbox.texts == ["while it was away", "when it was back"]


def test_who_subscribed_while_a_topic_was_being_destroyed_gets_its_messages_if_that_failed(
    stepped: Stepped,
) -> None:
    sender = stepped.session()
    sender.send(texts(Topic("shop.a"), ["x"]))
    topic = stepped.broker.topic(Topic("shop.a"))
    topic.removed = True
    inbox = stepped.consume(stepped.session(Mode.AUTO), SHOP)
    assert topic.subscriptions == []
    topic.removed = False
    stepped.send(texts(Topic("shop.a"), ["y"]), sender)
    assert inbox.texts == ["y"]
