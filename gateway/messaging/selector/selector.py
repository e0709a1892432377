"""Message selectors: parsed once, asked often.

JMS 1.1, section 3.8; Jakarta Messaging 3.1, section 3.8.

The grammar is in :mod:`gateway.messaging.selector.grammar`. No text is ever handed to Python's
compiler. Of a LIKE pattern a regular expression is made that cannot backtrack. Reading and matching
take time in proportion to what is read, the size of a selector is bounded, and its cost is known
before it is used.

A selector sees the properties of a message and its header fields JMSDeliveryMode, JMSPriority,
JMSMessageID, JMSTimestamp, JMSCorrelationID and JMSType, and JMSXUserID; the same by the names that
Artemis has, such as AMQPriority. How often a message was delivered is no part of it, so
JMSXDeliveryCount is null. Of the body it sees what XPATH asks for.

Of a tree nested functions are made, once, so that a message costs one call for each node that
matters. The values' side of selectors:

- A condition is true (``True``), false (``False``) or unknown (``None``), by SQL's tables for AND,
  OR and NOT. A property that is absent or null is unknown in every comparison, as the specification
  says.
- A String of the message, property or header field, counts as the number it reads as where a number
  is needed: as operand of an arithmetic operator or sign, of ``< <= > >=`` and BETWEEN, and of
  ``=`` or ``<>`` when the other operand is a number. It reads as one if all of it is decimal: a
  sign, digits with or without a point, an exponent; without a point and exponent, and in the range
  of a long, it is exact. If it does not read as a number, it is unknown. A string literal never
  counts as a number.
- A String of the message counts as the boolean it reads as where a boolean is needed: where an
  identifier alone is a condition, and as operand of ``=`` or ``<>`` when the other operand is a
  boolean. ``true`` and ``false`` read as one, in any case of their letters. If it does not read as
  one, it is unknown. A string literal never counts as a boolean.
- Values that are not alike otherwise (a Boolean and a number, a number and a string literal) make a
  comparison false, be it ``=`` or ``<>``; likewise LIKE and IN of what is not a String, with or
  without NOT. An identifier alone whose value is neither a Boolean nor a String is unknown.
- Exact numbers are computed as Java's longs, their division truncates; with an approximate operand
  all is double. What has no result (division by zero, a result out of the range of long or double)
  is unknown. Nothing here raises.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gateway.messaging.errors import SelectorTooCostly
from gateway.messaging.selector.grammar import prepare, read
from gateway.messaging.selector.names import is_property_name

if TYPE_CHECKING:
    from gateway.messaging.message import Message
import math
import operator
import re
from collections.abc import Callable
from typing import TypeAlias, cast

from gateway.messaging.message import Message
from gateway.messaging.selector import like as patterns
from gateway.messaging.selector import xpath
from gateway.messaging.selector.fields import Operand, Properties, is_property, value_reader
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
from gateway.messaging.values import Value

__all__ = ["Selector", "is_property_name", "parse", "prepare"]

#: A selector that costs no more is cheap: its caller may look at the clock once for many
#: messages.
_CHEAP: Final = 20
#: How many messages a cheap selector may be asked about between two looks at the clock.
_MANY: Final = 32


class Selector:
    """A condition on messages, made by :func:`parse`.

    Never changed, equal to every other of the same text.
    """

    __slots__ = ("_condition", "cost", "stride", "text")

    def __init__(self, text: str, condition: Condition, cost: int) -> None:
        #: As it was given to :func:`parse`.
        self.text: Final = text
        #: Microseconds that a message with long properties may take, about.
        self.cost: Final = cost
        #: About how many messages it may be asked between two looks at the clock.
        self.stride: Final = _MANY if cost <= _CHEAP else 1
        self._condition: Final = condition

    def matches(self, message: Message) -> bool:
        """Whether the condition is true of this message. Never raises.

        False and unknown are both no.
        """
        return self._condition(message.headers.properties, message) is True

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Selector) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


@lru_cache(maxsize=256)
def parse(text: str, most: int = -1, setting: str = "") -> Selector:
    """The selector that this text is; the last 256 are remembered.

    :param most: what it may cost; negative is no bound.
    :param setting: where that stands, for the error. :raises
        ~gateway.messaging.errors.InvalidSelector: the text is no selector, with the column and what
        was expected there; or, as :class:`~gateway.messaging.errors.SelectorTooCostly`, it costs
        too much. A blank text is invalid, too: no selector at all is said by not calling this.
    """
    tree = read(text)
    price = cost(tree)
    if 0 <= most < price:
        remedy = "write fewer conditions, and fewer LIKE patterns with _ between other characters, or have the operator raise that setting"
        raise SelectorTooCostly(text, price, setting, most, remedy)
    return Selector(text, condition(tree), price)


Number: TypeAlias = int | float

_LONG_MIN: Final = -(2**63)
_LONG_MAX: Final = 2**63 - 1
# No two parts that follow each other can match the same character, so nothing is to be tried again.
_NUMBER: Final = re.compile(r"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+")

#: Up to here every exact number is a double, too, so that comparing one with a double needs no
#: conversion.
EXACT_DOUBLE: Final = 2**53

#: Decides about a message: its properties are given beside it, since nearly all that is asked for
#: is there.
Condition: TypeAlias = Callable[[Properties, Message], bool | None]
#: An operand that must be a number; None when unknown, not-a-number for what is no number and so
#: never compares.
_Numeric: TypeAlias = Callable[[Properties, Message], Number | None]

_BOOLEANS: Final = {"true": True, "false": False}
_LONGEST_BOOLEAN: Final = 5
#: What it costs to read a String as a number.
_COST_OF_READING: Final = 8

_MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def condition(node: Node) -> Condition:
    """The function that decides what this tree says."""
    match node:
        case And(terms):
            return _all([condition(each) for each in terms])
        case Or(terms):
            return _any([condition(each) for each in terms])
        case Not(term):
            return _not(condition(term))
        case Comparison():
            return _comparison(node)
        case Between():
            return _between(node)
        case In(negated, identifier, values):
            return _string_test(identifier, values.__contains__, negated)
        case Like(negated, identifier, pattern, escape):
            return _string_test(identifier, like(pattern, escape), negated)
        case IsNull(negated, identifier):
            operand = value_reader(identifier)
            if negated:
                return lambda properties, message: operand(properties, message) is not None
            return lambda properties, message: operand(properties, message) is None
        case XPath(expression):
            test = xpath.test(expression)
            return lambda properties, message: test(message)
        case Literal(value):
            return lambda properties, message: value is True
        case _:
            return _flag(value_reader(node))


def cost(node: Node) -> int:
    """Return about how many microseconds a message may take.

    One whose properties are 10 KiB long and as bad for this as can be. Typical ones take a tenth.
    """
    match node:
        case And(terms) | Or(terms):
            return sum(map(cost, terms))
        case Not(term):
            return 1 + cost(term)
        case Comparison(_, Literal(str()), other) | Comparison(_, other, Literal(str())):
            return 1 + cost(other)
        case Comparison(_, left, right):
            return 1 + _cost_of_number(left) + _cost_of_number(right)
        case Sign(_, operand):
            return 1 + _cost_of_number(operand)
        case Between(_, operand, low, high):
            return 1 + _cost_of_number(operand) + _cost_of_number(low) + _cost_of_number(high)
        case Arithmetic(first, rest):
            return _cost_of_number(first) + sum([1 + _cost_of_number(term) for _, term in rest])
        case Like(_, _, pattern, escape):
            return 1 + patterns.cost(pattern, escape)
        case XPath():
            return xpath.COST
        case Literal():
            return 0
    return 1


def _cost_of_number(node: Node) -> int:
    return _COST_OF_READING if isinstance(node, Identifier) else cost(node)


def _all(terms: list[Condition]) -> Condition:
    def conjunction(properties: Properties, message: Message) -> bool | None:
        result: bool | None = True
        for term in terms:
            one = term(properties, message)
            if not one:
                if one is False:
                    return False
                result = None
        return result

    return conjunction


def _any(terms: list[Condition]) -> Condition:
    def disjunction(properties: Properties, message: Message) -> bool | None:
        result: bool | None = False
        for term in terms:
            one = term(properties, message)
            if one:
                return True
            if one is None:
                result = None
        return result

    return disjunction


def _not(term: Condition) -> Condition:
    def negation(properties: Properties, message: Message) -> bool | None:
        result = term(properties, message)
        return None if result is None else not result

    return negation


def _flag(operand: Operand) -> Condition:
    def flag(properties: Properties, message: Message) -> bool | None:
        return _as_boolean(operand(properties, message))

    return flag


def _as_boolean(value: Value) -> bool | None:
    """A value of a message as the boolean it counts as, None if it does not."""
    if isinstance(value, bool):
        return value
    return (
        _BOOLEANS.get(value.lower())
        if isinstance(value, str) and len(value) <= _LONGEST_BOOLEAN
        else None
    )


def _string_test(identifier: Identifier, test: Callable[[str], bool], negated: bool) -> Condition:
    operand = value_reader(identifier)

    def string_test(properties: Properties, message: Message) -> bool | None:
        value = operand(properties, message)
        if value is None:
            return None
        return isinstance(value, str) and test(value) is not negated

    return string_test


def _between(node: Between) -> Condition:
    operand, low, high = _numeric(node.operand), _numeric(node.low), _numeric(node.high)
    # age NOT BETWEEN 15 AND 19 is age < 15 OR age > 19 (section 3.8.1.1), which for not-a-number is
    # not the opposite of BETWEEN.
    negated = node.negated
    lower, upper = (
        (COMPARISONS["<"], COMPARISONS[">"]) if negated else (COMPARISONS[">="], COMPARISONS["<="])
    )

    def between(properties: Properties, message: Message) -> bool | None:
        value = operand(properties, message)
        if value is None:
            return None
        first = compared(lower, value, low(properties, message))
        if first is negated:
            return negated
        second = compared(upper, value, high(properties, message))
        if second is negated:
            return negated
        return None if first is None or second is None else not negated

    return between


def _comparison(node: Comparison) -> Condition:
    left, right, sign = node.left, node.right, node.operator
    if isinstance(left, Literal) and isinstance(right, Identifier):
        left, right, sign = right, left, _MIRRORED[sign]
    if isinstance(left, Identifier) and isinstance(right, Literal):
        value = right.value
        if isinstance(value, str):
            return _equals_string(value_reader(left), value, sign)
        if not isinstance(value, bool) and (isinstance(value, float) or abs(value) <= EXACT_DOUBLE):
            return _compares_literal(_numeric(left), value, sign)
    if sign not in ("=", "<>"):
        return _compares(_numeric(left), _numeric(right), sign)
    return _equals(left, right, sign)


def _equals_string(operand: Operand, literal: str, sign: str) -> Condition:
    if sign == "=":

        def equal(properties: Properties, message: Message) -> bool | None:
            value = operand(properties, message)
            return None if value is None else value == literal

        return equal

    def unequal(properties: Properties, message: Message) -> bool | None:
        value = operand(properties, message)
        return None if value is None else isinstance(value, str) and value != literal

    return unequal


def _compares_literal(operand: _Numeric, literal: Number, sign: str) -> Condition:
    compare = COMPARISONS[sign]
    if isinstance(literal, float):

        def with_double(properties: Properties, message: Message) -> bool | None:
            value = operand(properties, message)
            return None if value is None else compare(double(value), literal)

        return with_double

    def with_long(properties: Properties, message: Message) -> bool | None:
        value = operand(properties, message)
        return None if value is None else compare(value, literal)

    return with_long


def _compares(left: _Numeric, right: _Numeric, sign: str) -> Condition:
    compare = COMPARISONS[sign]

    def comparison(properties: Properties, message: Message) -> bool | None:
        value = left(properties, message)
        return None if value is None else compared(compare, value, right(properties, message))

    return comparison


def _equals(left_node: Node, right_node: Node, sign: str) -> Condition:
    left, right = _value(left_node), _value(right_node)
    # Strings of the message may count as numbers and booleans, those of the selector may not.
    left_reads, right_reads = isinstance(left_node, Identifier), isinstance(right_node, Identifier)
    wanted = sign == "="
    compare = COMPARISONS[sign]

    def equality(properties: Properties, message: Message) -> bool | None:
        one = left(properties, message)
        if one is None:
            return None
        other = right(properties, message)
        if other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            return (one == other) is wanted
        if isinstance(one, bool) and isinstance(other, str) and right_reads:
            read = _as_boolean(other)
            return None if read is None else (one is read) is wanted
        if isinstance(other, bool) and isinstance(one, str) and left_reads:
            read = _as_boolean(one)
            return None if read is None else (read is other) is wanted
        if isinstance(one, bool) or isinstance(other, bool):
            return isinstance(one, bool) and isinstance(other, bool) and (one is other) is wanted
        if isinstance(one, int | float) and (right_reads or not isinstance(other, str)):
            return compared(compare, one, as_number(other))
        if isinstance(other, int | float) and left_reads:
            number = as_number(one)
            return None if number is None else compared(compare, number, other)
        return False

    return equality


def _value(node: Node) -> Operand:
    """An operand of any type."""
    match node:
        case Literal() | Identifier():
            return value_reader(node)
        case Sign() | Arithmetic():
            return _numeric(node)
        case _:
            return condition(node)


def _numeric(node: Node) -> _Numeric:
    """An operand that must be a number."""
    match node:
        case Literal(value):
            number = cast("Number", value)  # what the grammar lets through
            return lambda properties, message: number
        case Identifier(name) if is_property(name):
            return _numeric_property(name)
        case Sign(negative, inner):
            return _signed(negative, _numeric(inner))
        case Arithmetic(first, rest):
            return _arithmetic(
                _numeric(first), [(OPERATIONS[sign], _numeric(term)) for sign, term in rest]
            )
    operand = value_reader(node)
    return lambda properties, message: as_number(operand(properties, message))


def _numeric_property(name: str) -> _Numeric:
    def numeric_property(properties: Properties, message: Message) -> Number | None:
        value = properties.get(name)
        if type(value) is str and len(value) < 19 and value.isdigit() and value.isascii():
            return int(value)
        return as_number(value)

    return numeric_property


def _signed(negative: bool, operand: _Numeric) -> _Numeric:
    if not negative:
        return operand

    def minus(properties: Properties, message: Message) -> Number | None:
        value = operand(properties, message)
        return None if value is None else bounded(-value)

    return minus


def _arithmetic(
    first: _Numeric, rest: list[tuple[Callable[[Number, Number], Number | None], _Numeric]]
) -> _Numeric:
    def arithmetic(properties: Properties, message: Message) -> Number | None:
        result = first(properties, message)
        for operation, operand in rest:
            if result is None:
                return None
            value = operand(properties, message)
            if value is None:
                return None
            if isinstance(result, float) or isinstance(value, float):
                result, value = double(result), double(value)
            result = operation(result, value)
            if result is not None:
                result = bounded(result)
        return result

    return arithmetic


# Numbers are Java's long and double. What has no result is None; nothing raises.

#: What each comparison does; all are false of not-a-number.
COMPARISONS: Final[dict[str, Callable[[Number, Number], bool]]] = {
    "=": operator.eq,
    # Not "ne", which not-a-number would satisfy.
    "<>": lambda left, right: left < right or left > right,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compared(
    compare: Callable[[Number, Number], bool], left: Number, right: Number | None
) -> bool | None:
    """Compare by Java's numeric promotion.

    A long beside a double becomes one.
    """
    if right is None:
        return None
    if isinstance(left, float) is not isinstance(right, float):
        return compare(double(left), double(right))
    return compare(left, right)


def _divided(left: Number, right: Number) -> Number | None:
    if not right:
        return None
    if isinstance(left, float):
        return left / right
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) is (right < 0) else -quotient


#: What each arithmetic operator does with two longs or two doubles; the result may be out of
#: bounds, see :func:`bounded`.
OPERATIONS: Final[dict[str, Callable[[Number, Number], Number | None]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
}


def bounded(result: Number) -> Number | None:
    """The result, or None when Java's long or double has no such number."""
    if isinstance(result, float):
        return result if math.isfinite(result) else None
    return result if _LONG_MIN <= result <= _LONG_MAX else None


def double(number: Number) -> float:
    """The double nearest to the number."""
    try:
        return float(number)
    except OverflowError:
        # No long is that large; a property made of a larger number must not make an exception here.
        return math.inf if number > 0 else -math.inf


def as_number(value: Value) -> Number | None:
    """Return a value of a message as the number it counts as.

    None if it is unknown, not-a-number if it is of a type that never is a number.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _read_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return value


def _read_number(text: str) -> Number | None:
    """Return the number that this text is, all of it.

    None if it is not a number, or is beyond the range of a double.
    """
    if _NUMBER.fullmatch(text) is None:
        return None
    # A long has 19 digits. Leading zeros are data here, not the mark of an octal number.
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) < 20 and (digits.isdigit() or not digits):
        number = int(digits or "0") * (-1 if text[0] == "-" else 1)
        if _LONG_MIN <= number <= _LONG_MAX:
            return number
    value = float(text)
    return value if math.isfinite(value) else None
