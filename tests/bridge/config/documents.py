"""Documents for the tests: pieces that are right, and a model written as XML."""

from __future__ import annotations

from collections.abc import Mapping

from lxml import etree

from bridge.config.model import (
    AS_SOURCE,
    Bridge,
    ConnectionFactory,
    Destination,
    Dmq,
    Link,
    Source,
    Target,
)
from bridge.config.problems import ConfigurationError, Problem
from bridge.config.reader import read
from gateway.messaging.destination import Kind

ORIGIN = "jmsbridge1.xml"

FACTORIES = """\
<connection-factory ref-name="here"/>
<connection-factory ref-name="there" lookup-name="ConnectionFactory"/>
"""
DESTINATIONS = """\
<destination ref-name="in" name="orders"/>
<destination ref-name="out" name="accepted"/>
<destination ref-name="news" name="news" type="topic"/>
"""
SOURCE = '<source connection-factory-ref="here" destination-ref="in"/>'
TARGET = '<target connection-factory-ref="there" destination-ref="out"/>'


def document(
    links: str = "", dmqs: str = "", factories: str = FACTORIES, destinations: str = DESTINATIONS
) -> str:
    return f'<jmsbridge name="mq">\n{links}\n{dmqs}\n{factories}{destinations}</jmsbridge>'


def link(
    attributes: str = "", source: str = SOURCE, target: str = TARGET, name: str = "orders"
) -> str:
    return f'<link name="{name}" {attributes}>{source}{target}</link>'


def bridge(
    text: str, name: str | None = "mq", passwords: Mapping[str, str] | None = None
) -> Bridge:
    """What a document without so much as a warning says."""
    found, warnings = read(text.encode(), ORIGIN, name, passwords=passwords)
    assert warnings == []
    return found


def problems(
    text: str | bytes,
    name: str | None = "mq",
    passwords: Mapping[str, str] | None = None,
    exposed: str = "",
) -> list[Problem]:
    """Everything that is wrong with a document, be it a warning."""
    data = text.encode() if isinstance(text, str) else text
    try:
        return read(data, ORIGIN, name, passwords=passwords, exposed=exposed)[1]
    except ConfigurationError as error:
        return error.problems


def told(
    text: str | bytes,
    name: str | None = "mq",
    passwords: Mapping[str, str] | None = None,
    exposed: str = "",
) -> list[str]:
    """The same as an operator reads it, without file and line."""
    return [
        str(problem).removeprefix(problem.where + ": ")
        for problem in problems(text, name, passwords, exposed)
    ]


def written(model: Bridge) -> bytes:
    """A document that says all that the model says, defaults too."""
    root = etree.Element("jmsbridge", name=model.name)
    _flags(
        root,
        {
            "message-transfer-tag-bridge-name": model.message_transfer_tag_bridge_name,
            "log-message-transfer": model.log_message_transfer,
        },
    )
    for one in model.links:
        _link(root, one)
    for dmq in (model.built_in_dmq, *model.dmqs):
        _dmq(root, dmq)
    for factory in model.connection_factories:
        _factory(root, factory)
    for destination in model.destinations:
        _destination(root, destination)
    data: bytes = etree.tostring(root, encoding="utf-8", xml_declaration=True, pretty_print=True)
    return data


def _link(root: etree._Element, one: Link) -> None:
    element = etree.SubElement(root, "link", name=one.name)
    element.set("quality-of-service", one.quality_of_service.value)
    element.set("max-batch-time", str(one.max_batch_time_ms))
    _optional(
        element,
        {
            "max-batch-size": one.max_batch_size,
            "failure-retry-interval": one.failure_retry_interval_ms,
            "max-retries": one.max_retries,
        },
    )
    _flags(
        element,
        {
            "enabled": one.enabled,
            "add-message-id-in-header": one.add_message_id_in_header,
            "loop-guard": one.loop_guard,
        },
    )
    _described(element, one.description)
    _source(element, one.source)
    _target(element, one.target)


def _source(around: etree._Element, one: Source) -> None:
    element = etree.SubElement(around, "source")
    element.set("connection-factory-ref", one.connection_factory.ref_name)
    element.set("destination-ref", one.destination.ref_name)
    _optional(
        element,
        {"selector": one.selector, "durable-sub": one.durable_sub, "clientid": one.clientid},
    )
    _described(element, one.description)


def _target(around: etree._Element, one: Target) -> None:
    element = etree.SubElement(around, "target")
    element.set("connection-factory-ref", one.connection_factory.ref_name)
    element.set(
        "destination-ref", AS_SOURCE if one.destination is None else one.destination.ref_name
    )
    _optional(
        element,
        {"clientid": one.clientid, "message-transformer-class": one.message_transformer_class},
    )
    _flags(
        element,
        {
            "stay-connected": one.stay_connected,
            "retain-replyto": one.retain_replyto,
            "consume-no-transfer-on-transform-error": one.consume_no_transfer_on_transform_error,
        },
    )
    _described(element, one.description)
    _properties(element, one.properties)


def _dmq(root: etree._Element, one: Dmq) -> None:
    element = etree.SubElement(root, "dmq", name=one.name)
    if one.connection_factory is not None and one.destination is not None:
        element.set("connection-factory-ref", one.connection_factory.ref_name)
        element.set("destination-ref", one.destination.ref_name)
    element.set("time-to-live-in-millis", str(one.time_to_live_ms))
    element.set("send-attempts", str(one.send_attempts))
    element.set("send-attempt-interval-in-seconds", str(one.send_attempt_interval_s))
    _optional(
        element,
        {"client-id": one.clientid, "message-transformer-class": one.message_transformer_class},
    )
    _flags(element, {"enabled": one.enabled, "stay-connected": one.stay_connected})
    _described(element, one.description)
    _properties(element, one.properties)


def _factory(root: etree._Element, one: ConnectionFactory) -> None:
    element = etree.SubElement(root, "connection-factory")
    element.set("ref-name", one.ref_name)
    element.set("connect-attempts", str(one.connect_attempts))
    element.set("connect-attempt-interval-in-seconds", str(one.connect_attempt_interval_s))
    element.set("idle-timeout-in-seconds", str(one.idle_timeout_s))
    _optional(
        element,
        {"lookup-name": one.lookup_name, "username": one.username, "password": one.password},
    )
    _flags(element, {"multi-rm": one.multi_rm})
    _described(element, one.description)
    _properties(element, one.properties)


def _destination(root: etree._Element, one: Destination) -> None:
    element = etree.SubElement(root, "destination")
    element.set("ref-name", one.ref_name)
    _optional(element, {"name": one.name, "lookup-name": one.lookup_name})
    if one.kind is not None:
        element.set("type", "topic" if one.kind is Kind.TOPIC else "queue")
    _described(element, one.description)
    _properties(element, one.properties)


def _optional(element: etree._Element, values: Mapping[str, str | int | None]) -> None:
    for name, value in values.items():
        if value is not None:
            element.set(name, str(value))


def _flags(element: etree._Element, values: Mapping[str, bool]) -> None:
    for name, value in values.items():
        element.set(name, "true" if value else "false")


def _described(element: etree._Element, text: str) -> None:
    if text:
        etree.SubElement(element, "description").text = text


def _properties(element: etree._Element, properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        etree.SubElement(element, "property", name=name, value=value)
