"""The syntax of .properties files, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.instance.properties import Entry, Malformed, line, parse, rewritten

WRITABLE = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def read(text: str) -> list[tuple[str, str]]:
    entries, malformed = parse(text.encode())
    assert malformed == []
    return [(entry.name, entry.value) for entry in entries]


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("a=b", "a", "b"),
        ("a:b", "a", "b"),
        ("a b", "a", "b"),
        ("a\tb", "a", "b"),
        ("  a = b ", "a", "b "),
        ("a : = b", "a", "= b"),
        ("a==b", "a", "=b"),
        ("a", "a", ""),
        ("a=", "a", ""),
        ("=b", "", "b"),
        ("a\\=b=c", "a=b", "c"),
        ("a\\ b c", "a b", "c"),
        ("a\\:b:c", "a:b", "c"),
        ("a=b\\\n   c", "a", "bc"),
        ("a=b\\\r\n\tc", "a", "bc"),
        ("a=b\\\\\nc=d", "a", "b\\"),
        ("a\\\n  =b", "a", "b"),
        ("a=b\\", "a", "b"),
        ("a=b # not a comment", "a", "b # not a comment"),
        ("a=\\t\\n\\r\\f\\q\\\\", "a", "\t\n\r\fq\\"),
        ("a=\\u00e9\\u00E9", "a", "éé"),
        ("a=\\uD83D\\uDE00", "a", "😀"),
        ("a=é", "a", "é"),
        ("\ufeffa=b", "a", "b"),
        ("# comment \\\na=b", "a", "b"),
        ("a=\\\n# not a comment", "a", "# not a comment"),
    ],
)
def test_reads_an_entry(text: str, name: str, value: str) -> None:
    assert read(text)[0] == (name, value)


def test_comments_and_blank_lines_are_skipped_and_lines_counted() -> None:
    data = b"# one\n\n  ! two\r\na=1\\\n 2\rb=3\n \t\f\nc=4"
    assert parse(data) == (
        [Entry("a", "12", 4, 5), Entry("b", "3", 6, 6), Entry("c", "4", 8, 8)],
        [],
    )


def test_only_the_three_line_ends_end_a_line() -> None:
    assert read("a=1\x0b2\x1c3\u20284\x85") == [("a", "1\x0b2\x1c3\u20284\x85")]


@pytest.mark.parametrize(
    "escape", ["\\u", "\\u12", "\\u12g4", "\\u 123", "\\uD83D", "\\uDE00\\uD83D"]
)
def test_a_bad_escape_is_told_with_its_line_and_the_others_are_read(escape: str) -> None:
    entries, malformed = parse(f"a=1\nb={escape}\nc=3".encode())
    assert [entry.name for entry in entries] == ["a", "c"]
    assert [wrong.line for wrong in malformed] == [2]


def test_what_is_not_utf8_is_told_with_its_line() -> None:
    assert parse(b"a=1\nb=\xff\nc=3") == (
        [Entry("a", "1", 1, 1), Entry("c", "3", 3, 3)],
        [Malformed(2, "text in UTF-8")],
    )


@given(st.binary(max_size=200))
def test_reading_never_raises(data: bytes) -> None:
    entries, malformed = parse(data)
    for entry in entries:
        entry.name.encode(), entry.value.encode()
    assert all(wrong.line >= 1 for wrong in malformed)


@given(
    st.lists(st.tuples(st.text("a=: #!\\\n\r\tu0x", max_size=12))).map(
        lambda lines: "\n".join(line for (line,) in lines)
    )
)
def test_reading_hostile_text_never_raises(text: str) -> None:
    parse(text.encode())


@given(st.lists(st.tuples(NAMES, WRITABLE), max_size=5))
def test_what_is_written_is_read_back(entries: list[tuple[str, str]]) -> None:
    text = "".join(line(name, value) + "\n" for name, value in entries)
    assert read(text) == entries


@given(NAMES, WRITABLE)
def test_a_written_entry_is_one_printable_line(name: str, value: str) -> None:
    assert line(name, value).isprintable()


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(ValueError, match=r"U\+D83D"):
        line("a", "\ud83d")


@given(
    st.one_of(st.binary(max_size=80), st.text("ab=: #\\\n\r", max_size=60).map(str.encode)),
    st.dictionaries(
        st.sampled_from(["a", "b", "ab", "é"]), st.one_of(st.none(), WRITABLE), max_size=3
    ),
)
def test_rewriting_changes_what_it_is_told_and_nothing_else(
    data: bytes, changes: dict[str, str | None]
) -> None:
    before, malformed_before = parse(data)
    after, malformed_after = parse(rewritten(data, changes))
    wanted = {entry.name: entry.value for entry in before if entry.name not in changes}
    wanted |= {name: value for name, value in changes.items() if value is not None}
    assert {entry.name: entry.value for entry in after} == wanted
    assert [wrong.expected for wrong in malformed_after] == [
        wrong.expected for wrong in malformed_before
    ]


@pytest.mark.parametrize(
    "last", [b"a=1\\", b"a=1\\\n", b"a=1\\\r", b"a=1\\\r\n", b"\\\r", b"# c\\"]
)
def test_what_is_added_is_not_taken_for_a_continuation(last: bytes) -> None:
    entries, _ = parse(rewritten(last, {"b": "2"}))
    assert entries[-1].name == "b"


def test_rewriting_keeps_comments_and_places() -> None:
    data = b"# head\na = 1\\\n  2\n! between\nb=3\na=4\n"
    assert rewritten(data, {"a": "5", "c": "6"}) == b"# head\na=5\n! between\nb=3\nc=6\n"
    assert rewritten(data, {"a": None}) == b"# head\n! between\nb=3\n"
