"""An instance as one file, for ``imqcmd export``, ``plan`` and ``apply``.

Owns the file's form. It is TOML: a text is always quoted there, so that no user called ``no`` and no
passcode of digits becomes something else, and a bridge's XML stands in it as it is. The standard
library reads it; tomlkit writes it, because the standard library does not. Sections and names are
sorted, so that two exports are compared line by line.

::

    format = 1

    [access]
    "connection.NORMAL.allow.user" = ["*"]

    [queue.orders]
    maxNumMsgs = 1000

    [user.alice]
    groups = ["traders"]
    hash = "$argon2id$..."

    [bridge.shop]
    document = '''
    <jmsbridge name="shop">...</jmsbridge>'''
    [bridge.shop.properties]
    level = "FINE"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.admin.cli.toml_places import Place, Places, located
from gateway.broker.properties import administered_properties
from gateway.broker.properties.administered_properties import PropertyRefused
from gateway.messaging.destination import Destination, Kind

FORMAT: Final = 1
#: In the order of the file.
SECTIONS: Final = ("access", "user", "queue", "topic", "bridge")
_KINDS: Final = {"queue": Kind.QUEUE, "topic": Kind.TOPIC}
_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")
#: What may stand in a literal text of more than one line.
_LITERAL: Final = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f]*")
_BEGINNING: Final = (
    "What this instance has; see 'imqcmd plan FILE' and 'imqcmd apply FILE'.",
    "Keep it to yourself: hashes of passcodes can be guessed at by those who have them.",
)


class DeclarationRefused(Exception):
    """A file declares no instance. ``str`` is one line for each reason."""


@dataclass(frozen=True, repr=False)
class DeclaredUser:
    """A user.

    :param hash: "" leaves the passcode as it is.
    """

    groups: Sequence[str] = ()
    hash: str = ""
    active: bool = True
    loopback: bool = False


@dataclass(frozen=True)
class DeclaredBridge:
    """A JMS bridge.

    :param properties: by the ends of ``imq.bridge.NAME.*``.
    :param document: its XML; "" where ``xmlurl`` says where that is.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    document: str = ""


@dataclass(frozen=True)
class Declaration:
    """What an instance has, or is to have; all by name.

    :param sections: those that a file has; about others it says nothing.
    :param destinations: by type and name their properties, as the broker writes them.
    :param notes: properties that have no effect, a sentence each.
    """

    access: Mapping[str, Sequence[str]] = field(default_factory=dict)
    users: Mapping[str, DeclaredUser] = field(default_factory=dict)
    destinations: Mapping[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    bridges: Mapping[str, DeclaredBridge] = field(default_factory=dict)
    sections: frozenset[str] = frozenset(SECTIONS)
    notes: Sequence[str] = field(default=(), compare=False)


# --- writing


def written(declared: Declaration) -> str:
    """Return the text of the file; :func:`read` reads it back."""
    # The other commands need not wait for it.
    import tomlkit

    document = tomlkit.document()
    for line in _BEGINNING:
        document.add(tomlkit.comment(line))
    document.add("format", tomlkit.item(FORMAT))
    tables: dict[str, Any] = {
        "access": {side: list(names) for side, names in sorted(declared.access.items())},
        "user": {name: _user(user) for name, user in sorted(declared.users.items())},
        "queue": _destinations(declared, "queue"),
        "topic": _destinations(declared, "topic"),
        "bridge": {name: _bridge(each) for name, each in sorted(declared.bridges.items())},
    }
    for section in SECTIONS:
        if section not in declared.sections:
            continue
        document.add(tomlkit.nl())
        document.add(section, _table(tables[section], tomlkit))
    return tomlkit.dumps(document)


def _table(values: Mapping[str, Any], tomlkit: Any) -> Any:
    nested = bool(values) and all(isinstance(value, Mapping) for value in values.values())
    table = tomlkit.table(is_super_table=nested)
    for name, value in values.items():
        if isinstance(value, Mapping):
            table.add(name, _table(value, tomlkit))
        elif isinstance(value, str) and "\n" in value and _is_literal(value):
            # The first end of a line after the quotes is no part of the text.
            table.add(name, tomlkit.value(f"'''\n{value}'''"))
        else:
            table.add(name, value)
    return table


def _is_literal(text: str) -> bool:
    return _LITERAL.fullmatch(text) is not None and "'''" not in text and text[-1] != "'"


def _destinations(declared: Declaration, kind: str) -> dict[str, Any]:
    return {
        name: {each: _value(value) for each, value in sorted(properties.items())}
        for (type, name), properties in sorted(declared.destinations.items())
        if type == kind
    }


def _value(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if _WHOLE.fullmatch(text) else text


def _user(user: DeclaredUser) -> dict[str, object]:
    shown: dict[str, object] = {"groups": sorted(user.groups)}
    if not user.active:
        shown["active"] = False
    if user.loopback:
        shown["loopback"] = True
    if user.hash:
        shown["hash"] = user.hash
    return shown


def _bridge(bridge: DeclaredBridge) -> dict[str, object]:
    shown: dict[str, object] = {}
    if bridge.document:
        shown["document"] = bridge.document
    if bridge.properties:
        shown["properties"] = dict(sorted(bridge.properties.items()))
    return shown


# --- reading


def read(text: str, origin: str) -> Declaration:
    """Read a file.

    :param origin: its name, for problems.
    :raises DeclarationRefused: with everything that is wrong.
    """
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DeclarationRefused(f"{origin}: expected TOML: {error}") from None
    except RecursionError:
        raise DeclarationRefused(f"{origin}: expected TOML: it is nested too deeply") from None
    return _Reader(text, origin).declaration(found)


class _Reader:
    """Reads what TOML has given, and gathers what is wrong."""

    def __init__(self, text: str, origin: str) -> None:
        self._text: Final = text
        self._origin: Final = origin
        #: Each with its place; a problem of the whole file has the file's.
        self._problems: list[tuple[Place, str]] = []
        self._places: Places | None = None
        self._notes: list[str] = []

    def declaration(self, found: Mapping[str, Any]) -> Declaration:
        if found.get("format") != FORMAT:
            self._wrong(("format",), f"expected format = {FORMAT}")
        for name in found.keys() - {"format", *SECTIONS}:
            self._wrong((name,), f"unknown; expected one of {', '.join(SECTIONS)}")
        access = {
            side: sorted(set(names))
            for side, names in self._section(found, "access").items()
            if self._is(("access", side), names, _is_texts, "a list of names")
        }
        destinations = {
            (kind, name): self._properties(kind, name, properties)
            for kind in _KINDS
            for name, properties in self._tables(found, kind)
        }
        users = {name: self._user(name, table) for name, table in self._tables(found, "user")}
        bridges = {name: self._bridge(name, table) for name, table in self._tables(found, "bridge")}
        if self._problems:
            raise DeclarationRefused("\n".join(text for _, text in sorted(self._problems)))
        sections = frozenset(found) & set(SECTIONS)
        return Declaration(access, users, destinations, bridges, sections, self._notes)

    def _wrong(self, where: tuple[str, ...], what: str) -> None:
        """Note a problem."""
        if self._places is None:
            self._places = Places(self._text)
        place = self._places.of(where)
        self._problems.append((place or Place(0, 0), located(self._origin, place, where, what)))

    def _is(
        self, where: tuple[str, ...], value: object, check: Callable[[Any], bool], expected: str
    ) -> bool:
        right = check(value)
        if not right:
            self._wrong(where, f"expected {expected}")
        return right

    def _section(self, found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        table = found.get(name, {})
        return table if self._is((name,), table, _is_table, "a table") else {}

    def _tables(self, found: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
        return [
            (each, table)
            for each, table in self._section(found, name).items()
            if self._is((name, each), table, _is_table, "a table")
        ]

    def _properties(self, kind: str, name: str, table: Mapping[str, Any]) -> dict[str, str]:
        given = {
            each: str(value).lower() if isinstance(value, bool) else str(value)
            for each, value in table.items()
        }
        while True:
            try:
                kept, notes = administered_properties.check(Destination(_KINDS[kind], name), given)
            except PropertyRefused as error:
                self._wrong((kind, name, error.name), str(error))
                if given.pop(error.name, None) is None:
                    return {}
            else:
                self._notes += [f"{kind}.{name}: {note}" for note in notes]
                return kept

    def _user(self, name: str, table: Mapping[str, Any]) -> DeclaredUser:
        where = ("user", name)
        known = {
            "groups": (_is_texts, "a list of names"),
            "hash": (_is_text, "a text"),
            "active": (lambda value: isinstance(value, bool), "true or false"),
            "loopback": (lambda value: isinstance(value, bool), "true or false"),
        }
        right = self._known(where, table, known)
        groups = right.pop("groups", [])
        return DeclaredUser(tuple(sorted(set(groups))), **right)

    def _bridge(self, name: str, table: Mapping[str, Any]) -> DeclaredBridge:
        known = {
            "document": (_is_text, "a text"),
            "properties": (_is_table, "a table of texts"),
        }
        right = self._known(("bridge", name), table, known)
        properties = {
            key: value
            for key, value in right.get("properties", {}).items()
            if self._is(("bridge", name, "properties", key), value, _is_text, "a text")
            and key != "type"
        }
        return DeclaredBridge(properties, right.get("document", ""))

    def _known(
        self,
        where: tuple[str, ...],
        table: Mapping[str, Any],
        known: Mapping[str, tuple[Callable[[Any], bool], str]],
    ) -> dict[str, Any]:
        right = {}
        for key, value in table.items():
            if key not in known:
                self._wrong((*where, key), f"unknown; expected one of {', '.join(known)}")
            elif self._is((*where, key), value, *known[key]):
                right[key] = value
        return right


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
