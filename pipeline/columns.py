"""The columns of every table that more than one module speaks of.

Owns names and types, as Spark SQL writes them, so that they can be had without Spark. Lines are the
journal's own table (:data:`gateway.journal.schema.FIELDS`), so nothing of it is written twice.
"""

from __future__ import annotations

from typing import Final

from gateway.journal.schema import FIELDS

#: The last millisecond of the year 9999: the latest that a table can show.
LATEST: Final = 253_402_300_799_999

#: A line of the journal, as it is in its file.
LINES: Final = ", ".join([f"{field.name} {field.type}" for field in FIELDS])

#: An event: one step of one message. ``event_id`` names it for ever, and is the same in each copy
#: of its line.
EVENTS: Final = """
    event_id string, run string, line bigint, place int, time timestamp, day date, instance string, step string,
    message_id string, destination string, provider string, connection bigint, subscription string, selector string, user string, link string,
    size bigint, attempt int, reason string, comment string, transfer bigint, body_hash string, headers_hash string, target_id string,
    headers map<string,string>, body binary, body_type string, timestamp timestamp
"""

#: A message, as the data source ``stomp`` reads it, and as it writes it; ``headers`` has every
#: header of the frame as it came.
MESSAGES: Final = """
    body binary, text string, body_type string, message_id string, destination string, timestamp timestamp, expires timestamp,
    priority int, persistent boolean, type string, correlation_id string, reply_to string, redelivered boolean,
    headers map<string,string>, envelope binary
"""

#: Of those the columns whose values have nothing in common: Parquet would look each up in a
#: dictionary, and compare all.
UNLIKE: Final = ("body", "text", "envelope")
