"""What files of tests need, by their text: whoever shares tests out among processes has nothing else."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

#: How a test, or a fixture in its file or in one that it imports, asks for the session.
PARAMETER: Final = "spark: SparkSession"
#: How it comes by the other brokers that all tests of a process share; one that it starts for itself is another matter.
_SHARED: Final = re.compile(r"^from tests\.servers import .*\b(activemq|rabbitmq|started)\b", re.MULTILINE)

_SPARK: Final = re.compile(re.escape(PARAMETER))
_ROOT: Final = Path(__file__).parents[1]
_imported: Final = re.compile(r"^from (tests\.[\w.]*) import", re.MULTILINE).findall


def needs_spark(path: Path) -> bool:
    """Whether this file of tests uses the fixture ``spark``."""
    return _has(path, _SPARK, frozenset())


def needs_brokers(path: Path) -> bool:
    """Whether this file of tests uses another broker that all tests of a process share."""
    beside = path.with_name("conftest.py")
    return any(_has(one, _SHARED, frozenset()) for one in (path, beside) if one.exists())


@cache
def _has(path: Path, pattern: re.Pattern[str], seen: frozenset[Path]) -> bool:
    """Whether it, or a module of tests that it imports, has this in its text."""
    found = path.read_text(encoding="utf-8")
    if pattern.search(found):
        return True
    imported = [_ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in _imported(found) if not name.endswith("conftest")]
    return any(_has(one, pattern, seen | {path}) for one in imported if one.exists() and one not in seen and one != path)
