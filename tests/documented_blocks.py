"""The blocks of commands and code that the pages show.

A block is what follows ``::`` or ``.. code-block::``, or a file that ``.. literalinclude::`` names.

A comment of a page may have what its reader need not see, but a test that runs the page needs:
``.. unseen: python`` or ``.. unseen: sh``, and the indented lines below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = (
    *sorted((ROOT / "docs").glob("*.rst")),
    *sorted((ROOT / "docs" / "design").glob("*.rst")),
    ROOT / "README.rst",
    ROOT / "CONTRIBUTING.rst",
)
#: What an operator types; each has a parser in this project.
COMMANDS: Final = (
    *("gateway-pipeline", "imqbridgemgr", "imqcmd", "imqdbmgr", "imqkeytool", "imqusermgr"),
    "stomp-gateway",
)
_DIRECTIVE: Final = re.compile(r"^ *\.\. ([\w-]+)::\s*(\S*)")
#: What stands before the text of a paragraph, also in lists and tables.
_MARKERS: Final = re.compile(r"^ *(?:(?:[-*]|\d+\.) +)*")
_CODE: Final = ("code-block", "literalinclude")
_UNSEEN: Final = re.compile(r"^( *)\.\. unseen: (\w+)$")


@dataclass(frozen=True)
class Block:
    """A block of a page.

    :param page: its name.
    :param language: as the page says; of a file that is included ``file``.
    :param text: of the block, or the path of the file.
    :param unseen: whether it is in a comment.
    """

    page: str
    language: str
    text: str
    unseen: bool = False

    @property
    def first(self) -> str:
        """Return what the block is known by: the begin of its first line."""
        return self.text.splitlines()[0].strip()[:60]

    @property
    def typed(self) -> list[str]:
        """Return the commands in it, if it is one of commands."""
        lines = self.text.replace("\\\n", " ").splitlines()
        prompted = [line[2:] for line in lines if line.startswith("$ ")]
        found = prompted or [line for line in lines if line.strip() and line[0] not in "# "]
        return [" ".join(line.partition(" #")[0].split()) for line in found]


def _body(lines: list[str], start: int, indent: int) -> list[str]:
    body = []
    for line in lines[start:]:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        body.append(line)
    return body


def blocks(page: Path) -> Iterator[Block]:
    """Return the blocks of a page in their order, without those in comments."""
    return (block for block in steps(page) if not block.unseen)


def steps(page: Path) -> Iterator[Block]:
    """Return the blocks of a page in their order, with those in comments."""
    lines = page.read_text(encoding="utf-8").splitlines()
    end = 0
    for number, line in enumerate(lines):
        if number < end:
            continue
        if unseen := _UNSEEN.match(line):
            body = _body(lines, number + 1, len(unseen[1]))
            end = number + 1 + len(body)
            yield Block(page.stem, unseen[2], dedent("\n".join(body)).strip("\n"), unseen=True)
            continue
        if not re.search(r"::(?: \S*)?$", line.rstrip()):
            continue
        directive = _DIRECTIVE.match(line)
        if directive and directive[1] not in _CODE:
            continue
        if directive and directive[1] == "literalinclude":
            yield Block(page.stem, "file", directive[2])
            continue
        body = _body(lines, number + 1, len(_MARKERS.match(line)[0]))  # type: ignore[index]
        end = number + 1 + len(body)
        text = dedent("\n".join(each for each in body if not re.match(r" *:\w+:", each))).strip(
            "\n"
        )
        if text:
            yield Block(page.stem, directive[2] if directive else "", text)


def shown(page: str, begin: str, part: str = "") -> str:
    """Return the block of a page that begins so, and has this part."""
    [found] = [
        block.text
        for block in blocks(ROOT / "docs" / f"{page}.rst")
        if block.text.startswith(begin) and part in block.text
    ]
    return found
