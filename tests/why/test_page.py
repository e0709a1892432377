"""The page about ``why`` has each kind of cause."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.admin.why.cause import CauseKind

PAGE = Path(__file__).parents[2] / "docs" / "why.rst"


def test_each_kind_has_its_remedy_in_the_order_in_which_they_are_told() -> None:
    table = PAGE.read_text().split("\nCauses and remedies\n")[1].split("\nWhat it looks at\n")[0]
    rows = re.findall(r"^   \* - ``(\w+)``\n     - (.+)\n     - (.+)$", table, re.MULTILINE)
    assert [kind for kind, *_ in rows] == [kind.value for kind in CauseKind]
