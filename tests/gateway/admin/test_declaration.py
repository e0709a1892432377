"""An instance as one file: it is read back as it was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admin.cli.declaration import (
    Declaration,
    DeclarationRefused,
    DeclaredBridge,
    DeclaredUser,
    read,
    written,
)
from gateway.admin.cli.toml_places import Places

# Whatever can be in a file of text in UTF-8, with what is special in TOML more often.
TEXT = st.text(
    st.one_of(
        st.sampled_from("'\"\\\n\r\t#[]=. "),
        st.characters(codec="utf-8", exclude_categories=["Cs"]),
    ),
    max_size=12,
)
NAMES = TEXT.filter(bool)
QUEUE_PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "maxNumMsgs": st.integers(-1, 10**6).map(str),
        "useDMQ": st.sampled_from(["true", "false"]),
        "limitBehavior": st.sampled_from(["REMOVE_OLDEST", "FLOW_CONTROL"]),
        "backOffMultiplier": st.sampled_from(["1.5", "2.0"]),
    },
)
USERS = st.builds(
    DeclaredUser,
    st.lists(NAMES, max_size=3, unique=True).map(lambda names: tuple(sorted(names))),
    TEXT,
    st.booleans(),
    st.booleans(),
)
BRIDGES = st.builds(
    DeclaredBridge,
    st.dictionaries(NAMES.filter(lambda name: name != "type"), TEXT, max_size=3),
    TEXT,
)
DECLARATIONS = st.builds(
    Declaration,
    st.dictionaries(NAMES, st.lists(NAMES, max_size=3, unique=True).map(sorted), max_size=3),
    st.dictionaries(NAMES, USERS, max_size=3),
    st.dictionaries(
        st.tuples(st.sampled_from(["queue", "topic"]), NAMES), QUEUE_PROPERTIES, max_size=4
    ),
    st.dictionaries(NAMES, BRIDGES, max_size=3),
)


@given(DECLARATIONS)
def test_what_is_written_is_read_back(declared: Declaration) -> None:
    text = written(declared)
    assert read(text, "x.toml") == declared
    lines, known = text.split("\n"), Places(text).known
    for name in declared.users:
        assert lines[known["user", name].line - 1].startswith("[user.")
    for name, bridge in declared.bridges.items():
        if bridge.document:
            assert lines[known["bridge", name, "document"].line - 1].startswith("document = ")


def test_a_document_stands_in_it_as_it_is() -> None:
    document = '<jmsbridge name="shop">\n  <link name="a"/>\n</jmsbridge>\n'
    text = written(Declaration(bridges={"shop": DeclaredBridge({"level": "FINE"}, document)}))
    assert f"document = '''\n{document}'''\n" in text


def test_two_that_declare_the_same_are_the_same_text() -> None:
    one = Declaration(destinations={("queue", "a"): {}, ("queue", "b"): {}})
    other = Declaration(destinations={("queue", "b"): {}, ("queue", "a"): {}})
    assert written(one) == written(other)


def test_everything_that_is_wrong_is_told() -> None:
    text = """
    format = 2
    queues = {}
    [queue.a]
    maxNumMsg = 1
    [queue.b]
    maxNumMsgs = "many"
    [user.bob]
    groups = "traders"
    passcode = "secret"
    [access]
    "queue.a.consume.allow.user" = "bob"
    [bridge.shop]
    properties = {level = 1}
    """
    with pytest.raises(DeclarationRefused) as refused:
        read(text, "x.toml")
    said = str(refused.value).splitlines()
    what = "queue.b.maxNumMsgs: maxNumMsgs=many: expected "
    assert said[3].startswith(f"x.toml:7:5: {what}")
    del said[3]
    assert said == [
        "x.toml:2:5: format: expected format = 1",
        "x.toml:3:5: queues: unknown; expected one of access, user, queue, topic, bridge",
        "x.toml:5:5: queue.a.maxNumMsg: there is no property maxNumMsg; maxNumMsgs may be meant",
        "x.toml:9:5: user.bob.groups: expected a list of names",
        "x.toml:10:5: user.bob.passcode: unknown; expected one of groups, hash, active, loopback",
        'x.toml:12:5: access."queue.a.consume.allow.user": expected a list of names',
        "x.toml:14:19: bridge.shop.properties.level: expected a text",
    ]
    with pytest.raises(DeclarationRefused, match=r"x\.toml: expected TOML: .*line 1, column 7"):
        read("[queue\n", "x.toml")


def test_lines_are_known_after_texts_of_several_lines() -> None:
    text = """format = 1
[bridge.shop]
document = '''
[queue.a]
maxNumMsgs = "no"
'''
properties.level = "FINE" # of the log
[queue]
"a b".maxNumMsgs = 1
c = {useDMQ = true, maxNumMsgs = "many", maxNumMsg = 1}
[access]
d = [
["queue.a"],
]
"""
    assert Places(text).known == {
        ("format",): (1, 1),
        ("bridge",): (2, 2),
        ("bridge", "shop"): (2, 9),
        ("bridge", "shop", "document"): (3, 1),
        ("bridge", "shop", "properties"): (7, 1),
        ("bridge", "shop", "properties", "level"): (7, 12),
        ("queue",): (8, 2),
        ("queue", "a b"): (9, 1),
        ("queue", "a b", "maxNumMsgs"): (9, 7),
        ("queue", "c"): (10, 1),
        ("queue", "c", "useDMQ"): (10, 6),
        ("queue", "c", "maxNumMsgs"): (10, 21),
        ("queue", "c", "maxNumMsg"): (10, 42),
        ("access",): (11, 2),
        ("access", "d"): (12, 1),
    }
    with pytest.raises(DeclarationRefused) as refused:
        read(text, "x")
    assert [line.split(": ")[:2] for line in str(refused.value).splitlines()] == [
        ["x:10:21", "queue.c.maxNumMsgs"],
        ["x:10:42", "queue.c.maxNumMsg"],
        ["x:12:1", "access.d"],
    ]


def test_a_name_that_is_there_twice_counts_once() -> None:
    text = """
        format = 1
        access."queue.a.consume.allow.user" = ["bob", "alice", "bob"]
        user.bob.groups = ["traders", "traders"]
    """
    declared = read(text, "file")
    assert declared.access == {"queue.a.consume.allow.user": ["alice", "bob"]}
    assert declared.users["bob"].groups == ("traders",)


def test_values_are_compared_as_the_broker_writes_them() -> None:
    text = 'format = 1\n[queue.a]\nmaxTotalMsgBytes = "1024k"\nuseDMQ = true\n'
    properties = read(text, "x").destinations[("queue", "a")]
    assert properties == {"maxTotalMsgBytes": "1m", "useDMQ": "true"}
