"""The rules of a target, as they are read, and what is said of wrong ones."""

from __future__ import annotations

import pytest

from bridge.config.model import Rule, SetHeader
from bridge.config.rules import value_of
from gateway.messaging.values import Byte, Float, Int, Short
from tests.bridge.config.documents import bridge, document, link, told


def ruled(*rules: str) -> str:
    target = '<target connection-factory-ref="there" destination-ref="out">'
    return document(link(target=f"{target}{''.join(rules)}</target>"))


def test_a_whole_rule() -> None:
    [first, second] = (
        bridge(
            ruled(
                """<rule when="country = 'DE'" destination-ref="in" last="true">
                  <description>Germany</description>
                  <remove name="debug"/><remove name="x-*"/>
                  <rename name="customer" to="customer_id"/>
                  <set name="total" value="3" type="int"/><set name="JMSCorrelationID" from="order_id"/>
                </rule>""",
                '<rule drop="true"/>',
            )
        )
        .links[0]
        .target.rules
    )
    assert first.destination is not None
    assert first.destination.ref_name == "in"
    assert first.description == "Germany"
    assert (first.when, first.last, first.drop) == ("country = 'DE'", True, False)
    assert first.removes == ("debug", "x-*")
    assert first.renames == (("customer", "customer_id"),)
    assert first.sets == (
        SetHeader("total", "3", "int"),
        SetHeader("JMSCorrelationID", source="order_id"),
    )
    assert second == Rule(drop=True)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("<rule/>", "something to do: remove, rename or set in it"),
        ('<rule when="a ="><remove name="b"/></rule>', "a message selector, or no attribute"),
        ('<rule drop="true"><remove name="b"/></rule>', 'no changes in it, because drop="true"'),
        ('<rule drop="true" destination-ref="in"/>', 'no destination, because drop="true"'),
        ('<rule destination-ref="inn"/>', "the ref-name of a destination of this file"),
        ('<rule><set name="a"/></rule>', "one of value and from"),
        ('<rule><set name="a" value="1" from="b"/></rule>', "one of value and from"),
        ('<rule><set name="a" value="x" type="int"/></rule>', "a whole number from -2147483648"),
        ('<rule><set name="a" value="128" type="byte"/></rule>', "a whole number from -128 to 127"),
        ('<rule><set name="a" value="yes" type="boolean"/></rule>', "true or false"),
        ('<rule><set name="a" value="1e39" type="float"/></rule>', "and no larger than"),
        ('<rule><set name="x-a" value="1" type="int"/></rule>', "x-a is no property of JMS"),
        ('<rule><set name="a" from="b" type="int"/></rule>', "no type, because from has one"),
        ('<rule><set name="JMSPriority" value="10"/></rule>', "one of 0, 1, 2"),
        ('<rule><set name="JMSPriority" from="a"/></rule>', "a value instead, which is one of 0"),
        ('<rule><set name="JMSMessageID" value="1"/></rule>', "JMSType, JMSPriority"),
        ('<rule><set name="a" from="JMSReplyTo"/></rule>', "a header that a rule can read"),
        ('<rule><remove name="JMSPriority"/></rule>', "of JMS these: JMSCorrelationID, JMSType"),
        ('<rule><remove name="JMS*"/></rule>', "of JMS these: JMSCorrelationID, JMSType"),
        ('<rule><rename name="a" to="_AMQ_DUPL_ID"/></rule>', "is not for rules to change"),
        ('<rule><remove name=" "/></rule>', "the name of a header"),
        ('<rule><add name="a"/></rule>', "an element that rule has"),
    ],
)
def test_what_is_wrong_is_said(rule: str, problem: str) -> None:
    found = told(ruled(rule))
    assert len(found) == 1, found
    assert problem in found[0]
    assert "of target of link" in found[0]


def test_a_rule_that_nothing_comes_to_is_warned_of() -> None:
    [warning] = told(ruled('<rule last="true"/>', '<rule when="a = 1" drop="true"/>'))
    assert "is the last for all of them" in warning


def test_a_rule_that_sends_back_to_the_source_is_warned_of() -> None:
    here = '<target connection-factory-ref="here" destination-ref="out">'
    rule = '<rule when="a = 1" destination-ref="in"/>'
    [warning] = told(document(link(target=f"{here}{rule}</target>")))
    assert "its messages go round for ever" in warning
    assert told(ruled(rule)) == [], "there it is another broker's"


def test_a_name_as_stomp_has_it_is_warned_of() -> None:
    [warning] = told(ruled('<rule><set name="priority" value="9"/></rule>'))
    assert "JMSPriority, unless another header called priority is meant" in warning
    for change in (
        '<remove name="correlation-id"/>',
        '<rename name="correlation-id" to="order"/>',
        '<rename name="order" to="correlation-id"/>',
    ):
        [warning] = told(ruled(f"<rule>{change}</rule>"))
        assert "JMSCorrelationID, unless another header" in warning
    # That cannot be removed under its name in JMS, either.
    assert told(ruled('<rule><remove name="priority"/></rule>')) == []


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "1", "1"),
        ("boolean", "false", False),
        ("byte", "-128", Byte(-128)),
        ("short", "32767", Short(32767)),
        ("int", "5", Int(5)),
        ("long", "9223372036854775807", 2**63 - 1),
        ("float", "1.5", Float(1.5)),
        ("double", "1e300", 1e300),
    ],
)
def test_values_have_their_type(kind: str, text: str, value: object) -> None:
    made = value_of(kind, text)
    assert made == value
    assert type(made) is type(value)
