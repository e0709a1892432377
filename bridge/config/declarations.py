"""The DTD as values: which elements there are, what is in them, and their attributes with what the
DTD says of each.

Owns nothing but the reading of the DTD that ships with the package, which is where attributes and
their defaults are declared, once.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from lxml import etree

DTD_NAMES: Final = ("sun_jmsbridge_1_0.dtd", "sun_jmsbridge_1_1.dtd")
"""What a DOCTYPE may call it."""
ROOT: Final = "jmsbridge"


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of an element.

    :param default: what holds where it is not given; None is nothing.
    :param choices: the values it may have; empty is any text.
    """

    name: str
    required: bool
    default: str | None
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Child:
    """A place in an element for another.

    :param required: whether there must be one. :param repeated: whether there may be more than one.
    """

    name: str
    required: bool
    repeated: bool


@dataclass(frozen=True, slots=True)
class Declaration:
    """One element.

    :param children: the places in it, in their order.
    :param text: whether text may be in it.
    """

    name: str
    attributes: Mapping[str, Attribute]
    children: tuple[Child, ...]
    text: bool


def dtd() -> Any:
    """The DTD itself, newly read: one is not for two threads at once."""
    return etree.DTD(io.BytesIO(_source()))


@lru_cache(maxsize=1)
def declarations() -> Mapping[str, Declaration]:
    """Every element by its name.

    :raises ValueError: the DTD has a content model that is not a sequence of elements.
    """
    return {element.name: _declaration(element) for element in dtd().iterelements()}


@lru_cache(maxsize=1)
def _source() -> bytes:
    return resources.files(__package__).joinpath("dtd", "jmsbridge.dtd").read_bytes()


def _declaration(element: Any) -> Declaration:
    attributes = {
        attribute.name: Attribute(
            attribute.name,
            attribute.default == "required",
            attribute.default_value,
            tuple(attribute.values()),
        )
        for attribute in element.iterattributes()
    }
    text = element.content is not None and element.content.type == "pcdata"
    return Declaration(
        element.name, attributes, () if text else tuple(_children(element.content)), text
    )


def _children(content: Any) -> Iterator[Child]:
    match None if content is None else content.type:
        case None:
            return
        case "seq":
            yield from _children(content.left)
            yield from _children(content.right)
        case "element":
            yield Child(
                content.name, content.occur in ("once", "plus"), content.occur in ("mult", "plus")
            )
        case other:
            raise ValueError(
                f"the DTD has content of the kind {other}, where only sequences of elements are read"
            )
