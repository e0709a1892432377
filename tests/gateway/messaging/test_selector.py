"""Selectors: the examples and rules of JMS 1.1, section 3.8, and what the documents add to them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gateway.messaging.destination import Queue
from gateway.messaging.errors import InvalidSelector, SelectorTooCostly
from gateway.messaging.message import Headers, Message
from gateway.messaging.selector.grammar import MAX_DEPTH, MAX_LENGTH
from gateway.messaging.selector.selector import Selector, is_property_name, parse
from gateway.messaging.values import Byte, Char, Float, Int, Short, Value


def a_message(**properties: Value) -> Message:
    return Message(Headers(Queue("q"), properties=properties))


def three_valued(text: str, message: Message) -> bool | None:
    """True, False, or None for unknown, seen from outside: unknown is what neither the condition
    nor its opposite is.
    """
    if parse(text).matches(message):
        return True
    return False if parse(f"NOT ({text})").matches(message) else None


PROPERTIES: dict[str, Value] = {
    "red": "red",
    "quote": "it's",
    "five": 5,
    "text5": "5",
    "text5_5": " 5",
    "half": 0.5,
    "yes": True,
    "no": False,
    "text_yes": "true",
    "text_no": "FALSE",
    "nothing": None,
    "octets": b"5",
    "byte": Byte(5),
    "short": Short(5),
    "int": Int(5),
    "float": Float(5),
    "char": Char("c"),
    "long": 2**63 - 1,
    "least": -(2**63),
    "under_score": "1_000",
    "arabic": "٥",
    "word": "five",
    "octal": "017",
    "exponent": "5e0",
    "point": "5.",
    "minus": "-5",
    "huge": "1e999",
    "beyond": "9223372036854775808",
    "least_text": "-9223372036854775808",
    "not_a_number": float("nan"),
    "infinite": float("inf"),
    "zeros": "0" * 5000 + "5",
    "digits": "9" * 5000,
    "$d_1": "dollar",
    "größe": 1,
    "JMSXGroupID": "g",
    "JMS_SUN_x": "s",
    "ANDroid": 1,
}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        # Strings.
        ("red = 'red'", True),
        ("'red' = red", True),
        ("red = 'RED'", False),
        ("red <> 'blue'", True),
        ("'blue' <> red", True),
        ("red <> 'red'", False),
        ("quote = 'it''s'", True),
        ("'a' = 'a'", True),
        ("'a' <> 'a'", False),
        ("red = quote", False),
        ("red <> quote", True),
        ("char = 'c'", True),
        # Absent and null are unknown.
        ("absent = 'x'", None),
        ("absent <> 'x'", None),
        ("absent = 5", None),
        ("absent > 5", None),
        ("5 > absent", None),
        ("absent + 1 = 2", None),
        ("1 + absent = 2", None),
        ("nothing = 'x'", None),
        ("absent = absent", None),
        ("five = absent", None),
        ("absent LIKE 'x'", None),
        ("absent NOT LIKE 'x'", None),
        ("absent IN ('x')", None),
        ("absent NOT IN ('x')", None),
        ("absent BETWEEN 1 AND 2", None),
        ("absent NOT BETWEEN 1 AND 2", None),
        ("five BETWEEN absent AND 2", False),
        ("five BETWEEN absent AND 7", None),
        ("five BETWEEN 1 AND absent", None),
        ("five NOT BETWEEN 7 AND absent", True),
        ("five NOT BETWEEN absent AND 7", None),
        ("five NOT BETWEEN absent AND 2", True),
        ("-absent = 1", None),
        ("absent", None),
        ("absent IS NULL", True),
        ("absent IS NOT NULL", False),
        ("nothing IS NULL", True),
        ("five IS NULL", False),
        ("five IS NOT NULL", True),
        # Three-valued logic (tables 3-4 to 3-6).
        ("yes AND yes", True),
        ("yes AND no", False),
        ("yes AND absent", None),
        ("no AND absent", False),
        ("absent AND no", False),
        ("absent AND absent", None),
        ("yes OR absent", True),
        ("absent OR yes", True),
        ("no OR absent", None),
        ("no OR no", False),
        ("NOT yes", False),
        ("NOT no", True),
        ("NOT absent", None),
        ("NOT NOT yes", True),
        ("yes OR no AND no", True),
        ("(yes OR no) AND no", False),
        ("NOT yes OR yes", True),
        ("NOT no AND no", False),
        # Booleans.
        ("yes = TRUE", True),
        ("TRUE = yes", True),
        ("yes <> FALSE", True),
        ("no = false", True),
        ("yes = no", False),
        ("yes <> no", True),
        ("TRUE", True),
        ("FALSE", False),
        ("TRUE AND NOT FALSE", True),
        ("(five = 5) = TRUE", True),
        ("(five = 6) = no", True),
        ("(absent = 6) = no", None),
        ("red", None),
        ("five", None),
        # A String of the message counts as the boolean it reads as, where a boolean is needed.
        ("text_yes", True),
        ("text_no", False),
        ("NOT text_yes", False),
        ("NOT text_no", True),
        ("NOT red", None),
        ("text_yes AND five = 5", True),
        ("text_no OR (text_yes)", True),
        ("text_yes = TRUE", True),
        ("text_yes = FALSE", False),
        ("text_yes <> FALSE", True),
        ("text_no <> TRUE", True),
        ("text_no = FALSE", True),
        ("TRUE = text_yes", True),
        ("TRUE <> text_no", True),
        ("text_yes = yes", True),
        ("no = text_no", True),
        ("yes <> text_no", True),
        ("text_yes = (five = 5)", True),
        ("(five = 6) <> text_yes", True),
        ("text_yes = 'true'", True),
        ("text_no = 'false'", False),
        ("text_yes = text_yes", True),
        ("text_yes LIKE 'tr%'", True),
        ("TRUE = 'true'", False),
        ("absent = TRUE", None),
        # Numbers: exact, approximate, and both.
        ("five = 5", True),
        ("five = 5.0", True),
        ("5 = five", True),
        ("5.0 = five", True),
        ("five <> 5", False),
        ("five <> 5.5", True),
        ("five < 6", True),
        ("6 > five", True),
        ("6 < five", False),
        ("five <= 5", True),
        ("5 <= five", True),
        ("five >= 5.1", False),
        ("five > 4.9", True),
        ("half < 1", True),
        ("byte = 5 AND short = 5 AND int = 5 AND float = 5", True),
        ("byte = short AND int = float", True),
        ("five BETWEEN 5 AND 5", True),
        ("five BETWEEN 6 AND 4", False),
        ("five NOT BETWEEN 1 AND 4", True),
        ("five between 4.5 and 5.5", True),
        ("long = 9223372036854775807", True),
        ("least = -9223372036854775808", True),
        ("long = 9223372036854775808.0", True),  # Java makes a double of the long
        ("long < 9223372036854775807.0", False),
        ("five = 0x5", True),
        ("five = 05L", True),
        ("0X1fL = 037", True),
        ("five = 5l", True),
        ("half = .5", True),
        ("half = 5e-1", True),
        ("half = 0.5f", True),
        ("half = 5E-1D", True),
        ("five = 5.", True),
        ("five = 5d", True),
        ("0.1f = 0.1", False),
        ("0.5F = 0.5", True),
        ("1 = 1", True),
        ("1 <> 1.0", False),
        # Arithmetic.
        ("five + 1 = 6", True),
        ("five - 1 - 1 = 3", True),
        ("five - (1 - 1) = 5", True),
        ("1 + five * 2 = 11", True),
        ("(1 + five) * 2 = 12", True),
        ("-five = -5", True),
        ("+five = 5", True),
        ("- -five = 5", True),
        ("-(-five) = 5", True),
        ("five -1 = 4", True),
        ("five / 2 = 2", True),
        ("-five / 2 = -2", True),
        ("five / -2 = -2", True),
        ("five / 2.0 = 2.5", True),
        ("8 / 2 / 2 = 2", True),
        ("8 / (4 / 2) = 4", True),
        ("five * half = 2.5", True),
        ("five * five = five + 20", True),
        # What has no result is unknown.
        ("five / 0 = 1", None),
        ("five / 0.0 = 1", None),
        ("five / (five - 5) <> 1", None),
        ("long + 1 > 0", None),
        ("least - 1 < 0", None),
        ("-least > 0", None),
        ("least / -1 > 0", None),
        ("long * long > 0", None),
        ("1e308 * 10 > 0", None),
        ("infinite * 2 > 0", None),
        ("infinite > 0", True),
        ("not_a_number = 1", False),
        ("not_a_number <> 1", False),
        ("not_a_number < 1", False),
        ("not_a_number + 1 = 1", None),
        # A String of the message counts as the number it reads as, where a number is needed.
        ("text5 = 5", True),
        ("5 = text5", True),
        ("text5 <> 5", False),
        ("text5 = 5.0", True),
        ("text5 > 4", True),
        ("4 < text5", True),
        ("text5 BETWEEN 5 AND 6", True),
        ("five BETWEEN text5 AND text5", True),
        ("text5 + 1 = 6", True),
        ("-text5 = minus", True),
        ("minus = -5", True),
        ("five = text5", True),
        ("text5 = five", True),
        ("five <> text5", False),
        ("text5 <> half", True),
        ("text5 <= exponent", True),
        ("exponent = 5", True),
        ("point = 5", True),
        ("octal = 17", True),
        ("least_text = -9223372036854775808", True),
        ("beyond > 9223372036854775807.0", False),
        ("beyond = 9223372036854775808.0", True),
        ("zeros = 5", True),
        ("digits > 5", None),
        # ... and is unknown there if it does not read as one.
        ("word = 5", None),
        ("word <> 5", None),
        ("five = word", None),
        ("word = five", None),
        ("word > 5", None),
        ("word + 1 = 5", None),
        ("text5_5 = 5", None),
        ("under_score > 5", None),
        ("arabic = 5", None),
        ("huge > 5", None),
        ("word BETWEEN 1 AND 2", None),
        # A string stays a string beside a string.
        ("text5 = '5'", True),
        ("text5 = '5.0'", False),
        ("text5 = exponent", False),
        ("text5 IN ('5')", True),
        ("text5 LIKE '_'", True),
        # A literal never counts as a number; what is not alike is false, with = and with <>.
        ("five = '5'", False),
        ("five <> '5'", False),
        ("'5' = five", False),
        ("5 = '5'", False),
        ("5 <> '5'", False),
        ("five + 0 = '5'", False),
        ("'5' <> five + 0", False),
        ("yes = 'true'", False),
        ("yes <> 'true'", False),
        ("yes = 1", False),
        ("yes <> 1", False),
        ("red = TRUE", None),
        ("red <> TRUE", None),
        ("yes = red", None),
        ("five = TRUE", False),
        ("text5 = TRUE", None),
        ("yes > 0", False),
        ("yes < five", False),
        ("yes + 1 = 2", None),
        ("yes BETWEEN 0 AND 1", False),
        ("yes NOT BETWEEN 0 AND 1", False),
        ("octets = '5'", False),
        ("octets <> '5'", False),
        ("octets = 5", False),
        ("octets = five", False),
        ("five = octets", False),
        ("octets = octets", False),
        ("octets LIKE '5'", False),
        ("octets IS NULL", False),
        ("five LIKE '5'", False),
        ("five NOT LIKE '5'", False),
        ("five IN ('5')", False),
        ("five NOT IN ('5')", False),
        # IN and LIKE.
        ("red IN ('blue', 'red')", True),
        ("red NOT IN ('blue', 'red')", False),
        ("red NOT IN ('blue')", True),
        ("quote IN ('it''s')", True),
        ("red LIKE 'r%'", True),
        ("red NOT LIKE 'r%'", False),
        ("red LIKE '_e_'", True),
        ("under_score LIKE '1!_%' ESCAPE '!'", True),
        ("red LIKE 'r!_%' ESCAPE '!'", False),
        ("quote LIKE '%''s'", True),
        ("(red) LIKE 'red'", True),
        # Words and names.
        ("red not in ('x') And nOt no oR no", True),
        ("ANDroid = 1", True),
        ("$d_1 = 'dollar'", True),
        ("größe = 1", True),
        ("Red = 'red'", None),
        ("JMSXGroupID = 'g'", True),
        ("JMSXDeliveryCount > 1", None),
        ("JMS_SUN_x = 's'", True),
        ("\tred\n=\r\f'red' ", True),
        ("five=5AND red='red'", True),
        ("big-five = 'x'", None),  # a difference
    ],
)
def test_what_a_selector_says(text: str, result: bool | None) -> None:
    assert three_valued(text, a_message(**PROPERTIES)) is result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("JMSDeliveryMode = 'PERSISTENT'", True),
        ("JMSDeliveryMode = 'NON_PERSISTENT'", False),
        ("JMSDeliveryMode > 1", None),
        ("JMSPriority = 4", True),
        ("JMSPriority >= 5", False),
        ("JMSPriority BETWEEN 0 AND 9", True),
        ("JMSPriority + 1 = 5", True),
        ("JMSMessageID = 'ID-1'", True),
        ("JMSMessageID LIKE 'ID-%'", True),
        ("JMSTimestamp > 1600000000000", True),
        ("JMSCorrelationID = 7", True),
        ("JMSCorrelationID = '7'", True),
        ("JMSType IS NULL", True),
        ("JMSType = 'x'", None),
        ("JMSXUserID = 'guest'", True),
        ("JMSPriority IS NULL", False),
    ],
)
def test_header_fields(text: str, result: bool | None) -> None:
    # A property of the same name does not hide the field.
    headers = Headers(
        Queue("q"), correlation_id="7", properties={"JMSPriority": 9, "JMSXUserID": "forged"}
    )
    message = Message(headers, timestamp=1_700_000_000_000, message_id="ID-1")
    message.user = "guest"
    assert three_valued(text, message) is result


def test_what_is_not_known_yet_is_null() -> None:
    message = Message(Headers(Queue("q"), persistent=False))
    assert parse(
        "JMSMessageID IS NULL AND JMSXUserID IS NULL AND JMSCorrelationID IS NULL"
    ).matches(message)
    assert parse("JMSDeliveryMode = 'NON_PERSISTENT'").matches(message)


def test_headers_that_are_no_properties_are_not_seen() -> None:
    headers = Headers(Queue("q"), extras=(("color", "red"),))
    assert not parse("color = 'red'").matches(Message(headers))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("hyphenated_props:foo-bar = 'zzz'", True),
        ("hyphenated_props:foo-bar='no'", False),
        ("hyphenated_props:foo-bar LIKE 'z%' AND hyphenated_props:a-number > 41", True),
        ("hyphenated_props:a-number + 1 = 43", True),
        ("(hyphenated_props:is-true)", True),
        ("hyphenated_props:foo-bar IN ('y', 'zzz')", True),
        ("hyphenated_props:not-there IS NULL", True),
        ("hyphenated_props:not-there = 'zzz'", None),
        ("hyphenated_props:color = 'red'", True),
        ("hyphenated_props:JMSPriority = 4", True),
        ("hyphenated_props:foo-bar = 'zzz' AND a-number > 41", True),
        ("convert_string_expressions:hyphenated_props:not-there = 'a' OR a-number - 1 = 41", True),
        ("hyphenated_props:color = 'red' AND NOT is-true = FALSE", True),
        ("color = 'red' AND hyphenated_props:is-true", True),
    ],
)
def test_headers_whose_names_have_a_hyphen(text: str, result: bool | None) -> None:
    extras = (("foo-bar", "zzz"), ("a-number", "42"), ("is-true", "true"))
    headers = Headers(Queue("q"), properties={"color": "red"}, extras=extras)
    assert three_valued(text, Message(headers)) is result


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("", 0, "blank"),
        (" \t\n", 0, "blank"),
        ("hyphenated_props: a = 'x'", 17, "':' has no meaning"),
        ("hyphenated_props:", 17, "':' has no meaning"),
        ("a = ", 5, "the selector ends, where an operand is expected"),
        ("a AND", 6, "the selector ends, where a condition is expected"),
        ("a = 'x", 5, "the string is not closed"),
        ("a = 'it's'", 9, "'s' stands here, where"),
        ('a = "x"', 5, "single quotes"),
        ("a != 1", 3, "written <>"),
        ("a == 1", 4, "'=' stands here, where an operand"),
        ("a = 1 = 2", 7, "'=' stands here, where AND, OR or the end"),
        ("a b", 3, "'b' stands here, where an operator or the end"),
        ("(a", 3, "the selector ends, where ')' is expected"),
        ("a)", 2, "')' stands here"),
        ("()", 2, "')' stands here, where a condition"),
        ("a # b", 3, "'#' has no meaning"),
        ("a . b", 3, "'.' has no meaning"),
        ("a\xa0= 1", 2, "cannot be part of an identifier"),
        ("²a = 1", 1, "cannot be part of an identifier"),
        ("1", 1, "a condition is expected here, and this is a number"),
        ("'x'", 1, "a condition is expected here, and this is a string"),
        ("a + 1", 1, "a condition is expected"),
        ("a AND 'x'", 7, "a condition is expected here, and this is a string"),
        ("5 OR a", 1, "a condition is expected"),
        ("NOT 5", 5, "a condition is expected"),
        ("a > 'x'", 5, "> compares numbers, and this is a string"),
        ("TRUE < a", 1, "< compares numbers, and this is a condition"),
        ("a + 'x' = 1", 5, "a number is expected here, and this is a string"),
        ("-'x' = a", 2, "a number is expected"),
        ("-(a = 1) = 1", 2, "a number is expected here, and this is a condition"),
        ("-TRUE", 2, "a number is expected"),
        ("a BETWEEN 'x' AND 'y'", 11, "a number is expected"),
        ("a BETWEEN 1", 12, "the selector ends"),
        ("a BETWEEN 1 OR 2", 13, "'OR' stands here"),
        ("'x' LIKE 'x'", 1, "left of LIKE must be an identifier"),
        ("a + 1 LIKE 'x'", 1, "left of LIKE must be an identifier"),
        ("5 IN ('x')", 1, "left of IN must be an identifier"),
        ("5 IS NULL", 1, "left of IS must be an identifier"),
        ("a IN ()", 7, "')' stands here, where a string is expected"),
        ("a IN (1)", 7, "'1' stands here, where a string is expected"),
        ("a IN ('x'", 10, "the selector ends"),
        ("a IN 'x'", 6, "where '(' is expected"),
        ("a LIKE b", 8, "'b' stands here, where a string is expected"),
        ("a LIKE 'x' ESCAPE 'ab'", 19, "must be one character"),
        ("a LIKE 'x' ESCAPE ''", 19, "must be one character"),
        ("a LIKE 'x!' ESCAPE '!'", 20, "nothing to escape"),
        ("a IS 5", 6, "'5' stands here"),
        ("a IS NOT", 9, "where NULL is expected"),
        ("a NOT = 1", 7, "where BETWEEN, IN or LIKE is expected"),
        ("NULL = 1", 1, "'NULL' stands here"),
        ("a = NULL", 5, "'NULL' stands here"),
        ("like = 1", 1, "'LIKE' stands here"),
        ("a = 9223372036854775808", 5, "range of a Java long"),
        ("9223372036854775808 = a", 1, "range of a Java long"),
        ("a + 9223372036854775808 = 1", 5, "range of a Java long"),
        ("a = +9223372036854775808", 6, "range of a Java long"),
        ("a = -(9223372036854775808)", 7, "range of a Java long"),
        ("a = -9223372036854775809", 5, "range of a Java long"),
        ("a = 99999999999999999999999999999999", 5, "range of a Java long"),
        ("a = 0x8000000000000000", 5, "range of a Java long"),
        ("a = 1e999", 5, "range of a Java double"),
        ("a = 1e39f", 5, "range of a Java float"),
        ("a = 1e999f", 5, "range of a Java float"),
        ("a = 09", 5, "not an octal number"),
        ("JMSDestination = 'x'", 1, "cannot refer to JMSDestination"),
        ("a = JMSReplyTo", 5, "cannot refer to JMSReplyTo"),
        ("JMSRedelivered", 1, "cannot refer to JMSRedelivered"),
        ("JMSExpiration > 1", 1, "cannot refer to JMSExpiration"),
        ("JMSfoo = 1", 1, "cannot refer to JMSfoo"),
        ("a\n=\n?", 5, "'?' has no meaning"),
    ],
)
def test_what_is_no_selector(text: str, column: int, reason: str) -> None:
    with pytest.raises(InvalidSelector) as caught:
        parse(text)
    assert reason in caught.value.reason
    assert (caught.value.column, caught.value.selector) == (column, text)


def test_a_selector_may_be_long_but_not_too_long() -> None:
    terms = " OR ".join(f"a={number}" for number in range(800))
    assert parse(terms).matches(a_message(a=799))
    assert not parse(terms).matches(a_message(a=800))
    assert parse(terms.replace("OR", "AND").replace("a=", "a>")).matches(a_message(a=800))
    assert parse("a = " + "+".join(["1"] * 4000)).matches(a_message(a=4000))
    assert parse("a = 1".ljust(MAX_LENGTH)).matches(a_message(a=1))
    with pytest.raises(InvalidSelector, match=f"{MAX_LENGTH} are allowed") as caught:
        parse("a = 1".ljust(MAX_LENGTH + 1))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 AND " * 700,
        "a = '" + "x" * 8000,
        "'" + "x" * 8000 + "' 'y'",
        "a " + "b" * 8000,
        "a = " + "0" * 8000 + "9",
        "a = " + "9" * 8000 + ".e9",
        "JMS" + "x" * 8000,
        "a LIKE '" + "x" * 8000 + "!' ESCAPE '!'",
        "a LIKE 'x' ESCAPE '" + "!" * 8000 + "'",
    ],
)
def test_what_is_said_of_a_long_selector_is_short(text: str) -> None:
    with pytest.raises(InvalidSelector) as caught:
        parse(text)
    assert len(str(caught.value)) < 400
    assert f"column {caught.value.column}" in str(caught.value)


@pytest.mark.parametrize(
    ("opening", "inner", "closing"),
    [
        ("(", "a = 1", ")"),
        ("NOT ", "a = 1", ""),
        ("NOT (", "a = 1", ")"),
        ("b = 5 OR c AND NOT (", "a = 1", ")"),
        ("-", "a = 1", ""),
        ("1 + 1 * (", "a", ")"),
    ],
)
def test_nesting_is_bounded(opening: str, inner: str, closing: str) -> None:
    levels = len([character for character in opening if character in "(-"]) + opening.count("NOT")
    times = MAX_DEPTH // levels
    wrap = " = 1" if opening.startswith("1") else ""
    parse(opening * times + inner + closing * times + wrap).matches(a_message(a=1))
    times += 1
    with pytest.raises(InvalidSelector, match=f"nested more than {MAX_DEPTH} deep"):
        parse(opening * times + inner + closing * times + wrap)
    times = (MAX_LENGTH - 20) // (len(opening) + len(closing))
    with pytest.raises(InvalidSelector, match="nested more than"):
        parse(opening * times + inner + closing * times + wrap)


def test_a_selector_is_a_value_of_its_text() -> None:
    assert parse("a = 1") is parse("a = 1")
    assert parse("a = 1") == parse("a = 1")
    assert parse("a = 1") != parse("a  = 1")
    assert parse("a = 1") != "a = 1"
    assert hash(parse("a = 1")) == hash(parse("a = 1"))
    assert isinstance(parse("a = 1"), Selector)
    assert (parse("a = 1").text, repr(parse("a = 1"))) == ("a = 1", "Selector('a = 1')")


@pytest.mark.process
def test_importing_selectors_does_not_load_the_parser() -> None:
    code = "import sys, gateway.messaging.selector.selector; sys.exit('lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "A1",
        "_",
        "$",
        "type",
        "größe",
        "名前",
        "JMSXGroupID",
        "€",
        "a\u0301",
        "Android",
        "lıke",
    ],
)
def test_names_of_properties(name: str) -> None:
    assert is_property_name(name)
    assert parse(f"{name} IS NULL").matches(a_message())


@pytest.mark.parametrize(
    "name",
    [
        "",
        "1a",
        "content-type",
        "x.y",
        "a b",
        "a\n",
        "²",
        "a²",
        "\u0301a",
        "NOT",
        "and",
        "Escape",
        "null",
        "a=1",
        "\ud800",
    ],
)
def test_names_that_are_none(name: str) -> None:
    assert not is_property_name(name)


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("TRUE", 0),
        ("a", 1),
        ("a = 'x'", 2),
        ("'x' <> a", 2),
        ("a = 1", 9),
        ("a < b", 17),
        ("a BETWEEN 1 AND 2", 9),
        ("a + b > -c", 1 + 8 + 1 + 8 + 1 + 8),
        ("a IN ('x', 'y')", 1),
        ("a IS NULL", 1),
        ("NOT a LIKE 'x%'", 12),
        ("a LIKE '%x_y%' OR (b = 'x' AND c = 'y')", 1 + 10 + 60 + 6 * 3 + 2 + 2),
    ],
)
def test_what_a_selector_costs(text: str, price: int) -> None:
    assert (parse(text).cost, parse(text, price, "the.setting").cost) == (price, price)


def test_a_selector_that_costs_too_much_is_refused() -> None:
    with pytest.raises(
        SelectorTooCostly, match=r"the cost is 9, and the\.setting is 8; write fewer conditions"
    ) as refused:
        parse("a = 1", 8, "the.setting")
    assert (refused.value.cost, refused.value.limit, refused.value.value) == (9, "the.setting", 8)
