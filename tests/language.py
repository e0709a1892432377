"""Plain English, checked: ``python -m tests.language``.

Three things are counted in every room: phrases that readers must parse twice, first lines of
docstrings that are too long, and first lines that are no sentence. :data:`ALLOWED` says how many of
each a room may still have. The numbers only fall: after a rewrite, ``python -m tests.language
--lower ROOM`` writes the new ones here. ``--list PATH`` shows where they are.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
OWN: Final = Path(__file__)
#: Columns of a docstring's first line.
WIDTH: Final = 72
#: Phrases that are refused, with what to write in their place.
PHRASES: Final = {
    r"heed\w*": "use, ignore",
    r"spelt": "spelled, written",
    r"bereft": "without",
    r"manieth": "the attempt, counted from 1",
    r"who(?:m)?ever": "the sender, the caller: name who acts",
    r"nobody": "no client, no caller: name who does not act",
    r"had better": "should",
    r"all the same": "anyway",
    r"all one to": "does not matter to",
    r"but for": "except",
    r"looks? after": "maintains",
    r"(?:is|are|was|were) none": "there is no, is not a",
    r"(?:is|are|was|were) no more": "no longer exists",
    r"so many": "that many, or the number",
}
_PHRASE: Final = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b")
KINDS: Final = ("phrases", "long first lines", "unfinished first lines")
#: Folders that are counted by themselves; the rest of the project counts as ``.``.
ROOMS: Final = ("gateway", "bridge", "certs", "pipeline", "benchmarks", "tests", "docs")
#: By room: how many of each of :data:`KINDS` there may be.
ALLOWED: Final[dict[str, tuple[int, int, int]]] = {
    # begin
    "gateway": (25, 2, 1),
    "bridge": (2, 0, 0),
    "certs": (3, 4, 2),
    "pipeline": (0, 0, 0),
    "benchmarks": (0, 0, 0),
    "tests": (208, 721, 415),
    "docs": (0, 0, 0),
    ".": (2, 0, 0),
    # end
}


@dataclass(frozen=True)
class Finding:
    """Something that is not plain. :param path: relative to the project."""

    path: str
    line: int
    kind: str
    text: str

    @property
    def room(self) -> str:
        """The folder that it counts for."""
        return next((room for room in ROOMS if self.path.startswith(f"{room}/")), ".")


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield comments, docstrings and other texts of Python, with their lines."""
    comment: list[str] = []
    began = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            began = began or token.start[0]
            comment.append(token.string.lstrip("#:"))
        elif token.type == tokenize.STRING:
            yield token.start[0], token.string
        elif token.type not in (tokenize.NL, tokenize.NEWLINE) and comment:
            yield began, "".join(comment)
            comment, began = [], 0


def findings_in(path: str, text: str) -> Iterator[Finding]:
    """Yield what is not plain in one file."""
    prose = iter([(1, text)])
    if path.endswith(".py"):
        yield from _docstrings(path, text)
        # Most files have none, and cutting one up takes long. A comment may break a phrase.
        if _PHRASE.search(re.sub(r"[\s#]+", " ", text)) is None:
            return
        prose = prose_of(text)
    for line, part in prose:
        for match in _PHRASE.finditer(re.sub(r"\s", " ", part)):
            yield Finding(path, line + part.count("\n", 0, match.start()), KINDS[0], match[0])


def _docstrings(path: str, text: str) -> Iterator[Finding]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        docstring = ast.get_docstring(node) if isinstance(node, documented) else None
        if not docstring:
            continue
        first = docstring.split("\n", 1)[0].rstrip()
        line = getattr(node, "lineno", 1)
        if len(first) > WIDTH:
            yield Finding(path, line, KINDS[1], first)
        if not first.endswith((".", "?", "!", ":", "::")):
            yield Finding(path, line, KINDS[2], first)


def findings() -> Iterator[Finding]:
    """Yield everything in the project that is not plain."""
    folders = [ROOT / room for room in ROOMS]
    files = [each for folder in folders for each in sorted(folder.rglob("*.*"))]
    for file in [*sorted(ROOT.glob("*.*")), *files]:
        made = {"_build", "generated"}.intersection(file.parts)
        if file.suffix in (".py", ".rst") and not made and file != OWN:
            path = file.relative_to(ROOT).as_posix()
            yield from findings_in(path, file.read_text(encoding="utf-8"))


def counted(found: list[Finding]) -> dict[str, tuple[int, int, int]]:
    """Count by room and kind."""
    counts = Counter((finding.room, finding.kind) for finding in found)
    phrases, long, unfinished = KINDS
    return {
        room: (counts[room, phrases], counts[room, long], counts[room, unfinished])
        for room in (*ROOMS, ".")
    }


def excess(found: list[Finding]) -> list[str]:
    """Say which rooms have more than they may, and of what.

    A text that moves to another room is no excess: the project must have more as well.
    """
    counts = counted(found)
    said = []
    for place, kind in enumerate(KINDS):
        allowed = sum(most[place] for most in ALLOWED.values())
        if sum(each[place] for each in counts.values()) > allowed:
            said += [
                f"{room}: {counts[room][place]} {kind}, {most[place]} are allowed"
                for room, most in ALLOWED.items()
                if counts[room][place] > most[place]
            ]
    return said


def lower(found: list[Finding], rooms: Sequence[str]) -> None:
    """Write the present counts of rooms into this file, where they are lower than allowed."""
    before, rest = OWN.read_text(encoding="utf-8").split("    # begin\n")
    _, after = rest.split("    # end\n")
    lines = []
    for room, counts in counted(found).items():
        most = ALLOWED.get(room, counts)
        pairs = zip(counts, most, strict=True)
        least = tuple(min(pair) for pair in pairs) if room in rooms else most
        lines.append(f'    "{room}": {least},\n')
    marked = f"    # begin\n{''.join(lines)}    # end\n"
    OWN.write_text(before + marked + after, encoding="utf-8")


def main() -> int:
    """Print the counts. :returns: 1 when a room has more than it may."""
    parser = argparse.ArgumentParser(prog="python -m tests.language", description=__doc__)
    parser.add_argument(
        "--lower", nargs="+", metavar="ROOM", default=[], help="write the counts that have fallen"
    )
    parser.add_argument("--list", metavar="ROOM", help="print all that a folder or file has")
    options = parser.parse_args()
    found = list(findings())
    if options.lower:
        lower(found, options.lower)
    if options.list:
        for each in found:
            if each.path.startswith(options.list):
                print(f"{each.path}:{each.line}: {each.kind}: {each.text}")
        return 0
    print(f"{'':<16}" + "  ".join(f"{kind:>22}" for kind in KINDS))
    for room, counts in counted(found).items():
        most = ALLOWED.get(room, counts)
        cells = [f"{count} of {limit}" for count, limit in zip(counts, most, strict=True)]
        print(f"{room:<16}" + "  ".join(f"{cell:>22}" for cell in cells))
    said = [] if options.lower else excess(found)
    if said:
        print("\n".join([*said, "python -m tests.language --list ROOM shows where."]))
        print("Write: " + "; ".join(f"{phrase}: {instead}" for phrase, instead in PHRASES.items()))
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
