"""Those who make traces of what the journal tells.

Owns what they must have; :mod:`gateway.tracing` is what there is. A line that is handed to the
journal may have one more field, :data:`TRACES`, which is for them and is not written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

TRACES: Final = "traces"
"""The field of a line with the contexts of those of its messages that are traced, by their ids."""


class Context(NamedTuple):
    """What a message says of the trace that it belongs to.

    :param trace_id: 32 hexadecimal digits.
    :param parent_id: the span that sent it, 16 digits; empty where it began no trace of its own.
    :param state: its ``tracestate``, as it came.
    """

    trace_id: str
    parent_id: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True)
class TracingStanding:
    """How the export of spans stands.

    :param exported: spans that the collector has taken since the start.
    :param dropped: spans that were given up: too many waited, or the collector refused them.
    :param waiting: spans that wait for the collector.
    :param failures: requests that failed.
    """

    exported: int
    dropped: int
    waiting: int
    failures: int


class Tracer(Protocol):
    """Makes traces."""

    def contexts(self, messages: Sequence[Any], roots: bool) -> dict[str, Context]:
        """The contexts of the messages that are traced, by id.

        On the reactor's thread.

        :param roots: messages without a context may begin a trace.
        """

    def read(self, lines: Sequence[Mapping[str, object]]) -> None:
        """Take lines, in their order.

        On the journal's thread. Never blocks, never raises.
        """

    def standing(self) -> TracingStanding:
        """How it stands."""
