"""Selectors against a naive interpreter of their trees, and LIKE against a naive matcher that tries
everything.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from gateway.messaging.destination import Queue
from gateway.messaging.errors import InvalidSelector
from gateway.messaging.message import Headers, Message
from gateway.messaging.selector.grammar import read
from gateway.messaging.selector.like import like
from gateway.messaging.selector.nodes import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Identifier,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Or,
    Sign,
    XPath,
)
from gateway.messaging.selector.selector import parse
from gateway.messaging.values import Byte, Char, Float, Int, Short, Value

NAMES: Final = ("a", "b", "c", "d", "JMSPriority", "JMSType", "JMSCorrelationID")

# Trees.

identifiers = st.sampled_from(NAMES).map(Identifier)
strings = st.one_of(
    st.text("ab%_!'5.", max_size=4), st.sampled_from(["true", "FALSE", "True", "truE "])
)
numbers = st.one_of(
    st.integers(-6, 6),
    st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.5, 5.0, 2.0**53, 2.0**63, 1e308]),
)
number_literals = numbers.map(Literal)
comparisons = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def is_number(node: Node) -> bool:
    return isinstance(node, Literal) and type(node.value) in (int, float)


def arithmetic(operands: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    def chain(operators: str) -> st.SearchStrategy[Node]:
        rest = st.lists(
            st.tuples(st.sampled_from(operators), operands), min_size=1, max_size=3
        ).map(tuple)
        return st.builds(Arithmetic, operands, rest)

    # The sign of a literal is part of the literal.
    signs = st.builds(Sign, st.booleans(), operands.filter(lambda node: not is_number(node)))
    return st.one_of(chain("+-"), chain("*/"), signs)


operands: st.SearchStrategy[Node] = st.recursive(
    st.one_of(identifiers, number_literals), arithmetic, max_leaves=4
)
values: st.SearchStrategy[Node] = st.one_of(
    operands, strings.map(Literal), st.booleans().map(Literal)
)


@st.composite
def likes(draw: st.DrawFn) -> Like:
    escape = draw(st.one_of(st.none(), st.just("!")))
    pattern = draw(strings)
    if escape is not None and (len(pattern) - len(pattern.rstrip("!"))) % 2:
        pattern += "_"
    return Like(draw(st.booleans()), draw(identifiers), pattern, escape)


simple: st.SearchStrategy[Node] = st.one_of(
    st.builds(Comparison, st.sampled_from(["=", "<>"]), values, values),
    st.builds(Comparison, comparisons, operands, operands),
    st.builds(Comparison, comparisons, identifiers, number_literals),
    st.builds(Between, st.booleans(), operands, operands, operands),
    st.builds(In, st.booleans(), identifiers, st.frozensets(strings, min_size=1, max_size=3)),
    likes(),
    st.builds(IsNull, st.booleans(), identifiers),
    st.booleans().map(Literal),
    identifiers,
)


def logic(conditions: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    terms = st.lists(conditions, min_size=2, max_size=4).map(tuple)
    equality = st.builds(Comparison, st.sampled_from(["=", "<>"]), conditions, conditions)
    return st.one_of(terms.map(And), terms.map(Or), conditions.map(Not), equality)


conditions: st.SearchStrategy[Node] = st.recursive(simple, logic, max_leaves=8)

# Messages.

property_values: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-6, 6),
    st.sampled_from(
        [
            Byte(5),
            Short(5),
            Int(-1),
            Float(0.5),
            Char("a"),
            b"a",
            2**53 + 1,
            2**63 - 1,
            -(2**63),
            math.inf,
        ]
    ),
    st.floats(allow_nan=False),
    strings,
    st.sampled_from(
        [
            "5",
            "-5",
            "+.5",
            "5.",
            "5e0",
            "1e999",
            "9223372036854775807",
            "9223372036854775808",
            "05",
            " 5",
            "5L",
            "0x5",
        ]
    ),
    numbers.map(str),
)
messages = st.builds(
    lambda properties, priority, type_, correlation_id: Message(
        Headers(
            Queue("q"),
            priority=priority,
            type=type_,
            correlation_id=correlation_id,
            properties=properties,
        )
    ),
    st.dictionaries(st.sampled_from("abcd"), property_values),
    st.integers(0, 9),
    st.one_of(st.none(), strings),
    st.one_of(st.none(), strings),
)

# The text of a tree, with no parenthesis that is not needed.

LEVELS: Final[dict[type, int]] = {
    Or: 0,
    And: 1,
    Not: 2,
    Comparison: 3,
    Between: 3,
    In: 3,
    Like: 3,
    IsNull: 3,
    Sign: 6,
}
PRIMARY: Final = 7


def level(node: Node) -> int:
    if isinstance(node, Arithmetic):
        return 4 if node.rest[0][0] in "+-" else 5
    if is_number(node):
        assert isinstance(node, Literal)
        return PRIMARY if not str(node.value).startswith("-") else 6
    return LEVELS.get(type(node), PRIMARY)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def render(node: Node, least: int = 0) -> str:
    text = rendered(node)
    return text if level(node) >= least else f"({text})"


def rendered(node: Node) -> str:
    match node:
        case Or(terms):
            return " or ".join(render(term, 1) for term in terms)
        case And(terms):
            return " AND ".join(render(term, 2) for term in terms)
        case Not(term):
            return f"NOT {render(term, 2)}"
        case Comparison(sign, left, right):
            return f"{render(left, 4)}{sign}{render(right, 4)}"
        case Between(negated, operand, low, high):
            return f"{render(operand, 4)}{' NOT' * negated} BETWEEN {render(low, 4)} AND {render(high, 4)}"
        case In(negated, identifier, texts):
            return (
                f"{identifier.name}{' not' * negated} in ({','.join(map(quoted, sorted(texts)))})"
            )
        case Like(negated, identifier, pattern, escape):
            return f"{identifier.name}{' NOT' * negated} LIKE {quoted(pattern)}" + (
                f" ESCAPE {quoted(escape)}" if escape else ""
            )
        case IsNull(negated, identifier):
            return f"{identifier.name} IS{' NOT' * negated} NULL"
        case XPath(expression):
            return f"XPATH {quoted(expression)}"
        case Arithmetic(first, rest):
            above = 5 if rest[0][0] in "+-" else 6
            return render(first, above) + "".join(
                f" {sign} {render(operand, above)}" for sign, operand in rest
            )
        case Sign(negative, inner):
            return f"{'-' if negative else '+'} {render(inner, 6)}"
        case Literal(value) if isinstance(value, str):
            return quoted(value)
        case Literal(value):
            return str(value)
        case Identifier(name):
            return name


# The naive interpreter. A value is None, or a pair of its type and itself; a text is "word" if it
# came with the message, else "string".

Tagged = tuple[str, Value] | None


def tagged(value: Value, text: str) -> Tagged:
    if value is None:
        return None
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, int):
        return "long", int(value)
    if isinstance(value, float):
        return "double", float(value)
    return (text, str(value)) if isinstance(value, str) else ("octets", value)


def is_decimal(text: str) -> bool:
    mantissa, _, exponent = text.lower().partition("e")
    if "e" in text.lower():
        exponent = exponent[1:] if exponent[:1] in ("+", "-") else exponent
        if not exponent or not set(exponent) <= set(string.digits):
            return False
    mantissa = mantissa[1:] if mantissa[:1] in ("+", "-") else mantissa
    whole, _, fraction = mantissa.partition(".")
    return (whole + fraction) != "" and set(whole + fraction) <= set(string.digits)


def as_number(value: Tagged) -> Tagged:
    """The value as a number; None if unknown; "other" if it is of a type that is never one."""
    if value is None or value[0] in ("long", "double"):
        return value
    kind, content = value
    if kind != "word":
        return "other", None
    assert isinstance(content, str)
    if not is_decimal(content):
        return None
    if not set(content) & set(".eE") and -(2**63) <= int(content) < 2**63:
        return "long", int(content)
    return ("double", float(content)) if math.isfinite(float(content)) else None


def as_boolean(value: Tagged) -> Tagged:
    """The value as a boolean; None if unknown, or what it is if it is of a type that is never
    one.
    """
    if value is None or value[0] != "word":
        return value
    return {"true": ("boolean", True), "false": ("boolean", False)}.get(str(value[1]).lower())


def compare(sign: str, left: float, right: float) -> bool:
    return {
        "=": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[sign]


def compare_numbers(sign: str, left: Tagged, right: Tagged) -> bool | None:
    left, right = as_number(left), as_number(right)
    if left is None or right is None:
        return None
    if "other" in (left[0], right[0]):
        return False
    one, other = left[1], right[1]
    assert isinstance(one, int | float)
    assert isinstance(other, int | float)
    if "double" in (left[0], right[0]):
        one, other = float(one), float(other)
    return compare(sign, one, other)


def compare_any(sign: str, left: Tagged, right: Tagged) -> bool | None:
    if left is None or right is None:
        return None
    kinds = {left[0], right[0]}
    if kinds == {"word", "boolean"}:
        left, right = as_boolean(left), as_boolean(right)
        return None if left is None or right is None else (left[1] == right[1]) == (sign == "=")
    if kinds <= {"word", "string"} or kinds == {"boolean"}:
        return (left[1] == right[1]) == (sign == "=")
    if kinds & {"long", "double"} and not kinds & {"string", "boolean", "octets"}:
        return compare_numbers(sign, left, right)
    return False


def calculate(sign: str, left: Tagged, right: Tagged) -> Tagged:
    left, right = as_number(left), as_number(right)
    if left is None or right is None or "other" in (left[0], right[0]):
        return None
    one, other = left[1], right[1]
    assert isinstance(one, int | float)
    assert isinstance(other, int | float)
    if sign == "/" and other == 0:
        return None
    if "double" in (left[0], right[0]):
        one, other = float(one), float(other)
        result: float = {
            "+": one + other,
            "-": one - other,
            "*": one * other,
            "/": one / other if other else 0.0,
        }[sign]
        return ("double", result) if math.isfinite(result) else None
    assert isinstance(one, int)
    assert isinstance(other, int)
    if sign == "/":
        exact = abs(one) // abs(other)
        exact = exact if (one >= 0) == (other >= 0) else -exact
    else:
        exact = {"+": one + other, "-": one - other, "*": one * other}[sign]
    return ("long", exact) if -(2**63) <= exact < 2**63 else None


def both(left: bool | None, right: bool | None) -> bool | None:
    """Table 3-4."""
    table = {(True, True): True, (True, None): None, (None, True): None, (None, None): None}
    return table.get((left, right), False)


def opposite(value: bool | None) -> bool | None:
    return None if value is None else not value


def interpret(node: Node, fields: Mapping[str, Value]) -> Tagged:
    match node:
        case Literal(value):
            return tagged(value, "string")
        case Identifier(name):
            return tagged(fields.get(name), "word")
        case Sign(negative, inner):
            # A plus gives what is there as a number; what never is one compares with nothing.
            number = as_number(interpret(inner, fields))
            if not negative or number is None or number[1] == 0:
                return number
            return calculate("-", ("long", 0), number)
        case Arithmetic(first, rest):
            result = interpret(first, fields)
            for sign, operand in rest:
                result = calculate(sign, result, interpret(operand, fields))
            return result
        case _:
            return tagged(decide(node, fields), "string")


def decide(node: Node, fields: Mapping[str, Value]) -> bool | None:
    result: bool | None
    match node:
        case And(terms):
            result = True
            for term in terms:
                result = both(result, decide(term, fields))
            return result
        case Or(terms):
            # De Morgan: not all are not.
            result = True
            for term in terms:
                result = both(result, opposite(decide(term, fields)))
            return opposite(result)
        case Not(term):
            return opposite(decide(term, fields))
        case Comparison(sign, left, right):
            one, other = interpret(left, fields), interpret(right, fields)
            return (
                compare_any(sign, one, other)
                if sign in ("=", "<>")
                else compare_numbers(sign, one, other)
            )
        case Between(negated, operand, low, high):
            value = interpret(operand, fields)
            if negated:
                below = compare_numbers("<", value, interpret(low, fields))
                above = compare_numbers(">", value, interpret(high, fields))
                return opposite(both(opposite(below), opposite(above)))
            return both(
                compare_numbers(">=", value, interpret(low, fields)),
                compare_numbers("<=", value, interpret(high, fields)),
            )
        case IsNull(negated, identifier):
            return (interpret(identifier, fields) is None) != negated
        case In(negated, identifier, texts):
            text = interpret(identifier, fields)
            return None if text is None else text[0] == "word" and (text[1] in texts) != negated
        case Like(negated, identifier, pattern, escape):
            text = interpret(identifier, fields)
            if text is None:
                return None
            return text[0] == "word" and naive_like(pattern, escape, str(text[1])) != negated
        case _:
            flag = as_boolean(interpret(node, fields))
            return flag[1] is True if flag is not None and flag[0] == "boolean" else None


def naive_like(pattern: str, escape: str | None, text: str) -> bool:
    if not pattern:
        return not text
    if escape is not None and pattern[0] == escape:
        return text[:1] == pattern[1] and naive_like(pattern[2:], escape, text[1:])
    if pattern[0] == "%":
        return any(naive_like(pattern[1:], escape, text[skip:]) for skip in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and naive_like(pattern[1:], escape, text[1:])


@given(conditions, messages)
def test_a_selector_says_what_its_tree_says(tree: Node, message: Message) -> None:
    headers = message.headers
    fields = {
        **headers.properties,
        "JMSPriority": headers.priority,
        "JMSType": headers.type,
        "JMSCorrelationID": headers.correlation_id,
    }
    text = render(tree)
    expected = decide(tree, fields)
    assert parse(text).matches(message) is (expected is True)
    assert parse(f"NOT ({text})").matches(message) is (expected is False)


@given(conditions)
def test_the_text_of_a_tree_reads_as_that_tree(tree: Node) -> None:
    again = read(render(tree))
    assert again == tree
    # 1, 1.0 and TRUE are equal to Python, and not written alike.
    assert render(again) == render(tree)


@given(st.text("ab%_!", max_size=8), st.text("ab!", max_size=10))
def test_like_matches_what_trying_everything_matches(pattern: str, text: str) -> None:
    assert like(pattern)(text) is naive_like(pattern, None, text)
    if (len(pattern) - len(pattern.rstrip("!"))) % 2 == 0:
        assert like(pattern, "!")(text) is naive_like(pattern, "!", text)


words = "a b JMSType JMSx é ² NOT AND OR BETWEEN IN LIKE ESCAPE IS NULL TRUE"
signs = "1 .5 9e99 0x1F 017 'x' '' ' \" ( ) , + - * / = <> < >= !"
pieces = st.sampled_from([*words.split(), *signs.split()])


@given(
    st.one_of(st.text(), st.lists(pieces).map(" ".join), st.lists(pieces).map("".join)), messages
)
def test_no_text_raises_anything_but_invalid_selector(text: str, message: Message) -> None:
    problem: InvalidSelector | None = None
    try:
        selector = parse(text)
    except InvalidSelector as error:
        problem = error
    if problem is None:
        assert selector.matches(message) in (True, False)
    else:
        assert 0 <= problem.column <= len(text) + 1
        assert problem.selector == text
