"""Properties of a destination as an administrator gives and reads them.

An example is ``maxNumMsgs=10``.

Owns their names, which are those of the settings ``imq.destination.NAME.*``, and the text that the
store keeps of what an administrator gave. What each means is said by
:mod:`gateway.broker.properties.destination_properties`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import POLICY_SETTINGS, PROPERTY_SETTINGS
from gateway.instance.setting_types import nearest
from gateway.instance.settings import Setting
from gateway.messaging.dead import DMQ
from gateway.messaging.destination import Destination, Kind

#: By property name.
_ATTRIBUTES: Final[Mapping[str, str]] = {
    setting.name.rpartition(".")[2]: name for name, setting in PROPERTY_SETTINGS.items()
}
_POLICY: Final[Mapping[str, str]] = {
    setting.name.rpartition(".")[2]: name for name, setting in POLICY_SETTINGS.items()
}
_SETTINGS: Final[Mapping[str, Setting[Any]]] = {
    setting.name.rpartition(".")[2]: setting
    for setting in (*PROPERTY_SETTINGS.values(), *POLICY_SETTINGS.values())
}

#: Those that the broker's own dead message queue cannot have.
_OF_OTHERS: Final = ("useDMQ", "deadLetterQueue", "isDMQ", "address", "lastValueKey")
#: Those of queues only.
_OF_QUEUES: Final = ("maxNumActiveConsumers", "isDMQ", "address", "lastValueKey")

NAMES: Final = tuple(_SETTINGS)
"""Every property there is."""

#: Those of the original that this broker does not have, and why not.
IGNORED: Final[Mapping[str, str]] = {
    "maxNumProducers": "producers are not limited",
    "maxNumBackupConsumers": "every consumer of a queue is active",
    "consumerFlowLimit": "how many messages a consumer gets ahead is its own choice, or imq.bridge.stomp.consumerFlowLimit",
    "isLocalOnly": "there is no cluster",
    "localDeliveryPreferred": "there is no cluster",
    "validateXMLSchemaEnabled": "bodies are not validated",
    "XMLSchemaURIList": "bodies are not validated",
    "reloadXMLSchemaOnFailure": "bodies are not validated",
}


class PropertyRefused(ValueError):
    """A property that a destination cannot have.

    ``str`` says which, and what was expected.

    :param name: the property.
    """

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


def check(destination: Destination, given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Check the properties that an administrator gives a destination.

    :returns: each as the store keeps it, and a sentence for each that has no effect here.

    :raises PropertyRefused: a name is unknown, a value is invalid, or the destination cannot
        have it.
    """
    kept: dict[str, str] = {}
    notes: list[str] = []
    for name, text in given.items():
        setting = _SETTINGS.get(name)
        if setting is None:
            if name not in IGNORED:
                near = nearest(name, [*_SETTINGS, *IGNORED])
                raise PropertyRefused(
                    name, f"there is no property {name}{near and f'; {near} may be meant'}"
                )
            notes.append(f"{name} has no effect: {IGNORED[name]}")
            continue
        try:
            value = setting.type.parse(text)
        except ValueError as error:
            raise PropertyRefused(name, f"{name}={text}: expected {error}") from None
        if name == "deadLetterQueue" and value == destination.name:
            raise PropertyRefused(
                name, f"{name}={text}: expected another queue than the destination"
            )
        if name == "address" and value == destination.name:
            raise PropertyRefused(
                name, f"{name}={text}: expected another name than the queue's, which it has anyway"
            )
        if name in _OF_QUEUES and destination.kind is Kind.TOPIC:
            raise PropertyRefused(
                name, f"{name} is a property of queues, and {destination} is a topic"
            )
        if destination == DMQ and (name in _OF_OTHERS or value == LimitBehavior.FLOW_CONTROL.value):
            raise PropertyRefused(name, f"{name}={text}: the dead message queue cannot have that")
        kept[name] = setting.type.show(value)
    return kept, notes


def over(base: DestinationProperties, given: Mapping[str, str]) -> DestinationProperties:
    """Apply what an administrator gave to the properties that hold otherwise.

    :raises ValueError: a name or value is invalid.
    """
    changes: dict[str, Any] = {}
    policy: dict[str, Any] = {}
    for name, text in given.items():
        if name not in _SETTINGS:
            raise ValueError(f"'{name}' is no property of a destination")
        try:
            value = _SETTINGS[name].type.parse(text)
        except ValueError as error:
            raise ValueError(f"'{name}={text}': expected {error}") from error
        if name in _POLICY:
            policy[_POLICY[name]] = value
        else:
            changes[_ATTRIBUTES[name]] = LimitBehavior(value) if name == "limitBehavior" else value
    return replace(base, **changes, redelivery=replace(base.redelivery, **policy))


def changed(
    before: Mapping[str, str] | None,
    properties: DestinationProperties,
    configured: DestinationProperties | None,
    given: Mapping[str, str],
    reset: Sequence[str],
) -> dict[str, str]:
    """Return an administrator's properties after a change.

    :param before: those before it; None where no administrator has given any.
    :param properties: what holds before it.
    :param configured: what the settings have for the destination.
    :param reset: names that an administrator no longer gives.
    """
    if before is None:
        # What it has by itself is not to change with what is given.
        before = {} if configured is not None else differing(properties, DestinationProperties())
    return {**{name: text for name, text in before.items() if name not in reset}, **given}


def differing(properties: DestinationProperties, base: DestinationProperties) -> dict[str, str]:
    """The properties that are other than ``base`` has them."""
    return _other_than(base, values(properties))


def unusual(shown: Mapping[str, Any]) -> dict[str, str]:
    """The properties that are other than what a destination has by itself.

    :param shown: see :func:`values`; those that this version does not know are left out.
    """
    return _other_than(DestinationProperties(), shown)


def _other_than(base: DestinationProperties, shown: Mapping[str, Any]) -> dict[str, str]:
    usual = values(base)
    return {
        name: _SETTINGS[name].type.show(value)
        for name, value in shown.items()
        if name in usual and value != usual[name]
    }


def values(properties: DestinationProperties) -> dict[str, Any]:
    """Every property by name.

    A value is a number, a truth value, or the word for ``limitBehavior``.
    """
    found: dict[str, Any] = {
        name: getattr(properties, attribute) for name, attribute in _ATTRIBUTES.items()
    }
    found["limitBehavior"] = properties.limit_behavior.value
    return found | {
        name: getattr(properties.redelivery, attribute) for name, attribute in _POLICY.items()
    }


def to_text(given: Mapping[str, str]) -> str:
    """``name=value`` lines, for the store."""
    return "\n".join(f"{name}={text}" for name, text in given.items())


def from_text(text: str) -> dict[str, str]:
    """The inverse of :func:`to_text`."""
    return {name: value for name, _, value in (line.partition("=") for line in text.splitlines())}
