"""The attributes of one element as values: numbers, names, flags and secrets, with the DTD's
defaults.

Owns what is said of a single value that is wrong, and the reference to the passfile in place of a
secret. What the DTD says of a value was said before (:mod:`bridge.config.document`), so a bad one
of that kind reads as its default here, without another word.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from bridge.config.declarations import declarations
from bridge.config.document import Element
from bridge.config.model import (
    AS_SOURCE,
    BRIDGE_NAME_PROPERTY,
    BUILT_IN_DMQ_DESTINATION,
    BUILT_IN_DMQ_NAME,
    NO_PROPERTIES,
)
from bridge.config.problems import Problem, Severity
from bridge.config.secrets import MalformedReference, reference, sounds_secret
from bridge.settings import PASSWORD
from gateway.instance.declaration import nearest
from gateway.instance.values import ValueType

RESERVED_NAMES: Final = (BUILT_IN_DMQ_NAME, BUILT_IN_DMQ_DESTINATION.name, AS_SOURCE)
"""What nothing can be called, in any case."""


class Report:
    """Collects what is wrong with one document.

    :param passwords: what references to the passfile stand for, by their NAME.
    :param exposed: why others may see what is written in the document; empty where they may not.
    """

    def __init__(self, origin: str, passwords: Mapping[str, str], exposed: str) -> None:
        self.problems: list[Problem] = []
        self.origin = origin
        self.passwords = passwords
        self.exposed = exposed

    def add(
        self,
        element: Element,
        attribute: str,
        expected: str,
        near: str = "",
        severity: Severity = Severity.BRIDGE,
        shown: str | None = None,
    ) -> None:
        """One thing that is wrong with an attribute, or with the element where ``attribute`` is
        empty.

        :param shown: what to show as its value, if not the value as it may be shown.
        """
        value = shown if shown is not None else element.shown(attribute)
        self.problems.append(
            Problem(
                self.origin, element.line, element.label, attribute, value, expected, near, severity
            )
        )

    def warn(self, element: Element, attribute: str, expected: str) -> None:
        """The same, as a warning."""
        self.add(element, attribute, expected, severity=Severity.WARNING)


class Given:
    """What one element says."""

    def __init__(self, element: Element, report: Report) -> None:
        self.element = element
        self.report = report
        self._declared = declarations()[element.tag].attributes

    def has(self, attribute: str) -> bool:
        """Whether the attribute is written."""
        return attribute in self.element.attributes

    def text(self, attribute: str) -> str | None:
        """A text that is not blank; None where there is none."""
        value = self.element.attributes.get(attribute)
        if value is not None and not value.strip():
            self.report.add(
                self.element,
                attribute,
                "a text that is not blank; without the attribute there is none",
            )
            return None
        return value

    def name(self, attribute: str, *reserved: str) -> str:
        """The name of the element itself, which is none of the reserved ones and none of
        ``reserved``; empty where it is missing.
        """
        value = self.element.attributes.get(attribute, "")
        if not self.has(attribute):
            return ""
        taken = next(
            (
                word
                for word in (*RESERVED_NAMES, *reserved)
                if word.lower() == value.strip().lower()
            ),
            None,
        )
        if taken is not None:
            self.report.add(
                self.element, attribute, f"another name: {taken} is reserved, in any case"
            )
        elif not value or not value.isprintable() or value != value.strip():
            self.report.add(
                self.element,
                attribute,
                "a name: characters that can be printed, without blanks around them",
            )
        elif self.element.tag in ("link", "dmq") and any(
            part in ("", ".", "..") for part in value.split("/")
        ):
            # It is a part of URLs, and of what others make of these.
            self.report.add(
                self.element,
                attribute,
                "a name that is no path: between slashes neither '.' nor '..' nor nothing",
            )
        return value

    def flag(self, attribute: str) -> bool:
        """``true`` or ``false``."""
        return self.choice(attribute) == "true"

    def choice(self, attribute: str) -> str | None:
        """One of the values that the DTD allows; None where there is neither one nor a default."""
        declared = self._declared[attribute]
        value = self.element.attributes.get(attribute)
        return value if value in declared.choices else declared.default

    def number(self, attribute: str, kind: ValueType[int], besides: int | None = None) -> int:
        """A number with a default.

        :param kind: its range. :param besides: a number outside of it that is allowed, too.
        """
        value = self.optional_number(attribute, kind, besides)
        if value is not None:
            return value
        return int(self._declared[attribute].default or 0)

    def optional_number(
        self, attribute: str, kind: ValueType[int], besides: int | None = None
    ) -> int | None:
        """A number; None where it is not given, or is none."""
        value = self.element.attributes.get(attribute)
        if value is None:
            return None
        if besides is not None and value.strip() == str(besides):
            return besides
        try:
            return kind.parse(value)
        except ValueError as refused:
            self.report.add(
                self.element,
                attribute,
                str(refused) if besides is None else f"{besides}, or {refused}",
            )
            return None

    def secret(self, attribute: str) -> str | None:
        """A password, or a reference to one; None where it is not given, or refers to nothing."""
        value = self.element.attributes.get(attribute)
        return None if value is None else self._resolved(attribute, value, is_secret=True)

    def properties(self, *reserved: str) -> Mapping[str, str]:
        """The ``property`` elements in this one; of a name that comes twice, the later."""
        found: dict[str, str] = {}
        lines: dict[str, int] = {}
        for element in self.element.all("property"):
            given = Given(element, self.report)
            name, value = element.attributes.get("name"), element.attributes.get("value")
            if name is None or value is None:
                continue
            if not name.strip():
                self.report.add(element, "name", "the name of a property")
            elif any(name.lower() == word.lower() for word in reserved):
                self.report.add(
                    element,
                    "name",
                    f"another name: {BRIDGE_NAME_PROPERTY} is reserved, in any case",
                )
            elif name in lines:
                self.report.warn(
                    element,
                    "name",
                    f"each property once: this one replaces that of line {lines[name]}",
                )
            lines[name] = element.line
            found[name] = given._resolved("value", value, is_secret=sounds_secret(name)) or ""
        return MappingProxyType(found) if found else NO_PROPERTIES

    def description(self) -> str:
        """The text of the ``description`` in it; empty where there is none."""
        element = self.element.first("description")
        return "" if element is None else element.text

    def _resolved(self, attribute: str, value: str, *, is_secret: bool) -> str | None:
        try:
            name = reference(value)
        except MalformedReference as malformed:
            self.report.add(
                self.element,
                attribute,
                f"a password, or a reference to the passfile such as {malformed}",
            )
            return None
        if name is None:
            if is_secret and value and self.report.exposed:
                wanted = f"a reference such as ${{passfile:NAME}} to a line of the passfile, because {self.report.exposed}"
                self.report.warn(self.element, attribute, wanted)
            return value
        if name not in self.report.passwords:
            known = [f"${{passfile:{other}}}" for other in self.report.passwords]
            near = nearest(value, known)
            wanted = f"a line {PASSWORD.full_name(name)}=... in the passfile that imq.passfile.enabled has read, and there is none"
            self.report.add(self.element, attribute, wanted, near, shown=value)
            return None
        return self.report.passwords[name]
