"""The lines of a log: what an event looks like as text, and as JSON.

Owns both forms, and the bounds of a line. Where lines go is :mod:`gateway.instance.logs`'s, which
secrets are taken out is :mod:`gateway.instance.redaction`'s.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from twisted.logger import LogEvent
from twisted.python.failure import Failure

from gateway.instance.levels import DETAIL, Level
from gateway.instance.redaction import Redaction, is_secret_name
from gateway.instance.settings import HIDDEN, printable

_LONGEST: Final = 16 * 1024
"""Characters of one line's text; what a peer sends must not fill the disk with one event."""

ANNOUNCED: Final = "announced"
"""The field of an event that says that the starter of the instance has been told already."""


LINES: Final = "lines"
"""The field of an event that is many of one kind: an iterable of texts, each of which becomes a
line, in place of the event's own text. One event for a thousand lines costs a tenth of a thousand
events; the iterable is gone through only if the event is written.
"""

#: The format of an event that brings its whole text, in the field ``line``.
WHOLE: Final = "{line}"
#: The fields of one that has nothing beside it that is to be shown.
_OF_WHOLE: Final = frozenset(
    [
        "line",
        "event",
        "log_format",
        "log_level",
        "log_logger",
        "log_namespace",
        "log_source",
        "log_system",
        "log_time",
        "log_trace",
    ]
)
EVENT: Final = "event"
"""The field of an event that names its kind, for those who follow what happens."""

#: Values within values are shown up to here.
_DEEPEST: Final = 4
#: Fields of an event that are no facts of its own, beside all that Twisted names ``log_``.
_ROUTING: Final = frozenset({ANNOUNCED, DETAIL, EVENT, LINES})
#: Those that Twisted adds to the events of its older API.
_LEGACY: Final = frozenset(
    {"format", "isError", "failure", "logLevel", "message", "printed", "system", "time", "why"}
)
#: A number beyond it loses digits in most readers of JSON.
_LARGEST_NUMBER: Final = 2**53

_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class LineForm:
    """One way to write events.

    :param one: the line of an event, without a line end, with the secrets taken out.
    :param many: a line for each of these texts, which are those of one event; with line ends
        between them.
    :param notice: the line that tells the starter of the process something.
    """

    one: Callable[[LogEvent, Level, Redaction], str]
    many: Callable[[Iterable[str], LogEvent, Level, Redaction], str]
    notice: Callable[[str, Level], str]


# --- text


def line_of(event: LogEvent, level: Level, redaction: Redaction) -> str:
    """Return the line of an event as text, with the secrets taken out.

    It is ``2026-01-31T12:00:00.000Z LEVEL [namespace] text``: one line whatever the event holds.

    A failure's traceback follows the text, its line ends written ``\\n``.
    """
    return f"{_beginning(event, level)}{printable(_shortened(redaction.text_of(event)))}"


def lines_of(texts: Iterable[str], event: LogEvent, level: Level, redaction: Redaction) -> str:
    """Return a line of text for each of the texts of one event."""
    beginning = _beginning(event, level)
    return redaction.text("\n".join([beginning + printable(_shortened(text)) for text in texts]))


def _notice(line: str, level: Level) -> str:
    return f"warning: {line}" if level is Level.WARNING else line


def _beginning(event: LogEvent, level: Level) -> str:
    return f"{_moment(event.get('log_time', 0.0))} {level.name} [{printable(_logger(event))}] "


# --- JSON


def object_of(event: LogEvent, level: Level, redaction: Redaction) -> str:
    """Return the line of an event as one JSON object, without its secrets."""
    return _encode(values_of(event, level, redaction))


def values_of(event: LogEvent, level: Level, redaction: Redaction) -> dict[str, object]:
    """Return the values of the object that :func:`object_of` writes.

    It has ``time``, ``level``, ``logger`` and ``message``; ``fields`` where the event has values of
    its own that are not all of the message; ``exception`` with ``type``, ``message`` and ``stacktrace`` where something has failed.
    It is ASCII: JSON's escapes stand for all else.
    """
    if event.get("log_format") == WHOLE and set(event) <= _OF_WHOLE:
        # Those of connections, of which there may be many.
        return _head(event, level, redaction.text(str(event["line"])), redaction)
    formatted = redaction.formatted(event)
    message = redaction.text(formatted)
    # Where something had to be hidden, a field may hold it alone, without the word that gave it
    # away.
    seen = None if message == formatted else message
    said = _head(event, level, message, redaction)
    fields = _Fields(redaction, seen).of(event, message)
    if fields:
        said["fields"] = fields
    failure = event.get("log_failure")
    if isinstance(failure, Failure):
        said["exception"] = {
            "type": _exception_type(failure),
            "message": _json_text(redaction.text(failure.getErrorMessage())),
            "stacktrace": _json_text(redaction.text(failure.getTraceback().rstrip())),
        }
    return said


def objects_of(texts: Iterable[str], event: LogEvent, level: Level, redaction: Redaction) -> str:
    """Return a JSON object a line for each of the texts of one event."""
    fields = _Fields(redaction, None).of(event)
    rest: dict[str, object] = {"fields": fields} if fields else {}
    return "\n".join(
        [_encode(_head(event, level, redaction.text(text), redaction) | rest) for text in texts]
    )


def _notice_object(line: str, level: Level) -> str:
    event = {"log_time": datetime.now(UTC).timestamp(), "log_namespace": "gateway"}
    redaction = Redaction()
    return _encode(_head(event, level, redaction.text(line), redaction))


def _head(event: LogEvent, level: Level, message: str, redaction: Redaction) -> dict[str, object]:
    return {
        "time": _moment(event.get("log_time", 0.0)),
        "level": level.name,
        "logger": _json_text(redaction.text(_logger(event))),
        "message": _json_text(message),
    }


class _Fields:
    """The values of one event, as JSON has them.

    What has no text of its own, such as a function or a connection, is left out. All values
    together have at most :data:`_LONGEST` characters, roughly; those beyond are left out, and
    counted.

    :param seen: a value that is not within this text is hidden; None where all may be seen.
    """

    def __init__(self, redaction: Redaction, seen: str | None) -> None:
        self._redaction = redaction
        self._seen = seen
        self._left = _LONGEST

    def of(self, event: LogEvent, message: str | None = None) -> dict[str, object]:
        """:param message: a value that is just this is left out."""
        legacy = _LEGACY if event.get("log_namespace") == "log_legacy" else frozenset()
        found: dict[str, object] = {}
        dropped = 0
        for name, value in event.items():
            name = str(name)
            if name.startswith("log_") or name in _ROUTING or name in legacy:
                continue
            if self._left <= 0:
                dropped += 1
                continue
            shown = HIDDEN if is_secret_name(name) else self._plain(value, 0)
            if shown is not None and shown != message:
                found[self._text(name)] = shown
        if dropped:
            found["left_out"] = dropped
        return found

    def _plain(self, value: object, depth: int) -> object:
        """The value as JSON has it; None where it has no text of its own."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, Enum):
            return self._leaf(value.name)
        if isinstance(value, (int, float)):
            whole = math.isfinite(value) and abs(value) <= _LARGEST_NUMBER
            text = self._leaf(str(value))
            return value if whole and text == str(value) else text
        if isinstance(value, str):
            return self._leaf(value)
        if isinstance(value, (bytes, bytearray)):
            return self._leaf(value.decode("utf-8", "backslashreplace"))
        if type(value).__str__ is object.__str__:
            inside = isinstance(value, (Mapping, list, tuple, set, frozenset)) and depth < _DEEPEST
            return self._inside(value, depth + 1) if inside else None
        try:
            return self._leaf(str(value))
        except Exception:  # noqa: BLE001
            return None  # as in the message, where Twisted says so

    def _inside(self, value: object, depth: int) -> object:
        if isinstance(value, Mapping):
            pairs: dict[str, object] = {}
            for key, inner in value.items():
                if self._left <= 0:
                    break
                hidden = is_secret_name(key)
                pairs[self._text(_name(key))] = HIDDEN if hidden else self._plain(inner, depth)
            return pairs
        assert isinstance(value, (list, tuple, set, frozenset))
        if len(value) == 2 and isinstance(value, (list, tuple)) and is_secret_name(value[0]):
            return [self._text(_name(value[0])), HIDDEN]
        items: list[object] = []
        for inner in value:
            if self._left <= 0:
                break
            items.append(self._plain(inner, depth))
        return items

    def _leaf(self, text: str) -> str:
        if self._seen is not None and text not in self._seen:
            self._left -= len(HIDDEN)
            return HIDDEN
        return self._text(text)

    def _text(self, text: str) -> str:
        shown = _json_text(self._redaction.text(text), max(self._left, 0))
        self._left -= len(shown) + 1
        return shown


def _name(key: object) -> str:
    return key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)


def _exception_type(failure: Failure) -> str:
    kind = failure.type
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else str(kind)


def _json_text(text: str, most: int = _LONGEST) -> str:
    """Shorten ``text``, and escape halves of characters."""
    return _shortened(text, most).encode("utf-8", "backslashreplace").decode()


# --- both


def _moment(seconds: float) -> str:
    """RFC 3339, in UTC."""
    moment = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z")


def _logger(event: LogEvent) -> str:
    return str(event.get("log_namespace", "-"))


def _shortened(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most} more characters)"


TEXT: Final = LineForm(line_of, lines_of, _notice)
JSON: Final = LineForm(object_of, objects_of, _notice_object)

FORMS: Final = {"text": TEXT, "json": JSON}
"""By the values of ``imq.log.format``."""
