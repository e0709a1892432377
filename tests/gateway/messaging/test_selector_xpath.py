"""XPATH in selectors: what it matches, and what it may not ask for."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import pytest

from gateway.messaging.destination import Queue
from gateway.messaging.errors import InvalidSelector
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.selector.selector import parse
from gateway.messaging.selector.terms import terms_of

ORDER = b"""<?xml version='1.0' encoding='UTF-8'?>
<order id="7" xmlns:x="urn:x"><item price="12">tea</item><item price="3">\xc3\xa4</item><x:note/></order>"""


def message(body: bytes, body_type: BodyType = BodyType.TEXT) -> Message:
    return Message(Headers(Queue("q"), body_type=body_type, properties={"color": "red"}), body)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("order/item", True),
        ("//item", True),
        ("/order/item[@price = 12]", True),
        ("//item[@price > 12]", False),
        ("order[item = 'tea']/@id", True),
        ("//item[. = 'ä']", True),
        ("//*[local-name() = 'note']", True),
        ("count(//item) = 2", True),
        ("//item[2] and not(//item[3])", True),
        ("order/missing | order/item", True),
        ("//order[.//item[. = 'milk']]", False),
        ("order/@id = -7", False),
        ("item", False),
    ],
)
def test_it_is_asked_about_the_body(expression: str, wanted: bool) -> None:
    quoted = expression.replace("'", "''")
    for body_type in (BodyType.TEXT, BodyType.BYTES):
        assert parse(f"XPATH '{quoted}'").matches(message(ORDER, body_type)) is wanted


def test_it_is_a_condition_like_any_other() -> None:
    text = "color = 'red' AND NOT xpath '//milk' AND (XPath\n'//item' OR color = 'blue')"
    assert parse(text).matches(message(ORDER))
    assert not parse(text).matches(message(b"<milk/>"))
    assert terms_of("XPATH '//a[. = ''x'']' AND color = 'red'")[0].text == "XPATH '//a[. = ''x'']'"


def test_a_property_may_have_that_name() -> None:
    headers = Headers(Queue("q"), properties={"xpath": "a"})
    assert parse("xpath = 'a'").matches(Message(headers))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"tea",
        b"<item>",
        b"<item/><item/>",
        b"\xff<item/>",
        "<?xml version='1.0' encoding='utf-16'?><item/>".encode("utf-16"),
        b"<!DOCTYPE item><item/>",
        b"<!DOCTYPE item [<!ENTITY a 'b'>]><item>&a;</item>",
        b"<!DOCTYPE item SYSTEM 'file:///etc/passwd'><item/>",
        b"<item>&a;</item>",
    ],
)
def test_a_body_that_is_no_xml_does_not_match(body: bytes) -> None:
    for text in ("XPATH '//item'", "XPATH 'true()'"):
        assert not parse(text).matches(message(body, BodyType.BYTES))


def test_a_body_of_another_type_does_not_match() -> None:
    assert not parse("XPATH 'true()'").matches(message(b"<a/>", BodyType.OBJECT))


@pytest.mark.parametrize(
    "body",
    [
        b"<a>" + b"<b/>" * 1000 + b"</a>",
        b"<a>" + b" " * 65_536 + b"</a>",
        b"<a>" * 40 + b"</a>" * 40,
    ],
)
def test_a_body_that_is_too_large_is_unknown(body: bytes) -> None:
    for text in ("XPATH '/a'", "NOT XPATH '/a'"):
        assert not parse(text).matches(message(body))


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("order[", "is not XPath 1.0"),
        ("", "is not XPath 1.0"),
        ("x:note", "x has no namespace"),
        ("$price", "no variables"),
        ("document('a')", "the function document is not taken"),
        ("concat('a', 'b')", "the function concat is not taken"),
        ("//a/preceding::b", "the axis preceding is not taken"),
        ("//a//b", r"instead of //a//b write //a\[.//b\]"),
        ("(//a)//b", "searches within"),
        ("//a/and//b", "searches within"),
        ("//a/descendant::b", "searches within"),
        ("//a[//b]", "look only downwards"),
        ("//a[b or //b]", "look only downwards"),
        ("//a[2*/b]", "look only downwards"),
        ("//a[../b]", "look only downwards"),
        ("//a = //b", "a string or a number on one side"),
        ("//a[b = -c]", "a string or a number on one side"),
        ("//a | //b | //c | //d", "searches with // 4 times"),
        (" or ".join(["a='b'"] * 17), "compares 17 times"),
        ("a" * 257, "257 characters"),
    ],
)
def test_what_could_take_long_is_refused(expression: str, reason: str) -> None:
    quoted = expression.replace("'", "''")
    with pytest.raises(InvalidSelector, match=reason) as refused:
        parse(f"color = 'red' AND XPATH '{quoted}'")
    assert "column 25" in str(refused.value)


@pytest.mark.parametrize(
    "expression",
    [
        "//a[.//a[.//a]]",
        "//*[substring(substring(substring(substring(.,2),2),2),2)=''q'']",
        "//*|//*|//*",
        "//*[" + " or ".join(["contains(.,''q'')"] * 10) + "]",
    ],
)
def test_the_worst_takes_a_small_multiple_of_a_single_search(expression: str) -> None:
    combs = (b"<a>" * 30 + b"x" * 1800 + b"</a>" * 30) * 32
    bodies = [b"<a>" + combs + b"</a>", b"<a>" * 30 + b"<b/>" * 960 + b"</a>" * 30]
    for body in bodies:
        single, worst = least_seconds(("//q", expression), message(body))
        # Ten times what was measured.
        assert worst < 150 * single


def least_seconds(expressions: Sequence[str], asked: Message) -> list[float]:
    """Return the least processor time that each expression took.

    They take turns. So what else the machine does slows all of them, or one turn of one.
    """
    selectors = [parse(f"XPATH '{expression}'") for expression in expressions]
    least = [math.inf] * len(selectors)
    for _ in range(5):
        for number, selector in enumerate(selectors):
            began = time.process_time()
            selector.matches(asked)
            least[number] = min(least[number], time.process_time() - began)
    return least
