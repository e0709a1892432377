"""MapMessages as texts: both forms, every type, and other texts."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.messaging.values import Byte, Char, Float, Int, Short, Value
from gateway.stomp.map_texts import MOST, read_map, write_map

ENTRIES: dict[str, Value] = {
    "text": "a <b> & 'c'\r\n",
    "byte": Byte(-128),
    "short": Short(7),
    "int": Int(2**31 - 1),
    "long": -(2**63),
    "float": Float(0.5),
    "double": 1e300,
    "yes": True,
    "no": False,
    "letter": Char("\u00e4"),
    "bytes": b"\0\xff",
    "nothing": None,
}


@pytest.mark.parametrize("form", ["xml", "json"])
@pytest.mark.parametrize("count", [0, 1, 2, 12])
def test_each_type_comes_back(form: str, count: int) -> None:
    entries = dict([*ENTRIES.items()][:count])
    back = read_map(write_map(entries, form), form)
    assert back == entries
    assert [*map(type, back.values())] == [*map(type, entries.values())]


def test_the_forms_are_those_of_activemq() -> None:
    two: dict[str, Value] = {"name": "Ada", "size": Int(5)}
    assert json.loads(write_map(two, "json")) == {
        "map": {"entry": [{"string": ["name", "Ada"]}, {"string": "size", "int": 5}]}
    }
    assert write_map(two, "xml") == (
        "<map>\n  <entry>\n    <string>name</string>\n    <string>Ada</string>\n  </entry>\n"
        "  <entry>\n    <string>size</string>\n    <int>5</int>\n  </entry>\n</map>"
    )


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("xml", "Hello World"),
        ("xml", "<map><entry><string>a</string></entry></map>"),
        ("xml", "<map><entry><int>1</int><string>a</string></entry></map>"),
        ("xml", "<map><entry><string>a</string><int>x</int></entry></map>"),
        ("xml", "<map><entry><string>a</string><byte>128</byte></entry></map>"),
        ("xml", "<map><entry><string>a</string><boolean>1</boolean></entry></map>"),
        ("xml", "<map><entry><string>a</string><char>ab</char></entry></map>"),
        ("xml", "<map><entry><string>a</string><map/></entry></map>"),
        ("xml", "<map><entry><string>a</string><string>b<i/></string></entry></map>"),
        ("xml", "<map><string>a</string></map>"),
        ("xml", "<other/>"),
        ("xml", "<!DOCTYPE map [<!ENTITY a 'b'>]><map/>"),
        ("json", "Hello World"),
        ("json", '{"city": "Belgrade", "name": "Dejan"}'),
        ("json", '{"map": 5}'),
        ("json", '{"map": {"entry": ["a"]}}'),
        ("json", '{"map": {"entry": {"string": ["a", {"b": "c"}]}}}'),
        ("json", "[" * 100_000),
        ("json", "[" + "1," * MOST + "1]"),
    ],
)
def test_what_is_no_map(form: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"map|XML|JSON"):
        read_map(text, form)


@given(st.text(), st.sampled_from(["xml", "json"]))
def test_any_text_is_read_or_refused(text: str, form: str) -> None:
    with suppress(ValueError):
        read_map(text, form)


@given(st.dictionaries(st.text(), st.text()), st.sampled_from(["xml", "json"]))
def test_what_is_written_can_be_read(entries: dict[str, Value], form: str) -> None:
    back = read_map(write_map(entries, form), form)
    if form == "json":
        assert back == entries
