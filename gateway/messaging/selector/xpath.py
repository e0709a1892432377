"""XPATH in selectors: a condition on the XML in a message's body.

ActiveMQ's and Artemis's selectors have it: ``XPATH '//order/item'`` is true of a body where that
XPath 1.0 expression is.

Owns what an expression may say, and how large a body may be. Clients write both, and some
expressions take time that grows with a power of the body's size. So an expression is short, searches
a whole body twice at most, and looks only downwards in its conditions. Nothing outside of the body
is ever read: it may have no document type, and so no entities.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from gateway.messaging.message import BodyType, Message

if TYPE_CHECKING:
    from lxml import etree

#: Characters of an expression, at most.
MAX_EXPRESSION: Final = 256
#: Bytes of a body, at most.
MAX_BODY: Final = 64 * 1024
#: Elements, attributes and comments of a body, at most.
MAX_NODES: Final = 1000
#: Elements within each other, at most.
MAX_DEPTH: Final = 32
#: About how many microseconds one may take, for such a body that is as bad for it as can be.
COST: Final = 9000

#: Searches of a whole body in one expression, at most.
_MOST_SEARCHES: Final = 3
#: Comparisons of one expression, at most.
_MOST_COMPARISONS: Final = 16
_AXES: Final = frozenset(("attribute", "child", "descendant", "descendant-or-self", "self"))
_FUNCTIONS: Final = frozenset(
    [
        "boolean",
        "ceiling",
        "comment",
        "contains",
        "count",
        "false",
        "floor",
        "last",
        "local-name",
        "name",
        "namespace-uri",
        "node",
        "normalize-space",
        "not",
        "number",
        "position",
        "processing-instruction",
        "round",
        "starts-with",
        "string",
        "string-length",
        "substring",
        "substring-after",
        "substring-before",
        "sum",
        "text",
        "true",
    ]
)
_TOKEN: Final = re.compile(
    r"""
    (?P<literal>"[^"]*"|'[^']*')
    | (?P<axis>[\w.-]+)\s*::
    | (?P<function>[^\W\d][\w.-]*)\s*\(
    | (?P<prefixed>[^\W\d][\w.-]*:[\w*])
    | (?P<name>[^\W\d][\w.-]*)
    | (?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)
    | (?P<sign>//|\.\.|!=|<=|>=|[][()/.@*|$=<>+,-])
    | \s+
    """,
    re.VERBOSE,
)
#: Behind these an operand begins.
_BEFORE_OPERANDS: Final = frozenset(
    ("", "[", "(", ",", "|", "=", "!=", "<", "<=", ">", ">=", "+", "-", "operator")
)
#: Behind these a name is one, and a star stands for all names.
_BEFORE_NAMES: Final = _BEFORE_OPERANDS | {"/", "//", "::", "@"}
_COMPARING: Final = frozenset(("=", "!=", "<", "<=", ">", ">="))
_OPERATORS: Final = frozenset(("and", "or", "div", "mod"))

#: Whether an expression is true of a body; None: that body is too large to say.
Test: TypeAlias = Callable[[Message], bool | None]


def check(expression: str) -> None:
    """Check that an expression is XPath and may be asked.

    :raises ValueError: it is not, or may not; the text says why, for the client.
    """
    # It is imported when it is needed first: most brokers never have such a selector.
    from lxml import etree

    if len(expression) > MAX_EXPRESSION:
        raise ValueError(
            f"the XPath has {len(expression)} characters, and {MAX_EXPRESSION} are allowed"
        )
    try:
        etree.XPath(expression)
    except (etree.XPathError, ValueError) as error:
        raise ValueError(f"{_quoted(expression)} is not XPath 1.0: {error}") from None
    _check_tokens(expression)
    try:
        etree.XPath(expression)(_parsed(b"<a/>"))
    except etree.XPathError as error:
        raise ValueError(f"{_quoted(expression)} is not XPath 1.0: {error}") from None


def test(expression: str) -> Test:
    """Return what decides about a message.

    A body that is no XML is one of which the expression is false.

    :param expression: one that :func:`check` has let through.
    """
    from lxml import etree

    # Relative paths begin at the document, as in ActiveMQ; lxml has them begin at the root element.
    found = etree.XPath(f"boolean(/self::node()[boolean({expression})])")

    def asked(message: Message) -> bool | None:
        if message.headers.body_type not in (BodyType.TEXT, BodyType.BYTES):
            return False
        body = message.body
        if body.lstrip()[:1] != b"<":
            return False
        if len(body) > MAX_BODY:
            return None
        try:
            root = _parsed(body)
        except (etree.XMLSyntaxError, ValueError):
            return False
        if _is_too_large(root):
            return None
        try:
            return bool(found(root.getroottree()))
        except etree.XPathError:
            return False

    return asked


def _parsed(body: bytes) -> etree._Element:
    """Return the root of a body.

    :raises lxml.etree.XMLSyntaxError: it is no XML in UTF-8, or
    :raises ValueError: has a document type.
    """
    from lxml import etree

    if b"<!DOCTYPE" in body:
        raise ValueError("a document type")
    # The encoding is not for the body to say: in another, a document type would look otherwise.
    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        collect_ids=False,
    )
    return etree.fromstring(body, parser)


def _is_too_large(root: etree._Element) -> bool:
    """Whether there are more nodes, or is more nesting, than is looked at."""
    nodes, level, depth = 1 + len(root.attrib), [root], 1
    while level:
        below = []
        for element in level:
            for child in element:
                nodes += 1 + len(child.attrib)
                below.append(child)
            if nodes > MAX_NODES:
                return True
        depth += 1
        if depth > MAX_DEPTH + 1:
            return True
        level = below
    return False


def _check_tokens(expression: str) -> None:
    """Check what an expression consists of.

    :raises ValueError: it could take too long, or ask for what is not in the body.
    """
    walk = _Walk()
    at = 0
    while at < len(expression):
        token = _TOKEN.match(expression, at)
        if token is None:
            raise ValueError(f"{expression[at]!r} in {_quoted(expression)} is not taken")
        at = token.end()
        if token.lastgroup is not None:
            walk.take(token.lastgroup, token[token.lastgroup])
    if walk.searches > _MOST_SEARCHES:
        raise ValueError(
            f"the XPath searches with // {walk.searches} times, and {_MOST_SEARCHES} are allowed"
        )
    if walk.comparisons > _MOST_COMPARISONS:
        raise ValueError(
            f"the XPath compares {walk.comparisons} times, and {_MOST_COMPARISONS} are allowed"
        )


class _Walk:
    """Where in an expression its tokens are."""

    def __init__(self) -> None:
        self.searches = 0
        self.comparisons = 0
        self._before = ""
        #: The open brackets, and for each, and for the whole, whether the path there has searched.
        self._brackets: list[str] = []
        self._searched = [False]
        #: A comparison has no constant on its left, and wants one on its right.
        self._wants_constant = False

    def take(self, kind: str, text: str) -> None:
        """Take the next token.

        :raises ValueError: it may not stand there.
        """
        before = self._before
        if text in _OPERATORS and kind in ("name", "function") and before not in _BEFORE_NAMES:
            self._take_sign("operator")
            if kind == "function":
                self._take_sign("(")
        elif text == "*" and before not in _BEFORE_NAMES:
            self._take_sign("operator")
        elif kind == "axis":
            if text not in _AXES:
                raise ValueError(
                    f"the axis {text[:60]} is not taken: expected one of {', '.join(sorted(_AXES))}"
                )
            if text.startswith("descendant"):
                self._search()
            self._before = "::"
        elif kind == "function":
            if text not in _FUNCTIONS:
                raise ValueError(
                    f"the function {text[:60]} is not taken: expected one of {', '.join(sorted(_FUNCTIONS))}"
                )
            self._take_sign("(")
        elif kind == "prefixed":
            raise ValueError(
                f"{text[:-2][:60]} has no namespace, as a selector can declare none: expected *[local-name() = 'NAME']"
            )
        elif kind in ("literal", "number"):
            self._before, self._wants_constant = kind, False
        else:
            self._take_sign(text if kind == "sign" else "name")

    def _take_sign(self, text: str) -> None:
        before, within = self._before, "[" in self._brackets
        if self._wants_constant and text == "-":
            return
        if self._wants_constant:
            raise ValueError(
                "the XPath compares what it finds with what it finds: expected a string or a number on one side"
            )
        if text == "$":
            raise ValueError("a selector has no variables for XPath")
        if within and (text == ".." or (text in ("/", "//") and before in _BEFORE_OPERANDS)):
            raise ValueError(
                f"'{text}' there is not taken: conditions in brackets look only downwards, as './/a' does"
            )
        if text in ("[", "("):
            self._brackets.append(text)
            self._searched.append(False)
        elif text in ("]", ")") and self._brackets:
            searched = self._searched.pop()
            if self._brackets.pop() == "(":
                self._searched[-1] = searched
        elif text in _BEFORE_OPERANDS:
            self._searched[-1] = False
        if text == "//":
            self._search()
        if text in _COMPARING:
            self.comparisons += 1
            self._wants_constant = before not in ("literal", "number")
        self._before = text

    def _search(self) -> None:
        if self._searched[-1]:
            raise ValueError(
                "the XPath searches within what it has searched for: instead of //a//b write //a[.//b]"
            )
        self._searched[-1] = True
        self.searches += 1


def _quoted(expression: str) -> str:
    return repr(expression if len(expression) <= 60 else f"{expression[:60]}...")
