"""The reference page of settings, made from their declarations.

Owns the page's form, in reStructuredText. Knows no setting: conf.py gives it the declarations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.instance.settings import Setting

_INLINE_MARKUP = re.compile(r"([\\*`|_])")


@dataclass(frozen=True, slots=True)
class Section:
    """One table of the page.

    :param title: its heading.
    :param introduction: reStructuredText between the heading and the table; may be empty.
    :param settings: its rows, in this order.
    """

    title: str
    introduction: str
    settings: Sequence[Setting[Any]]


def page(title: str, introduction: str, sections: Iterable[Section]) -> str:
    """The page as reStructuredText.

    :raises ValueError: a setting is in two places.
    """
    seen: set[str] = set()
    parts = (
        [_heading(title, "="), introduction.strip() + "\n"]
        if introduction.strip()
        else [_heading(title, "=")]
    )
    for section in sections:
        for setting in section.settings:
            if setting.name in seen:
                raise ValueError(f"setting {setting.name} is twice in the reference")
            seen.add(setting.name)
        parts.append(_heading(section.title, "-"))
        if section.introduction.strip():
            parts.append(section.introduction.strip() + "\n")
        parts.append(_table(section.settings))
    return "\n".join(parts)


def _heading(title: str, underline: str) -> str:
    return f"{title}\n{underline * len(title)}\n"


def _table(settings: Sequence[Setting[Any]]) -> str:
    rows = [
        ("Name", "Type", "Default", "Unit", "Meaning"),
        *(_row(setting) for setting in settings),
    ]
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 34 12 12 10 32", ""]
    for row in rows:
        for index, cell in enumerate(row):
            lines.append(f"   {'*' if index == 0 else ' '} - {cell}".rstrip())
    return "\n".join(lines) + "\n"


def _row(setting: Setting[Any]) -> tuple[str, str, str, str, str]:
    default = setting.type.show(setting.default)
    doc = _plain(setting.doc).removesuffix(".") + "."
    if setting.type.options:
        doc += " One of " + ", ".join(_literal(option) for option in setting.type.options) + "."
    if setting.reloadable:
        doc += " A change takes effect when SIGHUP has the file read again."
    return (
        _literal(setting.name),
        setting.type.name,
        _literal(default) if default else "none",
        setting.unit or setting.type.unit,
        doc,
    )


def _literal(text: str) -> str:
    return f"``{text}``"


def _plain(text: str) -> str:
    """Escape what reStructuredText would take for markup; on one line."""
    return _INLINE_MARKUP.sub(r"\\\1", " ".join(text.split()))
