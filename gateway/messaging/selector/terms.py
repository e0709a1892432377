"""The conditions of a selector, one by one, to explain a mismatch.

Owns how a condition is written out again, and which names it asks about. What a condition means is
:mod:`gateway.messaging.selector.selector`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from gateway.messaging.message import Message
from gateway.messaging.selector.fields import value_reader
from gateway.messaging.selector.grammar import read
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
from gateway.messaging.selector.selector import Condition, condition
from gateway.messaging.values import Value


class Term(NamedTuple):
    """One condition of those that AND joins.

    :param text: as it may be written.
    :param names: header fields and properties that it asks about, in order.
    """

    text: str
    names: tuple[str, ...]
    condition: Condition

    def holds(self, message: Message) -> bool | None:
        """Whether it is true of a message; None for unknown."""
        return self.condition(message.headers.properties, message)


@lru_cache(maxsize=64)
def terms_of(text: str) -> tuple[Term, ...]:
    """Return the conditions that must all be true.

    :raises InvalidSelector: the text is no selector.
    """
    node = read(text)
    nodes = node.terms if isinstance(node, And) else (node,)
    return tuple(
        Term(written(each), tuple(dict.fromkeys(_names(each))), condition(each)) for each in nodes
    )


def value_of(name: str, message: Message) -> Value:
    """Return what a message says of a name; None where it says nothing."""
    return value_reader(Identifier(name))(message.headers.properties, message)


def written(node: Node) -> str:
    """Write a condition or an operand out."""
    match node:
        case And(terms):
            return " AND ".join([_inner(each) for each in terms])
        case Or(terms):
            return " OR ".join([_inner(each) for each in terms])
        case Not(operand):
            return f"NOT {_inner(operand)}"
        case Comparison(sign, left, right):
            return f"{_inner(left)} {sign} {_inner(right)}"
        case Between(negated, operand, low, high):
            return f"{_inner(operand)} {'NOT ' if negated else ''}BETWEEN {_inner(low)} AND {_inner(high)}"
        case In(negated, identifier, values):
            several = ", ".join([_literal(each) for each in sorted(values)])
            return f"{identifier.name} {'NOT ' if negated else ''}IN ({several})"
        case Like(negated, identifier, pattern, escape):
            escaped = "" if escape is None else f" ESCAPE {_literal(escape)}"
            return f"{identifier.name} {'NOT ' if negated else ''}LIKE {_literal(pattern)}{escaped}"
        case IsNull(negated, identifier):
            return f"{identifier.name} IS {'NOT ' if negated else ''}NULL"
        case XPath(expression):
            return f"XPATH {_literal(expression)}"
        case Sign(negative, operand):
            return f"{'-' if negative else '+'}{_inner(operand)}"
        case Arithmetic(first, rest):
            return _inner(first) + "".join([f" {sign} {_inner(each)}" for sign, each in rest])
        case Identifier(name):
            return name
        case Literal(value):
            return _literal(value)
    raise AssertionError(f"{node} is not a node")


def _inner(node: Node) -> str:
    text = written(node)
    return f"({text})" if isinstance(node, And | Or | Arithmetic) else text


def _literal(value: str | int | float | bool) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).upper() if isinstance(value, bool) else repr(value)


def _names(node: Node) -> Iterator[str]:
    match node:
        case Identifier(name):
            yield name
        case And(terms) | Or(terms):
            for each in terms:
                yield from _names(each)
        case Not(operand) | Sign(_, operand):
            yield from _names(operand)
        case Comparison(_, left, right):
            yield from _names(left)
            yield from _names(right)
        case Between(_, operand, low, high):
            for each in (operand, low, high):
                yield from _names(each)
        case In(_, identifier, _) | Like(_, identifier, _, _) | IsNull(_, identifier):
            yield identifier.name
        case Arithmetic(first, rest):
            yield from _names(first)
            for _, each in rest:
                yield from _names(each)
