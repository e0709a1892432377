"""The properties of a JMS connection factory that are for the bridge and not for JNDI: those that
begin with ``imq.jms.``.

Owns their names, ranges and meaning. All others are JNDI's environment, and are passed on unread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bridge.config.model import ConnectionFactory
from bridge.connections.administered import FactoryError
from gateway.instance.declaration import nearest

PREFIX: Final = "imq.jms."
#: Jars and folders of the provider's client, before those of the setting of the same name.
CLASS_PATH: Final = "imq.jms.classpath"
#: Options of its Java process, in place of those of the setting of the same name.
JVM_OPTIONS: Final = "imq.jms.jvmOptions"
#: A name for its Java process, which it then shares only with factories of the same name.
PROCESS: Final = "imq.jms.process"
#: The provider's own acknowledge mode for acknowledgement one by one.
INDIVIDUAL: Final = "imq.jms.individualAcknowledge"
#: The queue to which the provider's dead messages go; empty is none.
DEAD_QUEUE: Final = "imq.jms.deadQueue"
#: Seconds that calls of the provider's client may take, by the field of JMSFactory.
TIME_OUTS: Final[Mapping[str, str]] = {
    "imq.jms.lookupTimeout": "lookup_timeout_s",
    "imq.jms.connectTimeout": "connect_timeout_s",
    "imq.jms.sendTimeout": "send_timeout_s",
    "imq.jms.closeTimeout": "close_timeout_s",
}
PROPERTIES: Final = (CLASS_PATH, JVM_OPTIONS, PROCESS, *TIME_OUTS, INDIVIDUAL, DEAD_QUEUE)

_MOST_SECONDS: Final = 86_400
_MOST: Final = 0x7FFF_FFFF


def split(config: ConnectionFactory) -> tuple[dict[str, str], dict[str, Any]]:
    """The properties, apart.

    :returns: JNDI's environment, and the other fields of
        :class:`~bridge.providers.jms.factory.JMSFactory` that are given.
    :raises FactoryError: one with our prefix that does not exist, or has a value out of range.
    """
    environment: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for name, value in config.properties.items():
        if not name.startswith(PREFIX):
            environment[name] = value
        elif name == CLASS_PATH:
            fields["class_path"] = value
        elif name == JVM_OPTIONS:
            fields["java_options"] = tuple(value.split())
        elif name == PROCESS:
            fields["process"] = value.strip()
        elif name in TIME_OUTS:
            fields[TIME_OUTS[name]] = _seconds(config, name, value)
        elif name == INDIVIDUAL:
            fields["individual_acknowledge"] = _mode(config, name, value)
        elif name == DEAD_QUEUE:
            fields["dead_queue"] = value.strip()
        else:
            near = nearest(name, PROPERTIES)
            meant = f"; was {near} meant?" if near else ""
            raise FactoryError(
                config.ref_name,
                f"there is no such property, but {', '.join(PROPERTIES)}{meant}",
                f"property '{name}'",
            )
    return environment, fields


def _seconds(config: ConnectionFactory, name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MOST_SECONDS:
        raise FactoryError(
            config.ref_name,
            f"'{value[:40]}' is no number of seconds above 0 and up to {_MOST_SECONDS}",
            f"property '{name}'",
        )
    return seconds


def _mode(config: ConnectionFactory, name: str, value: str) -> int:
    text = value.strip()
    if (
        not text.isascii()
        or not text.isdecimal()
        or len(text) > len(str(_MOST))
        or int(text) > _MOST
    ):
        raise FactoryError(
            config.ref_name,
            f"'{value[:40]}' is no acknowledge mode: expected a number from 0 to {_MOST}",
            f"property '{name}'",
        )
    return int(text)
