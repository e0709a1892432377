"""What a line of the journal means, in plain Python: what Spark's answer is compared with."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any


def expand(line: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of a line, with the columns of EVENTS but for the times of day; ``time`` in
    microseconds, ``timestamp`` in milliseconds.
    """
    if "ids" in line:
        ids = line["ids"]
    else:
        ids = [
            f"{line['prefix']}{first + number * step}"
            for first, count, step in line["runs"]
            for number in range(count)
        ]
    for place, message in enumerate(ids):
        for step in line["steps"]:
            yield {
                "event_id": f"{line['run']}/{line['line']}/{place}/{step}",
                "run": line["run"],
                "line": line["line"],
                "place": place,
                "time": line["time"],
                "step": step,
                "message_id": message,
                **{name: line.get(name) for name in _SAME},
                "size": _own(line, "sizes", place, line.get("size")),
                "attempt": _own(line, "attempts", place),
                "transfer": _own(line, "transfers", place),
                "body_hash": _own(line, "bodies_hash", place),
                "headers_hash": _own(line, "headers_hash", place),
                "target_id": _own(line, "target_ids", place) or None,
                "headers": _own(line, "headers", place),
                "body": _octets(_own(line, "bodies", place)),
                "body_type": _own(line, "body_types", place),
                "timestamp": _own(line, "timestamps", place, line.get("timestamp")) or None,
            }


_SAME = (
    "instance",
    "destination",
    "provider",
    "connection",
    "subscription",
    "selector",
    "user",
    "link",
    "reason",
    "comment",
)


def _own(line: dict[str, Any], name: str, place: int, otherwise: Any = None) -> Any:
    values = line.get(name, ())
    return values[place] if place < len(values) else otherwise


def _octets(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
