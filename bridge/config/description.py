"""A bridge's configuration in words, so that two can be compared.

Configurations that brokers of a cluster have of one bridge are compared so: on different machines,
and without any password leaving one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum

from bridge.config.model import Bridge, ConnectionFactory, Destination
from gateway.instance.settings import HIDDEN


def describe(bridge: Bridge) -> dict[str, str]:
    """Return every value of a configuration by where it stands.

    Such as ``link "orders", source, selector``.

    Passwords are hidden, and two that differ look the same. Descriptions make no difference.
    """
    secrets = bridge.secrets()
    return {
        where: HIDDEN if any(secret in value for secret in secrets) else value
        for where, value in _values(bridge)
    }


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return what two descriptions do not have in common.

    :returns: for each value where it stands, and what it is here and there; "" where it is missing.
    """
    return [
        (where, here.get(where, ""), there.get(where, ""))
        for where in dict.fromkeys((*here, *there))
        if here.get(where, "") != there.get(where, "")
    ]


def _values(bridge: Bridge) -> Iterator[tuple[str, str]]:
    for link in bridge.links:
        yield from _of(f'link "{link.name}"', link)
    yield from _of("the built-in dead message queue", bridge.built_in_dmq)
    for dmq in bridge.dmqs:
        yield from _of(f'dmq "{dmq.name}"', dmq)
    for factory in bridge.connection_factories:
        yield from _of(f'connection-factory "{factory.ref_name}"', factory)
    for destination in bridge.destinations:
        yield from _of(f'destination "{destination.ref_name}"', destination)
    yield "order of dead message queues", ", ".join(dmq.name for dmq in bridge.dmqs)
    yield "message-transfer-tag-bridge-name", str(bridge.message_transfer_tag_bridge_name)
    yield "log-message-transfer", str(bridge.log_message_transfer)


def _of(where: str, element: object) -> Iterator[tuple[str, str]]:
    """Yield the values of an element.

    What it refers to stands elsewhere, and is named only.
    """
    if not is_dataclass(element):
        raise TypeError(f"{where} is no element")
    for field in fields(element):
        if not field.compare:
            continue
        value = getattr(element, field.name)
        place = f"{where}, {field.name.replace('_', '-')}"
        if isinstance(value, ConnectionFactory | Destination):
            yield place, value.ref_name
        elif is_dataclass(value):
            yield from _of(f"{where}, {field.name}", value)
        elif isinstance(value, Mapping):
            for name, text in sorted(value.items()):
                yield f'{where}, property "{name}"', text
        elif isinstance(value, tuple):
            for number, one in enumerate(value, 1):
                numbered = f"{place} {number}"
                if is_dataclass(one):
                    yield from _of(numbered, one)
                else:
                    yield numbered, " to ".join(one) if isinstance(one, tuple) else str(one)
        elif isinstance(value, Enum):
            yield place, str(value.value)
        elif value is not None:
            yield place, str(value)
