"""The access control file: its rules, their precedence, and errors that point at the line."""

from itertools import product
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.properties.names import matcher
from gateway.broker.security.access import DEFAULT_RULES, AccessError, AccessRules, Operation
from gateway.broker.security.users import ELSEWHERE, Principal
from gateway.messaging.destination import Destination, Kind, Queue, Topic

VERSION = "version=JMQFileAccessControlModel/100\n"
ALICE = Principal("alice", frozenset({"staff"}))
BOB = Principal("bob", frozenset({"staff", "interns"}))
LONER = Principal("loner", frozenset())
ADMIN = Principal("admin", frozenset({"admin"}))
Q = Queue("q")
PRODUCE, CONSUME, BROWSE, CREATE = (
    Operation.PRODUCE,
    Operation.CONSUME,
    Operation.BROWSE,
    Operation.CREATE,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "accesscontrol.properties"


def rules(file: Path, *lines: str) -> AccessRules:
    file.write_text(VERSION + "\n".join(lines) + "\n", encoding="utf-8")
    access = AccessRules(file)
    access.load()
    return access


def test_the_file_of_a_new_instance(file: Path) -> None:
    file.write_text(DEFAULT_RULES)
    access = AccessRules(file)
    access.load()
    for principal in (ALICE, LONER, ADMIN):
        assert access.may_connect(principal)
        assert access.may_connect(principal, "ADMIN") == (principal is ADMIN)
        for operation in (PRODUCE, CONSUME, CREATE):
            assert access.allows(principal, operation, Queue("q"), auto_created=True)
            assert access.allows(principal, operation, Topic("t"), auto_created=True)
        assert access.allows(principal, BROWSE, Queue("q"))


def test_what_nothing_allows_is_denied(file: Path) -> None:
    access = rules(file)
    assert not access.may_connect(ADMIN)
    assert not any(access.allows(ADMIN, operation, Queue("q")) for operation in Operation)


def test_before_the_first_load_nothing_is_allowed(file: Path) -> None:
    access = AccessRules(file)
    assert access.epoch == 0
    assert not access.may_connect(ALICE)


Asked = tuple[Principal, Operation, Destination] | tuple[Principal, Operation, Destination, bool]


@pytest.mark.parametrize(
    ("lines", "allowed", "denied"),
    [
        pytest.param(
            ["queue.*.produce.allow.user=*", "queue.q1.produce.deny.user=bob"],
            [(ALICE, PRODUCE, Queue("q1")), (BOB, PRODUCE, Queue("q2"))],
            [(BOB, PRODUCE, Queue("q1"))],
            id="a denial for a name wins over a permission for all",
        ),
        pytest.param(
            ["queue.*.produce.deny.user=bob", "queue.q1.produce.allow.user=*"],
            [(BOB, PRODUCE, Queue("q1"))],
            [],
            id="a permission for a name wins over a denial for all",
        ),
        pytest.param(
            ["queue.q.produce.allow.user=*", "queue.q.produce.deny.user=bob"],
            [(ALICE, PRODUCE, Q)],
            [(BOB, PRODUCE, Q)],
            id="a user wins over everyone",
        ),
        pytest.param(
            ["queue.q.produce.allow.user=*", "queue.q.produce.deny.group=interns"],
            [(ALICE, PRODUCE, Q)],
            [(BOB, PRODUCE, Q)],
            id="a group wins over everyone",
        ),
        pytest.param(
            ["queue.q.produce.allow.user=*", "queue.q.produce.deny.group=*"],
            [(ALICE, PRODUCE, Q)],
            [],
            id="every user wins over every group",
        ),
        pytest.param(
            ["queue.q.produce.allow.group=staff", "queue.q.produce.deny.user=bob"],
            [(ALICE, PRODUCE, Q)],
            [(BOB, PRODUCE, Q)],
            id="a user wins over its groups",
        ),
        pytest.param(
            [
                "queue.q.browse.allow.user=bob",
                "queue.q.browse.deny.user=bob",
                "queue.*.browse.allow.user=*",
            ],
            [(ALICE, BROWSE, Q)],
            [(BOB, BROWSE, Q)],
            id="allow and deny for the same user are a deny",
        ),
        pytest.param(
            ["queue.q.consume.allow.group=staff", "queue.q.consume.deny.group=interns"],
            [(ALICE, CONSUME, Q)],
            [(BOB, CONSUME, Q)],
            id="allow and deny for groups of one user are a deny",
        ),
        pytest.param(
            ["queue.q.consume.allow.group=*"],
            [(ALICE, CONSUME, Q)],
            [(LONER, CONSUME, Q)],
            id="every group is for users who have one",
        ),
        pytest.param(
            ["queue.q.consume.allow.user=alice", "queue.q.consume.allow.user=bob"],
            [(BOB, CONSUME, Q)],
            [(ALICE, CONSUME, Q)],
            id="of two lines with the same left side the last counts",
        ),
        pytest.param(
            ["queue.q.consume.allow.user= alice , Max Power,", "queue.p.consume.allow.user="],
            [(ALICE, CONSUME, Q), (Principal("Max Power", frozenset()), CONSUME, Q)],
            [(Principal("Max", frozenset()), CONSUME, Q), (ALICE, CONSUME, Queue("p"))],
            id="lists have blanks around names and none between names",
        ),
        pytest.param(
            [
                "queue.a.produce.allow.b.consume.allow.user=alice",
                "queue.create.produce.allow.user=bob",
            ],
            [(ALICE, CONSUME, Queue("a.produce.allow.b")), (BOB, PRODUCE, Queue("create"))],
            [(BOB, CREATE, Queue("create"))],
            id="names have dots and words of rules in them",
        ),
        pytest.param(
            [r"queue.my\ q\:1.consume.allow.user=alice", "queue.größe.consume.allow.user=alice"],
            [(ALICE, CONSUME, Queue("my q:1")), (ALICE, CONSUME, Queue("größe"))],
            [],
            id="names are escaped as in any properties file",
        ),
        pytest.param(
            ["queue.x.consume.allow.user=*", "topic.x.produce.allow.user=*"],
            [(ALICE, CONSUME, Queue("x")), (ALICE, PRODUCE, Topic("x"))],
            [(ALICE, CONSUME, Topic("x"))],
            id="queues and topics of one name are apart",
        ),
        pytest.param(
            ["queue.*.consume.allow.user=alice"],
            [(ALICE, CONSUME, Queue("*"))],
            [(BOB, CONSUME, Queue("*"))],
            id="a queue whose name is a star is not everything",
        ),
        pytest.param(
            [
                "queue.*.consume.allow.user=*",
                "queue.create.allow.user=alice",
                "topic.create.deny.group=interns",
            ],
            [
                (ALICE, CONSUME, Q, True),
                (BOB, CONSUME, Q, False),
                (ALICE, CREATE, Queue("anything")),
            ],
            [
                (BOB, CONSUME, Q, True),
                (ALICE, PRODUCE, Q, True),
                (ALICE, CREATE, Topic("anything")),
            ],
            id="what is created by use needs create as well",
        ),
        *(
            pytest.param(
                [f"{kind}.*.produce.allow.user=alice"],
                [
                    (ALICE, PRODUCE, temporary, True),
                    *((BOB, operation, temporary) for operation in (CONSUME, BROWSE, CREATE)),
                ],
                [(BOB, PRODUCE, temporary)],
                id=f"a temporary {kind} is asked about when sending only",
            )
            for kind, temporary in (
                ("queue", Destination(Kind.QUEUE, "t.1", True)),
                ("topic", Destination(Kind.TOPIC, "t.1", True)),
            )
        ),
    ],
)
def test_precedence_and_names(
    file: Path, lines: list[str], allowed: list[Asked], denied: list[Asked]
) -> None:
    access = rules(file, *lines)
    assert [asked for asked in [*allowed, *denied] if access.allows(*asked)] == allowed


def test_connection_rules(file: Path) -> None:
    access = rules(
        file,
        "connection.NORMAL.deny.user=bob",
        "connection.*.allow.group=staff",
        "connection.ADMIN.allow.user=admin",
    )
    assert access.may_connect(ALICE)
    assert not access.may_connect(BOB)
    assert access.may_connect(BOB, "ADMIN")
    assert access.may_connect(ADMIN, "ADMIN")
    assert not access.may_connect(ADMIN)


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("news.*", ["news.a", "news.größe"], ["news", "news.a.b", "other.a", "newsXa"]),
        ("*.a", ["news.a"], ["a", "news.b.a"]),
        ("news.>", ["news", "news.a", "news.a.b"], ["newsletter", "other"]),
        ("news>", ["news", "news.a", "news.a.b"], ["newsletter"]),
        ("news.**.z", ["news.a.z", "news.a.b.z"], ["news.z", "news.a"]),
        (">", ["a", "a.b"], []),
    ],
)
def test_topic_patterns(file: Path, pattern: str, fits: list[str], does_not: list[str]) -> None:
    access = rules(file, f"topic.{pattern}.consume.allow.user=alice")
    assert [
        name for name in [*fits, *does_not] if access.allows(ALICE, CONSUME, Topic(name))
    ] == fits


def test_rules_for_all_do_not_hold_for_advisory_topics(file: Path) -> None:
    access = rules(
        file,
        "topic.*.consume.allow.user=*",
        "topic.*.produce.allow.user=*",
        "topic.>.consume.allow.user=*",
        "topic.create.allow.user=*",
        "topic.ActiveMQ.Advisory.Consumer.>.consume.allow.user=alice",
        "topic.ActiveMQ.Advisory.Queue.consume.deny.group=admin",
    )
    connection, consumer, queue = (
        Topic(f"ActiveMQ.Advisory.{name}") for name in ("Connection", "Consumer.Queue.q", "Queue")
    )
    asked = list(product((ALICE, BOB, ADMIN), (connection, consumer, queue)))
    allowed = [each for each in asked if access.allows(each[0], CONSUME, each[1])]
    assert allowed == [(ALICE, consumer), (ADMIN, connection), (ADMIN, consumer)]
    assert not any(access.allows(who, PRODUCE, topic) for who, topic in asked)


RULE_NAMES = st.lists(
    st.sampled_from(("a", "b", "*", "**", ">", "b>")), min_size=1, max_size=3
).map(".".join)
PATTERNS = st.lists(st.sampled_from(("a", "b", "*")), max_size=3).flatmap(
    lambda levels: st.sampled_from((".".join([*levels, "*"]), ".".join([*levels, ">"])))
)
SHORT_TOPICS = [
    ".".join(levels) for count in (1, 2, 3, 4) for levels in product("ab", repeat=count)
]


@given(denied=RULE_NAMES, pattern=PATTERNS)
def test_at_another_broker_a_pattern_covers_nothing_that_is_denied(
    tmp_path_factory: pytest.TempPathFactory, denied: str, pattern: str
) -> None:
    access = AccessRules(tmp_path_factory.getbasetemp() / "accesscontrol.properties")
    lines = ("topic.*.consume.allow.user=*", f"topic.{denied}.consume.deny.user=alice")
    access.use((VERSION + "\n".join(lines) + "\n").encode())
    if access.allows_elsewhere(ALICE, CONSUME, Topic(pattern)):
        covers = matcher(pattern, none_or_more=True)
        covered = [name for name in SHORT_TOPICS if covers(name)]
        assert all(access.allows(ALICE, CONSUME, Topic(name)) for name in covered)


def test_at_another_broker_a_pattern_is_not_denied_by_what_it_cannot_cover(file: Path) -> None:
    access = rules(
        file,
        "topic.*.consume.allow.user=*",
        "topic.news.>.consume.deny.user=alice",
        "topic.a.*.x.consume.deny.user=alice",
    )
    for pattern, allowed in (
        ("prices.>", True),
        ("a.b.*", False),
        ("a.>", False),
        ("*.b", False),
        ("news", False),
        ("news.*", False),
        (">", False),
    ):
        may = access.allows_elsewhere(ALICE, CONSUME, Topic(pattern))
        assert may == allowed, pattern


def test_a_name_wins_over_a_pattern_and_a_pattern_over_all(file: Path) -> None:
    access = rules(
        file,
        "topic.*.consume.deny.user=*",
        "topic.news.>.consume.allow.user=*",
        "topic.news.secret.*.consume.deny.user=*",
        "topic.news.secret.open.consume.allow.user=*",
    )
    allowed = {"news.a": True, "news.secret.x": False, "news.secret.open": True, "other": False}
    assert {name: access.allows(ALICE, CONSUME, Topic(name)) for name in allowed} == allowed


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (
            "queues.*.produce.allow.user=*",
            "resource 'queues': expected connection, queue or topic; the nearest is queue",
        ),
        (
            "queue.*.produse.allow.user=*",
            "operation 'produse': expected produce, consume or browse; the nearest is produce",
        ),
        (
            "queue.*.produce.alow.user=*",
            "access 'alow': expected allow or deny; the nearest is allow",
        ),
        (
            "queue.*.produce.allow.users=*",
            "kind of principals 'users': expected user or group; the nearest is user",
        ),
        ("connection.normal.allow.user=*", "service type 'normal': expected NORMAL, ADMIN or *"),
        ("queue.allow.user=*", "expected RESOURCE.NAME.OPERATION.ACCESS.PRINCIPALS"),
        (
            "queue.produce.allow.user=*",
            "has no name; expected queue.NAME.produce.allow.user, where NAME may be *",
        ),
        ("queue.q.create.allow.user=*", "create has no name; expected queue.create.allow.user"),
        ("queue.a.*.produce.allow.user=*", "patterns are for topics"),
        (
            "queue.q.produce.allow.user=bob*",
            "'bob*': * stands for everyone and is no part of a name",
        ),
    ],
)
def test_lines_that_are_no_rules(file: Path, line: str, what: str) -> None:
    with pytest.raises(AccessError) as error:
        rules(file, "", "# a comment", line)
    assert (error.value.file, error.value.line) == (file, 4)
    assert str(error.value).startswith(f"{file}:4: ")
    assert what in str(error.value)


def test_files_that_are_none(file: Path) -> None:
    access = AccessRules(file)
    with pytest.raises(AccessError, match="cannot be read: No such file"):
        access.load()
    file.write_text("queue.*.produce.allow.user=*\n")
    with pytest.raises(
        AccessError, match="has no version; expected the line version=JMQFileAccessControlModel/100"
    ):
        access.load()
    file.write_text("\nversion=JMQFileAccessControlModel/101\n")
    with pytest.raises(AccessError) as error:
        access.load()
    assert error.value.line == 2
    file.write_bytes(VERSION.encode() + b"queue.\xff.produce.allow.user=*\n")
    with pytest.raises(AccessError) as error:
        access.load()
    assert (error.value.line, error.value.what) == (2, "expected text in UTF-8")


def test_reload_changes_the_rules_and_the_epoch_and_a_bad_file_neither(file: Path) -> None:
    access = rules(file, "queue.*.produce.allow.user=alice")
    assert access.epoch == 1
    file.write_text(VERSION + "queue.*.produce.allow.user=bob\n")
    access.reload()
    assert access.epoch == 2
    assert not access.allows(ALICE, PRODUCE, Queue("q"))
    assert access.allows(BOB, PRODUCE, Queue("q"))
    file.write_text(VERSION + "queue.*.produce.permit.user=*\n")
    with pytest.raises(AccessError):
        access.reload()
    assert access.epoch == 2
    assert access.allows(BOB, PRODUCE, Queue("q"))
    assert not access.allows(ALICE, PRODUCE, Queue("q"))


Line = tuple[str, Literal["allow", "deny"], Literal["user", "group"], frozenset[str]]

USERS, GROUPS, NAMES = ("alice", "bob", "carol"), ("staff", "interns", "boss"), ("q1", "q2", "*")
lines = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(NAMES),
            st.sampled_from(["allow", "deny"]),
            st.just("user"),
            st.frozensets(st.sampled_from([*USERS, "*"])),
        ),
        st.tuples(
            st.sampled_from(NAMES),
            st.sampled_from(["allow", "deny"]),
            st.just("group"),
            st.frozensets(st.sampled_from([*GROUPS, "*"])),
        ),
    ),
    max_size=14,
)


def expected(written: list[Line], principal: Principal, queue: str) -> bool:
    """The precedence, spelled out from the module's description and without its data structures:
    the first level with a say decides.
    """
    in_force = {(name, access, kind): names for name, access, kind, names in written}
    someone = [{"*"}] if principal.groups else []
    for name, (kind, whos) in product(
        (queue, "*"),
        (
            ("user", [{principal.name}]),
            ("group", [{group} for group in principal.groups]),
            ("user", [{"*"}]),
            ("group", someone),
        ),
    ):
        said = {
            access
            for access in ("allow", "deny")
            for who in whos
            if who <= in_force.get((name, access, kind), frozenset())  # type: ignore[arg-type]
        }
        if said:
            return said == {"allow"}
    return False


@given(lines, st.sampled_from(USERS), st.frozensets(st.sampled_from(GROUPS)))
def test_precedence_is_that_of_the_model(
    tmp_path_factory: pytest.TempPathFactory, written: list[Line], user: str, groups: frozenset[str]
) -> None:
    file = tmp_path_factory.getbasetemp() / "accesscontrol.properties"
    access = rules(
        file,
        *(
            f"queue.{name}.browse.{verdict}.{kind}={','.join(names)}"
            for name, verdict, kind, names in written
        ),
    )
    principal = Principal(user, groups)
    for queue in ("q1", "q2", "q3"):
        assert access.allows(principal, BROWSE, Queue(queue)) == expected(written, principal, queue)


@pytest.mark.parametrize("spelled", ["alice", "Alice", "ALICE ", "  alice", "\uff21lice"])
def test_a_broker_that_knows_the_user_may_not_tell_spellings_apart(
    file: Path, spelled: str
) -> None:
    found = rules(
        file,
        "connection.NORMAL.allow.user=*",
        "queue.*.consume.allow.user=*",
        "queue.secret.consume.deny.user=alice",
        "queue.own.consume.allow.user=alice",
        "queue.own.consume.deny.user=*",
    )
    secret, own = Queue("secret"), Queue("own")
    there = Principal(spelled, frozenset(), repository=ELSEWHERE)
    assert not found.allows(there, CONSUME, secret)
    assert found.reason(there, CONSUME, secret).rule == "queue.secret.consume.deny.user"
    assert found.allows(there, CONSUME, Queue("open"))
    # A right is given to the very name only.
    assert found.allows(there, CONSUME, own) is (spelled == "alice")
    here = Principal(spelled, frozenset())
    assert found.allows(here, CONSUME, secret) is (spelled != "alice")


def test_a_broker_that_has_both_spellings_may_have_a_rule_for_each(file: Path) -> None:
    found = rules(file, "queue.q.consume.allow.user=Alice", "queue.q.consume.deny.user=alice")
    for spelled, allowed in (("Alice", True), ("alice", False), ("ALICE", False)):
        there = Principal(spelled, frozenset(), repository=ELSEWHERE)
        assert found.allows(there, CONSUME, Queue("q")) is allowed


def test_the_rules_for_dead_messages_that_a_new_file_suggests(file: Path) -> None:
    """As they come everyone reads them, as in the original; without their ``#`` the group admin
    alone.
    """
    dead, other = Queue("mq.sys.dmq"), Queue("q")
    file.write_text(DEFAULT_RULES)
    access = AccessRules(file)
    access.load()
    assert all(access.allows(ALICE, operation, dead) for operation in (BROWSE, CONSUME, PRODUCE))
    file.write_text(DEFAULT_RULES.replace("#queue.mq.sys.dmq", "queue.mq.sys.dmq"))
    access.load()
    assert [
        [
            access.allows(principal, operation, destination, destination is other)
            for operation in (BROWSE, CONSUME, PRODUCE)
        ]
        for principal, destination in ((ALICE, dead), (ADMIN, dead), (ALICE, other))
    ] == [[False, False, False], [True, True, False], [True, True, True]]


_SIDES = st.sampled_from(["allow.user", "deny.user", "allow.group", "deny.group"])
_QUEUE_RULES = st.builds(
    "queue.{}.{}.{}".format,
    st.sampled_from(["*", "q", "a.b"]),
    st.sampled_from(["produce", "consume", "browse"]),
    _SIDES,
)
_TOPIC_RULES = st.builds(
    "topic.{}.{}.{}".format,
    st.sampled_from(["*", "a.b", "a.*", "a.>", "**.b", "ActiveMQ.Advisory.>"]),
    st.sampled_from(["produce", "consume"]),
    _SIDES,
)
_CREATE_RULES = st.builds("{}.create.{}".format, st.sampled_from(["queue", "topic"]), _SIDES)
_CONNECTING = st.builds(
    "connection.{}.{}".format, st.sampled_from(["NORMAL", "ADMIN", "*"]), _SIDES
)
_LISTS = st.sampled_from(["*", "alice", "staff", "interns,bob", "admin", ""])


@given(
    st.dictionaries(
        st.one_of(_QUEUE_RULES, _TOPIC_RULES, _CREATE_RULES, _CONNECTING), _LISTS, max_size=8
    )
)
def test_the_reason_of_each_verdict_is_a_rule_that_says_so(lines: dict[str, str]) -> None:
    access = AccessRules(Path("rules"))
    access.use((VERSION + "\n".join(f"{side}={names}" for side, names in lines.items())).encode())
    places = [Queue("q"), Queue("a.b"), Topic("a.b"), Topic("ActiveMQ.Advisory.Queue")]
    for principal in (ALICE, BOB, LONER, ADMIN):
        found = [
            (access.reason(principal, operation, place), access.allows(principal, operation, place))
            for operation, place in product(Operation, places)
        ]
        found += [
            (access.connecting(principal, service), access.may_connect(principal, service))
            for service in ("NORMAL", "ADMIN")
        ]
        for reason, allowed in found:
            assert reason.allowed == allowed
            assert bool(reason.rule) != bool(reason.text)
            if reason.rule:
                assert f".{'allow' if allowed else 'deny'}." in reason.rule
                assert sorted(filter(None, lines[reason.rule].split(","))) == list(reason.names)
