"""What would make an instance be as a file declares it."""

from __future__ import annotations

from hypothesis import given

from gateway.admin.cli.declaration import (
    Declaration,
    DeclaredBridge,
    DeclaredUser,
)
from gateway.admin.cli.plan import Standing, changes, shown
from tests.gateway.admin.test_declaration import DECLARATIONS

HASH = "$argon2id$1"
HAVE = Declaration(
    {"queue.a.consume.allow.user": ["bob"]},
    {"bob": DeclaredUser(("traders",), HASH)},
    {("queue", "a"): {"maxNumMsgs": "10"}, ("queue", "mq.sys.dmq"): {"maxNumMsgs": "5"}},
    {"shop": DeclaredBridge({"level": "FINE"}, "<a/>\n")},
)


def said(wanted: Declaration, found: Standing, *, prune: bool = False) -> list[str]:
    return [line for line in shown(changes(wanted, found, prune=prune)) if line]


@given(DECLARATIONS)
def test_an_instance_that_is_so_already_is_not_changed(declared: Declaration) -> None:
    assert changes(declared, Standing(declared), prune=True) == []


def test_everything_is_made_in_the_order_in_which_it_is_needed() -> None:
    assert said(HAVE, Standing(Declaration())) == [
        "  + user bob",
        "      + active = true",
        "      + groups = traders",
        "      + loopback = false",
        "  ~ access rules",
        '      + queue.a.consume.allow.user = ["bob"]',
        "  + queue a",
        "      + maxNumMsgs = 10",
        "  + queue mq.sys.dmq",
        "      + maxNumMsgs = 5",
        "  + bridge shop",
        "      + level = FINE",
        "      + document = 1 line",
        "Plan: 4 to create, 1 to change, 0 to destroy.",
    ]


def test_a_change_shows_what_changes_and_no_secret() -> None:
    wanted = Declaration(
        {"queue.a.consume.allow.user": ["alice", "bob"]},
        {"bob": DeclaredUser((), HASH + "2", active=False)},
        {("queue", "a"): {"limitBehavior": "REMOVE_OLDEST"}},
        {"shop": DeclaredBridge({}, "<b/>\n<c/>\n")},
    )
    assert said(wanted, Standing(HAVE)) == [
        "  ~ user bob",
        "      ~ active = true -> false",
        "      ~ groups = traders -> ",
        "      ~ passcode = (not shown)",
        "  ~ access rules",
        '      ~ queue.a.consume.allow.user = ["bob"] -> ["alice", "bob"]',
        "  ~ queue a",
        "      + limitBehavior = REMOVE_OLDEST",
        "      - maxNumMsgs = 10",
        "  ~ bridge shop",
        "      - level = FINE",
        "      ~ document: 2 lines come, 1 line goes",
        "Plan: 0 to create, 4 to change, 0 to destroy.",
    ]


def test_what_a_file_does_not_have_stays_unless_it_is_to_be_destroyed() -> None:
    found = Standing(HAVE, messages={("queue", "a"): 3, ("queue", "mq.sys.dmq"): 0})
    assert said(Declaration(), found) == ["No changes. The instance is as the file declares it."]
    assert said(Declaration(), found, prune=True) == [
        "  ~ access rules",
        '      - queue.a.consume.allow.user = ["bob"]',
        "  - bridge shop",
        "  - queue a",
        "      - 3 messages are lost",
        "  ~ queue mq.sys.dmq",
        "      - maxNumMsgs = 5",
        "  - user bob",
        "Plan: 0 to create, 2 to change, 3 to destroy.",
    ]
    # About what a file has no section for, it says nothing.
    topics = Declaration(sections=frozenset({"topic"}))
    assert changes(topics, found, prune=True) == []


def test_a_rule_is_shown_so_that_it_can_be_read_in_one_way_only() -> None:
    have = Declaration({"queue.a.consume.allow.user": ["alice", "bob"]})
    wanted = Declaration(
        {
            "queue.a.consume.allow.user": ["alice,bob"],
            "queue.a = b, c.consume.allow.user": [],
        }
    )
    assert said(wanted, Standing(have))[1:3] == [
        '      + "queue.a = b, c.consume.allow.user" = []',
        '      ~ queue.a.consume.allow.user = ["alice", "bob"] -> ["alice,bob"]',
    ]


def test_a_destination_that_is_there_is_not_made_again() -> None:
    wanted = Declaration(destinations={("queue", "used"): {}, ("queue", "set"): {}})
    found = Standing(Declaration(), {("queue", "used"): {}}, frozenset({("queue", "set")}))
    assert said(wanted, found) == [
        "  ~ queue used",
        "      ~ stays when no client uses it",
        "Plan: 0 to create, 1 to change, 0 to destroy.",
    ]


def test_what_a_queue_has_by_use_is_reset_where_the_file_does_not_say_it() -> None:
    queue = ("queue", "used")
    wanted = Declaration(destinations={queue: {"maxNumMsgs": "10"}})
    used = {"address": "orders", "maxNumMsgs": "5"}
    assert said(wanted, Standing(Declaration(), {queue: used}))[1:4] == [
        "      ~ stays when no client uses it",
        "      - address = orders",
        "      ~ maxNumMsgs = 5 -> 10",
    ]
