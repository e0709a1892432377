"""Properties by which a message asks to be delivered later.

They are ActiveMQ's, and those by which Artemis has a point in time. A provider says in its
capabilities which of what they ask it does.

Owns their names and what they mean. When a message is delivered is the provider's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.messaging.cron import Cron, read_cron
from gateway.messaging.errors import InvalidSchedule
from gateway.messaging.values import Value

DELAY: Final = "AMQ_SCHEDULED_DELAY"
PERIOD: Final = "AMQ_SCHEDULED_PERIOD"
REPEAT: Final = "AMQ_SCHEDULED_REPEAT"
CRON: Final = "AMQ_SCHEDULED_CRON"
#: Epoch milliseconds.
TIME: Final = "AMQ_SCHEDULED_TIME"
ARTEMIS_TIME: Final = "_AMQ_SCHED_DELIVERY"
#: They are not on the message that is delivered at its time.
SCHEDULES: Final = frozenset((DELAY, PERIOD, REPEAT, CRON, TIME, ARTEMIS_TIME))
#: Any of these has a message scheduled.
_ASKING: Final = SCHEDULES - {REPEAT}
#: Of a message that is delivered at its time: what it was known by until then.
JOB_ID: Final = "scheduledJobId"

#: As ActiveMQ has it.
MOST_REPEATS: Final = 1000
#: A hundred years.
MOST_MS: Final = 100 * 366 * 86_400_000


class Scheduling(NamedTuple):
    """When a message is delivered.

    :param delay: milliseconds from its acceptance, or from each time of ``cron``.
    :param period: milliseconds between deliveries.
    :param repeat: deliveries after the first; -1 without end.
    :param cron: when it is delivered, again and again; None for no recurrence.
    :param time: epoch milliseconds; 0 where that is not given.
    """

    delay: int
    period: int
    repeat: int
    cron: Cron | None
    time: int

    def first(self, now_ms: int) -> int:
        """When the message is delivered first, accepted at ``now_ms``."""
        if self.time:
            return self.time
        begin = self.cron.after(now_ms) if self.cron is not None else now_ms
        if self.cron is not None and self.repeat:
            # The series that begins then waits by itself.
            return begin
        return begin + (self.delay or self.period)

    def following(self, due_ms: int, now_ms: int, fired: int) -> int:
        """When it is delivered next, 0 for no more.

        What was missed meanwhile is not made up.

        :param due_ms: when it should have been delivered just now.
        :param fired: how often it was, this time included.
        """
        if self.cron is not None:
            return self.cron.after(max(due_ms, now_ms))
        if 0 <= self.repeat < fired:
            return 0
        following = due_ms + self.period
        return following if following > now_ms else now_ms + self.period

    @property
    def recurs(self) -> bool:
        """Whether it is delivered more than once."""
        return self.cron is not None or self.repeat != 0


def asks(properties: Mapping[str, Value]) -> bool:
    """Whether a message with these properties is to be delivered later."""
    return not _ASKING.isdisjoint(properties)


def read(properties: Mapping[str, Value]) -> Scheduling:
    """Read what a message asks for.

    :raises InvalidSchedule: a value cannot be read.
    """
    cron: Cron | None = None
    if CRON in properties and properties[CRON] != "":
        text = str(properties[CRON])
        try:
            cron = read_cron(text)
        except ValueError as error:
            raise InvalidSchedule(CRON, text, str(error)) from None
    period = _number(properties, PERIOD, 0, MOST_MS)
    repeat = _number(properties, REPEAT, -1, MOST_REPEATS)
    if repeat and not period:
        raise InvalidSchedule(
            REPEAT, str(repeat), f"it needs {PERIOD}, the milliseconds between deliveries"
        )
    time = _number(properties, TIME, 0, MOST_MS) or _number(properties, ARTEMIS_TIME, 0, MOST_MS)
    return Scheduling(_number(properties, DELAY, 0, MOST_MS), period, repeat, cron, time)


def delay_left(properties: Mapping[str, Value], waited_ms: int) -> int | None:
    """Return what is left of a message's delay when it is sent late.

    At least 1, as a delay of 0 would be one of ``PERIOD`` milliseconds.

    :param waited_ms: for how long it has waited.
    :returns: milliseconds until the first delivery, as :data:`DELAY` has them; None where waiting
        changes nothing: a point in time says when it is due, or ``CRON``, or nothing does.
    :raises InvalidSchedule: a value cannot be read.
    """
    schedule = read(properties)
    delay = schedule.delay or schedule.period
    if schedule.cron is not None or schedule.time or not delay:
        return None
    return max(1, delay - waited_ms)


def _number(properties: Mapping[str, Value], name: str, low: int, high: int) -> int:
    given = properties.get(name)
    if given is None:
        return 0
    text = str(given).strip()
    digits = text.removeprefix("-")
    if isinstance(given, bool) or not (digits.isascii() and digits.isdigit()):
        raise InvalidSchedule(name, text, "a whole number is expected")
    # Of more digits it is out of range in any case.
    number = int(text) if len(digits) <= 20 else -MOST_MS
    if not low <= number <= high:
        raise InvalidSchedule(name, text, f"expected {low} to {high}")
    return number
