"""How ``imqbridgemgr`` renders the answers of the admin service.

Open MQ's tables A to F, and those that it did not have. Owns titles, order and units. Makes no requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from gateway.admin.cli.render import Json, duration, listed, moment, one_line, table_of, truth
from gateway.instance.problems import counted
from gateway.instance.settings import printable

#: How a transacted link transfers each message once and only once.
_BY: Final[Mapping[str | None, str]] = {
    "XA": "by an XA transaction of source and target",
    "DUPLICATE_IDS": "by duplicate ids, which the target remembers",
    None: "known when it has connected",
}
#: What a branch is marked with whose connection factory is not in the bridge's file any more.
NOT_CONFIGURED: Final = "not configured"


def _destination_of_dmq(queue: Json) -> str:
    disabled = "" if queue["enabled"] else " (disabled)"
    return f"{queue['destination']}{disabled}{' (failed)' if queue['failed'] else ''}"


def _named(branch: Json) -> str:
    name: str = branch["ref_name"]
    return name if branch["configured"] else f"{name} ({NOT_CONFIGURED})"


def _branches(transaction: Json) -> str:
    states = [
        f"{_named(branch)}: {branch['state']}"
        + (f" ({branch['reason']})" if branch["reason"] else "")
        for branch in transaction["branches"]
    ]
    return ", ".join(states)


#: Table A.
bridges_table = partial(
    table_of,
    (("Bridge Name", "name"), ("Bridge Type", "type"), ("Bridge State", "state")),
    gap=4,
)
#: Table A with who owns each bridge, in a cluster of brokers; Open MQ does not show it.
owned_bridges_table = partial(
    table_of,
    (
        ("Bridge Name", "name"),
        ("Bridge Type", "type"),
        ("Bridge State", lambda each: each["state"] or "unknown"),
        ("Owner", "owner"),
    ),
    gap=4,
)
#: Table B: a bridge of type JMS, with how many of its links are enabled.
jms_bridge_table = partial(
    table_of,
    (
        ("Bridge Name", "name"),
        ("Bridge Type", "type"),
        ("Bridge State", "state"),
        ("Links", "enabled_links"),
    ),
)


def _state_of_link(link: Json) -> str:
    """Return its state, and whether its rates hold it back."""
    state = str(link["state"])
    if not link["paced"]:
        return state
    rates = (link["max_rate"], "/s"), (link["max_bytes_rate"], " bytes/s")
    return (
        f"{state} (at its rate of {' and '.join(f'{rate}{unit}' for rate, unit in rates if rate)})"
    )


def _oldest(link: Json) -> str:
    """Return how long the oldest message waits at the source."""
    if link["lag_ms"] < 0:
        return "unknown"
    return duration(link["lag_ms"]) if link["lag_ms"] else "-"


_LINKS: Final = (
    ("Link Name", "name"),
    ("Link State", _state_of_link),
    ("Source", "source"),
    ("Target", "target"),
    ("Transacted", "transacted"),
)
#: Table C.
links_table = partial(table_of, _LINKS)
#: Table C with what is to be known of each link at a glance; Open MQ does not show it.
balanced_links_table = partial(
    table_of,
    (
        *_LINKS,
        ("Oldest", _oldest),
        ("Difference", "difference"),
        (("Possibly", "Twice"), lambda link: link["balance"]["possibly_twice"]),
    ),
)
#: Table D.
pools_table = partial(
    table_of,
    (
        (("Pooled", "ConnectionFactory"), "factory"),
        ("XA", "xa"),
        ("In-Use", "in_use"),
        ("Idle", "idle"),
        (("Idle", "Timeout"), "idle_timeout_s"),
        (("Max", "Retries"), "max_retries"),
        (("Retry", "Interval"), "retry_interval_s"),
    ),
    centred=True,
)
#: Table E.
shared_table = partial(
    table_of,
    (
        (("Shared", "ConnectionFactory"), "factory"),
        ("XA", "xa"),
        (("Ref", "Count"), "ref_count"),
        (("Idle", "Timeout"), "idle_timeout_s"),
        (("Max", "Retries"), "max_retries"),
        (("Retry", "Interval"), "retry_interval_s"),
    ),
    centred=True,
)
#: Table F: a row for each transaction of the bridge.
records_table = partial(table_of, (("TRANSACTIONS", "text"),), gap=4)
#: The dead message queues of a bridge, which Open MQ does not show.
dmqs_table = partial(
    table_of,
    (
        (("Dead Message", "Queue"), "name"),
        ("Destination", _destination_of_dmq),
        (("Connection", "Kind"), "kind"),
        ("Sent", "sent"),
        (("Not", "Taken"), "not_taken"),
        (("Failed", "Attempts"), "failed_attempts"),
        (("Last", "Error"), "last_error"),
    ),
)
transactions_table = partial(
    table_of,
    (
        ("Transaction ID", "id"),
        ("State", "state"),
        ("Age", lambda each: duration(each["age_ms"])),
        ("Decision", "decision"),
        ("Branches", _branches),
    ),
)
_DEAD: Final = (
    ("Message ID", "message_id"),
    ("Reason", lambda dead: dead["reason"] or "unknown"),
    ("Dead Since", lambda dead: moment(dead["dead_since_ms"] or dead["timestamp_ms"])),
    ("Source", "source"),
    ("Target", "target"),
    (
        "Original",
        lambda dead: (
            "not an envelope"
            if dead["original"] is None
            else f"{dead['original']['body_type']} {dead['original']['octets']}"
        ),
    ),
)


# --- bridges and links


def bridges(found: Sequence[Json]) -> Iterator[str]:
    """Render all bridges."""
    clustered = any("owner" in each for each in found)
    yield owned_bridges_table(found) if clustered else bridges_table(found)
    yield from _news(found)


def bridge(answer: Json, debug: bool, balances: bool = False) -> Iterator[str]:
    """Render one bridge, with its links where it has any.

    :param debug: whether to add pools, shared connections, dead message queues and transactions, as
        far as the answer has them.
    :param balances: whether to say of each link what waits and whether its balance is right.
    """
    if answer["type"] == "JMS":
        form = balanced_links_table if balances else links_table
        yield jms_bridge_table([answer])
        yield from _links(answer, form(answer["links"]))
    else:
        yield bridges_table([answer])
    if "owner" in answer:
        yield f"Owner: broker {answer['owner']}"
    if debug:
        for name, form in (("pools", pools_table), ("shared", shared_table), ("dmqs", dmqs_table)):
            if answer.get(name):
                yield form(answer[name])
        if "transaction_records" in answer:
            yield records_table(answer["transaction_records"])
    yield from _news([answer])


def links(answer: Json) -> Iterator[str]:
    """Render everything about links of one bridge."""
    yield from _links(answer, "\n".join(map(link_details, answer["links"])))
    yield from _news([answer])


def _links(answer: Json, form: str) -> Iterator[str]:
    if answer["links"] or not unread(answer):
        yield form
    else:
        yield unread(answer)
        yield ""


def unread(bridge: Json) -> str:
    """Say why no links of a bridge are known; empty where all are."""
    if bridge["type"] != "JMS" or bridge["state"] != "STOPPED":
        return ""
    return f"Bridge {bridge['name']} is STOPPED, and its file is read when it starts."


def _news(bridges: Sequence[Json]) -> Iterator[str]:
    """Render problems, and transactions that call for an operator."""
    for bridge in bridges:
        if bridge["problem"]:
            for line in bridge["problem"].splitlines():
                yield f"{bridge['name']}: {line}"
            yield ""
    lines = [line for line in map(_waiting, bridges) if line]
    yield from lines
    if lines:
        yield ""


def _waiting(bridge: Json) -> str:
    counts = bridge["transactions"]
    words = [f"{counts[word]} {word}" for word in ("waiting", "heuristic") if counts[word]]
    if not words:
        return ""
    return f"Transactions of bridge {bridge['name']}: {', '.join(words)}. See: imqbridgemgr list transactions -bn {bridge['name']}"


def link_details(link: Json) -> str:
    """Return everything about one link."""
    counters = link["counters"]
    dead = ", ".join(f"{reason} {count}" for reason, count in sorted(counters["dead"].items()))
    rows = [
        ("Link Name", link["name"]),
        ("Bridge Name", link["bridge"]),
        ("Link State", f"{link['state']} since {moment(link['since_ms'])}"),
        ("Enabled", truth(link["enabled"])),
        ("Source", link["source"]),
        ("Target", link["target"]),
        ("Transacted", truth(link["transacted"])),
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
        ("Most Messages a Second", link["max_rate"] or "any number"),
        ("Most Octets a Second", link["max_bytes_rate"] or "any number"),
        ("Waited for Its Rates", _paced(link)),
        ("Last Transfer", _last_transfer(link)),
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
            one_line(f"{link['last_error']} ({moment(link['last_error_ms'])})")
            if link["last_error"]
            else "none",
        ),
        *_balance(link),
    ]
    return listed(rows, 3)


def _last_transfer(link: Json) -> str:
    """Return when the link moved its last message, as far as is known."""
    loaded = f"not since {moment(link['loaded_ms'])}, when it was loaded"
    return moment(link["last_transfer_ms"], loaded if link["balance"]["out"] else "never")


def _paced(link: Json) -> str:
    """Return for how long the link waited for its rates, and whether it does."""
    return f"{link['paced_s']:.1f} s{', held back now' if link['paced'] else ''}"


def _balance(link: Json) -> list[tuple[str, object]]:
    """The link's balance: what was taken is the sum of what follows."""
    terms = link["balance"]
    difference = link["difference"]
    lost = f", {terms['lost']} lost as AT_MOST_ONCE allows" if terms["lost"] else ""
    return [
        ("", ""),
        ("Balance Since", moment(terms["since_ms"])),
        ("Taken from the Source", terms["taken"]),
        ("   Out", terms["out"]),
        ("   Dead", terms["dead"]),
        ("   Not Transferred", terms["not_transferred"]),
        ("   In Doubt", terms["in_doubt"]),
        ("   Held", terms["held"]),
        ("   Difference", f"{difference}{lost}" if difference else 0),
        ("Possibly Twice", terms["possibly_twice"]),
    ]


def lag(link: Json) -> str:
    """Return the age of the oldest message that waits at the source.

    The number of messages where only that is known; "" where nothing is.
    """
    if link["lag_ms"] >= 0:
        return f"{link['lag_ms'] / 1000:.3f} s"
    count = link.get("waiting", -1)
    return "" if count < 0 else f"unknown ({count} {'waits' if count == 1 else 'wait'})"


def _once(link: Json) -> Sequence[tuple[str, object]]:
    """Return the lines that only a transacted link has."""
    rows: list[tuple[str, object]] = [("Once and Only Once", _BY[link["once_by"]])]
    if link["once_by"] == "XA":
        under_way = (
            f"{link['transaction']} is {link['transaction_state']}"
            if link["transaction"]
            else "none"
        )
        rows.append(("Transaction", under_way))
    return rows


# --- operations


def operated(operation: str, done: str, one: bool, found: Sequence[Json]) -> Iterator[str]:
    """Render what became of bridges. :param one: whether one was named."""
    if not one:
        yield bridges_table(found)
    if operation in ("start", "resume"):
        for bridge in found:
            yield from not_started(bridge["name"], bridge["not_started_links"])
    pausing = [bridge["name"] for bridge in found if bridge["state"] == "PAUSING"]
    for name in pausing:
        yield f"Bridge {name} is PAUSING: it is PAUSED as soon as its last link has finished the batch under way."
    if len(pausing) < len(found):
        yield f"Successfully {done} the {'bridge' if one else 'bridges'}."


def not_started(bridge: str, links: Sequence[str]) -> Iterator[str]:
    if links:
        yield f"Links of bridge {bridge} that are not started yet: {', '.join(links)}. Query them to see why."


def reloaded(answer: Json) -> Iterator[str]:
    """Render what a reload has changed."""
    yield from changes_lines(answer)
    for warning in answer["warnings"]:
        yield f"Warning: {warning}"
    if answer["state"] == "STARTED":
        yield from not_started(answer["bridge"], answer["not_started_links"])


def changes_lines(answer: Json) -> list[str]:
    """Say what a reload has changed."""
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


# --- transactions


def transactions(answer: Json, debug: bool) -> Iterator[str]:
    """Render the transactions of a bridge.

    :param debug: whether to add the ids of branches.
    """
    name, found = answer["bridge"], answer["transactions"]
    if found:
        yield transactions_table(found)
        if debug:
            yield _transaction_lines(found)
        return
    if answer["state"] == "STOPPED":
        yield f"Bridge {name} is STOPPED, and its transaction log is read when it starts."
    else:
        yield f"Bridge {name} has no transactions: none is under way, waits or is heuristic."
    yield ""


def _transaction_lines(transactions: Sequence[Json]) -> str:
    """Render the ids of each transaction's branches, and its one line.

    That line is in Open MQ's form.
    """
    lines: list[str] = []
    for each in transactions:
        lines += [f"{each['id']} since {moment(each['since_ms'])}", f"    {each['text']}"]
        lines += [
            f"    {_named(branch)}, {branch['rm']}: {branch['xid']}" for branch in each["branches"]
        ]
    return "".join(f"{line}\n" for line in lines)


def ordered_line(answer: Json) -> str:
    """Say how a transaction goes on after an order.

    :returns: a line; empty where the transaction is over.
    """
    transaction = answer["transaction"]
    if transaction is None:
        return ""
    said = {
        "WAITING": "it is completed as soon as these resource managers are there",
        "HEURISTIC": "it is listed until it is forgotten",
        "FORGETTING": "it is forgotten here as soon as its resource managers have been told; ordered once more, at once",
    }
    branches = ", ".join(
        f"{_named(branch)}: {branch['state']}" for branch in transaction["branches"]
    )
    then = said.get(transaction["state"], "list transactions says how it goes on")
    return f"Transaction {transaction['id']} is {transaction['state']} ({branches}); {then}."


# --- dead messages


def dead_messages(messages: Sequence[Json], details: bool) -> str:
    """Render dead messages, a line each.

    :param details: whether to add the original's message id, and below the properties of each and
        what went wrong.
    """
    if not details:
        return table_of(_DEAD, messages)
    text = table_of((*_DEAD, ("Original Message ID", "source_message_id")), messages)
    for message in messages:
        text += f"\n{message['message_id']}\n"
        shown = {
            "exception": message["exception"],
            "problem": message["problem"],
            **message["properties"],
        }
        for name, value in shown.items():
            if value not in (None, ""):
                text += f"    {name}: {printable(one_line(value))}\n"
    return text


def tally_lines(answer: Json, done: str) -> list[str]:
    """Say what became of dead messages."""
    would = "would be " if answer["dry_run"] else ""
    lines = [f"Messages matched: {answer['matched']}", f"Messages {would}{done}: {answer['done']}"]
    if answer["left"]:
        lines.append(f"Messages {would}left in the queue: {answer['left']}")
        lines += [
            f"    {counted(count, 'time')}: {reason}" for reason, count in answer["reasons"].items()
        ]
    if answer["gone"]:
        lines.append(f"Messages that somebody else took meanwhile: {answer['gone']}")
    return [*lines, ""]
