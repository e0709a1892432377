"""The declaration of a setting, and the catalogue of all declarations in which a name is looked up.

Owns names: placeholders, reserved words, and which known name resembles an unknown one. Knows no
values, files or sources.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gateway.instance.values import ValueType

T = TypeVar("T")

PLACEHOLDER = "NAME"
BRIDGES = "imq.bridge."
#: How much of what differs must be alike, from 0 to 1, for one name to be told for another.
_LIKENESS = 0.6
_PLACEHOLDER = re.compile(rf"(?<![^.]){PLACEHOLDER}(?![^.])")

RESERVED_BRIDGE_NAMES = frozenset({"admin", "tm", "jms", "config"})
"""Words that stand where a bridge's name stands in ``imq.bridge.*`` and so cannot be one, in any
case. The name ``stomp`` is reserved too: for the bridge of that type.
"""


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """The one declaration of a setting; the reference page is made from it.

    :param name: its name, the original's where it has one. ``NAME`` between dots (or last) stands
        for a name that the operator chooses: that of a bridge after ``imq.bridge.``, which has no
        dot, or of a destination, which may.
    :param type: how its value is written.
    :param default: what holds where nothing is given.
    :param doc: one line for the reference.
    :param unit: the unit of the value, in the plural, where the type does not say it.
    :param reloadable: whether a change takes effect without a restart, when the file is read again.
    :param secret: whether the value must never be shown.
    """

    name: str
    type: ValueType[T]
    default: T
    doc: str
    unit: str = ""
    reloadable: bool = False
    secret: bool = False

    def __post_init__(self) -> None:
        if len(_PLACEHOLDER.findall(self.name)) > 1:
            raise ValueError(f"setting {self.name} has more than one {PLACEHOLDER}")
        if not self.doc.strip() or "\n" in self.doc:
            raise ValueError(f"setting {self.name} needs one line of documentation")

    @property
    def is_named(self) -> bool:
        """Whether the name holds the placeholder."""
        return _PLACEHOLDER.search(self.name) is not None

    def full_name(self, name: str) -> str:
        """The setting's name for the bridge or destination called ``name``."""
        prefix, suffix = self._around()
        return prefix + name + suffix

    def matched(self, full_name: str) -> str | None:
        """The name that stands for the placeholder in ``full_name``; None where this is not such a
        setting's name.
        """
        if not self.is_named:
            return None
        prefix, suffix = self._around()
        if not (full_name.startswith(prefix) and full_name.endswith(suffix)) or len(
            full_name
        ) <= len(prefix) + len(suffix):
            return None
        name = full_name[len(prefix) : len(full_name) - len(suffix)]
        if prefix == BRIDGES and ("." in name or name.lower() in RESERVED_BRIDGE_NAMES):
            return None
        return name

    def resembling(self, full_name: str) -> str:
        """This setting's name, its placeholder filled with what stands at that place in
        ``full_name``; empty where nothing does.
        """
        if not self.is_named:
            return self.name
        prefix, suffix = self._around()
        given = full_name.split(".")
        before, after = prefix.count("."), suffix.count(".")
        if len(given) <= before + after:
            return ""
        until = before + 1 if prefix == BRIDGES else len(given) - after
        name = ".".join(given[before:until])
        return self.full_name(name) if name else ""

    def _around(self) -> tuple[str, str]:
        found = _PLACEHOLDER.search(self.name)
        if found is None:
            raise ValueError(f"setting {self.name} has no {PLACEHOLDER} in its name")
        return self.name[: found.start()], self.name[found.end() :]


class Catalogue:
    """All settings there are, and which of them a name means.

    :raises ValueError: two settings have one name, or one with a placeholder has that of another.
    """

    def __init__(self, declared: Iterable[Setting[Any]]) -> None:
        self._plain: dict[str, Setting[Any]] = {}
        self._patterns: list[Setting[Any]] = []
        self._all: set[int] = set()
        seen: dict[str, Setting[Any]] = {}
        for setting in declared:
            if seen.get(setting.name) is setting:
                continue
            if setting.name in seen:
                raise ValueError(f"setting {setting.name} is declared twice")
            seen[setting.name] = setting
            self._all.add(id(setting))
            if setting.is_named:
                self._patterns.append(setting)
            else:
                self._plain[setting.name] = setting
        # The longest one is the most particular.
        self._patterns.sort(key=lambda setting: len(setting.name), reverse=True)
        self._settings = tuple(seen.values())
        for name in self._plain:
            for pattern in self._patterns:
                if pattern.matched(name) is not None:
                    raise ValueError(
                        f"setting {name} is declared twice: {pattern.name} has that name, too"
                    )

    def require(self, setting: Setting[Any]) -> None:
        """Nothing, if ``setting`` is in the catalogue.

        :raises KeyError: it is not.
        """
        if id(setting) not in self._all:
            raise KeyError(f"{setting.name} is not among the declared settings")

    def find(self, full_name: str) -> tuple[Setting[Any], str] | None:
        """The setting, and what stands for its placeholder; empty for one without."""
        if full_name in self._plain:
            return self._plain[full_name], ""
        for setting in self._patterns:
            name = setting.matched(full_name)
            if name is not None:
                return setting, name
        return None

    def secret_names(self) -> list[str]:
        """The names of the settings that are secret."""
        return [setting.name for setting in self._settings if setting.secret]

    def nearest(self, full_name: str) -> str:
        """The name that resembles ``full_name`` most; empty where none does."""
        return nearest(
            full_name,
            [name for setting in self._settings if (name := setting.resembling(full_name))],
        )


def nearest(wanted: str, known: Iterable[str]) -> str:
    """The known name that ``wanted`` may have been meant to be; empty where none comes near.

    The words that both begin with are no likeness: ``imq.foo`` is not near to ``imq.hostname``.
    """
    best, highest = "", 0.0
    for name in known:
        ours, theirs = wanted.lower().split("."), name.lower().split(".")
        while ours and theirs and ours[0] == theirs[0]:
            del ours[0], theirs[0]
        if ours == theirs:
            return name
        if difflib.SequenceMatcher(None, ".".join(ours), ".".join(theirs)).ratio() < _LIKENESS:
            continue
        likeness = difflib.SequenceMatcher(None, wanted.lower(), name.lower()).ratio()
        if likeness > highest:
            best, highest = name, likeness
    return best


def is_of_a_bridge(full_name: str) -> bool:
    """Whether the name is under ``imq.bridge.NAME.`` for a name that a bridge can have."""
    if not full_name.startswith(BRIDGES):
        return False
    name, separator, _ = full_name[len(BRIDGES) :].partition(".")
    return bool(separator) and name.lower() not in RESERVED_BRIDGE_NAMES
