"""Delivery at a later time, as brokers other than this one have it.

Owns which of what a client's message asks its broker can do, and how ActiveMQ is told. It is not for
the messages of links: they have had their time where they come from.
"""

from __future__ import annotations

from gateway.messaging.errors import NotSupported
from gateway.messaging.message import Headers
from gateway.messaging.provider import Capabilities
from gateway.messaging.scheduled import (
    CRON,
    DELAY,
    PERIOD,
    REPEAT,
    SCHEDULES,
    TIME,
    Scheduling,
    read,
)
from gateway.messaging.values import Int, Value


def asked(headers: Headers, capabilities: Capabilities) -> Scheduling:
    """Return when a message is to be delivered.

    :param headers: of a message that asks for delivery at a later time.
    :param capabilities: of its broker.
    :raises InvalidSchedule: a value cannot be read.
    :raises NotSupported: the broker cannot do that.
    """
    schedule = read((headers.repeated or headers).properties)
    if not capabilities.delayed:
        raise NotSupported("delayed")
    if schedule.recurs and not capabilities.recurring:
        raise NotSupported("recurring")
    return schedule


def without_schedule(headers: Headers) -> Headers:
    """Return the headers without what asks for a later time."""
    kept = {name: value for name, value in headers.properties.items() if name not in SCHEDULES}
    return headers.replace(properties=kept)


def as_activemq_reads(headers: Headers, schedule: Scheduling, now_ms: int) -> Headers:
    """Return the headers with the schedule as ActiveMQ reads it.

    It knows no point in time, and each of its properties has a type.

    :raises NotSupported: a recurrence by calendar has a first time besides.
    """
    asking: dict[str, Value] = {}
    if schedule.cron is not None:
        if schedule.time:
            raise NotSupported(f"{TIME} with {CRON}")
        asking[CRON] = str(headers.properties[CRON])
    if schedule.time:
        delay = max(0, schedule.time - now_ms)
    else:
        delay = schedule.delay
    if delay:
        asking[DELAY] = delay
    if schedule.period and not (schedule.time and not schedule.repeat):
        asking[PERIOD] = schedule.period
    if schedule.repeat:
        asking[REPEAT] = Int(schedule.repeat)
    headers = without_schedule(headers)
    return headers.replace(properties={**headers.properties, **asking})
