"""From the elements of a bridge's XML configuration to a :class:`~bridge.config.model.Bridge`, or
to everything that is wrong with them.

Owns the rules that a DTD cannot say: ranges, names that are unique or reserved, references,
attributes that need or contradict each other. Each is the original's, seed 003's or HornetQ's (seed
004, section 33.1) where these have one. Knows no provider, and opens no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from bridge.config.document import Element, parse
from bridge.config.given import Given, Report
from bridge.config.model import (
    AS_SOURCE,
    BRIDGE_NAME_PROPERTY,
    BUILT_IN_DMQ,
    BUILT_IN_DMQ_NAME,
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
from gateway.instance.declaration import RESERVED_BRIDGE_NAMES, nearest
from gateway.instance.settings_general import STOMP, is_bridge_name
from gateway.instance.values import Duration, Integer
from gateway.messaging.destination import Kind
from gateway.messaging.errors import MessagingError
from gateway.messaging.selector.selector import parse as parse_selector

_LARGEST: Final = 2**31 - 1
_COUNT: Final = Integer(1, _LARGEST)
_RETRIES: Final = Integer(-1, _LARGEST)
_MILLISECONDS: Final = Duration("milliseconds", 1, _LARGEST)
_TIME_TO_LIVE: Final = Duration("milliseconds", 0)
_SECONDS: Final = Duration("seconds", 0, _LARGEST)

#: What a name was meant to be is looked for among so many names at most, and for so many; it takes
#: time.
_MOST_COMPARED: Final = 1000
_MOST_GUESSES: Final = 100
#: Lines that one problem names besides its own.
_MOST_LINES: Final = 20

EMBEDDED_PROPERTIES: Final = ("imqConfiguredClientID", "imqDefaultUsername", "imqDefaultPassword")
"""The properties of a connection factory to the broker of this instance that have an effect; the
original's others have none.
"""

T = TypeVar("T", ConnectionFactory, Destination)


def read(
    data: bytes,
    origin: str,
    bridge: str | None = None,
    *,
    passwords: Mapping[str, str] | None = None,
    exposed: str = "",
) -> tuple[Bridge, list[Problem]]:
    """The bridge that a document configures, and warnings.

    It computes only, and may be called on any thread.

    :param data: the document. :param origin: its file or URL, for problems.
    :param bridge: the name that the bridge must have; None where any will do.
    :param passwords: what ``${passfile:NAME}`` stands for, by NAME.
    :param exposed: why others may see what is written in the document, such as "others may read
        this file"; then passwords in it are warned of.
    :raises ConfigurationError: with everything that is wrong, warnings included.
    """
    root, problems = parse(data, origin)
    if root is None:
        raise ConfigurationError(problems)
    reading = _Reading(Report(origin, passwords or {}, exposed))
    found = reading.bridge(root, bridge)
    problems += reading.report.problems
    if any(problem.severity is not Severity.WARNING for problem in problems):
        raise ConfigurationError(problems)
    return found, ordered(problems)


class _Reading:
    """One document being read."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._factories: dict[str, ConnectionFactory] = {}
        self._destinations: dict[str, Destination] = {}
        self._clients: dict[tuple[str, str], str] = {}
        #: For each name that nothing has: the place of its problem, and the lines of the other
        #: references to it.
        self._unknown: dict[tuple[str, str], tuple[int, list[int]]] = {}

    def bridge(self, root: Element, wanted: str | None) -> Bridge:
        given = Given(root, self.report)
        name = given.name("name")
        if wanted is not None and name and name != wanted:
            self.report.add(
                root, "name", f"{wanted}, the name of this bridge in imq.bridge.activelist"
            )
        elif wanted is None and name and not is_bridge_name(name):
            self.report.add(
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
        self._tell_of_others()
        return Bridge(
            name=name,
            links=tuple(link for link in links if link is not None),
            built_in_dmq=next((dmq for dmq in dmqs if dmq.built_in), BUILT_IN_DMQ),
            dmqs=tuple(dmq for dmq in dmqs if not dmq.built_in),
            connection_factories=tuple(factories),
            destinations=tuple(destinations),
            message_transfer_tag_bridge_name=given.flag("message-transfer-tag-bridge-name"),
            log_message_transfer=given.flag("log-message-transfer"),
            origin=self.report.origin,
        )

    def _check_unique(self, elements: Iterable[Element]) -> None:
        named: dict[tuple[str, str], Element] = {}
        for element in elements:
            attribute = (
                "ref-name" if element.tag in ("connection-factory", "destination") else "name"
            )
            name = element.attributes.get(attribute)
            if name is None:
                continue
            first = named.setdefault((element.tag, name), element)
            if first is not element:
                self.report.add(
                    element,
                    attribute,
                    f"a name that no other {element.tag} has, and that of line {first.line} has it",
                )

    def _factory(self, element: Element) -> ConnectionFactory:
        given = Given(element, self.report)
        username, password = given.text("username"), given.secret("password")
        if given.has("username") and not given.has("password"):
            self.report.add(element, "password", "a password, because there is a username")
        if given.has("password") and not given.has("username"):
            self.report.warn(
                element, "password", "a username with it; without one the password is ignored"
            )
        factory = ConnectionFactory(
            ref_name=given.name("ref-name"),
            lookup_name=given.text("lookup-name"),
            multi_rm=given.flag("multi-rm"),
            connect_attempts=given.number("connect-attempts", _RETRIES),
            connect_attempt_interval_s=given.number(
                "connect-attempt-interval-in-seconds", _SECONDS
            ),
            idle_timeout_s=given.number("idle-timeout-in-seconds", _SECONDS),
            username=username,
            password=None if username is None else password,
            properties=given.properties(),
            description=given.description(),
            line=element.line,
        )
        if factory.embedded and not given.has("lookup-name"):
            for inner in element.all("property"):
                if inner.attributes.get("name", EMBEDDED_PROPERTIES[0]) not in EMBEDDED_PROPERTIES:
                    effective = ", ".join(EMBEDDED_PROPERTIES)
                    self.report.warn(
                        inner,
                        "name",
                        f"a property that has an effect where there is no lookup-name: {effective}; this one is ignored",
                    )
        return factory

    def _destination(self, element: Element) -> Destination:
        given = Given(element, self.report)
        ref_name, lookup_name = given.name("ref-name"), given.text("lookup-name")
        name: str | None = None
        kind: Kind | None = None
        if not given.has("lookup-name"):
            name = given.text("name")
            kind = Kind.TOPIC if given.choice("type") == "topic" else Kind.QUEUE
            if not given.has("name"):
                self.report.add(
                    element,
                    "name",
                    "the destination's name at its provider, or a lookup-name by which it is found",
                )
        return Destination(
            ref_name=ref_name,
            name=name,
            kind=kind,
            lookup_name=lookup_name,
            properties=given.properties(),
            description=given.description(),
            line=element.line,
        )

    def _link(self, element: Element) -> Link | None:
        given = Given(element, self.report)
        name, enabled = given.name("name", BRIDGE_NAME_PROPERTY), given.flag("enabled")
        quality = self._quality_of_service(given)
        max_batch_size = given.optional_number("max-batch-size", _COUNT)
        max_batch_time_ms = given.number("max-batch-time", _MILLISECONDS, besides=-1)
        if given.has("max-batch-time") and not given.has("max-batch-size"):
            self.report.warn(
                element, "max-batch-time", "max-batch-size, too: without it no batch waits"
            )
        failure_retry_interval_ms = given.optional_number("failure-retry-interval", _MILLISECONDS)
        max_retries = given.optional_number("max-retries", _RETRIES)
        inner = element.first("source"), element.first("target")
        source = None if inner[0] is None else self._source(inner[0], enabled)
        target = None if inner[1] is None else self._target(inner[1], enabled)
        if inner[1] is None or source is None or target is None:
            return None
        if _goes_round(source, target):
            self.report.warn(
                inner[1],
                "destination-ref",
                "a destination that is not the link's source: its messages go round for ever",
            )
        return Link(
            name=name,
            source=source,
            target=target,
            enabled=enabled,
            quality_of_service=quality,
            max_batch_size=max_batch_size,
            max_batch_time_ms=max_batch_time_ms,
            failure_retry_interval_ms=failure_retry_interval_ms,
            max_retries=max_retries,
            add_message_id_in_header=given.flag("add-message-id-in-header"),
            loop_guard=given.flag("loop-guard"),
            description=given.description(),
            line=element.line,
        )

    def _quality_of_service(self, given: Given) -> QualityOfService:
        word, transacted = given.choice("quality-of-service"), given.flag("transacted")
        if word is None:
            return (
                QualityOfService.ONCE_AND_ONLY_ONCE
                if transacted
                else QualityOfService.DUPLICATES_OK
            )
        quality = QualityOfService(word)
        if given.has("transacted") and quality.transacted != transacted:
            wanted = " or ".join(
                one.value for one in QualityOfService if one.transacted == transacted
            )
            written = given.element.attributes["transacted"]
            self.report.add(
                given.element,
                "quality-of-service",
                f'{wanted}, which transacted="{written}" stands for, or no attribute transacted',
            )
        return quality

    def _source(self, element: Element, enabled: bool) -> Source | None:
        given = Given(element, self.report)
        factory = self._referred(given, "connection-factory-ref", self._factories)
        destination = self._referred(given, "destination-ref", self._destinations)
        selector = element.attributes.get("selector", "").strip() or None
        durable_sub, clientid = given.text("durable-sub"), given.text("clientid")
        if durable_sub is not None:
            if destination is not None and destination.kind is Kind.QUEUE:
                self.report.warn(
                    element,
                    "durable-sub",
                    "a source that is a topic; for a queue this attribute is ignored",
                )
            elif not given.has("clientid") and (factory is None or not _has_client_id(factory)):
                self.report.warn(
                    element,
                    "clientid",
                    "a client identifier, because there is a durable-sub; without one the link fails, unless the connection factory brings its own",
                )
        if selector is not None and factory is not None and factory.embedded:
            # Other providers have dialects of their own.
            try:
                parse_selector(selector)
            except MessagingError as refused:
                self.report.add(element, "selector", f"a message selector; {refused}")
        if factory is None or destination is None:
            return None
        self._note_client(element, "clientid", factory, clientid, enabled)
        return Source(factory, destination, selector, durable_sub, clientid, given.description())

    def _target(self, element: Element, enabled: bool) -> Target | None:
        given = Given(element, self.report)
        factory = self._referred(given, "connection-factory-ref", self._factories)
        as_source = element.attributes.get("destination-ref") == AS_SOURCE
        destination = (
            None if as_source else self._referred(given, "destination-ref", self._destinations)
        )
        clientid, transformer = given.text("clientid"), given.text("message-transformer-class")
        properties = given.properties(BRIDGE_NAME_PROPERTY)
        if factory is None or (destination is None and not as_source):
            return None
        self._note_client(element, "clientid", factory, clientid, enabled)
        return Target(
            connection_factory=factory,
            destination=destination,
            stay_connected=given.flag("stay-connected"),
            clientid=clientid,
            retain_replyto=given.flag("retain-replyto"),
            message_transformer_class=transformer,
            consume_no_transfer_on_transform_error=given.flag(
                "consume-no-transfer-on-transform-error"
            ),
            properties=properties,
            description=given.description(),
        )

    def _dmq(self, element: Element) -> Dmq:
        given = Given(element, self.report)
        built_in = element.attributes.get("name") == BUILT_IN_DMQ_NAME
        name = BUILT_IN_DMQ_NAME if built_in else given.name("name")
        factory: ConnectionFactory | None = None
        destination: Destination | None = None
        if not built_in:
            factory = self._referred(given, "connection-factory-ref", self._factories)
            destination = self._referred(given, "destination-ref", self._destinations)
        enabled = built_in or given.flag("enabled")
        attribute = "clientid" if given.has("clientid") else "client-id"
        clientid = given.text(attribute)
        if (
            given.has("clientid")
            and given.has("client-id")
            and clientid != element.attributes["client-id"]
        ):
            self.report.add(
                element,
                "client-id",
                "the same as clientid, or only one of the two, which mean the same",
            )
        if factory is not None:
            self._note_client(element, attribute, factory, clientid, enabled)
        return Dmq(
            name=name,
            connection_factory=factory,
            destination=destination,
            enabled=enabled,
            stay_connected=built_in or given.flag("stay-connected"),
            clientid=clientid,
            time_to_live_ms=given.number("time-to-live-in-millis", _TIME_TO_LIVE),
            send_attempts=given.number("send-attempts", _COUNT),
            send_attempt_interval_s=given.number("send-attempt-interval-in-seconds", _SECONDS),
            message_transformer_class=given.text("message-transformer-class"),
            properties=given.properties(),
            description=given.description(),
            line=element.line,
        )

    def _referred(self, given: Given, attribute: str, known: Mapping[str, T]) -> T | None:
        """What a reference refers to; None where it refers to nothing, which is said here unless
        the DTD has said it.
        """
        tag = attribute.removesuffix("-ref")
        wanted = given.element.attributes.get(attribute)
        if wanted is None:
            if given.element.tag == "dmq":
                self.report.add(
                    given.element,
                    attribute,
                    f"a value, which every dmq but {BUILT_IN_DMQ_NAME} must have",
                )
        elif (tag, wanted) in self._unknown:
            self._unknown[tag, wanted][1].append(given.element.line)
        elif wanted not in known:
            self._unknown[tag, wanted] = len(self.report.problems), []
            expected = f"the ref-name of a {tag} of this file"
            if wanted.lower() == AS_SOURCE.lower():
                expected += (
                    f"; {AS_SOURCE}, written so, can be only the destination-ref of a target"
                )
            few = len(known) <= _MOST_COMPARED and len(self.report.problems) < _MOST_GUESSES
            self.report.add(
                given.element, attribute, expected, nearest(wanted, known) if few else ""
            )
        return None if wanted is None else known.get(wanted)

    def _tell_of_others(self) -> None:
        """One problem for all references to what is not there, with the lines of the others."""
        problems = self.report.problems
        for place, others in self._unknown.values():
            if others:
                lines = ", ".join(str(line) for line in others[:_MOST_LINES])
                more = f" and {len(others) - _MOST_LINES} more" if len(others) > _MOST_LINES else ""
                expected = f"{problems[place].expected}, as on line{'s' if len(others) > 1 else ''} {lines}{more}"
                problems[place] = replace(problems[place], expected=expected)

    def _note_client(
        self,
        element: Element,
        attribute: str,
        factory: ConnectionFactory,
        clientid: str | None,
        enabled: bool,
    ) -> None:
        """Warn where two connections to one provider would have one client identifier, of which the
        second is refused.
        """
        if clientid is None or not enabled:
            return
        before = self._clients.setdefault((factory.ref_name, clientid), element.label)
        if before != element.label:
            expected = f'an identifier that no other connection of connection-factory "{factory.ref_name}" has, and {before} has it'
            self.report.warn(element, attribute, expected)


def _has_client_id(factory: ConnectionFactory) -> bool:
    """Whether the file gives the factory's connections a client identifier. A JMS provider's own
    configuration may, which shows when it is connected.
    """
    names = (
        ("imqConfiguredClientID",) if factory.embedded else ("client-id", "imqConfiguredClientID")
    )
    return any(factory.properties.get(name, "").strip() for name in names)


def _goes_round(source: Source, target: Target) -> bool:
    """Whether what comes from the source goes there again; a transformer may send it elsewhere."""
    same = source.connection_factory == target.connection_factory and target.destination in (
        None,
        source.destination,
    )
    return same and target.message_transformer_class is None
