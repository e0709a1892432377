"""What files of tests need, by their text: whoever shares tests out among processes has nothing else."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

#: How a test, or a fixture in its file or in one that it imports, asks for the session.
PARAMETER: Final = "spark: SparkSession"
_SPARK: Final = re.compile(re.escape(PARAMETER))
#: How it comes by the other brokers that all tests of a process share; one that it starts for itself is another matter.
_SHARED: Final = re.compile(
    r"^from tests\.servers import .*\b(activemq|rabbitmq|started)\b", re.MULTILINE
)

_STARTS: Final = re.compile(r"^import subprocess$", re.MULTILINE)

_ROOT: Final = Path(__file__).parents[1]
_imported: Final = re.compile(r"^from (tests\.[\w.]*) import", re.MULTILINE).findall


@cache
def needs_spark(path: Path) -> bool:
    """Whether this file of tests uses the fixture ``spark``."""
    return _has(_SPARK, path)


@cache
def needs_brokers(path: Path) -> bool:
    """Whether this file of tests uses another broker that all tests of a process share."""
    return _has(_SHARED, path, path.with_name("conftest.py"))


@cache
def starts_processes(path: Path) -> bool:
    """Whether this file of tests starts processes, and so takes longer than one that does not."""
    return _has(_STARTS, path, path.with_name("conftest.py"))


def _has(pattern: re.Pattern[str], *paths: Path) -> bool:
    """Whether this is in one of these files, where they are there, or in a module of tests that they import, however far."""
    seen: set[Path] = set()
    left = list(paths)
    while left:
        path = left.pop()
        if path in seen or not path.exists():
            continue
        seen.add(path)
        text = _text(path)
        if pattern.search(text):
            return True
        left += [
            _ROOT.joinpath(*name.split(".")).with_suffix(".py")
            for name in _imported(text)
            if not name.endswith("conftest")
        ]
    return False


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
