"""Numbers as selectors compute with them: Java's long and double.

JMS 1.1, section 3.8.1.2.

Owns reading a number from a String property, promotion, and results that do not exist. What has no
result is None; nothing raises.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from gateway.messaging.values import Value

Number: TypeAlias = int | float

_LONG_MIN: Final = -(2**63)
_LONG_MAX: Final = 2**63 - 1
# No two parts that follow each other can match the same character, so nothing is to be tried again.
_NUMBER: Final = re.compile(r"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+")

#: Up to here every exact number is a double, too, so that comparing one with a double needs no
#: conversion.
EXACT_DOUBLE: Final = 2**53

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
