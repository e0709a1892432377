"""Objects as texts: both forms, the way there and back, and other texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.stomp.object_texts import MOST, check_object, convert_object

XML = "<pojo>\n  <name>Dejan</name>\n  <city>Belgrade</city>\n</pojo>"
JSON = '{"pojo":{"name":"Dejan","city":"Belgrade"}}'
#: Everything that there is, in the order that JSON keeps.
RICH_XML = """<order id="7" kind="a&quot;b">
  <none/>
  <count>5</count>
  <rate>0.10</rate>
  <code>007</code>
  <paid>true</paid>
  <line>
    <name>a &lt;b&gt; &amp;</name>
  </line>
  <line ref="1">two</line>
</order>"""
RICH_JSON = (
    '{"order":{"@id":"7","@kind":"a\\"b","none":"","count":5,"rate":"0.10","code":"007","paid":true,'
    '"line":[{"name":"a <b> &"},{"@ref":"1","$":"two"}]}}'
)


@pytest.mark.parametrize(("xml", "json"), [(XML, JSON), (RICH_XML, RICH_JSON)])
def test_an_object_in_both_forms(xml: str, json: str) -> None:
    assert convert_object(xml, "xml", "json") == json
    assert convert_object(json, "json", "xml").replace("'", '"') == xml.replace(
        '"a&quot;b"', '"a"b"'
    )
    assert convert_object(xml, "xml", "xml") == xml


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])))
def test_no_text_is_lost_on_the_way(text: str) -> None:
    wrapped = convert_object('{"a":{"b":' + _quoted(text) + "}}", "json", "xml")
    again = convert_object(convert_object(wrapped, "xml", "json"), "json", "xml")
    assert again == wrapped


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@pytest.mark.parametrize(
    ("text", "form", "why"),
    [
        ("<a>", "xml", "no XML"),
        ("", "xml", "no XML"),
        ('<!DOCTYPE a [<!ENTITY e "x">]><a>&e;</a>', "xml", "document type"),
        ("<a>" * 70 + "</a>" * 70, "xml", "64 elements"),
        ("{", "json", "no JSON"),
        ("[" * 100_000, "json", "no JSON"),
        ("[]", "json", "no object"),
        ('{"a":1,"b":2}', "json", "no object"),
        ('{"a":[1,2]}', "json", "is a list"),
        ('{"a":{"b":[[1]]}}', "json", "within a list"),
        ('{"a b":1}', "json", "no name"),
        ('{"a":{"@<":1}}', "json", "no name"),
        ('{"a":{"b":1,"b":2}}', "json", "twice"),
        ('{"a":' * 70 + "1" + "}" * 70, "json", "64 elements"),
        ("<a>" + "x" * MOST + "</a>", "xml", "characters"),
    ],
)
def test_what_is_no_object(text: str, form: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_object(text, form)
