"""W3C trace contexts of messages, and which messages are traced.

Owns what a valid ``traceparent`` is, and the choice: a message with one is traced if its sender says
that it is sampled; of the others every n-th begins a trace, up to so many a second.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from gateway.journal.tracer import Context
from gateway.messaging.message import MEMO_SAME_NAMES, Headers, Message
from gateway.reactor.rates import TokenBucket

TRACEPARENT: Final = "traceparent"
_IN_LINES: Final = TRACEPARENT.encode() + b":"
TRACESTATE: Final = "tracestate"

_IDS: Final = r"-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
#: Versions to come may have more behind the flags; version ff is invalid.
_VALID: Final = re.compile(rf"(?:00{_IDS}|(?!00|ff)[0-9a-f]{{2}}{_IDS}(?:-.*)?)", re.ASCII)
_SAMPLED: Final = 1


def parsed(traceparent: object) -> tuple[str, str, bool] | None:
    """Return trace id, parent id and whether it is sampled, if it is valid."""
    found = _VALID.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if found is None:
        return None
    trace_id, parent_id, flags = (found[at] or found[at + 3] for at in (1, 2, 3))
    return trace_id, parent_id, bool(int(flags, 16) & _SAMPLED)


def contexts(
    messages: Sequence[Message], one_in: int, rate: TokenBucket | None = None
) -> dict[str, Context]:
    """Return the contexts of those messages that are traced, by id.

    :param one_in: of the embedded broker's messages without a valid context every such one begins a
        trace; with 0 no message does.
    :param rate: the traces that may begin now; None for no bound.
    """
    found: dict[str, Context] = {}
    if not messages:
        return found
    given: list[Message] = []
    last: Headers | None = None
    shared: Headers | None = None
    has = all_have = alike = False
    for message in messages:
        headers = message.headers
        # Producers that say the same each time share it; then one look is enough. Of others one
        # look at each shape of their headers is enough, and the lines are not read for it.
        if headers is not last:
            last, repeated = headers, headers.repeated
            if repeated is None:
                has = TRACEPARENT in headers.properties
            else:
                if repeated is not shared:
                    shared, alike = repeated, MEMO_SAME_NAMES in repeated.memo
                    all_have = TRACEPARENT in repeated.properties or (
                        alike and _IN_LINES in headers.lines
                    )
                has = all_have or (not alike and _IN_LINES in headers.lines)
        if has:
            given.append(message)
    _given(given, found)
    if one_in:
        for message in _every_nth(messages, one_in):
            if rate is not None and rate.lacks_s():
                break
            if parsed(message.headers.properties.get(TRACEPARENT)) is None:
                if rate is not None:
                    rate.take(1)
                found[message.message_id] = Context(_digest(message.message_id, 16))
    return found


def _given(messages: Sequence[Message], found: dict[str, Context]) -> None:
    """Add the contexts of those that their senders have sampled."""
    for message in messages:
        properties = message.headers.properties
        given = parsed(properties.get(TRACEPARENT))
        if given is not None and given[2]:
            state = properties.get(TRACESTATE)
            said = state if isinstance(state, str) and state.isascii() else ""
            found[message.message_id] = Context(given[0], given[1], said)


def _every_nth(messages: Sequence[Message], number: int) -> Sequence[Message]:
    """Those whose seq is a multiple of a number."""
    first = messages[0].seq
    if messages[-1].seq - first == len(messages) - 1:
        # Seqs rise, so there is no gap.
        return messages[-first % number :: number]
    return [message for message in messages if message.seq % number == 0]


def span_id(*of: object) -> str:
    """The id of a span: the same for the same step of the same message."""
    return _digest("\0".join(map(str, of)), 8)


def _digest(text: str, octets: int) -> str:
    return blake2b(text.encode("utf-8", "backslashreplace"), digest_size=octets).hexdigest()
