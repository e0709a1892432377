"""What Spark's filters are as a selector, so that fewer messages come.

Owns one rule: where a filter is true of a row, the selector is true of its message. The reverse
need not hold, since Spark filters the rows once more. So what a selector cannot say, or would say
otherwise, is left out, and no answer depends on the broker:

* A selector is unknown where a property is null, which is an empty text in STOMP, and false where
  it is of another type than the literal; what is text in STOMP may be a number to the broker. So
  properties are compared only with what can be no number's and no boolean's text, and negations
  are of the whole condition.
* A float of Java's is not the double that its text reads as. Doubles are compared with a margin.
* ``JMSTimestamp`` is in milliseconds, and the column in microseconds.
* ActiveMQ compares texts with numbers in its own way, so there only texts are compared.

Knows neither readers nor sockets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from gateway.stomp.brokers import Dialect

#: Characters of a selector, of one literal, and literals of one IN, that are worth asking for.
_LONGEST: Final = 8000
_LONGEST_TEXT: Final = 200
_MOST_VALUES: Final = 100

#: What the text of a number or a boolean may be, or of a null; Java's and Python's.
_NO_TEXT: Final = re.compile(
    r"|true|false|[+-]?(?:nan|inf|infinity|[0-9.]+(?:e[+-]?[0-9]+)?)", re.IGNORECASE
)
#: The characters of such a text.
_OF_NO_TEXT: Final = frozenset("0123456789+-.eEtrufalsinyNI")
#: More than the distance of a float of Java's from the number that its text is.
_MARGIN: Final = 1e-6
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MIRRORED: Final = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_SIGNS: Final[dict[type[Filter], str]] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}

#: What a filter says as a selector, "" where that cannot be said; the second: it is negated.
_Column: TypeAlias = Callable[[Filter, bool], str]


def selector(filters: Sequence[Filter], properties: Mapping[str, str], dialect: Dialect) -> str:
    """Return a selector that is true wherever all filters are.

    :param filters: of Spark's, joined by AND.
    :param properties: the types of declared properties, by name.
    :param dialect: of a broker that has selectors and can browse.
    :returns: "" where there is nothing that it could leave out.
    """
    columns = {**_FIELDS, **_declared(properties, dialect)}
    found: list[str] = []
    for each in filters:
        inner, negated = each, False
        while isinstance(inner, Not):
            inner, negated = inner.child, not negated
        path: tuple[str, ...] = getattr(inner, "attribute", ())
        column = columns.get(".".join(path))
        said = column(inner, negated) if column is not None else ""
        if said and len(said) + sum(map(len, found)) < _LONGEST:
            found.append(said)
    return " AND ".join(found)


def stands_alone(selector: str) -> bool:
    """Whether each parenthesis of a selector has its other.

    A text without them is no selector, and must not become one when it is put in parentheses.
    """
    depth = 0
    for character in re.sub(r"'[^']*'", "", selector):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0


def _declared(properties: Mapping[str, str], dialect: Dialect) -> dict[str, _Column]:
    found: dict[str, _Column] = {}
    for name, kind in properties.items():
        if kind == "string":
            found[name] = partial(_text, name, True)
        elif not dialect.decimals:
            found[name] = partial(_OTHERS[kind], name)
    return found


# --- texts


def _text(name: str, is_property: bool, wanted: Filter, negated: bool) -> str:
    match wanted:
        case EqualTo() | In() if negated:
            said = _text(name, is_property, wanted, False)
            # A property that is null to the broker is an empty text here.
            empty = f"{name} IS NULL OR " if is_property else ""
            is_never = isinstance(wanted, In) and None in wanted.value
            return f"({empty}NOT ({said}))" if said and not is_never else ""
        case EqualTo(_, value):
            return _equal(name, is_property, value)
        case EqualNullSafe(_, value) if not negated:
            return _equal(name, is_property, value)
        case In(_, values):
            return _one_of(values, partial(_equal, name, is_property))
        case StringStartsWith(_, value):
            return _like(name, is_property, "", value, "%", negated)
        case StringEndsWith(_, value):
            return _like(name, is_property, "%", value, "", negated)
        case StringContains(_, value):
            return _like(name, is_property, "%", value, "%", negated)
        case IsNull() if not negated:
            return f"{name} IS NULL"
        case IsNotNull() if not negated and not is_property:
            return f"{name} IS NOT NULL"
    return ""


def _equal(name: str, is_property: bool, value: Any) -> str:
    if not _is_plain(value) or (is_property and _NO_TEXT.fullmatch(value)):
        return ""
    return f"{name} = {_quoted(value)}"


def _one_of(values: Sequence[Any], equal: Callable[[Any], str]) -> str:
    each = [equal(value) for value in values if value is not None]
    worth_it = each and len(each) <= _MOST_VALUES and all(each)
    return f"({' OR '.join(each)})" if worth_it else ""


def _like(name: str, is_property: bool, before: str, value: Any, after: str, negated: bool) -> str:
    if not _is_plain(value) or (is_property and (negated or _OF_NO_TEXT.issuperset(value))):
        return ""
    pattern = re.sub(r"([%_!])", r"!\1", value)
    word = "NOT LIKE" if negated else "LIKE"
    return f"{name} {word} {_quoted(before + pattern + after)} ESCAPE '!'"


def _is_plain(value: Any) -> bool:
    """Whether a text stays what it is in a header, and in a selector."""
    return isinstance(value, str) and value.isprintable() and len(value) <= _LONGEST_TEXT


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


# --- numbers, times and booleans


def _compared(wanted: Filter, negated: bool, compare: Callable[[str, Any], str], name: str) -> str:
    """A condition on values that are compared.

    :param compare: what a sign and a value say, "" for nothing.
    """
    match wanted:
        case EqualNullSafe(_, value):
            return "" if negated else compare("=", value)
        case In(_, values):
            said = _one_of(values, partial(compare, "="))
            if not negated or not said:
                return said
            return "" if None in values else f"NOT {said}"
        case IsNotNull():
            return "" if negated else f"{name} IS NOT NULL"
    sign = _SIGNS.get(type(wanted))
    if sign is None:
        return ""
    return compare(_MIRRORED[sign] if negated else sign, getattr(wanted, "value", None))


def _whole(name: str, wanted: Filter, negated: bool) -> str:
    def compare(sign: str, value: Any) -> str:
        fits = type(value) is int and abs(value) < 2**63
        return f"{name} {sign} {value}" if fits else ""

    return _compared(wanted, negated, compare, name)


def _double(name: str, wanted: Filter, negated: bool) -> str:
    def compare(sign: str, value: Any) -> str:
        if type(value) is not float or not math.isfinite(value) or sign == "<>":
            return ""
        margin = abs(value) * _MARGIN
        low, high = value - margin, value + margin
        if not math.isfinite(low) or not math.isfinite(high):
            return ""
        return {
            "=": f"({name} >= {low!r} AND {name} <= {high!r})",
            ">": f"{name} >= {low!r}",
            "<": f"{name} <= {high!r}",
        }[sign[0]]

    if negated and isinstance(wanted, In):
        return ""  # with the margin it would leave out too many
    return _compared(wanted, negated, compare, name)


def _flag(name: str, wanted: Filter, negated: bool) -> str:
    return _compared(wanted, negated, partial(_either, name, "TRUE", "FALSE"), name)


def _delivery_mode(wanted: Filter, negated: bool) -> str:
    names = ("JMSDeliveryMode", "'PERSISTENT'", "'NON_PERSISTENT'")
    return _compared(wanted, negated, partial(_either, *names), names[0])


def _either(name: str, true: str, false: str, sign: str, value: Any) -> str:
    if not isinstance(value, bool) or sign not in ("=", "<>"):
        return ""
    return f"{name} = {true if value is (sign == '=') else false}"


def _time(wanted: Filter, negated: bool) -> str:
    name = "JMSTimestamp"

    def compare(sign: str, value: Any) -> str:
        if not isinstance(value, datetime) or value.tzinfo is None:
            return ""
        whole, rest = divmod((value - _EPOCH) // timedelta(microseconds=1), 1000)
        if rest and sign in ("=", "<>"):
            return ""  # always false, or true; Spark sees that, too
        # Between two milliseconds: before the next, or after the last.
        up = bool(rest) and sign in ("<", ">=")
        return f"{name} {sign} {whole + up}"

    return _compared(wanted, negated, compare, name)


_OTHERS: Final[dict[str, Callable[[str, Filter, bool], str]]] = {
    "bigint": _whole,
    "double": _double,
    "boolean": _flag,
}
#: The columns that a header field of JMS stands for.
_FIELDS: Final[dict[str, _Column]] = {
    "message_id": partial(_text, "JMSMessageID", False),
    "type": partial(_text, "JMSType", False),
    "correlation_id": partial(_text, "JMSCorrelationID", False),
    "priority": partial(_whole, "JMSPriority"),
    "timestamp": _time,
    "persistent": _delivery_mode,
}
