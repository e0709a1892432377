"""The places of a TOML file's tables and keys, in any form."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admin.cli.declaration import DeclarationRefused, read
from gateway.admin.cli.toml_places import Place, Places, located

#: What looks like something else.
TRICKS = st.sampled_from(
    [
        "",
        "[queue.a]",
        "a = 1",
        "# a = 1",
        "'",
        '"',
        "''",
        '""',
        "]",
        "}",
        ",",
        "=",
        "\\",
        "ä",
        "a.b",
    ]
)
TEXTS = st.lists(TRICKS | st.text("ab \t#=[]{}.,'\"\\é", max_size=5), max_size=4).map("\n".join)
NAMES = st.one_of(
    st.sampled_from(["a", "b", "queue", "a b", "a.b", "#", "", "0", 'q"', "'", "\\", "[a]", "ü\n"]),
    st.text(max_size=4).filter(lambda name: name.isprintable()),
)
BLANKS = st.sampled_from(["", " ", "\t "])
ENDS = st.sampled_from(["", " # a = 1", " # ]'\"", "\n\n", "\n# [a]\n"])


class Written:
    """A text with the places of what was written into it."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.text = ""
        self.places: dict[tuple[str, ...], Place] = {}

    def write(self, text: str) -> None:
        self.text += text

    def name(self, path: tuple[str, ...]) -> None:
        """Write the last part of a path."""
        line = self.text.count("\n") + 1
        self.places.setdefault(path, Place(line, len(self.text) - self.text.rfind("\n")))
        name = path[-1]
        forms = [json.dumps(name, ensure_ascii=False)]
        if name.isascii() and name.replace("-", "").isalnum():
            forms.append(name)
        if name.isprintable() and "'" not in name:
            forms.append(f"'{name}'")
        self.write(self.draw(st.sampled_from(forms)))

    def gap(self) -> None:
        self.write(self.draw(BLANKS))

    def end(self) -> None:
        self.write(f"{self.draw(ENDS)}\n")

    def pair(self, table: tuple[str, ...], name: str, *, deep: int) -> None:
        """Write a key, dotted now and then, and its value."""
        path = (*table, name)
        self.name(path)
        if self.draw(st.booleans()):
            path = (*path, self.draw(NAMES))
            self.gap()
            self.write(".")
            self.gap()
            self.name(path)
        self.gap()
        self.write("=")
        self.gap()
        self.value(path, deep)

    def value(self, path: tuple[str, ...] | None, deep: int) -> None:
        kind = self.draw(st.sampled_from(["plain", "text", "texts", "array", "table"]))
        if kind == "array" and deep:
            self.write("[")
            for _ in range(self.draw(st.integers(0, 3))):
                self.end()
                self.value(None, deep - 1)
                self.gap()
                self.write(",")
            self.end()
            self.write("]")
        elif kind == "table" and deep:
            self.write("{")
            names = self.draw(st.lists(NAMES, max_size=3, unique=True))
            for number, name in enumerate(names):
                self.write(", " if number else " ")
                if path is None:
                    self.write(f"{json.dumps(name, ensure_ascii=False)} = 1")
                else:
                    self.pair(path, name, deep=deep - 1)
            self.write("}")
        elif kind == "texts":
            text = self.draw(TEXTS)
            if "'''" in text or text.endswith("'"):
                text = text.replace("\\", "\\\\").replace('"', '\\"')
                self.write(f'"""{text}"""')
            else:
                self.write(f"'''{text}'''")
        elif kind == "text":
            self.write(json.dumps(self.draw(TEXTS)))
        else:
            plain = [
                "1",
                "true",
                "-1.5e3",
                "1979-05-27 07:32:00",
                '""',
                "''",
                '"""a"""""',
                "''''''",
            ]
            self.write(self.draw(st.sampled_from(plain)))


@st.composite
def files(draw: Callable[[Any], Any]) -> Written:
    """A file with tables of every form, no key twice."""
    written = Written(draw)
    names = draw(st.lists(NAMES, max_size=6, unique=True))
    split = draw(st.integers(0, len(names)))
    for name in names[:split]:
        written.gap()
        written.pair((), name, deep=2)
        written.end()
    for name in names[split:]:
        path = (name, *draw(st.lists(NAMES, max_size=2)))
        written.gap()
        written.write("[")
        for length in range(1, len(path) + 1):
            written.gap()
            written.name(path[:length])
            written.gap()
            written.write("." if length < len(path) else "]")
        written.end()
        for key in draw(st.lists(NAMES, max_size=3, unique=True)):
            written.gap()
            written.pair(path, key, deep=2)
            written.end()
    return written


@given(files())
def test_the_place_of_each_is_where_it_was_written(written: Written) -> None:
    tomllib.loads(written.text)
    assert dict(Places(written.text).known) == written.places


@given(files())
def test_an_unknown_section_is_told_with_its_place(written: Written) -> None:
    unknown = {path[0] for path in written.places} - {
        *("format", "access", "user", "queue", "topic", "bridge")
    }
    with pytest.raises(DeclarationRefused) as refused:
        read(written.text, "x.toml")
    said = str(refused.value)
    for name in unknown:
        what = "unknown; expected one of access, user, queue, topic, bridge"
        place = written.places[(name,)]
        assert located("x.toml", place, (name,), what) in said


def test_a_table_that_is_named_later_is_where_it_is_named() -> None:
    places = Places("[a.b]\nc.d = 1\n[a]\n[[e]]\nf = 1\n[[e]]\nf = 2\n")
    assert places.known == {
        ("a",): (3, 2),
        ("a", "b"): (1, 4),
        ("a", "b", "c"): (2, 1),
        ("a", "b", "c", "d"): (2, 3),
        ("e",): (4, 3),
        ("e", "f"): (5, 1),
    }
    assert places.of(("a", "b", "x")) == (1, 4)
    assert places.of(("x",)) is None


def test_what_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(DeclarationRefused, match=r"^x\.toml: expected TOML: "):
        read("a = " + "[" * 100_000, "x.toml")
