"""Where the tables and keys of a TOML file stand.

The standard library's reader tells places of errors in syntax only, and no library that keeps the
texts of values tells their places. So this is a scan of a text that the reader has taken: it need not
check anything, and knows every form that a key may have.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

Path: TypeAlias = tuple[str, ...]

_BLANK: Final = re.compile(r"(?:\s|#[^\n]*)*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_NAME: Final = re.compile(r"""[ \t]*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)[ \t]*""")
#: A value that has no keys in it. Dates may have a blank in the middle.
_VALUE: Final = re.compile(
    r'''
    """(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}
    | \'\'\'(?:[^']|'{1,2}(?!'))*'{3,5}
    | "(?:[^"\\]|\\.)*"
    | '[^']*'
    | [^,\[\]{}\#\n]+
    ''',
    re.VERBOSE | re.DOTALL,
)


class Place(NamedTuple):
    """A place in a text. Both count from 1; a column is a character."""

    line: int
    column: int


class Places:
    """The places of a file's tables and keys.

    Keys in tables that are elements of an array have none of their own.

    :param text: what :mod:`tomllib` can read.
    """

    def __init__(self, text: str) -> None:
        #: The path of each, its parts as they are meant.
        self.known: Final[Mapping[Path, Place]] = _Scan(text).places()

    def of(self, where: Path) -> Place | None:
        """Return the place of a table or a key.

        :returns: else that of the nearest table that has it; None where there is no such table.
        """
        paths = (where[:length] for length in range(len(where), 0, -1))
        return next((self.known[path] for path in paths if path in self.known), None)


def located(origin: str, place: Place | None, where: Sequence[str], what: str) -> str:
    """Say what is wrong at a place of a file.

    :param where: the path of a table or a key; empty for the whole file.
    """
    begin = f"{origin}:{place.line}:{place.column}" if place else origin
    name = ".".join(each if _BARE.fullmatch(each) else f'"{each}"' for each in where)
    return f"{begin}: {name}: {what}" if name else f"{begin}: {what}"


class _Scan:
    """Goes through a text once."""

    def __init__(self, text: str) -> None:
        self._text: Final = text
        self._at = 0
        #: Offsets: of tables and keys that are named in full, and of tables that only a longer
        #: path names.
        self._named: Final[dict[Path, int]] = {}
        self._implied: Final[dict[Path, int]] = {}

    def places(self) -> dict[Path, Place]:
        table: Path = ()
        self._pass(_BLANK)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                self._at += 2 if self._text.startswith("[[", self._at) else 1
                table = self._key(())
                self._at = self._text.index("]", self._at) + 1
                self._at += self._text.startswith("]", self._at)
            else:
                self._pair(table)
            self._pass(_BLANK)
        return dict(self._placed())

    def _placed(self) -> Iterator[tuple[Path, Place]]:
        line, before = 1, 0
        offsets = {**self._implied, **self._named}
        for path, offset in sorted(offsets.items(), key=lambda item: item[1]):
            line += self._text.count("\n", before, offset)
            before = offset
            yield path, Place(line, offset - self._text.rfind("\n", 0, offset))

    def _pass(self, what: re.Pattern[str]) -> None:
        found = what.match(self._text, self._at)
        assert found is not None, "tomllib has taken it"
        self._at = found.end()

    def _key(self, table: Path | None) -> Path:
        """Take a key, dotted or not. :param table: None where keys have no place."""
        path = table or ()
        while True:
            found = _NAME.match(self._text, self._at)
            assert found is not None, "tomllib has taken it"
            self._at = found.end()
            name, offset = _meant(found[1]), found.start(1)
            path = (*path, name)
            more = self._text.startswith(".", self._at)
            if table is not None:
                (self._implied if more else self._named).setdefault(path, offset)
            if not more:
                return path
            self._at += 1

    def _pair(self, table: Path | None) -> None:
        path = self._key(table)
        self._at = self._text.index("=", self._at) + 1
        self._pass(_BLANK)
        self._value(None if table is None else path)

    def _value(self, path: Path | None) -> None:
        """Take a value. :param path: None where keys in it have no place."""
        opens = self._text[self._at]
        if opens not in "[{":
            self._pass(_VALUE)
            return
        self._at += 1
        self._pass(_BLANK)
        while self._text[self._at] not in "]}":
            if opens == "{":
                self._pair(path)
            else:
                self._value(None)
            self._pass(_BLANK)
            self._at += self._text.startswith(",", self._at)
            self._pass(_BLANK)
        self._at += 1


def _meant(name: str) -> str:
    if name[0] == "'":
        return name[1:-1]
    return str(tomllib.loads(f"x = {name}")["x"]) if name[0] == '"' else name
