"""How ``imqcmd`` renders the answers of the admin service.

Open MQ's tables and lists of properties, and what they did not have. Owns titles, order and units. Makes no requests. Titles are Open MQ's where it has them; what is new
comes after, or stands under a heading of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from gateway.admin.cli.render import (
    Json,
    Line,
    duration,
    listed,
    moment,
    one_line,
    table,
    table_of,
    truth,
)

TYPES: Final = {"queue": "Queue", "topic": "Topic"}
_SIZES: Final = (("g", 1024**3), ("m", 1024**2), ("k", 1024))
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


def which_table(kind: str, name: str) -> str:
    """Return the table that says which destination a command is about."""
    return table(("Destination Name", "Destination Type"), [(name, TYPES[kind])])


def _type(each: Json) -> str:
    return TYPES[each["type"]] + (" (temporary)" if each["temporary"] else "")


def _text(value: object) -> object:
    return truth(value) if isinstance(value, bool) else value


def _limit(value: int) -> str:
    return "unlimited (-1)" if value < 0 else str(value)


def _size(octets: int) -> str:
    for suffix, scale in _SIZES:
        if octets > 0 and octets % scale == 0:
            return f"{octets // scale}{suffix}"
    return _limit(octets)


def _average_size(each: Json) -> str:
    return f"{each['octets'] / each['messages'] if each['messages'] else 0:.1f}"


def _of_topics(each: Json, count: int) -> object:
    return "-" if each["type"] == "queue" else count


def _wildcards(each: Json) -> object:
    """Consumers with wildcards; ``-`` for a queue without any."""
    count = sum(each["wildcards"].values())
    return count if count else _of_topics(each, 0)


def _wildcard_lines(each: Json) -> list[Line]:
    return [
        ("Current Number of Consumer Wildcards", sum(each["wildcards"].values())),
        *((f"   {pattern}  ({count})", None) for pattern, count in each["wildcards"].items()),
    ]


def _oldest(each: Json) -> str:
    if not each["messages"]:
        return "-"
    return "unknown" if each["oldest_age_ms"] < 0 else duration(each["oldest_age_ms"])


def _age(each: Json) -> str:
    return "unknown" if each["age_ms"] < 0 else duration(each["age_ms"])


#: ``list dst``.
destinations_table = partial(
    table_of,
    (
        ("Name", "name"),
        ("Type", _type),
        ("State", "state"),
        (("Producers", "Total"), "producers"),
        (("", "Wildcard"), lambda each: _of_topics(each, 0)),
        (("Consumers", "Total"), "consumers"),
        (("", "Wildcard"), _wildcards),
        (("Msgs", "Count"), "messages"),
        (("", "Remote"), lambda each: 0),
        (("", "UnAck"), "unacknowledged"),
        (("", "Avg Size"), _average_size),
        (("", "Oldest"), lambda each: _oldest(each)),
    ),
)
#: ``list msg``.
messages_table = partial(
    table_of,
    (
        ("Message ID", "message_id"),
        ("Age", _age),
        ("Size", "octets"),
        ("Type", "body_type"),
        ("Priority", "priority"),
        ("Reason", "reason"),
        ("Source", "source"),
    ),
)
#: ``list scheduled``.
scheduled_table = partial(
    table_of,
    (
        ("Job ID", "job_id"),
        ("Due", lambda each: moment(each["due_ms"])),
        ("Size", "octets"),
        ("Persistent", lambda each: truth(each["persistent"])),
        ("Delivered", "delivered"),
        (
            "Asked for",
            lambda each: ", ".join(
                f"{name.removeprefix('AMQ_SCHEDULED_')}={text}"
                for name, text in each["asked"].items()
            ),
        ),
    ),
)
_DURABLES: Final = (
    ("Durable Sub. Name", "name"),
    ("Client ID", "client_id"),
    ("Number of Messages", "messages"),
    ("Durable Sub. State", lambda each: "ACTIVE" if each["active"] else "INACTIVE"),
)
#: ``list dur`` of one topic, and of all.
durables_table = partial(table_of, _DURABLES, gap=4)
all_durables_table = partial(
    table_of,
    (
        *_DURABLES,
        (
            "Topic",
            lambda each: (
                f"{each['topic']} (none or more levels)" if each["none_or_more"] else each["topic"]
            ),
        ),
    ),
    gap=4,
)
#: ``list cxn``.
connections_table = partial(
    table_of,
    (
        ("Connection ID", "id"),
        ("User", "user"),
        ("Service", "service"),
        ("Producers", "producers"),
        ("Consumers", "consumers"),
        ("Host", "address"),
        ("Client ID", "client_id"),
        ("Since", lambda each: moment(each["since_ms"])),
        ("Msgs In", "sent"),
        ("Msgs Out", "delivered"),
        ("UnAck", "unacknowledged"),
        ("Last Heard", lambda each: _heard(each)),
        ("Held By", "holder"),
    ),
)
#: ``query cxn``.
subscriptions_table = partial(
    table_of,
    (
        ("Destination", "destination"),
        ("ID", lambda each: each["id"] if each["running"] else f"{each['id']} (not started)"),
        ("Durable or Shared", "name"),
        ("Selector", "selector"),
        ("Ack", "ack"),
        ("Credit", "credit"),
        ("UnAck", "unacknowledged"),
        ("Held Since", lambda each: moment(each["held_since_ms"], "")),
        ("Oldest", lambda each: moment(each["oldest_ms"], "")),
    ),
)
#: ``list svc``.
services_table = partial(
    table_of,
    (
        ("Service Name", "service"),
        ("Port Number", lambda each: _port(each)),
        ("Service State", "state"),
        ("Protocol", "protocol"),
        ("Connections", "connections"),
    ),
)
#: ``list txn``.
branches_table = partial(
    table_of,
    (
        ("Transaction ID", "xid"),
        ("State", "state"),
        ("User name", "user"),
        ("# Msgs/# Acks", lambda each: f"{each['sent']}/{each['acknowledged']}"),
        ("Creation time", lambda each: moment(each["since_ms"])),
        ("Age", lambda each: duration(each["age_ms"])),
    ),
)


def destination_details(each: Json) -> str:
    """``query dst``."""
    queue = each["type"] == "queue"
    properties = each["properties"]
    key = properties["lastValueKey"]
    lines: list[Line] = [
        ("Destination Name", each["name"]),
        ("Destination Type", _type(each)),
        ("Destination State", each["state"]),
        ("Created Administratively", truth(each["origin"] != "client")),
        ("Properties Given by", _GIVEN[each["origin"]]),
        ("", ""),
        ("Current Number of Messages", None),
        ("   Actual", each["messages"]),
        ("   Remote", 0),
        ("   Held in Transaction", each["in_transaction"]),
        ("   Unacknowledged", each["unacknowledged"]),
        ("   Scheduled", each["scheduled"]),
        ("Current Message Bytes", None),
        ("   Actual", each["octets"]),
        ("   Remote", 0),
        ("   Held in Transaction", each["octets_in_transaction"]),
        ("Age of the Oldest Message", _oldest(each)),
        ("Current Number of Producers", each["producers"]),
    ]
    if queue:
        lines += [
            ("Current Number of Active Consumers", each["consumers"]),
            ("Current Number of Backup Consumers", 0),
        ]
        if each["wildcards"]:
            lines += _wildcard_lines(each)
    else:
        lines += [
            ("Current Number of Producer Wildcards", 0),
            ("Current Number of Consumers", each["consumers"]),
            *_wildcard_lines(each),
        ]
    lines += [
        ("", ""),
        ("Since the Start of the Broker", None),
        ("   Messages In", each["messages_in"]),
        ("   Messages Out", each["messages_out"]),
        *([("   of these Replaced", each["replaced"])] * bool(key or each["replaced"])),
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
        address = properties["address"]
        lines += [("Address", address)] * bool(address)
        lines += [("Last Value Key", key)] * bool(key)
        active = _limit(properties["maxNumActiveConsumers"])
        lines += [("Max Number of Active Consumers", active), ("Max Number of Backup Consumers", 0)]
    lines += [
        ("", ""),
        ("Limit Behavior", properties["limitBehavior"]),
        ("Use Dead Message Queue", truth(properties["useDMQ"])),
        *(
            [("Dead Message Queue", properties["deadLetterQueue"])]
            * bool(properties["deadLetterQueue"])
        ),
        *([("Is a Dead Message Queue", truth(True))] * properties["isDMQ"]),
        ("", ""),
        ("Redelivery of Rejected Messages", None),
        *((f"   {name}", _text(properties[name])) for name in _REDELIVERY),
    ]
    if each["administered"]:
        lines += [
            ("", ""),
            ("Given by an Administrator", None),
            *((f"   {name}", text) for name, text in each["administered"].items()),
        ]
    return listed(lines)


def message_details(each: Json) -> str:
    """``query msg``."""
    lines: list[Line] = [
        ("Message ID", each["message_id"]),
        ("Timestamp", moment(each["timestamp_ms"], "unknown")),
        ("Age", _age(each)),
        ("Body Size", each["octets"]),
        ("Body Type", each["body_type"]),
        ("Priority", each["priority"]),
        ("Persistent", truth(each["persistent"])),
        ("Expires", moment(each["expires_ms"])),
        ("Correlation ID", each["correlation_id"] or ""),
        ("JMS Type", each["type"] or ""),
    ]
    if each["reason"]:
        lines += [
            ("", ""),
            ("Dead Since", moment(each["dead_since_ms"] or 0, "unknown")),
            ("Reason", each["reason"]),
            ("Comment", one_line(each["comment"] or "")),
            ("Source", each["source"] or ""),
        ]
    lines += [
        ("", ""),
        ("Properties", None),
        *((f"   {name}", value) for name, value in sorted(each["properties"].items())),
    ]
    return listed(lines)


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
            ("Held Since", moment(each["held_since_ms"], "")),
            ("Credit", each["credit"]),
            ("Last Heard", _heard(each)),
            ("Heart-Beat", f"each {each['beat_ms']} ms" if each["beat_ms"] else "none"),
        ]
    )


def _heard(each: Json) -> str:
    """Return for how long a client is silent; "" where not known."""
    if each["silent_ms"] < 0:
        return ""
    return f"{each['silent_ms'] // 1000} s ago{', LATE' if each['late'] else ''}"


def service_details(each: Json) -> str:
    """``query svc``."""
    return listed(
        [
            ("Service Name", each["service"]),
            ("Service State", each["state"]),
            ("Port Number", _port(each)),
            ("Host", each["address"] or "*"),
            ("Protocol", each["protocol"]),
            ("Connections", each["connections"]),
            *([("Not Opened", each["problem"])] if each["problem"] else []),
        ]
    )


def _port(service: Json) -> str:
    return f"{service['port']} ({'dynamic' if service['chosen'] else 'static'})"


def branch_details(each: Json) -> str:
    """``imqcmd query txn``."""
    lines: list[tuple[str, object]] = [
        ("Transaction ID", each["xid"]),
        ("State", each["state"]),
        ("User name", each["user"]),
        ("Creation time", moment(each["since_ms"])),
        ("Age", duration(each["age_ms"])),
        ("Number of messages", each["sent"]),
        ("Number of acknowledgments", each["acknowledged"]),
    ]
    if each["coordinator"]:
        lines += [
            ("", ""),
            ("Coordinator", each["coordinator"]),
            ("Transaction of the Coordinator", each["transaction"]),
            ("Connection Factory", each["ref_name"]),
        ]
    return listed(lines)


def members_table(members: Sequence[Json]) -> str:
    """``list bkr``. The process that was asked is marked."""
    return table(
        ("Broker ID", "Cluster ID", "Process", "State", "Owner Since"),
        [
            (
                member["broker"],
                member["cluster"] or "-",
                f"{member['node']} *" if member["here"] else member["node"],
                member["state"],
                member["since"] or "-",
            )
            for member in members
        ],
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
            ("Running Since", f"{moment(broker['started_ms'])} ({duration(broker['uptime_ms'])})"),
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
            (
                "Message Store can be Reached",
                f"false since {moment(broker['unreachable_since_ms'])}: nothing is confirmed or delivered"
                if broker["unreachable_since_ms"]
                else "true",
            ),
            ("", ""),
            ("Current Number of Messages in Dead Message Queue", broker["dead_messages"]),
            ("Current Total Message Bytes in Dead Message Queue", broker["dead_octets"]),
            ("Log Dead Messages", truth(broker["log_dead"])),
            ("Truncate Message Body in Dead Message Queue", truth(broker["truncate_dead"])),
            ("", ""),
            ("Max Number of Messages in System", _limit(-1)),
            ("Max Total Message Bytes in System", _limit(-1)),
            ("Max Message Size", _size(broker["max_message_octets"])),
            ("", ""),
            ("Auto Create Queues", truth(broker["auto_create_queues"])),
            ("Auto Create Topics", truth(broker["auto_create_topics"])),
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
