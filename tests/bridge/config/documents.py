"""Documents for the tests: pieces that are right, and a model written as XML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lxml import etree

from bridge.config.model import (
    AS_SOURCE,
    Bridge,
    ConnectionFactory,
    Destination,
    QualityOfService,
    Rule,
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


#: Each attribute, and the field of the model that it gives.
_LINK = {
    "name": "name",
    "enabled": "enabled",
    "quality-of-service": "quality_of_service",
    "max-batch-size": "max_batch_size",
    "max-batch-time": "max_batch_time_ms",
    "failure-retry-interval": "failure_retry_interval_ms",
    "max-retries": "max_retries",
    "add-message-id-in-header": "add_message_id_in_header",
    "loop-guard": "loop_guard",
    "max-messages-per-second": "max_messages_per_second",
    "max-bytes-per-second": "max_bytes_per_second",
}
_ENDS = {"connection-factory-ref": "connection_factory", "destination-ref": "destination"}
_SOURCE = {**_ENDS, "selector": "selector", "durable-sub": "durable_sub", "clientid": "clientid"}
_TARGET = {
    **_ENDS,
    "stay-connected": "stay_connected",
    "clientid": "clientid",
    "retain-replyto": "retain_replyto",
    "message-transformer-class": "message_transformer_class",
    "consume-no-transfer-on-transform-error": "consume_no_transfer_on_transform_error",
}
_RULE = {"when": "when", "drop": "drop", "destination-ref": "destination", "last": "last"}
_SET = {"name": "name", "value": "value", "type": "type", "from": "source"}
_DMQ = {
    **_ENDS,
    "name": "name",
    "enabled": "enabled",
    "stay-connected": "stay_connected",
    "client-id": "clientid",
    "time-to-live-in-millis": "time_to_live_ms",
    "send-attempts": "send_attempts",
    "send-attempt-interval-in-seconds": "send_attempt_interval_s",
    "message-transformer-class": "message_transformer_class",
}
_FACTORY = {
    "ref-name": "ref_name",
    "lookup-name": "lookup_name",
    "multi-rm": "multi_rm",
    "connect-attempts": "connect_attempts",
    "connect-attempt-interval-in-seconds": "connect_attempt_interval_s",
    "idle-timeout-in-seconds": "idle_timeout_s",
    "username": "username",
    "password": "password",
}
_DESTINATION = {
    "ref-name": "ref_name",
    "name": "name",
    "type": "kind",
    "lookup-name": "lookup_name",
}


def written(model: Bridge) -> bytes:
    """A document that says all that the model says, defaults too."""
    root = etree.Element(
        "jmsbridge",
        {
            "name": model.name,
            "message-transfer-tag-bridge-name": _text(model.message_transfer_tag_bridge_name),
            "log-message-transfer": _text(model.log_message_transfer),
        },
    )
    for one in model.links:
        element = _element(root, "link", one, _LINK)
        _element(element, "source", one.source, _SOURCE)
        target = _element(element, "target", one.target, _TARGET)
        if one.target.destination is None:
            target.set("destination-ref", AS_SOURCE)
        for rule in one.target.rules:
            _add_rule(target, rule)
        for inner in target.findall("property"):
            target.append(inner)
    for dmq in (model.built_in_dmq, *model.dmqs):
        _element(root, "dmq", dmq, _DMQ)
    for factory in model.connection_factories:
        _element(root, "connection-factory", factory, _FACTORY)
    for destination in model.destinations:
        _element(root, "destination", destination, _DESTINATION)
    data: bytes = etree.tostring(root, encoding="utf-8", xml_declaration=True, pretty_print=True)
    return data


def _element(
    around: etree._Element, tag: str, model: Any, attributes: Mapping[str, str]
) -> etree._Element:
    element = etree.SubElement(around, tag)
    for attribute, field in attributes.items():
        value = getattr(model, field)
        if value is not None:
            element.set(attribute, _text(value))
    if model.description:
        etree.SubElement(element, "description").text = model.description
    for name, value in getattr(model, "properties", {}).items():
        etree.SubElement(element, "property", name=name, value=value)
    return element


def _add_rule(target: etree._Element, rule: Rule) -> None:
    element = _element(target, "rule", rule, _RULE)
    for name in rule.removes:
        etree.SubElement(element, "remove", name=name)
    for old, new in rule.renames:
        etree.SubElement(element, "rename", name=old, to=new)
    for one in rule.sets:
        given = {attribute: getattr(one, field) for attribute, field in _SET.items()}
        if one.source is not None:
            del given["type"]
        etree.SubElement(
            element, "set", {name: text for name, text in given.items() if text is not None}
        )


def _text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case QualityOfService():
            return value.value
        case Kind():
            return "topic" if value is Kind.TOPIC else "queue"
        case ConnectionFactory() | Destination():
            return value.ref_name
    return str(value)
