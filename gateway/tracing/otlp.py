"""OTLP/JSON: spans as a request to a collector, and what it answers.

The encoding is that of the OpenTelemetry protocol 1.x for JSON, where ids are hexadecimal, kinds are
numbers and 64 bits are texts. It is some fifty lines; protobuf would bring a library, and its C, for
a few kilobytes less.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from gateway import __version__
from gateway.tracing.spans import Span

_ERROR: Final = 2
#: Bit 0 of ``flags`` is the sampled flag of W3C.
_SAMPLED: Final = 1

_encode: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def request_of(spans: Sequence[Span], instance: str) -> bytes:
    """The body of a request with these spans.

    :param instance: the gateway's.
    """
    resource = _attributes(
        {
            "service.name": "stomp-gateway",
            "service.version": __version__,
            "service.instance.id": instance,
        }
    )
    scope = {"name": "gateway.tracing", "version": __version__}
    one = {
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": scope, "spans": [_span(span) for span in spans]}],
    }
    return _encode({"resourceSpans": [one]}).encode("ascii")


def rejected_by(answer: bytes) -> int:
    """How many spans a collector that took the request did not take."""
    try:
        said = json.loads(answer)
        return max(0, int(said["partialSuccess"]["rejectedSpans"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return 0  # it says nothing of the kind


def _span(span: Span) -> dict[str, object]:
    said: dict[str, object] = {
        "traceId": span.context.trace_id,
        "spanId": span.span_id,
        "flags": _SAMPLED,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": f"{span.start_us}000",
        "endTimeUnixNano": f"{max(span.start_us, span.end_us)}000",
        "attributes": _attributes(span.attributes),
        "status": {"code": _ERROR, "message": span.error} if span.error else {},
    }
    if span.parent_id:
        said["parentSpanId"] = span.parent_id
    if span.context.state:
        said["traceState"] = span.context.state
    return said


def _attributes(values: Mapping[str, str | int]) -> list[dict[str, object]]:
    return [
        {
            "key": name,
            "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value},
        }
        for name, value in values.items()
    ]
