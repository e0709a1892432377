"""The scripts of the documentation, as modules."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def script(name: str) -> Any:
    """Return a script of the folder ``docs``, not run."""
    spec = util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
