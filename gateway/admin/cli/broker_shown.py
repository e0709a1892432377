"""What ``imqcmd`` shows of the admin service's answers: Open MQ's tables and lists of properties,
and what they did not have.

Owns titles, order and units. Asks nobody. Titles are Open MQ's where it has them; what is new comes
after, or stands under a heading of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.admin.cli.shown import lasting, moment
from gateway.admin.cli.tables import table
from gateway.instance.problems import printable

Json = Mapping[str, Any]

_TYPES: Final = {"queue": "Queue", "topic": "Topic"}
_SIZES: Final = (("g", 1024**3), ("m", 1024**2), ("k", 1024))
#: A line of a list: what it is about and its value; neither is an empty line, and without a value
#: it is a heading.
Line = tuple[str, object]


def which_table(kind: str, name: str) -> str:
    """Which destination a command is about."""
    return table(("Destination Name", "Destination Type"), [(name, _TYPES.get(kind, kind))])


def destinations_table(destinations: Sequence[Json]) -> str:
    """``list dst``."""
    titles = (
        "Name",
        "Type",
        "State",
        ("Producers", "Total"),
        ("", "Wildcard"),
        ("Consumers", "Total"),
        ("", "Wildcard"),
        ("Msgs", "Count"),
        ("", "Remote"),
        ("", "UnAck"),
        ("", "Avg Size"),
    )
    rows = []
    for each in destinations:
        queue = each["type"] == "queue"
        rows.append(
            (
                each["name"],
                _type(each),
                each["state"],
                each["producers"],
                "-" if queue else 0,
                each["consumers"],
                "-" if queue else sum(each["wildcards"].values()),
                each["messages"],
                0,
                each["unacknowledged"],
                f"{each['octets'] / each['messages'] if each['messages'] else 0:.1f}",
            )
        )
    return table(titles, rows, 3)


def destination_details(each: Json) -> str:
    """``query dst``."""
    queue = each["type"] == "queue"
    properties = each["properties"]
    lines: list[Line] = [
        ("Destination Name", each["name"]),
        ("Destination Type", _type(each)),
        ("Destination State", each["state"]),
        ("Created Administratively", _truth(each["origin"] != "client")),
        ("Properties Given by", _GIVEN[each["origin"]]),
        ("", ""),
        ("Current Number of Messages", None),
        ("   Actual", each["messages"]),
        ("   Remote", 0),
        ("   Held in Transaction", each["in_transaction"]),
        ("   Unacknowledged", each["unacknowledged"]),
        ("Current Message Bytes", None),
        ("   Actual", each["octets"]),
        ("   Remote", 0),
        ("   Held in Transaction", each["octets_in_transaction"]),
        ("Current Number of Producers", each["producers"]),
    ]
    if queue:
        lines += [
            ("Current Number of Active Consumers", each["consumers"]),
            ("Current Number of Backup Consumers", 0),
        ]
    else:
        lines += [
            ("Current Number of Producer Wildcards", 0),
            ("Current Number of Consumers", each["consumers"]),
            ("Current Number of Consumer Wildcards", sum(each["wildcards"].values())),
            *((f"   {pattern}  ({count})", None) for pattern, count in each["wildcards"].items()),
        ]
    lines += [
        ("", ""),
        ("Since the Start of the Broker", None),
        ("   Messages In", each["messages_in"]),
        ("   Messages Out", each["messages_out"]),
        ("   Message Bytes In", each["octets_in"]),
        ("   Message Bytes Out", each["octets_out"]),
        ("   Peak Number of Messages", each["peak_messages"]),
        ("   Peak Message Bytes", each["peak_octets"]),
        ("", ""),
        ("Max Number of Messages", _limit(properties["maxNumMsgs"])),
        ("Max Total Message Bytes", _limit(properties["maxTotalMsgBytes"])),
        ("Max Bytes per Message", _limit(properties["maxBytesPerMsg"])),
        ("Max Number of Producers", _limit(-1)),
    ]
    if queue:
        active = _limit(properties["maxNumActiveConsumers"])
        lines += [("Max Number of Active Consumers", active), ("Max Number of Backup Consumers", 0)]
    lines += [
        ("", ""),
        ("Limit Behavior", properties["limitBehavior"]),
        ("Use Dead Message Queue", _truth(properties["useDMQ"])),
        ("", ""),
        ("Redelivery of Rejected Messages", None),
        *((f"   {name}", _cell(properties[name])) for name in _REDELIVERY),
    ]
    if each["administered"]:
        lines += [
            ("", ""),
            ("Given by an Administrator", None),
            *((f"   {name}", text) for name, text in each["administered"].items()),
        ]
    return listed(lines)


def messages_table(messages: Sequence[Json]) -> str:
    """``list msg``."""
    titles = ("Message ID", "Age", "Size", "Type", "Priority", "Reason", "Source")
    rows = [
        (
            each["message_id"],
            _age(each),
            each["octets"],
            each["body_type"],
            each["priority"],
            each["reason"] or "",
            each["source"] or "",
        )
        for each in messages
    ]
    return table(titles, rows, 3)


def message_details(each: Json) -> str:
    """``query msg``."""
    lines: list[Line] = [
        ("Message ID", each["message_id"]),
        ("Timestamp", moment(each["timestamp_ms"], "unknown")),
        ("Age", _age(each)),
        ("Body Size", each["octets"]),
        ("Body Type", each["body_type"]),
        ("Priority", each["priority"]),
        ("Persistent", _truth(each["persistent"])),
        ("Expires", moment(each["expires_ms"])),
        ("Correlation ID", each["correlation_id"] or ""),
        ("JMS Type", each["type"] or ""),
    ]
    if each["reason"]:
        lines += [
            ("", ""),
            ("Dead Since", moment(each["dead_since_ms"] or 0, "unknown")),
            ("Reason", each["reason"]),
            ("Comment", " ".join(str(each["comment"] or "").split("\n"))),
            ("Source", each["source"] or ""),
        ]
    lines += [
        ("", ""),
        ("Properties", None),
        *((f"   {name}", value) for name, value in sorted(each["properties"].items())),
    ]
    return listed(lines)


def _age(each: Json) -> str:
    return "unknown" if each["age_ms"] < 0 else lasting(each["age_ms"])


def durables_table(durables: Sequence[Json], with_topics: bool) -> str:
    """``list dur``. :param with_topics: they are not all of one topic."""
    titles = [
        "Durable Sub. Name",
        "Client ID",
        "Number of Messages",
        "Durable Sub. State",
        *(["Topic"] if with_topics else []),
    ]
    rows = [
        (
            each["name"],
            each["client_id"],
            each["messages"],
            "ACTIVE" if each["active"] else "INACTIVE",
            *([each["topic"]] if with_topics else []),
        )
        for each in durables
    ]
    return table(titles, rows)


def connections_table(connections: Sequence[Json]) -> str:
    """``list cxn``."""
    titles = (
        "Connection ID",
        "User",
        "Service",
        "Producers",
        "Consumers",
        "Host",
        "Client ID",
        "Since",
        "Msgs In",
        "Msgs Out",
        "UnAck",
        "Held By",
    )
    rows = [
        (
            each["id"],
            each["user"],
            each["service"],
            each["producers"],
            each["consumers"],
            each["address"],
            each["client_id"],
            moment(each["since_ms"]),
            each["sent"],
            each["delivered"],
            each["unacknowledged"],
            each["holder"],
        )
        for each in connections
    ]
    return table(titles, rows, 3)


def connection_details(each: Json) -> str:
    """``query cxn``."""
    return listed(
        [
            ("Connection ID", each["id"]),
            ("User", each["user"]),
            ("Service", each["service"]),
            ("Producers", each["producers"]),
            ("Consumers", each["consumers"]),
            ("Host", each["address"]),
            ("Port", each["port"] or ""),
            ("Client ID", each["client_id"]),
            ("Client Platform", each["protocol"]),
            ("", ""),
            ("Session in the Log", each["session"]),
            ("Held by", each["holder"]),
            ("Connected Since", moment(each["since_ms"])),
            ("Messages In", each["sent"]),
            ("Messages Out", each["delivered"]),
            ("Unacknowledged", each["unacknowledged"]),
        ]
    )


def broker_details(broker: Json, port: int) -> str:
    """``query bkr``. :param port: of its port mapper."""
    return listed(
        [
            ("Version", broker["version"]),
            ("Instance Name", broker["instance"]),
            ("Broker ID", broker["store_id"]),
            ("Primary Port", port),
            ("Broker is Embedded", "false"),
            ("Instance Configuration/Data Root Directory", broker["varhome"]),
            ("Message Store", broker["store"]),
            ("Running Since", f"{moment(broker['started_ms'])} ({lasting(broker['uptime_ms'])})"),
            ("", ""),
            ("Current Number of Messages in System", broker["messages"]),
            ("Current Total Message Bytes in System", broker["octets"]),
            ("Current Number of Destinations", broker["destinations"]),
            ("Current Number of Durable Subscriptions", broker["durables"]),
            ("Current Number of Connections", broker["connections"]),
            ("Messages Accepted Since the Start", broker["accepted"]),
            (
                "Memory of Waiting Messages",
                f"{broker['memory_used']} of {broker['memory_most']} bytes",
            ),
            (
                "Persistent Messages are Refused",
                f"true: {broker['refusing']}" if broker["refusing"] else "false",
            ),
            ("", ""),
            ("Current Number of Messages in Dead Message Queue", broker["dead_messages"]),
            ("Current Total Message Bytes in Dead Message Queue", broker["dead_octets"]),
            ("Log Dead Messages", _truth(broker["log_dead"])),
            ("Truncate Message Body in Dead Message Queue", _truth(broker["truncate_dead"])),
            ("", ""),
            ("Max Number of Messages in System", _limit(-1)),
            ("Max Total Message Bytes in System", _limit(-1)),
            ("Max Message Size", _size(broker["max_message_octets"])),
            ("", ""),
            ("Auto Create Queues", _truth(broker["auto_create_queues"])),
            ("Auto Create Topics", _truth(broker["auto_create_topics"])),
            (
                "Auto Created Queue Max Number of Active Consumers",
                _limit(broker["auto_max_consumers"]),
            ),
            ("Auto Created Queue Max Number of Backup Consumers", 0),
            *_journal(broker.get("journal")),
        ]
    )


def _journal(journal: Json | None) -> list[Line]:
    if journal is None:
        return []
    said = "true: the disk takes nothing" if journal["stopped"] else "false"
    return [
        ("", ""),
        ("Journal Level", journal["level"]),
        ("Journal Written Since the Start", f"{journal['lines']} lines, {journal['octets']} bytes"),
        ("Journal Lines Lost", journal["lost"]),
        ("Journal is Stopped", said),
    ]


def listed(lines: Sequence[Line]) -> str:
    """Names and values under each other, their lines ended."""
    width = max(len(printable(name)) for name, value in lines if value is not None)
    text = ""
    for name, value in lines:
        shown = (
            printable(name)
            if value is None
            else f"{printable(name).ljust(width)}    {printable(str(value))}"
        )
        text += shown.rstrip() + "\n"
    return text


_REDELIVERY: Final = (
    "maximumRedeliveries",
    "initialRedeliveryDelay",
    "redeliveryDelay",
    "useExponentialBackOff",
    "backOffMultiplier",
    "maximumRedeliveryDelay",
)
_GIVEN: Final = {
    "administrator": "an administrator",
    "settings": "the settings imq.destination.*",
    "broker": "the broker",
    "client": "the settings imq.autocreate.*",
}


def _type(each: Json) -> str:
    return _TYPES[each["type"]] + (" (temporary)" if each["temporary"] else "")


def _limit(value: int) -> str:
    return "unlimited (-1)" if value < 0 else str(value)


def _size(octets: int) -> str:
    for suffix, scale in _SIZES:
        if octets > 0 and octets % scale == 0:
            return f"{octets // scale}{suffix}"
    return _limit(octets)


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _cell(value: object) -> object:
    return _truth(value) if isinstance(value, bool) else value
