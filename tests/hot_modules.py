"""Which modules are compiled where that is possible, as ``setup.py`` lists them."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]


def hot_modules() -> list[str]:
    """Their names, such as ``gateway.messaging.message``."""
    for statement in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "MODULES":
            paths: list[str] = ast.literal_eval(statement.value)
            return [path.removesuffix(".py").replace("/", ".") for path in paths]
    raise LookupError("setup.py has no list MODULES")
