"""How the names of headers that are no properties are escaped (``Names.java``)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.providers.jms import jvm
from bridge.providers.jms.jvm import JVMOptions
from gateway.messaging.selector_names import is_property_name

#: What header names are made of, and what is close to an escape.
NAMES = st.one_of(
    st.text(max_size=12), st.text("aZ0_-._ \u00e9\U0001f600", max_size=12), st.sampled_from(["", "NULL", "STOMP_x", "_002d"])
)
ESCAPED = re.compile(r"STOMP_(?:[A-Za-z0-9]|__|_[0-9a-f]{4})*")


@pytest.fixture(scope="module")
def names() -> Any:
    import jpype

    jvm.directory("", JVMOptions())
    return jpype.JClass("stompgateway.jms.Names")


def spelt(name: str) -> str:
    """The escape as the provider's documentation tells it."""
    units = name.encode("utf-16-be")
    escaped = "STOMP_"
    for high, low in zip(units[::2], units[1::2], strict=True):
        unit = chr(high << 8 | low)
        escaped += "__" if unit == "_" else unit if unit.isascii() and unit.isalnum() else f"_{ord(unit):04x}"
    return escaped


@given(name=NAMES)
def test_an_escaped_name_is_one_of_a_property_and_gives_the_name_back(names: Any, name: str) -> None:
    escaped = str(names.escape(name))
    assert escaped == spelt(name)
    assert ESCAPED.fullmatch(escaped)
    assert is_property_name(escaped)
    assert names.isProperty(escaped)
    # A property's own name is never escaped, so its escape is a name like any other.
    assert names.unescape(escaped) == (None if names.isProperty(name) else name)


@given(name=st.one_of(NAMES, st.text("a_02d-", max_size=12)).map("STOMP_".__add__))
@example(name="STOMP__da00")
@example(name="STOMP__d83d_de00")
def test_what_is_unescaped_was_escaped(names: Any, name: str) -> None:
    plain = names.unescape(name)
    assert plain is None or str(names.escape(plain)) == name


# Java and Python may know different versions of Unicode; these characters are in all of them.
@given(
    name=st.one_of(
        st.text(st.characters(max_codepoint=0x17F), max_size=4), st.text("l\u0131ikeLIKE_\U0001d400\U0001f600\u0663", max_size=4)
    )
)
def test_java_and_python_agree_on_what_is_a_property(names: Any, name: str) -> None:
    assert names.isProperty(name) == is_property_name(name)
