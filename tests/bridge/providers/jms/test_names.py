"""How the names of headers that are no properties are escaped (``Names.java``)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.messaging.selector.names import is_property_name
from tests.bridge.providers.jms.lines import Program

#: What header names are made of, and what is close to an escape.
NAMES = st.one_of(
    st.text(max_size=12),
    st.text("aZ0_-._ \u00e9\U0001f600", max_size=12),
    st.sampled_from(["", "NULL", "STOMP_x", "_002d"]),
)
ESCAPED = re.compile(r"STOMP_(?:[A-Za-z0-9]|__|_[0-9a-f]{4})*")


_PROGRAM: Final = Program("Naming")


class Naming(NamedTuple):
    """What Java makes of a name."""

    is_property: bool
    escaped: str
    unescaped: str | None


def naming(name: str) -> Naming:
    is_property, escaped, unescaped = _PROGRAM.ask(name)
    return Naming(is_property == "true", str(escaped), unescaped)


def spelt(name: str) -> str:
    """The escape as the provider's documentation tells it."""
    units = name.encode("utf-16-be")
    escaped = "STOMP_"
    for high, low in zip(units[::2], units[1::2], strict=True):
        unit = chr(high << 8 | low)
        escaped += (
            "__"
            if unit == "_"
            else unit
            if unit.isascii() and unit.isalnum()
            else f"_{ord(unit):04x}"
        )
    return escaped


@given(name=NAMES)
def test_an_escaped_name_is_one_of_a_property_and_gives_the_name_back(name: str) -> None:
    plain = naming(name)
    escaped = naming(plain.escaped)
    assert plain.escaped == spelt(name)
    assert ESCAPED.fullmatch(plain.escaped)
    assert is_property_name(plain.escaped)
    assert escaped.is_property
    # A property's own name is never escaped, so its escape is a name like any other.
    assert escaped.unescaped == (None if plain.is_property else name)


@given(name=st.one_of(NAMES, st.text("a_02d-", max_size=12)).map("STOMP_".__add__))
@example(name="STOMP__da00")
@example(name="STOMP__d83d_de00")
def test_what_is_unescaped_was_escaped(name: str) -> None:
    plain = naming(name).unescaped
    assert plain is None or naming(plain).escaped == name


# Java and Python may know different versions of Unicode; these characters are in all of them.
@given(
    name=st.one_of(
        st.text(st.characters(max_codepoint=0x17F), max_size=4),
        st.text("l\u0131ikeLIKE_\U0001d400\U0001f600\u0663", max_size=4),
    )
)
def test_java_and_python_agree_on_what_is_a_property(name: str) -> None:
    assert naming(name).is_property == is_property_name(name)
