"""The compiled Java classes, and what they make of names."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.providers.jms import build
from gateway.messaging.selector.names import is_property_name
from tests.bridge.providers.jms.lines import Program

JAR = build.JARS / build.JAR
#: The first release of a class file's version number that Java 8 reads is the last, too.
JAVA_8 = 52


def contents(jar: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(jar) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_shipped_jar_says_that_it_is_made_of_the_shipped_sources() -> None:
    assert build.made_of(JAR)[0] == build.digest()


def test_building_the_shipped_sources_gives_the_shipped_classes(tmp_path: Path) -> None:
    again = build.build(tmp_path)
    assert again == tmp_path / build.JAR
    assert contents(JAR).keys() == contents(again).keys()
    if build.made_of(JAR)[1] == build.compiler():
        assert contents(JAR) == contents(again)


def test_the_classes_run_on_java_8() -> None:
    for name, octets in contents(JAR).items():
        if name.endswith(".class"):
            assert int.from_bytes(octets[6:8], "big") == JAVA_8, name


def test_both_namespaces_have_the_same_classes_and_know_their_own_api_only() -> None:
    classes = contents(JAR)
    javax = {name.replace("/javax/", "/jakarta/") for name in classes if "/javax/" in name}
    jakarta = {name for name in classes if "/jakarta/" in name}
    assert javax == jakarta
    assert jakarta
    for name, octets in classes.items():
        assert (b"javax/jms" in octets) <= ("/javax/" in name)
        assert (b"jakarta/jms" in octets) <= ("/jakarta/" in name)


def test_the_api_itself_is_not_shipped() -> None:
    assert [name for name in contents(JAR) if name.startswith(("javax/", "jakarta/"))] == []


def test_the_jar_is_the_only_one() -> None:
    assert [path.name for path in build.JARS.iterdir()] == [build.JAR]


def test_a_source_that_does_not_compile_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "Wrong.java").write_text("class Wrong {")
    with pytest.raises(build.BuildFailed, match=r"Wrong\.java:1"):
        build.compile_sources(tmp_path, tmp_path / "classes")


def test_without_a_jdk_the_build_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.BuildFailed, match="no javac on the PATH"):
        build.build(tmp_path)


# --- names


#: What header names are made of, and what is close to an escape.
NAMES = st.one_of(
    st.text(max_size=12),
    st.text("aZ0_-._ \u00e9\U0001f600", max_size=12),
    st.sampled_from(["", "NULL", "STOMP_x", "_002d"]),
)
ESCAPED = re.compile(r"STOMP_(?:[A-Za-z0-9]|__|_[0-9a-f]{4})*")


_PROGRAM: Final = Program("Naming")


class Naming(NamedTuple):
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
