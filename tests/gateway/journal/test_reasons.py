"""Compare the journal's reasons in the code, the format and the page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from gateway.journal.schema import BROKER_STEPS, REASONS

ROOT: Final = Path(__file__).parents[3]
#: What is done with chosen messages is a word of the code, and the journal's reason where others
#: take their places elsewhere. These two have none: their originals stay, or go nowhere.
NO_REASONS: Final = {"copied", "deleted"}


def _literals(tree: ast.AST) -> Iterator[str]:
    """Give the reasons that a module gives to the journal, as it spells them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "reason":
                    yield from _text(value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("journal_returned", "journal_removed"):
                for argument in node.args[2:3]:
                    yield from _text(argument)
            elif node.func.attr in ("_done", "_to_queue"):
                yield from set(_text(node.args[0])) - NO_REASONS
        elif isinstance(node, ast.FunctionDef) and node.name == "journal_removed":
            yield from chain.from_iterable(map(_text, node.args.defaults[:1]))


def _text(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def test_the_format_has_all_that_the_broker_gives() -> None:
    modules = sorted((ROOT / "gateway" / "broker").rglob("*.py"))
    given = {reason for path in modules for reason in _literals(ast.parse(path.read_text("utf-8")))}
    assert given == set(chain.from_iterable(REASONS.values()))


def test_the_page_has_each_step_and_the_reasons_of_each() -> None:
    page = (ROOT / "docs" / "journal.rst").read_text("utf-8")
    [table] = re.findall(r"At the broker:\n(.*?)\nOn a link:", page, re.DOTALL)
    told: dict[str, str] = {}
    for row in re.split(r"\n   \* - ", table)[1:]:
        for step in re.findall(r"``([\w ]+)``", re.split(r"\n     - |: again", row)[0]):
            told[step] = row
    told["redelivered"] = told["delivered"]
    assert set(told) == {step.value for step in BROKER_STEPS}
    for step, reasons in REASONS.items():
        words = set(re.findall(r"``([\w ]+)``", told[step.value]))
        assert words - {step.value, "reason", "comment"} == set(reasons), step
