"""Reads the text of a selector into a tree (JMS 1.1, section 3.8.1.1).

Owns the grammar and the bounds on what is read. What a text may say is checked here as far as the
text alone shows it: an operand of an arithmetic operator, of ``< <= > >=`` and of BETWEEN must be a
number or an identifier; what stands left of LIKE, IN and IS must be an identifier; a condition must
be one. What identifiers stand for is known only with a message.

Literals are those of Java: exact numbers are decimal, octal (``017``) or hexadecimal (``0xFF``)
with an optional ``L``, in the range of a long; approximate ones have a decimal point, an exponent
or a suffix ``F`` (rounded to 32 bits) or ``D``.
"""

from __future__ import annotations

import math
import struct
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.messaging.errors import InvalidSelector
from gateway.messaging.selector import like as patterns
from gateway.messaging.selector import xpath
from gateway.messaging.selector.names import (
    HEADER_FIELDS,
    is_identifier_part,
    is_identifier_start,
    is_reserved,
)
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

if TYPE_CHECKING:
    from lark import Lark, Token

#: Characters of a selector, at most.
MAX_LENGTH: Final = 8192
#: Parentheses, NOTs and signs within each other, at most.
MAX_DEPTH: Final = 64
#: ActiveMQ and Artemis read texts as numbers behind it, as is done here anyway.
_CONVERTING: Final = "convert_string_expressions:"
#: Artemis has hyphens in all names of a selector that begins with it.
_HYPHENATED: Final = "hyphenated_props:"
#: What the characters of a name are without a hyphen, and with it.
_WITHOUT_HYPHEN: Final = r"\x25-\x2f\x3a-"
_WITH_HYPHEN: Final = r"\x25-\x2c\x2e\x2f\x3a-"
#: Characters of one token in an error.
_LONGEST_NAMED: Final = 60

# As Artemis has it, a header whose name has a hyphen is named behind HYPHENATED's prefix. Where a
# selector begins with that, hyphens are part of all its names.
# Reserved words come from NAME by _keyword. In NAME stand all characters of Java's identifiers and,
# beyond ASCII, some that _Builder refuses.
_GRAMMAR: Final = r"""
    ?start: disjunction -> condition
    ?disjunction: conjunction (_OR conjunction)*
    ?conjunction: negation (_AND negation)*
    ?negation: NOT negation -> not_
        | predicate
    ?predicate: sum
        | sum COMPARISON sum -> comparison
        | sum [NOT] _BETWEEN sum _AND sum -> between
        | sum [NOT] _IN "(" STRING ("," STRING)* ")" -> in_
        | sum [NOT] _LIKE STRING [_ESCAPE STRING] -> like
        | sum _IS [NOT] _NULL -> is_null
        | XPATH STRING -> xpath
    ?sum: product ((PLUS | MINUS) product)*
    ?product: sign ((STAR | SLASH) sign)*
    ?sign: (PLUS | MINUS) sign -> signed
        | primary
    ?primary: NAME -> identifier
        | HYPHENATED -> hyphenated
        | STRING -> string
        | EXACT -> exact
        | APPROXIMATE -> approximate
        | (TRUE | FALSE) -> boolean
        | LPAR disjunction ")" -> parentheses

    %declare _AND _OR _BETWEEN _IN _LIKE _ESCAPE _IS _NULL NOT TRUE FALSE

    NAME: /[^\x09-\x23\x25-\x40\x5b-\x5e\x60\x7b-\x7e\x00-\x08\x7f][^\x09-\x0d\x1c-\x23\x25-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x7e]*/
    HYPHENATED.2: /hyphenated_props:[^\x00-\x2c\x3a-\x3e\x60\x7f\x2f]+/
    XPATH.2: /[xX][pP][aA][tT][hH](?=[ \t\n\f\r]*')/
    STRING: /'(?:[^']|'')*'/
    APPROXIMATE.2: /(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?|[0-9]+(?:[eE][+-]?[0-9]+[fFdD]?|[fFdD])/
    EXACT: /0[xX][0-9a-fA-F]+[lL]?|[0-9]+[lL]?/
    COMPARISON: /<>|<=|>=|=|<|>/
    PLUS: "+"
    MINUS: "-"
    STAR: "*"
    SLASH: "/"
    LPAR: "("
    %ignore /[ \t\n\f\r]+/
"""


def read(text: str) -> Node:
    """The tree of a selector.

    :raises InvalidSelector: the text is not a selector, with the column where reading failed; or it is longer
        or nested deeper than is read.
    """
    # lark is imported, and its tables are made, by prepare or when the first selector comes: nobody
    # should wait for that who has none.
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    if not text.strip(" \t\n\f\r"):
        raise InvalidSelector(text, 0, "it is blank; no selector at all is said by leaving it out")
    if len(text) > MAX_LENGTH:
        raise InvalidSelector(
            text, 0, f"it has {len(text)} characters, and {MAX_LENGTH} are allowed"
        )
    given = text
    if text.lstrip(" (").startswith(_CONVERTING):
        # Blanks in its place, so that columns are those of the text.
        text = text.replace(_CONVERTING, " " * len(_CONVERTING), 1)
    try:
        tree: Node = _parser(text.lstrip(" (").startswith(_HYPHENATED)).parse(text)  # type: ignore[assignment]
    except _Refused as refused:
        raise InvalidSelector(given, refused.column, refused.reason) from None
    except UnexpectedCharacters as error:
        place: int = error.pos_in_stream  # type: ignore[assignment]
        raise InvalidSelector(given, place + 1, _about_character(text[place])) from None
    except UnexpectedToken as error:
        place = len(text) if error.token.type == "$END" else error.token.start_pos or 0
        raise InvalidSelector(given, place + 1, _about_token(error.token, error.expected)) from None
    return tree


def prepare() -> None:
    """Make now what the first selector needs: a tenth of a second.

    May be called on any thread, also while selectors are read.
    """
    _parser()


@cache
def _parser(hyphens: bool = False) -> Lark:
    """Return what parses selectors.

    :param hyphens: they are part of names.
    """
    from lark import Lark, Token

    def keyword(token: Token) -> Token:
        if not is_reserved(token):
            return token
        word = token.upper()
        return Token.new_borrow_pos(
            word if word in ("NOT", "TRUE", "FALSE") else f"_{word}", word, token
        )

    return Lark(
        _GRAMMAR.replace(_WITHOUT_HYPHEN, _WITH_HYPHEN) if hyphens else _GRAMMAR,
        parser="lalr",
        lexer="basic",
        transformer=_Builder(),
        lexer_callbacks={"NAME": keyword},
    )


class _Refused(Exception):
    """The text is grammatical and still no selector."""

    def __init__(self, column: int, reason: str) -> None:
        super().__init__(reason)
        self.column = column
        self.reason = reason


class _Kind(Enum):
    """What a term is known to be; the values are for sentences."""

    CONDITION = "a condition"
    NUMBER = "a number"
    STRING = "a string"
    ANY = "an identifier"


class _Term(NamedTuple):
    """A node under construction, with its column and its depth.

    The column is where its text begins.
    """

    node: Node
    kind: _Kind
    column: int
    depth: int = 0


class _Builder:
    """Makes nodes when lark has read what they consist of.

    It works from the inside to the outside, so no text makes it recurse.

    The methods carry the names of the grammar's alternatives; each is given what lark read, without
    the tokens that say nothing more.
    """

    def condition(self, children: list[_Term]) -> Node:
        return _expect(children[0], _Kind.CONDITION).node

    def disjunction(self, children: list[_Term]) -> _Term:
        terms = [_expect(child, _Kind.CONDITION) for child in children]
        return _Term(
            Or(tuple([term.node for term in terms])),
            _Kind.CONDITION,
            terms[0].column,
            _depth(terms),
        )

    def conjunction(self, children: list[_Term]) -> _Term:
        terms = [_expect(child, _Kind.CONDITION) for child in children]
        return _Term(
            And(tuple([term.node for term in terms])),
            _Kind.CONDITION,
            terms[0].column,
            _depth(terms),
        )

    def not_(self, children: tuple[Token, _Term]) -> _Term:
        token, operand = children
        return _deeper(token, Not(_expect(operand, _Kind.CONDITION).node), _Kind.CONDITION, operand)

    def parentheses(self, children: tuple[Token, _Term]) -> _Term:
        token, inner = children
        return _deeper(token, _in_range(inner).node, inner.kind, inner)

    def comparison(self, children: tuple[_Term, Token, _Term]) -> _Term:
        left, operator, right = children
        for operand in (left, right):
            if operator not in ("=", "<>") and operand.kind not in (_Kind.NUMBER, _Kind.ANY):
                raise _Refused(
                    operand.column, f"{operator} compares numbers, and this is {operand.kind.value}"
                )
            _in_range(operand)
        return _condition(Comparison(str(operator), left.node, right.node), left, right)

    def between(self, children: tuple[_Term, Token | None, _Term, _Term]) -> _Term:
        operand, negation, low, high = children
        for term in (operand, low, high):
            _expect(term, _Kind.NUMBER)
        return _condition(
            Between(negation is not None, operand.node, low.node, high.node), operand, low, high
        )

    def in_(self, children: list[_Term | Token | None]) -> _Term:
        operand, negation, *values = children
        assert isinstance(operand, _Term)
        strings = frozenset([_unquoted(str(value)) for value in values])
        return _condition(In(negation is not None, _identifier(operand, "IN"), strings), operand)

    def like(self, children: tuple[_Term, Token | None, Token, Token | None]) -> _Term:
        operand, negation, pattern, escape = children
        node = Like(
            negation is not None,
            _identifier(operand, "LIKE"),
            _unquoted(pattern),
            None if escape is None else _unquoted(escape),
        )
        try:
            patterns.cost(node.pattern, node.escape)
        except ValueError as error:
            raise _Refused(_column(pattern if escape is None else escape), str(error)) from None
        return _condition(node, operand)

    def is_null(self, children: tuple[_Term, Token | None]) -> _Term:
        operand, negation = children
        return _condition(IsNull(negation is not None, _identifier(operand, "IS")), operand)

    def xpath(self, children: tuple[Token, Token]) -> _Term:
        token, expression = children
        node = XPath(_unquoted(expression))
        try:
            xpath.check(node.expression)
        except ValueError as error:
            raise _Refused(_column(expression), str(error)) from None
        return _Term(node, _Kind.CONDITION, _column(token))

    def sum(self, children: list[_Term | Token]) -> _Term:
        return _arithmetic(children)

    def product(self, children: list[_Term | Token]) -> _Term:
        return _arithmetic(children)

    def signed(self, children: tuple[Token, _Term]) -> _Term:
        token, operand = children
        negative = token == "-"
        node = operand.node
        if (
            isinstance(node, Literal)
            and isinstance(node.value, int | float)
            and not isinstance(node.value, bool)
        ):
            # The literal -9223372036854775808 has no positive counterpart, so its sign is part of
            # it.
            return (
                _Term(Literal(-node.value), operand.kind, _column(token))
                if negative
                else _in_range(operand)
            )
        return _deeper(
            token, Sign(negative, _expect(operand, _Kind.NUMBER).node), _Kind.NUMBER, operand
        )

    def identifier(self, children: tuple[Token]) -> _Term:
        (token,) = children
        name = str(token)
        if "-" in name:
            return _Term(Identifier(name), _Kind.ANY, _column(token))
        for index, character in enumerate(name):
            if not (is_identifier_part(character) if index else is_identifier_start(character)):
                raise _Refused(
                    _column(token) + index,
                    f"the character {character!r} cannot be part of an identifier",
                )
        if (
            name.startswith("JMS")
            and not name.startswith(("JMSX", "JMS_"))
            and name not in HEADER_FIELDS
        ):
            raise _Refused(
                _column(token),
                f"a selector cannot refer to {_short(name)}, of the header fields only to {_LISTED_FIELDS}",
            )
        return _Term(Identifier(name), _Kind.ANY, _column(token))

    def hyphenated(self, children: tuple[Token]) -> _Term:
        (token,) = children
        return _Term(Identifier(str(token).partition(":")[2]), _Kind.ANY, _column(token))

    def string(self, children: tuple[Token]) -> _Term:
        (token,) = children
        return _Term(Literal(_unquoted(token)), _Kind.STRING, _column(token))

    def boolean(self, children: tuple[Token]) -> _Term:
        (token,) = children
        return _Term(Literal(token == "TRUE"), _Kind.CONDITION, _column(token))

    def exact(self, children: tuple[Token]) -> _Term:
        (token,) = children
        digits = token.rstrip("lL")
        if digits[:2] in ("0x", "0X"):
            value = int(digits, 16)
        elif digits[0] == "0":
            if "8" in digits or "9" in digits:
                raise _Refused(
                    _column(token),
                    f"{_short(token)} is not an octal number, as one that begins with 0 must be",
                )
            value = int(digits, 8)
        else:
            # A few digits more than a long has, so that no time is spent on thousands.
            value = int(digits[:20])
        return _Term(Literal(value), _Kind.NUMBER, _column(token))

    def approximate(self, children: tuple[Token]) -> _Term:
        (token,) = children
        value = float(token.rstrip("fFdD"))
        if token[-1] in "fF" and math.isfinite(value):
            try:
                (value,) = struct.unpack(">f", struct.pack(">f", value))
            except OverflowError:
                value = math.inf
        if not math.isfinite(value):
            raise _Refused(
                _column(token),
                f"{_short(token)} is outside of the range of a Java {'float' if token[-1] in 'fF' else 'double'}",
            )
        return _Term(Literal(value), _Kind.NUMBER, _column(token))


_LISTED_FIELDS: Final = ", ".join(sorted(HEADER_FIELDS))


def _column(token: Token) -> int:
    return (token.start_pos or 0) + 1


def _short(token: str) -> str:
    """What is named of a token, which may be as long as the selector."""
    return str(token) if len(token) <= _LONGEST_NAMED else f"{token[:_LONGEST_NAMED]}..."


def _unquoted(string: str) -> str:
    return string[1:-1].replace("''", "'")


def _depth(terms: list[_Term]) -> int:
    return max([term.depth for term in terms])


def _deeper(token: Token, node: Node, kind: _Kind, inner: _Term) -> _Term:
    if inner.depth >= MAX_DEPTH:
        raise _Refused(_column(token), f"it is nested more than {MAX_DEPTH} deep")
    return _Term(node, kind, _column(token), inner.depth + 1)


def _condition(node: Node, *terms: _Term) -> _Term:
    return _Term(node, _Kind.CONDITION, terms[0].column, _depth(list(terms)))


def _in_range(term: _Term) -> _Term:
    if (
        isinstance(term.node, Literal)
        and isinstance(term.node.value, int)
        and not -(2**63) <= term.node.value < 2**63
    ):
        raise _Refused(term.column, "the number is outside of the range of a Java long")
    return term


def _expect(term: _Term, kind: _Kind) -> _Term:
    """Return the term, if it is or may turn out to be of this kind.

    Which one it is may show only when there is a message.
    """
    if term.kind is not kind and term.kind is not _Kind.ANY:
        raise _Refused(term.column, f"{kind.value} is expected here, and this is {term.kind.value}")
    return _in_range(term)


def _identifier(term: _Term, operator: str) -> Identifier:
    if not isinstance(term.node, Identifier):
        raise _Refused(
            term.column, f"left of {operator} must be an identifier, and this is {term.kind.value}"
        )
    return term.node


def _arithmetic(children: list[_Term | Token]) -> _Term:
    terms = [_expect(child, _Kind.NUMBER) for child in children if isinstance(child, _Term)]
    operators = [str(child) for child in children if not isinstance(child, _Term)]
    rest = tuple(zip(operators, [term.node for term in terms[1:]], strict=True))
    return _Term(Arithmetic(terms[0].node, rest), _Kind.NUMBER, terms[0].column, _depth(terms))


def _about_character(character: str) -> str:
    if character == "'":
        return "the string is not closed"
    if character == '"':
        return "strings are written in single quotes"
    if character == "!":
        return "'!' is no operator; not equal is written <>"
    return f"the character {character!r} has no meaning here"


#: What lark's names for tokens mean to a reader; those not listed are reserved words and single
#: characters that name themselves.
_WORDS: Final = {
    "NAME": "an identifier",
    "STRING": "a string",
    "EXACT": "a number",
    "APPROXIMATE": "a number",
    "COMPARISON": "a comparison",
    "PLUS": "an arithmetic operator",
    "MINUS": "an arithmetic operator",
    "STAR": "an arithmetic operator",
    "SLASH": "an arithmetic operator",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "$END": "the end",
}


def _about_token(token: Token, expected: set[str]) -> str:
    found = "the selector ends" if token.type == "$END" else f"{_short(token)!r} stands here"
    if "NAME" in expected:
        # Where an operand may stand, so may its sign, a literal or a parenthesis; naming all of
        # them says less.
        wanted = ["a condition"] if "NOT" in expected else ["an operand"]
    elif "$END" in expected:
        # lark cannot tell here whether a parenthesis is open. AND and OR may always stand before
        # the end.
        wanted = ["an operator" if "COMPARISON" in expected else "AND, OR", "the end"]
    else:
        wanted = sorted({_WORDS.get(name, name.lstrip("_")) for name in expected})
    listed = wanted[0] if len(wanted) == 1 else f"{', '.join(wanted[:-1])} or {wanted[-1]}"
    return f"{found}, where {listed} is expected"
