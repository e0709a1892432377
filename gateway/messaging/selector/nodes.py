"""The tree that a selector is read into.

Owns its nodes, which are values without behaviour. A chain of AND, OR, sums or products of any
length is one node, so that depth comes from parentheses, NOT and signs only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Literal:
    """A string, a number (``int`` exact, ``float`` not), TRUE or FALSE."""

    value: str | int | float | bool


@dataclass(frozen=True, slots=True)
class Identifier:
    """A header field or property by its name.

    A name with a hyphen is another header's.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Sign:
    """Unary plus or minus."""

    negative: bool
    operand: Node


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``first``, then each operator (``+ - * /``) with its operand.

    They are evaluated from left to right.
    """

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two operands and one of ``= <> < <= > >=``."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Between:
    """``operand [NOT] BETWEEN low AND high``."""

    negated: bool
    operand: Node
    low: Node
    high: Node


@dataclass(frozen=True, slots=True)
class In:
    """``identifier [NOT] IN (values)``."""

    negated: bool
    identifier: Identifier
    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class Like:
    """``identifier [NOT] LIKE pattern [ESCAPE escape]``."""

    negated: bool
    identifier: Identifier
    pattern: str
    escape: str | None


@dataclass(frozen=True, slots=True)
class IsNull:
    """``identifier IS [NOT] NULL``."""

    negated: bool
    identifier: Identifier


@dataclass(frozen=True, slots=True)
class XPath:
    """``XPATH 'expression'``, of a body that is XML."""

    expression: str


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition; unknown stays unknown."""

    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """Conditions, two at least, that must all be true."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Conditions, two at least, one of which must be true."""

    terms: tuple[Node, ...]


#: A condition or an operand.
Node: TypeAlias = (
    Literal
    | Identifier
    | Sign
    | Arithmetic
    | Comparison
    | Between
    | In
    | Like
    | IsNull
    | XPath
    | Not
    | And
    | Or
)
