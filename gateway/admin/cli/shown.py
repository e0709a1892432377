"""What ``imqbridgemgr`` shows of the admin service's answers: Open MQ's tables A to E, and those it
did not have.

Owns titles, order and units. Asks nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from gateway.admin.cli.tables import table
from gateway.instance.problems import printable

Json = Mapping[str, Any]

#: By what a transacted link transfers once and only once.
_BY: Final[Mapping[str | None, str]] = {
    "XA": "by an XA transaction of source and target",
    "DUPLICATE_IDS": "by duplicate ids, which the target remembers",
    None: "known when it has connected",
}


def bridges_table(bridges: Sequence[Json]) -> str:
    """Table A."""
    rows = [(bridge["name"], bridge["type"], bridge["state"]) for bridge in bridges]
    return table(("Bridge Name", "Bridge Type", "Bridge State"), rows, 4)


def bridge_table(bridge: Json) -> str:
    """Table B: one bridge of type JMS, with how many of its links are enabled."""
    row = (bridge["name"], bridge["type"], bridge["state"], bridge["enabled_links"])
    return table(("Bridge Name", "Bridge Type", "Bridge State", "Links"), [row], 3)


def unread(bridge: Json) -> str:
    """Why no links are known of a bridge; empty where all are."""
    if bridge["type"] != "JMS" or bridge["state"] != "STOPPED":
        return ""
    return f"Bridge {bridge['name']} is STOPPED, and its file is read when it starts."


def links_table(links: Sequence[Json]) -> str:
    """Table C."""
    rows = [
        (link["name"], link["state"], link["source"], link["target"], _truth(link["transacted"]))
        for link in links
    ]
    return table(("Link Name", "Link State", "Source", "Target", "Transacted"), rows, 3)


def pools_table(pools: Sequence[Json]) -> str:
    """Table D."""
    titles = (
        ("Pooled", "ConnectionFactory"),
        "XA",
        "In-Use",
        "Idle",
        ("Idle", "Timeout"),
        ("Max", "Retries"),
        ("Retry", "Interval"),
    )
    names = ("factory", "xa", "in_use", "idle", "idle_timeout_s", "max_retries", "retry_interval_s")
    return table(titles, [[_cell(pool[name]) for name in names] for pool in pools], 3, centred=True)


def shared_table(shared: Sequence[Json]) -> str:
    """Table E."""
    titles = (
        ("Shared", "ConnectionFactory"),
        "XA",
        ("Ref", "Count"),
        ("Idle", "Timeout"),
        ("Max", "Retries"),
        ("Retry", "Interval"),
    )
    names = ("factory", "xa", "ref_count", "idle_timeout_s", "max_retries", "retry_interval_s")
    return table(
        titles, [[_cell(each[name]) for name in names] for each in shared], 3, centred=True
    )


def dmqs_table(queues: Sequence[Json]) -> str:
    """The dead message queues of a bridge, which Open MQ does not show."""
    titles = (
        ("Dead Message", "Queue"),
        "Destination",
        ("Connection", "Kind"),
        "Sent",
        ("Not", "Taken"),
        ("Failed", "Attempts"),
        ("Last", "Error"),
    )
    rows = [
        (
            queue["name"],
            queue["destination"]
            + ("" if queue["enabled"] else " (disabled)")
            + (" (failed)" if queue["failed"] else ""),
            queue["kind"] or "",
            queue["sent"],
            queue["not_taken"],
            queue["failed_attempts"],
            queue["last_error"],
        )
        for queue in queues
    ]
    return table(titles, rows, 3)


def link_details(link: Json) -> str:
    """Everything of one link, a line each."""
    counters = link["counters"]
    dead = ", ".join(f"{reason} {count}" for reason, count in sorted(counters["dead"].items()))
    rows = [
        ("Link Name", link["name"]),
        ("Bridge Name", link["bridge"]),
        ("Link State", f"{link['state']} since {moment(link['since_ms'])}"),
        ("Enabled", _truth(link["enabled"])),
        ("Source", link["source"]),
        ("Target", link["target"]),
        ("Transacted", _truth(link["transacted"])),
        ("Quality of Service", link["quality_of_service"]),
        *(_once(link) if link["transacted"] else ()),
        ("", ""),
        ("Messages Received", f"{counters['received']} ({link['received_rate']:.1f} a second)"),
        ("Messages Sent", f"{counters['sent']} ({link['sent_rate']:.1f} a second)"),
        ("Octets Sent", counters["octets"]),
        ("Messages Acknowledged", counters["acknowledged"]),
        ("Batches", counters["batches"]),
        ("In Flight", link["in_flight"]),
        (
            "Doing",
            f"{link['doing']} since {moment(link['doing_since_ms'])}"
            if link["doing_since_ms"]
            else link["doing"],
        ),
        ("Last Transfer", moment(link["last_transfer_ms"])),
        ("Lag", lag(link) or "unknown"),
        ("", ""),
        ("Dead Messages", dead or "0"),
        ("Expired", counters["expired"]),
        ("Not Transferred", counters["not_transferred"]),
        ("Transform Failures", counters["transform_failures"]),
        ("Refused by the Target", counters["refused"]),
        ("Possible Duplicates", counters["possible_duplicates"]),
        ("Reconnects", counters["reconnects"]),
        ("Failed Attempts", link["attempt"]),
        ("Next Attempt", moment(link["next_try_ms"], "none due")),
        (
            "Last Error",
            f"{link['last_error']} ({moment(link['last_error_ms'])})"
            if link["last_error"]
            else "none",
        ),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name.ljust(width)}   {_one_line(value)}".rstrip() for name, value in rows]
    return "\n".join(lines) + "\n"


def lag(link: Json) -> str:
    """The age of the oldest message that waits at the source; how many wait where only that is
    known; "" where nothing is.
    """
    if link["lag_ms"] >= 0:
        return f"{link['lag_ms'] / 1000:.3f} s"
    count = link.get("waiting", -1)
    return "" if count < 0 else f"unknown ({count} {'waits' if count == 1 else 'wait'})"


def _once(link: Json) -> Sequence[tuple[str, object]]:
    """What is to be told of a transacted link besides."""
    rows: list[tuple[str, object]] = [("Once and Only Once", _BY[link["once_by"]])]
    if link["once_by"] == "XA":
        under_way = (
            f"{link['transaction']} is {link['transaction_state']}"
            if link["transaction"]
            else "none"
        )
        rows.append(("Transaction", under_way))
    return rows


def changes_lines(answer: Json) -> list[str]:
    """What a reload has changed."""
    changes = answer["changes"]
    if not answer["changed"]:
        return ["Nothing has changed.", ""]
    words = {
        "added": "Links added",
        "removed": "Links removed",
        "changed": "Links changed",
        "unchanged": "Links unchanged",
        "connection_factories": "Connection factories that differ",
        "destinations": "Destinations that differ",
    }
    lines = [f"{text}: {', '.join(changes[name])}" for name, text in words.items() if changes[name]]
    flags = {
        "dmqs": "The dead message queues changed.",
        "message_transfer_tag_bridge_name": "message-transfer-tag-bridge-name changed.",
        "log_message_transfer": "log-message-transfer changed.",
    }
    return [*lines, *(text for name, text in flags.items() if changes[name]), ""]


def dead_lines(messages: Sequence[Json], details: bool) -> str:
    """Dead messages, a line each; with details the original's message id, and their properties and
    what went wrong as well.
    """
    titles = ("Message ID", "Reason", "Dead Since", "Source", "Target", "Original")
    rows = []
    for message in messages:
        original = message["original"]
        kind = (
            "not an envelope"
            if original is None
            else f"{original['body_type']} {original['octets']}"
        )
        rows.append(
            (
                message["message_id"],
                message["reason"] or "unknown",
                moment(message["dead_since_ms"] or message["timestamp_ms"]),
                message["source"] or "",
                message["target"] or "",
                kind,
                *((message["source_message_id"] or "",) if details else ()),
            )
        )
    text = table((*titles, "Original Message ID") if details else titles, rows, 3)
    if details:
        for message in messages:
            shown = {
                "exception": message["exception"],
                "problem": message["problem"],
                **message["properties"],
            }
            text += "".join(
                [
                    f"\n{message['message_id']}\n",
                    *(
                        f"    {name}: {_one_line(value)}\n"
                        for name, value in shown.items()
                        if value not in (None, "")
                    ),
                ]
            )
    return text


def tally_lines(answer: Json, done: str) -> list[str]:
    """What became of dead messages."""
    would = "would be " if answer["dry_run"] else ""
    lines = [f"Messages matched: {answer['matched']}", f"Messages {would}{done}: {answer['done']}"]
    if answer["left"]:
        lines.append(f"Messages {would}left in the queue: {answer['left']}")
        lines += [f"    {count} times: {reason}" for reason, count in answer["reasons"].items()]
    if answer["gone"]:
        lines.append(f"Messages that somebody else took meanwhile: {answer['gone']}")
    return [*lines, ""]


def moment(ms: int, never: str = "never") -> str:
    """A moment of epoch milliseconds, in UTC."""
    if not ms:
        return never
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def lasting(ms: int) -> str:
    """How long something lasts or has lasted: ``HH:MM:SS``, after days where there are any."""
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days} d " if days else "") + f"{hours:02}:{minutes:02}:{seconds:02}"


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _cell(value: object) -> object:
    return _truth(value) if isinstance(value, bool) else value


def _one_line(value: object) -> str:
    return printable(" ".join(str(value).split("\n")))
