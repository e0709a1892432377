"""Lines for the journal, as the broker tells it of messages.

Owns how a step of a run becomes a line, and what is one line with what was told just before. Which
steps there are is :mod:`gateway.broker.journal.journey`'s.

A line has the ids of its messages as numbers where all of them are made of their seqs, and as they
are otherwise. Steps of one moment at one place become one line: several runs that take the same
step, or one run that takes several.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, TypeAlias

from gateway.broker.core.consumers.origin import Origin
from gateway.journal import contents
from gateway.journal.journal import Journal
from gateway.journal.tracer import TRACES, Context
from gateway.messaging.destination import Destination
from gateway.messaging.message import Message
from gateway.reactor.turn import Turn

Steps: TypeAlias = tuple[str, ...]
#: A value for each message, or the one that all have.
Values: TypeAlias = "int | list[int] | list[str]"

#: Messages that one line may have before it is made no longer.
_LONG: Final = 1_000
#: The field of one value for all, by that of many.
_SINGULAR: Final = {"sizes": "size", "timestamps": "timestamp"}


class Named:
    """Messages of one destination, by name.

    Lists are not changed once they are here.

    :param numbers: what their ids end with; None where ``ids`` has them.
    """

    __slots__ = ("destination", "ids", "numbers")

    def __init__(
        self, destination: Destination, numbers: Sequence[int] | None, ids: list[str] | None
    ) -> None:
        self.destination = destination
        self.numbers = numbers
        self.ids = ids

    def __len__(self) -> int:
        return len(self.numbers) if self.numbers is not None else len(self.ids or ())

    def same(self, other: Named) -> bool:
        """Whether the other names the same messages."""
        return (
            self.destination == other.destination
            and self.numbers == other.numbers
            and self.ids == other.ids
        )

    @property
    def weight(self) -> int:
        """What it keeps in memory, in names; a range counts as one."""
        return 1 if isinstance(self.numbers, range) else len(self)

    def continued(self, other: Named) -> Named | None:
        """These messages and the next ones; None where the numbers do not go on."""
        first, second = self.numbers, other.numbers
        if isinstance(first, range) and isinstance(second, range) and first.stop == second.start:
            return Named(self.destination, range(first.start, second.stop), None)
        return None

    def and_then(self, other: Named) -> Named | None:
        """These messages, then others of the same destination.

        None where one kind of names does not suit both.
        """
        if (both := self.continued(other)) is not None:
            return both
        if self.numbers is not None and other.numbers is not None:
            return Named(self.destination, [*self.numbers, *other.numbers], None)
        if self.ids is not None and other.ids is not None:
            return Named(self.destination, None, self.ids + other.ids)
        return None


class _Line:
    """A line that may become longer."""

    __slots__ = ("named", "origin", "said", "steps", "subscription", "time", "traces", "values")

    def __init__(
        self,
        time: int,
        steps: Steps,
        named: Named,
        origin: Origin | None,
        subscription: str,
        values: dict[str, Values],
        said: dict[str, object],
        traces: dict[str, Context] | None = None,
    ) -> None:
        self.time = time
        self.traces = traces
        self.steps = steps
        self.named = named
        self.origin = origin
        self.subscription = subscription
        self.values = values
        self.said = said

    def trace(self, traces: dict[str, Context] | None) -> None:
        """Add the contexts of messages that are traced."""
        if traces:
            self.traces = {**self.traces, **traces} if self.traces else traces

    def add(self, steps: Steps, named: Named, values: dict[str, Values]) -> bool:
        """Add messages or steps of the same place and time to this line.

        They are more messages that take the same steps, or more steps of the same messages.

        :returns: whether they fit.
        """
        mine = self.named
        if self.steps != steps:
            if values or steps[0] in self.steps or not mine.same(named):
                return False
            self.steps += steps
            return True
        if (
            mine.destination != named.destination
            or self.values.keys() != values.keys()
            or len(mine) >= _LONG
        ):
            return False
        both = mine.and_then(named)
        if both is None:
            return False
        for name, value in values.items():
            self.values[name] = _both(self.values[name], len(mine), value, len(named))
        self.named = both
        return True


def names_of(destination: Destination, messages: Sequence[Message], identified: int) -> Named:
    """The names of messages of one destination.

    :param identified: above this seq, ids are made of seqs.
    """
    first = expected = messages[0].seq
    for message in messages:
        if message.seq != expected:
            break
        expected += 1
    else:
        if first > identified:
            return Named(destination, range(first, expected), None)
    numbers = [message.seq for message in messages]
    if min(numbers) <= identified:
        return Named(destination, None, [message.message_id for message in messages])
    return Named(destination, numbers, None)


def sizes_of(messages: Sequence[Message]) -> Values:
    """The octets of their bodies."""
    size = len(messages[0].body)
    for message in messages:
        if len(message.body) != size:
            return [len(message.body) for message in messages]
    return size


def timestamps_of(messages: Sequence[Message]) -> Values:
    """Their JMSTimestamps."""
    timestamp = messages[0].timestamp
    for message in messages:
        if message.timestamp != timestamp:
            return [message.timestamp for message in messages]
    return timestamp


def _both(first: Values, many: int, second: Values, more: int) -> Values:
    """The values of ``many`` messages, and then of ``more``."""
    if isinstance(first, int) and isinstance(second, int) and first == second:
        return first
    return [
        *([first] * many if isinstance(first, int) else first),
        *([second] * more if isinstance(second, int) else second),
    ]


class JournalLines:
    """Makes lines and hands them over.

    :param prefix: of ids that are made of seqs.
    """

    def __init__(self, journal: Journal, turn: Turn, prefix: str) -> None:
        self._journal: Final = journal
        self._turn: Final = turn
        self._prefix: Final = prefix
        self._headers: Final = journal.headers
        self._bodies: Final = journal.bodies
        self._line: _Line | None = None

    def tell(
        self,
        steps: Steps,
        named: Named,
        origin: Origin | None = None,
        subscription: str = "",
        values: dict[str, Values] | None = None,
        said: dict[str, object] | None = None,
        whole: Sequence[Message] = (),
        traces: dict[str, Context] | None = None,
    ) -> None:
        """Write a line, or extend the last one.

        :param whole: the messages, for their headers and bodies where those are wanted.
        :param traces: the contexts of those that are traced.
        """
        time = self._turn.refresh() * 1000
        values = values or {}
        said = said or {}
        if whole and (self._headers or self._bodies):
            self.flush()
            alone = _Line(time, steps, named, origin, subscription, values, said, traces)
            self._add(alone, list(whole))
            return
        line = self._line
        if line is None:
            self._turn.store(self.flush)
        elif (
            line.origin is origin
            and line.time == time
            and line.subscription == subscription
            and line.said == said
            and line.add(steps, named, values)
        ):
            line.trace(traces)
            return
        else:
            self._add(line)
        self._line = _Line(time, steps, named, origin, subscription, values, said, traces)

    def flush(self) -> None:
        """The last line becomes no longer: hand it over."""
        line, self._line = self._line, None
        if line is not None:
            self._add(line)

    def _add(self, line: _Line, whole: Sequence[Message] = ()) -> None:
        named = line.named
        fields: dict[str, object] = {"time": line.time, "steps": line.steps}
        if named.numbers is not None:
            fields["prefix"] = self._prefix
            fields["numbers"] = named.numbers
            octets = 0 if isinstance(named.numbers, range) else 40 * len(named.numbers)
        else:
            fields["ids"] = named.ids
            octets = 100 * len(named.ids or ())
        fields["destination"] = str(named.destination)
        origin = line.origin
        if origin is not None:
            fields["connection"] = origin.number
            fields["user"] = origin.user
        if line.subscription:
            fields["subscription"] = line.subscription
        for name, value in line.values.items():
            fields[_SINGULAR[name] if isinstance(value, int) else name] = value
        fields.update(line.said)
        if line.traces:
            fields[TRACES] = line.traces
        if whole:
            octets += sum([message.size for message in whole])
            if self._headers:
                fields["headers"] = partial(contents.headers, whole)
            if self._bodies:
                fields["bodies"] = partial(contents.bodies, whole)
                fields["body_types"] = partial(contents.body_types, whole)
        self._journal.add(fields, octets)
