"""From the bytes of an XML file to elements that are as the DTD says, or to everything about them
that is not.

Owns the safety of reading what somebody else may have written, and the sentences about the
document's form. Knows no element by its meaning.

Nothing is fetched: no DTD, whatever the DOCTYPE names, and no entity of another file. Entities that
the document itself declares are expanded as long as they expand to little; the document's size and
its depth are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from lxml import etree

from bridge.config.declarations import DTD_NAMES, ROOT, Declaration, declarations, dtd
from bridge.config.problems import HIDDEN, Problem
from bridge.config.secrets import sounds_secret
from gateway.instance.declaration import nearest
from gateway.instance.values import Choice

LARGEST: Final = 4 * 1024 * 1024
"""The most octets a document may have: some ten thousand links."""

_MOST_SYNTAX_ERRORS: Final = 10
#: Of the document's form; nobody reads more, and to find what each was meant to be takes time.
_MOST_PROBLEMS: Final = 1000
_UNDEFINED: Final = ("ERR_UNDECLARED_ENTITY", "WAR_UNDECLARED_ENTITY", "ERR_ENTITY_IS_EXTERNAL")
_LIMITS: Final = ("ERR_RESOURCE_LIMIT", "ERR_ENTITY_LOOP", "ERR_INTERNAL_ERROR")


@dataclass(frozen=True, slots=True)
class Element:
    """An element of the document.

    :param label: how problems call it: ``link "orders"``, ``source of link "orders"``.
    :param line: the line on which its start tag ends, from 1.
    :param attributes: those that are written, without the DTD's defaults.
    :param text: its own text, without blanks around it.
    :param empty: whether there is nothing in it, not even a blank.
    """

    tag: str
    label: str
    line: int
    attributes: Mapping[str, str]
    children: tuple[Element, ...]
    text: str
    empty: bool

    def all(self, tag: str) -> list[Element]:
        """The elements of that tag in it."""
        return [child for child in self.children if child.tag == tag]

    def first(self, tag: str) -> Element | None:
        """The first element of that tag in it."""
        return next(iter(self.all(tag)), None)

    def shown(self, attribute: str) -> str | None:
        """The attribute's value, hidden where it may be a secret; None where it is not given."""
        value = self.attributes.get(attribute)
        of_a_secret = (
            self.tag == "property"
            and attribute != "name"
            and sounds_secret(self.attributes.get("name", ""))
        )
        return HIDDEN if value is not None and (of_a_secret or sounds_secret(attribute)) else value


def too_large(origin: str) -> Problem:
    """The problem of a document of more than :data:`LARGEST` octets."""
    return Problem(origin, 0, "", "", None, f"a document of at most {LARGEST} octets")


def parse(data: bytes, origin: str) -> tuple[Element | None, list[Problem]]:
    """Read a document, in whatever encoding its XML declaration says.

    :param origin: its file or URL, for problems.
    :return: its root, and everything in its form that is wrong; None where it is no document of a
        bridge at all.
    """
    if len(data) > LARGEST:
        return None, [too_large(origin)]
    parser = etree.XMLParser(
        resolve_entities="internal",
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        no_network=True,
        huge_tree=False,
    )
    try:
        tree = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        # The error's own log has what this thread found in other documents, too.
        return None, _syntax(parser.error_log, str(error), origin)
    problems = list(_doctype(tree.getroottree().docinfo.internalDTD, origin))
    root = _element(tree, None)
    if root.tag != ROOT:
        return None, [
            *problems,
            Problem(
                origin,
                root.line,
                root.tag,
                "",
                None,
                f"a document whose outermost element is {ROOT}",
            ),
        ]
    problems += islice(_structure(root, origin), _MOST_PROBLEMS)
    grammar = dtd()
    if not problems and not grammar.validate(tree):
        # What is said above says all that the DTD demands; should it ever not, this is still no
        # document for a bridge.
        wrong = grammar.error_log[0]
        problems.append(
            Problem(
                origin,
                wrong.line,
                "",
                "",
                None,
                f"a document that conforms to the DTD: {_sentence(wrong.message)}",
            )
        )
    return root, problems


def _syntax(log: Any, otherwise: str, origin: str) -> list[Problem]:
    problems = []
    for wrong in list(log)[:_MOST_SYNTAX_ERRORS]:
        message = f"at column {wrong.column}: {_sentence(wrong.message)}"
        if wrong.type_name in _UNDEFINED:
            expected = f"entities that the document itself declares, as those of other files are not read; {message}"
        elif wrong.type_name in _LIMITS:
            expected = f"entities that expand to little, and elements that are not deep in each other; {message}"
        else:
            expected = f"well-formed XML; {message}"
        problems.append(Problem(origin, wrong.line, "", "", None, expected))
    return problems or [
        Problem(origin, 0, "", "", None, f"well-formed XML; {_sentence(otherwise)}")
    ]


def _sentence(message: str) -> str:
    return " ".join(message.split()).rstrip(".")


def _doctype(subset: Any, origin: str) -> Iterator[Problem]:
    """What is wrong with the DOCTYPE; there may be none, and it may name no DTD."""
    if subset is None:
        return
    if subset.name != ROOT:
        yield Problem(
            origin, 0, "DOCTYPE", "", None, f"a DOCTYPE for {ROOT}, and not for {subset.name}"
        )
    system, public = subset.system_url, subset.external_id
    names = [re.split(r"[/\\]", identifier)[-1] for identifier in (system, public) if identifier]
    if names and not set(names) & set(DTD_NAMES):
        kind = "SYSTEM" if system else "PUBLIC"
        expected = f"{' or '.join(DTD_NAMES)}, in whatever directory; it is not fetched"
        yield Problem(
            origin, 0, "DOCTYPE", kind, system or public, expected, nearest(names[0], DTD_NAMES)
        )


def _element(node: Any, around: str | None) -> Element:
    attributes = {_plain(name): value for name, value in node.attrib.items()}
    name = (
        attributes.get("name")
        if node.tag == "property"
        else attributes.get("ref-name", attributes.get("name"))
    )
    label = _plain(node.tag) if name is None else f'{_plain(node.tag)} "{name}"'
    if around is not None:
        label = f"{label} of {around}"
    below = None if around is None and node.tag == ROOT else label
    children = tuple(_element(child, below) for child in node if isinstance(child.tag, str))
    text = "".join([node.text or "", *(child.tail or "" for child in node)])
    return Element(
        _plain(node.tag),
        label,
        node.sourceline,
        attributes,
        children,
        text.strip(),
        node.text is None and len(node) == 0,
    )


def _plain(name: str) -> str:
    """A name in no namespace as it is, another as ``{namespace}name``."""
    return name.replace("{http://www.w3.org/XML/1998/namespace}", "xml:")


def _structure(element: Element, origin: str) -> Iterator[Problem]:
    declaration = declarations()[element.tag]
    yield from _attributes(element, declaration, origin)
    yield from _content(element, declaration, origin)
    for child in element.children:
        if any(place.name == child.tag for place in declaration.children):
            yield from _structure(child, origin)


def _attributes(element: Element, declaration: Declaration, origin: str) -> Iterator[Problem]:
    for name, value in element.attributes.items():
        declared = declaration.attributes.get(name)
        if declared is None:
            known = sorted(declaration.attributes)
            expected = f"an attribute that {element.tag} has: {', '.join(known) or 'none'}"
            yield Problem(
                origin,
                element.line,
                element.label,
                name,
                element.shown(name),
                expected,
                nearest(name, known),
            )
        elif declared.choices and value not in declared.choices:
            expected = Choice(*declared.choices).expected
            yield Problem(origin, element.line, element.label, name, element.shown(name), expected)
    for name, declared in declaration.attributes.items():
        if declared.required and name not in element.attributes:
            yield Problem(
                origin,
                element.line,
                element.label,
                name,
                None,
                f"a value, which every {element.tag} must have",
            )


def _content(element: Element, declaration: Declaration, origin: str) -> Iterator[Problem]:
    if not declaration.children and not declaration.text:
        if not element.empty:
            yield Problem(
                origin,
                element.line,
                element.label,
                "",
                None,
                f"nothing inside {element.tag}, not even a blank or a comment",
            )
        return
    if element.text and not declaration.text:
        expected = f"no text between the elements of {element.tag}, and there is {_beginning(element.text)}"
        yield Problem(origin, element.line, element.label, "", None, expected)
    yield from _children(element, declaration, origin)


def _children(element: Element, declaration: Declaration, origin: str) -> Iterator[Problem]:
    order = [place.name for place in declaration.children]
    first: dict[str, Element] = {}
    latest = 0
    for child in element.children:
        if child.tag not in order:
            expected = f"an element that {element.tag} has: {', '.join(order) or 'none'}"
            yield Problem(
                origin, child.line, child.label, "", None, expected, nearest(child.tag, order)
            )
            continue
        index = order.index(child.tag)
        before = first.setdefault(child.tag, child)
        if index < latest:
            expected = (
                f"it before {order[latest]}: the order in {element.tag} is {', '.join(order)}"
            )
            yield Problem(origin, child.line, child.label, "", None, expected)
        elif before is not child and not declaration.children[index].repeated:
            expected = f"one {child.tag} only, and there is another on line {before.line}"
            yield Problem(origin, child.line, child.label, "", None, expected)
        latest = max(latest, index)
    for place in declaration.children:
        if place.required and place.name not in first:
            yield Problem(
                origin, element.line, element.label, "", None, f"an element {place.name} in it"
            )


def _beginning(text: str) -> str:
    text = " ".join(text.split())
    return f'"{text}"' if len(text) <= 40 else f'"{text[:40]}..."'
