"""Read an XML document safely and check its form against the DTD.

Nothing is fetched: no DTD, whatever the DOCTYPE names, and no entity of another file. The size of
the document, its depth, and the expansion of entities that it declares itself are bounded. Knows
the names of elements and attributes from the DTD that ships with the package, and the meaning of
none.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import islice
from typing import Any, Final

from lxml import etree

from bridge.config.problems import HIDDEN, Problem, Severity
from bridge.config.secrets import sounds_secret
from gateway.instance.setting_types import Choice, nearest

DTD_NAMES: Final = ("sun_jmsbridge_1_0.dtd", "sun_jmsbridge_1_1.dtd")
"""The names by which a DOCTYPE may refer to the DTD."""
ROOT: Final = "jmsbridge"
LARGEST: Final = 4 * 1024 * 1024
"""The most octets a document may have: some ten thousand links."""

_MOST_SYNTAX_ERRORS: Final = 10
#: Of the document's form; more would not be read, and finding the nearest known name takes time.
_MOST_PROBLEMS: Final = 1000
_ATTRIBUTES: Final = etree.XPath("@*")
_UNDEFINED: Final = ("ERR_UNDECLARED_ENTITY", "WAR_UNDECLARED_ENTITY", "ERR_ENTITY_IS_EXTERNAL")
_LIMITS: Final = ("ERR_RESOURCE_LIMIT", "ERR_ENTITY_LOOP", "ERR_INTERNAL_ERROR")


@dataclass(frozen=True, slots=True)
class Attribute:
    """What the DTD says of an attribute.

    :param default: the value where it is not written; None without a default.
    :param choices: the allowed values; empty allows any text.
    """

    required: bool
    default: str | None
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Declaration:
    """What the DTD says of an element.

    :param children: how often each may occur, in the order that the DTD demands: ``once``, ``opt``,
        ``mult`` or ``plus``.
    :param text: whether it may hold text.
    """

    attributes: Mapping[str, Attribute]
    children: Mapping[str, str]
    text: bool


@dataclass(frozen=True, slots=True)
class Element:
    """An element of the document.

    :param label: its name in problems: ``link "orders"``, ``source of link "orders"``.
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
        """Return its child elements of that tag."""
        return [child for child in self.children if child.tag == tag]

    def first(self, tag: str) -> Element | None:
        """Return its first child element of that tag."""
        return next(iter(self.all(tag)), None)

    def presentable(self, attribute: str) -> str | None:
        """Return an attribute's value, hidden if it may be a secret, or None."""
        value = self.attributes.get(attribute)
        of_a_secret = (
            self.tag == "property"
            and attribute != "name"
            and sounds_secret(self.attributes.get("name", ""))
        )
        return HIDDEN if value is not None and (of_a_secret or sounds_secret(attribute)) else value


class Report:
    """Collects the problems of one document.

    :param origin: its file or URL.
    """

    def __init__(self, origin: str) -> None:
        self.problems: list[Problem] = []
        self.origin = origin

    def add(
        self,
        element: Element,
        attribute: str,
        expected: str,
        near: str = "",
        *,
        severity: Severity = Severity.BRIDGE,
        value: str | None = None,
    ) -> None:
        """Add a problem of an attribute, or, where that is "", of the element.

        :param near: the nearest known name.
        :param value: shown in place of the attribute's own value, which is hidden where it may be a
            secret.
        """
        value = element.presentable(attribute) if value is None else value
        self.problems.append(
            Problem(
                self.origin, element.line, element.label, attribute, value, expected, near, severity
            )
        )

    def warn(self, element: Element, attribute: str, expected: str) -> None:
        """Add a warning."""
        self.add(element, attribute, expected, severity=Severity.WARNING)


def dtd() -> Any:
    """Return the DTD, parsed anew: two threads must not share one."""
    return etree.DTD(io.BytesIO(_dtd_source()))


@lru_cache(maxsize=1)
def declarations() -> Mapping[str, Declaration]:
    """Return what the DTD says of every element, by its name.

    :raises ValueError: the DTD has a content model that is not a sequence of elements.
    """
    return {element.name: _declaration(element) for element in dtd().iterelements()}


@lru_cache(maxsize=1)
def _dtd_source() -> bytes:
    return resources.files(__package__).joinpath("dtd", "jmsbridge.dtd").read_bytes()


def _declaration(element: Any) -> Declaration:
    attributes = {
        attribute.name: Attribute(
            attribute.default == "required", attribute.default_value, tuple(attribute.values())
        )
        for attribute in element.iterattributes()
    }
    text = element.content is not None and element.content.type == "pcdata"
    return Declaration(attributes, {} if text else dict(_content_model(element.content)), text)


def _content_model(content: Any) -> Iterator[tuple[str, str]]:
    match None if content is None else content.type:
        case None:
            return
        case "seq":
            yield from _content_model(content.left)
            yield from _content_model(content.right)
        case "element":
            yield content.name, content.occur
        case other:
            raise ValueError(
                f"the DTD has content of the kind {other}, where only sequences of elements are read"
            )


def too_large(origin: str) -> Problem:
    """Return the problem of a document of more than :data:`LARGEST` bytes."""
    return of_document(origin, f"a document of at most {LARGEST} octets")


def parse(data: bytes, origin: str) -> tuple[Element | None, list[Problem]]:
    """Read a document, in whatever encoding its XML declaration says.

    :param origin: its file or URL, for problems.
    :return: its root and all problems of its form; None where it is no document of a bridge at all.
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
        # The error's own log includes what this thread found in other documents.
        return None, _syntax(parser.error_log, str(error), origin)
    report = Report(origin)
    report.problems += _doctype(tree.getroottree().docinfo.internalDTD, origin)
    root = _element(tree, None)
    if root.tag != ROOT:
        report.add(root, "", f"a document whose outermost element is {ROOT}")
        return None, report.problems
    structure = _structure(root, declarations()[ROOT])
    for wrong in islice(structure, _MOST_PROBLEMS):
        report.add(*wrong)
    if next(structure, None) is not None:
        expected = f"fewer problems of its form; only the first {_MOST_PROBLEMS} are listed"
        report.problems.append(of_document(origin, expected))
    grammar = dtd()
    if not report.problems and not grammar.validate(tree):
        # The checks above are meant to say all that the DTD demands. If they ever do not, the
        # document is refused nevertheless.
        wrong = grammar.error_log[0]
        expected = f"a document that conforms to the DTD: {_sentence(wrong.message)}"
        report.problems.append(of_document(origin, expected, wrong.line))
    return root, report.problems


def of_document(origin: str, expected: str, line: int = 0) -> Problem:
    """Return a problem of a whole document."""
    return Problem(origin, line, "", "", None, expected)


def _syntax(log: Any, otherwise: str, origin: str) -> list[Problem]:
    problems = []
    for wrong in list(log)[:_MOST_SYNTAX_ERRORS]:
        if wrong.type_name in _UNDEFINED:
            expected = (
                "entities that the document itself declares, as those of other files are not read"
            )
        elif wrong.type_name in _LIMITS:
            expected = (
                "entities that expand to little, and elements that are not deep in each other"
            )
        else:
            expected = "well-formed XML"
        found = f"{expected}; at column {wrong.column}: {_sentence(wrong.message)}"
        problems.append(of_document(origin, found, wrong.line))
    return problems or [of_document(origin, f"well-formed XML; {_sentence(otherwise)}")]


def _sentence(message: str) -> str:
    return " ".join(message.split()).rstrip(".")


def _doctype(subset: Any, origin: str) -> Iterator[Problem]:
    """Check the DOCTYPE; there may be none, and it may name no DTD."""
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
    tag = _plain(node.tag)
    # Not node.attrib: that looks each value up by its name, in quadratic time.
    attributes = {_plain(value.attrname): str(value) for value in _ATTRIBUTES(node)}
    name = attributes.get("name")
    if tag != "property":
        name = attributes.get("ref-name", name)
    label = tag if name is None else f'{tag} "{name}"'
    if around is not None:
        label = f"{label} of {around}"
    below = None if around is None and tag == ROOT else label
    children = tuple(_element(child, below) for child in node if isinstance(child.tag, str))
    text = "".join([node.text or "", *(child.tail or "" for child in node)])
    empty = node.text is None and len(node) == 0
    return Element(tag, label, node.sourceline, attributes, children, text.strip(), empty)


def _plain(name: str) -> str:
    """Return a name in no namespace as it is, another as ``{namespace}name``."""
    return name.replace("{http://www.w3.org/XML/1998/namespace}", "xml:")


#: A problem of an element, or of its attribute where one is named: what was expected, and the
#: nearest known name.
_Wrong = tuple[Element, str, str, str]


def _structure(element: Element, declaration: Declaration) -> Iterator[_Wrong]:
    yield from _attributes(element, declaration.attributes)
    if declaration.children or declaration.text:
        if element.text and not declaration.text:
            text = " ".join(element.text.split())
            begins = text if len(text) <= 40 else f"{text[:40]}..."
            yield (
                element,
                "",
                f'no text between the elements of {element.tag}, and there is "{begins}"',
                "",
            )
        yield from _children(element, declaration.children)
    elif not element.empty:
        yield element, "", f"nothing inside {element.tag}, not even a blank or a comment", ""
    for child in element.children:
        if child.tag in declaration.children:
            yield from _structure(child, declarations()[child.tag])


def _attributes(element: Element, declared: Mapping[str, Attribute]) -> Iterator[_Wrong]:
    for name, value in element.attributes.items():
        if name not in declared:
            known = sorted(declared)
            yield (
                element,
                name,
                f"an attribute that {element.tag} has: {', '.join(known) or 'none'}",
                nearest(name, known),
            )
        elif (choices := declared[name].choices) and value not in choices:
            yield element, name, Choice(*choices).expected, ""
    for name, attribute in declared.items():
        if attribute.required and name not in element.attributes:
            yield element, name, f"a value, which every {element.tag} must have", ""


def _children(element: Element, declared: Mapping[str, str]) -> Iterator[_Wrong]:
    order = list(declared)
    first: dict[str, Element] = {}
    latest = 0
    for child in element.children:
        if child.tag not in order:
            yield (
                child,
                "",
                f"an element that {element.tag} has: {', '.join(order) or 'none'}",
                nearest(child.tag, order),
            )
            continue
        index = order.index(child.tag)
        before = first.setdefault(child.tag, child)
        if index < latest:
            sequence = f"the order in {element.tag} is {', '.join(order)}"
            yield child, "", f"it before {order[latest]}: {sequence}", ""
        elif before is not child and declared[child.tag] in ("once", "opt"):
            yield child, "", f"one {child.tag} only, and there is another on line {before.line}", ""
        latest = max(latest, index)
    for tag, occurs in declared.items():
        if occurs in ("once", "plus") and tag not in first:
            yield element, "", f"an element {tag} in it", ""
