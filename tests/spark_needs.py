"""Which files of tests need Spark, by their text: whoever shares tests out among processes has nothing else."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

#: How a test, or a fixture in its file or in one that it imports, asks for the session.
PARAMETER: Final = "spark: SparkSession"

_ROOT: Final = Path(__file__).parents[1]
_imported: Final = re.compile(r"^from (tests\.pipeline[\w.]*) import", re.MULTILINE).findall


@cache
def needs_spark(path: Path) -> bool:
    """Whether this file of tests uses the fixture ``spark``."""
    text = path.read_text(encoding="utf-8")
    if PARAMETER in text:
        return True
    found = [_ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in _imported(text) if not name.endswith("conftest")]
    return any(needs_spark(one) for one in found if one.exists() and one != path)
