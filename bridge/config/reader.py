"""Read the model of a bridge from the elements of an XML document.

The fields of the model's dataclasses say which attributes are read, of which type, and with which
defaults. This module adds the rules that neither they nor the DTD can say: ranges, names that are
unique or reserved, references, attributes that need or contradict each other. Each is the
original's or HornetQ's (its manual, section 33.1) where these have one.

What the DTD says of a value was checked before (:mod:`bridge.config.document`), so a value that it
does not allow reads as the default here, without another problem. Knows no provider, and opens no
file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field, fields, replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

from bridge.config.document import Element, Report, declarations, parse
from bridge.config.model import (
    AS_SOURCE,
    BRIDGE_NAME_PROPERTY,
    BUILT_IN_DMQ,
    BUILT_IN_DMQ_DESTINATION,
    BUILT_IN_DMQ_NAME,
    NO_PROPERTIES,
    Bridge,
    ConnectionFactory,
    Destination,
    Dmq,
    Link,
    QualityOfService,
    Source,
    Target,
)
from bridge.config.problems import ConfigurationError, Problem, Severity, ordered
from bridge.config.rules import rules
from bridge.config.secrets import MalformedReference, reference, sounds_secret
from bridge.config.settings import PASSWORD
from gateway.instance.setting_types import (
    RESERVED_BRIDGE_NAMES,
    Duration,
    Integer,
    Octets,
    ValueType,
    nearest,
)
from gateway.instance.settings_general import STOMP, is_bridge_name
from gateway.messaging.destination import Kind
from gateway.messaging.errors import MessagingError
from gateway.messaging.selector.selector import parse as parse_selector

RESERVED_NAMES: Final = (BUILT_IN_DMQ_NAME, BUILT_IN_DMQ_DESTINATION.name, AS_SOURCE)
"""Names that no element can have, in any case."""
EMBEDDED_PROPERTIES: Final = ("imqConfiguredClientID", "imqDefaultUsername", "imqDefaultPassword")
"""The properties of a connection factory to the broker of this instance that have an effect; the
original's others have none.
"""

_LARGEST: Final = 2**31 - 1
_COUNT: Final = Integer(1, _LARGEST)
_RETRIES: Final = Integer(-1, _LARGEST)
_MILLISECONDS: Final = Duration("milliseconds", 1, _LARGEST)
_SECONDS: Final = Duration("seconds", 0, _LARGEST)
#: The attribute of each field that is a number, and its range.
_NUMBERS: Final[Mapping[str, tuple[str, ValueType[int]]]] = {
    "connect_attempts": ("connect-attempts", _RETRIES),
    "connect_attempt_interval_s": ("connect-attempt-interval-in-seconds", _SECONDS),
    "idle_timeout_s": ("idle-timeout-in-seconds", _SECONDS),
    "max_batch_size": ("max-batch-size", _COUNT),
    "max_batch_time_ms": ("max-batch-time", _MILLISECONDS),
    "failure_retry_interval_ms": ("failure-retry-interval", _MILLISECONDS),
    "max_retries": ("max-retries", _RETRIES),
    "max_messages_per_second": ("max-messages-per-second", _COUNT),
    "max_bytes_per_second": ("max-bytes-per-second", Octets(unlimited=False, minimum=1)),
    "time_to_live_ms": ("time-to-live-in-millis", Duration("milliseconds", 0)),
    "send_attempts": ("send-attempts", _COUNT),
    "send_attempt_interval_s": ("send-attempt-interval-in-seconds", _SECONDS),
}
#: Numbers outside of the range that are allowed, too, by attribute.
_BESIDES: Final = {"max-batch-time": -1}

#: Bounds on the search for the nearest known name, which takes time: among this many names, and for
#: that many problems.
_MOST_COMPARED: Final = 1000
_MOST_GUESSES: Final = 100
#: Lines that one problem names besides its own.
_MOST_LINES: Final = 20

#: What is read from an element of its own.
Model = Bridge | ConnectionFactory | Destination | Dmq | Link | Source | Target
T = TypeVar("T", ConnectionFactory, Destination)


def read(
    data: bytes,
    origin: str,
    bridge: str | None = None,
    *,
    passwords: Mapping[str, str] | None = None,
    exposed: str = "",
) -> tuple[Bridge, list[Problem]]:
    """Return the bridge that a document configures, and warnings.

    It computes only, and may be called on any thread.

    :param data: the document.
    :param origin: its file or URL, for problems.
    :param bridge: the name that the bridge must have; None where any will do.
    :param passwords: what ``${passfile:NAME}`` stands for, by NAME.
    :param exposed: why others may see what is written in the document, such as "others may read
        this file"; then there are warnings of passwords in it.
    :raises ConfigurationError: with everything that is wrong, warnings included.
    """
    root, problems = parse(data, origin)
    if root is None:
        raise ConfigurationError(problems)
    report = Report(origin)
    found = _Reader(report, passwords or {}, exposed).bridge(root, bridge)
    problems += report.problems
    if any(problem.severity is not Severity.WARNING for problem in problems):
        raise ConfigurationError(problems)
    return found, ordered(problems)


class _Values:
    """Reads attributes, one by one or all that a dataclass has.

    :param report: collects what is wrong with them. The others are those of :func:`read`.
    """

    def __init__(self, report: Report, passwords: Mapping[str, str], exposed: str) -> None:
        self._report = report
        self._passwords = passwords
        self._exposed = exposed

    def fields(self, model: type[Model], element: Element, *ignored: str) -> dict[str, Any]:
        """Return the fields of ``model`` that the element gives, by their names.

        Fields of a type that is not a text, a number, a flag or properties are for the caller.

        :param ignored: attributes that are not read.
        """
        found: dict[str, Any] = {}
        for field in fields(model):
            value = self._field(field, element, ignored)
            if value is not None:
                found[field.name] = value
        return found

    def _field(self, field: Field[Any], element: Element, ignored: tuple[str, ...]) -> object:
        if field.name == "line":
            return element.line
        if field.name == "description":
            description = element.first("description")
            return "" if description is None else description.text
        if field.name == "properties":
            return self._properties(element)
        attribute, number = _NUMBERS.get(field.name, (field.name.replace("_", "-"), None))
        if attribute in ignored or attribute not in declarations()[element.tag].attributes:
            return None
        written = element.attributes.get(attribute)
        if field.type == "str":
            return self._name(element, attribute)
        if written is None:
            return None
        if number is not None:
            return self._number(element, attribute, number)
        if field.type == "bool" and written in ("true", "false"):
            return written == "true"
        if field.type == "str | None":
            return self.text(element, attribute)
        return None

    def text(self, element: Element, attribute: str) -> str | None:
        """Return a text that is not blank; None without one.

        A password may be blank.
        """
        value = element.attributes.get(attribute)
        if value is None:
            return None
        if attribute == "password":
            return self._resolved(element, attribute, is_secret=True)
        if not value.strip():
            self._report.add(
                element, attribute, "a text that is not blank; leave the attribute out for none"
            )
            return None
        return value

    def _name(self, element: Element, attribute: str) -> str:
        """Return the name of the element itself; empty where it is missing."""
        value = element.attributes.get(attribute)
        if value is None:
            return ""
        reserved = (
            RESERVED_NAMES if element.tag != "link" else (*RESERVED_NAMES, BRIDGE_NAME_PROPERTY)
        )
        taken = [word for word in reserved if word.lower() == value.strip().lower()]
        if taken:
            self._report.add(
                element, attribute, f"another name: {taken[0]} is reserved, in any case"
            )
        elif not value or not value.isprintable() or value != value.strip():
            self._report.add(
                element,
                attribute,
                "a name: characters that can be printed, without blanks around them",
            )
        elif element.tag in ("link", "dmq") and {"", ".", ".."} & set(value.split("/")):
            # It is a part of URLs, and of what others make of these.
            self._report.add(
                element,
                attribute,
                "a name that is no path: between slashes neither '.' nor '..' nor nothing",
            )
        return value

    def _number(self, element: Element, attribute: str, kind: ValueType[int]) -> int | None:
        value, besides = element.attributes[attribute], _BESIDES.get(attribute)
        if besides is not None and value.strip() == str(besides):
            return besides
        try:
            return kind.parse(value)
        except ValueError as refused:
            also = "" if besides is None else f"{besides}, or "
            self._report.add(element, attribute, f"{also}{refused}")
            return None

    def _properties(self, around: Element) -> Mapping[str, str]:
        """Return the properties in an element; of two of one name, the later."""
        found: dict[str, str] = {}
        lines: dict[str, int] = {}
        for element in around.all("property"):
            name = element.attributes.get("name")
            if name is None or "value" not in element.attributes:
                continue
            if not name.strip():
                self._report.add(element, "name", "the name of a property")
            elif around.tag == "target" and name.lower() == BRIDGE_NAME_PROPERTY.lower():
                self._report.add(
                    element,
                    "name",
                    f"another name: {BRIDGE_NAME_PROPERTY} is reserved, in any case",
                )
            elif name in lines:
                self._report.warn(
                    element,
                    "name",
                    f"each property once: this one replaces that of line {lines[name]}",
                )
            lines[name] = element.line
            found[name] = self._resolved(element, "value", is_secret=sounds_secret(name)) or ""
        return MappingProxyType(found) if found else NO_PROPERTIES

    def _resolved(self, element: Element, attribute: str, *, is_secret: bool) -> str | None:
        """Return the value, or what it refers to in the passfile, or None."""
        value = element.attributes[attribute]
        try:
            name = reference(value)
        except MalformedReference as malformed:
            self._report.add(
                element,
                attribute,
                f"a password, or a reference to the passfile such as {malformed}",
            )
            return None
        if name is None:
            if is_secret and value and self._exposed:
                self._report.warn(
                    element,
                    attribute,
                    f"a reference such as ${{passfile:NAME}} to a line of the passfile, because {self._exposed}",
                )
            return value
        if name not in self._passwords:
            near = nearest(value, [f"${{passfile:{other}}}" for other in self._passwords])
            self._report.add(
                element,
                attribute,
                f"a line {PASSWORD.full_name(name)}=... in the passfile that imq.passfile.enabled has read, and there is none",
                near,
                value=value,
            )
            return None
        return self._passwords[name]


class _Reader:
    """Reads one document."""

    def __init__(self, report: Report, passwords: Mapping[str, str], exposed: str) -> None:
        self._report = report
        self._values = _Values(report, passwords, exposed)
        self._factories: dict[str, ConnectionFactory] = {}
        self._destinations: dict[str, Destination] = {}
        self._clients: dict[tuple[str, str], str] = {}
        #: For each unknown name that is referred to: the index of its problem, and the lines of
        #: the other references to it.
        self._unknown: dict[tuple[str, str], tuple[int, list[int]]] = {}

    def bridge(self, root: Element, wanted: str | None) -> Bridge:
        values = self._values.fields(Bridge, root)
        name = values["name"]
        if wanted is not None and name and name != wanted:
            self._report.add(
                root, "name", f"{wanted}, the name of this bridge in imq.bridge.activelist"
            )
        elif wanted is None and name and not is_bridge_name(name):
            self._report.add(
                root,
                "name",
                "a name that a bridge can have, as its files are in a directory of that name: at most 100 letters, digits, '_' and '-', not beginning "
                f"with '-', and none of the reserved {', '.join(sorted({*RESERVED_BRIDGE_NAMES, STOMP}))}",
            )
        self._check_unique(root.children)
        # What is referred to is read first, wherever it stands.
        factories = [self._factory(element) for element in root.all("connection-factory")]
        destinations = [self._destination(element) for element in root.all("destination")]
        self._factories = {factory.ref_name: factory for factory in factories}
        self._destinations = {destination.ref_name: destination for destination in destinations}
        links = [self._link(element) for element in root.all("link")]
        dmqs = [self._dmq(element) for element in root.all("dmq")]
        self._list_other_references()
        return Bridge(
            links=tuple(link for link in links if link is not None),
            built_in_dmq=next((dmq for dmq in dmqs if dmq.built_in), BUILT_IN_DMQ),
            dmqs=tuple(dmq for dmq in dmqs if not dmq.built_in),
            connection_factories=tuple(factories),
            destinations=tuple(destinations),
            origin=self._report.origin,
            **values,
        )

    def _check_unique(self, elements: Iterable[Element]) -> None:
        named: dict[tuple[str, str], Element] = {}
        for element in elements:
            of_reference = element.tag in ("connection-factory", "destination")
            attribute = "ref-name" if of_reference else "name"
            name = element.attributes.get(attribute)
            if name is None:
                continue
            first = named.setdefault((element.tag, name), element)
            if first is not element:
                expected = (
                    f"a name that no other {element.tag} has, and that of line {first.line} has it"
                )
                self._report.add(element, attribute, expected)

    def _factory(self, element: Element) -> ConnectionFactory:
        factory = ConnectionFactory(**self._values.fields(ConnectionFactory, element))
        given = element.attributes
        if "username" in given and "password" not in given:
            self._report.add(element, "password", "a password, because there is a username")
        if "password" in given and "username" not in given:
            self._report.warn(
                element, "password", "a username with it; without one the password is ignored"
            )
        if factory.embedded and "lookup-name" not in given:
            for inner in element.all("property"):
                if inner.attributes.get("name", EMBEDDED_PROPERTIES[0]) not in EMBEDDED_PROPERTIES:
                    effective = ", ".join(EMBEDDED_PROPERTIES)
                    self._report.warn(
                        inner,
                        "name",
                        f"a property that has an effect where there is no lookup-name: {effective}; this one is ignored",
                    )
        return factory if factory.username is not None else replace(factory, password=None)

    def _destination(self, element: Element) -> Destination:
        if "lookup-name" in element.attributes:
            return Destination(**self._values.fields(Destination, element, "name"))
        if "name" not in element.attributes:
            expected = (
                "the destination's name at its provider, or a lookup-name by which it is found"
            )
            self._report.add(element, "name", expected)
        kind = Kind.TOPIC if element.attributes.get("type") == "topic" else Kind.QUEUE
        return Destination(kind=kind, **self._values.fields(Destination, element))

    def _link(self, element: Element) -> Link | None:
        values = self._values.fields(Link, element)
        given = element.attributes
        if "max-batch-time" in given and "max-batch-size" not in given:
            self._report.warn(
                element, "max-batch-time", "max-batch-size, too: without it no batch waits"
            )
        quality = self._quality_of_service(element)
        enabled = values.get("enabled", True)
        from_, to = element.first("source"), element.first("target")
        source = None if from_ is None else self._source(from_, enabled)
        target = None if to is None else self._target(to, enabled)
        if to is None or source is None or target is None:
            return None
        if _goes_round(source, target):
            self._report.warn(
                to,
                "destination-ref",
                "a destination that is not the link's source: its messages go round for ever",
            )
        return Link(source=source, target=target, quality_of_service=quality, **values)

    def _quality_of_service(self, element: Element) -> QualityOfService:
        """Read ``quality-of-service`` and its older form ``transacted``."""
        word, written = (
            element.attributes.get(name) for name in ("quality-of-service", "transacted")
        )
        transacted = written != "false"
        if word not in QualityOfService.__members__:
            return (
                QualityOfService.ONCE_AND_ONLY_ONCE
                if transacted
                else QualityOfService.DUPLICATES_OK
            )
        quality = QualityOfService(word)
        if written is not None and quality.transacted != transacted:
            wanted = " or ".join(
                one.value for one in QualityOfService if one.transacted == transacted
            )
            self._report.add(
                element,
                "quality-of-service",
                f'{wanted}, which transacted="{written}" stands for, or no attribute transacted',
            )
        return quality

    def _source(self, element: Element, enabled: bool) -> Source | None:
        factory = self._referred(element, "connection-factory-ref", self._factories)
        destination = self._referred(element, "destination-ref", self._destinations)
        values = self._values.fields(Source, element, "selector")
        selector = element.attributes.get("selector", "").strip() or None
        if "durable_sub" in values:
            if destination is not None and destination.kind is Kind.QUEUE:
                self._report.warn(
                    element,
                    "durable-sub",
                    "a source that is a topic; for a queue this attribute is ignored",
                )
            elif "clientid" not in element.attributes and (
                factory is None or not _has_client_id(factory)
            ):
                self._report.warn(
                    element,
                    "clientid",
                    "a client identifier, because there is a durable-sub; without one the link fails, unless the connection factory brings its own",
                )
        if selector is not None and factory is not None and factory.embedded:
            # Other providers have dialects of their own.
            try:
                parse_selector(selector)
            except MessagingError as refused:
                self._report.add(element, "selector", f"a message selector; {refused}")
        if factory is None or destination is None:
            return None
        source = Source(factory, destination, selector, **values)
        self._note_client(element, "clientid", factory, source.clientid, enabled)
        return source

    def _target(self, element: Element, enabled: bool) -> Target | None:
        factory = self._referred(element, "connection-factory-ref", self._factories)
        destination: Destination | None = None
        as_source = element.attributes.get("destination-ref") == AS_SOURCE
        if not as_source:
            destination = self._referred(element, "destination-ref", self._destinations)
        values = self._values.fields(Target, element)
        values["rules"] = rules(
            element,
            self._report,
            lambda rule: self._referred(rule, "destination-ref", self._destinations),
        )
        if factory is None or (destination is None and not as_source):
            return None
        target = Target(factory, destination, **values)
        self._note_client(element, "clientid", factory, target.clientid, enabled)
        return target

    def _dmq(self, element: Element) -> Dmq:
        given = element.attributes
        if given.get("name") == BUILT_IN_DMQ_NAME:
            values = self._values.fields(Dmq, element, "name", "enabled", "stay-connected")
            factory, destination = None, None
            values["name"] = BUILT_IN_DMQ_NAME
        else:
            factory = self._referred(element, "connection-factory-ref", self._factories)
            destination = self._referred(element, "destination-ref", self._destinations)
            values = self._values.fields(Dmq, element)
        attribute = "clientid"
        if "clientid" not in given:
            attribute = "client-id"
            values["clientid"] = self._values.text(element, attribute)
        elif "client-id" in given and values.get("clientid") != given["client-id"]:
            self._report.add(
                element,
                "client-id",
                "the same as clientid, or only one of the two, which mean the same",
            )
        dmq = Dmq(connection_factory=factory, destination=destination, **values)
        if factory is not None:
            self._note_client(element, attribute, factory, dmq.clientid, dmq.enabled)
        return dmq

    def _referred(self, element: Element, attribute: str, known: Mapping[str, T]) -> T | None:
        """Return what a reference refers to; None, with a report, if nothing.

        Faults that the DTD's check has reported are not reported again.
        """
        tag = attribute.removesuffix("-ref")
        wanted = element.attributes.get(attribute)
        if wanted is None:
            if element.tag == "dmq":
                self._report.add(
                    element,
                    attribute,
                    f"a value, which every dmq but {BUILT_IN_DMQ_NAME} must have",
                )
            return None
        if (tag, wanted) in self._unknown:
            self._unknown[tag, wanted][1].append(element.line)
        elif wanted not in known:
            problems = len(self._report.problems)
            self._unknown[tag, wanted] = problems, []
            expected = f"the ref-name of a {tag} of this file"
            if wanted.lower() == AS_SOURCE.lower():
                expected += (
                    f"; {AS_SOURCE}, written so, can be only the destination-ref of a target"
                )
            few = len(known) <= _MOST_COMPARED and problems < _MOST_GUESSES
            self._report.add(element, attribute, expected, nearest(wanted, known) if few else "")
        return known.get(wanted)

    def _list_other_references(self) -> None:
        """Add the lines of other references to problems of unknown names."""
        problems = self._report.problems
        for index, others in self._unknown.values():
            if others:
                lines = ", ".join(str(line) for line in others[:_MOST_LINES])
                more = f" and {len(others) - _MOST_LINES} more" if len(others) > _MOST_LINES else ""
                expected = f"{problems[index].expected}, as on line{'s' if len(others) > 1 else ''} {lines}{more}"
                problems[index] = replace(problems[index], expected=expected)

    def _note_client(
        self,
        element: Element,
        attribute: str,
        factory: ConnectionFactory,
        clientid: str | None,
        enabled: bool,
    ) -> None:
        """Warn of a client identifier that another connection has.

        The provider would refuse the second connection.
        """
        if clientid is None or not enabled:
            return
        before = self._clients.setdefault((factory.ref_name, clientid), element.label)
        if before != element.label:
            self._report.warn(
                element,
                attribute,
                f'an identifier that no other connection of connection-factory "{factory.ref_name}" has, and {before} has it',
            )


def _has_client_id(factory: ConnectionFactory) -> bool:
    """Return whether the file gives the factory a client identifier.

    A JMS provider's own configuration may, which shows when it is connected.
    """
    names = (
        ("imqConfiguredClientID",) if factory.embedded else ("client-id", "imqConfiguredClientID")
    )
    return any(factory.properties.get(name, "").strip() for name in names)


def _goes_round(source: Source, target: Target) -> bool:
    """Return whether messages come from the destination that they go to.

    A rule or a transformer may send them elsewhere.
    """
    if source.connection_factory != target.connection_factory:
        return False
    if any(rule.destination == source.destination for rule in target.rules):
        return True
    same = target.destination in (None, source.destination)
    elsewhere = any(rule.drop or rule.destination is not None for rule in target.rules)
    return same and not elsewhere and target.message_transformer_class is None
